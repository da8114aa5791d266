// SPDX-License-Identifier: BSD-2-Clause
/*
 * Compares what a power cut may leave with what completions promised. The
 * oracle knows only the completions that programs got.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "crash_oracle.h"

static bool is_zero(const struct oracle_op *op)
{
	return op->kind == CRASH_ZERO || op->kind == CRASH_ZERO_COMMIT;
}

static bool is_write(const struct oracle_op *op)
{
	return op->kind == CRASH_WRITE || op->kind == CRASH_WRITE_COMMIT ||
	       op->kind == CRASH_REDO || op->kind == CRASH_THEN ||
	       op->kind == CRASH_ATOMIC || is_zero(op);
}

/* Does op write byte b? A THEN (ordered store) writes the 8 bytes at op->at. */
static bool writes_byte(const struct oracle_op *op, unsigned int b)
{
	if (op->kind == CRASH_THEN)
		return b >= op->at && b < op->at + 8;
	return is_write(op) && b >= op->off && b < op->off + op->len;
}

bool oracle_is_commit(const struct oracle_op *op)
{
	return op->kind == CRASH_COMMIT || op->kind == CRASH_SCATTER ||
	       op->kind == CRASH_WRITE_COMMIT || op->kind == CRASH_THEN ||
	       op->kind == CRASH_ATOMIC || op->kind == CRASH_ZERO_COMMIT;
}

const char *oracle_op_name(const struct oracle_op *op)
{
	static const char *const kinds[] = {
		"write",  "commit",  "scattered commit", "write+commit",
		"wait",	  "rewrite", "learn the key",	 "commit+store",
		"atomic", "zeros",   "zeros+commit",
	};
	static char text[64];

	snprintf(text, sizeof(text), "%s #%u [%u, %u)", kinds[op->kind], op->id,
		 op->off, op->off + op->len);
	return text;
}

void oracle_start(struct oracle *o, const struct crash_cell *cell,
		  const struct crash_prog *prog, char *why)
{
	memset(o, 0, sizeof(*o));
	o->cell = cell;
	o->prog = prog;
	o->why = why;
	*why = 0;
	for (unsigned int i = 0; i < CRASH_INITS; i++)
		for (unsigned int k = 0; k < prog->n[i]; k++) {
			struct oracle_op *op = &o->op[i][k];

			op->init = i;
			op->number = k;
			op->id = (uint8_t)(1 + i * CRASH_OPS + k);
			op->kind = prog->op[i][k].kind;
			op->off = prog->op[i][k].off;
			op->len = prog->op[i][k].len;
			op->at = prog->op[i][k].at;
			memset(op->bytes, op->id, sizeof(op->bytes));
		}
}

__attribute__((format(printf, 2, 3))) static void
oracle_fail(struct oracle *o, const char *fmt, ...)
{
	va_list ap;

	if (o->wrong)
		return;
	o->wrong = true;
	va_start(ap, fmt);
	vsnprintf(o->why, CRASH_WHY, fmt, ap);
	va_end(ap);
}

bool oracle_idle(const struct oracle *o, unsigned int i)
{
	for (unsigned int k = 0; k < o->next[i]; k++)
		if (o->op[i][k].state == OP_POSTED)
			return false;
	return true;
}

void oracle_connects(struct oracle *o, unsigned int i)
{
	o->conn[i]++;
}

bool oracle_may_post(const struct oracle *o, unsigned int i)
{
	unsigned int k = o->next[i];

	if (k == o->prog->n[i])
		return false;
	return o->op[i][k].kind != CRASH_WAIT || oracle_idle(o, i);
}

bool oracle_next_is_write(const struct oracle *o, unsigned int i)
{
	unsigned int k = o->next[i];

	return k < o->prog->n[i] && o->op[i][k].kind != CRASH_WAIT;
}

bool oracle_next_is_query(const struct oracle *o, unsigned int i)
{
	return o->op[i][o->next[i]].kind == CRASH_QUERY;
}

/* Find initiator i's first failed write, for a REDO. */
static struct oracle_op *failed_write(struct oracle *o, unsigned int i)
{
	for (unsigned int k = 0; k < o->next[i]; k++) {
		struct oracle_op *op = &o->op[i][k];

		if ((op->kind == CRASH_WRITE || op->kind == CRASH_ZERO) &&
		    op->state == OP_FAILED)
			return op;
	}
	return NULL;
}

struct oracle_op *oracle_next(struct oracle *o, unsigned int i)
{
	struct oracle_op *op = &o->op[i][o->next[i]++], *bad;

	if (op->kind == CRASH_WAIT || op->kind == CRASH_QUERY) {
		op->state = OP_SKIPPED;
		return NULL;
	}
	if (op->kind == CRASH_REDO) {
		bad = failed_write(o, i);
		if (!bad) {
			op->state = OP_SKIPPED;
			return NULL;
		}
		op->off = bad->off;
		op->len = bad->len;
	}
	return op;
}

void oracle_posted(struct oracle *o, struct oracle_op *op, uint64_t key,
		   unsigned int step)
{
	op->key = key;
	op->conn = o->conn[op->init];
	op->state = OP_POSTED;
	op->posted = step;
}

void oracle_refused(struct oracle_op *op)
{
	op->state = OP_SKIPPED;
}

void oracle_unposted(struct oracle *o, struct oracle_op *op)
{
	o->next[op->init]--;
}

/*
 * Find the last write to this byte, among the commit's own and earlier
 * operations of its initiator. Only writes with the commit's key and connection
 * count: another key is another region.
 */
static const struct oracle_op *last_write(const struct oracle *o,
					  const struct oracle_op *commit,
					  unsigned int byte)
{
	const struct oracle_op *ops = o->op[commit->init];

	for (unsigned int k = commit->number + 1; k--;) {
		const struct oracle_op *op = &ops[k];

		/* The store of a THEN follows the THEN's own commit. */
		if (op == commit && op->kind == CRASH_THEN)
			continue;
		if (op->state != OP_NEW && op->state != OP_SKIPPED &&
		    op->key == commit->key && op->conn == commit->conn &&
		    writes_byte(op, byte))
			return op;
	}
	return NULL;
}

static bool covers_byte(const struct oracle_op *commit, unsigned int b)
{
	return (b >= commit->off && b < commit->off + commit->len) ||
	       (commit->kind == CRASH_SCATTER && b >= CRASH_APART &&
		b - CRASH_APART >= commit->off &&
		b - CRASH_APART < commit->off + commit->len);
}

/*
 * The phase that counts for a commit and a write that it covers. The target
 * withdraws a class by closing connections. An initiator that has not noticed
 * the end may still complete a commit of earlier writes with the former class
 * (ORACLE_WINDOW). Later writes are ORACLE_AFTER, and so are commits posted
 * after a refusal. With c->stays no connection ends, so the agent's replies to
 * all requests that were posted later are ORACLE_AFTER.
 */
static enum oracle_phase phase_of(const struct oracle *o,
				  const struct oracle_op *commit,
				  const struct oracle_op *write)
{
	const unsigned int refused = o->refused[commit->init];

	if (o->phase == ORACLE_AFTER && o->cell->by_initiator)
		return ORACLE_LATE;
	if (o->phase == ORACLE_AFTER && o->cell->stays)
		return commit->posted > o->noticed ? ORACLE_AFTER
						   : ORACLE_WINDOW;
	if (o->phase == ORACLE_AFTER && write->posted <= o->noticed &&
	    (!refused || commit->posted <= refused))
		return ORACLE_WINDOW;
	return o->phase;
}

static void must_set(struct oracle *o, const struct oracle_op *commit,
		     unsigned int b, const struct oracle_op *write)
{
	o->must[b][commit->init] = write;
	o->acked[b][commit->init] = phase_of(o, commit, write);
	o->nmust++;
	o->late |= o->acked[b][commit->init] == ORACLE_LATE;
	if (o->acked[b][commit->init] == ORACLE_AFTER &&
	    o->cell->weak_class < o->cell->against)
		oracle_fail(o, "commit #%u is ok, its class is no more",
			    commit->id);
}

static void acknowledge_byte(struct oracle *o, const struct oracle_op *commit,
			     unsigned int b)
{
	const struct oracle_op *last = last_write(o, commit, b);

	if (!last)
		return;
	/*
	 * A write with its own commit has one completion for both, so the state
	 * of the write is unknown here: check_byte() compares the bytes that a
	 * cut may leave.
	 */
	if (last->kind != CRASH_WRITE_COMMIT &&
	    last->kind != CRASH_ZERO_COMMIT && last != commit) {
		if (last->state == OP_POSTED)
			oracle_fail(o, "commit #%u is ok before write #%u",
				    commit->id, last->id);
		if (last->state == OP_FAILED)
			oracle_fail(o, "commit #%u is ok, write #%u failed",
				    commit->id, last->id);
	}
	must_set(o, commit, b, last);
}

static void acknowledge_commit(struct oracle *o, const struct oracle_op *commit)
{
	for (unsigned int b = 0; b < CRASH_BYTES; b++)
		if (covers_byte(commit, b))
			acknowledge_byte(o, commit, b);
	if ((commit->kind == CRASH_THEN || commit->kind == CRASH_ATOMIC) &&
	    !commit->stores)
		oracle_fail(o, "#%u is ok and was not stored", commit->id);
	if (commit->kind != CRASH_THEN)
		return;
	for (unsigned int b = commit->at; b < commit->at + 8; b++)
		must_set(o, commit, b, commit);
}

void oracle_complete(struct oracle *o, struct oracle_op *op, int err,
		     unsigned int step)
{
	bool ok = !err;

	if (op->state != OP_POSTED) {
		oracle_fail(o, "#%u completes twice", op->id);
		return;
	}
	op->ended = step;
	if (ok && oracle_is_commit(op) && o->notified && o->cell->by_initiator)
		oracle_fail(o, "#%u is ok, and its region has weakened",
			    op->id);
	if (ok && oracle_is_commit(op))
		acknowledge_commit(o, op);
	if (ok && o->cell->send && !o->cell->inplace &&
	    op->kind == CRASH_WRITE_COMMIT && !op->copied)
		oracle_fail(o, "#%u did not travel in a message", op->id);
	op->state = ok ? OP_OK : OP_FAILED;
	if ((err == EOPNOTSUPP || err == ENOMEDIUM) &&
	    o->phase == ORACLE_AFTER && !o->refused[op->init])
		o->refused[op->init] = step;
	/*
	 * Indeterminate: unknown outcome, canceled, or stored but not flushed.
	 */
	op->unsure = err == EUCLEAN || err == ECANCELED || err == EIO;
	if (!ok && op->stores && !op->unsure)
		oracle_fail(o, "#%u was stored, and its error denies it",
			    op->id);
}

static const struct oracle_op *by_id(const struct oracle *o, uint8_t id)
{
	unsigned int n = id - 1u;

	return id && n < CRASH_INITS * CRASH_OPS
		       ? &o->op[n / CRASH_OPS][n % CRASH_OPS]
		       : NULL;
}

bool oracle_is_then(const struct oracle *o, uint8_t byte)
{
	const struct oracle_op *op = by_id(o, byte);

	return op && op->kind == CRASH_THEN;
}

void oracle_copied(struct oracle *o, uint8_t byte)
{
	struct oracle_op *op = (struct oracle_op *)by_id(o, byte);

	if (op)
		op->copied = true;
}

void oracle_stored(struct oracle *o, uint64_t word)
{
	struct oracle_op *op = (struct oracle_op *)by_id(o, (uint8_t)word);

	if (!op || (op->kind != CRASH_THEN && op->kind != CRASH_ATOMIC)) {
		oracle_fail(o, "a store of no operation: %#" PRIx64, word);
		return;
	}
	if (++op->stores > 1)
		oracle_fail(o, "#%u is stored twice", op->id);
	if (op->state == OP_FAILED && !op->unsure)
		oracle_fail(o, "#%u is stored after an error that denied it",
			    op->id);
}

void oracle_changed(struct oracle *o, uint8_t byte)
{
	oracle_stored(o, byte);
}

unsigned int oracle_outstanding(const struct oracle *o)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < CRASH_INITS; i++)
		for (unsigned int k = 0; k < o->next[i]; k++)
			n += o->op[i][k].state == OP_POSTED;
	return n;
}

bool oracle_finished(const struct oracle *o)
{
	for (unsigned int i = 0; i < CRASH_INITS; i++)
		if (o->next[i] < o->prog->n[i])
			return false;
	return !oracle_outstanding(o);
}

/*
 * Did a commit that ended before step `before` cover byte b of op? A commit
 * with another key (registration) proves nothing about op.
 */
static bool was_committed(const struct oracle *o, const struct oracle_op *op,
			  unsigned int b, unsigned int before)
{
	for (unsigned int k = op->number; k < o->next[op->init]; k++) {
		const struct oracle_op *c = &o->op[op->init][k];

		if (oracle_is_commit(c) && c->state == OP_OK &&
		    c->key == op->key && c->ended < before &&
		    (covers_byte(c, b) || (c == op && writes_byte(op, b))))
			return true;
	}
	return false;
}

/*
 * Does a completion prove only that the bytes have left the initiator, and not
 * their placement?
 */
static bool has_left(const struct oracle *o)
{
	return o->cell->fabric.offers_msg ||
	       (o->cell->truth.place >= MODEL_DMA_CACHE &&
		!o->cell->fabric.placed_acks);
}

/*
 * Did the write `must` certainly overwrite byte b of the write `found`? found
 * is NULL for the initial zeros. With relaxed ordering, or between two
 * initiators, only a commit of `found` before `must` was posted proves it.
 */
static bool certainly_overwrote(const struct oracle *o,
				const struct oracle_op *found,
				const struct oracle_op *must, unsigned int b)
{
	if (!found)
		return true;
	if (o->cell->truth.relaxed ||
	    (found->init != must->init && has_left(o)))
		return was_committed(o, found, b, must->posted);
	if (found->init == must->init && o->cell->fabric.ordered)
		return found->number < must->number;
	return found->state != OP_POSTED && found->ended < must->posted;
}

/*
 * May byte b be zero although the write `must` was acknowledged? Yes, if `must`
 * or another write that may be placed after `must` writes zeros.
 */
static bool zeros_possible(const struct oracle *o, const struct oracle_op *must,
			   unsigned int b)
{
	for (unsigned int i = 0; i < CRASH_INITS; i++)
		for (unsigned int k = 0; k < o->next[i]; k++) {
			const struct oracle_op *op = &o->op[i][k];

			if (is_zero(op) && writes_byte(op, b) &&
			    op->state != OP_SKIPPED &&
			    (op == must ||
			     !certainly_overwrote(o, op, must, b)))
				return true;
		}
	return false;
}

void oracle_weakened(struct oracle *o)
{
	o->phase = ORACLE_WINDOW;
}

void oracle_noticed(struct oracle *o, unsigned int step)
{
	o->phase = ORACLE_AFTER;
	o->noticed = step;
}

void oracle_notified(struct oracle *o)
{
	o->notified = true;
}

void oracle_registered(struct oracle *o, unsigned int step)
{
	oracle_noticed(o, step);
	o->unflushed = true;
}

/*
 * The failure class that acknowledged bytes must survive now; acked: the phase
 * in which the commit was acknowledged. In ORACLE_WINDOW the target has not
 * noticed the weaker fact, so only c->window is promised. In ORACLE_AFTER the
 * target has flushed all bytes again, except those of a region that was closed
 * in the window (o->unflushed), and those acknowledged in ORACLE_LATE.
 */
static enum rp_class class_promised(const struct oracle *o,
				    enum oracle_phase acked)
{
	const struct crash_cell *c = o->cell;
	const enum rp_class weak =
		c->weak_class < c->against ? c->weak_class : c->against;

	if (o->phase == ORACLE_BEFORE || acked == ORACLE_AFTER ||
	    c->spared == CRASH_SPARES_ALL ||
	    (c->spared == CRASH_SPARES_EARLIER && acked == ORACLE_BEFORE))
		return c->against;
	if (o->phase == ORACLE_AFTER && acked != ORACLE_LATE && !o->unflushed &&
	    c->window != RP_CLASS_NONE)
		return weak;
	return weak < c->window ? weak : c->window;
}

/*
 * Does the target still promise that b survives only if a does? A fact of the
 * host on which the promise rests may have become weaker.
 */
static bool order_promised(const struct oracle *o,
			   const struct oracle_op *second)
{
	const struct crash_cell *c = o->cell;
	bool failed = false, waited = false;

	if (!c->weakens || o->phase == ORACLE_BEFORE)
		return true;
	/*
	 * The device stores the word of a THEN behind a flush that the shim
	 * then fails.
	 */
	if (c->by_initiator && c->spared != CRASH_SPARES_ALL &&
	    o->phase == ORACLE_AFTER &&
	    (o->late || (second->kind == CRASH_THEN && second->state != OP_OK)))
		return false;
	/* Closed connections make a fail, and b may then survive without a. */
	for (unsigned int k = 0; k < second->number; k++) {
		failed |= o->op[0][k].state == OP_FAILED;
		waited |= o->op[0][k].kind == CRASH_WAIT;
	}
	/*
	 * If the program did not wait between a and b, only the method of the
	 * former facts ordered them.
	 */
	if (second->kind != CRASH_THEN && (failed || !waited))
		return false;
	return c->spared == CRASH_SPARES_ALL ||
	       (o->phase == ORACLE_AFTER && !o->unflushed &&
		c->window != RP_CLASS_NONE && c->weak_class >= c->against);
}

static size_t possible_values(enum rp_class class, const struct model *m,
			      const void *word, uint64_t *v, bool *lost)
{
	return class == RP_CLASS_POWER ? model_after_cut(m, word, v, lost)
				       : model_after_kill(m, word, v, lost);
}

/*
 * Like possible_values(), but only DMA that is ready may be placed, step by
 * step: other values would break orders that hold.
 */
static size_t survivors_soon(const struct oracle *o, const struct model *m,
			     const void *word, uint64_t *v, bool *lost)
{
	return o->cell->against == RP_CLASS_POWER
		       ? model_after_cut_ready(m, word, v, lost)
		       : model_after_kill_ready(m, word, v, lost);
}

static uint8_t byte_of(uint64_t v, unsigned int n)
{
	return ((const uint8_t *)&v)[n];
}

static enum crash_result check_byte(struct oracle *o, unsigned int b,
				    const struct oracle_op *must,
				    const uint64_t *v, size_t n, bool lost)
{
	if (lost) {
		snprintf(o->why, CRASH_WHY,
			 "byte %u of #%u was acknowledged and may be gone", b,
			 must->id);
		return CRASH_LOST;
	}
	for (size_t i = 0; i < n; i++) {
		uint8_t id = byte_of(v[i], b % MODEL_WORD);
		const struct oracle_op *found = by_id(o, id);

		if (id ? id != must->id &&
				    certainly_overwrote(o, found, must, b)
		       : !zeros_possible(o, must, b)) {
			snprintf(o->why, CRASH_WHY,
				 "byte %u of #%u was acknowledged, a cut may "
				 "leave #%u there",
				 b, must->id, id);
			return CRASH_LOST;
		}
	}
	return CRASH_OK;
}

/* May a cut leave bytes of the second write, but not all bytes of the first? */
static enum crash_result check_order(struct oracle *o, const struct model *m,
				     const uint8_t *mem)
{
	const struct oracle_op *first = &o->op[0][o->prog->first - 1],
			       *second = &o->op[0][o->prog->second - 1];
	uint64_t v[MODEL_VALUES];
	bool lost, present = false;
	size_t n;

	/*
	 * The order is not promised if the first operation was refused in its
	 * call, or if the second one used a later connection: no commit covers
	 * writes of another connection.
	 */
	if (first->state == OP_SKIPPED || first->conn != second->conn ||
	    !order_promised(o, second))
		return CRASH_OK;
	for (unsigned int b = 0; b < CRASH_BYTES; b++) {
		if (second->kind == CRASH_THEN
			    ? !writes_byte(second, b)
			    : b < second->off || b >= second->off + second->len)
			continue;
		n = survivors_soon(o, m, mem + (b & ~7u), v, &lost);
		for (size_t i = 0; i < n; i++)
			present |= byte_of(v[i], b % MODEL_WORD) == second->id;
	}
	if (!present)
		return CRASH_OK;
	for (unsigned int b = first->off; b < first->off + first->len; b++) {
		n = survivors_soon(o, m, mem + (b & ~7u), v, &lost);
		for (size_t i = 0; i < n; i++)
			lost |= byte_of(v[i], b % MODEL_WORD) < first->id;
		if (lost) {
			snprintf(o->why, CRASH_WHY,
				 "#%u may survive without byte %u of #%u",
				 second->id, b, first->id);
			return CRASH_LOST;
		}
	}
	return CRASH_OK;
}

enum crash_result oracle_check(struct oracle *o, const struct model *m,
			       const uint8_t *mem)
{
	enum crash_result ret = CRASH_OK;
	uint64_t v[MODEL_VALUES];
	enum rp_class class, seen = RP_CLASS_NONE;
	unsigned int word = ~0u;
	bool lost = false;
	size_t n = 0;

	if (o->wrong)
		return CRASH_WRONG;
	for (unsigned int b = 0; o->nmust && b < CRASH_BYTES; b++)
		for (unsigned int i = 0; i < CRASH_INITS && ret == CRASH_OK;
		     i++) {
			if (!o->must[b][i])
				continue;
			class = class_promised(o, o->acked[b][i]);
			if (class == RP_CLASS_NONE)
				continue;
			if (word != b / MODEL_WORD || class != seen) {
				word = b / MODEL_WORD;
				seen = class;
				n = possible_values(class, m,
						    mem + word * MODEL_WORD, v,
						    &lost);
			}
			ret = check_byte(o, b, o->must[b][i], v, n, lost);
		}
	if (ret == CRASH_OK && o->prog->second)
		ret = check_order(o, m, mem);
	return ret;
}
