// SPDX-License-Identifier: BSD-2-Clause
/* One durable write from this process to itself, verified in the file. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "rpmem/ext.h"
#include "util/fabric.h"
#include "util/info.h"

#define BYTES 4096
#define AT    8192 /* offset of the write in the file */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Wait for the completions of the write and of the commit. */
static int wait_completions(struct rp_fabric *f, char *err)
{
	uint64_t end = now_ms() + 15000;
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done;
	int left = 2, ret;
	ssize_t n;

	while (left) {
		n = fi_cq_read(f->cq, &done, 1);
		if (n == 1) {
			left--;
		} else if (n == -FI_EAVAIL) {
			ret = rp_fabric_cq_error(f, &bad, err);
			return ret ? ret : -bad.err;
		} else if (n != -FI_EAGAIN && n != 0) {
			return rp_err(err, (int)n, "completion queue: %s",
				      fi_strerror((int)-n));
		} else if (now_ms() > end) {
			return rp_err(err, -FI_ETIMEDOUT,
				      "no completion in 15 s");
		}
	}
	return 0;
}

static int write_and_commit(struct rp_fabric *f, struct fid_mr *src,
			    const char *buf, const struct fi_rma_iov *to,
			    fi_addr_t self, enum fi_rpmem_class class,
			    char *err)
{
	const struct fi_rpmem_msg msg = {
		.rma_iov = to,
		.rma_iov_count = 1,
		.addr = self,
		.required = class,
	};
	uint64_t end = now_ms() + 15000;
	ssize_t ret;

	do {
		ret = fi_write(f->ep, buf, to->len, rp_fabric_desc(src), self,
			       to->addr, to->key, NULL);
		if (ret == -FI_EAGAIN)
			fi_cq_read(f->cq, NULL, 0);
	} while (ret == -FI_EAGAIN && now_ms() < end);
	if (ret)
		return rp_err(err, (int)ret, "fi_write: %s",
			      fi_strerror((int)-ret));
	do {
		ret = fi_rpmem_commit(f->ops, f->ep, &msg, 0);
		if (ret == -FI_EAGAIN)
			fi_cq_read(f->cq, NULL, 0);
	} while (ret == -FI_EAGAIN && now_ms() < end);
	if (ret)
		return rp_err(err, (int)ret, "fi_rpmem_commit: %s",
			      fi_strerror((int)-ret));
	return wait_completions(f, err);
}

/* Compare with the file by pread(), not with the mapping. */
static int compare(int fd, const char *buf, char *err)
{
	char got[BYTES];
	ssize_t n = pread(fd, got, sizeof(got), AT);

	if (n != BYTES || memcmp(got, buf, BYTES))
		return rp_err(err, -EIO,
			      "committed, but the file has other bytes");
	return 0;
}

static int commit_to_self(struct rp_fabric *f, struct info_map *m, char *done,
			  char *err)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct fid_mr *pool = NULL, *src = NULL;
	char name[128], buf[BYTES];
	size_t len = sizeof(name);
	struct fi_rma_iov to;
	struct timespec seed;
	fi_addr_t self;
	int ret;

	/* Write other bytes in each run, so that old bytes fail compare(). */
	clock_gettime(CLOCK_REALTIME, &seed);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(seed.tv_nsec >> (i % 24) ^ (long)i);

	ret = fi_getname(&f->ep->fid, name, &len);
	if (ret)
		return rp_err(err, ret, "fi_getname: %s", fi_strerror(-ret));
	ret = rp_fabric_peer(f, name, &self, err);
	if (!ret)
		ret = rp_fabric_reg(f, buf, sizeof(buf), FI_READ | FI_WRITE, 0,
				    &src, err);
	if (!ret)
		ret = rp_fabric_reg(f, m->addr, m->len,
				    FI_REMOTE_READ | FI_REMOTE_WRITE,
				    FI_RMA_PMEM, &pool, err);
	if (ret)
		goto close;
	/*
	 * Require the region's own class: check_path() of doctor.c warns if
	 * that class is weak.
	 */
	ret = fi_rpmem_query_sync(f->ops, f->ep, self, fi_mr_key(pool),
				  FI_RPMEM_CLASS_NONE, &attr);
	if (!ret)
		ret = fi_rpmem_query_sync(f->ops, f->ep, self, fi_mr_key(pool),
					  attr.region_class, &attr);
	if (ret) {
		rp_err(err, ret, "fi_rpmem_query_sync: %s", fi_strerror(-ret));
		goto close;
	}
	to = (struct fi_rma_iov){
		.addr = attr.addr + AT, .len = BYTES, .key = fi_mr_key(pool)};
	ret = write_and_commit(f, src, buf, &to, self, attr.region_class, err);
	if (!ret)
		ret = compare(m->fd, buf, err);
	if (!ret)
		rp_err(done, 0,
		       "%d bytes written and committed, class %s by %s over "
		       "%s",
		       BYTES,
		       rp_class_name(rp_class_decode(attr.region_class,
						     RP_CLASS_NONE)),
		       rp_method_name((enum rp_method)attr.method),
		       f->info->fabric_attr->prov_name);

close:
	if (src)
		fi_close(&src->fid);
	if (pool)
		fi_close(&pool->fid);
	return ret;
}

int doctor_commit(const char *dir, const char *base, char *done, char *err)
{
	struct rp_fabric_attr attr = {.base = base, .target = true};
	struct info_map m;
	struct rp_fabric f;
	int ret;

	ret = info_map_open(dir, &m, err);
	if (ret)
		return ret;
	if (!m.temp_path) {
		/* An existing file may have data: never write to it. */
		ret = rp_err(err, -ENOTDIR,
			     "not a folder: no commit is tried on a file");
		goto close_map;
	}
	ret = rp_fabric_open(&attr, &f, err);
	if (ret)
		goto close_map;
	ret = commit_to_self(&f, &m, done, err);
	rp_fabric_close(&f);
close_map:
	info_map_close(&m);
	return ret;
}
