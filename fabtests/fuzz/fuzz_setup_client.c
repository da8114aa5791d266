// SPDX-License-Identifier: BSD-2-Clause
/* The set-up protocol: the client's end with a hostile daemon. */
#include "config.h"

#include <sys/types.h>

#include "fuzz.h"

static ssize_t fuzz_random(void *p, size_t len)
{
	memset(p, 0xa5, len);
	return (ssize_t)len;
}
#define getrandom(p, len, flags) fuzz_random(p, len)
/* Included to run call_run() on a socket pair, without connect(). */
#include "util/setup_client.c"

static const struct rp_secret secret = {
	.bytes = "0123456789abcdef0123456789abcdef",
	.len = 32,
};

/*
 * Add the daemon's MAC to the message after the challenge: a daemon that knows
 * the secret may be hostile, too.
 */
static void add_mac(uint8_t *msg, size_t len)
{
	struct rp_setup_auth auth = {.secret = &secret};
	struct rp_setup_challenge g;
	enum rp_setup_type type;
	size_t n;

	if (rp_setup_frame(msg, len, len, &n, &type) ||
	    rp_setup_get_challenge(msg, n, &g))
		return;
	msg += n;
	len -= n;
	if (len < RP_SETUP_HDR || rp_setup_frame(msg, len, len, &n, &type) ||
	    n < RP_SETUP_HDR + RP_SETUP_MAC)
		return;
	memcpy(auth.daemon_nonce, g.nonce, sizeof(g.nonce));
	memset(auth.client_nonce, 0xa5, sizeof(auth.client_nonce));
	rp_setup_seal(msg, n, RP_SETUP_FROM_DAEMON, &auth);
}

/*
 * Flags: 1 asks for the list, 2 the client has a secret, 4 the daemon has it,
 * too.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static union {
		struct rp_setup_list list;
		struct rp_setup_export export;
	} out;
	struct fuzz_in in = {data, size};
	uint8_t flags = fuzz_u8(&in);
	bool list = flags & 1, with_secret = flags & 2, proved = flags & 4;
	char err[RP_ERR_LEN] = "";
	struct rp_setup_target t = {
		.host = "there",
		.port = 1,
		.secret = with_secret ? &secret : NULL,
	};
	struct call c = {.t = &t, .deadline = rp_now_ms() + 60000, .err = err};
	struct rp_setup_request req = {
		.type = list ? RP_SETUP_GET_LIST : RP_SETUP_GET_EXPORT,
		.name = "one",
	};
	uint8_t *msg, *buf = malloc(RP_SETUP_MAX_REPLY);
	size_t len = in.left < 65536 ? in.left : 65536, got = 0;
	int pair[2], ret;

	MUST(buf);
	msg = fuzz_exact(in.p, len);
	if (proved)
		add_mac(msg, len);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			 pair));
	c.fd = pair[0];
	MUST(!len || send(pair[1], msg, len, MSG_NOSIGNAL) == (ssize_t)len);
	shutdown(pair[1], SHUT_WR);
	ret = call_run(&c, &req, list ? RP_SETUP_LIST : RP_SETUP_EXPORT, buf,
		       &got);
	if (!ret) {
		uint8_t *exact = fuzz_exact(buf, got);

		/* A client with a secret accepts only replies with a MAC. */
		MUST(!with_secret || proved);
		ret = list ? rp_setup_get_list(exact, got, &out.list)
			   : rp_setup_get_export(exact, got, &out.export);
		MUST(ret == 0 || ret == -EBADMSG);
		MUST(ret || list || out.export.fi_name_len <= RP_SETUP_FI_NAME);
		free(exact);
	} else {
		/* Each failure has a sentence that says what to do. */
		MUST(ret < 0 && err[0] && ret != -ETIMEDOUT);
	}
	close(pair[0]);
	close(pair[1]);
	free(msg);
	free(buf);
	return 0;
}
