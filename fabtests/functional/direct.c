// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests for what the provider does not layer go to the base unchanged, and
 * such endpoints never claim to be persistent.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#define V FI_VERSION(1, 17)

static int failed;

static void check(int good, const char *what)
{
	if (good)
		return;
	printf("FAIL: %s\n", what);
	failed = 1;
}

static struct fi_info *hints_of(const char *prov, enum fi_ep_type type,
				uint64_t caps)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		exit(99);
	h->caps = caps;
	h->ep_attr->type = type;
	h->addr_format = FI_SOCKADDR_IN;
	h->domain_attr->mr_mode =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->fabric_attr->prov_name = strdup(prov);
	return h;
}

static struct fi_info *get_info(const char *prov, enum fi_ep_type type,
				uint64_t caps, uint64_t op_flags)
{
	struct fi_info *h = hints_of(prov, type, caps), *list = NULL;

	h->tx_attr->op_flags = op_flags;
	if (fi_getinfo(V, "127.0.0.1", NULL, 0, h, &list))
		list = NULL;
	fi_freeinfo(h);
	return list;
}

/*
 * If persistence is requested, the provider offers connected endpoints, and no
 * datagram ones.
 */
static void check_persistent(const char *prov, enum fi_ep_type type)
{
	const bool offered = type == FI_EP_MSG;
	struct fi_info *list =
		get_info(prov, type, FI_MSG | FI_RMA | FI_RMA_PMEM, 0);
	struct fi_info *h;

	if (offered)
		check(list && (list->caps & FI_RMA_PMEM) &&
			      (list->domain_attr->mr_mode & FI_MR_PROV_KEY) &&
			      !list->next,
		      "persistence requested: the provider's are listed, and "
		      "no "
		      "others");
	else
		check(!list, "persistence requested: no match");
	fi_freeinfo(list);
	h = hints_of(prov, type, FI_MSG | FI_RMA | FI_RMA_PMEM);
	h->domain_attr->mr_mode = 0;
	list = NULL;
	check(fi_getinfo(V, "127.0.0.1", NULL, 0, h, &list) && !list,
	      "nor where we may not make the keys");
	fi_freeinfo(list);
	fi_freeinfo(h);
}

/*
 * The provider offers no order of completions: those of persistent operations
 * and of the base's have none.
 */
static void check_comp_order(const char *prov, enum fi_ep_type type)
{
	const uint64_t caps = FI_MSG | FI_RMA;
	struct fi_info *list = get_info(prov, type, caps | FI_RMA_PMEM, 0), *h;

	check(list && !list->tx_attr->comp_order && !list->rx_attr->comp_order,
	      "no order of persistent completions is offered");
	fi_freeinfo(list);
	for (int rx = 0; rx < 2; rx++) {
		h = hints_of(prov, type, caps | FI_RMA_PMEM);
		*(rx ? &h->rx_attr->comp_order : &h->tx_attr->comp_order) =
			FI_ORDER_STRICT;
		list = NULL;
		check(fi_getinfo(V, "127.0.0.1", NULL, 0, h, &list) && !list,
		      "requested: no match");
		fi_freeinfo(list);
		fi_freeinfo(h);
	}
}

static void check_entries(const char *prov, enum fi_ep_type type)
{
	struct fi_info *list = get_info(prov, type, 0, 0);

	check(list != NULL, "the base's own endpoints are listed");
	for (struct fi_info *i = list; i; i = i->next) {
		check(i->ep_attr->type == type, "of the requested type");
		check(!strcmp(i->fabric_attr->prov_name, prov),
		      "under our name");
		check(!((i->caps | i->tx_attr->caps | i->rx_attr->caps) &
			FI_RMA_PMEM),
		      "none calls itself persistent");
		check(!(i->tx_attr->op_flags & FI_COMMIT_COMPLETE),
		      "none commits by default");
	}
	fi_freeinfo(list);
	check_persistent(prov, type);
	list = get_info(prov, type, FI_MSG, FI_COMMIT_COMPLETE);
	check(!list, "commits by default requested: no match");
	fi_freeinfo(list);
}

/*
 * For hints that name no endpoint type, the provider's endpoints come before
 * the base's.
 */
static void check_order(const char *prov)
{
	struct fi_info *list = get_info(prov, FI_EP_UNSPEC, 0, 0);
	int others = 0;

	check(list && list->ep_attr->type == FI_EP_RDM,
	      "the provider's come first");
	for (struct fi_info *i = list; i; i = i->next) {
		others += i->ep_attr->type != FI_EP_RDM;
		check(!others || i->ep_attr->type != FI_EP_RDM,
		      "and the base's behind them");
	}
	check(others, "the base's are listed");
	fi_freeinfo(list);
}

struct side {
	struct fid_domain *dom;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

static int side_open(struct fid_fabric *fabric, struct fid_eq *eq,
		     struct fi_info *info, struct side *s)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT};

	return fi_domain(fabric, info, &s->dom, NULL) ||
	       fi_cq_open(s->dom, &attr, &s->cq, NULL) ||
	       fi_endpoint(s->dom, info, &s->ep, NULL) ||
	       fi_ep_bind(s->ep, &eq->fid, 0) ||
	       fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) ||
	       fi_enable(s->ep);
}

static void side_close(struct side *s)
{
	check(!fi_close(&s->ep->fid) && !fi_close(&s->cq->fid) &&
		      !fi_close(&s->dom->fid),
	      "a side closes");
}

static uint32_t next_event(struct fid_eq *eq, struct fi_eq_cm_entry *e)
{
	uint32_t what = 0;

	if (fi_eq_sread(eq, &what, e, sizeof(*e), 10000, 0) < 0)
		return 0;
	return what;
}

static int wait_completion(struct side *s)
{
	struct fi_cq_entry e;
	ssize_t n;

	for (int i = 0; i < 1000000; i++) {
		n = fi_cq_read(s->cq, &e, 1);
		if (n != -FI_EAGAIN)
			return n == 1;
	}
	return 0;
}

/* Two connected endpoints of one process exchange a message. */
static void check_connected(const char *prov)
{
	struct fi_info *list = get_info(prov, FI_EP_MSG, FI_MSG, 0), *to;
	struct side a = {0}, b = {0};
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_eq_cm_entry e = {0};
	struct fi_info *request;
	struct fid_fabric *fabric;
	struct fid_pep *pep;
	struct fid_eq *eq;
	char out[] = "over", in[sizeof(out)] = "";
	char addr[64];
	size_t len = sizeof(addr);
	int up = 0;

	if (!list || fi_fabric(list->fabric_attr, &fabric, NULL) ||
	    fi_eq_open(fabric, &eq_attr, &eq, NULL) ||
	    fi_passive_ep(fabric, list, &pep, NULL) ||
	    fi_pep_bind(pep, &eq->fid, 0) || fi_listen(pep) ||
	    fi_getname(&pep->fid, addr, &len)) {
		check(0, "a passive endpoint");
		return;
	}
	to = fi_dupinfo(list);
	free(to->dest_addr);
	to->dest_addr = malloc(len);
	memcpy(to->dest_addr, addr, len);
	to->dest_addrlen = len;
	check(!side_open(fabric, eq, to, &a), "the active side");
	check(!fi_connect(a.ep, addr, NULL, 0), "connects");
	check(next_event(eq, &e) == FI_CONNREQ, "a request arrives");
	request = e.info;
	check(request && !side_open(fabric, eq, request, &b),
	      "the passive side");
	check(!fi_accept(b.ep, NULL, 0), "accepts");
	up += next_event(eq, &e) == FI_CONNECTED;
	up += next_event(eq, &e) == FI_CONNECTED;
	check(up == 2, "both are connected");
	check(!fi_recv(b.ep, in, sizeof(in), NULL, 0, NULL), "a receive");
	check(!fi_send(a.ep, out, sizeof(out), NULL, 0, NULL), "a send");
	check(wait_completion(&a) && wait_completion(&b) && !strcmp(in, out),
	      "it arrives");
	side_close(&a);
	side_close(&b);
	fi_freeinfo(to);
	fi_freeinfo(request);
	check(!fi_close(&pep->fid) && !fi_close(&eq->fid) &&
		      !fi_close(&fabric->fid),
	      "the fabric closes");
	fi_freeinfo(list);
}

static int eq_open(const char *prov, struct fid_fabric **fabric,
		   struct fid_eq **eq)
{
	struct fi_info *list = get_info(prov, FI_EP_MSG, FI_MSG, 0);
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
	int ret = !list || fi_fabric(list->fabric_attr, fabric, NULL) ||
		  fi_eq_open(*fabric, &attr, eq, NULL);

	fi_freeinfo(list);
	return ret;
}

/* ofi_rpmem's event queue leaves the tables that the base's queues share. */
static void check_base_tables(const char *base, const char *prov)
{
	struct fid_fabric *fabric[2];
	struct fid_eq *eq[2];
	struct fi_ops_eq ops, *ops_at;
	struct fi_ops fid_ops, *fid_ops_at;

	if (eq_open(base, &fabric[0], &eq[0])) {
		check(0, "an event queue of the base");
		return;
	}
	ops_at = eq[0]->ops;
	ops = *ops_at;
	fid_ops_at = eq[0]->fid.ops;
	fid_ops = *fid_ops_at;
	if (eq_open(prov, &fabric[1], &eq[1])) {
		check(0, "an event queue of ofi_rpmem");
		return;
	}
	check(eq[0]->ops == ops_at && eq[1]->ops != ops_at &&
		      !memcmp(&ops, ops_at, sizeof(ops)),
	      "the base's queues keep their calls");
	check(eq[0]->fid.ops == fid_ops_at && eq[1]->fid.ops != fid_ops_at &&
		      !memcmp(&fid_ops, fid_ops_at, sizeof(fid_ops)),
	      "and their fi_close()");
	for (int i = 0; i < 2; i++)
		check(!fi_close(&eq[i]->fid) && !fi_close(&fabric[i]->fid),
		      "a queue and its fabric close");
}

int main(void)
{
	check_entries("tcp;ofi_rpmem", FI_EP_MSG);
	check_entries("sockets;ofi_rpmem", FI_EP_MSG);
	check_entries("sockets;ofi_rpmem", FI_EP_DGRAM);
	check_order("tcp;ofi_rpmem");
	check_order("sockets;ofi_rpmem");
	check_comp_order("tcp;ofi_rpmem", FI_EP_RDM);
	check_comp_order("sockets;ofi_rpmem", FI_EP_RDM);
	check_comp_order("tcp;ofi_rpmem", FI_EP_MSG);
	check_base_tables("tcp", "tcp;ofi_rpmem");
	check_connected("tcp;ofi_rpmem");
	return failed;
}
