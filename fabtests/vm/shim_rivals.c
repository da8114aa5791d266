// SPDX-License-Identifier: BSD-2-Clause
/* Compares durable writes through the shim with librpma's, on one device. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ends.h"
#include "fabtests/benchmarks/rival.h"
#include "fabtests/benchmarks/samples.h"

/*
 * Two processes. One has the memory. The other one writes, in turns through the
 * shim and through the rival library, and measures each write. In the rival's
 * turn the target polls. In the shim's turn the target sleeps, and only the
 * agent's thread runs, which parks when no requests arrive. The first writes of
 * a turn do not count, because they wake the target.
 */
#define LEN	 (2u << 20) /* the shim's memory follows the rival's */
#define AT	 4096
#define SIZE	 64
#define TURN	 32
#define WARM	 8
#define WRITTEN	 1
#define DURABLE	 2
#define SENDS	 16
#define DEADLINE 60000 /* ms for one step of the other end */
#define SHIM	 0
#define RIVAL	 1
#define BY_AGENT "agent-"

#ifdef HAVE_LIBRPMA
static const struct way {
	const char *name, *metric;
	const struct rival *rival;
	double bar;
	bool agent;
	bool one; /* one call writes and flushes the bytes */
} ways[] = {
	{"fence", "shim_fence_vs_librpma_flush", &rival_rpma_flush, 1.00, false,
	 false},
	{"agent", "shim_agent_vs_librpma_gpspm", &rival_rpma_gpspm, 0.90, true,
	 false},
	{"write", "shim_write_vs_librpma_gpspm", &rival_rpma_gpspm, 0.90, true,
	 true},
};

/* Set-up data of one end of the shim's connection, for the other end. */
struct setup {
	_Atomic int steps; /* completed steps of the set-up */
	uint32_t qp_num;
	struct rpmem_qp_desc addr;
};

static struct world {
	struct rival_page page;
	_Atomic int turn, up, over;
	sem_t wake; /* posted when the rival's turn begins */
	struct setup setup[2];
	struct rpmem_mr_desc desc;
	uint32_t rkey;
	uint64_t addr;
	char err[RP_ERR_LEN];
} * w;

static const struct way *way;
static struct ends_device dev;
static struct ends_end end;
static struct rpmem_cq *scq;
static struct rpmem_qp *sqp;
static struct ibv_mr *from;
static struct rival_end *rival;
static struct rp_samples samples[2];
static char *mem, *source;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void wait_for(_Atomic int *what, int value)
{
	for (int ms = 0; atomic_load(what) < value; ms++) {
		errno = ETIMEDOUT;
		if (ms > DEADLINE)
			ends_die("the other end");
		usleep(1000);
	}
}

/* Set up one end. self: 0 writes, 1 has the memory. */
static void connect_ends(int self, const char *device, int gid_index)
{
	const unsigned int access = self ? ENDS_FLUSHES : 0;
	struct rpmem_qp_attr attr = {.access = access};
	struct setup *mine = &w->setup[self], *theirs = &w->setup[!self];

	ends_device(&dev, device, gid_index);
	ends_make(&end, &dev, SENDS);
	attr.send_ops_flags = end.send_ops;
	scq = rpmem_attach_cq(end.cq);
	sqp = scq ? rpmem_attach_qp(end.qp, scq, &attr) : NULL;
	if (!sqp)
		ends_die("attach");
	mine->qp_num = end.qp->qp_num;
	errno = way->agent ? rpmem_export_qp(sqp, &mine->addr) : 0;
	if (errno)
		ends_die("rpmem_export_qp");
	atomic_store(&mine->steps, 1);
	wait_for(&theirs->steps, 1);
	ends_join(end.qp, &dev, theirs->qp_num, ENDS_OPEN | access);
	errno = way->agent ? rpmem_connect_qp(sqp, &theirs->addr) : 0;
	if (errno)
		ends_die("rpmem_connect_qp");
}

/* --- the process with the memory --- */

static void run_target(const struct rival_cfg *cfg, const char *device,
		       int gid_index)
{
	struct rpmem_mr *mr;
	int ret = way->rival->serve(cfg, &w->page, &rival, w->err);

	atomic_store(&w->up, ret ? -1 : 1);
	if (ret)
		_exit(1);
	connect_ends(1, device, gid_index);
	mr = rpmem_reg_mr(dev.pd, mem + LEN, LEN, ENDS_OPEN | ENDS_FLUSHES);
	if (!mr)
		ends_die("rpmem_reg_mr");
	errno = rpmem_export_mr(mr, sqp, &w->desc);
	if (errno)
		ends_die("rpmem_export_mr");
	w->rkey = mr->mr->rkey;
	w->addr = (uintptr_t)mem + LEN;
	atomic_store(&w->setup[1].steps, 2);
	while (!ret && !atomic_load(&w->over)) {
		if (atomic_load(&w->turn) == RIVAL)
			ret = way->rival->poll(rival, w->err);
		else
			sem_wait(&w->wake);
	}
	if (ret)
		fprintf(stderr, "%s, target: %s\n", way->rival->name, w->err);
	_exit(ret != 0);
}

/* --- the process that writes --- */

static void look_at_region(void)
{
	struct rpmem_region how;

	wait_for(&w->setup[1].steps, 2);
	errno = rpmem_import_mr(sqp, &w->desc, &how);
	if (errno)
		ends_die("the region");
	errno = EOPNOTSUPP;
	if (way->agent ? strncmp(how.persistent, BY_AGENT, strlen(BY_AGENT))
		       : strcmp(how.persistent, way->name))
		ends_die("it is flushed by %s", how.persistent);
	printf("# the shim flushes by %s\n", how.persistent);
}

static void through_shim(void)
{
	const struct ibv_sge bytes = {
		.addr = (uintptr_t)source, .length = SIZE, .lkey = from->lkey};
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	struct ibv_qp_ex *ex = end.ex;
	const uint64_t to = w->addr + AT;
	int n;

	rpmem_wr_start(sqp);
	sqp->wr_id = DURABLE;
	sqp->wr_flags = IBV_SEND_SIGNALED;
	if (way->one) {
		rpmem_wr_write_flush(sqp, w->rkey, to, &bytes,
				     RPMEM_FLUSH_PERSISTENT);
	} else {
		ex->wr_id = WRITTEN;
		ex->wr_flags = 0;
		ibv_wr_rdma_write(ex, w->rkey, to);
		ibv_wr_set_sge_list(ex, 1, &bytes);
		rpmem_wr_flush(sqp, w->rkey, to, SIZE, RPMEM_FLUSH_PERSISTENT,
			       RPMEM_FLUSH_RANGE);
	}
	errno = rpmem_wr_complete(sqp);
	if (errno)
		ends_die("rpmem_wr_flush");
	while (!(n = rpmem_poll_cq(scq, 1, &wc)))
		;
	if (n != 1 || wc.status != IBV_WC_SUCCESS || wc.wr_id != DURABLE ||
	    (int)wc.opcode != RPMEM_WC_FLUSH)
		ends_die("%d completions, %s", n, ibv_wc_status_str(wc.status));
}

static void as_rival(void)
{
	char err[RP_ERR_LEN] = "";

	if (way->rival->put(rival, source, AT, SIZE, err))
		ends_die("%s: %s", way->rival->name, err);
}

static void time_turn(int owner)
{
	static unsigned char salt;
	const char *remote = mem + (owner == SHIM ? LEN : 0) + AT;
	uint64_t before, after;

	atomic_store(&w->turn, owner);
	if (owner == RIVAL)
		sem_post(&w->wake);
	before = now();
	for (int i = -WARM; i < TURN; i++) {
		memset(source, ++salt, SIZE);
		owner == SHIM ? through_shim() : as_rival();
		/*
		 * Read the clock once for each write, because readings take
		 * time, too.
		 */
		after = now();
		if (i >= 0 && rp_samples_add(&samples[owner], after - before))
			ends_die("no memory");
		before = after;
		/* The initiator maps the memory, too, and sees the bytes. */
		if (memcmp(remote, source, SIZE))
			ends_die("the bytes did not arrive");
	}
}

static double median_of(struct rp_samples *of)
{
	uint64_t ns;

	if (rp_samples_rank(of, 500, &ns))
		ends_die("no samples");
	return (double)ns / 1e3;
}

static void compare_times(size_t turns)
{
	double us[2];

	for (size_t i = 0; i < turns; i++) {
		/* Alternate which library is first. */
		time_turn((int)(i % 2));
		time_turn((int)!(i % 2));
	}
	for (int k = 0; k < 2; k++)
		us[k] = median_of(&samples[k]);
	printf("# through the shim %.1f us, %s %.1f us, of %zu\n", us[SHIM],
	       way->rival->name, us[RIVAL], turns * TURN);
	printf("%s %.4f <= %.2f %s\n", way->metric, us[SHIM] / us[RIVAL],
	       way->bar, us[SHIM] / us[RIVAL] <= way->bar ? "met" : "missed");
}

static void run_initiator(const struct rival_cfg *cfg, const char *device,
			  int gid_index, size_t turns)
{
	wait_for(&w->setup[1].steps, 1);
	connect_ends(0, device, gid_index);
	look_at_region();
	source = aligned_alloc(4096, 4096);
	from = source ? ibv_reg_mr(dev.pd, source, 4096, IBV_ACCESS_LOCAL_WRITE)
		      : NULL;
	if (!from)
		ends_die("ibv_reg_mr");
	/*
	 * The target accepts the rival's connection only in the rival's turn.
	 */
	atomic_store(&w->turn, RIVAL);
	sem_post(&w->wake);
	if (way->rival->open(cfg, &w->page, &rival, w->err))
		ends_die("%s: %s", way->rival->name, w->err);
	compare_times(turns);
}

int main(int argc, char **argv)
{
	struct rival_cfg cfg = {.base = "verbs", .len = LEN};
	size_t turns;
	pid_t child;
	int fd, code;

	turns = argc == 7 ? strtoul(argv[6], NULL, 10) / TURN : 0;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (argc == 7 && !strcmp(argv[5], ways[i].name))
			way = &ways[i];
	if (!turns || !way) {
		fprintf(stderr,
			"usage: shim_rivals DEVICE GID-INDEX DAX ADDRESS "
			"fence|agent|write COUNT\n"
			"COUNT: at least %d\n",
			TURN);
		return 2;
	}
	cfg.node = argv[4];
	fd = open(argv[3], O_RDWR);
	mem = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE,
		   MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || mem == MAP_FAILED || w == MAP_FAILED ||
	    sem_init(&w->wake, 1, 0))
		ends_die("%s", argv[3]);
	cfg.mem = mem;
	/* Fork first: neither library survives a fork. */
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_target(&cfg, argv[1], atoi(argv[2]));
	}
	while (child > 0 && !atomic_load(&w->up))
		usleep(1000);
	if (child < 0 || atomic_load(&w->up) < 0)
		ends_die("the target: %s", w->err);
	run_initiator(&cfg, argv[1], atoi(argv[2]), turns);
	atomic_store(&w->over, 1);
	sem_post(&w->wake);
	return waitpid(child, &code, 0) == child && !code ? 0 : 1;
}
#else
int main(void)
{
	puts("built without librpma");
	return 77;
}
#endif
