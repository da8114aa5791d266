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
 * One thread does everything. Nothing moves by itself: a message that one
 * machine posts stays on the wire until deliver() is called; an arrived message
 * is received when the program of its machine polls a completion queue.
 *
 * Domains opened after use_machine(m) run on machine m. Endpoint addresses are
 * 16 opaque bytes (addr_format FI_FORMAT_UNSPEC).
 */

#define PMSIM_CONTROL "pmsim_control"

/*
 * Flag for fi_readmsg(): return no bytes, but FLUSH the range to persistence in
 * the model. A NIC without MODEL_PERSISTENT refuses it.
 */
#define PMSIM_FLUSH (1ull << 60)

struct pmsim_cfg {
	bool ordered; /* keep FI_ORDER_* within one connection; else overtake()
			 may be called */
	bool placed_acks; /* FI_DELIVERY_COMPLETE waits for placement; else for
			     receipt by the NIC */
	bool no_acks;	  /* no acknowledgments: completion proves nothing */
	bool prov_keys;	  /* FI_MR_PROV_KEY; else the program chooses keys */
	/*
	 * FI_EP_MSG: an access to memory that is not registered ends the
	 * connection, as on a queue pair, and is reported to the program.
	 */
	bool errors_disconnect;
	bool fixed_keys;  /* keys count from 1 after each restart */
	bool virt_addr;	  /* FI_MR_VIRT_ADDR */
	bool late_errors; /* operations fail only at report_failures() */
	/*
	 * Report breaks as for connected endpoints: after a break, or the end
	 * of the peer, posts to that address fail with -FI_ENOTCONN at both
	 * ends, until the address is removed and inserted again.
	 */
	bool reports_breaks;
	/*
	 * Offer connected endpoints (FI_EP_MSG), too. An endpoint is connected
	 * when both programs have read their events; the end of its connection
	 * is final, see cut(). Addresses then look like IPv4; listeners have
	 * the lowest ports that are free.
	 */
	bool offers_msg;
	bool reuse_keys; /* a region gets the key of the last closed one */
	bool recv_in_pm; /* allow receives into the model's memory */
	/*
	 * Reads (no FLUSHes) wait in the NIC until execute(): later work may
	 * pass them.
	 */
	bool delays_reads;
	unsigned int
		refuse_every; /* refuse every n-th post (-FI_EAGAIN); 0: none */
};

enum pmsim_cut {
	PMSIM_CUT_NOT,	/* only query: is there a connection? */
	PMSIM_CUT_HERE, /* report it to this machine's program */
	PMSIM_CUT_BOTH, /* report it to both programs */
};

/* A wire: one direction between two endpoints that have communicated. */
struct pmsim_wire {
	unsigned int id;       /* constant while both endpoints exist */
	unsigned int from, to; /* machine numbers */
	bool connected;	       /* between connected endpoints */
	unsigned int in_flight;
	unsigned int arrived; /* arrived on this connection, not received yet,
				 and not placed by a NIC */
	unsigned int qp;      /* number in the model; new after each break */
};

/* Types of messages in flight. */
enum pmsim_msg_type {
	PMSIM_WRITE,
	PMSIM_READ,
	PMSIM_ATOMIC,
	PMSIM_SEND,
	PMSIM_TSEND,
	PMSIM_ACK,	/* a write is placed, or the NIC has it */
	PMSIM_RESPONSE, /* reply to a read or an atomic */
	PMSIM_ERROR,	/* error reply: bad key, bad range */
};

struct pmsim_ops {
	/*
	 * Reset the simulation; no domain may be open. cfg NULL: keep machines
	 * and configuration, and reset the models' memory.
	 */
	void (*reset)(const struct pmsim_cfg *cfg);

	/* Add a machine, numbered from 0. cfg NULL: plain DRAM only. */
	unsigned int (*machine)(const struct model_cfg *cfg);
	struct model *(*model)(unsigned int machine);
	/* Domains opened from now on run on this machine. */
	void (*use_machine)(unsigned int machine);
	/*
	 * Kill the process on this machine. Its endpoints vanish at once, send
	 * nothing more and can only be closed; messages on its wires are lost
	 * (before this call the test may deliver some, or break the wire with
	 * some late). Writes that its NIC has accepted are placed. Peers see a
	 * break. Domains opened later belong to the restarted process; its
	 * endpoint that takes an earlier endpoint's address (fi_setname(),
	 * src_addr) gets the messages to that address.
	 */
	void (*kill)(unsigned int machine);

	/*
	 * List the wires with messages in flight; returns their number. A NIC
	 * acknowledges placed writes (placed_acks) no later than at this call.
	 */
	size_t (*wires)(struct pmsim_wire *out, size_t max);
	enum pmsim_msg_type (*peek)(unsigned int wire, unsigned int index);
	/*
	 * Let the first n messages in flight arrive: a NIC that places by DMA
	 * executes writes and reads at once, all other messages wait for the
	 * program.
	 */
	void (*deliver)(unsigned int wire, unsigned int n);
	/*
	 * Break the connection of this wire, in both directions. Operations
	 * that wait for a reply (delivery, reads, atomics) fail at the
	 * initiator; others complete in any case. Of the messages to `to`,
	 * arrived or in flight, the first `late` still arrive, the rest is
	 * lost; in the other direction only arrived ones are kept. Work that
	 * the NICs have accepted is not lost, and is placed before anything of
	 * the next connection. The next post connects again, without a report.
	 */
	void (*break_wire)(unsigned int wire, unsigned int late);
	/*
	 * End the connection of an FI_EP_MSG endpoint of this machine; returns
	 * whether there was one. Then nothing can be posted, and replies are
	 * lost. Other messages in flight may arrive until the receiving
	 * endpoint is closed; then they are lost, and work that its NIC has
	 * accepted is placed. This machine's program gets the event; the peer's
	 * gets it with PMSIM_CUT_BOTH only: otherwise the peer detects the end
	 * by other means, or never.
	 */
	bool (*cut)(unsigned int machine, enum pmsim_cut how);
	/*
	 * Number of unread events of this machine's FI_EP_MSG endpoints, except
	 * FI_SHUTDOWN, which programs may read late.
	 */
	unsigned int (*events)(unsigned int machine);
	/* Number of arrived messages not received by the machine's program. */
	unsigned int (*arrived)(unsigned int machine);

	/* Number of such messages since reset(), to count round trips. */
	uint64_t (*count)(enum pmsim_msg_type type);
	/* Number of posts without FI_MORE, which ring the doorbell. */
	uint64_t (*doorbells)(unsigned int machine);
	/* Let the NIC of a machine execute its waiting reads. */
	void (*execute)(unsigned int machine);
	/* Number of a machine's outstanding operations, without receives. */
	unsigned int (*outstanding)(unsigned int machine);
	/* Print a line per event to stderr, for counterexamples. */
	void (*trace)(bool on);
	/*
	 * With late_errors: unreported() counts a machine's failed operations
	 * that are not reported yet, report_failures() reports them. Before
	 * that the next connection may already carry messages.
	 */
	unsigned int (*unreported)(unsigned int machine);
	void (*report_failures)(unsigned int machine);
	/* Move message number index of an unordered wire to the front. */
	void (*overtake)(unsigned int wire, unsigned int index);
};

/* Type of the DSO's symbol pmsim_control. */
typedef const struct pmsim_ops *(*pmsim_control_fn)(void);

#endif
