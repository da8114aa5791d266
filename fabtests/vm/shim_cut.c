// SPDX-License-Identifier: BSD-2-Clause
/* Appends records through the verbs shim until the power is cut. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"
#include "fault/record.h"

/*
 * Both sides of a pair, as in powercut.c, with records for its --check:
 * shim_cut --target POOL@N SEED, and shim_cut --initiator FD SEED SLOT ENOUGH.
 * RPMEM_BACK names a fifo from the initiator to the target. With
 * RPMEM_FAULT=skip-flush and a device's FLUSH, the initiator posts FLUSHes that
 * write nothing back. (An agent's flush is skipped by the build with fault
 * points.)
 */
#define POOL	(1u << 20)
#define DEVICE	(2u << 20) /* devdax maps only whole huge pages */
#define RECORDS (POOL / sizeof(struct record))
#define BATCH	8
#define WINDOW	8
#define SENDS	(4 * BATCH * WINDOW)
/*
 * The agent stores bytes of requests with non-temporal stores, which only the
 * build with fault points reports to the shadow.
 */
#ifdef RP_FAULTS
#define WAYS 4
#else
#define WAYS 3
#endif
#define NAME "rxe0"
#define GID  1

/*
 * Messages of the set-up, in order. The target sends the first and the third,
 * and knows its peer when it sends the third.
 */
struct first {
	uint32_t qp_num, rkey;
	uint64_t at;
};
struct answer {
	uint32_t qp_num;
	struct rpmem_qp_desc addr;
};
struct second {
	struct rpmem_qp_desc addr;
	struct rpmem_mr_desc desc;
};

static struct ends_device device;
static struct ends_end end;
static struct rpmem_cq *cq;
static struct rpmem_qp *qp;
static uint64_t rng_state;

static uint64_t random_below(uint64_t below)
{
	rng_state += 1;
	return mix(rng_state) % below;
}

static void write_all(int fd, const void *what, size_t len)
{
	if (write(fd, what, len) != (ssize_t)len)
		ends_die("the other side");
}

static void read_all(int fd, void *what, size_t len)
{
	if (read(fd, what, len) != (ssize_t)len)
		ends_die("the other side");
}

static void must_succeed(const char *what, int err)
{
	errno = err;
	if (err)
		ends_die("%s", what);
}

static int read_back(int flags)
{
	const char *path = getenv("RPMEM_BACK");
	int fd = path ? open(path, flags) : -1;

	if (fd < 0)
		ends_die("RPMEM_BACK");
	return fd;
}

static void attach_qp(unsigned int access)
{
	struct rpmem_qp_attr attr = {.access = access};

	ends_device(&device, NAME, GID);
	/* 1 s, because ten pairs share two emulated processors. */
	device.timeout = 18;
	ends_make(&end, &device, SENDS);
	attr.send_ops_flags = end.send_ops;
	cq = rpmem_attach_cq(end.cq);
	if (!cq)
		ends_die("rpmem_attach_cq");
	qp = rpmem_attach_qp(end.qp, cq, &attr);
	if (!qp)
		ends_die("rpmem_attach_qp");
}

/* --- the target: maps the pool, and runs the agent --- */

static int run_target(char *pool)
{
	char *slot = strchr(pool, '@'), *map;
	struct first first;
	struct answer answer;
	struct second second;
	struct rpmem_mr *mr;
	int fd, from;

	if (!slot)
		return 2;
	*slot++ = 0;
	fd = open(pool, O_RDWR);
	map = mmap(NULL, DEVICE, PROT_READ | PROT_WRITE,
		   MAP_SHARED_VALIDATE | MAP_SYNC, fd,
		   (off_t)DEVICE * atoi(slot));
	if (fd < 0 || map == MAP_FAILED)
		ends_die("%s", pool);
	attach_qp(ENDS_PERSISTENT);
	mr = rpmem_reg_mr(device.pd, map, POOL, ENDS_OPEN | ENDS_FLUSHES);
	if (!mr)
		ends_die("rpmem_reg_mr");
	first = (struct first){end.qp->qp_num, mr->mr->rkey, (uintptr_t)map};
	write_all(STDOUT_FILENO, &first, sizeof(first));
	from = read_back(O_RDONLY);
	read_all(from, &answer, sizeof(answer));
	ends_join(end.qp, &device, answer.qp_num, ENDS_OPEN | ENDS_FLUSHES);
	must_succeed("rpmem_export_qp", rpmem_export_qp(qp, &second.addr));
	must_succeed("rpmem_connect_qp", rpmem_connect_qp(qp, &answer.addr));
	must_succeed("rpmem_export_mr", rpmem_export_mr(mr, qp, &second.desc));
	write_all(STDOUT_FILENO, &second, sizeof(second));
	for (;;)
		pause();
}

/* --- the initiator: appends records until it is killed --- */

struct batch {
	uint64_t first;
	unsigned int n, waits;
	bool failed;
};

static volatile uint8_t *acked;
static uint64_t acked_count, acked_enough;
static struct first at;
static struct ibv_mr *from;
static struct record *records;
static bool by_device, skips;

static void end_batch(struct batch *b, bool ok)
{
	b->failed |= !ok;
	if (--b->waits || b->failed)
		return;
	for (unsigned int i = 0; i < b->n; i++) {
		acked[b->first + i] = 1;
		if (++acked_count == acked_enough)
			write_all(STDOUT_FILENO, "enough\n", 7);
	}
}

static void reap_completions(void)
{
	struct ibv_wc wc;
	int n = rpmem_poll_cq(cq, 1, &wc);

	if (n < 0)
		ends_die("rpmem_poll_cq");
	/* Yield the processor to the other pairs. */
	if (!n)
		sched_yield();
	if (n && wc.status)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	if (n && wc.wr_id)
		end_batch((struct batch *)(uintptr_t)wc.wr_id, !wc.status);
}

static uint64_t offset_of(uint64_t i)
{
	return at.at + i * sizeof(struct record);
}

/* Write len bytes of record i. */
static void write_record(uint64_t i, size_t off, size_t len)
{
	end.ex->wr_id = 0;
	end.ex->wr_flags = 0;
	ibv_wr_rdma_write(end.ex, at.rkey, offset_of(i) + off);
	ibv_wr_set_sge(end.ex, from->lkey, (uintptr_t)&records[i] + off,
		       (uint32_t)len);
}

static void flush_record(struct batch *b, uint64_t i, unsigned int n,
			 bool signaled)
{
	qp->wr_id = signaled ? (uintptr_t)b : 0;
	qp->wr_flags = signaled ? IBV_SEND_SIGNALED : 0;
	rpmem_wr_flush(qp, at.rkey, offset_of(i), n * sizeof(struct record),
		       skips ? RPMEM_FLUSH_GLOBAL : RPMEM_FLUSH_PERSISTENT,
		       RPMEM_FLUSH_RANGE);
}

/* Write a record and flush it, in one call. */
static void put_record(struct batch *b, uint64_t i)
{
	const struct ibv_sge sge = {.addr = (uintptr_t)&records[i],
				    .length = sizeof(struct record),
				    .lkey = from->lkey};

	qp->wr_id = (uintptr_t)b;
	qp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_write_flush(qp, at.rkey, offset_of(i), &sge,
			     skips ? RPMEM_FLUSH_GLOBAL
				   : RPMEM_FLUSH_PERSISTENT);
}

/*
 * Write a record's last word by an atomic write, after the flush of the other
 * words.
 */
static void append_tail(struct batch *b, uint64_t i)
{
	write_record(i, 0, sizeof(struct record) - sizeof(uint64_t));
	flush_record(b, i, 1, false);
	qp->wr_id = 0;
	qp->wr_flags = 0;
	rpmem_wr_atomic_write(qp, at.rkey,
			      offset_of(i) + offsetof(struct record, sum),
			      &records[i].sum);
	flush_record(b, i, 1, true);
	b->waits++;
}

static void append_records(struct batch *b, int way)
{
	rpmem_wr_start(qp);
	if (way == 2 && by_device) {
		for (unsigned int i = 0; i < b->n; i++)
			append_tail(b, b->first + i);
	} else if (way == 3) {
		b->waits = b->n;
		for (unsigned int i = 0; i < b->n; i++)
			put_record(b, b->first + i);
	} else {
		for (unsigned int i = 0; i < b->n; i++)
			write_record(b->first + i, 0, sizeof(struct record));
		/* One flush for each record, or one flush for all. */
		b->waits = way ? b->n : 1;
		if (!way)
			flush_record(b, b->first, b->n, true);
		for (unsigned int i = 0; way && i < b->n; i++)
			flush_record(b, b->first + i, 1, true);
	}
	must_succeed("a batch", rpmem_wr_complete(qp));
}

static int run_initiator(int ack_fd, uint64_t seed, int slot)
{
	static struct batch window[WINDOW];
	const char *fault = getenv("RPMEM_FAULT");
	struct rpmem_region how;
	struct second second;
	struct answer answer;
	uint64_t next = 0;

	rng_state = seed + 1;
	acked = mmap(NULL, RECORDS, PROT_READ | PROT_WRITE, MAP_SHARED, ack_fd,
		     (off_t)((size_t)slot * RECORDS));
	records = aligned_alloc(4096, POOL);
	if (acked == MAP_FAILED || !records)
		ends_die("memory");
	for (uint64_t i = 0; i < RECORDS; i++)
		record_make(&records[i], seed, i + 1);
	attach_qp(0);
	from = ibv_reg_mr(device.pd, records, POOL, IBV_ACCESS_LOCAL_WRITE);
	if (!from)
		ends_die("ibv_reg_mr");
	read_all(STDIN_FILENO, &at, sizeof(at));
	ends_join(end.qp, &device, at.qp_num, ENDS_OPEN);
	answer.qp_num = end.qp->qp_num;
	must_succeed("rpmem_export_qp", rpmem_export_qp(qp, &answer.addr));
	write_all(read_back(O_WRONLY), &answer, sizeof(answer));
	read_all(STDIN_FILENO, &second, sizeof(second));
	must_succeed("rpmem_connect_qp", rpmem_connect_qp(qp, &second.addr));
	must_succeed("rpmem_import_mr",
		     rpmem_import_mr(qp, &second.desc, &how));
	fprintf(stderr, "flushed by %s\n", how.persistent);
	by_device = end.send_ops & (1u << 12);
	skips = fault && !strcmp(fault, "skip-flush") &&
		!strcmp(how.persistent, "native");
	for (unsigned int i = 0; next < RECORDS; i++) {
		struct batch *b = &window[i % WINDOW];

		while (b->waits)
			reap_completions();
		*b = (struct batch){.first = next,
				    .n = 1 + random_below(BATCH)};
		if (b->n > RECORDS - next)
			b->n = RECORDS - next;
		append_records(b, (int)random_below(WAYS));
		next += b->n;
		/*
		 * After enough acknowledgements append slowly, with some
		 * operations outstanding.
		 */
		if (acked_count >= acked_enough)
			usleep(20000);
	}
	for (;;)
		reap_completions();
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--target"))
		return run_target(argv[2]);
	if (argc == 6 && !strcmp(argv[1], "--initiator")) {
		acked_enough = strtoull(argv[5], NULL, 10);
		return run_initiator(atoi(argv[2]), strtoull(argv[3], NULL, 10),
				     atoi(argv[4]));
	}
	fprintf(stderr, "usage: shim_cut --target POOL@N SEED | --initiator FD "
			"SEED SLOT ENOUGH\n");
	return 2;
}
