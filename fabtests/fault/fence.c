// SPDX-License-Identifier: BSD-2-Clause
/* Commits that the initiator carries out by itself, over a base that tells of
 * breaks: what they cost, and what ends the right to them. And what the success
 * of a write has to mean for any commit.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_node.h"

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

/* --- the machine that the provider asks --- */

static struct rp_facts facts;
static uint64_t now = 1000000000, rng = 1;
static bool tells, settles; /* its NIC acknowledges what is in memory */
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

static bool sim_tells(void)
{
	return tells;
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

/* The appliance: DDIO off, a memory controller that keeps what it has. */
static const struct rp_facts appliance = {
	.memory = RP_MEM_DAX_SYNC,
	.placement = RP_PLACE_DMA_MEMORY,
	.domain = RP_DOMAIN_MEMCTRL,
	.fence = RP_YES,
	.told = RP_YES,
	.fs_trusted = RP_YES,
	.agent = true,
};

static const struct model_cfg hardware = {
	.kind = MODEL_DAX_SYNC,
	.domain = MODEL_ADR,
	.place = MODEL_DMA_MEMORY,
	.fence = true,
};

static const struct pmsim_cfg telling = {
	.ordered = true,
	.prov_keys = true,
	.fixed_keys = true,
	.tells_breaks = true,
};

static struct node a, t;
static uint8_t name[NODE_NAME];
static uint8_t *mem, *other;
static uint64_t key;

static void start(const char *what, const struct pmsim_cfg *cfg)
{
	doing = what;
	facts = appliance;
	tells = cfg->tells_breaks;
	settles = cfg->placed_acks;
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

static void end(void)
{
	node_close(&a);
	node_close(&t);
}

static void reconnect(void)
{
	MUST(fi_av_remove(a.av, &a.peer, 1, 0));
	node_peer(&a, name);
}

/* Memory of the target, anew. */
static void reregister(uint8_t *at)
{
	MUST(fi_close(&t.mr->fid));
	node_register(&t, at, PAGE);
	key = fi_mr_key(t.mr);
}

static void look(struct node *n)
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

static char want, rest; /* contexts: waited for, and not */

/* There and back, until what is wanted has ended: its error, or 0. */
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
		deliver_to(1);
		while (settles && model_dma_ready(model))
			model_dma_step(model, 0);
		look(&t);
		deliver_to(0);
		/* Nothing on its way: somebody waits for time to pass. */
		if (*rounds > 20)
			now += 100000000;
	}
	return -1;
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

	return fi_writemsg(a.ep, &m, flags | FI_COMPLETION);
}

/* A durable write; negative when it was not even taken. */
static int durable(uint64_t at, uint64_t value, unsigned int *rounds)
{
	ssize_t ret = write_flags(&value, sizeof(value), at, FI_COMMIT_COMPLETE,
				  &want);

	return ret ? (int)ret : wait_end(rounds);
}

static int commit(uint64_t at, uint64_t len, unsigned int *rounds)
{
	struct fi_rma_iov r = {at, len, key};
	ssize_t ret = fi_rpmem_commit(a.ep, &r, 1, a.peer, FI_RPMEM_DURABLE,
				      FI_RPMEM_CLASS_DEFAULT, NULL, &want);

	return ret ? (int)ret : wait_end(rounds);
}

/* After a cut the word holds this, and nothing else. */
static bool safe(const uint8_t *at, uint64_t value)
{
	uint64_t v[MODEL_VALUES];
	bool lost;
	size_t n = model_after_cut(model, at, v, &lost);

	return n == 1 && !lost && v[0] == value;
}

/* What the next commit costs in messages. */
static uint64_t reads, sends;

static void count(void)
{
	reads = pmsim->count(PMSIM_READ);
	sends = pmsim->count(PMSIM_TSEND);
}

static bool asked(void)
{
	return pmsim->count(PMSIM_TSEND) > sends &&
	       pmsim->count(PMSIM_READ) == reads;
}

static bool fenced(void)
{
	return pmsim->count(PMSIM_TSEND) == sends &&
	       pmsim->count(PMSIM_READ) == reads + 1;
}

static void confirm(void)
{
	unsigned int rounds;

	count();
	CHECK(durable(PAGE - 64, 1, &rounds) == 0);
	CHECK(asked());
}

/* --- what they cost --- */

static void one_round(void)
{
	static uint64_t got;
	unsigned int rounds, more;
	uint64_t bells;

	start("one durable write", &telling);
	confirm();
	count();
	bells = pmsim->doorbells(0);
	CHECK(durable(0, 0x11, &rounds) == 0);
	CHECK(rounds == 1);
	CHECK(fenced());
	CHECK(pmsim->doorbells(0) == bells + 1);
	CHECK(safe(mem, 0x11));
	/* Nothing of it is seen. */
	CHECK(fi_cq_read(a.cq, NULL, 0) != -FI_EAVAIL);

	/* The same without a commit: write, wait, read. */
	CHECK(write_flags("12345678", 8, 8, FI_DELIVERY_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	MUST(fi_read(a.ep, &got, 8, NULL, a.peer, 8, key, &want));
	CHECK(wait_end(&more) == 0);
	CHECK(rounds + more == 2);
	CHECK(safe(mem + 8, got));
	end();
}

static void many_writes(void)
{
	unsigned int rounds;

	start("writes, then their commit", &telling);
	confirm();
	for (uint64_t i = 0; i < 3; i++)
		CHECK(write_flags(&i, 8, 64 * i, 0, &rest) == 0);
	count();
	CHECK(commit(0, 192, &rounds) == 0);
	CHECK(rounds == 1);
	CHECK(fenced());
	CHECK(safe(mem + 64, 1) && safe(mem + 128, 2));
	/* The last bytes of the region, and no more. */
	count();
	CHECK(write_flags("abc", 3, PAGE - 3, FI_COMMIT_COMPLETE, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	CHECK(fenced());
	/* Outside of it is the agent's to refuse; what is granted then ends. */
	CHECK(commit(PAGE - 3, 4, &rounds) == ERANGE);
	confirm();
	count();
	CHECK(durable(0, 5, &rounds) == 0);
	CHECK(fenced());
	end();
}

/* What a fence says nothing about is the agent's. */
static void not_by_fence(void)
{
	struct fi_rma_iov r = {0, 8, 0};
	struct fi_rpmem_then then = {.addr = 8, .value = 7};
	unsigned int rounds;

	start("a store behind it", &telling);
	confirm();
	r.key = then.key = key;
	count();
	MUST(fi_rpmem_commit(a.ep, &r, 1, a.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, &then, &want));
	CHECK(wait_end(&rounds) == 0);
	CHECK(asked());
	CHECK(safe(mem + 8, 7));
	doing = "remote CQ data";
	count();
	CHECK(write_flags("12345678", 8, 0,
			  FI_COMMIT_COMPLETE | FI_REMOTE_CQ_DATA, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	CHECK(asked());
	doing = "visible";
	count();
	MUST(fi_rpmem_commit(a.ep, &r, 1, a.peer, FI_RPMEM_VISIBLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, &want));
	CHECK(wait_end(&rounds) == 0);
	CHECK(asked());
	end();
}

/* --- what ends it --- */

static unsigned int any_wire(void)
{
	struct pmsim_wire w[8];

	CHECK(pmsim->wires(w, 8) > 0);
	return w[0].id;
}

static void after_break(void)
{
	unsigned int rounds;
	uint64_t v = 9;

	start("after a break", &telling);
	confirm();
	/* This one gets there, and only the NIC of the target has it. */
	CHECK(write_flags(&v, 8, 0, 0, &want) == 0);
	CHECK(wait_end(&rounds) == 0);
	/* That one does not. */
	CHECK(write_flags(&v, 8, 64, FI_COMMIT_COMPLETE, &want) == 0);
	pmsim->break_wire(any_wire(), 0);
	CHECK(wait_end(&rounds) > 0);
	/* Told until it is made again. */
	CHECK(durable(128, 1, &rounds) == -FI_ENOTCONN);
	CHECK(commit(0, 8, &rounds) != 0);
	reconnect();
	/* No fence on this connection is behind the writes of that one. */
	count();
	CHECK(commit(0, 8, &rounds) == 0);
	CHECK(asked());
	CHECK(safe(mem, 9));
	count();
	CHECK(durable(128, 1, &rounds) == 0);
	CHECK(asked());
	CHECK(commit(64, 8, &rounds) != 0);
	/* A new registration is a new beginning. */
	reregister(mem);
	confirm();
	count();
	CHECK(durable(192, 2, &rounds) == 0);
	CHECK(fenced());
	end();
}

/* A break that nothing was under way over. */
static void quiet_break(void)
{
	unsigned int rounds, id;

	start("after a break that nobody felt", &telling);
	confirm();
	CHECK(write_flags("x", 1, 0, 0, &want) == 0);
	id = any_wire();
	CHECK(wait_end(&rounds) == 0);
	pmsim->break_wire(id, 0);
	reconnect();
	count();
	CHECK(durable(0, 1, &rounds) == 0);
	CHECK(asked());
	count();
	CHECK(durable(0, 2, &rounds) == 0);
	CHECK(asked());
	end();
}

static void restart(uint8_t *at)
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

	start("after a restart", &telling);
	confirm();
	old = key;
	restart(other);
	CHECK(durable(0, 3, &rounds) == -FI_ENOTCONN);
	reconnect();
	/* Its base key means other memory now. */
	count();
	CHECK(durable(0, 3, &rounds) > 0);
	CHECK(asked());
	key = fi_mr_key(t.mr);
	CHECK((uint32_t)key == (uint32_t)old && key != old);
	confirm();
	count();
	CHECK(durable(0, 4, &rounds) == 0);
	CHECK(fenced());
	CHECK(safe(other, 4));
	end();
}

/* The operator, or the memory, has changed; the region is registered anew. */
static void downgrade(void)
{
	unsigned int rounds;
	uint64_t old;

	start("after a downgrade", &telling);
	confirm();
	old = key;
	facts.fence = RP_NO;
	reregister(mem);
	count();
	CHECK(durable(0, 1, &rounds) == 0);
	CHECK(asked());
	count();
	CHECK(durable(0, 2, &rounds) == 0);
	CHECK(asked());
	/* Who still has the old key gets nothing by it. */
	key = old;
	CHECK(durable(0, 3, &rounds) > 0);
	CHECK(commit(0, 8, &rounds) != 0);
	end();
}

/* --- who has no right to it --- */

static void never(const char *what, const struct pmsim_cfg *cfg)
{
	unsigned int rounds;

	start(what, cfg);
	confirm();
	for (int i = 0; i < 3; i++) {
		count();
		CHECK(durable(0, 1, &rounds) == 0);
		CHECK(asked());
	}
	end();
}

static void silent_base(void)
{
	struct pmsim_cfg cfg = telling;

	cfg.tells_breaks = false;
	never("over a base that is silent", &cfg);
	cfg = telling;
	cfg.ordered = false;
	cfg.placed_acks = true;
	never("over a base whose reads overtake", &cfg);
	cfg = telling;
	cfg.prov_keys = false;
	never("over a base that lets us choose its keys", &cfg);
}

/*
 * The next region of the target gets the base key of the last: who holds the
 * old key writes into that one, and a fence finds nothing wrong. Returns what
 * the initiator was told.
 */
static int reused_keys(const char *what, enum rp_tri told)
{
	struct pmsim_cfg cfg = telling;
	unsigned int rounds;
	uint64_t old;
	int ret;

	cfg.fixed_keys = false;
	cfg.reuse_keys = true;
	start(what, &cfg);
	facts.told = told;
	reregister(mem);
	confirm();
	old = key;
	reregister(other);
	CHECK((uint32_t)key == (uint32_t)old && key != old);
	key = old;
	ret = durable(0, 0xbad, &rounds);
	CHECK(!safe(mem, 0xbad));
	end();
	return ret;
}

/* The operator's initiators let the agents do it. */
static void forced(void)
{
	never("where the agent's method is forced", &telling);
}

/* --- what the success of a write has to mean, with or without the agent --- */

/*
 * A write, perhaps its acknowledgement, a break that nobody is told of, and a
 * commit over the next connection. end: of the commit; kept: after a cut the
 * bytes are there.
 */
static void acknowledged(void)
{
	static const struct {
		const char *what;
		bool no_acks, placed_acks, arrives, forgets;
		int end;
		bool kept;
	} t[] = {
		/* Why devices are left out whose success means nothing. */
		{"iWARP, the write is lost", true, false, false, false, 0,
		 false},
		{"the NIC acknowledges, the write is lost", false, false, false,
		 false, EREMOTEIO, false},
		{"what is placed is acknowledged, the write is lost", false,
		 true, false, false, EREMOTEIO, false},
		{"what is placed is acknowledged, the NIC is of no use any "
		 "more",
		 false, true, true, true, 0, true},
		{"the NIC has acknowledged", false, false, true, false, 0,
		 true},
		/* What is taken for granted of adapters, and why. */
		{"the NIC has acknowledged, and forgets", false, false, true,
		 true, 0, false},
	};
	struct pmsim_cfg cfg = telling;
	const uint64_t value = 0x77;
	struct pmsim_wire w[8];
	unsigned int rounds;
	size_t n;

	cfg.tells_breaks = false;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		cfg.no_acks = t[i].no_acks;
		cfg.placed_acks = t[i].placed_acks;
		start(t[i].what, &cfg);
		confirm();
		CHECK(write_flags(&value, 8, 0, 0, &rest) == 0);
		for (n = pmsim->wires(w, 8); n-- && w[n].to != 1;)
			;
		CHECK(n < 8);
		if (t[i].arrives) {
			deliver_to(1);
			while (settles && model_dma_ready(model))
				model_dma_step(model, 0);
			deliver_to(0);
			look(&a);
		}
		if (t[i].forgets)
			model_dma_drop(model, w[n].qp);
		pmsim->break_wire(w[n].id, 0);
		CHECK(commit(0, 8, &rounds) == t[i].end);
		CHECK(safe(mem, value) == t[i].kept);
		end();
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
	host_sim->tells = sim_tells;
	if (argc > 1) {
		forced();
		nodes_teardown();
		return failed ? 1 : 0;
	}
	one_round();
	many_writes();
	not_by_fence();
	after_break();
	quiet_break();
	after_restart();
	downgrade();
	silent_base();
	acknowledged();
	CHECK(reused_keys("with keys given twice", RP_NO) > 0);
	/* What the fact is there for: believed where it is false. */
	CHECK(reused_keys("with keys given twice, denied", RP_YES) == 0);
	nodes_teardown();
	return failed ? 1 : 0;
}
