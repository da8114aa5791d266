/* SPDX-License-Identifier: BSD-2-Clause */
/* The method of a commit, as a pure function of facts and class. */
#ifndef RP_METHOD_H
#define RP_METHOD_H

#include "core/caps.h"

/*
 * The values are in keys and messages: never renumber. The agent carries out a
 * method, or has confirmed in the grant that the method is enough.
 */
enum rp_method {
	RP_METHOD_REFUSED = 0,
	RP_METHOD_DELIVERY = 1,	    /* nothing after placement */
	RP_METHOD_FENCE = 2,	    /* read inside the range ("appliance") */
	RP_METHOD_NATIVE = 3,	    /* device FLUSH */
	RP_METHOD_AGENT_SFENCE = 4, /* target: sfence */
	RP_METHOD_AGENT_CLWB = 5, /* target: clwb, sfence ("general purpose") */
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

/* Why there is no method; also why a registration is refused. */
enum rp_refusal {
	RP_REFUSAL_NONE = 0,
	RP_REFUSAL_VOLATILE,	/* anonymous or private memory */
	RP_REFUSAL_CLASS,	/* the region's class is below required */
	RP_REFUSAL_FS,		/* file system gives no promise */
	RP_REFUSAL_NOT_DIRTIED, /* placement marks no page-cache page dirty */
	RP_REFUSAL_NO_AGENT,
	RP_REFUSAL_NOT_BUILT, /* the row's method is not in this build */
	RP_REFUSAL_UNKNOWN,
};

struct rp_choice {
	enum rp_method method; /* RP_METHOD_REFUSED: see refusal */
	/*
	 * The class that a commit survives. Refused with RP_REFUSAL_CLASS: the
	 * strongest class of this memory (below the required one).
	 */
	enum rp_class class;
	enum rp_refusal refusal;
	const char *row;    /* the table row that matched, for people */
	const char *remedy; /* refused: what to change; never NULL then */
};

/*
 * The first row of the method table that matches facts and gives at least the
 * required class with a method in built, a mask of RP_METHOD_BIT().
 */
struct rp_choice rp_method_choose(const struct rp_facts *facts,
				  enum rp_class required, unsigned int built);

/*
 * The choice of the strongest class that rp_method_choose() grants for these
 * facts: recorded at registration.
 */
struct rp_choice rp_method_best(const struct rp_facts *facts,
				unsigned int built);

/*
 * Replace FENCE and NATIVE by the method with which the agent alone reaches the
 * same class, for an initiator that posts no fence or FLUSH.
 */
struct rp_choice rp_method_by_agent(const struct rp_facts *facts,
				    struct rp_choice choice);

/*
 * The choice to record at registration: rp_method_best() of the built methods,
 * or if the operator forces a method (its name; NULL or "": none) the strongest
 * class that the table gives with that method alone. The facts always allow the
 * choice. why (RP_WHY_LEN bytes) is "", or says what forbids the forced method.
 */
struct rp_choice rp_method_for_region(const struct rp_facts *facts,
				      const char *forced, char *why);
/* The method of this name; RP_METHOD_REFUSED: none has it. */
enum rp_method rp_method_parse(const char *name);
/* Methods that may carry out commits of a region with this forced method. */
unsigned int rp_methods_allowed(enum rp_method forced);

const char *rp_method_name(enum rp_method m);

#endif
