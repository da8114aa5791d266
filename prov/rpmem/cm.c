// SPDX-License-Identifier: BSD-2-Clause
/* Connecting endpoints of ours, and the end of a connection. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"

struct rp_av rp_cm_av = {.nuser = SIZE_MAX};

static struct rp_ep *ep_of(struct fid *fid)
{
	return rp_container_of(fid, struct rp_ep, fid.fid);
}

struct rp_ep *rp_cm_find(struct rp_fabric *fab, const struct fid *base)
{
	struct rp_ep *ep;

	LIST_FOREACH (ep, &fab->msg_eps, msg_link)
		if (&ep->base->fid == base)
			return ep;
	return NULL;
}

void rp_cm_over(struct rp_ep *ep)
{
	ep->bare = false;
	if (!ep->connected)
		return;
	ep->connected = false;
	/* Nobody answers any more, and nobody is owed an answer. */
	if (ep->initiator)
		rp_initiator_shut(ep->initiator);
	rp_agent_drop_xport(ep->dom->agent, &ep->xport);
}

void rp_cm_event(struct rp_ep *ep, uint32_t event,
		 const struct rp_mailbox_card *card)
{
	pthread_mutex_lock(&ep->dom->lock);
	if (event == FI_CONNECTED) {
		/* Who was asked knew it with the question. */
		if (card && ep->mail && !ep->mail->known)
			rp_mail_told(ep, card);
		ep->connected = ep->mail && ep->mail->known;
		ep->bare = !ep->connected;
		/* Who sleeps knows of no mailbox that has to be looked into. */
		if (ep->dom->cards)
			rp_domain_kick(ep->dom);
	} else if (ep->connected || ep->bare) {
		/* What came before the end has come. */
		if (ep->connected)
			rp_mail_look(ep);
		rp_cm_over(ep);
	}
	pthread_mutex_unlock(&ep->dom->lock);
}

static void lock(struct rp_ep *ep)
{
	pthread_mutex_lock(&ep->dom->fabric->cm_lock);
	pthread_mutex_lock(&ep->dom->lock);
}

static void unlock(struct rp_ep *ep)
{
	pthread_mutex_unlock(&ep->dom->lock);
	pthread_mutex_unlock(&ep->dom->fabric->cm_lock);
}

int rp_cm_opt(int level, int optname, void *optval)
{
	size_t *size = optval;

	if (level == FI_OPT_ENDPOINT && optname == FI_OPT_CM_DATA_SIZE)
		*size -= *size < RP_MAILBOX_CARD ? *size : RP_MAILBOX_CARD;
	return 0;
}

/* What the program says, and our card behind it: their length, or -errno. */
static int tell(const struct rp_ep *ep, const void *param, size_t paramlen,
		uint8_t out[256])
{
	struct rp_mailbox_card card;
	size_t room = 0, len = sizeof(room);
	int ret = fi_getopt(&ep->base->fid, FI_OPT_ENDPOINT,
			    FI_OPT_CM_DATA_SIZE, &room, &len);

	if (ret)
		return ret;
	rp_mail_card(ep, &card);
	return rp_mailbox_tell(out, room < 256 ? room : 256, param, paramlen,
			       &card);
}

/* Where the keys are the base's, the peer is told where it may write. */
static int connect_told(struct rp_ep *ep, const void *addr, const void *param,
			size_t paramlen)
{
	uint8_t data[256];
	int ret = rp_mail_open(ep, NULL);

	if (ret)
		return ret;
	ret = tell(ep, param, paramlen, data);
	if (ret >= 0)
		ret = fi_connect(ep->base, addr, data, (size_t)ret);
	if (ret)
		rp_mail_close(ep);
	return ret;
}

/* Who has told nothing is told nothing: it would take it for the program's. */
static int accept_told(struct rp_ep *ep, const void *param, size_t paramlen)
{
	struct rp_fabric *fab = ep->dom->fabric;
	const struct rp_mailbox_card *card = rp_asked_card(fab, ep->handle);
	uint8_t data[256];
	int ret = card ? rp_mail_open(ep, NULL) : 0;

	if (ret)
		return ret;
	if (card) {
		rp_mail_told(ep, card);
		ret = tell(ep, param, paramlen, data);
		if (ret < 0)
			return ret;
		param = data;
		paramlen = (size_t)ret;
	}
	ret = fi_accept(ep->base, param, paramlen);
	if (ret)
		return ret;
	/* The handle is the base's again. */
	rp_asked_keep(fab, ep->handle, NULL);
	ep->handle = NULL;
	return 0;
}

/*
 * The peer may write to the mailbox as soon as the connection is made, and what
 * it writes to no memory is the end of that. So nothing of the base moves
 * before the mailbox is there.
 */
static int cm_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	struct rp_ep *ep = ep_of(&fid->fid);
	int ret = ep->enabled ? 0 : rp_ep_enable(ep);

	if (ret)
		return ret;
	lock(ep);
	if (ep->dom->cards) {
		ret = connect_told(ep, addr, param, paramlen);
	} else {
		/* Our name there is known when that has begun. */
		ret = fi_connect(ep->base, addr, param, paramlen);
		if (!ret)
			ret = rp_mail_open(ep, addr);
	}
	unlock(ep);
	return ret;
}

static int cm_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	struct rp_ep *ep = ep_of(&fid->fid);
	uint8_t peer[RP_WIRE_MAX_ADDR];
	size_t len = sizeof(peer);
	int ret = ep->enabled ? 0 : rp_ep_enable(ep);

	if (ret)
		return ret;
	lock(ep);
	if (ep->dom->cards) {
		ret = accept_told(ep, param, paramlen);
	} else {
		ret = fi_getpeer(ep->base, peer, &len);
		if (!ret)
			ret = rp_mail_open(ep, peer);
		if (!ret)
			ret = fi_accept(ep->base, param, paramlen);
	}
	if (ret)
		rp_mail_close(ep);
	unlock(ep);
	return ret;
}

static int cm_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct rp_ep *ep = ep_of(&fid->fid);
	int ret;

	pthread_mutex_lock(&ep->dom->lock);
	rp_cm_over(ep);
	ret = fi_shutdown(ep->base, flags);
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

static int cm_setname(fid_t fid, void *addr, size_t addrlen)
{
	return fi_setname(&ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	return fi_getname(&ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	return fi_getpeer(ep_of(&fid->fid)->base, addr, addrlen);
}

static int cm_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int cm_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int cm_join(struct fid_ep *fid, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

struct fi_ops_cm rp_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = cm_setname,
	.getname = cm_getname,
	.getpeer = cm_getpeer,
	.connect = cm_connect,
	.listen = cm_listen,
	.accept = cm_accept,
	.reject = cm_reject,
	.shutdown = cm_shutdown,
	.join = cm_join,
};
