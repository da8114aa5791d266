// SPDX-License-Identifier: BSD-2-Clause
/* Power cuts: the bytes of a successful flush must survive. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"
#include "seeded.h"

#define P     RPMEM_FLUSH_PERSISTENT
#define BOTH  (RP_DESC_GLOBAL | RP_DESC_PERSISTENT)
#define STEPS 60

/*
 * A random program of writes and flushes on a random machine; random steps move
 * bytes and fail requests. Each write stores its number. After a successful
 * flush, all writes posted before it must survive.
 */
struct world {
	struct mock m;
	struct seeded s;
	unsigned int writes;
	uint8_t newest[MOCK_BYTES]; /* by byte: number of the last posted write
				     */
	struct {
		uint8_t at[MOCK_BYTES];
		size_t from, to;
	} flush[STEPS];
	uint8_t must_survive[MOCK_BYTES]; /* by byte: oldest write that may
					survive, or 0 */
	unsigned int ok, refused, lost;
	bool idle_agent, reads_do_not_fence;
	/*
	 * Atomic writes that completed, and outstanding ones. They follow
	 * earlier posts, but later device writes do not follow them, so the
	 * program waits.
	 */
	unsigned int stores, outstanding_stores;
};

static void check_values(struct world *w)
{
	uint8_t left[MOCK_BYTES];

	mock_power_cut(&w->m, left);
	/* Numbers grow: a lower number means that a newer write is lost. */
	for (size_t i = 0; i < MOCK_BYTES; i++)
		w->lost += left[i] < w->must_survive[i];
}

static void drain_queues(struct world *w)
{
	struct ibv_wc wc[4];
	int n = rpmem_poll_cq(w->m.cq, 1 + (int)seeded_below(&w->s, 4), wc);

	for (int i = 0; i < n; i++) {
		w->stores += !wc[i].status && wc[i].wr_id == 2;
		w->outstanding_stores -= wc[i].wr_id == 2;
		if (wc[i].wr_id < 1000 || wc[i].status != IBV_WC_SUCCESS)
			continue;
		cr_assert_eq((int)wc[i].opcode, RPMEM_WC_FLUSH);
		w->ok++;
		for (size_t b = w->flush[wc[i].wr_id - 1000].from;
		     b < w->flush[wc[i].wr_id - 1000].to; b++)
			if (w->flush[wc[i].wr_id - 1000].at[b] >
			    w->must_survive[b])
				w->must_survive[b] =
					w->flush[wc[i].wr_id - 1000].at[b];
	}
}

static void post_flush(struct world *w, unsigned int i)
{
	size_t from = seeded_below(&w->s, MOCK_BYTES);
	size_t len = 1 + seeded_below(&w->s, MOCK_BYTES - from);
	uint8_t level = seeded_below(&w->s, 4) == 0;
	int ret;

	w->m.q.pub.wr_id = 1000 + i;
	memcpy(w->flush[i].at, w->newest, MOCK_BYTES);
	w->flush[i].from = level ? 0 : from;
	w->flush[i].to = level ? MOCK_BYTES : from + len;
	rpmem_wr_start(&w->m.q.pub);
	rpmem_wr_flush(&w->m.q.pub, MOCK_RKEY, MOCK_AT + from, len, P, level);
	ret = rpmem_wr_complete(&w->m.q.pub);
	w->refused += ret == EOPNOTSUPP;
	cr_assert(!ret || ret == EOPNOTSUPP || ret == ENOMEM ||
		  ret == ENOTCONN);
}

static void post_atomic_write(struct world *w)
{
	size_t off = 8 * seeded_below(&w->s, MOCK_BYTES / 8);
	uint8_t value[8];
	int ret;

	memset(value, (int)(w->writes + 1), sizeof(value));
	w->m.q.pub.wr_id = 2;
	rpmem_wr_start(&w->m.q.pub);
	rpmem_wr_atomic_write(&w->m.q.pub, MOCK_RKEY, MOCK_AT + off, value);
	ret = rpmem_wr_complete(&w->m.q.pub);
	cr_assert(!ret || ret == EOPNOTSUPP || ret == ENOMEM ||
		  ret == ENOTCONN);
	if (ret)
		return;
	memset(w->newest + off, (int)++w->writes, sizeof(value));
	w->outstanding_stores++;
}

static void run_step(struct world *w, unsigned int i)
{
	size_t off, len;

	switch (seeded_below(&w->s, w->m.q.side ? 12 : 8)) {
	case 0:
	case 1:
		if (w->m.nqueue + 2 >= MOCK_QUEUE || w->outstanding_stores)
			break;
		off = seeded_below(&w->s, MOCK_BYTES);
		len = 1 + seeded_below(&w->s, MOCK_BYTES - off);
		memset(w->newest + off, (int)++w->writes, len);
		mock_write(&w->m, 1, off, len, (uint8_t)w->writes);
		break;
	case 2:
	case 3:
		post_flush(w, i);
		break;
	case 4:
		if (!seeded_below(&w->s, 12))
			w->m.drop_ack = true;
		mock_step(&w->m);
		break;
	case 5:
		mock_step(&w->m);
		break;
	case 6:
		if (seeded_below(&w->s, 2))
			mock_drain(&w->m);
		else
			mock_evict(&w->m,
				   seeded_below(&w->s, MOCK_BYTES / MOCK_LINE));
		break;
	case 7:
		drain_queues(w);
		break;
	case 8:
		if (w->m.nqueue + 2 < MOCK_QUEUE)
			post_atomic_write(w);
		break;
	default:
		if (!seeded_below(&w->s, 60))
			w->m.side.error = true;
		mock_side_step(&w->m);
		break;
	}
	check_values(w);
}

/* believed: the descriptor that the initiator gets; NULL: the true one. */
static void run_world(struct world *w, bool kept, bool cpu, unsigned int native,
		      bool agent, const struct rp_desc *believed)
{
	struct rp_desc d;

	mock_init_cq(&w->m, agent ? 20 : 8);
	w->m.caches_persist = kept;
	w->m.cpu = cpu;
	w->m.reads_do_not_fence = w->reads_do_not_fence;
	w->m.side.idle = w->idle_agent;
	if (agent)
		mock_side_init(&w->m);
	d = believed ? *believed : mock_desc(&w->m);
	cr_assert_eq(mock_add(&w->m, &d, native), 0);
	for (unsigned int i = 0; i < STEPS; i++)
		run_step(w, i);
	for (int i = 0; i < 2 * MOCK_QUEUE; i++) {
		unsigned int ok = w->ok;

		mock_run(&w->m);
		if (agent)
			mock_side_channel_run(&w->m);
		drain_queues(w);
		if (w->ok != ok)
			check_values(w);
	}
	check_values(w);
	if (agent)
		mock_side_fini(&w->m);
	mock_fini(&w->m);
}

Test(shim_cuts, nothing_that_was_vouched_for_is_lost)
{
	static struct world w;
	struct seeded s = seeded_start();
	unsigned int ok[16] = {0}, stores[16] = {0};

	printf("RP_SEED=%llu\n", (unsigned long long)s.seed);
	for (unsigned int i = 0; i < 9600; i++) {
		bool kept = i & 1, cpu = i & 2, agent = i & 8;
		unsigned int native = i & 4 ? BOTH : 0;

		memset(&w, 0, sizeof(w));
		w.s = s;
		seeded_next(&s);
		run_world(&w, kept, cpu, native, agent, NULL);
		cr_assert_eq(w.lost, 0u, "program %u", i);
		/* On ADR a flush succeeds only by FLUSH or by the agent. */
		if (!kept && !native && !agent)
			cr_assert_eq(w.ok, 0u);
		ok[i & 15] += w.ok;
		stores[i & 15] += w.stores;
	}
	for (unsigned int i = 0; i < 16; i++) {
		cr_assert_eq(ok[i] > 300, (i & 1) || (i & 4) || (i & 8),
			     "%u: %u", i, ok[i]);
		cr_assert_eq(stores[i] > 50, i >= 8, "%u: %u", i, stores[i]);
	}
}

/* With a false fact, caches that do not persist, bytes must be lost here. */
Test(shim_cuts, false_facts_lose_bytes)
{
	static struct world w;
	struct seeded s = {.state = 1};
	unsigned int lost = 0;

	for (unsigned int i = 0; i < 200; i++) {
		struct mock m = {.caches_persist = true, .access = RP_DESC_ALL};
		struct rp_desc d = mock_desc(&m);

		memset(&w, 0, sizeof(w));
		w.s = s;
		seeded_next(&s);
		run_world(&w, false, false, 0, false, &d);
		lost += w.lost > 0;
	}
	cr_assert_gt(lost, 100u);
}

/* Bytes must be lost if the agent flushes nothing, or if reads do not fence. */
Test(shim_cuts, missing_step_loses_bytes)
{
	static struct world w;
	struct seeded s = {.state = 1};
	unsigned int lost[2] = {0};

	for (unsigned int i = 0; i < 400; i++) {
		memset(&w, 0, sizeof(w));
		w.s = s;
		w.idle_agent = i & 1;
		w.reads_do_not_fence = !(i & 1);
		seeded_next(&s);
		run_world(&w, false, false, 0, true, NULL);
		lost[i & 1] += w.lost > 0;
	}
	cr_assert_gt(lost[0], 50u);
	cr_assert_gt(lost[1], 50u);
}

/* Without the fence, the bytes that are in the adapter must be lost. */
Test(shim_cuts, delivery_is_no_fence)
{
	static struct world w;

	mock_init(&w.m);
	w.m.caches_persist = true;
	mock_write(&w.m, 1, 0, 64, 1);
	mock_run(&w.m);
	memset(w.must_survive, 1, 64);
	check_values(&w);
	cr_assert_eq(w.lost, 64u);
	while (w.m.nadapter)
		mock_drain(&w.m);
	w.lost = 0;
	check_values(&w);
	cr_assert_eq(w.lost, 0u);
	mock_fini(&w.m);
}
