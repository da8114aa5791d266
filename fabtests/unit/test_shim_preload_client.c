// SPDX-License-Identifier: BSD-2-Clause
/* The preload's rendezvous client: messages of a hostile or slow server. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rc_pair.h"
#include "verbs/preload/preload.h"

#define RKEY 0x700u

static struct pair p;
static struct rp_pre_qp r;
static struct rp_desc desc; /* of p's region */
static int server;	    /* the server's end of the connection */
static unsigned int polls;
static pthread_t test_thread;

/* Messages that the server sends as soon as the client waits. */
static struct {
	enum rp_rendezvous_type type;
	uint32_t rkey;
} replies[8];
static unsigned int nreplies;

void rp_pre_wake_thread(void)
{
}

static void client_start(void)
{
	const struct pair_attr attr = {.ops = BUILDERS, .access = PERSISTENT};
	int fds[2];

	test_thread = pthread_self();
	dev_start();
	pair_open(&p, &attr);
	cr_assert_eq(rp_desc_get(p.desc.bytes, &desc), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
		     0);
	server = fds[1];
	memset(&r, 0, sizeof(r));
	r.qp = p.a.qp;
	r.shim = p.a.sqp;
	r.peer_num = p.b.qp->qp_num;
	r.fd = fds[0];
	atomic_store(&r.state, RP_PRE_FOUND);
	pthread_mutex_init(&r.client_lock, NULL);
	rp_shim_cfg(&r.cfg);
	polls = nreplies = 0;
}

static void client_end(void)
{
	if (r.fd >= 0)
		close(r.fd);
	close(server);
	free(r.recalled);
	pthread_mutex_destroy(&r.client_lock);
	pair_close(&p);
	dev_end();
}

TestSuite(shim_preload_client, .init = client_start, .fini = client_end);

static void put_message(uint8_t msg[RP_RENDEZVOUS_LEN],
			enum rp_rendezvous_type type, uint32_t rkey)
{
	struct rp_rendezvous m = {.type = type, .rkey = rkey};

	if (type == RP_RENDEZVOUS_DESC) {
		m.desc = desc;
		m.desc.rkey = rkey;
	}
	cr_assert_eq(rp_rendezvous_put(msg, &m), 0);
}

static void server_send(enum rp_rendezvous_type type, uint32_t rkey)
{
	uint8_t msg[RP_RENDEZVOUS_LEN];

	put_message(msg, type, rkey);
	cr_assert_eq(write(server, msg, sizeof(msg)), (ssize_t)sizeof(msg));
}

/*
 * In place of poll(2): a wait without a reply ends at once, at its deadline.
 * The thread that watches the region's facts waits in earnest.
 */
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	unsigned int sent;

	if (!pthread_equal(pthread_self(), test_thread))
		return __real_poll(fds, n, ms);
	polls++;
	sent = nreplies;
	for (unsigned int i = 0; i < sent; i++)
		server_send(replies[i].type, replies[i].rkey);
	nreplies = 0;
	return sent > 0;
}

static void reply_with(enum rp_rendezvous_type type, uint32_t rkey)
{
	replies[nreplies].type = type;
	replies[nreplies++].rkey = rkey;
}

/* Does the server's end have one more message of this type and rkey? */
static bool server_receives(enum rp_rendezvous_type type, uint32_t rkey)
{
	uint8_t msg[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m;

	return read(server, msg, sizeof(msg)) == (ssize_t)sizeof(msg) &&
	       !rp_rendezvous_get(msg, &m) && m.type == type && m.rkey == rkey;
}

static void get_region(uint32_t rkey)
{
	rpmem_wr_start(r.shim);
	rp_pre_region_get(&r, rkey);
	rpmem_wr_abort(r.shim);
}

/* The client has the descriptor of RKEY. */
static void grant_one(void)
{
	reply_with(RP_RENDEZVOUS_DESC, RKEY);
	get_region(RKEY);
	cr_assert(server_receives(RP_RENDEZVOUS_QUERY, RKEY));
	cr_assert_geq((int)r.fd, 0);
	polls = 0;
}

static void expect_lost(void)
{
	cr_assert_eq((int)r.fd, -1);
	cr_assert_eq(atomic_load(&r.state), RP_PRE_LOST);
}

Test(shim_preload_client, each_descriptor_is_recalled_once)
{
	grant_one();
	server_send(RP_RENDEZVOUS_RECALL, RKEY);
	rp_pre_receive(&r);
	cr_assert(server_receives(RP_RENDEZVOUS_RELEASED, RKEY));
	cr_assert_geq((int)r.fd, 0);
	server_send(RP_RENDEZVOUS_RECALL, RKEY);
	rp_pre_receive(&r);
	expect_lost();
}

/* A flush waits for DESC; RECALLs without end must not hold it up. */
Test(shim_preload_client, flood_of_recalls_ends_a_query)
{
	grant_one();
	for (int i = 0; i < 3; i++)
		reply_with(RP_RENDEZVOUS_RECALL, RKEY);
	reply_with(RP_RENDEZVOUS_DESC, RKEY + 1);
	get_region(RKEY + 1);
	expect_lost();
}

Test(shim_preload_client, recall_ahead_of_a_descriptor_is_handled)
{
	grant_one();
	reply_with(RP_RENDEZVOUS_RECALL, RKEY);
	reply_with(RP_RENDEZVOUS_DESC, RKEY + 1);
	get_region(RKEY + 1);
	cr_assert_geq((int)r.fd, 0);
	cr_assert(server_receives(RP_RENDEZVOUS_QUERY, RKEY + 1));
	cr_assert(server_receives(RP_RENDEZVOUS_RELEASED, RKEY));
}

/* The thread holds the server's lock meanwhile, so it must not wait. */
Test(shim_preload_client, part_of_a_message_is_kept_until_the_rest_comes)
{
	uint8_t msg[RP_RENDEZVOUS_LEN];

	grant_one();
	put_message(msg, RP_RENDEZVOUS_RECALL, RKEY);
	for (size_t i = 0; i < sizeof(msg); i++) {
		cr_assert_not(server_receives(RP_RENDEZVOUS_RELEASED, RKEY));
		cr_assert_eq(write(server, msg + i, 1), 1);
		rp_pre_receive(&r);
	}
	cr_assert(server_receives(RP_RENDEZVOUS_RELEASED, RKEY));
	cr_assert_geq((int)r.fd, 0);
	cr_assert_eq(polls, 0u);
}

Test(shim_preload_client, server_that_does_not_read_is_not_waited_for)
{
	uint8_t bytes[4096] = {0};

	grant_one();
	while (write(r.fd, bytes, sizeof(bytes)) > 0)
		;
	server_send(RP_RENDEZVOUS_RECALL, RKEY);
	rp_pre_receive(&r);
	expect_lost();
	cr_assert_eq(polls, 0u);
}

Test(shim_preload_client, server_that_has_gone_is_noticed)
{
	shutdown(server, SHUT_WR);
	rp_pre_receive(&r);
	expect_lost();
}
