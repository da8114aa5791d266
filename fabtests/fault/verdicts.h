/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads verdicts.tsv: which method makes bytes durable in which cell. */
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

/* How a SEND becomes durable; the other operations have enum rp_method. */
enum verdict_send {
	VERDICT_INLINE_NONE,	    /* copy, reply */
	VERDICT_INLINE_CLWB,	    /* copy, clwb, sfence, reply */
	VERDICT_INPLACE_CLWB,	    /* clwb of the receive buffer, reply */
	VERDICT_INPLACE_FENCE,	    /* the initiator reads behind it */
	VERDICT_INPLACE_COMPLETION, /* nothing */
	VERDICT_SENDS
};

/* The order of b behind a. */
enum verdict_order {
	VERDICT_ALONE,	   /* single: there is no b */
	VERDICT_WAIT,	   /* when a's commit has completed */
	VERDICT_PIPELINED, /* without waiting */
	VERDICT_THEN,	   /* in one request; method and send are unused */
};

struct verdict_method {
	char *name; /* as in the file: "agent-clwb+wait" */
	enum rp_method method;
	enum verdict_send send;
	enum verdict_order order;
	bool valid; /* else forbidden */
	char *source;
};

#define VERDICT_METHODS (2 * RP_METHOD_MAX)

struct verdict_cell {
	char *name;
	bool taxonomy; /* one of the 72 of Kashyap et al. */
	/*
	 * The agent runs, the file system is trusted, broken connections are
	 * reported, and native is no: native methods set it.
	 */
	struct rp_facts facts;
	bool buffers_pm; /* receive buffers are in persistent memory */
	enum verdict_op op;
	bool compound;
	enum rp_class against; /* the failure that bytes must survive */
	struct verdict_method methods[VERDICT_METHODS];
	size_t n;
};

struct verdicts {
	struct verdict_cell *cells;
	size_t n;
	size_t valid, forbidden; /* number of pairs */
};

/*
 * Returns 0 and fills *v, to be freed with verdicts_free(); else a negative
 * errno, with a line on stderr that says where the file is wrong. The rows of
 * a cell must follow each other and agree, and no pair may occur twice.
 */
int verdicts_read(const char *path, struct verdicts *v);
void verdicts_free(struct verdicts *v);

/* NULL: there is none. */
const struct verdict_cell *verdicts_cell(const struct verdicts *v,
					 const char *name);
const struct verdict_method *verdict_method(const struct verdict_cell *cell,
					    const char *name);

#endif
