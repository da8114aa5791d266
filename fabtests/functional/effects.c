// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ordered store and the notification of a commit happen at the target after
 * the bytes are on the medium.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "functional/pair.h"
#include "unit/disk.h"

enum {
	RECORD = 200, /* bytes; some records cross pages */
	RECORDS = 60,
	LOG = 8192, /* offset of the first record */
	TAIL = 64,  /* offset of the number of records, 8 bytes */
	NOTES = 20,
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/* --- the target's medium: the bytes that msync covered --- */

static char *pool; /* pool of this process; NULL at the initiator */
static char medium[PAIR_POOL];
static atomic_uint syncs, torn;

static uint64_t tail_of(const char *from)
{
	uint64_t n;

	memcpy(&n, from + TAIL, sizeof(n));
	return n;
}

static bool record_good(const char *from, uint64_t i)
{
	for (int k = 0; k < RECORD; k++)
		if (from[LOG + i * RECORD + k] != (char)(i + 1))
			return false;
	return true;
}

/*
 * Check what a power cut now would leave: the medium must have every record
 * that the tail counts.
 */
static void judge_cut(void)
{
	uint64_t n = tail_of(medium);

	for (uint64_t i = 0; i < n; i++)
		if (n > RECORDS || !record_good(medium, i)) {
			atomic_fetch_add(&torn, 1);
			return;
		}
}

/* Replaces msync() for the provider, too. */
__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	long ret = syscall(SYS_msync, addr, len, flags);
	char *from = addr;

	if (ret || !pool || from < pool || from >= pool + PAIR_POOL)
		return (int)ret;
	disk_reads(medium + (from - pool), from, len);
	atomic_fetch_add(&syncs, 1);
	judge_cut();
	return 0;
}

/* Findings of the target, which the initiator reports. */
struct verdict {
	unsigned int syncs, torn, notes, early, strange, twice;
	struct fi_cq_tagged_entry base, ours;
	fi_addr_t base_from, ours_from, peer;
	uint64_t base_at, ours_at; /* offsets of buf, or all ones */
	uint64_t tail;
};

static uint64_t offset_of(const void *buf, const char *start)
{
	return buf ? (uint64_t)((const char *)buf - start) : ~0ull;
}

/* Wait for the next entry, and its source. */
static void next_entry(struct side *s, struct fi_cq_tagged_entry *entry,
		       fi_addr_t *from)
{
	ssize_t n;

	*from = FI_ADDR_NOTAVAIL;
	while ((n = fi_cq_readfrom(s->cq, entry, 1, from)) == -FI_EAGAIN)
		side_poke(s);
	MUST(n == 1 ? 0 : n);
}

static void run_target(struct side *s, const struct card *peer)
{
	struct fi_cq_tagged_entry plain;
	struct verdict v = {0};
	fi_addr_t from;

	side_insert(s, peer);
	/*
	 * Insert the address first: sockets looks up a peer's address only when
	 * it connects.
	 */
	pair_barrier(s);
	pool = s->pool;
	memset(medium, 0, sizeof(medium));
	/* The base's entry of a write to plain memory, for comparison. */
	next_entry(s, &v.base, &v.base_from);
	v.base_at = offset_of(v.base.buf, s->plain);
	/*
	 * The persistent writes begin after this barrier, because their entries
	 * have no order with the base's.
	 */
	pair_barrier(s);
	for (; v.notes < NOTES; v.notes++) {
		const char *note = medium + LOG + v.notes * RECORD;

		next_entry(s, &v.ours, &v.ours_from);
		v.early += note[0] != 'n' || note[RECORD - 1] != 'n';
		v.strange += v.ours.data != 0xda7a00 + v.notes;
	}
	v.peer = s->peer;
	v.ours_at = offset_of(v.ours.buf, s->pool);
	/*
	 * The entry of a write without commit says only that the bytes are
	 * placed.
	 */
	next_entry(s, &plain, &from);
	v.strange += plain.data != 0x91a1 || s->pool[LOG - 1] != 'n';
	v.twice = !side_quiet(s);
	memset(medium, 0, sizeof(medium));
	memset(s->pool, 0, LOG);
	pair_barrier(s); /* the target has read the notifications */
	pair_barrier(s); /* the initiator has written the log */
	v.syncs = atomic_load(&syncs);
	v.torn = atomic_load(&torn);
	v.tail = tail_of(medium);
	POST(s, fi_send(s->ep, &v, sizeof(v), NULL, s->peer, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	pool = NULL;
}

/* --- the initiator --- */

static void check_notifications(struct side *s, const struct card *peer)
{
	static char bytes[RECORD];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov rma = {0};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = bytes,
	};
	int good = 0;

	memset(bytes, 'n', sizeof(bytes));
	POST(s, fi_writedata(s->ep, bytes, sizeof(bytes), NULL, 0xba5e, s->peer,
			     peer->plain_addr + LOG, peer->plain_key, bytes));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	pair_barrier(s);
	rma.key = peer->pool_key;
	rma.len = sizeof(bytes);
	for (int i = 0; i < NOTES; i++) {
		rma.addr = peer->pool_addr + LOG + i * RECORD;
		msg.data = 0xda7a00 + i;
		POST(s, fi_writemsg(s->ep, &msg,
				    FI_COMMIT_COMPLETE | FI_REMOTE_CQ_DATA));
	}
	for (int i = 0; i < NOTES; i++)
		good += side_wait(s, &e, &err) && e.op_context == bytes &&
			e.flags == (FI_RMA | FI_WRITE);
	OK(good == NOTES, "writes with CQ data and commit succeed");
	POST(s, fi_writedata(s->ep, bytes, 1, NULL, 0x91a1, s->peer,
			     peer->pool_addr + LOG - 1, peer->pool_key, bytes));
	OK(side_wait(s, &e, &err) && e.op_context == bytes,
	   "and so does one without a commit");
}

/*
 * The value of each ordered store, as fi_read() and an atomic found it that
 * were posted behind the commit.
 */
static uint64_t reads[RECORDS][2];
static int loose; /* outstanding operations with context NULL */

static void meet_store(struct side *s, const struct fi_rpmem_then *then)
{
	uint64_t *to = reads[then->value - 1];

	POST(s, fi_read(s->ep, &to[0], 8, NULL, s->peer, then->addr, then->key,
			NULL));
	POST(s, fi_fetch_atomic(s->ep, NULL, 1, NULL, &to[1], NULL, s->peer,
				then->addr, then->key, FI_UINT64,
				FI_ATOMIC_READ, NULL));
	loose += 2;
}

static void check_append(struct side *s, const struct card *peer)
{
	static char bytes[RECORDS][RECORD];
	struct fi_rpmem_then then = {
		.key = peer->pool_key,
		.addr = peer->pool_addr + TAIL,
	};
	struct fi_rma_iov r = {0, RECORD, peer->pool_key};
	int posted = 0, ended = 0, good = 0, order = 0;
	int early = 0, early_atomic = 0;
	uint64_t seen = 0;

	while (ended < RECORDS) {
		/* At most four commits at a time. */
		while (posted < RECORDS && posted - ended < 4) {
			r.addr = peer->pool_addr + LOG + posted * RECORD;
			memset(bytes[posted], posted + 1, RECORD);
			POST(s, fi_write(s->ep, bytes[posted], RECORD, NULL,
					 s->peer, r.addr, r.key, NULL));
			then.value = ++posted;
			POST(s, commit_post(s->ep, &r, 1, s->peer,
					    FI_RPMEM_DURABLE,
					    FI_RPMEM_CLASS_DEFAULT, &then,
					    bytes[posted - 1]));
			loose++; /* the write has no context */
			if (s->o.caps & FI_ATOMIC)
				meet_store(s, &then);
		}
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
		if (!e.op_context) {
			loose--;
			continue;
		}
		order += e.op_context == bytes[ended];
		good += e.flags == (FI_RMA | FI_WRITE);
		ended++;
	}
	OK(good == RECORDS && order == RECORDS,
	   "commits with a store succeed, in order");
	for (; loose; loose--)
		if (!side_wait(s, &e, &err) || e.op_context)
			MUST(-err.err);
	for (uint64_t i = 0; i < RECORDS && (s->o.caps & FI_ATOMIC); i++) {
		early += reads[i][0] <= i;
		early_atomic += reads[i][1] <= i;
	}
	OK(!early, "a read behind a commit sees its store");
	OK(!early_atomic, "and so does an atomic");
	POST(s, fi_read(s->ep, &seen, sizeof(seen), NULL, s->peer, then.addr,
			then.key, &seen));
	OK(side_wait(s, &e, &err) && seen == RECORDS, "the last store counts");
}

static void check_refusals(struct side *s, const struct card *peer)
{
	struct fi_rma_iov r = {peer->pool_addr, 64, peer->pool_key};
	struct fi_rpmem_then t = {peer->pool_key, peer->pool_addr + 4, 1};

#define COMMIT(level)                                                          \
	commit_post(s->ep, &r, 1, s->peer, level, FI_RPMEM_CLASS_DEFAULT, &t,  \
		    NULL)
	OK(COMMIT(FI_RPMEM_DURABLE) == -FI_EINVAL, "an address not aligned");
	t.addr = peer->pool_addr;
	OK(COMMIT(FI_RPMEM_VISIBLE) == -FI_EINVAL, "level visible");
	t.key = peer->plain_key;
	OK(COMMIT(FI_RPMEM_DURABLE) == -FI_EKEYREJECTED, "volatile memory");
	t.key = 1;
	OK(COMMIT(FI_RPMEM_DURABLE) == -FI_EKEYREJECTED, "another's key");
	t.key = peer->pool_key;
	t.addr = peer->pool_addr + PAIR_POOL;
	POST(s, COMMIT(FI_RPMEM_DURABLE));
	OK(!side_wait(s, &e, &err) && err.prov_errno == RP_ST_RANGE,
	   "a place outside the region");
}

static void run_initiator(struct side *s, const struct card *peer)
{
	struct verdict v;

	pair_barrier(s);
	check_notifications(s, peer);
	pair_barrier(s);
	check_append(s, peer);
	check_refusals(s, peer);
	POST(s, fi_recv(s->ep, &v, sizeof(v), NULL, FI_ADDR_UNSPEC, &v));
	pair_barrier(s);
	if (!side_wait(s, &e, &err) || e.op_context != &v)
		MUST(-FI_EOTHER);
	OK(v.syncs > 60, "the target's medium is watched");
	OK(v.notes == NOTES && !v.twice, "one entry for each write");
	OK(!v.early, "and not before its bytes were durable");
	/* fi_cq(3): only receives have len, and only tagged messages a tag. */
	OK(!v.strange && v.ours.flags == v.base.flags &&
		   (v.ours.len == v.base.len || !v.ours.len) &&
		   v.ours.op_context == v.base.op_context,
	   "as the base's entry of a write with CQ data");
	printf("# %u strange; flags %#llx of %zu bytes for %p, the base says "
	       "%#llx, %zu, %p\n",
	       v.strange, (unsigned long long)v.ours.flags, v.ours.len,
	       v.ours.op_context, (unsigned long long)v.base.flags, v.base.len,
	       v.base.op_context);
	/* sockets reports the source even without FI_SOURCE. */
	OK(v.ours_from == v.peer ||
		   (!s->o.sources && v.ours_from == FI_ADDR_NOTAVAIL),
	   "and from whom");
	OK(v.base_at == ~0ull ? v.ours_at == ~0ull
			      : v.base_at == LOG &&
					v.ours_at == LOG + (NOTES - 1) * RECORD,
	   "where, if the base says that");
	OK(!v.torn, "at no time a power cut finds a tail without its records");
	OK(v.tail == RECORDS, "the last store is durable");
}

int main(void)
{
	static const struct {
		const char *label;
		struct pair_opts o;
	} runs[] = {
		{"manual", {.caps = FI_ATOMIC, .sources = true}},
		{"auto, sread", {.progress = FI_PROGRESS_AUTO, .sleeps = true}},
		{"sockets", {.prov = "sockets;ofi_rpmem", .caps = FI_ATOMIC}},
	};

	/*
	 * So long that a slow target on a loaded machine is not taken for
	 * silent.
	 */
	setenv("FI_OFI_RPMEM_TIMEOUT", "30000", 0);
	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		label = runs[i].label;
		pair_run(&runs[i].o, &runs[i].o, run_target, run_initiator);
	}
	return tap_done();
}
