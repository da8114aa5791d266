/* SPDX-License-Identifier: BSD-2-Clause */
/* Structs and functions that the files of the verbs shim share. */
#ifndef RP_SHIM_H
#define RP_SHIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <infiniband/rpmem.h>

#include "core/deferred.h"
#include "core/hash.h"
#include "core/ring.h"
#include "core/remote_flush.h"

#define RP_PUBLIC __attribute__((visibility("default")))

#define RP_SHIM_FLUSHES                                                        \
	(RPMEM_ACCESS_FLUSH_GLOBAL | RPMEM_ACCESS_FLUSH_PERSISTENT)

/* A region of the peer, from a descriptor that the program imported. */
struct rp_peer_region {
	struct rp_remote_region r;
	bool checked; /* check_region() has succeeded */
	UT_hash_handle hh;
};

/* --- operations of a queue pair, which a test can replace --- */

struct rp_qp;
struct rp_pd;

struct rp_qp_state {
	enum ibv_qp_state state;
	uint32_t dest_qp_num;
	unsigned int max_rd_atomic, max_dest_rd_atomic;
	unsigned int access; /* IBV_ACCESS_* with FLUSH bits */
};
struct rp_qp_ops {
	void (*start)(struct rp_qp *q);
	/* Post an RDMA READ into the queue pair's scratch memory. */
	void (*read)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t len);
	void (*flush)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		      uint8_t level);
	void (*atomic_write)(struct rp_qp *q, uint64_t wr_id,
			     unsigned int flags, uint32_t rkey, uint64_t addr,
			     const void *value);
	/* Post work requests. Positive errno: *posted of them were posted. */
	int (*complete)(struct rp_qp *q, size_t *posted);
	void (*abort)(struct rp_qp *q);
	int (*query)(struct rp_qp *q, struct rp_qp_state *end);
	int (*fail)(struct rp_qp *q); /* modify to IBV_QPS_ERR */
	/*
	 * Send from q->side->tx over the side queue pair; side_recv posts a
	 * receive into q->side->rx. Both complete in the completion queue of q.
	 * 0 or a positive errno.
	 */
	int (*side_send)(struct rp_qp *q, uint64_t wr_id, const void *msg,
			 size_t len);
	void (*write)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, uint32_t lkey,
		      const void *buf, uint32_t len);
	int (*side_recv)(struct rp_qp *q, uint64_t wr_id, void *msg);
	uint64_t (*now)(const struct rp_qp *q); /* monotonic ns */
	int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
};

/*
 * State of an internal work request, whose wr_id is the slot's address: no
 * pointer of a program, used as wr_id, equals it. There are as many slots as
 * completion queue entries, so the shim never overflows the queue.
 */
struct rp_slot {
	struct rp_qp *q; /* NULL: q was detached */
	enum {
		RP_SLOT_READ, /* READ that replaces a flush or atomic write */
		RP_SLOT_RING, /* WRITE of a request into the peer's ring */
		RP_SLOT_SEND, /* SEND over the side connection */
		RP_SLOT_RECV,
		RP_SLOT_DEAD, /* see rp_cq_drop_slots() */
	} kind;
	uint32_t qp_num;	/* queue pair that completes it */
	unsigned int buf;	/* SEND, RECV: index in tx or rx */
	bool keep_for_doorbell; /* SEND: put the slot back into hello */
	uint64_t wr_id;		/* READ: wr_id that the program set */
	uint64_t key;		/* key if flushed without the agent; or 0 */
	int opcode;
	bool signaled; /* the program requested a completion */
	enum ibv_wc_status forced_status; /* failure to report; or SUCCESS */
	/* flush: a write's flush; write: the reverse. Flushes report both. */
	struct rp_slot *flush, *write;
	enum ibv_wc_status write_status; /* flush: status of its failed write */
	struct rp_deferred_wc *deferred; /* request to the agent; NULL: none */
	struct rp_slot *next;		 /* next free */
};

/* A completion to report to the program later. */
struct rp_deferred_wc {
	struct rp_deferred_op item; /* first member: pointers to it are cast */
	struct ibv_wc wc;
	bool visible;	      /* the program requested this completion */
	struct rp_slot *slot; /* to send the request; NULL: sent */
	LIST_ENTRY(rp_deferred_wc) link; /* next free */
};

/* The initiator's end of a side connection. */
#define RP_SIDE_RECVS	 8
#define RP_SIDE_SENDS	 16
#define RP_SIDE_SEND_LEN 128
#define RP_SIDE_RECV_LEN 384 /* longest message: INFO */
#define RP_SIDE_WEAKENED 32
struct rp_side_end {
	struct rp_deferred deferred;
	uint32_t qp_num;
	struct rp_slot *hello; /* slot of HELLO, then of DOORBELL */
	unsigned int tx_free;  /* bit i: tx[i] is free */
	/* Remote address of the peer's ring; 0: no ring. */
	uint64_t ring_addr;
	uint32_t ring_rkey;
	struct rp_ring ring;
	uint32_t ring_lkey; /* of ring_out, for writes on q itself */
	uint8_t ring_out[RP_RING_LEN];
	/* The ring that the peer writes replies to, if has_reply_ring. */
	uint8_t ring_in[RP_RING_LEN];
	bool has_reply_ring;
	/* Keys of weakened regions; if full, all regions count as weakened. */
	uint64_t weakened[RP_SIDE_WEAKENED];
	unsigned int nweakened;
	uint8_t rx[RP_SIDE_RECVS][RP_SIDE_RECV_LEN];
	uint8_t tx[RP_SIDE_SENDS][RP_SIDE_SEND_LEN];
};

struct rpmem_cq {
	struct ibv_cq *base;
	const struct rp_qp_ops *ops;
	pthread_mutex_t lock; /* guards all members and the side connections */
	size_t nslots;
	struct rp_slot *slots, *free;
	bool has_dead_slots;
	LIST_HEAD(, rp_qp) qps;
	unsigned int nsides;	 /* queue pairs with side connections */
	size_t stores;		 /* atomic writes sent or queued to agents */
	LIST_HEAD(, rp_qp) busy; /* queue pairs with deferred completions */
	LIST_HEAD(, rp_deferred_wc) pool;
	size_t npool;
	bool has_early_wc; /* early_wc is a completion not yet reported */
	struct ibv_wc early_wc;
};

struct rp_qp {
	struct rpmem_qp pub;
	const struct rp_qp_ops *ops;
	struct rpmem_cq *cq;
	unsigned int native; /* native FLUSH of the device: RP_DESC_* */
	unsigned int access; /* FLUSH bits of the program's access flags */
	bool sig_all;
	bool has_write_builder; /* builders include RDMA WRITE */
	atomic_bool lost;	/* a completion error ended the connection */
	bool posts_when_lost;	/* post even if lost, as a device does */
	LIST_ENTRY(rp_qp) link;
	/* Recursive; held from start to complete; guards remotes. */
	pthread_mutex_t lock;
	struct rp_peer_region *remotes; /* peer's regions by rkey */
	bool has_read_fences; /* READs replaced flushes: fence atomic writes */
	bool uses_agent;      /* the agent has requests: send it stores, too */
	struct rp_side_end *side; /* NULL: not connected */
	struct rp_pd *dom;	  /* its agent serves the peer; or NULL */
	struct rp_pd *watched_by; /* fails q, see rp_pd_facts(); or NULL */
	LIST_ENTRY(rp_qp) watch_link;
	uint64_t since; /* last weakening in the facts that the peer got */
	int fail_err;	/* of the last ops->fail() after a weakening */
	bool is_busy;	/* in cq->busy */
	LIST_ENTRY(rp_qp) busy;
	/* Calls since rpmem_wr_start(): first error; slots, oldest first. */
	int err;
	struct rp_slot **batch;
	size_t nbatch, batch_room;
	void *post_data; /* private data of ops: struct rp_post */
};

/* Make a completion queue with this many slots. NULL: no memory. */
struct rpmem_cq *rp_cq_new(struct ibv_cq *base, const struct rp_qp_ops *ops,
			   size_t slots);
/*
 * Get a slot. request: to send after the work request has completed; NULL:
 * none. key: of a region flushed without the agent; or 0. NULL: no free slot,
 * or no memory. A slot that is not posted goes back by rp_defer_unpost().
 */
struct rp_slot *rp_slot_new(struct rp_qp *q,
			    const struct rp_deferred_op *request, uint64_t key);
/* With cq->lock: take a free slot, without request; NULL: none. */
struct rp_slot *rp_slot_alloc(struct rpmem_cq *cq, struct rp_qp *q);
void rp_slot_free(struct rpmem_cq *cq, struct rp_slot *s);
struct rp_slot *rp_slot_of(const struct rpmem_cq *cq, uint64_t wr_id);
/*
 * A detached queue pair was destroyed or reset, which drops work requests: free
 * their slots once the completion queue, which may have completions, is empty.
 */
void rp_cq_drop_slots(struct rpmem_cq *cq, uint32_t qp_num);
/* Set q->lost after a completion error of this queue pair. */
void rp_cq_mark_lost(struct rpmem_cq *cq, uint32_t qp_num);
/* Convert an internal completion to the program's. False: do not report it. */
bool rp_slot_convert_wc(struct rp_slot *s, struct ibv_wc *wc);

/*
 * Begin to send requests of q over the side queue pair qp_num. 0, or a positive
 * errno: ENOSPC: the completion queue is too short.
 */
int rp_defer_begin(struct rp_qp *q, struct rp_side_end *side_end,
		   uint64_t initiator, uint32_t qp_num, uint64_t timeout);
/* With cq->lock: end the side connection, drop its deferred completions. */
void rp_defer_end(struct rp_qp *q);
int rp_defer_poll(struct rpmem_cq *cq, int n, struct ibv_wc *wc);
/*
 * Has the agent missed a deadline? Then the side connection is closed. While a
 * completion waits for the program, no deadline counts as missed.
 */
bool rp_defer_expire(struct rp_qp *q);
/* Is there a completion for the program? It is kept in cq->early_wc. */
bool rp_cq_has_completion(struct rpmem_cq *cq);
/* The status of a flush without a request: its region may have weakened. */
enum ibv_wc_status rp_defer_status(const struct rp_qp *q, uint64_t key);
/* Allocate until n deferred completions are free. False: no memory. */
bool rp_defer_reserve(struct rpmem_cq *cq, size_t n);
/* Take a reserved deferred completion; put it back. */
struct rp_deferred_wc *rp_defer_get(struct rpmem_cq *cq);
void rp_defer_put(struct rpmem_cq *cq, struct rp_deferred_wc *h);
/*
 * Pipeline a request through the peer's ring. The caller posts *w with the
 * returned slot. NULL: send the request over the side connection.
 */
struct rp_slot *rp_defer_pipeline(struct rp_qp *q,
				  const struct rp_deferred_op *item,
				  struct rp_ring_write *w);
/* Free a slot that was not posted; of several slots the newest first. */
void rp_defer_unpost(struct rp_qp *q, struct rp_slot *s);

/* Initialize q, except native, access and sig_all. */
void rp_qp_init(struct rp_qp *q, struct ibv_qp *qp, struct rpmem_cq *cq,
		const struct rp_qp_ops *ops);
void rp_qp_fini(struct rp_qp *q);
int rp_qp_add_region(struct rp_qp *q, const void *desc,
		     const struct rp_remote_cfg *cfg);
/* Get the properties of a region that was added. 0 or ENOKEY. */
int rp_qp_region(struct rp_qp *q, uint32_t rkey, struct rpmem_region *region);
bool rp_qp_has_region(const struct rp_qp *q, uint32_t rkey);

static inline struct rp_qp *rp_qp_of(struct rpmem_qp *qp)
{
	return (struct rp_qp *)qp; /* first member */
}

/* Make room for entry n of an array that may move. NULL: no memory. */
void *rp_array_grow(void *array, size_t n, size_t *room, size_t size);

/* --- the real machine --- */

/* Post by the builders of ibv_qp_ex, or by ibv_post_send(). */
extern const struct rp_qp_ops rp_qp_ops_ex, rp_qp_ops_send;

/* Which native FLUSH types do device and library have? RP_DESC_*. */
unsigned int rp_device_native(struct ibv_pd *pd);
unsigned int rp_desc_from_access(unsigned int access);
/* rpmem_reg_mr() with iova, the remote address of the first byte. */
struct rpmem_mr *rp_mr_new(struct ibv_pd *pd, void *addr, size_t length,
			   uint64_t iova, unsigned int access);
/* Read the operator's parameters from the environment. */
void rp_shim_cfg(struct rp_remote_cfg *cfg);
uint64_t rp_shim_timeout(void);
uint64_t rp_shim_spin(void);

#endif
