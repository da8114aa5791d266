/* SPDX-License-Identifier: BSD-2-Clause */
/* The spin budget: how long to poll before sleeping, by a test clock. */
#include <criterion/criterion.h>

#include "core/spin.h"

enum {
	NS = 100
};

static struct rp_spin s;
static uint64_t now = 1000;

/* One event, then none until the caller sleeps. Returns the polling time. */
static uint64_t measure_vain_polling(void)
{
	const uint64_t begun = now;

	for (bool came = true; rp_spin(&s, NS, came, now); came = false)
		now++;
	return now - begun;
}

Test(spin, off)
{
	cr_assert_not(rp_spin(&s, 0, true, now));
	cr_assert_not(rp_spin(&s, 0, false, now));
}

Test(spin, nothing_came)
{
	for (int i = 0; i < 10; i++)
		cr_assert_not(rp_spin(&s, NS, false, now++));
}

Test(spin, ends_in_time)
{
	cr_assert_eq(measure_vain_polling(), NS);
	/* Polling starts again only after an event. */
	cr_assert_not(rp_spin(&s, NS, false, now));
}

Test(spin, goes_on_while_it_pays)
{
	for (int i = 0; i < 1000; i++) {
		cr_assert(rp_spin(&s, NS, true, now));
		now += NS - 1;
		cr_assert(rp_spin(&s, NS, false, now));
	}
}

/* If polling never pays, one try in 256 remains in the end. */
Test(spin, vain_polling_becomes_rare)
{
	int tried = 0;

	for (int i = 0; i < 502; i++)
		tried += measure_vain_polling() > 0;
	cr_assert_eq(tried, 8, "%d", tried); /* it skips 1, 3, ... 255 */
	for (int i = 0; i < 10 * (RP_SPIN_MAX_SKIPPED + 1); i++)
		tried += measure_vain_polling() > 0;
	cr_assert_eq(tried, 18, "%d", tried);
}

Test(spin, useful_polling_restores_the_budget)
{
	while (s.missed < RP_SPIN_MAX_SKIPPED)
		measure_vain_polling();
	while (!rp_spin(&s, NS, true, now))
		now += 10;
	cr_assert(rp_spin(&s, NS, true, ++now));
	cr_assert_eq(measure_vain_polling(), NS);
	cr_assert_eq(s.skip, 1);
}

/* Setting the budget to 0 ends polling at the next event. */
Test(spin, zero_budget_ends_polling)
{
	cr_assert(rp_spin(&s, NS, true, now));
	cr_assert_not(rp_spin(&s, 0, true, now));
	cr_assert_not(rp_spin(&s, 0, false, now));
	/* After switching on again, nothing is counted from the time before. */
	cr_assert(rp_spin(&s, NS, true, now));
}
