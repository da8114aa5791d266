// SPDX-License-Identifier: BSD-2-Clause
/* Event queues of the base; the fids in events become the program's. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"

/*
 * The program gets the base's queue itself: passthrough endpoints are the
 * base's objects, and the base binds only its own queues. The queue's read
 * functions are replaced by those below, in a copy of its tables.
 */
struct rp_eq {
	struct fi_ops_eq ops; /* copy of base_ops, reads replaced */
	struct fi_ops fid_ops;
	const struct fi_ops_eq *base_ops;
	const struct fi_ops *base_fid_ops;
};

/* FI_EP_MSG endpoints and listeners of this process: a short list. */
static LIST_HEAD(, rp_eq_fid_pair) fid_pairs = LIST_HEAD_INITIALIZER(fid_pairs);
static pthread_mutex_t fid_pairs_lock = PTHREAD_MUTEX_INITIALIZER;

void rp_eq_add_fid_pair(struct rp_eq_fid_pair *n, struct fid *base,
			struct fid *program_fid)
{
	n->base = base;
	n->program_fid = program_fid;
	pthread_mutex_lock(&fid_pairs_lock);
	LIST_INSERT_HEAD(&fid_pairs, n, link);
	pthread_mutex_unlock(&fid_pairs_lock);
}

void rp_eq_del_fid_pair(struct rp_eq_fid_pair *n)
{
	if (!n->base)
		return;
	pthread_mutex_lock(&fid_pairs_lock);
	LIST_REMOVE(n, link);
	pthread_mutex_unlock(&fid_pairs_lock);
	n->base = NULL;
}

/* With fid_pairs_lock: get the program's fid; NULL: not of ofi_rpmem. */
static struct fid *find_program_fid(const struct fid *base)
{
	struct rp_eq_fid_pair *n;

	LIST_FOREACH (n, &fid_pairs, link)
		if (n->base == base)
			return n->program_fid;
	return NULL;
}

static struct rp_eq *eq_of(struct fid_eq *fid)
{
	return rp_container_of(fid->ops, struct rp_eq, ops);
}

#define SWAP(a, b)                                                             \
	do {                                                                   \
		__typeof__(a) was = (a);                                       \
		(a) = (b);                                                     \
		(b) = was;                                                     \
	} while (0)

/*
 * Convert the fi_info i of a connection request, because an ofi_rpmem endpoint
 * will accept it: i becomes a copy of the listener's (given), with the handle,
 * device name and addresses of the request.
 */
static int convert_request_info(const struct fi_info *given, struct fi_info *i)
{
	const char *name = i->fabric_attr->prov_name;
	struct fi_info *ours;

	/*
	 * A read with FI_PEEK may have converted this entry before: then it has
	 * the listener's provider name. Entries of sockets have no name.
	 */
	if (name && !strcmp(name, given->fabric_attr->prov_name))
		return 0;
	ours = fi_dupinfo(given);
	if (!ours)
		return -FI_ENOMEM;
	SWAP(*i, *ours);
	SWAP(i->handle, ours->handle);
	SWAP(i->domain_attr->name, ours->domain_attr->name);
	SWAP(i->dest_addr, ours->dest_addr);
	SWAP(i->dest_addrlen, ours->dest_addrlen);
	SWAP(i->src_addr, ours->src_addr);
	SWAP(i->src_addrlen, ours->src_addrlen);
	ours->next = NULL;
	fi_freeinfo(ours);
	return 0;
}

static void translate_fid(uint32_t event, struct fi_eq_cm_entry *e)
{
	struct fid *ours;

	pthread_mutex_lock(&fid_pairs_lock);
	ours = find_program_fid(e->fid);
	if (ours && ours->fclass == FI_CLASS_PEP) {
		const struct rp_pep *pep =
			rp_container_of(ours, struct rp_pep, fid.fid);

		if (event == FI_CONNREQ &&
		    convert_request_info(pep->info, e->info))
			RP_WARN(EQ, "no memory: this connection will be the "
				    "base's own\n");
	} else if (ours) {
		rp_cm_set_connected(rp_ep_of(ours), event == FI_CONNECTED,
				    ECONNRESET);
	}
	if (ours)
		e->fid = ours;
	pthread_mutex_unlock(&fid_pairs_lock);
}

static ssize_t translate_event(uint32_t *event, void *buf, ssize_t n)
{
	/* Some bases implement readerr() by read() with event NULL. */
	if (event && n >= (ssize_t)sizeof(struct fi_eq_cm_entry) &&
	    (*event == FI_CONNREQ || *event == FI_CONNECTED ||
	     *event == FI_SHUTDOWN))
		translate_fid(*event, buf);
	return n;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	return translate_event(
		event, buf,
		eq_of(fid)->base_ops->read(fid, event, buf, len, flags));
}

/* Some bases' sread() calls read(): a second translation changes nothing. */
static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf,
			size_t len, int timeout, uint64_t flags)
{
	return translate_event(event, buf,
			       eq_of(fid)->base_ops->sread(fid, event, buf, len,
							   timeout, flags));
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	ssize_t ret = eq_of(fid)->base_ops->readerr(fid, buf, flags);
	struct fid *ours;

	if (ret <= 0 || !buf->fid)
		return ret;
	pthread_mutex_lock(&fid_pairs_lock);
	ours = find_program_fid(buf->fid);
	if (ours && ours->fclass == FI_CLASS_EP)
		rp_cm_set_connected(rp_ep_of(ours), false, ECONNRESET);
	if (ours)
		buf->fid = ours;
	pthread_mutex_unlock(&fid_pairs_lock);
	return ret;
}

static int eq_close(struct fid *fid)
{
	struct rp_eq *eq = rp_container_of(fid->ops, struct rp_eq, fid_ops);
	int ret = eq->base_fid_ops->close(fid);

	if (!ret)
		free(eq);
	return ret;
}

int rp_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
	       struct fid_eq **out, void *context)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	struct rp_eq *eq = calloc(1, sizeof(*eq));
	int ret = eq ? fi_eq_open(fab->direct, attr, out, context) : -FI_ENOMEM;

	if (ret) {
		free(eq);
		return ret;
	}
	eq->base_ops = (*out)->ops;
	eq->base_fid_ops = (*out)->fid.ops;
	eq->ops = *(*out)->ops;
	eq->ops.size = sizeof(eq->ops);
	eq->ops.read = eq_read;
	eq->ops.sread = eq_sread;
	eq->ops.readerr = eq_readerr;
	eq->fid_ops = *(*out)->fid.ops;
	eq->fid_ops.size = sizeof(eq->fid_ops);
	eq->fid_ops.close = eq_close;
	(*out)->ops = &eq->ops;
	(*out)->fid.ops = &eq->fid_ops;
	return 0;
}
