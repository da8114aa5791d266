// SPDX-License-Identifier: BSD-2-Clause
/* The listening socket of the setup protocol. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/setup_server.h"
#include "util/text.h"

#define BACKLOG 64

int rp_setup_listen(const char *addr, uint16_t port, char *err)
{
	struct addrinfo *ai, hints = {
				     .ai_socktype = SOCK_STREAM,
				     .ai_flags = AI_PASSIVE,
			     };
	char service[8];
	int fd, ret, one = 1;

	if (!addr)
		addr = "127.0.0.1";
	snprintf(service, sizeof(service), "%u", port);
	ret = getaddrinfo(addr, service, &hints, &ai);
	if (ret)
		return rp_err(err, -EINVAL,
			      "'%s' is no address of this host: %s", addr,
			      gai_strerror(ret));
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		    0);
	if (fd < 0) {
		ret = rp_err(err, -errno, "socket: %s", strerror(errno));
		goto free_ai;
	}
	/* SO_REUSEADDR: connections in TIME_WAIT do not block a restart. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, BACKLOG)) {
		ret = -errno;
		if (ret == -EADDRINUSE)
			rp_err(err, ret,
			       "port %u of %s is in use; stop what listens "
			       "there (ss -ltnp), or give another --port",
			       port, addr);
		else if (ret == -EADDRNOTAVAIL)
			rp_err(err, ret,
			       "%s is no address of this host; 'ip address' "
			       "shows them",
			       addr);
		else
			rp_err(err, ret, "listening on port %u of %s: %s", port,
			       addr, strerror(-ret));
		close(fd);
		goto free_ai;
	}
	ret = fd;
free_ai:
	freeaddrinfo(ai);
	return ret;
}

uint16_t rp_setup_port(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len))
		return 0;
	return ntohs(sa.ss_family == AF_INET6
			     ? ((struct sockaddr_in6 *)&sa)->sin6_port
			     : ((struct sockaddr_in *)&sa)->sin_port);
}

bool rp_setup_has_closed(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void rp_setup_keep_alive(int fd)
{
	const int on = 1, idle = 3, interval = 3, probes = 9;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}
