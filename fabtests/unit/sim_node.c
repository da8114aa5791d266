// SPDX-License-Identifier: BSD-2-Clause
/* Programs on the simulated fabric. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "unit/sim_node.h"

#define SIM_FOLDER RP_BUILDDIR "/prov/pmsim/.libs"

const struct pmsim_ops *sim;
static struct sim_opts opts;
static struct fi_info *info;
static struct fid_fabric *fabric;

ssize_t sim_must(ssize_t ret, const char *what, const char *file, int line)
{
	if (ret < 0)
		fprintf(stderr, "%s:%d: %s: %s\n", file, line, what,
			fi_strerror((int)-ret));
	cr_assert_geq(ret, 0);
	return ret;
}

void sim_start(void)
{
	pmsim_control_fn control;
	void *dso;

	setenv("FI_PROVIDER_PATH",
	       SIM_FOLDER ":" RP_BUILDDIR "/prov/rpmem/.libs", 1);
	unsetenv("FI_PROVIDER");
	/* libfabric opens the same file, which shares its state. */
	dso = dlopen(SIM_FOLDER "/libpmsim-fi.so", RTLD_NOW);
	cr_assert(dso, "%s", dlerror());
	control = (pmsim_control_fn)dlsym(dso, PMSIM_CONTROL);
	cr_assert(control);
	sim = control();
}

void sim_open(const struct sim_opts *o)
{
	struct fi_info *h = fi_allocinfo();

	opts = *o;
	h->fabric_attr->prov_name = strdup(o->prov ? o->prov : "pmsim");
	h->caps = o->caps ? o->caps
			  : FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE |
				    FI_DIRECTED_RECV;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	if (o->prov_keys)
		h->domain_attr->mr_mode |= FI_MR_PROV_KEY;
	h->tx_attr->op_flags = o->op_flags;
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &info));
	fi_freeinfo(h);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
}

void sim_close(void)
{
	MUST(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

void node_open(struct sim_node *n, unsigned int machine, const char *name)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED,
				.wait_obj = FI_WAIT_NONE};
	struct fi_av_attr av = {.type = opts.av ? opts.av : FI_AV_MAP};
	size_t len = sizeof(n->name);

	memset(n, 0, sizeof(*n));
	sim->use_machine(machine);
	MUST(fi_domain(fabric, info, &n->dom, NULL));
	MUST(fi_cq_open(n->dom, &cq, &n->cq, NULL));
	MUST(fi_av_open(n->dom, &av, &n->av, NULL));
	MUST(fi_endpoint(n->dom, info, &n->ep, NULL));
	if (name)
		MUST(fi_setname(&n->ep->fid, (void *)name, sizeof(n->name)));
	MUST(fi_ep_bind(
		n->ep, &n->cq->fid,
		FI_TRANSMIT | FI_RECV |
			(opts.selective ? FI_SELECTIVE_COMPLETION : 0)));
	MUST(fi_ep_bind(n->ep, &n->av->fid, 0));
	MUST(fi_enable(n->ep));
	MUST(fi_getname(&n->ep->fid, n->name, &len));
	cr_assert_eq(len, sizeof(n->name));
}

void node_close(struct sim_node *n)
{
	if (n->mr)
		MUST(fi_close(&n->mr->fid));
	MUST(fi_close(&n->ep->fid));
	MUST(fi_close(&n->cq->fid));
	MUST(fi_close(&n->av->fid));
	MUST(fi_close(&n->dom->fid));
}

void node_memory(struct sim_node *n, void *buf, size_t len, uint64_t key,
		 uint64_t flags)
{
	MUST(fi_mr_reg(n->dom, buf, len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		       key, flags, &n->mr, NULL));
	n->key = fi_mr_key(n->mr);
	n->addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)buf
							       : 0;
}

fi_addr_t node_insert(struct sim_node *n, const struct sim_node *peer)
{
	fi_addr_t addr;

	cr_assert_eq(fi_av_insert(n->av, peer->name, 1, &addr, 0, NULL), 1);
	return addr;
}

void node_poke(struct sim_node *n)
{
	fi_cq_read(n->cq, NULL, 0);
}

void node_expect(struct sim_node *n, void *context,
		 struct fi_cq_tagged_entry *e)
{
	struct fi_cq_tagged_entry entry;

	if (!e)
		e = &entry;
	cr_assert_eq(MUST(fi_cq_read(n->cq, e, 1)), 1);
	cr_assert_eq(e->op_context, context);
}

int node_expect_error(struct sim_node *n, void *context)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};

	cr_assert_eq(fi_cq_read(n->cq, &e, 1), -FI_EAVAIL);
	cr_assert_eq(MUST(fi_cq_readerr(n->cq, &err, 0)), 1);
	cr_assert_eq(err.op_context, context);
	return err.err;
}

bool node_no_entries(struct sim_node *n)
{
	struct fi_cq_tagged_entry e;

	return fi_cq_read(n->cq, &e, 1) == -FI_EAGAIN;
}

unsigned int sim_deliver_all(void)
{
	struct pmsim_wire w[16];
	size_t n = sim->wires(w, 16);
	unsigned int moved = 0;

	cr_assert_leq(n, 16);
	for (size_t i = 0; i < n; i++) {
		moved += w[i].in_flight;
		sim->deliver(w[i].id, w[i].in_flight);
	}
	return moved;
}

struct pmsim_wire sim_wire(unsigned int from)
{
	struct pmsim_wire w[16], found = {0};
	size_t n = sim->wires(w, 16), hits = 0;

	for (size_t i = 0; i < n; i++) {
		if (w[i].from != from)
			continue;
		found = w[i];
		hits++;
	}
	cr_assert_eq(hits, 1);
	return found;
}
