// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes a write durable on another machine:
 *
 *   write_flush rxe0 1 7471 POOL          at the target; POOL: a file or devdax
 *   write_flush rxe0 1 7471 HOST TEXT     writes TEXT to its beginning
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "rc.h"

#define LEN (2u << 20)

static void target(struct rc *c, int fd, const char *path)
{
	int pool = open(path, O_RDWR);
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_SHARED_VALIDATE | MAP_SYNC, pool, 0);

	/*
	 * Without DAX, the page cache holds the bytes until they are flushed.
	 */
	if (p == MAP_FAILED)
		p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, pool,
			 0);
	CHECK(p != MAP_FAILED);
	rc_serve(c, fd, p, LEN);
}

static void initiator(struct rc *c, int fd, char *text)
{
	const size_t len = strlen(text) + 1;
	struct ibv_mr *mr =
		ibv_reg_mr(c->pd, text, len, IBV_ACCESS_LOCAL_WRITE);
	struct rpmem_region region;

	CHECK(mr);
	rc_region(c, fd, &region);
	/* One batch: an unsignaled write and a signaled flush. */
	rpmem_wr_start(c->rqp);
	c->ex->wr_id = 1;
	c->ex->wr_flags = 0;
	ibv_wr_rdma_write(c->ex, region.rkey, region.remote_addr);
	ibv_wr_set_sge(c->ex, mr->lkey, (uintptr_t)text, (uint32_t)len);
	c->rqp->wr_id = 2;
	c->rqp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_flush(c->rqp, region.rkey, region.remote_addr, len,
		       RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
	CHECK(!rpmem_wr_complete(c->rqp));
	rc_wait(c);
	puts("durable");
	ibv_dereg_mr(mr);
}

int main(int argc, char **argv)
{
	const int is_initiator = argc == 6;
	struct rc c;
	int fd;

	if (argc != 5 && argc != 6) {
		fprintf(stderr,
			"usage: %s DEVICE GID-INDEX PORT POOL | "
			"DEVICE GID-INDEX PORT HOST TEXT\n",
			argv[0]);
		return 2;
	}
	fd = rc_connect_peer(is_initiator ? argv[4] : NULL, argv[3]);
	rc_open(&c, argv[1], atoi(argv[2]), is_initiator ? 0 : RC_FLUSHES);
	rc_connect(&c, fd);
	if (is_initiator)
		initiator(&c, fd, argv[5]);
	else
		target(&c, fd, argv[4]);
	rc_close(&c);
	return 0;
}
