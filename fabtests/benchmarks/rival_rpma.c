// SPDX-License-Identifier: BSD-2-Clause
/* librpma over an RDMA device: write and flush; write, request, clwb, ack. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <librpma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "fabtests/benchmarks/rival.h"
#include "fabtests/benchmarks/flush.h"

/*
 * Two methods, each as fast as the library allows: receives are posted long
 * before and reposted while the next reply is outstanding, buffers stay
 * registered, only one operation in SIGNALED is signaled beyond those that are
 * waited for (that frees the send queue), and both sides poll.
 *
 * The flush is the library's own, a read behind the write (the appliance
 * method), or the device's flush if both devices have one (librpma 1.3).
 * Nothing checks that it moves the device's writes to memory: the operator
 * states that (direct write to pmem). The general-purpose method follows the
 * library's examples, without their serialization: the range in 16 bytes,
 * libpmem2's write-back at the target, a reply of 8 bytes. It promises less
 * than ofi_rpmem: a reply has no status, and nothing distinguishes two
 * incarnations of the target.
 */
#define POSTED	 16
#define SIGNALED 16
#define SLOT	 64 /* bytes of a message, and where it is received */
#define QUEUE	 128
#define PORTS	 64 /* ports to try */

struct request {
	uint64_t off, len;
};

struct rival_end {
	struct rival_page *page;
	struct rpma_peer *peer;
	struct rpma_conn_cfg *conn_cfg;
	struct rpma_ep *ep; /* target */
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_local *mem_mr;	/* target */
	struct rpma_mr_local *buf_mr;	/* initiator: what it writes from */
	struct rpma_mr_local *slots_mr; /* POSTED received, POSTED sent */
	struct rpma_mr_remote *remote;	/* initiator */
	const void *buf;
	uint64_t buf_len;
	struct rp_flush cpu; /* target */
	char *mem;
	size_t len;
	char *slots;
	uint64_t sent;
	bool received; /* initiator: a slot has to be reposted */
	bool blocks;
	uint64_t slot; /* the slot */
};

/* The target's report in the shared page. */
struct target_report {
	char port[12];
	uint8_t peer_cfg;
	uint8_t size; /* of the descriptor */
	uint8_t descriptor[96];
};
_Static_assert(sizeof(struct target_report) <= 128, "it fits the page");

static int failed(char *err, int ret, const char *what)
{
	return rp_err(err, -EIO, "%s: %s", what, rpma_err_2str(ret));
}

static void rpma_end(struct rival_end *e)
{
	if (e->conn) {
		rpma_conn_disconnect(e->conn);
		rpma_conn_delete(&e->conn);
	}
	rpma_mr_remote_delete(&e->remote);
	rpma_mr_dereg(&e->buf_mr);
	rpma_mr_dereg(&e->slots_mr);
	rpma_mr_dereg(&e->mem_mr);
	rpma_ep_shutdown(&e->ep);
	rpma_conn_cfg_delete(&e->conn_cfg);
	rpma_peer_delete(&e->peer);
	free(e->slots);
	free(e);
}

static int end_open(const struct rival_cfg *cfg, struct rival_page *page,
		    enum rpma_util_ibv_context_type where,
		    struct rival_end **end, char *err)
{
	const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
	const size_t len = (size_t)2 * POSTED * SLOT;
	struct ibv_context *device;
	struct rival_end *e;
	int ret;

	if (!cfg->node)
		return rp_err(err, -ENODEV,
			      "librpma needs the address of an RDMA device");
	e = calloc(1, sizeof(*e));
	if (!e)
		return rp_err(err, -ENOMEM, "out of memory");
	e->page = page;
	e->blocks = cfg->blocks;
	e->slots = aligned_alloc(4096, (len + 4095) & ~4095ul);
	if (!e->slots) {
		ret = rp_err(err, -ENOMEM, "out of memory");
		goto close;
	}
	ret = rpma_utils_get_ibv_context(cfg->node, where, &device);
	if (!ret)
		ret = rpma_peer_new(device, &e->peer);
	if (!ret)
		ret = rpma_conn_cfg_new(&e->conn_cfg);
	if (!ret)
		ret = rpma_conn_cfg_set_sq_size(e->conn_cfg, QUEUE);
	if (!ret)
		ret = rpma_conn_cfg_set_rq_size(e->conn_cfg, POSTED);
	if (!ret)
		ret = rpma_conn_cfg_set_cq_size(e->conn_cfg, QUEUE + POSTED);
	if (!ret)
		ret = rpma_mr_reg(e->peer, e->slots, len, usage, &e->slots_mr);
	if (ret) {
		ret = failed(err, ret, cfg->node);
		goto close;
	}
	*end = e;
	return 0;

close:
	rpma_end(e);
	return ret;
}

static void *slot_context(uint64_t slot)
{
	return (void *)(uintptr_t)slot;
}

static int post_first(struct rival_end *e, struct rpma_conn_req *req)
{
	int ret = 0;

	for (uint64_t i = 0; !ret && i < POSTED; i++)
		ret = rpma_conn_req_recv(req, e->slots_mr, i * SLOT, SLOT,
					 slot_context(i));
	return ret;
}

/* Turn the request into a connection, or delete it. */
static int connect_req(struct rival_end *e, struct rpma_conn_req *req)
{
	enum rpma_conn_event event;
	int ret = post_first(e, req);

	if (ret) {
		rpma_conn_req_delete(&req);
		return ret;
	}
	ret = rpma_conn_req_connect(&req, NULL, &e->conn);
	if (!ret)
		ret = rpma_conn_next_event(e->conn, &event);
	if (!ret && event != RPMA_CONN_ESTABLISHED)
		ret = RPMA_E_UNKNOWN;
	return ret ? ret : rpma_conn_get_cq(e->conn, &e->cq);
}

/* Set "direct write to pmem", which no peer can detect, for the operator. */
static int say_direct(uint8_t *descriptor)
{
	struct rpma_peer_cfg *cfg;
	int ret = rpma_peer_cfg_new(&cfg);

	if (ret)
		return ret;
	ret = rpma_peer_cfg_set_direct_write_to_pmem(cfg, true);
	if (!ret)
		ret = rpma_peer_cfg_get_descriptor(cfg, descriptor);
	rpma_peer_cfg_delete(&cfg);
	return ret;
}

/*
 * Try ports in turn: RDMA ports are not TCP's, and nothing assigns a free one.
 */
static int listen_any(struct rival_end *e, const char *node,
		      struct target_report *t)
{
	int first = 20000 + getpid() % 20000, ret = 0;

	for (int i = 0; i < PORTS; i++) {
		snprintf(t->port, sizeof(t->port), "%d", first + i);
		ret = rpma_ep_listen(e->peer, node, t->port, &e->ep);
		if (!ret)
			break;
	}
	return ret;
}

static int rpma_serve(const struct rival_cfg *cfg, struct rival_page *page,
		      struct rival_end **end, char *err)
{
	const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
			  RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
	struct target_report *t = (struct target_report *)page->target;
	struct rival_end *e;
	size_t size;
	int fd, ret;

	ret = end_open(cfg, page, RPMA_UTIL_IBV_CONTEXT_LOCAL, &e, err);
	if (ret)
		return ret;
	e->mem = cfg->mem;
	e->len = cfg->len;
	ret = rp_flush_open(&e->cpu, err);
	if (ret)
		goto close;
	ret = rpma_mr_reg(e->peer, cfg->mem, cfg->len, usage, &e->mem_mr);
	if (!ret)
		ret = rpma_mr_get_descriptor_size(e->mem_mr, &size);
	if (!ret && size > sizeof(t->descriptor))
		ret = RPMA_E_INVAL;
	if (!ret)
		ret = rpma_mr_get_descriptor(e->mem_mr, t->descriptor);
	if (!ret)
		ret = say_direct(&t->peer_cfg);
	if (!ret)
		ret = listen_any(e, cfg->node, t);
	if (!ret)
		ret = rpma_ep_get_fd(e->ep, &fd);
	if (ret) {
		ret = failed(err, ret, "listening with librpma");
		goto close;
	}
	t->size = (uint8_t)size;
	fcntl(fd, F_SETFL, O_NONBLOCK); /* for polling */
	*end = e;
	return 0;

close:
	rpma_end(e);
	return ret;
}

/* One message from the next slot, with a completion now and then. */
static int send_slot(struct rival_end *e, const void *msg, size_t len)
{
	uint64_t n = e->sent++, at = (POSTED + n % POSTED) * SLOT;
	int flags = n % SIGNALED ? RPMA_F_COMPLETION_ON_ERROR
				 : RPMA_F_COMPLETION_ALWAYS;

	memcpy(e->slots + at, msg, len);
	return rpma_send(e->conn, e->slots_mr, at, len, flags, NULL);
}

static int post(struct rival_end *e, uint64_t slot)
{
	return rpma_recv(e->conn, e->slots_mr, slot * SLOT, SLOT,
			 slot_context(slot));
}

static int persist(struct rival_end *e, uint64_t slot)
{
	struct request req;
	int ret;

	memcpy(&req, e->slots + slot * SLOT, sizeof(req));
	if (req.off > e->len || req.len > e->len - req.off)
		return 0; /* no reply: the initiator runs into its deadline */
	e->cpu.flush(e->mem + req.off, req.len);
	e->cpu.drain();
	ret = send_slot(e, &req.off, sizeof(req.off));
	return ret ? ret : post(e, slot);
}

static int rpma_poll(struct rival_end *e, char *err)
{
	struct rpma_conn_req *req;
	struct ibv_wc wc;
	int ret;

	if (!e->conn) {
		ret = rpma_ep_next_conn_req(e->ep, e->conn_cfg, &req);
		/*
		 * librpma 1.3 reports an idle non-blocking descriptor as an
		 * error.
		 */
		if (ret == RPMA_E_NO_EVENT ||
		    (ret == RPMA_E_PROVIDER && errno == EAGAIN))
			return 0;
		if (!ret)
			ret = connect_req(e, req);
		return ret ? failed(err, ret, "accepting") : 0;
	}
	ret = rpma_cq_get_wc(e->cq, 1, &wc, NULL);
	if (ret == RPMA_E_NO_COMPLETION)
		return 0;
	if (!ret && wc.status == IBV_WC_WR_FLUSH_ERR)
		return 0; /* the initiator has gone */
	if (!ret && wc.status != IBV_WC_SUCCESS)
		return rp_err(err, -EIO, "target: %s",
			      ibv_wc_status_str(wc.status));
	if (!ret && wc.opcode == IBV_WC_RECV)
		ret = persist(e, wc.wr_id);
	return ret ? failed(err, ret, "target") : 0;
}

static int rpma_open(const struct rival_cfg *cfg, struct rival_page *page,
		     struct rival_end **end, char *err)
{
	struct target_report *t = (struct target_report *)page->target;
	struct rpma_peer_cfg *theirs = NULL;
	struct rpma_conn_req *req;
	struct rival_end *e;
	int ret;

	ret = end_open(cfg, page, RPMA_UTIL_IBV_CONTEXT_REMOTE, &e, err);
	if (ret)
		return ret;
	ret = rpma_conn_req_new(e->peer, cfg->node, t->port, e->conn_cfg, &req);
	if (!ret)
		ret = connect_req(e, req);
	if (!ret)
		ret = rpma_peer_cfg_from_descriptor(&t->peer_cfg, 1, &theirs);
	if (!ret)
		ret = rpma_conn_apply_remote_peer_cfg(e->conn, theirs);
	if (!ret)
		ret = rpma_mr_remote_from_descriptor(t->descriptor, t->size,
						     &e->remote);
	rpma_peer_cfg_delete(&theirs);
	if (ret) {
		ret = failed(err, ret, "connecting");
		rpma_end(e);
		return ret;
	}
	*end = e;
	return 0;
}

/* Registers at the first put, and again for a longer buffer. */
static int registered(struct rival_end *e, const void *buf, uint64_t size)
{
	int ret;

	if (e->buf == buf && e->buf_len >= size)
		return 0;
	ret = rpma_mr_dereg(&e->buf_mr);
	if (!ret)
		ret = rpma_mr_reg(e->peer, (void *)buf, size,
				  RPMA_MR_USAGE_WRITE_SRC, &e->buf_mr);
	e->buf = ret ? NULL : buf;
	e->buf_len = size;
	return ret;
}

/*
 * Poll until the wanted completion: a reply, or a flush, which has the opcode
 * of a read if the device has no FLUSH. Other completions are of messages sent
 * long before.
 */
static int await(struct rival_end *e, bool answer, char *err)
{
	unsigned int polls = 0;
	struct timespec t;
	struct ibv_wc wc;
	time_t end = 0;
	int ret;

	if (e->blocks)
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	for (;;) {
		ret = rpma_cq_get_wc(e->cq, 1, &wc, NULL);
		if (!ret && wc.status != IBV_WC_SUCCESS)
			return rp_err(err, -EIO, "%s",
				      ibv_wc_status_str(wc.status));
		if (!ret && (answer ? wc.opcode == IBV_WC_RECV
				    : wc.opcode != IBV_WC_SEND))
			break;
		if (ret && ret != RPMA_E_NO_COMPLETION)
			return failed(err, ret, "completion queue");
		if (++polls % 65536)
			continue;
		clock_gettime(CLOCK_MONOTONIC, &t);
		if (!end)
			end = t.tv_sec + RIVAL_DEADLINE;
		if (t.tv_sec > end)
			return rp_err(err, -ETIMEDOUT, "no answer in %d s",
				      RIVAL_DEADLINE);
	}
	e->received = answer;
	e->slot = wc.wr_id;
	return 0;
}

static int flush_put(struct rival_end *e, const void *buf, uint64_t off,
		     uint64_t size, char *err)
{
	int ret = registered(e, buf, size);

	if (!ret)
		ret = rpma_write(e->conn, e->remote, off, e->buf_mr, 0, size,
				 RPMA_F_COMPLETION_ON_ERROR, NULL);
	if (!ret)
		ret = rpma_flush(e->conn, e->remote, off, size,
				 RPMA_FLUSH_TYPE_PERSISTENT,
				 RPMA_F_COMPLETION_ALWAYS, NULL);
	return ret ? failed(err, ret, "write and flush") : await(e, false, err);
}

static int gpspm_put(struct rival_end *e, const void *buf, uint64_t off,
		     uint64_t size, char *err)
{
	const struct request req = {.off = off, .len = size};
	int ret = registered(e, buf, size);

	if (!ret)
		ret = rpma_write(e->conn, e->remote, off, e->buf_mr, 0, size,
				 RPMA_F_COMPLETION_ON_ERROR, NULL);
	if (!ret)
		ret = send_slot(e, &req, sizeof(req));
	/*
	 * Repost while the next reply is outstanding; other receives are
	 * posted.
	 */
	if (!ret && e->received)
		ret = post(e, e->slot);
	e->received = false;
	return ret ? failed(err, ret, "write and request")
		   : await(e, true, err);
}

const struct rival rival_rpma_flush = {
	.name = "librpma_flush",
	.title = "librpma: write, flush",
	.max = 4u << 20,
	.rdma = true,
	.serve = rpma_serve,
	.poll = rpma_poll,
	.open = rpma_open,
	.put = flush_put,
	.close = rpma_end,
};

const struct rival rival_rpma_gpspm = {
	.name = "librpma_gpspm",
	.title = "librpma: write, request, clwb, ack",
	.max = 4u << 20,
	.rdma = true,
	.serve = rpma_serve,
	.poll = rpma_poll,
	.open = rpma_open,
	.put = gpspm_put,
	.close = rpma_end,
};
