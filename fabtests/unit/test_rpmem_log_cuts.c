/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librpmem_log on a pool in memory: every order of completions, and an end of
 * the power or the daemon at every step. Of each write that is not durable
 * then, all bytes survive, none, the first half, or the second half.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "log_rig.h"

#define LONG	1000u
#define ENTRIES 16u

/*
 * Programs of steps, see run_step(). Three entries of length LONG leave room
 * for no more than a pad in the smallest ring.
 */
static const char *const programs[] = {
	"spsp", "bp", "sspp", "spts", "sptsspp", "bptbp", "sprs",
};

/* Programs for two logs, see run_writers(). k: replace a killed writer. */
static const char *const programs_of_two[] = {
	"bSpP",
	"sSkp",
	"btBp",
};

static struct rig rig;
static struct seeded rnd;
static struct choices choices;

/* A log, and the entries that it must have. w: log of the current step. */
static struct log_state {
	struct rig_port port;
	struct rpmem_log *log;
	struct rpmem_log_op ops[ENTRIES];
	unsigned int submitted, acked; /* entries */
	unsigned int nops, done;       /* operations */
	unsigned int count[ENTRIES];   /* entries of each append */
	unsigned int kept;    /* first entry that must not be trimmed */
	unsigned int dropped; /* number of trimmed entries */
	uint64_t next;	      /* LSN behind the last acknowledged entry */
} logs[2], *w = logs;

static void fill_entry(unsigned char to[LONG], unsigned int n)
{
	for (unsigned int i = 0; i < LONG; i++)
		to[i] = (unsigned char)(n * 37 + i % 251);
}

/* Open the log w. False: the target has ended. */
static bool open_log(void)
{
	const struct log_io io = rig_io(&w->port);
	const int ret = log_open(&w->log, &io, false);

	cr_assert(!ret || rig.ended, "%s", rpmem_log_error());
	w->nops = w->done = 0;
	return !ret;
}

/* Compare all entries of the log with the appended ones. */
static void check_log(void)
{
	unsigned char bytes[LONG], want[LONG];
	uint64_t lsn = RPMEM_LOG_HEAD;
	unsigned int n = 0, read = 0;
	size_t len;
	int ret;

	while ((ret = rpmem_log_read(w->log, &lsn, bytes, LONG, &len, 0)) ==
	       1) {
		cr_assert_eq(len, LONG);
		if (!read)
			n = bytes[0] * 173 %
			    256; /* because 37 * 173 % 256 is 1 */
		cr_assert(n >= w->dropped && n <= w->kept,
			  "entry %u begins the log, of %u to %u", n, w->dropped,
			  w->kept);
		fill_entry(want, n + read);
		cr_assert(!memcmp(want, bytes, LONG), "entry %u differs",
			  n + read);
		read++;
	}
	cr_assert_eq(ret, 0, "%s", rpmem_log_error());
	if (!read)
		n = w->kept; /* all entries were trimmed */
	cr_assert(n + read >= w->acked && n + read <= w->submitted,
		  "%u entries are there, %u were acknowledged, %u appended",
		  n + read, w->acked, w->submitted);
	w->dropped = n;
	w->acked = w->submitted = n + read;
}

static void submit_append(unsigned int count)
{
	static unsigned char bytes[2][LONG];
	struct rpmem_log_op *op = &w->ops[w->nops];
	struct iovec v[2];

	for (unsigned int i = 0; i < count; i++) {
		fill_entry(bytes[i], w->submitted + i);
		v[i] = (struct iovec){bytes[i], LONG};
	}
	*op = (struct rpmem_log_op){.entries = v, .count = count};
	if (rpmem_log_submit(w->log, op))
		return; /* target ended, or ring full */
	w->count[w->nops++] = count;
	w->submitted += count;
}

static void poll_log(void)
{
	struct rpmem_log_op *done[1];

	if (w->done == w->nops || rpmem_log_poll(w->log, done, 1, -1) != 1 ||
	    done[0]->result)
		return;
	cr_assert_eq(done[0], &w->ops[w->done], "not in order");
	w->acked += w->count[w->done++];
	w->next = done[0]->next;
}

static void trim_log(void)
{
	if (!w->next)
		return;
	w->kept = w->acked;
	if (!rpmem_log_trim(w->log, w->next))
		w->dropped = w->acked;
}

static void close_log(void)
{
	w->log->failed = -EIO;
	rpmem_log_close(w->log);
	w->log = NULL;
}

/* Kill the writer of w, and open its log by another one. */
static void replace_writer(void)
{
	rig_kill_port(&w->port);
	close_log();
	if (!open_log())
		return;
	w->next = 0;
	check_log();
	w->kept = w->dropped;
}

static void run_step(char step)
{
	if (!w->log)
		return;
	switch (step) {
	case 's':
		submit_append(1);
		break;
	case 'b':
		submit_append(2);
		break;
	case 't':
		trim_log();
		break;
	case 'r':
		rpmem_log_publish(w->log);
		break;
	case 'k':
		replace_writer();
		break;
	default:
		poll_log();
	}
}

static bool open_logs(unsigned int n)
{
	bool all = true;

	for (w = logs; w < logs + n && all; w++)
		all = open_log();
	for (w = logs; w < logs + n && all; w++) {
		w->next = 0;
		check_log();
		w->kept = w->dropped;
	}
	return all;
}

/*
 * Run the writers of n logs until their target ends, at the latest after the
 * last step. Capital letters are steps of the second log.
 */
static void run_writers(const char *steps, unsigned int n)
{
	rig.may_stop = true;
	if (open_logs(n)) {
		for (; *steps && !rig.ended; steps++) {
			w = &logs[isupper(*steps) != 0];
			run_step((char)tolower(*steps));
		}
		if (!rig.ended && choose(&choices, 2))
			rig_cut(&rig);
		else if (!rig.ended)
			rig_kill(&rig);
	}
	rig.nops = 0;
	rig.ended = false;
	for (w = logs; w < logs + n; w++)
		if (w->log)
			close_log();
}

static void create(uint32_t layout, uint64_t at, uint64_t length)
{
	struct log_io io;

	*w = (struct log_state){
		.port = {.rig = &rig, .at = at, .length = length},
	};
	rig.visible[at] = rig.visible[at + LOG_SLOT] = 0;
	io = rig_io(&w->port);
	cr_assert_eq(log_create(&io, layout), 0);
}

/* Run one combination of choices: twice open and write, then open and check. */
static void run_path(const char *steps, uint32_t layout, unsigned int n)
{
	const uint64_t length = LOG_RING_AT + LOG_RING_MIN;

	rnd = (struct seeded){.seed = 1, .state = 1};
	rig_init(&rig, &rnd, n * length);
	rig.choices = &choices;
	for (w = logs; w < logs + n; w++)
		create(layout, (uint64_t)(w - logs) * length, length);
	run_writers(steps, n);
	run_writers(n == 1 ? "sp" : "", n);
	rig.may_stop = false;
	open_logs(n);
	for (w = logs; w < logs + n; w++)
		close_log();
	rig_fini(&rig);
}

static void try_all_paths(const char *const *all, size_t many, uint32_t layout,
			  unsigned int n)
{
	unsigned long runs = 0;

	for (size_t i = 0; i < many; i++) {
		choices_all(&choices);
		for (; choices_more(&choices); runs++)
			run_path(all[i], layout, n);
	}
	printf("# %lu runs\n", runs);
}

static void try_one_log(uint32_t layout)
{
	try_all_paths(programs, sizeof(programs) / sizeof(*programs), layout,
		      1);
}

/* Each of two logs in one pool recovers a prefix of its own entries. */
Test(rpmem_log_cuts, two_logs_recover_from_a_cut_at_every_step)
{
	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++)
		try_all_paths(programs_of_two,
			      sizeof(programs_of_two) /
				      sizeof(*programs_of_two),
			      layout, 2);
}

Test(rpmem_log_cuts, entries_layout_recovers_from_a_cut_at_every_step)
{
	try_one_log(RPMEM_LOG_ENTRY);
}

Test(rpmem_log_cuts, tail_layout_recovers_from_a_cut_at_every_step)
{
	try_one_log(RPMEM_LOG_TAIL);
}

Test(rpmem_log_cuts, counter_layout_recovers_from_a_cut_at_every_step)
{
	try_one_log(RPMEM_LOG_COUNTER);
}

Test(rpmem_log_cuts, register_layout_recovers_from_a_cut_at_every_step)
{
	try_one_log(RPMEM_LOG_REGISTER);
}
