// SPDX-License-Identifier: BSD-2-Clause
/* The part of a ring that librpmem_rpc reads. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "rpc_rig.h"
#include "util/bytes.h"

/*
 * Both sides refuse a ring of another release by the number of its format, even
 * if the other superblock is of this one: that is older.
 */
Test(rpmem_rpc_ring, ring_of_another_release_is_refused_by_its_format)
{
	static struct slot s;
	struct rpmem_rpc *client;
	unsigned char *super;

	rig.rnd = seeded_start();
	for (size_t i = 0; i < 2; i++) {
		rig_init(32768);
		cr_assert_eq(rpmem_rpc_connect(&client, "h:p", NULL), 0);
		rig_drop_client(client);
		super = rig.live + i * RPC_SLOT;
		rp_put32(super + 16, 77);
		rp_put64(super + 8,
			 XXH3_64bits(super + 16, RPC_SUPER_BYTES - 16));
		s = (struct slot){.map = rig.live};
		cr_assert_eq(slot_open(rig.srv, &s, rig.length, "rig"),
			     -EPROTONOSUPPORT);
		cr_assert(strstr(rpmem_rpc_error(), "'rig' was written by "
						    "another release"),
			  "%s", rpmem_rpc_error());
		cr_assert(strstr(rpmem_rpc_error(), "77, this release has 2"),
			  "%s", rpmem_rpc_error());
		cr_assert_eq(rpmem_rpc_connect(&client, "h:p", NULL),
			     -EPROTONOSUPPORT);
		cr_assert(strstr(rpmem_rpc_error(), "77, this release has 2"),
			  "%s", rpmem_rpc_error());
		rig_fini();
	}
}

Test(rpmem_rpc_ring, ring_that_no_process_has_had_is_not_read)
{
	const struct rpc_super super = {.ring = 4096, .head_n = 1};
	unsigned char *absent =
		mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rpmem_rpc *client;
	struct rpc_cursor c;
	uint64_t durable;

	rpc_head_find(&super, absent, &c, &durable);
	cr_assert(c.n == 1 && !durable);
	munmap(absent, 4096);
	rig.rnd = seeded_start();
	rig_init(32768);
	cr_assert_eq(rpmem_rpc_connect(&client, "h:p", NULL), 0);
	cr_assert_leq(rig.end_of_accesses, RPC_RING_AT);
	rig_restart(false);
	cr_assert_eq(rig.end_of_accesses, rig.length);
	rig.end_of_accesses = 0;
	rig_drop_client(client);
	cr_assert_eq(rpmem_rpc_connect(&client, "h:p", NULL), 0);
	cr_assert_eq(rig.end_of_accesses, rig.length);
	rig_drop_client(client);
	rig_fini();
}
