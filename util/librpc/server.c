// SPDX-License-Identifier: BSD-2-Clause
/* Open and close a server of remote calls. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "librpc/server.h"
#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/machine_facts.h"

#define DRAIN_MS     10000
#define RING_DEFAULT (1u << 20)
#define BUFFERS	     256u /* message buffers */
#define FDS	     64	  /* descriptors of the server, ... */
#define FDS_CLIENT   4	  /* ... and per client: file, connections */

void server_fail(struct rpmem_rpc_server *srv, int ret, const char *why)
{
	if (srv->failed)
		return;
	srv->failed = ret;
	rp_err(srv->failure, 0,
	       "the server has failed: %s; replies that no client has are not "
	       "durable: check the disk and the kernel's log, then start the "
	       "server again",
	       why);
	pthread_cond_broadcast(&srv->ready);
}

void server_publish(struct rpmem_rpc_server *srv)
{
	unsigned char bytes[RPC_PAGE_BYTES];

	rpc_page_encode(&srv->page, bytes);
	for (unsigned int i = 0; i < srv->nslots; i++)
		memcpy(srv->slots[i].map + RPC_PAGE_AT, bytes, sizeof(bytes));
}

/*
 * Map the pool with its own open file. The kernel reports a failed write-back
 * once per open file: these flushes and the agent's must not share one.
 */
static int map_pool(struct slot *s, const struct rp_pool *pool)
{
	const int prot = PROT_READ | PROT_WRITE;
	const int flags =
		pool->map_sync ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
	const int fd = open(pool->path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return rpc_error(-errno, "'%s': %s", pool->path,
				 strerror(errno));
	s->mapped = mmap(NULL, pool->map_len, prot, flags, fd, 0);
	close(fd);
	if (s->mapped == MAP_FAILED) {
		s->mapped = NULL;
		return rpc_error(-errno, "'%s' cannot be mapped: %s",
				 pool->path, strerror(errno));
	}
	s->mapped_len = pool->map_len;
	s->map = (unsigned char *)s->mapped + RP_POOL_DATA;
	return 0;
}

/* Flush by the method that the agent uses for this memory. */
static int open_pmem(struct rpmem_rpc_server *srv, struct slot *s,
		     const struct rp_pool *pool)
{
	char why[RP_WHY_LEN], obstacle[RP_WHY_LEN];
	struct rp_choice choice;
	struct rp_facts facts;
	int ret = rp_facts_find(srv->x.base, NULL, pool->data, pool->size,
				&facts, why, NULL, NULL);

	if (ret)
		return rpc_error(ret, "'%s': %s", pool->path, why);
	choice = rp_method_by_agent(&facts, rp_facts_pick(&facts, obstacle));
	ret = rp_pmem_new(s->map, pool->size, choice.method, NULL, NULL,
			  &s->pm);
	return ret ? rpc_error(ret, "'%s': flushes by method %s: %s",
			       pool->path, rp_method_name(choice.method),
			       strerror(-ret))
		   : 0;
}

static int check_class(const struct rp_setup_export *offer,
		       enum rpmem_pool_class required)
{
	static const uint8_t least[] = {
		[RPMEM_POOL_POWER] = RP_CLASS_POWER,
		[RPMEM_POOL_PROCESS] = RP_CLASS_PROCESS,
		[RPMEM_POOL_NONE] = RP_CLASS_NONE,
	};

	if (offer->class >= least[required])
		return 0;
	return rpc_error(-EOPNOTSUPP,
			 "pool '%.64s' is of class %s, weaker than required: "
			 "%.200s; use another file system, or require less",
			 offer->name,
			 rp_class_name((enum rp_class)offer->class),
			 offer->why);
}

static int exit_errno(int code)
{
	switch (code) {
	case RP_EXIT_BUSY:
		return -EBUSY;
	case RP_EXIT_SPACE:
		return -ENOSPC;
	case RP_EXIT_CLASS:
		return -EOPNOTSUPP;
	case RP_EXIT_FILE:
		return -EBADMSG;
	default:
		return -EIO;
	}
}

static int add_slot(struct rpmem_rpc_server *srv, const char *path,
		    const struct rpmem_rpc_server_attr *a, unsigned int i)
{
	struct rp_conf_pool conf = {
		.create = RPC_RING_AT + a->ring,
		.clients = 0,
	};
	const uint8_t rights[RP_SETUP_SECRETS] = {
		RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN};
	struct slot *s = &srv->slots[i];
	const char *name = strrchr(path, '/');
	struct rp_pool *pool;
	int ret, at;

	if (asprintf(&conf.path, "%s.%u", path, i) < 0)
		return rpc_error(-ENOMEM, "out of memory");
	snprintf(conf.name, sizeof(conf.name), "%s.%u", name ? name + 1 : path,
		 i);
	ret = rp_exports_add(&srv->x, &conf, rpc_error_buf());
	at = ret ? -1 : rp_exports_find(&srv->x, conf.name, conf.path);
	free(conf.path);
	if (at < 0)
		return exit_errno(ret);
	rp_exports_set_rights(&srv->x, (unsigned int)at, rights, 0);
	ret = check_class(&srv->x.offers[at], a->required);
	pool = &srv->x.v[at].pool;
	s->index = i;
	if (!ret)
		ret = map_pool(s, pool);
	if (!ret)
		ret = open_pmem(srv, s, pool);
	if (ret)
		return ret;
	ret = slot_open(srv, s, pool->size, pool->path);
	if (srv->x.v[at].created_file)
		s->maybe_begun = 0;
	return ret;
}

static int open_port(struct rpmem_rpc_server *srv, const char *base,
		     const char *source)
{
	const struct rp_fabric_attr attr = {.base = base, .source = source};
	int ret = rpc_port_open(&srv->port, &attr, BUFFERS, rpc_error_buf());

	if (ret)
		return ret;
	srv->page.name_len = (uint32_t)srv->port.name_len;
	memcpy(srv->page.name, srv->port.name, RPC_NAME);
	snprintf(srv->page.base, sizeof(srv->page.base), "%s", srv->x.base);
	if (getrandom(&srv->page.token, sizeof(srv->page.token), 0) !=
	    sizeof(srv->page.token))
		return rpc_error(-EIO, "no random bytes");
	return 0;
}

static int load_secret(struct rpmem_rpc_server *srv,
		       const struct rpmem_rpc_server_attr *a)
{
	if (a->secret_file) {
		srv->secrets.needed = true;
		return rp_secret_load(a->secret_file, &srv->secrets.v[0],
				      rpc_error_buf())
			       ? -EACCES
			       : 0;
	}
	if (!a->address || rp_fabric_is_loopback(a->address))
		return 0;
	return rpc_error(-EACCES,
			 "address %s lets other hosts in, so attr.secret_file "
			 "is needed",
			 a->address);
}

static void *flusher_run(void *arg)
{
	struct rpmem_rpc_server *srv = arg;
	struct slot *s;

	pthread_mutex_lock(&srv->lock);
	while (!srv->closing || !TAILQ_EMPTY(&srv->dirty_slots)) {
		s = TAILQ_FIRST(&srv->dirty_slots);
		if (!s) {
			pthread_cond_wait(&srv->dirty, &srv->lock);
			continue;
		}
		TAILQ_REMOVE(&srv->dirty_slots, s, link);
		slot_flush(srv, s);
	}
	pthread_mutex_unlock(&srv->lock);
	return NULL;
}

/* Start the setup server and the threads: from now on clients are served. */
static int start(struct rpmem_rpc_server *srv)
{
	struct rp_setup_server_attr attr = {
		.listener = srv->listener,
		.secrets = &srv->secrets,
	};
	int ret;

	srv->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (srv->wake_fd < 0)
		return rpc_error(-errno, "eventfd: %s", strerror(errno));
	rp_exports_serve(&srv->x, &attr);
	srv->listener = -1;
	ret = rp_setup_server_new(&attr, &srv->setup, rpc_error_buf());
	if (ret)
		return ret;
	srv->x.served = true;
	for (unsigned int i = 0; i <= RPC_FLUSHERS && !ret; i++) {
		ret = pthread_create(i ? &srv->flushers[i - 1] : &srv->thread,
				     NULL, i ? flusher_run : server_run, srv);
		srv->nthreads += !ret;
	}
	return ret ? rpc_error(-ret, "thread: %s", strerror(ret)) : 0;
}

static int parse_attr(const struct rpmem_rpc_server_attr *attr,
		      struct rpmem_rpc_server_attr *a)
{
	*a = (struct rpmem_rpc_server_attr){.size = sizeof(*a)};
	if (attr && attr->size != sizeof(*a))
		return rpc_error(-EINVAL,
				 "attr->size is %zu; set it to sizeof(struct "
				 "rpmem_rpc_server_attr)",
				 attr->size);
	if (attr)
		*a = *attr;
	if (!a->clients)
		a->clients = RPMEM_RPC_CLIENTS;
	if (!a->ring)
		a->ring = RING_DEFAULT;
	if (a->clients > RPMEM_RPC_CLIENTS ||
	    (unsigned int)a->required > RPMEM_POOL_NONE ||
	    a->ring < RPC_RING_MIN || a->ring > RPC_RING_MAX)
		return rpc_error(-EINVAL,
				 "at most %d clients, a failure class, and a "
				 "ring of at least %u bytes are needed",
				 RPMEM_RPC_CLIENTS, RPC_RING_MIN);
	return 0;
}

/* Count the pool files of a path: number of the last one, plus one. */
static int count_files(const char *path, unsigned int *n)
{
	char *name;

	for (*n = RPMEM_RPC_CLIENTS; *n; --*n) {
		int missing;

		if (asprintf(&name, "%s.%u", path, *n - 1) < 0)
			return rpc_error(-ENOMEM, "out of memory");
		missing = access(name, F_OK);
		free(name);
		if (!missing)
			break;
	}
	return 0;
}

/* Check path and limits before a file is made. */
static int check_path(const char *path, unsigned int clients)
{
	const char *name = strrchr(path, '/');
	const unsigned int fds = FDS + FDS_CLIENT * clients;
	struct rlimit limit;
	unsigned int n = 0;
	char *folder;
	int ret;

	name = name ? name + 1 : path;
	if (!*name || strlen(name) > RP_SETUP_NAME - 3)
		return rpc_error(-EINVAL,
				 "'%.300s' does not end with the name of the "
				 "pools; it has 1 to %d bytes",
				 path, RP_SETUP_NAME - 3);
	folder = name == path ? strdup(".") : strndup(path, name - path);
	ret = !folder ? -ENOMEM : access(folder, X_OK) ? -errno : 0;
	if (ret)
		rpc_error(ret,
			  "the folder '%s' of the pools: %s; make it, or give "
			  "another path",
			  folder ? folder : path, strerror(-ret));
	free(folder);
	if (!ret)
		ret = count_files(path, &n);
	if (ret)
		return ret;
	if (n > clients)
		return rpc_error(-EINVAL,
				 "'%s' has the files of %u clients, and "
				 "attr.clients is %u: the calls in the others "
				 "would not be processed; serve %u, or move "
				 "the others away",
				 path, n, clients, n);
	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < fds)
		return rpc_error(-EMFILE,
				 "a server of %u clients needs %u descriptors, "
				 "and the process may have %llu; raise the "
				 "limit (ulimit -n), or serve fewer clients",
				 clients, fds,
				 (unsigned long long)limit.rlim_cur);
	return 0;
}

int rpmem_rpc_listen(struct rpmem_rpc_server **out, const char *path,
		     const struct rpmem_rpc_server_attr *attr)
{
	struct rpmem_rpc_server_attr a;
	struct rpmem_rpc_server *srv;
	pthread_condattr_t monotonic;
	int ret;

	if (!out || !path)
		return rpc_error(-EINVAL, "rpmem_rpc_listen() needs a place "
					  "for the server and a path");
	ret = parse_attr(attr, &a);
	if (!ret)
		ret = check_path(path, a.clients);
	if (ret)
		return ret;
	srv = calloc(1, sizeof(*srv));
	if (!srv)
		return rpc_error(-ENOMEM, "out of memory");
	srv->wake_fd = srv->listener = -1;
	srv->x.embedded = true;
	pthread_mutex_init(&srv->lock, NULL);
	pthread_cond_init(&srv->dirty, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&srv->ready, &monotonic);
	pthread_condattr_destroy(&monotonic);
	TAILQ_INIT(&srv->calls);
	TAILQ_INIT(&srv->dirty_slots);
	ret = load_secret(srv, &a);
	if (!ret)
		srv->listener =
			rp_setup_listen(a.address, a.port, rpc_error_buf());
	if (!ret && srv->listener < 0)
		ret = srv->listener;
	if (!ret && rp_exports_open(&srv->x, a.base,
				    a.address ? a.address : "127.0.0.1",
				    rpc_error_buf()))
		ret = -EIO;
	if (!ret)
		ret = open_port(srv, a.base, a.address);
	srv->page.slots = a.clients;
	for (; srv->nslots < a.clients && !ret; srv->nslots++)
		ret = add_slot(srv, path, &a, srv->nslots);
	if (!ret) {
		server_publish(srv);
		ret = start(srv);
	}
	if (ret)
		rpmem_rpc_server_close(srv);
	else
		*out = srv;
	return ret;
}

uint16_t rpmem_rpc_port(const struct rpmem_rpc_server *srv)
{
	return rp_setup_server_port(srv->setup);
}

int rpmem_rpc_next(struct rpmem_rpc_server *srv, struct rpmem_rpc_call **call,
		   int timeout_ms)
{
	struct timespec until;
	struct call *c;
	int ret = 0;

	if (!srv || !call)
		return rpc_error(-EINVAL, "rpmem_rpc_next() needs a server and "
					  "a place for the call");
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&srv->lock);
	while (!srv->stopped && !srv->failed && !ret &&
	       TAILQ_EMPTY(&srv->calls))
		ret = timeout_ms < 0
			      ? pthread_cond_wait(&srv->ready, &srv->lock)
			      : pthread_cond_timedwait(&srv->ready, &srv->lock,
						       &until);
	c = TAILQ_FIRST(&srv->calls);
	if (srv->failed) {
		ret = rpc_error(srv->failed, "%s", srv->failure);
	} else if (srv->stopped) {
		ret = rpc_error(-ECANCELED, "the server was stopped");
	} else if (c) {
		TAILQ_REMOVE(&srv->calls, c, link);
		*call = &c->call;
		ret = 1;
	} else {
		ret = 0;
	}
	pthread_mutex_unlock(&srv->lock);
	return ret;
}

void rpmem_rpc_stop(struct rpmem_rpc_server *srv)
{
	pthread_mutex_lock(&srv->lock);
	srv->stopped = true;
	pthread_cond_broadcast(&srv->ready);
	pthread_mutex_unlock(&srv->lock);
}

/* End the threads: complete accepted commits, refuse the rest. */
static void stop_threads(struct rpmem_rpc_server *srv)
{
	struct fi_rpmem_domain_ops *ops;

	pthread_mutex_lock(&srv->lock);
	srv->closing = srv->stopped = true;
	pthread_cond_broadcast(&srv->dirty);
	pthread_mutex_unlock(&srv->lock);
	if (srv->wake_fd >= 0)
		eventfd_write(srv->wake_fd, 1);
	for (unsigned int i = 0; i < srv->nthreads; i++)
		pthread_join(i ? srv->flushers[i - 1] : srv->thread, NULL);
	rp_setup_server_delete(srv->setup);
	if (srv->listener >= 0)
		close(srv->listener);
	if (srv->x.served && !fi_rpmem_domain_ops_get(srv->x.f.domain, &ops))
		fi_rpmem_drain(ops, srv->x.f.domain, DRAIN_MS);
	if (srv->wake_fd >= 0)
		close(srv->wake_fd);
}

int rpmem_rpc_server_close(struct rpmem_rpc_server *srv)
{
	char err[RP_ERR_LEN];
	struct call *c;
	int ret;

	if (!srv)
		return 0;
	stop_threads(srv);
	if (srv->port.f.ep)
		rpc_port_close(&srv->port);
	for (unsigned int i = 0; i < RPC_SLOTS; i++) {
		rp_pmem_delete(srv->slots[i].pm);
		if (srv->slots[i].mapped)
			munmap(srv->slots[i].mapped, srv->slots[i].mapped_len);
	}
	ret = srv->failed ? rpc_error(srv->failed, "%s", srv->failure) : 0;
	if (srv->x.f.domain && rp_exports_close(&srv->x, ret, err) && !ret &&
	    srv->x.served)
		ret = rpc_error(-EIO, "%s", err);
	while ((c = TAILQ_FIRST(&srv->calls))) {
		TAILQ_REMOVE(&srv->calls, c, link);
		free(c);
	}
	pthread_cond_destroy(&srv->ready);
	pthread_cond_destroy(&srv->dirty);
	pthread_mutex_destroy(&srv->lock);
	explicit_bzero(&srv->secrets, sizeof(srv->secrets));
	free(srv);
	return ret;
}
