/* SPDX-License-Identifier: BSD-2-Clause */
/* A simulated machine's program: one endpoint of ofi_rpmem over pmsim. */
#ifndef CRASH_NODE_H
#define CRASH_NODE_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_rma.h>

#include "host_sim.h"
#include "pmsim/pmsim.h"

#define NODE_SERVED 4

struct node {
	unsigned int machine;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t peer;
	/* Of connected endpoints, of which ep is the initiator's: */
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_ep
		*served[NODE_SERVED]; /* by the machine at the other end */
};

extern const struct pmsim_ops *pmsim;
extern struct host_sim *host_sim;

/* Dies, with the call and what is wrong, when ret is an error. */
#define MUST(call) node_must((call), #call, __FILE__, __LINE__)
long node_must(long ret, const char *what, const char *file, int line);

void nodes_setup(void);
void nodes_teardown(void);
enum nodes_kind {
	NODES_OURS,
	NODES_BARE, /* programs of the base alone */
	NODES_CONN, /* of ours, with connected endpoints */
};
/* From the next nodes_reset() on. */
void nodes_are(enum nodes_kind kind);
struct fid_fabric *nodes_fabric(void);
const struct fi_info *nodes_info(void);
/*
 * Before the first domain of a run. keep: the machines of the run before, where
 * they are of this configuration; true when it was so.
 */
bool nodes_reset(const struct pmsim_cfg *cfg, bool keep);

#define NODE_NAME 16
/* name: of an earlier life, or NULL. */
void node_open(struct node *n, unsigned int machine, const void *name);
void node_name(const struct node *n, void *name);
void node_peer(struct node *n, const void *name);
/* Register persistent memory. */
void node_register(struct node *n, void *mem, size_t len);
void node_close(struct node *n);

/* --- crash_conn.c: programs with connected endpoints --- */

enum node_event {
	NODE_NOTHING,
	NODE_CONNECTED,
	NODE_OVER, /* of an initiator: it can connect again */
};

/* A target, that listens where a name says, or anywhere. */
void node_listen(struct node *n, unsigned int machine, const void *name);
/* An initiator, in place of node_open(): without an endpoint as yet. */
void node_begin(struct node *n, unsigned int machine);
/* ... which this closes, and opens anew. */
void node_connect(struct node *n, const void *name);
/* The next event. A target has answered it already. */
enum node_event node_event(struct node *n);

#endif
