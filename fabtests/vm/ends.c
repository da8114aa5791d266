// SPDX-License-Identifier: BSD-2-Clause
/* Makes and connects queue pairs whose ends are on one machine. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"

#define PORT	    1
#define WITH_ATOMIC (1u << 12)

void ends_die(const char *fmt, ...)
{
	const int err = errno;
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", strerror(err));
	exit(1);
}

void ends_device(struct ends_device *d, const char *name, int gid_index)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};
	struct ibv_device **list;
	int n;

	*d = (struct ends_device){.gid_index = gid_index};
	list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			d->ctx = ibv_open_device(list[i]);
	if (!d->ctx)
		ends_die("no RDMA device %s", name);
	ibv_free_device_list(list);
	if (ibv_query_device_ex(d->ctx, NULL, &attr) ||
	    ibv_query_port(d->ctx, PORT, &d->port) ||
	    ibv_query_gid(d->ctx, PORT, gid_index, &d->gid))
		ends_die("%s says nothing", name);
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		ends_die("ibv_alloc_pd");
	d->send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	/*
	 * Bits 38 to 40 of the capabilities mean native flushes and atomic
	 * writes. They have no names yet.
	 */
	if (attr.device_cap_flags_ex >> 38 & 1)
		d->flushes |= RPMEM_ACCESS_FLUSH_GLOBAL;
	if (attr.device_cap_flags_ex >> 39 & 1)
		d->flushes |= ENDS_PERSISTENT;
	if (d->flushes)
		d->send_ops |= ENDS_WITH_FLUSH;
	if (attr.device_cap_flags_ex >> 40 & 1)
		d->send_ops |= WITH_ATOMIC;
}

void ends_make(struct ends_end *e, const struct ends_device *d, int sends)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = (uint32_t)sends,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d->pd,
		.send_ops_flags = d->send_ops,
	};

	/* Room for side connections, which use the same CQ. */
	e->cq = ibv_create_cq(d->ctx, 2 * sends + 64, NULL, NULL, 0);
	if (!e->cq)
		ends_die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = e->cq;
	e->qp = ibv_create_qp_ex(d->ctx, &attr);
	if (!e->qp)
		ends_die("ibv_create_qp_ex");
	e->ex = ibv_qp_to_qp_ex(e->qp);
	e->send_ops = d->send_ops;
}

static void modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		ends_die("ibv_modify_qp to state %d", (int)attr->qp_state);
}

void ends_join(struct ibv_qp *qp, const struct ends_device *d, uint32_t peer,
	       unsigned int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		/*
		 * The kernel refuses access flags that the device does not
		 * support.
		 */
		.qp_access_flags = access & ~(ENDS_FLUSHES & ~d->flushes),
	};

	modify_qp(qp, &attr,
		  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = d->port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = d->gid,
				    .sgid_index = (uint8_t)d->gid_index,
				    .hop_limit = 1}},
	};
	modify_qp(qp, &attr,
		  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = d->timeout ? d->timeout : 16,
				    .retry_cnt = 5,
				    .rnr_retry = 5,
				    .max_rd_atomic = 1};
	modify_qp(qp, &attr,
		  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}
