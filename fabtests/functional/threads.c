// SPDX-License-Identifier: BSD-2-Clause
/*
 * Eight threads, in each threading model of libfabric: no operation is lost or
 * completes twice.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "functional/pair.h"

#define THREADS 8
#ifdef __SANITIZE_THREAD__
#define ROUNDS 15
#else
#define ROUNDS 40
#endif
#define SLICE (PAIR_POOL / THREADS)
#define WRITE 512

/* The operations of a thread in one round. */
enum {
	OP_RECV,
	OP_SEND,
	OP_WRITE,
	OP_COMMIT,
	OP_FLAG,
	OP_WRONG,
	OPS
};

/* One operation. It counts its own completions, whichever thread reads them. */
struct op {
	atomic_int ended; /* number of completions */
	atomic_int prov_errno;
};

/*
 * The libfabric objects of one thread. Each case shares some of them among all
 * threads.
 */
struct lane {
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	int unshared; /* first object that is not shared, of the enum below */
};
enum {
	UNSHARED_DOMAIN,
	UNSHARED_CQ,
	UNSHARED_EP,
	UNSHARED_NOTHING
};

struct hello {
	size_t len;
	char name[128];
};

struct worker {
	pthread_t thread;
	unsigned int id;
	struct side *s;
	const struct card *peer;
	struct lane lane;
	struct op ops[ROUNDS][OPS];
	struct hello hello;
	char out[WRITE], in[WRITE];
	const char *failed; /* what failed, as a sentence */
};

static struct worker workers[THREADS];
static const char *label;

/* --- both halves --- */

static void end_op(void *context, int prov_errno)
{
	struct op *op = context;

	atomic_store(&op->prov_errno, prov_errno);
	atomic_fetch_add(&op->ended, 1);
}

/* Read entries, which may be of operations of other threads. */
static void poll_cq(struct worker *w)
{
	struct fi_cq_tagged_entry e[4];
	struct fi_cq_err_entry err = {0};
	ssize_t n;

	n = w->s->o.sleeps ? fi_cq_sread(w->lane.cq, e, 4, NULL, 5)
			   : fi_cq_read(w->lane.cq, e, 4);
	for (ssize_t i = 0; i < n; i++)
		end_op(e[i].op_context, 0);
	if (n > 0)
		return;
	if (n == -FI_EAVAIL) {
		/* Another thread may have read this error entry already. */
		n = fi_cq_readerr(w->lane.cq, &err, 0);
		if (n == 1)
			end_op(err.op_context, err.prov_errno);
	}
	if (n != 1 && n != -FI_EAGAIN)
		MUST(n);
	/* Yield, because 16 polling threads would leave no CPU for the work. */
	if (n != 1)
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void wait_op(struct worker *w, struct op *op)
{
	while (!atomic_load(&op->ended))
		poll_cq(w);
}

#define POST_BY(w, call)                                                       \
	do {                                                                   \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN)                            \
			poll_cq(w);                                            \
		pair_must(r_, #call, __FILE__, __LINE__);                      \
	} while (0)

static void run_all(struct side *s, const struct card *peer,
		    void *(*fn)(void *))
{
	for (unsigned int i = 0; i < THREADS; i++)
		MUST(-pthread_create(&workers[i].thread, NULL, fn,
				     &workers[i]));
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
}

static void post_recvs(struct side *s, const struct card *peer)
{
	memset(workers, 0, sizeof(workers));
	for (unsigned int i = 0; i < THREADS; i++) {
		workers[i].id = i;
		workers[i].s = s;
		workers[i].peer = peer;
		workers[i].lane =
			(struct lane){s->domain, s->av,	  s->cq,
				      s->ep,	 s->peer, UNSHARED_NOTHING};
	}
}

/* --- the target: each thread echoes for one thread of the initiator --- */

static void *echo_messages(void *arg)
{
	struct worker *w = arg;
	struct lane *l = &w->lane;
	struct op op = {0};
	fi_addr_t from;

	POST_BY(w, fi_trecv(l->ep, &w->hello, sizeof(w->hello), NULL,
			    FI_ADDR_UNSPEC, w->id, 0, &op));
	wait_op(w, &op);
	if (fi_av_insert(l->av, w->hello.name, 1, &from, 0, NULL) != 1)
		MUST(-FI_EADDRNOTAVAIL);
	for (int i = 0; i < ROUNDS; i++) {
		struct op *ops = w->ops[i];

		POST_BY(w, fi_trecv(l->ep, w->in, WRITE, NULL, FI_ADDR_UNSPEC,
				    w->id, 0, &ops[OP_RECV]));
		wait_op(w, &ops[OP_RECV]);
		POST_BY(w, fi_tsend(l->ep, w->in, WRITE, NULL, from, w->id,
				    &ops[OP_SEND]));
		wait_op(w, &ops[OP_SEND]);
	}
	return NULL;
}

static void run_target(struct side *s, const struct card *peer)
{
	post_recvs(s, peer);
	run_all(s, peer, echo_messages);
	/* Wait here: the initiator's outstanding commits need this process. */
	pair_barrier(s);
	/* The pool must have the bytes of the last acknowledged writes. */
	for (unsigned int i = 0; i < THREADS; i++)
		for (size_t j = 0; j < ROUNDS; j++) {
			const char *at = s->pool + i * SLICE + j * WRITE;

			if (at[0] != (char)(i * ROUNDS + j) ||
			    memcmp(at, at + 1, WRITE - 1))
				MUST(-FI_EIO);
		}
}

/* --- the initiator --- */

static const char *one_round(struct worker *w, int i)
{
	struct op *ops = w->ops[i];
	struct lane *l = &w->lane;
	struct fi_rma_iov at = {
		.addr = w->peer->pool_addr + w->id * SLICE + i * WRITE,
		.len = WRITE,
		.key = w->peer->pool_key,
	};
	struct fi_rma_iov wrong = at;
	struct iovec iov = {w->out, WRITE};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = l->peer,
		.rma_iov = &at,
		.rma_iov_count = 1,
		.context = &ops[OP_FLAG],
	};

	memset(w->out, (int)(w->id * ROUNDS) + i, WRITE);
	wrong.addr = w->peer->pool_addr + PAIR_POOL;
	POST_BY(w, fi_trecv(l->ep, w->in, WRITE, NULL, FI_ADDR_UNSPEC, w->id, 0,
			    &ops[OP_RECV]));
	POST_BY(w, fi_tsend(l->ep, w->out, WRITE, NULL, l->peer, w->id,
			    &ops[OP_SEND]));
	POST_BY(w, fi_write(l->ep, w->out, WRITE, NULL, l->peer, at.addr,
			    at.key, &ops[OP_WRITE]));
	POST_BY(w, commit_post(l->ep, &at, 1, l->peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, NULL, &ops[OP_COMMIT]));
	POST_BY(w,
		fi_writemsg(l->ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION));
	POST_BY(w, commit_post(l->ep, &wrong, 1, l->peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, NULL, &ops[OP_WRONG]));
	for (int k = 0; k < OPS; k++)
		wait_op(w, &ops[k]);
	if (memcmp(w->in, w->out, WRITE))
		return "another thread's message came back";
	return NULL;
}

static const char *query_key(struct worker *w)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};

	MUST(key_query(w->lane.ep, w->lane.peer, w->peer->pool_key,
		       FI_RPMEM_CLASS_DEFAULT, &attr));
	return attr.prov_errno || attr.len != PAIR_POOL
		       ? "a query says nonsense"
		       : NULL;
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	struct lane *l = &w->lane;
	struct op op = {0};

	w->hello.len = sizeof(w->hello.name);
	MUST(fi_getname(&l->ep->fid, w->hello.name, &w->hello.len));
	POST_BY(w, fi_tsend(l->ep, &w->hello, sizeof(w->hello), NULL, l->peer,
			    w->id, &op));
	wait_op(w, &op);
	for (int i = 0; i < ROUNDS && !w->failed; i++) {
		w->failed = one_round(w, i);
		if (!w->failed && i % 16 == 0)
			w->failed = query_key(w);
	}
	return NULL;
}

/* Check that every operation completed once, with the expected status. */
static void check_ends(void)
{
	unsigned int ended = 0, wrong = 0;
	const char *failed = NULL;

	for (unsigned int t = 0; t < THREADS; t++) {
		if (workers[t].failed)
			failed = workers[t].failed;
		for (unsigned int i = 0; i < ROUNDS; i++)
			for (int k = 0; k < OPS; k++) {
				struct op *op = &workers[t].ops[i][k];
				int want =
					k == OP_WRONG ? RP_ST_RANGE : RP_ST_OK;

				ended += (unsigned int)op->ended;
				if (op->ended == 1 && op->prov_errno == want)
					continue;
				wrong++;
				printf("# thread %u round %u operation %d: "
				       "ended %d times, status %d\n",
				       t, i, k, op->ended, op->prov_errno);
			}
	}
	tap_ok(!failed && !wrong && ended == THREADS * ROUNDS * OPS,
	       "%s: %u of %u operations ended, %u not once or not as they "
	       "should%s%s",
	       label, ended, THREADS * ROUNDS * OPS, wrong, failed ? ": " : "",
	       failed ? failed : "");
}

/* --- what the threads share --- */

static void open_lane(struct worker *w, int unshared)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av = {.type = FI_AV_MAP};
	struct lane *l = &w->lane;
	struct side *s = w->s;

	l->unshared = unshared;
	cq.wait_obj = s->o.sleeps ? FI_WAIT_FD : FI_WAIT_NONE;
	if (unshared <= UNSHARED_DOMAIN) {
		MUST(fi_domain(s->fabric, s->info, &l->domain, NULL));
		MUST(fi_av_open(l->domain, &av, &l->av, NULL));
	}
	if (unshared <= UNSHARED_CQ)
		MUST(fi_cq_open(l->domain, &cq, &l->cq, NULL));
	MUST(fi_endpoint(l->domain, s->info, &l->ep, NULL));
	MUST(fi_ep_bind(l->ep, &l->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(l->ep, &l->av->fid, 0));
	MUST(fi_enable(l->ep));
	if (unshared <= UNSHARED_DOMAIN &&
	    fi_av_insert(l->av, w->peer->name, 1, &l->peer, 0, NULL) != 1)
		MUST(-FI_EADDRNOTAVAIL);
}

static void close_lane(struct lane *l)
{
	if (l->unshared > UNSHARED_EP)
		return;
	MUST(fi_close(&l->ep->fid));
	if (l->unshared <= UNSHARED_CQ)
		MUST(fi_close(&l->cq->fid));
	if (l->unshared > UNSHARED_DOMAIN)
		return;
	MUST(fi_close(&l->av->fid));
	MUST(fi_close(&l->domain->fid));
}

static void run_initiator(struct side *s, const struct card *peer)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	run_all(s, peer, run_worker);
	/* Wait for second completions, which would come late. */
	for (int i = 0; i < 50; i++) {
		for (unsigned int t = 0; t < THREADS; t++)
			poll_cq(&workers[t]);
		nanosleep(&pause, NULL);
	}
	check_ends();
	pair_barrier(s);
	for (unsigned int i = 0; i < THREADS; i++)
		close_lane(&workers[i].lane);
}

static void share_all(struct side *s, const struct card *peer)
{
	post_recvs(s, peer);
	run_initiator(s, peer);
}

static void share_cq(struct side *s, const struct card *peer)
{
	post_recvs(s, peer);
	for (unsigned int i = 1; i < THREADS; i++)
		open_lane(&workers[i], UNSHARED_EP);
	run_initiator(s, peer);
}

static void share_domain(struct side *s, const struct card *peer)
{
	post_recvs(s, peer);
	for (unsigned int i = 1; i < THREADS; i++)
		open_lane(&workers[i], UNSHARED_CQ);
	run_initiator(s, peer);
}

static void share_nothing(struct side *s, const struct card *peer)
{
	post_recvs(s, peer);
	for (unsigned int i = 1; i < THREADS; i++)
		open_lane(&workers[i], UNSHARED_DOMAIN);
	run_initiator(s, peer);
}

static void run_pair(const char *name, struct pair_opts t, struct pair_opts i,
		     half_fn initiator)
{
	label = name;
	pair_run(&t, &i, run_target, initiator);
}

int main(void)
{
	const struct pair_opts safe = {.threading = FI_THREAD_SAFE};
	struct pair_opts o;

	setbuf(stdout, NULL);
	/* So long that a target slowed by a sanitizer is not taken for dead. */
	setenv("FI_OFI_RPMEM_TIMEOUT", "30000", 0);
	run_pair("one endpoint", safe, safe, share_all);
	o = (struct pair_opts){.threading = FI_THREAD_SAFE, .sleeps = true};
	run_pair("one endpoint, sread", o, o, share_all);
	o = (struct pair_opts){.threading = FI_THREAD_SAFE,
			       .progress = FI_PROGRESS_AUTO};
	run_pair("one endpoint, auto", o, o, share_all);
	run_pair("eight endpoints, one queue", safe, safe, share_cq);
	o = (struct pair_opts){.threading = FI_THREAD_FID};
	run_pair("FI_THREAD_FID", safe, o, share_domain);
#ifndef __SANITIZE_THREAD__ /* both run the same code again */
	o = (struct pair_opts){.threading = FI_THREAD_ENDPOINT};
	run_pair("FI_THREAD_ENDPOINT", safe, o, share_domain);
	o = (struct pair_opts){.threading = FI_THREAD_COMPLETION};
	run_pair("FI_THREAD_COMPLETION", safe, o, share_domain);
#endif
	o = (struct pair_opts){.threading = FI_THREAD_DOMAIN};
	run_pair("FI_THREAD_DOMAIN", safe, o, share_nothing);
	return tap_done();
}
