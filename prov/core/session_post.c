// SPDX-License-Identifier: BSD-2-Clause
/* Post operations: check, refuse or accept them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/session_priv.h"

static int check_range(const struct rp_wire_range *g)
{
	if (!g->len || g->addr + g->len < g->addr) {
		rp_log(RP_LOG_WARN,
		       "%#" PRIx64 " bytes at %#" PRIx64
		       " are no valid range: empty, or wrapping",
		       g->len, g->addr);
		return -EINVAL;
	}
	return rp_key_is_persistent(g->key) ? 0 : -EKEYREJECTED;
}

static bool iov_sums_to(const struct iovec *iov, size_t n, uint64_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len > UINT64_MAX - sum)
			return false;
		sum += iov[i].iov_len;
	}
	return sum == bytes;
}

static int check_atomic(const struct rp_op *op)
{
	const struct rp_wire_atomic *a = &op->atomic;
	const bool compares = rp_atomic_has_compare(a->op);
	uint64_t bytes = op->priv.bytes;
	size_t size;

	if (!rp_atomic_valid(a->op, a->datatype, &size))
		return -EOPNOTSUPP;
	if (!op->level || (rp_atomic_has_operand(a->op) && !a->operand) ||
	    (compares && !a->compare) || bytes > RP_WIRE_MAX_STORE ||
	    RP_WIRE_STORE_LEN(op->nranges, bytes << compares) + 8 >
		    RP_WIRE_MAX_MSG ||
	    (a->fetch && !iov_sums_to(op->result, op->result_count, bytes)))
		return -EINVAL;
	for (size_t i = 0; i < op->nranges; i++)
		if (op->ranges[i].len % size)
			return -EINVAL;
	return 0;
}

static int check_op(struct rp_op *op)
{
	const bool few = op->kind == RP_OP_WRITE || op->kind == RP_OP_READ ||
			 op->kind == RP_OP_ATOMIC;
	const struct rp_wire_range then = rp_ordered_store_range(op);
	uint64_t bytes = 0;
	int ret;

	if (!op->nranges || (few && op->nranges > RP_CHANNEL_IOV))
		return -EINVAL;
	if (op->kind == RP_OP_QUERY)
		return rp_key_is_persistent(op->ranges[0].key) ? 0
							       : -EKEYREJECTED;
	for (size_t i = 0; i < op->nranges; i++) {
		ret = check_range(&op->ranges[i]);
		if (ret)
			return ret;
		if (few && op->ranges[i].len > UINT64_MAX - bytes)
			return -EINVAL;
		bytes += op->ranges[i].len;
	}
	op->priv.bytes = few ? bytes : 0;
	if (op->kind == RP_OP_ATOMIC)
		return check_atomic(op);
	if (op->zero)
		return op->kind == RP_OP_WRITE && op->level && !op->effect &&
				       bytes <= RP_WIRE_MAX_ZERO
			       ? 0
			       : -EINVAL;
	if (few && (op->iov_count > RP_CHANNEL_IOV ||
		    !iov_sums_to(op->iov, op->iov_count, bytes)))
		return -EINVAL;
	if (op->kind == RP_OP_COMMIT && !op->level)
		return -EINVAL;
	if (!op->effect || op->kind == RP_OP_READ)
		return 0;
	if (op->effect == RP_EFFECT_NOTIFY &&
	    (op->level == RP_LEVEL_DURABLE ||
	     (op->level && op->kind == RP_OP_WRITE)))
		return 0;
	if (op->level != RP_LEVEL_DURABLE || op->effect != RP_EFFECT_THEN)
		return -EINVAL;
	if (then.addr % then.len) {
		rp_log(RP_LOG_WARN,
		       "the ordered store of a commit needs an address that "
		       "is a multiple of 8, not %#" PRIx64,
		       then.addr);
		return -EINVAL;
	}
	return check_range(&then);
}

/* Does a REQUEST carry the write's bytes, for the target's CPU to store? */
static bool is_inline(struct rp_session *s, const struct rp_op *op)
{
	const uint64_t bytes = op->priv.bytes;

	if (op->zero)
		return true;
	if (op->kind != RP_OP_WRITE || op->effect ||
	    bytes > RP_WIRE_MAX_STORE ||
	    RP_WIRE_STORE_LEN(op->nranges, bytes) > RP_WIRE_MAX_MSG)
		return false;
	/* RDMA would need a desc for the copy of the injected bytes. */
	if (op->inject && s->channel->flags & RP_CHANNEL_LOCAL_MR)
		return true;
	if (op->level != RP_LEVEL_DURABLE || bytes > s->attr.inline_max)
		return false;
	for (size_t i = 0; i < op->nranges; i++) {
		const struct rp_grant *g = rp_grant_find(s, op->ranges[i].key);

		if (g->without_agent != RP_METHOD_REFUSED &&
		    g->g.class >= op->required)
			return false;
	}
	return true;
}

/* The status by which grants or poison refuse an operation; OK: post it. */
static enum rp_status status_by_grants(struct rp_session *s,
				       const struct rp_op *op, uint64_t *range)
{
	const struct rp_wire_range then = rp_ordered_store_range(op);
	const struct rp_grant *g = NULL;

	if (op->kind == RP_OP_QUERY)
		return RP_ST_OK;
	for (size_t i = 0; i < op->nranges + rp_op_has_then(op); i++) {
		const struct rp_wire_range *r =
			i < op->nranges ? &op->ranges[i] : &then;

		*range = i;
		if (!g || g->key != r->key)
			g = rp_grant_find(s, r->key);
		if (!rp_range_inside(r->addr, r->len, g->g.addr, g->g.length))
			return RP_ST_RANGE;
		if (!g->g.writable && (rp_op_writes(op) || i == op->nranges))
			return RP_ST_ACCESS;
	}
	if (op->kind == RP_OP_COMMIT && rp_commit_is_poisoned(s, op, range))
		return RP_ST_WRITE_FAILED;
	return RP_ST_OK;
}

static int copy_operands(struct rp_op *op)
{
	const bool compares = rp_atomic_has_compare(op->atomic.op);
	const uint64_t bytes = op->priv.bytes;
	uint8_t *to;

	if (op->kind != RP_OP_ATOMIC || !rp_atomic_has_operand(op->atomic.op))
		return 0;
	to = malloc(bytes << compares);
	if (!to)
		return -ENOMEM;
	op->priv.copy = to;
	memcpy(to, op->atomic.operand, bytes);
	op->atomic.operand = to;
	if (!compares)
		return 0;
	memcpy(to + bytes, op->atomic.compare, bytes);
	op->atomic.compare = to + bytes;
	return 0;
}

/* Accept an operation that ends with this status at the next progress. */
static int accept_failed(struct rp_session *s, struct rp_op *op,
			 enum rp_status st, uint32_t detail, uint64_t range)
{
	rp_op_accept(s, op);
	rp_op_fail(op, st, detail, range);
	op->priv.unposted = true;
	rp_op_end(op);
	s->k->ops->kick(s->k);
	return 0;
}

/* Accept the operation: connection and grants are ready. */
static int accept_ready(struct rp_session *s, struct rp_op *op)
{
	enum rp_status st;
	uint64_t range = 0;

	if (s->nqueued >= s->attr.max_commits ||
	    (rp_op_is_limited(op) && s->ncommits >= s->attr.max_commits))
		return -EAGAIN;
	st = status_by_grants(s, op, &range);
	if (st != RP_ST_OK)
		return accept_failed(s, op, st, 0, range);
	if (!op->level && rp_session_may_coalesce(s, op))
		return rp_session_coalesce(s, op);
	op->priv.store = is_inline(s, op);
	if (copy_operands(op) || (rp_op_writes(op) && rp_write_record(s, op))) {
		free(op->priv.copy);
		return -ENOMEM;
	}
	/* The store of `then` is a write of its 8 bytes. */
	if (rp_op_has_then(op))
		rp_then_clear(&s->poison, op, s->next_seq);
	rp_op_accept(s, op);
	rp_session_post_queued(s);
	/* Injected bytes are the program's again when this returns. */
	if (op->kind == RP_OP_WRITE && op->inject && !op->priv.copy &&
	    op->priv.state < RP_OP_POSTED && rp_op_copy(op)) {
		rp_op_fail(op, RP_ST_NO_MEMORY, 0, 0);
		op->priv.unposted = true;
	}
	if (s->unplaced.n >= RP_SESSION_RANGES ||
	    s->written - s->proved > RP_SESSION_UNPLACED_BYTES)
		rp_session_fence(s);
	if (!TAILQ_EMPTY(&s->ended))
		s->k->ops->kick(s->k);
	return 0;
}

/* The usual case of rp_session_ready(): one key, the last one looked up. */
static bool is_ready(const struct rp_session *s, const struct rp_op *op)
{
	const struct rp_grant *g = s->last_grant;

	return s->state == RP_SESSION_OPEN && !s->end_due && !s->failure &&
	       op->nranges == 1 && !op->effect && g &&
	       g->key == op->ranges[0].key && g->state == RP_GRANT_GIVEN;
}

int rp_session_post(struct rp_session *s, struct rp_op *op)
{
	uint64_t range = 0;
	uint32_t detail = 0;
	int ret;

	rp_op_init(s, op);
	ret = check_op(op);
	if (ret)
		return ret;
	ret = is_ready(s, op) ? 0 : rp_session_ready(s, op, &range, &detail);
	if (ret > 0)
		return accept_failed(s, op, (enum rp_status)ret, detail, range);
	return ret ? ret : accept_ready(s, op);
}
