// SPDX-License-Identifier: BSD-2-Clause
/* Writes as messages that stay in their receive buffers (crash_inplace.h). */
#include <rdma/fi_tagged.h>
#include <string.h>

#include "crash_inplace.h"
#include "fault/verdicts.h"

/* A message has its write's id as its tag. The reply's tag adds this bit. */
#define ANSWER 0x100

static uint8_t landing[8]; /* buffer of fence reads; nothing looks at it */
/* By initiator: the fence read that is not posted yet. */
static struct {
	struct oracle_op *op;
	uint64_t addr, key;
} owed[CRASH_INITS];

void inplace_start(const struct crash_cell *cell, struct oracle *o,
		   struct node *target, uint8_t *mem, struct node *inits)
{
	memset(owed, 0, sizeof(owed));
	for (unsigned int i = 0; i < CRASH_INITS; i++)
		for (unsigned int k = 0; k < o->prog->n[i]; k++) {
			struct oracle_op *op = &o->op[i][k];

			if (op->kind != CRASH_WRITE_COMMIT)
				continue;
			MUST(fi_trecv(target->ep, mem + op->off, op->len, NULL,
				      FI_ADDR_UNSPEC, op->id, 0, op));
			if (cell->inplace != VERDICT_INPLACE_CLWB)
				continue;
			MUST(fi_trecv(inits[i].ep, NULL, 0, NULL,
				      FI_ADDR_UNSPEC, op->id | ANSWER, 0, op));
		}
}

ssize_t inplace_fence(struct node *n)
{
	struct oracle_op *op = owed[n->machine].op;
	size_t len;

	if (!op)
		return 0;
	owed[n->machine].op = NULL;
	len = op->len < sizeof(landing) ? op->len : sizeof(landing);
	return fi_read(n->ep, landing, len, NULL, n->peer,
		       owed[n->machine].addr + op->off, owed[n->machine].key,
		       op);
}

ssize_t inplace_post(const struct crash_cell *cell, struct node *n,
		     struct oracle_op *op, uint64_t addr, uint64_t key,
		     bool late)
{
	bool alone = cell->inplace == VERDICT_INPLACE_COMPLETION;
	struct iovec iov = {op->bytes, op->len};
	struct fi_msg_tagged msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = n->peer,
		.tag = op->id,
		.context = alone ? op : NULL,
	};
	ssize_t ret =
		fi_tsendmsg(n->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);

	if (ret || cell->inplace != VERDICT_INPLACE_FENCE)
		return ret;
	MUST(inplace_fence(n));
	owed[n->machine].op = op;
	owed[n->machine].addr = addr;
	owed[n->machine].key = key;
	return late ? 0 : inplace_fence(n);
}

void inplace_answer(struct node *target, const struct oracle_op *op,
		    fi_addr_t to)
{
	MUST(fi_tinject(target->ep, NULL, 0, to, op->id | ANSWER));
}
