/* SPDX-License-Identifier: BSD-2-Clause */
/* Encoding of a client's ring in its pool: docs/protocol.md. */
#ifndef RP_LIBRPC_FORMAT_H
#define RP_LIBRPC_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_VERSION 2
#define RPC_ID	    16

/*
 * The pool of one client begins with two superblocks, RPC_SLOT apart, which the
 * client writes alternately. The server's page follows, then the ring. The
 * entry at position p is at byte p % ring of the ring.
 */
#define RPC_SLOT	4096u
#define RPC_PAGE_AT	8192u
#define RPC_RING_AT	12288u
#define RPC_RING_MIN	4096u
#define RPC_RING_MAX	(1ull << 38) /* so that 32 bits can count its entries */
#define RPC_SUPER_BYTES 256u
#define RPC_PAGE_BYTES	1536u
#define RPC_NAME	128u
#define RPC_BASE	64u
#define RPC_ALIGN	64u
#define RPC_HEADER	64u /* bytes of the header before a call's bytes */
#define RPC_RESULT	32u /* bytes of the header before a reply's bytes */
#define RPC_SLOTS	64u

/* Kinds of owner of a ring. */
enum rpc_kind {
	RPC_FREE = 0,
	RPC_RANDOM = 1, /* random ID: no later process returns with it */
	RPC_NAMED = 2,
};

struct rpc_super {
	unsigned char id[RPC_ID];
	uint64_t seed; /* random; seeds all checksums */
	uint64_t ring; /* bytes, a multiple of RPC_ALIGN */
	uint64_t turn;
	uint64_t head_pos, head_n; /* all replies before were received */
	uint64_t token;		   /* token in messages to the client */
	/*
	 * Number of the present process's first call. An entry of an earlier
	 * process with this or a later number is invalid: bytes of a newer
	 * entry could complete a call that was written only in part.
	 */
	uint64_t first_n;
	uint32_t head_incarnation; /* that of the entry before the head */
	uint32_t incarnation; /* number of processes that have had the ring */
	uint32_t kind;
	uint32_t name_len; /* length of the name of the client's endpoint */
	unsigned char name[RPC_NAME];
	bool alone; /* not encoded: the other superblock was not intact */
};

/* The page that the server writes to each pool; not durable. */
struct rpc_page {
	uint64_t token; /* token in messages to the server */
	uint32_t name_len;
	uint32_t slots;
	unsigned char name[RPC_NAME];
	char base[RPC_BASE]; /* base provider of the endpoint */
	struct {
		unsigned char id[RPC_ID];
		uint32_t kind;
	} v[RPC_SLOTS];
};

struct rpc_entry {
	uint64_t hash; /* hash of the call's bytes */
	uint64_t pos;
	uint64_t n; /* number of the call: 1, 2, ... */
	uint64_t head_pos, head_n;
	uint64_t durable; /* calls before this number were acknowledged */
	uint32_t head_incarnation;
	uint32_t incarnation; /* of the process; no later entry has a lower one
			       */
	uint32_t len;	      /* bytes of the call */
	uint32_t room;	      /* most bytes of the reply */
};

/* Position of the next entry in the ring. */
struct rpc_cursor {
	uint64_t pos, n;
	uint32_t incarnation;
};

struct rpc_result {
	uint64_t hash;
	uint64_t sequence;
	uint32_t len;
	/*
	 * rpc_mark(), stored once the result is durable: a client that reads
	 * its ring could otherwise see a result too early. Not durable itself.
	 */
	uint64_t mark;
};
#define RPC_MARK_AT 24u

/* The mark is different for each server and each result. */
static inline uint64_t rpc_mark(uint64_t token, uint64_t sequence)
{
	return token ^ sequence;
}

void rpc_super_encode(const struct rpc_super *s,
		      unsigned char to[RPC_SUPER_BYTES]);
/*
 * Returns 0; -ENODATA: no superblock; -EBADMSG: a damaged one;
 * -EPROTONOSUPPORT: an intact one of another version.
 */
int rpc_super_decode(const unsigned char from[RPC_SUPER_BYTES],
		     struct rpc_super *s);
/*
 * Find the newer of the two superblocks of a pool. Errors are those of
 * rpc_super_decode(); -EPROTONOSUPPORT even if only one superblock is of
 * another version, because that one may be the newer one.
 */
int rpc_super_find(const unsigned char *pool, uint64_t length,
		   struct rpc_super *s);
/*
 * Whether a superblock that is alone is outdated: a call of a later process in
 * the ring proves that this process's superblock, now damaged, was durable.
 */
bool rpc_super_is_old(const struct rpc_super *s, const unsigned char *ring);
/* The version of a superblock with another one than RPC_VERSION, if any. */
uint32_t rpc_super_version(const unsigned char *pool);
void rpc_page_encode(const struct rpc_page *p,
		     unsigned char to[RPC_PAGE_BYTES]);
bool rpc_page_decode(const unsigned char from[RPC_PAGE_BYTES],
		     struct rpc_page *p);

static inline uint64_t rpc_round(uint64_t len)
{
	return (len + RPC_ALIGN - 1) / RPC_ALIGN * RPC_ALIGN;
}

/* Bytes of an entry without its result, and with it. */
static inline uint64_t rpc_entry_result(uint64_t len)
{
	return RPC_HEADER + rpc_round(len);
}

static inline uint64_t rpc_entry_size(uint64_t len, uint64_t room)
{
	return rpc_entry_result(len) + rpc_round(RPC_RESULT + room);
}

/* Position of an entry of size bytes, which must not wrap at the ring's end. */
static inline uint64_t rpc_place(uint64_t ring, uint64_t pos, uint64_t size)
{
	const uint64_t left = ring - pos % ring;

	return size > left ? pos + left : pos;
}

static inline uint64_t rpc_entry_end(const struct rpc_entry *e)
{
	return e->pos + rpc_entry_size(e->len, e->room);
}

/* Grows with each call of a client; never the same for two calls. */
static inline uint64_t rpc_sequence(uint32_t incarnation, uint64_t n)
{
	return (uint64_t)incarnation << 40 | (n & ((1ull << 40) - 1));
}

/* Write header and checksums before len bytes at to + RPC_HEADER. */
void rpc_entry_encode(uint64_t seed, const struct rpc_entry *e,
		      unsigned char *to);
/* Decode a header. False: it is invalid, or its sizes exceed the ring. */
bool rpc_entry_decode(const struct rpc_super *s,
		      const unsigned char from[RPC_HEADER],
		      struct rpc_entry *e);
bool rpc_entry_intact(uint64_t seed, const struct rpc_entry *e,
		      const unsigned char *bytes);

void rpc_result_encode(uint64_t seed, uint64_t sequence, uint32_t len,
		       const unsigned char *bytes,
		       unsigned char to[RPC_RESULT]);
/* Whether the room bytes after a header contain the result of this call. */
bool rpc_result_decode(uint64_t seed, const unsigned char *from, uint64_t room,
		       uint64_t sequence, struct rpc_result *r);
bool rpc_result_intact(uint64_t seed, const struct rpc_result *r,
		       const unsigned char *bytes);

/*
 * Find the first entry whose reply is not known to be received. Entries from
 * there on with numbers below *durable were acknowledged: if one of them is not
 * intact, it is damaged, and not the end of the entries.
 */
void rpc_head_find(const struct rpc_super *s, const unsigned char *ring,
		   struct rpc_cursor *c, uint64_t *durable);
/* Find the entry at a cursor; its call may be torn. False: there is none. */
bool rpc_entry_find(const struct rpc_super *s, const unsigned char *ring,
		    const struct rpc_cursor *c, struct rpc_entry *e);
/* Find the entry at a cursor with a complete call; the ring is not changing. */
bool rpc_entry_next(const struct rpc_super *s, const unsigned char *ring,
		    const struct rpc_cursor *c, struct rpc_entry *e);
/* Advance a cursor past an entry. */
void rpc_cursor_pass(struct rpc_cursor *c, const struct rpc_entry *e);

#endif
