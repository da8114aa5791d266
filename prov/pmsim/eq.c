// SPDX-License-Identifier: BSD-2-Clause
/* Event queues: events of connected endpoints. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pmsim/pmsim_int.h"

/* Descriptors for layers that may sleep; never readable. */
static int idle_fds[2] = {-1, -1};

int ps_wait_fd(unsigned int i)
{
	if (idle_fds[i] < 0)
		idle_fds[i] = eventfd(0, EFD_CLOEXEC);
	return idle_fds[i];
}

__attribute__((destructor)) static void fini(void)
{
	for (int i = 0; i < 2; i++)
		if (idle_fds[i] >= 0)
			close(idle_fds[i]);
}

struct ps_eqe {
	STAILQ_ENTRY(ps_eqe) link;
	uint32_t event;
	int err; /* 0: a success */
	struct fid *fid;
	struct fi_info *info;
	size_t len;
	uint8_t data[PS_CM_DATA];
};

void ps_eq_push(struct ps_eq *eq, uint32_t event, int err, struct fid *fid,
		struct fi_info *info, const void *data, size_t len)
{
	struct ps_eqe *e = calloc(1, sizeof(*e));

	if (!e)
		abort(); /* out of memory: abort the test */
	e->event = event;
	e->err = err;
	e->fid = fid;
	e->info = info;
	e->len = len;
	if (len)
		memcpy(e->data, data, len);
	STAILQ_INSERT_TAIL(&eq->queue, e, link);
	eq->n++;
	eq->nshut += event == FI_SHUTDOWN;
}

static void drop_first(struct ps_eq *eq, bool read)
{
	struct ps_eqe *e = STAILQ_FIRST(&eq->queue);

	STAILQ_REMOVE_HEAD(&eq->queue, link);
	eq->n--;
	eq->nshut -= e->event == FI_SHUTDOWN;
	if (e->info && !read) {
		ps_req_drop(e->info->handle, 0);
		fi_freeinfo(e->info);
	}
	free(e);
}

void ps_eq_forget(struct ps_eq *eq, const struct fid *fid)
{
	struct ps_eqe *e, *next;

	for (e = STAILQ_FIRST(&eq->queue); e; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->fid != fid)
			continue;
		STAILQ_REMOVE(&eq->queue, e, ps_eqe, link);
		STAILQ_INSERT_HEAD(&eq->queue, e, link);
		drop_first(eq, false);
	}
}

static struct ps_eq *eq_of(struct fid *fid)
{
	return ps_container_of(fid, struct ps_eq, fid.fid);
}

static int eq_close(struct fid *fid)
{
	struct ps_eq *eq = eq_of(fid);

	if (eq->refs)
		return -FI_EBUSY;
	while (!STAILQ_EMPTY(&eq->queue))
		drop_first(eq, false);
	if (eq->machine)
		LIST_REMOVE(eq, link);
	eq->fabric->refs--;
	free(eq);
	return 0;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	struct ps_eq *eq = eq_of(&fid->fid);
	struct ps_eqe *e = STAILQ_FIRST(&eq->queue);
	struct fi_eq_cm_entry *cm = buf;
	ssize_t n;

	if (!e || eq->dead)
		return -FI_EAGAIN;
	if (e->err)
		return -FI_EAVAIL;
	n = (ssize_t)(sizeof(*cm) + e->len);
	if (len < (size_t)n)
		return -FI_ETOOSMALL;
	*event = e->event;
	cm->fid = e->fid;
	cm->info = e->info;
	memcpy(cm->data, e->data, e->len);
	if (!(flags & FI_PEEK))
		drop_first(eq, true);
	return n;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	struct ps_eq *eq = eq_of(&fid->fid);
	struct ps_eqe *e = STAILQ_FIRST(&eq->queue);

	if (!e || eq->dead || !e->err)
		return -FI_EAGAIN;
	if (buf->err_data_size < e->len)
		e->len = buf->err_data_size;
	if (e->len)
		memcpy(buf->err_data, e->data, e->len);
	*buf = (struct fi_eq_err_entry){
		.fid = e->fid,
		.context = e->fid->context,
		.err = e->err,
		.prov_errno = e->err,
		.err_data = e->len ? buf->err_data : NULL,
		.err_data_size = e->len,
	};
	drop_first(eq, true);
	return sizeof(*buf);
}

static ssize_t eq_write(struct fid_eq *eq, uint32_t event, const void *buf,
			size_t len, uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t eq_sread(struct fid_eq *eq, uint32_t *event, void *buf,
			size_t len, int timeout, uint64_t flags)
{
	return eq_read(eq, event, buf, len, flags);
}

static const char *eq_strerror(struct fid_eq *eq, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	return fi_strerror(prov_errno);
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	if (command != FI_GETWAIT || !ps_sim.cfg.offers_msg)
		return -FI_ENOSYS;
	*(int *)arg = ps_wait_fd(0);
	return 0;
}

static struct fi_ops eq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = ps_no_bind,
	.control = eq_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

int ps_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
	       struct fid_eq **out, void *context)
{
	struct ps_eq *eq;

	if (attr && !ps_wait_is_supported(attr->wait_obj))
		return -FI_ENOSYS;
	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	eq->fabric = ps_container_of(fabric, struct ps_fabric, fid);
	eq->fabric->refs++;
	STAILQ_INIT(&eq->queue);
	if (ps_sim.cfg.offers_msg) {
		eq->machine = ps_machine_current();
		LIST_INSERT_HEAD(&eq->machine->eqs, eq, link);
	}
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fid_ops;
	eq->fid.ops = &eq_ops;
	*out = &eq->fid;
	return 0;
}
