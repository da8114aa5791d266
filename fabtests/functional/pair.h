/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes, one endpoint each, on tcp;ofi_rpmem over loopback, or where
 * RPMEM_BASE and RPMEM_NODE say. */
#ifndef RP_TEST_PAIR_H
#define RP_TEST_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_tagged.h>

#include "fabtests/commit.h"

#define PAIR_POOL   (1u << 20)
#define PAIR_DEVICE (2u << 20) /* devdax maps whole huge pages */

/* How a side is opened; zero is the ordinary way. */
struct pair_opts {
	enum fi_progress progress;   /* 0: manual */
	enum fi_threading threading; /* 0: the provider's */
	enum fi_av_type av;	     /* 0: map */
	enum fi_cq_format format;    /* 0: tagged */
	bool sleeps;		     /* CQ with a descriptor, fi_cq_sread() */
	bool selective;
	bool sources;	   /* FI_SOURCE */
	bool counts;	   /* side.cntr are bound */
	bool raw_keys;	   /* hints without FI_MR_PROV_KEY */
	bool local;	   /* hints with FI_MR_LOCAL */
	bool unasked;	   /* nothing asks for persistence */
	bool unreadable;   /* peers may only write to the pool */
	bool msg;	   /* connected endpoints */
	uint64_t caps;	   /* beside messages, tags and RMA */
	uint64_t op_flags; /* default transmit flags */
	uint64_t order;	   /* message order of what is sent */
	const char *prov;  /* NULL: tcp;ofi_rpmem */
	const char *port;  /* NULL: the kernel's choice */
};

/* One side. */
struct side {
	struct pair_opts o;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *cntr[4]; /* sends, receives, reads, writes */
	struct fid_ep *ep;
	fi_addr_t peer;
	/* Connected endpoints: the target has pep. */
	struct fid_eq *eq;
	struct fid_pep *pep;
	/* The target's: a file that is mapped, and plain memory. */
	char path[32]; /* "" when it was not made here */
	char *pool, *plain;
	size_t pool_len; /* mapped */
	struct fid_mr *pool_mr, *plain_mr;
	struct fid_mr *local_mr; /* what is sent from and received into */
};

/* What the other side needs to know. */
struct card {
	size_t len;
	char name[128];
	uint64_t pool_key, pool_addr, plain_key, plain_addr;
};

/* Dies with file and line, and takes the test with it. */
#define MUST(call) pair_must((call), #call, __FILE__, __LINE__)
ssize_t pair_must(ssize_t ret, const char *what, const char *file, int line);

void side_open(struct side *s, const struct pair_opts *o);
/*
 * Map a file (made when it is not there, PAIR_POOL bytes), the beginning of a
 * devdax device or, DEVICE@N, its Nth huge page; *len is what was mapped.
 */
void *pair_map(const char *path, size_t *len);
/* Map it as the pool. */
void side_pool(struct side *s, const char *path);
/*
 * From now on pools are this new file on tmpfs, of class process; path is a
 * template of mkstemp(). False: there is no tmpfs, and a line says so.
 */
bool pair_on_tmpfs(char *path);
/*
 * The target's memory: a pool file in the current folder or what RPMEM_POOL
 * names, and plain memory.
 */
void side_memory(struct side *s);
/* What to pass for memory that is sent from or received into; one per side. */
void *side_local(struct side *s, void *buf, size_t len);
void side_card(struct side *s, struct card *c);
void side_insert(struct side *s, const struct card *peer);
/* Connected endpoints: the next event, as fi_eq_sread(); dies of none. */
uint32_t side_event(struct side *s, struct fi_eq_cm_entry *e);
/* An endpoint for it, bound and not yet enabled. */
void side_endpoint(struct side *s, struct fi_info *info);
/* The same, for a connection to that one: verbs 1.17 wants to know to whom. */
void side_dial(struct side *s, const struct card *peer);
/* Listen; then let one in, or connect to who listens there. */
void side_listen(struct side *s);
void side_accept(struct side *s);
void side_connect(struct side *s, const struct card *peer);
void side_close(struct side *s);

/* Retry while the base says -FI_EAGAIN. */
#define POST(s, call)                                                          \
	do {                                                                   \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN)                            \
			side_poke(s);                                          \
		pair_must(r_, #call, __FILE__, __LINE__);                      \
	} while (0)
void side_poke(struct side *s);

/* Next completion: 1, or 0 and *err. Waits the way the side was opened. */
int side_wait(struct side *s, struct fi_cq_tagged_entry *e,
	      struct fi_cq_err_entry *err);
/*
 * For loops that wait for what must come: false when the half has run for so
 * long that it hangs, in time to say what it waits for.
 */
bool pair_patient(void);
/* Nothing comes for a while. */
bool side_quiet(struct side *s);

/*
 * Run the target's half in a child and the initiator's here. Each gets its
 * side, open, with memory at the target and the peer's card.
 */
typedef void (*half_fn)(struct side *s, const struct card *peer);
void pair_run(const struct pair_opts *target, const struct pair_opts *initiator,
	      half_fn target_half, half_fn initiator_half);
/* The two halves meet: call on both sides. */
void pair_meet(struct side *s);
/* The same, but what comes behind the meeting is left where it is. */
void pair_meet_unseen(struct side *s);

/* Over what the tests are run: "tcp" unless RPMEM_BASE says otherwise. */
bool pair_over(const char *base);

/* TAP. */
void tap_ok(bool ok, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void tap_skip(const char *name, const char *why);
/* Before a fork: both count on. pair_run() does it. */
void tap_begin(void);
int tap_done(void);

#endif
