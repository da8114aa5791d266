// SPDX-License-Identifier: BSD-2-Clause
/*
 * Durable writes over a private connection, and their outcome when the
 * connection, its key or its target is lost.
 */
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault/frame_peer.h"
#include "functional/pair.h"

enum {
	AREA = 256 << 10, /* bytes that the target checks */
	SLOT = 4096,
	MANY = 64,
	LONG = 3 << 16,
};

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static char buf[PAIR_POOL];
static char why[512]; /* text that query_key() got */

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

static ssize_t post_write(struct side *s, const struct card *peer, uint64_t key,
			  const void *from, size_t len, uint64_t at,
			  uint64_t flags)
{
	struct iovec iov = {(void *)from, len};
	struct fi_rma_iov rma = {peer->pool_addr + at, len, key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = (void *)from,
	};

	return fi_writemsg(s->ep, &msg, flags | FI_COMPLETION);
}

/* Make one durable write and wait. Returns 0 or the status. */
static int durable_write(struct side *s, const struct card *peer, uint64_t key,
			 const void *from, size_t len, uint64_t at)
{
	POST(s, post_write(s, peer, key, from, len, at, FI_COMMIT_COMPLETE));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

static bool query_key(struct side *s, uint64_t key, struct fi_rpmem_attr *attr)
{
	*attr = QUERY_ATTR(why);
	if (key_query(s->ep, s->peer, key, FI_RPMEM_CLASS_DEFAULT, attr))
		return false;
	return strstr(why, "a private connection");
}

/* Write until a query says that the private connection is up. */
static bool connect_up(struct side *s, const struct card *peer, uint64_t key)
{
	struct fi_rpmem_attr attr;

	while (!query_key(s, key, &attr)) {
		if (!pair_time_left()) {
			printf("# %s\n", why);
			return false;
		}
		durable_write(s, peer, key, buf, 8, 0);
	}
	return true;
}

/*
 * Count the private connections: sockets whose peer port is the port in the
 * key. If how is true, shut them down.
 */
static int private_sockets(const struct card *peer, bool how,
			   struct sockaddr_in *other)
{
	const in_port_t port = htons((uint16_t)(peer->pool_key >> 40));
	struct sockaddr_in remote;
	struct dirent *d;
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while ((d = readdir(dir))) {
		int fd = atoi(d->d_name);
		socklen_t len = sizeof(remote);

		if (getpeername(fd, (struct sockaddr *)&remote, &len) ||
		    remote.sin_family != AF_INET || remote.sin_port != port)
			continue;
		n++;
		if (other)
			*other = remote;
		if (how)
			shutdown(fd, SHUT_RDWR);
	}
	closedir(dir);
	return n;
}

static void fill_source(char seed)
{
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(seed + (char)(i * 7 + i / 251));
}

/* --- the target --- */

static void check_area(struct side *s, char seed)
{
	fill_source(seed);
	OK(!memcmp(s->pool, buf, AREA), "all bytes are placed");
}

static void serve_writes(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has written all sizes */
	check_area(s, 1);
	pair_barrier(s);
	pair_barrier(s); /* the initiator's overlapping writes are complete */
	check_area(s, 2);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has reconnected and written again */
	check_area(s, 3);
	pair_barrier(s);
	pair_barrier(s); /* the initiator has tried unverified peers */
}

/* --- the initiator --- */

static void write_sizes(struct side *s, const struct card *peer)
{
	static const size_t sizes[] = {1,    7,	   8,	 9,	63,    64,  100,
				       1000, 4096, 4097, 16384, 16385, LONG};
	uint64_t at = 0;
	bool ok = true;

	fill_source(1);
	for (size_t i = 0; at < AREA; i++) {
		size_t len = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];

		if (len > AREA - at)
			len = AREA - at;
		ok &= !durable_write(s, peer, peer->pool_key, buf + at, len,
				     at);
		ok &= e.op_context == buf + at;
		at += len;
	}
	OK(ok, "writes of many sizes succeed, with their contexts");
	OK(side_quiet(s), "and ends once");
}

/*
 * Many outstanding writes, durable and not, in rounds to the same bytes: those
 * of the last round must stay.
 */
static void write_many(struct side *s, const struct card *peer)
{
	int due = 0, bad = 0;

	for (char round = 7; round > 0; round--) {
		fill_source((char)(round == 1 ? 2 : round + 10));
		/*
		 * buf stays unchanged until all writes of the round complete.
		 */
		for (int i = 0; i < MANY; i++) {
			uint64_t flags =
				(i + round) % 3 ? FI_COMMIT_COMPLETE : 0;

			while (post_write(s, peer, peer->pool_key,
					  buf + i * SLOT, SLOT,
					  (uint64_t)i * SLOT,
					  flags) == -FI_EAGAIN)
				if (due) {
					bad += !side_wait(s, &e, &err);
					due--;
				}
			due++;
		}
		for (; due; due--)
			bad += !side_wait(s, &e, &err);
	}
	OK(!bad, "with and without a commit at once they succeed");
	OK(side_quiet(s), "and each once");
}

static void read_behind(struct side *s, const struct card *peer)
{
	uint64_t v, got = 0;
	bool ok = true;

	for (v = 1; v < 200 && ok; v++) {
		int due = 2;

		POST(s, post_write(s, peer, peer->pool_key, &v, 8, AREA + 64,
				   FI_COMMIT_COMPLETE));
		while (fi_read(s->ep, &got, 8, NULL, s->peer,
			       peer->pool_addr + AREA + 64, peer->pool_key,
			       &got) == -FI_EAGAIN) {
			ok &= side_wait(s, &e, &err);
			due--;
		}
		for (; due; due--)
			ok &= side_wait(s, &e, &err);
		ok &= got == v;
	}
	OK(ok, "a read waits for what it would overtake");
}

static enum fi_rpmem_method expected_method(void)
{
	const char *how = getenv("EXPECT");

	if (!how)
		return FI_RPMEM_METHOD_DELIVERY;
	if (!strcmp(how, "fence"))
		return FI_RPMEM_METHOD_FENCE;
	if (!strcmp(how, "native"))
		return FI_RPMEM_METHOD_NATIVE;
	return strcmp(how, "agent-sfence") ? FI_RPMEM_METHOD_AGENT_CLWB
					   : FI_RPMEM_METHOD_AGENT_SFENCE;
}

/*
 * Wait for a completion, and count it: in *good, or in *bad if the write is
 * lost.
 */
static void count_end(struct side *s, int *good, int *bad)
{
	if (side_wait(s, &e, &err))
		++*good;
	else if (err.prov_errno == RP_ST_WRITE_FAILED ||
		 err.prov_errno == RP_ST_LOST)
		++*bad;
	else
		printf("# status %d\n", err.prov_errno);
}

/*
 * Break the connection with writes outstanding. All complete once, and the lost
 * ones fail.
 */
static void cut_connection(struct side *s, const struct card *peer)
{
	int bad = 0, good = 0, due = 0, tries = 0, again = 0;

	connect_up(s, peer, peer->pool_key);
	fill_source(3);
	for (int i = 0; i < MANY; i++) {
		while (post_write(s, peer, peer->pool_key, buf + i * SLOT, SLOT,
				  (uint64_t)i * SLOT,
				  FI_COMMIT_COMPLETE) == -FI_EAGAIN)
			if (due) {
				count_end(s, &good, &bad);
				due--;
			}
		due++;
		if (i == MANY / 2 && pair_over("tcp"))
			private_sockets(peer, true, NULL);
	}
	for (; due; due--)
		count_end(s, &good, &bad);
	printf("# %d succeeded, %d were lost\n", good, bad);
	/*
	 * Without a lost one only if a thread or the agent may have completed
	 * all of them before.
	 */
	OK(good + bad == MANY &&
		   (bad || s->o.progress == FI_PROGRESS_AUTO ||
		    !pair_over("tcp") ||
		    expected_method() >= FI_RPMEM_METHOD_AGENT_SFENCE),
	   "outstanding writes fail");
	OK(side_quiet(s), "and ends once");
	/* A durable write to a poisoned range removes the poison. */
	while (again < MANY && pair_time_left())
		if (durable_write(s, peer, peer->pool_key, buf + again * SLOT,
				  SLOT, (uint64_t)again * SLOT))
			tries++;
		else
			again++;
	printf("# %d more tries\n", tries);
	OK(again == MANY, "written again it is durable");
	OK(connect_up(s, peer, peer->pool_key),
	   "over a connection that is new");
}

/* A peer without a key is refused, and disturbs no other. */
static void unverified_peer(struct side *s, const struct card *peer)
{
	uint64_t secret = 12345, v = 0;
	struct frame_conn *c;
	struct frame_peer p;
	struct sockaddr_in to;

	OK(private_sockets(peer, false, &to) == 1, "one connection is open");
	frame_open(&p, NULL);
	c = frame_dial(&p, &to, &secret, sizeof(secret));
	while (c->state == FRAME_CONNECTING && pair_time_left()) {
		frame_poll(&p);
		side_poke(s);
	}
	OK(c->state == FRAME_ENDED && c->data_len,
	   "an unverified peer without a key is refused");
	OK(!durable_write(s, peer, peer->pool_key, &v, 8, AREA + 128),
	   "and does not disturb commits");
	frame_end(c);
	frame_close(&p);
}

static void write_all(struct side *s, const struct card *peer)
{
	struct fi_rpmem_attr attr;

	pair_barrier(s);
	OK(connect_up(s, peer, peer->pool_key), "a connection is made");
	query_key(s, peer->pool_key, &attr);
	OK(attr.method == expected_method(), "the method is as expected");
	write_sizes(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	OK(connect_up(s, peer, peer->pool_key), "still, or again");
	write_many(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	OK(connect_up(s, peer, peer->pool_key), "still, or again");
	read_behind(s, peer);
	cut_connection(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	if (!s->o.sleeps && pair_over("tcp"))
		unverified_peer(s, peer);
	pair_barrier(s);
}

/*
 * The target closes the region while the initiator writes, and registers it
 * again.
 */
static void serve_keys(struct side *s, const struct card *peer)
{
	struct card c;
	char note = 1;

	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s); /* the initiator begins to write */
	MUST(fi_close(&s->pool_mr->fid));
	memset(s->pool, 0x55, s->pool_len);
	MUST(fi_mr_reg(s->domain, s->pool, PAIR_POOL,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, FI_RMA_PMEM,
		       &s->pool_mr, NULL));
	pair_barrier(s);
	side_card(s, &c);
	memcpy(buf, &c, sizeof(c));
	POST(s, fi_send(s->ep, buf, sizeof(c), NULL, s->peer, NULL));
	MUST(side_wait(s, &e, &err) ? 0 : -err.err);
	pair_barrier(s);
	for (size_t i = 0; i < AREA; i++)
		note &= s->pool[i] == 0x55;
	OK(note, "nothing came by the key that was closed");
	pair_barrier(s);
	pair_barrier(s);
}

static void write_keys(struct side *s, const struct card *peer)
{
	struct card c;
	int st, due = 0, good = 0;

	pair_barrier(s);
	OK(connect_up(s, peer, peer->pool_key), "a connection is made");
	pair_barrier(s);
	pair_barrier(s);
	fill_source(9);
	for (int i = 0; i < 8; i++) {
		ssize_t ret = post_write(
			s, peer, peer->pool_key, buf + i * SLOT, SLOT,
			(uint64_t)i * SLOT, FI_COMMIT_COMPLETE);
		due += !ret;
	}
	for (; due; due--)
		good += side_wait(s, &e, &err);
	OK(!good, "a key that was closed is good for nothing");
	POST(s, fi_recv(s->ep, &c, sizeof(c), NULL, FI_ADDR_UNSPEC, &c));
	while (!side_wait(s, &e, &err) || e.op_context != &c)
		;
	pair_barrier(s);
	pair_barrier(s);
	/*
	 * Try again on errors: the own connection of the base may have broken
	 * as well.
	 */
	do {
		st = durable_write(s, &c, c.pool_key, buf, 8, AREA + 64);
	} while (st && pair_time_left());
	printf("# status %d\n", st);
	OK(!st, "its successor is");
	OK(connect_up(s, &c, c.pool_key), "also over a new connection");
	pair_barrier(s);
}

/* The target dies with writes outstanding. */
static void serve_death(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	_exit(0);
}

static void write_death(struct side *s, const struct card *peer)
{
	int due = 0, ends = 0, good = 0, late = 0;

	pair_barrier(s);
	OK(connect_up(s, peer, peer->pool_key), "a connection is made");
	for (int i = 0; i < 16; i++)
		due += !post_write(s, peer, peer->pool_key, buf, SLOT,
				   (uint64_t)i * SLOT, FI_COMMIT_COMPLETE);
	while (due--) {
		ends++;
		good += side_wait(s, &e, &err);
	}
	OK(ends && good == ends, "writes succeed while the target lives");
	pair_barrier(s);
	/* When the first commit fails, the target has died. */
	while (!durable_write(s, peer, peer->pool_key, buf, SLOT, 0) &&
	       pair_time_left())
		;
	due = 0;
	for (int i = 0; i < 16; i++) {
		due += !post_write(s, peer, peer->pool_key, buf, SLOT,
				   (uint64_t)i * SLOT, FI_COMMIT_COMPLETE);
		side_poke(s);
	}
	while (due--)
		late += side_wait(s, &e, &err);
	OK(!late, "no write succeeds when it is dead");
	fi_close(&s->ep->fid);
	exit(0);
}

/* The endpoint is closed with writes outstanding. */
static void serve_close(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
}

static void write_close(struct side *s, const struct card *peer)
{
	int due = 0, ends = 0;

	OK(connect_up(s, peer, peer->pool_key), "a connection is made");
	for (int i = 0; i < 40; i++)
		due += !post_write(s, peer, peer->pool_key, buf, SLOT,
				   (uint64_t)i * SLOT, FI_COMMIT_COMPLETE);
	MUST(fi_close(&s->ep->fid));
	for (;;) {
		ssize_t n = fi_cq_read(s->cq, &e, 1);

		if (n == -FI_EAVAIL)
			n = fi_cq_readerr(s->cq, &err, 0);
		if (n != 1)
			break;
		ends++;
	}
	OK(due && ends == due, "outstanding writes end with the endpoint");
	MUST(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	MUST(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(s->ep, &s->av->fid, 0));
	MUST(fi_enable(s->ep));
	pair_barrier(s);
}

int main(void)
{
	const struct pair_opts plain = {0};
	const struct pair_opts sleeps = {.sleeps = true};
	const struct pair_opts autos = {.progress = FI_PROGRESS_AUTO};
	const struct {
		const char *label;
		const struct pair_opts *target, *initiator;
		half_fn serve, write;
	} runs[] = {
		{"writes", &plain, &plain, serve_writes, write_all},
		{"sread", &sleeps, &sleeps, serve_writes, write_all},
		{"threads", &autos, &autos, serve_writes, write_all},
		{"keys", &plain, &plain, serve_keys, write_keys},
		{"close", &plain, &plain, serve_close, write_close},
		{"death", &plain, &plain, serve_death, write_death},
	};
	const char *only = getenv("FRAME_CONN_ONLY");

	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		label = runs[i].label;
		if (only && strcmp(only, label))
			continue;
		pair_run(runs[i].target, runs[i].initiator, runs[i].serve,
			 runs[i].write);
	}
	return tap_done();
}
