// SPDX-License-Identifier: BSD-2-Clause
/* Examines connection setup: private data, refusals, silent and dead peers. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fabtests/benchmarks/base_conn.h"

static const size_t sizes[] = {0, 1, 64, 128, 255, 256, 257, 512};
#define SIZES  ((int)(sizeof(sizes) / sizeof(sizes[0])))
#define CM_MAX 256u /* fi_connect() alone refuses longer data */

static double deadline_ms = 3000; /* ms */

static void data_fill(uint8_t *data, size_t len, uint8_t seed)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(seed + i);
}

static const char *data_text(const struct conn_event *e, uint8_t seed)
{
	uint8_t want[CONN_CM_DATA];

	data_fill(want, sizeof(want), seed);
	return !e->len			       ? ""
	       : memcmp(e->data, want, e->len) ? ", other bytes"
					       : ", the same bytes";
}

static struct conn_event await_request(struct conn_node *n)
{
	struct conn_event e;

	do {
		e = conn_event(n, true, 20000);
	} while (e.kind && e.kind != FI_CONNREQ);
	if (!e.kind)
		MUST(-FI_ETIMEDOUT);
	return e;
}

static void data_target(struct conn_world *w, int number)
{
	uint8_t data[CONN_CM_DATA];
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	conn_step(w, 1);
	for (int i = 0; i < 2 * SIZES; i++) {
		const size_t size = sizes[i / 2];

		if (size > CM_MAX)
			break;
		e = await_request(&n);
		printf("  fi_connect() with %3zu B: FI_CONNREQ has %zu%s\n",
		       size, e.len, data_text(&e, 1));
		fflush(stdout);
		data_fill(data, size, 2);
		if (i % 2) {
			MUST(fi_reject(n.pep, e.info->handle, data, size));
		} else {
			ep = conn_ep_open(&n, e.info, NULL);
			MUST(fi_accept(ep, data, size));
		}
	}
}

static void data_initiator(struct conn_world *w, int number)
{
	uint8_t data[CONN_CM_DATA];
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	size_t most = 0, len = sizeof(most);
	int ret;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	data_fill(data, sizeof(data), 1);
	for (int i = 0; i < 2 * SIZES; i++) {
		const size_t size = sizes[i / 2];

		ep = conn_ep_open(&n, n.info, NULL);
		if (!i && !fi_getopt(&ep->fid, FI_OPT_ENDPOINT,
				     FI_OPT_CM_DATA_SIZE, &most, &len))
			printf("  FI_OPT_CM_DATA_SIZE %zu\n", most);
		ret = fi_connect(ep, w->addr, data, size);
		if (ret || size > CM_MAX) {
			printf("  fi_connect() with %3zu B: %s\n", size,
			       fi_strerror(-ret));
		} else {
			e = conn_event(&n, true, 20000);
			printf("  %s of %3zu B: %s%s\n",
			       i % 2 ? "fi_reject()" : "fi_accept()", size,
			       conn_event_text(&e), data_text(&e, 2));
		}
		fflush(stdout);
		fi_close(&ep->fid);
	}
}

/* Listen on a socket that accepts nothing, or that is closed again. */
static int listen_unanswered(struct conn_world *w, int backlog)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	MUST(bind(fd, (struct sockaddr *)&sa, sizeof(sa)));
	if (backlog >= 0)
		MUST(listen(fd, backlog));
	MUST(getsockname(fd, (struct sockaddr *)&sa, &len));
	memcpy(w->addr, &sa, sizeof(sa));
	return fd;
}

/* Fill the accept queue: the kernel then drops a SYN, as a lost host would. */
static void backlog_fill(struct conn_world *w)
{
	for (int i = 0; i < 4; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		if (connect(fd, (struct sockaddr *)w->addr,
			    sizeof(struct sockaddr_in)) &&
		    errno != EINPROGRESS)
			MUST(-errno);
	}
	usleep(100000);
}

static void note_alarm(int sig)
{
}

static void connect_and_wait(struct conn_node *n, struct conn_world *w,
			     const char *to)
{
	struct fid_ep *ep = conn_ep_open(n, n->info, NULL);
	const struct itimerval limit = {.it_value.tv_sec =
						(time_t)(deadline_ms / 1000)};
	const struct itimerval none = {0};
	double begun, called;
	struct conn_event e;
	int ret;

	/*
	 * fi_connect() of sockets blocks: the timer's signal interrupts the
	 * connect(2) inside it.
	 */
	setitimer(ITIMER_REAL, &limit, NULL);
	begun = conn_now();
	ret = fi_connect(ep, w->addr, NULL, 0);
	called = conn_now();
	setitimer(ITIMER_REAL, &none, NULL);
	printf("  %s: fi_connect() returns %s after %.3f ms", to,
	       ret ? fi_strerror(-ret) : "0", (called - begun) / 1e3);
	if (!ret) {
		e = conn_event(n, true, deadline_ms);
		printf(", then %s", conn_event_text(&e));
	}
	printf("\n");
	fflush(stdout);
	fi_close(&ep->fid);
}

static void never_called(struct conn_world *w, int number)
{
}

static void refused_initiator(struct conn_world *w, int number)
{
	struct sigaction sa = {.sa_handler = note_alarm};
	struct conn_node n;
	int fd;

	sigaction(SIGALRM, &sa, NULL);
	conn_open(&n, w->prov, false);
	fd = listen_unanswered(w, -1);
	close(fd);
	connect_and_wait(&n, w, "closed port");
	fd = listen_unanswered(w, 16);
	connect_and_wait(&n, w, "listener that never accepts");
	close(fd);
	fd = listen_unanswered(w, 0);
	backlog_fill(w);
	connect_and_wait(&n, w, "listener with a full backlog");
	close(fd);
}

#define STRANGERS 200

static int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Listen while TCP connections arrive that do not speak the base's protocol. */
static void strangers_target(struct conn_world *w, int number)
{
	static const char *const what[] = {"connected and say nothing",
					   "have sent 64 bytes of 0xff",
					   "have closed"};
	struct conn_event e;
	struct conn_node n;
	int before;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	conn_event(&n, true, 10);
	before = count_descriptors();
	for (int i = 0; i < 3; i++) {
		conn_step(w, 2 * i + 1);
		conn_await(w, 2 * i + 2);
		e = conn_event(&n, true, 300);
		printf("  %d strangers %s: %d descriptors more, EQ: %s\n",
		       STRANGERS, what[i], count_descriptors() - before,
		       conn_event_text(&e));
		fflush(stdout);
	}
}

static void strangers_initiator(struct conn_world *w, int number)
{
	char bytes[64];
	int fd[STRANGERS];

	memset(bytes, 0xff, sizeof(bytes));
	conn_await(w, 1);
	for (int i = 0; i < STRANGERS; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		MUST(connect(fd[i], (struct sockaddr *)w->addr,
			     sizeof(struct sockaddr_in)));
	}
	conn_step(w, 2);
	conn_await(w, 3);
	for (int i = 0; i < STRANGERS; i++)
		(void)!send(fd[i], bytes, sizeof(bytes), MSG_NOSIGNAL);
	conn_step(w, 4);
	conn_await(w, 5);
	for (int i = 0; i < STRANGERS; i++)
		close(fd[i]);
	conn_step(w, 6);
}

#define CHURN 200

/* Count the events of initiators that close as soon as they are connected. */
static void churn_target(struct conn_world *w, int number)
{
	int requests = 0, connected = 0, shutdown = 0, errors = 0;
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	conn_step(w, 1);
	do {
		e = conn_event(&n, true, 1000);
		if (e.kind == FI_CONNREQ) {
			ep = conn_ep_open(&n, e.info, NULL);
			errors += fi_accept(ep, NULL, 0) != 0;
			requests++;
		}
		connected += e.kind == FI_CONNECTED;
		shutdown += e.kind == FI_SHUTDOWN;
	} while (e.kind || !atomic_load(&w->over));
	printf("  %d connections, each closed by the initiator when it is "
	       "connected: target has %d FI_CONNREQ, %d FI_CONNECTED, %d "
	       "FI_SHUTDOWN, %d failed fi_accept()\n",
	       CHURN, requests, connected, shutdown, errors);
}

static void churn_initiator(struct conn_world *w, int number)
{
	struct conn_node n;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	for (int i = 0; i < CHURN; i++)
		fi_close(&conn_connect(&n, NULL, w)->fid);
	atomic_store(&w->over, 1);
}

/* Action of one side; the other side reports the events that it gets. */
static enum action {
	DIES_LISTENING,
	DIES_REQUESTED,
	DIES_CONNECTED,
	TARGET_CLOSES,
	TARGET_SHUTS_DOWN,
	INITIATOR_CLOSES_EARLY,
	INITIATOR_CLOSES,
	INITIATOR_CLOSES_CQ,
	INITIATOR_SHUTS_DOWN,
	INITIATOR_DIES,
	ACTIONS
} action;

static const char *const actions[] = {
	[DIES_LISTENING] = "target killed before it reads its EQ; initiator",
	[DIES_REQUESTED] = "target killed after FI_CONNREQ; initiator",
	[DIES_CONNECTED] = "target killed when connected; initiator",
	[TARGET_CLOSES] = "target fi_close(ep); initiator",
	[TARGET_SHUTS_DOWN] = "target fi_shutdown(ep); initiator",
	[INITIATOR_CLOSES_EARLY] =
		"initiator fi_close(ep) before fi_accept(); target",
	[INITIATOR_CLOSES] =
		"initiator fi_close(ep), target polls the EQ alone; target",
	[INITIATOR_CLOSES_CQ] = "initiator fi_close(ep); target",
	[INITIATOR_SHUTS_DOWN] = "initiator fi_shutdown(ep); target",
	[INITIATOR_DIES] = "initiator killed; target",
};

static void do_step(struct conn_world *w, int step)
{
	w->value[0] = conn_now();
	conn_step(w, step);
}

static void exit_at_step(struct conn_world *w, int step)
{
	do_step(w, step);
	kill(getpid(), SIGKILL);
}

static void report_error(struct conn_world *w, struct conn_node *n,
			 bool with_cq)
{
	struct conn_event e = conn_event(n, with_cq, deadline_ms);

	e.ms = (conn_now() - w->value[0]) / 1e3;
	printf("  %s: %s\n", actions[action], conn_event_text(&e));
	fflush(stdout);
}

static void end_target(struct conn_world *w, int number)
{
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;
	int ret;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	conn_step(w, 1);
	if (action == DIES_LISTENING) {
		conn_await(w, 2);
		exit_at_step(w, 3);
	}
	e = await_request(&n);
	if (action == DIES_REQUESTED) {
		conn_await(w, 2);
		exit_at_step(w, 3);
	}
	ep = conn_ep_open(&n, e.info, NULL);
	if (action == INITIATOR_CLOSES_EARLY) {
		conn_await(w, 3);
		ret = fi_accept(ep, NULL, 0);
		e = conn_event(&n, true, 1000);
		printf("  %s: fi_accept() returns %s, first %s\n",
		       actions[action], ret ? fi_strerror(-ret) : "0",
		       conn_event_text(&e));
		report_error(w, &n, true);
		return;
	}
	MUST(fi_accept(ep, NULL, 0));
	conn_event(&n, true, 20000);
	conn_await(w, 2);
	if (action == DIES_CONNECTED)
		exit_at_step(w, 3);
	if (action == TARGET_CLOSES) {
		do_step(w, 3);
		fi_close(&ep->fid);
	} else if (action == TARGET_SHUTS_DOWN) {
		do_step(w, 3);
		fi_shutdown(ep, 0);
	} else {
		conn_step(w, 3);
		conn_await(w, 4);
		report_error(w, &n, action != INITIATOR_CLOSES);
		return;
	}
	conn_await(w, 5);
}

static void end_initiator(struct conn_world *w, int number)
{
	struct conn_node n;
	struct fid_ep *ep;

	conn_await(w, 1);
	conn_open(&n, w->prov, false);
	ep = conn_ep_open(&n, n.info, NULL);
	MUST(fi_connect(ep, w->addr, NULL, 0));
	if (action == DIES_LISTENING || action == DIES_REQUESTED ||
	    action == INITIATOR_CLOSES_EARLY) {
		conn_event(&n, true, 300);
		conn_step(w, 2);
		if (action == INITIATOR_CLOSES_EARLY) {
			do_step(w, 3);
			fi_close(&ep->fid);
			return;
		}
		conn_await(w, 3);
		report_error(w, &n, true);
		return;
	}
	conn_event(&n, true, 20000);
	conn_step(w, 2);
	conn_await(w, 3);
	switch (action) {
	case INITIATOR_CLOSES:
	case INITIATOR_CLOSES_CQ:
		do_step(w, 4);
		fi_close(&ep->fid);
		break;
	case INITIATOR_SHUTS_DOWN:
		do_step(w, 4);
		fi_shutdown(ep, 0);
		break;
	case INITIATOR_DIES:
		exit_at_step(w, 4);
		break;
	default:
		report_error(w, &n, true);
		conn_step(w, 5);
		return;
	}
	usleep((useconds_t)(deadline_ms * 1000) / 2);
}

int conn_cm(const char *prov, int argc, char **argv)
{
	int ret;

	if (argc > 0)
		deadline_ms = atof(argv[0]) * 1000;
	printf("%s, CM private data:\n", prov);
	ret = conn_run(prov, 0, data_target, data_initiator, 1);
	printf("%s, no connection, waiting %.0f s:\n", prov,
	       deadline_ms / 1000);
	ret |= conn_run(prov, 0, never_called, refused_initiator, 1);
	printf("%s, ends:\n", prov);
	for (action = 0; action < ACTIONS; action++)
		ret |= conn_run(prov, 0, end_target, end_initiator, 1);
	ret |= conn_run(prov, 0, strangers_target, strangers_initiator, 1);
	ret |= conn_run(prov, 0, churn_target, churn_initiator, 1);
	return ret;
}
