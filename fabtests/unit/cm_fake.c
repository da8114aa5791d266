// SPDX-License-Identifier: BSD-2-Clause
/* Fakes of the librdmacm and libibverbs calls that prov/rc makes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "fabtests/unit/cm_fake.h"
#include "rc/rc_priv.h"

/* Stands for rc_tcp.c, which is not linked here. */
const struct rp_rc_ops rp_rc_tcp;

struct fake fake;

static struct ibv_device device, cm_device;
static struct verbs_context vctx;
static struct ibv_context *const context = &vctx.context;
/* The context that librdmacm opens on the same device. */
static struct ibv_context cm_context;
static struct rdma_event_channel channel;
static struct ibv_pd pd;
static struct ibv_comp_channel wake;
static struct ibv_cq cq;
static struct ibv_srq srq;
static uint32_t next_qp;

struct event {
	struct rdma_cm_event ev; /* first: rdma_ack_cm_event() casts it */
	uint8_t data[256];
	bool read;
};
static struct event events[FAKE_MAX];
static int nevents;

static int poll_cq(struct ibv_cq *q, int n, struct ibv_wc *wc)
{
	int got = fake.nwc < n ? fake.nwc : n;

	memcpy(wc, fake.wc, (size_t)got * sizeof(*wc));
	fake.nwc -= got;
	memmove(fake.wc, fake.wc + got, (size_t)fake.nwc * sizeof(*wc));
	return got;
}

static int req_notify(struct ibv_cq *q, int solicited)
{
	fake.armed++;
	return 0;
}

static void remember_data(struct fake_wr *w, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		const void *at = (const void *)(uintptr_t)sge[i].addr;

		w->sge[i] = sge[i];
		if ((w->wr.opcode == IBV_WR_SEND ||
		     w->wr.opcode == IBV_WR_RDMA_WRITE) &&
		    w->len + sge[i].length <= sizeof(w->bytes))
			memcpy(w->bytes + w->len, at, sge[i].length);
		w->len += sge[i].length;
	}
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	cr_assert_eq(qp->state, IBV_QPS_RTS);
	fake.calls++;
	for (int n = 0; wr; wr = wr->next, n++) {
		struct fake_wr *w = &fake.posted[fake.nposted];

		if (fake.take_err && n == fake.take_max) {
			*bad = wr;
			return fake.take_err;
		}
		cr_assert_lt(fake.nposted, FAKE_MAX);
		*w = (struct fake_wr){
			.wr = *wr, .qp = qp->qp_num, .call = fake.calls};
		remember_data(w, wr->sg_list, wr->num_sge);
		fake.nposted++;
	}
	return 0;
}

static int post_srq_recv(struct ibv_srq *q, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	cr_assert_lt(fake.nrecv, FAKE_MAX);
	fake.recv[fake.nrecv++] = wr->wr_id;
	return 0;
}

/* --- builders --- */

/* rdma-core after release 44 appends wr_flush to struct ibv_qp_ex. */
#define WR_FLUSH_AT 352
struct fake_qp {
	union {
		struct ibv_qp_ex ex; /* begins with struct ibv_qp */
		uint8_t room[WR_FLUSH_AT + sizeof(void (*)(void))];
	};
	bool built;
	struct fake_wr batch[16];
	int n;
};

static struct fake_qp *fake_of(struct ibv_qp_ex *ex)
{
	return (struct fake_qp *)ex;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	fake_of(ex)->n = 0;
}

static struct fake_wr *next_wr(struct ibv_qp_ex *ex, int opcode, uint32_t rkey,
			       uint64_t addr)
{
	struct fake_wr *w = &fake_of(ex)->batch[fake_of(ex)->n++];

	*w = (struct fake_wr){
		.wr = {.wr_id = ex->wr_id,
		       .send_flags = ex->wr_flags,
		       .opcode = (enum ibv_wr_opcode)opcode,
		       .wr.rdma = {.remote_addr = addr, .rkey = rkey}},
		.qp = ex->qp_base.qp_num,
	};
	return w;
}

static void wr_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	next_wr(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	next_wr(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	next_wr(ex, IBV_WR_SEND, 0, 0);
}

static void wr_sges(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sge)
{
	remember_data(&fake_of(ex)->batch[fake_of(ex)->n - 1], sge, (int)n);
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		     size_t len, uint8_t type, uint8_t level)
{
	struct fake_wr *w = next_wr(ex, FAKE_WR_FLUSH, rkey, addr);

	w->len = len;
	w->type = type;
	w->level = level;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	fake.calls++;
	if (fake.take_err)
		return fake.take_err;
	for (int i = 0; i < fake_of(ex)->n; i++) {
		fake.posted[fake.nposted] = fake_of(ex)->batch[i];
		fake.posted[fake.nposted++].call = fake.calls;
	}
	return 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	fake_of(ex)->n = 0;
}

static struct ibv_qp *new_qp(uint64_t ops, const struct ibv_qp_init_attr *attr)
{
	struct fake_qp *q;
	void (*flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t,
		      uint8_t) = wr_flush;

	if (attr->cap.max_inline_data > fake.max_inline) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	q->built = ops;
	q->ex.wr_start = wr_start;
	q->ex.wr_rdma_write = wr_write;
	q->ex.wr_rdma_read = wr_read;
	q->ex.wr_send = wr_send;
	q->ex.wr_set_sge_list = wr_sges;
	q->ex.wr_complete = wr_complete;
	q->ex.wr_abort = wr_abort;
	if (ops & FAKE_WITH_FLUSH)
		memcpy(q->room + WR_FLUSH_AT, &flush, sizeof(flush));
	q->ex.qp_base.context = context;
	q->ex.qp_base.qp_num =
		fake.next_qp_number ? fake.next_qp_number : ++next_qp;
	fake.next_qp_number = 0;
	fake.open++;
	fake.ops = ops;
	fake.qp_attr = *attr;
	fake.qp = &q->ex.qp_base;
	return fake.qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	return q->built ? &q->ex : NULL;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *attr)
{
	return new_qp(0, attr);
}

/* A library without FLUSH refuses queue pairs that request it. */
static struct ibv_qp *create_qp_ex(struct ibv_context *c,
				   struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_init_attr attr = {
		.qp_type = a->qp_type, .cap = a->cap, .srq = a->srq};

	if ((a->send_ops_flags & FAKE_WITH_FLUSH) && !fake.makes) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return new_qp(a->send_ops_flags, &attr);
}

static int query_device_ex(struct ibv_context *c,
			   const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	*attr = (struct ibv_device_attr_ex){.device_cap_flags_ex = fake.caps};
	return 0;
}

void fake_start(void)
{
	memset(&fake, 0, sizeof(fake));
	memset(&vctx, 0, sizeof(vctx));
	next_qp = 100;
	nevents = 0;
	fake.device = fake.resolves_to = FAKE_DEVICE;
	fake.max_inline = 512;
	fake.max_cqe = 16384;
	cm_context.device = &cm_device;
	context->device = &device;
	context->async_fd = eventfd(0, EFD_CLOEXEC);
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify;
	context->ops.post_send = post_send;
	context->ops.post_srq_recv = post_srq_recv;
	vctx.sz = sizeof(vctx);
	vctx.create_qp_ex = create_qp_ex;
	vctx.query_device_ex = query_device_ex;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pd.context = cq.context = srq.context = context;
	channel.fd = eventfd(0, EFD_CLOEXEC);
	wake.fd = eventfd(0, EFD_CLOEXEC);
}

void fake_end(void)
{
	close(context->async_fd);
	close(channel.fd);
	close(wake.fd);
	cr_assert_eq(fake.open, 0, "%d objects are left", fake.open);
}

void fake_complete(const struct fake_wr *w, enum ibv_wc_status status)
{
	cr_assert_lt(fake.nwc, FAKE_MAX);
	/* An error completion has only wr_id, status and qp_num. */
	fake.wc[fake.nwc++] = (struct ibv_wc){
		.wr_id = w->wr.wr_id,
		.qp_num = w->qp,
		.status = status,
		.opcode = (enum ibv_wc_opcode)(status ? 0x5a : 0),
	};
}

void fake_message(uint64_t recv, uint32_t qp, const void *msg, uint32_t len)
{
	const struct rp_rc_recv *r =
		(const void *)(uintptr_t)(recv & ~(uint64_t)1);

	if (msg)
		memcpy(r->buf, msg, len);
	fake.wc[fake.nwc++] = (struct ibv_wc){
		.wr_id = recv,
		.qp_num = qp,
		.opcode = IBV_WC_RECV,
		.byte_len = len,
	};
}

void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
		const void *data, uint8_t len)
{
	struct event *e = &events[nevents++];
	const uint64_t one = 1;

	*e = (struct event){.ev = {.id = id, .event = type, .status = status}};
	if (len)
		memcpy(e->data, data, len);
	e->ev.param.conn.private_data = e->data;
	e->ev.param.conn.private_data_len = len;
	e->ev.param.conn.responder_resources = 200;
	cr_assert_eq(write(channel.fd, &one, sizeof(one)), 8);
}

void fake_padded(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		 const void *data, uint8_t len, uint8_t max)
{
	uint8_t bytes[256] = {0};

	if (len)
		memcpy(bytes, data, len);
	fake_event(id, type, type == RDMA_CM_EVENT_REJECTED ? 28 : 0, bytes,
		   max);
}

void fake_async(enum ibv_event_type type, struct ibv_qp *qp)
{
	fake.async[fake.nasync++] =
		(struct ibv_async_event){.event_type = type, .element.qp = qp};
}

static struct rdma_cm_id *new_id(void *owner)
{
	struct rdma_cm_id *id = calloc(1, sizeof(*id));

	id->context = owner;
	id->channel = &channel;
	fake.open++;
	fake.id = id;
	return id;
}

struct rdma_cm_id *fake_peer(void)
{
	struct rdma_cm_id *id = new_id(NULL);

	id->verbs = &cm_context;
	id->route.addr.dst_sin.sin_family = AF_INET;
	return id;
}

/* --- librdmacm --- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	fake.open++;
	return &channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	fake.open--;
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id,
		   void *owner, enum rdma_port_space ps)
{
	*id = new_id(owner);
	return 0;
}

/*
 * The kernel drops unread events. Events that were read must be acknowledged
 * before the ID is destroyed.
 */
int rdma_destroy_id(struct rdma_cm_id *id)
{
	for (int i = 0; i < nevents; i++) {
		if (events[i].ev.id != id)
			continue;
		cr_assert_not(events[i].read, "destroying it would hang");
		events[i].ev.id = NULL;
	}
	if (fake.listener_id == id)
		fake.listener_id = NULL;
	fake.open--;
	free(id);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	if (fake.busy_ports) {
		fake.busy_ports--;
		errno = EADDRINUSE;
		return -1;
	}
	if (!fake.wildcard)
		id->verbs = &cm_context;
	memcpy(&id->route.addr.src_storage, addr, sizeof(struct sockaddr_in));
	if (!id->route.addr.src_sin.sin_port)
		id->route.addr.src_sin.sin_port = htons(4711);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	fake.listener_id = id;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
		      struct sockaddr *to, int ms)
{
	fake.has_source = from;
	if (from)
		memcpy(&fake.from, from, sizeof(struct sockaddr_in));
	memcpy(&fake.to, to, sizeof(struct sockaddr_in));
	fake.resolved++;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	id->verbs = &cm_context;
	fake.routed++;
	errno = EHOSTUNREACH;
	return fake.fail_route ? -1 : 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
		      int *mask)
{
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT)
		*mask |= IBV_QP_ACCESS_FLAGS;
	if (attr->qp_state == IBV_QPS_RTR)
		*mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC |
			 1 << 21;
	if (attr->qp_state == IBV_QPS_RTS)
		*mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	attr->qp_access_flags = 0xffff;
	attr->max_dest_rd_atomic = 77;
	return 0;
}

static void remember_params(const struct rdma_conn_param *p)
{
	fake.cm_param = *p;
	memset(fake.cm_data, 0, sizeof(fake.cm_data));
	if (p->private_data)
		memcpy(fake.cm_data, p->private_data, p->private_data_len);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	cr_assert_leq(p->private_data_len, 56);
	fake.connected++;
	remember_params(p);
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	fake.established++;
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	cr_assert_leq(p->private_data_len, 196);
	fake.accepted++;
	remember_params(p);
	errno = ECONNRESET;
	return fake.fail_accept ? -1 : 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	cr_assert_leq(len, 148);
	fake.rejected++;
	memset(fake.cm_data, 0, sizeof(fake.cm_data));
	if (len)
		memcpy(fake.cm_data, data, len);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	fake.disconnected++;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **ev)
{
	uint64_t n;

	for (int i = 0; i < nevents; i++)
		if (events[i].ev.id && !events[i].read) {
			events[i].read = true;
			*ev = &events[i].ev;
			return 0;
		}
	nevents = 0;
	(void)!read(channel.fd, &n, sizeof(n));
	errno = EAGAIN;
	return -1;
}

int rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	struct event *e = (struct event *)ev;

	memset(e, 0x5a, sizeof(*e));
	e->ev.id = NULL;
	return 0;
}

/* --- libibverbs --- */

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d == &cm_device ? fake.resolves_to : fake.device;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.max_cqe = fake.max_cqe,
		.max_srq_wr = 64,
		.max_sge = 16,
		.max_qp_init_rd_atom = 4,
		.max_qp_rd_atom = 8,
	};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	fake.open++;
	return &pd;
}

int ibv_dealloc_pd(struct ibv_pd *p)
{
	fake.open--;
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	fake.open++;
	return &wake;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	fake.open--;
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *owner,
			     struct ibv_comp_channel *w, int vector)
{
	cr_assert_leq(cqe, fake.max_cqe);
	fake.open++;
	/* Leave out the small queue with which prov/rc tries FLUSH. */
	if (cqe > 2)
		cq.cqe = cqe;
	return &cq;
}

int ibv_destroy_cq(struct ibv_cq *q)
{
	fake.open--;
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **q,
		     void **owner)
{
	errno = EAGAIN;
	return -1;
}

void ibv_ack_cq_events(struct ibv_cq *q, unsigned int n)
{
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *ev)
{
	if (!fake.nasync)
		return -1;
	*ev = fake.async[0];
	memmove(fake.async, fake.async + 1,
		(size_t)--fake.nasync * sizeof(*ev));
	fake.unacked_async++;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	fake.unacked_async--;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *attr)
{
	fake.open++;
	return &srq;
}

int ibv_destroy_srq(struct ibv_srq *q)
{
	fake.open--;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static const enum ibv_qp_state before[] = {
		[IBV_QPS_INIT] = IBV_QPS_RESET,
		[IBV_QPS_RTR] = IBV_QPS_INIT,
		[IBV_QPS_RTS] = IBV_QPS_RTR,
	};

	cr_assert(mask & IBV_QP_STATE);
	cr_assert_not(mask & 1 << 21, "no attribute of a queue pair");
	cr_assert_eq(qp->state, before[attr->qp_state]);
	qp->state = attr->qp_state;
	if (attr->qp_state == IBV_QPS_INIT)
		fake.access = attr->qp_access_flags;
	if (attr->qp_state == IBV_QPS_RTR)
		fake.rtr = *attr;
	if (attr->qp_state == IBV_QPS_RTS)
		fake.rts = *attr;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	cr_assert_eq(fake.unacked_async, 0, "destroying it would hang");
	for (int i = 0; i < fake.nasync; i++)
		if (fake.async[i].element.qp == qp)
			fake.async[i].event_type = IBV_EVENT_CLIENT_REREGISTER;
	fake.open--;
	memset(qp, 0x5a, sizeof(*qp));
	free(qp);
	return 0;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &device;
	fake.open++;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	fake.open--;
	free(list);
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	fake.open++;
	return context;
}

int ibv_close_device(struct ibv_context *c)
{
	fake.open--;
	return 0;
}

static struct ibv_mr *new_mr(int access)
{
	struct ibv_mr *mr;

	errno = EINVAL;
	if (fake.refuse_access & access)
		return NULL;
	errno = EFAULT;
	if (fake.read_only && (access & IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->lkey = 0x1000 + (uint32_t)access;
	mr->rkey = 0x2000 + (uint32_t)access;
	fake.open++;
	return mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *addr, size_t len, int access)
{
	return new_mr(access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t len,
				uint64_t iova, unsigned int access)
{
	return new_mr((int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	fake.open--;
	free(mr);
	return 0;
}
