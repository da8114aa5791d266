// SPDX-License-Identifier: BSD-2-Clause
/*
 * Appends records to a log on another machine. The first 8 bytes hold the tail,
 * the offset of the next record; they are written after the record is durable.
 * A power failure loses no record before the tail.
 *
 *   append rxe0 1 7471 LOG                at the target; LOG: devdax
 *   append rxe0 1 7471 HOST TEXT...       appends each TEXT
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "rc.h"

#define LEN (2u << 20)

static void target(struct rc *c, int fd, const char *path)
{
	int log = open(path, O_RDWR);
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_SHARED_VALIDATE | MAP_SYNC, log, 0);

	CHECK(p != MAP_FAILED);
	/* An invalid tail: the file has no log yet, so start an empty one. */
	if (*(uint64_t *)p < sizeof(uint64_t) || *(uint64_t *)p > LEN)
		*(uint64_t *)p = 0;
	rc_serve(c, fd, p, LEN);
}

/* Local buffers: one for the tail that is read, one for a record. */
struct local {
	uint64_t tail;
	char record[4096];
};

static uint64_t read_tail(struct rc *c, const struct rpmem_region *r,
			  struct local *l, uint32_t lkey)
{
	/*
	 * The ibv_wr_*() builders of c->ex work inside a batch of the shim;
	 * rc_wait() polls their completions too.
	 */
	rpmem_wr_start(c->rqp);
	c->ex->wr_id = 1;
	c->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(c->ex, r->rkey, r->remote_addr);
	ibv_wr_set_sge(c->ex, lkey, (uintptr_t)&l->tail, sizeof(l->tail));
	CHECK(!rpmem_wr_complete(c->rqp));
	rc_wait(c);
	return l->tail ? l->tail : sizeof(l->tail);
}

/* Post record, flush, tail, flush as one batch: this saves one round trip. */
static uint64_t append(struct rc *c, const struct rpmem_region *r,
		       const struct local *l, uint32_t lkey, uint64_t tail,
		       size_t len)
{
	const uint64_t next = tail + len;

	rpmem_wr_start(c->rqp);
	c->ex->wr_id = 1;
	c->ex->wr_flags = 0;
	ibv_wr_rdma_write(c->ex, r->rkey, r->remote_addr + tail);
	ibv_wr_set_sge(c->ex, lkey, (uintptr_t)l->record, (uint32_t)len);
	c->rqp->wr_id = 2;
	c->rqp->wr_flags = 0;
	rpmem_wr_flush(c->rqp, r->rkey, r->remote_addr + tail, len,
		       RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
	rpmem_wr_atomic_write(c->rqp, r->rkey, r->remote_addr, &next);
	c->rqp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_flush(c->rqp, r->rkey, r->remote_addr, sizeof(next),
		       RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
	CHECK(!rpmem_wr_complete(c->rqp));
	rc_wait(c);
	return next;
}

static void initiator(struct rc *c, int fd, char **text)
{
	static struct local l;
	struct ibv_mr *mr =
		ibv_reg_mr(c->pd, &l, sizeof(l), IBV_ACCESS_LOCAL_WRITE);
	struct rpmem_region region;
	uint64_t tail;

	CHECK(mr);
	rc_region(c, fd, &region);
	tail = read_tail(c, &region, &l, mr->lkey);
	for (; *text; text++) {
		size_t len = strlen(*text);

		if (len >= sizeof(l.record) || len >= LEN - tail) {
			fprintf(stderr, "too long\n");
			exit(1);
		}
		memcpy(l.record, *text, len);
		l.record[len++] = '\n';
		tail = append(c, &region, &l, mr->lkey, tail, len);
		printf("durable up to byte %llu\n", (unsigned long long)tail);
	}
	ibv_dereg_mr(mr);
}

int main(int argc, char **argv)
{
	const int is_initiator = argc > 5;
	struct rc c;
	int fd;

	if (argc < 5) {
		fprintf(stderr,
			"usage: %s DEVICE GID-INDEX PORT LOG | "
			"DEVICE GID-INDEX PORT HOST TEXT...\n",
			argv[0]);
		return 2;
	}
	fd = rc_connect_peer(is_initiator ? argv[4] : NULL, argv[3]);
	rc_open(&c, argv[1], atoi(argv[2]), is_initiator ? 0 : RC_FLUSHES);
	rc_connect(&c, fd);
	if (is_initiator)
		initiator(&c, fd, argv + 5);
	else
		target(&c, fd, argv[4]);
	rc_close(&c);
	return 0;
}
