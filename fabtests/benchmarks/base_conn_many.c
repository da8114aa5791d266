// SPDX-License-Identifier: BSD-2-Clause
/* Counts durable writes of 64 B by many initiators and by many connections. */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/benchmarks/base_conn.h"
#include "fabtests/benchmarks/flush.h"
#include "util/text.h"

#define BYTES	64u
#define POSTED	3
#define MOST	16
#define ROUNDS	5
#define SECONDS 1

static const struct shape {
	const char *name;
	/*
	 * Initiator processes, connections of each process, operations of each
	 * connection.
	 */
	int processes, connections, outstanding;
	bool yields; /* sched_yield() after a poll that found nothing */
} shapes[] = {
	{"1 initiator", 1, 1, 1, false},
	{"1 initiator, 16 requests outstanding", 1, 1, 16, false},
	{"1 process, 16 connections", 1, 16, 1, false},
	{"16 processes, polling", 16, 1, 1, false},
	{"16 processes, sched_yield() between polls", 16, 1, 1, true},
};
#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

static const struct shape *shape; /* set before the processes are forked */

struct slot {
	struct fid_ep *ep;
	char buf[CONN_HEADER + BYTES];
};

static void slots_post(struct fid_ep *ep, int n)
{
	struct slot *slot = calloc((size_t)n, sizeof(*slot));

	if (!slot)
		MUST(-FI_ENOMEM);
	for (int i = 0; i < n; i++) {
		slot[i].ep = ep;
		MUST(fi_recv(ep, slot[i].buf, sizeof(slot[i].buf), NULL, 0,
			     &slot[i]));
	}
}

static void inject_message(struct conn_node *n, struct fid_ep *ep,
			   const void *buf, size_t len)
{
	ssize_t ret;

	while ((ret = fi_inject(ep, buf, len, 0)) == -FI_EAGAIN)
		fi_cq_read(n->cq, NULL, 0);
	/* At the end of the run the peer may have closed already. */
	if (ret != -FI_ENOTCONN)
		MUST(ret);
}

/* Accept connections in any order: those of many initiators interleave. */
static void accept_all(struct conn_node *n, int left)
{
	struct conn_event e;
	struct fid_ep *ep;

	while (left) {
		e = conn_event(n, true, 20000);
		if (e.kind == FI_CONNREQ) {
			ep = conn_ep_open(n, e.info, NULL);
			fi_freeinfo(e.info);
			slots_post(ep, POSTED);
			MUST(fi_accept(ep, NULL, 0));
		} else if (e.kind == FI_CONNECTED) {
			left--;
		} else {
			MUST(-FI_ECONNABORTED);
		}
	}
}

static void many_target(struct conn_world *w, int number)
{
	const int n = shape->processes * shape->connections;
	struct fi_cq_data_entry done;
	struct rp_flush cpu;
	char err[RP_ERR_LEN];
	struct conn_node node;
	struct slot *slot;
	uint64_t off = 0;
	ssize_t ret;

	MUST(rp_flush_open(&cpu, err));
	conn_open(&node, w->prov, false);
	conn_listen(&node, w);
	conn_step(w, 1);
	accept_all(&node, n);
	conn_step(w, 2);
	while (!atomic_load(&w->over)) {
		ret = fi_cq_read(node.cq, &done, 1);
		if (ret != 1) {
			if (shape->yields)
				sched_yield();
			continue;
		}
		slot = done.op_context;
		off = (off + 4096) % w->len;
		memcpy(w->mem + off, slot->buf + CONN_HEADER, BYTES);
		cpu.flush(w->mem + off, BYTES);
		cpu.drain();
		inject_message(&node, slot->ep, slot->buf, CONN_REPLY);
		MUST(fi_recv(slot->ep, slot->buf, sizeof(slot->buf), NULL, 0,
			     slot));
	}
	while (atomic_load(&w->ready))
		usleep(1000);
}

static void send_request(struct conn_node *n, struct fid_ep *ep)
{
	static char message[CONN_HEADER + BYTES];
	const struct iovec iov = {message, sizeof(message)};
	const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
	ssize_t ret;

	while ((ret = fi_sendmsg(ep, &m, 0)) == -FI_EAGAIN)
		fi_cq_read(n->cq, NULL, 0);
	MUST(ret);
}

static void many_initiator(struct conn_world *w, int number)
{
	const int all = shape->processes;
	struct fid_ep *ep[MOST];
	struct fi_cq_data_entry done;
	struct conn_node node;
	uint64_t count = 0;
	double begun;

	conn_open(&node, w->prov, false);
	conn_await(w, 1);
	for (int i = 0; i < shape->connections; i++) {
		ep[i] = conn_connect(&node, NULL, w);
		slots_post(ep[i], shape->outstanding);
	}
	atomic_fetch_add(&w->ready, 1);
	conn_await(w, 2);
	while (atomic_load(&w->ready) < all)
		usleep(50);
	for (int i = 0; i < shape->connections; i++)
		for (int k = 0; k < shape->outstanding; k++)
			send_request(&node, ep[i]);
	begun = conn_now();
	while (conn_now() - begun < SECONDS * 1e6) {
		struct slot *slot;

		if (fi_cq_read(node.cq, &done, 1) != 1) {
			if (shape->yields)
				sched_yield();
			continue;
		}
		slot = done.op_context;
		count++;
		MUST(fi_recv(slot->ep, slot->buf, sizeof(slot->buf), NULL, 0,
			     slot));
		send_request(&node, slot->ep);
	}
	atomic_fetch_add(&w->count, count);
	if (atomic_fetch_add(&w->driven, 1) == all - 1)
		atomic_store(&w->over, 1);
	while (!atomic_load(&w->over))
		usleep(1000);
	atomic_fetch_sub(&w->ready, 1);
}

int conn_many(const char *prov, int argc, char **argv)
{
	double rate[SHAPES][ROUNDS], ratio[ROUNDS];
	struct conn_world *w;

	for (int r = 0; r < ROUNDS; r++)
		for (int i = 0; i < SHAPES; i++) {
			shape = &shapes[i];
			w = conn_run_page(prov, 1u << 20, many_target,
					  many_initiator, shape->processes);
			if (!w)
				return 1;
			rate[i][r] = (double)atomic_load(&w->count) / SECONDS;
			conn_world_free(w);
		}
	for (int i = SHAPES - 1; i >= 0; i--) {
		for (int r = 0; r < ROUNDS; r++)
			ratio[r] = rate[i][r] / rate[0][r];
		printf("%s, %-42s %8.0f durable writes/s, %.2f of one\n", prov,
		       shapes[i].name, conn_median(rate[i], ROUNDS),
		       conn_median(ratio, ROUNDS));
	}
	return 0;
}
