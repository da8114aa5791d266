// SPDX-License-Identifier: BSD-2-Clause
/* Registrations: refusals, access rights at the device, descriptors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

static struct pair p;
static const struct pair_attr with_side = {.access = PERSISTENT, .sides = true};

TestSuite(shim_mr, .init = dev_start, .fini = dev_end);

static struct rpmem_mr *register_region(void *addr, unsigned int flushes)
{
	return rpmem_reg_mr(dev_pd(), addr, 4096, (int)(OPEN | flushes));
}

static void expect_refused(void *addr, unsigned int flushes, int err)
{
	errno = 0;
	cr_assert_null(register_region(addr, flushes));
	cr_assert_eq(errno, err, "%d", errno);
	cr_assert_eq(dev.open, 0);
}

static void expect_taken(void *addr, unsigned int flushes, unsigned int device)
{
	struct rpmem_mr *mr = register_region(addr, flushes);

	cr_assert(mr);
	cr_assert_eq(dev.reg_access, OPEN | device, "%x", dev.reg_access);
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	cr_assert_eq(dev.open, 0);
}

Test(shim_mr, volatile_memory)
{
	static uint8_t dram[4096];

	expect_refused(dram, PERSISTENT, EINVAL);
	expect_refused(dram, PERSISTENT | GLOBAL, EINVAL);
	/* Visibility needs no method; persistence has none here. */
	expect_taken(dram, GLOBAL, 0);
	expect_taken(dram, 0, 0);
}

/* A registration is refused if no method makes its memory durable. */
Test(shim_mr, memory_without_a_method_is_refused)
{
	dev.facts.memory = RP_MEM_UNKNOWN;
	expect_refused(dev.pmem, PERSISTENT, EOPNOTSUPP);
	/* DMA leaves pages clean, and msync writes back only dirty pages. */
	dev.facts.memory = RP_MEM_FILE;
	expect_refused(dev.pmem, PERSISTENT, EOPNOTSUPP);
	dev.facts.placement = RP_PLACE_CPU_USER;
	expect_taken(dev.pmem, PERSISTENT, 0);
}

/* The kernel refuses access rights that device or memory do not support. */
Test(shim_mr, device_gets_supported_rights)
{
	expect_taken(dev.pmem, PERSISTENT | GLOBAL, 0);
	dev.makes |= WITH_FLUSH;
	dev.caps = DEV_GLOBAL;
	expect_taken(dev.pmem, PERSISTENT | GLOBAL, GLOBAL);
	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	expect_taken(dev.pmem, PERSISTENT | GLOBAL, GLOBAL | PERSISTENT);
	expect_taken(dev.pmem, GLOBAL, GLOBAL);
	dev.facts.memory = RP_MEM_FILE;
	dev.facts.placement = RP_PLACE_CPU_USER;
	expect_taken(dev.pmem, PERSISTENT | GLOBAL, GLOBAL);
}

static struct rp_desc desc_of(unsigned int native)
{
	const struct pair_attr attr = {.access = PERSISTENT | GLOBAL,
				       .native = native};
	struct rp_desc d;

	pair_open(&p, &attr);
	cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
	cr_assert_eq(d.addr, (uintptr_t)dev.pmem);
	cr_assert_eq(d.length, DEV_BYTES);
	cr_assert_eq(d.rkey, p.rkey);
	cr_assert_eq(d.qp_num, p.b.qp->qp_num);
	pair_close(&p);
	return d;
}

/* A descriptor offers FLUSH if device, memory and registration have it. */
Test(shim_mr, native_is_in_the_descriptor)
{
	const unsigned int both = RP_DESC_GLOBAL | RP_DESC_PERSISTENT;

	cr_assert_eq(desc_of(GLOBAL | PERSISTENT).native & both, 0u);
	dev.makes |= WITH_FLUSH;
	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	cr_assert_eq(desc_of(GLOBAL | PERSISTENT).native & both, both);
	cr_assert_eq(desc_of(GLOBAL).native & both,
		     (unsigned int)RP_DESC_GLOBAL);
	cr_assert_eq(desc_of(0).native & both, 0u);
	/* FLUSH by the device does not write back the pages of a file. */
	dev.facts.memory = RP_MEM_FILE;
	dev.facts.placement = RP_PLACE_CPU_USER;
	cr_assert_eq(desc_of(GLOBAL | PERSISTENT).native & both,
		     (unsigned int)RP_DESC_GLOBAL);
}

/* A region that was registered without the FLUSH right offers no FLUSH. */
Test(shim_mr, registration_without_the_right_offers_no_flush)
{
	const struct pair_attr attr = {.access = PERSISTENT,
				       .native = PERSISTENT};
	struct rpmem_mr_desc desc;
	struct rpmem_mr *mr;
	struct rp_desc d;

	dev.makes |= WITH_FLUSH;
	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	pair_open(&p, &attr);
	/* The trial for FLUSH creates two objects before the registration. */
	dev.fail_creation = 3;
	mr = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
			  (int)(OPEN | PERSISTENT));
	cr_assert(mr);
	cr_assert_eq(dev.reg_access, OPEN);
	cr_assert_eq(rpmem_export_mr(mr, p.b.sqp, &desc), 0);
	cr_assert_eq(rp_desc_get(desc.bytes, &d), 0);
	cr_assert_eq(d.native & RP_DESC_PERSISTENT, 0u);
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	pair_close(&p);
}

/* A descriptor has the agent's key only if there is a side connection. */
Test(shim_mr, key_needs_a_side_connection)
{
	const struct pair_attr no_side = {.access = PERSISTENT};
	struct rp_desc d;

	pair_open(&p, &no_side);
	cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
	cr_assert_eq(d.key, 0u);
	/* ADR has no method without an agent. */
	cr_assert_str_eq(pair_method(&p), "refused");
	cr_assert_eq(pair_flush(&p, 1, 0, 64), EOPNOTSUPP);
	cr_assert_eq(pair_connect_sides(&p), 0);
	/* A descriptor that was made before the side connection has no key. */
	cr_assert_eq(rpmem_import_mr(p.a.sqp, &p.desc, NULL), 0);
	cr_assert_eq(pair_flush(&p, 1, 0, 64), EOPNOTSUPP);
	pair_import_region(&p);
	cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
	cr_assert_neq(d.key, 0u);
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_eq(dev.ndone > 0, true);
	pair_close(&p);
}

/* A queue pair in RESET or ERR gets no descriptor. */
Test(shim_mr, no_descriptor_for_unready_queue_pairs)
{
	struct rpmem_mr_desc desc;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct rp_desc d;

	pair_open(&p, &with_side);
	ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE);
	cr_assert_eq(rpmem_export_mr(p.mr, p.b.sqp, &desc), EINVAL);
	attr.qp_state = IBV_QPS_ERR;
	ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE);
	cr_assert_eq(rpmem_export_mr(p.mr, p.b.sqp, &desc), EINVAL);
	attr.qp_state = IBV_QPS_RTR;
	attr.max_dest_rd_atomic = 0;
	ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC);
	cr_assert_eq(rpmem_export_mr(p.mr, p.b.sqp, &desc), 0);
	cr_assert_eq(rp_desc_get(desc.bytes, &d), 0);
	cr_assert_eq(d.qp & RP_DESC_READ, 0);
	/* Neither a fence nor a request to the agent is possible. */
	cr_assert_eq(rpmem_import_mr(p.a.sqp, &desc, NULL), 0);
	cr_assert_eq(pair_flush(&p, 1, 0, 64), EOPNOTSUPP);
	pair_close(&p);
}

static bool is_watched(void)
{
	return rp_qp_of(p.b.sqp)->watched_by;
}

/* Only the agent of its own protection domain can fail a queue pair. */
Test(shim_mr, descriptor_needs_the_queue_pairs_protection_domain)
{
	const struct pair_attr attr = {.access = PERSISTENT};
	struct rpmem_mr_desc desc;
	struct rpmem_mr *mr;
	struct ibv_pd *pd;

	pair_open(&p, &attr);
	pd = ibv_alloc_pd(dev_pd()->context);
	mr = rpmem_reg_mr(pd, dev.pmem, DEV_BYTES, (int)(OPEN | PERSISTENT));
	cr_assert(mr);
	cr_assert_eq(rpmem_export_mr(mr, p.b.sqp, &desc), EINVAL);
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	/* No queue pair fails for a region without persistent flushes. */
	mr = rpmem_reg_mr(pd, dev.pmem, DEV_BYTES, (int)OPEN);
	cr_assert(mr);
	cr_assert_eq(rpmem_export_mr(mr, p.b.sqp, &desc), 0);
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	ibv_dealloc_pd(pd);
	pair_close(&p);
}

/* A weakening fails no queue pair on which no persistent flush succeeds. */
Test(shim_mr, queue_pairs_without_persistent_flushes_are_not_watched)
{
	const struct pair_attr visible = {.access = GLOBAL},
			       persistent = {.access = PERSISTENT};
	const struct rpmem_qp_attr attr = {.access = PERSISTENT};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct rpmem_mr_desc desc;
	struct rpmem_mr *mr;

	pair_open(&p, &visible);
	mr = register_region(dev.pmem, PERSISTENT);
	cr_assert(mr);
	cr_assert_eq(rpmem_export_mr(mr, p.b.sqp, &desc), 0);
	cr_assert_not(is_watched());
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	pair_close(&p);
	pair_open(&p, &persistent);
	cr_assert(is_watched());
	/* Nor is one that gets no descriptor. */
	cr_assert_eq(rpmem_detach_qp(p.b.sqp), 0);
	p.b.sqp = rpmem_attach_qp(p.b.qp, p.b.scq, &attr);
	ibv_modify_qp(p.b.qp, &reset, IBV_QP_STATE);
	cr_assert_eq(rpmem_export_mr(p.mr, p.b.sqp, &desc), EINVAL);
	cr_assert_not(is_watched());
	pair_close(&p);
}

/* If deregistration fails, device and agent keep the registration. */
Test(shim_mr, deregistration_fails)
{
	pair_open(&p, &with_side);
	dev.dereg_err = EBUSY;
	cr_assert_eq(rpmem_dereg_mr(p.mr), EBUSY);
	dev.dereg_err = 0;
	cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(dev_durable(0, 64, 'a'));
	pair_close(&p);
}

Test(shim_mr, registration_without_memory_leaves_nothing)
{
	int failed = 0;

	for (int n = 1; n < 8; n++) {
		struct rpmem_mr *mr;

		dev.fail_creation = n;
		mr = register_region(dev.pmem, PERSISTENT);
		failed += !mr;
		dev.fail_creation = 0;
		if (mr)
			cr_assert_eq(rpmem_dereg_mr(mr), 0);
		else
			cr_assert_eq(errno, ENOMEM);
		cr_assert_eq(dev.open, 0, "%d", n);
	}
	cr_assert_geq(failed, 3);
}

/* A forced method is used if it is one of the agent's; others are refused. */
Test(shim_mr, only_forced_methods_of_the_agent_are_used)
{
	setenv("FI_OFI_RPMEM_METHOD", "fence", 1);
	expect_taken(dev.pmem, PERSISTENT, 0);
	pair_open(&p, &with_side);
	cr_assert_str_eq(pair_method(&p), "refused");
	pair_close(&p);
	setenv("FI_OFI_RPMEM_METHOD", "agent-clwb", 1);
	pair_open(&p, &with_side);
	cr_assert_str_eq(pair_method(&p), "agent-clwb");
	pair_close(&p);
	unsetenv("FI_OFI_RPMEM_METHOD");
}
