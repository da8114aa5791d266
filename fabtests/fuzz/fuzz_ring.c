// SPDX-License-Identifier: BSD-2-Clause
/* Mailboxes: writes that arrive piece by piece, and peers that write anything,
 * also while it is looked at. */
#include "fuzz.h"

/* Of what is read, the parser has but one copy: then it changes. */
static void *racing_memcpy(void *to, const void *from, size_t len);
#define memcpy racing_memcpy
#include "core/mailbox.c"
#undef memcpy

#define PENDING 64

struct end {
	struct rp_mailbox box;
	uint8_t *in, *out; /* each ends where its memory ends */
	uint32_t put;	   /* messages; of them the peer took: */
	uint32_t got;
	size_t first, n, done; /* writes under way, and of the first one */
	struct rp_mailbox_write way[PENDING];
};
static struct end end[2];
static bool honest;

/* Where the next read of what the peer writes changes what it has read. */
static uint8_t *race_in;
static size_t race_back;
static uint8_t race_with;
static uint8_t tail[RP_MAILBOX_TAIL]; /* that was read first */
static bool has_tail;

static void *racing_memcpy(void *to, const void *from, size_t len)
{
	uint8_t *at;

	memmove(to, from, len);
	for (int i = 0; i < 2; i++) {
		const uint8_t *in = end[i].in, *f = from;

		if (f < in || f >= in + RP_MAILBOX_LEN)
			continue;
		if (len == sizeof(tail) && !has_tail)
			memmove(tail, to, len);
		has_tail = true;
		if (race_in == in) {
			at = (uint8_t *)f + (race_back % (len + 32));
			if (at < in + RP_MAILBOX_LEN)
				*at ^= race_with | 1;
		}
	}
	return to;
}

static uint8_t content(uint32_t n, size_t i)
{
	return (uint8_t)(n * 31 + i * 7 + 1);
}

static size_t length(uint32_t n)
{
	return 1 + (n * 2654435761u >> 8) % RP_WIRE_MAX_MSG;
}

static void queue(struct end *e, const struct rp_mailbox_write *w)
{
	MUST(w->at + w->len <= RP_MAILBOX_LEN && w->len);
	MUST((const uint8_t *)w->buf >= e->out &&
	     (const uint8_t *)w->buf + w->len <= e->out + RP_MAILBOX_LEN);
	MUST(e->n < PENDING);
	e->way[(e->first + e->n++) % PENDING] = *w;
}

static void post(struct end *e, bool fails)
{
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_mailbox_write w;
	size_t len = length(e->put);

	for (size_t i = 0; i < len; i++)
		msg[i] = content(e->put, i);
	if (e->n >= PENDING - 1 || rp_mailbox_put(&e->box, msg, len, &w))
		return;
	MUST(w.at >= RP_MAILBOX_CELL);
	if (fails) {
		rp_mailbox_unput(&e->box);
		return;
	}
	queue(e, &w);
	e->put++;
}

/* So many bytes get there, in order: no write is there as a whole before. */
static void carry(struct end *e, struct end *to, size_t bytes)
{
	while (e->n && bytes) {
		const struct rp_mailbox_write *w = &e->way[e->first];
		size_t n = w->len - e->done;

		n = n < bytes ? n : bytes;
		memmove(to->in + w->at + e->done,
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

static void take(struct end *e, struct end *from)
{
	uint8_t *msg = malloc(RP_WIRE_MAX_MSG);
	const uint32_t sent = e->box.sent, freed = e->box.freed;
	uint32_t says;
	size_t len;

	MUST(msg);
	has_tail = false;
	len = rp_mailbox_take(&e->box, msg);
	MUST(len <= RP_WIRE_MAX_MSG);
	says = get32(tail, TAKEN);
	MUST(e->box.freed ==
	     (len && says - freed <= sent - freed ? says : freed));
	if (len) {
		/* It is what was there at one time, and told by that. */
		MUST(get16(tail, LEN) == len);
		MUST(get32(tail, SUM) ==
		     sum(msg, len, get32(tail, TAKEN),
			 bell_of(&e->box, e->box.taken - 1)));
	}
	if (len && honest) {
		MUST(from->got < from->put && len == length(from->got));
		for (size_t i = 0; i < len; i++)
			MUST(msg[i] == content(from->got, i));
		from->got++;
	}
	free(msg);
}

static void pay(struct end *e, bool fails)
{
	struct rp_mailbox_write w;

	if (e->n >= PENDING || !rp_mailbox_owes(&e->box, &w))
		return;
	MUST(w.at == 0 && w.len == 8);
	if (fails)
		return;
	queue(e, &w);
	rp_mailbox_paid(&e->box);
}

static void poke(struct end *e, struct fuzz_in *in)
{
	uint8_t bytes[32];
	size_t n = fuzz_u8(in) % sizeof(bytes);
	size_t at = (fuzz_u16(in) | (size_t)(n & 1) << 16) % RP_MAILBOX_LEN;

	fuzz_bytes(in, bytes, n);
	if (n <= RP_MAILBOX_LEN - at)
		memmove(e->in + at, bytes, n);
	honest = false;
}

/* A frame in its turn whose sum fits, whatever it says. */
static void forge(struct end *e, struct fuzz_in *in)
{
	uint8_t *p = e->in + tail_at(&e->box, e->box.taken);
	uint8_t bell = bell_of(&e->box, e->box.taken);
	uint16_t len = fuzz_u16(in);
	uint32_t taken = e->box.sent + (uint32_t)fuzz_u8(in) - 128;

	memset(p, 0, RP_MAILBOX_TAIL);
	put32(p, TAKEN, taken);
	put16(p, LEN, len);
	if (len <= RP_WIRE_MAX_MSG)
		put32(p, SUM, sum(p - len, len, taken, bell));
	p[BELL] = bell;
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
		post(e, false);
		break;
	case 3:
		post(e, true);
		break;
	case 4:
	case 5:
		carry(e, o, fuzz_u16(in));
		break;
	case 6:
		carry(e, o, fuzz_u8(in));
		break;
	case 7:
		carry(e, o, SIZE_MAX);
		break;
	case 8:
	case 9:
	case 10:
		take(e, o);
		break;
	case 11:
		pay(e, op & 16);
		break;
	case 12:
		poke(e, in);
		break;
	case 13:
		forge(e, in);
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
		MUST(end[i].box.sent - end[i].box.freed <= RP_MAILBOX_FRAMES);
}

/* Both take all that they sent each other, and nobody is stuck. */
static void finish(void)
{
	for (int i = 0; i < 8 * RP_MAILBOX_FRAMES; i++)
		for (int k = 0; k < 2; k++) {
			carry(&end[k], &end[!k], SIZE_MAX);
			take(&end[!k], &end[k]);
			pay(&end[!k], false);
		}
	for (int k = 0; k < 2; k++) {
		uint32_t put = end[k].put;

		MUST(end[k].got == put);
		post(&end[k], false);
		MUST(end[k].put == put + 1);
	}
}

/* What came with a connection: a card, or all of it is the program's. */
static void as_card(struct fuzz_in *in)
{
	const size_t was = in->left;
	struct rp_mailbox_card card = {0};
	uint8_t *came = fuzz_exact(in->p, was), *again = malloc(was + 1);
	size_t len = was;
	int n;

	MUST(again);
	if (rp_mailbox_card_get(came, &len, &card)) {
		MUST(len + RP_MAILBOX_CARD == was);
		n = rp_mailbox_tell(again, was, came, len, &card);
		MUST(n >= 0 && (size_t)n == was && !memcmp(again, came, was));
	} else {
		MUST(len == was);
	}
	if (was) {
		n = rp_mailbox_tell(again, was - 1, came, len, &card);
		MUST(n == -EINVAL || (size_t)n < was);
	}
	free(came);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t how = fuzz_u8(&in);
	uint32_t begun = how & 1 ? 0xfffffff0u : 0;

	if (how & 2) {
		as_card(&in);
		return 0;
	}
	race_in = NULL;
	honest = true;
	for (int i = 0; i < 2; i++) {
		memset(&end[i], 0, sizeof(end[i]));
		end[i].in = calloc(1, RP_MAILBOX_LEN);
		end[i].out = calloc(1, RP_MAILBOX_LEN);
		MUST(end[i].in && end[i].out);
		rp_mailbox_init(&end[i].box, end[i].in, end[i].out);
		end[i].box.sent = end[i].box.freed = begun;
		end[i].box.taken = end[i].box.told = begun;
	}
	while (in.left)
		one_step(&in);
	race_in = NULL;
	if (honest)
		finish();
	for (int i = 0; i < 2; i++) {
		free(end[i].in);
		free(end[i].out);
	}
	return 0;
}
