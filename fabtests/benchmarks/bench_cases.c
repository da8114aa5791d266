// SPDX-License-Identifier: BSD-2-Clause
/* Table of the cases: each case runs one operation and times it. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <rdma/fi_tagged.h>

#include "fabtests/benchmarks/bench.h"

static int write_once(struct bench *b, const struct bench_line *l,
		      enum bench_side side, uint64_t off, uint64_t flags,
		      uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[side];
	uint64_t start = bench_now();
	size_t taken = 0;
	int ret;

	ret = bench_post(b, e, off, l->size, flags | FI_COMPLETION, &taken,
			 err);
	if (!ret && !taken)
		ret = bench_read_cq(e, 1, err);
	*ns = bench_now() - start;
	return ret;
}

/*
 * Writes without commit reuse one page of a file: another page that a commit
 * has cleaned would add a page fault to the network time. Emulated memory has
 * no clean pages, so there the writes are spread as in other cases.
 */
static uint64_t reuse_offset(struct bench *b, uint64_t size)
{
	return b->cfg->emulate ? bench_place(b, size, 1) : 0;
}

static int run_base_write(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	return write_once(b, l, BENCH_BASE, reuse_offset(b, l->size),
			  FI_DELIVERY_COMPLETE, ns, err);
}

static int run_write(struct bench *b, const struct bench_line *l, uint64_t *ns,
		     char *err)
{
	return write_once(b, l, BENCH_RPMEM, reuse_offset(b, l->size),
			  FI_DELIVERY_COMPLETE, ns, err);
}

static int run_write_flag(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	return write_once(b, l, BENCH_RPMEM, bench_place(b, l->size, 1),
			  FI_COMMIT_COMPLETE, ns, err);
}

/* Post l->ranges writes and one commit of all ranges, outstanding together. */
static int run_write_call(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t off = bench_place(b, l->size, l->ranges), start;
	size_t taken = 0;
	int ret = 0;

	for (uint64_t i = 0; i < l->ranges; i++)
		ranges[i] = (struct fi_rma_iov){
			.addr = e->addr + off + i * bench_stride(l->size),
			.len = l->size,
			.key = e->key};
	start = bench_now();
	for (uint64_t i = 0; !ret && i < l->ranges; i++)
		ret = bench_post(b, e, off + i * bench_stride(l->size), l->size,
				 FI_COMPLETION, &taken, err);
	if (!ret)
		ret = bench_post_commit(e, ranges, l->ranges,
					FI_RPMEM_CLASS_DEFAULT, &taken, err);
	if (!ret && taken < l->ranges + 1)
		ret = bench_read_cq(e, l->ranges + 1 - taken, err);
	*ns = bench_now() - start;
	return ret;
}

/* Time of the disk alone: the same stores, then the same msync. */
static int run_msync(struct bench *b, const struct bench_line *l, uint64_t *ns,
		     char *err)
{
	uint64_t off = bench_place(b, l->size, l->ranges), start;

	if (b->cfg->emulate)
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

/*
 * Round trip of a tagged message. The reply to tag 1 has 8 bytes, the reply to
 * tag 3 has `back` bytes.
 */
static int measure_round_trip(struct bench *b, struct bench_end *e,
			      uint64_t tag, uint64_t size, uint64_t back,
			      uint64_t *ns, char *err)
{
	void *desc = rp_fabric_desc(e->mr);
	char *reply = b->buf + BENCH_MAX_SIZE;
	bool inject = size <= e->f.info->tx_attr->inject_size;
	size_t taken = 0, want = inject ? 1 : 2;
	uint64_t start;
	ssize_t ret;
	int bad;

	if (atomic_load(&b->shared->reply_size) != back) {
		atomic_store(&b->shared->reply_size, back);
		bench_set_mode(b, atomic_load(&b->shared->mode));
	}
	start = bench_now();
	e->stall_start = 0;
	while ((ret = fi_trecv(e->f.ep, reply, back, desc, FI_ADDR_UNSPEC, 2, 0,
			       NULL)) == -FI_EAGAIN) {
		bad = bench_make_room(e, &taken, err);
		if (bad)
			return bad;
	}
	if (ret)
		return rp_err(err, (int)ret, "fi_trecv: %s",
			      fi_strerror((int)-ret));
	e->stall_start = 0;
	while ((ret = inject ? fi_tinject(e->f.ep, b->buf, size, e->peer, tag)
			     : fi_tsend(e->f.ep, b->buf, size, desc, e->peer,
					tag, NULL)) == -FI_EAGAIN) {
		bad = bench_make_room(e, &taken, err);
		if (bad)
			return bad;
	}
	if (ret)
		return rp_err(err, (int)ret, "sending: %s",
			      fi_strerror((int)-ret));
	bad = taken < want ? bench_read_cq(e, want - taken, err) : 0;
	*ns = bench_now() - start;
	return bad;
}

static int run_tagged(struct bench *b, const struct bench_line *l, uint64_t *ns,
		      char *err)
{
	return measure_round_trip(b, &b->end[BENCH_BASE], 1, l->size, 8, ns,
				  err);
}

static int run_pingpong(struct bench *b, const struct bench_line *l,
			uint64_t *ns, char *err)
{
	return measure_round_trip(b, &b->end[l->what->side], 3, l->size,
				  l->size, ns, err);
}

#define ALL   BENCH_ALL
#define LOCAL (BENCH_LOCAL | BENCH_CALIBRATE)

const struct bench_case bench_cases[] = {
	{"base_write", "base: write, delivery complete", BENCH_BASE, false,
	 ALL | BENCH_WRITE, run_base_write},
	{"base_tagged", "base: tagged message, 8 bytes back", BENCH_BASE, false,
	 ALL | BENCH_WRITE, run_tagged},
	{"write", "write, delivery complete", BENCH_RPMEM, false,
	 ALL | BENCH_WRITE, run_write},
	{"write_commit_flag", "write with FI_COMMIT_COMPLETE", BENCH_RPMEM,
	 false, ALL | BENCH_WRITE | BENCH_FILE, run_write_flag},
	{"write_commit_call", "write, fi_rpmem_commit", BENCH_RPMEM, false,
	 ALL | BENCH_WRITE, run_write_call},
	{"msync", "msync alone", BENCH_IDLE, false,
	 ALL | BENCH_WRITE | BENCH_FILE | LOCAL, run_msync},
	{"writes_commit_call", "writes, one commit", BENCH_RPMEM, true, ALL,
	 run_write_call},
	{"msyncs", "msyncs alone", BENCH_IDLE, true, ALL, run_msync},

	{"handwritten", "by hand: write, request, clwb, ack", BENCH_RIVAL + 2,
	 false, BENCH_WRITE, bench_run_rival},
	{"handwritten_inline", "by hand: bytes in the request, ack",
	 BENCH_RIVAL + 3, false, BENCH_WRITE, bench_run_rival},
	{"msg_commit", "tcp EP_MSG: FI_COMMIT_COMPLETE", BENCH_RIVAL + 1, false,
	 BENCH_WRITE, bench_run_rival},
	{"raw_echo", "raw TCP echo, nothing durable", BENCH_RIVAL, false,
	 BENCH_WRITE, bench_run_rival},

#ifdef HAVE_LIBRPMA
	{"librpma_flush", "librpma: write, flush", BENCH_RIVAL + 4, false, 0,
	 bench_run_rival},
	{"librpma_gpspm", "librpma: write, request, clwb, ack", BENCH_RIVAL + 5,
	 false, 0, bench_run_rival},
#endif

	{"base_pingpong", "base: tagged, as much back", BENCH_BASE, false,
	 BENCH_PINGPONG | BENCH_FILE, run_pingpong},
	{"pingpong", "tagged, as much back", BENCH_RPMEM, false, BENCH_PINGPONG,
	 run_pingpong},

	{"base_rate", "base: write, window full", BENCH_BASE, false, BENCH_RATE,
	 bench_run_rate_base},
	{"rate", "write, window full", BENCH_RPMEM, false, BENCH_RATE,
	 bench_run_rate},
	{"rate_pmem", "write to the pool, window full", BENCH_RPMEM, false,
	 BENCH_RATE, bench_run_rate_pmem},

	{"base_writes", "base: writes, delivery complete", BENCH_BASE, true,
	 BENCH_COMMIT, bench_run_writes_base},
	{"writes_commit", "writes, one commit, one completion", BENCH_RPMEM,
	 true, BENCH_COMMIT, bench_run_writes_commit},

	{"base_initiators", "initiators, base, delivery complete", BENCH_BASE,
	 true, BENCH_INITIATORS, bench_run_initiators_base},
	{"initiators", "initiators, FI_COMMIT_COMPLETE", BENCH_RPMEM, true,
	 BENCH_INITIATORS, bench_run_initiators},

	{"base_mixed", "base: zipfian, half reads", BENCH_BASE, false,
	 BENCH_MIXED, bench_run_mixed_base},
	{"mixed", "zipfian, half reads, committed writes", BENCH_RPMEM, false,
	 BENCH_MIXED, bench_run_mixed},

	{"base_sequential", "base: sequential, delivery complete", BENCH_BASE,
	 false, BENCH_SEQUENTIAL, bench_run_sequential_base},
	{"sequential", "sequential, one commit behind", BENCH_RPMEM, false,
	 BENCH_SEQUENTIAL, bench_run_sequential},

	{"clwb", "store, clwb", BENCH_IDLE, false, LOCAL, bench_run_clwb},
	{"stream", "non-temporal store", BENCH_IDLE, false, LOCAL,
	 bench_run_stream},

	/* These cases are run by the suite and calibrate only. */
	{"base_read", "base: a read of 8 bytes", BENCH_BASE, false, 0,
	 bench_run_reads_base},
	{"base_reads", "base: reads of 8 bytes at once", BENCH_BASE, true, 0,
	 bench_run_reads_base},
	{"agent_flush", "ranges, one commit of them", BENCH_RPMEM, true, 0,
	 bench_run_agent_flush},
	{"local_flush", "ranges by libpmem2, at the target", BENCH_WORK, true,
	 0, bench_run_local_flush},
	{"disk_each", "file: writes, committed one by one", BENCH_RPMEM, true,
	 0, bench_run_disk_each},
	{"disk_batch", "file: writes, all commits in flight", BENCH_RPMEM, true,
	 0, bench_run_disk_batch},
	{"disk_alone_each", "file: stores, one msync each, alone", BENCH_IDLE,
	 true, 0, bench_run_disk_alone_each},
	{"disk_alone_batch", "file: stores, one msync of all, alone",
	 BENCH_IDLE, true, 0, bench_run_disk_alone_batch},
};
const size_t bench_ncases = sizeof(bench_cases) / sizeof(bench_cases[0]);

const struct bench_case *bench_case_find(const char *name)
{
	for (size_t i = 0; i < bench_ncases; i++)
		if (!strcmp(bench_cases[i].name, name))
			return &bench_cases[i];
	return NULL;
}
