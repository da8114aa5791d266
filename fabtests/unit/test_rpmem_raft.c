/* SPDX-License-Identifier: BSD-2-Clause */
/* librpmem_raft: a server loads what it stored, cut at each step. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libraft/store.h"
#include "libraft/wire.h"
#include "log_rig.h"
#include "util/bytes.h"

int pool_check_new(struct store *st, const char *where,
		   const struct rpmem_log_attr *attr)
{
	return 0;
}

#define LENGTH (1024u * 1024)
#define MOST   256u

static struct rig rig;
static struct seeded rnd;
static char errmsg[RAFT_ERRMSG_BUF_SIZE];

/* The expected log. Entry i has index i + 1; data: its term, a number. */
struct model {
	uint64_t entries[MOST][2];
	unsigned int n;
	raft_term term;
	raft_id vote;
	raft_index snapshot;
};

static void start_rig(uint64_t seed)
{
	rnd = (struct seeded){.state = seed};
	rig_init(&rig, &rnd, LENGTH);
	memset(rig.visible, 0, LENGTH);
	memset(rig.durable, 0, LENGTH);
	rig_pool = (struct rig_pool){.rig = &rig, .parts = 1};
}

static void open_store(struct store *st)
{
	const struct rpmem_log_attr attr = {.size = sizeof(attr)};

	*st = (struct store){.errmsg = errmsg};
	cr_assert_eq(store_open(st, "h:p", &attr), 0, "%s", errmsg);
}

/* Cut the power. What store_close() still writes comes too late. */
static void cut_power(struct store *st)
{
	const unsigned int nops = rig.nops;

	rig_cut(&rig);
	rig.nops = nops;
	rig.ended = true;
	store_close(st);
	cr_assert_eq(rig_pool.handles, 0);
	rig.nops = 0;
	rig.ended = false;
}

static struct rpmem_log *open_ring(void)
{
	const struct rpmem_log_attr attr = {
		.size = sizeof(attr), .logs = 2, .log = 1, .take = 1};
	struct rpmem_log *ring;

	cr_assert_eq(rpmem_log_open(&ring, "h:p", &attr), 0, "%s",
		     rpmem_log_error());
	return ring;
}

static void load_store(struct store *st, struct replay *rp)
{
	struct rpmem_log *ring;

	open_store(st);
	ring = open_ring();
	*rp = (struct replay){0};
	cr_assert_eq(store_replay(st, ring, rp), 0, "%s", errmsg);
	cr_assert_eq(st->next - st->first, rp->n);
	rpmem_log_close(ring);
}

static void set_job_result(struct job *job, int result)
{
	cr_assert(result == 0 || rig.ended);
	*(int *)job->arg = 1;
}

static struct raft_entry entry_of(uint64_t *data)
{
	return (struct raft_entry){.term = data[0],
				   .type = RAFT_COMMAND,
				   .buf = {data, 2 * sizeof(*data)}};
}

static uint64_t random_below(uint64_t n)
{
	return seeded_below(&rnd, n);
}

static void put_done(void *arg, int status)
{
	cr_assert(status == 0 || rig.ended, "%d", status);
	*(int *)arg = 1 + status;
}

/* Store a snapshot as libraft does: of stored entries or a leader's. */
static void put_snapshot(struct store *st, struct model *m)
{
	static unsigned char state[300 * 1024];
	struct raft_buffer buf = {state, 1 + random_below(40 * 1024)};
	struct raft_snapshot s = {.index = m->snapshot + 1 +
					   random_below(m->n - m->snapshot),
				  .bufs = &buf,
				  .n_bufs = 1};
	int ended = 0;

	s.term = m->entries[s.index - 1][0];
	s.configuration_index = 1;
	state[0] = (unsigned char)s.index;
	raft_configuration_add(&s.configuration, 7, "a:1", RAFT_VOTER);
	cr_assert_eq(store_snapshot(st, (unsigned int)(1 + random_below(9)), &s,
				    put_done, &ended),
		     0, "%s", errmsg);
	while (!ended)
		writer_reap(&st->w);
	cr_assert_eq(ended, 1);
	m->snapshot = s.index;
	raft_configuration_close(&s.configuration);
}

static void append_random(struct store *st, struct model *m, bool pend,
			  int *acked, struct job *job)
{
	const unsigned int n = 1 + (unsigned int)random_below(3);
	struct raft_entry e[3];

	for (unsigned int i = 0; i < n; i++, m->n++) {
		m->entries[m->n][0] = m->term;
		m->entries[m->n][1] = seeded_next(&rnd);
		e[i] = entry_of(m->entries[m->n]);
	}
	*acked = 0;
	*job = (struct job){.done = set_job_result, .arg = acked};
	if (pend)
		cr_assert_eq(store_pend(st, e, n), 0);
	else
		cr_assert_eq(store_append(st, e, n, job), 0, "%s", errmsg);
}

static bool is_same_entry(const struct raft_entry *e, const uint64_t *data)
{
	return e->term == data[0] && e->buf.len == 16 &&
	       memcmp(e->buf.base, data, 16) == 0;
}

/* Entries up to `sure` must exist; later ones may be those of m or old. */
static void compare_with_model(const struct store *st, const struct replay *rp,
			       const struct model *m, const struct model *old,
			       unsigned int sure)
{
	cr_assert_leq(st->first, m->snapshot + 1);
	cr_assert_eq(st->snap.index, m->snapshot);
	cr_assert_geq(st->next, sure + 1, "%u of %u entries",
		      (unsigned int)st->next - 1, sure);
	for (raft_index i = st->first; i < st->next; i++) {
		const struct raft_entry *e = &rp->entries[i - st->first];

		if (i <= sure || i <= m->n)
			cr_assert(
				is_same_entry(e, m->entries[i - 1]) ||
					(i > sure && i <= old->n &&
					 is_same_entry(e, old->entries[i - 1])),
				"entry %u", (unsigned int)i);
		else
			cr_assert(i <= old->n &&
				  is_same_entry(e, old->entries[i - 1]));
	}
	cr_assert_eq(st->term, m->term);
	cr_assert_eq(st->vote, m->vote);
}

static void check_snapshot(struct store *st)
{
	struct raft_snapshot *s;

	if (!st->snap.index)
		return;
	cr_assert_eq(store_snapshot_get(st, &s), 0, "%s", errmsg);
	cr_assert_eq(s->index, st->snap.index);
	cr_assert_eq(*(unsigned char *)s->bufs->base, (unsigned char)s->index);
	cr_assert_eq(s->configuration.n, 1);
	cr_assert_str_eq(s->configuration.servers[0].address, "a:1");
	raft_configuration_close(&s->configuration);
	raft_free(s->bufs->base);
	raft_free(s->bufs);
	raft_free(s);
}

/* Take random steps of a server, as libraft may do, then cut the power. */
static void run_random_steps(uint64_t seed, unsigned int steps)
{
	struct model m = {.term = 1}, old;
	unsigned int sure = 0;
	struct replay rp;
	struct store st;
	struct job job;
	int acked = 1;

	start_rig(seed);
	load_store(&st, &rp);
	replay_free(&rp);
	cr_assert_eq(store_term(&st, 1, 0), 0);
	old = m;
	for (unsigned int i = 0; i < steps && m.n < MOST - 3; i++) {
		writer_reap(&st.w);
		sure = st.npending ? sure : m.n;
		old = m;
		switch (random_below(8)) {
		case 0:
			m.term++;
			m.vote = 0;
			cr_assert_eq(store_term(&st, m.term, 0), 0);
			sure = m.n;
			break;
		case 1:
			m.vote = 1 + random_below(3);
			cr_assert_eq(store_term(&st, m.term, m.vote), 0);
			sure = m.n;
			break;
		case 2:
			if (m.n > m.snapshot) {
				put_snapshot(&st, &m);
				sure = m.n;
			}
			break;
		case 3:
			if (m.n > m.snapshot) {
				m.n -= random_below(m.n - m.snapshot);
				cr_assert_eq(store_truncate(&st, m.n + 1), 0);
				sure = m.n < sure ? m.n : sure;
			}
			append_random(&st, &m, false, &acked, &job);
			break;
		case 4:
			append_random(&st, &m, true, &acked, &job);
			break;
		default:
			append_random(&st, &m, false, &acked, &job);
		}
	}
	cut_power(&st);
	load_store(&st, &rp);
	compare_with_model(&st, &rp, &m, &old, sure);
	check_snapshot(&st);
	replay_free(&rp);
	store_close(&st);
	rig_fini(&rig);
}

Test(rpmem_raft, what_was_acknowledged_is_loaded)
{
	for (uint64_t seed = 1; seed <= 12; seed++)
		for (unsigned int steps = 0; steps < 40; steps++)
			run_random_steps(seed, steps);
}

Test(rpmem_raft, a_vote_outlives_the_server)
{
	struct replay rp;
	struct store st;

	start_rig(1);
	load_store(&st, &rp);
	cr_assert_eq(store_term(&st, 5, 0), 0);
	cr_assert_eq(store_term(&st, 5, 2), 0);
	cut_power(&st);
	load_store(&st, &rp);
	cr_assert_eq(st.term, 5);
	cr_assert_eq(st.vote, 2);
	cut_power(&st);
	rig_fini(&rig);
}

/* A pool is bound to its server, also when a snapshot has trimmed the log. */
Test(rpmem_raft, a_pool_of_another_server_is_refused)
{
	struct model m = {.term = 1};
	struct replay rp;
	struct store st;
	struct job job;
	int acked;

	start_rig(1);
	for (unsigned int snapshots = 0; snapshots < 3; snapshots++) {
		load_store(&st, &rp);
		replay_free(&rp);
		cr_assert_eq(store_claim(&st, "h:p", 7, false), 0, "%s",
			     errmsg);
		cr_assert_eq(store_claim(&st, "h:p", 8, false), RAFT_INVALID);
		cr_assert(strstr(errmsg, "that of server 7"), "%s", errmsg);
		append_random(&st, &m, false, &acked, &job);
		writer_reap(&st.w);
		put_snapshot(&st, &m);
		cut_power(&st);
		load_store(&st, &rp);
		replay_free(&rp);
		cr_assert_eq(store_claim(&st, "h:p", 8, false), RAFT_INVALID);
		cut_power(&st);
	}
	/* raft_recover() binds a copied pool to its new server. */
	load_store(&st, &rp);
	replay_free(&rp);
	cr_assert_eq(store_claim(&st, "h:p", 8, true), 0, "%s", errmsg);
	cut_power(&st);
	load_store(&st, &rp);
	replay_free(&rp);
	cr_assert_eq(store_claim(&st, "h:p", 7, false), RAFT_INVALID);
	cut_power(&st);
	rig_fini(&rig);
}

/* Send entries of term `of` behind entry prev, from the leader of `term`. */
static void send_entries(struct rpmem_log *ring, raft_term term,
			 raft_index prev, raft_term prev_term, raft_term of,
			 unsigned int n)
{
	uint64_t data[4][2] = {{of, 1}, {of, 2}, {of, 3}, {of, 4}};
	struct raft_entry e[4];
	struct raft_message m = {
		.type = RAFT_IO_APPEND_ENTRIES,
		.append_entries = {term, prev, prev_term, 0, e, n}};
	unsigned char bytes[1024];

	for (unsigned int i = 0; i < n; i++)
		e[i] = entry_of(data[i]);
	wire_encode(&m, bytes);
	cr_assert_eq(rpmem_log_append(ring, bytes, wire_size(&m), NULL), 0);
}

/* Make a server of term 2 whose log has 3 entries of term 1. */
static struct rpmem_log *open_with_three_entries(struct store *st)
{
	uint64_t data[3][2] = {{1, 1}, {1, 2}, {1, 3}};
	struct raft_entry e[3];
	struct replay rp;
	struct job job = {.done = set_job_result};
	int acked;

	for (unsigned int i = 0; i < 3; i++)
		e[i] = entry_of(data[i]);
	job.arg = &acked;
	start_rig(1);
	load_store(st, &rp);
	cr_assert_eq(store_term(st, 1, 0), 0);
	cr_assert_eq(store_append(st, e, 3, &job), 0);
	writer_reap(&st->w);
	cr_assert_eq(store_term(st, 2, 0), 0);
	return open_ring();
}

/* The server must load n entries up to term `last`, twice. */
static void expect_loaded(struct store *st, struct rpmem_log *ring,
			  unsigned int n, raft_term last)
{
	struct replay rp;

	rpmem_log_close(ring);
	cut_power(st);
	for (unsigned int again = 0; again < 2; again++) {
		load_store(st, &rp);
		cr_assert_eq(rp.n, n, "%zu entries", rp.n);
		cr_assert_eq(rp.entries[n - 1].term, last);
		replay_free(&rp);
		cut_power(st);
	}
	rig_fini(&rig);
}

Test(rpmem_raft, messages_of_the_ring_are_loaded)
{
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);

	send_entries(ring, 2, 3, 1, 2, 2);
	send_entries(ring, 2, 5, 2, 2, 1);
	expect_loaded(&st, ring, 6, 2);
}

Test(rpmem_raft, a_message_of_the_ring_replaces_what_conflicts)
{
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);

	send_entries(ring, 2, 1, 1, 2, 1);
	expect_loaded(&st, ring, 2, 2);
}

Test(rpmem_raft, a_message_of_another_term_is_not_loaded)
{
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);

	send_entries(ring, 1, 3, 1, 1, 2);
	send_entries(ring, 3, 3, 1, 3, 2);
	expect_loaded(&st, ring, 3, 1);
}

Test(rpmem_raft, a_message_that_does_not_fit_is_not_loaded)
{
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);

	send_entries(ring, 2, 4, 2, 2, 1); /* the message leaves a gap */
	send_entries(ring, 2, 3, 2, 2,
		     1); /* the preceding entry's term differs */
	expect_loaded(&st, ring, 3, 1);
}

/*
 * A new term is stored behind the entries that the server took from a ring,
 * which makes them durable.
 */
Test(rpmem_raft, a_term_makes_pending_entries_durable)
{
	uint64_t data[2] = {2, 9};
	struct raft_entry e = entry_of(data);
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);

	cr_assert_eq(store_pend(&st, &e, 1), 0);
	cr_assert_eq(store_term(&st, 3, 0), 0);
	expect_loaded(&st, ring, 4, 2);
}

/* The snapshot of a leader replaces all entries. */
Test(rpmem_raft, a_snapshot_of_a_leader_is_loaded)
{
	static unsigned char state[300 * 1024];
	struct raft_buffer bufs[2] = {{state, 200 * 1024},
				      {state + 200 * 1024, 100 * 1024}};
	struct raft_snapshot s = {.index = 90,
				  .term = 2,
				  .bufs = bufs,
				  .n_bufs = 2},
			     *got;
	struct replay rp;
	struct store st;
	struct rpmem_log *ring = open_with_three_entries(&st);
	int ended = 0;

	for (size_t i = 0; i < sizeof(state); i++)
		state[i] = (unsigned char)(i * 7 >> 3);
	cr_assert_eq(store_snapshot(&st, 0, &s, put_done, &ended), 0);
	while (!ended)
		writer_reap(&st.w);
	send_entries(ring, 2, 90, 2, 2, 2);
	rpmem_log_close(ring);
	cut_power(&st);
	load_store(&st, &rp);
	cr_assert_eq(st.first, 91);
	cr_assert_eq(rp.n, 2);
	cr_assert_eq(store_snapshot_get(&st, &got), 0);
	cr_assert_eq(got->bufs->len, sizeof(state));
	cr_assert_arr_eq(got->bufs->base, state, sizeof(state));
	raft_free(got->bufs->base);
	raft_free(got->bufs);
	raft_free(got);
	replay_free(&rp);
	cut_power(&st);
	rig_fini(&rig);
}

/* Peers send messages, so each truncated one is refused and has no effect. */
Test(rpmem_raft, a_truncated_message_is_refused)
{
	uint64_t data[2] = {1, 2};
	struct raft_entry e[2] = {entry_of(data), entry_of(data)};
	struct raft_message m[] = {
		{.type = RAFT_IO_APPEND_ENTRIES,
		 .append_entries = {1, 2, 3, 4, e, 2}},
		{.type = RAFT_IO_APPEND_ENTRIES_RESULT,
		 .append_entries_result = {1, 2, 3}},
		{.type = RAFT_IO_REQUEST_VOTE,
		 .request_vote = {1, 2, 3, 4, true, true}},
		{.type = RAFT_IO_REQUEST_VOTE_RESULT,
		 .request_vote_result = {1, true, raft_tribool_true}},
		{.type = RAFT_IO_TIMEOUT_NOW, .timeout_now = {1, 2, 3}},
	};
	unsigned char bytes[256], again[256];
	struct raft_message got;

	for (size_t i = 0; i < sizeof(m) / sizeof(*m); i++) {
		const size_t size = wire_size(&m[i]);

		wire_encode(&m[i], bytes);
		for (size_t len = 0; len <= size; len++) {
			unsigned char *exact = malloc(len + !len);

			memcpy(exact, bytes, len);
			got = (struct raft_message){.type = m[i].type};
			cr_assert_eq(wire_decode(&got, exact, len),
				     len < size ? RAFT_MALFORMED : 0);
			free(exact);
		}
		cr_assert_eq(wire_size(&got), size);
		wire_encode(&got, again);
		cr_assert_arr_eq(again, bytes, size);
		wire_free(&got);
	}
}
