// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two endpoints in one domain on each side: remote CQ data arrives in the queue
 * of the endpoint that was written to, with the source address of the writer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functional/pair.h"

enum {
	EACH = 10, /* writes from each endpoint to each endpoint */
	NAME = 128,
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/*
 * Both endpoints of a side, and their queues; to[]: addresses of the peer's
 * endpoints (not for connected ones).
 */
struct ends {
	struct fid_cq *cq[2];
	struct fid_ep *ep[2];
	fi_addr_t to[2];
};

/* Open the second queue, and let side_endpoint() use it. */
static void second_cq_open(struct side *s, struct ends *d)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};

	d->cq[0] = s->cq;
	d->ep[0] = s->ep;
	MUST(fi_cq_open(s->domain, &attr, &d->cq[1], NULL));
	s->cq = d->cq[1];
}

static void end_second(struct side *s, struct ends *d)
{
	d->ep[1] = s->ep;
	s->cq = d->cq[0];
	s->ep = d->ep[0];
}

static void close_second(struct ends *d)
{
	if (d->ep[1])
		MUST(fi_close(&d->ep[1]->fid));
	MUST(fi_close(&d->cq[1]->fid));
}

/*
 * Exchange the addresses of the second endpoints by messages, and insert the
 * peer's.
 */
static void exchange_names(struct side *s, struct ends *d)
{
	static char mine[NAME], theirs[NAME];
	size_t len = sizeof(mine);

	MUST(fi_getname(&d->ep[1]->fid, mine, &len));
	POST(s, fi_recv(s->ep, theirs, sizeof(theirs), NULL, FI_ADDR_UNSPEC,
			theirs));
	POST(s, fi_send(s->ep, mine, sizeof(mine), NULL, s->peer, mine));
	for (int i = 0; i < 2; i++)
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
	/*
	 * Barrier: entries of the peer's writes must not come between those of
	 * these messages.
	 */
	pair_barrier(s);
	d->to[0] = s->peer;
	MUST(fi_av_insert(s->av, theirs, 1, &d->to[1], 0, NULL) == 1 ? 0 : -1);
}

static void open_second(struct side *s, struct ends *d)
{
	second_cq_open(s, d);
	side_endpoint(s, s->info);
	MUST(fi_enable(s->ep));
	end_second(s, d);
	exchange_names(s, d);
}

/* --- the target --- */

/* The remote CQ data of write i from one endpoint to another. */
static uint64_t data_of(int from, int to, uint64_t i)
{
	return i << 8 | (uint64_t)(from << 4 | to);
}

static void send_to_both(struct ends *d)
{
	for (int i = 0; i < 2; i++)
		fi_cq_read(d->cq[i], NULL, 0);
}

struct count {
	int right[2], wrong, unknown; /* right: correct entries, by writing
				       * endpoint */
};

static void count_entries(const struct side *s, const struct ends *d, int to,
			  struct count *n)
{
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	ssize_t ret = fi_cq_readfrom(d->cq[to], &e, 1, &src);
	int from;

	if (ret == -FI_EAGAIN)
		return;
	MUST(ret == 1 ? 0 : ret);
	from = e.data >> 4 & 1;
	if (!(e.flags & FI_REMOTE_CQ_DATA) || (e.data & 1) != (uint64_t)to) {
		n->wrong++;
		printf("# to %d: flags %#llx, data %#llx, %zu bytes\n", to,
		       (unsigned long long)e.flags, (unsigned long long)e.data,
		       e.len);
	} else {
		n->right[from]++;
	}
	/* A connected endpoint has one peer, so its source is not checked. */
	if (s->o.sources && !s->o.msg && src != d->to[from])
		n->unknown++;
}

static void receive_all(struct side *s, struct ends *d)
{
	struct count n[2];
	int due = (s->o.msg ? 2 : 4) * EACH;

	memset(n, 0, sizeof(n));

	while (due > n[0].right[0] + n[0].right[1] + n[1].right[0] +
			     n[1].right[1] + n[0].wrong + n[1].wrong)
		for (int to = 0; to < 2; to++)
			count_entries(s, d, to, &n[to]);
	for (int to = 0; to < 2; to++) {
		const int one = s->o.msg && to ? 0 : EACH;
		const int two = s->o.msg && !to ? 0 : EACH;

		printf("# to %d: %d and %d right, %d wrong, %d unknown\n", to,
		       n[to].right[0], n[to].right[1], n[to].wrong,
		       n[to].unknown);
		OK(n[to].right[0] == one && n[to].right[1] == two,
		   to ? "data for the second endpoint"
		      : "data for the first endpoint");
		OK(!n[to].unknown, "and of whom they are");
	}
	pair_barrier(s);
}

/* The target closes its second endpoint: data for it must reach no queue. */
static void close_one(struct side *s, struct ends *d)
{
	pair_barrier(s);
	MUST(fi_close(&d->ep[1]->fid));
	d->ep[1] = NULL;
	pair_barrier(s);
	pair_barrier(s); /* the initiator has written data to the closed one */
	OK(side_quiet(s), "no other queue has an entry");
	pair_barrier(s);
	close_second(d);
}

static void run_target(struct side *s, const struct card *peer)
{
	struct ends d;

	side_insert(s, peer);
	open_second(s, &d);
	receive_all(s, &d);
	close_one(s, &d);
}

static void serve_connected(struct side *s, const struct card *peer)
{
	struct ends d;

	second_cq_open(s, &d);
	side_accept(s);
	end_second(s, &d);
	receive_all(s, &d);
	pair_barrier(s);
	close_second(&d);
}

/* --- the initiator --- */

static ssize_t post_write(struct side *s, const struct card *peer,
			  struct fid_ep *ep, fi_addr_t to, uint64_t data,
			  uint64_t flags)
{
	static char bytes[64] = "both";
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov rma = {peer->pool_addr, 64, peer->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = to,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.data = data,
	};

	return fi_writemsg(ep, &msg, flags | FI_COMPLETION);
}

static int write_all(struct side *s, struct ends *d, const struct card *peer)
{
	struct fid_cq *first = s->cq;
	int bad = 0;

	for (uint64_t i = 0; i < EACH; i++)
		for (int k = 0; k < 4; k++) {
			int from = k >> 1, to = k & 1;

			if (s->o.msg && from != to)
				continue;
			s->cq = d->cq[from];
			POST(s, post_write(s, peer, d->ep[from],
					   s->o.msg ? 0 : d->to[to],
					   data_of(from, to, i),
					   FI_REMOTE_CQ_DATA |
						   (i % 2 ? FI_COMMIT_COMPLETE
							  : 0)));
			bad += !side_wait(s, &e, &err);
			s->cq = first;
			send_to_both(d);
		}
	return bad;
}

/*
 * A thread sleeps on a queue that was opened after the connections, which must
 * wake this queue, too.
 */
static void sleep_on_late_queue(struct side *s, const struct card *peer)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = FI_WAIT_FD,
	};
	struct ends d = {.cq = {s->cq}, .ep = {s->ep}};
	ssize_t n = 1;

	MUST(fi_cq_open(s->domain, &attr, &d.cq[1], NULL));
	s->cq = d.cq[1];
	side_endpoint(s, s->info);
	MUST(fi_enable(s->ep));
	end_second(s, &d);
	s->cq = d.cq[1];
	for (int i = 0; i < EACH && n == 1; i++) {
		POST(s, post_write(s, peer, d.ep[1], s->peer, 0,
				   FI_COMMIT_COMPLETE));
		do
			n = fi_cq_sread(d.cq[1], &e, 1, NULL, 30000);
		while (n == -FI_EINTR);
	}
	OK(n == 1, "a sleeper on a queue opened late is woken");
	s->cq = d.cq[0];
	close_second(&d);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	struct ends d;

	open_second(s, &d);
	OK(!write_all(s, &d, peer), "all writes succeed");
	pair_barrier(s);
	pair_barrier(s);
	pair_barrier(s); /* the second endpoint is closed */
	for (int i = 0; i < 2; i++) {
		POST(s, post_write(s, peer, s->ep, d.to[1], 1,
				   FI_REMOTE_CQ_DATA |
					   (i ? FI_COMMIT_COMPLETE : 0)));
		OK(!side_wait(s, &e, &err) &&
			   err.prov_errno == RP_ST_UNSUPPORTED,
		   "data for an endpoint that is gone are an error");
	}
	/* Removing one address must leave the target's other one usable. */
	MUST(fi_av_remove(s->av, &d.to[1], 1, 0));
	POST(s, post_write(s, peer, s->ep, d.to[0], 0, FI_COMMIT_COMPLETE));
	OK(side_wait(s, &e, &err), "an address goes, and the other one stays");
	sleep_on_late_queue(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	close_second(&d);
}

static void program_connected(struct side *s, const struct card *peer)
{
	struct ends d;

	second_cq_open(s, &d);
	side_connect(s, peer);
	end_second(s, &d);
	OK(!write_all(s, &d, peer), "all writes succeed");
	pair_barrier(s);
	pair_barrier(s);
	close_second(&d);
}

int main(void)
{
	const struct {
		const char *label;
		struct pair_opts o;
	} runs[] = {
		{"manual", {0}},
		{"sources", {.sources = true}},
		{"a table", {.sources = true, .av = FI_AV_TABLE}},
		{"auto", {.progress = FI_PROGRESS_AUTO}},
		{"sockets", {.sources = true, .prov = "sockets;ofi_rpmem"}},
		{"connected", {.msg = true}},
		{"connected, auto",
		 {.msg = true, .progress = FI_PROGRESS_AUTO}},
	};

	/* Make fi_cq_sread() sleep at once, and no heartbeat wake it. */
	setenv("FI_OFI_RPMEM_SPIN", "0", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "600000", 1);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		label = runs[i].label;
		pair_run(&runs[i].o, &runs[i].o,
			 runs[i].o.msg ? serve_connected : run_target,
			 runs[i].o.msg ? program_connected : run_initiator);
	}
	return tap_done();
}
