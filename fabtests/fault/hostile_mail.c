// SPDX-License-Identifier: BSD-2-Clause
/* Connected endpoints: a hostile peer beside one that is served. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/mail_peer.h"

#define SERVED 64
#define SLOTS  64 /* of the honest initiator, one line each */
/* Who keeps to the protocol waits no longer than this. */
#define SLOW_MS 5000

/* Shared by all processes. */
static struct world {
	struct card card;
	uint64_t stale; /* a key of a region that is there no longer */
	atomic_bool stop, done;
	_Atomic unsigned int served, ended, seen;
	_Atomic uint64_t data; /* sum of the bytes that came with connections */
	_Atomic uint64_t commits, failed, slowest, honest_seen;
	_Atomic uint64_t acked[SLOTS];
	_Atomic unsigned int bad_ok;
	char says[200];
} * world;

static uint64_t seed;

static uint64_t rnd(void)
{
	uint64_t z = (seed += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static const struct pair_opts ours = {.msg = true};

/* --- the target: serves whoever comes --- */

static struct fid_ep *eps[SERVED];

static void let_in(struct side *s, struct fi_eq_cm_entry *e, size_t len)
{
	size_t i = 0;

	for (size_t k = 0; k < len; k++)
		atomic_fetch_add(&world->data, e->data[k]);
	while (i < SERVED && eps[i])
		i++;
	if (i == SERVED)
		MUST(-FI_ENOSPC);
	side_endpoint(s, e->info);
	eps[i] = s->ep;
	MUST(fi_enable(s->ep));
	/* It may have gone since. */
	if (fi_accept(s->ep, e->data, len)) {
		MUST(fi_close(&s->ep->fid));
		eps[i] = NULL;
	} else {
		atomic_fetch_add(&world->served, 1);
	}
	s->ep = NULL;
	fi_freeinfo(e->info);
}

static void let_out(const struct fid *fid)
{
	for (size_t i = 0; i < SERVED; i++)
		if (eps[i] && &eps[i]->fid == fid) {
			MUST(fi_close(&eps[i]->fid));
			eps[i] = NULL;
			atomic_fetch_add(&world->ended, 1);
		}
}

static void look_at_events(struct side *s)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} cm;
	struct fi_eq_err_entry err = {0};
	uint32_t event;
	ssize_t n = fi_eq_read(s->eq, &event, &cm, sizeof(cm), 0);

	if (n == -FI_EAVAIL && fi_eq_readerr(s->eq, &err, 0) > 0)
		let_out(err.fid);
	if (n < 0)
		return;
	if (event == FI_CONNREQ)
		let_in(s, &cm.e, (size_t)n - sizeof(cm.e));
	else if (event == FI_SHUTDOWN)
		let_out(cm.e.fid);
}

static void target(void)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_tagged_entry e;
	struct side s;
	ssize_t n;

	alarm(300);
	side_open(&s, &ours);
	side_memory(&s);
	/* Registered once, and not any more. */
	world->stale = fi_mr_key(s.pool_mr);
	MUST(fi_close(&s.pool_mr->fid));
	MUST(fi_mr_reg(s.domain, s.pool, PAIR_POOL,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, FI_RMA_PMEM,
		       &s.pool_mr, NULL));
	side_listen(&s);
	side_card(&s, &world->card);
	atomic_store(&world->served, 1);
	while (!atomic_load(&world->stop)) {
		look_at_events(&s);
		n = fi_cq_read(s.cq, &e, 1);
		if (n == -FI_EAVAIL)
			fi_cq_readerr(s.cq, &err, 0);
		if (n != -FI_EAGAIN)
			atomic_fetch_add(&world->seen, 1);
	}
	for (size_t i = 0; i < SLOTS; i++)
		if (*(uint64_t *)(s.pool + i * 64) <
		    atomic_load(&world->acked[i]))
			atomic_fetch_add(&world->bad_ok, 1);
	for (size_t i = 0; i < SERVED; i++)
		if (eps[i])
			MUST(fi_close(&eps[i]->fid));
	side_close(&s);
}

/* --- the honest initiator --- */

static void honest_write(struct side *s, uint64_t n)
{
	uint64_t slot = n % SLOTS, at = world->card.pool_addr + slot * 64;
	uint64_t begun = mail_now_ms(), ms;
	struct fi_cq_err_entry err;
	struct fi_cq_tagged_entry e;
	struct iovec iov = {.iov_base = &n, .iov_len = sizeof(n)};
	struct fi_rma_iov to = {at, sizeof(n), world->card.pool_key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = &iov,
	};

	POST(s, fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE | FI_COMPLETION));
	if (side_wait(s, &e, &err)) {
		atomic_store(&world->acked[slot], n);
		atomic_fetch_add(&world->commits, 1);
		if (e.op_context != &iov)
			atomic_fetch_add(&world->honest_seen, 1);
	} else {
		atomic_fetch_add(&world->failed, 1);
	}
	ms = mail_now_ms() - begun;
	if (ms > atomic_load(&world->slowest))
		atomic_store(&world->slowest, ms);
}

static void honest(void)
{
	struct timespec nap = {.tv_nsec = 500000};
	struct side s;

	alarm(300);
	side_open(&s, &ours);
	side_connect(&s, &world->card);
	for (uint64_t n = 1; !atomic_load(&world->done); n++) {
		honest_write(&s, n);
		nanosleep(&nap, NULL);
	}
	side_close(&s);
}

/* --- what a hostile peer does --- */

static struct mail_peer me;
static uint64_t my_cookie, their_cookie, incarnation, next_token;
static uint8_t msg[RP_WIRE_MAX_MSG];

static void complain(const char *what, uint64_t a)
{
	if (!*world->says)
		snprintf(world->says, sizeof(world->says), "%s (%#llx)", what,
			 (unsigned long long)a);
}

static bool arrive(bool mailbox)
{
	mail_open(&me);
	if (mail_connect(&me, &world->card, NULL, 0, mailbox))
		return true;
	complain("no connection", 0);
	return false;
}

static size_t hello(uint64_t cookie)
{
	struct rp_wire_hdr h = {.type = RP_MSG_HELLO};
	struct rp_wire_hello m = {
		.cookie = cookie,
		.key = world->card.pool_key,
		.timeout_ms = 1000,
		.features = RP_FEATURES,
	};
	size_t len = sizeof(m.addr);

	MUST(fi_getname(&me.s.ep->fid, m.addr, &len));
	m.addr_len = (uint16_t)len;
	return (size_t)MUST(rp_wire_put_hello(msg, sizeof(msg), &h, &m));
}

static bool greet(void)
{
	struct rp_wire_hello_ack ack;
	struct rp_wire_hdr h;
	size_t len;

	my_cookie = rnd() | 1;
	if (!mail_send(&me, msg, hello(my_cookie), SLOW_MS))
		return false;
	len = mail_take(&me, msg, SLOW_MS);
	if (!len || rp_wire_get_hdr(msg, len, &h) ||
	    rp_wire_get_hello_ack(msg, &h, &ack) || ack.status ||
	    h.session != my_cookie) {
		complain("no session", len);
		return false;
	}
	their_cookie = ack.cookie;
	incarnation = h.incarnation;
	return true;
}

static size_t request(uint64_t key, uint64_t addr, uint64_t len)
{
	struct rp_wire_hdr h = {
		.session = their_cookie,
		.token = ++next_token,
		.incarnation = incarnation,
	};
	static struct rp_wire_request m;

	m = (struct rp_wire_request){
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = 2,
	};
	m.ranges[0] = (struct rp_wire_range){key, addr, len};
	return (size_t)MUST(rp_wire_put_request(msg, sizeof(msg), &h, &m));
}

/* The status of the next REPLY; ~0: none comes. */
static uint32_t status(unsigned int ms)
{
	struct rp_wire_reply reply;
	struct rp_wire_hdr h;
	size_t len;

	while ((len = mail_take(&me, msg, ms))) {
		if (rp_wire_get_hdr(msg, len, &h)) {
			complain("a malformed answer", len);
			return ~0u;
		}
		if (h.type != RP_MSG_REPLY)
			continue;
		if (rp_wire_get_reply(msg, &h, &reply))
			complain("a malformed REPLY", len);
		return reply.status;
	}
	return ~0u;
}

static void must_end(void)
{
	uint64_t end = mail_now_ms() + SLOW_MS;

	while (!me.gone && mail_now_ms() < end)
		mail_poke(&me);
	if (!me.gone)
		complain("the connection does not end", 0);
}

static void requests(void)
{
	const struct card *c = &world->card;
	const struct {
		uint64_t key, addr, len;
		uint32_t want;
	} asks[] = {
		{c->pool_key, c->pool_addr, 64, RP_ST_OK},
		{c->pool_key, c->pool_addr + PAIR_POOL - 8, 64, RP_ST_RANGE},
		{c->pool_key, c->pool_addr + PAIR_POOL, 1, RP_ST_RANGE},
		{c->pool_key, UINT64_MAX - 3, 64, RP_ST_WRAP},
		{c->pool_key, c->pool_addr, 0, RP_ST_WRAP},
		{c->pool_key ^ 1ull << 50, c->pool_addr, 64, RP_ST_STALE_KEY},
		{world->stale, c->pool_addr, 64, RP_ST_UNKNOWN_KEY},
		{c->plain_key, c->plain_addr, 64, RP_ST_UNKNOWN_KEY},
		{7, 0, 64, RP_ST_UNKNOWN_KEY},
	};

	if (!arrive(true) || !greet())
		return;
	for (size_t i = 0; i < sizeof(asks) / sizeof(*asks); i++) {
		uint32_t st;

		mail_send(&me, msg,
			  request(asks[i].key, asks[i].addr, asks[i].len),
			  SLOW_MS);
		st = status(SLOW_MS);
		if (st != asks[i].want &&
		    !(asks[i].key == world->stale && st == RP_ST_STALE_KEY))
			complain("another status", i << 16 | st);
	}
}

/* Of another mailbox, of none, outside it. */
static void wrong_key(void)
{
	if (!arrive(true))
		return;
	mail_write(&me, msg, 64, 0, me.there ^ 2);
	must_end();
}

static void past_the_end(void)
{
	if (!arrive(true))
		return;
	mail_write(&me, msg, 64, RP_MAILBOX_LEN - 8, me.there);
	must_end();
}

static void no_reading(void)
{
	char got[64];

	if (!arrive(true))
		return;
	/* Nobody but its owner is to see what is in it. */
	if (!fi_read(me.s.ep, got, sizeof(got), NULL, 0, 0, me.there, got))
		must_end();
}

static void no_mailbox(void)
{
	if (!arrive(false))
		return;
	mail_send(&me, msg, hello(5), SLOW_MS);
	must_end();
}

static void another_version(void)
{
	struct rp_wire_hello_ack ack;
	struct rp_wire_hdr h;
	size_t len;

	if (!arrive(true))
		return;
	len = hello(9);
	msg[2] = 2;
	mail_send(&me, msg, len, SLOW_MS);
	len = mail_take(&me, msg, SLOW_MS);
	if (!len || rp_wire_get_hdr(msg, len, &h) || h.version != 1 ||
	    rp_wire_get_hello_ack(msg, &h, &ack) ||
	    ack.status != RP_ST_VERSION || !greet())
		complain("another version is not refused", len);
}

/* A frame at any place in the mailbox, whole, half, or with a wrong sum. */
static void frames_out_of_turn(void)
{
	if (!arrive(true))
		return;
	for (int i = 0; i < 3000 && !me.gone; i++) {
		struct rp_mailbox_write w;
		size_t len = request(world->card.pool_key, 0, 64);

		me.box.sent = (uint32_t)(1 + rnd() % 200);
		me.box.freed = me.box.sent;
		rp_mailbox_put(&me.box, msg, len, &w);
		if (rnd() & 1)
			((uint8_t *)w.buf)[rnd() % w.len] ^= 1;
		if (rnd() & 1)
			w.len -= rnd() % w.len;
		if (!mail_write(&me, w.buf, w.len, w.at, me.there))
			complain("a write into the mailbox failed", i);
	}
	/* It waits for the first one, and that is still welcome. */
	rp_mailbox_init(&me.box, me.in, me.out);
	greet();
}

/* The frame in turn is written over and over, with ever other bytes. */
static void rewritten(void)
{
	uint64_t end;

	if (!arrive(true) || !greet())
		return;
	end = mail_now_ms() + 700;
	while (mail_now_ms() < end && !me.gone) {
		uint32_t sent = me.box.sent;
		struct rp_mailbox_write w;
		size_t len = request(rnd() & 1 ? world->card.pool_key : rnd(),
				     rnd() % PAIR_POOL, 1 + rnd() % 9000);

		me.box.freed = sent;
		if (rnd() & 1) {
			len = 1 + rnd() % sizeof(msg);
			for (size_t i = 0; i < len; i++)
				msg[i] = (uint8_t)rnd();
		}
		rp_mailbox_put(&me.box, msg, len, &w);
		/* Several in a row, without a look at what has left. */
		for (int k = 0; k < 8; k++)
			fi_write(me.s.ep, w.buf, w.len, NULL, 0, w.at, me.there,
				 NULL);
		mail_write(&me, w.buf, w.len, w.at, me.there);
		if (rnd() & 3)
			me.box.sent = sent;
		rp_mailbox_take(&me.box, msg);
	}
}

/* Neither are its frames free, nor the ones that it fills ever read. */
static void flood(void)
{
	uint64_t end, n = 0;

	if (!arrive(true) || !greet())
		return;
	end = mail_now_ms() + 1500;
	while (mail_now_ms() < end && !me.gone) {
		size_t len = rnd() & 1 ? hello(rnd() | 1)
				       : request(world->card.pool_key,
						 world->card.pool_addr +
							 rnd() % 4096 * 64,
						 64);
		struct rp_mailbox_write w;

		/* As if nobody had to take what is there. */
		me.box.freed = me.box.sent;
		rp_mailbox_put(&me.box, msg, len, &w);
		n += mail_write(&me, w.buf, w.len, w.at, me.there);
	}
	if (n < 100)
		complain("hardly anything was sent", n);
}

/* Says of the other's frames what cannot be, and what is not so. */
static void lies_about_taken(void)
{
	if (!arrive(true) || !greet())
		return;
	for (int i = 0; i < 2000 && !me.gone; i++) {
		uint32_t n = (uint32_t)rnd(), cell[2] = {n, rnd() & 1 ? ~n : 0};

		mail_write(&me, cell, sizeof(cell), 0, me.there);
		if (i % 16)
			continue;
		me.box.taken += (uint32_t)(rnd() % 40);
		mail_send(&me, msg,
			  request(world->card.pool_key, world->card.pool_addr,
				  64),
			  100);
	}
}

/* Any bytes in frames of their turn, and messages with some of them changed. */
static void nonsense(void)
{
	for (int round = 0; round < 3; round++) {
		if (!arrive(true) || !greet())
			return;
		for (int i = 0; i < 100 && !me.gone; i++) {
			size_t len = rnd() & 1 ? hello(rnd() | 1)
					       : request(world->card.pool_key,
							 rnd() % PAIR_POOL, 64);

			for (uint64_t k = rnd() % 4; k--;)
				msg[rnd() % len] = (uint8_t)rnd();
			if (!(rnd() & 7))
				len = 1 + rnd() % len;
			mail_send(&me, msg, len, 200);
			mail_take(&me, msg, 0);
		}
		mail_shut(&me);
		memset(&me, 0, sizeof(me));
	}
	arrive(true);
}

/* What a program sends along is its own, whatever it is. */
static void mangled_data(void)
{
	uint8_t data[256];

	for (int i = 0; i < 20; i++) {
		uint64_t sum = 0, had = atomic_load(&world->data);
		size_t len = rnd() % (sizeof(data) + 1);

		for (size_t k = 0; k < len; k++)
			sum += data[k] = (uint8_t)rnd();
		memcpy(data, "RP\1\1", len < 4 ? len : 4);
		for (size_t k = sum = 0; k < len; k++)
			sum += data[k];
		mail_open(&me);
		if (!mail_connect(&me, &world->card, data, len, true))
			complain("no connection", (uint64_t)i);
		if (atomic_load(&world->data) - had != sum)
			complain("other data arrived", len);
		if (i == 19)
			greet();
		mail_shut(&me);
	}
	arrive(true);
}

/* Dies in the middle of a message. */
static void dies(void)
{
	static uint8_t large[PAIR_POOL / 2];

	if (!arrive(true) || !greet())
		return;
	for (int i = 0; i < 8; i++)
		mail_send(&me, msg, request(world->card.pool_key, 0, 4096),
			  100);
	/* What the socket takes of this ends before it does. */
	fi_write(me.s.ep, large, 60000, NULL, 0, 0, me.there, NULL);
	fi_write(me.s.ep, large, sizeof(large), NULL, 0,
		 world->card.pool_addr + PAIR_POOL / 2,
		 rp_key_base(world->card.pool_key), NULL);
	_exit(0);
}

static void comes_and_goes(void)
{
	for (int i = 0; i < 30; i++) {
		if (!arrive(true))
			return;
		if (i & 1)
			mail_send(&me, msg, hello(rnd() | 1), 100);
		if (i & 2)
			fi_shutdown(me.s.ep, 0);
		mail_shut(&me);
	}
	arrive(true);
}

static const struct {
	const char *name;
	void (*run)(void);
} attacks[] = {
	{"requests of every kind", requests},
	{"a key of no mailbox", wrong_key},
	{"past the end of a mailbox", past_the_end},
	{"a mailbox is read", no_reading},
	{"no mailbox for the answer", no_mailbox},
	{"another version", another_version},
	{"frames out of turn, halves of frames", frames_out_of_turn},
	{"a frame that is written again while it is read", rewritten},
	{"a flood, and no answer is taken", flood},
	{"lies about what was taken", lies_about_taken},
	{"messages of nonsense", nonsense},
	{"data of the connection, mangled", mangled_data},
	{"dies in the middle of a write", dies},
	{"comes and goes", comes_and_goes},
};

/* --- judging --- */

static pid_t start(void (*run)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	exit(0);
}

static void nap(void)
{
	struct timespec t = {.tv_nsec = 5000000};

	nanosleep(&t, NULL);
}

static const char *attack(pid_t victim, void (*run)(void))
{
	uint64_t commits = atomic_load(&world->commits), end;
	uint64_t failed = atomic_load(&world->failed);
	int st = 0;
	pid_t pid;

	*world->says = 0;
	atomic_store(&world->slowest, 0);
	seed++;
	pid = start(run);
	end = mail_now_ms() + 60000;
	while (!waitpid(pid, &st, WNOHANG) && mail_now_ms() < end)
		nap();
	if (mail_now_ms() >= end) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return "the hostile peer itself came to no end";
	}
	end = mail_now_ms() + SLOW_MS;
	while (atomic_load(&world->commits) < commits + 3 &&
	       mail_now_ms() < end)
		nap();
	if (waitpid(victim, NULL, WNOHANG))
		return "the target has ended";
	if (*world->says)
		return world->says;
	if (st)
		return "the hostile peer ended badly";
	if (atomic_load(&world->failed) != failed)
		return "an honest write failed";
	if (atomic_load(&world->commits) < commits + 3)
		return "nobody else was served";
	if (atomic_load(&world->slowest) > SLOW_MS)
		return "an honest write took too long";
	if (atomic_load(&world->seen))
		return "the target's program saw something";
	if (atomic_load(&world->honest_seen))
		return "the honest program saw something";
	return NULL;
}

int main(void)
{
	pid_t victim, friend;
	int st = 1;

	signal(SIGPIPE, SIG_IGN);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		MUST(-errno);
	seed = getenv("RP_SEED") ? strtoull(getenv("RP_SEED"), NULL, 0)
				 : (uint64_t)time(NULL);
	printf("# RP_SEED=%llu\n", (unsigned long long)seed);
	victim = start(target);
	while (!atomic_load(&world->served) && !waitpid(victim, NULL, WNOHANG))
		nap();
	friend = start(honest);
	while (atomic_load(&world->commits) < 20 &&
	       !waitpid(friend, NULL, WNOHANG))
		nap();
	for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++) {
		uint64_t begun = mail_now_ms();
		const char *bad = attack(victim, attacks[i].run);

		tap_ok(!bad, "%s%s%s", attacks[i].name, bad ? ": " : "",
		       bad ? bad : "");
		printf("# %llu ms\n",
		       (unsigned long long)(mail_now_ms() - begun));
	}
	atomic_store(&world->done, true);
	tap_ok(waitpid(friend, &st, 0) == friend && !st,
	       "the honest initiator ends well");
	atomic_store(&world->stop, true);
	tap_ok(waitpid(victim, &st, 0) == victim && !st,
	       "the target ends well");
	tap_ok(!atomic_load(&world->bad_ok),
	       "what was acknowledged is there (%llu)",
	       (unsigned long long)atomic_load(&world->commits));
	return tap_done();
}
