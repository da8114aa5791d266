// SPDX-License-Identifier: BSD-2-Clause
/* What all connections of our own of one domain share, and their events. */
#include "config.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rpmem/conn.h"

/*
 * To look costs a system call. Where nothing was posted lately and so often
 * nothing was there, it is done each so many times.
 */
#define EMPTY 256
#define EACH  8
/* And where something has just been it is worth more than one look. */
#define HOT   64
#define TRIES 4
/* So many are read at once. */
#define BATCH 16
/* Events are rare: looked for so often where nobody waits for one. */
#define LOOK_NS 1000000ull

bool rp_conns_wanted(const char *base)
{
	return rp_params.connect && base;
}

/* Queue pairs of our own where there are any; else the base's endpoints. */
static const struct rp_cep_ops *maker(const char *base)
{
#ifdef HAVE_RDMACM
	if (!strcasecmp(base, "verbs"))
		return &rp_cep_verbs;
#endif
	return &rp_cep_fi;
}

struct rp_conns *rp_conns_new(struct rp_dom *dom)
{
	const char *base = dom->fabric->base_name;
	struct rp_conns *set;

	if (!dom->marked || !rp_conns_wanted(base))
		return NULL;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	set->dom = dom;
	LIST_INIT(&set->all);
	LIST_INIT(&set->dying);
	LIST_INIT(&set->pool);
	set->ops = maker(base);
	set->ceps = set->ops->make(dom, &set->attr);
	set->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!set->ceps || set->epfd < 0) {
		RP_INFO(DOMAIN,
			"%s has no connected endpoints that suit: commits are "
			"the agent's\n",
			base);
		if (set->epfd >= 0)
			close(set->epfd);
		if (set->ceps)
			set->ops->destroy(set->ceps);
		free(set);
		return NULL;
	}
	return set;
}

/* In the order of what needs what. */
static void shut(struct rp_conns *set)
{
	rp_conn_recvs_end(set);
	rp_conns_dereg(set, &set->landing_mr);
	rp_conns_dereg(set, &set->bounce_mr);
	set->ops->shut(set->ceps);
	rp_conn_recvs_reap(set);
	free(set->bounce);
	set->bounce = NULL;
	set->opened = set->listens = false;
}

void rp_conns_delete(struct rp_conns *set)
{
	if (!set)
		return;
	shut(set);
	close(set->epfd);
	set->ops->destroy(set->ceps);
	free(set);
}

int rp_conns_reg(struct rp_conns *set, void *buf, size_t len, uint64_t access,
		 struct rp_cep_mr *mr)
{
	int ret = set->ops->reg(set->ceps, buf, len, access, mr);

	if (ret)
		*mr = (struct rp_cep_mr){0};
	return ret;
}

void rp_conns_dereg(struct rp_conns *set, struct rp_cep_mr *mr)
{
	int ret = mr->handle ? set->ops->dereg(mr) : 0;

	if (ret)
		RP_WARN(DOMAIN, "connections of our own: %s\n",
			fi_strerror(-ret));
	*mr = (struct rp_cep_mr){0};
}

static int open_memory(struct rp_conns *set)
{
	size_t size = (size_t)RP_BOUNCE_SIZE * RP_BOUNCE_COUNT;
	int ret;

	set->bounce = malloc(size);
	set->bounce_free = UINT32_MAX;
	if (!set->bounce)
		return -FI_ENOMEM;
	if (!set->attr.local)
		return 0;
	ret = rp_conns_reg(set, set->bounce, size, FI_WRITE | FI_SEND,
			   &set->bounce_mr);
	return ret ? ret
		   : rp_conns_reg(set, &set->landing, sizeof(set->landing),
				  FI_READ, &set->landing_mr);
}

/* The same interface, and whatever port there is. */
static int open_all(struct rp_conns *set, const struct rp_ep *ep)
{
	struct sockaddr_storage at;
	int ret;

	if (ep->addr_len > sizeof(at))
		return -FI_EINVAL;
	memcpy(&at, ep->addr, ep->addr_len);
	/* In the same place for both families. */
	((struct sockaddr_in6 *)&at)->sin6_port = 0;
	/* Each entry of a queue that wakes somebody costs two system calls. */
	set->waits = set->dom->auto_progress || atomic_load(&set->dom->sleeps);
	ret = set->ops->open(set->ceps, (struct sockaddr *)&at, ep->addr_len,
			     set->waits, set->epfd);
	return ret ? ret : open_memory(set);
}

static int listen_at(struct rp_conns *set)
{
	int ret;

	set->to_len = sizeof(set->to);
	ret = set->ops->listen(set->ceps, set->to, &set->to_len);
	set->listens = !ret;
	return ret;
}

int rp_conns_open(struct rp_conns *set, const struct rp_ep *ep, bool listens)
{
	int ret = 0;

	if (!set->opened) {
		ret = open_all(set, ep);
		set->opened = !ret;
		if (ret)
			shut(set);
	}
	if (!ret && listens && !set->listens)
		ret = listen_at(set);
	if (ret)
		RP_WARN(DOMAIN, "connections of our own: %s\n",
			fi_strerror(-ret));
	return ret;
}

void rp_conns_revoke(struct rp_conns *set, const struct rp_mr *mr)
{
	struct rp_conn *c;

	LIST_FOREACH (c, &set->all, link)
		for (unsigned int i = 0; i < c->ngranted; i++)
			if (c->granted[i] == mr)
				rp_conn_broken(c);
}

static bool read_event(struct rp_conns *set)
{
	struct rp_cep_event e;

	if (!set->ops->event(set->ceps, &e))
		return false;
	if (e.what == RP_CEP_REQUESTED)
		rp_conn_requested(set, e.request, e.shown, e.shown_len);
	else if (e.cep && e.what == RP_CEP_CONNECTED)
		rp_conn_connected(e.owner);
	else if (e.cep)
		rp_conn_broken(e.owner);
	return true;
}

static void read_events(struct rp_conns *set)
{
	const uint64_t t = rp_domain_now(set->dom);
	struct rp_conn *c, *next;

	if (!set->half && t < set->looked + LOOK_NS)
		return;
	set->looked = t;
	for (int i = 0; i < 64 && read_event(set); i++)
		;
	/* Those who were let in, and did not come. */
	for (c = set->half ? LIST_FIRST(&set->all) : NULL; c; c = next) {
		next = LIST_NEXT(c, link);
		if (!c->peer && !c->up && !c->over &&
		    t - c->born > RP_CONNS_HALF_NS)
			rp_conn_broken(c);
	}
}

static void came_back(struct rp_conns *set, const struct rp_cep_done *d)
{
	struct rp_conn_recv *r = rp_conn_recv_of(d->context);

	if (r)
		rp_conn_received(set, r, d->owner, d->len, d->err);
	else if (d->context)
		rp_linked_completed(set, d->context, d->read, d->err);
	else if (d->err && d->owner)
		rp_conn_broken(d->owner);
}

static void read_cq(struct rp_conns *set)
{
	struct rp_cep_done done[BATCH];
	int n;

	for (int rounds = 0; rounds < 64; rounds++) {
		n = set->ops->poll(set->ceps, done, BATCH);
		if (!n) {
			rp_conn_recvs_reap(set);
			rp_linked_reap(set);
		}
		if (n <= 0)
			return;
		set->empty = 0;
		set->dom->came++;
		for (int i = 0; i < n; i++)
			came_back(set, &done[i]);
		if (n < BATCH && !done[n - 1].err)
			return;
	}
}

void rp_conns_progress(struct rp_conns *set)
{
	int tries = set->empty < HOT ? TRIES : 1;

	if (!set->opened)
		return;
	if (set->empty > EMPTY && ++set->empty % EACH)
		return;
	do {
		set->empty++;
		read_cq(set);
	} while (set->empty && --tries);
	read_events(set);
}

int rp_conns_trywait(struct rp_conns *set, bool *soon)
{
	if (!set || !set->opened)
		return 0;
	/* Not before it has been looked at. */
	if (set->empty > EMPTY) {
		set->empty = 0;
		return -FI_EAGAIN;
	}
	*soon |= !set->waits;
	return set->ops->trywait(set->ceps);
}
