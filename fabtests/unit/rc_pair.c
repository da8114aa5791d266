// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two connected queue pairs with shims, one region, and the completions
 * (rc_pair.h).
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

static void end_open(struct pair_end *e, unsigned int ops, unsigned int access,
		     int cqe, bool sleeps)
{
	const struct rpmem_qp_attr attr = {.send_ops_flags = ops,
					   .access = access};

	if (sleeps)
		e->channel = ibv_create_comp_channel(dev_pd()->context);
	e->cq = ibv_create_cq(dev_pd()->context, cqe, NULL, e->channel, 0);
	e->scq = rpmem_attach_cq(e->cq);
	cr_assert(e->scq);
	e->qp = dev_qp(e->cq, ops);
	cr_assert(e->qp);
	e->sqp = rpmem_attach_qp(e->qp, e->scq, &attr);
	cr_assert(e->sqp);
	e->sqp->wr_flags = IBV_SEND_SIGNALED;
}

void pair_open(struct pair *p, const struct pair_attr *attr)
{
	memset(p, 0, sizeof(*p));
	end_open(&p->a, attr->ops, 0, attr->cqe ? attr->cqe : PAIR_CQE,
		 attr->sleeps);
	end_open(&p->b, attr->ops, attr->access, PAIR_CQE, false);
	dev_join(p->a.qp, p->b.qp->qp_num, OPEN);
	dev_join(p->b.qp, p->a.qp->qp_num, OPEN | attr->native);
	p->mr = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
			     (int)(OPEN | attr->access));
	cr_assert(p->mr, "%s", strerror(errno));
	p->rkey = p->mr->mr->rkey;
	p->from_mr = (ibv_reg_mr)(dev_pd(), p->from, sizeof(p->from),
				  IBV_ACCESS_LOCAL_WRITE);
	if (attr->sides)
		cr_assert_eq(pair_connect_sides(p), 0);
	pair_import_region(p);
}

int pair_connect_sides(struct pair *p)
{
	struct rpmem_qp_desc a, b;
	int ret;

	cr_assert_eq(rpmem_export_qp(p->a.sqp, &a), 0);
	cr_assert_eq(rpmem_export_qp(p->b.sqp, &b), 0);
	cr_assert_eq(rp_side_addr_get(a.bytes, &p->sa), 0);
	cr_assert_eq(rp_side_addr_get(b.bytes, &p->sb), 0);
	ret = rpmem_connect_qp(p->a.sqp, &b);
	if (!ret)
		cr_assert_eq(rpmem_connect_qp(p->b.sqp, &a), 0);
	return ret;
}

void pair_import_region(struct pair *p)
{
	cr_assert_eq(rpmem_export_mr(p->mr, p->b.sqp, &p->desc), 0);
	cr_assert_eq(rpmem_import_mr(p->a.sqp, &p->desc, NULL), 0);
}

static void end_close(struct pair_end *e)
{
	if (e->sqp)
		cr_assert_eq(rpmem_detach_qp(e->sqp), 0);
	if (e->qp)
		ibv_destroy_qp(e->qp);
	cr_assert_eq(rpmem_detach_cq(e->scq), 0);
	ibv_destroy_cq(e->cq);
	if (e->channel)
		ibv_destroy_comp_channel(e->channel);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
	ibv_dereg_mr(p->from_mr);
	if (p->mr)
		cr_assert_eq(rpmem_dereg_mr(p->mr), 0);
}

int pair_flush(struct pair *p, uint64_t wr_id, size_t off, size_t len)
{
	p->a.sqp->wr_id = wr_id;
	rpmem_wr_start(p->a.sqp);
	rpmem_wr_flush(p->a.sqp, p->rkey, (uintptr_t)dev.pmem + off, len,
		       RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
	return rpmem_wr_complete(p->a.sqp);
}

int pair_write(struct pair *p, uint64_t wr_id, size_t off, size_t len,
	       uint8_t value)
{
	return dev_write(p->a.qp, wr_id, p->rkey, off, len, value);
}

int pair_write_durable(struct pair *p, uint64_t wr_id, size_t off, size_t len,
		       uint8_t value)
{
	uint8_t *bytes = p->from[p->nput++ % 16];
	struct ibv_sge sge = {.addr = (uintptr_t)bytes,
			      .length = (uint32_t)len,
			      .lkey = p->from_mr->lkey};

	memset(bytes, value, len < DEV_BYTES ? len : DEV_BYTES);
	p->a.sqp->wr_id = wr_id;
	rpmem_wr_start(p->a.sqp);
	rpmem_wr_write_flush(p->a.sqp, p->rkey, (uintptr_t)dev.pmem + off, &sge,
			     RPMEM_FLUSH_PERSISTENT);
	return rpmem_wr_complete(p->a.sqp);
}

int pair_atomic_write(struct pair *p, uint64_t wr_id, size_t off,
		      uint64_t value)
{
	p->a.sqp->wr_id = wr_id;
	rpmem_wr_start(p->a.sqp);
	rpmem_wr_atomic_write(p->a.sqp, p->rkey, (uintptr_t)dev.pmem + off,
			      &value);
	return rpmem_wr_complete(p->a.sqp);
}

void pair_expect_next(struct pair *p, uint64_t wr_id, enum ibv_wc_status status,
		      int opcode)
{
	/* Wait up to 20 s: the agent's replies come from another thread. */
	const time_t limit = time(NULL) + 20;
	const struct timespec ms = {.tv_nsec = 1000000};
	struct ibv_wc wc;
	int n, looks = 0;

	while (!(n = rpmem_poll_cq(p->a.scq, 1, &wc))) {
		if (!wr_id && ++looks == 30)
			return;
		cr_assert(p->sb.target || !wr_id, "%d did not complete",
			  (int)wr_id);
		cr_assert_leq(time(NULL), limit, "%d is late", (int)wr_id);
		nanosleep(&ms, NULL);
	}
	cr_assert_eq(n, 1);
	cr_assert_eq(wc.wr_id, wr_id, "%d came, not %d", (int)wc.wr_id,
		     (int)wr_id);
	cr_assert_eq(wc.status, status, "%d: status %d", (int)wr_id,
		     (int)wc.status);
	cr_assert_eq(wc.qp_num, p->a.qp->qp_num);
	if (!status)
		cr_assert_eq((int)wc.opcode, opcode);
}

const char *pair_method(struct pair *p)
{
	struct rpmem_region a;

	cr_assert_eq(rp_qp_region(rp_qp_of(p->a.sqp), p->rkey, &a), 0);
	return a.persistent;
}
