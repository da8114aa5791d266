// SPDX-License-Identifier: BSD-2-Clause
/* Counters; reading one makes progress for its program. */
#include <stdlib.h>

#include "pmsim/pmsim_int.h"

static struct ps_cntr *cntr_of(struct fid_cntr *fid)
{
	return ps_container_of(fid, struct ps_cntr, fid);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	ps_progress(cntr_of(fid)->dom);
	return cntr_of(fid)->value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	ps_progress(cntr_of(fid)->dom);
	return cntr_of(fid)->errors;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->value += value;
	return 0;
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->value = value;
	return 0;
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->errors += value;
	return 0;
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->errors = value;
	return 0;
}

/* Return at once: nothing arrives while the only thread waits. */
static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	return cntr_read(fid) >= threshold ? 0 : -FI_ETIMEDOUT;
}

static int cntr_close(struct fid *fid)
{
	struct ps_cntr *c = ps_container_of(fid, struct ps_cntr, fid.fid);

	if (c->refs)
		return -FI_EBUSY;
	c->dom->refs--;
	free(c);
	return 0;
}

static struct fi_ops cntr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = ps_no_bind,
	.control = ps_no_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

int ps_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **out, void *context)
{
	struct ps_dom *dom = ps_container_of(domain, struct ps_dom, fid);
	struct ps_cntr *c;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP ||
		     (attr->wait_obj != FI_WAIT_NONE &&
		      attr->wait_obj != FI_WAIT_UNSPEC)))
		return -FI_ENOSYS;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->dom = dom;
	dom->refs++;
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &cntr_fid_ops;
	c->fid.ops = &cntr_ops;
	*out = &c->fid;
	return 0;
}
