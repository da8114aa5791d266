/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the verbs shim. */
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

/* A region that the peer has shared. */
struct rp_known {
	struct rp_remote r;
	bool checked; /* the queue pair is the descriptor's */
	UT_hash_handle hh;
};

/* --- operations of a queue pair, which a model can replace --- */

struct rp_qp;
struct rp_dom;

struct rp_end {
	enum ibv_qp_state state;
	uint32_t dest_qp_num;
	unsigned int max_rd_atomic, max_dest_rd_atomic;
	unsigned int access; /* IBV_ACCESS_* and FLUSH bits */
};
struct rp_qp_ops {
	void (*start)(struct rp_qp *q);
	/* Reads go to the queue pair's scratch memory. */
	void (*read)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t len);
	void (*flush)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		      uint8_t level);
	void (*atomic_write)(struct rp_qp *q, uint64_t wr_id,
			     unsigned int flags, uint32_t rkey, uint64_t addr,
			     const void *value);
	/*
	 * 0, or a positive errno. *posted: how many since start were posted
	 * even so.
	 */
	int (*complete)(struct rp_qp *q, size_t *posted);
	void (*abort)(struct rp_qp *q);
	int (*look)(struct rp_qp *q, struct rp_end *end);
	int (*fail)(struct rp_qp *q); /* move to the error state */
	/*
	 * On the side queue pair: send from q->side->tx, or receive into
	 * q->side->rx. Both complete in the queue pair's completion queue. 0 or
	 * a positive errno.
	 */
	int (*side_send)(struct rp_qp *q, uint64_t wr_id, const void *msg,
			 size_t len);
	void (*write)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, uint32_t lkey,
		      const void *buf, uint32_t len);
	int (*listen)(struct rp_qp *q, uint64_t wr_id, void *msg);
	uint64_t (*now)(const struct rp_qp *q); /* monotonic, ns */
	int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
};

/*
 * The wr_id of an internal work request is the address of its slot: no pointer
 * of the program is the same. There are as many slots as the completion queue
 * has entries, so it never overflows because of the shim.
 */
struct rp_slot {
	struct rp_qp *q; /* NULL: detached meanwhile */
	enum {
		RP_SLOT_READ, /* replaces a flush or an atomic write */
		RP_SLOT_RING, /* a write into the ring, for a flush */
		RP_SLOT_SEND, /* a message over the side connection */
		RP_SLOT_RECV,
	} kind;
	uint32_t qp_num;  /* of the queue pair where it completes */
	unsigned int buf; /* SEND, RECV: index of the buffer */
	bool kept;	  /* SEND: kept for a later DOORBELL */
	uint64_t wr_id;	  /* READ: the program's wr_id */
	uint64_t key;	  /* of a region flushed without the agent; or 0 */
	int opcode;
	bool signaled;
	enum ibv_wc_status doomed; /* status to report; SUCCESS: not doomed */
	/* A write and its flush, which reports both. */
	struct rp_slot *flush, *write;
	enum ibv_wc_status failed; /* status of the failed write */
	struct rp_deferred_wc
		*deferred;    /* READ, RING: its request; NULL: none */
	struct rp_slot *next; /* free */
};

/* A completion to report to the program later. */
struct rp_deferred_wc {
	struct rp_deferred_op item; /* first, so that core's pointer finds it */
	struct ibv_wc wc;
	bool show;
	struct rp_slot *slot;		 /* for the SEND; NULL: sent */
	LIST_ENTRY(rp_deferred_wc) link; /* free */
};

/* The initiator side of a side connection. */
#define RP_SIDE_RECVS 8
#define RP_SIDE_SENDS 16
#define RP_SIDE_BUF   128
#define RP_SIDE_RECV  384 /* INFO is the longest */
#define RP_SIDE_KEYS  32
struct rp_side_end {
	struct rp_deferred deferred;
	uint32_t qp_num;
	struct rp_slot *hello; /* with a ring: kept for the DOORBELL */
	unsigned int tx_free;  /* a bit per buffer */
	/* The peer's ring; 0: it has none. */
	uint64_t ring_addr;
	uint32_t ring_rkey;
	struct rp_ring ring;
	uint32_t ring_lkey; /* of ring_out, for the queue pair itself */
	uint8_t ring_out[RP_RING_LEN];
	/* The ring of replies, if the peer writes it. */
	uint8_t ring_in[RP_RING_LEN];
	bool replies;
	/* Regions that have weakened; RP_SIDE_KEYS of them stand for all. */
	uint64_t weakened[RP_SIDE_KEYS];
	unsigned int nweakened;
	uint8_t rx[RP_SIDE_RECVS][RP_SIDE_RECV];
	uint8_t tx[RP_SIDE_SENDS][RP_SIDE_BUF];
};

struct rpmem_cq {
	struct ibv_cq *base;
	const struct rp_qp_ops *ops;
	pthread_mutex_t lock; /* for all of this, and for sides */
	size_t nslots;
	struct rp_slot *slots, *free;
	LIST_HEAD(, rp_qp) qps;
	unsigned int nsides;	 /* queue pairs with a side connection */
	size_t stores;		 /* outstanding or queued */
	LIST_HEAD(, rp_qp) busy; /* with deferred completions */
	LIST_HEAD(, rp_deferred_wc) pool;
	size_t npool;
};

struct rp_qp {
	struct rpmem_qp pub;
	const struct rp_qp_ops *ops;
	struct rpmem_cq *cq;
	unsigned int native; /* RDMA flushes of the device, RP_DESC_* */
	unsigned int access; /* FLUSH bits granted by the program */
	bool sig_all;
	bool writes;	  /* the program's builders have writes */
	atomic_bool lost; /* an error was seen: the connection has ended */
	bool as_device;	  /* post even then, as a device does */
	LIST_ENTRY(rp_qp) link;
	pthread_mutex_t lock; /* from start to complete, and for the regions */
	struct rp_known *remotes; /* by rkey */
	bool reads;    /* replaced a flush: atomic writes wait for it */
	bool by_agent; /* has outstanding requests: so atomic writes are */
	struct rp_side_end *side; /* NULL: no side connection */
	struct rp_dom *dom; /* its agent gets the peer's requests; or NULL */
	bool is_busy;
	LIST_ENTRY(rp_qp) busy;
	/* The batch: its first error, and its slots, oldest first. */
	int err;
	struct rp_slot **batch;
	size_t nbatch, batch_room;
	void *mine; /* data of ops */
};

/* slots: most outstanding flushes. NULL: no memory. */
struct rpmem_cq *rp_cq_new(struct ibv_cq *base, const struct rp_qp_ops *ops,
			   size_t slots);
/*
 * request: queued when the work request has completed; NULL: none. key: of the
 * region if this flushes it, without its agent; or 0. NULL: no free slot, or no
 * memory. A slot that is not posted is returned by
 * rp_defer_back().
 */
struct rp_slot *rp_slot_get(struct rp_qp *q,
			    const struct rp_deferred_op *request, uint64_t key);
/* The same with the lock held. */
struct rp_slot *rp_slot_take(struct rpmem_cq *cq, struct rp_qp *q);
void rp_slot_give(struct rpmem_cq *cq, struct rp_slot *s);
struct rp_slot *rp_slot_of(const struct rpmem_cq *cq, uint64_t wr_id);
/* An error was seen on this queue pair: post no more. */
void rp_cq_lose(struct rpmem_cq *cq, uint32_t qp_num);
/* Turn an internal completion into the program's. False: do not report it. */
bool rp_slot_done(struct rp_slot *s, struct ibv_wc *wc);

/*
 * Send requests of q over its side queue pair, of this number. 0, or a positive
 * errno: ENOSPC if the completion queue is too short.
 */
int rp_defer_begin(struct rp_qp *q, struct rp_side_end *side_end,
		   uint64_t initiator, uint32_t qp_num, uint64_t timeout);
/*
 * Called with cq->lock held after the side queue pair is destroyed: drop
 * deferred completions.
 */
void rp_defer_end(struct rp_qp *q);
int rp_defer_poll(struct rpmem_cq *cq, int n, struct ibv_wc *wc);
/* Was the agent silent for too long? True also closes. */
bool rp_defer_overdue(struct rp_qp *q);
/* Has the region of this key weakened since the queue pair was connected? */
bool rp_defer_weakened(const struct rp_qp *q, uint64_t key);
/* Reserve n deferred completions. False: no memory. */
bool rp_defer_reserve(struct rpmem_cq *cq, size_t n);
/* Take a reserved one; put it back. */
struct rp_deferred_wc *rp_defer_get(struct rpmem_cq *cq);
void rp_defer_put(struct rpmem_cq *cq, struct rp_deferred_wc *h);
/*
 * Pipeline a flush of the batch: its slot, and *w must be posted; or NULL:
 * request it over the side connection.
 */
struct rp_slot *rp_defer_pipeline(struct rp_qp *q,
				  const struct rp_deferred_op *item,
				  struct rp_ring_write *w);
/* The slot was not posted after all; the last one first. */
void rp_defer_back(struct rp_qp *q, struct rp_slot *s);

/* native, access and sig_all are the caller's. 0 or -errno. */
int rp_qp_init(struct rp_qp *q, struct ibv_qp *qp, struct rpmem_cq *cq,
	       const struct rp_qp_ops *ops);
void rp_qp_fini(struct rp_qp *q);
int rp_qp_add(struct rp_qp *q, const void *desc,
	      const struct rp_remote_cfg *cfg);
/* From start to complete, under the lock: add a region, and its facts. */
int rp_qp_learn(struct rp_qp *q, const void *desc,
		const struct rp_remote_cfg *cfg);
/* Describe a region that was added. 0 or ENOKEY. */
int rp_qp_region(struct rp_qp *q, uint32_t rkey, struct rpmem_region *region);
bool rp_qp_knows(const struct rp_qp *q, uint32_t rkey);
/* False: no such region. */
bool rp_qp_forget(struct rp_qp *q, uint32_t rkey);

static inline struct rp_qp *rp_qp_of(struct rpmem_qp *qp)
{
	return (struct rp_qp *)qp; /* pub is the first member */
}

/* --- the real machine --- */

/* By ibv_qp_ex if ex is not NULL, else by ibv_post_send(). */
extern const struct rp_qp_ops rp_qp_ops_ex, rp_qp_ops_send;

/* RP_DESC_NATIVE: the flushes of the device and the library in use. */
unsigned int rp_device_native(struct ibv_pd *pd);
unsigned int rp_desc_bits(unsigned int access);
/* As rpmem_reg_mr(), with the remote address of the first byte. */
struct rpmem_mr *rp_mr_new(struct ibv_pd *pd, void *addr, size_t length,
			   uint64_t iova, unsigned int access);
/* The operator's settings, from the environment. */
void rp_shim_cfg(struct rp_remote_cfg *cfg);
uint64_t rp_shim_timeout(void); /* ns */
uint64_t rp_shim_spin(void);	/* ns */

#endif
