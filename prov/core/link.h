/* SPDX-License-Identifier: BSD-2-Clause */
/* The one connection of our own to a target; peer.c and commit.c, and adapters.
 */
#ifndef RP_LINK_H
#define RP_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/hash.h"
#include "core/caps.h"
#include "core/method.h"

struct rp_commit;
struct rp_peer;
struct rp_write;
struct rp_wire_hdr;
struct rp_wire_offer;

/*
 * Why this is sound is proved in docs/guarantees.md. In short: whatever goes
 * over this connection goes over it alone. It leads to the life of the target
 * that has granted the keys, or is not there; its end is final, fails what is
 * under way, and takes along all that was granted for it.
 */

enum rp_link_state {
	RP_LINK_DOWN,
	RP_LINK_ASKED,	/* CONNECT is sent, or due */
	RP_LINK_DIALED, /* the adapter connects */
	RP_LINK_UP,
};

/* What the target has said of one key, over the connection of this id. */
struct rp_link_grant {
	uint64_t key;
	uint64_t conn;
	enum rp_method method; /* RP_METHOD_REFUSED: asked, and not granted */
	enum rp_class class;
	uint64_t there;	    /* the key over the connection */
	uint64_t at;	    /* what addr is called there */
	uint64_t addr, len; /* of the region */
	UT_hash_handle hh;
};
/* So many keys are remembered of one target. */
#define RP_LINK_GRANTS 256

/* What a message, or a write, that goes over the connection is. */
enum rp_link_kind {
	RP_LINK_NONE,	/* it does not */
	RP_LINK_WRITE,	/* a durable write of one range, which brings its bytes
			 */
	RP_LINK_GATHER, /* writes that were gathered: they are only placed */
	RP_LINK_COMMIT, /* a commit of what was written before */
};

/* One of those, with its commit. In the adapter's memory. */
struct rp_linked {
	TAILQ_ENTRY(rp_linked) link;
	struct rp_peer *peer;	  /* NULL: its connection is given up */
	struct rp_commit *commit; /* NULL: it has ended */
	bool written, fenced;	  /* what has come back, or need not */
	bool stores;		  /* the agent does: its bytes are in it */
	uint64_t token;		  /* of its request; 0: it has none */
	uint64_t len;
};
TAILQ_HEAD(rp_linkeds, rp_linked);

/* A key that was written to by another route, and the last such write. */
struct rp_link_mixed {
	uint64_t key;
	uint64_t seq;
	UT_hash_handle hh;
};

/* Of one peer. */
struct rp_link {
	enum rp_link_state state;
	uint64_t id;	    /* of the connection; grows */
	uint64_t asked;	    /* the key that CONNECT names */
	uint64_t due;	    /* when it is sent (again) */
	uint64_t dial_end;  /* DIALED: not longer than that */
	bool doubt;	    /* writes may still come, as far as is known */
	uint64_t doubt_key; /* one that they went to */
	unsigned int fails;
	void *conn; /* the adapter's, while DIALED and UP */
	struct rp_link_grant *grants;
	struct rp_link_mixed *mixed;
	bool mixed_all; /* no memory to say which */
	struct rp_linkeds posted;
	unsigned int nposted;
	unsigned int nwrites;	/* of the peer's, that go over this */
	unsigned int ngathered; /* of them */
	unsigned int asking;	/* of them wait for an answer */
	uint64_t bytes;		/* under way */
	uint64_t alive_at;	/* while anything is */
};

/* How a write of these bytes goes over the connection. */
struct rp_link_way {
	enum rp_link_kind kind;
	void *conn; /* what dial() gave */
	uint64_t there, at;
	/* A read behind it: inside the range. len 0: none is needed. */
	uint64_t fence_at;
	size_t fence_len;
	bool flush; /* ... or a FLUSH, of all of it, to persistence */
	/* Or a request: rp_link_request() makes it. */
	bool asks;
	bool stores;	/* the bytes fit into it, and are better there */
	uint64_t token; /* of the one that was made */
	enum rp_method method;
	enum rp_class class;
};

void rp_link_init(struct rp_peer *p);
void rp_link_fini(struct rp_peer *p);
/* A commit of this key was carried out by the agent; may it do without? */
void rp_link_want(struct rp_peer *p, uint64_t key);
/* A write by another route is about to be posted, as the seq of this number. */
void rp_link_written(struct rp_peer *p, uint64_t key, uint64_t seq);
/* The agent has answered for all writes of this key below seq. */
void rp_link_settled(struct rp_peer *p, uint64_t key, uint64_t seq);
/* An OFFER has arrived. */
void rp_link_offered(struct rp_peer *p, const struct rp_wire_hdr *hdr,
		     const struct rp_wire_offer *m);
/* Send what is due, give up what is late. */
void rp_link_tend(struct rp_peer *p, uint64_t t);
uint64_t rp_link_deadline(const struct rp_peer *p);
/*
 * Give the connection up: what is under way over it fails, in doubt until the
 * target has said that it is gone there.
 */
void rp_link_end(struct rp_peer *p);
/*
 * Is the connection there for durable writes to this key, or may it soon be?
 * Not after one has failed, until the next is made. What goes by another route
 * meanwhile is to have an end, or it would never begin.
 */
bool rp_link_would(const struct rp_peer *p, uint64_t key);
/* The commit has ended: nothing of it is told to it any more. */
void rp_link_orphan(struct rp_commit *c);

/* --- for adapters --- */

/*
 * May a durable write of these bytes go over the connection now? Not where
 * what else was written to them may come later, or is in doubt. A message's
 * bytes come later than those of a write posted behind it.
 */
bool rp_link_may(struct rp_peer *p, uint64_t key, uint64_t addr, uint64_t len,
		 enum rp_class required, struct rp_link_way *way);
/*
 * May a plain write of these bytes be gathered: sent in a message, with others,
 * as soon as the adapter likes? Then rp_link_gather() in place of
 * rp_write_begin(), and rp_write_done() at its end.
 */
bool rp_link_may_gather(struct rp_peer *p, uint64_t key, uint64_t addr,
			uint64_t len);
void rp_link_gather(struct rp_peer *p, struct rp_write *w, uint64_t key,
		    uint64_t addr, uint64_t len);
/*
 * May they be sent now, over the connection that they were gathered for? 0, and
 * then as a commit of level visible with attr.writes; -EAGAIN; -ENOTCONN:
 * never, and they have failed.
 */
int rp_link_may_send(struct rp_peer *p, uint64_t id, struct rp_link_way *way);
uint64_t rp_link_id(const struct rp_peer *p);
/*
 * May this reserved commit go over the connection? All that it covers has been
 * acknowledged, or was sent over the connection before: so the adapter sends
 * what it has gathered first.
 */
bool rp_link_may_commit(const struct rp_commit *c, struct rp_link_way *way);
/*
 * Make the request of a write that asks, to be sent behind it; or with its
 * bytes inside, and then there is no write. So with those that were gathered; a
 * commit has none. Its length, or -errno.
 */
int rp_link_request(const struct rp_commit *c, struct rp_link_way *way,
		    const void *bytes, void *buf, size_t size);
/*
 * The write of this reserved commit has been posted, or sent, as the way says:
 * start the commit. From here on it ends by itself.
 */
void rp_link_posted(struct rp_commit *c, const struct rp_link_way *way,
		    struct rp_linked *l);
/*
 * The write, or the read behind it, has come back; err 0: well, which is told
 * from rp_initiator_progress(): the adapter calls that next.
 */
void rp_linked_written(struct rp_linked *l, int err);
void rp_linked_fenced(struct rp_linked *l, int err);
/*
 * A message has come over the connection: whose answer it was. NULL: no target
 * of ours sends that, and the connection has to end.
 */
struct rp_linked *rp_linked_answered(struct rp_peer *p, const void *msg,
				     size_t len);
/* What a durable write to this key has to do with the connection, in words. */
const char *rp_link_words(const struct rp_peer *p, uint64_t key);
/* The connection that was dialed is there; or it has broken, for good. */
void rp_link_up(struct rp_peer *p);
void rp_link_broken(struct rp_peer *p);

#endif
