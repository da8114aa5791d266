// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program without the daemon's secret learns nothing about a pool's key, and
 * cannot read or change the pool.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/frame_peer.h"
#include "fault/testbed_daemon.h"

#define UNVERIFIED 4
#define GUESSES	   64	 /* wrong keys of one peer */
#define PER_S	   250.0 /* limit of replies to wrong keys, per second */
#define TIMEOUT	   2000	 /* FI_OFI_RPMEM_TIMEOUT, ms */
#define AT_ONCE	   4
/* Seconds for the bare base (tcp without ofi_rpmem) to fail an access. */
#define BARE_S 0.3

static uint64_t seed;

static struct bed_daemon target;

/*
 * Open a new unverified peer: a wrong key may have closed the connection of the
 * previous one.
 */
static void unverified_open(struct bed *b, const char *prov)
{
	const struct card c = bed_daemon_card(&target);

	bed_daemon_visit(b, &c, prov);
}

/* Which bits of a guessed key are wrong. */
enum guess {
	LOW,	/* some of the low 32 bits */
	BESIDE, /* only some of the next two bits */
	BOTH,
	KINDS,
};
static const char *const guesses[KINDS] = {"low 32 bits wrong",
					   "low 32 bits right", "both wrong"};

/*
 * Make a wrong key from the right one. Bits 34 and up stay right, because they
 * include the mark, class, method and port (struct rp_key), which an initiator
 * checks before it sends a key.
 */
static uint64_t guess_key(enum guess g, uint64_t salt)
{
	const uint64_t low = bed_mix(seed, salt) % UINT32_MAX + 1;
	const uint64_t beside = (bed_mix(seed, salt) >> 40) % 3 + 1;

	return target.export.key ^ (g == BESIDE ? 0 : low) ^
	       (g == LOW ? 0 : beside << 32);
}

/* The call to which the guessed key is passed. */
enum call {
	QUERY,
	COMMIT,
	WRITE,
	CALLS,
};
static const char *const calls[CALLS] = {"query", "commit", "durable write"};

#define NO_REPLY INT64_MAX

static int64_t reply_of(const struct bed_op *op)
{
	return op->status == RP_ST_TIMEOUT
		       ? NO_REPLY
		       : (int64_t)op->err << 32 | (uint32_t)op->status;
}

static int64_t present_key(struct bed *b, enum call call, uint64_t key)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct bed_op *op = calloc(1, sizeof(*op));
	uint64_t bytes[8] = {0};
	ssize_t ret;

	if (!op)
		MUST(-FI_ENOMEM);
	b->card.pool_key = key;
	if (call == QUERY) {
		ret = key_query(b->s.ep, b->s.peer, key, FI_RPMEM_CLASS_NONE,
				&attr);
		if (!ret)
			return attr.prov_errno;
	} else {
		ret = call == COMMIT
			      ? BED_POST(b, bed_commit(b, 4096, 64, NULL, op))
			      : BED_POST(b, bed_write(b, bytes, 4096, 64,
						      FI_COMMIT_COMPLETE, op));
		if (!ret)
			return bed_wait(b, op, BED_DEADLINE) ? reply_of(op)
							     : NO_REPLY;
	}
	return ret == -FI_ETIMEDOUT || ret == -FI_EAGAIN ? NO_REPLY : ret;
}

/* --- test rows --- */

static const char *wrong_secret_row(void)
{
	char text[2][RP_ERR_LEN], raw[RP_ERR_LEN];
	struct rp_setup_export x;
	struct rp_setup_list l;
	int ret[2];

	for (int i = 0; i < 2; i++) {
		target.where.secret = i ? &target.other : NULL;
		ret[0] = rp_setup_fetch_export(&target.where, target.pool_file,
					       &x, text[0]);
		ret[1] = rp_setup_fetch_export(&target.where, "none", &x,
					       text[1]);
		if (ret[0] != -EACCES || ret[1] != -EACCES)
			return bed_says("the export ends with %d and %d",
					ret[0], ret[1]);
		if (strcmp(text[0], text[1]))
			return "an existing pool gets another reply";
		if (rp_setup_fetch_list(&target.where, &l, raw) != -EACCES)
			return "the list of pools is given away";
	}
	if (!bed_daemon_logged(&target, "secret"))
		return "nothing is logged";
	return NULL;
}

/*
 * All wrong keys get the same reply, whichever bits are wrong. A guess without
 * any reply (NO_REPLY) is left out.
 */
static const char *one_reply_row(enum call call)
{
	int64_t reply = NO_REPLY, first = NO_REPLY;
	enum guess first_guess = LOW;
	struct bed b;

	for (unsigned int i = 0; i < 2 * KINDS; i++) {
		unverified_open(&b, NULL);
		reply = present_key(&b, call, guess_key(i % KINDS, i));
		if (!reply)
			return bed_says("a key with %s is accepted",
					guesses[i % KINDS]);
		if (reply == NO_REPLY)
			continue;
		if (first == NO_REPLY) {
			first = reply;
			first_guess = i % KINDS;
		}
		if (reply != first)
			return bed_says("%s: %lld (%d), %s: %lld (%d)",
					guesses[first_guess],
					(long long)(first >> 32), (int)first,
					guesses[i % KINDS],
					(long long)(reply >> 32), (int)reply);
	}
	return first == NO_REPLY ? "no wrong key gets a reply" : NULL;
}

/*
 * Query wrong keys from one peer, in a child process. Writes the number of
 * replies, and when it began and ended, to fd.
 */
static void guess_many(int fd, uint64_t salt)
{
	const double end = bed_now() + 10;
	struct {
		int answered;
		double began, ended;
	} r = {0};
	struct bed b;

	unverified_open(&b, NULL);
	/* The first query opens the connection. */
	present_key(&b, QUERY, guess_key(BOTH, salt));
	r.began = bed_now();
	for (int i = 0; i < GUESSES && bed_now() < end; i++)
		r.answered +=
			present_key(&b, QUERY, guess_key(BOTH, salt + i)) !=
			NO_REPLY;
	r.ended = bed_now();
	if (write(fd, &r, sizeof(r)) != sizeof(r))
		_exit(1);
	_exit(0);
}

static const char *slowed_row(void)
{
	struct {
		int answered;
		double began, ended;
	} r;
	double began = 0, ended = 0;
	int fds[2], answered = 0;

	if (pipe(fds))
		MUST(-errno);
	for (int i = 0; i < UNVERIFIED; i++)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			guess_many(fds[1], (uint64_t)(i + 1) << 20);
		}
	for (int i = 0; i < UNVERIFIED; i++) {
		if (read(fds[0], &r, sizeof(r)) != sizeof(r))
			return "an unverified peer died";
		answered += r.answered;
		began = !i || r.began < began ? r.began : began;
		ended = r.ended > ended ? r.ended : ended;
	}
	printf("# %d guesses got a reply in %.2f s, %d lines logged\n",
	       answered, ended - began, bed_daemon_logged(&target, "key"));
	if (!answered)
		return "no wrong key gets a reply";
	if (answered > PER_S * (ended - began) + 16)
		return bed_says("%d wrong keys get a reply in %.2f s", answered,
				ended - began);
	return NULL;
}

static const char *logged_row(void)
{
	struct bed b;
	int lines;

	unverified_open(&b, NULL);
	for (unsigned int i = 0; i < 16; i++)
		present_key(&b, QUERY, guess_key(BOTH, i));
	lines = bed_daemon_logged(&target, "key");
	if (!lines)
		return "nothing is logged";
	if (lines > 32)
		return bed_says("%d lines are logged for 16 guesses", lines);
	return NULL;
}

/*
 * The holder of the right key is served, even after another peer on the same
 * host has guessed.
 */
static const char *honest_row(void)
{
	uint64_t bytes[8] = {1};
	struct bed b, honest;
	struct bed_op *op;
	int answered = 0;
	double end;

	unverified_open(&b, NULL);
	unverified_open(&honest, NULL);
	for (unsigned int i = 0; i < 8; i++)
		answered += present_key(&b, QUERY, guess_key(i % KINDS, i)) !=
			    NO_REPLY;
	if (!answered)
		return "no wrong key gets a reply";
	honest.card.pool_key = target.export.key;
	for (end = bed_now() + BED_RECOVERY_SECONDS; bed_now() < end;) {
		op = calloc(1, sizeof(*op));
		if (!op)
			MUST(-FI_ENOMEM);
		if (!BED_POST(&honest,
			      bed_write(&honest, bytes, 65536, sizeof(bytes),
					FI_COMMIT_COMPLETE, op)) &&
		    bed_wait(&honest, op, BED_DEADLINE) && !op->err)
			return NULL;
		bed_pause(&honest, BED_PAUSE);
	}
	return "the right key is not served any more";
}

enum bare {
	READ,
	BARE_WRITE,
	BARE_ATOMIC,
	BARES,
};
static const char *const bares[BARES] = {"read", "write", "atomic"};

static size_t pool_size;

static ssize_t post_bare(struct bed *b, enum bare what, void *buf, uint64_t key,
			 uint64_t addr, struct bed_op *op)
{
	const uint64_t one = 1;

	switch (what) {
	case READ:
		return fi_read(b->s.ep, buf, 64, NULL, b->s.peer, addr, key,
			       op);
	case BARE_WRITE:
		return fi_write(b->s.ep, buf, 64, NULL, b->s.peer, addr, key,
				op);
	default:
		return fi_atomic(b->s.ep, &one, 1, NULL, b->s.peer, addr, key,
				 FI_UINT64, FI_SUM, op);
	}
}

/* Map the pool's file, which the daemon has mapped, too. */
static const char *pool_bytes(void)
{
	int fd = open(target.pool_file, O_RDONLY);
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st))
		MUST(-errno);
	pool_size = (size_t)st.st_size;
	p = mmap(NULL, pool_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		MUST(-errno);
	close(fd);
	return p;
}

/*
 * Open a peer on the bare base, with the address of the daemon's card or of the
 * listener that the key names.
 */
static void bare_open(struct bed *b, bool listener)
{
	struct card c = bed_daemon_card(&target);

	if (listener)
		((struct sockaddr_in *)c.name)->sin_port =
			htons((uint16_t)(target.export.key >> 40));
	bed_daemon_visit(b, &c, "tcp");
}

/* Has post_bare() of bytes 4 changed the target's 1, or read it? */
static bool has_effect(enum bare what, const volatile char *buf,
		       const volatile char *mem)
{
	return what == READ	    ? buf[0] == 1
	       : what == BARE_WRITE ? mem[0] == 4
				    : mem[0] == 2;
}

/* The same access does get to a program that has an endpoint of the base. */
static const char *bare_control(enum bare what)
{
	const struct pair_opts o = {.caps = FI_ATOMIC, .prov = "tcp"};
	const double end = bed_now() + BED_DEADLINE;
	static struct bed_op op;
	static char buf[64], mem[4096] __attribute__((aligned(8)));
	struct fid_mr *mr;
	struct side open;
	struct card c;
	uint64_t addr;
	struct bed b;
	ssize_t ret;

	memset(buf, 4, sizeof(buf));
	mem[0] = 1;
	side_open(&open, &o);
	MUST(fi_mr_reg(open.domain, mem, sizeof(mem),
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL));
	addr = open.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
		       ? (uintptr_t)mem
		       : 0;
	side_card(&open, &c);
	bed_daemon_visit(&b, &c, "tcp");
	while ((ret = post_bare(&b, what, buf, fi_mr_key(mr), addr, &op)) ==
		       -FI_EAGAIN &&
	       bed_now() < end) {
		bed_poll(&b);
		side_poke(&open);
	}
	while (!ret && !has_effect(what, buf, mem) && bed_now() < end) {
		bed_poll(&b);
		side_poke(&open);
	}
	MUST(fi_close(&b.s.ep->fid));
	MUST(fi_close(&mr->fid));
	side_close(&open);
	return has_effect(what, buf, mem) ? NULL : "a bare access gets nowhere";
}

/*
 * On the bare base no number made from a key gives access to the pool: the
 * daemon has no endpoint of the base, and the listener that the key names
 * accepts no connection of the base.
 */
static const char *bare_row(enum bare what)
{
	const uint64_t keys[] = {
		(uint32_t)target.export.key,
		target.export.key >> 32,
		target.export.key,
		target.export.key & 0xffffffffff,
		0,
		1,
		2,
	};
	const uint64_t addrs[] = {target.export.addr, 0,
				  target.export.addr + 65536, 65536};
	const char *pool = pool_bytes(), *wrong = bare_control(what);
	char *before = malloc(pool_size);
	static char buf[64];
	struct bed_op *op;
	struct bed b;
	ssize_t ret;

	if (!before)
		MUST(-FI_ENOMEM);
	if (wrong)
		return wrong;
	memcpy(before, pool, pool_size);
	for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
		for (size_t a = 0; a < sizeof(addrs) / sizeof(*addrs); a++) {
			/*
			 * A new endpoint for each access: a refused one may
			 * have closed the connection.
			 */
			bare_open(&b, (k + a) % 2);
			op = calloc(1, sizeof(*op));
			if (!op)
				MUST(-FI_ENOMEM);
			memset(buf, 0xa5, sizeof(buf));
			ret = BED_POST_FOR(&b, BARE_S,
					   post_bare(&b, what, buf, keys[k],
						     addrs[a], op));
			if (!ret)
				bed_wait(&b, op, BARE_S);
			/*
			 * Wait: a write may complete at the initiator before it
			 * is executed.
			 */
			bed_pause(&b, 0.02);
			if (!ret && op->ends && !op->err)
				return bed_says("a bare %s with key %zu and "
						"address %zu succeeds",
						bares[what], k, a);
			for (size_t i = 0; i < sizeof(buf); i++)
				if (what == READ && buf[i] != (char)0xa5)
					return "a bare read brings bytes";
			if (memcmp(before, pool, pool_size))
				return bed_says("a bare %s with key %zu and "
						"address %zu changes the pool",
						bares[what], k, a);
			MUST(fi_close(&b.s.ep->fid));
		}
	}
	return NULL;
}

/* --- bytes without a key, at every port --- */

#define VARIANTS 5

static size_t make_variant(int i, uint8_t *out, uint64_t salt)
{
	uint64_t word;
	size_t len = 72;

	for (size_t k = 0; k < 512; k += 8) {
		word = bed_mix(seed + salt, k + (unsigned int)i);
		memcpy(out + k, &word, 8);
	}
	switch (i) {
	case 0:
		return 8;
	case 1: /* the right key with one wrong bit */
		word = target.export.key ^ 1ull << 39;
		memcpy(out, &word, 8);
		return 8;
	case 2: /* the low 32 bits of the right key */
		word = (uint32_t)target.export.key;
		memcpy(out, &word, 8);
		return 8;
	case 3:
		return len;
	default:
		return 512;
	}
}

/*
 * Send msg, then receive until the connection ends (*ended) or is silent for
 * 0.5 s.
 */
static ssize_t exchange(uint16_t port, const uint8_t *msg, size_t len,
			uint8_t *back, size_t size, bool *ended)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t got = 0;
	ssize_t n = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return -1;
	send(fd, msg, len, MSG_NOSIGNAL);
	while (n > 0 && got < size && poll(&p, 1, 500) == 1) {
		n = recv(fd, back + got, size - got, 0);
		got += n > 0 ? (size_t)n : 0;
	}
	*ended = n <= 0;
	close(fd);
	return (ssize_t)got;
}

static const char *raw_row(void)
{
	uint8_t msg[512], back[512], first[512];
	ssize_t n, first_n = 0;
	uint16_t ports[16];
	int nports = bed_ports(target.pid, ports, 16), tried = 0;
	bool ended = false, seen;

	for (int p = 0; p < nports; p++) {
		/*
		 * Leave out the set-up port, where the daemon sends first:
		 * wrong_secret_row() tests it.
		 */
		if (ports[p] == target.where.port)
			continue;
		seen = false;
		for (int i = 0; i < VARIANTS; i++) {
			n = exchange(ports[p], msg, make_variant(i, msg, 7),
				     back, sizeof(back), &ended);
			tried += n >= 0;
			seen |= n > 0 || (!n && ended);
			/*
			 * Some variants are incomplete messages, which get no
			 * reply.
			 */
			if (n <= 0)
				continue;
			if (first_n && (first_n != n || memcmp(first, back, n)))
				return bed_says("port %u: other bytes to "
						"variant %d",
						ports[p], i);
			memcpy(first, back, (size_t)n);
			first_n = n;
		}
		if (!seen)
			return bed_says("port %u neither replies nor ends",
					ports[p]);
		first_n = 0;
	}
	return tried ? NULL : "found no port";
}

/*
 * Does the daemon listen on the port that the key names? Returns the port in
 * *port.
 */
static bool frame_port(uint16_t *port)
{
	uint16_t ports[16];
	int n = bed_ports(target.pid, ports, 16);

	*port = (uint16_t)(target.export.key >> 40);
	for (int i = 0; i < n; i++)
		if (ports[i] == *port)
			return true;
	return false;
}

/*
 * The outcome of a connection request with this private data, as one number to
 * compare.
 */
#define CONNECTED 1

static int64_t connect_with(uint16_t port, const void *data, size_t len)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct frame_peer p;
	struct frame_conn *c;
	int64_t reply = NO_REPLY;

	frame_open(&p, NULL);
	c = frame_dial(&p, &to, data, len);
	switch (frame_wait(c, 2000)) {
	case FRAME_UP:
		reply = CONNECTED;
		break;
	case FRAME_ENDED:
		reply = (int64_t)c->err << 8 | (int64_t)c->data_len << 32;
		break;
	default:
		break;
	}
	frame_end(c);
	frame_close(&p);
	return reply;
}

static const char *connect_row(void)
{
	int64_t reply, first = NO_REPLY;
	uint8_t msg[512];
	uint16_t port;
	size_t len;

	if (!frame_port(&port))
		return "the key names no port that the target listens on";
	for (int i = -1; i < VARIANTS - 1; i++) {
		len = i < 0 ? 0 : make_variant(i, msg, 8);
		reply = connect_with(port, msg, len);
		if (reply == CONNECTED)
			return bed_says("variant %d is connected", i);
		if (reply == NO_REPLY)
			continue;
		if (first == NO_REPLY)
			first = reply;
		if (reply != first)
			return bed_says("variant %d is answered with %llx, not "
					"%llx",
					i, (long long)reply, (long long)first);
	}
	return first == NO_REPLY ? "no connection gets a reply" : NULL;
}

/* --- the table of rows --- */

enum row {
	SECRET,
	ANSWER_QUERY,
	ANSWER_COMMIT,
	ANSWER_WRITE,
	SLOWED,
	LOGGED,
	HONEST,
	BARE_READS,
	BARE_WRITES,
	BARE_ATOMICS,
	RAW,
	CONNECT,
	ROWS,
};

static void row_name(size_t row, char *name, size_t size)
{
	static const char *const names[ROWS] = {
		[SECRET] = "a wrong secret learns nothing of the pools",
		[SLOWED] = "repeated wrong keys are slowed down",
		[LOGGED] = "wrong keys are logged",
		[HONEST] = "the right key is served behind wrong ones",
		[RAW] = "bytes without a key get one reply at every port",
		[CONNECT] = "a connection without a key is refused in one way",
	};

	if (row >= ANSWER_QUERY && row <= ANSWER_WRITE)
		snprintf(name, size, "wrong keys get one reply to a %s",
			 calls[row - ANSWER_QUERY]);
	else if (row >= BARE_READS && row <= BARE_ATOMICS)
		snprintf(name, size,
			 "the bits of a key are no good for a bare "
			 "%s",
			 bares[row - BARE_READS]);
	else
		snprintf(name, size, "%s", names[row]);
}

static const char *row_body(enum row row)
{
	switch (row) {
	case SECRET:
		return wrong_secret_row();
	case ANSWER_QUERY:
	case ANSWER_COMMIT:
	case ANSWER_WRITE:
		return one_reply_row((enum call)(row - ANSWER_QUERY));
	case SLOWED:
		return slowed_row();
	case LOGGED:
		return logged_row();
	case HONEST:
		return honest_row();
	case BARE_READS:
	case BARE_WRITES:
	case BARE_ATOMICS:
		return bare_row((enum bare)(row - BARE_READS));
	case RAW:
		return raw_row();
	default:
		return connect_row();
	}
}

static const char *row_run(size_t row)
{
	const char *wrong = bed_daemon_start(&target, seed);
	char ms[16];

	if (!wrong) {
		snprintf(ms, sizeof(ms), "%d", TIMEOUT);
		setenv("FI_OFI_RPMEM_TIMEOUT", ms, 1);
		wrong = row_body((enum row)row);
	}
	if (!wrong && waitpid(target.pid, NULL, WNOHANG))
		wrong = "the daemon has died";
	bed_daemon_stop(&target);
	return wrong;
}

int main(int argc, char **argv)
{
	bed_args(argc, argv, &seed, NULL);
	bed_run(ROWS, AT_ONCE, row_name, row_run);
	return tap_done();
}
