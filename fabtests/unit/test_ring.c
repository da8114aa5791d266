// SPDX-License-Identifier: BSD-2-Clause
/* Rings: golden bytes, ownership of slots, and peers that write any bytes. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/ring.h"

/* One of two connected ends. Sending copies a message into the peer's `in`. */
struct end {
	struct rp_ring ring;
	uint8_t in[RP_RING_LEN], out[RP_RING_LEN];
};
static struct end a, b;

static void open_both(void)
{
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	rp_ring_init(&a.ring, a.in, a.out);
	rp_ring_init(&b.ring, b.in, b.out);
}

static void place_write(const struct rp_ring_write *w, struct end *to)
{
	cr_assert_leq(w->offset + w->len, sizeof(to->in));
	memcpy(to->in + w->offset, w->buf, w->len);
}

static int send_message(struct end *from, struct end *to, const void *msg,
			size_t len)
{
	struct rp_ring_write w;
	int ret = rp_ring_put(&from->ring, msg, len, &w);

	if (!ret)
		place_write(&w, to);
	return ret;
}

/* The checksum of docs/protocol.md, implemented a second time. */
static uint32_t expected_checksum(const uint8_t *msg, uint64_t bytes,
				  uint64_t consumed, uint64_t valid)
{
	uint64_t h = 0xcbf29ce484222325ull,
		 w = consumed | bytes << 32 | valid << 48;

	for (uint64_t at = 0;; at += 8) {
		h = (h ^ w) * 0x100000001b3ull;
		if (at > bytes)
			break;
		h = h ^ h >> 29;
		w = 0;
		for (uint64_t i = at; i < at + 8 && i < bytes; i++)
			w |= (uint64_t)msg[i] << (i - at) * 8;
		if (at == bytes)
			at = bytes + 1 - 8; /* the last word ends with it */
	}
	return (uint32_t)(h ^ h >> 32);
}

Test(ring, golden_bytes)
{
	static const uint8_t golden[5 + RP_WIRE_SLOT] = {
		'h',  'e',  'l',  'l',	'o',			/* message */
		0x73, 0xf7, 0x7a, 0x27, 0x04, 0x03, 0x02, 0x01, /* sum, index */
		0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, /* ... valid */
	};
	const size_t end = RP_RING_SLOT;

	open_both();
	cr_assert_eq(RP_RING_LEN, 2752);
	cr_assert_eq(RP_RING_SLOT, 344);
	a.ring.consumed = 0x01020304;
	cr_assert_eq(send_message(&a, &b, "hello", 5), 0);
	cr_assert_arr_eq(b.in + end - sizeof(golden), golden, sizeof(golden));
	for (size_t i = 0; i < end - sizeof(golden); i++)
		cr_assert_eq(b.in[i], 0);
}

Test(ring, checksums_of_every_length)
{
	uint8_t msg[RP_RING_MSG + 1], got[RP_RING_MSG];

	for (size_t i = 0; i < sizeof(msg); i++)
		msg[i] = (uint8_t)(i * 31 + 7);
	open_both();
	for (size_t len = 1; len <= RP_RING_MSG; len++) {
		uint32_t n = a.ring.produced, sum;
		const uint8_t *tail =
			b.in + (size_t)(n % RP_RING_SLOTS + 1) * RP_RING_SLOT -
			RP_WIRE_SLOT;

		cr_assert_eq(send_message(&a, &b, msg, len), 0);
		sum = tail[0] | (uint32_t)tail[1] << 8 |
		      (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
		cr_assert_eq(sum,
			     expected_checksum(msg, len, a.ring.consumed,
					       1 + n / RP_RING_SLOTS % 255));
		cr_assert_eq(rp_ring_take(&b.ring, got), len);
		cr_assert_arr_eq(got, msg, len);
		rp_ring_release(&a.ring, b.ring.consumed);
	}
	cr_assert_eq(send_message(&a, &b, msg, 0), -EMSGSIZE);
	cr_assert_eq(send_message(&a, &b, msg, sizeof(msg)), -EMSGSIZE);
}

/* One direction only: the consumer index reaches the writer otherwise. */
Test(ring, one_direction)
{
	uint8_t in[RP_RING_LEN] = {0}, out[RP_RING_LEN] = {0};
	uint8_t msg[RP_RING_MSG], got[RP_RING_MSG];
	struct rp_ring from, to;
	struct rp_ring_write w;

	rp_ring_init(&from, NULL, out);
	rp_ring_init(&to, in, NULL);
	for (uint32_t n = 0; n < 5000; n++) {
		const size_t len = 1 + n % RP_RING_MSG;

		memset(msg, (int)n, sizeof(msg));
		if (n % RP_RING_SLOTS == 0 && n) {
			cr_assert_eq(rp_ring_put(&from, msg, len, &w), -EAGAIN);
			/* An index beyond the sent messages is ignored. */
			rp_ring_release(&from, n + 1);
			cr_assert_eq(rp_ring_put(&from, msg, len, &w), -EAGAIN);
			rp_ring_release(&from, n);
		}
		cr_assert_eq(rp_ring_put(&from, msg, len, &w), 0);
		cr_assert_leq(w.offset + w.len, sizeof(in));
		cr_assert_eq(w.len, len + RP_WIRE_SLOT);
		cr_assert_eq(rp_ring_take(&to, got), 0u);
		memcpy(in + w.offset, w.buf, w.len);
		cr_assert_eq(rp_ring_take(&to, got), len, "%u", n);
		cr_assert_arr_eq(got, msg, len);
		cr_assert_eq(rp_ring_take(&to, got), 0u);
	}
}

Test(ring, in_order_and_never_more_than_fit)
{
	uint8_t got[RP_RING_MSG];
	uint32_t sent = 0, taken = 0;
	uint64_t rnd = 7;

	open_both();
	for (int step = 0; step < 200000; step++) {
		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		switch (rnd >> 61) {
		case 0:
		case 1:
		case 2:
			if (!send_message(&a, &b, &sent, sizeof(sent)))
				sent++;
			break;
		case 3:
		case 4:
		case 5:
			if (rp_ring_take(&b.ring, got)) {
				cr_assert_arr_eq(got, &taken, sizeof(taken));
				taken++;
			}
			break;
		default: /* a message back carries the consumer index */
			if (!send_message(&b, &a, "x", 1))
				rp_ring_take(&a.ring, got);
			rp_ring_release(&b.ring, a.ring.consumed);
		}
		cr_assert_leq(sent - taken, RP_RING_SLOTS);
	}
	cr_assert_gt(taken, 20000u);
}

Test(ring, full_until_slots_are_released)
{
	uint8_t got[RP_RING_MSG];

	open_both();
	for (int i = 0; i < RP_RING_SLOTS; i++)
		cr_assert_eq(send_message(&a, &b, "m", 1), 0);
	cr_assert_eq(send_message(&a, &b, "m", 1), -EAGAIN);
	for (int i = 0; i < RP_RING_SLOTS; i++)
		cr_assert_eq(rp_ring_take(&b.ring, got), 1);
	cr_assert_eq(send_message(&a, &b, "m", 1), -EAGAIN);
	cr_assert_eq(send_message(&b, &a, "m", 1), 0);
	cr_assert_eq(rp_ring_take(&a.ring, got), 1);
	for (int i = 0; i < RP_RING_SLOTS; i++)
		cr_assert_eq(send_message(&a, &b, "m", 1), 0);
}

Test(ring, message_needs_its_last_byte)
{
	uint8_t got[RP_RING_MSG], msg[100];
	struct rp_ring_write w;

	memset(msg, 0xa5, sizeof(msg));
	open_both();
	cr_assert_eq(rp_ring_put(&a.ring, msg, sizeof(msg), &w), 0);
	for (size_t n = 0; n < w.len; n++) {
		memcpy(b.in + w.offset, w.buf, n);
		cr_assert_eq(rp_ring_take(&b.ring, got), 0, "%zu bytes", n);
	}
	/*
	 * A slot with only the last bytes of a message has no message, whatever
	 * it had before.
	 */
	open_both();
	cr_assert_eq(rp_ring_put(&a.ring, msg, sizeof(msg), &w), 0);
	for (size_t n = 1; n < w.len; n++) {
		memcpy(b.in + w.offset + w.len - n,
		       (const uint8_t *)w.buf + w.len - n, n);
		cr_assert_eq(rp_ring_take(&b.ring, got), 0, "%zu bytes", n);
	}
	place_write(&w, &b);
	cr_assert_eq(rp_ring_take(&b.ring, got), sizeof(msg));
	/* A message can be taken only once. */
	cr_assert_eq(rp_ring_take(&b.ring, got), 0);
}

Test(ring, unput_message_is_not_sent)
{
	uint8_t got[RP_RING_MSG];
	struct rp_ring_write w;

	open_both();
	cr_assert_eq(rp_ring_put(&a.ring, "one", 3, &w), 0);
	rp_ring_undo_put(&a.ring);
	cr_assert_eq(send_message(&a, &b, "two", 3), 0);
	cr_assert_eq(rp_ring_take(&b.ring, got), 3);
	cr_assert_arr_eq(got, "two", 3);
}

/* A consumer index beyond the sent messages frees no slot. */
Test(ring, wrong_consumer_index_releases_nothing)
{
	static const uint32_t lies[] = {1, 9, 1u << 31, UINT32_MAX};
	uint8_t got[RP_RING_MSG];

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		open_both();
		b.ring.consumed = lies[i];
		cr_assert_eq(send_message(&b, &a, "lie", 3), 0);
		cr_assert_eq(rp_ring_take(&a.ring, got), 3);
		for (int n = 0; n < RP_RING_SLOTS; n++)
			cr_assert_eq(send_message(&a, &b, "m", 1), 0);
		cr_assert_eq(send_message(&a, &b, "m", 1), -EAGAIN);
	}
}

/* An older consumer index that arrives later changes nothing. */
Test(ring, indices_in_another_order)
{
	uint8_t got[RP_RING_MSG];
	struct rp_ring_write late;

	open_both();
	cr_assert_eq(rp_ring_put(&b.ring, "late", 4, &late), 0);
	for (int i = 0; i < RP_RING_SLOTS; i++) {
		cr_assert_eq(send_message(&a, &b, "m", 1), 0);
		cr_assert_eq(rp_ring_take(&b.ring, got), 1);
	}
	rp_ring_release(&a.ring, b.ring.consumed);
	cr_assert_eq(send_message(&a, &b, "m", 1), 0);
	place_write(&late, &a);
	cr_assert_eq(rp_ring_take(&a.ring, got), 4);
	for (int i = 1; i < RP_RING_SLOTS; i++)
		cr_assert_eq(send_message(&a, &b, "m", 1), 0);
}

Test(ring, any_bytes_are_survived)
{
	uint8_t got[RP_RING_MSG];
	uint64_t rnd = 42;

	open_both();
	for (int round = 0; round < 2000; round++) {
		for (int n = 0; n < 64; n++) {
			rnd = rnd * 6364136223846793005ull +
			      1442695040888963407ull;
			b.in[(rnd >> 20) % sizeof(b.in)] = (uint8_t)(rnd >> 56);
			/* Overwrite some of the bytes that the reader polls. */
			b.in[RP_RING_SLOT - 1 - (rnd >> 40) % 16] =
				(uint8_t)(rnd >> 48);
		}
		b.in[RP_RING_SLOT - 1] = 1;
		cr_assert_leq(rp_ring_take(&b.ring, got), sizeof(got));
		b.ring.consumed = 0;
	}
}
