// SPDX-License-Identifier: BSD-2-Clause
/*
 * Transactions with optimistic locks on a server's pool, with and without the
 * advice of Wei et al. 2021, section 6.1: read the records, lock them by
 * compare and swap, write the log, and send the updates to the server.
 *
 *   transactions [--check] [--emulate] [--sleep] [--rounds N] [--each N]
 */
#include <stdio.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "benchmarks/study.h"

enum {
	STREAM = 1,    /* H4, H7: the server stores non-temporally */
	PAD = 2,       /* H5, H6, H7: records and log entries aligned, padded */
	APART = 4,     /* H8: locks in volatile memory */
	DURABLE = 8,   /* the log is durable before the updates are sent */
	TOGETHER = 16, /* H9: write and commit without a wait between them */
	ONE_TRIP = 32, /* H9: by one request */
};
#define OPT (STREAM | PAD | APART)

static const struct study_way ways[] = {
	{"plain", 0, -1},
	{"+H4", STREAM, 0},
	{"+H5 H6 H7", STREAM | PAD, 1},
	{"+H8", OPT, 2},
	{"H4 to H8", OPT, 0},
	{"+persist", OPT | DURABLE, 3},
	{"+H9, two requests", OPT | DURABLE | TOGETHER, 5},
	{"+H9, one request", OPT | DURABLE | ONE_TRIP, 5},
};
#define WAYS ((unsigned int)(sizeof(ways) / sizeof(*ways)))

enum {
	AREA = STUDY_POOL / 8, /* bytes of the area that each way has */
	LOG = AREA / 2,	       /* offset of the log in an area */
	ACCOUNTS = 400,
	MOST = 11,    /* maximum records of a transaction */
	PAYLOAD = 96, /* maximum bytes of a record */
	UNITS = 1000, /* initial units of each account */
};

/* A record: lock, version, payload. The payload begins with the balance. */
struct record {
	uint64_t lock, version;
	unsigned char payload[PAYLOAD];
};

struct entry { /* an entry of a log, and of a message with updates */
	uint64_t account, version;
	unsigned char payload[PAYLOAD];
};

static unsigned int records;  /* number of records of a transaction */
static size_t payload;	      /* bytes in a record */
static uint64_t log_at[WAYS]; /* the client's offset in each log */

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/*
 * H5: lengths of 256 bytes and more; H6 and H7: lengths below, in lines of 64.
 */
static size_t padded_length(size_t n, unsigned int flags)
{
	if (!(flags & PAD))
		return n;
	return round_up(n, n < 256 ? 64 : 256);
}

static size_t stride(unsigned int flags)
{
	return padded_length(16 + payload, flags);
}

static size_t entry_size(void)
{
	return 16 + payload;
}

static uint64_t balance(const unsigned char *p)
{
	uint64_t b;

	memcpy(&b, p, sizeof(b));
	return b;
}

/*
 * Fill in the payload of a version: the balance, and bytes that show the
 * version.
 */
static void fill(unsigned char *p, uint64_t units, uint64_t version)
{
	memset(p, (int)version & 0xff, payload);
	memcpy(p, &units, sizeof(units));
}

/* --- the server --- */

static void begin(void)
{
	for (unsigned int w = 0; w < WAYS; w++)
		for (unsigned int a = 0; a < ACCOUNTS; a++) {
			char *at = study_pool() + w * AREA +
				   a * stride(ways[w].flags);
			struct record r = {0};

			fill(r.payload, UNITS, 0);
			memcpy(at, &r, 16 + payload);
		}
}

static char *lock_of(const struct study_message *m, uint64_t account)
{
	const unsigned int flags = ways[m->way].flags;

	if (flags & APART)
		return study_plain() + (m->way * ACCOUNTS + account) * 8;
	return study_pool() + m->way * AREA + account * stride(flags);
}

/* Store an update and release the lock. */
static void apply(const struct study_message *m, const unsigned char *from)
{
	const unsigned int flags = ways[m->way].flags;
	struct record r = {0};
	struct entry e;
	char *at, *lock;

	memcpy(&e, from, entry_size());
	at = study_pool() + m->way * AREA + e.account * stride(flags);
	lock = lock_of(m, e.account);
	atomic_fetch_add(&study_shared->wrong, balance((void *)lock) != m->id);
	r.version = e.version;
	memcpy(r.payload, e.payload, payload);
	if (flags & PAD)
		/* Whole cache lines: the store reads none of them first. */
		study_copy(at, &r, stride(flags), flags & STREAM);
	else
		study_copy(at + 8, &r.version, 8 + payload, flags & STREAM);
	memset(lock, 0, 8);
}

/*
 * Check a way: the sums of balances and versions, and one version per record.
 */
static void audit(unsigned int w)
{
	uint64_t units = 0, versions = 0;
	unsigned char want[PAYLOAD];

	for (unsigned int a = 0; a < ACCOUNTS; a++) {
		struct record r = {0};

		memcpy(&r, study_pool() + w * AREA + a * stride(ways[w].flags),
		       16 + payload);
		units += balance(r.payload);
		versions += r.version;
		fill(want, balance(r.payload), r.version);
		atomic_fetch_add(&study_shared->wrong,
				 r.lock || memcmp(want, r.payload, payload));
	}
	atomic_fetch_add(&study_shared->wrong,
			 units != (uint64_t)ACCOUNTS * UNITS ||
				 versions != study_shared->done[w] * records);
}

enum {
	UPDATE = 1,
	AUDIT
};

static void handle(const struct study_message *m, size_t len,
		   struct study_reply *r)
{
	r->value = 1;
	if (m->op == AUDIT) {
		audit(m->way);
		return;
	}
	/* The client wrote the log before: with DURABLE it is on the medium. */
	if (ways[m->way].flags & DURABLE)
		study_judge(m->offset, m->body, len);
	for (size_t at = 0; at + entry_size() <= len; at += entry_size())
		apply(m, m->body + at);
}

/* --- the client --- */

static uint64_t record_at(unsigned int way, uint64_t account)
{
	return study_shared->addr + way * AREA +
	       account * stride(ways[way].flags);
}

static void choose(uint64_t *account)
{
	for (unsigned int i = 0; i < records;) {
		unsigned int same = 0;

		account[i] = study_random() % ACCOUNTS;
		for (unsigned int j = 0; j < i; j++)
			same += account[j] == account[i];
		i += !same;
	}
}

/* Execution: one-sided reads. */
static void read_records(struct side *s, unsigned int way,
			 const uint64_t *account, struct record *r, size_t len)
{
	for (unsigned int i = 0; i < records; i++)
		POST(s,
		     fi_read(s->ep, &r[i], len, NULL, s->peer,
			     record_at(way, account[i]), study_shared->key, s));
	study_wait(s, records);
}

/* Validation: each lock by compare and swap, then no version has changed. */
static void lock_records(struct side *s, unsigned int way,
			 const uint64_t *account, const struct record *r,
			 const uint64_t *id)
{
	const bool apart = ways[way].flags & APART;
	static uint64_t none;
	struct record again[MOST];
	uint64_t found[MOST];

	for (unsigned int i = 0; i < records; i++)
		POST(s,
		     fi_compare_atomic(
			     s->ep, id, 1, NULL, &none, NULL, &found[i], NULL,
			     s->peer,
			     apart ? study_card.plain_addr +
					     (way * ACCOUNTS + account[i]) * 8
				   : record_at(way, account[i]),
			     apart ? study_card.plain_key : study_shared->key,
			     FI_UINT64, FI_CSWAP, s));
	study_wait(s, records);
	read_records(s, way, account, again, 16);
	/* With one client no other has a lock, or wrote a newer version. */
	for (unsigned int i = 0; i < records; i++)
		if (found[i] || again[i].version != r[i].version)
			atomic_fetch_add(&study_shared->wrong, 1);
}

/* Each record but the first gives one unit to the first. */
static size_t update(const struct record *r, const uint64_t *account,
		     unsigned char *to)
{
	for (unsigned int i = 0; i < records; i++) {
		struct entry e = {
			.account = account[i],
			.version = r[i].version + 1,
		};

		fill(e.payload,
		     balance(r[i].payload) + (i ? -1ull : records - 1),
		     e.version);
		memcpy(to + i * entry_size(), &e, entry_size());
	}
	return records * entry_size();
}

static void work(struct side *s, unsigned int way)
{
	static struct study_message m;
	static uint64_t id;
	const unsigned int flags = ways[way].flags;
	uint64_t account[MOST];
	struct record r[MOST];
	size_t len, log_len;

	m.op = UPDATE;
	m.way = way;
	m.id = ++id;
	choose(account);
	read_records(s, way, account, r, 16 + payload);
	lock_records(s, way, account, r, &id);
	len = update(r, account, m.body);
	log_len = padded_length(len, flags);
	memset(m.body + len, 0, log_len - len);
	if (log_at[way] + log_len > AREA - LOG)
		log_at[way] = 0;
	m.offset = way * AREA + LOG + log_at[way];
	log_at[way] += log_len;
	study_write(s, m.body, log_len, m.offset,
		    !(flags & DURABLE) ? STUDY_PLACED
		    : flags & TOGETHER ? STUDY_TOGETHER
		    : flags & ONE_TRIP ? STUDY_ONE_TRIP
				       : STUDY_TWO_TRIPS);
	study_call(s, &m, len);
}

static void end(struct side *s)
{
	struct study_message m = {.op = AUDIT};

	for (m.way = 0; m.way < WAYS; m.way++)
		study_call(s, &m, 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned int records;
		size_t payload;
	} loads[] = {
		{"smallbank", 2, 24}, /* one or two small records */
		{"new-order", MOST, PAYLOAD},
	};

	study_start(argc, argv);
	for (unsigned int i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		const struct study study = {
			.name = loads[i].name,
			.ways = ways,
			.ways_n = WAYS,
			.work = work,
			.begin = begin,
			.handle = handle,
			.end = end,
		};

		records = loads[i].records;
		payload = loads[i].payload;
		study_run(&study);
	}
	return study_options.check ? tap_done() : 0;
}
