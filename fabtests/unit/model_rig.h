/* SPDX-License-Identifier: BSD-2-Clause */
/* One model and its memory, with short names for the tests of its rules. */
#ifndef MODEL_RIG_H
#define MODEL_RIG_H

#include <criterion/criterion.h>

#include "pmsim/model.h"
#include "seeded.h"

static struct model *m;
static uint64_t *a; /* two pages; words 0 to 7 share a cache line */

static inline void make_model(enum model_kind kind, enum model_domain domain,
			      enum model_place place)
{
	struct model_cfg cfg = {
		.kind = kind,
		.domain = domain,
		.place = place,
		.fence = true,
		.levels = MODEL_VISIBLE | MODEL_PERSISTENT,
	};

	m = model_new(&cfg);
	cr_assert(m);
	a = model_alloc(m, 2 * MODEL_PAGE);
	cr_assert(a);
}

static inline void make_relaxed(enum model_kind kind, enum model_domain domain,
				enum model_place place)
{
	struct model_cfg cfg = {
		.kind = kind,
		.domain = domain,
		.place = place,
		.fence = true,
		.relaxed = true,
		.levels = MODEL_VISIBLE | MODEL_PERSISTENT,
	};

	m = model_new(&cfg);
	cr_assert(m);
	a = model_alloc(m, 2 * MODEL_PAGE);
	cr_assert(a);
}

static inline void model_fini(void)
{
	model_delete(m);
}

static inline void store(unsigned int word, uint64_t v)
{
	model_store(m, MODEL_CPU_USER, &a[word], &v, sizeof(v));
}

static inline void store_kernel(unsigned int word, uint64_t v)
{
	model_store(m, MODEL_CPU_KERNEL, &a[word], &v, sizeof(v));
}

static inline void store_nt(unsigned int word, uint64_t v)
{
	model_store_nt(m, &a[word], &v, sizeof(v));
}

static inline void persist(unsigned int word)
{
	model_clwb(m, &a[word], 1);
	model_sfence(m);
}

static inline void dma(unsigned int qp, unsigned int word, uint64_t v)
{
	model_dma_write(m, qp, &a[word], &v, sizeof(v));
}

/* Write a word by DMA and place it at once. */
static inline void dma_now(unsigned int word, uint64_t v)
{
	dma(9, word, v);
	model_dma_step(m, model_dma_ready(m) - 1);
	cr_assert_eq(a[word], v);
}

static inline uint64_t pick_seeded(void *ctx, uint64_t below)
{
	cr_assert_geq(below, 2);
	return seeded_below(ctx, below);
}

#define LOST 0x1057

/*
 * Check that got has exactly the wanted values, in any order. LOST among them:
 * the word may also have unknown values.
 */
static inline void check_values(int line, const char *what, const uint64_t *got,
				size_t n, bool lost, const uint64_t *want,
				size_t nwant)
{
	size_t nvalues = 0;
	bool want_lost = false;

	for (size_t i = 0; i < nwant; i++) {
		size_t j = 0;

		if (want[i] == LOST) {
			want_lost = true;
			continue;
		}
		nvalues++;
		while (j < n && got[j] != want[i])
			j++;
		cr_assert_lt(j, n, "line %d: %s does not leave %#lx", line,
			     what, (unsigned long)want[i]);
	}
	cr_assert_eq(n, nvalues, "line %d: %s leaves %zu values, not %zu", line,
		     what, n, nvalues);
	cr_assert_eq(lost, want_lost, "line %d: %s: lost is %d", line, what,
		     lost);
}

#define WANT(what, word, ...)                                                  \
	do {                                                                   \
		uint64_t w[] = {__VA_ARGS__}, v[MODEL_VALUES];                 \
		bool lost;                                                     \
		size_t n = what(m, &a[word], v, &lost);                        \
                                                                               \
		check_values(__LINE__, #what, v, n, lost, w,                   \
			     sizeof(w) / sizeof(*w));                          \
	} while (0)
#define CUT(word, ...)	WANT(model_after_cut, word, __VA_ARGS__)
#define KILL(word, ...) WANT(model_after_kill, word, __VA_ARGS__)

#endif
