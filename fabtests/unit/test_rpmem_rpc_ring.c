// SPDX-License-Identifier: BSD-2-Clause
/* The part of a ring that librpmem_rpc reads. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "rpc_rig.h"
#include "util/bytes.h"

/*
 * Both sides refuse a ring of another release by the number of its format, even
 * if its other superblock, the older one, has this release's format.
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

/* Flip a byte of a superblock: both sides must return `expected`. */
static void expect_super_damage(uint64_t byte, int expected)
{
	static struct slot s;
	struct rpmem_rpc *next;
	char at[32];

	rig.live[byte] ^= 1;
	s = (struct slot){.map = rig.live};
	cr_assert_eq(slot_open(rig.srv, &s, rig.length, "rig"), expected,
		     "byte %u: %s", (unsigned int)byte, rpmem_rpc_error());
	if (expected) {
		snprintf(at, sizeof(at), "at byte %u ",
			 (unsigned int)(byte / RPC_SLOT * RPC_SLOT));
		cr_assert(strstr(rpmem_rpc_error(), at), "%s",
			  rpmem_rpc_error());
		cr_assert_eq(rpmem_rpc_connect(&next, "h:p", NULL), -EBUSY,
			     "another client may use the damaged ring");
	}
	rig.live[byte] ^= 1;
}

/* The older superblock knows neither this process nor its calls. */
Test(rpmem_rpc_ring, damage_of_the_newest_superblock_is_found)
{
	static const unsigned char id[RPMEM_RPC_ID] = "test";
	const struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	struct rpmem_rpc_op op = {.buf = "x", .len = 1};
	struct rpmem_rpc *c;
	uint64_t at;

	rig.rnd = seeded_start();
	rig_init(32768);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0, "%s",
			     rpmem_rpc_error());
		at = c->super.turn % 2 * RPC_SLOT;
		/* A crash can leave it torn before the first call. */
		expect_super_damage(at + 40, 0);
		cr_assert_eq(rpmem_rpc_submit(c, &op), 0);
		memcpy(rig.live + rig.ops[0]->offset, rig.ops[0]->buf,
		       rig.ops[0]->len);
		for (uint64_t word = 0; word < 64; word += 8)
			expect_super_damage(at + word, -EBADMSG);
		expect_super_damage(RPC_SLOT - at + 40, 0);
		rig_drop_client(c);
	}
	rig_fini();
}

static unsigned char bytes[3200 - RPC_HEADER - 128], reply[96];
static struct rpmem_rpc_op ops[9];

/* Fill the ring, get all replies, and let a call begin to record the head. */
static struct rpmem_rpc *record_head(void)
{
	const struct rpmem_rpc_op call = {.buf = bytes,
					  .len = sizeof(bytes),
					  .reply = reply,
					  .reply_max = sizeof(reply)};
	struct rpmem_rpc_op *done[8];
	struct rpmem_rpc_call *next;
	struct rpmem_rpc *c;

	rig.rnd = seeded_start();
	rig_init(8ul * 3200);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", NULL), 0);
	for (int i = 0; i < 8; i++) {
		ops[i] = call;
		cr_assert_eq(rpmem_rpc_submit(c, &ops[i]), 0, "%s",
			     rpmem_rpc_error());
	}
	for (int n = 0; n < 8;) {
		while ((next = rig_next()))
			cr_assert_eq(rpmem_rpc_reply(rig.srv, next, "x", 1), 0);
		n += rpmem_rpc_poll(c, done, 8, 1);
	}
	ops[8] = call;
	cr_assert_eq(rig.nops, 0);
	cr_assert_eq(rpmem_rpc_submit(c, &ops[8]), -EAGAIN);
	cr_assert(strstr(rpmem_rpc_error(), "head is not durable yet"), "%s",
		  rpmem_rpc_error());
	cr_assert_eq(rig.nops, 1);
	return c;
}

/* The server may be away for long. */
Test(rpmem_rpc_ring, submit_does_not_wait_until_the_head_is_durable)
{
	struct rpmem_rpc *c = record_head();
	struct rpmem_rpc_op *done[8];

	cr_assert_eq(rpmem_rpc_poll(c, done, 8, -1), 0);
	cr_assert_eq(rpmem_rpc_submit(c, &ops[8]), 0, "%s", rpmem_rpc_error());
	rig_drop_client(c);
	rig_fini();
}

/* A cut during both writes could tear both superblocks. */
Test(rpmem_rpc_ring, close_writes_its_superblock_behind_the_outstanding_one)
{
	struct rpmem_rpc *c = record_head();

	rpmem_rpc_close(c, 0);
	cr_assert_eq(rig.nops, 0);
	rig_fini();
}

/* The replies of an earlier process fill the ring behind the recorded head. */
Test(rpmem_rpc_ring, call_waits_until_the_head_is_durable)
{
	static const unsigned char id[RPMEM_RPC_ID] = "test";
	const struct rpmem_rpc_attr attr = {
		.size = sizeof(attr), .id = id, .earlier = 1};
	struct rpmem_rpc_op *done[8];
	uint64_t sequence;
	struct rpmem_rpc *c;
	size_t len = sizeof(reply);

	rig.rnd = seeded_start();
	rig_init(8ul * 3200);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0);
	for (int i = 0; i < 8; i++) {
		ops[i] = (struct rpmem_rpc_op){.buf = bytes,
					       .len = sizeof(bytes),
					       .reply_max = sizeof(reply),
					       .reply = reply};
		cr_assert_eq(rpmem_rpc_submit(c, &ops[i]), 0);
	}
	while (c->durable < c->tail.n)
		rpmem_rpc_poll(c, done, 8, 1);
	rig_drop_client(c);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0, "%s",
		     rpmem_rpc_error());
	rig.serves = true;
	cr_assert_eq(rpmem_rpc_earlier(c, &sequence, reply, &len, -1), 1);
	while (!rpc_sent(c, c->head.n)->answered)
		rpmem_rpc_poll(c, done, 8, 1);
	len = sizeof(reply);
	cr_assert_eq(rpmem_rpc_call(c, bytes, sizeof(bytes), reply, &len), 0,
		     "%s", rpmem_rpc_error());
	/* Nothing that is outstanding could free the space of the next one. */
	cr_assert_eq(rpmem_rpc_call(c, bytes, sizeof(bytes), reply, &len),
		     -EAGAIN);
	cr_assert(strstr(rpmem_rpc_error(), "rpmem_rpc_earlier"), "%s",
		  rpmem_rpc_error());
	rig_drop_client(c);
	rig_fini();
}

static size_t no_memory_for; /* 0: nothing */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory_for && size == no_memory_for ? NULL
						      : __real_calloc(n, size);
}

/* Nothing has failed at the pool: its error text is of an earlier call. */
Test(rpmem_rpc_ring, lack_of_memory_for_the_ring_is_named_so)
{
	struct rpmem_rpc *c;

	rig.rnd = seeded_start();
	rig_init(32768);
	no_memory_for = rig.length;
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", NULL), -ENOMEM);
	cr_assert_str_eq(rpmem_rpc_error(), "out of memory");
	no_memory_for = 0;
	rig_fini();
}

Test(rpmem_rpc_ring, refused_attribute_is_named)
{
	static const unsigned char zero[RPC_ID];
	struct rpmem_rpc_attr attr = {.size = sizeof(attr), .threshold = 101};
	struct rpmem_rpc *c;

	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), -EINVAL);
	cr_assert(strstr(rpmem_rpc_error(), "attr->threshold is 101; give"),
		  "%s", rpmem_rpc_error());
	attr = (struct rpmem_rpc_attr){.size = sizeof(attr), .id = zero};
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), -EINVAL);
	cr_assert(strstr(rpmem_rpc_error(), "attr->id is all zeros; give"),
		  "%s", rpmem_rpc_error());
}

/* The variants follow from the pool's method and FI_OFI_RPMEM_INLINE. */
Test(rpmem_rpc_ring, query_names_the_variants_of_short_and_long_calls)
{
	static const struct {
		const char *method, *inline_max;
		enum rpmem_rpc_variant variant, variant_long;
		uint64_t max;
	} rows[] = {
		{"fence", NULL, RPMEM_RPC_WFLUSH, RPMEM_RPC_WFLUSH, 0},
		{"native", "4096", RPMEM_RPC_WFLUSH, RPMEM_RPC_WFLUSH, 0},
		{"delivery", NULL, RPMEM_RPC_WFLUSH, RPMEM_RPC_WFLUSH, 0},
		{"agent-clwb", NULL, RPMEM_RPC_S_RFLUSH, RPMEM_RPC_W_RFLUSH,
		 4032},
		{"agent-msync", "9999", RPMEM_RPC_S_RFLUSH, RPMEM_RPC_W_RFLUSH,
		 4032},
		{"agent-sfence", "0x100", RPMEM_RPC_S_RFLUSH,
		 RPMEM_RPC_W_RFLUSH, 192},
		{"agent-clwb", "64", RPMEM_RPC_S_RFLUSH, RPMEM_RPC_W_RFLUSH, 0},
		{"agent-clwb", "63", RPMEM_RPC_W_RFLUSH, RPMEM_RPC_W_RFLUSH, 0},
		{"agent-clwb", "0", RPMEM_RPC_W_RFLUSH, RPMEM_RPC_W_RFLUSH, 0},
	};
	const size_t first = offsetof(struct rpmem_rpc_info, variant);

	rig.rnd = seeded_start();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rpmem_rpc_info info = {.size = sizeof(info)};
		struct rpmem_rpc *client;

		if (rows[i].inline_max)
			setenv("FI_OFI_RPMEM_INLINE", rows[i].inline_max, 1);
		else
			unsetenv("FI_OFI_RPMEM_INLINE");
		rig_init(32768);
		rig.method = rows[i].method;
		cr_assert_eq(rpmem_rpc_connect(&client, "h:p", NULL), 0);
		cr_assert_eq(rpmem_rpc_query(client, &info), 0);
		cr_assert_eq(info.variant, rows[i].variant, "row %zu", i);
		cr_assert_eq(info.variant_long, rows[i].variant_long, "row %zu",
			     i);
		cr_assert_eq(info.variant_max, rows[i].max, "row %zu", i);
		/* The struct had no variants at first. */
		memset(&info, 0x5a, sizeof(info));
		info.size = first;
		cr_assert_eq(rpmem_rpc_query(client, &info), 0);
		cr_assert_eq(info.ring, 32768);
		for (size_t b = first; b < sizeof(info); b++)
			cr_assert_eq(((unsigned char *)&info)[b], 0x5a);
		info.size = first - 1;
		cr_assert_eq(rpmem_rpc_query(client, &info), -EINVAL);
		rig_drop_client(client);
		rig_fini();
	}
}

static const unsigned char new_id[RPMEM_RPC_ID] = "new";
static const struct rpmem_rpc_attr new_attr = {
	.size = sizeof(new_attr), .id = new_id, .timeout = 1};

static void start_server_without_clients(void)
{
	rig.rnd = seeded_start();
	rig_init(8192);
}

/* Both processes read the server's page before it has the ring of either. */
Test(rpmem_rpc_ring, second_process_with_the_same_new_id_gives_its_ring_up)
{
	struct rpc_super super;
	struct rpmem_rpc *c;

	start_server_without_clients();
	rig.rival = new_id;
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &new_attr), -EBUSY);
	cr_assert(strstr(rpmem_rpc_error(), "connect again"), "%s",
		  rpmem_rpc_error());
	cr_assert_eq(rpc_super_find(rig.live, rig.length, &super), 0);
	cr_assert_eq(super.kind, RPC_FREE);
	/* The other process has given its ring up, too. */
	rig.rival = NULL;
	rig_set_slot(1, RPC_FREE, new_id);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &new_attr), 0, "%s",
		     rpmem_rpc_error());
	cr_assert_eq(c->super.kind, RPC_NAMED);
	rig_drop_client(c);
	rig_fini();
}

Test(rpmem_rpc_ring, connect_that_ends_early_reserves_no_ring)
{
	struct rpc_super super;
	struct rpmem_rpc *c;

	start_server_without_clients();
	rig.deaf = true;
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &new_attr), -ETIMEDOUT);
	cr_assert(strstr(rpmem_rpc_error(), "does not read the ring"), "%s",
		  rpmem_rpc_error());
	cr_assert_eq(rpc_super_find(rig.live, rig.length, &super), 0);
	cr_assert_eq(super.kind, RPC_RANDOM);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", NULL), 0, "%s",
		     rpmem_rpc_error());
	rig_drop_client(c);
	rig_fini();
}

Test(rpmem_rpc_ring, ring_reserved_for_an_id_is_found_before_a_rest)
{
	struct rpmem_rpc *c;

	start_server_without_clients();
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &new_attr), 0);
	rig_drop_client(c);
	rig_set_slot(0, RPC_RANDOM, new_id);
	rig_set_slot(1, RPC_NAMED, new_id);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &new_attr), 0, "%s",
		     rpmem_rpc_error());
	cr_assert_eq(rig.opened, 1);
	rig_drop_client(c);
	rig_fini();
}

/* Write a call that has no reply, and end its process. */
static void leave_call(const struct rpmem_rpc_attr *attr)
{
	static struct rpmem_rpc_op op;
	struct rpmem_rpc_op *done[1];
	struct rpmem_rpc *c;

	op = (struct rpmem_rpc_op){
		.buf = "x", .len = 1, .reply = reply, .reply_max = 1};
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", attr), 0, "%s",
		     rpmem_rpc_error());
	cr_assert_eq(rpmem_rpc_submit(c, &op), 0);
	while (c->durable < c->tail.n)
		cr_assert_eq(rpmem_rpc_poll(c, done, 1, 0), 0);
	rig_drop_client(c);
}

Test(rpmem_rpc_ring, failed_call_is_returned_behind_one_of_an_earlier_process)
{
	struct rpmem_rpc_attr attr = new_attr;
	struct rpmem_rpc_op op = {.buf = "y", .len = 1}, *done[1];
	struct rpmem_rpc *c;
	uint64_t sequence;
	size_t len = 0;

	start_server_without_clients();
	leave_call(&new_attr);
	attr.earlier = 1;
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0);
	cr_assert_eq(rpmem_rpc_submit(c, &op), 0);
	rig.error = -ETIMEDOUT;
	cr_assert_eq(rpmem_rpc_poll(c, done, 1, 0), 1);
	cr_assert_eq(done[0], &op);
	cr_assert_eq(op.result, -ETIMEDOUT);
	cr_assert_eq(rpmem_rpc_poll(c, done, 1, 0), -ETIMEDOUT);
	/* The earlier call has no reply. */
	cr_assert_eq(rpmem_rpc_earlier(c, &sequence, NULL, &len, -1),
		     -ETIMEDOUT);
	rig_drop_client(c);
	rig_fini();
}

static struct rpmem_rpc *shared;
static uint64_t taken; /* sequence that the other thread has got */

/* The reply to the next call arrives, and the other thread takes the first. */
static void answer_and_take_in_other_thread(void)
{
	unsigned char other[1];
	size_t len = sizeof(other);

	pthread_mutex_lock(&shared->lock);
	rpc_answer(shared, rpc_sent(shared, shared->earlier),
		   (const unsigned char *)"x", 1);
	pthread_mutex_unlock(&shared->lock);
	if (!taken)
		cr_assert_eq(rpmem_rpc_earlier(shared, &taken, other, &len, 0),
			     1);
}

Test(rpmem_rpc_ring, two_threads_get_different_replies_of_an_earlier_process)
{
	struct rpmem_rpc_attr attr = new_attr;
	uint64_t sequence = 0;
	unsigned char got[1];
	size_t len = sizeof(got);

	start_server_without_clients();
	leave_call(&new_attr);
	leave_call(&new_attr);
	attr.earlier = 1;
	cr_assert_eq(rpmem_rpc_connect(&shared, "h:p", &attr), 0);
	shared->peek_at = UINT64_MAX;
	rig.after_poll = answer_and_take_in_other_thread;
	cr_assert_eq(rpmem_rpc_earlier(shared, &sequence, got, &len, -1), 1);
	cr_assert_gt(taken, 0);
	cr_assert_gt(sequence, taken);
	cr_assert_eq(rpmem_rpc_earlier(shared, &sequence, got, &len, -1), 0);
	rig_drop_client(shared);
	rig_fini();
}

Test(rpmem_rpc_ring, client_with_earlier_uses_the_ring_of_an_ended_random_one)
{
	struct rpmem_rpc_attr attr = new_attr;
	struct rpmem_rpc_call *call;
	struct rpmem_rpc *c;
	uint64_t sequence;
	size_t len = 0;

	start_server_without_clients();
	leave_call(NULL);
	attr.earlier = 1;
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), -EBUSY);
	call = rig_next();
	cr_assert_not_null(call);
	cr_assert_eq(rpmem_rpc_reply(rig.srv, call, "x", 1), 0);
	cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0, "%s",
		     rpmem_rpc_error());
	cr_assert_eq(rpmem_rpc_earlier(c, &sequence, NULL, &len, 0), 0);
	rig_drop_client(c);
	rig_fini();
}
