// SPDX-License-Identifier: BSD-2-Clause
/* Address vectors: the user's numbering kept while agents add entries of
 * theirs. */
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "rpmem/rpmem.h"

/* More peers than any base numbers. */
#define RP_AV_MAX (1ull << 32)

/* An entry that an agent needed to answer somebody. */
struct rp_av_hidden {
	fi_addr_t base;
	unsigned int refs;
	bool user; /* the user has inserted the same address */
	size_t len;
	UT_hash_handle hh, hh_base; /* by address, by what the base calls it */
	uint8_t addr[RP_WIRE_MAX_ADDR];
};

static struct rp_av_hidden *hidden_find(const struct rp_av *av, fi_addr_t base)
{
	struct rp_av_hidden *h;

	HASH_FIND(hh_base, av->hidden_by_base, &base, sizeof(base), h);
	return h;
}

static void hidden_delete(struct rp_av *av, struct rp_av_hidden *h)
{
	HASH_DELETE(hh, av->hidden, h);
	HASH_DELETE(hh_base, av->hidden_by_base, h);
	free(h);
}

static int av_close(struct fid *fid)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid.fid);
	struct rp_av_hidden *h, *tmp;
	int ret;

	if (atomic_load(&av->refs))
		return -FI_EBUSY;
	ret = fi_close(&av->base->fid);
	if (ret)
		return ret;
	HASH_ITER(hh, av->hidden, h, tmp)
	hidden_delete(av, h);
	atomic_fetch_sub(&av->dom->refs, 1);
	free(av->to_base);
	free(av->to_user);
	free(av);
	return 0;
}

static int av_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	/* Only asynchronous insertion needs it, which is not offered. */
	return -FI_ENOSYS;
}

static int av_control(struct fid *fid, int command, void *arg)
{
	return -FI_ENOSYS;
}

static int av_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	return -FI_ENOSYS;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = av_bind,
	.control = av_control,
	.ops_open = av_ops_open,
};

/* Room for n entries of the user's in the translation. */
static int reserve(struct rp_av *av, size_t n)
{
	size_t cap = av->cap ? av->cap : 64;
	fi_addr_t *t;

	if (n <= av->cap)
		return 0;
	while (cap < n)
		cap *= 2;
	t = realloc(av->to_base, cap * sizeof(*t));
	if (!t)
		return -FI_ENOMEM;
	av->to_base = t;
	av->cap = cap;
	return 0;
}

/* Room for the base's number in the way back; its numbers are dense. */
static int reserve_base(struct rp_av *av, fi_addr_t base)
{
	size_t cap = av->nbase ? av->nbase : 64;
	fi_addr_t *t;

	if (base < av->nbase)
		return 0;
	if (base >= RP_AV_MAX)
		return -FI_ENOMEM;
	while (cap <= base)
		cap *= 2;
	t = realloc(av->to_user, cap * sizeof(*t));
	if (!t)
		return -FI_ENOMEM;
	for (size_t i = av->nbase; i < cap; i++)
		t[i] = FI_ADDR_NOTAVAIL;
	av->to_user = t;
	av->nbase = cap;
	return 0;
}

/* The user's numbers for what the base has just inserted. */
static void number(struct rp_av *av, fi_addr_t *addr, size_t count)
{
	struct rp_av_hidden *h;

	for (size_t i = 0; i < count; i++) {
		if (addr[i] == FI_ADDR_NOTAVAIL)
			continue;
		h = hidden_find(av, addr[i]);
		if (h)
			h->user = true;
		if (!av->to_base) {
			if (addr[i] >= av->nuser)
				av->nuser = addr[i] + 1;
			continue;
		}
		/* Without memory its messages come from nowhere. */
		if (!reserve_base(av, addr[i]))
			av->to_user[addr[i]] = av->nuser;
		av->to_base[av->nuser] = addr[i];
		addr[i] = av->nuser++;
	}
}

/* Insert through the base by whichever of its calls, then renumber. */
struct insertion {
	const void *addr;
	const char *node, *service;
	size_t nodecnt, svccnt;
	uint64_t flags;
	void *context;
};

static int base_insert(struct rp_av *av, const struct insertion *in,
		       size_t count, fi_addr_t *out)
{
	if (in->addr)
		return fi_av_insert(av->base, in->addr, count, out, in->flags,
				    in->context);
	if (in->nodecnt)
		return fi_av_insertsym(av->base, in->node, in->nodecnt,
				       in->service, in->svccnt, out, in->flags,
				       in->context);
	return fi_av_insertsvc(av->base, in->node, in->service, out, in->flags,
			       in->context);
}

static int av_insert_any(struct rp_av *av, const struct insertion *in,
			 size_t count, fi_addr_t *out)
{
	fi_addr_t *got = out;
	int ret;

	if (!count)
		return 0;
	if (!got) {
		got = malloc(count * sizeof(*got));
		if (!got)
			return -FI_ENOMEM;
	}
	pthread_mutex_lock(&av->dom->lock);
	ret = av->to_base ? reserve(av, av->nuser + count) : 0;
	if (!ret) {
		for (size_t i = 0; i < count; i++)
			got[i] = FI_ADDR_NOTAVAIL;
		ret = base_insert(av, in, count, got);
		if (ret > 0)
			number(av, got, count);
	}
	pthread_mutex_unlock(&av->dom->lock);
	if (got != out)
		free(got);
	return ret;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count,
		     fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct insertion in = {
		.addr = addr,
		.flags = flags,
		.context = context,
	};

	return av_insert_any(rp_container_of(fid, struct rp_av, fid), &in,
			     count, fi_addr);
}

static int av_insertsvc(struct fid_av *fid, const char *node,
			const char *service, fi_addr_t *fi_addr, uint64_t flags,
			void *context)
{
	struct insertion in = {
		.node = node,
		.service = service,
		.flags = flags,
		.context = context,
	};

	return av_insert_any(rp_container_of(fid, struct rp_av, fid), &in, 1,
			     fi_addr);
}

static int av_insertsym(struct fid_av *fid, const char *node, size_t nodecnt,
			const char *service, size_t svccnt, fi_addr_t *fi_addr,
			uint64_t flags, void *context)
{
	struct insertion in = {
		.node = node,
		.service = service,
		.nodecnt = nodecnt,
		.svccnt = svccnt,
		.flags = flags,
		.context = context,
	};

	return av_insert_any(rp_container_of(fid, struct rp_av, fid), &in,
			     nodecnt * svccnt, fi_addr);
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count,
		     uint64_t flags)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid);
	struct rp_av_hidden *h;
	struct rp_ep *ep;
	fi_addr_t b;
	int ret = 0;

	pthread_mutex_lock(&av->dom->lock);
	for (size_t i = 0; i < count && !ret; i++) {
		b = rp_av_to_base(av, fi_addr[i]);
		if (b == FI_ADDR_NOTAVAIL) {
			ret = -FI_EINVAL;
			break;
		}
		LIST_FOREACH (ep, &av->dom->eps, link)
			if (ep->av == av && ep->initiator)
				rp_peer_forget(ep->initiator, b);
		ret = fi_av_remove(av->base, &b, 1, flags);
		if (ret)
			break;
		h = hidden_find(av, b);
		if (h)
			h->user = false;
		if (!av->to_base)
			continue;
		av->to_base[fi_addr[i]] = FI_ADDR_NOTAVAIL;
		if (b < av->nbase && av->to_user[b] == fi_addr[i])
			av->to_user[b] = FI_ADDR_NOTAVAIL;
	}
	pthread_mutex_unlock(&av->dom->lock);
	return ret;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr,
		     size_t *addrlen)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid);
	fi_addr_t b = rp_av_to_base(av, fi_addr);

	return b == FI_ADDR_NOTAVAIL ? -FI_EINVAL
				     : fi_av_lookup(av->base, b, addr, addrlen);
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf,
			      size_t *len)
{
	return fi_av_straddr(rp_container_of(fid, struct rp_av, fid)->base,
			     addr, buf, len);
}

static int no_av_set(struct fid_av *av, struct fi_av_set_attr *attr,
		     struct fid_av_set **av_set, void *context)
{
	return -FI_ENOSYS;
}

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
	.av_set = no_av_set,
};

fi_addr_t rp_av_to_user(const struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_hidden *h;

	if (!av->hidden && !av->to_base)
		return addr;
	h = hidden_find(av, addr);
	if (h && !h->user)
		return FI_ADDR_NOTAVAIL;
	if (!av->to_base)
		return addr;
	return addr < av->nbase ? av->to_user[addr] : FI_ADDR_NOTAVAIL;
}

/* The user's table stops being the base's: translate from here on. */
static int leave_identity(struct rp_av *av)
{
	int ret = reserve_base(av, av->nuser);

	if (!ret)
		ret = reserve(av, av->nuser ? av->nuser : 1);
	if (ret)
		return ret;
	for (size_t i = 0; i < av->nuser; i++)
		av->to_base[i] = av->to_user[i] = i;
	return 0;
}

int rp_av_hidden_get(struct rp_av *av, const void *addr, size_t len,
		     fi_addr_t *out)
{
	struct rp_av_hidden *h;
	int ret;

	HASH_FIND(hh, av->hidden, addr, len, h);
	if (h) {
		h->refs++;
		*out = h->base;
		return 0;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return -FI_ENOMEM;
	memcpy(h->addr, addr, len);
	h->len = len;
	h->refs = 1;
	ret = fi_av_insert(av->base, addr, 1, &h->base, 0, NULL);
	if (ret != 1) {
		free(h);
		return ret < 0 ? ret : -FI_EADDRNOTAVAIL;
	}
	if (av->type != FI_AV_MAP) {
		h->user = rp_av_to_user(av, h->base) != FI_ADDR_NOTAVAIL &&
			  (av->to_base || h->base < av->nuser);
		if (!h->user && !av->to_base && leave_identity(av)) {
			fi_av_remove(av->base, &h->base, 1, 0);
			free(h);
			return -FI_ENOMEM;
		}
	}
	HASH_ADD_KEYPTR(hh, av->hidden, h->addr, h->len, h);
	HASH_ADD(hh_base, av->hidden_by_base, base, sizeof(h->base), h);
	*out = h->base;
	return 0;
}

void rp_av_hidden_put(struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_hidden *h = hidden_find(av, addr);

	if (!h || --h->refs)
		return;
	fi_av_remove(av->base, &h->base, 1, 0);
	hidden_delete(av, h);
}

int rp_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct rp_av *av;
	int ret;

	if (attr && (attr->flags & FI_EVENT)) {
		RP_INFO(AV, "asynchronous insertion is not offered\n");
		return -FI_ENOSYS;
	}
	if (attr && attr->name) {
		RP_INFO(AV, "shared address vectors are not offered\n");
		return -FI_ENOSYS;
	}
	av = calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	av->dom = dom;
	ret = fi_av_open(dom->base, attr, &av->base, context);
	if (ret) {
		free(av);
		return ret;
	}
	/* The base wrote back what FI_AV_UNSPEC became. */
	av->type = attr && attr->type == FI_AV_MAP ? FI_AV_MAP : FI_AV_TABLE;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	atomic_fetch_add(&dom->refs, 1);
	*out = &av->fid;
	return 0;
}
