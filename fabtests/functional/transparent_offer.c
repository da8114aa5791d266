// SPDX-License-Identifier: BSD-2-Clause
/*
 * Compares the attributes that the provider and its base offer, and lists the
 * documented differences.
 */
#define _GNU_SOURCE
/* Newer headers deprecate poll and wait sets, which programs still use. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functional/transparent.h"

#define PLAIN_CAPS (FI_MSG | FI_TAGGED | FI_RMA)

struct fi_info *tp_getinfo(const char *prov, uint64_t caps,
			   enum fi_progress progress)
{
	struct fi_info *h = fi_allocinfo(), *info = NULL;
	int ret;

	if (!h)
		TP_MUST(-FI_ENOMEM);
	h->caps = caps;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->data_progress = progress;
	h->fabric_attr->prov_name = strdup(prov);
	ret = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
			 &info);
	fi_freeinfo(h);
	return ret ? NULL : info;
}

static bool has_cap(const char *prov, uint64_t cap)
{
	struct fi_info *i =
		tp_getinfo(prov, PLAIN_CAPS | cap, FI_PROGRESS_UNSPEC);
	bool yes = i;

	fi_freeinfo(i);
	return yes;
}

uint64_t tp_wanted_caps(const struct tp_features *f)
{
	return PLAIN_CAPS | (f->atomic ? FI_ATOMIC : 0) |
	       (f->rma_event ? FI_RMA_EVENT : 0) |
	       (f->direct ? FI_DIRECTED_RECV : 0) |
	       (f->source ? FI_SOURCE : 0) | (f->multi ? FI_MULTI_RECV : 0);
}

static void trace_value(struct tp_trace *t, const char *name, uint64_t value)
{
	tp_saw(t, -1, "%s %#llx", name, (unsigned long long)value);
}

static void say_attributes(struct tp_trace *t, const struct fi_info *i)
{
	const struct fi_domain_attr *d = i->domain_attr;
	const struct fi_ep_attr *e = i->ep_attr;

	trace_value(t, "caps", i->caps);
	trace_value(t, "mode", i->mode);
	trace_value(t, "addr_format", i->addr_format);
	trace_value(t, "tx_attr.caps", i->tx_attr->caps);
	trace_value(t, "tx_attr.msg_order", i->tx_attr->msg_order);
	trace_value(t, "tx_attr.comp_order", i->tx_attr->comp_order);
	trace_value(t, "tx_attr.inject_size", i->tx_attr->inject_size);
	trace_value(t, "tx_attr.size", i->tx_attr->size);
	trace_value(t, "tx_attr.iov_limit", i->tx_attr->iov_limit);
	trace_value(t, "tx_attr.rma_iov_limit", i->tx_attr->rma_iov_limit);
	trace_value(t, "rx_attr.caps", i->rx_attr->caps);
	trace_value(t, "rx_attr.msg_order", i->rx_attr->msg_order);
	trace_value(t, "rx_attr.comp_order", i->rx_attr->comp_order);
	trace_value(t, "rx_attr.size", i->rx_attr->size);
	trace_value(t, "rx_attr.iov_limit", i->rx_attr->iov_limit);
	trace_value(t, "ep_attr.type", e->type);
	trace_value(t, "ep_attr.protocol", e->protocol);
	trace_value(t, "ep_attr.max_msg_size", e->max_msg_size);
	trace_value(t, "ep_attr.max_order_raw_size", e->max_order_raw_size);
	trace_value(t, "ep_attr.max_order_war_size", e->max_order_war_size);
	trace_value(t, "ep_attr.max_order_waw_size", e->max_order_waw_size);
	trace_value(t, "ep_attr.mem_tag_format", e->mem_tag_format);
	trace_value(t, "domain_attr.threading", d->threading);
	trace_value(t, "domain_attr.data_progress", d->data_progress);
	trace_value(t, "domain_attr.resource_mgmt", d->resource_mgmt);
	trace_value(t, "domain_attr.av_type", d->av_type);
	trace_value(t, "domain_attr.mr_mode", (uint64_t)d->mr_mode);
	trace_value(t, "domain_attr.mr_key_size", d->mr_key_size);
	trace_value(t, "domain_attr.cq_data_size", d->cq_data_size);
	trace_value(t, "domain_attr.mr_iov_limit", d->mr_iov_limit);
}

static void try_objects(const char *prov, struct tp_features *f,
			struct tp_trace *t)
{
	static const char *const names[] = {
		"fi_cntr_open()",
		"fi_cq_open() with FI_WAIT_FD",
		"fi_poll_open()",
		"fi_wait_open()",
		"fi_av_open() with FI_EVENT",
	};
	struct fi_info *i = tp_getinfo(prov, PLAIN_CAPS, FI_PROGRESS_UNSPEC);
	struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP};
	struct fi_cq_attr cq = {.wait_obj = FI_WAIT_FD,
				.format = FI_CQ_FORMAT_TAGGED};
	struct fi_poll_attr poll = {0};
	struct fi_wait_attr wait = {.wait_obj = FI_WAIT_FD};
	struct fi_av_attr av = {.type = FI_AV_TABLE, .flags = FI_EVENT};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid *fid[5] = {NULL};
	int ret[5];

	if (!i)
		TP_MUST(-FI_ENODATA);
	TP_MUST(fi_fabric(i->fabric_attr, &fabric, NULL));
	TP_MUST(fi_domain(fabric, i, &domain, NULL));
	ret[0] = fi_cntr_open(domain, &cntr, (struct fid_cntr **)&fid[0], NULL);
	ret[1] = fi_cq_open(domain, &cq, (struct fid_cq **)&fid[1], NULL);
	ret[2] = fi_poll_open(domain, &poll, (struct fid_poll **)&fid[2]);
	ret[3] = fi_wait_open(fabric, &wait, (struct fid_wait **)&fid[3]);
	ret[4] = fi_av_open(domain, &av, (struct fid_av **)&fid[4], NULL);
	f->counters = !ret[0];
	f->wait = !ret[1];
	for (int k = 0; k < 5; k++) {
		trace_value(t, names[k], (uint64_t)-ret[k]);
		if (!ret[k])
			fi_close(fid[k]);
	}
	f->inject = i->tx_attr->inject_size;
	f->iov_limit = i->tx_attr->iov_limit;
	f->rma_iov_limit = i->tx_attr->rma_iov_limit;
	say_attributes(t, i);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(i);
}

void tp_offer(const char *prov, struct tp_features *f, struct tp_trace *t)
{
	static const struct {
		uint64_t bit;
		const char *name;
	} caps[] = {
		{FI_ATOMIC, "FI_ATOMIC"},
		{FI_RMA_EVENT, "FI_RMA_EVENT"},
		{FI_DIRECTED_RECV, "FI_DIRECTED_RECV"},
		{FI_SOURCE, "FI_SOURCE"},
		{FI_MULTI_RECV, "FI_MULTI_RECV"},
		{FI_FENCE, "FI_FENCE"},
		{FI_NAMED_RX_CTX, "FI_NAMED_RX_CTX"},
		{FI_TRIGGER, "FI_TRIGGER"},
		{FI_SHARED_AV, "FI_SHARED_AV"},
		{FI_LOCAL_COMM | FI_REMOTE_COMM, "FI_LOCAL_COMM"},
	};
	bool yes[10];

	for (int i = 0; i < 10; i++) {
		yes[i] = has_cap(prov, caps[i].bit);
		trace_value(t, caps[i].name, yes[i]);
	}
	*f = (struct tp_features){.rma_event = yes[1],
				  .direct = yes[2],
				  .source = yes[3],
				  .multi = yes[4]};
	/*
	 * tcp of libfabric 2.1 offers each of these by itself, and not both:
	 * ask for both.
	 */
	f->atomic = yes[0] && has_cap(prov, FI_ATOMIC | tp_wanted_caps(f));
	try_objects(prov, f, t);
}

/*
 * Is this difference documented? Each must be in docs/guarantees.md, "What a
 * program may notice": transparent.sh looks for its name there.
 */
static bool is_documented(const char *name, uint64_t base, uint64_t ours)
{
	if (!strcmp(name, "domain_attr.data_progress"))
		return base == FI_PROGRESS_AUTO && ours == FI_PROGRESS_MANUAL;
	if (!strcmp(name, "fi_av_open() with FI_EVENT"))
		return ours == FI_ENOSYS;
	return false;
}

/*
 * Compare two texts of tp_offer(), whose lines have a number, a name and a
 * value.
 */
bool tp_offers_differ(const char *base, const char *ours)
{
	bool differ = false;

	while (*base || *ours) {
		int a = (int)strcspn(base, "\n"), b = (int)strcspn(ours, "\n");
		const char *x = memrchr(base, ' ', (size_t)a),
			   *y = memrchr(ours, ' ', (size_t)b);
		char name[80];

		if (x && y && x - base == y - ours &&
		    !strncmp(base, ours, (size_t)(x - base))) {
			snprintf(name, sizeof(name), "%.*s",
				 (int)(x - base) - 4, base + 4);
			if ((a == b && !strncmp(base, ours, (size_t)a)) ||
			    is_documented(name, strtoull(x, NULL, 0),
					  strtoull(y, NULL, 0)))
				goto next;
		}
		printf("# base  %.*s\n# rpmem %.*s\n", a, base, b, ours);
		differ = true;
next:
		base += a + !!base[a];
		ours += b + !!ours[b];
	}
	return differ;
}
