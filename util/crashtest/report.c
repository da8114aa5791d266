// SPDX-License-Identifier: BSD-2-Clause
/* Facts of a result of fi_rpmem_crashtest: what each timeline shows. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/crashtest/report_facts.h"

struct crash_str crash_str(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	struct crash_str s = {"", 0};

	if (json_is_string(v))
		s = (struct crash_str){json_string_value(v),
				       json_string_length(v)};
	return s;
}

json_int_t crash_int(const json_t *object, const char *key, json_int_t missing)
{
	const json_t *v = json_object_get(object, key);

	return json_is_integer(v) ? json_integer_value(v) : missing;
}

bool crash_str_same(const struct crash_str *a, const struct crash_str *b)
{
	return a->len == b->len && !memcmp(a->s, b->s, a->len);
}

size_t crash_char(const struct crash_str *s, size_t at, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *p = (const unsigned char *)s->s + at;
	size_t n;

	*c = UINT32_MAX;
	n = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
	if (!n || *p >= 0xf8 || n > s->len - at)
		return 1;
	uint32_t v = n == 1 ? *p : *p & (0x7fu >> n);

	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 1;
		v = v << 6 | (p[i] & 0x3f);
	}
	if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
		return 1;
	*c = v;
	return n;
}

bool crash_char_acts(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
	       c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
	       c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
	       (c >= 0xe0000 && c <= 0xe0fff);
}

static bool ends_with(const struct crash_str *s, const char *end)
{
	size_t n = strlen(end);

	return s->len >= n && !memcmp(s->s + s->len - n, end, n);
}

static bool str_is(const struct crash_str *s, const char *word)
{
	return s->len == strlen(word) && !memcmp(s->s, word, s->len);
}

static enum crash_kind kind_of(const struct crash_str *name)
{
	if (str_is(name, "ack"))
		return CRASH_ACK;
	if (str_is(name, "mark") || !name->len)
		return CRASH_MARK;
	/* Such as fsync, fdatasync and msync. */
	if (str_is(name, "flush") || ends_with(name, "sync"))
		return CRASH_FLUSH;
	return CRASH_CHANGE;
}

struct crash_event crash_event(const json_t *events, size_t i)
{
	const json_t *o = json_array_get(events, i);
	struct crash_event e = {
		.name = crash_str(o, "kind"),
		.target = crash_str(o, "target"),
		.text = crash_str(o, "text"),
		.n = crash_int(o, "n", (json_int_t)i),
		.t_us = crash_int(o, "t_us", -1),
		.pid = crash_int(o, "pid", -1),
		.offset = crash_int(o, "offset", -1),
		.length = crash_int(o, "length", -1),
		.durable_at = crash_int(o, "durable_at", -1),
	};

	e.kind = kind_of(&e.name);
	return e;
}

bool crash_has_range(const struct crash_event *e)
{
	return e->length > 0 && e->offset >= 0 && e->kind != CRASH_ACK &&
	       e->kind != CRASH_MARK;
}

json_int_t crash_failed(const json_t *result)
{
	return crash_int(json_object_get(result, "images"), "failed", -1);
}

bool crash_is_minimal(const json_t *failure)
{
	return !json_is_false(json_object_get(failure, "minimal"));
}

/* The number of an event; faster than crash_event() in a search. */
static json_int_t event_number(const json_t *events, size_t i)
{
	return crash_int(json_array_get(events, i), "n", (json_int_t)i);
}

size_t crash_event_find(const json_t *events, json_int_t n)
{
	size_t count = json_array_size(events);

	if (n >= 0 && (size_t)n < count && event_number(events, (size_t)n) == n)
		return (size_t)n;
	for (size_t i = 0; i < count; i++)
		if (event_number(events, i) == n)
			return i;
	return CRASH_GAP;
}

/* Sum the lost bytes of each event; set *first to the first lost event. */
static int sum_lost(struct crash_view *v, size_t *first)
{
	size_t count = json_array_size(v->events);
	json_int_t len;

	v->lost_size = calloc(count + 1, sizeof(*v->lost_size));
	if (!v->lost_size)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		v->lost_size[i] = -1;
	*first = CRASH_GAP;
	v->units = json_array_size(v->lost);
	for (size_t i = 0; i < v->units; i++) {
		const json_t *unit = json_array_get(v->lost, i);
		size_t at = crash_event_find(v->events,
					     crash_int(unit, "event", -1));

		if (at == CRASH_GAP)
			continue;
		len = crash_int(unit, "length", 0);
		if (v->lost_size[at] < 0)
			v->lost_size[at] = 0;
		if (len > 0 && v->lost_size[at] < INT64_MAX - len)
			v->lost_size[at] += len;
		if (*first == CRASH_GAP || at < *first)
			*first = at;
	}
	return 0;
}

static enum crash_fate fate_of(const struct crash_view *v, size_t i,
			       const struct crash_event *e)
{
	json_int_t lost = v->lost_size[i];

	if (lost >= 0)
		return lost && lost < e->length ? CRASH_TORN : CRASH_LOST;
	if (e->kind != CRASH_CHANGE)
		return CRASH_NOTE;
	if (e->durable_at >= 0 && e->durable_at <= v->cut)
		return CRASH_DURABLE;
	return CRASH_KEPT;
}

const char *crash_fate_name(enum crash_fate f)
{
	static const char *const names[] = {"durable", "kept", "torn", "lost",
					    ""};

	return names[f];
}

/* Return the index of the first event to draw: the last flush before a loss. */
static size_t first_drawn(struct crash_view *v, size_t end, size_t first_lost)
{
	size_t i = first_lost < end ? first_lost : end;

	while (i--)
		if (crash_event(v->events, i).kind == CRASH_FLUSH) {
			v->flushed = true;
			return i;
		}
	return 0;
}

static void add_column(struct crash_view *v, size_t i)
{
	struct crash_column *c = &v->column[v->columns++];

	c->i = i;
	if (i == CRASH_GAP)
		return;
	c->e = crash_event(v->events, i);
	c->fate = fate_of(v, i, &c->e);
}

/*
 * Choose the columns of a long timeline: the flush, lost events, and the last
 * events before the cut. A gap stands for each run of events between them.
 */
static void choose(struct crash_view *v, size_t begin, size_t end)
{
	size_t tail = CRASH_COLUMNS / 3;
	bool gap = false;

	if (end - begin <= CRASH_COLUMNS) {
		for (size_t i = begin; i < end; i++)
			add_column(v, i);
		return;
	}
	add_column(v, begin);
	for (size_t i = begin + 1; i < end - tail; i++) {
		bool room = v->columns + tail + 3 <= CRASH_COLUMNS;

		if (v->lost_size[i] >= 0 && room) {
			add_column(v, i);
			gap = false;
			continue;
		}
		if (!gap)
			add_column(v, CRASH_GAP);
		gap = true;
		v->inside++;
	}
	for (size_t i = end - tail; i < end; i++)
		add_column(v, i);
}

static bool has_lane(const struct crash_event *e)
{
	return e->kind != CRASH_ACK && (e->target.len || e->kind != CRASH_MARK);
}

/* Return the lane of an event, or v->lanes if the event has none. */
static size_t find_lane(const struct crash_view *v, const struct crash_event *e)
{
	size_t named = v->other ? v->lanes - 1 : v->lanes;

	if (!has_lane(e))
		return v->lanes;
	for (size_t i = 0; i < named; i++)
		if (crash_str_same(&v->lane[i], &e->target))
			return i;
	return named;
}

static void add_lane(struct crash_view *v, const struct crash_event *e)
{
	if (v->other || !has_lane(e) || find_lane(v, e) < v->lanes)
		return;
	if (v->lanes == CRASH_LANES - 1)
		v->other = true;
	v->lane[v->lanes++] = e->target;
}

static bool column_is_lost(const struct crash_column *c)
{
	return c->fate == CRASH_LOST || c->fate == CRASH_TORN;
}

/* Lanes of lost events precede all others. */
static void add_lanes(struct crash_view *v)
{
	struct crash_column *c, *end = v->column + v->columns;

	for (int all = 0; all < 2; all++)
		for (c = v->column; c < end; c++)
			if (c->i != CRASH_GAP && (all || column_is_lost(c)))
				add_lane(v, &c->e);
	for (c = v->column; c < end; c++)
		c->lane = c->i == CRASH_GAP ? v->lanes : find_lane(v, &c->e);
}

/* The number of events up to the cut, the last one before it included. */
static size_t cut_end(const struct crash_view *v)
{
	size_t count = json_array_size(v->events), end;

	if (v->cut < 0)
		return count;
	end = crash_event_find(v->events, v->cut);
	return end == CRASH_GAP ? count : end + 1;
}

int crash_view_make(const json_t *result, const json_t *failure,
		    struct crash_view *v)
{
	size_t first, begin, end;
	int ret;

	memset(v, 0, sizeof(*v));
	v->events = json_object_get(result, "events");
	v->failure = failure;
	v->lost = json_object_get(failure, "lost");
	v->cut = crash_int(failure, "cut", -1);
	ret = sum_lost(v, &first);
	if (ret)
		return ret;
	end = cut_end(v);
	begin = first_drawn(v, end, first);
	v->before = begin;
	choose(v, begin, end);
	add_lanes(v);
	for (size_t i = first; i < end; i++)
		v->acks_after += crash_event(v->events, i).kind == CRASH_ACK;
	return 0;
}

void crash_view_free(struct crash_view *v)
{
	free(v->lost_size);
	v->lost_size = NULL;
}

static enum crash_state state_of(const struct crash_column *c, json_int_t now)
{
	switch (c->fate) {
	case CRASH_LOST:
	case CRASH_TORN:
		return CRASH_EXPOSED;
	case CRASH_KEPT:
		return CRASH_OPEN;
	case CRASH_DURABLE:
		return c->e.durable_at > now ? CRASH_PENDING : CRASH_CLEAN;
	default:
		return CRASH_CLEAN;
	}
}

enum crash_state crash_state(const struct crash_view *v, size_t lane,
			     size_t column)
{
	const struct crash_column *c, *end = v->column + column + 1;
	enum crash_state state = CRASH_CLEAN, s;
	json_int_t now = -1;

	for (c = v->column; c < end; c++)
		if (c->i != CRASH_GAP)
			now = c->e.n;
	for (c = v->column; c < end; c++) {
		if (c->i == CRASH_GAP || c->lane != lane)
			continue;
		s = state_of(c, now);
		if (s > state)
			state = s;
	}
	return state;
}
