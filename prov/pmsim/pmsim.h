/* SPDX-License-Identifier: BSD-2-Clause */
/* How a test drives the simulated fabric: machines, wires, breaks, time. */
#ifndef PMSIM_H
#define PMSIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pmsim/model.h"

/*
 * The base provider "pmsim" is a DSO that libfabric loads. The test opens the
 * same DSO with dlopen(), and calls pmsim_control() in it to get these. One
 * thread does everything. Nothing moves unless it is told to: what one machine
 * posts is on the wire until pmsim->deliver(), and what has arrived is looked
 * at when that machine's program reads a completion queue.
 *
 * Domains opened after use_machine(m) run on machine m. Endpoint addresses are
 * 16 opaque bytes (addr_format FI_FORMAT_UNSPEC).
 */

#define PMSIM_CONTROL "pmsim_control"

/*
 * Of fi_readmsg(): no bytes come back, the range is FLUSHed to persistence, as
 * the model has it. An adapter without that level refuses it.
 */
#define PMSIM_FLUSH (1ull << 60)

struct pmsim_cfg {
	bool ordered;	  /* FI_ORDER_SAW and the like, within one connection;
			     else overtake() may be called */
	bool placed_acks; /* FI_DELIVERY_COMPLETE waits for placement; else the
			     NIC acknowledges what it has received */
	bool no_acks;	  /* nobody acknowledges a write: its success says
			     nothing, as over iWARP */
	bool prov_keys;	  /* FI_MR_PROV_KEY; else keys are the user's */
	/*
	 * With connected endpoints: what one of them asks of memory that is not
	 * there ends its connection, as on a queue pair, and its program is
	 * told.
	 */
	bool errors_end;
	bool fixed_keys;  /* base keys count from 1 in each life of a machine */
	bool virt_addr;	  /* FI_MR_VIRT_ADDR */
	bool late_errors; /* a break fails nothing before tell() */
	/*
	 * As a program sees connected endpoints: after a break, or the death of
	 * the peer, every post to that address is refused with -FI_ENOTCONN, at
	 * both ends, until the address has been removed and inserted again.
	 */
	bool tells_breaks;
	/*
	 * There are connected endpoints (FI_EP_MSG) too. One is connected when
	 * both programs have looked for events, and its end is final, see
	 * cut(). Addresses are then called IPv4; listeners
	 * have the lowest ports that are free.
	 */
	bool connects;
	bool reuse_keys; /* the next region gets the key of the last closed one
			  */
	bool recv_in_pm; /* receive buffers may be in the model's memory; else
			    posting such a one is refused, so that nobody
			    tests another scenario than he thinks */
	/*
	 * Reads wait in the NIC for execute(): what comes behind one may pass
	 * it. FLUSHes do not.
	 */
	bool reads_wait;
	unsigned int again; /* every n-th post, of whatever, is refused with
			       -FI_EAGAIN; 0: none */
};

enum pmsim_cut {
	PMSIM_CUT_NOT, /* is there one? */
	PMSIM_CUT_HERE,
	PMSIM_CUT_BOTH,
};

/* One direction between two endpoints that have ever talked. */
struct pmsim_wire {
	unsigned int id;       /* stable for as long as both endpoints live */
	unsigned int from, to; /* machines */
	bool connected;	       /* of connected endpoints */
	unsigned int in_flight;
	unsigned int arrived; /* over this connection, and not looked at; what a
				 NIC has placed does not count */
	unsigned int qp;      /* of the model; a new one after each break */
};

/* What a test may want to see of a message in flight. */
enum pmsim_what {
	PMSIM_WRITE,
	PMSIM_READ,
	PMSIM_ATOMIC,
	PMSIM_SEND,
	PMSIM_TSEND,
	PMSIM_ACK,	/* of a write: placed, or received */
	PMSIM_RESPONSE, /* of a read or an atomic */
	PMSIM_ERROR,	/* of any of them: bad key, bad range */
};

struct pmsim_ops {
	/*
	 * Everything as new. No domain may be open. cfg NULL: the machines and
	 * the configuration stay; their models' memory is as new.
	 */
	void (*reset)(const struct pmsim_cfg *cfg);

	/* Machines: number them 0.. in order. cfg NULL: plain DRAM only. */
	unsigned int (*machine)(const struct model_cfg *cfg);
	struct model *(*model)(unsigned int machine);
	/* Domains opened from now on are on this machine. */
	void (*use_machine)(unsigned int machine);
	/*
	 * The process on this machine dies: all its endpoints are gone at once,
	 * say nothing any more and can only be closed; what was on its wires is
	 * lost (what shall still arrive is delivered, or the wire broken with
	 * some late, before). What its NIC has taken gets to memory. Peers
	 * learn of it as of a break. Domains opened after it are its next
	 * life; an endpoint that gets the address of an earlier one
	 * (fi_setname(), src_addr) is found under it.
	 */
	void (*kill)(unsigned int machine);

	/*
	 * Wires with something in flight. Returns how many there are. A NIC
	 * whose writes have got to memory acknowledges them (placed_acks) no
	 * later than at this call.
	 */
	size_t (*wires)(struct pmsim_wire *out, size_t max);
	enum pmsim_what (*peek)(unsigned int wire, unsigned int index);
	/*
	 * The first n in flight arrive: a NIC that places by DMA takes writes
	 * and reads at once, everything else waits for the program.
	 */
	void (*deliver)(unsigned int wire, unsigned int n);
	/*
	 * The connection that this wire belongs to breaks, in both directions.
	 * Operations that wait for an answer (delivery, reads, atomics) fail at
	 * the initiator; others complete whatever becomes of them. Towards `to`
	 * the first `late` of those that have arrived or are in flight still
	 * get there, the rest is lost; of the other direction, what has
	 * arrived. What the NICs have taken is not lost, and gets to memory
	 * before anything of the next connection. The next post makes that one,
	 * and nobody is told.
	 */
	void (*break_wire)(unsigned int wire, unsigned int late);
	/*
	 * The connection of a connected endpoint of this machine ends, unless
	 * there is none, which is what it returns. Nothing can be posted any
	 * more, and answers are lost. But what else is on its way may arrive
	 * for as long as the endpoint that it goes to is not closed; then it
	 * is lost, and what its NIC has taken is in memory. Its own program is
	 * told, and the peer's with BOTH only: else that learns of it by other
	 * means, or never.
	 */
	bool (*cut)(unsigned int machine, enum pmsim_cut how);
	/*
	 * That connected endpoints of this machine have not been told of, but
	 * for the ends of connections: nobody is in a hurry to look for those.
	 */
	unsigned int (*events)(unsigned int machine);
	/* Has arrived, and the machine's program has not looked at it yet. */
	unsigned int (*arrived)(unsigned int machine);

	/* Posted since reset(), for round trips and so on. */
	uint64_t (*count)(enum pmsim_what what);
	/* Posts of a machine without FI_MORE: its NIC is told to look. */
	uint64_t (*doorbells)(unsigned int machine);
	/* The NIC of a machine executes the reads that wait there. */
	void (*execute)(unsigned int machine);
	/* Posted operations (not receives) of a machine, not yet completed. */
	unsigned int (*outstanding)(unsigned int machine);
	/* A line per event to stderr, for counterexamples. */
	void (*trace)(bool on);
	/*
	 * With late_errors: how many operations of a machine have failed
	 * without being told of, and tell of them. Meanwhile the next
	 * connection may carry messages.
	 */
	unsigned int (*untold)(unsigned int machine);
	void (*tell)(unsigned int machine);
	/* Message number index of an unordered wire is the first one now. */
	void (*overtake)(unsigned int wire, unsigned int index);
};

/* The symbol of the DSO. */
typedef const struct pmsim_ops *(*pmsim_control_fn)(void);

#endif
