// SPDX-License-Identifier: BSD-2-Clause
/* The part of a ring that librpmem_rpc reads. */
#include "config.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

#include "rpc_rig.h"

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
