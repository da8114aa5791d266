// SPDX-License-Identifier: BSD-2-Clause
/*
 * The simulated reliable connection and memory of rc_mock.h, without the shim.
 */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"

static struct mock *mock_of(struct rp_qp *q)
{
	return (struct mock *)q;
}

/* --- memory --- */

void mock_drain(struct mock *m)
{
	const struct mock_wr w = m->adapter[0];
	size_t off = w.addr - MOCK_AT;

	if (!m->nadapter)
		return;
	memmove(m->adapter, m->adapter + 1,
		--m->nadapter * sizeof(m->adapter[0]));
	for (size_t i = off; i < off + w.len; i++) {
		m->visible[i] = w.op == MOCK_WRITE
					? (uint8_t)w.value
					: (uint8_t)(w.value >> 8 * (i - off));
		m->dirty[i / MOCK_LINE] = true;
	}
}

void mock_evict(struct mock *m, size_t line)
{
	memcpy(m->medium + line * MOCK_LINE, m->visible + line * MOCK_LINE,
	       MOCK_LINE);
	m->dirty[line] = false;
}

void mock_power_cut(const struct mock *m, uint8_t left[MOCK_BYTES])
{
	memcpy(left, m->medium, MOCK_BYTES);
	for (size_t l = 0; m->caches_persist && l < MOCK_BYTES / MOCK_LINE; l++)
		if (m->dirty[l])
			memcpy(left + l * MOCK_LINE, m->visible + l * MOCK_LINE,
			       MOCK_LINE);
}

/* --- the target's device --- */

static bool in_region(const struct mock_wr *w)
{
	return w->addr >= MOCK_AT && w->len <= MOCK_BYTES &&
	       w->addr - MOCK_AT <= MOCK_BYTES - w->len;
}

/* The value of all bytes of a buffer, which must be the same. */
static uint8_t uniform_value(const uint8_t *buf, size_t len)
{
	for (size_t i = 1; i < len; i++)
		cr_assert_eq(buf[i], buf[0]);
	return buf[0];
}

static enum ibv_wc_status execute_wr(struct mock *m, const struct mock_wr *w)
{
	unsigned int needs = RP_DESC_WRITE;

	if (w->rkey == MOCK_RING_RKEY) {
		if (!m->side.has_ring || w->addr < MOCK_RING ||
		    w->len > RP_RING_LEN ||
		    w->addr - MOCK_RING > RP_RING_LEN - w->len)
			return IBV_WC_REM_ACCESS_ERR;
		memcpy(m->side.ring_in + (w->addr - MOCK_RING), w->buf, w->len);
		return IBV_WC_SUCCESS;
	}
	if (w->op == MOCK_READ)
		needs = RP_DESC_READ;
	else if (w->op == MOCK_FLUSH)
		needs = w->type;
	if ((m->access & needs) != needs)
		return IBV_WC_REM_INV_REQ_ERR;
	if (w->rkey != MOCK_RKEY || (!in_region(w) && !m->checks_no_range))
		return IBV_WC_REM_ACCESS_ERR;
	if (w->op == MOCK_WRITE || w->op == MOCK_ATOMIC_WRITE) {
		m->adapter[m->nadapter++] = *w;
		if (w->buf)
			m->adapter[m->nadapter - 1].value =
				uniform_value(w->buf, w->len);
		if (m->cpu || m->nadapter == MOCK_QUEUE)
			mock_drain(m);
		return IBV_WC_SUCCESS;
	}
	while (m->nadapter && !(m->reads_do_not_fence && w->op == MOCK_READ))
		mock_drain(m);
	if (w->op == MOCK_FLUSH && (w->type & RPMEM_FLUSH_PERSISTENT)) {
		size_t from = w->level ? 0 : w->addr - MOCK_AT;
		size_t to = w->level ? MOCK_BYTES : from + w->len;

		for (size_t l = from / MOCK_LINE; l * MOCK_LINE < to; l++)
			mock_evict(m, l);
	}
	return IBV_WC_SUCCESS;
}

/* --- the connection --- */

static void add_completion(struct mock *m, const struct mock_wr *w,
			   enum ibv_wc_status status)
{
	static const int opcodes[] = {
		[MOCK_READ] = IBV_WC_RDMA_READ,
		[MOCK_WRITE] = IBV_WC_RDMA_WRITE,
		[MOCK_FLUSH] = RPMEM_WC_FLUSH,
		[MOCK_ATOMIC_WRITE] = 9,
	};

	if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED))
		return;
	cr_assert_lt(m->ndone, 2 * MOCK_QUEUE, "the completion queue is full");
	m->done[m->ndone++] = (struct ibv_wc){
		.wr_id = w->wr_id,
		.status = status,
		/* In a completion with an error the opcode is undefined. */
		.opcode = status ? (enum ibv_wc_opcode)0x5a
				 : (enum ibv_wc_opcode)opcodes[w->op],
		.byte_len = (uint32_t)w->len,
		.qp_num = MOCK_QPN,
		.vendor_err = status ? 0x99 : 0,
	};
	m->error |= status != IBV_WC_SUCCESS;
}

bool mock_step(struct mock *m)
{
	const struct mock_wr w = m->queue[0];
	enum ibv_wc_status status = m->next;

	if (!m->nqueue)
		return false;
	memmove(m->queue, m->queue + 1, --m->nqueue * sizeof(m->queue[0]));
	m->next = IBV_WC_SUCCESS;
	if (m->error)
		status = IBV_WC_WR_FLUSH_ERR;
	else if (!status)
		status = execute_wr(m, &w);
	if (m->drop_ack && !m->error)
		status = IBV_WC_RETRY_EXC_ERR;
	m->drop_ack = false;
	add_completion(m, &w, status);
	return true;
}

void mock_run(struct mock *m)
{
	while (mock_step(m))
		;
}

static void queue_wr(struct mock *m, const struct mock_wr *w)
{
	cr_assert_lt(m->nqueue, MOCK_QUEUE, "the send queue is full");
	m->queue[m->nqueue++] = *w;
}

void mock_write(struct mock *m, uint64_t wr_id, size_t off, size_t len,
		uint8_t value)
{
	const struct mock_wr w = {.op = MOCK_WRITE,
				  .wr_id = wr_id,
				  .flags = IBV_SEND_SIGNALED,
				  .rkey = MOCK_RKEY,
				  .addr = MOCK_AT + off,
				  .len = len,
				  .value = value};

	queue_wr(m, &w);
}

/* --- what the shim asks for --- */

static void start_batch(struct rp_qp *q)
{
	mock_of(q)->nbatch = 0;
}

static void add_wr(struct rp_qp *q, const struct mock_wr *w)
{
	struct mock *m = mock_of(q);

	cr_assert_lt(m->nbatch, MOCK_QUEUE);
	m->batch[m->nbatch++] = *w;
}

static void do_read(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		    uint32_t rkey, uint64_t addr, uint32_t len)
{
	const struct mock_wr w = {.op = MOCK_READ,
				  .wr_id = wr_id,
				  .flags = flags,
				  .rkey = rkey,
				  .addr = addr,
				  .len = len};

	cr_assert(len >= 1 && len <= 8);
	add_wr(q, &w);
}

static void do_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t lkey,
		     const void *buf, uint32_t len)
{
	const struct mock_wr w = {.op = MOCK_WRITE,
				  .wr_id = wr_id,
				  .flags = flags,
				  .rkey = rkey,
				  .addr = addr,
				  .len = len,
				  .buf = buf};

	add_wr(q, &w);
}

static void do_flush(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		     uint8_t level)
{
	const struct mock_wr w = {.op = MOCK_FLUSH,
				  .wr_id = wr_id,
				  .flags = flags,
				  .rkey = rkey,
				  .addr = level ? MOCK_AT : addr,
				  .len = level ? MOCK_BYTES : len,
				  .type = type,
				  .level = level};

	add_wr(q, &w);
}

static void do_atomic_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
			    uint32_t rkey, uint64_t addr, const void *value)
{
	struct mock_wr w = {.op = MOCK_ATOMIC_WRITE,
			    .wr_id = wr_id,
			    .flags = flags,
			    .rkey = rkey,
			    .addr = addr,
			    .len = 8};

	memcpy(&w.value, value, sizeof(w.value));
	add_wr(q, &w);
}

static int post_batch(struct rp_qp *q, size_t *posted)
{
	struct mock *m = mock_of(q);
	size_t n = m->complete_err ? m->complete_posted : m->nbatch;

	for (size_t i = 0; i < n; i++)
		queue_wr(m, &m->batch[i]);
	*posted = n;
	m->nbatch = 0;
	return m->complete_err;
}

static void do_abort(struct rp_qp *q)
{
	mock_of(q)->nbatch = 0;
}

static int next_end(struct rp_qp *q, struct rp_qp_state *end)
{
	*end = mock_of(q)->end;
	return 0;
}

static int fail_qp(struct rp_qp *q)
{
	mock_of(q)->error = true;
	mock_of(q)->fails++;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct mock *m = cq->cq_context;
	size_t k = (size_t)n < m->ndone ? (size_t)n : m->ndone;

	memcpy(wc, m->done, k * sizeof(*wc));
	m->ndone -= k;
	memmove(m->done, m->done + k, m->ndone * sizeof(*wc));
	return (int)k;
}

static int do_side_send(struct rp_qp *q, uint64_t wr_id, const void *msg,
			size_t len)
{
	struct mock_side *s = &mock_of(q)->side;
	struct mock_msg *o = &s->out[s->nout];

	if (s->send_err)
		return s->send_err;
	cr_assert_lt(s->nout++, MOCK_QUEUE);
	o->wr_id = wr_id;
	o->len = len;
	memcpy(o->bytes, msg, len);
	return 0;
}

static int do_listen(struct rp_qp *q, uint64_t wr_id, void *msg)
{
	struct mock_side *s = &mock_of(q)->side;

	cr_assert_lt(s->nrecvs, MOCK_QUEUE);
	s->recvs[s->nrecvs].wr_id = wr_id;
	s->recvs[s->nrecvs++].msg = msg;
	return 0;
}

static uint64_t mock_now(const struct rp_qp *q)
{
	return ((const struct mock *)q)->side.now;
}

static const struct rp_qp_ops mock_ops = {
	.start = start_batch,
	.read = do_read,
	.write = do_write,
	.flush = do_flush,
	.atomic_write = do_atomic_write,
	.complete = post_batch,
	.abort = do_abort,
	.query = next_end,
	.fail = fail_qp,
	.poll = poll_cq,
	.side_send = do_side_send,
	.side_recv = do_listen,
	.now = mock_now,
};

void mock_init(struct mock *m)
{
	mock_init_cq(m, 8);
}

void mock_init_cq(struct mock *m, int entries)
{
	memset(m, 0, sizeof(*m));
	m->qp.qp_num = MOCK_QPN;
	m->base.cq_context = m;
	m->base.cqe = entries;
	m->access = RP_DESC_ALL;
	m->end = (struct rp_qp_state){.state = IBV_QPS_RTS,
				      .dest_qp_num = MOCK_PEER,
				      .max_rd_atomic = 1,
				      .max_dest_rd_atomic = 1};
	m->cq = rp_cq_new(&m->base, &mock_ops, (size_t)m->base.cqe);
	cr_assert_not_null(m->cq);
	rp_qp_init(&m->q, &m->qp, m->cq, &mock_ops);
	m->q.pub.wr_flags = IBV_SEND_SIGNALED;
}

void mock_fini(struct mock *m)
{
	rp_qp_fini(&m->q);
	cr_assert_eq(rpmem_detach_cq(m->cq), 0);
}

struct rp_desc mock_desc(const struct mock *m)
{
	return (struct rp_desc){
		.addr = MOCK_AT,
		.length = MOCK_BYTES,
		.rkey = MOCK_RKEY,
		.qp_num = MOCK_PEER,
		.memory = RP_MEM_DAX_SYNC,
		.placement = m->cpu ? RP_PLACE_CPU_KERNEL : RP_PLACE_DMA_CACHE,
		.domain = m->caches_persist ? RP_DOMAIN_CPUCACHE
					    : RP_DOMAIN_MEMCTRL,
		.fence = m->cpu ? RP_UNKNOWN : RP_YES,
		.fs_trusted = RP_YES,
		.region = RP_DESC_ALL,
		.qp = (uint16_t)m->access,
		.native = RP_DESC_NATIVE,
		.key = m->side.region.key,
	};
}

int mock_add(struct mock *m, const struct rp_desc *d, unsigned int native)
{
	const struct rp_remote_cfg cfg = {
		.native = native,
		.required = RP_CLASS_POWER,
		.agent = m->q.side,
		.ring = m->q.side && m->q.side->ring_addr,
	};
	uint8_t buf[RP_DESC_LEN];

	cr_assert_eq(rp_desc_put(buf, d), 0);
	m->q.native = native;
	return rp_qp_add_region(&m->q, buf, &cfg);
}
