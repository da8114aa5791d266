// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory that peers may write and not read: durable writes must do without a
 * read fence.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "functional/pair.h"

static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

static void run_target(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	static char bytes[6000] = "x";
	struct fi_rma_iov all = {peer->pool_addr, sizeof(bytes),
				 peer->pool_key};
	bool ok;

	side_insert(s, peer);
	pair_barrier(s);
	for (int durable = 0; durable < 2; durable++) {
		POST(s, fi_write(s->ep, bytes, sizeof(bytes), NULL, s->peer,
				 all.addr, all.key, bytes));
		POST(s,
		     commit_post(s->ep, &all, 1, s->peer,
				 durable ? FI_RPMEM_DURABLE : FI_RPMEM_VISIBLE,
				 FI_RPMEM_CLASS_DEFAULT, NULL, &all));
		ok = side_wait(s, &e, &err);
		ok &= side_wait(s, &e, &err);
		tap_ok(ok, "a write and a commit at level %d: %d", durable + 1,
		       err.prov_errno);
	}
	POST(s,
	     fi_read(s->ep, bytes, 8, NULL, s->peer, all.addr, all.key, bytes));
	tap_ok(!side_wait(s, &e, &err), "a read is refused");
	pair_barrier(s);
}

int main(void)
{
	const struct pair_opts to = {.unreadable = true}, from = {0};
	char path[] = "/dev/shm/write_only.XXXXXX";

	if (!pair_on_tmpfs(path))
		return 77;
	pair_run(&to, &from, run_target, run_initiator);
	unlink(path);
	return tap_done();
}
