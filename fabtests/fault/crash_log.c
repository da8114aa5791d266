// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_log over the provider on the simulated fabric. Writes become durable
 * by a read fence, by native FLUSH or by the agent; messages arrive in each
 * order. Appends wrap at the ring's end, and reuse space that a trim has freed.
 * Before each step, and within the target's flushes, the next writer opens the
 * images that a power cut may leave at this moment.
 *
 * usage: crash_log [METHOD LAYOUT]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_pool.h"
#include "liblog/log.h"

#define LENGTH	((uint64_t)LOG_RING_AT + LOG_RING_MIN)
#define BYTES	40u /* of an entry: with its header it covers two cache lines */
#define ENTRIES 12u
/*
 * An entry that takes 1920 bytes of the ring. Behind two of them 192 bytes are
 * left before the ring's end: one short entry, and a pad. Two more, which wrap,
 * leave 64 bytes before the head: too few for a short entry.
 */
#define FILLER	(1920u - LOG_HEADER)
#define FILLERS 2u
/*
 * Limits for a program with many orders of messages: the first RUNS orders of
 * the search, and RUNS random ones.
 */
#define RUNS	  30u
#define RUNS_LONG 2000u

/*
 * s, b: append one entry, two entries; w: wait until all are acknowledged; t:
 * drop the entries before the last acknowledged append. e, in front: begin near
 * the end of an empty ring; f: begin with a full ring. An append that finds the
 * ring full is skipped: the first one of "fsts".
 */
static const char *const programs[] = {"s",	"b",	"eb",  "esst",
				       "esbws", "fsts", "ftbs"};
#define PROGRAMS (sizeof(programs) / sizeof(*programs))

static const char *const layouts[] = {"entry", "tail", "counter", "register"};

/* The head: the LSN of the log's first entry, and its number from 0 on. */
struct head {
	uint64_t lsn;
	unsigned int first;
};

static struct world {
	uint32_t layout;
	const char *next; /* steps of the program still to do */
	struct rpmem_log *log;
	struct rpmem_log_op ops[ENTRIES];
	unsigned int nops, submitted, acked;
	unsigned int fillers; /* the first entries are longer ones */
	bool alone;	      /* the program is one append of one entry */
	uint64_t messages[PMSIM_ERROR + 1]; /* sent before the program */
	unsigned int refused;	   /* appends that found the ring full */
	struct head last;	   /* the last acknowledged append */
	struct head head, trimmed; /* `trimmed` differs from `head` within
				    * rpmem_log_trim(): the log has either */
} w;

static bool uses_agent(void)
{
	return !strncmp(pw.cell->method, "agent-", 6);
}

/* --- recovery --- */

/* Write the bytes of entry n. Returns their number. */
static size_t fill(unsigned char to[FILLER], unsigned int n)
{
	const size_t len = n < w.fillers ? FILLER : BYTES;

	memset(to, (int)n + 1, len);
	return len;
}

/*
 * Read the log from its first entry, which has number n, and check the bytes of
 * each. Returns the number behind the last one.
 */
static unsigned int read_entries(struct rpmem_log *log, unsigned int n)
{
	unsigned char bytes[FILLER], want[FILLER];
	uint64_t lsn = RPMEM_LOG_HEAD;
	size_t len;
	int ret;

	for (; (ret = rpmem_log_read(log, &lsn, bytes, FILLER, &len, 0)) == 1;
	     n++)
		if (len != fill(want, n) || memcmp(bytes, want, len) != 0)
			WRONG("entry %u has byte %#x", n, bytes[0]);
	if (ret)
		WRONG("entry %u: %s", n, rpmem_log_error());
	return n;
}

/*
 * Open the log of the image as its next writer. NULL: there is no log, or a
 * damaged one, and pw.why says so.
 */
static struct rpmem_log *open_image(struct pool_image *i)
{
	const struct log_io io = {
		.submit = pool_image_submit,
		.poll = pool_image_poll,
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

/* Returns the number of the image's first entry. */
static unsigned int find_first(const struct rpmem_log *log)
{
	if (log->super.head == w.trimmed.lsn)
		return w.trimmed.first;
	if (log->super.head != w.head.lsn)
		WRONG("the log begins with LSN %u",
		      (unsigned int)log->super.head);
	return w.head.first;
}

/* Append entry n, in a full ring after dropping all entries before it. */
static void append_entry(struct rpmem_log *log, unsigned int n,
			 unsigned int *first)
{
	unsigned char bytes[FILLER];
	const size_t len = fill(bytes, n);
	int ret = rpmem_log_append(log, bytes, len, NULL);

	if (ret == -ENOSPC) {
		ret = rpmem_log_trim(log, log->tail)
			      ?: rpmem_log_append(log, bytes, len, NULL);
		*first = n;
	}
	if (ret)
		WRONG("append: %s", rpmem_log_error());
}

/*
 * Check that the image has all acknowledged entries from its head on, in order.
 * Then append the missing entries and one more, each by a new writer. After
 * each append the next writer must find that entry as the last one, once.
 */
static void recover(const unsigned char *left)
{
	static struct pool_image image;
	struct pool_image *i = &image;
	struct rpmem_log *log;
	unsigned int n = 0, first = 0;

	i->nended = 0;
	memcpy(i->bytes, left, LENGTH);
	log = open_image(i);
	if (log) {
		first = find_first(log);
		n = read_entries(log, first);
	}
	if (log && (n < w.acked || n > w.submitted))
		WRONG("%u entries after a cut, %u acknowledged, %u appended", n,
		      w.acked, w.submitted);
	for (; log && n <= w.submitted && !*pw.why; n++) {
		append_entry(log, n, &first);
		kill_writer(log);
		log = open_image(i);
		if (log && read_entries(log, first) != n + 1)
			WRONG("entry %u, appended behind a recovery, is not "
			      "the last one",
			      n);
	}
	if (log)
		kill_writer(log);
}

/* --- a run --- */

static void submit(unsigned int count)
{
	static unsigned char bytes[ENTRIES][FILLER];
	static struct iovec v[ENTRIES];
	struct rpmem_log_op *op = &w.ops[w.nops];
	const unsigned int first = w.submitted;
	int ret;

	*op = (struct rpmem_log_op){.entries = &v[first], .count = count};
	for (; w.submitted < first + count; w.submitted++)
		v[w.submitted] =
			(struct iovec){bytes[w.submitted],
				       fill(bytes[w.submitted], w.submitted)};
	ret = rpmem_log_submit(w.log, op);
	if (ret == -ENOSPC) {
		w.submitted = first;
		w.refused++;
		return;
	}
	if (ret)
		WRONG("append: %s", rpmem_log_error());
	w.nops++;
}

/*
 * Check the messages of one append until its acknowledgement. An entry that
 * validates itself is one round trip: a request to the agent and its reply, or
 * a write and the read or FLUSH behind it, which does not await the write. A
 * tail is stored by a second request, behind the acknowledged write.
 */
static void check_messages(void)
{
	static const unsigned int want[3][PMSIM_ERROR + 1] = {
		{[PMSIM_SEND] = 2},
		{[PMSIM_WRITE] = 1, [PMSIM_READ] = 1, [PMSIM_RESPONSE] = 1},
		{[PMSIM_WRITE] = 1, [PMSIM_ACK] = 1, [PMSIM_SEND] = 2},
	};
	const unsigned int row = w.layout != RPMEM_LOG_ENTRY ? 2
				 : uses_agent()		     ? 0
							     : 1;

	for (unsigned int i = 0; i <= PMSIM_ERROR; i++)
		if (pmsim->count(i) - w.messages[i] != want[row][i])
			WRONG("an append has %u messages of type %u, not %u",
			      (unsigned int)(pmsim->count(i) - w.messages[i]),
			      i, want[row][i]);
}

static void take_done(void)
{
	struct rpmem_log_op *done;

	do {
		while (rpmem_log_poll(w.log, &done, 1, 0) == 1) {
			w.last = (struct head){done->lsn, w.acked};
			w.acked += done->count;
			if (w.alone)
				check_messages();
		}
	} while (pw.nended);
}

static void poll_log(void)
{
	pool_poll_machine();
	take_done();
}

static void trim(struct head to)
{
	w.trimmed = to;
	if (rpmem_log_trim(w.log, to.lsn))
		WRONG("trim: %s", rpmem_log_error());
	w.head = to;
}

static uint64_t state(void)
{
	return (uint64_t)w.trimmed.first << 40 | (uint64_t)w.head.first << 32 |
	       (uint64_t)w.fillers << 24 | (uint64_t)w.layout << 16 |
	       w.submitted << 8 | w.acked;
}

static bool may_submit(void)
{
	return *w.next && (*w.next != 'w' || w.acked == w.submitted) &&
	       (*w.next != 't' || w.last.lsn > w.head.lsn);
}

static void submit_next(void)
{
	if (*w.next == 't')
		trim(w.last);
	else if (*w.next != 'w')
		submit(*w.next == 'b' ? 2 : 1);
	w.next++;
}

static bool is_done(void)
{
	return !*w.next && w.acked == w.submitted;
}

/*
 * Check that the writes since the counts `reads` and `sends` used the cell's
 * method. The agent gets messages and no reads; the others, reads and no
 * messages.
 */
static void check_method(uint64_t reads, uint64_t sends)
{
	const bool agent = uses_agent();

	if (w.layout == RPMEM_LOG_ENTRY &&
	    (agent != (pmsim->count(PMSIM_SEND) > sends) ||
	     agent == (pmsim->count(PMSIM_READ) > reads)))
		WRONG("another method was used");
}

/*
 * Outside the fabric, append fillers until the ring's end is near, and drop
 * them; with full, append as many again.
 */
static void begin_ring(bool full)
{
	w.fillers = (full ? 2 : 1) * FILLERS;
	pw.instant = true;
	while (w.submitted < w.fillers) {
		submit(1);
		take_done();
		if (w.submitted == FILLERS)
			trim((struct head){w.log->tail, FILLERS});
	}
	pw.instant = false;
	if (w.acked != w.fillers)
		WRONG("the first entries are not acknowledged");
}

struct trial {
	const struct pool_cell *cell;
	uint32_t layout;
	const char *program;
};

static void run_trial(const void *arg)
{
	static const struct pool_program program = {
		.length = LENGTH,
		.ring_at = LOG_RING_AT,
		.modes = 14,
		.state = state,
		.recover = recover,
		.may_submit = may_submit,
		.submit = submit_next,
		.poll = poll_log,
		.is_done = is_done,
	};
	const struct log_io io = {
		.submit = pool_submit,
		.poll = pool_poll,
		.length = LENGTH,
	};
	const struct trial *t = arg;
	const bool full = *t->program == 'f', end = *t->program == 'e';
	uint64_t reads, sends;

	w = (struct world){
		.layout = t->layout,
		.next = t->program + (full || end),
		.head = {LOG_FIRST, 0},
		.trimmed = {LOG_FIRST, 0},
	};
	pool_start(t->cell, &program);
	MUST(log_create(&io, w.layout));
	MUST(log_open(&w.log, &io, false));
	if (full || end)
		begin_ring(full);
	w.alone = !strcmp(t->program, "s");
	for (unsigned int i = 0; i <= PMSIM_ERROR; i++)
		w.messages[i] = pmsim->count(i);
	reads = pmsim->count(PMSIM_READ);
	sends = pmsim->count(PMSIM_SEND);
	pool_run();
	check_method(reads, sends);
	if (w.refused != (full && t->program[1] == 's'))
		WRONG("%u appends found the ring full", w.refused);
	kill_writer(w.log);
}

/* Try all programs of a cell and a layout. Returns the number of failures. */
static unsigned int try_programs(const struct pool_cell *cell, uint32_t layout,
				 unsigned int most)
{
	unsigned int failed = 0;
	char name[64];

	for (size_t p = 0; p < PROGRAMS; p++) {
		const struct trial t = {cell, layout, programs[p]};

		snprintf(name, sizeof(name), "%s %s %s", cell->method,
			 layouts[layout], t.program);
		failed += !pool_explore(name, run_trial, &t, most);
	}
	return failed;
}

int main(int argc, char **argv)
{
	const unsigned int most = pool_setup(RUNS, RUNS_LONG);
	unsigned int failed = 0, tried = 0;

	for (unsigned int c = 0; c < POOL_CELLS; c++)
		for (uint32_t l = 0; l <= RPMEM_LOG_REGISTER; l++) {
			if (pool_cells[c].apart ||
			    (argc > 2 &&
			     (strcmp(argv[1], pool_cells[c].method) ||
			      strcmp(argv[2], layouts[l]))))
				continue;
			tried += PROGRAMS;
			failed += try_programs(&pool_cells[c], l, most);
		}
	return pool_end(tried, failed);
}
