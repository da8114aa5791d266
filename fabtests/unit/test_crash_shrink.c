// SPDX-License-Identifier: BSD-2-Clause
/*
 * Shrinking of an image that fails: what is left of it fails too, and nothing
 * of it could be left out. The check is a function here, not a program.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <criterion/criterion.h>

#include "util/crashtest/shrink.h"

#define WRITES 24u
#define MANY   600u /* more than the limit of checks can tell apart */
#define WORDS  (MANY / 64 + 1)

static unsigned int count = WRITES;
static struct crash_log l;
static struct crash_history h;
static struct crash_checker checker = {.history = &h, .jobs = 4};

/* Does this image fail? */
static bool (*fails)(const struct crash_image *i);
static unsigned int runs;
static uint32_t meta; /* operations that the image to shrink keeps */
static unsigned int makes, no_memory_at; /* 0: never */

struct crash_job *crash_job_make(const struct crash_history *history,
				 const struct crash_image *i)
{
	const size_t size = crash_words(history) * sizeof(*i->lost);
	struct crash_job *job;

	if (++makes == no_memory_at)
		return NULL;
	job = calloc(1, sizeof(*job));
	cr_assert(job);
	job->image = *i;
	job->image.lost = malloc(size);
	cr_assert(job->image.lost);
	memcpy(job->image.lost, i->lost, size);
	return job;
}

void crash_job_free(struct crash_job *job)
{
	if (!job)
		return;
	free(job->image.lost);
	free(job->output);
	free(job);
}

/* The image is one that a power cut can leave. */
static void assert_legal(const struct crash_image *i)
{
	const size_t size = crash_words(&h) * sizeof(*i->lost);
	uint64_t lost[WORDS];
	struct crash_image again = *i;

	memcpy(lost, i->lost, size);
	again.lost = lost;
	crash_image_settle(&h, &again);
	cr_assert(!memcmp(lost, i->lost, size));
	cr_assert_eq(again.meta, i->meta);
	cr_assert_eq(again.zeros, i->zeros);
}

bool crash_check_start(struct crash_checker *c, struct crash_job *job,
		       bool only_new)
{
	assert_legal(&job->image);
	cr_assert(!only_new);
	runs++;
	job->status = fails(&job->image) ? 9 : 0;
	job->output = strdup("");
	return true;
}

void crash_check_finish(struct crash_checker *c)
{
}

static struct crash_step *step(enum crash_step_kind kind, uint32_t inode)
{
	struct crash_step *e = crash_log_event(&l, kind);

	cr_assert(e);
	e->inode = inode;
	return e;
}

static void put(uint32_t file, uint64_t offset, size_t len)
{
	static const char bytes[MANY * 512];
	const uint64_t data = crash_log_bytes(&l, bytes, len);
	struct crash_step *e = step(CRASH_WRITE, file);

	e->offset = offset;
	e->length = len;
	e->data = data;
}

/*
 * Writes of a sector, which no flush covers, to a file whose first half
 * was there; between them a file is made and acknowledged.
 */
static void setup(void)
{
	uint32_t file, other;

	l.store = 8;
	l.sector = 512;
	crash_log_inode(&l, S_IFDIR | 0755, 0, 0);
	file = crash_log_inode(&l, S_IFREG | 0644, 0, 0);
	step(CRASH_CREATE, file)->name = crash_log_text(&l, "f");
	put(file, 0, count / 2 * 512);
	l.base = l.event_count;
	other = crash_log_inode(&l, S_IFREG | 0644, 0, 0);
	for (unsigned int n = 0; n < count; n++) {
		if (n == count / 2)
			step(CRASH_CREATE, other)->name =
				crash_log_text(&l, "g");
		put(file, n * 512, 512);
	}
	for (unsigned int n = 0; n < 8; n++)
		step(CRASH_ACK, CRASH_NONE);
	cr_assert(!crash_history_make(&h, &l));
	cr_assert_eq(h.piece_count, count);
}

static void setup_many(void)
{
	count = MANY;
	setup();
}

TestSuite(crash_shrink, .init = setup);

/* Shrink the image behind the last event that has lost everything. */
static struct crash_shrunk shrink(void)
{
	uint64_t lost[WORDS] = {0};
	struct crash_image all = {
		.cut = (uint32_t)l.event_count - 1,
		.meta = meta,
		.zeros = UINT32_MAX,
		.lost = lost,
	};
	struct crash_shrunk s;
	struct crash_job *failed;

	for (size_t i = 0; i < count; i++)
		crash_set(lost, i);
	crash_image_settle(&h, &all);
	failed = crash_job_make(&h, &all);
	cr_assert(fails(&failed->image));
	failed->status = 9;
	cr_assert(!crash_shrink(&checker, failed, &s));
	assert_legal(&s.job->image);
	cr_assert(s.job->status && fails(&s.job->image),
		  "what is left does not fail");
	cr_assert_leq(runs, 220);
	return s;
}

static bool two_of_them(const struct crash_image *i)
{
	return crash_bit(i->lost, 5) && crash_bit(i->lost, 19);
}

Test(crash_shrink, only_the_needed_writes_are_lost)
{
	struct crash_shrunk s;

	fails = two_of_them;
	s = shrink();
	cr_assert_eq(*s.job->image.lost, 1u << 5 | 1u << 19, "%lx",
		     (unsigned long)*s.job->image.lost);
	cr_assert(s.stable && !s.limited);
	cr_assert(!s.job->image.zeros);
	/* The cut is behind the last of them, and all metadata is kept. */
	cr_assert_eq(s.job->image.cut, h.pieces[19].event);
	cr_assert_eq(s.job->image.meta, 1u);
	cr_assert(s.lost == 2 && s.kept == 18, "%zu lost, %zu kept", s.lost,
		  s.kept);
}

static bool none_of_them(const struct crash_image *i)
{
	return h.acks[i->cut] >= 3;
}

Test(crash_shrink, a_failure_without_a_loss_loses_nothing)
{
	struct crash_shrunk s;

	fails = none_of_them;
	s = shrink();
	cr_assert(!*s.job->image.lost && !s.lost);
	cr_assert_eq(h.acks[s.job->image.cut], 3u);
}

static bool without_the_name(const struct crash_image *i)
{
	return i->meta < h.meta_made[i->cut] && crash_bit(i->lost, 1);
}

Test(crash_shrink, an_operation_on_metadata_stays_lost_if_that_is_needed)
{
	struct crash_shrunk s;

	fails = without_the_name;
	s = shrink();
	cr_assert_eq(*s.job->image.lost, 1u << 1);
	cr_assert_eq(s.job->image.meta, 0u);
	cr_assert_eq(s.job->image.cut, h.meta[0]);
}

Test(crash_shrink, zeros_go_if_they_are_not_needed)
{
	meta = 1;
	fails = two_of_them;
	cr_assert(!shrink().job->image.zeros);
}

static bool with_zeros(const struct crash_image *i)
{
	return i->zeros;
}

Test(crash_shrink, zeros_stay_if_they_are_needed)
{
	/* Writes behind a lost operation leave no zeros. */
	meta = 1;
	fails = with_zeros;
	cr_assert(shrink().job->image.zeros);
}

static bool fail_in_first_run(const struct crash_image *i)
{
	return runs == 0;
}

Test(crash_shrink, a_failure_that_does_not_repeat_is_named_so)
{
	uint64_t lost = (UINT64_C(1) << WRITES) - 1;
	struct crash_job failed = {
		.image = {.cut = (uint32_t)l.event_count - 1, .lost = &lost},
		.status = 9,
	};
	struct crash_shrunk s;

	fails = fail_in_first_run;
	crash_image_settle(&h, &failed.image);
	cr_assert(!crash_shrink(&checker, &failed, &s));
	cr_assert(!s.stable);
	cr_assert_eq(s.lost, WRITES, "%zu", s.lost);
}

/* A third of the writes is needed: to find that takes too many checks. */
static bool third_of_them(const struct crash_image *i)
{
	for (size_t k = 0; k < MANY; k += 3)
		if (!crash_bit(i->lost, k))
			return false;
	return true;
}

Test(crash_shrink, a_search_that_the_limit_ends_is_named_so, .init = setup_many)
{
	struct crash_shrunk s;

	fails = third_of_them;
	s = shrink();
	cr_assert(s.limited && s.stable);
	cr_assert_gt(s.lost, MANY / 3);
}

/* The first two jobs are made for crash_shrink() itself. */
Test(crash_shrink, a_search_that_lacks_memory_is_named_so)
{
	struct crash_shrunk s;

	fails = two_of_them;
	no_memory_at = 6;
	s = shrink();
	cr_assert(s.limited && s.stable);
	cr_assert_gt(s.lost, 2u);
}

static bool one_of_many(const struct crash_image *i)
{
	return crash_bit(i->lost, MANY - 7);
}

Test(crash_shrink, one_write_of_many_is_found_below_the_limit,
     .init = setup_many)
{
	struct crash_shrunk s;

	fails = one_of_many;
	s = shrink();
	cr_assert(!s.limited);
	cr_assert_eq(s.lost, 1, "%zu", s.lost);
}
