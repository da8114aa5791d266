// SPDX-License-Identifier: BSD-2-Clause
/* A registration and its method; the table of live ones; the range check. */
#include <errno.h>

#include "core/ranges.h"
#include "core/region.h"

int rp_region_choose(struct rp_region *r, const char *forced, char *obstacle)
{
	r->choice = rp_method_for_region(&r->facts, forced, obstacle);
	if (forced && *forced)
		r->forced = r->choice.method;
	return r->choice.method == RP_METHOD_REFUSED ? -EOPNOTSUPP : 0;
}

int rp_region_open(struct rp_region *r, const struct rp_pmem_ops *ops)
{
	int ret = rp_pmem_new(r->base, r->len,
			      rp_method_by_agent(&r->facts, r->choice).method,
			      &r->facts.file, ops, &r->pmem);

	if (ret)
		return ret;
	if (rp_facts_is_devdax(&r->facts))
		rp_pmem_keep_populated(r->pmem);
	if (r->facts.anonymous)
		rp_pmem_set_anonymous(r->pmem);
	return 0;
}

int rp_regions_add(struct rp_regions *t, struct rp_region *r)
{
	struct rp_region *old;
	bool oom = false;

	HASH_FIND(hh, t->by_key, &r->key, sizeof(r->key), old);
	if (old)
		return -EEXIST;
	HASH_ADD(hh, t->by_key, key, sizeof(r->key), r);
	return oom ? -ENOMEM : 0;
}

void rp_regions_del(struct rp_regions *t, struct rp_region *r)
{
	HASH_DEL(t->by_key, r);
}

struct rp_region *rp_regions_find(const struct rp_regions *t, uint64_t key,
				  enum rp_status *st)
{
	struct rp_region *r;

	HASH_FIND(hh, t->by_key, &key, sizeof(key), r);
	if (!r)
		*st = RP_ST_STALE_KEY;
	return r;
}

enum rp_status rp_region_check_range(const struct rp_region *r, uint64_t addr,
				     uint64_t len, uint64_t *off)
{
	if (!len || addr > UINT64_MAX - len)
		return RP_ST_WRAP;
	if (!rp_range_inside(addr, len, r->addr, r->len))
		return RP_ST_RANGE;
	*off = addr - r->addr;
	return RP_ST_OK;
}

enum rp_status rp_region_check(const struct rp_region *r, uint64_t addr,
			       uint64_t len, bool durable,
			       enum rp_class required, uint64_t *off)
{
	enum rp_status st;
	uint64_t at;

	if (durable && !r->pmem)
		return RP_ST_VOLATILE;
	st = rp_region_check_range(r, addr, len, &at);
	if (st != RP_ST_OK)
		return st;
	if (durable && r->choice.class < required)
		return RP_ST_CLASS;
	if (durable && r->choice.method == RP_METHOD_REFUSED)
		return RP_ST_NO_METHOD;
	if (durable && r->failed)
		return RP_ST_REGION_FAILED;
	*off = at;
	return RP_ST_OK;
}
