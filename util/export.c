// SPDX-License-Identifier: BSD-2-Clause
/* The pools that fi_rpmemd exports, and the keys that it has given out. */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/method.h"
#include "core/wire.h"
#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/export.h"
#include "util/sigbus.h"
#include "util/service.h"

static int pool_exit(int ret)
{
	switch (ret) {
	case -EBUSY:
		return RP_EXIT_BUSY;
	case -ENOSPC:
	case -EDQUOT:
		return RP_EXIT_SPACE;
	case -ENOTRECOVERABLE: /* bytes were lost in a dirty shutdown */
		return RP_EXIT_CLASS;
	default:
		return RP_EXIT_FILE;
	}
}

/* An existing pool must have the size that --create would give it. */
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
		     bool print, char *err)
{
	const uint64_t create = conf->create;
	char have[RP_SIZE_LEN];
	bool made = create && access(e->path, F_OK) && errno == ENOENT;
	int ret;

	if (made) {
		ret = rp_pool_create(e->path, create, err);
		if (ret)
			return pool_exit(ret);
		e->created_file = true;
	}
	ret = rp_pool_open(e->path, &e->pool, err);
	/* The lock of another daemon: that daemon serves the new pool. */
	if (ret == -EBUSY)
		e->created_file = false;
	if (ret)
		return pool_exit(ret);
	e->open = true;
	ret = conf->exact ? check_size(e, create, err) : 0;
	if (ret)
		return ret;
	if (!print)
		return 0;
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
	x->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (x->ended_fd < 0) {
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

/*
 * Fill in the class and the method of the pool's commits, and why. These are
 * for people to read: programs send a QUERY to the agent.
 */
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

/* Revoke all keys, and close e->mr. False: a request still uses a key. */
static bool end_registrations(struct rp_export *e)
{
	if (!rp_export_end_part(e, 0) || (e->mr && fi_close(&e->mr->fid)))
		return false;
	e->mr = NULL;
	return true;
}

/*
 * Register a pool, so that the domain listens for private connections. Clients
 * find the domain by this host's address and the port in the key.
 */
static int export_pool(struct rp_exports *x, struct rp_export *e,
		       struct rp_setup_export *offer, char *err)
{
	const struct fi_info *info = x->f.info;
	int ret;

	ret = rp_export_register(x, e, 0, true, &e->mr, err);
	if (ret)
		return rp_export_explain(x, e, ret, err);
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
	offer->owner = e->pool.owner[0];
	offer->incarnation = x->incarnation;
	offer->generation = e->pool.generation;
	memcpy(offer->uuid, e->pool.uuid, sizeof(offer->uuid));
	offer->control = RP_WIRE_VERSION;
	offer->was_clean = e->pool.was_clean;
	snprintf(offer->name, sizeof(offer->name), "%s", e->name);
	snprintf(offer->base, sizeof(offer->base), "%s", x->base);
	return describe(x, e, offer, err);
}

static void free_slot(struct rp_export *e)
{
	struct rp_export_key *k;

	while ((k = TAILQ_FIRST(&e->keys))) {
		TAILQ_REMOVE(&e->keys, k, link);
		free(k);
	}
	free(e->path);
	memset(e, 0, sizeof(*e));
}

/* Drop a pool that could not be exported; its file is as clean as before. */
static void remove_failed(struct rp_export *e)
{
	char err[RP_ERR_LEN];

	if (e->mr)
		fi_close(&e->mr->fid);
	if (e->created_file)
		unlink(e->path);
	if (!e->open)
		e->pool.fd = -1;
	rp_export_close_pool(&e->pool, e->longer, e->open && e->pool.was_clean,
			     err);
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
	TAILQ_INIT(&e->keys);
	strcpy(e->name, conf->name);
	e->clients = conf->clients;
	code = open_pool(e, conf, !x->embedded, err);
	if (!code)
		code = export_pool(x, e, offer, err);
	if (code) {
		remove_failed(e);
		memset(offer, 0, sizeof(*offer));
		return code;
	}
	e->awaited = x->served ? 0 : e->pool.is_open;
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

unsigned int rp_exports_count(const struct rp_exports *x)
{
	unsigned int n = 0;

	for (int i = 0; i < RP_SETUP_POOLS; i++)
		n += x->offers[i].name[0] != 0;
	return n;
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

	for (unsigned int secret_index = 0; secret_index < RP_SETUP_SECRETS;
	     secret_index++) {
		const uint8_t changed =
			e->rights[secret_index] ^ rights[secret_index];

		e->rights[secret_index] = rights[secret_index];
		if (changed & in_key)
			rp_export_end_secret(e, secret_index);
	}
	e->clients = clients;
}

bool rp_exports_is_at_path(const struct rp_exports *x, unsigned int i)
{
	struct stat named, st;

	return stat(x->v[i].path, &named) || fstat(x->v[i].pool.fd, &st) ||
	       (named.st_dev == st.st_dev && named.st_ino == st.st_ino);
}

bool rp_exports_use_secret(const struct rp_exports *x,
			   unsigned int secret_index)
{
	const struct rp_export_key *k;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++)
		TAILQ_FOREACH (k, &x->v[i].keys, link) {
			if (k->secret_index == secret_index)
				return true;
		}
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
	unsigned int n = 0;

	for (struct rp_export *e = x->v; e < x->v + RP_SETUP_POOLS; e++) {
		if (!e->path || e->leaving || e->withdrawn[0])
			continue;
		e->grows = rp_pool_is_longer(&e->pool);
		n += e->grows;
	}
	return n;
}

/*
 * Serve the new length of a pool with new keys: its clients reconnect as after
 * a restart. If a request still uses a key, leave this to the next check.
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
 * Withdraw a pool whose file was removed or cut short: its bytes would vanish
 * with this process, so writes are not durable any more. The agent refuses the
 * keys of closed registrations.
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
		/* Update the class: the memory may have become weaker. */
		if (e->mr)
			describe(x, e, &x->offers[i], err);
		return NULL;
	}
	end_registrations(e); /* on failure the next check tries again */
	return e->withdrawn;
}

/* Log a failure that a client can repeat at will: once a second at most. */
static void log_failure(const char *err)
{
	static uint64_t last;

	if (rp_service_may_log(&last))
		rp_service_log(RP_SERVICE_ERROR, "%s", err);
}

/* --- jobs of threads: a slow disk of one pool delays no client of others */

/* Start a thread. Returns false if this fails: the next check tries again. */
static bool start_work(const struct rp_exports *x, struct rp_export *e,
		       struct rp_export_job *j)
{
	j->pool = e->pool;
	e->worker = rp_export_worker_start(j, x->ended_fd);
	return e->worker;
}

static void start_growing(const struct rp_exports *x, struct rp_export *e)
{
	struct rp_export_job j = {.run = rp_export_job_grow};

	e->grows = !start_work(x, e, &j);
}

/* Close a pool that is not exported any more, once its keys are revoked. */
static void start_closing(const struct rp_exports *x, struct rp_export *e)
{
	struct rp_export_job j = {
		.run = rp_export_job_close,
		.longer = e->longer,
		.clean = !e->withdrawn[0],
	};

	if (!end_registrations(e) || !start_work(x, e, &j))
		return;
	if (e->withdrawn[0])
		rp_service_log(RP_SERVICE_ERROR,
			       "pool '%s' is closed: what its file had when it "
			       "was withdrawn can no longer be saved",
			       e->name);
	e->pool = (struct rp_pool){.fd = -1};
}

static void take_owner(struct rp_exports *x, struct rp_export *e,
		       const struct rp_export_job *j)
{
	const uint64_t released = e->released;
	char err[RP_ERR_LEN];

	e->pool = j->pool;
	e->sets_owner = false;
	e->released = 0;
	if (released && rp_pool_release(&e->pool, released, err))
		log_failure(err);
	if (!j->ret) {
		/* Await no former owner whom the new one has displaced. */
		e->awaited &= j->part ? ~(1 | 1ull << j->part) : 0;
		x->offers[e - x->v].owner = e->pool.owner[0];
		return;
	}
	log_failure(j->err);
	/* The client gets this error when its request is served again. */
	e->failed_owner = j->owner;
	memcpy(e->failure, j->err, sizeof(e->failure));
}

/*
 * Wait for the thread, and copy its finished job to *j. Returns true if the job
 * has closed the pool, whose slot is free now.
 */
static bool finish_work(struct rp_exports *x, struct rp_export *e,
			struct rp_export_job *j)
{
	rp_export_worker_end(e->worker, j);
	e->worker = NULL;
	if (j->run == rp_export_job_close) {
		if (j->ret)
			rp_service_log(RP_SERVICE_ERROR, "%s", j->err);
		else if (!e->withdrawn[0])
			rp_service_log(RP_SERVICE_NOTICE,
				       "pool '%s' is written back and closed",
				       e->name);
		free_slot(e);
		return true;
	}
	if (j->run == rp_export_job_set_owner) {
		take_owner(x, e, j);
		return false;
	}
	if (j->ret < 0)
		rp_service_log(RP_SERVICE_ERROR, "%s", j->err);
	e->pool.allocated = j->pool.allocated;
	e->longer |= j->ret > 0;
	return false;
}

bool rp_exports_check(struct rp_exports *x)
{
	struct rp_export_job j;
	bool closed = false;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++) {
		struct rp_export *e = &x->v[i];

		rp_export_end_ending(e);
		if (e->worker && rp_export_worker_has_ended(e->worker))
			closed |= finish_work(x, e, &j);
		if (!e->path)
			continue;
		if (!e->leaving)
			check_export(x, i);
		if (e->worker)
			continue;
		if (e->grows)
			start_growing(x, e);
		else if (e->leaving)
			start_closing(x, e);
		else if (e->longer && !e->withdrawn[0])
			extend_export(x, i);
	}
	return closed;
}

static unsigned int find_rights(void *arg, unsigned int i,
				unsigned int secret_index)
{
	const struct rp_exports *x = arg;

	return x->v[i].rights[secret_index];
}

static unsigned int find_clients(void *arg, unsigned int i)
{
	const struct rp_exports *x = arg;

	return x->v[i].clients;
}

/* Describe a part of pool i; part 0 is the whole pool. */
static unsigned int find_parts(void *arg, unsigned int i, unsigned int part,
			       uint64_t *owner)
{
	const struct rp_exports *x = arg;

	*owner = x->v[i].pool.owner[part];
	return x->v[i].pool.parts ?: 1;
}

static int grant_key(void *arg, unsigned int i, unsigned int secret_index,
		     unsigned int part, struct rp_setup_export *offer,
		     char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	uint64_t at;

	if (part) {
		at = rp_pool_part(&e->pool, part, &offer->len);
		if (x->f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
			offer->addr += at;
		offer->owner = e->pool.owner[part];
		offer->length = 0;
	}
	return rp_export_grant(x, e, secret_index, part, &offer->key, err);
}

static int divide_export(void *arg, unsigned int i, unsigned int parts,
			 char *err)
{
	struct rp_exports *x = arg;

	return rp_pool_divide(&x->v[i].pool, parts, err);
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
 * Begin to set an owner: revoke the keys to the part, so that all earlier
 * writes to it fail, even those that this owner sent before it opened the pool
 * once more. For a new owner, a thread does the rest; until the thread ends, no
 * client gets a key.
 */
static int set_owner(void *arg, unsigned int i, unsigned int part,
		     uint64_t owner, char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	struct rp_export_job j = {
		.run = rp_export_job_set_owner, .part = part, .owner = owner};
	const bool failed = e->failed_owner == owner;

	if (!rp_export_end_part(e, part))
		return rp_err(err, -EBUSY,
			      "requests of the last client of pool '%.100s' "
			      "are still under way; try again",
			      e->name);
	e->failed_owner = 0;
	if (failed)
		return rp_err(err, -EIO, "%s", e->failure);
	if (owner == e->pool.owner[part])
		return 0;
	/* A thread that allocates blocks of this pool must end first. */
	if (!e->worker)
		e->sets_owner = start_work(x, e, &j);
	e->settling = part;
	if (!e->worker)
		return rp_err(err, -ENOMEM, "no thread can be started");
	return -EINPROGRESS;
}

static bool is_busy(void *arg, unsigned int i)
{
	const struct rp_exports *x = arg;

	return x->v[i].sets_owner;
}

/*
 * Reserve the pool for its last owner for RP_SETUP_AWAIT_MS after a restart of
 * the daemon: this owner may have to repeat writes that were not committed.
 */
static int may_open(void *arg, unsigned int i, unsigned int part, char *err)
{
	struct rp_exports *x = arg;
	struct rp_export *e = &x->v[i];
	const uint64_t others = part ? 1 | 1ull << part : UINT64_MAX;

	if (!(e->awaited & others) || rp_now_ms() > x->await_until)
		return 0;
	return rp_err(err, -EAGAIN,
		      "the last client of pool '%.100s' may come back after "
		      "the restart of fi_rpmemd; try again in %d seconds",
		      e->name, RP_SETUP_AWAIT_MS / 1000);
}

static void release_export(void *arg, unsigned int i, unsigned int part)
{
	struct rp_export *e = &((struct rp_exports *)arg)->v[i];
	char err[RP_ERR_LEN];

	e->awaited &= ~(1ull << part);
	if (e->sets_owner) {
		/* Ignore former owners of the part that gets a new owner. */
		if (e->settling && part != e->settling)
			e->released |= 1ull << part;
		return;
	}
	if (rp_pool_release(&e->pool, 1ull << part, err))
		log_failure(err);
}

void rp_exports_serve(struct rp_exports *x, struct rp_setup_server_attr *attr)
{
	if (!x->embedded)
		rp_sigbus_watch(x);
	attr->exports = x->offers;
	attr->nexports = RP_SETUP_POOLS;
	attr->withdrawn = check_export;
	attr->rights = find_rights;
	attr->clients = find_clients;
	attr->parts = find_parts;
	attr->divide = divide_export;
	attr->grant = grant_key;
	attr->set_length = set_length;
	attr->set_owner = set_owner;
	attr->is_busy = is_busy;
	attr->may_open = may_open;
	attr->release = release_export;
	attr->arg = x;
	x->await_until = rp_now_ms() + RP_SETUP_AWAIT_MS;
}

int rp_exports_close(struct rp_exports *x, bool failed, char *err)
{
	struct rp_export_job j;
	int code = 0;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++)
		end_registrations(&x->v[i]);
	rp_fabric_close(&x->f);
	for (struct rp_export *e = x->v; e < x->v + RP_SETUP_POOLS; e++) {
		if (!e->path)
			continue;
		if (e->worker && finish_work(x, e, &j)) {
			code = j.ret ? RP_EXIT_FILE : code;
			continue;
		}
		if (e->grows)
			e->longer |= rp_pool_allocate(&e->pool, err) > 0;
		/* A failed start keeps no new pool, and old pools as clean. */
		if (e->created_file && !x->served)
			unlink(e->path);
		if (e->withdrawn[0])
			code = RP_EXIT_FILE;
		if (rp_export_close_pool(
			    &e->pool, e->longer,
			    !e->withdrawn[0] &&
				    (x->served ? !failed : e->pool.was_clean),
			    err))
			code = RP_EXIT_FILE;
		free_slot(e);
	}
	if (x->ended_fd > 0)
		close(x->ended_fd);
	return code;
}
