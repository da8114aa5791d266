// SPDX-License-Identifier: BSD-2-Clause
/* The example rpc_server: power cuts in each write of its file SUMS. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/types.h>

#include <rpmem_rpc.h>

int rpc_server_main(int argc, char **argv);
static ssize_t model_pread(int fd, void *buf, size_t len, off_t at);
static ssize_t model_pwrite(int fd, const void *buf, size_t len, off_t at);
static int model_fdatasync(int fd);

#define main	  rpc_server_main
#define pread	  model_pread
#define pwrite	  model_pwrite
#define fdatasync model_fdatasync
#include "../../docs/examples/rpc_server.c"

#define BLOCK 512u /* a disk writes a block, or it tears the block */
#define BYTES (2u * RECORDS * BLOCK)

/* Descriptors of SUMS: fdatasync() cuts the power, works, or does nothing. */
enum {
	CUT,
	SYNC,
	IMAGE
};

/* SUMS as programs see it, and as a power cut certainly leaves it. */
static unsigned char cache[BYTES], medium[BYTES];
static struct record before[RECORDS]; /* records before the present call */
static unsigned int cuts;

static ssize_t model_pread(int fd, void *buf, size_t len, off_t at)
{
	(void)fd;
	memcpy(buf, cache + at, len);
	return (ssize_t)len;
}

static ssize_t model_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	(void)fd;
	memcpy(cache + at, buf, len);
	return (ssize_t)len;
}

/* Start a server from the cache: each record is the old or the new one. */
static void check_records(void)
{
	static struct record after[RECORDS];

	memcpy(after, records, sizeof(after));
	memset(records, 0, sizeof(records));
	cr_assert_eq(load_records(IMAGE), 0);
	for (size_t i = 0; i < RECORDS; i++)
		cr_assert(!memcmp(&records[i], &before[i], sizeof(*records)) ||
				  !memcmp(&records[i], &after[i],
					  sizeof(*records)),
			  "record %zu after cut %u", i, cuts);
	memcpy(records, after, sizeof(after));
	cuts++;
}

/* Cut the power when only this block has arrived, whole or its first half. */
static void cut_power(size_t block, size_t len)
{
	static unsigned char written[BYTES];

	memcpy(written, cache, BYTES);
	memcpy(cache, medium, BYTES);
	memcpy(cache + block * BLOCK, written + block * BLOCK, len);
	check_records();
	memcpy(cache, written, BYTES);
}

static int model_fdatasync(int fd)
{
	for (size_t b = 0; fd == CUT && b < BYTES / BLOCK; b++)
		if (memcmp(cache + b * BLOCK, medium + b * BLOCK, BLOCK)) {
			cut_power(b, BLOCK);
			cut_power(b, BLOCK / 2);
		}
	if (fd != IMAGE)
		memcpy(medium, cache, BYTES);
	return 0;
}

/* --- librpmem_rpc, which these tests do not call --- */

int rpmem_rpc_listen(struct rpmem_rpc_server **srv, const char *path,
		     const struct rpmem_rpc_server_attr *attr)
{
	(void)srv, (void)path, (void)attr;
	return -1;
}

uint16_t rpmem_rpc_port(const struct rpmem_rpc_server *srv)
{
	(void)srv;
	return 0;
}

int rpmem_rpc_next(struct rpmem_rpc_server *srv, struct rpmem_rpc_call **call,
		   int timeout_ms)
{
	(void)srv, (void)call, (void)timeout_ms;
	return -1;
}

int rpmem_rpc_reply(struct rpmem_rpc_server *srv, struct rpmem_rpc_call *call,
		    const void *buf, size_t len)
{
	(void)srv, (void)call, (void)buf, (void)len;
	return -1;
}

int rpmem_rpc_server_close(struct rpmem_rpc_server *srv)
{
	(void)srv;
	return -1;
}

const char *rpmem_rpc_error(void)
{
	return "";
}

/* Let a client, 1 or more, add 2. Returns what add() returns. */
static int add_two(int fd, uint64_t client, uint64_t sequence, uint64_t *sum)
{
	const uint64_t two = 2;
	struct rpmem_rpc_call call = {
		.buf = &two, .len = sizeof(two), .sequence = sequence};

	memcpy(call.client, &client, sizeof(client));
	memcpy(before, records, sizeof(before));
	return add(fd, &call, sum);
}

Test(example_rpc_server, power_cut_leaves_the_old_or_the_new_record)
{
	uint64_t sum;

	for (uint64_t sequence = 1; sequence <= 3; sequence++)
		for (uint64_t client = 1; client <= 16; client++) {
			cr_assert_eq(add_two(CUT, client, sequence, &sum), 1);
			cr_assert_eq(sum, 2 * sequence);
		}
	cr_assert_geq(cuts, 2 * 3 * 16);
	/* A repeated call gets its reply again. */
	cr_assert_eq(add_two(CUT, 16, 2, &sum), 1);
	cr_assert_eq(sum, 4);
}

Test(example_rpc_server, record_in_memory_only_is_durable_before_it_is_used)
{
	uint64_t sum;

	cr_assert_eq(add_two(CUT, 1, 1, &sum), 1);
	memset(medium, 0, sizeof(medium)); /* killed in front of fdatasync() */
	cr_assert_eq(load_records(SYNC), 0);
	cr_assert_arr_eq(medium, cache, BYTES);
}

Test(example_rpc_server, client_without_a_record_is_refused)
{
	uint64_t sum;

	for (uint64_t client = 1; client <= RECORDS; client++)
		records[client - 1] = (struct record){
			.turn = 1,
			.client = {(unsigned char)client,
				   (unsigned char)(client >> 8)}};
	cr_assert_eq(add_two(SYNC, RECORDS, 1, &sum), 1);
	cr_assert_eq(sum, 2);
	cr_assert_eq(add_two(SYNC, RECORDS + 1, 1, &sum), 0);
	cr_assert_eq(records[RECORDS - 1].sum, 2);
}
