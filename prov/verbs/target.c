// SPDX-License-Identifier: BSD-2-Clause
/* The target's agent over verbs: its thread, and the connections it answers. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/ring.h"
#include "core/spin.h"
#include "verbs/target.h"

/* The longest that may come, and that goes out (INFO). */
#define RECVS 16
#define RECV  128
#define SENDS 16
#define SEND  384

#define NS_PER_MS 1000000ull

/* Names of work requests: receives, messages, and writes of frames. */
#define WRITES (RECVS + SENDS)
#define NAMES  (WRITES + RP_RING_SLOTS)

/* So many looks for one at the clock, and at those who were asleep. */
#define LOOKS  16
#define YIELDS 100

struct rp_dom {
	struct rp_agent_host host; /* first: the agent is given this */
	struct ibv_pd *pd;
	unsigned int refs; /* guarded by doms_lock */
	LIST_ENTRY(rp_dom) link;
	pthread_mutex_t lock; /* of the agent, and of what it serves */
	atomic_uint wanted;   /* the lock, by others than the thread */
	struct rp_agent *agent;
	struct ibv_comp_channel *channel;
	int kick; /* eventfd */
	/* Whose queue tells nobody of what comes: it is looked at. */
	LIST_HEAD(, rp_target) awake;
	struct rp_spin spin;
	uint64_t spin_ns;
	bool asked; /* by a peer, since this was last looked at */
	bool runs, stop;
	pthread_t thread;
};

struct rp_target {
	struct rp_channel c; /* first: the agent is given this */
	struct rp_dom *dom;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* of all that follows */
	bool up;	   /* connected, and nothing has failed */
	bool broken;	   /* something has, and the agent is to learn of it */
	/* What the peer's HELLO has led to. */
	enum {
		TARGET_NEW,
		TARGET_REQUESTED,
		TARGET_OPEN,
		TARGET_CLOSED
	} state;
	bool is_awake;
	LIST_ENTRY(rp_target) awake;
	unsigned int tx_free; /* a bit for each */
	uint8_t rx[RECVS][RECV], tx[SENDS][SEND];
	/*
	 * What the peer writes over its own queue pair, if it knows of us
	 * looking; and where it looks for answers.
	 */
	struct ibv_mr *ring_mr; /* of ring_in; NULL: there is none */
	uint8_t ring_in[RP_RING_LEN], ring_out[RP_RING_LEN];
	struct rp_ring ring;
	bool polling;	  /* the peer knows that the ring is polled */
	uint64_t replies; /* ring of the peer; 0: replies are messages */
	uint32_t replies_rkey;
	unsigned int writing; /* a bit for each slot of ring_out */
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

static struct rp_dom *dom_of(struct rp_agent_host *h)
{
	return (struct rp_dom *)h;
}

static struct rp_target *target_of(struct rp_channel *c)
{
	return (struct rp_target *)c;
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

/* Slots that the device may still read are not used again. */
static bool write_to(struct rp_target *s, const void *msg, size_t len)
{
	const unsigned int i = s->ring.produced % RP_RING_SLOTS;
	struct rp_ring_write w;

	if (!s->replies || s->writing & 1u << i ||
	    rp_ring_put(&s->ring, msg, len, &w))
		return false;
	if (rp_side_write(s->qp, WRITES + i, w.buf, w.len, s->mr->lkey,
			  s->replies + w.offset, s->replies_rkey)) {
		rp_ring_unput(&s->ring);
		return false;
	}
	s->writing |= 1u << i;
	return true;
}

static int send_to(struct rp_target *s, const void *msg, size_t len)
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

static void be_awake(struct rp_target *s)
{
	if (s->is_awake)
		return;
	LIST_INSERT_HEAD(&s->dom->awake, s, awake);
	s->is_awake = true;
}

/* The thread finds it out of any call of the agent. */
static void break_off(struct rp_target *s)
{
	s->broken = true;
	be_awake(s);
}

/* What is sent has been copied: nothing is left to complete. */
static int c_post(struct rp_channel *c, struct rp_channel_op *ops[], int n)
{
	struct rp_target *s = target_of(c);
	const struct iovec *msg;
	int i, ret;

	for (i = 0; i < n; i++) {
		msg = ops[i]->iov;
		/* In the ring it costs less than a message, at both ends. */
		if (s->up && write_to(s, msg->iov_base, msg->iov_len))
			continue;
		ret = send_to(s, msg->iov_base, msg->iov_len);
		if (ret && ret != -EAGAIN)
			break_off(s);
		if (ret)
			break;
	}
	return i;
}

static void c_close(struct rp_channel *c)
{
	struct rp_target *s = target_of(c);

	s->state = TARGET_CLOSED;
	s->up = false;
}

static const char *c_peer(const struct rp_channel *c, char *buf, size_t size)
{
	snprintf(buf, size, "the peer of side queue pair %u",
		 ((const struct rp_target *)c)->qp->qp_num);
	return buf;
}

static const struct rp_channel_ops channel_ops = {
	.post = c_post,
	.close = c_close,
	.peer = c_peer,
};

static int h_accept(struct rp_agent_host *h, void *request, const void *data,
		    size_t len, const struct rp_channel_events *events,
		    void *owner, struct rp_channel **out)
{
	struct rp_target *s = request;
	int ret = send_to(s, data, len);

	s->state = ret ? TARGET_CLOSED : TARGET_OPEN;
	if (ret)
		return ret;
	s->c = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.inject = SEND,
	};
	*out = &s->c;
	return 0;
}

static void h_refuse(struct rp_agent_host *h, void *request, const void *data,
		     size_t len)
{
	struct rp_target *s = request;

	s->state = TARGET_CLOSED;
	send_to(s, data, len);
}

static uint32_t h_flags(struct rp_agent_host *h)
{
	return 0;
}

/* There is no place where a program of verbs could be told. */
static int h_notify(struct rp_agent_host *h, uint64_t data, uint16_t endpoint,
		    void *buf, size_t len)
{
	return 0;
}

static uint64_t h_now(struct rp_agent_host *h)
{
	return now();
}

static void h_kick(struct rp_agent_host *h)
{
	wake(dom_of(h));
}

static void h_warn(struct rp_agent_host *h, const char *text)
{
	rp_log(RP_LOG_WARN, "%s", text);
}

static const struct rp_agent_host_ops host_ops = {
	.accept = h_accept,
	.refuse = h_refuse,
	.flags = h_flags,
	.notify = h_notify,
	.now = h_now,
	.kick = h_kick,
	.warn = h_warn,
};

/* --- the thread --- */

static void hang_up(struct rp_target *s)
{
	const bool open = s->state == TARGET_OPEN;

	if (s->state == TARGET_REQUESTED)
		rp_agent_request_gone(s->dom->agent, s);
	s->state = TARGET_CLOSED;
	s->up = false;
	if (open)
		s->c.events->lost(s->c.owner, ECONNRESET, NULL, 0);
}

/* A message of the peer, over the side or in the ring. */
static void received(struct rp_target *s, const void *msg, size_t len)
{
	if (s->state == TARGET_OPEN) {
		s->c.events->received(s->c.owner, msg, len);
	} else if (s->state == TARGET_NEW) {
		s->state = TARGET_REQUESTED;
		rp_agent_requested(s->dom->agent, s, msg, len);
	}
}

/* True: something was there. */
static bool empty_ring(struct rp_target *s)
{
	uint8_t msg[RP_RING_MSG];
	bool came = false;
	size_t len;

	for (int i = 0; s->up && s->ring_mr && i < RP_RING_SLOTS; i++) {
		len = rp_ring_take(&s->ring, msg);
		if (!len)
			break;
		came = s->dom->asked = true;
		received(s, msg, len);
	}
	return came;
}

static void heard(struct rp_target *s, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	s->dom->asked = true;
	if (!rp_wire_get_hdr(msg, len, &hdr) && hdr.type == RP_MSG_DOORBELL)
		empty_ring(s);
	else
		received(s, msg, len);
}

static void completed(struct rp_target *s, const struct ibv_wc *wc)
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
static bool drain(struct rp_target *s)
{
	struct ibv_wc wc[RECVS];
	bool came = false;
	int n;

	while ((n = ibv_poll_cq(s->cq, RECVS, wc)) > 0) {
		came = true;
		for (int i = 0; i < n; i++)
			completed(s, &wc[i]);
	}
	if (n < 0 || s->broken)
		hang_up(s);
	s->broken = false;
	return came;
}

/* Who has woken; the events are given back at once, under the lock. */
static void collect(struct rp_dom *dom)
{
	struct rp_target *s;
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
	struct rp_target *s;
	bool came = false;

	LIST_FOREACH (s, &dom->awake, awake) {
		came |= drain(s);
		if (s->polling)
			came |= empty_ring(s);
	}
	return came;
}

static void forget(struct rp_target *s)
{
	if (s->is_awake)
		LIST_REMOVE(s, awake);
	s->is_awake = false;
}

/* False: it cannot be said now. */
static bool signal_peer(struct rp_target *s, enum rp_msg_type type)
{
	uint8_t msg[16];
	int len = rp_wire_put_signal(msg, sizeof(msg), type);
	int ret = send_to(s, msg, (size_t)len);

	if (ret && ret != -EAGAIN)
		hang_up(s);
	return ret != -EAGAIN;
}

/* To look on has paid: those who asked are told that it is done. */
static void say_awake(struct rp_dom *dom)
{
	struct rp_target *s;

	LIST_FOREACH (s, &dom->awake, awake)
		if (s->up && s->ring_mr && !s->polling)
			s->polling = signal_peer(s, RP_MSG_POLLING);
}

/* What a peer wrote before it hears that it tells of. False: not now. */
static bool say_asleep(struct rp_target *s)
{
	if (s->up && s->polling && !signal_peer(s, RP_MSG_IDLE))
		return false;
	s->polling = false;
	return true;
}

/* From here on the channel tells. True: something came before. */
static bool lie_down(struct rp_dom *dom)
{
	struct rp_target *s;
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

static int wait_ms(const struct rp_dom *dom)
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
	const int ms = wait_ms(dom);
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
		.messages_only = true,
	};
	struct rp_dom *dom = calloc(1, sizeof(*dom));
	int ret = ENOMEM;

	if (!dom)
		return ret;
	dom->pd = pd;
	dom->spin_ns = rp_shim_spin();
	dom->host.ops = &host_ops;
	while (!attr.incarnation)
		if (getrandom(&attr.incarnation, sizeof(attr.incarnation), 0) <
		    0) {
			ret = EIO;
			goto free;
		}
	ret = -rp_agent_new(&attr, &dom->host, &dom->agent);
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
 * what others do is not known. Without a ring all is asked behind reads.
 */
static void ring_open(struct rp_target *s)
{
	rp_ring_init(&s->ring, s->ring_in, s->ring_out);
#if defined(__x86_64__)
	s->ring_mr =
		ibv_reg_mr(s->dom->pd, s->ring_in, sizeof(s->ring_in),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
#endif
}

int rp_target_new(struct rp_dom *dom, struct rp_target **out)
{
	struct rp_target *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ENOMEM;
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
	ring_open(s);
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

void rp_target_name(const struct rp_target *s, struct rp_side *side)
{
	side->target = s->qp->qp_num;
	if (!s->ring_mr)
		return;
	side->ring = (uintptr_t)s->ring_in;
	side->ring_rkey = s->ring_mr->rkey;
}

int rp_target_connect(struct rp_target *s, const struct rp_route *route,
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
	s->replies = peer->replies;
	s->replies_rkey = peer->replies_rkey;
	/* The first message may be here before this returns. */
	s->up = !ret;
	if (!ret)
		ret = rp_side_join(s->qp, route, peer->initiator);
	if (ret)
		hang_up(s);
	leave(dom);
	return ret;
}

void rp_target_delete(struct rp_target *s)
{
	struct rp_dom *dom = s->dom;

	/* No thread is in it, and what it would be told of is forgotten. */
	enter(dom);
	hang_up(s);
	forget(s);
	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->cq);
	leave(dom);
	if (s->ring_mr)
		ibv_dereg_mr(s->ring_mr);
	ibv_dereg_mr(s->mr);
	free(s);
}
