/* SPDX-License-Identifier: BSD-2-Clause */
/* The preload library, which interposes a program's calls of libibverbs. */
#ifndef RP_PRELOAD_H
#define RP_PRELOAD_H

#include <netinet/in.h>

#include "core/thread.h"
#include "core/wire_rendezvous.h"
#include "verbs/post.h"

/* Nonzero: pass calls to libibverbs; always so in the rendezvous thread. */
extern __thread unsigned int rp_pre_passthrough;

/* --- devices and completion queues --- */

/* A device, and its functions, which those of interpose.c replace. */
struct rp_pre_ctx {
	struct ibv_context *ctx;
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*query_device_ex)(struct ibv_context *ctx,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *ctx,
					  struct ibv_cq_init_attr_ex *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *ctx,
				       struct ibv_qp_init_attr_ex *attr);
	int max_cqe;
	LIST_ENTRY(rp_pre_ctx) link;
};

struct rp_pre_cq {
	struct ibv_cq *cq;
	struct rp_pre_ctx *ctx;
	bool extended;	       /* made by ibv_create_cq_ex() */
	int program_cqe, used; /* entries for the program, for the shim */
	_Atomic(void *) shim;  /* struct rpmem_cq * or NULL */
	pthread_mutex_t lock;
	UT_hash_handle hh;
};
struct rp_pre_ctx *rp_pre_ctx_find(const struct ibv_context *ctx);
struct rp_pre_cq *rp_pre_cq_find(struct ibv_cq *cq);
/* Reserve entries for the shim; < 0: release. ENOMEM: too few are left. */
int rp_pre_cq_reserve(struct rp_pre_cq *c, int entries);

/* --- queue pairs --- */

struct rp_pre_qp {
	union { /* first member: programs get its address */
		struct ibv_qp_ex ex;
		uint8_t room[RP_WR_FLUSH_OFFSET + sizeof(rp_wr_flush_fn)];
	};
	struct ibv_qp *qp;
	struct ibv_qp_ex *base; /* device's builders; NULL: none */
	struct rpmem_qp *shim;
	struct rp_pre_cq *send_cq;
	uint64_t send_ops; /* requested builders */
	int entries;	   /* reserved entries of send_cq */
	bool no_sge, no_rd, no_dest_rd, no_read; /* limits raised from 0 */
	unsigned int access;			 /* granted FLUSH bits */
	UT_hash_handle hh;
	/* The connected peer; guarded by the lock of server.c. */
	bool connected;
	union ibv_gid gid, peer_gid;
	uint32_t scope;	   /* sin6_scope_id of link-local GIDs */
	uint32_t peer_num; /* peer's QP number */
	struct rp_pre_listener *listener;
	bool lost_client; /* lost a client that holds descriptors */
	/* The side connection, which either end may start; with q->lock. */
	bool side_up;
	struct rpmem_qp_desc peer_desc;
	/* State of the rendezvous client. */
	pthread_mutex_t client_lock;
	struct rp_remote_cfg cfg;
	_Atomic(int) state; /* enum rp_pre_state */
	_Atomic(int) fd;    /* socket to the peer's server; or -1 */
	uint8_t msg[RP_RENDEZVOUS_LEN];
	size_t msg_len;	    /* received bytes of msg */
	uint32_t *recalled; /* rkeys of deregistered regions */
	size_t nrecalled, recalled_room, granted; /* granted, not recalled */
	bool all_recalled;
};
enum rp_pre_state {
	RP_PRE_NEW, /* not looked up yet */
	RP_PRE_FOUND,
	RP_PRE_NOT_FOUND, /* no process with the preload */
	RP_PRE_LOST,	  /* the peer's process or connection ended */
};

/* Fill r->ex with builders: those of the device, and the shim's flushes. */
void rp_pre_ex_init(struct rp_pre_qp *r);

/* --- client.c: the rendezvous client --- */

/* Before the first request: connect to the peer's rendezvous server, if any. */
void rp_pre_lookup(struct rp_pre_qp *r);
/* Between start and complete: get a region's descriptor, or an empty one. */
void rp_pre_region_get(struct rp_pre_qp *r, uint32_t rkey);
/* With client_lock: handle all messages on r->fd, and wait for none. */
void rp_pre_receive(struct rp_pre_qp *r);
void rp_pre_disconnect(struct rp_pre_qp *r);
/* Send a message. until: deadline; 0: wait for no reader. 0 or an errno. */
int rp_pre_send(int fd, const struct rp_rendezvous *m, uint64_t until);
/* Connect the side connection, unless it is connected. 0 or an errno. */
int rp_pre_side_connect(struct rp_pre_qp *r, const struct rp_side_addr *peer);
/* Convert a GID to its host's IP address; false: the GID has none. */
bool rp_pre_gid_to_addr(const union ibv_gid *gid, uint32_t scope, uint16_t port,
			struct sockaddr_in6 *to);
static inline uint64_t rp_pre_now(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC);
}
/* Make a descriptor without access: flushes fail as on a device. */
struct rp_desc rp_pre_empty_desc(uint32_t rkey, uint32_t qp_num,
				 unsigned int qp);

/* --- server.c: the rendezvous server, and the thread of both sides --- */

struct rp_pre_mr {
	struct ibv_mr *mr;
	struct rpmem_mr *shim;
	bool leaving; /* is being deregistered */
	UT_hash_handle hh;
};
/* Add a queue pair to the server, which starts its thread. 0 or an errno. */
int rp_pre_qp_add(struct rp_pre_qp *r);
void rp_pre_qp_del(struct rp_pre_qp *r);
struct rp_pre_qp *rp_pre_qp_find(struct ibv_qp *qp);
/* Record that the program connected r to the peer in attr; or disconnected. */
void rp_pre_qp_set_peer(struct rp_pre_qp *r, const struct ibv_qp_attr *attr);
void rp_pre_qp_clear_peer(struct rp_pre_qp *r);
int rp_pre_mr_add(struct ibv_mr *mr, struct rpmem_mr *shim);
struct rp_pre_mr *rp_pre_mr_find(struct ibv_mr *mr);
/* Before deregistration: recall clients' descriptors. */
void rp_pre_mr_recall(struct rp_pre_mr *m);
/* After deregistration, which may have failed: delete m, or serve it again. */
void rp_pre_mr_end_recall(struct rp_pre_mr *m, bool gone);
/* Wake the thread, so that it polls new file descriptors. */
void rp_pre_wake_thread(void);

#endif
