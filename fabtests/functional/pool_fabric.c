// SPDX-License-Identifier: BSD-2-Clause
/*
 * rpmem_pool_fabric(): a program posts writes on the endpoint of a pool, to its
 * target, without completions or with context NULL, beside operations of the
 * library.
 *
 * usage: pool_fabric HOST:PORT:POOL
 */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fi_rma.h>

#include "rpmem_pool.h"

#define CHECK(is)                                                              \
	do {                                                                   \
		if (!(is)) {                                                   \
			printf("line %d: %s: %s\n", __LINE__, #is,             \
			       rpmem_pool_error());                            \
			exit(1);                                               \
		}                                                              \
	} while (0)

static struct rpmem_pool *pool;
static struct rpmem_pool_fabric f = {.size = sizeof(f)};

/* Post a write of these bytes, or inject it; the library makes the progress. */
static void post(const char *bytes, uint64_t offset, bool inject)
{
	const struct iovec iov = {
		.iov_base = (void *)(uintptr_t)bytes,
		.iov_len = strlen(bytes),
	};
	const struct fi_rma_iov to = {
		.addr = f.addr + offset,
		.len = iov.iov_len,
		.key = f.key,
	};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = f.peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	struct rpmem_pool_op *none;
	ssize_t ret;

	do {
		ret = inject ? fi_inject_write(f.ep, bytes, to.len, f.peer,
					       to.addr, to.key)
			     : fi_writemsg(f.ep, &msg, 0);
		CHECK(rpmem_pool_poll(pool, &none, 1, 0) == 0);
	} while (ret == -FI_EAGAIN);
	CHECK(!ret);
}

/* Read the pool until it has these bytes: nothing reports the write. */
static void await_bytes(const char *bytes, uint64_t offset)
{
	char got[64];

	do
		CHECK(!rpmem_pool_read(pool, got, strlen(bytes), offset));
	while (memcmp(got, bytes, strlen(bytes)) != 0);
}

int main(int argc, char **argv)
{
	struct rpmem_pool_fabric short_one = {.size = sizeof(f) - 8};
	struct rpmem_pool_op op = {.type = RPMEM_POOL_COMMIT}, *done[2];

	CHECK(argc == 2);
	CHECK(!rpmem_pool_open(&pool, argv[1], NULL));
	CHECK(rpmem_pool_fabric(pool, NULL) == -EINVAL);
	CHECK(rpmem_pool_fabric(pool, &short_one) == -EINVAL);
	CHECK(!rpmem_pool_fabric(pool, &f));
	CHECK(f.info && f.domain && f.ep && f.key);
	/* Bytes of other clients must not be there already. */
	CHECK(!rpmem_pool_zero(pool, 4096, 8192, RPMEM_POOL_DURABLE));
	post("injected on the endpoint", 8192, true);
	CHECK(!rpmem_pool_write(pool, "of the library", 14, 8320, 0));
	CHECK(!rpmem_pool_submit(pool, &op));
	post("posted on the endpoint", 8256, false);
	/* The library returns its own operations only. */
	CHECK(rpmem_pool_poll(pool, done, 2, -1) == 1);
	CHECK(done[0] == &op && !op.result);
	await_bytes("injected on the endpoint", 8192);
	await_bytes("posted on the endpoint", 8256);
	await_bytes("of the library", 8320);
	CHECK(rpmem_pool_poll(pool, done, 2, 0) == 0);
	rpmem_pool_close(pool);
	return 0;
}
