// SPDX-License-Identifier: BSD-2-Clause
/* Find a ring at the server, and an earlier process's calls in the ring. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/wire.h"
#include "util/text.h"
#include "librpc/client.h"

#define BUFFERS	   64u /* message buffers */
#define TORN_TRIES 200 /* reads of a page that the server is writing */
#define BUSY_TRIES 50  /* attempts while requests of an earlier process end */

static int read_page(struct rpmem_pool *pool, struct rpc_page *page)
{
	unsigned char bytes[RPC_PAGE_BYTES];
	int ret;

	for (int i = 0; i < TORN_TRIES; i++) {
		ret = rpmem_pool_read(pool, bytes, sizeof(bytes), RPC_PAGE_AT);
		if (ret)
			return rpc_error(ret, "%s", rpmem_pool_error());
		if (rpc_page_decode(bytes, page))
			return 0;
		poll(NULL, 0, 1);
	}
	return rpc_error(-EBADMSG, "this pool is not one of a server of calls; "
				   "start it by rpmem_rpc_listen()");
}

static int open_slot(struct rpmem_pool **pool, const char *where,
		     const struct rpmem_rpc_attr *a, unsigned int slot,
		     int exclusive)
{
	const struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.secret_file = a->secret_file,
		.required = a->required,
		.timeout = a->timeout,
		.exclusive = exclusive,
	};
	char *name;
	int ret;

	if (asprintf(&name, "%s.%u", where, slot) < 0)
		return rpc_error(-ENOMEM, "out of memory");
	ret = rpmem_pool_open(pool, name, &attr);
	for (int i = 0;
	     ret == -EBUSY && exclusive == RPMEM_POOL_TAKE && i < BUSY_TRIES;
	     i++) {
		poll(NULL, 0, 10);
		ret = rpmem_pool_open(pool, name, &attr);
	}
	free(name);
	return ret ? rpc_error(ret, "%s", rpmem_pool_error()) : 0;
}

int rpc_attach(struct rpmem_rpc *c)
{
	struct rpc_page page;
	fi_addr_t addr;
	int ret = read_page(c->pool, &page);

	if (ret)
		return ret;
	ret = rp_fabric_peer(&c->port.f, page.name, &addr, rpc_error_buf());
	if (ret)
		return ret;
	c->server = addr;
	c->server_token = page.token;
	c->attach = true;
	return 0;
}

/* Take over one entry of an earlier process from the ring. */
static int adopt(struct rpmem_rpc *c, const unsigned char *ring,
		 const struct rpc_entry *e, bool keep)
{
	const unsigned char *result =
		ring + e->pos % c->super.ring + rpc_entry_result(e->len);
	struct sent *s = calloc(1, sizeof(*s));
	struct rpc_result r;

	if (!s)
		return rpc_error(-ENOMEM, "out of memory");
	s->entry = *e;
	s->written = true;
	s->keep = keep;
	c->calls[e->n & c->mask] = s;
	rpc_cursor_pass(&c->tail, e);
	if (rpc_result_decode(c->super.seed, result, e->room,
			      rpc_sequence(e->incarnation, e->n), &r) &&
	    r.mark == rpc_mark(c->server_token, r.sequence))
		rpc_answer(c, s, result + RPC_RESULT, r.len);
	return 0;
}

/* Find the calls between the head and the tail. */
static int scan(struct rpmem_rpc *c, const unsigned char *ring, bool keep)
{
	struct rpc_entry e;
	uint64_t durable;
	int ret = 0;

	if (rpc_super_is_old(&c->super, ring))
		return rpc_error(
			-EBADMSG,
			"the newest superblock of slot %u, at byte %u "
			"of its pool, is damaged; restore the pool "
			"from a copy",
			c->slot,
			(unsigned int)((c->super.turn + 1) % 2 * RPC_SLOT));
	rpc_head_find(&c->super, ring, &c->head, &durable);
	c->tail = c->head;
	c->open = c->durable = c->earlier = c->head.n;
	while (!ret && rpc_entry_next(&c->super, ring, &c->tail, &e) &&
	       e.n - c->head.n <= c->mask)
		ret = adopt(c, ring, &e, keep);
	if (!ret && c->tail.n < durable)
		ret = rpc_error(
			-EBADMSG,
			"an acknowledged call of slot %u is damaged at "
			"byte %llu of its pool; restore the pool from "
			"a copy",
			c->slot,
			(unsigned long long)(RPC_RING_AT +
					     c->tail.pos % c->super.ring));
	c->earlier_end = c->tail.n;
	rpc_advance(c);
	return ret;
}

static int report_super(const struct rpmem_rpc *c, int found,
			const unsigned char *bytes)
{
	if (found == -EPROTONOSUPPORT)
		return rpc_error(found,
				 "the ring of slot %u was written by another "
				 "release of librpmem_rpc: its format is %u, "
				 "this release has %u; install the same "
				 "release at client and server",
				 c->slot, rpc_super_version(bytes),
				 RPC_VERSION);
	return rpc_error(-EBADMSG,
			 "the ring of slot %u is damaged; "
			 "restore its pool from a copy",
			 c->slot);
}

/* Whether the ring belongs to the id, or was given up by it. */
static bool has_id(const struct rpmem_rpc *c, const unsigned char *id)
{
	return id && c->super.kind != RPC_FREE &&
	       !memcmp(id, c->super.id, RPC_ID);
}

static int read_ring(struct rpmem_rpc *c, const struct rpmem_rpc_attr *a)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	unsigned char *bytes = NULL;
	int found = 0;
	int ret = rpmem_pool_query(c->pool, &info);

	if (!ret) {
		bytes = calloc(1, info.length);
		if (!bytes)
			return rpc_error(-ENOMEM, "out of memory");
		ret = rpmem_pool_read(c->pool, bytes, RPC_RING_AT, 0);
	}
	if (!ret)
		found = rpc_super_find(bytes, info.length, &c->super);
	if (!ret && !found && (c->super.incarnation || c->super.alone))
		ret = rpmem_pool_read(c->pool, bytes + RPC_RING_AT,
				      info.length - RPC_RING_AT, RPC_RING_AT);
	if (ret) {
		free(bytes);
		return rpc_error(ret, "reading the ring: %s",
				 rpmem_pool_error());
	}
	if (found) {
		ret = report_super(c, found, bytes);
		free(bytes);
		return ret;
	}
	c->doorbell = !rpc_is_by_agent(info.method);
	c->mask = 1;
	while (c->mask < c->super.ring / rpc_entry_size(0, 0))
		c->mask *= 2;
	c->calls = calloc(c->mask--, sizeof(struct sent *));
	/* Replies to another client's calls are not kept: nobody takes them. */
	ret = c->calls ? scan(c, bytes + RPC_RING_AT,
			      a->earlier && has_id(c, a->id))
		       : rpc_error(-ENOMEM, "out of memory");
	free(bytes);
	return ret;
}

static void drop_calls(struct rpmem_rpc *c)
{
	struct sent *s;

	while ((s = TAILQ_FIRST(&c->done))) {
		TAILQ_REMOVE(&c->done, s, link);
		s->user = NULL;
		rpc_release(s);
	}
	for (uint64_t i = 0; c->calls && i <= c->mask; i++) {
		s = c->calls[i];
		if (s)
			free(s->kept);
		free(s);
	}
	free(c->calls);
	c->calls = NULL;
}

/* Whether the opened slot may be used by this client. */
static bool is_ours(const struct rpmem_rpc *c, const unsigned char *id)
{
	/* A returning id gets its calls back, even from a ring given up. */
	if (has_id(c, id))
		return true;
	return c->super.kind != RPC_NAMED && c->head.n == c->tail.n;
}

/* Open a slot. Returns 1 if it belongs to another client. */
static int try_slot(struct rpmem_rpc *c, const char *where,
		    const struct rpmem_rpc_attr *a, unsigned int slot, int how)
{
	int ret;

	c->slot = slot;
	ret = open_slot(&c->pool, where, a, slot, how);
	if (ret)
		return ret == -EBUSY ? 1 : ret;
	ret = read_ring(c, a);
	if (!ret && is_ours(c, a->id))
		return 0;
	drop_calls(c);
	rpmem_pool_close(c->pool);
	c->pool = NULL;
	return ret ? ret : 1;
}

/* Find the slot of the id, or else a free slot. */
static int find_slot(struct rpmem_rpc *c, const char *where,
		     const struct rpmem_rpc_attr *a)
{
	struct rpmem_pool *first;
	struct rpc_page page;
	unsigned int start;
	int ret = open_slot(&first, where, a, 0, RPMEM_POOL_OBSERVE);

	if (ret)
		return ret;
	ret = read_page(first, &page);
	rpmem_pool_close(first);
	if (ret)
		return ret;
	c->server_token = page.token;
	/* A ring of RPC_RANDOM may be the rest of a connect that ended. */
	for (uint32_t kind = RPC_NAMED; a->id && kind > RPC_FREE; kind--)
		for (unsigned int i = 0; i < page.slots; i++)
			if (page.v[i].kind == kind &&
			    !memcmp(page.v[i].id, a->id, RPC_ID))
				return try_slot(c, where, a, i,
						RPMEM_POOL_TAKE);
	/* Start at different slots, so that clients do not collide. */
	memcpy(&start, c->super.id, sizeof(start));
	for (uint32_t kind = RPC_FREE; kind < RPC_NAMED; kind++)
		for (unsigned int i = 0; i < page.slots; i++) {
			const unsigned int at =
				(start % page.slots + i) % page.slots;

			if (page.v[at].kind != kind)
				continue;
			ret = try_slot(c, where, a, at, RPMEM_POOL_EXCLUSIVE);
			/* Skip a damaged ring: other slots are usable. */
			if (ret <= 0 && ret != -EBADMSG)
				return ret;
		}
	return rpc_error(-EBUSY,
			 "all %u places of '%s' are in use, or damaged; close "
			 "a client, or "
			 "let the server have more",
			 page.slots, where);
}

static int open_port(struct rpmem_rpc *c)
{
	struct rp_fabric_attr attr = {0};
	struct rpc_page page;
	int ret = read_page(c->pool, &page);

	if (ret)
		return ret;
	attr.base = page.base;
	attr.dest = page.name;
	attr.dest_len = page.name_len;
	ret = rpc_port_open(&c->port, &attr, BUFFERS, rpc_error_buf());
	return ret ? ret : rpc_attach(c);
}

static int parse_attr(const struct rpmem_rpc_attr *attr,
		      struct rpmem_rpc_attr *a)
{
	static const unsigned char zero[RPC_ID];

	*a = (struct rpmem_rpc_attr){.size = sizeof(*a)};
	if (attr && attr->size != sizeof(*a))
		return rpc_error(-EINVAL,
				 "attr->size is %zu; set it to sizeof(struct "
				 "rpmem_rpc_attr)",
				 attr->size);
	if (attr)
		*a = *attr;
	if (a->threshold > 100)
		return rpc_error(-EINVAL,
				 "attr->threshold is %u; give 0 to 100 percent",
				 a->threshold);
	if (a->id && !memcmp(a->id, zero, RPC_ID))
		return rpc_error(-EINVAL, "attr->id is all zeros; give another "
					  "one, or NULL");
	if (!a->threshold)
		a->threshold = 100;
	return 0;
}

/* The provider has read this parameter and limited it in the same way. */
static uint64_t inline_max(void)
{
	const char *value = getenv("FI_OFI_RPMEM_INLINE");
	const uint64_t most =
		value ? strtoull(value, NULL, 0) : RP_WIRE_MAX_STORE;

	return most < RP_WIRE_MAX_STORE ? most : RP_WIRE_MAX_STORE;
}

/* Write this process's superblock to the slot, by which the server knows it. */
static int take_slot(struct rpmem_rpc *c, const struct rpmem_rpc_attr *a,
		     const unsigned char *id)
{
	struct rpc_super *s = &c->super;

	/* A ring that did not have the id is RPC_RANDOM until claim_id(). */
	if (!a->id || memcmp(s->id, id, RPC_ID))
		s->kind = RPC_RANDOM;
	memcpy(s->id, id, RPC_ID);
	s->incarnation++;
	s->first_n = c->tail.n;
	s->name_len = (uint32_t)c->port.name_len;
	memcpy(s->name, c->port.name, RPC_NAME);
	if (getrandom(&s->token, sizeof(s->token), 0) != sizeof(s->token))
		return rpc_error(-EIO, "no random bytes");
	c->limit = s->ring / 100 * a->threshold;
	c->inline_max = inline_max();
	return rpc_super_write(c);
}

static int write_super(struct rpmem_rpc *c)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	ret = rpc_super_write(c);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

static void give_up_ring(struct rpmem_rpc *c)
{
	struct rpc_super *s = &c->super;

	/* Outstanding calls: RPC_RANDOM, reusable after the replies. */
	s->kind = c->head.n == c->tail.n ? RPC_FREE : RPC_RANDOM;
	if (s->kind == RPC_FREE)
		memset(s->id, 0, RPC_ID);
	write_super(c);
}

static bool page_has_id(const struct rpc_page *page, unsigned int slot,
			const unsigned char *id)
{
	return page->v[slot].kind != RPC_FREE &&
	       !memcmp(page->v[slot].id, id, RPC_ID);
}

/* Wait until the server's page shows this client's id at its slot. */
static int await_page(struct rpmem_rpc *c, const struct rpmem_rpc_attr *a,
		      struct rpc_page *page)
{
	uint64_t tries = (a->timeout ? a->timeout : 60) * 1000ull;
	int ret;

	do {
		pthread_mutex_lock(&c->lock);
		rpc_progress(c, 1);
		ret = c->failed ? rpc_error(c->failed, "%s", c->failure) : 0;
		pthread_mutex_unlock(&c->lock);
		if (!ret)
			ret = read_page(c->pool, page);
		if (ret || page_has_id(page, c->slot, a->id))
			return ret;
	} while (--tries);
	return rpc_error(-ETIMEDOUT, "the server does not read the ring of "
				     "this client; check that its process "
				     "runs, and connect again");
}

/*
 * Reserve the ring for the id. Two processes that connect with a new id at the
 * same time take two rings, because find_slot() reads a page without either.
 * The server adds rings to its page one by one: the process whose ring comes
 * second finds both rings, and gives its own up.
 */
static int claim_id(struct rpmem_rpc *c, const struct rpmem_rpc_attr *a)
{
	struct rpc_page page;
	int ret = await_page(c, a, &page);

	if (ret)
		return ret;
	for (unsigned int i = 0; i < page.slots; i++)
		if (i != c->slot && page_has_id(&page, i, a->id)) {
			give_up_ring(c);
			return rpc_error(-EBUSY, "another process connects "
						 "with this id; connect again");
		}
	/* A later call shows by its incarnation if this superblock is lost. */
	c->super.incarnation++;
	c->super.kind = RPC_NAMED;
	c->attach = true;
	return write_super(c);
}

int rpmem_rpc_connect(struct rpmem_rpc **out, const char *where,
		      const struct rpmem_rpc_attr *attr)
{
	unsigned char id[RPC_ID];
	struct rpmem_rpc_attr a;
	struct rpmem_rpc *c;
	pthread_condattr_t monotonic;
	int ret;

	if (!out || !where)
		return rpc_error(-EINVAL, "rpmem_rpc_connect() needs a place "
					  "for the client and HOST:PORT:NAME");
	if (rp_names_group(where))
		return rpc_error(-EINVAL,
				 "'%s' is a group of pools, and a server of "
				 "calls is one machine; give HOST:PORT:NAME",
				 where);
	ret = parse_attr(attr, &a);
	if (ret)
		return ret;
	c = calloc(1, sizeof(*c));
	if (!c)
		return rpc_error(-ENOMEM, "out of memory");
	TAILQ_INIT(&c->done);
	TAILQ_INIT(&c->acks);
	TAILQ_INIT(&c->waiters);
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->progressed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (a.id)
		memcpy(id, a.id, RPC_ID);
	else if (getrandom(id, RPC_ID, 0) != RPC_ID)
		ret = rpc_error(-EIO, "no random bytes");
	memcpy(c->super.id, id, RPC_ID);
	if (!ret)
		ret = find_slot(c, where, &a);
	if (ret > 0)
		ret = rpc_error(-EBUSY, "another process connects with this "
					"id; connect again");
	if (!ret)
		ret = open_port(c);
	if (!ret)
		ret = take_slot(c, &a, id);
	if (!ret && a.id && c->super.kind != RPC_NAMED)
		ret = claim_id(c, &a);
	if (ret) {
		c->failed = ret;
		rpmem_rpc_close(c, 0);
		return ret;
	}
	*out = c;
	return 0;
}

void rpmem_rpc_close(struct rpmem_rpc *c, int give_up)
{
	if (!c)
		return;
	if (!c->failed && (give_up || c->super.kind == RPC_RANDOM))
		give_up_ring(c);
	rpmem_pool_close(c->pool);
	if (c->port.f.ep)
		rpc_port_close(&c->port);
	drop_calls(c);
	free(c->peeked);
	pthread_cond_destroy(&c->progressed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
