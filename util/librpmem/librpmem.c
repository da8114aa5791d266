// SPDX-License-Identifier: BSD-2-Clause
/*
 * The interface of PMDK's librpmem, version 1.3, on librpmem_pool. libpmemobj
 * up to 1.12 loads it for each REPLICA of a pool set on another host.
 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "util/librpmem/session.h"
#include "rpmem_pool.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/pool_class.h"

#define MAJOR	  1u
#define MINOR	  3u
#define HEADER	  4096u	       /* first bytes of a pool: its attributes */
#define MIN_SIZE  8192u	       /* least size of a pool: RPMEM_MIN_POOL */
#define LANES_MAX 1024u	       /* most lanes that libpmemobj requests */
#define RELAXED	  1u	       /* flag of rpmem_persist() and rpmem_flush() */
#define FORCE	  1	       /* flag of rpmem_remove() */
#define POOL_SET  2	       /* another flag of rpmem_remove() */
#define CHECKED	  (HEADER - 8) /* bytes covered by the checksum behind them */
/*
 * Retries of a pool that is busy. On a busy machine a daemon notices late that
 * the former client has closed the pool: rpmem_pool_open() has given up then.
 */
#define BUSY_MS	    2000
#define BUSY_STEP   20
#define SSH_BUSY_MS 5000
#define SSH_STEP    500
/* Seconds that a write waits for a target that cannot be reached. */
#define TIMEOUT_S     60
#define SSH_TIMEOUT_S 10 /* nothing restarts a daemon that ssh has started */

static const char magic[8] = {'R', 'P', 'M', 'E', 'M', 'R', 'E', 'P'};

/* struct rpmem_pool_attr of librpmem: only the pool's owner interprets it. */
struct replica_attr {
	char signature[8];
	uint32_t major, compat, incompat, ro_compat;
	unsigned char uuids[4][16]; /* of the set, the part, its neighbours */
	unsigned char user_flags[16];
};

/* An open pool: RPMEMpool of librpmem. */
struct replica {
	struct rpmem_pool *pool;
	struct session session; /* without ssh: pid is 0 */
	const char *local;	/* memory to replicate, or NULL */
	size_t size;
	unsigned int lanes;
	bool has_header;   /* bytes below HEADER are not the caller's */
	atomic_int failed; /* errno of a write that has failed, or 0 */
};

#define PUBLIC __attribute__((visibility("default")))
PUBLIC struct replica *rpmem_create(const char *target, const char *name,
				    void *local, size_t size,
				    unsigned int *lanes,
				    const struct replica_attr *attr);
PUBLIC struct replica *rpmem_open(const char *target, const char *name,
				  void *local, size_t size, unsigned int *lanes,
				  struct replica_attr *attr);
PUBLIC int rpmem_set_attr(struct replica *r, const struct replica_attr *attr);
PUBLIC int rpmem_close(struct replica *r);
PUBLIC int rpmem_persist(struct replica *r, size_t offset, size_t len,
			 unsigned int lane, unsigned int flags);
PUBLIC int rpmem_deep_persist(struct replica *r, size_t offset, size_t len,
			      unsigned int lane);
PUBLIC int rpmem_flush(struct replica *r, size_t offset, size_t len,
		       unsigned int lane, unsigned int flags);
PUBLIC int rpmem_drain(struct replica *r, unsigned int lane,
		       unsigned int flags);
PUBLIC int rpmem_read(struct replica *r, void *buf, size_t offset, size_t len,
		      unsigned int lane);
PUBLIC int rpmem_remove(const char *target, const char *name, int flags);
PUBLIC const char *rpmem_check_version(unsigned int major, unsigned int minor);
PUBLIC const char *rpmem_errormsg(void);

static __thread char sentence[RP_ERR_LEN + 128];

const char *rpmem_errormsg(void)
{
	return sentence;
}

/* Keep a text for rpmem_errormsg(); returns -1. */
__attribute__((format(printf, 2, 3))) static int fail(int code, const char *fmt,
						      ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	errno = code;
	return -1;
}

/* Convert the result of a librpmem_pool call to that of librpmem. */
static int result(int ret)
{
	return ret ? fail(-ret, "%s", rpmem_pool_error()) : 0;
}

const char *rpmem_check_version(unsigned int major, unsigned int minor)
{
	if (major == MAJOR && minor <= MINOR)
		return NULL;
	fail(EINVAL, "librpmem %u.%u is required, and this is %u.%u", major,
	     minor, MAJOR, MINOR);
	return sentence;
}

/* --- the header of a pool --- */

static void header_encode(unsigned char to[HEADER],
			  const struct replica_attr *attr)
{
	memset(to, 0, HEADER);
	memcpy(to, magic, sizeof(magic));
	if (attr)
		memcpy(to + 8, attr, sizeof(*attr));
	rp_put64(to + CHECKED, XXH64(to, CHECKED, 0));
}

/* Whether the first bytes of a pool are a header. */
static bool header_decode(const unsigned char from[HEADER],
			  struct replica_attr *attr)
{
	if (memcmp(from, magic, sizeof(magic)) ||
	    rp_get64(from + CHECKED) != XXH64(from, CHECKED, 0))
		return false;
	memcpy(attr, from + 8, sizeof(*attr));
	return true;
}

static bool is_zero(const unsigned char from[HEADER])
{
	return !*from && !memcmp(from, from + 1, HEADER - 1);
}

/* Returns the result of rpmem_pool_write(). */
static int write_header(struct replica *r, const struct replica_attr *attr)
{
	unsigned char header[HEADER];

	header_encode(header, attr);
	return rpmem_pool_write(r->pool, header, HEADER, 0, RPMEM_POOL_DURABLE);
}

/* --- opening --- */

static int class_of(const char *name, enum rpmem_pool_class *class)
{
	if (!name || rp_pool_class_parse(name, class))
		return 0;
	return fail(EINVAL, "RPMEM_CLASS=%s: give power, process or none",
		    name);
}

static int replica_free(struct replica *r)
{
	int ret = 0;

	rpmem_pool_close(r->pool);
	if (r->session.pid)
		ret = session_end(&r->session);
	free(r);
	return ret;
}

/* Free a replica whose creation failed; remove a pool that was made for it. */
static void replica_undo(struct replica *r)
{
	if (r->session.pid)
		session_undo(&r->session);
	replica_free(r);
}

/* Whether to open the pool again, after a pause: another client has it. */
static bool is_busy(int ret, uint64_t until, int step)
{
	if (ret != -EBUSY || rp_now_ms() >= until)
		return false;
	poll(NULL, 0, step);
	return true;
}

/* Convert the result of an open. For a weak class, name RPMEM_CLASS too. */
static int open_result(int ret)
{
	return ret == -EOPNOTSUPP ? fail(EOPNOTSUPP, "%s (RPMEM_CLASS)",
					 rpmem_pool_error())
				  : result(ret);
}

/* Open a pool of a running fi_rpmemd. */
static int open_running(struct replica *r, const char *target, const char *name,
			struct rpmem_pool_attr *attr)
{
	const uint64_t until = rp_now_ms() + BUSY_MS;
	char *where;
	int ret;

	attr->secret_file = getenv("RPMEM_SECRET");
	attr->timeout = TIMEOUT_S;
	if (asprintf(&where, "%s:%s", target, name) < 0)
		return fail(ENOMEM, "out of memory");
	do
		ret = rpmem_pool_open(&r->pool, where, attr);
	while (is_busy(ret, until, BUSY_STEP));
	free(where);
	/* Do not report a missing secret file as a missing pool. */
	if (ret == -ENOENT && attr->secret_file &&
	    access(attr->secret_file, R_OK))
		ret = -EACCES;
	if (ret == -ECONNREFUSED)
		return fail(ECONNREFUSED,
			    "%s; or give the path of a pool set there, such as "
			    "./%s.set, and ssh starts fi_rpmemd",
			    rpmem_pool_error(), name);
	return open_result(ret);
}

/* Run a request by ssh; retry while the former client's daemon ends. */
static int ssh_request(struct session *s, const char *target, const char *verb,
		       const char *name)
{
	const uint64_t until = rp_now_ms() + SSH_BUSY_MS;
	char err[RP_ERR_LEN];
	int ret;

	do
		ret = session_begin(s, target, verb, name, err);
	while (is_busy(ret, until, SSH_STEP));
	return ret ? fail(-ret, "%s", err) : 0;
}

/* Start a daemon by ssh, and open its pool. */
static int open_by_ssh(struct replica *r, const char *target, const char *name,
		       bool create, struct rpmem_pool_attr *attr)
{
	int ret = ssh_request(&r->session, target, create ? "create" : "open",
			      name);

	if (ret)
		return ret;
	attr->secret_file = r->session.path;
	attr->timeout = SSH_TIMEOUT_S;
	ret = open_result(rpmem_pool_open(&r->pool, r->session.where, attr));
	if (ret && create)
		session_undo(&r->session);
	if (ret)
		session_end(&r->session);
	return ret;
}

static struct replica *pool_open(const char *target, const char *name,
				 bool create)
{
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.exclusive = RPMEM_POOL_EXCLUSIVE,
	};
	struct replica *r;

	if (!target || !name) {
		fail(EINVAL, "no host, or no pool");
		return NULL;
	}
	if (class_of(getenv("RPMEM_CLASS"), &attr.required))
		return NULL;
	r = calloc(1, sizeof(*r));
	if (!r) {
		fail(ENOMEM, "out of memory");
		return NULL;
	}
	if (!(session_is_needed(target, name)
		      ? open_by_ssh(r, target, name, create, &attr)
		      : open_running(r, target, name, &attr)))
		return r;
	free(r);
	return NULL;
}

/* The most lanes to grant, from RPMEM_MAX_NLANES; 0 if its value is invalid. */
static unsigned int lanes_limit(void)
{
	const char *most = getenv("RPMEM_MAX_NLANES");
	char *end;
	unsigned long n;

	if (!most)
		return LANES_MAX;
	n = strtoul(most, &end, 10);
	return *end || n > LANES_MAX ? 0 : (unsigned int)n;
}

/* Check the size against the pool's, and grant lanes. */
static int replica_init(struct replica *r, const char *name, void *local,
			size_t size, unsigned int *lanes)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	const unsigned int max = lanes_limit();

	if (!max)
		return fail(EINVAL, "RPMEM_MAX_NLANES: give 1 to %u",
			    LANES_MAX);
	if (!lanes || !*lanes)
		return fail(EINVAL, "no lanes are asked for");
	if (size < MIN_SIZE)
		return fail(EINVAL,
			    "a pool of %zu bytes is too small: %u are "
			    "the least",
			    size, MIN_SIZE);
	if (result(rpmem_pool_query(r->pool, &info)))
		return -1;
	if (info.length < size && r->session.pid)
		return fail(EFBIG,
			    "pool '%s' has %llu bytes, and %zu are needed: "
			    "write a larger size in the pool set file there, "
			    "and remove the pool if it exists",
			    name, (unsigned long long)info.length, size);
	if (info.length < size)
		return fail(EFBIG,
			    "pool '%s' has %llu bytes, and %zu are needed: "
			    "make its file longer on the target, and send "
			    "SIGHUP to fi_rpmemd",
			    name, (unsigned long long)info.length, size);
	r->local = local;
	r->size = size;
	r->lanes = *lanes < max ? *lanes : max;
	*lanes = r->lanes;
	return 0;
}

/* Open the pool, grant lanes, and read the first bytes. */
static struct replica *open_header(const char *target, const char *name,
				   void *local, size_t size,
				   unsigned int *lanes, bool create,
				   unsigned char header[HEADER])
{
	struct replica *r = pool_open(target, name, create);

	if (!r)
		return NULL;
	if (!replica_init(r, name, local, size, lanes) &&
	    !result(rpmem_pool_read(r->pool, header, HEADER, 0)))
		return r;
	if (create)
		replica_undo(r);
	else
		replica_free(r);
	return NULL;
}

/* A pool set has one kind of replica: with attributes, or with NOHDRS. */
static int fail_kind(const char *target, const char *name, bool has_attr)
{
	return fail(EINVAL,
		    "pool set '%s' on %s has %s OPTION NOHDRS, and the "
		    "replica %s attributes",
		    name, target, has_attr ? "the" : "no",
		    has_attr ? "has" : "has no");
}

struct replica *rpmem_create(const char *target, const char *name, void *local,
			     size_t size, unsigned int *lanes,
			     const struct replica_attr *attr)
{
	unsigned char header[HEADER];
	struct replica *r =
		open_header(target, name, local, size, lanes, true, header);
	struct replica_attr old;
	int ret = 0;

	/* fi_rpmemd replies so for a set with NOHDRS only. */
	if (!r && attr && errno == EEXIST)
		fail_kind(target, name, true);
	if (!r)
		return NULL;
	r->has_header = attr != NULL;
	if (r->session.header == (attr ? SESSION_NO_HEADER : SESSION_HEADER))
		ret = fail_kind(target, name, attr != NULL);
	else if (header_decode(header, &old))
		ret = fail(EEXIST,
			   "pool '%s' on %s has a replica already: remove it "
			   "with 'pmempool rm', or name another pool",
			   name, target);
	else if (!is_zero(header))
		ret = fail(EEXIST,
			   "pool '%s' on %s holds something else: its first "
			   "%u bytes are not zero; name another pool",
			   name, target, HEADER);
	else if (attr)
		ret = result(write_header(r, attr));
	if (!ret)
		return r;
	replica_undo(r);
	return NULL;
}

struct replica *rpmem_open(const char *target, const char *name, void *local,
			   size_t size, unsigned int *lanes,
			   struct replica_attr *attr)
{
	struct replica_attr found = {.major = 0};
	unsigned char header[HEADER];
	struct replica *r =
		open_header(target, name, local, size, lanes, false, header);

	if (!r)
		return NULL;
	r->has_header = r->session.header != SESSION_NO_HEADER &&
			header_decode(header, &found);
	if (attr && !r->has_header && r->session.header != SESSION_NO_HEADER) {
		fail(ENOENT,
		     "pool '%s' on %s has no replica: create one with "
		     "'pmempool sync' or pmemobj_create()",
		     name, target);
		replica_free(r);
		return NULL;
	}
	if (attr)
		*attr = found;
	return r;
}

int rpmem_close(struct replica *r)
{
	const int ret = replica_free(r);

	if (ret == -ECHILD)
		return fail(ECHILD, "exit status of ssh unknown: the program "
				    "reaps its children or ignores SIGCHLD; "
				    "what was not persisted may be lost");
	return ret ? fail(-ret, "fi_rpmemd, or its ssh, had ended before the "
				"replica was closed: what was not persisted "
				"may be lost")
		   : 0;
}

/* --- writes and reads --- */

static int check_failed(const struct replica *r)
{
	return r->failed ? fail(r->failed, "an earlier write to the replica "
					   "has failed: open it again")
			 : 0;
}

static int check_range(const struct replica *r, size_t offset, size_t len,
		       unsigned int lane, bool write)
{
	if (lane >= r->lanes)
		return fail(EINVAL, "lane %u of %u", lane, r->lanes);
	if (offset > r->size || len > r->size - offset)
		return fail(EINVAL,
			    "%zu bytes at %zu go beyond the %zu of the pool",
			    len, offset, r->size);
	if (write && r->has_header && offset < HEADER)
		return fail(EINVAL,
			    "the first %u bytes are the attributes: "
			    "rpmem_set_attr() writes them",
			    HEADER);
	if (check_failed(r))
		return -1;
	if (write && !r->local)
		return fail(EINVAL, "the pool was opened without memory");
	return 0;
}

/*
 * Convert the result of an operation on an open pool. A timeout in an ssh
 * session becomes ECONNRESET, because its daemon is gone for good.
 */
static int op_result(const struct replica *r, int ret)
{
	const bool by_ssh = r->session.pid;

	if (ret != -ETIMEDOUT)
		return result(ret);
	return fail(by_ssh ? ECONNRESET : ETIMEDOUT,
		    "the replica was not reached for %d seconds: %s; open the "
		    "replica again after that",
		    by_ssh ? SSH_TIMEOUT_S : TIMEOUT_S, rpmem_pool_error());
}

/*
 * Note a failed write in r->failed, so that each later call fails at once:
 * libpmemobj goes on for a while, and each call would wait for a timeout.
 */
static int write_result(struct replica *r, int ret)
{
	int none = 0;

	ret = op_result(r, ret);
	if (ret)
		atomic_compare_exchange_strong(&r->failed, &none, errno);
	return ret;
}

/* Without attr all attributes are zero, as in PMDK's librpmem. */
int rpmem_set_attr(struct replica *r, const struct replica_attr *attr)
{
	if (check_failed(r))
		return -1;
	if (!r->has_header)
		return fail(EINVAL, "the pool was created without attributes");
	return write_result(r, write_header(r, attr));
}

static int write_range(struct replica *r, size_t offset, size_t len,
		       unsigned int lane, unsigned int flags,
		       unsigned int pool_flags)
{
	if (flags & ~RELAXED)
		return fail(EINVAL, "flags %#x are unknown", flags);
	if (check_range(r, offset, len, lane, true))
		return -1;
	return write_result(r, rpmem_pool_write(r->pool, r->local + offset, len,
						offset, pool_flags));
}

int rpmem_persist(struct replica *r, size_t offset, size_t len,
		  unsigned int lane, unsigned int flags)
{
	return write_range(r, offset, len, lane, flags, RPMEM_POOL_DURABLE);
}

/* As rpmem_persist(): the pool's class decides what both survive. */
int rpmem_deep_persist(struct replica *r, size_t offset, size_t len,
		       unsigned int lane)
{
	return write_range(r, offset, len, lane, 0, RPMEM_POOL_DURABLE);
}

int rpmem_flush(struct replica *r, size_t offset, size_t len, unsigned int lane,
		unsigned int flags)
{
	return write_range(r, offset, len, lane, flags, RPMEM_POOL_BUFFERED);
}

/* One commit covers the writes of all lanes. */
int rpmem_drain(struct replica *r, unsigned int lane, unsigned int flags)
{
	if (flags)
		return fail(EINVAL, "flags %#x are unknown", flags);
	if (check_range(r, 0, 0, lane, false))
		return -1;
	return write_result(r, rpmem_pool_commit(r->pool));
}

int rpmem_read(struct replica *r, void *buf, size_t offset, size_t len,
	       unsigned int lane)
{
	if (check_range(r, offset, len, lane, false))
		return -1;
	return op_result(r, rpmem_pool_read(r->pool, buf, len, offset));
}

/* --- removal --- */

/* Clear the header only: the pool is its operator's, and can be reused. */
static int remove_header(struct replica *r, const char *target,
			 const char *name)
{
	unsigned char header[HEADER];
	struct replica_attr old;

	if (result(rpmem_pool_read(r->pool, header, HEADER, 0)))
		return -1;
	if (!header_decode(header, &old))
		return fail(ENOENT, "pool '%s' on %s has no replica", name,
			    target);
	return result(rpmem_pool_zero(r->pool, HEADER, 0, RPMEM_POOL_DURABLE));
}

static int remove_from(const char *target, const char *name, int flags)
{
	const char *verb = !(flags & POOL_SET) ? "remove"
			   : flags & FORCE     ? "remove-set-force"
					       : "remove-set";
	struct session s;
	struct replica *r;
	int ret;

	if (session_is_needed(target, name)) {
		ret = ssh_request(&s, target, verb, name);
		if (!ret)
			session_end(&s);
		return ret;
	}
	r = pool_open(target, name, false);
	if (!r)
		return -1;
	ret = remove_header(r, target, name);
	replica_free(r);
	return ret;
}

int rpmem_remove(const char *target, const char *name, int flags)
{
	int ret;

	if (!target || !name)
		return fail(EINVAL, "no host, or no pool");
	if (flags & ~(FORCE | POOL_SET))
		return fail(EINVAL, "flags %#x are unknown", flags);
	ret = remove_from(target, name, flags);
	/* With FORCE, a pool that does not exist counts as removed. */
	return ret && errno == ENOENT && flags & FORCE ? 0 : ret;
}
