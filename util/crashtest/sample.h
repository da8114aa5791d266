/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses the images that are checked. */
#ifndef RP_CRASH_SAMPLE_H
#define RP_CRASH_SAMPLE_H

#include "util/crashtest/history.h"

struct crash_sample {
	const struct crash_history *history;
	uint64_t images; /* how many distinct ones to find */
	uint64_t seed;
	/* Takes a legal image, copies image->lost; returns whether it is new */
	bool (*visit)(void *arg, const struct crash_image *image);
	void *arg;
	bool ended; /* visit() sets it: visit no further image */

	uint64_t made, distinct;
	uint32_t exhaustive_cuts, sampled_cuts;
};

/* 0 or -ENOMEM. */
int crash_sample_run(struct crash_sample *s);

/*
 * Visit all images of one cut. Returns how many choices there were, 0 when
 * memory ran out, and UINT64_MAX, without a visit, for too many.
 */
uint64_t crash_sample_all(struct crash_sample *s, uint32_t cut);

/* An image as text, "CUT:META:LOST", LOST as "3-5,9" or "-": malloc'd. */
char *crash_image_text(const struct crash_history *h,
		       const struct crash_image *i);
/* Parse such a text. i->lost has crash_words(h) words. 0 or -EINVAL. */
int crash_image_parse(const struct crash_history *h, const char *text,
		      struct crash_image *i);

#endif
