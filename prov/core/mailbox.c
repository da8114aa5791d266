// SPDX-License-Identifier: BSD-2-Clause
/* The layout of a mailbox, and whose turn it is; every byte of a peer checked.
 */
#include "core/mailbox.h"

#include <errno.h>
#include <string.h>

#include "core/bytes.h"

/* Of the tail, which ends its frame; the message stands right before it. */
enum {
	SUM,
	TAKEN = 4,
	LEN = 8,
	BELL = RP_MAILBOX_TAIL - 1,
};

/* A frame is there when its last byte is that of this round. */
static uint8_t bell_of(const struct rp_mailbox *b, uint32_t number)
{
	return (uint8_t)(1 + number / b->frames % 255);
}

static size_t tail_at(const struct rp_mailbox *b, uint32_t number)
{
	return RP_MAILBOX_CELL + (size_t)(number % b->frames + 1) * b->frame -
	       RP_MAILBOX_TAIL;
}

/*
 * Not against forgery: whoever looks while another thread copies may see the
 * last byte first.
 */
static uint32_t sum(const uint8_t *msg, size_t len, uint32_t taken,
		    uint8_t bell)
{
	uint64_t h = 0xcbf29ce484222325ull;
	uint64_t w = taken | (uint64_t)len << 32 | (uint64_t)bell << 48;
	uint8_t rest[8] = {0};
	size_t at = 0;

	for (;; at += 8) {
		h = (h ^ w) * 0x100000001b3ull;
		h ^= h >> 29;
		if (at + 8 > len)
			break;
		w = get64(msg, at);
	}
	memcpy(rest, msg + at, len - at);
	h = (h ^ get64(rest, 0)) * 0x100000001b3ull;
	return (uint32_t)(h ^ h >> 32);
}

/* The peer may write there meanwhile: each byte is read once, into a copy. */
static void read_once(void *to, const uint8_t *from, size_t len)
{
	memcpy(to, from, len);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void rp_mailbox_init(struct rp_mailbox *b, const void *in, void *out)
{
	*b = (struct rp_mailbox){
		.in = in,
		.out = out,
		.frames = RP_MAILBOX_FRAMES,
		.frame = RP_MAILBOX_FRAME,
	};
}

void rp_mailbox_init_short(struct rp_mailbox *b, const void *in, void *out)
{
	*b = (struct rp_mailbox){
		.in = in,
		.out = out,
		.frames = RP_MAILBOX_SHORTS,
		.frame = RP_MAILBOX_SHORT + RP_MAILBOX_TAIL,
	};
}

/*
 * The peer says so. What cannot be is not believed; nor is what has been said
 * before, as the cell may be seen ahead of a message.
 */
void rp_mailbox_free_up_to(struct rp_mailbox *b, uint32_t taken)
{
	if (taken - b->freed <= b->sent - b->freed)
		b->freed = taken;
}

/* The two halves are written at once, and may be seen one by one. */
static void look_at_cell(struct rp_mailbox *b)
{
	uint8_t cell[8];

	read_once(cell, b->in, sizeof(cell));
	if (get32(cell, 0) == ~get32(cell, 4))
		rp_mailbox_free_up_to(b, get32(cell, 0));
}

int rp_mailbox_put(struct rp_mailbox *b, const void *msg, size_t len,
		   struct rp_mailbox_write *w)
{
	const size_t tail = tail_at(b, b->sent);
	const uint8_t bell = bell_of(b, b->sent);
	uint8_t *p = b->out + tail;

	if (!len || len > b->frame - RP_MAILBOX_TAIL)
		return -EMSGSIZE;
	if (b->sent - b->freed >= b->frames && b->in)
		look_at_cell(b);
	if (b->sent - b->freed >= b->frames)
		return -EAGAIN;
	memcpy(p - len, msg, len);
	memset(p, 0, RP_MAILBOX_TAIL);
	put32(p, SUM, sum(msg, len, b->taken, bell));
	put32(p, TAKEN, b->taken);
	put16(p, LEN, (uint16_t)len);
	p[BELL] = bell;
	*w = (struct rp_mailbox_write){
		.buf = p - len,
		.at = tail - len,
		.len = len + RP_MAILBOX_TAIL,
	};
	b->sent++;
	b->told = b->taken;
	return 0;
}

void rp_mailbox_unput(struct rp_mailbox *b)
{
	b->sent--;
	/* Not told, then: at the worst it is told twice. */
	b->told = b->taken - b->frames / 2;
}

size_t rp_mailbox_take(struct rp_mailbox *b, void *msg)
{
	const uint8_t *p = b->in + tail_at(b, b->taken);
	const uint8_t bell = bell_of(b, b->taken);
	uint8_t tail[RP_MAILBOX_TAIL];
	size_t len;

	if (__atomic_load_n(p + BELL, __ATOMIC_ACQUIRE) != bell)
		return 0;
	read_once(tail, p, sizeof(tail));
	len = get16(tail, LEN);
	if (!len || len > b->frame - RP_MAILBOX_TAIL)
		return 0;
	read_once(msg, p - len, len);
	if (get32(tail, SUM) != sum(msg, len, get32(tail, TAKEN), bell))
		return 0;
	rp_mailbox_free_up_to(b, get32(tail, TAKEN));
	b->taken++;
	return len;
}

void rp_mailbox_cell(struct rp_mailbox *b, struct rp_mailbox_write *w)
{
	put32(b->out, 0, b->taken);
	put32(b->out, 4, ~b->taken);
	*w = (struct rp_mailbox_write){.buf = b->out, .len = 8};
}

bool rp_mailbox_owes(struct rp_mailbox *b, struct rp_mailbox_write *w)
{
	if (b->taken - b->told < b->frames / 2)
		return false;
	rp_mailbox_cell(b, w);
	return true;
}

void rp_mailbox_paid(struct rp_mailbox *b)
{
	b->told = b->taken;
}

/* Of a card, which ends what it stands in. */
enum {
	CARD_ADDR,
	CARD_KEY = 8,
	CARD_MARK = 16,
	CARD_HOW = 19,
	CARD_IN_ORDER = 1,
	CARD_FENCED = 2,
};
static const uint8_t card_mark[CARD_HOW - CARD_MARK] = {'R', 'P', 'M'};

void rp_mailbox_card_put(uint8_t out[RP_MAILBOX_CARD],
			 const struct rp_mailbox_card *card)
{
	put64(out, CARD_ADDR, card->addr);
	put64(out, CARD_KEY, card->key);
	memcpy(out + CARD_MARK, card_mark, sizeof(card_mark));
	out[CARD_HOW] = card->fenced ? CARD_FENCED : CARD_IN_ORDER;
}

bool rp_mailbox_card_get(const void *data, size_t *len,
			 struct rp_mailbox_card *card)
{
	const uint8_t *p = data;

	if (*len < RP_MAILBOX_CARD)
		return false;
	p += *len - RP_MAILBOX_CARD;
	if (memcmp(p + CARD_MARK, card_mark, sizeof(card_mark)) != 0 ||
	    (p[CARD_HOW] != CARD_IN_ORDER && p[CARD_HOW] != CARD_FENCED))
		return false;
	*len -= RP_MAILBOX_CARD;
	card->addr = get64(p, CARD_ADDR);
	card->key = get64(p, CARD_KEY);
	card->fenced = p[CARD_HOW] == CARD_FENCED;
	return true;
}

int rp_mailbox_tell(void *out, size_t room, const void *data, size_t len,
		    const struct rp_mailbox_card *card)
{
	if (room < RP_MAILBOX_CARD || len > room - RP_MAILBOX_CARD)
		return -EINVAL;
	if (len)
		memcpy(out, data, len);
	rp_mailbox_card_put((uint8_t *)out + len, card);
	return (int)(len + RP_MAILBOX_CARD);
}
