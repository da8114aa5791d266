/* SPDX-License-Identifier: BSD-2-Clause */
/* Code shared by the examples: one RC connection with the shim at each end. */
#include <infiniband/rpmem.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RC_PORT 1
#define RC_OPEN                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ)
#define RC_FLUSHES (RPMEM_ACCESS_FLUSH_GLOBAL | RPMEM_ACCESS_FLUSH_PERSISTENT)

struct rc {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct rpmem_cq *rcq;
	struct rpmem_qp *rqp;
	int gid_index;
};

#define CHECK(good)                                                            \
	do {                                                                   \
		if (!(good)) {                                                 \
			perror(#good);                                         \
			exit(1);                                               \
		}                                                              \
	} while (0)

/*
 * Open a TCP connection to the other program: connect to host, or accept one if
 * host is NULL.
 */
static inline int rc_connect_peer(const char *host, const char *service)
{
	struct addrinfo hints = {.ai_flags = host ? 0 : AI_PASSIVE,
				 .ai_family = AF_INET,
				 .ai_socktype = SOCK_STREAM};
	struct addrinfo *to;
	const int on = 1;
	int fd;

	CHECK(!getaddrinfo(host, service, &hints, &to));
	fd = socket(to->ai_family, to->ai_socktype, 0);
	CHECK(fd >= 0);
	if (host) {
		CHECK(!connect(fd, to->ai_addr, to->ai_addrlen));
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		CHECK(!bind(fd, to->ai_addr, to->ai_addrlen) && !listen(fd, 1));
		fd = accept(fd, NULL, NULL);
		CHECK(fd >= 0);
	}
	freeaddrinfo(to);
	return fd;
}

static inline void rc_exchange(int fd, const void *local, void *remote,
			       size_t len)
{
	CHECK(send(fd, local, len, 0) == (ssize_t)len);
	CHECK(recv(fd, remote, len, MSG_WAITALL) == (ssize_t)len);
}

/* access: RC_FLUSHES at the target, 0 at the initiator. */
static inline void rc_open(struct rc *c, const char *device, int gid_index,
			   unsigned int access)
{
	struct ibv_qp_init_attr_ex attr = {
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	memset(c, 0, sizeof(*c));
	c->gid_index = gid_index;
	for (int i = 0; list[i] && !c->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			c->ctx = ibv_open_device(list[i]);
	CHECK(c->ctx);
	c->pd = ibv_alloc_pd(c->ctx);
	c->cq = ibv_create_cq(c->ctx, 64, NULL, NULL, 0);
	CHECK(c->pd && c->cq);
	c->rcq = rpmem_attach_cq(c->cq);
	CHECK(c->rcq);
	attr.pd = c->pd;
	attr.recv_cq = c->cq;
	c->rqp = rpmem_create_qp(c->rcq, &attr, access);
	CHECK(c->rqp);
	c->qp = c->rqp->qp;
	c->ex = ibv_qp_to_qp_ex(c->qp);
}

/* Connect the queue pairs, then the side connection to the peer's agent. */
static inline void rc_connect(struct rc *c, int fd)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = RC_PORT};
	struct rpmem_qp_desc addr, peer_addr;
	struct {
		union ibv_gid gid;
		uint32_t qp_num;
	} local = {.qp_num = c->qp->qp_num}, remote;
	struct ibv_port_attr port;

	CHECK(!ibv_query_port(c->ctx, RC_PORT, &port) &&
	      !ibv_query_gid(c->ctx, RC_PORT, c->gid_index, &local.gid));
	rc_exchange(fd, &local, &remote, sizeof(local));
	attr.qp_access_flags = RC_OPEN | c->rqp->init_access;
	CHECK(!ibv_modify_qp(c->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.active_mtu;
	attr.dest_qp_num = remote.qp_num;
	attr.max_dest_rd_atomic = 1; /* a read fence is an RDMA read */
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = RC_PORT;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.grh.dgid = remote.gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)c->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(c->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 6; /* 7 may mean forever */
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	CHECK(!ibv_modify_qp(c->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(!rpmem_export_qp(c->rqp, &addr));
	rc_exchange(fd, &addr, &peer_addr, sizeof(addr));
	CHECK(!rpmem_connect_qp(c->rqp, &peer_addr));
}

/*
 * Target: register len bytes at addr, send the descriptor, wait for the close.
 */
static inline void rc_serve(struct rc *c, int fd, void *addr, size_t len)
{
	struct rpmem_mr *mr =
		rpmem_reg_mr(c->pd, addr, len, RC_OPEN | RC_FLUSHES);
	struct rpmem_mr_desc desc;
	char c1;

	CHECK(mr);
	CHECK(!rpmem_export_mr(mr, c->rqp, &desc));
	CHECK(send(fd, &desc, sizeof(desc), 0) == sizeof(desc));
	/* The agent, a thread of the library, serves the requests. */
	while (recv(fd, &c1, 1, 0) > 0)
		;
	CHECK(!rpmem_dereg_mr(mr));
}

/* Initiator: receive the descriptor and print how writes are flushed. */
static inline void rc_region(struct rc *c, int fd, struct rpmem_region *region)
{
	struct rpmem_mr_desc desc;

	CHECK(recv(fd, &desc, sizeof(desc), MSG_WAITALL) == sizeof(desc));
	CHECK(!rpmem_import_mr(c->rqp, &desc, region));
	printf("flushed by %s, survives %s\n", region->persistent,
	       region->survives);
}

/* Wait for the signaled WR. */
static inline void rc_wait(struct rc *c)
{
	struct ibv_wc wc;
	int n;

	while (!(n = rpmem_poll_cq(c->rcq, 1, &wc)))
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n",
			n < 0 ? "rpmem_poll_cq" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static inline void rc_close(struct rc *c)
{
	CHECK(!rpmem_destroy_qp(c->rqp));
	CHECK(!rpmem_detach_cq(c->rcq));
	CHECK(!ibv_destroy_cq(c->cq));
}
