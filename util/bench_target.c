// SPDX-License-Identifier: BSD-2-Clause
/* The process whose memory fi_rpmem_bench writes to. */
#include "config.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#include <rdma/fi_tagged.h>

#include "util/bench.h"

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* One side as the target has it open. */
struct target_end {
	struct rp_fabric f;
	struct fid_mr *pool, *buf;
};

static int export_side(struct bench *b, enum bench_side side,
		       struct target_end *e)
{
	struct bench_export *x = &b->shared->target[side];
	struct rp_fabric_attr attr = {
		.base = b->cfg->base,
		.bare = side == BENCH_BASE,
		.target = true,
		.tagged = side == BENCH_BASE,
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
			    side == BENCH_OURS ? FI_RMA_PMEM : 0, &e->pool,
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
	x->ok = true;
	return 0;
}

/* Any message of tag 1 is answered by 8 bytes of tag 2. */
static int post_recv(struct bench *b, struct target_end *e)
{
	ssize_t ret;

	do
		ret = fi_trecv(e->f.ep, b->buf, BENCH_MAX_SIZE,
			       rp_fabric_desc(e->buf), FI_ADDR_UNSPEC, 1, 0,
			       b->buf);
	while (ret == -FI_EAGAIN);
	return (int)ret;
}

/* As a daemon does: nothing to read, so sleep until there is. */
static void sleep_on(struct rp_fabric *f)
{
	struct fid *fid = &f->cq->fid;
	struct pollfd p = {.events = POLLIN};

	if (fi_control(fid, FI_GETWAIT, &p.fd) ||
	    fi_trywait(f->fabric, &fid, 1))
		return;
	poll(&p, 1, 1); /* the mode may change meanwhile */
}

static void drive(struct bench *b, struct target_end *e, fi_addr_t initiator)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done;
	ssize_t n = fi_cq_read(e->f.cq, &done, 1);

	if (n == -FI_EAGAIN && b->cfg->sleep)
		sleep_on(&e->f);
	if (n == -FI_EAVAIL)
		rp_fabric_cq_error(&e->f, &bad, NULL);
	if (n != 1 || done.op_context != b->buf)
		return;
	while (fi_tinject(e->f.ep, b->buf, 8, initiator, 2) == -FI_EAGAIN)
		fi_cq_read(e->f.cq, NULL, 0);
	post_recv(b, e);
}

int bench_target_run(struct bench *b)
{
	struct bench_shared *sh = b->shared;
	struct target_end end[BENCH_SIDES] = {0};
	fi_addr_t initiator = FI_ADDR_UNSPEC;
	struct bench_export *base = &sh->target[BENCH_BASE];
	int mode;

	/* Ours first: the first call to libfabric reads the environment. */
	export_side(b, BENCH_OURS, &end[BENCH_OURS]);
	export_side(b, BENCH_BASE, &end[BENCH_BASE]);
	while (!atomic_load(&sh->initiator_open) &&
	       atomic_load(&sh->mode) != BENCH_QUIT)
		nap();
	if (base->ok && sh->initiator_len[BENCH_BASE] &&
	    rp_fabric_peer(&end[BENCH_BASE].f, sh->initiator_name[BENCH_BASE],
			   &initiator, base->why))
		base->ok = false;
	if (base->ok && post_recv(b, &end[BENCH_BASE])) {
		base->ok = false;
		rp_err(base->why, 0, "the target cannot receive");
	}
	atomic_store(&sh->target_open, true);

	while ((mode = atomic_load(&sh->mode)) != BENCH_QUIT) {
		if (mode == BENCH_IDLE || !sh->target[mode].ok)
			nap();
		else
			drive(b, &end[mode], initiator);
	}
	for (int i = 0; i < BENCH_SIDES; i++) {
		if (end[i].pool)
			fi_close(&end[i].pool->fid);
		if (end[i].buf)
			fi_close(&end[i].buf->fid);
		rp_fabric_close(&end[i].f);
	}
	return 0;
}
