// SPDX-License-Identifier: BSD-2-Clause
/* A program that flushes with ibv_wr_flush() and knows nothing of the shim. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * Two processes. The initiator writes to the target's devdax, flushes, sleeps
 * until its completion channel wakes it, and logs the completions. The log must
 * be the same for every library that implements libibverbs. With SHADOW the
 * target also searches that file for the flushed bytes. With SILENCE the only
 * case is a stopped target.
 */

#define LEN	(2u << 20)
#define PORT	1
#define SECONDS 120

#define WRITES	   (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define GLOBAL	   IBV_ACCESS_FLUSH_GLOBAL
#define PERSISTENT IBV_ACCESS_FLUSH_PERSISTENT
#define FLUSHES	   (GLOBAL | PERSISTENT)
#define CALLS                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH |                    \
	 IBV_QP_EX_WITH_ATOMIC_WRITE)

/* A command to the target process, and its reply. */
struct order {
	enum {
		OPEN,
		ANEW, /* reregister the memory */
		CLOSE
	} what;
	unsigned int mr_access, qp_access;
	uint32_t qp_num;
	size_t off, len; /* CLOSE: the flushed range */
};
struct reply {
	uint32_t qp_num, rkey;
	uint64_t addr;
	unsigned int access; /* access flags of the queue pair, as queried */
	bool durable;
	unsigned char first; /* first byte of the flushed range */
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_port_attr port;
static int gid_index;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *ex;
static struct ibv_mr *from;
static char *source;
static FILE *logged;
static int other = 3;
static pid_t target;

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
	if (target)
		kill(target, SIGKILL);
	exit(1);
}

static void report_case(bool good, const char *name)
{
	printf("%sok - %s\n", good ? "" : "not ", name);
}

static void device_open(const char *name, int index)
{
	struct ibv_device **list;
	int n;

	gid_index = index;
	list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die("no RDMA device %s", name);
	ibv_free_device_list(list);
	if (ibv_query_port(ctx, PORT, &port) ||
	    ibv_query_gid(ctx, PORT, gid_index, &gid))
		die("%s says nothing", name);
	pd = ibv_alloc_pd(ctx);
	if (!pd)
		die("ibv_alloc_pd");
}

static void modify_qp(struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		die("ibv_modify_qp to state %d", (int)attr->qp_state);
}

static void qp_join(uint32_t peer, unsigned int access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = PORT,
				   .qp_access_flags = WRITES | access};

	modify_qp(&attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = gid,
				    .sgid_index = (uint8_t)gid_index,
				    .hop_limit = 1}},
	};
	modify_qp(&attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 16,
				    .retry_cnt = 4,
				    .rnr_retry = 5,
				    .max_rd_atomic = 1};
	modify_qp(&attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* --- the target --- */

static bool is_durable(int shadow, const char *to, const struct order *o)
{
	char *found = malloc(o->len);
	bool same;

	same = found &&
	       pread(shadow, found, o->len, (off_t)o->off) == (ssize_t)o->len &&
	       !memcmp(found, to + o->off, o->len);
	free(found);
	return same;
}

static void run_target(char *to)
{
	const char *path = getenv("SHADOW");
	int shadow = path ? open(path, O_RDONLY) : -1;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 1,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct ibv_mr *mr = NULL;
	struct ibv_qp_attr attr;
	struct order o;
	struct reply r;

	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
	if (!init.send_cq)
		die("ibv_create_cq");
	while (read(other, &o, sizeof(o)) == (ssize_t)sizeof(o)) {
		r = (struct reply){.addr = (uintptr_t)to};
		if (o.what == CLOSE) {
			r.durable = shadow < 0 || is_durable(shadow, to, &o);
			r.first = (unsigned char)to[o.off];
		}
		if (o.what != OPEN && (errno = ibv_dereg_mr(mr)))
			die("ibv_dereg_mr");
		if (o.what == CLOSE && (errno = ibv_destroy_qp(qp)))
			die("ibv_destroy_qp");
		if (o.what == OPEN) {
			qp = ibv_create_qp(pd, &init);
			if (!qp)
				die("ibv_create_qp");
		}
		if (o.what != CLOSE) {
			mr = ibv_reg_mr(pd, to, LEN, WRITES | (int)o.mr_access);
			if (!mr)
				die("ibv_reg_mr, access %x", o.mr_access);
			r.rkey = mr->rkey;
		}
		if (o.what == OPEN) {
			qp_join(o.qp_num, o.qp_access);
			if (ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init))
				die("ibv_query_qp");
			r.qp_num = qp->qp_num;
			r.access = attr.qp_access_flags;
		}
		if (write(other, &r, sizeof(r)) != (ssize_t)sizeof(r))
			die("the initiator");
	}
}

/* --- the initiator --- */

static void qp_open(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 32,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = CALLS,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;

	channel = ibv_create_comp_channel(ctx);
	cq = channel ? ibv_create_cq(ctx, 40, &cq, channel, 0) : NULL;
	if (!cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp_ex(ctx, &attr);
	if (!qp)
		die("ibv_create_qp_ex");
	ex = ibv_qp_to_qp_ex(qp);
	if (ibv_query_qp(qp, &now, IBV_QP_CAP, &init))
		die("ibv_query_qp");
	fprintf(logged, "queues: %u %u, %u %u; flags %llx\n",
		attr.cap.max_send_wr, attr.cap.max_send_sge,
		init.cap.max_send_wr, init.cap.max_send_sge,
		(unsigned long long)attr.send_ops_flags);
}

static void qp_close(void)
{
	errno = ibv_destroy_qp(qp);
	if (!errno)
		errno = ibv_destroy_cq(cq);
	if (!errno)
		errno = ibv_destroy_comp_channel(channel);
	if (errno)
		die("what was open");
}

static struct reply send_order(struct order o)
{
	struct reply r;

	if (write(other, &o, sizeof(o)) != (ssize_t)sizeof(o) ||
	    read(other, &r, sizeof(r)) != (ssize_t)sizeof(r))
		die("the target");
	return r;
}

static struct reply pair_open(unsigned int mr_access, unsigned int qp_access)
{
	struct reply r;

	qp_open();
	r = send_order((struct order){.what = OPEN,
				      .mr_access = mr_access,
				      .qp_access = qp_access,
				      .qp_num = qp->qp_num});
	qp_join(r.qp_num, 0);
	fprintf(logged, "the target's queue pair: %x\n", r.access);
	return r;
}

static struct reply pair_close(size_t off, size_t len)
{
	struct reply r = send_order(
		(struct order){.what = CLOSE, .off = off, .len = len});

	qp_close();
	return r;
}

static void set_wr(uint64_t wr_id, unsigned int flags)
{
	ex->wr_id = wr_id;
	ex->wr_flags = flags;
}

static void write_to(uint64_t wr_id, unsigned int flags, const struct reply *r,
		     size_t off, size_t len)
{
	set_wr(wr_id, flags);
	ibv_wr_rdma_write(ex, r->rkey, r->addr + off);
	ibv_wr_set_sge(ex, from->lkey, (uintptr_t)source, (uint32_t)len);
}

static void post_flush(uint64_t wr_id, unsigned int flags,
		       const struct reply *r, size_t off, size_t len,
		       uint8_t type, uint8_t level)
{
	set_wr(wr_id, flags);
	ibv_wr_flush(ex, r->rkey, r->addr + off, len, type, level);
}

static void complete_batch(const char *name)
{
	errno = ibv_wr_complete(ex);
	if (errno)
		die("ibv_wr_complete, %s", name);
}

/* Request a notification before posting, as programs should. */
static void start_batch(void)
{
	if (ibv_req_notify_cq(cq, 0))
		die("ibv_req_notify_cq");
	ibv_wr_start(ex);
}

/* Log completions. Returns the status of the last one with wr_id 2. */
static enum ibv_wc_status log_completions(const char *name, int number)
{
	enum ibv_wc_status of_flush = IBV_WC_GENERAL_ERR;
	struct ibv_cq *its;
	struct ibv_wc wc;
	int n = 0, ret;
	void *of;

	alarm(SECONDS);
	for (;;) {
		while ((ret = ibv_poll_cq(cq, 1, &wc)) > 0) {
			n++;
			if (wc.wr_id == 2)
				of_flush = wc.status;
			fprintf(logged, "%s: %d %s %s, opcode %d\n", name,
				(int)wc.wr_id,
				wc.qp_num == qp->qp_num ? "ours" : "another's",
				ibv_wc_status_str(wc.status),
				wc.status ? -1 : (int)wc.opcode);
		}
		if (ret < 0)
			die("ibv_poll_cq");
		if (n >= number)
			break;
		if (ibv_get_cq_event(channel, &its, &of))
			die("ibv_get_cq_event");
		if (its != cq || of != &cq)
			die("an event of another queue");
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			die("ibv_req_notify_cq");
	}
	alarm(0);
	return of_flush;
}

static const struct one {
	const char *name;
	unsigned int mr_access, qp_access;
	size_t off, len; /* written; flushed unless level is MR */
	uint8_t type, level;
	enum ibv_wc_status want;
} cases[] = {
	{"persistent, one line", PERSISTENT, PERSISTENT, 4160, 64, 2, 0,
	 IBV_WC_SUCCESS},
	{"persistent, over three pages", PERSISTENT, PERSISTENT, 20000, 8192, 2,
	 0, IBV_WC_SUCCESS},
	{"persistent, to the end", PERSISTENT, PERSISTENT, LEN - 100, 100, 2, 0,
	 IBV_WC_SUCCESS},
	{"persistent, the whole region", PERSISTENT, PERSISTENT, 4096, 64, 2, 1,
	 IBV_WC_SUCCESS},
	{"persistent and global", FLUSHES, FLUSHES, 8192, 4096, 3, 0,
	 IBV_WC_SUCCESS},
	{"global, one page", GLOBAL, GLOBAL, 8192, 4096, 1, 0, IBV_WC_SUCCESS},
	{"persistent, of no bytes", PERSISTENT, PERSISTENT, 4096, 0, 2, 0,
	 IBV_WC_SUCCESS},
	{"persistent, the region is global only", GLOBAL, FLUSHES, 0, 64, 2, 0,
	 IBV_WC_REM_ACCESS_ERR},
	{"persistent, the region has neither", 0, FLUSHES, 0, 64, 2, 0,
	 IBV_WC_REM_ACCESS_ERR},
	{"persistent, beyond the end", PERSISTENT, PERSISTENT, LEN - 64, 128, 2,
	 0, IBV_WC_REM_ACCESS_ERR},
	{"persistent, the queue pair may not", PERSISTENT, 0, 0, 64, 2, 0,
	 IBV_WC_REM_INV_REQ_ERR},
	{"both, the queue pair is global only", FLUSHES, GLOBAL, 0, 64, 3, 0,
	 IBV_WC_REM_INV_REQ_ERR},
};

static void run_case(const struct one *c)
{
	size_t fits = c->off + c->len > LEN ? LEN - c->off : c->len;
	struct reply r = pair_open(c->mr_access, c->qp_access);
	enum ibv_wc_status got;

	if (!fits)
		fits = 1;
	memset(source, 'a' + (int)(c - cases), LEN);
	start_batch();
	write_to(1, IBV_SEND_SIGNALED, &r, c->off, fits);
	post_flush(2, IBV_SEND_SIGNALED, &r, c->off, c->len, c->type, c->level);
	write_to(3, IBV_SEND_SIGNALED, &r, 0, 1);
	complete_batch(c->name);
	got = log_completions(c->name, 3);
	report_case(got == c->want, c->name);
	r = pair_close(c->off, got || !(c->type & 2) || !c->len ? 0 : fits);
	if (got == IBV_WC_SUCCESS)
		report_case(r.durable && (!c->len || r.first == *source),
			    "flushed bytes are kept");
}

static void plays_unsignaled(void)
{
	static const char name[] = "unsignaled ones";
	struct reply r = pair_open(PERSISTENT, PERSISTENT);
	const struct timespec while_ = {.tv_nsec = 300000000};

	start_batch();
	write_to(1, 0, &r, 0, 64);
	post_flush(4, 0, &r, 0, 64, 2, 0);
	post_flush(5, 0, &r, 64, 64, 2, 0);
	post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	complete_batch(name);
	report_case(!log_completions(name, 1), name);
	nanosleep(&while_, NULL);
	log_completions(name, 0);
	pair_close(0, 64);
}

static void plays_after_error(void)
{
	static const char name[] = "after an error";
	struct reply r = pair_open(PERSISTENT, PERSISTENT);

	start_batch();
	post_flush(1, IBV_SEND_SIGNALED, &r, LEN, 64, 2, 0);
	complete_batch(name);
	log_completions(name, 1);
	start_batch();
	post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	write_to(3, IBV_SEND_SIGNALED, &r, 0, 64);
	complete_batch(name);
	report_case(log_completions(name, 2) == IBV_WC_WR_FLUSH_ERR, name);
	pair_close(0, 0);
}

/* The old rkey is void; the new registration has other access flags. */
static void plays_reregistered(bool old)
{
	const char *name = old ? "the old rkey" : "registered anew";
	struct reply r = pair_open(FLUSHES, FLUSHES), now;

	start_batch();
	post_flush(1, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	complete_batch(name);
	log_completions(name, 1);
	now = send_order((struct order){.what = ANEW, .mr_access = GLOBAL});
	if (!old)
		r = now;
	start_batch();
	post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, old ? 2 : 1, 0);
	post_flush(3, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	complete_batch(name);
	report_case(log_completions(name, 2) ==
			    (old ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS),
		    name);
	pair_close(0, 0);
}

static void plays_atomic(void)
{
	static const char name[] = "an atomic write behind a flush";
	struct reply r = pair_open(PERSISTENT, PERSISTENT);
	const uint64_t value = 0x5a5a5a5a5a5a5a5a;

	start_batch();
	write_to(1, IBV_SEND_SIGNALED, &r, 4096, 4096);
	post_flush(3, IBV_SEND_SIGNALED, &r, 4096, 4096, 2, 0);
	set_wr(4, IBV_SEND_SIGNALED);
	ibv_wr_atomic_write(ex, r.rkey, r.addr + 512, &value);
	post_flush(2, IBV_SEND_SIGNALED, &r, 512, 8, 2, 0);
	complete_batch(name);
	report_case(!log_completions(name, 4), name);
	r = pair_close(512, 8);
	report_case(r.durable && r.first == 0x5a, "the tail is kept");
}

static void plays_many(void)
{
	static const char name[] = "many at once";
	struct reply r = pair_open(PERSISTENT, PERSISTENT);

	for (int round = 0; round < 3; round++) {
		start_batch();
		for (unsigned int i = 0; i < 32; i += 2) {
			write_to(100 + i, i % 4 ? IBV_SEND_SIGNALED : 0, &r,
				 i * 1024, 1000);
			post_flush(i == 30 ? 2 : 101 + i, IBV_SEND_SIGNALED, &r,
				   i * 1024, 1000, 2, 0);
		}
		complete_batch(name);
		report_case(!log_completions(name, 24), name);
	}
	pair_close(0, 32 * 1024);
}

/* A killed target sends nothing; the sleeping initiator still wakes. */
static void plays_death(void)
{
	static const char name[] = "the target is killed";
	struct reply r = pair_open(PERSISTENT, PERSISTENT);

	start_batch();
	post_flush(1, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	complete_batch(name);
	log_completions(name, 1);
	kill(target, SIGKILL);
	waitpid(target, NULL, 0);
	target = 0;
	start_batch();
	post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	write_to(3, IBV_SEND_SIGNALED, &r, 0, 64);
	complete_batch(name);
	report_case(log_completions(name, 2) == IBV_WC_RETRY_EXC_ERR, name);
	qp_close();
}

/*
 * The device of a stopped target still responds, but the agent does not. Only
 * an initiator with outstanding requests can notice.
 */
static void plays_silence(void)
{
	static const char name[] = "the target is stopped";
	enum ibv_wc_status got;
	unsigned int tries = 0;
	struct reply r;
	int state;

	/* On a busy machine the timeout may end before the agent responds. */
	for (;;) {
		r = pair_open(PERSISTENT, PERSISTENT);
		start_batch();
		post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
		complete_batch(name);
		got = log_completions(name, 1);
		if (got == IBV_WC_SUCCESS || ++tries == 5)
			break;
		qp_close();
	}
	/* Wait until all threads of the target have stopped. */
	if (kill(target, SIGSTOP) ||
	    waitpid(target, &state, WUNTRACED) != target || !WIFSTOPPED(state))
		die("SIGSTOP");
	start_batch();
	post_flush(2, IBV_SEND_SIGNALED, &r, 0, 64, 2, 0);
	complete_batch(name);
	got = log_completions(name, 1);
	report_case(got == IBV_WC_RETRY_EXC_ERR, name);
	printf("# %s\n", ibv_wc_status_str(got));
	kill(target, SIGKILL);
	qp_close();
}

static void plays_volatile(void)
{
	struct ibv_mr *mr;
	void *anon = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (anon == MAP_FAILED)
		die("mmap");
	mr = ibv_reg_mr(pd, anon, LEN, WRITES | PERSISTENT);
	fprintf(logged, "anonymous memory: %s\n",
		mr ? "registered" : strerror(errno));
	report_case(!mr && errno == EINVAL, "registers no anonymous memory");
}

static void begin_target(char **argv)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	target = fork();
	if (target < 0)
		die("fork");
	if (!target) {
		dup2(s[1], 3);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(s[1]);
	other = s[0];
}

static void run_initiator(void)
{
	struct ibv_device_attr_ex attr = {0};

	if (ibv_query_device_ex(ctx, NULL, &attr))
		die("ibv_query_device_ex");
	fprintf(logged, "capabilities: %llx\n",
		(unsigned long long)(attr.device_cap_flags_ex >> 38 & 7));
	source = aligned_alloc(4096, LEN);
	from = source ? ibv_reg_mr(pd, source, LEN, IBV_ACCESS_LOCAL_WRITE)
		      : NULL;
	if (!from)
		die("ibv_reg_mr");
	if (getenv("SILENCE")) {
		plays_silence();
		return;
	}
	plays_volatile();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run_case(&cases[i]);
	plays_unsignaled();
	plays_after_error();
	plays_reregistered(false);
	plays_reregistered(true);
	plays_atomic();
	plays_many();
	plays_death();
	if (fclose(logged))
		die("the log");
}

int main(int argc, char **argv)
{
	void *to;
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && !strcmp(argv[1], "--target")) {
		fd = open(argv[4], O_RDWR);
		to = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			  MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
		if (fd < 0 || to == MAP_FAILED)
			die("%s", argv[4]);
		device_open(argv[2], atoi(argv[3]));
		run_target(to);
		return 0;
	}
	if (argc < 5) {
		fprintf(stderr,
			"usage: preload DEVICE GID-INDEX LOG TARGET...\n"
			"       preload --target DEVICE GID-INDEX DAX\n");
		return 2;
	}
	begin_target(argv + 4);
	logged = fopen(argv[3], "w");
	if (!logged)
		die("%s", argv[3]);
	device_open(argv[1], atoi(argv[2]));
	run_initiator();
	return 0;
}
