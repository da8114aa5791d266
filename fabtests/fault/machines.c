// SPDX-License-Identifier: BSD-2-Clause
/* An initiator survives the death of its target's machine. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"

/*
 * usage, on two machines: machines --target POOL BOARD LIFE, and machines
 * --initiator BOARD. BOARD is a file of memory that both share; the target of
 * incarnation LIFE writes its card there.
 */

#define RECORD	 64
#define RECORDS	 (PAIR_POOL / RECORD)
#define ENOUGH	 200 /* acknowledgements before the target may die */
#define MORE	 100 /* acknowledgements after the restart */
#define WINDOW	 16
#define DEADLINE 300.0 /* s, for steps without another limit */

struct board {
	uint32_t incarnation; /* incarnation of the target that wrote card */
	struct card card;
};

static struct board *board_map(const char *path)
{
	int fd = open(path, O_RDWR);
	void *p = MAP_FAILED;

	if (fd >= 0)
		p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		MUST(-errno);
	close(fd);
	return p;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Serve the pool, always on the same port. */
static void __attribute__((noreturn))
target(const char *pool, struct board *b, uint32_t incarnation)
{
	const struct pair_opts o = {.port = "7471"};
	struct fi_cq_tagged_entry e;
	struct card c;
	struct side s;

	side_open(&s, &o);
	side_pool(&s, pool);
	side_card(&s, &c);
	memcpy(&b->card, &c, sizeof(c));
	__atomic_store_n(&b->incarnation, incarnation, __ATOMIC_RELEASE);
	for (;;)
		fi_cq_read(s.cq, &e, 1);
}

static void exchange_cards(struct board *b, uint32_t incarnation,
			   struct card *c)
{
	const double limit = now() + DEADLINE;

	while (__atomic_load_n(&b->incarnation, __ATOMIC_ACQUIRE) <
	       incarnation) {
		if (now() > limit)
			MUST(-FI_ETIMEDOUT);
		usleep(100000);
	}
	memcpy(c, &b->card, sizeof(*c));
}

/* --- durable writes until one fails --- */

static char sent[RECORDS][RECORD];
static bool acked[RECORDS];

struct way {
	struct op {
		size_t record;
		double posted;
		bool outstanding;
	} op[WINDOW];
	unsigned int left; /* writes outstanding */
	size_t acked, failed;
	double longest; /* longest time to a completion, s */
	bool reported;
};

static void reap_entries(struct side *s, struct way *w)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_read(s->cq, &e, 1);
	const bool ok = n == 1;
	double took;
	struct op *o;

	if (n == -FI_EAVAIL)
		n = fi_cq_readerr(s->cq, &err, 0);
	if (n != 1)
		return;
	o = ok ? e.op_context : err.op_context;
	if (!o->outstanding)
		MUST(-FI_EALREADY);
	o->outstanding = false;
	w->left--;
	took = now() - o->posted;
	if (took > w->longest)
		w->longest = took;
	acked[o->record] = ok;
	w->acked += ok;
	if (!ok && !w->failed++)
		printf("# first error: %s (%d), status %d, after %.2f s\n",
		       fi_strerror(err.err), err.err, err.prov_errno, took);
	if (w->acked == ENOUGH && !w->reported) {
		printf("# enough\n");
		w->reported = true;
	}
}

static ssize_t post_record(struct side *s, const struct card *c, struct op *o)
{
	struct iovec iov = {sent[o->record], RECORD};
	struct fi_rma_iov to = {c->pool_addr + o->record * RECORD, RECORD,
				c->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = o,
	};

	return fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE);
}

/* Write the records from first to end durably; stop at the first failure. */
static void put_all(struct side *s, const struct card *c, struct way *w,
		    size_t first, size_t end)
{
	double limit = now() + DEADLINE;
	size_t next = first;
	ssize_t ret;

	while (next < end && !w->failed && now() < limit) {
		struct op *o = &w->op[next % WINDOW];

		reap_entries(s, w);
		if (o->outstanding)
			continue;
		o->record = next;
		o->posted = now();
		ret = post_record(s, c, o);
		if (ret == -FI_EAGAIN)
			continue;
		if (ret) {
			printf("# refused at once: %s\n",
			       fi_strerror((int)-ret));
			w->failed++;
			break;
		}
		o->outstanding = true;
		w->left++;
		next++;
		/*
		 * The test now kills the machine: write slowly, so that records
		 * are left when it dies.
		 */
		if (w->reported)
			usleep(1000);
	}
	limit = now() + DEADLINE;
	while (w->left && now() < limit)
		reap_entries(s, w);
}

static int commit_and_wait(struct side *s, const struct card *c)
{
	struct fi_rma_iov r = {c->pool_addr, RECORD, c->pool_key};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

/* Count acknowledged records that the target does not have. */
static size_t count_missing(struct side *s, const struct card *c)
{
	static char in[PAIR_POOL];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	size_t n = 0;

	for (size_t at = 0; at < PAIR_POOL; at += 65536) {
		POST(s, fi_read(s->ep, in + at, 65536, NULL, s->peer,
				c->pool_addr + at, c->pool_key, in));
		if (side_wait(s, &e, &err) != 1)
			return RECORDS;
	}
	for (size_t i = 0; i < RECORDS; i++)
		n += acked[i] && memcmp(in + i * RECORD, sent[i], RECORD);
	return n;
}

static int initiator(struct board *b, double timeout)
{
	static struct way first, second;
	const struct pair_opts o = {0};
	struct card c, again;
	struct side s;
	size_t from;
	int status;

	for (size_t i = 0; i < RECORDS; i++)
		for (size_t k = 0; k < RECORD; k++)
			sent[i][k] = (char)(i * 31 + k * 7 + 1);
	exchange_cards(b, 1, &c);
	side_open(&s, &o);
	side_insert(&s, &c);
	put_all(&s, &c, &first, 0, RECORDS);
	tap_ok(first.acked >= ENOUGH, "records are acknowledged");
	tap_ok(first.failed > 0, "the death of the machine is an error");
	tap_ok(!first.left, "all outstanding operations end once");
	tap_ok(first.longest < timeout * 1.5,
	       "nothing takes longer than its timeout");
	printf("# %zu acknowledged, %zu failed, %.2f s at most of %.2f\n",
	       first.acked, first.failed, first.longest, timeout);

	exchange_cards(b, 2, &again);
	/*
	 * Open a new endpoint, because ofi_rxm keeps the old connection: the
	 * device did not notice the machine's death (docs/guarantees.md, "Over
	 * verbs").
	 */
	side_close(&s);
	side_open(&s, &o);
	side_insert(&s, &again);
	status = commit_and_wait(&s, &c);
	tap_ok(status && status != RP_ST_TIMEOUT,
	       "the next incarnation refuses the last one's key");
	printf("# old key: status %d\n", status);
	tap_ok(c.pool_key != again.pool_key, "keys are not given twice");
	tap_ok(count_missing(&s, &again) == 0,
	       "acknowledged records are in the pool");
	from = RECORDS - MORE;
	put_all(&s, &again, &second, from, RECORDS);
	tap_ok(second.acked == MORE && !second.failed, "work goes on");
	tap_ok(count_missing(&s, &again) == 0, "and all of them are");
	side_close(&s);
	return tap_done();
}

int main(int argc, char **argv)
{
	const char *ms = getenv("FI_OFI_RPMEM_TIMEOUT");

	setbuf(stdout, NULL);
	if (argc == 5 && !strcmp(argv[1], "--target"))
		target(argv[2], board_map(argv[3]), (uint32_t)atoi(argv[4]));
	if (argc == 3 && !strcmp(argv[1], "--initiator"))
		return initiator(board_map(argv[2]),
				 (ms ? atoi(ms) : 5000) / 1000.0);
	return 2;
}
