// SPDX-License-Identifier: BSD-2-Clause
/* A writer of a log in memory (log_writer.h). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <criterion/criterion.h>

#include "log_writer.h"

struct log_test one;

void fill_entry(unsigned char *to, const struct model_entry *it)
{
	for (uint32_t i = 0; i < it->len; i++)
		to[i] = (unsigned char)(it->seed * 2654435761u >> (i % 25));
}

void start_life(struct log_test *l, uint64_t length, uint32_t layout)
{
	struct log_io io;

	l->rnd = seeded_start();
	rig_init(&l->rig, &l->rnd, length);
	l->port.rig = l->reader_port.rig = &l->rig;
	io = rig_io(&l->port);
	/* Make sure that the random bytes are no superblock. */
	l->rig.visible[0] = l->rig.visible[LOG_SLOT] = 0;
	cr_assert_eq(log_create(&io, layout), 0, "%s", rpmem_log_error());
}

void open_log(struct log_test *l)
{
	const struct log_io io = rig_io(&l->port);

	cr_assert_eq(log_open(&l->log, &io, false), 0, "seed %" PRIu64 ": %s",
		     l->rnd.seed, rpmem_log_error());
	l->nbatches = l->done = 0;
}

void submit_append(struct log_test *l)
{
	unsigned char bytes[BATCH][LEN];
	struct iovec v[BATCH];
	struct append_batch *b = &l->batches[l->nbatches];
	struct model *m = &l->m;
	uint64_t lsn;
	int ret;

	*b = (struct append_batch){.from = m->n};
	b->count = 1 + (unsigned int)seeded_below(&l->rnd, BATCH);
	for (unsigned int i = 0; i < b->count; i++) {
		struct model_entry *it = &m->v[m->n + i];

		it->len = 1 + (uint32_t)seeded_below(&l->rnd, LEN);
		it->seed = (uint32_t)seeded_next(&l->rnd);
		fill_entry(bytes[i], it);
		v[i] = (struct iovec){bytes[i], it->len};
	}
	b->op.entries = v;
	b->op.count = b->count;
	ret = rpmem_log_submit(l->log, &b->op);
	if (ret == -ENOSPC)
		return;
	cr_assert_eq(ret, 0, "seed %" PRIu64 ": %s", l->rnd.seed,
		     rpmem_log_error());
	memset(bytes, 0xee, sizeof(bytes)); /* the log must have copied them */
	lsn = b->op.lsn;
	for (unsigned int i = 0; i < b->count; i++) {
		m->v[m->n + i].lsn = i ? 0 : lsn;
		m->v[m->n + i].next = i + 1 == b->count ? b->op.next : 0;
	}
	m->n += b->count;
	l->nbatches++;
}

void poll_log(struct log_test *l, int timeout_ms)
{
	struct rpmem_log_op *done[4];
	const int n = rpmem_log_poll(l->log, done, 4, timeout_ms);

	cr_assert_geq(n, 0);
	for (int i = 0; i < n; i++) {
		struct append_batch *b = &l->batches[l->done++];

		cr_assert_eq(done[i], &b->op, "seed %" PRIu64 ": not in order",
			     l->rnd.seed);
		cr_assert_eq(b->op.result, 0);
		l->m.acked = b->from + b->count;
	}
}

void open_one(struct log_test *l, uint64_t ring, uint32_t layout)
{
	memset(l, 0, sizeof(*l));
	start_life(l, LOG_RING_AT + ring, layout);
	open_log(l);
}

void close_one(struct log_test *l)
{
	rpmem_log_close(l->log);
	rig_fini(&l->rig);
}

int append_bytes(struct log_test *l, size_t len, uint64_t *lsn)
{
	static unsigned char bytes[1 << 16];

	return rpmem_log_append(l->log, bytes, len, lsn);
}
