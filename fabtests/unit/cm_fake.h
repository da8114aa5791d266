/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fake RDMA device and connection manager (libibverbs, librdmacm). They do
 * only what the test says.
 */
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

/* Capability bits of the fake device and its library. */
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
	int call;	     /* number of the ibv_post_send() call */
	uint8_t type, level; /* arguments of FLUSH */
};

struct fake {
	const char *device;	 /* the only device */
	const char *resolves_to; /* device that a resolved address belongs to */
	bool wildcard;		 /* listeners are bound to no device */
	/* Work requests posted since the test set nposted to 0, in order. */
	struct fake_wr posted[FAKE_MAX];
	int nposted, calls;
	int take_max; /* with take_err: work requests that the next post accepts
		       */
	int take_err; /* errno of the next post; 0: it accepts all */
	uint64_t recv[FAKE_MAX];
	int nrecv;
	struct ibv_wc wc[FAKE_MAX];
	int nwc;
	struct ibv_async_event async[FAKE_MAX];
	int nasync, unacked_async;
	int armed, open; /* open: number of existing objects */
	int resolved, routed, connected, established, accepted, rejected,
		disconnected;
	int fail_route, busy_ports, fail_accept;
	struct rdma_conn_param cm_param; /* last rdma_connect() or accept */
	uint8_t cm_data[256];
	struct sockaddr_storage from, to; /* of the last address resolution */
	bool has_source;		  /* a source address was given */
	struct ibv_qp_init_attr qp_attr;  /* of the last created queue pair */
	uint32_t max_inline;		  /* more inline bytes are refused */
	struct ibv_qp *qp;
	uint32_t next_qp_number; /* next queue pair's number; 0: unused one */
	unsigned int access; /* rights of the last queue pair moved to INIT */
	struct ibv_qp_attr rtr, rts;
	int max_cqe;
	uint64_t caps;	   /* device capability flags */
	bool makes;	   /* the library supports FLUSH */
	uint64_t ops;	   /* send_ops_flags of the last created queue pair */
	int refuse_access; /* registrations with these flags fail */
	bool read_only;	   /* the fake memory is not writable */
	struct rdma_cm_id *id;		/* the ID that was created last */
	struct rdma_cm_id *listener_id; /* the ID of the listener */
};

extern struct fake fake;

/* Reset all fields. fake_end() checks that all objects are closed. */
void fake_start(void);
void fake_end(void);
/* Queue the completion of this work request. */
void fake_complete(const struct fake_wr *w, enum ibv_wc_status status);
void fake_message(uint64_t recv, uint32_t qp, const void *msg, uint32_t len);
/* Queue an event for id; destroying id drops it. */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
		const void *data, uint8_t len);
/* Like fake_event(), with private data padded to max bytes. */
void fake_padded(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		 const void *data, uint8_t len, uint8_t max);
void fake_async(enum ibv_event_type type, struct ibv_qp *qp);
/* Queue a connection request. Returns the ID of the new connection. */
struct rdma_cm_id *fake_peer(void);

#endif
