// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs each rival by itself: rivals [SIZE [COUNT [POOL [NODE]]]], medians in
 * us. With NODE, the address of an RDMA device, the rivals over RDMA; without
 * it the others. POOL is a new file, or a DAX device.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/rival.h"
#include "fabtests/benchmarks/samples.h"

#define POOL_LEN (16u << 20)
#define WARM_UP	 64

/* Shared by the two processes of a rival, in one page. */
struct world {
	struct rival_page page;
	_Atomic int up; /* 1: the target serves; -1: it cannot, err says why */
	_Atomic int over;
	char err[RP_ERR_LEN];
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void target(const struct rival *r, const struct rival_cfg *cfg,
		   struct world *w)
{
	struct rival_end *end;
	int ret = r->serve(cfg, &w->page, &end, w->err);

	atomic_store(&w->up, ret ? -1 : 1);
	while (!ret && !atomic_load(&w->over))
		ret = r->poll(end, w->err);
	if (ret)
		fprintf(stderr, "%s, target: %s\n", r->name, w->err);
	_exit(ret != 0);
}

static int initiator(const struct rival *r, const struct rival_cfg *cfg,
		     struct world *w, uint64_t size, uint64_t count,
		     struct rp_samples *samples, char *err)
{
	struct rival_end *end;
	char *buf = malloc(size);
	uint64_t start, off;
	int ret;

	if (!buf)
		return rp_err(err, -ENOMEM, "out of memory");
	/* Bytes that differ from those of the previous rival in the pool. */
	memset(buf, (int)strlen(r->name), size);
	ret = r->open(cfg, &w->page, &end, err);
	for (uint64_t i = 0; !ret && i < count + WARM_UP; i++) {
		off = i * 4096 % (cfg->len - size + 1) & ~4095ull;
		buf[0] = (char)i;
		start = now();
		ret = r->put(end, buf, off, size, err);
		if (!ret && i >= WARM_UP)
			ret = rp_samples_add(samples, now() - start);
		/*
		 * Both processes map the pool, so the initiator can check the
		 * bytes.
		 */
		if (!ret && r != &rival_raw &&
		    memcmp(cfg->mem + off, buf, size))
			ret = rp_err(err, -EIO, "the bytes did not arrive");
	}
	free(buf); /* the process exits, and closes the end with it */
	return ret;
}

static int run(const struct rival *r, const struct rival_cfg *cfg,
	       uint64_t size, uint64_t count)
{
	struct rp_samples samples = {0};
	char err[RP_ERR_LEN] = "";
	struct world *w;
	uint64_t p50 = 0;
	pid_t child;
	int ret;

	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w == MAP_FAILED)
		return 1;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		target(r, cfg, w);
	}
	while (child > 0 && !atomic_load(&w->up))
		usleep(1000);
	ret = child > 0 && atomic_load(&w->up) > 0
		      ? initiator(r, cfg, w, size, count, &samples, err)
		      : -1;
	atomic_store(&w->over, 1);
	if (child > 0)
		waitpid(child, NULL, 0);
	if (ret || rp_samples_rank(&samples, 500, &p50))
		printf("%-20s %8llu B  not obtained: %s\n", r->name,
		       (unsigned long long)size, err[0] ? err : w->err);
	else
		printf("%-20s %8llu B  p50 %8.1f us  %s\n", r->name,
		       (unsigned long long)size, (double)p50 / 1000, r->title);
	fflush(stdout);
	rp_samples_free(&samples);
	munmap(w, sizeof(*w));
	return ret != 0;
}

static int open_pool(const char *path, struct rival_cfg *cfg)
{
	struct stat st;
	int fd = -1;

	if (path) {
		bool device = !stat(path, &st) && S_ISCHR(st.st_mode);

		fd = open(path,
			  O_RDWR | O_CLOEXEC | (device ? 0 : O_CREAT | O_EXCL),
			  0600);
		if (fd < 0 || (!device && posix_fallocate(fd, 0, POOL_LEN))) {
			perror(path);
			return 1;
		}
		if (!device)
			unlink(path);
	}
	cfg->len = POOL_LEN;
	cfg->mem = mmap(NULL, POOL_LEN, PROT_READ | PROT_WRITE,
			MAP_SHARED | (path ? 0 : MAP_ANONYMOUS), fd, 0);
	return cfg->mem == MAP_FAILED;
}

int main(int argc, char **argv)
{
	uint64_t size = argc > 1 ? strtoull(argv[1], NULL, 0) : 64;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 10000;
	struct rival_cfg cfg = {.base = "tcp"};
	int status = 0, code;
	pid_t child;

	if (open_pool(argc > 3 ? argv[3] : NULL, &cfg))
		return 1;
	cfg.node = argc > 4 ? argv[4] : NULL;
	if (cfg.node)
		cfg.base = "verbs";
	/* One process for each: libfabric does not survive a fork. */
	for (int i = 0; i < RIVALS; i++) {
		if (!size || size > rivals[i]->max ||
		    rivals[i]->rdma != !!cfg.node)
			continue;
		child = fork();
		if (!child)
			_exit(run(rivals[i], &cfg, size, count));
		if (child < 0 || waitpid(child, &code, 0) != child || code)
			status = 1;
	}
	return status;
}
