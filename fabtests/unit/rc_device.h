/* SPDX-License-Identifier: BSD-2-Clause */
/* A device with verbs, in this process: all of libibverbs that the shim calls.
 */
#ifndef RP_RC_DEVICE_H
#define RP_RC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verbs/target.h"

/*
 * Queue pairs that are connected move bytes when something is posted, unless
 * they are held. What arrives in pmem is in a line that is dirty until the
 * device flushes it, or the agent does and drains: then it is on the medium.
 * The facts of all memory are the test's, and volatile is all but pmem.
 */
#define DEV_BYTES 8192u
#define DEV_LINE  64u
#define DEV_MAX	  128
#define DEV_LOG	  1024

#define DEV_GLOBAL	 (1ull << 38)
#define DEV_PERSISTENT	 (1ull << 39)
#define DEV_ATOMIC_WRITE (1ull << 40)

/* What was executed, in order. */
struct dev_op {
	uint32_t qp_num;
	enum ibv_wc_opcode opcode; /* FLUSH and ATOMIC_WRITE too */
	uint64_t addr, len;
	unsigned int flags;
};

struct dev {
	/* What the device, and the library in use, can do. */
	uint64_t caps;
	unsigned int makes; /* send_ops_flags of which queue pairs are made */
	int max_rd_atomic;
	struct rp_facts facts;
	uint8_t pmem[DEV_BYTES] __attribute__((aligned(4096)));
	uint8_t medium[DEV_BYTES];
	bool dirty[DEV_BYTES / DEV_LINE], flushed[DEV_BYTES / DEV_LINE];
	struct dev_op done[DEV_LOG];
	unsigned int ndone;
	int open;		 /* objects */
	unsigned int reg_access; /* of the last registration */

	/* What goes wrong. */
	bool hold;	  /* nothing of it is executed */
	uint32_t fail_qp; /* its next request has this end */
	enum ibv_wc_status fail;
	bool drop_ack;	    /* ... but was executed */
	uint32_t deaf_qp;   /* what is sent there is lost, and well */
	uint32_t late_qp;   /* its requests end, and its queue hears it late */
	int take, take_err; /* of the next post: so many, then this errno */
	int no_dereg;	    /* ibv_dereg_mr() of pmem says this */
	int fail_make;	    /* make of this many objects from now fails */
	bool idle_agent;    /* its flushes do nothing */
	unsigned int drains;
	unsigned int notifies; /* how often a queue was told to tell */
	void (*at_notify)(void);
};
extern struct dev dev;

/* Everything anew; and back, with nothing open. */
void dev_start(void);
void dev_end(void);
struct ibv_pd *dev_pd(void);
/* Made, and on the way to RTS, connected to that number. */
struct ibv_qp *dev_qp(struct ibv_cq *cq, unsigned int send_ops);
void dev_join(struct ibv_qp *qp, uint32_t peer, unsigned int access);
/* As the program's own post: len bytes of value to pmem at off. */
int dev_write(struct ibv_qp *qp, uint64_t wr_id, uint32_t rkey, size_t off,
	      size_t len, uint8_t value);
/* Of a queue pair that the shim made. */
struct ibv_qp *dev_numbered(uint32_t number);
/* What was held. */
void dev_run(void);
bool dev_durable(size_t off, size_t len, uint8_t value);
/* How many of this opcode were executed. */
unsigned int dev_count(enum ibv_wc_opcode opcode);
/* Once, before a queue is told to tell of what comes next. */
void dev_at_notify(void (*first)(void));
/* As if sent to this queue pair by its peer. False: nobody listens there. */
bool dev_say(uint32_t qp_num, const void *msg, size_t len);

#endif
