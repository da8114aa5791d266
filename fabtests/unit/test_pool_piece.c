// SPDX-License-Identifier: BSD-2-Clause
/* The size of pieces follows the times of a made-up connection. */
#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libpool/piece.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/*
 * A connection that carries one post after the other. The time of a byte
 * depends on the size of its post, and on noise.
 */
static struct piece_choice c;
static double cost_small, cost_large; /* ns by KiB; of 1 MiB: 100 */
static uint64_t noise;		      /* ns by KiB at most, at random */
static double speed_up = 1;	      /* of the time, for each turn */
static uint64_t now, seed = 1, sent;
static struct {
	uint64_t turn;
	uint32_t len;
} queue[256];
static unsigned int head, tail;

static uint64_t random_below(uint64_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

static void complete_oldest(void)
{
	const uint32_t len = queue[tail % 256].len;
	const double by_kib = len <= 256 * KIB ? cost_small
			      : len > MIB      ? cost_large
					       : 100;

	now += (uint64_t)(by_kib * (len / KIB) *
			  pow(speed_up, (double)sent / PIECE_TURN));
	sent += len;
	if (noise)
		now += random_below(noise) * (len / KIB);
	piece_completed(&c, queue[tail++ % 256].turn, now);
}

/* An operation of len bytes, with at most `window` posts outstanding. */
static void transfer(uint64_t len, unsigned int window)
{
	for (uint64_t done = 0; done < len;) {
		uint64_t turn;
		uint32_t n = piece_next(&c, len, &turn);

		n = len - done < n ? (uint32_t)(len - done) : n;
		cr_assert(n > 0);
		while (head - tail >= window)
			complete_oldest();
		queue[head % 256].turn = turn;
		queue[head++ % 256].len = n;
		piece_posted(&c, turn, n, now);
		done += n;
	}
}

static void transfer_many(unsigned int n, uint64_t len, unsigned int window)
{
	while (n--)
		transfer(len, window);
	while (head != tail)
		complete_oldest();
}

static void setup(void)
{
	cost_small = cost_large = 100;
}

TestSuite(pool_piece, .init = setup);

#define IS_OVER (!c.other && c.trial == 2)

Test(pool_piece, equal_times_keep_one_mib)
{
	transfer_many(400, 8 * MIB, 16);
	cr_assert_eq(c.chosen, MIB, "%u", c.chosen);
	cr_assert(IS_OVER, "trial %u", c.trial);
	cr_assert_eq(c.out, 0);
}

Test(pool_piece, faster_small_pieces_are_chosen)
{
	cost_small = 80;
	transfer_many(400, 8 * MIB, 16);
	cr_assert_eq(c.chosen, 256 * KIB, "%u", c.chosen);
	cr_assert(IS_OVER);
}

Test(pool_piece, faster_large_pieces_are_chosen)
{
	cost_large = 80;
	transfer_many(400, 8 * MIB, 16);
	cr_assert_eq(c.chosen, 4 * MIB, "%u", c.chosen);
	cr_assert(IS_OVER);
}

/* A gain of 3 percent, or one inside the noise, changes nothing. */
Test(pool_piece, small_or_unsure_gains_change_nothing)
{
	cost_small = cost_large = 97;
	transfer_many(400, 8 * MIB, 16);
	cr_assert_eq(c.chosen, MIB, "%u", c.chosen);
	memset(&c, 0, sizeof(c));
	cost_small = cost_large = 100;
	noise = 4000;
	transfer_many(1000, 8 * MIB, 16);
	cr_assert_eq(c.chosen, MIB, "%u", c.chosen);
	cr_assert(IS_OVER, "a trial without end");
}

/* A connection that becomes faster all the time is no gain of either size. */
Test(pool_piece, drift_changes_nothing)
{
	cost_small = cost_large = 100;
	speed_up = 0.94;
	transfer_many(400, 8 * MIB, 16);
	cr_assert_eq(c.chosen, MIB, "%u", c.chosen);
	cr_assert(IS_OVER);
}

/* Nobody waits for longer posts in operations of 1 MiB. */
Test(pool_piece, short_operations_are_part_of_no_trial)
{
	uint64_t turn = 7;

	cost_small = 80;
	cr_assert_eq(piece_next(&c, MIB - 1, &turn), MIB);
	cr_assert_eq(turn, 0);
	transfer_many(600, MIB, 16);
	cr_assert_eq(c.chosen, 256 * KIB);
	cr_assert_eq(piece_next(&c, MIB, &turn), 256 * KIB);
	cr_assert_eq(turn, 0);
}

/* One operation at a time: the pauses between them are not the connection's.
 */
Test(pool_piece, pauses_do_not_count)
{
	cost_small = 80;
	for (unsigned int i = 0; i < 400; i++) {
		transfer_many(1, 8 * MIB, 16);
		now += random_below(100000000);
	}
	cr_assert_eq(c.chosen, 256 * KIB, "%u", c.chosen);
	cr_assert(IS_OVER);
}

/* Completions that never come keep turns from ending, not the transfer. */
Test(pool_piece, outstanding_turns_are_bounded)
{
	uint64_t turn = 0;

	for (unsigned int i = 0; i < 4096; i++) {
		const uint32_t n = piece_next(&c, 8 * MIB, &turn);

		cr_assert(n == MIB || n == 256 * KIB);
		piece_posted(&c, turn, n, now);
	}
	cr_assert_lt(turn, PIECE_TURNS);
	cr_assert_eq(c.ended, 0);
}

/* A trial of smaller pieces, each turn with noise of up to a factor of 2. */
static uint32_t run_trial(void)
{
	uint64_t last = 0, turn;
	double factor = 1;

	memset(&c, 0, sizeof(c));
	while (!c.trial) {
		const uint32_t n = piece_next(&c, 8 * MIB, &turn);

		if (turn != last)
			factor = 1 + (double)random_below(1000) / 1000;
		last = turn;
		piece_posted(&c, turn, n, now);
		now += (uint64_t)((n < MIB ? cost_small : 100) * factor *
				  (n / KIB));
		piece_completed(&c, turn, now);
	}
	return c.chosen;
}

/*
 * Smaller pieces whose gain is a hair below 5 percent are chosen by error in at
 * most 0.5 percent of trials: 50 of 10000, and 4 deviations of that.
 */
Test(pool_piece, errors_are_as_rare_as_promised)
{
	unsigned int errors = 0;

	cost_small = 100 / (RP_RATIO_WORTH - 0.0001);
	for (unsigned int i = 0; i < 10000; i++)
		errors += run_trial() != MIB;
	cr_assert_leq(errors, 78, "%u", errors);
	cr_assert_gt(errors, 0, "no noise");
}
