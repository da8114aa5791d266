// SPDX-License-Identifier: BSD-2-Clause
/* Steps of a program that take more than one call. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "functional/transparent.h"

static int index_of(const struct tp_world *w, const struct tp_op *o)
{
	/*
	 * Operations outside the plan's array are those that insert addresses
	 * before the program begins.
	 */
	return o >= w->p->ops && o < w->p->ops + w->p->n ? (int)(o - w->p->ops)
							 : -1;
}

/* --- peek --- */

static bool await_entries(struct tp_world *w, struct tp_op *o, int got)
{
	struct tp_deadline deadline = tp_deadline();

	while (o->got < got && !o->early && tp_time_left(&deadline))
		tp_poll(w);
	if (o->got < got && !o->early) {
		tp_saw(w->t, index_of(w, o), "peek: nothing came");
		w->stuck = true;
	}
	return o->got >= got;
}

void tp_do_peek(struct tp_world *w, struct tp_op *o)
{
	static const uint64_t first[] = {FI_PEEK, FI_PEEK, FI_PEEK | FI_CLAIM,
					 FI_PEEK | FI_DISCARD};
	struct iovec iov;
	struct fi_msg_tagged m = {
		.msg_iov = &iov,
		.addr = FI_ADDR_UNSPEC,
		.tag = o->tag,
		.ignore = o->ignore,
		.context = o,
	};
	struct fid_ep *ep = w->ep[o->ep].fid;
	struct tp_deadline deadline = tp_deadline();
	ssize_t ret;

	tp_give_buffer(w, o);
	iov = (struct iovec){o->buf, o->len};
	do {
		o->early = false;
		ret = fi_trecvmsg(ep, &m, first[o->how]);
		if (ret)
			tp_saw(w->t, index_of(w, o), "peek: %zd", ret);
		if (ret || (!await_entries(w, o, 1) && !o->early))
			return;
		tp_poll(w);
	} while (o->early && tp_time_left(&deadline));
	w->stuck |= o->early;
	if (o->other < 0 || o->how == TP_DISCARD || o->early)
		return;
	m.iov_count = 1;
	ret = fi_trecvmsg(ep, &m,
			  FI_COMPLETION | (o->how == TP_CLAIM ? FI_CLAIM : 0));
	if (ret)
		tp_saw(w->t, index_of(w, o), "after peek: %zd", ret);
	else if (await_entries(w, o, 2))
		tp_saw(w->t, index_of(w, o), "bytes of the peeked: %s",
		       o->len && (uint8_t)o->buf[o->len - 1] !=
					       tp_pattern(&w->p->ops[o->other],
							  o->other, o->len - 1)
			       ? "bad"
			       : "good");
}

/* --- addresses --- */

static void made_up(struct tp_world *w, struct sockaddr_in *a)
{
	unsigned int n = (unsigned int)w->ndummy++;

	memset(a, 0, sizeof(*a));
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x7f010000 + n / 100);
	a->sin_port = htons((uint16_t)(2000 + n));
}

static void look_up(struct tp_world *w, struct tp_op *o, int i,
		    const struct sockaddr_in *want)
{
	struct fid_av *av = w->side[tp_side_of(o->ep)].av;
	bool table = w->p->setup.av[tp_side_of(o->ep)] == FI_AV_TABLE;
	struct sockaddr_in got = {0};
	size_t len = sizeof(got);
	int ret = fi_av_lookup(av, o->fi_addr[i], &got, &len);

	tp_saw(w->t, index_of(w, o), "address %lld: lookup %d, len %zu, %s",
	       table ? (long long)o->fi_addr[i] : -1, ret, len,
	       got.sin_port == want->sin_port &&
			       got.sin_addr.s_addr == want->sin_addr.s_addr
		       ? "right"
		       : "wrong");
}

static void insert_address(struct tp_world *w, struct tp_op *o)
{
	struct fid_av *av = w->side[tp_side_of(o->ep)].av;
	struct sockaddr_in a[8];
	char node[32], service[8];
	int ret;

	for (int i = 0; i < o->count; i++)
		made_up(w, &a[i]);
	if (!o->how && o->count > 1)
		a[o->count - 1] = a[0];
	if (o->how == 2) {
		o->count = 1;
		inet_ntop(AF_INET, &a[0].sin_addr, node, sizeof(node));
		snprintf(service, sizeof(service), "%d", ntohs(a[0].sin_port));
		ret = fi_av_insertsvc(av, node, service, o->fi_addr, 0, NULL);
	} else {
		ret = fi_av_insert(av, a, (size_t)o->count, o->fi_addr, 0,
				   NULL);
	}
	tp_saw(w->t, index_of(w, o), "insert %d: %d", o->count, ret);
	for (int i = 0; i < o->count && ret > 0; i++)
		look_up(w, o, i, &a[i]);
}

static void meet_peer(struct tp_world *w, struct tp_op *o)
{
	struct tp_ep *c = &w->ep[TP_UNKNOWN];
	int s = tp_side_of(o->ep), ret;
	struct sockaddr_in a;

	ret = fi_av_insert(w->side[s].av, c->name, 1, o->fi_addr, 0, NULL);
	tp_saw(w->t, index_of(w, o), "insert C: %d", ret);
	memcpy(&a, c->name, sizeof(a));
	if (ret == 1)
		look_up(w, o, 0, &a);
	for (int i = 0; i < 2; i++)
		w->ep[2 * s + i].peer[TP_UNKNOWN] = o->fi_addr[0];
}

void tp_do_addresses(struct tp_world *w, struct tp_op *o)
{
	struct tp_op *old;

	switch (o->verb) {
	case TP_INSERT:
		insert_address(w, o);
		return;
	case TP_MEET:
		meet_peer(w, o);
		return;
	default:
		old = &w->p->ops[o->other];
		tp_saw(w->t, index_of(w, o), "remove %d: %d", old->count,
		       fi_av_remove(w->side[tp_side_of(o->ep)].av, old->fi_addr,
				    (size_t)old->count, 0));
	}
}

/* --- waiting --- */

struct poller {
	struct tp_world *w;
	int skipped; /* side whose queues are not read: a thread waits on them
		      */
	atomic_bool over;
};

static void *drive_the_others(void *arg)
{
	struct poller *a = arg;

	while (!atomic_load(&a->over))
		for (int i = 0; i < a->w->ncq; i++)
			if (a->w->cq[i].side != a->skipped)
				tp_poll_cq(a->w, &a->w->cq[i]);
	return NULL;
}

/*
 * Sleep in fi_cq_sread() while others commit: no entry comes, so the sleep must
 * time out.
 */
static void sleep_in_vain(struct tp_world *w, struct tp_op *o)
{
	struct tp_cq *cq = w->ep[o->ep].rx;
	struct poller a = {.w = w, .skipped = cq->side};
	struct fi_cq_tagged_entry e = {0};
	uint64_t begin, took;
	pthread_t others;
	ssize_t n;

	TP_MUST(-pthread_create(&others, NULL, drive_the_others, &a));
	/*
	 * Try up to 20 times: a busy machine is late once, a broken timeout
	 * each time.
	 */
	for (int i = 0; i < 20; i++) {
		begin = tp_now_ms();
		n = fi_cq_sread(cq->fid, &e, 1, NULL, o->count);
		took = tp_now_ms() - begin;
		if (n != -FI_EAGAIN || took < (uint64_t)o->count + 500)
			break;
	}
	atomic_store(&a.over, true);
	pthread_join(others, NULL);
	tp_saw(w->t, index_of(w, o), "sread: %zd, %s", n,
	       took + 2 < (uint64_t)o->count	  ? "too early"
	       : took >= (uint64_t)o->count + 500 ? "too late"
						  : "in time");
	if (n > 0)
		tp_saw_entry(w, cq, &e, FI_ADDR_NOTAVAIL);
}

static void signal_and_sleep(struct tp_world *w, struct tp_op *o)
{
	struct tp_cq *cq = w->ep[o->ep].rx;
	struct fi_cq_tagged_entry e;
	uint64_t begin = tp_now_ms();
	int ret = fi_cq_signal(cq->fid);
	ssize_t n = fi_cq_sread(cq->fid, &e, 1, NULL, tp_deadline_ms);

	tp_saw(w->t, index_of(w, o), "signal: %d, sread: %zd, %s", ret, n,
	       tp_now_ms() < begin + (uint64_t)tp_deadline_ms ? "woken"
							      : "timed out");
}

static int may_sleep(struct tp_world *w, struct tp_cq *cq)
{
	struct fid *fid = &cq->fid->fid;

	return fi_trywait(w->side[cq->side].fabric, &fid, 1);
}

static void poll_all_but(struct tp_world *w, const struct tp_cq *cq)
{
	for (int i = 0; i < w->ncq; i++)
		if (&w->cq[i] != cq)
			tp_poll_cq(w, &w->cq[i]);
}

/*
 * Sleep on the descriptor once. A short message was sent, so even an endless
 * sleep must end.
 */
static bool sleep_once(struct tp_world *w, struct tp_cq *cq, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int ret;

	poll_all_but(w, cq);
	ret = may_sleep(w, cq);
	if (!ret && poll(&p, 1, tp_deadline_ms) != 1)
		return false;
	if (!ret || ret == -FI_EAGAIN)
		tp_poll_cq(w, cq);
	return !ret || ret == -FI_EAGAIN;
}

static void sleep_on_fd(struct tp_world *w, struct tp_op *o)
{
	struct tp_op *recv = &w->p->ops[o->other];
	struct tp_cq *cq = w->ep[o->peer].rx;
	struct pollfd p = {.events = POLLIN};
	struct tp_deadline deadline = tp_deadline();
	int ret = fi_control(&cq->fid->fid, FI_GETWAIT, &p.fd), idle = -1;

	tp_saw(w->t, index_of(w, o), "descriptor: %d", ret);
	if (ret)
		return;
	while (idle && tp_time_left(&deadline)) {
		ret = may_sleep(w, cq);
		if (!ret)
			idle = poll(&p, 1, 0);
		tp_poll(w);
	}
	tp_saw(w->t, index_of(w, o), "with nothing to read: %d", idle);
	tp_give_buffer(w, o);
	tp_count_posted(w, o);
	o->ret = tp_post(w, o);
	deadline = tp_deadline();
	while (!o->ret && !recv->got && !w->stuck)
		w->stuck = !sleep_once(w, cq, p.fd) || !tp_time_left(&deadline);
	/*
	 * Not traced: the sender's completion may come before or after the
	 * receiver wakes.
	 */
	tp_saw(w->t, index_of(w, recv), "woken: %d, %s", (int)o->ret,
	       recv->got ? "received" : "nothing");
}

void tp_do_wait(struct tp_world *w, struct tp_op *o)
{
	if (o->verb == TP_FD)
		sleep_on_fd(w, o);
	else if (o->verb == TP_SIGNAL)
		signal_and_sleep(w, o);
	else
		sleep_in_vain(w, o);
}

/* --- events --- */

void tp_do_event(struct tp_world *w, struct tp_op *o)
{
	struct fid_eq *eq = w->side[tp_side_of(o->ep)].eq;
	struct fi_eq_entry in = {.fid = &w->ep[o->ep].fid->fid,
				 .context = o,
				 .data = 42},
			   out = {0};
	uint32_t event = 0;
	ssize_t n;

	n = fi_eq_read(eq, &event, &out, sizeof(out), 0);
	tp_saw(w->t, index_of(w, o), "event queue: %zd", n);
	n = fi_eq_write(eq, FI_NOTIFY, &in, sizeof(in), 0);
	tp_saw(w->t, index_of(w, o), "event written: %zd", n);
	n = fi_eq_read(eq, &event, &out, sizeof(out), 0);
	tp_saw(w->t, index_of(w, o), "event queue: %zd, %u, %s", n, event,
	       !memcmp(&in, &out, sizeof(in)) ? "same" : "other");
	n = fi_eq_sread(eq, &event, &out, sizeof(out), 1, 0);
	tp_saw(w->t, index_of(w, o), "event queue: %zd", n);
}
