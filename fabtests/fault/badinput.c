// SPDX-License-Identifier: BSD-2-Clause
/* Bad input: each has its own error, and the target keeps serving the others.
 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/duo.h"

#define CTRL_BIT (1ull << 63)

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

static const struct pair_opts plain;

/* A commit that is refused at once: the negative error. */
static ssize_t refused(struct side *s, uint64_t key, uint64_t addr,
		       uint64_t len, fi_addr_t to)
{
	struct fi_rma_iov r = {addr, len, key};
	ssize_t ret;

	while ((ret = fi_rpmem_commit(s->ep, &r, 1, to, FI_RPMEM_DURABLE,
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
	struct rp_key volatile_key = {.base = 7, .random = 7};
	struct card c, bad;
	struct side s;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	EXPECT(duo_commit(&s, &c, 0, 64), 0);
	bad = c;
	bad.pool_key ^= 0x10001;
	EXPECT(duo_commit(&s, &bad, 0, 64), FI_RPMEM_ST_UNKNOWN_KEY);
	bad.pool_key = c.pool_key ^ 1ull << 50;
	EXPECT(duo_commit(&s, &bad, 0, 64), FI_RPMEM_ST_STALE_KEY);
	EXPECT(duo_commit(&s, &c, PAIR_POOL - 63, 64), FI_RPMEM_ST_RANGE);
	EXPECT(duo_commit(&s, &c, PAIR_POOL, 1), FI_RPMEM_ST_RANGE);
	EXPECT(duo_commit(&s, &c, 1ull << 40, 1), FI_RPMEM_ST_RANGE);
	EXPECT(duo_commit(&s, &c, 0, PAIR_POOL), 0);
	EXPECT(refused(&s, c.pool_key, 64, UINT64_MAX - 32, s.peer),
	       -FI_EINVAL);
	SAYS("range to commit wraps");
	EXPECT(refused(&s, c.pool_key, 0, 0, s.peer), -FI_EINVAL);
	SAYS("range to commit is empty");
	EXPECT(refused(&s, 1, 0, 64, s.peer), -FI_EKEYREJECTED);
	EXPECT(refused(&s, rp_key_make(&volatile_key), 0, 64, s.peer),
	       -FI_EOPNOTSUPP);
	EXPECT(refused(&s, c.pool_key, 0, 64, 77), -FI_EINVAL);
	EXPECT(refused(&s, c.pool_key, 0, 64, FI_ADDR_UNSPEC), -FI_EINVAL);
	EXPECT(duo_commit(&s, &c, 0, 64), 0);
	side_close(&s);
	return NULL;
}

static const char *calls(struct duo *d)
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
	EXPECT(fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, &then, NULL),
	       -FI_EKEYREJECTED);
	then.addr = 4;
	EXPECT(fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, &then, NULL),
	       -FI_EINVAL);
	EXPECT(fi_rpmem_commit(s.ep, &r, 1, s.peer, 9, FI_RPMEM_CLASS_DEFAULT,
			       NULL, NULL),
	       -FI_EINVAL);
	EXPECT(fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE, 9, NULL,
			       NULL),
	       -FI_EINVAL);
	EXPECT(fi_rpmem_commit(s.ep, &r, 0, s.peer, FI_RPMEM_DURABLE,
			       FI_RPMEM_CLASS_DEFAULT, NULL, NULL),
	       -FI_EINVAL);
	EXPECT(fi_rpmem_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_DEFAULT,
			      &attr),
	       -FI_EINVAL);
	EXPECT(fi_sendmsg(s.ep, &m, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
	EXPECT(fi_writemsg(s.ep, &w, FI_RPMEM_SAVE | FI_COMMIT_COMPLETE),
	       -FI_EINVAL);
	EXPECT(fi_readmsg(s.ep, &w, FI_COMMIT_COMPLETE), -FI_EINVAL);
	side_close(&s);
	return NULL;
}

/* What may not be called persistent memory. */
static const char *registrations(struct duo *d)
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
		/* The device writes past the mapping. */
		EXPECT(REG(p), -FI_EOPNOTSUPP);
		SAYS("or devdax");
	} else {
		EXPECT(REG(p), 0);
		EXPECT(fi_close(&mr->fid), 0);
	}
	unlink(path); /* survives nothing from now on */
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
	POST(&s, fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_DEFAULT, NULL, NULL));
	if (side_wait(&s, &e, &err))
		return "tmpfs gave class power";
	EXPECT(err.prov_errno, FI_RPMEM_ST_CLASS);
	EXPECT(err.err, FI_EOPNOTSUPP);
	fi_cq_strerror(s.cq, err.prov_errno, err.err_data, text, sizeof(text));
	/* Both classes by name, and the way out. */
	if (!strstr(text, "reaches process, power is required") ||
	    !strstr(text, "FI_OFI_RPMEM_CLASS"))
		FAIL("the error says only: %.100s", text);
	EXPECT(fi_rpmem_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_POWER,
			      &attr),
	       0);
	EXPECT(attr.status, FI_RPMEM_ST_CLASS);
	EXPECT(attr.region_class, FI_RPMEM_CLASS_PROCESS);
	POST(&s, fi_rpmem_commit(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_PROCESS, NULL, NULL));
	EXPECT(side_wait(&s, &e, &err), 1);
	side_close(&s);
	unlink(d->pool);
	return NULL;
}

/* --- messages that no initiator of ours would send --- */

static uint64_t rng_state = 20191021;
static uint64_t rng(void)
{
	rng_state = rng_state * 6364136223846793005ull + 1442695040888963407ull;
	return rng_state >> 33;
}

static void throw(struct side * s, const void *msg, size_t len)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, fi_tsend(s->ep, msg, len, NULL, s->peer, CTRL_BIT, s));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
}

static size_t make_hello(struct side *s, uint8_t *buf, size_t size,
			 uint64_t key)
{
	struct rp_wire_hdr h = {.type = RP_MSG_HELLO};
	struct rp_wire_hello m = {
		.cookie = 4711, .key = key, .timeout_ms = 1000};
	size_t len = sizeof(m.addr);

	MUST(fi_getname(&s->ep->fid, m.addr, &len));
	m.addr_len = (uint16_t)len;
	return (size_t)MUST(rp_wire_put_hello(buf, size, &h, &m));
}

static const char *garbage(struct duo *d)
{
	const struct pair_opts raw = {.prov = "tcp"};
	uint8_t buf[RP_WIRE_MAX_MSG * 2], answer[RP_WIRE_MAX_MSG];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct rp_wire_hello_ack ack;
	struct rp_wire_hdr h;
	struct side good, bad;
	struct card c;
	size_t len;

	duo_start(d, &plain, &c);
	duo_open(&good, &plain, &c);
	duo_open(&bad, &raw, &c);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);

	/* Every truncation of a good message, and a byte of it changed. */
	len = make_hello(&bad, buf, sizeof(buf), c.pool_key);
	for (size_t n = 0; n < len; n++)
		throw(&bad, buf, n);
	for (size_t n = 0; n < len; n++) {
		uint8_t was = buf[n];

		if (n == 2 || (n >= 60 && n < 64))
			continue; /* the version is below; stay on loopback */
		buf[n] ^= (uint8_t)(1 + rng() % 255);
		throw(&bad, buf, len);
		buf[n] = was;
		if (n % 16 == 0)
			EXPECT(duo_commit(&good, &c, 0, 64), 0);
	}
	/* Noise of every length that is received. */
	for (int i = 0; i < 300; i++) {
		len = rng() % RP_WIRE_MAX_MSG;
		for (size_t n = 0; n < len; n++)
			buf[n] = (uint8_t)rng();
		if (i % 2 && len > 8) { /* with a header that looks right */
			buf[0] = RP_WIRE_MAGIC & 0xff;
			buf[1] = RP_WIRE_MAGIC >> 8;
			buf[2] = RP_WIRE_VERSION;
			buf[3] = 1 + rng() % 4;
			buf[4] = (uint8_t)len;
			buf[5] = (uint8_t)(len >> 8);
			buf[6] = buf[7] = 0;
		}
		throw(&bad, buf, len);
	}
	EXPECT(duo_commit(&good, &c, 4096, 64), 0);

	/* Another version is told so. */
	len = make_hello(&bad, buf, sizeof(buf), c.pool_key);
	buf[2] = RP_WIRE_VERSION + 1;
	throw(&bad, buf, len);
	do {
		/* Answers to changed but valid hellos of before come first. */
		POST(&bad,
		     fi_trecv(bad.ep, answer, sizeof(answer), NULL,
			      FI_ADDR_UNSPEC, CTRL_BIT, ~CTRL_BIT, answer));
		if (!side_wait(&bad, &e, &err))
			FAIL("receiving an answer: %s", fi_strerror(err.err));
		EXPECT(rp_wire_get_hdr(answer, e.len, &h), 0);
		EXPECT(h.type, RP_MSG_HELLO_ACK);
		EXPECT(rp_wire_get_hello_ack(answer, &h, &ack), 0);
	} while (ack.status != RP_ST_VERSION);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);

	/* Too long for the receive: the base drops the sender's connection. */
	POST(&bad, fi_tsend(bad.ep, buf, sizeof(buf), NULL, bad.peer, CTRL_BIT,
			    NULL));
	side_wait(&bad, &e, &err);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	side_close(&bad);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	side_close(&good);
	return NULL;
}

/* Send one message of a session and take its REPLY: the status, or -1. */
static int told(struct side *s, const uint8_t *msg, size_t len, uint64_t token)
{
	uint8_t answer[RP_WIRE_MAX_MSG];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct rp_wire_reply reply;
	struct rp_wire_hdr h;

	throw(s, msg, len);
	POST(s, fi_trecv(s->ep, answer, sizeof(answer), NULL, FI_ADDR_UNSPEC,
			 CTRL_BIT, ~CTRL_BIT, answer));
	if (!side_wait(s, &e, &err) || rp_wire_get_hdr(answer, e.len, &h) ||
	    h.token != token || rp_wire_get_reply(answer, &h, &reply))
		return -1;
	return (int)reply.status;
}

/* An initiator that keeps to the form, and asks for what it may not have. */
static const char *lies(struct duo *d)
{
	const struct pair_opts raw = {.prov = "tcp"};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hello_ack ack;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct side good, bad;
	struct rp_wire_hdr h;
	struct card c;
	size_t len;

	duo_start(d, &plain, &c);
	duo_open(&good, &plain, &c);
	duo_open(&bad, &raw, &c);
	len = make_hello(&bad, buf, sizeof(buf), c.pool_key);
	throw(&bad, buf, len);
	POST(&bad, fi_trecv(bad.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC,
			    CTRL_BIT, ~CTRL_BIT, buf));
	if (!side_wait(&bad, &e, &err) || rp_wire_get_hdr(buf, e.len, &h) ||
	    rp_wire_get_hello_ack(buf, &h, &ack) || ack.status)
		return "no session";
	h.session = ack.cookie;

	const uint64_t key = c.pool_key, addr = c.pool_addr;
	const struct {
		struct rp_wire_range range;
		int status;
	} cases[] = {
		{{key, addr, 64}, RP_ST_OK},
		{{key ^ 0x10001, addr, 64}, RP_ST_UNKNOWN_KEY},
		{{key ^ 1ull << 50, addr, 64}, RP_ST_STALE_KEY},
		{{key, addr + PAIR_POOL - 63, 64}, RP_ST_RANGE},
		{{key, addr + 64, UINT64_MAX - 32}, RP_ST_WRAP},
		{{key, addr, 0}, RP_ST_WRAP},
		{{key, addr, 64}, RP_ST_OK},
	};
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		h.token = i + 1;
		m.ranges[0] = cases[i].range;
		len = (size_t)MUST(
			rp_wire_put_request(buf, sizeof(buf), &h, &m));
		EXPECT(told(&bad, buf, len, h.token), cases[i].status);
		EXPECT(duo_commit(&good, &c, 0, 64), 0);
	}
	/* Cut short, with a length that admits it. */
	buf[4] = (uint8_t)(len - 8);
	EXPECT(told(&bad, buf, len - 8, h.token), RP_ST_BAD_MESSAGE);
	buf[4] = (uint8_t)len;
	/* Of another life of the target, and of a later version. */
	buf[24] ^= 1;
	EXPECT(told(&bad, buf, len, h.token), RP_ST_INCARNATION);
	buf[24] ^= 1;
	buf[2] = RP_WIRE_VERSION + 1;
	EXPECT(told(&bad, buf, len, h.token), RP_ST_VERSION);
	buf[2] = RP_WIRE_VERSION;
	EXPECT(told(&bad, buf, len, h.token), RP_ST_OK);
	EXPECT(duo_commit(&good, &c, 0, 64), 0);
	side_close(&bad);
	side_close(&good);
	return NULL;
}

/* A target that answers every hello in a later version of the protocol. */
static void false_target(int fd)
{
	const struct pair_opts raw = {.prov = "tcp"};
	struct rp_key key = {.base = 1,
			     .random = 1,
			     .persistent = true,
			     .class = RP_CLASS_POWER,
			     .method = RP_METHOD_AGENT_MSYNC};
	struct rp_wire_hello_ack ack = {
		.cookie = 1, .credits = 1, .max_ranges = RP_WIRE_MAX_RANGES};
	struct rp_wire_hdr h, to = {.type = RP_MSG_HELLO_ACK, .incarnation = 1};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct rp_wire_hello m;
	uint8_t buf[RP_WIRE_MAX_MSG];
	fi_addr_t addr;
	struct card c;
	struct side s;
	int len;

	side_open(&s, &raw);
	side_card(&s, &c);
	c.pool_key = rp_key_make(&key);
	if (write(fd, &c, sizeof(c)) != sizeof(c))
		_exit(1);
	for (;;) {
		POST(&s, fi_trecv(s.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC,
				  CTRL_BIT, ~CTRL_BIT, buf));
		if (!side_wait(&s, &e, &err) ||
		    rp_wire_get_hdr(buf, e.len, &h) ||
		    rp_wire_get_hello(buf, &h, &m))
			_exit(1);
		MUST(fi_av_insert(s.av, m.addr, 1, &addr, 0, NULL));
		to.session = m.cookie;
		len = rp_wire_put_hello_ack(buf, sizeof(buf), &to, &ack);
		buf[2] = RP_WIRE_VERSION + 1;
		POST(&s, fi_tinject(s.ep, buf, (size_t)len, addr, CTRL_BIT));
	}
}

static const char *later_version(struct duo *d)
{
	struct card c;
	struct side s;
	int fds[2], st;

	if (pipe(fds))
		return "no pipe";
	d->target = fork();
	if (!d->target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		false_target(fds[1]);
	}
	if (read(fds[0], &c, sizeof(c)) != sizeof(c))
		return "no card";
	duo_open(&s, &plain, &c);
	st = duo_commit(&s, &c, 0, 64);
	if (st != FI_RPMEM_ST_VERSION)
		FAIL("the commit ended with %d", st);
	side_close(&s);
	return NULL;
}

/* A peer that knows nothing of us must not be bothered, or waited for long. */
static const char *plain_peer(struct duo *d)
{
	const struct pair_opts raw = {.prov = "tcp"};
	struct card c = {0};
	struct side s, other;

	side_open(&other, &raw);
	side_card(&other, &c);
	duo_open(&s, &plain, &c);
	EXPECT(refused(&s, 0x1234, 0, 64, s.peer), -FI_EKEYREJECTED);
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
	duo_case("calls with bad arguments", calls);
	duo_listening_case("memory that is not persistent", registrations);
	duo_case("a class that is not met", weak_class);
	duo_case("garbage beside a peer that is served", garbage);
	duo_case("an initiator that lies, beside one that is served", lies);
	duo_case("a target of a later version", later_version);
	duo_case("a peer without ofi_rpmem", plain_peer);
	return tap_done();
}
