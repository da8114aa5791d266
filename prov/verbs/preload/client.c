// SPDX-License-Identifier: BSD-2-Clause
/* The rendezvous client: connect to the peer's server, get its descriptors. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "verbs/preload/preload.h"

#define NS_PER_MS 1000000u

/* --- a connection with a deadline --- */

static int wait_for(int fd, short what, uint64_t until)
{
	struct pollfd p = {.fd = fd, .events = what};
	uint64_t now;
	int n;

	do {
		now = rp_pre_now();
		if (now >= until)
			return ETIMEDOUT;
		n = poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? errno : n ? 0 : ETIMEDOUT;
}

/* Send or receive the bytes of one message from *at on. until 0: never wait. */
static int transfer_message(int fd, uint8_t msg[RP_RENDEZVOUS_LEN], size_t *at,
			    bool out, uint64_t until)
{
	ssize_t n;
	int ret = 0;

	while (!ret && *at < RP_RENDEZVOUS_LEN) {
		const size_t left = RP_RENDEZVOUS_LEN - *at;
		n = out ? send(fd, msg + *at, left, MSG_NOSIGNAL)
			: read(fd, msg + *at, left);
		if (n > 0)
			*at += (size_t)n;
		else if (!n)
			ret = ECONNRESET;
		else if (errno == EAGAIN)
			ret = wait_for(fd, out ? POLLOUT : POLLIN, until);
		else if (errno != EINTR)
			ret = errno;
	}
	return ret;
}

int rp_pre_send(int fd, const struct rp_rendezvous *m, uint64_t until)
{
	uint8_t msg[RP_RENDEZVOUS_LEN];
	size_t at = 0;

	return -rp_rendezvous_put(msg, m)
		       ?: transfer_message(fd, msg, &at, true, until);
}

/* ETIMEDOUT: r->msg keeps the part that has come, for the next call. */
static int receive_message(struct rp_pre_qp *r, int fd, struct rp_rendezvous *m,
			   uint64_t until)
{
	int ret = transfer_message(fd, r->msg, &r->msg_len, false, until);

	if (ret)
		return ret;
	r->msg_len = 0;
	return -rp_rendezvous_get(r->msg, m);
}

bool rp_pre_gid_to_addr(const union ibv_gid *gid, uint32_t scope, uint16_t port,
			struct sockaddr_in6 *to)
{
	*to = (struct sockaddr_in6){
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
	};
	memcpy(&to->sin6_addr, gid->raw, sizeof(to->sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&to->sin6_addr))
		to->sin6_scope_id = scope;
	return !IN6_IS_ADDR_UNSPECIFIED(&to->sin6_addr) &&
	       (!IN6_IS_ADDR_LINKLOCAL(&to->sin6_addr) || scope);
}

/* Connect from the local GID's address, by which the peer knows the client. */
static int connect_port(const struct rp_pre_qp *r, uint16_t port,
			uint64_t until)
{
	struct sockaddr_in6 to, from;
	socklen_t len = sizeof(int);
	int fd, err = 0;

	if (!rp_pre_gid_to_addr(&r->peer_gid, r->scope, port, &to) ||
	    !rp_pre_gid_to_addr(&r->gid, r->scope, 0, &from)) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &err, sizeof(err));
	if (bind(fd, (struct sockaddr *)&from, sizeof(from)))
		goto fail;
	if (!connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return fd;
	if (errno != EINPROGRESS)
		goto fail;
	errno = wait_for(fd, POLLOUT, until);
	if (errno || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		goto fail;
	if (!err)
		return fd;
	errno = err;
fail:
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* --- looking up --- */

int rp_pre_side_connect(struct rp_pre_qp *r, const struct rp_side_addr *peer)
{
	pthread_mutex_t *lock = &rp_qp_of(r->shim)->lock;
	struct rpmem_qp_desc addr = {.bytes = {0}};
	int ret = -rp_side_addr_put(addr.bytes, peer);

	pthread_mutex_lock(lock);
	if (!ret && !r->side_up) {
		ret = rpmem_connect_qp(r->shim, &addr);
		r->side_up = !ret;
		r->peer_desc = addr;
	} else if (r->side_up && memcmp(&r->peer_desc, &addr, sizeof(addr))) {
		/* The peer sent another descriptor. (Each has one encoding.) */
		ret = EKEYREJECTED;
	}
	pthread_mutex_unlock(lock);
	return ret;
}

static bool is_found_reply(const struct rp_pre_qp *r,
			   const struct rp_rendezvous *m)
{
	return m->type == RP_RENDEZVOUS_FOUND && m->to == r->qp->qp_num &&
	       m->from == r->peer_num &&
	       !memcmp(m->to_gid, r->gid.raw, RP_GID_LEN) &&
	       !memcmp(m->from_gid, r->peer_gid.raw, RP_GID_LEN);
}

static int connect_any(struct rp_pre_qp *r, const struct rp_rendezvous *call)
{
	const uint64_t until = rp_pre_now() + rp_shim_timeout();
	struct rp_rendezvous m;
	int fd, ret = ECONNREFUSED, last;

	for (unsigned int i = 0; i < RP_RENDEZVOUS_TRIES; i++) {
		fd = connect_port(r, rp_rendezvous_port(r->peer_num, i), until);
		if (fd < 0) {
			if (errno != ECONNREFUSED)
				return errno;
			continue;
		}
		r->msg_len = 0;
		last = rp_pre_send(fd, call, until)
			       ?: receive_message(r, fd, &m, until);
		if (!last && is_found_reply(r, &m)) {
			ret = rp_pre_side_connect(r, &m.side);
			if (ret)
				close(fd);
			else
				r->fd = fd;
			return ret;
		}
		close(fd);
		/* A silent port may be the peer's: try no other one. */
		if (last == ETIMEDOUT)
			return last;
	}
	return ret;
}

static void connect_to_server(struct rp_pre_qp *r)
{
	struct rp_rendezvous call = {
		.type = RP_RENDEZVOUS_LOOKUP,
		.to = r->peer_num,
		.from = r->qp->qp_num,
	};
	struct rpmem_qp_desc addr;
	char host[INET6_ADDRSTRLEN] = "?";
	int ret = rpmem_export_qp(r->shim, &addr);

	if (!ret)
		ret = -rp_side_addr_get(addr.bytes, &call.side);
	memcpy(call.to_gid, r->peer_gid.raw, RP_GID_LEN);
	memcpy(call.from_gid, r->gid.raw, RP_GID_LEN);
	if (!ret)
		ret = connect_any(r, &call);
	if (!ret) {
		atomic_store(&r->state, RP_PRE_FOUND);
		rp_pre_wake_thread();
		return;
	}
	inet_ntop(AF_INET6, r->peer_gid.raw, host, sizeof(host));
	rp_log(RP_LOG_WARN,
	       "no process at %s has queue pair %u with this library "
	       "preloaded (%s): flushes to it fail",
	       host, r->peer_num, strerror(ret));
	atomic_store(&r->state, RP_PRE_NOT_FOUND);
}

void rp_pre_lookup(struct rp_pre_qp *r)
{
	if (atomic_load(&r->state) != RP_PRE_NEW || !r->connected)
		return;
	pthread_mutex_lock(&r->client_lock);
	if (atomic_load(&r->state) == RP_PRE_NEW)
		connect_to_server(r);
	pthread_mutex_unlock(&r->client_lock);
}

/* --- messages after the lookup; all with client_lock --- */

static void drop_connection(struct rp_pre_qp *r)
{
	if (r->fd < 0)
		return;
	close(r->fd);
	r->fd = -1;
	r->all_recalled = true;
	atomic_store(&r->state, RP_PRE_LOST);
	/* Wake a thread that sleeps until a completion. */
	rp_side_fail(rp_qp_of(r->shim)->post_data);
}

static int release_region(struct rp_pre_qp *r, uint32_t rkey)
{
	const struct rp_rendezvous m = {.type = RP_RENDEZVOUS_RELEASED,
					.rkey = rkey};
	void *p;

	/* Each descriptor is recalled once, so RECALLs come to an end. */
	if (!r->granted)
		return EBADMSG;
	p = rp_array_grow(r->recalled, r->nrecalled, &r->recalled_room,
			  sizeof(*r->recalled));
	if (!p)
		return ENOMEM;
	r->recalled = p;
	r->recalled[r->nrecalled++] = rkey;
	r->granted--;
	return rp_pre_send(r->fd, &m, 0);
}

void rp_pre_receive(struct rp_pre_qp *r)
{
	struct rp_rendezvous m;
	int ret;

	while (r->fd >= 0) {
		ret = receive_message(r, r->fd, &m, 0);
		if (ret == ETIMEDOUT)
			return;
		if (ret || m.type != RP_RENDEZVOUS_RECALL ||
		    release_region(r, m.rkey))
			drop_connection(r);
	}
}

struct rp_desc rp_pre_empty_desc(uint32_t rkey, uint32_t qp_num,
				 unsigned int qp)
{
	return (struct rp_desc){
		.addr = UINT64_MAX - 2,
		.length = 1,
		.rkey = rkey,
		.qp_num = qp_num,
		.qp = (uint16_t)qp,
	};
}

static int get_descriptor(struct rp_pre_qp *r, uint32_t rkey, struct rp_desc *d)
{
	const struct rp_rendezvous question = {.type = RP_RENDEZVOUS_QUERY,
					       .rkey = rkey};
	const uint64_t until = rp_pre_now() + rp_shim_timeout();
	struct rp_rendezvous m;
	int ret = r->fd < 0 ? ENOTCONN : rp_pre_send(r->fd, &question, until);

	while (!ret) {
		ret = receive_message(r, r->fd, &m, until);
		if (!ret && m.type == RP_RENDEZVOUS_RECALL) {
			ret = release_region(r, m.rkey);
			continue;
		}
		if (ret || m.type != RP_RENDEZVOUS_DESC || m.rkey != rkey ||
		    m.desc.qp_num != r->peer_num)
			break;
		r->granted++;
		*d = m.desc;
		return 0;
	}
	drop_connection(r);
	return ret ?: EBADMSG;
}

void rp_pre_region_get(struct rp_pre_qp *r, uint32_t rkey)
{
	struct rp_qp *q = rp_qp_of(r->shim);
	uint8_t buf[RP_DESC_LEN];
	bool found, lost;
	struct rp_desc d;

	pthread_mutex_lock(&r->client_lock);
	rp_pre_receive(r);
	for (size_t i = 0; i < r->nrecalled; i++)
		rpmem_forget_mr(r->shim, r->recalled[i]);
	r->nrecalled = 0;
	/* Without a connection no RECALL arrives: query each rkey again. */
	if (r->all_recalled)
		rpmem_forget_mr(r->shim, rkey);
	if (!rp_qp_has_region(q, rkey)) {
		found = atomic_load(&r->state) == RP_PRE_FOUND;
		if (!found || get_descriptor(r, rkey, &d)) {
			lost = found || atomic_load(&r->state) == RP_PRE_LOST;
			d = rp_pre_empty_desc(rkey, r->peer_num,
					      lost ? RP_DESC_ALL : 0);
		}
		r->cfg.agent = q->side;
		r->cfg.ring = q->side && q->side->ring_addr;
		if (!rp_desc_put(buf, &d))
			rp_qp_add_region(q, buf, &r->cfg);
	}
	pthread_mutex_unlock(&r->client_lock);
}

void rp_pre_disconnect(struct rp_pre_qp *r)
{
	const struct rp_rendezvous bye = {.type = RP_RENDEZVOUS_LEAVE};

	pthread_mutex_lock(&r->client_lock);
	if (r->fd >= 0) {
		rp_pre_send(r->fd, &bye, rp_pre_now() + rp_shim_timeout());
		close(r->fd);
		r->fd = -1;
	}
	atomic_store(&r->state, RP_PRE_NEW);
	r->all_recalled = false;
	r->nrecalled = r->granted = 0;
	pthread_mutex_unlock(&r->client_lock);
}
