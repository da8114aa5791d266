// SPDX-License-Identifier: BSD-2-Clause
/* The tests' own end of private connections, with private data of any length.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fault/frame_peer.h"

ssize_t pair_must(ssize_t ret, const char *what, const char *file, int line)
{
	cr_assert_geq(ret, 0, "%s:%d: %s", file, line, what);
	return ret;
}

#define WAIT_MS 60000

static struct frame_peer peer;
static uint8_t bytes[FRAME_DATA + 1];
static size_t reply_len; /* private data of the reply, in bytes */
static bool accepts;
static struct frame_conn *accepted;

static void reply(struct frame_peer *p, struct frame_call *call,
		  const uint8_t *data, size_t len)
{
	(void)data;
	(void)len;
	if (accepts)
		accepted = frame_accept(p, call, bytes, reply_len);
	else
		frame_reject(p, call, bytes, reply_len);
}

static void peer_start(void)
{
	static const struct frame_events events = {.requested = reply};

	memset(bytes, 0xa5, sizeof(bytes));
	frame_open(&peer, &events);
	cr_assert(frame_listen(&peer, 0));
}

static void peer_end(void)
{
	frame_close(&peer);
}

TestSuite(frame_peer, .init = peer_start, .fini = peer_end);

/* Connect; the connection then has this state and error. */
static void expect(enum frame_state state, int err, size_t data_len)
{
	struct frame_conn *c = frame_dial(&peer, &peer.at, bytes, 8);

	cr_assert_eq(frame_wait(c, WAIT_MS), state);
	cr_assert_eq(c->err, err);
	cr_assert_eq(c->data_len, data_len);
	cr_assert(!memcmp(c->data, bytes, data_len));
	cr_assert_eq(c->placed, 0u); /* the field behind data */
	frame_end(c);
	if (accepts)
		frame_end(accepted);
}

Test(frame_peer, private_data_of_a_reply_is_kept)
{
	for (int i = 0; i < 2; i++) {
		accepts = i;
		reply_len = FRAME_DATA;
		expect(accepts ? FRAME_UP : FRAME_ENDED,
		       accepts ? 0 : ECONNREFUSED, FRAME_DATA);
	}
}

Test(frame_peer, longer_private_data_of_a_reply_ends_the_connection)
{
	for (int i = 0; i < 2; i++) {
		accepts = i;
		reply_len = FRAME_DATA + 1;
		expect(FRAME_ENDED, EMSGSIZE, 0);
	}
}

Test(frame_peer, longer_private_data_of_a_request_ends_the_connection)
{
	struct frame_conn *c =
		frame_dial(&peer, &peer.at, bytes, FRAME_DATA + 1);

	cr_assert_eq(frame_wait(c, WAIT_MS), FRAME_ENDED);
	cr_assert_eq(c->err, ECONNRESET);
	frame_end(c);
}
