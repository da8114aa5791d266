// SPDX-License-Identifier: BSD-2-Clause
/* Private connections of a domain: find sessions by address, progress them. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "core/hash.h"
#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

/* Most open private connections of a domain. */
#define MAX_OPEN 1024
/* A private connection without operations is closed after this time. */
#define IDLE_NS 60000000000ull
/* Most completions and events handled in one progress call. */
#define POLL_MAX 64
/* Progress calls without work before a session moves to the idle list. */
#define IDLE_CALLS 64
/*
 * After this time without operations poll the channel before the next post. A
 * connection that was lost meanwhile is then replaced first, and the operation
 * does not fail with it.
 */
#define POLL_BEFORE_POST_NS 5000000ull
/* Most sessions of closed endpoints that are kept for reuse. */
#define MAX_RETIRED 256

/* A peer's list decides when rp_private_progress() serves its session. */
enum rp_peer_list {
	RP_PEER_OFF,  /* no list, no connection: never */
	RP_PEER_BUSY, /* in each call */
	RP_PEER_IDLE, /* when its deadline is due */
};

/* A target domain that one endpoint uses, with its session. */
struct rp_peer {
	struct rp_session *session;
	unsigned int ndests;	 /* rp_dests that name it */
	unsigned int idle_calls; /* consecutive, without work */
	enum rp_peer_list list;
	uint64_t due;	    /* deadline on the idle list */
	uint64_t last_post; /* time of the last operation */
	TAILQ_ENTRY(rp_peer) link;
	UT_hash_handle hh; /* ep->peers, by addr */
	size_t len;
	union rp_rc_addr addr; /* port: the one in the key */
};

struct rp_dest {
	fi_addr_t dest;
	uint16_t port;		/* port in the key */
	uint16_t endpoint_port; /* port of the endpoint dest */
	struct rp_peer *peer;
	struct rp_dest *next; /* same dest, other ports */
	UT_hash_handle hh;    /* ep->dests: first entry */
};

TAILQ_HEAD(rp_peers, rp_peer);

struct rp_private {
	struct rp_dom *dom;
	struct rp_session_attr attr;
	uint16_t port;	    /* listener's port; 0: none */
	atomic_bool kicked; /* an idle session needs progress */
	unsigned int nopen; /* peers on the busy and idle lists */
	struct rp_peers busy;
	struct rp_peers idle; /* sorted by due */
	struct rp_peers retired;
	unsigned int nretired;
	uint64_t progress_at; /* time of the last progress call */
};

/* --- opening --- */

static bool is_verbs(const struct rp_dom *dom)
{
	return !strcasecmp(dom->fabric->base_name, "verbs");
}

const char *rp_private_transport(const struct rp_dom *dom)
{
	return is_verbs(dom) ? "verbs" : "tcp";
}

static uint64_t read_tick(void *arg)
{
	return rp_domain_now(arg);
}

static uint64_t read_clock(void *arg)
{
	return rp_host_now();
}

static int fill_random(void *arg, void *buf, size_t len)
{
	return rp_host_random(buf, len);
}

static void kick_domain(void *arg)
{
	struct rp_dom *dom = arg;

	struct rp_private *p = dom->private;

	/* A posting session is on the busy list: do not scan idle ones. */
	if (p && !dom->posting)
		atomic_store(&p->kicked, true);
	rp_domain_kick(dom);
}

static void request_received(void *arg, void *request, const void *data,
			     size_t len)
{
	struct rp_dom *dom = arg;

	rp_agent_conn_request(dom->agent, request, data, len);
}

static void request_gone(void *arg, void *request)
{
	struct rp_dom *dom = arg;

	rp_agent_conn_request_gone(dom->agent, request);
}

bool rp_private_is_possible(const struct fi_info *base, char *why)
{
	const char *name = base->fabric_attr->prov_name;

	/* ofi_rxd 1.17: fi_av_lookup() returns -FI_ENODATA. */
	if (strstr(name, "ofi_rxd")) {
		snprintf(why, RP_WHY_LEN,
			 "%s does not tell the addresses of peers, which "
			 "private connections need; use tcp or verbs",
			 name);
		return false;
	}
	switch (base->addr_format) {
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
		return true;
	default:
		snprintf(why, RP_WHY_LEN,
			 "%s has no IP addresses, which private connections "
			 "need; use tcp or verbs",
			 name);
		return false;
	}
}

static void set_attr(struct rp_private *p)
{
	const char *forced = rp_params.method;

	p->attr = (struct rp_session_attr){
		.timeout_ns = rp_params.timeout_ns,
		.slow_rate = rp_params.slow_rate,
		.max_commits = (unsigned int)rp_params.max_commits,
		.inline_max = rp_params.inline_max,
		.idle_ns = IDLE_NS,
		.native = rp_params.native,
		.forced = forced ? rp_method_parse(forced) : RP_METHOD_REFUSED,
	};
}

static int open_rc(struct rp_private *p, char *why)
{
	struct rp_dom *dom = p->dom;
	struct rp_rc_attr attr = {
		.backend = is_verbs(dom) ? RP_RC_VERBS : RP_RC_TCP,
		.device = is_verbs(dom) ? dom->base_info->domain_attr->name
					: NULL,
		.port_first = rp_params.port_first,
		.port_last = rp_params.port_last,
		.waits = true,
		.now = read_tick,
		.now_exact = read_clock,
		.random = fill_random,
		.kick = kick_domain,
		.requested = request_received,
		.gone = request_gone,
		.arg = dom,
	};
	int ret;

	rp_host_replace_rc(&attr);
	ret = rp_rc_open(&attr, &dom->rc, why, RP_WHY_LEN);
	if (ret)
		return ret;
	dom->tasks.need_mr = rp_rc_flags(dom->rc) & RP_CHANNEL_LOCAL_MR;
	ret = rp_wait_watch(dom->wake_fd, rp_rc_fd(dom->rc));
	if (!ret)
		ret = rp_domain_go_live(dom);
	if (ret) {
		snprintf(why, RP_WHY_LEN, "%s", fi_strerror(-ret));
		rp_rc_close(dom->rc);
		dom->rc = NULL;
	}
	return ret;
}

struct rp_private *rp_private_get(struct rp_dom *dom, char *why)
{
	struct rp_private *p = dom->private;
	int ret;

	if (p)
		return p;
	errno = EOPNOTSUPP;
	if (!rp_private_is_possible(dom->base_info, why))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p) {
		snprintf(why, RP_WHY_LEN, "no memory");
		errno = ENOMEM;
		return NULL;
	}
	p->dom = dom;
	TAILQ_INIT(&p->busy);
	TAILQ_INIT(&p->idle);
	TAILQ_INIT(&p->retired);
	set_attr(p);
	dom->private = p;
	ret = open_rc(p, why);
	if (ret) {
		dom->private = NULL;
		free(p);
		errno = -ret;
		return NULL;
	}
	return p;
}

/* --- listening --- */

/* Address to listen on: the domain's, else an endpoint's, else a wildcard. */
static size_t local_addr(const struct rp_dom *dom, union rp_rc_addr *at)
{
	const struct fi_info *b = dom->base_info;
	struct rp_ep *ep;
	size_t len = rp_rc_addr_len(b->src_addr, b->src_addrlen);

	if (len) {
		memcpy(at, b->src_addr, len);
		return len;
	}
	LIST_FOREACH (ep, &dom->eps, link) {
		len = sizeof(*at);
		if (ep->enabled && !fi_getname(&ep->base->fid, at, &len) &&
		    rp_rc_addr_len(&at->sa, len))
			return len;
	}
	memset(at, 0, sizeof(*at));
	at->sa.sa_family =
		b->addr_format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
	return rp_rc_addr_len(&at->sa, sizeof(*at));
}

int rp_private_listen(struct rp_dom *dom, uint16_t *port, char *why)
{
	struct rp_private *p = rp_private_get(dom, why);
	union rp_rc_addr at;
	size_t len;
	int ret;

	if (!p)
		return -errno;
	if (!p->port) {
		len = local_addr(dom, &at);
		ret = rp_rc_listen(dom->rc, &at.sa, len, &p->port);
		if (ret) {
			snprintf(why, RP_WHY_LEN,
				 "cannot listen for private connections: %s%s",
				 fi_strerror(-ret),
				 rp_params.port_first
					 ? " (see FI_OFI_RPMEM_PORTS)"
					 : "");
			p->port = 0;
			return ret;
		}
	}
	*port = p->port;
	return 0;
}

/* --- lists --- */

static void unlist_peer(struct rp_private *p, struct rp_peer *q)
{
	if (q->list == RP_PEER_OFF)
		return;
	TAILQ_REMOVE(q->list == RP_PEER_BUSY ? &p->busy : &p->idle, q, link);
	q->list = RP_PEER_OFF;
	p->nopen--;
}

static void make_peer_busy(struct rp_private *p, struct rp_peer *q)
{
	unlist_peer(p, q);
	q->list = RP_PEER_BUSY;
	q->idle_calls = 0;
	TAILQ_INSERT_TAIL(&p->busy, q, link);
	p->nopen++;
}

/* Insert by deadline, searching from the end: mostly q has the last one. */
static void make_peer_idle(struct rp_private *p, struct rp_peer *q,
			   uint64_t due)
{
	struct rp_peer *before;

	unlist_peer(p, q);
	if (due == UINT64_MAX &&
	    rp_session_state(q->session) == RP_SESSION_IDLE)
		return;
	q->due = due;
	q->list = RP_PEER_IDLE;
	p->nopen++;
	TAILQ_FOREACH_REVERSE(before, &p->idle, rp_peers, link)
	if (before->due <= due)
		break;
	if (before)
		TAILQ_INSERT_AFTER(&p->idle, before, q, link);
	else
		TAILQ_INSERT_HEAD(&p->idle, q, link);
}

/* Close an idle connection, by earliest deadline. False: all are in use. */
static bool evict_idle_peer(struct rp_private *p)
{
	struct rp_peer *q, *next;

	TAILQ_FOREACH_SAFE(q, &p->idle, link, next)
	{
		if (rp_session_outstanding(q->session))
			continue;
		/* Post a read fence first: closing poisons unplaced bytes. */
		if (rp_session_has_unplaced(q->session)) {
			make_peer_busy(p, q);
			continue;
		}
		rp_session_disconnect(q->session, RP_ST_CANCELED, 0);
		unlist_peer(p, q);
		return true;
	}
	return false;
}

/*
 * Before each post to the session of q: move q to the busy list, which every
 * progress call serves. -FI_EAGAIN: MAX_OPEN are in use.
 */
static int prepare_post(struct rp_private *p, struct rp_peer *q)
{
	const uint64_t now = rp_host_tick();

	if (now - q->last_post > POLL_BEFORE_POST_NS &&
	    !rp_session_outstanding(q->session) && rp_rc_busy(p->dom->rc) &&
	    rp_rc_poll(p->dom->rc, POLL_MAX))
		rp_domain_kick(p->dom);
	q->last_post = now;
	if (q->list == RP_PEER_BUSY)
		return 0;
	if (q->list == RP_PEER_OFF && p->nopen >= MAX_OPEN &&
	    !evict_idle_peer(p))
		return -FI_EAGAIN;
	make_peer_busy(p, q);
	return 0;
}

/* --- sessions by address --- */

static int new_session(struct rp_private *p, struct rp_peer *q)
{
	struct rp_peer *old;

	/* Reuse a retired session: the target then ends its old connection. */
	TAILQ_FOREACH (old, &p->retired, link)
		if (old->len == q->len && !memcmp(&old->addr, &q->addr, q->len))
			break;
	if (!old)
		return rp_session_new(rp_rc_connector(p->dom->rc), &p->attr,
				      &q->addr, q->len, &q->session);
	TAILQ_REMOVE(&p->retired, old, link);
	p->nretired--;
	q->session = old->session;
	free(old);
	return 0;
}

static void retire_peer(struct rp_private *p, struct rp_peer *q)
{
	struct rp_peer *old;

	TAILQ_INSERT_TAIL(&p->retired, q, link);
	if (++p->nretired <= MAX_RETIRED)
		return;
	old = TAILQ_FIRST(&p->retired);
	TAILQ_REMOVE(&p->retired, old, link);
	p->nretired--;
	rp_session_delete(old->session);
	free(old);
}

uint16_t rp_private_local_port(const struct rp_ep *ep)
{
	union rp_rc_addr sa;
	size_t len = sizeof(sa);

	return !fi_getname(&ep->base->fid, &sa, &len) &&
			       rp_rc_addr_len(&sa.sa, len)
		       ? ntohs(sa.in.sin_port)
		       : 0;
}

/* Set q->addr, which is hashed as a whole: dest's IP address and this port. */
static int set_peer_addr(struct rp_ep *ep, fi_addr_t dest, uint16_t port,
			 struct rp_peer *q, uint16_t *endpoint)
{
	union rp_rc_addr sa;
	size_t len = sizeof(sa);
	int ret = ep->dom->is_msg ? fi_getpeer(ep->base, &sa, &len)
				  : rp_av_sockaddr(ep->av, dest, &sa, &len);

	if (ret)
		return ret;
	q->len = rp_rc_addr_len(&sa.sa, len);
	if (!q->len)
		return -FI_EINVAL;
	*endpoint = ntohs(sa.in.sin_port);
	q->addr.sa.sa_family = sa.sa.sa_family;
	q->addr.in.sin_port = htons(port);
	if (sa.sa.sa_family == AF_INET) {
		q->addr.in.sin_addr = sa.in.sin_addr;
	} else {
		q->addr.in6.sin6_addr = sa.in6.sin6_addr;
		q->addr.in6.sin6_scope_id = sa.in6.sin6_scope_id;
	}
	return 0;
}

/* Find or make the peer with the address of l. */
static int peer_get(struct rp_private *p, struct rp_ep *ep, struct rp_dest *l)
{
	struct rp_peer *q = calloc(1, sizeof(*q)), *old = NULL;
	bool oom = false;
	int ret = q ? set_peer_addr(ep, l->dest, l->port, q, &l->endpoint_port)
		    : -FI_ENOMEM;

	if (ret)
		goto free;
	HASH_FIND(hh, ep->peers, &q->addr, q->len, old);
	if (old) {
		free(q);
		l->peer = old;
		return 0;
	}
	ret = new_session(p, q);
	if (ret)
		goto free;
	rp_session_set_endpoint(q->session, rp_private_local_port(ep),
				ep->msg_order &
					(FI_ORDER_WAW | FI_ORDER_RMA_WAW));
	HASH_ADD(hh, ep->peers, addr, q->len, q);
	if (oom) {
		rp_session_delete(q->session);
		ret = -FI_ENOMEM;
		goto free;
	}
	l->peer = q;
	return 0;
free:
	free(q);
	return ret;
}

static struct rp_dest *find_dests(struct rp_ep *ep, fi_addr_t dest)
{
	struct rp_dest *l;

	HASH_FIND(hh, ep->dests, &dest, sizeof(dest), l);
	return l;
}

static int dest_get(struct rp_private *p, struct rp_ep *ep, fi_addr_t dest,
		    uint16_t port, struct rp_dest **out)
{
	struct rp_dest *first = find_dests(ep, dest), *l;
	bool oom = false;
	int ret;

	for (l = first; l; l = l->next)
		if (l->port == port)
			goto found;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -FI_ENOMEM;
	l->dest = dest;
	l->port = port;
	ret = peer_get(p, ep, l);
	if (ret) {
		free(l);
		return ret;
	}
	if (first) {
		l->next = first->next;
		first->next = l;
	} else {
		HASH_ADD(hh, ep->dests, dest, sizeof(dest), l);
	}
	if (oom) {
		free(l);
		return -FI_ENOMEM;
	}
	l->peer->ndests++;
found:
	*out = l;
	return 0;
}

int rp_private_get_session(struct rp_ep *ep, fi_addr_t dest, uint64_t key,
			   struct rp_session **out)
{
	const uint16_t port = rp_key_port(key);
	struct rp_dest *l = ep->last_dest;
	char why[RP_WHY_LEN];
	struct rp_private *p;
	int ret;

	if (ep->dom->is_msg)
		dest = 0; /* a connected endpoint has no address vector */
	p = rp_private_get(ep->dom, why);
	if (!p) {
		ret = -errno;
		RP_WARN(EP_DATA, "%s\n", why);
		return ret;
	}
	if (!l || l->dest != dest || l->port != port) {
		ret = dest_get(p, ep, dest, port, &l);
		if (ret)
			return ret;
		ep->last_dest = l;
	}
	*out = l->peer->session;
	return prepare_post(p, l->peer);
}

uint16_t rp_private_peer_port(const struct rp_ep *ep)
{
	return ep->last_dest->endpoint_port;
}

static void free_dests(struct rp_ep *ep, struct rp_dest *l)
{
	struct rp_dest *next;

	HASH_DEL(ep->dests, l);
	for (; l; l = next) {
		next = l->next;
		l->peer->ndests--;
		free(l);
	}
	ep->last_dest = NULL;
}

void rp_private_remove_dest(struct rp_ep *ep, fi_addr_t dest, uint32_t error)
{
	struct rp_private *p = ep->dom->private;
	struct rp_dest *first, *l;

	if (!p)
		return;
	first = find_dests(ep, ep->dom->is_msg ? 0 : dest);
	if (!first)
		return;
	for (l = first; l; l = l->next) {
		/* Another fi_addr_t still names this peer. */
		if (l->peer->ndests > 1)
			continue;
		rp_session_disconnect(l->peer->session, RP_ST_CANCELED, error);
		(void)rp_session_lost_writes(l->peer->session);
		unlist_peer(p, l->peer);
	}
	free_dests(ep, first);
}

void rp_private_close_ep(struct rp_ep *ep)
{
	struct rp_private *p = ep->dom->private;
	struct rp_dest *l, *lnext;
	struct rp_peer *q, *qnext;

	if (!p)
		return;
	HASH_ITER(hh, ep->dests, l, lnext)
	free_dests(ep, l);
	HASH_ITER(hh, ep->peers, q, qnext)
	{
		bool dirty = rp_session_outstanding(q->session) ||
			     rp_session_has_unplaced(q->session) ||
			     rp_session_may_arrive(q->session);

		HASH_DEL(ep->peers, q);
		rp_session_disconnect(q->session, RP_ST_CANCELED, 0);
		unlist_peer(p, q);
		if (dirty) {
			retire_peer(p, q);
			continue;
		}
		rp_session_delete(q->session);
		free(q);
	}
}

int rp_private_check_order(struct rp_ep *ep, fi_addr_t dest)
{
	struct rp_private *p = ep->dom->private;
	struct rp_dest *l;
	int ret = 0;

	if (!p || !ep->dests)
		return 0;
	for (l = find_dests(ep, ep->dom->is_msg ? 0 : dest); l; l = l->next) {
		if (rp_session_lost_writes(l->peer->session))
			return -FI_ENOTCONN;
		if (l->peer->list == RP_PEER_OFF ||
		    !rp_session_has_unplaced(l->peer->session))
			continue;
		make_peer_busy(p, l->peer);
		ret = -FI_EAGAIN;
	}
	return ret;
}

/* --- progress --- */

/*
 * After IDLE_CALLS progress calls without work: move the peer to the idle list,
 * unless its session is connecting or has outstanding operations.
 */
static void peer_go_idle(struct rp_private *p, struct rp_peer *q)
{
	uint64_t due;

	q->idle_calls = 0;
	if (rp_session_outstanding(q->session) ||
	    rp_session_state(q->session) == RP_SESSION_CONNECTING)
		return;
	due = rp_session_deadline(q->session);
	if (due > rp_domain_now(p->dom))
		make_peer_idle(p, q, due);
}

static bool progress_idle(struct rp_private *p)
{
	struct rp_peer *q;
	bool came = false;

	if (atomic_load_explicit(&p->kicked, memory_order_relaxed)) {
		atomic_store(&p->kicked, false);
		TAILQ_FOREACH (q, &p->idle, link)
			q->due = 0;
	}
	while ((q = TAILQ_FIRST(&p->idle)) &&
	       (!q->due || q->due <= rp_domain_now(p->dom))) {
		make_peer_busy(p, q);
		came |= rp_session_progress(q->session);
		q->idle_calls = IDLE_CALLS;
	}
	return came;
}

bool rp_private_progress(struct rp_dom *dom)
{
	struct rp_private *p = dom->private;
	struct rp_peer *q, *next;
	bool came = false;
	uint64_t end;

	if (!p)
		return false;
	if (rp_rc_busy(dom->rc))
		came = rp_rc_poll(dom->rc, POLL_MAX);
	/* After a pause, read all that has come: no peer of it is silent. */
	if (rp_domain_now(dom) - p->progress_at > p->attr.timeout_ns / 4)
		for (end = rp_host_now() + p->attr.timeout_ns / 4;
		     came && !TAILQ_EMPTY(&p->busy) && rp_host_now() < end;)
			if (!rp_rc_poll(dom->rc, POLL_MAX))
				break;
	p->progress_at = rp_domain_now(dom);
	if (!TAILQ_EMPTY(&p->idle))
		came |= progress_idle(p);
	TAILQ_FOREACH_SAFE(q, &p->busy, link, next)
	{
		if (rp_session_progress(q->session)) {
			q->idle_calls = 0;
			came = true;
		} else if (++q->idle_calls > IDLE_CALLS) {
			peer_go_idle(p, q);
		}
	}
	return came;
}

uint64_t rp_private_deadline(const struct rp_dom *dom)
{
	const struct rp_private *p = dom->private;
	const struct rp_peer *q;
	uint64_t due, d;

	if (!p)
		return UINT64_MAX;
	due = rp_rc_deadline(dom->rc);
	TAILQ_FOREACH (q, &p->busy, link) {
		d = rp_session_deadline(q->session);
		due = d < due ? d : due;
	}
	q = TAILQ_FIRST(&p->idle);
	return q && q->due < due ? q->due : due;
}

void rp_private_delete_retired(struct rp_dom *dom)
{
	struct rp_private *p = dom->private;
	struct rp_peer *q;

	while (p && (q = TAILQ_FIRST(&p->retired))) {
		TAILQ_REMOVE(&p->retired, q, link);
		rp_session_delete(q->session);
		free(q);
	}
}

void rp_private_close(struct rp_dom *dom)
{
	struct rp_private *p = dom->private;

	if (!p)
		return;
	rp_rc_close(dom->rc);
	dom->rc = NULL;
	dom->private = NULL;
	free(p);
}
