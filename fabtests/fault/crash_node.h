/* SPDX-License-Identifier: BSD-2-Clause */
/* A simulated machine's program: one endpoint of ofi_rpmem over pmsim. */
#ifndef CRASH_NODE_H
#define CRASH_NODE_H

#include <rdma/fi_cm.h>
#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_rma.h>

#include "host_sim.h"
#include "pmsim/pmsim.h"

struct node {
	unsigned int machine;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t peer;
};

extern const struct pmsim_ops *pmsim;
extern struct host_sim *host_sim;

/* Dies, with the call and what is wrong, when ret is an error. */
#define MUST(call) node_must((call), #call, __FILE__, __LINE__)
long node_must(long ret, const char *what, const char *file, int line);

void nodes_setup(void);
void nodes_teardown(void);
/* From the next nodes_reset() on: programs of the base alone, or not. */
void nodes_bare(bool on);
/*
 * Before the first domain of a run. keep: the machines of the run before, where
 * they are of this configuration; true when it was so.
 */
bool nodes_reset(const struct pmsim_cfg *cfg, bool keep);

#define NODE_NAME 8
/* name: of an earlier life, or NULL. */
void node_open(struct node *n, unsigned int machine, const void *name);
void node_name(const struct node *n, void *name);
void node_peer(struct node *n, const void *name);
/* Register persistent memory. */
void node_register(struct node *n, void *mem, size_t len);
void node_close(struct node *n);

#endif
