// SPDX-License-Identifier: BSD-2-Clause
/* Judge of fi_rpmem_plugpull: what the pool may have, and what it has. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/plugpull.h"

/*
 * A span: bytes that the same records cover. A byte may have the value of any
 * of them, unless an acknowledged record certainly came later: it began after
 * the acknowledgement of the other, or is a later one of the same thread. If no
 * acknowledged record covers the byte, it may also be zero as before the run.
 */
struct span {
	const struct pull_cfg *cfg;
	struct pull_record **covering; /* the records that cover the span */
	size_t n;
	uint64_t at, len;
	const unsigned char *got;
	const struct pull_record *acked; /* the newest acknowledged, or NULL */
	uint64_t begin;			 /* greatest `begin` of acknowledged */
	uint64_t seq[PULL_THREADS];	 /* 1 + newest acknowledged seq */
	bool *explained;		 /* per byte: its value is allowed */
	unsigned char *bytes;
};

static int by_offset(const void *a, const void *b)
{
	const struct pull_record *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool is_allowed(const struct span *s, const struct pull_record *r)
{
	return !(r->end < s->begin) && !(r->seq + 1 < s->seq[r->thread]);
}

static void find_newest(struct span *s)
{
	s->acked = NULL;
	s->begin = 0;
	memset(s->seq, 0, sizeof(s->seq));
	for (size_t i = 0; i < s->n; i++) {
		const struct pull_record *r = s->covering[i];

		if (!r->acked)
			continue;
		if (r->begin >= s->begin) {
			s->begin = r->begin;
			s->acked = r;
		}
		if (r->seq + 1 > s->seq[r->thread])
			s->seq[r->thread] = r->seq + 1;
	}
}

/* Mark the bytes of the span that equal those of r; returns their number. */
static uint64_t compare(struct span *s, const struct pull_record *r,
			bool *marks)
{
	uint64_t same = 0;

	pull_fill(s->cfg->seed, r, s->at - r->offset, s->bytes, s->len);
	for (uint64_t i = 0; i < s->len; i++) {
		if (s->bytes[i] != s->got[s->at + i])
			continue;
		marks[i] = true;
		same++;
	}
	return same;
}

/* Describe what the pool has instead of an acknowledged record. */
static void describe(struct span *s, uint64_t first, FILE *out)
{
	const struct pull_record *is = NULL;
	struct span one = *s;
	bool mark[PULL_LONGEST];

	one.at += first;
	one.len -= first;
	for (size_t i = 0; i < s->n && !is; i++) {
		memset(mark, 0, one.len);
		compare(&one, s->covering[i], mark);
		if (mark[0])
			is = s->covering[i];
	}
	fprintf(out, "  offset %" PRIu64 ": ", one.at);
	if (s->acked)
		fprintf(out, "record %" PRIu64 " is lost there; ",
			s->acked->seq);
	if (is)
		fprintf(out, "the byte is that of record %" PRIu64 "\n",
			is->seq);
	else
		fprintf(out, "the byte 0x%02x is %s\n", s->got[one.at],
			s->got[one.at] ? "of no record"
				       : "the zero from before");
}

static void judge_span(struct span *s, FILE *out, uint64_t *named,
		       uint64_t *count)
{
	uint64_t wrong = 0, first = 0, same;

	find_newest(s);
	for (uint64_t i = 0; i < s->len; i++)
		s->explained[i] = !s->acked && !s->got[s->at + i];
	for (size_t i = 0; i < s->n; i++) {
		struct pull_record *r = s->covering[i];

		if (!is_allowed(s, r))
			continue;
		same = compare(s, r, s->explained);
		r->may += s->len;
		r->is += same;
	}
	for (uint64_t i = s->len; i--;)
		if (!s->explained[i]) {
			wrong++;
			first = i;
		}
	if (s->acked)
		count[PULL_BYTES] += s->len;
	count[s->acked ? PULL_LOST : PULL_FOREIGN] += wrong;
	if (wrong && (*named)++ < PULL_NAMED)
		describe(s, first, out);
}

/* Split the area at the ends of all records, and judge each span. */
static void judge_spans(struct span *s, const uint64_t *cuts, size_t ncuts,
			struct pull_record *v, size_t n, FILE *out,
			uint64_t *count)
{
	uint64_t named = 0, from, to;
	size_t low = 0;

	for (size_t c = 0; c + 1 < ncuts; c++) {
		from = cuts[c];
		to = cuts[c + 1];
		while (low < n && v[low].offset + PULL_LONGEST <= from)
			low++;
		s->n = 0;
		for (size_t i = low; i < n && v[i].offset <= from; i++)
			if (v[i].offset + v[i].len > from)
				s->covering[s->n++] = &v[i];
		/* Split further: a span without records can be long. */
		for (s->at = from; s->at < to; s->at += s->len) {
			s->len = to - s->at < PULL_LONGEST ? to - s->at
							   : PULL_LONGEST;
			judge_span(s, out, &named, count);
		}
	}
	if (named > PULL_NAMED)
		fprintf(out, "  and %" PRIu64 " places more\n",
			named - PULL_NAMED);
}

/*
 * Count a record as old although up to one byte in 32 has its value: by chance,
 * one byte in 256 of two records is equal.
 */
static void count_records(const struct pull_record *v, size_t n,
			  uint64_t *count)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].acked) {
			count[PULL_RECORDS]++;
			continue;
		}
		if (!v[i].may)
			continue;
		count[PULL_OPEN]++;
		if (v[i].is == v[i].may)
			count[PULL_NEW]++;
		else if (v[i].is <= v[i].may / 32)
			count[PULL_OLD]++;
		else
			count[PULL_TORN]++;
	}
}

int pull_judge(const struct pull_cfg *cfg, struct pull_record *v, size_t n,
	       const unsigned char *got, FILE *out, uint64_t *count)
{
	struct span s = {.cfg = cfg, .got = got};
	uint64_t *cuts = calloc(2 * n + 2, sizeof(*cuts));
	int ret = -ENOMEM;

	s.covering = calloc(n + 1, sizeof(struct pull_record *));
	s.explained = calloc(PULL_LONGEST, sizeof(bool));
	s.bytes = malloc(PULL_LONGEST);
	if (cuts && s.covering && s.explained && s.bytes) {
		cuts[1] = cfg->area;
		for (size_t i = 0; i < n; i++) {
			cuts[2 * i + 2] = v[i].offset;
			cuts[2 * i + 3] = v[i].offset + v[i].len;
		}
		qsort(v, n, sizeof(*v), by_offset);
		qsort(cuts, 2 * n + 2, sizeof(*cuts), by_value);
		judge_spans(&s, cuts, 2 * n + 2, v, n, out, count);
		count_records(v, n, count);
		ret = 0;
	}
	free(cuts);
	free(s.covering);
	free(s.explained);
	free(s.bytes);
	return ret;
}
