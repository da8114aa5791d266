// SPDX-License-Identifier: BSD-2-Clause
/* Client of the setup protocol: fetches what a daemon exports. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/setup_client.h"
#include "util/setup_server.h"

/* Time limit for retries of OPEN while the pool awaits its last owner. */
#define AWAITED_MS 10000

struct call {
	const struct rp_setup_target *t;
	struct rp_setup_auth auth;
	int fd;
	uint64_t deadline; /* ms, of the whole exchange */
	bool requested;	   /* the request has been sent */
	char *err;
};

int rp_setup_parse_target(const char *s, struct rp_setup_target *t, char *err)
{
	const char *host = s, *end, *rest;
	size_t len;

	if (*s == '[') {
		host = s + 1;
		end = strchr(host, ']');
		rest = end ? end + 1 : NULL;
	} else {
		end = rest = s + strcspn(s, ":");
	}
	len = end ? (size_t)(end - host) : 0;
	if (len == 0 || len >= sizeof(t->host) || (*rest && *rest != ':'))
		return rp_err(err, -EINVAL,
			      "'%s' does not begin with a host; give "
			      "HOST, HOST:PORT or [IPV6]:PORT",
			      s);
	t->port = RP_SETUP_PORT;
	if (*rest == ':') {
		size_t digits = strspn(rest + 1, "0123456789");
		const char *after = rest + 1 + digits;

		if (digits && (*after == 0 || *after == ':')) {
			unsigned long port = strtoul(rest + 1, NULL, 10);

			if (digits > 5 || port == 0 || port > 65535)
				return rp_err(err, -EINVAL,
					      "'%.*s' is no port; ports are 1 "
					      "to 65535",
					      (int)digits, rest + 1);
			t->port = (uint16_t)port;
			rest = after;
		}
	}
	memcpy(t->host, host, len);
	t->host[len] = 0;
	return (int)(rest - s);
}

/* Wait until the socket is ready. Returns 0, or -ETIMEDOUT at the deadline. */
static int call_wait(struct call *c, short events)
{
	struct pollfd pfd = {.fd = c->fd, .events = events};
	uint64_t now;
	int ret;

	do {
		now = rp_now_ms();
		if (now >= c->deadline)
			return -ETIMEDOUT;
		ret = poll(&pfd, 1, (int)(c->deadline - now));
	} while (ret == 0 || (ret < 0 && errno == EINTR));
	return ret < 0 ? -errno : 0;
}

static int connect_one(struct call *c, const struct addrinfo *ai)
{
	socklen_t len = sizeof(int);
	int ret = 0;

	c->fd = socket(ai->ai_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -errno;
	if (connect(c->fd, ai->ai_addr, ai->ai_addrlen) &&
	    errno != EINPROGRESS) {
		ret = errno;
	} else {
		ret = -call_wait(c, POLLOUT);
		if (!ret && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &ret, &len))
			ret = errno;
	}
	if (ret) {
		close(c->fd);
		c->fd = -1;
	}
	return -ret;
}

/*
 * Connect to the first address that accepts. One that drops packets uses only
 * its share of the time that is left, so that the others are tried, too.
 */
static int connect_each(struct call *c, const struct addrinfo *list,
			bool *refused)
{
	const uint64_t end = c->deadline;
	uint64_t now, left = 0;
	int ret = -EHOSTUNREACH;

	*refused = false;
	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next)
		left++;
	for (; list && c->fd < 0; list = list->ai_next) {
		now = rp_now_ms();
		c->deadline = now < end ? now + (end - now) / left : end;
		left--;
		ret = connect_one(c, list);
		*refused |= ret == -ECONNREFUSED;
	}
	c->deadline = end;
	return ret;
}

/*
 * If no address accepts but one refuses (its daemon may be starting), retry
 * until wait_ms are over.
 */
static int connect_any(struct call *c, const struct addrinfo *list)
{
	const uint64_t until = rp_now_ms() + c->t->wait_ms;
	uint64_t pause = 0;
	bool refused;
	int ret;

	for (;;) {
		ret = connect_each(c, list, &refused);
		if (!ret || !refused)
			return ret;
		if (rp_now_ms() >= until)
			return -ECONNREFUSED;
		pause = rp_pause_ms(pause);
		poll(NULL, 0, (int)pause);
	}
}

static int call_connect(struct call *c)
{
	struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM};
	const struct rp_setup_target *t = c->t;
	char service[8];
	int ret;

	snprintf(service, sizeof(service), "%u", t->port);
	ret = getaddrinfo(t->host, service, &hints, &list);
	if (ret)
		return rp_err(c->err, -EHOSTUNREACH,
			      "host '%s' is not known: %s; check its name, and "
			      "the name service of this host",
			      t->host, gai_strerror(ret));
	ret = connect_any(c, list);
	freeaddrinfo(list);
	if (ret == -ECONNREFUSED)
		return rp_err(c->err, ret,
			      "nothing listens on port %u of %s; start "
			      "fi_rpmemd there, or give the port that it "
			      "printed",
			      t->port, t->host);
	if (ret == -ETIMEDOUT)
		return rp_err(c->err, ret,
			      "port %u of %s does not answer; check the host "
			      "and the firewalls on the way",
			      t->port, t->host);
	if (ret == -EMFILE || ret == -ENFILE)
		return rp_err(c->err, ret,
			      "connecting to %s: %s; close some, or raise the "
			      "limit (ulimit -n)",
			      t->host, strerror(-ret));
	if (ret)
		return rp_err(c->err, -EHOSTUNREACH, "%s cannot be reached: %s",
			      t->host, strerror(-ret));
	return 0;
}

static int call_send(struct call *c, const uint8_t *buf, size_t len)
{
	while (len) {
		ssize_t n = send(c->fd, buf, len, MSG_NOSIGNAL);
		int ret;

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0) {
			ret = call_wait(c, POLLOUT);
			if (ret)
				return ret;
			continue;
		}
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Receive one complete message. -EIO: the connection ended before its end. */
static int call_recv(struct call *c, uint8_t *buf, size_t max, size_t *len,
		     enum rp_setup_type *type)
{
	size_t have = 0, want = RP_SETUP_HDR;
	int ret;

	while (have < want) {
		ssize_t n;

		ret = call_wait(c, POLLIN);
		if (ret)
			return ret;
		n = recv(c->fd, buf + have, want - have, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		have += (size_t)n;
		ret = rp_setup_frame(buf, have, max, &want, type);
		if (ret && ret != -EAGAIN)
			return ret;
	}
	*len = want;
	return 0;
}

/* Describe the error of call_recv() or call_send() in c->err. */
static int call_report(struct call *c, int ret)
{
	const struct rp_setup_target *t = c->t;

	switch (ret) {
	case -EBADMSG:
		return rp_err(c->err, -EPROTO,
			      "what listens on port %u of %s is not "
			      "fi_rpmemd; give the port that fi_rpmemd printed",
			      t->port, t->host);
	case -EPROTONOSUPPORT:
		return rp_err(
			c->err, ret,
			"the daemon on port %u of %s speaks another version of "
			"the setup protocol than this program (%d); install "
			"the "
			"same release at both ends",
			t->port, t->host, RP_SETUP_VERSION);
	case -ETIMEDOUT:
		if (c->requested)
			return rp_err(c->err, ret,
				      "fi_rpmemd on port %u of %s has the "
				      "request, and has not replied in time; "
				      "if it lives, it still writes back what "
				      "other clients left in the pool: check "
				      "its disk, try again, or allow more time",
				      t->port, t->host);
		return rp_err(c->err, ret,
			      "what listens on port %u of %s is silent; check "
			      "that it is fi_rpmemd, that it runs, and that "
			      "it has file descriptors left (ulimit -n)",
			      t->port, t->host);
	case -EIO:
	case -ECONNRESET:
	case -EPIPE:
		return rp_err(
			c->err, -EIO,
			"the daemon on port %u of %s closed the connection; it "
			"is stopping or has too many clients: try again",
			t->port, t->host);
	default:
		return rp_err(c->err, ret, "port %u of %s: %s", t->port,
			      t->host, strerror(-ret));
	}
}

/* Receive CHALLENGE. It demands a secret if and only if the caller has one. */
static int call_recv_challenge(struct call *c)
{
	struct rp_setup_challenge g;
	enum rp_setup_type type;
	uint8_t buf[RP_SETUP_MAX_REQUEST];
	size_t len;
	int ret;

	ret = call_recv(c, buf, sizeof(buf), &len, &type);
	if (!ret)
		ret = rp_setup_get_challenge(buf, len, &g);
	if (ret)
		return call_report(c, ret);
	if (g.secret && !c->t->secret)
		return rp_err(c->err, -EACCES,
			      "the daemon on port %u of %s asks for a secret; "
			      "give --secret FILE, the same as there",
			      c->t->port, c->t->host);
	if (!g.secret && c->t->secret)
		return rp_err(c->err, -EACCES,
			      "the daemon on port %u of %s does not ask for "
			      "the secret, so it may be anybody's; leave "
			      "--secret out if that is meant",
			      c->t->port, c->t->host);
	c->auth.secret = c->t->secret;
	memcpy(c->auth.daemon_nonce, g.nonce, sizeof(g.nonce));
	return 0;
}

static int call_read_error(struct call *c, const uint8_t *buf, size_t len)
{
	struct rp_setup_error e;
	int ret;

	if (rp_setup_get_error(buf, len, &e))
		return call_report(c, -EBADMSG);
	switch (e.code) {
	case RP_SETUP_E_SECRET:
	case RP_SETUP_E_RIGHT:
		ret = -EACCES;
		break;
	case RP_SETUP_E_POOL:
		ret = -ENOENT;
		break;
	case RP_SETUP_E_VERSION:
		ret = -EPROTONOSUPPORT;
		break;
	case RP_SETUP_E_LENGTH:
		ret = -ERANGE;
		break;
	case RP_SETUP_E_BUSY:
		ret = -EBUSY;
		break;
	case RP_SETUP_E_TAKEN:
		ret = -ESTALE;
		break;
	case RP_SETUP_E_AWAITED:
		ret = -EAGAIN;
		break;
	case RP_SETUP_E_PARTS:
		ret = -ENXIO;
		break;
	case RP_SETUP_E_SCARCE:
		ret = -EMFILE;
		break;
	default:
		ret = -EPROTO;
		break;
	}
	return rp_err(c->err, ret, "%s:%u: %s", c->t->host, c->t->port, e.text);
}

/*
 * Extend the deadline to reply_ms from now: before it replies, the daemon may
 * write back the pool, which takes as long as its disk needs.
 */
static void call_expect_reply(struct call *c)
{
	const uint64_t until = rp_now_ms() + c->t->reply_ms;

	c->requested = true;
	if (until > c->deadline)
		c->deadline = until;
	rp_setup_keep_alive(c->fd); /* a dead host ends the wait earlier */
}

/*
 * Send the request, and receive a reply with a valid MAC. An ERROR is accepted
 * without a valid MAC: it can only make the client stop.
 */
static int call_run(struct call *c, struct rp_setup_request *req,
		    enum rp_setup_type expected, uint8_t *buf, size_t *len)
{
	enum rp_setup_type type;
	int ret;

	ret = call_recv_challenge(c);
	if (ret)
		return ret;
	if (getrandom(req->nonce, sizeof(req->nonce), 0) !=
	    (ssize_t)sizeof(req->nonce))
		return rp_err(c->err, -EIO, "no random bytes for a nonce");
	memcpy(c->auth.client_nonce, req->nonce, sizeof(req->nonce));
	ret = rp_setup_put_request(buf, RP_SETUP_MAX_REQUEST, req);
	if (ret < 0)
		return rp_err(c->err, -EINVAL,
			      "'%s' is no name of a pool; it is the pool "
			      "file's name without its folder",
			      req->name);
	if (c->auth.secret)
		rp_setup_seal(buf, (size_t)ret, RP_SETUP_FROM_CLIENT, &c->auth);
	ret = call_send(c, buf, (size_t)ret);
	if (!ret) {
		call_expect_reply(c);
		ret = call_recv(c, buf, RP_SETUP_MAX_REPLY, len, &type);
	}
	if (ret)
		return call_report(c, ret);
	if (type == RP_SETUP_ERROR)
		return call_read_error(c, buf, *len);
	if (type != expected)
		return call_report(c, -EBADMSG);
	if (c->auth.secret &&
	    !rp_setup_check_seal(buf, *len, RP_SETUP_FROM_DAEMON, &c->auth))
		return rp_err(c->err, -EACCES,
			      "the daemon on port %u of %s does not know the "
			      "secret: do not use it",
			      c->t->port, c->t->host);
	return 0;
}

/* Do one exchange. *keep gets the open connection; NULL: close it. */
static int fetch(const struct rp_setup_target *t, struct rp_setup_request *req,
		 enum rp_setup_type expected, void *out, int *keep, char *err)
{
	struct call c = {
		.t = t,
		.fd = -1,
		.deadline = rp_now_ms() + t->wait_ms +
			    (t->timeout_ms ? t->timeout_ms : 5000),
		.err = err,
	};
	uint8_t *buf = malloc(RP_SETUP_MAX_REPLY);
	size_t len;
	int ret;

	if (!buf)
		return rp_err(err, -ENOMEM, "out of memory");
	ret = call_connect(&c);
	if (ret)
		goto free_buf;
	ret = call_run(&c, req, expected, buf, &len);
	if (ret)
		goto close_fd;
	ret = expected == RP_SETUP_LIST ? rp_setup_get_list(buf, len, out)
					: rp_setup_get_export(buf, len, out);
	if (ret)
		ret = call_report(&c, ret);
	if (!ret && keep) {
		*keep = c.fd;
		goto free_buf;
	}
close_fd:
	close(c.fd);
free_buf:
	free(buf);
	return ret;
}

static int fetch_pool(const struct rp_setup_target *t, const char *pool,
		      struct rp_setup_request *req, struct rp_setup_export *out,
		      int *keep, char *err)
{
	if (!rp_setup_name_ok(pool))
		return rp_err(err, -EINVAL,
			      "'%s' is no name of a pool; it is the pool "
			      "file's name without its folder",
			      pool);
	strcpy(req->name, pool);
	return fetch(t, req, RP_SETUP_EXPORT, out, keep, err);
}

int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err)
{
	struct rp_setup_request req = {.type = RP_SETUP_GET_EXPORT};

	return fetch_pool(t, pool, &req, out, NULL, err);
}

int rp_setup_open(const struct rp_setup_target *t, const char *pool,
		  const struct rp_setup_open *how, struct rp_setup_export *out,
		  int *fd, char *err)
{
	const uint64_t until = rp_now_ms() + (t->wait_ms ? AWAITED_MS : 0);
	struct rp_setup_request req = {
		.type = RP_SETUP_OPEN,
		.owner = how->owner,
		.exclusive = how->exclusive,
		.again = how->again,
		.take = how->take,
		.observe = how->observe,
		.compare = how->compare,
		.expected = how->expected,
		.parts = how->parts,
		.part = how->part,
	};
	int ret;

	while ((ret = fetch_pool(t, pool, &req, out, fd, err)) == -EAGAIN &&
	       rp_now_ms() < until)
		poll(NULL, 0, 100);
	return ret == -EAGAIN ? -EBUSY : ret;
}

uint64_t rp_setup_owner(void)
{
	uint64_t owner;

	if (getrandom(&owner, sizeof(owner), 0) != sizeof(owner))
		return 0;
	return owner & ~RP_SETUP_SHARED;
}

int rp_setup_divide(const struct rp_setup_target *t, const char *pool,
		    uint64_t owner, unsigned int parts, char *err)
{
	struct rp_setup_request req = {
		.type = RP_SETUP_DIVIDE,
		.owner = owner,
		.parts = parts,
	};
	struct rp_setup_export now;

	return fetch_pool(t, pool, &req, &now, NULL, err);
}

int rp_setup_set_length(const struct rp_setup_target *t, const char *pool,
			uint64_t length, char *err)
{
	struct rp_setup_request req = {
		.type = RP_SETUP_SET_LENGTH,
		.length = length,
	};
	struct rp_setup_export now = {.length = 0};
	int ret;

	snprintf(req.name, sizeof(req.name), "%s", pool);
	ret = fetch(t, &req, RP_SETUP_EXPORT, &now, NULL, err);
	if (!ret && now.length != length)
		ret = rp_err(err, -EPROTO,
			     "the daemon on port %u of %s did not take the "
			     "length of the file",
			     t->port, t->host);
	return ret;
}

int rp_setup_fetch_list(const struct rp_setup_target *t,
			struct rp_setup_list *out, char *err)
{
	struct rp_setup_request req = {.type = RP_SETUP_GET_LIST};

	return fetch(t, &req, RP_SETUP_LIST, out, NULL, err);
}
