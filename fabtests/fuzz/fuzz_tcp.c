// SPDX-License-Identifier: BSD-2-Clause
/* Frames over TCP, sent by a hostile initiator or a hostile target. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "rc/rc_tcp.h"

/* rc.c refers to this backend in builds with librdmacm. */
extern const struct rp_rc_ops rp_rc_verbs;
const struct rp_rc_ops rp_rc_verbs;

#define REGION 4096
#define POLLS  200
/* Predictable rkeys, so that inputs can name them. */
#define FIRST_KEY 0x1122334455667788ull

struct end {
	struct rp_channel *c;
	int lost;
	size_t messages;
};

static struct end target, initiator;
static struct rp_rc *rc_t, *rc_i;
static struct sockaddr_in at;
static int server;
static uint64_t next_key;

/* Advance the clock at each reading, so that no run waits for a time. */
static uint64_t next_tick(void *arg)
{
	static uint64_t t;

	return t += 5000;
}

static uint64_t no_time(void *arg)
{
	return 1;
}

static int fill_keys(void *arg, void *buf, size_t len)
{
	uint64_t key = next_key++;

	memcpy(buf, &key, len < sizeof(key) ? len : sizeof(key));
	return 0;
}

static void no_kick(void *arg)
{
}

static void on_connected(void *owner, const void *data, size_t len)
{
	MUST(len <= RP_RC_CM_DATA);
}

static void on_lost(void *owner, int err, const void *data, size_t len)
{
	struct end *e = owner;

	MUST(err > 0 && len <= RP_RC_CM_DATA);
	e->lost++;
}

static void on_message(void *owner, const void *msg, size_t len)
{
	struct end *e = owner;
	uint8_t *copy = fuzz_exact(msg, len);

	MUST(len <= RP_WIRE_MAX_MSG && !e->lost);
	e->messages++;
	free(copy);
}

static const struct rp_channel_events events = {
	.connected = on_connected,
	.lost = on_lost,
	.received = on_message,
};

static void on_request(void *arg, void *request, const void *data, size_t len)
{
	MUST(!target.c);
	MUST(!rp_rc_accept(rc_t, request, "ok", 2, &events, &target,
			   &target.c));
}

static void on_request_gone(void *arg, void *request)
{
}

static void set_up(void)
{
	const struct rp_rc_attr attr = {
		.backend = RP_RC_TCP,
		.now = no_time,
		.now_exact = next_tick,
		.random = fill_keys,
		.kick = no_kick,
		.requested = on_request,
		.gone = on_request_gone,
	};
	socklen_t len = sizeof(at);
	uint16_t port;
	char why[256];

	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	MUST(!rp_rc_open(&attr, &rc_t, why, sizeof(why)));
	MUST(!rp_rc_open(&attr, &rc_i, why, sizeof(why)));
	server = socket(AF_INET, SOCK_STREAM, 0);
	MUST(!bind(server, (struct sockaddr *)&at, len) && !listen(server, 1));
	MUST(!rp_rc_listen(rc_t, (struct sockaddr *)&at, len, &port));
	at.sin_port = htons(port);
}

/* Close with RST, so that this side keeps no connection in TIME_WAIT. */
static void close_with_reset(int fd)
{
	const struct linger l = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static void poll_times(struct rp_rc *rc, const struct end *e, int n)
{
	while (n-- && !e->lost)
		rp_rc_poll(rc, 16);
}

/* Send the input in two parts, and poll after each part. */
static void feed_input(int fd, struct rp_rc *rc, const struct end *e,
		       struct fuzz_in *in)
{
	size_t first = fuzz_u16(in);

	if (first > in->left)
		first = in->left;
	for (int i = 0; i < 2; i++) {
		const size_t n = i ? in->left : first;

		if (n && send(fd, in->p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		in->p += n;
		in->left -= n;
		poll_times(rc, e, POLLS);
	}
}

static void hostile_initiator(struct fuzz_in *in)
{
	const struct tcp_head h = {.type = RP_TCP_CONNECT, .length = 2};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	uint8_t *region = calloc(1, REGION);
	struct rp_rc_mr mr, ro;
	struct rp_tcp_rma hdr;

	next_key = FIRST_KEY;
	MUST(fd >= 0 && region);
	MUST(!rp_rc_reg(rc_t, region, REGION,
			RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, &mr));
	MUST(!rp_rc_reg(rc_t, region, REGION, RP_RC_REMOTE_READ, &ro));
	MUST(!connect(fd, (struct sockaddr *)&at, sizeof(at)));
	MUST(send(fd, &hdr, rp_tcp_put(&hdr, &h), MSG_NOSIGNAL) > 0);
	MUST(send(fd, "hi", 2, MSG_NOSIGNAL) == 2);
	while (!target.c)
		rp_rc_poll(rc_t, 16);
	feed_input(fd, rc_t, &target, in);
	rp_rc_dereg(rc_t, &ro);
	rp_rc_dereg(rc_t, &mr);
	free(region);
	poll_times(rc_t, &target, POLLS);
	MUST(target.lost <= 1);
	rp_channel_close(target.c);
	close_with_reset(fd);
}

static struct rp_channel_op ops[4];
static int done[4];

static void op_done(struct rp_channel_op *op, int err)
{
	done[op - ops]++;
}

/* The initiator posts two writes and two reads to a hostile target. */
static void hostile_target(struct fuzz_in *in)
{
	struct rp_connector *k = rp_rc_connector(rc_i);
	const bool accepts = fuzz_u8(in) & 1;
	const struct tcp_head h = {.type = RP_TCP_ACCEPT, .length = 2};
	uint8_t *bytes = calloc(1, 100);
	struct iovec iov[2] = {{bytes, 60}, {bytes + 60, 40}};
	struct rp_channel_op *list[4];
	struct sockaddr_in to = at;
	socklen_t len = sizeof(to);
	struct rp_tcp_rma hdr;
	int fd, posted = 0;

	MUST(bytes && !getsockname(server, (struct sockaddr *)&to, &len));
	MUST(!k->ops->connect(k, &to, sizeof(to), "hi", 2, &events, &initiator,
			      &initiator.c));
	fd = accept(server, NULL, NULL);
	MUST(fd >= 0);
	poll_times(rc_i, &initiator, 4);
	if (accepts) {
		MUST(send(fd, &hdr, rp_tcp_put(&hdr, &h), MSG_NOSIGNAL) > 0);
		MUST(send(fd, "ok", 2, MSG_NOSIGNAL) == 2);
		poll_times(rc_i, &initiator, 4);
	}
	for (int i = 0; i < 4; i++) {
		ops[i] = (struct rp_channel_op){
			.done = op_done,
			.kind = i & 1 ? RP_CHANNEL_READ : RP_CHANNEL_WRITE,
			.delivered = i == 2,
			.iov = i == 3 ? NULL : iov,
			.iov_count = i == 3 ? 0 : 2,
			.length = i == 3 ? 8 : 100,
		};
		list[i] = &ops[i];
		done[i] = 0;
	}
	posted = rp_channel_post(initiator.c, list, 4);
	feed_input(fd, rc_i, &initiator, in);
	MUST(initiator.lost <= 1);
	rp_channel_close(initiator.c);
	for (int i = 0; i < 4; i++)
		MUST(done[i] == (i < posted));
	free(bytes);
	close_with_reset(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};

	if (!rc_t)
		set_up();
	target = initiator = (struct end){0};
	if (fuzz_u8(&in) & 1)
		hostile_target(&in);
	else
		hostile_initiator(&in);
	return 0;
}
