// SPDX-License-Identifier: BSD-2-Clause
/* The report of fi_rpmem_crashtest as one HTML file. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "util/crashtest/report.h"
#include "util/crashtest/report_facts.h"
#include "util/crashtest/report_style.h"

/*
 * Print a string as text or as an attribute in double quotes. Characters that
 * act on the display are shown as their code points.
 */
static void put(FILE *out, struct crash_str s)
{
	uint32_t c;

	for (size_t i = 0, n; i < s.len; i += n) {
		n = crash_char(&s, i, &c);
		if (c == '<')
			fputs("&lt;", out);
		else if (c == '>')
			fputs("&gt;", out);
		else if (c == '&')
			fputs("&amp;", out);
		else if (c == '"')
			fputs("&quot;", out);
		else if (c == '\'')
			fputs("&#39;", out);
		else if (c == UINT32_MAX)
			fprintf(out, "\\x%02x", (unsigned char)s.s[i]);
		else if (crash_char_acts(c) && c != '\n' && c != '\t')
			fprintf(out, "\\u{%" PRIx32 "}", c);
		else
			fwrite(s.s + i, 1, n, out);
	}
}

/* Print a name in one line: a line feed is shown as \n. */
static void put_name(FILE *out, struct crash_str s)
{
	const char *end;

	while ((end = memchr(s.s, '\n', s.len))) {
		struct crash_str line = {s.s, (size_t)(end - s.s)};

		put(out, line);
		fputs("\\n", out);
		s.len -= line.len + 1;
		s.s = end + 1;
	}
	put(out, s);
}

static void put_count(FILE *out, const json_t *o, const char *key)
{
	json_int_t n = crash_int(o, key, -1);

	if (n < 0)
		fputs("not recorded", out);
	else
		fprintf(out, "%" JSON_INTEGER_FORMAT, n);
}

static void put_row(FILE *out, const char *head)
{
	fprintf(out, "<tr><th scope=\"row\">%s</th><td>", head);
}

static void put_command(FILE *out, const json_t *result)
{
	const json_t *words = json_object_get(result, "command"), *word;
	size_t i;

	fputs("<code>", out);
	json_array_foreach(words, i, word)
	{
		struct crash_str s = {"", 0};

		if (json_is_string(word))
			s = (struct crash_str){json_string_value(word),
					       json_string_length(word)};
		fputs(i ? " <span class=\"word\">" : "<span class=\"word\">",
		      out);
		put_name(out, s);
		fputs("</span>", out);
	}
	fputs(json_array_size(words) ? "</code>" : "not recorded</code>", out);
}

static void put_head(FILE *out, const json_t *result)
{
	struct crash_str verdict = crash_str(result, "verdict");

	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
	      "charset=\"utf-8\">\n<meta "
	      "http-equiv=\"Content-Security-Policy\" "
	      "content=\"default-src 'none'; style-src 'unsafe-inline'; "
	      "img-src data:\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, "
	      "initial-scale=1\">\n<link rel=\"icon\" "
	      "href=\"data:,\">\n<title>",
	      out);
	put_name(out, verdict);
	fputs(" - fi_rpmem_crashtest</title>\n<style>", out);
	fputs(crash_report_style, out);
	fputs("</style></head>\n<body>\n", out);
}

static const char *verdict_class(struct crash_str verdict)
{
	static const struct crash_str bad = {"convicted", 9},
				      good = {"acquitted", 9};

	if (crash_str_same(&verdict, &bad))
		return "bad";
	return crash_str_same(&verdict, &good) ? "good" : "none";
}

static void put_verdict(FILE *out, const json_t *result)
{
	const json_t *images = json_object_get(result, "images");
	struct crash_str verdict = crash_str(result, "verdict"),
			 reason = crash_str(result, "reason");

	fprintf(out, "<header class=\"%s\"><h1>Power-cut test: <b>",
		verdict_class(verdict));
	if (verdict.len)
		put_name(out, verdict);
	else
		fputs("no verdict", out);
	fputs("</b></h1>\n<p>", out);
	put_count(out, images, "failed");
	fputs(" of ", out);
	put_count(out, images, "checked");
	fputs(" checked images failed the check.</p>\n", out);
	if (reason.len) {
		fputs("<p class=\"reason\">", out);
		put(out, reason);
		fputs("</p>\n", out);
	}
	fputs("</header>\n", out);
}

static void put_run(FILE *out, const json_t *result)
{
	static const char *const rows[][2] = {
		{"made", "Images made"},
		{"distinct", "Distinct images"},
		{"checked", "Images checked"},
		{"failed", "Images that failed"},
		{"exhaustive_cuts", "Cuts of which every image was made"},
		{"sampled_cuts", "Cuts of which some images were made"},
	};
	const json_t *images = json_object_get(result, "images");

	fputs("<main>\n<section><h2>What was run</h2>\n<table "
	      "class=\"facts\"><tbody>\n",
	      out);
	put_row(out, "Command");
	put_command(out, result);
	fputs("</td></tr>\n", out);
	put_row(out, "Recorded");
	put_name(out, crash_str(result, "mode"));
	fprintf(out, ", %zu events</td></tr>\n",
		json_array_size(json_object_get(result, "events")));
	put_row(out, "Seed");
	put_count(out, result, "seed");
	fputs("</td></tr>\n", out);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		put_row(out, rows[i][1]);
		put_count(out, images, rows[i][0]);
		fputs("</td></tr>\n", out);
	}
	fputs("</tbody></table></section>\n", out);
}

/* Describe an event, as in "write of 4096 bytes at 0". */
static void put_what(FILE *out, const struct crash_event *e)
{
	put_name(out, e->name);
	if (crash_has_range(e))
		fprintf(out,
			" of %" JSON_INTEGER_FORMAT
			" bytes at %" JSON_INTEGER_FORMAT,
			e->length, e->offset);
	if (e->text.len) {
		fputs(" \xe2\x80\x9c", out);
		put_name(out, e->text);
		fputs("\xe2\x80\x9d", out);
	}
}

static void put_target(FILE *out, struct crash_str target)
{
	if (target.len)
		put_name(out, target);
	else
		fputs("(no name)", out);
}

/* Print why a lost change was not durable at the cut. */
static void put_why(FILE *out, const struct crash_view *v,
		    const struct crash_event *e)
{
	if (e->durable_at < 0)
		fputs("no flush covers it in the whole run", out);
	else
		fprintf(out,
			"the flush that covers it is event "
			"%" JSON_INTEGER_FORMAT ", %s",
			e->durable_at,
			e->durable_at > v->cut ? "after the cut"
					       : "before the cut: the image "
						 "should have it");
}

static void put_unit(FILE *out, const struct crash_view *v, const json_t *unit)
{
	json_int_t n = crash_int(unit, "event", -1);
	size_t at = crash_event_find(v->events, n);
	struct crash_str kind = crash_str(unit, "unit");

	fputs("<li>", out);
	put_name(out, kind);
	if (crash_int(unit, "length", 0) > 0) {
		fputs(" at ", out);
		put_count(out, unit, "offset");
		fputs(", ", out);
		put_count(out, unit, "length");
		fputs(" bytes,", out);
	}
	fprintf(out, " of event %" JSON_INTEGER_FORMAT, n);
	if (at == CRASH_GAP) {
		fputs(", which the log does not have", out);
	} else {
		struct crash_event e = crash_event(v->events, at);

		fputs(" (", out);
		put_what(out, &e);
		fputs(", <bdi><code>", out);
		put_target(out, e.target);
		fputs("</code></bdi>): ", out);
		put_why(out, v, &e);
	}
	fputs("</li>\n", out);
}

static void put_lost(FILE *out, const struct crash_view *v)
{
	fputs(crash_is_minimal(v->failure)
		      ? "<h4>The smallest set of lost writes that fails</h4>\n"
		      : "<h4>A set of lost writes that fails</h4>\n<p>A "
			"smaller one may fail, too: the limit of checks or "
			"of memory, or a failure of this tool, ended the "
			"search.</p>\n",
	      out);
	if (!v->units) {
		fputs("<p>None: the image has every write before the cut. The "
		      "program is not safe to stop there.</p>\n",
		      out);
		return;
	}
	fputs("<ol class=\"lost\">\n", out);
	for (size_t i = 0; i < v->units && i < CRASH_UNITS; i++)
		put_unit(out, v, json_array_get(v->lost, i));
	fputs("</ol>\n", out);
	if (v->units > CRASH_UNITS)
		fprintf(out, "<p>%zu more are in the JSON file.</p>\n",
			v->units - CRASH_UNITS);
}

static const char *mark_class(const struct crash_column *c)
{
	switch (c->e.kind) {
	case CRASH_FLUSH:
		return "flush";
	case CRASH_ACK:
		return "ack";
	case CRASH_MARK:
		return "mark";
	default:
		return crash_fate_name(c->fate);
	}
}

/* The letter or sign of a mark, which shows its kind without colour, too. */
static const char *mark_sign(const struct crash_column *c)
{
	if (c->e.kind == CRASH_FLUSH)
		return "F";
	if (c->e.kind == CRASH_ACK)
		return "A";
	if (c->e.kind == CRASH_MARK)
		return "i";
	switch (c->fate) {
	case CRASH_LOST:
		return "\xc3\x97";
	case CRASH_TORN:
		return "/";
	case CRASH_KEPT:
		return "+";
	default:
		return "=";
	}
}

static void put_mark(FILE *out, const struct crash_column *c)
{
	for (int label = 0; label < 2; label++) {
		if (label)
			fputs("\" aria-label=\"", out);
		else
			fprintf(out,
				"<span role=\"img\" class=\"m %s\" title=\"",
				mark_class(c));
		fprintf(out, "event %" JSON_INTEGER_FORMAT ": ", c->e.n);
		put_what(out, &c->e);
		if (c->fate != CRASH_NOTE)
			fprintf(out, ", %s", crash_fate_name(c->fate));
	}
	fprintf(out, "\">%s</span>", mark_sign(c));
}

/* Print the empty cells of a lane, for the n columns after the first one. */
static void put_run_of(FILE *out, enum crash_state state, size_t n)
{
	static const char *const names[] = {"clean", "pending", "open",
					    "exposed"};

	if (n == 1)
		fprintf(out, "<td class=\"%s\"></td>", names[state]);
	else if (n)
		fprintf(out, "<td class=\"%s\" colspan=\"%zu\"></td>",
			names[state], n);
}

static void put_lane(FILE *out, const struct crash_view *v, size_t lane)
{
	enum crash_state state = CRASH_CLEAN, s;
	size_t run = 0;

	for (size_t c = 0; c < v->columns; c++) {
		bool mine = v->column[c].i != CRASH_GAP &&
			    v->column[c].lane == lane;

		s = crash_state(v, lane, c);
		if (mine || s != state) {
			put_run_of(out, state, run);
			run = 0;
		}
		state = s;
		if (!mine) {
			run++;
			continue;
		}
		fprintf(out, "<td class=\"%s\">",
			(const char *const[]){"clean", "pending", "open",
					      "exposed"}[s]);
		put_mark(out, &v->column[c]);
		fputs("</td>", out);
	}
	put_run_of(out, state, run);
	fputs("</tr>\n", out);
}

static void put_lane_head(FILE *out, const struct crash_view *v, size_t lane)
{
	fputs("<tr><th scope=\"row\"><bdi title=\"", out);
	if (v->other && lane == v->lanes - 1) {
		fputs("\">all other files", out);
	} else {
		put_target(out, v->lane[lane]);
		fputs("\">", out);
		put_target(out, v->lane[lane]);
	}
	fputs("</bdi></th>", out);
}

/* Whether events belong to no file: acknowledgements and marks get a lane. */
static bool has_notes(const struct crash_view *v)
{
	for (size_t c = 0; c < v->columns; c++)
		if (v->column[c].i != CRASH_GAP &&
		    v->column[c].lane == v->lanes)
			return true;
	return false;
}

static void put_numbers(FILE *out, const struct crash_view *v)
{
	fputs("<thead><tr><th scope=\"col\">event</th>", out);
	for (size_t c = 0; c < v->columns; c++)
		if (v->column[c].i == CRASH_GAP)
			fputs("<th scope=\"col\" class=\"gap\" "
			      "title=\"events left out\">\xe2\x80\xa6</th>",
			      out);
		else
			fprintf(out,
				"<th scope=\"col\">%" JSON_INTEGER_FORMAT
				"</th>",
				v->column[c].e.n);
	fputs("</tr></thead>\n<tbody>\n", out);
}

static void put_caption(FILE *out, const struct crash_view *v)
{
	size_t drawn = 0;

	for (size_t c = 0; c < v->columns; c++)
		drawn += v->column[c].i != CRASH_GAP;
	fprintf(out, "<p>Drawn from %s to the cut. Events drawn: %zu.",
		v->flushed ? "the last good flush" : "the start", drawn);
	if (v->before)
		fprintf(out, " Earlier events left out: %zu.", v->before);
	if (v->inside)
		fprintf(out, " Events left out at \xe2\x80\xa6: %zu.",
			v->inside);
	fputs("</p>\n", out);
}

static void put_timeline(FILE *out, const struct crash_view *v, size_t nth)
{
	fputs("<h4>Timeline</h4>\n", out);
	put_caption(out, v);
	fprintf(out,
		"<label><input type=\"checkbox\" class=\"narrow\"> narrow "
		"columns</label>\n<div class=\"scroll\" tabindex=\"0\" "
		"role=\"region\" aria-label=\"Timeline of failure %zu\">\n"
		"<table class=\"lanes\">",
		nth);
	put_numbers(out, v);
	for (size_t lane = 0; lane < v->lanes; lane++) {
		put_lane_head(out, v, lane);
		put_lane(out, v, lane);
	}
	if (has_notes(v)) {
		fputs("<tr><th scope=\"row\">acknowledged</th>", out);
		put_lane(out, v, v->lanes);
	}
	fputs("</tbody></table></div>\n", out);
}

static void put_number(FILE *out, json_int_t n)
{
	if (n < 0)
		fputs("<td></td>", out);
	else
		fprintf(out, "<td>%" JSON_INTEGER_FORMAT "</td>", n);
}

static void put_event_row(FILE *out, const struct crash_column *c)
{
	if (c->i == CRASH_GAP) {
		fputs("<tr class=\"gap\"><td colspan=\"9\">\xe2\x80\xa6 events "
		      "left out</td></tr>\n",
		      out);
		return;
	}
	fprintf(out, "<tr class=\"%s\">", mark_class(c));
	put_number(out, c->e.n);
	put_number(out, c->e.t_us);
	put_number(out, c->e.pid);
	fputs("<td>", out);
	put_name(out, c->e.name);
	fputs("</td><td><bdi>", out);
	put_name(out, c->e.target);
	fputs("</bdi></td>", out);
	put_number(out, crash_has_range(&c->e) ? c->e.offset : -1);
	put_number(out, crash_has_range(&c->e) ? c->e.length : -1);
	fputs("<td><bdi>", out);
	put_name(out, c->e.text);
	fprintf(out, "</bdi></td><td>%s</td></tr>\n", crash_fate_name(c->fate));
}

static void put_events(FILE *out, const struct crash_view *v)
{
	fputs("<details><summary>The events of this timeline as a "
	      "table</summary>\n<label><input type=\"checkbox\" "
	      "class=\"few\"> only lost changes, flushes and "
	      "acknowledgements</label>\n<div class=\"scroll\" "
	      "tabindex=\"0\"><table class=\"events\"><thead><tr>"
	      "<th scope=\"col\">event</th><th scope=\"col\">\xc2\xb5s</th>"
	      "<th scope=\"col\">process</th><th scope=\"col\">what</th>"
	      "<th scope=\"col\">file</th><th scope=\"col\">offset</th>"
	      "<th scope=\"col\">bytes</th><th scope=\"col\">text</th>"
	      "<th scope=\"col\">in the image</th></tr></thead><tbody>\n",
	      out);
	for (size_t c = 0; c < v->columns; c++)
		put_event_row(out, &v->column[c]);
	fputs("</tbody></table></div></details>\n", out);
}

static void put_output(FILE *out, const json_t *failure)
{
	struct crash_str text = crash_str(failure, "output"),
			 repeat = crash_str(failure, "repeat");

	fputs("<h4>What the check printed</h4>\n", out);
	if (text.len) {
		fputs("<pre class=\"output\" tabindex=\"0\">", out);
		put(out, text);
		fputs("</pre>\n", out);
	} else {
		fputs("<p>Nothing.</p>\n", out);
	}
	fputs("<h4>The same image again</h4>\n", out);
	if (repeat.len) {
		fputs("<pre class=\"repeat\" tabindex=\"0\">", out);
		put(out, repeat);
		fputs("</pre>\n", out);
	} else {
		fputs("<p>No command was recorded.</p>\n", out);
	}
}

static void put_summary(FILE *out, const struct crash_view *v)
{
	struct crash_str last = crash_str(v->failure, "last_acknowledged");
	json_int_t acks = crash_int(v->failure, "acknowledged", 0),
		   kept = crash_int(v->failure, "kept", -1);

	fputs("<p>The check exited with status ", out);
	put_count(out, v->failure, "status");
	fprintf(out, ". The image lost <strong>%zu</strong> %s", v->units,
		v->units == 1 ? "unit" : "units");
	if (kept >= 0)
		fprintf(out,
			" and kept %" JSON_INTEGER_FORMAT
			" others that no flush covered",
			kept);
	fprintf(out,
		". Before the cut, %" JSON_INTEGER_FORMAT
		" lines had been acknowledged",
		acks);
	if (last.len) {
		fputs(", the last of them <q>", out);
		put_name(out, last);
		fputs("</q>", out);
	}
	fputs(".</p>\n", out);
	if (json_is_false(json_object_get(v->failure, "stable")))
		fputs("<p>Not confirmed: a repeat of the check passed, or "
		      "none could be run.</p>\n",
		      out);
	if (v->acks_after)
		fprintf(out,
			"<p>%zu of the acknowledgements came after the first "
			"lost write.</p>\n",
			v->acks_after);
}

static int put_failure(FILE *out, const json_t *result, const json_t *failure,
		       size_t nth)
{
	struct crash_view v;
	int ret = crash_view_make(result, failure, &v);

	if (ret)
		return ret;
	fprintf(out,
		"<article class=\"failure\" id=\"failure-%zu\" "
		"aria-labelledby=\"head-%zu\"><h3 id=\"head-%zu\">Failure %zu: "
		"power cut after event ",
		nth, nth, nth, nth);
	put_count(out, failure, "cut");
	fputs("</h3>\n", out);
	put_summary(out, &v);
	put_timeline(out, &v, nth);
	put_lost(out, &v);
	put_output(out, failure);
	put_events(out, &v);
	fputs("</article>\n", out);
	crash_view_free(&v);
	return 0;
}

static void put_legend(FILE *out)
{
	fputs("<p class=\"legend\"><span><i class=\"m lost\">\xc3\x97</i> "
	      "lost, "
	      "of the smallest set</span> <span><i class=\"m torn\">/</i> "
	      "torn: "
	      "lost in part</span> <span><i class=\"m kept\">+</i> kept: no "
	      "flush covers it, the image has it</span> <span><i class=\"m "
	      "durable\">=</i> durable</span> <span><i class=\"m flush\">F</i> "
	      "flush</span> <span><i class=\"m ack\">A</i> "
	      "acknowledgement</span> <span><i class=\"band exposed\"></i> has "
	      "lost writes</span> <span><i class=\"band open\"></i> has writes "
	      "that no flush covers</span> <span><i class=\"band "
	      "pending\"></i> waits for its flush</span> <span><i "
	      "class=\"band cut\"></i> power cut</span></p>\n",
	      out);
}

static void put_further(FILE *out, const json_t *failures)
{
	size_t n = json_array_size(failures);

	if (n <= CRASH_FAILURES)
		return;
	fprintf(out,
		"<details class=\"further\"><summary>%zu more failures, "
		"without "
		"a timeline</summary><ul>\n",
		n - CRASH_FAILURES);
	for (size_t i = CRASH_FAILURES; i < n; i++) {
		const json_t *f = json_array_get(failures, i);

		fputs("<li>cut after event ", out);
		put_count(out, f, "cut");
		fputs(": <code>", out);
		put_name(out, crash_str(f, "repeat"));
		fputs("</code></li>\n", out);
	}
	fputs("</ul></details>\n", out);
}

int crash_report_html(const json_t *result, FILE *out)
{
	const json_t *failures = json_object_get(result, "failures");
	size_t n = json_array_size(failures);
	int ret;

	if (!json_is_object(result))
		return -EINVAL;
	put_head(out, result);
	put_verdict(out, result);
	put_run(out, result);
	fprintf(out, "<section><h2>Failures: %zu</h2>\n", n);
	if (n && crash_failed(result) > (json_int_t)n)
		fprintf(out,
			"<p>%" JSON_INTEGER_FORMAT
			" images failed. Those that lost the fewest writes "
			"are drawn.</p>\n",
			crash_failed(result));
	if (n)
		put_legend(out);
	for (size_t i = 0; i < n && i < CRASH_FAILURES; i++) {
		ret = put_failure(out, result, json_array_get(failures, i),
				  i + 1);
		if (ret)
			return ret;
	}
	put_further(out, failures);
	fputs("</section>\n</main></body></html>\n", out);
	errno = 0;
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
