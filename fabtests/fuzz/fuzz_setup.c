// SPDX-License-Identifier: BSD-2-Clause
/*
 * The set-up protocol: every decoder, and the daemon's end with a hostile
 * client.
 */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "fuzz.h"

/* accept() returns one end of this socket pair. Nonces are constant. */
static int pair[2];
static int fuzz_accept(struct sockaddr *sa, socklen_t *len)
{
	const struct sockaddr_in from = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	memcpy(sa, &from, sizeof(from));
	*len = sizeof(from);
	return pair[0];
}
static ssize_t fuzz_random(void *p, size_t len)
{
	memset(p, 0x5a, len);
	return (ssize_t)len;
}
#define accept4(fd, sa, len, flags) fuzz_accept(sa, len)
#define getrandom(p, len, flags)    fuzz_random(p, len)
#include "util/setup_server.c"

static const struct rp_secret secret = {
	.bytes = "0123456789abcdef0123456789abcdef",
	.len = 32,
};
static const struct rp_setup_secrets secrets = {
	.needed = true,
	.v[1] =
		{
			.bytes = "0123456789abcdef0123456789abcdef",
			.len = 32,
		},
};
static const struct rp_setup_export pools[2] = {
	{.key = 1, .len = 4096, .name = "one", .base = "tcp", .why = "ext4"},
	{.key = 2,
	 .len = 8192,
	 .name = "two",
	 .base = "tcp",
	 .fi_name_len = 16},
};

union any {
	struct rp_setup_challenge challenge;
	struct rp_setup_request request;
	struct rp_setup_export export;
	struct rp_setup_list list;
	struct rp_setup_error error;
};

static int get_message(enum rp_setup_type type, const uint8_t *p, size_t len,
		       union any *m)
{
	switch ((int)type) {
	case RP_SETUP_CHALLENGE:
		return rp_setup_get_challenge(p, len, &m->challenge);
	case RP_SETUP_GET_EXPORT:
	case RP_SETUP_GET_LIST:
	case RP_SETUP_SET_LENGTH:
	case RP_SETUP_OPEN:
	case RP_SETUP_DIVIDE:
		return rp_setup_get_request(p, len, &m->request);
	case RP_SETUP_EXPORT:
		return rp_setup_get_export(p, len, &m->export);
	case RP_SETUP_LIST:
		return rp_setup_get_list(p, len, &m->list);
	case RP_SETUP_ERROR:
		return rp_setup_get_error(p, len, &m->error);
	}
	return -EBADMSG;
}

static int put_message(enum rp_setup_type type, uint8_t *p, size_t size,
		       const union any *m)
{
	switch ((int)type) {
	case RP_SETUP_CHALLENGE:
		return rp_setup_put_challenge(p, size, &m->challenge);
	case RP_SETUP_EXPORT:
		return rp_setup_put_export(p, size, &m->export);
	case RP_SETUP_LIST:
		return rp_setup_put_list(p, size, &m->list);
	case RP_SETUP_ERROR:
		return rp_setup_put_error(p, size, &m->error);
	}
	return rp_setup_put_request(p, size, &m->request);
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if (*s < 0x20 || *s > 0x7e)
			return false;
	return true;
}

/*
 * A decoded message encodes to the same bytes, except for its MAC and for
 * control characters in sentences. Encoding replaces such characters by '?', so
 * a second round must give the same bytes as the first.
 */
static void try_decode(const uint8_t *data, size_t size)
{
	static uint8_t first[RP_SETUP_MAX_REPLY], second[RP_SETUP_MAX_REPLY];
	static union any m;
	uint8_t *msg = fuzz_exact(data, size);
	enum rp_setup_type type;
	size_t len;
	int ret = rp_setup_frame(msg, size, RP_SETUP_MAX_REPLY, &len, &type);

	if (ret || len > size)
		goto out;
	MUST(len >= RP_SETUP_HDR);
	if (get_message(type, msg, len, &m))
		goto out;
	if (type == RP_SETUP_EXPORT)
		MUST(is_printable(m.export.name) &&
		     is_printable(m.export.why) &&
		     is_printable(m.export.base) && m.export.len &&
		     m.export.addr + m.export.len >= m.export.addr);
	if (type == RP_SETUP_ERROR)
		MUST(is_printable(m.error.text));
	MUST(put_message(type, first, sizeof(first), &m) == (int)len);
	if (type != RP_SETUP_EXPORT && type != RP_SETUP_ERROR)
		MUST(!memcmp(
			first, msg,
			len - (type == RP_SETUP_CHALLENGE ? 0 : RP_SETUP_MAC)));
	MUST(!get_message(type, first, len, &m));
	MUST(put_message(type, second, sizeof(second), &m) == (int)len);
	MUST(!memcmp(first, second, len));
out:
	free(msg);
}

/* The server has checked the arguments before it calls this. */
static int set_owner(void *arg, unsigned int i, unsigned int part,
		     uint64_t owner, char *err)
{
	MUST(i < 2 && part <= 2 * i && owner);
	return 0;
}

/* The number of parts: the second pool has two. */
static unsigned int two_parts(void *arg, unsigned int i, unsigned int part,
			      uint64_t *owner)
{
	MUST(i < 2 && part <= RP_SETUP_PARTS);
	*owner = part;
	return 1 + i;
}

static int divide(void *arg, unsigned int i, unsigned int parts, char *err)
{
	MUST(i < 2 && parts && parts <= RP_SETUP_PARTS);
	return 0;
}

static struct rp_setup_server *new_server(bool with_secret)
{
	static struct rp_setup_server *s[2];
	struct rp_setup_server_attr attr = {
		.secrets = with_secret ? &secrets : NULL,
		.exports = pools,
		.nexports = 2,
		.max_conns = 4,
		.timeout_ms = 60000,
		.parts = two_parts,
		.divide = divide,
		.set_owner = set_owner,
	};
	char err[RP_ERR_LEN];

	if (!s[with_secret])
		attr.listener = rp_setup_listen(NULL, 0, err);
	if (!s[with_secret])
		MUST(!rp_setup_server_new(&attr, &s[with_secret], err));
	return s[with_secret];
}

/* Add the client's MAC to a message: the client knows the secret. */
static void add_mac(uint8_t *msg, size_t len)
{
	struct rp_setup_auth auth = {.secret = &secret};

	if (len < RP_SETUP_HDR + RP_SETUP_NONCE + RP_SETUP_MAC)
		return;
	memset(auth.daemon_nonce, 0x5a, sizeof(auth.daemon_nonce));
	memcpy(auth.client_nonce, msg + RP_SETUP_HDR, RP_SETUP_NONCE);
	rp_setup_seal(msg, len, RP_SETUP_FROM_CLIENT, &auth);
}

static void run_step(struct rp_setup_server *s)
{
	struct conn *c, *next;

	/* Run the connections without poll(); the listener has no input. */
	for (c = TAILQ_FIRST(&s->conns); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (!conn_run(s, c))
			conn_drop(s, c);
	}
	for (c = TAILQ_FIRST(&s->holders); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (!conn_run(s, c) && c->state != HOLD)
			conn_drop(s, c);
	}
}

static bool any_left(const struct rp_setup_server *s)
{
	return s->nconns || !TAILQ_EMPTY(&s->holders);
}

/* The daemon has sent a challenge and at most one reply, both complete. */
static void check_output(const uint8_t *buf, size_t len, bool with_secret,
			 bool proved)
{
	static union any m;
	enum rp_setup_type type;
	size_t n;

	MUST(!rp_setup_frame(buf, len, len, &n, &type));
	MUST(type == RP_SETUP_CHALLENGE && n <= len &&
	     !get_message(type, buf, n, &m));
	MUST(m.challenge.secret == with_secret);
	buf += n;
	len -= n;
	if (!len)
		return;
	MUST(!rp_setup_frame(buf, len, len, &n, &type) && n == len);
	MUST(!get_message(type, buf, n, &m));
	/*
	 * The daemon sends nothing about pools before the client has proved the
	 * secret.
	 */
	MUST(type == RP_SETUP_ERROR || !with_secret || proved);
	MUST(type != RP_SETUP_ERROR || with_secret == proved || !with_secret ||
	     m.error.code != RP_SETUP_E_POOL);
}

/* Flag bit 1: the daemon has a secret; bit 2: the client proves it. */
static void try_server(uint8_t flags, struct fuzz_in *in)
{
	static uint8_t back[2 * RP_SETUP_MAX_REPLY];
	bool with_secret = flags & 2, proved = flags & 4;
	struct rp_setup_server *s = new_server(with_secret);
	size_t len = in->left < 2048 ? in->left : 2048, sent = 0, have = 0, n;
	uint8_t *msg;
	ssize_t ret;

	/* The first byte is the length of the first segment sent. */
	n = fuzz_u8(in);
	len = in->left < len ? in->left : len;
	msg = fuzz_exact(in->p, len);
	if (proved)
		add_mac(msg, len);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			 pair));
	server_accept(s);
	MUST(s->nconns == 1);
	run_step(s);
	while (sent < len && any_left(s)) {
		size_t part = n && n < len - sent ? n : len - sent;

		MUST(send(pair[1], msg + sent, part, MSG_NOSIGNAL) ==
		     (ssize_t)part);
		sent += part;
		run_step(s);
		n *= 3;
	}
	run_step(s);
	run_step(s);
	do {
		ret = recv(pair[1], back + have, sizeof(back) - have, 0);
		have += ret > 0 ? (size_t)ret : 0;
	} while (ret > 0);
	check_output(back, have, with_secret, proved);
	MUST(TAILQ_EMPTY(&s->holders) || !with_secret || proved);
	while (s->nconns)
		conn_drop(s, TAILQ_FIRST(&s->conns));
	while (!TAILQ_EMPTY(&s->holders))
		conn_drop(s, TAILQ_FIRST(&s->holders));
	close(pair[1]);
	free(msg);
}

/*
 * The first byte is flags. Bit 0 selects the daemon's end; else the decoders
 * run.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t flags = fuzz_u8(&in);

	if (flags & 1)
		try_server(flags, &in);
	else
		try_decode(in.p, in.left);
	return 0;
}
