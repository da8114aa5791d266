// SPDX-License-Identifier: BSD-2-Clause
/* A mailbox over a connection of the bare base. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fi_rma.h>

#include "fault/mail_peer.h"

static char sent_mark;

uint64_t mail_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t mix(uint64_t h, const void *p, size_t len)
{
	for (const uint8_t *b = p; len--; b++)
		h = (h ^ *b) * 0x100000001b3ull;
	return h;
}

/* In the protocol's words: address and port of the owner, then the other's. */
static uint64_t key_of(const struct sockaddr_in *owner,
		       const struct sockaddr_in *other)
{
	uint64_t h = 0xcbf29ce484222325ull;

	h = mix(h, &owner->sin_addr, 4);
	h = mix(h, &owner->sin_port, 2);
	h = mix(h, &other->sin_addr, 4);
	h = mix(h, &other->sin_port, 2);
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
	return (h ^ h >> 32) | 1ull << 63;
}

void mail_open(struct mail_peer *p)
{
	const struct pair_opts o = {.msg = true, .prov = "tcp"};

	memset(p, 0, sizeof(*p));
	side_open(&p->s, &o);
}

static void make(struct mail_peer *p, bool mailbox)
{
	struct sockaddr_in me, other;
	size_t len = sizeof(me);

	MUST(fi_getname(&p->s.ep->fid, &me, &len));
	len = sizeof(other);
	MUST(fi_getpeer(p->s.ep, &other, &len));
	p->key = key_of(&me, &other);
	p->there = key_of(&other, &me);
	rp_mailbox_init(&p->box, p->in, p->out);
	if (mailbox)
		MUST(fi_mr_reg(p->s.domain, p->in, sizeof(p->in),
			       FI_REMOTE_WRITE, 0, p->key, 0, &p->mr, NULL));
}

/* FI_CONNECTED, FI_CONNREQ or FI_SHUTDOWN; 0: nothing, or an error. */
static uint32_t event(struct mail_peer *p, struct fi_eq_cm_entry *e)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} cm;
	struct fi_eq_err_entry err = {0};
	uint32_t what = 0;
	ssize_t n = fi_eq_read(p->s.eq, &what, &cm, sizeof(cm), 0);

	if (n == -FI_EAVAIL) {
		MUST(fi_eq_readerr(p->s.eq, &err, 0));
		p->gone = true;
	}
	if (n <= 0)
		return 0;
	*e = cm.e;
	p->gone |= what == FI_SHUTDOWN;
	return what;
}

bool mail_connect(struct mail_peer *p, const struct card *to, const void *param,
		  size_t len, bool mailbox)
{
	uint64_t end = mail_now_ms() + 10000;
	struct fi_eq_cm_entry e;

	side_endpoint(&p->s, p->s.info);
	MUST(fi_enable(p->s.ep));
	MUST(fi_connect(p->s.ep, to->name, param, len));
	while (!p->gone && mail_now_ms() < end)
		if (event(p, &e) == FI_CONNECTED) {
			make(p, mailbox);
			return true;
		}
	return false;
}

void mail_accept(struct mail_peer *p, const void *param, size_t len)
{
	struct fi_eq_cm_entry e;

	while (event(p, &e) != FI_CONNREQ)
		;
	side_endpoint(&p->s, e.info);
	MUST(fi_enable(p->s.ep));
	make(p, true);
	MUST(fi_accept(p->s.ep, param, len));
	fi_freeinfo(e.info);
	while (!p->gone && event(p, &e) != FI_CONNECTED)
		;
}

/* Did the write under way leave? */
static bool poked(struct mail_peer *p)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_tagged_entry e;
	struct fi_eq_cm_entry cm;
	ssize_t n = fi_cq_read(p->s.cq, &e, 1);

	if (n == -FI_EAVAIL) {
		fi_cq_readerr(p->s.cq, &err, 0);
		p->gone = true;
	}
	event(p, &cm);
	return n == 1 && e.op_context == &sent_mark;
}

void mail_poke(struct mail_peer *p)
{
	poked(p);
}

bool mail_write(struct mail_peer *p, const void *buf, size_t len, uint64_t at,
		uint64_t key)
{
	uint64_t end = mail_now_ms() + 5000;
	ssize_t ret;

	do {
		ret = fi_write(p->s.ep, buf, len, NULL, 0, at, key, &sent_mark);
		if (ret == -FI_EAGAIN)
			poked(p);
	} while (ret == -FI_EAGAIN && !p->gone && mail_now_ms() < end);
	if (ret)
		return false;
	while (!p->gone && mail_now_ms() < end)
		if (poked(p))
			return true;
	return false;
}

static bool write_out(struct mail_peer *p, const struct rp_mailbox_write *w)
{
	return mail_write(p, w->buf, w->len, w->at, p->there);
}

bool mail_send(struct mail_peer *p, const void *msg, size_t len,
	       unsigned int ms)
{
	uint64_t end = mail_now_ms() + ms;
	struct rp_mailbox_write w;

	while (rp_mailbox_put(&p->box, msg, len, &w)) {
		if (p->gone || mail_now_ms() > end)
			return false;
		poked(p);
	}
	return write_out(p, &w);
}

size_t mail_take(struct mail_peer *p, uint8_t *msg, unsigned int ms)
{
	uint64_t end = mail_now_ms() + ms;
	struct rp_mailbox_write w;
	size_t len;

	for (;;) {
		poked(p);
		len = rp_mailbox_take(&p->box, msg);
		if (len && rp_mailbox_owes(&p->box, &w) && write_out(p, &w))
			rp_mailbox_paid(&p->box);
		if (len || p->gone || mail_now_ms() > end)
			return len;
	}
}

void mail_shut(struct mail_peer *p)
{
	if (p->mr)
		MUST(fi_close(&p->mr->fid));
	side_close(&p->s);
}
