// SPDX-License-Identifier: BSD-2-Clause
/* Address vectors of the base, with a record of the inserted addresses. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "rpmem/rpmem.h"

/*
 * fi_av_lookup() of ofi_rxm 1.17 reads invalid memory for an address that was
 * removed or never inserted, so persistent operations check this record.
 */
struct rp_av_record {
	fi_addr_t addr;
	unsigned int refs; /* number of insertions: some bases count them */
	UT_hash_handle hh;
};

static struct rp_av *av_of(struct fid_av *fid)
{
	return rp_container_of(fid, struct rp_av, fid);
}

static int av_close(struct fid *fid)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid.fid);
	struct rp_av_record *k, *tmp;
	int ret;

	if (atomic_load(&av->refs))
		return -FI_EBUSY;
	ret = fi_close(&av->base->fid);
	if (ret)
		return ret;
	HASH_ITER(hh, av->records, k, tmp)
	{
		HASH_DEL(av->records, k);
		free(k);
	}
	atomic_fetch_sub(&av->dom->refs, 1);
	free(av);
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	/* Only asynchronous insertion binds an event queue: not supported. */
	RP_NO_FID_OPS,
};

static struct rp_av_record *find_record(const struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_record *k;

	HASH_FIND(hh, av->records, &addr, sizeof(addr), k);
	return k;
}

static int add_record(struct rp_av *av, fi_addr_t addr)
{
	struct rp_av_record *k = find_record(av, addr);
	bool oom = false;

	if (k) {
		k->refs++;
		return 0;
	}
	k = malloc(sizeof(*k));
	if (!k)
		return -FI_ENOMEM;
	*k = (struct rp_av_record){.addr = addr, .refs = 1};
	HASH_ADD(hh, av->records, addr, sizeof(addr), k);
	if (oom)
		free(k);
	return oom ? -FI_ENOMEM : 0;
}

/* Take dom->lock, and get an array for fi_av_insert(); NULL: no memory. */
static fi_addr_t *insert_begin(struct rp_av *av, size_t count, fi_addr_t *out)
{
	fi_addr_t *got = out ? out : malloc(count * sizeof(*got));

	if (!got)
		return NULL;
	for (size_t i = 0; i < count; i++)
		got[i] = FI_ADDR_NOTAVAIL;
	pthread_mutex_lock(&av->dom->lock);
	return got;
}

/* Record the new addresses; without memory remove one again. Unlock. */
static int insert_end(struct rp_av *av, size_t count, fi_addr_t *out,
		      fi_addr_t *got, int ret)
{
	for (size_t i = 0; ret > 0 && i < count; i++) {
		if (got[i] == FI_ADDR_NOTAVAIL || !add_record(av, got[i]))
			continue;
		fi_av_remove(av->base, &got[i], 1, 0);
		got[i] = FI_ADDR_NOTAVAIL;
		ret--;
	}
	pthread_mutex_unlock(&av->dom->lock);
	if (!out)
		free(got);
	return ret;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count,
		     fi_addr_t *out, uint64_t flags, void *context)
{
	struct rp_av *av = av_of(fid);
	fi_addr_t *got = count ? insert_begin(av, count, out) : NULL;

	if (!got)
		return count ? -FI_ENOMEM : 0;
	return insert_end(
		av, count, out, got,
		fi_av_insert(av->base, addr, count, got, flags, context));
}

static int av_insertsvc(struct fid_av *fid, const char *node,
			const char *service, fi_addr_t *out, uint64_t flags,
			void *context)
{
	struct rp_av *av = av_of(fid);
	fi_addr_t *got = insert_begin(av, 1, out);

	if (!got)
		return -FI_ENOMEM;
	return insert_end(
		av, 1, out, got,
		fi_av_insertsvc(av->base, node, service, got, flags, context));
}

static int av_insertsym(struct fid_av *fid, const char *node, size_t nodecnt,
			const char *service, size_t svccnt, fi_addr_t *out,
			uint64_t flags, void *context)
{
	struct rp_av *av = av_of(fid);
	const size_t count = nodecnt * svccnt;
	fi_addr_t *got = count ? insert_begin(av, count, out) : NULL;

	if (!got)
		return count ? -FI_ENOMEM : 0;
	return insert_end(av, count, out, got,
			  fi_av_insertsym(av->base, node, nodecnt, service,
					  svccnt, got, flags, context));
}

/* With dom->lock: delete a record when its last insertion is removed. */
static void delete_record(struct rp_av *av, struct rp_av_record *k)
{
	struct rp_ep *ep;

	LIST_FOREACH (ep, &av->dom->eps, link)
		if (ep->av == av)
			rp_private_remove_dest(ep, k->addr, 0);
	HASH_DEL(av->records, k);
	free(k);
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count,
		     uint64_t flags)
{
	struct rp_av *av = av_of(fid);
	struct rp_av_record *k;
	int ret = 0;

	pthread_mutex_lock(&av->dom->lock);
	for (size_t i = 0; i < count && !ret; i++) {
		k = find_record(av, fi_addr[i]);
		ret = k ? fi_av_remove(av->base, &fi_addr[i], 1, flags)
			: -FI_EINVAL;
		if (!ret && !--k->refs)
			delete_record(av, k);
	}
	pthread_mutex_unlock(&av->dom->lock);
	return ret;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr,
		     size_t *addrlen)
{
	return fi_av_lookup(av_of(fid)->base, fi_addr, addr, addrlen);
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf,
			      size_t *len)
{
	return fi_av_straddr(av_of(fid)->base, addr, buf, len);
}

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

bool rp_addr_equals(const union rp_rc_addr *a, const struct sockaddr *host,
		    uint16_t port)
{
	const union rp_rc_addr *b = (const void *)host;

	if (a->sa.sa_family != host->sa_family || a->in.sin_port != htons(port))
		return false;
	if (host->sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return host->sa_family == AF_INET6 &&
	       !memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr,
		       sizeof(b->in6.sin6_addr));
}

fi_addr_t rp_av_find(struct rp_av *av, const struct sockaddr *host,
		     uint16_t port)
{
	union rp_rc_addr sa;
	struct rp_av_record *k, *tmp;
	size_t len;

	HASH_ITER(hh, av->records, k, tmp)
	{
		len = sizeof(sa);
		if (!fi_av_lookup(av->base, k->addr, &sa, &len) &&
		    rp_addr_equals(&sa, host, port))
			return k->addr;
	}
	return FI_ADDR_NOTAVAIL;
}

int rp_av_sockaddr(struct rp_av *av, fi_addr_t addr, void *buf, size_t *len)
{
	if (find_record(av, addr))
		return fi_av_lookup(av->base, addr, buf, len);
	RP_WARN(EP_DATA, "address %#llx is not in the address vector\n",
		(unsigned long long)addr);
	return -FI_EINVAL;
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
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	atomic_fetch_add(&dom->refs, 1);
	*out = &av->fid;
	return 0;
}
