// SPDX-License-Identifier: BSD-2-Clause
/* The rendezvous server of a target, and the thread of server and client. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/list.h"
#include "core/log.h"
#include "verbs/preload/preload.h"

/* Most clients that have not sent LOOKUP, and most clients in all. */
#define MAX_HALF_OPEN	  64
#define MAX_CLIENTS	  4096
#define DEADLINE_CHECK_MS 250
#define LOCK_CHECK_MS	  1

/* A listening port on which peers look up local queue pairs. */
struct rp_pre_listener {
	uint16_t port;
	int fd;
	unsigned int refs;
	LIST_ENTRY(rp_pre_listener) link;
};

struct client_grant {
	uint32_t rkey;
	bool recalled;
};
struct client {
	int fd;
	struct sockaddr_in6 from;
	uint64_t until; /* deadline for LOOKUP, while r is NULL */
	uint8_t msg[RP_RENDEZVOUS_LEN];
	size_t msg_len;
	bool lookup_pending; /* LOOKUP has no reply yet */
	struct rp_rendezvous lookup;
	struct rp_pre_qp *r; /* local queue pair that it looked up */
	struct client_grant *grants;
	size_t ngrants, room;
	LIST_ENTRY(client) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t grant_released = PTHREAD_COND_INITIALIZER;
static LIST_HEAD(,
		 rp_pre_listener) listeners = LIST_HEAD_INITIALIZER(listeners);
static LIST_HEAD(, client) clients = LIST_HEAD_INITIALIZER(clients);
static unsigned int nclients, nhalf_open;
static bool qp_locked;	   /* a LOOKUP waits until the program unlocks a QP */
static bool accept_paused; /* until the next round of the thread */
static struct rp_pre_qp *qp_table;
static struct rp_pre_mr *mr_table;
static int kick_fd = -1; /* wakes the thread; -1: no thread */

void rp_pre_wake_thread(void)
{
	/* eventfd_write() fails only if a wake-up is pending. */
	if (kick_fd >= 0)
		eventfd_write(kick_fd, 1);
}

/* --- clients --- */

static void drop_client(struct client *v)
{
	if (v->r && v->ngrants)
		v->r->lost_client = true;
	if (!v->r)
		nhalf_open--;
	nclients--;
	LIST_REMOVE(v, link);
	close(v->fd);
	free(v->grants);
	free(v);
	pthread_cond_broadcast(&grant_released);
}

static bool is_gid(const union ibv_gid *gid, const uint8_t *raw)
{
	return !memcmp(gid->raw, raw, RP_GID_LEN);
}

/* Is r the queue pair in the client's LOOKUP, connected to its host? */
static bool is_connected_to(const struct rp_pre_qp *r, const struct client *v)
{
	const struct rp_rendezvous *c = &v->lookup;
	struct sockaddr_in6 host;

	return r->connected && r->qp->qp_num == c->to &&
	       r->peer_num == c->from && is_gid(&r->gid, c->to_gid) &&
	       is_gid(&r->peer_gid, c->from_gid) &&
	       rp_pre_gid_to_addr(&r->peer_gid, r->scope, 0, &host) &&
	       !memcmp(&host.sin6_addr, &v->from.sin6_addr,
		       sizeof(host.sin6_addr));
}

static bool refuse_lookup(struct client *v)
{
	const struct rp_rendezvous no = {.type = RP_RENDEZVOUS_NOT_FOUND};

	rp_pre_send(v->fd, &no, 0);
	return false;
}

static bool accept_lookup(struct client *v, struct rp_pre_qp *r)
{
	pthread_mutex_t *qp_lock = &rp_qp_of(r->shim)->lock;
	struct rp_rendezvous m = {
		.type = RP_RENDEZVOUS_FOUND,
		.to = v->lookup.from,
		.from = r->qp->qp_num,
	};
	struct rpmem_qp_desc addr;
	int ret;

	/* ibv_wr_start() locked it; the program's next call may need `lock`. */
	if (pthread_mutex_trylock(qp_lock)) {
		qp_locked = true;
		return true;
	}
	v->lookup_pending = false;
	ret = rpmem_export_qp(r->shim, &addr);
	if (!ret)
		ret = -rp_side_addr_get(addr.bytes, &m.side);
	if (!ret)
		ret = rp_pre_side_connect(r, &v->lookup.side);
	pthread_mutex_unlock(qp_lock);
	if (ret) {
		rp_log(RP_LOG_WARN, "queue pair %u is not served: %s", m.from,
		       strerror(ret));
		return refuse_lookup(v);
	}
	memcpy(m.to_gid, v->lookup.from_gid, RP_GID_LEN);
	memcpy(m.from_gid, r->gid.raw, RP_GID_LEN);
	v->r = r;
	nhalf_open--;
	return !rp_pre_send(v->fd, &m, 0);
}

/* Reply to LOOKUP, if the queue pair is connected. False: drop the client. */
static bool reply_to_lookup(struct client *v)
{
	bool later = false;
	struct rp_pre_qp *r;

	for (r = qp_table; r; r = r->hh.next) {
		if (is_connected_to(r, v))
			return accept_lookup(v, r);
		later |= r->qp->qp_num == v->lookup.to && !r->connected;
	}
	return later || refuse_lookup(v);
}

static bool grant_add(struct client *v, uint32_t rkey)
{
	void *p;

	for (size_t i = 0; i < v->ngrants; i++)
		if (v->grants[i].rkey == rkey)
			return true;
	p = rp_array_grow(v->grants, v->ngrants, &v->room, sizeof(*v->grants));
	if (!p)
		return false;
	v->grants = p;
	v->grants[v->ngrants++] = (struct client_grant){.rkey = rkey};
	return true;
}

static bool send_descriptor(struct client *v, uint32_t rkey)
{
	struct rp_rendezvous m = {.type = RP_RENDEZVOUS_DESC, .rkey = rkey};
	struct rp_pre_qp *r = v->r;
	struct rpmem_mr_desc desc;
	struct rp_pre_mr *mr;

	for (mr = mr_table; mr; mr = mr->hh.next)
		if (mr->mr->rkey == rkey && mr->mr->pd == r->qp->pd &&
		    !mr->leaving)
			break;
	if (mr && !rpmem_export_mr(mr->shim, r->shim, &desc) &&
	    !rp_desc_get(desc.bytes, &m.desc) && grant_add(v, rkey))
		return !rp_pre_send(v->fd, &m, 0);
	/* No such region: send a descriptor without access. */
	m.desc = rp_pre_empty_desc(rkey, r->qp->qp_num,
				   rp_desc_from_access(r->access) |
					   RP_DESC_READ | RP_DESC_WRITE);
	return !rp_pre_send(v->fd, &m, 0);
}

static void handle_released(struct client *v, uint32_t rkey)
{
	for (size_t i = 0; i < v->ngrants; i++)
		if (v->grants[i].rkey == rkey && v->grants[i].recalled) {
			v->grants[i] = v->grants[--v->ngrants];
			pthread_cond_broadcast(&grant_released);
			return;
		}
}

/* Handle a message. False: invalid in this state; drop the client. */
static bool handle_message(struct client *v)
{
	struct rp_rendezvous m;

	if (rp_rendezvous_get(v->msg, &m))
		return false;
	switch (m.type) {
	case RP_RENDEZVOUS_LOOKUP:
		if (v->r || v->lookup_pending)
			return false;
		v->lookup_pending = true;
		v->lookup = m;
		return reply_to_lookup(v);
	case RP_RENDEZVOUS_QUERY:
		return v->r && send_descriptor(v, m.rkey);
	case RP_RENDEZVOUS_RELEASED:
		handle_released(v, m.rkey);
		return v->r;
	case RP_RENDEZVOUS_LEAVE:
		v->ngrants = 0;
		return false;
	default:
		return false;
	}
}

static bool serve_client(struct client *v)
{
	ssize_t n;

	if (!v->r && rp_pre_now() > v->until)
		return false;
	if (v->lookup_pending && !reply_to_lookup(v))
		return false;
	for (;;) {
		n = recv(v->fd, v->msg + v->msg_len,
			 sizeof(v->msg) - v->msg_len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		v->msg_len += (size_t)n;
		if (v->msg_len < sizeof(v->msg))
			continue;
		v->msg_len = 0;
		if (!handle_message(v))
			return false;
	}
}

static void accept_clients(const struct rp_pre_listener *d)
{
	struct client *v;
	struct sockaddr_in6 from;
	socklen_t len;
	int fd;

	for (;;) {
		len = sizeof(from);
		fd = accept4(d->fd, (struct sockaddr *)&from, &len,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			/* Then poll() would return at once, and again. */
			accept_paused |= errno == EMFILE || errno == ENFILE ||
					 errno == ENOBUFS || errno == ENOMEM;
			return;
		}
		v = nhalf_open < MAX_HALF_OPEN && nclients < MAX_CLIENTS
			    ? calloc(1, sizeof(*v))
			    : NULL;
		if (!v) {
			close(fd);
			continue;
		}
		v->fd = fd;
		v->from = from;
		v->until = rp_pre_now() + rp_shim_timeout();
		nhalf_open++;
		nclients++;
		LIST_INSERT_HEAD(&clients, v, link);
	}
}

/* --- the thread --- */

static void serve_all(void)
{
	struct client *v, *next;
	struct rp_pre_listener *d;
	struct rp_pre_qp *r;

	qp_locked = accept_paused = false;
	LIST_FOREACH (d, &listeners, link)
		accept_clients(d);
	LIST_FOREACH_SAFE(v, &clients, link, next)
	if (!serve_client(v))
		drop_client(v);
	for (r = qp_table; r; r = r->hh.next) {
		/* If the lock is taken, its owner reads the messages. */
		if (!pthread_mutex_trylock(&r->client_lock)) {
			rp_pre_receive(r);
			pthread_mutex_unlock(&r->client_lock);
		}
		if (atomic_load(&r->state) == RP_PRE_FOUND &&
		    rp_defer_expire(rp_qp_of(r->shim)))
			rp_side_fail(rp_qp_of(r->shim)->post_data);
	}
}

/* Make the array for poll(), and its timeout *ms. NULL: no memory. */
static struct pollfd *all_fds(nfds_t *n, int *ms)
{
	const struct rp_pre_listener *d;
	const struct rp_pre_qp *r;
	const struct client *v;
	/* Each listener has a queue pair. */
	struct pollfd *fds =
		calloc(1 + nclients + 2 * HASH_COUNT(qp_table), sizeof(*fds));

	*n = 0;
	*ms = -1;
	if (nhalf_open || accept_paused || !fds)
		*ms = DEADLINE_CHECK_MS;
	if (qp_locked)
		*ms = LOCK_CHECK_MS;
	if (!fds)
		return NULL;
	fds[(*n)++] = (struct pollfd){.fd = kick_fd, .events = POLLIN};
	LIST_FOREACH (d, &listeners, link)
		fds[(*n)++] = (struct pollfd){
			.fd = d->fd, .events = accept_paused ? 0 : POLLIN};
	LIST_FOREACH (v, &clients, link)
		fds[(*n)++] = (struct pollfd){.fd = v->fd, .events = POLLIN};
	for (r = qp_table; r; r = r->hh.next)
		if (atomic_load(&r->state) == RP_PRE_FOUND) {
			fds[(*n)++] =
				(struct pollfd){.fd = r->fd, .events = POLLIN};
			if (*ms < 0)
				*ms = DEADLINE_CHECK_MS;
		}
	return fds;
}

static void *run_thread(void *arg)
{
	struct pollfd *fds;
	eventfd_t kicks;
	nfds_t n;
	int ms;

	rp_pre_passthrough = 1;
	pthread_mutex_lock(&lock);
	for (;;) {
		serve_all();
		fds = all_fds(&n, &ms);
		pthread_mutex_unlock(&lock);
		poll(fds, n, ms);
		free(fds);
		eventfd_read(kick_fd, &kicks);
		pthread_mutex_lock(&lock);
	}
	return NULL;
}

/* Start the thread; it runs until the process ends. */
static int start_thread(void)
{
	pthread_t thread;
	int ret;

	if (kick_fd >= 0)
		return 0;
	kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (kick_fd < 0)
		return errno;
	ret = rp_thread_start(&thread, run_thread, NULL);
	if (!ret) {
		pthread_detach(thread);
	} else {
		close(kick_fd);
		kick_fd = -1;
	}
	return ret;
}

/* --- listeners --- */

static int listen_at(uint16_t port)
{
	const struct sockaddr_in6 at = {.sin6_family = AF_INET6,
					.sin6_port = htons(port)};
	const int yes = 1, no = 0;
	int fd =
		socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (!bind(fd, (const struct sockaddr *)&at, sizeof(at)) &&
	    !listen(fd, MAX_HALF_OPEN))
		return fd;
	close(fd);
	return -1;
}

static struct rp_pre_listener *listener_at(uint16_t port)
{
	struct rp_pre_listener *d;

	LIST_FOREACH (d, &listeners, link)
		if (d->port == port)
			return d;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->port = port;
	d->fd = listen_at(port);
	if (d->fd < 0) {
		free(d);
		return NULL;
	}
	LIST_INSERT_HEAD(&listeners, d, link);
	return d;
}

static struct rp_pre_listener *listener_open(uint32_t qp_num)
{
	struct rp_pre_listener *d = NULL;

	for (unsigned int i = 0; i < RP_RENDEZVOUS_TRIES && !d; i++)
		d = listener_at(rp_rendezvous_port(qp_num, i));
	if (d)
		d->refs++;
	else
		rp_log(RP_LOG_WARN,
		       "no TCP port for queue pair %u: peers do not find it",
		       qp_num);
	return d;
}

static void listener_close(struct rp_pre_listener *d)
{
	if (!d || --d->refs)
		return;
	LIST_REMOVE(d, link);
	close(d->fd);
	free(d);
}

/* --- queue pairs --- */

int rp_pre_qp_add(struct rp_pre_qp *r)
{
	bool oom = false;
	int ret;

	pthread_mutex_lock(&lock);
	ret = start_thread();
	if (!ret)
		HASH_ADD_PTR(qp_table, qp, r);
	if (!ret && !oom)
		r->listener = listener_open(r->qp->qp_num);
	pthread_mutex_unlock(&lock);
	rp_pre_wake_thread();
	return ret ? ret : oom ? ENOMEM : 0;
}

struct rp_pre_qp *rp_pre_qp_find(struct ibv_qp *qp)
{
	struct rp_pre_qp *r;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(qp_table, &qp, r);
	pthread_mutex_unlock(&lock);
	return r;
}

static void drop_clients_of(struct rp_pre_qp *r)
{
	struct client *v, *next;

	r->connected = false;
	/* From now on the thread does not use r's side connection. */
	atomic_store(&r->state, RP_PRE_NEW);
	LIST_FOREACH_SAFE(v, &clients, link, next)
	if (v->r == r)
		drop_client(v);
	r->lost_client = false;
}

void rp_pre_qp_clear_peer(struct rp_pre_qp *r)
{
	pthread_mutex_lock(&lock);
	drop_clients_of(r);
	pthread_mutex_unlock(&lock);
	rp_pre_disconnect(r);
}

void rp_pre_qp_del(struct rp_pre_qp *r)
{
	rp_pre_qp_clear_peer(r);
	pthread_mutex_lock(&lock);
	HASH_DEL(qp_table, r);
	listener_close(r->listener);
	pthread_mutex_unlock(&lock);
}

void rp_pre_qp_set_peer(struct rp_pre_qp *r, const struct ibv_qp_attr *attr)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;
	struct ibv_gid_entry gid;

	if (!ah->is_global || ibv_query_gid_ex(r->qp->context, ah->port_num,
					       ah->grh.sgid_index, &gid, 0)) {
		rp_log(RP_LOG_WARN,
		       "queue pair %u has no GID: its peer cannot be looked up",
		       r->qp->qp_num);
		return;
	}
	pthread_mutex_lock(&lock);
	r->gid = gid.gid;
	r->scope = gid.ndev_ifindex;
	r->peer_gid = ah->grh.dgid;
	r->peer_num = attr->dest_qp_num;
	r->connected = true;
	pthread_mutex_unlock(&lock);
	rp_pre_wake_thread();
}

/* --- regions --- */

int rp_pre_mr_add(struct ibv_mr *mr, struct rpmem_mr *shim)
{
	struct rp_pre_mr *m = calloc(1, sizeof(*m));
	bool oom = false;

	if (!m)
		return ENOMEM;
	m->mr = mr;
	m->shim = shim;
	pthread_mutex_lock(&lock);
	HASH_ADD_PTR(mr_table, mr, m);
	pthread_mutex_unlock(&lock);
	if (!oom)
		return 0;
	free(m);
	return ENOMEM;
}

struct rp_pre_mr *rp_pre_mr_find(struct ibv_mr *mr)
{
	struct rp_pre_mr *m;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(mr_table, &mr, m);
	pthread_mutex_unlock(&lock);
	return m;
}

/* Find the client's grant of this region, if it has the descriptor. */
static struct client_grant *grant_of(const struct client *v,
				     const struct ibv_mr *mr)
{
	for (size_t i = 0; v->r && v->r->qp->pd == mr->pd && i < v->ngrants;
	     i++)
		if (v->grants[i].rkey == mr->rkey)
			return &v->grants[i];
	return NULL;
}

static bool has_unreleased_grant(const struct ibv_mr *mr)
{
	const struct client *v;
	const struct client_grant *t;

	LIST_FOREACH (v, &clients, link) {
		t = grant_of(v, mr);
		if (t && t->recalled)
			return true;
	}
	return false;
}

/* Disconnect clients that still have the region's descriptor. */
static void clients_disconnect(const struct ibv_mr *mr)
{
	struct client *v, *next;
	struct rp_pre_qp *r;
	struct rp_qp *q;

	LIST_FOREACH_SAFE(v, &clients, link, next)
	if (grant_of(v, mr))
		drop_client(v);
	for (r = qp_table; r; r = r->hh.next) {
		if (!r->lost_client || r->qp->pd != mr->pd)
			continue;
		rp_log(RP_LOG_WARN,
		       "queue pair %u is disconnected: its peer could not be "
		       "notified that a region is deregistered",
		       r->qp->qp_num);
		q = rp_qp_of(r->shim);
		q->ops->fail(q);
		r->lost_client = false;
	}
}

void rp_pre_mr_recall(struct rp_pre_mr *m)
{
	const uint64_t until = rp_pre_now() + rp_shim_timeout();
	const struct timespec ts = {.tv_sec = (time_t)(until / 1000000000u),
				    .tv_nsec = (long)(until % 1000000000u)};
	const struct rp_rendezvous gone = {.type = RP_RENDEZVOUS_RECALL,
					   .rkey = m->mr->rkey};
	struct client *v, *next;
	struct client_grant *t;

	pthread_mutex_lock(&lock);
	m->leaving = true;
	LIST_FOREACH_SAFE(v, &clients, link, next)
	{
		t = grant_of(v, m->mr);
		if (!t)
			continue;
		t->recalled = true;
		if (rp_pre_send(v->fd, &gone, 0))
			drop_client(v);
	}
	while (has_unreleased_grant(m->mr))
		if (pthread_cond_clockwait(&grant_released, &lock,
					   CLOCK_MONOTONIC, &ts))
			break;
	clients_disconnect(m->mr);
	pthread_mutex_unlock(&lock);
}

void rp_pre_mr_end_recall(struct rp_pre_mr *m, bool gone)
{
	pthread_mutex_lock(&lock);
	m->leaving = false;
	if (gone)
		HASH_DEL(mr_table, m);
	pthread_mutex_unlock(&lock);
	if (gone)
		free(m);
}

/* --- fork() --- */

static void lock_server(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_server(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child has no thread. It closes its copies of the parent's sockets. */
static void reset_in_child(void)
{
	struct rp_pre_listener *d, *next_d;
	struct client *v, *next;
	struct rp_pre_qp *r;

	grant_released = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	LIST_FOREACH_SAFE(v, &clients, link, next)
	drop_client(v);
	LIST_FOREACH_SAFE(d, &listeners, link, next_d)
	{
		d->refs = 1;
		listener_close(d);
	}
	for (r = qp_table; r; r = r->hh.next) {
		close(r->fd);
		r->fd = -1;
	}
	HASH_CLEAR(hh, qp_table);
	HASH_CLEAR(hh, mr_table);
	close(kick_fd);
	kick_fd = -1;
	unlock_server();
}

static void __attribute__((constructor)) handle_forks(void)
{
	pthread_atfork(lock_server, unlock_server, reset_in_child);
}
