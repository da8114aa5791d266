// SPDX-License-Identifier: BSD-2-Clause
/* Encode, decode and find superblocks, entries and results. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "librpc/format.h"
#include "util/bytes.h"

#define MAGIC	   "RPMEMRPC"
#define PAGE_MAGIC "RPMEMSRV"
#define PAGE_ENTRY (RPC_ID + 4)
#define PAGE_TABLE (32 + RPC_NAME + RPC_BASE)

_Static_assert(PAGE_TABLE + RPC_SLOTS * PAGE_ENTRY <= RPC_PAGE_BYTES,
	       "the page has room for all clients");
_Static_assert(112 + RPC_NAME <= RPC_SUPER_BYTES, "the name fits");

void rpc_super_encode(const struct rpc_super *s,
		      unsigned char to[RPC_SUPER_BYTES])
{
	memset(to, 0, RPC_SUPER_BYTES);
	memcpy(to, MAGIC, 8);
	rp_put32(to + 16, RPC_VERSION);
	rp_put32(to + 20, s->kind);
	memcpy(to + 24, s->id, RPC_ID);
	rp_put64(to + 40, s->seed);
	rp_put64(to + 48, s->ring);
	rp_put64(to + 56, s->turn);
	rp_put64(to + 64, s->head_pos);
	rp_put64(to + 72, s->head_n);
	rp_put64(to + 80, s->token);
	rp_put32(to + 88, s->incarnation);
	rp_put32(to + 92, s->name_len);
	rp_put32(to + 96, s->head_incarnation);
	rp_put64(to + 104, s->first_n);
	memcpy(to + 112, s->name, RPC_NAME);
	rp_put64(to + 8, XXH3_64bits(to + 16, RPC_SUPER_BYTES - 16));
}

int rpc_super_decode(const unsigned char from[RPC_SUPER_BYTES],
		     struct rpc_super *s)
{
	if (memcmp(from, MAGIC, 8) != 0)
		return -ENODATA;
	if (rp_get64(from + 8) != XXH3_64bits(from + 16, RPC_SUPER_BYTES - 16))
		return -EBADMSG;
	if (rp_get32(from + 16) != RPC_VERSION)
		return -EPROTONOSUPPORT;
	*s = (struct rpc_super){
		.kind = rp_get32(from + 20),
		.seed = rp_get64(from + 40),
		.ring = rp_get64(from + 48),
		.turn = rp_get64(from + 56),
		.head_pos = rp_get64(from + 64),
		.head_n = rp_get64(from + 72),
		.token = rp_get64(from + 80),
		.incarnation = rp_get32(from + 88),
		.name_len = rp_get32(from + 92),
		.head_incarnation = rp_get32(from + 96),
		.first_n = rp_get64(from + 104),
	};
	memcpy(s->id, from + 24, RPC_ID);
	memcpy(s->name, from + 112, RPC_NAME);
	if (s->kind > RPC_NAMED || s->ring < RPC_RING_MIN ||
	    s->ring > RPC_RING_MAX || s->ring % RPC_ALIGN ||
	    s->head_pos % RPC_ALIGN || !s->head_n || s->name_len > RPC_NAME)
		return -EBADMSG;
	return 0;
}

static bool is_zero(const unsigned char *bytes, size_t len)
{
	while (len && !bytes[len - 1])
		len--;
	return !len;
}

int rpc_super_find(const unsigned char *pool, uint64_t length,
		   struct rpc_super *s)
{
	struct rpc_super other;
	const int first = rpc_super_decode(pool, s);
	const int second = rpc_super_decode(pool + RPC_SLOT, &other);

	if (first == -EPROTONOSUPPORT || second == -EPROTONOSUPPORT)
		return -EPROTONOSUPPORT;
	if (first && second)
		return first == second ? first : -EBADMSG;
	if (first || (!second && other.turn > s->turn))
		*s = other;
	/* The second place is zero until turn 1: then none is missing. */
	s->alone = (first || second) &&
		   (s->turn || !is_zero(pool + RPC_SLOT, RPC_SUPER_BYTES));
	return s->ring > length - RPC_RING_AT ? -EBADMSG : 0;
}

uint32_t rpc_super_version(const unsigned char *pool)
{
	struct rpc_super s;

	if (rpc_super_decode(pool, &s) != -EPROTONOSUPPORT)
		pool += RPC_SLOT;
	return rpc_super_decode(pool, &s) == -EPROTONOSUPPORT
		       ? rp_get32(pool + 16)
		       : RPC_VERSION;
}

void rpc_page_encode(const struct rpc_page *p, unsigned char to[RPC_PAGE_BYTES])
{
	unsigned char *at = to + PAGE_TABLE;

	memset(to, 0, RPC_PAGE_BYTES);
	memcpy(to, PAGE_MAGIC, 8);
	rp_put64(to + 16, p->token);
	rp_put32(to + 24, p->name_len);
	rp_put32(to + 28, p->slots);
	memcpy(to + 32, p->name, RPC_NAME);
	memcpy(to + 32 + RPC_NAME, p->base, RPC_BASE);
	for (uint32_t i = 0; i < p->slots; i++, at += PAGE_ENTRY) {
		memcpy(at, p->v[i].id, RPC_ID);
		rp_put32(at + RPC_ID, p->v[i].kind);
	}
	rp_put64(to + 8, XXH3_64bits(to + 16, RPC_PAGE_BYTES - 16));
}

bool rpc_page_decode(const unsigned char from[RPC_PAGE_BYTES],
		     struct rpc_page *p)
{
	const unsigned char *at = from + PAGE_TABLE;

	if (memcmp(from, PAGE_MAGIC, 8) != 0 ||
	    rp_get64(from + 8) != XXH3_64bits(from + 16, RPC_PAGE_BYTES - 16))
		return false;
	p->token = rp_get64(from + 16);
	p->name_len = rp_get32(from + 24);
	p->slots = rp_get32(from + 28);
	if (p->slots > RPC_SLOTS || p->name_len > RPC_NAME)
		return false;
	memcpy(p->name, from + 32, RPC_NAME);
	memcpy(p->base, from + 32 + RPC_NAME, RPC_BASE);
	p->base[RPC_BASE - 1] = 0;
	for (uint32_t i = 0; i < p->slots; i++, at += PAGE_ENTRY) {
		memcpy(p->v[i].id, at, RPC_ID);
		p->v[i].kind = rp_get32(at + RPC_ID);
	}
	return true;
}

void rpc_entry_encode(uint64_t seed, const struct rpc_entry *e,
		      unsigned char *to)
{
	rp_put64(to + 8, XXH3_64bits_withSeed(to + RPC_HEADER, e->len, seed));
	rp_put64(to + 16, e->pos);
	rp_put64(to + 24, e->n);
	rp_put64(to + 32, e->head_pos);
	rp_put32(to + 40, (uint32_t)(e->n - e->head_n));
	rp_put32(to + 44, (uint32_t)(e->n - e->durable));
	rp_put32(to + 48, e->incarnation);
	rp_put32(to + 52, e->len);
	rp_put32(to + 56, e->room);
	rp_put32(to + 60, e->head_incarnation);
	rp_put64(to, XXH3_64bits_withSeed(to + 8, RPC_HEADER - 8, seed));
}

bool rpc_entry_decode(const struct rpc_super *s,
		      const unsigned char from[RPC_HEADER], struct rpc_entry *e)
{
	*e = (struct rpc_entry){
		.hash = rp_get64(from + 8),
		.pos = rp_get64(from + 16),
		.n = rp_get64(from + 24),
		.head_pos = rp_get64(from + 32),
		.incarnation = rp_get32(from + 48),
		.len = rp_get32(from + 52),
		.room = rp_get32(from + 56),
		.head_incarnation = rp_get32(from + 60),
	};
	e->head_n = e->n - rp_get32(from + 40);
	e->durable = e->n - rp_get32(from + 44);
	return e->n &&
	       rp_get64(from) == XXH3_64bits_withSeed(from + 8, RPC_HEADER - 8,
						      s->seed) &&
	       e->pos % RPC_ALIGN == 0 && e->head_pos % RPC_ALIGN == 0 &&
	       e->head_pos <= e->pos && e->head_n && e->head_n <= e->durable &&
	       e->durable <= e->n &&
	       rpc_entry_size(e->len, e->room) <= s->ring - e->pos % s->ring;
}

bool rpc_entry_intact(uint64_t seed, const struct rpc_entry *e,
		      const unsigned char *bytes)
{
	return XXH3_64bits_withSeed(bytes, e->len, seed) == e->hash;
}

/* Checksum of a result, seeded by its sequence and its length. */
static uint64_t result_hash(uint64_t seed, uint64_t sequence, uint32_t len,
			    const unsigned char *bytes)
{
	const uint64_t of[] = {htole64(sequence), htole64(len)};

	return XXH3_64bits_withSeed(bytes, len,
				    XXH3_64bits_withSeed(of, sizeof(of), seed));
}

void rpc_result_encode(uint64_t seed, uint64_t sequence, uint32_t len,
		       const unsigned char *bytes, unsigned char to[RPC_RESULT])
{
	rp_put64(to, result_hash(seed, sequence, len, bytes));
	rp_put64(to + 8, sequence);
	rp_put32(to + 16, len);
	memset(to + 20, 0, RPC_RESULT - 20);
}

bool rpc_result_intact(uint64_t seed, const struct rpc_result *r,
		       const unsigned char *bytes)
{
	return result_hash(seed, r->sequence, r->len, bytes) == r->hash;
}

bool rpc_result_decode(uint64_t seed, const unsigned char *from, uint64_t room,
		       uint64_t sequence, struct rpc_result *r)
{
	*r = (struct rpc_result){
		.hash = rp_get64(from),
		.sequence = rp_get64(from + 8),
		.len = rp_get32(from + 16),
		.mark = rp_get64(from + RPC_MARK_AT),
	};
	return r->sequence == sequence && r->len <= room &&
	       rpc_result_intact(seed, r, from + RPC_RESULT);
}

/*
 * Take the greatest head and the greatest acknowledged number in any valid
 * header, of any process: both are right even if the header's own call was
 * never acknowledged. The entries after that head still exist, because space is
 * reused only up to the head in a durable header. The process that has the ring
 * found all entries before first_n. If the incarnation is 0, no process has
 * used the ring.
 */
void rpc_head_find(const struct rpc_super *s, const unsigned char *ring,
		   struct rpc_cursor *c, uint64_t *durable)
{
	struct rpc_entry e;

	*c = (struct rpc_cursor){s->head_pos, s->head_n, s->head_incarnation};
	*durable = s->first_n;
	for (uint64_t at = 0; s->incarnation && at < s->ring; at += RPC_ALIGN) {
		if (!rpc_entry_decode(s, ring + at, &e) ||
		    e.pos % s->ring != at || e.incarnation > s->incarnation)
			continue;
		if (e.head_n > c->n)
			*c = (struct rpc_cursor){e.head_pos, e.head_n,
						 e.head_incarnation};
		if (e.durable > *durable)
			*durable = e.durable;
	}
}

bool rpc_super_is_old(const struct rpc_super *s, const unsigned char *ring)
{
	struct rpc_entry e;

	for (uint64_t at = 0; s->alone && at < s->ring; at += RPC_ALIGN)
		if (rpc_entry_decode(s, ring + at, &e) &&
		    e.pos % s->ring == at && e.incarnation > s->incarnation)
			return true;
	return false;
}

bool rpc_entry_find(const struct rpc_super *s, const unsigned char *ring,
		    const struct rpc_cursor *c, struct rpc_entry *e)
{
	const uint64_t left = s->ring - c->pos % s->ring;

	for (int i = 0; i < 2; i++) {
		const uint64_t pos = i ? c->pos + left : c->pos;
		const unsigned char *from = ring + pos % s->ring;
		unsigned char header[RPC_HEADER];

		/* Compare the number first: most checks find no new entry. */
		if (rp_get64(from + 24) != c->n)
			continue;
		/* Copy first: a client may be storing there. */
		memcpy(header, from, RPC_HEADER);
		if (rpc_entry_decode(s, header, e) && e->pos == pos &&
		    e->n == c->n && e->incarnation >= c->incarnation &&
		    (e->n < s->first_n ? e->incarnation < s->incarnation
				       : e->incarnation == s->incarnation))
			return true;
	}
	return false;
}

bool rpc_entry_next(const struct rpc_super *s, const unsigned char *ring,
		    const struct rpc_cursor *c, struct rpc_entry *e)
{
	return rpc_entry_find(s, ring, c, e) &&
	       rpc_entry_intact(s->seed, e,
				ring + e->pos % s->ring + RPC_HEADER);
}

void rpc_cursor_pass(struct rpc_cursor *c, const struct rpc_entry *e)
{
	c->pos = rpc_entry_end(e);
	c->n = e->n + 1;
	c->incarnation = e->incarnation;
}
