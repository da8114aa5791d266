// SPDX-License-Identifier: BSD-2-Clause
/*
 * Depth-first search without stored states: every run repeats a path of
 * choices.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_choice.h"

#define GROUP 64u /* possibilities of one recorded choice, at most */

static const char digits[] =
	"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

void choices_all(struct choices *c)
{
	c->mode = CHOICE_ALL;
	c->at = SIZE_MAX; /* no run yet */
	c->len = 0;
}

void choices_random(struct choices *c, uint64_t seed)
{
	c->mode = CHOICE_RANDOM;
	c->rng = seed;
	c->at = 0;
	c->len = 0;
}

void choices_replay(struct choices *c)
{
	c->mode = CHOICE_REPLAY;
	c->at = 0;
}

bool choices_more(struct choices *c)
{
	bool first = c->at == SIZE_MAX;

	if (c->mode != CHOICE_ALL)
		return !c->at;
	c->at = 0;
	if (first)
		return true;
	while (c->len) {
		uint64_t left = c->open[c->len - 1];

		if (left) {
			c->path[c->len - 1] = (uint8_t)__builtin_ctzll(left);
			c->open[c->len - 1] = left & (left - 1);
			return true;
		}
		c->len--;
	}
	return false;
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* The n-th bit that is set in bits. */
static unsigned int nth_set_bit(uint64_t bits, unsigned int n)
{
	while (n--)
		bits &= bits - 1;
	return (unsigned int)__builtin_ctzll(bits);
}

unsigned int choose_of(struct choices *c, uint64_t allowed)
{
	unsigned int n = (unsigned int)__builtin_popcountll(allowed), pick;

	if (c->at == CHOICE_MAX) {
		fprintf(stderr, "a run of more than %d choices\n", CHOICE_MAX);
		abort();
	}
	switch (c->mode) {
	case CHOICE_ALL:
		if (c->at < c->len) {
			pick = c->path[c->at];
			break;
		}
		pick = (unsigned int)__builtin_ctzll(allowed);
		c->path[c->len] = (uint8_t)pick;
		c->open[c->len++] = allowed & (allowed - 1);
		break;
	case CHOICE_RANDOM:
		pick = nth_set_bit(allowed,
				   (unsigned int)(next_random(&c->rng) % n));
		c->path[c->len++] = (uint8_t)pick;
		break;
	case CHOICE_REPLAY:
	default:
		pick = c->at < c->len ? c->path[c->at] : 0;
		/*
		 * A path that the shrinker has shortened may contain choices
		 * that are no longer allowed: take another one, by its number.
		 */
		if (pick > 63 || !(allowed >> pick & 1))
			pick = nth_set_bit(allowed, pick % n);
		break;
	}
	c->at++;
	return pick;
}

unsigned int choose(struct choices *c, unsigned int n)
{
	unsigned int group;

	/* A choice of more than 64 is one of a group of 64, and one in it. */
	if (n > GROUP) {
		group = choose(c, (n - 1) / GROUP + 1) * GROUP;
		return group + choose(c, n - group < GROUP ? n - group : GROUP);
	}
	/* A choice with only one possibility is not recorded in the path. */
	if (n < 2)
		return 0;
	return choose_of(c, n == GROUP ? UINT64_MAX : (1ull << n) - 1);
}

void choices_print(const struct choices *c, char *out, size_t len)
{
	size_t n = c->len < len - 1 ? c->len : len - 1;

	for (size_t i = 0; i < n; i++)
		out[i] = digits[c->path[i] & 63];
	out[n] = 0;
}

int choices_parse(struct choices *c, const char *s)
{
	c->len = 0;
	for (; *s; s++) {
		const char *d = strchr(digits, *s);

		if (!d || c->len == CHOICE_MAX)
			return -EINVAL;
		c->path[c->len++] = (uint8_t)(d - digits);
	}
	choices_replay(c);
	return 0;
}
