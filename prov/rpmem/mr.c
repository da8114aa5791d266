// SPDX-License-Identifier: BSD-2-Clause
/* Memory regions: the base's registration, and a key that carries the facts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "rpmem/conn.h"
#include "rpmem/host.h"

struct rp_mr {
	struct fid_mr fid;
	struct rp_dom *dom;
	struct fid_mr *base;
	bool persistent;
	bool served; /* the agent knows it */
	uint64_t access;
	struct rp_cep_mr there; /* for connections of our own, once they are */
	bool flushed;		/* ... and their queue pairs may FLUSH it */
	struct rp_region region;
	LIST_ENTRY(rp_mr) link; /* dom->pmems, while served */
};

/* Base keys that we may choose are random too: an old key must not hit. */
#define KEY_TRIES 64
/* Several sentences about a region. */
#define WHY_ROOM ((size_t)3 * RP_WHY_LEN)

static int mr_close(struct fid *fid)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid.fid);
	struct rp_dom *dom = mr->dom;
	int ret;

	pthread_mutex_lock(&dom->lock);
	/* Its key may be given again: nobody is left who could use it. */
	if (mr->there.handle) {
		rp_conns_revoke(dom->conns, mr);
		rp_conns_dereg(dom->conns, &mr->there);
	}
	ret = fi_close(&mr->base->fid);
	if (!ret && mr->served) {
		/* After this the application may unmap: no worker is in it. */
		LIST_REMOVE(mr, link);
		rp_agent_region_del(dom->agent, &mr->region);
		dom->npmem--;
	}
	pthread_mutex_unlock(&dom->lock);
	if (ret)
		return ret;
	rp_pmem_delete(mr->region.pmem);
	atomic_fetch_sub(&dom->refs, 1);
	free(mr);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid.fid);
	struct fid *base;

	switch (bfid->fclass) {
	case FI_CLASS_EP:
		base = &rp_container_of(bfid, struct rp_ep, fid.fid)->base->fid;
		break;
	case FI_CLASS_CNTR:
		if (mr->persistent) {
			/* The base counts a write before it is durable. */
			RP_WARN(MR, "counters of a persistent region are not "
				    "offered\n");
			return -FI_EOPNOTSUPP;
		}
		base = &rp_container_of(bfid, struct rp_cntr, fid.fid)
				->base->fid;
		break;
	default:
		return -FI_ENOSYS;
	}
	return fi_mr_bind(mr->base, base, flags);
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid.fid);

	if (command != FI_ENABLE && command != FI_REFRESH)
		return -FI_ENOSYS;
	return fi_control(&mr->base->fid, command, arg);
}

static int mr_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	return -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = mr_ops_open,
};

static int random_bits(uint32_t *v)
{
	static atomic_uint counter;

	if (RP_FAULT("fixed-base-key")) {
		*v = atomic_fetch_add(&counter, 1) + 1;
		return 0;
	}
	return rp_host_random(v, sizeof(*v));
}

/* Register with the base under a key of our choice. */
static int reg_random(struct rp_dom *dom, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **mr)
{
	/*
	 * A later libfabric has more fields than we know: it must find zeroes
	 * behind those, not our stack.
	 */
	union {
		struct fi_mr_attr attr;
		char room[512];
	} a;
	uint32_t key;
	int ret;

	memset(&a, 0, sizeof(a));
	a.attr = *attr;
	a.attr.context = NULL;
	for (int i = 0; i < KEY_TRIES; i++) {
		ret = random_bits(&key);
		if (ret)
			return ret;
		a.attr.requested_key = key;
		ret = fi_mr_regattr(dom->base, &a.attr, flags, mr);
		if (ret != -FI_ENOKEY)
			return ret;
	}
	return -FI_ENOKEY;
}

/* Who makes the keys: the base, the program, or we. */
static int base_reg(struct rp_dom *dom, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **mr)
{
	if (!dom->marked ||
	    (dom->base_info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		return fi_mr_regattr(dom->base, attr, flags, mr);
	return reg_random(dom, attr, flags, mr);
}

int rp_mr_hidden(struct rp_dom *dom, void *buf, size_t len, uint64_t access,
		 struct fid_mr **mr)
{
	const struct iovec iov = {.iov_base = buf, .iov_len = len};
	const struct fi_mr_attr attr = {
		.mr_iov = &iov,
		.iov_count = 1,
		.access = access,
	};

	*mr = NULL;
	if (!(dom->base_info->domain_attr->mr_mode & FI_MR_LOCAL))
		return 0;
	return reg_random(dom, &attr, 0, mr);
}

static int make_key(struct rp_mr *mr)
{
	uint64_t base = fi_mr_key(mr->base);
	struct rp_key k = {
		.base = (uint32_t)base,
		.persistent = mr->persistent,
	};
	int ret;

	if (!mr->dom->marked) {
		mr->fid.key = base;
		return 0;
	}
	if (base >> 32) {
		RP_WARN(MR,
			"the base made key %#llx, which does not fit the "
			"32 bits that a marked key has for it\n",
			(unsigned long long)base);
		return -FI_EKEYREJECTED;
	}
	if (mr->persistent) {
		k.class = mr->region.choice.class;
		k.method = mr->region.choice.method;
	}
	ret = rp_host_random(&k.random, sizeof(k.random));
	if (ret)
		return ret;
	k.random &= 0xffffff;
	mr->fid.key = rp_key_make(&k);
	mr->region.key = mr->fid.key;
	return 0;
}

/* With the right to FLUSH it, where that is its method and can be had. */
static int reg_there(struct rp_mr *mr, struct rp_conns *set)
{
	const struct rp_region *r = &mr->region;
	int ret;

	if (r->choice.method == RP_METHOD_NATIVE && set->attr.native) {
		ret = rp_conns_reg(set, r->base, r->len,
				   mr->access | RP_CEP_FLUSHED, &mr->there);
		mr->flushed = !ret;
		if (!ret)
			return 0;
		RP_WARN(MR,
			"the device does not FLUSH this region (%s): the "
			"agent is asked\n",
			fi_strerror(-ret));
	}
	return rp_conns_reg(set, r->base, r->len, mr->access, &mr->there);
}

int rp_mr_link(const struct rp_region *r, struct rp_conns *set,
	       struct rp_mr **out, struct rp_wire_offer *m)
{
	struct rp_mr *mr =
		rp_container_of((struct rp_region *)r, struct rp_mr, region);
	int ret = mr->there.handle ? 0 : reg_there(mr, set);

	if (ret) {
		RP_WARN(MR, "a region for connections of our own: %s\n",
			fi_strerror(-ret));
		return ret;
	}
	if (m->method == RP_METHOD_NATIVE && !mr->flushed)
		return -FI_EOPNOTSUPP;
	*out = mr;
	m->there = mr->there.key;
	m->at = set->attr.virtual ? (uintptr_t)r->base : 0;
	return 0;
}

static struct rp_caps_cfg caps_cfg(const struct rp_dom *dom)
{
	const struct rp_conns *set = dom->conns;

	return (struct rp_caps_cfg){
		.native = !set		     ? RP_UNKNOWN
			  : set->attr.native ? RP_YES
					     : RP_NO,
		.trust_fs = rp_params.trust_fs,
		.emulate = rp_params.emulate,
		.allow_force_granularity = rp_params.allow_force_granularity,
	};
}

/*
 * Over connected endpoints a request is seen behind the writes that it is about
 * where a CPU places both. What an adapter places has to be pushed by a read,
 * which peers know of if all of the domain is like that.
 */
static bool is_in_order(const struct rp_dom *dom, const struct rp_region *r,
			char why[WHY_ROOM])
{
	if (r->facts.placement == RP_PLACE_CPU_USER ||
	    r->facts.placement == RP_PLACE_CPU_KERNEL ||
	    (dom->fenced && r->facts.fence == RP_YES))
		return true;
	snprintf(why, WHY_ROOM,
		 "%s; over connected endpoints memory that an adapter may "
		 "place into needs a read that is known to push writes before "
		 "it (fence), and FI_REMOTE_READ; use FI_EP_RDM",
		 r->why);
	return false;
}

/*
 * What backs the memory decides whether it may be called persistent. why: what
 * is against it, where it may not.
 */
static int find_out(struct rp_mr *mr, const struct fi_mr_attr *attr,
		    char why[WHY_ROOM])
{
	struct rp_dom *dom = mr->dom;
	struct rp_region *r = &mr->region;
	char forbids[RP_WHY_LEN];
	int ret;

	if (attr->iov_count != 1) {
		strcpy(why, "register one range at a time");
		return -FI_EINVAL;
	}
	r->base = attr->mr_iov[0].iov_base;
	r->len = attr->mr_iov[0].iov_len;
	r->addr = dom->base_info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			  ? (uintptr_t)r->base
			  : 0;
	ret = rp_host_facts(caps_cfg(dom), dom->fabric->base_name,
			    dom->base_info->domain_attr->name,
			    rp_params.operator_file, r->base, r->len, &r->facts,
			    r->why);
	if (ret) {
		strcpy(why, r->why);
		return ret;
	}
	/* Ours are random: rarely, but maybe, one that was there before. */
	if (!(dom->base_info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		r->facts.told = RP_NO;
	/* Connections of our own tell, and live no longer than a key. */
	if (dom->conns && r->facts.told != RP_YES) {
		r->facts.told = RP_YES;
		r->links_tell = true;
	}
	/* A fence is a read. */
	if (!(attr->access & FI_REMOTE_READ))
		r->facts.fence = RP_NO;
	if (dom->cards && !is_in_order(dom, r, why))
		return -FI_EOPNOTSUPP;
	r->choice = rp_method_pick(&r->facts, rp_params.method, forbids);
	if (r->choice.method != RP_METHOD_REFUSED)
		return 0;
	snprintf(why, WHY_ROOM, "%s%s%s; %s", r->why, *forbids ? "; " : "",
		 forbids, r->choice.remedy);
	return -FI_EOPNOTSUPP;
}

static int make_persistent(struct rp_mr *mr)
{
	struct rp_region *r = &mr->region;
	struct rp_choice first;
	int ret;

	if (rp_params.method)
		r->forced = r->choice.method;
	first = rp_method_best(&r->facts, RP_METHODS_BUILT);
	if (r->choice.class < first.class)
		RP_WARN(MR,
			"FI_OFI_RPMEM_METHOD=%s lowers the class from %s to "
			"%s\n",
			rp_params.method, rp_class_name(first.class),
			rp_class_name(r->choice.class));
	RP_INFO(MR, "%s: class %s by %s%s\n", r->why,
		rp_class_name(r->choice.class),
		rp_method_name(r->choice.method),
		r->forced ? ", which is forced" : "");
	ret = rp_pmem_new(r->base, r->len,
			  rp_method_by_agent(&r->facts, r->choice).method,
			  &r->facts.file, rp_host_flusher(r->base, r->len),
			  &r->pmem);
	if (!ret && rp_facts_device(&r->facts))
		rp_pmem_stays(r->pmem);
	if (!ret && rp_params.measured)
		rp_pmem_calibrate(r->pmem, rp_params.measured);
	return ret;
}

static int judge(struct rp_mr *mr, const struct fi_mr_attr *attr)
{
	char why[WHY_ROOM];
	int ret = find_out(mr, attr, why);

	if (!ret)
		return make_persistent(mr);
	RP_WARN(MR, "FI_RMA_PMEM refused: %s\n", why);
	return ret;
}

/* The program has not asked: what is a file is meant to last all the same. */
static int judge_unasked(struct rp_mr *mr, const struct fi_mr_attr *attr)
{
	const struct rp_caps_cfg cfg = caps_cfg(mr->dom);
	enum rp_lasts lasts = RP_LASTS_NOT, here;
	char why[WHY_ROOM];
	int ret = 0;

	for (size_t i = 0; i < attr->iov_count && !ret; i++) {
		if (!attr->mr_iov[i].iov_len)
			continue;
		ret = rp_host_lasts(&cfg, attr->mr_iov[i].iov_base,
				    attr->mr_iov[i].iov_len, &here, why);
		if (!ret && here > lasts)
			lasts = here;
	}
	if (ret) {
		RP_WARN(MR, "FI_OFI_RPMEM_COMMIT_WRITES: %s\n", why);
		return ret;
	}
	if (lasts == RP_LASTS_NOT)
		return 0;
	ret = find_out(mr, attr, why);
	if (!ret && !mr->dom->marked) {
		strcpy(why, "the hints do not let the provider make the keys "
			    "(FI_MR_PROV_KEY)");
		ret = -FI_EKEYREJECTED;
	}
	switch (rp_caps_unasked(lasts, !ret, mr->region.choice.class,
				rp_params.required)) {
	case RP_UNASKED_ORDINARY:
		/* MPI's own memory is here too: said, and not refused. */
		if (!ret)
			snprintf(why, sizeof(why),
				 "%s: writes to it are not made durable: class "
				 "%s, and %s is required; use a file on a "
				 "disk, or FI_OFI_RPMEM_CLASS=%s where that is "
				 "enough",
				 mr->region.why,
				 rp_class_name(mr->region.choice.class),
				 rp_class_name(rp_params.required),
				 rp_class_name(mr->region.choice.class));
		RP_WARN(MR, "FI_OFI_RPMEM_COMMIT_WRITES: ordinary memory: %s\n",
			why);
		return 0;
	case RP_UNASKED_PERSISTENT:
		mr->persistent = true;
		return make_persistent(mr);
	case RP_UNASKED_REFUSED:
		break;
	}
	if (!ret)
		snprintf(why, sizeof(why), "%s: class %s, and %s is required",
			 mr->region.why, rp_class_name(mr->region.choice.class),
			 rp_class_name(rp_params.required));
	RP_WARN(MR,
		"FI_OFI_RPMEM_COMMIT_WRITES: memory that could not be written "
		"durably is refused: %s\n",
		why);
	return ret ? ret : -FI_EOPNOTSUPP;
}

/* The base has the last word; where it is known what it means, say it. */
static void base_refused(const struct rp_mr *mr, int ret)
{
	const struct rp_facts *f = &mr->region.facts;

	if (!mr->persistent || f->placement == RP_PLACE_CPU_USER ||
	    (f->memory != RP_MEM_DAX && f->memory != RP_MEM_DAX_SYNC) ||
	    !f->fs_name[0])
		return;
	RP_WARN(MR,
		"FI_RMA_PMEM refused by %s: %s (%s); an adapter cannot hold "
		"on to files of a DAX file system: use a devdax device\n",
		mr->dom->fabric->base_name, mr->region.why, fi_strerror(-ret));
}

/* Let the agent know the region: from now on somebody may ask for a commit. */
static int serve(struct rp_mr *mr)
{
	struct rp_dom *dom = mr->dom;
	struct rp_ep *ep;
	int ret;

	pthread_mutex_lock(&dom->lock);
	if (dom->nremote) {
		/* The base counts a write before it is durable. */
		RP_WARN(MR, "an endpoint counts what peers write "
			    "(FI_REMOTE_WRITE): FI_RMA_PMEM is refused\n");
		ret = -FI_EOPNOTSUPP;
		goto unlock;
	}
	ret = rp_agent_region_add(dom->agent, &mr->region);
	if (ret)
		goto unlock;
	LIST_FOREACH (ep, &dom->eps, link) {
		if (ep->enabled)
			ret = rp_xport_activate(ep, true);
		if (ret)
			break;
	}
	if (ret) {
		rp_agent_region_del(dom->agent, &mr->region);
	} else {
		LIST_INSERT_HEAD(&dom->pmems, mr, link);
		dom->npmem++;
		mr->served = true;
	}
unlock:
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

struct rp_region *rp_mr_holding(struct rp_dom *dom, const void *buf, size_t len,
				enum rp_class required, const char **why)
{
	const uint64_t at = (uintptr_t)buf;
	struct rp_mr *mr;

	*why = "is in no registered persistent region";
	LIST_FOREACH (mr, &dom->pmems, link) {
		struct rp_region *r = &mr->region;
		uint64_t base = (uintptr_t)r->base;

		if (at >= base + r->len || at + len <= base)
			continue;
		if (!rp_range_inside(at, len, base, r->len))
			*why = "is only in part in a persistent region";
		else if (r->choice.class < required)
			*why = "is in a region of too low a class";
		else
			return r;
	}
	return NULL;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **out)
{
	struct rp_dom *dom = rp_container_of(fid, struct rp_dom, fid.fid);
	struct rp_mr *mr;
	int ret;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr || !attr->iov_count)
		return -FI_EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->dom = dom;
	mr->persistent = flags & FI_RMA_PMEM;
	mr->region.writable = attr->access & FI_REMOTE_WRITE;
	mr->access = attr->access & (FI_REMOTE_WRITE | FI_REMOTE_READ);
	if (mr->persistent) {
		ret = judge(mr, attr);
		if (ret)
			goto free;
	} else if (rp_params.commit_writes &&
		   (attr->access & FI_REMOTE_WRITE)) {
		ret = judge_unasked(mr, attr);
		if (ret)
			goto free;
	}
	ret = base_reg(dom, attr, flags & ~FI_RMA_PMEM, &mr->base);
	if (ret) {
		base_refused(mr, ret);
		goto pmem;
	}
	ret = make_key(mr);
	if (ret)
		goto base;
	if (mr->persistent && dom->marked) {
		ret = serve(mr);
		if (ret)
			goto base;
	}
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.mem_desc = fi_mr_desc(mr->base);
	atomic_fetch_add(&dom->refs, 1);
	*out = &mr->fid;
	return 0;
base:
	fi_close(&mr->base->fid);
pmem:
	rp_pmem_delete(mr->region.pmem);
free:
	free(mr);
	return ret;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t requested_key,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	struct fi_mr_attr attr = {
		.mr_iov = iov,
		.iov_count = count,
		.access = access,
		.offset = offset,
		.requested_key = requested_key,
		.context = context,
	};

	return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
		  uint64_t offset, uint64_t requested_key, uint64_t flags,
		  struct fid_mr **mr, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr,
		       context);
}

struct fi_ops_mr rp_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
