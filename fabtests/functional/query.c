// SPDX-License-Identifier: BSD-2-Clause
/*
 * Queries (fi_rpmem_query(), fi_rpmem_query_sync()), and commits with a zeroed
 * struct fi_rpmem_msg.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static struct fi_rpmem_ops *ops;
static struct fi_rpmem_attr attr;
static char why[512];

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)
#define UNTOUCHED      0x7e57

/* Fill attr with values that show whether a call has changed it. */
static struct fi_rpmem_attr *fresh_attr(void)
{
	strcpy(why, "untouched");
	attr = QUERY_ATTR(why);
	attr.prov_errno = UNTOUCHED;
	attr.len = UNTOUCHED;
	return &attr;
}

static bool attr_untouched(void)
{
	return attr.prov_errno == UNTOUCHED && attr.len == UNTOUCHED &&
	       !strcmp(why, "untouched");
}

/* The peer's key with another port, at which no target listens. */
static uint64_t key_of_nobody(const struct card *peer)
{
	return (peer->pool_key & ~(0xffffull << 40)) | 1ull << 40;
}

#define QUERY(s, key, class, a, context)                                       \
	fi_rpmem_query(ops, (s)->ep, (s)->peer, key, class, a, context)
#define QUERY_SYNC(s, key, class, a)                                           \
	fi_rpmem_query_sync(ops, (s)->ep, (s)->peer, key, class, a)

static void run_idle(struct side *s, const struct card *peer)
{
	pair_barrier(s);
}

/* --- completions --- */

static void check_completes(struct side *s, const struct card *peer)
{
	int context;

	POST(s, QUERY(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT, fresh_attr(),
		      &context));
	OK(side_wait(s, &e, &err) && e.op_context == &context,
	   "a query completes with its context");
	OK(!attr.prov_errno && attr.len == PAIR_POOL &&
		   attr.addr == peer->pool_addr &&
		   attr.region_class == FI_RPMEM_CLASS_POWER &&
		   attr.method != FI_RPMEM_METHOD_REFUSED && attr.granularity &&
		   strstr(why, "a private connection"),
	   "its attr is filled in before");
	if (s->o.format != FI_CQ_FORMAT_CONTEXT)
		OK(e.flags == (FI_RMA | FI_READ), "flags of a query");
	OK(side_quiet(s), "it completes once");
}

static void check_fails(struct side *s, const struct card *peer)
{
	int context;

	POST(s, QUERY(s, key_of_nobody(peer), FI_RPMEM_CLASS_DEFAULT,
		      fresh_attr(), &context));
	OK(!side_wait(s, &e, &err) && err.op_context == &context &&
		   err.prov_errno == RP_ST_LOST && err.err == ENOTCONN &&
		   err.flags == (FI_RMA | FI_READ) &&
		   fi_rpmem_status(err.prov_errno) == FI_RPMEM_ST_LOST,
	   "a query that nobody hears is an error entry with its context");
	OK(attr_untouched(), "its attr is as it was");
	OK(side_quiet(s), "it fails once");
}

static void check_many(struct side *s, const struct card *peer)
{
	static struct fi_rpmem_attr a[100];
	int contexts[100] = {0}, n = 0;

	for (int i = 0; i < 100; i++) {
		a[i] = (struct fi_rpmem_attr){.size = sizeof(a[i])};
		POST(s, QUERY(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT, &a[i],
			      &contexts[i]));
	}
	while (n < 100 && side_wait(s, &e, &err)) {
		++*(int *)e.op_context;
		n++;
	}
	for (int i = 0; i < 100; i++)
		if (contexts[i] != 1 || a[i].len != PAIR_POOL)
			n = -1;
	OK(n == 100 && side_quiet(s), "100 queries complete once each");
}

static void check_completions(struct side *s, const struct card *peer)
{
	MUST(fi_rpmem_ops_get(s->ep, &ops));
	check_completes(s, peer);
	check_fails(s, peer);
	check_many(s, peer);
	OK(!QUERY_SYNC(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
		       fresh_attr()) &&
		   attr.len == PAIR_POOL,
	   "a synchronous query");
	OK(side_quiet(s), "has no completion");
	pair_barrier(s);
}

/* --- arguments --- */

static void check_arguments(struct side *s, const struct card *peer)
{
	const struct fi_rma_iov r = {peer->pool_addr, 64, peer->pool_key};
	struct fi_rpmem_msg msg = {
		.rma_iov = &r,
		.rma_iov_count = 1,
		.addr = s->peer,
	};
	const uint64_t key = peer->pool_key;
	struct fi_rpmem_attr small = {.size = sizeof(small) - 1};
	struct fi_rpmem_ops *none;

	MUST(fi_rpmem_ops_get(s->ep, &ops));
	OK(fi_open_ops(&s->ep->fid, "fi_rpmem_ops/1", 0, (void **)&none,
		       NULL) == -FI_ENOSYS,
	   "operations of another version are not offered");
	OK(QUERY(s, key, FI_RPMEM_CLASS_DEFAULT, NULL, NULL) == -FI_EINVAL,
	   "a query without an attr is refused");
	OK(QUERY(s, key, FI_RPMEM_CLASS_DEFAULT, &small, NULL) == -FI_EINVAL,
	   "an attr of another size is refused");
	OK(QUERY(s, key, (enum fi_rpmem_class)9, fresh_attr(), NULL) ==
		   -FI_EINVAL,
	   "a class that is none is refused");
	OK(QUERY(s, 42, FI_RPMEM_CLASS_DEFAULT, fresh_attr(), NULL) ==
		   -FI_EKEYREJECTED,
	   "a key that ofi_rpmem did not make is refused");
	OK(fi_rpmem_query(ops, s->ep, 77, key, FI_RPMEM_CLASS_DEFAULT,
			  fresh_attr(), NULL) == -FI_EINVAL,
	   "an address that is not in the vector is refused");
	for (int bit = 0; bit < 64; bit++) {
		ssize_t ret = fi_rpmem_commit(ops, s->ep, &msg, 1ull << bit);

		if (ret != -FI_EINVAL)
			tap_ok(false, "%s: flag %d: %zd", label, bit, ret);
	}
	OK(fi_rpmem_commit(ops, s->ep, NULL, 0) == -FI_EINVAL,
	   "a commit without a msg is refused");
	msg.rma_iov = NULL;
	OK(fi_rpmem_commit(ops, s->ep, &msg, 0) == -FI_EINVAL,
	   "a commit without ranges is refused");
	OK(attr_untouched() && side_quiet(s), "refused calls complete nothing");
	pair_barrier(s);
}

static void check_sentences(struct side *s, const struct card *peer)
{
	char whole[512], cut[9];

	MUST(fi_rpmem_ops_get(s->ep, &ops));
	for (int sync = 0; sync < 2; sync++) {
		const char *how = sync ? "synchronous" : "asynchronous";
#define RUN()                                                                  \
	do {                                                                   \
		if (sync) {                                                    \
			MUST(QUERY_SYNC(s, peer->pool_key,                     \
					FI_RPMEM_CLASS_DEFAULT, &attr));       \
			break;                                                 \
		}                                                              \
		POST(s, QUERY(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,       \
			      &attr, NULL));                                   \
		if (!side_wait(s, &e, &err))                                   \
			MUST(-err.err);                                        \
	} while (0)
		fresh_attr();
		RUN();
		strcpy(whole, why);
		fresh_attr();
		attr.why = NULL;
		RUN();
		tap_ok(attr.len == PAIR_POOL && !strcmp(why, "untouched"),
		       "%s: %s: why NULL", label, how);
		fresh_attr();
		attr.why_size = 0;
		RUN();
		tap_ok(attr.len == PAIR_POOL && !strcmp(why, "untouched"),
		       "%s: %s: why_size 0", label, how);
		fresh_attr();
		memset(cut, '!', sizeof(cut));
		attr.why = cut;
		attr.why_size = sizeof(cut) - 1;
		RUN();
		tap_ok(!memcmp(cut, whole, 7) && !cut[7] && cut[8] == '!',
		       "%s: %s: the sentence is cut", label, how);
	}
	pair_barrier(s);
}

/* --- what is bound --- */

static void check_counters(struct side *s, const struct card *peer)
{
	struct fid_cntr *reads = s->cntr[2], *writes = s->cntr[3];

	MUST(fi_rpmem_ops_get(s->ep, &ops));
	MUST(QUERY_SYNC(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
			fresh_attr()));
	OK(!fi_cntr_read(reads) && !fi_cntr_read(writes),
	   "a synchronous query is not counted");
	check_completes(s, peer);
	OK(fi_cntr_read(reads) == 1 && !fi_cntr_readerr(reads) &&
		   !fi_cntr_read(writes),
	   "a query counts as a read");
	check_fails(s, peer);
	OK(fi_cntr_read(reads) == 1 && fi_cntr_readerr(reads) == 1 &&
		   !fi_cntr_readerr(writes),
	   "a query that failed counts as a failed read");
	pair_barrier(s);
}

static void check_selective(struct side *s, const struct card *peer)
{
	MUST(fi_rpmem_ops_get(s->ep, &ops));
	check_completes(s, peer);
	check_fails(s, peer);
	pair_barrier(s);
}

/* --- the endpoint closes --- */

static void check_sleeping_reader(struct side *s, const struct card *peer)
{
	const struct timespec pause = {.tv_sec = 2};

	pair_barrier(s);
	nanosleep(&pause, NULL);
	pair_barrier(s);
}

static void check_closed(struct side *s, const struct card *peer)
{
	const struct timespec pause = {.tv_nsec = 300000000};
	struct fid_ep *first = s->ep;
	int context;

	MUST(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	MUST(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(s->ep, &s->av->fid, 0));
	MUST(fi_enable(s->ep));
	MUST(fi_rpmem_ops_get(s->ep, &ops));
	check_completes(s, peer);
	/* The barrier needs the first endpoint. */
	{
		struct fid_ep *second = s->ep;

		s->ep = first;
		pair_barrier(s);
		s->ep = second;
	}
	nanosleep(&pause, NULL); /* until the target sleeps and does not poll */
	POST(s, QUERY(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT, fresh_attr(),
		      &context));
	MUST(fi_close(&s->ep->fid));
	s->ep = first;
	OK(!side_wait(s, &e, &err) && err.op_context == &context &&
		   err.prov_errno == RP_ST_CANCELED,
	   "a query of a closed endpoint fails with its context");
	OK(attr_untouched(), "its attr is as it was");
	pair_barrier(s);
}

/* --- classes, on tmpfs --- */

static int commit_zeroed(struct side *s, const struct card *peer,
			 enum fi_rpmem_level level)
{
	const struct fi_rma_iov r = {peer->pool_addr, 64, peer->pool_key};
	struct fi_rpmem_msg msg = {0};

	msg.rma_iov = &r;
	msg.rma_iov_count = 1;
	msg.addr = s->peer;
	msg.level = level;
	POST(s, fi_rpmem_commit(ops, s->ep, &msg, 0));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

static int write_durably(struct side *s, const struct card *peer)
{
	static char bytes[64];
	const struct iovec iov = {bytes, sizeof(bytes)};
	const struct fi_rma_iov r = {peer->pool_addr, 64, peer->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &r,
		.rma_iov_count = 1,
	};

	POST(s, fi_writemsg(s->ep, &msg,
			    FI_COMPLETION | FI_INJECT | FI_COMMIT_COMPLETE));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

static int require(struct side *s, unsigned int class, size_t size)
{
	return fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, FI_OPT_RPMEM_CLASS,
			 &class, size);
}

/* FI_OPT_RPMEM_CLASS on an endpoint, with a key of class process. */
static void check_option(struct side *s, const struct card *peer)
{
	const size_t size = sizeof(enum fi_rpmem_class);

	OK(write_durably(s, peer) == RP_ST_CLASS,
	   "FI_COMMIT_COMPLETE is of the endpoint's class");
	OK(require(s, FI_RPMEM_CLASS_PROCESS, size - 1) == -FI_EINVAL &&
		   fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, FI_OPT_RPMEM_CLASS,
			     NULL, size) == -FI_EINVAL &&
		   require(s, FI_RPMEM_CLASS_POWER + 1, size) == -FI_EINVAL &&
		   write_durably(s, peer) == RP_ST_CLASS,
	   "a wrong class, or size, is refused and changes nothing");
	MUST(require(s, FI_RPMEM_CLASS_PROCESS, size));
	OK(!write_durably(s, peer) && !commit_zeroed(s, peer, 0),
	   "FI_OPT_RPMEM_CLASS sets the class of writes and commits");
	MUST(require(s, FI_RPMEM_CLASS_DEFAULT, size));
	OK(write_durably(s, peer) == RP_ST_CLASS,
	   "FI_RPMEM_CLASS_DEFAULT restores the class of the environment");
}

static void check_power(struct side *s, const struct card *peer)
{
	int context;

	MUST(fi_rpmem_ops_get(s->ep, &ops));
	POST(s, QUERY(s, peer->pool_key, FI_RPMEM_CLASS_DEFAULT, fresh_attr(),
		      &context));
	OK(side_wait(s, &e, &err) && e.op_context == &context &&
		   attr.prov_errno == RP_ST_CLASS &&
		   fi_rpmem_status(attr.prov_errno) == FI_RPMEM_ST_CLASS &&
		   attr.region_class == FI_RPMEM_CLASS_PROCESS &&
		   attr.method == FI_RPMEM_METHOD_REFUSED && why[0],
	   "a query completes when commits are refused");
	OK(commit_zeroed(s, peer, 0) == RP_ST_CLASS,
	   "a zeroed msg is durable, at the endpoint's class power");
	OK(!commit_zeroed(s, peer, FI_RPMEM_VISIBLE),
	   "level visible requires no class");
	check_option(s, peer);
	pair_barrier(s);
}

static void check_process(struct side *s, const struct card *peer)
{
	MUST(fi_rpmem_ops_get(s->ep, &ops));
	OK(!commit_zeroed(s, peer, 0),
	   "a zeroed msg requires the endpoint's class process");
	pair_barrier(s);
}

static void run_pair(const char *name, struct pair_opts initiator,
		     half_fn target, half_fn half)
{
	const struct pair_opts plain = {0};

	label = name;
	pair_run(&plain, &initiator, target, half);
}

int main(void)
{
	const struct pair_opts plain = {0};
	struct pair_opts o;
	char path[] = "/dev/shm/query_pool.XXXXXX";

	setbuf(stdout, NULL);
	unsetenv("FI_OFI_RPMEM_CLASS");
	run_pair("format tagged", plain, run_idle, check_completions);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_CONTEXT, .sleeps = true};
	run_pair("format context, sread", o, run_idle, check_completions);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_MSG,
			       .progress = FI_PROGRESS_AUTO};
	run_pair("format msg, auto", o, run_idle, check_completions);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_DATA};
	run_pair("format data", o, run_idle, check_completions);
	run_pair("arguments", plain, run_idle, check_arguments);
	run_pair("sentences", plain, run_idle, check_sentences);
	o = (struct pair_opts){.counts = true};
	run_pair("counters", o, run_idle, check_counters);
	o = (struct pair_opts){.selective = true};
	run_pair("selective", o, run_idle, check_selective);
	run_pair("closed", plain, check_sleeping_reader, check_closed);
	if (!pair_on_tmpfs(path))
		return tap_done();
	run_pair("class process", plain, run_idle, check_process);
	unsetenv("FI_OFI_RPMEM_CLASS");
	run_pair("class power", plain, run_idle, check_power);
	unlink(path);
	return tap_done();
}
