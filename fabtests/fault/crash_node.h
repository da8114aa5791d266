/* SPDX-License-Identifier: BSD-2-Clause */
/* The program of a simulated machine: one endpoint of ofi_rpmem over pmsim. */
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
	/* Only with connected endpoints: ep is then an initiator's endpoint. */
	struct fid_eq *eq;
	struct fid_pep *pep;
	/* Endpoints of accepted connections, by the initiator's machine. */
	struct fid_ep *served[NODE_SERVED];
};

extern const struct pmsim_ops *pmsim;
extern struct host_sim *host_sim;

/*
 * Exit with status 99, the call's text and its error if the call returns a
 * negative value.
 */
#define MUST(call) node_must((call), #call, __FILE__, __LINE__)
long node_must(long ret, const char *what, const char *file, int line);

void nodes_setup(void);
void nodes_teardown(void);
enum nodes_kind {
	NODES_OURS,
	NODES_BARE, /* over the base provider alone */
	NODES_CONN, /* over ofi_rpmem, with connected endpoints */
};
/* Select the kind of endpoints. Takes effect at the next nodes_reset(). */
void nodes_are(enum nodes_kind kind);
struct fid_fabric *nodes_fabric(void);
const struct fi_info *nodes_info(void);
/*
 * Call before a run opens its first domain. keep: reuse the machines of the
 * previous run if their configuration is the same. Returns true if it reused
 * them.
 */
bool nodes_reset(const struct pmsim_cfg *cfg, bool keep);

#define NODE_NAME 16
/* name: the address of the target's previous incarnation, or NULL. */
void node_open(struct node *n, unsigned int machine, const void *name);
void node_name(const struct node *n, void *name);
void node_peer(struct node *n, const void *name);
/* Register mem for remote access, as persistent memory. */
void node_register(struct node *n, void *mem, size_t len);
void node_close(struct node *n);

/* --- programs with connected endpoints (crash_conn.c) --- */

enum node_event {
	NODE_NOTHING,
	NODE_CONNECTED,
	NODE_OVER, /* the initiator's connection has ended */
};

/* Open a target that listens at the address `name`; NULL: at any. */
void node_listen(struct node *n, unsigned int machine, const void *name);
/* Open an initiator. node_connect() makes its connected endpoint. */
void node_begin(struct node *n, unsigned int machine);
/* Close the initiator's endpoint, and connect a new one. */
void node_connect(struct node *n, const void *name);
/*
 * Read the next event. For FI_CONNREQ the call has accepted the connection, and
 * returns NODE_CONNECTED.
 */
enum node_event node_event(struct node *n);

#endif
