/* SPDX-License-Identifier: BSD-2-Clause */
/* The reports of fi_rpmem_crashtest: what they show, and what they escape. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/crashtest/report.h"
#include "util/crashtest/report_facts.h"

#define HOSTILE                                                                \
	"\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;"       \
	"\x1b]0;owned\x07\x1b[2J\xc2\x9b"                                      \
	"1m\xe2\x80\xae\xe2\x80\x8b\xf3\xa0\x80\xa1\r\x7f"

static json_t *event(json_int_t n, const char *kind, const char *target,
		     json_int_t durable_at)
{
	return json_pack("{sI sI si ss ss sI si so}", "n", n, "t_us", n * 10,
			 "pid", 7, "kind", kind, "target", target, "offset",
			 n * 4096, "length", 4096, "durable_at",
			 durable_at < 0 ? json_null()
					: json_integer(durable_at));
}

/* A result of `events`, with one failure that lost `lost`. */
static json_t *result_of(json_t *events, json_int_t cut, json_t *lost)
{
	return json_pack(
		"{si s[ss] ss si ss ss s{si si si si si si} so s[{sI so si si "
		"ss si ss ss}]}",
		"version", 1, "command", "./writer", "--rows", "mode", "files",
		"seed", 5, "verdict", "convicted", "reason", "row 3 is missing",
		"images", "made", 200, "distinct", 187, "checked", 186,
		"failed", 3, "exhaustive_cuts", 4, "sampled_cuts", 21, "events",
		events, "failures", "cut", cut, "lost", lost, "kept", 2,
		"acknowledged", 9, "last_acknowledged", "row 3", "status", 17,
		"output", "row 3 is not there\n", "repeat",
		"fi_rpmem_crashtest --image 6:0c");
}

static json_t *unit(json_int_t n, json_int_t length)
{
	return json_pack("{sI ss sI sI}", "event", n, "unit", "page", "offset",
			 n * 4096, "length", length);
}

/*
 * A run: 0 write, 1 flush, 2 ack, 3 write that is lost, 4 write that is torn,
 * 5 write that is kept, 6 ack; after the cut 7 flush.
 */
static json_t *small(void)
{
	json_t *events = json_array(), *lost = json_array();

	json_array_append_new(events, event(0, "write", "a", 1));
	json_array_append_new(events, event(1, "fsync", "a", -1));
	json_array_append_new(events, event(2, "ack", "", -1));
	json_array_append_new(events, event(3, "write", "b", 7));
	json_array_append_new(events, event(4, "write", "a", -1));
	json_array_append_new(events, event(5, "write", "c", -1));
	json_array_append_new(events, event(6, "ack", "", -1));
	json_array_append_new(events, event(7, "flush", "b", -1));
	json_array_append_new(lost, unit(3, 4096));
	json_array_append_new(lost, unit(4, 512));
	return result_of(events, 6, lost);
}

/* An object of a result: all kinds of objects, by level. */
static json_t *part(json_t *r, int level)
{
	json_t *failure = json_array_get(json_object_get(r, "failures"), 0);

	switch (level) {
	case 0:
		return r;
	case 1:
		return json_object_get(r, "images");
	case 2:
		return json_array_get(json_object_get(r, "events"), 0);
	case 3:
		return failure;
	default:
		return json_array_get(json_object_get(failure, "lost"), 0);
	}
}

static char *html_of(const json_t *result)
{
	char *page = NULL;
	size_t len;
	FILE *f = open_memstream(&page, &len);

	cr_assert_eq(crash_report_html(result, f), 0);
	fclose(f);
	cr_assert_eq(strlen(page), len, "the page has a NUL");
	return page;
}

static char *text_of(const json_t *result)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	crash_report_text(result, f);
	fclose(f);
	cr_assert_eq(strlen(text), len, "the text has a NUL");
	return text;
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

/* A terminal obeys no byte of the text, and no line is too long. */
static void check_lines(const char *text)
{
	size_t column = 0;

	for (; *text; text++) {
		cr_assert(*text == '\n' || (*text >= 0x20 && *text < 0x7f),
			  "byte %02x", (unsigned char)*text);
		column = *text == '\n' ? 0 : column + 1;
		cr_assert_leq(column, 100);
	}
}

/* Replace each string inside v by s; a reference to v, or to a new string. */
static json_t *all_strings(json_t *v, const char *s, size_t len)
{
	const char *key;
	json_t *value;
	void *next;
	size_t i;

	json_array_foreach(v, i, value)
		json_array_set_new(v, i, all_strings(value, s, len));
	json_object_foreach_safe(v, next, key, value)
		json_object_set_new(v, key, all_strings(value, s, len));
	return json_is_string(v) ? json_stringn_nocheck(s, len)
				 : json_incref(v);
}

/* The page of a result without strings has as many tags as any other. */
static void check_page(const char *page)
{
	for (const unsigned char *p = (const unsigned char *)page; *p; p++)
		cr_assert(*p >= 0x20 || *p == '\n' || *p == '\t', "byte %02x",
			  *p);
	cr_assert_eq(count(page, "<script"), 0);
	cr_assert_eq(count(page, "<img"), 0);
	cr_assert_eq(count(page, "\xe2\x80\xae"), 0, "direction of text");
	cr_assert_eq(count(page, "\xe2\x80\x8b"), 0, "no width");
	cr_assert_eq(count(page, "\xf3\xa0\x80\xa1"), 0, "tag characters");
	cr_assert_eq(count(page, "\xc2\x9b"), 0, "C1 control characters");
	cr_assert_eq(count(page, "http://") + count(page, "https://"), 0);
}

Test(crash_report, hostile_strings_become_text_of_the_page)
{
	/* Values of "kind" stay, because they choose what is drawn. */
	static const char *const keys[] = {"target", "text"};
	json_t *r = small(), *failure, *e;
	char *page, *plain = html_of(r);
	size_t i;

	json_array_foreach(json_object_get(r, "events"), i,
			   e) for (size_t k = 0; k < 2; k++)
		json_object_set_new(e, keys[k], json_string(HOSTILE));
	failure = json_array_get(json_object_get(r, "failures"), 0);
	json_decref(all_strings(json_object_get(r, "command"), HOSTILE,
				strlen(HOSTILE)));
	json_decref(all_strings(failure, HOSTILE, strlen(HOSTILE)));
	json_object_set_new(r, "verdict", json_string(HOSTILE));
	json_object_set_new(r, "reason", json_string(HOSTILE));
	json_object_set_new(r, "mode", json_string(HOSTILE));
	page = html_of(r);
	check_page(page);
	/* Each word of the command, and each string of the failure. */
	cr_assert_geq(count(page, "&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/"
				  "script&gt;"),
		      8);
	cr_assert_geq(count(page, "\\u{1b}]0;owned\\u{7}"), 8);
	cr_assert_geq(count(page, "\\u{202e}\\u{200b}\\u{e0021}"), 8);
	/* Lanes may become fewer, because all files have one name. */
	cr_assert_eq(count(page, "<article"), count(plain, "<article"));
	cr_assert_eq(count(page, "<span role=\"img\""),
		     count(plain, "<span role=\"img\""));
	json_decref(r);
	free(page);
	free(plain);
}

Test(crash_report, every_string_may_hold_any_byte)
{
	char all[512];
	json_t *r, *v;
	char *s;

	for (int i = 0; i < 256; i++)
		all[i] = (char)i, all[511 - i] = (char)i;
	for (size_t len = 0; len <= sizeof(all); len += 32) {
		r = small();
		v = all_strings(r, all, len);
		s = html_of(v);
		check_page(s);
		free(s);
		s = text_of(v);
		check_lines(s);
		free(s);
		json_decref(v);
		json_decref(r);
	}
}

Test(crash_report, terminal_obeys_no_byte_of_the_program)
{
	json_t *r = small(), *v = all_strings(r, HOSTILE, strlen(HOSTILE));
	char *text = text_of(v);

	check_lines(text);
	cr_assert_geq(count(text, "\\u{1b}]0;owned\\u{7}"), 3);
	cr_assert_eq(count(text, "cannot be copied from here"), 1);
	free(text);
	json_decref(v);
	json_decref(r);
}

Test(crash_report, page_has_each_fact)
{
	static const char *const facts[] = {
		"<b>convicted</b>",
		"3 of 186 checked images",
		"row 3 is missing",
		">./writer</span>",
		">--rows</span>",
		"files, 8 events",
		"<td>200</td>",
		"<td>187</td>",
		"<td>4</td>",
		"<td>21</td>",
		"power cut after event 6",
		"status 17",
		"<strong>2</strong> units",
		"kept 2 others",
		"9 lines had been acknowledged",
		"<q>row 3</q>",
		"row 3 is not there\n",
		"fi_rpmem_crashtest --image 6:0c",
		"1 of the acknowledgements came after the first lost write",
		"the flush that covers it is event 7, after the cut",
		"no flush covers it in the whole run",
		"<p>Drawn from the last good flush to the cut.",
		" Events drawn: 6. Earlier events left out: 1.</p>",
	};
	json_t *r = small();
	char *page = html_of(r);

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		cr_assert(strstr(page, facts[i]), "%s", facts[i]);
	/* One of each is in the legend. */
	cr_assert_eq(count(page, "class=\"m lost\""), 2);
	cr_assert_eq(count(page, "class=\"m torn\""), 2);
	cr_assert_eq(count(page, "class=\"m kept\""), 2);
	cr_assert_eq(count(page, "class=\"m flush\""), 2);
	cr_assert_eq(count(page, "class=\"m ack\""), 3);
	free(page);
	json_decref(r);
}

Test(crash_report, text_has_each_fact)
{
	static const char *const facts[] = {
		"convicted: 3 of 186 images failed",
		"row 3 is missing",
		"./writer --rows",
		"files, 8 events, seed 5",
		"200 made, 187 distinct; all images at 4 cuts, some at 21",
		"failure 1: power cut after event 6",
		"2 units lost, 2 kept; 9 lines acknowledged",
		", the last \"row 3\"\n",
		"last good flush to the cut; events left out: 1\n",
		"event 3: page at 12288, 4096 bytes",
		"event 4: page at 16384, 512 bytes",
		"exited with status 17",
		"    | row 3 is not there\n",
		"\nfi_rpmem_crashtest --image 6:0c\n",
	};
	json_t *r = small();
	char *text = text_of(r);

	check_lines(text);
	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		cr_assert(strstr(text, facts[i]), "%s in\n%s", facts[i], text);
	/* Lanes b and a lost something; c only has what no flush covers. */
	cr_assert(strstr(text, "\n    F        1 "), "%s", text);
	cr_assert(strstr(text, "\n  X          3 lost    write"), "%s", text);
	cr_assert(strstr(text, "\n  ! /        4 torn    write"), "%s", text);
	cr_assert(strstr(text, "\n  ! ! +      5 kept    write"), "%s", text);
	cr_assert(strstr(text, "\n  ! ! :      6         ack"), "%s", text);
	cr_assert(!strstr(text, "     7 "), "an event after the cut is drawn");
	free(text);
	json_decref(r);
}

Test(crash_report, lane_is_clean_after_the_flush_that_covers_it)
{
	json_t *events = json_array(), *lost = json_array(), *r;
	struct crash_view v;

	json_array_append_new(events, event(0, "write", "a", 2));
	json_array_append_new(events, event(1, "write", "b", 3));
	json_array_append_new(events, event(2, "flush", "a", -1));
	json_array_append_new(events, event(3, "flush", "b", -1));
	json_array_append_new(events, event(4, "write", "b", 9));
	r = result_of(events, 4, lost);
	cr_assert_eq(crash_view_make(r, part(r, 3), &v), 0);
	/* Nothing is lost: the last good flush is the last one. */
	cr_assert_eq(v.before, 3);
	crash_view_free(&v);
	json_array_append_new(lost, unit(0, 4096));
	cr_assert_eq(crash_view_make(r, part(r, 3), &v), 0);
	cr_assert(!v.flushed && v.before == 0 && v.columns == 5);
	cr_assert_eq(v.lanes, 2);
	cr_assert_eq(crash_state(&v, 0, 4), CRASH_EXPOSED);
	cr_assert_eq(crash_state(&v, 1, 0), CRASH_CLEAN);
	cr_assert_eq(crash_state(&v, 1, 1), CRASH_PENDING);
	cr_assert_eq(crash_state(&v, 1, 2), CRASH_PENDING);
	cr_assert_eq(crash_state(&v, 1, 3), CRASH_CLEAN);
	cr_assert_eq(crash_state(&v, 1, 4), CRASH_OPEN);
	crash_view_free(&v);
	json_decref(r);
}

/* n events with a flush in each 100th place; those of lost are lost. */
static json_t *many(json_int_t n, const json_int_t *lost, size_t losses)
{
	json_t *events = json_array(), *set = json_array();
	char target[32];

	for (json_int_t i = 0; i < n; i++) {
		snprintf(target, sizeof(target), "file-%" JSON_INTEGER_FORMAT,
			 i % 40);
		json_array_append_new(
			events,
			event(i, i % 100 ? "write" : "flush", target, -1));
	}
	for (size_t i = 0; i < losses; i++)
		json_array_append_new(set, unit(lost[i], 4096));
	return result_of(events, n - 1, set);
}

Test(crash_report, ten_thousand_events_are_drawn_from_the_last_good_flush)
{
	const json_int_t lost[] = {9950, 9960};
	json_t *r = many(10000, lost, 2);
	char *page = html_of(r), *text = text_of(r);

	cr_assert(strstr(page, "Drawn from the last good flush to the cut. "
			       "Events drawn: 100. Earlier events left out: "
			       "9900."));
	cr_assert_lt(strlen(page), 200000);
	check_lines(text);
	cr_assert(strstr(text, "events left out: 9900\n"));
	free(page);
	free(text);
	json_decref(r);
}

Test(crash_report, long_timeline_keeps_what_was_lost)
{
	const json_int_t lost[] = {105, 4001, 7001, 9999};
	json_t *r = many(10000, lost, 4);
	struct crash_view v;
	size_t seen = 0, drawn = 0;
	char *page = html_of(r);

	cr_assert_eq(crash_view_make(r, part(r, 3), &v), 0);
	for (size_t c = 0; c < v.columns; c++) {
		seen += v.column[c].i != CRASH_GAP &&
			v.column[c].fate == CRASH_LOST;
		drawn += v.column[c].i != CRASH_GAP;
	}
	cr_assert_eq(seen, 4);
	cr_assert_eq(v.column[0].e.n, 100);
	cr_assert_eq(v.column[v.columns - 1].e.n, 9999);
	cr_assert_eq(v.before + v.inside + drawn, 10000);
	cr_assert(v.other);
	cr_assert_eq(v.lanes, CRASH_LANES);
	cr_assert_eq(count(page, "class=\"m lost\""), 5);
	cr_assert(strstr(page, ">all other files</bdi>"));
	cr_assert_lt(strlen(page), 200000);
	crash_view_free(&v);
	free(page);
	json_decref(r);
}

Test(crash_report, thousand_lost_units_and_failures_have_a_bound)
{
	json_int_t lost[1000];
	json_t *r, *failures, *first;
	char *s;

	for (size_t i = 0; i < 1000; i++)
		lost[i] = (json_int_t)(i * 9 + 1);
	r = many(10000, lost, 1000);
	failures = json_object_get(r, "failures");
	first = json_array_get(failures, 0);
	for (int i = 1; i < 60; i++)
		json_array_append(failures, first);
	s = html_of(r);
	cr_assert_eq(count(s, "<article"), CRASH_FAILURES);
	cr_assert(strstr(s, "10 more failures, without a timeline"));
	cr_assert_eq(count(s, "800 more are in the JSON file"), CRASH_FAILURES);
	free(s);
	s = text_of(r);
	check_lines(s);
	cr_assert(strstr(s, "10 more failures are in the JSON file"));
	free(s);
	json_decref(r);
}

/* Both reports of a copy whose key has another value, or none. */
static void check_other(json_t *r, int level, const char *key, json_t *other)
{
	json_t *copy = json_deep_copy(r);
	char *s;

	if (other)
		json_object_set(part(copy, level), key, other);
	else
		json_object_del(part(copy, level), key);
	s = html_of(copy);
	check_page(s);
	cr_assert(strstr(s, "</html>"));
	free(s);
	s = text_of(copy);
	check_lines(s);
	free(s);
	json_decref(copy);
}

Test(crash_report, missing_keys_and_other_types_are_reported)
{
	json_t *others[] = {NULL,
			    json_null(),
			    json_true(),
			    json_integer(-5),
			    json_real(0.5),
			    json_string("x"),
			    json_array(),
			    json_object(),
			    json_pack("[sn{}]", "x"),
			    json_integer(INT64_MAX),
			    json_integer(INT64_MIN)};
	json_t *r = small(), *value;
	const char *key;

	for (size_t o = 0; o < sizeof(others) / sizeof(*others); o++) {
		for (int level = 0; level < 5; level++)
			json_object_foreach(part(r, level), key, value)
				check_other(r, level, key, others[o]);
		json_decref(others[o]);
	}
	json_decref(r);
}

Test(crash_report, empty_result_has_a_report)
{
	json_t *r = json_object();
	char *s = html_of(r);

	cr_assert(strstr(s, "no verdict"));
	cr_assert(strstr(s, "not recorded of not recorded checked images"));
	cr_assert(strstr(s, "Failures: 0"));
	free(s);
	s = text_of(r);
	cr_assert(strstr(s, "no verdict: ? of ? images"));
	free(s);
	json_decref(r);
}

Test(crash_report, image_without_losses_says_so)
{
	json_t *events = json_array(), *r;
	char *s;

	json_array_append_new(events, event(0, "write", "a", -1));
	r = result_of(events, 0, json_array());
	s = html_of(r);
	cr_assert(strstr(s, "None: the image has every write before the cut"));
	free(s);
	s = text_of(r);
	cr_assert(strstr(s, "none: the image has every write before the cut"));
	free(s);
	json_decref(r);
}

Test(crash_report, change_of_names_has_no_place_and_no_bytes)
{
	json_t *events = json_array(), *lost = json_array(), *r, *e;
	char *s;

	e = event(0, "rename", "a.new", -1);
	json_object_set_new(e, "text", json_string("a"));
	json_object_set_new(e, "length", json_integer(0));
	json_array_append_new(events, e);
	json_array_append_new(lost,
			      json_pack("{si ss si si}", "event", 0, "unit",
					"metadata", "offset", 0, "length", 0));
	r = result_of(events, 0, lost);
	s = html_of(r);
	cr_assert(strstr(s, "<li>metadata of event 0 (rename \xe2\x80\x9c"
			    "a\xe2\x80\x9d, "));
	cr_assert_eq(count(s, "class=\"m lost\""), 2);
	free(s);
	s = text_of(r);
	cr_assert(strstr(s, "lost    rename a.new \"a\"\n"), "%s", s);
	cr_assert(strstr(s, "event 0: metadata\n"), "%s", s);
	free(s);
	json_decref(r);
}

Test(crash_report, failure_that_comes_and_goes_is_said_to)
{
	json_t *r = small();
	char *s = html_of(r);

	cr_assert(!strstr(s, "Not confirmed: "));
	cr_assert(strstr(s, "3 images failed. Those that lost the fewest"));
	free(s);
	json_object_set_new(part(r, 3), "stable", json_false());
	json_object_set_new(part(r, 1), "failed", json_integer(1));
	s = html_of(r);
	cr_assert(strstr(s, "Not confirmed: a repeat of the check passed"));
	cr_assert(!strstr(s, "Those that lost the fewest"));
	free(s);
	s = text_of(r);
	cr_assert(strstr(s, "not confirmed: a repeat of the check passed"));
	free(s);
	json_decref(r);
}

/* Whether a report has one text and not the other. */
static void expect_report_says(char *report, const char *text,
			       const char *other)
{
	cr_assert(strstr(report, text), "no '%s' in: %s", text, report);
	cr_assert(!strstr(report, other), "'%s' in: %s", other, report);
	free(report);
}

Test(crash_report, set_that_is_not_the_smallest_is_not_called_so)
{
	json_t *r = small();

	json_object_set_new(part(r, 3), "minimal", json_true());
	expect_report_says(html_of(r), "The smallest set of",
			   "limit of checks");
	expect_report_says(text_of(r), "the smallest set of",
			   "limit of checks");
	json_object_set_new(part(r, 3), "minimal", json_false());
	expect_report_says(html_of(r), "limit of checks",
			   "The smallest set of");
	expect_report_says(text_of(r), "limit of checks",
			   "the smallest set of");
	json_decref(r);
}

Test(crash_report, error_of_the_file_is_returned)
{
	json_t *r = small(), *list = json_array();
	FILE *full = fopen("/dev/full", "w");

	cr_assert_eq(crash_report_html(list, stderr), -EINVAL);
	cr_assert_eq(crash_report_html(NULL, stderr), -EINVAL);
	cr_assert_lt(crash_report_html(r, full), 0);
	fclose(full);
	json_decref(list);
	json_decref(r);
}

/* A shell reads the wrapped command as the command that was given. */
static void check_copy(const char *command)
{
	json_t *r = small(), *f;
	char *text, *start, *script, got[4096] = "", want[4096] = "";
	FILE *p;
	int n;

	f = json_array_get(json_object_get(r, "failures"), 0);
	json_object_set_new(f, "repeat", json_string(command));
	text = text_of(r);
	start = strstr(text, "the same image again:\n");
	cr_assert(start);
	start += strlen("the same image again:\n");
	for (int copy = 0; copy < 2; copy++) {
		n = asprintf(&script, "set -- %s\nprintf '<%%s>' \"$@\"\n",
			     copy ? start : command);
		cr_assert_geq(n, 0);
		setenv("CRASH_SCRIPT", script, 1);
		p = popen("sh -c \"$CRASH_SCRIPT\"", "r");
		cr_assert(p);
		cr_assert_gt(fread(copy ? got : want, 1, sizeof(got) - 1, p),
			     0);
		cr_assert_eq(pclose(p), 0);
		free(script);
	}
	cr_assert_str_eq(got, want);
	if (!strchr(command, '\n'))
		check_lines(text);
	free(text);
	json_decref(r);
}

Test(crash_report, wrapped_command_is_the_same_command)
{
	char long_word[700], command[1000];

	check_copy("a b c");
	memset(long_word, 'x', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	for (size_t shift = 1; shift < 9; shift++) {
		snprintf(command, sizeof(command),
			 "%.*s '%.299s' \"%.249s\" \\' \\\\ %.299s", (int)shift,
			 long_word, long_word, long_word, long_word);
		check_copy(command);
	}
	for (size_t shift = 0; shift < 100; shift++) {
		snprintf(command, sizeof(command),
			 "%.*s'a '\\''b' \"c\\\"d\\\\\" \\' \\\\ 'e\\' f "
			 "'g h'\\''i'",
			 (int)shift, long_word);
		check_copy(command);
	}
	for (size_t end = 90; end < 105; end++) {
		snprintf(command, sizeof(command), "'%.*s'", (int)end,
			 long_word);
		check_copy(command);
	}
	check_copy("sh -c 'one\ntwo three'");
}

Test(crash_report, characters_are_taken_as_utf8)
{
	static const struct {
		const char *s;
		uint32_t c;
		size_t n;
	} cases[] = {
		{"a", 'a', 1},
		{"\xc3\xbc", 0xfc, 2},
		{"\xe2\x82\xac", 0x20ac, 3},
		{"\xf0\x9f\x92\xbe", 0x1f4be, 4},
		{"\x80", UINT32_MAX, 1},	     /* continues nothing */
		{"\xc0\xaf", UINT32_MAX, 1},	     /* longer than needed */
		{"\xe0\x9f\xbf", UINT32_MAX, 1},     /* longer than needed */
		{"\xed\xa0\x80", UINT32_MAX, 1},     /* a surrogate */
		{"\xf4\x90\x80\x80", UINT32_MAX, 1}, /* above U+10FFFF */
		{"\xe2\x82", UINT32_MAX, 1},	     /* cut off */
		{"\xff", UINT32_MAX, 1},
	};
	uint32_t c;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct crash_str s = {cases[i].s, strlen(cases[i].s)};

		cr_assert_eq(crash_char(&s, 0, &c), cases[i].n, "%zu", i);
		cr_assert_eq(c, cases[i].c, "%zu: %x", i, c);
	}
	/* Bytes behind the string belong to no character of it. */
	cr_assert_eq(crash_char(&(struct crash_str){"\xe2\x82\xac", 2}, 0, &c),
		     1);
	cr_assert_eq(c, UINT32_MAX);
}
