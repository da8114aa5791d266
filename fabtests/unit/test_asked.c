// SPDX-License-Identifier: BSD-2-Clause
/* Who asks to be connected, and what he showed, until he is answered. */
#include <criterion/criterion.h>

#include "rpmem/cm.h"

static struct rp_fabric fab;
static struct fid handle[3];
static const struct rp_mailbox_card one = {.addr = 1, .key = 11},
				    two = {.addr = 2,
					   .key = 22,
					   .fenced = true};

static void init(void)
{
	LIST_INIT(&fab.asked);
}

static void fini(void)
{
	rp_asked_free(&fab);
	cr_assert(LIST_EMPTY(&fab.asked));
}

TestSuite(asked, .init = init, .fini = fini);

Test(asked, each_has_his_own)
{
	cr_assert_null(rp_asked_card(&fab, &handle[0]));
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], &one), 0);
	cr_assert_eq(rp_asked_keep(&fab, &handle[1], &two), 0);
	cr_assert_eq(rp_asked_card(&fab, &handle[0])->key, 11);
	cr_assert_eq(rp_asked_card(&fab, &handle[1])->key, 22);
	cr_assert(rp_asked_card(&fab, &handle[1])->fenced);
	cr_assert_null(rp_asked_card(&fab, &handle[2]));
}

/* Seen once more, as after FI_PEEK, he is who he was. */
Test(asked, answered_once)
{
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], &one), 0);
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], &one), 0);
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], NULL), 0);
	cr_assert_null(rp_asked_card(&fab, &handle[0]));
	cr_assert(LIST_EMPTY(&fab.asked));
}

/* The base gives a handle again: to who shows another card, or none. */
Test(asked, a_handle_is_given_again)
{
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], &one), 0);
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], &two), 0);
	cr_assert_eq(rp_asked_card(&fab, &handle[0])->addr, 2);
	cr_assert_eq(rp_asked_keep(&fab, &handle[1], &one), 0);
	cr_assert_eq(rp_asked_keep(&fab, &handle[0], NULL), 0);
	cr_assert_null(rp_asked_card(&fab, &handle[0]));
	cr_assert_eq(rp_asked_card(&fab, &handle[1])->addr, 1);
}
