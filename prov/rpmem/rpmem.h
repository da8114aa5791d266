/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of the libfabric provider, one per libfabric object. */
#ifndef RPMEM_H
#define RPMEM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "core/agent.h"
#include "core/link.h"
#include "core/list.h"
#include "core/peer.h"
#include "core/spin.h"
#include "rpmem/cep.h"

#define RP_PROV_NAME "ofi_rpmem"

/*
 * What libfabric 2 has no names for any more, or warns of: a mode, and the two
 * ways of registration from before the bits of mr_mode.
 */
#define RP_BUFFERED_RECV  (1ull << 51)
#define RP_MR_BEFORE_BITS 3

#define rp_container_of(ptr, type, member)                                     \
	((type *)((char *)(ptr)-offsetof(type, member)))

extern struct fi_provider rp_prov;

#define RP_WARN(subsys, ...) FI_WARN(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)
#define RP_INFO(subsys, ...) FI_INFO(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)

/* What the operator set, read once when the provider is loaded. */
struct rp_params {
	enum rp_class required;
	uint64_t timeout_ns;
	uint64_t slow_rate;
	int emulate;
	int allow_force_granularity;
	char *trust_fs;
	char *operator_file; /* statements; NULL: the default one */
	char *method;	     /* forced, by name; NULL: none */
	size_t max_commits;
	size_t credits;
	size_t max_sessions;
	size_t inline_max; /* bytes of a durable write that is one message */
	uint64_t spin_ns;  /* looks go on for so long before a sleep */
	int connect;	   /* connections of our own */
	int native;	   /* ... that FLUSH, where devices do */
	int commit_writes; /* for programs that do not ask */
	const struct rp_cost *measured; /* figures of this machine, or NULL */
};
extern struct rp_params rp_params;

/* --- info.c: what is offered, and the base behind it --- */

/*
 * The base's own list for the name of a base ("tcp"): RDM endpoints only, all
 * of one layering. hints are a program's, in our terms; NULL: anything.
 */
int rp_info_base(uint32_t version, const char *node, const char *service,
		 uint64_t flags, const struct fi_info *hints, const char *base,
		 struct fi_info **list);
/* The one of the list whose domain is that of info: a copy of the caller's. */
int rp_info_pick(const struct fi_info *list, const struct fi_info *info,
		 struct fi_info **out);
/* A program's fi_info, as the base wants to see it. */
struct fi_info *rp_info_to_base(const struct fi_info *info);
/* What that has to have more of, so that ofi_rxm over base is safe. */
void rp_info_for_rxm(struct fi_info *b, const char *base);
/* "tcp" from "tcp;ofi_rpmem"; NULL when no base is named. Caller frees. */
char *rp_info_base_name(const char *prov_name);
/*
 * Is this for the base alone (endpoints and features that we do not layer
 * over)? Of hints, and of what was returned for them.
 */
bool rp_info_is_direct(const struct fi_info *info);
/* The base's own connected endpoints; -FI_ENODATA where it has none. */
int rp_info_msg(uint32_t version, const char *base, const struct fi_info *hints,
		struct fi_info **list);
int rp_info_direct(uint32_t version, const char *base, struct fi_info **list);
/* The base's own entries of a type: of the provider itself, nothing over it. */
int rp_info_direct_list(uint32_t version, const char *node, const char *service,
			uint64_t flags, const struct fi_info *hints,
			const char *base, enum fi_ep_type type,
			struct fi_info **list);
/*
 * Keys that say what memory they stand for change mr_mode, so a program that
 * asks for other things only gets the base's.
 */
bool rp_info_may_make_keys(uint32_t version, const struct fi_info *hints);
int rp_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info);

/* --- fabric.c --- */

struct rp_fabric {
	struct fid_fabric fid;
	/*
	 * Of the provider itself: event queues, what we do not layer over, and
	 * its own reliable datagrams; where it has no fabric of this name, the
	 * other one.
	 */
	struct fid_fabric *direct;
	/* Of ofi_rxm over it, once a domain has needed it. */
	struct fid_fabric *layered;
	char *base_name;      /* what a hint names: "tcp" */
	bool cards;	      /* connected endpoints tell their mailboxes */
	pthread_mutex_t lock; /* for layered and given */
	/*
	 * Over what makes a connection, and what tells of one: taken before any
	 * domain's lock. For the list of connected endpoints.
	 */
	pthread_mutex_t cm_lock;
	LIST_HEAD(, rp_ep) msg_eps;
	LIST_HEAD(, rp_asked) asked; /* cm_asked.c */
	/* Entries that the base was given: sockets goes on looking at them. */
	struct fi_info *given;
	uint32_t version;
};
int rp_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context);
/* The base's fabric that its entry belongs to, native or layered. */
int rp_fabric_base(struct rp_fabric *fab, const struct fi_info *base,
		   struct fid_fabric **out);

/* --- hidden.c: contexts of operations that the user never sees --- */

enum rp_slot_kind {
	RP_SLOT_FREE,
	RP_SLOT_WRITE,	/* a write to a persistent region, maybe with commit */
	RP_SLOT_COMMIT, /* a commit of its own */
	RP_SLOT_READ,	/* a read into local persistent memory, with commit */
	RP_SLOT_SEND,	/* a control message too long to inject */
	RP_SLOT_FENCE,	/* a read behind the writes of a commit */
	RP_SLOT_LINKED, /* a durable write over a connection of our own */
	RP_SLOT_RECV,	/* a posted receive for control messages */
	RP_SLOT_MAIL,	/* a control message of a connected endpoint */
	RP_SLOT_MAIL_FENCE, /* a read that one of those waits for */
	RP_SLOT_DEAD, /* its endpoint is gone; the base may still answer */
};

#define RP_SLOT_IOV 8 /* ranges of one operation */

/* One hidden operation. The base gets its address as the context. */
struct rp_slot {
	struct fi_context2 fi_context; /* first: FI_CONTEXT modes use it */
	LIST_ENTRY(rp_slot) link;
	struct rp_ep *ep;
	enum rp_slot_kind kind;
	bool posted;	/* RECV: the base has it */
	bool want;	/* the user wants a completion */
	bool atomic;	/* WRITE: an atomic */
	bool fetches;	/* WRITE: an atomic that counts as a read */
	bool written;	/* WRITE, READ with commit: the base has completed it */
	bool committed; /* WRITE with commit: the commit has ended */
	bool stores;	/* COMMIT: with a store behind it, or inline */
	uint8_t nwrites;
	uint8_t niov;	/* READ */
	uint8_t due;	/* LINKED: what the base still has */
	int base_err;	/* of the write */
	void *context;	/* the user's */
	uint64_t flags; /* of the user's completion */
	void *buf;	/* RECV; SEND: struct rp_send_buf; atomics: rp_carry */
	struct fid_mr *mr; /* RECV: of buf, or NULL */
	uint32_t size;	   /* RECV: of buf */
	struct rp_commit *commit;
	struct rp_fence *fence; /* FENCE */
	union {
		struct rp_write write[RP_SLOT_IOV];
		struct iovec iov[RP_SLOT_IOV]; /* READ: where it goes */
		struct {
			struct rp_linked op;
			struct rp_conn *conn; /* NULL: it is over */
			unsigned int bounce;
			struct rp_cep_mr source;
			bool bounced; /* its source is a copy of ours */
			bool asks;    /* an answer is due, too */
		} linked;
	};
};
LIST_HEAD(rp_slots, rp_slot);

/* All slots of the process lie in one range, for as long as it lives. */
#define RP_HIDDEN_SHIFT 32
extern atomic_uintptr_t rp_hidden_number; /* of the range of that size */
static inline bool rp_is_hidden(const void *context)
{
	return (uintptr_t)context >> RP_HIDDEN_SHIFT ==
	       atomic_load_explicit(&rp_hidden_number, memory_order_relaxed);
}

/* Slots of one domain: none returns to the process before its CQs are gone. */
struct rp_slot_pool {
	struct rp_slots free;
	struct rp_slots used;
	struct rp_chunk *chunks;
};
struct rp_slot *rp_slot_get(struct rp_slot_pool *p, struct rp_ep *ep,
			    enum rp_slot_kind kind);
void rp_slot_put(struct rp_slot_pool *p, struct rp_slot *s);
void rp_slot_pool_fini(struct rp_slot_pool *p);

/* --- domain.c --- */

struct rp_dom {
	struct fid_domain fid;
	struct rp_fabric *fabric;
	struct fid_fabric *base_fabric;
	struct fid_domain *base;
	struct fi_info *base_info; /* what the base was opened with */
	bool marked;		   /* we make the keys, with facts in them */
	bool msg;		   /* of connected endpoints */
	bool cards;		   /* ... whose mailboxes are told */
	bool fenced;		   /* ... and asked behind reads only */
	bool auto_progress;
	atomic_bool sleeps;	/* some queue or counter can be waited for */
	bool ordered;		/* a message follows the writes before it */
	bool own;		/* commits may do without the agent: fence.c */
	struct rp_conns *conns; /* connections of our own; NULL: none */
	uint64_t ctrl_bit;	/* the tag bit of control messages */
	uint64_t incarnation;

	/*
	 * One lock for everything below, for core, and for reading base CQs
	 * once `live`. The base never calls back, so it may be held over
	 * base calls; user callbacks do not exist.
	 */
	pthread_mutex_t lock;
	/*
	 * Until one of the following, or auto_progress, or somebody polls: a
	 * program's read of a queue is the base's, with one look at this.
	 */
	atomic_bool watched;
	/* Hidden traffic may be under way; until then nobody looks for it. */
	atomic_bool live;
	/* Somebody counts: readers of a base CQ without the lock are in raw. */
	atomic_bool counted;
	atomic_uint raw;
	unsigned int nremote;	   /* endpoints that count what peers write */
	pthread_mutex_t poll_lock; /* for the sets; taken before the lock */
	LIST_HEAD(, rp_poll) polls;
	struct rp_agent *agent;
	unsigned int npmem; /* registered persistent regions */
	LIST_HEAD(, rp_mr) pmems;
	struct rp_slot_pool slots;
	/* What control messages are sent from; xport.c. */
	struct rp_send_bufs *send_bufs;
	struct rp_send_buf *send_free;
	unsigned int nsend_bufs;
	/* Where fences land. Nobody looks at it, so one is enough. */
	uint64_t landing;
	struct fid_mr *landing_mr; /* where the base wants one */
	LIST_HEAD(, rp_cq) cqs;
	LIST_HEAD(, rp_ep) eps;
	int kick_fd;  /* core wants progress: worker done, commit ended */
	int timer_fd; /* wakes who sleeps when a deadline comes */
	atomic_bool kicked;
	/* How many entries a program asks for that may get them quickly. */
#define RP_NOT_QUICK SIZE_MAX
	atomic_size_t quick_count;
	uint64_t timer_due;
	uint64_t clock; /* what rp_domain_now() has said, or more */
	uint64_t came;	/* how often a queue of the base's had something */

	/* FI_PROGRESS_AUTO only. */
	pthread_t thread;
	bool thread_on;
	struct rp_spin spin;
	atomic_bool stop;
	int epfd;
	atomic_uint refs;
};
int rp_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **dom, void *context);

/* --- mr.c --- */

extern struct fi_ops_mr rp_mr_ops;
/*
 * With the lock: a persistent region of this process that holds the bytes and
 * reaches the class. NULL: none; *why is the nearest reason.
 */
struct rp_region *rp_mr_holding(struct rp_dom *dom, const void *buf, size_t len,
				enum rp_class required, const char **why);

/*
 * Memory of ours that the base sends from or receives into; access as for
 * fi_mr_reg(). *mr is NULL where the base wants none registered.
 */
int rp_mr_hidden(struct rp_dom *dom, void *buf, size_t len, uint64_t access,
		 struct fid_mr **mr);
static inline void *rp_mr_desc(struct fid_mr *mr)
{
	return mr ? fi_mr_desc(mr) : NULL;
}

/* --- av.c --- */

struct rp_av {
	struct fid_av fid;
	struct rp_dom *dom;
	struct fid_av *base;
	struct fid_av *numbers; /* a table's numbers; NULL: the base's are it */
	/*
	 * Identity (NULL) until a hidden entry makes the base number a table
	 * differently from what the user was promised.
	 */
	fi_addr_t *to_base; /* by user index */
	size_t nuser, cap;  /* one past the highest address handed out */
	struct rp_av_user *users;
	struct rp_av_hidden *hidden, *hidden_by_base;
	atomic_uint refs;
};
int rp_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **av, void *context);
/*
 * With the domain's lock: may addr be given to the base? ofi_rxm does not
 * survive an address that was never inserted, or has been removed.
 */
bool rp_av_known(const struct rp_av *av, fi_addr_t addr);
static inline fi_addr_t rp_av_to_base(const struct rp_av *av, fi_addr_t addr)
{
	if (!av->to_base || addr == FI_ADDR_UNSPEC)
		return addr;
	return addr < av->nuser ? av->to_base[addr] : FI_ADDR_NOTAVAIL;
}
fi_addr_t rp_av_to_user(const struct rp_av *av, fi_addr_t addr);
/* With the domain's lock: is there an entry of ours for addr? */
bool rp_av_hidden_has(const struct rp_av *av, const void *addr, size_t len);
/* With the domain's lock: an entry to answer addr; balanced by _put. */
int rp_av_hidden_get(struct rp_av *av, const void *addr, size_t len,
		     fi_addr_t *out);
void rp_av_hidden_put(struct rp_av *av, fi_addr_t addr);

/* --- cq.c --- */

/* A completion that somebody else's read, or we, took for the user. */
struct rp_cqe {
	STAILQ_ENTRY(rp_cqe) link;
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	struct fi_cq_err_entry *err; /* then e is unused */
	bool ours;		     /* err: prov_errno is a status of ours */
	struct rp_outcome out;	     /* then */
};

struct rp_cq {
	struct fid_cq fid;
	struct rp_dom *dom;
	struct fid_cq *base;
	enum fi_cq_format format;
	size_t size;	  /* of one entry of the user's format */
	size_t base_size; /* of one entry of the base's */
	enum fi_wait_obj wait_obj;
	bool source;	    /* the base tells source addresses */
	bool unread;	    /* no program reads it: only ours matters */
	atomic_bool polled; /* by fi_poll(): what the base has is queued */
	struct rp_av *av;   /* of an endpoint bound to it, for sources */
	STAILQ_HEAD(, rp_cqe) queue;
	STAILQ_HEAD(, rp_cqe) spare;
	/* For fi_cq_strerror(): the last error read. */
	bool last_err_ours;
	struct rp_outcome last_out;
	int fatal; /* the base CQ is broken */
	int epfd;  /* what FI_GETWAIT gives */
	int ev_fd; /* queue filled, or fi_cq_signal() */
	atomic_bool signaled;
	bool ev_set;
	bool asleep;		/* the user may be waiting: fill wakes it */
	int quick;		/* reads until all else is looked after */
	unsigned int own_reads; /* in a row, that looked after nothing else */
	bool ours_seen;		/* by the read under way */
	/* What it found, where the program has too little room. */
	struct fi_cq_msg_entry raw;
	/*
	 * An endpoint bound to it was closed. ofi_rxm 1.17 leaves its wait
	 * entry behind, and fi_trywait() then reads freed memory (measured), so
	 * the base is not asked again: sleepers look every millisecond.
	 */
	bool no_trywait;
	struct rp_spin spin;
	uint64_t came; /* of the domain's, when it was last looked at */
	LIST_ENTRY(rp_cq) link;
	atomic_uint refs;
};
/* Of both kinds of queue, as programs read them: cq_read.c. */
extern struct fi_ops_cq rp_cq_ops, rp_cq_short_ops;
/* So many entries are taken from the base at once. */
#define RP_CQ_BATCH 16
/* With the lock: who went to sleep believing that there was nothing. */
void rp_cq_wake(struct rp_cq *cq);
void rp_cq_unwake(struct rp_cq *cq);
/* With the lock: one entry, or error, of the base's goes where it belongs. */
void rp_cq_dispatch(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		    fi_addr_t src, const struct fi_cq_err_entry *err);
int rp_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context);
/*
 * With the lock: a completion for the user, or an error entry (copied; out:
 * why a commit failed, NULL: the base said it).
 */
void rp_cq_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		fi_addr_t src);
/* The same, where it can be told later: 0 or -ENOMEM. */
int rp_cq_try_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		   fi_addr_t src);
void rp_cq_push_error(struct rp_cq *cq, const struct fi_cq_err_entry *err,
		      const struct rp_outcome *out);
/*
 * With the lock: take what the base has, ours to us and the rest queued. A
 * thousand at most: there may be more.
 */
void rp_cq_drain(struct rp_cq *cq);
/* A queue of a domain that is the base's own is none of ours. */
bool rp_cq_is_ours(const struct fid *fid);
/* The same, until the base says that there is nothing more; false: it did not.
 */
bool rp_cq_drain_all(struct rp_cq *cq);
/* 1: there is something to read; 0: nothing; or why there never will be. */
int rp_cq_ready(struct rp_cq *cq);
/* -FI_EAGAIN: do not sleep, there is something to read. */
int rp_cq_trywait(struct rp_cq *cq);

/* --- cntr.c --- */

enum rp_cntr_kind {
	RP_CNTR_SEND,
	RP_CNTR_RECV,
	RP_CNTR_READ,
	RP_CNTR_WRITE,
	RP_CNTR_REMOTE_READ,
	RP_CNTR_REMOTE_WRITE,
	RP_CNTR_KINDS
};

/* One of the two values of a counter; see cntr.c for why this is right. */
struct rp_tally {
	uint64_t hidden;	   /* completions of the base: not the user's */
	uint64_t told;		   /* ends that the base does not know */
	uint64_t moved;		   /* by fi_cntr_set() */
	atomic_uint_fast64_t last; /* told last: it does not go back */
};

struct rp_cntr {
	struct fid_cntr fid;
	struct rp_dom *dom;
	struct fid_cntr *base;
	struct rp_tally ok, err;
	bool sticky;		       /* an error stays until it is read */
	uint64_t base_err;	       /* as seen last */
	atomic_uint_fast64_t err_read; /* what the user knows */
	int epfd;		       /* what FI_GETWAIT gives, or -1 */
	int ev_fd;		       /* told or set */
	atomic_uint refs;
};
int rp_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context);
/*
 * With the lock, when a completion of the base is taken out of its queue that
 * its counter of this kind holds although it is not an end for the user: a
 * control message; a write whose end is that of its commit (and the same for
 * whatever else completes later than in the base).
 */
void rp_cntr_hide(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed);
/* With the lock: such an operation, or one that the base never saw, ends. */
void rp_cntr_tell(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed);
/* A counter of a domain that is the base's own is none of ours. */
bool rp_cntr_is_ours(const struct fid *fid);
/* -FI_EAGAIN: do not sleep, it has changed. */
int rp_cntr_trywait(struct rp_cntr *cntr);

/* --- poll.c --- */

int rp_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		 struct fid_poll **poll);
/* A queue or counter is being closed. */
void rp_poll_forget(struct rp_dom *dom, const struct fid *fid);

/* --- fid.c: what an object has no use for --- */

int rp_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int rp_no_control(struct fid *fid, int command, void *arg);
int rp_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);

/* --- wait.c --- */

int64_t rp_wait_now(void); /* ms */
int rp_wait_watch(int epfd, int fd);
/*
 * A descriptor that wakes for the base's, for an eventfd of one's own, and for
 * what the domain has to say. On failure too, what is not -1 is to be closed.
 */
int rp_wait_open(struct rp_dom *dom, int base_fd, int *ev_fd, int *epfd);

/* --- progress.c --- */

/*
 * With the lock: the time for deadlines and for looks that are due. Never goes
 * back, and may be some ms late as long as nobody sleeps until one of them.
 */
uint64_t rp_domain_now(struct rp_dom *dom);
/* With the lock: everything that is due, on every CQ of the domain. */
void rp_domain_progress(struct rp_dom *dom);
/* Of it, what connections of our own bring. True: something has ended. */
bool rp_domain_progress_conns(struct rp_dom *dom);
/* And the rest, but for one queue (or NULL), which has just been read. */
void rp_domain_progress_rest(struct rp_dom *dom, const struct rp_cq *but);
/* With the lock: what has woken sleepers has done so. */
void rp_domain_hush(struct rp_dom *dom);
/*
 * With the lock: a timer for the next deadline, before somebody sleeps. soon:
 * nothing will announce what the base has, so look again shortly.
 */
void rp_domain_arm(struct rp_dom *dom, bool soon);
/* With the lock: 0, or -FI_EAGAIN when the base has something for this CQ. */
int rp_cq_base_trywait(struct rp_cq *cq, bool *soon);
void rp_domain_kick(struct rp_dom *dom);
int rp_domain_thread_start(struct rp_dom *dom);
void rp_domain_thread_stop(struct rp_dom *dom);

/* --- ep.c --- */

struct rp_ep {
	struct fid_ep fid;
	struct rp_dom *dom;
	struct fid_ep *base;
	struct rp_av *av;
	struct rp_cq *tx_cq, *rx_cq;
	struct rp_cq *own_cq; /* bound where the user bound none */
	struct rp_cntr *cntr[RP_CNTR_KINDS];
	uint64_t op_flags; /* default transmit flags of the user */
	bool straight;	   /* addresses are the base's, and nothing commits */
	bool selective, rx_selective;
	bool enabled;
	bool dead; /* being closed */
	size_t inject_size;
	uint64_t unasked; /* FI_COMMIT_COMPLETE: of each write to a file */
	bool keeps_waw;	  /* the program was promised the order of its writes */
	bool keeps_order; /* ... or that of writes and messages, or fences */
	enum rp_class required;
	struct rp_xport xport;
	struct rp_initiator *initiator; /* with the first tracked write */
	atomic_uint stores;		/* behind commits that have no end */
	struct rp_gather *gather;	/* to be sent; NULL: nothing */
	struct rp_gather *gather_spare;
	unsigned int nrecv, recv_due; /* hidden receives, and not posted */
	bool serving; /* its hidden receives hold requests, not just answers */
	struct rp_recv_bufs *recv_bufs;
	struct rp_slot *last_posted; /* of the hidden receives; NULL: unknown */
	bool recv_seen;		     /* one has completed since: */
	uint64_t recv_looked;
	size_t addr_len;
	uint8_t addr[RP_WIRE_MAX_ADDR];
	LIST_ENTRY(rp_ep) link;
	/* Of connected endpoints: cm.h. */
	struct rp_mail *mail;
	bool connected;		    /* and it still is */
	bool bare;		    /* to somebody who told no mailbox */
	struct fid *handle;	    /* of who asked, until that is accepted */
	struct fid_eq *eq;	    /* the base's, bound to it */
	LIST_ENTRY(rp_ep) msg_link; /* of fab->msg_eps */
};
/* What a program's call to enable it does. */
int rp_ep_enable(struct rp_ep *ep);
int rp_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **ep, void *context);
/* The program says which completions it wants by flags and binding. */
/* Flags of ours that the base must not see. */
#define RP_OUR_FLAGS (FI_COMMIT_COMPLETE | FI_RPMEM_SAVE)
/* Where a call says nothing else. */
static inline bool rp_ep_commits(const struct rp_ep *ep)
{
	return ep->op_flags & FI_COMMIT_COMPLETE;
}
/* After its vector or its default flags have changed. */
void rp_ep_straighten(struct rp_ep *ep);
static inline bool rp_ep_wants(const struct rp_ep *ep, uint64_t flags)
{
	return !ep->selective || (flags & FI_COMPLETION);
}
extern struct fi_ops_msg rp_msg_ops;
extern struct fi_ops_tagged rp_tagged_ops;
extern struct fi_ops_rma rp_rma_ops;	 /* keys of ours */
extern struct fi_ops_rma rp_rma_raw_ops; /* keys of the application */
extern struct fi_rpmem_ops rp_ext_ops;
extern struct fi_rpmem_domain_ops rp_ext_domain_ops;

/* --- rma.c --- */

/* All its pieces, one behind the other. */
static inline void rp_msg_copy(char *to, const struct fi_msg_rma *msg)
{
	for (size_t i = 0; i < msg->iov_count; i++) {
		memcpy(to, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		to += msg->msg_iov[i].iov_len;
	}
}

/*
 * A write or atomic that a commit may cover. The base is asked for delivery
 * whatever the program asked for: only its acknowledgement proves placement,
 * and a completion must come back to us for every one.
 */
struct rp_track {
	const struct fi_rma_iov *ranges; /* as the program names them */
	size_t nranges;
	fi_addr_t dest;
	bool commit;
	bool notify; /* ... which tells the target's program, with data */
	bool want;   /* the program wants a completion */
	void *context;
	uint64_t flags; /* of its completion */
	uint64_t data;
};
/*
 * With the lock: everything that may fail, before the base sees the operation.
 * The slot is its context there, and then is _posted() or, refused, _undo().
 */
int rp_track_begin(struct rp_ep *ep, const struct rp_track *t,
		   struct rp_slot **out);
void rp_track_posted(struct rp_slot *s);
void rp_track_undo(struct rp_slot *s);
/* The flags of an operation, as the base gets them. */
uint64_t rp_track_flags(const struct rp_slot *s, uint64_t flags);

/* With the lock: the peer of this address, made on first use. */
int rp_rma_peer(struct rp_ep *ep, fi_addr_t dest, struct rp_peer **peer);
/* The commit of a slot has ended. */
void rp_rma_commit_done(void *arg, const struct rp_outcome *out);
/* A slot of kind WRITE was completed by the base; err NULL: success. */
void rp_rma_completed(struct rp_slot *s, const struct fi_cq_tagged_entry *e,
		      const struct fi_cq_err_entry *err);
/* No commit where the program chooses the keys: says so, the error. */
int rp_rma_unmarked(void);
/*
 * Does an operation on these ranges of dest meet the store of a commit under
 * way? Then -FI_EAGAIN is the answer.
 */
bool rp_rma_meets_store(struct rp_ep *ep, fi_addr_t dest,
			const struct fi_rma_iov *iov, size_t n);
/*
 * Post a commit for the user. then NULL: no store behind it. want: a completion
 * on success too.
 */
ssize_t rp_rma_commit(struct rp_ep *ep, const struct fi_rma_iov *ranges,
		      size_t count, fi_addr_t dest, enum rp_level level,
		      enum rp_class required, const struct fi_rpmem_then *then,
		      bool want, void *context);

/* With the lock: the completion of a slot's operation, or its error entry. */
void rp_slot_tell_ok(struct rp_slot *s);
/* out NULL: prov_errno is the base's. */
void rp_slot_tell_error(struct rp_slot *s, int err, int prov_errno,
			const struct rp_outcome *out);

/* --- local.c --- */

/* A read that completes when its bytes are durable here. */
ssize_t rp_local_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		      uint64_t flags);
/* A slot of kind READ was completed by the base; err NULL: success. */
void rp_local_completed(struct rp_slot *s, const struct fi_cq_err_entry *err);
/* The agent has dropped the endpoint: end what waits for its flushes. */
void rp_local_abandon(struct rp_ep *ep);

/* --- fence.c --- */

/* Is the base one over which a read proves something? */
bool rp_fence_is_proof(const struct rp_dom *dom);
/* For struct rp_xport_ops. */
int rp_fence_post(struct rp_xport *x, uint64_t peer, uint64_t base_key,
		  uint64_t addr, size_t len, struct rp_fence *f);
/* The read itself, with this slot: 0 or -errno. */
int rp_fence_read(struct rp_ep *ep, uint64_t peer, uint64_t base_key,
		  uint64_t addr, size_t len, struct rp_slot *s);
/* A slot of kind FENCE came back. err: positive, 0: success. */
void rp_fence_completed(struct rp_slot *s, int err);

/* --- linked.c --- */

/*
 * With the lock: a durable write that goes over a connection of our own. False:
 * not this one, or not now. True: *ret is what became of it.
 */
bool rp_linked_write(struct rp_ep *ep, const struct fi_msg_rma *msg, size_t len,
		     uint64_t flags, bool want, ssize_t *ret);

/* Over which a reserved commit goes, if it can; else false. */
bool rp_linked_commit(struct rp_ep *ep, struct rp_slot *s);

/* --- gather.c --- */

/*
 * With the lock: a small write that goes over such a connection in a message
 * with others, which the next progress sends. Else as rp_linked_write().
 */
bool rp_gather_write(struct rp_ep *ep, const struct fi_msg_rma *msg, size_t len,
		     uint64_t flags, bool want, ssize_t *ret);
/* Send what has been gathered. False: not now. */
bool rp_gather_send(struct rp_ep *ep);
/* The same, or it is canceled; then what is left, once all has ended. */
void rp_gather_close(struct rp_ep *ep);
void rp_gather_free(struct rp_ep *ep);

/* --- atomic.c --- */

extern struct fi_ops_atomic rp_atomic_ops;
struct rp_carry;
/* Its results are the program's from now on. */
void rp_atomic_land(const struct rp_carry *c);

/* --- xport.c: control messages on the endpoint of the data --- */

extern const struct rp_xport_ops rp_xport_ops;
/* Of these, what connected endpoints have as well. */
uint64_t rp_xport_now(struct rp_xport *x);
int rp_xport_random(struct rp_xport *x, void *buf, size_t len);
int rp_xport_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len);
void rp_xport_kick(struct rp_xport *x);
/* What came on an endpoint of this domain. */
void rp_xport_received(struct rp_ep *ep, const uint8_t *msg, size_t len);
/*
 * With the lock: start listening for control messages. serve: requests too,
 * not just answers; from then on for good.
 */
int rp_xport_activate(struct rp_ep *ep, bool serve);
/*
 * With the lock, from progress: whether messages that never end have taken all
 * hidden receives, and then more of them.
 */
void rp_xport_look(struct rp_ep *ep);
/* The buffer of a slot of kind SEND may be used again. */
void rp_xport_unsend(struct rp_slot *s);
/* The base endpoint is gone. */
void rp_xport_free(struct rp_ep *ep);
/* The same of what the endpoints of a domain share, once they are gone. */
void rp_xport_fini(struct rp_dom *dom);
/* With the lock: post receives that could not be posted before. */
void rp_xport_repost(struct rp_ep *ep);
/* A slot of kind SEND or RECV came back. err: positive, 0: success. */
void rp_xport_completed(struct rp_slot *s, size_t len, int err);
/* With the lock: the initiator of this endpoint, made on first use. */
int rp_xport_initiator(struct rp_ep *ep, struct rp_initiator **out);

#endif
