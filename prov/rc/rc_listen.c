// SPDX-License-Identifier: BSD-2-Clause
/* Listen on a port in the range; keep requests until accept or reject. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rc/rc_priv.h"

size_t rp_rc_addr_len(const struct sockaddr *sa, size_t len)
{
	size_t need;

	if (len < sizeof(sa->sa_family))
		return 0;
	need = sa->sa_family == AF_INET	   ? sizeof(struct sockaddr_in)
	       : sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : SIZE_MAX;
	return need <= len ? need : 0;
}

/* Free the request, and return its handle to the caller. */
static void *request_take(struct rp_rc *rc, struct rp_rc_request *q)
{
	void *handle = q->handle;

	TAILQ_REMOVE(&rc->requests, q, link);
	rc->nrequests--;
	free(q);
	return handle;
}

static void request_reject(struct rp_rc *rc, struct rp_rc_request *q)
{
	rc->attr.gone(rc->attr.arg, q);
	rc->ops->reject(rc, request_take(rc, q), NULL, 0);
}

/* A number for an IPv4 address or an IPv6 /64 network; 0: other families. */
static uint64_t number_source(const struct sockaddr *peer)
{
	const union rp_rc_addr *a = (const union rp_rc_addr *)peer;
	uint64_t net;
	uint32_t v4;

	if (!peer)
		return 0;
	if (peer->sa_family == AF_INET)
		return 1ull << 32 | a->in.sin_addr.s_addr;
	if (peer->sa_family != AF_INET6)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr)) {
		memcpy(&v4, &a->in6.sin6_addr.s6_addr[12], sizeof(v4));
		return 1ull << 32 | v4;
	}
	memcpy(&net, &a->in6.sin6_addr, sizeof(net));
	return net ? net : 1;
}

uint64_t rp_rc_request_source(const void *request)
{
	return ((const struct rp_rc_request *)request)->source;
}

void rp_rc_add_request(struct rp_rc *rc, void *handle,
		       const struct sockaddr *peer, const void *data,
		       size_t len)
{
	struct rp_rc_request *q;

	if (rc->nrequests >= RP_RC_MAX_HALF_OPEN)
		request_reject(rc, TAILQ_FIRST(&rc->requests));
	q = malloc(sizeof(*q));
	if (!q || rc->nchannels >= RP_RC_MAX_CONNECTIONS) {
		free(q);
		rc->ops->reject(rc, handle, NULL, 0);
		return;
	}
	*q = (struct rp_rc_request){.handle = handle,
				    .born = rp_rc_now(rc),
				    .source = number_source(peer)};
	TAILQ_INSERT_TAIL(&rc->requests, q, link);
	rc->nrequests++;
	rc->attr.requested(rc->attr.arg, q, data, len);
}

void rp_rc_request_gone(struct rp_rc *rc, void *handle)
{
	struct rp_rc_request *q;

	TAILQ_FOREACH (q, &rc->requests, link)
		if (q->handle == handle) {
			rc->attr.gone(rc->attr.arg, q);
			request_take(rc, q);
			return;
		}
}

void rp_rc_requests_expire(struct rp_rc *rc, uint64_t now)
{
	struct rp_rc_request *q;

	while ((q = TAILQ_FIRST(&rc->requests)) &&
	       now - q->born >= RP_RC_HALF_OPEN_NS)
		request_reject(rc, q);
}

int rp_rc_accept(struct rp_rc *rc, void *request, const void *data, size_t len,
		 const struct rp_channel_events *events, void *owner,
		 struct rp_channel **out)
{
	void *handle = request_take(rc, request);
	struct rp_rc_channel *c = NULL;

	if (len <= RP_RC_CM_DATA)
		c = rp_rc_channel_new(rc, events, owner);
	if (!c) {
		rc->ops->reject(rc, handle, NULL, 0);
		return len <= RP_RC_CM_DATA ? -ENOMEM : -EINVAL;
	}
	return rp_rc_channel_start(c, RP_RC_UP,
				   rc->ops->accept(c, handle, data, len), out);
}

void rp_rc_reject(struct rp_rc *rc, void *request, const void *data, size_t len)
{
	rc->ops->reject(rc, request_take(rc, request), data,
			len <= RP_RC_CM_DATA ? len : 0);
}

int rp_rc_listen(struct rp_rc *rc, const struct sockaddr *at, size_t len,
		 uint16_t *port)
{
	const uint16_t first = rc->attr.port_first;
	const uint16_t last = rc->attr.port_last;
	unsigned int n = first && last > first ? last - first + 1u : 1;
	unsigned int start;
	union rp_rc_addr addr;
	int ret;

	len = rp_rc_addr_len(at, len);
	if (!len || rc->listening)
		return -EINVAL;
	ret = rc->attr.random(rc->attr.arg, &start, sizeof(start));
	if (ret)
		return ret;
	memcpy(&addr, at, len);
	ret = -EADDRINUSE;
	for (unsigned int i = 0; i < n && ret == -EADDRINUSE; i++) {
		/* sin_port and sin6_port have the same offset. */
		addr.in.sin_port = htons(
			first ? (uint16_t)(first + (start % n + i) % n) : 0);
		ret = rc->ops->listen(rc, &addr, len, port);
	}
	rc->listening = !ret;
	return ret;
}
