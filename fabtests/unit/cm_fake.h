/* SPDX-License-Identifier: BSD-2-Clause */
/* A device and its connections that do what the test says, and no more. */
#ifndef RP_CM_FAKE_H
#define RP_CM_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "rpmem/rpmem.h"

#define FAKE_MAX    128
#define FAKE_DEVICE "fake0"

/* As the device and its library have them. */
#define FAKE_GLOBAL	(1ull << 38)
#define FAKE_PERSISTENT (1ull << 39)
#define FAKE_WITH_FLUSH (1u << 11)
#define FAKE_WR_FLUSH	14
#define FAKE_WC_FLUSH	8
#define FAKE_MAY_FLUSH	(1u << 8 | 1u << 9)

struct fake_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t qp;
	int call;	     /* of ibv_post_send(), or of builders */
	uint8_t type, level; /* of a FLUSH */
};

struct fake {
	struct rp_dom dom;
	const char *device; /* what the address leads to */
	/* Posted since reset, in order; and so often something was posted. */
	struct fake_wr posted[FAKE_MAX];
	int nposted, calls;
	int take;     /* of the next call: so many, then error takes_err */
	int take_err; /* 0: all are taken */
	uint64_t recv[FAKE_MAX];
	int nrecv[2]; /* by the order in which the queues were made */
	/* To be polled, and to be read. */
	struct ibv_wc wc[FAKE_MAX];
	int nwc;
	struct rdma_cm_event ev[FAKE_MAX];
	int nev, acked;
	int armed, open; /* objects of the device, and of its connections */
	int resolved, routed, connected, accepted, rejected, disconnected;
	int fail_route;
	struct rdma_conn_param shown; /* by the last connect or accept */
	uint8_t shown_bytes[16];
	struct ibv_qp_init_attr qp_attr; /* of the last queue pair */
	struct ibv_qp *qp;
	uint64_t caps;	  /* that the device says it has */
	bool makes;	  /* and the library makes queue pairs for them */
	uint64_t ops;	  /* of the last queue pair; 0: without builders */
	unsigned int may; /* what peers may do over it; given: so often */
	int given, fail_give;
	struct rdma_cm_id *id; /* made last */
};

extern struct fake fake;

/* Everything anew, with nothing open. */
void fake_start(void);
void fake_end(void);
/* A completion of this work request; err: of the device's. */
void fake_complete(uint64_t wr_id, uint32_t qp, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t len);
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		const void *shown, uint8_t len);
/* Somebody who wants to connect. */
struct rdma_cm_id *fake_stranger(void);

#endif
