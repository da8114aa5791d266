// SPDX-License-Identifier: BSD-2-Clause
/* Atomics that the agent executes in the memory of a region. */
#include <complex.h>
#include <string.h>

#include "core/atomic.h"

#define BIT(op) (1u << RP_ATOMIC_##op)

/* Masks of operations: on any datatype, on ordered datatypes, on integers. */
#define ANY_OPS                                                                \
	(BIT(SUM) | BIT(PROD) | BIT(LOR) | BIT(LAND) | BIT(LXOR) | BIT(READ) | \
	 BIT(WRITE) | BIT(CSWAP) | BIT(CSWAP_NE))
#define ORDERED_OPS                                                            \
	(ANY_OPS | BIT(MIN) | BIT(MAX) | BIT(CSWAP_LE) | BIT(CSWAP_LT) |       \
	 BIT(CSWAP_GE) | BIT(CSWAP_GT))
#define INT_OPS (ORDERED_OPS | BIT(BOR) | BIT(BAND) | BIT(BXOR) | BIT(MSWAP))

enum kind {
	SIGNED,
	UNSIGNED,
	REAL,
	COMPLEX,
};

static const struct {
	uint8_t size;
	uint8_t kind; /* of enum kind */
	uint32_t ops;
} types[RP_ATOMIC_TYPES] = {
	[RP_ATOMIC_INT8] = {1, SIGNED, INT_OPS},
	[RP_ATOMIC_UINT8] = {1, UNSIGNED, INT_OPS},
	[RP_ATOMIC_INT16] = {2, SIGNED, INT_OPS},
	[RP_ATOMIC_UINT16] = {2, UNSIGNED, INT_OPS},
	[RP_ATOMIC_INT32] = {4, SIGNED, INT_OPS},
	[RP_ATOMIC_UINT32] = {4, UNSIGNED, INT_OPS},
	[RP_ATOMIC_INT64] = {8, SIGNED, INT_OPS},
	[RP_ATOMIC_UINT64] = {8, UNSIGNED, INT_OPS},
	[RP_ATOMIC_FLOAT] = {sizeof(float), REAL, ORDERED_OPS},
	[RP_ATOMIC_DOUBLE] = {sizeof(double), REAL, ORDERED_OPS},
	[RP_ATOMIC_FLOAT_COMPLEX] = {sizeof(float complex), COMPLEX, ANY_OPS},
};

bool rp_atomic_valid(unsigned int op, unsigned int type, size_t *size)
{
	if (op >= RP_ATOMIC_OPS || type >= RP_ATOMIC_TYPES ||
	    !(types[type].ops & 1u << op))
		return false;
	*size = types[type].size;
	return true;
}

/* The element's bytes as an unsigned integer of its size. */
static uint64_t bits_get(const void *from, size_t size)
{
	uint8_t v8;
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (size) {
	case 1:
		memcpy(&v8, from, sizeof(v8));
		return v8;
	case 2:
		memcpy(&v16, from, sizeof(v16));
		return v16;
	case 4:
		memcpy(&v32, from, sizeof(v32));
		return v32;
	default:
		memcpy(&v64, from, sizeof(v64));
		return v64;
	}
}

/* Extend the element to the widest type of its kind: int64_t or double. */
static int64_t bits_signed(uint64_t bits, size_t size)
{
	unsigned int unused = 64 - 8 * (unsigned int)size;

	return (int64_t)(bits << unused) >> unused;
}

static double bits_real(uint64_t bits, size_t size)
{
	uint32_t half = (uint32_t)bits;
	float f;
	double d;

	memcpy(&d, &bits, sizeof(d));
	memcpy(&f, &half, sizeof(f));
	return size == sizeof(d) ? d : (double)f;
}

static uint64_t real_bits(double d, size_t size)
{
	float f = (float)d;

	return size == sizeof(d) ? bits_get(&d, sizeof(d))
				 : bits_get(&f, sizeof(f));
}

/*
 * Cases of the switch of decide_KIND(), which returns whether *v replaces the
 * old value t. s: operand, which *v is on entry; c: compare value.
 */
#define ANY_CASES(t, s, c, v)                                                  \
	case RP_ATOMIC_SUM:                                                    \
		*(v) = (t) + (s);                                              \
		return true;                                                   \
	case RP_ATOMIC_PROD:                                                   \
		*(v) = (t) * (s);                                              \
		return true;                                                   \
	case RP_ATOMIC_LOR:                                                    \
		*(v) = (t) != 0 || (s) != 0;                                   \
		return true;                                                   \
	case RP_ATOMIC_LAND:                                                   \
		*(v) = (t) != 0 && (s) != 0;                                   \
		return true;                                                   \
	case RP_ATOMIC_LXOR:                                                   \
		*(v) = ((t) != 0) != ((s) != 0);                               \
		return true;                                                   \
	case RP_ATOMIC_CSWAP_NE:                                               \
		return (c) != (t)
#define ORDERED_CASES(t, s, c)                                                 \
	case RP_ATOMIC_MIN:                                                    \
		return (t) > (s);                                              \
	case RP_ATOMIC_MAX:                                                    \
		return (t) < (s);                                              \
	case RP_ATOMIC_CSWAP_LE:                                               \
		return (c) <= (t);                                             \
	case RP_ATOMIC_CSWAP_LT:                                               \
		return (c) < (t);                                              \
	case RP_ATOMIC_CSWAP_GE:                                               \
		return (c) >= (t);                                             \
	case RP_ATOMIC_CSWAP_GT:                                               \
		return (c) > (t)

static bool decide_unsigned(enum rp_atomic_op op, uint64_t t, uint64_t s,
			    uint64_t c, uint64_t *v)
{
	switch (op) {
		ANY_CASES(t, s, c, v);
		ORDERED_CASES(t, s, c);
	case RP_ATOMIC_BOR:
		*v = t | s;
		return true;
	case RP_ATOMIC_BAND:
		*v = t & s;
		return true;
	case RP_ATOMIC_BXOR:
		*v = t ^ s;
		return true;
	case RP_ATOMIC_MSWAP:
		*v = (s & c) | (t & ~c);
		return true;
	default:
		return true;
	}
}

/* Arithmetic is unsigned, so that overflow wraps around. */
static bool decide_signed(enum rp_atomic_op op, int64_t t, int64_t s, int64_t c,
			  uint64_t *v)
{
	switch (op) {
		ORDERED_CASES(t, s, c);
	default:
		return decide_unsigned(op, (uint64_t)t, (uint64_t)s,
				       (uint64_t)c, v);
	}
}

/* Also for float: rounding to double, then to float, equals one rounding. */
static bool decide_real(enum rp_atomic_op op, double t, double s, double c,
			double *v)
{
	switch (op) {
		ANY_CASES(t, s, c, v);
		ORDERED_CASES(t, s, c);
	default:
		return true;
	}
}

static bool decide_complex(enum rp_atomic_op op, float complex t,
			   float complex s, float complex c, float complex *v)
{
	switch (op) {
		ANY_CASES(t, s, c, v);
	default:
		return true;
	}
}

static float complex bits_complex(uint64_t bits)
{
	float complex v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* Does the operation replace the element t? *v: the new one. All raw bytes. */
static bool decide_element(enum rp_atomic_op op, enum rp_atomic_type type,
			   uint64_t t, uint64_t s, uint64_t c, uint64_t *v)
{
	const size_t n = types[type].size;
	float complex z;
	double d;
	bool store;

	*v = s;
	/* CSWAP compares bytes, as in libfabric: 0.0 differs from -0.0. */
	if (op == RP_ATOMIC_CSWAP)
		return t == c;
	switch ((enum kind)types[type].kind) {
	case SIGNED:
		return decide_signed(op, bits_signed(t, n), bits_signed(s, n),
				     bits_signed(c, n), v);
	case UNSIGNED:
		return decide_unsigned(op, t, s, c, v);
	case REAL:
		d = bits_real(s, n);
		store = decide_real(op, bits_real(t, n), d, bits_real(c, n),
				    &d);
		/* A NaN that is only stored keeps its bytes. */
		if (op >= RP_ATOMIC_SUM && op <= RP_ATOMIC_LXOR)
			*v = real_bits(d, n);
		return store;
	case COMPLEX:
		z = bits_complex(s);
		store = decide_complex(op, bits_complex(t), z, bits_complex(c),
				       &z);
		memcpy(v, &z, sizeof(z));
		return store;
	}
	return false;
}

static void bits_put(void *to, uint64_t bits, size_t size)
{
	const uint8_t v8 = (uint8_t)bits;
	const uint16_t v16 = (uint16_t)bits;
	const uint32_t v32 = (uint32_t)bits;

	memcpy(to,
	       size == 1   ? (const void *)&v8
	       : size == 2 ? (const void *)&v16
	       : size == 4 ? (const void *)&v32
			   : (const void *)&bits,
	       size);
}

static uint64_t element_load(const void *p, size_t size)
{
	switch (size) {
	case 1:
		return __atomic_load_n((const uint8_t *)p, __ATOMIC_SEQ_CST);
	case 2:
		return __atomic_load_n((const uint16_t *)p, __ATOMIC_SEQ_CST);
	case 4:
		return __atomic_load_n((const uint32_t *)p, __ATOMIC_SEQ_CST);
	default:
		return __atomic_load_n((const uint64_t *)p, __ATOMIC_SEQ_CST);
	}
}

#define REPLACE(type, p, old, v)                                               \
	({                                                                     \
		type expected = (type) * (old);                                \
		bool done = __atomic_compare_exchange_n(                       \
			(type *)(p), &expected, (type)(v), false,              \
			__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
		*(old) = expected;                                             \
		done;                                                          \
	})

/* Replace the element by v if it is *old. False: *old is set to the element. */
static bool element_replace(void *p, size_t size, uint64_t *old, uint64_t v)
{
	switch (size) {
	case 1:
		return REPLACE(uint8_t, p, old, v);
	case 2:
		return REPLACE(uint16_t, p, old, v);
	case 4:
		return REPLACE(uint32_t, p, old, v);
	default:
		return REPLACE(uint64_t, p, old, v);
	}
}

void rp_atomic_execute(enum rp_atomic_op op, enum rp_atomic_type type,
		       void *target, const void *operand, const void *compare,
		       void *result, size_t count)
{
	const size_t size = types[type].size;

	for (size_t at = 0; at < count * size; at += size) {
		char *p = (char *)target + at;
		uint64_t old = element_load(p, size), s = 0, c = 0, v;

		if (operand)
			s = bits_get((const char *)operand + at, size);
		if (compare)
			c = bits_get((const char *)compare + at, size);
		while (op != RP_ATOMIC_READ &&
		       decide_element(op, type, old, s, c, &v) &&
		       !element_replace(p, size, &old, v))
			;
		if (result)
			bits_put((char *)result + at, old, size);
	}
}
