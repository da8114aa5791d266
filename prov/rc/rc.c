// SPDX-License-Identifier: BSD-2-Clause
/* Private connections: channels and callbacks, common to both backends. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "rc/rc_priv.h"

/* CM events are polled after EVENT_POLLS polls of completions, or EVENT_NS. */
#define EVENT_POLLS 16
#define EVENT_NS    1000000ull
#define EVENT_MAX   16
/* After EMPTY_POLLS empty polls, poll once per EMPTY_NS. */
#define EMPTY_POLLS 256
#define EMPTY_NS    4000ull

/* Exact time; most callers use rp_rc_now(), which is cheaper. */
static uint64_t exact_now(struct rp_rc *rc)
{
	return rc->attr.now_exact ? rc->attr.now_exact(rc->attr.arg)
				  : rp_rc_now(rc);
}

static const struct rp_rc_ops *backend_ops(enum rp_rc_backend backend)
{
#ifdef HAVE_RDMACM
	if (backend == RP_RC_VERBS)
		return &rp_rc_verbs;
#endif
	return backend == RP_RC_TCP ? &rp_rc_tcp : NULL;
}

/* --- completions --- */

void rp_rc_complete_op(struct rp_rc *rc, struct rp_channel_op *op, int err)
{
	struct rp_rc_channel *c = (struct rp_rc_channel *)op->channel;

	TAILQ_REMOVE(&c->posted, op, link);
	c->nposted--;
	op->err = err;
	TAILQ_INSERT_TAIL(&rc->done, op, link);
	rc->ndone++;
	c->ndone++;
}

void rp_rc_fail_op(struct rp_rc_channel *c, struct rp_channel_op *op, int err)
{
	op->channel = &c->base;
	op->err = err;
	TAILQ_INSERT_TAIL(&c->failed, op, link);
	rp_rc_end_channel(c, err, NULL, 0);
}

void rp_rc_complete_recv(struct rp_rc *rc, struct rp_rc_channel *from,
			 struct rp_rc_recv *r, size_t len)
{
	r->from = from;
	r->len = len;
	TAILQ_INSERT_TAIL(&rc->messages, r, link);
}

static bool report_op(struct rp_rc *rc)
{
	struct rp_channel_op *op = TAILQ_FIRST(&rc->done);

	if (!op)
		return false;
	TAILQ_REMOVE(&rc->done, op, link);
	rc->ndone--;
	((struct rp_rc_channel *)op->channel)->ndone--;
	if (op->err)
		rp_rc_end_channel((struct rp_rc_channel *)op->channel, op->err,
				  NULL, 0);
	op->done(op, op->err);
	return true;
}

/* received() may close any channel, this one too. */
static void report_message(struct rp_rc *rc, struct rp_rc_recv *r)
{
	struct rp_rc_channel *c = r->from;

	TAILQ_REMOVE(&rc->messages, r, link);
	if (c && c->state == RP_RC_CONNECTING)
		rp_rc_end_channel(c, EPROTO, NULL, 0);
	else if (c && c->state != RP_RC_CLOSED)
		c->base.events->received(c->base.owner, r->buf, r->len);
	rp_rc_recv_repost(rc, r);
}

/* Report only what is queued now, because callbacks may post more. */
static int report_all(struct rp_rc *rc)
{
	struct rp_rc_recv *r, *last = TAILQ_LAST(&rc->messages, rp_rc_recvs);
	int n = 0;

	for (unsigned int left = rc->ndone; left && report_op(rc); left--)
		n++;
	/* A close in a callback may remove messages, even the last one. */
	while (last && (r = TAILQ_FIRST(&rc->messages))) {
		if (r == last)
			last = NULL;
		report_message(rc, r);
		n++;
	}
	return n;
}

static const struct rp_channel_ops channel_ops;

/* Set the state, and the operations in this state: the backend's post if UP. */
static void set_state(struct rp_rc_channel *c, enum rp_rc_state state)
{
	c->state = state;
	c->base.ops = state == RP_RC_UP ? &c->rc->up_ops : &channel_ops;
}

/* --- the end of a channel --- */

void rp_rc_end_channel(struct rp_rc_channel *c, int err, const void *data,
		       size_t len)
{
	struct rp_rc *rc = c->rc;

	if (c->state > RP_RC_UP)
		return;
	rc->connecting -= c->state == RP_RC_CONNECTING;
	set_state(c, RP_RC_ENDING);
	c->err = err > 0 ? err : EIO;
	if (len && len <= RP_RC_CM_DATA && (c->data = malloc(len))) {
		memcpy(c->data, data, len);
		c->data_len = len;
	}
	TAILQ_REMOVE(&rc->channels, c, link);
	TAILQ_INSERT_TAIL(&rc->ending, c, link);
}

static void channel_shut(struct rp_rc_channel *c)
{
	struct rp_channel_op *op;

	if (c->shut)
		return;
	c->shut = true;
	c->rc->ops->shut(c);
	while ((op = TAILQ_FIRST(&c->posted)))
		rp_rc_complete_op(c->rc, op, ECANCELED);
	while ((op = TAILQ_FIRST(&c->failed))) {
		TAILQ_REMOVE(&c->failed, op, link);
		rp_rc_add_posted(c, op);
		rp_rc_complete_op(c->rc, op, op->err);
	}
}

static void channel_free(struct rp_rc_channel *c)
{
	free(c->data);
	free(c);
}

static void free_dead(struct rp_rc *rc)
{
	struct rp_rc_channel *c;

	while (!rc->depth && (c = TAILQ_FIRST(&rc->dead))) {
		TAILQ_REMOVE(&rc->dead, c, link);
		channel_free(c);
	}
}

/* Report all completions and messages, those of c too, then call lost(). */
static void report_loss(struct rp_rc_channel *c)
{
	struct rp_rc *rc = c->rc;

	TAILQ_REMOVE(&rc->ending, c, link);
	TAILQ_INSERT_TAIL(&rc->channels, c, link);
	set_state(c, RP_RC_ENDED);
	channel_shut(c);
	report_all(rc);
	if (c->state == RP_RC_ENDED)
		c->base.events->lost(c->base.owner, c->err, c->data,
				     c->data_len);
}

/* Move the completed operations of c from rc->done to mine. */
static void take_completed(struct rp_rc *rc, const struct rp_rc_channel *c,
			   struct rp_rc_ops_list *mine)
{
	struct rp_channel_op *op, *next;

	TAILQ_FOREACH_SAFE(op, &rc->done, link, next)
	if (op->channel == &c->base) {
		TAILQ_REMOVE(&rc->done, op, link);
		rc->ndone--;
		TAILQ_INSERT_TAIL(mine, op, link);
	}
}

static void messages_drop(struct rp_rc *rc, const struct rp_rc_channel *c)
{
	struct rp_rc_recv *r, *next;

	TAILQ_FOREACH_SAFE(r, &rc->messages, link, next)
	if (r->from == c) {
		TAILQ_REMOVE(&rc->messages, r, link);
		rp_rc_recv_repost(rc, r);
	}
}

static void channel_close(struct rp_channel *base)
{
	struct rp_rc_channel *c = (struct rp_rc_channel *)base;
	struct rp_rc *rc = c->rc;
	struct rp_rc_ops_list mine = TAILQ_HEAD_INITIALIZER(mine);
	struct rp_channel_op *op;

	if (c->state == RP_RC_CLOSED)
		return;
	rc->depth++;
	if (c->state == RP_RC_ENDING)
		TAILQ_REMOVE(&rc->ending, c, link);
	else
		TAILQ_REMOVE(&rc->channels, c, link);
	rc->connecting -= c->state == RP_RC_CONNECTING;
	rc->nchannels--;
	set_state(c, RP_RC_CLOSED);
	TAILQ_INSERT_TAIL(&rc->dead, c, link);
	channel_shut(c);
	messages_drop(rc, c);
	take_completed(rc, c, &mine);
	while ((op = TAILQ_FIRST(&mine))) {
		TAILQ_REMOVE(&mine, op, link);
		op->done(op, ECANCELED);
	}
	rc->depth--;
	free_dead(rc);
}

/* --- channels --- */

/* Post to a channel that is not UP: one that has ended fails operations. */
static int channel_post(struct rp_channel *base, struct rp_channel_op *ops[],
			int n)
{
	struct rp_rc_channel *c = (struct rp_rc_channel *)base;

	if (c->state == RP_RC_CONNECTING || c->state == RP_RC_CLOSED)
		return 0;
	for (int i = 0; i < n; i++)
		if (!ops[i]->inject) {
			rp_rc_add_posted(c, ops[i]);
			rp_rc_complete_op(c->rc, ops[i], ENOTCONN);
		}
	return n;
}

static const struct rp_channel_ops channel_ops = {
	.post = channel_post,
	.close = channel_close,
};

struct rp_rc_channel *rp_rc_channel_new(struct rp_rc *rc,
					const struct rp_channel_events *events,
					void *owner)
{
	struct rp_rc_channel *c = calloc(1, rc->ops->channel_size);

	if (!c)
		return NULL;
	c->base = (struct rp_channel){
		.events = events,
		.owner = owner,
		.flags = rc->flags,
		.inject = rc->inject,
	};
	TAILQ_INIT(&c->posted);
	TAILQ_INIT(&c->failed);
	c->rc = rc;
	return c;
}

int rp_rc_channel_start(struct rp_rc_channel *c, enum rp_rc_state state,
			int ret, struct rp_channel **out)
{
	struct rp_rc *rc = c->rc;

	if (ret) {
		set_state(c, RP_RC_CLOSED);
		channel_shut(c);
		channel_free(c);
		return ret;
	}
	set_state(c, state);
	rc->connecting += state == RP_RC_CONNECTING;
	rc->nchannels++;
	TAILQ_INSERT_TAIL(&rc->channels, c, link);
	*out = &c->base;
	return 0;
}

static struct rp_rc *rc_of(struct rp_connector *k)
{
	return rp_container_of(k, struct rp_rc, connector);
}

static int rc_connect(struct rp_connector *k, const void *addr, size_t len,
		      const void *data, size_t data_len,
		      const struct rp_channel_events *events, void *owner,
		      struct rp_channel **out)
{
	struct rp_rc *rc = rc_of(k);
	struct rp_rc_channel *c;

	len = rp_rc_addr_len(addr, len);
	if (!len || data_len > RP_WIRE_CM_DATA)
		return -EINVAL;
	if (rc->nchannels >= RP_RC_MAX_CONNECTIONS)
		return -EMFILE;
	c = rp_rc_channel_new(rc, events, owner);
	if (!c)
		return -ENOMEM;
	memcpy(&c->peer, addr, len);
	return rp_rc_channel_start(c, RP_RC_CONNECTING,
				   rc->ops->connect(c, len, data, data_len),
				   out);
}

static uint64_t rc_now(struct rp_connector *k)
{
	return rp_rc_now(rc_of(k));
}

static int rc_random(struct rp_connector *k, void *buf, size_t len)
{
	struct rp_rc *rc = rc_of(k);

	return rc->attr.random(rc->attr.arg, buf, len);
}

static void rc_kick(struct rp_connector *k)
{
	struct rp_rc *rc = rc_of(k);

	rc->attr.kick(rc->attr.arg);
}

static const struct rp_connector_ops connector_ops = {
	.connect = rc_connect,
	.now = rc_now,
	.random = rc_random,
	.kick = rc_kick,
};

struct rp_connector *rp_rc_connector(struct rp_rc *rc)
{
	return &rc->connector;
}

void rp_rc_set_connected(struct rp_rc_channel *c, const void *data, size_t len)
{
	if (c->state != RP_RC_CONNECTING)
		return;
	c->rc->connecting--;
	set_state(c, RP_RC_UP);
	c->base.events->connected(c->base.owner, data, len);
}

/* --- rp_rc --- */

int rp_rc_open(const struct rp_rc_attr *attr, struct rp_rc **out, char *why,
	       size_t why_size)
{
	const struct rp_rc_ops *ops =
		attr->ops ? attr->ops : backend_ops(attr->backend);
	struct rp_rc *rc = ops ? calloc(1, ops->rc_size) : NULL;
	int ret;

	if (why_size)
		*why = '\0';
	if (!ops) {
		snprintf(why, why_size, "built without librdmacm");
		return -FI_ENODATA;
	}
	if (!rc)
		return -ENOMEM;
	rc->connector.ops = &connector_ops;
	rc->ops = ops;
	rc->up_ops = (struct rp_channel_ops){ops->post, channel_close};
	rc->attr = *attr;
	TAILQ_INIT(&rc->done);
	TAILQ_INIT(&rc->channels);
	TAILQ_INIT(&rc->ending);
	TAILQ_INIT(&rc->dead);
	TAILQ_INIT(&rc->requests);
	TAILQ_INIT(&rc->messages);
	LIST_INIT(&rc->pool);
	rc->epfd = attr->waits ? epoll_create1(EPOLL_CLOEXEC) : -1;
	if (attr->waits && rc->epfd < 0) {
		ret = -errno;
		snprintf(why, why_size, "%s", strerror(errno));
		free(rc);
		return ret;
	}
	ret = ops->open(rc, why, why_size);
	if (ret) {
		rp_rc_close(rc);
		return ret;
	}
	*out = rc;
	return 0;
}

void rp_rc_close(struct rp_rc *rc)
{
	if (!rc)
		return;
	rp_rc_requests_expire(rc, UINT64_MAX);
	rp_rc_pool_dereg(rc);
	rc->ops->close(rc);
	rp_rc_pool_free(rc);
	if (rc->epfd >= 0)
		close(rc->epfd);
	free(rc);
}

void rp_rc_set_due(struct rp_rc *rc, uint64_t due)
{
	const bool earlier = due && (!rc->due || due < rc->due);

	rc->due = due;
	if (earlier && rc->epfd >= 0)
		rc->attr.kick(rc->attr.arg);
}

int rp_rc_watch_fd(struct rp_rc *rc, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	if (rc->epfd < 0)
		return 0;
	return epoll_ctl(rc->epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

const struct sockaddr *rp_rc_peer(const struct rp_channel *c)
{
	return &((const struct rp_rc_channel *)c)->peer.sa;
}

uint32_t rp_rc_flags(const struct rp_rc *rc)
{
	return rc->flags;
}

int rp_rc_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	      struct rp_rc_mr *mr)
{
	int ret;

	*mr = (struct rp_rc_mr){0};
	ret = rc->ops->reg(rc, buf, len, access, mr);
	if (ret)
		*mr = (struct rp_rc_mr){0};
	return ret;
}

void rp_rc_dereg(struct rp_rc *rc, struct rp_rc_mr *mr)
{
	if (mr->handle)
		rc->ops->dereg(rc, mr);
	*mr = (struct rp_rc_mr){0};
}

bool rp_rc_pending(const struct rp_rc *rc)
{
	return !TAILQ_EMPTY(&rc->done) || !TAILQ_EMPTY(&rc->messages) ||
	       !TAILQ_EMPTY(&rc->ending);
}

/* Is the last poll long enough ago? Over TCP each poll is a system call. */
static bool poll_due(struct rp_rc *rc)
{
	return rc->empty_polls < EMPTY_POLLS || rc->poll_now ||
	       rp_rc_pending(rc) || exact_now(rc) - rc->polled_at >= EMPTY_NS;
}

static bool events_due(struct rp_rc *rc, bool some)
{
	if (rc->connecting || rc->poll_now || ++rc->polls >= EVENT_POLLS)
		return true;
	return !some && rc->polled_at - rc->events_polled_at >= EVENT_NS;
}

static int poll_events(struct rp_rc *rc)
{
	rc->poll_now = false;
	rc->polls = 0;
	rc->events_polled_at = rc->polled_at;
	return rc->ops->poll_events(rc, EVENT_MAX);
}

bool rp_rc_poll(struct rp_rc *rc, int max)
{
	struct rp_rc_channel *c;
	int n;

	/* Callbacks must not poll: depth is 0 outside of them. */
	if (rc->depth || !poll_due(rc))
		return false;
	rc->depth++;
	n = rc->ops->poll(rc, max) + report_all(rc);
	if (!n)
		rc->polled_at = exact_now(rc);
	if (events_due(rc, n))
		n += poll_events(rc) + report_all(rc);
	while ((c = TAILQ_FIRST(&rc->ending))) {
		report_loss(c);
		n++;
	}
	if (rc->nrequests)
		rp_rc_requests_expire(rc, rp_rc_now(rc));
	rc->depth--;
	free_dead(rc);
	rc->empty_polls = n ? 0 : rc->empty_polls + 1;
	return n;
}

int rp_rc_fd(const struct rp_rc *rc)
{
	return rc->epfd;
}

int rp_rc_trywait(struct rp_rc *rc)
{
	int ret = rp_rc_pending(rc) || rc->poll_now ? -FI_EAGAIN
						    : rc->ops->trywait(rc);

	if (ret) {
		rc->poll_now = true;
		rc->empty_polls = 0;
	}
	return ret;
}

uint64_t rp_rc_deadline(const struct rp_rc *rc)
{
	const struct rp_rc_request *q = TAILQ_FIRST(&rc->requests);
	uint64_t due = q ? q->born + RP_RC_HALF_OPEN_NS : UINT64_MAX;

	if (rp_rc_pending(rc))
		return 0;
	return rc->due && rc->due < due ? rc->due : due;
}

bool rp_rc_busy(const struct rp_rc *rc)
{
	return rc->nchannels || rc->listening;
}
