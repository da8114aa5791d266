// SPDX-License-Identifier: BSD-2-Clause
/* Address vectors: the user's numbering kept while agents add entries of
 * theirs. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "rpmem/rpmem.h"

/* An entry that an agent needed to answer somebody. */
struct rp_av_hidden {
	fi_addr_t base;
	unsigned int refs;
	size_t len;
	UT_hash_handle hh, hh_base; /* by address, by what the base calls it */
	uint8_t addr[RP_WIRE_MAX_ADDR];
};

/* An entry of the user's: what it is called above and below. */
struct rp_av_user {
	fi_addr_t base;
	fi_addr_t user;
	unsigned int refs; /* inserted more than once: some bases count */
	UT_hash_handle hh;
};

static int av_close(struct fid *fid)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid.fid);
	struct rp_av_hidden *h, *htmp;
	struct rp_av_user *u, *utmp;
	int ret;

	if (atomic_load(&av->refs))
		return -FI_EBUSY;
	ret = fi_close(&av->base->fid);
	if (ret)
		return ret;
	if (av->numbers)
		fi_close(&av->numbers->fid);
	HASH_ITER(hh, av->hidden, h, htmp)
	{
		HASH_DELETE(hh, av->hidden, h);
		HASH_DELETE(hh_base, av->hidden_by_base, h);
		free(h);
	}
	HASH_ITER(hh, av->users, u, utmp)
	{
		HASH_DEL(av->users, u);
		free(u);
	}
	atomic_fetch_sub(&av->dom->refs, 1);
	free(av->to_base);
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
	for (size_t i = av->cap; i < cap; i++)
		t[i] = FI_ADDR_NOTAVAIL;
	av->to_base = t;
	av->cap = cap;
	return 0;
}

static struct rp_av_user *user_of(const struct rp_av *av, fi_addr_t base)
{
	struct rp_av_user *u;

	HASH_FIND(hh, av->users, &base, sizeof(base), u);
	return u;
}

bool rp_av_known(const struct rp_av *av, fi_addr_t addr)
{
	if (addr >= av->nuser)
		return false;
	return av->to_base ? av->to_base[addr] != FI_ADDR_NOTAVAIL
			   : user_of(av, addr) != NULL;
}

/* The user's table stops being the base's: translate from here on. */
static int leave_identity(struct rp_av *av)
{
	struct rp_av_user *u, *tmp;
	struct rp_ep *ep;
	int ret = reserve(av, av->nuser ? av->nuser : 1);

	if (ret)
		return ret;
	LIST_FOREACH (ep, &av->dom->eps, link)
		rp_ep_straighten(ep);
	HASH_ITER(hh, av->users, u, tmp)
	{
		av->to_base[u->user] = u->base;
	}
	return 0;
}

/* The user calls user what the base has just inserted as base. */
static int remember(struct rp_av *av, fi_addr_t user, fi_addr_t base)
{
	struct rp_av_user *u = user_of(av, base);
	bool oom = false;
	int ret = 0;

	if (u) {
		u->refs++;
		return 0;
	}
	if (!av->to_base && user != base)
		ret = leave_identity(av);
	if (!ret && av->to_base)
		ret = reserve(av, user + 1);
	u = ret ? NULL : malloc(sizeof(*u));
	if (!u)
		return -FI_ENOMEM;
	*u = (struct rp_av_user){.base = base, .user = user, .refs = 1};
	HASH_ADD(hh, av->users, base, sizeof(base), u);
	if (oom) {
		free(u);
		return -FI_ENOMEM;
	}
	if (av->to_base)
		av->to_base[user] = base;
	if (user >= av->nuser)
		av->nuser = user + 1;
	return 0;
}

/* Insert through the base by whichever of its calls, then renumber. */
struct insertion {
	const void *addr;
	const char *node, *service;
	size_t nodecnt, svccnt;
	uint64_t flags;
	void *context;
};

static int base_insert(struct fid_av *base, const struct insertion *in,
		       size_t count, fi_addr_t *out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = FI_ADDR_NOTAVAIL;
	if (in->addr)
		return fi_av_insert(base, in->addr, count, out, in->flags,
				    in->context);
	if (in->nodecnt)
		return fi_av_insertsym(base, in->node, in->nodecnt, in->service,
				       in->svccnt, out, in->flags, in->context);
	return fi_av_insertsvc(base, in->node, in->service, out, in->flags,
			       in->context);
}

/*
 * How a base numbers a table is its own affair (which numbers it uses again,
 * whether an address may be in it twice), so a second vector of the base, which
 * never holds anything hidden, says what the user would have been told.
 */
static int insert_both(struct rp_av *av, const struct insertion *in,
		       size_t count, fi_addr_t *out, fi_addr_t *base)
{
	int ret = base_insert(av->base, in, count, base), done = 0;

	if (ret < 0)
		return ret;
	/* None at all is said entry by entry too. */
	if (!ret || !av->numbers)
		memcpy(out, base, count * sizeof(*out));
	else
		ret = base_insert(av->numbers, in, count, out);
	for (size_t i = 0; i < count; i++) {
		bool in_base = base[i] != FI_ADDR_NOTAVAIL;
		bool in_both = in_base && ret > 0 && out[i] != FI_ADDR_NOTAVAIL;

		if (in_both && !remember(av, out[i], base[i])) {
			done++;
			continue;
		}
		if (in_both && av->numbers)
			fi_av_remove(av->numbers, &out[i], 1, 0);
		if (in_base)
			fi_av_remove(av->base, &base[i], 1, 0);
		out[i] = FI_ADDR_NOTAVAIL;
	}
	return ret > 0 ? done : ret;
}

static int av_insert_any(struct rp_av *av, const struct insertion *in,
			 size_t count, fi_addr_t *out)
{
	fi_addr_t *got;
	int ret;

	if (!count)
		return 0;
	got = malloc(2 * count * sizeof(*got));
	if (!got)
		return -FI_ENOMEM;
	pthread_mutex_lock(&av->dom->lock);
	ret = insert_both(av, in, count, out ? out : got, got + count);
	pthread_mutex_unlock(&av->dom->lock);
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
	struct rp_av_user *u;
	struct rp_ep *ep;
	fi_addr_t b;
	int ret = 0;

	pthread_mutex_lock(&av->dom->lock);
	for (size_t i = 0; i < count && !ret; i++) {
		b = rp_av_to_base(av, fi_addr[i]);
		u = user_of(av, b);
		if (!u) { /* ours, at most */
			ret = -FI_EINVAL;
			break;
		}
		LIST_FOREACH (ep, &av->dom->eps, link)
			if (ep->av == av && ep->initiator && u->refs == 1)
				rp_peer_forget(ep->initiator, b);
		ret = fi_av_remove(av->base, &b, 1, flags);
		if (ret)
			break;
		if (av->numbers)
			fi_av_remove(av->numbers, &fi_addr[i], 1, flags);
		if (--u->refs)
			continue;
		if (av->to_base)
			av->to_base[u->user] = FI_ADDR_NOTAVAIL;
		HASH_DEL(av->users, u);
		free(u);
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

/*
 * A base that keeps two entries of one address may tell the hidden one as the
 * source of what the user knows by the other.
 */
static fi_addr_t same_address(const struct rp_av *av,
			      const struct rp_av_hidden *h)
{
	uint8_t addr[RP_WIRE_MAX_ADDR];
	struct rp_av_user *u, *tmp;
	size_t len;

	HASH_ITER(hh, av->users, u, tmp)
	{
		len = sizeof(addr);
		if (!fi_av_lookup(av->base, u->base, addr, &len) &&
		    len == h->len && !memcmp(addr, h->addr, len))
			return u->user;
	}
	return FI_ADDR_NOTAVAIL;
}

fi_addr_t rp_av_to_user(const struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_hidden *h;
	struct rp_av_user *u;

	if (!av->hidden && !av->to_base)
		return addr;
	u = user_of(av, addr);
	if (u)
		return u->user;
	HASH_FIND(hh_base, av->hidden_by_base, &addr, sizeof(addr), h);
	return h ? same_address(av, h) : FI_ADDR_NOTAVAIL;
}

bool rp_av_hidden_has(const struct rp_av *av, const void *addr, size_t len)
{
	struct rp_av_hidden *h;

	HASH_FIND(hh, av->hidden, addr, len, h);
	return h;
}

int rp_av_hidden_get(struct rp_av *av, const void *addr, size_t len,
		     fi_addr_t *out)
{
	struct rp_av_hidden *h;
	bool oom = false;
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
	HASH_ADD_KEYPTR(hh, av->hidden, h->addr, h->len, h);
	if (oom)
		goto remove;
	HASH_ADD(hh_base, av->hidden_by_base, base, sizeof(h->base), h);
	if (oom) {
		HASH_DELETE(hh, av->hidden, h);
		goto remove;
	}
	*out = h->base;
	return 0;

remove:
	fi_av_remove(av->base, &h->base, 1, 0);
	free(h);
	return -FI_ENOMEM;
}

void rp_av_hidden_put(struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_hidden *h;

	HASH_FIND(hh_base, av->hidden_by_base, &addr, sizeof(addr), h);
	if (!h || --h->refs)
		return;
	HASH_DELETE(hh, av->hidden, h);
	HASH_DELETE(hh_base, av->hidden_by_base, h);
	fi_av_remove(av->base, &h->base, 1, 0);
	free(h);
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
	if (!attr || attr->type != FI_AV_MAP) {
		ret = fi_av_open(dom->base, attr, &av->numbers, context);
		if (ret) {
			fi_close(&av->base->fid);
			free(av);
			return ret;
		}
	}
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	atomic_fetch_add(&dom->refs, 1);
	*out = &av->fid;
	return 0;
}
