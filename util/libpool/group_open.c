// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes a group of pools: parses its name, waits for members. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "libpool/group_open.h"
#include "libpool/group_threads.h"

/* How long an opening waits for members that have begun to reply. */
#define OPEN_MS 10000

/* Wait until all members are current and nothing is outstanding. */
static void wait_quiet(struct pool_group *pg)
{
	const uint64_t until = rp_now_ms() + GROUP_START_MS;
	const struct group *g = &pg->g;

	while (g->phase == GROUP_OPEN &&
	       group_count(g, MEMBER_CURRENT) == g->n && !group_is_quiet(g) &&
	       rp_now_ms() < until)
		pool_group_progress(pg, GROUP_TICK_MS);
}

/* Clear the bitmap: the next opening of an idle group needs no copies. */
static void clear_bitmap(struct pool_group *pg)
{
	wait_quiet(pg);
	if (pg->g.phase != GROUP_OPEN || !group_is_quiet(&pg->g))
		return;
	group_clear_all(&pg->g);
	wait_quiet(pg);
}

void pool_group_close(struct rpmem_pool *p)
{
	struct pool_group *pg = p->group;

	pthread_mutex_lock(&p->lock);
	clear_bitmap(pg);
	pg->closing = true;
	pthread_cond_broadcast(&pg->changed);
	pool_group_wake(pg);
	pthread_mutex_unlock(&p->lock);
	if (pg->background_runs)
		pthread_join(pg->background, NULL);
	for (unsigned int i = 0; i < GROUP_MEMBERS; i++) {
		if (pg->pools[i].thread_runs)
			pthread_join(pg->pools[i].thread, NULL);
		rpmem_pool_close(pg->pools[i].pool);
		free(pg->pools[i].where);
	}
	if (pg->started)
		group_fini(&pg->g);
	if (pg->wake >= 0)
		close(pg->wake);
	pthread_cond_destroy(&pg->changed);
	pthread_mutex_destroy(&p->lock);
	pool_texts_free(p);
	free(pg->done);
	free((char *)(uintptr_t)pg->attr.secret_file);
	free(pg);
	free(p);
}

/* Read "k=N" or "epoch=N" from a group's settings; each may occur once. */
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
		/* Later openings without ;epoch= count up from this epoch. */
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

/* Split "PLACE,PLACE,...;k=N;epoch=N" into pg->pools. */
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
			return pool_error(
				-EINVAL,
				"a group has at most %d members; leave "
				"some out of '%s'",
				GROUP_MEMBERS, where);
		if (!len)
			return pool_error(-EINVAL,
					  "an empty member: give "
					  "HOST:POOL,HOST:POOL,... in place of "
					  "'%s'",
					  where);
		pg->pools[n].where = strndup(s, len);
		if (!pg->pools[n].where)
			return pool_error(-ENOMEM, "out of memory");
		for (unsigned int i = 0; i < n; i++)
			if (!strcmp(pg->pools[i].where, pg->pools[n].where))
				return pool_error(-EINVAL,
						  "'%s' is given twice; name "
						  "each member once",
						  pg->pools[n].where);
		s += len + 1;
	}
	if (!*k)
		*k = n / 2 + 1;
	if (*k > n)
		return pool_error(-EINVAL,
				  "k=%u is more than %u members; give k=%u or "
				  "less, or more members",
				  *k, n, n);
	pg->g.n = n;
	return 0;
}

/* Whether a member that is not current may become current. */
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
		if (g->members[i].state < MEMBER_CURRENT && g->members[i].ret &&
		    (g->members[i].state == MEMBER_AWAY ||
		     g->members[i].repeat_at))
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
					  pg->pools[i].where);
	return pool_error(-ETIMEDOUT,
			  "group '%s' is not open yet: open it again",
			  pg->p->name);
}

static int wait_open(struct pool_group *pg)
{
	const uint64_t start = rp_now_ms();
	uint64_t until = start + GROUP_START_MS;
	int ret = 0;

	pthread_mutex_lock(&pg->p->lock);
	while (pg->g.phase < GROUP_OPEN &&
	       rp_now_ms() < (is_trying(&pg->g) ? start + OPEN_MS : until)) {
		pool_group_progress(pg, 20);
		/* No time limit while a copy makes progress. */
		while (pg->g.phase < GROUP_OPEN && is_copying(&pg->g)) {
			pool_group_progress(pg, 20);
			until = rp_now_ms() + GROUP_START_MS;
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
	pg->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
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
	if (!ret && pg->wake < 0)
		ret = pool_error(-errno, "no eventfd: %s", strerror(errno));
	if (!ret)
		ret = parse(pg, where, &k);
	if (!ret)
		ret = pool_group_start(pg, k);
	if (!ret)
		ret = wait_open(pg);
	if (!ret) {
		pg->background_runs = !pthread_create(
			&pg->background, NULL, pool_group_background, pg);
		if (!pg->background_runs)
			ret = pool_error(-ENOMEM,
					 "no thread: allow more processes "
					 "(ulimit -u), for group '%s'",
					 where);
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

	/*
	 * -EAGAIN: a member was lost or displaced during the opening: retry.
	 * Not with ;epoch=: this try may have promised that epoch to a member,
	 * and no epoch serves two openings.
	 */
	do
		ret = open_once(pool, where, attr);
	while (ret == -EAGAIN && !strstr(where, ";epoch=") &&
	       rp_now_ms() < until);
	return ret == -EAGAIN ? -ETIMEDOUT : ret;
}
