// SPDX-License-Identifier: BSD-2-Clause
/* Private connections that are lost or closed, also by callbacks. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/unit/rc_rig.h"

#define LARGE (1u << 20)

/* --- loss and close --- */

struct load {
	struct op w[8], s[8], f;
};

static void load_post(struct load *l, struct rp_channel *c, void *buf,
		      const struct rp_rc_mr *mr)
{
	for (int i = 0; i < 8; i++) {
		op_init(&l->w[i], RP_CHANNEL_WRITE, buf, LARGE);
		op_to(&l->w[i], mr, 0);
		l->w[i].op.delivered = i % 2;
		op_init(&l->s[i], RP_CHANNEL_SEND, buf, 1000);
		op_post(c, &l->w[i]);
		op_post(c, &l->s[i]);
	}
	op_init(&l->f, RP_CHANNEL_READ, NULL, 0);
	op_to(&l->f, mr, 0);
	l->f.op.length = 1;
	op_post(c, &l->f);
}

static void load_check(const struct load *l, int done)
{
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(l->w[i].done, done);
		cr_assert_eq(l->s[i].done, done);
	}
	cr_assert_eq(l->f.done, done);
}

static void *map_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

Test(rc, close_completes_each_once_and_releases_the_buffers)
{
	uint8_t *sink = calloc(1, LARGE);
	struct rp_rc_mr mr;
	struct load l;
	struct pair p;

	for (int n = 0; n < 10; n++) {
		uint8_t *source = map_memory(LARGE);

		pair_open(&p);
		register_memory(&p.t, sink, LARGE, &mr);
		load_post(&l, p.ie.c, source, &mr);
		for (int i = 0; i < n; i++) {
			rp_rc_poll(p.i.rc, 64);
			rp_rc_poll(p.t.rc, 64);
		}
		rp_channel_close(p.ie.c);
		p.ie.c = NULL;
		load_check(&l, 1);
		cr_assert_eq(p.ie.lost, 0);
		cr_assert_eq(mprotect(source, LARGE, PROT_NONE), 0);
		PUMP(&p.i, &p.t, p.te.lost);
		load_check(&l, 1);
		munmap(source, LARGE);
		rp_rc_dereg(p.t.rc, &mr);
		pair_close(&p);
	}
	free(sink);
}

/* Reads of adjacent pieces, each into a buffer of its own. */
struct reads {
	struct op r[64];
	int n;
};

static void reads_post(struct reads *l, int n, struct rp_channel *c,
		       uint8_t *buf, size_t len, const struct rp_rc_mr *mr)
{
	l->n = n;
	for (int k = 0; k < n; k++) {
		op_init(&l->r[k], RP_CHANNEL_READ, buf + (size_t)k * len, len);
		op_to(&l->r[k], mr, (uint64_t)k * len);
		op_post(c, &l->r[k]);
	}
}

static void reads_ended(const struct reads *l)
{
	for (int k = 0; k < l->n; k++)
		cr_assert_eq(l->r[k].done, 1, "%d of %d", k, l->n);
}

/*
 * In libfabric 1.17, fi_close() of a tcp endpoint frees the memory of a read
 * twice if its response is arriving. Later operations of any connection then
 * share that memory.
 */
Test(rc, close_among_responses_of_reads_spoils_no_other_connection)
{
	enum {
		FEW = 8,
		ALL = 64,
		PIECE = LARGE / ALL
	};
	uint8_t *source = map_memory((size_t)FEW * LARGE),
		*sink = map_memory((size_t)FEW * LARGE);
	struct node t = {0}, i = {0};
	struct end te, ie;
	struct rp_rc_mr mr;
	struct reads l;

	for (size_t k = 0; k < LARGE; k++)
		source[k] = (uint8_t)(k / PIECE + 1);
	node_open(&t);
	node_open(&i);
	node_listen(&t);
	register_memory(&t, source, (size_t)FEW * LARGE, &mr);
	for (int n = 0; n < 10; n++) {
		te = ie = (struct end){0};
		t.accept = &te;
		t.accepted = 0;
		cr_assert_eq(node_connect(&i, &t, &ie), 0);
		PUMP(&i, &t, ie.connected && te.c);
		reads_post(&l, n < 9 ? FEW : ALL, ie.c, sink,
			   n < 9 ? LARGE : PIECE, &mr);
		for (int k = 0; k < n && n < 9; k++) {
			rp_rc_poll(t.rc, 64);
			rp_rc_poll(i.rc, 64);
		}
		/* The last connection is closed after all responses. */
		if (n == 9)
			PUMP(&i, &t, l.r[ALL - 1].done);
		rp_channel_close(ie.c);
		reads_ended(&l);
		PUMP(&i, &t, te.lost);
		rp_channel_close(te.c);
		reads_ended(&l);
	}
	for (int k = 0; k < ALL; k++)
		cr_assert_eq(l.r[k].err, 0, "%d", k);
	cr_assert_eq(memcmp(sink, source, LARGE), 0);
	rp_rc_dereg(t.rc, &mr);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
	munmap(source, (size_t)FEW * LARGE);
	munmap(sink, (size_t)FEW * LARGE);
}

/* After the target has closed its end, no byte is placed. */
Test(rc, close_of_the_target_stops_placement)
{
	uint8_t *sink = map_memory(LARGE), *source = map_memory(LARGE);
	struct rp_rc_mr mr;
	struct load l;
	struct pair p;

	pair_open(&p);
	register_memory(&p.t, sink, LARGE, &mr);
	load_post(&l, p.ie.c, source, &mr);
	for (int i = 0; i < 3; i++) {
		rp_rc_poll(p.i.rc, 64);
		rp_rc_poll(p.t.rc, 64);
	}
	rp_channel_close(p.te.c);
	p.te.c = NULL;
	rp_rc_dereg(p.t.rc, &mr);
	cr_assert_eq(mprotect(sink, LARGE, PROT_NONE), 0);
	PUMP(&p.i, &p.t, p.ie.lost);
	load_check(&l, 1);
	cr_assert_eq(p.ie.lost, 1);
	pair_close(&p);
	munmap(sink, LARGE);
	munmap(source, LARGE);
}

/* A target in another process, until it is killed. */
static pid_t target_start(struct node *t, uint8_t *sink, struct rp_rc_mr *mr)
{
	int fds[2];
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		static struct end te;
		struct node n = {.accept = &te};

		node_open(&n);
		node_listen(&n);
		register_memory(&n, sink, LARGE, mr);
		if (write(fds[1], &n.at, sizeof(n.at)) < 0 ||
		    write(fds[1], mr, sizeof(*mr)) < 0)
			_exit(1);
		for (;;)
			rp_rc_poll(n.rc, 64);
	}
	cr_assert_eq(read(fds[0], &t->at, sizeof(t->at)), sizeof(t->at));
	cr_assert_eq(read(fds[0], mr, sizeof(*mr)), sizeof(*mr));
	close(fds[0]);
	close(fds[1]);
	return pid;
}

Test(rc, a_killed_peer_is_lost_once)
{
	uint8_t *buf = calloc(1, LARGE);
	struct node t = {0}, i = {0};
	struct end e = {0};
	struct rp_rc_mr mr;
	struct load l;
	pid_t pid = target_start(&t, buf, &mr);

	node_open(&i);
	cr_assert_eq(node_connect(&i, &t, &e), 0);
	PUMP(&i, &i, e.connected);
	kill(pid, SIGSTOP);
	load_post(&l, e.c, buf, &mr);
	cr_assert_eq(e.lost, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	PUMP(&i, &i, e.lost);
	load_check(&l, 1);
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
	cr_assert_eq(e.lost, 1);
	rp_rc_close(i.rc);
	free(buf);
}

/* --- callbacks that close --- */

struct ring {
	struct node *n;
	struct end *e;
	int count;
};

static void close_all(struct end *e)
{
	struct ring *r = e->arg;

	for (int i = 0; i < r->count; i++)
		if (r->e[i].c) {
			rp_channel_close(r->e[i].c);
			r->e[i].c = NULL;
		}
}

static void ring_open(struct node *t, struct node *i, struct end *te,
		      struct end *ie, int count)
{
	node_open(t);
	node_open(i);
	node_listen(t);
	t->accept = te;
	for (int j = 0; j < count; j++) {
		cr_assert_eq(node_connect(i, t, &ie[j]), 0);
		PUMP(i, t, ie[j].connected && te[j].c);
	}
}

static void ring_close(struct node *t, struct node *i, struct end *te,
		       struct end *ie, int count)
{
	for (int j = 0; j < count; j++) {
		if (te[j].c)
			rp_channel_close(te[j].c);
		if (ie[j].c)
			rp_channel_close(ie[j].c);
	}
	rp_rc_close(i->rc);
	rp_rc_close(t->rc);
}

/* All channels have messages, and the first callback closes every channel. */
Test(rc, a_callback_may_close_all_channels)
{
	enum {
		N = 16
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	uint8_t bytes[2000] = {0};
	struct node t = {0}, i = {0};
	struct ring r = {&t, te, N};
	int messages = 0;

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		te[j].arg = &r;
		te[j].on_message = close_all;
		op_init(&s[j], RP_CHANNEL_SEND, bytes, sizeof(bytes));
		op_post(ie[j].c, &s[j]);
	}
	for (int j = 0; j < N; j++)
		PUMP(&i, &t, ie[j].lost);
	for (int j = 0; j < N; j++) {
		messages += te[j].messages;
		cr_assert_eq(s[j].done, 1);
		cr_assert_eq(te[j].lost, 0);
	}
	cr_assert_eq(messages, 1);
	ring_close(&t, &i, te, ie, N);
}

static void close_op(struct rp_channel_op *op, int err)
{
	struct op *o = (struct op *)op;

	op_done(op, err);
	if (o->iov.iov_base)
		close_all(o->iov.iov_base);
}

Test(rc, done_and_lost_may_close_all_channels)
{
	enum {
		N = 16
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	struct node t = {0}, i = {0};
	struct ring r = {&i, ie, N};
	int lost = 0;

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		ie[j].arg = &r;
		op_init(&s[j], RP_CHANNEL_READ, NULL, 0);
		s[j].op.length = 8; /* the key is unknown */
		s[j].op.done = close_op;
		s[j].iov.iov_base = j == 7 ? &ie[j] : NULL;
		op_post(ie[j].c, &s[j]);
	}
	PUMP(&i, &t, s[7].done);
	for (int j = 0; j < N; j++) {
		cr_assert_eq(s[j].done, 1);
		cr_assert_null(ie[j].c);
	}
	ring_close(&t, &i, te, ie, N);

	memset(te, 0, sizeof(te));
	memset(ie, 0, sizeof(ie));
	t = i = (struct node){0};
	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		ie[j].arg = &r;
		ie[j].on_lost = close_all;
	}
	for (int j = 0; j < N; j++) {
		rp_channel_close(te[j].c);
		te[j].c = NULL;
	}
	PUMP(&i, &t, !ie[0].c);
	for (int j = 0; j < N; j++) {
		lost += ie[j].lost;
		cr_assert_null(ie[j].c);
	}
	cr_assert_geq(lost, 1);
	ring_close(&t, &i, te, ie, N);
}

/* done() of the operation that broke the channel comes before lost(). */
Test(rc, a_channel_closed_by_done_is_not_lost)
{
	struct ring r;
	struct pair p;
	struct op f;

	pair_open(&p);
	r = (struct ring){&p.i, &p.ie, 1};
	p.ie.arg = &r;
	op_init(&f, RP_CHANNEL_FLUSH, NULL, 0);
	f.op.done = close_op;
	f.iov.iov_base = &p.ie;
	op_post(p.ie.c, &f);
	PUMP(&p.i, &p.t, f.done);
	cr_assert_null(p.ie.c);
	PUMP(&p.i, &p.t, p.te.lost);
	cr_assert_eq(f.done, 1);
	cr_assert_eq(p.ie.lost, 0);
	pair_close(&p);
}

/* close() of one channel polls the others, and their callbacks close them. */
Test(rc, channels_are_closed_with_messages_at_hand)
{
	enum {
		N = 8
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	uint8_t bytes[2000] = {0};
	struct node t = {0}, i = {0};

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		op_init(&s[j], RP_CHANNEL_SEND, bytes, sizeof(bytes));
		op_post(ie[j].c, &s[j]);
	}
	PUMP(&i, &i, s[N - 1].done);
	for (int j = 0; j < N - 1; j++) {
		rp_channel_close(te[j].c);
		te[j].c = NULL;
	}
	PUMP(&i, &t, te[N - 1].messages);
	for (int j = 0; j < N - 1; j++)
		cr_assert_eq(te[j].messages, 0);
	ring_close(&t, &i, te, ie, N);
}

static void connect_again(struct end *e)
{
	struct pair *p = e->arg;

	rp_channel_close(e->c);
	e->c = NULL;
	p->t.accept = &p->te;
	p->t.accepted = 0;
	cr_assert_eq(node_connect(&p->i, &p->t, e), 0);
}

Test(rc, lost_may_connect_again)
{
	struct pair p;

	pair_open(&p);
	p.ie.arg = &p;
	p.ie.on_lost = connect_again;
	for (int n = 1; n <= 5; n++) {
		rp_channel_close(p.te.c);
		p.te.c = NULL;
		PUMP(&p.i, &p.t, p.ie.connected == n + 1 && p.te.c);
		cr_assert_eq(p.ie.lost, n);
	}
	p.ie.on_lost = NULL;
	pair_close(&p);
}
