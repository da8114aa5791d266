// SPDX-License-Identifier: BSD-2-Clause
/* The target's agent over verbs: its thread, and the connections it answers. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/ask.h"
#include "core/log.h"
#include "core/mailbox.h"
#include "core/spin.h"
#include "verbs/serve.h"

/* The longest that may come, and that goes out (INFO). */
#define RECVS 16
#define RECV  128
#define SENDS 16
#define SEND  384

#define NS_PER_MS 1000000ull

/* Names of work requests: receives, messages, and writes of frames. */
#define WRITES (RECVS + SENDS)
#define NAMES  (WRITES + RP_MAILBOX_SHORTS)

/* So many looks for one at the clock, and at those who were asleep. */
#define LOOKS  16
#define YIELDS 100

struct rp_dom {
	struct ibv_pd *pd;
	unsigned int refs; /* guarded by doms_lock */
	LIST_ENTRY(rp_dom) link;
	pthread_mutex_t lock; /* of the agent, and of what it serves */
	atomic_uint wanted;   /* the lock, by others than the thread */
	struct rp_agent *agent;
	struct ibv_comp_channel *channel;
	int kick; /* eventfd */
	/* Whose queue tells nobody of what comes: it is looked at. */
	LIST_HEAD(, rp_serve) awake;
	struct rp_spin spin;
	uint64_t spin_ns;
	bool asked; /* by a peer, since this was last looked at */
	bool runs, stop;
	pthread_t thread;
};

struct rp_serve {
	struct rp_xport x; /* first: the agent is given this */
	struct rp_dom *dom;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* of all that follows */
	uint8_t name[RP_ASK_NAME];
	bool up; /* connected, and nothing has failed */
	bool is_awake;
	LIST_ENTRY(rp_serve) awake;
	unsigned int tx_free; /* a bit for each */
	uint8_t rx[RECVS][RECV], tx[SENDS][SEND];
	/*
	 * What the peer writes over its own queue pair, if it knows of us
	 * looking; and where it looks for answers.
	 */
	struct ibv_mr *box_mr; /* of box_in; NULL: there is none */
	uint8_t box_in[RP_MAILBOX_SHORT_LEN], box_out[RP_MAILBOX_SHORT_LEN];
	struct rp_mailbox box;
	bool watched;
	uint64_t answers; /* 0: they are messages */
	uint32_t answers_rkey;
	unsigned int writing; /* a bit for each frame of box_out */
};

static pthread_mutex_t doms_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, rp_dom) doms = LIST_HEAD_INITIALIZER(doms);

static void enter(struct rp_dom *dom)
{
	atomic_fetch_add(&dom->wanted, 1);
	pthread_mutex_lock(&dom->lock);
	atomic_fetch_sub(&dom->wanted, 1);
}

static void leave(struct rp_dom *dom)
{
	pthread_mutex_unlock(&dom->lock);
}

/* --- what the agent asks for --- */

static struct rp_serve *serve_of(struct rp_xport *x)
{
	return (struct rp_serve *)x;
}

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Whatever the agent times lasts far longer than the kernel's tick. */
static uint64_t now(void)
{
	return read_clock(CLOCK_MONOTONIC_COARSE);
}

static uint64_t x_now(struct rp_xport *x)
{
	return now();
}

/* Frames that the device may still read are not used again. */
static bool write_to(struct rp_serve *s, const void *msg, size_t len)
{
	const unsigned int i = s->box.sent % RP_MAILBOX_SHORTS;
	struct rp_mailbox_write w;

	if (!s->answers || s->writing & 1u << i ||
	    rp_mailbox_put(&s->box, msg, len, &w))
		return false;
	if (rp_side_write(s->qp, WRITES + i, w.buf, w.len, s->mr->lkey,
			  s->answers + w.at, s->answers_rkey)) {
		rp_mailbox_unput(&s->box);
		return false;
	}
	s->writing |= 1u << i;
	return true;
}

static int send_to(struct rp_serve *s, const void *msg, size_t len)
{
	unsigned int i;
	int ret;

	if (len > SEND)
		return -EMSGSIZE;
	if (!s->up)
		return -ENOTCONN;
	if (!s->tx_free)
		return -EAGAIN;
	i = (unsigned int)__builtin_ctz(s->tx_free);
	memcpy(s->tx[i], msg, len);
	ret = rp_side_send(s->qp, RECVS + i, s->tx[i], len, s->mr->lkey);
	if (ret)
		return -ret;
	s->tx_free &= ~(1u << i);
	return 0;
}

static void wake(const struct rp_dom *dom)
{
	const uint64_t one = 1;

	/* It fails only when it has been woken very often. */
	if (write(dom->kick, &one, sizeof(one)) < 0)
		return;
}

static void be_awake(struct rp_serve *s)
{
	if (s->is_awake)
		return;
	LIST_INSERT_HEAD(&s->dom->awake, s, awake);
	s->is_awake = true;
}

static int x_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct rp_serve *s = serve_of(x);

	/* It costs less than a message, at both ends. */
	if (s->up && write_to(s, msg, len))
		return 0;
	return send_to(s, msg, len);
}

/* A session has one peer, and no other name is its. */
static int x_peer_get(struct rp_xport *x, const void *addr, size_t len,
		      uint64_t *peer)
{
	if (len != RP_ASK_NAME || memcmp(addr, serve_of(x)->name, len))
		return -EINVAL;
	*peer = 0;
	return 0;
}

static void x_peer_put(struct rp_xport *x, uint64_t peer)
{
}

static int x_random(struct rp_xport *x, void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -EIO;
}

/* There is no place where a program of verbs could be told. */
static int x_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len)
{
	return 0;
}

static void x_kick(struct rp_xport *x)
{
	wake(serve_of(x)->dom);
}

static const struct rp_xport_ops x_ops = {
	.now = x_now,
	.send = x_send,
	.peer_get = x_peer_get,
	.peer_put = x_peer_put,
	.random = x_random,
	.notify = x_notify,
	.kick = x_kick,
};

/* --- the thread --- */

static void hang_up(struct rp_serve *s)
{
	if (!s->up)
		return;
	s->up = false;
	rp_agent_drop_xport(s->dom->agent, &s->x);
}

/* True: something was there. */
static bool empty_box(struct rp_serve *s)
{
	uint8_t msg[RP_MAILBOX_SHORT];
	bool came = false;
	size_t len;

	for (int i = 0; s->up && s->box_mr && i < RP_MAILBOX_SHORTS; i++) {
		len = rp_mailbox_take(&s->box, msg);
		if (!len)
			break;
		came = s->dom->asked = true;
		rp_agent_recv(s->dom->agent, &s->x, msg, len);
	}
	return came;
}

static void heard(struct rp_serve *s, const void *msg, size_t len)
{
	enum rp_note note;

	s->dom->asked = true;
	if (rp_note_get(msg, len, &note) && note == RP_NOTE_LOOK)
		empty_box(s);
	else
		rp_agent_recv(s->dom->agent, &s->x, msg, len);
}

static void completed(struct rp_serve *s, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		hang_up(s);
		return;
	}
	if (wc->wr_id >= WRITES) {
		s->writing &= ~(1u << (wc->wr_id - WRITES));
		return;
	}
	if (wc->wr_id >= RECVS) {
		s->tx_free |= 1u << (wc->wr_id - RECVS);
		return;
	}
	if (s->up)
		heard(s, s->rx[wc->wr_id], wc->byte_len);
	if (rp_side_listen(s->qp, wc->wr_id, s->rx[wc->wr_id], RECV,
			   s->mr->lkey))
		hang_up(s);
}

/* True: something was there. */
static bool drain(struct rp_serve *s)
{
	struct ibv_wc wc[RECVS];
	bool came = false;
	int n;

	while ((n = ibv_poll_cq(s->cq, RECVS, wc)) > 0) {
		came = true;
		for (int i = 0; i < n; i++)
			completed(s, &wc[i]);
	}
	if (n < 0)
		hang_up(s);
	return came;
}

/* Who has woken; the events are given back at once, under the lock. */
static void collect(struct rp_dom *dom)
{
	struct rp_serve *s;
	struct ibv_cq *cq;
	void *of;

	while (!ibv_get_cq_event(dom->channel, &cq, &of)) {
		s = of;
		ibv_ack_cq_events(cq, 1);
		be_awake(s);
	}
}

static bool look(struct rp_dom *dom)
{
	struct rp_serve *s;
	bool came = false;

	LIST_FOREACH (s, &dom->awake, awake) {
		came |= drain(s);
		if (s->watched)
			came |= empty_box(s);
	}
	return came;
}

static void forget(struct rp_serve *s)
{
	if (s->is_awake)
		LIST_REMOVE(s, awake);
	s->is_awake = false;
}

/* False: it cannot be said now. */
static bool note(struct rp_serve *s, enum rp_note what)
{
	uint8_t msg[RP_NOTE_LEN];
	int ret;

	rp_note_put(msg, what);
	ret = send_to(s, msg, sizeof(msg));
	if (ret && ret != -EAGAIN)
		hang_up(s);
	return ret != -EAGAIN;
}

/* To look on has paid: those who asked are told that it is done. */
static void say_awake(struct rp_dom *dom)
{
	struct rp_serve *s;

	LIST_FOREACH (s, &dom->awake, awake)
		if (s->up && s->box_mr && !s->watched)
			s->watched = note(s, RP_NOTE_AWAKE);
}

/* What a peer wrote before it hears that it tells of. False: not now. */
static bool say_asleep(struct rp_serve *s)
{
	if (s->up && s->watched && !note(s, RP_NOTE_ASLEEP))
		return false;
	s->watched = false;
	return true;
}

/* From here on the channel tells. True: something came before. */
static bool lie_down(struct rp_dom *dom)
{
	struct rp_serve *s;
	bool came;

	while ((s = LIST_FIRST(&dom->awake))) {
		if (!say_asleep(s))
			return true;
		forget(s);
		came = ibv_req_notify_cq(s->cq, 0);
		if (came)
			hang_up(s);
		if (drain(s) || came)
			return true;
	}
	return false;
}

static bool looks_on(struct rp_dom *dom, bool came, unsigned int looks)
{
	/* The clock may cost more than a look. */
	if (!came && dom->spin.until && looks % LOOKS)
		return true;
	return rp_spin(&dom->spin, dom->spin_ns, came,
		       read_clock(CLOCK_MONOTONIC));
}

static int patience(const struct rp_dom *dom)
{
	const uint64_t due = rp_agent_deadline(dom->agent), t = now();

	if (due == UINT64_MAX)
		return -1;
	if (due <= t)
		return 0;
	return due - t > 60000 * NS_PER_MS ? 60000
					   : (int)((due - t) / NS_PER_MS) + 1;
}

static void sleep_on(struct rp_dom *dom)
{
	struct pollfd fds[] = {
		{.fd = dom->channel->fd, .events = POLLIN},
		{.fd = dom->kick, .events = POLLIN},
	};
	const int ms = patience(dom);
	uint64_t kicks;

	leave(dom);
	poll(fds, 2, ms);
	if (read(dom->kick, &kicks, sizeof(kicks)) < 0)
		kicks = 0;
	pthread_mutex_lock(&dom->lock);
}

/* Nobody gets what is taken again at once. */
static void give_way(struct rp_dom *dom)
{
	for (int i = 0; i < YIELDS && atomic_load(&dom->wanted); i++)
		sched_yield();
}

static void *work(void *arg)
{
	struct rp_dom *dom = arg;
	bool came, paid;

	pthread_mutex_lock(&dom->lock);
	for (unsigned int looks = 0; !dom->stop; looks++) {
		if (!(looks % LOOKS))
			collect(dom);
		paid = dom->spin.until;
		dom->asked = false;
		came = look(dom);
		while (rp_agent_progress(dom->agent))
			;
		if (dom->asked && paid)
			say_awake(dom);
		if (looks_on(dom, came, looks)) {
			leave(dom);
			give_way(dom);
			pthread_mutex_lock(&dom->lock);
		} else if (!lie_down(dom)) {
			sleep_on(dom);
			looks = UINT_MAX; /* those who have woken are first */
		}
	}
	leave(dom);
	return NULL;
}

static int start(struct rp_dom *dom)
{
	sigset_t all, old;
	int ret;

	if (dom->runs)
		return 0;
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&dom->thread, NULL, work, dom);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	dom->runs = !ret;
	return ret;
}

/* --- a domain's life --- */

static int channel_open(struct rp_dom *dom)
{
	int flags;

	dom->channel = ibv_create_comp_channel(dom->pd->context);
	if (!dom->channel)
		return errno;
	flags = fcntl(dom->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(dom->channel->fd, F_SETFL, flags | O_NONBLOCK))
		goto fail;
	dom->kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (dom->kick >= 0)
		return 0;
fail:
	flags = errno;
	ibv_destroy_comp_channel(dom->channel);
	return flags;
}

static int dom_new(struct ibv_pd *pd, struct rp_dom **out)
{
	struct rp_agent_attr attr = {
		/* Each has one peer, who is connected: there is no flood. */
		.max_sessions = UINT32_MAX,
		.max_half_open = UINT32_MAX,
		.proved = true,
	};
	struct rp_dom *dom = calloc(1, sizeof(*dom));
	int ret = ENOMEM;

	if (!dom)
		return ret;
	dom->pd = pd;
	dom->spin_ns = rp_shim_spin();
	while (!attr.incarnation)
		if (x_random(NULL, &attr.incarnation,
			     sizeof(attr.incarnation))) {
			ret = EIO;
			goto free;
		}
	ret = -rp_agent_new(&attr, &dom->agent);
	if (ret)
		goto free;
	ret = channel_open(dom);
	if (ret)
		goto delete;
	ret = pthread_mutex_init(&dom->lock, NULL);
	if (ret)
		goto close;
	*out = dom;
	return 0;
close:
	close(dom->kick);
	ibv_destroy_comp_channel(dom->channel);
	delete : rp_agent_delete(dom->agent);
free:
	free(dom);
	return ret;
}

static void dom_delete(struct rp_dom *dom)
{
	enter(dom);
	dom->stop = true;
	leave(dom);
	wake(dom);
	if (dom->runs)
		pthread_join(dom->thread, NULL);
	rp_agent_delete(dom->agent);
	close(dom->kick);
	ibv_destroy_comp_channel(dom->channel);
	pthread_mutex_destroy(&dom->lock);
	free(dom);
}

int rp_dom_get(struct ibv_pd *pd, struct rp_dom **out)
{
	struct rp_dom *dom;
	int ret = 0;

	pthread_mutex_lock(&doms_lock);
	LIST_FOREACH (dom, &doms, link)
		if (dom->pd == pd)
			break;
	if (!dom) {
		ret = dom_new(pd, &dom);
		if (!ret)
			LIST_INSERT_HEAD(&doms, dom, link);
	}
	if (!ret) {
		dom->refs++;
		*out = dom;
	}
	pthread_mutex_unlock(&doms_lock);
	return ret;
}

void rp_dom_put(struct rp_dom *dom)
{
	bool last;

	pthread_mutex_lock(&doms_lock);
	last = !--dom->refs;
	if (last)
		LIST_REMOVE(dom, link);
	pthread_mutex_unlock(&doms_lock);
	if (last)
		dom_delete(dom);
}

int rp_dom_add(struct rp_dom *dom, struct rp_region *r)
{
	int ret;

	enter(dom);
	ret = -rp_agent_region_add(dom->agent, r);
	leave(dom);
	return ret;
}

void rp_dom_del(struct rp_dom *dom, struct rp_region *r)
{
	enter(dom);
	rp_agent_region_del(dom->agent, r);
	leave(dom);
}

/* --- one that is answered --- */

/*
 * Bytes of one request are behind those of the writes before it for whoever
 * sees them, where a CPU that keeps its stores in order has put both there:
 * what others do is not known. Without a box all is asked behind reads.
 */
static void box_open(struct rp_serve *s)
{
	rp_mailbox_init_short(&s->box, s->box_in, s->box_out);
#if defined(__x86_64__)
	s->box_mr =
		ibv_reg_mr(s->dom->pd, s->box_in, sizeof(s->box_in),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
#endif
}

int rp_serve_new(struct rp_dom *dom, struct rp_serve **out)
{
	struct rp_serve *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ENOMEM;
	s->x.ops = &x_ops;
	s->dom = dom;
	s->tx_free = (1u << SENDS) - 1;
	s->mr = ibv_reg_mr(dom->pd, s, sizeof(*s), IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr)
		goto free;
	s->cq = ibv_create_cq(dom->pd->context, NAMES, s, dom->channel, 0);
	if (!s->cq)
		goto dereg;
	if (ibv_req_notify_cq(s->cq, 0))
		goto destroy;
	s->qp = rp_side_new(dom->pd, s->cq, NAMES - RECVS, RECVS);
	if (!s->qp)
		goto destroy;
	box_open(s);
	*out = s;
	return 0;
destroy:
	ret = errno;
	ibv_destroy_cq(s->cq);
	errno = ret;
dereg:
	ret = errno;
	ibv_dereg_mr(s->mr);
	errno = ret;
free:
	free(s);
	return errno ? errno : EIO;
}

void rp_serve_name(const struct rp_serve *s, struct rp_side *side)
{
	side->serves = s->qp->qp_num;
	if (!s->box_mr)
		return;
	side->box = (uintptr_t)s->box_in;
	side->box_rkey = s->box_mr->rkey;
}

int rp_serve_connect(struct rp_serve *s, const struct rp_route *route,
		     const struct rp_side *peer)
{
	struct rp_dom *dom = s->dom;
	int ret;

	enter(dom);
	ret = start(dom);
	if (!ret)
		ret = rp_side_init(s->qp, route, 0);
	for (unsigned int i = 0; !ret && i < RECVS; i++)
		ret = rp_side_listen(s->qp, i, s->rx[i], RECV, s->mr->lkey);
	rp_ask_name(peer->asks, s->name);
	s->answers = peer->answers;
	s->answers_rkey = peer->answers_rkey;
	/* The first message may be here before this returns. */
	s->up = !ret;
	if (!ret)
		ret = rp_side_join(s->qp, route, peer->asks);
	if (ret)
		hang_up(s);
	leave(dom);
	return ret;
}

void rp_serve_delete(struct rp_serve *s)
{
	struct rp_dom *dom = s->dom;

	/* No thread is in it, and what it would be told of is forgotten. */
	enter(dom);
	hang_up(s);
	forget(s);
	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->cq);
	leave(dom);
	if (s->box_mr)
		ibv_dereg_mr(s->box_mr);
	ibv_dereg_mr(s->mr);
	free(s);
}
