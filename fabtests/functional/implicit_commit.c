// SPDX-License-Identifier: BSD-2-Clause
/*
 * FI_OFI_RPMEM_COMMIT_WRITES: a program requests no persistence, and still its
 * writes to a registered file complete only when they are durable (implicit
 * commit).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

/*
 * Shortest duration of a flush in ms: what the script sets, less the error of
 * the clock.
 */
#define FLUSH_MS 50

static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

/* --- the target's half --- */

static int register_memory(struct side *s, void *at, size_t len,
			   uint64_t access)
{
	struct fid_mr *mr;
	int ret = fi_mr_reg(s->domain, at, len, access, 0, 77, 0, &mr, NULL);

	if (!ret)
		MUST(fi_close(&mr->fid));
	return ret;
}

static void *map_file(const char *path, size_t len, int prot, int flags)
{
	int fd = open(path, O_RDWR);
	void *p = mmap(NULL, len, prot, flags, fd, 0);

	if (fd < 0 || p == MAP_FAILED)
		MUST(-errno);
	close(fd);
	return p;
}

static void check_registrations(struct side *s)
{
	const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
	const int rw = PROT_READ | PROT_WRITE;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *anon =
		mmap(NULL, 3 * page, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *private = map_file(s->path, page, rw, MAP_PRIVATE);
	char *readable = map_file(s->path, page, PROT_READ, MAP_SHARED);
	char cut[] = "implicit_cut.XXXXXX", *end;
	int fd = mkstemp(cut);

	if (fd < 0 || ftruncate(fd, (off_t)page + 100))
		MUST(-errno);
	close(fd);
	end = map_file(cut, 2 * page, rw, MAP_SHARED);
	tap_ok(!register_memory(s, anon, page, both),
	       "anonymous memory is ordinary");
	tap_ok(!register_memory(s, private, page, both),
	       "so is a private mapping");
	tap_ok(!register_memory(s, readable, page, both),
	       "and a read-only mapping");
	tap_ok(!register_memory(s, end, page, both), "a file is registered");
	tap_ok(register_memory(s, end, 2 * page, both) == -FI_EFAULT,
	       "what is in part behind the end of its file is refused");
	tap_ok(!register_memory(s, end, 2 * page,
				FI_REMOTE_READ | FI_SEND | FI_READ),
	       "not where peers do not write");
	/* One range with a file's mapping in the middle of anonymous memory. */
	if (mmap(anon + page, page, rw, MAP_SHARED | MAP_FIXED,
		 fd = open(s->path, O_RDWR), 0) == MAP_FAILED)
		MUST(-errno);
	close(fd);
	tap_ok(register_memory(s, anon, 3 * page, both) < 0,
	       "a file in part is refused");
	tap_ok(!register_memory(s, anon + 2 * page, page, both),
	       "not what is beside it");
	munmap(anon, 3 * page);
	munmap(private, page);
	munmap(readable, page);
	munmap(end, 2 * page);
	unlink(cut);
}

static void run_target(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	if (getenv("EXPECT_IMPLICIT"))
		check_registrations(s);
	pair_barrier(s);
	pair_barrier(s);
}

/* --- the initiator's half --- */

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static uint64_t src[8], res[8], cmp[8];
static const struct card *at;

static ssize_t post_writev(struct side *s)
{
	const struct iovec iov[2] = {{src, 8}, {src + 1, 8}};

	return fi_writev(s->ep, iov, NULL, 2, s->peer, at->pool_addr,
			 at->pool_key, NULL);
}

static ssize_t post_write(struct side *s)
{
	return fi_write(s->ep, src, 64, NULL, s->peer, at->pool_addr,
			at->pool_key, NULL);
}

static ssize_t post_writedata(struct side *s)
{
	return fi_writedata(s->ep, src, 64, NULL, 5, s->peer, at->pool_addr,
			    at->pool_key, NULL);
}

static ssize_t post_writemsg(struct side *s)
{
	const struct iovec iov = {src, 64};
	const struct fi_rma_iov rma = {at->pool_addr, 64, at->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};

	return fi_writemsg(s->ep, &msg, FI_COMPLETION);
}

/* One write with a range in the file and one in ordinary memory. */
static ssize_t post_mixed(struct side *s)
{
	const struct iovec iov = {src, 64};
	const struct fi_rma_iov rma[2] = {
		{at->pool_addr, 32, at->pool_key},
		{at->plain_addr, 32, at->plain_key},
	};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = rma,
		.rma_iov_count = 2,
	};

	return fi_writemsg(s->ep, &msg, FI_COMPLETION);
}

static ssize_t post_atomic(struct side *s)
{
	return fi_atomic(s->ep, src, 2, NULL, s->peer, at->pool_addr,
			 at->pool_key, FI_UINT64, FI_SUM, NULL);
}

static ssize_t post_atomicmsg(struct side *s)
{
	const struct fi_ioc iov = {src, 1};
	const struct fi_rma_ioc rma = {at->pool_addr, 1, at->pool_key};
	const struct fi_msg_atomic msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
	};

	return fi_atomicmsg(s->ep, &msg, FI_COMPLETION);
}

static ssize_t post_fetch(struct side *s)
{
	return fi_fetch_atomic(s->ep, src, 1, NULL, res, NULL, s->peer,
			       at->pool_addr, at->pool_key, FI_UINT64, FI_SUM,
			       NULL);
}

static ssize_t post_compare(struct side *s)
{
	return fi_compare_atomic(s->ep, src, 1, NULL, cmp, NULL, res, NULL,
				 s->peer, at->pool_addr, at->pool_key,
				 FI_UINT64, FI_CSWAP_NE, NULL);
}

static void check_late(struct side *s, const char *what,
		       ssize_t (*post)(struct side *))
{
	double begun, took;
	int completed;

	POST(s, (begun = now_ms(), post(s)));
	completed = side_wait(s, &e, &err);
	took = now_ms() - begun;
	tap_ok(completed && took >= FLUSH_MS,
	       "%s completes behind its flush (%.0f ms)", what, took);
}

/* Does a commit of the key's first page succeed? */
static bool commit_succeeds(struct side *s, uint64_t addr, uint64_t key)
{
	const struct fi_rma_iov r = {addr, 4096, key};
	ssize_t ret;

	while ((ret = commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
				  FI_RPMEM_CLASS_DEFAULT, NULL, NULL)) ==
	       -FI_EAGAIN)
		side_poke(s);
	return !ret && side_wait(s, &e, &err);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	bool expected = getenv("EXPECT_IMPLICIT");

	at = peer;
	side_insert(s, peer);
	pair_barrier(s);
	tap_ok(commit_succeeds(s, peer->pool_addr, peer->pool_key) == expected,
	       "the file is %s", expected ? "persistent" : "ordinary");
	tap_ok(!commit_succeeds(s, peer->plain_addr, peer->plain_key),
	       "plain memory is ordinary");
	if (expected) {
		check_late(s, "fi_write", post_write);
		check_late(s, "fi_writev", post_writev);
		check_late(s, "fi_writedata", post_writedata);
		check_late(s, "fi_writemsg", post_writemsg);
		check_late(s, "fi_atomic", post_atomic);
		check_late(s, "fi_atomicmsg", post_atomicmsg);
		check_late(s, "fi_fetch_atomic", post_fetch);
		check_late(s, "fi_compare_atomic", post_compare);
		tap_ok(post_mixed(s) == -FI_EINVAL,
		       "one that writes ordinary memory too is refused");
	}
	pair_barrier(s);
}

int main(void)
{
	const struct pair_opts o = {
		.plain_hints = true,
		.caps = FI_ATOMIC,
		/* A default flag does not make fi_write() an injected one. */
		.op_flags = getenv("INJECT") ? FI_INJECT : 0,
	};

	pair_run(&o, &o, run_target, run_initiator);
	return tap_done();
}
