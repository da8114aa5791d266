// SPDX-License-Identifier: BSD-2-Clause
/* The images of a cut: all of them if they are few, else adversarial ones. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/crashtest/sample.h"

#define FEW_PIECES 16u

/* One cut, and what a power cut there decides. */
struct cut {
	uint32_t event;
	uint32_t low, high; /* operations on metadata: durable, made */
	bool visited;
	bool all_visited; /* every image was visited */
};

struct sampling {
	bool failed; /* out of memory */
	struct crash_sample *s;
	struct crash_image image;
	struct cut *cuts; /* any first n of them are spread over the record */
	size_t cut_count;
	uint32_t *open; /* undecided pieces of the cut at event `opened` */
	uint32_t open_count, opened;
	uint64_t limit; /* distinct images that end the present step */
	uint64_t random;
};

static uint64_t next_random(struct sampling *w)
{
	uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static bool start(struct sampling *w)
{
	const struct crash_history *h = w->s->history;

	w->opened = CRASH_NONE;
	w->image.lost = calloc(crash_words(h), sizeof(*w->image.lost));
	w->open = malloc((h->piece_count + 1) * sizeof(*w->open));
	return w->image.lost && w->open;
}

static void finish(struct sampling *w)
{
	free(w->image.lost);
	free(w->open);
	free(w->cuts);
}

static struct cut make_cut(const struct crash_history *h, uint32_t event)
{
	return (struct cut){
		.event = event,
		.low = h->meta_durable[event],
		.high = h->meta_made[event],
	};
}

/* List the undecided pieces of a cut: for one cut at a time, to save memory. */
static void open_cut(struct sampling *w, const struct cut *c)
{
	const struct crash_history *h = w->s->history;

	if (w->opened == c->event)
		return;
	w->opened = c->event;
	w->open_count = 0;
	for (uint32_t i = 0; i < h->first_piece[c->event + 1]; i++)
		if (crash_undecided(h, c->event, i))
			w->open[w->open_count++] = i;
}

static bool is_done(const struct sampling *w)
{
	return w->s->ended || w->s->distinct >= w->limit;
}

static size_t complete_image(struct sampling *w)
{
	const size_t lost = crash_image_settle(w->s->history, &w->image);

	w->failed |= lost == CRASH_NO_MEMORY;
	return lost;
}

/* Complete the image and visit it. */
static void visit(struct sampling *w)
{
	struct crash_sample *s = w->s;

	if (complete_image(w) == CRASH_NO_MEMORY)
		return;
	s->made++;
	s->distinct += s->visit(s->arg, &w->image);
}

/* Visit the image again, with zeros for the appended bytes that are lost. */
static void visit_zeros(struct sampling *w)
{
	w->image.zeros = w->image.cut + 1;
	if (complete_image(w) != CRASH_NO_MEMORY && w->image.zeros &&
	    !is_done(w))
		visit(w);
}

/*
 * Visit the image without and with zeros, up to each write that appends to a
 * file. Returns whether all of these were visited.
 */
static bool visit_sizes(struct sampling *w)
{
	const struct crash_history *h = w->s->history;
	uint32_t last = 0;

	visit(w);
	for (uint32_t i = 0; i < w->open_count; i++) {
		const uint32_t zeros = h->pieces[w->open[i]].event + 1;

		if (!h->pieces[w->open[i]].grown || zeros == last)
			continue;
		w->image.zeros = last = zeros;
		/* complete_image() lowers it if this write leaves no zeros. */
		if (complete_image(w) == CRASH_NO_MEMORY ||
		    w->image.zeros != zeros)
			continue;
		if (is_done(w))
			return false;
		visit(w);
	}
	return true;
}

static void clear(struct sampling *w, struct cut *c, uint32_t meta)
{
	open_cut(w, c);
	c->visited = true;
	w->image.cut = c->event;
	w->image.meta = meta;
	w->image.zeros = 0;
	memset(w->image.lost, 0,
	       crash_words(w->s->history) * sizeof(*w->image.lost));
}

/* Choices at a cut, or UINT64_MAX for many. */
static uint64_t count_choices(struct sampling *w, const struct cut *c)
{
	open_cut(w, c);
	if (w->open_count > FEW_PIECES)
		return UINT64_MAX;
	return ((uint64_t)(c->high - c->low) + 1) << w->open_count;
}

/*
 * Visit each combination of lost pieces once. Skip a combination to which
 * complete_image() adds a piece, because another one gives the same image.
 */
static void visit_all(struct sampling *w, struct cut *c)
{
	open_cut(w, c);
	for (uint32_t meta = c->low; meta <= c->high; meta++)
		for (uint32_t mask = 0; mask < 1u << w->open_count; mask++) {
			size_t lost = 0;

			if (is_done(w))
				return;
			clear(w, c, meta);
			for (uint32_t i = 0; i < w->open_count; i++)
				if (mask >> i & 1) {
					crash_set(w->image.lost, w->open[i]);
					lost++;
				}
			if (complete_image(w) == lost && !visit_sizes(w))
				return;
		}
	c->all_visited = !w->s->ended;
}

uint64_t crash_sample_all(struct crash_sample *s, uint32_t cut)
{
	struct sampling w = {.s = s, .limit = s->images};
	struct cut c = make_cut(s->history, cut);
	uint64_t choices = 0;

	if (start(&w)) {
		choices = count_choices(&w, &c);
		if (choices != UINT64_MAX)
			visit_all(&w, &c);
	}
	finish(&w);
	return w.failed ? 0 : choices;
}

/* Patterns of the undecided pieces and operations on metadata that are lost. */
enum pattern {
	ALL_LOST,	  /* all pieces, all operations */
	DATA_LOST,	  /* all pieces, no operation: a rename before bytes */
	META_LOST,	  /* all operations, no piece */
	ALL_KEPT,	  /* nothing */
	LAST_TORN,	  /* the second half of the last write */
	FIRST_FILE_LOST,  /* the pieces of the file of the first write */
	FIRST_FILE_KEPT,  /* the pieces of all other files */
	LAST_FILE_LOST,	  /* the pieces of the file of the last write */
	LAST_FILE_KEPT,	  /* the pieces of all other files */
	LAST_WRITE_KEPT,  /* all writes but the last */
	FIRST_WRITE_LOST, /* the first write */
	WRITES_TORN,	  /* the second half of each write */
	WRITES_TORN_BACK, /* the first half of each write */
	ALTERNATE_PIECES, /* each second piece */
	ALTERNATE_PAGES,  /* the pieces in each second page of a file */
	ALTERNATE_WRITES, /* each second write */
	PATTERNS
};

static bool in_second_half(const struct crash_history *h, uint32_t piece)
{
	const uint32_t e = h->pieces[piece].event;

	return 2 * (piece - h->first_piece[e]) >=
	       h->first_piece[e + 1] - h->first_piece[e];
}

/* Whether a pattern loses w->open[i], a piece of the write with this number. */
static bool is_lost(const struct sampling *w, enum pattern k, uint32_t i,
		    uint32_t write)
{
	const struct crash_history *h = w->s->history;
	const struct crash_piece *first = &h->pieces[w->open[0]];
	const struct crash_piece *last = &h->pieces[w->open[w->open_count - 1]];
	const struct crash_piece *p = &h->pieces[w->open[i]];

	switch (k) {
	case ALL_LOST:
	case DATA_LOST:
		return true;
	case LAST_TORN:
		return p->event == last->event && in_second_half(h, w->open[i]);
	case FIRST_FILE_LOST:
		return p->inode == first->inode;
	case FIRST_FILE_KEPT:
		return p->inode != first->inode;
	case LAST_FILE_LOST:
		return p->inode == last->inode;
	case LAST_FILE_KEPT:
		return p->inode != last->inode;
	case LAST_WRITE_KEPT:
		return p->event != last->event;
	case FIRST_WRITE_LOST:
		return p->event == first->event;
	case WRITES_TORN:
		return in_second_half(h, w->open[i]);
	case WRITES_TORN_BACK:
		return !in_second_half(h, w->open[i]);
	case ALTERNATE_PIECES:
		return i % 2;
	case ALTERNATE_PAGES:
		return p->offset / CRASH_PAGE % 2;
	case ALTERNATE_WRITES:
		return write % 2;
	default:
		return false;
	}
}

static void visit_pattern(struct sampling *w, struct cut *c, enum pattern k)
{
	const struct crash_piece *pieces = w->s->history->pieces;
	uint32_t write = 0;

	clear(w, c, k == ALL_LOST || k == META_LOST ? c->low : c->high);
	for (uint32_t i = 0; i < w->open_count; i++) {
		write += i && pieces[w->open[i]].event !=
				      pieces[w->open[i - 1]].event;
		if (is_lost(w, k, i, write))
			crash_set(w->image.lost, w->open[i]);
	}
	visit(w);
	if (k == DATA_LOST)
		visit_zeros(w);
}

/* Units of a random size are lost with a random frequency. */
static void visit_random(struct sampling *w, struct cut *c)
{
	static const unsigned int often[] = {128, 32, 224, 8, 248};
	const struct crash_history *h = w->s->history;
	const uint64_t how = next_random(w), salt = next_random(w);
	const unsigned int unit = (how >> 8) % 4;

	clear(w, c,
	      c->low + (uint32_t)(next_random(w) % (c->high - c->low + 1u)));
	for (uint32_t i = 0; i < w->open_count; i++) {
		const struct crash_piece *p = &h->pieces[w->open[i]];
		const uint64_t units[] = {w->open[i], p->event,
					  p->offset / CRASH_PAGE, p->inode};
		struct sampling of_unit = {.random = salt ^
						     units[unit] * 0x5851u};

		if (next_random(&of_unit) % 256 < often[how % 5])
			crash_set(w->image.lost, w->open[i]);
	}
	if (w->open_count && how >> 16 & 1)
		w->image.zeros =
			h->pieces[w->open[(how >> 17) % w->open_count]].event +
			1;
	visit(w);
}

/*
 * Whether a cut after event n is worth images: a cut just before or just after
 * a completed flush, after an acknowledgement, or after a change of metadata.
 */
static bool is_telling(const struct crash_log *l, size_t n)
{
	const struct crash_step *e = &l->events[n];

	return n + 1 == l->event_count || e->kind == CRASH_ACK ||
	       crash_step_is_meta(e) || crash_step_is_flush(e) ||
	       crash_step_is_flush(&l->events[n + 1]);
}

static size_t common_divisor(size_t a, size_t b)
{
	while (b) {
		const size_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/*
 * List the telling cuts, the last one first. The step from one to the next is
 * about the golden section of their number, which spreads any first n evenly.
 */
static bool list_cuts(struct sampling *w)
{
	const struct crash_log *l = w->s->history->log;
	size_t count = 0, step, at;
	uint32_t *events;

	events = malloc((l->event_count + 1) * sizeof(*events));
	w->cuts = calloc(l->event_count + 1, sizeof(*w->cuts));
	if (events && w->cuts)
		for (size_t n = l->base; n < l->event_count; n++)
			if (is_telling(l, n))
				events[count++] = (uint32_t)n;
	for (step = count * 61803 / 100000 + 1;
	     count && common_divisor(step, count) != 1; step++)
		;
	at = count - 1;
	for (; w->cut_count < count; at = (at + step) % count)
		w->cuts[w->cut_count++] = make_cut(w->s->history, events[at]);
	free(events);
	return w->cut_count;
}

static void visit_first(struct sampling *w, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (unsigned int k = ALL_LOST; k <= DATA_LOST; k++)
			if (!is_done(w) && !w->cuts[i].all_visited)
				visit_pattern(w, &w->cuts[i], (enum pattern)k);
}

/* The other patterns, by turns, so that each has its share of the images. */
static void visit_others(struct sampling *w, size_t n)
{
	const unsigned int kinds = PATTERNS - META_LOST;

	for (size_t round = 0; round < kinds; round++)
		for (size_t i = 0; i < n && !is_done(w); i++)
			if (!w->cuts[i].all_visited)
				visit_pattern(w, &w->cuts[i],
					      META_LOST + (round + i) % kinds);
}

static void visit_few(struct sampling *w, size_t n)
{
	for (size_t i = 0; i < n && !is_done(w); i++)
		if (!w->cuts[i].all_visited &&
		    count_choices(w, &w->cuts[i]) <= 16 + w->s->images / n)
			visit_all(w, &w->cuts[i]);
}

/* Attempts: four for each image that is wanted, and 16 for each new one. */
static void visit_randoms(struct sampling *w, size_t n)
{
	uint64_t end = w->s->made + 4 * w->s->images, distinct;
	size_t *some = malloc((n + 1) * sizeof(*some));
	size_t count = 0;

	for (size_t i = 0; some && i < n; i++)
		if (!w->cuts[i].all_visited)
			some[count++] = i;
	while (count && !w->failed && !is_done(w) && w->s->made < end) {
		distinct = w->s->distinct;
		visit_random(w, &w->cuts[some[next_random(w) % count]]);
		end += 16 * (w->s->distinct - distinct);
	}
	w->failed |= !some;
	free(some);
}

/* Set the limit so that this many eighths of all images may be added. */
static void allow(struct sampling *w, unsigned int eighths)
{
	const uint64_t images = w->s->images;
	const uint64_t more = (images * eighths + 7) / 8;

	w->limit = w->s->distinct + more;
	if (w->limit > images)
		w->limit = images;
}

/* Each kind of image has a share of the images; then the rest is used up. */
static void visit_shares(struct sampling *w)
{
	const uint64_t images = w->s->images;
	size_t n = w->cut_count;

	if (n > images / 4 + 1)
		n = images / 4 + 1;
	allow(w, 4);
	visit_first(w, n);
	allow(w, 1);
	visit_few(w, n);
	allow(w, 2);
	visit_others(w, n);
	allow(w, 1);
	visit_randoms(w, n);
	w->limit = images;
	n = w->cut_count < images ? w->cut_count : images;
	visit_first(w, n);
	visit_few(w, n);
	visit_others(w, n);
	visit_randoms(w, n);
}

int crash_sample_run(struct crash_sample *s)
{
	struct sampling w = {.s = s, .random = s->seed};
	const bool ok = start(&w) && list_cuts(&w);

	if (ok)
		visit_shares(&w);
	for (size_t i = 0; i < w.cut_count; i++) {
		s->exhaustive_cuts += w.cuts[i].all_visited;
		s->sampled_cuts += w.cuts[i].visited && !w.cuts[i].all_visited;
	}
	finish(&w);
	return ok && !w.failed ? 0 : -ENOMEM;
}

char *crash_image_text(const struct crash_history *h,
		       const struct crash_image *i)
{
	char *text = NULL;
	size_t len, some = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "%zu:%u:", i->cut - h->log->base, i->meta);
	for (size_t k = 0; k < h->piece_count; k++) {
		const size_t first = k;

		if (!crash_bit(i->lost, k))
			continue;
		while (k + 1 < h->piece_count && crash_bit(i->lost, k + 1))
			k++;
		fprintf(f, some++ ? ",%zu" : "%zu", first);
		if (k > first)
			fprintf(f, "-%zu", k);
	}
	if (!some)
		fputc('-', f);
	if (i->zeros)
		fprintf(f, ":zeros=%zu", i->zeros - 1 - h->log->base);
	return fclose(f) ? (free(text), NULL) : text;
}

static int parse_zeros(const struct crash_history *h, const char *text,
		       struct crash_image *i)
{
	int used = 0;

	if (!*text)
		return 0;
	if (sscanf(text, ":zeros=%u%n", &i->zeros, &used) != 1 || text[used] ||
	    i->zeros >= h->log->event_count - h->log->base)
		return -EINVAL;
	i->zeros += (uint32_t)h->log->base + 1;
	return 0;
}

int crash_image_parse(const struct crash_history *h, const char *text,
		      struct crash_image *i)
{
	unsigned long from, to;
	int used = 0;

	memset(i->lost, 0, crash_words(h) * sizeof(*i->lost));
	if (sscanf(text, "%u:%u:%n", &i->cut, &i->meta, &used) != 2 || !used ||
	    i->cut >= h->log->event_count - h->log->base)
		return -EINVAL;
	i->cut += (uint32_t)h->log->base;
	text += used;
	i->zeros = 0;
	if (!strcmp(text, "-"))
		return 0;
	while (sscanf(text, "%lu%n", &from, &used) == 1) {
		text += used;
		to = from;
		if (*text == '-' && sscanf(text, "-%lu%n", &to, &used) == 1)
			text += used;
		if (to < from || to >= h->piece_count)
			return -EINVAL;
		for (; from <= to; from++)
			crash_set(i->lost, from);
		if (!*text || *text == ':')
			return parse_zeros(h, text, i);
		if (*text++ != ',')
			return -EINVAL;
	}
	return -EINVAL;
}
