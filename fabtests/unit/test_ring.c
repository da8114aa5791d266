// SPDX-License-Identifier: BSD-2-Clause
/* Mailboxes: golden bytes, whose turn it is, and peers that write anything. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/mailbox.h"

/* Two ends of one connection. What is sent is put where it goes, or lost. */
struct end {
	struct rp_mailbox box;
	uint8_t in[RP_MAILBOX_LEN], out[RP_MAILBOX_LEN];
};
static struct end a, b;

static void open_both(void)
{
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	rp_mailbox_init(&a.box, a.in, a.out);
	rp_mailbox_init(&b.box, b.in, b.out);
}

static void carry(const struct rp_mailbox_write *w, struct end *to)
{
	cr_assert_leq(w->at + w->len, sizeof(to->in));
	memcpy(to->in + w->at, w->buf, w->len);
}

static int send(struct end *from, struct end *to, const void *msg, size_t len)
{
	struct rp_mailbox_write w;
	int ret = rp_mailbox_put(&from->box, msg, len, &w);

	if (!ret)
		carry(&w, to);
	return ret;
}

static void pay(struct end *from, struct end *to)
{
	struct rp_mailbox_write w;

	if (!rp_mailbox_owes(&from->box, &w))
		return;
	carry(&w, to);
	rp_mailbox_paid(&from->box);
}

/* As docs/protocol.md has it, in its own words. */
static uint32_t sum_of(const uint8_t *msg, uint64_t bytes, uint64_t taken,
		       uint64_t bell)
{
	uint64_t h = 0xcbf29ce484222325ull,
		 w = taken | bytes << 32 | bell << 48;

	for (uint64_t at = 0;; at += 8) {
		h = (h ^ w) * 0x100000001b3ull;
		if (at > bytes)
			break;
		h = h ^ h >> 29;
		w = 0;
		for (uint64_t i = at; i < at + 8 && i < bytes; i++)
			w |= (uint64_t)msg[i] << (i - at) * 8;
		if (at == bytes)
			at = bytes + 1 - 8; /* the zeros are the last */
	}
	return (uint32_t)(h ^ h >> 32);
}

Test(mailbox, golden_bytes)
{
	static const uint8_t golden[5 + RP_MAILBOX_TAIL] = {
		'h',  'e',  'l',  'l',	'o',			/* at the end */
		0x73, 0xf7, 0x7a, 0x27, 0x04, 0x03, 0x02, 0x01, /* sum, taken */
		0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, /* ... bell */
	};
	const size_t end = RP_MAILBOX_CELL + RP_MAILBOX_FRAME;

	open_both();
	cr_assert_eq(RP_MAILBOX_LEN, 67008);
	cr_assert_eq(RP_MAILBOX_FRAME, 4184);
	a.box.taken = 0x01020304;
	cr_assert_eq(send(&a, &b, "hello", 5), 0);
	cr_assert_arr_eq(b.in + end - sizeof(golden), golden, sizeof(golden));
	for (size_t i = 0; i < end - sizeof(golden); i++)
		cr_assert_eq(b.in[i], 0);
}

Test(mailbox, sums_of_every_length)
{
	uint8_t msg[RP_WIRE_MAX_MSG], got[RP_WIRE_MAX_MSG];

	for (size_t i = 0; i < sizeof(msg); i++)
		msg[i] = (uint8_t)(i * 31 + 7);
	open_both();
	for (size_t len = 1; len <= sizeof(msg); len += len < 40 ? 1 : 257) {
		uint32_t n = a.box.sent, sum;
		const uint8_t *tail =
			b.in + RP_MAILBOX_CELL +
			(size_t)(n % RP_MAILBOX_FRAMES + 1) * RP_MAILBOX_FRAME -
			RP_MAILBOX_TAIL;

		cr_assert_eq(send(&a, &b, msg, len), 0);
		sum = tail[0] | (uint32_t)tail[1] << 8 |
		      (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
		cr_assert_eq(sum, sum_of(msg, len, a.box.taken,
					 1 + n / RP_MAILBOX_FRAMES % 255));
		cr_assert_eq(rp_mailbox_take(&b.box, got), len);
		cr_assert_arr_eq(got, msg, len);
		pay(&b, &a);
	}
	cr_assert_eq(send(&a, &b, msg, 0), -EMSGSIZE);
	cr_assert_eq(send(&a, &b, msg, sizeof(msg) + 1), -EMSGSIZE);
}

/* Short ones, one way: taken is what the writer is told otherwise. */
Test(mailbox, short_ones)
{
	uint8_t in[RP_MAILBOX_SHORT_LEN] = {0}, out[RP_MAILBOX_SHORT_LEN] = {0};
	uint8_t msg[RP_MAILBOX_SHORT + 1] = {0}, got[RP_MAILBOX_SHORT];
	struct rp_mailbox from, to;
	struct rp_mailbox_write w;

	rp_mailbox_init_short(&from, NULL, out);
	rp_mailbox_init_short(&to, in, NULL);
	for (uint32_t n = 0; n < 5000; n++) {
		const size_t len = 1 + n % RP_MAILBOX_SHORT;

		memset(msg, (int)n, sizeof(msg));
		if (n % RP_MAILBOX_SHORTS == 0 && n) {
			cr_assert_eq(rp_mailbox_put(&from, msg, len, &w),
				     -EAGAIN);
			/* More than was sent cannot have been. */
			rp_mailbox_free_up_to(&from, n + 1);
			cr_assert_eq(rp_mailbox_put(&from, msg, len, &w),
				     -EAGAIN);
			rp_mailbox_free_up_to(&from, n);
		}
		cr_assert_eq(rp_mailbox_put(&from, msg, len, &w), 0);
		cr_assert_leq(w.at + w.len, sizeof(in));
		cr_assert_eq(w.len, len + RP_MAILBOX_TAIL);
		cr_assert_eq(rp_mailbox_take(&to, got), 0u);
		memcpy(in + w.at, w.buf, w.len);
		cr_assert_eq(rp_mailbox_take(&to, got), len, "%u", n);
		cr_assert_arr_eq(got, msg, len);
		cr_assert_eq(rp_mailbox_take(&to, got), 0u);
	}
	cr_assert_eq(rp_mailbox_put(&from, msg, sizeof(msg), &w), -EMSGSIZE);
}

Test(mailbox, in_order_and_never_more_than_fit)
{
	uint8_t got[RP_WIRE_MAX_MSG];
	uint32_t sent = 0, taken = 0;
	uint64_t rnd = 7;

	open_both();
	for (int step = 0; step < 200000; step++) {
		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		switch (rnd >> 61) {
		case 0:
		case 1:
		case 2:
			if (!send(&a, &b, &sent, sizeof(sent)))
				sent++;
			break;
		case 3:
		case 4:
			if (rp_mailbox_take(&b.box, got)) {
				cr_assert_arr_eq(got, &taken, sizeof(taken));
				taken++;
			}
			break;
		case 5: /* the other direction tells of it as well */
			if (!send(&b, &a, "x", 1))
				rp_mailbox_take(&a.box, got);
			pay(&a, &b);
			break;
		default:
			pay(&b, &a);
		}
		cr_assert_leq(sent - taken, RP_MAILBOX_FRAMES);
	}
	cr_assert_gt(taken, 20000u);
}

Test(mailbox, full_until_it_is_told)
{
	uint8_t got[RP_WIRE_MAX_MSG];

	open_both();
	for (int i = 0; i < RP_MAILBOX_FRAMES; i++)
		cr_assert_eq(send(&a, &b, "m", 1), 0);
	cr_assert_eq(send(&a, &b, "m", 1), -EAGAIN);
	for (int i = 0; i < RP_MAILBOX_FRAMES; i++) {
		cr_assert_eq(send(&b, &a, "m", 1), 0);
		cr_assert_eq(rp_mailbox_take(&b.box, got), 1);
	}
	/* Both have sent all they could, and taken all: nobody is stuck. */
	while (rp_mailbox_take(&a.box, got))
		;
	cr_assert_eq(rp_mailbox_take(&b.box, got), 0);
	pay(&a, &b);
	pay(&b, &a);
	cr_assert_eq(send(&a, &b, "m", 1), 0);
	cr_assert_eq(send(&b, &a, "m", 1), 0);
}

Test(mailbox, not_there_before_its_last_byte)
{
	uint8_t got[RP_WIRE_MAX_MSG], msg[100];
	struct rp_mailbox_write w;

	memset(msg, 0xa5, sizeof(msg));
	open_both();
	cr_assert_eq(rp_mailbox_put(&a.box, msg, sizeof(msg), &w), 0);
	for (size_t n = 0; n < w.len; n++) {
		memcpy(b.in + w.at, w.buf, n);
		cr_assert_eq(rp_mailbox_take(&b.box, got), 0, "%zu bytes", n);
	}
	/* Nor with the last one alone, whatever was there before. */
	open_both();
	cr_assert_eq(rp_mailbox_put(&a.box, msg, sizeof(msg), &w), 0);
	for (size_t n = 1; n < w.len; n++) {
		memcpy(b.in + w.at + w.len - n,
		       (const uint8_t *)w.buf + w.len - n, n);
		cr_assert_eq(rp_mailbox_take(&b.box, got), 0, "%zu bytes", n);
	}
	carry(&w, &b);
	cr_assert_eq(rp_mailbox_take(&b.box, got), sizeof(msg));
	/* And not twice. */
	cr_assert_eq(rp_mailbox_take(&b.box, got), 0);
}

Test(mailbox, what_could_not_be_written_was_not_sent)
{
	uint8_t got[RP_WIRE_MAX_MSG];
	struct rp_mailbox_write w;

	open_both();
	cr_assert_eq(rp_mailbox_put(&a.box, "one", 3, &w), 0);
	rp_mailbox_unput(&a.box);
	cr_assert_eq(send(&a, &b, "two", 3), 0);
	cr_assert_eq(rp_mailbox_take(&b.box, got), 3);
	cr_assert_arr_eq(got, "two", 3);
	/* What it would have told is told in another way. */
	for (int i = 0; i < RP_MAILBOX_FRAMES / 2 - 1; i++) {
		cr_assert_eq(send(&b, &a, "m", 1), 0);
		cr_assert_eq(rp_mailbox_take(&a.box, got), 1);
	}
	cr_assert_not(rp_mailbox_owes(&a.box, &w));
	cr_assert_eq(rp_mailbox_put(&a.box, "m", 1, &w), 0);
	rp_mailbox_unput(&a.box);
	cr_assert(rp_mailbox_owes(&a.box, &w));
}

/* A peer that says it took what was not sent gets no frames for that. */
Test(mailbox, lies_about_what_was_taken)
{
	static const uint32_t lies[] = {1, 17, 1u << 31, UINT32_MAX};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		open_both();
		b.box.taken = lies[i];
		b.box.told = lies[i] - RP_MAILBOX_FRAMES;
		pay(&b, &a);
		for (int n = 0; n < RP_MAILBOX_FRAMES; n++)
			cr_assert_eq(send(&a, &b, "m", 1), 0);
		if (lies[i] <= RP_MAILBOX_FRAMES)
			continue; /* true by then: it loses its own */
		cr_assert_eq(send(&a, &b, "m", 1), -EAGAIN);
	}
	/* Half of the cell, as it may be seen. */
	open_both();
	for (int n = 0; n < RP_MAILBOX_FRAMES; n++)
		cr_assert_eq(send(&a, &b, "m", 1), 0);
	a.in[0] = 8;
	cr_assert_eq(send(&a, &b, "m", 1), -EAGAIN);
	memset(a.in + 4, 0xff, 4);
	a.in[4] = (uint8_t)~8;
	cr_assert_eq(send(&a, &b, "m", 1), 0);
}

/* A cell that is seen ahead of an older message takes nothing back. */
Test(mailbox, told_in_another_order)
{
	uint8_t got[RP_WIRE_MAX_MSG];
	struct rp_mailbox_write late;

	open_both();
	cr_assert_eq(rp_mailbox_put(&b.box, "late", 4, &late), 0);
	for (int i = 0; i < RP_MAILBOX_FRAMES; i++) {
		cr_assert_eq(send(&a, &b, "m", 1), 0);
		cr_assert_eq(rp_mailbox_take(&b.box, got), 1);
	}
	pay(&b, &a);
	cr_assert_eq(send(&a, &b, "m", 1), 0);
	carry(&late, &a);
	cr_assert_eq(rp_mailbox_take(&a.box, got), 4);
	for (int i = 1; i < RP_MAILBOX_FRAMES; i++)
		cr_assert_eq(send(&a, &b, "m", 1), 0);
}

Test(mailbox, whatever_is_written)
{
	uint8_t got[RP_WIRE_MAX_MSG];
	uint64_t rnd = 42;

	open_both();
	for (int round = 0; round < 2000; round++) {
		for (int n = 0; n < 64; n++) {
			rnd = rnd * 6364136223846793005ull +
			      1442695040888963407ull;
			b.in[(rnd >> 20) % sizeof(b.in)] = (uint8_t)(rnd >> 56);
			/* Where it is looked at. */
			b.in[RP_MAILBOX_CELL + RP_MAILBOX_FRAME - 1 -
			     (rnd >> 40) % 16] = (uint8_t)(rnd >> 48);
		}
		b.in[RP_MAILBOX_CELL + RP_MAILBOX_FRAME - 1] = 1;
		cr_assert_leq(rp_mailbox_take(&b.box, got), sizeof(got));
		b.box.taken = 0;
	}
}

static const struct rp_mailbox_card some_card = {
	.addr = 0x0102030405060708,
	.key = 0x1112131415161718,
};

Test(mailbox, golden_card)
{
	static const uint8_t golden[RP_MAILBOX_CARD] = {
		0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* address */
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* key */
		'R',  'P',  'M',  1,
	};
	struct rp_mailbox_card card = some_card, got;
	uint8_t out[RP_MAILBOX_CARD];
	size_t len = sizeof(out);

	cr_assert_eq(RP_MAILBOX_CARD, 20);
	rp_mailbox_card_put(out, &card);
	cr_assert_arr_eq(out, golden, sizeof(golden));
	card.fenced = true;
	rp_mailbox_card_put(out, &card);
	cr_assert_arr_eq(out, golden, sizeof(golden) - 1);
	cr_assert_eq(out[19], 2);
	cr_assert(rp_mailbox_card_get(out, &len, &got));
	cr_assert(got.fenced);
}

/* Behind whatever a program says, of any length that leaves room. */
Test(mailbox, card_behind_the_program_s_bytes)
{
	uint8_t said[64], out[64];
	struct rp_mailbox_card got;

	for (size_t i = 0; i < sizeof(said); i++)
		said[i] = (uint8_t)(i * 7 + 3);
	for (size_t room = 0; room <= sizeof(out); room++)
		for (size_t len = 0; len <= sizeof(said); len++) {
			size_t left;
			int n;

			memset(out, 0xee, sizeof(out));
			memset(&got, 0, sizeof(got));
			n = rp_mailbox_tell(out, room, said, len, &some_card);
			if (len + RP_MAILBOX_CARD > room) {
				cr_assert_eq(n, -EINVAL);
				for (size_t i = 0; i < sizeof(out); i++)
					cr_assert_eq(out[i], 0xee);
				continue;
			}
			cr_assert_eq(n, (int)(len + RP_MAILBOX_CARD));
			for (size_t i = (size_t)n; i < sizeof(out); i++)
				cr_assert_eq(out[i], 0xee);
			left = (size_t)n;
			cr_assert(rp_mailbox_card_get(out, &left, &got));
			cr_assert_eq(left, len);
			if (len)
				cr_assert_arr_eq(out, said, len);
			cr_assert_eq(got.addr, some_card.addr);
			cr_assert_eq(got.key, some_card.key);
			cr_assert_not(got.fenced);
		}
}

/* What is no card stays the program's as it is. */
Test(mailbox, no_card)
{
	uint8_t card[RP_MAILBOX_CARD];
	struct rp_mailbox_card got = {0};
	size_t len;

	rp_mailbox_card_put(card, &some_card);
	for (len = 0; len < sizeof(card); len++) {
		size_t left = len;

		cr_assert_not(rp_mailbox_card_get(card + sizeof(card) - len,
						  &left, &got));
		cr_assert_eq(left, len);
	}
	/* Another version, or somebody else's bytes. */
	for (size_t i = 16; i < sizeof(card); i++) {
		card[i] ^= 5;
		len = sizeof(card);
		cr_assert_not(rp_mailbox_card_get(card, &len, &got));
		cr_assert_eq(len, sizeof(card));
		card[i] ^= 5;
	}
	cr_assert_eq(got.addr, 0);
	cr_assert_eq(got.key, 0);
}
