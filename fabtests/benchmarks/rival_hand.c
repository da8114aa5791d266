// SPDX-License-Identifier: BSD-2-Clause
/* A hand-written protocol over the bare base: write, request, ack. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fi_tagged.h>

#include "fabtests/benchmarks/rival.h"
#include "util/fabric.h"
#include "fabtests/benchmarks/flush.h"

/*
 * The fastest form of this protocol: small writes, requests and acks are
 * injected, receives are posted long before and alone report completions, and
 * both sides poll. Two variants: the base writes and a request behind it makes
 * the target flush by clwb; or the request carries the bytes, which the target
 * stores non-temporally.
 *
 * It promises less than ofi_rpmem. A write counts as placed when the request
 * behind it arrives, which holds on one connection and not across a silent
 * reconnect; nothing distinguishes two incarnations of the target; of a request
 * only the bounds are checked.
 */
#define TAG_REQUEST 1
#define TAG_ACK	    2
#define POSTED	    8
#define INLINE	    65536u

struct request {
	uint64_t off, len;
	uint64_t inlined; /* the bytes follow */
};

struct rival_end {
	struct rp_fabric f;
	struct rival_page *page;
	struct rp_flush cpu; /* target */
	char *mem;
	size_t len;
	struct fid_mr *mem_mr, *slot_mr;
	fi_addr_t peer;
	size_t slot_len;
	char *slots;   /* POSTED of slot_len */
	char *message; /* initiator: request and bytes */
	size_t inject;
};

static void hand_close(struct rival_end *e)
{
	if (e->mem_mr)
		fi_close(&e->mem_mr->fid);
	if (e->slot_mr)
		fi_close(&e->slot_mr->fid);
	rp_fabric_close(&e->f);
	free(e->slots);
	free(e);
}

static int post(struct rival_end *e, char *slot, uint64_t tag)
{
	ssize_t ret;

	while ((ret = fi_trecv(e->f.ep, slot, e->slot_len,
			       rp_fabric_desc(e->slot_mr), FI_ADDR_UNSPEC, tag,
			       0, slot)) == -FI_EAGAIN)
		fi_cq_read(e->f.cq, NULL, 0);
	return (int)ret;
}

static int end_open(const struct rival_cfg *cfg, struct rival_page *page,
		    size_t slot_len, uint64_t tag, uint8_t *name, size_t *len,
		    struct rival_end **end, char *err)
{
	struct rp_fabric_attr attr = {
		.base = cfg->base,
		.bare = true,
		.target = tag == TAG_REQUEST,
		.tagged = true,
		.selective = true,
	};
	struct rival_end *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return rp_err(err, -ENOMEM, "out of memory");
	e->page = page;
	e->peer = FI_ADDR_UNSPEC;
	e->slot_len = slot_len;
	/* One slot beyond the posted receives holds the initiator's message. */
	e->slots = calloc(POSTED, slot_len + sizeof(struct request) + INLINE);
	ret = e->slots ? rp_fabric_open(&attr, &e->f, err)
		       : rp_err(err, -ENOMEM, "out of memory");
	if (ret)
		goto close;
	e->message = e->slots + POSTED * slot_len;
	e->inject = e->f.info->tx_attr->inject_size;
	*len = 128;
	ret = fi_getname(&e->f.ep->fid, name, len);
	if (!ret)
		ret = rp_fabric_reg(
			&e->f, e->slots,
			POSTED * slot_len + sizeof(struct request) + INLINE,
			FI_SEND | FI_RECV | FI_WRITE, 0, &e->slot_mr, err);
	for (size_t i = 0; !ret && i < POSTED; i++)
		ret = post(e, e->slots + i * slot_len, tag);
	if (ret) {
		rp_err(err, ret, "the endpoint: %s", fi_strerror(-ret));
		goto close;
	}
	*end = e;
	return 0;

close:
	hand_close(e);
	return ret;
}

static int hand_serve(const struct rival_cfg *cfg, struct rival_page *page,
		      struct rival_end **end, char *err)
{
	struct rival_end *e;
	int ret =
		end_open(cfg, page, sizeof(struct request) + INLINE,
			 TAG_REQUEST, page->target, &page->target_len, &e, err);

	if (ret)
		return ret;
	e->mem = cfg->mem;
	e->len = cfg->len;
	ret = rp_flush_open(&e->cpu, err);
	if (!ret)
		ret = rp_fabric_reg(&e->f, cfg->mem, cfg->len,
				    FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
				    &e->mem_mr, err);
	if (ret) {
		hand_close(e);
		return ret;
	}
	page->key = fi_mr_key(e->mem_mr);
	page->addr = e->f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			     ? (uintptr_t)cfg->mem
			     : 0;
	*end = e;
	return 0;
}

static void persist(struct rival_end *e, const char *slot)
{
	struct request req;

	memcpy(&req, slot, sizeof(req));
	if (req.off > e->len || req.len > e->len - req.off ||
	    (req.inlined && req.len > INLINE))
		return; /* no ack: the initiator runs into its deadline */
	if (req.inlined)
		e->cpu.copy(e->mem + req.off, slot + sizeof(req), req.len,
			    PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
	else
		e->cpu.flush(e->mem + req.off, req.len);
	e->cpu.drain();
	while (fi_tinject(e->f.ep, slot, 8, e->peer, TAG_ACK) == -FI_EAGAIN)
		fi_cq_read(e->f.cq, NULL, 0);
}

static int hand_poll(struct rival_end *e, char *err)
{
	struct fi_cq_entry done;
	ssize_t n;

	if (e->peer == FI_ADDR_UNSPEC) {
		if (!atomic_load(&e->page->named))
			return 0;
		return rp_fabric_peer(&e->f, e->page->initiator, &e->peer, err);
	}
	n = fi_cq_read(e->f.cq, &done, 1);
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry bad;

		rp_fabric_cq_error(&e->f, &bad, err);
		return -bad.err;
	}
	if (n != 1)
		return 0;
	persist(e, done.op_context);
	return post(e, done.op_context, TAG_REQUEST);
}

static int hand_open(const struct rival_cfg *cfg, struct rival_page *page,
		     struct rival_end **end, char *err)
{
	struct rival_end *e;
	int ret = end_open(cfg, page, sizeof(struct request), TAG_ACK,
			   page->initiator, &page->initiator_len, &e, err);

	if (ret)
		return ret;
	ret = rp_fabric_peer(&e->f, page->target, &e->peer, err);
	if (ret) {
		hand_close(e);
		return ret;
	}
	atomic_store(&page->named, 1);
	*end = e;
	return 0;
}

/* Wait for one ack, and post its receive again. */
static int await_ack(struct rival_end *e, char *err)
{
	struct timespec t;
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done;
	unsigned int polls = 0;
	time_t end = 0;
	ssize_t n;

	while ((n = fi_cq_read(e->f.cq, &done, 1)) != 1) {
		if (n == -FI_EAVAIL) {
			rp_fabric_cq_error(&e->f, &bad, err);
			return -bad.err;
		}
		if (++polls % 65536)
			continue;
		clock_gettime(CLOCK_MONOTONIC, &t);
		if (!end)
			end = t.tv_sec + RIVAL_DEADLINE;
		if (t.tv_sec > end)
			return rp_err(err, -ETIMEDOUT, "no answer in %d s",
				      RIVAL_DEADLINE);
	}
	return post(e, done.op_context, TAG_ACK);
}

/* Send a message of len bytes, injected if the base allows that length. */
static int send_request(struct rival_end *e, size_t len, char *err)
{
	void *desc = rp_fabric_desc(e->slot_mr);
	struct iovec iov = {.iov_base = e->message, .iov_len = len};
	struct fi_msg_tagged msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = e->peer,
		.tag = TAG_REQUEST,
	};
	ssize_t ret;

	do {
		ret = len <= e->inject ? fi_tinject(e->f.ep, e->message, len,
						    e->peer, TAG_REQUEST)
				       : fi_tsendmsg(e->f.ep, &msg, 0);
		if (ret == -FI_EAGAIN)
			fi_cq_read(e->f.cq, NULL, 0);
	} while (ret == -FI_EAGAIN);
	if (ret)
		return rp_err(err, (int)ret, "request: %s",
			      fi_strerror((int)-ret));
	return await_ack(e, err);
}

static int hand_put(struct rival_end *e, const void *buf, uint64_t off,
		    uint64_t size, char *err)
{
	const struct request req = {.off = off, .len = size};
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = size};
	struct fi_rma_iov to = {
		.addr = e->page->addr + off, .len = size, .key = e->page->key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = e->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	ssize_t ret;

	do {
		ret = size <= e->inject
			      ? fi_inject_write(e->f.ep, buf, size, e->peer,
						to.addr, to.key)
			      : fi_writemsg(e->f.ep, &msg, 0);
		if (ret == -FI_EAGAIN)
			fi_cq_read(e->f.cq, NULL, 0);
	} while (ret == -FI_EAGAIN);
	if (ret)
		return rp_err(err, (int)ret, "write: %s",
			      fi_strerror((int)-ret));
	memcpy(e->message, &req, sizeof(req));
	return send_request(e, sizeof(req), err);
}

static int inline_put(struct rival_end *e, const void *buf, uint64_t off,
		      uint64_t size, char *err)
{
	const struct request req = {.off = off, .len = size, .inlined = 1};

	memcpy(e->message, &req, sizeof(req));
	memcpy(e->message + sizeof(req), buf, size);
	return send_request(e, sizeof(req) + size, err);
}

const struct rival rival_hand = {
	.name = "handwritten",
	.title = "by hand: write, request, clwb, ack",
	.max = 4u << 20,
	.serve = hand_serve,
	.poll = hand_poll,
	.open = hand_open,
	.put = hand_put,
	.close = hand_close,
};

const struct rival rival_inline = {
	.name = "handwritten_inline",
	.title = "by hand: bytes in the request, ack",
	.max = INLINE,
	.serve = hand_serve,
	.poll = hand_poll,
	.open = hand_open,
	.put = inline_put,
	.close = hand_close,
};
