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
static uint8_t bell_of(uint32_t number)
{
	return (uint8_t)(1 + number / RP_MAILBOX_FRAMES % 255);
}

static size_t tail_at(uint32_t number)
{
	return RP_MAILBOX_CELL +
	       (size_t)(number % RP_MAILBOX_FRAMES + 1) * RP_MAILBOX_FRAME -
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
	*b = (struct rp_mailbox){.in = in, .out = out};
}

/*
 * The peer says so. What cannot be is not believed; nor is what has been said
 * before, as the cell may be seen ahead of a message.
 */
static void free_up_to(struct rp_mailbox *b, uint32_t taken)
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
		free_up_to(b, get32(cell, 0));
}

int rp_mailbox_put(struct rp_mailbox *b, const void *msg, size_t len,
		   struct rp_mailbox_write *w)
{
	const size_t tail = tail_at(b->sent);
	const uint8_t bell = bell_of(b->sent);
	uint8_t *p = b->out + tail;

	if (!len || len > RP_WIRE_MAX_MSG)
		return -EMSGSIZE;
	if (b->sent - b->freed >= RP_MAILBOX_FRAMES)
		look_at_cell(b);
	if (b->sent - b->freed >= RP_MAILBOX_FRAMES)
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
	b->told = b->taken - RP_MAILBOX_FRAMES / 2;
}

size_t rp_mailbox_take(struct rp_mailbox *b, void *msg)
{
	const uint8_t *p = b->in + tail_at(b->taken);
	const uint8_t bell = bell_of(b->taken);
	uint8_t tail[RP_MAILBOX_TAIL];
	size_t len;

	if (__atomic_load_n(p + BELL, __ATOMIC_ACQUIRE) != bell)
		return 0;
	read_once(tail, p, sizeof(tail));
	len = get16(tail, LEN);
	if (!len || len > RP_WIRE_MAX_MSG)
		return 0;
	read_once(msg, p - len, len);
	if (get32(tail, SUM) != sum(msg, len, get32(tail, TAKEN), bell))
		return 0;
	free_up_to(b, get32(tail, TAKEN));
	b->taken++;
	return len;
}

bool rp_mailbox_owes(struct rp_mailbox *b, struct rp_mailbox_write *w)
{
	if (b->taken - b->told < RP_MAILBOX_FRAMES / 2)
		return false;
	put32(b->out, 0, b->taken);
	put32(b->out, 4, ~b->taken);
	*w = (struct rp_mailbox_write){.buf = b->out, .len = 8};
	return true;
}

void rp_mailbox_paid(struct rp_mailbox *b)
{
	b->told = b->taken;
}
