/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's end of a side connection, for models of queue pairs: the agent's
 * host and one channel.
 */
#ifndef SIDE_HOST_H
#define SIDE_HOST_H

#include <errno.h>

#include "core/agent.h"

struct side_host {
	struct rp_agent_host host; /* first: cast */
	struct rp_channel c;
	struct rp_agent *agent;
	bool requested, open;
	/* Send a message to the peer: 0 or -errno. */
	int (*say)(const void *msg, size_t len, void *arg);
	void *arg;
	const uint64_t *now;
};

static struct side_host *side_host_of(struct rp_channel *c)
{
	return (struct side_host *)((char *)c - offsetof(struct side_host, c));
}

static int side_post(struct rp_channel *c, struct rp_channel_op *ops[], int n)
{
	struct side_host *s = side_host_of(c);
	int i = 0;

	while (i < n &&
	       !s->say(ops[i]->iov->iov_base, ops[i]->iov->iov_len, s->arg))
		i++;
	return i;
}

static void side_close(struct rp_channel *c)
{
	side_host_of(c)->open = false;
}

static int side_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	static const struct rp_channel_ops ops = {.post = side_post,
						  .close = side_close};
	struct side_host *s = (struct side_host *)h;

	s->c = (struct rp_channel){.ops = &ops,
				   .events = events,
				   .owner = owner,
				   .inject = RP_WIRE_MAX_MSG};
	s->open = true;
	*out = &s->c;
	return s->say(data, len, s->arg);
}

static void side_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	struct side_host *s = (struct side_host *)h;

	s->say(data, len, s->arg);
}

static uint32_t side_flags(struct rp_agent_host *h)
{
	return 0;
}

static uint64_t side_now(struct rp_agent_host *h)
{
	return *((struct side_host *)h)->now;
}

static void side_kick(struct rp_agent_host *h)
{
}

/* Returns 0 or -errno. */
static inline int side_host_init(struct side_host *s,
				 int (*say)(const void *msg, size_t len,
					    void *arg),
				 void *arg, const uint64_t *now)
{
	static const struct rp_agent_host_ops ops = {
		.accept = side_accept,
		.refuse = side_refuse,
		.flags = side_flags,
		.now = side_now,
		.kick = side_kick,
	};
	const struct rp_agent_attr attr = {
		.incarnation = 0x1cca,
		.no_worker = true,
		.messages_only = true,
	};

	*s = (struct side_host){
		.host = {&ops}, .say = say, .arg = arg, .now = now};
	return rp_agent_new(&attr, &s->host, &s->agent);
}

/* Pass a message of the peer to the agent. */
static inline void side_host_received(struct side_host *s, const void *msg,
				      size_t len)
{
	if (s->open) {
		s->c.events->received(s->c.owner, msg, len);
	} else if (!s->requested) {
		s->requested = true;
		rp_agent_conn_request(s->agent, s, msg, len);
	}
}

static inline bool side_host_is(const void *msg, size_t len,
				enum rp_msg_type type)
{
	struct rp_wire_hdr hdr;

	return !rp_wire_get_hdr(msg, len, &hdr) && hdr.type == type;
}

#endif
