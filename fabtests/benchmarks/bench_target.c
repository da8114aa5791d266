// SPDX-License-Identifier: BSD-2-Clause
/* Target process of fi_rpmem_bench: owns the memory that cases write to. */
#include "config.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#include <rdma/fi_tagged.h>

#include "fabtests/benchmarks/bench.h"
#include "fabtests/benchmarks/flush.h"

static void sleep_100us(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* One side of the target: endpoint and regions. */
struct target_end {
	struct rp_fabric f;
	struct fid_mr *pool, *buf;
	struct fid_mr *plain, *disk; /* provider only: volatile region; file */
};

/*
 * Register the pool a second time as volatile memory, and the file on disk.
 * Some cases need neither, so a failure only records the reason.
 */
static void export_more(struct bench *b, struct target_end *e)
{
	struct bench_shared *sh = b->shared;
	bool virt = e->f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	if (!rp_fabric_reg(&e->f, b->pool.map, b->pool.len,
			   FI_REMOTE_READ | FI_REMOTE_WRITE, 0, &e->plain,
			   sh->target[BENCH_RPMEM].why)) {
		sh->volatile_key = fi_mr_key(e->plain);
		sh->volatile_addr = virt ? (uintptr_t)b->pool.map : 0;
	}
	if (!b->cfg->disk || rp_fabric_reg(&e->f, b->disk.map, b->disk.len,
					   FI_REMOTE_READ | FI_REMOTE_WRITE,
					   FI_RMA_PMEM, &e->disk, sh->disk_why))
		return;
	sh->disk_key = fi_mr_key(e->disk);
	sh->disk_addr = virt ? (uintptr_t)b->disk.map : 0;
	sh->disk_ok = true;
}

static int export_side(struct bench *b, enum bench_side side,
		       struct target_end *e)
{
	struct bench_export *x = &b->shared->target[side];
	struct rp_fabric_attr attr = {
		.base = b->cfg->base,
		.bare = side == BENCH_BASE,
		.source = b->node,
		.target = true,
		.tagged = true,
		.selective = true,
		.wait_fd = b->cfg->sleep,
	};
	int ret;

	ret = rp_fabric_open(&attr, &e->f, x->why);
	if (ret)
		return ret;
	x->len = sizeof(x->name);
	ret = fi_getname(&e->f.ep->fid, x->name, &x->len);
	if (ret)
		return rp_err(x->why, ret, "name of the target: %s",
			      fi_strerror(-ret));
	ret = rp_fabric_reg(&e->f, b->pool.map, b->pool.len,
			    FI_REMOTE_READ | FI_REMOTE_WRITE,
			    side == BENCH_RPMEM ? FI_RMA_PMEM : 0, &e->pool,
			    x->why);
	if (!ret)
		ret = rp_fabric_reg(&e->f, b->buf, BENCH_BUF, FI_SEND | FI_RECV,
				    0, &e->buf, x->why);
	if (ret)
		return ret;
	x->key = fi_mr_key(e->pool);
	x->addr = e->f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			  ? (uintptr_t)b->pool.map
			  : 0;
	if (side == BENCH_RPMEM)
		export_more(b, e);
	x->ok = true;
	return 0;
}

#define TAG_SHORT 1 /* the reply has 8 bytes */
#define TAG_PING  3 /* the reply has bench_shared.reply_size bytes */

/* Context of the receive for a tag: its completion has this context. */
static void *recv_context(struct bench *b, uint64_t tag)
{
	return b->buf + tag;
}

static int post_recv(struct bench *b, struct target_end *e, uint64_t tag)
{
	ssize_t ret;

	do
		ret = fi_trecv(e->f.ep, b->buf, BENCH_MAX_SIZE,
			       rp_fabric_desc(e->buf), FI_ADDR_UNSPEC, tag, 0,
			       recv_context(b, tag));
	while (ret == -FI_EAGAIN);
	return (int)ret;
}

static void reply_to_ping(struct bench *b, struct target_end *e, fi_addr_t to,
			  uint64_t size)
{
	bool inject = size <= e->f.info->tx_attr->inject_size;
	char *from = b->buf + BENCH_MAX_SIZE;
	void *desc = rp_fabric_desc(e->buf);

	while ((inject ? fi_tinject(e->f.ep, from, size, to, 2)
		       : fi_tsend(e->f.ep, from, size, desc, to, 2, NULL)) ==
	       -FI_EAGAIN)
		fi_cq_read(e->f.cq, NULL, 0);
}

/* Sleep until a completion arrives, as a daemon does. */
static void wait_cq(struct rp_fabric *f)
{
	struct fid *fid = &f->cq->fid;
	struct pollfd p = {.events = POLLIN};

	if (fi_control(fid, FI_GETWAIT, &p.fd) ||
	    fi_trywait(f->fabric, &fid, 1))
		return;
	poll(&p, 1, 1); /* 1 ms: sh->mode may change */
}

static void poll_side(struct bench *b, struct target_end *e,
		      fi_addr_t initiator)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done;
	ssize_t n = fi_cq_read(e->f.cq, &done, 1);

	if (n == -FI_EAGAIN && b->cfg->sleep)
		wait_cq(&e->f);
	if (n == -FI_EAVAIL)
		rp_fabric_cq_error(&e->f, &bad, NULL);
	if (n == 1 && done.op_context == recv_context(b, TAG_SHORT)) {
		reply_to_ping(b, e, initiator, 8);
		post_recv(b, e, TAG_SHORT);
	} else if (n == 1 && done.op_context == recv_context(b, TAG_PING)) {
		reply_to_ping(b, e, initiator,
			      atomic_load(&b->shared->reply_size));
		post_recv(b, e, TAG_PING);
	}
}

static void serve_rivals(struct bench *b, struct rival_end **ends)
{
	const struct rival_cfg cfg = {
		.base = b->cfg->base,
		.node = b->node,
		.mem = b->pool.map,
		.len = b->pool.len,
	};

	for (int i = 0; i < RIVALS; i++) {
		struct bench_rival *r = &b->shared->rival[i];

		if (!bench_wants_rival(b->cfg, i))
			continue;
		r->ok = !rivals[i]->serve(&cfg, &r->page, &ends[i], r->why);
	}
}

/* Let the CPU store to the ranges and, for BENCH_FLUSH, time their flush. */
static void do_work(struct bench *b)
{
	struct bench_shared *sh = b->shared;
	int what = atomic_load(&sh->work);
	static struct rp_flush cpu;
	static int salt;
	char *at = b->pool.map + sh->work_off;
	uint64_t start;

	if (what == BENCH_NO_WORK)
		return;
	sh->work_ns = 0;
	sh->work_why[0] = 0;
	if (!cpu.flush)
		rp_flush_open(&cpu, sh->work_why);
	salt++;
	for (uint64_t i = 0; i < sh->work_ranges; i++)
		memset(at + i * bench_stride(sh->work_size), salt,
		       sh->work_size);
	if (what == BENCH_FLUSH && cpu.flush) {
		start = bench_now();
		for (uint64_t i = 0; i < sh->work_ranges; i++)
			cpu.flush(at + i * bench_stride(sh->work_size),
				  sh->work_size);
		cpu.drain();
		sh->work_ns = bench_now() - start;
	}
	atomic_store(&sh->work, BENCH_NO_WORK);
}

/*
 * Insert the initiator's address and post receives, so that pings get a reply.
 */
static void connect_initiator(struct bench *b, enum bench_side side,
			      struct target_end *e, fi_addr_t *initiator)
{
	struct bench_export *x = &b->shared->target[side];

	if (!x->ok || !b->shared->initiator_len[side])
		return;
	x->ok = !rp_fabric_peer(&e->f, b->shared->initiator_name[side],
				initiator, x->why);
	if (x->ok &&
	    (post_recv(b, e, TAG_SHORT) || post_recv(b, e, TAG_PING))) {
		x->ok = false;
		rp_err(x->why, 0, "the target cannot receive");
	}
}

int bench_target_run(struct bench *b)
{
	struct bench_shared *sh = b->shared;
	struct target_end end[BENCH_SIDES] = {0};
	struct rival_end *rival[RIVALS] = {0};
	fi_addr_t initiator[BENCH_SIDES] = {FI_ADDR_UNSPEC, FI_ADDR_UNSPEC};
	int mode;

	bench_pool_touch(b);
	/*
	 * Open the provider before the base: the first libfabric call reads the
	 * environment.
	 */
	export_side(b, BENCH_RPMEM, &end[BENCH_RPMEM]);
	export_side(b, BENCH_BASE, &end[BENCH_BASE]);
	serve_rivals(b, rival);
	atomic_store(&sh->exported, true);
	while (!atomic_load(&sh->initiator_open) &&
	       atomic_load(&sh->mode) != BENCH_QUIT)
		sleep_100us();
	connect_initiator(b, BENCH_RPMEM, &end[BENCH_RPMEM],
			  &initiator[BENCH_RPMEM]);
	connect_initiator(b, BENCH_BASE, &end[BENCH_BASE],
			  &initiator[BENCH_BASE]);
	atomic_store(&sh->target_open, true);

	while ((mode = atomic_load(&sh->mode)) != BENCH_QUIT) {
		atomic_store(&sh->seen, mode);
		if (mode == BENCH_WORK)
			do_work(b);
		else if (mode < BENCH_SIDES && sh->target[mode].ok)
			poll_side(b, &end[mode], initiator[mode]);
		else if (mode >= BENCH_RIVAL && mode < BENCH_IDLE &&
			 rival[mode - BENCH_RIVAL])
			rivals[mode - BENCH_RIVAL]->poll(
				rival[mode - BENCH_RIVAL],
				sh->rival[mode - BENCH_RIVAL].why);
		else
			sleep_100us();
	}
	for (int i = 0; i < RIVALS; i++)
		if (rival[i])
			rivals[i]->close(rival[i]);
	for (int i = 0; i < BENCH_SIDES; i++) {
		if (end[i].pool)
			fi_close(&end[i].pool->fid);
		if (end[i].plain)
			fi_close(&end[i].plain->fid);
		if (end[i].disk)
			fi_close(&end[i].disk->fid);
		if (end[i].buf)
			fi_close(&end[i].buf->fid);
		rp_fabric_close(&end[i].f);
	}
	return 0;
}
