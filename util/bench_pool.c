// SPDX-License-Identifier: BSD-2-Clause
/* The memory that fi_rpmem_bench writes to: a new file, or emulated pmem. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/caps.h"
#include "util/bench.h"

/* Room for every range of the widest case, each on pages of its own. */
static size_t pool_len(const struct bench_cfg *cfg)
{
	uint64_t size = 1, ranges = 64;

	for (size_t i = 0; i < cfg->nsizes; i++)
		if (cfg->sizes[i] > size)
			size = cfg->sizes[i];
	for (size_t i = 0; i < cfg->nranges; i++)
		if (cfg->ranges[i] > ranges)
			ranges = cfg->ranges[i];
	return bench_stride(size) * ranges;
}

static int open_file(struct bench *b, char *err)
{
	struct bench_pool *p = &b->pool;
	char fs[64] = "unknown";
	int ret;

	/* Never a file that is there: its bytes would be overwritten. */
	if (b->cfg->pool) {
		p->path = strdup(b->cfg->pool);
		p->fd = p->path ? open(p->path,
				       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
				       0600)
				: -1;
	} else {
		p->path = strdup("./fi_rpmem_bench.XXXXXX");
		p->fd = p->path ? mkostemp(p->path, O_CLOEXEC) : -1;
	}
	if (p->fd < 0) {
		ret = -errno;
		rp_err(err, ret, "pool %s: %s; %s", p->path ? p->path : "file",
		       strerror(-ret),
		       ret == -EEXIST
			       ? "name a file that does not exist, it is made "
				 "and removed"
			       : "name a file that can be made with --pool");
		free(p->path);
		p->path = NULL;
		return ret;
	}
	ret = -posix_fallocate(p->fd, 0, (off_t)p->len);
	if (ret)
		return rp_err(err, ret, "pool %s: %s", p->path, strerror(-ret));
	rp_caps_fs_name(p->fd, fs, sizeof(fs));
	snprintf(p->kind, sizeof(p->kind), "file on %s", fs);
	return 0;
}

static void *map_file(const struct bench_pool *p)
{
	const int prot = PROT_READ | PROT_WRITE;
	/* Only DAX has MAP_SYNC; there it saves the msync. */
	void *map = mmap(NULL, p->len, prot, MAP_SHARED_VALIDATE | MAP_SYNC,
			 p->fd, 0);

	return map != MAP_FAILED
		       ? map
		       : mmap(NULL, p->len, prot, MAP_SHARED, p->fd, 0);
}

int bench_pool_open(struct bench *b, char *err)
{
	struct bench_pool *p = &b->pool;
	void *map;
	int ret;

	p->fd = -1;
	p->len = pool_len(b->cfg);
	if (b->cfg->emulate) {
		snprintf(p->kind, sizeof(p->kind), "emulated, anonymous");
		map = mmap(NULL, p->len, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} else {
		ret = open_file(b, err);
		if (ret)
			goto close;
		map = map_file(p);
	}
	if (map == MAP_FAILED) {
		ret = rp_err(err, -errno, "mapping the pool: %s",
			     strerror(errno));
		goto close;
	}
	p->map = map;
	return 0;

close:
	bench_pool_close(b);
	return ret;
}

void bench_pool_close(struct bench *b)
{
	struct bench_pool *p = &b->pool;

	if (p->map)
		munmap(p->map, p->len);
	if (p->fd >= 0)
		close(p->fd);
	if (p->path)
		unlink(p->path);
	free(p->path);
	*p = (struct bench_pool){.fd = -1};
}
