// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes endpoints of ofi_rpmem on simulated machines. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_node.h"

#define BASE	 "pmsim"
#define PROVIDER BASE ";ofi_rpmem"

const struct pmsim_ops *pmsim;
struct host_sim *host_sim;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct pmsim_cfg current;
static enum nodes_kind kind, kind_now;
static void *sim_dso, *rpmem_dso;

long node_must(long ret, const char *what, const char *file, int line)
{
	if (ret < 0) {
		fprintf(stderr, "%s:%d: %s: %s\n", file, line, what,
			fi_strerror((int)-ret));
		exit(99);
	}
	return ret;
}

/*
 * Find a symbol in a provider's DSO, in the folder from which libfabric loads
 * it, too.
 */
static void *find_symbol(void **dso, const char *file, const char *symbol)
{
	const char *dir = getenv("FI_PROVIDER_PATH");
	char path[4096];
	void *p;

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : ".", file);
	*dso = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	p = *dso ? dlsym(*dso, symbol) : NULL;
	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	return p;
}

void nodes_setup(void)
{
	pmsim_control_fn control;

	setenv("FI_PROVIDER", PROVIDER, 1);
	control = (pmsim_control_fn)find_symbol(&sim_dso, "libpmsim-fi.so",
						PMSIM_CONTROL);
	host_sim = find_symbol(&rpmem_dso, "librpmem-sim-fi.so", HOST_SIM);
	pmsim = control();
}

static void close_fabric(void)
{
	if (!fabric)
		return;
	MUST(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fabric = NULL;
}

void nodes_teardown(void)
{
	close_fabric();
	dlclose(rpmem_dso);
	dlclose(sim_dso);
}

static void open_fabric(void)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		exit(99);
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC |
		      (kind == NODES_BARE ? FI_TAGGED : FI_RMA_PMEM);
	hints->ep_attr->type = kind == NODES_CONN ? FI_EP_MSG : FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	hints->fabric_attr->prov_name =
		strdup(kind == NODES_BARE ? BASE : PROVIDER);
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
}

void nodes_are(enum nodes_kind k)
{
	kind = k;
}

struct fid_fabric *nodes_fabric(void)
{
	return fabric;
}

const struct fi_info *nodes_info(void)
{
	return info;
}

bool nodes_reset(const struct pmsim_cfg *cfg, bool keep)
{
	if (fabric && kind == kind_now &&
	    !memcmp(cfg, &current, sizeof(current))) {
		pmsim->reset(keep ? NULL : cfg);
		return keep;
	}
	pmsim->reset(cfg);
	close_fabric();
	memcpy(&current, cfg, sizeof(current));
	kind_now = kind;
	open_fabric();
	return false;
}

void node_open(struct node *n, unsigned int machine, const void *name)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 256};
	struct fi_av_attr av = {.type = FI_AV_MAP};

	memset(n, 0, sizeof(*n));
	n->machine = machine;
	pmsim->use_machine(machine);
	MUST(fi_domain(fabric, info, &n->domain, NULL));
	MUST(fi_cq_open(n->domain, &cq, &n->cq, NULL));
	MUST(fi_av_open(n->domain, &av, &n->av, NULL));
	MUST(fi_endpoint(n->domain, info, &n->ep, NULL));
	MUST(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(n->ep, &n->av->fid, 0));
	if (name)
		MUST(fi_setname(&n->ep->fid, (void *)name, NODE_NAME));
	MUST(fi_enable(n->ep));
}

void node_name(const struct node *n, void *name)
{
	size_t len = NODE_NAME;

	MUST(fi_getname(&n->ep->fid, name, &len));
}

void node_peer(struct node *n, const void *name)
{
	if (fi_av_insert(n->av, name, 1, &n->peer, 0, NULL) != 1)
		node_must(-FI_EINVAL, "fi_av_insert", __FILE__, __LINE__);
}

void node_register(struct node *n, void *mem, size_t len)
{
	MUST(fi_mr_reg(n->domain, mem, len, FI_REMOTE_WRITE | FI_REMOTE_READ, 0,
		       0, kind_now == NODES_BARE ? 0 : FI_RMA_PMEM, &n->mr,
		       NULL));
}

void node_close(struct node *n)
{
	if (n->mr)
		MUST(fi_close(&n->mr->fid));
	for (size_t i = 0; i < NODE_SERVED; i++)
		if (n->served[i])
			MUST(fi_close(&n->served[i]->fid));
	if (n->ep)
		MUST(fi_close(&n->ep->fid));
	if (n->pep)
		MUST(fi_close(&n->pep->fid));
	MUST(fi_close(&n->cq->fid));
	if (n->av)
		MUST(fi_close(&n->av->fid));
	MUST(fi_close(&n->domain->fid));
	if (n->eq)
		MUST(fi_close(&n->eq->fid));
	memset(n, 0, sizeof(*n));
}
