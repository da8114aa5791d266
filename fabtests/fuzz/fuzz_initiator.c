// SPDX-License-Identifier: BSD-2-Clause
/* An initiator whose targets answer with anything at all. */
#include <errno.h>

#include "core/commit.h"
#include "core/link.h"
#include "core/peer.h"
#include "core/wire.h"
#include "fuzz.h"

#define PEERS	 2
#define COMMITS	 64 /* in one run */
#define AT_ONCE	 4
#define RANGES	 6
#define WRITES	 8
#define LINKED	 8
#define MS	 1000000ull
#define MAX_SENT 16

/* Commit i asks for ranges of keys that say i and which. */
struct commit {
	unsigned int peer;
	unsigned int
		life; /* of that address: counts how often it was forgotten */
	unsigned int n;
	unsigned int acked; /* bits: ranges that an OK was for */
	unsigned int told;
	uint32_t posted; /* step */
	enum rp_class required;
};

struct write {
	struct rp_write w;
	unsigned int peer, life;
	uint32_t begun; /* step; 0: not under way */
};

/* A write over a connection of our own, with its request. */
struct linked {
	struct rp_linked op;
	struct commit *commit; /* NULL: free */
	unsigned int peer;
	uint64_t token;
};

/* That one, of each address. */
struct conn {
	struct rp_peer *peer; /* NULL: none */
	int up;
};

static struct rp_initiator *in;
static struct rp_xport x;
static uint64_t now, randoms;
static uint32_t steps;
static int send_ret, posting;
static struct commit commits[COMMITS];
static unsigned int ncommits, nqueries, queries_told;
static struct write writes[WRITES];
static struct linked linked[LINKED];
static struct conn conns[PEERS];
static enum rp_method method; /* of the regions, as their keys say */
static bool native;	      /* this end's device FLUSHes */
/* The last messages that it sent: what an answer can be made to fit. */
static struct {
	uint64_t peer;
	struct rp_wire_hdr hdr;
	uint64_t cookie; /* that the answer must carry */
	struct rp_wire_request req;
	struct rp_wire_connect connect;
} sent[MAX_SENT];
static unsigned int nsent;
static unsigned int lives[PEERS];
static uint64_t hello_cookie[PEERS]; /* of the last HELLO */

static uint64_t key_of(unsigned int commit, unsigned int range)
{
	const struct rp_key k = {
		.base = range,
		.random = commit,
		.persistent = true,
		.class = RP_CLASS_POWER,
		.method = method,
	};

	return rp_key_make(&k);
}

static uint64_t x_now(struct rp_xport *xp)
{
	(void)xp;
	return now;
}

static int x_send(struct rp_xport *xp, uint64_t peer, const void *msg,
		  size_t len)
{
	struct rp_wire_hello hello;
	struct rp_wire_query q;
	unsigned int at = nsent % MAX_SENT;

	(void)xp;
	MUST(peer < PEERS);
	if (send_ret)
		return send_ret;
	nsent++;
	sent[at].peer = peer;
	sent[at].req.nranges = 0;
	MUST(!rp_wire_get_hdr(msg, len, &sent[at].hdr));
	switch (sent[at].hdr.type) {
	case RP_MSG_HELLO:
		MUST(!rp_wire_get_hello(msg, &sent[at].hdr, &hello));
		hello_cookie[peer] = hello.cookie;
		break;
	case RP_MSG_REQUEST:
		MUST(!rp_wire_get_request(msg, &sent[at].hdr, &sent[at].req));
		break;
	case RP_MSG_QUERY:
		MUST(!rp_wire_get_query(msg, &sent[at].hdr, &q));
		break;
	case RP_MSG_CONNECT:
		MUST(!rp_wire_get_connect(msg, &sent[at].hdr,
					  &sent[at].connect));
		break;
	default:
		MUST(sent[at].hdr.type == RP_MSG_BYE);
	}
	sent[at].cookie = hello_cookie[peer];
	return 0;
}

static int x_name(struct rp_xport *xp, void *addr, size_t *len)
{
	(void)xp;
	memcpy(addr, "here", 4);
	*len = 4;
	return 0;
}

static int x_random(struct rp_xport *xp, void *buf, size_t len)
{
	uint64_t v = ++randoms * 0x9e3779b97f4a7c15ull;

	(void)xp;
	MUST(len == sizeof(v));
	memcpy(buf, &v, len);
	return 0;
}

static void x_kick(struct rp_xport *xp)
{
	(void)xp;
}

/* One for each peer at a time; what is not there is not ended. */
static int x_dial(struct rp_xport *xp, struct rp_peer *p, const void *addr,
		  size_t len, uint64_t secret, void **out)
{
	(void)xp;
	MUST(addr && len && len <= RP_WIRE_MAX_ADDR && secret);
	for (unsigned int i = 0; i < PEERS; i++)
		MUST(conns[i].peer != p);
	if (send_ret)
		return send_ret;
	for (unsigned int i = 0; i < PEERS; i++)
		if (rp_peer_get(in, i) == p) {
			conns[i] = (struct conn){.peer = p};
			*out = &conns[i];
			return 0;
		}
	MUST(!"a peer that is nobody's");
	return -EINVAL;
}

static void x_hang_up(struct rp_xport *xp, void *c)
{
	struct conn *conn = c;

	(void)xp;
	MUST(conn->peer);
	conn->peer = NULL;
}

static const struct rp_xport_ops ops = {
	.dial = x_dial,
	.hang_up = x_hang_up,
	.now = x_now,
	.send = x_send,
	.name = x_name,
	.random = x_random,
	.kick = x_kick,
};

/* Once, not from inside the post; and OK only when that was said of it all. */
static void done(void *arg, const struct rp_outcome *out)
{
	struct commit *c = arg;

	MUST(!c->told++ && !posting);
	for (unsigned int i = 0; i < LINKED; i++)
		if (linked[i].commit == c)
			linked[i].commit = NULL;
	MUST(out->status < RP_ST_MAX || out->status != RP_ST_OK);
	MUST(rp_status_name(out->status) && rp_status_remedy(out->status));
	if (out->status != RP_ST_OK)
		return;
	MUST(c->acked == (1u << c->n) - 1);
	MUST(out->class >= c->required);
	for (unsigned int i = 0; i < WRITES; i++)
		MUST(!writes[i].begun || writes[i].peer != c->peer ||
		     writes[i].life != c->life || writes[i].begun > c->posted);
}

static void query_done(void *arg, enum rp_status st,
		       const struct rp_wire_info *info)
{
	(void)arg;
	MUST(++queries_told <= nqueries);
	MUST(st != RP_ST_OK || info);
}

static void post(struct fuzz_in *f)
{
	struct rp_wire_range ranges[RANGES];
	uint8_t v = fuzz_u8(f);
	struct commit *c = &commits[ncommits];
	struct rp_peer *p = rp_peer_get(in, v & 1);
	struct rp_commit_attr attr = {
		.ranges = ranges,
		.nranges = 1 + (v >> 1) % RANGES,
		.level = RP_LEVEL_DURABLE,
		.required = (v >> 4) % 3,
		.done = done,
		.arg = c,
	};

	if (ncommits == COMMITS)
		return;
	MUST(p);
	*c = (struct commit){
		.peer = v & 1,
		.life = lives[v & 1],
		.n = attr.nranges,
		.posted = steps,
		.required = attr.required,
	};
	for (unsigned int i = 0; i < c->n; i++)
		ranges[i] = (struct rp_wire_range){key_of(ncommits, i), 64, 64};
	posting = 1;
	if (!rp_commit_post(p, &attr))
		ncommits++;
	posting = 0;
}

static void query(struct fuzz_in *f)
{
	struct rp_peer *p = rp_peer_get(in, fuzz_u8(f) & 1);

	MUST(p);
	/* May be told from inside. */
	nqueries++;
	if (rp_query_post(p, key_of(0, 0), RP_CLASS_POWER, query_done, NULL))
		nqueries--;
}

static void write_end(struct write *w, int err)
{
	w->begun = 0;
	rp_write_done(&w->w, err);
}

/* Begin one, or end it well or badly. */
static void write_step(struct fuzz_in *f)
{
	uint8_t v = fuzz_u8(f);
	struct write *w = &writes[v % WRITES];
	struct rp_peer *p;

	if (w->begun) {
		write_end(w, v & 0x80 ? -EIO : 0);
		return;
	}
	w->peer = v >> 6 & 1;
	p = rp_peer_get(in, w->peer);
	MUST(p);
	w->life = lives[w->peer];
	w->begun = steps;
	rp_write_begin(p, &w->w, key_of(ncommits % COMMITS, v >> 3 & 1), v, 64);
}

static void link_post(unsigned int i, uint8_t v)
{
	static const char bytes[64];
	struct linked *l = &linked[v % LINKED];
	struct commit *c = &commits[ncommits];
	const struct rp_wire_range g = {key_of(ncommits, 0), 64, 64};
	struct rp_peer *p = rp_peer_get(in, i);
	const struct rp_commit_attr attr = {
		.ranges = &g,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = (v >> 3) % 3,
		.done = done,
		.arg = c,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_link_way way;
	struct rp_wire_hdr hdr;
	struct rp_commit *rc;
	int len;

	if (l->commit || ncommits == COMMITS ||
	    !rp_link_may(p, g.key, g.addr, g.len, attr.required, &way))
		return;
	MUST(way.conn == &conns[i] && conns[i].peer == p && conns[i].up);
	MUST(!way.flush || (native && way.fence_len == g.len && !way.asks));
	if (!way.asks || rp_commit_reserve(p, &attr, &rc))
		return;
	*c = (struct commit){
		.peer = i,
		.life = lives[i],
		.n = 1,
		.posted = steps,
		.required = attr.required,
	};
	ncommits++;
	len = rp_link_request(rc, &way, way.stores ? bytes : NULL, buf,
			      sizeof(buf));
	MUST(len > 0 && !rp_wire_get_hdr(buf, (size_t)len, &hdr));
	l->commit = c;
	l->peer = i;
	l->token = hdr.token;
	posting = 1;
	rp_link_posted(rc, &way, &l->op);
	posting = 0;
}

/* Over the connection: an answer, to one of those or to nobody. */
static void link_answer(struct fuzz_in *f, unsigned int i, uint8_t v)
{
	struct linked *l = &linked[v % LINKED];
	uint8_t how = fuzz_u8(f), st = fuzz_u8(f);
	struct rp_wire_hdr hdr = {
		.token = l->token + (how >> 7),
		.session = hello_cookie[i],
		.incarnation = how >> 5 & 3,
	};
	struct rp_wire_reply reply = {
		.status = st,
		.level = st ? 0 : 1 + (how & 1),
		.class = st ? 0 : (how >> 1 & 3) % 3,
		.method = st ? 0 : RP_METHOD_AGENT_CLWB,
		.credits = 1,
	};
	uint8_t buf[RP_WIRE_MAX_MSG], *exact;
	struct rp_linked *op;
	int len = rp_wire_put_reply(buf, sizeof(buf), &hdr, &reply);

	if (!conns[i].peer || !conns[i].up || len <= 0)
		return;
	if (v & 0x40)
		buf[fuzz_u8(f) % (unsigned int)len] ^= fuzz_u8(f);
	if (v & 0x80)
		len = fuzz_u8(f) % len;
	/* As it came, not as it was meant. */
	if (!rp_wire_get_hdr(buf, (size_t)len, &hdr) &&
	    hdr.type == RP_MSG_REPLY && !rp_wire_get_reply(buf, &hdr, &reply) &&
	    !reply.status && reply.level == RP_LEVEL_DURABLE)
		for (unsigned int k = 0; k < LINKED; k++)
			if (linked[k].commit && linked[k].peer == i &&
			    linked[k].token == hdr.token &&
			    reply.class >= linked[k].commit->required)
				linked[k].commit->acked = 1;
	exact = fuzz_exact(buf, (size_t)len);
	op = rp_linked_answered(conns[i].peer, exact, (size_t)len);
	free(exact);
	if (!op)
		rp_link_broken(conns[i].peer);
}

/* What the target says to the last CONNECT, or might have said. */
static void link_offer(struct fuzz_in *f, uint8_t v)
{
	uint8_t how = fuzz_u8(f);
	unsigned int at = (nsent - 1 - v % 8) % MAX_SENT;
	struct rp_wire_hdr hdr = {
		.session = sent[at].cookie,
		.incarnation = how & 3,
	};
	struct rp_wire_offer m = {
		.status = how >> 6 == 3 ? RP_ST_NO_METHOD : 0,
		.id = sent[at].connect.id + (how >> 5 & 1),
		.key = sent[at].connect.key,
	};
	uint8_t buf[RP_WIRE_MAX_MSG], *exact;
	int len;

	if (!m.status) {
		m.method = how & 16 ? RP_METHOD_NATIVE : RP_METHOD_AGENT_CLWB;
		m.class = (how >> 2 & 3) % 3;
		m.addr_len = m.secret = 1;
		m.length = 1 << 20;
	}
	len = rp_wire_put_offer(buf, sizeof(buf), &hdr, &m);
	if (len <= 0)
		return;
	exact = fuzz_exact(buf, (size_t)len);
	rp_initiator_recv(in, exact, (size_t)len);
	free(exact);
}

static void link_step(struct fuzz_in *f)
{
	uint8_t op = fuzz_u8(f), v = fuzz_u8(f);
	struct conn *c = &conns[op >> 3 & 1];

	switch (op & 7) {
	case 0:
	case 1:
		link_offer(f, v);
		break;
	case 2:
		if (c->peer && !c->up)
			rp_link_up(c->peer);
		c->up |= c->peer != NULL;
		break;
	case 3:
		if (c->peer)
			rp_link_broken(c->peer);
		break;
	case 4:
	case 5:
		link_post(op >> 3 & 1, v);
		break;
	case 6:
		link_answer(f, op >> 3 & 1, v);
		break;
	default:
		/* Its write comes back, well or badly. */
		if (linked[v % LINKED].commit)
			rp_linked_written(&linked[v % LINKED].op,
					  v & 0x80 ? EIO : 0);
	}
}

static void note_ok(const struct rp_wire_hdr *hdr,
		    const struct rp_wire_reply *m)
{
	if (m->status != RP_ST_OK || m->level != RP_LEVEL_DURABLE)
		return;
	for (unsigned int i = 0; i < MAX_SENT && i < nsent; i++) {
		const struct rp_wire_request *r = &sent[i].req;

		if (sent[i].hdr.type != RP_MSG_REQUEST ||
		    sent[i].hdr.token != hdr->token ||
		    hello_cookie[sent[i].peer] != hdr->session)
			continue;
		for (unsigned int k = 0; k < r->nranges; k++) {
			struct rp_key key;

			MUST(!rp_key_parse(r->ranges[k].key, &key));
			MUST(key.random < COMMITS && key.base < RANGES);
			if (commits[key.random].required <= m->class)
				commits[key.random].acked |= 1u << key.base;
		}
	}
}

static void receive(const uint8_t *msg, size_t len)
{
	uint8_t *exact = fuzz_exact(msg, len);
	struct rp_wire_reply reply;
	struct rp_wire_hdr hdr;

	if (!rp_wire_get_hdr(exact, len, &hdr) && hdr.type == RP_MSG_REPLY &&
	    !rp_wire_get_reply(exact, &hdr, &reply))
		note_ok(&hdr, &reply);
	rp_initiator_recv(in, exact, len);
	free(exact);
}

/* An answer to one of the last messages, of any kind, with any content. */
static void recv_made(struct fuzz_in *f, unsigned int kind, int damage)
{
	static const uint8_t types[] = {RP_MSG_HELLO_ACK, RP_MSG_REPLY,
					RP_MSG_PROGRESS, RP_MSG_INFO};
	uint8_t which = fuzz_u8(f), how = fuzz_u8(f), st = fuzz_u8(f);
	unsigned int at = (nsent - 1 - which % 8) % MAX_SENT;
	struct rp_wire_hdr hdr = {
		.type = types[kind],
		.token = sent[at].hdr.token,
		.session = sent[at].cookie,
		/* Two lives, and none. */
		.incarnation = which >> 4 & 3,
	};
	struct rp_wire_hello_ack ack = {
		.status = st,
		.cookie = st ? 0 : 1 + (how & 3),
		.credits = st ? 0 : 1 + (how >> 2 & 7),
		.features = st || which & 8 ? 0 : RP_FEATURES,
		.max_ranges = st	      ? 0
			      : how >> 5 == 6 ? 6
					      : RP_WIRE_MAX_RANGES,
	};
	struct rp_wire_reply reply = {
		.status = st,
		.level = st ? 0 : 1 + (how & 1),
		.class = st ? 0 : (how >> 1 & 3) % 3,
		.method = st ? 0 : RP_METHOD_AGENT_MSYNC,
		.range = how >> 3,
		.credits = how >> 5,
	};
	struct rp_wire_info info = {.status = st, .why = "because"};
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	switch (kind) {
	case 0:
		len = rp_wire_put_hello_ack(buf, sizeof(buf), &hdr, &ack);
		break;
	case 1:
		len = rp_wire_put_reply(buf, sizeof(buf), &hdr, &reply);
		break;
	case 2:
		len = rp_wire_put_empty(buf, sizeof(buf), &hdr);
		break;
	default:
		len = rp_wire_put_info(buf, sizeof(buf), &hdr, &info);
	}
	if (len <= 0)
		return;
	if (damage) {
		uint16_t pos = fuzz_u16(f);

		buf[pos % (unsigned int)len] ^= fuzz_u8(f);
		if (pos & 0x8000)
			len = pos % len;
	}
	receive(buf, (size_t)len);
}

static void recv_raw(struct fuzz_in *f)
{
	size_t len = fuzz_u16(f) % (RP_WIRE_MAX_MSG + 2);

	len = len < f->left ? len : f->left;
	receive(f->p, len);
	f->p += len;
	f->left -= len;
}

/* Low four bits: what happens; bit 5: damaged, or the bad way. */
static void one_step(struct fuzz_in *f)
{
	uint8_t op = fuzz_u8(f);

	steps++;
	switch (op & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		recv_made(f, op & 15, op & 0x20);
		break;
	case 4:
		recv_made(f, 1, op & 0x20);
		break;
	case 5:
		recv_raw(f);
		break;
	case 6:
	case 7:
		post(f);
		break;
	case 8:
		query(f);
		break;
	case 9:
	case 10:
		write_step(f);
		break;
	case 11:
		now += fuzz_u8(f) * 20 * MS;
		break;
	case 12:
		send_ret = op & 0x20 ? (op & 0x40 ? -EIO : -EAGAIN) : 0;
		break;
	case 13:
		if (!(op & 0x20))
			break;
		/* What comes after is for another peer of that address. */
		lives[op >> 6 & 1]++;
		rp_peer_forget(in, op >> 6 & 1);
		break;
	case 14:
		link_step(f);
		break;
	default:
		rp_initiator_progress(in);
		/* A sleeper that trusts the deadline must not spin. */
		MUST(rp_initiator_deadline(in) > now);
	}
	MUST(rp_initiator_outstanding(in) <= AT_ONCE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in f = {data, size};
	uint8_t how = fuzz_u8(&f);
	struct rp_initiator_attr attr = {
		.timeout_ns = 5000 * MS,
		.max_commits = AT_ONCE,
		.ordered = how & 1,
		.links = how & 2,
		.native = how & 8,
		.store_max = how & 4 ? 64 : 0,
	};

	x.ops = &ops;
	now = 1000 * MS;
	randoms = steps = 0;
	send_ret = 0;
	ncommits = nqueries = queries_told = nsent = 0;
	memset(sent, 0, sizeof(sent));
	memset(writes, 0, sizeof(writes));
	memset(linked, 0, sizeof(linked));
	memset(conns, 0, sizeof(conns));
	method = attr.links ? RP_METHOD_AGENT_CLWB : RP_METHOD_AGENT_MSYNC;
	native = attr.native;
	memset(lives, 0, sizeof(lives));
	memset(hello_cookie, 0, sizeof(hello_cookie));
	MUST(!rp_initiator_new(&attr, &x, &in));
	while (f.left && steps < 400)
		one_step(&f);

	/* Silence: all ends within the timeout, whatever was said before. */
	for (unsigned int i = 0; i < WRITES; i++)
		if (writes[i].begun)
			write_end(&writes[i], -ECANCELED);
	for (int i = 0; i < 12 && rp_initiator_outstanding(in); i++) {
		now += 1000 * MS;
		rp_initiator_progress(in);
	}
	MUST(!rp_initiator_outstanding(in));
	rp_initiator_delete(in);
	for (unsigned int i = 0; i < PEERS; i++)
		MUST(!conns[i].peer);
	for (unsigned int i = 0; i < ncommits; i++)
		MUST(commits[i].told == 1);
	MUST(queries_told == nqueries);
	return 0;
}
