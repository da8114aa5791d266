/* SPDX-License-Identifier: BSD-2-Clause */
/* Encoding of messages between servers: docs/protocol.md, "Servers of Raft". */
#ifndef RP_RAFT_WIRE_H
#define RP_RAFT_WIRE_H

#include <stdbool.h>

#include <raft.h>

#define WIRE_HEAD    40u
#define WIRE_VERSION 1u
#define WIRE_HELLO                                                             \
	99u		    /* seq is a random number of the process, the      \
			     * message the name of its pool */
#define WIRE_MAX (1u << 30) /* most bytes of a message */

struct wire_head {
	uint32_t len;
	unsigned short type;
	bool ring;     /* the entries are in the ring, too, as number seq */
	uint64_t seq;  /* number in the ring; in a result: the newest one */
	uint64_t kept; /* in a result: up to here the own log has messages */
	uint64_t lsn;  /* LSN behind message seq; in a result, behind kept */
};

void wire_head_put(unsigned char *p, const struct wire_head *h);
/* Decode a header. Returns 0 or RAFT_MALFORMED. */
int wire_head_get(struct wire_head *h, const unsigned char *p);

/* The number of bytes that wire_encode() writes to p. */
size_t wire_size(const struct raft_message *m);
void wire_encode(const struct raft_message *m, unsigned char *p);
/* Decode by m->type into raft_malloc() memory. Returns 0 or a RAFT_ code. */
int wire_decode(struct raft_message *m, const unsigned char *p, size_t len);
/* Free the memory of a decoded message that libraft did not take. */
void wire_free(struct raft_message *m);

#endif
