// SPDX-License-Identifier: BSD-2-Clause
/* The threads of a group: one opens each member; callers make progress. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "libpool/group_threads.h"

#define PAUSE_MIN_MS 20 /* pause between attempts to open a member */
#define PAUSE_MAX_MS 1000

/* --- callbacks of the group --- */

static int submit(void *arg, unsigned int member, struct rpmem_pool_op *op)
{
	struct pool_group *pg = arg;
	const int ret = rpmem_pool_submit(pg->pools[member].pool, op);

	if (ret)
		op->error = pool_text(pg->p, rpmem_pool_error());
	return ret;
}

static bool has_ended(void *arg, unsigned int member)
{
	struct pool_group *pg = arg;
	struct rpmem_pool *pool = pg->pools[member].pool;
	bool is;

	pthread_mutex_lock(&pool->lock);
	is = pool->state == LINK_ENDED;
	pthread_mutex_unlock(&pool->lock);
	return is;
}

void pool_group_wake(struct pool_group *pg)
{
	/* Fails only if the counter is full: then poll() returns anyway. */
	(void)!write(pg->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void reopen(void *arg, unsigned int member)
{
	struct pool_group *pg = arg;

	pg->pools[member].reopen = true;
	pthread_cond_broadcast(&pg->changed);
}

/* Called with the lock held. */
const char *pool_group_text(struct pool_group *pg, unsigned int member,
			    const char *cause)
{
	char text[RP_ERR_LEN];

	snprintf(text, sizeof(text), "member %s of the group: %s",
		 pg->pools[member].where, cause);
	return pool_text(pg->p, text);
}

static const char *text(void *arg, unsigned int member, const char *cause)
{
	return pool_group_text(arg, member, cause);
}

const char *pool_group_lost(struct rpmem_pool *pool)
{
	const char *reason = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->state != LINK_UP)
		reason = pool->reason;
	pthread_mutex_unlock(&pool->lock);
	return reason;
}

static bool reachable(void *arg, unsigned int member)
{
	const struct pool_group *pg = arg;

	return !pool_group_lost(pg->pools[member].pool);
}

static void group_op_done(void *arg, struct rpmem_pool_op *op, int ret,
			  const char *error)
{
	struct pool_group *pg = arg;
	struct call *c;

	/* Ignore operations that are outstanding while the group is closed. */
	if (pg->closing)
		return;
	op->result = ret;
	op->error = ret ? error : NULL;
	LIST_FOREACH (c, &pg->calls, link)
		if (c->op == op) {
			c->done = true;
			pthread_cond_broadcast(&pg->changed);
			return;
		}
	pg->nout--;
	pg->done[pg->ndone++] = op;
	pthread_cond_broadcast(&pg->changed);
}

/* --- members --- */

/*
 * Read a member's owner, and then its area, without displacing its writer. The
 * lock is not held.
 */
static int observe_member(struct member_pool *m, unsigned char area[GROUP_AREA])
{
	struct rpmem_pool_attr attr = m->of->attr;
	struct rpmem_pool *pool;
	int ret;

	attr.exclusive = RPMEM_POOL_OBSERVE;
	/*
	 * The group's opening and its close wait for the read of the area: if
	 * the connection is lost, for a second.
	 */
	attr.timeout = 1;
	ret = pool_open_as(&pool, m->where, &attr, 0, NULL, false);
	/* -EBUSY is the daemon's limit of clients here, and no other writer. */
	if (ret)
		return ret == -EBUSY ? -EAGAIN : ret;
	m->seen = pool->now.ex.owner;
	/* group_opened() will refuse a pool that is shorter than the area. */
	memset(area, 0, GROUP_AREA);
	if (pool->now.ex.len >= GROUP_AREA)
		ret = rpmem_pool_read(pool, area, GROUP_AREA, 0);
	rpmem_pool_close(pool);
	return ret;
}

/* Called with the lock held, and releases it while it reads. */
static int look_member(struct member_pool *m)
{
	struct pool_group *pg = m->of;
	unsigned char *area;
	int ret;

	area = malloc(GROUP_AREA);
	if (!area)
		return pool_error(-ENOMEM, "out of memory");
	pthread_mutex_unlock(&pg->p->lock);
	ret = observe_member(m, area);
	pthread_mutex_lock(&pg->p->lock);
	if (!ret && (pg->closing || pg->g.phase == GROUP_ENDED))
		ret = pool_error(-ECANCELED, "the group has ended");
	if (!ret)
		ret = group_look(&pg->g, m->index, area);
	free(area);
	return ret;
}

static int open_member(struct member_pool *m, struct rpmem_pool **pool,
		       uint64_t *length)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_attr attr = m->of->attr;
	int ret;

	/* After the first opening, do not displace (TAKE) another writer. */
	if (m->opened_once)
		attr.exclusive = RPMEM_POOL_EXCLUSIVE;
	/*
	 * -ESTALE if the owner is not m->seen any more: a writer has opened the
	 * member since look_member(), and may be newer than this one. The
	 * thread then looks again.
	 */
	ret = pool_open_as(pool, m->where, &attr, m->of->owner, &m->seen,
			   false);
	if (ret)
		return ret;
	ret = rpmem_pool_query(*pool, &info);
	*length = info.length;
	if (!ret && info.read_only)
		ret = pool_error(-EACCES, "the secret only allows to read");
	if (ret)
		rpmem_pool_close(*pool);
	return ret;
}

/*
 * Refuse a pool that is already a member: one disk would hold two copies. An
 * opening fails, an open group goes on without it. The lock is held.
 */
static int check_given_once(struct member_pool *m,
			    const struct rpmem_pool *pool)
{
	struct pool_group *pg = m->of;
	int ret = 0;

	_Static_assert(sizeof(m->uuid) == sizeof(pool->now.ex.uuid), "uuid");
	memcpy(m->uuid, pool->now.ex.uuid, sizeof(m->uuid));
	m->part = pool->part;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		const struct member_pool *o = &pg->pools[i];

		if (o != m && o->pool && o->part == m->part &&
		    !memcmp(o->uuid, m->uuid, sizeof(m->uuid)))
			ret = pool_error(-EINVAL,
					 "it is the same pool as another "
					 "member; give each pool once");
	}
	if (ret && pg->g.phase < GROUP_OPEN)
		group_end(&pg->g, ret,
			  pool_group_text(pg, m->index, rpmem_pool_error()));
	return ret;
}

/* Open a member whenever the group asks for it to be reopened. */
static void *member_thread(void *arg)
{
	struct member_pool *m = arg;
	struct pool_group *pg = m->of;
	struct rpmem_pool *p = pg->p, *pool;
	uint64_t ms = 0, opened = 0, until, now, length = 0;
	int ret;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!m->reopen && !pg->closing)
			pthread_cond_wait(&pg->changed, &p->lock);
		if (pg->closing)
			break;
		m->reopen = false;
		pool = m->pool;
		m->pool = NULL;
		/* Retry at once if the last connection lasted for a while. */
		ms = pool && rp_now_ms() - opened > PAUSE_MAX_MS ? 0 : ms;
		pthread_mutex_unlock(&p->lock);
		rpmem_pool_close(pool);
		pthread_mutex_lock(&p->lock);
		group_closed(&pg->g, m->index);
		pool_group_wake(pg);
		now = rp_now_ms();
		for (until = now + ms; !pg->closing && now < until;
		     now = rp_now_ms())
			pool_cond_wait(p, &pg->changed, until - now);
		if (pg->closing)
			break;
		pool = NULL;
		ret = -ECANCELED;
		if (pg->g.phase != GROUP_ENDED)
			ret = look_member(m);
		if (!ret) {
			pthread_mutex_unlock(&p->lock);
			ret = open_member(m, &pool, &length);
			pthread_mutex_lock(&p->lock);
		}
		m->pool = ret ? NULL : pool;
		if (!ret)
			ret = check_given_once(m, pool);
		opened = rp_now_ms();
		pg->reconnects += m->opened_once && !ret;
		m->opened_once |= !ret;
		ms = ms * 2 < PAUSE_MIN_MS   ? PAUSE_MIN_MS
		     : ms * 2 < PAUSE_MAX_MS ? ms * 2
					     : PAUSE_MAX_MS;
		group_opened(
			&pg->g, m->index, ret, length,
			ret ? pool_group_text(pg, m->index, rpmem_pool_error())
			    : NULL);
		pthread_cond_broadcast(&pg->changed);
		pool_group_wake(pg);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* --- progress --- */

bool pool_group_collect(struct pool_group *pg)
{
	struct rpmem_pool_op *done[32];
	bool any = false;

	for (unsigned int i = 0; i < pg->g.n; i++) {
		const struct member_pool *m = &pg->pools[i];
		int n = m->pool ? rpmem_pool_poll(m->pool, done, 32, 0) : 0;

		any |= n > 0;
		for (int j = 0; j < n; j++) {
			group_done(&pg->g, i, done[j]);
		}
	}
	group_run(&pg->g, rp_now_ms());
	return any;
}

/*
 * One round of progress, by the thread that has set pg->polling: wait up to ms
 * for completions at members, without the lock.
 */
static void poll_members(struct pool_group *pg, int ms)
{
	struct pollfd fds[GROUP_MEMBERS + 1] = {
		{.fd = pg->wake, .events = POLLIN}};
	unsigned int n = 1;
	uint64_t count;

	if (pool_group_collect(pg) || !ms)
		return;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		if (!pg->pools[i].pool || pg->pools[i].reopen)
			continue;
		fds[n].events = POLLIN;
		n += pool_trywait(pg->pools[i].pool, &fds[n].fd, &ms);
	}
	pthread_mutex_unlock(&pg->p->lock);
	if (ms)
		poll(fds, n, ms);
	if (fds[0].revents)
		(void)!read(pg->wake, &count, sizeof(count));
	pthread_mutex_lock(&pg->p->lock);
	pool_group_collect(pg);
}

void pool_group_progress(struct pool_group *pg, int ms)
{
	if (pg->polling) {
		pool_cond_wait(pg->p, &pg->changed, (uint64_t)ms);
		return;
	}
	pg->polling = true;
	poll_members(pg, ms);
	pg->polling = false;
	/* Another thread may be waiting to poll. */
	pthread_cond_broadcast(&pg->changed);
}

/* Whether any member has operations or copies that need progress. */
static bool needs_background(const struct pool_group *pg)
{
	if (pg->g.phase == GROUP_ENDED)
		return false;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		const struct group_member *m = &pg->g.members[i];

		if ((m->state > MEMBER_AWAY && m->state < MEMBER_CURRENT) ||
		    !TAILQ_EMPTY(&m->queue) || !TAILQ_EMPTY(&m->commits) ||
		    !TAILQ_EMPTY(&m->out))
			return true;
	}
	return false;
}

void *pool_group_background(void *arg)
{
	struct pool_group *pg = arg;

	pthread_mutex_lock(&pg->p->lock);
	while (!pg->closing)
		if (LIST_EMPTY(&pg->calls) && needs_background(pg))
			pool_group_progress(pg, GROUP_TICK_MS);
		else
			pool_cond_wait(pg->p, &pg->changed, GROUP_TICK_MS);
	pthread_mutex_unlock(&pg->p->lock);
	return NULL;
}

int pool_group_start(struct pool_group *pg, unsigned int k)
{
	struct group_io io = {
		.submit = submit,
		.reopen = reopen,
		.has_ended = has_ended,
		.text = text,
		.reachable = reachable,
		.arg = pg,
	};
	const unsigned int n = pg->g.n;
	const uint64_t id[2] = {rp_setup_owner(), rp_setup_owner()};
	char *err = pool_error_buf();
	int ret;

	pg->owner = rp_setup_owner();
	if (!pg->owner || !id[0] || !id[1])
		return pool_error(-EIO, "no random bytes");
	/* rp_fabric_env() calls setenv(): do so before threads are started. */
	ret = rp_fabric_env(&(struct rp_fabric_attr){0}, err);
	if (ret)
		return ret;
	pg->started = true;
	if (group_init(&pg->g, n, k, &io, id))
		ret = pool_error(-ENOMEM, "out of memory");
	pg->g.timeout_ms = 1000ull * (pg->attr.timeout ? pg->attr.timeout
						       : POOL_TIMEOUT_S);
	pg->g.completed = group_op_done;
	pg->g.given = pg->given;
	for (unsigned int i = 0; !ret && i < n; i++) {
		struct member_pool *m = &pg->pools[i];

		m->of = pg;
		m->index = i;
		if (pthread_create(&m->thread, NULL, member_thread, m))
			ret = pool_error(-ENOMEM,
					 "no thread for member %s: allow more "
					 "processes (ulimit -u)",
					 m->where);
		else
			m->thread_runs = true;
	}
	return ret;
}
