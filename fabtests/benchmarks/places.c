// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times local updates of one persistent word, and of the ten places of Kalia et
 * al., SoCC '20, section 6, which the log's layouts counter and register use:
 *
 *   places [FILE [ROUNDS]]
 *
 * FILE is persistent memory, or stands for it (default: a new file in /dev/shm)
 * and loses its contents. An update stores 8 bytes, writes their cache line
 * back and waits for it, by libpmem2. An append copies an entry past the
 * caches, waits for it, and updates the tail. Prints medians over the rounds,
 * and the ratio to one word in the same round.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/thread.h"
#include "fabtests/benchmarks/flush.h"
#include "fabtests/benchmarks/samples.h"
#include "util/text.h"

#define PLACES	10u
#define BLOCK	256u
#define UPDATES 20000u
#define AREA	(64u << 20)
#define ENTRIES (AREA - 4096u) /* entries lie behind the places */
#define LONGEST 4096u

enum way {
	WORD,
	COUNTER,
	REGISTER,
	WAYS
};

static const char *const names[WAYS] = {"one word", "counter", "register"};
static const size_t lengths[] = {0, 64, 256, 512, LONGEST}; /* 0: no append */
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static struct rp_flush pm;
static char *area;
static uint64_t sum; /* of a register's places, by XOR */

static uint64_t *place(unsigned int i)
{
	return (uint64_t *)(area + (size_t)i * BLOCK);
}

static void update(enum way way, uint64_t n)
{
	uint64_t *p = place(way == WORD ? 0 : n % PLACES);
	const uint64_t old = *p;

	*(volatile uint64_t *)p = way == REGISTER ? n ^ sum ^ old : n;
	sum ^= old ^ *p;
	pm.flush(p, sizeof(*p));
	pm.drain();
}

/* Returns what recovery makes of the places. */
static uint64_t recover(enum way way)
{
	uint64_t v = *place(0);

	for (unsigned int i = 1; way != WORD && i < PLACES; i++)
		if (way == REGISTER)
			v ^= *place(i);
		else if (*place(i) > v)
			v = *place(i);
	return v;
}

/* Nanoseconds for one update, behind the append of len bytes. */
static double run(enum way way, size_t len)
{
	static const char entry[LONGEST];
	uint64_t start;
	size_t at = 0;

	memset(area, 0, (size_t)PLACES * BLOCK);
	sum = 0;
	start = rp_clock_ns(CLOCK_MONOTONIC);
	for (uint64_t n = 1; n <= UPDATES; n++) {
		if (len) {
			pm.copy(area + 4096 + at, entry, len,
				PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
			pm.drain();
			at = (at + len) % (ENTRIES - LONGEST);
		}
		update(way, n);
	}
	start = rp_clock_ns(CLOCK_MONOTONIC) - start;
	if (recover(way) != UPDATES) {
		fprintf(stderr, "places: %s: recovery found %llu of %u\n",
			names[way], (unsigned long long)recover(way), UPDATES);
		exit(1);
	}
	return (double)start / UPDATES;
}

/* Samples are integers: store thousandths. */
static void sample(struct rp_samples *s, double value)
{
	if (rp_samples_add(s, (uint64_t)(value * 1000)))
		exit(1);
}

static double median(struct rp_samples *s)
{
	uint64_t value = 0;

	rp_samples_rank(s, 500, &value);
	return (double)value / 1000;
}

static void measure(size_t len, unsigned int rounds)
{
	struct rp_samples ns[WAYS] = {{0}}, ratio[WAYS] = {{0}};

	for (unsigned int r = 0; r < rounds; r++) {
		double one = 0, t;

		for (enum way w = WORD; w < WAYS; w++) {
			t = run(w, len);
			one = w == WORD ? t : one;
			sample(&ns[w], t);
			sample(&ratio[w], one / t);
		}
	}
	printf("%8zu", len);
	for (enum way w = WORD; w < WAYS; w++)
		printf(" %12.1f", median(&ns[w]));
	for (enum way w = COUNTER; w < WAYS; w++)
		printf(" %9.2f", median(&ratio[w]));
	printf("\n");
	for (enum way w = WORD; w < WAYS; w++) {
		rp_samples_free(&ns[w]);
		rp_samples_free(&ratio[w]);
	}
}

int main(int argc, char **argv)
{
	char made[] = "/dev/shm/places.XXXXXX", err[RP_ERR_LEN];
	const int rounds = argc > 2 ? atoi(argv[2]) : 21;
	int fd;

	if (argc > 3 || rounds < 3) {
		fprintf(stderr, "usage: places [FILE [ROUNDS]], ROUNDS >= 3\n");
		return 2;
	}
	if (rp_flush_open(&pm, err)) {
		fprintf(stderr, "places: %s\n", err);
		return 1;
	}
	fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : mkstemp(made);
	if (fd < 0 || ftruncate(fd, AREA)) {
		perror(argc > 1 ? argv[1] : made);
		return 1;
	}
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_POPULATE, fd, 0);
	if (argc < 2)
		unlink(made);
	if (area == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	printf("%8s %12s %12s %12s %9s %9s\n", "entry", "word ns", "counter ns",
	       "register ns", "counter x", "register x");
	for (size_t i = 0; i < LENGTHS; i++)
		measure(lengths[i], (unsigned int)rounds);
	return 0;
}
