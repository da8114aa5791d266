// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both simulated machines of crash_log, crash_rpc and crash_dirty, the steps of
 * a run, and power cuts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crash_pool.h"
#include "fabtests/commit.h"
#include "util/bytes.h"

#define WIRES 12u

struct pool_world pw;
struct choices choices;

/* --- cells --- */

const struct pool_cell pool_cells[POOL_CELLS] = {
#define FACTS(where, ...)                                                      \
	{                                                                      \
		.memory = RP_MEM_DAX_SYNC, .placement = (where),               \
		.domain = RP_DOMAIN_MEMCTRL, .fs_trusted = RP_YES,             \
		.agent = true, __VA_ARGS__                                     \
	}
#define TRUTH(where, ...)                                                      \
	{                                                                      \
		.kind = MODEL_DAX_SYNC, .domain = MODEL_ADR, .place = (where), \
		__VA_ARGS__                                                    \
	}
#define FENCE                                                                  \
	"fence", TRUTH(MODEL_DMA_MEMORY, .fence = true),                       \
		FACTS(RP_PLACE_DMA_MEMORY, .fence = RP_YES)
#define NATIVE                                                                 \
	"native",                                                              \
		TRUTH(MODEL_DMA_CACHE,                                         \
		      .levels = MODEL_VISIBLE | MODEL_PERSISTENT),             \
		FACTS(RP_PLACE_DMA_CACHE, .native = RP_YES)
#define AGENT                                                                  \
	"agent-clwb", TRUTH(MODEL_DMA_CACHE, .fence = true),                   \
		FACTS(RP_PLACE_DMA_CACHE, .native = RP_NO)
/* A file on a disk, which the kernel's socket code fills. */
#define MSYNC                                                                  \
	"agent-msync", {.kind = MODEL_FILE, .place = MODEL_CPU_USER},          \
	{                                                                      \
		.memory = RP_MEM_FILE, .placement = RP_PLACE_CPU_USER,         \
		.domain = RP_DOMAIN_MEMCTRL, .fs_trusted = RP_YES,             \
		.agent = true                                                  \
	}
	{FENCE, false, false}, {FENCE, true, false},  {NATIVE, false, false},
	{NATIVE, true, false}, {AGENT, false, false}, {AGENT, true, false},
	{AGENT, false, true},  {AGENT, true, true},   {MSYNC, false, false},
};

#define WORDS (POOL_LONGEST / MODEL_WORD)
#define SEEN  (1u << 20)

uint64_t pool_mix_hash(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/*
 * Was an image with this hash recovered before? Remembers the hash, until the
 * table is half full.
 */
static bool is_seen(uint64_t h)
{
	static uint64_t seen[SEEN];
	static unsigned int n;

	for (uint64_t i = h; n < SEEN / 2; i++) {
		if (seen[i % SEEN] == h)
			return true;
		if (seen[i % SEEN])
			continue;
		seen[i % SEEN] = h;
		n++;
		return false;
	}
	return false;
}

/*
 * The value that a word has in image number `mode`. 0, 1: all words have their
 * newest value, or all their oldest. 2, 3: the ring differs from the words
 * before it. 4, 5: the second half of the ring differs from all before it. From
 * 6 on: each word has a random value.
 */
static unsigned int pick_value(unsigned int mode, unsigned int word,
			       unsigned int n)
{
	const unsigned int ring = (unsigned int)pw.program->ring_at /
				  MODEL_WORD,
			   half = (ring + (unsigned int)pw.high / MODEL_WORD) /
				  2;
	bool newest;

	if (mode >= 6)
		return (unsigned int)(pool_mix_hash(mode * WORDS + word) % n);
	newest = mode / 2 == 0 ? true : word >= (mode / 2 == 1 ? ring : half);
	return newest == (mode % 2 == 0) ? n - 1 : 0;
}

/* Recover from images that a power cut may leave now. */
void pool_cut(void)
{
	/*
	 * v: the values that each word may have after a cut. For DMA in flight
	 * model_after_cut() gives the old and the new value.
	 */
	static uint64_t v[WORDS][MODEL_VALUES];
	static size_t n[WORDS];
	static unsigned char image[POOL_LONGEST];
	uint64_t h = (uint64_t)(pw.cell - pool_cells);
	const unsigned int words =
		(unsigned int)((pw.high + MODEL_WORD - 1) / MODEL_WORD);
	bool lost, open = false;

	if (!pw.exploring || pw.checking || *pw.why)
		return;
	h = pool_mix_hash(h ^ pool_mix_hash(pw.program->state()));
	for (unsigned int i = 0; i < words; i++) {
		n[i] = model_after_cut(pw.model, pw.mem + i * MODEL_WORD, v[i],
				       &lost);
		if (lost || !n[i])
			WRONG("word %u has no value", i);
		open |= n[i] > 1;
		h = pool_mix_hash(h + n[i]);
		for (size_t k = 0; k < n[i]; k++)
			h = pool_mix_hash(h ^ v[i][k]);
	}
	if (*pw.why || is_seen(h | 1))
		return;
	pw.checking = true;
	for (unsigned int mode = 0; mode < (open ? pw.program->modes : 1);
	     mode++) {
		memset(image, 0, sizeof(image));
		for (unsigned int i = 0; i < words; i++)
			memcpy(image + i * MODEL_WORD,
			       &v[i][pick_value(mode, i, (unsigned int)n[i])],
			       MODEL_WORD);
		pw.cuts++;
		pw.program->recover(image);
	}
	pw.checking = false;
}

/* --- the simulated host of the provider --- */

static uint64_t sim_now(void)
{
	return pw.now;
}

static void sim_random(void *buf, size_t len)
{
	for (uint8_t *p = buf; len--; p++)
		*p = (uint8_t)pool_mix_hash(++pw.rng);
}

/*
 * Replace getrandom() by the linker's --wrap, so that a log has the same id in
 * each run, and is_seen() recognizes its images. Calls in shared objects, such
 * as the sanitizer's, are replaced, too.
 */
__attribute__((visibility("default"))) ssize_t
__wrap_getrandom(void *buf, size_t len, unsigned int flags);
ssize_t __wrap_getrandom(void *buf, size_t len, unsigned int flags)
{
	sim_random(buf, len);
	return (ssize_t)len;
}

static bool sim_flushes(void)
{
	return pw.cell->facts.native == RP_YES;
}

static int sim_facts(const void *addr, size_t len, struct rp_facts *facts)
{
	*facts = pw.cell->facts;
	return 0;
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	pool_cut();
	return model_msync(pw.model, addr, len);
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	pool_cut();
	model_clwb(pw.model, addr, len);
}

static void op_drain(void *ctx)
{
	pool_cut();
	model_sfence(pw.model);
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	pool_cut();
	model_store(pw.model, MODEL_CPU_USER, addr, &value, sizeof(value));
}

static void op_copy(void *ctx, void *to, const void *from, size_t len)
{
	pool_cut();
	model_store(pw.model, MODEL_CPU_USER, to, from, len);
}

static void op_stream(void *ctx, void *to, const void *from, size_t len)
{
	pool_cut();
	model_store_nt(pw.model, to, from, len);
}

static uint64_t op_now(void *ctx)
{
	return 0;
}

static const struct rp_pmem_ops *sim_flusher(const void *addr, size_t len)
{
	static const struct rp_pmem_ops ops = {
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
		.store8 = op_store8,
		.copy = op_copy,
		.stream = op_stream,
		.now = op_now,
	};

	return &ops;
}

/* --- the pool: posts operations as librpmem_pool does --- */

static bool waits_for(unsigned int machine)
{
	return pmsim->arrived(machine) ||
	       pmsim->events(machine) > pw.ignored[machine];
}

static void end_op(struct rpmem_pool_op *op, int result)
{
	op->result = result;
	op->error = "the provider";
	if (result)
		WRONG("an operation fails: %s", fi_strerror(-result));
	for (unsigned int i = 0; i < pw.nout; i++)
		if (pw.out[i] == op)
			pw.out[i--] = pw.out[--pw.nout];
	pw.ended[pw.nended++] = op;
}

static void run(unsigned int machine)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_entry e;
	ssize_t got;

	if (machine == POOL_TARGET)
		pmsim->execute(POOL_TARGET);
	pmsim->use_machine(machine);
	for (int look = 0; look < 2;) {
		pw.now += 2 * POOL_MS;
		got = fi_cq_read(pw.node[machine].cq, &e, 1);
		if (got == 1 && machine != POOL_TARGET) {
			end_op(e.op_context, 0);
		} else if (got == -FI_EAVAIL) {
			MUST(fi_cq_readerr(pw.node[machine].cq, &err, 0));
			if (machine != POOL_TARGET)
				end_op(err.op_context, -err.err);
		} else if (got == -FI_EAGAIN) {
			look++;
		}
	}
	pw.ignored[machine] = pmsim->events(machine);
}

/* Deliver all messages, and let both programs poll. */
static void pump(void)
{
	struct pmsim_wire wire[WIRES];
	size_t n = pmsim->wires(wire, WIRES);

	for (size_t i = 0; i < n; i++)
		pmsim->deliver(wire[i].id, wire[i].in_flight);
	while (model_dma_ready(pw.model))
		model_dma_step(pw.model, 0);
	run(POOL_TARGET);
	run(0);
}

static ssize_t post(struct rpmem_pool_op *op)
{
	const struct node *a = &pw.node[0];
	const bool durable = op->flags & RPMEM_POOL_DURABLE;
	struct iovec iov = {op->buf, op->len};
	struct fi_rma_iov to = {op->offset, op->len, pw.key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = a->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = op,
	};
	struct fi_rpmem_then then = {.key = pw.key};
	ssize_t ret;

	pmsim->use_machine(0);
	if (op->type == RPMEM_POOL_WRITE) {
		ret = fi_writemsg(a->ep, &msg,
				  FI_COMPLETION |
					  (durable ? FI_COMMIT_COMPLETE
						   : FI_DELIVERY_COMPLETE));
		if (!ret && !durable)
			pw.open[pw.nopen++] = to;
		return ret;
	}
	if (op->then) {
		then.addr = op->then->offset;
		then.value = op->then->value;
	}
	ret = commit_post(a->ep, pw.open, pw.nopen, a->peer, FI_RPMEM_DURABLE,
			  FI_RPMEM_CLASS_POWER, op->then ? &then : NULL, op);
	if (!ret)
		pw.nopen = 0;
	return ret;
}

void pool_store(uint64_t at, const void *from, size_t len)
{
	if (at + len > pw.high)
		pw.high = at + len;
	op_copy(NULL, pw.mem + at, from, len);
}

void pool_flush(uint64_t at, uint64_t len)
{
	const uint64_t page = at / MODEL_PAGE * MODEL_PAGE;

	if (pw.cell->truth.kind == MODEL_FILE)
		MUST(op_sync(NULL, pw.mem + page, at + len - page));
	else
		op_flush(NULL, pw.mem + at, len);
}

void pool_drain(void)
{
	op_drain(NULL);
}

int pool_submit(void *arg, struct rpmem_pool_op *op)
{
	ssize_t ret;

	if (op->type == RPMEM_POOL_READ) {
		memcpy(op->buf, pw.mem + op->offset, op->len);
		end_op(op, 0);
		return 0;
	}
	if (op->offset + op->len > pw.high)
		pw.high = op->offset + op->len;
	if (pw.instant) {
		const uint64_t tail = op->then ? htole64(op->then->value) : 0;
		const uint64_t at = op->then ? op->then->offset : op->offset;
		const size_t len = op->then ? sizeof(tail) : op->len;

		pool_store(at, op->then ? &tail : op->buf, len);
		pool_flush(at, len);
		pool_drain();
		end_op(op, 0);
		return 0;
	}
	if (op->type == RPMEM_POOL_WRITE)
		pw.out[pw.nout++] = op;
	/* post() returns -FI_EAGAIN until the private connection is up. */
	for (int i = 0; (ret = post(op)) == -FI_EAGAIN && i < POOL_PUMPS; i++)
		pump();
	MUST(ret);
	return 0;
}

struct act {
	enum {
		ACT_SUBMIT,
		ACT_POLL,
		ACT_TARGET,
		ACT_SERVE
	} kind;
	unsigned int wire, n; /* deliver n messages of wire before the act */
};

/*
 * List the next steps. blocked: a call of the program waits, so that neither
 * the program nor its code at the target goes on.
 */
static size_t all_acts(struct act *out, bool blocked)
{
	struct pmsim_wire wire[WIRES];
	size_t n = pmsim->wires(wire, WIRES), acts = 0;

	if (!blocked && pw.program->may_submit())
		out[acts++].kind = ACT_SUBMIT;
	if (!blocked && pw.program->serve && pw.program->may_serve())
		out[acts++].kind = ACT_SERVE;
	for (unsigned int m = 0; m <= POOL_TARGET; m++) {
		const struct act run = {m ? ACT_TARGET : ACT_POLL, 0, 0};

		if (waits_for(m) || (m && model_dma_pending(pw.model)))
			out[acts++] = run;
		for (size_t i = 0; i < n; i++)
			for (unsigned int k = wire[i].in_flight;
			     k && wire[i].to == m; k--)
				out[acts++] =
					(struct act){run.kind, wire[i].id, k};
	}
	return acts;
}

static void run_act(const struct act *a, bool blocked)
{
	if (a->kind == ACT_SUBMIT || a->kind == ACT_SERVE) {
		if (a->kind == ACT_SUBMIT)
			pw.program->submit();
		else
			pw.program->serve();
		return;
	}
	if (a->n)
		pmsim->deliver(a->wire, a->n);
	pool_cut();
	if (a->kind == ACT_POLL) {
		if (blocked)
			run(0);
		else
			pw.program->poll();
		return;
	}
	if (!a->n && !waits_for(POOL_TARGET))
		model_dma_step(pw.model, 0);
	else if (model_dma_ready(pw.model) && choose(&choices, 2))
		while (model_dma_ready(pw.model))
			model_dma_step(pw.model, 0);
	pool_cut();
	run(POOL_TARGET);
}

/* Run a chosen step. Returns false if there is none. */
static bool run_step(bool blocked)
{
	struct act acts[64];
	size_t n;

	pool_cut();
	n = all_acts(acts, blocked);
	if (n)
		run_act(&acts[choose(&choices, (unsigned int)n)], blocked);
	return n;
}

int pool_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
	      int timeout_ms)
{
	for (int i = 0; !pw.nended && timeout_ms && i < POOL_PUMPS; i++)
		if (!pw.exploring || !run_step(true))
			pump();
	if (!pw.nended)
		return 0;
	*done = pw.ended[0];
	pw.nended--;
	memmove(pw.ended, pw.ended + 1, pw.nended * sizeof(*pw.ended));
	return 1;
}

int pool_image_submit(void *arg, struct rpmem_pool_op *op)
{
	struct pool_image *i = arg;

	if (op->type == RPMEM_POOL_READ)
		memcpy(op->buf, i->bytes + op->offset, op->len);
	else if (op->type == RPMEM_POOL_WRITE)
		memcpy(i->bytes + op->offset, op->buf, op->len);
	else if (op->then)
		memcpy(i->bytes + op->then->offset,
		       &(uint64_t){htole64(op->then->value)}, 8);
	op->result = 0;
	i->ended[i->nended++] = op;
	return 0;
}

int pool_image_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms)
{
	struct pool_image *i = arg;

	if (!n || !i->nended)
		return 0;
	*done = i->ended[--i->nended];
	return 1;
}

void pool_poll_machine(void)
{
	run(0);
}

/* --- a run --- */

void pool_start(const struct pool_cell *cell, const struct pool_program *p)
{
	static const struct pool_cell *last;
	static uint64_t last_length;
	static struct model *model;
	static uint8_t *mem;
	const unsigned long cuts = pw.cuts;
	const struct pmsim_cfg fabric = {
		.ordered = true,
		.placed_acks = cell->placed_acks,
		.late_errors = true,
		.offers_msg = true,
		.errors_disconnect = true,
		.delays_reads = true,
	};
	uint8_t name[NODE_NAME];

	pw = (struct pool_world){.cell = cell, .program = p, .cuts = cuts};
	if (!nodes_reset(&fabric, last == cell && last_length == p->length)) {
		pmsim->machine(NULL);
		pmsim->machine(&cell->truth);
		model = pmsim->model(POOL_TARGET);
		mem = model_alloc(model, p->length);
	}
	last = cell;
	last_length = p->length;
	pw.model = model;
	pw.mem = mem;
	pw.now = 1000 * POOL_MS;
	host_sim->required(RP_CLASS_POWER);
	host_sim->inline_max(cell->apart ? 0 : SIZE_MAX);
	node_open(&pw.node[POOL_TARGET], POOL_TARGET, NULL);
	node_name(&pw.node[POOL_TARGET], name);
	node_register(&pw.node[POOL_TARGET], pw.mem, p->length);
	pw.key = fi_mr_key(pw.node[POOL_TARGET].mr);
	node_open(&pw.node[0], 0, NULL);
	node_peer(&pw.node[0], name);
}

void pool_run(void)
{
	pw.exploring = true;
	for (int idle = 0; !*pw.why && !pw.program->is_done();) {
		if (pw.program->step)
			pw.program->step();
		if (run_step(false))
			continue;
		pw.now += 300 * POOL_MS;
		run(POOL_TARGET);
		pw.program->poll();
		if (++idle > POOL_PUMPS)
			WRONG("an operation never ends");
	}
	pool_cut();
	pw.exploring = false;
	for (unsigned int m = 0; m <= POOL_TARGET; m++)
		node_close(&pw.node[m]);
}

static bool try_order(const char *name, void (*one)(const void *arg),
		      const void *arg)
{
	one(arg);
	if (*pw.why)
		printf("not ok: %s, %s: %s\n", name,
		       pw.cell->placed_acks ? "placed" : "received", pw.why);
	return !*pw.why;
}

bool pool_explore(const char *name, void (*one)(const void *arg),
		  const void *arg, unsigned int most)
{
	const unsigned long before = pw.cuts;
	unsigned int runs = 0;
	bool more;

	choices_all(&choices);
	for (; (more = choices_more(&choices)) && runs < most; runs++)
		if (!try_order(name, one, arg))
			return false;
	for (unsigned int seed = 0; more && seed < most; seed++, runs++) {
		choices_random(&choices, seed);
		if (!try_order(name, one, arg))
			return false;
	}
	printf("# %s: %s%u orders, %lu recoveries\n", name,
	       more ? "some " : "all ", runs, pw.cuts - before);
	return true;
}

unsigned int pool_setup(unsigned int runs, unsigned int long_runs)
{
	const char *l = getenv("RP_LONG");

	setenv("FI_OFI_RPMEM_TIMEOUT", "1000", 1);
	nodes_setup();
	host_sim->now = sim_now;
	host_sim->random = sim_random;
	host_sim->facts = sim_facts;
	host_sim->flushes = sim_flushes;
	host_sim->flusher = sim_flusher;
	return l && !strcmp(l, "1") ? long_runs : runs;
}

int pool_end(unsigned int tried, unsigned int failed)
{
	nodes_teardown();
	printf("%u passed, %u failed\n", tried - failed, failed);
	return failed || !tried;
}
