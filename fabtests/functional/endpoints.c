// SPDX-License-Identifier: BSD-2-Clause
/* A target domain with two endpoints: remote CQ data comes to the queue of the
 * one that was written to. */
#include <stdio.h>
#include <string.h>

#include "functional/pair.h"

enum {
	WRITES = 20,
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/* The second endpoint of the target's. */
struct second {
	struct fid_cq *cq;
	struct fid_ep *ep;
};

static void second_open(struct side *s, struct second *b)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};

	MUST(fi_cq_open(s->domain, &attr, &b->cq, NULL));
	MUST(fi_endpoint(s->domain, s->info, &b->ep, NULL));
	MUST(fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(b->ep, &s->av->fid, 0));
	MUST(fi_enable(b->ep));
}

/* How many of a queue's next entries are of writes to its endpoint. */
static void count(struct fid_cq *cq, uint64_t parity, int *right, int *wrong)
{
	ssize_t n = fi_cq_read(cq, &e, 1);

	if (n == -FI_EAGAIN)
		return;
	MUST(n == 1 ? 0 : n);
	if ((e.flags & FI_REMOTE_CQ_DATA) && e.data % 2 == parity)
		++*right;
	else
		++*wrong;
}

static void serve(struct side *s, const struct card *peer)
{
	int right[2] = {0}, wrong = 0;
	struct second b;
	char name[128];
	size_t len = sizeof(name);

	side_insert(s, peer);
	second_open(s, &b);
	MUST(fi_getname(&b.ep->fid, name, &len));
	POST(s, fi_send(s->ep, name, sizeof(name), NULL, s->peer, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	while (right[0] + right[1] + wrong < 2 * WRITES) {
		count(s->cq, 0, &right[0], &wrong);
		count(b.cq, 1, &right[1], &wrong);
	}
	OK(right[0] == WRITES, "data for the first endpoint");
	OK(right[1] == WRITES, "data for the second endpoint");
	pair_meet(s);
	MUST(fi_close(&b.ep->fid));
	MUST(fi_close(&b.cq->fid));
}

static void program(struct side *s, const struct card *peer)
{
	static char bytes[64] = "both";
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov rma = {peer->pool_addr, 64, peer->pool_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};
	fi_addr_t to[2] = {s->peer};
	char name[128];
	int good = 0;

	POST(s, fi_recv(s->ep, name, sizeof(name), NULL, FI_ADDR_UNSPEC, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	MUST(fi_av_insert(s->av, name, 1, &to[1], 0, NULL) == 1 ? 0 : -1);
	for (uint64_t i = 0; i < 2 * WRITES; i++) {
		msg.addr = to[i % 2];
		msg.data = i;
		POST(s,
		     fi_writemsg(s->ep, &msg,
				 FI_REMOTE_CQ_DATA | FI_COMPLETION |
					 (i % 4 < 2 ? FI_COMMIT_COMPLETE : 0)));
		good += side_wait(s, &e, &err);
	}
	OK(good == 2 * WRITES, "all writes end well");
	/* The other name of the same target stays usable. */
	MUST(fi_av_remove(s->av, &to[1], 1, 0));
	msg.addr = to[0];
	POST(s, fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION));
	OK(side_wait(s, &e, &err), "an address goes, and the other one stays");
	pair_meet(s);
}

int main(void)
{
	static const struct pair_opts plain = {0},
				      autos = {.progress = FI_PROGRESS_AUTO};

	label = "manual";
	pair_run(&plain, &plain, serve, program);
	label = "auto";
	pair_run(&autos, &autos, serve, program);
	return tap_done();
}
