/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages that stay in their receive buffers: programs without ofi_rpmem. */
#ifndef CRASH_INPLACE_H
#define CRASH_INPLACE_H

#include "crash_node.h"
#include "crash_oracle.h"

/*
 * The provider does nothing like it. So that the model and the oracle are held
 * against those rows of the verdicts as well, the simulated programs do it by
 * themselves, over the base: each write of a program is a message, and is
 * received where the program writes.
 */

/* The buffers of all messages, and of the answers. */
void inplace_start(const struct crash_cell *cell, struct oracle *o,
		   struct node *target, uint8_t *mem, struct node *inits);
/*
 * addr, key: of the target's memory, for the read that is a fence. late: that
 * comes with the next call, behind what is posted by then.
 */
ssize_t inplace_post(const struct crash_cell *cell, struct node *n,
		     struct oracle_op *op, uint64_t addr, uint64_t key,
		     bool late);
/* The fence that is late, if there is one. */
ssize_t inplace_fence(struct node *n);
/* The target's answer: by now the message is where it has to be. */
void inplace_answer(struct node *target, const struct oracle_op *op,
		    fi_addr_t to);

#endif
