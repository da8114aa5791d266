// SPDX-License-Identifier: BSD-2-Clause
/* Examines bare connections whose regions are registered and closed meanwhile.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/base_conn_tally.h"

enum {
	KEY_WHOLE = 1001, /* registered when a connection exists already */
	KEY_CLOSED,
	KEY_READ,
	KEY_NONE,
};

static const struct wrong {
	const char *name;
	int key;
	uint64_t off;
	bool delivery;
} wrongs[] = {
	{"valid key, registered after the connection", KEY_WHOLE, 0, true},
	{"closed key", KEY_CLOSED, 0, false},
	{"closed key, FI_DELIVERY_COMPLETE", KEY_CLOSED, 0, true},
	{"out of bounds", KEY_WHOLE, 4096, false},
	{"out of bounds, FI_DELIVERY_COMPLETE", KEY_WHOLE, 4096, true},
	{"region for reads only", KEY_READ, 0, false},
	{"region for reads only, FI_DELIVERY_COMPLETE", KEY_READ, 0, true},
	{"key never given", KEY_NONE, 0, false},
	{"key never given, FI_DELIVERY_COMPLETE", KEY_NONE, 0, true},
};
#define WRONGS ((int)(sizeof(wrongs) / sizeof(wrongs[0])))

static const struct wrong *wrong; /* set before the processes are forked */

static void mr_target(struct conn_world *w, int number)
{
	struct fid_mr *whole, *read, *mr;
	struct tally t = {0};
	struct conn_event e;
	struct conn_node n;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	w->base = conn_addr(&n, w->mem);
	conn_step(w, 1);
	conn_accept(&n, NULL);
	whole = conn_reg(&n, w->mem, 4096, RIGHT, KEY_WHOLE);
	read = conn_reg(&n, w->mem, 4096, FI_REMOTE_READ, KEY_READ);
	mr = conn_reg(&n, w->mem, 4096, RIGHT, KEY_CLOSED);
	w->key[0] = fi_mr_key(whole);
	w->key[1] = fi_mr_key(mr);
	w->key[2] = fi_mr_key(read);
	w->key[3] = KEY_NONE;
	MUST(fi_close(&mr->fid));
	conn_step(w, 2);
	do {
		e = conn_event(&n, false, 0);
		tally_read(&n, &t);
	} while (!e.kind && atomic_load(&w->step) < 3);
	e.ms = (conn_now() - w->value[0]) / 1e3;
	conn_await_polling(w, 3, &n);
	printf("    target: %s, %d CQ entries\n", conn_event_text(&e), t.n);
}

static void mr_initiator(struct conn_world *w, int number)
{
	static char buf[64];
	struct tally t = {0};
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	double begun;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	begun = w->value[0] = conn_now();
	MUST(write_post(ep, buf, 64, w->base + wrong->off,
			w->key[wrong->key - KEY_WHOLE], 1,
			FI_COMPLETION |
				(wrong->delivery ? FI_DELIVERY_COMPLETE : 0)));
	MUST(write_post(ep, buf, 64, w->base, w->key[0], 2,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	do {
		e = conn_event(&n, false, 0);
		tally_read(&n, &t);
	} while (!e.kind && conn_now() - begun < 500e3);
	e.ms = (conn_now() - begun) / 1e3;
	tally_poll(&n, &t, 3, 100);
	printf("  %s (1), a valid write behind it (2):\n", wrong->name);
	tally_print("  initiator", &t);
	printf("    its EQ: %s\n", conn_event_text(&e));
	fflush(stdout);
	conn_step(w, 3);
}

/* Call fi_close(mr) in the middle of a write into the region. */
static void partial_target(struct conn_world *w, int number)
{
	struct conn_node n;
	struct fid_mr *mr;
	size_t before;
	double begun;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	w->base = conn_addr(&n, w->mem);
	mr = conn_reg(&n, w->mem, w->len, RIGHT, 7);
	w->key[0] = fi_mr_key(mr);
	conn_step(w, 1);
	conn_accept(&n, NULL);
	conn_step(w, 2);
	conn_await(w, 3);
	while (w->mem[0] != OLD)
		fi_cq_read(n.cq, NULL, 0);
	MUST(fi_close(&mr->fid));
	before = count_bytes(w->mem, w->len, OLD);
	for (begun = conn_now(); conn_now() - begun < 500e3;)
		fi_cq_read(n.cq, NULL, 0);
	printf("  fi_close(mr) when %zu of %zu bytes of a write were placed: "
	       "%zu more afterwards\n",
	       before, w->len, count_bytes(w->mem, w->len, OLD) - before);
	fflush(stdout);
	conn_step(w, 4);
}

static void partial_initiator(struct conn_world *w, int number)
{
	struct tally t = {0};
	struct conn_node n;
	struct fid_ep *ep;
	char *buf = malloc(w->len);

	if (!buf)
		MUST(-FI_ENOMEM);
	memset(buf, OLD, w->len);
	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	MUST(write_post(ep, buf, w->len, w->base, w->key[0], 1,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	conn_step(w, 3);
	while (atomic_load(&w->step) < 4)
		tally_read(&n, &t);
	tally_print("its initiator", &t);
}

/* Use a key of one connection on another. */
static void second_target(struct conn_world *w, int number)
{
	struct conn_node n;

	target_open(&n, w);
	conn_accept(&n, NULL);
	conn_accept(&n, NULL);
	while (atomic_load(&w->step) < 2)
		fi_cq_read(n.cq, NULL, 0);
}

static void second_initiator(struct conn_world *w, int number)
{
	static char buf[64];
	struct tally t = {0};
	struct fid_ep *ep[2];
	struct conn_node n;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	for (int i = 0; i < 2; i++)
		ep[i] = conn_connect(&n, NULL, w);
	for (int i = 0; i < 2; i++)
		MUST(write_post(ep[i], buf, 64, w->base, w->key[0], 1 + i,
				FI_COMPLETION | FI_DELIVERY_COMPLETE));
	tally_poll(&n, &t, 2, 1000);
	tally_print("one key on two connections of the domain", &t);
	conn_step(w, 2);
}

#define RACE_MS	    3000
#define RACE_WRITES 64

static struct conn_node race_node;
static char race_mem[4096];

static void *race_thread(void *arg)
{
	struct conn_world *w = arg;
	struct fid_mr *mr[64] = {0};
	uint64_t key = 0x100000, x = 88172645463325252ull;

	while (!atomic_load(&w->over)) {
		struct fid_mr **m = &mr[key % 64];

		if (*m)
			MUST(fi_close(&(*m)->fid));
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		*m = conn_reg(&race_node, race_mem, sizeof(race_mem), RIGHT,
			      x | 1ull << 40);
		key++;
	}
	w->value[2] = (double)(key - 0x100000);
	return NULL;
}

static void race_target(struct conn_world *w, int number)
{
	pthread_t thread;
	struct conn_event e = {0};
	int ends = 0;

	target_open(&race_node, w);
	conn_accept(&race_node, NULL);
	conn_step(w, 2);
	MUST(-pthread_create(&thread, NULL, race_thread, w));
	while (!atomic_load(&w->over)) {
		e = conn_event(&race_node, true, 1);
		if (e.kind == FI_SHUTDOWN && !atomic_load(&w->over))
			ends++;
	}
	pthread_join(thread, NULL);
	printf("  %.0f regions registered and closed by a second thread, %d "
	       "connections ended\n",
	       w->value[2], ends);
}

static void race_initiator(struct conn_world *w, int number)
{
	static char buf[64];
	const double begun = conn_now();
	struct tally t = {0};
	struct conn_node n;
	struct fid_ep *ep;
	int done = 0;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	while (!t.failed && conn_now() - begun < RACE_MS * 1e3) {
		for (int i = 0; i < RACE_WRITES; i++)
			MUST(write_post(ep, buf, 64, w->base, w->key[0], 1,
					FI_COMPLETION | FI_DELIVERY_COMPLETE));
		t.n = 0;
		tally_poll(&n, &t, RACE_WRITES, 2000);
		done += t.n;
		if (t.n < RACE_WRITES)
			break;
	}
	printf("  %d writes with a valid key meanwhile, %d failed%s\n", done,
	       t.failed, t.n == RACE_WRITES ? "" : ", then no answer");
	fflush(stdout);
	atomic_store(&w->over, 1);
}

int conn_mr(const char *prov, int argc, char **argv)
{
	int ret = 0;

	printf("%s, regions:\n", prov);
	for (wrong = wrongs; wrong < wrongs + WRONGS; wrong++)
		ret |= conn_run(prov, 1u << 20, mr_target, mr_initiator, 1);
	ret |= conn_run(prov, LEN, partial_target, partial_initiator, 1);
	ret |= conn_run(prov, 1u << 20, second_target, second_initiator, 1);
	/* The target may crash in this experiment: that is a result, too. */
	conn_run(prov, 1u << 20, race_target, race_initiator, 1);
	return ret;
}
