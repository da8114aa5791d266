// SPDX-License-Identifier: BSD-2-Clause
/* Attaching to queue pairs: the device's own FLUSH, and refusals. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

#define WITH_ATOMIC (1u << 12)

TestSuite(shim_attach, .init = dev_start, .fini = dev_end);

static unsigned int attach_native(uint64_t caps, unsigned int makes)
{
	dev.caps = caps;
	dev.makes = BUILDERS | makes;
	return rp_device_native(dev_pd());
}

/* A capability alone is no FLUSH: a trial tests the library. */
Test(shim_attach, capability_and_trial)
{
	cr_assert_eq(attach_native(0, WITH_FLUSH | WITH_ATOMIC), 0u);
	cr_assert_eq(attach_native(DEV_GLOBAL | DEV_PERSISTENT, 0), 0u);
	cr_assert_eq(attach_native(DEV_ATOMIC_WRITE, WITH_FLUSH), 0u);
	cr_assert_eq(attach_native(DEV_GLOBAL, WITH_FLUSH),
		     (unsigned int)RP_DESC_GLOBAL);
	cr_assert_eq(attach_native(DEV_PERSISTENT, WITH_FLUSH | WITH_ATOMIC),
		     (unsigned int)RP_DESC_PERSISTENT);
	cr_assert_eq(attach_native(DEV_ATOMIC_WRITE, WITH_ATOMIC),
		     (unsigned int)RP_DESC_ATOMIC_WRITE);
	cr_assert_eq(dev.open, 0);
}

Test(shim_attach, a_trial_that_fails_is_none)
{
	for (int n = 1; n <= 2; n++) {
		dev.fail_creation = n;
		cr_assert_eq(attach_native(DEV_PERSISTENT, WITH_FLUSH), 0u);
		cr_assert_eq(dev.open, 0);
	}
}

/* A queue pair made without FLUSH would refuse it, so flushes are reads. */
Test(shim_attach, a_queue_pair_without_flush_reads)
{
	static const struct {
		unsigned int ops;
		const char *method;
		int opcode;
	} cases[] = {
		{BUILDERS | WITH_FLUSH, "native", RPMEM_WC_FLUSH},
		{BUILDERS, "fence", IBV_WC_RDMA_READ},
		{0, "fence", IBV_WC_RDMA_READ},
	};

	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	dev.makes |= WITH_FLUSH;
	/* With this domain both FLUSH and a fence make bytes durable. */
	dev.facts.domain = RP_DOMAIN_CPUCACHE;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct pair_attr attr = {.ops = cases[i].ops,
					       .access = PERSISTENT,
					       .native = PERSISTENT};
		struct pair p;

		pair_open(&p, &attr);
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert_eq((int)dev.done[dev.ndone - 1].opcode,
			     cases[i].opcode, "%zu", i);
		/* With FLUSH too, a cheaper fence may be the method. */
		if (i)
			cr_assert_str_eq(pair_method(&p), cases[i].method);
		pair_close(&p);
	}
}

Test(shim_attach, bad_attributes_are_refused)
{
	struct ibv_cq *cq = ibv_create_cq(dev_pd()->context, 8, NULL, NULL, 0);
	struct ibv_cq *other =
		ibv_create_cq(dev_pd()->context, 8, NULL, NULL, 0);
	struct rpmem_cq *scq = rpmem_attach_cq(cq);
	struct ibv_qp *qp = dev_qp(cq, 0), *far = dev_qp(other, 0);
	struct ibv_qp *ex = dev_qp(cq, IBV_QP_EX_WITH_RDMA_WRITE);
	struct rpmem_qp_attr attr = {.access = IBV_ACCESS_REMOTE_READ};

	/* Access rights that are not FLUSH rights. */
	cr_assert_null(rpmem_attach_qp(qp, scq, &attr));
	cr_assert_eq(errno, EINVAL);
	attr.access = 0;
	/* The queue pair has another completion queue. */
	cr_assert_null(rpmem_attach_qp(far, scq, &attr));
	cr_assert_eq(errno, EINVAL);
	qp->qp_type = IBV_QPT_UC;
	cr_assert_null(rpmem_attach_qp(qp, scq, &attr));
	cr_assert_eq(errno, EINVAL);
	qp->qp_type = IBV_QPT_RC;
	/* send_ops_flags that the queue pair lacks, or that lack READ. */
	attr.send_ops_flags = BUILDERS;
	cr_assert_null(rpmem_attach_qp(qp, scq, &attr));
	cr_assert_eq(errno, EINVAL);
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	cr_assert_null(rpmem_attach_qp(ex, scq, &attr));
	cr_assert_eq(errno, EINVAL);
	/* The scratch buffer cannot be registered. */
	attr.send_ops_flags = 0;
	dev.fail_creation = 1;
	cr_assert_null(rpmem_attach_qp(qp, scq, &attr));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_eq(rpmem_detach_cq(scq), 0);
	ibv_destroy_qp(qp);
	ibv_destroy_qp(far);
	ibv_destroy_qp(ex);
	ibv_destroy_cq(cq);
	ibv_destroy_cq(other);
}

/* rpmem_create_qp() creates a QP with FLUSH where the device has FLUSH. */
Test(shim_attach, created_queue_pair_has_flush_where_the_device_has_it)
{
	const unsigned int both =
		RPMEM_ACCESS_FLUSH_GLOBAL | RPMEM_ACCESS_FLUSH_PERSISTENT;
	struct ibv_qp_init_attr_ex attr = {
		.cap = {.max_send_wr = 4,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	for (int flush = 0; flush < 2; flush++) {
		struct ibv_cq *cq =
			ibv_create_cq(dev_pd()->context, 8, NULL, NULL, 0);
		struct rpmem_cq *scq = rpmem_attach_cq(cq);
		struct rpmem_qp *qp;

		dev.caps = flush ? DEV_PERSISTENT : 0;
		if (flush)
			dev.makes |= WITH_FLUSH;
		attr.recv_cq = cq;
		attr.pd = NULL;
		cr_assert_null(rpmem_create_qp(scq, &attr, both));
		cr_assert_eq(errno, EINVAL);
		attr.pd = dev_pd();
		qp = rpmem_create_qp(scq, &attr, both);
		cr_assert_not_null(qp);
		cr_assert_eq(qp->qp->qp_type, IBV_QPT_RC);
		cr_assert_eq(qp->qp->send_cq, cq);
		cr_assert_not_null(ibv_qp_to_qp_ex(qp->qp));
		cr_assert(rp_qp_of(qp)->has_write_builder);
		cr_assert_eq(qp->init_access,
			     flush ? RPMEM_ACCESS_FLUSH_PERSISTENT : 0u);
		cr_assert_eq(rpmem_destroy_qp(qp), 0);
		/* With invalid access rights the queue pair is destroyed. */
		cr_assert_null(
			rpmem_create_qp(scq, &attr, IBV_ACCESS_REMOTE_READ));
		cr_assert_eq(errno, EINVAL);
		cr_assert_eq(rpmem_detach_cq(scq), 0);
		cr_assert_eq(ibv_destroy_cq(cq), 0);
	}
}

static size_t free_slots(const struct rpmem_cq *cq)
{
	size_t n = 0;

	for (const struct rp_slot *s = cq->free; s; s = s->next)
		n++;
	return n;
}

/* Work requests of a queue pair that is destroyed or reset never complete. */
Test(shim_attach, slots_of_dropped_work_requests_are_freed)
{
	const struct pair_attr pair = {.access = PERSISTENT, .cqe = 8};
	const struct rpmem_qp_attr attr = {.access = 0};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;
	struct pair p;

	dev.facts.domain = RP_DOMAIN_CPUCACHE;
	for (int destroys = 0; destroys < 2; destroys++) {
		pair_open(&p, &pair);
		dev.hold = true;
		for (uint64_t i = 0; i < 8; i++)
			cr_assert_eq(pair_flush(&p, i, 0, 64), 0);
		cr_assert_eq(free_slots(p.a.scq), 0u);
		if (destroys) {
			cr_assert_eq(rpmem_destroy_qp(p.a.sqp), 0);
			p.a.sqp = NULL;
			p.a.qp = NULL;
		} else {
			cr_assert_eq(rpmem_detach_qp(p.a.sqp), 0);
			ibv_modify_qp(p.a.qp, &reset, IBV_QP_STATE);
			p.a.sqp = rpmem_attach_qp(p.a.qp, p.a.scq, &attr);
			cr_assert_not_null(p.a.sqp);
		}
		cr_assert_eq(free_slots(p.a.scq), 0u);
		cr_assert_eq(rpmem_poll_cq(p.a.scq, 1, &wc), 0);
		cr_assert_eq(free_slots(p.a.scq), 8u);
		dev.hold = false;
		pair_close(&p);
	}
}
