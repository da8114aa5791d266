/* SPDX-License-Identifier: BSD-2-Clause */
/* FLUSH on queue pairs of our own, with libibverbs that know it and that do
 * not. */
#ifndef RPMEM_CEP_VERBS_FLUSH_H
#define RPMEM_CEP_VERBS_FLUSH_H

#include <stdbool.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Not in the headers of every release that this is built with. */
#define RP_VERBS_WR_FLUSH 14
#define RP_VERBS_WC_FLUSH 8
/* Both kinds: to persistence, and seen by everybody. Of regions. */
#define RP_VERBS_ACCESS_FLUSH (1 << 8 | 1 << 9)

/* Has this device both kinds, and does the library make such queue pairs? */
bool rp_verbs_flushes(const char *device);
/* As rdma_create_qp(), and it can post FLUSHes. */
int rp_verbs_make_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr);
/* The peer may FLUSH over this queue pair, which is connected. 0 or -errno. */
int rp_verbs_allow(struct ibv_qp *qp);
/*
 * As ibv_post_send(), all or none; of writes and of FLUSHes, whose range at the
 * peer is as long as their sg_list says.
 */
int rp_verbs_post(struct ibv_qp *qp, const struct ibv_send_wr *wr);

#endif
