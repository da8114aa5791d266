// SPDX-License-Identifier: BSD-2-Clause
/* Delta debugging of the set of lost pieces, then of the cut. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/crashtest/shrink.h"

struct shrink {
	struct crash_checker *c;
	struct crash_job *best;
	unsigned int runs;
	bool failed;  /* out of memory: a smaller image was not checked */
	bool limited; /* CRASH_SHRINK_RUNS or c->err prevented another check */
};

/* Whether another check may run. */
static bool may_run(struct shrink *s)
{
	if (s->runs < CRASH_SHRINK_RUNS && !*s->c->err)
		return true;
	s->limited = true;
	return false;
}

/* Run some jobs; take the first one that fails as the best. */
static bool try_jobs(struct shrink *s, struct crash_job **jobs, size_t n)
{
	bool found = false;

	for (size_t i = 0; i < n; i++) {
		if (jobs[i] &&
		    crash_image_settle(s->c->history, &jobs[i]->image) ==
			    CRASH_NO_MEMORY) {
			crash_job_free(jobs[i]);
			jobs[i] = NULL;
		}
		if (!jobs[i]) {
			s->failed = true;
			continue;
		}
		crash_check_start(s->c, jobs[i], false);
		s->runs++;
	}
	crash_check_finish(s->c);
	for (size_t i = 0; i < n; i++) {
		/* A job that could not be started has no output. */
		if (!found && jobs[i] && jobs[i]->output && jobs[i]->status &&
		    !jobs[i]->untested) {
			crash_job_free(s->best);
			s->best = jobs[i];
			found = true;
		} else {
			crash_job_free(jobs[i]);
		}
	}
	return found;
}

static bool try_one(struct shrink *s, struct crash_job *job)
{
	return try_jobs(s, &job, 1);
}

static struct crash_job *copy_best(struct shrink *s)
{
	return crash_job_make(s->c->history, &s->best->image);
}

/* Find a failing image that keeps as many operations on metadata as can be. */
static void shrink_meta(struct shrink *s)
{
	uint32_t low = s->best->image.meta;
	uint32_t high = s->c->history->meta_made[s->best->image.cut];

	while (low < high && may_run(s)) {
		struct crash_job *job = copy_best(s);

		if (job)
			job->image.meta = high;
		if (try_one(s, job))
			return;
		high = low + (high - low) / 2;
		if (high == low)
			return;
	}
}

/* Take the image without `zeros`, if the check fails on it as well. */
static void shrink_zeros(struct shrink *s)
{
	struct crash_job *job;

	if (!s->best->image.zeros)
		return;
	job = copy_best(s);
	if (job)
		job->image.zeros = 0;
	try_one(s, job);
}

static uint32_t *list_lost(const struct shrink *s, size_t *n)
{
	const size_t all = s->c->history->piece_count;
	uint32_t *list = malloc((all + 1) * sizeof(*list));

	*n = 0;
	for (size_t i = 0; list && i < all; i++)
		if (crash_bit(s->best->image.lost, i))
			list[(*n)++] = (uint32_t)i;
	return list;
}

/* Copy the best image, and keep the pieces list[from] to list[to - 1]. */
static struct crash_job *without(struct shrink *s, const uint32_t *list,
				 size_t from, size_t to)
{
	struct crash_job *job = copy_best(s);

	for (; job && from < to; from++)
		crash_clear(job->image.lost, list[from]);
	return job;
}

/* Keep one part after another. Returns whether an image fails all the same. */
static bool try_parts(struct shrink *s, const uint32_t *list, size_t count,
		      size_t parts)
{
	const size_t jobs = s->c->jobs;
	struct crash_job *batch[CRASH_JOBS];

	for (size_t i = 0; i < parts && may_run(s); i += jobs) {
		size_t n = 0;

		for (; n < jobs && i + n < parts; n++)
			batch[n] = without(s, list, (i + n) * count / parts,
					   (i + n + 1) * count / parts);
		if (try_jobs(s, batch, n))
			return true;
	}
	return false;
}

static void shrink_pieces(struct shrink *s)
{
	size_t parts = 1, count = 1;

	while (count && !s->failed && may_run(s)) {
		uint32_t *list = list_lost(s, &count);
		bool less;

		s->failed |= !list;
		if (!list)
			return;
		if (parts > count)
			parts = count;
		less = count && try_parts(s, list, count, parts);
		free(list);
		if (less)
			parts = parts > 2 ? parts - 1 : 1;
		else if (parts >= count)
			return;
		else
			parts = 2 * parts;
	}
}

/* The earliest cut at which the image can lose all that it loses. */
static uint32_t earliest_cut(const struct shrink *s)
{
	const struct crash_history *h = s->c->history;
	const struct crash_image *i = &s->best->image;
	uint32_t cut = (uint32_t)h->log->base;

	for (size_t k = 0; k < h->piece_count; k++)
		if (crash_bit(i->lost, k) && h->pieces[k].event > cut)
			cut = h->pieces[k].event;
	if (i->meta < h->meta_made[i->cut] && h->meta[i->meta] > cut)
		cut = h->meta[i->meta];
	return cut;
}

static void shrink_cut(struct shrink *s)
{
	uint32_t low = earliest_cut(s);

	while (low < s->best->image.cut && may_run(s)) {
		struct crash_job *job = copy_best(s);

		/* crash_image_settle() lowers image.meta for an earlier cut. */
		if (job)
			job->image.cut = low + (job->image.cut - low) / 2;
		if (!try_one(s, job))
			low = low + (s->best->image.cut - low) / 2 + 1;
	}
}

int crash_shrink(struct crash_checker *c, const struct crash_job *failed,
		 struct crash_shrunk *out)
{
	const struct crash_history *h = c->history;
	struct shrink s = {.c = c};
	unsigned int failures = 0, passes = 0;

	s.best = crash_job_make(h, &failed->image);
	if (!s.best)
		return -ENOMEM;
	s.best->status = failed->status;
	s.best->timed_out = failed->timed_out;
	s.best->output = strdup(failed->output ? failed->output : "");
	shrink_zeros(&s);
	shrink_meta(&s);
	shrink_pieces(&s);
	shrink_meta(&s);
	shrink_cut(&s);
	*out = (struct crash_shrunk){
		.limited = s.limited || s.failed,
	};
	/* Another check that cannot run says nothing about the image. */
	for (unsigned int i = 0; i < 2 && !*c->err; i++) {
		if (try_one(&s, copy_best(&s)))
			failures++;
		else if (!*c->err)
			passes++;
	}
	out->stable = failures && !passes;
	out->job = s.best;
	for (size_t k = 0; k < h->piece_count; k++)
		if (crash_undecided(h, s.best->image.cut, k)) {
			if (crash_bit(s.best->image.lost, k))
				out->lost++;
			else
				out->kept++;
		}
	return 0;
}
