// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times updates of a persistent number in this machine's memory, by libpmem2.
 * On some media, one that is stored again and again to the same line waits for
 * the store before. Kalia et al., SoCC '20, section 6, spread the updates over
 * ten places, 256 bytes apart. As in the log's layouts, the number is then the
 * largest place (counter), or the XOR of all places (register).
 *
 *   places [FILE [ROUNDS]]
 *
 * FILE is persistent memory, or any file to try the program out (default: a new
 * file in /dev/shm). It is cut to 64 MiB and loses its contents. With an entry
 * of LEN bytes, each update comes behind an append of so many bytes, which is
 * part of the time. Prints the median time of the rounds, and how many times as
 * fast as one word each way was in the same round.
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
#define ENTRIES 4096u /* offset of the entries, behind the places */
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

/* Nanoseconds for one update, with the append of len bytes before it. */
static double run(enum way way, size_t len)
{
	static const char entry[LONGEST];
	uint64_t elapsed;
	size_t at = 0;

	memset(area, 0, (size_t)PLACES * BLOCK);
	sum = 0;
	elapsed = rp_clock_ns(CLOCK_MONOTONIC);
	for (uint64_t n = 1; n <= UPDATES; n++) {
		if (len) {
			pm.copy(area + ENTRIES + at, entry, len,
				PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
			pm.drain();
			at = (at + len) % (AREA - ENTRIES - LONGEST);
		}
		update(way, n);
	}
	elapsed = rp_clock_ns(CLOCK_MONOTONIC) - elapsed;
	if (recover(way) != UPDATES) {
		fprintf(stderr, "places: %s: recovery found %llu of %u\n",
			names[way], (unsigned long long)recover(way), UPDATES);
		exit(1);
	}
	return (double)elapsed / UPDATES;
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

	/* Another way is the first in each round, and the first round warms up.
	 */
	for (unsigned int r = 0; r <= rounds; r++) {
		double t[WAYS];

		for (unsigned int k = 0; k < WAYS; k++)
			t[(r + k) % WAYS] =
				run((enum way)((r + k) % WAYS), len);
		for (enum way w = WORD; r > 0 && w < WAYS; w++) {
			sample(&ns[w], t[w]);
			sample(&ratio[w], t[WORD] / t[w]);
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
	if (fd >= 0 && argc < 2)
		unlink(made);
	if (fd < 0 || ftruncate(fd, AREA)) {
		perror(argc > 1 ? argv[1] : made);
		return 1;
	}
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_POPULATE, fd, 0);
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
