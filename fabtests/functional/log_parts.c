// SPDX-License-Identifier: BSD-2-Clause
/*
 * Several logs in one pool, for log.sh. usage: log_parts WHERE (a pool without
 * a log), or log_parts PARTS SHARED WHOLE (three such pools): then log.sh
 * restarts the daemon after the program has printed a line, and lets the
 * program go on by a line on stdin.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rpmem_log.h>

#define CHECK(x) ((x) ? (void)0 : fail(__LINE__, #x))
#define OK(x)	 CHECK((x) == 0)

static const char *where;

static void fail(int line, const char *what)
{
	fprintf(stderr, "log_parts:%d: %s\nlog: %s\npool: %s\n", line, what,
		rpmem_log_error(), rpmem_pool_error());
	exit(1);
}

static struct rpmem_log_attr attr_of(unsigned int logs, unsigned int log)
{
	return (struct rpmem_log_attr){
		.size = sizeof(struct rpmem_log_attr),
		.timeout = 30,
		.logs = logs,
		.log = log,
	};
}

static int create(unsigned int logs, unsigned int log)
{
	const struct rpmem_log_attr a = attr_of(logs, log);

	return rpmem_log_create(where, &a);
}

/* how: 0 to write, 'r' to read only, 't' to take the log from its writer. */
static int open_log(struct rpmem_log **l, unsigned int logs, unsigned int log,
		    char how)
{
	struct rpmem_log_attr a = attr_of(logs, log);

	a.read_only = how == 'r';
	a.take = how == 't';
	return rpmem_log_open(l, where, &a);
}

static int open_part(struct rpmem_pool **p, unsigned int parts,
		     unsigned int part, int exclusive)
{
	const struct rpmem_pool_attr a = {
		.size = sizeof(a),
		.timeout = 30,
		.exclusive = exclusive,
		.parts = parts,
		.part = part,
	};

	return rpmem_pool_open(p, where, &a);
}

/* Check that the entries of a log are these letters, and no others. */
static void expect_entries(struct rpmem_log *l, const char *entries)
{
	uint64_t lsn = RPMEM_LOG_HEAD;
	char c;
	size_t len;

	for (; *entries; entries++) {
		CHECK(rpmem_log_read(l, &lsn, &c, 1, &len, 0) == 1);
		CHECK(len == 1 && c == *entries);
	}
	OK(rpmem_log_read(l, &lsn, &c, 1, &len, 0));
}

static bool names(const char *a, const char *b)
{
	return strstr(rpmem_log_error(), a) && strstr(rpmem_log_error(), b);
}

static void number_is_recorded(void)
{
	struct rpmem_log *l;

	CHECK(create(2, 2) == -EINVAL && create(0, 1) == -EINVAL);
	CHECK(create(33, 0) == -EINVAL);
	CHECK(open_log(&l, 2, 0, 0) == -ENXIO && names("has 1 part", "not 2"));
	/* The second log may be created before the first. */
	OK(create(2, 1));
	CHECK(open_log(&l, 2, 0, 0) == -ENODATA);
	OK(create(2, 0));
	CHECK(create(2, 0) == -EEXIST && create(2, 1) == -EEXIST);
	CHECK(create(3, 0) == -ENXIO && names("has 2 part", "not 3"));
	CHECK(open_log(&l, 3, 0, 0) == -ENXIO && names("has 2 part", "not 3"));
	CHECK(open_log(&l, 3, 0, 'r') == -ENXIO &&
	      names("has 2 part", "not 3"));
	CHECK(open_log(&l, 0, 0, 't') == -ENXIO &&
	      names("has 2 part", "not 1"));
	CHECK(open_log(&l, 2, 2, 0) == -EINVAL && names("no log 2", "of 2"));
}

/* A pool that is one log cannot be divided, and its log stays as it was. */
static void one_log_stays(void)
{
	struct rpmem_log_attr old = attr_of(77, 99);
	struct rpmem_pool_attr p = {.parts = 77};
	struct rpmem_pool *pool;
	struct rpmem_log *l;

	/*
	 * The size of a caller that was compiled before the struct had these
	 * fields.
	 */
	old.size = offsetof(struct rpmem_log_attr, log);
	OK(rpmem_log_create(where, &old));
	OK(rpmem_log_open(&l, where, &old));
	OK(rpmem_log_append(l, "o", 1, NULL));
	rpmem_log_close(l);
	CHECK(create(2, 0) == -EEXIST && create(2, 1) == -EEXIST);
	OK(open_log(&l, 1, 0, 't'));
	expect_entries(l, "o");
	rpmem_log_close(l);
	p.size = offsetof(struct rpmem_pool_attr, part);
	p.exclusive = RPMEM_POOL_TAKE;
	OK(rpmem_pool_open(&pool, where, &p));
	OK(rpmem_pool_zero(pool, 8192, 0, RPMEM_POOL_DURABLE));
	rpmem_pool_close(pool);
}

/* A refused call leaves the pool unchanged. */
static void refusal_divides_nothing(void)
{
	struct rpmem_log_attr a = attr_of(2, 0);
	struct rpmem_pool *pool;
	int ret;

	a.layout = 9;
	CHECK(rpmem_log_create(where, &a) == -EINVAL && names("9", "layout"));
	CHECK(create(33, 0) == -EINVAL && names("33", "at most 32"));
	while ((ret = open_part(&pool, 1, 0, RPMEM_POOL_EXCLUSIVE)) == -EBUSY)
		poll(NULL, 0, 10);
	OK(ret);
	rpmem_pool_close(pool);
}

/*
 * Concurrent creates of 8 logs: one divides the pool, and the others wait for
 * that.
 */
static void first_creates_meet(void)
{
	pid_t pids[8];
	int status;

	for (unsigned int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			OK(create(8, i));
			_exit(0);
		}
	}
	for (unsigned int i = 0; i < 8; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && !status);
}

/* Several writers take the log from each other: each gets it in the end. */
static void takers_meet(void)
{
	struct rpmem_log *l;
	pid_t pids[4];
	int status, ret;

	for (unsigned int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		for (unsigned int n = 0; n < 10; n++) {
			OK(open_log(&l, 8, 5, 't'));
			ret = rpmem_log_append(l, "t", 1, NULL);
			CHECK(!ret || ret == -ESTALE);
			rpmem_log_close(l);
		}
		_exit(0);
	}
	for (unsigned int i = 0; i < 4; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && !status);
	CHECK(create(8, 5) == -EEXIST && names("log 5 of 8", "parts=8"));
}

static void writers_are_apart(void)
{
	struct rpmem_log_attr taking = attr_of(2, 1);
	struct rpmem_log *a, *b, *c, *reader[2];

	OK(open_log(&a, 2, 0, 0));
	OK(open_log(&b, 2, 1, 0));
	CHECK(open_log(&c, 2, 1, 0) == -EBUSY &&
	      names("log 1 of 2 of pool 'parts' at 127.0.0.1:", "close it"));
	OK(open_log(&reader[0], 2, 0, 'r'));
	OK(open_log(&reader[1], 2, 1, 'r'));
	OK(rpmem_log_append(a, "1", 1, NULL));
	OK(rpmem_log_append(b, "x", 1, NULL));
	OK(rpmem_log_append(a, "2", 1, NULL));
	OK(rpmem_log_publish(a));
	OK(rpmem_log_publish(b));
	expect_entries(reader[0], "12");
	expect_entries(reader[1], "x");
	/* A create displaces no writer of a log that exists. */
	taking.take = 1;
	CHECK(rpmem_log_create(where, &taking) == -EEXIST);
	OK(rpmem_log_append(b, "w", 1, NULL));
	/* Another writer takes log 1, and log 0 is not disturbed. */
	OK(open_log(&c, 2, 1, 't'));
	CHECK(rpmem_log_append(b, "y", 1, NULL) == -ESTALE);
	OK(rpmem_log_append(a, "3", 1, NULL));
	OK(rpmem_log_append(c, "z", 1, NULL));
	OK(rpmem_log_publish(a));
	OK(rpmem_log_publish(c));
	expect_entries(reader[0], "123");
	expect_entries(reader[1], "xwz");
	expect_entries(a, "123");
	expect_entries(c, "xwz");
	for (int i = 0; i < 2; i++)
		rpmem_log_close(reader[i]);
	rpmem_log_close(a);
	rpmem_log_close(b);
	rpmem_log_close(c);
}

/* An initiator on libfabric alone, which may write outside its part. */
struct raw {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
};

static void raw_open(struct raw *r, const struct rpmem_pool_fabric *f)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT};
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	/*
	 * Nothing listens on this port. The initiator connects to the port in
	 * the key.
	 */
	const struct sockaddr_in host = {
		.sin_family = AF_INET,
		.sin_port = htons(1),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	OK(fi_endpoint(f->domain, f->info, &r->ep, NULL));
	OK(fi_cq_open(f->domain, &cq, &r->cq, NULL));
	OK(fi_av_open(f->domain, &av, &r->av, NULL));
	OK(fi_ep_bind(r->ep, &r->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(r->ep, &r->av->fid, 0));
	OK(fi_enable(r->ep));
	CHECK(fi_av_insert(r->av, &host, 1, &r->peer, 0, NULL) == 1);
}

static void raw_close(struct raw *r)
{
	fi_close(&r->ep->fid);
	fi_close(&r->cq->fid);
	fi_close(&r->av->fid);
}

/*
 * Write 64 bytes at a remote address. Returns 0, the error of the entry, or the
 * call's negative error.
 */
static int raw_write(struct raw *r, uint64_t addr, uint64_t key)
{
	static char bytes[64] = "an entry of nobody";
	struct fi_cq_entry done;
	struct fi_cq_err_entry err = {0};
	ssize_t ret;

	do {
		ret = fi_write(r->ep, bytes, sizeof(bytes), NULL, r->peer, addr,
			       key, NULL);
		if (ret == -FI_EAGAIN)
			fi_cq_read(r->cq, &done, 0);
	} while (ret == -FI_EAGAIN);
	if (ret)
		return (int)ret;
	while ((ret = fi_cq_read(r->cq, &done, 1)) == -FI_EAGAIN)
		;
	if (ret == 1)
		return 0;
	CHECK(ret == -FI_EAVAIL && fi_cq_readerr(r->cq, &err, 0) == 1);
	return err.err;
}

/* Read 64 bytes of each part next to the border with another part. */
static void read_edges(struct rpmem_pool *p[3], uint64_t len, char edges[3][64])
{
	OK(rpmem_pool_read(p[0], edges[0], 64, len - 64));
	OK(rpmem_pool_read(p[1], edges[1], 64, len - 64));
	OK(rpmem_pool_read(p[2], edges[2], 64, 0));
}

/* The key of one part gives access to no byte of another part. */
static void key_reaches_one_part(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_fabric f = {.size = sizeof(f)};
	char before[3][64], after[3][64];
	struct rpmem_pool *p[3], *whole;
	struct raw r;

	for (unsigned int i = 0; i < 3; i++) {
		OK(open_part(&p[i], 3, i, RPMEM_POOL_EXCLUSIVE));
		OK(rpmem_pool_query(p[i], &info));
		for (uint64_t at = 0; at < info.length; at += 64) {
			memset(before[0], '0' + (int)i, 64);
			OK(rpmem_pool_write(p[i], before[0], 64, at, 0));
		}
		OK(rpmem_pool_commit(p[i]));
	}
	CHECK(open_part(&whole, 0, 0, 0) == -EBUSY);
	CHECK(open_part(&whole, 0, 0, RPMEM_POOL_EXCLUSIVE) == -EBUSY);
	CHECK(rpmem_pool_divide(p[0], 2) == -EINVAL);
	OK(rpmem_pool_fabric(p[1], &f));
	read_edges(p, info.length, before);
	for (int i = 0; i < 3; i++)
		CHECK(before[i][0] == '0' + i && before[i][63] == '0' + i);
	CHECK(rpmem_pool_write(p[1], "x", 1, info.length, 0) == -ERANGE);
	raw_open(&r, &f);
	OK(raw_write(&r, f.addr, f.key)); /* bytes of its own part */
	CHECK(raw_write(&r, f.addr - 64, f.key) != 0);
	CHECK(raw_write(&r, f.addr - 8, f.key) != 0);
	CHECK(raw_write(&r, f.addr + info.length, f.key) != 0);
	CHECK(raw_write(&r, f.addr + info.length - 8, f.key) != 0);
	raw_close(&r);
	read_edges(p, info.length, after);
	OK(memcmp(before, after, sizeof(before)));
	for (int i = 0; i < 3; i++)
		rpmem_pool_close(p[i]);
}

/*
 * A new owner of a part makes the former owner's key invalid, and no other key.
 */
static void fencing_disturbs_nobody(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_fabric f = {.size = sizeof(f)};
	struct rpmem_pool *a, *b, *c;
	struct raw r;
	char byte;

	OK(open_part(&a, 3, 0, RPMEM_POOL_EXCLUSIVE));
	OK(open_part(&b, 3, 1, RPMEM_POOL_EXCLUSIVE));
	OK(rpmem_pool_fabric(b, &f));
	raw_open(&r, &f);
	OK(raw_write(&r, f.addr, f.key));
	OK(rpmem_pool_write(a, "k", 1, 9, 0)); /* not committed */
	OK(open_part(&c, 3, 1, RPMEM_POOL_TAKE));
	CHECK(raw_write(&r, f.addr, f.key) != 0);
	raw_close(&r);
	CHECK(rpmem_pool_write(b, "x", 1, 0, RPMEM_POOL_DURABLE) == -ESTALE);
	OK(rpmem_pool_commit(a));
	OK(rpmem_pool_read(a, &byte, 1, 9));
	CHECK(byte == 'k');
	OK(rpmem_pool_query(a, &info));
	CHECK(info.reconnects == 0);
	rpmem_pool_close(a);
	rpmem_pool_close(b);
	rpmem_pool_close(c);
}

static void divide(unsigned int parts)
{
	struct rpmem_pool *p;

	while (open_part(&p, 0, 0, RPMEM_POOL_EXCLUSIVE) == -EBUSY)
		poll(NULL, 0, 10);
	OK(rpmem_pool_divide(p, parts));
	rpmem_pool_close(p);
}

/* Zero the pool, so that it has no log. */
static void clear(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool *p;

	while (open_part(&p, 0, 0, RPMEM_POOL_EXCLUSIVE) == -EBUSY)
		poll(NULL, 0, 10);
	OK(rpmem_pool_query(p, &info));
	OK(rpmem_pool_zero(p, info.length, 0, RPMEM_POOL_DURABLE));
	rpmem_pool_close(p);
}

static struct rpmem_pool *open_whole(const char *pool, int exclusive)
{
	const struct rpmem_pool_attr a = {
		.size = sizeof(a),
		.timeout = 2, /* shorter than a restarted daemon waits for
			       * former owners */
		.exclusive = exclusive,
	};
	struct rpmem_pool *p;

	OK(rpmem_pool_open(&p, pool, &a));
	return p;
}

/*
 * Clients whose pools others take while the daemon restarts get that error, and
 * no timeout. A client whose pool nobody took divides it.
 */
static int restart(char **pools)
{
	struct rpmem_log_attr a = attr_of(2, 1);
	struct rpmem_pool *shared, *whole, *other;
	struct rpmem_log *log, *taker;

	where = pools[0];
	OK(create(2, 1));
	a.timeout = 2;
	OK(rpmem_log_open(&log, where, &a));
	shared = open_whole(pools[1], 0);
	whole = open_whole(pools[2], RPMEM_POOL_EXCLUSIVE);
	OK(rpmem_pool_write(shared, "s", 1, 0, 0));
	puts("opened");
	fflush(stdout);
	CHECK(getchar() == '\n');
	OK(open_log(&taker, 2, 1, 't'));
	other = open_whole(pools[1], RPMEM_POOL_TAKE);
	CHECK(rpmem_log_append(log, "x", 1, NULL) == -ESTALE);
	CHECK(names("another client has opened", "open the pool again"));
	CHECK(rpmem_pool_commit(shared) == -ESTALE);
	CHECK(strstr(rpmem_pool_error(), "another client has opened"));
	OK(rpmem_pool_divide(whole, 2));
	CHECK(rpmem_pool_divide(whole, 33) == -EINVAL);
	rpmem_log_close(log);
	rpmem_log_close(taker);
	rpmem_pool_close(shared);
	rpmem_pool_close(whole);
	rpmem_pool_close(other);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return restart(argv + 1);
	if (argc != 2)
		return 2;
	where = argv[1];
	/* The forks come first, while no library is in use. */
	first_creates_meet();
	takers_meet();
	divide(1);
	clear();
	one_log_stays();
	refusal_divides_nothing();
	number_is_recorded();
	writers_are_apart();
	divide(3);
	key_reaches_one_part();
	fencing_disturbs_nobody();
	divide(1);
	return 0;
}
