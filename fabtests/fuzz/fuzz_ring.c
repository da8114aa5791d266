// SPDX-License-Identifier: BSD-2-Clause
/*
 * Rings: RDMA writes arrive in parts, and peers write any bytes, even while the
 * consumer reads.
 */
#include "fuzz.h"

/*
 * Each copy in the parser races with a write of the peer: the source changes
 * after the copy, so the parser must use only its copy.
 */
static void *racing_memcpy(void *to, const void *from, size_t len);
#define memcpy racing_memcpy
#include "core/ring.c"
#undef memcpy

#define PENDING 64

struct end {
	struct rp_ring ring;
	uint8_t *in, *out; /* each ends where its memory ends */
	uint32_t put;	   /* number of posted messages */
	uint32_t got;
	size_t first, n, done; /* posted writes; placed bytes of the first */
	struct rp_ring_write way[PENDING];
};
static struct end end[2];
static bool honest;

/*
 * The ring whose bytes racing_memcpy() changes after its next copy, at the
 * distance race_back from the copied bytes.
 */
static uint8_t *race_in;
static size_t race_back;
static uint8_t race_with;
static uint8_t tail[RP_WIRE_SLOT]; /* first copy of the slot header */
static bool has_tail;

static void *racing_memcpy(void *to, const void *from, size_t len)
{
	uint8_t *at;

	memmove(to, from, len);
	for (int i = 0; i < 2; i++) {
		const uint8_t *in = end[i].in, *f = from;

		if (f < in || f >= in + RP_RING_LEN)
			continue;
		if (len == sizeof(tail) && !has_tail)
			memmove(tail, to, len);
		has_tail = true;
		if (race_in == in) {
			at = (uint8_t *)f + (race_back % (len + 32));
			if (at < in + RP_RING_LEN)
				*at ^= race_with | 1;
		}
	}
	return to;
}

static uint8_t byte_of(uint32_t n, size_t i)
{
	return (uint8_t)(n * 31 + i * 7 + 1);
}

static size_t length_of(uint32_t n)
{
	return 1 + (n * 2654435761u >> 8) % RP_RING_MSG;
}

static void queue_write(struct end *e, const struct rp_ring_write *w)
{
	MUST(w->offset + w->len <= RP_RING_LEN && w->len);
	MUST((const uint8_t *)w->buf >= e->out &&
	     (const uint8_t *)w->buf + w->len <= e->out + RP_RING_LEN);
	MUST(e->n < PENDING);
	e->way[(e->first + e->n++) % PENDING] = *w;
}

static void post_message(struct end *e, bool fails)
{
	uint8_t msg[RP_RING_MSG];
	struct rp_ring_write w;
	size_t len = length_of(e->put);

	for (size_t i = 0; i < len; i++)
		msg[i] = byte_of(e->put, i);
	if (e->n >= PENDING - 1 || rp_ring_put(&e->ring, msg, len, &w))
		return;
	if (fails) {
		rp_ring_undo_put(&e->ring);
		return;
	}
	queue_write(e, &w);
	e->put++;
}

/*
 * Place the next `bytes` bytes in posting order: each write only after all
 * earlier writes.
 */
static void carry_bytes(struct end *e, struct end *to, size_t bytes)
{
	while (e->n && bytes) {
		const struct rp_ring_write *w = &e->way[e->first];
		size_t n = w->len - e->done;

		n = n < bytes ? n : bytes;
		memmove(to->in + w->offset + e->done,
			(const uint8_t *)w->buf + e->done, n);
		e->done += n;
		bytes -= n;
		if (e->done < w->len)
			return;
		e->done = 0;
		e->first = (e->first + 1) % PENDING;
		e->n--;
	}
}

static void take_messages(struct end *e, struct end *from)
{
	uint8_t *msg = malloc(RP_RING_MSG);
	const uint32_t sent = e->ring.produced,
		       released = e->ring.peer_consumed;
	struct rp_wire_slot slot;
	size_t len;

	MUST(msg);
	has_tail = false;
	len = rp_ring_take(&e->ring, msg);
	MUST(len <= RP_RING_MSG);
	rp_wire_get_slot(tail, &slot);
	MUST(e->ring.peer_consumed ==
	     (len && slot.consumed - released <= sent - released ? slot.consumed
								 : released));
	if (len) {
		/*
		 * The length and the checksum must be those of the first copy.
		 */
		MUST(slot.length == len);
		slot.valid = valid_byte(e->ring.consumed - 1);
		MUST(slot.checksum == rp_wire_slot_checksum(&slot, msg));
	}
	if (len && honest) {
		MUST(from->got < from->put && len == length_of(from->got));
		for (size_t i = 0; i < len; i++)
			MUST(msg[i] == byte_of(from->got, i));
		from->got++;
	}
	free(msg);
}

/* Tell the other end the consumer index, or a wrong one. */
static void tell_consumed(struct end *e, struct end *to, uint32_t lie)
{
	rp_ring_release(&to->ring, e->ring.consumed + lie);
	honest = honest && !lie;
}

static void corrupt_byte(struct end *e, struct fuzz_in *in)
{
	uint8_t bytes[32];
	size_t n = fuzz_u8(in) % sizeof(bytes);
	size_t at = (fuzz_u16(in) | (size_t)(n & 1) << 16) % RP_RING_LEN;

	fuzz_bytes(in, bytes, n);
	if (n <= RP_RING_LEN - at)
		memmove(e->in + at, bytes, n);
	honest = false;
}

/* Forge a slot with the expected valid byte and a matching checksum. */
static void forge_slot(struct end *e, struct fuzz_in *in)
{
	uint8_t *p = e->in + tail_offset(e->ring.consumed);
	struct rp_wire_slot slot = {.valid = valid_byte(e->ring.consumed)};

	slot.length = fuzz_u16(in);
	slot.consumed = e->ring.produced + (uint32_t)fuzz_u8(in) - 128;
	if (slot.length <= RP_RING_MSG)
		rp_wire_put_slot(p, &slot, p - slot.length);
	p[RP_WIRE_SLOT - 1] = slot.valid;
	honest = false;
}

static void one_step(struct fuzz_in *in)
{
	uint8_t op = fuzz_u8(in);
	struct end *e = &end[op >> 7], *o = &end[!(op >> 7)];

	switch (op & 15) {
	case 0:
	case 1:
	case 2:
		post_message(e, false);
		break;
	case 3:
		post_message(e, true);
		break;
	case 4:
	case 5:
		carry_bytes(e, o, fuzz_u16(in));
		break;
	case 6:
		carry_bytes(e, o, fuzz_u8(in));
		break;
	case 7:
		carry_bytes(e, o, SIZE_MAX);
		break;
	case 8:
	case 9:
	case 10:
		take_messages(e, o);
		break;
	case 11:
		tell_consumed(e, o, op & 16 ? fuzz_u8(in) : 0);
		break;
	case 12:
		corrupt_byte(e, in);
		break;
	case 13:
		forge_slot(e, in);
		break;
	case 14:
		race_in = e->in;
		race_back = fuzz_u16(in);
		race_with = fuzz_u8(in);
		honest = false;
		break;
	default:
		race_in = NULL;
		break;
	}
	for (int i = 0; i < 2; i++)
		MUST(end[i].ring.produced - end[i].ring.peer_consumed <=
		     RP_RING_SLOTS);
}

/* Both ends receive all sent messages, and can post again. */
static void finish_both(void)
{
	for (int i = 0; i < 8 * RP_RING_SLOTS; i++)
		for (int k = 0; k < 2; k++) {
			carry_bytes(&end[k], &end[!k], SIZE_MAX);
			take_messages(&end[!k], &end[k]);
			tell_consumed(&end[!k], &end[k], 0);
		}
	for (int k = 0; k < 2; k++) {
		uint32_t put = end[k].put;

		MUST(end[k].got == put);
		post_message(&end[k], false);
		MUST(end[k].put == put + 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t how = fuzz_u8(&in);
	uint32_t begun = how & 1 ? 0xfffffff0u : 0;

	race_in = NULL;
	honest = true;
	for (int i = 0; i < 2; i++) {
		memset(&end[i], 0, sizeof(end[i]));
		end[i].in = calloc(1, RP_RING_LEN);
		end[i].out = calloc(1, RP_RING_LEN);
		MUST(end[i].in && end[i].out);
		rp_ring_init(&end[i].ring, end[i].in, end[i].out);
		end[i].ring.produced = end[i].ring.peer_consumed = begun;
		end[i].ring.consumed = begun;
	}
	while (in.left)
		one_step(&in);
	race_in = NULL;
	if (honest)
		finish_both();
	for (int i = 0; i < 2; i++) {
		free(end[i].in);
		free(end[i].out);
	}
	return 0;
}
