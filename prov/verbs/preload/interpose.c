// SPDX-License-Identifier: BSD-2-Clause
/* The libibverbs calls that the preload interposes. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "verbs/preload/preload.h"

/* Define the functions below, not the macros of these names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define ADDED_CAPS (7ull << 38) /* both FLUSH types, ATOMIC_WRITE */
#define ADDED_BUILDERS                                                         \
	((uint64_t)RP_QP_EX_WITH_FLUSH | (uint64_t)IBV_QP_EX_WITH_ATOMIC_WRITE)
#define OPTIONAL_ACCESS (~(unsigned int)(IBV_ACCESS_OPTIONAL_FIRST - 1))

__thread unsigned int rp_pre_passthrough;

#define FOR_CALLS(DO)                                                          \
	DO(open_device)                                                        \
	DO(import_device)                                                      \
	DO(close_device)                                                       \
	DO(create_cq)                                                          \
	DO(resize_cq)                                                          \
	DO(destroy_cq)                                                         \
	DO(get_cq_event)                                                       \
	DO(qp_to_qp_ex)                                                        \
	DO(modify_qp)                                                          \
	DO(query_qp)                                                           \
	DO(destroy_qp)                                                         \
	DO(reg_mr)                                                             \
	DO(reg_mr_iova)                                                        \
	DO(reg_mr_iova2)                                                       \
	DO(reg_dmabuf_mr)                                                      \
	DO(rereg_mr)                                                           \
	DO(dereg_mr)

static struct {
#define FIELD(call) __typeof__(ibv_##call) *(call);
	FOR_CALLS(FIELD)
} base;

static void *find_next(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p) {
		rp_log(RP_LOG_WARN, "libibverbs has no %s()", name);
		abort();
	}
	return p;
}

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* ctxs and cqs */
static LIST_HEAD(, rp_pre_ctx) ctxs = LIST_HEAD_INITIALIZER(ctxs);
static struct rp_pre_cq *cqs;

/* A thread that holds the lock does not exist in a child. */
static void reset_lock(void)
{
	lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

static void __attribute__((constructor)) find_base(void)
{
#define FIND(call) base.call = find_next("ibv_" #call);
	FOR_CALLS(FIND)
	pthread_atfork(NULL, NULL, reset_lock);
}

struct rp_pre_ctx *rp_pre_ctx_find(const struct ibv_context *ctx)
{
	struct rp_pre_ctx *c;

	pthread_rwlock_rdlock(&lock);
	LIST_FOREACH (c, &ctxs, link)
		if (c->ctx == ctx)
			break;
	pthread_rwlock_unlock(&lock);
	return c;
}

struct rp_pre_cq *rp_pre_cq_find(struct ibv_cq *cq)
{
	struct rp_pre_cq *c;

	pthread_rwlock_rdlock(&lock);
	HASH_FIND_PTR(cqs, &cq, c);
	pthread_rwlock_unlock(&lock);
	return c;
}

static struct rpmem_cq *shim_of(struct rp_pre_cq *c)
{
	return atomic_load_explicit(&c->shim, memory_order_acquire);
}

/* --- completions --- */

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct rp_pre_cq *c = rp_pre_passthrough ? NULL : rp_pre_cq_find(cq);
	int ret;

	if (!c || !shim_of(c))
		return rp_pre_ctx_find(cq->context)->poll_cq(cq, n, wc);
	rp_pre_passthrough++;
	ret = rpmem_poll_cq(shim_of(c), n, wc);
	rp_pre_passthrough--;
	return ret;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct rp_pre_cq *c = rp_pre_passthrough ? NULL : rp_pre_cq_find(cq);

	/* A deadline counts when the queue is empty: every entry is to wake. */
	if (c && shim_of(c))
		solicited_only = 0;
	return rp_pre_ctx_find(cq->context)->req_notify_cq(cq, solicited_only);
}

static bool has_completion(struct rp_pre_cq *c)
{
	bool has;

	rp_pre_passthrough++;
	has = rp_cq_has_completion(shim_of(c));
	rp_pre_passthrough--;
	return has;
}

/* Skip events for the shim alone; arm before checking, so none is missed. */
RP_PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel,
			       struct ibv_cq **cq, void **cq_context)
{
	struct rp_pre_cq *c;
	int ret;

	for (;;) {
		ret = base.get_cq_event(channel, cq, cq_context);
		if (ret || rp_pre_passthrough)
			return ret;
		c = rp_pre_cq_find(*cq);
		if (!c || !shim_of(c) || has_completion(c))
			return 0;
		if (c->ctx->req_notify_cq(*cq, 0) || has_completion(c))
			return 0;
		ibv_ack_cq_events(*cq, 1);
	}
}

/* Add entries for the shim to a completion queue, up to the device's limit. */
static int cqe_with_room(const struct rp_pre_ctx *c, int cqe)
{
	int64_t want = 4 * (int64_t)cqe + 256;

	if (want > c->max_cqe)
		want = c->max_cqe;
	return want > cqe ? (int)want : cqe;
}

static struct ibv_cq *cq_add(struct rp_pre_ctx *ctx, struct ibv_cq *cq, int cqe,
			     bool extended)
{
	struct rp_pre_cq *c = calloc(1, sizeof(*c));
	bool oom = !c || pthread_mutex_init(&c->lock, NULL);

	if (!oom) {
		c->cq = cq;
		c->ctx = ctx;
		c->program_cqe = cqe;
		c->extended = extended;
		pthread_rwlock_wrlock(&lock);
		HASH_ADD_PTR(cqs, cq, c);
		pthread_rwlock_unlock(&lock);
	}
	if (!oom)
		return cq;
	free(c);
	base.destroy_cq(cq);
	errno = ENOMEM;
	return NULL;
}

RP_PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe,
				       void *cq_context,
				       struct ibv_comp_channel *channel,
				       int vector)
{
	struct rp_pre_ctx *c = rp_pre_passthrough ? NULL : rp_pre_ctx_find(ctx);
	struct ibv_cq *cq;

	if (!c || cqe < 1)
		return base.create_cq(ctx, cqe, cq_context, channel, vector);
	cq = base.create_cq(ctx, cqe_with_room(c, cqe), cq_context, channel,
			    vector);
	return cq ? cq_add(c, cq, cqe, false) : NULL;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx,
				      struct ibv_cq_init_attr_ex *attr)
{
	struct rp_pre_ctx *c = rp_pre_ctx_find(ctx);
	const uint32_t cqe = attr->cqe;
	struct ibv_cq_ex *cq;

	if (rp_pre_passthrough || !cqe || cqe > (uint32_t)c->max_cqe)
		return c->create_cq_ex(ctx, attr);
	attr->cqe = (uint32_t)cqe_with_room(c, (int)cqe);
	cq = c->create_cq_ex(ctx, attr);
	attr->cqe = cqe;
	if (cq && !cq_add(c, ibv_cq_ex_to_cq(cq), (int)cqe, true))
		return NULL;
	return cq;
}

RP_PUBLIC int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct rp_pre_cq *c = rp_pre_passthrough ? NULL : rp_pre_cq_find(cq);
	int ret = 0;

	if (!c)
		return base.resize_cq(cq, cqe);
	/* Never shrink: the shim's work requests may fill the queue. */
	pthread_mutex_lock(&c->lock);
	if (cqe + c->used > cq->cqe)
		ret = base.resize_cq(cq, cqe + c->used);
	if (!ret)
		c->program_cqe = cqe;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

RP_PUBLIC int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct rp_pre_cq *c = rp_pre_passthrough ? NULL : rp_pre_cq_find(cq);
	int ret;

	if (!c)
		return base.destroy_cq(cq);
	ret = shim_of(c) ? rpmem_detach_cq(shim_of(c)) : 0;
	if (ret)
		return ret;
	pthread_rwlock_wrlock(&lock);
	HASH_DEL(cqs, c);
	pthread_rwlock_unlock(&lock);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return base.destroy_cq(cq);
}

int rp_pre_cq_reserve(struct rp_pre_cq *c, int entries)
{
	struct rpmem_cq *shim;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	if (entries > c->cq->cqe - c->program_cqe - c->used)
		ret = ENOMEM;
	if (!ret && !shim_of(c)) {
		shim = rpmem_attach_cq(c->cq);
		ret = shim ? 0 : errno;
		atomic_store_explicit(&c->shim, shim, memory_order_release);
	}
	if (!ret)
		c->used += entries;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* --- queue pairs --- */

/* Attach the shim to a new or reset queue pair. 0 or an errno. */
static int attach_shim(struct rp_pre_qp *r)
{
	const struct rpmem_qp_attr attr = {
		.send_ops_flags = r->base ? r->send_ops : 0,
		.access = r->access,
	};
	struct rpmem_qp *shim =
		rpmem_attach_qp(r->qp, shim_of(r->send_cq), &attr);

	if (!shim)
		return errno;
	rp_qp_of(shim)->posts_when_lost = true;
	r->shim = shim;
	r->side_up = false;
	return 0;
}

/* builders: the program may call ibv_qp_to_qp_ex(). NULL and errno. */
static struct rp_pre_qp *qp_new(struct ibv_qp *qp, uint64_t send_ops,
				bool builders)
{
	struct rp_pre_cq *send_cq = rp_pre_cq_find(qp->send_cq);
	struct rp_pre_qp *r = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;
	int ret = EINVAL;

	if (!send_cq)
		goto fail;
	ret = EOPNOTSUPP;
	if (send_cq->extended) {
		rp_log(RP_LOG_WARN, "no flushes with a completion queue of "
				    "ibv_create_cq_ex()");
		goto fail;
	}
	ret = ENOMEM;
	r = calloc(1, sizeof(*r));
	if (!r || pthread_mutex_init(&r->client_lock, NULL))
		goto fail;
	r->qp = qp;
	r->send_cq = send_cq;
	r->fd = -1;
	r->send_ops = send_ops;
	rp_shim_cfg(&r->cfg);
	ret = base.query_qp(qp, &now, IBV_QP_CAP, &init);
	if (ret)
		goto fail;
	/* An entry per request, and those of the side queue pair. */
	r->entries = (int)init.cap.max_send_wr + RP_SIDE_RECVS + RP_SIDE_SENDS;
	ret = rp_pre_cq_reserve(send_cq, r->entries);
	if (ret) {
		rp_log(RP_LOG_WARN,
		       "the completion queue is too short for queue pair %u",
		       qp->qp_num);
		goto fail;
	}
	if (builders) {
		r->base = base.qp_to_qp_ex(qp);
		rp_pre_ex_init(r);
	}
	ret = attach_shim(r);
	if (ret)
		goto unuse;
	ret = rp_pre_qp_add(r);
	if (!ret)
		return r;
	rpmem_detach_qp(r->shim);
unuse:
	rp_pre_cq_reserve(send_cq, -r->entries);
fail:
	free(r);
	errno = ret;
	return NULL;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx,
				   struct ibv_qp_init_attr_ex *attr)
{
	const bool builders = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const uint64_t send_ops = builders ? attr->send_ops_flags : 0;
	struct rp_pre_ctx *c = rp_pre_ctx_find(ctx);
	const bool no_sge = !attr->cap.max_send_sge;
	struct rp_pre_qp *r;
	struct ibv_qp *qp;

	if (rp_pre_passthrough || !(send_ops & ADDED_BUILDERS) ||
	    attr->qp_type != IBV_QPT_RC)
		return c->create_qp_ex(ctx, attr);
	attr->send_ops_flags =
		(send_ops & ~ADDED_BUILDERS) | IBV_QP_EX_WITH_RDMA_READ;
	attr->cap.max_send_sge += no_sge;
	rp_pre_passthrough++;
	qp = c->create_qp_ex(ctx, attr);
	if (qp) {
		r = qp_new(qp, attr->send_ops_flags, true);
		if (r) {
			r->no_sge = no_sge;
		} else {
			base.destroy_qp(qp);
			qp = NULL;
		}
	}
	rp_pre_passthrough--;
	attr->send_ops_flags = send_ops;
	if (no_sge)
		attr->cap.max_send_sge = 0;
	return qp;
}

RP_PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct rp_pre_qp *r = rp_pre_passthrough ? NULL : rp_pre_qp_find(qp);

	return r && r->base ? &r->ex : base.qp_to_qp_ex(qp);
}

/* Attach again when the program moves the queue pair to RESET. */
static int reattach_shim(struct rp_pre_qp *r)
{
	struct rpmem_qp *old = r->shim;

	rp_pre_qp_clear_peer(r);
	return attach_shim(r) ?: rpmem_detach_qp(old);
}

static int modify_shim_qp(struct rp_pre_qp *r, struct ibv_qp_attr *attr,
			  int mask)
{
	const unsigned int was_access = attr->qp_access_flags;
	const uint8_t rd = attr->max_rd_atomic;
	const uint8_t dest_rd = attr->max_dest_rd_atomic;
	const unsigned int flushes = was_access & RP_SHIM_FLUSHES;
	const bool resets =
		(mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET;
	int ret;

	if (resets) {
		ret = reattach_shim(r);
		if (ret)
			return ret;
	}
	if (mask & IBV_QP_ACCESS_FLAGS) {
		attr->qp_access_flags &= ~(unsigned int)RP_SHIM_FLUSHES;
		if (flushes)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ;
	}
	/* Flushes may become READs: allow one outstanding. */
	if (!rd)
		attr->max_rd_atomic = 1;
	if (!dest_rd)
		attr->max_dest_rd_atomic = 1;
	ret = base.modify_qp(r->qp, attr, mask);
	attr->qp_access_flags = was_access;
	attr->max_rd_atomic = rd;
	attr->max_dest_rd_atomic = dest_rd;
	if (ret)
		return ret;
	if (resets)
		rp_cq_drop_slots(shim_of(r->send_cq), r->qp->qp_num);
	if (mask & IBV_QP_ACCESS_FLAGS) {
		r->access = flushes;
		r->no_read = flushes && !(was_access & IBV_ACCESS_REMOTE_READ);
		rp_qp_of(r->shim)->access = flushes;
	}
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		r->no_rd = !rd;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		r->no_dest_rd = !dest_rd;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR &&
	    (mask & IBV_QP_AV) && (mask & IBV_QP_DEST_QPN))
		rp_pre_qp_set_peer(r, attr);
	return 0;
}

RP_PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			    int mask)
{
	struct rp_pre_qp *r;
	int ret = 0;

	/* An agent calls this with its lock; the lookup takes ours. */
	if (rp_pre_passthrough ||
	    (mask == IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR))
		return base.modify_qp(qp, attr, mask);
	r = rp_pre_qp_find(qp);
	rp_pre_passthrough++;
	/* A queue pair without flushes may be the target of flushes. */
	if (!r && (mask & IBV_QP_ACCESS_FLAGS) &&
	    (attr->qp_access_flags & RP_SHIM_FLUSHES) &&
	    qp->qp_type == IBV_QPT_RC && rp_pre_ctx_find(qp->context)) {
		r = qp_new(qp, 0, false);
		ret = r ? 0 : errno;
	}
	if (!ret)
		ret = r ? modify_shim_qp(r, attr, mask)
			: base.modify_qp(qp, attr, mask);
	rp_pre_passthrough--;
	return ret;
}

RP_PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			   int mask, struct ibv_qp_init_attr *init)
{
	struct rp_pre_qp *r = rp_pre_passthrough ? NULL : rp_pre_qp_find(qp);
	int ret = base.query_qp(qp, attr, mask, init);

	if (ret || !r)
		return ret;
	attr->qp_access_flags |= r->access;
	if (r->no_read)
		attr->qp_access_flags &= ~(unsigned int)IBV_ACCESS_REMOTE_READ;
	if (r->no_rd)
		attr->max_rd_atomic = 0;
	if (r->no_dest_rd)
		attr->max_dest_rd_atomic = 0;
	if (r->no_sge)
		attr->cap.max_send_sge = init->cap.max_send_sge = 0;
	return 0;
}

RP_PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct rp_pre_qp *r = rp_pre_passthrough ? NULL : rp_pre_qp_find(qp);
	int ret;

	if (!r)
		return base.destroy_qp(qp);
	rp_pre_passthrough++;
	rp_pre_qp_del(r);
	ret = rpmem_destroy_qp(r->shim);
	rp_pre_cq_reserve(r->send_cq, -r->entries);
	pthread_mutex_destroy(&r->client_lock);
	free(r->recalled);
	free(r);
	rp_pre_passthrough--;
	return ret;
}

/* --- regions --- */

static bool is_emulated(const struct ibv_pd *pd, unsigned int access)
{
	return !rp_pre_passthrough && (access & RP_SHIM_FLUSHES) &&
	       rp_pre_ctx_find(pd->context);
}

/* Register with remote read, as peers flush by READs; drop relaxed ordering. */
static struct ibv_mr *region_new(struct ibv_pd *pd, void *addr, size_t length,
				 uint64_t iova, unsigned int access)
{
	struct rpmem_mr *shim;
	struct ibv_mr *mr = NULL;
	int ret;

	rp_pre_passthrough++;
	shim = rp_mr_new(pd, addr, length, iova,
			 (access & ~OPTIONAL_ACCESS) | IBV_ACCESS_REMOTE_READ);
	if (shim) {
		mr = shim->mr;
		ret = rp_pre_mr_add(mr, shim);
		if (ret) {
			rpmem_dereg_mr(shim);
			mr = NULL;
			errno = ret;
		}
	}
	rp_pre_passthrough--;
	return mr;
}

RP_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr,
				    size_t length, int access)
{
	if (is_emulated(pd, (unsigned int)access))
		return region_new(pd, addr, length, (uintptr_t)addr,
				  (unsigned int)access);
	return base.reg_mr(pd, addr, length, access);
}

RP_PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr,
					 size_t length, uint64_t iova,
					 int access)
{
	if (is_emulated(pd, (unsigned int)access))
		return region_new(pd, addr, length, iova, (unsigned int)access);
	return base.reg_mr_iova(pd, addr, length, iova, access);
}

RP_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
					  size_t length, uint64_t iova,
					  unsigned int access)
{
	if (is_emulated(pd, access))
		return region_new(pd, addr, length, iova, access);
	return base.reg_mr_iova2(pd, addr, length, iova, access);
}

RP_PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
					   size_t length, uint64_t iova, int fd,
					   int access)
{
	if (is_emulated(pd, (unsigned int)access)) {
		rp_log(RP_LOG_WARN, "memory of another device is not flushed");
		errno = EOPNOTSUPP;
		return NULL;
	}
	return base.reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

RP_PUBLIC int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			   void *addr, size_t length, int access)
{
	if (!rp_pre_passthrough &&
	    (rp_pre_mr_find(mr) ||
	     ((flags & IBV_REREG_MR_CHANGE_ACCESS) &&
	      is_emulated(mr->pd, (unsigned int)access)))) {
		rp_log(RP_LOG_WARN,
		       "regions that are flushed cannot be changed");
		errno = EOPNOTSUPP;
		return IBV_REREG_MR_ERR_INPUT;
	}
	return base.rereg_mr(mr, flags, pd, addr, length, access);
}

RP_PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct rp_pre_mr *m = rp_pre_passthrough ? NULL : rp_pre_mr_find(mr);
	int ret;

	if (!m)
		return base.dereg_mr(mr);
	rp_pre_passthrough++;
	rp_pre_mr_recall(m);
	ret = rpmem_dereg_mr(m->shim);
	rp_pre_mr_end_recall(m, !ret);
	rp_pre_passthrough--;
	return ret;
}

/* --- devices --- */

static int query_device_ex(struct ibv_context *ctx,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	const size_t has =
		offsetof(struct ibv_device_attr_ex, device_cap_flags_ex) +
		sizeof(attr->device_cap_flags_ex);
	int ret = rp_pre_ctx_find(ctx)->query_device_ex(ctx, input, attr, size);

	if (!ret && !rp_pre_passthrough && size >= has)
		attr->device_cap_flags_ex |= ADDED_CAPS;
	return ret;
}

/* Does the device lack FLUSH, and can the preload emulate it? */
static bool must_emulate(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	unsigned int native;
	bool builders;

	if (!pd)
		return false;
	native = rp_device_native(pd);
	builders = rp_builders_supported(pd, IBV_QP_EX_WITH_RDMA_READ);
	ibv_dealloc_pd(pd);
	if ((native & RP_DESC_GLOBAL) && (native & RP_DESC_PERSISTENT))
		return false;
	if (!builders)
		rp_log(RP_LOG_WARN, "%s has no calls of ibv_wr_start()",
		       ibv_get_device_name(ctx->device));
	return builders && !ibv_query_device(ctx, attr);
}

static void ctx_add(struct ibv_context *ctx)
{
	struct verbs_context *v = verbs_get_ctx_op(ctx, query_device_ex);
	struct ibv_device_attr attr;
	struct rp_pre_ctx *c;

	if (!v || !verbs_get_ctx_op(ctx, create_qp_ex) ||
	    !must_emulate(ctx, &attr))
		return;
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	*c = (struct rp_pre_ctx){
		.ctx = ctx,
		.poll_cq = ctx->ops.poll_cq,
		.req_notify_cq = ctx->ops.req_notify_cq,
		.query_device_ex = v->query_device_ex,
		.create_qp_ex = v->create_qp_ex,
		.max_cqe = attr.max_cqe,
	};
	pthread_rwlock_wrlock(&lock);
	LIST_INSERT_HEAD(&ctxs, c, link);
	pthread_rwlock_unlock(&lock);
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify_cq;
	v->query_device_ex = query_device_ex;
	v->create_qp_ex = create_qp_ex;
	if (verbs_get_ctx_op(ctx, create_cq_ex)) {
		c->create_cq_ex = v->create_cq_ex;
		v->create_cq_ex = create_cq_ex;
	}
}

static struct ibv_context *wrap_device(struct ibv_context *ctx)
{
	const int err = errno;

	if (ctx) {
		rp_pre_passthrough++;
		ctx_add(ctx);
		rp_pre_passthrough--;
	}
	errno = err;
	return ctx;
}

RP_PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return wrap_device(base.open_device(device));
}

RP_PUBLIC struct ibv_context *ibv_import_device(int fd)
{
	return wrap_device(base.import_device(fd));
}

RP_PUBLIC int ibv_close_device(struct ibv_context *ctx)
{
	struct rp_pre_ctx *c = rp_pre_ctx_find(ctx);

	if (c) {
		pthread_rwlock_wrlock(&lock);
		LIST_REMOVE(c, link);
		pthread_rwlock_unlock(&lock);
		free(c);
	}
	return base.close_device(ctx);
}
