// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both ends of numbered calls, for rpc_lives.sh.
 *
 *   rpc_peer serve PATH PORT STATE    prints "port N"; keeps its effects in
 *                                     STATE as rpmem_rpc(3) describes; over
 *                                     the base provider $RP_BASE
 *   rpc_peer call WHERE KEY           calls endlessly after KEY's last call,
 *                                     with the threshold $RP_THRESHOLD; prints
 *                                     "resume N", "acked N" and "replied N"
 *   rpc_peer check WHERE KEY          prints "resume N", then "CLASS by METHOD"
 *
 * $RP_ADDRESS: the address to serve at (127.0.0.1); $RP_SECRET: the file of the
 * server's secret; $RP_CLASS: the class that the pools must reach (power).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rpmem_rpc.h>

#include "fabtests/unit/seeded.h"
#include "util/pool_class.h"

#define LONGEST 3000u
#define REPLY	500u
#define WINDOW	40u /* more calls than the ring has room for */
#define TRIES	3   /* while the server is silent, 5 seconds each */

/*
 * The first bytes of a call. k = 0 is a query: the reply has the number of the
 * last call.
 */
struct head {
	uint64_t k;
	uint64_t replied; /* the client has read all replies up to this call */
};

/* The state that the calls of one client change, in the file STATE. */
struct record {
	unsigned char client[RPMEM_RPC_ID];
	uint64_t sequence; /* sequence of the last call */
	uint64_t k;
	uint64_t replied;
};

static enum rpmem_pool_class required;

static size_t fill(unsigned char *to, uint64_t k, size_t least, size_t most)
{
	struct seeded s = {.state = k};
	const size_t len = least + seeded_below(&s, (uint32_t)(most - least));

	for (size_t i = 0; i < len; i++)
		to[i] = (unsigned char)(k * 31 + i);
	return len;
}

static int report(const char *what)
{
	fprintf(stderr, "rpc_peer: %s: %s\n", what, rpmem_rpc_error());
	return 1;
}

static int report_wrong_call(const char *what, const struct rpmem_rpc_call *c,
			     uint64_t k, const struct record *r)
{
	fprintf(stderr,
		"WRONG: %s: call %" PRIu64 ", sequence %#" PRIx64 ", again %d; "
		"last %" PRIu64 ", sequence %#" PRIx64 ", replied %" PRIu64
		"\n",
		what, k, c->sequence, c->again, r->k, r->sequence, r->replied);
	return -1;
}

/*
 * Process a call, unless it was processed before. *k: the number for the reply.
 */
static int process(int fd, struct record *r, const struct rpmem_rpc_call *c,
		   uint64_t *k)
{
	unsigned char want[LONGEST];
	struct head h = {0};
	size_t len;

	if (c->len < sizeof(h))
		return report_wrong_call("short", c, 0, r);
	memcpy(&h, c->buf, sizeof(h));
	len = fill(want, h.k, 0, LONGEST - sizeof(h));
	if (h.k && (c->len != len + sizeof(h) ||
		    memcmp((const char *)c->buf + sizeof(h), want, len)))
		return report_wrong_call("other bytes", c, h.k, r);
	*k = h.k ? h.k : r->k;
	if (c->sequence <= r->sequence) {
		if (!c->again)
			return report_wrong_call("twice, and not said so", c,
						 h.k, r);
		if (h.k && h.k <= r->replied)
			return report_wrong_call("again, though replied", c,
						 h.k, r);
		return 0;
	}
	if (h.k && h.k != r->k + 1)
		return report_wrong_call(
			h.k > r->k ? "one is missing" : "twice", c, h.k, r);
	r->sequence = c->sequence;
	if (h.k)
		r->k = h.k;
	if (h.replied > r->replied)
		r->replied = h.replied;
	return pwrite(fd, r, sizeof(*r), 0) == sizeof(*r) ? 0 : -1;
}

static int serve(char **argv)
{
	struct rpmem_rpc_server_attr attr = {
		.size = sizeof(attr),
		.port = (uint16_t)atoi(argv[3]),
		.base = getenv("RP_BASE"),
		.address = getenv("RP_ADDRESS"),
		.secret_file = getenv("RP_SECRET"),
		.required = required,
		.clients = 1,
		.ring = 64 << 10,
	};
	struct record record = {.k = 0};
	struct rpmem_rpc_server *srv;
	struct rpmem_rpc_call *call;
	unsigned char reply[REPLY];
	uint64_t k = 0;
	size_t len;
	int fd = open(argv[4], O_RDWR | O_CREAT, 0600), ret;

	if (fd < 0 || pread(fd, &record, sizeof(record), 0) < 0) {
		perror(argv[4]);
		return 1;
	}
	if (rpmem_rpc_listen(&srv, argv[2], &attr))
		return report("listen");
	printf("port %u\n", rpmem_rpc_port(srv));
	fflush(stdout);
	while ((ret = rpmem_rpc_next(srv, &call, -1)) > 0) {
		if (process(fd, &record, call, &k))
			return 1;
		memcpy(reply, &k, sizeof(k));
		len = sizeof(k) +
		      fill(reply + sizeof(k), k, 0, REPLY - sizeof(k));
		ret = rpmem_rpc_reply(srv, call, reply, len);
		if (ret)
			break;
	}
	report("serve");
	rpmem_rpc_server_close(srv);
	return 1;
}

struct one {
	struct rpmem_rpc_op op;
	uint64_t k;
	bool acked;
	unsigned char bytes[LONGEST], reply[REPLY];
};

static int is_reply(const unsigned char *bytes, size_t len, uint64_t k)
{
	unsigned char want[REPLY];
	const size_t n = fill(want, k, 0, REPLY - sizeof(k));

	return len == n + sizeof(k) && !memcmp(bytes, &k, sizeof(k)) &&
	       !memcmp(bytes + sizeof(k), want, n);
}

/*
 * Query the number of the last processed call. The server first processes calls
 * that an earlier client process left in the ring.
 */
static int resume(struct rpmem_rpc *rpc, uint64_t *k)
{
	const struct head h = {.k = 0};
	unsigned char reply[REPLY];
	size_t len = sizeof(reply);

	if (rpmem_rpc_call(rpc, &h, sizeof(h), reply, &len))
		return report("query");
	memcpy(k, reply, sizeof(*k));
	if (!is_reply(reply, len, *k)) {
		fprintf(stderr, "WRONG: reply to a query\n");
		return 1;
	}
	printf("resume %" PRIu64 "\n", *k);
	fflush(stdout);
	return 0;
}

/* rpmem_rpc_poll() has returned this call: check its new state and print it. */
static int check_call_state(struct one *o, uint64_t *acked, uint64_t *replied)
{
	if (o->op.result) {
		fprintf(stderr, "rpc_peer: %s\n", o->op.error);
		return 1;
	}
	if (!o->acked) {
		if (o->k != *acked + 1) {
			fprintf(stderr,
				"WRONG: %" PRIu64 " is acknowledged "
				"behind %" PRIu64 "\n",
				o->k, *acked);
			return 1;
		}
		printf("acked %" PRIu64 "\n", *acked = o->k);
		o->acked = true;
	}
	if (o->op.state != RPMEM_RPC_DONE)
		return 0;
	if (o->k != *replied + 1 ||
	    !is_reply(o->reply, o->op.reply_len, o->k)) {
		fprintf(stderr, "WRONG: reply %" PRIu64 " behind %" PRIu64 "\n",
			o->k, *replied);
		return 1;
	}
	printf("replied %" PRIu64 "\n", *replied = o->k);
	return 0;
}

static int call(struct rpmem_rpc *rpc, uint64_t k)
{
	static struct one all[WINDOW];
	uint64_t acked = k, replied = k;
	struct rpmem_rpc_op *done[WINDOW];
	int n, ret;

	for (;;) {
		while (k - replied < WINDOW) {
			struct one *o = &all[(k + 1) % WINDOW];
			const struct head h = {k + 1, replied};

			memcpy(o->bytes, &h, sizeof(h));
			o->k = k + 1;
			o->acked = false;
			o->op = (struct rpmem_rpc_op){
				.buf = o->bytes,
				.len = sizeof(h) + fill(o->bytes + sizeof(h),
							o->k, 0,
							LONGEST - sizeof(h)),
				.reply = o->reply,
				.reply_max = REPLY,
				.flags = RPMEM_RPC_NOTIFY,
				.context = o,
			};
			ret = rpmem_rpc_submit(rpc, &o->op);
			if (ret == -EAGAIN)
				break;
			if (ret)
				return report("submit");
			k++;
		}
		n = rpmem_rpc_poll(rpc, done, WINDOW, -1);
		if (n < 0)
			return report("poll");
		for (int i = 0; i < n; i++)
			if (check_call_state(done[i]->context, &acked,
					     &replied))
				return 1;
		fflush(stdout);
	}
}

/*
 * Connect. Tries again if the client calls the server silent: on a loaded
 * machine it may get no CPU time for 5 seconds.
 */
static int connect_to(struct rpmem_rpc **rpc, const char *where,
		      const unsigned char *id)
{
	const char *threshold = getenv("RP_THRESHOLD");
	const struct rpmem_rpc_attr attr = {
		.size = sizeof(attr),
		.id = id,
		.timeout = 30,
		.secret_file = getenv("RP_SECRET"),
		.required = required,
		.threshold = threshold ? (unsigned int)atoi(threshold) : 0,
	};
	int ret = -1;

	for (int i = 0; i < TRIES; i++) {
		ret = rpmem_rpc_connect(rpc, where, &attr);
		if (ret != -ETIMEDOUT || !strstr(rpmem_rpc_error(), "silent"))
			break;
		report("connect");
	}
	return ret;
}

static int print_class(struct rpmem_rpc *rpc)
{
	struct rpmem_rpc_info info = {.size = sizeof(info)};

	if (rpmem_rpc_query(rpc, &info))
		return report("query");
	printf("%s by %s\n", rp_pool_class_name(info.reached), info.method);
	return 0;
}

int main(int argc, char **argv)
{
	const char *class = getenv("RP_CLASS");
	unsigned char id[RPMEM_RPC_ID] = {0};
	struct rpmem_rpc *rpc;
	uint64_t k = 0;
	int ret;

	if (class && !rp_pool_class_parse(class, &required))
		return 2;
	if (argc == 5 && !strcmp(argv[1], "serve"))
		return serve(argv);
	if (argc != 4)
		return 2;
	strncpy((char *)id, argv[3], sizeof(id) - 1);
	if (connect_to(&rpc, argv[2], id))
		return report("connect");
	ret = resume(rpc, &k);
	if (!ret && !strcmp(argv[1], "call"))
		ret = call(rpc, k);
	else if (!ret)
		ret = print_class(rpc);
	rpmem_rpc_close(rpc, 0);
	return ret;
}
