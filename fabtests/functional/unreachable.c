// SPDX-License-Identifier: BSD-2-Clause
/*
 * Targets to which no connection can be made: nothing listens on the port, or
 * its SYNs are dropped, as by a firewall. The next operation fails with the
 * status of the case.
 */
#include "config.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/wire.h"
#include "fabtests/commit.h"
#include "util/fabric.h"

#define FILLERS 4

static struct rp_fabric f;
static fi_addr_t peer;
static char err[RP_ERR_LEN];
static int tests, failures;

static void check(bool holds, const char *text)
{
	printf("%sok %d - %s\n", holds ? "" : "not ", ++tests, text);
	failures += !holds;
}

static void bail(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

/* Bind a socket to a free port of loopback. Returns the port. */
static uint16_t take_port(int *fd)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);

	*fd = socket(AF_INET, SOCK_STREAM, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *)&sa, len) ||
	    getsockname(*fd, (struct sockaddr *)&sa, &len))
		bail("no port");
	return ntohs(sa.sin_port);
}

/* Fill the listener's backlog: the kernel then drops connection requests. */
static void fill_backlog(int fd, uint16_t port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	if (listen(fd, 0))
		bail("listen");
	for (int i = 0; i < FILLERS; i++) {
		int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		if (s < 0)
			bail("socket");
		connect(s, (struct sockaddr *)&sa, sizeof(sa));
	}
}

/* Make a key that names this port, as a target would make it. */
static uint64_t key_of(uint16_t port)
{
	struct rp_key k = {
		.random = 12345,
		.port = port,
		.method = RP_METHOD_AGENT_CLWB,
		.class = RP_CLASS_POWER,
	};

	return rp_key_make(&k);
}

static int write_to(uint16_t port)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry e;
	ssize_t n;

	do {
		n = fi_write(f.ep, "x", 1, NULL, peer, 0, key_of(port), &f);
		if (n == -FI_EAGAIN)
			fi_cq_read(f.cq, NULL, 0);
	} while (n == -FI_EAGAIN);
	if (n)
		return (int)n;
	do
		n = fi_cq_read(f.cq, &e, 1);
	while (n == -FI_EAGAIN);
	if (n != -FI_EAVAIL || fi_cq_readerr(f.cq, &bad, 0) != 1 ||
	    bad.op_context != &f)
		return 0;
	return bad.prov_errno;
}

static int query_port(uint16_t port)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};

	return key_query(f.ep, peer, key_of(port), FI_RPMEM_CLASS_POWER, &attr);
}

int main(void)
{
	struct rp_fabric_attr attr = {.target = false};
	char name[128];
	size_t len = sizeof(name);
	uint16_t nobody, dropped;
	int a, b;

	setenv("FI_OFI_RPMEM_TIMEOUT", "2000", 1);
	unsetenv("FI_PROVIDER");
	if (rp_fabric_open(&attr, &f, err) ||
	    fi_getname(&f.ep->fid, name, &len) ||
	    rp_fabric_peer(&f, name, &peer, err))
		bail(err);
	nobody = take_port(&a);
	dropped = take_port(&b);
	fill_backlog(b, dropped);
	check(write_to(nobody) == RP_ST_LOST, "no listener: 72");
	check(query_port(nobody) == -FI_ENOTCONN, "a query says -FI_ENOTCONN");
	check(write_to(dropped) == RP_ST_TIMEOUT,
	      "requests are dropped: 65, when the timeout is over");
	check(query_port(dropped) == -FI_ETIMEDOUT,
	      "a query says -FI_ETIMEDOUT");
	rp_fabric_close(&f);
	close(a);
	close(b);
	printf("1..%d\n", tests);
	return !!failures;
}
