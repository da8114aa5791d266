/* SPDX-License-Identifier: BSD-2-Clause */
/* Random programs that cannot distinguish ofi_rpmem from its base. */
#ifndef RP_TEST_TRANSPARENT_H
#define RP_TEST_TRANSPARENT_H

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

struct tp_rng {
	uint64_t s;
};
uint64_t tp_next(struct tp_rng *r);
static inline uint64_t tp_below(struct tp_rng *r, uint64_t n)
{
	return tp_next(r) % n;
}
static inline bool tp_chance(struct tp_rng *r, unsigned int percent)
{
	return tp_below(r, 100) < percent;
}

/* --- the plan of one program: made from a seed alone --- */

/* A0 A1 B0 B1, and C, whose address the others have not inserted. */
enum {
	TP_EPS = 5,
	TP_UNKNOWN = 4,
	TP_SIDES = 3
};
static inline int tp_side_of(int ep)
{
	return ep / 2;
}

enum tp_verb {
	TP_RECV,     /* untagged and tagged: .tagged */
	TP_SEND,     /* send to endpoint .peer */
	TP_WRITE,    /* write to the memory of .peer's side */
	TP_READ,     /* from the memory of .peer's side */
	TP_ATOMIC,   /* one 64-bit cell of .peer's side */
	TP_CANCEL,   /* cancel the receive .other points to */
	TP_PEEK,     /* look for the message .other, without a receive */
	TP_MULTI,    /* one buffer for several messages */
	TP_INSERT,   /* .count unused addresses */
	TP_REMOVE,   /* the addresses of INSERT .other */
	TP_MEET,     /* insert C's address at last */
	TP_SREAD,    /* sleep until the timeout, while other endpoints commit */
	TP_SIGNAL,   /* wake a waiter */
	TP_FD,	     /* sleep on the descriptor for a message */
	TP_EVENT,    /* event queue */
	TP_TRAFFIC,  /* durable writes; plain ones on the bare base */
	TP_SYNC,     /* wait for all due entries, compare memory */
	TP_WAIT_ALL, /* as TP_SYNC, and wait for all commits */
	TP_BADKEY,   /* a refused write: always the last operation */
};

enum tp_form {
	TP_PLAIN,
	TP_V,
	TP_MSG,
	TP_INJECT,
	TP_DATA,
	TP_INJECTDATA,
};

enum {
	TP_FREE,
	TP_KEEP,
	TP_CLAIM,
	TP_DISCARD
}; /* .how of PEEK */
enum {
	TP_BASE_OP,
	TP_FETCH,
	TP_COMPARE
}; /* .how of ATOMIC */

struct tp_op {
	struct fi_context2 context; /* first: the base writes into it */
	enum tp_verb verb;
	enum tp_form form;
	int ep, peer; /* endpoints; peer -1: any source */
	bool tagged, pmem;
	int how, other, count;
	uint64_t tag, ignore, flags, data, off;
	size_t len, iovs, rma_iovs;
	enum fi_op op; /* operation of ATOMIC */
	/* Conditions before a SYNC ends. */
	int expect;    /* entries with this context that must come */
	int due;       /* index of the operation after which they are due */
	bool remote;   /* the peer gets an entry, too */
	bool fails;    /* the entry is an error */
	bool breaks;   /* the operation breaks the connection */
	bool counted;  /* a counter of .ep counts it, unless it fails */
	bool arrives;  /* a counter of the peer counts it, too */
	bool in_order; /* such receives complete in the plan's order */
	/* State of the runner. */
	int got;
	bool early; /* PEEK: no message had arrived yet */
	bool done;  /* the memory was compared */
	ssize_t ret;
	char *buf;
	fi_addr_t fi_addr[8];
};

/* Counters, in the order of bits and arrays. */
enum {
	TP_C_SEND,
	TP_C_RECV,
	TP_C_READ,
	TP_C_WRITE,
	TP_C_REMOTE_READ,
	TP_C_REMOTE_WRITE,
	TP_CNTRS,
};

/* Attributes of the objects of one program. */
struct tp_setup {
	int neps[TP_SIDES];
	int share[TP_SIDES]; /* how the endpoints share queues */
	enum fi_cq_format format[TP_SIDES][2];
	enum fi_av_type av[TP_SIDES];
	bool wait[TP_SIDES], selective[TP_EPS], rx_selective[TP_EPS];
	uint64_t op_flags[TP_EPS];
	unsigned int cntr[TP_EPS]; /* bit mask of counters */
	int before[TP_SIDES];	   /* addresses inserted before the peers' */
	bool from;		   /* read entries by fi_cq_readfrom() */
	unsigned int chunk;	   /* entries read at a time */
};

struct tp_plan {
	struct tp_setup setup;
	struct tp_op *ops;
	size_t n, cap;
};

/* Features of both providers, which limit the programs. */
struct tp_features {
	bool atomic, counters, rma_event, wait, direct, source, multi;
	bool peek_msg;
	size_t inject, iov_limit, rma_iov_limit;
};

/* Bytes of each region. */
#define TP_REGION    (1u << 19)
#define TP_READ_ZONE (1u << 16) /* its first part is only read */
#define TP_CELLS     64		/* 8-byte cells at the end, for atomics */

/* stage: the seed of the objects; last: the plan may break a connection. */
void tp_plan_make(struct tp_plan *p, uint64_t seed, uint64_t stage, bool last,
		  const struct tp_features *f);
void tp_plan_free(struct tp_plan *p);
/* Describe an operation in one line. */
void tp_op_say(const struct tp_op *o, char *buf, size_t len);

/* State shared by the parts of the generator. */
struct tp_gen {
	struct tp_rng rng;
	struct tp_plan *p;
	const struct tp_features *f;
	uint64_t used[TP_SIDES]; /* bytes used where writes go */
	int waiting[TP_EPS][2][8], nwaiting[TP_EPS][2]; /* receives */
	bool busy[TP_EPS][2];	  /* an endpoint sends to it in this round */
	uint64_t cells[TP_SIDES]; /* mask of the cells accessed in this round */
	bool met;		  /* the address of C has been inserted */
	int ntraffic;
};
struct tp_op *tp_add(struct tp_gen *g, enum tp_verb verb, int ep);
int tp_pick_ep(struct tp_gen *g, int not_ep, bool unknown);
bool tp_tx_completes(const struct tp_gen *g, const struct tp_op *o);
void tp_gen_messages(struct tp_gen *g, bool tagged);
void tp_gen_peek(struct tp_gen *g);
void tp_gen_multi(struct tp_gen *g);
void tp_gen_flood(struct tp_gen *g);
/* Cancel the receives of a kind, tagged or not, that are still posted. */
void tp_gen_forget(struct tp_gen *g, int ep, bool tagged);
void tp_gen_memory(struct tp_gen *g);
void tp_gen_traffic(struct tp_gen *g, int to);
struct tp_op *tp_add_traffic(struct tp_gen *g, int ep, int to, int count);

/* --- the objects --- */

#define TP_TRAFFIC_MAX 512
#define TP_TRAFFIC_LEN 256

struct tp_traffic {
	struct fi_context2 context;
	int ep;
	bool out, failed;
};

struct tp_cq {
	struct fid_cq *fid;
	enum fi_cq_format format;
	int side;
	bool wait;
};

struct tp_ep {
	struct fid_ep *fid;
	struct tp_cq *tx, *rx;
	/* Indexed as the bits of tp_setup.cntr. */
	struct fid_cntr *cntr[TP_CNTRS];
	uint64_t counted[TP_CNTRS]; /* its value when nothing is outstanding */
	uint64_t failed[TP_CNTRS];
	uint64_t posted[TP_CNTRS]; /* its upper bound */
	uint8_t name[64];
	size_t len;
	fi_addr_t peer[TP_EPS];
	/* Traffic: operations of this endpoint, and writes to it. */
	uint64_t traffic, traffic_in;
};

struct tp_side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	/*
	 * plain and pmem belong to the program, quick and file to the traffic.
	 */
	char *mem[4];
	struct fid_mr *mr[4];
	struct fid_av *av;
	struct fid_eq *eq;
	int anonymous; /* entries without a context */
};
enum {
	TP_MEM_PLAIN,
	TP_MEM_PMEM,
	TP_MEM_QUICK,
	TP_MEM_FILE
};

struct tp_trace;
struct tp_world {
	const char *prov;
	bool layered;
	bool tidy;  /* the base clears the unused fields of entries */
	bool quiet; /* true: no persistent memory, no commits */
	bool automatic;
	bool open;  /* the stage is open */
	bool stuck; /* something that is due never happened */
	/*
	 * A connection is broken, and the base's counters depend on its timing.
	 */
	bool broken;
	const struct tp_features *f;
	struct tp_side side[TP_SIDES];
	struct tp_cq cq[2 * TP_EPS];
	int ncq;
	struct tp_ep ep[TP_EPS];
	struct tp_plan *p;
	struct tp_trace *t;
	struct tp_traffic traffic[TP_TRAFFIC_MAX];
	int ntraffic, traffic_out;
	struct tp_op hello[2];
	char *arena;
	size_t used;
	int ndummy;
	struct tp_rng rng; /* random choices that a program cannot notice */
	/*
	 * Values of the cells after all posted operations: plain, persistent.
	 */
	uint64_t cell[TP_SIDES][2][TP_CELLS];
};

#define TP_MUST(call) tp_must((call), #call, __FILE__, __LINE__)
ssize_t tp_must(ssize_t ret, const char *what, const char *file, int line);

void tp_world_open(struct tp_world *w, const char *prov, bool layered,
		   uint64_t batch_seed);
void tp_world_close(struct tp_world *w);
/* Open and close the objects of one program. */
void tp_stage_open(struct tp_world *w);
void tp_stage_close(struct tp_world *w);

/* --- the attributes that fi_getinfo() offers --- */

struct fi_info *tp_getinfo(const char *prov, uint64_t caps,
			   enum fi_progress progress);
uint64_t tp_wanted_caps(const struct tp_features *f);
/* Print the provider's attributes into t, as lines. */
void tp_offer(const char *prov, struct tp_features *f, struct tp_trace *t);
/*
 * Whether attributes differ beyond the documented ways. Prints all differences.
 */
bool tp_offers_differ(const char *base, const char *ours);

/* --- running it --- */

/* last: close the stage after this program. */
void tp_run(struct tp_world *w, struct tp_plan *p, struct tp_trace *t,
	    bool last);
/* Post an operation; returns 0 or the error of the call, never -FI_EAGAIN. */
ssize_t tp_post(struct tp_world *w, struct tp_op *o);
void tp_post_traffic(struct tp_world *w, struct tp_op *o);
/* Read all queues once. */
void tp_poll(struct tp_world *w);
void tp_poll_cq(struct tp_world *w, struct tp_cq *cq);
/* Operations that need more than one call. */
void tp_do_peek(struct tp_world *w, struct tp_op *o);
void tp_do_addresses(struct tp_world *w, struct tp_op *o);
void tp_do_wait(struct tp_world *w, struct tp_op *o);
void tp_do_event(struct tp_world *w, struct tp_op *o);
/*
 * Check counters against their bounds; settled: all is complete, so compare
 * exact values, too.
 */
void tp_check_counters(struct tp_world *w, bool settled, bool rest);
void tp_count_posted(struct tp_world *w, const struct tp_op *o);
void tp_count_done(struct tp_world *w, const struct tp_op *o);
void tp_give_buffer(struct tp_world *w, struct tp_op *o);

uint8_t tp_pattern(const struct tp_op *o, int index, size_t at);
uint8_t tp_static(int side, uint64_t at);
uint64_t tp_now_ms(void);

/*
 * Time limit of an event that is due. The event counts as missing once both
 * wall-clock and processor time have passed it: on a busy machine time passes
 * without progress. The failure is recorded, and the program ends
 * (world.stuck).
 */
extern int tp_deadline_ms;
struct tp_deadline {
	uint64_t begin, cpu;
};
struct tp_deadline tp_deadline(void);
bool tp_time_left(const struct tp_deadline *p);

/* --- the trace of a program --- */

/* Lines, sorted by operation; within one in order of arrival. */
struct tp_trace *tp_trace_new(void);
void tp_trace_free(struct tp_trace *t);
void tp_trace_clear(struct tp_trace *t);
void tp_saw(struct tp_trace *t, int op, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* All lines, sorted; the caller frees. */
char *tp_trace_text(struct tp_trace *t);
/* Record an entry, reduced to the fields of its queue's format. */
void tp_saw_entry(struct tp_world *w, struct tp_cq *cq,
		  const struct fi_cq_tagged_entry *e, fi_addr_t src);
void tp_saw_error(struct tp_world *w, struct tp_cq *cq,
		  const struct fi_cq_err_entry *e);

#endif
