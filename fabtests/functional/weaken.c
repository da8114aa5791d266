// SPDX-License-Identifier: BSD-2-Clause
/*
 * The operator's file lowers the class of a registered region while durable
 * writes are outstanding: they fail, and no later one succeeds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "functional/pair.h"

#define DEPTH 8 /* outstanding durable writes */
#define LINE  64

static char said[32];
static const char *label;

/* Replace the operator's file atomically, by rename(), as mv(1) does. */
static void state(const char *text)
{
	char path[sizeof(said) + 8];
	FILE *f;

	snprintf(path, sizeof(path), "%s.new", said);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) || rename(path, said))
		MUST(-errno);
}

/*
 * The target serves while it waits in the barrier: by polling, in
 * fi_cq_sread(), or by the provider's thread.
 */
static void target_half(struct side *s, const struct card *peer)
{
	(void)peer;
	pair_barrier(s);
}

static void durable_write_post(struct side *s, const struct card *c, int *slot,
			       size_t at)
{
	static char bytes[LINE] = "durable";
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov to = {c->pool_addr + LINE * at, sizeof(bytes),
				c->pool_key};
	struct fi_msg_rma m = {.msg_iov = &iov,
			       .iov_count = 1,
			       .addr = s->peer,
			       .rma_iov = &to,
			       .rma_iov_count = 1,
			       .context = slot};

	POST(s, fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE));
}

/*
 * Keep DEPTH durable writes outstanding until one fails, and wait for the
 * others. Each must complete once, and none may succeed after the first
 * failure. Returns the status of that failure.
 */
static int write_until_failure(struct side *s, const struct card *c)
{
	int slots[DEPTH] = {0}, first = 0, left = DEPTH, *slot;
	bool once = true, late = false;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	for (int i = 0; i < DEPTH; i++, slots[i - 1]++)
		durable_write_post(s, c, &slots[i], (size_t)i);
	while (left && pair_time_left()) {
		if (side_wait(s, &e, &err)) {
			slot = e.op_context;
			late |= first;
		} else {
			slot = err.op_context;
			first = first ? first : err.prov_errno;
		}
		once &= --*slot == 0;
		if (first) {
			left--;
			continue;
		}
		++*slot;
		durable_write_post(s, c, slot, (size_t)(slot - slots));
	}
	tap_ok(!left && once && side_quiet(s),
	       "%s: each outstanding write ends once", label);
	tap_ok(!late, "%s: none succeeds behind the first failure", label);
	return first;
}

/* Commit other bytes than the writes', which are poisoned by now. */
static int commit_of_class(struct side *s, const struct card *c, int class,
			   char *text, size_t len)
{
	struct fi_rma_iov r = {c->pool_addr + LINE * DEPTH, LINE, c->pool_key};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE, class,
			    NULL, &r));
	if (side_wait(s, &e, &err))
		return 0;
	fi_cq_strerror(s->cq, err.prov_errno, err.err_data, text, len);
	return err.prov_errno;
}

static void initiator_half(struct side *s, const struct card *c)
{
	char why[512] = "", text[512] = "";
	struct fi_rpmem_attr a = QUERY_ATTR(why);
	int st =
		commit_of_class(s, c, FI_RPMEM_CLASS_POWER, text, sizeof(text));
	const char *name = said;

	tap_ok(!st, "%s: class power is had (%d)", label, st);
	state("[host]\nlimit class = process\n");
	st = write_until_failure(s, c);
	tap_ok(st == RP_ST_LOST || st == RP_ST_CLASS,
	       "%s: a write that needs class power fails (%d)", label, st);
	st = commit_of_class(s, c, FI_RPMEM_CLASS_POWER, text, sizeof(text));
	tap_ok(st == RP_ST_CLASS &&
		       strstr(text, "reaches process, power is required"),
	       "%s: the next commit is refused (%d: %s)", label, st, text);
	MUST(key_query(s->ep, s->peer, c->pool_key, FI_RPMEM_CLASS_POWER, &a));
	tap_ok(a.prov_errno == RP_ST_CLASS &&
		       a.region_class == FI_RPMEM_CLASS_PROCESS &&
		       strstr(why, "class was power, now process") &&
		       strstr(why, name) &&
		       strstr(why, "# nothing yet, now [host] limit class = "
				   "process"),
	       "%s: a query names the change: %s", label, why);
	st = commit_of_class(s, c, FI_RPMEM_CLASS_PROCESS, text, sizeof(text));
	tap_ok(!st, "%s: a commit that accepts less succeeds (%d)", label, st);
	pair_barrier(s);
}

int main(void)
{
	static const struct pair_opts ways[] = {
		{.progress = FI_PROGRESS_MANUAL},
		{.progress = FI_PROGRESS_MANUAL, .sleeps = true},
		{.progress = FI_PROGRESS_AUTO},
	};
	static const char *const names[] = {"polls", "sleeps", "thread"};
	int fd;

	setbuf(stdout, NULL);
	strcpy(said, "weaken.XXXXXX");
	fd = mkstemp(said);
	if (fd < 0)
		MUST(-errno);
	close(fd);
	setenv("FI_OFI_RPMEM_OPERATOR", said, 1);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		label = names[i];
		state("# nothing yet\n");
		pair_run(&ways[i], &ways[0], target_half, initiator_half);
	}
	unlink(said);
	return tap_done();
}
