/* SPDX-License-Identifier: BSD-2-Clause */
/* Random programs with connected endpoints: their world, in one process. */
#ifndef RP_TEST_TRANSPARENT_CONN_H
#define RP_TEST_TRANSPARENT_CONN_H

#include "functional/transparent.h"

#define BATCH	25 /* programs that share domains */
#define CONNS	2
#define OPS	512
#define REGION	(1u << 20)
#define TRAFFIC (REGION / 2) /* offset from which on the traffic writes */
#define LONGEST 70000u
#define TEXT	(1u << 18)

/*
 * Remote CQ data of writes to persistent memory, whose completions have no
 * order (docs/guarantees.md).
 */
#define DATA_PERSISTENT 0x1000u

enum kind {
	RECV,
	SEND,
	WRITE,
	READ,
	BESIDE, /* traffic: operations that are not the program's */
	KINDS,
	/*
	 * Delivery-complete: the time of the acknowledgement depends on the
	 * wire.
	 */
	DELIVERED = KINDS,
	ORDERS = DELIVERED + KINDS,
};

struct op {
	struct fi_context2 context; /* first member: the base writes into it */
	enum kind kind;
	int conn, side;
	size_t len, iovs;
	char *buf;
	int expect, got;
	bool delivered;
	unsigned int form, which; /* form of the call; index of the memory */
	char saw[160];
};

/* One endpoint of a connection. */
struct end {
	struct fid_ep *ep;
	bool selective, rx_selective;
	uint64_t op_flags;
	struct fid_cntr *cntr[4]; /* traffic counts among writes */
	uint64_t beside;	  /* completed traffic: sum of its data */
	uint64_t data;		  /* number of entries without a context */
	uint64_t data_due;
	uint64_t data_sum; /* data of writes to persistent memory */
	char order[ORDERS][1024];
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_pep *pep;
	char *mem[2]; /* plain, persistent */
	struct fid_mr *mr[2];
	/* Queues, indexed by connection: */
	struct fid_cq *tx[CONNS], *rx[CONNS];
	enum fi_cq_format format;
	struct end end[CONNS];
};

/* --- transparent_conn_world.c --- */

extern struct side side[2];
extern bool layered, stuck; /* stuck: an event that is due never happened */
extern const char *base;
extern struct tp_rng rng, aside; /* of the program; of what it cannot notice */
extern struct op ops[OPS];
extern int nops, nconns, listener;
extern char *arena;
extern size_t used, text_len;
extern char text[TEXT]; /* trace of the program */

#define MUST(call) tp_must((call), #call, __FILE__, __LINE__)

void record_event(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void open_batch(bool automatic);
void close_batch(void);
struct fid_cq *queue(struct side *s, bool waits);
/* Read each queue once. Returns true if there was an entry. */
bool poll_all(void);
/* Wait for the next event of a side; 0: none came. The caller frees info. */
uint32_t event(int k, unsigned int ms, struct fi_info **info);
void connect_one(int c, bool refused);

/* --- transparent_conn_post.c --- */

extern uint64_t slot; /* the next offset that was not written to yet */

void post_recv(int c, int k);
void post_send(int c, int k);
void post_write(int c, int k);
void post_read(int c, int k);
/* Wait for sends and writes that have no completion. */
void post_fence(int c, int k);
/* Durable writes and commits during a program; on the base plain writes. */
void traffic(int c, int k);

#endif
