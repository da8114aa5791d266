/* SPDX-License-Identifier: BSD-2-Clause */
/* librpmem_log when the medium has damaged entries behind the mark. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "log_rig.h"

#define MIB	   (1u << 20)
#define OPS	   2048u
#define LONGEST	   (16 * MIB) /* of an entry */
#define READ_AHEAD 65536u     /* of a read of the ring */

/* A pool whose operations complete in order. */
static struct memory {
	unsigned char *bytes;
	uint64_t length;
	struct rpmem_pool_op *ops[OPS];
	unsigned int nops;
	uint64_t read; /* bytes that reads have returned */
} memory;

static struct rpmem_log *one;

static int submit(void *arg, struct rpmem_pool_op *op)
{
	struct memory *m = arg;

	cr_assert_lt(m->nops, OPS);
	m->ops[m->nops++] = op;
	return 0;
}

static void execute_op(struct memory *m, struct rpmem_pool_op *op)
{
	op->result = 0;
	if (op->type == RPMEM_POOL_READ) {
		memcpy(op->buf, m->bytes + op->offset, op->len);
		m->read += op->len;
	} else if (op->type == RPMEM_POOL_WRITE) {
		memcpy(m->bytes + op->offset, op->buf, op->len);
	} else if (op->then) {
		memcpy(m->bytes + op->then->offset, &op->then->value,
		       sizeof(op->then->value));
	}
}

static int poll_memory(void *arg, struct rpmem_pool_op **done, unsigned int n,
		       int timeout_ms)
{
	struct memory *m = arg;

	cr_assert(m->nops || !timeout_ms, "a call waits for nothing");
	if (!n || !m->nops)
		return 0;
	*done = m->ops[0];
	memmove(m->ops, m->ops + 1, --m->nops * sizeof(*m->ops));
	execute_op(m, *done);
	return 1;
}

static struct log_io io_of(struct memory *m)
{
	return (struct log_io){
		.submit = submit,
		.poll = poll_memory,
		.arg = m,
		.length = m->length,
		.name = "pool 'p': ",
	};
}

static void open_one(void)
{
	const struct log_io io = io_of(&memory);

	cr_assert_eq(log_open(&one, &io, false), 0, "%s", rpmem_log_error());
}

static void create_one(uint64_t ring, uint32_t layout)
{
	struct log_io io;

	memory = (struct memory){.length = LOG_RING_AT + ring};
	memory.bytes = mmap(NULL, memory.length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(memory.bytes, MAP_FAILED);
	io = io_of(&memory);
	cr_assert_eq(log_create(&io, layout), 0, "%s", rpmem_log_error());
	open_one();
}

static void drop_one(void)
{
	munmap(memory.bytes, memory.length);
}

/* End the writer as SIGKILL does, so that it does not write its mark. */
static void kill_writer(void)
{
	one->failed = -EIO;
	rpmem_log_close(one);
	one = NULL;
	memory.nops = 0;
}

/* Append len bytes and wait. Returns the LSN. */
static uint64_t append(size_t len)
{
	unsigned char *bytes = calloc(1, len);
	uint64_t lsn;

	cr_assert(bytes);
	cr_assert_eq(rpmem_log_append(one, bytes, len, &lsn), 0, "%s",
		     rpmem_log_error());
	free(bytes);
	return lsn;
}

/* Append n entries of len bytes, all outstanding at once. */
static void append_many(unsigned int n, size_t len)
{
	static struct rpmem_log_op ops[OPS];
	struct rpmem_log_op *done[64];
	unsigned char *bytes = calloc(1, len);
	const struct iovec v = {bytes, len};
	int got;

	cr_assert(bytes);
	for (unsigned int i = 0; i < n; i++) {
		ops[i] = (struct rpmem_log_op){.entries = &v, .count = 1};
		cr_assert_eq(rpmem_log_submit(one, &ops[i]), 0, "%s",
			     rpmem_log_error());
	}
	for (unsigned int i = 0; i < n; i += (unsigned int)got) {
		got = rpmem_log_poll(one, done, 64, -1);
		cr_assert_gt(got, 0);
	}
	free(bytes);
}

static unsigned char *byte_of(uint64_t lsn)
{
	return memory.bytes + LOG_RING_AT + lsn % (memory.length - LOG_RING_AT);
}

/* A new writer must refuse the log, and name the byte of the entry at lsn. */
static void expect_refusal(uint64_t lsn)
{
	const struct log_io io = io_of(&memory);
	char byte[64];
	int ret;

	snprintf(byte, sizeof(byte), "byte %" PRIu64 " ",
		 (uint64_t)(byte_of(lsn) - memory.bytes));
	ret = log_open(&one, &io, false);
	cr_assert_eq(ret, -EBADMSG, "%d, and not -EBADMSG", ret);
	cr_assert(strstr(rpmem_log_error(), byte), "no '%s' in '%s'", byte,
		  rpmem_log_error());
	cr_assert(strstr(rpmem_log_error(), "restore the pool"), "%s",
		  rpmem_log_error());
}

Test(rpmem_log_damage, damage_before_an_acknowledged_entry_is_reported)
{
	unsigned char bytes[100];
	uint64_t lsn, at;
	size_t len;

	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		create_one(4096, layout);
		at = lsn = append(100);
		append(100);
		byte_of(lsn)[50] ^= 1;
		cr_assert_eq(
			rpmem_log_read(one, &at, bytes, sizeof(bytes), &len, 0),
			-EBADMSG);
		kill_writer();
		expect_refusal(lsn);
		/* The next attempt has overwritten nothing. */
		byte_of(lsn)[50] ^= 1;
		open_one();
		cr_assert_gt(one->tail, lsn + 192);
		kill_writer();
		drop_one();
	}
}

/* The limit of RPMEM_LOG_ENTRY: rpmem_log(3). */
Test(rpmem_log_damage, damaged_newest_entry_ends_the_log)
{
	uint64_t lsn;

	create_one(4096, RPMEM_LOG_ENTRY);
	append(100);
	lsn = append(100);
	byte_of(lsn)[50] ^= 1;
	kill_writer();
	open_one();
	cr_assert_eq(one->tail, lsn);
	kill_writer();
	drop_one();
}

Test(rpmem_log_damage, damage_behind_64_outstanding_appends_is_reported)
{
	uint64_t lsn;

	create_one(MIB, RPMEM_LOG_ENTRY);
	lsn = one->tail;
	append_many(64, 1000);
	/* The 64 entries do not say that any of them was acknowledged. */
	append(10);
	byte_of(lsn)[0] ^= 1;
	kill_writer();
	expect_refusal(lsn);
	drop_one();
}

/* Several damaged entries, a header among them: a later entry is the proof. */
Test(rpmem_log_damage, damage_of_many_entries_is_reported)
{
	uint64_t lsn;

	create_one(MIB, RPMEM_LOG_ENTRY);
	lsn = append(1000);
	for (int i = 0; i < 100; i++)
		append(1000);
	memset(byte_of(lsn), 0, 99 * 1088 + 5);
	kill_writer();
	expect_refusal(lsn);
	drop_one();
}

/* The proof is in the next lap of the ring, and a pad is between. */
Test(rpmem_log_damage, damage_before_the_end_of_the_ring_is_reported)
{
	uint64_t lsn = 0;

	create_one(4096, RPMEM_LOG_ENTRY);
	while (one->tail % 4096 < 3000)
		lsn = append(500);
	cr_assert_eq(rpmem_log_trim(one, lsn), 0);
	lsn = append(100);
	append(1500);
	memset(byte_of(lsn), 0, 4096 - lsn % 4096); /* the pad too */
	kill_writer();
	expect_refusal(lsn);
	drop_one();
}

/* Appends that were outstanding at a crash arrive in any order. */
Test(rpmem_log_damage, gap_among_outstanding_appends_is_the_end)
{
	struct rpmem_log_op ops[8] = {0};
	const struct iovec v = {"0123456789", 10};
	uint64_t lsn;

	create_one(4096, RPMEM_LOG_ENTRY);
	append(100);
	lsn = one->tail;
	for (int i = 0; i < 8; i++) {
		ops[i] = (struct rpmem_log_op){.entries = &v, .count = 1};
		cr_assert_eq(rpmem_log_submit(one, &ops[i]), 0);
	}
	for (unsigned int i = 1; i < memory.nops; i++)
		execute_op(&memory, memory.ops[i]);
	kill_writer();
	open_one();
	cr_assert_eq(one->tail, lsn);
	append(100);
	kill_writer();
	drop_one();
}

/*
 * The pad before the longest entry is damaged, and is almost as long: the entry
 * that says so is almost 32 MiB behind.
 */
Test(rpmem_log_damage, proof_is_found_behind_all_that_can_be_outstanding)
{
	const uint64_t ring = 64 * (uint64_t)MIB;
	uint64_t pad;

	create_one(ring, RPMEM_LOG_ENTRY);
	while (ring - one->tail >= 24 * MIB)
		append(4 * MIB);
	while (ring - one->tail >= LONGEST)
		append(1000);
	cr_assert_eq(rpmem_log_publish(one), 0);
	cr_assert_eq(rpmem_log_trim(one, one->tail), 0);
	pad = one->tail;
	append(LONGEST - LOG_HEADER);
	append(10);
	cr_assert_gt(one->tail - pad, 32 * MIB - 4096);
	byte_of(pad)[9] ^= 1;
	kill_writer();
	expect_refusal(pad);
	drop_one();
}

/* Damage the newest superblock, and see whether the next writer refuses. */
static void damage_super(void)
{
	const struct log_io io = io_of(&memory);

	memory.bytes[one->super.turn % 2 * LOG_SLOT + 40] ^= 1;
	kill_writer();
	cr_assert_eq(log_open(&one, &io, false), -EBADMSG);
	cr_assert(strstr(rpmem_log_error(), "superblock"), "%s",
		  rpmem_log_error());
}

/* The older superblock knows no entry of this writer. */
Test(rpmem_log_damage, damaged_superblock_of_the_writer_is_reported)
{
	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		create_one(4096, layout);
		append(100);
		append(100);
		damage_super();
		drop_one();
	}
}

/* All entries that the older superblock knows were trimmed and overwritten. */
Test(rpmem_log_damage, damaged_superblock_of_a_trim_is_reported)
{
	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		create_one(4096, layout);
		append_many(4096 / LOG_ALIGN, LOG_ALIGN - LOG_HEADER);
		cr_assert_eq(rpmem_log_trim(one, one->tail), 0);
		append_many(4096 / LOG_ALIGN, LOG_ALIGN - LOG_HEADER);
		damage_super();
		drop_one();
	}
}

/* The positions of a reader mean nothing in another log. */
Test(rpmem_log_damage, reader_of_a_log_that_was_created_anew_is_stale)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	unsigned char bytes[100];
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log *reader;
	struct log_io io;
	size_t len;

	create_one(4096, RPMEM_LOG_ENTRY);
	io = io_of(&memory);
	append(100);
	append(100);
	cr_assert_eq(log_open(&reader, &io, true), 0);
	cr_assert_eq(
		rpmem_log_read(reader, &lsn, bytes, sizeof(bytes), &len, 0), 1);
	kill_writer();
	memset(memory.bytes, 0, LOG_PLACES_AT);
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), 0);
	cr_assert_eq(
		rpmem_log_read(reader, &lsn, bytes, sizeof(bytes), &len, 0),
		-ESTALE);
	cr_assert(strstr(rpmem_log_error(), "created anew"), "%s",
		  rpmem_log_error());
	cr_assert_eq(rpmem_log_query(reader, &info), -ESTALE);
	rpmem_log_close(reader);
	drop_one();
}

/* A long ring is not read as a whole. */
Test(rpmem_log_damage, open_reads_at_most_what_can_be_outstanding)
{
	create_one(1024 * (uint64_t)MIB, RPMEM_LOG_ENTRY);
	append(100);
	kill_writer();
	memory.read = 0;
	open_one();
	cr_assert_leq(memory.read, 2 * (uint64_t)LOG_WINDOW + 4 * READ_AHEAD);
	kill_writer();
	drop_one();
}
