/* SPDX-License-Identifier: BSD-2-Clause */
/* An initiator between fakes: a clock, a base that records, scripted answers.
 */
#ifndef RP_TEST_INITIATOR_RIG_H
#define RP_TEST_INITIATOR_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/commit.h"
#include "core/peer.h"
#include "core/wire.h"

#define RIG_MS	    1000000ull
#define RIG_TIMEOUT (5000 * RIG_MS)
#define RIG_PEER    7 /* the usual peer's address */
/* A life of the usual target, and the next one. */
#define RIG_LIFE  0x11fe000001ull
#define RIG_LIFE2 0x11fe000002ull

/* One message that the initiator sent. */
struct rig_msg {
	STAILQ_ENTRY(rig_msg) link;
	uint64_t peer;
	struct rp_wire_hdr hdr;
	size_t len;
	uint8_t bytes[];
};

struct rig {
	struct rp_xport x;
	struct rp_initiator *in;
	uint64_t now;
	uint64_t cookies; /* handed out as random numbers */
	/* What the fake says: send, after so many good ones. */
	int send_ret;
	unsigned int send_good;
	int name_ret, random_ret;
	size_t name_len; /* 0: the usual one */
	bool random_zero;
	/* What it saw. */
	STAILQ_HEAD(, rig_msg) out;
	size_t nout;
	unsigned int tries; /* of sending */
	unsigned int kicks;
};

/* What a program sees of one commit or query. */
struct rig_told {
	unsigned int times;
	struct rp_outcome out;
	enum rp_status query;
	bool has_info;
	struct rp_wire_info info;
};

/* Attributes to start from: ordered, 8 commits, no slow rate. */
struct rp_initiator_attr rig_attr(void);
/* attr NULL: rig_attr(). */
void rig_start(struct rig *g, const struct rp_initiator_attr *attr);
/* The initiator goes, if the test has not deleted it; and the messages. */
void rig_stop(struct rig *g);
/* The same, and nothing may have leaked. Takes long where that is looked at. */
void rig_end(struct rig *g);
struct rp_peer *rig_peer(struct rig *g);

/* A progress call; after it nothing may be due at once. */
bool rig_progress(struct rig *g);
/* Time passes, then a progress call. */
void rig_pass(struct rig *g, uint64_t ns);
/* Sleep until each deadline, at most until ns have passed. Returns calls. */
unsigned int rig_sleep(struct rig *g, uint64_t ns);

/* Keys of persistent regions: this number's in its first registration. */
uint64_t rig_key(uint32_t n);
struct rp_wire_range rig_range(uint32_t key, uint64_t addr, uint64_t len);

/* Post, which must work, a commit of n ranges or of one. */
void rig_commit_n(struct rig *g, struct rp_peer *p, struct rig_told *t,
		  const struct rp_wire_range *ranges, size_t n);
void rig_commit(struct rig *g, struct rp_peer *p, struct rig_told *t,
		uint32_t key, uint64_t addr, uint64_t len);
void rig_query(struct rig *g, struct rp_peer *p, struct rig_told *t,
	       uint32_t key);
void rig_done(void *arg, const struct rp_outcome *out);
void rig_query_done(void *arg, enum rp_status st,
		    const struct rp_wire_info *info);

/* The oldest message not yet taken, NULL: none. The caller frees it. */
struct rig_msg *rig_pop(struct rig *g);
/* The oldest one, which must be there and of this type. */
struct rig_msg *rig_take(struct rig *g, uint8_t type);
void rig_none(struct rig *g);
struct rp_wire_hello rig_as_hello(const struct rig_msg *m);
struct rp_wire_request rig_as_request(const struct rig_msg *m);

/* The target's side of one session. */
struct rig_session {
	uint64_t cookie; /* that requests must carry */
	uint64_t hello;	 /* that answers must carry */
	uint64_t incarnation;
	uint16_t credits;
	uint16_t without; /* features */
};
void rig_recv(struct rig *g, const void *msg, int len);
/* Answer a HELLO. s->hello is filled in; status 0: the rest is granted. */
void rig_hello_ack(struct rig *g, const struct rig_msg *m,
		   struct rig_session *s, enum rp_status st);
/* Take the HELLO that must be there, grant a session. */
struct rig_session rig_open(struct rig *g, uint64_t incarnation,
			    uint16_t credits);
void rig_reply(struct rig *g, const struct rig_session *s, uint64_t token,
	       const struct rp_wire_reply *m);
/* Durable at class power by msync; or refused. */
void rig_ok(struct rig *g, const struct rig_session *s, uint64_t token);
void rig_refuse(struct rig *g, const struct rig_session *s, uint64_t token,
		enum rp_status st);
void rig_info(struct rig *g, const struct rig_session *s, uint64_t token,
	      enum rp_status st);
void rig_alive(struct rig *g, const struct rig_session *s);
/* Take the request that must be there; returns its token. */
uint64_t rig_requested(struct rig *g, const struct rig_session *s);

/* Told once, with this status; not told. */
void rig_told_once(const struct rig_told *t, enum rp_status st);
void rig_not_told(const struct rig_told *t);

#endif
