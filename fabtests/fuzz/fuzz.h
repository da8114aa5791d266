/* SPDX-License-Identifier: BSD-2-Clause */
/* Code of all fuzzing harnesses: a reader of the input, and MUST(). */
#ifndef RP_FUZZ_H
#define RP_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Check a condition. Unlike assert(), NDEBUG does not switch MUST() off. */
#define MUST(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

/* A cursor in the input. After the input's end it reads zeros. */
struct fuzz_in {
	const uint8_t *p;
	size_t left;
};

static inline void fuzz_bytes(struct fuzz_in *in, void *v, size_t n)
{
	size_t have = n < in->left ? n : in->left;

	memset(v, 0, n);
	if (have)
		memcpy(v, in->p, have);
	in->p += have;
	in->left -= have;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
	uint8_t v;

	fuzz_bytes(in, &v, sizeof(v));
	return v;
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
	uint16_t v;

	fuzz_bytes(in, &v, sizeof(v));
	return v;
}

static inline uint64_t fuzz_u64(struct fuzz_in *in)
{
	uint64_t v;

	fuzz_bytes(in, &v, sizeof(v));
	return v;
}

/*
 * Copy len bytes to the heap, with no byte more, so that ASan reports each read
 * beyond the end. The caller frees the copy.
 */
static inline uint8_t *fuzz_exact(const void *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	MUST(copy);
	if (len)
		memcpy(copy, p, len);
	return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
