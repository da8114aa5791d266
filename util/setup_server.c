// SPDX-License-Identifier: BSD-2-Clause
/* Server of the setup protocol: serves many clients and never blocks. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/list.h"
#include "util/clock.h"
#include "util/setup_conn.h"
#include "util/text.h"

/* Bytes of the longest reply, a list of RP_SETUP_POOLS pools. */
#define REPLY_SIZE 20480

int rp_setup_server_new(const struct rp_setup_server_attr *attr,
			struct rp_setup_server **out, char *err)
{
	struct rp_setup_server *s = calloc(1, sizeof(*s));
	struct epoll_event ev = {.events = EPOLLIN};
	int ret;

	if (!s) {
		close(attr->listener);
		return rp_err(err, -ENOMEM, "out of memory");
	}
	s->attr = *attr;
	if (!s->attr.max_conns)
		s->attr.max_conns = 64;
	if (!s->attr.timeout_ms)
		s->attr.timeout_ms = 5000;
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->waiting);
	TAILQ_INIT(&s->holders);
	s->listener = attr->listener;
	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epfd < 0 ||
	    epoll_ctl(s->epfd, EPOLL_CTL_ADD, s->listener, &ev)) {
		ret = rp_err(err, -errno, "epoll: %s", strerror(errno));
		if (s->epfd >= 0)
			close(s->epfd);
		close(s->listener);
		free(s);
		return ret;
	}
	*out = s;
	return 0;
}

uint16_t rp_setup_server_port(const struct rp_setup_server *s)
{
	return rp_setup_port(s->listener);
}

int rp_setup_server_fd(const struct rp_setup_server *s)
{
	return s->epfd;
}

int rp_setup_server_timeout(const struct rp_setup_server *s)
{
	const struct conn *c = TAILQ_FIRST(&s->conns);
	uint64_t now, due = c ? c->deadline : UINT64_MAX;

	if (s->listen_again && s->listen_again < due)
		due = s->listen_again;
	if (due == UINT64_MAX)
		return -1;
	now = rp_now_ms();
	return due > now ? (int)(due - now) : 0;
}

void rp_setup_drop_conn(struct rp_setup_server *s, struct conn *c)
{
	if (c->holds && c->exclusive && s->attr.release)
		s->attr.release(s->attr.arg, c->pool, c->part);
	TAILQ_REMOVE(c->holds		? &s->holders
		     : c->state == WAIT ? &s->waiting
					: &s->conns,
		     c, link);
	s->nconns -= !c->holds;
	close(c->fd);
	free(c->out);
	free(c);
}

static bool conn_wait_for(struct rp_setup_server *s, struct conn *c,
			  uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = c};

	return epoll_ctl(s->epfd, EPOLL_CTL_MOD, c->fd, &ev) == 0;
}

static __attribute__((format(printf, 3, 4))) int
put_error(struct conn *c, uint32_t code, const char *fmt, ...)
{
	struct rp_setup_error e = {.code = code};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	return rp_setup_put_error(c->out, REPLY_SIZE, &e);
}

static const char *why_withdrawn(const struct rp_setup_server *s,
				 unsigned int i)
{
	return s->attr.withdrawn ? s->attr.withdrawn(s->attr.arg, i) : NULL;
}

/* Find the rights of a client to exports[i]; 0: the client cannot see it. */
static unsigned int find_rights(const struct rp_setup_server *s,
				const struct conn *c, unsigned int i)
{
	if (!s->attr.exports[i].name[0])
		return 0;
	if (!s->attr.rights)
		return RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN;
	return s->attr.rights(s->attr.arg, i, c->secret_index);
}

static int put_list(const struct rp_setup_server *s, struct conn *c)
{
	struct rp_setup_list list = {0};

	for (unsigned int i = 0; i < s->attr.nexports; i++) {
		const struct rp_setup_export *e = &s->attr.exports[i];

		if (!find_rights(s, c, i) || why_withdrawn(s, i))
			continue;
		list.v[list.n].len = e->len;
		list.v[list.n].class = e->class;
		list.v[list.n].method = e->method;
		memcpy(list.v[list.n++].name, e->name, sizeof(e->name));
	}
	return rp_setup_put_list(c->out, REPLY_SIZE, &list);
}

static void report_client(struct rp_setup_server *s, const struct conn *c,
			  const char *pool)
{
	uint64_t now = rp_now_ms(), *last = &s->reported_at[pool != NULL];

	if (!s->attr.report || (*last && now - *last < 1000))
		return;
	*last = now;
	s->attr.report(c->peer, pool);
}

/* Return the parts of exports[i]; *owner: the owner of `part`, 0: of all. */
static unsigned int find_parts(const struct rp_setup_server *s, unsigned int i,
			       unsigned int part, uint64_t *owner)
{
	*owner = s->attr.exports[i].owner;
	return s->attr.parts ? s->attr.parts(s->attr.arg, i, part, owner) : 1;
}

/*
 * Find the owner that an OPEN gives to the pool; 0: no change. The present
 * owner is set once more if it opens without `again`: writes of its former
 * endpoint may still be in progress, and set_owner() revokes their key. A
 * client that shares the pool for writing replaces a disconnected exclusive
 * owner, which would repeat its writes over newer bytes when it reconnects.
 */
static uint64_t next_owner(uint64_t owner, const struct rp_setup_request *req,
			   unsigned int rights)
{
	if (req->exclusive)
		return owner == req->owner && req->again ? 0 : req->owner;
	if (!(rights & RP_SETUP_WRITE) || !owner || owner & RP_SETUP_SHARED ||
	    req->again || req->observe)
		return 0;
	return req->owner | RP_SETUP_SHARED;
}

/* Copy exports[i] and the client's key to *e. Returns 0 or put_error(). */
static int grant_export(struct rp_setup_server *s, struct conn *c,
			unsigned int i, unsigned int part,
			struct rp_setup_export *e)
{
	char err[RP_ERR_LEN];
	int ret;

	*e = s->attr.exports[i];
	e->read_only = c->observes || !(find_rights(s, c, i) & RP_SETUP_WRITE);
	ret = s->attr.grant ? s->attr.grant(s->attr.arg, i, c->secret_index,
					    part, e, err)
			    : 0;
	return ret ? put_error(c,
			       ret == -ENOMEM ? RP_SETUP_E_SCARCE
					      : RP_SETUP_E_BUSY,
			       "%.390s", err)
		   : 0;
}

/* Refuse a request that the rights do not allow. Returns 0 if allowed. */
static int check_rights(struct rp_setup_server *s, struct conn *c,
			const struct rp_setup_request *req, unsigned int i)
{
	const unsigned int rights = find_rights(s, c, i);
	const bool writes = req->type == RP_SETUP_SET_LENGTH ||
			    req->type == RP_SETUP_DIVIDE || req->exclusive;
	const char *missing = NULL;

	if (writes && !(rights & RP_SETUP_WRITE))
		missing = "write to";
	else if (req->take && !(rights & RP_SETUP_ADMIN))
		missing = "administer";
	return missing ? put_error(c, RP_SETUP_E_RIGHT,
				   "this secret does not allow to %s pool "
				   "'%.100s'; use another one, or change the "
				   "configuration of fi_rpmemd",
				   missing, s->attr.exports[i].name)
		       : 0;
}

/* Divide exports[i] for a client that has the whole pool open exclusively. */
static int divide_export(struct rp_setup_server *s, struct conn *c,
			 const struct rp_setup_request *req, unsigned int i)
{
	char err[RP_ERR_LEN] = "this daemon divides no pools";
	const struct conn *h = TAILQ_FIRST(&s->holders);

	while (h && (h->pool != i || h->owner != req->owner || !h->exclusive ||
		     h->part))
		h = TAILQ_NEXT(h, link);
	if (!h)
		return put_error(c, RP_SETUP_E_BUSY,
				 "only a client that has all of pool '%.100s' "
				 "open exclusively can divide it; open it so",
				 s->attr.exports[i].name);
	if (s->attr.divide && !s->attr.divide(s->attr.arg, i, req->parts, err))
		return 0;
	return put_error(c, RP_SETUP_E_PARTS, "%.390s", err);
}

/* Refuse an OPEN with a number of parts that exports[i] does not have. */
static int check_parts(struct conn *c, const struct rp_setup_request *req,
		       const char *name, unsigned int parts)
{
	if (!req->parts || req->parts == parts)
		return 0;
	return put_error(c, RP_SETUP_E_PARTS,
			 "pool '%.100s' has %u part(s), not %u; give the "
			 "number with which it was divided",
			 name, parts, req->parts);
}

/* Refuse an OPEN that conflicts with other clients. Returns 0 if none does. */
static int check_others(struct rp_setup_server *s, struct conn *c,
			const struct rp_setup_request *req, unsigned int i,
			uint64_t owner)
{
	const struct rp_setup_export *e = &s->attr.exports[i];
	const unsigned int most =
		s->attr.clients ? s->attr.clients(s->attr.arg, i) : 0;
	const struct conn *h = rp_setup_find_holder(s, req, i);
	char err[RP_ERR_LEN];
	const bool awaited = !h && owner != req->owner && !req->observe &&
			     s->attr.may_open &&
			     s->attr.may_open(s->attr.arg, i, req->part, err);
	unsigned int n;

	/*
	 * Refuse a reconnection: of an exclusive client that is not the owner
	 * any more, of a sharing one if another client excludes it.
	 */
	if (req->again && (req->exclusive ? owner != req->owner : awaited || h))
		return put_error(
			c, RP_SETUP_E_TAKEN,
			"%s '%.100s' %s; what was not committed is "
			"lost: open the pool again",
			e->owner ? "another client has opened pool" : "pool",
			e->name, e->owner ? "meanwhile" : "is a new one");
	if (awaited)
		return put_error(c, RP_SETUP_E_AWAITED, "%.390s", err);
	if (h)
		return put_error(c, RP_SETUP_E_BUSY,
				 "%s '%.100s' is open%s at a client on %s; "
				 "close it there first",
				 h->part ? "a part of pool" : "pool", e->name,
				 h->exclusive ? " exclusively" : "", h->peer);
	if (!most || (n = rp_setup_count_holders(s, req->owner, i)) < most)
		return 0;
	return put_error(c, RP_SETUP_E_BUSY,
			 "pool '%.100s' is open at %u client%s, and its "
			 "configuration allows %u; close it at %u of them, or "
			 "raise 'clients' there",
			 e->name, n, n == 1 ? "" : "s", most, n - most + 1);
}

/*
 * Refuse an OPEN with `compare` if the owner is not the expected one. Accept it
 * from the owner itself: it repeats a request whose reply was lost.
 */
static int check_owner(struct conn *c, const struct rp_setup_request *req,
		       const char *name, uint64_t owner)
{
	if (!req->compare || owner == req->expected || owner == req->owner)
		return 0;
	return put_error(c, RP_SETUP_E_TAKEN,
			 "another client has opened pool '%.100s' meanwhile; "
			 "open it again",
			 name);
}

/* Encode the reply to OPEN. */
static int put_open(struct rp_setup_server *s, struct conn *c,
		    const struct rp_setup_request *req, unsigned int i)
{
	char err[RP_ERR_LEN] = "it cannot be opened exclusively here";
	struct rp_setup_export e;
	uint64_t owner, was;
	int ret = check_parts(c, req, s->attr.exports[i].name,
			      find_parts(s, i, req->part, &was));

	if (!ret)
		ret = check_owner(c, req, s->attr.exports[i].name, was);
	if (!ret && !req->take)
		ret = check_others(s, c, req, i, was);
	if (ret)
		return ret;
	c->observes = req->observe;
	if (req->take)
		rp_setup_drop_holders(s, req, i);
	owner = next_owner(was, req, find_rights(s, c, i));
	if (owner)
		ret = s->attr.set_owner
			      ? s->attr.set_owner(s->attr.arg, i, req->part,
						  owner, err)
			      : -ENOSYS;
	/* The owner waits for requests of its former connection to end. */
	if (ret == -EBUSY && owner == was)
		return -EINPROGRESS;
	if (ret)
		return ret == -EINPROGRESS
			       ? ret
			       : put_error(c, RP_SETUP_E_BUSY, "%.390s", err);
	ret = grant_export(s, c, i, req->part, &e);
	if (ret)
		return ret;
	report_client(s, c, e.name);
	rp_setup_hold(s, c, req, i, find_rights(s, c, i));
	return rp_setup_put_export(c->out, REPLY_SIZE, &e);
}

/* Encode the reply to a request about exports[i]. */
static int encode_pool_reply(struct rp_setup_server *s, struct conn *c,
			     const struct rp_setup_request *req, unsigned int i)
{
	const char *why = why_withdrawn(s, i);
	struct rp_setup_export e;
	char err[RP_ERR_LEN];
	int ret;

	if (s->attr.is_busy && s->attr.is_busy(s->attr.arg, i))
		return -EINPROGRESS;
	if (why)
		return put_error(c, RP_SETUP_E_POOL, "%s", why);
	ret = check_rights(s, c, req, i);
	if (ret)
		return ret;
	if (req->type == RP_SETUP_OPEN)
		return put_open(s, c, req, i);
	if (req->type == RP_SETUP_DIVIDE)
		ret = divide_export(s, c, req, i);
	else if (req->type != RP_SETUP_SET_LENGTH)
		report_client(s, c, req->name);
	else if (req->length > s->attr.exports[i].len)
		return put_error(c, RP_SETUP_E_LENGTH,
				 "the file is longer than pool '%.100s'",
				 req->name);
	else if (!s->attr.set_length)
		return put_error(c, RP_SETUP_E_LENGTH,
				 "this daemon remembers no lengths");
	else if (s->attr.set_length(s->attr.arg, i, req->length, err))
		return put_error(c, RP_SETUP_E_LENGTH, "%.390s", err);
	if (!ret)
		ret = grant_export(s, c, i, 0, &e);
	return ret ? ret : rp_setup_put_export(c->out, REPLY_SIZE, &e);
}

static int put_export(struct rp_setup_server *s, struct conn *c,
		      const struct rp_setup_request *req)
{
	const char *name = req->name;
	char known[160];
	size_t len = 0;

	for (unsigned int i = 0; i < s->attr.nexports; i++)
		if (!strcmp(s->attr.exports[i].name, name) &&
		    find_rights(s, c, i))
			return encode_pool_reply(s, c, req, i);
	known[0] = 0;
	for (unsigned int i = 0; i < s->attr.nexports && len < sizeof(known);
	     i++)
		if (find_rights(s, c, i) && !why_withdrawn(s, i))
			len += (size_t)snprintf(
				known + len, sizeof(known) - len, "%s'%s'",
				len ? ", " : "", s->attr.exports[i].name);
	return put_error(c, RP_SETUP_E_POOL,
			 "no pool '%.100s' is exported here%s; there is %s%s",
			 name, c->auth.secret ? " for this secret" : "",
			 len ? known : "none",
			 len >= sizeof(known) ? "..." : "");
}

/* Whether a known secret made the request's MAC; c->secret_index: its slot. */
static bool authenticate(struct rp_setup_server *s, struct conn *c, size_t len)
{
	const struct rp_setup_secrets *known = s->attr.secrets;

	if (!known || !known->needed)
		return true;
	for (c->secret_index = 0; c->secret_index < RP_SETUP_SECRETS;
	     c->secret_index++) {
		c->auth.secret = &known->v[c->secret_index];
		if (c->auth.secret->len &&
		    rp_setup_check_seal(c->in, len, RP_SETUP_FROM_CLIENT,
					&c->auth))
			return true;
	}
	c->auth.secret = NULL;
	return false;
}

/*
 * Encode the reply to a complete request, or to invalid bytes (frame: error of
 * rp_setup_frame()). Checks the MAC before it reveals anything about pools.
 */
static int put_reply(struct rp_setup_server *s, struct conn *c, int frame,
		     size_t len)
{
	struct rp_setup_request req;
	int ret;

	if (frame == -EPROTONOSUPPORT)
		return put_error(
			c, RP_SETUP_E_VERSION,
			"this daemon speaks version %d of the setup protocol; "
			"install the same release at both ends",
			RP_SETUP_VERSION);
	if (frame || rp_setup_get_request(c->in, len, &req))
		return put_error(c, RP_SETUP_E_REQUEST,
				 "the request is not understood; install the "
				 "same release at both ends");
	memcpy(c->auth.client_nonce, req.nonce, sizeof(req.nonce));
	if (!authenticate(s, c, len)) {
		report_client(s, c, NULL);
		return put_error(c, RP_SETUP_E_SECRET,
				 "the secret is not the daemon's; give the "
				 "same --secret FILE at both ends");
	}
	ret = req.type == RP_SETUP_GET_LIST ? put_list(s, c)
					    : put_export(s, c, &req);
	if (ret > 0 && c->auth.secret)
		rp_setup_seal(c->out, (size_t)ret, RP_SETUP_FROM_DAEMON,
			      &c->auth);
	return ret;
}

/* Reply to a complete request. False: close the connection. */
static bool conn_serve(struct rp_setup_server *s, struct conn *c)
{
	enum rp_setup_type type;
	size_t length = 0;
	int frame, ret;

	frame = rp_setup_frame(c->in, c->in_len, sizeof(c->in), &length, &type);
	if (frame == -EAGAIN || (!frame && c->in_len < length))
		return true;
	ret = put_reply(s, c, frame, length);
	if (ret == -EINPROGRESS) {
		TAILQ_REMOVE(&s->conns, c, link);
		TAILQ_INSERT_TAIL(&s->waiting, c, link);
		c->state = WAIT;
		return conn_wait_for(s, c, 0);
	}
	if (ret < 0)
		return false;
	c->out_len = (size_t)ret;
	c->out_done = 0;
	c->state = REPLY;
	return conn_wait_for(s, c, EPOLLOUT);
}

static bool conn_read(struct rp_setup_server *s, struct conn *c)
{
	ssize_t n =
		recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	c->in_len += (size_t)n;
	return n > 0 && conn_serve(s, c);
}

void rp_setup_server_resume(struct rp_setup_server *s)
{
	struct conns again = TAILQ_HEAD_INITIALIZER(again);
	struct conn *c;

	TAILQ_CONCAT(&again, &s->waiting, link);
	while ((c = TAILQ_FIRST(&again))) {
		TAILQ_REMOVE(&again, c, link);
		TAILQ_INSERT_TAIL(&s->conns, c, link);
		c->deadline = rp_now_ms() + s->attr.timeout_ms;
		c->state = REQUEST;
		if (!conn_serve(s, c))
			rp_setup_drop_conn(s, c);
	}
}

static bool conn_write(struct rp_setup_server *s, struct conn *c)
{
	ssize_t n = send(c->fd, c->out + c->out_done, c->out_len - c->out_done,
			 MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	c->out_done += (size_t)n;
	if (c->out_done < c->out_len)
		return true;
	if (c->state == CHALLENGE) {
		c->state = REQUEST;
	} else if (c->holds) {
		c->state = HOLD;
		free(c->out);
		c->out = NULL;
	} else {
		/*
		 * Let the client close first: closing a socket with unread
		 * bytes resets the connection, and the client could lose the
		 * reply.
		 */
		c->state = CLOSE;
		shutdown(c->fd, SHUT_WR);
	}
	return conn_wait_for(s, c, EPOLLIN);
}

static bool conn_run(struct rp_setup_server *s, struct conn *c)
{
	switch (c->state) {
	case CHALLENGE:
	case REPLY:
		return conn_write(s, c);
	case REQUEST:
		return conn_read(s, c);
	case WAIT: /* the client has disconnected while it waited */
		return false;
	case CLOSE:
	case HOLD:
		break;
	}
	/* Discard what the client still sends; false when it has closed. */
	return recv(c->fd, c->in, sizeof(c->in), 0) > 0;
}

/* Queue CHALLENGE for sending by the loop. */
static bool conn_challenge(struct rp_setup_server *s, struct conn *c)
{
	struct rp_setup_challenge g = {
		.secret = s->attr.secrets && s->attr.secrets->needed,
	};
	struct epoll_event ev = {.events = EPOLLOUT, .data.ptr = c};
	int ret;

	if (getrandom(c->auth.daemon_nonce, sizeof(c->auth.daemon_nonce), 0) !=
	    (ssize_t)sizeof(c->auth.daemon_nonce))
		return false;
	memcpy(g.nonce, c->auth.daemon_nonce, sizeof(g.nonce));
	c->out = malloc(REPLY_SIZE);
	if (!c->out)
		return false;
	ret = rp_setup_put_challenge(c->out, REPLY_SIZE, &g);
	if (ret < 0)
		return false;
	c->out_len = (size_t)ret;
	c->state = CHALLENGE;
	return epoll_ctl(s->epfd, EPOLL_CTL_ADD, c->fd, &ev) == 0;
}

static void server_listen(struct rp_setup_server *s, bool on)
{
	struct epoll_event ev = {.events = on ? EPOLLIN : 0};

	if (epoll_ctl(s->epfd, EPOLL_CTL_MOD, s->listener, &ev) == 0)
		s->listen_again = on ? 0 : rp_now_ms() + 1000;
}

static void server_accept(struct rp_setup_server *s)
{
	struct sockaddr_storage sa;
	socklen_t sa_len = sizeof(sa);
	struct conn *c;
	int fd;

	fd = accept4(s->listener, (struct sockaddr *)&sa, &sa_len,
		     SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) {
		/* Out of descriptors: do not poll the listener for 1 s. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
		    errno == ENOBUFS)
			server_listen(s, false);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return;
	}
	c->fd = fd;
	if (getnameinfo((struct sockaddr *)&sa, sa_len, c->peer,
			sizeof(c->peer), NULL, 0, NI_NUMERICHOST))
		c->peer[0] = 0;
	c->deadline = rp_now_ms() + s->attr.timeout_ms;
	TAILQ_INSERT_TAIL(&s->conns, c, link);
	s->nconns++;
	if (!conn_challenge(s, c))
		rp_setup_drop_conn(s, c);
}

void rp_setup_server_run(struct rp_setup_server *s)
{
	struct epoll_event ev;
	struct conn *c;
	uint64_t now;

	/*
	 * Fetch one event at a time: a second event could name a connection
	 * that the first one has dropped.
	 */
	for (unsigned int i = 0; i < 2 * s->attr.max_conns; i++) {
		if (epoll_wait(s->epfd, &ev, 1, 0) != 1)
			break;
		c = ev.data.ptr;
		if (!c) {
			/*
			 * Drop the oldest connection to make room: an honest
			 * client needs it only for milliseconds.
			 */
			if (s->nconns == s->attr.max_conns)
				rp_setup_drop_conn(
					s, TAILQ_FIRST(&s->conns)
						   ?: TAILQ_FIRST(&s->waiting));
			server_accept(s);
		} else if (!conn_run(s, c)) {
			rp_setup_drop_conn(s, c);
		}
	}
	now = rp_now_ms();
	while ((c = TAILQ_FIRST(&s->conns)) && c->deadline <= now)
		rp_setup_drop_conn(s, c);
	if (s->listen_again && s->listen_again <= now)
		server_listen(s, true);
}

void rp_setup_server_check_rights(struct rp_setup_server *s)
{
	struct conn *h, *next;

	TAILQ_FOREACH_SAFE(h, &s->holders, link, next)
	{
		if (h->rights & ~find_rights(s, h, h->pool))
			rp_setup_drop_conn(s, h);
	}
}

void rp_setup_server_delete(struct rp_setup_server *s)
{
	struct conn *c;

	if (!s)
		return;
	/* Do not release the pools: owners reconnect to the next daemon. */
	s->attr.release = NULL;
	while ((c = TAILQ_FIRST(&s->conns)) || (c = TAILQ_FIRST(&s->waiting)) ||
	       (c = TAILQ_FIRST(&s->holders)))
		rp_setup_drop_conn(s, c);
	close(s->epfd);
	close(s->listener);
	free(s);
}
