// SPDX-License-Identifier: BSD-2-Clause
/*
 * Private connections over the simulated fabric pmsim: listen, connect, accept,
 * events.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim_rc.h"

static uint32_t address_format(const union rp_rc_addr *addr)
{
	return addr->sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6
					      : FI_SOCKADDR_IN;
}

static int pep_open(struct sim_rc *f, struct fi_info *info)
{
	int ret = fi_passive_ep(f->fabric, info, &f->pep, NULL);

	if (ret)
		return ret;
	ret = fi_pep_bind(f->pep, &f->eq->fid, 0);
	if (!ret)
		ret = fi_listen(f->pep);
	if (ret) {
		fi_close(&f->pep->fid);
		f->pep = NULL;
	}
	return ret;
}

int sim_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
	       uint16_t *port)
{
	struct sim_rc *f = sim_rc(rc);
	struct fi_info *info = fi_dupinfo(f->info);
	union rp_rc_addr bound;
	size_t size = sizeof(bound);
	int ret;

	if (!info)
		return -FI_ENOMEM;
	info->addr_format = address_format(at);
	info->src_addr = malloc(len);
	if (!info->src_addr) {
		fi_freeinfo(info);
		return -FI_ENOMEM;
	}
	memcpy(info->src_addr, at, len);
	info->src_addrlen = len;
	ret = pep_open(f, info);
	fi_freeinfo(info);
	/* The fabric may report a busy port by another errno. */
	if (ret)
		return at->in.sin_port ? -EADDRINUSE : ret;
	ret = fi_getname(&f->pep->fid, &bound, &size);
	if (!ret)
		*port = ntohs(bound.in.sin_port);
	return ret;
}

/*
 * Open an endpoint with selective completion, because only the last part of a
 * WRITE or READ needs a completion.
 */
static int ep_open(struct rp_rc_channel *c, struct fi_info *info)
{
	struct sim_channel *fc = sim_channel(c);
	struct sim_rc *f = sim_rc(c->rc);
	int ret = fi_endpoint(f->domain, info, &fc->ep, c);

	if (ret) {
		fc->ep = NULL;
		return ret;
	}
	ret = fi_ep_bind(fc->ep, &f->eq->fid, 0);
	if (!ret)
		ret = fi_ep_bind(fc->ep, &f->cq->fid,
				 FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!ret)
		ret = fi_ep_bind(fc->ep, &f->cq->fid, FI_RECV);
	if (!ret)
		ret = fi_enable(fc->ep);
	if (!ret)
		ret = rp_rc_pool_grow(c->rc);
	return ret ? ret : sim_recvs_open(fc);
}

int sim_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		size_t len)
{
	struct sim_rc *f = sim_rc(c->rc);
	int ret;

	/* The address format selects IPv4 or IPv6. */
	f->info->addr_format = address_format(&c->peer);
	ret = ep_open(c, f->info);
	return ret ? ret : fi_connect(sim_channel(c)->ep, &c->peer, data, len);
}

int sim_accept(struct rp_rc_channel *c, void *handle, const void *data,
	       size_t len)
{
	struct fi_info *info = handle;
	int ret;

	if (info->dest_addr && info->dest_addrlen <= sizeof(c->peer))
		memcpy(&c->peer, info->dest_addr, info->dest_addrlen);
	ret = ep_open(c, info);
	if (!ret)
		ret = fi_accept(sim_channel(c)->ep, data, len);
	if (ret) {
		/*
		 * The endpoint owns the socket. fi_reject() frees the rest of
		 * the handle.
		 */
		sim_shut(c);
		fi_reject(sim_rc(c->rc)->pep, info->handle, NULL, 0);
	}
	fi_freeinfo(info);
	return ret;
}

void sim_reject(struct rp_rc *rc, void *handle, const void *data, size_t len)
{
	struct fi_info *info = handle;

	fi_reject(sim_rc(rc)->pep, info->handle, data, len);
	fi_freeinfo(info);
}

/*
 * The errno of a lost connection. Values that other calls left in errno become
 * ECONNRESET.
 */
static int loss_errno(int err)
{
	return err <= 0 || err == EINPROGRESS || err == EAGAIN ? ECONNRESET
							       : err;
}

static bool read_error(struct sim_rc *f)
{
	uint8_t data[RP_RC_CM_DATA];
	struct fi_eq_err_entry e = {
		.err_data = data,
		.err_data_size = sizeof(data),
	};
	struct rp_rc_channel *c;

	if (fi_eq_readerr(f->eq, &e, 0) < 0)
		return false;
	c = e.fid && e.fid->fclass == FI_CLASS_EP ? e.fid->context : NULL;
	if (c)
		rp_rc_end_channel(c, loss_errno(e.err), e.err_data,
				  e.err_data ? e.err_data_size : 0);
	return true;
}

static void take_request(struct sim_rc *f, struct fi_info *info,
			 const void *data, size_t len)
{
	const struct sockaddr *peer = info->dest_addr;

	if (peer && !rp_rc_addr_len(peer, info->dest_addrlen))
		peer = NULL;
	rp_rc_add_request(&f->rc, info, peer, data, len);
}

static void end_connect(struct rp_rc_channel *c, const void *data, size_t len)
{
	sim_channel(c)->connected = true;
	rp_rc_set_connected(c, data, len);
}

/*
 * Handle one event. Its endpoint is open: the fabric drops the events of closed
 * ones.
 */
static bool read_event(struct sim_rc *f)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + RP_RC_CM_DATA];
	} buf;
	uint32_t event;
	ssize_t n = fi_eq_read(f->eq, &event, &buf, sizeof(buf), 0);
	size_t len;

	if (n == -FI_EAVAIL)
		return read_error(f);
	if (n < (ssize_t)sizeof(buf.e))
		return false;
	len = (size_t)n - sizeof(buf.e);
	if (event == FI_CONNREQ)
		take_request(f, buf.e.info, buf.e.data, len);
	else if (event == FI_CONNECTED)
		end_connect(buf.e.fid->context, buf.e.data, len);
	else if (event == FI_SHUTDOWN)
		rp_rc_end_channel(buf.e.fid->context, ECONNRESET, NULL, 0);
	return true;
}

int sim_poll_events(struct rp_rc *rc, int max)
{
	int n = 0;

	while (n < max && read_event(sim_rc(rc)))
		n++;
	return n;
}
