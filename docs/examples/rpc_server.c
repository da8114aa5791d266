// SPDX-License-Identifier: BSD-2-Clause
/*
 * Add numbers for clients, each call once, whatever crashes.
 *
 *   cc -o rpc_server rpc_server.c -lrpmem_rpc
 *   ./rpc_server PATH PORT SUMS
 *
 * The file SUMS has the sum and the last sequence of each client, so that a
 * call that is repeated after a crash changes nothing. A client for which SUMS
 * has no room gets empty replies.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rpmem_rpc.h>

/* Results of one client's calls. */
struct record {
	uint64_t hash; /* of the bytes below */
	uint64_t turn; /* number of writes of this record */
	unsigned char client[RPMEM_RPC_ID];
	uint64_t last;			     /* sequence of the last call */
	uint64_t sums[RPMEM_RPC_AGAIN];	     /* replies of the last calls, */
	uint64_t sequences[RPMEM_RPC_AGAIN]; /* and their sequences */
	uint64_t sum;
};

/*
 * SUMS has two copies of each record, each in a block of its own, which are
 * written in turn: a power cut can tear only the older copy.
 */
union block {
	struct record record;
	unsigned char bytes[512];
};
_Static_assert(sizeof(union block) == 512, "a copy is one block");

/* Records are never deleted: each client keeps one id for ever. */
#define RECORDS 1024u
static struct record records[RECORDS];

static uint64_t hash_record(const struct record *r)
{
	const unsigned char *from = (const unsigned char *)&r->turn;
	uint64_t hash = 14695981039346656037u; /* FNV-1a */

	while (from < (const unsigned char *)(r + 1))
		hash = (hash ^ *from++) * 1099511628211u;
	return hash;
}

static off_t offset_of_copy(size_t record, uint64_t turn)
{
	return (off_t)((2 * record + turn % 2) * sizeof(union block));
}

/* Read the newer intact copy of each record. */
static int load_records(int fd)
{
	union block b;
	ssize_t n;

	for (size_t i = 0; i < 2 * RECORDS; i++) {
		n = pread(fd, &b, sizeof(b), offset_of_copy(i / 2, i));
		if (n < 0)
			return -1;
		if (n == sizeof(b) && b.record.turn > records[i / 2].turn &&
		    b.record.hash == hash_record(&b.record))
			records[i / 2] = b.record;
	}
	/* A server that was killed may have left a record in memory only. */
	return fdatasync(fd);
}

/* Write the record over its older copy, durably. */
static int store_record(int fd, struct record *r)
{
	union block b = {.bytes = {0}};
	off_t at;

	at = offset_of_copy((size_t)(r - records), ++r->turn);
	r->hash = hash_record(r);
	b.record = *r;
	return pwrite(fd, &b, sizeof(b), at) == sizeof(b) ? fdatasync(fd) : -1;
}

/* Find the record of a client, or a free one; NULL: there is none. */
static struct record *find_record(const unsigned char *client)
{
	struct record *r = records;

	while (r < records + RECORDS && r->turn &&
	       memcmp(r->client, client, RPMEM_RPC_ID))
		r++;
	if (r == records + RECORDS)
		return NULL;
	memcpy(r->client, client, RPMEM_RPC_ID);
	return r;
}

/*
 * Get the sum after this call; a repeated call is not added again. Returns 1,
 * 0 without a record for the client, or -1.
 */
static int add(int fd, const struct rpmem_rpc_call *call, uint64_t *sum)
{
	struct record *r = find_record(call->client);
	const size_t at = (size_t)(call->sequence % RPMEM_RPC_AGAIN);
	uint64_t number = 0;

	if (!r)
		return 0;
	memcpy(&number, call->buf,
	       call->len < sizeof(number) ? call->len : sizeof(number));
	if (call->sequence > r->last) {
		r->sum += number;
		r->last = r->sequences[at] = call->sequence;
		r->sums[at] = r->sum;
		if (store_record(fd, r))
			return -1;
	}
	*sum = r->sequences[at] == call->sequence ? r->sums[at] : 0;
	return 1;
}

int main(int argc, char **argv)
{
	struct rpmem_rpc_server_attr attr = {.size = sizeof(attr)};
	struct rpmem_rpc_server *srv;
	struct rpmem_rpc_call *call;
	uint64_t sum;
	int fd, ret, known;

	if (argc != 4)
		return 2;
	attr.port = (uint16_t)atoi(argv[2]);
	fd = open(argv[3], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || load_records(fd)) {
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
		known = add(fd, call, &sum);
		if (known < 0) {
			perror(argv[3]);
			return 1;
		}
		if (!known || call->reply_max < sizeof(sum))
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
