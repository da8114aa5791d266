// SPDX-License-Identifier: BSD-2-Clause
/* Writes and flushes through one RDMA device to a devdax device. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/*
 * Two queue pairs of this process, a and b. Each case writes two lines for
 * flush.sh around its flush: the bytes of the region to be written back, and
 * how the flush ended. Both lines go into the kernel's trace, with the
 * write-backs between them, which a probe records.
 */

#define LEN	(2u << 20) /* devdax maps only whole huge pages */
#define PORT	1
#define SECONDS 20

#define WRITES	   (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define GLOBAL	   IBV_ACCESS_FLUSH_GLOBAL
#define PERSISTENT IBV_ACCESS_FLUSH_PERSISTENT

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_port_attr port;
static int gid_index;
static struct end a, b;
static struct ibv_mr *from;
static char *to, *source;
static FILE *marker;

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	const int err = errno;
	va_list ap;

	printf("Bail out! ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(err));
	exit(1);
}

/* Write a line to the trace and to the output. */
static void __attribute__((format(printf, 1, 2))) mark(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(marker, fmt, ap);
	va_end(ap);
	if (fflush(marker))
		die("trace_marker");
}

static void end_open(struct end *e)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags =
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH,
	};

	e->cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	if (!e->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = e->cq;
	e->qp = ibv_create_qp_ex(ctx, &attr);
	if (!e->qp)
		die("ibv_create_qp_ex");
	e->ex = ibv_qp_to_qp_ex(e->qp);
}

static void end_close(struct end *e)
{
	ibv_destroy_qp(e->qp);
	ibv_destroy_cq(e->cq);
}

static void modify_qp(struct end *e, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(e->qp, attr, mask | IBV_QP_STATE);
	if (errno)
		die("ibv_modify_qp to state %d", (int)attr->qp_state);
}

static void end_join(struct end *e, const struct end *peer, int access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = PORT,
				   .qp_access_flags = (unsigned int)access};

	modify_qp(e, &attr,
		  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = gid,
				    .sgid_index = (uint8_t)gid_index,
				    .hop_limit = 1}},
	};
	modify_qp(e, &attr,
		  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER);
	/* 7 would mean endless retries in rxe. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 16,
				    .retry_cnt = 5,
				    .rnr_retry = 5,
				    .max_rd_atomic = 1};
	modify_qp(e, &attr,
		  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/*
 * Each case has its own pair, because a refused flush puts both ends into the
 * error state.
 */
static void pair_open(int access)
{
	end_open(&a);
	end_open(&b);
	end_join(&a, &b, access);
	end_join(&b, &a, access);
}

static void pair_close(void)
{
	end_close(&a);
	end_close(&b);
}

static enum ibv_wc_status wait_end(enum ibv_wc_opcode opcode)
{
	const time_t limit = time(NULL) + SECONDS;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(a.cq, 1, &wc)) == 0)
		if (time(NULL) > limit)
			return IBV_WC_RESP_TIMEOUT_ERR;
	if (n < 0)
		die("ibv_poll_cq");
	if (wc.status == IBV_WC_SUCCESS && wc.opcode != opcode)
		die("a completion of another kind, %d", (int)wc.opcode);
	return wc.status;
}

static enum ibv_wc_status post_wr(enum ibv_wc_opcode opcode)
{
	errno = ibv_wr_complete(a.ex);
	if (errno)
		die("ibv_wr_complete");
	return wait_end(opcode);
}

static void open_ends(void)
{
	ibv_wr_start(a.ex);
	a.ex->wr_id = 1;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
}

static enum ibv_wc_status write_at(const struct ibv_mr *mr, size_t off,
				   size_t len)
{
	open_ends();
	ibv_wr_rdma_write(a.ex, mr->rkey, (uintptr_t)to + off);
	ibv_wr_set_sge(a.ex, from->lkey, (uintptr_t)source, (uint32_t)len);
	return post_wr(IBV_WC_RDMA_WRITE);
}

static enum ibv_wc_status flush_and_wait(const struct ibv_mr *mr, size_t off,
					 size_t len, uint8_t type,
					 uint8_t level)
{
	open_ends();
	ibv_wr_flush(a.ex, mr->rkey, (uintptr_t)to + off, len, type, level);
	return post_wr(IBV_WC_FLUSH);
}

static const struct one {
	const char *name;
	int mr_access, qp_access;
	size_t off, len; /* written; flushed unless level is MR */
	uint8_t type, level;
	enum ibv_wc_status want;
	size_t back, back_len; /* bytes that must be written back */
} cases[] = {
	{"persistent, one line", PERSISTENT, PERSISTENT, 4160, 64,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_SUCCESS, 4160, 64},
	{"persistent, one page", PERSISTENT, PERSISTENT, 8192, 4096,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_SUCCESS, 8192, 4096},
	{"persistent, over three pages", PERSISTENT, PERSISTENT, 20000, 8192,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_SUCCESS, 20000, 8192},
	{"persistent, to the end", PERSISTENT, PERSISTENT, LEN - 100, 100,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_SUCCESS, LEN - 100, 100},
	{"persistent, the whole region", PERSISTENT, PERSISTENT, 4096, 64,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR, IBV_WC_SUCCESS, 0, LEN},
	{"global, one page", GLOBAL, GLOBAL, 8192, 4096, IBV_FLUSH_GLOBAL,
	 IBV_FLUSH_RANGE, IBV_WC_SUCCESS, 0, 0},
	{"global, the whole region", GLOBAL, GLOBAL, 8192, 4096,
	 IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_WC_SUCCESS, 0, 0},
	{"persistent, the region is global only", GLOBAL, GLOBAL | PERSISTENT,
	 0, 64, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR, 0,
	 0},
	{"persistent, beyond the end", PERSISTENT, PERSISTENT, LEN - 64, 128,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR, 0, 0},
	{"persistent, the queue pair may not", PERSISTENT, 0, 0, 64,
	 IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR, 0, 0},
};

static void run_case(const struct one *c)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, to, LEN, WRITES | c->mr_access);
	size_t fits = c->off + c->len > LEN ? LEN - c->off : c->len;
	enum ibv_wc_status got;

	if (!mr)
		die("ibv_reg_mr");
	pair_open(WRITES | c->qp_access);
	memset(source, 'a' + (int)(c - cases), LEN);
	if (write_at(mr, c->off, fits) || memcmp(to + c->off, source, fits))
		die("the write before \"%s\"", c->name);
	mark("begin %zu %zu %s\n", c->back, c->back_len, c->name);
	got = flush_and_wait(mr, c->off, c->len, c->type, c->level);
	mark("end %s: %s\n", got == c->want ? "right" : "wrong",
	     ibv_wc_status_str(got));
	pair_close();
	ibv_dereg_mr(mr);
}

/* Registering memory that is not persistent with flush access is refused. */
static void expect_refused(const char *name, void *addr)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, LEN, WRITES | PERSISTENT);

	printf("%sok - registers no %s as persistent\n", mr ? "not " : "",
	       name);
	if (mr)
		ibv_dereg_mr(mr);
}

static void device_open(const char *name)
{
	struct ibv_device_attr_ex attr = {0};
	struct ibv_device **list;
	int n;

	list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die("no RDMA device %s", name);
	ibv_free_device_list(list);
	if (ibv_query_device_ex(ctx, NULL, &attr) ||
	    ibv_query_port(ctx, PORT, &port) ||
	    ibv_query_gid(ctx, PORT, gid_index, &gid))
		die("%s says nothing", name);
	/* The two capability bits for flushes have no names yet. */
	printf("%sok - %s has both kinds of flush\n",
	       (attr.device_cap_flags_ex >> 38 & 3) == 3 ? "" : "not ", name);
	pd = ibv_alloc_pd(ctx);
	if (!pd)
		die("ibv_alloc_pd");
}

int main(int argc, char **argv)
{
	void *anon;
	int fd;

	if (argc != 5) {
		fprintf(stderr, "usage: flush DEVICE GID-INDEX DAX MARKER\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	gid_index = atoi(argv[2]);
	device_open(argv[1]);
	fd = open(argv[3], O_RDWR);
	to = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		  MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	source = aligned_alloc(4096, LEN);
	marker = fopen(argv[4], "w");
	if (fd < 0 || to == MAP_FAILED || !source || !marker)
		die("%s or %s", argv[3], argv[4]);
	anon = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (anon == MAP_FAILED)
		die("mmap");
	expect_refused("anonymous memory", anon);
	from = ibv_reg_mr(pd, source, LEN, IBV_ACCESS_LOCAL_WRITE);
	if (!from)
		die("ibv_reg_mr");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run_case(&cases[i]);
	return 0;
}
