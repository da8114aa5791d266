/* SPDX-License-Identifier: BSD-2-Clause */
/* How a commit is carried out, as a pure function of facts and class. */
#ifndef RP_METHOD_H
#define RP_METHOD_H

#include "core/caps.h"

/*
 * The values travel in keys and messages: never renumber. Every method is
 * carried out by, or confirmed by, the agent.
 */
enum rp_method {
	RP_METHOD_REFUSED = 0,
	RP_METHOD_DELIVERY = 1,	    /* nothing after placement */
	RP_METHOD_FENCE = 2,	    /* read inside the range ("appliance") */
	RP_METHOD_NATIVE = 3,	    /* device FLUSH */
	RP_METHOD_AGENT_SFENCE = 4, /* target: sfence */
	RP_METHOD_AGENT_CLWB =
		5, /* target: clwb + sfence ("general purpose") */
	RP_METHOD_AGENT_MSYNC = 6,	/* target: msync */
	RP_METHOD_AGENT_CLWB_MSYNC = 7, /* target: clwb + sfence, then msync */
	RP_METHOD_MAX
};

#define RP_METHOD_BIT(m) (1u << (m))

/* The methods that this build can carry out. */
#define RP_METHODS_BUILT                                                       \
	(RP_METHOD_BIT(RP_METHOD_DELIVERY) | RP_METHOD_BIT(RP_METHOD_FENCE) |  \
	 RP_METHOD_BIT(RP_METHOD_NATIVE) |                                     \
	 RP_METHOD_BIT(RP_METHOD_AGENT_SFENCE) |                               \
	 RP_METHOD_BIT(RP_METHOD_AGENT_CLWB) |                                 \
	 RP_METHOD_BIT(RP_METHOD_AGENT_MSYNC) |                                \
	 RP_METHOD_BIT(RP_METHOD_AGENT_CLWB_MSYNC))

/* Why there is no method; also what a registration is refused for. */
enum rp_refusal {
	RP_REFUSAL_NONE = 0,
	RP_REFUSAL_VOLATILE,	/* anonymous or private memory */
	RP_REFUSAL_CLASS,	/* the region's class is weaker than required */
	RP_REFUSAL_FS,		/* file system gives no promise */
	RP_REFUSAL_NOT_DIRTIED, /* placement does not mark page-cache pages
				   dirty */
	RP_REFUSAL_NO_AGENT,
	RP_REFUSAL_NOT_BUILT, /* the row's method is not in this build */
	RP_REFUSAL_UNKNOWN,
};

struct rp_choice {
	enum rp_method method; /* RP_METHOD_REFUSED: see refusal */
	/*
	 * What a commit then survives. Refused with RP_REFUSAL_CLASS: the
	 * strongest that this memory has (below the required one).
	 */
	enum rp_class class;
	enum rp_refusal refusal;
	const char *row;    /* the table row that matched, for people */
	const char *remedy; /* refused: what to change; never NULL then */
};

/*
 * The first row of the table of design section 3 that matches facts and
 * gives at least the required class with a method in built. Pure: no state,
 * no system call.
 */
struct rp_choice rp_method_choose(const struct rp_facts *facts,
				  enum rp_class required, unsigned int built);

/*
 * The strongest class that rp_method_choose() grants on these facts, with its
 * choice: what a registration records.
 */
struct rp_choice rp_method_best(const struct rp_facts *facts,
				unsigned int built);

/*
 * How the agent brings bytes of such a region to the same class, for who has
 * made no fence behind them, nor a FLUSH. Other choices stay what they are.
 */
struct rp_choice rp_method_by_agent(const struct rp_facts *facts,
				    struct rp_choice choice);

/*
 * What a registration records: rp_method_best() of what is built, or where the
 * operator forces a method (forced: its name; NULL or "": none is) the
 * strongest class that the same table gives by that method alone. So it is
 * never one that the facts do not allow, nor of a higher class. why (RP_WHY_LEN
 * bytes) is "", or says what forbids the forced method.
 */
struct rp_choice rp_method_pick(const struct rp_facts *facts,
				const char *forced, char *why);
/* The method of this name; RP_METHOD_REFUSED: none has it. */
enum rp_method rp_method_parse(const char *name);
/* Those that may carry out commits of a region where this one is forced. */
unsigned int rp_methods_allowed(enum rp_method forced);

/* One row of the table in the words of docs/guarantees.md. */
struct rp_method_words {
	char memory[64], placement[64], domain[64];
	char needs[32];	 /* facts, comma separated */
	char method[64]; /* or "refused: why" */
	char class[16];	 /* "" for a refusal */
};
/* False behind the last row. */
bool rp_method_row(size_t i, struct rp_method_words *w);

/* The one change that would give a better method. */
struct rp_advice {
	const char *change;	 /* a sentence; NULL: nothing is better */
	struct rp_choice choice; /* what it would give */
};
struct rp_advice rp_method_advice(const struct rp_facts *facts,
				  unsigned int built);

const char *rp_method_name(enum rp_method m);
const char *rp_refusal_name(enum rp_refusal r);

#endif
