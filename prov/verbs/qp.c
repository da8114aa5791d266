// SPDX-License-Identifier: BSD-2-Clause
/* A program's queue pairs: regions of the peer, and flushes of them. */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/shim.h"

void rp_qp_init(struct rp_qp *q, struct ibv_qp *qp, struct rpmem_cq *cq,
		const struct rp_qp_ops *ops)
{
	q->lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	q->pub.qp = qp;
	q->ops = ops;
	q->cq = cq;
	q->since = UINT64_MAX;
	atomic_init(&q->lost, false);
	pthread_mutex_lock(&cq->lock);
	LIST_INSERT_HEAD(&cq->qps, q, link);
	pthread_mutex_unlock(&cq->lock);
}

void rp_qp_fini(struct rp_qp *q)
{
	struct rp_peer_region *r, *next;

	/*
	 * Outstanding work requests keep their slots until they complete, so
	 * that their completions are not taken for those of a new flush.
	 */
	pthread_mutex_lock(&q->cq->lock);
	rp_defer_end(q);
	for (size_t i = 0; i < q->cq->nslots; i++)
		if (q->cq->slots[i].q == q)
			q->cq->slots[i].q = NULL;
	LIST_REMOVE(q, link);
	pthread_mutex_unlock(&q->cq->lock);
	HASH_ITER(hh, q->remotes, r, next)
	{
		HASH_DEL(q->remotes, r);
		free(r);
	}
	free(q->batch);
	pthread_mutex_destroy(&q->lock);
}

static struct rp_peer_region *find_region(const struct rp_qp *q, uint32_t rkey)
{
	struct rp_peer_region *r;

	HASH_FIND(hh, q->remotes, &rkey, sizeof(rkey), r);
	return r;
}

bool rp_qp_has_region(const struct rp_qp *q, uint32_t rkey)
{
	return find_region(q, rkey);
}

int rp_qp_add_region(struct rp_qp *q, const void *desc,
		     const struct rp_remote_cfg *cfg)
{
	struct rp_peer_region *r;
	struct rp_desc d;
	bool oom = false;
	int ret = rp_desc_get(desc, &d);

	if (ret)
		return -ret;
	r = malloc(sizeof(*r));
	if (!r)
		return ENOMEM;
	rp_remote_region_init(&r->r, &d, cfg);
	r->checked = false;
	pthread_mutex_lock(&q->lock);
	rpmem_forget_mr(&q->pub, d.rkey);
	HASH_ADD(hh, q->remotes, r.d.rkey, sizeof(d.rkey), r);
	pthread_mutex_unlock(&q->lock);
	if (!oom)
		return 0;
	free(r);
	return ENOMEM;
}

int rp_qp_region(struct rp_qp *q, uint32_t rkey, struct rpmem_region *region)
{
	const struct rp_peer_region *r;

	pthread_mutex_lock(&q->lock);
	r = find_region(q, rkey);
	if (r)
		*region = (struct rpmem_region){
			.rkey = rkey,
			.remote_addr = r->r.d.addr,
			.length = r->r.d.length,
			.persistent = rp_method_name(r->r.persistent.method),
			.global = rp_method_name(r->r.global),
			.survives = rp_class_name(r->r.persistent.class),
		};
	pthread_mutex_unlock(&q->lock);
	return r ? 0 : ENOKEY;
}

RP_PUBLIC int rpmem_import_mr(struct rpmem_qp *qp,
			      const struct rpmem_mr_desc *desc,
			      struct rpmem_region *region)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_remote_cfg cfg;
	struct rp_desc d;
	int ret = -rp_desc_get(desc->bytes, &d);

	if (ret)
		return ret;
	rp_shim_cfg(&cfg);
	cfg.native = q->native;
	cfg.agent = q->side;
	cfg.ring = q->side && q->side->ring_addr;
	ret = rp_qp_add_region(q, desc->bytes, &cfg);
	return ret || !region ? ret : rp_qp_region(q, d.rkey, region);
}

RP_PUBLIC int rpmem_forget_mr(struct rpmem_qp *qp, uint32_t rkey)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_peer_region *r;
	int ret = ENOKEY;

	pthread_mutex_lock(&q->lock);
	r = find_region(q, rkey);
	if (r) {
		HASH_DEL(q->remotes, r);
		free(r);
		ret = 0;
	}
	pthread_mutex_unlock(&q->lock);
	return ret;
}

/* At a region's first flush: is q connected to the descriptor's peer? */
static int check_region(struct rp_qp *q, struct rp_peer_region *r)
{
	struct rp_qp_state end;
	int ret;

	if (r->checked || atomic_load(&q->lost))
		return 0;
	ret = q->ops->query(q, &end);
	if (ret)
		return ret;
	if (end.state != IBV_QPS_RTS)
		return EINVAL;
	if (end.dest_qp_num != r->r.d.qp_num)
		return EKEYREJECTED;
	if (!end.max_rd_atomic)
		return EOPNOTSUPP;
	r->checked = true;
	return 0;
}

static_assert((int)RP_DESC_GLOBAL == RPMEM_FLUSH_GLOBAL &&
		      (int)RP_DESC_PERSISTENT == RPMEM_FLUSH_PERSISTENT &&
		      RPMEM_FLUSH_MR == 1,
	      "core has the same numbers for flushes");

void *rp_array_grow(void *array, size_t n, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 16;

	if (n < *room)
		return array;
	array = reallocarray(array, more, size);
	if (array)
		*room = more;
	return array;
}

static bool grow_batch(struct rp_qp *q)
{
	void *p = rp_array_grow(q->batch, q->nbatch, &q->batch_room,
				sizeof(*q->batch));

	if (p)
		q->batch = p;
	return p;
}

/* Record a slot for an internal work request. Returns its send flags. */
static unsigned int record_slot(struct rp_qp *q, struct rp_slot *s, int opcode)
{
	const unsigned int flags = q->pub.wr_flags;

	s->wr_id = q->pub.wr_id;
	s->opcode = opcode;
	s->signaled = q->sig_all || (flags & IBV_SEND_SIGNALED);
	q->batch[q->nbatch++] = s;
	return IBV_SEND_SIGNALED | (flags & IBV_SEND_FENCE);
}

static struct rp_deferred_op request_of(const struct rp_peer_region *r,
					struct rp_flush f, const void *value)
{
	struct rp_deferred_op i = {
		.kind = value ? RP_DEFERRED_STORE : RP_DEFERRED_FLUSH,
		.key = r->r.d.key,
		.addr = f.agent_addr,
		.len = f.agent_len,
		/* A store needs no class: the flush behind it needs one. */
		.required = value ? RP_CLASS_NONE : r->r.required,
	};

	if (value)
		memcpy(i.value, value, sizeof(uint64_t));
	return i;
}

/* Post a READ instead of a flush, or instead of an atomic write of value. */
static int post_read(struct rp_qp *q, const struct rp_peer_region *r,
		     struct rp_flush f, int opcode, const void *value)
{
	const struct rp_deferred_op i = request_of(r, f, value);
	const bool agent = f.kind == RP_FLUSH_AGENT;
	struct rp_slot *s;

	if (!grow_batch(q))
		return ENOMEM;
	s = rp_slot_new(q, agent ? &i : NULL, agent ? 0 : r->r.d.key);
	if (!s)
		return ENOMEM;
	q->uses_agent |= agent;
	if (f.kind == RP_FLUSH_QP_FORBIDS)
		s->forced_status = IBV_WC_REM_INV_REQ_ERR;
	else if (f.kind == RP_FLUSH_REGION_FORBIDS)
		s->forced_status = IBV_WC_REM_ACCESS_ERR;
	q->has_read_fences = true;
	q->ops->read(q, (uintptr_t)s, record_slot(q, s, opcode), r->r.d.rkey,
		     f.addr, f.len);
	return 0;
}

/* Pipeline a request in the ring. False: the caller posts a read fence. */
static bool post_pipelined(struct rp_qp *q, const struct rp_peer_region *r,
			   struct rp_flush f, const void *bytes)
{
	struct rp_ring_write w;
	struct rp_deferred_op i;
	struct rp_slot *s;

	if (f.kind != RP_FLUSH_AGENT || !r->r.ring || !grow_batch(q))
		return false;
	i = request_of(r, f, NULL);
	if (bytes) {
		i.kind = RP_DEFERRED_WRITE;
		i.bytes = bytes;
	}
	s = rp_defer_pipeline(q, &i, &w);
	if (!s)
		return false;
	q->uses_agent = true;
	q->ops->write(q, (uintptr_t)s, record_slot(q, s, RPMEM_WC_FLUSH),
		      q->side->ring_rkey, q->side->ring_addr + w.offset,
		      q->side->ring_lkey, w.buf, (uint32_t)w.len);
	return true;
}

/* Post a native FLUSH with a slot, as its status may have to be changed. */
static int post_native(struct rp_qp *q, const struct rp_peer_region *r,
		       uint64_t addr, size_t len, uint8_t type, uint8_t level)
{
	struct rp_slot *s =
		grow_batch(q) ? rp_slot_new(q, NULL, r->r.d.key) : NULL;

	if (!s)
		return ENOMEM;
	q->ops->flush(q, (uintptr_t)s, record_slot(q, s, RPMEM_WC_FLUSH),
		      r->r.d.rkey, addr, len, type, level);
	return 0;
}

static int post_flush(struct rp_qp *q, const struct rp_peer_region *r,
		      struct rp_flush f, uint64_t addr, size_t len,
		      uint8_t type, uint8_t level)
{
	if (f.kind == RP_FLUSH_REFUSED)
		return -f.err;
	if (post_pipelined(q, r, f, NULL))
		return 0;
	if (f.kind != RP_FLUSH_NATIVE)
		return post_read(q, r, f, RPMEM_WC_FLUSH, NULL);
	/* With a side connection the region may weaken: use a slot. */
	if (q->side && r->r.d.key)
		return post_native(q, r, addr, len, type, level);
	q->ops->flush(q, q->pub.wr_id, q->pub.wr_flags, r->r.d.rkey, addr, len,
		      type, level);
	return 0;
}

/*
 * Post a write and its flush. Up to RP_DEFERRED_BYTES go into the request,
 * others into a write without completion; the flush reports either's error.
 */
static int post_write_flush(struct rp_qp *q, const struct rp_peer_region *r,
			    uint64_t addr, const struct ibv_sge *from,
			    uint8_t type)
{
	const struct rp_flush f =
		rp_flush_decide(&r->r, addr, from->length, type, 0);
	const void *bytes = (const void *)(uintptr_t)from->addr;
	struct rp_slot *write, *flush;
	int ret;

	if (f.kind == RP_FLUSH_REFUSED)
		return -f.err;
	if (!q->has_write_builder)
		return EOPNOTSUPP;
	if (from->length <= RP_DEFERRED_BYTES && post_pipelined(q, r, f, bytes))
		return 0;
	if (!grow_batch(q))
		return ENOMEM;
	write = rp_slot_new(q, NULL, 0);
	if (!write)
		return ENOMEM;
	q->ops->write(q, (uintptr_t)write, record_slot(q, write, 0),
		      r->r.d.rkey, addr, from->lkey, bytes, from->length);
	write->signaled = false;
	ret = f.kind == RP_FLUSH_NATIVE
		      ? post_native(q, r, addr, from->length, type, 0)
		      : post_flush(q, r, f, addr, from->length, type, 0);
	if (ret)
		return ret;
	flush = q->batch[q->nbatch - 1];
	write->flush = flush;
	flush->write = write;
	return 0;
}

static int post_atomic_write(struct rp_qp *q, const struct rp_peer_region *r,
			     uint64_t addr, const void *value)
{
	const struct rp_flush f =
		rp_atomic_write_decide(&r->r, addr, q->uses_agent);
	unsigned int flags = q->pub.wr_flags;

	if (f.kind == RP_FLUSH_REFUSED)
		return -f.err;
	if (f.kind != RP_FLUSH_NATIVE)
		return post_read(q, r, f, RPMEM_WC_ATOMIC_WRITE, value);
	/* The device orders an atomic write after native flushes only. */
	if (q->has_read_fences)
		flags |= IBV_SEND_FENCE;
	q->ops->atomic_write(q, q->pub.wr_id, flags, r->r.d.rkey, addr, value);
	return 0;
}

RP_PUBLIC void rpmem_wr_start(struct rpmem_qp *qp)
{
	struct rp_qp *q = rp_qp_of(qp);

	pthread_mutex_lock(&q->lock);
	q->err = atomic_load(&q->lost) && !q->posts_when_lost ? ENOTCONN : 0;
	q->nbatch = 0;
	q->ops->start(q);
}

/* Find a usable region of the peer. NULL: q->err says why. */
static struct rp_peer_region *find_usable_region(struct rp_qp *q, uint32_t rkey)
{
	struct rp_peer_region *r;

	if (q->err)
		return NULL;
	r = find_region(q, rkey);
	q->err = r ? check_region(q, r) : ENOKEY;
	return q->err ? NULL : r;
}

RP_PUBLIC void rpmem_wr_flush(struct rpmem_qp *qp, uint32_t rkey,
			      uint64_t remote_addr, size_t len, uint8_t type,
			      uint8_t level)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_peer_region *r = find_usable_region(q, rkey);

	if (r)
		q->err = post_flush(
			q, r,
			rp_flush_decide(&r->r, remote_addr, len, type, level),
			remote_addr, len, type, level);
}

RP_PUBLIC void rpmem_wr_write_flush(struct rpmem_qp *qp, uint32_t rkey,
				    uint64_t remote_addr,
				    const struct ibv_sge *from, uint8_t type)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_peer_region *r = find_usable_region(q, rkey);

	if (r)
		q->err = post_write_flush(q, r, remote_addr, from, type);
}

RP_PUBLIC void rpmem_wr_atomic_write(struct rpmem_qp *qp, uint32_t rkey,
				     uint64_t remote_addr,
				     const void *atomic_wr)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_peer_region *r = find_usable_region(q, rkey);

	if (r)
		q->err = post_atomic_write(q, r, remote_addr, atomic_wr);
}

/* Free the slots batch[n..], whose work requests were not posted. */
static void free_unposted(struct rp_qp *q, size_t n)
{
	for (size_t i = q->nbatch; i-- > n;)
		rp_defer_unpost(q, q->batch[i]);
}

RP_PUBLIC int rpmem_wr_complete(struct rpmem_qp *qp)
{
	struct rp_qp *q = rp_qp_of(qp);
	size_t posted = 0;
	int ret = q->err;

	if (ret)
		q->ops->abort(q);
	else
		ret = q->ops->complete(q, &posted);
	if (ret)
		free_unposted(q, posted);
	pthread_mutex_unlock(&q->lock);
	return ret;
}

RP_PUBLIC void rpmem_wr_abort(struct rpmem_qp *qp)
{
	struct rp_qp *q = rp_qp_of(qp);

	q->ops->abort(q);
	free_unposted(q, 0);
	pthread_mutex_unlock(&q->lock);
}
