// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two connections that share a receive context (FI_EP_MSG with an SRX): commits
 * over them take none of its receives. The test runs on the bare base, too, for
 * comparison.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"

#define CONNS 2
#define RECVS 8
#define LIMIT 20 /* seconds */

static const char *label;
#define OK(cond, ...)                                                          \
	do {                                                                   \
		char what_[100];                                               \
		snprintf(what_, sizeof(what_), __VA_ARGS__);                   \
		tap_ok(cond, "%s: %s", label, what_);                          \
	} while (0)

static struct side target, from[CONNS];
static struct fid_ep *srx, *served[CONNS];
static char buf[RECVS][64];

/* The entry that the target read last. */
static struct fi_cq_tagged_entry got;
static struct fi_cq_err_entry err;
static unsigned int ended[CONNS];
static bool pending; /* the entry in `got` was read, and not yet used */

static bool poll_target(void)
{
	ssize_t n;

	if (pending) {
		fi_cq_read(target.cq, NULL, 0);
		return true;
	}
	n = fi_cq_read(target.cq, &got, 1);
	memset(&err, 0, sizeof(err));
	if (n == -FI_EAVAIL && fi_cq_readerr(target.cq, &err, 0) == 1)
		return true;
	return n == 1;
}

static void poll_others(void)
{
	struct fi_cq_tagged_entry e;

	for (int i = 0; i < CONNS; i++)
		if (from[i].ep && fi_cq_read(from[i].cq, &e, 1) == 1)
			ended[i]++;
}

/*
 * Wait for the target's next entry, in got. Returns false if none comes in this
 * time.
 */
static bool next_entry(double seconds)
{
	struct timespec t;
	double end;

	clock_gettime(CLOCK_MONOTONIC, &t);
	end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
	do {
		poll_others();
		if (poll_target()) {
			pending = false;
			return true;
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < end);
	return false;
}

static uint32_t event_of(struct side *s, struct fi_eq_cm_entry *cm)
{
	uint32_t event;
	ssize_t n;

	do {
		n = fi_eq_read(s->eq, &event, cm, sizeof(*cm), 0);
		side_poke(&target);
		poll_others();
	} while (n == -FI_EAGAIN);
	MUST(n);
	return event;
}

static void let_in(int i, const struct card *card, const struct pair_opts *o)
{
	struct fi_eq_cm_entry cm;
	uint32_t event;

	side_open(&from[i], o);
	side_endpoint(&from[i], from[i].info);
	MUST(fi_enable(from[i].ep));
	MUST(fi_connect(from[i].ep, card->name, NULL, 0));
	/* Both ends are in one process: poll the initiator, too. */
	while (fi_eq_read(target.eq, &event, &cm, sizeof(cm), FI_PEEK) ==
	       -FI_EAGAIN)
		fi_eq_read(from[i].eq, &event, &cm, sizeof(cm), FI_PEEK);
	if (event_of(&target, &cm) != FI_CONNREQ)
		MUST(-FI_EOTHER);
	cm.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	MUST(fi_endpoint(target.domain, cm.info, &served[i], NULL));
	MUST(fi_ep_bind(served[i], &target.cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(served[i], &target.eq->fid, 0));
	MUST(fi_ep_bind(served[i], &srx->fid, 0));
	MUST(fi_enable(served[i]));
	MUST(fi_accept(served[i], NULL, 0));
	fi_freeinfo(cm.info);
	while (event_of(&target, &cm) != FI_CONNECTED)
		;
	while (event_of(&from[i], &cm) != FI_CONNECTED)
		;
}

/* Write by connection i, durably if `durable`, and wait for the completion. */
static void write_from(int i, const struct card *card, bool durable)
{
	struct iovec iov = {.iov_base = "durable", .iov_len = 8};
	struct fi_rma_iov to = {card->pool_addr + 64 * (uint64_t)i, 8,
				card->pool_key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	uint64_t flags = FI_COMPLETION | (durable ? FI_COMMIT_COMPLETE : 0);
	unsigned int had = ended[i];
	ssize_t ret;

	/*
	 * The first write sets up the private connection, for which the target
	 * must poll.
	 */
	while ((ret = fi_writemsg(from[i].ep, &m, flags)) == -FI_EAGAIN) {
		pending = poll_target();
		poll_others();
	}
	MUST(ret);
	while (ended[i] == had) {
		pending = poll_target();
		poll_others();
	}
}

static void post_recv(int i)
{
	POST(&target, fi_recv(srx, buf[i], sizeof(buf[i]), NULL, 0, buf[i]));
}

static void send_from(int i, const char *text)
{
	POST(&from[i], fi_inject(from[i].ep, text, strlen(text) + 1, 0));
}

static void check_messages(const struct card *card, bool durable)
{
	for (int i = 0; i < 4; i++)
		post_recv(i);
	for (int n = 0; n < 40; n++)
		write_from(n % CONNS, card, durable);
	OK(!next_entry(0.05), "writes take no receive");
	for (int i = 0; i < 4; i++) {
		char text[32];

		snprintf(text, sizeof(text), "message %d", i);
		send_from(i % CONNS, text);
		write_from((i + 1) % CONNS, card, durable);
		OK(next_entry(LIMIT) && got.op_context == buf[i] &&
			   !strcmp(buf[i], text),
		   "message %d is in receive %d", i, i);
	}
	/*
	 * No receive is posted for this message. It may delay only its own
	 * connection.
	 */
	send_from(0, "early");
	write_from(1, card, durable);
	post_recv(4);
	OK(next_entry(LIMIT) && got.op_context == buf[4] &&
		   !strcmp(buf[4], "early"),
	   "a message that comes before its receive");
	write_from(0, card, durable);
}

static void check_cancel(const struct card *card, bool durable)
{
	post_recv(5);
	post_recv(6);
	MUST(fi_cancel(&srx->fid, buf[5]));
	OK(next_entry(LIMIT) && err.err == FI_ECANCELED &&
		   err.op_context == buf[5],
	   "a receive is cancelled");
	write_from(0, card, durable);
	send_from(1, "behind");
	OK(next_entry(LIMIT) && !err.err && got.op_context == buf[6] &&
		   !strcmp(buf[6], "behind"),
	   "the one behind it is not");
}

/*
 * The endpoints close one after the other, before the shared context, and the
 * other one still works.
 */
static void check_closing(const struct card *card, bool durable)
{
	struct fi_eq_cm_entry cm;

	post_recv(7);
	MUST(fi_close(&from[0].ep->fid));
	from[0].ep = NULL;
	while (event_of(&target, &cm) != FI_SHUTDOWN)
		;
	OK(cm.fid == &served[0]->fid, "the end of one connection");
	MUST(fi_close(&served[0]->fid));
	write_from(1, card, durable);
	send_from(1, "still");
	OK(next_entry(LIMIT) && !err.err && got.op_context == buf[7] &&
		   !strcmp(buf[7], "still"),
	   "the other one still receives");
	MUST(fi_close(&from[1].ep->fid));
	from[1].ep = NULL;
	MUST(fi_close(&served[1]->fid));
	OK(!fi_close(&srx->fid), "closed behind its endpoints");
}

static void run_all(const struct pair_opts *o, bool durable)
{
	const struct fi_msg msg = {0};
	struct fi_rx_attr attr;
	struct card card;

	alarm(100);
	side_open(&target, o);
	side_memory(&target);
	side_listen(&target);
	side_card(&target, &card);
	attr = *target.info->rx_attr;
	attr.op_flags |= FI_COMMIT_COMPLETE;
	OK(!durable || fi_srx_context(target.domain, &attr, &srx, NULL) ==
			       -FI_EOPNOTSUPP,
	   "durable receives are refused as its default");
	MUST(fi_srx_context(target.domain, target.info->rx_attr, &srx, NULL));
	OK(!durable ||
		   fi_recvmsg(srx, &msg, FI_COMMIT_COMPLETE) == -FI_EOPNOTSUPP,
	   "and by fi_recvmsg()");
	MUST(fi_ep_bind(srx, &target.cq->fid, FI_RECV));
	for (int i = 0; i < CONNS; i++)
		let_in(i, &card, o);
	check_messages(&card, durable);
	check_cancel(&card, durable);
	check_closing(&card, durable);
	OK(!next_entry(0.05), "nothing else comes");
	for (int i = 0; i < CONNS; i++)
		side_close(&from[i]);
	side_close(&target);
}

static void run_halves(const struct pair_opts *o, bool durable)
{
	int status = 1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		run_all(o, durable);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		OK(false, "the process ended well");
}

int main(void)
{
	const struct pair_opts ours = {.msg = true},
			       bare = {.msg = true, .prov = "tcp"};

	signal(SIGPIPE, SIG_IGN);
	tap_begin();
	label = "the base";
	run_halves(&bare, false);
	label = "over it";
	run_halves(&ours, true);
	return tap_done();
}
