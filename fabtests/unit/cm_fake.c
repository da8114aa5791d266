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

static struct ibv_device device;
static struct ibv_context context;
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

void fake_start(void)
{
	memset(&fake, 0, sizeof(fake));
	memset(&context, 0, sizeof(context));
	nsrq = 0;
	next_qp = 100;
	fake.device = FAKE_DEVICE;
	fake.dom.base_info = fi_allocinfo();
	fake.dom.base_info->addr_format = FI_SOCKADDR_IN;
	fake.dom.base_info->domain_attr->name = strdup(FAKE_DEVICE);
	context.device = &device;
	context.ops.poll_cq = poll_cq;
	context.ops.req_notify_cq = req_notify;
	context.ops.post_send = post_send;
	context.ops.post_srq_recv = post_srq_recv;
	pd.context = cq.context = &context;
	srq[0].context = srq[1].context = &context;
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

	id->verbs = &context;
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
	id->verbs = &context;
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
	id->verbs = &context;
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
	id->qp = calloc(1, sizeof(*id->qp));
	id->qp->context = &context;
	id->qp->qp_num = ++next_qp;
	fake.open++;
	fake.qp_attr = *attr;
	fake.qp = id->qp;
	return 0;
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
