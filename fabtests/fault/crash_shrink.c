// SPDX-License-Identifier: BSD-2-Clause
/*
 * Shortens the path of a failing run: removes choices, and replaces choices by
 * the first possibility.
 */
#include <string.h>

#include "crash_world.h"

static bool still_fails(const struct crash_cell *cell,
			const struct crash_prog *prog, struct choices *c,
			enum crash_result outcome)
{
	struct crash_stats st = {0};
	char why[CRASH_WHY];

	choices_replay(c);
	return crash_run(cell, prog, c, CRASH_SILENT, &st, why) == outcome;
}

void crash_shrink(const struct crash_cell *cell, const struct crash_prog *prog,
		  struct choices *c, enum crash_result outcome)
{
	static struct choices best, trial;
	bool better = true;

	best = *c;
	if (!still_fails(cell, prog, &best, outcome))
		return; /* not reproduced: keep the path */
	while (better) {
		better = false;
		for (size_t n = 16; n; n /= 2)
			for (size_t i = 0; i + n <= best.len;) {
				trial = best;
				memmove(&trial.path[i], &trial.path[i + n],
					best.len - i - n);
				trial.len -= n;
				if (still_fails(cell, prog, &trial, outcome)) {
					best = trial;
					better = true;
				} else {
					i++;
				}
			}
		for (size_t i = 0; i < best.len; i++) {
			if (!best.path[i])
				continue;
			trial = best;
			trial.path[i] = 0;
			if (still_fails(cell, prog, &trial, outcome)) {
				best = trial;
				better = true;
			}
		}
	}
	*c = best;
}
