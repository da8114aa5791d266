// SPDX-License-Identifier: BSD-2-Clause
/*
 * fi_rpmem_group replace makes a former member empty. A power cut at any step
 * leaves no member that counts as knowing the newest commit. The pool of an
 * earlier run keeps its records. No other member has to become current.
 */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "util/exit_codes.h"
#include "util/group_tool.h"
#include "util/progress_bar.h"

#define MEMBERS 4u /* a, b, c: members; d: former member */
#define WORDS	(GROUP_AREA / 8)

static unsigned char areas[MEMBERS][GROUP_AREA];
static struct rpmem_pool pools[MEMBERS + 1]; /* the last one: the group */
static bool group_opens;
static unsigned int queries;	/* number of queries of the open group */
static unsigned int steps_left; /* steps until the power cut */
static uint64_t
	words_that_arrive; /* bit mask: words of the last step that arrive */

static unsigned char *area_of(struct rpmem_pool *pool)
{
	return areas[pool - pools];
}

int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	const bool is_group = where[1];

	if (is_group && !group_opens)
		return -ETIMEDOUT;
	*pool = &pools[is_group ? MEMBERS : (unsigned int)(*where - 'a')];
	return 0;
}

void rpmem_pool_close(struct rpmem_pool *pool)
{
}

/* Member a of the open group at each query; the others are current. */
static const struct rpmem_pool_member member_a[] = {
	{.where = "a", .state = RPMEM_POOL_COPYING, .error = "it was away"},
	{.where = "a", .state = RPMEM_POOL_AWAY},
	{.where = "a", .state = RPMEM_POOL_AWAY, .error = "it is away"},
	{.where = "a", .state = RPMEM_POOL_CURRENT},
};

int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info)
{
	info->length = 2ull * GROUP_AREA;
	if (pool != &pools[MEMBERS])
		return 0;
	info->members = 3;
	info->current = member_a[queries++].state == RPMEM_POOL_CURRENT ? 3 : 2;
	return 0;
}

int rpmem_pool_member(struct rpmem_pool *pool, unsigned int index,
		      struct rpmem_pool_member *member)
{
	*member = (struct rpmem_pool_member){.where = "another",
					     .state = RPMEM_POOL_CURRENT};
	if (!index)
		*member = member_a[queries - 1];
	return 0;
}

const char *rpmem_pool_error(void)
{
	return "a power cut";
}

int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset)
{
	memcpy(buf, area_of(pool) + offset, len);
	return 0;
}

/* Write words durably. In the step of the power cut only some words arrive. */
static int write_torn(struct rpmem_pool *pool, const unsigned char *from,
		      uint64_t offset, uint64_t len, unsigned int flags)
{
	cr_assert(flags & RPMEM_POOL_DURABLE);
	if (!steps_left)
		return -ETIMEDOUT;
	steps_left--;
	for (uint64_t i = 0; i < len; i += 8)
		if (steps_left || i / 8 % 2 == words_that_arrive)
			memcpy(area_of(pool) + offset + i, from + i, 8);
	return steps_left ? 0 : -ETIMEDOUT;
}

int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags)
{
	return write_torn(pool, buf, offset, len, flags);
}

int rpmem_pool_zero(struct rpmem_pool *pool, size_t len, uint64_t offset,
		    unsigned int flags)
{
	static const unsigned char zeros[GROUP_AREA];

	return write_torn(pool, zeros, offset, len, flags);
}

/* Targets in this test have no UUID. */
int rp_setup_parse_target(const char *s, struct rp_setup_target *t, char *err)
{
	return -EINVAL;
}

int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err)
{
	return -EINVAL;
}

int rp_secret_load(const char *path, struct rp_secret *s, char *err)
{
	return -EINVAL;
}

void rp_secret_wipe(struct rp_secret *s)
{
}

void progress_begin(struct progress *p, const char *what, uint64_t total,
		    bool quiet)
{
}

void progress_at(struct progress *p, uint64_t done)
{
}

void progress_end(struct progress *p)
{
}

/* Records of a member; one without an epoch is no founder. */
static void put_member(unsigned int i, uint64_t epoch, uint64_t number)
{
	const struct group_super s = {
		.n = 3,
		.k = 2,
		.id = {1, 2},
		.length = 64,
		.chunk = GROUP_CHUNK,
		.founder = epoch > 0,
	};

	memset(areas[i], 0, GROUP_AREA);
	group_super_encode(&s, areas[i]);
	memcpy(areas[i] + GROUP_PROMISE_AT, &epoch, 8);
	group_slot_encode(&s, epoch, areas[i] + GROUP_SLOT_AT(0));
	memcpy(areas[i] + GROUP_NUMBER_AT(0), &number, 8);
}

/* Let member 3 have the records of a copy of all chunks, and mark chunk 64. */
static void put_copy_record(uint64_t epoch)
{
	const uint64_t copied = group_copied_encode(epoch, 1);

	memcpy(areas[3] + GROUP_COPIED_AT, &copied, 8);
	areas[3][GROUP_BITS_AT + 8] = 1;
}

/* Execute the command with the members a, b and c, in epoch 2. */
static int replace(const char *with, char *err)
{
	struct tool t = {.group = "a,b,c", .err = err};

	for (unsigned int i = 0; i < 3; i++)
		put_member(i, 2, 7 + i);
	cr_assert_eq(tool_parse(&t), 0);
	return group_replace(&t, "c", with);
}

Test(group_replace, a_power_cut_leaves_no_member_that_seems_to_know)
{
	for (unsigned int cut = 1; cut <= 12; cut++) {
		struct group_super s = {0};
		struct group_state is;
		char err[RP_ERR_LEN];
		int ret;

		put_member(3, 1, 10);
		put_copy_record(1);
		steps_left = cut / 2;
		words_that_arrive = cut % 2;
		replace("d", err);
		ret = group_area_decode(areas[3], &s, &is);
		cr_assert(ret || is.epoch || !s.founder,
			  "cut %u: a founder without its epoch counts as one "
			  "that knows all commits",
			  cut);
		cr_assert(ret || is.epoch || !is.copied ||
				  areas[3][GROUP_BITS_AT + 8],
			  "cut %u: a copy skips a chunk that was marked", cut);
		if (steps_left)
			cr_assert_eq(ret, -ENODATA, "it is not empty: %d", ret);
	}
}

Test(group_replace, a_founder_without_its_epoch_is_made_empty)
{
	struct group_super s = {0};
	struct group_state is;
	char err[RP_ERR_LEN];

	put_member(3, 1, 10);
	memset(areas[3] + GROUP_SLOT_AT(0), 0, GROUP_SLOT);
	steps_left = 9;
	replace("d", err);
	cr_assert_eq(group_area_decode(areas[3], &s, &is), -ENODATA);
}

Test(group_replace, an_interrupted_copy_keeps_its_records)
{
	unsigned char was[GROUP_AREA];
	char err[RP_ERR_LEN];

	put_member(3, 0, 0);
	put_copy_record(2);
	memcpy(areas[3] + GROUP_PROMISE_AT, &(uint64_t){2}, 8);
	memcpy(was, areas[3], GROUP_AREA);
	steps_left = 9;
	replace("d", err);
	cr_assert_arr_eq(areas[3], was, GROUP_AREA, "the copy begins again");
}

Test(group_replace, a_pool_with_all_copies_is_not_copied_again)
{
	unsigned char was[GROUP_AREA];
	char err[RP_ERR_LEN];

	put_member(3, 2, 10);
	memcpy(was, areas[3], GROUP_AREA);
	steps_left = 9;
	cr_assert_eq(replace("d", err), RP_EXIT_NETWORK, "%s", err);
	cr_assert_arr_eq(areas[3], was, GROUP_AREA);
	cr_assert_eq(replace("c", err), RP_EXIT_FILE);
	cr_assert(strstr(err, "nothing has to be replaced"), "%s", err);
}

Test(group_replace, a_replacement_waits_for_copies_and_for_no_lost_member)
{
	char err[RP_ERR_LEN];

	group_opens = true;
	put_member(3, 2, 10);
	cr_assert_eq(replace("d", err), 0, "%s", err);
	cr_assert_eq(queries, 3);
}

Test(group_replace, a_repair_waits_for_all_members)
{
	char err[RP_ERR_LEN];
	struct tool t = {.group = "a,b,c", .err = err};
	struct rpmem_pool *pool;

	group_opens = true;
	cr_assert_eq(tool_open_writer(&t, t.group, GROUP_MEMBERS, &pool), 0);
	cr_assert_eq(queries, 4);
}
