// SPDX-License-Identifier: BSD-2-Clause
/* Atomics: the calls that post them, and their execution at the target. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

#define MAX_COUNT 64

/* --- the arithmetic --- */

#define COMMON(type)                                                           \
	case FI_MIN:                                                           \
		d = s < d ? s : d;                                             \
		break;                                                         \
	case FI_MAX:                                                           \
		d = s > d ? s : d;                                             \
		break;                                                         \
	case FI_LOR:                                                           \
		d = (type)(d || s);                                            \
		break;                                                         \
	case FI_LAND:                                                          \
		d = (type)(d && s);                                            \
		break;                                                         \
	case FI_LXOR:                                                          \
		d = (type)(!d != !s);                                          \
		break;                                                         \
	case FI_ATOMIC_WRITE:                                                  \
		d = s;                                                         \
		break;                                                         \
	case FI_CSWAP:                                                         \
		d = c == d ? s : d;                                            \
		break;                                                         \
	case FI_CSWAP_NE:                                                      \
		d = c != d ? s : d;                                            \
		break;                                                         \
	case FI_CSWAP_LE:                                                      \
		d = c <= d ? s : d;                                            \
		break;                                                         \
	case FI_CSWAP_LT:                                                      \
		d = c < d ? s : d;                                             \
		break;                                                         \
	case FI_CSWAP_GE:                                                      \
		d = c >= d ? s : d;                                            \
		break;                                                         \
	case FI_CSWAP_GT:                                                      \
		d = c > d ? s : d;                                             \
		break

/* Integers are computed as uint64_t, where overflow is defined. */
#define INTEGER(name, type)                                                    \
	static void name(enum fi_op op, void *dst, const void *src,            \
			 const void *cmp)                                      \
	{                                                                      \
		type d, s, c;                                                  \
                                                                               \
		memcpy(&d, dst, sizeof(d));                                    \
		memcpy(&s, src, sizeof(s));                                    \
		memcpy(&c, cmp, sizeof(c));                                    \
		switch (op) {                                                  \
			COMMON(type);                                          \
		case FI_SUM:                                                   \
			d = (type)((uint64_t)d + (uint64_t)s);                 \
			break;                                                 \
		case FI_PROD:                                                  \
			d = (type)((uint64_t)d * (uint64_t)s);                 \
			break;                                                 \
		case FI_BOR:                                                   \
			d = (type)(d | s);                                     \
			break;                                                 \
		case FI_BAND:                                                  \
			d = (type)(d & s);                                     \
			break;                                                 \
		case FI_BXOR:                                                  \
			d = (type)(d ^ s);                                     \
			break;                                                 \
		case FI_MSWAP:                                                 \
			d = (type)((s & c) | (d & ~c));                        \
			break;                                                 \
		default:                                                       \
			break;                                                 \
		}                                                              \
		memcpy(dst, &d, sizeof(d));                                    \
	}

#define FLOATING(name, type)                                                   \
	static void name(enum fi_op op, void *dst, const void *src,            \
			 const void *cmp)                                      \
	{                                                                      \
		type d, s, c;                                                  \
                                                                               \
		memcpy(&d, dst, sizeof(d));                                    \
		memcpy(&s, src, sizeof(s));                                    \
		memcpy(&c, cmp, sizeof(c));                                    \
		switch (op) {                                                  \
			COMMON(type);                                          \
		case FI_SUM:                                                   \
			d += s;                                                \
			break;                                                 \
		case FI_PROD:                                                  \
			d *= s;                                                \
			break;                                                 \
		default:                                                       \
			break;                                                 \
		}                                                              \
		memcpy(dst, &d, sizeof(d));                                    \
	}

INTEGER(do_int8, int8_t)
INTEGER(do_uint8, uint8_t)
INTEGER(do_int16, int16_t)
INTEGER(do_uint16, uint16_t)
INTEGER(do_int32, int32_t)
INTEGER(do_uint32, uint32_t)
INTEGER(do_int64, int64_t)
INTEGER(do_uint64, uint64_t)
FLOATING(do_float, float)
FLOATING(do_double, double)

static const struct {
	size_t size;
	void (*apply)(enum fi_op op, void *dst, const void *src,
		      const void *cmp);
} types[] = {
	[FI_INT8] = {sizeof(int8_t), do_int8},
	[FI_UINT8] = {sizeof(uint8_t), do_uint8},
	[FI_INT16] = {sizeof(int16_t), do_int16},
	[FI_UINT16] = {sizeof(uint16_t), do_uint16},
	[FI_INT32] = {sizeof(int32_t), do_int32},
	[FI_UINT32] = {sizeof(uint32_t), do_uint32},
	[FI_INT64] = {sizeof(int64_t), do_int64},
	[FI_UINT64] = {sizeof(uint64_t), do_uint64},
	[FI_FLOAT] = {sizeof(float), do_float},
	[FI_DOUBLE] = {sizeof(double), do_double},
};

/* Bytes of an operand; 0: this atomic is not supported. */
static size_t size_of(enum fi_datatype type, enum fi_op op)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR ||
		    op == FI_MSWAP;

	if ((size_t)type >= sizeof(types) / sizeof(types[0]) || op > FI_MSWAP ||
	    (bits && type >= FI_FLOAT))
		return 0;
	return types[type].size;
}

/* --- at the target --- */

/* Place all pending pieces of the message's queue pair. */
static void place_pending(struct ps_machine *m, const struct ps_msg *msg)
{
	model_dma_see(m->model, model_dma_completion(m->model, msg->qp));
}

/*
 * Execute an atomic. A NIC executes atomics one by one, so the next one must
 * read what this one has stored, whatever else is in flight.
 */
void ps_atomic_run(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		   char *const where[PS_IOV])
{
	size_t size = types[msg->datatype].size, len = 0, done = 0;
	char *old, value[sizeof(uint64_t)];

	for (size_t i = 0; i < msg->nrma; i++)
		len += msg->rma[i].len;
	old = malloc(len + 1);
	if (!old)
		abort(); /* out of memory: abort the test */
	if (nic)
		place_pending(m, msg);
	for (size_t i = 0; i < msg->nrma; i++) {
		for (size_t at = 0; at < msg->rma[i].len; at += size) {
			ps_read_memory(m, msg, nic, where[i] + at, old + done,
				       size);
			memcpy(value, old + done, size);
			if (msg->atomic != FI_ATOMIC_READ) {
				/* Without compare values use offset 0. */
				size_t cmp = msg->compare < msg->len
						     ? msg->compare
						     : 0;

				types[msg->datatype].apply(
					msg->atomic, value, msg->payload + done,
					msg->payload + cmp + done);
				ps_write_memory(m, msg, nic, where[i] + at,
						value, size);
			}
			done += size;
		}
	}
	if (nic)
		place_pending(m, msg);
	if (msg->fetch)
		ps_reply(msg, PMSIM_RESPONSE, 0, old, len);
	else
		ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
	free(old);
}

/* --- at the initiator --- */

/* Convert fi_ioc to iovec: element counts to lengths. */
static int ioc_to_iov(const struct fi_ioc *ioc, size_t n, size_t size,
		      struct iovec iov[PS_IOV])
{
	if (n > PS_IOV)
		return -FI_EINVAL;
	for (size_t i = 0; i < n; i++) {
		iov[i].iov_base = ioc[i].addr;
		iov[i].iov_len = ioc[i].count * size;
	}
	return 0;
}

static ssize_t post(struct fid_ep *fid, const struct fi_msg_atomic *msg,
		    const struct fi_ioc *comparev, size_t ncompare,
		    const struct fi_ioc *resultv, size_t nresult,
		    uint64_t flags, bool silent)
{
	size_t size = size_of(msg->datatype, msg->op), count = 0;
	struct iovec iov[PS_IOV], compare[PS_IOV], result[PS_IOV];
	struct fi_rma_iov rma[PS_IOV];
	bool swap = msg->op >= FI_CSWAP;
	struct ps_tx tx = {
		.type = PMSIM_ATOMIC,
		.event = nresult ? PS_EV_READ : PS_EV_WRITE,
		.dest = msg->addr,
		.iov = iov,
		.niov = msg->op == FI_ATOMIC_READ ? 0 : msg->iov_count,
		.compare = compare,
		.ncompare = ncompare,
		.result = result,
		.nresult = nresult,
		.rma = rma,
		.nrma = msg->rma_iov_count,
		.datatype = msg->datatype,
		.atomic = msg->op,
		.context = msg->context,
		.flags = flags,
		.cq_flags = FI_ATOMIC | (nresult ? FI_READ : FI_WRITE),
		.silent = silent,
	};
	int ret;

	if (!size)
		return -FI_EOPNOTSUPP;
	if (!tx.nrma || tx.nrma > PS_IOV || swap != !!ncompare ||
	    (msg->op == FI_ATOMIC_READ && !nresult) ||
	    (flags & FI_REMOTE_CQ_DATA))
		return -FI_EINVAL;
	ret = ioc_to_iov(msg->msg_iov, tx.niov, size, iov);
	if (!ret)
		ret = ioc_to_iov(comparev, ncompare, size, compare);
	if (!ret)
		ret = ioc_to_iov(resultv, nresult, size, result);
	if (ret)
		return ret;
	for (size_t i = 0; i < tx.nrma; i++) {
		count += msg->rma_iov[i].count;
		rma[i].addr = msg->rma_iov[i].addr;
		rma[i].len = msg->rma_iov[i].count * size;
		rma[i].key = msg->rma_iov[i].key;
	}
	if (!count || count > MAX_COUNT)
		return -FI_EINVAL;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

/* The arguments of a call without a message struct, as a message. */
struct atomic_message {
	struct fi_rma_ioc rma;
	struct fi_msg_atomic msg;
};

static void make_message(struct atomic_message *p, const struct fi_ioc *iov,
			 size_t n, fi_addr_t dest, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op, void *context)
{
	p->rma = (struct fi_rma_ioc){.addr = addr, .key = key};
	for (size_t i = 0; i < n; i++)
		p->rma.count += iov[i].count;
	p->msg = (struct fi_msg_atomic){
		.msg_iov = iov,
		.iov_count = n,
		.addr = dest,
		.rma_iov = &p->rma,
		.rma_iov_count = 1,
		.datatype = type,
		.op = op,
		.context = context,
	};
}

static ssize_t at_writev(struct fid_ep *fid, const struct fi_ioc *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 uint64_t addr, uint64_t key, enum fi_datatype type,
			 enum fi_op op, void *context)
{
	struct atomic_message p;

	make_message(&p, iov, count, dest, addr, key, type, op, context);
	return post(fid, &p.msg, NULL, 0, NULL, 0, ps_ep_of(fid)->tx_flags,
		    false);
}

static ssize_t at_write(struct fid_ep *fid, const void *buf, size_t count,
			void *desc, fi_addr_t dest, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = {.addr = (void *)buf, .count = count};

	return at_writev(fid, &iov, &desc, 1, dest, addr, key, type, op,
			 context);
}

static ssize_t at_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
			   uint64_t flags)
{
	return post(fid, msg, NULL, 0, NULL, 0, flags, false);
}

static ssize_t at_inject(struct fid_ep *fid, const void *buf, size_t count,
			 fi_addr_t dest, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op)
{
	struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct atomic_message p;

	make_message(&p, &iov, 1, dest, addr, key, type, op, NULL);
	return post(fid, &p.msg, NULL, 0, NULL, 0, FI_INJECT, true);
}

static ssize_t at_readwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct atomic_message p;

	if (!nresult)
		return -FI_EINVAL;
	/* FI_ATOMIC_READ has results, but no operand. */
	make_message(&p, op == FI_ATOMIC_READ ? resultv : iov,
		     op == FI_ATOMIC_READ ? nresult : count, dest, addr, key,
		     type, op, context);
	return post(fid, &p.msg, NULL, 0, resultv, nresult,
		    ps_ep_of(fid)->tx_flags, false);
}

static ssize_t at_readwrite(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, void *result, void *result_desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct fi_ioc res = {.addr = result, .count = count};

	return at_readwritev(fid, &iov, &desc, 1, &res, &result_desc, 1, dest,
			     addr, key, type, op, context);
}

static ssize_t at_readwritemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg,
			       struct fi_ioc *resultv, void **result_desc,
			       size_t nresult, uint64_t flags)
{
	if (!nresult)
		return -FI_EINVAL;
	return post(fid, msg, NULL, 0, resultv, nresult, flags, false);
}

static ssize_t at_compwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count,
			     const struct fi_ioc *comparev, void **compare_desc,
			     size_t ncompare, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct atomic_message p;

	if (!nresult || !ncompare)
		return -FI_EINVAL;
	make_message(&p, iov, count, dest, addr, key, type, op, context);
	return post(fid, &p.msg, comparev, ncompare, resultv, nresult,
		    ps_ep_of(fid)->tx_flags, false);
}

static ssize_t at_compwrite(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, const void *compare, void *compare_desc,
			    void *result, void *result_desc, fi_addr_t dest,
			    uint64_t addr, uint64_t key, enum fi_datatype type,
			    enum fi_op op, void *context)
{
	struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct fi_ioc cmp = {.addr = (void *)compare, .count = count};
	struct fi_ioc res = {.addr = result, .count = count};

	return at_compwritev(fid, &iov, &desc, 1, &cmp, &compare_desc, 1, &res,
			     &result_desc, 1, dest, addr, key, type, op,
			     context);
}

static ssize_t at_compwritemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg,
			       const struct fi_ioc *comparev,
			       void **compare_desc, size_t ncompare,
			       struct fi_ioc *resultv, void **result_desc,
			       size_t nresult, uint64_t flags)
{
	if (!nresult || !ncompare)
		return -FI_EINVAL;
	return post(fid, msg, comparev, ncompare, resultv, nresult, flags,
		    false);
}

static int validate_op(enum fi_datatype type, enum fi_op op, bool fits,
		       size_t *count)
{
	if (!fits || !size_of(type, op))
		return -FI_EOPNOTSUPP;
	*count = MAX_COUNT;
	return 0;
}

static int at_writevalid(struct fid_ep *fid, enum fi_datatype type,
			 enum fi_op op, size_t *count)
{
	return validate_op(type, op, op < FI_CSWAP && op != FI_ATOMIC_READ,
			   count);
}

static int at_readwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return validate_op(type, op, op < FI_CSWAP, count);
}

static int at_compwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return validate_op(type, op, op >= FI_CSWAP, count);
}

int ps_atomic_query(struct fid_domain *domain, enum fi_datatype type,
		    enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	bool fits = op >= FI_CSWAP	   ? flags & FI_COMPARE_ATOMIC
		    : op == FI_ATOMIC_READ ? flags & FI_FETCH_ATOMIC
					   : !(flags & FI_COMPARE_ATOMIC);
	int ret = validate_op(type, op, fits, &attr->count);

	if (!ret)
		attr->size = size_of(type, op);
	return ret;
}

struct fi_ops_atomic ps_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic),
	.write = at_write,
	.writev = at_writev,
	.writemsg = at_writemsg,
	.inject = at_inject,
	.readwrite = at_readwrite,
	.readwritev = at_readwritev,
	.readwritemsg = at_readwritemsg,
	.compwrite = at_compwrite,
	.compwritev = at_compwritev,
	.compwritemsg = at_compwritemsg,
	.writevalid = at_writevalid,
	.readwritevalid = at_readwritevalid,
	.compwritevalid = at_compwritevalid,
};
