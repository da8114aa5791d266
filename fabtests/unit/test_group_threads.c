// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread that opens a member of a group: an observer looks at the member
 * first, and the member is opened only if its owner is the one that the
 * observer has seen. The pools are this test's.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libpool/group_threads.h"
#include "util/fabric.h"
#include "util/setup_client.h"

/* The calls of pool_open_as(), guarded by the lock of the group's handle. */
static struct attempt {
	int exclusive;
	unsigned int timeout;
	bool compares;
	uint64_t expected;
} attempts[16];
static unsigned int nattempts;
static int results[16];	  /* result of each call */
static uint64_t seen[16]; /* owner that each call finds */
static struct rpmem_pool handle;
static struct pool_group group;

int pool_open_as(struct rpmem_pool **pool, const char *where,
		 const struct rpmem_pool_attr *attr, uint64_t owner,
		 const uint64_t *expected, bool wait)
{
	unsigned int i;

	pthread_mutex_lock(&handle.lock);
	i = nattempts;
	cr_assert_lt(i, 16);
	attempts[i] =
		(struct attempt){attr->exclusive, attr->timeout,
				 expected != NULL, expected ? *expected : 0};
	/* The opening goes on, with the other members. */
	if (!i)
		group.g.phase = GROUP_OPEN;
	nattempts++;
	pthread_cond_broadcast(&group.changed);
	pthread_mutex_unlock(&handle.lock);
	if (results[i])
		return pool_error(results[i], "result %d", results[i]);
	*pool = calloc(1, sizeof(**pool));
	(*pool)->now.ex.owner = seen[i];
	(*pool)->now.ex.len = 2 * GROUP_AREA;
	return 0;
}

void rpmem_pool_close(struct rpmem_pool *p)
{
	free(p);
}

int rpmem_pool_read(struct rpmem_pool *p, void *buf, size_t len,
		    uint64_t offset)
{
	memset(buf, 0, len);
	return 0;
}

int rpmem_pool_query(struct rpmem_pool *p, struct rpmem_pool_info *info)
{
	info->length = 2 * GROUP_AREA;
	return 0;
}

int rpmem_pool_submit(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	return 0;
}

int rpmem_pool_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	return 0;
}

unsigned int pool_trywait(struct rpmem_pool *p, int *fd, int *ms)
{
	return 0;
}

void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_cond_timedwait(cond, &p->lock, &t);
}

uint64_t rp_setup_owner(void)
{
	return 1;
}

int rp_fabric_env(const struct rp_fabric_attr *attr, char *err)
{
	return 0;
}

static void await_attempts(unsigned int n)
{
	pthread_mutex_lock(&handle.lock);
	while (nattempts < n && group.g.phase != GROUP_ENDED)
		pthread_cond_wait(&group.changed, &handle.lock);
	cr_assert_geq(nattempts, n, "the group has ended: %s", group.g.error);
	pthread_mutex_unlock(&handle.lock);
}

static void expect_attempt(unsigned int i, int exclusive, uint64_t expected)
{
	const struct attempt *a = &attempts[i];

	cr_assert_eq(a->exclusive, exclusive, "call %u: %d", i, a->exclusive);
	cr_assert_eq(a->timeout, exclusive == RPMEM_POOL_OBSERVE ? 1 : 60,
		     "call %u: %u s", i, a->timeout);
	cr_assert_eq(a->compares, expected != 0, "call %u", i);
	cr_assert_eq(a->expected, expected, "call %u", i);
}

static void start(void)
{
	pthread_mutex_init(&handle.lock, NULL);
	pthread_cond_init(&group.changed, NULL);
	group.p = &handle;
	group.g.n = 1;
	group.wake = -1;
	group.attr.exclusive = RPMEM_POOL_TAKE;
	group.attr.timeout = 60;
	group.pools[0].where = (char *)"host:vol";
	cr_assert_not(pool_group_start(&group, 1), "%s", rpmem_pool_error());
}

static void end(void)
{
	pthread_mutex_lock(&handle.lock);
	group.closing = true;
	pthread_cond_broadcast(&group.changed);
	pthread_mutex_unlock(&handle.lock);
	pthread_join(group.pools[0].thread, NULL);
	rpmem_pool_close(group.pools[0].pool);
	group_fini(&group.g);
	pool_texts_free(&handle);
}

/* The member is away at first, while the group opens with the others. */
Test(group_threads, a_member_is_taken_from_the_owner_that_was_seen,
     .timeout = 60)
{
	results[0] = -ECONNREFUSED;
	seen[1] = 77;
	results[2] = -ESTALE; /* Another client came between the two. */
	seen[3] = 78;
	start();
	await_attempts(5);
	expect_attempt(0, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(1, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(2, RPMEM_POOL_TAKE, 77);
	expect_attempt(3, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(4, RPMEM_POOL_TAKE, 78);
	end();
}

/*
 * An opening that began without an epoch is delayed until the group is open,
 * and a newer writer has the member.
 */
Test(group_threads, a_late_opening_takes_no_member_from_another_owner,
     .timeout = 60)
{
	seen[0] = 76;
	results[1] = -ESTALE;
	seen[2] = 77;
	start();
	await_attempts(4);
	expect_attempt(0, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(1, RPMEM_POOL_TAKE, 76);
	expect_attempt(2, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(3, RPMEM_POOL_TAKE, 77);
	end();
}

/* The member was open, and its connection is lost. */
static void lose_open_member(void)
{
	await_attempts(2);
	pthread_mutex_lock(&handle.lock);
	while (!group.pools[0].opened_once)
		pthread_cond_wait(&group.changed, &handle.lock);
	member_drop(&group.g, 0, -ETIMEDOUT, "away");
	pthread_mutex_unlock(&handle.lock);
}

/* Somebody may have it. */
Test(group_threads, a_member_that_was_open_is_opened_if_it_is_free,
     .timeout = 60)
{
	seen[0] = 76;
	seen[2] = 77;
	start();
	lose_open_member();
	await_attempts(4);
	expect_attempt(1, RPMEM_POOL_TAKE, 76);
	expect_attempt(2, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(3, RPMEM_POOL_EXCLUSIVE, 77);
	end();
}

/* A limit of clients refuses an observer: nobody has taken the member. */
Test(group_threads, an_observer_that_is_refused_ends_nothing, .timeout = 60)
{
	seen[0] = 76;
	results[2] = -EBUSY;
	seen[3] = 77;
	start();
	lose_open_member();
	await_attempts(5);
	expect_attempt(2, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(3, RPMEM_POOL_OBSERVE, 0);
	expect_attempt(4, RPMEM_POOL_EXCLUSIVE, 77);
	end();
}
