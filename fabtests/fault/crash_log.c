// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_log over the provider on the simulated fabric. Writes become durable
 * by a read fence, by native FLUSH or by the agent; messages arrive in each
 * order. Before each step, and within the target's flushes, the next writer
 * opens the images that a power cut may leave at this moment.
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
#define ENTRIES 8u
/*
 * Limits for a program with many orders of messages: the first RUNS orders of
 * the search, and RUNS random ones.
 */
#define RUNS	  100u
#define RUNS_LONG 2000u

/* s, b: append one entry, two entries; w: wait until all are acknowledged. */
static const char *const programs[] = {"s", "b", "ss", "sbws"};
#define PROGRAMS (sizeof(programs) / sizeof(*programs))

static const char *const layouts[] = {"entry", "tail", "counter", "register"};

static struct world {
	uint32_t layout;
	const char *next; /* steps of the program still to do */
	struct rpmem_log *log;
	struct rpmem_log_op ops[ENTRIES];
	unsigned int nops, submitted, acked;
} w;

/* --- recovery --- */

static void fill(unsigned char to[BYTES], unsigned int n)
{
	memset(to, (int)n + 1, BYTES);
}

/*
 * Read the log from its first entry, and check the bytes of each. Returns the
 * number of entries.
 */
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

/*
 * Check that the image has all acknowledged entries, in order. Then append the
 * missing entries and one more, each by a new writer. After each append the
 * next writer must find that entry as the last one, once.
 */
static void recover(const unsigned char *left)
{
	static struct pool_image image;
	struct pool_image *i = &image;
	unsigned char bytes[BYTES];
	struct rpmem_log *log;
	unsigned int n;

	i->nended = 0;
	memcpy(i->bytes, left, LENGTH);
	log = open_image(i);
	n = log ? count_entries(log) : 0;
	if (log && (n < w.acked || n > w.submitted))
		WRONG("%u entries after a cut, %u acknowledged, %u appended", n,
		      w.acked, w.submitted);
	for (; log && n <= w.submitted && !*pw.why; n++) {
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

/* --- a run --- */

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

	pool_poll_machine();
	do {
		while (rpmem_log_poll(w.log, &done, 1, 0) == 1)
			w.acked += done->count;
	} while (pw.nended);
}

static uint64_t state(void)
{
	return (uint64_t)w.layout << 16 | w.submitted << 8 | w.acked;
}

static bool may_submit(void)
{
	return *w.next && (*w.next != 'w' || w.acked == w.submitted);
}

static void submit_next(void)
{
	if (*w.next != 'w')
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
	const bool agent = !strcmp(pw.cell->method, "agent-clwb");

	if (w.layout == RPMEM_LOG_ENTRY &&
	    (agent != (pmsim->count(PMSIM_SEND) > sends) ||
	     agent == (pmsim->count(PMSIM_READ) > reads)))
		WRONG("another method was used");
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
	uint64_t reads, sends;

	w = (struct world){.layout = t->layout, .next = t->program};
	pool_start(t->cell, &program);
	MUST(log_create(&io, w.layout));
	MUST(log_open(&w.log, &io, false));
	reads = pmsim->count(PMSIM_READ);
	sends = pmsim->count(PMSIM_SEND);
	pool_run();
	check_method(reads, sends);
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

	for (unsigned int c = 0; c < POOL_CELLS - POOL_CELLS_APART; c++)
		for (uint32_t l = 0; l <= RPMEM_LOG_REGISTER; l++) {
			if (argc > 2 &&
			    (strcmp(argv[1], pool_cells[c].method) ||
			     strcmp(argv[2], layouts[l])))
				continue;
			tried += PROGRAMS;
			failed += try_programs(&pool_cells[c], l, most);
		}
	return pool_end(tried, failed);
}
