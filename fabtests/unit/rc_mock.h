/* SPDX-License-Identifier: BSD-2-Clause */
/* A simulated reliable connection and its target's memory. */
#ifndef RP_RC_MOCK_H
#define RP_RC_MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "side_host.h"
#include "verbs/shim.h"

/*
 * A written byte is in one of three places at the target. In the adapter: a
 * read or a flush behind the write, or chance, moves it to the caches. In the
 * caches, where it is visible: a flush, or chance, writes its line back. On the
 * medium. A power cut leaves the bytes that the power domain covers.
 */
#define MOCK_BYTES     1024u
#define MOCK_LINE      64u
#define MOCK_AT	       0x10000u
#define MOCK_RKEY      7u
#define MOCK_QPN       0x11u /* the initiator's queue pair */
#define MOCK_PEER      0x22u
#define MOCK_QUEUE     64
#define MOCK_SIDE      0x33u /* the initiator's side queue pair */
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
	const uint8_t *buf; /* source bytes of the shim's own write */
};
/*
 * The target's agent (the real code) and the side connection to it. A flushed
 * line is on the medium after a drain.
 */
struct mock_msg {
	uint64_t wr_id;
	size_t len;
	uint8_t bytes[RP_SIDE_RECV_LEN];
};
struct mock_side {
	struct side_host host;
	struct rp_region region;
	struct rp_pmem_ops pmem;
	struct rp_side_end side_end;
	uint64_t now;
	bool flushed[MOCK_BYTES / MOCK_LINE]; /* not drained yet */
	struct mock_msg out[MOCK_QUEUE], in[MOCK_QUEUE];
	size_t nout, nin;
	struct {
		uint64_t wr_id;
		void *msg;
	} recvs[MOCK_QUEUE];
	size_t nrecvs;
	/* The agent's ring for requests of the initiator; optional. */
	bool has_ring;
	uint8_t ring_in[RP_RING_LEN];
	struct rp_ring ring;
	bool ring_idle;		/* the agent does not poll the ring */
	unsigned int doorbells; /* number of received DOORBELLs */
	/* Faults to inject. */
	bool error;		   /* the side connection is broken */
	bool idle;		   /* the agent's flushes have no effect */
	unsigned int drop_replies; /* number of the agent's messages to drop */
	int send_err;
};

struct mock {
	struct rp_qp q; /* first: cast */
	struct ibv_qp qp;
	struct ibv_cq base;
	struct rpmem_cq *cq;
	struct rp_qp_state end;
	bool caches_persist; /* the caches persist: eADR */
	bool cpu; /* a CPU places writes: none stays in the adapter */
	unsigned int access; /* RP_DESC_* of region and queue pair */

	uint8_t visible[MOCK_BYTES] __attribute__((aligned(MOCK_LINE)));
	uint8_t medium[MOCK_BYTES];
	bool dirty[MOCK_BYTES / MOCK_LINE];
	/* Writes in the adapter, oldest first. */
	struct mock_wr adapter[MOCK_QUEUE];
	size_t nadapter;

	/* Posted requests, executed from the front, and their completions. */
	struct mock_wr batch[MOCK_QUEUE], queue[MOCK_QUEUE];
	size_t nbatch, nqueue;
	struct ibv_wc done[2 * MOCK_QUEUE];
	size_t ndone;
	bool error; /* both queue pairs are in ERR */

	/* Faults to inject. */
	int complete_err;
	size_t complete_posted;
	enum ibv_wc_status next; /* error of the next request */
	bool drop_ack; /* the next request is executed but not acknowledged */
	bool checks_no_range;	 /* the device checks no range */
	bool reads_do_not_fence; /* a read does not push writes out of the
				    adapter */
	unsigned int fails;	 /* number of fail() calls */

	struct mock_side side;
};

void mock_init(struct mock *m);
/* Like mock_init(), with a completion queue of this many entries. */
void mock_init_cq(struct mock *m, int entries);
void mock_fini(struct mock *m);
/* Make the region's descriptor, as the target does. */
struct rp_desc mock_desc(const struct mock *m);
/* Add a descriptor; native: FLUSH types that the queue pair can post. */
int mock_add(struct mock *m, const struct rp_desc *d, unsigned int native);

/* Post the program's own write: len bytes of value at offset off. */
void mock_write(struct mock *m, uint64_t wr_id, size_t off, size_t len,
		uint8_t value);
/* Execute the oldest request. Returns false if there is none. */
bool mock_step(struct mock *m);
void mock_run(struct mock *m);
/* Move the oldest write from the adapter to the caches; evict a line. */
void mock_drain(struct mock *m);
void mock_evict(struct mock *m, size_t line);
/*
 * Give the target an agent, and connect to it. Call before mock_add().
 * mock_desc() then has the key of the agent's registration.
 */
void mock_side_init(struct mock *m);
void mock_side_fini(struct mock *m);
/* The agent stops or starts polling its ring, and sends IDLE or POLLING. */
void mock_side_idle(struct mock *m);
void mock_side_poll(struct mock *m);
/* Register the region again, so that mock_desc() has another key. */
void mock_side_reregister(struct mock *m);
/*
 * Deliver one message, or let the agent work. Returns false if there is nothing
 * to do.
 */
bool mock_side_step(struct mock *m);
void mock_side_channel_run(struct mock *m);

/* Copy the bytes that a power cut would leave now. */
void mock_power_cut(const struct mock *m, uint8_t left[MOCK_BYTES]);

#endif
