/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory model against a machine of explicit caches and media. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "pmsim/model.h"
#include "seeded.h"

/*
 * Random short programs on three words, two of them in one line. The machine is
 * nondeterministic: the test keeps all its states, and after each step of the
 * program adds all states that an adversary can reach. The media of these
 * states must hold exactly the values that the model allows after a power cut.
 */
#define WORDS	 3
#define STEPS	 9
#define MAX_OPS	 5 /* NIC writes in one program */
#define COUNT(x) (sizeof(x) / sizeof(*(x)))
#define NOBODY	 9 /* no queue pair: that of a write was closed */

/* A word is two halves of 4 bytes, each with a small number in it. */
struct w {
	uint8_t half[2];
};

struct machine {
	struct w media[WORDS]; /* DIMM or memory controller; FILE: the disk */
	struct w cache[WORDS]; /* FILE: the page cache */
	struct w in_flight[WORDS]; /* in flight from CPU or cache to media */
	uint8_t has_in_flight[WORDS];
	uint8_t newer[WORDS]; /* fly[] holds a non-temporal store, not the line
			       */
	uint8_t cached[2];    /* by line: the cache has it */
	uint8_t dirty[2];     /* by page: the kernel knows it as dirty */
	uint8_t arrived[MAX_OPS]; /* by NIC write: bit mask of arrived words */
	uint8_t rc[WORDS][MAX_OPS]; /* root complex: index of NIC write + 1 */
};

/* The program and the configuration of the machine, common to all states. */
struct world {
	struct model_cfg cfg;
	bool third_word_apart; /* the third word has its own page */
	bool metadata[2];
	struct {
		unsigned int qp, mask; /* mask: words that are written */
		struct w v[WORDS];
		uint8_t halves;	   /* bit mask of written halves */
		bool seen_arrived; /* the program saw it arrive */
	} dma[MAX_OPS];
	unsigned int ndma;
};

static int line_of(int w)
{
	return w == 2;
}

static int page_no(const struct world *x, int w)
{
	return x->third_word_apart && w == 2;
}

/* --- sets of states --- */

#define SLOTS (1 << 18)

static struct machine states[SLOTS / 2], next_states[SLOTS / 2];
static uint32_t slots[SLOTS];
static uint32_t used[SLOTS / 2];
static size_t nstates, nused;

static void set_clear(void)
{
	for (size_t i = 0; i < nused; i++)
		slots[used[i]] = 0;
	nstates = nused = 0;
}

static void set_add(const struct machine *s)
{
	const uint8_t *p = (const uint8_t *)s;
	uint64_t h = 14695981039346656037ull;

	for (size_t i = 0; i < sizeof(*s); i++)
		h = (h ^ p[i]) * 1099511628211ull;
	h ^= h >> 29;
	for (h %= SLOTS; slots[h]; h = (h + 1) % SLOTS)
		if (!memcmp(&states[slots[h] - 1], s, sizeof(*s)))
			return;
	cr_assert_lt(nstates, SLOTS / 2, "too many states");
	states[nstates++] = *s;
	slots[h] = nstates;
	used[nused++] = h;
}

/* --- the machine --- */

static bool is_file(const struct world *x)
{
	return x->cfg.kind == MODEL_FILE;
}

static bool has_rc(const struct world *x)
{
	return !is_file(x) && x->cfg.domain == MODEL_ADR &&
	       x->cfg.place == MODEL_DMA_MEMORY;
}

static struct w mix_halves(struct w old, struct w v, uint8_t halves)
{
	for (int h = 0; h < 2; h++)
		if (halves >> h & 1)
			old.half[h] = v.half[h];
	return old;
}

/* Move the oldest write of the root complex to the media. */
static void drain_oldest(const struct world *x, struct machine *s, int w)
{
	int d = s->rc[w][0] - 1;

	s->media[w] = mix_halves(s->media[w], x->dma[d].v[w], x->dma[d].halves);
	memmove(s->rc[w], s->rc[w] + 1, MAX_OPS - 1);
	s->rc[w][MAX_OPS - 1] = 0;
}

/* The word as a reader below the caches sees it. */
static struct w below_caches(const struct world *x, const struct machine *s,
			     int w)
{
	struct machine t = *s;

	while (t.rc[w][0])
		drain_oldest(x, &t, w);
	return t.media[w];
}

static struct w seen_by_cpu(const struct world *x, const struct machine *s,
			    int w)
{
	if (s->newer[w])
		return s->in_flight[w];
	return s->cached[line_of(w)] ? s->cache[w] : below_caches(x, s, w);
}

static void fetch_line(const struct world *x, struct machine *s, int line)
{
	if (s->cached[line])
		return;
	for (int w = 0; w < WORDS; w++)
		if (line_of(w) == line)
			s->cache[w] = below_caches(x, s, w);
	s->cached[line] = 1;
}

/*
 * Write a whole word from the CPU to the media. The word includes the NIC's
 * writes in the root complex (see place_word()), which must not overwrite it
 * later.
 */
static void cpu_write(struct machine *s, int w, struct w v)
{
	s->media[w] = v;
	memset(s->rc[w], 0, MAX_OPS);
}

static void land_word(struct machine *s, int w)
{
	static const struct w none;

	cpu_write(s, w, s->in_flight[w]);
	if (s->newer[w] && s->cached[line_of(w)])
		s->cache[w] = s->in_flight[w];
	s->in_flight[w] = none;
	s->has_in_flight[w] = s->newer[w] = 0;
}

static void evict_line(struct machine *s, int line)
{
	static const struct w none;

	for (int w = 0; w < WORDS; w++) {
		if (line_of(w) != line)
			continue;
		/* Two writes to one address arrive in order. */
		if (s->has_in_flight[w] && !s->newer[w]) {
			s->in_flight[w] = none;
			s->has_in_flight[w] = 0;
		}
		cpu_write(s, w, s->cache[w]);
		s->cache[w] = none;
	}
	s->cached[line] = 0;
}

static void cpu_store(const struct world *x, struct machine *s, int w,
		      struct w v, uint8_t halves, bool user)
{
	struct w now = mix_halves(seen_by_cpu(x, s, w), v, halves);

	fetch_line(x, s, line_of(w));
	s->cache[w] = now;
	s->newer[w] = 0;
	if (user)
		s->dirty[page_no(x, w)] = 1;
}

static void store_nt(const struct world *x, struct machine *s, int w,
		     struct w v, uint8_t halves)
{
	if (is_file(x)) {
		cpu_store(x, s, w, v, halves, true);
		return;
	}
	s->in_flight[w] = mix_halves(seen_by_cpu(x, s, w), v, halves);
	s->has_in_flight[w] = s->newer[w] = 1;
	s->dirty[page_no(x, w)] = 1;
}

static void clwb_line(const struct world *x, struct machine *s, int line)
{
	if (is_file(x))
		return;
	for (int w = 0; w < WORDS; w++) {
		if (line_of(w) != line || s->newer[w])
			continue;
		if (!s->cached[line] && !s->rc[w][0])
			continue;
		s->in_flight[w] = seen_by_cpu(x, s, w);
		s->has_in_flight[w] = 1;
	}
}

static void cpu_sfence(struct machine *s)
{
	for (int w = 0; w < WORDS; w++)
		if (s->has_in_flight[w])
			land_word(s, w);
}

static void write_back(const struct world *x, struct machine *s, int page)
{
	for (int w = 0; w < WORDS; w++) {
		if (page_no(x, w) != page)
			continue;
		if (s->has_in_flight[w])
			land_word(s, w);
		cpu_write(s, w, seen_by_cpu(x, s, w));
	}
	s->dirty[page] = 0;
}

/* Place one word of a NIC's write. */
static void place_word(const struct world *x, struct machine *s, int d, int w)
{
	struct w v = x->dma[d].v[w];
	uint8_t halves = x->dma[d].halves;

	if (is_file(x) ||
	    (x->cfg.domain != MODEL_EADR && x->cfg.place == MODEL_DMA_CACHE)) {
		cpu_store(x, s, w, v, halves, false);
		return;
	}
	/* Change the written halves in every copy of the word. */
	if (x->cfg.place == MODEL_DMA_CACHE)
		fetch_line(x, s, line_of(w));
	else if (has_rc(x))
		s->rc[w][strnlen((const char *)s->rc[w], MAX_OPS)] = d + 1;
	else
		s->media[w] = mix_halves(s->media[w], v, halves);
	if (s->cached[line_of(w)])
		s->cache[w] = mix_halves(s->cache[w], v, halves);
	if (s->has_in_flight[w])
		s->in_flight[w] = mix_halves(s->in_flight[w], v, halves);
}

enum arrivals {
	NO_ARRIVALS,
	READY_ARRIVE, /* those that were ready at the cut */
	ANY_ARRIVE,
};

/* Whether all earlier writes that d must not overtake have arrived. */
static bool is_next(const struct world *x, const struct machine *s, int d,
		    enum arrivals arrivals)
{
	if (x->dma[d].seen_arrived)
		return false;
	for (int e = 0; e < d && !x->cfg.relaxed; e++)
		if (!x->dma[e].seen_arrived && x->dma[e].qp == x->dma[d].qp &&
		    (arrivals == READY_ARRIVE ||
		     s->arrived[e] != x->dma[e].mask))
			return false;
	return true;
}

static void explore_one(const struct world *x, struct machine s,
			enum arrivals arrivals)
{
	struct machine t;

	for (int p = 0; p < 2; p++) {
		if (!s.dirty[p])
			continue;
		t = s;
		write_back(x, &t, p);
		set_add(&t);
	}
	for (int l = 0; l < 2 && !is_file(x); l++) {
		if (!s.cached[l])
			continue;
		t = s;
		evict_line(&t, l);
		set_add(&t);
	}
	for (int w = 0; w < WORDS; w++) {
		if (!s.has_in_flight[w])
			continue;
		t = s;
		land_word(&t, w);
		set_add(&t);
	}
	for (int w = 0; w < WORDS; w++) {
		if (!s.rc[w][0])
			continue;
		t = s;
		drain_oldest(x, &t, w);
		set_add(&t);
	}
	for (int d = 0; d < (int)x->ndma && arrivals; d++) {
		if (!is_next(x, &s, d, arrivals))
			continue;
		for (int w = 0; w < WORDS; w++) {
			if (!(x->dma[d].mask & ~s.arrived[d] & 1u << w))
				continue;
			t = s;
			place_word(x, &t, d, w);
			t.arrived[d] |= 1u << w;
			set_add(&t);
		}
	}
}

static void explore_states(const struct world *x, enum arrivals arrivals)
{
	for (size_t i = 0; i < nstates; i++)
		explore_one(x, states[i], arrivals);
}

/* --- what a power cut leaves --- */

static uint64_t value_of(struct w v)
{
	return v.half[0] | (uint64_t)v.half[1] << 32;
}

static bool all_arrived(const struct world *x, const struct machine *s)
{
	for (unsigned int d = 0; d < x->ndma; d++)
		if (!x->dma[d].seen_arrived && s->arrived[d] != x->dma[d].mask)
			return false;
	return true;
}

/* Returns false if power cannot fail in this state. */
static bool value_after_cut(const struct world *x, const struct machine *s,
			    int w, uint64_t *v)
{
	if (is_file(x) || x->cfg.domain == MODEL_ADR)
		*v = value_of(s->media[w]);
	else if (x->cfg.domain == MODEL_EADR)
		*v = value_of(s->cached[line_of(w)] ? s->cache[w]
						    : s->media[w]);
	else if (all_arrived(x, s))
		*v = value_of(seen_by_cpu(x, s, w));
	else
		return false;
	return true;
}

static size_t collect_values(const struct world *x, int w, bool kill,
			     uint64_t *out)
{
	size_t n = 0;

	for (size_t i = 0; i < nstates; i++) {
		uint64_t v = value_of(seen_by_cpu(x, &states[i], w));
		size_t j = 0;

		if (!kill && !value_after_cut(x, &states[i], w, &v))
			continue;
		while (j < n && out[j] != v)
			j++;
		if (j < n)
			continue;
		cr_assert_lt(n, 4 * MODEL_VALUES);
		out[n++] = v;
	}
	return n;
}

static bool has_value(const uint64_t *v, size_t n, uint64_t x)
{
	while (n--)
		if (v[n] == x)
			return true;
	return false;
}

struct run {
	struct world x;
	struct model *m;
	uint64_t *at[WORDS];
	uint64_t seed;
	char text[1024]; /* description of the program so far */
};

static const struct question {
	const char *what;
	bool kill;
	size_t (*ask)(const struct model *m, const void *addr,
		      uint64_t values[MODEL_VALUES], bool *lost);
} after_cut = {"cut", false, model_after_cut},
  after_kill = {"kill", true, model_after_kill},
  soon = {"cut now", false, model_after_cut_ready},
  soon_kill = {"kill now", true, model_after_kill_ready};

static void compare_word(struct run *r, int w, const struct question *q)
{
	uint64_t want[4 * MODEL_VALUES], got[MODEL_VALUES];
	size_t nwant = collect_values(&r->x, w, q->kill, want), n;
	const char *what = q->what;
	bool lost, want_lost = !q->kill && r->x.cfg.kind == MODEL_DAX &&
			       !r->x.metadata[page_no(&r->x, w)];

	n = q->ask(r->m, r->at[w], got, &lost);
	for (size_t i = 0; i < nwant; i++)
		cr_assert(has_value(got, n, want[i]),
			  "seed %" PRIu64 ": %s: word %d: a %s may leave "
			  "%" PRIx64 ", the model does not say so",
			  r->seed, r->text, w, what, want[i]);
	for (size_t i = 0; i < n; i++)
		cr_assert(has_value(want, nwant, got[i]),
			  "seed %" PRIu64 ": %s: word %d: no %s leaves "
			  "%" PRIx64 ", the model says so",
			  r->seed, r->text, w, what, got[i]);
	cr_assert_eq(lost, want_lost, "seed %" PRIu64 ": %s: word %d: lost",
		     r->seed, r->text, w);
}

static void compare_all_words(struct run *r)
{
	bool all = !is_file(&r->x) && r->x.cfg.domain == MODEL_SYSTEM;
	size_t n = nstates;

	/* The CPU must see the same value in all states. */
	for (size_t i = 0; i < n; i++)
		for (int w = 0; w < WORDS; w++)
			cr_assert_eq(
				value_of(seen_by_cpu(&r->x, &states[i], w)),
				*r->at[w], "seed %" PRIu64 ": %s: word %d",
				r->seed, r->text, w);
	/* Before the power fails, writes in flight may still arrive. */
	memcpy(next_states, states, n * sizeof(*states));
	explore_states(&r->x, READY_ARRIVE);
	for (int w = 0; w < WORDS; w++) {
		if (!all)
			compare_word(r, w, &soon);
		compare_word(r, w, &soon_kill);
	}
	explore_states(&r->x, ANY_ARRIVE);
	for (int w = 0; w < WORDS; w++) {
		if (all)
			compare_word(r, w, &soon);
		compare_word(r, w, &after_cut);
		compare_word(r, w, &after_kill);
	}
	set_clear();
	for (size_t i = 0; i < n; i++)
		set_add(&next_states[i]);
}

/* --- random programs --- */

enum op {
	OP_STORE,
	OP_KERNEL,
	OP_NT,
	OP_CLWB,
	OP_SFENCE,
	OP_MSYNC,
	OP_DMA,
	OP_STEP,
	OP_FLUSH,
	OP_READ,
	OP_SEE,
	OP_DROP,
	OPS
};

struct step {
	enum op op;
	int w; /* index of the word, page or line */
	int n; /* words; for a NIC: piece or queue pair */
	uint8_t halves;
	struct w v;
};

static void apply_step(const struct world *x, struct machine *s,
		       const struct step *t)
{
	switch (t->op) {
	case OP_STORE:
	case OP_KERNEL:
		for (int w = t->w; w < t->w + t->n; w++)
			cpu_store(x, s, w, t->v, t->halves, t->op == OP_STORE);
		break;
	case OP_NT:
		store_nt(x, s, t->w, t->v, t->halves);
		break;
	case OP_CLWB:
		clwb_line(x, s, t->w);
		break;
	case OP_SFENCE:
		cpu_sfence(s);
		break;
	case OP_MSYNC:
		if (s->dirty[t->w])
			write_back(x, s, t->w);
		break;
	case OP_STEP:
		for (int w = 0; w < WORDS; w++)
			if (x->dma[t->n].mask & 1u << w)
				place_word(x, s, t->n, w);
		break;
	case OP_FLUSH:
		if (!is_file(x)) {
			if (s->has_in_flight[t->w])
				land_word(s, t->w);
			cpu_write(s, t->w, seen_by_cpu(x, s, t->w));
		}
		break;
	case OP_READ:
		for (int w = 0; w < WORDS && x->cfg.fence; w++)
			for (int i = MAX_OPS; i--;)
				while (s->rc[w][i] &&
				       x->dma[s->rc[w][i] - 1].qp ==
					       (unsigned int)t->n)
					drain_oldest(x, s, w);
		break;
	default:
		break;
	}
}

/* Apply the step to every state, then all steps of the adversary. */
static void apply_all(const struct world *x, const struct step *t)
{
	size_t n = nstates;

	memcpy(next_states, states, n * sizeof(*states));
	set_clear();
	for (size_t i = 0; i < n; i++) {
		apply_step(x, &next_states[i], t);
		set_add(&next_states[i]);
	}
	explore_states(x, NO_ARRIVALS);
}

static void note_step(struct run *r, const char *what, const struct step *t)
{
	size_t at = strlen(r->text);

	snprintf(r->text + at, sizeof(r->text) - at, " %s(%d,%d h%d %x:%x)",
		 what, t->w, t->n, t->halves, t->v.half[1], t->v.half[0]);
}

static void *part_of(struct run *r, const struct step *t, uint64_t buf[2],
		     size_t *len)
{
	buf[0] = buf[1] = value_of(t->v);
	*len = t->n * MODEL_WORD;
	if (t->halves == 3)
		return r->at[t->w];
	*len = 4;
	if (t->halves == 2)
		buf[0] >>= 32;
	return (uint8_t *)r->at[t->w] + (t->halves == 2 ? 4 : 0);
}

static void dma_arrives(struct run *r, struct step t, int d)
{
	t.op = OP_STEP;
	t.n = d;
	apply_all(&r->x, &t);
	r->x.dma[d].seen_arrived = true;
}

/* Let all writes of one queue pair arrive. */
static void deliver_all_writes(struct run *r, struct step t, unsigned int qp)
{
	for (int d = 0; d < (int)r->x.ndma; d++)
		if (!r->x.dma[d].seen_arrived && r->x.dma[d].qp == qp)
			dma_arrives(r, t, d);
}

static void do_random_step(struct run *r, struct seeded *s, uint8_t value)
{
	static const char *const names[] = {"store",  "kernel", "nt",  "clwb",
					    "sfence", "msync",	"dma", "step",
					    "flush",  "read",	"see", "drop"};
	struct world *x = &r->x;
	static const enum op ops[] = {OP_STORE,	 OP_KERNEL, OP_NT,   OP_CLWB,
				      OP_SFENCE, OP_MSYNC,  OP_DMA,  OP_DMA,
				      OP_DMA,	 OP_STEP,   OP_STEP, OP_STEP,
				      OP_READ,	 OP_FLUSH,  OP_SEE,  OP_DROP};
	struct step t = {.op = ops[seeded_below(s, COUNT(ops))]};
	bool by_dma = x->cfg.place == MODEL_DMA_CACHE ||
		      x->cfg.place == MODEL_DMA_MEMORY;
	uint64_t buf[2];
	size_t len, ready;
	void *to;

	t.w = seeded_below(s, WORDS);
	t.n = t.w == 0 && !seeded_below(s, 3) ? 2 : 1;
	t.halves = t.n == 2 || seeded_below(s, 3) ? 3 : 1 + seeded_below(s, 2);
	t.v = (struct w){{value, value}};
	if (t.halves != 3)
		t.v.half[t.halves == 1] = 0;
	if (t.op >= OP_DMA && !by_dma)
		t.op -= OP_DMA;
	if (t.op == OP_DMA && x->ndma == MAX_OPS)
		t.op = OP_STEP;
	if (t.op == OP_NT)
		t.n = 1;
	if (t.op >= OP_FLUSH)
		t.n = seeded_below(s, 2);
	if (t.op == OP_CLWB)
		t.w = t.w == 2;
	if (t.op == OP_MSYNC)
		t.w = page_no(x, t.w);
	note_step(r, names[t.op], &t);
	switch (t.op) {
	case OP_STORE:
	case OP_KERNEL:
		to = part_of(r, &t, buf, &len);
		model_store(r->m,
			    t.op == OP_STORE ? MODEL_CPU_USER
					     : MODEL_CPU_KERNEL,
			    to, buf, len);
		break;
	case OP_NT:
		to = part_of(r, &t, buf, &len);
		model_store_nt(r->m, to, buf, len);
		break;
	case OP_CLWB:
		model_clwb(r->m, r->at[t.w ? 2 : 1], 1);
		break;
	case OP_SFENCE:
		model_sfence(r->m);
		break;
	case OP_MSYNC:
		cr_assert_eq(model_msync(r->m,
					 (uint8_t *)r->at[0] +
						 (size_t)t.w * MODEL_PAGE,
					 MODEL_PAGE),
			     0);
		x->metadata[t.w] = true;
		break;
	case OP_DMA:
		to = part_of(r, &t, buf, &len);
		x->dma[x->ndma].qp = seeded_below(s, 2);
		x->dma[x->ndma].halves = t.halves;
		x->dma[x->ndma].mask = (t.n == 2 ? 3u : 1u) << t.w;
		for (int w = t.w; w < t.w + t.n; w++)
			x->dma[x->ndma].v[w] = t.v;
		model_dma_write(r->m, x->dma[x->ndma].qp, to, buf, len);
		x->ndma++;
		return;
	case OP_STEP:
		ready = model_dma_ready(r->m);
		if (!ready)
			return;
		len = seeded_below(s, ready);
		model_dma_step(r->m, len);
		for (int d = 0; d < (int)x->ndma; d++) {
			bool next = !x->dma[d].seen_arrived;

			for (int e = 0; e < d && !x->cfg.relaxed; e++)
				next = next && (x->dma[e].seen_arrived ||
						x->dma[e].qp != x->dma[d].qp);
			if (next && !len--) {
				dma_arrives(r, t, d);
				return;
			}
		}
		cr_assert_fail("the model has more pieces ready");
	case OP_FLUSH:
		model_dma_flush(r->m, t.n, MODEL_PERSISTENT, r->at[t.w], 1);
		deliver_all_writes(r, t, t.n);
		break;
	case OP_READ:
		model_dma_read(r->m, t.n, r->at[t.w], buf, MODEL_WORD);
		if (x->cfg.fence)
			deliver_all_writes(r, t, t.n);
		cr_assert_eq(buf[0], *r->at[t.w]);
		break;
	case OP_SEE:
		model_dma_see(r->m, model_dma_completion(r->m, t.n));
		deliver_all_writes(r, t, t.n);
		return;
	case OP_DROP:
		model_dma_drop(r->m, t.n);
		for (int d = 0; d < (int)x->ndma; d++) {
			if (x->dma[d].qp != (unsigned int)t.n)
				continue;
			x->dma[d].seen_arrived = true;
			x->dma[d].qp = NOBODY;
		}
		return;
	default:
		break;
	}
	apply_all(x, &t);
}

static void run_program(struct run *r, struct seeded *s)
{
	static const enum model_kind kinds[] = {MODEL_FILE, MODEL_DAX,
						MODEL_DAX_SYNC};
	static const struct machine blank;
	struct machine first = blank;
	uint8_t *mem;

	memset(r, 0, sizeof(*r));
	r->seed = s->seed;
	r->x.cfg = (struct model_cfg){
		.kind = kinds[seeded_below(s, 3)],
		.domain = MODEL_ADR + seeded_below(s, 3),
		.place = seeded_below(s, 4),
		.fence = seeded_below(s, 2),
		.relaxed = seeded_below(s, 2),
		.levels = MODEL_PERSISTENT,
	};
	r->x.third_word_apart = seeded_below(s, 2);
	snprintf(r->text, sizeof(r->text),
		 "kind %d domain %d place %d fence %d relaxed %d far %d:",
		 r->x.cfg.kind, r->x.cfg.domain, r->x.cfg.place, r->x.cfg.fence,
		 r->x.cfg.relaxed, r->x.third_word_apart);
	r->m = model_new(&r->x.cfg);
	cr_assert(r->m);
	mem = model_alloc(r->m, 2 * MODEL_PAGE);
	cr_assert(mem);
	r->at[0] = (uint64_t *)mem;
	r->at[1] = (uint64_t *)(mem + MODEL_WORD);
	r->at[2] = (uint64_t *)(mem + (r->x.third_word_apart ? MODEL_PAGE
							     : MODEL_LINE));
	set_clear();
	if (is_file(&r->x))
		first.cached[0] = first.cached[1] = 1;
	set_add(&first);
	compare_all_words(r);
	for (int i = 1; i <= STEPS; i++) {
		do_random_step(r, s, i);
		compare_all_words(r);
	}
	model_delete(r->m);
}

Test(model_oracle, model_allows_exactly_the_reachable_values, .timeout = 120)
{
	struct seeded s = seeded_start();
	struct run r;
	size_t most = 0;

	for (int i = 0; i < 8000; i++) {
		run_program(&r, &s);
		most = nstates > most ? nstates : most;
	}
	/* The runs must have explored many states. */
	cr_assert_gt(most, 100);
}
