/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages that stay in their receive buffers: programs without ofi_rpmem. */
#ifndef CRASH_INPLACE_H
#define CRASH_INPLACE_H

#include "crash_node.h"
#include "crash_oracle.h"

/*
 * The provider has no method by messages that stay in their receive buffers,
 * but verdicts.tsv has rows for it. To check the model and the oracle against
 * these rows, the simulated programs use the base provider directly: each write
 * is a message, for which the target posts the write's destination as the
 * buffer.
 */

/* Post the receives of all messages and of all replies. */
void inplace_start(const struct crash_cell *cell, struct oracle *o,
		   struct node *target, uint8_t *mem, struct node *inits);
/*
 * Post a write as a message. addr, key: the target's memory, for the fence
 * read. late: leave the fence read to a call of inplace_fence(), so that other
 * messages may be posted before the read.
 */
ssize_t inplace_post(const struct crash_cell *cell, struct node *n,
		     struct oracle_op *op, uint64_t addr, uint64_t key,
		     bool late);
/* Post the deferred fence read, if there is one. */
ssize_t inplace_fence(struct node *n);
/* Post the target's reply to a message, whose bytes must be durable by now. */
void inplace_answer(struct node *target, const struct oracle_op *op,
		    fi_addr_t to);

#endif
