// SPDX-License-Identifier: BSD-2-Clause
/* Waiting for private connections, and the memory of many of them. */
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/unit/rc_rig.h"

#define LARGE (1u << 20)
#define MANY  300

/* --- sleeping --- */

static void sleep_until_some(struct node *n)
{
	struct pollfd fd = {.fd = rp_rc_fd(n->rc), .events = POLLIN};

	if (!rp_rc_trywait(n->rc))
		cr_assert_eq(poll(&fd, 1, 30000), 1);
	rp_rc_poll(n->rc, 64);
}

/* Each step at one end wakes the other end through its descriptor. */
Test(rc, the_descriptor_wakes)
{
	uint8_t *sink = calloc(1, LARGE), *source = calloc(1, LARGE);
	struct node t = {0}, i = {0};
	struct rp_rc_attr attr;
	struct end ie = {0};
	struct end te = {0};
	struct rp_rc_mr mr;
	struct op s, w;
	pid_t pid;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		attr = rig_attr(&t);
		attr.waits = true;
		node_open_with(&t, &attr);
		node_listen(&t);
		t.accept = &te;
		te.on_message = echo_message;
		register_memory(&t, sink, LARGE, &mr);
		if (write(fds[1], &t.at, sizeof(t.at)) < 0 ||
		    write(fds[1], &mr, sizeof(mr)) < 0)
			_exit(1);
		while (!te.lost)
			sleep_until_some(&t);
		rp_channel_close(te.c);
		rp_rc_dereg(t.rc, &mr);
		rp_rc_close(t.rc);
		_exit(0);
	}
	cr_assert_eq(read(fds[0], &t.at, sizeof(t.at)), sizeof(t.at));
	cr_assert_eq(read(fds[0], &mr, sizeof(mr)), sizeof(mr));
	attr = rig_attr(&i);
	attr.waits = true;
	node_open_with(&i, &attr);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	while (!ie.connected)
		sleep_until_some(&i);
	for (int n = 1; n <= 200; n++) {
		op_init(&w, RP_CHANNEL_WRITE, source, n % 20 ? 8 : LARGE);
		op_to(&w, &mr, 0);
		w.op.delivered = n % 2;
		op_init(&s, RP_CHANNEL_SEND, source, 100);
		op_post(ie.c, &w);
		op_post(ie.c, &s);
		while (ie.messages < n || !w.done || !s.done)
			sleep_until_some(&i);
	}
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	waitpid(pid, &fds[0], 0);
	cr_assert_eq(fds[0], 0);
	free(sink);
	free(source);
}

/* A now() that stands still between ticks: polls must not wait for it. */
static uint64_t stands_still(void *arg)
{
	return 1;
}

Test(rc, messages_are_found_between_ticks_of_the_clock)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct rp_rc_attr attr = rig_attr(&t);
	struct op s;

	attr.now_exact = attr.now;
	attr.now = stands_still;
	node_open_with(&t, &attr);
	node_open(&i);
	node_listen(&t);
	t.accept = &te;
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	for (int n = 0; n < 4096; n++)
		rp_rc_poll(t.rc, 64);
	op_init(&s, RP_CHANNEL_SEND, ie.msg, 100);
	op_post(ie.c, &s);
	PUMP(&i, &t, te.messages);
	rp_channel_close(te.c);
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* Connections wake the descriptor; packets do so only after trywait(). */
Test(rc, packets_wake_only_after_trywait)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct rp_rc_attr attr = rig_attr(&t);
	struct pollfd fd = {.events = POLLIN};
	struct op s;

	attr.waits = true;
	node_open_with(&t, &attr);
	node_open(&i);
	node_listen(&t);
	t.accept = &te;
	fd.fd = rp_rc_fd(t.rc);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	cr_assert_eq(poll(&fd, 1, 30000), 1);
	PUMP(&i, &t, ie.connected);
	op_init(&s, RP_CHANNEL_SEND, ie.msg, 100);
	op_post(ie.c, &s);
	PUMP(&i, &i, s.done);
	cr_assert_eq(poll(&fd, 1, 100), 0);
	while (rp_rc_trywait(t.rc))
		rp_rc_poll(t.rc, 64);
	cr_assert_eq(poll(&fd, 1, 30000), 1);
	PUMP(&i, &t, te.messages);
	rp_channel_close(te.c);
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* A descriptor that is always readable would cause a busy loop. */
Test(rc, an_idle_descriptor_sleeps)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct node *const n[2] = {&t, &i};
	struct rp_rc_attr attr;

	for (int j = 0; j < 2; j++) {
		attr = rig_attr(n[j]);
		attr.waits = true;
		node_open_with(n[j], &attr);
	}
	node_listen(&t);
	t.accept = &te;
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	for (int j = 0; j < 2; j++) {
		struct pollfd fd = {.fd = rp_rc_fd(n[j]->rc), .events = POLLIN};
		int polls = 0;

		while (rp_rc_trywait(n[j]->rc) || poll(&fd, 1, 0)) {
			rp_rc_poll(n[j]->rc, 64);
			cr_assert_lt(++polls, 100);
		}
		cr_assert_eq(poll(&fd, 1, 100), 0);
	}
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* --- many connections --- */

Test(rc, memory_of_300_connections, .timeout = 120)
{
	static struct end te[MANY], ie[MANY];
	struct node t = {.accept = te}, i = {0};
	uint8_t bytes[4168] = {0};
	size_t before, after;
	struct op s;
	pid_t pid;
	int status, fds[2];

	/* The initiators' memory, in another process, is not counted. */
	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(fds[0], &t.at, sizeof(t.at)) != sizeof(t.at))
			_exit(1);
		node_open(&i);
		/*
		 * Pause now and then: a slow target rejects requests beyond its
		 * half-open limit.
		 */
		for (int j = 0; j < MANY; j++) {
			const bool pause = j % 32 == 0;

			cr_assert_eq(node_connect(&i, &t, &ie[j]), 0);
			PUMP(&i, &i, !pause || ie[j].connected);
		}
		for (int j = 0; j < MANY; j++)
			PUMP(&i, &i, ie[j].connected);
		for (int j = 0; j < MANY; j++) {
			op_init(&s, RP_CHANNEL_SEND, bytes, sizeof(bytes));
			op_post(ie[j].c, &s);
			PUMP(&i, &i, s.done);
		}
		/*
		 * Poll all connections, because the target may have accepted
		 * them in another order.
		 */
		for (bool some = false; !some;) {
			rp_rc_poll(i.rc, 64);
			for (int j = 0; j < MANY; j++)
				some |= ie[j].messages || ie[j].lost;
		}
		_exit(0);
	}
	node_open(&t);
	node_listen(&t);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	cr_assert_eq(write(fds[1], &t.at, sizeof(t.at)), sizeof(t.at));
	for (int j = 0; j < MANY; j++)
		PUMP(&t, &t, te[j].messages == 1);
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	fprintf(stderr, "%zu bytes of heap for each of %d connections\n",
		(after - before) / MANY, MANY);
	/* A tcp receive of libfabric 2.x: 16 KiB, FI_TCP_MAX_RX_SIZE. */
	cr_assert_leq((after - before) / MANY, 32 * 1024);
	op_init(&s, RP_CHANNEL_SEND, bytes, 8);
	s.op.inject = true;
	op_post(te[MANY - 1].c, &s);
	waitpid(pid, &status, 0);
	for (int j = 0; j < MANY; j++) {
		PUMP(&t, &t, te[j].lost == 1);
		rp_channel_close(te[j].c);
	}
	rp_rc_close(t.rc);
}

Test(rc, without_waits_no_descriptor)
{
	struct node n = {0};

	node_open(&n);
	cr_assert_eq(rp_rc_fd(n.rc), -1);
	cr_assert(!rp_rc_busy(n.rc));
	node_listen(&n);
	cr_assert(rp_rc_busy(n.rc));
	rp_rc_close(n.rc);
}
