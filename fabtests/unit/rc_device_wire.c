// SPDX-License-Identifier: BSD-2-Clause
/*
 * The simulated verbs device (rc_device.h): executes the requests that are
 * posted.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_device_priv.h"
#include "verbs/post.h"

/* --- memory --- */

void dev_write_back(size_t line)
{
	memcpy(dev.medium + line * DEV_LINE, dev.pmem + line * DEV_LINE,
	       DEV_LINE);
	dev.dirty[line] = false;
}

static struct dev_mr *find_mr(const struct ibv_qp *qp, uint32_t key,
			      bool remote)
{
	for (int i = 0; i < DEV_MAX; i++)
		if (dev_mrs[i] && dev_mrs[i]->base.pd == qp->pd &&
		    (remote ? dev_mrs[i]->base.rkey : dev_mrs[i]->base.lkey) ==
			    key)
			return dev_mrs[i];
	return NULL;
}

static bool mr_contains(const struct dev_mr *m, uint64_t addr, uint64_t len)
{
	const uint64_t from = (uintptr_t)m->base.addr;

	return addr >= from && len <= m->base.length &&
	       addr - from <= m->base.length - len;
}

static void check_local_mr(const struct dev_qp *q, uint32_t lkey,
			   const void *at, uint64_t len, bool written)
{
	const struct dev_mr *m = find_mr(&q->qp, lkey, false);

	cr_assert(m && mr_contains(m, (uintptr_t)at, len), "a local key");
	cr_assert(!written || (m->access & IBV_ACCESS_LOCAL_WRITE));
}

static void bytes_arrive(uint64_t addr, const void *bytes, uint64_t len)
{
	const uint64_t from = (uintptr_t)dev.pmem;

	memcpy((void *)(uintptr_t)addr, bytes, len);
	for (uint64_t a = addr; a < addr + len; a++)
		if (a - from < DEV_BYTES)
			dev.dirty[(a - from) / DEV_LINE] = true;
}

/* --- the target's device --- */

static unsigned int access_for(const struct dev_wr *w)
{
	switch ((int)w->opcode) {
	case IBV_WC_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case RPMEM_WC_FLUSH:
		return (unsigned int)w->type << 8;
	default:
		return IBV_ACCESS_REMOTE_WRITE;
	}
}

static enum ibv_wc_status execute_wr(const struct dev_qp *q, struct dev_qp *to,
				     struct dev_wr *w)
{
	const unsigned int needs = access_for(w);
	const struct dev_mr *m = find_mr(&to->qp, w->rkey, true);

	if ((to->attr.qp_access_flags & needs) != needs)
		return IBV_WC_REM_INV_REQ_ERR;
	if (!m || (m->access & needs) != needs)
		return IBV_WC_REM_ACCESS_ERR;
	if ((int)w->opcode == RPMEM_WC_FLUSH && w->level) {
		w->addr = (uintptr_t)m->base.addr;
		w->len = m->base.length;
	}
	if (!mr_contains(m, w->addr, w->len))
		return IBV_WC_REM_ACCESS_ERR;
	switch ((int)w->opcode) {
	case IBV_WC_RDMA_READ:
		check_local_mr(q, w->lkey, w->local, w->len, true);
		memcpy(w->local, (void *)(uintptr_t)w->addr, w->len);
		break;
	case IBV_WC_RDMA_WRITE:
		check_local_mr(q, w->lkey, w->local, w->len, false);
		bytes_arrive(w->addr, w->local, w->len);
		break;
	case RPMEM_WC_ATOMIC_WRITE:
		bytes_arrive(w->addr, w->value, w->len);
		break;
	default:
		for (size_t l = 0; l < DEV_BYTES / DEV_LINE; l++) {
			const uint64_t at = (uintptr_t)dev.pmem + l * DEV_LINE;

			if ((w->type & RPMEM_FLUSH_PERSISTENT) &&
			    at < w->addr + w->len && at + DEV_LINE > w->addr)
				dev_write_back(l);
		}
	}
	return IBV_WC_SUCCESS;
}

static void receive_message(struct dev_qp *to, const void *msg, uint64_t len)
{
	const struct dev_recv r = to->recvs[0];
	const bool fits = len <= r.len;

	if (fits) {
		check_local_mr(to, r.lkey, r.buf, len, true);
		memcpy(r.buf, msg, len);
	} else {
		to->attr.qp_state = IBV_QPS_ERR;
	}
	memmove(to->recvs, to->recvs + 1, --to->nrecvs * sizeof(r));
	dev_complete((struct dev_cq *)to->qp.recv_cq,
		     &(struct ibv_wc){.wr_id = r.wr_id,
				      .status = fits ? IBV_WC_SUCCESS
						     : IBV_WC_LOC_LEN_ERR,
				      .opcode = IBV_WC_RECV,
				      .byte_len = (uint32_t)len,
				      .qp_num = to->qp.qp_num});
}

/* --- connections --- */

static struct dev_qp *qp_numbered(uint32_t number)
{
	for (int i = 0; i < DEV_MAX; i++)
		if (dev_qps[i] && dev_qps[i]->qp.qp_num == number)
			return dev_qps[i];
	return NULL;
}

static void report_end(struct dev_qp *q, const struct dev_wr *w,
		       enum ibv_wc_status status)
{
	if (!status && q->qp.qp_num == dev.late_qp) {
		q->late_wrs[q->nlate_wrs++] = *w;
		return;
	}
	if (status)
		q->attr.qp_state = IBV_QPS_ERR;
	if (status || q->sig_all || (w->flags & IBV_SEND_SIGNALED))
		dev_complete((struct dev_cq *)q->qp.send_cq,
			     &(struct ibv_wc){
				     .wr_id = w->wr_id,
				     .status = status,
				     /*
				      * In a completion with an error the opcode
				      * is undefined.
				      */
				     .opcode = status ? (enum ibv_wc_opcode)0x5a
						      : w->opcode,
				     .byte_len = (uint32_t)w->len,
				     .vendor_err = status ? 0x99 : 0,
				     .qp_num = q->qp.qp_num});
}

/*
 * Execute the oldest request. Returns false if it waits for a posted receive.
 */
static bool execute_first(struct dev_qp *q)
{
	struct dev_wr w = q->queue[0];
	struct dev_qp *to = qp_numbered(q->attr.dest_qp_num);
	enum ibv_wc_status status = IBV_WC_SUCCESS, injected = IBV_WC_SUCCESS;
	bool lost;

	if (q->attr.qp_state == IBV_QPS_ERR) {
		status = IBV_WC_WR_FLUSH_ERR;
		goto done;
	}
	if (q->qp.qp_num == dev.fail_qp) {
		injected = dev.fail;
		dev.fail_qp = 0;
	}
	lost = !to || to->attr.dest_qp_num != q->qp.qp_num ||
	       (to->attr.qp_state != IBV_QPS_RTS &&
		to->attr.qp_state != IBV_QPS_RTR);
	if (injected && !dev.drop_ack) {
		status = injected;
	} else if (lost) {
		status = IBV_WC_RETRY_EXC_ERR;
	} else if (w.opcode != IBV_WC_SEND) {
		status = execute_wr(q, to, &w);
	} else if (dev.deaf_qp != to->qp.qp_num) {
		if (!to->nrecvs)
			return false;
		check_local_mr(q, w.lkey, w.local, w.len, false);
		receive_message(to, w.local, w.len);
	}
	/* A responder that refuses a request moves its QP to ERR, too. */
	if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR)
		to->attr.qp_state = IBV_QPS_ERR;
	if (!status) {
		cr_assert_lt(dev.ndone, DEV_LOG);
		dev.done[dev.ndone++] = (struct dev_op){.qp_num = q->qp.qp_num,
							.opcode = w.opcode,
							.addr = w.addr,
							.len = w.len,
							.flags = w.flags};
		status = injected;
	}
done:
	memmove(q->queue, q->queue + 1, --q->nqueue * sizeof(w));
	report_end(q, &w, status);
	return true;
}

static bool drop_recv(struct dev_qp *q)
{
	const struct dev_recv r = q->recvs[0];

	if (q->attr.qp_state != IBV_QPS_ERR || !q->nrecvs)
		return false;
	memmove(q->recvs, q->recvs + 1, --q->nrecvs * sizeof(r));
	dev_complete((struct dev_cq *)q->qp.recv_cq,
		     &(struct ibv_wc){.wr_id = r.wr_id,
				      .status = IBV_WC_WR_FLUSH_ERR,
				      .qp_num = q->qp.qp_num});
	return true;
}

static void report_late_completions(struct dev_qp *q)
{
	for (unsigned int i = 0; i < q->nlate_wrs; i++)
		report_end(q, &q->late_wrs[i], IBV_WC_SUCCESS);
	q->nlate_wrs = 0;
}

void dev_progress(void)
{
	bool any = true;

	for (int i = 0; i < DEV_MAX; i++)
		if (dev_qps[i] && dev_qps[i]->qp.qp_num != dev.late_qp)
			report_late_completions(dev_qps[i]);

	while (any && !dev.hold) {
		any = false;
		for (int i = 0; i < DEV_MAX; i++)
			while (dev_qps[i] && ((dev_qps[i]->nqueue &&
					       execute_first(dev_qps[i])) ||
					      drop_recv(dev_qps[i])))
				any = true;
	}
}

/* --- posting --- */

static int post_wr(struct dev_qp *q, const struct dev_wr *w)
{
	if (dev.take_err && !dev.take--) {
		const int err = dev.take_err;

		dev.take_err = 0;
		return err;
	}
	cr_assert_lt(q->nqueue, DEV_MAX);
	q->queue[q->nqueue++] = *w;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	int ret = 0;

	pthread_mutex_lock(&dev_lock);
	for (; wr; wr = wr->next) {
		const struct ibv_sge *sge = wr->sg_list;
		struct dev_wr w = {
			.opcode = wr->opcode == IBV_WR_SEND ? IBV_WC_SEND
				  : wr->opcode == IBV_WR_RDMA_READ
					  ? IBV_WC_RDMA_READ
					  : IBV_WC_RDMA_WRITE,
			.wr_id = wr->wr_id,
			.flags = wr->send_flags,
			.rkey = wr->wr.rdma.rkey,
			.addr = wr->wr.rdma.remote_addr,
			.len = sge->length,
			.lkey = sge->lkey,
			.local = (uint8_t *)(uintptr_t)sge->addr,
		};

		cr_assert_eq(wr->num_sge, 1);
		ret = post_wr(dev_of(qp), &w);
		if (ret) {
			*bad = wr;
			break;
		}
	}
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
	return ret;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct dev_qp *q = dev_of(qp);

	pthread_mutex_lock(&dev_lock);
	cr_assert_lt(q->nrecvs, DEV_MAX);
	cr_assert_eq(wr->num_sge, 1);
	q->recvs[q->nrecvs++] = (struct dev_recv){
		.wr_id = wr->wr_id,
		.buf = (uint8_t *)(uintptr_t)wr->sg_list->addr,
		.len = wr->sg_list->length,
		.lkey = wr->sg_list->lkey,
	};
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
	return 0;
}

void dev_posts(struct ibv_context_ops *ops)
{
	ops->post_send = post_send;
	ops->post_recv = post_recv;
}

/* --- builders --- */

static struct dev_wr *build_wr(struct ibv_qp_ex *ex, unsigned int needs, int op)
{
	struct dev_qp *q = dev_of(&ex->qp_base);

	cr_assert((q->ops & needs) == needs,
		  "the queue pair lacks this builder");
	cr_assert_lt(q->nbatch, DEV_MAX);
	q->batch[q->nbatch] = (struct dev_wr){.opcode = (enum ibv_wc_opcode)op,
					      .wr_id = ex->wr_id,
					      .flags = ex->wr_flags};
	return &q->batch[q->nbatch++];
}

static void wr_start(struct ibv_qp_ex *ex)
{
	dev_of(&ex->qp_base)->nbatch = 0;
}

static void wr_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	struct dev_wr *w =
		build_wr(ex, IBV_QP_EX_WITH_RDMA_READ, IBV_WC_RDMA_READ);

	w->rkey = rkey;
	w->addr = addr;
}

static void wr_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	struct dev_wr *w =
		build_wr(ex, IBV_QP_EX_WITH_RDMA_WRITE, IBV_WC_RDMA_WRITE);

	w->rkey = rkey;
	w->addr = addr;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		       uint32_t len)
{
	struct dev_qp *q = dev_of(&ex->qp_base);
	struct dev_wr *w = &q->batch[q->nbatch - 1];

	w->lkey = lkey;
	w->local = (uint8_t *)(uintptr_t)addr;
	w->len = len;
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		     size_t len, uint8_t type, uint8_t level)
{
	struct dev_wr *w = build_wr(ex, RP_QP_EX_WITH_FLUSH, RPMEM_WC_FLUSH);

	w->rkey = rkey;
	w->addr = addr;
	w->len = len;
	w->type = type;
	w->level = level;
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
			    const void *value)
{
	struct dev_wr *w = build_wr(ex, 1u << 12, RPMEM_WC_ATOMIC_WRITE);

	w->rkey = rkey;
	w->addr = addr;
	w->len = 8;
	memcpy(w->value, value, 8);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct dev_qp *q = dev_of(&ex->qp_base);
	int ret = 0;

	pthread_mutex_lock(&dev_lock);
	/*
	 * ibv_wr_complete() posts all requests or none, so dev.take has no
	 * meaning here.
	 */
	if (dev.take_err)
		ret = dev.take_err;
	dev.take_err = 0;
	for (unsigned int i = 0; !ret && i < q->nbatch; i++)
		post_wr(q, &q->batch[i]);
	q->nbatch = 0;
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
	return ret;
}

void dev_builders(struct dev_qp *q)
{
	q->ex.wr_start = wr_start;
	q->ex.wr_rdma_read = wr_read;
	q->ex.wr_rdma_write = wr_write;
	q->ex.wr_set_sge = wr_set_sge;
	q->ex.wr_atomic_write = wr_atomic_write;
	q->ex.wr_complete = wr_complete;
	q->ex.wr_abort = wr_start;
	if (q->ops & RP_QP_EX_WITH_FLUSH)
		q->late.flush = wr_flush;
}

/* --- for tests --- */

int dev_write(struct ibv_qp *qp, uint64_t wr_id, uint32_t rkey, size_t off,
	      size_t len, uint8_t value)
{
	static uint8_t bytes[DEV_BYTES];
	static struct ibv_mr *mr;
	struct ibv_sge sge = {.addr = (uintptr_t)bytes,
			      .length = (uint32_t)len};
	struct ibv_send_wr *bad, wr = {.wr_id = wr_id,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	int ret;

	cr_assert(!dev.hold, "its bytes are read at once");
	mr = (ibv_reg_mr)(qp->pd, bytes, sizeof(bytes), 0);
	memset(bytes, value, len);
	sge.lkey = mr->lkey;
	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)dev.pmem + off;
	ret = ibv_post_send(qp, &wr, &bad);
	ibv_dereg_mr(mr);
	return ret;
}

struct ibv_qp *dev_qp_by_number(uint32_t number)
{
	struct dev_qp *q;

	pthread_mutex_lock(&dev_lock);
	q = qp_numbered(number);
	pthread_mutex_unlock(&dev_lock);
	return q ? &q->qp : NULL;
}

void dev_run(void)
{
	pthread_mutex_lock(&dev_lock);
	dev.hold = false;
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
}

bool dev_durable(size_t off, size_t len, uint8_t value)
{
	bool good = true;

	pthread_mutex_lock(&dev_lock);
	for (size_t i = off; i < off + len; i++)
		good &= dev.medium[i] == value;
	pthread_mutex_unlock(&dev_lock);
	return good;
}

unsigned int dev_count(enum ibv_wc_opcode opcode)
{
	unsigned int n = 0;

	pthread_mutex_lock(&dev_lock);
	for (unsigned int i = 0; i < dev.ndone; i++)
		n += dev.done[i].opcode == opcode;
	pthread_mutex_unlock(&dev_lock);
	return n;
}

bool dev_deliver_send(uint32_t qp_num, const void *msg, size_t len)
{
	struct dev_qp *q;
	bool heard;

	pthread_mutex_lock(&dev_lock);
	q = qp_numbered(qp_num);
	heard = q && q->nrecvs && q->attr.qp_state != IBV_QPS_ERR;
	if (heard)
		receive_message(q, msg, len);
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
	return heard;
}
