/* SPDX-License-Identifier: BSD-2-Clause */
/* Random programs that cannot distinguish ofi_rpmem from its base. */
#ifndef RP_TEST_INVISIBLE_H
#define RP_TEST_INVISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* --- random numbers, repeated by their seed --- */

struct inv_rng {
	uint64_t s;
};
uint64_t inv_next(struct inv_rng *r);
static inline uint64_t inv_below(struct inv_rng *r, uint64_t n)
{
	return inv_next(r) % n;
}
static inline bool inv_chance(struct inv_rng *r, unsigned int percent)
{
	return inv_below(r, 100) < percent;
}

/* --- the plan of one program: made from a seed alone --- */

/* A0 A1 B0 B1, and C, whose address the others have not inserted. */
enum {
	INV_EPS = 5,
	INV_UNKNOWN = 4,
	INV_SIDES = 3
};
static inline int inv_side_of(int ep)
{
	return ep / 2;
}

enum inv_verb {
	INV_RECV,    /* untagged and tagged: .tagged */
	INV_SEND,    /* to .peer */
	INV_WRITE,   /* to the memory of .peer's side */
	INV_READ,    /* from the memory of .peer's side */
	INV_ATOMIC,  /* one 64-bit cell of .peer's side */
	INV_CANCEL,  /* cancel the receive .other */
	INV_PEEK,    /* the message .other, without a receive */
	INV_MULTI,   /* one buffer for several messages */
	INV_INSERT,  /* .count unused addresses */
	INV_REMOVE,  /* the addresses of INSERT .other */
	INV_MEET,    /* insert C's address at last */
	INV_SREAD,   /* time out, while other endpoints commit */
	INV_SIGNAL,  /* wake a waiter */
	INV_FD,	     /* sleep on the descriptor for a message */
	INV_EVENT,   /* event queue */
	INV_TRAFFIC, /* durable writes; plain ones on the bare base */
	INV_SYNC,    /* wait for all due entries, compare memory */
	INV_REST,    /* the same, and for all commits */
	INV_BADKEY,  /* a refused write: always the last */
};

enum inv_form {
	INV_PLAIN,
	INV_V,
	INV_MSG,
	INV_INJECT,
	INV_DATA,
	INV_INJECTDATA,
};

enum {
	INV_FREE,
	INV_KEEP,
	INV_CLAIM,
	INV_DISCARD
}; /* .how of PEEK */
enum {
	INV_BASE_OP,
	INV_FETCH,
	INV_COMPARE
}; /* .how of ATOMIC */

struct inv_op {
	struct fi_context2 context; /* first: the base writes into it */
	enum inv_verb verb;
	enum inv_form form;
	int ep, peer; /* peer -1: any source */
	bool tagged, pmem;
	int how, other, count;
	uint64_t tag, ignore, flags, data, off;
	size_t len, iovs, rma_iovs;
	enum fi_op op; /* ATOMIC */
	/* Conditions before a SYNC ends. */
	int expect;    /* entries with this context */
	int due;       /* after this operation has been posted */
	bool remote;   /* and one entry at the peer */
	bool fails;    /* the entry is an error */
	bool breaks;   /* it breaks the connection */
	bool counted;  /* by a counter of .ep, unless it fails */
	bool arrives;  /* and by one of the peer's */
	bool in_order; /* receives that complete in this order */
	/* State of the runner. */
	int got;
	bool early; /* PEEK: no message had arrived yet */
	bool done;  /* memory compared */
	ssize_t ret;
	char *buf;
	fi_addr_t fi_addr[8];
};

/* Counters, in the order of bits and arrays. */
enum {
	INV_C_SEND,
	INV_C_RECV,
	INV_C_READ,
	INV_C_WRITE,
	INV_C_REMOTE_READ,
	INV_C_REMOTE_WRITE,
	INV_CNTRS,
};

/* Attributes of the objects of one program. */
struct inv_setup {
	int neps[INV_SIDES];
	int share[INV_SIDES]; /* how endpoints share queues */
	enum fi_cq_format format[INV_SIDES][2];
	enum fi_av_type av[INV_SIDES];
	bool wait[INV_SIDES], selective[INV_EPS], rx_selective[INV_EPS];
	uint64_t op_flags[INV_EPS];
	unsigned int cntr[INV_EPS]; /* bit mask of counters */
	int before[INV_SIDES];	    /* addresses inserted before the peers' */
	bool from;		    /* fi_cq_readfrom() */
	unsigned int chunk;	    /* entries read at a time */
};

struct inv_plan {
	struct inv_setup setup;
	struct inv_op *ops;
	size_t n, cap;
};

/* Features of both providers, which programs are made of. */
struct inv_features {
	bool atomic, counters, rma_event, wait, direct, source, multi;
	bool peek_msg;
	size_t inject, iov_limit, rma_iov_limit;
};

/* Bytes of each region. */
#define INV_REGION    (1u << 19)
#define INV_READ_ZONE (1u << 16) /* its first part is only read */
#define INV_CELLS     64	 /* 8-byte cells at the end, for atomics */

/* stage: the seed of the objects; last: the plan may break a connection. */
void inv_plan_make(struct inv_plan *p, uint64_t seed, uint64_t stage, bool last,
		   const struct inv_features *f);
void inv_plan_free(struct inv_plan *p);
/* Describe an operation in one line. */
void inv_op_say(const struct inv_op *o, char *buf, size_t len);

/* State shared by the parts of the generator. */
struct inv_gen {
	struct inv_rng rng;
	struct inv_plan *p;
	const struct inv_features *f;
	uint64_t used[INV_SIDES]; /* of the written part of the region */
	int waiting[INV_EPS][2][8], nwaiting[INV_EPS][2]; /* receives */
	bool busy[INV_EPS][2];	   /* an endpoint sends there in this round */
	uint64_t cells[INV_SIDES]; /* accessed in this round */
	bool met;		   /* C has been inserted */
	int ntraffic;
};
struct inv_op *inv_add(struct inv_gen *g, enum inv_verb verb, int ep);
int inv_pick_ep(struct inv_gen *g, int not_ep, bool unknown);
bool inv_tx_completes(const struct inv_gen *g, const struct inv_op *o);
void inv_gen_messages(struct inv_gen *g, bool tagged);
void inv_gen_peek(struct inv_gen *g);
void inv_gen_multi(struct inv_gen *g);
void inv_gen_flood(struct inv_gen *g);
/* Cancel the receives still posted, untagged or tagged. */
void inv_gen_forget(struct inv_gen *g, int ep, bool tagged);
void inv_gen_memory(struct inv_gen *g);
void inv_gen_traffic(struct inv_gen *g, int to);
struct inv_op *inv_add_traffic(struct inv_gen *g, int ep, int to, int count);

/* --- the objects --- */

#define INV_TRAFFIC_MAX 512
#define INV_TRAFFIC_LEN 256

struct inv_traffic {
	struct fi_context2 context;
	int ep;
	bool out, failed;
};

struct inv_cq {
	struct fid_cq *fid;
	enum fi_cq_format format;
	int side;
	bool wait;
};

struct inv_ep {
	struct fid_ep *fid;
	struct inv_cq *tx, *rx;
	/* Indexed as the bits of inv_setup.cntr. */
	struct fid_cntr *cntr[INV_CNTRS];
	uint64_t counted[INV_CNTRS]; /* the value at rest */
	uint64_t failed[INV_CNTRS];
	uint64_t posted[INV_CNTRS]; /* the upper bound */
	uint8_t name[64];
	size_t len;
	fi_addr_t peer[INV_EPS];
	/* Traffic: operations of this endpoint, and writes to it. */
	uint64_t traffic, traffic_in;
};

struct inv_side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	/* plain and pmem: the program's; quick and file: the traffic's. */
	char *mem[4];
	struct fid_mr *mr[4];
	struct fid_av *av;
	struct fid_eq *eq;
	int anonymous; /* entries without a context */
};
enum {
	INV_MEM_PLAIN,
	INV_MEM_PMEM,
	INV_MEM_QUICK,
	INV_MEM_FILE
};

struct inv_trace;
struct inv_world {
	const char *prov;
	bool layered;
	bool tidy;  /* the base clears unused fields */
	bool quiet; /* no persistent memory, no commits */
	bool automatic;
	bool open;  /* the stage is open */
	bool stuck; /* something that is due never happened */
	/*
	 * A connection is broken, and the base's counters depend on its timing.
	 */
	bool broken;
	const struct inv_features *f;
	struct inv_side side[INV_SIDES];
	struct inv_cq cq[2 * INV_EPS];
	int ncq;
	struct inv_ep ep[INV_EPS];
	struct inv_plan *p;
	struct inv_trace *t;
	struct inv_traffic traffic[INV_TRAFFIC_MAX];
	int ntraffic, traffic_out;
	struct inv_op hello[2];
	char *arena;
	size_t used;
	int ndummy;
	struct inv_rng rng; /* choices that the program cannot notice */
	/*
	 * Values of the cells after all posted operations: plain, persistent.
	 */
	uint64_t cell[INV_SIDES][2][INV_CELLS];
};

#define INV_MUST(call) inv_must((call), #call, __FILE__, __LINE__)
ssize_t inv_must(ssize_t ret, const char *what, const char *file, int line);

void inv_world_open(struct inv_world *w, const char *prov, bool layered,
		    uint64_t batch_seed);
void inv_world_close(struct inv_world *w);
/* Open the objects of one program, and close them. */
void inv_stage_open(struct inv_world *w);
void inv_stage_close(struct inv_world *w);

/* --- the offers of fi_getinfo() --- */

struct fi_info *inv_getinfo(const char *prov, uint64_t caps,
			    enum fi_progress progress);
uint64_t inv_wanted_caps(const struct inv_features *f);
/* Print the provider's attributes into t, as lines. */
void inv_offer(const char *prov, struct inv_features *f, struct inv_trace *t);
/* Do they differ beyond the documented ways? Prints all differences. */
bool inv_offers_differ(const char *base, const char *ours);

/* --- running it --- */

/* last: close the stage afterwards. */
void inv_run(struct inv_world *w, struct inv_plan *p, struct inv_trace *t,
	     bool last);
/* Post an operation; 0, or the call's error. Never -FI_EAGAIN. */
ssize_t inv_post(struct inv_world *w, struct inv_op *o);
void inv_post_traffic(struct inv_world *w, struct inv_op *o);
/* Read all queues once. */
void inv_poll(struct inv_world *w);
void inv_poll_cq(struct inv_world *w, struct inv_cq *cq);
/* Steps of more than one call. */
void inv_do_peek(struct inv_world *w, struct inv_op *o);
void inv_do_addresses(struct inv_world *w, struct inv_op *o);
void inv_do_wait(struct inv_world *w, struct inv_op *o);
void inv_do_event(struct inv_world *w, struct inv_op *o);
/* Check counters against their bounds; settled: also against exact values. */
void inv_check_counters(struct inv_world *w, bool settled, bool rest);
void inv_count_posted(struct inv_world *w, const struct inv_op *o);
void inv_count_done(struct inv_world *w, const struct inv_op *o);
void inv_give_buffer(struct inv_world *w, struct inv_op *o);

uint8_t inv_pattern(const struct inv_op *o, int index, size_t at);
uint8_t inv_static(int side, uint64_t at);
uint64_t inv_now_ms(void);

/*
 * Time limit of an event that is due. The event counts as missing once both
 * wall-clock and processor time have passed it: on a busy machine time passes
 * without progress. The failure is recorded, and the program ends
 * (world.stuck).
 */
extern int inv_deadline_ms;
struct inv_deadline {
	uint64_t begin, cpu;
};
struct inv_deadline inv_deadline(void);
bool inv_time_left(const struct inv_deadline *p);

/* --- the trace of a program --- */

/* Lines, sorted by operation; within one in order of arrival. */
struct inv_trace *inv_trace_new(void);
void inv_trace_free(struct inv_trace *t);
void inv_trace_clear(struct inv_trace *t);
void inv_saw(struct inv_trace *t, int op, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* All lines, sorted; the caller frees. */
char *inv_trace_text(struct inv_trace *t);
/* Record an entry, reduced to the fields of its queue's format. */
void inv_saw_entry(struct inv_world *w, struct inv_cq *cq,
		   const struct fi_cq_tagged_entry *e, fi_addr_t src);
void inv_saw_error(struct inv_world *w, struct inv_cq *cq,
		   const struct fi_cq_err_entry *e);

#endif
