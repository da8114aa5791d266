// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes a write durable by ibv_wr_flush() of rdma-core 45 alone:
 *
 *   native_flush rxe0 1 7471 POOL          at the target; POOL: a devdax
 *   native_flush rxe0 1 7471 HOST TEXT     writes TEXT to its beginning
 *
 * The device needs FLUSH; without it, preload libibvrpmem_preload.so at both
 * ends, as rpmem_preload(7) describes.
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 1
#define LEN  (2u << 20)

#define CHECK(good)                                                            \
	do {                                                                   \
		if (!(good)) {                                                 \
			perror(#good);                                         \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* Addresses that the two ends exchange over TCP. */
struct address {
	union ibv_gid gid;
	uint32_t qp_num, rkey;
	uint64_t addr;
};

static int connect_peer(const char *host, const char *service)
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

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex attr = {0};
	struct ibv_context *ctx = NULL;

	CHECK(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx && !ibv_query_device_ex(ctx, NULL, &attr));
	/* Bit 39: persistent FLUSH. The header has no name for it. */
	if (!(attr.device_cap_flags_ex & 1ull << 39)) {
		fprintf(stderr, "%s has no FLUSH\n", name);
		exit(1);
	}
	return ctx;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags =
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &attr);

	CHECK(qp);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, const struct address *peer,
		       int gid_index, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};

	attr.qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_PERSISTENT;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = mtu;
	attr.dest_qp_num = peer->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = PORT;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 6;
	attr.rnr_retry = 6;
	attr.max_rd_atomic = 1;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Sleep until the WR has completed. */
static void wait_for(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc = {0};
	void *context;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc))) {
		CHECK(!ibv_req_notify_cq(cq, 0));
		n = ibv_poll_cq(cq, 1, &wc);
		if (n)
			break;
		CHECK(!ibv_get_cq_event(cq->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(n == 1 && wc.wr_id == wr_id);
	if (wc.status) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void write_durably(struct ibv_qp *qp, const struct address *to,
			  char *text)
{
	const size_t len = strlen(text) + 1;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_mr *mr =
		ibv_reg_mr(qp->pd, text, len, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, to->rkey, to->addr);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)text, (uint32_t)len);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(ex, to->rkey, to->addr, len, IBV_FLUSH_PERSISTENT,
		     IBV_FLUSH_RANGE);
	CHECK(!ibv_wr_complete(ex));
	puts("flushed by ibv_wr_flush()");
	wait_for(qp->send_cq, 2);
	puts("durable");
	ibv_dereg_mr(mr);
}

static struct ibv_mr *map_pool(struct ibv_pd *pd, const char *path)
{
	int fd = open(path, O_RDWR);
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	struct ibv_mr *mr;

	CHECK(p != MAP_FAILED);
	mr = ibv_reg_mr(pd, p, LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_FLUSH_PERSISTENT);
	CHECK(mr);
	return mr;
}

int main(int argc, char **argv)
{
	const int is_initiator = argc == 6;
	struct address local = {0}, remote;
	struct ibv_comp_channel *channel;
	struct ibv_port_attr port;
	struct ibv_context *ctx;
	struct ibv_mr *mr = NULL;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char bye = 0;
	int fd;

	if (argc != 5 && argc != 6) {
		fprintf(stderr,
			"usage: %s DEVICE GID-INDEX PORT POOL | "
			"DEVICE GID-INDEX PORT HOST TEXT\n",
			argv[0]);
		return 2;
	}
	fd = connect_peer(is_initiator ? argv[4] : NULL, argv[3]);
	ctx = open_device(argv[1]);
	CHECK(!ibv_query_port(ctx, PORT, &port) &&
	      !ibv_query_gid(ctx, PORT, atoi(argv[2]), &local.gid));
	pd = ibv_alloc_pd(ctx);
	channel = ibv_create_comp_channel(ctx);
	CHECK(pd && channel);
	cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	CHECK(cq);
	qp = make_qp(pd, cq);
	local.qp_num = qp->qp_num;
	if (!is_initiator) {
		mr = map_pool(pd, argv[4]);
		local.rkey = mr->rkey;
		local.addr = (uintptr_t)mr->addr;
	}
	CHECK(send(fd, &local, sizeof(local), 0) == (ssize_t)sizeof(local) &&
	      recv(fd, &remote, sizeof(remote), MSG_WAITALL) ==
		      (ssize_t)sizeof(remote));
	connect_qp(qp, &remote, atoi(argv[2]), port.active_mtu);
	/*
	 * This byte says that both ends are connected. The shutdown below says
	 * that the initiator has finished.
	 */
	CHECK(send(fd, &bye, 1, 0) == 1 && recv(fd, &bye, 1, 0) == 1);
	if (is_initiator)
		write_durably(qp, &remote, argv[5]);
	shutdown(fd, SHUT_WR);
	CHECK(!recv(fd, &bye, 1, 0));
	if (mr)
		CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) &&
	      !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) &&
	      !ibv_close_device(ctx));
	return 0;
}
