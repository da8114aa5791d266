// SPDX-License-Identifier: BSD-2-Clause
/* Connected endpoints: listen, connect, disconnect. */
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>

#include "pmsim/pmsim_int.h"

/*
 * A connection is a pair of wires between two endpoints that have no other one.
 * When it is cut neither end can post any more, and replies are lost; but
 * messages in flight may arrive for as long as the receiving end is open.
 *
 * A listener is found by its port, the lowest that is free, so a restarted
 * process listens on the port of its predecessor.
 */

struct ps_pep {
	struct fid_pep fid;
	struct ps_fabric *fabric;
	struct ps_machine *machine;
	struct ps_eq *eq;
	struct ps_addr addr;
	struct fi_info *info;
	bool listens;
	LIST_ENTRY(ps_pep) link; /* machine's peps, while process runs */
};

static struct ps_pep *pep_of(struct fid *fid)
{
	return ps_container_of(fid, struct ps_pep, fid.fid);
}

static void add_event_data(struct ps_ep *ep, uint32_t event, int err,
			   const void *data, size_t len)
{
	if (ep)
		ep->shut_down |= event == FI_SHUTDOWN;
	if (ep && ep->eq)
		ps_eq_push(ep->eq, event, err, &ep->fid.fid, NULL, data, len);
}

static void add_event(struct ps_ep *ep, uint32_t event, int err)
{
	add_event_data(ep, event, err, NULL, 0);
}

static struct ps_ep *req_drop(struct fid *handle, int err, const void *data,
			      size_t len)
{
	struct ps_req *req = ps_container_of(handle, struct ps_req, fid);
	struct ps_ep *from = req->from;

	if (from)
		from->req = NULL;
	if (err)
		add_event_data(from, 0, err, data, len);
	LIST_REMOVE(req, link);
	free(req);
	return from;
}

struct ps_ep *ps_req_drop(struct fid *handle, int err)
{
	return req_drop(handle, err, NULL, 0);
}

/* --- listening --- */

static int pep_close(struct fid *fid)
{
	struct ps_pep *pep = pep_of(fid);

	if (pep->listens)
		LIST_REMOVE(pep, link);
	if (pep->eq) {
		ps_eq_forget(pep->eq, fid);
		pep->eq->refs--;
	}
	pep->fabric->refs--;
	fi_freeinfo(pep->info);
	free(pep);
	return 0;
}

static int pep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct ps_pep *pep = pep_of(fid);

	if (bfid->fclass != FI_CLASS_EQ || pep->eq)
		return -FI_EINVAL;
	pep->eq = ps_container_of(bfid, struct ps_eq, fid.fid);
	pep->eq->refs++;
	return 0;
}

static int pep_getname(fid_t fid, void *addr, size_t *addrlen)
{
	size_t room = *addrlen;

	*addrlen = sizeof(struct ps_addr);
	memcpy(addr, &pep_of(fid)->addr, room < *addrlen ? room : *addrlen);
	return room < *addrlen ? -FI_ETOOSMALL : 0;
}

static struct ps_pep *find_listener(uint16_t port)
{
	struct ps_pep *pep;

	for (unsigned int i = 0; i < ps_sim.nmachines; i++)
		LIST_FOREACH (pep, &ps_sim.machines[i]->peps, link)
			if (pep->addr.port == port)
				return pep;
	return NULL;
}

static int pep_listen(struct fid_pep *fid)
{
	struct ps_pep *pep = pep_of(&fid->fid);

	if (!pep->eq)
		return -FI_ENOEQ;
	if (pep->addr.port && find_listener(pep->addr.port))
		return -FI_EADDRINUSE;
	for (uint16_t port = 1; !pep->addr.port; port++)
		if (!find_listener(htons(port)))
			pep->addr.port = htons(port);
	pep->listens = true;
	LIST_INSERT_HEAD(&pep->machine->peps, pep, link);
	return 0;
}

static int pep_reject(struct fid_pep *pep, fid_t handle, const void *param,
		      size_t paramlen)
{
	struct ps_req *req;

	if (paramlen > PS_CM_DATA)
		return -FI_EINVAL;
	/* An accepted request is in no list: do nothing. */
	LIST_FOREACH (req, &ps_sim.reqs, link)
		if (&req->fid == handle) {
			req_drop(handle, FI_ECONNREFUSED, param, paramlen);
			break;
		}
	return 0;
}

static struct fi_ops pep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = pep_close,
	.bind = pep_bind,
	.control = ps_no_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_cm pep_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.getname = pep_getname,
	.listen = pep_listen,
	.reject = pep_reject,
};

int ps_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		struct fid_pep **out, void *context)
{
	struct ps_pep *pep;
	struct ps_addr at;

	if (!ps_sim.cfg.offers_msg)
		return -FI_ENOSYS;
	if (info->src_addr && info->src_addrlen != sizeof(at))
		return -FI_EINVAL;
	if (info->src_addr)
		memcpy(&at, info->src_addr, sizeof(at));
	if (!info->src_addr || !at.number)
		ps_addr_make(++ps_sim.last_number, &at);
	pep = calloc(1, sizeof(*pep));
	if (!pep)
		return -FI_ENOMEM;
	pep->info = fi_dupinfo(info);
	if (!pep->info) {
		free(pep);
		return -FI_ENOMEM;
	}
	pep->addr = at;
	pep->fabric = ps_container_of(fabric, struct ps_fabric, fid);
	pep->fabric->refs++;
	pep->machine = ps_machine_current();
	pep->fid.fid.fclass = FI_CLASS_PEP;
	pep->fid.fid.context = context;
	pep->fid.fid.ops = &pep_fid_ops;
	pep->fid.cm = &pep_cm_ops;
	*out = &pep->fid;
	return 0;
}

void ps_conns_kill(struct ps_machine *m)
{
	struct ps_pep *pep;
	struct ps_eq *eq;

	while ((pep = LIST_FIRST(&m->peps))) {
		pep->listens = false;
		LIST_REMOVE(pep, link);
		/* After this, requests to the listener get no reply. */
		ps_eq_forget(pep->eq, &pep->fid.fid);
	}
	LIST_FOREACH (eq, &m->eqs, link)
		eq->dead = true;
}

/* --- connecting --- */

int ps_connect(struct fid_ep *fid, const void *addr, const void *param,
	       size_t paramlen)
{
	struct ps_ep *ep = ps_ep_of(fid);
	struct fi_info *info;
	struct ps_addr to;
	struct ps_pep *pep;
	struct ps_req *req;

	if (!ep->connected || !ps_addr_valid(addr) || paramlen > PS_CM_DATA)
		return -FI_EINVAL;
	if (!ep->enabled || ep->conn_wire || ep->req)
		return -FI_EOPBADSTATE;
	memcpy(&to, addr, sizeof(to));
	pep = find_listener(to.port);
	if (!pep) {
		add_event(ep, 0, FI_ECONNREFUSED);
		return 0;
	}
	req = calloc(1, sizeof(*req));
	info = fi_dupinfo(pep->info);
	if (!req || !info) {
		free(req);
		fi_freeinfo(info);
		return -FI_ENOMEM;
	}
	req->from = ep;
	req->at = to;
	ep->peer = to;
	req->fid.fclass = FI_CLASS_CONNREQ;
	ep->req = req;
	LIST_INSERT_HEAD(&ps_sim.reqs, req, link);
	info->handle = &req->fid;
	free(info->dest_addr);
	info->dest_addr = malloc(sizeof(ep->addr));
	if (!info->dest_addr)
		abort(); /* out of memory: abort the test */
	memcpy(info->dest_addr, &ep->addr, sizeof(ep->addr));
	info->dest_addrlen = sizeof(ep->addr);
	PS_TRACE("machine %u: connects to machine %u", ep->dom->machine->id,
		 pep->machine->id);
	ps_eq_push(pep->eq, FI_CONNREQ, 0, &pep->fid.fid, info, param,
		   paramlen);
	return 0;
}

void ps_conn_set_name(struct ps_ep *ep)
{
	const struct ps_req *req =
		ps_container_of(ep->accepts, struct ps_req, fid);

	ep->addr = req->at;
	if (req->from)
		ep->peer = req->from->addr;
}

int ps_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	const struct ps_ep *ep = ps_ep_of(fid);
	size_t room = *addrlen;

	if (!ep->connected || ep->shut_down || (!ep->conn_wire && !ep->accepts))
		return -FI_ENOTCONN;
	*addrlen = sizeof(ep->peer);
	memcpy(addr, &ep->peer, room < *addrlen ? room : *addrlen);
	return room < *addrlen ? -FI_ETOOSMALL : 0;
}

int ps_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct ps_ep *ep = ps_ep_of(fid);

	if (!ep->conn_wire)
		return -FI_ENOTCONN;
	ps_conn_cut(ep, true);
	return 0;
}

int ps_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	struct ps_ep *ep = ps_ep_of(fid), *from;
	int ret;

	if (!ep->connected || !ep->accepts || ep->conn_wire || !ep->enabled)
		return -FI_EOPBADSTATE;
	if (paramlen > PS_CM_DATA)
		return -FI_EINVAL;
	from = ps_req_drop(ep->accepts, 0);
	ep->accepts = NULL;
	if (!from)
		return -FI_ECONNABORTED;
	ret = ps_wire_pair(from, ep, &from->conn_wire);
	if (ret)
		return ret;
	ep->conn_wire = from->conn_wire->back;
	add_event_data(from, FI_CONNECTED, 0, param, paramlen);
	add_event(ep, FI_CONNECTED, 0);
	return 0;
}

void ps_conn_cut(struct ps_ep *ep, bool both)
{
	struct ps_wire *w = ep->conn_wire;

	if (!w || w->cut)
		return;
	ps_wire_cut(w);
	add_event(ep, FI_SHUTDOWN, 0);
	if (both)
		add_event(w->from == ep ? w->to : w->from, FI_SHUTDOWN, 0);
}

/* An endpoint is closed: end its connection and its requests. */
void ps_conn_end(struct ps_ep *ep)
{
	struct ps_wire *w = ep->conn_wire;

	if (ep->req)
		ep->req->from = NULL;
	if (ep->accepts)
		ps_req_drop(ep->accepts, FI_ECONNREFUSED);
	ep->req = NULL;
	ep->accepts = NULL;
	ps_conn_cut(ep, true);
	if (ep->eq)
		ps_eq_forget(ep->eq, &ep->fid.fid);
	ep->conn_wire = NULL;
	if (w)
		ps_wire_end(w);
	/* Place the writes that this machine's NIC has accepted. */
	if (w)
		ps_nic_place_all(ep->dom->machine);
}
