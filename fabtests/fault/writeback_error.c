// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two regions of one file on a disk that fails: the flush of each must fail,
 * although the kernel reports the error to one msync() only. The same with a
 * pool: its growth must not take the report, and it is not closed as clean.
 */
#include "config.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/caps.h"
#include "core/method.h"
#include "core/pmem.h"
#include "pool.h"

static struct rp_pmem *open_region(char *addr, size_t len)
{
	/* Trust ext4: the tmpfs below the loop device would limit the class. */
	struct rp_caps_cfg cfg = {.placement = RP_PLACE_CPU_USER,
				  .trust_fs = "ext4"};
	struct rp_facts facts;
	struct rp_choice c;
	struct rp_pmem *pm;
	char why[RP_WHY_LEN];

	if (rp_caps_explain(&cfg, addr, len, &facts, why, NULL))
		errx(1, "%s", why);
	c = rp_method_best(&facts, RP_METHODS_BUILT);
	if (c.method != RP_METHOD_AGENT_MSYNC)
		errx(1, "%s", why);
	if (rp_pmem_new(addr, len, c.method, &facts.file, NULL, &pm))
		errx(1, "rp_pmem_new");
	return pm;
}

static int test_file(const char *path)
{
	int fd = open(path, O_RDWR), ret, bare;
	int other = open(path, O_RDWR);
	struct rp_pmem *a, *b;
	struct stat st;
	size_t half;
	char *p;

	if (fd < 0 || other < 0 || fstat(fd, &st))
		err(1, "%s", path);
	half = st.st_size / 2;
	p = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		err(1, "mmap");
	a = open_region(p, half);
	b = open_region(p + half, half);
	/*
	 * Make the write-back fail as the kernel's flusher would after some
	 * seconds: it writes all pages, fails for the second half, which has no
	 * space, and keeps the error for each open file. fsync() of the other
	 * descriptor waits for that, and takes only its own copy of the error.
	 */
	memset(p, 1, 2 * half);
	if (!fsync(other))
		errx(1, "the disk has room: nothing was tested");
	ret = rp_pmem_flush(a, 0, half);
	if (!ret)
		errx(1, "the first half's flush succeeded");
	printf("first half: %s\n", strerror(-ret));
	bare = msync(p + half, half, MS_SYNC);
	printf("bare msync of the second half: %s\n",
	       bare ? strerror(errno) : "success");
	ret = rp_pmem_flush(b, 0, half);
	printf("second half: %s\n", ret ? strerror(-ret) : "success");
	rp_pmem_delete(a);
	rp_pmem_delete(b);
	/*
	 * If the bare msync() failed, too, the kernel reported the error twice,
	 * and the test shows nothing.
	 */
	return ret && !bare ? 0 : 2;
}

/* The flusher fails to write pages of a pool, which then grows. */
static int test_pool(const char *path)
{
	const uint64_t size = 16u << 20;
	int other, grown, ret;
	char text[RP_ERR_LEN];
	struct rp_pool p;
	struct rp_pmem *pm;

	if (rp_pool_create(path, size, text) || rp_pool_open(path, &p, text))
		errx(1, "%s", text);
	other = open(path, O_RDWR);
	if (other < 0)
		err(1, "%s", path);
	pm = open_region(p.data, p.size);
	memset(p.data, 1, p.size);
	if (!fsync(other))
		errx(1, "the disk has room: nothing was tested");
	if (truncate(path, (off_t)(p.map_len + RP_POOL_UNIT)))
		err(1, "truncate");
	grown = rp_pool_allocate(&p, text);
	printf("growth: %d\n", grown);
	ret = rp_pmem_flush(pm, 0, p.size);
	printf("commit: %s\n", ret ? strerror(-ret) : "success");
	if (!ret)
		errx(1, "a commit behind the growth succeeded");
	rp_pmem_delete(pm);
	if (!rp_pool_close_clean(&p, text))
		errx(1, "the pool was closed as clean");
	puts(text);
	return 0;
}

/*
 * usage: writeback_error FILE, or writeback_error --pool FILE, which does not
 * exist yet. FILE is allocated on a disk that has no room for all its bytes.
 */
int main(int argc, char **argv)
{
	if (argc == 3)
		return test_pool(argv[2]);
	return test_file(argv[1]);
}
