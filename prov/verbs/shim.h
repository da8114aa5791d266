/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the verbs shim share. */
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
#include "core/remote.h"

#define RP_PUBLIC __attribute__((visibility("default")))

#define RP_SHIM_FLUSHES                                                        \
	(IBV_RPMEM_ACCESS_FLUSH_GLOBAL | IBV_RPMEM_ACCESS_FLUSH_PERSISTENT)

/* A region of the peer that was added. */
struct rp_known {
	struct rp_remote r;
	bool checked; /* the queue pair is the one that it names */
	UT_hash_handle hh;
};

/* --- operations of a queue pair; a model of one can stand in for it --- */

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
	/* The local side of reads is the queue pair's scratch. */
	void (*read)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t len);
	void (*flush)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		      uint8_t level);
	void (*atomic_write)(struct rp_qp *q, uint64_t wr_id,
			     unsigned int flags, uint32_t rkey, uint64_t addr,
			     const void *value);
	/*
	 * 0, or a positive errno. *posted: how many of those since start were
	 * posted all the same.
	 */
	int (*complete)(struct rp_qp *q, size_t *posted);
	void (*abort)(struct rp_qp *q);
	int (*look)(struct rp_qp *q, struct rp_end *end);
	int (*fail)(struct rp_qp *q); /* to the error state */
	/*
	 * Over the side queue pair: send, from q->side->tx, or receive into
	 * q->side->rx. Both complete on the same queue as the other one. 0 or
	 * a positive errno.
	 */
	int (*ask)(struct rp_qp *q, uint64_t wr_id, const void *msg,
		   size_t len);
	void (*write)(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, uint32_t lkey,
		      const void *buf, uint32_t len);
	int (*listen)(struct rp_qp *q, uint64_t wr_id, void *msg);
	uint64_t (*now)(const struct rp_qp *q); /* monotonic, ns */
	int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
};

/*
 * Work requests of ours have the address of one of these as their wr_id: no
 * pointer of the program's is the same. There are as many as the completion
 * queue has entries, so that it never overflows for our sake.
 */
struct rp_slot {
	struct rp_qp *q; /* NULL: detached meanwhile */
	enum {
		RP_SLOT_READ, /* that stands for a flush or an atomic write */
		RP_SLOT_RING, /* a write into the ring, that does */
		RP_SLOT_SEND, /* a message over the side queue pair */
		RP_SLOT_RECV,
	} kind;
	uint32_t qp_num;  /* where it completes */
	unsigned int buf; /* SEND, RECV: which of the side's */
	bool kept;	  /* SEND: kept by the side for the DOORBELL */
	uint64_t wr_id;	  /* READ: the program's */
	int opcode;
	bool signaled;
	enum ibv_wc_status doomed; /* SUCCESS: it is not */
	/* A write and its flush, which is shown for both. */
	struct rp_slot *flush, *write;
	enum ibv_wc_status failed; /* that one did, so */
	struct rp_held *held;	   /* READ, RING: its request; NULL: none */
	struct rp_slot *next;	   /* free */
};

/* A completion that the program is shown later. */
struct rp_held {
	struct rp_deferred_op item; /* first: core gives us this */
	struct ibv_wc wc;
	bool show;
	struct rp_slot *slot;	  /* to send it with; NULL: has been sent */
	LIST_ENTRY(rp_held) link; /* free */
};

/* The initiator's end of a side connection. */
#define RP_SIDE_RECVS 8
#define RP_SIDE_SENDS 16
#define RP_SIDE_BUF   128
struct rp_side_end {
	struct rp_deferred deferred;
	uint32_t qp_num;
	struct rp_slot *hello; /* with a ring kept, for the DOORBELL */
	unsigned int tx_free;  /* a bit for each */
	/* The ring of the other end; 0: it has none. */
	uint64_t ring_addr;
	uint32_t ring_rkey;
	struct rp_ring ring;
	uint32_t ring_lkey; /* of ring_out, for the queue pair itself */
	uint8_t ring_out[RP_RING_LEN];
	/* The ring of replies, if the other end knows of it. */
	uint8_t ring_in[RP_RING_LEN];
	bool replies;
	uint8_t rx[RP_SIDE_RECVS][RP_SIDE_BUF];
	uint8_t tx[RP_SIDE_SENDS][RP_SIDE_BUF];
};

struct ibv_rpmem_cq {
	struct ibv_cq *base;
	const struct rp_qp_ops *ops;
	pthread_mutex_t lock; /* of all of this, and of sides */
	size_t nslots;
	struct rp_slot *slots, *free;
	LIST_HEAD(, rp_qp) qps;
	unsigned int nsides;	 /* queue pairs with a side connection */
	size_t stores;		 /* requested, or to be */
	LIST_HEAD(, rp_qp) busy; /* with deferred completions */
	LIST_HEAD(, rp_held) pool;
	size_t npool;
};

struct rp_qp {
	struct ibv_rpmem_qp pub;
	const struct rp_qp_ops *ops;
	struct ibv_rpmem_cq *cq;
	unsigned int native; /* RP_DESC_* that can be posted */
	unsigned int access; /* FLUSH bits that the program grants */
	bool sig_all;
	bool writes;	  /* can be posted: the program has them */
	atomic_bool lost; /* an error was seen: the connection is over */
	bool as_device;	  /* then it posts all the same, and the device errs */
	LIST_ENTRY(rp_qp) link;
	pthread_mutex_t lock; /* from start to complete, and of the regions */
	struct rp_known *remotes; /* by rkey */
	bool reads;    /* one stood for a flush: atomic writes stay behind it */
	bool by_agent; /* it may be at work: atomic writes follow it */
	struct rp_side_end *side; /* NULL: no side connection */
	struct rp_dom *dom; /* whose agent gets the peer's requests, or NULL */
	bool is_busy;
	LIST_ENTRY(rp_qp) busy;
	/* Of the batch: the first error, and its slots, oldest first. */
	int err;
	struct rp_slot **batch;
	size_t nbatch, batch_room;
	void *mine; /* of ops */
};

/* slots: flushes at once. NULL: no memory. */
struct ibv_rpmem_cq *rp_cq_new(struct ibv_cq *base, const struct rp_qp_ops *ops,
			       size_t slots);
/*
 * request: is made when the work request has completed; NULL: none. NULL: no
 * slot is left, or no memory. A slot that is not posted goes back by
 * rp_defer_back().
 */
struct rp_slot *rp_slot_get(struct rp_qp *q,
			    const struct rp_deferred_op *request);
/* The same under its lock. */
struct rp_slot *rp_slot_take(struct ibv_rpmem_cq *cq, struct rp_qp *q);
void rp_slot_give(struct ibv_rpmem_cq *cq, struct rp_slot *s);
struct rp_slot *rp_slot_of(const struct ibv_rpmem_cq *cq, uint64_t wr_id);
/* An error was seen on it: no more is posted. */
void rp_cq_lose(struct ibv_rpmem_cq *cq, uint32_t qp_num);
/* A read of ours, as what it stands for. False: it is not shown. */
bool rp_slot_done(struct rp_slot *s, struct ibv_wc *wc);

/*
 * Send requests of q over its side queue pair, which has this number.
 * 0, or a positive errno: ENOSPC when the completion queue is too short.
 */
int rp_defer_begin(struct rp_qp *q, struct rp_side_end *side_end,
		   uint64_t initiator, uint32_t qp_num, uint64_t timeout);
/*
 * Called with cq->lock held after the side queue pair is destroyed: drop
 * deferred completions.
 */
void rp_defer_end(struct rp_qp *q);
int rp_defer_poll(struct ibv_rpmem_cq *cq, int n, struct ibv_wc *wc);
/* Has the agent been silent for too long? Then it has been lost. */
bool rp_defer_overdue(struct rp_qp *q);
/* Enough of them for n completions. False: no memory. */
bool rp_defer_reserve(struct ibv_rpmem_cq *cq, size_t n);
/* One of those reserved; and back. */
struct rp_held *rp_defer_get(struct ibv_rpmem_cq *cq);
void rp_defer_put(struct ibv_rpmem_cq *cq, struct rp_held *h);
/*
 * Pipeline a flush of the batch: its slot, and *w is to be posted; or NULL: it
 * has to be requested as usual.
 */
struct rp_slot *rp_defer_pipeline(struct rp_qp *q,
				  const struct rp_deferred_op *item,
				  struct rp_ring_write *w);
/* That slot, or any, was not posted after all; the last one first. */
void rp_defer_back(struct rp_qp *q, struct rp_slot *s);

/* native, access and sig_all are the caller's. 0 or -errno. */
int rp_qp_init(struct rp_qp *q, struct ibv_qp *qp, struct ibv_rpmem_cq *cq,
	       const struct rp_qp_ops *ops);
void rp_qp_fini(struct rp_qp *q);
int rp_qp_add(struct rp_qp *q, const void *desc,
	      const struct rp_remote_cfg *cfg);
/* From start to complete, under the lock: add, and what is known of them. */
int rp_qp_learn(struct rp_qp *q, const void *desc,
		const struct rp_remote_cfg *cfg);
bool rp_qp_knows(const struct rp_qp *q, uint32_t rkey);
/* False: it was not known. */
bool rp_qp_forget(struct rp_qp *q, uint32_t rkey);

static inline struct rp_qp *rp_qp_of(struct ibv_rpmem_qp *qp)
{
	return (struct rp_qp *)qp; /* its first member */
}

/* --- this machine --- */

/* Over ibv_qp_ex where ex is not NULL, else over ibv_post_send(). */
extern const struct rp_qp_ops rp_qp_ops_ex, rp_qp_ops_send;

/* RP_DESC_NATIVE: what the device, and the library in use, do by themselves. */
unsigned int rp_device_native(struct ibv_pd *pd);
/* Does the library in use, with this device's part, know these calls? */
bool rp_device_makes(struct ibv_pd *pd, uint64_t send_ops);
unsigned int rp_desc_bits(unsigned int access);
/* As ibv_rpmem_reg_mr(), where the peer's names begin elsewhere. */
struct ibv_rpmem_mr *rp_mr_new(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, unsigned int access);
/* The operator's, from the environment. */
void rp_shim_cfg(struct rp_remote_cfg *cfg);
uint64_t rp_shim_timeout(void); /* ns */
uint64_t rp_shim_spin(void);	/* ns */

#endif
