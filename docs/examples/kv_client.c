// SPDX-License-Identifier: BSD-2-Clause
/*
 * Send the lines of stdin to the example kv_server, and print the replies.
 *
 *   cc -o kv_client kv_client.c -lrpmem_rpc
 *   ./kv_client HOST:PORT:NAME ID WINDOW [process]
 *
 *   get KEY | put KEY TEXT | insert KEY TEXT | add KEY NUMBER | scan KEY COUNT
 *
 * Keys are numbers. A reply is "LINE STATUS", with "KEY=TEXT" for each value or
 * the sum after it. Up to WINDOW lines may wait for a reply; with more than
 * one, "LINE durable" says that a line's call was acknowledged: it is processed
 * once, whatever crashes. Calls of a client that starts again with its ID are
 * processed after its earlier calls.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_rpc.h>

#include "kv.h"

#define WINDOW_MAX 64u
#define REPLY	   (256u << 10)

struct line {
	struct rpmem_rpc_op op;
	uint64_t number;
	_Alignas(8) unsigned char reply[REPLY];
};
static struct line lines[WINDOW_MAX];

static int fail(const char *why)
{
	fprintf(stderr, "kv_client: %s\n", why);
	return 1;
}

/* Returns the length of the call, or 0. */
static size_t parse(const char *text, struct kv_call *k)
{
	static const char *const names[] = {"get", "scan", "put", "insert",
					    "add"};
	char name[8];
	int at = 0;

	memset(k, 0, sizeof(*k));
	if (sscanf(text, "%7s %" SCNu64 " %n", name, &k->key, &at) != 2)
		return 0;
	while (strcmp(name, names[k->type]))
		if (k->type++ == KV_ADD)
			return 0;
	k->number = strtoull(text + at, NULL, 0);
	if (k->type == KV_PUT || k->type == KV_INSERT)
		k->len = (uint32_t)strcspn(text + at, "\n");
	if (k->len > KV_VALUE_MAX)
		return 0;
	memcpy(k + 1, text + at, k->len);
	return sizeof(*k) + k->len;
}

static void print(const struct line *l)
{
	struct kv_reply r = {.status = EBADMSG};
	const unsigned char *p = l->reply;
	struct kv_pair pair;

	if (l->op.reply_len)
		memcpy(&r, p, sizeof(r));
	p += sizeof(r);
	printf("%" PRIu64 " %s", l->number,
	       r.status ? strerror((int)r.status) : "ok");
	for (uint32_t i = 0; i < r.count; i++) {
		memcpy(&pair, p, sizeof(pair));
		p += sizeof(pair);
		printf(" %" PRIu64 "=%.*s", pair.key, (int)pair.len, p);
		p += pair.len;
	}
	if (r.number)
		printf(" %" PRIu64, r.number);
	printf("\n");
}

/* Print the lines whose state changed; returns how many are done, or -1. */
static int poll_lines(struct rpmem_rpc *rpc)
{
	struct rpmem_rpc_op *done[WINDOW_MAX];
	const int n = rpmem_rpc_poll(rpc, done, WINDOW_MAX, -1);
	int ended = 0;

	for (int i = 0; i < n; i++) {
		struct line *l = done[i]->context;

		if (done[i]->result)
			return -fail(done[i]->error);
		if (done[i]->state == RPMEM_RPC_DURABLE)
			printf("%" PRIu64 " durable\n", l->number);
		if (done[i]->state == RPMEM_RPC_DONE) {
			print(l);
			ended++;
		}
	}
	fflush(stdout);
	return n < 0 ? -fail(rpmem_rpc_error()) : ended;
}

static int run(struct rpmem_rpc *rpc, uint64_t window)
{
	_Alignas(8) char bytes[sizeof(struct kv_call) + KV_VALUE_MAX];
	struct kv_call *k = (struct kv_call *)(void *)bytes;
	uint64_t begun = 0, ended = 0;
	char text[2 * KV_VALUE_MAX];
	int more = 1, n = 0, ret = 0;

	while (more || ended < begun) {
		if (more && !ret && begun - ended < window)
			more = fgets(text, sizeof(text), stdin) != NULL;
		if (more && begun - ended < window) {
			struct line *l = &lines[(begun + 1) % window];

			l->number = begun + 1;
			l->op = (struct rpmem_rpc_op){
				.buf = k,
				.len = parse(text, k),
				.reply = l->reply,
				.reply_max = REPLY,
				.flags = window > 1 ? RPMEM_RPC_NOTIFY : 0,
				.context = l,
			};
			if (!l->op.len)
				return fail("a line is none of the commands");
			ret = rpmem_rpc_submit(rpc, &l->op);
			if (ret && ret != -EAGAIN)
				return fail(rpmem_rpc_error());
			begun += !ret;
		}
		n = begun > ended || ret ? poll_lines(rpc) : 0;
		if (n < 0)
			return 1;
		ended += (uint64_t)n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned char id[RPMEM_RPC_ID + 1] = {0};
	struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	struct rpmem_rpc *rpc;
	uint64_t window;
	int ret;

	if (argc != 4 && (argc != 5 || strcmp(argv[4], "process")))
		return 2;
	attr.required = argc == 5 ? RPMEM_POOL_PROCESS : RPMEM_POOL_POWER;
	strncpy((char *)id, argv[2], RPMEM_RPC_ID);
	window = strtoull(argv[3], NULL, 0);
	if (!window || window > WINDOW_MAX)
		return 2;
	if (rpmem_rpc_connect(&rpc, argv[1], &attr))
		return fail(rpmem_rpc_error());
	ret = run(rpc, window);
	rpmem_rpc_close(rpc, 0);
	return ret;
}
