/* SPDX-License-Identifier: BSD-2-Clause */
/* Local flushes, requested by the target's own process, beside peers'. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_bed.h"

static struct bed g;
static struct bed_region file, dax, idle;

static const struct rp_agent_attr with_worker = {
	.incarnation = BED_INCARNATION,
};

/* The outcome of one local flush, as its done() reported it. */
struct end {
	unsigned int times;
	enum rp_status st;
	uint32_t detail;
};

static void record_end(void *arg, enum rp_status st, uint32_t detail)
{
	struct end *e = arg;

	e->times++;
	e->st = st;
	e->detail = detail;
}

static void start(const struct rp_agent_attr *attr)
{
	bed_init(&g, attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	bed_region(&g, &idle, RP_METHOD_DELIVERY, 8);
}

static void stop(void)
{
	struct bed_region *all[] = {&file, &dax, &idle};

	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

/* Store new bytes into a range and request its flush. */
static void store_and_flush(struct bed_region *m, uint64_t off, uint64_t len,
			    struct end *e)
{
	const struct rp_local at = {&m->r, off, len};

	bed_store(m, off, len);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, record_end, e), 0);
	cr_assert_eq(e->times, 0, "reported inside the call");
	cr_assert_eq(rp_agent_deadline(g.a), 0, "progress is due");
}

static bool is_durable(const struct bed_region *m, uint64_t off, uint64_t len)
{
	return !memcmp(m->mem + BED_SKEW + off, m->media + BED_SKEW + off, len);
}

Test(agent_local, range_is_durable_at_the_end)
{
	struct bed_region *all[] = {&file, &dax};

	start(NULL);
	for (int i = 0; i < 2; i++) {
		struct end e = {0};

		store_and_flush(all[i], 100, 9000, &e);
		cr_assert(!is_durable(all[i], 100, 9000));
		cr_assert(rp_agent_progress(g.a));
		cr_assert_eq(e.times, 1);
		cr_assert_eq(e.st, RP_ST_OK);
		cr_assert(is_durable(all[i], 100, 9000));
		cr_assert(!rp_agent_progress(g.a));
	}
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

Test(agent_local, nothing_to_do_where_delivery_is_enough)
{
	struct end e = {0};

	start(NULL);
	store_and_flush(&idle, 0, 64, &e);
	bed_run(&g);
	cr_assert_eq(e.times, 1);
	cr_assert_eq(e.st, RP_ST_OK);
	stop();
}

Test(agent_local, several_regions)
{
	const struct rp_local at[] = {{&file.r, 0, 64}, {&dax.r, 64, 64}};
	struct end e = {0};

	start(&with_worker);
	bed_store(&file, 0, 64);
	bed_store(&dax, 64, 64);
	cr_assert_eq(rp_agent_local_flush(g.a, at, 2, record_end, &e), 0);
	while (!e.times)
		rp_agent_progress(g.a);
	cr_assert_eq(e.st, RP_ST_OK);
	cr_assert(is_durable(&file, 0, 64) && is_durable(&dax, 64, 64));
	cr_assert(atomic_load(&g.kicks), "the host was not kicked");
	stop();
}

/* A peer's request and a local flush share one msync. */
Test(agent_local, local_flush_shares_the_msync_of_a_peer)
{
	struct bed_peer p;
	struct end e = {0};
	uint64_t t;

	start(NULL);
	p = bed_connect(&g, &file);
	t = bed_commit(&p, &file, 0, 64);
	store_and_flush(&file, 64, 64, &e);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(e.times, 1);
	cr_assert_eq(e.st, RP_ST_OK);
	cr_assert_eq(atomic_load(&file.syncs), 1);
	stop();
}

Test(agent_local, range_outside_the_region_is_refused)
{
	const struct rp_local bad[] = {
		{&file.r, file.r.len, 1},
		{&file.r, 0, 8 * BED_PAGE + 1},
		{&file.r, UINT64_MAX, 2},
		{&file.r, 0, 0},
	};
	struct end e = {0};

	start(NULL);
	for (int i = 0; i < 4; i++) {
		struct rp_local at = bad[i];

		if (!i)
			at.off = file.r.len;
		cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, record_end, &e),
			     -EINVAL, "range %d", i);
	}
	bed_run(&g);
	cr_assert_eq(e.times, 0);
	stop();
}

Test(agent_local, failure_is_reported_and_stays)
{
	struct end first = {0}, second = {0};
	struct bed_peer p;
	uint64_t t;

	start(NULL);
	p = bed_connect(&g, &file);
	file.sync_ret = -EIO;
	store_and_flush(&file, 0, 64, &first);
	bed_run(&g);
	cr_assert_eq(first.times, 1);
	cr_assert_eq(first.st, RP_ST_FLUSH_FAILED);
	cr_assert_eq(first.detail, EIO);
	file.sync_ret = 0;
	store_and_flush(&file, 4096, 64, &second);
	bed_run(&g);
	cr_assert_eq(second.times, 1);
	cr_assert_eq(second.st, RP_ST_REGION_FAILED);
	cr_assert_eq(second.detail, EIO);
	/* A peer's request for the failed region is refused, too. */
	t = bed_commit(&p, &file, 0, 64);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_REGION_FAILED);
	stop();
}

Test(agent_local, region_ends_while_queued)
{
	struct end e = {0};

	start(NULL);
	store_and_flush(&file, 0, 64, &e);
	bed_region_del(&g, &file);
	cr_assert_eq(e.times, 1);
	cr_assert_eq(e.st, RP_ST_STALE_KEY);
	stop();
}

/* A second thread opens the gate while rp_agent_region_del() waits. */
static void *open_later(void *arg)
{
	bed_open_gate(&g);
	return NULL;
}

Test(agent_local, region_ends_while_flushed)
{
	struct end e = {0};
	pthread_t th;

	start(&with_worker);
	bed_close_gate(&g);
	store_and_flush(&file, 0, 64, &e);
	cr_assert(rp_agent_progress(g.a));
	bed_wait_entered(&g, 1);
	cr_assert_eq(e.times, 0);
	cr_assert_eq(pthread_create(&th, NULL, open_later, NULL), 0);
	bed_region_del(&g, &file);
	pthread_join(th, NULL);
	cr_assert_eq(e.times, 1);
	cr_assert_eq(e.st, RP_ST_OK);
	stop();
}

/* done() of a dropped flush is not called; that of other flushes is. */
Test(agent_local, dropped_while_queued)
{
	const struct rp_local at = {&file.r, 64, 64};
	struct end e = {0}, other = {0};

	start(NULL);
	store_and_flush(&file, 0, 64, &e);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, record_end, &other), 0);
	rp_agent_local_drop(g.a, &e);
	bed_run(&g);
	cr_assert_eq(e.times, 0);
	cr_assert_eq(other.times, 1, "another's was lost");
	cr_assert(is_durable(&file, 64, 64));
	stop();
	cr_assert_eq(e.times, 0);
}

Test(agent_local, dropped_while_flushed)
{
	struct end e = {0};

	start(&with_worker);
	bed_close_gate(&g);
	store_and_flush(&file, 0, 64, &e);
	cr_assert(rp_agent_progress(g.a));
	bed_wait_entered(&g, 1);
	rp_agent_local_drop(g.a, &e);
	bed_open_gate(&g);
	stop();
	cr_assert_eq(e.times, 0);
}
