// SPDX-License-Identifier: BSD-2-Clause
/* Case studies: processes, options, medians of paired rounds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "benchmarks/flush.h"
#include "benchmarks/study.h"
#include "core/thread.h"
#include "unit/disk.h"
#include "util/text.h"

struct study_shared *study_shared;
struct study_options study_options = {.rounds = 21, .each = 50};
struct card study_card;

static const struct study *current;
static struct study_message message; /* one message is outstanding at a time */
static struct rp_flush cpu;
static char *pool, *plain; /* memory of the server */
static struct fid_mr *emulated;
static char medium[STUDY_POOL];

static void usage(void)
{
	fputs("usage: transactions|files [--check] [--emulate] [--sleep] "
	      "[--rounds N] [--each N]\n",
	      stderr);
	exit(2);
}

static unsigned int number(const char *s, unsigned int most)
{
	char *end;
	unsigned long n = s ? strtoul(s, &end, 10) : 0;

	if (!n || n > most || *end)
		usage();
	return (unsigned int)n;
}

static double load(void)
{
	double l = -1;

	return getloadavg(&l, 1) == 1 ? l : -1;
}

void study_start(int argc, char **argv)
{
	struct study_options *o = &study_options;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--check"))
			o->check = true;
		else if (!strcmp(argv[i], "--emulate"))
			o->emulate = true;
		else if (!strcmp(argv[i], "--sleep"))
			o->sleep = true;
		else if (!strcmp(argv[i], "--rounds"))
			o->rounds = number(argv[++i], STUDY_ROUNDS);
		else if (!strcmp(argv[i], "--each"))
			o->each = number(argv[++i], 100000);
		else
			usage();
	}
	if (o->emulate) {
		setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
		setenv("FI_OFI_RPMEM_CLASS", "none", 1);
	}
	study_shared = mmap(NULL, sizeof(*study_shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (study_shared == MAP_FAILED)
		MUST(-errno);
}

/* --- the server --- */

/* The provider's calls of msync() reach this function instead of libc's. */
__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	long ret = syscall(SYS_msync, addr, len, flags);
	char *from = addr;

	if (!ret && study_options.check && pool && from >= pool &&
	    from < pool + STUDY_POOL)
		disk_reads(medium + (from - pool), from, len);
	return (int)ret;
}

char *study_pool(void)
{
	return pool;
}

char *study_plain(void)
{
	return plain;
}

void study_copy(void *to, const void *from, size_t len, bool stream)
{
	if (!stream) {
		memcpy(to, from, len);
		return;
	}
	cpu.copy(to, from, len, PMEM2_F_MEM_NONTEMPORAL);
	cpu.drain();
}

void study_judge(uint64_t offset, const void *bytes, size_t len)
{
	if (!study_options.check || study_options.emulate)
		return;
	atomic_fetch_add(&study_shared->judged, 1);
	if (offset > STUDY_POOL || len > STUDY_POOL - offset ||
	    memcmp(medium + offset, bytes, len))
		atomic_fetch_add(&study_shared->lost, 1);
}

/*
 * Emulated persistent memory is ordinary memory; otherwise it is the pair's
 * file.
 */
static void open_pool(struct side *s, const struct card *mine)
{
	pool = s->pool;
	plain = s->plain;
	study_shared->key = mine->pool_key;
	study_shared->addr = mine->pool_addr;
	if (!study_options.emulate)
		return;
	pool = mmap(NULL, STUDY_POOL, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pool == MAP_FAILED)
		MUST(-errno);
	memset(pool, 0, STUDY_POOL);
	MUST(fi_mr_reg(s->domain, pool, STUDY_POOL,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, FI_RMA_PMEM,
		       &emulated, NULL));
	study_shared->key = fi_mr_key(emulated);
	if (study_shared->addr)
		study_shared->addr = (uintptr_t)pool;
}

static void serve(struct side *s, const struct card *peer)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct study_reply reply;
	char why[RP_ERR_LEN];
	struct card mine;
	bool more = true;

	if (rp_flush_open(&cpu, why))
		MUST(-ENOTSUP);
	side_card(s, &mine);
	open_pool(s, &mine);
	memset(pool, 0, STUDY_POOL);
	memset(plain, 0, PAIR_POOL);
	side_insert(s, peer);
	current->begin();
	POST(s, fi_recv(s->ep, &message, sizeof(message), NULL, FI_ADDR_UNSPEC,
			&message));
	pair_barrier(s);
	while (more) {
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
		if (e.op_context != &message)
			continue;
		more = message.op != STUDY_END;
		reply.value = 0;
		if (more)
			current->handle(&message, e.len - STUDY_HEAD, &reply);
		if (more)
			POST(s, fi_recv(s->ep, &message, sizeof(message), NULL,
					FI_ADDR_UNSPEC, &message));
		POST(s, fi_inject(s->ep, &reply, sizeof(reply), s->peer));
	}
	pair_barrier(s); /* the client has compared all bytes */
	if (emulated)
		MUST(fi_close(&emulated->fid));
}

/* --- the client --- */

uint64_t study_random(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

void study_wait(struct side *s, unsigned int n)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	while (n) {
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
		n -= e.op_context == s;
	}
}

uint64_t study_call(struct side *s, struct study_message *m, size_t len)
{
	struct study_reply reply = {0};

	POST(s, fi_recv(s->ep, &reply, sizeof(reply), NULL, FI_ADDR_UNSPEC, s));
	POST(s, fi_send(s->ep, m, STUDY_HEAD + len, NULL, s->peer, s));
	study_wait(s, 2);
	return reply.value;
}

void study_write(struct side *s, const void *buf, size_t len, uint64_t offset,
		 enum study_write how)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct fi_rma_iov to = {study_shared->addr + offset, len,
				study_shared->key};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = s,
	};

	POST(s, fi_writemsg(s->ep, &m,
			    how == STUDY_ONE_TRIP ? FI_COMMIT_COMPLETE
						  : FI_DELIVERY_COMPLETE));
	if (how != STUDY_TOGETHER)
		study_wait(s, 1);
	if (how == STUDY_PLACED || how == STUDY_ONE_TRIP)
		return;
	POST(s, commit_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, s));
	study_wait(s, how == STUDY_TOGETHER ? 2 : 1);
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quartile(const double *v, unsigned int n, unsigned int q)
{
	double sorted[STUDY_ROUNDS];

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*sorted), compare);
	return sorted[(n - 1) * q / 4];
}

static double us[STUDY_WAYS][STUDY_ROUNDS];

static void print_way(unsigned int w)
{
	const struct study_way *way = &current->ways[w];
	const unsigned int n = study_options.rounds;
	double ratio[STUDY_ROUNDS];

	printf("%-14s %-24s %9.1f us", current->name, way->name,
	       quartile(us[w], n, 2));
	/*
	 * A ratio above 1: this way is faster than the one it is compared to.
	 */
	for (unsigned int r = 0; r < n && way->beside >= 0; r++)
		ratio[r] = us[way->beside][r] / us[w][r];
	if (way->beside >= 0)
		printf("  %5.2fx (%.2f to %.2f) of %s", quartile(ratio, n, 2),
		       quartile(ratio, n, 1), quartile(ratio, n, 3),
		       current->ways[way->beside].name);
	putchar('\n');
}

static void turn(struct side *s, unsigned int way, unsigned int round)
{
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (unsigned int i = 0; i < study_options.each; i++)
		current->work(s, way);
	study_shared->done[way] += study_options.each;
	us[way][round] = (double)(rp_clock_ns(CLOCK_MONOTONIC) - start) / 1e3 /
			 study_options.each;
}

static void drive(struct side *s, const struct card *peer)
{
	struct study_message end = {.op = STUDY_END};
	const double before = load();

	study_card = *peer;
	pair_barrier(s);
	for (unsigned int r = 0; r < study_options.rounds; r++)
		for (unsigned int w = 0; w < current->ways_n; w++)
			turn(s, (r + w) % current->ways_n, r);
	current->end(s);
	study_call(s, &end, 0);
	if (study_options.check) {
		tap_ok(!study_shared->wrong, "%s: the bytes are right",
		       current->name);
		tap_ok(study_options.emulate ||
			       (study_shared->judged && !study_shared->lost),
		       "%s: what was acknowledged as durable is on the medium",
		       current->name);
		pair_barrier(s);
		return;
	}
	for (unsigned int w = 0; w < current->ways_n; w++)
		print_way(w);
	printf("%-14s load %.1f before and %.1f after; %u rounds of %u; %s, "
	       "%s\n",
	       current->name, before, load(), study_options.rounds,
	       study_options.each,
	       study_options.emulate ? "emulated memory" : "a file",
	       study_options.sleep ? "both sides sleep" : "both sides poll");
	pair_barrier(s);
}

void study_run(const struct study *study)
{
	/*
	 * Sleep in tests: polling takes a processor for each side, and tests
	 * share them.
	 */
	const struct pair_opts o = {
		.caps = FI_ATOMIC,
		.sleeps = study_options.check || study_options.sleep,
	};

	memset(study_shared, 0, sizeof(*study_shared));
	memset(us, 0, sizeof(us));
	current = study;
	pair_run(&o, &o, serve, drive);
	if (!study_options.check && study_shared->wrong) {
		fprintf(stderr, "%s: %u wrong results\n", study->name,
			study_shared->wrong);
		exit(1);
	}
}
