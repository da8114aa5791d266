// SPDX-License-Identifier: BSD-2-Clause
/*
 * Targets to which no connection can be made: nothing listens on the port, no
 * route leads to the address, the target ends the handshake, or its SYNs are
 * dropped, as by a firewall. The next operation fails with the status of the
 * case. Its text and the log name the address and port of the target.
 */
#include "config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
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
/* Words of a struct fi_cq_err_entry before libfabric 1.20 added src_addr. */
#define OLD_WORDS 10

struct target {
	const char *name;
	in_addr_t host;
	enum rp_status status; /* of an operation */
	int query;	       /* result of a query */
	int fd;		       /* socket that holds the port */
	uint16_t port;
	fi_addr_t addr;
};

/* "no route": TCP refuses to connect to a broadcast address, ENETUNREACH. */
#define TARGET(text, addr, st, ret)                                            \
	{                                                                      \
		.name = (text), .host = (addr), .status = (st), .query = (ret) \
	}
static struct target targets[] = {
	TARGET("no listener", INADDR_LOOPBACK, RP_ST_LOST, -FI_ENOTCONN),
	TARGET("no route", INADDR_BROADCAST, RP_ST_LOST, -FI_ENOTCONN),
	TARGET("it dies", INADDR_LOOPBACK, RP_ST_LOST, -FI_ENOTCONN),
	TARGET("drops requests", INADDR_LOOPBACK, RP_ST_TIMEOUT, -FI_ETIMEDOUT),
};
enum {
	NOBODY,
	NO_ROUTE,
	DIES,
	DROPS,
	TARGETS
};

static struct rp_fabric f;
static char err[RP_ERR_LEN];
static FILE *log_file; /* stderr, which the provider's log is written to */
static int tests, failures;

static void check(bool holds, const struct target *t, const char *text)
{
	printf("%sok %d - %s: %s\n", holds ? "" : "not ", ++tests, t->name,
	       text);
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

/* Post a write to the target, and wait until the queue has its error entry. */
static bool fail_write(const struct target *t)
{
	struct fi_cq_entry e;
	ssize_t n;
	int fd;

	do {
		n = fi_write(f.ep, "x", 1, NULL, t->addr, 0, key_of(t->port),
			     &f);
		if (n == -FI_EAGAIN)
			fi_cq_read(f.cq, NULL, 0);
		fd = t == &targets[DIES] ? accept(t->fd, NULL, NULL) : -1;
		if (fd >= 0)
			close(fd);
	} while (n == -FI_EAGAIN);
	while (!n || n == -FI_EAGAIN)
		n = fi_cq_read(f.cq, &e, 1);
	return n == -FI_EAVAIL;
}

/* Read the error entry of a failed write. data: a buffer for err_data. */
static struct fi_cq_err_entry read_error(const struct target *t, void *data,
					 size_t size)
{
	union {
		struct fi_cq_err_entry e;
		uint64_t words[OLD_WORDS + 2];
	} bad = {{.err_data = data, .err_data_size = size}};

	bad.words[OLD_WORDS] = 0x9a7d;
	/* Newer headers' fi_cq_readerr() sets src_addr itself. */
	check(f.cq->ops->readerr(f.cq, &bad.e, 0) == 1 &&
		      bad.words[OLD_WORDS] == 0x9a7d,
	      t, "nothing is written behind an older program's entry");
	check(bad.e.op_context == &f && bad.e.prov_errno == (int)t->status, t,
	      t->status == RP_ST_LOST ? "72" : "65, after the timeout");
	return bad.e;
}

/* Does the text name the target, behind these words? */
static bool names(const char *text, const char *words, const struct target *t)
{
	struct in_addr host = {htonl(t->host)};
	char want[64];

	snprintf(want, sizeof(want), "%s %s:%d", words, inet_ntoa(host),
		 t->port);
	text = text ? strstr(text, want) : NULL;
	return text && !isdigit((unsigned char)text[strlen(want)]);
}

/* Does fi_cq_strerror() name the target, in its buffer and in this one? */
static bool is_named(const struct fi_cq_err_entry *bad, const void *data,
		     const struct target *t)
{
	char text[512] = "";

	fi_cq_strerror(f.cq, bad->prov_errno, data, text, sizeof(text));
	return names(text, "(target", t) &&
	       !strcmp(text,
		       fi_cq_strerror(f.cq, bad->prov_errno, data, NULL, 0));
}

/* Read what was logged since the last call. Do these words name the target? */
static bool is_logged(const char *words, const struct target *t)
{
	static off_t at;
	static char text[65536];
	ssize_t n;

	fflush(stderr);
	n = pread(fileno(log_file), text, sizeof(text) - 1, at);
	if (n < 0)
		bail("no log");
	text[n] = 0;
	at += n;
	return names(text, words, t);
}

static void check_target(const struct target *t)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct fi_cq_err_entry bad;

	check(fail_write(t), t, "a write fails");
	check(is_logged("the connection to", t), t,
	      "the log has address and port");
	bad = read_error(t, NULL, 0);
	check(is_named(&bad, bad.err_data, t), t,
	      "its text has address and port");
	check(is_named(&bad, NULL, t), t, "also without err_data");
	if (t == &targets[DIES])
		return;
	check(key_query(f.ep, t->addr, key_of(t->port), FI_RPMEM_CLASS_POWER,
			&attr) == t->query,
	      t, "a query says so");
	check(is_logged("query of", t), t, "and the log has address and port");
}

/* Buffers of the program for err_data belong to one error each. */
static void check_buffers(void)
{
	const struct target *a = &targets[NOBODY], *b = &targets[NO_ROUTE];
	char first[64], second[64], few[12];
	struct fi_cq_err_entry bad_a, bad_b;
	char text[16];

	check(fail_write(a), a, "a write fails again");
	bad_a = read_error(a, first, sizeof(first));
	check(fail_write(b), b, "a write fails again");
	bad_b = read_error(b, second, sizeof(second));
	check(bad_a.err_data == first && bad_b.err_data == second &&
		      bad_a.err_data_size == strlen(first) + 1 &&
		      bad_b.err_data_size == strlen(second) + 1,
	      b, "the program's buffers have a text each");
	check(is_named(&bad_b, second, b), b, "the newest is named");
	check(is_named(&bad_a, first, a), a, "the one before it too");
	check(fail_write(a), a, "a write fails again");
	bad_a = read_error(a, NULL, 0);
	check(!bad_a.err_data_size && fail_write(b) &&
		      fi_cq_readerr(f.cq, &bad_a, 0) == 1 &&
		      is_named(&bad_a, bad_a.err_data, b),
	      b, "an entry can be read into again");
	check(fail_write(a), a, "a write fails again");
	memset(few, '#', sizeof(few));
	bad_a = read_error(a, few, sizeof(few) - 1);
	check(bad_a.err_data == few && bad_a.err_data_size == sizeof(few) - 1 &&
		      strlen(few) == sizeof(few) - 2 &&
		      few[sizeof(few) - 1] == '#',
	      a, "a short buffer has a shorter text");
	memset(text, '#', sizeof(text));
	fi_cq_strerror(f.cq, bad_a.prov_errno, few, text, sizeof(text) - 1);
	check(!strcmp(text, "connection los") && text[sizeof(text) - 1] == '#',
	      a, "and a short text ends in its buffer");
}

/*
 * An error of the base is read behind one of ours: with a buffer that still has
 * our text, and with err_data that is a number, as verbs reports a vendor's
 * error.
 */
static void check_base_error(void)
{
	const struct target *a = &targets[NOBODY];
	char data[64], bytes[8], text[512] = "";
	struct fi_cq_err_entry bad, none = {0};
	ssize_t n = -FI_EAGAIN;

	check(fail_write(a), a,
	      "a write fails, and then a receive is canceled");
	bad = read_error(a, data, sizeof(data));
	check(fi_cq_readerr(f.cq, &none, 0) == -FI_EAGAIN &&
		      is_named(&bad, data, a),
	      a, "it is still named when the queue has no more errors");
	if (fi_recv(f.ep, bytes, sizeof(bytes), NULL, FI_ADDR_UNSPEC, &bad) ||
	    fi_cancel(&f.ep->fid, &bad))
		bail("a receive");
	while (n == -FI_EAGAIN)
		n = fi_cq_readerr(f.cq, &bad, 0);
	check(n == 1 && bad.err == FI_ECANCELED, a, "the base reports it");
	fi_cq_strerror(f.cq, bad.prov_errno, data, text, sizeof(text));
	check(!strstr(text, "(target"), a, "it is not said to be the target's");
	fi_cq_strerror(f.cq, FI_EIO, (void *)0x81, text, sizeof(text));
	check(!strstr(text, "(target"), a,
	      "err_data of the base may be a number");
}

/* The endpoint's sessions are gone when its error entry is read. */
static void check_closed(const struct target *t)
{
	struct fi_cq_err_entry bad;

	check(fail_write(t), t, "a write fails, and its endpoint is closed");
	if (fi_close(&f.ep->fid))
		bail("close");
	f.ep = NULL;
	bad = read_error(t, NULL, 0);
	check(is_named(&bad, bad.err_data, t), t,
	      "its text still has address and port");
}

static void open_targets(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(1)};

	for (int i = 0; i < TARGETS; i++) {
		struct target *t = &targets[i];

		t->port = take_port(&t->fd);
		sa.sin_addr.s_addr = htonl(t->host);
		if (rp_fabric_peer(&f, &sa, &t->addr, err))
			bail(err);
	}
	if (listen(targets[DIES].fd, FILLERS) ||
	    fcntl(targets[DIES].fd, F_SETFL, O_NONBLOCK))
		bail("listen");
	fill_backlog(targets[DROPS].fd, targets[DROPS].port);
}

int main(void)
{
	struct rp_fabric_attr attr = {.target = false};

	log_file = tmpfile();
	if (!log_file || dup2(fileno(log_file), STDERR_FILENO) < 0)
		bail("no file for the log");
	setenv("FI_LOG_LEVEL", "info", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "2000", 1);
	unsetenv("FI_PROVIDER");
	if (rp_fabric_open(&attr, &f, err))
		bail(err);
	open_targets();
	for (int i = 0; i < TARGETS; i++)
		check_target(&targets[i]);
	check_buffers();
	check_base_error();
	check_closed(&targets[NOBODY]);
	rp_fabric_close(&f);
	for (int i = 0; i < TARGETS; i++)
		close(targets[i].fd);
	printf("1..%d\n", tests);
	return !!failures;
}
