/* SPDX-License-Identifier: BSD-2-Clause */
/* The target side: one agent with a thread per protection domain. */
#ifndef RP_TARGET_H
#define RP_TARGET_H

#include "core/agent.h"
#include "core/wire_desc.h"
#include "verbs/shim.h"

/* Find or make the agent of pd; rp_pd_put() releases it. 0 or an errno. */
struct rp_pd;
int rp_pd_get(struct ibv_pd *pd, struct rp_pd **out);
void rp_pd_put(struct rp_pd *dom);

/*
 * Add a region to the agent, with a new key if it has none. 0, or a positive
 * errno. After rp_pd_del() no thread touches the region.
 */
int rp_pd_add(struct rp_pd *dom, struct rp_region *r);
void rp_pd_del(struct rp_pd *dom, struct rp_region *r);
/*
 * Get the current facts of an added region; they may have weakened. q, or NULL:
 * a queue pair whose peer gets no message. When any region of dom weakens
 * later, q fails, until rp_pd_unwatch(). Returns 0, or a positive errno.
 */
int rp_pd_facts(struct rp_pd *dom, const struct rp_region *r, struct rp_qp *q,
		struct rp_facts *facts);
void rp_pd_unwatch(struct rp_qp *q);

/* params.c: determine the facts of registered memory. 0 or -errno. */
int rp_device_facts(struct ibv_pd *pd, void *addr, size_t length,
		    struct rp_facts *facts, char *why);

/* Attributes to connect a side queue pair to that of one peer. */
struct rp_route {
	uint8_t port, timeout, retries;
	uint16_t pkey_index;
	enum ibv_mtu mtu;
	struct ibv_ah_attr ah;
	uint32_t psn, peer_psn;
};
struct rp_target;
int rp_target_new(struct rp_pd *dom, struct rp_qp *q, struct rp_target **out);
/* Fill *side, for the peer: number of the side queue pair, and its ring. */
void rp_target_export(const struct rp_target *s, struct rp_side_addr *side);
int rp_target_connect(struct rp_target *s, const struct rp_route *route,
		      const struct rp_side_addr *peer);
void rp_target_delete(struct rp_target *s);

/* side_conn.c: side queue pairs, for initiator and target. */
struct ibv_qp *rp_side_new(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends,
			   uint32_t recvs);
/* rp_side_to_init(): to INIT. rp_side_to_rts(): to RTR, then to RTS. */
int rp_side_to_init(struct ibv_qp *qp, const struct rp_route *route,
		    unsigned int access);
int rp_side_to_rts(struct ibv_qp *qp, const struct rp_route *route,
		   uint32_t number);
int rp_side_post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id,
		 const void *msg, size_t len, uint32_t lkey, uint64_t addr,
		 uint32_t rkey);
int rp_side_recv(struct ibv_qp *qp, uint64_t wr_id, void *msg, size_t len,
		 uint32_t lkey);

#endif
