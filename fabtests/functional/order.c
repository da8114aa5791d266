// SPDX-License-Identifier: BSD-2-Clause
/*
 * A requested message order (FI_ORDER_SAW, FI_ORDER_WAW) holds between the
 * private connection and the base's: whatever announces data is visible only
 * after the data.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

enum {
	ROUNDS = 16,	 /* rounds of each kind */
	LONG = 100000,	 /* bytes that take a while to transfer */
	SHORT = 200,	 /* bytes that may go inside a request */
	FLAG = LONG + 8, /* offset of the flag, behind the data */
	RDMA = 8192,	 /* bytes that never go inside a request */
	PLAIN_FLAG = 64, /* offset in plain memory */
};

/* The operation that announces the data: a message, or a write of the flag. */
enum announcement {
	MESSAGE,
	INJECTED,
	TAGGED,
	FLAG_WRITE,   /* short write to the same region */
	FLAG_RDMA,    /* the same, too long for a request */
	FLAG_DURABLE, /* durable write, inside its request if possible */
	FLAG_ATOMIC,
	FLAG_PLAIN, /* write over the base's connection */
	KINDS,
};

static const char *const names[KINDS] = {
	"a message", "an injected message", "a tagged message",
	"a write",   "a write by RDMA",	    "a durable write",
	"an atomic", "a write of the base",
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static char bytes[LONG];
static uint64_t flags[RDMA / sizeof(uint64_t)];

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

static bool order_offered(const struct side *s, enum announcement a)
{
	if (a == TAGGED)
		return s->info->caps & FI_TAGGED;
	if (a == FLAG_ATOMIC)
		return s->info->caps & FI_ATOMIC;
	return true;
}

static size_t length_of(uint64_t n)
{
	return n % 2 ? LONG : SHORT;
}

/* --- the target --- */

static uint64_t seen_flag(const char *at)
{
	return atomic_load_explicit((const _Atomic uint64_t *)at,
				    memory_order_acquire);
}

static void await_message(struct side *s, uint64_t n, bool tagged)
{
	uint64_t got = 0;

	if (tagged)
		POST(s, fi_trecv(s->ep, &got, sizeof(got), NULL, FI_ADDR_UNSPEC,
				 7, 0, &got));
	else
		POST(s, fi_recv(s->ep, &got, sizeof(got), NULL,
				s->o.msg ? 0 : FI_ADDR_UNSPEC, &got));
	pair_barrier(s); /* the receive is posted */
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	if (e.op_context != &got || got != n)
		MUST(-FI_EOTHER);
}

static void await_flag(struct side *s, uint64_t n, const char *at)
{
	pair_barrier(s);
	while (seen_flag(at) != n)
		side_poke(s);
}

static bool has_arrived(const struct side *s, uint64_t n)
{
	for (size_t i = 0; i < length_of(n); i++)
		if (s->pool[i] != (char)n)
			return false;
	return true;
}

static void run_target(struct side *s, const struct card *peer)
{
	uint64_t n = 0;

	if (!s->o.msg)
		side_insert(s, peer);
	pair_barrier(s);
	for (enum announcement a = 0; a < KINDS; a++) {
		int early = 0;

		if (!order_offered(s, a))
			continue;
		for (int i = 0; i < ROUNDS; i++) {
			n++;
			if (a <= TAGGED)
				await_message(s, n, a == TAGGED);
			else
				await_flag(s, n,
					   a == FLAG_PLAIN
						   ? s->plain + PLAIN_FLAG
						   : s->pool + FLAG);
			early += !has_arrived(s, n);
			pair_barrier(s);
		}
		printf("# %d early\n", early);
		tap_ok(!early, "%s: %s behind data comes behind them", label,
		       names[a]);
		pair_barrier(s);
	}
}

/* --- the initiator --- */

static ssize_t post_write(struct side *s, const void *buf, size_t len,
			  uint64_t addr, uint64_t key, uint64_t flags)
{
	struct iovec iov = {(void *)buf, len};
	struct fi_rma_iov rma = {addr, len, key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = (void *)buf,
	};

	return fi_writemsg(s->ep, &msg, flags | FI_COMPLETION);
}

/* Post the announcement; returns its number of completions. */
static int post_announcement(struct side *s, const struct card *peer,
			     enum announcement a, const uint64_t *n)
{
	const uint64_t flag = peer->pool_addr + FLAG;

	switch (a) {
	case MESSAGE:
		POST(s, fi_send(s->ep, n, 8, NULL, s->peer, NULL));
		return 1;
	case INJECTED:
		POST(s, fi_inject(s->ep, n, 8, s->peer));
		return 0;
	case TAGGED:
		POST(s, fi_tsend(s->ep, n, 8, NULL, s->peer, 7, NULL));
		return 1;
	case FLAG_WRITE:
		POST(s, post_write(s, n, 8, flag, peer->pool_key, 0));
		return 1;
	case FLAG_RDMA:
		for (size_t i = 0; i < RDMA / sizeof(*n); i++)
			flags[i] = *n;
		POST(s, post_write(s, flags, RDMA, flag, peer->pool_key, 0));
		return 1;
	case FLAG_DURABLE:
		POST(s, post_write(s, n, 8, flag, peer->pool_key,
				   FI_COMMIT_COMPLETE));
		return 1;
	case FLAG_ATOMIC:
		POST(s,
		     fi_atomic(s->ep, n, 1, NULL, s->peer, flag, peer->pool_key,
			       FI_UINT64, FI_ATOMIC_WRITE, NULL));
		return 1;
	default:
		POST(s, post_write(s, n, 8, peer->plain_addr + PLAIN_FLAG,
				   peer->plain_key, 0));
		return 1;
	}
}

/*
 * Post the data and the announcement, and wait. In one round of three the data
 * is written without commit.
 */
static int round_trip(struct side *s, const struct card *peer,
		      enum announcement a, uint64_t n)
{
	int due = 1, good = 0;

	memset(bytes, (char)n, sizeof(bytes));
	pair_barrier(s);
	POST(s, post_write(s, bytes, length_of(n), peer->pool_addr,
			   peer->pool_key, n % 3 ? FI_COMMIT_COMPLETE : 0));
	due += post_announcement(s, peer, a, &n);
	for (int i = 0; i < due; i++)
		good += side_wait(s, &e, &err);
	pair_barrier(s);
	return good == due;
}

static void run_initiator(struct side *s, const struct card *peer)
{
	uint64_t n = 0;

	pair_barrier(s);
	for (enum announcement a = 0; a < KINDS; a++) {
		int good = 0;

		if (!order_offered(s, a))
			continue;
		for (int i = 0; i < ROUNDS; i++)
			good += round_trip(s, peer, a, ++n);
		OK(good == ROUNDS, "data and announcements succeed");
		pair_barrier(s);
	}
}

int main(void)
{
	const uint64_t order = FI_ORDER_SAW | FI_ORDER_WAW;
	const struct {
		const char *label;
		struct pair_opts o;
	} runs[] = {
		/* ofi_rxm offers these orders only without atomics. */
		{"connectionless", {.order = order}},
		{"connectionless, a thread places",
		 {.order = order, .progress = FI_PROGRESS_AUTO}},
		{"sockets",
		 {.order = order,
		  .caps = FI_ATOMIC,
		  .prov = "sockets;ofi_rpmem"}},
		{"connected", {.order = order, .msg = true}},
		{"connected, a thread places",
		 {.order = order, .msg = true, .progress = FI_PROGRESS_AUTO}},
	};

	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		/* Connected endpoints of verbs need registered buffers. */
		if (getenv("RPMEM_BASE") && (runs[i].o.prov || runs[i].o.msg))
			continue;
		label = runs[i].label;
		pair_run(&runs[i].o, &runs[i].o, run_target, run_initiator);
	}
	return tap_done();
}
