// SPDX-License-Identifier: BSD-2-Clause
/* How the shim executes a flush, for descriptors of all kinds. */
#include <errno.h>

#include <criterion/criterion.h>

#include "core/remote_flush.h"

#define G    RP_DESC_GLOBAL
#define P    RP_DESC_PERSISTENT
#define ALL  (RP_DESC_GLOBAL | RP_DESC_PERSISTENT | RP_DESC_READ | RP_DESC_WRITE)
#define BOTH (RP_DESC_GLOBAL | RP_DESC_PERSISTENT)

#define AT  0x10000u
#define LEN 4096u

static struct rp_desc devdax_desc(enum rp_placement placement,
				  enum rp_domain domain)
{
	return (struct rp_desc){
		.addr = AT,
		.length = LEN,
		.rkey = 7,
		.memory = RP_MEM_DAX_SYNC,
		.placement = placement,
		.domain = domain,
		.fence = RP_YES,
		.fs_trusted = RP_YES,
		.region = ALL,
		.qp = ALL,
		.native = BOTH,
	};
}

static struct rp_remote_region remote_of(struct rp_desc d, unsigned int native)
{
	const struct rp_remote_cfg cfg = {
		.native = native,
		.required = RP_CLASS_POWER,
	};
	struct rp_remote_region r;

	rp_remote_region_init(&r, &d, &cfg);
	return r;
}

/* FLUSH needs device, registration and queue pair at both ends. */
Test(remote, native_needs_both_ends)
{
	struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_MEMCTRL);
	struct rp_remote_region r = remote_of(d, BOTH);

	cr_assert_eq(r.persistent.method, RP_METHOD_NATIVE);
	cr_assert_eq(r.persistent.class, RP_CLASS_POWER);
	cr_assert_eq(r.global, RP_METHOD_NATIVE);
	for (int i = 0; i < 4; i++) {
		struct rp_desc e = d;
		unsigned int here = BOTH;

		switch (i) {
		case 0:
			here = RP_DESC_GLOBAL;
			break;
		case 1:
			e.native = RP_DESC_GLOBAL;
			break;
		case 2:
			e.region &= ~RP_DESC_PERSISTENT;
			break;
		case 3:
			e.qp &= ~RP_DESC_PERSISTENT;
			break;
		}
		r = remote_of(e, here);
		cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED, "%d", i);
		cr_assert_eq(r.global, RP_METHOD_NATIVE, "%d", i);
	}
	d.native = RP_DESC_PERSISTENT;
	r = remote_of(d, BOTH);
	cr_assert_eq(r.persistent.method, RP_METHOD_NATIVE);
	cr_assert_eq(r.global, RP_METHOD_FENCE);
	/* One request cannot use FLUSH for one of its two types. */
	cr_assert_eq(rp_flush_decide(&r, AT, 8, G | P, 0).err, -EOPNOTSUPP);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 0).kind, RP_FLUSH_NATIVE);
}

/* Without FLUSH the method table decides, without the agent's methods. */
Test(remote, table)
{
	static const struct {
		enum rp_memory memory;
		enum rp_placement placement;
		enum rp_domain domain;
		enum rp_tri fence;
		enum rp_method want;
	} rows[] = {
		{RP_MEM_DAX_SYNC, RP_PLACE_CPU_KERNEL, RP_DOMAIN_MEMCTRL,
		 RP_YES, RP_METHOD_REFUSED},
		{RP_MEM_DAX_SYNC, RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE,
		 RP_NO, RP_METHOD_DELIVERY},
		{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_CPUCACHE,
		 RP_YES, RP_METHOD_FENCE},
		{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_CPUCACHE,
		 RP_UNKNOWN, RP_METHOD_REFUSED},
		{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL, RP_YES,
		 RP_METHOD_REFUSED},
		{RP_MEM_DAX_SYNC, RP_PLACE_DMA_MEMORY, RP_DOMAIN_MEMCTRL,
		 RP_YES, RP_METHOD_FENCE},
		{RP_MEM_DAX_SYNC, RP_PLACE_DMA_MEMORY, RP_DOMAIN_UNKNOWN,
		 RP_YES, RP_METHOD_REFUSED},
		{RP_MEM_DAX, RP_PLACE_DMA_MEMORY, RP_DOMAIN_SYSTEM, RP_YES,
		 RP_METHOD_REFUSED},
		{RP_MEM_FILE, RP_PLACE_CPU_KERNEL, RP_DOMAIN_SYSTEM, RP_YES,
		 RP_METHOD_REFUSED},
		{RP_MEM_TMPFS, RP_PLACE_CPU_KERNEL, RP_DOMAIN_SYSTEM, RP_YES,
		 RP_METHOD_REFUSED},
		{RP_MEM_ANON, RP_PLACE_CPU_KERNEL, RP_DOMAIN_SYSTEM, RP_YES,
		 RP_METHOD_REFUSED},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_desc d =
			devdax_desc(rows[i].placement, rows[i].domain);
		struct rp_remote_region r;

		d.memory = rows[i].memory;
		d.fence = rows[i].fence;
		r = remote_of(d, 0);
		cr_assert_eq(r.persistent.method, rows[i].want, "row %zu", i);
		cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 0).kind,
			     rows[i].want ? RP_FLUSH_READ : RP_FLUSH_REFUSED);
		if (!rows[i].want)
			cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 0).err,
				     -EOPNOTSUPP);
	}
}

/* An untrusted file system makes no promise. */
Test(remote, untrusted)
{
	struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE);

	for (enum rp_tri t = RP_UNKNOWN; t <= RP_YES; t++) {
		d.fs_trusted = t;
		cr_assert_eq(remote_of(d, 0).persistent.method,
			     t == RP_YES ? RP_METHOD_DELIVERY
					 : RP_METHOD_REFUSED);
		cr_assert_eq(remote_of(d, BOTH).persistent.method,
			     t == RP_YES ? RP_METHOD_NATIVE
					 : RP_METHOD_REFUSED);
	}
}

Test(remote, global)
{
	struct rp_desc d = devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL);

	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_FENCE);
	d.fence = RP_UNKNOWN;
	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_REFUSED);
	d.placement = RP_PLACE_CPU_KERNEL;
	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_FENCE);
	d.placement = RP_PLACE_CPU_USER;
	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_FENCE);
	d.qp &= ~RP_DESC_READ;
	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_REFUSED);
	d.qp |= RP_DESC_READ;
	d.region &= ~RP_DESC_READ;
	cr_assert_eq(remote_of(d, 0).global, RP_METHOD_REFUSED);
}

/* Persistence can be reached, visibility cannot: a flush of both is refused. */
Test(remote, both_kinds)
{
	struct rp_desc d = devdax_desc(RP_PLACE_DMA_MEMORY, RP_DOMAIN_SYSTEM);
	struct rp_remote_region r;

	d.fence = RP_UNKNOWN;
	r = remote_of(d, 0);
	cr_assert_eq(r.persistent.method, RP_METHOD_DELIVERY);
	cr_assert_eq(r.global, RP_METHOD_REFUSED);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 0).kind, RP_FLUSH_READ);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, G | P, 0).err, -EOPNOTSUPP);
}

/* A fence is a read; delivery is proved by a read, too. */
Test(remote, nothing_without_reads)
{
	struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE);
	struct rp_remote_region r;

	d.region &= ~RP_DESC_READ;
	r = remote_of(d, 0);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	cr_assert_eq(remote_of(d, BOTH).persistent.method, RP_METHOD_NATIVE);
}

Test(remote, class_and_force)
{
	struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE);
	struct rp_remote_cfg cfg = {.native = BOTH,
				    .required = RP_CLASS_POWER,
				    .forced = RP_METHOD_DELIVERY};
	struct rp_remote_region r;

	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_DELIVERY);
	cr_assert_eq(r.global, RP_METHOD_FENCE);
	cfg.forced = RP_METHOD_NATIVE;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_NATIVE);
	cfg.native = RP_DESC_PERSISTENT;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.global, RP_METHOD_REFUSED);
	cfg.native = BOTH;
	/* Without an agent its method is refused; visibility needs no agent. */
	cfg.forced = RP_METHOD_AGENT_CLWB;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	cr_assert_eq(r.global, RP_METHOD_FENCE);
	cfg.forced = RP_METHOD_MAX;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	cr_assert_eq(r.global, RP_METHOD_REFUSED);
	cfg.forced = RP_METHOD_REFUSED;
	d.limit = RP_LIMIT_PROCESS;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	cfg.required = RP_CLASS_PROCESS;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_NATIVE);
	cr_assert_eq(r.persistent.class, RP_CLASS_PROCESS);
}

/* rxe accepts even type 0 and level 2. */
Test(remote, arguments)
{
	struct rp_remote_region r = remote_of(
		devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE), BOTH);

	for (unsigned int type = 0; type < 256; type++)
		for (unsigned int level = 0; level < 256; level++) {
			struct rp_flush f = rp_flush_decide(
				&r, AT, 8, (uint8_t)type, (uint8_t)level);
			bool good = type >= 1 && type <= 3 && level <= 1;

			cr_assert_eq(f.kind,
				     good ? RP_FLUSH_NATIVE : RP_FLUSH_REFUSED);
			if (!good)
				cr_assert_eq(f.err, -EINVAL);
		}
}

/* In the order of the device's checks: queue pair, region, range. */
Test(remote, refused_by_the_target)
{
	static const struct {
		unsigned int region, qp;
		uint64_t addr, len;
		uint8_t type;
		enum rp_flush_kind want;
	} cases[] = {
		{ALL, ALL & ~RP_DESC_PERSISTENT, AT, 8, P, RP_FLUSH_QP_FORBIDS},
		{ALL, ALL & ~RP_DESC_GLOBAL, AT, 8, G | P, RP_FLUSH_QP_FORBIDS},
		{0, 0, 0, 8, P, RP_FLUSH_QP_FORBIDS},
		{ALL & ~RP_DESC_PERSISTENT, ALL, AT, 8, P,
		 RP_FLUSH_REGION_FORBIDS},
		{ALL & ~RP_DESC_GLOBAL, ALL, AT, 8, G, RP_FLUSH_REGION_FORBIDS},
		{ALL, ALL, AT - 1, 8, P, RP_FLUSH_REGION_FORBIDS},
		{ALL, ALL, AT + LEN - 7, 8, P, RP_FLUSH_REGION_FORBIDS},
		{ALL, ALL, AT + LEN, 1, P, RP_FLUSH_REGION_FORBIDS},
		{ALL, ALL, AT + LEN + 1, 0, P, RP_FLUSH_REGION_FORBIDS},
		{ALL, ALL, UINT64_MAX - 3, 8, P, RP_FLUSH_REGION_FORBIDS},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned int native = 0; native <= BOTH; native += BOTH) {
			struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL,
						       RP_DOMAIN_CPUCACHE);
			struct rp_remote_region r;
			struct rp_flush f;

			d.region = (uint16_t)cases[i].region;
			d.qp = (uint16_t)cases[i].qp;
			r = remote_of(d, native);
			f = rp_flush_decide(&r, cases[i].addr, cases[i].len,
					    cases[i].type, 0);
			cr_assert_eq(f.kind, cases[i].want, "case %zu", i);
			/* The read is outside: the device refuses it. */
			cr_assert_eq(f.addr, AT + LEN);
			cr_assert_eq(f.len, 1u);
		}
}

Test(remote, fences)
{
	static const struct {
		uint64_t addr, len;
		uint8_t level;
		uint64_t at;
		uint32_t read;
	} cases[] = {
		{AT + 100, 1, 0, AT + 100, 1},
		{AT + 100, 8, 0, AT + 100, 8},
		{AT + 100, 500, 0, AT + 100, 8},
		{AT + LEN - 3, 3, 0, AT + LEN - 3, 3},
		{AT, LEN, 0, AT, 8},
		/* An empty flush is still a read, inside the region. */
		{AT + 100, 0, 0, AT, 1},
		{AT + LEN, 0, 0, AT, 1},
		/* A flush of the whole region ignores address and length. */
		{0, 0, 1, AT, 8},
		{UINT64_MAX, UINT64_MAX, 1, AT, 8},
	};
	struct rp_remote_region r = remote_of(
		devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_CPUCACHE), 0);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (uint8_t type = 1; type <= 3; type++) {
			struct rp_flush f =
				rp_flush_decide(&r, cases[i].addr, cases[i].len,
						type, cases[i].level);

			cr_assert_eq(f.kind, RP_FLUSH_READ, "case %zu", i);
			cr_assert_eq(f.addr, cases[i].at, "case %zu", i);
			cr_assert_eq(f.len, cases[i].read, "case %zu", i);
		}
}

/* A device would cut longer flushes silently. */
Test(remote, long_flushes_are_refused)
{
	struct rp_desc d = devdax_desc(RP_PLACE_CPU_KERNEL, RP_DOMAIN_CPUCACHE);
	struct rp_remote_region r;

	d.length = 1ull << 32;
	r = remote_of(d, BOTH);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 1).err, -EMSGSIZE);
	cr_assert_eq(rp_flush_decide(&r, AT, 1ull << 31, P, 0).kind,
		     RP_FLUSH_NATIVE);
	cr_assert_eq(rp_flush_decide(&r, AT, (1ull << 31) + 1, P, 0).err,
		     -EMSGSIZE);
	r = remote_of(d, 0);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 1).kind, RP_FLUSH_READ);
	cr_assert_eq(rp_flush_decide(&r, AT, (1ull << 31) + 1, P, 0).err,
		     -EMSGSIZE);
	d.length--;
	r = remote_of(d, BOTH);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, P, 1).kind, RP_FLUSH_NATIVE);
}

static struct rp_remote_region remote_with_agent(struct rp_desc d,
						 unsigned int native)
{
	const struct rp_remote_cfg cfg = {
		.native = native,
		.required = RP_CLASS_POWER,
		.agent = true,
	};
	struct rp_remote_region r;

	if (!d.key)
		d.key = 0x313233e500000000 | d.rkey;
	rp_remote_region_init(&r, &d, &cfg);
	return r;
}

/* The agent is used if nothing cheaper works. */
Test(remote, agent)
{
	struct rp_desc d = devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL);
	struct rp_remote_region r = remote_with_agent(d, 0);
	struct rp_flush f = rp_flush_decide(&r, AT + 3, 99, P, 0);

	cr_assert_eq(r.persistent.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(f.kind, RP_FLUSH_AGENT);
	cr_assert_eq(f.addr, AT + 3);
	cr_assert_eq(f.len, RP_FENCE_MAX_LEN);
	cr_assert_eq(f.agent_addr, AT + 3);
	cr_assert_eq(f.agent_len, 99u);
	f = rp_flush_decide(&r, 0, 0, G | P, 1);
	cr_assert_eq(f.kind, RP_FLUSH_AGENT);
	cr_assert_eq(f.agent_addr, AT);
	cr_assert_eq(f.agent_len, LEN);
	cr_assert_eq(rp_flush_decide(&r, AT, 0, P, 0).kind, RP_FLUSH_READ);
	cr_assert_eq(rp_flush_decide(&r, AT, 8, G, 0).kind, RP_FLUSH_READ);
	cr_assert_eq(rp_flush_decide(&r, AT + LEN, 8, P, 0).kind,
		     RP_FLUSH_REGION_FORBIDS);
	r = remote_with_agent(d, BOTH);
	cr_assert_eq(r.persistent.method, RP_METHOD_NATIVE);
	d.domain = RP_DOMAIN_CPUCACHE;
	r = remote_with_agent(d, 0);
	cr_assert_eq(r.persistent.method, RP_METHOD_FENCE);
	d.memory = RP_MEM_DAX;
	cr_assert_eq(remote_with_agent(d, 0).persistent.method,
		     RP_METHOD_AGENT_CLWB_MSYNC);
	d.memory = RP_MEM_FILE;
	cr_assert_eq(remote_with_agent(d, 0).persistent.method,
		     RP_METHOD_REFUSED);
}

/* The agent flushes placed bytes only, so it needs a read fence before. */
Test(remote, agent_needs_the_fence)
{
	struct rp_desc d = devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL);
	struct rp_remote_cfg cfg = {.required = RP_CLASS_POWER, .agent = true};
	struct rp_remote_region r;

	for (int t = RP_UNKNOWN; t <= RP_NO; t++) {
		d.fence = t;
		d.placement = RP_PLACE_DMA_CACHE;
		cr_assert_eq(remote_with_agent(d, 0).persistent.method,
			     RP_METHOD_REFUSED);
		d.placement = RP_PLACE_UNKNOWN;
		cr_assert_eq(remote_with_agent(d, 0).persistent.method,
			     RP_METHOD_REFUSED);
		d.placement = RP_PLACE_CPU_KERNEL;
		cr_assert_eq(remote_with_agent(d, 0).persistent.method,
			     RP_METHOD_AGENT_CLWB);
	}
	d.fence = RP_YES;
	d.qp &= ~RP_DESC_READ;
	cr_assert_eq(remote_with_agent(d, 0).persistent.method,
		     RP_METHOD_REFUSED);
	d.qp |= RP_DESC_READ;
	/* The descriptor has no key, or there is no agent. */
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	d.key = 0x313233e500000007;
	cfg.agent = false;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
	/* A forced method is used or refused, never replaced. */
	cfg.agent = true;
	cfg.forced = RP_METHOD_AGENT_CLWB;
	d.domain = RP_DOMAIN_CPUCACHE;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_AGENT_CLWB);
	cfg.forced = RP_METHOD_AGENT_MSYNC;
	rp_remote_region_init(&r, &d, &cfg);
	cr_assert_eq(r.persistent.method, RP_METHOD_REFUSED);
}

Test(remote, atomic_writes)
{
	struct rp_desc d = devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL);
	struct rp_remote_region r = remote_with_agent(d, 0),
				none = remote_of(d, 0);
	struct rp_flush f = rp_atomic_write_decide(&r, AT + LEN - 8, false);

	cr_assert_eq(f.kind, RP_FLUSH_AGENT);
	cr_assert_eq(f.addr, AT + LEN - 8);
	cr_assert_eq(f.len, 8u);
	cr_assert_eq(f.agent_addr, AT + LEN - 8);
	cr_assert_eq(f.agent_len, 8u);
	cr_assert_eq(rp_atomic_write_decide(&none, AT, false).err, -EOPNOTSUPP);
	cr_assert_eq(rp_atomic_write_decide(&r, AT + 4, false).err, -EINVAL);
	cr_assert_eq(rp_atomic_write_decide(&r, AT + LEN, false).kind,
		     RP_FLUSH_REGION_FORBIDS);
	cr_assert_eq(rp_atomic_write_decide(&r, AT - 8, false).kind,
		     RP_FLUSH_REGION_FORBIDS);
	d.length = 7;
	r = remote_with_agent(d, 0);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, false).kind,
		     RP_FLUSH_REGION_FORBIDS);
	d.length = LEN;
	d.region &= ~RP_DESC_WRITE;
	r = remote_with_agent(d, 0);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, false).kind,
		     RP_FLUSH_REGION_FORBIDS);
	d.qp &= ~RP_DESC_WRITE;
	r = remote_with_agent(d, 0);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, false).kind,
		     RP_FLUSH_QP_FORBIDS);
	/* Both ends have atomic writes: no request to the agent. */
	d = devdax_desc(RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL);
	d.region = d.qp = RP_DESC_ALL;
	d.native = RP_DESC_ATOMIC_WRITE;
	r = remote_with_agent(d, RP_DESC_ATOMIC_WRITE);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, false).kind,
		     RP_FLUSH_NATIVE);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, true).kind, RP_FLUSH_AGENT);
	r = remote_of(d, RP_DESC_ATOMIC_WRITE);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, true).err, -EOPNOTSUPP);
	r = remote_with_agent(d, 0);
	cr_assert_eq(rp_atomic_write_decide(&r, AT, false).kind,
		     RP_FLUSH_AGENT);
}
