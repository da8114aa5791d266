// SPDX-License-Identifier: BSD-2-Clause
/* Memory regions: the base serves ordinary ones, the agent persistent ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

/* Attempts to draw a random key that the base accepts as unused. */
#define KEY_TRIES 64
/* Buffer size for several reasons about one region. */
#define WHY_ROOM ((size_t)3 * RP_WHY_LEN)

/* Stop all access to the region; then the program may unmap the memory. */
static void region_remove(struct rp_mr *mr)
{
	struct rp_dom *dom = mr->dom;

	pthread_mutex_lock(&dom->lock);
	rp_agent_region_del(dom->agent, &mr->region);
	rp_target_dereg(mr);
	LIST_REMOVE(mr, link);
	dom->npersistent_mrs--;
	pthread_mutex_unlock(&dom->lock);
}

static int mr_close(struct fid *fid)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid.fid);
	int ret = mr->base ? fi_close(&mr->base->fid) : 0;

	if (ret)
		return ret;
	if (mr->in_agent)
		region_remove(mr);
	rp_watch_free(&mr->region.watch);
	rp_pmem_delete(mr->region.pmem);
	atomic_fetch_sub(&mr->dom->refs, 1);
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
			/* The base cannot count private connections' writes. */
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
	return mr->base ? fi_mr_bind(mr->base, base, flags) : 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid.fid);

	if (command != FI_ENABLE && command != FI_REFRESH)
		return -FI_ENOSYS;
	return mr->base ? fi_control(&mr->base->fid, command, arg) : 0;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = rp_no_ops_open,
};

/* A random key of the base's key size, without the persistent mark. */
static int random_key(const struct rp_dom *dom, uint64_t *key)
{
	size_t size = dom->base_info->domain_attr->mr_key_size;
	int ret = rp_host_random(key, sizeof(*key));

	if (size && size < sizeof(*key))
		*key &= (1ull << (8 * size)) - 1;
	*key &= ~RP_KEY_MARK_MASK;
	return ret;
}

/* Register with the base under a random, unmarked key. */
static int reg_random(struct rp_dom *dom, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **mr)
{
	/*
	 * The struct may be longer in a later libfabric: the fields that this
	 * header lacks must be 0, not stack content.
	 */
	union {
		struct fi_mr_attr attr;
		char room[512];
	} a;
	int ret = -FI_ENOKEY;

	memset(&a, 0, sizeof(a));
	a.attr = *attr;
	a.attr.context = NULL;
	for (int i = 0; i < KEY_TRIES && ret == -FI_ENOKEY; i++) {
		ret = random_key(dom, &a.attr.requested_key);
		if (!ret)
			ret = fi_mr_regattr(dom->base, &a.attr, flags, mr);
	}
	return ret;
}

/* Register with the base; base, program or reg_random() makes the key. */
static int base_reg(struct rp_dom *dom, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **mr)
{
	int ret;

	if (!dom->makes_keys)
		return fi_mr_regattr(dom->base, attr, flags, mr);
	if (!(dom->base_info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		return reg_random(dom, attr, flags, mr);
	ret = fi_mr_regattr(dom->base, attr, flags, mr);
	if (ret || !rp_key_is_persistent(fi_mr_key(*mr)))
		return ret;
	RP_WARN(MR, "the base made a key that looks like one of a persistent "
		    "region: register the memory again\n");
	fi_close(&(*mr)->fid);
	return -FI_EKEYREJECTED;
}

/*
 * Register a persistent region with the base for local operations, if the base
 * requires FI_MR_LOCAL. Peers never reach the region over the base.
 */
static int base_reg_local(struct rp_dom *dom, const struct fi_mr_attr *attr,
			  uint64_t flags, struct fid_mr **mr)
{
	struct fi_mr_attr a = *attr;

	*mr = NULL;
	a.access &= FI_SEND | FI_RECV | FI_READ | FI_WRITE;
	if (!(dom->base_info->domain_attr->mr_mode & FI_MR_LOCAL) || !a.access)
		return 0;
	return base_reg(dom, &a, flags, mr);
}

/* Does the device have native FLUSH? Opens the device to find out. */
static int find_native_flush(struct rp_dom *dom, enum rp_tri *native,
			     char why[WHY_ROOM])
{
	struct rp_private *p;

	*native = RP_NO;
	if (!dom->makes_keys || !rp_params.native ||
	    strcmp(rp_private_transport(dom), "verbs"))
		return 0;
	pthread_mutex_lock(&dom->lock);
	p = rp_private_get(dom, why);
	if (p && (rp_rc_flags(dom->rc) & RP_CHANNEL_FLUSHES))
		*native = RP_YES;
	pthread_mutex_unlock(&dom->lock);
	return p ? 0 : -FI_EOPNOTSUPP;
}

static struct rp_caps_cfg caps_cfg(const struct rp_mr *mr)
{
	return (struct rp_caps_cfg){
		.native = mr->native,
		/* Commits use the transport of private connections. */
		.base = rp_private_transport(mr->dom),
		.device = mr->dom->base_info->domain_attr->name,
		.op_file = rp_params.operator_file,
		.trust_fs = rp_params.trust_fs,
		.emulate = rp_params.emulate,
	};
}

int rp_mr_find_facts(struct rp_mr *mr, struct rp_facts *facts, char *why)
{
	const struct rp_region *r = &mr->region;
	const struct rp_caps_cfg cfg = caps_cfg(mr);
	int ret = rp_host_facts(&cfg, r->base, r->len, facts, why);

	/* A read fence needs a region with FI_REMOTE_READ. */
	if (!ret && r->unreadable)
		facts->fence = RP_NO;
	return ret;
}

/* Determine the facts of the memory. why: the reason if not persistent. */
static int find_facts(struct rp_mr *mr, const struct fi_mr_attr *attr,
		      char why[WHY_ROOM])
{
	struct rp_dom *dom = mr->dom;
	struct rp_region *r = &mr->region;
	char obstacle[RP_WHY_LEN];
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
	if (!rp_private_is_possible(dom->base_info, why))
		return -FI_EOPNOTSUPP;
	ret = find_native_flush(dom, &mr->native, why);
	if (ret)
		return ret;
	rp_watch_record(&r->watch);
	ret = rp_watch_end(rp_mr_find_facts(mr, &r->facts, r->why), r->why);
	if (ret) {
		strcpy(why, r->why);
		return ret;
	}
	ret = rp_region_choose(r, rp_params.method, obstacle);
	if (ret)
		snprintf(why, WHY_ROOM, "%s%s%s; %s", r->why,
			 *obstacle ? "; " : "", obstacle, r->choice.remedy);
	return ret;
}

static int make_persistent(struct rp_mr *mr)
{
	struct rp_region *r = &mr->region;
	const struct rp_choice first =
		rp_method_best(&r->facts, RP_METHODS_BUILT);

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
	return rp_region_open(r, rp_host_flusher(r->base, r->len));
}

static int open_requested_pmem(struct rp_mr *mr, const struct fi_mr_attr *attr)
{
	char why[WHY_ROOM];
	int ret = find_facts(mr, attr, why);

	if (!ret)
		return make_persistent(mr);
	RP_WARN(MR, "FI_RMA_PMEM refused: %s\n", why);
	return ret;
}

/* FI_OFI_RPMEM_COMMIT_WRITES: persistence for files without FI_RMA_PMEM. */
static int open_implicit_pmem(struct rp_mr *mr, const struct fi_mr_attr *attr)
{
	const struct rp_caps_cfg cfg = caps_cfg(mr);
	enum rp_intent intent = RP_INTENT_VOLATILE, here;
	char why[WHY_ROOM];
	int ret = 0;

	for (size_t i = 0; i < attr->iov_count && !ret; i++) {
		if (!attr->mr_iov[i].iov_len)
			continue;
		ret = rp_host_intent(&cfg, attr->mr_iov[i].iov_base,
				     attr->mr_iov[i].iov_len, &here, why);
		if (!ret && here > intent)
			intent = here;
	}
	if (ret) {
		RP_WARN(MR, "FI_OFI_RPMEM_COMMIT_WRITES: %s\n", why);
		return ret;
	}
	if (intent == RP_INTENT_VOLATILE)
		return 0;
	ret = find_facts(mr, attr, why);
	if (!ret && !mr->dom->makes_keys) {
		strcpy(why, "the hints do not let the provider make the keys "
			    "(FI_MR_PROV_KEY)");
		ret = -FI_EKEYREJECTED;
	}
	switch (rp_caps_implicit(intent, !ret, mr->region.choice.class,
				 rp_params.required)) {
	case RP_IMPLICIT_ORDINARY:
		/* Only warn: MPI libraries also register their own memory. */
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
	case RP_IMPLICIT_PERSISTENT:
		mr->persistent = true;
		return make_persistent(mr);
	case RP_IMPLICIT_REFUSED:
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

/* Log that the device refused the registration, with the reason if known. */
static void warn_device_refusal(const struct rp_mr *mr, int ret)
{
	const struct rp_facts *f = &mr->region.facts;
	const bool file =
		f->placement != RP_PLACE_CPU_USER &&
		(f->memory == RP_MEM_DAX || f->memory == RP_MEM_DAX_SYNC) &&
		f->fs_name[0];

	if (mr->persistent)
		RP_WARN(MR, "FI_RMA_PMEM refused by %s: %s (%s)%s\n",
			mr->dom->fabric->base_name, mr->region.why,
			fi_strerror(-ret),
			file ? "; an adapter cannot hold on to files of a DAX "
			       "file system: use a devdax device"
			     : "");
}

/* Add the region to the agent, so that peers can access it. */
static int region_serve(struct rp_mr *mr)
{
	struct rp_dom *dom = mr->dom;
	char why[RP_WHY_LEN];
	uint16_t port;
	int ret;

	pthread_mutex_lock(&dom->lock);
	if (dom->nremote_cntrs) {
		RP_WARN(MR, "an endpoint counts what peers write "
			    "(FI_REMOTE_WRITE): FI_RMA_PMEM is refused\n");
		ret = -FI_EOPNOTSUPP;
		goto unlock;
	}
	ret = rp_target_open(dom, &port, why);
	if (ret) {
		RP_WARN(MR, "FI_RMA_PMEM refused: %s\n", why);
		goto unlock;
	}
	ret = rp_target_reg(mr);
	if (ret) {
		warn_device_refusal(mr, ret);
		goto unlock;
	}
	ret = rp_agent_region_add_new_key(dom->agent, &mr->region, port,
					  rp_host_random);
	if (ret) {
		rp_target_dereg(mr);
		goto unlock;
	}
	mr->fid.key = mr->region.key;
	LIST_INSERT_HEAD(&dom->persistent_mrs, mr, link);
	dom->npersistent_mrs++;
	mr->in_agent = true;
unlock:
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

struct rp_region *rp_mr_find_local(struct rp_dom *dom, const void *buf,
				   size_t len, enum rp_class required,
				   const char **why)
{
	const uint64_t at = (uintptr_t)buf;
	struct rp_mr *mr;

	*why = "is in no registered persistent region";
	LIST_FOREACH (mr, &dom->persistent_mrs, link) {
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
	int ret = 0;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr || !attr->iov_count)
		return -FI_EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->dom = dom;
	mr->persistent = flags & FI_RMA_PMEM;
	mr->region.writable = attr->access & FI_REMOTE_WRITE;
	mr->region.unreadable = !(attr->access & FI_REMOTE_READ);
	mr->access = attr->access & (FI_REMOTE_WRITE | FI_REMOTE_READ);
	if (mr->persistent)
		ret = open_requested_pmem(mr, attr);
	else if (rp_params.commit_writes && (attr->access & FI_REMOTE_WRITE))
		ret = open_implicit_pmem(mr, attr);
	if (ret)
		goto free;
	flags &= ~FI_RMA_PMEM;
	ret = mr->persistent && dom->makes_keys
		      ? base_reg_local(dom, attr, flags, &mr->base)
		      : base_reg(dom, attr, flags, &mr->base);
	if (ret) {
		warn_device_refusal(mr, ret);
		goto pmem;
	}
	if (mr->persistent && dom->makes_keys)
		ret = region_serve(mr);
	else
		mr->fid.key = fi_mr_key(mr->base);
	if (ret)
		goto base;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.mem_desc = mr->base ? fi_mr_desc(mr->base) : NULL;
	atomic_fetch_add(&dom->refs, 1);
	*out = &mr->fid;
	return 0;
base:
	if (mr->base)
		fi_close(&mr->base->fid);
pmem:
	rp_pmem_delete(mr->region.pmem);
free:
	rp_watch_free(&mr->region.watch);
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
