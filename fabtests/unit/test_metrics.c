// SPDX-License-Identifier: BSD-2-Clause
/* The HTTP server of the counters: its addresses, its socket, its replies. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/metrics.h"
#include "util/text.h"

static char path[64], where[80], err[RP_ERR_LEN];

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/test_metrics.%d", (int)getpid());
	snprintf(where, sizeof(where), "unix:%s", path);
	unlink(path);
}

static void teardown(void)
{
	unlink(path);
}

TestSuite(metrics, .init = setup, .fini = teardown);

static void expect_address_refused(const char *at, const char *why)
{
	cr_assert_eq(rp_metrics_check(at, err), -EINVAL, "%s", at);
	cr_assert(strstr(err, why), "%s", err);
}

Test(metrics, addresses_of_other_hosts_are_refused)
{
	cr_assert_eq(rp_metrics_check("127.0.0.1:9420", err), 0);
	cr_assert_eq(rp_metrics_check("127.9.0.1:9420", err), 0);
	cr_assert_eq(rp_metrics_check("[::1]:9420", err), 0);
	cr_assert_eq(rp_metrics_check(where, err), 0);
	expect_address_refused("0.0.0.0:9420", "is not a loopback address");
	expect_address_refused("10.0.0.1:9420", "is not a loopback address");
	expect_address_refused("[::]:9420", "is not a loopback address");
	expect_address_refused("localhost:9420", "is not a loopback address");
	expect_address_refused("127.0.0.1", "neither ADDR:PORT nor unix:PATH");
	expect_address_refused("127.0.0.1:70000",
			       "neither ADDR:PORT nor unix:PATH");
	expect_address_refused("unix:", "a path of 1 to");
}

/* Send a request, and serve until the reply has ended. */
static void get(struct rp_metrics *m, const char *request, char *got,
		size_t len)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct pollfd fds[2] = {{.fd = rp_metrics_fd(m), .events = POLLIN}};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t have = 0;
	ssize_t n;

	strcpy(un.sun_path, path);
	cr_assert_eq(connect(s, (struct sockaddr *)&un, sizeof(un)), 0);
	cr_assert_eq(send(s, request, strlen(request), 0),
		     (ssize_t)strlen(request));
	fds[1] = (struct pollfd){.fd = s, .events = POLLIN};
	while (poll(fds, 2, 60000) > 0) {
		rp_metrics_run(m);
		n = recv(s, got + have, len - 1 - have, MSG_DONTWAIT);
		if (!n)
			break;
		have += n > 0 ? (size_t)n : 0;
	}
	got[have] = 0;
	close(s);
}

static struct rp_metrics *open_here(void)
{
	struct rp_metrics *m;

	cr_assert_eq(rp_metrics_open(where, &m, err), 0, "%s", err);
	return m;
}

Test(metrics, only_the_page_is_served)
{
	static char got[65536];
	struct rp_metrics *m = open_here();

	get(m, "GET /metrics HTTP/1.0\r\n\r\n", got, sizeof(got));
	cr_assert(strstr(got, " 200 "), "%s", got);
	cr_assert(strstr(got, "text/plain; version=0.0.4"), "%s", got);
	cr_assert(strstr(got, "# TYPE ofi_rpmem_requests_total counter"));
	get(m, "GET / HTTP/1.0\r\n\r\n", got, sizeof(got));
	cr_assert(strstr(got, " 404 "), "%s", got);
	get(m, "DELETE /metrics HTTP/1.0\r\n\r\n", got, sizeof(got));
	cr_assert(strstr(got, " 404 "), "%s", got);
	rp_metrics_close(m);
	cr_assert_neq(access(path, F_OK), 0, "the socket is left");
}

Test(metrics, socket_of_a_running_daemon_is_not_taken)
{
	static char got[65536];
	struct rp_metrics *m = open_here(), *other;

	cr_assert_eq(rp_metrics_open(where, &other, err), -EADDRINUSE);
	get(m, "GET /metrics HTTP/1.0\r\n\r\n", got, sizeof(got));
	cr_assert(strstr(got, " 200 "), "%s", got);
	rp_metrics_close(m);
}

Test(metrics, socket_of_an_ended_daemon_is_replaced)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(un.sun_path, path);
	cr_assert_eq(bind(s, (struct sockaddr *)&un, sizeof(un)), 0);
	close(s);
	rp_metrics_close(open_here());
}

static bool has_memory = true;

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);

char *__wrap_strdup(const char *s)
{
	return has_memory ? __real_strdup(s) : NULL;
}

/* Without a copy of its path, a socket would stay behind. */
Test(metrics, socket_without_a_copy_of_its_path_is_not_made)
{
	struct rp_metrics *m;

	has_memory = false;
	cr_assert_eq(rp_metrics_open(where, &m, err), -ENOMEM);
	has_memory = true;
	cr_assert(access(path, F_OK), "%s stays", path);
}
