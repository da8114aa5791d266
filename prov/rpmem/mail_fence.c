// SPDX-License-Identifier: BSD-2-Clause
/* Requests of connected endpoints to who has an adapter that places: each goes
 * out when reads behind the writes that it is about have come back. */
#include <errno.h>

#include "rpmem/cm.h"
#include "rpmem/host.h"

/*
 * Adapters may place what is written later first. A read of the same memory is
 * carried out behind the writes before it, and pushes them out of the adapter
 * and PCIe: one for each region (docs/guarantees.md, rule F).
 */
static bool next_range(const struct rp_wire_request *m, unsigned int *at,
		       struct rp_wire_range *r)
{
	const unsigned int n = m->nranges + (m->effect == RP_EFFECT_THEN);

	for (; *at < n; ++*at) {
		unsigned int i = 0;

		*r = (struct rp_wire_range){
			.key = m->then.key,
			.addr = m->then.addr,
			.len = sizeof(uint64_t),
		};
		if (*at < m->nranges)
			*r = m->ranges[*at];
		while (i < *at && m->ranges[i].key != r->key)
			i++;
		if (i == *at && r->len)
			return true;
	}
	return false;
}

static int read_there(struct rp_ep *ep, struct rp_mail_held *h,
		      const struct rp_wire_range *r)
{
	struct rp_slot *s =
		rp_slot_get(&ep->dom->slots, ep, RP_SLOT_MAIL_FENCE);
	int ret;

	if (!s)
		return -ENOMEM;
	s->buf = h;
	ret = rp_fence_read(
		ep, 0, rp_key_base(r->key), r->addr,
		r->len < sizeof(uint64_t) ? r->len : sizeof(uint64_t), s);
	if (ret)
		rp_slot_put(&ep->dom->slots, s);
	return ret;
}

/* The next read, or behind the last one the message. Not now: on the next look.
 */
static void go_on(struct rp_ep *ep, struct rp_mail_held *h)
{
	/* What is to be written begins with the message. */
	const uint8_t *msg = h->w.buf;
	struct rp_wire_request m;
	struct rp_wire_range r;
	struct rp_wire_hdr hdr;
	int ret;

	if (!h->held || h->reads || ep->mail->broken)
		return;
	ret = rp_wire_get_hdr(msg, h->w.len - RP_MAILBOX_TAIL, &hdr);
	if (!ret)
		ret = rp_wire_get_request(msg, &hdr, &m);
	if (!ret && next_range(&m, &h->next, &r)) {
		ret = read_there(ep, h, &r);
		h->reads = !ret;
		h->next += !ret;
	} else if (!ret) {
		ret = rp_mail_write(ep, &h->w);
		h->held = ret != 0;
	}
	if (ret && ret != -FI_EAGAIN)
		ep->mail->broken = true;
}

void rp_mail_hold(struct rp_ep *ep, const struct rp_mailbox_write *w)
{
	struct rp_mail *m = ep->mail;
	struct rp_mail_held *h = &m->held[m->box.sent % RP_MAILBOX_FRAMES];

	*h = (struct rp_mail_held){.w = *w, .held = true};
	go_on(ep, h);
}

void rp_mail_release(struct rp_ep *ep)
{
	for (int i = 0; i < RP_MAILBOX_FRAMES; i++)
		go_on(ep, &ep->mail->held[i]);
}

void rp_mail_fenced(struct rp_slot *s, int err)
{
	struct rp_mail_held *h = s->buf;
	struct rp_ep *ep = s->ep;

	/* The program has read nothing. */
	rp_cntr_hide(ep, RP_CNTR_READ, err != 0);
	rp_slot_put(&ep->dom->slots, s);
	h->reads = false;
	if (err)
		ep->mail->broken = true;
	if (!ep->dead)
		go_on(ep, h);
}
