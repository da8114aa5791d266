// SPDX-License-Identifier: BSD-2-Clause
/* The result as the JSON object that the reports are made of. */
#include "config.h"

#include <string.h>

#include "util/crashtest/result.h"

static const char *const kinds[CRASH_KINDS] = {
	[CRASH_WRITE] = "write",       [CRASH_STORE] = "store",
	[CRASH_TRUNCATE] = "truncate", [CRASH_CREATE] = "create",
	[CRASH_MKDIR] = "mkdir",       [CRASH_LINK] = "link",
	[CRASH_UNLINK] = "unlink",     [CRASH_RENAME] = "rename",
	[CRASH_EXCHANGE] = "exchange", [CRASH_FLUSH] = "flush",
	[CRASH_SYNC] = "sync",	       [CRASH_ACK] = "ack",
};

/* Text of the tested program: any bytes, of which JSON takes UTF-8 only. */
static json_t *to_text(const char *s, size_t len)
{
	char clean[4 * CRASH_OUTPUT + 1];
	size_t at = 0;
	json_t *o = json_stringn(s, len);

	if (o)
		return o;
	if (len > CRASH_OUTPUT)
		len = CRASH_OUTPUT;
	for (size_t i = 0; i < len; i++)
		at += (size_t)snprintf(
			clean + at, sizeof(clean) - at,
			(unsigned char)s[i] < 0x80 && s[i] ? "%c" : "\\x%02x",
			(unsigned char)s[i]);
	return json_stringn(clean, at);
}

static json_t *text_at(const struct crash_log *l, uint64_t at)
{
	if (at == CRASH_NO_DATA)
		return json_string("");
	return to_text(l->bytes + at, strlen(l->bytes + at));
}

static json_t *event_text(const struct crash_log *l, const struct crash_step *e)
{
	if (e->kind == CRASH_ACK)
		return to_text(l->bytes + e->data, e->length);
	if (e->kind == CRASH_FLUSH && e->datasync)
		return json_string("data only");
	return text_at(l, e->name2);
}

/* The number of an event, counted from the first event of COMMAND. */
static json_int_t event_number(const struct crash_history *h, uint32_t event)
{
	return (json_int_t)event - (json_int_t)h->log->base;
}

static json_t *event_json(const struct crash_history *h, uint32_t n)
{
	const struct crash_log *l = h->log;
	const struct crash_step *e = &l->events[n];
	const uint64_t length = e->length > INT64_MAX ? 0 : e->length;
	const uint32_t durable = crash_step_is_data(e) || crash_step_is_meta(e)
					 ? crash_durable_at(h, n)
					 : CRASH_NONE;

	return json_pack(
		"{s:I, s:I, s:i, s:s, s:o, s:I, s:I, s:o, s:o}", "n",
		event_number(h, n), "t_us", (json_int_t)e->t_us, "pid", e->pid,
		"kind", kinds[e->kind], "target", text_at(l, e->target),
		"offset", (json_int_t)e->offset, "length", (json_int_t)length,
		"text", event_text(l, e), "durable_at",
		durable == CRASH_NONE ? json_null()
				      : json_integer(event_number(h, durable)));
}

/* The program's events; the state at the start is not among them. */
static json_t *events_json(const struct crash_history *h)
{
	json_t *list = json_array();

	for (size_t n = h->log->base; n < h->log->event_count; n++)
		json_array_append_new(list, event_json(h, (uint32_t)n));
	return list;
}

static json_t *lost_json(const struct crash_history *h, uint32_t event,
			 const char *unit, uint64_t offset, uint64_t length)
{
	return json_pack("{s:I, s:s, s:I, s:I}", "event",
			 event_number(h, event), "unit", unit, "offset",
			 (json_int_t)offset, "length", (json_int_t)length);
}

static const char *unit_of(const struct crash_piece *p, uint64_t length)
{
	if (p->mask != UINT64_MAX)
		return "word";
	return p->offset % CRASH_PAGE == 0 && length % CRASH_PAGE == 0
		       ? "page"
		       : "sector";
}

/* List the lost pieces; adjacent ones of one write are one element. */
static json_t *pieces_json(const struct crash_history *h,
			   const struct crash_image *i, json_t *list)
{
	for (size_t k = 0; k < h->piece_count; k++) {
		const struct crash_piece *p = &h->pieces[k];
		uint64_t length = p->length;

		if (!crash_bit(i->lost, k))
			continue;
		while (k + 1 < h->piece_count && crash_bit(i->lost, k + 1) &&
		       h->pieces[k + 1].event == p->event &&
		       !p->grown == !h->pieces[k + 1].grown)
			length += h->pieces[++k].length;
		json_array_append_new(list,
				      lost_json(h, p->event,
						p->grown && p->event < i->zeros
							? "zeros"
							: unit_of(p, length),
						p->offset, length));
	}
	return list;
}

static json_t *all_lost_json(const struct crash_history *h,
			     const struct crash_image *i)
{
	json_t *list = pieces_json(h, i, json_array());

	for (uint32_t m = i->meta; m < h->meta_made[i->cut]; m++)
		json_array_append_new(
			list, lost_json(h, h->meta[m], "metadata", 0, 0));
	return list;
}

static json_t *last_ack(const struct crash_history *h, uint32_t cut)
{
	const struct crash_log *l = h->log;

	for (size_t n = cut + 1u; n-- > l->base;)
		if (l->events[n].kind == CRASH_ACK)
			return event_text(l, &l->events[n]);
	return json_string("");
}

static json_t *failures_json(const struct crash_outcome *r)
{
	const struct crash_history *h = r->history;
	const struct crash_job *job;
	json_t *list = json_array();

	if (!r->shrunk)
		return list;
	job = r->shrunk->job;
	json_array_append_new(
		list,
		json_pack("{s:I, s:o, s:I, s:i, s:o, s:i, s:b, s:o, s:o, s:b, "
			  "s:b}",
			  "cut", event_number(h, job->image.cut), "lost",
			  all_lost_json(h, &job->image), "kept",
			  (json_int_t)r->shrunk->kept, "acknowledged",
			  h->acks[job->image.cut], "last_acknowledged",
			  last_ack(h, job->image.cut), "status", job->status,
			  "timed_out", job->timed_out, "output",
			  to_text(job->output ? job->output : "",
				  job->output ? strlen(job->output) : 0),
			  "repeat", to_text(r->repeat, strlen(r->repeat)),
			  "stable", r->shrunk->stable, "minimal",
			  !r->shrunk->limited));
	return list;
}

json_t *crash_result_json(const struct crash_outcome *r)
{
	const struct crash_sample *s = r->sample;
	json_t *command = json_array();

	for (char *const *a = r->command; *a; a++)
		json_array_append_new(command, to_text(*a, strlen(*a)));
	return json_pack(
		"{s:i, s:o, s:s, s:I, s:s, s:o, s:i, "
		"s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:o, s:o}",
		"version", 1, "command", command, "mode", r->mode, "seed",
		(json_int_t)s->seed, "verdict", r->verdict, "reason",
		to_text(r->reason, strlen(r->reason)), "killed", r->killed,
		"images", "made", (json_int_t)s->made, "distinct",
		(json_int_t)s->distinct, "checked", (json_int_t)r->checked,
		"failed", (json_int_t)r->failed, "exhaustive_cuts",
		(json_int_t)s->exhaustive_cuts, "sampled_cuts",
		(json_int_t)s->sampled_cuts, "events", events_json(r->history),
		"failures", failures_json(r));
}
