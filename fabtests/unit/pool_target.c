// SPDX-License-Identifier: BSD-2-Clause
/* A simulated target of librpmem_pool, without a network (pool_target.h). */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/status.h"
#include "libpool/group_open.h"
#include "pool_target.h"
#include "util/query_class.h"

static struct pool_target *the_target;

/* --- what the library calls --- */

static ssize_t add_post(struct pool_post post)
{
	struct pool_target *t = the_target;

	if (t->refuse_store && post.store_at) {
		t->refuse_store = false;
		return -FI_ENOMEM;
	}
	if (t->nposts + t->ndone == MAX_POSTS)
		return -FI_EAGAIN;
	if (!t->up)
		post.status = RP_ST_LOST;
	t->posts[t->nposts++] = post;
	return 0;
}

static void set_range(struct pool_post *p, uint64_t addr, uint64_t len)
{
	cr_assert(addr % 8 == 0 && len % 8 == 0 && len > 0);
	cr_assert(addr + len <= CELLS * 8u);
	p->at = (unsigned int)(addr / 8);
	p->n = (unsigned int)(len / 8);
	for (unsigned int i = 0; i < p->n; i++)
		p->covers[p->at + i] = true;
}

static ssize_t write_post(struct fid_ep *ep, const struct fi_msg_rma *msg,
			  uint64_t flags)
{
	struct pool_post p = {
		.what = T_WRITE,
		.durable = flags & FI_COMMIT_COMPLETE,
		.bytes = msg->msg_iov->iov_base,
		.context = msg->context,
	};

	cr_assert_lt(the_target->pool.out, POOL_OUT,
		     "more writes could be lost than the provider knows");
	/*
	 * Each write needs one of these flags: rpmem_pool_write() promises that
	 * completed writes are visible.
	 */
	cr_assert(flags & (FI_COMMIT_COMPLETE | FI_DELIVERY_COMPLETE));
	set_range(&p, msg->rma_iov->addr, msg->rma_iov->len);
	return add_post(p);
}

/* Operation number of the newest zeros that the journal has for a cell. */
static uint64_t zeroed_bytes_of_cell(struct pool_target *t, unsigned int cell)
{
	struct rp_journal *j = &t->pool.journal;

	for (uint64_t s = j->next; s != j->first; s--) {
		const struct rp_journal_entry *e = rp_journal_at(j, s - 1);

		if (e->offset <= cell * 8u && cell * 8u < e->offset + e->len) {
			cr_assert(e->zero, "zeros over newer bytes");
			return t->zero_values[s - 1];
		}
	}
	cr_assert_fail("zeros of no operation");
	return 0;
}

static ssize_t zero_post(struct fid_ep *ep, const struct fi_rpmem_msg *msg,
			 uint64_t flags)
{
	struct pool_target *t = the_target;
	const struct post *post = msg->context;
	struct pool_post p = {
		.what = T_WRITE,
		.durable = msg->level == FI_RPMEM_DURABLE,
		.context = msg->context,
	};
	uint64_t number;

	set_range(&p, msg->rma_iov->addr, msg->rma_iov->len);
	if (post->kind == POST_ENTRY) {
		cr_assert_lt(post->seq, MAX_ENTRIES);
		memcpy(&number,
		       rp_journal_at(&t->pool.journal, post->seq)
			       ->work->op->buf,
		       sizeof(number));
		t->zero_values[post->seq] = number;
		for (unsigned int i = 0; i < p.n; i++)
			p.zeros[i] = number;
	} else {
		for (unsigned int i = 0; i < p.n; i++)
			p.zeros[i] = zeroed_bytes_of_cell(t, p.at + i);
	}
	return add_post(p);
}

static ssize_t read_post(struct fid_ep *ep, void *buf, size_t len, void *desc,
			 fi_addr_t peer, uint64_t addr, uint64_t key,
			 void *context)
{
	struct pool_post p = {
		.what = T_READ,
		.bytes = buf,
		.context = context,
	};

	set_range(&p, addr, len);
	return add_post(p);
}

static ssize_t commit_post(struct fid_ep *ep, const struct fi_rpmem_msg *msg,
			   uint64_t flags)
{
	struct pool_post p = {
		.what = T_COMMIT,
		.durable = true,
		.context = msg->context,
	};

	for (size_t i = 0; i < msg->rma_iov_count; i++)
		set_range(&p, msg->rma_iov[i].addr, msg->rma_iov[i].len);
	if (msg->then) {
		p.store_at = (unsigned int)(msg->then->addr / 8);
		p.store = msg->then->value;
	}
	the_target->ncommits++;
	return add_post(p);
}

static ssize_t cq_read(struct fid_cq *cq, void *buf, size_t count)
{
	struct pool_target *t = the_target;
	struct fi_cq_entry *e = buf;
	size_t n = 0;

	while (n < count && n < t->ndone && !t->done[n].err) {
		e[n].op_context = t->done[n].op_context;
		n++;
	}
	if (!n)
		return t->ndone ? -FI_EAVAIL : -FI_EAGAIN;
	t->ndone -= (unsigned int)n;
	memmove(t->done, t->done + n, t->ndone * sizeof(t->done[0]));
	return (ssize_t)n;
}

static ssize_t cq_sread(struct fid_cq *cq, void *buf, size_t count,
			const void *cond, int timeout)
{
	return cq_read(cq, buf, count);
}

int rp_fabric_cq_error(struct rp_fabric *f, struct fi_cq_err_entry *entry,
		       char *err)
{
	struct pool_target *t = the_target;

	if (!t->ndone)
		return -FI_EAGAIN;
	*entry = t->done[0];
	memmove(t->done, t->done + 1, --t->ndone * sizeof(t->done[0]));
	return rp_err(err, 0, "status %d", entry->prov_errno);
}

/* No operation of this target fails for its class. */
int rp_query_class(struct fi_rpmem_ops *ops, struct fid_ep *ep, fi_addr_t peer,
		   uint64_t key, enum fi_rpmem_class required,
		   struct fi_rpmem_attr *attr, enum rp_class *reached)
{
	return -FI_ENOSYS;
}

int rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len, uint64_t access,
		  uint64_t flags, struct fid_mr **mr, char *err)
{
	*mr = NULL;
	return 0;
}

void *rp_fabric_desc(struct fid_mr *mr)
{
	return NULL;
}

void pool_reconnect(struct rpmem_pool *p)
{
	cr_assert_eq(p->out, 0, "connects with posts outstanding");
	the_target->connects = !the_target->no_thread;
	if (the_target->no_thread)
		p->state = LINK_DRAINING;
	the_target->no_thread = false;
}

void pool_release(struct offer *o)
{
}

void pool_lease_wake(const struct rpmem_pool *p)
{
}

/* --- what the test calls --- */

struct pool_target *pool_target_start(struct seeded *random)
{
	struct pool_target *t = calloc(1, sizeof(*t));
	struct rpmem_pool *p = &t->pool;

	t->random = random;
	t->up = true;
	t->rma.writemsg = write_post;
	t->rma.read = read_post;
	t->ep.rma = &t->rma;
	t->cq_ops.read = cq_read;
	t->cq_ops.sread = cq_sread;
	t->cq.ops = &t->cq_ops;
	t->ops.commit = commit_post;
	t->ops.zero = zero_post;
	p->f.ep = &t->ep;
	p->f.cq = &t->cq;
	p->f.ops = &t->ops;
	p->required = FI_RPMEM_CLASS_POWER;
	p->timeout_ms = 1000000;
	p->now.ex.len = p->next.ex.len = CELLS * 8u;
	work_init(p);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->thread_done, NULL);
	pthread_cond_init(&p->async_done, NULL);
	cr_assert_eq(rp_journal_init(&p->journal, RING_CELLS * 8u), 0);
	the_target = t;
	return t;
}

void pool_target_end(struct pool_target *t)
{
	struct rpmem_pool *p = &t->pool;

	cr_assert(LIST_EMPTY(&p->all));
	work_fini(p);
	rp_journal_fini(&p->journal);
	pool_texts_free(p);
	free(t);
}

static void execute_post(struct pool_target *t, struct pool_post *p,
			 bool disk_fails)
{
	uint64_t *bytes = p->bytes ? p->bytes : p->zeros;

	p->executed = true;
	t->executed++;
	for (unsigned int i = 0; i < CELLS && p->what == T_COMMIT; i++)
		if (p->covers[i] && t->poisoned[i]) {
			p->status = RP_ST_WRITE_FAILED;
			return;
		}
	for (unsigned int i = 0; i < p->n && p->what == T_WRITE; i++) {
		t->mem[p->at + i] = bytes[i];
		t->poisoned[p->at + i] = false;
	}
	for (unsigned int i = 0; i < p->n && p->what == T_READ; i++)
		bytes[i] = t->mem[p->at + i];
	for (unsigned int i = 0; i < CELLS && p->durable; i++)
		if (p->covers[i] && !(disk_fails && seeded_below(t->random, 2)))
			t->media[i] = t->mem[i];
	if (disk_fails)
		p->status = RP_ST_FLUSH_FAILED;
	else if (p->store_at)
		t->mem[p->store_at] = t->media[p->store_at] = p->store;
}

/* Move a random unexecuted post to the front of the unexecuted ones. */
static void choose_post(struct pool_target *t)
{
	const unsigned int first = t->executed, n = t->nposts - first;
	const unsigned int i = first + (unsigned int)seeded_below(t->random, n);
	const struct pool_post p = t->posts[i];

	if (!t->unordered || p.what == T_COMMIT)
		return;
	memmove(&t->posts[first + 1], &t->posts[first],
		(i - first) * sizeof(p));
	t->posts[first] = p;
}

static void complete_post(struct pool_target *t, unsigned int i)
{
	struct pool_post *p = &t->posts[i];

	t->executed -= p->executed;
	t->done[t->ndone++] = (struct fi_cq_err_entry){
		.op_context = p->context,
		.err = p->status ? FI_EIO : 0,
		.prov_errno = p->status,
	};
	memmove(p, p + 1, (--t->nposts - i) * sizeof(*p));
}

bool pool_target_complete(struct pool_target *t, unsigned int post)
{
	if (post >= t->nposts || !t->posts[post].executed)
		return false;
	complete_post(t, post);
	return true;
}

bool pool_target_step(struct pool_target *t, enum pool_step step)
{
	unsigned int i = (unsigned int)seeded_below(t->random, CELLS);

	switch (step) {
	case STEP_EVICT:
		t->media[i] = t->mem[i];
		return true;
	case STEP_COMPLETE:
		/* Executed posts complete in any order. */
		if (!t->up && t->nposts)
			i %= t->nposts;
		else if (t->executed)
			i %= t->executed;
		else
			return false;
		if (!t->nposts)
			return false;
		complete_post(t, i);
		return true;
	case STEP_EXECUTE:
	case STEP_FAIL_DISK:
		if (!t->up || t->executed == t->nposts)
			return false;
		if (step == STEP_EXECUTE)
			choose_post(t);
		if (step == STEP_FAIL_DISK && !t->posts[t->executed].durable)
			return false;
		execute_post(t, &t->posts[t->executed], step == STEP_FAIL_DISK);
		return true;
	default:
		return false;
	}
}

void pool_target_dies(struct pool_target *t, bool power_cut)
{
	for (unsigned int i = 0; i < CELLS; i++) {
		if (seeded_below(t->random, 2))
			t->media[i] = t->mem[i];
		if (power_cut)
			t->mem[i] = t->media[i];
	}
	pool_target_disconnects(t);
	/* The next connection is to a new daemon. */
	memset(t->poisoned, 0, sizeof(t->poisoned));
}

void pool_target_disconnects(struct pool_target *t)
{
	/* The lost connection loses the completions of executed posts, too. */
	for (unsigned int i = 0; i < t->nposts; i++) {
		const struct pool_post *p = &t->posts[i];

		t->posts[i].status = RP_ST_LOST;
		for (unsigned int c = 0; c < p->n && p->what == T_WRITE; c++)
			t->poisoned[p->at + c] = true;
		if (p->store_at)
			t->poisoned[p->store_at] = true;
	}
	t->up = false;
}

void pool_target_returns(struct pool_target *t)
{
	struct rpmem_pool *p = &t->pool;

	if (!t->connects)
		return;
	t->connects = false;
	t->up = true;
	p->next.ret = 0;
	pthread_mutex_lock(&p->lock);
	work_connected(p);
	pthread_mutex_unlock(&p->lock);
}

/* --- groups: none here --- */

int pool_group_run(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	cr_assert_fail("a pool of this test is no group");
	return -FI_EOTHER;
}

int pool_group_submit(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	return pool_group_run(p, op);
}

int pool_group_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	return pool_group_run(p, NULL);
}
