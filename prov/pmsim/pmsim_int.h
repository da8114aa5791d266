/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of the simulated provider. */
#ifndef PMSIM_INT_H
#define PMSIM_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <uthash.h>

#include "pmsim/model.h"
#include "pmsim/pmsim.h"

#define PS_NAME	      "pmsim"
#define PS_IOV	      4
#define PS_INJECT     128
#define PS_QUEUE_SIZE 1024
#define PS_MAX_MSG    (1u << 30)
#define PS_CM_DATA    256

#define ps_container_of(ptr, type, member)                                     \
	((type *)((char *)(ptr)-offsetof(type, member)))

extern struct fi_provider ps_prov;

/* --- info.c --- */

int ps_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info);

/* --- fabric.c --- */

struct ps_fabric {
	struct fid_fabric fid;
	unsigned int refs;
};
int ps_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context);
/* fid calls that no pmsim object supports. */
int ps_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int ps_no_control(struct fid *fid, int command, void *arg);
int ps_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);

/* --- eq.c --- */

struct ps_eq {
	struct fid_eq fid;
	struct ps_fabric *fabric;
	struct ps_machine *machine; /* NULL: no events */
	STAILQ_HEAD(, ps_eqe) queue;
	unsigned int n, nshut, refs; /* n: events; nshut: FI_SHUTDOWN events */
	bool dead;		     /* its process was killed */
	LIST_ENTRY(ps_eq) link;
};
int ps_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
	       struct fid_eq **eq, void *context);
/* Queue an event; err 0: success. Takes ownership of info. */
void ps_eq_push(struct ps_eq *eq, uint32_t event, int err, struct fid *fid,
		struct fi_info *info, const void *data, size_t len);
/* Remove queued events that name this object. */
void ps_eq_forget(struct ps_eq *eq, const struct fid *fid);
/* Get one of two file descriptors (i: 0 or 1) that are never readable. */
int ps_wait_fd(unsigned int i);
bool ps_wait_is_supported(enum fi_wait_obj wait);

/* --- domain.c --- */

struct ps_dom {
	struct fid_domain fid;
	struct ps_fabric *fabric;
	struct ps_machine *machine;
	bool dead; /* process was killed: only close works */
	unsigned int refs;
	struct ps_mr *mrs;
	LIST_HEAD(, ps_ep) eps;
	LIST_ENTRY(ps_dom) link; /* machine's doms, while process runs */
};
int ps_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **dom, void *context);

/* --- mr.c --- */

struct ps_mr {
	struct fid_mr fid;
	struct ps_dom *dom;
	uint64_t key;
	uint64_t access;
	uint64_t addr; /* remote address of the first byte */
	char *base;
	size_t len;
	UT_hash_handle hh;
};
extern struct fi_ops_mr ps_mr_ops;
/* Find the local address of a peer's access. Returns 0 or an FI_* error. */
int ps_mr_find(struct ps_dom *dom, const struct fi_rma_iov *iov,
	       uint64_t access, char **where);

/* --- av.c --- */

/*
 * An endpoint address in sockaddr_in form, so that layers can read a port.
 * Listeners are found by port, endpoints by number. A connected endpoint has
 * its machine's number.
 */
struct ps_addr {
	uint16_t family, port; /* port is big-endian */
	uint32_t number;
	uint8_t zero[8];
};
bool ps_addr_valid(const void *addr);
void ps_addr_make(uint32_t number, struct ps_addr *addr);

struct ps_av_entry;
struct ps_av {
	struct fid_av fid;
	struct ps_dom *dom;
	struct ps_av_entry **entries; /* index: fi_addr_t; NULL: free */
	size_t n;
	struct ps_av_entry *by_addr;
	unsigned int refs;
};
int ps_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **av, void *context);
/* The endpoint number of an address; 0: not in the vector. */
uint32_t ps_av_number(const struct ps_av *av, fi_addr_t addr);
fi_addr_t ps_av_find(const struct ps_av *av, uint32_t number);
/* Time of the address's insertion, by ps_sim.clock. */
uint64_t ps_av_insert_time(const struct ps_av *av, fi_addr_t addr);

/* --- cq.c --- */

struct ps_cq {
	struct fid_cq fid;
	struct ps_dom *dom;
	size_t size; /* bytes per entry */
	STAILQ_HEAD(, ps_cqe) queue;
	unsigned int refs;
};
int ps_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context);
/* Queue a completion entry; e->err 0: success. src: source address. */
void ps_cq_push(struct ps_cq *cq, const struct fi_cq_err_entry *e,
		fi_addr_t src);
/* Drop all entries; cq NULL: no-op. */
void ps_cq_clear(struct ps_cq *cq);

/* --- cntr.c --- */

struct ps_cntr {
	struct fid_cntr fid;
	struct ps_dom *dom;
	uint64_t value, errors;
	unsigned int refs;
};
int ps_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context);

/* --- ep.c --- */

enum ps_event {
	PS_EV_SEND,
	PS_EV_RECV,
	PS_EV_READ,
	PS_EV_WRITE,
	PS_EV_REMOTE_READ,
	PS_EV_REMOTE_WRITE,
	PS_EV_MAX,
};

/* A posted receive. */
struct ps_rx {
	TAILQ_ENTRY(ps_rx) link;
	struct ps_ep *ep;
	void *context;
	uint64_t flags;	 /* FI_COMPLETION: report success, too */
	uint32_t source; /* endpoint number; 0: any */
	uint64_t tag, ignore;
	size_t niov, len;
	struct iovec iov[PS_IOV];
};

TAILQ_HEAD(ps_msgs, ps_msg);

/* Posted receives and unmatched messages of one kind: FI_MSG or FI_TAGGED. */
struct ps_match {
	TAILQ_HEAD(, ps_rx) posted;
	struct ps_msgs unexpected;
	struct ps_msgs claimed;
};

/*
 * An initiator's operation, until it completes. Acknowledgments in flight point
 * at it; a break of the connection removes both.
 */
struct ps_op {
	TAILQ_ENTRY(ps_op) link; /* list ep->ops */
	TAILQ_ENTRY(ps_op) due_link;
	struct ps_ep *ep;
	enum ps_event event;
	bool due;	 /* completes at the next poll */
	bool has_reply;	 /* the reply has arrived */
	bool want;	 /* report success, too */
	bool unreported; /* failed; report_failures() will report it */
	int err;	 /* valid if due or unreported */
	unsigned int qp; /* connection of the reply */
	void *context;
	uint64_t flags; /* completion entry's flags */
	size_t nresult;
	struct iovec result[PS_IOV]; /* where a reply's data goes */
};

struct ps_ep {
	struct fid_ep fid;
	struct ps_dom *dom;
	struct ps_av *av;
	struct ps_cq *tx_cq, *rx_cq;
	struct ps_cntr *cntr[PS_EV_MAX];
	struct ps_addr addr;
	struct ps_addr peer; /* FI_EP_MSG: peer's address */
	bool enabled, dead;
	bool connected; /* FI_EP_MSG: has one peer */
	bool shut_down; /* FI_SHUTDOWN was reported */
	struct ps_eq *eq;
	struct ps_wire *conn_wire; /* NULL: not connected */
	struct ps_req *req;	   /* connection request in progress */
	struct fid *accepts;	   /* connection request to accept */
	bool tx_selective, rx_selective;
	bool directed;		     /* FI_DIRECTED_RECV */
	uint64_t tx_flags, rx_flags; /* default flags */
	unsigned int nops, nrx;
	TAILQ_HEAD(, ps_op) ops;
	struct ps_match msg, tagged;
	LIST_HEAD(, ps_wire) wires; /* wires that ep sends on */
	struct ps_break *breaks;    /* broken connections */
	LIST_ENTRY(ps_ep) link;	    /* list dom->eps */
	UT_hash_handle hh;	    /* ps_sim.eps, by number */
};
int ps_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **ep, void *context);
/* Remove an endpoint's wires, operations and messages. */
void ps_ep_teardown(struct ps_ep *ep);
static inline struct ps_ep *ps_ep_of(struct fid_ep *fid)
{
	return ps_container_of(fid, struct ps_ep, fid);
}

/* --- conn.c: connected endpoints --- */

/* A connection request, until accept or reject. */
struct ps_req {
	struct fid fid;
	struct ps_ep *from; /* requester; NULL: gave up */
	struct ps_addr at;  /* listener's address */
	LIST_ENTRY(ps_req) link;
};
int ps_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		struct fid_pep **pep, void *context);
int ps_connect(struct fid_ep *ep, const void *addr, const void *param,
	       size_t paramlen);
int ps_accept(struct fid_ep *ep, const void *param, size_t paramlen);
int ps_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen);
int ps_shutdown(struct fid_ep *ep, uint64_t flags);
/* Give an accepted endpoint the address of its listener. */
void ps_conn_set_name(struct ps_ep *ep);
/* Free a request; err 0: without event. Returns the requesting endpoint. */
struct ps_ep *ps_req_drop(struct fid *handle, int err);
/* End a connection; both: report it to the peer, too. */
void ps_conn_cut(struct ps_ep *ep, bool both);
void ps_conn_end(struct ps_ep *ep);
/* End all connections and listeners of a killed process. */
void ps_conns_kill(struct ps_machine *m);

/* --- wire.c: messages between two endpoints --- */

struct ps_msg {
	TAILQ_ENTRY(ps_msg) link;
	enum pmsim_msg_type type;
	unsigned int wire;
	unsigned int qp;
	uint32_t from;
	struct ps_ep *to;
	struct ps_op *op; /* sender's operation that needs a reply; in a reply:
			     the receiver's */
	struct ps_rx *rx; /* matching receive */
	bool placed;	  /* the NIC executed it; report it */
	bool numbered;	  /* completion is valid */
	uint64_t completion; /* NIC's completion number */
	uint64_t flags;	     /* FI_REMOTE_CQ_DATA, .. */
	uint64_t data, tag;
	void *claim;
	int err; /* error of PMSIM_ERROR */
	enum fi_datatype datatype;
	enum fi_op atomic;
	bool fetch;
	size_t nrma;
	struct fi_rma_iov rma[PS_IOV];
	size_t len, compare; /* bytes of payload; bytes before compare values */
	char payload[];
};

struct ps_wire {
	unsigned int id;
	unsigned int qp;  /* new for each connection */
	unsigned int src; /* sending machine */
	struct ps_ep *from, *to;
	struct ps_wire *back; /* the other direction */
	struct ps_msgs flight;
	unsigned int n;		  /* messages in flight */
	bool connected;		  /* between FI_EP_MSG endpoints */
	bool cut;		  /* connection has ended */
	LIST_ENTRY(ps_wire) link; /* from->wires, or unlisted */
};

/* Find or make the wire to an endpoint. *wire NULL: no such endpoint. */
int ps_wire_get(struct ps_ep *from, uint32_t number, struct ps_wire **wire);
/* Make a pair of wires, in no list of either endpoint. */
int ps_wire_pair(struct ps_ep *from, struct ps_ep *to, struct ps_wire **wire);
/* Mark the connection as ended: replies are lost, other messages stay. */
void ps_wire_cut(struct ps_wire *wire);
/* The sending endpoint of a cut wire was closed. */
void ps_wire_end(struct ps_wire *wire);
/* Find a wire by id; NULL: no longer exists. */
struct ps_wire *ps_wire_find(unsigned int id);
struct ps_msg *ps_msg_new(enum pmsim_msg_type type, size_t len);
/* Put a message in flight; the wire owns it then. */
void ps_wire_post(struct ps_wire *wire, struct ps_msg *msg);
void ps_wire_deliver(struct ps_wire *wire, unsigned int n);
void ps_wire_break(struct ps_wire *wire, unsigned int late);
/* Remove the wires of an endpoint. */
void ps_wires_drop(struct ps_ep *ep);

/* The last break between an endpoint and an address (cfg.reports_breaks). */
struct ps_break {
	uint32_t number;
	uint64_t at; /* time by ps_sim.clock */
	UT_hash_handle hh;
};
void ps_record_break(struct ps_ep *ep, uint32_t number);
bool ps_is_broken(const struct ps_ep *ep, fi_addr_t addr);
void ps_breaks_free(struct ps_ep *ep);
/* Has msg arrived on this connection, not placed by the NIC, not matched? */
bool ps_msg_is_unreceived(const struct ps_wire *wire, const struct ps_msg *msg);
/* Send a reply, if the request's connection still exists. */
void ps_reply(const struct ps_msg *request, enum pmsim_msg_type type, int err,
	      const void *payload, size_t len);
void ps_wires_reset(void);

/* --- arrival.c: handle messages that arrive at a machine --- */

/* A message arrives at m, which takes ownership. */
void ps_arrive(struct ps_machine *m, struct ps_msg *msg);
/* Make progress for the program, which polls. */
void ps_progress(struct ps_dom *dom);
/* Send acknowledgments of writes that are placed now. */
void ps_placed_acks(struct ps_machine *m);
void ps_reads_execute(struct ps_machine *m);
void ps_nic_place_all(struct ps_machine *m);
/* Post or match a receive, which takes ownership of rx. */
void ps_rx_post(struct ps_match *q, struct ps_rx *rx);
bool ps_rx_matches(const struct ps_rx *rx, const struct ps_msg *msg);
/* Match rx with msg, which is in no list; report in order of arrival. */
void ps_rx_take(struct ps_rx *rx, struct ps_msg *msg);
/* Write bytes of msg to m's memory, as its NIC (nic) or its CPU does. */
void ps_write_memory(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		     void *to, const void *from, size_t len);
void ps_read_memory(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		    const void *from, void *to, size_t len);

/* --- op.c: from the post to the completion --- */

/* Arguments common to all calls that post. */
struct ps_tx {
	enum pmsim_msg_type type;
	enum ps_event event;
	fi_addr_t dest;
	const struct iovec *iov; /* payload; READ: destination */
	size_t niov;
	const struct iovec *compare, *result;
	size_t ncompare, nresult;
	const struct fi_rma_iov *rma;
	size_t nrma;
	uint64_t tag, data;
	enum fi_datatype datatype;
	enum fi_op atomic;
	void *context;
	uint64_t flags;	   /* operation flags */
	uint64_t cq_flags; /* completion entry's flags */
	bool silent;	   /* inject calls: no completion entry */
};
ssize_t ps_tx_post(struct ps_ep *ep, const struct ps_tx *tx);
/* Must this post be refused with -FI_EAGAIN (cfg.refuse_every)? */
bool ps_must_refuse(void);
/* Complete an operation, and free it. */
void ps_op_complete(struct ps_op *op, int err, size_t len);
/* Complete an operation at the program's next poll. */
void ps_op_complete_later(struct ps_op *op, int err);
/* Fail an operation that has no connection to its peer. */
void ps_op_fail_unreachable(struct ps_op *op);
void ps_op_free(struct ps_op *op);
void ps_ep_count(struct ps_ep *ep, enum ps_event event, int err);
size_t ps_iov_len(const struct iovec *iov, size_t n);

/* --- msg.c, rma.c, atomic.c --- */

extern struct fi_ops_msg ps_msg_ops;
extern struct fi_ops_tagged ps_tagged_ops;
extern struct fi_ops_rma ps_rma_ops;
extern struct fi_ops_atomic ps_atomic_ops;
/* Execute an atomic on the ranges of msg, and reply. */
void ps_atomic_run(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		   char *const where[PS_IOV]);
int ps_atomic_query(struct fid_domain *domain, enum fi_datatype type,
		    enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);

/* --- control.c: the test's interface --- */

struct ps_machine {
	unsigned int id;
	struct model *model;
	bool dma;		/* the NIC places by DMA */
	enum model_place place; /* how the CPU stores, without dma */
	struct ps_msgs arrived;
	struct ps_msgs unplaced; /* writes to acknowledge once placed */
	struct ps_msgs reads;	 /* reads that wait in the NIC */
	TAILQ_HEAD(, ps_op) due;
	LIST_HEAD(, ps_dom) doms; /* domains of the running process */
	LIST_HEAD(, ps_pep) peps; /* listening endpoints */
	LIST_HEAD(, ps_eq) eqs;
	uint64_t last_key;
	uint64_t free_key; /* key of the last closed region; or 0 */
	uint64_t doorbells;
	unsigned int outstanding, unreported; /* numbers of operations */
};

struct ps_sim {
	struct pmsim_cfg cfg;
	struct ps_machine **machines;
	unsigned int nmachines, current;
	struct ps_wire **wires; /* index: wire id */
	unsigned int nwires, last_qp;
	struct ps_ep *eps;	  /* reachable endpoints */
	LIST_HEAD(, ps_req) reqs; /* not accepted or rejected */
	unsigned int ndoms;	  /* open domains, dead ones too */
	uint32_t last_number;
	uint64_t last_key;
	uint64_t posts;
	uint64_t clock; /* counts insertions and breaks */
	uint64_t count[PMSIM_ERROR + 1];
	bool trace;
};
extern struct ps_sim ps_sim;
struct ps_machine *ps_machine_current(void);
const char *ps_type_name(enum pmsim_msg_type type);
void ps_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define PS_TRACE(...)                                                          \
	do {                                                                   \
		if (ps_sim.trace)                                              \
			ps_trace(__VA_ARGS__);                                 \
	} while (0)

#endif
