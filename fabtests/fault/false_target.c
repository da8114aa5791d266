// SPDX-License-Identifier: BSD-2-Clause
/*
 * An initiator between a target that sends false messages and one that keeps to
 * the protocol: false messages fail their own operations, and disturb nothing
 * else.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "fault/duo.h"
#include "fault/false_target_cases.h"

/*
 * FI_OFI_RPMEM_TIMEOUT: long for lies that are noticed, short for those that
 * only the timeout ends.
 */
#define PATIENT_MS   10000
#define IMPATIENT_MS 1000
#define MORE_RSS     (64u << 20)

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

static const struct lie *lie;

/* --- the target --- */

static struct frame_peer me;
static struct frame_conn *conn; /* the latest connection */
#define RKEY 4711
static uint64_t token, requests;
static uint8_t memory[FALSE_GRANTED];
/* Shared with the initiator: number of HELLOs, and the last two initiators. */
static struct {
	unsigned int n;
	uint64_t number[2];
} * hellos;

static size_t make_ack(uint8_t *buf)
{
	struct rp_wire_hello_ack m = {
		.incarnation = 77,
		.credits = 8,
		.grant = {.rkey = RKEY,
			  .addr = FALSE_ADDR,
			  .length = FALSE_GRANTED,
			  .class = RP_CLASS_POWER,
			  .method = RP_METHOD_AGENT_MSYNC,
			  .writable = true},
	};
	size_t len;

	if (lie->ack_status)
		m = (struct rp_wire_hello_ack){.status = RP_ST_OVERLOADED};
	memset(buf, 0xe5, FRAME_DATA);
	len = (size_t)MUST(rp_wire_put_hello_ack(buf, FRAME_DATA, &m));
	if (lie->ack_status)
		wire_put(buf + ACK_STATUS, 4, lie->ack_status);
	if (lie->size)
		wire_put(buf + lie->at, lie->size, lie->value);
	if (lie->ack_len)
		return lie->ack_len == SIZE_MAX ? 0 : lie->ack_len;
	return len;
}

static void take_connection(struct frame_peer *p, struct frame_call *call,
			    const uint8_t *data, size_t len)
{
	uint8_t ack[FRAME_DATA];
	struct rp_wire_hello m;
	size_t n = make_ack(ack);

	if (rp_wire_get_hello(data, len, &m))
		MUST(-FI_EIO);
	hellos->number[hellos->n % 2] = m.initiator;
	__atomic_fetch_add(&hellos->n, 1, __ATOMIC_RELEASE);
	switch (lie->how) {
	case ACCEPT:
		conn = frame_accept(p, call, ack, n);
		break;
	case DEAF:
		break;
	case REJECT:
		frame_reject(p, call, ack, n);
		break;
	case REJECT_RAW:
		memset(ack, 0xe5, sizeof(ack));
		frame_reject(p, call, ack, lie->ack_len);
		break;
	}
}

static void send_reply(uint64_t of)
{
	struct rp_wire_reply m = {.status = RP_ST_RANGE, .range = 167};
	uint8_t buf[RP_WIRE_MAX_REPLY] = {0};
	size_t len;

	if (!lie->status) {
		m.status = RP_ST_OK;
		m.level = RP_LEVEL_DURABLE;
		m.class = RP_CLASS_POWER;
		m.method = RP_METHOD_AGENT_MSYNC;
	}
	len = (size_t)MUST(rp_wire_put_reply(buf, sizeof(buf), of, &m));
	if (lie->status)
		wire_put(buf + REPLY_STATUS, 4, lie->status);
	if (lie->reply_at)
		buf[lie->reply_at] = lie->reply_value;
	len += lie->result;
	wire_put(buf + 4, 4, len);
	frame_send(conn, buf, lie->what == HALF ? len / 2 : len);
}

static void send_info(void)
{
	const struct rp_wire_info m = {
		.why = "it is so",
		.grant = {.length = 64, .method = RP_METHOD_FENCE},
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_info(buf, sizeof(buf), token, &m);

	/*
	 * Overwrite a part of `why` with control characters that a terminal
	 * would execute.
	 */
	memcpy(buf + 80, "\033[2J\r\007\0\377", 8);
	frame_send(conn, buf, (size_t)MUST(len));
}

static void send_request(void)
{
	const struct rp_wire_request m = {.level = RP_LEVEL_VISIBLE};
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_request(buf, sizeof(buf), token, &m);

	frame_send(conn, buf, (size_t)MUST(len));
}

static void reply_falsely(void)
{
	uint8_t buf[FRAME_MAX];

	switch (lie->what) {
	case ANSWER:
	case HALF:
		send_reply(token);
		break;
	case SILENT:
		break;
	case OTHER_TOKENS:
		for (uint64_t i = 1; i < 100; i++)
			send_reply(token + i);
		break;
	case TWICE:
		for (int i = 0; i < 100; i++)
			send_reply(token);
		break;
	case INFOS:
		send_info();
		break;
	case REQUEST_BACK:
		send_request();
		break;
	case CLOSES:
		frame_shut(conn);
		break;
	case TOO_LONG:
		memset(buf, 0, sizeof(buf));
		frame_send(conn, buf, sizeof(buf));
		break;
	case GARBAGE:
		for (size_t n = 0; n < 200; n++)
			buf[n] = (uint8_t)(requests * n >> 3);
		frame_send(conn, buf, 200);
		break;
	case RDMA:
		memset(buf, 0xee, sizeof(buf));
		frame_write(conn, buf, 64, 0, 0);
		frame_write(conn, buf, 64, 0, 1);
		frame_write(conn, buf, sizeof(buf), UINT64_MAX - 8, 2);
		send_reply(token);
		break;
	}
}

static void take_message(struct frame_conn *c, const uint8_t *msg, size_t len)
{
	struct rp_wire_hdr h;

	conn = c;
	if (rp_wire_get_hdr(msg, len, &h))
		MUST(-FI_EIO);
	token = h.token;
	requests++;
	if (h.type == RP_MSG_QUERY)
		send_info();
	else
		reply_falsely();
}

static const struct frame_events events = {
	.received = take_message,
	.requested = take_connection,
};

/* Write the listener's address and key to fd. */
static void show_card(int fd, uint16_t port)
{
	const struct rp_key key = {
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
		.port = port,
		.random = 1,
	};
	const struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct card c = {.len = sizeof(at), .pool_addr = FALSE_ADDR};

	memcpy(c.name, &at, sizeof(at));
	c.pool_key = rp_key_make(&key);
	if (write(fd, &c, sizeof(c)) != sizeof(c))
		_exit(1);
}

static void run_target(int fd)
{
	uint8_t progress[64];
	size_t len = (size_t)MUST(rp_wire_put_signal(progress, sizeof(progress),
						     RP_MSG_PROGRESS));

	frame_open(&me, &events);
	frame_serve(&me, memory, sizeof(memory), RKEY);
	if (!frame_listen(&me, 0))
		_exit(1);
	show_card(fd, ntohs(me.at.sin_port));
	for (;;) {
		if (!frame_poll(&me) && !lie->flood)
			usleep(200);
		if (lie->flood && conn && conn->state == FRAME_UP)
			frame_send(conn, progress, len);
	}
}

/*
 * A program that is no target listens on the port of the key. talks: it writes
 * bytes of another protocol.
 */
static void other_program(int fd, bool talks)
{
	static const char text[] = "220 mail ESMTP\r\n500 what?\r\n";
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM, 0), one;
	char buf[512];

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (l < 0 || bind(l, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(l, 64) || getsockname(l, (struct sockaddr *)&at, &len))
		_exit(1);
	show_card(fd, ntohs(at.sin_port));
	for (;;) {
		one = accept(l, NULL, NULL);
		for (int i = 0; talks && one >= 0 && i < 100; i++)
			send(one, text, sizeof(text), MSG_NOSIGNAL);
		if (talks && one >= 0 && recv(one, buf, sizeof(buf), 0) >= 0)
			close(one);
	}
}

enum who {
	FALSE_TARGET,
	SILENT_PROGRAM,
	TALKING_PROGRAM,
};

static pid_t start_target(enum who who, struct card *c)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		MUST(-errno);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (who == FALSE_TARGET)
			run_target(fds[1]);
		other_program(fds[1], who == TALKING_PROGRAM);
	}
	close(fds[1]);
	if (read(fds[0], c, sizeof(*c)) != sizeof(*c))
		MUST(-EPIPE);
	close(fds[0]);
	return pid;
}

/* --- the initiator --- */

static long resident_kib(void)
{
	long size, rss = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return rss * 4096;
}

/*
 * An initiator with a false target (bad) and a target that keeps to the
 * protocol (good).
 */
struct both {
	struct side s;
	struct card bad, good;
	fi_addr_t bad_peer, good_peer;
	long rss;
};

static const char *open_both(struct duo *d, enum who who, struct both *b)
{
	const struct pair_opts plain = {.caps = FI_ATOMIC};

	duo_start(d, &plain, &b->good);
	start_target(who, &b->bad);
	duo_open(&b->s, &plain, &b->bad);
	b->bad_peer = b->s.peer;
	side_insert(&b->s, &b->good);
	b->good_peer = b->s.peer;
	if (duo_commit(&b->s, &b->good, 0, 64))
		return "the good target does not serve";
	b->s.peer = b->bad_peer;
	b->rss = resident_kib();
	return NULL;
}

static const char *close_both(struct both *b)
{
	const char *sanitized = getenv("RP_SANITIZE");
	int st;

	if (!side_quiet(&b->s))
		return "it ended twice";
	b->s.peer = b->good_peer;
	st = duo_commit(&b->s, &b->good, 0, 64);
	if (st)
		FAIL("then a commit to the good target ends with %d", st);
	if (resident_kib() > b->rss + MORE_RSS && !(sanitized && *sanitized))
		FAIL("it grew from %ld to %ld KiB", b->rss >> 10,
		     resident_kib() >> 10);
	side_close(&b->s);
	return NULL;
}

static double time_limit(void)
{
	return 3.0 * atoi(getenv("FI_OFI_RPMEM_TIMEOUT")) / 1000;
}

static const char *one_commit(struct duo *d)
{
	double took, waited;
	const char *wrong;
	struct both b;
	int st;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	/*
	 * Commit twice: the second commit starts from the state that the first
	 * lie has left.
	 */
	for (int i = 0; i < 2; i++) {
		took = duo_now();
		waited = duo_waited();
		st = duo_commit(&b.s, &b.bad, 0, 64);
		took = duo_now() - took;
		waited = duo_waited() - waited;
		if (lie->want == FALSE_ANY) {
			printf("# %s: %d\n", lie->name, st);
		} else if (st != (int)lie->want &&
			   !(i && st && lie->what == TWICE) &&
			   !(i && st == RP_ST_LOST &&
			     lie->what == OTHER_TOKENS)) {
			FAIL("commit %d ended with %d, not %u", i, st,
			     lie->want);
		}
		if (took > time_limit() + waited + 2)
			FAIL("that took %.1f s", took);
	}
	return close_both(&b);
}

/*
 * Against a target that accepts no connection, a read, an atomic and a write
 * fail, and the buffers keep their bytes.
 */
static const char *no_data(struct duo *d)
{
	static uint64_t back[8], was[8];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	const uint64_t one = 1;
	const char *wrong;
	struct both b;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	memset(was, 0xa5, sizeof(was));
	memcpy(back, was, sizeof(was));
	POST(&b.s, fi_read(b.s.ep, back, 64, NULL, b.bad_peer, FALSE_ADDR,
			   b.bad.pool_key, back));
	if (side_wait(&b.s, &e, &err) || memcmp(back, was, sizeof(was)))
		return "a read succeeds, or brings bytes";
	POST(&b.s, fi_fetch_atomic(b.s.ep, &one, 1, NULL, back, NULL,
				   b.bad_peer, FALSE_ADDR, b.bad.pool_key,
				   FI_UINT64, FI_SUM, back));
	if (side_wait(&b.s, &e, &err) || memcmp(back, was, sizeof(was)))
		return "an atomic succeeds, or brings a value";
	if (!duo_write(&b.s, &b.bad, 0, 64))
		return "a write succeeds";
	return close_both(&b);
}

/*
 * A REPLY whose fetched value has the wrong length, or no REPLY, ends the
 * atomic with RP_ST_INDETERMINATE.
 */
static const char *check_fetched_length(struct duo *d)
{
	static uint64_t back[8], was[8];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	const uint64_t one = 1;
	const char *wrong;
	struct both b;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	memset(was, 0xa5, sizeof(was));
	memcpy(back, was, sizeof(was));
	POST(&b.s, fi_fetch_atomic(b.s.ep, &one, 1, NULL, back, NULL,
				   b.bad_peer, FALSE_ADDR, b.bad.pool_key,
				   FI_UINT64, FI_SUM, back));
	if (side_wait(&b.s, &e, &err))
		return "it succeeds";
	if (memcmp(back, was, sizeof(was)))
		return "it brings a value";
	/* The target may have executed the atomic. */
	if (err.prov_errno != RP_ST_INDETERMINATE)
		FAIL("status %d", err.prov_errno);
	return close_both(&b);
}

/*
 * Each PROGRESS message extends the deadline, so a flood of them keeps the
 * commit outstanding; the program can cancel it.
 */
static const char *progress_for_ever(struct duo *d)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct fi_rma_iov r;
	const char *wrong;
	struct both b;
	double end;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	r = (struct fi_rma_iov){FALSE_ADDR, 64, b.bad.pool_key};
	POST(&b.s, commit_post(b.s.ep, &r, 1, b.bad_peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	end = duo_now() + 3.0 * IMPATIENT_MS / 1000;
	while (duo_now() < end)
		if (fi_cq_read(b.s.cq, &e, 1) != -FI_EAGAIN)
			return "it ended although the target was at work";
	/* Removing the address cancels the operation. */
	MUST(fi_av_remove(b.s.av, &b.bad_peer, 1, 0));
	if (side_wait(&b.s, &e, &err) || err.prov_errno != RP_ST_CANCELED)
		return "giving up the peer did not end it";
	return close_both(&b);
}

static const char *info_for_a_terminal(struct duo *d)
{
	char why[512] = "untouched";
	struct fi_rpmem_attr attr = QUERY_ATTR(why);
	const char *wrong;
	struct both b;
	int ret;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	ret = key_query(b.s.ep, b.bad_peer, b.bad.pool_key,
			FI_RPMEM_CLASS_POWER, &attr);
	/* An invalid INFO ends the query with an error. */
	if (!ret && attr.prov_errno != RP_ST_BAD_MESSAGE)
		FAIL("the query ends with status %d", attr.prov_errno);
	for (const char *p = why; *p; p++)
		if (*p < ' ' || *p > '~')
			return "bytes of it came through";
	return close_both(&b);
}

static unsigned int hellos_seen(void)
{
	return __atomic_load_n(&hellos->n, __ATOMIC_ACQUIRE);
}

/*
 * Bytes of a failed write may not have arrived when its endpoint is closed: by
 * the number of its session the target closes that connection before it accepts
 * the next one.
 */
static const char *number_of_a_failed_write(struct duo *d)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	const double end = duo_now() + 10;
	struct fi_rma_iov r;
	const char *wrong;
	struct both b;

	wrong = open_both(d, FALSE_TARGET, &b);
	if (wrong)
		return wrong;
	r = (struct fi_rma_iov){FALSE_ADDR, 64, b.bad.pool_key};
	for (unsigned int i = 0; i < 2; i++) {
		POST(&b.s,
		     commit_post(b.s.ep, &r, 1, b.bad_peer, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_DEFAULT, NULL, &r));
		while (hellos_seen() == i && duo_now() < end)
			(void)fi_cq_read(b.s.cq, &e, 0);
		MUST(fi_av_remove(b.s.av, &b.bad_peer, 1, 0));
		if (side_wait(&b.s, &e, &err) ||
		    err.prov_errno != RP_ST_CANCELED)
			return "giving up the peer did not end a commit";
		MUST(fi_close(&b.s.ep->fid));
		side_endpoint(&b.s, b.s.info);
		MUST(fi_enable(b.s.ep));
		side_insert(&b.s, &b.bad);
		b.bad_peer = b.s.peer;
	}
	if (hellos_seen() != 2)
		FAIL("%u connections", hellos_seen());
	if (hellos->number[0] != hellos->number[1])
		return "the next endpoint has another number";
	return close_both(&b);
}

static enum who who;

static const char *another_program(struct duo *d)
{
	double took, waited;
	const char *wrong;
	struct both b;
	int st;

	wrong = open_both(d, who, &b);
	if (wrong)
		return wrong;
	took = duo_now();
	waited = duo_waited();
	st = duo_commit(&b.s, &b.bad, 0, 64);
	took = duo_now() - took;
	waited = duo_waited() - waited;
	printf("# another program: %d in %.1f s\n", st, took);
	if (st != RP_ST_TIMEOUT && st != RP_ST_LOST)
		FAIL("the commit ended with %d", st);
	if (took > time_limit() + waited + 2)
		FAIL("that took %.1f s", took);
	return close_both(&b);
}

static void set_timeout(int ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", ms);
	duo_env("FI_OFI_RPMEM_TIMEOUT", text);
}

static void one_case(const struct lie *l, const char *name, duo_fn fn,
		     const char *only)
{
	lie = l;
	if (!only || strstr(name, only))
		duo_case(name, fn);
}

int main(int argc, char **argv)
{
	static const struct lie truth = {0},
				at_it = {.what = SILENT, .flood = true},
				silent = {.what = SILENT}, deaf = {.how = DEAF},
				closes = {.what = CLOSES},
				short_result = {.result = 4},
				long_result = {.result = 16};
	const char *only = argc > 1 ? argv[1] : NULL;

	hellos = mmap(NULL, sizeof(*hellos), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hellos == MAP_FAILED)
		MUST(-errno);
	setbuf(stdout, NULL);
	for (const struct lie *l = false_target_cases; l->name; l++) {
		set_timeout(l->want == RP_ST_TIMEOUT ||
					    l->want == RP_ST_OVERLOADED
				    ? IMPATIENT_MS
				    : PATIENT_MS);
		one_case(l, l->name, one_commit, only);
	}
	set_timeout(IMPATIENT_MS);
	one_case(&deaf, "no data of a target that is silent", no_data, only);
	one_case(&truth, "an atomic without its old value",
		 check_fetched_length, only);
	one_case(&short_result, "an atomic with half of its old value",
		 check_fetched_length, only);
	one_case(&long_result, "an atomic with two old values",
		 check_fetched_length, only);
	one_case(&closes, "an atomic whose connection ends",
		 check_fetched_length, only);
	one_case(&at_it, "PROGRESS for ever", progress_for_ever, only);
	hellos->n = 0;
	one_case(&silent, "the number of a session whose write failed",
		 number_of_a_failed_write, only);
	one_case(&truth, "INFO with terminal control characters",
		 info_for_a_terminal, only);
	who = SILENT_PROGRAM;
	one_case(&truth, "a silent program at the port", another_program, only);
	who = TALKING_PROGRAM;
	one_case(&truth, "a program at the port that says something else",
		 another_program, only);
	return tap_done();
}
