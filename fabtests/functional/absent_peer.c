// SPDX-License-Identifier: BSD-2-Clause
/*
 * Durable operations are refused to an address that is not in the address
 * vector (or no longer), and on an endpoint without an address vector. Other
 * operations still succeed.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define COMMIT (FI_COMMIT_COMPLETE | FI_COMPLETION)

/* Kinds of operations, by which post_how() selects the call. */
enum {
	COMMIT_CALL,
	QUERY_ASYNC,
	WRITE,
	WRITE_DATA,
	PLAIN_WRITE,
	ADD,
	FETCH,
	READ,
	QUERY,
	N
};

static const char *const names[N] = {
	[COMMIT_CALL] = "fi_rpmem_commit",
	[QUERY_ASYNC] = "fi_rpmem_query",
	[WRITE] = "write with FI_COMMIT_COMPLETE",
	[WRITE_DATA] = "the same with remote CQ data",
	[PLAIN_WRITE] = "plain write to persistent memory",
	[ADD] = "atomic with FI_COMMIT_COMPLETE",
	[FETCH] = "fetching atomic with FI_COMMIT_COMPLETE",
	[READ] = "read with FI_COMMIT_COMPLETE",
	[QUERY] = "fi_rpmem_query_sync",
};

static uint64_t word, old;
/*
 * Context of all operations posted. An entry with another context fails the
 * test.
 */
static void *context;

static ssize_t post_add(struct fid_ep *ep, fi_addr_t dest,
			struct fi_rma_ioc *rma, bool fetches)
{
	struct fi_ioc ioc = {&word, 1}, res = {&old, 1};
	const struct fi_msg_atomic m = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.addr = dest,
		.rma_iov = rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
		.context = context,
	};

	return fetches ? fi_fetch_atomicmsg(ep, &m, &res, NULL, 1, COMMIT)
		       : fi_atomicmsg(ep, &m, COMMIT);
}

static ssize_t post_how(struct fid_ep *ep, fi_addr_t dest,
			const struct card *peer, int how)
{
	struct fi_rma_iov rma = {peer->pool_addr, 8, peer->pool_key};
	struct fi_rma_ioc rioc = {peer->pool_addr, 1, peer->pool_key};
	/* static, because the query may fill it in until its completion */
	static struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct fi_rpmem_ops *ops;
	struct iovec iov = {&word, sizeof(word)};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.data = 7,
		.context = context,
	};

	switch (how) {
	case COMMIT_CALL:
		return commit_post(ep, &rma, 1, dest, FI_RPMEM_DURABLE,
				   FI_RPMEM_CLASS_DEFAULT, NULL, context);
	case QUERY_ASYNC:
		MUST(fi_rpmem_ops_get(ep, &ops));
		return fi_rpmem_query(ops, ep, dest, rma.key,
				      FI_RPMEM_CLASS_DEFAULT, &attr, context);
	case WRITE:
		return fi_writemsg(ep, &m, COMMIT);
	case WRITE_DATA:
		return fi_writemsg(ep, &m, COMMIT | FI_REMOTE_CQ_DATA);
	case PLAIN_WRITE:
		return fi_write(ep, &word, sizeof(word), NULL, dest, rma.addr,
				rma.key, context);
	case ADD:
		return post_add(ep, dest, &rioc, false);
	case FETCH:
		return post_add(ep, dest, &rioc, true);
	case READ:
		return fi_readmsg(ep, &m, COMMIT);
	default:
		return key_query(ep, dest, rma.key, FI_RPMEM_CLASS_DEFAULT,
				 &attr);
	}
}

static bool reap_success(struct side *s)
{
	if (!side_wait(s, &e, &err)) {
		printf("# %s: %s\n", label, fi_strerror(err.err));
		return false;
	}
	return e.op_context == context;
}

/*
 * Expect that each call returns this error, and nothing else: an entry with the
 * context NULL would make expect_works() fail.
 */
static void expect_refused(struct side *s, struct fid_ep *ep, fi_addr_t dest,
			   const struct card *peer, ssize_t as,
			   const char *what)
{
	context = NULL;
	for (int i = 0; i < N; i++) {
		ssize_t ret = post_how(ep, dest, peer, i);

		tap_ok(ret == as, "%s: %s: %s: %s", label, what, names[i],
		       fi_strerror((int)-ret));
	}
}

static void expect_works(struct side *s, const struct card *peer,
			 const char *what)
{
	word = 42;
	context = &word;
	POST(s, post_how(s->ep, s->peer, peer, WRITE));
	tap_ok(reap_success(s), "%s: %s: a durable write", label, what);
	POST(s, post_how(s->ep, s->peer, peer, COMMIT_CALL));
	tap_ok(reap_success(s), "%s: %s: a commit", label, what);
	POST(s, post_how(s->ep, s->peer, peer, ADD));
	tap_ok(reap_success(s), "%s: %s: a durable atomic", label, what);
}

static void check_removed(struct side *s, const struct card *peer)
{
	struct card other = *peer;
	fi_addr_t addr, gone;

	expect_refused(s, s->ep, 7, peer, -FI_EINVAL, "never inserted");
	((struct sockaddr_in *)other.name)->sin_port ^= 1;
	MUST(fi_av_insert(s->av, other.name, 1, &addr, 0, NULL));
	expect_works(s, peer, "before");
	MUST(fi_av_remove(s->av, &addr, 1, 0));
	expect_refused(s, s->ep, addr, peer, -FI_EINVAL, "removed unused");
	expect_works(s, peer, "beside it");
	gone = s->peer;
	MUST(fi_av_remove(s->av, &gone, 1, 0));
	expect_refused(s, s->ep, gone, peer, -FI_EINVAL, "removed");
	side_insert(s, peer);
	expect_works(s, peer, "inserted again");
}

/*
 * Calls on an endpoint that is bound to a queue, and not yet to an address
 * vector.
 */
static void check_unbound(struct side *s, const struct card *peer)
{
	struct fid_ep *first = s->ep;

	MUST(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	MUST(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	expect_refused(s, s->ep, s->peer, peer, -FI_EOPBADSTATE,
		       "no address vector");
	tap_ok(fi_enable(s->ep) == -FI_ENOAV, "%s: it cannot be enabled",
	       label);
	/* ofi_rxm 1.17 cannot close an endpoint without an address vector. */
	MUST(fi_ep_bind(s->ep, &s->av->fid, 0));
	expect_refused(s, s->ep, s->peer, peer, -FI_EOPBADSTATE, "not enabled");
	MUST(fi_enable(s->ep));
	expect_works(s, peer, "enabled");
	MUST(fi_close(&s->ep->fid));
	s->ep = first;
	expect_works(s, peer, "another endpoint");
}

static void run_initiator(struct side *s, const struct card *peer)
{
	check_unbound(s, peer);
	check_removed(s, peer);
}

static void run_idle(struct side *s, const struct card *peer)
{
}

int main(void)
{
	static const struct {
		const char *label;
		struct pair_opts o;
	} ways[] = {
		{"map", {.caps = FI_ATOMIC}},
		{"table", {.caps = FI_ATOMIC, .av = FI_AV_TABLE}},
		{"sockets, map",
		 {.caps = FI_ATOMIC, .prov = "sockets;ofi_rpmem"}},
		{"sockets, table",
		 {.caps = FI_ATOMIC,
		  .prov = "sockets;ofi_rpmem",
		  .av = FI_AV_TABLE}},
	};

	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		label = ways[i].label;
		pair_run(&ways[i].o, &ways[i].o, run_idle, run_initiator);
	}
	return tap_done();
}
