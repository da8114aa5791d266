// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes to a pool with the key that a secret gives, without librpmem_pool,
 * which would refuse such writes by itself.
 *
 *   read_only HOST:PORT:POOL SECRET [wait]
 *
 * Prints "may write", or "may only read" if the target refuses every kind of
 * write and the reads between them succeed, or "may do nothing" if it refuses
 * these, too. With wait prints "has the key", and goes on at a line on standard
 * input.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <rdma/fi_ext_rpmem.h>

#include "util/fabric.h"
#include "util/setup_client.h"

enum kind {
	SHORT,
	DURABLE,
	LONG,
	ZERO,
	KINDS
};

static struct rp_fabric f;
static struct rp_setup_export x;
static char bytes[1 << 16], err[RP_ERR_LEN];
static struct fid_mr *mr;
static fi_addr_t peer;

/* Wait for one completion. Returns 0, or -1 after printing the error. */
static int wait_done(void)
{
	struct fi_cq_entry done;
	struct fi_cq_err_entry bad;
	ssize_t n;

	while ((n = fi_cq_read(f.cq, &done, 1)) == -FI_EAGAIN)
		;
	if (n == 1)
		return 0;
	err[0] = 0;
	rp_fabric_cq_error(&f, &bad, err);
	printf("# %s\n", err);
	return -1;
}

static ssize_t post(enum kind kind)
{
	const size_t len = kind == LONG ? sizeof(bytes) : 8;
	struct iovec iov = {bytes, len};
	struct fi_rma_iov range = {x.addr, len, x.key};
	void *desc = rp_fabric_desc(mr);
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = peer,
		.rma_iov = &range,
		.rma_iov_count = 1,
	};
	const struct fi_rpmem_msg zero = {
		.addr = peer,
		.rma_iov = &range,
		.rma_iov_count = 1,
	};

	if (kind == ZERO)
		return fi_rpmem_zero(f.ops, f.ep, &zero, 0);
	return fi_writemsg(f.ep, &msg,
			   FI_COMPLETION |
				   (kind == DURABLE ? FI_COMMIT_COMPLETE : 0));
}

static int run(enum kind kind)
{
	ssize_t ret;

	while ((ret = post(kind)) == -FI_EAGAIN)
		fi_cq_read(f.cq, NULL, 0);
	if (!ret)
		return wait_done();
	printf("# post: %s\n", fi_strerror((int)-ret));
	return -1;
}

static int read_back(void)
{
	ssize_t ret;

	while ((ret = fi_read(f.ep, bytes, 8, rp_fabric_desc(mr), peer, x.addr,
			      x.key, NULL)) == -FI_EAGAIN)
		fi_cq_read(f.cq, NULL, 0);
	return ret ? (int)ret : wait_done();
}

int main(int argc, char **argv)
{
	struct rp_setup_target t = {.port = 0};
	struct rp_secret secret;
	struct rp_fabric_attr attr = {.base = x.base};
	int used, refused = 0, unread = 0;

	if (argc < 3 || rp_secret_load(argv[2], &secret, err))
		goto failed;
	t.secret = &secret;
	used = rp_setup_parse_target(argv[1], &t, err);
	if (used < 0 || rp_setup_fetch_export(&t, argv[1] + used + 1, &x, err))
		goto failed;
	attr.dest = x.fi_name;
	attr.dest_len = x.fi_name_len;
	if (rp_fabric_open(&attr, &f, err) ||
	    rp_fabric_peer(&f, x.fi_name, &peer, err) ||
	    rp_fabric_reg(&f, bytes, sizeof(bytes), FI_READ | FI_WRITE, 0, &mr,
			  err))
		goto failed;
	if (argc > 3) {
		puts("has the key");
		fflush(stdout);
		getchar();
	}
	for (enum kind kind = SHORT; kind < KINDS; kind++) {
		refused += run(kind) != 0;
		unread += read_back() != 0;
	}
	rp_fabric_close(&f);
	if (unread && (unread != KINDS || refused != KINDS))
		puts("may read in part");
	else
		puts(unread		? "may do nothing"
		     : !refused		? "may write"
		     : refused == KINDS ? "may only read"
					: "may write in part");
	return 0;
failed:
	fprintf(stderr, "%s\n", err);
	return 1;
}
