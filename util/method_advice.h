/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds one change to a machine that gives its memory a better method. */
#ifndef RP_METHOD_ADVICE_H
#define RP_METHOD_ADVICE_H

#include "core/method.h"

struct rp_advice {
	const char *change;	 /* text of the change; NULL: no change helps */
	struct rp_choice choice; /* method and class after the change */
};
struct rp_advice rp_method_advice(const struct rp_facts *facts,
				  unsigned int built);

#endif
