// SPDX-License-Identifier: BSD-2-Clause
/*
 * fi_readmsg(FI_COMMIT_COMPLETE) into local persistent memory: when the read
 * completes, the bytes are on the local medium.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault/duo.h"

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)
#define EXPECT(got, want)                                                      \
	do {                                                                   \
		long long g_ = (got), w_ = (want);                             \
		if (g_ != w_)                                                  \
			FAIL("%s is %lld, not %lld", #got, g_, w_);            \
	} while (0)

static struct pair_opts opts;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static struct card c;
static struct side s;

/*
 * Open the local pool RP_LOCAL_POOL. The preload library copies what its
 * msync() flushes to the shadow file of RPMEM_SHADOW.
 */
static void open_pool(struct duo *d)
{
	duo_start(d, &opts, &c);
	duo_open(&s, &opts, &c);
	side_pool(&s, getenv("RP_LOCAL_POOL"));
}

static ssize_t try_read(const struct iovec *iov, size_t n, uint64_t from,
			uint64_t flags)
{
	struct fi_rma_iov rma = {c.pool_addr + from, 0, c.pool_key};
	const struct fi_msg_rma m = {
		.msg_iov = iov,
		.iov_count = n,
		.addr = s.peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = (void *)iov,
	};

	for (size_t i = 0; i < n; i++)
		rma.len += iov[i].iov_len;
	return fi_readmsg(s.ep, &m, flags);
}

static ssize_t read_commit(const struct iovec *iov, size_t n, uint64_t from)
{
	ssize_t ret;

	while ((ret = try_read(iov, n, from,
			       FI_COMMIT_COMPLETE | FI_COMPLETION)) ==
	       -FI_EAGAIN)
		side_poke(&s);
	return ret;
}

/* Does the shadow file hold these bytes where the pool is at this address? */
static bool on_medium(const void *want, const char *at, size_t len)
{
	static char bytes[65536];
	const char *spec = strrchr(getenv("RPMEM_SHADOW"), ':');
	int fd = open(spec + 1, O_RDONLY);
	ssize_t n = pread(fd, bytes, len, at - s.pool);

	close(fd);
	return n == (ssize_t)len && !memcmp(bytes, want, len);
}

/*
 * Write new bytes to the target, and read them into the local pool. *kept: does
 * the shadow file hold them then?
 */
static const char *round_trip(int i, bool *kept)
{
	static char bytes[20000];
	size_t len = 1 + (size_t)i * 997 % sizeof(bytes), half = len / 2;
	char *to = s.pool + i * 30011;
	struct iovec iov[2] = {{to, half}, {to + 100000, len - half}};

	for (size_t k = 0; k < len; k++)
		bytes[k] = (char)(k * 31 + (size_t)i +
				  ((size_t)getpid() >> 8 * (k % 3)));
	POST(&s, fi_write(s.ep, bytes, len, NULL, s.peer, c.pool_addr,
			  c.pool_key, bytes));
	EXPECT(side_wait(&s, &e, &err), 1);
	EXPECT(read_commit(half ? iov : iov + 1, half ? 2 : 1, 0), 0);
	if (!side_wait(&s, &e, &err))
		FAIL("the read ended with %d", err.prov_errno);
	if (e.op_context != (half ? iov : iov + 1) ||
	    e.flags != (FI_RMA | FI_READ))
		return "another completion came";
	if (memcmp(iov[0].iov_base, bytes, half) ||
	    memcmp(iov[1].iov_base, bytes + half, len - half))
		return "other bytes were read";
	*kept = on_medium(bytes, iov[0].iov_base, half) &&
		on_medium(bytes + half, iov[1].iov_base, len - half);
	return NULL;
}

static const char *check_kept(struct duo *d)
{
	const char *wrong = NULL;
	bool ok = true;

	open_pool(d);
	for (int i = 0; i < 25 && !wrong && ok; i++)
		wrong = round_trip(i, &ok);
	if (!wrong && !ok)
		wrong = "a read has completed, and its bytes are not kept";
	if (!wrong && !side_quiet(&s))
		wrong = "more than one completion came";
	side_close(&s);
	return wrong;
}

/* Negative control: with fault skip-flush the shadow file lacks the bytes. */
static const char *not_kept(struct duo *d)
{
	const char *wrong;
	bool ok = true;

	open_pool(d);
	wrong = round_trip(1, &ok);
	side_close(&s);
	return wrong ? wrong : ok ? "bytes without a flush are kept" : NULL;
}

static const char *check_many_reads(struct duo *d)
{
	static struct iovec iov[200];
	static int ends[200];

	open_pool(d);
	for (int i = 0; i < 200; i++) {
		iov[i] = (struct iovec){s.pool + i * 5000, 64};
		EXPECT(read_commit(&iov[i], 1, 0), 0);
	}
	for (int i = 0; i < 200; i++) {
		EXPECT(side_wait(&s, &e, &err), 1);
		ends[(struct iovec *)e.op_context - iov]++;
	}
	for (int i = 0; i < 200; i++)
		EXPECT(ends[i], 1);
	EXPECT(side_quiet(&s), 1);
	side_close(&s);
	return NULL;
}

static const char *check_refusals(struct duo *d)
{
	static char plain[64];
	struct iovec iov[2] = {{plain, sizeof(plain)}, {plain, 1}};

	open_pool(d);
	EXPECT(read_commit(iov, 1, 0), -FI_EINVAL);
	iov[0] = (struct iovec){s.pool + PAIR_POOL - 8, 9};
	EXPECT(read_commit(iov, 1, 0), -FI_EINVAL);
	iov[0] = (struct iovec){s.pool - 1, 8};
	EXPECT(read_commit(iov, 1, 0), -FI_EINVAL);
	iov[0] = (struct iovec){s.pool, 8};
	EXPECT(read_commit(iov, 2, 0), -FI_EINVAL);
	iov[0].iov_len = 0;
	EXPECT(read_commit(iov, 1, 0), -FI_EINVAL);
	iov[0] = (struct iovec){s.pool, 8};
	/*
	 * A read beyond the target's region: the base fails it, with one error
	 * entry.
	 */
	EXPECT(read_commit(iov, 1, PAIR_POOL), 0);
	EXPECT(side_wait(&s, &e, &err), 0);
	if (err.op_context != iov || !err.err)
		return "the error is of something else";
	EXPECT(side_quiet(&s), 1);
	/* A read into the last bytes of the local region succeeds. */
	iov[0] = (struct iovec){s.pool + PAIR_POOL - 8, 8};
	EXPECT(read_commit(iov, 1, 0), 0);
	EXPECT(side_wait(&s, &e, &err), 1);
	side_close(&s);
	return NULL;
}

static const char *low_class(struct duo *d)
{
	struct iovec iov;
	char name[32];

	duo_start(d, &opts, &c);
	duo_open(&s, &opts, &c);
	snprintf(name, sizeof(name), "/dev/shm/local.%d", getpid());
	side_pool(&s, name);
	iov = (struct iovec){s.pool, 8};
	EXPECT(read_commit(&iov, 1, 0), -FI_EINVAL);
	side_close(&s);
	unlink(name);
	return NULL;
}

static const char *bad_disk(struct duo *d)
{
	struct iovec iov;

	open_pool(d);
	iov = (struct iovec){s.pool, 8};
	EXPECT(read_commit(&iov, 1, 0), 0);
	EXPECT(side_wait(&s, &e, &err), 0);
	EXPECT(err.prov_errno, RP_ST_FLUSH_FAILED);
	EXPECT(err.err, FI_EIO);
	EXPECT(err.op_context == &iov, 1);
	EXPECT(read_commit(&iov, 1, 0), 0);
	EXPECT(side_wait(&s, &e, &err), 0);
	EXPECT(err.prov_errno, RP_ST_REGION_FAILED);
	EXPECT(side_quiet(&s), 1);
	side_close(&s);
	return NULL;
}

/* Read, and poll until the flush of the bytes sleeps at its fault point. */
static void start_flush(const struct iovec *iov)
{
	const char *path = getenv("RPMEM_FAULT_LOG");

	unlink(path);
	if (read_commit(iov, 1, 0))
		MUST(-1);
	while (access(path, F_OK))
		side_poke(&s);
}

static atomic_bool opened;

/* Let the flush go on after a moment, in which fi_close() may return early. */
static void *open_gate(void *arg)
{
	usleep(100000);
	atomic_store(&opened, true);
	close(open(getenv("RPMEM_FAULT_GATE"), O_WRONLY | O_CREAT, 0600));
	return arg;
}

/* Closing the endpoint while the local flush is blocked cancels the read. */
static const char *closed_endpoint(struct duo *d)
{
	struct iovec iov;

	open_pool(d);
	iov = (struct iovec){s.pool, 8};
	start_flush(&iov);
	EXPECT(fi_close(&s.ep->fid), 0);
	EXPECT(side_wait(&s, &e, &err), 0);
	EXPECT(err.prov_errno, RP_ST_CANCELED);
	EXPECT(err.op_context == &iov, 1);
	EXPECT(side_quiet(&s), 1);
	open_gate(NULL);
	EXPECT(fi_close(&s.pool_mr->fid), 0);
	EXPECT(fi_close(&s.cq->fid), 0);
	EXPECT(fi_close(&s.av->fid), 0);
	EXPECT(fi_close(&s.domain->fid), 0);
	return NULL;
}

/* Closing the region during a flush waits for the flush. */
static const char *closed_region(struct duo *d)
{
	struct iovec iov;
	pthread_t thread;

	open_pool(d);
	iov = (struct iovec){s.pool, 8};
	POST(&s, fi_write(s.ep, "flushed", 8, NULL, s.peer, c.pool_addr,
			  c.pool_key, &iov));
	EXPECT(side_wait(&s, &e, &err), 1);
	start_flush(&iov);
	EXPECT(on_medium("flushed", s.pool, 8), 0);
	MUST(-pthread_create(&thread, NULL, open_gate, NULL));
	EXPECT(fi_close(&s.pool_mr->fid), 0);
	EXPECT(atomic_load(&opened), 1);
	pthread_join(thread, NULL);
	EXPECT(on_medium("flushed", s.pool, 8), 1);
	EXPECT(side_wait(&s, &e, &err), 1);
	EXPECT(side_quiet(&s), 1);
	EXPECT(fi_close(&s.ep->fid), 0);
	return NULL;
}

/* The region is closed before the bytes of the read have arrived. */
static const char *region_gone(struct duo *d)
{
	struct iovec iov;
	bool ok;

	open_pool(d);
	if (round_trip(1, &ok))
		return "the first read failed";
	iov = (struct iovec){s.pool, 8};
	EXPECT(read_commit(&iov, 1, 0), 0);
	EXPECT(fi_close(&s.pool_mr->fid), 0);
	EXPECT(side_wait(&s, &e, &err), 0);
	EXPECT(err.prov_errno, RP_ST_STALE_KEY);
	EXPECT(side_quiet(&s), 1);
	EXPECT(fi_close(&s.ep->fid), 0);
	return NULL;
}

int main(void)
{
	const struct {
		const char *name;
		struct pair_opts o;
	} ways[] = {
		{"manual", {0}},
		{"manual, sread", {.sleeps = true}},
		{"auto", {.progress = FI_PROGRESS_AUTO}},
		{"auto, sread", {.progress = FI_PROGRESS_AUTO, .sleeps = true}},
		{"sockets", {.prov = "sockets;ofi_rpmem"}},
		{"sockets, sread",
		 {.prov = "sockets;ofi_rpmem", .sleeps = true}},
	};
	char text[80];

	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		opts = ways[i].o;
		snprintf(text, sizeof(text), "%s: what completes is kept",
			 ways[i].name);
		duo_case(text, check_kept);
	}
	opts = (struct pair_opts){0};
	duo_case("200 outstanding, each completes once", check_many_reads);
	duo_case("refusals", check_refusals);
	duo_case("a class that is not met", low_class);
	duo_case("a region that is gone when its bytes come", region_gone);
	duo_faults("skip-flush");
	duo_case("without the flush nothing is kept", not_kept);
	duo_faults("fail-flush");
	duo_case("a bad disk", bad_disk);
	snprintf(text, sizeof(text), "%s.log", getenv("RP_LOCAL_POOL"));
	duo_env("RPMEM_FAULT_LOG", text);
	duo_faults("slow-flush");
	snprintf(text, sizeof(text), "%s.gate", getenv("RP_LOCAL_POOL"));
	duo_env("RPMEM_FAULT_GATE", text);
	duo_case("the endpoint is closed during the flush", closed_endpoint);
	unlink(text);
	duo_case("the region is closed during the flush", closed_region);
	return tap_done();
}
