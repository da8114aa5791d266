// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmemd: exports pool files and makes writes to them durable. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "util/clock.h"
#include "util/conf.h"
#include "util/exit_codes.h"
#include "util/export.h"
#include "util/file.h"
#include "util/metrics.h"
#include "util/one_shot.h"
#include "util/service.h"

/* After SIGTERM, accepted commits have this long to complete. */
#define DRAIN_MS 10000
/* Time to send the last replies, after the last commit has completed. */
#define LINGER_MS 100
/* Interval of rp_exports_check(), for files, keys in use and closing pools. */
#define CHECK_MS 1000

struct daemon {
	/* options of the command line */
	uint64_t create; /* size of new pools, or 0 */
	const char *config_file;
	const char *secret_file;
	const char *port_file;
	const char *metrics_at;
	bool check; /* --check: only check the configuration */
	bool accept_loss;
	struct rp_one_shot one_shot;

	struct rp_conf conf;
	struct rp_conf *reloaded; /* configuration read by SIGHUP; NULL: conf */
	struct rp_setup_secrets secrets;
	/* slots[i]: the slot in `secrets` of the configuration's secret i */
	unsigned int slots[RP_SETUP_SECRETS];
	struct rp_exports exports;
	int signal_fd, listener;
	struct rp_setup_server *server;
	struct rp_metrics *metrics;
	char err[RP_ERR_LEN];
};

__attribute__((visibility("default"))) /* argp reads the variable */
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
	OPT_CONFIG,
	OPT_METRICS,
	OPT_CHECK,
	OPT_ACCEPT_LOSS,
	OPT_ONE_SHOT,
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
	{"config", OPT_CONFIG, "FILE", 0,
	 "Read pools, secrets and rights from FILE; SIGHUP reads it again", 0},
	{"check", OPT_CHECK, NULL, 0,
	 "Check the file of --config, print what it says, and end", 0},
	{"metrics", OPT_METRICS, "ADDR:PORT|unix:PATH", 0,
	 "Serve the counters to Prometheus, at a loopback address or a socket",
	 0},
	{"accept-loss", OPT_ACCEPT_LOSS, NULL, 0,
	 "Accept what the pools lost in a dirty shutdown, and end", 0},
	{"one-shot", OPT_ONE_SHOT, "FOLDER", OPTION_ARG_OPTIONAL,
	 "Serve the pool below FOLDER ($HOME) that librpmem(7) names over ssh",
	 0},
	{"base", OPT_BASE, "NAME", 0, "Base provider of libfabric (tcp)", 0},
	{0},
};

static void set_text(struct argp_state *state, char **to, const char *value)
{
	free(*to);
	*to = strdup(value);
	if (!*to)
		argp_failure(state, RP_EXIT_FAILED, 0, "out of memory");
}

/* Check that the options name pools in only one of the possible ways. */
static void parse_end(struct argp_state *state, struct daemon *d)
{
	const bool given = d->conf.npools || d->conf.listen || d->conf.base ||
			   d->conf.has_port || d->create || d->secret_file ||
			   d->accept_loss;

	if (d->config_file && given)
		argp_error(state, "--config FILE names pools, address, port, "
				  "base and secrets; leave all other options "
				  "but --port-file and --metrics out");
	if (d->check && !d->config_file)
		argp_error(state, "--check needs --config FILE");
	if (d->one_shot.on && (d->config_file || d->conf.npools || d->create ||
			       d->secret_file || d->accept_loss))
		argp_error(state, "--one-shot gets its pool over ssh and makes "
				  "its secret; give --listen, --port, --base, "
				  "--port-file and --metrics only");
	if (!d->config_file && !d->conf.npools && !d->one_shot.on)
		argp_error(state, "name at least one pool file");
	for (unsigned int i = 0; i < d->conf.npools; i++) {
		d->conf.pools[i].create = d->create;
		d->conf.pools[i].exact = true;
	}
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
		d->conf.port = (uint16_t)v;
		d->conf.has_port = true;
		return 0;
	case 'l':
		set_text(state, &d->conf.listen, arg);
		return 0;
	case 's':
		d->secret_file = arg;
		return 0;
	case OPT_PORT_FILE:
		d->port_file = arg;
		return 0;
	case OPT_BASE:
		set_text(state, &d->conf.base, arg);
		return 0;
	case OPT_METRICS:
		d->metrics_at = arg;
		return 0;
	case OPT_CHECK:
		d->check = true;
		return 0;
	case OPT_ACCEPT_LOSS:
		d->accept_loss = true;
		return 0;
	case OPT_ONE_SHOT:
		d->one_shot.on = true;
		d->one_shot.folder = arg;
		return 0;
	case OPT_CONFIG:
		d->config_file = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (rp_conf_add_pool(&d->conf, arg, d->err))
			argp_error(state, "%s", d->err);
		return 0;
	case ARGP_KEY_END:
		parse_end(state, d);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int report_error(const struct daemon *d, int code)
{
	fprintf(stderr, "%sfi_rpmemd: %s\n",
		rp_service_prefix(RP_SERVICE_ERROR), d->err);
	return code;
}

static const char *listen_address(const struct rp_conf *c)
{
	return c->listen ? c->listen : "127.0.0.1";
}

static uint16_t listen_port(const struct rp_conf *c)
{
	return c->has_port ? c->port : RP_SETUP_PORT;
}

/* Read the configuration, or the secret of the command line. */
static int load(struct daemon *d, struct rp_conf *c)
{
	if (d->config_file && rp_conf_load(d->config_file, c, d->err))
		return RP_EXIT_USAGE;
	if (d->secret_file &&
	    rp_conf_add_secret(c, "secret", d->secret_file, d->err))
		return RP_EXIT_SECRET;
	if (c->listen && rp_fabric_is_any(c->listen)) {
		rp_err(d->err, 0,
		       "--listen %s: clients write to this address; give the "
		       "address by which they reach this host",
		       c->listen);
		return RP_EXIT_USAGE;
	}
	if (c->metrics && rp_metrics_check(c->metrics, d->err))
		return RP_EXIT_NETWORK;
	if (c->nsecrets || rp_fabric_is_loopback(listen_address(c)))
		return 0;
	rp_err(d->err, 0,
	       "--listen %s lets other hosts in, so --secret FILE is needed "
	       "(in a configuration, [secret NAME]); make one: (umask 077; "
	       "head "
	       "-c 32 /dev/urandom | base64 > FILE)",
	       c->listen);
	return RP_EXIT_SECRET;
}

/* Print the configuration; port and pools, perhaps in use, stay untouched. */
static void print_conf(const struct daemon *d)
{
	const struct rp_conf *c = &d->conf;

	printf("listen %s, port %u, base %s, metrics %s\n", listen_address(c),
	       listen_port(c), c->base ? c->base : "tcp",
	       c->metrics ? c->metrics : "none");
	rp_conf_print(c);
}

/* Check secrets, address and port before any pool is opened or created. */
static int check_access(struct daemon *d)
{
	int code = load(d, &d->conf);

	if (code)
		return report_error(d, code);
	if (d->check)
		return 0;
	d->listener = rp_setup_listen(listen_address(&d->conf),
				      listen_port(&d->conf), d->err);
	if (d->listener < 0)
		return report_error(d, RP_EXIT_NETWORK);
	return 0;
}

static void report_client(const char *peer, const char *pool)
{
	if (pool)
		rp_service_log(RP_SERVICE_NOTICE,
			       "a client at %s opens pool '%s'", peer, pool);
	else
		rp_service_log(RP_SERVICE_WARNING,
			       "a client at %s has a wrong secret", peer);
}

/* Set the rights of each secret to each pool. */
static void apply_rights(struct daemon *d, const struct rp_conf *c)
{
	for (unsigned int i = 0; i < c->npools; i++) {
		const struct rp_conf_pool *pool = &c->pools[i];
		uint8_t rights[RP_SETUP_SECRETS + 1] = {0};
		int e = rp_exports_find(&d->exports, pool->name, pool->path);

		if (!c->nsecrets)
			rights[0] =
				RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN;
		for (unsigned int s = 0; s < c->nsecrets; s++)
			rights[d->slots[s]] = pool->rights[s];
		if (e >= 0)
			rp_exports_set_rights(&d->exports, (unsigned int)e,
					      rights, pool->clients);
	}
	if (d->server)
		rp_setup_server_check_rights(d->server);
}

/*
 * Find the slots of the secrets that stay, and wipe the other ones. New secrets
 * have no slot yet: RP_SETUP_SECRETS.
 */
static void keep_secrets(struct daemon *d, const struct rp_conf *c)
{
	unsigned int *slots = d->slots;
	bool kept[RP_SETUP_SECRETS] = {0};

	d->secrets.needed = c->nsecrets;
	for (unsigned int s = 0; s < c->nsecrets; s++) {
		const struct rp_secret *want = &c->secrets[s].secret;

		for (slots[s] = 0; slots[s] < RP_SETUP_SECRETS; slots[s]++) {
			const struct rp_secret *have = &d->secrets.v[slots[s]];

			if (have->len == want->len &&
			    !memcmp(have->bytes, want->bytes, want->len))
				break;
		}
		if (slots[s] < RP_SETUP_SECRETS)
			kept[slots[s]] = true;
	}
	for (unsigned int i = 0; i < RP_SETUP_SECRETS; i++)
		if (!kept[i])
			rp_secret_wipe(&d->secrets.v[i]);
}

/* Put new secrets into slots that no key of a removed secret uses. */
static void add_secrets(struct daemon *d, const struct rp_conf *c)
{
	unsigned int *slots = d->slots, i = 0;

	for (unsigned int s = 0; s < c->nsecrets; s++) {
		if (slots[s] < RP_SETUP_SECRETS)
			continue;
		while (i < RP_SETUP_SECRETS &&
		       (d->secrets.v[i].len ||
			rp_exports_use_secret(&d->exports, i)))
			i++;
		slots[s] = i;
		if (i < RP_SETUP_SECRETS)
			d->secrets.v[i] = c->secrets[s].secret;
		else
			rp_service_log(
				RP_SERVICE_WARNING,
				"secret '%s' is not accepted yet: keys of "
				"removed secrets are still in use; send "
				"SIGHUP again",
				c->secrets[s].path);
	}
}

static bool has_pool(const struct rp_conf *c, const struct rp_export *e)
{
	for (unsigned int i = 0; i < c->npools; i++)
		if (!strcmp(c->pools[i].name, e->name) &&
		    !strcmp(c->pools[i].path, e->path))
			return true;
	return false;
}

/* Export the pools that are not exported yet; waiting: only those that wait. */
static int add_pools(struct daemon *d, struct rp_conf *c, bool waiting)
{
	int ret, code = 0;

	for (unsigned int i = 0; i < c->npools; i++) {
		struct rp_conf_pool *pool = &c->pools[i];

		if ((waiting && !pool->waits) ||
		    rp_exports_find(&d->exports, pool->name, pool->path) >= 0)
			continue;
		pool->waits = rp_exports_must_wait(&d->exports, pool);
		if (pool->waits) {
			if (!waiting)
				rp_service_log(RP_SERVICE_NOTICE,
					       "pool '%s' is exported as soon "
					       "as a pool that leaves is "
					       "closed",
					       pool->name);
			continue;
		}
		ret = rp_exports_add(&d->exports, pool, d->err);
		if (ret && d->exports.served)
			rp_service_log(RP_SERVICE_ERROR, "%s", d->err);
		else if (ret)
			report_error(d, ret);
		if (!code)
			code = ret;
	}
	return code;
}

/*
 * Make pools, secrets and rights those of a configuration. The first
 * apply_rights() takes rights away, before pools and secrets are added; the
 * second one adds rights. Returns the exit code of the first pool that cannot
 * be exported, after reporting the reason.
 */
static int apply(struct daemon *d, struct rp_conf *c)
{
	int code;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++) {
		const struct rp_export *e = &d->exports.v[i];

		if (e->path && !e->leaving &&
		    (!has_pool(c, e) ||
		     (!e->withdrawn[0] &&
		      !rp_exports_is_at_path(&d->exports, i))))
			rp_exports_remove(&d->exports, i);
	}
	keep_secrets(d, c);
	apply_rights(d, c);
	rp_exports_check(&d->exports);
	code = add_pools(d, c, false);
	add_secrets(d, c);
	apply_rights(d, c);
	return code;
}

/* Check pools; add the pools that waited until another pool was closed. */
static void check_exports(struct daemon *d)
{
	const bool closed = rp_exports_check(&d->exports);

	rp_setup_server_resume(d->server);
	if (!closed || !d->reloaded)
		return;
	add_pools(d, d->reloaded, true);
	apply_rights(d, d->reloaded);
}

/* Read the configuration again. -1: it is invalid, and nothing has changed. */
static int load_again(struct daemon *d, struct rp_conf *c)
{
	for (unsigned int i = 0; !d->config_file && i < d->conf.npools; i++) {
		if (rp_conf_add_pool(c, d->conf.pools[i].path, d->err))
			return -1;
		c->pools[i].create = d->create;
		c->pools[i].exact = true;
	}
	if (!d->config_file && d->conf.listen) {
		c->listen = strdup(d->conf.listen);
		if (!c->listen)
			return rp_err(d->err, -1, "out of memory");
	}
	if (load(d, c))
		return -1;
	if (d->config_file &&
	    (strcmp(listen_address(c), listen_address(&d->conf)) ||
	     listen_port(c) != listen_port(&d->conf) ||
	     strcmp(c->base ? c->base : "tcp", d->exports.base) ||
	     strcmp(c->metrics ? c->metrics : "",
		    d->conf.metrics ? d->conf.metrics : "")))
		return rp_err(d->err, -1,
			      "'%s' changes listen, port, base or metrics; "
			      "restart fi_rpmemd for that",
			      d->config_file);
	return 0;
}

/* Set the line that systemctl status shows. */
static void tell_status(const struct daemon *d, const struct rp_conf *c)
{
	rp_service_status("%u pools on %s port %u",
			  rp_exports_count(&d->exports), listen_address(c),
			  rp_setup_server_port(d->server));
}

static void free_conf(struct rp_conf *c)
{
	if (c)
		rp_conf_free(c);
	free(c);
}

/* SIGHUP: change pools, secrets and rights, and serve files that have grown. */
static void reload(struct daemon *d)
{
	struct rp_conf *c = calloc(1, sizeof(*c));
	unsigned int longer;
	int code;

	if (!c || load_again(d, c)) {
		rp_service_log(RP_SERVICE_ERROR, "SIGHUP changes nothing: %s",
			       c ? d->err : "out of memory");
		goto out;
	}
	/* Before apply(), which closes removed pools with their new length. */
	longer = rp_exports_find_longer(&d->exports);
	code = apply(d, c);
	tell_status(d, c);
	rp_service_log(
		code ? RP_SERVICE_ERROR : RP_SERVICE_NOTICE,
		"SIGHUP: pools %u, secrets %u, pool files made longer %u%s",
		c->npools, c->nsecrets, longer,
		code ? "; pools named above are not exported" : "");
	free_conf(d->reloaded);
	d->reloaded = c;
	return;
out:
	free_conf(c);
}

static int open_server(struct daemon *d)
{
	struct rp_setup_server_attr attr = {
		.listener = d->listener,
		.secrets = &d->secrets,
		.report = report_client,
	};

	rp_exports_serve(&d->exports, &attr);
	if (rp_setup_server_new(&attr, &d->server, d->err))
		return report_error(d, RP_EXIT_NETWORK);
	return 0;
}

static void print_exports(const struct daemon *d)
{
	const unsigned int n = rp_exports_count(&d->exports);

	rp_exports_print(&d->exports);
	printf("process %ld listens on %s port %u%s\n", (long)getpid(),
	       listen_address(&d->conf), rp_setup_server_port(d->server),
	       d->secrets.needed ? ", with a secret" : "");
	if (n < d->conf.npools)
		rp_service_log(RP_SERVICE_ERROR,
			       "pools named above are not exported; correct "
			       "what their lines say, send SIGHUP");
}

/* Make progress: the provider works inside fi_cq_read(). */
static int make_progress(struct daemon *d)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done[16];
	ssize_t n = fi_cq_read(d->exports.f.cq, done, 16);

	/*
	 * An operation that fails because its client disconnected is no error
	 * of the daemon.
	 */
	if (n == -FI_EAVAIL) {
		rp_fabric_cq_error(&d->exports.f, &bad, NULL);
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
		d->one_shot.stopped = d->one_shot.on;
		if (info.ssi_signo != SIGHUP || d->one_shot.on)
			return true;
		rp_service_reloading();
		reload(d);
		rp_service_ready();
	}
	return false;
}

static int serve(struct daemon *d)
{
	struct pollfd fds[] = {
		{.fd = d->exports.cq_fd, .events = POLLIN},
		{.fd = rp_setup_server_fd(d->server), .events = POLLIN},
		{.fd = d->signal_fd, .events = POLLIN},
		{.fd = rp_metrics_fd(d->metrics), .events = POLLIN},
		{.fd = d->exports.ended_fd, .events = POLLIN},
		{.fd = d->one_shot.on ? STDIN_FILENO : -1, .events = POLLIN},
	};
	const struct rp_pool *pool = &d->exports.v[0].pool;
	eventfd_t ended;
	struct fid *cq = &d->exports.f.cq->fid;
	uint64_t now, check_at = 0;
	int ret, watchdog;

	for (;;) {
		watchdog = rp_service_watchdog();
		now = rp_now_ms();
		if (now >= check_at) {
			check_exports(d);
			check_at = now + CHECK_MS;
		}
		ret = make_progress(d);
		if (ret)
			return ret;
		rp_setup_server_run(d->server);
		rp_metrics_run(d->metrics);
		/* Sleep only if fi_trywait() finds nothing left to do. */
		ret = 0;
		if (fi_trywait(d->exports.f.fabric, &cq, 1) == 0) {
			ret = rp_setup_server_timeout(d->server);
			if (ret < 0 || ret > (int)(check_at - now))
				ret = (int)(check_at - now);
			if (watchdog >= 0 && ret > watchdog)
				ret = watchdog;
		}
		if (poll(fds, 6, ret) < 0 && errno != EINTR) {
			rp_err(d->err, 0, "poll: %s", strerror(errno));
			return report_error(d, RP_EXIT_FAILED);
		}
		if (fds[4].revents && !eventfd_read(fds[4].fd, &ended))
			check_at = 0;
		if ((fds[2].revents && read_signals(d)) ||
		    rp_one_shot_ended(&d->one_shot, fds[5].revents,
				      pool->is_open, pool->owner[0]))
			return 0;
	}
}

/* Stop: complete accepted commits; refuse new requests and new clients. */
static int drain(struct daemon *d)
{
	struct timespec pause = {.tv_nsec = 1000000};
	struct fi_rpmem_domain_ops *ops;
	int ret, code = 0;

	rp_service_stopping();
	rp_service_log(
		RP_SERVICE_NOTICE,
		"stopping: accepted commits are completed, new ones refused");
	/* Close the listener: the kernel then refuses new clients. */
	rp_setup_server_delete(d->server);
	d->server = NULL;
	ret = fi_rpmem_domain_ops_get(d->exports.f.domain, &ops);
	if (!ret)
		ret = fi_rpmem_drain(ops, d->exports.f.domain, DRAIN_MS);
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

static int close_all(struct daemon *d, bool failed)
{
	int code;

	rp_metrics_close(d->metrics);
	rp_setup_server_delete(d->server);
	code = rp_exports_close(&d->exports, failed, d->err);
	if (code && d->err[0])
		report_error(d, code);
	if (d->port_file && d->exports.served)
		unlink(d->port_file);
	rp_conf_free(&d->conf);
	free_conf(d->reloaded);
	explicit_bzero(&d->secrets, sizeof(d->secrets));
	return code;
}

/* Raise the limit of descriptors: each client needs several. */
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
	int code = 0;

	if (d->accept_loss) {
		code = rp_exports_accept_losses(&d->conf, d->err);
		return code ? report_error(d, code) : 0;
	}
	rp_service_log_fabric();
	d->signal_fd = rp_service_block_signals();
	if (d->signal_fd < 0) {
		rp_err(d->err, 0, "signalfd: %s", strerror(-d->signal_fd));
		return report_error(d, RP_EXIT_FAILED);
	}
	if (d->one_shot.on) {
		code = rp_one_shot_begin(&d->one_shot, &d->conf, d->signal_fd,
					 d->err);
		if (code)
			report_error(d, code);
		else if (d->one_shot.removes)
			return 0;
	}
	if (!code)
		code = check_access(d);
	if (!code && d->check) {
		print_conf(d);
		return 0;
	}
	/* Open the fabric first: if that fails, no pool has been created. */
	if (!code) {
		code = rp_exports_open(&d->exports, d->conf.base,
				       listen_address(&d->conf), d->err);
		if (code)
			report_error(d, code);
	}
	if (!code)
		code = apply(d, &d->conf);
	/* Serve the other pools even if one was refused. */
	if (!code || rp_exports_count(&d->exports))
		code = open_server(d);
	if (d->conf.metrics)
		d->metrics_at = d->conf.metrics;
	if (!code && d->metrics_at &&
	    rp_metrics_open(d->metrics_at, &d->metrics, d->err))
		code = report_error(d, RP_EXIT_NETWORK);
	if (code)
		return code;
	d->exports.served = true;
	if (d->one_shot.on)
		rp_one_shot_serve(&d->one_shot, &d->conf,
				  rp_setup_server_port(d->server),
				  d->exports.v[0].pool.owner[0]);
	else
		print_exports(d);
	if (d->port_file &&
	    rp_service_write_port(d->port_file, rp_setup_server_port(d->server),
				  d->err))
		code = report_error(d, RP_EXIT_FILE);
	if (!code) {
		tell_status(d, &d->conf);
		rp_service_ready();
		code = serve(d);
	}
	if (code)
		return code;
	while (read(d->signal_fd, &info, sizeof(info)) > 0)
		;
	rp_service_unblock_signals();
	if (d->one_shot.undo && d->exports.v[0].created_file)
		unlink(d->exports.v[0].path);
	return drain(d);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, "[POOLFILE...]", doc, NULL, NULL, NULL,
	};
	static struct daemon d = {.signal_fd = -1};
	int code, closed;

	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	setvbuf(stdout, NULL, _IOLBF, 0);
	raise_descriptors();
	code = run(&d);
	if (code)
		rp_one_shot_fail(&d.one_shot, code, d.err);
	d.err[0] = 0;
	closed = close_all(&d, code);
	if (!code && !closed && d.one_shot.stopped)
		return RP_EXIT_FAILED; /* ended by a signal, not the client */
	return code ? code : closed;
}
