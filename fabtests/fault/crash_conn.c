// SPDX-License-Identifier: BSD-2-Clause
/* Programs with connected endpoints, on simulated machines. */
#include <stdlib.h>
#include <string.h>

#include "crash_node.h"

static void open_node(struct node *n, unsigned int machine)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 256};
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};

	memset(n, 0, sizeof(*n));
	n->machine = machine;
	pmsim->use_machine(machine);
	MUST(fi_domain(nodes_fabric(), (struct fi_info *)nodes_info(),
		       &n->domain, NULL));
	MUST(fi_cq_open(n->domain, &cq, &n->cq, NULL));
	MUST(fi_eq_open(nodes_fabric(), &eq, &n->eq, NULL));
}

void node_begin(struct node *n, unsigned int machine)
{
	open_node(n, machine);
}

void node_listen(struct node *n, unsigned int machine, const void *name)
{
	struct fi_info *info = fi_dupinfo(nodes_info());

	open_node(n, machine);
	if (!info)
		exit(99);
	if (name) {
		info->src_addr = malloc(NODE_NAME);
		if (!info->src_addr)
			exit(99);
		memcpy(info->src_addr, name, NODE_NAME);
		info->src_addrlen = NODE_NAME;
	}
	MUST(fi_passive_ep(nodes_fabric(), info, &n->pep, NULL));
	MUST(fi_pep_bind(n->pep, &n->eq->fid, 0));
	MUST(fi_listen(n->pep));
	fi_freeinfo(info);
}

static struct fid_ep *new_endpoint(struct node *n, struct fi_info *info)
{
	struct fid_ep *ep;

	MUST(fi_endpoint(n->domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &n->eq->fid, 0));
	MUST(fi_ep_bind(ep, &n->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_enable(ep));
	return ep;
}

void node_connect(struct node *n, const void *name)
{
	uint8_t me = (uint8_t)n->machine;

	pmsim->use_machine(n->machine);
	if (n->ep)
		MUST(fi_close(&n->ep->fid));
	n->ep = new_endpoint(n, (struct fi_info *)nodes_info());
	MUST(fi_connect(n->ep, name, &me, sizeof(me)));
}

/*
 * Close the peer's previous connection, then accept the new one: late writes of
 * the previous connection must not reach memory after writes of the new one.
 */
static void accept_peer(struct node *n, unsigned int peer, struct fi_info *info)
{
	if (peer >= NODE_SERVED)
		abort();
	if (n->served[peer])
		MUST(fi_close(&n->served[peer]->fid));
	n->served[peer] = new_endpoint(n, info);
	/* The initiator may have closed its endpoint in the meantime. */
	if (fi_accept(n->served[peer], NULL, 0)) {
		MUST(fi_close(&n->served[peer]->fid));
		n->served[peer] = NULL;
	}
	fi_freeinfo(info);
}

static void served_is_over(struct node *n, const struct fid *fid)
{
	for (size_t i = 0; i < NODE_SERVED; i++)
		if (n->served[i] && &n->served[i]->fid == fid) {
			MUST(fi_close(&n->served[i]->fid));
			n->served[i] = NULL;
		}
}

enum node_event node_event(struct node *n)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 64];
	} cm;
	struct fi_eq_err_entry err = {0};
	uint32_t event;
	ssize_t ret = fi_eq_read(n->eq, &event, &cm, sizeof(cm), 0);

	if (ret == -FI_EAGAIN)
		return NODE_NOTHING;
	if (ret == -FI_EAVAIL) {
		MUST(fi_eq_readerr(n->eq, &err, 0));
		return NODE_OVER;
	}
	MUST(ret);
	if (event == FI_CONNREQ)
		accept_peer(n, cm.e.data[0], cm.e.info);
	else if (event == FI_SHUTDOWN && n->pep)
		served_is_over(n, cm.e.fid);
	return event == FI_SHUTDOWN ? NODE_OVER : NODE_CONNECTED;
}
