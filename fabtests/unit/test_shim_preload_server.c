// SPDX-License-Identifier: BSD-2-Clause
/* The preload's rendezvous server and its thread. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rc_pair.h"
#include "verbs/preload/preload.h"

__thread unsigned int rp_pre_passthrough;

static const uint8_t host[RP_GID_LEN] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static struct pair p;
static struct rp_pre_qp r; /* p.a; its peer, which looks it up, is p.b */
static struct rp_side_addr peer_side;
static int listener; /* of the last call of listen() */

/* --- calls of the thread --- */

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog)
{
	listener = fd;
	return __real_listen(fd, backlog);
}

/* accept4() fails with this error, and posts accept_failed each time. */
static _Atomic(int) accept_error;
static _Atomic(bool) has_failed;
static sem_t accept_failed;

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	errno = accept_error;
	if (!errno)
		return __real_accept4(fd, addr, len, flags);
	has_failed = true;
	sem_post(&accept_failed);
	return -1;
}

/* Calls of poll() that wait for the listener, after accept4() has failed. */
static _Atomic(int) waits_for_listener;

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	for (nfds_t i = 0; has_failed && i < n; i++)
		waits_for_listener += fds[i].fd == listener && fds[i].events;
	return __real_poll(fds, n, has_failed && ms > 1 ? 1 : ms);
}

/* --- the peer --- */

static void server_start(void)
{
	struct rpmem_qp_desc addr;

	/* A client that the thread serves late is not dropped meanwhile. */
	setenv("FI_OFI_RPMEM_TIMEOUT", "60000", 1);
	dev_start();
	pair_open(&p,
		  &(struct pair_attr){.ops = BUILDERS, .access = PERSISTENT});
	cr_assert_eq(rpmem_export_qp(p.b.sqp, &addr), 0);
	cr_assert_eq(rp_side_addr_get(addr.bytes, &peer_side), 0);
	memset(&r, 0, sizeof(r));
	r.qp = p.a.qp;
	r.shim = p.a.sqp;
	r.fd = -1;
	r.connected = true;
	r.peer_num = p.b.qp->qp_num;
	memcpy(r.gid.raw, host, sizeof(host));
	r.peer_gid = r.gid;
	pthread_mutex_init(&r.client_lock, NULL);
	sem_init(&accept_failed, 0, 0);
	listener = -1;
	cr_assert_eq(rp_pre_qp_add(&r), 0);
	cr_assert_geq(listener, 0);
}

static void server_end(void)
{
	rp_pre_qp_del(&r);
	pthread_mutex_destroy(&r.client_lock);
	pair_close(&p);
	dev_end();
}

TestSuite(shim_preload_server, .init = server_start, .fini = server_end,
	  .timeout = 60);

/* Connect to the listener. -1: that failed. */
static int client_connect(void)
{
	struct sockaddr_in6 to;
	socklen_t len = sizeof(to);
	const int no = 0, fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (getsockname(listener, (struct sockaddr *)&to, &len) ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)))
		return -1;
	memcpy(&to.sin6_addr, host, sizeof(host));
	return connect(fd, (struct sockaddr *)&to, sizeof(to)) ? -1 : fd;
}

/* Send LOOKUP of the queue pair `to` by its peer. */
static bool send_lookup(int fd, uint32_t to)
{
	struct rp_rendezvous m = {
		.type = RP_RENDEZVOUS_LOOKUP,
		.to = to,
		.from = peer_side.qp_num,
		.side = peer_side,
	};
	uint8_t msg[RP_RENDEZVOUS_LEN];

	memcpy(m.to_gid, host, sizeof(host));
	memcpy(m.from_gid, host, sizeof(host));
	return !rp_rendezvous_put(msg, &m) &&
	       write(fd, msg, sizeof(msg)) == (ssize_t)sizeof(msg);
}

static bool client_receives(int fd, enum rp_rendezvous_type type)
{
	uint8_t msg[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m;

	return recv(fd, msg, sizeof(msg), MSG_WAITALL) ==
		       (ssize_t)sizeof(msg) &&
	       !rp_rendezvous_get(msg, &m) && m.type == type;
}

/* Does the thread reply to another client's LOOKUP of no queue pair? */
static bool server_replies(void)
{
	const int fd = client_connect();
	const bool came = send_lookup(fd, 1) &&
			  client_receives(fd, RP_RENDEZVOUS_NOT_FOUND);

	close(fd);
	return came;
}

/* --- tests --- */

/*
 * ibv_wr_start() locks the queue pair. Before ibv_wr_complete() the program may
 * call ibv_query_qp(), or wait for a peer whose requests this thread serves.
 */
Test(shim_preload_server, lookup_waits_for_a_locked_queue_pair_alone)
{
	const int fd = client_connect();

	rpmem_wr_start(r.shim);
	cr_assert(send_lookup(fd, r.qp->qp_num));
	/* At the second reply the thread has handled that LOOKUP. */
	cr_assert(server_replies());
	cr_assert(server_replies());
	cr_assert_eq(rp_pre_qp_find(r.qp), &r);
	rpmem_wr_abort(r.shim);
	cr_assert(client_receives(fd, RP_RENDEZVOUS_FOUND));
	close(fd);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Returns the step that fails, or 0. */
static int run_child(int client)
{
	struct ibv_qp qp = {.qp_num = r.qp->qp_num + 1};
	struct rp_pre_qp added = {.qp = &qp, .fd = -1};

	alarm(60);
	if (is_open(listener) || is_open(client))
		return 1;
	if (rp_pre_qp_find(r.qp))
		return 2;
	if (rp_pre_qp_add(&added) || rp_pre_qp_find(&qp) != &added)
		return 3;
	return server_replies() ? 0 : 4;
}

Test(shim_preload_server, forked_child_serves_its_queue_pairs)
{
	int fds[2], status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	cr_skip_test("the sanitizer starts no thread in a child of threads");
#endif
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
		     0);
	r.fd = fds[0];
	cr_assert(server_replies());
	pid = fork();
	if (!pid)
		_exit(run_child(fds[0]));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "%#x", status);
	cr_assert(server_replies());
	close(fds[1]);
}

Test(shim_preload_server, listener_rests_while_descriptors_are_used_up)
{
	int fd;

	accept_error = EMFILE;
	fd = client_connect();
	for (int i = 0; i < 3; i++)
		sem_wait(&accept_failed);
	cr_assert_eq(waits_for_listener, 0);
	accept_error = 0;
	cr_assert(send_lookup(fd, 1));
	cr_assert(client_receives(fd, RP_RENDEZVOUS_NOT_FOUND));
	close(fd);
}
