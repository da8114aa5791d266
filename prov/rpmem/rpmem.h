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
 * Values of libfabric 1 that the headers of libfabric 2 lack or deprecate:
 * FI_BUFFERED_RECV, and FI_MR_BASIC | FI_MR_SCALABLE.
 */
#define RP_BUFFERED_RECV	(1ull << 51)
#define RP_MR_BASIC_OR_SCALABLE 3

extern struct fi_provider rp_prov;

#define RP_WARN(subsys, ...) FI_WARN(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)
#define RP_INFO(subsys, ...) FI_INFO(&rp_prov, FI_LOG_##subsys, __VA_ARGS__)

/* The operator's parameters, read once when the provider is loaded (init.c). */
struct rp_params {
	enum rp_class required;
	uint64_t timeout_ns;
	uint64_t slow_rate;
	int emulate;
	char *trust_fs;
	char *operator_file; /* path of the statements; NULL: default */
	char *method;	     /* name of the forced method; NULL: none */
	size_t max_commits;
	size_t credits;
	size_t max_sessions;
	size_t inline_max; /* longest durable write sent as one message */
	uint64_t spin_ns;  /* busy-poll budget before a sleep */
	uint16_t port_first, port_last; /* listener's port range; 0: any */
	int native;	   /* use native FLUSH where the device has it */
	int commit_writes; /* implicit commits for programs that request none */
};
extern struct rp_params rp_params;

/* --- info.c: fi_getinfo() entries of ofi_rpmem and of its base provider --- */

/*
 * Query the base provider, e.g. "tcp", for its RDM entries, all with the same
 * utility provider or all without one. hints: the program's; NULL: any entry.
 */
int rp_info_list_base_rdm(uint32_t version, const char *node,
			  const char *service, uint64_t flags,
			  const struct fi_info *hints, const char *base,
			  struct fi_info **list);
/* Copy the first entry of list that names the same domain as info. */
int rp_info_find_domain(const struct fi_info *list, const struct fi_info *info,
			struct fi_info **out);
/* Copy a program's fi_info for the base, with the base's fids and no handle. */
struct fi_info *rp_info_to_base(const struct fi_info *info,
				enum fi_ep_type type, const char *prov_name);
/* Set fabric_attr->prov_name. False: no memory. */
bool rp_info_set_prov(struct fi_info *i, const char *name);
/* Unlink the entry *link from its fi_info list, and free it. */
void rp_info_unlink(struct fi_info **link);
/* Allocate hints that match every entry; NULL: no memory. */
struct fi_info *rp_info_match_all(uint32_t version);
/* Get the base's name, "tcp" of "tcp;ofi_rpmem"; NULL: none. Caller frees. */
char *rp_info_base_name(const char *prov_name);
/* Is this fi_info for an endpoint type or feature that only the base has? */
bool rp_info_is_passthrough(const struct fi_info *info);
/* List the base's FI_EP_MSG entries; -FI_ENODATA: none. */
int rp_info_list_base_msg(uint32_t version, const char *base,
			  struct fi_info **list);
/* List the base's entries of this endpoint type, without utility providers. */
int rp_info_list_base(uint32_t version, const char *node, const char *service,
		      uint64_t flags, const struct fi_info *hints,
		      const char *base, enum fi_ep_type type,
		      struct fi_info **list);
/* Do these hints allow persistent keys, which need FI_MR_PROV_KEY? */
bool rp_info_allows_persistent_keys(uint32_t version,
				    const struct fi_info *hints);
/* Was this fi_info entry returned with persistent keys? */
bool rp_info_has_persistent_keys(const struct fi_info *info);
/* Add persistent keys to this entry of the base; -FI_ENODATA: not possible. */
int rp_info_add_persistent_keys(const struct fi_info *hints, struct fi_info *i);
/* Set the attributes that all fi_info entries of ofi_rpmem share. */
void rp_info_set_common(const struct fi_info *hints, struct fi_info *i);
int rp_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info);

/* --- fabric.c --- */

struct rp_fabric {
	struct fid_fabric fid;
	/*
	 * Fabric without ofi_rxm; if none: layered. For event queues,
	 * FI_EP_MSG, passthrough objects, and RDM endpoints of the base itself.
	 */
	struct fid_fabric *direct;
	struct fid_fabric *layered; /* fabric of ofi_rxm, opened on first use */
	char *base_name;	    /* base's name in hints, e.g. "tcp" */
	pthread_mutex_t lock;	    /* guards layered and passed_infos */
	/* fi_info entries passed to the base; base sockets reads them later. */
	struct fi_info *passed_infos;
	uint32_t version;
};
int rp_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context);
/* Find the fabric of this entry of the base: direct or layered. */
int rp_fabric_find_base(struct rp_fabric *fab, const struct fi_info *base,
			struct fid_fabric **out);

/* --- domain.c --- */

struct rp_private; /* private_conn.c */
struct rp_ep;

struct rp_dom {
	struct fid_domain fid;
	struct rp_fabric *fabric;
	struct fid_fabric *base_fabric;
	struct fid_domain *base;
	struct fi_info *base_info; /* fi_info that base was opened with */
	bool makes_keys; /* ofi_rpmem makes keys, persistent ones with a mark */
	bool is_msg;	 /* domain of connected endpoints (FI_EP_MSG) */
	bool auto_progress;
	uint64_t incarnation;

	/*
	 * This lock guards all members below, sessions, agent, and queued
	 * private entries. It is taken before any lock of the base, and never
	 * held while the program's code runs.
	 */
	pthread_mutex_t lock;
	/*
	 * True once there may be private connections or persistent regions.
	 * While false, a call reads `live` (relaxed) and calls the base.
	 */
	atomic_bool live;
	struct rp_private *private; /* NULL until first use */
	struct rp_rc *rc;	    /* of the private connections, or NULL */
	struct rp_agent *agent;	    /* made with the first persistent region */
	struct rp_agent_host host;  /* target.c */
	unsigned int npersistent_mrs;
	unsigned int nremote_cntrs; /* endpoints that count FI_REMOTE_WRITE */
	LIST_HEAD(, rp_mr) persistent_mrs;
	LIST_HEAD(, rp_cq) cqs;
	LIST_HEAD(, rp_ep) eps;
	struct rp_task_pool {
		struct rp_task *free;
		struct rp_task_chunk *chunks;
		struct rp_bounce_pool *bounce;
		bool need_mr; /* the device needs registered memory */
	} tasks;
	atomic_bool posting; /* a session is posting: it is on the busy list */
	int kick_fd;	     /* eventfd of rp_domain_kick(): progress is due */
	int timer_fd;	     /* timerfd: wakes sleepers at timer_due */
	/*
	 * An epoll descriptor for kick_fd, timer_fd and the private
	 * connections. The progress thread sleeps on it; else programs do.
	 */
	int wake_fd;
	/*
	 * True once a thread may sleep until an event: the progress thread, or
	 * a program's on the descriptor of a queue or counter.
	 */
	atomic_bool may_sleep;
	atomic_bool kicked; /* rp_domain_kick() was called */
	uint64_t timer_due;
	uint64_t last_now; /* newest time read: it never goes back */

	/* The progress thread of FI_PROGRESS_AUTO; started when live is set. */
	pthread_t thread;
	bool thread_on;
	struct rp_spin spin;
	atomic_bool stop;
	atomic_uint refs;
};
int rp_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **dom, void *context);
static inline bool rp_dom_is_live(const struct rp_dom *dom)
{
	return atomic_load_explicit(&dom->live, memory_order_relaxed);
}

/* --- private_conn.c: the private connections of a domain --- */

/*
 * With dom->lock: get the private connections, opened on first use: with
 * RP_RC_VERBS if the base is verbs, else with RP_RC_TCP. NULL: errno and why
 * (RP_WHY_LEN bytes) have the reason; EOPNOTSUPP: not over this base.
 */
struct rp_private *rp_private_get(struct rp_dom *dom, char *why);
/* With dom->lock: listen on first use; keys carry *port. 0 or -errno. */
int rp_private_listen(struct rp_dom *dom, uint16_t *port, char *why);
/* Does the base support private connections? If not, why has the reason. */
bool rp_private_is_possible(const struct fi_info *base, char *why);
/* Name of the domain's transport for private connections: "verbs" or "tcp". */
const char *rp_private_transport(const struct rp_dom *dom);
/* Delete the sessions that were kept when their endpoints closed. */
void rp_private_delete_retired(struct rp_dom *dom);
void rp_private_close(struct rp_dom *dom);

/* A destination: fi_addr_t of a peer, and the port in a persistent key. */
struct rp_dest;

/*
 * With dom->lock: get the session of an endpoint with the target domain that
 * made a key: at the port in the key, and the IP address of dest
 * (fi_av_lookup(); a connected endpoint: fi_getpeer(), dest is ignored). It is
 * made on first use; if there are too many connections an idle one is closed.
 * 0; -FI_EINVAL: no such address; -FI_EAGAIN: too many are in use; -FI_ENOMEM;
 * ... The caller must post to the session before it releases the lock.
 */
int rp_private_get_session(struct rp_ep *ep, fi_addr_t dest, uint64_t key,
			   struct rp_session **out);
/* The port of endpoint dest in the last rp_private_get_session() call. */
uint16_t rp_private_peer_port(const struct rp_ep *ep);
/* The port in the base's address of this endpoint; 0: none. */
uint16_t rp_private_local_port(const struct rp_ep *ep);
/*
 * With dom->lock: dest was removed from the address vector, or the connected
 * endpoint lost its peer: disconnect the sessions with dest (RP_ST_CANCELED),
 * but keep them to be found by address and port.
 */
void rp_private_remove_dest(struct rp_ep *ep, fi_addr_t dest, uint32_t error);
/*
 * With dom->lock: close an endpoint's sessions while its queues and counters
 * are still bound. Its tasks fail (RP_ST_CANCELED or RP_ST_INDETERMINATE).
 */
void rp_private_close_ep(struct rp_ep *ep);
/*
 * With dom->lock: -FI_EAGAIN if msg_order makes an operation to dest wait for
 * earlier persistent writes; a read fence is posted to prove their placement.
 */
int rp_private_check_order(struct rp_ep *ep, fi_addr_t dest);
/* With dom->lock: progress connections and sessions. True: there was work. */
bool rp_private_progress(struct rp_dom *dom);
uint64_t rp_private_deadline(const struct rp_dom *dom);

/* --- target.c: the domain's agent and its rp_agent_host --- */

/* With dom->lock: make the domain's agent on first use, and listen. */
int rp_target_open(struct rp_dom *dom, uint16_t *port, char *why);
/* Register a region with the device, if all connections share one rkey. */
int rp_target_reg(struct rp_mr *mr);
void rp_target_dereg(struct rp_mr *mr);
/* Close private connections from the peer of this accepted endpoint. */
void rp_target_close_peer(struct rp_ep *ep);
void rp_target_close(struct rp_dom *dom);

/* --- cq.c: private completion entries, queued until the program reads --- */

/* Text of a failure, for err_data: "(target ADDRESS:PORT, ...)"; or empty. */
#define RP_DETAIL_LEN	200
#define RP_DETAIL_START "(target "

struct rp_cqe {
	STAILQ_ENTRY(rp_cqe) link;
	struct rp_task *task; /* task with this entry; NULL: malloc() */
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	bool failed;		    /* true: err is the entry; false: e is */
	struct fi_cq_err_entry err; /* err.prov_errno is an rp_status */
	char detail[RP_DETAIL_LEN];
};

/* --- task.c: a program's operation on a persistent region --- */

struct rp_task {
	struct rp_op op; /* first member: rp_container_of(op) is the task */
	struct rp_task *next;
	struct rp_ep *ep;
	void *context;
	uint64_t flags;	  /* flags of the completion entry */
	uint8_t kind;	  /* enum rp_cntr_kind: counter to increment */
	bool wants_entry; /* write a completion entry also on success */
	struct rp_wire_range ranges[RP_CHANNEL_IOV];
	/* Registration of local memory for this operation (rp_task_post()). */
	struct rp_rc_mr mr;
	void *bounce; /* bounce buffer: from malloc() or dom->tasks.bounce */
	struct iovec user_iov[RP_CHANNEL_IOV]; /* READ: program's buffers */
	size_t user_iov_count;
	void *extra; /* caller's data from malloc(), freed with the task */
	/* Completion entry, preallocated so that completing cannot fail. */
	struct rp_cqe cqe;
};
/* With dom->lock: get a task: op has done and required, else 0; or NULL. */
struct rp_task *rp_task_get(struct rp_dom *dom, struct rp_ep *ep);
void rp_task_put(struct rp_dom *dom, struct rp_task *t);
void rp_task_pool_fini(struct rp_dom *dom);
/*
 * The op.done function of tasks: count the completion, then free the task, or
 * queue its entry by rp_cq_push_task(); the reader of the entry frees the task.
 */
void rp_task_done(struct rp_op *op, const struct rp_outcome *out);
/* With dom->lock: copy a READ's bytes from bounce to the program's buffers. */
void rp_task_copy_back(struct rp_task *t);
/*
 * With dom->lock: get a task for an operation on a persistent key of dest, and
 * its session. No task on failure; -FI_EAGAIN: progress was made.
 */
int rp_task_open(struct rp_ep *ep, fi_addr_t dest, uint64_t key, uint64_t flags,
		 struct rp_task **t, struct rp_session **s);
/*
 * With dom->lock: post the task to the session; on failure the task is freed;
 * -FI_EAGAIN: progress was made. If the device needs registered memory, op.iov
 * is registered or copied.
 */
ssize_t rp_task_post(struct rp_task *t, struct rp_session *s);
/* With dom->lock: post op to s, the result of rp_private_get_session(). */
int rp_task_post_op(struct rp_dom *dom, struct rp_session *s, struct rp_op *op);

/* --- mr.c --- */

struct rp_mr {
	struct fid_mr fid;
	struct rp_dom *dom;
	struct fid_mr *base; /* NULL: not registered with the base */
	bool persistent;
	bool in_agent;	 /* added to the agent */
	uint64_t access; /* program's access: FI_REMOTE_READ, FI_REMOTE_WRITE */
	/* Registration that all connections use; RP_RC_VERBS only. */
	struct rp_rc_mr shared_mr;
	bool allows_flush;  /* shared_mr allows native FLUSH */
	enum rp_tri native; /* does the device have native FLUSH? */
	struct rp_region region;
	LIST_ENTRY(rp_mr) link; /* in dom->persistent_mrs */
};
extern struct fi_ops_mr rp_mr_ops;
/* Determine the region's facts, at registration or later. 0 or -errno. */
int rp_mr_find_facts(struct rp_mr *mr, struct rp_facts *facts, char *why);
/*
 * With dom->lock: find a local persistent region that contains the bytes and
 * reaches the failure class. NULL: none; *why says what is missing.
 */
struct rp_region *rp_mr_find_local(struct rp_dom *dom, const void *buf,
				   size_t len, enum rp_class required,
				   const char **why);

/* --- av.c: the base's address vectors, and a record of their addresses --- */

struct rp_av {
	struct fid_av fid;
	struct rp_dom *dom;
	struct fid_av *base;
	struct rp_av_record *records; /* hash table, guarded by dom->lock */
	atomic_uint refs;
};
int rp_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **av, void *context);
/* With dom->lock: get the sockaddr of addr; -FI_EINVAL: not in the vector. */
int rp_av_sockaddr(struct rp_av *av, fi_addr_t addr, void *buf, size_t *len);
/* Does addr have the IP address of host, and this port? */
bool rp_addr_equals(const union rp_rc_addr *addr, const struct sockaddr *host,
		    uint16_t port);
/* With dom->lock: the fi_addr_t of host with this port, or FI_ADDR_NOTAVAIL. */
fi_addr_t rp_av_find(struct rp_av *av, const struct sockaddr *host,
		     uint16_t port);

/* --- cq.c, cq_read.c: the base's completion queue, and private entries --- */

struct rp_cq {
	struct fid_cq fid;
	struct rp_dom *dom;
	struct fid_cq *base;
	atomic_int quick_reads; /* next reads that poll only the base's queue */
	/* SSIZE_MAX once base may hold local_read.c's entries; until then 0. */
	_Atomic ssize_t max_filtered;
	size_t size; /* bytes per entry of the program's format */
	enum fi_wait_obj wait_obj;
	STAILQ_HEAD(, rp_cqe) queue; /* private entries, guarded by dom->lock */
	atomic_uint private_reads;   /* reads in a row filled by private ones */
	atomic_uint hot_polls; /* polls left that may skip the base's queue */
	LIST_HEAD(, rp_local_read) local_reads; /* of local_read.c */
	atomic_bool last_err_private; /* the last error that was read is ours */
	char last_detail[RP_DETAIL_LEN]; /* of the last private error */
	int epfd;  /* epoll descriptor that FI_GETWAIT returns */
	int ev_fd; /* eventfd of private entries and fi_cq_signal() */
	atomic_bool signaled; /* fi_cq_signal() was called */
	bool ev_set;	      /* ev_fd is readable */
	bool parked;	      /* the program may sleep: wake it by ev_fd */
	atomic_uint sleepers; /* threads in fi_cq_sread(), about to sleep */
	/* fi_trywait() on base is unsafe: an ofi_rxm endpoint was closed. */
	atomic_bool base_trywait_unsafe;
	int poll_timer_fd;	/* timerfd that limits such sleeps */
	atomic_bool had_events; /* private events since the last trywait */
	struct rp_spin spin;
	LIST_ENTRY(rp_cq) link;
	atomic_uint refs;
};
int rp_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context);
/* With dom->lock: append t->cqe; afterwards t->ep may be freed. */
void rp_cq_push_task(struct rp_cq *cq, struct rp_task *t);
/* With dom->lock: append an entry of remote CQ data. 0 or -FI_ENOMEM. */
int rp_cq_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
	       fi_addr_t src);
/* Takes dom->lock. 0: may sleep; -FI_EAGAIN: read the queue first. */
int rp_cq_trywait(struct rp_cq *cq);
/* Is a private entry queued? 1: yes; 0: no. */
int rp_cq_has_private(struct rp_cq *cq);
extern struct fi_ops_cq rp_cq_ops;
extern struct fi_ops rp_cq_fid_ops, rp_cntr_fid_ops;
/* With dom->lock: write ev_fd to wake a sleeper; drain it at an empty queue. */
void rp_cq_wake(struct rp_cq *cq);
void rp_cq_drain_event(struct rp_cq *cq);
/* With dom->lock: remove and free the first private entry, which was read. */
void rp_cq_drop_first(struct rp_cq *cq);
static inline void rp_cq_set_quick_reads(struct rp_cq *cq, int reads)
{
	atomic_store_explicit(&cq->quick_reads, reads, memory_order_relaxed);
}
/* Is this a queue of ofi_rpmem, not of a passthrough domain? */
static inline bool rp_fid_is_cq(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CQ && fid->ops == &rp_cq_fid_ops;
}

/* --- cntr.c: the base's counter, to which private completions are added */

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
	bool readerr_clears; /* fi_cntr_readerr() clears errors (sockets) */
	atomic_uint errors;  /* failed private completions */
	int epfd, ev_fd;     /* epfd: result of FI_GETWAIT; -1: the base's */
	atomic_uint refs;
};
int rp_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context);
void rp_cntr_count(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed);
static inline bool rp_fid_is_cntr(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CNTR && fid->ops == &rp_cntr_fid_ops;
}
/* Takes dom->lock. 0: may sleep; -FI_EAGAIN: do not sleep yet. */
int rp_cntr_trywait(struct rp_cntr *cntr);

/* --- poll.c, poll_member.c, fid.c, wait.c --- */

int rp_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		 struct fid_poll **poll);
/* Remove a queue or counter, about to be closed, from all its poll sets. */
void rp_poll_remove_member(const struct fid *fid);
int rp_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int rp_no_control(struct fid *fid, int command, void *arg);
int rp_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);
#define RP_NO_FID_OPS                                                          \
	.bind = rp_no_bind, .control = rp_no_control, .ops_open = rp_no_ops_open
/* Map an endpoint, shared context or passive endpoint to the base's object. */
struct fid *rp_fid_base(struct fid *fid);
int rp_base_control(struct fid *fid, int command, void *arg);
int64_t rp_wait_now(void); /* monotonic ms */
int rp_wait_watch(int epfd, int fd);
/*
 * Make *epfd, an epoll descriptor for base_fd, a new eventfd *ev_fd, and the
 * domain's progress. On failure the caller closes those that are not -1.
 */
int rp_wait_open(struct rp_dom *dom, int base_fd, int *ev_fd, int *epfd);

/* --- progress.c --- */

uint64_t rp_domain_now(struct rp_dom *dom);
/* With dom->lock: progress connections, sessions, agent. True: had work. */
bool rp_domain_progress(struct rp_dom *dom);
/* With dom->lock: make progress, set timer_fd. -FI_EAGAIN: do not sleep yet. */
int rp_domain_trywait(struct rp_dom *dom);
/* Request progress, from any thread, without dom->lock. */
void rp_domain_kick(struct rp_dom *dom);
/*
 * After progress or a post, when another thread may sleep: wake it at the time
 * due; at once for events that no descriptor signals.
 */
void rp_domain_wake_sleepers(struct rp_dom *dom, uint64_t due);
/* With dom->lock: set live; from now on all calls also progress connections. */
int rp_domain_go_live(struct rp_dom *dom);
void rp_domain_thread_stop(struct rp_dom *dom);

/* --- ep.c --- */

/* An object's fid in the base, and the program's fid for it in events. */
struct rp_eq_fid_pair {
	LIST_ENTRY(rp_eq_fid_pair) link;
	struct fid *base; /* NULL: the pair is not registered */
	struct fid *program_fid;
};

struct rp_ep {
	struct fid_ep fid;
	struct rp_dom *dom;
	struct fid_ep *base;
	struct rp_av *av;
	struct rp_cq *tx_cq, *rx_cq;
	struct rp_cntr *cntr[RP_CNTR_KINDS];
	uint64_t op_flags; /* program's default transmit flags */
	/* Top bits of persistent keys; UINT64_MAX: program makes the keys. */
	uint64_t mark;
	/* Calls without flags on lower keys are the base's; 0: none are. */
	uint64_t forward_below;
	bool selective; /* FI_SELECTIVE_COMPLETION on tx_cq */
	bool enabled;
	bool connected; /* FI_EP_MSG: FI_CONNECTED was read */
	size_t inject_size;
	uint64_t implicit_flags; /* FI_COMMIT_COMPLETE added to file writes */
	uint64_t msg_order;	 /* msg_order granted to the program */
	bool orders_messages;	 /* messages wait for persistent writes */
	enum rp_class required;
	/* Hash table of destinations by fi_addr_t; the one used last. */
	struct rp_dest *dests, *last_dest;
	struct rp_peer *peers; /* hash table of target domains by sockaddr */
	uint16_t port; /* port in the base's address; 0: not looked up yet */
	union rp_rc_addr cm_peer; /* peer of fi_accept(), or AF_UNSPEC */
	LIST_ENTRY(rp_ep) link;
	struct rp_eq_fid_pair fid_pair;	     /* FI_EP_MSG only */
	LIST_HEAD(, rp_local_read) flushing; /* of local_read.c */
};
int rp_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **ep, void *context);
/* Drop the references of a closed endpoint or shared context, and free it. */
void rp_ep_release(struct rp_ep *ep);
static inline struct rp_ep *rp_ep_of(struct fid *fid)
{
	return rp_container_of(fid, struct rp_ep, fid.fid);
}
static inline struct fid_ep *rp_ep_base(struct fid_ep *fid)
{
	return rp_ep_of(&fid->fid)->base;
}
/* Does an operation with these flags write an entry on success? */
static inline bool rp_ep_wants_cqe(const struct rp_ep *ep, uint64_t flags)
{
	return !ep->selective || (flags & FI_COMPLETION);
}
/* Is this the key of a persistent region? */
static inline bool rp_ep_persistent(const struct rp_ep *ep, uint64_t key)
{
	return key >> RP_KEY_MARK_SHIFT == ep->mark;
}
/* Is a call without flags on this key forwarded to the base unchanged? */
static inline bool rp_ep_forwards(const struct rp_ep *ep, uint64_t key)
{
	return key < ep->forward_below;
}
/* Operation flags that apply to calls without a flags argument. */
static inline uint64_t rp_ep_flags(const struct rp_ep *ep)
{
	return ep->op_flags | (ep->selective ? 0 : FI_COMPLETION);
}
/* -FI_EAGAIN: persistent operations to dest come first. Takes dom->lock. */
int rp_ep_check_order(struct fid_ep *fid, fi_addr_t dest);
/* -FI_EOPNOTSUPP: flags of a send or receive with FI_COMMIT_COMPLETE. */
int rp_ep_check_msg_flags(uint64_t flags);
/*
 * Must a message to dest wait for persistent operations, because of msg_order
 * or FI_FENCE? 0, -FI_EAGAIN, or an error: FI_COMMIT_COMPLETE is refused.
 */
static inline int rp_ep_check_message(struct fid_ep *fid, fi_addr_t dest,
				      uint64_t flags)
{
	if (!rp_ep_of(&fid->fid)->orders_messages &&
	    !(flags & (FI_COMMIT_COMPLETE | FI_FENCE)))
		return 0;
	return flags & FI_COMMIT_COMPLETE ? rp_ep_check_msg_flags(flags)
					  : rp_ep_check_order(fid, dest);
}
extern struct fi_ops_ep rp_ep_ops;
extern struct fi_ops_msg rp_msg_ops;
extern struct fi_ops_tagged rp_tagged_ops;
extern struct fi_ops_rma rp_rma_ops;
extern struct fi_ops_atomic rp_atomic_ops;
/* fi_query_atomic(): is the atomic supported by both the base and the agent? */
int rp_atomic_query(const struct rp_dom *dom, enum fi_datatype type,
		    enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);
/* fi_open_ops() of endpoints and domains: the calls of fi_ext_rpmem.h. */
int rp_ext_ops_open(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context);

/* --- rma.c --- */

/*
 * With dom->lock: post a READ of persistent memory. The task takes ownership of
 * extra (from malloc()); a failure frees it.
 */
ssize_t rp_rma_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		    uint64_t flags, rp_op_fn done, void *extra);
/* Log that FI_COMMIT_COMPLETE needs a persistent key; returns the error. */
int rp_rma_refuse_ordinary_key(void);

/* Post a commit (RP_OP_COMMIT) or a write of zeros (RP_OP_WRITE) of msg. */
ssize_t rp_rma_post_ranges(struct rp_ep *ep, const struct fi_rpmem_msg *msg,
			   enum rp_level level, enum rp_class required,
			   enum rp_op_kind kind);

/* --- local_read.c --- */

/* A read whose local buffers must be flushed: the `extra` of its task. */
struct rp_local_read {
	struct fi_context2 context; /* op_context for the base; first member */
	struct rp_task *task;
	LIST_ENTRY(rp_local_read) link; /* cq->local_reads or ep->flushing */
	bool flushing;
	bool closed; /* endpoint was closed while the base was reading */
	size_t niov;
	struct iovec iov[RP_CHANNEL_IOV];
};
/* Post a read that completes when its bytes are durable in local memory. */
ssize_t rp_local_post_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags, bool persistent);
/* With dom->lock: cancel the local flushes of an endpoint that is closing. */
void rp_local_close_ep(struct rp_ep *ep);
/*
 * Remove the entries of local_read.c's reads from n entries of the base:
 * returns how many are left; none: -FI_EAGAIN. An error entry of such a read
 * gets the program's context: returns 1, or -FI_EAGAIN if the endpoint is
 * closed.
 */
ssize_t rp_local_filter_entries(struct rp_cq *cq, void *buf, ssize_t n,
				fi_addr_t *src);
ssize_t rp_local_filter_error(struct rp_cq *cq, struct fi_cq_err_entry *e);

/* --- eq.c, cm.c, pep.c, srx.c --- */

int rp_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
	       struct fid_eq **eq, void *context);
int rp_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		struct fid_pep **pep, void *context);
int rp_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr,
		struct fid_ep **srx, void *context);
extern struct fi_ops_cm rp_cm_ops;

#endif
