// SPDX-License-Identifier: BSD-2-Clause
/*
 * Add numbers for clients, each call once, whatever crashes.
 *
 *   cc -o rpc_server rpc_server.c -lrpmem_rpc
 *   ./rpc_server PATH PORT SUMS
 *
 * The file SUMS has the sum and the last sequence of each client, so that a
 * call that is repeated after a crash changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rpmem_rpc.h>

/* Results of one client's calls: written by one pwrite(), then synced. */
struct record {
	unsigned char client[RPMEM_RPC_ID];
	uint64_t last;			     /* sequence of the last call */
	uint64_t sums[RPMEM_RPC_AGAIN];	     /* replies of the last calls, */
	uint64_t sequences[RPMEM_RPC_AGAIN]; /* and their sequences */
	uint64_t sum;
};

/* Records are never deleted: each client keeps one id for ever. */
#define RECORDS 1024u
static struct record records[RECORDS];

static struct record *find(const unsigned char *client)
{
	static const unsigned char none[RPMEM_RPC_ID];
	struct record *r = records;

	while (r < records + RECORDS - 1 &&
	       memcmp(r->client, client, RPMEM_RPC_ID) &&
	       memcmp(r->client, none, RPMEM_RPC_ID))
		r++;
	memcpy(r->client, client, RPMEM_RPC_ID);
	return r;
}

/* Get the sum after this call; a repeated call is not added again. */
static int add(int fd, const struct rpmem_rpc_call *call, uint64_t *sum)
{
	struct record *r = find(call->client);
	const size_t at = (size_t)(call->sequence % RPMEM_RPC_AGAIN);
	uint64_t number = 0;

	memcpy(&number, call->buf,
	       call->len < sizeof(number) ? call->len : sizeof(number));
	if (call->sequence > r->last) {
		r->sum += number;
		r->last = r->sequences[at] = call->sequence;
		r->sums[at] = r->sum;
		if (pwrite(fd, r, sizeof(*r),
			   (r - records) * (off_t)sizeof(*r)) != sizeof(*r) ||
		    fdatasync(fd))
			return -1;
	}
	*sum = r->sequences[at] == call->sequence ? r->sums[at] : 0;
	return 0;
}

int main(int argc, char **argv)
{
	struct rpmem_rpc_server_attr attr = {.size = sizeof(attr)};
	struct rpmem_rpc_server *srv;
	struct rpmem_rpc_call *call;
	uint64_t sum;
	int fd, ret;

	if (argc != 4)
		return 2;
	attr.port = (uint16_t)atoi(argv[2]);
	fd = open(argv[3], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || read(fd, records, sizeof(records)) < 0) {
		perror(argv[3]);
		return 1;
	}
	if (rpmem_rpc_listen(&srv, argv[1], &attr)) {
		fprintf(stderr, "rpc_server: %s\n", rpmem_rpc_error());
		return 1;
	}
	printf("port %u\n", rpmem_rpc_port(srv));
	fflush(stdout);
	while ((ret = rpmem_rpc_next(srv, &call, -1)) > 0) {
		if (add(fd, call, &sum)) {
			perror(argv[3]);
			return 1;
		}
		if (call->reply_max < sizeof(sum))
			ret = rpmem_rpc_reply(srv, call, NULL, 0);
		else
			ret = rpmem_rpc_reply(srv, call, &sum, sizeof(sum));
		if (ret)
			break;
	}
	fprintf(stderr, "rpc_server: %s\n", rpmem_rpc_error());
	rpmem_rpc_server_close(srv);
	return 1;
}
