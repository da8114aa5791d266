/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of a result of fi_rpmem_crashtest, for its HTML and its text. */
#ifndef RP_CRASHTEST_REPORT_FACTS_H
#define RP_CRASHTEST_REPORT_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define CRASH_COLUMNS  120	/* events of one timeline, at most */
#define CRASH_LANES    16	/* files or devices of one timeline, at most */
#define CRASH_FAILURES 50	/* failures with a timeline, at most */
#define CRASH_UNITS    200	/* lost units that are listed, at most */
#define CRASH_GAP      SIZE_MAX /* a column that stands for events left out */

/* A string of the result; it may hold any byte. s is never NULL. */
struct crash_str {
	const char *s;
	size_t len;
};

enum crash_kind {
	CRASH_CHANGE, /* a write, or a change of names or lengths */
	CRASH_FLUSH,
	CRASH_ACK,
	CRASH_MARK,
};

struct crash_event {
	enum crash_kind kind;
	struct crash_str name; /* of the kind */
	struct crash_str target, text;
	json_int_t n, t_us, pid, offset, length;
	json_int_t durable_at; /* -1: never */
};

enum crash_fate {
	CRASH_DURABLE, /* a flush before the cut covers the change */
	CRASH_KEPT,    /* no flush covers it, and the image has it */
	CRASH_TORN,    /* the image has a part of it */
	CRASH_LOST,    /* the image does not have it */
	CRASH_NOTE,    /* no change */
};

/* The state of a file or device behind a column of a timeline. */
enum crash_state {
	CRASH_CLEAN,
	CRASH_PENDING, /* has changes that a later flush, before the cut, covers
			*/
	CRASH_OPEN, /* has changes that no flush covers; the image has them */
	CRASH_EXPOSED, /* has changes that the image lost */
};

/* A column of a timeline: an event, or a gap, which has no other member. */
struct crash_column {
	size_t i; /* index of the event, or CRASH_GAP */
	struct crash_event e;
	enum crash_fate fate;
	size_t lane; /* >= lanes of the view: none */
};

/* A failure, and the columns of its timeline. */
struct crash_view {
	const json_t *events, *failure, *lost;
	json_int_t cut;
	size_t units;	       /* lost units */
	json_int_t *lost_size; /* of each event: bytes lost; -1: nothing lost */
	struct crash_column column[CRASH_COLUMNS];
	size_t columns;
	size_t before, inside; /* events left out before and in the timeline */
	bool flushed;	       /* the first column is the last good flush */
	struct crash_str lane[CRASH_LANES];
	size_t lanes;
	bool other;	   /* the last lane stands for several targets */
	size_t acks_after; /* acknowledgements between the first loss and the
			      cut */
};

struct crash_str crash_str(const json_t *object, const char *key);
/* Integer of a key; `missing` when there is none. */
json_int_t crash_int(const json_t *object, const char *key, json_int_t missing);

/*
 * Take one character of a string: *c is its code point and the return value its
 * length; a byte that is no UTF-8 has length 1 and *c = UINT32_MAX.
 */
size_t crash_char(const struct crash_str *s, size_t at, uint32_t *c);
/*
 * Whether a character has an effect on what displays it: control characters,
 * and those that change the direction of text or have no width.
 */
bool crash_char_acts(uint32_t c);
bool crash_str_same(const struct crash_str *a, const struct crash_str *b);

/* Event of an index; absent keys have harmless values. */
struct crash_event crash_event(const json_t *events, size_t i);
/* Index of the event with number n; CRASH_GAP when there is none. */
size_t crash_event_find(const json_t *events, json_int_t n);

/* Whether an event is of bytes, so that offset and length are shown. */
bool crash_has_range(const struct crash_event *e);
/* Images that failed; -1: not recorded. */
json_int_t crash_failed(const json_t *result);
/* Whether no smaller set of lost writes was left to try. */
bool crash_is_minimal(const json_t *failure);

/* Returns 0 or -ENOMEM. */
int crash_view_make(const json_t *result, const json_t *failure,
		    struct crash_view *v);
void crash_view_free(struct crash_view *v);
/* State of a lane behind a column. */
enum crash_state crash_state(const struct crash_view *v, size_t lane,
			     size_t column);

/* "lost", "kept", ... */
const char *crash_fate_name(enum crash_fate f);

#endif
