// SPDX-License-Identifier: BSD-2-Clause
/*
 * Private connections over queue pairs of a real device, with both ends in this
 * process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/wire.h"
#include "rc/rc.h"

/*
 * Usage: rc_pair ADDRESS DEVICE [DEVDAX]. Prints TAP. DEVDAX adds tests of
 * FLUSH.
 */

#define SIZE  (2u << 20)
#define LIMIT 120000000000ull

/* Events that one end of a connection has received. */
struct end {
	struct rp_channel *c;
	int up, lost, err, messages;
	size_t len, data_len;
	uint8_t msg[RP_WIRE_MAX_MSG], data[256];
};

struct node {
	struct rp_rc *rc;
	bool refuse;
	int requests, naccepted;
	/*
	 * Ends for the next connection requests whose number is at least
	 * `from`.
	 */
	struct end *accept;
	int room;
	uint32_t from;
	uint8_t shown[256];
	size_t shown_len;
};

struct op {
	struct rp_channel_op op;
	struct iovec iov;
	void *desc[1];
	int done, err;
};

static struct sockaddr_in at;
static const char *device;
static int number, failures;
static struct node t, i;
static uint8_t *target, *source;
static struct rp_rc_mr tmr, smr;

static void report_case(bool good, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void report_case(bool good, const char *fmt, ...)
{
	va_list ap;

	failures += !good;
	printf("%s %d - ", good ? "ok" : "not ok", ++number);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	puts("");
	fflush(stdout);
}

/* Report a case. Evaluates cond first, because it may change the arguments. */
#define say(cond, ...)                                                         \
	do {                                                                   \
		const bool say_good = (cond);                                  \
                                                                               \
		report_case(say_good, __VA_ARGS__);                            \
	} while (0)

static uint64_t rig_now(void *arg)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int fill_random(void *arg, void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -EIO;
}

static void count_kick(void *arg)
{
}

static void on_connected(void *owner, const void *data, size_t len)
{
	struct end *e = owner;

	e->up++;
	memcpy(e->data, data, len);
	e->data_len = len;
}

static void on_lost(void *owner, int err, const void *data, size_t len)
{
	struct end *e = owner;

	e->lost++;
	e->err = err;
	if (len)
		memcpy(e->data, data, len);
	e->data_len = len;
}

static void on_message(void *owner, const void *msg, size_t len)
{
	struct end *e = owner;

	e->messages++;
	memcpy(e->msg, msg, len);
	e->len = len;
}

static const struct rp_channel_events events = {
	.connected = on_connected,
	.lost = on_lost,
	.received = on_message,
};

static void on_request(void *arg, void *request, const void *data, size_t len)
{
	struct node *n = arg;
	struct end *e;
	uint32_t shown = 0;

	n->requests++;
	memcpy(n->shown, data, len);
	n->shown_len = len;
	if (len >= 9)
		memcpy(&shown, n->shown + 5, 4);
	/* A connection request may arrive after its connection was closed. */
	if (n->refuse || !n->room || shown < n->from) {
		rp_rc_reject(n->rc, request, "go away", 7);
		return;
	}
	e = n->accept++;
	n->room--;
	n->naccepted +=
		!rp_rc_accept(n->rc, request, "welcome", 7, &events, e, &e->c);
}

static void on_request_gone(void *arg, void *request)
{
}

static void node_open(struct node *n)
{
	const struct rp_rc_attr attr = {
		.backend = RP_RC_VERBS,
		.device = device,
		.waits = true,
		.now = rig_now,
		.random = fill_random,
		.kick = count_kick,
		.requested = on_request,
		.gone = on_request_gone,
		.arg = n,
	};
	char why[256];
	int ret = rp_rc_open(&attr, &n->rc, why, sizeof(why));

	if (ret) {
		say(false, "open: %s: %s", strerror(-ret), why);
		exit(1);
	}
}

/* Poll both ends until cond is true. False: the time has run out. */
#define PUMP(cond)                                                             \
	({                                                                     \
		const uint64_t begun = rig_now(NULL);                          \
                                                                               \
		while (!(cond) && rig_now(NULL) - begun < LIMIT) {             \
			rp_rc_poll(t.rc, 64);                                  \
			rp_rc_poll(i.rc, 64);                                  \
		}                                                              \
		(cond);                                                        \
	})

static uint32_t dials;

static int connect_end(struct end *e)
{
	struct rp_connector *k = rp_rc_connector(i.rc);
	uint8_t hello[9] = "hello";

	memset(e, 0, sizeof(*e));
	memcpy(hello + 5, &dials, 4);
	dials++;
	return k->ops->connect(k, &at, sizeof(at), hello, sizeof(hello),
			       &events, e, &e->c);
}

/* Let the target accept the next n connection requests. */
static void accept_dials(struct end *te, int n)
{
	memset(te, 0, (size_t)n * sizeof(*te));
	t.accept = te;
	t.room = n;
	t.from = dials;
}

/* Connect both ends of a connection. */
static bool join_ends(struct end *ie, struct end *te)
{
	accept_dials(te, 1);
	return !connect_end(ie) && PUMP((ie->up && te->c) || ie->lost) &&
	       ie->up;
}

static void part_ends(struct end *ie, struct end *te)
{
	if (ie->c)
		rp_channel_close(ie->c);
	if (te->c)
		rp_channel_close(te->c);
	ie->c = te->c = NULL;
}

static void op_done(struct rp_channel_op *op, int err)
{
	struct op *o = (struct op *)op;

	o->done++;
	o->err = err;
}

static struct rp_channel_op *make_op(struct op *o, enum rp_channel_kind kind,
				     void *buf, size_t len, size_t to)
{
	*o = (struct op){
		.op = {.done = op_done,
		       .kind = kind,
		       .iov_count = buf != NULL,
		       .iov = &o->iov,
		       .desc = o->desc,
		       .rkey = tmr.rkey,
		       .remote_addr = tmr.remote_addr + to,
		       .length = len},
		.iov = {buf, len},
	};
	if ((uint8_t *)buf >= source && (uint8_t *)buf < source + SIZE)
		o->desc[0] = smr.desc;
	return &o->op;
}

/* Post all n operations. False: the time has run out. */
static bool post_all(struct end *e, struct rp_channel_op **ops, int n)
{
	const uint64_t begun = rig_now(NULL);
	int done = 0;

	while (done < n && rig_now(NULL) - begun < LIMIT) {
		done += rp_channel_post(e->c, ops + done, n - done);
		if (done < n) {
			rp_rc_poll(i.rc, 64);
			rp_rc_poll(t.rc, 64);
		}
	}
	return done == n;
}

static bool post1(struct end *e, struct rp_channel_op *op)
{
	return post_all(e, &op, 1);
}

/* --- cases --- */

static void setup(void)
{
	struct end ie, te;

	say(join_ends(&ie, &te), "a connection is made");
	say(t.shown_len >= 9 && !memcmp(t.shown, "hello", 5),
	    "the target gets the initiator's data");
	say(ie.data_len >= 7 && !memcmp(ie.data, "welcome", 7),
	    "the initiator gets the target's reject data");
	rp_channel_close(ie.c);
	ie.c = NULL;
	say(PUMP(te.lost), "the target gets the end of the connection: %s",
	    strerror(te.err));
	part_ends(&ie, &te);
	say(join_ends(&ie, &te), "a second one");
	rp_channel_close(te.c);
	te.c = NULL;
	say(PUMP(ie.lost), "the initiator gets the end of the connection: %s",
	    strerror(ie.err));
	part_ends(&ie, &te);
}

static void check_refusals(void)
{
	struct sockaddr_in saved = at;
	struct end e;

	t.refuse = true;
	say(!connect_end(&e) && PUMP(e.lost) && e.err == ECONNREFUSED &&
		    e.data_len >= 7 && !memcmp(e.data, "go away", 7),
	    "a refusal brings its reason");
	rp_channel_close(e.c);
	t.refuse = false;
	at.sin_port = htons(1);
	say(!connect_end(&e) && PUMP(e.lost) && e.err == ECONNREFUSED &&
		    !e.data_len,
	    "no listener: %s", strerror(e.err));
	rp_channel_close(e.c);
	at = saved;
	at.sin_addr.s_addr ^= htonl(0xfe);
	say(connect_end(&e) || (PUMP(e.lost) && !e.up), "no such machine: %s",
	    strerror(e.err));
	if (e.c)
		rp_channel_close(e.c);
	at = saved;
}

static void check_messages(void)
{
	struct end ie, te;
	struct op o;
	bool same = true;

	join_ends(&ie, &te);
	for (size_t len = 1; len <= RP_WIRE_MAX_MSG; len += 463) {
		const int n = te.messages;

		fill_random(NULL, source, len);
		post1(&ie, make_op(&o, RP_CHANNEL_SEND, source, len, 0));
		same &= PUMP(te.messages > n && o.done) && te.len == len &&
			!memcmp(te.msg, source, len) && !o.err;
	}
	say(same, "messages of all lengths arrive");
	te.messages = ie.messages = 0;
	make_op(&o, RP_CHANNEL_SEND, source, 40, 0)->inject = true;
	for (uint32_t k = 0; k < 3000; k++) {
		memcpy(source, &k, sizeof(k));
		post1(k & 1 ? &ie : &te, &o.op);
	}
	say(PUMP(ie.messages == 1500 && te.messages == 1500),
	    "3000 injected messages arrive");
	part_ends(&ie, &te);
}

static void check_data(void)
{
	static struct op o[4];
	struct rp_channel_op *ops[4];
	struct end ie, te;
	bool good = true;

	join_ends(&ie, &te);
	for (int k = 0; k < 200; k++) {
		const size_t len = 1 + (size_t)k * 613, to = (size_t)k * 7;

		fill_random(NULL, source, len);
		ops[0] = make_op(&o[0], RP_CHANNEL_WRITE, source, len, to);
		ops[1] = make_op(&o[1], RP_CHANNEL_READ, NULL,
				 len < 8 ? len : 8, to);
		post_all(&ie, ops, 2);
		good &= PUMP(o[1].done) && o[0].done == 1 && !o[0].err &&
			!o[1].err && !memcmp(target + to, source, len);
	}
	say(good, "a fence behind a write proves placement");
	good = true;
	for (int k = 0; k < 100; k++) {
		uint8_t small[300];

		fill_random(NULL, small, sizeof(small));
		post1(&ie, make_op(&o[0], RP_CHANNEL_WRITE, small,
				   sizeof(small), 5000));
		o[0].op.delivered = true;
		make_op(&o[1], RP_CHANNEL_WRITE, small, sizeof(small), 9000);
		o[1].op.delivered = true;
		post1(&ie, &o[1].op);
		good &= PUMP(o[1].done) && o[0].done && !o[1].err &&
			!memcmp(target + 9000, small, sizeof(small)) &&
			!memcmp(target + 5000, small, sizeof(small));
	}
	say(good, "a delivered write of unregistered memory");
	fill_random(NULL, target, 100000);
	post1(&ie, make_op(&o[0], RP_CHANNEL_READ, source, 100000, 0));
	say(PUMP(o[0].done) && !o[0].err && !memcmp(source, target, 100000),
	    "a read brings bytes");
	/* A message does not overtake the writes before it. */
	good = true;
	for (int k = 0; k < 200; k++) {
		te.messages = 0;
		memset(source, k, 4096);
		ops[0] = make_op(&o[0], RP_CHANNEL_WRITE, source, 4096, 0);
		ops[1] = make_op(&o[1], RP_CHANNEL_SEND, "look", 4, 0);
		post_all(&ie, ops, 2);
		good &= PUMP(te.messages) && target[0] == (uint8_t)k &&
			target[4095] == (uint8_t)k && PUMP(o[1].done);
	}
	say(good, "a message arrives behind its writes");
	part_ends(&ie, &te);
}

/* Accesses with a wrong rkey or without access rights. */
static void check_access(void)
{
	struct end ie, te, other, other_te;
	struct op o;

	join_ends(&other, &other_te);
	join_ends(&ie, &te);
	make_op(&o, RP_CHANNEL_WRITE, source, 4096, 0)->rkey ^= 0x5500;
	post1(&ie, &o.op);
	say(PUMP(ie.lost) && o.done == 1 && o.err, "a wrong rkey: %s, %s",
	    strerror(ie.err), strerror(o.err));
	say(PUMP(te.lost), "the target gets the loss: %s", strerror(te.err));
	part_ends(&ie, &te);
	/* A target has no access to its initiator's memory. */
	join_ends(&ie, &te);
	make_op(&o, RP_CHANNEL_WRITE, source, 8, 0);
	o.op.rkey = smr.rkey;
	o.op.remote_addr = smr.remote_addr;
	o.op.delivered = true;
	post1(&te, &o.op);
	say(PUMP(o.done) && o.err, "a target writes to its initiator: %s",
	    strerror(te.err));
	part_ends(&ie, &te);
	say(!other.lost && !other_te.lost, "other connections live on");
	part_ends(&other, &other_te);
}

/*
 * After a close no bytes arrive, no buffer is used, and each end and each
 * operation is reported once.
 */
static void check_close(void)
{
	static struct op o[400];
	struct end ie, te;
	bool once = true, still = true, reported = true;
	int posted, canceled = 0;

	for (int round = 0; round < 30; round++) {
		join_ends(&ie, &te);
		memset(source, round + 1, SIZE / 2);
		posted = 0;
		for (int k = 0; k < 400; k++) {
			struct rp_channel_op *op = make_op(
				&o[k],
				k % 7 ? RP_CHANNEL_WRITE : RP_CHANNEL_SEND,
				source, k % 7 ? 60000 : 3000,
				(size_t)(k % 20) * 60000);

			if (rp_channel_post(ie.c, &op, 1) != 1)
				break;
			posted++;
			if (k % (round + 1) == 0)
				rp_rc_poll(round & 2 ? i.rc : t.rc, 16);
		}
		if (round & 1) {
			rp_channel_close(te.c);
			te.c = NULL;
			memset(target, 0, SIZE);
			reported &= PUMP(ie.lost);
			for (size_t k = 0; k < SIZE; k++)
				still &= !target[k];
		}
		rp_channel_close(ie.c);
		ie.c = NULL;
		/*
		 * Each operation ends once; then its buffer belongs to the
		 * program again.
		 */
		for (int k = 0; k < posted; k++) {
			once &= o[k].done == 1;
			canceled += o[k].err == ECANCELED;
		}
		memset(o, 0x55, sizeof(o));
		if (te.c)
			reported &= PUMP(te.lost);
		part_ends(&ie, &te);
	}
	say(once, "close reports each operation once (%d canceled)", canceled);
	say(still, "nothing arrives after the target's close");
	say(reported, "the other end gets each loss");
}

static void early_closes(void)
{
	struct end ie, te;
	int ups = 0;

	for (int n = 0; n < 60; n++) {
		accept_dials(&te, 1);
		if (connect_end(&ie))
			continue;
		for (int k = 0; k < n * 40 && !ie.up && !ie.lost; k++) {
			rp_rc_poll(i.rc, 4);
			rp_rc_poll(t.rc, 4);
		}
		ups += ie.up;
		rp_channel_close(ie.c);
		ie.c = NULL;
		for (int k = 0; k < 500; k++)
			rp_rc_poll(t.rc, 4);
		part_ends(&ie, &te);
	}
	say(join_ends(&ie, &te), "60 that were closed early, %d of them up",
	    ups);
	part_ends(&ie, &te);
}

static void check_many(void)
{
	enum {
		MANY = 100
	};
	static struct end ie[MANY], te[MANY];
	static struct op o[MANY];
	int ups = 0, got = 0;

	accept_dials(te, MANY);
	t.naccepted = 0;
	for (int k = 0; k < MANY; k++)
		connect_end(&ie[k]);
	PUMP(t.naccepted == MANY);
	for (int k = 0; k < MANY; k++)
		ups += PUMP(ie[k].up || ie[k].lost) && ie[k].up;
	say(ups == MANY, "%d connections at once", ups);
	for (int k = 0; k < MANY && ups == MANY; k++)
		post1(&ie[k], make_op(&o[k], RP_CHANNEL_SEND, source, 1000, 0));
	for (int k = 0; k < MANY && ups == MANY; k++)
		got += PUMP(te[k].messages == 1) && PUMP(o[k].done);
	say(got == MANY, "a message over each of %d", got);
	for (int k = 0; k < MANY; k++)
		part_ends(&ie[k], &te[k]);
}

/* Sleep on the descriptor until cond is true. Only this end makes progress. */
#define SLEEP(n, cond)                                                         \
	({                                                                     \
		const uint64_t begun = rig_now(NULL);                          \
		struct pollfd p = {.fd = rp_rc_fd((n)->rc), .events = POLLIN}; \
                                                                               \
		while (!(cond) && rig_now(NULL) - begun < LIMIT) {             \
			if (!rp_rc_trywait((n)->rc))                           \
				poll(&p, 1, 60000);                            \
			while (rp_rc_poll((n)->rc, 64))                        \
				;                                              \
		}                                                              \
		(cond);                                                        \
	})

/* Start an initiator in another process. how: "child:PORT". */
static void other_process(const char *how)
{
	pid_t child = fork();

	if (!child) {
		execl("/proc/self/exe", "rc_pair", inet_ntoa(at.sin_addr),
		      device, how, (char *)NULL);
		_exit(1);
	}
}

static void check_sleep(void)
{
	struct end te;
	int status = 0;
	char port[32];

	snprintf(port, sizeof(port), "child:%u", ntohs(at.sin_port));
	accept_dials(&te, 1);
	t.from = 0;
	other_process(port);
	say(SLEEP(&t, te.c), "a request wakes a sleeper");
	say(SLEEP(&t, te.messages == 10), "messages wake it");
	say(SLEEP(&t, te.lost), "a killed initiator wakes it: %s",
	    strerror(te.err));
	wait(&status);
	say(WIFSIGNALED(status), "it was killed");
	rp_channel_close(te.c);
}

static int run_child(const char *how)
{
	struct end e;
	struct op o;

	node_open(&i);
	at.sin_port = htons((uint16_t)atoi(strchr(how, ':') + 1));
	if (connect_end(&e) || !SLEEP(&i, e.up))
		return 1;
	for (int k = 0; k < 10; k++) {
		struct rp_channel_op *op =
			make_op(&o, RP_CHANNEL_SEND, "a message", 10, 0);

		if (rp_channel_post(e.c, &op, 1) != 1 || !SLEEP(&i, o.done))
			return 2;
		usleep(100000);
	}
	kill(getpid(), SIGKILL);
	return 3;
}

/* Test FLUSH, if the library and the device support it. */
static void check_flush(const char *path)
{
	const unsigned int all =
		RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE | RP_RC_REMOTE_FLUSH;
	const struct rp_rc_mr saved = tmr;
	struct rp_channel_op *ops[4];
	struct end ie, te;
	struct op o[4];
	struct rp_rc_mr mr;
	uint8_t *pmem;
	int fd, ret = rp_rc_reg(t.rc, target, SIZE, all, &mr);

	say(ret == -EOPNOTSUPP, "memory that no device can flush: %s",
	    strerror(-ret));
	if (!(rp_rc_flags(t.rc) & RP_CHANNEL_FLUSHES)) {
		printf("ok %d - FLUSH # SKIP not here\n", ++number);
		return;
	}
	fd = open(path, O_RDWR);
	pmem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || pmem == MAP_FAILED) {
		say(false, "%s: %s", path, strerror(errno));
		return;
	}
	ret = rp_rc_reg(t.rc, pmem, SIZE, all, &tmr);
	say(!ret, "devdax can be registered for FLUSH: %s", strerror(-ret));
	say(join_ends(&ie, &te) && (ie.c->flags & RP_CHANNEL_FLUSHES),
	    "the connection has FLUSH");
	fill_random(NULL, source, 10000);
	ops[0] = make_op(&o[0], RP_CHANNEL_WRITE, source, 10000, 4000);
	ops[1] = make_op(&o[1], RP_CHANNEL_FLUSH, NULL, 10000, 4000);
	ops[2] = make_op(&o[2], RP_CHANNEL_SEND, "flushed", 7, 0);
	ops[3] = make_op(&o[3], RP_CHANNEL_READ, NULL, 8, 4000);
	post_all(&ie, ops, 4);
	say(PUMP(o[3].done || ie.lost) && !o[0].err && !o[1].err && !o[3].err &&
		    !memcmp(pmem + 4000, source, 10000) && PUMP(te.messages),
	    "a write, its FLUSH, a message and a fence in one chain");
	part_ends(&ie, &te);
	/* FLUSH of memory registered without flush access is refused. */
	rp_rc_dereg(t.rc, &tmr);
	tmr = saved;
	join_ends(&ie, &te);
	post1(&ie, make_op(&o[0], RP_CHANNEL_FLUSH, NULL, 8, 0));
	say(PUMP(ie.lost) && o[0].err, "FLUSH of another region: %s",
	    strerror(ie.err));
	part_ends(&ie, &te);
	munmap(pmem, SIZE);
	close(fd);
}

int main(int argc, char **argv)
{
	uint16_t port;
	int ret;

	if (argc < 3)
		return 2;
	at.sin_family = AF_INET;
	inet_pton(AF_INET, argv[1], &at.sin_addr);
	device = argv[2];
	if (argc > 3 && !strncmp(argv[3], "child:", 6))
		return run_child(argv[3]);
	node_open(&t);
	node_open(&i);
	ret = rp_rc_listen(t.rc, (struct sockaddr *)&at, sizeof(at), &port);
	say(!ret, "listen: %s", strerror(-ret));
	if (ret)
		return 1;
	at.sin_port = htons(port);
	target = aligned_alloc(4096, SIZE);
	source = aligned_alloc(4096, SIZE);
	memset(target, 0, SIZE);
	memset(source, 0, SIZE);
	if (rp_rc_reg(t.rc, target, SIZE,
		      RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, &tmr) ||
	    rp_rc_reg(i.rc, source, SIZE, RP_RC_LOCAL | RP_RC_REMOTE_WRITE,
		      &smr))
		return 1;
	setup();
	check_refusals();
	check_messages();
	check_data();
	check_access();
	check_close();
	early_closes();
	check_many();
	check_sleep();
	if (argc > 3)
		check_flush(argv[3]);
	rp_rc_dereg(t.rc, &tmr);
	rp_rc_dereg(i.rc, &smr);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
	free(target);
	free(source);
	printf("1..%d\n", number);
	return failures ? 1 : 0;
}
