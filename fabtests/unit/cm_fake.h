/* SPDX-License-Identifier: BSD-2-Clause */
/* A device and its connection manager that do what the test says, no more. */
#ifndef RP_CM_FAKE_H
#define RP_CM_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define FAKE_MAX    512
#define FAKE_SGES   9
#define FAKE_DEVICE "fake0"

/* As the device and its library have them. */
#define FAKE_GLOBAL	(1ull << 38)
#define FAKE_PERSISTENT (1ull << 39)
#define FAKE_WITH_FLUSH (1u << 11)
#define FAKE_WR_FLUSH	14
#define FAKE_WC_FLUSH	8
#define FAKE_MAY_FLUSH	(1u << 8 | 1u << 9)

/* A work request that was posted; inline data is copied. */
struct fake_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge[FAKE_SGES];
	uint8_t bytes[256];
	size_t len;
	uint32_t qp;
	int call;	     /* of ibv_post_send(), or of builders */
	uint8_t type, level; /* of a FLUSH */
};

struct fake {
	const char *device;   /* the only one */
	const char *leads_to; /* that addresses lead to */
	bool wildcard;	      /* the address to listen at is of no device */
	/* Since the test set nposted to 0, in order. */
	struct fake_wr posted[FAKE_MAX];
	int nposted, calls;
	int take;     /* of the next call: so many, then this error */
	int take_err; /* 0: all are taken */
	uint64_t recv[FAKE_MAX];
	int nrecv;
	struct ibv_wc wc[FAKE_MAX];
	int nwc;
	struct ibv_async_event async[FAKE_MAX];
	int nasync, unacked_async;
	int armed, open; /* objects */
	int resolved, routed, connected, established, accepted, rejected,
		disconnected;
	int fail_route, busy_ports, fail_accept;
	struct rdma_conn_param shown; /* by the last connect or accept */
	uint8_t shown_bytes[256];
	struct sockaddr_storage from, to; /* of the last rdma_resolve_addr() */
	bool bound;			  /* it had a source */
	struct ibv_qp_init_attr qp_attr;  /* of the last queue pair */
	uint32_t max_inline;		  /* of a queue pair that can be made */
	struct ibv_qp *qp;
	uint32_t reuse_number; /* of the next queue pair; 0: a new one */
	unsigned int access;   /* of the last queue pair that was INIT */
	struct ibv_qp_attr rtr, rts;
	int max_cqe;
	uint64_t caps;	       /* that the device says it has */
	bool makes;	       /* and the library makes queue pairs for them */
	uint64_t ops;	       /* of the last queue pair; 0: without builders */
	int refuse_access;     /* of registrations: EINVAL */
	bool read_only;	       /* memory */
	struct rdma_cm_id *id; /* made last */
	struct rdma_cm_id *waiter; /* the listener */
};

extern struct fake fake;

/* Everything anew, with nothing open. */
void fake_start(void);
void fake_end(void);
/* A completion of this work request; the device's numbers. */
void fake_complete(const struct fake_wr *w, enum ibv_wc_status status);
void fake_message(uint64_t recv, uint32_t qp, const void *msg, uint32_t len);
/* The kernel has this for id; it drops it if id is destroyed before. */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
		const void *data, uint8_t len);
/* The same, padded to max bytes. */
void fake_padded(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		 const void *data, uint8_t len, uint8_t max);
void fake_async(enum ibv_event_type type, struct ibv_qp *qp);
/* Somebody who wants to connect. */
struct rdma_cm_id *fake_stranger(void);

#endif
