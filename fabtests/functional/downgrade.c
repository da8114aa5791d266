// SPDX-License-Identifier: BSD-2-Clause
/*
 * The operator's file changes while the target runs. A new registration has the
 * class of the new statement, and the key of the old registration is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "functional/pair.h"

#define ROUNDS 8

/* Written by the target between two barriers: the new key. */
static struct {
	uint64_t key;
} * shared;

static char said[32];

/* The operator distrusts the disk in every other round. */
static bool disk_distrusted(int round)
{
	return round % 2;
}

static void write_statement(const char *text)
{
	FILE *f = fopen(said, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		MUST(-errno);
}

static void target_half(struct side *s, const struct card *peer)
{
	(void)peer;
	for (int i = 1; i <= ROUNDS; i++) {
		pair_barrier(s);
		write_statement(disk_distrusted(i)
					? "[host]\nlimit class = process\n"
					: "# none\n");
		MUST(fi_close(&s->pool_mr->fid));
		MUST(fi_mr_reg(s->domain, s->pool, PAIR_POOL,
			       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1,
			       FI_RMA_PMEM, &s->pool_mr, NULL));
		shared->key = fi_mr_key(s->pool_mr);
		pair_barrier(s);
	}
}

/*
 * Commit with this class. Returns its enum rp_status. Covers other bytes than
 * durable_write(), because a commit over refused writes would fail.
 */
static int commit_of_class(struct side *s, const struct card *c, uint64_t key,
			   int class)
{
	struct fi_rma_iov r = {c->pool_addr + 4096, 64, key};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE, class,
			    NULL, &r));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

/* Make one durable write. Returns 0 or its errno. */
static int durable_write(struct side *s, const struct card *c, uint64_t key)
{
	static char bytes[64] = "durable";
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov to = {c->pool_addr, sizeof(bytes), key};
	struct fi_msg_rma m = {.msg_iov = &iov,
			       .iov_count = 1,
			       .addr = s->peer,
			       .rma_iov = &to,
			       .rma_iov_count = 1};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE));
	return side_wait(s, &e, &err) ? 0 : err.err;
}

/*
 * Write with FI_DELIVERY_COMPLETE. Returns 0 or the enum rp_status. Repeats
 * after RP_ST_LOST: closing the region has closed the connection, and the
 * initiator may notice that only now.
 */
static int placed_write(struct side *s, const struct card *c, uint64_t key)
{
	static char bytes[64];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov to = {c->pool_addr + 8192, sizeof(bytes), key};
	struct fi_msg_rma m = {.msg_iov = &iov,
			       .iov_count = 1,
			       .addr = s->peer,
			       .rma_iov = &to,
			       .rma_iov_count = 1};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	do {
		POST(s, fi_writemsg(s->ep, &m, FI_DELIVERY_COMPLETE));
		if (side_wait(s, &e, &err))
			return 0;
	} while (err.prov_errno == RP_ST_LOST);
	return err.prov_errno;
}

static bool is_lost(int st)
{
	return st == RP_ST_STALE_KEY;
}

static void round_trip(struct side *s, const struct card *c, int i,
		       uint64_t old)
{
	uint64_t key = shared->key;
	struct fi_rpmem_attr a = {.size = sizeof(a)};
	int st, ret;

	tap_ok(key != old, "round %d: another key", i);
	st = placed_write(s, c, old);
	tap_ok(is_lost(st), "round %d: the confirmed key is refused (%d)", i,
	       st);
	ret = key_query(s->ep, s->peer, key, FI_RPMEM_CLASS_NONE, &a);
	tap_ok(!ret && a.region_class == (disk_distrusted(i)
						  ? FI_RPMEM_CLASS_PROCESS
						  : FI_RPMEM_CLASS_POWER),
	       "round %d: class %d is reported", i, (int)a.region_class);
	ret = durable_write(s, c, key);
	tap_ok(disk_distrusted(i) ? ret == EOPNOTSUPP : !ret,
	       "round %d: a write that needs class power ends with %d", i, ret);
	st = commit_of_class(s, c, key, FI_RPMEM_CLASS_POWER);
	tap_ok(st == (disk_distrusted(i) ? RP_ST_CLASS : RP_ST_OK),
	       "round %d: so does a commit (%d)", i, st);
	st = commit_of_class(s, c, key, FI_RPMEM_CLASS_PROCESS);
	tap_ok(!st, "round %d: less is had (%d)", i, st);
}

static void initiator_half(struct side *s, const struct card *c)
{
	uint64_t first = c->pool_key, old = first;
	int st = durable_write(s, c, old);

	tap_ok(!st, "a durable write confirms the key (%d)", st);
	for (int i = 1; i <= ROUNDS; i++) {
		pair_barrier(s);
		pair_barrier(s);
		round_trip(s, c, i, old);
		old = shared->key;
	}
	st = placed_write(s, c, first);
	tap_ok(is_lost(st), "the first key has not come back (%d)", st);
	tap_ok(durable_write(s, c, first) != 0, "nor is it written to");
}

int main(void)
{
	static const struct pair_opts plain;
	int fd;

	setbuf(stdout, NULL);
	strcpy(said, "downgrade.XXXXXX");
	fd = mkstemp(said);
	if (fd < 0)
		MUST(-errno);
	close(fd);
	setenv("FI_OFI_RPMEM_OPERATOR", said, 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		MUST(-errno);
	pair_run(&plain, &plain, target_half, initiator_half);
	unlink(said);
	return tap_done();
}
