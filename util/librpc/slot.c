// SPDX-License-Identifier: BSD-2-Clause
/* One client's ring at the server: find calls, keep replies, send them. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "librpc/server.h"
#include "util/bytes.h"
#include "util/clock.h"

/* A client that takes no message for so long gets none: it reads its ring. */
#define UNSENT_MS 1000

static unsigned char *ring_of(const struct slot *s)
{
	return s->map + RPC_RING_AT;
}

bool slot_is_written(const struct slot *s)
{
	return rp_get64(s->map + 56) > s->turn ||
	       rp_get64(s->map + RPC_SLOT + 56) > s->turn;
}

/* Write an empty ring, durably, before a client can connect. */
static int format(struct slot *s, uint64_t length)
{
	struct rpc_super super = {
		.ring = (length - RPC_RING_AT) / RPC_ALIGN * RPC_ALIGN,
		.head_n = 1,
	};

	if (getrandom(&super.seed, sizeof(super.seed), 0) != sizeof(super.seed))
		return -EIO;
	rpc_super_encode(&super, s->map);
	if (rp_pmem_flush(s->pm, 0, RPC_SUPER_BYTES))
		return -EIO;
	rp_pmem_drain(s->pm);
	return 0;
}

/* Find the address for messages to the client. */
static void find_client(struct rpmem_rpc_server *srv, struct slot *s)
{
	if (s->addr != FI_ADDR_UNSPEC)
		fi_av_remove(srv->port.f.av, &s->addr, 1, 0);
	s->addr = FI_ADDR_UNSPEC;
	if (s->super.name_len &&
	    rp_fabric_peer(&srv->port.f, s->super.name, &s->addr, NULL))
		s->addr = FI_ADDR_UNSPEC;
}

/* Read the superblock, or write one to an empty pool; then flush the pool. */
static int open_ring(struct slot *s, uint64_t length)
{
	int ret;

	if (length < RPC_RING_AT + RPC_RING_MIN)
		return -EBADMSG;
	ret = rpc_super_find(s->map, length, &s->super);
	if (ret == -ENODATA) {
		/* Do not overwrite bytes of another kind. */
		for (size_t i = 0; i < RPC_SLOT; i++)
			if (s->map[i])
				return -EBADMSG;
		ret = format(s, length);
		if (!ret)
			ret = rpc_super_find(s->map, length, &s->super);
	}
	/* The last server may have left results that are not durable. */
	if (!ret)
		ret = rp_pmem_flush(
			s->pm, 0, s->super.incarnation ? length : RPC_RING_AT);
	if (!ret)
		rp_pmem_drain(s->pm);
	return ret;
}

/* Find the first call; fail if an acknowledged call is damaged. */
static int find_calls(struct slot *s, const char *path)
{
	struct rpc_cursor end;
	struct rpc_entry e;
	uint64_t durable;

	if (rpc_super_is_old(&s->super, ring_of(s)))
		return rpc_error(
			-EBADMSG,
			"'%s': the newest superblock, at byte %u of "
			"the pool, is damaged, and no call of this "
			"file was processed; restore it from a copy, "
			"or move it away to lose its calls",
			path,
			(unsigned int)((s->super.turn + 1) % 2 * RPC_SLOT));
	rpc_head_find(&s->super, ring_of(s), &s->next, &durable);
	end = s->next;
	while (rpc_entry_next(&s->super, ring_of(s), &end, &e))
		rpc_cursor_pass(&end, &e);
	return end.n >= durable
		       ? 0
		       : rpc_error(
				 -EBADMSG,
				 "'%s': an acknowledged call is damaged at "
				 "byte %llu of the pool, and no call of this "
				 "file was processed; restore it from a copy, "
				 "or move it away to lose its calls",
				 path,
				 (unsigned long long)(RPC_RING_AT +
						      end.pos % s->super.ring));
}

int slot_open(struct rpmem_rpc_server *srv, struct slot *s, uint64_t length,
	      const char *path)
{
	int ret = open_ring(s, length);

	if (ret == -EPROTONOSUPPORT)
		return rpc_error(ret,
				 "'%s' was written by another release of "
				 "librpmem_rpc: its format is %u, this "
				 "release has %u; serve it by that release, or "
				 "use another path",
				 path, rpc_super_version(s->map), RPC_VERSION);
	if (ret)
		return rpc_error(ret,
				 "'%s' has no ring of calls, or a damaged one, "
				 "or cannot be flushed (%s); use another path, "
				 "or restore it from a copy",
				 path, strerror(-ret));
	ret = find_calls(s, path);
	if (ret)
		return ret;
	s->turn = s->super.turn;
	s->maybe_begun = RPMEM_RPC_AGAIN;
	s->addr = FI_ADDR_UNSPEC;
	find_client(srv, s);
	memcpy(srv->page.v[s->index].id, s->super.id, RPC_ID);
	srv->page.v[s->index].kind = s->super.kind;
	/*
	 * Pass the processed calls before a client reconnects, because the
	 * client may know their replies, and reuse their space.
	 */
	slot_scan(srv, s);
	return 0;
}

bool slot_attach(struct rpmem_rpc_server *srv, struct slot *s)
{
	const uint64_t seed = s->super.seed,
		       length = RPC_RING_AT + s->super.ring;
	unsigned char copy[2 * RPC_SLOT];
	struct rpc_super super;
	bool other;

	memcpy(copy, s->map, sizeof(copy));
	if (rpc_super_find(copy, length, &super) || super.seed != seed ||
	    super.ring != s->super.ring || super.turn == s->turn)
		return false;
	s->turn = super.turn;
	other = super.name_len != s->super.name_len ||
		memcmp(super.name, s->super.name, RPC_NAME) != 0;
	s->super = super;
	if (other)
		find_client(srv, s);
	memcpy(srv->page.v[s->index].id, super.id, RPC_ID);
	srv->page.v[s->index].kind = super.kind;
	server_publish(srv);
	return true;
}

/* Copy the call of an entry; NULL: it is incomplete, or no memory. */
static struct call *call_new(struct slot *s, const struct rpc_entry *e)
{
	const unsigned char *from = ring_of(s) + e->pos % s->super.ring;
	struct call *c = malloc(sizeof(*c) + e->len);

	if (!c)
		return NULL;
	/* The client can change its ring: copy first, then verify. */
	memcpy(c->bytes, from + RPC_HEADER, e->len);
	if (!rpc_entry_intact(s->super.seed, e, c->bytes)) {
		free(c);
		return NULL;
	}
	c->slot = s;
	c->entry = *e;
	c->call = (struct rpmem_rpc_call){
		.buf = c->bytes,
		.len = e->len,
		.reply_max = e->room,
		.sequence = rpc_sequence(e->incarnation, e->n),
		.again = s->maybe_begun > 0,
	};
	memcpy(c->call.client, s->super.id, RPC_ID);
	return c;
}

/* Mark the reply to a call as durable. */
static void mark_durable(const struct rpmem_rpc_server *srv,
			 const struct slot *s, const struct rpc_entry *e)
{
	uint64_t *at =
		(uint64_t *)(void *)(ring_of(s) + e->pos % s->super.ring +
				     rpc_entry_result(e->len) + RPC_MARK_AT);

	__atomic_store_n(at,
			 htole64(rpc_mark(srv->page.token,
					  rpc_sequence(e->incarnation, e->n))),
			 __ATOMIC_RELEASE);
}

/* Find the next entry. Without one, read a superblock of a new process. */
static bool find_next(struct rpmem_rpc_server *srv, struct slot *s,
		      struct rpc_entry *e)
{
	do {
		if (rpc_entry_find(&s->super, ring_of(s), &s->next, e))
			return true;
	} while (slot_is_written(s) && slot_attach(srv, s));
	return false;
}

void slot_scan(struct rpmem_rpc_server *srv, struct slot *s)
{
	struct rpc_result r;
	struct rpc_entry e;
	struct call *c;

	while (!s->out && s->nreplies < RPMEM_RPC_AGAIN && !srv->failed &&
	       find_next(srv, s, &e)) {
		const unsigned char *result = ring_of(s) +
					      e.pos % s->super.ring +
					      rpc_entry_result(e.len);

		if (rpc_result_decode(s->super.seed, result, e.room,
				      rpc_sequence(e.incarnation, e.n), &r)) {
			mark_durable(srv, s, &e);
			rpc_cursor_pass(&s->next, &e);
			continue;
		}
		c = call_new(s, &e);
		if (!c)
			return;
		/*
		 * A new process of the client may have written a superblock,
		 * which can make this entry invalid: search again. If it is not
		 * complete yet, the new process has sent nothing.
		 */
		if (slot_is_written(s) && slot_attach(srv, s)) {
			free(c);
			continue;
		}
		rpc_cursor_pass(&s->next, &e);
		s->out = true;
		if (s->maybe_begun)
			s->maybe_begun--;
		TAILQ_INSERT_TAIL(&srv->calls, c, link);
		pthread_cond_signal(&srv->ready);
	}
}

static void drop_first(struct slot *s)
{
	s->nreplies--;
	s->flushed--;
	memmove(s->replies, s->replies + 1, s->nreplies * sizeof(*s->replies));
}

bool slot_send(struct rpmem_rpc_server *srv, struct slot *s)
{
	int ret;

	while (s->flushed) {
		const struct reply *r = &s->replies[0];
		const struct rpc_entry *e = &r->entry;
		const struct rpc_msg m = {
			.type = RPC_MSG_REPLY,
			.slot = s->index,
			.token = s->super.token,
			.result = r->result,
			.bytes = ring_of(s) + e->pos % s->super.ring +
				 rpc_entry_result(e->len) + RPC_RESULT,
		};

		ret = s->attached && s->addr != FI_ADDR_UNSPEC
			      ? rpc_port_send(&srv->port, s->addr, &m)
			      : 0;
		if (ret == -EAGAIN) {
			if (!s->unsent_since)
				s->unsent_since = rp_now_ms();
			if (rp_now_ms() < s->unsent_since + UNSENT_MS)
				return true;
		}
		if (ret)
			s->attached = false;
		s->unsent_since = 0;
		drop_first(s);
	}
	return false;
}

/*
 * Flush the calls with their replies, because a call can be processed before
 * its write is durable. Entries after a wrap of the ring are a second range.
 */
static int flush_entries(struct slot *s, const struct rpc_entry *first,
			 const struct rpc_entry *last)
{
	const uint64_t ring = s->super.ring;
	uint64_t at = first->pos % ring, len = rpc_entry_end(last) - first->pos;
	uint64_t part;
	int ret;

	if (len > ring) { /* the client is hostile: flush the ring */
		at = 0;
		len = ring;
	}
	part = len < ring - at ? len : ring - at;
	ret = rp_pmem_flush(s->pm, RPC_RING_AT + at, part);
	if (!ret && part < len)
		ret = rp_pmem_flush(s->pm, RPC_RING_AT, len - part);
	if (!ret)
		rp_pmem_drain(s->pm);
	return ret;
}

void slot_flush(struct rpmem_rpc_server *srv, struct slot *s)
{
	while (!srv->failed && s->nreplies > s->flushed) {
		const unsigned int n = s->nreplies - s->flushed;
		const struct rpc_entry first = s->replies[s->flushed].entry;
		const struct rpc_entry last = s->replies[s->nreplies - 1].entry;
		int ret;

		pthread_mutex_unlock(&srv->lock);
		ret = flush_entries(s, &first, &last);
		pthread_mutex_lock(&srv->lock);
		if (ret) {
			server_fail(srv, -EIO, strerror(-ret));
			break;
		}
		/* The oldest may have been sent during the flush. */
		for (unsigned int i = 0; i < n; i++)
			mark_durable(srv, s, &s->replies[s->flushed++].entry);
		slot_send(srv, s);
		slot_scan(srv, s);
	}
	s->flushing = false;
}

/*
 * Store the reply after its call. Needs no lock: the slot has no other call in
 * progress.
 */
static struct rpc_result store_reply(const struct call *c, const void *buf,
				     size_t len)
{
	const struct slot *s = c->slot;
	unsigned char *to = ring_of(s) + c->entry.pos % s->super.ring +
			    rpc_entry_result(c->entry.len);
	unsigned char header[RPC_RESULT];

	rpc_result_encode(s->super.seed, c->call.sequence, (uint32_t)len, buf,
			  header);
	if (len)
		memcpy(to + RPC_RESULT, buf, len);
	memcpy(to, header, RPC_RESULT);
	return (struct rpc_result){
		.hash = rp_get64(header),
		.sequence = c->call.sequence,
		.len = (uint32_t)len,
	};
}

/* Flush the newest reply of a slot, here or in a thread that may block. */
static void begin_flush(struct rpmem_rpc_server *srv, struct slot *s)
{
	if (s->flushing) /* the flushing thread will see this reply, too */
		return;
	s->flushing = true;
	if (!rp_pmem_blocks(s->pm)) {
		slot_flush(srv, s);
		return;
	}
	TAILQ_INSERT_TAIL(&srv->dirty_slots, s, link);
	pthread_cond_signal(&srv->dirty);
}

int rpmem_rpc_reply(struct rpmem_rpc_server *srv, struct rpmem_rpc_call *call,
		    const void *buf, size_t len)
{
	struct call *c = (struct call *)call;
	struct rpc_result result;
	struct slot *s;
	int ret;

	if (!srv || !call || (!buf && len))
		return rpc_error(-EINVAL, "rpmem_rpc_reply() needs a server, "
					  "its call, and a reply");
	s = c->slot;
	if (len > call->reply_max)
		return rpc_error(
			-EMSGSIZE,
			"the client has room for a reply of %zu bytes, "
			"not %zu; reply with less",
			call->reply_max, len);
	result = store_reply(c, buf, len);
	pthread_mutex_lock(&srv->lock);
	s->replies[s->nreplies++] = (struct reply){c->entry, result};
	s->out = false;
	slot_scan(srv, s);
	begin_flush(srv, s);
	ret = srv->failed;
	if (ret)
		rpc_error(ret, "%s", srv->failure);
	pthread_mutex_unlock(&srv->lock);
	free(c);
	return ret;
}
