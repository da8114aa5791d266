// SPDX-License-Identifier: BSD-2-Clause
/* Asking a peer's agent: one session, what is sent when, and how it ends. */
#include <assert.h>
#include <string.h>

#include "core/ask.h"
#include "core/bytes.h"
#include "core/wire_desc.h"

#define NS_PER_MS    1000000ull
#define NOTE_MAGIC   0x4e4d5052u /* "RPMN" */
#define NOTE_VERSION 1

void rp_ask_init(struct rp_ask *a, uint64_t cookie, uint32_t number,
		 uint64_t patience)
{
	*a = (struct rp_ask){
		.cookie = cookie,
		.number = number,
		.patience = patience,
		.next_token = 1,
		.next_seq = 1,
	};
	STAILQ_INIT(&a->items);
	LIST_INIT(&a->early);
}

void rp_note_put(void *buf, enum rp_note note)
{
	uint8_t *p = buf;

	memset(p, 0, RP_NOTE_LEN);
	put32(p, 0, NOTE_MAGIC);
	put16(p, 4, NOTE_VERSION);
	put16(p, 6, RP_NOTE_LEN);
	p[8] = (uint8_t)note;
	put32(p, RP_NOTE_LEN - 4, rp_crc32(p, RP_NOTE_LEN - 4));
}

bool rp_note_get(const void *buf, size_t len, enum rp_note *note)
{
	uint8_t as[RP_NOTE_LEN];

	if (len != RP_NOTE_LEN)
		return false;
	for (int n = RP_NOTE_AWAKE; n <= RP_NOTE_LOOK; n++) {
		rp_note_put(as, (enum rp_note)n);
		*note = (enum rp_note)n;
		if (!memcmp(as, buf, len))
			return true;
	}
	return false;
}

void rp_ask_name(uint32_t number, uint8_t name[RP_ASK_NAME])
{
	for (int i = 0; i < RP_ASK_NAME; i++)
		name[i] = (uint8_t)(number >> 8 * i);
}

void rp_ask_put(struct rp_ask *a, struct rp_ask_item *i)
{
	i->state = i->kind == RP_ASK_HELD ? RP_ASK_DONE : RP_ASK_UNSENT;
	i->end = RP_ASK_OK;
	i->why = RP_ST_OK;
	i->boxed = i->early = false;
	if (i->state == RP_ASK_UNSENT) {
		a->asking++;
		if (a->state == RP_ASK_GONE) {
			i->state = RP_ASK_DONE;
			i->end = RP_ASK_LOST;
		}
	}
	STAILQ_INSERT_TAIL(&a->items, i, link);
}

static void forget_early(struct rp_ask_item *i)
{
	LIST_REMOVE(i, early_link);
	i->early = false;
}

/* The agent's answer is due from here on. */
void rp_ask_arrived(struct rp_ask *a, uint64_t now, struct rp_ask_item *i)
{
	forget_early(i);
	a->asking++;
	STAILQ_INSERT_TAIL(&a->items, i, link);
	if (i->state != RP_ASK_SENT)
		return;
	if (!a->waiting++)
		a->until = now + a->patience;
	/* It went to sleep before this came, or when: who knows. */
	a->ring |= !a->watched;
}

void rp_ask_unposted(struct rp_ask *a, struct rp_ask_item *i)
{
	forget_early(i);
	a->ahead--;
	a->next_seq -= i->kind == RP_ASK_WRITE;
	if (i->state == RP_ASK_SENT)
		a->unanswered--;
}

void rp_ask_drop(struct rp_ask *a, struct rp_ask_item *i)
{
	forget_early(i);
	/* What was written may be answered all the same. */
	a->dropped += i->state == RP_ASK_SENT;
}

struct rp_ask_item *rp_ask_take(struct rp_ask *a)
{
	struct rp_ask_item *i = STAILQ_FIRST(&a->items);

	if (!i || (i->state != RP_ASK_DONE && !a->failed))
		return NULL;
	STAILQ_REMOVE_HEAD(&a->items, link);
	a->asking -= i->kind != RP_ASK_HELD;
	if (a->failed)
		i->end = RP_ASK_BEHIND;
	if (i->end != RP_ASK_OK) {
		a->failed = true;
		a->state = RP_ASK_GONE;
		a->unanswered = a->waiting = 0;
		a->ring = false;
	}
	return i;
}

static void not_answered(struct rp_ask_item *i)
{
	if (i->state == RP_ASK_DONE)
		return;
	i->state = RP_ASK_DONE;
	i->end = RP_ASK_LOST;
}

void rp_ask_lose(struct rp_ask *a)
{
	struct rp_ask_item *i;

	a->state = RP_ASK_GONE;
	a->unanswered = a->waiting = 0;
	a->ring = false;
	STAILQ_FOREACH (i, &a->items, link)
		not_answered(i);
	LIST_FOREACH (i, &a->early, early_link)
		not_answered(i);
}

bool rp_ask_late(struct rp_ask *a, uint64_t now)
{
	if ((a->state != RP_ASK_GREETED && !a->waiting) || now < a->until)
		return false;
	rp_ask_lose(a);
	return true;
}

/* --- what goes out --- */

static size_t greet(struct rp_ask *a, uint64_t key, void *buf)
{
	const struct rp_wire_hdr hdr = {.token = 0};
	struct rp_wire_hello m = {
		.cookie = a->cookie,
		.key = key,
		.timeout_ms = (uint32_t)(a->patience / NS_PER_MS),
		.features = RP_FEATURE_EFFECTS | RP_FEATURE_STORE,
		.addr_len = RP_ASK_NAME,
	};
	int len;

	rp_ask_name(a->number, m.addr);
	len = rp_wire_put_hello(buf, RP_ASK_MSG_MAX, &hdr, &m);
	assert(len > 0);
	a->state = RP_ASK_GREETED;
	return (size_t)len;
}

static size_t request(struct rp_ask *a, struct rp_ask_item *i, void *buf,
		      size_t room)
{
	const struct rp_wire_hdr hdr = {
		.session = a->theirs,
		.token = a->next_token,
		.incarnation = a->incarnation,
	};
	struct rp_wire_request m;
	int len;

	m.nranges = 1;
	m.packed = false;
	m.level = RP_LEVEL_DURABLE;
	m.required = (uint8_t)i->required;
	m.effect = RP_EFFECT_NONE;
	m.ranges[0] = (struct rp_wire_range){i->key, i->addr, i->len};
	if (i->kind != RP_ASK_FLUSH) {
		m.effect = RP_EFFECT_STORE;
		m.seq = a->next_seq++;
		m.bytes = i->kind == RP_ASK_STORE ? i->value : i->bytes;
	}
	len = rp_wire_put_request(buf, room, &hdr, &m);
	assert(len > 0);
	i->token = a->next_token++;
	i->state = RP_ASK_SENT;
	return (size_t)len;
}

/* Who is to be sent next: the first that was not, unless it has to wait. */
static struct rp_ask_item *next(struct rp_ask *a)
{
	struct rp_ask_item *i;

	STAILQ_FOREACH (i, &a->items, link)
		if (i->state == RP_ASK_UNSENT)
			break;
	if (!i || i->kind == RP_ASK_FLUSH)
		return i;
	/* The agent stores when it is asked; flushes take their time. */
	return i == STAILQ_FIRST(&a->items) ? i : NULL;
}

size_t rp_ask_next(struct rp_ask *a, uint64_t now, void *buf,
		   struct rp_ask_item **whose)
{
	struct rp_ask_item *i;

	if (!a->asking || a->state == RP_ASK_GREETED || a->state == RP_ASK_GONE)
		return 0;
	i = next(a);
	if (!i)
		return 0;
	if (a->state == RP_ASK_NEW) {
		*whose = NULL;
		a->until = now + a->patience;
		return greet(a, i->key, buf);
	}
	if (i->kind == RP_ASK_STORE && !a->stores) {
		i->state = RP_ASK_DONE;
		i->end = RP_ASK_REFUSED;
		i->why = RP_ST_UNSUPPORTED;
		return 0;
	}
	if (a->unanswered >= a->credits)
		return 0;
	a->unanswered++;
	if (!a->waiting++)
		a->until = now + a->patience;
	*whose = i;
	return request(a, i, buf, RP_ASK_MSG_MAX);
}

size_t rp_ask_ahead(struct rp_ask *a, struct rp_ask_item *i, void *buf)
{
	if (a->state != RP_ASK_OPEN || !a->watched ||
	    a->unanswered >= a->credits ||
	    (i->kind == RP_ASK_WRITE && !a->stores))
		return 0;
	a->unanswered++;
	i->end = RP_ASK_OK;
	i->why = RP_ST_OK;
	i->boxed = i->early = true;
	i->nth = a->ahead++;
	LIST_INSERT_HEAD(&a->early, i, early_link);
	return request(a, i, buf, RP_ASK_AHEAD_MAX);
}

/* --- what comes in --- */

static bool heard_ack(struct rp_ask *a, const void *msg,
		      const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hello_ack m;

	if (a->state != RP_ASK_GREETED || rp_wire_get_hello_ack(msg, hdr, &m) ||
	    m.status || !hdr->incarnation)
		return false;
	a->state = RP_ASK_OPEN;
	a->theirs = m.cookie;
	a->incarnation = hdr->incarnation;
	a->credits = m.credits < RP_ASK_MAX ? m.credits : RP_ASK_MAX;
	a->stores = m.features & RP_FEATURE_STORE;
	return true;
}

static bool waits_for(const struct rp_ask_item *i, uint64_t token)
{
	return i->state == RP_ASK_SENT && i->token == token;
}

static struct rp_ask_item *find(struct rp_ask *a, uint64_t token)
{
	struct rp_ask_item *i;

	STAILQ_FOREACH (i, &a->items, link)
		if (waits_for(i, token))
			return i;
	LIST_FOREACH (i, &a->early, early_link)
		if (waits_for(i, token))
			return i;
	return NULL;
}

/* Nobody waits for that: it was never asked, or is answered twice; or it is of
 * one whose write has failed, and arrived. */
static bool was_dropped(struct rp_ask *a, uint64_t token)
{
	if (!a->dropped || !token || token >= a->next_token)
		return false;
	a->dropped--;
	a->unanswered--;
	return true;
}

static bool heard_reply(struct rp_ask *a, const void *msg,
			const struct rp_wire_hdr *hdr)
{
	struct rp_wire_reply m;
	struct rp_ask_item *i;

	if (rp_wire_get_reply(msg, hdr, &m))
		return false;
	i = find(a, hdr->token);
	if (!i)
		return was_dropped(a, hdr->token);
	if (m.status == RP_ST_OK &&
	    (m.level < RP_LEVEL_DURABLE || m.class < (uint8_t)i->required))
		m.status = RP_ST_CLASS;
	a->unanswered--;
	a->waiting -= !i->early;
	/* They are taken in their order, whichever is answered first. */
	if (i->boxed && i->nth + 1 - a->taken <= a->ahead - a->taken)
		a->taken = i->nth + 1;
	i->state = RP_ASK_DONE;
	i->end = m.status == RP_ST_OK ? RP_ASK_OK : RP_ASK_REFUSED;
	i->why = m.status;
	return true;
}

static bool heard(struct rp_ask *a, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	if (rp_wire_get_hdr(msg, len, &hdr) || hdr.session != a->cookie)
		return false;
	if (hdr.type == RP_MSG_HELLO_ACK)
		return heard_ack(a, msg, &hdr);
	if (a->state != RP_ASK_OPEN || hdr.incarnation != a->incarnation)
		return false;
	if (hdr.type == RP_MSG_REPLY)
		return heard_reply(a, msg, &hdr);
	return hdr.type == RP_MSG_PROGRESS;
}

/*
 * Asleep: whoever is in the box, or will be when its write has come, is seen by
 * nobody. False: an agent does not say that.
 */
static bool heard_note(struct rp_ask *a, enum rp_note note)
{
	struct rp_ask_item *i;

	a->watched = note == RP_NOTE_AWAKE;
	if (note != RP_NOTE_ASLEEP)
		return a->watched;
	STAILQ_FOREACH (i, &a->items, link)
		a->ring |= i->boxed && i->state == RP_ASK_SENT;
	return true;
}

bool rp_ask_heard(struct rp_ask *a, uint64_t now, const void *msg, size_t len)
{
	enum rp_note note;

	if (a->state == RP_ASK_GONE)
		return true;
	if (!(rp_note_get(msg, len, &note) ? heard_note(a, note)
					   : heard(a, msg, len))) {
		rp_ask_lose(a);
		return false;
	}
	a->until = now + a->patience;
	return true;
}
