// SPDX-License-Identifier: BSD-2-Clause
/*
 * Durable writes over connected endpoints, against the bare base: connected
 * [SIZE [COUNT]]. Two processes, three connections, one outstanding write:
 * ofi_rpmem with FI_COMMIT_COMPLETE, tcp with FI_DELIVERY_COMPLETE, and tcp's
 * own FI_COMMIT_COMPLETE. The methods alternate; medians in us, ratios within
 * one round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"

#define TURNS	15
#define WARM_UP 50
#define POOL	(1u << 20)
#define LARGEST 65536u

static const struct way {
	const char *name, *prov;
	uint64_t flags;
} ways[] = {
	{"durable", NULL, FI_COMMIT_COMPLETE},
	{"base, delivered", "tcp", FI_DELIVERY_COMPLETE},
	{"base, its own commit", "tcp", FI_COMMIT_COMPLETE},
};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

/* Page shared by the two processes. */
static struct shared {
	struct card card[WAYS];
	_Atomic int up[WAYS]; /* 1: listens, 2: connected */
	_Atomic int driven;   /* the method that writes; WAYS: the end */
} * shared;

static char pool[POOL] __attribute__((aligned(4096)));
static char source[LARGEST];

static void open_way(struct side *s, int w)
{
	const struct pair_opts o = {
		.msg = true,
		.prov = ways[w].prov,
		.format = FI_CQ_FORMAT_CONTEXT,
		.caps = FI_RMA_PMEM,
	};

	side_open(s, &o);
}

static void target(void)
{
	struct side s[WAYS];
	struct fi_cq_entry e;
	struct fid_mr *mr;
	int w;

	alarm(300);
	for (w = 0; w < WAYS; w++) {
		open_way(&s[w], w);
		MUST(fi_mr_reg(s[w].domain, pool, sizeof(pool),
			       FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
			       (uint64_t)w + 1, FI_RMA_PMEM, &mr, NULL));
		side_listen(&s[w]);
		side_card(&s[w], &shared->card[w]);
		shared->card[w].pool_key = fi_mr_key(mr);
		shared->up[w] = 1;
		side_accept(&s[w]);
		shared->up[w] = 2;
	}
	while ((w = shared->driven) < WAYS)
		fi_cq_read(s[w].cq, &e, 1);
	_exit(0);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double write_and_wait(struct side *s, int w, size_t size, uint64_t off)
{
	struct iovec iov = {.iov_base = source, .iov_len = size};
	struct fi_rma_iov to = {
		.addr = off, .len = size, .key = shared->card[w].pool_key};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	const double begun = now();
	struct fi_cq_entry e;
	ssize_t n;

	POST(s, fi_writemsg(s->ep, &m, ways[w].flags | FI_COMPLETION));
	do {
		n = fi_cq_read(s->cq, &e, 1);
	} while (n == -FI_EAGAIN);
	MUST(n);
	return now() - begun;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_size);
	return v[n / 2];
}

static double time_turn(struct side *s, int w, size_t size, int count)
{
	double *v = malloc((size_t)count * sizeof(*v)), us;

	if (!v)
		MUST(-FI_ENOMEM);
	shared->driven = w;
	for (int i = -WARM_UP; i < count; i++) {
		us = write_and_wait(s, w, size,
				    (uint64_t)(i + WARM_UP) * 4096 %
					    (POOL - LARGEST));
		if (i >= 0)
			v[i] = us;
	}
	us = median(v, count);
	free(v);
	return us;
}

static void initiator(size_t size, int count)
{
	double us[WAYS][TURNS], ratio[TURNS];
	struct side s[WAYS];

	alarm(300);
	for (int w = 0; w < WAYS; w++) {
		open_way(&s[w], w);
		while (!shared->up[w])
			usleep(1000);
		side_connect(&s[w], &shared->card[w]);
		while (shared->up[w] < 2)
			usleep(1000);
	}
	for (int t = 0; t < TURNS; t++)
		for (int w = 0; w < WAYS; w++)
			us[w][t] = time_turn(&s[w], w, size, count);
	for (int w = 1; w < WAYS; w++) {
		for (int t = 0; t < TURNS; t++)
			ratio[t] = us[0][t] / us[w][t];
		printf("%zu bytes, %s: %.2f", size, ways[w].name,
		       median(ratio, TURNS));
		printf(" (%.2f to %.2f)\n", ratio[0], ratio[TURNS - 1]);
	}
	for (int w = 0; w < WAYS; w++)
		printf("%s: %.1f us\n", ways[w].name, median(us[w], TURNS));
	shared->driven = WAYS;
}

int main(int argc, char **argv)
{
	const size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
	const int count = argc > 2 ? atoi(argv[2]) : 1000;
	pid_t pid;

	if (!size || size > LARGEST || count < 1) {
		fprintf(stderr, "usage: connected [SIZE [COUNT]]\n");
		return 2;
	}
	/*
	 * Ordinary memory stands for persistent memory, as tcp itself accepts
	 * ordinary memory.
	 */
	setenv("FI_OFI_RPMEM_EMULATE", "1", 0);
	setenv("FI_OFI_RPMEM_CLASS", "none", 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		MUST(-FI_ENOMEM);
	pid = fork();
	if (!pid)
		target();
	if (pid < 0)
		MUST(-FI_EAGAIN);
	initiator(size, count);
	return waitpid(pid, NULL, 0) != pid;
}
