// SPDX-License-Identifier: BSD-2-Clause
/* librdmacm and libibverbs, as far as connections of our own call them. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabtests/unit/cm_fake.h"

struct fake fake;
struct fi_provider rp_prov = {.name = "ofi_rpmem"};
struct rp_params rp_params = {.native = true};

static struct ibv_device device;
static struct verbs_context vctx;
static struct ibv_context *const context = &vctx.context;
static struct rdma_event_channel channel;
static struct ibv_pd pd;
static struct ibv_comp_channel wake;
static struct ibv_cq cq;
static struct ibv_srq srq[2];
static int nsrq;
static uint32_t next_qp;

int rp_wait_watch(int epfd, int fd)
{
	return fd >= 0 ? 0 : -EBADF;
}

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

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	fake.calls++;
	for (int n = 0; wr; wr = wr->next, n++) {
		if (fake.take_err && n == fake.take) {
			*bad = wr;
			return fake.take_err;
		}
		fake.posted[fake.nposted++] = (struct fake_wr){
			.wr = *wr,
			.sge = wr->sg_list[0],
			.qp = qp->qp_num,
			.call = fake.calls,
		};
	}
	return 0;
}

static int post_srq_recv(struct ibv_srq *q, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	int n = fake.nrecv[0] + fake.nrecv[1];

	fake.recv[n] = wr->wr_id;
	fake.nrecv[q - srq]++;
	return 0;
}

/* --- builders, of which only what FLUSHes are posted with is there --- */

/* Later releases have wr_flush behind what 44 has. */
#define WR_FLUSH_AT 352
struct fake_qp {
	union {
		struct ibv_qp_ex ex; /* begins with the queue pair itself */
		uint8_t room[WR_FLUSH_AT + sizeof(void (*)(void))];
	};
	bool built;
	struct fake_wr batch[4];
	int n;
};

static struct fake_qp *of(struct ibv_qp_ex *ex)
{
	return (struct fake_qp *)ex;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	of(ex)->n = 0;
}

static struct fake_wr *next_wr(struct ibv_qp_ex *ex, int opcode, uint32_t rkey,
			       uint64_t addr)
{
	struct fake_wr *w = &of(ex)->batch[of(ex)->n++];

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

static void wr_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		   uint32_t len)
{
	of(ex)->batch[of(ex)->n - 1].sge = (struct ibv_sge){addr, len, lkey};
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
		     size_t len, uint8_t type, uint8_t level)
{
	struct fake_wr *w = next_wr(ex, FAKE_WR_FLUSH, rkey, addr);

	w->sge.length = (uint32_t)len;
	w->type = type;
	w->level = level;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	fake.calls++;
	if (fake.take_err)
		return fake.take_err;
	for (int i = 0; i < of(ex)->n; i++) {
		fake.posted[fake.nposted] = of(ex)->batch[i];
		fake.posted[fake.nposted++].call = fake.calls;
	}
	return 0;
}

static struct ibv_qp *new_qp(uint64_t ops)
{
	struct fake_qp *q = calloc(1, sizeof(*q));
	void (*flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t,
		      uint8_t) = wr_flush;

	q->built = ops;
	q->ex.wr_start = wr_start;
	q->ex.wr_rdma_write = wr_write;
	q->ex.wr_set_sge = wr_sge;
	q->ex.wr_complete = wr_complete;
	if (ops & FAKE_WITH_FLUSH)
		memcpy(q->room + WR_FLUSH_AT, &flush, sizeof(flush));
	q->ex.qp_base.context = context;
	q->ex.qp_base.qp_num = ++next_qp;
	fake.open++;
	fake.ops = ops;
	fake.qp = &q->ex.qp_base;
	return fake.qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	return q->built ? &q->ex : NULL;
}

/* An old library knows nothing of FLUSH, whatever the device says. */
static struct ibv_qp *create_qp_ex(struct ibv_context *c,
				   struct ibv_qp_init_attr_ex *a)
{
	if ((a->send_ops_flags & FAKE_WITH_FLUSH) && !fake.makes) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return new_qp(a->send_ops_flags);
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
	nsrq = 0;
	next_qp = 100;
	fake.device = FAKE_DEVICE;
	fake.dom.base_info = fi_allocinfo();
	fake.dom.base_info->addr_format = FI_SOCKADDR_IN;
	fake.dom.base_info->domain_attr->name = strdup(FAKE_DEVICE);
	context->device = &device;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify;
	context->ops.post_send = post_send;
	context->ops.post_srq_recv = post_srq_recv;
	vctx.sz = sizeof(vctx);
	vctx.create_qp_ex = create_qp_ex;
	vctx.query_device_ex = query_device_ex;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pd.context = cq.context = context;
	srq[0].context = srq[1].context = context;
	channel.fd = eventfd(0, EFD_CLOEXEC);
	wake.fd = eventfd(0, EFD_CLOEXEC);
}

void fake_end(void)
{
	close(channel.fd);
	close(wake.fd);
	fi_freeinfo(fake.dom.base_info);
}

void fake_complete(uint64_t wr_id, uint32_t qp, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t len)
{
	fake.wc[fake.nwc++] = (struct ibv_wc){
		.wr_id = wr_id,
		.qp_num = qp,
		.status = status,
		.opcode = opcode,
		.byte_len = len,
	};
}

void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		const void *shown, uint8_t len)
{
	struct rdma_cm_event *ev = &fake.ev[fake.nev++];

	*ev = (struct rdma_cm_event){.id = id, .event = type};
	ev->param.conn.private_data = shown;
	ev->param.conn.private_data_len = len;
	ev->param.conn.initiator_depth = 200;
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

struct rdma_cm_id *fake_stranger(void)
{
	struct rdma_cm_id *id = new_id(NULL);

	id->verbs = context;
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

int rdma_destroy_id(struct rdma_cm_id *id)
{
	fake.open--;
	free(id);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	id->verbs = context;
	memcpy(&id->route.addr.src_storage, addr, sizeof(struct sockaddr_in));
	id->route.addr.src_sin.sin_port = htons(4711);
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
		      struct sockaddr *to, int ms)
{
	id->verbs = context;
	fake.resolved++;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	fake.routed++;
	errno = EHOSTUNREACH;
	return fake.fail_route ? -1 : 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *p,
		   struct ibv_qp_init_attr *attr)
{
	id->qp = new_qp(0);
	fake.qp_attr = *attr;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	id->qp = create_qp_ex(id->verbs, attr);
	fake.qp_attr = (struct ibv_qp_init_attr){
		.qp_type = attr->qp_type, .cap = attr->cap, .srq = attr->srq};
	return id->qp ? 0 : -1;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	fake.open--;
	free(id->qp);
	id->qp = NULL;
}

static void remember(const struct rdma_conn_param *p)
{
	fake.shown = *p;
	if (p->private_data)
		memcpy(fake.shown_bytes, p->private_data, p->private_data_len);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	fake.connected++;
	remember(p);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	fake.accepted++;
	remember(p);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	fake.rejected++;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	fake.disconnected++;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **ev)
{
	if (fake.acked >= fake.nev) {
		errno = EAGAIN;
		return -1;
	}
	*ev = &fake.ev[fake.acked];
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	fake.acked++;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return "an event";
}

/* --- libibverbs --- */

const char *ibv_get_device_name(struct ibv_device *d)
{
	return fake.device;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.max_cqe = 256,
		.max_srq_wr = 64,
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
	fake.open++;
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

struct ibv_srq *ibv_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *attr)
{
	fake.open++;
	return &srq[nsrq++];
}

int ibv_destroy_srq(struct ibv_srq *q)
{
	fake.open--;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (!(mask & IBV_QP_ACCESS_FLAGS))
		return 0;
	fake.given++;
	fake.may = attr->qp_access_flags;
	return fake.fail_give;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	*attr = (struct ibv_qp_attr){.qp_access_flags = fake.may};
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	fake.open--;
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
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	mr->lkey = 0x10 + (uint32_t)access;
	mr->rkey = 0x20 + (uint32_t)access;
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
