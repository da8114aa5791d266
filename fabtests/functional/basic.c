// SPDX-License-Identifier: BSD-2-Clause
/* The basic services of RDM endpoints work while commits are outstanding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>

#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
/*
 * Writable memory, because an adapter cannot pin the page cache of the
 * executable.
 */
static char text[] = "pool text";

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/* --- the target's half: echoes messages, then lets the initiator write --- */

static void run_target(struct side *s, const struct card *peer)
{
	char buf[256];

	side_insert(s, peer);
	for (int i = 0; i < 2; i++) {
		POST(s, fi_recv(s->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC,
				NULL));
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
		POST(s, fi_send(s->ep, buf, 32, NULL, s->peer, NULL));
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
	}
	/* Receive with an ignore mask (~0) that matches every tag. */
	for (int i = 0; i < 3; i++) {
		POST(s, fi_trecv(s->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC,
				 0, ~0ull, NULL));
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
		POST(s, fi_tsend(s->ep, buf, 32, NULL, s->peer,
				 strtoull(buf, NULL, 16), NULL));
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
	}
	pair_barrier(s); /* the initiator's writes are complete */
	POST(s, fi_inject(s->ep, s->pool, 32, s->peer));
	POST(s, fi_inject(s->ep, s->plain, 32, s->peer));
}

/* --- the initiator's half --- */

static void check_messages(struct side *s)
{
	bool whole = s->info->ep_attr->mem_tag_format; /* read s->info */
	char in[64], out[64] = "a message";
	int mine = 0;

	POST(s, fi_recv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &mine));
	POST(s, fi_inject(s->ep, out, sizeof(out), s->peer));
	OK(side_wait(s, &e, &err) && e.op_context == &mine && whole &&
		   !strcmp(in, out),
	   "inject, receive");
	POST(s, fi_recv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &mine));
	POST(s, fi_send(s->ep, out, sizeof(out), NULL, s->peer, out));
	for (int got = 0; got < 2; got++)
		OK(side_wait(s, &e, &err) &&
			   (e.op_context == &mine || e.op_context == out),
		   "send, receive");
}

static void check_tagged(struct side *s)
{
	uint64_t tags[] = {7, 0, ~0ull};
	/* sockets sets FI_MSG as well as FI_TAGGED for a tagged message. */
	uint64_t base_adds = s->o.prov ? FI_MSG : 0;
	char in[64], out[64];

	OK(s->info->ep_attr->mem_tag_format >> 63, "no tag bit is kept back");
	for (int i = 0; i < 3; i++) {
		snprintf(out, sizeof(out), "%llx", (unsigned long long)tags[i]);
		POST(s, fi_trecv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC,
				 tags[i], 0, in));
		POST(s, fi_tinject(s->ep, out, sizeof(out), s->peer, tags[i]));
		OK(side_wait(s, &e, &err) && e.op_context == in &&
			   !strcmp(in, out),
		   "tagged, echoed with the same tag");
		if (s->o.format == FI_CQ_FORMAT_TAGGED || !s->o.format)
			OK(e.tag == tags[i] && e.len == 32 &&
				   (e.flags & ~base_adds) ==
					   (FI_TAGGED | FI_RECV),
			   "the entry has tag, length and flags");
	}
}

static void check_writes(struct side *s, const struct card *peer)
{
	static char src[4096], back[4096];
	const struct {
		uint64_t key, addr;
		const char *what;
	} to[] = {
		{peer->pool_key, peer->pool_addr, "persistent"},
		{peer->plain_key, peer->plain_addr, "plain"},
	};

	for (int k = 0; k < 2; k++) {
		struct iovec iov[2] = {{src, 100}, {src + 100, 28}};
		struct fi_rma_iov rma = {to[k].addr, 128, to[k].key};
		struct fi_msg_rma msg = {
			.msg_iov = iov,
			.iov_count = 2,
			.addr = s->peer,
			.rma_iov = &rma,
			.rma_iov_count = 1,
			.context = &rma,
		};

		for (size_t i = 0; i < sizeof(src); i++)
			src[i] = (char)(i * 7 + k);
		POST(s, fi_write(s->ep, src, 4096, NULL, s->peer, to[k].addr,
				 to[k].key, src));
		OK(side_wait(s, &e, &err) && e.op_context == src,
		   "write completes once");
		src[5] ^= 1;
		POST(s, fi_writemsg(s->ep, &msg, FI_COMPLETION));
		OK(side_wait(s, &e, &err) && e.op_context == &rma,
		   "gathered write completes once");
		src[200] ^= 1;
		POST(s, fi_inject_write(s->ep, src + 192, 64, s->peer,
					to[k].addr + 192, to[k].key));
		OK(side_quiet(s), "an injected write has no entry");
		POST(s, fi_read(s->ep, back, 4096, NULL, s->peer, to[k].addr,
				to[k].key, back));
		OK(side_wait(s, &e, &err) && e.op_context == back &&
			   !memcmp(src, back, 4096),
		   to[k].what);
	}
}

/*
 * The method that a query must report: msync for files on a disk; for other
 * memory RPMEM_METHOD names it.
 */
static uint32_t method_wanted(void)
{
	const char *name = getenv("RPMEM_METHOD");

	if (name && !strcmp(name, "agent-clwb"))
		return FI_RPMEM_METHOD_AGENT_CLWB;
	if (name && !strcmp(name, "agent-clwb-msync"))
		return FI_RPMEM_METHOD_AGENT_CLWB_MSYNC;
	if (name && !strcmp(name, "delivery"))
		return FI_RPMEM_METHOD_DELIVERY;
	if (name && !strcmp(name, "fence"))
		return FI_RPMEM_METHOD_FENCE;
	if (name && !strcmp(name, "native"))
		return FI_RPMEM_METHOD_NATIVE;
	return FI_RPMEM_METHOD_AGENT_MSYNC;
}

static void check_commits(struct side *s, const struct card *peer)
{
	struct fi_rma_iov many[1000],
		one = {peer->pool_addr, 64, peer->pool_key};
	struct iovec iov = {text, 10};
	struct fi_rma_iov rma = {peer->pool_addr, 10, peer->pool_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &msg,
	};
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	int contexts[300], ends = 0;

	POST(s, fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION));
	OK(side_wait(s, &e, &err) && e.op_context == &msg,
	   "write with FI_COMMIT_COMPLETE");
	if (s->o.format != FI_CQ_FORMAT_CONTEXT)
		OK(e.flags == (FI_RMA | FI_WRITE), "flags of a commit");
	POST(s, commit_post(s->ep, &rma, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &msg));
	OK(side_wait(s, &e, &err) && e.op_context == &msg, "fi_rpmem_commit()");
	POST(s, commit_post(s->ep, &rma, 1, s->peer, FI_RPMEM_VISIBLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &msg));
	OK(side_wait(s, &e, &err), "fi_rpmem_commit(), visible only");

	for (int i = 0; i < 1000; i++)
		many[i] = (struct fi_rma_iov){peer->pool_addr + i * 1000, 100,
					      peer->pool_key};
	POST(s, commit_post(s->ep, many, 1000, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, many));
	OK(side_wait(s, &e, &err) && e.op_context == many, "1000 ranges");

	memset(contexts, 0, sizeof(contexts));
	for (int i = 0; i < 300; i++)
		POST(s,
		     commit_post(s->ep, &one, 1, s->peer, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_DEFAULT, NULL, &contexts[i]));
	while (ends < 300 && side_wait(s, &e, &err)) {
		++*(int *)e.op_context;
		ends++;
	}
	for (int i = 0; i < 300; i++)
		if (contexts[i] != 1)
			ends = -1;
	OK(ends == 300 && side_quiet(s),
	   "300 outstanding, each completes once");

	OK(!key_query(s->ep, s->peer, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
		      &attr) &&
		   !attr.prov_errno && attr.len == PAIR_POOL &&
		   attr.addr == peer->pool_addr &&
		   attr.region_class == FI_RPMEM_CLASS_POWER &&
		   attr.method == method_wanted(),
	   "query");
	one.addr += PAIR_POOL - 63;
	POST(s, commit_post(s->ep, &one, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &one));
	OK(!side_wait(s, &e, &err) && err.op_context == &one &&
		   err.prov_errno == RP_ST_RANGE,
	   "a range across the end is an error entry");
}

static void check_durable_receives(struct side *s)
{
	struct fi_info *hints = fi_dupinfo(s->info), *list = NULL;
	uint64_t flags = FI_RECV | FI_COMMIT_COMPLETE;
	struct fid_ep *ep;
	const struct fi_msg_tagged tagged = {0};
	const struct fi_msg msg = {0};

	OK(fi_recvmsg(s->ep, &msg, FI_COMMIT_COMPLETE) == -FI_EOPNOTSUPP &&
		   fi_trecvmsg(s->ep, &tagged, FI_COMMIT_COMPLETE) ==
			   -FI_EOPNOTSUPP,
	   "durable receives are refused");
	OK(fi_control(&s->ep->fid, FI_SETOPSFLAG, &flags) == -FI_EOPNOTSUPP,
	   "as the endpoint's default, too");
	if (!hints)
		MUST(-FI_ENOMEM);
	OK(!(hints->rx_attr->op_flags & FI_COMMIT_COMPLETE) &&
		   !fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list),
	   "fi_getinfo() does not offer them");
	fi_freeinfo(list);
	hints->rx_attr->op_flags |= FI_COMMIT_COMPLETE;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list) ==
		   -FI_ENODATA,
	   "hints with them match nothing");
	OK(fi_endpoint(s->domain, hints, &ep, NULL) == -FI_EOPNOTSUPP,
	   "no endpoint opens with them");
	fi_freeinfo(hints);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	char in[64];

	check_durable_receives(s);
	check_messages(s);
	/* From here on messages of the provider are on the connections, too. */
	check_writes(s, peer);
	check_commits(s, peer);
	check_tagged(s);
	pair_barrier(s);
	for (int i = 0; i < 2; i++) {
		POST(s,
		     fi_recv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in));
		OK(side_wait(s, &e, &err) && e.op_context == in,
		   "messages still arrive");
	}
}

/* --- the ways to open an endpoint --- */

static void run_pair(const char *name, struct pair_opts target,
		     struct pair_opts initiator)
{
	/* This case names its base, and the test runs over another one. */
	if (target.prov && !pair_over("tcp"))
		return;
	label = name;
	pair_run(&target, &initiator, run_target, run_initiator);
}

/*
 * With selective completion an operation has an entry only with FI_COMPLETION.
 */
static void run_idle(struct side *s, const struct card *peer)
{
}

static void select_few(struct side *s, const struct card *peer)
{
	struct iovec iov = {text, 1};
	struct fi_rma_iov rma = {peer->pool_addr, 1, peer->pool_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &msg,
	};

	for (int i = 0; i < 100; i++) {
		POST(s, fi_write(s->ep, text, 1, NULL, s->peer, rma.addr + i,
				 rma.key, NULL));
		POST(s, fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE));
	}
	OK(side_quiet(s), "operations without FI_COMPLETION have no entry");
	POST(s, fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION));
	OK(side_wait(s, &e, &err) && e.op_context == &msg,
	   "a commit with FI_COMPLETION has an entry");
	rma.addr += PAIR_POOL;
	POST(s, commit_post(s->ep, &rma, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &msg));
	OK(!side_wait(s, &e, &err) && err.op_context == &msg,
	   "an error always has an entry");
}

/* The endpoint has FI_COMMIT_COMPLETE as its default op_flags. */
static void by_default(struct side *s, const struct card *peer)
{
	POST(s, fi_write(s->ep, text, 1, NULL, s->peer, peer->pool_addr,
			 peer->pool_key, &label));
	OK(side_wait(s, &e, &err) && e.op_context == &label, "fi_write()");
	POST(s, fi_write(s->ep, text, 0, NULL, s->peer, peer->pool_addr,
			 peer->pool_key, text));
	OK(side_wait(s, &e, &err) && e.op_context == text,
	   "fi_write() of no bytes");
	OK(fi_write(s->ep, text, 1, NULL, s->peer, peer->plain_addr,
		    peer->plain_key, NULL) == -FI_EKEYREJECTED,
	   "volatile memory is refused");
	POST(s, fi_inject_write(s->ep, "z", 1, s->peer, peer->plain_addr,
				peer->plain_key));
	OK(side_quiet(s), "an inject has nothing to commit");
}

/*
 * Writes with keys that the application chose succeed, and commits with them
 * are refused.
 */
static void run_raw_keys(struct side *s, const struct card *peer)
{
	struct fi_rma_iov rma = {peer->pool_addr, 1, peer->pool_key};

	OK(peer->pool_key == 1 && peer->plain_key == PAIR_PLAIN_KEY,
	   "the application chose the keys");
	POST(s, fi_write(s->ep, text, 1, NULL, s->peer, peer->plain_addr,
			 PAIR_PLAIN_KEY, text));
	OK(side_wait(s, &e, &err) && e.op_context == text,
	   "a key with the mark of persistent keys is the application's");
	POST(s,
	     fi_write(s->ep, text, 1, NULL, s->peer, peer->pool_addr, 1, &rma));
	OK(side_wait(s, &e, &err) && e.op_context == &rma, "a write works");
	OK(commit_post(s->ep, &rma, 1, s->peer, FI_RPMEM_DURABLE,
		       FI_RPMEM_CLASS_DEFAULT, NULL, NULL) == -FI_EKEYREJECTED,
	   "a commit is refused");
}

/*
 * Commits by an initiator add no entry to the target's address table
 * (FI_AV_TABLE).
 */
static void table_target(struct side *s, const struct card *peer)
{
	fi_addr_t addr[3] = {9, 9, 9};
	struct card other = *peer;
	char buf[128];
	size_t len = sizeof(buf);

	pair_barrier(s); /* the initiator's commit has completed */
	((struct sockaddr_in *)other.name)->sin_port ^= 1;
	MUST(fi_av_insert(s->av, other.name, 1, &addr[0], 0, NULL));
	MUST(fi_av_insert(s->av, peer->name, 1, &addr[1], 0, NULL));
	((struct sockaddr_in *)other.name)->sin_port ^= 3;
	MUST(fi_av_insert(s->av, other.name, 1, &addr[2], 0, NULL));
	if (addr[0] != 0 || addr[1] != 1 || addr[2] != 2)
		MUST(-FI_EINVAL);
	/* A zeroed address gets no index in the table. */
	addr[0] = 0;
	memset(((struct sockaddr_in *)other.name), 0, sizeof(struct sockaddr));
	if (fi_av_insert(s->av, other.name, 1, &addr[0], 0, NULL) ||
	    addr[0] != FI_ADDR_NOTAVAIL)
		MUST(-FI_EADDRNOTAVAIL);
	MUST(fi_av_lookup(s->av, 1, buf, &len));
	if (memcmp(buf, peer->name, len))
		MUST(-FI_EINVAL);
	POST(s, fi_recv(s->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL));
	POST(s, fi_inject(s->ep, "number one", 11, 1));
	addr[0] = FI_ADDR_UNSPEC;
	while (fi_cq_readfrom(s->cq, &e, 1, addr) == -FI_EAGAIN)
		;
	if (addr[0] != 1)
		MUST(-FI_EADDRNOTAVAIL);
}

static void table_initiator(struct side *s, const struct card *peer)
{
	struct fi_rma_iov rma = {peer->pool_addr, 64, peer->pool_key};
	char in[64] = "";

	POST(s, fi_recv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in));
	POST(s, commit_post(s->ep, &rma, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &rma));
	OK(side_wait(s, &e, &err) && e.op_context == &rma, "commit");
	pair_barrier(s);
	OK(side_wait(s, &e, &err) && !strcmp(in, "number one"),
	   "the user's second entry is number 1");
	POST(s, fi_inject(s->ep, in, 8, s->peer));
}

int main(void)
{
	const struct pair_opts plain = {0};
	struct pair_opts o;

	setbuf(stdout, NULL);
	run_pair("manual, map", plain, plain);
	o = (struct pair_opts){.av = FI_AV_TABLE};
	run_pair("manual, table", o, o);
	o = (struct pair_opts){.sleeps = true};
	run_pair("manual, sread", o, o);
	o = (struct pair_opts){.progress = FI_PROGRESS_AUTO};
	run_pair("auto", o, o);
	o = (struct pair_opts){.progress = FI_PROGRESS_AUTO, .sleeps = true};
	run_pair("auto, sread", o, o);
	o = (struct pair_opts){.prov = "sockets;ofi_rpmem"};
	run_pair("sockets", o, o);
	o = (struct pair_opts){.prov = "sockets;ofi_rpmem", .sleeps = true};
	run_pair("sockets, sread", o, o);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_CONTEXT};
	run_pair("format context", plain, o);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_MSG};
	run_pair("format msg", plain, o);
	o = (struct pair_opts){.format = FI_CQ_FORMAT_DATA};
	run_pair("format data", plain, o);

	label = "selective";
	o = (struct pair_opts){.selective = true};
	pair_run(&plain, &o, run_idle, select_few);
	label = "default flag";
	o = (struct pair_opts){.op_flags = FI_COMMIT_COMPLETE};
	pair_run(&plain, &o, run_idle, by_default);
	label = "raw keys";
	o = (struct pair_opts){.raw_keys = true};
	if (pair_over("verbs"))
		tap_skip(label, "the device makes the keys");
	else
		pair_run(&o, &o, run_idle, run_raw_keys);
	label = "the table";
	o = (struct pair_opts){.av = FI_AV_TABLE, .sources = true};
	pair_run(&o, &plain, table_target, table_initiator);
	return tap_done();
}
