// SPDX-License-Identifier: BSD-2-Clause
/* Commits of a pool: what each covers, and which operations wait for it. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libpool/pool.h"

/* Complete the operations that the completed commits cover. */
static void commits_completed(struct rpmem_pool *p)
{
	struct work *w, *next;

	for (w = TAILQ_FIRST(&p->commit_waiters); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->upto > p->journal.committed || w->op->then)
			continue;
		TAILQ_REMOVE(&p->commit_waiters, w, link);
		work_complete(p, w, 0, NULL);
	}
}

void commits_drop(struct rpmem_pool *p)
{
	struct work *w;

	p->ncommits = 0;
	p->commit_upto = p->journal.committed;
	TAILQ_FOREACH (w, &p->commit_waiters, link)
		w->posted = false;
}

static int post_commit(struct rpmem_pool *p, const struct rp_journal_range *v,
		       size_t n, const struct rpmem_pool_then *store,
		       uint64_t id)
{
	const struct fi_rpmem_then then = {
		.key = p->now.ex.key,
		.addr = store ? pool_remote_addr(p, store->offset) : 0,
		.value = store ? store->value : 0,
	};
	struct fi_rma_iov *iov = malloc(n * sizeof(*iov));
	struct fi_rpmem_msg msg = {
		.rma_iov = iov,
		.rma_iov_count = n,
		.addr = p->now.peer,
		.then = store ? &then : NULL,
		.required = p->required,
	};
	struct post *t = post_new(p);
	int ret;

	if (!iov || !t) {
		free(iov);
		if (t)
			post_free(p, t);
		return -EAGAIN;
	}
	for (size_t i = 0; i < n; i++)
		iov[i] = (struct fi_rma_iov){
			.addr = pool_remote_addr(p, v[i].offset),
			.len = v[i].len,
			.key = p->now.ex.key,
		};
	t->kind = POST_COMMIT;
	t->id = id;
	msg.context = t;
	ret = post_result(p, t, fi_rpmem_commit(p->f.ops, p->f.ep, &msg, 0));
	free(iov);
	return ret;
}

/* Whether an operation needs a commit beyond the posted ones. */
static bool commit_needed(struct rpmem_pool *p)
{
	struct work *w;

	if (p->journal.next == p->commit_upto)
		return false;
	if (rp_journal_half_full(&p->journal) && !p->commit_error)
		return true;
	TAILQ_FOREACH (w, &p->commit_waiters, link)
		if (w->upto > p->commit_upto)
			return true;
	return false;
}

/*
 * Post the commits with a store. Each covers all bytes that are not durable
 * yet, also those of earlier outstanding commits, because its store must come
 * after them. Without such bytes it covers one word. The word is another one
 * after each connection loss: a store that was lost with the connection poisons
 * its own word, and a commit of a poisoned word fails.
 */
static void post_stores(struct rpmem_pool *p)
{
	struct rp_journal_range none = {.len = sizeof(uint64_t)}, *v;
	struct work *w;
	size_t n;
	int ret;

	TAILQ_FOREACH (w, &p->commit_waiters, link) {
		if (!w->op->then || w->posted)
			continue;
		if (p->ncommits == POOL_COMMITS ||
		    rp_journal_ranges(&p->journal, p->journal.committed,
				      w->upto, &v, &n))
			return;
		none.offset = (w->op->then->offset + 8 * p->reconnects) %
			      (p->now.ex.len & ~7ull);
		ret = post_commit(p, n ? v : &none, n ? n : 1, w->op->then,
				  p->commit_id + 1);
		free(v);
		if (ret)
			return;
		w->posted = true;
		p->commits[p->ncommits++] = (struct commit){
			.id = ++p->commit_id,
			.upto = w->upto,
			.then = w,
		};
		if (w->upto > p->commit_upto)
			p->commit_upto = w->upto;
	}
}

void commits_post(struct rpmem_pool *p)
{
	const uint64_t upto = p->journal.next;
	struct rp_journal_range *v;
	size_t n;
	int ret = 0;

	if (p->commit_upto < p->journal.committed)
		p->commit_upto = p->journal.committed;
	commits_completed(p);
	post_stores(p);
	/* If post_stores() lost the connection, commits_drop() has run. */
	if (p->state != LINK_UP || p->ncommits == POOL_COMMITS ||
	    !commit_needed(p) ||
	    rp_journal_ranges(&p->journal, p->commit_upto, upto, &v, &n))
		return;
	if (n)
		ret = post_commit(p, v, n, NULL, p->commit_id + 1);
	free(v);
	if (ret)
		return;
	p->commit_upto = upto;
	if (n) {
		p->commits[p->ncommits++] = (struct commit){
			.id = ++p->commit_id,
			.upto = upto,
		};
	} else if (p->ncommits) {
		/* All newer entries are durable already: cover them, too. */
		p->commits[p->ncommits - 1].upto = upto;
	} else {
		rp_journal_commit(&p->journal, upto);
		commits_completed(p);
	}
}

void commits_done(struct rpmem_pool *p, uint64_t id)
{
	/* A commit from before a loss or failure is not listed any more. */
	for (unsigned int i = 0; i < p->ncommits; i++)
		p->commits[i].done |= p->commits[i].id == id;
	while (p->ncommits && p->commits[0].done) {
		rp_journal_commit(&p->journal, p->commits[0].upto);
		if (p->commits[0].then) {
			TAILQ_REMOVE(&p->commit_waiters, p->commits[0].then,
				     link);
			work_complete(p, p->commits[0].then, 0, NULL);
		}
		p->ncommits--;
		memmove(p->commits, p->commits + 1,
			p->ncommits * sizeof(p->commits[0]));
		p->commit_error = NULL;
	}
	commits_completed(p);
}

void commits_failed(struct rpmem_pool *p, const char *error)
{
	struct work *w, *next;

	p->commit_error = error;
	for (w = TAILQ_FIRST(&p->commit_waiters); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->upto > p->commit_upto)
			continue;
		TAILQ_REMOVE(&p->commit_waiters, w, link);
		work_complete(p, w, -EIO, error);
	}
	/* Lower commit_upto: later commits cover the same entries again. */
	commits_drop(p);
}
