// SPDX-License-Identifier: BSD-2-Clause
/* What fi_rpmem_bench measures: each case does one operation and times it. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <rdma/fi_tagged.h>

#include "util/bench.h"

#define PATIENCE_NS 30000000000ull /* for one operation */

static int cq_failed(struct bench_end *e, char *err)
{
	struct fi_cq_err_entry bad;
	int ret = rp_fabric_cq_error(&e->f, &bad, err);

	return ret ? rp_err(err, ret, "completion queue: %s", fi_strerror(-ret))
		   : -bad.err;
}

/* Read n completions; n 0 only drives progress. */
static int take(struct bench_end *e, size_t n, char *err)
{
	uint64_t end = bench_now() + PATIENCE_NS;
	struct fi_cq_entry done[16];
	unsigned int polls = 0;
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
		if (n && ++polls % 1024 == 0 && bench_now() > end)
			return rp_err(err, -FI_ETIMEDOUT,
				      "no completion in %llu s",
				      PATIENCE_NS / 1000000000);
	} while (n);
	return 0;
}

/*
 * A full queue is no failure: read completions until the call is taken. They
 * count, so *taken grows by what was read. To a dead target a base tries to
 * connect for ever, and takes nothing.
 */
static int make_room(struct bench_end *e, size_t *taken, char *err)
{
	struct fi_cq_entry done;
	ssize_t got = fi_cq_read(e->f.cq, &done, 1);

	if (got == -FI_EAVAIL)
		return cq_failed(e, err);
	*taken += got == 1;
	if (got == 1 || !e->stuck)
		e->stuck = bench_now();
	else if (bench_now() - e->stuck > PATIENCE_NS)
		return rp_err(err, -FI_ETIMEDOUT, "nothing is taken for %llu s",
			      PATIENCE_NS / 1000000000);
	return 0;
}

static int post_write(struct bench *b, struct bench_end *e, uint64_t off,
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

	e->stuck = 0;
	while ((ret = fi_writemsg(e->f.ep, &msg, flags | FI_COMPLETION)) ==
	       -FI_EAGAIN) {
		int bad = make_room(e, taken, err);

		if (bad)
			return bad;
	}
	return ret ? rp_err(err, (int)ret, "fi_writemsg: %s",
			    fi_strerror((int)-ret))
		   : 0;
}

static int post_commit(struct bench_end *e, const struct fi_rma_iov *ranges,
		       size_t n, size_t *taken, char *err)
{
	ssize_t ret;

	e->stuck = 0;
	while ((ret = fi_rpmem_commit(e->f.ep, ranges, n, e->peer,
				      FI_RPMEM_DURABLE, FI_RPMEM_CLASS_DEFAULT,
				      NULL, NULL)) == -FI_EAGAIN) {
		int bad = make_room(e, taken, err);

		if (bad)
			return bad;
	}
	return ret ? rp_err(err, (int)ret, "fi_rpmem_commit: %s",
			    fi_strerror((int)-ret))
		   : 0;
}

/* A random first slot, such that n slots from there are inside the pool. */
static uint64_t place(struct bench *b, uint64_t size, uint64_t n)
{
	uint64_t slots = b->pool.len / bench_stride(size);

	return bench_random(b) % (slots - n + 1) * bench_stride(size);
}

static int write_once(struct bench *b, const struct bench_line *l,
		      enum bench_side side, uint64_t off, uint64_t flags,
		      uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[side];
	uint64_t start = bench_now();
	size_t taken = 0;
	int ret;

	ret = post_write(b, e, off, l->size, flags, &taken, err);
	if (!ret && !taken)
		ret = take(e, 1, err);
	*ns = bench_now() - start;
	return ret;
}

/*
 * Without a commit the same page is written again and again: a page that the
 * last commit left clean would add its fault to what the network takes.
 */
static int run_base_write(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	return write_once(b, l, BENCH_BASE, 0, FI_DELIVERY_COMPLETE, ns, err);
}

static int run_write(struct bench *b, const struct bench_line *l, uint64_t *ns,
		     char *err)
{
	return write_once(b, l, BENCH_OURS, 0, FI_DELIVERY_COMPLETE, ns, err);
}

static int run_write_flag(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	return write_once(b, l, BENCH_OURS, place(b, l->size, 1),
			  FI_COMMIT_COMPLETE, ns, err);
}

/* ranges writes, then one commit of them all; both are in flight together. */
static int run_write_call(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_OURS];
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t off = place(b, l->size, l->ranges), start;
	size_t taken = 0;
	int ret = 0;

	for (uint64_t i = 0; i < l->ranges; i++)
		ranges[i] = (struct fi_rma_iov){
			.addr = e->addr + off + i * bench_stride(l->size),
			.len = l->size,
			.key = e->key};
	start = bench_now();
	for (uint64_t i = 0; !ret && i < l->ranges; i++)
		ret = post_write(b, e, off + i * bench_stride(l->size), l->size,
				 0, &taken, err);
	if (!ret)
		ret = post_commit(e, ranges, l->ranges, &taken, err);
	if (!ret && taken < l->ranges + 1)
		ret = take(e, l->ranges + 1 - taken, err);
	*ns = bench_now() - start;
	return ret;
}

/* What the disk takes by itself: the same stores, then the same msync. */
static int run_msync(struct bench *b, const struct bench_line *l, uint64_t *ns,
		     char *err)
{
	uint64_t off = place(b, l->size, l->ranges), start;

	if (b->pool.fd < 0)
		return rp_err(err, -ENOTSUP,
			      "the pool is emulated and has no file");
	start = bench_now();
	for (uint64_t i = 0; i < l->ranges; i++)
		memcpy(b->pool.map + off + i * bench_stride(l->size), b->buf,
		       l->size);
	for (uint64_t i = 0; i < l->ranges; i++)
		if (msync(b->pool.map + off + i * bench_stride(l->size),
			  l->size, MS_SYNC))
			return rp_err(err, -errno, "msync: %s",
				      strerror(errno));
	*ns = bench_now() - start;
	return 0;
}

static int run_tagged(struct bench *b, const struct bench_line *l, uint64_t *ns,
		      char *err)
{
	struct bench_end *e = &b->end[BENCH_BASE];
	void *desc = rp_fabric_desc(e->mr);
	char *answer = b->buf + BENCH_MAX_SIZE;
	uint64_t start = bench_now();
	size_t taken = 0;
	ssize_t ret;
	int bad;

	e->stuck = 0;
	while ((ret = fi_trecv(e->f.ep, answer, 8, desc, FI_ADDR_UNSPEC, 2, 0,
			       NULL)) == -FI_EAGAIN) {
		bad = make_room(e, &taken, err);
		if (bad)
			return bad;
	}
	if (ret)
		return rp_err(err, (int)ret, "fi_trecv: %s",
			      fi_strerror((int)-ret));
	e->stuck = 0;
	while ((ret = fi_tsend(e->f.ep, b->buf, l->size, desc, e->peer, 1,
			       NULL)) == -FI_EAGAIN) {
		bad = make_room(e, &taken, err);
		if (bad)
			return bad;
	}
	if (ret)
		return rp_err(err, (int)ret, "fi_tsend: %s",
			      fi_strerror((int)-ret));
	bad = taken < 2 ? take(e, 2 - taken, err) : 0;
	*ns = bench_now() - start;
	return bad;
}

const struct bench_case bench_cases[] = {
	{"base_write", "base: write, delivery complete", BENCH_BASE, false,
	 run_base_write},
	{"base_tagged", "base: tagged message, 8 bytes back", BENCH_BASE, false,
	 run_tagged},
	{"write", "write, delivery complete", BENCH_OURS, false, run_write},
	{"write_commit_flag", "write with FI_COMMIT_COMPLETE", BENCH_OURS,
	 false, run_write_flag},
	{"write_commit_call", "write, fi_rpmem_commit", BENCH_OURS, false,
	 run_write_call},
	{"msync", "msync alone", BENCH_IDLE, false, run_msync},
	{"writes_commit_call", "writes, one commit", BENCH_OURS, true,
	 run_write_call},
	{"msyncs", "msyncs alone", BENCH_IDLE, true, run_msync},
};
const size_t bench_ncases = sizeof(bench_cases) / sizeof(bench_cases[0]);
