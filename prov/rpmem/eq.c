// SPDX-License-Identifier: BSD-2-Clause
/* Event queues: the base's own, with what is read from them put in our terms.
 */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"

/*
 * The base's objects are bound to it as they are, so it has to be the base's;
 * but connected endpoints and those who ask for one are named in its entries.
 */
struct rp_eq {
	struct fi_ops_eq ops; /* the base's but for what follows */
	struct fi_ops fid_ops;
	const struct fi_ops_eq *base_ops;
	const struct fi_ops *base_fid_ops;
	struct rp_fabric *fab;
};

static struct rp_eq *eq_of(struct fid_eq *fid)
{
	return rp_container_of(fid->ops, struct rp_eq, ops);
}

/*
 * Who connects to a passive endpoint of ours may be given an endpoint of ours.
 * The entry itself is changed, as it is seen again after FI_PEEK.
 */
static int to_ours(const struct fi_info *given, struct fi_info *i)
{
	struct fi_info *ours, was = *i;
	char *name;

	/* It was seen before. */
	if (!strcmp(i->fabric_attr->prov_name, given->fabric_attr->prov_name))
		return 0;
	ours = fi_dupinfo(given);
	if (!ours)
		return -FI_ENOMEM;
	*i = *ours;
	*ours = was;
	i->next = NULL;
	i->handle = was.handle;
	/* Who listens on any device is asked on one. */
	name = i->domain_attr->name;
	i->domain_attr->name = ours->domain_attr->name;
	ours->domain_attr->name = name;
	free(i->dest_addr);
	i->dest_addr = was.dest_addr;
	i->dest_addrlen = was.dest_addrlen;
	free(i->src_addr);
	i->src_addr = was.src_addr;
	i->src_addrlen = was.src_addrlen;
	ours->handle = NULL;
	ours->dest_addr = NULL;
	ours->src_addr = NULL;
	ours->next = NULL;
	fi_freeinfo(ours);
	return 0;
}

/* With fab->cm_lock; card: that came with it, or NULL. */
static void translate(struct rp_fabric *fab, uint32_t event,
		      struct fi_eq_cm_entry *e,
		      const struct rp_mailbox_card *card)
{
	const struct fi_info *given;
	struct rp_ep *ep;

	switch (event) {
	case FI_CONNREQ:
		given = rp_pep_info(e->fid);
		if (given && fab->cards &&
		    rp_asked_keep(fab, e->info->handle, card))
			RP_WARN(EQ, "no memory: commits over this connection "
				    "will be refused\n");
		if (given && to_ours(given, e->info))
			RP_WARN(EQ, "no memory: this connection will be the "
				    "base's own\n");
		break;
	case FI_CONNECTED:
	case FI_SHUTDOWN:
		ep = rp_cm_find(fab, e->fid);
		if (!ep)
			break;
		e->fid = &ep->fid.fid;
		rp_cm_event(ep, event, card);
		break;
	default:
		break;
	}
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	struct rp_eq *eq = eq_of(fid);
	ssize_t ret;

	/* A connection is not made before connect() has prepared for it. */
	pthread_mutex_lock(&eq->fab->cm_lock);
	ret = eq->base_ops->read(fid, event, buf, len, flags);
	/* readerr() of the base comes here as well, and wants no event. */
	if (event && ret >= (ssize_t)sizeof(struct fi_eq_cm_entry))
		translate(eq->fab, *event, buf, NULL);
	pthread_mutex_unlock(&eq->fab->cm_lock);
	return ret;
}

/* The most that comes with a connection, of any base: what a u8 counts. */
union rp_eq_entry {
	struct fi_eq_cm_entry cm;
	uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 256];
};

/* Is what comes with this event, in part, for us? */
static bool has_card(struct rp_fabric *fab, uint32_t event,
		     const struct fid *fid)
{
	return (event == FI_CONNREQ && rp_pep_info(fid)) ||
	       (event == FI_CONNECTED && rp_cm_find(fab, fid));
}

/*
 * With fab->cm_lock: n bytes that the base gave, as the program gets them: its
 * peer's bytes, without the card behind them.
 */
static ssize_t give(struct rp_eq *eq, uint32_t event, union rp_eq_entry *e,
		    ssize_t n, void *buf, size_t len)
{
	struct rp_mailbox_card card, *shown = NULL;
	size_t said;

	if (n >= (ssize_t)sizeof(e->cm)) {
		said = (size_t)n - sizeof(e->cm);
		if (has_card(eq->fab, event, e->cm.fid) &&
		    rp_mailbox_card_get(e->cm.data, &said, &card))
			shown = &card;
		n = (ssize_t)(sizeof(e->cm) + said);
		translate(eq->fab, event, &e->cm, shown);
	}
	/* As the base cuts it off where there is no room. */
	if ((size_t)n > len)
		n = (ssize_t)len;
	memcpy(buf, e, (size_t)n);
	return n;
}

static ssize_t eq_read_told(struct fid_eq *fid, uint32_t *event, void *buf,
			    size_t len, uint64_t flags)
{
	struct rp_eq *eq = eq_of(fid);
	union rp_eq_entry e;
	ssize_t ret;

	if (len < sizeof(e.cm))
		return -FI_ETOOSMALL;
	pthread_mutex_lock(&eq->fab->cm_lock);
	ret = eq->base_ops->read(fid, event, &e, sizeof(e), flags);
	if (ret > 0)
		ret = give(eq, *event, &e, ret, buf, len);
	pthread_mutex_unlock(&eq->fab->cm_lock);
	return ret;
}

/*
 * verbs sleeps without coming by our read(). Nobody who connects is overtaken:
 * its mailbox is there before the base moves at all.
 */
static ssize_t eq_sread_told(struct fid_eq *fid, uint32_t *event, void *buf,
			     size_t len, int timeout, uint64_t flags)
{
	struct rp_eq *eq = eq_of(fid);
	union rp_eq_entry e;
	ssize_t ret;

	if (len < sizeof(e.cm))
		return -FI_ETOOSMALL;
	ret = eq->base_ops->sread(fid, event, &e, sizeof(e), timeout, flags);
	if (ret <= 0)
		return ret;
	pthread_mutex_lock(&eq->fab->cm_lock);
	ret = give(eq, *event, &e, ret, buf, len);
	pthread_mutex_unlock(&eq->fab->cm_lock);
	return ret;
}

bool rp_eq_has_end(struct fid_eq *fid, const struct fid *base)
{
	union rp_eq_entry e;
	uint32_t event = 0;
	ssize_t n;

	/* The lock of the queue is the base's own affair. */
	if (!fid || fid->ops->read != eq_read_told)
		return false;
	n = eq_of(fid)->base_ops->read(fid, &event, &e, sizeof(e), FI_PEEK);
	return n >= (ssize_t)sizeof(e.cm) && event == FI_SHUTDOWN &&
	       e.cm.fid == base;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	struct rp_eq *eq = eq_of(fid);
	struct rp_ep *ep;
	ssize_t ret;

	ret = eq->base_ops->readerr(fid, buf, flags);
	pthread_mutex_lock(&eq->fab->cm_lock);
	ep = ret > 0 && buf->fid ? rp_cm_find(eq->fab, buf->fid) : NULL;
	if (ep) {
		buf->fid = &ep->fid.fid;
		rp_cm_event(ep, FI_SHUTDOWN, NULL);
	}
	pthread_mutex_unlock(&eq->fab->cm_lock);
	return ret;
}

static int eq_close(struct fid *fid)
{
	struct rp_eq *eq = rp_container_of((struct fi_ops *)fid->ops,
					   struct rp_eq, fid_ops);
	int ret = eq->base_fid_ops->close(fid);

	if (!ret)
		free(eq);
	return ret;
}

int rp_eq_hook(struct rp_fabric *fab, struct fid_eq *fid)
{
	struct rp_eq *eq = calloc(1, sizeof(*eq));

	if (!eq)
		return -FI_ENOMEM;
	eq->fab = fab;
	eq->base_ops = fid->ops;
	eq->base_fid_ops = fid->fid.ops;
	/* sread() of the base is a read and a sleep, in turn. */
	eq->ops = *fid->ops;
	eq->ops.size = sizeof(eq->ops);
	eq->ops.read = eq_read;
	eq->ops.readerr = eq_readerr;
	if (fab->cards) {
		eq->ops.read = eq_read_told;
		eq->ops.sread = eq_sread_told;
	}
	eq->fid_ops = *fid->fid.ops;
	eq->fid_ops.size = sizeof(eq->fid_ops);
	eq->fid_ops.close = eq_close;
	fid->ops = &eq->ops;
	fid->fid.ops = &eq->fid_ops;
	return 0;
}
