// SPDX-License-Identifier: BSD-2-Clause
/* Inline stores and atomics by the agent: at once, whole, durable, checked. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "agent_bed.h"

static struct bed g;
static struct bed_region file, dax, eadr, both, tmpfs;
static struct bed_region *const all[] = {&file, &dax, &eadr, &both, &tmpfs};
static struct bed_peer p;

static const struct rp_agent_attr with_worker = {
	.incarnation = BED_INCARNATION,
};

static void start(const struct rp_agent_attr *attr)
{
	bed_init(&g, attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	bed_region(&g, &eadr, RP_METHOD_AGENT_SFENCE, 8);
	bed_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	bed_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = bed_connect_all(&g, all, 5);
}

static void stop(void)
{
	for (int i = 0; i < 5; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

static uint64_t durable_write(struct bed_region *m, uint64_t off, uint64_t len,
			      uint8_t fill)
{
	return bed_inline(&p, RP_LEVEL_DURABLE, (struct bed_at){m, off, len},
			  fill);
}

static bool bytes_are(const uint8_t *from, uint64_t off, uint64_t len,
		      uint8_t fill)
{
	for (uint64_t i = 0; i < len; i++)
		if (from[BED_SKEW + off + i] != fill)
			return false;
	return true;
}

static void each_method(bool worker)
{
	static const struct {
		uint64_t off, len;
	} at[] = {{0, 8}, {61, 7}, {4090, RP_WIRE_MAX_STORE}, {8, 1}};
	uint8_t fill = 0;

	start(worker ? &with_worker : NULL);
	for (int i = 0; i < 5; i++) {
		for (int j = 0; j < 4; j++) {
			struct bed_region *m = all[i];
			struct rp_wire_reply r;
			uint64_t t;

			t = durable_write(m, at[j].off, at[j].len, ++fill);
			/* A store is visible before any later message. */
			cr_assert(
				bytes_are(m->mem, at[j].off, at[j].len, fill));
			cr_assert(at[j].off == 0 ||
				  !bytes_are(m->mem, at[j].off - 1, 1, fill));
			cr_assert_not(bytes_are(m->mem, at[j].off + at[j].len,
						1, fill));
			if (worker)
				bed_run_worker(&g);
			else
				bed_run(&g);
			r = bed_expect(&p, t, RP_ST_OK);
			cr_assert_eq(r.class, m->r.choice.class);
			cr_assert_eq(r.method, m->r.choice.method);
			cr_assert(m == &tmpfs || bytes_are(m->media, at[j].off,
							   at[j].len, fill));
		}
		/* Only in regions with clwb do stores bypass the caches. */
		cr_assert_eq(all[i]->streams, all[i] == &dax);
		if (all[i] != &dax)
			cr_assert_eq(all[i]->stores, 4);
	}
	cr_assert_eq(bed_stats(&g).effects, 20);
	stop();
}

Test(agent_store, store_is_durable_by_each_method)
{
	each_method(false);
}

Test(agent_store, store_is_durable_on_the_worker)
{
	each_method(true);
}

static uint64_t request_zeros(enum rp_level level, struct bed_region *m,
			      uint64_t off, uint64_t len)
{
	const struct rp_wire_range r = {m->r.key, m->r.addr + off, len};
	const struct rp_wire_request q = {
		.nranges = 1,
		.level = level,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_ZERO,
		.ranges = &r,
	};

	uint64_t token = bed_send(&p, &q);

	bed_run(&g);
	return token;
}

/* Zeros are visible at once, and durable by the reply of a durable ZERO. */
Test(agent_store, zeros_are_durable_by_their_reply)
{
	uint64_t t;

	start(NULL);
	for (int i = 0; i < 5; i++) {
		struct bed_region *m = all[i];

		t = durable_write(m, 0, 4096, 7);
		bed_run(&g);
		bed_expect(&p, t, RP_ST_OK);
		bed_expect(&p, request_zeros(RP_LEVEL_VISIBLE, m, 61, 300),
			   RP_ST_OK);
		cr_assert(bytes_are(m->mem, 61, 300, 0));
		cr_assert(bytes_are(m->mem, 60, 1, 7));
		cr_assert(bytes_are(m->mem, 361, 1, 7));
		cr_assert(m == &tmpfs || bytes_are(m->media, 61, 300, 7));
		bed_expect(&p, request_zeros(RP_LEVEL_DURABLE, m, 61, 2000),
			   m == &tmpfs ? RP_ST_CLASS : RP_ST_OK);
		cr_assert(m == &tmpfs || bytes_are(m->media, 61, 2000, 0));
		cr_assert(m == &tmpfs || bytes_are(m->media, 2061, 1, 7));
	}
	bed_expect(&p,
		   request_zeros(RP_LEVEL_DURABLE, &dax, 8 * BED_PAGE - 8, 16),
		   RP_ST_RANGE);
	dax.r.writable = false;
	bed_expect(&p, request_zeros(RP_LEVEL_DURABLE, &dax, 0, 16),
		   RP_ST_ACCESS);
	stop();
}

/* A store that bypassed the caches leaves nothing to flush. */
Test(agent_store, streamed_store_needs_no_flush)
{
	start(NULL);
	bed_expect(&p, durable_write(&dax, 0, 128, 1), RP_ST_OK);
	cr_assert_eq(dax.streams, 1);
	cr_assert_eq(dax.flushes, 0);
	cr_assert(bytes_are(dax.media, 0, 128, 1));
	stop();
}

/* Store into many ranges; a later commit flushes visible stores. */
static void many_ranges(enum rp_level level)
{
	struct rp_wire_range r[20];
	uint8_t bytes[20 * 9];
	const struct rp_wire_request q = {
		.nranges = 20,
		.level = level,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.ranges = r,
	};

	start(NULL);
	for (int i = 0; i < 20; i++) {
		struct bed_region *m = i % 2 ? &dax : &eadr;

		r[i] = (struct rp_wire_range){m->r.key, 200 * i, 9};
		memset(bytes + 9 * i, i + 1, 9);
	}
	bed_expect(&p, bed_send(&p, &q), RP_ST_OK);
	for (int i = 0; i < 20; i++) {
		struct bed_region *m = i % 2 ? &dax : &eadr;

		cr_assert(bytes_are(m->mem, 200 * i, 9, i + 1));
		cr_assert_eq(bytes_are(m->media, 200 * i, 9, i + 1),
			     level == RP_LEVEL_DURABLE);
	}
	cr_assert_eq(dax.drains, level == RP_LEVEL_DURABLE);
	stop();
}

Test(agent_store, many_ranges_placed)
{
	many_ranges(RP_LEVEL_VISIBLE);
}

Test(agent_store, many_ranges_durable)
{
	many_ranges(RP_LEVEL_DURABLE);
}

/*
 * The store's page is unmapped or its file was truncated: the store is refused,
 * without SIGBUS.
 */
Test(agent_store, store_to_unmapped_memory_is_refused)
{
	struct rp_wire_reply r;

	start(NULL);
	if (madvise(dax.mem, BED_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	cr_assert_eq(munmap(dax.mem + 4 * BED_PAGE, BED_PAGE), 0);
	r = bed_expect(&p, durable_write(&dax, 4 * BED_PAGE, 64, 1),
		       RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOMEM);
	cr_assert_eq(r.range, 0);
	cr_assert_eq(dax.streams, 0);
	/* The pages behind the missing one still exist. */
	bed_inline(&p, RP_LEVEL_DURABLE, (struct bed_at){&dax, 5 * BED_PAGE, 8},
		   1);
	bed_expect(&p, p.token, RP_ST_OK);
	stop();
}

/* A page made read-only by mprotect(): refused, without SIGSEGV. */
Test(agent_store, store_to_read_only_memory_is_refused)
{
	static const uint64_t one = 1;

	start(NULL);
	if (madvise(dax.mem, BED_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	for (int i = 0; i < 5; i++)
		cr_assert_eq(mprotect(all[i]->mem, 2 * BED_PAGE, PROT_READ), 0);
	bed_expect(&p, durable_write(&dax, 0, 128, 1), RP_ST_ACCESS);
	bed_expect(&p,
		   bed_inline(&p, RP_LEVEL_VISIBLE,
			      (struct bed_at){&eadr, 0, 8}, 1),
		   RP_ST_ACCESS);
	bed_expect(&p, durable_write(&file, 0, 8, 1), RP_ST_ACCESS);
	bed_expect(&p,
		   bed_atomic(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 0, 8},
			      RP_ATOMIC_SUM, &one, NULL, true),
		   RP_ST_ACCESS);
	bed_expect(&p,
		   bed_atomic(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 0, 8},
			      RP_ATOMIC_READ, NULL, NULL, true),
		   RP_ST_OK);
	cr_assert_eq(dax.stores + dax.streams + dax.changes, 0);
	cr_assert_not(p.c->closed);
	stop();
}

Test(agent_store, is_checked)
{
	start(NULL);
	both.r.writable = false;
	file.r.failed = EIO;
	const struct {
		struct bed_region *m;
		uint64_t off, len;
		enum rp_status st;
	} bad[] = {
		{&dax, dax.r.len - 7, 8, RP_ST_RANGE},
		{&dax, dax.r.len, 1, RP_ST_RANGE},
		{&dax, UINT64_MAX - 3, 8, RP_ST_WRAP},
		{&both, 0, 8, RP_ST_ACCESS},
		{&file, 0, 8, RP_ST_REGION_FAILED},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t t = durable_write(bad[i].m, bad[i].off, bad[i].len, 1);

		cr_assert_eq(bed_expect(&p, t, bad[i].st).range, 0);
		cr_assert_eq(bad[i].m->stores, 0);
	}
	stop();
}

/* --- atomics --- */

static uint64_t request_with_old_value(struct bed_peer *from)
{
	struct bed_msg m;
	uint64_t v;

	cr_assert(bed_take(from, &m));
	cr_assert_eq(m.reply.status, RP_ST_OK, "%s",
		     rp_status_name(m.reply.status));
	cr_assert_eq(m.reply.result_len, sizeof(v));
	memcpy(&v, m.result, sizeof(v));
	return v;
}

Test(agent_store, atomic_of_each_method)
{
	static const uint64_t five = 5, six = 6, ten = 10;

	for (int worker = 0; worker < 2; worker++) {
		start(worker ? &with_worker : NULL);
		for (int i = 0; i < 5; i++) {
			const struct bed_at at = {all[i], 64, 8};
			struct rp_wire_reply r;
			uint64_t t;

			t = bed_atomic(&p, RP_LEVEL_DURABLE, at, RP_ATOMIC_SUM,
				       &five, NULL, false);
			cr_assert_eq(bed_value(all[i], 64, false), 5);
			bed_run_worker(&g);
			r = bed_expect(&p, t, RP_ST_OK);
			cr_assert_eq(r.result_len, 0);
			cr_assert_eq(r.class, all[i]->r.choice.class);
			cr_assert_eq(r.method, all[i]->r.choice.method);
			bed_atomic(&p, RP_LEVEL_DURABLE, at, RP_ATOMIC_CSWAP,
				   &ten, &five, true);
			bed_run_worker(&g);
			cr_assert_eq(request_with_old_value(&p), 5);
			if (i < 4)
				cr_assert_eq(bed_value(all[i], 64, true), 10);
			/* A compare-and-swap whose comparison fails. */
			bed_atomic(&p, RP_LEVEL_DURABLE, at, RP_ATOMIC_CSWAP,
				   &six, &five, true);
			bed_run_worker(&g);
			cr_assert_eq(request_with_old_value(&p), 10);
			/* An atomic at level visible causes no flush. */
			bed_atomic(&p, RP_LEVEL_VISIBLE, at, RP_ATOMIC_WRITE,
				   &six, NULL, true);
			cr_assert_eq(request_with_old_value(&p), 10);
			if (i < 4)
				cr_assert_eq(bed_value(all[i], 64, true), 10);
			cr_assert_eq(all[i]->changes, 4);
		}
		cr_assert_eq(bed_stats(&g).effects, 20);
		stop();
	}
}

/* Replies with old values wait for the flush; each has its own value. */
Test(agent_store, old_values_of_two_atomics)
{
	static const uint64_t five = 5;

	start(NULL);
	bed_store(&file, 64, 16);
	const uint64_t a = bed_value(&file, 64, false);
	const uint64_t b = bed_value(&file, 72, false);

	cr_assert_neq(a, b);
	for (uint64_t off = 64; off <= 72; off += 8)
		bed_atomic(&p, RP_LEVEL_DURABLE, (struct bed_at){&file, off, 8},
			   RP_ATOMIC_SUM, &five, NULL, true);
	bed_run(&g);
	cr_assert_eq(request_with_old_value(&p), a);
	cr_assert_eq(request_with_old_value(&p), b);
	stop();
}

/* All ranges of an atomic share one array of operands and one of results. */
Test(agent_store, atomic_of_ranges)
{
	static const uint32_t add[4] = {1, 2, 3, 4};
	struct rp_wire_range r[3];
	const struct rp_wire_request q = {
		.nranges = 3,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_ATOMIC,
		.ranges = r,
		.atomic =
			{
				.op = RP_ATOMIC_SUM,
				.datatype = RP_ATOMIC_UINT32,
				.fetch = true,
				.operand = add,
			},
	};
	struct bed_region *const where[] = {&dax, &file, &eadr};
	uint32_t got[4];
	struct bed_msg m;

	start(NULL);
	for (int i = 0; i < 3; i++) {
		r[i] = (struct rp_wire_range){where[i]->r.key, 64,
					      i == 1 ? 8 : 4};
		memset(where[i]->mem + BED_SKEW + 64, 1 + i, 8);
	}
	bed_send(&p, &q);
	bed_run(&g);
	cr_assert(bed_take(&p, &m));
	cr_assert_eq(m.reply.status, RP_ST_OK);
	cr_assert_eq(m.reply.result_len, sizeof(got));
	memcpy(got, m.result, sizeof(got));
	/* The next reply has only the results of its own request. */
	bed_atomic(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 1024, 8},
		   RP_ATOMIC_READ, NULL, NULL, true);
	cr_assert_eq(request_with_old_value(&p), 0);
	cr_assert_eq(got[0], 0x01010101);
	cr_assert_eq(got[1], 0x02020202);
	cr_assert_eq(got[2], 0x02020202);
	cr_assert_eq(got[3], 0x03030303);
	cr_assert_eq((uint32_t)bed_value(&dax, 64, true), 0x01010102);
	cr_assert_eq(bed_value(&file, 64, true), 0x0202020502020204);
	cr_assert_eq((uint32_t)bed_value(&eadr, 64, true), 0x03030307);
	stop();
}

/* The longest result, in a reply that waits for room in the channel. */
Test(agent_store, longest_result_waits_for_room)
{
	const struct bed_at at = {&dax, 0, RP_WIRE_MAX_STORE};
	struct bed_msg m;

	start(NULL);
	dax.r.writable = false;
	bed_store(&dax, 0, RP_WIRE_MAX_STORE);
	p.c->room = 0;
	bed_atomic(&p, RP_LEVEL_VISIBLE, at, RP_ATOMIC_READ, NULL, NULL, true);
	p.c->room = -1;
	bed_run(&g);
	cr_assert(bed_take(&p, &m));
	cr_assert_eq(m.reply.result_len, RP_WIRE_MAX_STORE);
	cr_assert_eq(memcmp(m.result, dax.mem + BED_SKEW, RP_WIRE_MAX_STORE),
		     0);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	cr_assert_eq(dax.changes, 0);
	/* A refused atomic changes nothing. */
	static const uint64_t one[2] = {1, 1};
	bed_expect(&p,
		   bed_atomic(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 0, 8},
			      RP_ATOMIC_SUM, one, NULL, false),
		   RP_ST_ACCESS);
	bed_expect(&p,
		   bed_atomic(&p, RP_LEVEL_VISIBLE,
			      (struct bed_at){&eadr, 4, 8}, RP_ATOMIC_SUM, one,
			      NULL, false),
		   RP_ST_ALIGN);
	bed_expect(&p,
		   bed_atomic(&p, RP_LEVEL_VISIBLE,
			      (struct bed_at){&eadr, eadr.r.len - 8, 16},
			      RP_ATOMIC_SUM, one, NULL, false),
		   RP_ST_RANGE);
	cr_assert_eq(eadr.changes + dax.changes, 0);
	stop();
}

/* If the flush behind an executed atomic fails, the reply has no old value. */
Test(agent_store, failed_flush_returns_no_old_value)
{
	static const uint64_t one = 1;
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	file.sync_ret = -EIO;
	t = bed_atomic(&p, RP_LEVEL_DURABLE, (struct bed_at){&file, 0, 8},
		       RP_ATOMIC_SUM, &one, NULL, true);
	bed_run(&g);
	r = bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.result_len, 0);
	cr_assert_eq(bed_value(&file, 0, false), 1);
	stop();
}
