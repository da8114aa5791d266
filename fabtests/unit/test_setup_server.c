// SPDX-License-Identifier: BSD-2-Clause
/* The set-up protocol over sockets: hostile, slow and replaying peers. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "setup_server_rig.h"

/* The addresses of the host "two.addresses". */
static struct sockaddr_in address[2];
static struct addrinfo info[2];

/* Interpose libc's function: /etc/hosts of this machine has no such host. */
int getaddrinfo(const char *node, const char *service,
		const struct addrinfo *hints, struct addrinfo **list)
{
	int (*real)(const char *node, const char *service,
		    const struct addrinfo *hints, struct addrinfo **list);

	if (node && !strcmp(node, "two.addresses")) {
		*list = info;
		return 0;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, list);
}

void freeaddrinfo(struct addrinfo *list)
{
	void (*real)(struct addrinfo * list);

	if (list == info)
		return;
	*(void **)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
	real(list);
}

static void two_replies(void)
{
	struct rp_setup_list list;

	cr_assert_eq(fetch_export(), 0, "%s", err);
	same_export(&m.export, &pools[0]);
	cr_assert_eq(rp_setup_fetch_list(&target, &list, err), 0, "%s", err);
	cr_assert_eq(list.n, 2);
	cr_assert_str_eq(list.v[0].name, "volume one");
	cr_assert_eq(list.v[0].len, 1ull << 40);
	cr_assert_str_eq(list.v[1].name, "b");
}

Test(setup_server, replies_without_secret, .timeout = 60)
{
	start_server(NULL, 0, 0);
	two_replies();
	target.secret = &secret;
	cr_assert_eq(fetch_export(), -EACCES);
	cr_assert_not_null(strstr(err, "does not ask"), "%s", err);
	stop_server();
}

Test(setup_server, replies_with_secret, .timeout = 60)
{
	start_server(&secret, 0, 0);
	two_replies();
	cr_assert_eq(atomic_load(&refusals), 0);
	target.secret = NULL;
	cr_assert_eq(fetch_export(), -EACCES);
	cr_assert_not_null(strstr(err, "--secret FILE"), "%s", err);
	target.secret = &other;
	cr_assert_eq(fetch_export(), -EACCES);
	cr_assert_not_null(strstr(err, "not the daemon's"), "%s", err);
	cr_assert_null(strstr(err, "volume"),
		       "an unverified peer learned a name");
	/* An unverified peer must not learn which pools exist. */
	cr_assert_eq(rp_setup_fetch_export(&target, "x", &m.export, err),
		     -EACCES);
	stop_server();
	cr_assert_eq(atomic_load(&refusals), 1, "one a second");
}

Test(setup_server, unknown_pool_names_the_known, .timeout = 60)
{
	start_server(&secret, 0, 0);
	cr_assert_eq(rp_setup_fetch_export(&target, "vol", &m.export, err),
		     -ENOENT);
	cr_assert_not_null(strstr(err, "'vol'"), "%s", err);
	cr_assert_not_null(strstr(err, "'volume one', 'b'"), "%s", err);
	cr_assert_eq(rp_setup_fetch_export(&target, "/dev/x", &m.export, err),
		     -EINVAL);
	stop_server();
}

Test(setup_server, withdrawn_pool_is_refused_with_the_reason, .timeout = 60)
{
	struct rp_setup_list list;

	withdraws = true;
	start_server(NULL, 0, 0);
	cr_assert_eq(rp_setup_fetch_export(&target, "b", &m.export, err),
		     -ENOENT);
	cr_assert_not_null(strstr(err, "it was removed; make another"), "%s",
			   err);
	cr_assert_eq(fetch_export(), 0, "the other is served: %s", err);
	cr_assert_eq(rp_setup_fetch_list(&target, &list, err), 0, "%s", err);
	cr_assert_eq(list.n, 1);
	cr_assert_str_eq(list.v[0].name, "volume one");
	cr_assert_eq(rp_setup_fetch_export(&target, "x", &m.export, err),
		     -ENOENT);
	cr_assert_null(strstr(err, "'b'"), "%s", err);
	stop_server();
}

/* A recorded request is refused on any other connection. */
Test(setup_server, recorded_request_is_refused, .timeout = 60)
{
	struct rp_setup_auth auth = {.secret = &secret};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.name = "b",
	};
	struct rp_setup_challenge g, again;
	uint8_t req[256], buf[4096];
	int fd, len;

	start_server(&secret, 0, 0);
	fd = connect_to();
	recv_challenge(fd, &g);
	len = rp_setup_put_request(req, sizeof(req), &r);
	memcpy(auth.daemon_nonce, g.nonce, sizeof(g.nonce));
	rp_setup_seal(req, (size_t)len, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert_eq(send(fd, req, (size_t)len, 0), len);
	cr_assert_eq(get_export(buf, read_to_end(fd, buf, sizeof(buf))), 0);
	cr_assert_str_eq(m.export.name, "b");
	close(fd);

	fd = connect_to();
	recv_challenge(fd, &again);
	cr_assert_neq(memcmp(again.nonce, g.nonce, sizeof(g.nonce)), 0);
	cr_assert_eq(send(fd, req, (size_t)len, 0), len);
	expect_error(fd, RP_SETUP_E_SECRET);
	close(fd);
	stop_server();
}

Test(setup_server, bad_requests, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct rp_setup_challenge g;
	size_t lens[8];
	int fd;

	make_valid_messages(bufs, lens);
	start_server(NULL, 0, 0);
	/* The message is longer than any request. */
	fd = connect_to();
	recv_challenge(fd, &g);
	bufs[1][9] = 0x10;
	cr_assert_gt(send(fd, bufs[1], lens[1], 0), 0);
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	bufs[1][9] = 0;
	/* The message has another version. */
	fd = connect_to();
	recv_challenge(fd, &g);
	bufs[1][4] = 9;
	cr_assert_gt(send(fd, bufs[1], lens[1], 0), 0);
	expect_error(fd, RP_SETUP_E_VERSION);
	close(fd);
	/* The message has a type that only a daemon sends. */
	fd = connect_to();
	recv_challenge(fd, &g);
	cr_assert_gt(send(fd, bufs[4], lens[4], 0), 0);
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	/* Many bytes of another protocol. */
	fd = connect_to();
	recv_challenge(fd, &g);
	memset(bufs[0], 'x', 4096);
	for (int i = 0; i < 20; i++)
		if (send(fd, bufs[0], 4096, MSG_NOSIGNAL) < 0)
			break;
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	cr_assert_eq(fetch_export(), 0, "others are served: %s", err);
	stop_server();
}

/* A request that arrives byte by byte is served. */
Test(setup_server, request_may_arrive_byte_by_byte, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct rp_setup_challenge g;
	uint8_t buf[4096];
	size_t lens[8];
	int fd;

	make_valid_messages(bufs, lens);
	start_server(NULL, 0, 0);
	fd = connect_to();
	recv_challenge(fd, &g);
	for (size_t i = 0; i < lens[1]; i++) {
		cr_assert_eq(send(fd, bufs[1] + i, 1, 0), 1);
		usleep(1000);
	}
	cr_assert_eq(get_export(buf, read_to_end(fd, buf, sizeof(buf))), 0);
	close(fd);
	stop_server();
}

/* Incomplete requests beyond the limit do not block an honest client. */
Test(setup_server, half_messages_block_nobody, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct timespec a, b;
	size_t lens[8];
	int fds[12];

	make_valid_messages(bufs, lens);
	start_server(NULL, 4, 1000);
	for (int i = 0; i < 12; i++) {
		fds[i] = connect_to();
		cr_assert_eq(send(fds[i], bufs[1], 20, MSG_NOSIGNAL), 20);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	cr_assert_eq(fetch_export(), 0, "%s", err);
	clock_gettime(CLOCK_MONOTONIC, &b);
	cr_assert_lt((b.tv_sec - a.tv_sec) * 1000 +
			     (b.tv_nsec - a.tv_nsec) / 1000000,
		     500, "it waited for the others");
	/* All of these are closed, by the limit or the deadline. */
	for (int i = 0; i < 12; i++) {
		uint8_t buf[256];

		cr_assert_leq(read_to_end(fds[i], buf, sizeof(buf)), 56);
		close(fds[i]);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	cr_assert_lt(b.tv_sec - a.tv_sec, 5);
	stop_server();
}

static unsigned int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	cr_assert_not_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A client that is silent at any point is disconnected in time. */
Test(setup_server, idle_connections_end_in_every_state, .timeout = 60)
{
	enum {
		SILENT,
		HALF,
		DRIBBLES,
		ANSWERED,
		TALKS_ON,
		HALF_CLOSED,
		N
	};
	static uint8_t bufs[8][4096];
	struct rp_setup_challenge g;
	unsigned int before;
	int fds[N], open = N;
	size_t lens[8];

	make_valid_messages(bufs, lens);
	start_server(NULL, 0, 200);
	before = count_descriptors();
	for (int i = 0; i < N; i++) {
		fds[i] = connect_to();
		recv_challenge(fds[i], &g);
	}
	cr_assert_eq(send(fds[HALF], bufs[1], 20, 0), 20);
	cr_assert_eq(send(fds[DRIBBLES], bufs[1], 1, 0), 1);
	cr_assert_eq(send(fds[ANSWERED], bufs[1], lens[1], 0), (int)lens[1]);
	cr_assert_eq(send(fds[TALKS_ON], bufs[1], lens[1], 0), (int)lens[1]);
	cr_assert_eq(send(fds[HALF_CLOSED], bufs[1], 20, 0), 20);
	cr_assert_eq(shutdown(fds[HALF_CLOSED], SHUT_WR), 0);
	/* Wait until the server has closed its ends; ours stay open. */
	for (size_t at = 1; open; at++) {
		usleep(5000);
		if (at < lens[1] - 1)
			send(fds[DRIBBLES], bufs[1] + at, 1, MSG_NOSIGNAL);
		send(fds[TALKS_ON], "x", 1, MSG_NOSIGNAL);
		open = (int)(count_descriptors() - before) - N;
	}
	for (int i = 0; i < N; i++)
		close(fds[i]);
	cr_assert_eq(fetch_export(), 0, "others are served: %s", err);
	stop_server();
}

Test(setup_server, sleeps_when_idle, .timeout = 60)
{
	int fd;
	unsigned int before;

	start_server(NULL, 0, 0);
	fd = connect_to();
	cr_assert_eq(send(fd, "RPMS", 4, 0), 4);
	usleep(100000);
	before = atomic_load(&wakeups);
	usleep(300000);
	cr_assert_leq(atomic_load(&wakeups) - before, 1,
		      "woken by a client that says nothing");
	close(fd);
	usleep(100000);
	stop_server();
}

Test(setup_server, port_in_use, .timeout = 60)
{
	int fd;

	start_server(NULL, 0, 0);
	cr_assert_eq(rp_setup_listen(NULL, target.port, err), -EADDRINUSE);
	cr_assert_not_null(strstr(err, "--port"), "%s", err);
	stop_server();
	fd = rp_setup_listen(NULL, target.port, err);
	cr_assert_geq(fd, 0, "%s", err);
	close(fd);
	cr_assert_eq(rp_setup_listen("192.0.2.1", 0, err), -EADDRNOTAVAIL);
	cr_assert_eq(rp_setup_listen("no such host.", 0, err), -EINVAL);
}

/* An impostor of the daemon: it sends .hello, and later .reply. */
struct impostor {
	int listener;
	const void *hello, *reply;
	size_t hello_len, reply_len;
	unsigned int wait_ms; /* between the request and .reply */
};

static void *impostor_run(void *arg)
{
	struct impostor *im = arg;
	int fd = accept(im->listener, NULL, NULL);
	uint8_t buf[512];

	if (im->hello_len)
		send(fd, im->hello, im->hello_len, MSG_NOSIGNAL);
	if (im->reply_len && recv(fd, buf, sizeof(buf), 0) > 0 &&
	    !poll(NULL, 0, (int)im->wait_ms))
		send(fd, im->reply, im->reply_len, MSG_NOSIGNAL);
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	close(fd);
	return NULL;
}

static int meet_impostor(struct impostor *im)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);
	int ret;
	pthread_t thread;

	im->listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(im->listener, (struct sockaddr *)&sa, sizeof(sa));
	listen(im->listener, 1);
	getsockname(im->listener, (struct sockaddr *)&sa, &len);
	strcpy(target.host, "127.0.0.1");
	target.port = ntohs(sa.sin_port);
	target.timeout_ms = 300;
	pthread_create(&thread, NULL, impostor_run, im);
	ret = fetch_export();
	pthread_join(thread, NULL);
	close(im->listener);
	return ret;
}

/* A daemon that writes a pool back replies behind the usual deadline. */
Test(setup_server, reply_is_awaited_while_the_pool_is_written_back,
     .timeout = 60)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];
	struct impostor im = {.hello = bufs[0], .reply = bufs[2]};

	make_valid_messages(bufs, lens);
	im.hello_len = (size_t)rp_setup_put_challenge(
		bufs[0], sizeof(bufs[0]), &(struct rp_setup_challenge){0});
	im.reply_len = lens[2];
	im.wait_ms = 900; /* meet_impostor() allows 300 for the exchange */
	target.reply_ms = 60000;
	cr_assert_eq(meet_impostor(&im), 0, "%s", err);
	target.reply_ms = 0;
	cr_assert_eq(meet_impostor(&im), -ETIMEDOUT);
	cr_assert_null(strstr(err, "silent"), "%s", err);
	cr_assert_not_null(strstr(err, "writes back"), "%s", err);
}

Test(setup_server, impostors_of_the_daemon_are_refused, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];
	struct impostor im = {0};

	make_valid_messages(bufs, lens);
	/* The server sends nothing. */
	cr_assert_eq(meet_impostor(&im), -ETIMEDOUT);
	cr_assert_not_null(strstr(err, "silent"), "%s", err);
	/* The server is one of another service. */
	im.hello = "SSH-2.0-OpenSSH_9.2p1\r\n";
	im.hello_len = 23;
	cr_assert_eq(meet_impostor(&im), -EPROTO);
	cr_assert_not_null(strstr(err, "not fi_rpmemd"), "%s", err);
	/* The server sends half a challenge. */
	im.hello = bufs[0];
	im.hello_len = 30;
	cr_assert_eq(meet_impostor(&im), -ETIMEDOUT);
	/* The server replies without knowing the secret. */
	im.hello_len = lens[0];
	im.reply = bufs[2];
	im.reply_len = lens[2];
	target.secret = &secret;
	cr_assert_eq(meet_impostor(&im), -EACCES);
	cr_assert_not_null(strstr(err, "do not use it"), "%s", err);
	/* The server replies with another type of message. */
	bufs[0][16] = 0;
	target.secret = NULL;
	im.reply = bufs[3];
	im.reply_len = lens[3];
	cr_assert_eq(meet_impostor(&im), -EPROTO);
	/* The server exports a pool that wraps around the end of memory. */
	memset(bufs[2] + 24, 0xff, 8);
	im.reply = bufs[2];
	im.reply_len = lens[2];
	cr_assert_eq(meet_impostor(&im), -EPROTO);
	/* The server has a newer version. */
	bufs[0][4] = 4;
	cr_assert_eq(meet_impostor(&im), -EPROTONOSUPPORT);
	/* No process listens. */
	target.port = 1;
	cr_assert_eq(fetch_export(), -ECONNREFUSED);
	cr_assert_not_null(strstr(err, "start fi_rpmemd"), "%s", err);
	strcpy(target.host, "no.such.host.invalid");
	cr_assert_eq(fetch_export(), -EHOSTUNREACH);
}

static int tcp_option(int fd, int option)
{
	socklen_t len = sizeof(int);
	int value = -1;

	cr_assert_eq(getsockopt(fd, IPPROTO_TCP, option, &value, &len), 0);
	return value;
}

/*
 * A host that was reset closes no connections. A probe to the host that runs
 * again does it, before the new daemon gives the pool to another client.
 */
Test(setup_server, idle_owner_notices_a_reset_host_before_its_pool_is_free)
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	int idle, interval;

	rp_setup_keep_alive(fd);
	idle = tcp_option(fd, TCP_KEEPIDLE);
	interval = tcp_option(fd, TCP_KEEPINTVL);
	/* The pause of a client between two attempts is up to one second. */
	cr_assert_lt(1000 * (idle + 1), RP_SETUP_AWAIT_MS);
	cr_assert_lt(1000 * (interval + 1), RP_SETUP_AWAIT_MS);
	cr_assert_eq(idle + interval * tcp_option(fd, TCP_KEEPCNT), 30);
	close(fd);
}

/* A full backlog drops SYNs, as a firewall or a dead host does. */
Test(setup_server, next_address_is_tried_when_one_drops_packets, .timeout = 120)
{
	const int full = socket(AF_INET, SOCK_STREAM, 0);
	const int first = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(*address);
	int ret;

	start_server(NULL, 0, 0);
	for (int i = 0; i < 2; i++) {
		address[i].sin_family = AF_INET;
		address[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		info[i] = (struct addrinfo){
			.ai_family = AF_INET,
			.ai_addr = (struct sockaddr *)&address[i],
			.ai_addrlen = len,
		};
	}
	info[0].ai_next = &info[1];
	address[1].sin_port = htons(target.port);
	cr_assert_eq(bind(full, info[0].ai_addr, len), 0);
	cr_assert_eq(listen(full, 0), 0);
	cr_assert_eq(getsockname(full, info[0].ai_addr, &len), 0);
	cr_assert_eq(connect(first, info[0].ai_addr, len), 0);

	strcpy(target.host, "two.addresses");
	/* A busy machine may need more than half of the time for a reply. */
	target.timeout_ms = 200;
	while ((ret = fetch_export()) && target.timeout_ms < 10000)
		target.timeout_ms *= 2;
	cr_assert_eq(ret, 0, "%s", err);
	same_export(&m.export, &pools[0]);
	close(first);
	close(full);
	stop_server();
}

Test(setup_server, length_of_a_file_is_remembered, .timeout = 60)
{
	start_server(&secret, 0, 0);
	cr_assert_eq(rp_setup_set_length(&target, "volume one", 4711, err), 0,
		     "%s", err);
	cr_assert_eq(atomic_load(&last_length), 4711);
	cr_assert_eq(fetch_export(), 0, "%s", err);
	cr_assert_eq(m.export.length, 4711);
	cr_assert_eq(atomic_load(&served), 1, "setting is no opening");
	/* Beyond the pool, not stored, no such pool, another secret. */
	cr_assert_eq(rp_setup_set_length(&target, "volume one",
					 (1ull << 40) + 1, err),
		     -ERANGE);
	cr_assert_eq(rp_setup_set_length(&target, "volume one", 13, err),
		     -ERANGE);
	cr_assert(strstr(err, "the disk is broken"), "%s", err);
	cr_assert_eq(rp_setup_set_length(&target, "none", 1, err), -ENOENT);
	target.secret = &other;
	cr_assert_eq(rp_setup_set_length(&target, "volume one", 99, err),
		     -EACCES);
	cr_assert_eq(atomic_load(&last_length), 4711);
	stop_server();
}
