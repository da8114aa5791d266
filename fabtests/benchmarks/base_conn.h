/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes, one FI_EP_MSG domain of a bare base each, for base_conn.c. */
#ifndef RP_CONN_H
#define RP_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define CONN_HEADER  72u   /* bytes of a request before its payload */
#define CONN_REPLY   64u   /* bytes of a reply */
#define CONN_INLINE  4096u /* largest payload inside a request */
#define CONN_SLOT    (CONN_HEADER + CONN_INLINE) /* 4168 */
#define CONN_CM_DATA 1024u

/* Page shared by the processes of one experiment; zeroed before it starts. */
struct conn_world {
	const char *prov;
	_Atomic int step; /* last step reached: see conn_step() */
	_Atomic int driven, over;
	_Atomic int ready;
	uint8_t addr[128]; /* address of the listener */
	size_t addr_len;
	uint64_t key[8], base;
	uint8_t rdm_name[2][128]; /* initiator, target */
	size_t rdm_len[2];
	uint64_t rdm_base;
	uint16_t raw_port;
	_Atomic uint64_t count;
	double value[64];
	char *mem; /* shared, so that the initiator can verify */
	size_t len;
};

struct conn_node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq; /* for endpoints without their own CQ */
	struct fid_pep *pep;
	struct fid_ep *srx;
};

/* One event of the EQ; event 0: none. */
struct conn_event {
	int kind;   /* FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN; 0: none */
	int err;    /* error of an error entry, or 0 */
	double ms;  /* time waited */
	size_t len; /* length of the CM data */
	uint8_t data[CONN_CM_DATA];
	struct fi_info *info; /* of FI_CONNREQ: the caller frees it */
	fid_t fid;
};

/* Exit if the call failed, and print its name. */
ssize_t conn_must(ssize_t ret, const char *what, const char *file, int line);
#define MUST(call) conn_must((call), #call, __FILE__, __LINE__)

double conn_now(void); /* us */
double conn_median(double *v, int n);
double conn_percentile(double *v, int n, int percent);

/* Open fabric, domain, EQ, CQ and, if srx is true, a shared receive context. */
void conn_open(struct conn_node *n, const char *prov, bool srx);
void conn_listen(struct conn_node *n, struct conn_world *w);
struct fid_cq *conn_cq_open(struct conn_node *n);
/* Open an endpoint; cq NULL: its CQ is that of the node. */
struct fid_ep *conn_ep_open(struct conn_node *n, struct fi_info *info,
			    struct fid_cq *cq);
/* Connect and accept, polling EQ and the node's CQ. */
struct fid_ep *conn_connect(struct conn_node *n, struct fid_cq *cq,
			    struct conn_world *w);
struct fid_ep *conn_accept(struct conn_node *n, struct fid_cq *cq);
/* Wait up to ms for an event; with_cq: poll the node's CQ too, for progress. */
struct conn_event conn_event(struct conn_node *n, bool with_cq, double ms);
const char *conn_event_text(const struct conn_event *e);
struct fid_mr *conn_reg(struct conn_node *n, void *buf, size_t len,
			uint64_t access, uint64_t key);
/* The remote address of buf + off for a peer. */
uint64_t conn_addr(struct conn_node *n, const void *buf);

/* Advance to step n, or wait until another process has reached it. */
void conn_step(struct conn_world *w, int n);
void conn_await(struct conn_world *w, int n);
/*
 * Wait for step n and poll the CQ: a base with manual progress sends only then.
 */
void conn_await_polling(struct conn_world *w, int n, struct conn_node *node);

/* Run target and n initiators, each in a process; returns 0 or 1. */
typedef void (*conn_role)(struct conn_world *w, int number);
int conn_run(const char *prov, size_t len, conn_role target,
	     conn_role initiator, int n);
/*
 * As conn_run(), but return the shared page, which the caller frees, or NULL.
 */
struct conn_world *conn_run_page(const char *prov, size_t len, conn_role target,
				 conn_role initiator, int n);
void conn_world_free(struct conn_world *w);

/* Experiments; each returns 0 or 1. */
int conn_memory(const char *prov, int argc, char **argv);
int conn_connecting(const char *prov, int argc, char **argv);
int conn_durable(const char *prov, int argc, char **argv);
int conn_scattered(const char *prov, int argc, char **argv);
int conn_many(const char *prov, int argc, char **argv);
int conn_receives(const char *prov, int argc, char **argv);
int conn_cm(const char *prov, int argc, char **argv);
int conn_closing(const char *prov, int argc, char **argv);
int conn_mr(const char *prov, int argc, char **argv);

#endif
