/* SPDX-License-Identifier: BSD-2-Clause */
/* The journal of librpmem_pool against a copy of the pool, by byte. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libpool/journal.h"
#include "seeded.h"

#define RING 4096u
#define POOL 512u

static void append_bytes(struct rp_journal *j, uint64_t offset, char c,
			 uint32_t len, uint64_t *seq)
{
	char bytes[RING];

	memset(bytes, c, len);
	cr_assert_eq(rp_journal_append(j, offset, bytes, len, NULL, seq), 0);
}

Test(journal, entry_is_freed_when_placed_and_committed)
{
	struct rp_journal j;
	uint64_t a, b;

	cr_assert_eq(rp_journal_init(&j, RING), 0);
	append_bytes(&j, 0, 'a', 100, &a);
	append_bytes(&j, 100, 'b', 100, &b);
	rp_journal_commit(&j, b + 1);
	cr_assert_eq(rp_journal_used(&j), 200);
	rp_journal_at(&j, b)->placed = true;
	rp_journal_trim(&j);
	cr_assert_eq(rp_journal_used(&j), 200, "freed behind an older one");
	rp_journal_at(&j, a)->placed = true;
	rp_journal_trim(&j);
	cr_assert_eq(rp_journal_used(&j), 0);
	cr_assert_eq(j.first, j.next);
	rp_journal_fini(&j);
}

Test(journal, placed_entry_stays_until_a_commit)
{
	struct rp_journal j;
	uint64_t a, b;

	cr_assert_eq(rp_journal_init(&j, RING), 0);
	append_bytes(&j, 0, 'a', 10, &a);
	append_bytes(&j, 10, 'b', 10, &b);
	rp_journal_at(&j, a)->placed = rp_journal_at(&j, b)->placed = true;
	rp_journal_commit(&j, a + 1);
	cr_assert_eq(j.first, b);
	cr_assert_eq(rp_journal_used(&j), 10);
	rp_journal_at(&j, b)->durable = true;
	rp_journal_trim(&j);
	cr_assert_eq(j.first, j.next);
	cr_assert_eq(j.committed, j.next);
	rp_journal_fini(&j);
}

Test(journal, full_ring_refuses_an_entry_and_its_end_is_skipped)
{
	struct rp_journal j;
	char bytes[RING] = {0};
	uint64_t seq, last;

	cr_assert_eq(rp_journal_init(&j, RING), 0);
	append_bytes(&j, 0, 'a', 3000, &seq);
	append_bytes(&j, 0, 'b', 1000, &last);
	cr_assert_eq(rp_journal_append(&j, 0, bytes, 97, NULL, &seq), -EAGAIN);
	rp_journal_at(&j, 0)->placed = true;
	rp_journal_commit(&j, 1);
	/* The ring has 96 bytes left at its end and 3000 at its start. */
	append_bytes(&j, 7, 'c', 3000, &seq);
	cr_assert_eq(rp_journal_at(&j, seq)->pos % RING, 0);
	cr_assert_eq(*rp_journal_bytes(&j, rp_journal_at(&j, seq)), 'c');
	cr_assert_eq(*rp_journal_bytes(&j, rp_journal_at(&j, last)), 'b');
	cr_assert_eq(rp_journal_append(&j, 0, bytes, 1, NULL, &seq), -EAGAIN);
	rp_journal_unappend(&j);
	cr_assert_eq(rp_journal_used(&j), 1000);
	append_bytes(&j, 7, 'd', 96, &seq);
	rp_journal_fini(&j);
}

/* Zeros count as kept bytes, and as entries, but take no ring space. */
Test(journal, zeros_take_no_room_in_the_ring)
{
	struct rp_journal j;
	uint64_t a, b, seq;

	cr_assert_eq(rp_journal_init(&j, RING), 0);
	append_bytes(&j, 0, 'a', 4000, &a);
	cr_assert_eq(rp_journal_append(&j, 0, NULL, 1 << 20, NULL, &b), 0);
	append_bytes(&j, 9, 'c', 96, &seq);
	cr_assert_eq(rp_journal_used(&j), RING + (1 << 20));
	rp_journal_unappend(&j);
	append_bytes(&j, 9, 'd', 96, &seq);
	cr_assert_eq(*rp_journal_bytes(&j, rp_journal_at(&j, seq)), 'd');
	cr_assert_eq(*rp_journal_bytes(&j, rp_journal_at(&j, a)), 'a');
	cr_assert(rp_journal_half_full(&j));
	rp_journal_at(&j, a)->placed = rp_journal_at(&j, b)->placed = true;
	rp_journal_commit(&j, b + 1);
	cr_assert_eq(rp_journal_used(&j), 96);
	cr_assert_not(rp_journal_half_full(&j));
	while (j.next - j.first < RP_JOURNAL_ENTRIES)
		cr_assert_eq(rp_journal_append(&j, 0, NULL, 1, NULL, &b), 0);
	cr_assert(rp_journal_half_full(&j));
	cr_assert_eq(rp_journal_append(&j, 0, NULL, 1, NULL, &b), -EAGAIN);
	rp_journal_unappend(&j);
	cr_assert_eq(rp_journal_append(&j, 0, "x", 1, NULL, &b), 0);
	for (uint64_t s = j.first; s != j.next; s++)
		rp_journal_at(&j, s)->placed = true;
	rp_journal_commit(&j, j.next);
	cr_assert_eq(rp_journal_used(&j), 0);
	rp_journal_fini(&j);
}

/* Nothing says in which order the bytes of both were placed. */
Test(journal, a_commit_covers_an_older_write_that_was_on_its_way)
{
	struct rp_journal_range *r;
	struct rp_journal j;
	uint64_t a, b;
	size_t n;

	cr_assert_eq(rp_journal_init(&j, RING), 0);
	append_bytes(&j, 0, 'a', 10, &a);
	append_bytes(&j, 5, 'b', 10, &b);
	rp_journal_set_durably(&j, b);
	rp_journal_at(&j, b)->durable = rp_journal_at(&j, b)->placed = true;
	rp_journal_at(&j, a)->placed = true;
	cr_assert_eq(rp_journal_ranges(&j, a, b + 1, &r, &n), 0);
	cr_assert_eq(n, 1);
	cr_assert_eq(r[0].offset, 0);
	cr_assert_geq(r[0].len, 10);
	free(r);
	/* Now the older one is placed before the durable one is posted. */
	append_bytes(&j, 0, 'c', 10, &b);
	rp_journal_set_durably(&j, b);
	rp_journal_at(&j, b)->durable = rp_journal_at(&j, b)->placed = true;
	cr_assert_eq(rp_journal_ranges(&j, a, a + 1, &r, &n), 0);
	cr_assert_eq(n, 0);
	free(r);
	rp_journal_fini(&j);
}

/* Random entries: plan and ranges must agree with the model. */
Test(journal, plan_has_the_newest_bytes_of_every_range)
{
	struct seeded s = seeded_start();

	for (int round = 0; round < 200; round++) {
		char newest[POOL] = {0}, planned[POOL] = {0};
		bool need[POOL] = {0}, ranged[POOL] = {0};
		bool written[POOL] = {0}, claimed[POOL] = {0};
		struct rp_journal_piece *v;
		struct rp_journal_range *r;
		struct rp_journal j;
		uint64_t from, upto, end = 0;
		size_t n, nr;

		cr_assert_eq(rp_journal_init(&j, 65536), 0);
		for (int i = 0; i < 100; i++) {
			uint64_t offset = seeded_below(&s, POOL), seq;
			uint32_t len =
				1 + (uint32_t)seeded_below(&s, POOL - offset);

			len = len > 40 ? 40 : len;
			if (seeded_below(&s, 4)) {
				append_bytes(&j, offset, (char)(i + 1), len,
					     &seq);
				memset(newest + offset, i + 1, len);
			} else {
				cr_assert_eq(rp_journal_append(&j, offset, NULL,
							       len, NULL, &seq),
					     0);
				memset(newest + offset, 0, len);
			}
			if (!seeded_below(&s, 3)) {
				rp_journal_set_durably(&j, seq);
				rp_journal_at(&j, seq)->durable = true;
			}
			rp_journal_at(&j, seq)->placed = true;
			/* Bytes that are durable need not be written again. */
			memset(written + offset,
			       !rp_journal_at(&j, seq)->durable, len);
			if (rp_journal_at(&j, seq)->durable)
				memset(newest + offset, 0, len);
		}
		cr_assert_eq(rp_journal_plan(&j, &v, &n), 0);
		for (size_t i = 0; i < n; i++)
			for (uint32_t k = 0; k < v[i].len; k++) {
				cr_assert(!claimed[v[i].offset + k],
					  "twice; seed %" PRIu64, s.seed);
				claimed[v[i].offset + k] = true;
				planned[v[i].offset + k] =
					v[i].bytes ? v[i].bytes[k] : 0;
			}
		cr_assert_eq(memcmp(written, claimed, POOL), 0, "seed %" PRIu64,
			     s.seed);
		cr_assert_eq(memcmp(newest, planned, POOL), 0, "seed %" PRIu64,
			     s.seed);
		free(v);
		from = seeded_below(&s, 50);
		upto = from + seeded_below(&s, 51);
		for (uint64_t q = from; q < j.next; q++) {
			struct rp_journal_entry *e = rp_journal_at(&j, q);

			/* A newer entry may have made bytes durable. */
			if (e->durable || q < upto)
				memset(need + e->offset, !e->durable, e->len);
		}
		cr_assert_eq(rp_journal_ranges(&j, from, upto, &r, &nr), 0);
		for (size_t i = 0; i < nr; i++) {
			cr_assert(!i || r[i].offset > end, "seed %" PRIu64,
				  s.seed);
			end = r[i].offset + r[i].len;
			memset(ranged + r[i].offset, 1, r[i].len);
		}
		cr_assert_eq(memcmp(need, ranged, POOL), 0, "seed %" PRIu64,
			     s.seed);
		free(r);
		rp_journal_fini(&j);
	}
}
