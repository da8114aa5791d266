// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times the example kv_server by the jobs of Duan et al., SC '21: YCSB A to F,
 * PageRank on a remote graph, and updates while the server is killed.
 *
 *   ycsb SERVER PATH power|process ycsb [WORKLOADS [ROUNDS [OPERATIONS]]]
 *   ycsb SERVER PATH power|process pagerank [GRAPHS [ITERATIONS]]
 *   ycsb SERVER PATH power|process recovery [ROUNDS [OPERATIONS]]
 *
 * SERVER is the program; the run creates PATH.store and PATH.0, ... Three ways
 * to call take turns with the same operations:
 *
 *   coupled    each operation ends at its reply
 *   durable    a get or scan ends at its reply, an update at its
 *              acknowledgement
 *   pipelined  each operation ends at its acknowledgement (as in rpc.c), and
 *              results of reads come later
 *
 * An operation begins when the previous one has ended. Figures are times until
 * all operations have replies.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rpmem_rpc.h>

#include "docs/examples/kv.h"
#include "fabtests/unit/seeded.h"
#include "util/clock.h"

#define RECORDS	 50000u
#define THETA	 0.99
#define SCAN_MAX 100u
#define SLOTS	 32u
#define REPLY                                                                  \
	(sizeof(struct kv_reply) +                                             \
	 SCAN_MAX * (sizeof(struct kv_pair) + KV_VALUE_MAX))
#define GRAPH (1ull << 40) /* key of a graph's node 0 */

enum way {
	COUPLED,
	DURABLE,
	PIPELINED,
	WAYS
};

struct slot {
	struct rpmem_rpc_op op;
	uint64_t number; /* index of the operation in its run */
	unsigned char *reply;
};

static struct slot slots[SLOTS];
static struct {
	const char *program, *path, *store, *required;
	unsigned int port;
	pid_t pid;
} server;
static struct rpmem_rpc *rpc;
static uint64_t records = RECORDS;
static double popularity[RECORDS]; /* cumulative distribution, by rank */

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "ycsb: %s: %s\n", what, why);
	if (server.pid > 0)
		kill(server.pid, SIGKILL);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *of, unsigned int n)
{
	qsort(of, n, sizeof(*of), compare);
	return of[n / 2];
}

/* Start the server; return the pipe that has its first line once it listens. */
static int start_server(void)
{
	char port[16];
	int fds[2];

	snprintf(port, sizeof(port), "%u", server.port);
	if (pipe(fds))
		fail("pipe", strerror(errno));
	server.pid = fork();
	if (server.pid == 0) {
		dup2(fds[1], 1);
		close(fds[0]);
		execl(server.program, server.program, server.path, port,
		      server.store,
		      strcmp(server.required, "power") ? "process" : NULL,
		      NULL);
		_exit(127);
	}
	close(fds[1]);
	return fds[0];
}

static void await_server(int fd)
{
	char line[64] = "";

	if (read(fd, line, sizeof(line) - 1) <= 0 ||
	    sscanf(line, "port %u", &server.port) != 1)
		fail(server.program, "it did not start");
	close(fd);
}

static void kill_server(void)
{
	kill(server.pid, SIGKILL);
	waitpid(server.pid, NULL, 0);
}

/* Returns 0 or a negative errno. */
static int try_connect(void)
{
	static const unsigned char id[RPMEM_RPC_ID] = "ycsb";
	const struct rpmem_rpc_attr attr = {
		.size = sizeof(attr),
		.id = id,
		.required = strcmp(server.required, "power")
				    ? RPMEM_POOL_PROCESS
				    : RPMEM_POOL_POWER,
	};
	const char *name = strrchr(server.path, '/');
	char where[4096];

	snprintf(where, sizeof(where), "127.0.0.1:%u:%s", server.port,
		 name ? name + 1 : server.path);
	return rpmem_rpc_connect(&rpc, where, &attr);
}

/* Function that consumes replies, or NULL. */
static void (*take)(uint64_t number, const struct kv_reply *r);

static void check_reply(const struct slot *s)
{
	const struct kv_reply *r = (const struct kv_reply *)(void *)s->reply;

	if (s->op.result)
		fail("a call", s->op.error);
	if (s->op.reply_len < sizeof(*r) || r->status)
		fail("a call", s->op.reply_len ? strerror((int)r->status)
					       : "an empty reply");
	if (take)
		take(s->number, r);
}

/* Operations of one run. */
struct run {
	enum way way;
	uint64_t begun, ended, acked;
};

static void poll_run(struct run *r)
{
	struct rpmem_rpc_op *done[SLOTS];
	const int n = rpmem_rpc_poll(rpc, done, SLOTS, -1);

	if (n < 0)
		fail("poll", rpmem_rpc_error());
	for (int i = 0; i < n; i++) {
		const struct slot *s = done[i]->context;

		if (s->number >= r->acked)
			r->acked = s->number + 1;
		if (done[i]->state == RPMEM_RPC_DONE) {
			check_reply(s);
			r->ended++;
		}
	}
}

static void begin(struct run *r, const struct kv_call *k)
{
	struct slot *s = &slots[r->begun % SLOTS];
	int ret;

	while (r->begun - r->ended >= SLOTS)
		poll_run(r);
	s->number = r->begun;
	s->op = (struct rpmem_rpc_op){
		.buf = k,
		.len = sizeof(*k) + k->len,
		.reply = s->reply,
		.reply_max = sizeof(struct kv_reply),
		.flags = RPMEM_RPC_NOTIFY,
		.context = s,
	};
	if (k->type <= KV_SCAN)
		s->op.reply_max += (k->type == KV_GET ? 1 : k->number) *
				   (sizeof(struct kv_pair) + KV_VALUE_MAX);
	while ((ret = rpmem_rpc_submit(rpc, &s->op)) == -EAGAIN)
		poll_run(r);
	if (ret)
		fail("submit", rpmem_rpc_error());
	r->begun++;
}

/* Begin an operation, and wait until it has ended as its way defines. */
static void run_operation(struct run *r, const struct kv_call *k)
{
	const int reply =
		r->way == COUPLED || (r->way == DURABLE && k->type <= KV_SCAN);

	begin(r, k);
	while (reply ? r->ended < r->begun : r->acked < r->begun)
		poll_run(r);
}

static void finish(struct run *r)
{
	while (r->ended < r->begun)
		poll_run(r);
}

/* The call for a key, with a value that depends on the key only. */
static struct kv_call *call_of(enum kv_type type, uint64_t key, uint64_t number)
{
	static _Alignas(8) char bytes[sizeof(struct kv_call) + KV_VALUE_MAX];
	struct kv_call *k = (struct kv_call *)(void *)bytes;

	*k = (struct kv_call){
		.key = key,
		.number = number,
		.type = type,
		.len = type == KV_PUT || type == KV_INSERT ? KV_VALUE_MAX : 0,
	};
	return k;
}

static void load(void)
{
	struct run r = {.way = PIPELINED};
	double sum = 0;

	for (uint64_t i = 0; i < RECORDS; i++) {
		run_operation(&r, call_of(KV_PUT, i, 0));
		sum += 1 / pow((double)(i + 1), THETA);
		popularity[i] = sum;
	}
	finish(&r);
}

static uint64_t zipf_rank(struct seeded *s)
{
	const double u =
		popularity[RECORDS - 1] *
		((double)(seeded_next(s) >> 11) / (double)(1ull << 53));
	uint64_t low = 0, high = RECORDS - 1;

	while (low < high) {
		const uint64_t mid = (low + high) / 2;

		if (popularity[mid] < u)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Popular keys are spread over all: 7919 has no factor of RECORDS. */
static uint64_t zipf_key(struct seeded *s)
{
	return zipf_rank(s) * 7919 % RECORDS;
}

static struct kv_call *next_call(char workload, struct seeded *s)
{
	const uint32_t percent = seeded_below(s, 100);

	switch (workload) {
	case 'A':
		return call_of(percent < 50 ? KV_GET : KV_PUT, zipf_key(s), 0);
	case 'B':
		return call_of(percent < 95 ? KV_GET : KV_PUT, zipf_key(s), 0);
	case 'C':
		return call_of(KV_GET, zipf_key(s), 0);
	case 'D':
		if (percent >= 95)
			return call_of(KV_INSERT, records++, 0);
		return call_of(KV_GET, records - 1 - zipf_rank(s), 0);
	case 'E':
		if (percent >= 95)
			return call_of(KV_INSERT, records++, 0);
		return call_of(KV_SCAN, zipf_key(s),
			       1 + seeded_below(s, SCAN_MAX));
	default:
		return call_of(percent < 50 ? KV_GET : KV_ADD, zipf_key(s), 1);
	}
}

/* Microseconds per operation of one run. */
static double time_ycsb(char workload, enum way way, uint64_t seed, unsigned n)
{
	struct seeded s = {.state = seed};
	struct run r = {.way = way};
	const double start = now_us();

	for (unsigned int i = 0; i < n; i++)
		run_operation(&r, next_call(workload, &s));
	finish(&r);
	return (now_us() - start) / n;
}

static void ycsb(const char *workloads, unsigned int rounds, unsigned int n)
{
	double *us[WAYS], m[WAYS];

	load();
	printf("%-8s %10s %10s %8s %10s %8s\n", "workload", "coupled",
	       "durable", "ratio", "pipelined", "ratio");
	for (; *workloads; workloads++) {
		for (int w = 0; w < WAYS; w++)
			us[w] = calloc(rounds, sizeof(double));
		for (unsigned int i = 0; i < rounds; i++)
			for (unsigned int w = 0; w < WAYS; w++) {
				/* Each round begins with another way. */
				const unsigned int way = (w + i) % WAYS;

				us[way][i] = time_ycsb(*workloads,
						       (enum way)way, i + 1, n);
			}
		for (int w = 0; w < WAYS; w++) {
			m[w] = median(us[w], rounds);
			free(us[w]);
		}
		printf("%-8c %10.2f %10.2f %8.2f %10.2f %8.2f\n", *workloads,
		       m[COUPLED], m[DURABLE], m[DURABLE] / m[COUPLED],
		       m[PIPELINED], m[PIPELINED] / m[COUPLED]);
		fflush(stdout);
	}
}

/* Graphs of the same sizes as those of the paper. */
static const struct graph {
	const char *name;
	uint32_t nodes, edges;
} graphs[] = {
	{"wordassociation", 10000, 72000},
	{"enron", 69000, 276000},
	{"dblp", 326000, 1615000},
};

static struct {
	const struct graph *of;
	uint32_t *degree, *first, *to; /* edges by node */
	double *rank, *next;
} pr;

/* Edges have random sources; popular targets have lower numbers. */
static void make_graph(const struct graph *g)
{
	struct seeded s = {.state = g->nodes};
	uint32_t *from = calloc(g->edges, sizeof(*from)), at = 0;

	pr.of = g;
	pr.degree = calloc(g->nodes, sizeof(*pr.degree));
	pr.first = calloc(g->nodes + 1ul, sizeof(*pr.first));
	pr.to = calloc(g->edges, sizeof(*pr.to));
	pr.rank = calloc(g->nodes, sizeof(*pr.rank));
	pr.next = calloc(g->nodes, sizeof(*pr.next));
	if (!from || !pr.degree || !pr.first || !pr.to || !pr.rank || !pr.next)
		fail(g->name, "out of memory");
	for (uint32_t e = 0; e < g->edges; e++) {
		from[e] = (uint32_t)seeded_below(&s, g->nodes);
		pr.first[from[e] + 1]++;
	}
	for (uint32_t n = 0; n < g->nodes; n++)
		pr.first[n + 1] += pr.first[n];
	for (uint32_t e = 0; e < g->edges; e++) {
		const double u =
			(double)(seeded_next(&s) >> 11) / (double)(1ull << 53);

		at = pr.first[from[e]] + pr.degree[from[e]]++;
		pr.to[at] = (uint32_t)(u * u * u * g->nodes);
	}
	free(from);
}

static void load_graph(void)
{
	struct run r = {.way = PIPELINED};

	for (uint32_t n = 0; n < pr.of->nodes; n++) {
		struct kv_call *k = call_of(KV_PUT, GRAPH + n, 0);

		k->len = pr.degree[n] * (uint32_t)sizeof(*pr.to);
		if (k->len > KV_VALUE_MAX)
			fail(pr.of->name, "a node has too many edges");
		memcpy(k + 1, pr.to + pr.first[n], k->len);
		run_operation(&r, k);
	}
	finish(&r);
}

/* Add the rank of a node to the targets of its edges, which the reply has. */
static void take_edges(uint64_t number, const struct kv_reply *reply)
{
	const uint64_t node = number % pr.of->nodes;
	struct kv_pair pair;
	uint32_t to;

	memcpy(&pair, reply + 1, sizeof(pair));
	if (pair.key != GRAPH + node ||
	    pair.len != pr.degree[node] * sizeof(to))
		fail(pr.of->name, "a node has other edges");
	for (uint32_t i = 0; i < pr.degree[node]; i++) {
		memcpy(&to, (const char *)(reply + 1) + sizeof(pair) + i * 4ul,
		       sizeof(to));
		pr.next[to] += pr.rank[node] / pr.degree[node];
	}
}

/* Seconds of all iterations; *sum lets the caller compare the ways. */
static double time_pagerank(enum way way, unsigned int iterations, double *sum)
{
	const uint32_t nodes = pr.of->nodes;
	const double start = now_us();

	for (uint32_t n = 0; n < nodes; n++)
		pr.rank[n] = 1.0 / nodes;
	take = take_edges;
	for (unsigned int i = 0; i < iterations; i++) {
		struct run r = {.way = way};

		memset(pr.next, 0, nodes * sizeof(*pr.next));
		for (uint32_t n = 0; n < nodes; n++)
			run_operation(&r, call_of(KV_GET, GRAPH + n, 0));
		finish(&r);
		for (uint32_t n = 0; n < nodes; n++)
			pr.rank[n] = 0.15 / nodes + 0.85 * pr.next[n];
	}
	take = NULL;
	*sum = 0;
	for (uint32_t n = 0; n < nodes; n++)
		*sum += pr.rank[n] * (n % 1000 + 1);
	return (now_us() - start) / 1e6;
}

static void pagerank(const char *names, unsigned int iterations)
{
	double s[2], sum[2];

	printf("%-16s %10s %10s %8s\n", "graph", "coupled", "pipelined",
	       "ratio");
	for (size_t i = 0; i < sizeof(graphs) / sizeof(*graphs); i++) {
		if (!strstr(names, graphs[i].name))
			continue;
		make_graph(&graphs[i]);
		load_graph();
		s[0] = time_pagerank(COUPLED, iterations, &sum[0]);
		s[1] = time_pagerank(PIPELINED, iterations, &sum[1]);
		if (sum[0] < sum[1] || sum[0] > sum[1])
			fail(graphs[i].name, "the ranks differ");
		printf("%-16s %10.2f %10.2f %8.2f\n", graphs[i].name, s[0],
		       s[1], s[1] / s[0]);
		fflush(stdout);
		free(pr.degree);
		free(pr.first);
		free(pr.to);
		free(pr.rank);
		free(pr.next);
	}
}

/* Whether the server is killed in operation i: in one of `every`, by a seed. */
static int server_is_killed_at(uint64_t i, unsigned int every)
{
	struct seeded s = {.state = i / every};

	return i % every == seeded_below(&s, every);
}

/* The call of operation i: a put; if puts is 0, a get or a put at random. */
static struct kv_call *recovery_call(uint64_t i, int puts)
{
	struct seeded s = {.state = i + 1};
	const uint64_t key = zipf_key(&s);

	return call_of(puts || seeded_below(&s, 2) ? KV_PUT : KV_GET, key, 0);
}

/* Connect again, with the pauses of a client whose calls are replayed. */
static void connect_again(void)
{
	uint64_t ms = 0;

	rpmem_rpc_close(rpc, 0);
	while (try_connect()) {
		ms = rp_pause_ms(ms);
		usleep((useconds_t)ms * 1000);
	}
}

/*
 * Seconds of n operations, in some of which the server is killed. Without a
 * redo log (COUPLED) the client sends the call again until it has a reply. With
 * a redo log (DURABLE) it sends no acknowledged call again: the next server
 * processes the calls in its rings.
 */
static double time_crashes(enum way way, unsigned int n, unsigned int every,
			   int puts)
{
	struct run r = {.way = way};
	const double start = now_us();
	int fd = -1;

	for (uint64_t i = 0; i < n; i++) {
		if (server_is_killed_at(i, every)) {
			begin(&r, recovery_call(i, puts));
			kill_server();
			if (fd >= 0)
				close(fd);
			fd = start_server();
			if (way == DURABLE)
				continue;
			connect_again();
			r.ended = r.acked = r.begun;
		}
		run_operation(&r, recovery_call(i, puts));
	}
	finish(&r);
	if (fd >= 0)
		close(fd);
	return (now_us() - start) / 1e6;
}

static void recovery(unsigned int rounds, unsigned int n)
{
	static const unsigned int every[] = {1000, 200, 100};
	double *s[2] = {calloc(rounds, sizeof(double)),
			calloc(rounds, sizeof(double))};
	double m[2];

	if (!s[0] || !s[1])
		fail("recovery", "out of memory");
	load();
	printf("%-12s %8s %10s %10s %8s\n", "availability", "puts%", "resend",
	       "replay", "ratio");
	for (size_t e = 0; e < sizeof(every) / sizeof(*every); e++)
		for (int puts = 0; puts < 2; puts++) {
			for (unsigned int r = 0; r < rounds; r++) {
				s[0][r] = time_crashes(COUPLED, n, every[e],
						       puts);
				s[1][r] = time_crashes(DURABLE, n, every[e],
						       puts);
			}
			m[0] = median(s[0], rounds);
			m[1] = median(s[1], rounds);
			printf("%-12.1f %8d %10.2f %10.2f %8.2f\n",
			       100 - 100.0 / every[e], puts ? 100 : 50, m[0],
			       m[1], m[1] / m[0]);
			fflush(stdout);
		}
	free(s[0]);
	free(s[1]);
}

static unsigned int number_of(int argc, char **argv, int at, unsigned int other)
{
	return argc > at ? (unsigned int)atoi(argv[at]) : other;
}

int main(int argc, char **argv)
{
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	static char store[4096];

	if (argc < 5)
		return 2;
	server.program = argv[1];
	server.path = argv[2];
	server.required = argv[3];
	snprintf(store, sizeof(store), "%s.store", server.path);
	server.store = store;
	for (unsigned int i = 0; i < SLOTS; i++)
		slots[i].reply = malloc(REPLY);
	await_server(start_server());
	if (try_connect() || rpmem_rpc_query(rpc, &info))
		fail("connect", rpmem_rpc_error());
	printf("# method %s, class %s\n", info.method,
	       info.reached == RPMEM_POOL_POWER ? "power" : "process");
	if (!strcmp(argv[4], "ycsb"))
		ycsb(argc > 5 ? argv[5] : "ABCDEF",
		     number_of(argc, argv, 6, 11),
		     number_of(argc, argv, 7, 1000));
	else if (!strcmp(argv[4], "pagerank"))
		pagerank(argc > 5 ? argv[5] : "wordassociation,enron,dblp",
			 number_of(argc, argv, 6, 1));
	else if (!strcmp(argv[4], "recovery"))
		recovery(number_of(argc, argv, 5, 3),
			 number_of(argc, argv, 6, 1000));
	rpmem_rpc_close(rpc, 0);
	kill_server();
	return 0;
}
