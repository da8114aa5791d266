// SPDX-License-Identifier: BSD-2-Clause
/* CPU time of an idle target with FI_PROGRESS_AUTO. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/bench.h"

#define POOL_LEN (1u << 20)

struct outcome {
	int ret;
	double share;
	char err[RP_ERR_LEN];
};

static uint64_t cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Send one durable write, so that the idle agent has a session. */
static int one_write(struct rp_fabric *from, struct rp_fabric *to, uint64_t key,
		     uint64_t addr, char *err)
{
	uint8_t name[BENCH_NAME];
	static char bytes[64] = "idle";
	struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct fi_rma_iov rma = {
		.addr = addr, .len = sizeof(bytes), .key = key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};
	size_t len = sizeof(name), taken = 0;
	struct bench_end e = {.f = *from};
	int ret = fi_getname(&to->ep->fid, name, &len);

	if (ret)
		return rp_err(err, ret, "name of the target: %s",
			      fi_strerror(-ret));
	ret = rp_fabric_peer(from, name, &msg.addr, err);
	while (!ret) {
		ret = (int)fi_writemsg(from->ep, &msg,
				       FI_COMMIT_COMPLETE | FI_COMPLETION);
		if (ret != -FI_EAGAIN)
			break;
		ret = bench_make_room(&e, &taken, err);
	}
	if (ret)
		return err[0] ? ret
			      : rp_err(err, ret, "fi_writemsg: %s",
				       fi_strerror(-ret));
	return bench_read_cq(&e, 1, err);
}

static int measure_idle(const struct bench_cfg *cfg, struct outcome *a)
{
	struct rp_fabric_attr at = {
		.base = cfg->base,
		.target = true,
		.automatic = true,
	};
	struct rp_fabric_attr from = {.base = cfg->base};
	struct rp_fabric t = {0}, i = {0};
	uint64_t cpu, wall, ns = 2000000000, addr;
	struct fid_mr *mr;
	char *mem = mmap(NULL, POOL_LEN, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (mem == MAP_FAILED)
		return rp_err(a->err, -ENOMEM, "out of memory");
	ret = rp_fabric_open(&at, &t, a->err);
	if (!ret)
		ret = rp_fabric_reg(&t, mem, POOL_LEN,
				    FI_REMOTE_READ | FI_REMOTE_WRITE,
				    FI_RMA_PMEM, &mr, a->err);
	if (!ret)
		ret = rp_fabric_open(&from, &i, a->err);
	if (ret)
		return ret;
	addr = t.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)mem
							      : 0;
	ret = one_write(&i, &t, fi_mr_key(mr), addr, a->err);
	if (ret)
		return ret;
	usleep(100000); /* wait until the write is complete on both sides */
	cpu = cpu_time();
	wall = bench_now();
	usleep((useconds_t)(ns / 1000));
	a->share = (double)(cpu_time() - cpu) / (double)(bench_now() - wall);
	return 0; /* the process ends and frees everything */
}

/* Measures in a forked child: this process must not have used libfabric yet. */
int bench_idle_share(const struct bench *b, double *share, char *err)
{
	struct outcome *a = mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	int ret;

	if (a == MAP_FAILED)
		return rp_err(err, -ENOMEM, "out of memory");
	a->ret = -ECHILD;
	rp_err(a->err, 0, "the process died");
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		a->err[0] = 0;
		ret = measure_idle(b->cfg, a);
		a->ret = ret;
		_exit(0);
	}
	if (child < 0)
		ret = rp_err(err, -errno, "fork: %s", strerror(errno));
	else
		waitpid(child, NULL, 0);
	if (child > 0) {
		ret = a->ret;
		if (ret)
			rp_err(err, ret, "%s",
			       a->err[0] ? a->err : fi_strerror(-ret));
		else
			*share = a->share;
	}
	munmap(a, sizeof(*a));
	return ret;
}
