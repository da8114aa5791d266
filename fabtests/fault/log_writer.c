// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes and reads a log of numbered entries, for log_lives.sh: log_writer
 * WHERE COMMAND. WHERE may end with @LOGS/LOG.
 *
 *   create LAYOUT
 *   append  append endlessly after the last entry; print "acked N"
 *   follow  print "opened", then "seen N" as entries become durable
 *   visible print "opened"; read entries as they become visible; print "seen N"
 *           as they become durable, and "beyond N" once for an entry that was
 *           read before that
 *   check   read all entries; print "last N", then "CLASS by METHOD"
 *
 * $RP_SECRET: the file of the daemon's secret; $RP_CLASS: the class that the
 * pool must reach (power).
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_log.h>

#include "fabtests/unit/seeded.h"
#include "util/pool_class.h"

#define LONGEST 3000u
#define WINDOW	48u
#define AHEAD	256u /* more entries than are visible and not durable */
#define GETS	20   /* of a visible entry, 1 ms apart */
#define TRIES	3    /* opens while fi_rpmemd is silent, for 5 seconds each */

/* Fill in entry n: its number, then bytes and a length that follow from it. */
static size_t fill(unsigned char *to, uint64_t n)
{
	struct seeded s = {.state = n};
	const size_t len = sizeof(n) + seeded_below(&s, LONGEST - sizeof(n));

	memcpy(to, &n, sizeof(n));
	for (size_t i = sizeof(n); i < len; i++)
		to[i] = (unsigned char)(n * 31 + i);
	return len;
}

static int report(const char *what)
{
	fprintf(stderr, "log_writer: %s: %s\n", what, rpmem_log_error());
	return 1;
}

/*
 * Does the entry have the length and bytes of its number? Returns the number in
 * *n.
 */
static bool is_entry(const unsigned char *bytes, size_t len, uint64_t *n)
{
	unsigned char want[LONGEST];

	*n = 0;
	if (len < sizeof(*n))
		return false;
	memcpy(n, bytes, sizeof(*n));
	return fill(want, *n) == len && !memcmp(want, bytes, len);
}

/*
 * Read from *lsn to the end, and check that numbers follow each other. *last:
 * the previous entry's number, 0: unknown.
 */
static int read_on(struct rpmem_log *log, uint64_t *lsn, uint64_t *last)
{
	unsigned char bytes[LONGEST];
	uint64_t n;
	size_t len;
	int ret;

	while ((ret = rpmem_log_read(log, lsn, bytes, sizeof(bytes), &len,
				     0)) != 0) {
		if (ret == -ERANGE) {
			*last = 0;
			continue;
		}
		if (ret < 0)
			return report("read");
		if (!is_entry(bytes, len, &n) || (*last && n != *last + 1)) {
			fprintf(stderr,
				"log_writer: %" PRIu64 " follows %" PRIu64
				" at LSN %" PRIu64 "\n",
				n, *last, *lsn);
			return 1;
		}
		*last = n;
	}
	return 0;
}

struct slot {
	struct rpmem_log_op op;
	uint64_t n;
};

/*
 * Keep space in the ring: when it is half full, trim to the entry noted at the
 * previous trim.
 */
static int trim(struct rpmem_log *log, uint64_t *keep, uint64_t lsn)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	if (rpmem_log_query(log, &info))
		return report("query");
	if (info.tail - info.head < info.capacity / 2)
		return 0;
	if (*keep > info.head && rpmem_log_trim(log, *keep))
		return report("trim");
	*keep = lsn;
	return 0;
}

static int append(struct rpmem_log *log, uint64_t n)
{
	static struct slot slots[WINDOW];
	unsigned char bytes[LONGEST];
	uint64_t keep = RPMEM_LOG_HEAD;
	unsigned int out = 0;
	struct rpmem_log_op *done[WINDOW];
	int got;

	for (;;) {
		while (out < WINDOW) {
			struct slot *s = &slots[++n % WINDOW];
			const struct iovec v = {bytes, fill(bytes, n)};

			s->n = n;
			s->op = (struct rpmem_log_op){
				.entries = &v, .count = 1, .context = s};
			if (rpmem_log_submit(log, &s->op))
				return report("submit");
			out++;
		}
		got = rpmem_log_poll(log, done, WINDOW, -1);
		if (got < 0)
			return report("poll");
		for (int i = 0; i < got; i++) {
			const struct slot *s = done[i]->context;

			if (done[i]->result) {
				fprintf(stderr, "log_writer: %s\n",
					done[i]->error);
				return 1;
			}
			printf("acked %" PRIu64 "\n", s->n);
		}
		fflush(stdout);
		out -= (unsigned int)got;
		if (trim(log, &keep, done[got - 1]->lsn))
			return 1;
	}
}

static int follow(struct rpmem_log *log)
{
	uint64_t lsn = RPMEM_LOG_HEAD, last = 0, before;

	puts("opened");
	fflush(stdout);
	for (;;) {
		before = last;
		if (read_on(log, &lsn, &last))
			return 1;
		if (last != before && last) {
			printf("seen %" PRIu64 "\n", last);
			fflush(stdout);
		}
		poll(NULL, 0, 1);
	}
}

/* The LSN behind entry n. n = 0: its number is not known. */
struct place {
	uint64_t lsn, n;
};

/* A reader of visible entries. */
struct visible {
	struct rpmem_log_info info;
	struct place at;   /* next entry */
	struct place kept; /* the entries before are durable */
	/* Places between the two, oldest first. */
	struct place ahead[AHEAD];
	unsigned int first, count;
};

static int query_visible(struct rpmem_log *log, struct visible *v)
{
	const uint64_t epoch = v->info.epoch;

	v->info.size = sizeof(v->info);
	if (rpmem_log_query(log, &v->info))
		return report("query");
	if (v->info.epoch != epoch) {
		/* As rpmem_log(3) says: the next writer may drop these. */
		v->at = v->kept;
		v->count = 0;
	}
	while (v->count && v->ahead[v->first].lsn <= v->info.durable) {
		v->kept = v->ahead[v->first];
		v->first = (v->first + 1) % AHEAD;
		v->count--;
	}
	return 0;
}

/*
 * The reader did not get the entry that rpmem_log_query() has called visible.
 * Only a next writer, or a trim since then, may be the cause; else it must get
 * the entry soon.
 */
static int check_dropped(struct rpmem_log *log, struct visible *v,
			 const char *what)
{
	const struct visible was = *v;
	unsigned char bytes[LONGEST];
	uint64_t lsn, n;
	size_t len;

	for (int i = 0; i < GETS; i++) {
		if (query_visible(log, v))
			return 1;
		if (v->info.epoch != was.info.epoch ||
		    was.at.lsn < v->info.head)
			return 0;
		lsn = was.at.lsn;
		if (rpmem_log_read(log, &lsn, bytes, sizeof(bytes), &len,
				   RPMEM_LOG_VISIBLE) > 0 &&
		    is_entry(bytes, len, &n) &&
		    (!was.at.n || n == was.at.n + 1))
			return 0;
		poll(NULL, 0, 1);
	}
	fprintf(stderr,
		"log_writer: WRONG: %s at LSN %" PRIu64 " behind %" PRIu64
		"; epoch %" PRIu64 ", head %" PRIu64 ", durable %" PRIu64
		", visible %" PRIu64 "; then durable %" PRIu64
		", visible %" PRIu64 "\n",
		what, was.at.lsn, was.at.n, was.info.epoch, was.info.head,
		was.info.durable, was.info.visible, v->info.durable,
		v->info.visible);
	return 1;
}

/* Read the next entry. Returns 1, 0: it was dropped, or -1: a failure. */
static int read_visible(struct rpmem_log *log, struct visible *v)
{
	unsigned char bytes[LONGEST];
	struct place next = v->at;
	size_t len;
	const int ret = rpmem_log_read(log, &next.lsn, bytes, sizeof(bytes),
				       &len, RPMEM_LOG_VISIBLE);

	if (ret == -ERANGE) {
		v->at = (struct place){next.lsn, 0};
		return 0;
	}
	if (ret < 0)
		return -report("read");
	if (!ret)
		return -check_dropped(log, v, "no entry");
	if (!is_entry(bytes, len, &next.n)) {
		fprintf(stderr,
			"log_writer: WRONG: a torn entry before LSN %" PRIu64
			"\n",
			next.lsn);
		return -1;
	}
	if (v->at.n && next.n != v->at.n + 1)
		return -check_dropped(log, v, "another entry");
	v->at = v->ahead[(v->first + v->count++) % AHEAD] = next;
	return 1;
}

static int follow_visible(struct rpmem_log *log)
{
	static struct visible v;
	bool beyond = false;
	uint64_t seen = 0;
	int ret;

	puts("opened");
	fflush(stdout);
	for (;;) {
		if (query_visible(log, &v))
			return 1;
		if (v.kept.n > seen)
			printf("seen %" PRIu64 "\n", seen = v.kept.n);
		fflush(stdout);
		if (v.at.lsn < v.info.head)
			v.at = (struct place){v.info.head, 0};
		while (v.count < AHEAD && v.at.lsn < v.info.visible) {
			ret = read_visible(log, &v);
			if (ret < 0)
				return 1;
			if (ret && v.at.lsn > v.info.durable && !beyond) {
				printf("beyond %" PRIu64 "\n", v.at.n);
				fflush(stdout);
				beyond = true;
			}
		}
		poll(NULL, 0, 1);
	}
}

/*
 * Open the log. Tries again if the client calls fi_rpmemd silent, because on a
 * loaded machine it may get no CPU time for 5 seconds, or if the private
 * connection is lost meanwhile for the same reason.
 */
static int open_log(struct rpmem_log **log, const char *where,
		    const struct rpmem_log_attr *attr)
{
	int ret = -1;

	for (int i = 0; i < TRIES; i++) {
		ret = rpmem_log_open(log, where, attr);
		if (!ret || (!strstr(rpmem_log_error(), "silent") &&
			     !strstr(rpmem_log_error(), "try again")))
			break;
		report("open");
	}
	return ret;
}

static int print_class(struct rpmem_log *log)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	if (rpmem_log_query(log, &info))
		return report("query");
	printf("%s by %s\n", rp_pool_class_name(info.reached), info.method);
	return 0;
}

int main(int argc, char **argv)
{
	struct rpmem_log_attr attr = {
		.size = sizeof(attr),
		.timeout = 30,
		.secret_file = getenv("RP_SECRET"),
	};
	const char *class = getenv("RP_CLASS");
	uint64_t lsn = RPMEM_LOG_HEAD, last = 0;
	struct rpmem_log *log;
	char *at;
	int ret = 0;

	if (argc < 3 || (class && !rp_pool_class_parse(class, &attr.required)))
		return 2;
	at = strchr(argv[1], '@');
	if (at) {
		*at++ = 0;
		attr.logs = (unsigned int)strtoul(at, &at, 10);
		attr.log = (unsigned int)strtoul(at + 1, NULL, 10);
	}
	if (!strcmp(argv[2], "create")) {
		attr.layout = (enum rpmem_log_layout)atoi(argv[3]);
		return rpmem_log_create(argv[1], &attr) ? report("create") : 0;
	}
	attr.read_only =
		!strcmp(argv[2], "follow") || !strcmp(argv[2], "visible");
	/*
	 * check takes the log over: its former writer was killed, and a
	 * restarted daemon would wait for that writer.
	 */
	attr.take = !strcmp(argv[2], "check");
	if (open_log(&log, argv[1], &attr))
		return report("open");
	if (!strcmp(argv[2], "follow"))
		ret = follow(log);
	else if (attr.read_only)
		ret = follow_visible(log);
	else
		ret = read_on(log, &lsn, &last);
	if (!ret && !strcmp(argv[2], "append"))
		ret = append(log, last);
	if (!ret)
		printf("last %" PRIu64 "\n", last);
	if (!ret && attr.take)
		ret = print_class(log);
	rpmem_log_close(log);
	return ret;
}
