// SPDX-License-Identifier: BSD-2-Clause
/*
 * Over an RDMA device (base verbs): which memory can be registered, and which
 * failures of a target the initiator survives.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/duo.h"

/*
 * RPMEM_POOL: a devdax device. RPMEM_FSDAX: a folder on a file system mounted
 * with DAX. RPMEM_METHOD and RPMEM_CLASS: the method and class expected of the
 * pool.
 */

#define LEN 65536

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

#define EXPECT(got, want)                                                      \
	do {                                                                   \
		long long g_ = (got), w_ = (want);                             \
		if (g_ != w_)                                                  \
			FAIL("%s is %lld, not %lld", #got, g_, w_);            \
	} while (0)

#define ENDS_WELL(s)                                                           \
	do {                                                                   \
		if (!side_wait(s, &e, &err))                                   \
			FAIL("line %d: err %d, status %d", __LINE__, err.err,  \
			     err.prov_errno);                                  \
	} while (0)

#define SAYS(words)                                                            \
	do {                                                                   \
		if (!duo_has_said(words))                                      \
			FAIL("nothing says \"%s\"", words);                    \
	} while (0)

static const struct pair_opts plain;

static int register_memory(struct side *s, void *p, struct fid_mr **mr)
{
	return fi_mr_reg(s->domain, p, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
			 0, FI_RMA_PMEM, mr, NULL);
}

/* Map a new file in dir; the caller deletes it. */
static void *map_file(const char *dir, int flags, char *path, size_t len)
{
	void *p;
	int fd;

	snprintf(path, len, "%s/device_pool.XXXXXX", dir);
	fd = mkstemp(path);
	if (fd < 0)
		MUST(-errno);
	MUST(-posix_fallocate(fd, 0, LEN));
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, fd, 0);
	close(fd);
	return p;
}

static const char *page_cache(struct duo *d)
{
	struct fid_mr *mr;
	struct side s;
	char path[64];
	void *p = map_file(".", MAP_SHARED, path, sizeof(path));

	side_open(&s, &plain);
	EXPECT(register_memory(&s, p, &mr), -FI_EOPNOTSUPP);
	SAYS("or devdax");
	unlink(path);
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	EXPECT(register_memory(&s, p, &mr), -FI_EOPNOTSUPP);
	SAYS("anonymous memory: dies with its process");
	side_close(&s);
	return NULL;
}

/*
 * Registration of fsdax memory is refused, because the kernel pins no pages of
 * a DAX file system for a device.
 */
static const char *check_fsdax(struct duo *d)
{
	const int flags[] = {MAP_SHARED, MAP_SHARED_VALIDATE | MAP_SYNC};
	struct fid_mr *mr;
	struct side s;
	char path[64];
	void *p;

	side_open(&s, &plain);
	for (int i = 0; i < 2; i++) {
		p = map_file(getenv("RPMEM_FSDAX"), flags[i], path,
			     sizeof(path));
		if (p == MAP_FAILED)
			return "no mapping";
		if (register_memory(&s, p, &mr) >= 0)
			return "it was taken";
		SAYS("use a devdax device");
		unlink(path);
	}
	side_close(&s);
	return NULL;
}

/* Write, commit and read back, by the method that RPMEM_METHOD names. */
static const char *check_method(struct duo *d)
{
	static const char *const names[] = {
		[FI_RPMEM_METHOD_DELIVERY] = "delivery",
		[FI_RPMEM_METHOD_FENCE] = "fence",
		[FI_RPMEM_METHOD_NATIVE] = "native",
		[FI_RPMEM_METHOD_AGENT_SFENCE] = "agent-sfence",
		[FI_RPMEM_METHOD_AGENT_CLWB] = "agent-clwb",
	};
	const char *want = getenv("RPMEM_METHOD"),
		   *class = getenv("RPMEM_CLASS");
	const bool power = !class || !strcmp(class, "power");
	char why[512] = "";
	struct fi_rpmem_attr attr = QUERY_ATTR(why);
	static char out[LEN], in[LEN];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct card c;
	struct side s;

	for (size_t i = 0; i < LEN; i++)
		out[i] = (char)(i * 31 + getpid());
	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	EXPECT(key_query(s.ep, s.peer, c.pool_key, FI_RPMEM_CLASS_NONE, &attr),
	       0);
	if (attr.method >= sizeof(names) / sizeof(names[0]) ||
	    !names[attr.method] || strcmp(names[attr.method], want))
		FAIL("method %u: %.150s", attr.method, why);
	POST(&s, fi_write(s.ep, out, LEN, NULL, s.peer, c.pool_addr + 4096,
			  c.pool_key, out));
	EXPECT(side_wait(&s, &e, &err), 1);
	EXPECT(duo_commit(&s, &c, 4096, LEN), power ? 0 : RP_ST_CLASS);
	POST(&s, fi_read(s.ep, in, LEN, NULL, s.peer, c.pool_addr + 4096,
			 c.pool_key, in));
	EXPECT(side_wait(&s, &e, &err), 1);
	EXPECT(memcmp(in, out, LEN), 0);
	/*
	 * The device refuses a write beyond the region. A commit of the write's
	 * range fails, too.
	 */
	POST(&s, fi_write(s.ep, out, 64, NULL, s.peer,
			  c.pool_addr + PAIR_POOL - 32, c.pool_key, out));
	EXPECT(side_wait(&s, &e, &err), 0);
	if (power)
		EXPECT(duo_commit(&s, &c, PAIR_POOL - 64, 64),
		       RP_ST_WRITE_FAILED);
	/*
	 * ofi_rxm of libfabric 1 does not reconnect after a refused write, and
	 * newer releases wait 15 s for the kernel: run this case once.
	 */
	if (!class && FI_MAJOR(fi_version()) > 1) {
		EXPECT(duo_commit(&s, &c, 0, 64), 0);
		EXPECT(duo_write(&s, &c, PAIR_POOL - 64, 64), 0);
		EXPECT(duo_commit(&s, &c, PAIR_POOL - 64, 64), 0);
	}
	side_close(&s);
	return NULL;
}

/*
 * Commits with an ordered store succeed while the program's own messages, for
 * which the target posts no receive, are queued in front on the base's
 * connection.
 */
static const char *check_ordered_store(struct duo *d)
{
	static uint64_t value, seen;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct fi_rma_iov r;
	struct side s, other;
	struct card c;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	value = (uint64_t)getpid() << 32 | 0x600d;
	for (int i = 0; i < 20; i++) {
		struct fi_rpmem_then then = {
			.key = c.pool_key,
			.addr = c.pool_addr + 8192 + 8 * i,
			.value = value + i,
		};

		POST(&s, fi_inject(s.ep, &value, sizeof(value), s.peer));
		r = (struct fi_rma_iov){c.pool_addr, 4096, c.pool_key};
		EXPECT(duo_write(&s, &c, 0, 4096), 0);
		POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
				     FI_RPMEM_CLASS_DEFAULT, &then, &r));
		EXPECT(side_wait(&s, &e, &err), 1);
		POST(&s, fi_read(s.ep, &seen, sizeof(seen), NULL, s.peer,
				 then.addr, c.pool_key, &seen));
		EXPECT(side_wait(&s, &e, &err), 1);
		EXPECT(seen == value + i, 1);
		if (i % 10)
			continue;
		/* The agent accepts a second initiator meanwhile. */
		duo_open(&other, &plain, &c);
		EXPECT(duo_commit(&other, &c, 0, 64), 0);
		side_close(&other);
	}
	side_close(&s);
	return NULL;
}

/* A killed target restarts at the same address, with the same memory. */
static const char *check_restart(struct duo *d)
{
	struct card c, again;
	struct side s;
	double start;
	int st;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	for (int i = 0; i < 3; i++) {
		EXPECT(duo_write(&s, &c, 0, 4096), 0);
		EXPECT(duo_commit(&s, &c, 0, 4096), 0);
		EXPECT(duo_write(&s, &c, 4096, 4096), 0);
		duo_kill(d);
		duo_start(d, &plain, &again);
		/*
		 * The device may or may not have refused the last write to the
		 * old region. A commit of its range by the old key must fail.
		 */
		start = duo_now();
		st = duo_commit(&s, &c, 4096, 4096);
		if (!st)
			return "what the dead one had was committed";
		printf("# old key: status %d after %.2f s\n", st,
		       duo_now() - start);
		c = again;
		EXPECT(duo_write(&s, &c, 4096, 4096), 0);
		EXPECT(duo_commit(&s, &c, 4096, 4096), 0);
	}
	side_close(&s);
	return NULL;
}

/*
 * With FI_MR_LOCAL each buffer of the program has a descriptor, and the
 * provider's own buffers need one.
 */
static const char *check_descriptors(struct duo *d)
{
	const struct pair_opts local = {.local = true};
	static char out[4096], in[4096];
	struct fi_rma_iov many[200];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct fid_mr *from, *to;
	struct card c;
	struct side s;

	duo_start(d, &local, &c);
	duo_open(&s, &local, &c);
	if (!(s.info->domain_attr->mr_mode & FI_MR_LOCAL))
		return "the base has no use for descriptors";
	memset(out, 'd', sizeof(out));
	MUST(fi_mr_reg(s.domain, out, sizeof(out), FI_WRITE, 0, 0, 0, &from,
		       NULL));
	MUST(fi_mr_reg(s.domain, in, sizeof(in), FI_READ, 0, 0, 0, &to, NULL));
	POST(&s, fi_write(s.ep, out, sizeof(out), fi_mr_desc(from), s.peer,
			  c.pool_addr, c.pool_key, out));
	ENDS_WELL(&s);
	/*
	 * The request of a commit of 200 ranges is too long for fi_inject(), so
	 * its buffer needs a descriptor.
	 */
	for (int i = 0; i < 200; i++)
		many[i] = (struct fi_rma_iov){c.pool_addr + i * 20, 8,
					      c.pool_key};
	POST(&s, commit_post(s.ep, many, 200, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, many));
	ENDS_WELL(&s);
	POST(&s, fi_read(s.ep, in, sizeof(in), fi_mr_desc(to), s.peer,
			 c.pool_addr, c.pool_key, in));
	ENDS_WELL(&s);
	EXPECT(memcmp(in, out, sizeof(in)), 0);
	EXPECT(duo_commit(&s, &c, 0, 64), 0);
	MUST(fi_close(&from->fid));
	MUST(fi_close(&to->fid));
	side_close(&s);
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		duo_fn fn;
		bool listens;
	} cases[] = {
		{"the method", check_method, false},
		{"page cache and anonymous memory", page_cache, true},
		{"files of a DAX file system", check_fsdax, true},
		{"a store behind a commit", check_ordered_store, false},
		{"a target that is killed", check_restart, false},
		{"FI_MR_LOCAL", check_descriptors, false},
	};

	setbuf(stdout, NULL);
	if (!getenv("RPMEM_POOL") || !getenv("RPMEM_FSDAX") ||
	    !getenv("RPMEM_METHOD"))
		return 2;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name))
			continue;
		/*
		 * The timeout is short if the case waits for a dead target, and
		 * long otherwise, for a slow machine.
		 */
		duo_env("FI_OFI_RPMEM_TIMEOUT",
			cases[i].fn == check_restart ? "5000" : "30000");
		if (cases[i].listens)
			duo_listening_case(cases[i].name, cases[i].fn);
		else
			duo_case(cases[i].name, cases[i].fn);
	}
	return tap_done();
}
