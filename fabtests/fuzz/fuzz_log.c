// SPDX-License-Identifier: BSD-2-Clause
/*
 * A log whose pool holds any bytes: readers and writers open and read it. A
 * step of the input begins with one byte. The harness adds the checksums, which
 * the input cannot guess.
 */
#include "config.h"

#include <errno.h>

#include "liblog/log.h"
#include "fuzz.h"

#define RING   4096u
#define LENGTH (LOG_RING_AT + RING)
/* Most entries that a log of this length can have, without pads. */
#define MOST (RING / LOG_ALIGN)

static uint8_t pool_bytes[LENGTH];

/* Outstanding operations: one, or a write and a store. */
static struct rpmem_pool_op *queue[8];
static unsigned int nqueue;

static int submit(void *arg, struct rpmem_pool_op *op)
{
	MUST(nqueue < 8);
	MUST(op->type == RPMEM_POOL_COMMIT ||
	     (op->offset <= LENGTH && op->len <= LENGTH - op->offset));
	queue[nqueue++] = op;
	return 0;
}

static int poll_pool(void *arg, struct rpmem_pool_op **done, unsigned int n,
		     int timeout_ms)
{
	struct rpmem_pool_op *op;

	MUST(n && (nqueue || !timeout_ms));
	if (!nqueue)
		return 0;
	op = queue[0];
	memmove(queue, queue + 1, --nqueue * sizeof(*queue));
	op->result = 0;
	if (op->type == RPMEM_POOL_READ)
		memcpy(op->buf, pool_bytes + op->offset, op->len);
	else if (op->type == RPMEM_POOL_WRITE)
		memcpy(pool_bytes + op->offset, op->buf, op->len);
	else if (op->then) {
		MUST(op->then->offset <= LENGTH - 8);
		memcpy(pool_bytes + op->then->offset, &op->then->value, 8);
	}
	*done = op;
	return 1;
}

static const struct log_io io = {
	.submit = submit,
	.poll = poll_pool,
	.length = LENGTH,
};

/* Functions of librpmem_pool. A log with its own log_io calls none of them. */
const char *rpmem_pool_error(void)
{
	return "";
}
void rpmem_pool_close(struct rpmem_pool *pool)
{
	MUST(!pool);
}
#define UNUSED(call)                                                           \
	int call                                                               \
	{                                                                      \
		abort();                                                       \
	}
UNUSED(rpmem_pool_open(struct rpmem_pool **p, const char *where,
		       const struct rpmem_pool_attr *attr))
UNUSED(rpmem_pool_query(struct rpmem_pool *p, struct rpmem_pool_info *info))
UNUSED(rpmem_pool_divide(struct rpmem_pool *p, unsigned int parts))
UNUSED(rpmem_pool_submit(struct rpmem_pool *p, struct rpmem_pool_op *op))
UNUSED(rpmem_pool_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		       unsigned int n, int timeout_ms))

/* The superblock that the input wrote last, whether or not a reader uses it. */
static struct log_super super;

static void put_super(struct fuzz_in *in)
{
	const uint8_t what = fuzz_u8(in);
	uint64_t *const field[] = {&super.ring, &super.turn, &super.epoch,
				   &super.head, &super.mark, &super.id};
	uint64_t v = fuzz_u16(in);

	if (what & 0x40)
		v = fuzz_u64(in);
	else if (what & 0x20)
		v = UINT64_MAX - v;
	if (what & 0x10)
		super.layout = (uint32_t)v;
	else if ((what & 7) < 6)
		*field[what & 7] = v * (what & 8 ? LOG_ALIGN : 1);
	log_super_encode(&super, pool_bytes + (what >> 7) * LOG_SLOT);
}

static void put_entry(struct fuzz_in *in)
{
	const struct log_super s = {.ring = RING, .id = super.id};
	const uint8_t what = fuzz_u8(in);
	struct log_entry e = {
		.lsn = super.head + (uint64_t)fuzz_u8(in) * LOG_ALIGN,
		.epoch = super.epoch - (what & 1),
		.pad = what & 2,
	};
	const uint64_t at = e.lsn % RING;

	if (e.lsn % LOG_ALIGN)
		return;
	e.len = fuzz_u16(in);
	if (LOG_HEADER + e.len > RING - at)
		e.len = 0;
	e.durable = e.lsn - (uint64_t)fuzz_u8(in) * LOG_ALIGN;
	log_entry_encode(&s, &e, pool_bytes + LOG_RING_AT + at);
}

/* Read all entries. Returns the LSN after the last one. */
static uint64_t scan(struct rpmem_log *log, unsigned int flags)
{
	uint64_t lsn = RPMEM_LOG_HEAD, before = 0;
	static uint8_t buf[RING];
	unsigned int n = 0;
	size_t len;
	int ret;

	while ((ret = rpmem_log_read(log, &lsn, buf, sizeof(buf), &len,
				     flags)) == 1) {
		MUST(len && len <= sizeof(buf));
		MUST(lsn > before && !(lsn % LOG_ALIGN));
		MUST(++n <= MOST);
		before = lsn;
	}
	MUST(ret <= 0 && ret != -EINVAL && ret != -EMSGSIZE);
	return lsn;
}

static void try_reader(void)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	struct rpmem_log *log;

	if (log_open(&log, &io, true))
		return;
	scan(log, 0);
	scan(log, RPMEM_LOG_VISIBLE);
	if (!rpmem_log_query(log, &info))
		MUST(info.head <= info.durable && info.capacity <= RING);
	rpmem_log_close(log);
}

static void try_writer(struct fuzz_in *in)
{
	uint64_t lsn, end, from;
	struct rpmem_log *log, *reader;
	uint8_t bytes[1], c = fuzz_u8(in);
	size_t len;
	int ret;

	if (log_open(&log, &io, false))
		return;
	end = log->tail;
	MUST(end - log->super.head <= log->super.ring);
	scan(log, 0);
	ret = rpmem_log_append(log, &c, 1, &lsn);
	if (!ret) {
		MUST(lsn >= end);
		/*
		 * The writer may have cached a forged entry of its own epoch at
		 * this LSN, but a new reader has not.
		 */
		from = lsn;
		MUST(!log_open(&reader, &io, true));
		MUST(rpmem_log_read(reader, &from, bytes, 1, &len,
				    RPMEM_LOG_VISIBLE) == 1);
		MUST(len == 1 && bytes[0] == c && from == lsn + LOG_ALIGN);
		rpmem_log_close(reader);
		MUST(!rpmem_log_trim(log, lsn));
	}
	super = log->super;
	rpmem_log_close(log);
	MUST(!nqueue);
}

static void run_step(struct fuzz_in *in)
{
	uint16_t at;

	switch (fuzz_u8(in) % 6) {
	case 0:
		at = fuzz_u16(in);
		fuzz_bytes(in, pool_bytes + at % (LENGTH - 255), fuzz_u8(in));
		break;
	case 1:
		put_super(in);
		break;
	case 2:
		put_entry(in);
		break;
	case 3:
		at = fuzz_u8(in) % LOG_PLACES;
		fuzz_bytes(in, pool_bytes + LOG_PLACES_AT + at * LOG_PLACE, 8);
		break;
	case 4:
		try_reader();
		break;
	default:
		try_writer(in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};

	memset(pool_bytes, 0, sizeof(pool_bytes));
	super = (struct log_super){
		.logs = 1,
		.layout = fuzz_u8(&in) % 4,
		.id = 1,
		.ring = RING,
		.epoch = 1,
		.head = LOG_FIRST,
		.mark = LOG_FIRST,
	};
	log_super_encode(&super, pool_bytes);
	for (int i = 0; in.left && i < 64; i++)
		run_step(&in);
	try_reader();
	try_writer(&in);
	return 0;
}
