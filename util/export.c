// SPDX-License-Identifier: BSD-2-Clause
/* The pools that fi_rpmemd exports, and the keys that it has given out. */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/method.h"
#include "core/wire.h"
#include "util/clock.h"
#include "util/exits.h"
#include "util/export.h"
#include "util/machine_facts.h"
#include "util/service.h"

/* A new daemon keeps a pool for its last owner, which tries each second. */
#define AWAIT_MS 5000

static int pool_exit(int ret)
{
	switch (ret) {
	case -EBUSY:
		return RP_EXIT_BUSY;
	case -ENOSPC:
	case -EDQUOT:
		return RP_EXIT_SPACE;
	case -ENOTRECOVERABLE: /* a restart does not help */
		return RP_EXIT_CLASS;
	default:
		return RP_EXIT_FILE;
	}
}

/* A pool that exists must have the size that it would be created with. */
static int check_size(const struct rp_export *e, uint64_t create, char *err)
{
	char have[RP_SIZE_LEN], want[RP_SIZE_LEN];
	const uint64_t rounded = rp_pool_round(create);

	if (!create || e->pool.size == rounded)
		return 0;
	rp_err(err, 0,
	       "pool '%s' exists with %s, not %s; leave --create out to use it "
	       "as it is",
	       e->path, rp_size_format(e->pool.size, have),
	       rp_size_format(rounded, want));
	return RP_EXIT_FILE;
}

static int open_pool(struct rp_export *e, const struct rp_conf_pool *conf,
		     char *err)
{
	const uint64_t create = conf->create;
	char have[RP_SIZE_LEN];
	bool made = create && access(e->path, F_OK) && errno == ENOENT;
	int ret;

	if (made) {
		ret = rp_pool_create(e->path, create, err);
		if (ret)
			return pool_exit(ret);
		e->made = true;
	}
	ret = rp_pool_open(e->path, &e->pool, err);
	if (ret)
		return pool_exit(ret);
	e->open = true;
	ret = conf->exact ? check_size(e, create, err) : 0;
	if (ret)
		return ret;
	if (made)
		printf("created pool '%s' with %s\n", e->path,
		       rp_size_format(e->pool.size, have));
	else if (!e->pool.was_clean)
		printf("pool '%s' was not closed by its last daemon; all "
		       "acknowledged bytes are there\n",
		       e->path);
	return 0;
}

int rp_exports_open(struct rp_exports *x, const char *base, const char *source,
		    char *err)
{
	struct rp_fabric_attr attr = {
		.base = base,
		.target = true,
		.no_ep = true,
		.source = source,
		.wait_fd = true,
	};
	int ret = rp_fabric_open(&attr, &x->f, err);

	if (ret)
		return RP_EXIT_NETWORK;
	snprintf(x->base, sizeof(x->base), "%s", base ? base : "tcp");
	ret = fi_control(&x->f.cq->fid, FI_GETWAIT, &x->cq_fd);
	if (ret) {
		rp_err(err, ret, "file descriptor of the completion queue: %s",
		       fi_strerror(-ret));
		return RP_EXIT_NETWORK;
	}
	if (getrandom(&x->incarnation, sizeof(x->incarnation), 0) !=
	    sizeof(x->incarnation)) {
		rp_err(err, 0, "no random bytes");
		return RP_EXIT_FAILED;
	}
	x->closed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (x->closed_fd < 0) {
		rp_err(err, 0, "eventfd: %s", strerror(errno));
		return RP_EXIT_FAILED;
	}
	return 0;
}

int rp_exports_accept_losses(const struct rp_conf *c, char *err)
{
	int ret;

	for (unsigned int i = 0; i < c->npools; i++) {
		ret = rp_pool_accept_loss(c->pools[i].path, err);
		if (ret < 0)
			return pool_exit(ret);
		printf("pool '%s' %s\n", c->pools[i].path,
		       ret ? "is accepted with its loss: clients find another "
			     "pool there"
			   : "has no loss to accept");
	}
	return 0;
}

/* Explain why the provider refused to register the pool. */
static void explain_refusal(const struct rp_exports *x,
			    const struct rp_export *e, int ret, char *err)
{
	struct rp_facts facts;
	struct rp_choice choice;
	char why[RP_WHY_LEN], obstacle[RP_WHY_LEN];

	if (rp_facts_find(x->base, NULL, e->pool.data, e->pool.size, &facts,
			  why, NULL, NULL)) {
		rp_err(err, 0, "pool '%s' cannot be registered: %s", e->path,
		       why);
		return;
	}
	choice = rp_facts_pick(&facts, obstacle);
	if (choice.method == RP_METHOD_REFUSED)
		rp_err(err, 0, "pool '%s' cannot be made durable: %s%s%s; %s",
		       e->path, why, *obstacle ? "; " : "", obstacle,
		       choice.remedy);
	else
		rp_err(err, 0, "pool '%s' cannot be registered: %s", e->path,
		       fi_strerror(-ret));
}

/* Describe commits of this pool now, for people: programs QUERY the agent. */
static int describe(const struct rp_exports *x, const struct rp_export *e,
		    struct rp_setup_export *offer, char *err)
{
	struct fi_rpmem_attr attr = {
		.size = sizeof(attr),
		.why = offer->why,
		.why_size = sizeof(offer->why),
	};
	struct fi_rpmem_domain_ops *ops;
	int ret = fi_rpmem_domain_ops_get(x->f.domain, &ops);

	if (!ret)
		ret = fi_rpmem_region(ops, e->mr, &attr);
	if (ret) {
		rp_err(err, 0,
		       "pool '%s': the provider does not say what commits "
		       "reach (%s); check that FI_PROVIDER_PATH has the "
		       "provider of this release",
		       e->path, fi_strerror(-ret));
		return RP_EXIT_FAILED;
	}
	offer->class = (uint8_t)(attr.region_class - FI_RPMEM_CLASS_NONE);
	offer->method = (uint8_t)attr.method;
	return 0;
}

static int register_pool(struct rp_exports *x, struct rp_export *e,
			 bool writable, struct fid_mr **mr, char *err)
{
	return rp_fabric_reg(&x->f, e->pool.data, e->pool.size,
			     FI_REMOTE_READ | (writable ? FI_REMOTE_WRITE : 0),
			     FI_RMA_PMEM, mr, err);
}

/* End a key. False while requests that use it are executed. */
static bool end_key(struct rp_export_key *k)
{
	if (k->mr && fi_close(&k->mr->fid)) {
		k->ending = true;
		return false;
	}
	*k = (struct rp_export_key){0};
	return true;
}

/* End all keys that clients have. */
static bool end_keys(struct rp_export *e)
{
	bool all = true;

	for (unsigned int who = 0; who < RP_SETUP_SECRETS; who++)
		all &= end_key(&e->keys[who]);
	return all;
}

/* The same, and end the registration that tells the class. */
static bool end_registrations(struct rp_export *e)
{
	if (!end_keys(e) || (e->mr && fi_close(&e->mr->fid)))
		return false;
	e->mr = NULL;
	return true;
}

/*
 * Register a pool; the domain then listens for private connections. Clients
 * find the domain by the address of this host and the port in the key.
 */
static int export_pool(struct rp_exports *x, struct rp_export *e,
		       struct rp_setup_export *offer, char *err)
{
	const struct fi_info *info = x->f.info;
	int ret;

	ret = register_pool(x, e, true, &e->mr, err);
	if (ret) {
		explain_refusal(x, e, ret, err);
		return RP_EXIT_CLASS;
	}
	if (info->src_addrlen > sizeof(offer->fi_name)) {
		rp_err(err, 0, "the address of the domain is too long");
		return RP_EXIT_NETWORK;
	}
	memcpy(offer->fi_name, info->src_addr, info->src_addrlen);
	offer->fi_name_len = (uint16_t)info->src_addrlen;
	/* fi_av_insert() refuses port 0. */
	((struct sockaddr_in *)offer->fi_name)->sin_port =
		htons(rp_key_port(fi_mr_key(e->mr)));
	offer->addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			      ? (uintptr_t)e->pool.data
			      : 0;
	offer->len = e->pool.size;
	offer->length = e->pool.length;
	offer->owner = e->pool.owner;
	offer->incarnation = x->incarnation;
	offer->generation = e->pool.generation;
	memcpy(offer->uuid, e->pool.uuid, sizeof(offer->uuid));
	offer->control = RP_WIRE_VERSION;
	offer->was_clean = e->pool.was_clean;
	snprintf(offer->name, sizeof(offer->name), "%s", e->name);
	snprintf(offer->base, sizeof(offer->base), "%s", x->base);
	return describe(x, e, offer, err);
}

/*
 * Close a pool, with its new length if it was made longer. clean: write it back
 * and mark it. -errno: it is closed without the mark, and err has the reason.
 */
static int close_pool(struct rp_pool *pool, bool longer, bool clean, char *err)
{
	int ret = 0;

	if (clean && longer)
		ret = rp_pool_extend(pool, err);
	if (clean && !ret)
		return rp_pool_close_clean(pool, err);
	rp_pool_abandon(pool);
	return ret;
}

static void free_slot(struct rp_export *e)
{
	free(e->path);
	memset(e, 0, sizeof(*e));
}

/* Drop a pool that could not be exported; it keeps its former mark. */
static void remove_failed(struct rp_export *e)
{
	char err[RP_ERR_LEN];

	if (e->mr)
		fi_close(&e->mr->fid);
	if (e->made)
		unlink(e->path);
	if (!e->open)
		e->pool.fd = -1;
	close_pool(&e->pool, e->longer, e->open && e->pool.was_clean, err);
	free_slot(e);
}

bool rp_exports_must_wait(const struct rp_exports *x,
			  const struct rp_conf_pool *conf)
{
	bool some = false, room = false;

	for (const struct rp_export *e = x->v; e < x->v + RP_SETUP_POOLS; e++) {
		if (e->leaving && !strcmp(e->path, conf->path))
			return true;
		some |= e->leaving;
		room |= !e->path;
	}
	return some && !room;
}

int rp_exports_add(struct rp_exports *x, const struct rp_conf_pool *conf,
		   char *err)
{
	struct rp_export *e = x->v;
	struct rp_setup_export *offer;
	int code;

	while (e < x->v + RP_SETUP_POOLS && e->path)
		e++;
	if (e == x->v + RP_SETUP_POOLS) {
		rp_err(err, 0,
		       "pool '%.100s': more than %d pools; run another "
		       "fi_rpmemd",
		       conf->name, RP_SETUP_POOLS);
		return RP_EXIT_USAGE;
	}
	offer = &x->offers[e - x->v];
	e->path = strdup(conf->path);
	if (!e->path) {
		rp_err(err, 0, "out of memory");
		return RP_EXIT_FAILED;
	}
	strcpy(e->name, conf->name);
	e->clients = conf->clients;
	code = open_pool(e, conf, err);
	if (!code)
		code = export_pool(x, e, offer, err);
	if (code) {
		remove_failed(e);
		memset(offer, 0, sizeof(*offer));
		return code;
	}
	e->awaited = !x->served && e->pool.is_open;
	if (x->served)
		rp_service_log(RP_SERVICE_NOTICE, "pool '%s' is exported",
			       e->name);
	return 0;
}

void rp_exports_remove(struct rp_exports *x, unsigned int i)
{
	x->v[i].leaving = true;
	memset(&x->offers[i], 0, sizeof(x->offers[i]));
	rp_service_log(RP_SERVICE_NOTICE, "pool '%s' is no longer exported",
		       x->v[i].name);
}

int rp_exports_find(const struct rp_exports *x, const char *name,
		    const char *path)
{
	for (int i = 0; i < RP_SETUP_POOLS; i++)
		if (!strcmp(x->offers[i].name, name) &&
		    !strcmp(x->v[i].path, path))
			return i;
	return -1;
}

void rp_exports_set_rights(struct rp_exports *x, unsigned int i,
			   const uint8_t *rights, unsigned int clients)
{
	const uint8_t in_key = RP_SETUP_READ | RP_SETUP_WRITE;
	struct rp_export *e = &x->v[i];

	for (unsigned int who = 0; who < RP_SETUP_SECRETS; who++) {
		const uint8_t changed = e->rights[who] ^ rights[who];

		e->rights[who] = rights[who];
		if (changed & in_key)
			end_key(&e->keys[who]);
	}
	e->clients = clients;
}

bool rp_exports_is_at_path(const struct rp_exports *x, unsigned int i)
{
	struct stat named, st;

	return stat(x->v[i].path, &named) || fstat(x->v[i].pool.fd, &st) ||
	       (named.st_dev == st.st_dev && named.st_ino == st.st_ino);
}

bool rp_exports_use_secret(const struct rp_exports *x, unsigned int who)
{
	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++)
		if (x->v[i].keys[who].mr)
			return true;
	return false;
}

static void withdraw_export(struct rp_export *e, int why)
{
	if (why == -ENOENT)
		rp_err(e->withdrawn, 0,
		       "pool '%.100s' is withdrawn: its file was removed while "
		       "it was exported, so its bytes vanish when fi_rpmemd "
		       "ends; until then 'cp /proc/%ld/fd/%d FILE' on that "
		       "host "
		       "saves them; start fi_rpmemd again with a file that "
		       "stays",
		       e->name, (long)getpid(), e->pool.fd);
	else if (why == -ENODATA)
		rp_err(e->withdrawn, 0,
		       "pool '%.100s' is withdrawn: its file was cut short "
		       "while it was exported, and its end is lost; restore it "
		       "from a copy, then start fi_rpmemd again",
		       e->name);
	else
		rp_err(e->withdrawn, 0,
		       "pool '%.100s' is withdrawn: its file cannot be "
		       "examined "
		       "any more (%s); check the file system, then start "
		       "fi_rpmemd again",
		       e->name, strerror(-why));
	rp_service_log(RP_SERVICE_ERROR, "%s", e->withdrawn);
}

unsigned int rp_exports_find_longer(struct rp_exports *x)
{
	char err[RP_ERR_LEN];
	unsigned int n = 0;
	int ret;

	for (struct rp_export *e = x->v; e < x->v + RP_SETUP_POOLS; e++) {
		if (!e->path || e->leaving || e->withdrawn[0])
			continue;
		ret = rp_pool_allocate(&e->pool, err);
		if (ret < 0)
			rp_service_log(RP_SERVICE_ERROR, "%s", err);
		e->longer |= ret > 0;
		n += ret > 0;
	}
	return n;
}

/*
 * Serve the new length of a pool, with a new key: its clients connect again, as
 * after a restart. The next check tries again while requests are executed.
 */
static void extend_export(struct rp_exports *x, unsigned int i)
{
	struct rp_export *e = &x->v[i];
	char size[RP_SIZE_LEN], err[RP_ERR_LEN];
	int ret;

	if (!end_registrations(e))
		return;
	e->longer = false;
	ret = rp_pool_extend(&e->pool, err);
	if (ret)
		rp_service_log(RP_SERVICE_ERROR, "%s", err);
	if (export_pool(x, e, &x->offers[i], err))
		rp_err(e->withdrawn, 0,
		       "pool '%.100s' is withdrawn: it cannot be registered "
		       "with its new length; start fi_rpmemd again",
		       e->name);
	else if (!ret)
		rp_service_log(RP_SERVICE_NOTICE, "pool '%s' has %s now",
			       e->name, rp_size_format(e->pool.size, size));
}

/*
 * Withdraw a pool whose file was removed: its bytes vanish with this process,
 * so writes to it are no longer durable. Closing the region makes the agent
 * refuse its keys.
 */
static const char *check_export(void *arg, unsigned int i)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	int ret = e->withdrawn[0] ? 0 : rp_pool_check_file(&e->pool);
	char err[RP_ERR_LEN];

	if (ret)
		withdraw_export(e, ret);
	if (!e->withdrawn[0]) {
		/* Facts may have weakened, which takes a class back. */
		if (e->mr)
			describe(x, e, &x->offers[i], err);
		return NULL;
	}
	end_registrations(e); /* while that fails, the next check tries again */
	return e->withdrawn;
}

/* The disk of one pool must not keep the clients of others waiting. */
struct rp_export_closer {
	pthread_t thread;
	struct rp_pool pool;
	bool longer, clean;
	int closed_fd;
	atomic_bool done;
	int ret;
	char err[RP_ERR_LEN];
};

static void *closer_run(void *arg)
{
	struct rp_export_closer *c = arg;

	c->ret = close_pool(&c->pool, c->longer, c->clean, c->err);
	atomic_store(&c->done, true);
	eventfd_write(c->closed_fd, 1);
	return NULL;
}

/* Close a pool that is no longer exported, once its keys have ended. */
static void closer_start(const struct rp_exports *x, struct rp_export *e)
{
	struct rp_export_closer *c;

	if (!end_registrations(e))
		return;
	c = calloc(1, sizeof(*c));
	if (!c)
		return; /* the next check tries again */
	if (e->withdrawn[0])
		rp_service_log(RP_SERVICE_ERROR,
			       "pool '%s' is closed: what its file had when it "
			       "was withdrawn can no longer be saved",
			       e->name);
	c->pool = e->pool;
	c->longer = e->longer;
	c->clean = !e->withdrawn[0];
	c->closed_fd = x->closed_fd;
	if (pthread_create(&c->thread, NULL, closer_run, c)) {
		free(c);
		return;
	}
	e->pool = (struct rp_pool){.fd = -1};
	e->closer = c;
}

/* Wait for the thread. Returns 0, or the reason in err. */
static int closer_end(struct rp_export *e, char *err)
{
	struct rp_export_closer *c = e->closer;
	int ret;

	pthread_join(c->thread, NULL);
	ret = c->ret;
	if (ret)
		memcpy(err, c->err, RP_ERR_LEN);
	free(c);
	free_slot(e);
	return ret;
}

/* False: the pool still leaves. */
static bool finish_removal(const struct rp_exports *x, struct rp_export *e)
{
	char err[RP_ERR_LEN], name[sizeof(e->name)];
	const bool withdrawn = e->withdrawn[0];

	if (!e->closer)
		closer_start(x, e);
	if (!e->closer || !atomic_load(&e->closer->done))
		return false;
	memcpy(name, e->name, sizeof(name));
	if (closer_end(e, err))
		rp_service_log(RP_SERVICE_ERROR, "%s", err);
	else if (!withdrawn)
		rp_service_log(RP_SERVICE_NOTICE,
			       "pool '%s' is written back and closed", name);
	return true;
}

bool rp_exports_check(struct rp_exports *x)
{
	bool closed = false;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++) {
		struct rp_export *e = &x->v[i];

		if (!e->path)
			continue;
		for (unsigned int who = 0; who < RP_SETUP_SECRETS; who++)
			if (e->keys[who].ending)
				end_key(&e->keys[who]);
		if (e->leaving)
			closed |= finish_removal(x, e);
		else if (!check_export(x, i) && e->longer)
			extend_export(x, i);
	}
	return closed;
}

static unsigned int find_rights(void *arg, unsigned int i, unsigned int who)
{
	const struct rp_exports *x = arg;

	return x->v[i].rights[who];
}

static unsigned int find_clients(void *arg, unsigned int i)
{
	const struct rp_exports *x = arg;

	return x->v[i].clients;
}

/* The key of a secret; it is made when it is asked for first. */
static int grant_key(void *arg, unsigned int i, unsigned int who, uint64_t *key,
		     char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	struct rp_export_key *k = &e->keys[who];
	int ret = 0;

	if (k->ending && !end_key(k))
		return rp_err(err, -EBUSY,
			      "requests with the former key of pool '%.100s' "
			      "are still under way; try again",
			      e->name);
	if (!k->mr)
		ret = register_pool(x, e, e->rights[who] & RP_SETUP_WRITE,
				    &k->mr, err);
	if (!ret)
		*key = fi_mr_key(k->mr);
	return ret;
}

/* A failure that a client can cause again and again: one line in a second. */
static void log_failure(const char *err)
{
	static uint64_t last;

	if (rp_service_may_log(&last))
		rp_service_log(RP_SERVICE_ERROR, "%s", err);
}

static int set_length(void *arg, unsigned int i, uint64_t length, char *err)
{
	struct rp_exports *x = arg;
	int ret = rp_pool_set_length(&x->v[i].pool, length, err);

	if (ret)
		log_failure(err);
	else
		x->offers[i].length = length;
	return ret;
}

/*
 * A new owner: nothing of the former one arrives behind the end of its key.
 * What the new owner reads is durable, because its own commits do not cover it.
 * The owner is remembered, also over a restart.
 */
static int set_owner(void *arg, unsigned int i, uint64_t owner, char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	int ret;

	if (!end_keys(e))
		return rp_err(err, -EBUSY,
			      "requests of the last client of pool '%.100s' "
			      "are still under way; try again",
			      e->name);
	ret = rp_pool_settle(&e->pool, err);
	if (!ret)
		ret = rp_pool_set_owner(&e->pool, owner, err);
	/* Nobody is awaited who shares the pool. */
	if (!ret && owner & RP_SETUP_SHARED)
		ret = rp_pool_release(&e->pool, err);
	if (ret)
		log_failure(err);
	else
		x->offers[i].owner = owner;
	return ret;
}

/*
 * An owner whose daemon was restarted has bytes that it will write again. For
 * some seconds the pool is kept for it.
 */
static int may_open(void *arg, unsigned int i, char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];

	if (!e->awaited || rp_now_ms() > x->await_until)
		return 0;
	return rp_err(err, -EAGAIN,
		      "the last client of pool '%.100s' may come back after "
		      "the restart of fi_rpmemd; try again in %d seconds",
		      e->name, AWAIT_MS / 1000);
}

static void release_export(void *arg, unsigned int i)
{
	struct rp_exports *x = arg;
	char err[RP_ERR_LEN];

	x->v[i].awaited = false;
	if (rp_pool_release(&x->v[i].pool, err))
		log_failure(err);
}

/* The pools, for the handler. */
static const struct rp_exports *exporting;
static const char *lost_page_prefix;

/* A store to a page behind the end of a pool file that was cut short. */
static void lost_page(int sig, siginfo_t *info, void *context)
{
	static const char text[] =
		"' was cut short while it was exported, and its end is lost; "
		"what was acknowledged before is on the disk. Restore the file "
		"from a copy, then start fi_rpmemd again\n";
	const char *at = info->si_addr;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++) {
		const struct rp_export *e = &exporting->v[i];
		const char *map = e->pool.map;
		struct iovec line[] = {
			{(void *)lost_page_prefix, strlen(lost_page_prefix)},
			{(void *)"fi_rpmemd: the file of pool '", 29},
			{(void *)e->name, strlen(e->name)},
			{(void *)text, sizeof(text) - 1},
		};

		if (!map || at < map || at >= map + e->pool.map_len)
			continue;
		if (writev(STDERR_FILENO, line, 4) < 0)
			break;
		_exit(RP_EXIT_FILE);
	}
	signal(sig, SIG_DFL); /* not of a pool: the store is repeated, and ends
			       * the process */
}

/* After libfabric, whose providers may have a handler of their own. */
static void watch_pages(const struct rp_exports *x)
{
	const struct sigaction act = {
		.sa_sigaction = lost_page,
		.sa_flags = SA_SIGINFO,
	};

	exporting = x;
	lost_page_prefix = rp_service_prefix(RP_SERVICE_ERROR);
	sigaction(SIGBUS, &act, NULL);
}

void rp_exports_serve(struct rp_exports *x, struct rp_setup_server_attr *attr)
{
	watch_pages(x);
	attr->exports = x->offers;
	attr->nexports = RP_SETUP_POOLS;
	attr->withdrawn = check_export;
	attr->rights = find_rights;
	attr->clients = find_clients;
	attr->grant = grant_key;
	attr->set_length = set_length;
	attr->set_owner = set_owner;
	attr->may_open = may_open;
	attr->release = release_export;
	attr->arg = x;
	x->await_until = rp_now_ms() + AWAIT_MS;
}

int rp_exports_close(struct rp_exports *x, bool failed, char *err)
{
	int code = 0;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++)
		end_registrations(&x->v[i]);
	rp_fabric_close(&x->f);
	for (struct rp_export *e = x->v; e < x->v + RP_SETUP_POOLS; e++) {
		if (!e->path)
			continue;
		if (e->closer) {
			code = closer_end(e, err) ? RP_EXIT_FILE : code;
			continue;
		}
		/* A start that fails leaves no new pool, and no new mark. */
		if (e->made && !x->served)
			unlink(e->path);
		if (e->withdrawn[0])
			code = RP_EXIT_FILE;
		if (close_pool(
			    &e->pool, e->longer,
			    !e->withdrawn[0] &&
				    (x->served ? !failed : e->pool.was_clean),
			    err))
			code = RP_EXIT_FILE;
		free_slot(e);
	}
	if (x->closed_fd > 0)
		close(x->closed_fd);
	return code;
}
