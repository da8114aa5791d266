// SPDX-License-Identifier: BSD-2-Clause
/*
 * A target dies with 1,000 outstanding commits: each completes once with an
 * error, within the timeout.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/duo.h"

#define COMMITS 1000
/* Seconds that a commit may take beyond the timeout, on an idle machine. */
#define SLACK 1

/* How the program waits for completions. */
enum how {
	POLLS,
	SLEEPS,
	POLLS_FD,
};

static enum how how;
static enum fi_progress progress;
static int deadly; /* the signal that ends the target */
static double deadline;

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

/* Sleep on the CQ's descriptor until a completion may be readable. */
static void sleep_on_fd(struct side *s)
{
	struct fid *fids[] = {&s->cq->fid};
	struct pollfd p = {.events = POLLIN};

	MUST(fi_control(&s->cq->fid, FI_GETWAIT, &p.fd));
	if (!fi_trywait(s->fabric, fids, 1))
		poll(&p, 1, -1);
}

static const char *reap_entries(struct side *s, const struct card *c, int *ends)
{
	struct fi_cq_err_entry err;
	struct fi_cq_tagged_entry e;
	char text[512], target[64];
	ssize_t n;

	snprintf(target, sizeof(target), "(target 127.0.0.1:%d",
		 rp_key_port(c->pool_key));

	for (int left = COMMITS; left;) {
		if (how == SLEEPS) {
			n = fi_cq_sread(s->cq, &e, 1, NULL, -1);
		} else {
			n = fi_cq_read(s->cq, &e, 1);
			if (how == POLLS_FD && n == -FI_EAGAIN)
				sleep_on_fd(s);
		}
		if (n == 1)
			FAIL("a commit succeeded after the death");
		if (n == -FI_EAGAIN)
			continue;
		if (n != -FI_EAVAIL)
			FAIL("reading the queue: %s", fi_strerror((int)-n));
		memset(&err, 0, sizeof(err));
		if (fi_cq_readerr(s->cq, &err, 0) != 1)
			continue;
		/*
		 * LOST and WRITE_FAILED come before the timeout: the kernel
		 * closes a killed process's connections.
		 */
		if (err.prov_errno != RP_ST_TIMEOUT &&
		    err.prov_errno != RP_ST_LOST &&
		    err.prov_errno != RP_ST_WRITE_FAILED)
			FAIL("status %d", err.prov_errno);
		fi_cq_strerror(s->cq, err.prov_errno, err.err_data, text,
			       sizeof(text));
		if (!strstr(text, target))
			FAIL("the text does not name the target: %.100s", text);
		if (++*(int *)err.op_context != 1)
			FAIL("a commit completed twice");
		left--;
	}
	for (int i = 0; i < COMMITS; i++)
		if (ends[i] != 1)
			FAIL("commit %d completed %d times", i, ends[i]);
	if (!side_quiet(s))
		FAIL("more entries than operations");
	return NULL;
}

/*
 * Does the target process a commit? Tries again after RP_ST_TIMEOUT, because a
 * busy machine may exceed the short timeout of these tests.
 */
static bool target_commits(struct side *s, const struct card *c)
{
	for (int i = 0; i < 10; i++) {
		int st = duo_commit(s, c, 0, 64);

		if (st != RP_ST_TIMEOUT)
			return !st;
	}
	return false;
}

static const char *kill_target(struct duo *d)
{
	const struct pair_opts target = {.progress = progress};
	const struct pair_opts mine = {
		.progress = progress,
		.sleeps = how != POLLS,
	};
	static char text[64];
	static int ends[COMMITS];
	struct iovec iov = {text, sizeof(text)};
	struct fi_rma_iov r;
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &r,
		.rma_iov_count = 1,
	};
	struct card c;
	struct side s;
	double start, took, waited;
	const char *bad;

	duo_start(d, &target, &c);
	duo_open(&s, &mine, &c);
	if (!target_commits(&s, &c))
		return "the first commit failed";
	/*
	 * Stop the target first, so that all commits are outstanding when it
	 * dies.
	 */
	duo_stop(d);
	for (int i = 0; i < COMMITS; i++) {
		r = (struct fi_rma_iov){c.pool_addr + i * 64, 64, c.pool_key};
		msg.addr = s.peer;
		msg.context = &ends[i];
		if (i % 2)
			POST(&s, fi_writemsg(s.ep, &msg, FI_COMMIT_COMPLETE));
		else
			POST(&s,
			     commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
					 FI_RPMEM_CLASS_DEFAULT, NULL,
					 &ends[i]));
	}
	start = duo_now();
	waited = duo_waited();
	if (deadly == SIGKILL)
		duo_kill(d);
	bad = reap_entries(&s, &c, ends);
	if (bad)
		return bad;
	took = duo_now() - start;
	waited = duo_waited() - waited;
	printf("# all failed in %.2f s, of them %.2f s without a processor\n",
	       took, waited);
	if (took > deadline + SLACK + waited)
		FAIL("it took %.1f s", took);
	side_close(&s);
	return NULL;
}

int main(void)
{
	static const char *const ways[] = {"polling", "fi_cq_sread(-1)",
					   "poll() on the descriptor"};
	char name[100];

	setbuf(stdout, NULL);
	duo_env("FI_OFI_RPMEM_TIMEOUT", "1500");
	deadline = 1.5;
	for (int a = 0; a < 2; a++) {
		progress = a ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
		for (int k = 0; k < 2; k++) {
			deadly = k ? SIGSTOP : SIGKILL;
			for (how = POLLS; how <= POLLS_FD; how++) {
				snprintf(name, sizeof(name), "%s, %s, %s",
					 k ? "stopped" : "killed", ways[how],
					 a ? "auto" : "manual");
				duo_case(name, kill_target);
			}
		}
	}
	duo_env("FI_OFI_RPMEM_TIMEOUT", NULL);
	deadline = 5;
	progress = FI_PROGRESS_MANUAL;
	deadly = SIGKILL;
	how = SLEEPS;
	duo_case("killed, fi_cq_sread(-1), the default of 5 s", kill_target);
	return tap_done();
}
