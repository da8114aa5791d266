// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode superblocks, entries, and the tail words. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "rpmem_log.h"
#include "liblog/format.h"
#include "util/bytes.h"

#define MAGIC	  "RPMEMLOG"
#define RPC_MAGIC "RPMEMRPC"
#define ENTRY_MAX (16u << 20)
#define PAD	  (1u << 31)

_Static_assert(LOG_PLACES_AT + LOG_PLACES * LOG_PLACE <= LOG_RING_AT,
	       "the places end before the ring");

void log_super_encode(const struct log_super *s,
		      unsigned char to[LOG_SUPER_BYTES])
{
	memset(to, 0, LOG_SUPER_BYTES);
	memcpy(to, MAGIC, 8);
	rp_put32(to + 16, LOG_VERSION);
	rp_put32(to + 20, s->layout);
	rp_put64(to + 24, s->id);
	rp_put64(to + 32, s->ring);
	rp_put64(to + 40, s->turn);
	rp_put64(to + 48, s->epoch);
	rp_put64(to + 56, s->head);
	rp_put64(to + 64, s->mark);
	rp_put32(to + 72, s->logs);
	rp_put32(to + 76, s->log);
	rp_put64(to + 8, XXH3_64bits(to + 16, LOG_SUPER_BYTES - 16));
}

int log_super_decode(const unsigned char from[LOG_SUPER_BYTES],
		     struct log_super *s)
{
	const uint32_t version = rp_get32(from + 16);

	if (memcmp(from, RPC_MAGIC, 8) == 0)
		return -EMEDIUMTYPE;
	if (memcmp(from, MAGIC, 8) != 0)
		return -ENODATA;
	if (rp_get64(from + 8) != XXH3_64bits(from + 16, LOG_SUPER_BYTES - 16))
		return -EBADMSG;
	if (!version || version > LOG_VERSION)
		return -EPROTONOSUPPORT;
	*s = (struct log_super){
		.layout = rp_get32(from + 20),
		.id = rp_get64(from + 24),
		.ring = rp_get64(from + 32),
		.turn = rp_get64(from + 40),
		.epoch = rp_get64(from + 48),
		.head = rp_get64(from + 56),
		.mark = rp_get64(from + 64),
		.logs = rp_get32(from + 72),
		.log = rp_get32(from + 76),
	};
	if (s->layout > RPMEM_LOG_REGISTER || s->ring < LOG_RING_MIN ||
	    s->ring % LOG_ALIGN || s->head % LOG_ALIGN || s->mark % LOG_ALIGN ||
	    s->head < LOG_FIRST || s->mark < s->head ||
	    (version > 1 ? s->log >= s->logs : s->logs | s->log) ||
	    s->mark - s->head > s->ring || (s->turn | s->epoch | s->mark) >> 63)
		return -EBADMSG;
	return 0;
}

uint64_t log_entry_max(const struct log_super *s)
{
	const uint64_t half = s->ring / 2 / LOG_ALIGN * LOG_ALIGN - LOG_HEADER;

	return half < ENTRY_MAX ? half : ENTRY_MAX;
}

static uint64_t checksum(const struct log_super *s, const unsigned char *entry,
			 uint32_t len)
{
	return XXH3_64bits_withSeed(entry + 8, LOG_HEADER - 8 + len, s->id);
}

void log_entry_encode(const struct log_super *s, const struct log_entry *e,
		      unsigned char *to)
{
	rp_put64(to + 8, e->lsn);
	/* 32 bits are enough: far less than 2^32 * LOG_ALIGN is outstanding. */
	rp_put32(to + 16, (uint32_t)((e->lsn - e->durable) / LOG_ALIGN));
	rp_put32(to + 20, e->len | (e->pad ? PAD : 0));
	rp_put64(to + 24, e->epoch);
	rp_put64(to, checksum(s, to, e->len));
}

bool log_entry_decode(const struct log_super *s, const unsigned char *from,
		      uint64_t lsn, struct log_entry *e)
{
	const uint64_t left = log_ring_left(s, lsn);
	const uint32_t len = rp_get32(from + 20);

	*e = (struct log_entry){
		.lsn = rp_get64(from + 8),
		.epoch = rp_get64(from + 24),
		.len = len & ~PAD,
		.pad = len & PAD,
	};
	e->durable = lsn - (uint64_t)rp_get32(from + 16) * LOG_ALIGN;
	e->next = lsn + (e->pad ? left : log_entry_size(e->len));
	return e->lsn == lsn && e->durable <= lsn &&
	       (e->pad ? !e->len : e->len && e->len <= log_entry_max(s)) &&
	       e->next - lsn <= left &&
	       (lsn < s->mark ? e->epoch <= s->epoch : e->epoch == s->epoch);
}

bool log_entry_decode_newer(const struct log_super *s,
			    const unsigned char *from, uint64_t at,
			    struct log_entry *e)
{
	const struct log_super any = {.ring = s->ring,
				      .epoch = rp_get64(from + 24)};
	const uint64_t lsn = rp_get64(from + 8);

	return lsn % s->ring == at && log_entry_decode(&any, from, lsn, e) &&
	       (e->epoch > s->epoch || e->next > s->head + s->ring);
}

bool log_entry_intact(const struct log_super *s, const unsigned char *from,
		      const struct log_entry *e)
{
	return rp_get64(from) == checksum(s, from, e->len);
}

/*
 * RPMEM_LOG_TAIL stores each tail in the first word. The other layouts rotate
 * over LOG_PLACES words, because a CPU is slow to write back the same cache
 * line again. RPMEM_LOG_COUNTER: the greatest word is the tail.
 * RPMEM_LOG_REGISTER: a word gets the XOR of the tail and of all other words,
 * so that the XOR of all words is the tail.
 */
void log_places_store(struct log_places *p, uint32_t layout, uint64_t lsn,
		      uint64_t *offset, uint64_t *value)
{
	const unsigned int at = layout == RPMEM_LOG_TAIL ? 0 : p->next;

	*value = lsn;
	if (layout == RPMEM_LOG_REGISTER)
		for (unsigned int i = 0; i < LOG_PLACES; i++)
			*value ^= i == at ? 0 : p->value[i];
	*offset = LOG_PLACES_AT + at * LOG_PLACE;
	p->value[at] = *value;
	p->next = (at + 1) % LOG_PLACES;
}

uint64_t log_places_load(struct log_places *p, uint32_t layout,
			 const unsigned char *from)
{
	uint64_t max = 0, sum = 0;

	for (unsigned int i = 0; i < LOG_PLACES; i++) {
		p->value[i] = rp_get64(from + (size_t)i * LOG_PLACE);
		sum ^= p->value[i];
		if (p->value[i] > max) {
			max = p->value[i];
			p->next = (i + 1) % LOG_PLACES;
		}
	}
	return layout == RPMEM_LOG_TAIL	      ? p->value[0]
	       : layout == RPMEM_LOG_REGISTER ? sum
					      : max;
}
