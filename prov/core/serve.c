// SPDX-License-Identifier: BSD-2-Clause
/* What an agent does with each message: check it, then answer or queue it. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/agent_impl.h"
#include "core/fault.h"
#include "core/list.h"

struct rp_wire_hdr rp_agent_hdr(const struct rp_agent *a,
				const struct rp_client *c, uint64_t token)
{
	return (struct rp_wire_hdr){
		.session = c->origin.cookie,
		.token = token,
		.incarnation = a->attr.incarnation,
	};
}

int rp_agent_put_reply(const struct rp_agent *a, const struct rp_client *c,
		       uint64_t token, const struct rp_wire_reply *m, void *msg)
{
	struct rp_wire_hdr hdr = rp_agent_hdr(a, c, token);
	struct rp_wire_reply with_credits = *m;
	int len;

	if (RP_FAULT("drop-replies"))
		return 0;
	if (RP_FAULT("delay-replies"))
		rp_fault_dawdle();
	with_credits.credits = a->attr.credits;
	len = rp_wire_put_reply(msg, RP_WIRE_INJECT, &hdr, &with_credits);
	assert(len > 0);
	return len;
}

void rp_agent_reply(struct rp_agent *a, struct rp_client *c, uint64_t token,
		    const struct rp_wire_reply *m)
{
	uint8_t msg[RP_WIRE_INJECT];
	int len = rp_agent_put_reply(a, c, token, m, msg);

	if (!len)
		return;
	rp_client_send(&a->clients, c, msg, len);
	if (RP_FAULT("duplicate-replies"))
		rp_client_send(&a->clients, c, msg, len);
}

static void send_info(struct rp_agent *a, struct rp_client *c, uint64_t token,
		      const struct rp_wire_info *m)
{
	struct rp_wire_hdr hdr = rp_agent_hdr(a, c, token);
	uint8_t msg[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_info(msg, sizeof(msg), &hdr, m);

	assert(len > 0);
	rp_client_send(&a->clients, c, msg, len);
}

/* Answer the message of this header, in its kind, with a failure. */
static void refuse(struct rp_agent *a, struct rp_client *c,
		   const struct rp_wire_hdr *hdr, enum rp_status st)
{
	const struct rp_wire_reply reply = {.status = st};
	const struct rp_wire_info info = {.status = st};

	a->stats.refused++;
	if (hdr->type == RP_MSG_QUERY)
		send_info(a, c, hdr->token, &info);
	else
		rp_agent_reply(a, c, hdr->token, &reply);
}

/* Answer a HELLO of this header. */
static void greet(struct rp_agent *a, struct rp_xport *x,
		  const struct rp_wire_hdr *hdr, const struct rp_wire_hello *m)
{
	bool refused = hdr->version != RP_WIRE_VERSION;
	struct rp_wire_hello_ack ack = {.status = RP_ST_VERSION};
	struct rp_wire_hdr ack_hdr;
	uint8_t buf[RP_WIRE_INJECT];
	struct rp_client *c;
	int len;

	c = rp_client_hello(&a->clients, x, m, refused, x->ops->now(x));
	if (!c)
		return;
	c->features = m->features & RP_FEATURES;
	if (!a->attr.links)
		c->features &= ~(RP_FEATURE_LINK | RP_FEATURE_GATHER);
	if (!a->attr.links || !a->attr.placed)
		c->features &= ~RP_FEATURE_PLACED;
	if (!a->attr.links || !a->attr.native)
		c->features &= ~RP_FEATURE_NATIVE;
	/* Not open, and something kept: that is this answer. */
	if (c->state != RP_CLIENT_OPEN && !STAILQ_EMPTY(&c->kept))
		return;
	if (!refused)
		ack = (struct rp_wire_hello_ack){
			.cookie = c->cookie,
			.credits = a->attr.credits,
			.max_ranges = RP_WIRE_MAX_RANGES,
			.features = c->features,
		};
	ack_hdr = rp_agent_hdr(a, c, hdr->token);
	len = rp_wire_put_hello_ack(buf, sizeof(buf), &ack_hdr, &ack);
	assert(len > 0);
	rp_client_send(&a->clients, c, buf, len);
	/* Otherwise that is shown by its first request. */
	if (!refused && a->attr.proved)
		rp_client_use(&a->clients, c);
}

static void forget_stranger(struct rp_agent *a, struct rp_stranger *s)
{
	STAILQ_REMOVE(&a->strangers, s, rp_stranger, link);
	a->nstrangers--;
	free(s);
}

void rp_agent_drop_strangers(struct rp_agent *a, const struct rp_xport *x)
{
	struct rp_stranger *s, *tmp;

	STAILQ_FOREACH_SAFE(s, &a->strangers, link, tmp)
	if (s->x == x)
		forget_stranger(a, s);
}

/*
 * Whoever floods us with new names makes the base open a connection for each,
 * which takes long. Those who have a session do not wait for that.
 */
static void let_wait(struct rp_agent *a, struct rp_xport *x,
		     const struct rp_wire_hdr *hdr,
		     const struct rp_wire_hello *m)
{
	struct rp_stranger *s = malloc(sizeof(*s));

	if (!s)
		return;
	*s = (struct rp_stranger){.x = x, .hdr = *hdr, .hello = *m};
	/* The oldest has given up soonest, and else asks again. */
	if (a->nstrangers >= RP_AGENT_STRANGERS)
		forget_stranger(a, STAILQ_FIRST(&a->strangers));
	STAILQ_INSERT_TAIL(&a->strangers, s, link);
	a->nstrangers++;
}

bool rp_agent_welcome(struct rp_agent *a)
{
	struct rp_stranger *s;
	bool any = false;

	a->welcome = RP_AGENT_WELCOME;
	while (a->welcome && (s = STAILQ_FIRST(&a->strangers))) {
		a->welcome--;
		greet(a, s->x, &s->hdr, &s->hello);
		forget_stranger(a, s);
		any = true;
	}
	return any;
}

static void recv_hello(struct rp_agent *a, struct rp_xport *x, const void *msg,
		       const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hello m;
	struct rp_key key;

	/* Whoever holds one of our keys has seen such a shape. */
	if (rp_wire_get_hello(msg, hdr, &m) || rp_key_parse(m.key, &key)) {
		a->stats.bad_messages++;
		return;
	}
	a->stats.hellos++;
	if (rp_client_known(&a->clients, x, &m)) {
		greet(a, x, hdr, &m);
	} else if (a->welcome) {
		a->welcome--;
		greet(a, x, hdr, &m);
	} else {
		let_wait(a, x, hdr, &m);
	}
}

/* How a region is brought to the required class; that goes into the reply. */
static bool needs_flush(const struct rp_region *r, enum rp_class required,
			struct rp_wire_reply *reply)
{
	struct rp_choice choice = rp_method_by_agent(&r->facts, r->choice);

	if (required < choice.class) {
		/* Less is asked: placement alone may be enough for that. */
		struct rp_choice less = rp_method_choose(
			&r->facts, required, rp_methods_allowed(r->forced));

		if (less.method == RP_METHOD_DELIVERY)
			choice = less;
	}
	if (reply->class > choice.class)
		reply->class = choice.class;
	if (reply->method < choice.method)
		reply->method = choice.method;
	return choice.method != RP_METHOD_DELIVERY;
}

/*
 * May the initiator do without us from now on? Where a flush can fail it may
 * not: everybody must learn of that. Nor where an old key may come to mean
 * other memory without anybody being told.
 */
static void grant(const struct rp_client *c, const struct rp_wire_request *m,
		  const struct rp_region *r, struct rp_wire_reply *reply)
{
	enum rp_method own = r->choice.method;

	/*
	 * What only an adapter has survives where delivery is enough, but a
	 * later write to the same bytes may be overtaken by it.
	 */
	if (own == RP_METHOD_DELIVERY &&
	    r->facts.placement != RP_PLACE_CPU_USER &&
	    r->facts.placement != RP_PLACE_CPU_KERNEL)
		own = r->facts.fence == RP_YES ? RP_METHOD_FENCE
					       : RP_METHOD_REFUSED;
	if (!(c->features & RP_FEATURE_OWN) || r->links_tell || m->effect ||
	    m->level != RP_LEVEL_DURABLE || r->facts.told != RP_YES ||
	    (own != RP_METHOD_DELIVERY && own != RP_METHOD_FENCE) ||
	    rp_pmem_blocks(r->pmem))
		return;
	reply->grant = (uint8_t)own;
	reply->addr = r->addr;
	reply->length = r->len;
}

/* The region of [addr, addr+len) of key and its offset, or NULL: why not. */
static struct rp_region *check_place(struct rp_agent *a,
				     const struct rp_wire_request *m,
				     const struct rp_wire_range *w,
				     uint64_t *off, struct rp_wire_reply *reply,
				     enum rp_status *st)
{
	struct rp_region *r = rp_regions_find(&a->regions, w->key, st);

	if (!r)
		return NULL;
	*st = rp_region_check(r, w->addr, w->len,
			      m->level == RP_LEVEL_DURABLE ||
				      m->effect == RP_EFFECT_STORE,
			      m->required, off);
	if (*st == RP_ST_CLASS)
		reply->detail = r->choice.class;
	if (*st == RP_ST_REGION_FAILED)
		reply->detail = r->failed;
	return *st == RP_ST_OK ? r : NULL;
}

static enum rp_status check_then(struct rp_agent *a,
				 const struct rp_wire_request *m,
				 struct rp_job *job)
{
	const struct rp_wire_range w = {
		.key = m->then.key,
		.addr = m->then.addr,
		.len = sizeof(m->then.value),
	};
	struct rp_wire_reply *reply = &job->reply;
	struct rp_job_then *t = &job->then;
	enum rp_status st;
	struct rp_region *r = check_place(a, m, &w, &t->off, reply, &st);

	if (!r)
		return st;
	if (!r->writable)
		return RP_ST_ACCESS;
	/* All or nothing is what the CPU does there, whatever it is called. */
	if (((uintptr_t)r->base + t->off) % sizeof(m->then.value))
		return RP_ST_ALIGN;
	t->region = r;
	t->value = m->then.value;
	t->flush = needs_flush(r, m->required, reply);
	return RP_ST_OK;
}

enum rp_status rp_agent_check(struct rp_agent *a,
			      const struct rp_wire_request *m,
			      struct rp_job *job, bool *work)
{
	struct rp_wire_reply *reply = &job->reply;
	bool durable = m->level == RP_LEVEL_DURABLE;
	enum rp_status st = RP_ST_OK;
	size_t i;

	*reply = (struct rp_wire_reply){
		.level = m->level,
		.class = durable ? RP_CLASS_POWER : RP_CLASS_NONE,
		.method = RP_METHOD_DELIVERY,
	};
	for (i = 0; i < m->nranges; i++) {
		const struct rp_wire_range *w = &m->ranges[i];
		struct rp_job_range *g = &job->ranges[i];

		/* What was found of the region holds for all of it. */
		if (i && w->key == w[-1].key) {
			/* Not the whole: parts were just stored, one by one. */
			g->region = g[-1].region;
			g->flush = g[-1].flush;
			st = rp_region_holds(g->region, w->addr, w->len,
					     &g->off);
			if (st != RP_ST_OK)
				goto refused;
			g->len = w->len;
			continue;
		}
		g->region = check_place(a, m, w, &g->off, reply, &st);
		if (!g->region)
			goto refused;
		/* Told is what only a write would have told. */
		if ((m->effect == RP_EFFECT_NOTIFY ||
		     m->effect == RP_EFFECT_STORE) &&
		    !g->region->writable) {
			st = RP_ST_ACCESS;
			goto refused;
		}
		g->len = w->len;
		g->flush =
			durable && needs_flush(g->region, m->required, reply);
		*work |= g->flush;
	}
	if (m->effect == RP_EFFECT_THEN)
		st = check_then(a, m, job);
	/* What is stored inline is stored now: only flushing is work. */
	if (m->effect != RP_EFFECT_STORE)
		*work |= m->effect;
	if (st == RP_ST_OK)
		return st;
refused:
	rp_job_fail(job, st, reply->detail, i);
	return st;
}

/*
 * Has the effect of this request been seen? True: nothing is left to do but
 * what was done here.
 */
static bool seen_before(struct rp_agent *a, struct rp_client *c,
			const struct rp_wire_hdr *hdr,
			const struct rp_wire_request *m)
{
	struct rp_wire_reply answer;

	switch (rp_client_effect(&a->clients, c, m->seq, hdr->token, &answer)) {
	case 0:
		return false;
	case 1:
		a->stats.remembered++;
		rp_agent_reply(a, c, hdr->token, &answer);
		break;
	case -EALREADY:
		break;
	case -EBADMSG:
		a->stats.bad_messages++;
		refuse(a, c, hdr, RP_ST_BAD_MESSAGE);
		break;
	default:
		refuse(a, c, hdr, RP_ST_OVERLOADED);
	}
	return true;
}

/*
 * The bytes go to their place as soon as they are here, as those of a write
 * do: what the peer has sent since cannot be seen before them. To make them
 * durable is the job's.
 */
bool rp_agent_store(const struct rp_wire_request *m, struct rp_job *job,
		    bool *work)
{
	struct rp_job_range *g = &job->ranges[0];
	const char *bytes = m->bytes;
	bool durable = false;
	int ret = 0;
	size_t i = 0;

	if (m->effect != RP_EFFECT_STORE)
		return true;
	if (m->level == RP_LEVEL_DURABLE)
		ret = rp_pmem_store(g->region->pmem, g->off, bytes, g->len,
				    &durable);
	for (; m->level != RP_LEVEL_DURABLE && i < job->n; i++) {
		g = &job->ranges[i];
		ret = rp_pmem_place(g->region->pmem, g->off, bytes, g->len);
		if (ret)
			break;
		bytes += g->len;
	}
	if (ret)
		rp_job_fail(job, RP_ST_FLUSH_FAILED, -ret, i);
	/* One range, so then there is no work left. */
	*work = *work && !durable;
	return !ret;
}

/* A job that needs nothing that takes time, or must not have it. */
static void answer_at_once(struct rp_agent *a, struct rp_client *c,
			   struct rp_job *job)
{
	if (job->effect)
		rp_client_answered(&a->clients, c, job->seq, &job->reply);
	rp_agent_reply(a, c, job->token, &job->reply);
	free(job);
}

static void recv_request(struct rp_agent *a, struct rp_client *c,
			 const void *msg, const struct rp_wire_hdr *hdr)
{
	struct rp_wire_request m;
	struct rp_job *job;
	bool work = false;

	/* Sent again because the answer is late: it is on its way. */
	if (rp_client_has_job(c, hdr->token))
		return;
	/* Here a store is durable: what is only placed goes another way. */
	if (rp_wire_get_request(msg, hdr, &m) ||
	    (m.effect && m.level != RP_LEVEL_DURABLE)) {
		a->stats.bad_messages++;
		refuse(a, c, hdr, RP_ST_BAD_MESSAGE);
		return;
	}
	if (hdr->incarnation && hdr->incarnation != a->attr.incarnation) {
		refuse(a, c, hdr, RP_ST_INCARNATION);
		return;
	}
	if (m.effect && seen_before(a, c, hdr, &m))
		return;
	if (a->quiescing || !rp_client_has_credit(&a->clients, c)) {
		refuse(a, c, hdr, RP_ST_OVERLOADED);
		return;
	}
	job = rp_job_new(m.nranges);
	if (!job) {
		refuse(a, c, hdr, RP_ST_OVERLOADED);
		return;
	}
	job->token = hdr->token;
	job->effect = (enum rp_effect)m.effect;
	job->seq = m.seq;
	job->data = m.data;
	/* Also what is refused: it must not be done after that was said. */
	if (m.effect)
		rp_client_take(&a->clients, c, m.seq, hdr->token);
	if (rp_agent_check(a, &m, job, &work) != RP_ST_OK ||
	    !rp_agent_store(&m, job, &work)) {
		a->stats.refused++;
		answer_at_once(a, c, job);
		return;
	}
	grant(c, &m, job->ranges[0].region, &job->reply);
	a->stats.requests++;
	a->stats.ranges += m.nranges;
	if (!work) {
		/* The bytes were placed before the request was, or with it. */
		a->stats.effects += m.effect != RP_EFFECT_NONE;
		a->stats.replies++;
		answer_at_once(a, c, job);
		return;
	}
	job->since = c->origin.x->ops->now(c->origin.x);
	rp_job_hold(job);
	if (TAILQ_EMPTY(&a->clients.working))
		a->progress_at = UINT64_MAX;
	rp_client_add_job(&a->clients, c, job);
	if (a->progress_at > c->progress_at)
		a->progress_at = c->progress_at;
	job->queue =
		!a->attr.no_worker && rp_job_blocks(job) ? &a->slow : &a->quick;
	TAILQ_INSERT_TAIL(job->queue, job, link);
}

static enum rp_status refusal_status(enum rp_refusal r)
{
	switch (r) {
	case RP_REFUSAL_VOLATILE:
		return RP_ST_VOLATILE;
	case RP_REFUSAL_CLASS:
		return RP_ST_CLASS;
	default:
		return RP_ST_NO_METHOD;
	}
}

static void describe(const struct rp_region *r, enum rp_class required,
		     struct rp_wire_info *m)
{
	struct rp_choice choice = rp_method_choose(
		&r->facts, required, rp_methods_allowed(r->forced));
	const char *why = r->why;

	*m = (struct rp_wire_info){
		/* What it could give, and how it gives what was asked for. */
		.class = r->choice.class,
		.method = choice.method,
		.refusal = choice.refusal,
		.memory = r->facts.memory,
		.placement = r->facts.placement,
		.domain = r->facts.domain,
		.length = r->len,
		.addr = r->addr,
	};
	if (!r->pmem) {
		m->status = RP_ST_VOLATILE;
		m->class = RP_CLASS_NONE;
		m->method = RP_METHOD_REFUSED;
		m->refusal = RP_REFUSAL_VOLATILE;
		why = rp_status_remedy(m->status);
	} else if (choice.method == RP_METHOD_REFUSED) {
		m->status = refusal_status(choice.refusal);
		why = choice.remedy;
	} else if (r->failed) {
		m->status = RP_ST_REGION_FAILED;
		why = rp_status_remedy(m->status);
	}
	if (r->pmem)
		m->granularity = rp_pmem_granularity(r->pmem);
	m->preferred_size = m->preferred_align = m->granularity;
	snprintf(m->why, sizeof(m->why), "%s", why);
}

static void recv_query(struct rp_agent *a, struct rp_client *c, const void *msg,
		       const struct rp_wire_hdr *hdr)
{
	const struct rp_region *r;
	struct rp_wire_info info;
	struct rp_wire_query m;
	enum rp_status st;

	if (rp_wire_get_query(msg, hdr, &m)) {
		a->stats.bad_messages++;
		refuse(a, c, hdr, RP_ST_BAD_MESSAGE);
		return;
	}
	if (hdr->incarnation && hdr->incarnation != a->attr.incarnation) {
		refuse(a, c, hdr, RP_ST_INCARNATION);
		return;
	}
	r = rp_regions_find(&a->regions, m.key, &st);
	if (!r) {
		refuse(a, c, hdr, st);
		return;
	}
	describe(r, m.required, &info);
	send_info(a, c, hdr->token, &info);
}

void rp_agent_recv(struct rp_agent *a, struct rp_xport *x, const void *msg,
		   size_t len)
{
	struct rp_wire_hdr hdr;
	struct rp_client *c;
	int ret = rp_wire_get_hdr(msg, len, &hdr);

	if (ret == -EBADMSG) {
		a->stats.bad_messages++;
		return;
	}
	if (hdr.type == RP_MSG_HELLO) {
		recv_hello(a, x, msg, &hdr);
		return;
	}
	/*
	 * Without a session there is nobody to answer: only a session knows
	 * where its peer is.
	 */
	c = rp_client_find(&a->clients, x, hdr.session);
	if (!c) {
		a->stats.bad_messages++;
		return;
	}
	if (ret == -EPROTONOSUPPORT) {
		if (RP_MSG_TO_TARGET(hdr.type))
			refuse(a, c, &hdr, RP_ST_VERSION);
		return;
	}
	if (hdr.type == RP_MSG_BYE) {
		rp_client_drop(&a->clients, c);
		return;
	}
	if (!rp_client_use(&a->clients, c)) {
		refuse(a, c, &hdr, RP_ST_OVERLOADED);
		return;
	}
	if (hdr.type == RP_MSG_REQUEST)
		recv_request(a, c, msg, &hdr);
	else if (hdr.type == RP_MSG_QUERY)
		recv_query(a, c, msg, &hdr);
	else if (hdr.type == RP_MSG_CONNECT)
		rp_agent_connect(a, c, msg, &hdr);
	else
		a->stats.bad_messages++;
}
