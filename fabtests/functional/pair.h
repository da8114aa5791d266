/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes with one endpoint each, over loopback on tcp;ofi_rpmem unless
 * RPMEM_BASE and RPMEM_NODE name another base or address.
 */
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

#define PAIR_POOL (1u << 20)
/* Key of volatile memory that looks like the key of a persistent region. */
#define PAIR_PLAIN_KEY (5ull << 61 | 2)
#define PAIR_DEVICE    (2u << 20) /* devdax maps whole huge pages */

/* How a side is opened; zero fields are the defaults. */
struct pair_opts {
	enum fi_progress progress;   /* 0: manual */
	enum fi_threading threading; /* 0: the provider's */
	enum fi_av_type av;	     /* 0: map */
	enum fi_cq_format format;    /* 0: tagged */
	bool sleeps;		     /* CQ with a descriptor, fi_cq_sread() */
	bool selective;
	bool sources;	   /* open with FI_SOURCE */
	bool counts;	   /* bind counters, side.cntr */
	bool raw_keys;	   /* hints without FI_MR_PROV_KEY */
	bool local;	   /* hints with FI_MR_LOCAL */
	bool plain_hints;  /* hints without FI_RMA_PMEM */
	bool unreadable;   /* peers may only write to the pool */
	bool msg;	   /* connected endpoints */
	uint64_t caps;	   /* more capabilities than messages, tags, RMA */
	uint64_t op_flags; /* default transmit flags */
	uint64_t order;	   /* message order of sends and writes */
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
	/* Memory of the target: a mapped file, and plain memory. */
	char path[32]; /* "" if not created here */
	char *pool, *plain;
	size_t pool_len; /* mapped bytes */
	struct fid_mr *pool_mr, *plain_mr;
	struct fid_mr *local_mr; /* region of send and receive buffers */
};

/* The data about one side that the other side needs. */
struct card {
	size_t len;
	char name[128];
	uint64_t pool_key, pool_addr, plain_key, plain_addr;
};

/* Exit with file and line if the call fails, so that the test fails. */
#define MUST(call) pair_must((call), #call, __FILE__, __LINE__)
ssize_t pair_must(ssize_t ret, const char *what, const char *file, int line);

void side_open(struct side *s, const struct pair_opts *o);
/*
 * Map a file (created with PAIR_POOL bytes if missing), the beginning of a
 * devdax device or, DEVICE@N, its Nth huge page; *len is the mapped length.
 */
void *pair_map(const char *path, size_t *len);
/* Map path as the pool. */
void side_pool(struct side *s, const char *path);
/*
 * Put pools into this new file on tmpfs, of class process, from now on; path is
 * a template of mkstemp(). Returns false, and prints why, if there is no tmpfs.
 */
bool pair_on_tmpfs(char *path);
/*
 * Set up the target's memory: a pool file in the current folder or the one in
 * RPMEM_POOL, and plain memory.
 */
void side_memory(struct side *s);
/* The descriptor of memory to send from or receive into, one for each side. */
void *side_local_desc(struct side *s, void *buf, size_t len);
void side_card(struct side *s, struct card *c);
void side_insert(struct side *s, const struct card *peer);
/* Connected endpoints: the next event, as fi_eq_sread(); exits on an error. */
uint32_t side_event(struct side *s, struct fi_eq_cm_entry *e);
/* Open an endpoint from info, bound and not yet enabled. */
void side_endpoint(struct side *s, struct fi_info *info);
/*
 * As side_endpoint(), for a connection to peer: verbs 1.17 needs the address.
 */
void side_dial(struct side *s, const struct card *peer);
/* Listen; then accept a connection, or connect to a listener. */
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

/* Next completion: 1, or 0 and *err. Waits as the side was opened. */
int side_wait(struct side *s, struct fi_cq_tagged_entry *e,
	      struct fi_cq_err_entry *err);
/*
 * For loops that wait for a due event: returns false when the half has run for
 * so long that it seems to hang, early enough to report what it waits for.
 */
bool pair_time_left(void);
/* Returns true if no completion comes for a while. */
bool side_quiet(struct side *s);

/*
 * Run the target's half in a child and the initiator's in another. Each half
 * gets its open side, with memory at the target, and the peer's card.
 */
typedef void (*half_fn)(struct side *s, const struct card *peer);
void pair_run(const struct pair_opts *target, const struct pair_opts *initiator,
	      half_fn target_half, half_fn initiator_half);
/* A barrier of the two halves: call on both sides. */
void pair_barrier(struct side *s);
/* As pair_barrier(), but without polling after the barrier. */
void pair_barrier_unpolled(struct side *s);

/* Whether this is the base of the tests: RPMEM_BASE, or tcp by default. */
bool pair_over(const char *base);

/* TAP. */
void tap_ok(bool ok, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void tap_skip(const char *name, const char *why);
/*
 * Call before a fork, so that both processes share the counts: pair_run() does.
 */
void tap_begin(void);
int tap_done(void);

#endif
