// SPDX-License-Identifier: BSD-2-Clause
/* Asking a peer's agent: one session, what is sent when, and how it ends. */
#include <assert.h>
#include <string.h>

#include "core/ask.h"

#define NS_PER_MS 1000000ull

void rp_ask_init(struct rp_ask *a, uint64_t initiator, uint64_t patience)
{
	*a = (struct rp_ask){
		.initiator = initiator,
		.patience = patience,
		.next_token = 1,
	};
	STAILQ_INIT(&a->items);
	LIST_INIT(&a->early);
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
	a->doorbell |= !a->watched;
}

void rp_ask_unposted(struct rp_ask *a, struct rp_ask_item *i)
{
	forget_early(i);
	a->ahead--;
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
		a->doorbell = false;
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
	a->doorbell = false;
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
	const struct rp_wire_hello m = {
		.key = key,
		.initiator = a->initiator,
		.timeout_ms = (uint32_t)(a->patience / NS_PER_MS),
	};
	int len = rp_wire_put_hello(buf, RP_ASK_MSG_MAX, &m);

	assert(len > 0);
	a->state = RP_ASK_GREETED;
	return (size_t)len;
}

static size_t request(struct rp_ask *a, struct rp_ask_item *i, void *buf,
		      size_t room)
{
	const struct rp_wire_range range = {i->key, i->addr, i->len};
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = (uint8_t)i->required,
		.ranges = &range,
	};
	int len;

	if (i->kind != RP_ASK_FLUSH) {
		m.effect = RP_EFFECT_STORE;
		m.bytes = i->kind == RP_ASK_STORE ? i->value : i->bytes;
	}
	len = rp_wire_put_request(buf, room, a->next_token, &m);
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
	    a->unanswered >= a->credits)
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

/* The agent does not know the key that HELLO showed, or has no room. */
static void refused(struct rp_ask *a, enum rp_status st)
{
	struct rp_ask_item *i;

	STAILQ_FOREACH (i, &a->items, link)
		if (i->state != RP_ASK_DONE) {
			i->state = RP_ASK_DONE;
			i->end = RP_ASK_REFUSED;
			i->why = st;
		}
	rp_ask_lose(a);
}

static bool heard_ack(struct rp_ask *a, const void *msg, size_t len)
{
	struct rp_wire_hello_ack m;

	if (a->state != RP_ASK_GREETED || rp_wire_get_hello_ack(msg, len, &m))
		return false;
	if (m.status != RP_ST_OK) {
		refused(a, (enum rp_status)m.status);
		return true;
	}
	a->state = RP_ASK_OPEN;
	a->credits = m.credits < RP_ASK_MAX ? m.credits : RP_ASK_MAX;
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

/*
 * Idle: whoever is in the ring, or will be when its write has come, is seen by
 * nobody.
 */
static void heard_signal(struct rp_ask *a, bool polling)
{
	struct rp_ask_item *i;

	a->watched = polling;
	if (polling)
		return;
	STAILQ_FOREACH (i, &a->items, link)
		a->doorbell |= i->boxed && i->state == RP_ASK_SENT;
}

static bool heard(struct rp_ask *a, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	if (rp_wire_get_hdr(msg, len, &hdr))
		return false;
	switch (hdr.type) {
	case RP_MSG_HELLO_ACK:
		return heard_ack(a, msg, len);
	case RP_MSG_REPLY:
		return a->state == RP_ASK_OPEN && heard_reply(a, msg, &hdr);
	case RP_MSG_POLLING:
	case RP_MSG_IDLE:
		heard_signal(a, hdr.type == RP_MSG_POLLING);
		return true;
	default:
		return hdr.type == RP_MSG_PROGRESS && a->state == RP_ASK_OPEN;
	}
}

bool rp_ask_heard(struct rp_ask *a, uint64_t now, const void *msg, size_t len)
{
	if (a->state == RP_ASK_GONE)
		return true;
	if (!heard(a, msg, len)) {
		rp_ask_lose(a);
		return false;
	}
	a->until = now + a->patience;
	return true;
}
