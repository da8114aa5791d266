// SPDX-License-Identifier: BSD-2-Clause
/* How a flush of a peer's region is executed, from its descriptor alone. */
#include <errno.h>

#include "core/remote_flush.h"

#define FLUSH_TYPES (RP_DESC_GLOBAL | RP_DESC_PERSISTENT)

/* Methods that the target's agent carries out. */
#define AGENT_METHODS                                                          \
	(RP_METHOD_BIT(RP_METHOD_AGENT_SFENCE) |                               \
	 RP_METHOD_BIT(RP_METHOD_AGENT_CLWB) |                                 \
	 RP_METHOD_BIT(RP_METHOD_AGENT_MSYNC) |                                \
	 RP_METHOD_BIT(RP_METHOD_AGENT_CLWB_MSYNC))

#define LONGEST_MR UINT32_MAX /* rxe truncates longer regions silently */

/* The RDMA features that both devices, the region and the queue pair have. */
static unsigned int native_features(const struct rp_desc *d, unsigned int here)
{
	return here & d->native & d->region & d->qp;
}

/*
 * Does a write become visible only after all earlier writes? A CPU copies in
 * order; writes that a NIC has buffered may pass each other.
 */
static bool is_placed_in_order(const struct rp_desc *d)
{
	return d->placement == RP_PLACE_CPU_USER ||
	       d->placement == RP_PLACE_CPU_KERNEL;
}

/* Does a read fence make earlier writes visible to the target's CPU? */
static bool is_fenced_by_read(const struct rp_desc *d)
{
	return d->fence == RP_YES || is_placed_in_order(d);
}

void rp_remote_region_init(struct rp_remote_region *r, const struct rp_desc *d,
			   const struct rp_remote_cfg *cfg)
{
	const unsigned int native = native_features(d, cfg->native);
	const bool reads = d->region & d->qp & RP_DESC_READ;
	unsigned int built = RP_METHOD_BIT(RP_METHOD_NATIVE);
	const struct rp_facts facts = {
		.memory = d->memory,
		.placement = d->placement,
		.domain = d->domain,
		.fence = d->fence,
		/* Both ends of this very queue pair have confirmed FLUSH. */
		.native = native & RP_DESC_PERSISTENT ? RP_YES : RP_NO,
		.fs_trusted = d->fs_trusted,
		.limit = d->limit,
		/* The descriptor confirms the facts, as an agent would. */
		.agent = true,
	};

	*r = (struct rp_remote_region){
		.d = *d,
		.global = RP_METHOD_REFUSED,
		.required = cfg->required,
		/* The agent can flush only bytes that have left the NIC. */
		.agent = cfg->agent && d->key && reads && is_fenced_by_read(d),
		.atomic = native & RP_DESC_ATOMIC_WRITE,
	};
	r->ring = r->agent && cfg->ring && (d->qp & RP_DESC_WRITE) &&
		  is_placed_in_order(d);
	/* A read fence, behind the writes, proves delivery too. */
	if (reads)
		built |= RP_METHOD_BIT(RP_METHOD_DELIVERY) |
			 RP_METHOD_BIT(RP_METHOD_FENCE);
	if (r->agent)
		built |= AGENT_METHODS;
	if (cfg->forced != RP_METHOD_REFUSED)
		built &= RP_METHOD_BIT(cfg->forced);
	r->persistent = rp_method_choose(&facts, cfg->required, built);
	/* GLOBAL: FLUSH or a read fence gets bytes out of a NIC. */
	if ((native & RP_DESC_GLOBAL) &&
	    (built & RP_METHOD_BIT(RP_METHOD_NATIVE)))
		r->global = RP_METHOD_NATIVE;
	/* A forced method other than NATIVE restricts only PERSISTENT. */
	else if (reads && is_fenced_by_read(d) &&
		 cfg->forced != RP_METHOD_NATIVE &&
		 cfg->forced != RP_METHOD_MAX)
		r->global = RP_METHOD_FENCE;
}

static struct rp_flush refused_flush(int err)
{
	return (struct rp_flush){.kind = RP_FLUSH_REFUSED, .err = err};
}

/* One byte behind the region's end: a read that the target must refuse. */
static struct rp_flush refused_read(const struct rp_remote_region *r,
				    enum rp_flush_kind kind)
{
	return (struct rp_flush){
		.kind = kind,
		.addr = r->d.addr + r->d.length,
		.len = 1,
	};
}

static struct rp_flush fence_flush(const struct rp_remote_region *r,
				   uint64_t addr, uint64_t len)
{
	struct rp_flush f = {.kind = RP_FLUSH_READ, .addr = addr};

	/* A read of 0 bytes is no fence: read a byte of the region. */
	if (!len) {
		f.addr = r->d.addr;
		len = 1;
	}
	f.len = len < RP_FENCE_MAX_LEN ? (uint32_t)len : RP_FENCE_MAX_LEN;
	return f;
}

static struct rp_flush agent_flush(const struct rp_remote_region *r,
				   uint64_t addr, uint64_t len)
{
	struct rp_flush f = fence_flush(r, addr, len);

	/* The agent has nothing to flush in an empty range. */
	if (!len)
		return f;
	f.kind = RP_FLUSH_AGENT;
	f.agent_addr = addr;
	f.agent_len = len;
	return f;
}

struct rp_flush rp_flush_decide(const struct rp_remote_region *r, uint64_t addr,
				uint64_t len, unsigned int type,
				unsigned int whole)
{
	const struct rp_desc *d = &r->d;
	enum rp_method method = r->global;

	/* rxe accepts such arguments, with undefined results. */
	if (!type || (type & ~FLUSH_TYPES) || whole > 1)
		return refused_flush(-EINVAL);
	if (!whole && len > RP_RANGE_MAX_LEN)
		return refused_flush(-EMSGSIZE);

	/* The checks of the target's device, in the same order. */
	if ((d->qp & type) != type)
		return refused_read(r, RP_FLUSH_QP_FORBIDS);
	if ((d->region & type) != type)
		return refused_read(r, RP_FLUSH_REGION_FORBIDS);
	if (whole) {
		addr = d->addr;
		len = d->length;
	} else if (addr < d->addr || addr - d->addr > d->length ||
		   len > d->length - (addr - d->addr)) {
		return refused_read(r, RP_FLUSH_REGION_FORBIDS);
	}

	if (type & RP_DESC_PERSISTENT) {
		method = r->persistent.method;
		/* One request must give both visibility and persistence. */
		if ((type & RP_DESC_GLOBAL) &&
		    (r->global == RP_METHOD_REFUSED ||
		     (method == RP_METHOD_NATIVE &&
		      r->global != RP_METHOD_NATIVE)))
			return refused_flush(-EOPNOTSUPP);
	}
	switch (method) {
	case RP_METHOD_NATIVE:
		if (whole && d->length > LONGEST_MR)
			return refused_flush(-EMSGSIZE);
		return (struct rp_flush){.kind = RP_FLUSH_NATIVE};
	case RP_METHOD_DELIVERY:
	case RP_METHOD_FENCE:
		return fence_flush(r, addr, len);
	default:
		break;
	}
	if (!(RP_METHOD_BIT(method) & AGENT_METHODS))
		return refused_flush(-EOPNOTSUPP);
	return agent_flush(r, addr, len);
}

struct rp_flush rp_atomic_write_decide(const struct rp_remote_region *r,
				       uint64_t addr, bool agent_busy)
{
	const struct rp_desc *d = &r->d;

	if (addr % sizeof(uint64_t))
		return refused_flush(-EINVAL);
	if (!(d->qp & RP_DESC_WRITE))
		return refused_read(r, RP_FLUSH_QP_FORBIDS);
	if (!(d->region & RP_DESC_WRITE) || addr < d->addr ||
	    d->length < sizeof(uint64_t) ||
	    addr - d->addr > d->length - sizeof(uint64_t))
		return refused_read(r, RP_FLUSH_REGION_FORBIDS);
	if (r->atomic && !agent_busy)
		return (struct rp_flush){.kind = RP_FLUSH_NATIVE};
	/* Only the agent's store of 8 bytes is known to be atomic. */
	if (!r->agent)
		return refused_flush(-EOPNOTSUPP);
	return agent_flush(r, addr, sizeof(uint64_t));
}
