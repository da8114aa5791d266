// SPDX-License-Identifier: BSD-2-Clause
/* Atomics in every form, on plain and persistent memory, with their commits. */
#include <stdio.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)
#define COMMIT	       (FI_COMMIT_COMPLETE | FI_COMPLETION)

/* A region of the target, persistent or plain. */
struct target_memory {
	const char *what;
	uint64_t addr, key;
	bool persistent;
};

static uint64_t read_word(struct side *s, const struct target_memory *p,
			  uint64_t off)
{
	uint64_t v = 0;

	POST(s, fi_read(s->ep, &v, sizeof(v), NULL, s->peer, p->addr + off,
			p->key, &v));
	if (!side_wait(s, &e, &err) || e.op_context != &v)
		MUST(-FI_EOTHER);
	return v;
}

static void write_word(struct side *s, const struct target_memory *p,
		       uint64_t off, uint64_t v)
{
	POST(s, fi_write(s->ep, &v, sizeof(v), NULL, s->peer, p->addr + off,
			 p->key, &v));
	if (!side_wait(s, &e, &err) || e.op_context != &v)
		MUST(-FI_EOTHER);
}

static void run_idle(struct side *s, const struct card *peer)
{
}

/*
 * Has the entry in e the flags of such an operation? A fetch is a read
 * (FI_READ) over tcp and by the agent, and a write over sockets.
 */
static bool has_entry(const struct side *s, const struct target_memory *p,
		      bool fetches)
{
	bool read = fetches && (p->persistent || !s->o.prov);

	return s->o.format == FI_CQ_FORMAT_CONTEXT ||
	       e.flags == (FI_ATOMIC | (read ? FI_READ : FI_WRITE));
}

static void short_forms(struct side *s, const struct target_memory *p)
{
	uint64_t one = 1, five = 5, got = 0, is = 0, v[2] = {10, 20};
	struct fi_ioc ioc[2] = {{&v[0], 1}, {&v[1], 1}};
	const char *w = p->what;

	write_word(s, p, 0, 41);
	write_word(s, p, 8, 0);
	POST(s, fi_atomic(s->ep, &one, 1, NULL, s->peer, p->addr, p->key,
			  FI_UINT64, FI_SUM, &one));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &one &&
		       has_entry(s, p, false) && read_word(s, p, 0) == 42,
	       "%s: %s: sum", label, w);
	POST(s, fi_atomicv(s->ep, ioc, NULL, 2, s->peer, p->addr, p->key,
			   FI_UINT64, FI_SUM, ioc));
	tap_ok(side_wait(s, &e, &err) && e.op_context == ioc &&
		       read_word(s, p, 0) == 52 && read_word(s, p, 8) == 20,
	       "%s: %s: sum of a vector", label, w);
	POST(s, fi_fetch_atomic(s->ep, &one, 1, NULL, &got, NULL, s->peer,
				p->addr, p->key, FI_UINT64, FI_SUM, &got));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &got &&
		       has_entry(s, p, true) && got == 52 &&
		       read_word(s, p, 0) == 53,
	       "%s: %s: fetch and add", label, w);
	is = 53;
	POST(s, fi_compare_atomic(s->ep, &five, 1, NULL, &is, NULL, &got, NULL,
				  s->peer, p->addr, p->key, FI_UINT64, FI_CSWAP,
				  &is));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &is &&
		       has_entry(s, p, true) && got == 53 &&
		       read_word(s, p, 0) == 5,
	       "%s: %s: compare and swap", label, w);
	POST(s, fi_compare_atomic(s->ep, &one, 1, NULL, &is, NULL, &got, NULL,
				  s->peer, p->addr, p->key, FI_UINT64, FI_CSWAP,
				  &is));
	tap_ok(side_wait(s, &e, &err) && got == 5 && read_word(s, p, 0) == 5,
	       "%s: %s: compare, and leave it", label, w);
	got = 0;
	POST(s,
	     fi_fetch_atomic(s->ep, NULL, 1, NULL, &got, NULL, s->peer, p->addr,
			     p->key, FI_UINT64, FI_ATOMIC_READ, &got));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &got && got == 5,
	       "%s: %s: atomic read", label, w);
	POST(s, fi_inject_atomic(s->ep, &five, 1, s->peer, p->addr, p->key,
				 FI_UINT64, FI_SUM));
	five = 77; /* an injected operand was copied: change it */
	tap_ok(side_quiet(s) && read_word(s, p, 0) == 10,
	       "%s: %s: an injected one has no entry", label, w);
}

/* Atomics by fi_atomicmsg() and its like, with two target ranges. */
static void message_forms(struct side *s, const struct target_memory *p,
			  uint64_t flags)
{
	uint64_t v[2] = {1, 2}, cmp[2] = {11, 0}, got[2] = {0, 0};
	struct fi_ioc ioc = {v, 2}, res[2] = {{&got[0], 1}, {&got[1], 1}},
		      is = {cmp, 2};
	struct fi_rma_ioc rma[2] = {
		{p->addr, 1, p->key},
		{p->addr + 4096, 1, p->key},
	};
	struct fi_msg_atomic m = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = rma,
		.rma_iov_count = 2,
		.datatype = FI_UINT64,
		.op = FI_SUM,
		.context = &m,
	};
	const char *w =
		flags & FI_COMMIT_COMPLETE ? "with its commit" : p->what;

	write_word(s, p, 0, 10);
	write_word(s, p, 4096, 20);
	POST(s, fi_atomicmsg(s->ep, &m, flags));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &m &&
		       has_entry(s, p, false) && read_word(s, p, 0) == 11 &&
		       read_word(s, p, 4096) == 22,
	       "%s: %s: message form", label, w);
	POST(s, fi_fetch_atomicmsg(s->ep, &m, res, NULL, 2, flags));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &m &&
		       has_entry(s, p, true) && got[0] == 11 && got[1] == 22 &&
		       read_word(s, p, 0) == 12 && read_word(s, p, 4096) == 24,
	       "%s: %s: message form that fetches", label, w);
	m.op = FI_CSWAP;
	cmp[0] = 12;
	POST(s, fi_compare_atomicmsg(s->ep, &m, &is, NULL, 1, res, NULL, 2,
				     flags));
	tap_ok(side_wait(s, &e, &err) && e.op_context == &m &&
		       has_entry(s, p, true) && got[0] == 12 && got[1] == 24 &&
		       read_word(s, p, 0) == 1 && read_word(s, p, 4096) == 24,
	       "%s: %s: message form that compares", label, w);
	m.op = FI_SUM;
	POST(s, fi_atomicmsg(s->ep, &m, flags | FI_INJECT));
	v[0] = v[1] = 1000; /* the buffers may be reused */
	/*
	 * ofi_rxm makes no entry for an injected atomic; ofi_rpmem and sockets
	 * do.
	 */
	if (p->persistent || s->o.prov)
		tap_ok(side_wait(s, &e, &err) && e.op_context == &m,
		       "%s: %s: an injected one has an entry", label, w);
	else
		OK(side_quiet(s), "an injected one has no entry of the base");
	tap_ok(read_word(s, p, 0) == 2 && read_word(s, p, 4096) == 26,
	       "%s: %s: an injected one has taken its operands", label, w);
}

static bool fails_once(struct side *s, void *context)
{
	return !side_wait(s, &e, &err) && err.err &&
	       err.op_context == context && side_quiet(s);
}

/* Commits cover atomics, and atomics with FI_COMMIT_COMPLETE. */
static void check_commits(struct side *s, const struct target_memory *p)
{
	uint64_t one = 1, got = 7;
	struct fi_rma_iov r = {p->addr + 4088, 16, p->key};
	struct fi_ioc ioc = {&one, 1}, res = {&got, 1};
	struct fi_rma_ioc rma = {p->addr + 4096, 1, p->key};
	struct fi_msg_atomic m = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
		.context = &m,
	};
	bool once = true;

	write_word(s, p, 4096, 0);
	for (int i = 0; i < 100; i++)
		POST(s,
		     fi_inject_atomic(s->ep, &one, 1, s->peer, p->addr + 4096,
				      p->key, FI_UINT64, FI_SUM));
	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	OK(side_wait(s, &e, &err) && e.op_context == &r &&
		   read_word(s, p, 4096) == 100,
	   "a commit covers atomics");
	for (int i = 0; i < 100; i++)
		POST(s, fi_fetch_atomicmsg(s->ep, &m, &res, NULL, 1, COMMIT));
	for (int i = 0; i < 100; i++)
		once &= side_wait(s, &e, &err) && e.op_context == &m;
	OK(once && side_quiet(s) && read_word(s, p, 4096) == 200,
	   "100 with commits, each completes once");
	m.op = FI_ATOMIC_READ;
	OK(fi_fetch_atomicmsg(s->ep, &m, &res, NULL, 1, COMMIT) ==
		   -FI_EOPNOTSUPP,
	   "a read has nothing to commit");
	m.op = FI_SUM;
	rma.addr = p->addr + PAIR_POOL;
	POST(s, fi_fetch_atomicmsg(s->ep, &m, &res, NULL, 1, COMMIT));
	OK(fails_once(s, &m), "one past the end is one error entry");
}

static void run_initiator(struct side *s, const struct card *peer)
{
	const struct target_memory pool = {"persistent", peer->pool_addr,
					   peer->pool_key, true},
				   plain = {"plain", peer->plain_addr,
					    peer->plain_key, false};
	struct fi_atomic_attr attr;
	size_t n = 0;

	OK(s->info->caps & FI_ATOMIC, "atomics are offered");
	OK(!fi_query_atomic(s->domain, FI_UINT64, FI_SUM, &attr, 0) &&
		   attr.size == 8 && attr.count &&
		   !fi_atomicvalid(s->ep, FI_UINT64, FI_SUM, &n) &&
		   n == attr.count &&
		   !fi_fetch_atomicvalid(s->ep, FI_UINT64, FI_SUM, &n) &&
		   !fi_compare_atomicvalid(s->ep, FI_UINT64, FI_CSWAP, &n) &&
		   fi_atomicvalid(s->ep, FI_UINT64, FI_CSWAP, &n),
	   "the valid operations are listed");
	short_forms(s, &plain);
	short_forms(s, &pool);
	message_forms(s, &plain, FI_COMPLETION);
	message_forms(s, &pool, FI_COMPLETION);
	message_forms(s, &pool, COMMIT);
	check_commits(s, &pool);
}

/* The endpoint has FI_COMMIT_COMPLETE as its default op_flags. */
static void by_default(struct side *s, const struct card *peer)
{
	const struct target_memory pool = {"persistent", peer->pool_addr,
					   peer->pool_key, true};
	uint64_t one = 1, got = 0;

	POST(s, fi_fetch_atomic(s->ep, &one, 1, NULL, &got, NULL, s->peer,
				pool.addr, pool.key, FI_UINT64, FI_SUM, &got));
	OK(side_wait(s, &e, &err) && e.op_context == &got &&
		   read_word(s, &pool, 0) == 1,
	   "fi_fetch_atomic()");
	OK(fi_atomic(s->ep, &one, 1, NULL, s->peer, peer->plain_addr,
		     peer->plain_key, FI_UINT64, FI_SUM,
		     NULL) == -FI_EKEYREJECTED,
	   "volatile memory is refused");
	POST(s, fi_fetch_atomic(s->ep, NULL, 1, NULL, &got, NULL, s->peer,
				peer->plain_addr, peer->plain_key, FI_UINT64,
				FI_ATOMIC_READ, &got));
	OK(side_wait(s, &e, &err) && e.op_context == &got,
	   "an atomic read has nothing to commit");
}

static void run_raw_keys(struct side *s, const struct card *peer)
{
	const struct target_memory pool = {"raw", peer->pool_addr,
					   peer->pool_key, false};
	uint64_t one = 1;
	struct fi_ioc ioc = {&one, 1};
	struct fi_rma_ioc rma = {pool.addr, 1, pool.key};
	struct fi_msg_atomic m = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
	};

	POST(s, fi_atomic(s->ep, &one, 1, NULL, s->peer, pool.addr, pool.key,
			  FI_UINT64, FI_SUM, &one));
	OK(side_wait(s, &e, &err) && e.op_context == &one &&
		   read_word(s, &pool, 0) == 1,
	   "works");
	OK(fi_atomicmsg(s->ep, &m, FI_COMMIT_COMPLETE) == -FI_EKEYREJECTED,
	   "a commit is refused");
}

static void raw_by_default(struct side *s, const struct card *peer)
{
	uint64_t one = 1;

	OK(fi_atomic(s->ep, &one, 1, NULL, s->peer, peer->pool_addr,
		     peer->pool_key, FI_UINT64, FI_SUM,
		     NULL) == -FI_EKEYREJECTED,
	   "an atomic is refused");
	OK(fi_write(s->ep, &one, 8, NULL, s->peer, peer->pool_addr,
		    peer->pool_key, NULL) == -FI_EKEYREJECTED,
	   "a write is refused");
	POST(s, fi_inject_write(s->ep, &one, 8, s->peer, peer->pool_addr,
				peer->pool_key));
	OK(side_quiet(s), "an inject has nothing to commit");
}

static void run_pair(const char *name, struct pair_opts target,
		     struct pair_opts o, half_fn half)
{
	label = name;
	target.caps |= FI_ATOMIC;
	o.caps |= FI_ATOMIC;
	pair_run(&target, &o, run_idle, half);
}

int main(void)
{
	const struct pair_opts plain = {0};
	struct pair_opts o;

	setbuf(stdout, NULL);
	run_pair("manual", plain, plain, run_initiator);
	o = (struct pair_opts){.sleeps = true};
	run_pair("manual, sread", o, o, run_initiator);
	o = (struct pair_opts){.progress = FI_PROGRESS_AUTO, .sleeps = true};
	run_pair("auto, sread", o, o, run_initiator);
	o = (struct pair_opts){.prov = "sockets;ofi_rpmem"};
	run_pair("sockets", o, o, run_initiator);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_CONTEXT};
	run_pair("format context", plain, o, run_initiator);
	o = (struct pair_opts){.op_flags = FI_COMMIT_COMPLETE};
	run_pair("default flag", plain, o, by_default);
	o = (struct pair_opts){.raw_keys = true};
	run_pair("raw keys", o, o, run_raw_keys);
	o.op_flags = FI_COMMIT_COMPLETE;
	run_pair("raw keys, default flag", (struct pair_opts){.raw_keys = true},
		 o, raw_by_default);
	return tap_done();
}
