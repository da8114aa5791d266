// SPDX-License-Identifier: BSD-2-Clause
/* Simulated power cuts: every acknowledged record must be on the medium. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "fault/record.h"
#include "functional/pair.h"

/*
 * A round has three processes. The target maps the pool; its preloaded library
 * (shadow.c) writes flushed bytes to a shadow file. The initiator appends
 * records, commits them in each way, and notes acknowledged records in shared
 * memory. This process kills the target at a random moment, and looks for these
 * records in the shadow file. Without the library (only with -c: CPU caches
 * survive) it looks in the pool.
 */

#define RECORDS (PAIR_POOL / sizeof(struct record))
#define BATCH	8
#define WINDOW	32
#define ENOUGH	400   /* most acknowledgements to wait for before a cut */
#define POLLS	60000 /* polls for ENOUGH, each at least 0.5 ms */

/*
 * In a guest the sides are started separately, and the notes are in slots of a
 * file outside the guest (FD). --initiator FD SEED SLOT ENOUGH prints "enough"
 * after ENOUGH acknowledgements, and continues. After the cut --check POOL SEED
 * FD SLOT compares.
 */

/* RPMEM_MSG selects connected endpoints, without atomics. */
static bool is_msg(void)
{
	return getenv("RPMEM_MSG");
}

static uint64_t rng_state;
static uint64_t random_below(uint64_t below)
{
	rng_state += 1;
	return mix(rng_state) % below;
}

/* --- the target: maps the pool, drives progress until it is killed --- */

static int run_target(const char *pool, uint64_t seed)
{
	struct pair_opts o = {.caps = is_msg() ? 0 : FI_ATOMIC,
			      .msg = is_msg()};
	struct card card;
	struct side s;
	char c;

	rng_state = seed;
	if (random_below(3) == 0)
		o.progress = FI_PROGRESS_AUTO;
	o.sleeps = random_below(2);
	side_open(&s, &o);
	side_pool(&s, pool);
	if (o.msg)
		side_listen(&s);
	side_card(&s, &card);
	if (write(STDOUT_FILENO, &card, sizeof(card)) != sizeof(card))
		return 1;
	if (o.msg)
		side_accept(&s);
	if (o.progress == FI_PROGRESS_AUTO)
		while (read(STDIN_FILENO, &c, 1) < 0)
			;
	for (;;) {
		struct fi_cq_tagged_entry e;

		if (o.sleeps)
			fi_cq_sread(s.cq, &e, 1, NULL, 1000);
		else
			fi_cq_read(s.cq, &e, 1);
	}
}

/* --- the initiator: appends until it is killed --- */

struct batch {
	uint64_t first;
	unsigned int n;
	unsigned int waits; /* completions not read yet */
	bool failed;
	struct record r[BATCH];
};

static void *desc; /* local memory descriptor of the window */
static volatile uint8_t *acked;
static uint64_t acked_count, acked_enough;

/*
 * Count one completion of a batch. After its last one, if none failed, note its
 * records as acknowledged.
 */
static void end_batch(struct batch *b, bool ok)
{
	b->failed |= !ok;
	if (--b->waits || b->failed)
		return;
	for (unsigned int i = 0; i < b->n; i++) {
		acked[b->first + i] = 1;
		if (++acked_count == acked_enough &&
		    write(STDOUT_FILENO, "enough\n", 7) != 7)
			exit(1);
	}
}

static void reap_entries(struct side *s)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_read(s->cq, &e, 1);

	if (n == 1)
		end_batch(e.op_context, true);
	else if (n == -FI_EAVAIL && fi_cq_readerr(s->cq, &err, 0) == 1)
		end_batch(err.op_context, false);
}

#define PUT(call)                                                              \
	do {                                                                   \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN)                            \
			reap_entries(s);                                       \
		MUST(r_);                                                      \
	} while (0)

static void append_records(struct side *s, const struct card *card,
			   struct batch *b, int way)
{
	struct fi_rma_iov at[BATCH];
	struct iovec iov;
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = at,
		.rma_iov_count = 1,
		.context = b,
	};

	for (unsigned int i = 0; i < b->n; i++)
		at[i] = (struct fi_rma_iov){
			card->pool_addr +
				(b->first + i) * sizeof(struct record),
			sizeof(struct record), card->pool_key};
	if (way == 3) { /* one durable atomic for each record */
		struct fi_ioc from = {.count = sizeof(struct record) / 8};
		struct fi_rma_ioc to = {.count = from.count};
		struct fi_msg_atomic a = {
			.msg_iov = &from,
			.iov_count = 1,
			.addr = s->peer,
			.rma_iov = &to,
			.rma_iov_count = 1,
			.datatype = FI_UINT64,
			.op = FI_ATOMIC_WRITE,
			.context = b,
		};

		b->waits = b->n;
		for (unsigned int i = 0; i < b->n; i++) {
			from.addr = &b->r[i];
			to.addr = at[i].addr;
			to.key = at[i].key;
			PUT(fi_atomicmsg(s->ep, &a, FI_COMMIT_COMPLETE));
		}
		return;
	}
	if (way == 0) { /* one durable write for each record */
		b->waits = b->n;
		for (unsigned int i = 0; i < b->n; i++) {
			iov.iov_base = &b->r[i];
			iov.iov_len = sizeof(b->r[i]);
			msg.rma_iov = &at[i];
			PUT(fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE));
		}
		return;
	}
	b->waits = b->n + 1;
	for (unsigned int i = 0; i < b->n; i++)
		PUT(fi_write(s->ep, &b->r[i], sizeof(b->r[i]), desc, s->peer,
			     at[i].addr, at[i].key, b));
	if (way == 1) { /* one commit, with one range for each record */
		PUT(commit_post(s->ep, at, b->n, s->peer, FI_RPMEM_DURABLE,
				FI_RPMEM_CLASS_DEFAULT, NULL, b));
		return;
	}
	at[0].len *= b->n; /* one commit of one range */
	PUT(commit_post(s->ep, at, 1, s->peer, FI_RPMEM_DURABLE,
			FI_RPMEM_CLASS_DEFAULT, NULL, b));
}

static volatile uint8_t *acks_map(int fd, int slot)
{
	void *p = mmap(NULL, RECORDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       (off_t)(slot * RECORDS));

	if (p == MAP_FAILED)
		MUST(-errno);
	return p;
}

static int initiator(int ack_fd, uint64_t seed, int slot)
{
	static struct batch window[WINDOW];
	struct pair_opts o = {.caps = is_msg() ? 0 : FI_ATOMIC,
			      .msg = is_msg()};
	struct card card;
	uint64_t next = 0;
	struct side s;

	rng_state = seed + 1;
	acked = acks_map(ack_fd, slot);
	side_open(&s, &o);
	desc = side_local_desc(&s, window, sizeof(window));
	if (read(STDIN_FILENO, &card, sizeof(card)) != sizeof(card))
		return 1;
	if (o.msg)
		side_connect(&s, &card);
	else
		side_insert(&s, &card);
	for (unsigned int i = 0; next < RECORDS; i++) {
		struct batch *b = &window[i % WINDOW];

		while (b->waits)
			reap_entries(&s);
		b->failed = false;
		b->first = next;
		b->n = 1 + random_below(BATCH);
		if (b->n > RECORDS - next)
			b->n = RECORDS - next;
		for (unsigned int k = 0; k < b->n; k++)
			record_make(&b->r[k], seed, next + k + 1);
		append_records(&s, &card, b, (int)random_below(o.msg ? 3 : 4));
		next += b->n;
	}
	for (;;)
		reap_entries(&s);
}

/* --- the process that cuts and compares --- */

static pid_t spawn_half(char **argv, int in, int out, const char *preload)
{
	pid_t pid = fork();

	if (pid < 0)
		MUST(-errno);
	if (pid)
		return pid;
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	execv("/proc/self/exe", argv);
	_exit(127);
}

static void pause_us(uint64_t us)
{
	struct timespec t = {.tv_sec = us / 1000000,
			     .tv_nsec = us % 1000000 * 1000};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static uint64_t count_flags(volatile uint8_t *flags)
{
	uint64_t n = 0;

	for (size_t i = 0; i < RECORDS; i++)
		n += flags[i];
	return n;
}

struct round {
	uint64_t acked, missing, first_missing;
};

/*
 * Run and kill one target, then compare. preload: the shadow library, or NULL
 * to compare the pool file.
 */
static void run_round(uint64_t seed, const char *preload, struct round *out)
{
	const char *given = getenv("RPMEM_POOL");
	char pool[32], shadow[64], text[32], acks[16], spec[128];
	char *targv[] = {"powercut", "--target", pool, text, NULL};
	char *iargv[] = {"powercut", "--initiator", acks, text, "0", "0", NULL};
	int ack_fd = memfd_create("acks", 0), in[2], card[2], fd, null;
	volatile uint8_t *flags;
	struct record want;
	uint64_t enough;
	pid_t tpid, ipid;
	int status;
	size_t len;
	char *left;

	rng_state = seed + 2;
	snprintf(shadow, sizeof(shadow), "powercut_pool.%d.shadow", getpid());
	snprintf(pool, sizeof(pool), "powercut_pool.%d", getpid());
	if (given)
		snprintf(pool, sizeof(pool), "%s", given);
	snprintf(spec, sizeof(spec), "%s:%s", pool, shadow);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	snprintf(acks, sizeof(acks), "%d", ack_fd);
	fd = open(shadow, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (ack_fd < 0 || fd < 0 || ftruncate(ack_fd, RECORDS) ||
	    ftruncate(fd, PAIR_POOL) || pipe(in) || pipe(card))
		MUST(-errno);
	null = open("/dev/null", O_WRONLY);
	fcntl(in[1], F_SETFD, FD_CLOEXEC);
	setenv("RPMEM_SHADOW", spec, 1);
	flags = acks_map(ack_fd, 0);
	tpid = spawn_half(targv, in[0], card[1], preload);
	ipid = spawn_half(iargv, card[0], null, NULL);

	/*
	 * Wait for `enough` acknowledgements, and not for a time: the machine's
	 * speed must not matter. One round of ten waits for none.
	 */
	enough = random_below(10) ? 1 + random_below(ENOUGH) : 0;
	for (int i = 0; i < POLLS && count_flags(flags) < enough; i++) {
		const bool begins = waitpid(ipid, &status, WNOHANG);

		if (begins || waitpid(tpid, &status, WNOHANG)) {
			printf("# the %s ended by itself: status %#x\n",
			       begins ? "initiator" : "target",
			       (unsigned int)status);
			exit(1);
		}
		pause_us(500);
	}
	if (enough && !count_flags(flags)) {
		printf("# nothing was acknowledged\n");
		exit(1);
	}
	pause_us(random_below(20000));
	kill(tpid, SIGKILL);
	waitpid(tpid, NULL, 0);
	pause_us(3000); /* lets the initiator read replies that are in flight */
	kill(ipid, SIGKILL);
	waitpid(ipid, NULL, 0);

	memset(out, 0, sizeof(*out));
	left = preload ? mmap(NULL, PAIR_POOL, PROT_READ, MAP_SHARED, fd, 0)
		       : pair_map(pool, &len);
	if (left == MAP_FAILED)
		MUST(-errno);
	for (uint64_t i = 0; i < RECORDS; i++) {
		if (!flags[i])
			continue;
		out->acked++;
		record_make(&want, seed, i + 1);
		if (memcmp(&want, left + i * sizeof(want), sizeof(want)) &&
		    !out->missing++)
			out->first_missing = i + 1;
	}
	munmap(left, preload ? PAIR_POOL : len);
	munmap((void *)flags, RECORDS);
	close(ack_fd);
	close(fd);
	close(null);
	close(in[0]);
	close(in[1]);
	close(card[0]);
	close(card[1]);
	if (!given)
		unlink(pool);
	unlink(shadow);
}

/* After the machine's restart: does the pool hold all acknowledged records? */
static int check_pool(const char *pool, uint64_t seed, int fd, int slot)
{
	volatile uint8_t *flags = acks_map(fd, slot);
	uint64_t n = 0, missing = 0;
	struct record want;
	size_t len;
	char *left = pair_map(pool, &len);

	for (uint64_t i = 0; i < RECORDS; i++) {
		if (!flags[i])
			continue;
		n++;
		record_make(&want, seed, i + 1);
		missing += memcmp(&want, left + i * sizeof(want),
				  sizeof(want)) != 0;
	}
	printf("# %llu records, %llu missing\n", (unsigned long long)n,
	       (unsigned long long)missing);
	return missing || !n;
}

int main(int argc, char **argv)
{
	const char *preload = getenv("RPMEM_SHADOW_LIB");
	const char *want_loss = getenv("RPMEM_EXPECT_LOSS");
	uint64_t seed = 0, acks = 0, missing = 0, longest = 0;
	bool caches = false;
	int rounds = 200, opt;
	struct round r;

	if (argc == 4 && !strcmp(argv[1], "--target"))
		return run_target(argv[2], strtoull(argv[3], NULL, 10));
	if (argc == 6 && !strcmp(argv[1], "--initiator")) {
		acked_enough = strtoull(argv[5], NULL, 10);
		return initiator(atoi(argv[2]), strtoull(argv[3], NULL, 10),
				 atoi(argv[4]));
	}
	if (argc == 6 && !strcmp(argv[1], "--check"))
		return check_pool(argv[2], strtoull(argv[3], NULL, 10),
				  atoi(argv[4]), atoi(argv[5]));
	while ((opt = getopt(argc, argv, "cn:s:")) != -1) {
		if (opt == 'n')
			rounds = atoi(optarg);
		else if (opt == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (opt == 'c')
			caches = true;
		else
			return 2;
	}
	if (!preload && !caches) {
		fprintf(stderr, "RPMEM_SHADOW_LIB must name libshadow.so\n");
		return 2;
	}
	if (!seed && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return 1;
	seed &= 0xffffffff;
	printf("# seed %llu (-s), %d rounds (-n)\n", (unsigned long long)seed,
	       rounds);
	for (int i = 0; i < rounds; i++) {
		run_round(seed + (uint64_t)i * 1000, preload, &r);
		acks += r.acked;
		missing += r.missing;
		longest = r.acked > longest ? r.acked : longest;
		if (r.missing)
			printf("# round %d: %llu of %llu acknowledged records "
			       "are missing, first %llu; repeat with -s %llu "
			       "-n 1\n",
			       i, (unsigned long long)r.missing,
			       (unsigned long long)r.acked,
			       (unsigned long long)r.first_missing,
			       (unsigned long long)(seed + (uint64_t)i * 1000));
		if (r.missing && want_loss)
			break;
	}
	printf("# %llu records acknowledged, %llu at most in a round, %llu "
	       "missing\n",
	       (unsigned long long)acks, (unsigned long long)longest,
	       (unsigned long long)missing);
	/* Without acknowledgements the test would prove nothing. */
	tap_ok(acks > 10ull * rounds || want_loss,
	       "records were acknowledged before the cuts");
	if (want_loss)
		tap_ok(missing > 0, "without the flush records are lost");
	else
		tap_ok(missing == 0, "no acknowledged record is missing");
	return tap_done();
}
