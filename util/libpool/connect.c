// SPDX-License-Identifier: BSD-2-Clause
/* Connects to a pool, and reconnects after a loss of the connection. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/method.h"
#include "core/status.h"
#include "core/wire.h"
#include "rpmem/ext.h"
#include "util/clock.h"
#include "libpool/pool.h"
#include "util/query_class.h"
#include "util/setup_server.h"

/* Check that the daemon still offers the pool that was opened. */
static int check_same_pool(struct rpmem_pool *p, struct offer *o)
{
	const struct rp_setup_export *was = &p->now.ex, *is = &o->ex;

	if (memcmp(was->uuid, is->uuid, sizeof(is->uuid)))
		return rp_err(o->err, -ESTALE,
			      "pool '%s' on %s was replaced by another pool; "
			      "what was not committed to the first one is "
			      "lost: open the pool again",
			      p->name, p->target.host);
	if (is->len < was->len)
		return rp_err(o->err, -ESTALE,
			      "pool '%s' on %s has shrunk from %" PRIu64
			      " to %" PRIu64
			      " bytes; what was not committed is lost: open "
			      "the pool again",
			      p->name, p->target.host, was->len, is->len);
	/*
	 * Only for shared writers: the daemon itself refuses an exclusive
	 * client that was displaced, and an observer has written nothing.
	 */
	if (!p->exclusive && !p->observe && is->owner != was->owner)
		return rp_err(o->err, -ESTALE,
			      "another client has opened pool '%s' on %s "
			      "exclusively; what was not committed is lost: "
			      "open the pool again",
			      p->name, p->target.host);
	/* Retry: an operator can restore the right. */
	if (is->read_only && !was->read_only)
		return rp_err(o->err, -EAGAIN,
			      "the secret of pool '%s' on %s only allows to "
			      "read now; give it the right to write in the "
			      "configuration of fi_rpmemd",
			      p->name, p->target.host);
	if (strcmp(was->base, is->base))
		return rp_err(o->err, -ESTALE,
			      "fi_rpmemd on %s uses provider '%s' now, '%s' "
			      "before; open the pool again",
			      p->target.host, is->base, was->base);
	return 0;
}

static int open_fabric(struct rpmem_pool *p, struct offer *o)
{
	struct rp_fabric_attr attr = {
		.base = o->ex.base,
		.dest = o->ex.fi_name,
		.dest_len = o->ex.fi_name_len,
		.wait_fd = true,
		.cq_size = 4096,
	};
	int ret = rp_fabric_open(&attr, &p->f, o->err);

	if (ret)
		return ret;
	ret = fi_setopt(&p->f.ep->fid, FI_OPT_ENDPOINT, FI_OPT_RPMEM_CLASS,
			&p->required, sizeof(p->required));
	if (ret)
		return rp_err(o->err, ret,
			      "requiring the failure class of durable writes: "
			      "%s; install the provider of this release",
			      fi_strerror(-ret));
	return rp_fabric_reg(&p->f, p->journal.bytes, p->journal.size,
			     FI_READ | FI_WRITE, 0, &p->journal_mr, o->err);
}

static int find_peer(struct rpmem_pool *p, struct offer *o)
{
	const struct rp_setup_export *was = &p->now.ex, *is = &o->ex;
	int ret;

	o->peer = p->now.peer;
	if (was->fi_name_len == is->fi_name_len &&
	    !memcmp(was->fi_name, is->fi_name, is->fi_name_len))
		return 0;
	ret = rp_fabric_peer(&p->f, is->fi_name, &o->peer, o->err);
	/* A pool that is open (now.ex.len) tries again: memory may be free. */
	return ret && was->len ? -EAGAIN : ret;
}

/* QUERY the agent: the values in EXPORT are for display only. */
static int query_agent(struct rpmem_pool *p, struct offer *o)
{
	const char *required = rp_class_name(
		(enum rp_class)rp_class_decode(p->required, RP_CLASS_NONE));
	char why[RP_ERR_LEN / 2] = "";
	bool failed;
	int ret;

	o->attr = (struct fi_rpmem_attr){
		.size = sizeof(o->attr),
		.why = why,
		.why_size = sizeof(why),
	};
	ret = rp_query_class(p->f.ops, p->f.ep, o->peer, o->ex.key, p->required,
			     &o->attr, &o->class);
	o->attr.why = NULL;
	if (ret == -EMFILE || ret == -ENFILE)
		return rp_err(o->err, p->now.ex.len ? -EAGAIN : ret,
			      "connecting to pool '%s' on %s: %s; close some, "
			      "or raise the limit (ulimit -n)",
			      p->name, p->target.host, fi_strerror(-ret));
	if (ret)
		return rp_err(o->err, -EAGAIN,
			      "the target of pool '%s' does not reply over "
			      "libfabric: %s; check that fi_rpmemd runs on %s "
			      "and that firewalls let its data port through "
			      "(FI_OFI_RPMEM_PORTS)",
			      p->name, fi_strerror(-ret), p->target.host);
	/*
	 * A flush has failed at the target: commits fail until the daemon is
	 * restarted. Refuse to open the pool. If it is open (now.ex.len), go
	 * on, because reads and writes work.
	 */
	failed = fi_rpmem_status(o->attr.prov_errno) == FI_RPMEM_ST_FAILED;
	if (failed && !p->now.ex.len)
		return rp_err(o->err, -EIO,
			      "the disk of pool '%s' on %s has failed: check "
			      "it and the kernel's log there, and start "
			      "fi_rpmemd again",
			      p->name, p->target.host);
	if (fi_rpmem_status(o->attr.prov_errno) == FI_RPMEM_ST_CLASS)
		return rp_err(o->err, -EOPNOTSUPP,
			      "pool '%s' on %s is of class %s, weaker than "
			      "required (%s): %s; put it on storage of class "
			      "%s there, or require less",
			      p->name, p->target.host, rp_class_name(o->class),
			      required, o->ex.why, required);
	/* The daemon may have revoked the key after giving it out. */
	if (o->attr.prov_errno && !failed)
		return rp_err(o->err, -EAGAIN,
			      "the target of pool '%s' on %s refuses its key: "
			      "%s; try again",
			      p->name, p->target.host, why);
	if (o->attr.addr > o->ex.addr ||
	    o->ex.addr - o->attr.addr > o->attr.len ||
	    o->ex.len > o->attr.len - (o->ex.addr - o->attr.addr))
		return rp_err(o->err, -EPROTO,
			      "the daemon on %s contradicts itself about the "
			      "size of pool '%s'; do not use it",
			      p->target.host, p->name);
	return 0;
}

void pool_connect(struct rpmem_pool *p, struct offer *o)
{
	const bool again = p->f.ep;
	const struct rp_setup_open how = {
		.owner = p->owner,
		.exclusive = p->exclusive,
		.again = again,
		.take = p->take && !again,
		.observe = p->observe,
		.compare = p->compare && p->exclusive && !again,
		.expected = p->expected,
		.parts = p->parts,
		.part = p->part,
	};

	/* The file may have changed; if it cannot be read, keep the secret. */
	if (again && p->secret_file)
		rp_secret_load(p->secret_file, &p->secret, NULL);
	o->peer = FI_ADDR_UNSPEC;
	o->lease = -1;
	o->ret = rp_setup_open(&p->target, p->name, &how, &o->ex, &o->lease,
			       o->err);
	if (o->ret) {
		/* These two are final; an operator can fix any other: retry. */
		if (again)
			o->ret = o->ret == -ESTALE || o->ret == -ENXIO
					 ? -ESTALE
					 : -EAGAIN;
		return;
	}
	if (o->ex.control != RP_WIRE_VERSION)
		o->ret = rp_err(o->err, -EPROTONOSUPPORT,
				"the daemon on port %u of %s speaks version %u "
				"of the control messages, this program %d; "
				"install the same release at both ends",
				p->target.port, p->target.host, o->ex.control,
				RP_WIRE_VERSION);
	else
		o->ret = again ? check_same_pool(p, o) : open_fabric(p, o);
	if (!o->ret)
		o->ret = find_peer(p, o);
	if (!o->ret)
		o->ret = query_agent(p, o);
	/* The daemon closes the lease of a displaced client. */
	if (o->ret == -EAGAIN && !again && p->exclusive &&
	    rp_setup_has_closed(o->lease))
		o->ret = rp_err(o->err, -ESTALE,
				"another client took pool '%s' on %s while it "
				"was opened, or fi_rpmemd ended; open it again",
				p->name, p->target.host);
	if (o->ret && o->peer != FI_ADDR_UNSPEC && o->peer != p->now.peer)
		fi_av_remove(p->f.av, &o->peer, 1, 0);
	if (o->ret)
		pool_release(o);
}

void pool_release(struct offer *o)
{
	if (o->lease >= 0)
		close(o->lease);
	o->lease = -1;
}

/* Connect until it succeeds, or until the pool has failed or is closed. */
static void *connect_thread(void *arg)
{
	struct rpmem_pool *p = arg;
	uint64_t ms = 0, until, now;

	pthread_mutex_lock(&p->lock);
	while (!p->closing) {
		pthread_mutex_unlock(&p->lock);
		pool_connect(p, &p->next);
		pthread_mutex_lock(&p->lock);
		if (p->next.ret != -EAGAIN)
			break;
		p->reason = pool_text(p, p->next.err);
		ms = rp_pause_ms(ms);
		now = rp_now_ms();
		for (until = now + ms; !p->closing && now < until;
		     now = rp_now_ms())
			pool_cond_wait(p, &p->thread_done, until - now);
	}
	if (!p->closing)
		work_connected(p);
	pthread_cond_broadcast(&p->thread_done);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void pool_reconnect(struct rpmem_pool *p)
{
	if (p->thread_runs)
		pthread_join(p->thread, NULL);
	p->thread_runs = !pthread_create(&p->thread, NULL, connect_thread, p);
	p->no_thread = !p->thread_runs;
	if (p->thread_runs)
		return;
	rp_err(p->next.err, 0,
	       "no thread to connect to pool '%s' again: allow more processes "
	       "(ulimit -u)",
	       p->name);
	p->reason = pool_text(p, p->next.err);
	/* work_progress() tries again. */
	p->state = LINK_DRAINING;
}
