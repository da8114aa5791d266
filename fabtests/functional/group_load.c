// SPDX-License-Identifier: BSD-2-Clause
/*
 * A writer of a group of pools that keeps a ledger, for group_net.py:
 *
 *   group_load PLACE LEDGER take|share SEED SECONDS [look]
 *
 * A cell has 64 bytes, one at each 4 KiB, and holds one number eight times. The
 * first cell counts the writers so far. A new writer increments this count, and
 * all of its numbers begin with the new count. SECONDS is the timeout of the
 * operations, and the file "secret" has the secret. With "look" nothing is
 * written. The end of the input ends the program.
 *
 * Lines of the ledger: refused RESULT TEXT; open; see CELL NUMBER NUMBER (the
 * least and the greatest one there); life NUMBER; put CELL NUMBER, before the
 * write; ack, when all puts so far are durable; late RESULT TEXT; current N;
 * wrong TEXT; end RESULT TEXT.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_pool.h>

#include "util/clock.h"

#define STRIDE	 4096u
#define WORDS	 8u
#define BATCH	 16u
#define PIECE	 (64u * STRIDE)
#define PAUSE_MS 20000u /* longest pause between attempts to open */

static FILE *ledger;
static struct rpmem_pool *pool;
static uint64_t *has; /* by cell: the number last written or read */
static unsigned int cells, members;
static uint64_t seed, life, next;

static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(ledger, format, args);
	va_end(args);
	fflush(ledger);
}

static _Noreturn void end_program(int ret, const char *why)
{
	say("end %d %s\n", ret, why);
	exit(ret ? 1 : 0);
}

static unsigned int random_below(unsigned int n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned int)((seed >> 20) % n);
}

/* Has the input ended? Waits for that up to ms milliseconds. */
static bool is_over(int ms)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};

	return poll(&in, 1, ms) > 0;
}

/*
 * Must the call be repeated, because it has timed out? Another error ends the
 * program.
 */
static bool again(int ret)
{
	if (!ret)
		return false;
	if (ret != -ETIMEDOUT)
		end_program(ret, rpmem_pool_error());
	say("late %d %s\n", ret, rpmem_pool_error());
	if (is_over(0))
		end_program(0, "while calls were late");
	return true;
}

static void read_at(void *to, size_t len, uint64_t offset)
{
	while (again(rpmem_pool_read(pool, to, len, offset)))
		;
}

static void see_all(void)
{
	static uint64_t piece[PIECE / 8];

	for (unsigned int c = 0; c < cells; c++) {
		const uint64_t *at = piece + c * (uint64_t)STRIDE % PIECE / 8;
		uint64_t least = UINT64_MAX, most = 0;
		uint64_t left = (cells - c) * (uint64_t)STRIDE;

		if (at == piece)
			read_at(piece, left < PIECE ? left : PIECE,
				c * (uint64_t)STRIDE);
		for (unsigned int w = 0; w < WORDS; w++) {
			least = at[w] < least ? at[w] : least;
			most = at[w] > most ? at[w] : most;
		}
		if (most)
			fprintf(ledger, "see %u %" PRIu64 " %" PRIu64 "\n", c,
				least, most);
		/* Different numbers: a torn write without commit. */
		has[c] = least == most ? most : 0;
	}
	say("seen\n");
}

static void put(struct rpmem_pool_op *op, uint64_t *words, unsigned int cell,
		uint64_t number)
{
	for (unsigned int w = 0; w < WORDS; w++)
		words[w] = number;
	has[cell] = number;
	fprintf(ledger, "put %u %" PRIu64 "\n", cell, number);
	*op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.buf = words,
		.len = WORDS * sizeof(*words),
		.offset = (uint64_t)cell * STRIDE,
		.flags = random_below(8) ? 0 : RPMEM_POOL_DURABLE,
	};
}

/* Post up to BATCH writes at once, repeat those that time out, and commit. */
static void batch(void)
{
	static uint64_t words[BATCH][WORDS];
	struct rpmem_pool_op ops[BATCH], *done[BATCH];
	const unsigned int n = 1 + random_below(BATCH);
	const unsigned int first = 1 + random_below(cells - BATCH - 1);
	unsigned int out = 0;

	/* Step 37 makes the cells of a batch differ and lie far apart. */
	for (unsigned int i = 0; i < n; i++)
		put(&ops[i], words[i], 1 + (first + i * 37) % (cells - 1),
		    life << 32 | next++);
	fflush(ledger);
	for (unsigned int i = 0; i < n; i++, out++)
		if (rpmem_pool_submit(pool, &ops[i]))
			end_program(-EIO, "submit");
	while (out) {
		int got = rpmem_pool_poll(pool, done, BATCH, -1);

		for (int i = 0; i < got; i++) {
			out--;
			while (done[i]->result &&
			       again(rpmem_pool_write(pool, done[i]->buf,
						      done[i]->len,
						      done[i]->offset, 0)))
				;
		}
	}
	while (again(rpmem_pool_commit(pool)))
		;
	say("ack\n");
}

/* Read one cell, and compare it with what this writer last wrote or read. */
static void check_random_cell(void)
{
	const unsigned int cell = 1 + random_below(cells - 1);
	uint64_t words[WORDS];

	if (!has[cell])
		return;
	read_at(words, sizeof(words), (uint64_t)cell * STRIDE);
	for (unsigned int w = 0; w < WORDS; w++)
		if (words[w] != has[cell]) {
			say("wrong cell %u has %" PRIu64 " in place of %" PRIu64
			    "\n",
			    cell, words[w], has[cell]);
			return;
		}
}

static void tell_current(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};

	if (rpmem_pool_query(pool, &info) || info.current == members)
		return;
	members = info.current;
	say("current %u\n", members);
}

static void announce_writer(void)
{
	static uint64_t words[WORDS];
	struct rpmem_pool_op op;

	life = (has[0] >> 32) + 1;
	put(&op, words, 0, life << 32);
	while (again(rpmem_pool_write(pool, words, sizeof(words), 0, 0)) ||
	       again(rpmem_pool_commit(pool)))
		;
	say("ack\nlife %" PRIu64 "\n", life);
	while (!is_over(0)) {
		batch();
		for (unsigned int i = 0; i < 4; i++)
			check_random_cell();
		tell_current();
	}
}

/*
 * Open the group. After a refusal pause at random, because another writer may
 * be opening it at the same time.
 */
static void open_group(const char *place, const struct rpmem_pool_attr *attr)
{
	for (unsigned int lost = 1;; lost++) {
		const uint64_t start = rp_now_ms();
		const int ret = rpmem_pool_open(&pool, place, attr);

		if (!ret)
			return;
		say("refused %d %s\n", ret, rpmem_pool_error());
		if (is_over(rp_backoff_ms(rp_now_ms() - start, lost, PAUSE_MS)))
			end_program(0, "not open");
	}
}

int main(int argc, char **argv)
{
	struct rpmem_pool_attr attr = {.size = sizeof(attr)};
	struct rpmem_pool_info info = {.size = sizeof(info)};

	if (argc < 6)
		return 2;
	ledger = fopen(argv[2], "w");
	attr.required = RPMEM_POOL_NONE;
	attr.secret_file = "secret";
	attr.exclusive = !strcmp(argv[3], "take") ? RPMEM_POOL_TAKE : 0;
	seed = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15u | 1;
	attr.timeout = (unsigned int)strtoul(argv[5], NULL, 10);
	if (!ledger)
		return 2;
	open_group(argv[1], &attr);
	if (rpmem_pool_query(pool, &info))
		end_program(-EIO, rpmem_pool_error());
	cells = (unsigned int)(info.length / STRIDE);
	has = calloc(cells, sizeof(*has));
	if (!has)
		return 2;
	say("open\n");
	see_all();
	if (argc > 6)
		while (!is_over(20))
			tell_current();
	else
		announce_writer();
	rpmem_pool_close(pool);
	end_program(0, "closed");
	return 0;
}
