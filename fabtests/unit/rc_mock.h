/* SPDX-License-Identifier: BSD-2-Clause */
/* A reliable connection and its target's memory, in this process. */
#ifndef RP_RC_MOCK_H
#define RP_RC_MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "side_host.h"
#include "verbs/shim.h"

/*
 * Where a byte of the target is: in the adapter, from where a read or a flush
 * behind it, or chance, drives it into the caches; in the caches, visible,
 * from where a flush, or chance, writes its line back; on the medium. A power
 * cut leaves what the machine's persistence domain holds.
 */
#define MOCK_BYTES     1024u
#define MOCK_LINE      64u
#define MOCK_AT	       0x10000u
#define MOCK_RKEY      7u
#define MOCK_QPN       0x11u /* the initiator's */
#define MOCK_PEER      0x22u
#define MOCK_QUEUE     64
#define MOCK_SIDE      0x33u /* the initiator's that asks */
#define MOCK_RING      0x70000u
#define MOCK_RING_RKEY 8u

enum mock_op {
	MOCK_READ,
	MOCK_WRITE,
	MOCK_FLUSH,
	MOCK_ATOMIC_WRITE
};
struct mock_wr {
	enum mock_op op;
	uint64_t wr_id;
	unsigned int flags;
	uint32_t rkey;
	uint64_t addr;
	size_t len;
	uint8_t type, level;
	uint64_t value;
	const uint8_t *buf; /* of a write by the shim */
};
/*
 * The target's agent, which is the real one, and the side connection to it.
 * What it flushes is on the medium when it has drained.
 */
struct mock_msg {
	uint64_t wr_id;
	size_t len;
	uint8_t bytes[RP_SIDE_BUF];
};
struct mock_side {
	struct side_host host;
	struct rp_region region;
	struct rp_pmem_ops pmem;
	struct rp_side_end side_end;
	uint64_t now;
	bool flushed[MOCK_BYTES / MOCK_LINE]; /* and not drained */
	struct mock_msg out[MOCK_QUEUE], in[MOCK_QUEUE];
	size_t nout, nin;
	struct {
		uint64_t wr_id;
		void *msg;
	} listens[MOCK_QUEUE];
	size_t nlistens;
	/* Into which requests may be written, if the test wants one. */
	bool has_ring;
	uint8_t ring_in[RP_RING_LEN];
	struct rp_ring ring;
	bool asleep;	    /* the agent does not look there */
	unsigned int looks; /* notes that had it look, once */
	/* What goes wrong. */
	bool error;	     /* of the side connection */
	bool idle;	     /* the agent flushes nothing */
	unsigned int answer; /* drop this many messages of the agent */
	int ask_err;
};

struct mock {
	struct rp_qp q; /* first: ops are given this */
	struct ibv_qp qp;
	struct ibv_cq base;
	struct ibv_rpmem_cq *cq;
	struct rp_end end;
	bool kept;	     /* the caches survive: eADR */
	bool cpu;	     /* a CPU copies: nothing stays in the adapter */
	unsigned int access; /* of region and queue pair: RP_DESC_* */

	uint8_t visible[MOCK_BYTES] __attribute__((aligned(MOCK_LINE)));
	uint8_t medium[MOCK_BYTES];
	bool dirty[MOCK_BYTES / MOCK_LINE];
	/* In the adapter, oldest first. */
	struct mock_wr held[MOCK_QUEUE];
	size_t nheld;

	/* Posted, executed from the front; and the completions. */
	struct mock_wr batch[MOCK_QUEUE], queue[MOCK_QUEUE];
	size_t nbatch, nqueue;
	struct ibv_wc done[2 * MOCK_QUEUE];
	size_t ndone;
	bool error; /* of both queue pairs */

	/* What goes wrong. */
	int complete_err;
	size_t complete_posted;
	enum ibv_wc_status next; /* the next to be executed is not */
	bool drop_ack;		 /* the next is, and nobody learns of it */
	bool lax;		 /* the device checks no range */
	bool hollow_reads;	 /* they drive nothing out of the adapter */
	unsigned int fails;	 /* calls of fail */

	struct mock_side side;
};

void mock_init(struct mock *m);
/* The same with a completion queue of so many entries. */
void mock_init_cq(struct mock *m, int entries);
void mock_fini(struct mock *m);
/* What its target would say of the region. */
struct rp_desc mock_desc(const struct mock *m);
/* Make it known to the shim, which can post native (RP_DESC_*). */
int mock_add(struct mock *m, const struct rp_desc *d, unsigned int native);

/* The program's own post: len bytes of value at offset off. */
void mock_write(struct mock *m, uint64_t wr_id, size_t off, size_t len,
		uint8_t value);
/* Execute the oldest request. False: there is none. */
bool mock_step(struct mock *m);
void mock_run(struct mock *m);
/* Drive the oldest write out of the adapter, or write a line back. */
void mock_drain(struct mock *m);
void mock_evict(struct mock *m, size_t line);
/*
 * Give the target an agent and connect to it, before mock_add(). What its
 * registration is known by is then in mock_desc().
 */
void mock_side_init(struct mock *m);
void mock_side_fini(struct mock *m);
/* The agent looks into its ring no more, or from now on, and says so. */
void mock_side_sleep(struct mock *m);
void mock_side_wake(struct mock *m);
/* Register the region anew: the key of mock_desc() is another. */
void mock_side_again(struct mock *m);
/* Move one message, either way, or let the agent work. False: there is none. */
bool mock_side_step(struct mock *m);
void mock_side_run(struct mock *m);

/* What a power cut now would leave. */
void mock_cut(const struct mock *m, uint8_t left[MOCK_BYTES]);

#endif
