// SPDX-License-Identifier: BSD-2-Clause
/* The builders that a program calls: the device's, and flushes. */
#include "config.h"

#include <string.h>

#include "verbs/preload/preload.h"

/* Copy the fields that the program has set to the device's struct. */
static struct ibv_qp_ex *base_of(struct ibv_qp_ex *ex)
{
	struct ibv_qp_ex *base = ((struct rp_pre_qp *)ex)->base;

	base->wr_id = ex->wr_id;
	base->wr_flags = ex->wr_flags;
	return base;
}

static void cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		    uint64_t compare, uint64_t swap)
{
	ibv_wr_atomic_cmp_swp(base_of(ex), rkey, addr, compare, swap);
}

static void fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		      uint64_t add)
{
	ibv_wr_atomic_fetch_add(base_of(ex), rkey, addr, add);
}

static void bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	ibv_wr_bind_mw(base_of(ex), mw, rkey, info);
}

static void local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	ibv_wr_local_inv(base_of(ex), rkey);
}

static void rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	ibv_wr_rdma_read(base_of(ex), rkey, addr);
}

static void rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	ibv_wr_rdma_write(base_of(ex), rkey, addr);
}

static void rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
			   __be32 imm)
{
	ibv_wr_rdma_write_imm(base_of(ex), rkey, addr, imm);
}

static void send_msg(struct ibv_qp_ex *ex)
{
	ibv_wr_send(base_of(ex));
}

static void send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	ibv_wr_send_imm(base_of(ex), imm);
}

static void send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	ibv_wr_send_inv(base_of(ex), rkey);
}

static void send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t len,
		     uint16_t mss)
{
	ibv_wr_send_tso(base_of(ex), hdr, len, mss);
}

static void set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t len)
{
	ibv_wr_set_inline_data(((struct rp_pre_qp *)ex)->base, addr, len);
}

static void set_inline_data_list(struct ibv_qp_ex *ex, size_t n,
				 const struct ibv_data_buf *bufs)
{
	ibv_wr_set_inline_data_list(((struct rp_pre_qp *)ex)->base, n, bufs);
}

static void set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		    uint32_t len)
{
	ibv_wr_set_sge(((struct rp_pre_qp *)ex)->base, lkey, addr, len);
}

static void set_sge_list(struct ibv_qp_ex *ex, size_t n,
			 const struct ibv_sge *sges)
{
	ibv_wr_set_sge_list(((struct rp_pre_qp *)ex)->base, n, sges);
}

/* rpmem_wr_start() locks until complete, so look the peer up before. */
static void start(struct ibv_qp_ex *ex)
{
	struct rp_pre_qp *r = (struct rp_pre_qp *)ex;

	rp_pre_inside++;
	rp_pre_lookup(r);
	rpmem_wr_start(r->shim);
	rp_pre_inside--;
}

static int complete(struct ibv_qp_ex *ex)
{
	int ret;

	rp_pre_inside++;
	ret = rpmem_wr_complete(((struct rp_pre_qp *)ex)->shim);
	rp_pre_inside--;
	return ret;
}

static void abort_all(struct ibv_qp_ex *ex)
{
	rp_pre_inside++;
	rpmem_wr_abort(((struct rp_pre_qp *)ex)->shim);
	rp_pre_inside--;
}

static struct rpmem_qp *known(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct rp_pre_qp *r = (struct rp_pre_qp *)ex;

	rp_pre_region_get(r, rkey);
	r->shim->wr_id = ex->wr_id;
	r->shim->wr_flags = ex->wr_flags;
	return r->shim;
}

static void flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		  size_t len, uint8_t type, uint8_t level)
{
	rp_pre_inside++;
	rpmem_wr_flush(known(ex, rkey), rkey, addr, len, type, level);
	rp_pre_inside--;
}

static void atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
			 const void *value)
{
	rp_pre_inside++;
	rpmem_wr_atomic_write(known(ex, rkey), rkey, addr, value);
	rp_pre_inside--;
}

void rp_pre_ex_init(struct rp_pre_qp *r)
{
	const struct ibv_qp_ex *b = r->base;
	struct ibv_qp_ex *ex = &r->ex;
	const rp_wr_flush_fn fn = flush;

	*ex = (struct ibv_qp_ex){
		.qp_base = b->qp_base,
		.comp_mask = b->comp_mask,
		.wr_start = start,
		.wr_complete = complete,
		.wr_abort = abort_all,
		.wr_atomic_write = atomic_write,
	};
	memcpy(r->room + RP_WR_FLUSH_AT, &fn, sizeof(fn));
	/* Builders of reliable connections; a NULL of the device stays NULL. */
	ex->wr_atomic_cmp_swp = b->wr_atomic_cmp_swp ? cmp_swp : NULL;
	ex->wr_atomic_fetch_add = b->wr_atomic_fetch_add ? fetch_add : NULL;
	ex->wr_bind_mw = b->wr_bind_mw ? bind_mw : NULL;
	ex->wr_local_inv = b->wr_local_inv ? local_inv : NULL;
	ex->wr_rdma_read = b->wr_rdma_read ? rdma_read : NULL;
	ex->wr_rdma_write = b->wr_rdma_write ? rdma_write : NULL;
	ex->wr_rdma_write_imm = b->wr_rdma_write_imm ? rdma_write_imm : NULL;
	ex->wr_send = b->wr_send ? send_msg : NULL;
	ex->wr_send_imm = b->wr_send_imm ? send_imm : NULL;
	ex->wr_send_inv = b->wr_send_inv ? send_inv : NULL;
	ex->wr_send_tso = b->wr_send_tso ? send_tso : NULL;
	ex->wr_set_inline_data = b->wr_set_inline_data ? set_inline_data : NULL;
	ex->wr_set_inline_data_list =
		b->wr_set_inline_data_list ? set_inline_data_list : NULL;
	ex->wr_set_sge = b->wr_set_sge ? set_sge : NULL;
	ex->wr_set_sge_list = b->wr_set_sge_list ? set_sge_list : NULL;
}
