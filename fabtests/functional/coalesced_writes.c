// SPDX-License-Identifier: BSD-2-Clause
/*
 * Small writes that the provider coalesces into one message: they are placed,
 * they overlap, and their connection is lost.
 */
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "functional/pair.h"

enum {
	MANY = 200,
	STEP = 192, /* distance of the small writes' offsets */
	SMALL = 64,
	FREE = 65536, /* first offset after the small writes */
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static char buf[PAIR_POOL];

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

static ssize_t post_write(struct side *s, const struct card *peer, size_t len,
			  uint64_t at, uint64_t flags)
{
	struct iovec iov[2] = {{buf + at, len / 2},
			       {buf + at + len / 2, len - len / 2}};
	struct fi_rma_iov rma = {peer->pool_addr + at, len, peer->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = iov,
		.iov_count = 2,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = buf + at,
	};

	return fi_writemsg(s->ep, &msg, flags);
}

static int durable_write(struct side *s, const struct card *peer, size_t len,
			 uint64_t at)
{
	POST(s,
	     post_write(s, peer, len, at, FI_COMMIT_COMPLETE | FI_COMPLETION));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

/* Write until a query says that the private connection is up. */
static bool connect_up(struct side *s, const struct card *peer)
{
	char why[512] = "";
	struct fi_rpmem_attr attr = QUERY_ATTR(why);

	while (key_query(s->ep, s->peer, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
			 &attr) ||
	       !strstr(why, "a private connection")) {
		if (!pair_time_left())
			return false;
		durable_write(s, peer, 8, FREE);
	}
	return true;
}

static void cut_connection(const struct card *peer)
{
	const in_port_t port = htons((uint16_t)(peer->pool_key >> 40));
	struct sockaddr_in remote;
	struct dirent *d;
	DIR *dir = opendir("/proc/self/fd");

	while ((d = readdir(dir))) {
		int fd = atoi(d->d_name);
		socklen_t len = sizeof(remote);

		if (!getpeername(fd, (struct sockaddr *)&remote, &len) &&
		    remote.sin_family == AF_INET && remote.sin_port == port)
			shutdown(fd, SHUT_RDWR);
	}
	closedir(dir);
}

static void fill_source(char seed)
{
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(seed + (char)(i * 7 + i / 251));
}

static bool all_written(const struct side *s)
{
	for (size_t i = 0; i < MANY; i++)
		if (memcmp(s->pool + i * STEP, buf + i * STEP, SMALL))
			return false;
	return true;
}

/* --- the target --- */

static void run_target(struct side *s, const struct card *peer)
{
	char *bytes = s->pool + FREE;

	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has committed all writes */
	fill_source(1);
	OK(all_written(s), "all committed bytes are placed");
	pair_barrier(s);
	pair_barrier(s); /* writes without a commit */
	fill_source(2);
	OK(all_written(s), "and all that came back without");
	pair_barrier(s);
	pair_barrier(s); /* overlapping writes */
	OK(bytes[0] == 2 && bytes[1] == 3 && bytes[63] == 3,
	   "the last one stays");
	pair_barrier(s);
	pair_barrier(s); /* connection lost, and all written again */
	fill_source(5);
	OK(all_written(s), "written again all bytes are placed");
	pair_barrier(s);
}

/* --- the initiator --- */

static void wait_for(struct side *s, int *due, int *bad)
{
	if (!*due) {
		side_poke(s);
		return;
	}
	*bad += !side_wait(s, &e, &err);
	(*due)--;
}

static int write_all(struct side *s, const struct card *peer, uint64_t flags,
		     int *due)
{
	int bad = 0;

	for (uint64_t i = 0; i < MANY; i++) {
		while (post_write(s, peer, SMALL, i * STEP, flags) ==
		       -FI_EAGAIN)
			wait_for(s, due, &bad);
		*due += flags & FI_COMPLETION ? 1 : 0;
	}
	return bad;
}

static int commit_all(struct side *s, const struct card *peer, int *due)
{
	struct fi_rma_iov r[MANY];
	int bad = 0;

	for (uint64_t i = 0; i < MANY; i++)
		r[i] = (struct fi_rma_iov){peer->pool_addr + i * STEP, SMALL,
					   peer->pool_key};
	/* Two commits, so that each fits into one message. */
	for (int i = 0; i < 2; i++) {
		while (commit_post(s->ep, r + i * MANY / 2, MANY / 2, s->peer,
				   FI_RPMEM_DURABLE, FI_RPMEM_CLASS_DEFAULT,
				   NULL, r) == -FI_EAGAIN)
			wait_for(s, due, &bad);
		(*due)++;
	}
	return bad;
}

static void write_plenty(struct side *s, const struct card *peer)
{
	int due = 0, bad;

	fill_source(1);
	bad = write_all(s, peer, 0, &due);
	bad += commit_all(s, peer, &due);
	while (due)
		wait_for(s, &due, &bad);
	OK(!bad, "many writes and one commit of them");
	pair_barrier(s);
	pair_barrier(s);
	fill_source(2);
	bad = write_all(s, peer, FI_COMPLETION, &due);
	while (due)
		wait_for(s, &due, &bad);
	OK(!bad && side_quiet(s), "each write of many ends once");
}

/*
 * Reads, long writes and durable writes of the same bytes as the small writes.
 */
static void check_overlaps(struct side *s, const struct card *peer)
{
	char got[64] = {0};
	int due = 0, bad = 0;
	ssize_t ret;

	fill_source(0);
	memset(buf + FREE, 1, 64);
	POST(s, post_write(s, peer, 64, FREE, FI_COMPLETION));
	POST(s, fi_read(s->ep, got, 64, NULL, s->peer, peer->pool_addr + FREE,
			peer->pool_key, got));
	for (int i = 0; i < 2; i++)
		MUST(side_wait(s, &e, &err) ? 0 : -FI_EIO);
	OK(got[0] == 1 && got[63] == 1, "a read finds what is before it");
	for (int i = 0; i < 50; i++) {
		static const size_t len[] = {64, 8, 2000, 64};

		for (int j = 0; j < 4; j++) {
			buf[FREE] = j == 3 ? 2 : 9;
			memset(buf + FREE + 1, j == 3 ? 3 : 9, 63);
			while ((ret = post_write(
					s, peer, len[j], FREE,
					FI_COMPLETION |
						FI_INJECT * (len[j] < 65) |
						(i % 3 && j == 1
							 ? FI_COMMIT_COMPLETE
							 : 0))) == -FI_EAGAIN)
				wait_for(s, &due, &bad);
			bad += ret != 0;
			due++;
			/*
			 * A long write is not injected, so its buffer may be
			 * read until the write completes.
			 */
			while (len[j] > 64 && due)
				wait_for(s, &due, &bad);
		}
	}
	while (due)
		wait_for(s, &due, &bad);
	OK(!bad && side_quiet(s), "writes to the same bytes end once");
}

static void check_lost_writes(struct side *s, const struct card *peer)
{
	int due = 0, bad, again = 0;

	OK(connect_up(s, peer), "a connection is made");
	fill_source(4);
	bad = write_all(s, peer, FI_COMPLETION, &due);
	if (pair_over("tcp"))
		cut_connection(peer);
	bad += commit_all(s, peer, &due);
	while (due)
		wait_for(s, &due, &bad);
	printf("# %d were lost\n", bad);
	OK(side_quiet(s), "what is lost ends once");
	fill_source(5);
	while (again < MANY && pair_time_left())
		again += !durable_write(s, peer, SMALL, (uint64_t)again * STEP);
	OK(again == MANY, "written again it is durable");
}

static void write_to(struct side *s, const struct card *peer)
{
	pair_barrier(s);
	OK(connect_up(s, peer), "a connection is made");
	write_plenty(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	check_overlaps(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	check_lost_writes(s, peer);
	pair_barrier(s);
	pair_barrier(s);
}

/*
 * The initiator closes its endpoint while it still has coalesced writes that
 * are not sent.
 */
static void serve_close(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
}

static void write_close(struct side *s, const struct card *peer)
{
	int due = 0, ends = 0;

	OK(connect_up(s, peer), "a connection is made");
	for (int i = 0; i < 40; i++)
		due += !post_write(s, peer, SMALL, (uint64_t)i * STEP,
				   FI_COMPLETION);
	MUST(fi_close(&s->ep->fid));
	for (;;) {
		ssize_t n = fi_cq_read(s->cq, &e, 1);

		if (n == -FI_EAVAIL)
			n = fi_cq_readerr(s->cq, &err, 0);
		if (n != 1)
			break;
		ends++;
	}
	OK(due == 40 && ends == due, "all ends with the endpoint");
	MUST(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	MUST(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(s->ep, &s->av->fid, 0));
	MUST(fi_enable(s->ep));
	pair_barrier(s);
}

int main(void)
{
	const struct pair_opts plain = {0};
	const struct pair_opts few_entries = {.selective = true,
					      .op_flags = FI_COMPLETION};

	label = "writes";
	pair_run(&plain, &few_entries, run_target, write_to);
	label = "close";
	pair_run(&plain, &plain, serve_close, write_close);
	return tap_done();
}
