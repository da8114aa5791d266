// SPDX-License-Identifier: BSD-2-Clause
/*
 * Small durable writes that travel inside their request: which writes do, that
 * their bytes are on the medium, and that later operations do not overtake
 * them.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functional/pair.h"
#include "unit/disk.h"

enum {
	MOST = 4096,	/* longest write inside a request, in bytes */
	APART = 16384,	/* distance of the writes' offsets: each has its own
			 * pages */
	ROUNDS = 40,	/* rounds of the order tests */
	HOT = 8 * 4096, /* offset of the bytes of the order tests */
	BEHIND = 65536, /* the file is truncated here in the end */
};

static const size_t sizes[] = {1,   2,	  3,	7,    8,    9,	      15,
			       63,  64,	  65,	100,  101,  511,      512,
			       777, 1000, 4000, 4023, MOST, MOST + 1, 9000};
enum {
	SIZES = sizeof(sizes) / sizeof(sizes[0])
};

/* The target's findings, for the initiator to check. */
static struct {
	atomic_uint stores; /* how often the agent prepared pages for a store */
	atomic_uint lost;   /* bytes missing on the medium */
	atomic_uint beside; /* writes that changed a byte beside theirs */
	atomic_uint late;   /* messages that arrived before their data */
	atomic_uint notes;
} * seen;

static const char *label;
static size_t limit; /* largest payload inside a request */
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/* --- the target's medium: the bytes that msync covered --- */

static char *pool;
static char medium[PAIR_POOL];

/* Replace msync() and madvise() for the provider, too. */
__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	long ret = syscall(SYS_msync, addr, len, flags);
	char *from = addr;

	if (!ret && pool && from >= pool && from < pool + PAIR_POOL)
		disk_reads(medium + (from - pool), from, len);
	return (int)ret;
}

/* Only the agent calls madvise(MADV_POPULATE_WRITE), before it stores. */
__attribute__((visibility("default"))) int madvise(void *addr, size_t len,
						   int advice)
{
	if (pool && advice == MADV_POPULATE_WRITE)
		atomic_fetch_add(&seen->stores, 1);
	return (int)syscall(SYS_madvise, addr, len, advice);
}

static char byte_of(int i, size_t k)
{
	return (char)(1 + ((size_t)i * 37 + k * 11) % 255);
}

static uint64_t offset_of(int i)
{
	return BEHIND + (uint64_t)i * APART + 61 + (uint64_t)i % 8;
}

static void check_medium(int i, size_t len)
{
	const char *at = medium + offset_of(i);

	for (size_t k = 0; k < len; k++)
		if (at[k] != byte_of(i, k))
			atomic_fetch_add(&seen->lost, 1);
	if (at[-1] || at[len])
		atomic_fetch_add(&seen->beside, 1);
}

static void run_target(struct side *s, const struct card *peer)
{
	uint64_t n = 0, word;

	side_insert(s, peer);
	memset(medium, 0, sizeof(medium));
	pool = s->pool;
	pair_barrier(s);
	pair_barrier(s); /* the initiator has written all sizes */
	for (int i = 0; i < SIZES; i++)
		check_medium(i, sizes[i]);
	pair_barrier(s);
	/*
	 * Each message has the value of a write that was posted before it: the
	 * bytes must be there already.
	 */
	for (int i = 1; i <= ROUNDS; i++) {
		POST(s,
		     fi_recv(s->ep, &n, sizeof(n), NULL, FI_ADDR_UNSPEC, &n));
		do {
			if (!side_wait(s, &e, &err))
				MUST(-err.err);
			atomic_fetch_add(&seen->notes, e.op_context != &n);
		} while (e.op_context != &n);
		memcpy(&word, s->pool + HOT, sizeof(word));
		if (word < n)
			atomic_fetch_add(&seen->late, 1);
	}
	pair_barrier(s);
	pair_barrier(s); /* the initiator's overlapping writes are complete */
	memcpy(&word, medium + HOT, sizeof(word));
	if (word != 0x0202020202020202)
		atomic_fetch_add(&seen->lost, 1);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has written some zeros durably */
	memcpy(&word, medium + HOT, sizeof(word));
	if (word != 0x0202000000020202)
		atomic_fetch_add(&seen->lost, 1);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has zeroed the pool durably */
	for (size_t k = 0; k < PAIR_POOL; k++)
		if (medium[k])
			atomic_fetch_add(&seen->lost, 1);
	pair_barrier(s);
	/* Count the entries that are left. */
	pair_barrier(s);
	while (fi_cq_read(s->cq, &e, 1) == 1)
		atomic_fetch_add(&seen->notes, 1);
	if (truncate(s->path, BEHIND))
		MUST(-1);
	pair_barrier(s);
	pair_barrier(s);
	pool = NULL;
}

/* --- the initiator --- */

static struct fi_rma_iov rma;
static struct iovec iov[3];
static struct fi_msg_rma msg = {
	.msg_iov = iov,
	.rma_iov = &rma,
	.rma_iov_count = 1,
};

static ssize_t post_write(struct side *s, const struct card *peer,
			  const void *buf, size_t len, uint64_t at,
			  uint64_t flags)
{
	iov[0] = (struct iovec){(void *)buf, len};
	rma = (struct fi_rma_iov){peer->pool_addr + at, len, peer->pool_key};
	msg.iov_count = 1;
	msg.addr = s->peer;
	msg.context = (void *)buf;
	return fi_writemsg(s->ep, &msg, flags | FI_COMPLETION);
}

static bool durable_write(struct side *s, const struct card *peer,
			  const void *buf, size_t len, uint64_t at,
			  uint64_t flags)
{
	POST(s, post_write(s, peer, buf, len, at, flags | FI_COMMIT_COMPLETE));
	return side_wait(s, &e, &err) && e.op_context == buf &&
	       e.flags == (FI_RMA | FI_WRITE);
}

static unsigned int count_stores(void)
{
	return atomic_load(&seen->stores);
}

static void all_sizes(struct side *s, const struct card *peer)
{
	static char bytes[9000];
	unsigned int good = 0, small = count_stores();

	for (int i = 0; i < SIZES; i++) {
		for (size_t k = 0; k < sizes[i]; k++)
			bytes[k] = byte_of(i, k);
		small += sizes[i] <= limit;
		if (i % 3 == 0 && sizes[i] > 2) {
			/*
			 * Three segments. A write inside its request has copied
			 * the buffer when the call returns.
			 */
			iov[0] = (struct iovec){bytes, 1};
			iov[1] = (struct iovec){bytes + 1, sizes[i] - 2};
			iov[2] = (struct iovec){bytes + sizes[i] - 1, 1};
			rma = (struct fi_rma_iov){peer->pool_addr +
							  offset_of(i),
						  sizes[i], peer->pool_key};
			msg.iov_count = 3;
			msg.addr = s->peer;
			msg.context = bytes;
			POST(s,
			     fi_writemsg(s->ep, &msg,
					 FI_COMMIT_COMPLETE | FI_COMPLETION));
			if (sizes[i] <= limit)
				memset(bytes, 0, sizes[i]);
			good += side_wait(s, &e, &err) && e.op_context == bytes;
		} else {
			uint64_t inject =
				sizes[i] <= s->info->tx_attr->inject_size
					? FI_INJECT
					: 0;

			good += durable_write(s, peer, bytes, sizes[i],
					      offset_of(i), inject);
		}
	}
	OK(good == SIZES, "writes of all sizes with commit succeed");
	OK(count_stores() == small, "those up to the limit, and no others, are "
				    "stored by the agent");
}

/* Post each write and a message behind it, without waiting. */
static void check_announced(struct side *s, const struct card *peer)
{
	static uint64_t n[ROUNDS + 1];
	unsigned int ended = 0, good = 0;

	for (int i = 1; i <= ROUNDS; i++) {
		n[i] = (uint64_t)i;
		POST(s, post_write(s, peer, &n[i], sizeof(n[i]), HOT,
				   FI_COMMIT_COMPLETE));
		POST(s,
		     fi_send(s->ep, &n[i], sizeof(n[i]), NULL, s->peer, NULL));
		while (fi_cq_read(s->cq, &e, 1) == 1) {
			ended++;
			good += !e.op_context || (e.flags & FI_RMA);
		}
	}
	for (; ended < 2 * ROUNDS; ended++)
		good += side_wait(s, &e, &err);
	OK(good == 2 * ROUNDS, "each is announced by a message behind it");
}

/* The bytes of the later one of two overlapping writes must stay. */
static void check_overlapping(struct side *s, const struct card *peer)
{
	static const uint64_t one = 0x0101010101010101,
			      two = 0x0202020202020202;
	unsigned int before = count_stores(), wrong = 0, bad = 0;
	static uint64_t got;

	for (int i = 0; i < ROUNDS; i++) {
		POST(s, post_write(s, peer, &one, 8, HOT, FI_COMMIT_COMPLETE));
		POST(s, fi_write(s->ep, &two, 5, NULL, s->peer,
				 peer->pool_addr + HOT + 3, peer->pool_key,
				 (void *)&two));
		POST(s, post_write(s, peer, &two, 8, HOT, FI_COMMIT_COMPLETE));
		POST(s, fi_read(s->ep, &got, sizeof(got), NULL, s->peer,
				peer->pool_addr + HOT, peer->pool_key, &got));
		for (int k = 0; k < 4; k++)
			bad += !side_wait(s, &e, &err);
		wrong += got != two;
		got = 0;
	}
	OK(!bad, "writes that overlap succeed");
	OK(!wrong, "a read sees the last of them");
	if (!limit)
		OK(count_stores() == before, "none is stored inline");
}

static bool zeros(struct side *s, const struct card *peer, uint64_t at,
		  size_t len, enum fi_rpmem_level level)
{
	const struct fi_rma_iov to = {peer->pool_addr + at, len,
				      peer->pool_key};

	POST(s, zero_post(s->ep, &to, 1, s->peer, level, FI_RPMEM_CLASS_DEFAULT,
			  &rma));
	return side_wait(s, &e, &err) && e.op_context == &rma &&
	       e.flags == (FI_RMA | FI_WRITE);
}

/* fi_rpmem_zero() zeroes its range and no byte beside it. */
static void check_zeros(struct side *s, const struct card *peer)
{
	struct fi_rma_iov to = {peer->pool_addr + HOT, 8, peer->pool_key};
	static uint64_t got = 1;

	OK(zeros(s, peer, HOT + 3, 3, FI_RPMEM_VISIBLE), "visible zeros");
	POST(s, fi_read(s->ep, &got, sizeof(got), NULL, s->peer, to.addr,
			to.key, &got));
	OK(side_wait(s, &e, &err) && got == 0x0202000000020202,
	   "a read sees them");
	POST(s, commit_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &to));
	OK(side_wait(s, &e, &err), "and a commit covers them");
	pair_barrier(s);
	pair_barrier(s);
	OK(!atomic_load(&seen->lost), "they are on the medium, and only they");
	OK(zeros(s, peer, 0, FI_RPMEM_ZERO_MAX, FI_RPMEM_DURABLE),
	   "durable zeros, as many as a call takes");
	pair_barrier(s);
	pair_barrier(s);
	OK(!atomic_load(&seen->lost), "they are on the medium");
	to.len = FI_RPMEM_ZERO_MAX + 1;
	OK(zero_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
		     FI_RPMEM_CLASS_DEFAULT, NULL) == -FI_EINVAL,
	   "one more is refused");
	to.len = 0;
	OK(zero_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
		     FI_RPMEM_CLASS_DEFAULT, NULL) == -FI_EINVAL,
	   "none is refused");
	to = (struct fi_rma_iov){peer->plain_addr, 8, peer->plain_key};
	OK(zero_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
		     FI_RPMEM_CLASS_DEFAULT, NULL) == -FI_EKEYREJECTED,
	   "volatile memory is refused");
}

/* A fenced write is posted only after the write before it has ended. */
static void check_fence(struct side *s, const struct card *peer)
{
	static char first[8], fenced[8];
	unsigned int waits = 0;
	ssize_t ret;

	POST(s, post_write(s, peer, first, 8, 192, FI_COMMIT_COMPLETE));
	while ((ret = post_write(s, peer, fenced, 8, 192,
				 FI_COMMIT_COMPLETE | FI_FENCE)) == -FI_EAGAIN)
		waits++;
	MUST(ret);
	/* With automatic progress the first write may end at any time. */
	OK(waits || s->o.progress == FI_PROGRESS_AUTO,
	   "a write with FI_FENCE waits");
	OK(side_wait(s, &e, &err) && e.op_context == first &&
		   side_wait(s, &e, &err) && e.op_context == fenced,
	   "and both writes end in their order");
}

static void run_initiator(struct side *s, const struct card *peer)
{
	static char bytes[64];

	memset(bytes, 'x', sizeof(bytes));
	pair_barrier(s);
	OK(durable_write(s, peer, bytes, 64, 0, 0), "the first write");
	all_sizes(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	OK(!atomic_load(&seen->lost), "every byte is on the medium");
	OK(!atomic_load(&seen->beside), "and none beside them is");
	check_announced(s, peer);
	pair_barrier(s);
	OK(!atomic_load(&seen->late),
	   "no message precedes the write that it announces");
	check_overlapping(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	OK(!atomic_load(&seen->lost), "and the last is on the medium");
	check_zeros(s, peer);
	msg.data = 5;
	OK(durable_write(s, peer, bytes, 8, 64, FI_REMOTE_CQ_DATA),
	   "a write with CQ data");
	POST(s, fi_inject_write(s->ep, bytes, 8, s->peer, peer->pool_addr + 128,
				peer->pool_key));
	check_fence(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	OK(atomic_load(&seen->notes) == 1, "the target gets one entry");
	/*
	 * A write behind the end of the truncated file fails, and the target
	 * lives.
	 */
	if (limit >= 8) {
		POST(s, post_write(s, peer, bytes, 8, BEHIND + 4096,
				   FI_COMMIT_COMPLETE));
		OK(!side_wait(s, &e, &err) &&
			   err.prov_errno == RP_ST_FLUSH_FAILED,
		   "a file that was cut short is an error");
		OK(durable_write(s, peer, bytes, 8, 256, 0), "and no end");
	}
	pair_barrier(s);
}

static int run_pair(const char *what, const char *max, size_t bytes,
		    const struct pair_opts *o)
{
	struct pair_opts side = *o;
	pid_t pid = fork();
	int st = 1;

	if (pid < 0)
		return 1;
	if (!pid) {
		/*
		 * In a child, because the provider reads the variable only
		 * once, when libfabric loads it.
		 */
		if (max)
			setenv("FI_OFI_RPMEM_INLINE", max, 1);
		label = what;
		limit = bytes;
		memset(seen, 0, sizeof(*seen));
		/* Request FI_ORDER_SAW: messages announce writes. */
		side.order |= FI_ORDER_SAW;
		pair_run(&side, &side, run_target, run_initiator);
		exit(tap_done());
	}
	waitpid(pid, &st, 0);
	return st;
}

/* usage: inline [RUN]: only the run of this name. */
int main(int argc, char **argv)
{
	static const struct {
		const char *label, *max;
		size_t limit;
		struct pair_opts o;
	} runs[] = {
		{"manual", NULL, MOST, {0}},
		{"auto, sread",
		 NULL,
		 MOST,
		 {.progress = FI_PROGRESS_AUTO, .sleeps = true}},
		{"sockets", NULL, MOST, {.prov = "sockets;ofi_rpmem"}},
		{"up to 100", "100", 100, {0}},
		{"none", "0", 0, {0}},
		{"too many", "99999", MOST, {0}},
		{"order of writes", NULL, MOST, {.order = FI_ORDER_WAW}},
	};
	int bad = 0;

	/*
	 * So long that a slow target on a loaded machine is not taken for
	 * silent.
	 */
	setenv("FI_OFI_RPMEM_TIMEOUT", "30000", 0);
	setbuf(stdout, NULL);
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		return 99;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		if (argc < 2 || !strcmp(argv[1], runs[i].label))
			bad |= run_pair(runs[i].label, runs[i].max,
					runs[i].limit, &runs[i].o);
	return bad != 0;
}
