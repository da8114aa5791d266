// SPDX-License-Identifier: BSD-2-Clause
/* A group of pools behind rpmem_pool_open(): threads, waiting, and its members.
 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "libpool/group.h"
#include "libpool/group_open.h"

/* An opening waits so long for members that may just be starting, */
#define START_MS 2000
/* and so long for those that have begun to reply. */
#define OPEN_MS	     10000
#define TICK_MS	     100
#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 1000

/* A member: the handle of its pool, and the thread that opens it. */
struct place {
	struct pool_group *of;
	unsigned int index;
	char *where;
	struct rpmem_pool *pool; /* NULL: closed */
	bool reopen, had;	 /* to be opened again; it was open once */
	unsigned char uuid[16];	 /* of that pool */
	unsigned int part;
	pthread_t thread;
	bool thread_runs;
};

/* A thread in a blocking call. */
struct call {
	LIST_ENTRY(call) link;
	const struct rpmem_pool_op *op;
	bool done;
};

struct pool_group {
	struct rpmem_pool *p; /* the caller's; its lock guards all of this */
	struct group g;
	struct rpmem_pool_attr attr;
	uint64_t owner; /* of all members, to their daemons */
	uint64_t given; /* epoch, or 0 */
	struct place places[GROUP_MEMBERS];
	LIST_HEAD(, call) calls;
	struct rpmem_pool_op **done; /* for rpmem_pool_poll(), oldest first */
	size_t ndone, nout, size;    /* nout: submitted and not in done */
	uint64_t reconnects;
	bool polling, closing, started;
	int kick; /* eventfd: ends the wait of the thread that polls */
	pthread_cond_t changed;
	pthread_t tender; /* makes progress while members are brought up */
	bool tender_runs;
};

/* --- what the group asks for --- */

static int submit(void *arg, unsigned int member, struct rpmem_pool_op *op)
{
	struct pool_group *pg = arg;

	return rpmem_pool_submit(pg->places[member].pool, op);
}

static void kick(struct pool_group *pg)
{
	/* It fails when it is full, and then it wakes the thread as well. */
	(void)!write(pg->kick, &(uint64_t){1}, sizeof(uint64_t));
}

static void reopen(void *arg, unsigned int member)
{
	struct pool_group *pg = arg;

	pg->places[member].reopen = true;
	pthread_cond_broadcast(&pg->changed);
}

/* The lock is held. */
static const char *member_text(struct pool_group *pg, unsigned int member,
			       const char *cause)
{
	char text[RP_ERR_LEN];

	snprintf(text, sizeof(text), "member %s of the group: %s",
		 pg->places[member].where, cause);
	return pool_text(pg->p, text);
}

static const char *text(void *arg, unsigned int member, const char *cause)
{
	return member_text(arg, member, cause);
}

static void completed(void *arg, struct rpmem_pool_op *op, int ret,
		      const char *error)
{
	struct pool_group *pg = arg;
	struct call *c;

	/* Operations that are outstanding at the end are dropped. */
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

/* Read a member's area and displace nobody. The lock is not held. */
static int observe_member(struct place *m, unsigned char area[GROUP_AREA])
{
	struct rpmem_pool_attr attr = m->of->attr;
	struct rpmem_pool *pool;
	int ret;

	attr.exclusive = RPMEM_POOL_OBSERVE;
	ret = pool_open_as(&pool, m->where, &attr, 0);
	if (ret)
		return ret;
	/* A shorter one is refused when it is open. */
	memset(area, 0, GROUP_AREA);
	if (pool->now.ex.len >= GROUP_AREA)
		ret = rpmem_pool_read(pool, area, GROUP_AREA, 0);
	rpmem_pool_close(pool);
	return ret;
}

/* The lock is held; it is released meanwhile. */
static int look_member(struct place *m)
{
	struct pool_group *pg = m->of;
	unsigned char *area;
	int ret;

	if (!pg->g.given)
		return 0;
	area = malloc(GROUP_AREA);
	if (!area)
		return pool_error(-ENOMEM, "out of memory");
	pthread_mutex_unlock(&pg->p->lock);
	ret = observe_member(m, area);
	pthread_mutex_lock(&pg->p->lock);
	if (!ret && pg->g.phase == GROUP_ENDED)
		ret = pool_error(-ECANCELED, "the group has ended");
	if (!ret)
		ret = group_look(&pg->g, m->index, area);
	free(area);
	return ret;
}

static int open_member(struct place *m, struct rpmem_pool **pool,
		       uint64_t *length)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_attr attr = m->of->attr;
	int ret;

	/* A member that this writer had and lost is not taken again. */
	if (m->had)
		attr.exclusive = RPMEM_POOL_EXCLUSIVE;
	ret = pool_open_as(pool, m->where, &attr, m->of->owner);
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
 * One pool under two names would be lost at once with its disk: an opening
 * fails, and an open group goes on without this member. The lock is held.
 */
static int check_given_once(struct place *m, const struct rpmem_pool *pool)
{
	struct pool_group *pg = m->of;
	int ret = 0;

	_Static_assert(sizeof(m->uuid) == sizeof(pool->now.ex.uuid), "uuid");
	memcpy(m->uuid, pool->now.ex.uuid, sizeof(m->uuid));
	m->part = pool->part;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		const struct place *o = &pg->places[i];

		if (o != m && o->pool && o->part == m->part &&
		    !memcmp(o->uuid, m->uuid, sizeof(m->uuid)))
			ret = pool_error(-EINVAL,
					 "it is the same pool as another "
					 "member; give each pool once");
	}
	if (ret && pg->g.phase < GROUP_OPEN)
		group_end(&pg->g, ret,
			  member_text(pg, m->index, rpmem_pool_error()));
	return ret;
}

/* Opens a member whenever the group has given it up. */
static void *member_thread(void *arg)
{
	struct place *m = arg;
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
		/* One that was of use for a while is looked for at once. */
		ms = pool && rp_now_ms() - opened > PAUSE_MAX_MS ? 0 : ms;
		pthread_mutex_unlock(&p->lock);
		rpmem_pool_close(pool);
		pthread_mutex_lock(&p->lock);
		group_closed(&pg->g, m->index);
		kick(pg);
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
		pg->reconnects += m->had && !ret;
		m->had |= !ret;
		ms = ms * 2 < PAUSE_MIN_MS   ? PAUSE_MIN_MS
		     : ms * 2 < PAUSE_MAX_MS ? ms * 2
					     : PAUSE_MAX_MS;
		group_opened(&pg->g, m->index, ret, length,
			     ret ? member_text(pg, m->index, rpmem_pool_error())
				 : NULL);
		pthread_cond_broadcast(&pg->changed);
		kick(pg);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* --- progress --- */

/* True: something has completed. The lock is held. */
static bool collect(struct pool_group *pg)
{
	struct rpmem_pool_op *done[32];
	bool any = false;

	for (unsigned int i = 0; i < pg->g.n; i++) {
		const struct place *m = &pg->places[i];
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
 * One round of progress, by the thread that has pg->polling: it waits up to ms
 * for a member to complete something, without the lock.
 */
static void step(struct pool_group *pg, int ms)
{
	struct pollfd fds[GROUP_MEMBERS + 1] = {
		{.fd = pg->kick, .events = POLLIN}};
	unsigned int n = 1;
	uint64_t count;

	if (collect(pg) || !ms)
		return;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		if (!pg->places[i].pool || pg->places[i].reopen)
			continue;
		fds[n].events = POLLIN;
		n += pool_trywait(pg->places[i].pool, &fds[n].fd, &ms);
	}
	pthread_mutex_unlock(&pg->p->lock);
	if (ms)
		poll(fds, n, ms);
	if (fds[0].revents)
		(void)!read(pg->kick, &count, sizeof(count));
	pthread_mutex_lock(&pg->p->lock);
	collect(pg);
}

/* Make progress, or wait for the thread that does. The lock is held. */
static void progress(struct pool_group *pg, int ms)
{
	if (pg->polling) {
		pool_cond_wait(pg->p, &pg->changed, (uint64_t)ms);
		return;
	}
	pg->polling = true;
	step(pg, ms);
	pg->polling = false;
	/* Another thread may want to poll. */
	pthread_cond_broadcast(&pg->changed);
}

/* Whether members are brought up to date, or lag, with nobody in a call. */
static bool needs_tender(const struct pool_group *pg)
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

static void *tender_thread(void *arg)
{
	struct pool_group *pg = arg;

	pthread_mutex_lock(&pg->p->lock);
	while (!pg->closing)
		if (LIST_EMPTY(&pg->calls) && needs_tender(pg))
			progress(pg, TICK_MS);
		else
			pool_cond_wait(pg->p, &pg->changed, TICK_MS);
	pthread_mutex_unlock(&pg->p->lock);
	return NULL;
}

/* --- the caller's calls --- */

int pool_group_run(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	struct pool_group *pg = p->group;
	struct call call = {.op = op};
	int ret;

	pthread_mutex_lock(&p->lock);
	LIST_INSERT_HEAD(&pg->calls, &call, link);
	pg->g.now = rp_now_ms();
	ret = group_submit(&pg->g, op);
	if (ret)
		pool_error(ret, "out of memory");
	else
		group_run(&pg->g, rp_now_ms());
	while (!ret && !call.done)
		progress(pg, TICK_MS);
	LIST_REMOVE(&call, link);
	pthread_mutex_unlock(&p->lock);
	if (ret)
		return ret;
	if (op->result)
		pool_error(0, "%s", op->error);
	return op->result;
}

int pool_group_submit(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	struct pool_group *pg = p->group;
	void *more;
	int ret;

	pthread_mutex_lock(&p->lock);
	if (pg->ndone + pg->nout == pg->size) {
		more = realloc(pg->done,
			       (pg->size * 2 + 64) * sizeof(*pg->done));
		if (!more) {
			pthread_mutex_unlock(&p->lock);
			return pool_error(-ENOMEM, "out of memory");
		}
		pg->done = more;
		pg->size = pg->size * 2 + 64;
	}
	pg->nout++;
	pg->g.now = rp_now_ms();
	ret = group_submit(&pg->g, op);
	if (ret)
		pg->nout--;
	else
		group_run(&pg->g, rp_now_ms());
	pthread_mutex_unlock(&p->lock);
	return ret ? pool_error(ret, "out of memory") : 0;
}

int pool_group_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	struct pool_group *pg = p->group;
	const uint64_t until = rp_now_ms() + (uint64_t)timeout_ms;
	size_t got;

	pthread_mutex_lock(&p->lock);
	if (!pg->ndone && !pg->polling)
		collect(pg);
	while (!pg->ndone && timeout_ms) {
		const uint64_t now = rp_now_ms();
		uint64_t left = timeout_ms < 0 ? TICK_MS : until - now;

		if (timeout_ms > 0 && now >= until)
			break;
		progress(pg, left < TICK_MS ? (int)left : TICK_MS);
	}
	got = pg->ndone < n ? pg->ndone : n;
	memcpy(done, pg->done, got * sizeof(*done));
	pg->ndone -= got;
	memmove(pg->done, pg->done + got, pg->ndone * sizeof(*done));
	pthread_mutex_unlock(&p->lock);
	return (int)got;
}

int pool_group_query(struct rpmem_pool *p, struct rpmem_pool_info *info)
{
	struct pool_group *pg = p->group;
	struct rpmem_pool_info one;
	unsigned int current = 0;
	bool first = true;

	pthread_mutex_lock(&p->lock);
	for (unsigned int i = 0; i < pg->g.n; i++)
		current += group_member_has_all(&pg->g, i);
	if (info->size == sizeof(*info))
		info->current = current;
	info->length = p->now.ex.len;
	info->reconnects = pg->reconnects;
	info->kept = 0;
	info->read_only = 0;
	info->reached = RPMEM_POOL_NONE;
	info->method = "none";
	info->granularity = info->preferred_size = 0;
	info->members = pg->g.n;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		one.size = sizeof(one);
		if (pg->g.members[i].state != MEMBER_CURRENT ||
		    rpmem_pool_query(pg->places[i].pool, &one))
			continue;
		info->reconnects += one.reconnects;
		info->kept = one.kept > info->kept ? one.kept : info->kept;
		if (first || one.reached > info->reached)
			info->reached = one.reached;
		if (first)
			info->method = one.method;
		else if (strcmp(info->method, one.method) != 0)
			info->method = "several";
		if (one.granularity > info->granularity)
			info->granularity = one.granularity;
		if (first || one.preferred_size < info->preferred_size)
			info->preferred_size = one.preferred_size;
		first = false;
	}
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* Why the connection of a member is lost; NULL: it is not. */
static const char *lost_reason(struct rpmem_pool *pool)
{
	const char *reason = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->state != LINK_UP)
		reason = pool->reason;
	pthread_mutex_unlock(&pool->lock);
	return reason;
}

int pool_group_member(struct rpmem_pool *p, unsigned int index,
		      struct rpmem_pool_member *member)
{
	struct pool_group *pg = p->group;
	const struct group_member *m = &pg->g.members[index];
	const char *lost;

	if (index >= pg->g.n)
		return -ENOENT;
	pthread_mutex_lock(&p->lock);
	member->where = pg->places[index].where;
	member->left = m->backlog + group_copy_left(&pg->g, index);
	member->error = m->error;
	if (m->state == MEMBER_AWAY)
		member->state = RPMEM_POOL_AWAY;
	else if (m->state < MEMBER_CURRENT)
		member->state = RPMEM_POOL_COPYING;
	else if (group_member_has_all(&pg->g, index))
		member->state = RPMEM_POOL_CURRENT;
	else
		member->state = RPMEM_POOL_BEHIND;
	lost = m->state == MEMBER_AWAY ? NULL
				       : lost_reason(pg->places[index].pool);
	if (lost)
		member->error = member_text(pg, index, lost);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* --- opening and closing --- */

/* A group that is closed with nothing outstanding opens without copies. */
static void clear_bitmap(struct pool_group *pg)
{
	const uint64_t until = rp_now_ms() + START_MS;

	if (pg->g.phase != GROUP_OPEN || !group_is_quiet(&pg->g))
		return;
	group_clear_all(&pg->g);
	while (pg->g.phase == GROUP_OPEN && !group_is_quiet(&pg->g) &&
	       rp_now_ms() < until)
		progress(pg, TICK_MS);
}

void pool_group_close(struct rpmem_pool *p)
{
	struct pool_group *pg = p->group;

	pthread_mutex_lock(&p->lock);
	clear_bitmap(pg);
	pg->closing = true;
	pthread_cond_broadcast(&pg->changed);
	kick(pg);
	pthread_mutex_unlock(&p->lock);
	if (pg->tender_runs)
		pthread_join(pg->tender, NULL);
	for (unsigned int i = 0; i < GROUP_MEMBERS; i++) {
		if (pg->places[i].thread_runs)
			pthread_join(pg->places[i].thread, NULL);
		rpmem_pool_close(pg->places[i].pool);
		free(pg->places[i].where);
	}
	if (pg->started)
		group_fini(&pg->g);
	if (pg->kick >= 0)
		close(pg->kick);
	pthread_cond_destroy(&pg->changed);
	pthread_mutex_destroy(&p->lock);
	pool_texts_free(p);
	free(pg->done);
	free((char *)(uintptr_t)pg->attr.secret_file);
	free(pg);
	free(p);
}

bool pool_group_is(const char *where)
{
	const char *comma = strchr(where, ',');

	/* A pool's own name may contain a comma. */
	return comma && strchr(comma, ':');
}

/* Read "k=N" or "epoch=N" of a group's settings, each once. */
static int parse_setting(struct pool_group *pg, const char *s, unsigned int *k)
{
	const size_t len = strcspn(s, ";");
	char *end = NULL;

	/* One digit: a group has at most 8 members. */
	if (len == 3 && !strncmp(s, "k=", 2) && s[2] > '0' && s[2] <= '9' &&
	    !*k) {
		*k = (unsigned int)(s[2] - '0');
		return 0;
	}
	if (len > 6 && !strncmp(s, "epoch=", 6) && s[6] >= '1' && s[6] <= '9' &&
	    !pg->given) {
		errno = 0;
		pg->given = (uint64_t)strtoll(s + 6, &end, 10);
		/* Openings without one go on from here. */
		if (!errno && end == s + len && pg->given <= INT64_MAX / 2)
			return 0;
	}
	return pool_error(
		-EINVAL,
		"';%.*s' is nothing that a group has; give ;k=N, the number of "
		"members at which a commit is durable, or ;epoch=N, a number "
		"above those of all openings before",
		(int)len, s);
}

/* Split "PLACE,PLACE,...;k=N;epoch=N" into pg->places. */
static int parse(struct pool_group *pg, const char *where, unsigned int *k)
{
	const char *end = where + strcspn(where, ";");
	unsigned int n = 0;
	int ret;

	*k = 0;
	for (const char *s = end; *s; s += 1 + strcspn(s + 1, ";")) {
		ret = parse_setting(pg, s + 1, k);
		if (ret)
			return ret;
	}
	for (const char *s = where; s <= end; n++) {
		const size_t len = strcspn(s, ",;");

		if (n == GROUP_MEMBERS)
			return pool_error(-EINVAL,
					  "a group has at most %d members",
					  GROUP_MEMBERS);
		if (!len)
			return pool_error(-EINVAL, "'%s' names an empty member",
					  where);
		pg->places[n].where = strndup(s, len);
		if (!pg->places[n].where)
			return pool_error(-ENOMEM, "out of memory");
		for (unsigned int i = 0; i < n; i++)
			if (!strcmp(pg->places[i].where, pg->places[n].where))
				return pool_error(-EINVAL,
						  "'%s' is given twice",
						  pg->places[n].where);
		s += len + 1;
	}
	if (!*k)
		*k = n / 2 + 1;
	if (*k > n)
		return pool_error(-EINVAL, "k=%u is more than %u members", *k,
				  n);
	pg->g.n = n;
	return 0;
}

static int start(struct pool_group *pg, unsigned int k)
{
	struct group_io io = {
		.submit = submit,
		.reopen = reopen,
		.text = text,
		.arg = pg,
	};
	const unsigned int n = pg->g.n;
	const uint64_t id[2] = {rp_setup_owner(), rp_setup_owner()};
	char *err = pool_error_buf();
	int ret;

	pg->owner = rp_setup_owner();
	if (!pg->owner || !id[0] || !id[1])
		return pool_error(-EIO, "no random bytes");
	/* It sets the environment, which threads must not. */
	ret = rp_fabric_env(&(struct rp_fabric_attr){0}, err);
	if (ret)
		return ret;
	pg->started = true;
	if (group_init(&pg->g, n, k, &io, id))
		ret = pool_error(-ENOMEM, "out of memory");
	pg->g.timeout_ms = 1000ull * (pg->attr.timeout ? pg->attr.timeout
						       : POOL_TIMEOUT_S);
	pg->g.completed = completed;
	pg->g.given = pg->given;
	for (unsigned int i = 0; !ret && i < n; i++) {
		struct place *m = &pg->places[i];

		m->of = pg;
		m->index = i;
		if (pthread_create(&m->thread, NULL, member_thread, m))
			ret = pool_error(-ENOMEM, "no thread for a member");
		else
			m->thread_runs = true;
	}
	return ret;
}

/* Whether a member may still be found, or is not current yet. */
static bool is_trying(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (!g->members[i].tried ||
		    (g->members[i].state > MEMBER_AWAY &&
		     g->members[i].state < MEMBER_CURRENT))
			return true;
	return false;
}

static bool is_copying(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state == MEMBER_COPYING ||
		    g->members[i].state == MEMBER_ADOPTING)
			return true;
	return false;
}

static int not_open(struct pool_group *pg)
{
	const struct group *g = &pg->g;

	if (g->phase == GROUP_ENDED)
		return pool_error(g->ret, "%s", g->error);
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state == MEMBER_AWAY && g->members[i].ret)
			return pool_error(
				g->members[i].ret,
				"too few of %u members are there to find the "
				"newest commit: %s",
				g->n, g->members[i].error);
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state < MEMBER_CURRENT)
			return pool_error(-ETIMEDOUT,
					  "member %s of the group has not "
					  "replied; check fi_rpmemd and its "
					  "disk there",
					  pg->places[i].where);
	return pool_error(-ETIMEDOUT, "the group is not open yet");
}

static int wait_open(struct pool_group *pg)
{
	const uint64_t start = rp_now_ms();
	uint64_t until = start + START_MS;
	int ret = 0;

	pthread_mutex_lock(&pg->p->lock);
	while (pg->g.phase < GROUP_OPEN &&
	       rp_now_ms() < (is_trying(&pg->g) ? start + OPEN_MS : until)) {
		progress(pg, 20);
		/* A copy takes as long as it takes. */
		while (pg->g.phase < GROUP_OPEN && is_copying(&pg->g)) {
			progress(pg, 20);
			until = rp_now_ms() + START_MS;
		}
	}
	if (pg->g.phase != GROUP_OPEN)
		ret = not_open(pg);
	pg->p->now.ex.len = pg->g.super.length;
	pthread_mutex_unlock(&pg->p->lock);
	return ret;
}

static int open_once(struct rpmem_pool **pool, const char *where,
		     const struct rpmem_pool_attr *attr)
{
	struct rpmem_pool *p = calloc(1, sizeof(*p));
	struct pool_group *pg = calloc(1, sizeof(*pg));
	pthread_condattr_t clock;
	unsigned int k = 0;
	int ret;

	if (!p || !pg) {
		free(p);
		free(pg);
		return pool_error(-ENOMEM, "out of memory");
	}
	p->group = pg;
	pg->p = p;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&pg->changed, &clock);
	pthread_condattr_destroy(&clock);
	pg->kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	snprintf(p->name, sizeof(p->name), "%s", where);
	ret = pool_copy_attr(&pg->attr, attr);
	if (pg->attr.secret_file)
		pg->attr.secret_file = strdup(pg->attr.secret_file);
	if (!ret && pg->attr.exclusive == RPMEM_POOL_OBSERVE)
		ret = pool_error(-EINVAL,
				 "a group is opened by its writer; to observe "
				 "it, open one of its members");
	if (!pg->attr.exclusive)
		pg->attr.exclusive = RPMEM_POOL_EXCLUSIVE;
	pg->attr.wait = 0;
	if (!ret && pg->kick < 0)
		ret = pool_error(-errno, "no eventfd: %s", strerror(errno));
	if (!ret)
		ret = parse(pg, where, &k);
	if (!ret)
		ret = start(pg, k);
	if (!ret)
		ret = wait_open(pg);
	if (!ret) {
		pg->tender_runs =
			!pthread_create(&pg->tender, NULL, tender_thread, pg);
		if (!pg->tender_runs)
			ret = pool_error(-ENOMEM, "no thread for the group");
	}
	if (ret) {
		pool_group_close(p);
		return ret;
	}
	*pool = p;
	return 0;
}

int pool_group_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	const uint64_t until = rp_now_ms() + OPEN_MS;
	int ret;

	/* -EAGAIN: members were lost, or had another writer, meanwhile. */
	do
		ret = open_once(pool, where, attr);
	while (ret == -EAGAIN && rp_now_ms() < until);
	return ret == -EAGAIN ? -ETIMEDOUT : ret;
}
