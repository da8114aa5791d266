// SPDX-License-Identifier: BSD-2-Clause
/* Connected endpoints: targets that lie, and an initiator that keeps to the
 * protocol. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/mail_peer.h"

#define LIFE   77
#define ASK_MS 10000
/* Of a persistent region of class power, flushed by msync. */
#define KEY (0x5aull << 56 | 0xe6ull << 32 | 3)

enum what {
	ANSWER,	  /* one REPLY to each REQUEST */
	SILENT,	  /* nothing to a REQUEST */
	OTHERS,	  /* REPLYs to what nobody asked, for ever */
	AGAIN,	  /* the REPLY to the one before, as if it were to this one */
	TWICE,	  /* the same REPLY many times */
	REWRITES, /* the frame of the REPLY is written again and again */
	LEAVES,	  /* ends the connection */
	GARBAGE,
};

/* A way to lie; zero is the truth. */
static const struct lie {
	const char *name;
	uint32_t want; /* how the second commit ends */
	enum what what;
	bool deaf;	     /* no HELLO_ACK */
	bool none;	     /* not even a mailbox */
	uint32_t status;     /* of the REPLY */
	uint64_t other_life; /* added to the incarnation of a REPLY */
	uint64_t other_session;
	uint8_t less_class;
} lies[] = {
	{.name = "the truth", .want = RP_ST_OK},
	{.name = "no HELLO_ACK", .want = RP_ST_TIMEOUT, .deaf = true},
	{.name = "no mailbox", .want = RP_ST_CANCELED, .none = true},
	{.name = "no REPLY", .want = RP_ST_TIMEOUT, .what = SILENT},
	{.name = "REPLYs to what nobody asked",
	 .want = RP_ST_TIMEOUT,
	 .what = OTHERS},
	{.name = "the REPLY to an earlier one",
	 .want = RP_ST_TIMEOUT,
	 .what = AGAIN},
	{.name = "a REPLY many times", .want = RP_ST_OK, .what = TWICE},
	{.name = "a REPLY that is written again while it is read",
	 .want = RP_ST_OK,
	 .what = REWRITES},
	{.name = "a REPLY of another life",
	 .want = RP_ST_INCARNATION,
	 .other_life = 1},
	{.name = "a REPLY of another session",
	 .want = RP_ST_TIMEOUT,
	 .other_session = 1},
	{.name = "a REPLY of a lower class",
	 .want = RP_ST_CLASS,
	 .less_class = 1},
	{.name = "a failed flush",
	 .want = RP_ST_FLUSH_FAILED,
	 .status = RP_ST_FLUSH_FAILED},
	{.name = "the end of the connection",
	 .want = RP_ST_CANCELED,
	 .what = LEAVES},
	{.name = "garbage", .want = RP_ST_TIMEOUT, .what = GARBAGE},
};
static const struct lie *lie;

/* --- the target --- */

static struct mail_peer me;
static uint64_t cookie, before;
static uint8_t msg[RP_WIRE_MAX_MSG];

static void acknowledge(const struct rp_wire_hello *hello)
{
	struct rp_wire_hdr h = {
		.session = hello->cookie,
		.incarnation = LIFE,
	};
	const struct rp_wire_hello_ack m = {
		.cookie = 5,
		.credits = 8,
		.max_ranges = RP_WIRE_MAX_RANGES,
		.features = RP_FEATURE_EFFECTS,
	};

	cookie = hello->cookie;
	if (!lie->deaf)
		mail_send(&me, msg,
			  (size_t)MUST(rp_wire_put_hello_ack(msg, sizeof(msg),
							     &h, &m)),
			  1000);
}

static size_t reply(uint64_t token, bool lying)
{
	struct rp_wire_hdr h = {
		.session = cookie + (lying ? lie->other_session : 0),
		.token = token,
		.incarnation = LIFE + (lying ? lie->other_life : 0),
	};
	struct rp_wire_reply m = {.credits = 8};

	m.status = lying ? lie->status : 0;
	if (!m.status) {
		m.level = RP_LEVEL_DURABLE;
		m.class = (uint8_t)(2 - (lying ? lie->less_class : 0));
		m.method = RP_METHOD_AGENT_MSYNC;
	}
	return (size_t)MUST(rp_wire_put_reply(msg, sizeof(msg), &h, &m));
}

static void for_ever(uint64_t token)
{
	for (uint64_t n = 1; !me.gone; n++) {
		size_t len = reply(token + n * 1000, false);

		if (lie->what == GARBAGE)
			for (size_t i = 32; i < len; i++)
				msg[i] = (uint8_t)(n * i);
		mail_send(&me, msg, len, 10);
		mail_poke(&me);
	}
}

/* Other answers in between, for which it has no turn. */
static void rewrite(uint64_t token)
{
	struct rp_mailbox_write w, other;
	uint32_t sent = me.box.sent;

	rp_mailbox_put(&me.box, msg, reply(token, true), &w);
	for (int i = 0; i < 200; i++) {
		mail_write(&me, w.buf, w.len - 1, w.at, me.there);
		me.box.sent = sent;
		rp_mailbox_put(&me.box, msg, reply(token + 7, true), &other);
		mail_write(&me, other.buf, other.len - 1, other.at, me.there);
		me.box.sent = sent;
		rp_mailbox_put(&me.box, msg, reply(token, true), &w);
	}
	mail_write(&me, w.buf, w.len, w.at, me.there);
}

/* The first commit is answered truly. */
static void answer(uint64_t token)
{
	bool lying = before;

	if (!lying || lie->what == ANSWER || lie->what == TWICE)
		mail_send(&me, msg, reply(token, lying), 1000);
	for (int i = 0; lying && lie->what == TWICE && i < 40; i++)
		mail_send(&me, msg, reply(token, lying), 1000);
	if (lying && lie->what == AGAIN)
		mail_send(&me, msg, reply(before, true), 1000);
	else if (lying && (lie->what == OTHERS || lie->what == GARBAGE))
		for_ever(token);
	else if (lying && lie->what == REWRITES)
		rewrite(token);
	else if (lying && lie->what == LEAVES)
		fi_shutdown(me.s.ep, 0);
	before = before ? before : token;
}

static void target(int out)
{
	static struct rp_wire_request request;
	struct rp_wire_hello hello;
	struct rp_wire_hdr h;
	struct card c;
	size_t len;

	alarm(60);
	mail_open(&me);
	side_listen(&me.s);
	side_card(&me.s, &c);
	if (write(out, &c, sizeof(c)) != sizeof(c))
		MUST(-FI_EIO);
	mail_accept(&me, NULL, 0);
	if (lie->none)
		MUST(fi_close(&me.mr->fid));
	if (lie->none)
		me.mr = NULL;
	while (!me.gone) {
		len = mail_take(&me, msg, 100);
		if (!len || rp_wire_get_hdr(msg, len, &h))
			continue;
		if (h.type == RP_MSG_HELLO &&
		    !rp_wire_get_hello(msg, &h, &hello))
			acknowledge(&hello);
		else if (h.type == RP_MSG_REQUEST &&
			 !rp_wire_get_request(msg, &h, &request))
			answer(h.token);
	}
	mail_shut(&me);
	exit(0);
}

/* --- the initiator --- */

static uint32_t commit(struct side *s, struct fi_rpmem_ops *ops)
{
	struct fi_rma_iov r = {.addr = 0, .len = 64, .key = KEY};
	uint64_t end = mail_now_ms() + ASK_MS;
	struct fi_cq_err_entry err = {0};
	struct fi_cq_tagged_entry e;
	struct fi_eq_cm_entry cm;
	uint32_t event;
	ssize_t n;

	POST(s, ops->commit(s->ep, &r, 1, 0, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_POWER, NULL, &r));
	while (mail_now_ms() < end) {
		n = fi_cq_read(s->cq, &e, 1);
		if (n == 1)
			return e.op_context == &r ? RP_ST_OK : ~1u;
		if (n == -FI_EAVAIL && fi_cq_readerr(s->cq, &err, 0) == 1)
			return (uint32_t)err.prov_errno;
		fi_eq_read(s->eq, &event, &cm, sizeof(cm), 0);
	}
	return ~0u;
}

static void initiator(int in)
{
	const struct pair_opts ours = {.msg = true};
	bool none = lie->deaf || lie->none;
	struct fi_rpmem_ops *ops;
	struct card c;
	struct side s;
	uint32_t first, st;

	alarm(60);
	if (read(in, &c, sizeof(c)) != sizeof(c))
		MUST(-FI_EIO);
	side_open(&s, &ours);
	side_connect(&s, &c);
	MUST(fi_open_ops(&s.ep->fid, FI_RPMEM_OPS_1, 0, (void **)&ops, NULL));
	first = none ? RP_ST_OK : commit(&s, ops);
	st = commit(&s, ops);
	if (first || st != lie->want)
		printf("# %s: %u, then %u, not %u\n", lie->name, first, st,
		       lie->want);
	if (!side_quiet(&s))
		exit(2);
	side_close(&s);
	exit(first || st != lie->want);
}

int main(void)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "700", 1);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		int fd[2], st = 1, none;
		pid_t t, p;

		lie = &lies[i];
		fflush(stdout);
		if (pipe(fd))
			MUST(-FI_EIO);
		t = fork();
		if (!t)
			target(fd[1]);
		p = fork();
		if (!p) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			initiator(fd[0]);
		}
		close(fd[0]);
		close(fd[1]);
		if (waitpid(p, &st, 0) != p)
			st = 1;
		kill(t, SIGKILL);
		waitpid(t, &none, 0);
		tap_ok(!st, "%s", lie->name);
	}
	return tap_done();
}
