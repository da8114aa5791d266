/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages between servers, in bytes: docs/protocol.md, "Servers of Raft". */
#ifndef RP_RAFT_WIRE_H
#define RP_RAFT_WIRE_H

#include <stdbool.h>

#include <raft.h>

#define WIRE_HEAD    40u
#define WIRE_VERSION 1u
#define WIRE_HELLO                                                             \
	99u		    /* seq is a random number of the process, the      \
			     * message the name of its pool */
#define WIRE_MAX (1u << 30) /* bytes of a message */

struct wire_head {
	uint32_t len;
	unsigned short type;
	bool ring; /* RAFT_IO_APPEND_ENTRIES: the ring gets it as number seq */
	uint64_t seq;
	uint64_t kept;
	uint64_t lsn;
};

void wire_head_put(unsigned char *p, const struct wire_head *h);
/* 0 or RAFT_MALFORMED. */
int wire_head_get(struct wire_head *h, const unsigned char *p);

/* Bytes of a message, which wire_encode() writes to p. */
size_t wire_size(const struct raft_message *m);
void wire_encode(const struct raft_message *m, unsigned char *p);
/* m->type is set. Memory is raft_malloc()ed. 0 or a RAFT_ code. */
int wire_decode(struct raft_message *m, const unsigned char *p, size_t len);
/* The memory of a message that nobody has taken. */
void wire_free(struct raft_message *m);

#endif
