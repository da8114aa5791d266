// SPDX-License-Identifier: BSD-2-Clause
/* The memory that fi_rpmem_bench writes to: a new file, or emulated pmem. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/caps.h"
#include "fabtests/benchmarks/bench.h"
#include "util/host_facts.h"

#define DAX_ALIGN (2u << 20) /* alignment of a device DAX mapping */

/* Bytes for all ranges of the largest case, each on separate pages. */
static size_t pool_len(const struct bench_cfg *cfg)
{
	uint64_t size = 1, ranges = 8, len;

	for (size_t i = 0; i < cfg->nsizes; i++)
		if (cfg->sizes[i] > size)
			size = cfg->sizes[i];
	len = bench_stride(size) * ranges;
	for (size_t i = 0; i < cfg->nranges; i++)
		if (cfg->ranges[i] > ranges)
			ranges = cfg->ranges[i];
	if (ranges < 64)
		ranges = 64;
	/* Cases of the suite with many ranges use small ranges. */
	if (size > 65536)
		size = 65536;
	if (bench_stride(size) * ranges > len)
		len = bench_stride(size) * ranges;
	if (cfg->mode == BENCH_MIXED && len < size * BENCH_OBJECTS)
		len = size * BENCH_OBJECTS < 256u << 20 ? size * BENCH_OBJECTS
							: 256u << 20;
	return len;
}

/* Only --dax opens a device, because a run destroys its contents. */
static int open_dax(struct bench_pool *p, const char *name, char *err)
{
	struct stat st;

	p->fd = open(name, O_RDWR | O_CLOEXEC);
	if (p->fd < 0)
		return rp_err(err, -errno, "%s: %s", name, strerror(errno));
	if (fstat(p->fd, &st) || !S_ISCHR(st.st_mode))
		return rp_err(err, -EINVAL, "%s is no DAX device", name);
	p->len = (p->len + DAX_ALIGN - 1) / DAX_ALIGN * DAX_ALIGN;
	snprintf(p->kind, sizeof(p->kind), "DAX device");
	return 0;
}

static int open_file(struct bench_pool *p, const char *name, const char *any,
		     char *err)
{
	char fs[64] = "unknown";
	int ret;

	/* O_EXCL refuses an existing file, which the run would overwrite. */
	if (name) {
		p->path = strdup(name);
		p->fd = p->path ? open(p->path,
				       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
				       0600)
				: -1;
	} else {
		p->path = strdup(any);
		p->fd = p->path ? mkostemp(p->path, O_CLOEXEC) : -1;
	}
	if (p->fd < 0) {
		ret = -errno;
		rp_err(err, ret, "pool %s: %s; %s", p->path ? p->path : "file",
		       strerror(-ret),
		       ret == -EEXIST
			       ? "name a file that does not exist: it is "
				 "created, and "
				 "removed at the end"
			       : "name a file that can be created with --pool");
		free(p->path);
		p->path = NULL;
		return ret;
	}
	ret = -posix_fallocate(p->fd, 0, (off_t)p->len);
	if (ret)
		return rp_err(err, ret, "pool %s: %s", p->path, strerror(-ret));
	rp_host_fs_name(p->fd, fs, sizeof(fs));
	snprintf(p->kind, sizeof(p->kind), "file on %s", fs);
	return 0;
}

static void *map_file(const struct bench_pool *p)
{
	const int prot = PROT_READ | PROT_WRITE;
	/* MAP_SYNC works on DAX only, and makes msync unnecessary there. */
	void *map = mmap(NULL, p->len, prot, MAP_SHARED_VALIDATE | MAP_SYNC,
			 p->fd, 0);

	return map != MAP_FAILED
		       ? map
		       : mmap(NULL, p->len, prot, MAP_SHARED, p->fd, 0);
}

static int map_pool(struct bench_pool *p, bool anonymous, char *err)
{
	void *map = anonymous ? mmap(NULL, p->len, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0)
			      : map_file(p);

	if (map == MAP_FAILED)
		return rp_err(err, -errno, "mapping the pool: %s",
			      strerror(errno));
	p->map = map;
	return 0;
}

void bench_pool_size(struct bench *b)
{
	b->pool.fd = b->disk.fd = -1;
	if (!b->pool.len)
		b->pool.len = pool_len(b->cfg);
}

int bench_pool_open(struct bench *b, char *err)
{
	const struct bench_cfg *cfg = b->cfg;
	struct bench_pool *p = &b->pool;
	int ret = 0;

	bench_pool_size(b);
	if (cfg->emulate && !cfg->shm) {
		snprintf(p->kind, sizeof(p->kind), "emulated, anonymous");
	} else if (cfg->dax) {
		ret = open_dax(p, cfg->dax, err);
	} else if (cfg->shm) {
		ret = open_file(p, NULL, "/dev/shm/fi_rpmem_bench.XXXXXX", err);
		snprintf(p->kind, sizeof(p->kind), "emulated, on tmpfs");
	} else {
		ret = open_file(p, cfg->pool, "./fi_rpmem_bench.XXXXXX", err);
	}
	if (!ret)
		ret = map_pool(p, cfg->emulate && !cfg->shm, err);
	if (!ret && cfg->disk) {
		b->disk.len = BENCH_DISK;
		ret = open_file(&b->disk, cfg->pool, "./fi_rpmem_bench.XXXXXX",
				err);
		if (!ret)
			ret = map_pool(&b->disk, false, err);
	}
	if (ret) {
		bench_pool_close(p);
		bench_pool_close(&b->disk);
	}
	return ret;
}

/*
 * Fill the page tables of this process, so that no case measures first
 * accesses. Pages of a file are only read, because a write would make all of
 * them dirty.
 */
void bench_pool_touch(const struct bench *b)
{
	int how = b->cfg->emulate ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	(void)madvise(b->pool.map, b->pool.len, how);
	if (b->disk.map)
		(void)madvise(b->disk.map, b->disk.len, MADV_POPULATE_READ);
}

void bench_pool_close(struct bench_pool *p)
{
	if (p->map)
		munmap(p->map, p->len);
	if (p->fd >= 0)
		close(p->fd);
	if (p->path)
		unlink(p->path);
	free(p->path);
	*p = (struct bench_pool){.fd = -1};
}
