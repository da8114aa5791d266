// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times librpmem.so.1 and the layers below it, in turns:
 *
 *   replica HOST:PORT POOL POOL SET LOCAL [ROUNDS]
 *
 * Prints medians and quartiles in microseconds: a durable write of 64 bytes by
 * libfabric to the first pool, rpmem_persist() of 64 bytes to the second, a
 * transaction of libpmemobj of 64 bytes in the pool set SET, which has a
 * replica, and in LOCAL, which has none, and a persist in LOCAL of 64 bytes
 * that were stored just before. Then the ratios within one round.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpmemobj.h>

#include "fabtests/benchmarks/samples.h"
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

/* Ratios of the times of one round. */
enum ratio {
	CALL,  /* rpmem_persist / durable write; the bound is 1.05 */
	TWICE, /* transaction with a replica / without */
	BOUND, /* 1 + durable write / local persist */
	SHARE, /* TWICE / BOUND; the bound is 1 */
	RATIOS,
};

static const char *const ratio_names[] = {
	"rpmem_persist / durable write",
	"transaction with a replica / without",
	"1 + durable write / local persist",
	"the former / the latter",
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

/* A persist of a page that is clean would not reach the medium. */
static void persist(PMEMobjpool *pool)
{
	static unsigned char n;
	void *bytes = pmemobj_direct(pmemobj_root(pool, BYTES));

	memset(bytes, ++n, BYTES);
	pmemobj_persist(pool, bytes, BYTES);
}

static void run_once(enum what what)
{
	switch (what) {
	case WRITE:
		memory[0]++;
		write_once();
		break;
	case PERSIST:
		memory[8192]++;
		if (rpmem_persist(bench.replica, 8192, BYTES, 0, 0))
			fail("rpmem_persist", strerror(errno));
		break;
	case TX:
		transaction(bench.pools[0]);
		break;
	case LOCAL_TX:
		transaction(bench.pools[1]);
		break;
	default:
		persist(bench.pools[1]);
	}
}

static double time_each(enum what what)
{
	const double start = now_us();

	for (unsigned int i = 0; i < EACH; i++)
		run_once(what);
	return (now_us() - start) / EACH;
}

/*
 * One round of all kinds. A kind does not always follow the same one: what the
 * former left to the disk would always be in its time.
 */
static void run_round(unsigned int round, struct rp_samples *us,
		      struct rp_samples *ratios)
{
	double t[WHATS], r[RATIOS];
	const unsigned int step = round % (WHATS - 1) + 1;

	for (unsigned int i = 0; i < WHATS; i++) {
		const unsigned int w = (round / (WHATS - 1) + i * step) % WHATS;

		t[w] = time_each((enum what)w);
	}
	r[CALL] = t[PERSIST] / t[WRITE];
	r[TWICE] = t[TX] / t[LOCAL_TX];
	r[BOUND] = 1 + t[WRITE] / t[LOCAL_PERSIST];
	r[SHARE] = r[TWICE] / r[BOUND];
	for (unsigned int w = 0; w < WHATS; w++)
		if (rp_samples_add(&us[w], (uint64_t)(t[w] * 1000)))
			fail("samples", "out of memory");
	for (unsigned int k = 0; k < RATIOS; k++)
		if (rp_samples_add(&ratios[k], (uint64_t)(r[k] * 1000)))
			fail("samples", "out of memory");
}

/* Thousandths in print: the median, and the quartiles. */
static void print_samples(const char *name, struct rp_samples *s,
			  const char *unit)
{
	uint64_t q[3] = {0};

	for (unsigned int i = 0; i < 3; i++)
		if (rp_samples_rank(s, 250 * (i + 1), &q[i]))
			fail(name, "too few rounds");
	printf("%-38s %9.2f%s (%.2f to %.2f)\n", name, (double)q[1] / 1000,
	       unit, (double)q[0] / 1000, (double)q[2] / 1000);
	rp_samples_free(s);
}

static void open_pools(char **argv)
{
	unsigned int lanes = 1;

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
}

int main(int argc, char **argv)
{
	const unsigned int rounds =
		argc > 6 ? (unsigned int)strtoul(argv[6], NULL, 10) : 40;
	struct rp_samples us[WHATS] = {{0}}, ratios[RATIOS] = {{0}};

	if (argc < 6 || rounds < 4) {
		fprintf(stderr, "usage: replica HOST:PORT POOL POOL SET LOCAL "
				"[ROUNDS]\nROUNDS: at least 4 (40)\n");
		return 2;
	}
	open_pools(argv);
	for (unsigned int r = 0; r < rounds; r++)
		run_round(r, us, ratios);
	for (unsigned int w = 0; w < WHATS; w++)
		print_samples(names[w], &us[w], " us");
	for (unsigned int k = 0; k < RATIOS; k++)
		print_samples(ratio_names[k], &ratios[k], "");
	for (unsigned int i = 0; i < 2; i++)
		pmemobj_close(bench.pools[i]);
	return 0;
}
