// SPDX-License-Identifier: BSD-2-Clause
/* Targets that lie, beside an initiator that keeps to the protocol. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/duo.h"

#define CTRL_BIT (1ull << 63)
/* Where an answer is expected, and where none is. */
#define PATIENT_MS   10000
#define IMPATIENT_MS 1000

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

enum what {
	ANSWER,	      /* one REPLY to each REQUEST */
	SILENT,	      /* nothing to a REQUEST */
	OTHER_TOKENS, /* REPLYs to what nobody asked, for ever */
	TWICE,	      /* the same REPLY again, many times */
	NEW_ACKS,     /* HELLO_ACKs of ever new lives, for ever */
	PROGRESS,     /* "I am at it", for ever */
	GARBAGE,      /* of its session, for ever */
};

/* A way to lie; zero is the truth. */
static const struct lie {
	const char *name;
	uint32_t want; /* how a commit ends */
	bool deaf;     /* no HELLO_ACK */
	uint32_t ack_status;
	uint16_t ack_at, ack_value; /* a u16 of HELLO_ACK instead; 0: none */
	enum what what;
	uint32_t status;
	uint8_t less_level, less_class;
	uint64_t other_life; /* added to the incarnation of a REPLY */
} lies[] = {
	{.name = "the truth", .want = 0},
	{.name = "no HELLO_ACK", .want = RP_ST_TIMEOUT, .deaf = true},
	{.name = "no REPLY", .want = RP_ST_TIMEOUT, .what = SILENT},
	{.name = "HELLO_ACK without credits",
	 .want = RP_ST_TIMEOUT,
	 .ack_at = 44},
	{.name = "HELLO_ACK with room for one range",
	 .want = RP_ST_UNSUPPORTED,
	 .ack_at = 46,
	 .ack_value = 1},
	{.name = "HELLO_ACK with bytes that are reserved",
	 .want = RP_ST_TIMEOUT,
	 .ack_at = 52,
	 .ack_value = 1},
	{.name = "HELLO_ACK that is overloaded for ever",
	 .want = RP_ST_OVERLOADED,
	 .ack_status = RP_ST_OVERLOADED},
	{.name = "HELLO_ACK of an unknown status",
	 .want = 40,
	 .ack_status = 40},
	{.name = "REPLY of an unknown status", .want = 63, .status = 63},
	/* An initiator's own word: nobody else may say it. */
	{.name = "REPLY of a status that does not travel",
	 .want = RP_ST_TIMEOUT,
	 .status = RP_ST_WRITE_FAILED},
	{.name = "REPLY of the highest status",
	 .want = RP_ST_TIMEOUT,
	 .status = UINT32_MAX},
	{.name = "REPLY that is overloaded for ever",
	 .want = RP_ST_OVERLOADED,
	 .status = RP_ST_OVERLOADED},
	{.name = "REPLY that knows no session",
	 .want = RP_ST_NO_SESSION,
	 .status = RP_ST_NO_SESSION},
	{.name = "REPLY of a lower level",
	 .want = RP_ST_CLASS,
	 .less_level = 1},
	{.name = "REPLY of a lower class",
	 .want = RP_ST_CLASS,
	 .less_class = 1},
	{.name = "REPLY of another life",
	 .want = RP_ST_INCARNATION,
	 .other_life = 1},
	{.name = "REPLYs to what nobody asked",
	 .want = RP_ST_TIMEOUT,
	 .what = OTHER_TOKENS},
	{.name = "REPLY again and again", .want = 0, .what = TWICE},
	{.name = "ever new lives", .want = RP_ST_TIMEOUT, .what = NEW_ACKS},
	{.name = "garbage in the session",
	 .want = RP_ST_TIMEOUT,
	 .what = GARBAGE},
};
static const struct lie *lie;

/* --- the target --- */

#define LIFE 77

static struct side me;
static fi_addr_t victim;
static uint64_t cookie, token, flood;
static uint8_t in[RP_WIRE_MAX_MSG];

static void answer(const void *msg, size_t len)
{
	if (len <= 64) {
		POST(&me, fi_tinject(me.ep, msg, len, victim, CTRL_BIT));
	} else {
		static uint8_t copy[RP_WIRE_MAX_MSG];

		memcpy(copy, msg, len);
		POST(&me,
		     fi_tsend(me.ep, copy, len, NULL, victim, CTRL_BIT, NULL));
	}
}

static struct rp_wire_hdr hdr(uint8_t type)
{
	return (struct rp_wire_hdr){
		.type = type,
		.session = cookie,
		.token = token,
		.incarnation = LIFE,
	};
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++, v >>= 8)
		p[i] = (uint8_t)v;
}

static void send_ack(uint64_t life)
{
	struct rp_wire_hdr h = hdr(RP_MSG_HELLO_ACK);
	struct rp_wire_hello_ack m = {
		.cookie = life,
		.credits = 8,
		.max_ranges = RP_WIRE_MAX_RANGES,
	};
	uint8_t buf[64];

	if (lie->deaf)
		return;
	if (lie->ack_status)
		m = (struct rp_wire_hello_ack){.status = RP_ST_OVERLOADED};
	h.incarnation = life;
	MUST(rp_wire_put_hello_ack(buf, sizeof(buf), &h, &m));
	if (lie->ack_status)
		put_u32(buf + 40, lie->ack_status);
	if (lie->ack_at) {
		buf[lie->ack_at] = (uint8_t)lie->ack_value;
		buf[lie->ack_at + 1] = 0;
	}
	answer(buf, 56);
}

static void send_reply(uint64_t of)
{
	struct rp_wire_hdr h = hdr(RP_MSG_REPLY);
	struct rp_wire_reply m = {.status = RP_ST_RANGE, .range = 167};
	uint8_t buf[64];

	if (!lie->status) {
		m.status = RP_ST_OK;
		m.level = RP_LEVEL_DURABLE - lie->less_level;
		m.class = RP_CLASS_POWER - lie->less_class;
		m.method = RP_METHOD_AGENT_MSYNC;
	}
	h.token = of;
	h.incarnation = LIFE + lie->other_life;
	MUST(rp_wire_put_reply(buf, sizeof(buf), &h, &m));
	put_u32(buf + 32, lie->status);
	answer(buf, 48);
}

static void send_info(void)
{
	struct rp_wire_hdr h = hdr(RP_MSG_INFO);
	struct rp_wire_info m = {.length = 1, .why = "it is so"};
	uint8_t buf[400];
	int len;

	len = (int)MUST(rp_wire_put_info(buf, sizeof(buf), &h, &m));
	/* Whatever a terminal does with it. */
	memcpy(buf + 74, "\033[2J\r\007\0\377", 8);
	answer(buf, (size_t)len);
}

/* What goes on without being asked. */
static void go_on(void)
{
	struct rp_wire_hdr h = hdr(RP_MSG_PROGRESS);
	uint8_t buf[RP_WIRE_MAX_MSG];

	if (!token || lie->what == ANSWER || lie->what == SILENT) {
		usleep(200);
		return;
	}
	flood++;
	switch (lie->what) {
	case OTHER_TOKENS:
		send_reply(token + flood);
		break;
	case TWICE:
		send_reply(token);
		break;
	case NEW_ACKS:
		send_ack(LIFE + flood);
		break;
	case PROGRESS:
		MUST(rp_wire_put_empty(buf, sizeof(buf), &h));
		answer(buf, RP_WIRE_HDR);
		usleep(1000);
		break;
	case GARBAGE:
		MUST(rp_wire_put_empty(buf, sizeof(buf), &h));
		for (size_t n = RP_WIRE_HDR; n < 64; n++)
			buf[n] = (uint8_t)(flood * n >> 3);
		buf[3] = (uint8_t)(RP_MSG_HELLO_ACK + flood % 5);
		buf[4] = (uint8_t)(RP_WIRE_HDR + flood % 32);
		if (buf[3] != RP_MSG_PROGRESS || buf[4] != RP_WIRE_HDR)
			answer(buf, buf[4]);
		break;
	default:
		break;
	}
}

static void listen_again(void)
{
	POST(&me, fi_trecv(me.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC,
			   CTRL_BIT, ~CTRL_BIT, in));
}

static void take(size_t len)
{
	struct rp_wire_hello m;
	struct rp_wire_hdr h;

	if (rp_wire_get_hdr(in, len, &h))
		MUST(-FI_EIO);
	switch (h.type) {
	case RP_MSG_HELLO:
		if (rp_wire_get_hello(in, &h, &m))
			MUST(-FI_EIO);
		cookie = m.cookie;
		MUST(fi_av_insert(me.av, m.addr, 1, &victim, 0, NULL));
		send_ack(LIFE);
		break;
	case RP_MSG_REQUEST:
		token = h.token;
		if (lie->what == ANSWER || lie->what == TWICE)
			send_reply(token);
		break;
	case RP_MSG_QUERY:
		token = h.token;
		send_info();
		break;
	default:
		break;
	}
}

static void target(int fd)
{
	const struct pair_opts raw = {.prov = "tcp"};
	struct rp_key key = {.base = 1,
			     .random = 1,
			     .persistent = true,
			     .class = RP_CLASS_POWER,
			     .method = RP_METHOD_AGENT_MSYNC};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct card c;
	ssize_t n;

	side_open(&me, &raw);
	side_card(&me, &c);
	c.pool_key = rp_key_make(&key);
	if (write(fd, &c, sizeof(c)) != sizeof(c))
		_exit(1);
	listen_again();
	for (;;) {
		n = fi_cq_read(me.cq, &e, 1);
		if (n == -FI_EAVAIL)
			fi_cq_readerr(me.cq, &err, 0);
		if (n == 1 && e.op_context == in) {
			take(e.len);
			listen_again();
		}
		go_on();
	}
}

static const char *start(struct duo *d, struct card *c)
{
	int fds[2];

	if (pipe(fds))
		return "no pipe";
	d->target = fork();
	if (!d->target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		target(fds[1]);
	}
	close(fds[1]);
	if (read(fds[0], c, sizeof(*c)) != sizeof(*c))
		return "no card";
	close(fds[0]);
	return NULL;
}

/* --- the initiator --- */

static const char *one_commit(struct duo *d)
{
	const struct pair_opts plain = {0};
	const double limit = 3.0 * atoi(getenv("FI_OFI_RPMEM_TIMEOUT")) / 1000;
	double took, waited;
	struct card c;
	struct side s;
	int st;

	if (start(d, &c))
		return "no target";
	duo_open(&s, &plain, &c);
	took = duo_now();
	waited = duo_waited();
	st = duo_commit(&s, &c, 0, 64);
	took = duo_now() - took;
	waited = duo_waited() - waited;
	if (st != (int)lie->want)
		FAIL("the commit ended with %d, not %u", st, lie->want);
	if (took > limit + waited + 2)
		FAIL("that took %.1f s", took);
	if (!side_quiet(&s))
		return "it ended twice";
	side_close(&s);
	return NULL;
}

/* For as long as the target says that it is at work; not for ever. */
static const char *progress_for_ever(struct duo *d)
{
	const struct pair_opts plain = {0};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct fi_rma_iov r;
	struct card c;
	struct side s;
	double end;

	if (start(d, &c))
		return "no target";
	duo_open(&s, &plain, &c);
	r = (struct fi_rma_iov){c.pool_addr, 64, c.pool_key};
	POST(&s, fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	end = duo_now() + 3.0 * IMPATIENT_MS / 1000;
	while (duo_now() < end)
		if (fi_cq_read(s.cq, &e, 1) != -FI_EAGAIN)
			return "it ended although the target was at work";
	/* Whoever has waited enough gives up the peer. */
	MUST(fi_av_remove(s.av, &s.peer, 1, 0));
	if (side_wait(&s, &e, &err) || err.prov_errno != FI_RPMEM_ST_CANCELED)
		return "giving up the peer did not end it";
	side_close(&s);
	return NULL;
}

static const char *info_for_a_terminal(struct duo *d)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	const struct pair_opts plain = {0};
	struct card c;
	struct side s;
	int ret;

	if (start(d, &c))
		return "no target";
	duo_open(&s, &plain, &c);
	strcpy(attr.why, "untouched");
	ret = fi_rpmem_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_POWER,
			     &attr);
	/* Not what a target says: as good as nothing. */
	if (ret != -FI_ETIMEDOUT)
		FAIL("the query ended with %d", ret);
	if (strcmp(attr.why, "untouched"))
		return "bytes of it came through";
	side_close(&s);
	return NULL;
}

static void patience(int ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", ms);
	duo_env("FI_OFI_RPMEM_TIMEOUT", text);
}

int main(int argc, char **argv)
{
	static const struct lie at_it = {.what = PROGRESS}, truth = {0};

	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		if (argc > 1 && !strstr(lies[i].name, argv[1]))
			continue;
		lie = &lies[i];
		patience(lie->want == RP_ST_TIMEOUT ||
					 lie->want == RP_ST_OVERLOADED
				 ? IMPATIENT_MS
				 : PATIENT_MS);
		duo_case(lie->name, one_commit);
	}
	lie = &at_it;
	patience(IMPATIENT_MS);
	duo_case("PROGRESS for ever", progress_for_ever);
	lie = &truth;
	duo_case("INFO with what a terminal obeys", info_for_a_terminal);
	return tap_done();
}
