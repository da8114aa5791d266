/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of the libfabric provider, one per libfabric object. */
#ifndef RPMEM_H
#define RPMEM_H

#include <limits.h>
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
#include "core/list.h"
#include "core/session.h"
#include "core/spin.h"
#include "rc/rc.h"

#define RP_PROV_NAME "ofi_rpmem"

/*
 * Names that libfabric 2 lacks or deprecates: a mode, and the two registration
 * modes from before the bits of mr_mode.
 */
#define RP_BUFFERED_RECV  (1ull << 51)
#define RP_MR_BEFORE_BITS 3

extern struct fi_provider rp_prov;

#define RP_WARN(subsys, ...) FI_WARN(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)
#define RP_INFO(subsys, ...) FI_INFO(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)

/* The operator's parameters, read once when the provider is loaded. */
struct rp_params {
	enum rp_class required;
	uint64_t timeout_ns;
	uint64_t slow_rate;
	int emulate;
	char *trust_fs;
	char *operator_file; /* statements; NULL: the default file */
	char *method;	     /* forced, by name; NULL: none */
	size_t max_commits;
	size_t credits;
	size_t max_sessions;
	size_t inline_max; /* durable writes up to this are one message */
	uint64_t spin_ns;  /* busy-poll budget before a sleep */
	uint16_t port_first, port_last; /* of listeners; 0: any */
	int native;	   /* FLUSH may be used, if devices have it */
	int commit_writes; /* commits for programs that request none */
};
extern struct rp_params rp_params;

/* --- info.c: the entries of fi_getinfo(), and the base's --- */

/*
 * The base's own list for a base's name ("tcp"): RDM endpoints only, all of one
 * layering. hints are a program's; NULL: anything.
 */
int rp_info_base(uint32_t version, const char *node, const char *service,
		 uint64_t flags, const struct fi_info *hints, const char *base,
		 struct fi_info **list);
/* A copy of the list's entry whose domain is that of info. */
int rp_info_pick(const struct fi_info *list, const struct fi_info *info,
		 struct fi_info **out);
/* A program's fi_info with the base's attributes and fids, without a handle. */
struct fi_info *rp_info_to_base(const struct fi_info *info,
				enum fi_ep_type type, const char *prov_name);
/* Replace the provider's name. False: no memory. */
bool rp_info_set_prov(struct fi_info *i, const char *name);
/* Remove an entry from its list, and free it. */
void rp_info_drop(struct fi_info **link);
/* Hints that every entry suits; NULL: no memory. */
struct fi_info *rp_info_any(uint32_t version);
/* "tcp" from "tcp;ofi_rpmem"; NULL: no base is named. Caller frees. */
char *rp_info_base_name(const char *prov_name);
/*
 * Are these hints, or the entry returned for them, for the base alone
 * (endpoints and features that are not layered over)?
 */
bool rp_info_is_direct(const struct fi_info *info);
/* The base's own connected endpoints; -FI_ENODATA: none. */
int rp_info_direct(uint32_t version, const char *base, struct fi_info **list);
/* The base's own entries of an endpoint type, without utility providers. */
int rp_info_direct_list(uint32_t version, const char *node, const char *service,
			uint64_t flags, const struct fi_info *hints,
			const char *base, enum fi_ep_type type,
			struct fi_info **list);
/*
 * Keys with a mark change mr_mode, so a program that excludes the mode gets the
 * base's keys.
 */
bool rp_info_may_make_keys(uint32_t version, const struct fi_info *hints);
/* Was this entry returned with persistent keys? */
bool rp_info_is_marked(const struct fi_info *info);
/* Offer persistent keys with this entry of the base, or -FI_ENODATA. */
int rp_info_mark(const struct fi_info *hints, struct fi_info *i);
/* Set what all of ofi_rpmem's entries have in common, whatever the keys. */
void rp_info_to_ours(const struct fi_info *hints, struct fi_info *i);
int rp_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info);

/* --- fabric.c --- */

struct rp_fabric {
	struct fid_fabric fid;
	/*
	 * The provider's own fabric: for event queues, objects that are not
	 * layered over, its own reliable datagrams; NULL: see layered.
	 */
	struct fid_fabric *direct;
	struct fid_fabric *layered; /* ofi_rxm over it, opened on first use */
	char *base_name;	    /* its name in hints: "tcp" */
	pthread_mutex_t lock;	    /* for layered and given */
	/* Entries that the base was given: sockets still reads them. */
	struct fi_info *given;
	uint32_t version;
};
int rp_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context);
/* The base's fabric of this entry, native or layered. */
int rp_fabric_base(struct rp_fabric *fab, const struct fi_info *base,
		   struct fid_fabric **out);

/* --- domain.c --- */

struct rp_private; /* private.c */
struct rp_ep;

struct rp_dom {
	struct fid_domain fid;
	struct rp_fabric *fabric;
	struct fid_fabric *base_fabric;
	struct fid_domain *base;
	struct fi_info *base_info; /* the base was opened with this info */
	bool marked;		   /* the provider makes keys, with marks */
	bool msg;		   /* has connected endpoints */
	bool auto_progress;
	uint64_t incarnation;

	/*
	 * One lock for everything below: private connections, core, queues of
	 * private entries. Taken before any lock of the base, and never held
	 * while the program's code runs.
	 */
	pthread_mutex_t lock;
	/*
	 * The domain may have private traffic or persistent regions. While it
	 * is false every call on the domain's objects is the base's after one
	 * relaxed load.
	 */
	atomic_bool live;
	struct rp_private *private; /* NULL until first use */
	struct rp_agent *agent;	    /* since the first persistent region */
	struct rp_agent_host host;  /* target.c */
	unsigned int npmem;
	unsigned int nremote; /* endpoints that count what peers write: then no
				 persistent region is allowed (mr.c) */
	LIST_HEAD(, rp_mr) pmems;
	LIST_HEAD(, rp_cq) cqs;
	LIST_HEAD(, rp_ep) eps;
	struct rp_task_pool {
		struct rp_task *free;
		struct rp_task_chunk *chunks;
		struct rp_bounce_pool *bounce;
	} tasks;
	int kick_fd;  /* progress is due: worker done, request due */
	int timer_fd; /* wakes sleepers at a deadline */
	/*
	 * An epoll descriptor for kick_fd, timer_fd and the private
	 * connections. Sleepers watch it if the domain has no thread.
	 */
	int wake_fd;
	/*
	 * Somebody may sleep: the thread of FI_PROGRESS_AUTO, or a program with
	 * a queue or counter with a descriptor. Never false again.
	 */
	atomic_bool sleeps;
	/* Reads of queues that may still poll only the base's; cq_read.c. */
#define RP_QUICK_ALWAYS INT_MAX /* not live */
	atomic_int quick;
	atomic_uint queued; /* private entries in all queues */
	/* The base may have entries of local.c. Never false again. */
	atomic_bool shares;
	atomic_bool kicked;
	uint64_t timer_due;
	uint64_t clock; /* latest result of rp_domain_now(), or more */

	/* FI_PROGRESS_AUTO only; started with `live`. */
	pthread_t thread;
	bool thread_on;
	struct rp_spin spin;
	atomic_bool stop;
	atomic_uint refs;
};
int rp_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **dom, void *context);
static inline void rp_dom_set_quick(struct rp_dom *dom, int reads)
{
	atomic_store_explicit(&dom->quick, reads, memory_order_relaxed);
}
static inline bool rp_dom_live(const struct rp_dom *dom)
{
	return atomic_load_explicit(&dom->live, memory_order_relaxed);
}

/* --- private.c: the private connections of a domain --- */

/*
 * With the lock: opened on first use. Backend: VERBS if the base is verbs, else
 * TCP, at the address of an endpoint of the domain (or, without one, of the
 * domain's info). NULL: errno and *why (RP_WHY_LEN bytes) say why; EOPNOTSUPP:
 * not over this base.
 */
struct rp_private *rp_private_get(struct rp_dom *dom, char *why);
/* With the lock: listen, once; *port is for keys. 0 or -errno. */
int rp_private_listen(struct rp_dom *dom, uint16_t *port, char *why);
/* Does the base support private connections? Else *why (RP_WHY_LEN bytes). */
bool rp_private_possible(const struct fi_info *base, char *why);
/* NULL: there are no private connections yet. */
struct rp_rc *rp_private_rc(const struct rp_dom *dom);
/* "verbs" or "tcp": the transport of the domain's private connections. */
const char *rp_private_transport(const struct rp_dom *dom);
void rp_private_end(struct rp_dom *dom);
void rp_private_close(struct rp_dom *dom);

/* A session's entry: address of an endpoint's peer, and port of a key. */
struct rp_dest;

/*
 * With the lock: the session of an endpoint with the target domain of a key:
 * address of dest (fi_av_lookup(), or fi_getpeer() of a connected endpoint,
 * which ignores dest) and port of the key; made on first use, idle ones are
 * closed if there are too many. *out, 0; -FI_EINVAL: no such address;
 * -FI_EAGAIN: too many are in use; -FI_ENOMEM; ... The caller must post to the
 * session before it releases the lock.
 */
int rp_private_session(struct rp_ep *ep, fi_addr_t dest, uint64_t key,
		       struct rp_session **out);
/* Afterwards: the port of the peer's endpoint, for rp_op. */
uint16_t rp_private_endpoint(const struct rp_ep *ep);
/* The port by which the base's peers know this endpoint; 0: none. */
uint16_t rp_private_port(const struct rp_ep *ep);
/* With the lock: rp_session_post() to the result of rp_private_session(). */
int rp_private_post(struct rp_dom *dom, struct rp_session *s, struct rp_op *op);
/*
 * With the lock: dest leaves the vector, or the endpoint's peer is gone. Its
 * sessions are disconnected (RP_ST_CANCELED) and no longer found by dest; by
 * address and port they still are.
 */
void rp_private_forget(struct rp_ep *ep, fi_addr_t dest);
/*
 * With the lock, while queues and counters are bound: the endpoint closes; each
 * of its tasks ends (RP_ST_CANCELED or RP_ST_UNSURE).
 */
void rp_private_close_ep(struct rp_ep *ep);
/*
 * With the lock: -FI_EAGAIN if the order that the program asked for makes an
 * operation to dest wait for earlier writes; a fence to prove them is posted.
 */
int rp_private_order(struct rp_ep *ep, fi_addr_t dest);
/* With the lock: serve connections and sessions. True: did something. */
bool rp_private_progress(struct rp_dom *dom);
uint64_t rp_private_deadline(const struct rp_dom *dom);

/* --- target.c: the agent's host --- */

/* With the lock: make the domain's agent on first use, and listen. */
int rp_target_open(struct rp_dom *dom, uint16_t *port, char *why);
/* Register with the device, if one registration serves all connections. */
int rp_target_reg(struct rp_mr *mr);
void rp_target_dereg(struct rp_mr *mr);
/* End the private connections from the peer that the program accepted. */
void rp_target_end_peer(struct rp_ep *ep);
void rp_target_close(struct rp_dom *dom);

/* --- cq.c: private completions, until the program reads them --- */

struct rp_cqe {
	STAILQ_ENTRY(rp_cqe) link;
	struct rp_task *task; /* freed with it; NULL: it is allocated */
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	bool failed;		    /* then err is used, not e */
	struct fi_cq_err_entry err; /* prov_errno is an rp_status */
	struct rp_outcome out;
};

/* --- task.c: one operation of the program on a persistent region --- */

struct rp_task {
	struct rp_op op; /* first: op->done finds the task */
	struct rp_task *next;
	struct rp_ep *ep;
	void *context;
	uint64_t flags; /* of the completion entry */
	uint8_t kind;	/* enum rp_cntr_kind that counts it */
	bool want;	/* a completion entry also on success */
	struct rp_wire_range ranges[RP_CHANNEL_IOV];
	/* Local memory that the device must know (rp_task_post()). */
	struct rp_rc_mr mr;
	void *bounce; /* from malloc(), or the domain's pool */
	struct iovec user[RP_CHANNEL_IOV]; /* READ: destinations of bounce */
	size_t nuser;
	void *extra; /* from malloc(), freed with the task */
	/* Its completion entry, so that an entry never lacks memory. */
	struct rp_cqe cqe;
};
/* With the lock. op.done, op.required and ep are set, all else is 0. */
struct rp_task *rp_task_get(struct rp_dom *dom, struct rp_ep *ep);
void rp_task_put(struct rp_dom *dom, struct rp_task *t);
void rp_task_pool_fini(struct rp_dom *dom);
/*
 * op.done of tasks: count the completion, and free the task or queue its entry
 * by rp_cq_push_task(), whose reader frees it.
 */
void rp_task_done(struct rp_op *op, const struct rp_outcome *out);
/* With the lock: copy the bytes of a read to the program's memory. */
void rp_task_copy_back(struct rp_task *t);
/*
 * With the lock: post to the session; on failure the task is freed. Memory of
 * op.iov that the device must know is copied or registered.
 */
ssize_t rp_task_post(struct rp_task *t, struct rp_session *s);

/* --- mr.c --- */

struct rp_mr {
	struct fid_mr fid;
	struct rp_dom *dom;
	struct fid_mr *base; /* NULL: persistent, unknown to the base */
	bool persistent;
	bool served;	 /* known to the agent */
	uint64_t access; /* the program's: FI_REMOTE_READ, FI_REMOTE_WRITE */
	/* VERBS only: one registration for all connections. */
	struct rp_rc_mr shared;
	bool flushed;	    /* ... and it allows FLUSH */
	enum rp_tri native; /* does the device have FLUSH? */
	struct rp_region region;
	LIST_ENTRY(rp_mr) link; /* in dom->pmems */
};
extern struct fi_ops_mr rp_mr_ops;
/* Find the facts of the region, at its registration or later. 0 or -errno. */
int rp_mr_facts(struct rp_mr *mr, struct rp_facts *facts, char *why);
/*
 * With the lock: a local persistent region that contains the bytes and reaches
 * the class. NULL: none; *why is the closest reason.
 */
struct rp_region *rp_mr_holding(struct rp_dom *dom, const void *buf, size_t len,
				enum rp_class required, const char **why);

/* --- av.c: forwards to the base, and records the addresses --- */

struct rp_av {
	struct fid_av fid;
	struct rp_dom *dom;
	struct fid_av *base;
	struct rp_av_known *known; /* guarded by the lock */
	atomic_uint refs;
};
int rp_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **av, void *context);
/* With the lock: the sockaddr of an address; -FI_EINVAL: not in the vector (any
 * value). */
int rp_av_sockaddr(struct rp_av *av, fi_addr_t addr, void *buf, size_t *len);
/* Is the sockaddr that of a host, with this port instead of the host's? */
bool rp_addr_is(const union rp_rc_addr *addr, const struct sockaddr *host,
		uint16_t port);
/* With the lock: the address of such an entry, or FI_ADDR_NOTAVAIL. */
fi_addr_t rp_av_find(struct rp_av *av, const struct sockaddr *host,
		     uint16_t port);

/* --- cq.c, cq_read.c: the base's queue, and private entries --- */

struct rp_cq {
	struct fid_cq fid;
	struct rp_dom *dom;
	struct fid_cq *base;
	size_t size; /* of one entry */
	enum fi_wait_obj wait_obj;
	STAILQ_HEAD(, rp_cqe) queue; /* guarded by the domain's lock */
	atomic_uint turns; /* successive reads filled by private entries */
	atomic_uint hot;   /* polls that may still skip the base */
	LIST_HEAD(, rp_local_read) reading; /* local.c: posted on the base */
	bool last_err_ours; /* fi_cq_strerror(): of the last error read */
	struct rp_outcome last_out;
	int epfd;  /* returned by FI_GETWAIT */
	int ev_fd; /* private entries, or fi_cq_signal() */
	atomic_bool signaled;
	bool ev_set;
	bool parked; /* the program may sleep: a new private entry wakes it */
	/* An ofi_rxm endpoint was closed; cq_read.c. */
	atomic_bool no_trywait;
	int soon_fd;
	atomic_bool came; /* private work since a sleeper's last poll */
	struct rp_spin spin;
	LIST_ENTRY(rp_cq) link;
	atomic_uint refs;
};
int rp_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context);
/*
 * With the lock: queue t->cqe (e, or failed, err and out), in order. t->ep is
 * not used any more. Never fails.
 */
void rp_cq_push_task(struct rp_cq *cq, struct rp_task *t);
/* With the lock: an entry without a task (remote CQ data). 0 or -FI_ENOMEM. */
int rp_cq_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
	       fi_addr_t src);
/* Takes the lock. 0, or -FI_EAGAIN: there is something to read. */
int rp_cq_trywait(struct rp_cq *cq);
/* 1: there is a private entry; 0: none. */
int rp_cq_ready(struct rp_cq *cq);
extern struct fi_ops_cq rp_cq_ops;
extern struct fi_ops rp_cq_fid_ops, rp_cntr_fid_ops;
/* With the lock: a sleeper polls again; all it slept for was read. */
void rp_cq_wake(struct rp_cq *cq);
void rp_cq_unwake(struct rp_cq *cq);
/* With the lock: remove the first entry, which was read. */
void rp_cq_drop_first(struct rp_cq *cq);
/* Is it ofi_rpmem's queue, not one of a domain that is the base's own? */
static inline bool rp_cq_is_ours(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CQ && fid->ops == &rp_cq_fid_ops;
}

/* --- cntr.c: the base's counter; private completions by fi_cntr_add() */

enum rp_cntr_kind {
	RP_CNTR_SEND,
	RP_CNTR_RECV,
	RP_CNTR_READ,
	RP_CNTR_WRITE,
	RP_CNTR_REMOTE_READ,
	RP_CNTR_REMOTE_WRITE,
	RP_CNTR_KINDS
};
struct rp_cntr {
	struct fid_cntr fid;
	struct rp_dom *dom;
	struct fid_cntr *base;
	bool sticky;	    /* the base keeps an error until it is read */
	atomic_uint errors; /* of private completions */
	int epfd, ev_fd;    /* returned by FI_GETWAIT; -1: the base's is */
	atomic_uint refs;
};
int rp_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context);
void rp_cntr_count(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed);
static inline bool rp_cntr_is_ours(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CNTR && fid->ops == &rp_cntr_fid_ops;
}
/* Takes the lock. 0, or -FI_EAGAIN: do not sleep. */
int rp_cntr_trywait(struct rp_cntr *cntr);

/* --- poll.c, poll_member.c, fid.c, wait.c --- */

int rp_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		 struct fid_poll **poll);
/* Remove a queue or counter that is about to be closed from its sets. */
void rp_poll_forget(const struct fid *fid);
int rp_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int rp_no_control(struct fid *fid, int command, void *arg);
int rp_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);
/* The base's object: of an endpoint, shared context or passive endpoint. */
struct fid *rp_fid_base(struct fid *fid);
int rp_base_control(struct fid *fid, int command, void *arg);
int64_t rp_wait_now(void); /* ms */
int rp_wait_watch(int epfd, int fd);
/*
 * A descriptor that wakes for the base's, for a new eventfd, and for the
 * domain's progress. On failure the caller closes those that are not -1.
 */
int rp_wait_open(struct rp_dom *dom, int base_fd, int *ev_fd, int *epfd);

/* --- progress.c --- */

uint64_t rp_domain_now(struct rp_dom *dom);
/* With the lock: connections, sessions, agent. True: did something. */
bool rp_domain_progress(struct rp_dom *dom);
/*
 * With the lock: make progress, and set the timer for the next deadline. 0, or
 * -FI_EAGAIN: do not sleep yet.
 */
int rp_domain_trywait(struct rp_dom *dom);
/* From any thread, without the lock. */
void rp_domain_kick(struct rp_dom *dom);
/*
 * Another thread makes progress or posts while somebody may sleep: wake the
 * sleepers at this time, unless they wake before, for what only a poll reports.
 */
void rp_domain_tell_sleepers(struct rp_dom *dom, uint64_t due);
/* With the lock: from now on calls also serve private traffic. */
int rp_domain_go_live(struct rp_dom *dom);
void rp_domain_thread_stop(struct rp_dom *dom);

/* --- ep.c --- */

/* The program's fid for a base's object in events. */
struct rp_eq_name {
	LIST_ENTRY(rp_eq_name) link;
	struct fid *base; /* NULL: not in the list */
	struct fid *ours;
};

struct rp_ep {
	struct fid_ep fid;
	struct rp_dom *dom;
	struct fid_ep *base;
	struct rp_av *av;
	struct rp_cq *tx_cq, *rx_cq;
	struct rp_cntr *cntr[RP_CNTR_KINDS];
	uint64_t op_flags; /* default transmit flags of the program */
	/* The mark of persistent keys; UINT64_MAX: keys are the program's. */
	uint64_t mark;
	bool selective;
	bool plain; /* calls without flags neither commit nor wait for order */
	bool enabled;
	bool connected; /* connected endpoint: the program has read
			   FI_CONNECTED, and no shutdown */
	size_t inject_size;
	uint64_t
		implicit_flags; /* implicit FI_COMMIT_COMPLETE of file writes */
	uint64_t msg_order;	/* promised to the program */
	bool msg_waits;		/* messages wait for persistent writes */
	enum rp_class required;
	/* private.c: sessions by fi_addr_t; the last one found. */
	struct rp_dest *dests, *last_dest;
	struct rp_peer *peers; /* and by sockaddr */
	uint16_t port; /* target.c: known to peers; 0: not looked up yet */
	union rp_rc_addr accepted; /* peer of fi_accept(), or 0 */
	LIST_ENTRY(rp_ep) link;
	struct rp_eq_name name; /* connected endpoints: for events */
	LIST_HEAD(, rp_local_read) flushing; /* local.c */
};
int rp_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **ep, void *context);
/* Drop the references of a closed endpoint or context, and free it. */
void rp_ep_release(struct rp_ep *ep);
static inline struct rp_ep *rp_ep_of(struct fid *fid)
{
	return rp_container_of(fid, struct rp_ep, fid.fid);
}
static inline struct fid_ep *rp_ep_base(struct fid_ep *fid)
{
	return rp_ep_of(&fid->fid)->base;
}
static inline bool rp_ep_wants(const struct rp_ep *ep, uint64_t flags)
{
	return !ep->selective || (flags & FI_COMPLETION);
}
/* Is it the key of a persistent region? */
static inline bool rp_ep_persistent(const struct rp_ep *ep, uint64_t key)
{
	return key >> RP_KEY_MARK_SHIFT == ep->mark;
}
/* Is a short call of the base the same as its message form? */
static inline bool rp_ep_plain(const struct rp_ep *ep, uint64_t key)
{
	return !rp_ep_persistent(ep, key) && ep->plain;
}
/* Flags of calls without flags. */
static inline uint64_t rp_ep_flags(const struct rp_ep *ep)
{
	return ep->op_flags | (ep->selective ? 0 : FI_COMPLETION);
}
/*
 * Must the base's operation for dest wait for persistent ones? 0, or
 * -FI_EAGAIN. Takes the lock.
 */
int rp_ep_wait_order(struct fid_ep *fid, fi_addr_t dest);
int rp_ep_check_flags(struct fid_ep *fid, fi_addr_t dest, uint64_t flags);
/*
 * The same for a message, if the endpoint or FI_FENCE asks for that order;
 * FI_COMMIT_COMPLETE is refused.
 */
static inline int rp_ep_check_message(struct fid_ep *fid, fi_addr_t dest,
				      uint64_t flags)
{
	if (!rp_ep_of(&fid->fid)->msg_waits &&
	    !(flags & (FI_COMMIT_COMPLETE | FI_FENCE)))
		return 0;
	return rp_ep_check_flags(fid, dest, flags);
}
extern struct fi_ops_ep rp_ep_ops;
extern struct fi_ops_msg rp_msg_ops;
extern struct fi_ops_tagged rp_tagged_ops;
extern struct fi_ops_rma rp_rma_ops;
extern struct fi_ops_atomic rp_atomic_ops;
/* fi_query_atomic(): supported by both the base and the agent. */
int rp_atomic_query(const struct rp_dom *dom, enum fi_datatype type,
		    enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);
extern struct fi_rpmem_ops rp_ext_ops;
extern struct fi_rpmem_domain_ops rp_ext_domain_ops;

/* --- rma.c --- */

/*
 * With the lock: a task for an operation on a persistent key of dest, and the
 * session to post it to. No task on failure; -FI_EAGAIN has made progress.
 */
int rp_rma_begin(struct rp_ep *ep, fi_addr_t dest, uint64_t key, uint64_t flags,
		 struct rp_task **t, struct rp_session **s);
/* With the lock: rp_task_post(); -FI_EAGAIN has made progress. */
ssize_t rp_rma_end(struct rp_task *t, struct rp_session *s);
/*
 * With the lock: read from persistent memory. extra (from malloc()) becomes the
 * task's; on failure it is freed.
 */
ssize_t rp_rma_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		    uint64_t flags, rp_op_fn done, void *extra);
/* Log that memory whose key has no mark has no commits; returns the error. */
int rp_rma_unmarked(void);

/*
 * Post a commit (kind COMMIT) or a write of zeros (kind WRITE) for the program:
 * level and required are those of msg.
 */
ssize_t rp_rma_ranges(struct rp_ep *ep, const struct fi_rpmem_msg *msg,
		      enum rp_level level, enum rp_class required,
		      enum rp_op_kind kind);

/* --- local.c --- */

/* A task's `extra`: the destination, until its bytes are flushed. */
struct rp_local_read {
	struct fi_context2 context; /* first: context of the base */
	struct rp_task *task;
	LIST_ENTRY(rp_local_read) link; /* in cq->reading, then ep->flushing */
	bool flushing;
	bool closed; /* its endpoint was closed during the base's read */
	size_t niov;
	struct iovec iov[RP_CHANNEL_IOV];
};
/* A read that completes when its bytes are durable in local memory. */
ssize_t rp_local_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		      uint64_t flags, bool persistent);
/* With the lock: the endpoint closes; end its flushes. */
void rp_local_close_ep(struct rp_ep *ep);
/*
 * Take entries of such reads out of n entries of the base: returns how many are
 * left, or -FI_EAGAIN. An error entry is made the program's: 1, or -FI_EAGAIN
 * if its endpoint is closed.
 */
ssize_t rp_local_take(struct rp_cq *cq, void *buf, ssize_t n, fi_addr_t *src);
ssize_t rp_local_take_error(struct rp_cq *cq, struct fi_cq_err_entry *e);

/* --- eq.c, cm.c, pep.c, srx.c --- */

int rp_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
	       struct fid_eq **eq, void *context);
int rp_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		struct fid_pep **pep, void *context);
int rp_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr,
		struct fid_ep **srx, void *context);
extern struct fi_ops_cm rp_cm_ops;

#endif
