/* SPDX-License-Identifier: BSD-2-Clause */
/* A simulated verbs device: all libibverbs calls that the shim makes. */
#ifndef RP_RC_DEVICE_H
#define RP_RC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verbs/target.h"

/*
 * A connected queue pair executes each request when it is posted, unless
 * dev.hold is set. Bytes that are placed in pmem make their line dirty. The
 * line is on the medium after a FLUSH by the device, or after a flush and a
 * drain by the agent. dev.facts are the facts of pmem; all other memory is
 * volatile.
 */
#define DEV_BYTES 8192u
#define DEV_LINE  64u
#define DEV_MAX	  128
#define DEV_LOG	  1024

#define DEV_GLOBAL	 (1ull << 38)
#define DEV_PERSISTENT	 (1ull << 39)
#define DEV_ATOMIC_WRITE (1ull << 40)

/* One executed request. */
struct dev_op {
	uint32_t qp_num;
	enum ibv_wc_opcode opcode; /* also of FLUSH, ATOMIC_WRITE */
	uint64_t addr, len;
	unsigned int flags;
};

struct dev {
	/* Capabilities of the device and of the library in use. */
	uint64_t caps;
	unsigned int makes; /* send_ops_flags that queue pairs may have */
	int max_rd_atomic;
	struct rp_facts facts;
	const char *source; /* file that the facts are read from, or NULL */
	uint8_t pmem[DEV_BYTES] __attribute__((aligned(4096)));
	uint8_t medium[DEV_BYTES];
	bool dirty[DEV_BYTES / DEV_LINE], flushed[DEV_BYTES / DEV_LINE];
	struct dev_op done[DEV_LOG];
	unsigned int ndone;
	int open;		 /* number of existing objects */
	unsigned int reg_access; /* access rights of the last registration */

	/* Faults to inject. */
	bool hold;	  /* execute no request */
	uint32_t fail_qp; /* the next request of this QP gets .fail */
	enum ibv_wc_status fail;
	bool drop_ack;	    /* that request is executed, then fails */
	uint32_t deaf_qp;   /* SENDs to this QP succeed and are lost */
	uint32_t late_qp;   /* completions of this QP appear late */
	int take, take_err; /* the next post accepts .take, then fails */
	int dereg_err;	    /* result of ibv_dereg_mr() for pmem */
	uint32_t stuck_qp;  /* moves of this QP to ERR fail */
	int fail_creation;  /* the n-th creation from now fails */
	bool idle_agent;    /* the agent's flushes do nothing */
	unsigned int drains;
	unsigned int notifies; /* calls of req_notify_cq */
	void (*at_notify)(void);
	void (*at_flush)(void); /* called by each flush of the agent */
};
extern struct dev dev;

/* Reset all fields. dev_end() checks that all objects are closed. */
void dev_start(void);
void dev_end(void);
struct ibv_pd *dev_pd(void);
/* Make a queue pair. dev_join() moves it to RTS, with `peer` as dest_qp. */
struct ibv_qp *dev_qp(struct ibv_cq *cq, unsigned int send_ops);
void dev_join(struct ibv_qp *qp, uint32_t peer, unsigned int access);
/* Post the program's own write: len bytes of value to pmem at off. */
int dev_write(struct ibv_qp *qp, uint64_t wr_id, uint32_t rkey, size_t off,
	      size_t len, uint8_t value);
/* Find the queue pair with this number, which the shim has created. */
struct ibv_qp *dev_qp_by_number(uint32_t number);
/* Change dev.facts.domain while the agent's thread may read the facts. */
void dev_set_domain(enum rp_domain domain);
/* Execute all requests that were posted under hold. */
void dev_run(void);
bool dev_durable(size_t off, size_t len, uint8_t value);
/* The number of executed requests with this opcode. */
unsigned int dev_count(enum ibv_wc_opcode opcode);
/* Call `first` once, within the next req_notify_cq(). */
void dev_call_at_notify(void (*first)(void));
/*
 * Deliver a message as if the peer had sent it. Returns false if no receive is
 * posted.
 */
bool dev_deliver_send(uint32_t qp_num, const void *msg, size_t len);

#endif
