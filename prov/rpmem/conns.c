// SPDX-License-Identifier: BSD-2-Clause
/* What all connections of our own of one domain share, and their events. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rpmem/conn.h"
#include "rpmem/host.h"

/*
 * To look costs a system call. Where nothing was posted lately and so often
 * nothing was there, it is done each so many times.
 */
#define EMPTY 256
#define EACH  8
/* And where something has just been it is worth more than one look. */
#define HOT   64
#define TRIES 4
/* Events are rare: looked for so often where nobody waits for one. */
#define LOOK_NS 1000000ull

bool rp_conns_wanted(const char *base)
{
	return rp_params.connect && base;
}

/* Where it is the same device, address and fabric as the datagrams'. */
static bool fits(const struct rp_dom *dom, const struct fi_info *i)
{
	const struct fi_info *b = dom->base_info;
	const uint64_t caps =
		FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	uint64_t order = i->tx_attr->msg_order;

	return i->ep_attr->type == FI_EP_MSG && !i->mode &&
	       (i->caps & FI_RMA) && !(~i->caps & FI_RMA & caps) &&
	       (order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW)) &&
	       i->ep_attr->max_order_raw_size >= sizeof(uint64_t) &&
	       i->addr_format == b->addr_format &&
	       (i->addr_format == FI_SOCKADDR_IN ||
		i->addr_format == FI_SOCKADDR_IN6) &&
	       !strcmp(i->domain_attr->name, b->domain_attr->name) &&
	       !strcmp(i->fabric_attr->name, b->fabric_attr->name);
}

static struct fi_info *find_info(const struct rp_dom *dom)
{
	const struct fi_info *b = dom->base_info;
	struct fi_info *hints = fi_allocinfo(), *list = NULL, *i, *found = NULL;

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = b->addr_format;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = b->domain_attr->threading;
	hints->tx_attr->msg_order = FI_ORDER_RAW;
	if (!rp_info_msg(dom->fabric->version, dom->fabric->base_name, hints,
			 &list))
		for (i = list; i && !found; i = i->next)
			if (fits(dom, i))
				found = fi_dupinfo(i);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	return found;
}

struct rp_conns *rp_conns_new(struct rp_dom *dom)
{
	struct rp_conns *set;

	if (!dom->marked || !rp_conns_wanted(dom->fabric->base_name))
		return NULL;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	set->dom = dom;
	LIST_INIT(&set->all);
	LIST_INIT(&set->dying);
	set->info = find_info(dom);
	/* Answers are injected; and a receive is there for each message. */
	set->asks = set->info &&
		    set->info->tx_attr->inject_size >= RP_WIRE_INJECT &&
		    set->info->rx_attr->size >= RP_CONN_RECVS;
	set->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!set->info || set->epfd < 0) {
		RP_INFO(DOMAIN,
			"%s has no connected endpoints that suit: commits are "
			"the agent's\n",
			dom->fabric->base_name);
		if (set->epfd >= 0)
			close(set->epfd);
		fi_freeinfo(set->info);
		free(set);
		return NULL;
	}
	return set;
}

static void close_fid(struct fid *fid)
{
	int ret = fi_close(fid);

	if (ret)
		RP_WARN(DOMAIN, "connections of our own: %s\n",
			fi_strerror(-ret));
}

/* In the order of what needs what. */
static void shut(struct rp_conns *set)
{
	if (set->pep)
		close_fid(&set->pep->fid);
	if (set->landing_mr)
		close_fid(&set->landing_mr->fid);
	if (set->bounce_mr)
		close_fid(&set->bounce_mr->fid);
	if (set->cq)
		close_fid(&set->cq->fid);
	if (set->domain)
		close_fid(&set->domain->fid);
	if (set->eq)
		close_fid(&set->eq->fid);
	if (set->fabric)
		close_fid(&set->fabric->fid);
	rp_conn_recvs_reap(set);
	free(set->bounce);
	set->pep = NULL;
	set->landing_mr = set->bounce_mr = NULL;
	set->cq = NULL;
	set->domain = NULL;
	set->eq = NULL;
	set->fabric = NULL;
	set->bounce = NULL;
}

void rp_conns_delete(struct rp_conns *set)
{
	if (!set)
		return;
	shut(set);
	close(set->epfd);
	fi_freeinfo(set->info);
	free(set);
}

int rp_conns_reg(struct rp_conns *set, void *buf, size_t len, uint64_t access,
		 struct fid_mr **mr)
{
	uint64_t key = 0;
	int ret = 0;

	*mr = NULL;
	if (!(set->info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		ret = rp_host_random(&key,
				     set->info->domain_attr->mr_key_size < 8
					     ? 4
					     : sizeof(key));
	return ret ? ret
		   : fi_mr_reg(set->domain, buf, len, access, 0, key, 0, mr,
			       NULL);
}

static int open_memory(struct rp_conns *set)
{
	size_t size = (size_t)RP_BOUNCE_SIZE * RP_BOUNCE_COUNT;
	int ret;

	set->bounce = malloc(size);
	set->bounce_free = UINT32_MAX;
	if (!set->bounce)
		return -FI_ENOMEM;
	if (!rp_conns_local(set))
		return 0;
	ret = rp_conns_reg(set, set->bounce, size, FI_WRITE | FI_SEND,
			   &set->bounce_mr);
	return ret ? ret
		   : rp_conns_reg(set, &set->landing, sizeof(set->landing),
				  FI_READ, &set->landing_mr);
}

static int watch(struct rp_conns *set, struct fid *fid)
{
	int fd, ret = fi_control(fid, FI_GETWAIT, &fd);

	return ret ? ret : rp_wait_watch(set->epfd, fd);
}

static int open_all(struct rp_conns *set, const struct rp_ep *ep)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq = {
		.size = RP_CONNS_POSTED,
		.format = FI_CQ_FORMAT_MSG,
	};
	struct sockaddr_in6 *at;
	int ret;

	/* The same interface, and whatever port there is. */
	free(set->info->src_addr);
	set->info->src_addrlen = ep->addr_len;
	set->info->src_addr = malloc(ep->addr_len);
	if (!set->info->src_addr)
		return -FI_ENOMEM;
	at = memcpy(set->info->src_addr, ep->addr, ep->addr_len);
	at->sin6_port = 0; /* in the same place for both families */
	/* Each entry of a queue that wakes somebody costs two system calls. */
	set->waits = set->dom->auto_progress || atomic_load(&set->dom->sleeps);
	cq.wait_obj = set->waits ? FI_WAIT_FD : FI_WAIT_NONE;
	ret = fi_fabric(set->info->fabric_attr, &set->fabric, NULL);
	if (!ret)
		ret = fi_domain(set->fabric, set->info, &set->domain, NULL);
	if (!ret)
		ret = fi_eq_open(set->fabric, &eq, &set->eq, NULL);
	if (!ret)
		ret = fi_cq_open(set->domain, &cq, &set->cq, NULL);
	if (!ret)
		ret = open_memory(set);
	if (!ret)
		ret = watch(set, &set->eq->fid);
	if (!ret && set->waits)
		ret = watch(set, &set->cq->fid);
	return ret;
}

static int listen_at(struct rp_conns *set)
{
	int ret = fi_passive_ep(set->fabric, set->info, &set->pep, NULL);

	set->to_len = sizeof(set->to);
	if (!ret)
		ret = fi_pep_bind(set->pep, &set->eq->fid, 0);
	if (!ret)
		ret = fi_listen(set->pep);
	if (!ret)
		ret = fi_getname(&set->pep->fid, set->to, &set->to_len);
	if (ret && set->pep) {
		close_fid(&set->pep->fid);
		set->pep = NULL;
	}
	return ret;
}

int rp_conns_open(struct rp_conns *set, const struct rp_ep *ep, bool listens)
{
	int ret = 0;

	if (!set->cq) {
		ret = open_all(set, ep);
		if (ret)
			shut(set);
	}
	if (!ret && listens && !set->pep)
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

/* One that has been closed since may still have something to say. */
static struct rp_conn *find(struct rp_conns *set, const struct fid *fid)
{
	struct rp_conn *c;

	LIST_FOREACH (c, &set->all, link)
		if (c->ep && &c->ep->fid == fid)
			return c;
	return NULL;
}

static bool read_event(struct rp_conns *set)
{
	union {
		struct fi_eq_cm_entry e;
		char room[sizeof(struct fi_eq_cm_entry) + 512];
	} buf;
	struct fi_eq_err_entry err = {0};
	struct rp_conn *c;
	uint32_t event;
	ssize_t n = fi_eq_read(set->eq, &event, &buf, sizeof(buf), 0);

	if (n == -FI_EAVAIL) {
		if (fi_eq_readerr(set->eq, &err, 0) < 0)
			return false;
		c = find(set, err.fid);
		if (c)
			rp_conn_broken(c);
		return true;
	}
	if (n < (ssize_t)sizeof(buf.e))
		return false;
	if (event == FI_CONNREQ) {
		rp_conn_requested(set, buf.e.info, buf.e.data,
				  (size_t)n - sizeof(buf.e));
		fi_freeinfo(buf.e.info);
		return true;
	}
	c = find(set, buf.e.fid);
	if (c && event == FI_CONNECTED)
		rp_conn_connected(c);
	else if (c && event == FI_SHUTDOWN)
		rp_conn_broken(c);
	return true;
}

static void read_events(struct rp_conns *set)
{
	const uint64_t t = rp_host_now();
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

static void came_back(struct rp_conns *set, void *context, uint64_t flags,
		      size_t len, int err)
{
	struct rp_conn_recv *r = rp_conn_recv_of(context);

	if (r)
		rp_conn_received(r, len, err);
	else if (context)
		rp_linked_completed(set, context, flags & FI_READ, err);
}

static void read_cq(struct rp_conns *set)
{
	struct fi_cq_msg_entry e[16];
	struct fi_cq_err_entry err;
	ssize_t n;

	for (int rounds = 0; rounds < 64; rounds++) {
		n = fi_cq_read(set->cq, e, 16);
		if (n == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			if (fi_cq_readerr(set->cq, &err, 0) != 1)
				return;
			came_back(set, err.op_context, err.flags, 0,
				  err.err ? err.err : FI_EIO);
			continue;
		}
		if (n == -FI_EAGAIN) {
			rp_conn_recvs_reap(set);
			rp_linked_reap(set);
			return;
		}
		set->empty = 0;
		for (ssize_t i = 0; i < n; i++)
			came_back(set, e[i].op_context, e[i].flags, e[i].len,
				  0);
		if (n < 16)
			return;
	}
}

void rp_conns_progress(struct rp_conns *set)
{
	int tries = set->empty < HOT ? TRIES : 1;

	if (!set->cq)
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
	struct fid *fids[2];

	if (!set || !set->cq)
		return 0;
	/* Not before it has been looked at. */
	if (set->empty > EMPTY) {
		set->empty = 0;
		return -FI_EAGAIN;
	}
	*soon |= !set->waits;
	fids[0] = &set->eq->fid;
	fids[1] = &set->cq->fid;
	return fi_trywait(set->fabric, fids, set->waits ? 2 : 1);
}
