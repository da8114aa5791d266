// SPDX-License-Identifier: BSD-2-Clause
/* Inline stores at the target: at once, whole, durable when answered, once. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "agent_rig.h"

static struct rig g;
static struct rig_region file, dax, eadr, both, tmpfs;
static struct rig_region *const all[] = {&file, &dax, &eadr, &both, &tmpfs};
static struct rig_peer p;

static void start(const struct rp_agent_attr *attr)
{
	rig_init(&g, attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	rig_region(&g, &eadr, RP_METHOD_AGENT_SFENCE, 8);
	rig_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	rig_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = rig_open(&g, 0, 1, &file);
}

static void stop(void)
{
	for (int i = 0; i < 5; i++)
		if (!all[i]->gone)
			rig_region_del(&g, all[i]);
	rig_fini(&g);
}

static uint64_t send_store(struct rig_region *m, uint64_t off, uint64_t len,
			   uint8_t fill, uint64_t seq, uint64_t token)
{
	const struct rp_wire_hdr hdr = {
		.session = p.target,
		.token = token ? token : ++p.token,
		.incarnation = RIG_INCARNATION,
	};
	uint8_t buf[RP_WIRE_MAX_MSG], bytes[RP_WIRE_MAX_STORE];
	const struct rp_wire_request r = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = m->r.choice.class,
		.effect = RP_EFFECT_STORE,
		.seq = seq,
		.bytes = bytes,
		.ranges = {{m->r.key, off, len}},
	};

	memset(bytes, fill, sizeof(bytes));
	rig_recv(p.x, buf, rp_wire_put_request(buf, sizeof(buf), &hdr, &r));
	return hdr.token;
}

static bool is(const uint8_t *from, uint64_t off, uint64_t len, uint8_t fill)
{
	for (uint64_t i = 0; i < len; i++)
		if (from[RIG_SKEW + off + i] != fill)
			return false;
	return true;
}

static void each_method(bool worker)
{
	const struct rp_agent_attr attr = {.incarnation = RIG_INCARNATION};
	static const struct {
		uint64_t off, len;
	} at[] = {{0, 8}, {61, 7}, {4090, RP_WIRE_MAX_STORE}, {8, 1}};
	uint64_t seq = 0;

	start(worker ? &attr : NULL);
	for (int i = 0; i < 5; i++) {
		for (int j = 0; j < 4; j++) {
			struct rig_region *m = all[i];
			uint8_t fill = ++seq;
			uint64_t t = send_store(m, at[j].off, at[j].len, fill,
						seq, 0);
			struct rp_wire_reply r;

			/* Seen before anything that was sent behind it. */
			cr_assert(is(m->mem, at[j].off, at[j].len, fill));
			cr_assert(at[j].off == 0 ||
				  !is(m->mem, at[j].off - 1, 1, fill));
			cr_assert_not(
				is(m->mem, at[j].off + at[j].len, 1, fill));
			if (worker)
				rig_run_worker(&g);
			else
				rig_run(&g);
			r = rig_expect(p.x, t, RP_ST_OK);
			cr_assert_eq(r.class, m->r.choice.class);
			cr_assert_eq(r.method, m->r.choice.method);
			cr_assert(m == &tmpfs ||
				  is(m->media, at[j].off, at[j].len, fill));
		}
		/* Past the caches, where lines would be written back. */
		cr_assert_eq(all[i]->streams, all[i] == &dax);
		if (all[i] != &dax)
			cr_assert_eq(all[i]->stores, 4);
	}
	cr_assert_eq(rig_stats(&g).effects, 20);
	stop();
}

Test(agent_store, each_method)
{
	each_method(false);
}

Test(agent_store, on_the_worker)
{
	each_method(true);
}

/* Past the caches it is durable at once: nothing is left to wait for. */
Test(agent_store, answered_at_once)
{
	uint64_t t;

	start(NULL);
	t = send_store(&dax, 0, 128, 1, 1, 0);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(dax.streams, 1);
	cr_assert_eq(dax.flushes, 0);
	cr_assert(is(dax.media, 0, 128, 1));
	stop();
}

/* A repeated one must not undo what came since, whatever became of it. */
Test(agent_store, only_once)
{
	uint64_t t;

	start(NULL);
	t = send_store(&dax, 60, 64, 1, 1, 0);
	/* At work. */
	memset(dax.mem + RIG_SKEW + 60, 2, 64);
	send_store(&dax, 60, 64, 1, 1, t);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect_nothing(p.x);
	/* Answered. */
	send_store(&dax, 60, 64, 1, 1, t);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	/* At once. */
	t = send_store(&tmpfs, 0, 8, 1, 2, 0);
	rig_expect(p.x, t, RP_ST_OK);
	memset(tmpfs.mem + RIG_SKEW, 2, 8);
	send_store(&tmpfs, 0, 8, 1, 2, t);
	rig_expect(p.x, t, RP_ST_OK);
	/* Stored, and the flush failed. */
	file.sync_ret = -EIO;
	t = send_store(&file, 0, 8, 1, 3, 0);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, t, RP_ST_FLUSH_FAILED).detail, EIO);
	memset(file.mem + RIG_SKEW, 2, 8);
	send_store(&file, 0, 8, 1, 3, t);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	cr_assert(is(dax.mem, 60, 64, 2));
	cr_assert(is(tmpfs.mem, 0, 8, 2));
	cr_assert(is(file.mem, 0, 8, 2));
	cr_assert_eq(rig_stats(&g).remembered, 3);
	stop();
}

/* The memory is gone, with its file or part of it: no store, and no SIGBUS. */
Test(agent_store, memory_gone)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	if (madvise(dax.mem, RIG_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	cr_assert_eq(munmap(dax.mem + 4 * RIG_PAGE, RIG_PAGE), 0);
	t = send_store(&dax, 4 * RIG_PAGE, 64, 1, 1, 0);
	r = rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOMEM);
	cr_assert_eq(r.range, 0);
	cr_assert_eq(dax.streams, 0);
	stop();
}

Test(agent_store, is_checked)
{
	struct rig_region plain;
	uint64_t seq = 0;

	start(NULL);
	rig_region_volatile(&g, &plain, 1);
	both.r.writable = false;
	file.r.failed = EIO;
	const struct {
		struct rig_region *m;
		uint64_t off, len;
		enum rp_status st;
	} bad[] = {
		{&dax, dax.r.len - 7, 8, RP_ST_RANGE},
		{&dax, dax.r.len, 1, RP_ST_RANGE},
		{&dax, UINT64_MAX - 3, 8, RP_ST_WRAP},
		{&plain, 0, 8, RP_ST_VOLATILE},
		{&both, 0, 8, RP_ST_ACCESS},
		{&file, 0, 8, RP_ST_REGION_FAILED},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t t = send_store(bad[i].m, bad[i].off, bad[i].len, 1,
					++seq, 0);

		rig_run(&g);
		cr_assert_eq(rig_expect(p.x, t, bad[i].st).range, 0);
		cr_assert_eq(bad[i].m->stores, 0);
	}
	rig_region_del(&g, &plain);
	stop();
}
