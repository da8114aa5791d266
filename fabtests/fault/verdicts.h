/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads verdicts.tsv: which method makes bytes durable in which scenario
 * ("cell").
 */
#ifndef VERDICTS_H
#define VERDICTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/caps.h"
#include "core/method.h"

enum verdict_op {
	VERDICT_WRITE,
	VERDICT_WRITE_IMM,
	VERDICT_SEND,
};

/*
 * How the bytes of a SEND become durable. For other operations enum rp_method
 * says how.
 */
enum verdict_send {
	VERDICT_INLINE_NONE,	    /* copy, reply */
	VERDICT_INLINE_CLWB,	    /* copy, clwb, sfence, reply */
	VERDICT_INPLACE_CLWB,	    /* clwb of the receive buffer, reply */
	VERDICT_INPLACE_FENCE,	    /* copy nothing; the initiator posts a
				     * read fence */
	VERDICT_INPLACE_COMPLETION, /* copy nothing, flush nothing */
	VERDICT_SENDS
};

/* How a write b is ordered after a write a. */
enum verdict_order {
	VERDICT_ALONE,	   /* single write: there is no b */
	VERDICT_WAIT,	   /* b waits for the completion of a's commit */
	VERDICT_PIPELINED, /* b is posted without waiting */
	VERDICT_THEN,	   /* ordered store in one request; method and send
			    * are unused */
};

struct verdict_method {
	char *name; /* name in the file, as "agent-clwb+wait" */
	enum rp_method method;
	enum verdict_send send;
	enum verdict_order order;
	bool valid; /* false: forbidden */
	char *source;
};

#define VERDICT_METHODS (2 * RP_METHOD_MAX)

struct verdict_cell {
	char *name;
	bool taxonomy; /* one of the 72 cells of the paper of Kashyap et al. */
	/*
	 * In all cells the agent runs, and the file system is trusted. `native`
	 * is RP_NO here; it is changed for native methods.
	 */
	struct rp_facts facts;
	bool buffers_pm; /* receive buffers are persistent memory */
	enum verdict_op op;
	bool compound;
	enum rp_class against; /* the failure that bytes must survive */
	struct verdict_method methods[VERDICT_METHODS];
	size_t n;
};

struct verdicts {
	struct verdict_cell *cells;
	size_t n;
	size_t valid, forbidden; /* number of valid and forbidden pairs */
};

/*
 * Read the file into *v, which verdicts_free() frees. Returns 0, or a negative
 * errno after a line on stderr that names the wrong row. The rows of a cell
 * must be adjacent and agree, and no pair may occur twice.
 */
int verdicts_read(const char *path, struct verdicts *v);
void verdicts_free(struct verdicts *v);

/* Find a cell by its name; NULL: no such cell. */
const struct verdict_cell *verdicts_cell(const struct verdicts *v,
					 const char *name);
const struct verdict_method *verdict_method(const struct verdict_cell *cell,
					    const char *name);

#endif
