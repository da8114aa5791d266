// SPDX-License-Identifier: BSD-2-Clause
/* HTTP server that exports this process's counters, by libmicrohttpd. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <microhttpd.h>

#include "util/metrics.h"
#include "util/stats.h"
#include "util/text.h"

/* Idle connections are closed after TIMEOUT_S; surplus ones are refused. */
#define TIMEOUT_S   10
#define CONNECTIONS 16
#define BUFFER	    8192

struct rp_metrics {
	struct MHD_Daemon *http;
	char *path; /* path of a unix socket */
	int epoll;
};

/* --- replies --- */

static void take(void *arg, struct rp_stats_copy *c)
{
	struct rp_stats_copy **to = arg;

	if (*to)
		return;
	*to = malloc(sizeof(*c));
	if (*to)
		**to = *c;
}

/* Text with all counters of this process, malloced; NULL: no memory. */
static char *text_make(size_t *len)
{
	struct rp_stats_copy *c = NULL;
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	int ret = -ENOMEM;

	if (!f)
		return NULL;
	rp_stats_each(getpid(), take, &c);
	ret = rp_stats_prometheus(f, (const struct rp_stats_copy *const *)&c,
				  c != NULL);
	free(c);
	if (fclose(f) || ret) {
		free(text);
		return NULL;
	}
	return text;
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned int code,
			     char *text, size_t len)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(
		len, text,
		code == MHD_HTTP_OK ? MHD_RESPMEM_MUST_FREE
				    : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ret;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
				"text/plain; version=0.0.4");
	ret = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c,
			      const char *url, const char *method,
			      const char *version, const char *body,
			      size_t *body_len, void **state)
{
	static char missing[] = "GET /metrics\n";
	size_t len = 0;
	char *text;

	/* A GET must have no body. */
	if (*body_len)
		return MHD_NO;
	if (strcmp(method, MHD_HTTP_METHOD_GET) || strcmp(url, "/metrics"))
		return reply(c, MHD_HTTP_NOT_FOUND, missing, strlen(missing));
	text = text_make(&len);
	return text ? reply(c, MHD_HTTP_OK, text, len) : MHD_NO;
}

/* --- the listener --- */

static int parse_unix(const char *path, struct sockaddr_un *un, char *err)
{
	un->sun_family = AF_UNIX;
	if (!*path || strlen(path) >= sizeof(un->sun_path))
		return rp_err(err, -EINVAL,
			      "unix:%s: a path of 1 to %zu bytes is needed",
			      path, sizeof(un->sun_path) - 1);
	strcpy(un->sun_path, path);
	return sizeof(*un);
}

/* Parse an address. Returns its length, or -EINVAL. */
static int parse(const char *where, struct sockaddr_storage *sa, char *err)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;
	struct sockaddr_in *in = (struct sockaddr_in *)sa;
	const char *colon = strrchr(where, ':');
	char host[64] = "";
	uint64_t port;

	if (!strncmp(where, "unix:", 5))
		return parse_unix(where + 5, (struct sockaddr_un *)sa, err);
	if (!colon || (size_t)(colon - where) >= sizeof(host) ||
	    rp_number_parse(colon + 1, 0, 65535, &port, NULL))
		return rp_err(err, -EINVAL,
			      "'%s' is neither ADDR:PORT nor unix:PATH", where);
	memcpy(host, where, (size_t)(colon - where));
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1 &&
	    (ntohl(in->sin_addr.s_addr) >> 24) == 127) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return sizeof(*in);
	}
	if (!strcmp(host, "[::1]")) {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = in6addr_loopback;
		in6->sin6_port = htons((uint16_t)port);
		return sizeof(*in6);
	}
	return rp_err(err, -EINVAL,
		      "'%s' is not a loopback address: use 127.0.0.1, [::1] or "
		      "unix:PATH, and a proxy for other hosts",
		      host);
}

int rp_metrics_check(const char *where, char *err)
{
	struct sockaddr_storage sa = {0};
	const int len = parse(where, &sa, err);

	return len < 0 ? len : 0;
}

/* Remove a socket file that an ended daemon has left. */
static void remove_stale(const struct sockaddr_un *un)
{
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (s >= 0 && !lstat(un->sun_path, &st) && S_ISSOCK(st.st_mode) &&
	    connect(s, (const struct sockaddr *)un, sizeof(*un)) &&
	    errno == ECONNREFUSED)
		unlink(un->sun_path);
	if (s >= 0)
		close(s);
}

static int listen_at(const char *where, int *out, char *err)
{
	struct sockaddr_storage sa = {0};
	int len = parse(where, &sa, err), s, one = 1, ret = 0;

	if (len < 0)
		return len;
	s = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return rp_err(err, -errno, "--metrics %s: %s", where,
			      strerror(errno));
	if (sa.ss_family == AF_UNIX)
		remove_stale((struct sockaddr_un *)&sa);
	else
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, (struct sockaddr *)&sa, (socklen_t)len) ||
	    listen(s, CONNECTIONS)) {
		ret = rp_err(err, -errno, "--metrics %s: %s", where,
			     strerror(errno));
		close(s);
		return ret;
	}
	*out = s;
	return 0;
}

static int start(struct rp_metrics *m, int s)
{
	const union MHD_DaemonInfo *info;

	m->http = MHD_start_daemon(
		MHD_USE_EPOLL, 0, NULL, NULL, answer, m,
		MHD_OPTION_LISTEN_SOCKET, s, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)BUFFER, MHD_OPTION_END);
	info = m->http ? MHD_get_daemon_info(m->http, MHD_DAEMON_INFO_EPOLL_FD)
		       : NULL;
	if (!info)
		return -ENOMEM;
	m->epoll = info->epoll_fd;
	return 0;
}

int rp_metrics_open(const char *where, struct rp_metrics **out, char *err)
{
	struct rp_metrics *m = calloc(1, sizeof(*m));
	int s = -1, ret;

	if (!m)
		return rp_err(err, -ENOMEM, "out of memory");
	if (!strncmp(where, "unix:", 5)) {
		m->path = strdup(where + 5);
		if (!m->path) {
			free(m);
			return rp_err(err, -ENOMEM, "out of memory");
		}
	}
	ret = listen_at(where, &s, err);
	if (ret) {
		free(m->path);
		free(m);
		return ret;
	}
	ret = start(m, s);
	if (ret) {
		if (!m->http)
			close(s);
		rp_metrics_close(m);
		return rp_err(err, ret,
			      "--metrics %s: the HTTP server does not "
			      "start",
			      where);
	}
	*out = m;
	return 0;
}

void rp_metrics_close(struct rp_metrics *m)
{
	if (!m)
		return;
	if (m->http)
		MHD_stop_daemon(m->http);
	if (m->path)
		unlink(m->path);
	free(m->path);
	free(m);
}

int rp_metrics_fd(const struct rp_metrics *m)
{
	return m ? m->epoll : -1;
}

void rp_metrics_run(struct rp_metrics *m)
{
	if (m)
		MHD_run(m->http);
}
