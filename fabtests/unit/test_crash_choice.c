// SPDX-License-Identifier: BSD-2-Clause
/* The choices of a crash matrix run: each possibility, at random, or again. */
#include <string.h>

#include <criterion/criterion.h>

#include "fault/crash_choice.h"

#define MOST 200u

static struct choices c;

/* A choice of more than 64 is two in the path, which has 64 digits. */
Test(crash_choice, every_possibility_is_tried_once)
{
	static const unsigned int sizes[] = {1, 2, 64, 65, 128, 129, MOST};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		unsigned int seen[MOST] = {0}, runs = 0, pick;

		for (choices_all(&c); choices_more(&c); runs++) {
			pick = choose(&c, sizes[i]);
			cr_assert_lt(pick, sizes[i]);
			cr_assert_eq(seen[pick]++, 0u, "%u of %u", pick,
				     sizes[i]);
		}
		cr_assert_eq(runs, sizes[i]);
	}
}

Test(crash_choice, choices_multiply)
{
	bool seen[3][70] = {{false}};
	unsigned int runs = 0;

	for (choices_all(&c); choices_more(&c); runs++) {
		const unsigned int a = choose(&c, 3), b = choose(&c, 70);

		cr_assert_not(seen[a][b]);
		seen[a][b] = true;
	}
	cr_assert_eq(runs, 3 * 70u);
}

Test(crash_choice, printed_path_repeats_the_run)
{
	unsigned int most = 0, first[2];
	char text[64];

	for (uint64_t seed = 0; seed < 1000; seed++) {
		choices_random(&c, seed);
		cr_assert(choices_more(&c));
		first[0] = choose(&c, MOST);
		first[1] = choose(&c, 5);
		cr_assert_lt(first[0], MOST);
		most = first[0] > most ? first[0] : most;
		choices_print(&c, text, sizeof(text));
		cr_assert_eq(choices_parse(&c, text), 0);
		cr_assert_eq(choose(&c, MOST), first[0], "%s", text);
		cr_assert_eq(choose(&c, 5), first[1], "%s", text);
	}
	cr_assert_eq(most, MOST - 1);
}

Test(crash_choice, only_the_allowed_are_chosen)
{
	unsigned int runs = 0;

	for (choices_all(&c); choices_more(&c); runs++)
		cr_assert_eq(choose_of(&c, 1ull << 63 | 1ull << 5),
			     runs ? 63u : 5u);
	cr_assert_eq(runs, 2u);
}
