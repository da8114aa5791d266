/* SPDX-License-Identifier: BSD-2-Clause */
/* Code of all MPI programs: one TAP line for each test. */
#ifndef MPI_TEST_H
#define MPI_TEST_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, nranks;
static int wrong; /* failures of this rank in the current test */
static int failed;

/* Check a condition. Print the first failures of a test. */
#define EXPECT(cond, ...)                                                      \
	do {                                                                   \
		if (!(cond) && wrong++ < 3) {                                  \
			fprintf(stderr, "rank %d: %s: ", rank, #cond);         \
			fprintf(stderr, __VA_ARGS__);                          \
			fputc('\n', stderr);                                   \
		}                                                              \
	} while (0)

/* On all ranks: run one test. Rank 0 prints the common result. */
static inline void test(const char *name, void (*run)(void))
{
	int sum;

	wrong = 0;
	run();
	MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (!rank) {
		printf("%sok - %s, %d ranks\n", sum ? "not " : "", name,
		       nranks);
		fflush(stdout);
	}
	failed |= sum != 0;
}

/* Byte i of message `what` of rank `who`. */
static inline uint8_t byte_of(unsigned int who, unsigned int what, size_t i)
{
	uint32_t x = who * 2654435761u + what * 40503u + (uint32_t)i * 69069u;

	return (uint8_t)(x >> 13 ^ x >> 3);
}

static inline void fill(void *buf, size_t len, unsigned int who,
			unsigned int what)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = byte_of(who, what, i);
}

/* Count the bytes that differ from those that fill() writes. */
static inline size_t differ(const void *buf, size_t len, unsigned int who,
			    unsigned int what)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((const uint8_t *)buf)[i] != byte_of(who, what, i);
	return n;
}

static inline void *room(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

static inline void begin(int *argc, char ***argv)
{
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
}

static inline int end(void)
{
	MPI_Finalize();
	return failed;
}

#endif
