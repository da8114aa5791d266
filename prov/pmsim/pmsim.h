/* SPDX-License-Identifier: BSD-2-Clause */
/* The test's interface to the simulated fabric: machines, wires, breaks. */
#ifndef PMSIM_H
#define PMSIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pmsim/model.h"

/*
 * The base provider "pmsim" is a DSO that libfabric loads. The test opens the
 * same DSO with dlopen(), and calls pmsim_control() in it to get these calls.
 * One thread does everything. Nothing moves by itself: what one machine posts
 * is on the wire until pmsim->deliver(), and what has arrived is received when
 * that machine's program polls a completion queue.
 *
 * Domains opened after use_machine(m) run on machine m. Endpoint addresses are
 * 16 opaque bytes (addr_format FI_FORMAT_UNSPEC).
 */

#define PMSIM_CONTROL "pmsim_control"

/*
 * For fi_readmsg(): returns no bytes, FLUSHes the range to persistence by the
 * model. An adapter without that level refuses it.
 */
#define PMSIM_FLUSH (1ull << 60)

struct pmsim_cfg {
	bool ordered;	  /* FI_ORDER_SAW and the like, within one connection;
			     else overtake() may be called */
	bool placed_acks; /* FI_DELIVERY_COMPLETE waits for placement; else the
			     NIC acknowledges what it has received */
	bool no_acks;	/* no write is acknowledged: success proves nothing, as
			   over iWARP */
	bool prov_keys; /* FI_MR_PROV_KEY; else keys are the user's */
	/*
	 * For connected endpoints: an access to memory that is not registered
	 * ends the connection, as on a queue pair, and is reported to the
	 * program.
	 */
	bool errors_end;
	bool fixed_keys;  /* base keys count from 1 after each restart */
	bool virt_addr;	  /* FI_MR_VIRT_ADDR */
	bool late_errors; /* a break fails nothing before tell() */
	/*
	 * Breaks as programs see them with connected endpoints: after a break,
	 * or the end of the peer, posts to that address fail with -FI_ENOTCONN
	 * at both ends, until the address has been removed and inserted again.
	 */
	bool tells_breaks;
	/*
	 * There are connected endpoints (FI_EP_MSG) too. One is connected when
	 * both programs have read their events, and its end is final, see
	 * cut(). Addresses then look like IPv4; listeners have the lowest ports
	 * that are free.
	 */
	bool connects;
	bool reuse_keys; /* the next region gets the key of the last closed one
			  */
	bool recv_in_pm; /* receive buffers may be in the model's memory; else
			    posting such a buffer is refused, so that no test
			    uses it by mistake */
	/*
	 * Reads wait in the NIC for execute(): later work may pass them.
	 * FLUSHes do not wait.
	 */
	bool reads_wait;
	unsigned int again; /* every n-th post of any kind is refused with
			       -FI_EAGAIN; 0: none */
};

enum pmsim_cut {
	PMSIM_CUT_NOT, /* is there a connection? */
	PMSIM_CUT_HERE,
	PMSIM_CUT_BOTH,
};

/* One direction between two endpoints that have communicated. */
struct pmsim_wire {
	unsigned int id;       /* stable for as long as both endpoints live */
	unsigned int from, to; /* machines */
	bool connected;	       /* between connected endpoints */
	unsigned int in_flight;
	unsigned int arrived; /* over this connection, not received yet; without
				 what a NIC has placed */
	unsigned int qp;      /* in the model; a new one after each break */
};

/* Kinds of messages in flight, for tests. */
enum pmsim_what {
	PMSIM_WRITE,
	PMSIM_READ,
	PMSIM_ATOMIC,
	PMSIM_SEND,
	PMSIM_TSEND,
	PMSIM_ACK,	/* of a write: placed, or accepted by the NIC */
	PMSIM_RESPONSE, /* of a read or an atomic */
	PMSIM_ERROR,	/* of any of them: bad key, bad range */
};

struct pmsim_ops {
	/*
	 * Reset everything. No domain may be open. cfg NULL: keep the machines
	 * and the configuration; reset their models' memory.
	 */
	void (*reset)(const struct pmsim_cfg *cfg);

	/* Add a machine, numbered 0.. in order. cfg NULL: plain DRAM only. */
	unsigned int (*machine)(const struct model_cfg *cfg);
	struct model *(*model)(unsigned int machine);
	/* Domains opened from now on run on this machine. */
	void (*use_machine)(unsigned int machine);
	/*
	 * The process on this machine is killed: all its endpoints are gone at
	 * once, send nothing any more and can only be closed; messages on its
	 * wires are lost (the test delivers before, or breaks the wire with
	 * some late). What its NIC has accepted is placed. Peers see a break.
	 * Domains opened later belong to the restarted process; an endpoint
	 * that gets an earlier endpoint's address (fi_setname(), src_addr) is
	 * found by that.
	 */
	void (*kill)(unsigned int machine);

	/*
	 * Wires with messages in flight. Returns their number. A NIC
	 * acknowledges placed writes (placed_acks) no later than at this call.
	 */
	size_t (*wires)(struct pmsim_wire *out, size_t max);
	enum pmsim_what (*peek)(unsigned int wire, unsigned int index);
	/*
	 * The first n in flight arrive: a NIC that places by DMA executes
	 * writes and reads at once, everything else waits for the program.
	 */
	void (*deliver)(unsigned int wire, unsigned int n);
	/*
	 * The connection of this wire breaks, in both directions. Operations
	 * that wait for a reply (delivery, reads, atomics) fail at the
	 * initiator; others complete in any case. Towards `to` the first `late`
	 * messages arrived or in flight still arrive, the rest is lost; in the
	 * other direction only arrived ones are kept. What the NICs have
	 * accepted is not lost, and is placed before anything of the next
	 * connection. The next post connects again, without a report.
	 */
	void (*break_wire)(unsigned int wire, unsigned int late);
	/*
	 * End the connection of a connected endpoint of this machine; returns
	 * whether there was one. Nothing can be posted any more, and replies
	 * are lost. But other messages in flight may arrive for as long as the
	 * receiving endpoint is not closed; then they are lost, and what its
	 * NIC has accepted is placed. Its own program gets the event, and the
	 * peer's with BOTH only: otherwise the peer detects it by other means,
	 * or never.
	 */
	bool (*cut)(unsigned int machine, enum pmsim_cut how);
	/*
	 * Unread events of this machine's connected endpoints, without
	 * FI_SHUTDOWN, which programs may read late.
	 */
	unsigned int (*events)(unsigned int machine);
	/* Arrived messages that the machine's program has not received. */
	unsigned int (*arrived)(unsigned int machine);

	/* Number posted since reset(), e.g. to count round trips. */
	uint64_t (*count)(enum pmsim_what what);
	/* Posts of a machine without FI_MORE, which ring the NIC's doorbell. */
	uint64_t (*doorbells)(unsigned int machine);
	/* The NIC of a machine executes its waiting reads. */
	void (*execute)(unsigned int machine);
	/* Outstanding operations (not receives) of a machine. */
	unsigned int (*outstanding)(unsigned int machine);
	/* Print a line per event to stderr, for counterexamples. */
	void (*trace)(bool on);
	/*
	 * With late_errors: report the failed operations of a machine, and
	 * return their number. Before this the next connection may already
	 * carry messages.
	 */
	unsigned int (*untold)(unsigned int machine);
	void (*tell)(unsigned int machine);
	/* Message number index of an unordered wire becomes the first one. */
	void (*overtake)(unsigned int wire, unsigned int index);
};

/* The type of the DSO's symbol. */
typedef const struct pmsim_ops *(*pmsim_control_fn)(void);

#endif
