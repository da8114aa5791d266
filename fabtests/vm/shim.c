// SPDX-License-Identifier: BSD-2-Clause
/*
 * One program for each kind of flush. Logs which operations complete, and how.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ends.h"

/*
 * Two queue pairs of this process; a writes to b's devdax. Each case is a
 * write, a flush and a write. Their completions go to the log, which must be
 * the same for each kind of flush: the device's own flush, by libibverbs alone
 * (raw) or through the shim (native); a read of the shim, by builders (read) or
 * by ibv_post_send() (send); or a read and a request to b's agent (agent,
 * agent-send). The marks for flush.sh go into the kernel's trace.
 */
enum mode {
	RAW,
	NATIVE,
	READ,
	AGENT,
	SEND,
	AGENT_SEND
};
static const char *const modes[] = {"raw",   "native", "read",
				    "agent", "send",   "agent-send"};

#define LEN	(2u << 20)
#define SECONDS 60

#define OPEN	   ENDS_OPEN
#define GLOBAL	   RPMEM_ACCESS_FLUSH_GLOBAL
#define PERSISTENT RPMEM_ACCESS_FLUSH_PERSISTENT
#define FLUSHES	   ENDS_FLUSHES

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct rpmem_cq *scq;
	struct rpmem_qp *sqp;
};

static enum mode mode;
static struct ends_device dev;
static struct end a, b;
static struct ibv_mr *from;
static char *to, *source;
static FILE *marker, *logged;

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

static void report_case(bool good, const char *name)
{
	printf("%sok - %s: %s\n", good ? "" : "not ", modes[mode], name);
}

static void __attribute__((format(printf, 1, 2))) mark(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(marker, fmt, ap);
	va_end(ap);
	if (fflush(marker))
		die("trace_marker");
}

static void end_open(struct end *e, unsigned int access)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 8,
				       .max_recv_wr = 1,
				       .max_send_sge = 1,
				       .max_recv_sge = 1};
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = IBV_QPT_RC,
		.cap = cap,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev.pd,
		.send_ops_flags =
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_RC, .cap = cap};
	struct rpmem_qp_attr attr = {.access = access & FLUSHES};

	*e = (struct end){.cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0)};
	if (!e->cq)
		die("ibv_create_cq");
	ex.send_cq = ex.recv_cq = plain.send_cq = plain.recv_cq = e->cq;
	if (mode <= NATIVE)
		ex.send_ops_flags |= ENDS_WITH_FLUSH;
	e->qp = mode >= SEND ? ibv_create_qp(dev.pd, &plain)
			     : ibv_create_qp_ex(dev.ctx, &ex);
	if (!e->qp)
		die("the queue pair");
	if (mode < SEND) {
		e->ex = ibv_qp_to_qp_ex(e->qp);
		attr.send_ops_flags = ex.send_ops_flags;
	}
	if (mode == RAW)
		return;
	e->scq = rpmem_attach_cq(e->cq);
	if (!e->scq)
		die("rpmem_attach_cq");
	e->sqp = rpmem_attach_qp(e->qp, e->scq, &attr);
	if (!e->sqp)
		die("rpmem_attach_qp");
}

static void end_close(struct end *e)
{
	if (mode != RAW &&
	    ((e->sqp && rpmem_detach_qp(e->sqp)) || rpmem_detach_cq(e->scq)))
		die("detach");
	ibv_destroy_qp(e->qp);
	ibv_destroy_cq(e->cq);
}

static void end_join(struct end *e, const struct end *peer, unsigned int access)
{
	ends_join(e->qp, &dev, peer->qp->qp_num,
		  mode <= NATIVE ? access : access & ~(unsigned int)FLUSHES);
}

/* Connect the side connections. Both queue pairs are connected already. */
static void ends_connect(void)
{
	struct rpmem_qp_desc of_a, of_b;

	if (mode != AGENT && mode != AGENT_SEND)
		return;
	errno = rpmem_export_qp(a.sqp, &of_a);
	if (!errno)
		errno = rpmem_export_qp(b.sqp, &of_b);
	if (!errno)
		errno = rpmem_connect_qp(a.sqp, &of_b);
	if (!errno)
		errno = rpmem_connect_qp(b.sqp, &of_a);
	if (errno)
		die("the side");
}

static void ends_open(unsigned int access)
{
	end_open(&a, 0);
	end_open(&b, access);
	end_join(&a, &b, OPEN);
	end_join(&b, &a, OPEN | access);
	ends_connect();
}

/* --- code that differs between the modes --- */

static void write_to(uint64_t wr_id, uint32_t rkey, size_t off, size_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)source,
			      .length = (uint32_t)len,
			      .lkey = from->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = wr_id,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	if (mode >= SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)to + off;
		wr.wr.rdma.rkey = rkey;
		errno = ibv_post_send(a.qp, &wr, &bad);
		if (errno)
			die("ibv_post_send");
		return;
	}
	a.ex->wr_id = wr_id;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(a.ex, rkey, (uintptr_t)to + off);
	ibv_wr_set_sge(a.ex, from->lkey, (uintptr_t)source, (uint32_t)len);
}

static void start_batch(void)
{
	if (mode == RAW)
		ibv_wr_start(a.ex);
	else
		rpmem_wr_start(a.sqp);
}

static int complete_batch(void)
{
	return mode == RAW ? ibv_wr_complete(a.ex) : rpmem_wr_complete(a.sqp);
}

static void post_flush(uint64_t wr_id, uint32_t rkey, size_t off, size_t len,
		       uint8_t type, uint8_t level)
{
	if (mode != RAW) {
		a.sqp->wr_id = wr_id;
		a.sqp->wr_flags = IBV_SEND_SIGNALED;
		rpmem_wr_flush(a.sqp, rkey, (uintptr_t)to + off, len, type,
			       level);
		return;
	}
#ifdef HAVE_IBV_WR_FLUSH
	a.ex->wr_id = wr_id;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(a.ex, rkey, (uintptr_t)to + off, len, type, level);
#endif
}

static int poll_one(struct ibv_wc *wc)
{
	return mode == RAW ? ibv_poll_cq(a.cq, 1, wc)
			   : rpmem_poll_cq(a.scq, 1, wc);
}

static struct ibv_mr *register_region(void *addr, unsigned int access,
				      struct rpmem_mr **rmr)
{
	if (mode == RAW)
		return (ibv_reg_mr)(dev.pd, addr, LEN, (int)access);
	*rmr = rpmem_reg_mr(dev.pd, addr, LEN, (int)access);
	return *rmr ? (*rmr)->mr : NULL;
}

/* --- the program --- */

static enum ibv_wc_status log_completions(const char *name)
{
	enum ibv_wc_status of_flush = IBV_WC_GENERAL_ERR;
	const time_t limit = time(NULL) + SECONDS;
	struct ibv_wc wc;

	for (int n = 0; n < 3;) {
		int ret = poll_one(&wc);

		if (ret < 0)
			die("poll");
		if (!ret && time(NULL) > limit)
			die("only %d completions of \"%s\"", n, name);
		if (!ret)
			continue;
		n++;
		if (wc.wr_id == 2)
			of_flush = wc.status;
		fprintf(logged, "%s: %d %s %s, opcode %d\n", name,
			(int)wc.wr_id,
			wc.qp_num == a.qp->qp_num ? "ours" : "another's",
			ibv_wc_status_str(wc.status),
			wc.status ? -1 : (int)wc.opcode);
	}
	return of_flush;
}

static const struct one {
	const char *name;
	unsigned int mr_access, qp_access;
	size_t off, len; /* written; flushed unless level is MR */
	uint8_t type, level;
	enum ibv_wc_status want;
	size_t back, back_len; /* written back by the device's flush */
} cases[] = {
	{"persistent, one line", PERSISTENT, PERSISTENT, 4160, 64, 2, 0,
	 IBV_WC_SUCCESS, 4160, 64},
	{"persistent, over three pages", PERSISTENT, PERSISTENT, 20000, 8192, 2,
	 0, IBV_WC_SUCCESS, 20000, 8192},
	{"persistent, to the end", PERSISTENT, PERSISTENT, LEN - 100, 100, 2, 0,
	 IBV_WC_SUCCESS, LEN - 100, 100},
	{"persistent, the whole region", PERSISTENT, PERSISTENT, 4096, 64, 2, 1,
	 IBV_WC_SUCCESS, 0, LEN},
	{"persistent and global", FLUSHES, FLUSHES, 8192, 4096, 3, 0,
	 IBV_WC_SUCCESS, 8192, 4096},
	{"global, one page", GLOBAL, GLOBAL, 8192, 4096, 1, 0, IBV_WC_SUCCESS,
	 0, 0},
	{"global, the whole region", GLOBAL, GLOBAL, 8192, 4096, 1, 1,
	 IBV_WC_SUCCESS, 0, 0},
	{"persistent, of no bytes", PERSISTENT, PERSISTENT, 4096, 0, 2, 0,
	 IBV_WC_SUCCESS, 0, 0},
	{"persistent, the region is global only", GLOBAL, FLUSHES, 0, 64, 2, 0,
	 IBV_WC_REM_ACCESS_ERR, 0, 0},
	{"global, the region is persistent only", PERSISTENT, FLUSHES, 0, 64, 1,
	 0, IBV_WC_REM_ACCESS_ERR, 0, 0},
	{"persistent, the region has neither", 0, FLUSHES, 0, 64, 2, 0,
	 IBV_WC_REM_ACCESS_ERR, 0, 0},
	{"persistent, beyond the end", PERSISTENT, PERSISTENT, LEN - 64, 128, 2,
	 0, IBV_WC_REM_ACCESS_ERR, 0, 0},
	{"persistent, the queue pair may not", PERSISTENT, 0, 0, 64, 2, 0,
	 IBV_WC_REM_INV_REQ_ERR, 0, 0},
	{"both, the queue pair is global only", FLUSHES, GLOBAL, 0, 64, 3, 0,
	 IBV_WC_REM_INV_REQ_ERR, 0, 0},
};

static void run_case(const struct one *c)
{
	size_t fits = c->off + c->len > LEN ? LEN - c->off : c->len;
	struct rpmem_mr *rmr = NULL;
	struct ibv_mr *mr = register_region(to, OPEN | c->mr_access, &rmr);
	struct rpmem_mr_desc desc;
	enum ibv_wc_status got;

	if (!mr)
		die("registration for \"%s\"", c->name);
	ends_open(c->qp_access);
	if (rmr) {
		errno = rpmem_export_mr(rmr, b.sqp, &desc);
		if (errno)
			die("rpmem_export_mr");
		errno = rpmem_import_mr(a.sqp, &desc, NULL);
		if (errno)
			die("rpmem_import_mr");
	}
	if (!fits)
		fits = 1;
	memset(source, 'a' + (int)(c - cases), LEN);
	if (mode <= NATIVE)
		mark("begin %zu %zu %s\n", c->back, c->back_len, c->name);
	else
		mark("begin 0 0 %s\n", c->name);
	if (mode >= SEND)
		write_to(1, mr->rkey, c->off, fits);
	start_batch();
	if (mode < SEND)
		write_to(1, mr->rkey, c->off, fits);
	post_flush(2, mr->rkey, c->off, c->len, c->type, c->level);
	if (mode < SEND)
		write_to(3, mr->rkey, 0, 1);
	errno = complete_batch();
	if (errno)
		die("\"%s\"", c->name);
	if (mode >= SEND)
		write_to(3, mr->rkey, 0, 1);
	got = log_completions(c->name);
	mark("end %s: %s\n",
	     got == c->want && !memcmp(to + c->off + 1, source, fits - 1)
		     ? "right"
		     : "wrong",
	     ibv_wc_status_str(got));
	report_case(got == c->want, c->name);
	end_close(&a);
	end_close(&b);
	if (rmr ? rpmem_dereg_mr(rmr) : ibv_dereg_mr(mr))
		die("deregistration");
}

/* The shim refuses invalid calls at once. */
static void check_refusals(void)
{
	static const struct {
		const char *name;
		uint8_t type, level;
		uint32_t other;
		int want;
	} bad[] = {
		{"refuses type 0", 0, 0, 0, EINVAL},
		{"refuses type 4", 4, 0, 0, EINVAL},
		{"refuses level 2", 2, 2, 0, EINVAL},
		{"refuses an unknown region", 2, 0, 1, ENOKEY},
	};
	struct rpmem_mr *rmr = rpmem_reg_mr(dev.pd, to, LEN, OPEN | FLUSHES);
	struct rpmem_mr_desc desc;

	ends_open(FLUSHES);
	if (!rmr || rpmem_export_mr(rmr, b.sqp, &desc) ||
	    rpmem_import_mr(a.sqp, &desc, NULL))
		die("a region");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		start_batch();
		post_flush(2, rmr->mr->rkey + bad[i].other, 0, 64, bad[i].type,
			   bad[i].level);
		report_case(complete_batch() == bad[i].want, bad[i].name);
	}
	/* A descriptor for one queue pair is void for another one. */
	if (rpmem_export_mr(rmr, a.sqp, &desc) ||
	    rpmem_import_mr(a.sqp, &desc, NULL))
		die("a descriptor of another queue pair");
	start_batch();
	post_flush(2, rmr->mr->rkey, 0, 64, 2, 0);
	report_case(complete_batch() == EKEYREJECTED,
		    "refuses another's descriptor");
	end_close(&a);
	end_close(&b);
	rpmem_dereg_mr(rmr);
}

static enum ibv_wc_status next_is(uint64_t wr_id, int opcode)
{
	const time_t limit = time(NULL) + SECONDS;
	struct ibv_wc wc;
	int n;

	while (!(n = poll_one(&wc)))
		if (time(NULL) > limit)
			die("%d has not come", (int)wr_id);
	if (n < 0 || wc.wr_id != wr_id)
		die("%d is not %d", (int)wc.wr_id, (int)wr_id);
	if (!wc.status && (int)wc.opcode != opcode)
		die("opcode %d", (int)wc.opcode);
	return wc.status;
}

static int atomic_write(uint64_t wr_id, uint32_t rkey, size_t off,
			uint64_t value)
{
	start_batch();
	a.sqp->wr_id = wr_id;
	a.sqp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_atomic_write(a.sqp, rkey, (uintptr_t)to + off, &value);
	return complete_batch();
}

static int flush_alone(uint64_t wr_id, uint32_t rkey, size_t off)
{
	start_batch();
	post_flush(wr_id, rkey, off, 64, RPMEM_FLUSH_PERSISTENT, 0);
	return complete_batch();
}

static void post_write(uint64_t wr_id, uint32_t rkey, size_t off, size_t len)
{
	const struct ibv_sge sge = {.addr = (uintptr_t)source,
				    .length = (uint32_t)len,
				    .lkey = from->lkey};

	start_batch();
	a.sqp->wr_id = wr_id;
	a.sqp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_write_flush(a.sqp, rkey, (uintptr_t)to + off, &sge,
			     RPMEM_FLUSH_PERSISTENT);
	errno = complete_batch();
	if (errno)
		die("a write with its flush");
}

/* Open both ends, with all memory open to the peer's writes and flushes. */
static struct rpmem_mr *open_all(void)
{
	struct rpmem_mr *rmr = rpmem_reg_mr(dev.pd, to, LEN, OPEN | FLUSHES);
	struct rpmem_mr_desc desc;

	ends_open(FLUSHES);
	if (!rmr || rpmem_export_mr(rmr, b.sqp, &desc) ||
	    rpmem_import_mr(a.sqp, &desc, NULL))
		die("a region");
	return rmr;
}

/* Each write with its flush has one completion, whatever carries it out. */
static void puts_records(void)
{
	static const size_t lens[] = {1, 64, 256, 257, 5000};
	struct rpmem_mr *rmr = open_all();
	size_t wrong = 0;
	struct ibv_wc wc;
	const uint32_t rkey = rmr->mr->rkey;

	for (size_t round = 0; round < 50; round++) {
		const size_t len = lens[round % 5], off = 40 * round;

		memset(to, 0, LEN);
		memset(source, (int)(1 + round), len);
		post_write(round, rkey, off, len);
		wrong += next_is(round, RPMEM_WC_FLUSH) != 0 ||
			 memcmp(to + off, source, len) != 0 || to[off + len];
	}
	report_case(!wrong && !poll_one(&wc), "writes with their flush");
	post_write(7, rkey, LEN - 63, 64);
	report_case(next_is(7, 0) == IBV_WC_REM_ACCESS_ERR && !poll_one(&wc),
		    "one beyond the end");
	end_close(&a);
	end_close(&b);
	rpmem_dereg_mr(rmr);
}

/* The agent: its method, atomic writes between flushes, and its end. */
static void agent_cases(void)
{
	struct rpmem_mr *rmr = open_all();
	struct rpmem_mr_desc desc;
	struct rpmem_region attr;
	uint64_t *at = (uint64_t *)(to + 4096);
	const uint32_t rkey = rmr->mr->rkey;

	report_case(!rpmem_export_mr(rmr, b.sqp, &desc) &&
			    !rpmem_import_mr(a.sqp, &desc, &attr) &&
			    attr.rkey == rkey && attr.length == LEN &&
			    attr.remote_addr == (uintptr_t)to &&
			    !strncmp(attr.persistent, "agent-", 6),
		    "the agent gets the request");
	memset(to, 0, LEN);
	for (uint64_t i = 1; i <= 4; i++)
		if (flush_alone(2 * i, rkey, 64 * i) ||
		    atomic_write(2 * i + 1, rkey, 4096 + 8 * i, i))
			die("a batch");
	for (uint64_t i = 1; i <= 4; i++)
		if (next_is(2 * i, RPMEM_WC_FLUSH) ||
		    next_is(2 * i + 1, RPMEM_WC_ATOMIC_WRITE))
			die("what came");
	report_case(!at[0] && at[1] == 1 && at[2] == 2 && at[3] == 3 &&
			    at[4] == 4,
		    "atomic writes between flushes");
	report_case(atomic_write(2, rkey, 4097, 1) == EINVAL,
		    "an atomic write that is not aligned");
	/* Close b's side connection: no agent replies any more. */
	rpmem_detach_qp(b.sqp);
	if (flush_alone(3, rkey, 64))
		die("a flush");
	report_case(next_is(3, 0) == IBV_WC_RETRY_EXC_ERR,
		    "an agent that is gone");
	report_case(flush_alone(4, rkey, 64) == ENOTCONN,
		    "and nothing behind it");
	b.sqp = NULL;
	end_close(&a);
	end_close(&b);
	rpmem_dereg_mr(rmr);
}

static void refuses_memory(const char *name, void *addr)
{
	struct rpmem_mr *rmr = NULL;
	bool got = register_region(addr, OPEN | PERSISTENT, &rmr);

	report_case(!got && errno == EINVAL, name);
}

int main(int argc, char **argv)
{
	void *anon;
	int fd;

	for (mode = RAW; argc == 7 && mode <= AGENT_SEND; mode++)
		if (!strcmp(argv[1], modes[mode]))
			break;
	if (argc != 7 || mode > AGENT_SEND) {
		fprintf(stderr,
			"usage: shim raw|native|read|agent|send|agent-send "
			"DEVICE GID-INDEX DAX MARKER LOG\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	ends_device(&dev, argv[2], atoi(argv[3]));
	fd = open(argv[4], O_RDWR);
	to = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		  MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	source = aligned_alloc(4096, LEN);
	anon = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	marker = fopen(argv[5], "w");
	logged = fopen(argv[6], "w");
	if (fd < 0 || to == MAP_FAILED || anon == MAP_FAILED || !source ||
	    !marker || !logged)
		die("%s, %s or %s", argv[4], argv[5], argv[6]);
	from = ibv_reg_mr(dev.pd, source, LEN, IBV_ACCESS_LOCAL_WRITE);
	if (!from)
		die("ibv_reg_mr");
	refuses_memory("registers no anonymous memory as persistent", anon);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run_case(&cases[i]);
	if (mode != RAW) {
		check_refusals();
		puts_records();
	}
	if (mode == AGENT || mode == AGENT_SEND)
		agent_cases();
	return fclose(logged) ? 1 : 0;
}
