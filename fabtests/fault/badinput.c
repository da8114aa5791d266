// SPDX-License-Identifier: BSD-2-Clause
/* Each kind of bad input gets its own error, and the target keeps serving. */
#include "config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/duo.h"
#include "fault/frame_peer.h"

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

static const struct pair_opts plain;

/*
 * Post a commit that fi_rpmem_commit() itself refuses, without sending it.
 * Returns the negative error.
 */
static ssize_t commit_refused(struct side *s, uint64_t key, uint64_t addr,
			      uint64_t len, fi_addr_t to)
{
	struct fi_rma_iov r = {addr, len, key};
	ssize_t ret;

	while ((ret = commit_post(s->ep, &r, 1, to, FI_RPMEM_DURABLE,
				  FI_RPMEM_CLASS_DEFAULT, NULL, NULL)) ==
	       -FI_EAGAIN)
		side_poke(s);
	return ret;
}

#define SAYS(words)                                                            \
	do {                                                                   \
		if (!duo_has_said(words))                                      \
			FAIL("nothing says \"%s\"", words);                    \
	} while (0)

#define EXPECT(got, want)                                                      \
	do {                                                                   \
		long long g_ = (got), w_ = (want);                             \
		if (g_ != w_)                                                  \
			FAIL("%s is %lld, not %lld", #got, g_, w_);            \
	} while (0)

static const char *keys_and_ranges(struct duo *d)
{
	struct card c, bad;
	struct side s;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	EXPECT(duo_commit(&s, &c, 0, 64), 0);
	bad = c;
	bad.pool_key ^= 0x10001;
	EXPECT(duo_commit(&s, &bad, 0, 64), RP_ST_STALE_KEY);
	bad.pool_key = c.pool_key ^ 1ull << 39;
	EXPECT(duo_commit(&s, &bad, 0, 64), RP_ST_STALE_KEY);
	/*
	 * Bits 40 to 55 of a key are the target's port: no process listens on
	 * port 1.
	 */
	bad.pool_key = (c.pool_key & ~(0xffffull << 40)) | 1ull << 40;
	EXPECT(duo_commit(&s, &bad, 0, 64), RP_ST_LOST);
	EXPECT(duo_commit(&s, &c, PAIR_POOL - 63, 64), RP_ST_RANGE);
	EXPECT(duo_commit(&s, &c, PAIR_POOL, 1), RP_ST_RANGE);
	EXPECT(duo_commit(&s, &c, 1ull << 40, 1), RP_ST_RANGE);
	EXPECT(duo_commit(&s, &c, 0, PAIR_POOL), 0);
	EXPECT(commit_refused(&s, c.pool_key, 64, UINT64_MAX - 32, s.peer),
	       -FI_EINVAL);
	SAYS("are no valid range: empty, or wrapping");
	EXPECT(commit_refused(&s, c.pool_key, 0, 0, s.peer), -FI_EINVAL);
	SAYS("are no valid range: empty, or wrapping");
	EXPECT(commit_refused(&s, 1, 0, 64, s.peer), -FI_EKEYREJECTED);
	EXPECT(commit_refused(&s, c.pool_key, 0, 64, 77), -FI_EINVAL);
	EXPECT(commit_refused(&s, c.pool_key, 0, 64, FI_ADDR_UNSPEC),
	       -FI_EINVAL);
	EXPECT(duo_commit(&s, &c, 0, 64), 0);
	side_close(&s);
	return NULL;
}

static const char *check_calls(struct duo *d)
{
	struct fi_rpmem_then then = {0};
	struct fi_rpmem_attr attr = {.size = 8};
	struct fi_rma_iov r;
	struct iovec iov = {(char *)"x", 1};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
	struct fi_msg_rma w = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &r,
		.rma_iov_count = 1,
	};
	struct card c;
	struct side s;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	r = (struct fi_rma_iov){c.pool_addr, 1, c.pool_key};
	m.addr = w.addr = s.peer;
	EXPECT(commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, &then, NULL),
	       -FI_EKEYREJECTED);
	then.addr = 4;
	EXPECT(commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, &then, NULL),
	       -FI_EINVAL);
	EXPECT(commit_post(s.ep, &r, 1, s.peer, 9, FI_RPMEM_CLASS_DEFAULT, NULL,
			   NULL),
	       -FI_EINVAL);
	EXPECT(commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE, 9, NULL,
			   NULL),
	       -FI_EINVAL);
	EXPECT(commit_post(s.ep, &r, 0, s.peer, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, NULL, NULL),
	       -FI_EINVAL);
	EXPECT(key_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_DEFAULT,
			 &attr),
	       -FI_EINVAL);
	EXPECT(fi_sendmsg(s.ep, &m, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
	EXPECT(fi_readmsg(s.ep, &w, FI_COMMIT_COMPLETE), -FI_EINVAL);
	/* One byte of data for a remote range of no bytes. */
	r.len = 0;
	EXPECT(fi_writemsg(s.ep, &w, FI_COMMIT_COMPLETE), -FI_EINVAL);
	EXPECT(fi_readmsg(s.ep, &w, 0), -FI_EINVAL);
	EXPECT(side_quiet(&s), 1);
	side_close(&s);
	return NULL;
}

/*
 * fi_mr_reg(FI_RMA_PMEM) refuses memory that cannot be persistent, and the log
 * says why.
 */
static const char *check_registrations(struct duo *d)
{
	const size_t len = 65536;
	char path[] = "bad_pool.XXXXXX";
	int fd = mkstemp(path);
	struct fid_mr *mr;
	struct side s;
	void *p;

	side_open(&s, &plain);
	if (fd < 0 || posix_fallocate(fd, 0, (off_t)len))
		return "no file";
#define REG(addr)                                                              \
	fi_mr_reg(s.domain, (addr), len, FI_REMOTE_WRITE, 0, 0, FI_RMA_PMEM,   \
		  &mr, NULL)
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	EXPECT(REG(p), -FI_EOPNOTSUPP);
	SAYS("private mapping of ");
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	EXPECT(REG(p), -FI_EOPNOTSUPP);
	SAYS("anonymous memory: dies with its process");
	p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	EXPECT(REG(p), -FI_EFAULT);
	SAYS("not readable and writable");
	munmap(p, len);
	EXPECT(REG(p), -FI_EFAULT);
	SAYS("nothing is mapped at");
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pair_over("verbs")) {
		/*
		 * Over verbs, pages of a file may move: only device DAX is
		 * registered.
		 */
		EXPECT(REG(p), -FI_EOPNOTSUPP);
		SAYS("or devdax");
	} else {
		EXPECT(REG(p), 0);
		EXPECT(fi_close(&mr->fid), 0);
	}
	unlink(path); /* the mapping remains, but no name leads to its bytes
		       * after a failure */
	EXPECT(REG(p), -FI_EOPNOTSUPP);
	SAYS("no name leads to");
#undef REG
	side_close(&s);
	return NULL;
}

static const char *weak_class(struct duo *d)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct fi_rma_iov r;
	struct card c;
	struct side s;
	char text[256];

	snprintf(d->pool, sizeof(d->pool), "/dev/shm/duo_pool.%d", getpid());
	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	r = (struct fi_rma_iov){c.pool_addr, 64, c.pool_key};
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, NULL));
	if (side_wait(&s, &e, &err))
		return "tmpfs gave class power";
	EXPECT(err.prov_errno, RP_ST_CLASS);
	EXPECT(err.err, FI_EOPNOTSUPP);
	fi_cq_strerror(s.cq, err.prov_errno, err.err_data, text, sizeof(text));
	/* The error text names both failure classes and the remedy. */
	if (!strstr(text, "reaches process, power is required") ||
	    !strstr(text, "FI_OFI_RPMEM_CLASS"))
		FAIL("the error says only: %.100s", text);
	EXPECT(key_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_POWER, &attr),
	       0);
	EXPECT(attr.prov_errno, RP_ST_CLASS);
	EXPECT(attr.region_class, FI_RPMEM_CLASS_PROCESS);
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_PROCESS, NULL, NULL));
	EXPECT(side_wait(&s, &e, &err), 1);
	side_close(&s);
	unlink(d->pool);
	return NULL;
}

/* --- malformed and dishonest messages --- */

/* The last reply on conn, decoded: its header, and its REPLY or INFO. */
static struct rp_wire_hdr last;
static struct rp_wire_reply reply;
static struct rp_wire_info info;

static void take_message(struct frame_conn *c, const uint8_t *msg, size_t len)
{
	MUST(rp_wire_get_hdr(msg, len, &last));
	if (last.type == RP_MSG_REPLY)
		MUST(rp_wire_get_reply(msg, &last, &reply));
	if (last.type == RP_MSG_INFO)
		MUST(rp_wire_get_info(msg, &last, &info));
}

static const struct frame_events events = {.received = take_message};

static struct frame_peer me;
static struct frame_conn *conn;
static uint64_t token;

/*
 * Connect with this HELLO. Returns 0 and *conn, the status of the refusal, or
 * -1 without a reply.
 */
static int hello_status(const struct card *c, const uint8_t *msg, size_t len)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(rp_key_port(c->pool_key)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rp_wire_hello_ack ack;
	int ret;

	if (conn)
		frame_end(conn);
	conn = frame_dial(&me, &to, msg, len);
	frame_wait(conn, 10000);
	ret = rp_wire_get_hello_ack(conn->data, conn->data_len, &ack);
	if (ret || (conn->was_up && ack.status) ||
	    (!conn->was_up && !ack.status))
		return -1;
	return (int)ack.status;
}

static size_t make_hello(uint8_t *buf, uint64_t key)
{
	const struct rp_wire_hello m = {
		.key = key, .initiator = 4711, .timeout_ms = 1000};

	return (size_t)MUST(rp_wire_put_hello(buf, RP_WIRE_CM_DATA, &m));
}

/*
 * Send a message. Returns the reply's status; -1 if the connection ended; -2 if
 * neither a reply nor the end came in 10 seconds.
 */
static int reply_status(const uint8_t *msg, size_t len)
{
	const uint64_t until = frame_now_ms() + 10000;

	last = (struct rp_wire_hdr){0};
	if (!frame_send(conn, msg, len))
		return -1;
	while (last.token != token && frame_now_ms() < until) {
		frame_poll(&me);
		if (conn->state == FRAME_ENDED)
			return -1;
	}
	if (last.token != token)
		return -2;
	return (int)(last.type == RP_MSG_INFO ? info.status : reply.status);
}

static const char *bad_hellos(struct duo *d)
{
	uint8_t buf[FRAME_DATA] = {0};
	struct card c, other;
	struct side good;
	size_t len;

	duo_start(d, &plain, &c);
	duo_open(&good, &plain, &c);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	frame_open(&me, &events);
	len = make_hello(buf, c.pool_key);
	EXPECT(hello_status(&c, buf, len), 0);
	EXPECT(hello_status(&c, buf, RP_WIRE_CM_DATA),
	       0); /* trailing zeros are allowed: rdma_cm pads private data
		    * with them */
	for (size_t n = 0; n < len; n++)
		EXPECT(hello_status(&c, buf, n), RP_ST_BAD_MESSAGE);
	buf[2] = RP_WIRE_VERSION + 1;
	EXPECT(hello_status(&c, buf, len), RP_ST_VERSION);
	buf[2] = RP_WIRE_VERSION - 1;
	EXPECT(hello_status(&c, buf, len), RP_ST_VERSION);
	buf[2] = RP_WIRE_VERSION;
	buf[0] ^= 1;
	EXPECT(hello_status(&c, buf, len), RP_ST_BAD_MESSAGE);
	buf[0] ^= 1;
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	/*
	 * HELLO with any wrong key gets the same status, whichever field of the
	 * key is wrong: a guess learns nothing.
	 */
	other = c;
	for (int bit = 0; bit < 64; bit += 7) {
		make_hello(buf, c.pool_key ^ 1ull << bit);
		EXPECT(hello_status(&other, buf, len), RP_ST_STALE_KEY);
	}
	make_hello(buf, 0);
	EXPECT(hello_status(&c, buf, len), RP_ST_STALE_KEY);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	frame_end(conn);
	frame_close(&me);
	side_close(&good);
	return NULL;
}

/*
 * Well-formed requests for ranges or keys that the target has not granted. A
 * wrong key ends the connection; another session (good) is not disturbed.
 */
static const char *check_lies(struct duo *d)
{
	uint8_t buf[RP_WIRE_MAX_MSG], hello[RP_WIRE_CM_DATA];
	struct rp_wire_query q = {0};
	struct side good;
	struct card c;
	size_t len;

	duo_start(d, &plain, &c);
	duo_open(&good, &plain, &c);
	frame_open(&me, &events);
	make_hello(hello, c.pool_key);
	EXPECT(hello_status(&c, hello, RP_WIRE_CM_DATA - 16), 0);

	const uint64_t key = c.pool_key, addr = c.pool_addr;
	const struct {
		struct rp_wire_range range;
		int status;
		bool ends; /* the message ends the connection */
	} cases[] = {
		{{key, addr, 64}, RP_ST_OK, false},
		{{key, addr + PAIR_POOL - 63, 64}, RP_ST_RANGE, false},
		{{key, addr + 64, UINT64_MAX - 32}, RP_ST_WRAP, false},
		{{key, addr, 0}, RP_ST_WRAP, false},
		{{key, addr, 64}, RP_ST_OK, false},
		{{key ^ 0x10001, addr, 64}, RP_ST_STALE_KEY, true},
		{{key ^ 1ull << 39, addr, 64}, RP_ST_STALE_KEY, true},
		{{0, addr, 64}, RP_ST_STALE_KEY, true},
		{{key, addr, 64}, RP_ST_OK, false},
	};
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		m.ranges = &cases[i].range;
		len = (size_t)MUST(
			rp_wire_put_request(buf, sizeof(buf), ++token, &m));
		EXPECT(reply_status(buf, len), cases[i].status);
		if (cases[i].ends) {
			EXPECT(frame_wait_end(conn, 10000), 1);
			EXPECT(hello_status(&c, hello, 40), 0);
		}
		EXPECT(duo_commit(&good, &c, 0, 64), 0);
	}
	q.key = key ^ 2;
	len = (size_t)MUST(rp_wire_put_query(buf, sizeof(buf), ++token, &q));
	EXPECT(reply_status(buf, len), RP_ST_STALE_KEY);
	EXPECT(frame_wait_end(conn, 10000), 1);
	/* A malformed message closes the connection and gets no reply. */
	len = (size_t)MUST(rp_wire_put_request(buf, sizeof(buf), ++token, &m));
	EXPECT(hello_status(&c, hello, 40), 0);
	buf[4] = (uint8_t)(len - 8);
	EXPECT(reply_status(buf, len - 8), -1);
	buf[4] = (uint8_t)len;
	EXPECT(hello_status(&c, hello, 40), 0);
	buf[2] = RP_WIRE_VERSION + 1;
	EXPECT(reply_status(buf, len), -1);
	buf[2] = RP_WIRE_VERSION;
	EXPECT(hello_status(&c, hello, 40), 0);
	EXPECT(reply_status(buf, len), RP_ST_OK);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	frame_end(conn);
	frame_close(&me);
	side_close(&good);
	return NULL;
}

/*
 * A commit to a peer without agent fails in the call itself, and the provider
 * sends the peer nothing.
 */
static const char *peer_without_agent(struct duo *d)
{
	const struct pair_opts raw = {.prov = "tcp"};
	struct card c = {0};
	struct side s, other;

	side_open(&other, &raw);
	side_card(&other, &c);
	duo_open(&s, &plain, &c);
	EXPECT(commit_refused(&s, 0x1234, 0, 64, s.peer), -FI_EKEYREJECTED);
	EXPECT(side_quiet(&other), 1);
	side_close(&s);
	side_close(&other);
	return NULL;
}

int main(void)
{
	setbuf(stdout, NULL);
	duo_env("FI_OFI_RPMEM_TIMEOUT", "3000");
	duo_listening_case("keys and ranges", keys_and_ranges);
	duo_case("calls with bad arguments", check_calls);
	duo_listening_case("memory that is not persistent",
			   check_registrations);
	duo_case("a class that is not met", weak_class);
	if (pair_over("verbs")) {
		tap_skip("an initiator that lies", "it speaks tcp only");
	} else {
		duo_case("HELLOs that are refused, each with its status",
			 bad_hellos);
		duo_case("an initiator that lies, beside one that is served",
			 check_lies);
	}
	duo_case("a peer without ofi_rpmem", peer_without_agent);
	return tap_done();
}
