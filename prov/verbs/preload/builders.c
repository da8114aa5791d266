// SPDX-License-Identifier: BSD-2-Clause
/* The ibv_wr_*() builders of a program: flushes, and forwards to the device. */
#include "config.h"

#include <string.h>

#include "verbs/preload/preload.h"

/* Copy wr_id and wr_flags, which the program set, to the device's struct. */
static struct ibv_qp_ex *base_of(struct ibv_qp_ex *ex)
{
	struct ibv_qp_ex *base = ((struct rp_pre_qp *)ex)->base;

	base->wr_id = ex->wr_id;
	base->wr_flags = ex->wr_flags;
	return base;
}

/* Get the device's struct for setters, whose builder copied the fields. */
static struct ibv_qp_ex *base_of_setter(struct ibv_qp_ex *ex)
{
	return ((struct rp_pre_qp *)ex)->base;
}

/* RC builders that are only forwarded to the device's. */
#define EX struct ibv_qp_ex *ex
#define FOR_BUILDERS(DO)                                                       \
	DO(atomic_cmp_swp,                                                     \
	   (EX, uint32_t rkey, uint64_t addr, uint64_t compare,                \
	    uint64_t swap),                                                    \
	   (base_of(ex), rkey, addr, compare, swap))                           \
	DO(atomic_fetch_add, (EX, uint32_t rkey, uint64_t addr, uint64_t add), \
	   (base_of(ex), rkey, addr, add))                                     \
	DO(bind_mw,                                                            \
	   (EX, struct ibv_mw * mw, uint32_t rkey,                             \
	    const struct ibv_mw_bind_info *info),                              \
	   (base_of(ex), mw, rkey, info))                                      \
	DO(local_inv, (EX, uint32_t rkey), (base_of(ex), rkey))                \
	DO(rdma_read, (EX, uint32_t rkey, uint64_t addr),                      \
	   (base_of(ex), rkey, addr))                                          \
	DO(rdma_write, (EX, uint32_t rkey, uint64_t addr),                     \
	   (base_of(ex), rkey, addr))                                          \
	DO(rdma_write_imm, (EX, uint32_t rkey, uint64_t addr, __be32 imm),     \
	   (base_of(ex), rkey, addr, imm))                                     \
	DO(send, (EX), (base_of(ex)))                                          \
	DO(send_imm, (EX, __be32 imm), (base_of(ex), imm))                     \
	DO(send_inv, (EX, uint32_t rkey), (base_of(ex), rkey))                 \
	DO(send_tso, (EX, void *hdr, uint16_t len, uint16_t mss),              \
	   (base_of(ex), hdr, len, mss))                                       \
	DO(set_inline_data, (EX, void *addr, size_t len),                      \
	   (base_of_setter(ex), addr, len))                                    \
	DO(set_inline_data_list,                                               \
	   (EX, size_t n, const struct ibv_data_buf *bufs),                    \
	   (base_of_setter(ex), n, bufs))                                      \
	DO(set_sge, (EX, uint32_t lkey, uint64_t addr, uint32_t len),          \
	   (base_of_setter(ex), lkey, addr, len))                              \
	DO(set_sge_list, (EX, size_t n, const struct ibv_sge *sges),           \
	   (base_of_setter(ex), n, sges))

#define DEFINE(call, params, args)                                             \
	static void forward_##call params                                      \
	{                                                                      \
		ibv_wr_##call args;                                            \
	}
FOR_BUILDERS(DEFINE)

/* Look up the peer before rpmem_wr_start(), which locks until complete. */
static void start(struct ibv_qp_ex *ex)
{
	struct rp_pre_qp *r = (struct rp_pre_qp *)ex;

	rp_pre_passthrough++;
	rp_pre_lookup(r);
	rpmem_wr_start(r->shim);
	rp_pre_passthrough--;
}

static int complete(struct ibv_qp_ex *ex)
{
	int ret;

	rp_pre_passthrough++;
	ret = rpmem_wr_complete(((struct rp_pre_qp *)ex)->shim);
	rp_pre_passthrough--;
	return ret;
}

static void abort_all(struct ibv_qp_ex *ex)
{
	rp_pre_passthrough++;
	rpmem_wr_abort(((struct rp_pre_qp *)ex)->shim);
	rp_pre_passthrough--;
}

static struct rpmem_qp *shim_for_rkey(struct ibv_qp_ex *ex, uint32_t rkey)
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
	rp_pre_passthrough++;
	rpmem_wr_flush(shim_for_rkey(ex, rkey), rkey, addr, len, type, level);
	rp_pre_passthrough--;
}

static void atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
			 const void *value)
{
	rp_pre_passthrough++;
	rpmem_wr_atomic_write(shim_for_rkey(ex, rkey), rkey, addr, value);
	rp_pre_passthrough--;
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
	memcpy(r->room + RP_WR_FLUSH_OFFSET, &fn, sizeof(fn));
	/* Builders that the device lacks stay NULL. */
#define SET(call, params, args)                                                \
	ex->wr_##call = b->wr_##call ? forward_##call : NULL;
	FOR_BUILDERS(SET)
}
