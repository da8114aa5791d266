/* SPDX-License-Identifier: BSD-2-Clause */
/* librpmem_log on a pool in memory: power cuts, readers, threads, errors. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "log_writer.h"

/* Close the handle without writing anything, as if its process were killed. */
static void kill_writer(struct log_test *l)
{
	l->log->failed = -EIO; /* makes close() publish nothing */
	rpmem_log_close(l->log);
	l->log = NULL;
}

/* Read all entries of a log; they must equal the model from m->first on. */
static unsigned int compare_with_model(struct log_test *l,
				       struct rpmem_log *log,
				       unsigned int flags)
{
	unsigned char bytes[LEN], want[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD, before;
	unsigned int at = l->m.first;
	size_t len;
	int ret;

	while ((before = lsn,
		ret = rpmem_log_read(log, &lsn, bytes, LEN, &len, flags)) > 0) {
		cr_assert_lt(at, l->m.n, "seed %" PRIu64 ": an entry too many",
			     l->rnd.seed);
		fill_entry(want, &l->m.v[at]);
		cr_assert(len == l->m.v[at].len && !memcmp(want, bytes, len),
			  "seed %" PRIu64 ": entry %u differs", l->rnd.seed,
			  at);
		cr_assert_gt(lsn, before);
		if (!l->m.v[at].lsn && before)
			l->m.v[at].lsn = before;
		at++;
	}
	cr_assert_eq(ret, 0, "seed %" PRIu64 ": %s", l->rnd.seed,
		     rpmem_log_error());
	return at;
}

/* Trim some of the acknowledged entries. */
static void trim_log(struct log_test *l)
{
	struct model *m = &l->m;
	unsigned char bytes[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD;
	unsigned int drop;
	size_t len;

	if (m->acked == m->first)
		return;
	drop = 1 + (unsigned int)seeded_below(&l->rnd, m->acked - m->first);
	for (unsigned int i = 0; i < drop; i++)
		cr_assert_eq(rpmem_log_read(l->log, &lsn, bytes, LEN, &len, 0),
			     1, "seed %" PRIu64 ": %s", l->rnd.seed,
			     rpmem_log_error());
	cr_assert_eq(rpmem_log_trim(l->log, lsn), 0, "seed %" PRIu64 ": %s",
		     l->rnd.seed, rpmem_log_error());
	m->first += drop;
}

/* Run a writer up to a random step, at which the writer or its target ends. */
static void run_writer(struct log_test *l)
{
	const unsigned int steps = 1 + (unsigned int)seeded_below(&l->rnd, 40);
	unsigned int end;

	open_log(l);
	end = compare_with_model(l, l->log, 0);
	cr_assert_geq(end, l->m.acked,
		      "seed %" PRIu64 ": entry %u was acknowledged, and only "
		      "%u are there",
		      l->rnd.seed, l->m.acked - 1, end);
	/* The recovered entries are the model from now on. */
	l->m.n = l->m.acked = end;
	for (unsigned int i = 0;
	     i < steps && l->m.n + BATCH < MODEL && l->nbatches < 256; i++)
		switch (seeded_below(&l->rnd, 8)) {
		case 0:
			trim_log(l);
			break;
		case 1:
		case 2:
			poll_log(l, 0);
			break;
		case 3:
			cr_assert_eq(rpmem_log_publish(l->log), 0);
			break;
		default:
			submit_append(l);
		}
	if (seeded_below(&l->rnd, 2))
		rig_cut(&l->rig);
	else
		rig_kill(&l->rig);
	kill_writer(l);
}

static void many_lives(uint32_t layout)
{
	static struct log_test l;

	for (unsigned int run = 0; run < 40; run++) {
		memset(&l, 0, sizeof(l));
		start_life(&l, LOG_RING_AT + 4096 + 64 * (run % 160), layout);
		for (unsigned int i = 0; i < 60; i++)
			run_writer(&l);
		open_log(&l);
		compare_with_model(&l, l.log, 0);
		kill_writer(&l);
		rig_fini(&l.rig);
	}
}

Test(rpmem_log, entries_layout_recovers_a_prefix_with_all_acknowledged)
{
	many_lives(RPMEM_LOG_ENTRY);
}

Test(rpmem_log, tail_layout_recovers_a_prefix_with_all_acknowledged)
{
	many_lives(RPMEM_LOG_TAIL);
}

Test(rpmem_log, counter_layout_recovers_a_prefix_with_all_acknowledged)
{
	many_lives(RPMEM_LOG_COUNTER);
}

Test(rpmem_log, register_layout_recovers_a_prefix_with_all_acknowledged)
{
	many_lives(RPMEM_LOG_REGISTER);
}

/* A reader beside the writer reads durable entries only, finally all. */
static void reader_follows(uint32_t layout)
{
	struct log_test *l = &one;
	unsigned char bytes[LEN], want[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log *reader;
	struct log_io io;
	unsigned int at = 0;
	size_t len;
	int ret;

	open_one(l, 8192, layout);
	io = rig_io(&l->reader_port);
	cr_assert_eq(log_open(&reader, &io, true), 0, "%s", rpmem_log_error());
	for (unsigned int i = 0;
	     i < 20000 && l->m.n + BATCH < MODEL && l->nbatches < 256; i++) {
		switch (seeded_below(&l->rnd, 6)) {
		case 0:
			if (at > l->m.first)
				trim_log(l);
			break;
		case 1:
			submit_append(l);
			break;
		case 2:
			poll_log(l, 0);
			break;
		default:
			ret = rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0);
			if (ret == -ERANGE) {
				at = l->m.first;
				break;
			}
			cr_assert(ret == 0 || ret == 1, "seed %" PRIu64 ": %s",
				  l->rnd.seed, rpmem_log_error());
			if (!ret)
				break;
			cr_assert_lt(at, l->m.n);
			fill_entry(want, &l->m.v[at]);
			cr_assert(len == l->m.v[at].len &&
					  !memcmp(want, bytes, len),
				  "seed %" PRIu64 ": entry %u differs",
				  l->rnd.seed, at);
			at++;
			cr_assert_leq(lsn, l->log->durable,
				      "seed %" PRIu64 ": entry %u is not "
				      "durable yet",
				      l->rnd.seed, at - 1);
		}
	}
	while (l->done < l->nbatches)
		poll_log(l, -1);
	cr_assert_eq(rpmem_log_publish(l->log), 0);
	while (at < l->m.n) {
		ret = rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0);
		cr_assert(ret == 1 || ret == -ERANGE, "seed %" PRIu64 ": %d",
			  l->rnd.seed, ret);
		at = ret == 1 ? at + 1 : l->m.first;
	}
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 0);
	rpmem_log_close(reader);
	close_one(l);
}

Test(rpmem_log, reader_gets_durable_entries_only_and_all_at_last)
{
	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++)
		for (unsigned int i = 0; i < 20; i++)
			reader_follows(layout);
}

/* Place the bytes of outstanding writes; commits stay outstanding. */
static void place_writes(struct log_test *l)
{
	for (unsigned int i = 0; i < l->rig.nops; i++)
		if (l->rig.ops[i].op->type == RPMEM_POOL_WRITE)
			memcpy(l->rig.visible + l->rig.ops[i].op->offset,
			       l->rig.ops[i].op->buf, l->rig.ops[i].op->len);
}

Test(rpmem_log, visible_flag_reads_an_entry_that_is_not_durable)
{
	struct log_test *l = &one;
	unsigned char bytes[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log *reader;
	struct log_io io;
	size_t len;

	open_one(l, 8192, RPMEM_LOG_TAIL);
	io = rig_io(&l->reader_port);
	cr_assert_eq(log_open(&reader, &io, true), 0);
	submit_append(l);
	place_writes(l);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 0);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len,
				    RPMEM_LOG_VISIBLE),
		     1);
	cr_assert_eq(len, l->m.v[0].len);
	while (l->done < l->nbatches)
		poll_log(l, -1);
	rpmem_log_close(reader);
	close_one(l);
}

static struct rpmem_log *open_reader(struct log_test *l)
{
	const struct log_io io = rig_io(&l->reader_port);
	struct rpmem_log *reader;

	cr_assert_eq(log_open(&reader, &io, true), 0, "%s", rpmem_log_error());
	return reader;
}

/* A reader that lags gets dropped entries from its buffer only. */
Test(rpmem_log, reader_gets_no_dropped_entry_that_it_has_not_read_yet)
{
	struct log_test *l = &one;
	unsigned char bytes[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD, last;
	struct rpmem_log *reader;
	size_t len, n = 0;
	int ret;

	open_one(l, 1 << 20, RPMEM_LOG_ENTRY);
	reader = open_reader(l);
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(append_bytes(l, LEN, NULL), 0);
	cr_assert_eq(rpmem_log_publish(l->log), 0);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 1);
	cr_assert_eq(rpmem_log_trim(l->log, l->log->tail), 0);
	while ((ret = rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0)) == 1)
		n += len;
	cr_assert_eq(ret, -ERANGE, "%d behind %zu bytes", ret, n);
	cr_assert_leq(n, 65536);
	/* RPMEM_LOG_HEAD is an entry, even if the reader knows an old head. */
	cr_assert_eq(append_bytes(l, 10, NULL), 0);
	cr_assert_eq(append_bytes(l, 20, &last), 0);
	cr_assert_eq(rpmem_log_trim(l->log, last), 0);
	lsn = RPMEM_LOG_HEAD;
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 1);
	cr_assert_eq(len, 20);
	rpmem_log_close(reader);
	close_one(l);
}

#define CHUNK 65536u /* bytes of a read into the buffer of a reader */
#define LONG  (3 * CHUNK)

/* The buffer of a reader, which may be used up to CHUNK. */
static unsigned char *guarded;

/* A read of more than CHUNK bytes may use the whole buffer. */
static int guarded_submit(void *arg, struct rpmem_pool_op *op)
{
	struct rig_port *port = arg;

	if (op->type == RPMEM_POOL_READ && op->len > CHUNK)
		cr_assert_eq(
			mprotect(guarded, 4 * CHUNK, PROT_READ | PROT_WRITE),
			0);
	return rig_io(port).submit(arg, op);
}

/* Write a header of len bytes to lsn, as of a writer that is cut off then. */
static void place_header(struct log_test *l, uint64_t lsn, uint32_t len)
{
	const struct log_entry e = {
		.lsn = lsn,
		.durable = lsn,
		.epoch = l->log->super.epoch,
		.len = len,
	};
	static unsigned char bytes[LOG_HEADER + CHUNK];

	log_entry_encode(&l->log->super, &e, bytes);
	memcpy(l->rig.visible + LOG_RING_AT + lsn, bytes, LOG_HEADER);
}

/*
 * A reader has the header of an entry in its buffer, and reads the bytes again.
 * Meanwhile the next writer has put a longer entry there.
 */
Test(rpmem_log, reader_stays_in_its_buffer_when_an_entry_becomes_longer)
{
	static unsigned char bytes[LONG];
	struct log_test *l = &one;
	uint64_t lsn = RPMEM_LOG_HEAD, at;
	struct rpmem_log *reader;
	struct log_io io;
	size_t len;

	open_one(l, 1 << 20, RPMEM_LOG_ENTRY);
	cr_assert_eq(append_bytes(l, CHUNK - 128, NULL), 0);
	cr_assert_eq(rpmem_log_publish(l->log), 0);
	at = l->log->tail;
	place_header(l, at, 1024);
	io = rig_io(&l->reader_port);
	io.submit = guarded_submit;
	cr_assert_eq(log_open(&reader, &io, true), 0);
	free(reader->cache);
	guarded = aligned_alloc(4096, 4 * CHUNK);
	reader->cache = guarded;
	reader->cache_len = 0;
	reader->cache_size = 4 * CHUNK;
	cr_assert_eq(mprotect(guarded + CHUNK, 3 * CHUNK, PROT_NONE), 0);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LONG, &len, 0), 1);
	cr_assert_eq(lsn, at);
	kill_writer(l);
	open_log(l);
	cr_assert_eq(l->log->tail, at);
	cr_assert_eq(rpmem_log_append(l->log, bytes, LONG, NULL), 0);
	cr_assert_eq(rpmem_log_publish(l->log), 0);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LONG, &len, 0), 1);
	cr_assert_eq(len, LONG);
	rpmem_log_close(reader);
	close_one(l);
}

static struct rpmem_log_info query(struct rpmem_log *log)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	cr_assert_eq(rpmem_log_query(log, &info), 0, "%s", rpmem_log_error());
	return info;
}

/* Also for a reader whose cache has the bytes before the entries. */
Test(rpmem_log, reader_knows_visible_and_durable_positions)
{
	struct log_test *l = &one;
	struct rpmem_log_info info;
	struct rpmem_log *reader;
	uint64_t first, second;
	struct log_io io;

	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		open_one(l, 8192, layout);
		io = rig_io(&l->reader_port);
		cr_assert_eq(log_open(&reader, &io, true), 0);
		info = query(reader);
		cr_assert_eq(info.visible, LOG_FIRST);
		submit_append(l);
		first = l->log->tail;
		cr_assert_eq(query(reader).visible, LOG_FIRST, "on the way");
		place_writes(l);
		info = query(reader);
		cr_assert_eq(info.visible, first);
		cr_assert_eq(info.durable, LOG_FIRST);
		cr_assert_eq(info.tail, LOG_FIRST);
		while (l->done < l->nbatches)
			poll_log(l, -1);
		cr_assert_eq(query(l->log).visible, first);
		/* The next entry says that those before it are durable. */
		submit_append(l);
		second = l->log->tail;
		cr_assert_eq(query(l->log).visible, first);
		place_writes(l);
		info = query(reader);
		cr_assert_eq(info.visible, second);
		cr_assert_geq(info.durable, first);
		/* A crash takes the entry away; the next writer drops it. */
		l->rig.nops = 0;
		memcpy(l->rig.visible + LOG_RING_AT + first,
		       (char[LOG_ALIGN]){0}, LOG_ALIGN);
		l->log->failed = -EIO;
		rpmem_log_close(l->log);
		io = rig_io(&l->port);
		cr_assert_eq(log_open(&l->log, &io, false), 0, "%s",
			     rpmem_log_error());
		info = query(reader);
		cr_assert_eq(info.visible, first);
		cr_assert_eq(info.durable, first);
		rpmem_log_close(reader);
		close_one(l);
	}
}

/* A pad at the ring's end arrives before the entry at the ring's start. */
Test(rpmem_log, pad_without_the_entry_behind_it_is_not_visible)
{
	static unsigned char bytes[1024];
	const struct iovec v = {bytes, sizeof(bytes)};
	struct rpmem_log_op op = {.entries = &v, .count = 1};
	struct log_test *l = &one;
	struct rpmem_log *reader;
	struct log_io io;
	uint64_t at;

	open_one(l, 8192, RPMEM_LOG_ENTRY);
	io = rig_io(&l->reader_port);
	cr_assert_eq(log_open(&reader, &io, true), 0);
	while (l->log->tail % l->log->super.ring < 8192 - 512)
		cr_assert_eq(append_bytes(l, 200, NULL), 0);
	at = l->log->tail;
	cr_assert_eq(rpmem_log_trim(l->log, at), 0);
	cr_assert_eq(rpmem_log_submit(l->log, &op), 0, "%s", rpmem_log_error());
	for (unsigned int i = 0; i < l->rig.nops; i++) {
		const struct rpmem_pool_op *w = l->rig.ops[i].op;

		if (w->offset == LOG_RING_AT + at % l->log->super.ring)
			memcpy(l->rig.visible + w->offset, w->buf, w->len);
	}
	cr_assert_eq(query(reader).visible, at);
	place_writes(l);
	cr_assert_eq(query(reader).visible, l->log->tail);
	while (rpmem_log_poll(l->log, &(struct rpmem_log_op *){NULL}, 1, -1) !=
	       1)
		;
	rpmem_log_close(reader);
	close_one(l);
}

Test(rpmem_log, poll_publishes_without_waiting)
{
	struct log_test *l = &one;
	unsigned char bytes[LEN];
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log_info info = {.size = sizeof(info)};
	struct rpmem_log_op *done[1];
	struct rpmem_log *reader;
	struct log_io io;
	size_t len;

	open_one(l, 8192, RPMEM_LOG_ENTRY);
	io = rig_io(&l->reader_port);
	cr_assert_eq(log_open(&reader, &io, true), 0);
	submit_append(l);
	poll_log(l, -1);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 0);
	cr_assert_eq(lsn, RPMEM_LOG_HEAD, "nothing was read");
	l->rig.hold_writes = true;
	cr_assert_eq(rpmem_log_poll(l->log, done, 1, 0), 0);
	cr_assert_eq(rpmem_log_poll(l->log, done, 1, 0), 0);
	cr_assert_eq(l->rig.nops, 1);
	l->rig.hold_writes = false;
	cr_assert_eq(rpmem_log_poll(l->log, done, 1, 0), 0);
	cr_assert_eq(l->rig.nops, 0);
	cr_assert_eq(rpmem_log_read(reader, &lsn, bytes, LEN, &len, 0), 1);
	/* A query by a reader returns the current head and durable mark. */
	submit_append(l);
	poll_log(l, -1);
	cr_assert_eq(rpmem_log_trim(l->log, l->log->durable), 0);
	cr_assert_eq(rpmem_log_query(reader, &info), 0);
	cr_assert_eq(info.head, l->log->durable);
	cr_assert_eq(info.durable, l->log->durable);
	/* A failed write of the durable mark is reported later. */
	submit_append(l);
	poll_log(l, -1);
	l->rig.fail_once = -EIO;
	cr_assert_eq(rpmem_log_poll(l->log, done, 1, 0), 0);
	cr_assert_eq(rpmem_log_poll(l->log, done, 1, 0), -EIO);
	cr_assert_eq(rpmem_log_publish(l->log), -EIO);
	cr_assert_eq(rpmem_log_trim(l->log, l->log->tail), -EIO);
	rpmem_log_close(reader);
	close_one(l);
}

/* The rig for several threads: polls wait for an operation. */
static pthread_mutex_t rig_lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_io rig_calls;

static int locked_submit(void *arg, struct rpmem_pool_op *op)
{
	int ret;

	pthread_mutex_lock(&rig_lock);
	ret = rig_calls.submit(arg, op);
	pthread_mutex_unlock(&rig_lock);
	return ret;
}

static int locked_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		       int timeout_ms)
{
	int ret;

	do {
		pthread_mutex_lock(&rig_lock);
		ret = rig_calls.poll(arg, done, n, 0);
		pthread_mutex_unlock(&rig_lock);
		sched_yield();
	} while (!ret && timeout_ms);
	return ret;
}

struct worker {
	pthread_t thread;
	pthread_barrier_t *round;
	unsigned int job;
};

#define ROUNDS 3000

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct rpmem_log_info info = {.size = sizeof(info)};
	int ret;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(w->round);
		switch ((w->job + i / 1000) % 3) {
		case 0:
			ret = rpmem_log_append(one.log, "0123456789", 10, NULL);
			break;
		case 1:
			ret = rpmem_log_query(one.log, &info);
			if (!ret)
				ret = rpmem_log_trim(one.log, info.durable);
			break;
		default:
			ret = rpmem_log_publish(one.log);
		}
		if (ret)
			return (void *)(uintptr_t)-ret;
	}
	return NULL;
}

Test(rpmem_log, three_threads_append_trim_and_publish, .timeout = 120)
{
	struct log_test *l = &one;
	struct worker w[3];
	pthread_barrier_t round;
	void *failed;

	open_one(l, 8192, RPMEM_LOG_ENTRY);
	rig_calls = l->log->io;
	l->log->io.submit = locked_submit;
	l->log->io.poll = locked_poll;
	pthread_barrier_init(&round, NULL, 3);
	for (unsigned int i = 0; i < 3; i++) {
		w[i] = (struct worker){.round = &round, .job = i};
		cr_assert_eq(
			pthread_create(&w[i].thread, NULL, worker_run, &w[i]),
			0);
	}
	for (unsigned int i = 0; i < 3; i++) {
		pthread_join(w[i].thread, &failed);
		cr_assert_null(failed, "thread %u: errno %d", i,
			       (int)(uintptr_t)failed);
	}
	pthread_barrier_destroy(&round);
	close_one(l);
}

Test(rpmem_log, failed_write_ends_the_writer_and_all_that_is_outstanding)
{
	struct log_test *l = &one;
	struct rpmem_log_op *done[8];
	unsigned int got = 0;
	int n;

	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		open_one(l, 8192, layout);
		for (int i = 0; i < 4; i++)
			submit_append(l);
		l->rig.fail_once = -EIO;
		for (got = 0; got < 4; got += (unsigned int)n) {
			n = rpmem_log_poll(l->log, done, 8, -1);
			cr_assert_gt(n, 0);
			for (int i = 0; i < n; i++) {
				cr_assert_eq(done[i]->result, -EIO);
				cr_assert(strstr(done[i]->error, "open it "
								 "again"));
			}
		}
		cr_assert_eq(rpmem_log_poll(l->log, done, 8, -1), -EIO);
		cr_assert_eq(append_bytes(l, 1, NULL), -EIO);
		cr_assert_eq(rpmem_log_trim(l->log, l->log->super.head), -EIO);
		close_one(l);
	}
}

Test(rpmem_log, a_torn_superblock_leaves_the_other_one)
{
	struct log_test *l = &one;
	struct log_io io;
	uint64_t lsn;

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	cr_assert_eq(append_bytes(l, 100, &lsn), 0);
	io = rig_io(&l->port);
	for (unsigned int i = 0; i < 4; i++) {
		const uint64_t turn = l->log->super.turn;

		rpmem_log_close(l->log);
		/* close() wrote one superblock; a cut may tear the newest. */
		l->rig.visible[(turn + (i == 0)) % 2 * LOG_SLOT + 60] ^= 1;
		cr_assert_eq(log_open(&l->log, &io, false), 0, "%u: %s", i,
			     rpmem_log_error());
		cr_assert_eq(l->log->durable, lsn + 192);
	}
	rpmem_log_close(l->log);
	l->rig.visible[60] ^= 1;
	l->rig.visible[LOG_SLOT + 60] ^= 1;
	cr_assert_eq(log_open(&l->log, &io, false), -EBADMSG);
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), -EEXIST);
	memset(l->rig.visible, 0, 2 * LOG_SLOT);
	cr_assert_eq(log_open(&l->log, &io, false), -ENODATA);
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), 0);
	rig_fini(&l->rig);
}

/* An entry that does not fit is at the ring's start: a reader skips the end. */
Test(rpmem_log, entry_behind_a_gap_has_one_lsn)
{
	struct log_test *l = &one;
	struct rpmem_log_info info = {.size = sizeof(info)};
	unsigned char bytes[4096];
	uint64_t lsn, at;
	size_t len;

	open_one(l, 8192, RPMEM_LOG_ENTRY);
	cr_assert_eq(append_bytes(l, 3000, NULL), 0);
	cr_assert_eq(append_bytes(l, 3000, NULL), 0);
	cr_assert_eq(rpmem_log_query(l->log, &info), 0);
	cr_assert_eq(rpmem_log_trim(l->log, info.tail), 0);
	cr_assert_eq(append_bytes(l, 3000, &lsn), 0);
	at = info.tail;
	cr_assert_eq(rpmem_log_read(l->log, &at, bytes, sizeof(bytes), &len, 0),
		     1);
	cr_assert_eq(len, 3000);
	cr_assert_eq(lsn, info.tail);
	cr_assert_eq(rpmem_log_trim(l->log, lsn), 0);
	close_one(l);
}

Test(rpmem_log, counter_and_register_use_ten_places_by_turns)
{
	struct log_test *l = &one;
	unsigned int used;

	for (uint32_t layout = RPMEM_LOG_TAIL; layout <= RPMEM_LOG_REGISTER;
	     layout++) {
		open_one(l, 8192, layout);
		used = 0;
		for (int i = 0; i < 12; i++) {
			cr_assert_eq(append_bytes(l, 10, NULL), 0);
			used |= 1u
				<< (l->log->store_at.offset - LOG_PLACES_AT) /
					   LOG_PLACE;
		}
		cr_assert_eq(used, layout == RPMEM_LOG_TAIL ? 1 : 1023);
		close_one(l);
	}
}
