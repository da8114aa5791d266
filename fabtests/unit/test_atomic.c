// SPDX-License-Identifier: BSD-2-Clause
/* Atomics on memory: each operation on each datatype, and by threads. */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>

#include <criterion/criterion.h>

#include "core/atomic.h"

#define ALL_TYPES (RP_ATOMIC_TYPES + 8)
#define ALL_OPS	  (RP_ATOMIC_OPS + 8)

/* The provider casts libfabric's enum values to these. */
Test(atomic, values_are_libfabrics)
{
	cr_assert_eq((int)RP_ATOMIC_MIN, FI_MIN);
	cr_assert_eq((int)RP_ATOMIC_BXOR, FI_BXOR);
	cr_assert_eq((int)RP_ATOMIC_READ, FI_ATOMIC_READ);
	cr_assert_eq((int)RP_ATOMIC_WRITE, FI_ATOMIC_WRITE);
	cr_assert_eq((int)RP_ATOMIC_CSWAP, FI_CSWAP);
	cr_assert_eq((int)RP_ATOMIC_CSWAP_GT, FI_CSWAP_GT);
	cr_assert_eq((int)RP_ATOMIC_MSWAP, FI_MSWAP);
	cr_assert_eq((int)RP_ATOMIC_INT8, FI_INT8);
	cr_assert_eq((int)RP_ATOMIC_UINT64, FI_UINT64);
	cr_assert_eq((int)RP_ATOMIC_FLOAT, FI_FLOAT);
	cr_assert_eq((int)RP_ATOMIC_DOUBLE, FI_DOUBLE);
	cr_assert_eq((int)RP_ATOMIC_FLOAT_COMPLEX, FI_FLOAT_COMPLEX);
}

Test(atomic, valid)
{
	static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8};
	size_t n = 0, size;

	for (unsigned int type = 0; type < ALL_TYPES; type++) {
		for (unsigned int op = 0; op < ALL_OPS; op++) {
			bool bits = op == FI_BOR || op == FI_BAND ||
				    op == FI_BXOR || op == FI_MSWAP;
			bool order = op == FI_MIN || op == FI_MAX ||
				     (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT);
			bool want = op < RP_ATOMIC_OPS &&
				    type < RP_ATOMIC_TYPES &&
				    (!bits || type < RP_ATOMIC_FLOAT) &&
				    (!order || type < RP_ATOMIC_FLOAT_COMPLEX);

			size = 99;
			cr_assert_eq(rp_atomic_valid(op, type, &size), want,
				     "op %u type %u", op, type);
			cr_assert_eq(size, want ? sizes[type] : 99);
			n += want;
		}
	}
	cr_assert_eq(n, 8 * 19 + 2 * 15 + 9);
	cr_assert_not(rp_atomic_valid(UINT32_MAX, 0, &size));
	cr_assert_not(rp_atomic_valid(0, UINT32_MAX, &size));
	for (unsigned int op = 0; op < RP_ATOMIC_OPS; op++) {
		cr_assert_eq(rp_atomic_has_operand(op), op != FI_ATOMIC_READ);
		cr_assert_eq(rp_atomic_has_compare(op), op >= FI_CSWAP);
	}
}

/* Try one operation on every integer type, truncated or sign-extended. */
static void check_integers(enum rp_atomic_op op, int64_t t, int64_t s,
			   int64_t c, int64_t want_signed,
			   uint64_t want_unsigned)
{
	for (int type = RP_ATOMIC_INT8; type <= RP_ATOMIC_UINT64; type++) {
		uint64_t mem[3] = {0x5555555555555555, (uint64_t)t,
				   0x5555555555555555};
		const uint64_t want =
			type % 2 ? want_unsigned : (uint64_t)want_signed;
		uint64_t old = 0;
		size_t size;

		cr_assert(rp_atomic_valid(op, type, &size));
		rp_atomic_execute(op, type, &mem[1], &s, &c, &old, 1);
		cr_assert_eq(memcmp(&old, &t, size), 0, "op %d type %d", op,
			     type);
		cr_assert_eq(memcmp(&mem[1], &want, size), 0,
			     "op %d type %d: %llx", op, type,
			     (unsigned long long)mem[1]);
		/* The bytes behind the target must not change. */
		cr_assert_eq(memcmp((char *)&mem[1] + size, (char *)&t + size,
				    8 - size),
			     0);
		cr_assert_eq(mem[0], 0x5555555555555555);
		cr_assert_eq(mem[2], 0x5555555555555555);
	}
}

Test(atomic, of_integers)
{
	check_integers(RP_ATOMIC_MIN, 5, -3, 0, -3, 5);
	check_integers(RP_ATOMIC_MIN, 5, 3, 0, 3, 3);
	check_integers(RP_ATOMIC_MAX, 5, -3, 0, 5, (uint64_t)-3);
	check_integers(RP_ATOMIC_MAX, 5, 7, 0, 7, 7);
	check_integers(RP_ATOMIC_SUM, 100, 50, 0, 150, 150);
	check_integers(RP_ATOMIC_SUM, -1, 2, 0, 1, 1);
	check_integers(RP_ATOMIC_SUM, INT64_MAX, INT64_MAX, 0, -2,
		       (uint64_t)-2);
	check_integers(RP_ATOMIC_PROD, -7, 9, 0, -63, (uint64_t)-63);
	check_integers(RP_ATOMIC_PROD, INT64_MIN, -1, 0, INT64_MIN, 1ull << 63);
	check_integers(RP_ATOMIC_LOR, 0, 0, 0, 0, 0);
	check_integers(RP_ATOMIC_LOR, 0, 7, 0, 1, 1);
	check_integers(RP_ATOMIC_LAND, 2, 4, 0, 1, 1);
	check_integers(RP_ATOMIC_LAND, 2, 0, 0, 0, 0);
	check_integers(RP_ATOMIC_LXOR, 2, 4, 0, 0, 0);
	check_integers(RP_ATOMIC_LXOR, 2, 0, 0, 1, 1);
	check_integers(RP_ATOMIC_BOR, 0x51, 0x2c, 0, 0x7d, 0x7d);
	check_integers(RP_ATOMIC_BAND, 0x51, 0x3c, 0, 0x10, 0x10);
	check_integers(RP_ATOMIC_BXOR, 0x51, 0x3c, 0, 0x6d, 0x6d);
	check_integers(RP_ATOMIC_READ, 0x51, 0x3c, 0, 0x51, 0x51);
	check_integers(RP_ATOMIC_WRITE, 0x51, 0x3c, 0, 0x3c, 0x3c);
	check_integers(RP_ATOMIC_CSWAP, 5, 9, 5, 9, 9);
	check_integers(RP_ATOMIC_CSWAP, 5, 9, 6, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_NE, 5, 9, 5, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_NE, 5, 9, 6, 9, 9);
	/* The comparison reads: compare <op> target. */
	check_integers(RP_ATOMIC_CSWAP_LE, 5, 9, 5, 9, 9);
	check_integers(RP_ATOMIC_CSWAP_LE, 5, 9, 6, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_LE, 5, 9, -1, 9, 5);
	check_integers(RP_ATOMIC_CSWAP_LT, 5, 9, 5, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_LT, 5, 9, 4, 9, 9);
	check_integers(RP_ATOMIC_CSWAP_GE, 5, 9, 5, 9, 9);
	check_integers(RP_ATOMIC_CSWAP_GE, 5, 9, 4, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_GT, 5, 9, 5, 5, 5);
	check_integers(RP_ATOMIC_CSWAP_GT, 5, 9, -1, 5, 9);
	check_integers(RP_ATOMIC_MSWAP, 0x55, 0x2c, 0x0f, 0x5c, 0x5c);
}

static void check_reals(enum rp_atomic_op op, double t, double s, double c,
			double want)
{
	float ft = (float)t, fs = (float)s, fc = (float)c, fold = 0;
	float fwant = (float)want;
	double old = 0;

	rp_atomic_execute(op, RP_ATOMIC_FLOAT, &ft, &fs, &fc, &fold, 1);
	cr_assert_eq(memcmp(&ft, &fwant, sizeof(ft)), 0, "op %d: %g", op,
		     (double)ft);
	cr_assert_eq(fold, (float)t);
	rp_atomic_execute(op, RP_ATOMIC_DOUBLE, &t, &s, &c, &old, 1);
	cr_assert_eq(memcmp(&t, &want, sizeof(t)), 0, "op %d: %g", op, t);
}

Test(atomic, of_reals)
{
	check_reals(RP_ATOMIC_MIN, 5, -3, 0, -3);
	check_reals(RP_ATOMIC_MIN, -5, -3, 0, -5);
	check_reals(RP_ATOMIC_MAX, 5, -3, 0, 5);
	check_reals(RP_ATOMIC_MAX, 5, NAN, 0, 5);
	check_reals(RP_ATOMIC_SUM, 1.5, 2.25, 0, 3.75);
	check_reals(RP_ATOMIC_PROD, 1.5, -2, 0, -3);
	check_reals(RP_ATOMIC_LOR, 0, 0.5, 0, 1);
	check_reals(RP_ATOMIC_LAND, 0.5, 0.25, 0, 1);
	check_reals(RP_ATOMIC_LXOR, 0.5, 0.25, 0, 0);
	check_reals(RP_ATOMIC_READ, 0.5, 0.25, 0, 0.5);
	check_reals(RP_ATOMIC_WRITE, 0.5, 0.25, 0, 0.25);
	check_reals(RP_ATOMIC_CSWAP, 0.5, 0.25, 0.5, 0.25);
	check_reals(RP_ATOMIC_CSWAP, 0.5, 0.25, 0.75, 0.5);
	check_reals(RP_ATOMIC_CSWAP, 0.0, 0.25, -0.0, 0.0);
	check_reals(RP_ATOMIC_CSWAP_NE, 0.5, 0.25, 0.75, 0.25);
	check_reals(RP_ATOMIC_CSWAP_NE, 0.0, 0.25, -0.0, 0.0);
	check_reals(RP_ATOMIC_CSWAP_LE, 0.5, 0.25, 0.5, 0.25);
	check_reals(RP_ATOMIC_CSWAP_LT, 0.5, 0.25, 0.5, 0.5);
	check_reals(RP_ATOMIC_CSWAP_GE, 0.5, 0.25, 0.75, 0.25);
	check_reals(RP_ATOMIC_CSWAP_GT, 0.5, 0.25, 0.5, 0.5);
}

/* Sums and products of floats are rounded once, to float. */
Test(atomic, floats_are_rounded_once)
{
	static const float v[] = {1,	    FLT_EPSILON, FLT_EPSILON / 2,
				  FLT_MAX,  FLT_MIN,	 1.0000001f,
				  3.14159f, 16777216,	 1e-20f};
	const int n = sizeof(v) / sizeof(v[0]);

	for (int i = 0; i < n * n; i++) {
		float t = v[i / n], s = v[i % n], sum = t + s, p = t * s, u = t;

		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_FLOAT, &t, &s, NULL,
				  NULL, 1);
		cr_assert_eq(t, sum);
		rp_atomic_execute(RP_ATOMIC_PROD, RP_ATOMIC_FLOAT, &u, &s, NULL,
				  NULL, 1);
		cr_assert_eq(u, p);
	}
}

/* A stored value keeps its bytes, even those of a signaling NaN. */
Test(atomic, bytes_are_kept)
{
	const uint32_t snan = 0x7fa00001;
	uint32_t t = 0;

	rp_atomic_execute(RP_ATOMIC_WRITE, RP_ATOMIC_FLOAT, &t, &snan, NULL,
			  NULL, 1);
	cr_assert_eq(t, snan);
	t = 0;
	rp_atomic_execute(RP_ATOMIC_CSWAP, RP_ATOMIC_FLOAT, &t, &snan,
			  &(uint32_t){0}, NULL, 1);
	cr_assert_eq(t, snan);
}

static void check_complexes(enum rp_atomic_op op, float complex t,
			    float complex s, float complex c,
			    float complex want)
{
	_Alignas(8) float complex mem = t;
	float complex old = 0;

	rp_atomic_execute(op, RP_ATOMIC_FLOAT_COMPLEX, &mem, &s, &c, &old, 1);
	cr_assert(mem == want, "op %d: %g %g", op, (double)crealf(mem),
		  (double)cimagf(mem));
	cr_assert(old == t);
}

Test(atomic, of_complex_numbers)
{
	check_complexes(RP_ATOMIC_SUM, 1 + 2 * I, 3 - 5 * I, 0, 4 - 3 * I);
	check_complexes(RP_ATOMIC_PROD, 1 + 2 * I, 3 - 5 * I, 0, 13 + I);
	check_complexes(RP_ATOMIC_LOR, 0, 2 * I, 0, 1);
	check_complexes(RP_ATOMIC_LAND, 1, 2 * I, 0, 1);
	check_complexes(RP_ATOMIC_LAND, 1, 0, 0, 0);
	check_complexes(RP_ATOMIC_LXOR, 1, 2 * I, 0, 0);
	check_complexes(RP_ATOMIC_READ, 1, 2 * I, 0, 1);
	check_complexes(RP_ATOMIC_WRITE, 1, 2 * I, 0, 2 * I);
	check_complexes(RP_ATOMIC_CSWAP, 1 + I, 2 * I, 1 + I, 2 * I);
	check_complexes(RP_ATOMIC_CSWAP, 1 + I, 2 * I, 1, 1 + I);
	check_complexes(RP_ATOMIC_CSWAP_NE, 1 + I, 2 * I, 1, 2 * I);
	check_complexes(RP_ATOMIC_CSWAP_NE, 1 + I, 2 * I, 1 + I, 1 + I);
}

/* Only the target must be aligned; arrays of operands need not be. */
Test(atomic, arrays_of_operands_may_be_unaligned)
{
	char bytes[3 * 5 * 4 + 3];
	uint32_t t[5] = {1, 2, 3, 4, 5}, v;

	for (int i = 0; i < 5; i++) {
		v = 10u * i;
		memcpy(bytes + 1 + 4 * i, &v, 4);
		v = i % 2 ? t[i] : 0;
		memcpy(bytes + 22 + 4 * i, &v, 4);
	}
	rp_atomic_execute(RP_ATOMIC_CSWAP, RP_ATOMIC_UINT32, t, bytes + 1,
			  bytes + 22, bytes + 43, 5);
	for (uint32_t i = 0; i < 5; i++) {
		memcpy(&v, bytes + 43 + 4 * i, 4);
		cr_assert_eq(v, i + 1);
		cr_assert_eq(t[i], i % 2 ? 10 * i : i + 1);
	}
}

/* Atomics on one or two bytes leave the neighbouring bytes. */
Test(atomic, small_elements_leave_their_neighbours)
{
	uint8_t t[8] = {250, 1, 2, 3, 4, 5, 6, 7}, old[8];
	const uint8_t s[8] = {3, 3, 3, 3, 3, 3, 3, 3};
	uint16_t t2[4] = {60000, 1, 2, 3}, old2[4];
	const uint16_t s2[4] = {2, 2, 2, 2};

	rp_atomic_execute(RP_ATOMIC_MAX, RP_ATOMIC_UINT8, t, s, NULL, old, 8);
	cr_assert_eq(memcmp(t, "\xfa\3\3\3\4\5\6\7", 8), 0);
	cr_assert_eq(memcmp(old, "\xfa\1\2\3\4\5\6\7", 8), 0);
	rp_atomic_execute(RP_ATOMIC_CSWAP, RP_ATOMIC_UINT8, t, old, s, NULL, 8);
	cr_assert_eq(memcmp(t, "\xfa\1\2\3\4\5\6\7", 8), 0);
	rp_atomic_execute(RP_ATOMIC_MIN, RP_ATOMIC_UINT16, t2, s2, NULL, old2,
			  4);
	cr_assert(t2[0] == 2 && t2[1] == 1 && t2[2] == 2 && t2[3] == 2);
	cr_assert(old2[0] == 60000 && old2[1] == 1 && old2[2] == 2 &&
		  old2[3] == 3);
}

enum {
	THREADS = 4,
	ROUNDS = 20000
};
static _Alignas(8) struct {
	uint64_t u64;
	uint8_t u8, pad;
	uint16_t u16;
	float f;
	_Alignas(8) float complex c;
} shared;

static void *add_repeatedly(void *arg)
{
	static const uint64_t one = 1;
	static const float f = 1;
	static const float complex c = 1 + I;

	for (int i = 0; i < ROUNDS; i++) {
		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_UINT64, &shared.u64,
				  &one, NULL, NULL, 1);
		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_UINT8, &shared.u8,
				  &one, NULL, NULL, 1);
		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_UINT16, &shared.u16,
				  &one, NULL, NULL, 1);
		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_FLOAT, &shared.f, &f,
				  NULL, NULL, 1);
		rp_atomic_execute(RP_ATOMIC_SUM, RP_ATOMIC_FLOAT_COMPLEX,
				  &shared.c, &c, NULL, NULL, 1);
	}
	return arg;
}

Test(atomic, increments_of_threads_are_not_lost)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, add_repeatedly, NULL);
	/* The program's own thread increments the same counter. */
	for (int i = 0; i < ROUNDS; i++)
		__atomic_fetch_add(&shared.u64, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	cr_assert_eq(shared.u64, (THREADS + 1) * ROUNDS);
	cr_assert_eq(shared.u8, (uint8_t)(THREADS * ROUNDS));
	cr_assert_eq(shared.u16, (uint16_t)(THREADS * ROUNDS));
	cr_assert_eq(shared.f, THREADS * ROUNDS);
	cr_assert(shared.c == THREADS * ROUNDS * (1 + I));
}
