// SPDX-License-Identifier: BSD-2-Clause
/*
 * Random operations while the peer's address is removed, the target stopped, or
 * connections cut. Each completion and the memory are checked against a model.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/testbed.h"

#define TIMEOUT	 200u /* FI_OFI_RPMEM_TIMEOUT, ms */
#define SETTLE	 300u /* ms to wait for late bytes */
#define WORDS	 2048u
#define POOL	 65536
#define LONGEST	 1024u /* longest write, in words */
#define MOST	 32    /* operations outstanding, at most */
#define STEPS	 600
#define CI_ROWS	 36u
#define ALL_ROWS 480u
#define AT_ONCE	 8

/* Events that a row mixes into the operations. */
enum {
	REMOVALS = 1,
	STOPS = 2,
	CUTS = 4,
};
static const struct {
	const char *name;
	unsigned int events;
} mixtures[] = {
	{"nothing else", 0},
	{"removals", REMOVALS},
	{"stops", STOPS},
	{"removals and stops", REMOVALS | STOPS},
	{"cuts", CUTS},
	{"removals, stops and cuts", REMOVALS | STOPS | CUTS},
};
#define MIXTURES (sizeof(mixtures) / sizeof(*mixtures))

static uint64_t seed;
static struct bed bed;

static uint64_t row_seed(size_t row)
{
	return bed_mix(seed, row);
}

static unsigned int mixture_of(size_t row)
{
	return (unsigned int)(row % MIXTURES);
}

static enum bed_memory memory_of(size_t row)
{
	return (enum bed_memory)(row / MIXTURES % BED_MEMORIES);
}

static bool auto_of(size_t row)
{
	return row_seed(row) % 4 == 0;
}

/* Numbers of the rows to run: all, or those that --only selects. */
static size_t chosen[ALL_ROWS], nchosen;

static void row_name(size_t i, char *name, size_t size)
{
	const size_t row = chosen[i];

	snprintf(name, size, "the model holds under %s; %s%s, row %zu",
		 mixtures[mixture_of(row)].name,
		 bed_memory_names[memory_of(row)], auto_of(row) ? ", auto" : "",
		 row);
}

/* --- the model --- */

enum kind {
	WRITE,
	DURABLE,
	ATOMIC_WRITE,
	SUM,
	CSWAP,
	THEN,
	COMMIT,
	KINDS,
};
static const char *const kind_names[KINDS] = {
	"write", "durable write",    "atomic write",
	"sum",	 "compare and swap", "then store",
	"commit"};

struct operation {
	struct bed_op op; /* first member: its address is the context */
	struct operation *next;
	enum kind kind;
	uint64_t seq;
	bool durable; /* an atomic with FI_COMMIT_COMPLETE */
	/* Words that the operation changes, and their new values. */
	unsigned int first, count;
	uint64_t *value;
	/* Words that the operation commits. */
	unsigned int commit_first, commit_count;
	/*
	 * The failed operation whose words this commit covers, so that it must
	 * fail.
	 */
	const struct operation *poison;
	/*
	 * The commit that covers this operation and has succeeded, so that it
	 * must succeed.
	 */
	const struct operation *vouched;
	uint64_t was; /* first word's value at the call: what a fetch must
		       * return */
	bool was_committed;
	uint64_t operand, compare, result;
	const struct operation *covers[MOST];
	unsigned int ncovers;
};

static struct word {
	uint64_t value; /* value of the last successful operation */
	uint64_t seq;	/* number of that operation */
	bool committed; /* a commit has covered the value */
	const struct operation *poison; /* operation that failed on this word
					 * since then */
	struct operation *busy;		/* outstanding operation that changes
					 * the word */
} words[WORDS];

static struct operation *outstanding;
static unsigned int noutstanding;
static uint64_t next_seq;

static uint64_t in_memory(unsigned int w)
{
	uint64_t v;

	memcpy(&v, bed.mem + 8 * w, 8);
	return v;
}

/* Is each byte of v the same byte of a or of b? */
static bool bytes_of_either(uint64_t v, uint64_t a, uint64_t b)
{
	for (int i = 0; i < 64; i += 8) {
		uint8_t x = (uint8_t)(v >> i);

		if (x != (uint8_t)(a >> i) && x != (uint8_t)(b >> i))
			return false;
	}
	return true;
}

/*
 * Check that a committed word has its value, or a mixture with that of an
 * outstanding operation. Returns NULL, or what is wrong.
 */
static const char *check_word(unsigned int w)
{
	const struct word *d = &words[w];
	const struct operation *o = d->busy;
	uint64_t v = in_memory(w);

	if (!d->committed || d->poison)
		return NULL;
	if (!o && v != d->value)
		return bed_says("word %u, committed by operation %llu, has "
				"changed",
				w, (unsigned long long)d->seq);
	if (o && !bytes_of_either(v, d->value, o->value[w - o->first]))
		return bed_says("word %u holds neither its committed value nor "
				"that of a %s under way",
				w, kind_names[o->kind]);
	return NULL;
}

static const char *judge_all(void)
{
	const char *wrong = NULL;

	for (unsigned int w = 0; w < WORDS && !wrong; w++)
		wrong = check_word(w);
	return wrong;
}

/*
 * Called when a commit is posted: note the outstanding operations and the
 * poisoned words that it covers.
 */
static void record_cover(struct operation *c)
{
	for (unsigned int i = 0; i < c->commit_count; i++) {
		const struct word *d = &words[c->commit_first + i];

		if (d->busy && d->busy != c &&
		    (!c->ncovers || c->covers[c->ncovers - 1] != d->busy) &&
		    c->ncovers < MOST)
			c->covers[c->ncovers++] = d->busy;
		if (!d->busy && d->poison)
			c->poison = d->poison;
	}
}

static const char *over_failed(const struct operation *c,
			       const struct operation *o)
{
	return bed_says("a %s (%llu) has succeeded over a %s (%llu) that "
			"failed with %d (%d)",
			kind_names[c->kind], (unsigned long long)c->seq,
			kind_names[o->kind], (unsigned long long)o->seq,
			o->op.err, o->op.status);
}

/*
 * A commit has succeeded: check what it covers. Returns NULL, or what is wrong.
 */
static const char *record_commit(const struct operation *c)
{
	for (unsigned int i = 0; i < c->ncovers; i++)
		if (c->covers[i]->op.ends && c->covers[i]->op.err)
			return over_failed(c, c->covers[i]);
	if (c->poison)
		return over_failed(c, c->poison);
	for (unsigned int i = 0; i < c->commit_count; i++) {
		unsigned int w = c->commit_first + i;
		struct word *d = &words[w];
		struct operation *o = d->busy;

		if (o && o != c && o->seq < c->seq) {
			o->vouched = c;
			if (in_memory(w) != o->value[w - o->first])
				return bed_says("word %u lacks a %s (%llu) "
						"that %s when "
						"a %s (%llu) succeeds",
						w, kind_names[o->kind],
						(unsigned long long)o->seq,
						o->op.ends ? "has ended"
							   : "is under way",
						kind_names[c->kind],
						(unsigned long long)c->seq);
			continue;
		}
		if (d->poison || d->seq > c->seq)
			continue;
		if (!o && in_memory(w) != d->value)
			return bed_says("word %u has not its value when its "
					"commit succeeds",
					w);
		d->committed = true;
	}
	return NULL;
}

static const char *end_with_success(struct operation *o)
{
	const bool committed =
		o->kind == DURABLE || o->kind == THEN || o->durable;
	const char *wrong;

	for (unsigned int i = 0; i < o->count; i++) {
		struct word *d = &words[o->first + i];

		d->busy = NULL;
		d->value = o->value[i];
		d->seq = o->seq;
		d->poison = NULL;
		d->committed = committed || o->vouched;
		wrong = check_word(o->first + i);
		if (wrong)
			return bed_says("a %s has succeeded: %s",
					kind_names[o->kind], wrong);
	}
	if ((o->kind == SUM || o->kind == CSWAP) && o->was_committed &&
	    o->result != o->was)
		return bed_says("a %s has fetched another value",
				kind_names[o->kind]);
	return o->commit_count ? record_commit(o) : NULL;
}

static const char *end_with_error(struct operation *o)
{
	for (unsigned int i = 0; i < o->count; i++) {
		struct word *d = &words[o->first + i];

		d->busy = NULL;
		d->poison = o;
		d->committed = false;
	}
	return o->vouched ? over_failed(o->vouched, o) : NULL;
}

/*
 * Process completed operations, and keep them allocated: one may wrongly
 * complete again, and a later commit may wrongly succeed over a failed one.
 */
static const char *reap_entries(void)
{
	struct operation **p = &outstanding, *o;
	const char *wrong = bed.wrong;

	while ((o = *p) && !wrong) {
		if (!o->op.ends) {
			p = &o->next;
			continue;
		}
		*p = o->next;
		noutstanding--;
		wrong = o->op.err ? end_with_error(o) : end_with_success(o);
	}
	return wrong;
}

/* --- steps --- */

static unsigned int random_below(unsigned int n)
{
	return (unsigned int)(bed_random() % n);
}

static bool free_words(unsigned int first, unsigned int count, bool certain)
{
	for (unsigned int i = 0; i < count; i++)
		if (words[first + i].busy ||
		    (certain && !words[first + i].committed))
			return false;
	return true;
}

static void choose_range(unsigned int *first, unsigned int *count)
{
	static const unsigned int most[] = {1, 8, 64, 512, LONGEST};

	*count = 1 + random_below(most[random_below(5)]);
	*first = random_below(WORDS - *count + 1);
}

/* Choose what the operation does. Returns false if that is impossible now. */
static bool choose_op(struct operation *o)
{
	o->kind = (enum kind)random_below(KINDS);
	o->durable =
		o->kind >= ATOMIC_WRITE && o->kind <= CSWAP && random_below(2);
	if (o->kind == COMMIT || o->kind == THEN)
		choose_range(&o->commit_first, &o->commit_count);
	if (o->kind == COMMIT)
		return true;
	choose_range(&o->first, &o->count);
	if (o->kind > DURABLE)
		o->count = 1;
	if (!free_words(o->first, o->count, o->kind == SUM || o->kind == CSWAP))
		return false;
	/* The store of a THEN must be outside the range that it commits. */
	if (o->kind == THEN && o->first >= o->commit_first &&
	    o->first < o->commit_first + o->commit_count)
		return false;
	o->value = malloc(o->count * sizeof(*o->value));
	if (!o->value)
		MUST(-FI_ENOMEM);
	for (unsigned int i = 0; i < o->count; i++)
		o->value[i] = bed_random();
	o->was = words[o->first].value;
	o->was_committed = words[o->first].committed;
	o->operand = o->value[0];
	o->compare = random_below(4) ? o->was : ~o->was;
	if (o->kind == SUM)
		o->value[0] = o->was + o->operand;
	if (o->kind == CSWAP && o->compare != o->was)
		o->value[0] = o->was;
	return true;
}

static ssize_t post_op(struct operation *o)
{
	const uint64_t flags = o->durable ? FI_COMMIT_COMPLETE : 0;
	const struct fi_rpmem_then then = {
		.key = bed.card.pool_key,
		.addr = bed.card.pool_addr + 8 * o->first,
		.value = o->operand,
	};

	switch (o->kind) {
	case WRITE:
		return bed_write(&bed, o->value, 8 * o->first, 8 * o->count, 0,
				 &o->op);
	case DURABLE:
		return bed_write(&bed, o->value, 8 * o->first, 8 * o->count,
				 FI_COMMIT_COMPLETE, &o->op);
	case ATOMIC_WRITE:
		return bed_atomic(&bed, FI_ATOMIC_WRITE, &o->operand, NULL,
				  NULL, 8 * o->first, flags, &o->op);
	case SUM:
		return bed_atomic(&bed, FI_SUM, &o->operand, NULL, &o->result,
				  8 * o->first, flags, &o->op);
	case CSWAP:
		return bed_atomic(&bed, FI_CSWAP, &o->operand, &o->compare,
				  &o->result, 8 * o->first, flags, &o->op);
	default:
		return bed_commit(&bed, 8 * o->commit_first,
				  8 * o->commit_count,
				  o->kind == THEN ? &then : NULL, &o->op);
	}
}

static void start_op(void)
{
	struct operation *o = calloc(1, sizeof(*o));

	if (!o)
		MUST(-FI_ENOMEM);
	o->seq = ++next_seq;
	/* A call that fails for any reason has started nothing. */
	if (noutstanding == MOST || !choose_op(o) || post_op(o)) {
		free(o->value);
		free(o);
		return;
	}
	record_cover(o);
	for (unsigned int i = 0; i < o->count; i++)
		words[o->first + i].busy = o;
	o->next = outstanding;
	outstanding = o;
	noutstanding++;
}

/* When a stopped target is continued. */
static double continue_at;

static const char *cause_event(unsigned int events)
{
	int ret;

	if (bed.stopped && bed_now() > continue_at)
		bed_continue(&bed);
	switch (random_below(40)) {
	case 0:
		if (!(events & REMOVALS))
			break;
		ret = bed_reinsert(&bed);
		if (ret)
			return bed_says("fi_av_remove() or fi_av_insert(): %d",
					ret);
		break;
	case 1:
		if (!(events & STOPS))
			break;
		bed_stop(&bed);
		continue_at =
			bed_now() +
			1e-3 * random_below(random_below(4) ? 30 : 2 * TIMEOUT);
		break;
	case 2:
		if ((events & CUTS) && !random_below(2))
			bed_cut(&bed);
		break;
	default:
		break;
	}
	return NULL;
}

/*
 * Wait until all operations have completed. After that no word may change, and
 * new commits must succeed.
 */
static const char *check_end(void)
{
	static uint64_t last[WORDS];
	const double end = bed_now() + BED_DEADLINE;
	const char *wrong = NULL;

	bed_continue(&bed);
	while (outstanding && !wrong && bed_now() < end) {
		bed_pause(&bed, 0.001);
		wrong = reap_entries();
	}
	if (outstanding && !wrong)
		return bed_says("a %s did not end",
				kind_names[outstanding->kind]);
	if (!wrong && !bed_drain(&bed, SETTLE))
		return "the target has died";
	if (!wrong)
		wrong = judge_all();
	for (unsigned int i = 0; i < WORDS; i++)
		last[i] = bed_random();
	for (unsigned int w = 0; w < WORDS && !wrong; w += LONGEST)
		wrong = bed_commit_again(&bed, &last[w], 8 * w, 8 * LONGEST);
	if (wrong)
		return wrong;
	if (!bed_drain(&bed, SETTLE))
		return "the target has died";
	return memcmp(bed.mem, last, sizeof(last))
		       ? "committed bytes were overwritten later"
		       : bed.wrong;
}

static const char *row_run(size_t i)
{
	const size_t row = chosen[i];
	const struct bed_opts o = {
		.len = POOL,
		.memory = memory_of(row),
		.auto_progress = auto_of(row),
		.timeout = TIMEOUT,
	};
	static uint64_t zero[WORDS];
	const char *wrong;

	bed_open(&bed, &o);
	bed_seed(row_seed(row));
	wrong = bed_commit_again(&bed, zero, 0, sizeof(zero));
	if (wrong)
		return bed_says("at first: %s", wrong);
	for (unsigned int w = 0; w < WORDS; w++)
		words[w].committed = true;
	for (int step = 0; step < STEPS && !wrong; step++) {
		wrong = cause_event(mixtures[mixture_of(row)].events);
		start_op();
		if (!random_below(4))
			bed_pause(&bed, 1e-3 * random_below(4));
		else
			bed_poll(&bed);
		if (!wrong)
			wrong = reap_entries();
		if (!wrong && step % 16 == 0)
			wrong = judge_all();
		if (wrong)
			wrong = bed_says("step %d: %s", step, wrong);
	}
	if (!wrong)
		wrong = check_end();
	bed_continue(&bed);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *only = NULL;
	char name[200];

	bed_args(argc, argv, &seed, &only);
	for (size_t i = 0; i < (bed_long() ? ALL_ROWS : CI_ROWS); i++) {
		chosen[nchosen] = i;
		row_name(nchosen, name, sizeof(name));
		nchosen += !only || strstr(name, only);
	}
	bed_run(nchosen, AT_ONCE, row_name, row_run);
	return tap_done();
}
