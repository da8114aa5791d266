// SPDX-License-Identifier: BSD-2-Clause
/*
 * Commits by a read fence over a private connection, without the agent: their
 * cost, and the cases in which the agent must commit instead. Also: what a
 * write's completion proves to a commit on a later connection.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_node.h"
#include "fabtests/commit.h"

#define PAGE MODEL_PAGE

static unsigned int failed;
static const char *doing;

#define CHECK(cond)                                                            \
	do {                                                                   \
		if (cond)                                                      \
			break;                                                 \
		fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__,     \
			doing, #cond);                                         \
		failed++;                                                      \
	} while (0)

/* --- the simulated host of the provider --- */

static struct rp_facts facts;
static uint64_t now = 1000000000, rng = 1;
static struct model *model;

static uint64_t sim_now(void)
{
	return now;
}

static void sim_random(void *buf, size_t len)
{
	for (uint8_t *p = buf; len--; p++) {
		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		*p = (uint8_t)(rng >> 56);
	}
}

static int sim_facts(const void *addr, size_t len, struct rp_facts *f)
{
	*f = facts;
	return 0;
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	return model_msync(model, addr, len);
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	model_clwb(model, addr, len);
}

static void op_drain(void *ctx)
{
	model_sfence(model);
}

static const struct rp_pmem_ops *sim_flusher(const void *addr, size_t len)
{
	static const struct rp_pmem_ops ops = {
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
	};

	return &ops;
}

/* --- two programs --- */

/*
 * The target's facts: DDIO off, so DMA goes to memory; the memory controller is
 * in the power domain.
 */
static const struct rp_facts appliance = {
	.memory = RP_MEM_DAX_SYNC,
	.placement = RP_PLACE_DMA_MEMORY,
	.domain = RP_DOMAIN_MEMCTRL,
	.fence = RP_YES,
	.fs_trusted = RP_YES,
	.agent = true,
};

static const struct model_cfg hardware = {
	.kind = MODEL_DAX_SYNC,
	.domain = MODEL_ADR,
	.place = MODEL_DMA_MEMORY,
	.fence = true,
};

static const struct pmsim_cfg fabric = {
	.ordered = true,
	.fixed_keys = true,
	.offers_msg = true,
	.errors_disconnect = true,
};

static struct node a, t;
static uint8_t name[NODE_NAME];
static uint8_t *mem, *other;
static uint64_t key;

static void start_world(const char *what, const struct pmsim_cfg *cfg)
{
	doing = what;
	facts = appliance;
	nodes_reset(cfg, false);
	pmsim->machine(NULL);
	pmsim->machine(&hardware);
	model = pmsim->model(1);
	mem = model_alloc(model, PAGE);
	other = model_alloc(model, PAGE);
	node_open(&t, 1, NULL);
	node_name(&t, name);
	node_register(&t, mem, PAGE);
	key = fi_mr_key(t.mr);
	node_open(&a, 0, NULL);
	node_peer(&a, name);
}

static void end_world(void)
{
	node_close(&a);
	node_close(&t);
}

static void insert_again(void)
{
	MUST(fi_av_remove(a.av, &a.peer, 1, 0));
	node_peer(&a, name);
}

/* Close the target's region, and register its memory again. */
static void register_again(uint8_t *at)
{
	MUST(fi_close(&t.mr->fid));
	node_register(&t, at, PAGE);
	key = fi_mr_key(t.mr);
}

static void poll_once(struct node *n)
{
	fi_cq_read(n->cq, NULL, 0);
}

static void deliver_to(unsigned int machine)
{
	struct pmsim_wire w[8];
	size_t n = pmsim->wires(w, 8);

	for (size_t i = 0; i < n; i++)
		if (w[i].to == machine)
			pmsim->deliver(w[i].id, w[i].in_flight);
}

static char want, rest; /* contexts: wait_end() waits for &want, and ignores
			 * &rest */

/* Deliver messages to the target, let it poll, and deliver its replies. */
static void round_trip(void)
{
	deliver_to(1);
	poll_once(&t);
	deliver_to(0);
}

/* Wait for the operation whose context is &want. Returns its error, or 0. */
static int wait_end(unsigned int *rounds)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_entry e;
	ssize_t got;

	for (*rounds = 0; *rounds < 100; ++*rounds) {
		while ((got = fi_cq_read(a.cq, &e, 1)) != -FI_EAGAIN) {
			if (got == 1 && e.op_context == &want)
				return 0;
			if (got == 1)
				continue;
			MUST(fi_cq_readerr(a.cq, &err, 0));
			if (err.op_context == &want)
				return err.err;
		}
		round_trip();
		/*
		 * After 20 rounds advance the clock: the provider may wait for
		 * a timer.
		 */
		if (*rounds > 20)
			now += 100000000;
	}
	return -1;
}

/*
 * Did the call return -FI_EAGAIN because the private connection is not up? Then
 * lets it make progress, and returns true 100 times at most.
 */
static bool still_connecting(ssize_t ret, unsigned int *tries)
{
	if (ret != -FI_EAGAIN || ++*tries > 100)
		return false;
	round_trip();
	poll_once(&a);
	now += 3000000;
	return true;
}

static ssize_t write_flags(const void *buf, size_t len, uint64_t at,
			   uint64_t flags, void *context)
{
	struct iovec iov = {(void *)buf, len};
	struct fi_rma_iov rma = {at, len, key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = a.peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};
	unsigned int tries = 0;
	ssize_t ret;

	do
		ret = fi_writemsg(a.ep, &m, flags | FI_COMPLETION);
	while (still_connecting(ret, &tries));
	return ret;
}

/*
 * One durable write. Returns 0, the err of its error entry, or the call's
 * negative error.
 */
static int durable_write(uint64_t at, uint64_t value, unsigned int *rounds)
{
	ssize_t ret = write_flags(&value, sizeof(value), at, FI_COMMIT_COMPLETE,
				  &want);

	return ret ? (int)ret : wait_end(rounds);
}

static ssize_t post_commit(uint64_t at, uint64_t len, enum fi_rpmem_level level,
			   const struct fi_rpmem_then *then)
{
	struct fi_rma_iov r = {at, len, key};
	unsigned int tries = 0;
	ssize_t ret;

	do
		ret = commit_post(a.ep, &r, 1, a.peer, level,
				  FI_RPMEM_CLASS_DEFAULT, then, &want);
	while (still_connecting(ret, &tries));
	return ret;
}

static int commit(uint64_t at, uint64_t len, unsigned int *rounds)
{
	ssize_t ret = post_commit(at, len, FI_RPMEM_DURABLE, NULL);

	return ret ? (int)ret : wait_end(rounds);
}

/* Does the word hold this value after every possible power cut? */
static bool survives_cut(const uint8_t *at, uint64_t value)
{
	uint64_t v[MODEL_VALUES];
	bool lost;
	size_t n = model_after_cut(model, at, v, &lost);

	return n == 1 && !lost && v[0] == value;
}

/* Counts of READs and SENDs before the commit under test. */
static uint64_t reads, sends;

static void count_steps(void)
{
	reads = pmsim->count(PMSIM_READ);
	sends = pmsim->count(PMSIM_SEND);
}

static bool used_agent(void)
{
	return pmsim->count(PMSIM_SEND) > sends &&
	       pmsim->count(PMSIM_READ) == reads;
}

static bool used_fence(void)
{
	return pmsim->count(PMSIM_SEND) == sends &&
	       pmsim->count(PMSIM_READ) == reads + 1;
}

/* Open the private connection by one durable write. */
static void connect_up(void)
{
	unsigned int rounds;

	CHECK(durable_write(PAGE - 64, 1, &rounds) == 0);
}

/* Poll until the initiator has noticed the end of its private connection. */
static void notice_lost_connection(void)
{
	for (int i = 0; i < 4; i++) {
		now += 3000000;
		round_trip();
		poll_once(&a);
	}
}

static void cut_power(void)
{
	CHECK(pmsim->cut(0, PMSIM_CUT_HERE));
	for (int i = 0; i < 4; i++) {
		now += 3000000;
		poll_once(&a);
	}
}

/* --- the cost of a commit --- */

static void one_round(void)
{
	static uint64_t got;
	unsigned int rounds, more;

	start_world("one durable write", &fabric);
	count_steps();
	connect_up();
	/* The first commit uses a fence, too. */
	CHECK(used_fence());
	count_steps();
	CHECK(durable_write(0, 0x11, &rounds) == 0);
	CHECK(rounds == 1);
	CHECK(used_fence());
	CHECK(survives_cut(mem, 0x11));
	/* The fence itself has no completion. */
	CHECK(fi_cq_read(a.cq, NULL, 0) != -FI_EAVAIL);

	/*
	 * The program's own fence (write, wait, read) takes one round trip
	 * more.
	 */
	CHECK(write_flags("12345678", 8, 8, FI_DELIVERY_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	MUST(fi_read(a.ep, &got, 8, NULL, a.peer, 8, key, &want));
	CHECK(wait_end(&more) == 0);
	CHECK(rounds + more == 2);
	CHECK(survives_cut(mem + 8, got));
	end_world();
}

static void many_writes(void)
{
	unsigned int rounds;

	start_world("writes, then their commit", &fabric);
	connect_up();
	for (uint64_t i = 0; i < 3; i++)
		CHECK(write_flags(&i, 8, 64 * i, 0, &rest) == 0);
	count_steps();
	CHECK(commit(0, 192, &rounds) == 0);
	CHECK(rounds == 1);
	CHECK(used_fence());
	CHECK(survives_cut(mem + 64, 1) && survives_cut(mem + 128, 2));
	/* The fence reads only bytes of the region: fewer than 8 at its end. */
	count_steps();
	CHECK(write_flags("abc", 3, PAGE - 3, FI_COMMIT_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	CHECK(used_fence());
	/*
	 * A commit beyond the region fails at the initiator, which posts
	 * nothing and keeps the connection.
	 */
	count_steps();
	CHECK(commit(PAGE - 3, 4, &rounds) == ERANGE);
	CHECK(pmsim->count(PMSIM_READ) == reads);
	count_steps();
	CHECK(durable_write(0, 5, &rounds) == 0);
	CHECK(used_fence());
	end_world();
}

/*
 * The agent gets commits that a fence cannot complete: with an ordered store,
 * with remote CQ data, or at level VISIBLE.
 */
static void not_by_fence(void)
{
	struct fi_rpmem_then then = {.addr = 8, .value = 7};
	unsigned int rounds;

	start_world("a store behind it", &fabric);
	connect_up();
	then.key = key;
	count_steps();
	MUST(post_commit(0, 8, FI_RPMEM_DURABLE, &then));
	CHECK(wait_end(&rounds) == 0);
	CHECK(used_agent());
	CHECK(survives_cut(mem + 8, 7));
	doing = "remote CQ data";
	count_steps();
	CHECK(write_flags("12345678", 8, 0,
			  FI_COMMIT_COMPLETE | FI_REMOTE_CQ_DATA, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	CHECK(used_agent());
	doing = "visible";
	count_steps();
	MUST(post_commit(0, 8, FI_RPMEM_VISIBLE, NULL));
	CHECK(wait_end(&rounds) == 0);
	CHECK(used_agent());
	end_world();
}

/* --- cases in which the agent must commit --- */

static void after_break(void)
{
	unsigned int rounds;
	uint64_t v = 9;

	start_world("after a break", &fabric);
	connect_up();
	/* The write has reached the target's NIC, and not memory. */
	CHECK(write_flags(&v, 8, 0, FI_DELIVERY_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	/* The cut connection leaves the outcome of this write indeterminate. */
	CHECK(write_flags(&v, 8, 64, FI_COMMIT_COMPLETE, &want) == 0);
	cut_power();
	CHECK(wait_end(&rounds) == ENOTCONN);
	/*
	 * A fence on the new connection proves nothing about the old
	 * connection's writes.
	 */
	count_steps();
	CHECK(commit(0, 8, &rounds) == 0);
	CHECK(used_agent());
	CHECK(survives_cut(mem, 9));
	/*
	 * A fence on the new connection covers the writes of that connection.
	 */
	count_steps();
	CHECK(durable_write(128, 1, &rounds) == 0);
	CHECK(used_fence());
	CHECK(commit(64, 8, &rounds) == EREMOTEIO);
	CHECK(durable_write(64, 3, &rounds) == 0);
	CHECK(commit(64, 8, &rounds) == 0);
	CHECK(survives_cut(mem + 64, 3));
	/* After a new registration commits use the fence again. */
	register_again(mem);
	notice_lost_connection();
	connect_up();
	count_steps();
	CHECK(durable_write(192, 2, &rounds) == 0);
	CHECK(used_fence());
	end_world();
}

/* The connection breaks while nothing is outstanding. */
static void quiet_break(void)
{
	unsigned int rounds;
	uint64_t v = 5;

	start_world("after a break without outstanding operations", &fabric);
	connect_up();
	CHECK(write_flags(&v, 8, 0, FI_DELIVERY_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	cut_power();
	count_steps();
	CHECK(commit(0, 8, &rounds) == 0);
	CHECK(used_agent());
	CHECK(survives_cut(mem, 5));
	count_steps();
	CHECK(durable_write(0, 2, &rounds) == 0);
	CHECK(used_fence());
	CHECK(survives_cut(mem, 2));
	end_world();
}

/*
 * The peer's address is removed and inserted again while a write is
 * outstanding.
 */
static void after_removal(void)
{
	unsigned int rounds;

	start_world("after fi_av_remove()", &fabric);
	connect_up();
	CHECK(write_flags("12345678", 8, 0, FI_COMMIT_COMPLETE, &want) == 0);
	insert_again();
	CHECK(wait_end(&rounds) == ECANCELED);
	CHECK(commit(0, 8, &rounds) == EREMOTEIO);
	count_steps();
	CHECK(durable_write(0, 4, &rounds) == 0);
	CHECK(used_fence());
	CHECK(survives_cut(mem, 4));
	end_world();
}

static void restart_target(uint8_t *at)
{
	pmsim->kill(1);
	node_close(&t);
	node_open(&t, 1, name);
	node_register(&t, at, PAGE);
}

static void after_restart(void)
{
	unsigned int rounds;
	uint64_t old;

	start_world("after a restart", &fabric);
	connect_up();
	old = key;
	restart_target(other);
	/* The rkey of the old grant now names other memory (fixed_keys). */
	CHECK(durable_write(0, 3, &rounds) > 0);
	CHECK(durable_write(0, 3, &rounds) > 0);
	CHECK(!survives_cut(other, 3));
	key = fi_mr_key(t.mr);
	CHECK(key != old);
	count_steps();
	CHECK(durable_write(0, 4, &rounds) == 0);
	CHECK(used_fence());
	CHECK(survives_cut(other, 4));
	end_world();
}

/*
 * The target registers the region again with weaker facts: the agent commits,
 * and the old key is refused.
 */
static void check_downgrade(void)
{
	unsigned int rounds;
	uint64_t old;

	start_world("after a downgrade", &fabric);
	connect_up();
	old = key;
	facts.fence = RP_NO;
	register_again(mem);
	notice_lost_connection();
	for (int i = 1; i < 3; i++) {
		count_steps();
		CHECK(durable_write(0, (uint64_t)i, &rounds) == 0);
		CHECK(used_agent());
		CHECK(survives_cut(mem, (uint64_t)i));
	}
	/* The target refuses the old key. */
	key = old;
	CHECK(durable_write(0, 3, &rounds) > 0);
	CHECK(commit(0, 8, &rounds) != 0);
	end_world();
}

/*
 * With reuse_keys the target's next region gets the rkey of the previous one.
 * Without a check of the key, the holder of the old key would write into the
 * new region, and the fence would succeed.
 */
static void reused_keys(void)
{
	struct pmsim_cfg cfg = fabric;
	unsigned int rounds;
	uint64_t next;

	cfg.fixed_keys = false;
	cfg.reuse_keys = true;
	start_world("with base keys given twice", &cfg);
	connect_up();
	/* The region is closed while the write is in flight. */
	CHECK(write_flags("12345678", 8, 0, FI_COMMIT_COMPLETE, &want) == 0);
	next = key;
	register_again(other);
	CHECK(key != next);
	CHECK(wait_end(&rounds) > 0);
	CHECK(survives_cut(other, 0));
	next ^= key;
	key ^= next;
	CHECK(durable_write(0, 0xbad, &rounds) > 0);
	CHECK(survives_cut(other, 0));
	key ^= next;
	CHECK(durable_write(0, 6, &rounds) == 0);
	CHECK(survives_cut(other, 6));
	end_world();
}

/* --- initiators that may not use the fence --- */

/*
 * Run with FI_OFI_RPMEM_METHOD set: it makes the initiator commit by the agent.
 */
static void check_forced_method(void)
{
	unsigned int rounds;

	start_world("where the agent's method is forced", &fabric);
	connect_up();
	for (uint64_t i = 1; i < 4; i++) {
		count_steps();
		CHECK(durable_write(0, i, &rounds) == 0);
		CHECK(used_agent());
		CHECK(survives_cut(mem, i));
	}
	end_world();
}

/* --- what a write's success proves, with or without the agent --- */

/*
 * Rows of: a write, perhaps its acknowledgement, the end of the connection, and
 * a commit on the next connection. end: the error of the commit; kept: do the
 * bytes survive a power cut?
 */
static void check_acknowledged(void)
{
	static const struct {
		const char *what;
		uint64_t flags;
		bool placed_acks, arrives, forgets;
		int end;
		bool kept;
	} rows[] = {
		{"the write is lost", 0, false, false, false, EREMOTEIO, false},
		{"a delivered write is lost", FI_DELIVERY_COMPLETE, false,
		 false, false, EREMOTEIO, false},
		{"a completion that proves nothing", 0, false, true, false,
		 EREMOTEIO, false},
		{"the NIC has acknowledged", FI_DELIVERY_COMPLETE, false, true,
		 false, 0, true},
		{"what is placed is acknowledged, the NIC is of no use any "
		 "more",
		 FI_DELIVERY_COMPLETE, true, true, true, 0, true},
		/*
		 * Wrong success: the provider assumes that an adapter keeps
		 * what it has acknowledged.
		 */
		{"the NIC has acknowledged, and forgets", FI_DELIVERY_COMPLETE,
		 false, true, true, 0, false},
	};
	struct pmsim_cfg cfg = fabric;
	const uint64_t value = 0x77;
	struct pmsim_wire w[8];
	unsigned int rounds;
	size_t n;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cfg.placed_acks = rows[i].placed_acks;
		start_world(rows[i].what, &cfg);
		connect_up();
		CHECK(write_flags(&value, 8, 0, rows[i].flags, &rest) == 0);
		for (n = pmsim->wires(w, 8); n-- && w[n].to != 1;)
			;
		CHECK(n < 8);
		if (rows[i].arrives) {
			deliver_to(1);
			while (rows[i].placed_acks && model_dma_ready(model))
				model_dma_step(model, 0);
			deliver_to(0);
			poll_once(&a);
		}
		if (rows[i].forgets)
			model_dma_drop(model, w[n].qp);
		cut_power();
		CHECK(commit(0, 8, &rounds) == rows[i].end);
		CHECK(survives_cut(mem, value) == rows[i].kept);
		end_world();
	}
}

int main(int argc, char **argv)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "1000", 1);
	nodes_setup();
	host_sim->now = sim_now;
	host_sim->random = sim_random;
	host_sim->facts = sim_facts;
	host_sim->flusher = sim_flusher;
	if (argc > 1) {
		check_forced_method();
		nodes_teardown();
		return failed ? 1 : 0;
	}
	one_round();
	many_writes();
	not_by_fence();
	after_break();
	quiet_break();
	after_removal();
	after_restart();
	check_downgrade();
	reused_keys();
	check_acknowledged();
	nodes_teardown();
	return failed ? 1 : 0;
}
