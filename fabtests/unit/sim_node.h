/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs on the simulated fabric: a node is the endpoint of one process. */
#ifndef RP_TEST_SIM_NODE_H
#define RP_TEST_SIM_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "pmsim/pmsim.h"

extern const struct pmsim_ops *sim;

/* Options for opening the nodes of a test. */
struct sim_opts {
	const char *prov;   /* NULL: pmsim */
	enum fi_av_type av; /* AV type; 0: map */
	bool selective;
	bool prov_keys; /* allow FI_MR_PROV_KEY */
	uint64_t caps;	/* capabilities; 0: all that both bases support */
	uint64_t op_flags;
};

struct sim_node {
	struct fid_domain *dom;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint64_t key, addr; /* key and address of mr for peers */
	char name[16];
};

/* Load the providers and reset the fabric; once per process. */
void sim_start(void);
/* Open the fabric that later nodes use; call reset() before. */
void sim_open(const struct sim_opts *opts);
void sim_close(void);
/* Open a node on this machine; name NULL: any address. */
void node_open(struct sim_node *n, unsigned int machine, const char *name);
void node_close(struct sim_node *n);
/* Register memory; `key` is used if the program chooses keys. */
void node_memory(struct sim_node *n, void *buf, size_t len, uint64_t key,
		 uint64_t flags);
fi_addr_t node_insert(struct sim_node *n, const struct sim_node *peer);
/* Poll the node's completion queue without taking an entry. */
void node_poke(struct sim_node *n);
/* The next completion must have this context. */
void node_expect(struct sim_node *n, void *context,
		 struct fi_cq_tagged_entry *e);
/* The next entry must be an error with this context; returns its err. */
int node_expect_error(struct sim_node *n, void *context);
bool node_no_entries(struct sim_node *n);
/* Deliver all that is in flight now. Returns the number of deliveries. */
unsigned int sim_deliver_all(void);
/* The only wire from machine `from` that has messages in flight. */
struct pmsim_wire sim_wire(unsigned int from);

#define MUST(call) sim_must((call), #call, __FILE__, __LINE__)
ssize_t sim_must(ssize_t ret, const char *what, const char *file, int line);

#endif
