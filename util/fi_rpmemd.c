// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmemd: exports pool files and makes writes to them durable. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/method.h"
#include "core/status.h"
#include "core/wire.h"
#include "util/clock.h"
#include "util/exits.h"
#include "util/fabric.h"
#include "util/machine_facts.h"
#include "util/file.h"
#include "util/pool.h"
#include "util/setup_server.h"

/* After SIGTERM, accepted commits have this long to complete. */
#define DRAIN_MS 10000
/* Time for the last replies to leave, after the last commit. */
#define LINGER_MS 100
/* Interval of the check that each pool file still has a name. */
#define NAMES_MS 1000
/* A new daemon keeps a pool for its last owner, which tries each second. */
#define AWAIT_MS 5000

struct export
{
	const char *path;
	const char *name; /* points into path */
	struct rp_pool pool;
	bool open;
	bool made;    /* by this process */
	bool awaited; /* its owner has not closed it, and may come back */
	bool longer;  /* SIGHUP: its file is, and its blocks are allocated */
	struct fid_mr *mr;
	char withdrawn[RP_ERR_LEN]; /* reason, or "" while the pool is served */
};

struct daemon {
	/* command line */
	uint64_t create; /* size of new pools, or 0 */
	uint16_t port;
	const char *addr;
	const char *secret_file;
	const char *port_file;
	const char *base;

	struct export exports[RP_SETUP_POOLS];
	unsigned int n;
	struct rp_setup_export offers[RP_SETUP_POOLS];
	struct rp_secret secret;
	struct rp_fabric f;
	int cq_fd;
	int signal_fd;
	struct rp_setup_server *server;
	uint64_t incarnation;
	uint64_t await_until; /* ms */
	bool served;	      /* clients were able to connect */
	char err[RP_ERR_LEN];
};

__attribute__((visibility("default"))) /* argp reads it */
const char *argp_program_version = "fi_rpmemd " PACKAGE_VERSION;

static const char doc[] =
	"Exports pool files to clients such as fi_rpmem_cp, and "
	"makes their writes durable.\vWithout --listen only this "
	"host can connect. SIGTERM completes accepted commits, "
	"refuses new ones and exits with 0. fi_rpmemd(1) lists "
	"the exit codes.";

enum {
	OPT_PORT_FILE = 256,
	OPT_BASE,
};

static const struct argp_option options[] = {
	{"create", 'c', "SIZE", 0,
	 "Create the pools that do not exist, with SIZE bytes each (64M, 10G, "
	 "1T)",
	 0},
	{"port", 'p', "N", 0, "Listen on TCP port N (18620); 0: a free one", 0},
	{"listen", 'l', "ADDR", 0,
	 "Listen on address ADDR of this host (127.0.0.1); any but loopback "
	 "needs --secret",
	 0},
	{"secret", 's', "FILE", 0,
	 "Serve only clients that know the secret in FILE", 0},
	{"port-file", OPT_PORT_FILE, "FILE", 0,
	 "Write the port to FILE once clients can connect", 0},
	{"base", OPT_BASE, "NAME", 0, "Base provider of libfabric (tcp)", 0},
	{0},
};

static error_t parse_pool(struct argp_state *state, struct daemon *d,
			  const char *path)
{
	struct export *e = &d->exports[d->n];
	const char *slash = strrchr(path, '/');

	if (d->n == RP_SETUP_POOLS)
		argp_error(state, "more than %d pools; run another fi_rpmemd",
			   RP_SETUP_POOLS);
	e->path = path;
	e->name = slash ? slash + 1 : path;
	if (!rp_setup_name_ok(e->name))
		argp_error(state,
			   "'%s' cannot name a pool; use printable ASCII "
			   "characters, at most 255, or a symbolic link of "
			   "such a name",
			   path);
	/* Clients name a pool without its folder, so names must differ. */
	for (unsigned int i = 0; i < d->n; i++)
		if (!strcmp(d->exports[i].name, e->name))
			argp_error(state,
				   "'%s' and '%s' have the same name; rename "
				   "one, or run two daemons",
				   d->exports[i].path, path);
	d->n++;
	return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct daemon *d = state->input;
	uint64_t v;

	switch (key) {
	case 'c':
		if (rp_size_parse(arg, &d->create, d->err))
			argp_error(state, "--create: %s", d->err);
		if (d->create < RP_POOL_UNIT)
			argp_error(state,
				   "--create %s: a pool has at least 4K bytes; "
				   "give a number with a unit, as in 64M or "
				   "10G",
				   arg);
		return 0;
	case 'p':
		if (rp_number_parse(arg, 0, 65535, &v, d->err))
			argp_error(state, "--port: %s", d->err);
		d->port = (uint16_t)v;
		return 0;
	case 'l':
		d->addr = arg;
		return 0;
	case 's':
		d->secret_file = arg;
		return 0;
	case OPT_PORT_FILE:
		d->port_file = arg;
		return 0;
	case OPT_BASE:
		d->base = arg;
		return 0;
	case ARGP_KEY_ARG:
		return parse_pool(state, d, arg);
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "name at least one pool file");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int report_error(const struct daemon *d, int code)
{
	fprintf(stderr, "fi_rpmemd: %s\n", d->err);
	return code;
}

/* Check secret, address and port before any pool is opened or created. */
static int check_access(struct daemon *d)
{
	if (d->secret_file &&
	    rp_secret_load(d->secret_file, &d->secret, d->err))
		return report_error(d, RP_EXIT_SECRET);
	if (!strcmp(d->addr, "0.0.0.0") || !strcmp(d->addr, "::")) {
		rp_err(d->err, 0,
		       "--listen %s: clients write to this address; give the "
		       "address by which they reach this host",
		       d->addr);
		return report_error(d, RP_EXIT_USAGE);
	}
	if (!d->secret_file && !rp_fabric_is_loopback(d->addr)) {
		rp_err(d->err, 0,
		       "--listen %s lets other hosts in, so --secret FILE is "
		       "needed; make one: (umask 077; head -c 32 /dev/urandom "
		       "| base64 > FILE)",
		       d->addr);
		return report_error(d, RP_EXIT_SECRET);
	}
	if (rp_setup_server_check(d->addr, d->port, d->err))
		return report_error(d, RP_EXIT_NETWORK);
	return 0;
}

static int pool_exit(int ret)
{
	switch (ret) {
	case -EBUSY:
		return RP_EXIT_BUSY;
	case -ENOSPC:
	case -EDQUOT:
		return RP_EXIT_SPACE;
	default:
		return RP_EXIT_FILE;
	}
}

static int open_pool(struct daemon *d, struct export *e)
{
	char have[RP_SIZE_LEN], want[RP_SIZE_LEN];
	bool made = d->create && access(e->path, F_OK) && errno == ENOENT;
	uint64_t rounded;
	int ret;

	if (made) {
		ret = rp_pool_create(e->path, d->create, d->err);
		if (ret)
			return report_error(d, pool_exit(ret));
		e->made = true;
	}
	ret = rp_pool_open(e->path, &e->pool, d->err);
	if (ret)
		return report_error(d, pool_exit(ret));
	e->open = true;
	rounded = rp_pool_round(d->create);
	if (d->create && e->pool.size != rounded) {
		rp_err(d->err, 0,
		       "pool '%s' exists with %s, not %s; leave --create out "
		       "to use it as it is",
		       e->path, rp_size_format(e->pool.size, have),
		       rp_size_format(rounded, want));
		return report_error(d, RP_EXIT_FILE);
	}
	if (made)
		printf("created pool '%s' with %s\n", e->path,
		       rp_size_format(e->pool.size, have));
	else if (!e->pool.was_clean)
		printf("pool '%s' was not closed by its last daemon; all "
		       "acknowledged bytes are there\n",
		       e->path);
	return 0;
}

static int open_fabric(struct daemon *d)
{
	struct rp_fabric_attr attr = {
		.base = d->base,
		.target = true,
		.no_ep = true,
		.source = d->addr,
		.wait_fd = true,
	};
	int ret = rp_fabric_open(&attr, &d->f, d->err);

	if (ret)
		return report_error(d, RP_EXIT_NETWORK);
	ret = fi_control(&d->f.cq->fid, FI_GETWAIT, &d->cq_fd);
	if (ret) {
		rp_err(d->err, ret,
		       "file descriptor of the completion queue: %s",
		       fi_strerror(-ret));
		return report_error(d, RP_EXIT_NETWORK);
	}
	return 0;
}

/* Explain why the provider refused to register the pool. */
static void explain_refusal(struct daemon *d, const struct export *e, int ret)
{
	struct rp_facts facts;
	struct rp_choice choice;
	char why[RP_WHY_LEN], obstacle[RP_WHY_LEN];

	if (rp_facts_find(d->base, NULL, e->pool.data, e->pool.size, &facts,
			  why, NULL, NULL)) {
		rp_err(d->err, 0, "pool '%s' cannot be registered: %s", e->path,
		       why);
		return;
	}
	choice = rp_facts_pick(&facts, obstacle);
	if (choice.method == RP_METHOD_REFUSED)
		rp_err(d->err, 0,
		       "pool '%s' cannot be made durable: %s%s%s; %s", e->path,
		       why, *obstacle ? "; " : "", obstacle, choice.remedy);
	else
		rp_err(d->err, 0, "pool '%s' cannot be registered: %s", e->path,
		       fi_strerror(-ret));
}

/* Describe commits of this pool, for people: programs QUERY the agent. */
static int describe(struct daemon *d, const struct export *e,
		    struct rp_setup_export *offer)
{
	struct rp_facts facts;
	char why[RP_WHY_LEN];
	struct rp_key key;

	if (rp_key_parse(fi_mr_key(e->mr), &key)) {
		rp_err(d->err, 0,
		       "the key of pool '%s' has another format; check that "
		       "FI_PROVIDER_PATH has the provider of this release",
		       e->path);
		return report_error(d, RP_EXIT_FAILED);
	}
	offer->class = (uint8_t)key.class;
	offer->method = (uint8_t)key.method;
	/*
	 * Look up the properties again: those of the provider are in its log
	 * only.
	 */
	if (rp_facts_find(d->base, d->f.info->domain_attr->name, e->pool.data,
			  e->pool.size, &facts, why, NULL, NULL))
		why[0] = 0;
	snprintf(offer->why, sizeof(offer->why), "%s", why);
	return 0;
}

/* End the key of a pool. False while requests to the pool are executed. */
static bool end_key(struct export *e)
{
	if (e->mr && fi_close(&e->mr->fid))
		return false;
	e->mr = NULL;
	return true;
}

static int register_pool(struct daemon *d, struct export *e, char *err)
{
	return rp_fabric_reg(&d->f, e->pool.data, e->pool.size,
			     FI_REMOTE_READ | FI_REMOTE_WRITE, FI_RMA_PMEM,
			     &e->mr, err);
}

/*
 * Register a pool; the domain then listens for private connections. Clients
 * find the domain by the address of this host and the port in the key.
 */
static int export_pool(struct daemon *d, struct export *e,
		       struct rp_setup_export *offer)
{
	const struct fi_info *info = d->f.info;
	int ret;

	ret = register_pool(d, e, d->err);
	if (ret) {
		explain_refusal(d, e, ret);
		return report_error(d, RP_EXIT_CLASS);
	}
	if (info->src_addrlen > sizeof(offer->fi_name)) {
		rp_err(d->err, 0, "the address of the domain is too long");
		return report_error(d, RP_EXIT_NETWORK);
	}
	memcpy(offer->fi_name, info->src_addr, info->src_addrlen);
	offer->fi_name_len = (uint16_t)info->src_addrlen;
	offer->key = fi_mr_key(e->mr);
	/* fi_av_insert() refuses port 0. */
	((struct sockaddr_in *)offer->fi_name)->sin_port =
		htons(rp_key_port(offer->key));
	offer->addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			      ? (uintptr_t)e->pool.data
			      : 0;
	offer->len = e->pool.size;
	offer->length = e->pool.length;
	offer->owner = e->pool.owner;
	offer->incarnation = d->incarnation;
	offer->generation = e->pool.generation;
	memcpy(offer->uuid, e->pool.uuid, sizeof(offer->uuid));
	offer->control = RP_WIRE_VERSION;
	offer->was_clean = e->pool.was_clean;
	snprintf(offer->name, sizeof(offer->name), "%s", e->name);
	snprintf(offer->base, sizeof(offer->base), "%s",
		 d->base ? d->base : "tcp");
	return describe(d, e, offer);
}

static int export_all(struct daemon *d)
{
	int ret;

	if (getrandom(&d->incarnation, sizeof(d->incarnation), 0) !=
	    sizeof(d->incarnation)) {
		rp_err(d->err, 0, "no random bytes");
		return report_error(d, RP_EXIT_FAILED);
	}
	for (unsigned int i = 0; i < d->n; i++) {
		ret = export_pool(d, &d->exports[i], &d->offers[i]);
		if (ret)
			return ret;
		d->exports[i].awaited = d->exports[i].pool.is_open;
	}
	return 0;
}

/* One line on stderr; journald has a time of its own. */
static void log_event(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
static void log_event(const char *fmt, ...)
{
	char at[32] = "", text[2 * RP_ERR_LEN];
	time_t now = time(NULL);
	struct tm tm;
	va_list ap;

	if (!getenv("JOURNAL_STREAM") && localtime_r(&now, &tm))
		strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S%z ", &tm);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%sfi_rpmemd: %s\n", at, text);
}

static void report_client(const char *peer, const char *pool)
{
	if (pool)
		log_event("a client at %s opens pool '%s'", peer, pool);
	else
		log_event("a client at %s has a wrong secret", peer);
}

static int set_length(void *arg, unsigned int i, uint64_t length, char *err)
{
	struct daemon *d = arg;
	int ret = rp_pool_set_length(&d->exports[i].pool, length, err);

	if (ret)
		log_event("%s", err);
	else
		d->offers[i].length = length;
	return ret;
}

/*
 * A new owner: nothing of the former one arrives behind the end of its key.
 * What the new owner reads is durable, because its own commits do not cover it.
 * Then the pool gets a new key, and the owner is remembered, also over a
 * restart.
 */
static int set_owner(void *arg, unsigned int i, uint64_t owner, char *err)
{
	struct daemon *d = arg;
	struct export *e = &d->exports[i];
	int settled, ret;

	if (!end_key(e))
		return rp_err(err, -EBUSY,
			      "requests of the last client of pool '%.100s' "
			      "are still under way; try again",
			      e->name);
	settled = rp_pool_settle(&e->pool, err);
	ret = register_pool(d, e, settled ? NULL : err);
	if (!ret) {
		d->offers[i].key = fi_mr_key(e->mr);
		ret = settled;
	}
	if (!ret)
		ret = rp_pool_set_owner(&e->pool, owner, err);
	/* Nobody is awaited who shares the pool. */
	if (!ret && owner & RP_SETUP_SHARED)
		ret = rp_pool_release(&e->pool, err);
	if (ret)
		log_event("%s", err);
	else
		d->offers[i].owner = owner;
	return ret;
}

/*
 * An owner whose daemon was restarted has bytes that it will write again. For
 * some seconds the pool is kept for it.
 */
static int may_open(void *arg, unsigned int i, char *err)
{
	struct daemon *d = arg;
	struct export *e = &d->exports[i];

	if (!e->awaited || rp_now_ms() > d->await_until)
		return 0;
	return rp_err(err, -EAGAIN,
		      "the last client of pool '%.100s' may come back after "
		      "the restart of fi_rpmemd; try again in %d seconds",
		      e->name, AWAIT_MS / 1000);
}

static void release_export(void *arg, unsigned int i)
{
	struct daemon *d = arg;
	char err[RP_ERR_LEN];

	d->exports[i].awaited = false;
	if (rp_pool_release(&d->exports[i].pool, err))
		log_event("%s", err);
}

static void withdraw_export(struct export *e, int why)
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
	log_event("%s", e->withdrawn);
}

/* SIGHUP: see which files were made longer. */
static void find_longer(struct daemon *d)
{
	bool found = false;

	for (unsigned int i = 0; i < d->n; i++) {
		struct export *e = &d->exports[i];
		int ret = e->withdrawn[0] ? 0
					  : rp_pool_allocate(&e->pool, d->err);

		if (ret < 0)
			log_event("%s", d->err);
		e->longer |= ret > 0;
		found |= ret;
	}
	if (!found)
		log_event("SIGHUP is ignored: reloading is not supported yet, "
			  "and no pool file was made longer; stop fi_rpmemd "
			  "with SIGTERM and start it again to change its pools "
			  "or options");
}

/*
 * Serve the new length of a pool, with a new key: its clients connect again, as
 * after a restart. The next check tries again while requests are executed.
 */
static void extend_export(struct daemon *d, unsigned int i)
{
	struct export *e = &d->exports[i];
	char size[RP_SIZE_LEN];
	int ret;

	if (!end_key(e))
		return;
	e->longer = false;
	ret = rp_pool_extend(&e->pool, d->err);
	if (ret)
		log_event("%s", d->err);
	if (export_pool(d, e, &d->offers[i]))
		rp_err(e->withdrawn, 0,
		       "pool '%.100s' is withdrawn: it cannot be registered "
		       "with its new length; start fi_rpmemd again",
		       e->name);
	else if (!ret)
		log_event("pool '%s' has %s now", e->name,
			  rp_size_format(e->pool.size, size));
}

/*
 * Withdraw a pool whose file was removed: its bytes vanish with this process,
 * so writes to it are no longer durable. Closing the region makes the agent
 * refuse its keys.
 */
static const char *check_export(void *arg, unsigned int i)
{
	struct daemon *d = arg;
	struct export *e = &d->exports[i];
	int ret = e->withdrawn[0] ? 0 : rp_pool_check_file(&e->pool);

	if (ret)
		withdraw_export(e, ret);
	if (!e->withdrawn[0])
		return NULL;
	end_key(e); /* while that fails, the next check tries again */
	return e->withdrawn;
}

/* The pools, for the handler. */
static const struct daemon *exporting;

/* A store to a page behind the end of a pool file that was cut short. */
static void lost_page(int sig, siginfo_t *info, void *context)
{
	static const char text[] =
		"' was cut short while it was exported, and its end is lost; "
		"what was acknowledged before is on the disk. Restore the file "
		"from a copy, then start fi_rpmemd again\n";
	const char *at = info->si_addr;

	for (unsigned int i = 0; i < exporting->n; i++) {
		const struct export *e = &exporting->exports[i];
		const char *map = e->pool.map;
		struct iovec line[] = {
			{(void *)"fi_rpmemd: the file of pool '", 29},
			{(void *)e->name, strlen(e->name)},
			{(void *)text, sizeof(text) - 1},
		};

		if (!map || at < map || at >= map + e->pool.map_len)
			continue;
		if (writev(STDERR_FILENO, line, 3) < 0)
			break;
		_exit(RP_EXIT_FILE);
	}
	signal(sig, SIG_DFL); /* not of a pool: the store is repeated, and ends
			       * the process */
}

static void watch_pages(const struct daemon *d)
{
	const struct sigaction act = {
		.sa_sigaction = lost_page,
		.sa_flags = SA_SIGINFO,
	};

	exporting = d;
	sigaction(SIGBUS, &act, NULL);
}

static int write_port_file(struct daemon *d, uint16_t port)
{
	struct rp_tmpfile t;
	int ret = rp_tmpfile_open(d->port_file, &t, d->err);

	if (ret)
		return report_error(d, RP_EXIT_FILE);
	if (dprintf(t.fd, "%u\n", port) < 0) {
		rp_err(d->err, 0, "'%s': %s", d->port_file, strerror(errno));
		rp_tmpfile_discard(&t);
		return report_error(d, RP_EXIT_FILE);
	}
	if (rp_tmpfile_publish(&t, true, d->err))
		return report_error(d, RP_EXIT_FILE);
	return 0;
}

static int open_server(struct daemon *d)
{
	struct rp_setup_server_attr attr = {
		.addr = d->addr,
		.port = d->port,
		.secret = d->secret_file ? &d->secret : NULL,
		.exports = d->offers,
		.nexports = d->n,
		.withdrawn = check_export,
		.set_length = set_length,
		.set_owner = set_owner,
		.may_open = may_open,
		.release = release_export,
		.arg = d,
		.report = report_client,
	};

	if (rp_setup_server_new(&attr, &d->server, d->err))
		return report_error(d, RP_EXIT_NETWORK);
	return 0;
}

static void print_exports(const struct daemon *d)
{
	char size[RP_SIZE_LEN];
	int wide = 4;

	for (unsigned int i = 0; i < d->n; i++)
		if ((int)strlen(d->offers[i].name) > wide)
			wide = (int)strlen(d->offers[i].name);
	printf("%-*s  %10s  %-7s  %-16s  %s\n", wide, "POOL", "SIZE", "CLASS",
	       "METHOD", "WHY");
	for (unsigned int i = 0; i < d->n; i++) {
		const struct rp_setup_export *o = &d->offers[i];

		printf("%-*s  %10s  %-7s  %-16s  %s\n", wide, o->name,
		       rp_size_format(o->len, size), rp_class_name(o->class),
		       rp_method_name(o->method), o->why);
	}
	printf("process %ld listens on %s port %u%s\n", (long)getpid(), d->addr,
	       rp_setup_server_port(d->server),
	       d->secret_file ? ", with a secret" : "");
}

/* Make progress: the provider works inside fi_cq_read(). */
static int make_progress(struct daemon *d)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done[16];
	ssize_t n = fi_cq_read(d->f.cq, done, 16);

	/*
	 * A client that disconnects during an operation does not concern the
	 * daemon.
	 */
	if (n == -FI_EAVAIL) {
		rp_fabric_cq_error(&d->f, &bad, NULL);
		return 0;
	}
	if (n < 0 && n != -FI_EAGAIN) {
		rp_err(d->err, 0, "completion queue: %s", fi_strerror((int)-n));
		return report_error(d, RP_EXIT_FAILED);
	}
	return 0;
}

/* Read pending signals. Returns whether the daemon must stop. */
static bool read_signals(struct daemon *d)
{
	struct signalfd_siginfo info;

	while (read(d->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGHUP)
			return true;
		find_longer(d);
	}
	return false;
}

static int serve(struct daemon *d)
{
	struct pollfd fds[] = {
		{.fd = d->cq_fd, .events = POLLIN},
		{.fd = rp_setup_server_fd(d->server), .events = POLLIN},
		{.fd = d->signal_fd, .events = POLLIN},
	};
	struct fid *cq = &d->f.cq->fid;
	uint64_t now, check_at = 0;
	int ret;

	for (;;) {
		now = rp_now_ms();
		if (now >= check_at) {
			for (unsigned int i = 0; i < d->n; i++)
				if (!check_export(d, i) && d->exports[i].longer)
					extend_export(d, i);
			check_at = now + NAMES_MS;
		}
		ret = make_progress(d);
		if (ret)
			return ret;
		rp_setup_server_run(d->server);
		/* Sleep only if fi_trywait() finds nothing left to do. */
		ret = 0;
		if (fi_trywait(d->f.fabric, &cq, 1) == 0) {
			ret = rp_setup_server_timeout(d->server);
			if (ret < 0 || ret > (int)(check_at - now))
				ret = (int)(check_at - now);
		}
		if (poll(fds, 3, ret) < 0 && errno != EINTR) {
			rp_err(d->err, 0, "poll: %s", strerror(errno));
			return report_error(d, RP_EXIT_FAILED);
		}
		if (fds[2].revents && read_signals(d))
			return 0;
	}
}

/* Complete accepted commits, refuse new requests and clients. */
static int drain(struct daemon *d)
{
	struct timespec pause = {.tv_nsec = 1000000};
	struct fi_rpmem_domain_ops *ops;
	int ret, code = 0;

	log_event("stopping: accepted commits are completed, new ones refused");
	/* The listener is closed, so the kernel refuses new clients. */
	rp_setup_server_delete(d->server);
	d->server = NULL;
	ret = fi_rpmem_domain_ops_get(d->f.domain, &ops);
	if (!ret)
		ret = fi_rpmem_drain(ops, d->f.domain, DRAIN_MS);
	if (ret) {
		rp_err(d->err, 0,
		       "commits of clients were not completed: %s; the clients "
		       "must commit again",
		       fi_strerror(-ret));
		code = report_error(d, RP_EXIT_FAILED);
	}
	for (int i = 0; i < LINGER_MS && !make_progress(d); i++)
		nanosleep(&pause, NULL);
	return code;
}

/*
 * Close the fabric before the pools: no write may arrive after a pool is marked
 * clean. After a failed start each pool keeps its former mark.
 */
static int close_all(struct daemon *d, bool failed)
{
	int code = 0;

	rp_setup_server_delete(d->server);
	for (unsigned int i = 0; i < d->n; i++)
		if (d->exports[i].mr)
			fi_close(&d->exports[i].mr->fid);
	rp_fabric_close(&d->f);
	for (unsigned int i = 0; i < d->n; i++) {
		struct export *e = &d->exports[i];

		/* A start that fails leaves no new pool. */
		if (e->made && !d->served)
			unlink(e->path);
		if (!e->open)
			continue;
		if (e->withdrawn[0]) {
			rp_pool_abandon(&e->pool);
			code = RP_EXIT_FILE;
		} else if (d->served ? failed : !e->pool.was_clean)
			rp_pool_abandon(&e->pool);
		else if (rp_pool_close_clean(&e->pool, d->err))
			code = report_error(d, RP_EXIT_FILE);
	}
	if (d->port_file && d->served)
		unlink(d->port_file);
	rp_secret_wipe(&d->secret);
	return code;
}

/* Block the signals and read them from a signalfd in the loop. */
static int block_signals(struct daemon *d)
{
	sigset_t set;

	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signal_fd < 0) {
		rp_err(d->err, 0, "signalfd: %s", strerror(errno));
		return report_error(d, RP_EXIT_FAILED);
	}
	return 0;
}

/*
 * Unblock SIGTERM and SIGINT only: a second one ends the process at once, and
 * SIGHUP never does.
 */
static void restore_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Raise the limit: each client uses several descriptors. */
static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static int run(struct daemon *d)
{
	struct signalfd_siginfo info;
	int code;

	code = check_access(d);
	if (!code)
		code = block_signals(d);
	/* The fabric comes first: a base that fails leaves no new pool. */
	if (!code)
		code = open_fabric(d);
	for (unsigned int i = 0; i < d->n && !code; i++)
		code = open_pool(d, &d->exports[i]);
	if (!code)
		code = export_all(d);
	if (!code)
		code = open_server(d);
	if (code)
		return code;
	/* After libfabric, whose providers may have a handler of their own. */
	watch_pages(d);
	d->served = true;
	d->await_until = rp_now_ms() + AWAIT_MS;
	print_exports(d);
	if (d->port_file)
		code = write_port_file(d, rp_setup_server_port(d->server));
	if (!code)
		code = serve(d);
	if (code)
		return code;
	while (read(d->signal_fd, &info, sizeof(info)) > 0)
		;
	restore_signals();
	return drain(d);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, "POOLFILE...", doc, NULL, NULL, NULL,
	};
	static struct daemon d = {
		.port = RP_SETUP_PORT,
		.addr = "127.0.0.1",
		.signal_fd = -1,
	};
	int code, closed;

	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	setvbuf(stdout, NULL, _IOLBF, 0);
	raise_descriptors();
	code = run(&d);
	closed = close_all(&d, code);
	return code ? code : closed;
}
