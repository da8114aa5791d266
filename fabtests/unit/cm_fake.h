/* SPDX-License-Identifier: BSD-2-Clause */
/* A fake device and connection manager that do only what the test says. */
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

/* Values of the device and its library. */
#define FAKE_GLOBAL	(1ull << 38)
#define FAKE_PERSISTENT (1ull << 39)
#define FAKE_WITH_FLUSH (1u << 11)
#define FAKE_WR_FLUSH	14
#define FAKE_WC_FLUSH	8
#define FAKE_MAY_FLUSH	(1u << 8 | 1u << 9)

/* A posted work request; inline data is copied. */
struct fake_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge[FAKE_SGES];
	uint8_t bytes[256];
	size_t len;
	uint32_t qp;
	int call;	     /* number of the posting call */
	uint8_t type, level; /* arguments of FLUSH */
};

struct fake {
	const char *device;   /* the only device */
	const char *leads_to; /* the device that addresses resolve to */
	bool wildcard;	      /* listeners bind to no device */
	/* Posted since the test set nposted to 0, in order. */
	struct fake_wr posted[FAKE_MAX];
	int nposted, calls;
	int take;     /* the next post takes this many, then fails */
	int take_err; /* 0: all are accepted */
	uint64_t recv[FAKE_MAX];
	int nrecv;
	struct ibv_wc wc[FAKE_MAX];
	int nwc;
	struct ibv_async_event async[FAKE_MAX];
	int nasync, unacked_async;
	int armed, open; /* number of objects */
	int resolved, routed, connected, established, accepted, rejected,
		disconnected;
	int fail_route, busy_ports, fail_accept;
	struct rdma_conn_param shown; /* of the last connect or accept */
	uint8_t shown_bytes[256];
	struct sockaddr_storage from, to; /* of the last rdma_resolve_addr() */
	bool bound;			  /* with a source address */
	struct ibv_qp_init_attr qp_attr;  /* of the last queue pair */
	uint32_t max_inline;		  /* larger ones fail to be made */
	struct ibv_qp *qp;
	uint32_t reuse_number; /* number of the next queue pair; 0: a new one */
	unsigned int access;   /* rights of the last queue pair moved to INIT */
	struct ibv_qp_attr rtr, rts;
	int max_cqe;
	uint64_t caps;		   /* device capabilities */
	bool makes;		   /* the library supports FLUSH */
	uint64_t ops;		   /* send_ops_flags of the last queue pair */
	int refuse_access;	   /* registrations with these flags fail */
	bool read_only;		   /* memory is not writable */
	struct rdma_cm_id *id;	   /* made last */
	struct rdma_cm_id *waiter; /* the listener */
};

extern struct fake fake;

/* Reset everything; fake_end() checks that no object is open. */
void fake_start(void);
void fake_end(void);
/* Complete this work request, with the device's numbering. */
void fake_complete(const struct fake_wr *w, enum ibv_wc_status status);
void fake_message(uint64_t recv, uint32_t qp, const void *msg, uint32_t len);
/* Queue an event for id; destroying id drops it. */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
		const void *data, uint8_t len);
/* The same with private data padded to max bytes. */
void fake_padded(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		 const void *data, uint8_t len, uint8_t max);
void fake_async(enum ibv_event_type type, struct ibv_qp *qp);
/* A connection request of a peer. */
struct rdma_cm_id *fake_peer(void);

#endif
