// SPDX-License-Identifier: BSD-2-Clause
/* The report of fi_rpmem_crashtest as text for a terminal. */
#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "util/crashtest/report.h"
#include "util/crashtest/report_facts.h"

#define WIDTH 100 /* maximum columns of a line */
#define NAME  40  /* maximum columns of a file's name in a legend */
#define LANES 8	  /* lanes that have a column of their own */
#define LINES 40  /* maximum lines of a check's output */

/*
 * A line of at most WIDTH columns: longer text is truncated and ends with
 * "...".
 */
struct line {
	FILE *out;
	char text[WIDTH + 1];
	size_t len;
	bool full;
};

static void add(struct line *l, const char *s, size_t n)
{
	if (l->full)
		return;
	if (l->len + n > WIDTH) {
		l->len = l->len > WIDTH - 3 ? WIDTH - 3 : l->len;
		memcpy(l->text + l->len, "...", 3);
		l->len += 3;
		l->full = true;
		return;
	}
	memcpy(l->text + l->len, s, n);
	l->len += n;
}

__attribute__((format(printf, 2, 3))) static void addf(struct line *l,
						       const char *fmt, ...)
{
	char s[WIDTH + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s, sizeof(s), fmt, ap);
	va_end(ap);
	add(l, s, strlen(s));
}

static void end_line(struct line *l)
{
	while (l->len && l->text[l->len - 1] == ' ')
		l->len--;
	fprintf(l->out, "%.*s\n", (int)l->len, l->text);
	l->len = 0;
	l->full = false;
}

/*
 * Make the character at s printable ASCII in buf: a terminal would obey control
 * characters of the tested program. Returns the number of bytes read.
 */
static size_t make_printable(const struct crash_str *s, size_t at, char buf[16])
{
	uint32_t c;
	size_t n = crash_char(s, at, &c);

	if (c == UINT32_MAX)
		snprintf(buf, 16, "\\x%02x", (unsigned char)s->s[at]);
	else if (c == '\n')
		snprintf(buf, 16, "\\n");
	else if (c == '\t')
		snprintf(buf, 16, "\\t");
	else if (c < 0x20 || c >= 0x7f)
		snprintf(buf, 16, "\\u{%" PRIx32 "}", c);
	else
		snprintf(buf, 16, "%c", (char)c);
	return n;
}

static void add_str(struct line *l, struct crash_str s)
{
	char buf[16];

	for (size_t i = 0; i < s.len && !l->full;) {
		i += make_printable(&s, i, buf);
		add(l, buf, strlen(buf));
	}
}

/* Add a name in at most `max` columns: its end, because names differ there. */
static void add_name(struct line *l, struct crash_str s, size_t max)
{
	if (!s.len) {
		addf(l, "(no name)");
		return;
	}
	if (s.len > max) {
		s.s += s.len - (max - 3);
		s.len = max - 3;
		addf(l, "...");
	}
	add_str(l, s);
}

static void add_count(struct line *l, const json_t *o, const char *key)
{
	json_int_t n = crash_int(o, key, -1);

	if (n < 0)
		addf(l, "?");
	else
		addf(l, "%" JSON_INTEGER_FORMAT, n);
}

/* Whether the rest of a string fits into a line from a column on. */
static bool fits_line(struct crash_str s, size_t i, size_t column)
{
	return s.len - i <= WIDTH - column && !memchr(s.s + i, '\n', s.len - i);
}

/*
 * Print a shell command in lines of WIDTH columns that a shell reads as the
 * same command: a backslash before a line feed, outside of single quotes.
 */
static void put_command(FILE *out, struct crash_str s)
{
	bool single = false, doubled = false, escaped = false;
	size_t column = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.s[i];

		if (column >= WIDTH - 3 && !escaped && c != '\n' &&
		    !fits_line(s, i, column)) {
			fputs(single ? "'\\\n'" : "\\\n", out);
			column = single;
		}
		if (escaped)
			escaped = false;
		else if (c == '\\' && !single)
			escaped = true;
		else if (c == '\'' && !doubled)
			single = !single;
		else if (c == '"' && !single)
			doubled = !doubled;
		fputc(c, out);
		column = c == '\n' ? 0 : column + 1;
	}
	fputc('\n', out);
}

/* Whether a command can be shown and copied as it is. */
static bool is_printable(struct crash_str s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((s.s[i] < 0x20 && s.s[i] != '\n') || s.s[i] >= 0x7f)
			return false;
	return true;
}

static void put_repeat(FILE *out, const json_t *failure)
{
	struct crash_str repeat = crash_str(failure, "repeat");
	struct line l = {.out = out};

	if (!repeat.len)
		return;
	fputs("\n  the same image again:\n", out);
	if (is_printable(repeat)) {
		put_command(out, repeat);
		return;
	}
	add_str(&l, repeat);
	end_line(&l);
	fputs("  (cannot be copied from here: it has characters that a "
	      "terminal may obey; see the JSON file)\n",
	      out);
}

/* Print all of a text, in lines that end at a blank where one is. */
static void put_wrapped(FILE *out, struct crash_str s)
{
	struct line l = {.out = out};
	char buf[16];

	addf(&l, "  ");
	for (size_t i = 0; i < s.len;) {
		size_t word = 0;

		for (size_t k = i; k < s.len && s.s[k] != ' '; word++)
			k += make_printable(&s, k, buf);
		i += make_printable(&s, i, buf);
		if (l.len + strlen(buf) > WIDTH ||
		    (*buf != ' ' && l.len > 2 && l.text[l.len - 1] == ' ' &&
		     l.len + word > WIDTH)) {
			end_line(&l);
			addf(&l, "  ");
		}
		add(&l, buf, strlen(buf));
	}
	end_line(&l);
}

static bool is_consistency(const json_t *result, struct crash_str verdict)
{
	const json_t *event;
	size_t i;

	json_array_foreach(json_object_get(result, "events"), i, event)
	{
		const char *kind =
			json_string_value(json_object_get(event, "kind"));

		if (kind && !strcmp(kind, "ack"))
			return false;
	}
	return verdict.len == 9 && !memcmp(verdict.s, "acquitted", 9);
}

static void put_head(FILE *out, const json_t *result)
{
	const json_t *images = json_object_get(result, "images"), *word;
	const json_t *words = json_object_get(result, "command");
	struct crash_str reason = crash_str(result, "reason"),
			 verdict = crash_str(result, "verdict");
	struct line l = {.out = out};
	size_t i;

	if (verdict.len)
		add_str(&l, verdict);
	else
		addf(&l, "no verdict");
	if (is_consistency(result, verdict))
		addf(&l, " of consistency alone, nothing was acknowledged");
	addf(&l, ": ");
	add_count(&l, images, "failed");
	addf(&l, " of ");
	add_count(&l, images, "checked");
	addf(&l, " images failed the check");
	end_line(&l);
	if (reason.len)
		put_wrapped(out, reason);
	if (crash_int(result, "killed", 0) > 0)
		fprintf(out,
			"  killed   %" JSON_INTEGER_FORMAT
			" processes of COMMAND at its end\n",
			crash_int(result, "killed", 0));
	addf(&l, "  command  ");
	json_array_foreach(words, i, word)
	{
		struct crash_str s = {"", 0};

		if (json_is_string(word))
			s = (struct crash_str){json_string_value(word),
					       json_string_length(word)};
		add_str(&l, s);
		addf(&l, " ");
	}
	end_line(&l);
	addf(&l, "  recorded ");
	add_str(&l, crash_str(result, "mode"));
	addf(&l, ", %zu events, seed ",
	     json_array_size(json_object_get(result, "events")));
	add_count(&l, result, "seed");
	end_line(&l);
	addf(&l, "  images   ");
	add_count(&l, images, "made");
	addf(&l, " made, ");
	add_count(&l, images, "distinct");
	addf(&l, " distinct; all images at ");
	add_count(&l, images, "exhaustive_cuts");
	addf(&l, " cuts, some at ");
	add_count(&l, images, "sampled_cuts");
	end_line(&l);
}

static char sign(const struct crash_column *c)
{
	/* Signs of CRASH_DURABLE, _KEPT, _TORN, _LOST and _NOTE. */
	static const char fates[] = "=+/X ";

	switch (c->e.kind) {
	case CRASH_FLUSH:
		return 'F';
	case CRASH_ACK:
		return 'A';
	case CRASH_MARK:
		return 'i';
	default:
		return fates[c->fate];
	}
}

static size_t shown_lanes(const struct crash_view *v)
{
	return v->lanes < LANES ? v->lanes : LANES;
}

/* Add a sign for each lane: of its event, or of its file's worst state. */
static void add_lanes(struct line *l, const struct crash_view *v, size_t column)
{
	static const char states[] = {' ', '.', ':', '!'};
	const struct crash_column *c = &v->column[column];

	for (size_t i = 0; i < shown_lanes(v); i++)
		addf(l, "%c ",
		     c->i != CRASH_GAP && c->lane == i
			     ? sign(c)
			     : states[crash_state(v, i, column)]);
}

static void put_event(FILE *out, const struct crash_view *v, size_t column)
{
	const struct crash_column *c = &v->column[column];
	struct line l = {.out = out};

	addf(&l, "  ");
	add_lanes(&l, v, column);
	if (c->i == CRASH_GAP) {
		addf(&l, "  ... events left out");
		end_line(&l);
		return;
	}
	addf(&l, "%6" JSON_INTEGER_FORMAT " %-7s ", c->e.n,
	     crash_fate_name(c->fate));
	add_str(&l, c->e.name);
	if (crash_has_range(&c->e))
		addf(&l,
		     " %" JSON_INTEGER_FORMAT " bytes at %" JSON_INTEGER_FORMAT,
		     c->e.length, c->e.offset);
	if (c->e.target.len) {
		addf(&l, " ");
		add_name(&l, c->e.target, NAME);
	}
	if (c->e.text.len) {
		addf(&l, " \"");
		add_str(&l, c->e.text);
		addf(&l, "\"");
	}
	end_line(&l);
}

static void put_timeline(FILE *out, const struct crash_view *v)
{
	struct line l = {.out = out};

	fprintf(out, "\n  timeline from %s to the cut",
		v->flushed ? "the last good flush" : "the start");
	if (v->before + v->inside)
		fprintf(out, "; events left out: %zu", v->before + v->inside);
	fputs("\n  X lost  / torn  + kept  = durable  F flush  A "
	      "acknowledged; a file: ! lost writes  : no flush yet\n",
	      out);
	for (size_t i = 0; i < shown_lanes(v); i++) {
		addf(&l, "  ");
		for (size_t j = 0; j < i; j++)
			addf(&l, "| ");
		addf(&l, ",-- ");
		if (v->other && i == v->lanes - 1)
			addf(&l, "all other files");
		else
			add_name(&l, v->lane[i], NAME);
		end_line(&l);
	}
	for (size_t c = 0; c < v->columns; c++)
		put_event(out, v, c);
	fputs("  ------------------------- power cut\n", out);
}

static void put_lost(FILE *out, const struct crash_view *v)
{
	struct line l = {.out = out};

	fputs(crash_is_minimal(v->failure)
		      ? "\n  the smallest set of lost writes that fails:\n"
		      : "\n  a set of lost writes that fails; a smaller one "
			"may, too: the limit of checks\n  or of memory, or a "
			"failure of this tool, ended the search:\n",
	      out);
	if (!v->units)
		fputs("    none: the image has every write before the cut\n",
		      out);
	for (size_t i = 0; i < v->units && i < LINES; i++) {
		const json_t *unit = json_array_get(v->lost, i);

		addf(&l, "    event ");
		add_count(&l, unit, "event");
		addf(&l, ": ");
		add_str(&l, crash_str(unit, "unit"));
		if (crash_int(unit, "length", 0) > 0) {
			addf(&l, " at ");
			add_count(&l, unit, "offset");
			addf(&l, ", ");
			add_count(&l, unit, "length");
			addf(&l, " bytes");
		}
		end_line(&l);
	}
	if (v->units > LINES)
		fprintf(out, "    %zu more are in the JSON file\n",
			v->units - LINES);
}

static void put_output(FILE *out, const json_t *failure)
{
	struct crash_str s = crash_str(failure, "output");
	struct line l = {.out = out};
	int lines = 0;

	fputc('\n', out);
	if (json_is_true(json_object_get(failure, "timed_out")))
		addf(&l, "  the check was killed: it took longer than "
			 "--timeout; status ");
	else
		addf(&l, "  the check exited with status ");
	add_count(&l, failure, "status");
	addf(&l, s.len ? ":" : " and printed nothing");
	end_line(&l);
	while (s.len) {
		const char *nl = memchr(s.s, '\n', s.len);
		size_t n = nl ? (size_t)(nl - s.s) : s.len;

		if (lines++ == LINES) {
			fputs("    | ... more is in the JSON file\n", out);
			return;
		}
		addf(&l, "    | ");
		add_str(&l, (struct crash_str){s.s, n});
		end_line(&l);
		n += nl ? 1 : 0;
		s.s += n;
		s.len -= n;
	}
}

static void put_failure(FILE *out, const json_t *result, const json_t *failure,
			size_t nth)
{
	struct crash_str last = crash_str(failure, "last_acknowledged");
	struct line l = {.out = out};
	struct crash_view v;

	fputc('\n', out);
	addf(&l, "failure %zu: power cut after event ", nth);
	add_count(&l, failure, "cut");
	end_line(&l);
	if (crash_view_make(result, failure, &v)) {
		fputs("  no memory for its timeline\n", out);
		return;
	}
	addf(&l, "  %zu %s lost, ", v.units, v.units == 1 ? "unit" : "units");
	add_count(&l, failure, "kept");
	addf(&l, " kept; ");
	add_count(&l, failure, "acknowledged");
	addf(&l, " lines acknowledged");
	if (last.len) {
		addf(&l, ", the last \"");
		add_str(&l, last);
		addf(&l, "\"");
	}
	end_line(&l);
	if (json_is_false(json_object_get(failure, "stable")))
		fputs("  not confirmed: a repeat of the check passed, "
		      "or none could be run\n",
		      out);
	put_timeline(out, &v);
	put_lost(out, &v);
	put_output(out, failure);
	put_repeat(out, failure);
	crash_view_free(&v);
}

void crash_report_text(const json_t *result, FILE *out)
{
	const json_t *failures = json_object_get(result, "failures");
	size_t n = json_array_size(failures);

	put_head(out, result);
	for (size_t i = 0; i < n && i < CRASH_FAILURES; i++)
		put_failure(out, result, json_array_get(failures, i), i + 1);
	if (n > CRASH_FAILURES)
		fprintf(out, "\n%zu more failures are in the JSON file\n",
			n - CRASH_FAILURES);
}
