// SPDX-License-Identifier: BSD-2-Clause
/* Invalid atomics: each call is refused, and the target keeps running. */
#include <stdio.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "fault/duo.h"

static char sentence[200];
#define EXPECT(got, want)                                                      \
	do {                                                                   \
		long long g_ = (got), w_ = (want);                             \
		if (g_ != w_) {                                                \
			snprintf(sentence, sizeof(sentence),                   \
				 "%s is %lld, not %lld", #got, g_, w_);        \
			return sentence;                                       \
		}                                                              \
	} while (0)

static struct pair_opts opts;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static struct side s;
static uint64_t v[512], got[512];
static struct fi_ioc iov[16], res[16];
static struct fi_rma_ioc rma[16];
static struct fi_msg_atomic m;

/* Post one valid atomic. The cases turn it into an invalid one. */
static void post_valid(const struct card *c)
{
	for (int i = 0; i < 16; i++) {
		iov[i] = (struct fi_ioc){&v[i], 1};
		res[i] = (struct fi_ioc){&got[i], 1};
		rma[i] = (struct fi_rma_ioc){c->pool_addr + 64 * i, 1,
					     c->pool_key};
	}
	m = (struct fi_msg_atomic){
		.msg_iov = iov,
		.iov_count = 1,
		.addr = s.peer,
		.rma_iov = rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
		.context = &m,
	};
}

static ssize_t post_atomic(uint64_t flags)
{
	ssize_t ret;

	while ((ret = fi_atomicmsg(s.ep, &m, flags | FI_COMPLETION)) ==
	       -FI_EAGAIN)
		side_poke(&s);
	return ret;
}

static ssize_t post_fetch(size_t nres, uint64_t flags)
{
	ssize_t ret;

	while ((ret = fi_fetch_atomicmsg(s.ep, &m, res, NULL, nres,
					 flags | FI_COMPLETION)) == -FI_EAGAIN)
		side_poke(&s);
	return ret;
}

static ssize_t post_compare(size_t ncmp, size_t nres, uint64_t flags)
{
	ssize_t ret;

	while ((ret = fi_compare_atomicmsg(s.ep, &m, iov, NULL, ncmp, res, NULL,
					   nres, flags | FI_COMPLETION)) ==
	       -FI_EAGAIN)
		side_poke(&s);
	return ret;
}

/*
 * The provider refuses invalid atomics in the call itself, with and without
 * FI_COMMIT_COMPLETE in flags, and queues no completion for them.
 */
static const char *check_calls(const struct card *c, uint64_t flags)
{
	post_valid(c);
	m.op = 200;
	EXPECT(post_atomic(flags), -FI_EOPNOTSUPP);
	EXPECT(post_fetch(1, flags), -FI_EOPNOTSUPP);
	m.op = FI_CSWAP;
	EXPECT(post_atomic(flags), -FI_EOPNOTSUPP);
	EXPECT(post_fetch(1, flags), -FI_EOPNOTSUPP);
	m.op = FI_SUM;
	EXPECT(post_compare(1, 1, flags), -FI_EOPNOTSUPP);
	m.datatype = 200;
	EXPECT(post_atomic(flags), -FI_EOPNOTSUPP);
	m.datatype = FI_DOUBLE;
	m.op = FI_BXOR;
	EXPECT(post_atomic(flags), -FI_EOPNOTSUPP);
	post_valid(c);
	/*
	 * iov and rma_iov (or the result list of a fetch) name different
	 * numbers of values.
	 */
	iov[0].count = 2;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	iov[0].count = SIZE_MAX / 4;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	rma[0].count = SIZE_MAX / 4;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	post_valid(c);
	rma[0].count = 2;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	post_valid(c);
	EXPECT(post_fetch(2, flags), -FI_EINVAL);
	m.op = FI_CSWAP;
	EXPECT(post_compare(2, 1, flags), -FI_EINVAL);
	EXPECT(post_compare(1, 0, flags), -FI_EINVAL);
	/* More segments than the limit of atomics. */
	post_valid(c);
	m.iov_count = m.rma_iov_count = 16;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	m.iov_count = 1;
	m.rma_iov_count = 9;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	post_valid(c);
	EXPECT(post_fetch(16, flags), -FI_EINVAL);
	/* More bytes than fi_inject_atomic() accepts. */
	post_valid(c);
	iov[0].count = rma[0].count = 512;
	EXPECT(post_atomic(flags | FI_INJECT), -FI_EINVAL);
	/* An unknown peer address; a range that ends beyond 2^64. */
	post_valid(c);
	m.addr = 77;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	post_valid(c);
	rma[0].addr = UINT64_MAX - 3;
	EXPECT(post_atomic(flags), -FI_EINVAL);
	EXPECT(side_quiet(&s), 1);
	return NULL;
}

/*
 * The target refuses an atomic outside the region or misaligned: the call
 * succeeds, and one error entry has the target's status.
 */
static const char *refused_by_target(const struct card *c, uint64_t flags)
{
	static const struct {
		uint64_t off;
		int status;
	} wrong[] = {
		{PAIR_POOL - 4, RP_ST_RANGE}, {PAIR_POOL, RP_ST_RANGE},
		{1ull << 40, RP_ST_RANGE},    {4093, RP_ST_ALIGN},
		{8196, RP_ST_ALIGN},
	};
	uint64_t back = 0;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		post_valid(c);
		rma[0].addr += wrong[i].off;
		v[0] = ~0ull;
		m.op = FI_ATOMIC_WRITE;
		EXPECT(post_atomic(flags), 0);
		EXPECT(side_wait(&s, &e, &err), 0);
		EXPECT(err.op_context == &m, 1);
		EXPECT(err.prov_errno, wrong[i].status);
		EXPECT(side_quiet(&s), 1);
		/* Only the range of the refused atomic is poisoned. */
		EXPECT(duo_commit(&s, c, 0, 64), 0);
	}
	POST(&s, fi_read(s.ep, &back, 8, NULL, s.peer, c->pool_addr + 4093,
			 c->pool_key, &back));
	EXPECT(side_wait(&s, &e, &err), 1);
	EXPECT(back, 0);
	return NULL;
}

static const char *check_all(struct duo *d)
{
	const uint64_t flags[] = {0, FI_COMMIT_COMPLETE};
	const char *wrong = NULL;
	struct card c;

	duo_start(d, &opts, &c);
	duo_open(&s, &opts, &c);
	for (int i = 0; i < 2 && !wrong; i++) {
		wrong = check_calls(&c, flags[i]);
		if (!wrong)
			wrong = refused_by_target(&c, flags[i]);
	}
	if (!wrong)
		EXPECT(duo_commit(&s, &c, 0, 64), 0);
	side_close(&s);
	return wrong;
}

int main(void)
{
	setbuf(stdout, NULL);
	opts.caps = FI_ATOMIC;
	duo_case("atomics with bad arguments", check_all);
	return tap_done();
}
