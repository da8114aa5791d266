// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times librpmem.so.1 and the layers below it, in turns:
 *
 *   replica HOST:PORT POOL POOL SET LOCAL [ROUNDS]
 *
 * Prints medians in microseconds: a durable write of 64 bytes by libfabric to
 * the first pool, rpmem_persist() of 64 bytes to the second, a transaction of
 * libpmemobj of 64 bytes in the pool set SET, which has a replica, and in
 * LOCAL, which has none, and a persist of 64 bytes in LOCAL.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpmemobj.h>

#include "util/fabric.h"
#include "util/setup_client.h"

#define BYTES 64u
#define EACH  50u /* operations of one round */

enum what {
	WRITE,
	PERSIST,
	TX,
	LOCAL_TX,
	LOCAL_PERSIST,
	WHATS,
};

static const char *const names[] = {
	"durable write", "rpmem_persist", "transaction, replica",
	"transaction",	 "local persist",
};

/* librpmem's header is not shipped. */
extern void *rpmem_create(const char *target, const char *name, void *local,
			  size_t size, unsigned int *lanes, const void *attr);
extern int rpmem_persist(void *r, size_t offset, size_t len, unsigned int lane,
			 unsigned int flags);

static char memory[1 << 20];

static struct {
	struct rp_fabric f;
	struct rp_setup_export ex;
	struct fid_mr *mr;
	fi_addr_t peer;
	void *replica;
	PMEMobjpool *pools[2];
} bench;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "replica: %s: %s\n", what, why);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void open_fabric(const char *where, const char *pool)
{
	const struct rp_setup_open how = {.owner = rp_setup_owner()};
	struct rp_setup_target target = {.wait_ms = 0};
	struct rp_fabric_attr attr = {.wait_fd = true};
	static int lease;
	char err[RP_ERR_LEN];

	if (rp_setup_parse_target(where, &target, err) < 0 ||
	    rp_setup_open(&target, pool, &how, &bench.ex, &lease, err))
		fail(pool, err);
	attr.base = bench.ex.base;
	attr.dest = bench.ex.fi_name;
	attr.dest_len = bench.ex.fi_name_len;
	if (rp_fabric_open(&attr, &bench.f, err) ||
	    rp_fabric_peer(&bench.f, bench.ex.fi_name, &bench.peer, err) ||
	    rp_fabric_reg(&bench.f, memory, sizeof(memory), FI_READ | FI_WRITE,
			  0, &bench.mr, err))
		fail(pool, err);
}

static void write_once(void)
{
	void *desc = rp_fabric_desc(bench.mr);
	const struct iovec iov = {memory, BYTES};
	const struct fi_rma_iov to = {bench.ex.addr + 8192, BYTES,
				      bench.ex.key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = bench.peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	struct fi_cq_entry done;
	ssize_t ret;

	while ((ret = fi_writemsg(bench.f.ep, &msg,
				  FI_COMPLETION | FI_COMMIT_COMPLETE)) ==
	       -FI_EAGAIN)
		fi_cq_read(bench.f.cq, NULL, 0);
	while (!ret) {
		ret = fi_cq_sread(bench.f.cq, &done, 1, NULL, 1000);
		ret = ret == -FI_EAGAIN ? 0 : ret;
	}
	if (ret != 1)
		fail("fi_writemsg", fi_strerror((int)-ret));
}

static void transaction(PMEMobjpool *pool)
{
	char *bytes = pmemobj_direct(pmemobj_root(pool, BYTES));

	TX_BEGIN(pool)
	{
		pmemobj_tx_add_range_direct(bytes, BYTES);
		memset(bytes, bytes[0] + 1, BYTES);
	}
	TX_ONABORT
	{
		fail("transaction", pmemobj_errormsg());
	}
	TX_END
}

static void run_once(enum what what)
{
	PMEMobjpool *local = bench.pools[1];

	switch (what) {
	case WRITE:
		write_once();
		break;
	case PERSIST:
		if (rpmem_persist(bench.replica, 8192, BYTES, 0, 0))
			fail("rpmem_persist", strerror(errno));
		break;
	case TX:
		transaction(bench.pools[0]);
		break;
	case LOCAL_TX:
		transaction(local);
		break;
	default:
		pmemobj_persist(local,
				pmemobj_direct(pmemobj_root(local, BYTES)),
				BYTES);
	}
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	const unsigned int rounds =
		argc > 6 ? (unsigned int)strtoul(argv[6], NULL, 10) : 21;
	double *us[WHATS], m[WHATS];
	unsigned int lanes = 1;

	if (argc < 6 || !rounds) {
		fprintf(stderr, "usage: replica HOST:PORT POOL POOL SET LOCAL "
				"[ROUNDS]\n");
		return 2;
	}
	open_fabric(argv[1], argv[2]);
	bench.replica = rpmem_create(argv[1], argv[3], memory, sizeof(memory),
				     &lanes, NULL);
	if (!bench.replica)
		fail(argv[3], strerror(errno));
	for (unsigned int i = 0; i < 2; i++) {
		bench.pools[i] = pmemobj_create(argv[4 + i], "bench", 0, 0600);
		if (!bench.pools[i])
			fail(argv[4 + i], pmemobj_errormsg());
	}
	for (unsigned int w = 0; w < WHATS; w++)
		us[w] = calloc(rounds, sizeof(*us[w]));
	for (unsigned int r = 0; r < rounds; r++)
		for (unsigned int w = 0; w < WHATS; w++) {
			const double start = now_us();

			for (unsigned int i = 0; i < EACH; i++)
				run_once((enum what)w);
			us[w][r] = (now_us() - start) / EACH;
		}
	for (unsigned int w = 0; w < WHATS; w++) {
		qsort(us[w], rounds, sizeof(*us[w]), compare);
		m[w] = us[w][rounds / 2];
		printf("%-22s %8.1f us\n", names[w], m[w]);
		free(us[w]);
	}
	printf("rpmem_persist / durable write %.2f\n", m[PERSIST] / m[WRITE]);
	printf("transaction with a replica / without %.2f, 1 + durable write / "
	       "local persist %.2f\n",
	       m[TX] / m[LOCAL_TX], 1 + m[WRITE] / m[LOCAL_PERSIST]);
	for (unsigned int i = 0; i < 2; i++)
		pmemobj_close(bench.pools[i]);
	return 0;
}
