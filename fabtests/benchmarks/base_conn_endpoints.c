// SPDX-License-Identifier: BSD-2-Clause
/*
 * Examines connected endpoints of a bare base: messages without a receive, and
 * fi_close() with operations in flight.
 */
#include "config.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <netinet/in.h>

#include "fabtests/benchmarks/base_conn_tally.h"

/* ---- messages that arrive when no receive is posted ---- */

#define MESSAGES 64

static size_t message_size(int i)
{
	return i == MESSAGES - 1 ? CONN_SLOT : (size_t)i * 66 + 1;
}

static void waiting_target(struct conn_world *w, int number)
{
	static char buf[MESSAGES][CONN_SLOT];
	struct fi_cq_data_entry done;
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	int got = 0, wrong = 0, posted = 2;
	double begun;

	target_open(&n, w);
	ep = conn_accept(&n, NULL);
	for (int i = 0; i < posted; i++)
		MUST(fi_recv(ep, buf[i], CONN_SLOT, NULL, 0, buf[i]));
	conn_step(w, 2);
	conn_await(w, 3);
	/* From here on the initiator's third message waits for a receive. */
	for (begun = conn_now(); got < MESSAGES && conn_now() - begun < 10e6;) {
		ssize_t ret = fi_cq_read(n.cq, &done, 1);

		if (ret == 1) {
			wrong += done.len != message_size(got);
			for (size_t i = 0; i < done.len; i++)
				wrong += buf[got][i] != (char)(got + 1);
			got++;
		} else if (ret != -FI_EAGAIN) {
			MUST(ret);
		}
		if (posted < MESSAGES &&
		    conn_now() - begun > 200e3 + 2e3 * posted) {
			MUST(fi_recv(ep, buf[posted], CONN_SLOT, NULL, 0,
				     buf[posted]));
			posted++;
		}
		if (conn_now() - begun < 200e3)
			w->value[1] = got;
	}
	printf("  2 receives posted for %d messages of 1 to %u B: %.0f arrive "
	       "in 200 ms, with a further receive every 2 ms %d in order, %d "
	       "bytes wrong\n",
	       MESSAGES, CONN_SLOT, w->value[1], got, wrong);
	e = conn_event(&n, true, 100);
	printf("  and then: %s\n", conn_event_text(&e));
	fflush(stdout);

	/* The initiator writes after a message that has no receive yet. */
	memset(w->mem, 0, 8192);
	conn_step(w, 4);
	conn_await(w, 5);
	for (begun = conn_now(); conn_now() - begun < 200e3;)
		fi_cq_read(n.cq, NULL, 0);
	printf("  writes behind a waiting message, in 200 ms: %s\n",
	       w->mem[0] || w->mem[4096] ? "placed" : "not placed");
	MUST(fi_recv(ep, buf[0], CONN_SLOT, NULL, 0, NULL));
	for (begun = conn_now(); conn_now() - begun < 200e3;)
		fi_cq_read(n.cq, &done, 1);
	printf("  and when it has been received: %s\n",
	       w->mem[0] && w->mem[4096] ? "placed" : "not placed");
	fflush(stdout);
	conn_step(w, 6);

	/* Send a message to the initiator, which has no receive posted. */
	conn_await(w, 7);
	MUST(fi_inject(ep, buf[0], CONN_REPLY, 0));
	conn_step(w, 8);
	while (atomic_load(&w->step) < 9)
		fi_cq_read(n.cq, NULL, 0);
	/* The next message is longer than its receive. */
	MUST(fi_recv(ep, buf[0], 64, NULL, 0, context_of(1)));
	conn_step(w, 10);
	{
		struct tally t = {0};

		e = conn_event(&n, false, 0);
		tally_poll(&n, &t, 1, 1000);
		tally_print("message of 100 B for a receive of 64 B, target",
			    &t);
		e = conn_event(&n, true, 500);
		printf("    and its EQ: %s\n", conn_event_text(&e));
		fflush(stdout);
	}
	conn_await(w, 11);
}

static void waiting_initiator(struct conn_world *w, int number)
{
	static char buf[MESSAGES][CONN_SLOT], reply[CONN_REPLY];
	struct tally t = {0};
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	for (int i = 0; i < MESSAGES; i++) {
		memset(buf[i], i + 1, CONN_SLOT);
		MUST(message_send(ep, buf[i], message_size(i), i + 1,
				  FI_COMPLETION));
	}
	tally_poll(&n, &t, MESSAGES, 100);
	printf("  the sender has %d completions of %d, %d errors, before it is "
	       "received\n",
	       t.done, MESSAGES, t.failed);
	fflush(stdout);
	conn_step(w, 3);
	while (atomic_load(&w->step) < 4)
		tally_read(&n, &t);

	MUST(message_send(ep, buf[0], 64, 1, 0));
	MUST(write_post(ep, buf[1], 64, w->base, w->key[0], 2, 0));
	MUST(write_post(ep, buf[1], 64, w->base + 4096, w->key[0], 3,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	conn_step(w, 5);
	while (atomic_load(&w->step) < 6)
		tally_read(&n, &t);
	conn_step(w, 7);
	conn_await(w, 8);

	/* An unreceived message may hold back acknowledgements. */
	memset(&t, 0, sizeof(t));
	usleep(50000);
	MUST(write_post(ep, buf[1], 64, w->base, w->key[0], 1,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	tally_poll(&n, &t, 1, 200);
	printf("  FI_DELIVERY_COMPLETE behind a message that the initiator has "
	       "no receive for, in 200 ms: %d completions\n",
	       t.n);
	MUST(fi_recv(ep, reply, sizeof(reply), NULL, 0, context_of(2)));
	tally_poll(&n, &t, 2, 200);
	tally_print("and with a receive", &t);
	conn_step(w, 9);
	conn_await(w, 10);
	MUST(message_send(ep, buf[0], 100, 1, 0));
	e = conn_event(&n, true, 1000);
	printf("  message of 100 B for a receive of 64 B, initiator: %s\n",
	       conn_event_text(&e));
	fflush(stdout);
	conn_step(w, 11);
}

#define FLOOD 20000

static void flood_target(struct conn_world *w, int number)
{
	struct conn_node n;

	target_open(&n, w);
	conn_accept(&n, NULL);
	conn_await(w, 2);
}

static void flood_initiator(struct conn_world *w, int number)
{
	static char buf[CONN_SLOT];
	struct conn_node n;
	struct tally t = {0};
	struct fid_ep *ep;
	ssize_t ret = 0;
	int i;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	for (i = 0; i < FLOOD && !ret; i++)
		ret = message_send(ep, buf, sizeof(buf), 1, FI_COMPLETION);
	tally_poll(&n, &t, FLOOD, 300);
	printf("  target that does nothing: %d messages of %u B posted, then "
	       "%s; %d complete\n",
	       ret ? i - 1 : i, CONN_SLOT,
	       ret ? fi_strerror((int)-ret) : "as many as were tried", t.done);
	conn_step(w, 2);
}

int conn_receives(const char *prov, int argc, char **argv)
{
	printf("%s, messages without a receive:\n", prov);
	return conn_run(prov, 1u << 20, waiting_target, waiting_initiator, 1) |
	       conn_run(prov, 0, flood_target, flood_initiator, 1);
}

/* ---- fi_close(ep) with operations in flight ---- */

#define WRITES 8
#define WRITE  (1u << 20)

static enum ending {
	INITIATOR_CLOSES,
	TARGET_CLOSES,
	TARGET_DIES
} ending;
static const char *const endings[] = {"initiator fi_close(ep)",
				      "target fi_close(ep)", "target killed"};

static void closing_target(struct conn_world *w, int number)
{
	struct tally t = {0};
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	double begun;
	size_t before;

	target_open(&n, w);
	ep = conn_accept(&n, NULL);
	conn_step(w, 2);
	conn_await(w, 3); /* the initiator has posted */
	if (ending == TARGET_DIES) {
		w->value[0] = conn_now();
		conn_step(w, 4);
		kill(getpid(), SIGKILL);
	}
	if (ending == TARGET_CLOSES) {
		before = count_bytes(w->mem, w->len, OLD);
		w->value[0] = conn_now();
		fi_close(&ep->fid);
		conn_step(w, 4);
	} else {
		conn_step(w, 4);
		conn_await(w, 5); /* closed, and buffers changed */
		before = count_bytes(w->mem, w->len, OLD);
	}
	e = conn_event(&n, true, 500);
	for (begun = conn_now(); conn_now() - begun < 300e3;)
		tally_read(&n, &t);
	printf("  target: bytes placed before %zu, afterwards %zu more, of the "
	       "buffer's later content %zu; %s\n",
	       before, count_bytes(w->mem, w->len, OLD) - before,
	       count_bytes(w->mem, w->len, NEW), conn_event_text(&e));
	tally_print("target", &t);
	conn_step(w, 6);
}

static void closing_initiator(struct conn_world *w, int number)
{
	static char small[65536], received[3][64];
	static char *buf, *read_into;
	struct tally before = {0}, at = {0}, later = {0}, closed = {0};
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	double begun, ms;

	conn_await(w, 1);
	buf = mmap(NULL, WRITE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	read_into = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED || read_into == MAP_FAILED)
		MUST(-FI_ENOMEM);
	memset(buf, OLD, WRITE);
	memset(small, OLD, sizeof(small));
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	for (int i = 0; i < 3; i++)
		MUST(fi_recv(ep, received[i], 64, NULL, 0,
			     context_of(101 + i)));
	for (int i = 0; i < WRITES; i++)
		MUST(write_post(ep, buf, WRITE, w->base + (uint64_t)i * WRITE,
				w->key[0], 1 + i,
				FI_COMPLETION | FI_DELIVERY_COMPLETE));
	MUST(write_post(ep, small, sizeof(small), w->base + 8 * WRITE,
			w->key[0], 11, 0)); /* unsignaled */
	MUST(fi_inject_write(ep, small, 64, 0, w->base + 9 * WRITE, w->key[0]));
	MUST(fi_read(ep, read_into, 4096, NULL, 0, w->base, w->key[0],
		     context_of(21)));
	MUST(message_send(ep, small, 64, 31, FI_COMPLETION));
	MUST(message_send(ep, small, 64, 32, 0)); /* unsignaled */
	MUST(fi_inject(ep, small, 64, 0));
	tally_poll(&n, &before, 256, 100);
	tally_print("initiator, before", &before);
	conn_step(w, 3);
	conn_await(w, 4);
	if (ending != INITIATOR_CLOSES) {
		e = conn_event(&n, false, 0);
		while (!e.kind && conn_now() - w->value[0] < 3e6) {
			tally_read(&n, &at);
			e = conn_event(&n, false, 0);
		}
		e.ms = (conn_now() - w->value[0]) / 1e3;
		printf("  initiator, EQ: %s\n", conn_event_text(&e));
		tally_poll(&n, &at, 256, 100);
		tally_print("initiator, CQ", &at);
	}
	begun = conn_now();
	MUST(fi_close(&ep->fid));
	ms = (conn_now() - begun) / 1e3;
	while (tally_read(&n, &closed))
		;
	memset(buf, NEW, WRITE);
	memset(small, NEW, sizeof(small));
	MUST(mprotect(buf, WRITE, PROT_NONE));
	MUST(mprotect(read_into, 4096, PROT_NONE));
	printf("  fi_close(ep) took %.3f ms\n", ms);
	tally_print("initiator, in the CQ when fi_close(ep) returns", &closed);
	conn_step(w, 5);
	tally_poll(&n, &later, 256, 300);
	tally_print("and with the buffers under mprotect(PROT_NONE)", &later);
	if (ending != TARGET_DIES)
		conn_await(w, 6);
}

static bool cut_all; /* false: only the newest: data, if a base has two */

/*
 * Break TCP connections of this process under the base, as a reset does: data
 * that the kernel has not sent is lost.
 */
static int sockets_cut(void)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};
	DIR *d = opendir("/proc/self/fd");
	int fds[64], n = 0, newest = 0;
	struct dirent *entry;

	while (d && (entry = readdir(d)) && n < 64) {
		struct sockaddr_in sa;
		socklen_t len = sizeof(sa);

		fds[n] = atoi(entry->d_name);
		if (getpeername(fds[n], (struct sockaddr *)&sa, &len) ||
		    sa.sin_family != AF_INET)
			continue;
		newest = fds[n] > newest ? fds[n] : newest;
		n++;
	}
	if (d)
		closedir(d);
	for (int i = 0; i < n; i++)
		if (cut_all || fds[i] == newest)
			MUST(connect(fds[i], &none, sizeof(none)));
	return cut_all ? n : 1;
}

static void cut_target(struct conn_world *w, int number)
{
	struct tally t = {0};
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	char buf[64];

	target_open(&n, w);
	ep = conn_accept(&n, NULL);
	MUST(fi_recv(ep, buf, sizeof(buf), NULL, 0, context_of(101)));
	conn_step(w, 2);
	while (w->mem[0] != OLD)
		fi_cq_read(n.cq, NULL, 0); /* completes the first write */
	conn_step(w, 3);
	conn_await(w, 4); /* connection broken, and a message sent */
	tally_poll(&n, &t, 1, 2000);
	tally_print("target", &t);
	printf("  target has %zu of %u bytes\n",
	       count_bytes(w->mem + 4096, w->len - 4096, OLD), WRITES * WRITE);
	e = conn_event(&n, true, 500);
	printf("  target: %s\n", conn_event_text(&e));
	fflush(stdout);
	conn_await_polling(w, 5, &n);
}

static void cut_initiator(struct conn_world *w, int number)
{
	struct tally first = {0}, t = {0};
	char *buf = malloc(WRITE);
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	ssize_t ret;
	int cut;

	if (!buf)
		MUST(-FI_ENOMEM);
	memset(buf, OLD, WRITE);
	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_connect(&n, NULL, w);
	conn_await(w, 2);
	MUST(write_post(ep, buf, 64, w->base, w->key[0], 9,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	tally_poll(&n, &first, 1, 1000);
	conn_await(w, 3);
	for (int i = 0; i < WRITES; i++)
		MUST(write_post(ep, buf, WRITE,
				w->base + 4096 + (uint64_t)i * WRITE, w->key[0],
				1 + i, FI_COMPLETION));
	tally_poll(&n, &t, WRITES, 200);
	tally_print("initiator, before the cut", &t);
	cut = sockets_cut();
	e = conn_event(&n, true, 500);
	printf("  initiator, %d TCP connections cut beneath the base: %s\n",
	       cut, conn_event_text(&e));
	ret = message_send(ep, buf, 64, 31, FI_COMPLETION);
	printf("  a send afterwards returns %s\n",
	       ret ? fi_strerror((int)-ret) : "0");
	conn_step(w, 4);
	tally_poll(&n, &t, WRITES + 1, 2500);
	tally_print("initiator", &t);
	conn_step(w, 5);
}

int conn_closing(const char *prov, int argc, char **argv)
{
	int ret = 0;

	for (ending = INITIATOR_CLOSES; ending <= TARGET_DIES; ending++) {
		printf("%s, %s; in flight 8 writes of 1 MiB (contexts 1 to 8), "
		       "an unsignaled write (11), an injected one, a read "
		       "(21), "
		       "a send (31), an unsignaled one (32), an injected one, "
		       "3 receives (101 to 103):\n",
		       prov, endings[ending]);
		ret |= conn_run(prov, LEN, closing_target, closing_initiator,
				1);
	}
	for (int i = 0; i < 2; i++) {
		cut_all = i;
		printf("%s, %s cut, with 8 writes of 1 MiB in flight (1 to 8), "
		       "then a message (31):\n",
		       prov,
		       i ? "every TCP connection" : "newest TCP connection");
		ret |= conn_run(prov, LEN, cut_target, cut_initiator, 1);
	}
	return ret;
}
