// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_log over the provider on the simulated fabric: durable writes by a
 * read fence, by native FLUSH and by the agent, with each order of messages. At
 * each step, and within the target's flushes, it recovers from the images that
 * a power cut may leave.
 *
 * usage: crash_log [METHOD LAYOUT]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_choice.h"
#include "crash_node.h"
#include "fabtests/commit.h"
#include "liblog/log.h"

#define LENGTH	((uint64_t)LOG_RING_AT + LOG_RING_MIN)
#define BYTES	40u /* of an entry: two lines with its header */
#define ENTRIES 8u
#define OPS	16u
#define WIRES	12u
#define TARGET	1u
#define MS	1000000ull
#define PUMPS	200
/*
 * Orders tried of a program that has more: the first RUNS orders, and RUNS
 * random ones.
 */
#define RUNS	  100u
#define RUNS_LONG 2000u

/* s, b: append one entry, two entries; w: wait until all are acknowledged. */
static const char *const programs[] = {"s", "b", "ss", "sbws"};

static const char *const layouts[] = {"entry", "tail", "counter", "register"};

static const struct cell {
	const char *method;
	struct model_cfg truth;
	struct rp_facts facts;
	bool placed_acks;
} cells[] = {
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
	{FENCE, false}, {FENCE, true},	{NATIVE, false},
	{NATIVE, true}, {AGENT, false}, {AGENT, true},
};

static struct world {
	const struct cell *cell;
	uint32_t layout;
	const char *next; /* steps of the program still to do */
	struct model *model;
	uint8_t *mem;
	uint64_t key, now, rng;
	struct node node[2];
	unsigned int ignored[2]; /* unread events, by machine */
	bool exploring, checking;
	struct rpmem_pool_op *ended[OPS];
	unsigned int nended;
	struct fi_rma_iov open[OPS]; /* ranges written, not committed */
	unsigned int nopen;
	uint64_t high; /* end of the highest write so far */
	struct rpmem_log *log;
	struct rpmem_log_op ops[ENTRIES];
	unsigned int nops, submitted, acked;
	char why[256]; /* the first failure, or empty */
} w;

static struct choices choices;
static unsigned long cuts; /* images recovered so far */

#define WRONG(...)                                                             \
	do {                                                                   \
		if (!*w.why)                                                   \
			snprintf(w.why, sizeof(w.why), __VA_ARGS__);           \
	} while (0)

/* --- recovery --- */

static void fill(unsigned char to[BYTES], unsigned int n)
{
	memset(to, (int)n + 1, BYTES);
}

/* The recovery's pool: the image that a cut has left. */
struct image {
	unsigned char bytes[LENGTH];
	struct rpmem_pool_op *ended[OPS];
	unsigned int nended;
};

static int image_submit(void *arg, struct rpmem_pool_op *op)
{
	struct image *i = arg;

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

static int image_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		      int timeout_ms)
{
	struct image *i = arg;

	if (!n || !i->nended)
		return 0;
	*done = i->ended[--i->nended];
	return 1;
}

/* The number of entries that have their own bytes, counted from the first. */
static unsigned int count_entries(struct rpmem_log *log)
{
	unsigned char bytes[BYTES], want[BYTES];
	uint64_t lsn = RPMEM_LOG_HEAD;
	unsigned int n = 0;
	size_t len;
	int ret;

	for (; (ret = rpmem_log_read(log, &lsn, bytes, BYTES, &len, 0)) == 1;
	     n++) {
		fill(want, n);
		if (len != BYTES || memcmp(bytes, want, BYTES) != 0)
			WRONG("entry %u has byte %#x", n, bytes[0]);
	}
	if (ret)
		WRONG("entry %u: %s", n, rpmem_log_error());
	return n;
}

/* Open the image as the next writer. NULL: no log, or a damaged one. */
static struct rpmem_log *open_image(struct image *i)
{
	const struct log_io io = {
		.submit = image_submit,
		.poll = image_poll,
		.arg = i,
		.length = LENGTH,
	};
	struct rpmem_log *log;

	if (!log_open(&log, &io, false))
		return log;
	WRONG("no recovery: %s", rpmem_log_error());
	return NULL;
}

/* End the writer as SIGKILL would. */
static void kill_writer(struct rpmem_log *log)
{
	log->failed = -EIO;
	rpmem_log_close(log);
}

/*
 * Check that all acknowledged entries are there, in order. Then writers append
 * the missing entries, one for each writer. Each such entry must be the last
 * one, and must be there once.
 */
static void recover(struct image *i)
{
	unsigned char bytes[BYTES];
	struct rpmem_log *log = open_image(i);
	unsigned int n;

	cuts++;
	n = log ? count_entries(log) : 0;
	if (log && (n < w.acked || n > w.submitted))
		WRONG("%u entries after a cut, %u acknowledged, %u appended", n,
		      w.acked, w.submitted);
	for (; log && n <= w.submitted && !*w.why; n++) {
		fill(bytes, n);
		if (rpmem_log_append(log, bytes, BYTES, NULL))
			WRONG("append: %s", rpmem_log_error());
		kill_writer(log);
		log = open_image(i);
		if (log && count_entries(log) != n + 1)
			WRONG("entry %u, appended behind a recovery, is not "
			      "the last one",
			      n);
	}
	if (log)
		kill_writer(log);
}

/* --- power cuts --- */

#define WORDS (LENGTH / MODEL_WORD)
#define SEEN  (1u << 20)

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* Was an image with this hash recovered before? */
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

#define MODES 14u

/*
 * One of many images: all words have their oldest value, or all their newest;
 * the ring has one of these and all other words the other; only the first half
 * of the ring's entries is new; or each word has any value.
 */
static unsigned int pick_value(unsigned int mode, unsigned int word,
			       unsigned int n)
{
	const unsigned int ring = LOG_RING_AT / MODEL_WORD,
			   half = (ring + (unsigned int)w.high / MODEL_WORD) /
				  2;
	bool newest;

	if (mode >= 6)
		return (unsigned int)(mix(mode * WORDS + word) % n);
	newest = mode / 2 == 0 ? true : word >= (mode / 2 == 1 ? ring : half);
	return newest == (mode % 2 == 0) ? n - 1 : 0;
}

/* Recover from images that a power cut may leave now. */
static void check_cut(void)
{
	/*
	 * model_after_cut() allows words of DMA in flight to be placed or not.
	 */
	static uint64_t v[WORDS][MODEL_VALUES];
	static size_t n[WORDS];
	static struct image image;
	uint64_t h = (uint64_t)(w.cell - cells) << 32 | w.layout << 16 |
		     w.submitted << 8 | w.acked;
	unsigned int words = (unsigned int)(w.high / MODEL_WORD);
	bool lost, open = false;

	if (!w.exploring || w.checking || *w.why)
		return;
	for (unsigned int i = 0; i < words; i++) {
		n[i] = model_after_cut(w.model, w.mem + i * MODEL_WORD, v[i],
				       &lost);
		if (lost || !n[i])
			WRONG("word %u has no value", i);
		open |= n[i] > 1;
		h = mix(h + n[i]);
		for (size_t k = 0; k < n[i]; k++)
			h = mix(h ^ v[i][k]);
	}
	if (*w.why || is_seen(h | 1))
		return;
	w.checking = true;
	for (unsigned int mode = 0; mode < (open ? MODES : 1); mode++) {
		memset(&image, 0, sizeof(image));
		for (unsigned int i = 0; i < words; i++)
			memcpy(image.bytes + i * MODEL_WORD,
			       &v[i][pick_value(mode, i, (unsigned int)n[i])],
			       MODEL_WORD);
		recover(&image);
	}
	w.checking = false;
}

/* --- the simulated host of the provider --- */

static uint64_t sim_now(void)
{
	return w.now;
}

static void sim_random(void *buf, size_t len)
{
	for (uint8_t *p = buf; len--; p++)
		*p = (uint8_t)mix(++w.rng);
}

/*
 * Interpose getrandom() so that a log has the same id in each run, and
 * is_seen() knows its images. Linked shared objects, as the sanitizer's, call
 * it, too.
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
	return w.cell->facts.native == RP_YES;
}

static int sim_facts(const void *addr, size_t len, struct rp_facts *facts)
{
	*facts = w.cell->facts;
	return 0;
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	check_cut();
	return model_msync(w.model, addr, len);
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	check_cut();
	model_clwb(w.model, addr, len);
}

static void op_drain(void *ctx)
{
	check_cut();
	model_sfence(w.model);
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	check_cut();
	model_store(w.model, MODEL_CPU_USER, addr, &value, sizeof(value));
}

static void op_copy(void *ctx, void *to, const void *from, size_t len)
{
	check_cut();
	model_store(w.model, MODEL_CPU_USER, to, from, len);
}

static void op_stream(void *ctx, void *to, const void *from, size_t len)
{
	check_cut();
	model_store_nt(w.model, to, from, len);
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

/* --- the log's pool: posts operations as librpmem_pool does --- */

static bool waits_for(unsigned int machine)
{
	return pmsim->arrived(machine) ||
	       pmsim->events(machine) > w.ignored[machine];
}

static void end_op(struct rpmem_pool_op *op, int result)
{
	op->result = result;
	op->error = "the provider";
	if (result)
		WRONG("an operation fails: %s", fi_strerror(-result));
	w.ended[w.nended++] = op;
}

static void run(unsigned int machine)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_entry e;
	ssize_t got;

	if (machine == TARGET)
		pmsim->execute(TARGET);
	pmsim->use_machine(machine);
	for (int look = 0; look < 2;) {
		w.now += 2 * MS;
		got = fi_cq_read(w.node[machine].cq, &e, 1);
		if (got == 1 && machine != TARGET) {
			end_op(e.op_context, 0);
		} else if (got == -FI_EAVAIL) {
			MUST(fi_cq_readerr(w.node[machine].cq, &err, 0));
			if (machine != TARGET)
				end_op(err.op_context, -err.err);
		} else if (got == -FI_EAGAIN) {
			look++;
		}
	}
	w.ignored[machine] = pmsim->events(machine);
}

/* Deliver all messages, and let both programs poll. */
static void pump(void)
{
	struct pmsim_wire wire[WIRES];
	size_t n = pmsim->wires(wire, WIRES);

	for (size_t i = 0; i < n; i++)
		pmsim->deliver(wire[i].id, wire[i].in_flight);
	while (model_dma_ready(w.model))
		model_dma_step(w.model, 0);
	run(TARGET);
	run(0);
}

static ssize_t post(struct rpmem_pool_op *op)
{
	const struct node *a = &w.node[0];
	const bool durable = op->flags & RPMEM_POOL_DURABLE;
	struct iovec iov = {op->buf, op->len};
	struct fi_rma_iov to = {op->offset, op->len, w.key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = a->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = op,
	};
	struct fi_rpmem_then then = {.key = w.key};
	ssize_t ret;

	pmsim->use_machine(0);
	if (op->type == RPMEM_POOL_WRITE) {
		ret = fi_writemsg(a->ep, &msg,
				  FI_COMPLETION |
					  (durable ? FI_COMMIT_COMPLETE
						   : FI_DELIVERY_COMPLETE));
		if (!ret && !durable)
			w.open[w.nopen++] = to;
		return ret;
	}
	if (op->then) {
		then.addr = op->then->offset;
		then.value = op->then->value;
	}
	ret = commit_post(a->ep, w.open, w.nopen, a->peer, FI_RPMEM_DURABLE,
			  FI_RPMEM_CLASS_POWER, op->then ? &then : NULL, op);
	if (!ret)
		w.nopen = 0;
	return ret;
}

static int sim_submit(void *arg, struct rpmem_pool_op *op)
{
	ssize_t ret;

	if (op->type == RPMEM_POOL_READ) {
		memcpy(op->buf, w.mem + op->offset, op->len);
		end_op(op, 0);
		return 0;
	}
	if (op->offset + op->len > w.high)
		w.high = op->offset + op->len;
	/* The first posts wait for the private connection. */
	for (int i = 0; (ret = post(op)) == -FI_EAGAIN && i < PUMPS; i++)
		pump();
	MUST(ret);
	return 0;
}

static int sim_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms)
{
	for (int i = 0; !w.nended && timeout_ms && i < PUMPS; i++)
		pump();
	if (!w.nended)
		return 0;
	*done = w.ended[0];
	w.nended--;
	memmove(w.ended, w.ended + 1, w.nended * sizeof(*w.ended));
	return 1;
}

/* --- a run --- */

static void start_world(void)
{
	static const struct cell *last;
	static struct model *model;
	static uint8_t *mem;
	const struct pmsim_cfg fabric = {
		.ordered = true,
		.placed_acks = w.cell->placed_acks,
		.late_errors = true,
		.connects = true,
		.errors_end = true,
		.reads_wait = true,
	};
	const struct log_io io = {
		.submit = sim_submit,
		.poll = sim_poll,
		.length = LENGTH,
	};
	uint8_t name[NODE_NAME];

	if (!nodes_reset(&fabric, last == w.cell)) {
		pmsim->machine(NULL);
		pmsim->machine(&w.cell->truth);
		model = pmsim->model(TARGET);
		mem = model_alloc(model, LENGTH);
	}
	last = w.cell;
	w.model = model;
	w.mem = mem;
	w.now = 1000 * MS;
	host_sim->required(RP_CLASS_POWER);
	node_open(&w.node[TARGET], TARGET, NULL);
	node_name(&w.node[TARGET], name);
	node_register(&w.node[TARGET], w.mem, LENGTH);
	w.key = fi_mr_key(w.node[TARGET].mr);
	node_open(&w.node[0], 0, NULL);
	node_peer(&w.node[0], name);
	MUST(log_create(&io, w.layout));
	MUST(log_open(&w.log, &io, false));
}

static void submit(unsigned int count)
{
	static unsigned char bytes[ENTRIES][BYTES];
	static struct iovec v[ENTRIES];
	struct rpmem_log_op *op = &w.ops[w.nops++];

	*op = (struct rpmem_log_op){.entries = &v[w.submitted], .count = count};
	for (; count--; w.submitted++) {
		fill(bytes[w.submitted], w.submitted);
		v[w.submitted] = (struct iovec){bytes[w.submitted], BYTES};
	}
	if (rpmem_log_submit(w.log, op))
		WRONG("append: %s", rpmem_log_error());
}

static void poll_log(void)
{
	struct rpmem_log_op *done;

	run(0);
	do {
		while (rpmem_log_poll(w.log, &done, 1, 0) == 1)
			w.acked += done->count;
	} while (w.nended);
}

struct act {
	enum {
		ACT_SUBMIT,
		ACT_POLL,
		ACT_TARGET
	} kind;
	unsigned int wire, n; /* messages that arrive before it */
};

static size_t all_acts(struct act *out)
{
	struct pmsim_wire wire[WIRES];
	size_t n = pmsim->wires(wire, WIRES), acts = 0;

	if (*w.next && (*w.next != 'w' || w.acked == w.submitted))
		out[acts++].kind = ACT_SUBMIT;
	for (unsigned int m = 0; m <= TARGET; m++) {
		const struct act run = {m ? ACT_TARGET : ACT_POLL, 0, 0};

		if (waits_for(m) || (m && model_dma_pending(w.model)))
			out[acts++] = run;
		for (size_t i = 0; i < n; i++)
			for (unsigned int k = wire[i].in_flight;
			     k && wire[i].to == m; k--)
				out[acts++] =
					(struct act){run.kind, wire[i].id, k};
	}
	return acts;
}

static void act(const struct act *a)
{
	if (a->kind == ACT_SUBMIT) {
		if (*w.next != 'w')
			submit(*w.next == 'b' ? 2 : 1);
		w.next++;
		return;
	}
	if (a->n)
		pmsim->deliver(a->wire, a->n);
	check_cut();
	if (a->kind == ACT_POLL) {
		poll_log();
		return;
	}
	if (!a->n && !waits_for(TARGET))
		model_dma_step(w.model, 0);
	else if (model_dma_ready(w.model) && choose(&choices, 2))
		while (model_dma_ready(w.model))
			model_dma_step(w.model, 0);
	check_cut();
	run(TARGET);
}

/*
 * Check that durable writes used the cell's method: reads, FLUSHes or requests.
 */
static void check_method(uint64_t reads, uint64_t sends)
{
	const bool agent = !strcmp(w.cell->method, "agent-clwb");

	if (w.layout == RPMEM_LOG_ENTRY &&
	    (agent != (pmsim->count(PMSIM_SEND) > sends) ||
	     agent == (pmsim->count(PMSIM_READ) > reads)))
		WRONG("another method was used");
}

static void run_program(void)
{
	struct act acts[64];
	uint64_t reads, sends;
	size_t n;

	start_world();
	reads = pmsim->count(PMSIM_READ);
	sends = pmsim->count(PMSIM_SEND);
	w.exploring = true;
	for (int idle = 0; !*w.why && (*w.next || w.acked < w.submitted);) {
		check_cut();
		n = all_acts(acts);
		if (n) {
			act(&acts[choose(&choices, (unsigned int)n)]);
			continue;
		}
		w.now += 300 * MS;
		run(TARGET);
		poll_log();
		if (++idle > PUMPS)
			WRONG("an append never ends");
	}
	check_cut();
	check_method(reads, sends);
	for (unsigned int m = 0; m <= TARGET; m++)
		node_close(&w.node[m]);
	kill_writer(w.log);
}

/* Try one order of a program. False: the run has failed. */
static bool try_order(const struct cell *cell, uint32_t layout,
		      const char *prog)
{
	w = (struct world){.cell = cell, .layout = layout, .next = prog};
	run_program();
	if (*w.why)
		printf("not ok: %s %s %s, %s: %s\n", cell->method,
		       layouts[layout], prog,
		       cell->placed_acks ? "placed" : "received", w.why);
	return !*w.why;
}

/* Try every order of a program, or many orders. */
static bool explore(const struct cell *cell, uint32_t layout, const char *prog,
		    unsigned int most)
{
	const unsigned long before = cuts;
	unsigned int runs = 0;
	bool more;

	choices_all(&choices);
	for (; (more = choices_more(&choices)) && runs < most; runs++)
		if (!try_order(cell, layout, prog))
			return false;
	for (unsigned int seed = 0; more && seed < most; seed++, runs++) {
		choices_random(&choices, seed);
		if (!try_order(cell, layout, prog))
			return false;
	}
	printf("# %s %s %s: %s%u orders, %lu recoveries\n", cell->method,
	       layouts[layout], prog, more ? "some " : "all ", runs,
	       cuts - before);
	return true;
}

int main(int argc, char **argv)
{
	const char *l = getenv("RP_LONG");
	const unsigned int most = l && !strcmp(l, "1") ? RUNS_LONG : RUNS;
	unsigned int failed = 0, tried = 0;

	setenv("FI_OFI_RPMEM_TIMEOUT", "1000", 1);
	nodes_setup();
	host_sim->now = sim_now;
	host_sim->random = sim_random;
	host_sim->facts = sim_facts;
	host_sim->flushes = sim_flushes;
	host_sim->flusher = sim_flusher;
	for (size_t c = 0; c < sizeof(cells) / sizeof(*cells); c++)
		for (uint32_t l = 0; l <= RPMEM_LOG_REGISTER; l++) {
			if (argc > 2 && (strcmp(argv[1], cells[c].method) ||
					 strcmp(argv[2], layouts[l])))
				continue;
			for (size_t p = 0;
			     p < sizeof(programs) / sizeof(*programs); p++) {
				tried++;
				failed += !explore(&cells[c], l, programs[p],
						   most);
			}
		}
	nodes_teardown();
	printf("%u passed, %u failed\n", tried - failed, failed);
	return failed || !tried;
}
