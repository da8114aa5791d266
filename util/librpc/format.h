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
#define RPC_RING_MAX	(1ull << 38) /* so that entry numbers fit 32 bits */
#define RPC_SUPER_BYTES 256u
#define RPC_PAGE_BYTES	1536u
#define RPC_NAME	128u
#define RPC_BASE	64u
#define RPC_ALIGN	64u
#define RPC_HEADER	64u /* bytes before a call's own */
#define RPC_RESULT	32u /* bytes before a reply's own */
#define RPC_SLOTS	64u

/* Kinds of owner of a ring. */
enum rpc_kind {
	RPC_FREE = 0,
	RPC_RANDOM = 1, /* no process returns to the ring */
	RPC_NAMED = 2,
};

struct rpc_super {
	unsigned char id[RPC_ID];
	uint64_t seed; /* random; seeds all checksums */
	uint64_t ring; /* bytes, a multiple of RPC_ALIGN */
	uint64_t turn;
	uint64_t head_pos, head_n; /* all calls before have been received */
	uint64_t token;		   /* token in messages to the client */
	/*
	 * First call of the present process: no later entry of an earlier
	 * process is valid. A call that an earlier process had sent in part
	 * could otherwise be completed by equal words of a newer entry.
	 */
	uint64_t first_n;
	uint32_t head_life; /* `life` of the entry before the head */
	uint32_t life;	    /* number of processes that have had the ring */
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
	uint32_t head_life;
	uint32_t life; /* process number; never falls from entry to entry */
	uint32_t len;  /* bytes of the call */
	uint32_t room; /* most bytes of the reply */
};

/* Position of the next entry in the ring. */
struct rpc_cursor {
	uint64_t pos, n;
	uint32_t life;
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
 * Find the newer of the two superblocks of a pool; errors as above. One of
 * another version may be the newer one.
 */
int rpc_super_find(const unsigned char *pool, uint64_t length,
		   struct rpc_super *s);
/*
 * Whether the superblock, which is alone, is not the newest one: a call of a
 * later process proves that its superblock was durable, and not torn.
 */
bool rpc_super_is_old(const struct rpc_super *s, const unsigned char *ring);
/* The version of a pool's superblocks: another one, if there is one. */
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
static inline uint64_t rpc_sequence(uint32_t life, uint64_t n)
{
	return (uint64_t)life << 40 | (n & ((1ull << 40) - 1));
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
 * Find the first entry not known to be received. Entries from there up to, not
 * including, *durable were acknowledged: one that is not intact is damaged, and
 * not the ring's end.
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
