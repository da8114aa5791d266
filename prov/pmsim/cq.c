// SPDX-License-Identifier: BSD-2-Clause
/* Completion queues; polling one makes progress for its program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

/* A queued entry; every format is a prefix of fi_cq_err_entry. */
struct ps_cqe {
	STAILQ_ENTRY(ps_cqe) link;
	struct fi_cq_err_entry e;
	fi_addr_t src;
};

static size_t format_size(enum fi_cq_format f)
{
	switch (f) {
	case FI_CQ_FORMAT_UNSPEC:
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return 0;
	}
}

void ps_cq_push(struct ps_cq *cq, const struct fi_cq_err_entry *e,
		fi_addr_t src)
{
	struct ps_cqe *q = malloc(sizeof(*q));

	if (!q)
		abort(); /* out of memory: abort the test */
	q->e = *e;
	q->src = src;
	STAILQ_INSERT_TAIL(&cq->queue, q, link);
}

void ps_cq_clear(struct ps_cq *cq)
{
	struct ps_cqe *q;

	while (cq && (q = STAILQ_FIRST(&cq->queue))) {
		STAILQ_REMOVE_HEAD(&cq->queue, link);
		free(q);
	}
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	struct ps_cq *cq = ps_container_of(fid, struct ps_cq, fid);
	struct ps_cqe *q;
	size_t n = 0;

	/* A killed process only gets canceled entries, by readerr. */
	if (cq->dom->dead)
		return STAILQ_EMPTY(&cq->queue) ? -FI_EAGAIN : -FI_EAVAIL;
	ps_progress(cq->dom);
	while (n < count && (q = STAILQ_FIRST(&cq->queue)) && !q->e.err) {
		memcpy((char *)buf + n * cq->size, &q->e, cq->size);
		if (src)
			src[n] = q->src;
		n++;
		STAILQ_REMOVE_HEAD(&cq->queue, link);
		free(q);
	}
	if (n)
		return (ssize_t)n;
	q = STAILQ_FIRST(&cq->queue);
	if (!q)
		return -FI_EAGAIN;
	return q->e.err ? -FI_EAVAIL : 0;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf,
			  uint64_t flags)
{
	struct ps_cq *cq = ps_container_of(fid, struct ps_cq, fid);
	struct ps_cqe *q = STAILQ_FIRST(&cq->queue);

	if (!q || (!q->e.err && !cq->dom->dead))
		return -FI_EAGAIN;
	if (!q->e.err)
		q->e.err = q->e.prov_errno = FI_ECANCELED;
	/* err_data stays the caller's buffer; it gets no data. */
	q->e.err_data = buf->err_data;
	memcpy(buf, &q->e, sizeof(*buf));
	STAILQ_REMOVE_HEAD(&cq->queue, link);
	free(q);
	return 1;
}

/* Return at once: nothing arrives while the only thread waits. */
static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count,
			const void *cond, int timeout)
{
	return cq_read(fid, buf, count);
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count,
			    fi_addr_t *src, const void *cond, int timeout)
{
	return cq_readfrom(fid, buf, count, src);
}

static int cq_signal(struct fid_cq *fid)
{
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	if (!buf || !len)
		return fi_strerror(prov_errno);
	snprintf(buf, len, "%s", fi_strerror(prov_errno));
	return buf;
}

static int cq_close(struct fid *fid)
{
	struct ps_cq *cq = ps_container_of(fid, struct ps_cq, fid.fid);

	if (cq->refs)
		return -FI_EBUSY;
	ps_cq_clear(cq);
	cq->dom->refs--;
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	if (command == FI_GETWAIT && ps_sim.cfg.offers_msg) {
		*(int *)arg = ps_wait_fd(1);
		return 0;
	}
	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg = FI_WAIT_NONE;
		return 0;
	}
	return command == FI_GETWAIT ? -FI_ENODATA : -FI_ENOSYS;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = ps_no_bind,
	.control = cq_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

bool ps_wait_is_supported(enum fi_wait_obj wait)
{
	return wait == FI_WAIT_NONE || wait == FI_WAIT_UNSPEC ||
	       (wait == FI_WAIT_FD && ps_sim.cfg.offers_msg);
}

int ps_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **out, void *context)
{
	struct ps_dom *dom = ps_container_of(domain, struct ps_dom, fid);
	struct ps_cq *cq;

	if (attr && !ps_wait_is_supported(attr->wait_obj))
		return -FI_ENOSYS;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->size = format_size(attr ? attr->format : FI_CQ_FORMAT_UNSPEC);
	if (!cq->size) {
		free(cq);
		return -FI_EINVAL;
	}
	cq->dom = dom;
	dom->refs++;
	STAILQ_INIT(&cq->queue);
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	*out = &cq->fid;
	return 0;
}
