// SPDX-License-Identifier: BSD-2-Clause
/* nbdkit plugin: serves a pool of fi_rpmemd as a network block device. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "util/pool_class.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#define BUSY_TRIES    20
#define BUSY_PAUSE_US 100000
#define MEMBERS	      8 /* most members of a group */

/* All connections use one pool: a FLUSH covers the writes of all of them. */
static char *target, *pool_name, *secret, *where;
static bool take;
/* Opened exclusively: a second server would miss buffered writes here. */
static struct rpmem_pool_attr attr = {.size = sizeof(attr)};
static struct rpmem_pool *pool;

/*
 * Commit the writes that no FLUSH has covered, so that an orderly stop loses
 * nothing. Without such writes (info.kept) skip the commit, which could wait
 * for a target that is away. A group has no `kept` of members that are away,
 * but its commit returns at once if there is nothing to commit.
 */
static void rpmem_cleanup(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};

	if (!pool || rpmem_pool_query(pool, &info) || info.read_only ||
	    (!info.kept && !info.members) || !rpmem_pool_commit(pool))
		return;
	nbdkit_error("what no FLUSH has covered is lost: %s",
		     rpmem_pool_error());
}

static void rpmem_unload(void)
{
	rpmem_pool_close(pool);
	free(target);
	free(pool_name);
	free(secret);
	free(where);
}

static int config_class(const char *value)
{
	if (rp_pool_class_parse(value, &attr.required))
		return 0;
	nbdkit_error("class=%s: give power, process or none", value);
	return -1;
}

static int config_take(const char *value)
{
	int is = nbdkit_parse_bool(value);

	take = is > 0;
	return is < 0 ? -1 : 0;
}

static int set_parameter(char **to, char *value)
{
	if (!value)
		return -1;
	free(*to);
	*to = value;
	return 0;
}

static int rpmem_config(const char *key, const char *value)
{
	if (!strcmp(key, "target"))
		return set_parameter(&target, strdup(value));
	if (!strcmp(key, "pool"))
		return set_parameter(&pool_name, strdup(value));
	/* Make the path absolute: nbdkit will change to the root directory. */
	if (!strcmp(key, "secret"))
		return set_parameter(&secret, nbdkit_absolute_path(value));
	if (!strcmp(key, "class"))
		return config_class(value);
	if (!strcmp(key, "take"))
		return config_take(value);
	if (!strcmp(key, "timeout"))
		return nbdkit_parse_unsigned("timeout", value, &attr.timeout);
	nbdkit_error("unknown parameter '%s'; 'nbdkit rpmem --help' lists them",
		     key);
	return -1;
}

static int rpmem_config_complete(void)
{
	if (!pool_name || (!target && !strchr(pool_name, ','))) {
		nbdkit_error("give target=HOST[:PORT] and pool=NAME, or the "
			     "members of a group: "
			     "pool='HOST:NAME,HOST:NAME,...;k=N'");
		return -1;
	}
	if (asprintf(&where, "%s%s%s", target ? target : "", target ? ":" : "",
		     pool_name) >= 0)
		return 0;
	where = NULL;
	nbdkit_error("out of memory");
	return -1;
}

/*
 * Open the pool. A secret without the right to write cannot open it
 * exclusively: the pool is then shared, and the disk read-only.
 */
static int open_pool(void)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	int ret;

	attr.secret_file = secret;
	attr.exclusive = take ? RPMEM_POOL_TAKE : RPMEM_POOL_EXCLUSIVE;
	ret = rpmem_pool_open(&pool, where, &attr);
	if (ret != -EACCES || take)
		return ret;
	attr.exclusive = 0;
	ret = rpmem_pool_open(&pool, where, &attr);
	if (ret || (!rpmem_pool_query(pool, &info) && info.read_only))
		return ret;
	/* The secret was given the right to write meanwhile. */
	rpmem_pool_close(pool);
	pool = NULL;
	attr.exclusive = RPMEM_POOL_EXCLUSIVE;
	return rpmem_pool_open(&pool, where, &attr);
}

/* Try the pool in a process that ends. */
__attribute__((noreturn)) static void try_pool(void)
{
	/* nbdkit's handlers would stop the server, and not this process. */
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	if (open_pool()) {
		nbdkit_error("%s", rpmem_pool_error());
		_exit(EXIT_FAILURE);
	}
	rpmem_pool_close(pool);
	_exit(EXIT_SUCCESS);
}

/*
 * Let a child process open and close the pool, so that the user sees an error
 * before nbdkit goes into the background. The pool cannot stay open here,
 * because libfabric does not survive the fork into the background.
 */
static int rpmem_get_ready(void)
{
	int status = 0;
	pid_t child;

	/* A group cannot be opened twice with the same ;epoch=: do not try. */
	if (strstr(where, ";epoch="))
		return 0;
	child = fork();
	if (!child)
		try_pool();
	if (child < 0) {
		nbdkit_error("fork: %s", strerror(errno));
		return -1;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		nbdkit_error("signal %d while the pool was tried",
			     WTERMSIG(status));
	return status ? -1 : 0;
}

/*
 * Open the pool in the serving process. fi_rpmemd may not know yet that
 * try_pool() has closed it.
 */
static int rpmem_after_fork(void)
{
	int ret = open_pool();

	for (int i = 0; ret == -EBUSY && i < BUSY_TRIES; i++) {
		usleep(BUSY_PAUSE_US);
		ret = open_pool();
	}
	if (!ret)
		return 0;
	nbdkit_error("%s", rpmem_pool_error());
	return -1;
}

static void *rpmem_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int query_info(struct rpmem_pool_info *info)
{
	info->size = sizeof(*info);
	if (!rpmem_pool_query(pool, info))
		return 0;
	nbdkit_error("%s", rpmem_pool_error());
	return -1;
}

static int64_t rpmem_get_size(void *handle)
{
	struct rpmem_pool_info info;

	return query_info(&info) ? -1 : (int64_t)info.length;
}

static int rpmem_block_size(void *handle, uint32_t *minimum,
			    uint32_t *preferred, uint32_t *maximum)
{
	struct rpmem_pool_info info;

	if (query_info(&info))
		return -1;
	*minimum = 1;
	*preferred = info.granularity < 4096 ? 4096 : info.granularity;
	*maximum = 0xffffffff;
	return 0;
}

/* Only an exclusive client may write. */
static int rpmem_can_write(void *handle)
{
	struct rpmem_pool_info info;

	return query_info(&info) ? -1 : attr.exclusive && !info.read_only;
}

static int rpmem_can_multi_conn(void *handle)
{
	return 1;
}

static int rpmem_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

/* Report a failed operation: -1, with an errno for the client. */
static int report_result(int ret)
{
	if (!ret)
		return 0;
	nbdkit_error("%s", rpmem_pool_error());
	nbdkit_set_error(ret == -ENOMEM ? ENOMEM : EIO);
	return -1;
}

static int rpmem_pread(void *handle, void *buf, uint32_t count, uint64_t offset,
		       uint32_t flags)
{
	return report_result(rpmem_pool_read(pool, buf, count, offset));
}

/* Writes without FUA become durable by FLUSH, which reports their failures. */
static unsigned int write_flags(uint32_t flags)
{
	return flags & NBDKIT_FLAG_FUA ? RPMEM_POOL_DURABLE
				       : RPMEM_POOL_BUFFERED;
}

static int rpmem_pwrite(void *handle, const void *buf, uint32_t count,
			uint64_t offset, uint32_t flags)
{
	return report_result(
		rpmem_pool_write(pool, buf, count, offset, write_flags(flags)));
}

/* A pool's blocks stay allocated: MAY_TRIM makes no difference. */
static int rpmem_zero(void *handle, uint32_t count, uint64_t offset,
		      uint32_t flags)
{
	return report_result(
		rpmem_pool_zero(pool, count, offset, write_flags(flags)));
}

static int rpmem_can_fast_zero(void *handle)
{
	return 1;
}

/* nbdkit reads the range, which brings it into the target's page cache. */
static int rpmem_can_cache(void *handle)
{
	return NBDKIT_CACHE_EMULATE;
}

/* Log that a member of the group is lost, or is current again. */
static void log_member(const struct rpmem_pool_member *m, unsigned int current,
		       unsigned int n)
{
	if (m->state != RPMEM_POOL_AWAY)
		nbdkit_error("%s is current again; %u of %u members are "
			     "current",
			     m->where, current, n);
	else
		nbdkit_error("%s is lost; %u of %u members are current%s%s",
			     m->where, current, n, m->error ? ": " : "",
			     m->error ? m->error : "");
}

/* Log the members that have changed since the last FLUSH. */
static void log_changed_members(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned int lost; /* bits of the members that were logged */
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_member m[MEMBERS];
	unsigned int n = 0, current = 0;

	if (rpmem_pool_query(pool, &info) || !info.members)
		return;
	pthread_mutex_lock(&lock);
	for (; n < info.members && n < MEMBERS; n++) {
		m[n].size = sizeof(m[n]);
		if (rpmem_pool_member(pool, n, &m[n]))
			break;
		/* Count a member that lags (RPMEM_POOL_LAGGING) as current. */
		current += m[n].state != RPMEM_POOL_AWAY &&
			   m[n].state != RPMEM_POOL_COPYING;
	}
	for (unsigned int i = 0; i < n; i++) {
		const bool is_lost = m[i].state == RPMEM_POOL_AWAY;

		if (m[i].state == RPMEM_POOL_COPYING ||
		    is_lost == !!(lost & 1u << i))
			continue;
		lost ^= 1u << i;
		log_member(&m[i], current, n);
	}
	pthread_mutex_unlock(&lock);
}

static int rpmem_flush(void *handle, uint32_t flags)
{
	const int ret = report_result(rpmem_pool_commit(pool));

	log_changed_members();
	return ret;
}

static struct nbdkit_plugin plugin = {
	.name = "rpmem",
	.longname = "ofi_rpmem",
	.version = PACKAGE_VERSION,
	.description = "a pool of fi_rpmemd as a block device",
	.cleanup = rpmem_cleanup,
	.unload = rpmem_unload,
	.config = rpmem_config,
	.config_complete = rpmem_config_complete,
	.config_help =
		"target=HOST[:PORT]  The machine of fi_rpmemd.\n"
		"pool=NAME           (required) One of its pools; without\n"
		"                    target, the members of a group:\n"
		"                    'HOST:NAME,HOST:NAME,...;k=N'.\n"
		"secret=FILE         The secret of fi_rpmemd --secret.\n"
		"class=CLASS         What flushed bytes must survive: power\n"
		"                    (default), process or none.\n"
		"take=true           Close the pool at the client that has it\n"
		"                    open; the secret needs the right admin.\n"
		"timeout=SECONDS     How long requests wait for a target that\n"
		"                    is away (60).",
	.get_ready = rpmem_get_ready,
	.after_fork = rpmem_after_fork,
	.open = rpmem_open,
	.get_size = rpmem_get_size,
	.block_size = rpmem_block_size,
	.can_write = rpmem_can_write,
	.can_multi_conn = rpmem_can_multi_conn,
	.can_fua = rpmem_can_fua,
	.pread = rpmem_pread,
	.pwrite = rpmem_pwrite,
	.flush = rpmem_flush,
	.zero = rpmem_zero,
	.can_fast_zero = rpmem_can_fast_zero,
	.can_cache = rpmem_can_cache,
};

/* nbdkit 1.32 defines plugin_init() without declaring it. */
struct nbdkit_plugin *plugin_init(void);
NBDKIT_REGISTER_PLUGIN(plugin)
