// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times, in turns, calls after which the client goes on at the acknowledgement,
 * and calls after which it goes on at the reply:
 *
 *   rpc PATH power|process|none [ROUNDS]
 *
 * A child process is the server and creates PATH.0. Prints the median of all
 * rounds, in microseconds for one call until all calls have replies, and the
 * ratio.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rpmem_rpc.h>

#define EACH	100u /* calls of one round */
#define LONGEST 65536u
#define SIZES	3u
#define LOADS	2u

static const size_t sizes[SIZES] = {32, 1024, LONGEST};
static const unsigned int loads[LOADS] = {100, 0}; /* us of processing */
static unsigned char bytes[LONGEST];
static enum rpmem_pool_class required;

static void fail(const char *what)
{
	fprintf(stderr, "rpc: %s: %s\n", what, rpmem_rpc_error());
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The first byte of a call is the index of its load. */
static void serve(const char *path, int to)
{
	const struct rpmem_rpc_server_attr attr = {
		.size = sizeof(attr),
		.clients = 1,
		.ring = 16 << 20,
		.required = required,
	};
	struct rpmem_rpc_server *srv;
	struct rpmem_rpc_call *call;
	uint16_t port;

	if (rpmem_rpc_listen(&srv, path, &attr))
		fail("listen");
	port = rpmem_rpc_port(srv);
	if (write(to, &port, sizeof(port)) != sizeof(port))
		exit(1);
	while (rpmem_rpc_next(srv, &call, -1) > 0) {
		const unsigned char load = *(const unsigned char *)call->buf;
		const double until =
			now_us() + (load < LOADS ? loads[load] : 0);

		while (now_us() < until)
			; /* processing uses a CPU */
		if (rpmem_rpc_reply(srv, call, &load, 1))
			fail("reply");
	}
	exit(0);
}

static void coupled(struct rpmem_rpc *rpc, size_t len)
{
	unsigned char reply;
	size_t n;

	for (unsigned int i = 0; i < EACH; i++) {
		n = 1;
		if (rpmem_rpc_call(rpc, bytes, len, &reply, &n))
			fail("call");
	}
}

/* Each call is sent at the acknowledgement of the previous one. */
static void send_at_acknowledgement(struct rpmem_rpc *rpc, size_t len)
{
	static struct rpmem_rpc_op ops[EACH];
	struct rpmem_rpc_op *done[16];
	unsigned char replies[EACH];
	unsigned int begun = 0, acked = 0, replied = 0;
	int n;

	while (replied < EACH) {
		if (begun < EACH && acked == begun) {
			ops[begun] = (struct rpmem_rpc_op){
				.buf = bytes,
				.len = len,
				.reply = &replies[begun],
				.reply_max = 1,
				.flags = RPMEM_RPC_NOTIFY,
			};
			n = rpmem_rpc_submit(rpc, &ops[begun]);
			begun += !n;
			if (n && n != -EAGAIN)
				fail("submit");
		}
		n = rpmem_rpc_poll(rpc, done, 16, -1);
		if (n < 0)
			fail("poll");
		for (int i = 0; i < n; i++) {
			const unsigned int at =
				(unsigned int)(done[i] - ops) + 1;

			if (done[i]->result)
				fail("a call");
			if (at > acked)
				acked = at;
			replied += done[i]->state == RPMEM_RPC_DONE;
		}
	}
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(struct rpmem_rpc *rpc, unsigned int rounds)
{
	double *us[2] = {calloc(rounds, sizeof(double)),
			 calloc(rounds, sizeof(double))};
	double start;

	if (!us[0] || !us[1])
		exit(1);
	printf("%10s %10s %14s %14s %8s\n", "bytes", "load us", "after reply",
	       "after ack", "ratio");
	for (unsigned int l = 0; l < LOADS; l++)
		for (unsigned int s = 0; s < SIZES; s++) {
			bytes[0] = (unsigned char)l;
			for (unsigned int r = 0; r < rounds; r++) {
				start = now_us();
				coupled(rpc, sizes[s]);
				us[0][r] = (now_us() - start) / EACH;
				start = now_us();
				send_at_acknowledgement(rpc, sizes[s]);
				us[1][r] = (now_us() - start) / EACH;
			}
			for (int i = 0; i < 2; i++)
				qsort(us[i], rounds, sizeof(double), compare);
			printf("%10zu %10u %14.2f %14.2f %8.2f\n", sizes[s],
			       loads[l], us[0][rounds / 2], us[1][rounds / 2],
			       us[0][rounds / 2] / us[1][rounds / 2]);
		}
	free(us[0]);
	free(us[1]);
}

int main(int argc, char **argv)
{
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	struct rpmem_rpc_attr attr = {.size = sizeof(attr)};
	struct rpmem_rpc *rpc;
	char where[4096];
	const char *name;
	uint16_t port;
	pid_t child;
	int fds[2];

	if (argc < 3 || pipe(fds))
		return 2;
	required = !strcmp(argv[2], "power")  ? RPMEM_POOL_POWER
		   : !strcmp(argv[2], "none") ? RPMEM_POOL_NONE
					      : RPMEM_POOL_PROCESS;
	attr.required = required;
	child = fork();
	if (child == 0)
		serve(argv[1], fds[1]);
	close(fds[1]);
	if (child < 0 || read(fds[0], &port, sizeof(port)) != sizeof(port))
		return 1;
	name = strrchr(argv[1], '/');
	snprintf(where, sizeof(where), "127.0.0.1:%u:%s", port,
		 name ? name + 1 : argv[1]);
	if (rpmem_rpc_connect(&rpc, where, &attr) ||
	    rpmem_rpc_query(rpc, &info))
		fail("connect");
	printf("method %s, class %s\n", info.method,
	       info.reached == RPMEM_POOL_POWER	 ? "power"
	       : info.reached == RPMEM_POOL_NONE ? "none"
						 : "process");
	measure(rpc, argc > 3 ? (unsigned int)atoi(argv[3]) : 11);
	if (rpmem_rpc_query(rpc, &info) == 0)
		printf("replies read from the ring: %llu\n",
		       (unsigned long long)info.peeks);
	rpmem_rpc_close(rpc, 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
