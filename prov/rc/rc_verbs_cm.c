// SPDX-License-Identifier: BSD-2-Clause
/* RC queue pair backend: connect, accept and disconnect by librdmacm. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "rc/rc_verbs.h"

#define RESOLVE_MS 5000
#define BACKLOG	   128
/* RNR NAK: retransmit after 10 us (RNR_TIMER 1), without limit (7). */
#define RNR_TIMER   1
#define RNR_RETRIES 7
/* Retransmits; 7 would make some devices retry for ever. */
#define RETRIES 6
/* Longest private data of an accept and of a reject. */
#define MAX_ACCEPT 196
#define MAX_REJECT 148
/* Mask bits that old kernels set, which are no queue pair attributes. */
#define FOREIGN_ATTRS 0xe00000

/* Copy of an event's private data: hostile, gone after rdma_ack_cm_event(). */
struct private_data {
	uint8_t len; /* 0: no data, or only zero padding */
	uint8_t bytes[255];
};

static void copy_data(const struct rdma_cm_event *ev, struct private_data *p)
{
	const uint8_t *data = ev->param.conn.private_data;
	const uint8_t len = ev->param.conn.private_data_len;

	p->len = 0;
	for (uint8_t i = 0; data && i < len; i++) {
		p->bytes[i] = data[i];
		if (data[i])
			p->len = len;
	}
}

static int neg_errno(int ret)
{
	return ret ? -(errno ? errno : EIO) : 0;
}

int rp_verbs_cm_open(struct rp_verbs_rc *v, char *why, size_t why_size)
{
	int ret;

	v->events = rdma_create_event_channel();
	ret = v->events ? rp_verbs_watch_fd(v, v->events->fd) : neg_errno(-1);
	if (!ret)
		return 0;
	snprintf(why, why_size, "the RDMA connection manager is not here: %s",
		 strerror(-ret));
	return -ENODATA;
}

static void destroy_cm(struct rdma_cm_id *cm)
{
	if (rdma_destroy_id(cm))
		rp_log(RP_LOG_WARN, "private connections: rdma_destroy_id: %s",
		       strerror(errno));
}

static void destroy_id(struct rp_verbs_id *id)
{
	destroy_cm(id->cm);
	free(id);
}

void rp_verbs_cm_close(struct rp_verbs_rc *v)
{
	if (v->listener)
		destroy_cm(v->listener);
	if (v->events)
		rdma_destroy_event_channel(v->events);
	v->listener = NULL;
	v->events = NULL;
}

/* Open the device that cm is bound to; an rp_rc has only one device. */
static int open_device_of(struct rp_verbs_rc *v, const struct rdma_cm_id *cm)
{
	if (!cm->verbs)
		return -ENODEV;
	return rp_verbs_open_device(v, ibv_get_device_name(cm->verbs->device));
}

int rp_verbs_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		    uint16_t *port)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	union rp_rc_addr local = *at;
	struct rdma_cm_id *cm;
	int ret;

	(void)len;
	if (rdma_create_id(v->events, &cm, NULL, RDMA_PS_TCP))
		return -errno;
	ret = neg_errno(rdma_bind_addr(cm, &local.sa));
	/* A wildcard address is bound to no device. */
	if (!ret && (cm->verbs || !v->verbs))
		ret = open_device_of(v, cm);
	if (!ret)
		ret = neg_errno(rdma_listen(cm, BACKLOG));
	if (ret) {
		destroy_cm(cm);
		return ret;
	}
	v->listener = cm;
	*port = ntohs(rdma_get_src_port(cm));
	return 0;
}

/* --- queue pairs --- */

static int modify_qp(struct rp_verbs_channel *c, enum ibv_qp_state state)
{
	const struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0;

	if (rdma_init_qp_attr(c->id->cm, &attr, &mask))
		return -errno;
	mask &= ~FOREIGN_ATTRS;
	/* Only a passive side's queue pair allows remote access. */
	attr.qp_access_flags = 0;
	if (c->passive)
		attr.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (c->passive && v->native)
		attr.qp_access_flags |= RP_FLUSH_ACCESS;
	if (c->passive)
		attr.max_dest_rd_atomic = c->id->reads;
	attr.min_rnr_timer = RNR_TIMER;
	attr.rnr_retry = RNR_RETRIES;
	attr.retry_cnt = RETRIES;
	return -ibv_modify_qp(c->qp->ibv, &attr, mask);
}

static int move_qp_to_rts(struct rp_verbs_channel *c)
{
	int ret = modify_qp(c, IBV_QPS_RTR);

	if (!ret)
		ret = modify_qp(c, IBV_QPS_RTS);
	c->up = !ret;
	return ret;
}

/* Make the channel's queue pair; its rdma_cm_id must be bound to a device. */
static int make_qp(struct rp_verbs_channel *c)
{
	int ret = open_device_of(rp_verbs_rc_of(c->c.rc), c->id->cm);

	if (!ret)
		ret = rp_rc_pool_grow(c->c.rc);
	if (!ret)
		ret = rp_verbs_qp_new(c);
	return ret ? ret : modify_qp(c, IBV_QPS_INIT);
}

/* --- initiator side --- */

static int resolve_addr(struct rp_verbs_rc *v, struct rdma_cm_id *cm,
			const union rp_rc_addr *peer)
{
	union rp_rc_addr to = *peer, from;
	struct sockaddr *src = NULL;

	/* Connect from the listener's address, unless it is a wildcard. */
	if (v->listener && v->listener->verbs &&
	    rdma_get_local_addr(v->listener)->sa_family == to.sa.sa_family) {
		memcpy(&from, rdma_get_local_addr(v->listener), sizeof(from));
		/* The port has the same offset in both families. */
		from.in.sin_port = 0;
		src = &from.sa;
	}
	return neg_errno(rdma_resolve_addr(cm, src, &to.sa, RESOLVE_MS));
}

static struct rp_verbs_id *new_id(struct rdma_cm_id *cm)
{
	struct rp_verbs_id *id = calloc(1, sizeof(*id));

	if (!id) {
		destroy_cm(cm);
		return NULL;
	}
	id->cm = cm;
	cm->context = id;
	return id;
}

int rp_verbs_connect(struct rp_rc_channel *base, size_t addr_len,
		     const void *data, size_t len)
{
	struct rp_verbs_channel *c = rp_verbs_channel_of(base);
	struct rp_verbs_rc *v = rp_verbs_rc_of(base->rc);
	struct rdma_cm_id *cm;

	(void)addr_len;
	if (len > sizeof(c->data))
		return -EMSGSIZE;
	memcpy(c->data, data, len);
	c->data_len = (uint8_t)len;
	if (rdma_create_id(v->events, &cm, NULL, RDMA_PS_TCP))
		return -errno;
	c->id = new_id(cm);
	if (!c->id)
		return -ENOMEM;
	c->id->channel = c;
	return resolve_addr(v, cm, &base->peer);
}

static int request_connection(struct rp_verbs_channel *c)
{
	const struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rdma_conn_param param = {
		.private_data = c->data,
		.private_data_len = c->data_len,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_RETRIES,
		.srq = 1,
	};
	int ret = make_qp(c);

	if (ret)
		return ret;
	param.initiator_depth = v->max_reads;
	param.qp_num = c->qp->num;
	return neg_errno(rdma_connect(c->id->cm, &param));
}

static int take_connect_reply(struct rp_verbs_channel *c,
			      const struct private_data *p)
{
	int ret = move_qp_to_rts(c);

	if (!ret)
		ret = neg_errno(rdma_establish(c->id->cm));
	if (!ret)
		rp_rc_set_connected(&c->c, p->bytes, p->len);
	return ret;
}

/* --- target side --- */

static int accept_id(struct rp_verbs_channel *c, const void *data, size_t len)
{
	const struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.rnr_retry_count = RNR_RETRIES,
		.srq = 1,
	};
	int ret;

	if (len > MAX_ACCEPT)
		return -EMSGSIZE;
	ret = make_qp(c);
	if (c->id->reads > v->max_served_reads)
		c->id->reads = v->max_served_reads;
	if (!ret)
		ret = move_qp_to_rts(c);
	if (ret)
		return ret;
	param.responder_resources = c->id->reads;
	param.qp_num = c->qp->num;
	return neg_errno(rdma_accept(c->id->cm, &param));
}

int rp_verbs_accept(struct rp_rc_channel *base, void *handle, const void *data,
		    size_t len)
{
	struct rp_verbs_channel *c = rp_verbs_channel_of(base);
	const struct sockaddr *peer;

	c->id = handle;
	c->id->channel = c;
	c->passive = true;
	peer = rdma_get_peer_addr(c->id->cm);
	memcpy(&base->peer, peer, rp_rc_addr_len(peer, sizeof(base->peer)));
	return accept_id(c, data, len);
}

void rp_verbs_reject(struct rp_rc *rc, void *handle, const void *data,
		     size_t len)
{
	struct rp_verbs_id *id = handle;

	(void)rc;
	if (len > MAX_REJECT)
		len = 0;
	/* Ignore errors: rdma_destroy_id() rejects, too. */
	(void)rdma_reject(id->cm, data, (uint8_t)len);
	destroy_id(id);
}

static void add_request(struct rp_verbs_rc *v, struct rdma_cm_id *cm,
			uint8_t reads, const struct private_data *p)
{
	struct rp_verbs_id *id = new_id(cm);

	if (!id)
		return;
	id->reads = reads;
	rp_rc_add_request(&v->rc, id, rdma_get_peer_addr(cm), p->bytes, p->len);
}

/* --- disconnect --- */

void rp_verbs_shut(struct rp_rc_channel *base)
{
	struct rp_verbs_channel *c = rp_verbs_channel_of(base);

	c->up = false;
	/* Notify the peer; do not wait for its reply. */
	if (c->qp)
		(void)rdma_disconnect(c->id->cm);
	rp_verbs_qp_destroy(c);
	if (c->id)
		destroy_id(c->id);
	c->id = NULL;
}

static int errno_of(enum rdma_cm_event_type type, int status)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return status < 0 ? -status : EHOSTUNREACH;
	case RDMA_CM_EVENT_REJECTED:
		return ECONNREFUSED;
	case RDMA_CM_EVENT_DISCONNECTED:
		return ENOTCONN;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return ENODEV;
	default:
		return status < 0 ? -status : EIO;
	}
}

/* --- events --- */

static void channel_event(struct rp_verbs_channel *c,
			  enum rdma_cm_event_type type, int status,
			  const struct private_data *p)
{
	int ret;

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		ret = neg_errno(rdma_resolve_route(c->id->cm, RESOLVE_MS));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ret = request_connection(c);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		ret = take_connect_reply(c, p);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	default:
		ret = -errno_of(type, status);
		break;
	}
	if (ret)
		rp_rc_end_channel(&c->c, -ret, p->bytes,
				  type == RDMA_CM_EVENT_REJECTED ? p->len : 0);
}

static bool read_cm_event(struct rp_verbs_rc *v)
{
	struct rdma_cm_event *ev;
	enum rdma_cm_event_type type;
	struct private_data p = {.len = 0};
	struct rdma_cm_id *cm;
	struct rp_verbs_id *id;
	uint8_t reads;
	int status;

	if (rdma_get_cm_event(v->events, &ev))
		return false;
	type = ev->event;
	status = ev->status;
	cm = ev->id;
	reads = ev->param.conn.responder_resources;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST ||
	    type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
	    type == RDMA_CM_EVENT_REJECTED)
		copy_data(ev, &p);
	/* Acknowledge the event first: rdma_destroy_id() waits for that. */
	rdma_ack_cm_event(ev);
	id = cm->context;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		add_request(v, cm, reads, &p);
	} else if (id && id->channel) {
		channel_event(id->channel, type, status, &p);
	} else if (id) {
		/* The peer withdrew its request before accept or reject. */
		rp_rc_request_gone(&v->rc, id);
		destroy_id(id);
	}
	return true;
}

static bool read_device_event(struct rp_verbs_rc *v)
{
	struct ibv_async_event ev;
	struct rp_verbs_qp *q = NULL;

	if (!v->verbs || ibv_get_async_event(v->verbs, &ev))
		return false;
	if (ev.event_type == IBV_EVENT_QP_FATAL ||
	    ev.event_type == IBV_EVENT_QP_REQ_ERR ||
	    ev.event_type == IBV_EVENT_QP_ACCESS_ERR)
		q = rp_verbs_qp_find(v, ev.element.qp->qp_num);
	/* Acknowledge the event first: ibv_destroy_qp() waits for that. */
	ibv_ack_async_event(&ev);
	if (q && q->channel)
		rp_rc_end_channel(&q->channel->c, EIO, NULL, 0);
	if (ev.event_type == IBV_EVENT_DEVICE_FATAL ||
	    ev.event_type == IBV_EVENT_CQ_ERR ||
	    ev.event_type == IBV_EVENT_SRQ_ERR)
		rp_verbs_end_all(v, EIO);
	return true;
}

int rp_verbs_poll_events(struct rp_rc *rc, int max)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	int n = 0;

	while (n < max && read_cm_event(v))
		n++;
	while (n < max && read_device_event(v))
		n++;
	return n;
}
