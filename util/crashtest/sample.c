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
	uint32_t *open;	    /* pieces that are undecided */
	uint32_t count;
	bool all; /* every image was visited */
};

struct sampling {
	struct crash_sample *s;
	struct crash_image image;
	struct cut *cuts;
	size_t cut_count;
	uint64_t random;
};

static uint64_t next_random(struct sampling *w)
{
	uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static bool make_cut(const struct crash_history *h, uint32_t event,
		     struct cut *c)
{
	const uint32_t end = h->first_piece[event + 1];

	*c = (struct cut){
		.event = event,
		.low = h->meta_durable[event],
		.high = h->meta_made[event],
	};
	for (uint32_t i = 0; i < end; i++)
		c->count += crash_undecided(h, event, i);
	c->open = malloc((c->count + 1) * sizeof(*c->open));
	if (!c->open)
		return false;
	c->count = 0;
	for (uint32_t i = 0; i < end; i++)
		if (crash_undecided(h, event, i))
			c->open[c->count++] = i;
	return true;
}

/* Complete the image and visit it. */
static void visit(struct sampling *w)
{
	struct crash_sample *s = w->s;

	crash_image_settle(s->history, &w->image);
	s->made++;
	s->distinct += s->visit(s->arg, &w->image);
}

static void clear(struct sampling *w, const struct cut *c, uint32_t meta)
{
	w->image.cut = c->event;
	w->image.meta = meta;
	memset(w->image.lost, 0,
	       crash_words(w->s->history) * sizeof(*w->image.lost));
}

/* Choices at a cut, or UINT64_MAX for many. */
static uint64_t count_choices(const struct cut *c)
{
	if (c->count > FEW_PIECES)
		return UINT64_MAX;
	return ((uint64_t)(c->high - c->low) + 1) << c->count;
}

/* All choices that settling does not turn into another one. */
static void visit_all(struct sampling *w, struct cut *c)
{
	c->all = true;
	for (uint32_t meta = c->low; meta <= c->high; meta++)
		for (uint32_t mask = 0; mask < 1u << c->count; mask++) {
			size_t lost = 0;

			if (w->s->distinct >= w->s->images) {
				c->all = false;
				return;
			}
			clear(w, c, meta);
			for (uint32_t i = 0; i < c->count; i++)
				if (mask >> i & 1) {
					crash_set(w->image.lost, c->open[i]);
					lost++;
				}
			if (crash_image_settle(w->s->history, &w->image) ==
			    lost)
				visit(w);
		}
}

uint64_t crash_sample_all(struct crash_sample *s, uint32_t cut)
{
	struct sampling w = {.s = s};
	struct cut c;
	uint64_t choices = 0;

	w.image.lost = calloc(crash_words(s->history), sizeof(*w.image.lost));
	if (w.image.lost && make_cut(s->history, cut, &c)) {
		choices = count_choices(&c);
		if (choices != UINT64_MAX)
			visit_all(&w, &c);
		free(c.open);
	}
	free(w.image.lost);
	return choices;
}

enum pattern {
	ALL_LOST,  /* data and metadata */
	DATA_LOST, /* the classic: a rename arrives before the bytes */
	META_LOST, /* bytes arrive before the operations on metadata */
	ALL_KEPT,
	LAST_TORN, /* the second half of the last write */
	FIRST_FILE_LOST,
	FIRST_FILE_KEPT,
	LAST_FILE_LOST,
	LAST_FILE_KEPT,
	LAST_WRITE_KEPT,
	FIRST_WRITE_LOST,
	WRITES_TORN,	  /* the second half of each write */
	WRITES_TORN_BACK, /* the first half of each */
	ALTERNATE_PIECES,
	ALTERNATE_PAGES,
	ALTERNATE_WRITES,
	PATTERNS
};

static bool in_second_half(const struct crash_history *h, uint32_t piece)
{
	const uint32_t e = h->pieces[piece].event;

	return 2 * (piece - h->first_piece[e]) >=
	       h->first_piece[e + 1] - h->first_piece[e];
}

static bool is_lost(const struct sampling *w, const struct cut *c,
		    enum pattern k, uint32_t i)
{
	const struct crash_history *h = w->s->history;
	const struct crash_piece *first = &h->pieces[c->open[0]];
	const struct crash_piece *last = &h->pieces[c->open[c->count - 1]];
	const struct crash_piece *p = &h->pieces[c->open[i]];

	switch (k) {
	case ALL_LOST:
	case DATA_LOST:
		return true;
	case LAST_TORN:
		return p->event == last->event && in_second_half(h, c->open[i]);
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
		return in_second_half(h, c->open[i]);
	case WRITES_TORN_BACK:
		return !in_second_half(h, c->open[i]);
	case ALTERNATE_PIECES:
		return i % 2;
	case ALTERNATE_PAGES:
		return p->offset / CRASH_PAGE % 2;
	case ALTERNATE_WRITES:
		return p->event % 2;
	default:
		return false;
	}
}

static void visit_pattern(struct sampling *w, const struct cut *c,
			  enum pattern k)
{
	clear(w, c, k == ALL_LOST || k == META_LOST ? c->low : c->high);
	for (uint32_t i = 0; i < c->count; i++)
		if (is_lost(w, c, k, i))
			crash_set(w->image.lost, c->open[i]);
	visit(w);
}

/* Units of a random size are lost with a random frequency. */
static void visit_random(struct sampling *w, const struct cut *c)
{
	static const unsigned int often[] = {128, 32, 224, 8, 248};
	const struct crash_history *h = w->s->history;
	const uint64_t how = next_random(w), salt = next_random(w);
	const unsigned int unit = (how >> 8) % 4;

	clear(w, c,
	      c->low + (uint32_t)(next_random(w) % (c->high - c->low + 1u)));
	for (uint32_t i = 0; i < c->count; i++) {
		const struct crash_piece *p = &h->pieces[c->open[i]];
		const uint64_t units[] = {c->open[i], p->event,
					  p->offset / CRASH_PAGE, p->inode};
		struct sampling of_unit = {.random = salt ^
						     units[unit] * 0x5851u};

		if (next_random(&of_unit) % 256 < often[how % 5])
			crash_set(w->image.lost, c->open[i]);
	}
	visit(w);
}

/*
 * A cut says most just before a flush completes, just behind it, and behind
 * an acknowledgement or an operation on metadata.
 */
static bool is_telling(const struct crash_log *l, size_t n)
{
	const struct crash_step *e = &l->events[n];

	return n + 1 == l->event_count || e->kind == CRASH_ACK ||
	       crash_is_meta(e) || crash_is_flush(e) ||
	       crash_is_flush(&l->events[n + 1]);
}

/* Take at most max of the telling cuts, evenly. */
static bool choose_cuts(struct sampling *w, size_t max)
{
	const struct crash_log *l = w->s->history->log;
	size_t count = 0, seen = 0;

	for (size_t n = l->base; n < l->event_count; n++)
		count += is_telling(l, n);
	w->cuts = calloc(count + 1, sizeof(*w->cuts));
	if (!w->cuts)
		return false;
	for (size_t n = l->base; n < l->event_count; n++) {
		if (!is_telling(l, n))
			continue;
		seen++;
		if (count > max &&
		    seen * max / count == (seen - 1) * max / count)
			continue;
		if (!make_cut(w->s->history, (uint32_t)n,
			      &w->cuts[w->cut_count]))
			return false;
		w->cut_count++;
	}
	return true;
}

static bool is_done(const struct sampling *w)
{
	return w->s->distinct >= w->s->images;
}

static void visit_patterns(struct sampling *w, unsigned int from,
			   unsigned int to)
{
	for (unsigned int k = from; k < to; k++)
		for (size_t i = 0; i < w->cut_count && !is_done(w); i++)
			if (!w->cuts[i].all)
				visit_pattern(w, &w->cuts[i], (enum pattern)k);
}

static void visit_randoms(struct sampling *w)
{
	const uint64_t limit = w->s->made + 4 * w->s->images;
	bool some = false;

	for (size_t i = 0; i < w->cut_count; i++)
		some |= !w->cuts[i].all;
	while (some && !is_done(w) && w->s->made < limit) {
		struct cut *c = &w->cuts[next_random(w) % w->cut_count];

		if (!c->all)
			visit_random(w, c);
		else
			w->s->made++;
	}
}

int crash_sample_run(struct crash_sample *s)
{
	const struct crash_log *l = s->history->log;
	struct sampling w = {.s = s, .random = s->seed};
	bool ok;

	w.image.lost = calloc(crash_words(s->history), sizeof(*w.image.lost));
	ok = w.image.lost && choose_cuts(&w, s->images / 2 + 1);
	if (ok && l->event_count > l->base) {
		visit_patterns(&w, 0, DATA_LOST + 1);
		for (size_t i = 0; i < w.cut_count; i++)
			if (count_choices(&w.cuts[i]) <=
			    16 + s->images / w.cut_count)
				visit_all(&w, &w.cuts[i]);
		visit_patterns(&w, META_LOST, PATTERNS);
		visit_randoms(&w);
	}
	for (size_t i = 0; i < w.cut_count; i++) {
		s->exhaustive_cuts += w.cuts[i].all;
		s->sampled_cuts += !w.cuts[i].all;
		free(w.cuts[i].open);
	}
	free(w.cuts);
	free(w.image.lost);
	return ok ? 0 : -ENOMEM;
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
	return fclose(f) ? (free(text), NULL) : text;
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
		if (!*text)
			return 0;
		if (*text++ != ',')
			return -EINVAL;
	}
	return -EINVAL;
}
