// SPDX-License-Identifier: BSD-2-Clause
/*
 * Compares ways to make a store to a mapped file of the page cache durable, and
 * shows what each does to a thread that stores to the same page meanwhile.
 *
 *   msync_ways FILE [ROUNDS]
 *
 * FILE is on the file system to measure; it is overwritten by 256 MiB. The
 * first table has the median time of msync, and how many times as long each
 * other way took in the same round. The second table has, for 20,000 calls of
 * each way beside a thread that stores to the same page: the stores that were
 * undone, the calls that failed, and how many of the calls of msync right
 * behind these failed, too.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/thread.h"
#include "fabtests/benchmarks/samples.h"

#define LENGTH	((size_t)256 << 20)
#define LONGEST ((size_t)1 << 20)
#define PAGE	4096u
#define ADVISED (64u << 10) /* longer ranges get no advice */
#define UPDATES 10u	    /* of each way in a round */
#define CALLS	20000u	    /* beside a thread that stores */

enum way {
	MSYNC,	  /* store, msync */
	PWRITEV2, /* store, pwritev2(RWF_DSYNC) of the range onto itself */
	DIRECT,	  /* store, pwrite of the bytes with O_DIRECT | O_DSYNC */
	CLEAN,	  /* the same pwrite without the store before */
	WAYS
};

static const char *const names[WAYS] = {"msync", "pwritev2", "direct",
					"direct, clean"};
static const size_t lengths[] = {PAGE, 16u << 10, 64u << 10, LONGEST};

static char *map, *bytes; /* the file; what is written to it */
static int fd, direct_fd;
static unsigned int seed = 1;

static void fail(const char *what)
{
	fprintf(stderr, "msync_ways: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* As the agent does: the page stays, and is the first to be reclaimed. */
static void advise(char *at, size_t len)
{
	if (len <= ADVISED) {
		madvise(at, len, MADV_POPULATE_READ);
		madvise(at, len, MADV_COLD);
	}
}

/* Returns 0, or -1 with errno. */
static int make_durable(enum way way, size_t off, size_t len)
{
	struct iovec iov = {map + off, len};
	ssize_t n = (ssize_t)len;

	if (way == MSYNC)
		return msync(map + off, len, MS_SYNC);
	if (way == PWRITEV2)
		n = pwritev2(fd, &iov, 1, (off_t)off, RWF_DSYNC);
	else
		n = pwrite(direct_fd, bytes, len, (off_t)off);
	if (n >= 0 && n != (ssize_t)len)
		errno = EIO;
	return n == (ssize_t)len ? 0 : -1;
}

/* Nanoseconds for one update. */
static uint64_t run(enum way way, size_t len)
{
	uint64_t elapsed = 0;

	for (unsigned int i = 0; i < UPDATES; i++) {
		const size_t off = (size_t)rand_r(&seed) % (LENGTH / len) * len;
		uint64_t start;

		memset(bytes, rand_r(&seed), len);
		start = rp_clock_ns(CLOCK_MONOTONIC);
		if (way != CLEAN)
			memcpy(map + off, bytes, len);
		if (make_durable(way, off, len))
			fail(names[way]);
		for (size_t p = 0; way >= DIRECT && p < len; p += PAGE)
			(void)*(volatile char *)(map + off + p);
		advise(map + off, len);
		elapsed += rp_clock_ns(CLOCK_MONOTONIC) - start;
		if (memcmp(map + off, bytes, len)) {
			fprintf(stderr, "msync_ways: %s lost bytes\n",
				names[way]);
			exit(1);
		}
	}
	return elapsed / UPDATES;
}

static void sample(struct rp_samples *s, double value)
{
	if (rp_samples_add(s, (uint64_t)value))
		exit(1);
}

static double median(struct rp_samples *s)
{
	uint64_t value = 0;

	rp_samples_rank(s, 500, &value);
	rp_samples_free(s);
	return (double)value;
}

static void measure(size_t len, unsigned int rounds)
{
	struct rp_samples ns[WAYS] = {{0}}, thousandths[WAYS] = {{0}};

	/* Each round begins with another way. Round 0 is not counted. */
	for (unsigned int r = 0; r <= rounds; r++) {
		double t[WAYS];

		for (unsigned int k = 0; k < WAYS; k++)
			t[(r + k) % WAYS] =
				(double)run((enum way)((r + k) % WAYS), len);
		for (enum way w = MSYNC; r > 0 && w < WAYS; w++) {
			sample(&ns[w], t[w]);
			sample(&thousandths[w], 1000 * t[w] / t[MSYNC]);
		}
	}
	printf("%8zu %10.1f", len, median(&ns[MSYNC]) / 1000);
	for (enum way w = PWRITEV2; w < WAYS; w++)
		printf(" %13.2f", median(&thousandths[w]) / 1000);
	printf("\n");
}

static atomic_bool stop;
static uint64_t stores, undone;

/* Store to each word of the first page after comparing its last value. */
static void *store_again(void *arg)
{
	volatile uint64_t *words = (volatile uint64_t *)map;

	(void)arg;
	for (uint64_t n = 1; !atomic_load(&stop); n++)
		for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
			undone += n > 1 && words[i] != n - 1;
			words[i] = n;
			stores++;
		}
	return NULL;
}

static void disturb(enum way way)
{
	unsigned int failed = 0, msyncs = 0;
	pthread_t thread;

	stores = undone = 0;
	atomic_store(&stop, false);
	if (pthread_create(&thread, NULL, store_again, NULL))
		fail("thread");
	for (unsigned int i = 0; i < CALLS; i++) {
		memcpy(bytes, map, PAGE); /* what the direct write writes */
		if (!make_durable(way, 0, PAGE))
			continue;
		failed++;
		msyncs += msync(map, PAGE, MS_SYNC) != 0;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("%-14s %12llu %12llu %8u %9u\n", names[way],
	       (unsigned long long)stores, (unsigned long long)undone, failed,
	       msyncs);
}

int main(int argc, char **argv)
{
	const int rounds = argc > 2 ? atoi(argv[2]) : 11;

	if (argc < 2 || argc > 3 || rounds < 3) {
		fprintf(stderr,
			"usage: msync_ways FILE [ROUNDS], ROUNDS >= 3\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 0) || posix_fallocate(fd, 0, (off_t)LENGTH))
		fail(argv[1]);
	direct_fd = open(argv[1], O_RDWR | O_DIRECT | O_DSYNC);
	if (direct_fd < 0)
		fail("O_DIRECT (tmpfs has none: give a file on a disk)");
	bytes = aligned_alloc(PAGE, LONGEST);
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_POPULATE, fd, 0);
	if (!bytes || map == MAP_FAILED)
		fail("memory");
	/* Written once: later updates allocate no blocks. */
	memset(map, 1, LENGTH);
	if (msync(map, LENGTH, MS_SYNC))
		fail("msync");
	printf("%8s %10s %13s %13s %13s\n", "length", "msync us",
	       names[PWRITEV2], names[DIRECT], names[CLEAN]);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		measure(lengths[i], (unsigned int)rounds);
	printf("\n%-14s %12s %12s %8s %9s\n", "beside stores", "stores",
	       "undone", "failed", "msync too");
	for (enum way w = MSYNC; w < CLEAN; w++)
		disturb(w);
	return 0;
}
