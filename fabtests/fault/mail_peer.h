/* SPDX-License-Identifier: BSD-2-Clause */
/* A connected endpoint of the bare base with a mailbox made by hand, as
 * docs/protocol.md has it: what it writes there is the test's. */
#ifndef RP_TEST_MAIL_PEER_H
#define RP_TEST_MAIL_PEER_H

#include "core/mailbox.h"
#include "functional/pair.h"

struct mail_peer {
	struct side s;
	struct rp_mailbox box;
	struct fid_mr *mr;
	uint64_t key, there; /* of the mailbox here, and of the other one */
	bool gone;	     /* the connection has ended */
	uint8_t in[RP_MAILBOX_LEN], out[RP_MAILBOX_LEN];
};

uint64_t mail_now_ms(void);
/* Opened on the bare base, not connected. */
void mail_open(struct mail_peer *p);
/*
 * With that many bytes of the program's; false: the other end says no, or
 * nothing. mailbox: whether there is one at this end.
 */
bool mail_connect(struct mail_peer *p, const struct card *to, const void *param,
		  size_t len, bool mailbox);
/* The one who listens: lets one in. */
void mail_accept(struct mail_peer *p, const void *param, size_t len);
/* Progress, and whether the connection has ended. */
void mail_poke(struct mail_peer *p);
/* One remote write, until it has left; false: the connection has ended. */
bool mail_write(struct mail_peer *p, const void *buf, size_t len, uint64_t at,
		uint64_t key);
/* A message in its turn, in a frame; false: not within so long, or ended. */
bool mail_send(struct mail_peer *p, const void *msg, size_t len,
	       unsigned int ms);
/* The next message that comes; 0: none within so long. */
size_t mail_take(struct mail_peer *p, uint8_t *msg, unsigned int ms);
void mail_shut(struct mail_peer *p);

#endif
