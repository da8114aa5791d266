// SPDX-License-Identifier: BSD-2-Clause
/* Opens, describes and closes a pool. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/method.h"
#include "util/clock.h"
#include "util/text.h"
#include "libpool/group_open.h"
#include "libpool/pool.h"

/* How long to wait for a daemon that is still starting. */
#define START_MS 2000

/* The size of struct rpmem_pool_attr before it had `parts`. */
#define ALIGN _Alignof(struct rpmem_pool_attr)
#define ATTR_1                                                                 \
	((offsetof(struct rpmem_pool_attr, parts) + ALIGN - 1) / ALIGN * ALIGN)

/* The sizes of rpmem_pool_info before it had `current`, and before `uuid`. */
#define INFO_1 offsetof(struct rpmem_pool_info, current)
#define INFO_2 offsetof(struct rpmem_pool_info, uuid)

static int parse_where(struct rpmem_pool *p, const char *where)
{
	char *err = pool_error_buf();
	int n = rp_setup_parse_target(where, &p->target, err);

	if (n < 0)
		return n;
	if (where[n] != ':' || !rp_setup_name_ok(where + n + 1))
		return pool_error(-EINVAL,
				  "'%s' names no pool; give HOST:POOL or "
				  "HOST:PORT:POOL",
				  where);
	/* Without a port n is the length of the host and any brackets. */
	if (strchr(where + n + 1, ':') &&
	    (size_t)n == strlen(p->target.host) + (*where == '[' ? 2 : 0))
		return pool_error(-EINVAL,
				  "'%s' has no port from 1 to 65535 behind its "
				  "host; a pool whose name contains ':' needs "
				  "HOST:PORT:POOL",
				  where);
	strcpy(p->name, where + n + 1);
	return 0;
}

int pool_copy_attr(struct rpmem_pool_attr *a,
		   const struct rpmem_pool_attr *attr)
{
	*a = (struct rpmem_pool_attr){.size = sizeof(*a)};
	if (!attr)
		return 0;
	if (attr->size == sizeof(*a))
		*a = *attr;
	else if (attr->size == ATTR_1)
		memcpy(a, attr, offsetof(struct rpmem_pool_attr, parts));
	else
		return pool_error(-EINVAL,
				  "attr->size is %zu; set it to sizeof(struct "
				  "rpmem_pool_attr)",
				  attr->size);
	if (a->parts > RP_SETUP_PARTS || a->part >= (a->parts ?: 1))
		return pool_error(-EINVAL,
				  "part %u of %u; give one from 0 on, of at "
				  "most %d",
				  a->part, a->parts, RP_SETUP_PARTS);
	return 0;
}

static int parse_attr(struct rpmem_pool *p, const struct rpmem_pool_attr *attr)
{
	static const enum fi_rpmem_class fabric_classes[] = {
		[RPMEM_POOL_POWER] = FI_RPMEM_CLASS_POWER,
		[RPMEM_POOL_PROCESS] = FI_RPMEM_CLASS_PROCESS,
		[RPMEM_POOL_NONE] = FI_RPMEM_CLASS_NONE,
	};
	struct rpmem_pool_attr a;
	const int ret = pool_copy_attr(&a, attr);

	if (ret)
		return ret;
	if ((unsigned int)a.required > RPMEM_POOL_NONE)
		return pool_error(-EINVAL, "%d is no failure class",
				  (int)a.required);
	p->required = fabric_classes[a.required];
	if (a.exclusive < 0 || a.exclusive > RPMEM_POOL_OBSERVE)
		return pool_error(-EINVAL,
				  "attr->exclusive is %d; give 0, "
				  "RPMEM_POOL_EXCLUSIVE, RPMEM_POOL_TAKE or "
				  "RPMEM_POOL_OBSERVE",
				  a.exclusive);
	p->observe = a.exclusive == RPMEM_POOL_OBSERVE;
	p->exclusive = a.exclusive && !p->observe;
	p->take = a.exclusive == RPMEM_POOL_TAKE;
	p->parts = a.parts;
	p->part = a.parts > 1 ? a.part + 1 : 0;
	p->timeout_ms = 1000ull * (a.timeout ? a.timeout : POOL_TIMEOUT_S);
	p->target.wait_ms = a.wait < 0 ? 0
			    : a.wait   ? 1000 * (unsigned int)a.wait
				       : START_MS;
	if (!a.secret_file)
		return 0;
	p->target.secret = &p->secret;
	p->secret_file = strdup(a.secret_file);
	if (!p->secret_file)
		return pool_error(-ENOMEM, "out of memory");
	return rp_secret_load(a.secret_file, &p->secret, pool_error_buf())
		       ? -EACCES
		       : 0;
}

static int init(struct rpmem_pool *p, uint64_t owner)
{
	pthread_condattr_t attr;

	p->now.lease = p->next.lease = p->lease_event = -1;
	work_init(p);
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->thread_done, &attr);
	pthread_cond_init(&p->async_done, &attr);
	pthread_condattr_destroy(&attr);
	p->owner = owner ? owner : rp_setup_owner();
	if (!p->owner)
		return pool_error(-EIO, "no random bytes");
	if (rp_journal_init(&p->journal, POOL_KEEP))
		return pool_error(-ENOMEM, "out of memory");
	return 0;
}

static void disconnect(struct rpmem_pool *p)
{
	/* Closing the endpoint releases the memory of outstanding posts. */
	if (p->f.ep)
		fi_close(&p->f.ep->fid);
	p->f.ep = NULL;
	/* Release leases only now: no bytes can reach the target any more. */
	pool_release(&p->now);
	pool_release(&p->next);
	for (struct work *w = LIST_FIRST(&p->all); w; w = LIST_NEXT(w, all)) {
		if (w->mr)
			fi_close(&w->mr->fid);
		w->mr = NULL;
	}
	if (p->journal_mr)
		fi_close(&p->journal_mr->fid);
	p->journal_mr = NULL;
	rp_fabric_close(&p->f);
}

void rpmem_pool_close(struct rpmem_pool *p)
{
	if (!p)
		return;
	if (p->group) {
		pool_group_close(p);
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_broadcast(&p->thread_done);
	pthread_mutex_unlock(&p->lock);
	pool_lease_unwatch(p); /* first: it may start the other thread */
	if (p->thread_runs)
		pthread_join(p->thread, NULL);
	disconnect(p);
	work_fini(p);
	rp_journal_fini(&p->journal);
	pool_texts_free(p);
	rp_secret_wipe(&p->secret);
	free(p->secret_file);
	pthread_cond_destroy(&p->async_done);
	pthread_cond_destroy(&p->thread_done);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/*
 * Connect for the first time. Retry if the daemon ends a key before its use,
 * because another client opened the pool exclusively, or if the daemon
 * restarts.
 */
static int connect_first(struct rpmem_pool *p)
{
	const uint64_t until = rp_now_ms() + p->target.wait_ms;
	unsigned int lost = 0;

	for (;;) {
		const uint64_t start = rp_now_ms();
		uint64_t now;

		pool_connect(p, &p->next);
		now = rp_now_ms();
		if ((p->next.ret != -EAGAIN && p->next.ret != -EIO &&
		     p->next.ret != -ESTALE) ||
		    (p->compare && p->next.ret == -ESTALE) || now >= until)
			break;
		disconnect(p);
		poll(NULL, 0,
		     p->next.ret == -ESTALE
			     ? rp_backoff_ms(now - start, ++lost, until - now)
			     : 10);
	}
	p->now = p->next;
	p->next.lease = -1;
	p->target.wait_ms = 0;
	p->target.reply_ms = 0;
	if (p->now.ret)
		pool_error(0, "%s", p->now.err);
	/* -EAGAIN: not reached within wait_ms; there are no more retries. */
	return p->now.ret == -EAGAIN ? -ETIMEDOUT : p->now.ret;
}

int pool_open_as(struct rpmem_pool **pool, const char *where,
		 const struct rpmem_pool_attr *attr, uint64_t owner,
		 const uint64_t *expected, bool wait)
{
	struct rpmem_pool *p;
	int ret;

	p = calloc(1, sizeof(*p));
	if (!p)
		return pool_error(-ENOMEM, "out of memory");
	ret = init(p, owner);
	if (!ret)
		ret = parse_where(p, where);
	if (!ret)
		ret = parse_attr(p, attr);
	p->compare = expected;
	p->expected = expected ? *expected : 0;
	if (wait)
		p->target.reply_ms = p->timeout_ms;
	if (!ret)
		ret = connect_first(p);
	if (!ret && p->exclusive)
		ret = pool_lease_watch(p);
	if (ret) {
		rpmem_pool_close(p);
		return ret;
	}
	*pool = p;
	return 0;
}

int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	if (!pool || !where)
		return pool_error(-EINVAL, "rpmem_pool_open() needs a place "
					   "for the pool and HOST:POOL");
	if (!strncmp(where, "group=", 6))
		return pool_error(-EINVAL,
				  "leave out 'group=': a group of pools is "
				  "named HOST:POOL,HOST:POOL,...;k=N");
	return rp_names_group(where)
		       ? pool_group_open(pool, where, attr)
		       : pool_open_as(pool, where, attr, 0, NULL, true);
}

static int divide(struct rpmem_pool *pool, unsigned int parts)
{
	/* The connect thread may load pool->secret again during the call. */
	struct rp_setup_target target = pool->target;
	struct rp_secret secret = {.len = 0};
	int ret;

	target.secret = pool->secret_file ? &secret : NULL;
	if (pool->secret_file &&
	    rp_secret_load(pool->secret_file, &secret, pool_error_buf()))
		return -EACCES;
	ret = rp_setup_divide(&target, pool->name, pool->owner, parts,
			      pool_error_buf());
	rp_secret_wipe(&secret);
	return ret;
}

/*
 * The daemon does not know that this client has the pool open: it was
 * restarted, or the connection that proves it is lost. A read reconnects.
 */
static int connect_again(struct rpmem_pool *pool)
{
	char byte;

	pthread_mutex_lock(&pool->lock);
	work_lost(pool, "fi_rpmemd was started again");
	pthread_mutex_unlock(&pool->lock);
	return rpmem_pool_read(pool, &byte, 1, 0);
}

int rpmem_pool_divide(struct rpmem_pool *pool, unsigned int parts)
{
	const uint64_t until = rp_now_ms() + pool->timeout_ms;
	int ret;

	if (pool->group)
		return pool_error(-EOPNOTSUPP,
				  "a group is not divided; divide its members "
				  "before it is created");
	if (!parts || parts > RP_SETUP_PARTS)
		return pool_error(-EINVAL, "%u parts; give 1 to %d", parts,
				  RP_SETUP_PARTS);
	if (!pool->exclusive || pool->part)
		return pool_error(-EINVAL,
				  "a pool is divided by a client that has all "
				  "of it open exclusively");
	for (;;) {
		ret = divide(pool, parts);
		if ((ret != -EBUSY && ret != -EIO && ret != -ECONNREFUSED &&
		     ret != -ETIMEDOUT && ret != -EHOSTUNREACH) ||
		    rp_now_ms() >= until)
			return ret;
		ret = connect_again(pool);
		if (ret)
			return ret;
		poll(NULL, 0, 10);
	}
}

int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info)
{
	static const enum rpmem_pool_class reached[] = {
		[RP_CLASS_NONE] = RPMEM_POOL_NONE,
		[RP_CLASS_PROCESS] = RPMEM_POOL_PROCESS,
		[RP_CLASS_POWER] = RPMEM_POOL_POWER,
	};
	const struct offer *o = &pool->now;
	struct rpmem_pool_info all = {0};

	if (!info)
		return pool_error(-EINVAL, "info is NULL");
	all.size = info->size;
	if (all.size != sizeof(all) && all.size != INFO_1 && all.size != INFO_2)
		return pool_error(-EINVAL,
				  "info->size is %zu; set it to sizeof(struct "
				  "rpmem_pool_info)",
				  info->size);
	if (pool->group) {
		pool_group_query(pool, &all);
	} else {
		pthread_mutex_lock(&pool->lock);
		all.length = o->ex.len;
		all.reached = reached[o->class];
		all.method = rp_method_name((enum rp_method)o->attr.method);
		all.granularity = o->attr.granularity;
		all.preferred_size = o->attr.preferred_size;
		all.kept = rp_journal_used(&pool->journal);
		all.reconnects = pool->reconnects;
		all.read_only = o->ex.read_only;
		memcpy(all.uuid, o->ex.uuid, sizeof(all.uuid));
		pthread_mutex_unlock(&pool->lock);
	}
	memcpy(info, &all, all.size);
	return 0;
}

int rpmem_pool_member(struct rpmem_pool *pool, unsigned int index,
		      struct rpmem_pool_member *member)
{
	if (!member || member->size != sizeof(*member))
		return pool_error(-EINVAL, "member->size is not sizeof(struct "
					   "rpmem_pool_member)");
	if (!pool->group || pool_group_member(pool, index, member))
		return pool_error(-ENOENT, "the pool has no member %u", index);
	return 0;
}

int rpmem_pool_fabric(struct rpmem_pool *pool, struct rpmem_pool_fabric *fabric)
{
	if (!fabric)
		return pool_error(-EINVAL, "fabric is NULL");
	if (pool->group)
		return pool_error(-EOPNOTSUPP,
				  "a group has an endpoint for each member");
	if (fabric->size != sizeof(*fabric))
		return pool_error(-EINVAL,
				  "fabric->size is %zu; set it to "
				  "sizeof(struct rpmem_pool_fabric)",
				  fabric->size);
	pthread_mutex_lock(&pool->lock);
	fabric->info = pool->f.info;
	fabric->domain = pool->f.domain;
	fabric->ep = pool->f.ep;
	fabric->peer = pool->now.peer;
	fabric->key = pool->now.ex.key;
	fabric->addr = pool->now.ex.addr;
	pthread_mutex_unlock(&pool->lock);
	return 0;
}
