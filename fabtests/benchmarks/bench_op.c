// SPDX-License-Identifier: BSD-2-Clause
/* Steps of the cases of fi_rpmem_bench: post, wait, choose an offset. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "fabtests/benchmarks/bench.h"

#define DEADLINE_NS 30000000000ull /* limit of one operation */

static int cq_failed(struct bench_end *e, char *err)
{
	struct fi_cq_err_entry bad;
	int ret = rp_fabric_cq_error(&e->f, &bad, err);

	return ret ? rp_err(err, ret, "completion queue: %s", fi_strerror(-ret))
		   : -bad.err;
}

/* Read n completions; n = 0 only makes progress. */
int bench_read_cq(struct bench_end *e, size_t n, char *err)
{
	struct fi_cq_entry done[16];
	unsigned int polls = 0;
	uint64_t end = 0;
	ssize_t got;

	do {
		got = fi_cq_read(e->f.cq, done, n < 16 ? n : 16);
		if (got > 0)
			n -= (size_t)got;
		else if (got == -FI_EAVAIL)
			return cq_failed(e, err);
		else if (got != -FI_EAGAIN && got != 0)
			return rp_err(err, (int)got, "completion queue: %s",
				      fi_strerror((int)-got));
		/*
		 * Read the clock every 1024 polls only, as the rivals do: a
		 * clock may be slow.
		 */
		if (!n || ++polls % 1024)
			continue;
		end = end ? end : bench_now() + DEADLINE_NS;
		if (bench_now() > end)
			return rp_err(err, -FI_ETIMEDOUT,
				      "no completion in %llu s",
				      DEADLINE_NS / 1000000000);
	} while (n);
	return 0;
}

/*
 * After -FI_EAGAIN from a post: read one completion to make room and add it to
 * *taken. Fails after a deadline, because a base keeps connecting to a dead
 * target and refuses posts forever.
 */
int bench_make_room(struct bench_end *e, size_t *taken, char *err)
{
	struct fi_cq_entry done;
	ssize_t got = fi_cq_read(e->f.cq, &done, 1);

	if (got == -FI_EAVAIL)
		return cq_failed(e, err);
	*taken += got == 1;
	if (got == 1 || !e->stall_start)
		e->stall_start = bench_now();
	else if (bench_now() - e->stall_start > DEADLINE_NS)
		return rp_err(err, -FI_ETIMEDOUT,
			      "posts were refused for %llu s",
			      DEADLINE_NS / 1000000000);
	return 0;
}

int bench_post(struct bench *b, struct bench_end *e, uint64_t off,
	       uint64_t size, uint64_t flags, size_t *taken, char *err)
{
	struct iovec iov = {.iov_base = b->buf, .iov_len = size};
	struct fi_rma_iov to = {
		.addr = e->addr + off, .len = size, .key = e->key};
	void *desc = rp_fabric_desc(e->mr);
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = e->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	ssize_t ret;

	e->stall_start = 0;
	while ((ret = fi_writemsg(e->f.ep, &msg, flags)) == -FI_EAGAIN) {
		int bad = bench_make_room(e, taken, err);

		if (bad)
			return bad;
	}
	return ret ? rp_err(err, (int)ret, "fi_writemsg: %s",
			    fi_strerror((int)-ret))
		   : 0;
}

int bench_post_commit(struct bench_end *e, const struct fi_rma_iov *ranges,
		      size_t n, enum fi_rpmem_class required, size_t *taken,
		      char *err)
{
	const struct fi_rpmem_msg msg = {
		.rma_iov = ranges,
		.rma_iov_count = n,
		.addr = e->peer,
		.required = required,
	};
	ssize_t ret;

	e->stall_start = 0;
	while ((ret = fi_rpmem_commit(e->f.ops, e->f.ep, &msg, 0)) ==
	       -FI_EAGAIN) {
		int bad = bench_make_room(e, taken, err);

		if (bad)
			return bad;
	}
	return ret ? rp_err(err, (int)ret, "fi_rpmem_commit: %s",
			    fi_strerror((int)-ret))
		   : 0;
}

/*
 * Offset of a random slot that has at least n - 1 slots after it in the pool.
 */
uint64_t bench_place(struct bench *b, uint64_t size, uint64_t n)
{
	uint64_t slots = b->pool.len / bench_stride(size);

	return bench_random(b) % (slots - n + 1) * bench_stride(size);
}

int bench_post_read(struct bench *b, struct bench_end *e, uint64_t off,
		    uint64_t size, size_t *taken, char *err)
{
	void *desc = rp_fabric_desc(e->mr);
	ssize_t ret;

	e->stall_start = 0;
	while ((ret = fi_read(e->f.ep, b->buf + BENCH_MAX_SIZE, size, desc,
			      e->peer, e->addr + off, e->key, NULL)) ==
	       -FI_EAGAIN) {
		int bad = bench_make_room(e, taken, err);

		if (bad)
			return bad;
	}
	return ret ? rp_err(err, (int)ret, "fi_read: %s",
			    fi_strerror((int)-ret))
		   : 0;
}

int bench_work(struct bench *b, enum bench_work what, uint64_t off,
	       uint64_t size, uint64_t ranges, uint64_t *ns, char *err)
{
	uint64_t end = bench_now() + DEADLINE_NS;
	struct bench_shared *sh = b->shared;
	int mode = atomic_load(&sh->mode);

	sh->work_off = off;
	sh->work_size = size;
	sh->work_ranges = ranges;
	atomic_store(&sh->work, what);
	atomic_store(&sh->mode, BENCH_WORK);
	while (atomic_load(&sh->work) != BENCH_NO_WORK)
		if (bench_now() > end)
			return rp_err(err, -ETIMEDOUT,
				      "the target process does not respond");
	*ns = sh->work_ns;
	atomic_store(&sh->mode, mode);
	return sh->work_why[0] ? rp_err(err, -EIO, "%s", sh->work_why) : 0;
}
