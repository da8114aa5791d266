// SPDX-License-Identifier: BSD-2-Clause
/* A set-up server in a thread, and a client that sends any bytes to it. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include <criterion/criterion.h>

#include "setup_server_rig.h"

static atomic_bool stop;
atomic_uint refusals, served, wakeups;
struct rp_setup_export exports[2];
static pthread_t thread;
static struct rp_setup_server *server;
struct rp_setup_target target;

static void count_report(const char *peer, const char *pool)
{
	cr_assert_str_eq(peer, "127.0.0.1");
	atomic_fetch_add(pool ? &served : &refusals, 1);
}

atomic_ullong last_length;

static int set_length(void *arg, unsigned int i, uint64_t length, char *why)
{
	if (length == 13)
		return rp_err(why, -EIO, "the disk is broken");
	atomic_store(&last_length, length);
	exports[i].length = length;
	return 0;
}

atomic_uint owner_changes;

static int set_owner(void *arg, unsigned int i, unsigned int part,
		     uint64_t owner, char *why)
{
	if (owner == 13)
		return rp_err(why, -EIO, "the disk is broken");
	exports[i].owner = owner;
	atomic_fetch_add(&owner_changes, 1);
	return 0;
}

atomic_uint owner_releases;
atomic_bool last_owner_may_return;

static int may_open(void *arg, unsigned int i, unsigned int part, char *why)
{
	if (!atomic_load(&last_owner_may_return))
		return 0;
	return rp_err(why, -EAGAIN, "the last client may come back");
}

static void release_export(void *arg, unsigned int i, unsigned int part)
{
	cr_assert_eq(i, 0);
	atomic_fetch_add(&owner_releases, 1);
}

static void *serve_thread(void *arg)
{
	struct pollfd pfd = {
		.fd = rp_setup_server_fd(server),
		.events = POLLIN,
	};

	while (!atomic_load(&stop)) {
		int ms = rp_setup_server_timeout(server);

		poll(&pfd, 1, ms < 0 || ms > 20 ? 20 : ms);
		if (pfd.revents)
			atomic_fetch_add(&wakeups, 1);
		rp_setup_server_run(server);
	}
	return NULL;
}

static const char *second_is_withdrawn(void *arg, unsigned int i)
{
	cr_assert_eq(arg, &target);
	return i == 1 ? "it was removed; make another" : NULL;
}

bool withdraws;

static struct rp_setup_secrets known;

void start_server(const struct rp_secret *s, unsigned int max_conns,
		  unsigned int timeout_ms)
{
	struct rp_setup_server_attr attr = {
		.listener = rp_setup_listen(NULL, 0, err),
		.secrets = s ? &known : NULL,
		.exports = exports,
		.nexports = 2,
		.max_conns = max_conns,
		.timeout_ms = timeout_ms,
		.withdrawn = withdraws ? second_is_withdrawn : NULL,
		.set_length = set_length,
		.set_owner = set_owner,
		.may_open = may_open,
		.release = release_export,
		.arg = &target,
		.report = count_report,
	};

	memset(&known, 0, sizeof(known));
	known.needed = s;
	if (s)
		known.v[0] = *s;
	memcpy(exports, pools, sizeof(exports));
	cr_assert_eq(rp_setup_server_new(&attr, &server, err), 0, "%s", err);
	strcpy(target.host, "127.0.0.1");
	target.port = rp_setup_server_port(server);
	target.secret = s;
	target.timeout_ms = 3000;
	atomic_store(&stop, false);
	cr_assert_eq(pthread_create(&thread, NULL, serve_thread, NULL), 0);
}

void stop_server(void)
{
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	rp_setup_server_delete(server);
}

int fetch_export(void)
{
	err[0] = 0;
	return rp_setup_fetch_export(&target, "volume one", &m.export, err);
}

int connect_to(void)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons(target.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct timeval deadline = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
	cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

size_t read_to_end(int fd, uint8_t *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size && (n = recv(fd, buf + len, size - len, 0)) > 0)
		len += (size_t)n;
	return len;
}

void expect_error(int fd, enum rp_setup_code code)
{
	uint8_t buf[4096];
	size_t len = read_to_end(fd, buf, sizeof(buf));

	cr_assert_eq(get_error(buf, len), 0, "%zu bytes", len);
	cr_assert_eq(m.error.code, code, "%s", m.error.text);
}

void recv_challenge(int fd, struct rp_setup_challenge *g)
{
	uint8_t buf[56];

	cr_assert_eq(recv(fd, buf, sizeof(buf), MSG_WAITALL), 56);
	cr_assert_eq(rp_setup_get_challenge(buf, sizeof(buf), g), 0);
}
