// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_plugpull: cuts a target's power under writes, and reports losses. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "util/argp_number.h"
#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/plugpull.h"
#include "util/pool_class.h"
#include "util/setup_client.h"

#define TICK_MS	   20
#define FIRST_MS   60000 /* time for the first acknowledgement */
#define RETRY_MS   200	 /* pause between attempts to reach the daemon */
#define SAY_MS	   10000 /* pause between progress lines of await_restart() */
#define CYCLES_MAX 10000

struct pull {
	struct pull_cfg cfg;
	struct rp_setup_target target;
	struct rp_secret secret;
	const char *pool;
	const char *cut, *judge, *ledger_path;
	uint64_t cycles, seed, seconds, wait;
	bool json;

	struct pull_shared *s;
	int ledger;
	uint64_t incarnation; /* incarnation of the daemon before the cut */
	bool clean; /* the daemon was stopped in order: no power cut */
	uint64_t sum[PULL_COUNTS];
	json_t *list; /* results of all cycles */
	char *err;    /* error text, RP_ERR_LEN bytes */
};

__attribute__((visibility("default"))) /* argp reads the variable */
const char *argp_program_version = "fi_rpmem_plugpull " PACKAGE_VERSION;

static const char doc[] =
	"Writes to a pool of fi_rpmemd on another machine, lets COMMAND cut "
	"that machine's power, waits until it is back, and says which "
	"acknowledged bytes are lost. It overwrites the pool.\vPOOL is the "
	"name of the pool file without its folder. COMMAND is run by sh, and "
	"must switch the machine off and on again, in no orderly way. "
	"fi_rpmem_plugpull(1) has recipes and the exit codes.";

enum {
	OPT_AREA = 256,
	OPT_CLASS,
	OPT_CONTROL,
	OPT_CYCLES,
	OPT_JSON,
	OPT_JUDGE,
	OPT_LEDGER,
	OPT_SECONDS,
	OPT_SEED,
	OPT_WAIT,
};

static const struct argp_option options[] = {
	{"cut", 'c', "COMMAND", 0, "Run COMMAND to cut the power", 1},
	{"cycles", OPT_CYCLES, "N", 0, "Cut N times (1)", 1},
	{"seconds", OPT_SECONDS, "S", 0,
	 "Cut at a random moment within S seconds of the first acknowledgement "
	 "(5)",
	 1},
	{"wait", OPT_WAIT, "S", 0,
	 "Wait up to S seconds for fi_rpmemd to be back (900)", 1},
	{"class", OPT_CLASS, "CLASS", 0,
	 "What the bytes must survive: power, process or none (power)", 2},
	{"secret", 's', "FILE", 0, "File with the secret of the daemon", 2},
	{"area", OPT_AREA, "SIZE", 0, "Bytes of the pool to write to (16M)", 2},
	{"seed", OPT_SEED, "N", 0, "Repeat the choices of a run", 2},
	{"control", OPT_CONTROL, NULL, 0,
	 "Commit nothing, and count it as acknowledged: must lose", 3},
	{"judge", OPT_JUDGE, "LEDGER", 0,
	 "Judge a cut whose run has ended early; write nothing", 3},
	{"ledger", OPT_LEDGER, "FILE", 0,
	 "Keep the ledger in FILE (plugpull.ledger)", 3},
	{"json", OPT_JSON, NULL, 0, "Print the result as JSON", 4},
	{0},
};

static void parse_where(struct argp_state *state, struct pull *p,
			const char *arg)
{
	int used = rp_setup_parse_target(arg, &p->target, p->err);

	if (state->arg_num)
		argp_error(state, "one pool at a time");
	if (used < 0)
		argp_error(state, "%s", p->err);
	if (arg[used] != ':' || !rp_setup_name_ok(arg + used + 1))
		argp_error(state, "'%s' names no pool; give HOST:POOL", arg);
	p->cfg.where = arg;
	p->pool = arg + used + 1;
}

static void parse_class(struct argp_state *state, struct pull *p,
			const char *arg)
{
	if (!rp_pool_class_parse(arg, &p->cfg.class))
		argp_error(state, "--class %s: give power, process or none",
			   arg);
}

static void parse_area(struct argp_state *state, struct pull *p,
		       const char *arg)
{
	if (rp_size_parse(arg, &p->cfg.area, p->err))
		argp_error(state, "--area: %s", p->err);
	if (!pull_area_ok(p->cfg.area))
		argp_error(state, "--area: give a multiple of 8K, 64K to 1G");
}

static void check_args(struct argp_state *state, const struct pull *p)
{
	if (!p->cfg.where)
		argp_error(state, "name the pool: HOST:POOL");
	if (!p->cut == !p->judge)
		argp_error(state,
			   "give either --cut COMMAND or --judge LEDGER");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct pull *p = state->input;

	switch (key) {
	case 'c':
		p->cut = arg;
		return 0;
	case 's':
		p->cfg.secret_file = arg;
		return 0;
	case OPT_AREA:
		parse_area(state, p, arg);
		return 0;
	case OPT_CLASS:
		parse_class(state, p, arg);
		return 0;
	case OPT_CONTROL:
		p->cfg.control = true;
		return 0;
	case OPT_CYCLES:
		p->cycles = rp_argp_number(state, "cycles", arg, 1, CYCLES_MAX);
		return 0;
	case OPT_JSON:
		p->json = true;
		return 0;
	case OPT_JUDGE:
		p->judge = arg;
		return 0;
	case OPT_LEDGER:
		p->ledger_path = arg;
		return 0;
	case OPT_SECONDS:
		p->seconds = rp_argp_number(state, "seconds", arg, 1, 3600);
		return 0;
	case OPT_SEED:
		p->seed = rp_argp_number(state, "seed", arg, 0, UINT32_MAX);
		return 0;
	case OPT_WAIT:
		p->wait = rp_argp_number(state, "wait", arg, 1, 86400);
		return 0;
	case ARGP_KEY_ARG:
		parse_where(state, p, arg);
		return 0;
	case ARGP_KEY_END:
		check_args(state, p);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void sleep_ms(unsigned int ms)
{
	const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/* Run a child process of plugpull_writer.c, and wait for its exit. */
static int run_child(struct pull *p, void (*body)(const struct pull_cfg *,
						  struct pull_shared *))
{
	const pid_t pid = fork();
	int status;

	if (!pid)
		body(&p->cfg, p->s);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return rp_err(p->err, RP_EXIT_FAILED, "fork: %s",
			      strerror(errno));
	if (p->s->code)
		return rp_err(p->err, p->s->code, "%s", p->s->err);
	if (status)
		return rp_err(p->err, RP_EXIT_FAILED,
			      "a child process has ended with status %#x",
			      (unsigned int)status);
	return 0;
}

/* Let the writer write until the random moment of the cut. */
static int let_write(struct pull *p, pid_t writer)
{
	unsigned short random[3] = {(unsigned short)p->cfg.seed, 1, 2};
	const uint64_t span = (uint64_t)nrand48(random) % (p->seconds * 1000);
	uint64_t until = rp_now_ms() + FIRST_MS;
	bool began = false;

	while (rp_now_ms() < until) {
		if (p->s->code)
			return rp_err(p->err, p->s->code, "%s", p->s->err);
		if (waitpid(writer, NULL, WNOHANG) == writer)
			return rp_err(p->err, RP_EXIT_FAILED,
				      "the writer has ended");
		if (!began && p->s->acked && p->s->visible + p->s->unseen) {
			began = true;
			until = rp_now_ms() + span;
		}
		sleep_ms(TICK_MS);
	}
	return began ? 0
		     : rp_err(p->err, RP_EXIT_NETWORK,
			      "nothing was acknowledged in %d seconds; check "
			      "fi_rpmemd and the network",
			      FIRST_MS / 1000);
}

static int cut_power(struct pull *p)
{
	char *command;
	int status;

	/* Standard output is for the result only: COMMAND gets stderr. */
	if (asprintf(&command, "exec 1>&2\n%s", p->cut) < 0)
		return rp_err(p->err, RP_EXIT_FAILED, "out of memory");
	fflush(NULL);
	status = system(command);
	free(command);
	if (!status)
		return 0;
	return rp_err(p->err, RP_EXIT_BROKEN,
		      "COMMAND has failed with status %d; if the power was "
		      "cut, judge it: --judge %s",
		      WIFEXITED(status) ? WEXITSTATUS(status) : status,
		      p->ledger_path);
}

/* Wait until another incarnation of the daemon offers the pool. */
static int await_restart(struct pull *p)
{
	const uint64_t began = rp_now_ms();
	uint64_t said = began, now;
	struct rp_setup_export e;
	int ret;

	for (;;) {
		ret = rp_setup_fetch_export(&p->target, p->pool, &e, p->err);
		if (!ret && e.incarnation != p->incarnation)
			break;
		now = rp_now_ms();
		if (!ret)
			rp_err(p->err, 0, "it has not been started again");
		if (now - began > p->wait * 1000)
			break;
		if (now - said > SAY_MS) {
			fprintf(stderr,
				"waiting for fi_rpmemd on %s port %u, for %d "
				"of %d seconds: %s\n",
				p->target.host, p->target.port,
				(int)((now - began) / 1000), (int)p->wait,
				p->err);
			said = now;
		}
		sleep_ms(RETRY_MS);
	}
	if (ret || e.incarnation == p->incarnation) {
		fprintf(stderr, "fi_rpmem_plugpull: %s\n", p->err);
		return rp_err(p->err, RP_EXIT_BROKEN,
			      "no cut was seen in %d seconds; when fi_rpmemd "
			      "is back: --judge %s",
			      (int)p->wait,
			      p->judge ? p->judge : p->ledger_path);
	}
	p->clean |= e.was_clean;
	if (e.was_clean)
		fprintf(stderr,
			"fi_rpmem_plugpull: fi_rpmemd was stopped in order "
			"before it was started again: that is no power cut\n");
	return 0;
}

/* Count the cells that have an older value than the last one of a probe. */
static void judge_cells(const struct pull_shared *s, uint64_t area,
			uint64_t *count)
{
	const unsigned char *cell = s->got + area;
	uint64_t value;

	count[PULL_VISIBLE] = s->visible;
	count[PULL_UNSEEN] = s->unseen;
	for (unsigned int i = 0; i < PULL_CELLS; i++, cell += PULL_CELL) {
		memcpy(&value, cell, sizeof(value));
		count[PULL_SEEN] += s->cells[i] != 0;
		/* A later value may be that of a write in flight. */
		count[PULL_GONE] += value < s->cells[i];
	}
}

static json_t *to_json(const uint64_t count[PULL_COUNTS])
{
	static const char *const names[] = {
		[PULL_RECORDS] = "records_acknowledged",
		[PULL_BYTES] = "bytes_acknowledged",
		[PULL_LOST] = "bytes_lost",
		[PULL_FOREIGN] = "bytes_foreign",
		[PULL_OPEN] = "in_flight",
		[PULL_NEW] = "in_flight_new",
		[PULL_OLD] = "in_flight_old",
		[PULL_TORN] = "in_flight_torn",
		[PULL_VISIBLE] = "probes_visible",
		[PULL_UNSEEN] = "probes_unseen",
		[PULL_SEEN] = "cells_visible",
		[PULL_GONE] = "cells_gone",
	};
	json_t *o = json_object();

	for (unsigned int i = 0; i < PULL_COUNTS; i++)
		json_object_set_new(o, names[i],
				    json_integer((json_int_t)count[i]));
	return o;
}

static void print_cycle(FILE *out, uint64_t i, const uint64_t *count)
{
	fprintf(out,
		"cycle %" PRIu64 ": %" PRIu64 " records acknowledged, %" PRIu64
		" of their %" PRIu64 " bytes lost, %" PRIu64
		" foreign; in flight %" PRIu64 ": %" PRIu64 " new, %" PRIu64
		" old, %" PRIu64 " torn; ",
		i, count[PULL_RECORDS], count[PULL_LOST], count[PULL_BYTES],
		count[PULL_FOREIGN], count[PULL_OPEN], count[PULL_NEW],
		count[PULL_OLD], count[PULL_TORN]);
	fprintf(out,
		"visible %" PRIu64 " of %" PRIu64 ", gone %" PRIu64
		" of %" PRIu64 " cells\n",
		count[PULL_VISIBLE], count[PULL_VISIBLE] + count[PULL_UNSEEN],
		count[PULL_GONE], count[PULL_SEEN]);
	fflush(out);
}

static int judge_ledger(struct pull *p, const char *ledger, uint64_t i)
{
	const struct pull_shared *s = p->s;
	uint64_t count[PULL_COUNTS] = {0};
	FILE *out = p->json ? stderr : stdout;
	struct pull_record *v;
	uint64_t was;
	size_t n;
	int ret;

	ret = run_child(p, pull_read);
	if (ret)
		return ret;
	if (pull_ledger_load(ledger, &p->cfg, &was, &v, &n, p->err))
		ret = RP_EXIT_FILE;
	else if (pull_judge(&p->cfg, v, n, s->got, out, count))
		ret = rp_err(p->err, RP_EXIT_FAILED, "out of memory");
	free(v);
	if (ret)
		return ret;
	judge_cells(s, p->cfg.area, count);
	for (unsigned int k = 0; k < PULL_COUNTS; k++)
		p->sum[k] += count[k];
	json_array_append_new(p->list, to_json(count));
	print_cycle(out, i, count);
	return 0;
}

static int map_shared_memory(struct pull *p)
{
	const size_t size = sizeof(*p->s) + p->cfg.area + PULL_TAIL;

	void *m = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (!m || m == MAP_FAILED) {
		rp_err(p->err, 0, "mmap: %s", strerror(errno));
		return RP_EXIT_FAILED;
	}
	p->s = m;
	return 0;
}

static int start_writer(struct pull *p, pid_t *writer)
{
	struct rp_setup_export e;
	int ret = run_child(p, pull_prepare);

	if (!ret && rp_setup_fetch_export(&p->target, p->pool, &e, p->err))
		ret = RP_EXIT_NETWORK;
	if (ret)
		return ret;
	p->incarnation = e.incarnation;
	if (pull_ledger_start(p->ledger, &p->cfg, p->incarnation, p->err))
		return RP_EXIT_FILE;
	*writer = fork();
	if (!*writer)
		pull_write(&p->cfg, p->s, p->ledger);
	return *writer > 0 ? 0
			   : rp_err(p->err, RP_EXIT_FAILED, "fork: %s",
				    strerror(errno));
}

static int run_cycle(struct pull *p, uint64_t i)
{
	struct pull_shared *s = p->s;
	pid_t writer = -1;
	int ret;

	p->cfg.seed = p->seed + i;
	memset(s, 0, sizeof(*s));
	ret = start_writer(p, &writer);
	if (!ret)
		ret = let_write(p, writer);
	if (!ret)
		ret = cut_power(p);
	/* Let the writer go on: COMMAND may return before the cut. */
	if (!ret)
		ret = await_restart(p);
	if (writer > 0) {
		kill(writer, SIGKILL);
		waitpid(writer, NULL, 0);
	}
	/* Ignore the writer's errors, which the cut has caused. */
	s->code = 0;
	if (!ret && s->reconnected)
		ret = rp_err(p->err, RP_EXIT_FAILED,
			     "the writer has connected again, so what the "
			     "target kept by itself cannot be judged; run it "
			     "again");
	return ret ? ret : judge_ledger(p, p->ledger_path, i);
}

static bool has_lost(const struct pull *p)
{
	return (p->sum[PULL_LOST] && !p->cfg.control) || p->sum[PULL_FOREIGN];
}

static int run_cycles(struct pull *p)
{
	const int made = map_shared_memory(p);
	const struct pull_shared *s = p->s;
	int ret = 0;

	if (made)
		return made;
	p->ledger =
		open(p->ledger_path,
		     O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (p->ledger < 0)
		return rp_err(p->err, RP_EXIT_FILE,
			      "'%s' cannot be made: %s; judge the cut that it "
			      "is of, remove it, or give --ledger FILE",
			      p->ledger_path, strerror(errno));
	/*
	 * Stop after a cycle with a loss, so that its ledger is kept, and after
	 * one whose completed write was not visible.
	 */
	for (uint64_t i = 1;
	     !ret && i <= p->cycles && !has_lost(p) && !p->sum[PULL_UNSEEN];
	     i++) {
		ret = run_cycle(p, i);
		if (i == 1 && s->method[0])
			fprintf(stderr,
				"seed %" PRIu64 ", class %s by %s, ledger %s\n",
				p->seed, rp_pool_class_name(s->reached),
				s->method, p->ledger_path);
	}
	close(p->ledger);
	/* A ledger without acknowledgements says nothing about losses. */
	if (ret ? !s->acked : !has_lost(p))
		unlink(p->ledger_path);
	return ret;
}

static int run_judge(struct pull *p)
{
	struct pull_record *v;
	size_t n;
	int ret;

	if (pull_ledger_load(p->judge, &p->cfg, &p->incarnation, &v, &n,
			     p->err))
		return RP_EXIT_FILE;
	free(v);
	ret = map_shared_memory(p);
	if (!ret)
		ret = await_restart(p);
	return ret ? ret : judge_ledger(p, p->judge, 1);
}

/* Print a verdict on all cycles. */
static int conclude(struct pull *p)
{
	const uint64_t *v = p->sum;

	if (v[PULL_UNSEEN])
		return rp_err(p->err, RP_EXIT_DIFFER,
			      "%" PRIu64 " completed writes were not visible "
			      "to another client",
			      v[PULL_UNSEEN]);
	if (has_lost(p))
		return rp_err(p->err, RP_EXIT_DIFFER,
			      "%" PRIu64
			      " acknowledged bytes are lost, %" PRIu64
			      " bytes are of no record; the ledger is kept",
			      v[PULL_LOST], v[PULL_FOREIGN]);
	if (p->clean)
		return rp_err(p->err, RP_EXIT_FAILED,
			      "fi_rpmemd was stopped in order: COMMAND cuts no "
			      "power, and nothing was tested");
	if (!v[PULL_RECORDS])
		return rp_err(p->err, RP_EXIT_FAILED,
			      "nothing was acknowledged: nothing was tested");
	if (!p->cfg.control)
		return rp_err(p->err, 0, "nothing acknowledged is lost");
	if (v[PULL_LOST])
		return rp_err(p->err, 0,
			      "the control has lost %" PRIu64 " bytes, as it "
			      "must: a loss is seen on these machines",
			      v[PULL_LOST]);
	return rp_err(p->err, RP_EXIT_DIFFER,
		      "the control has lost nothing: COMMAND cuts no power, or "
		      "this memory keeps all that arrives");
}

static void print_result(const struct pull *p, int code)
{
	json_t *o;

	if (!p->json) {
		fprintf(code ? stderr : stdout, "%s: %s\n",
			code ? "fi_rpmem_plugpull" : "verdict", p->err);
		return;
	}
	o = json_pack("{ss sI sb sI sO so ss}", "result",
		      code ? "failed" : "ok", "exit_code", (json_int_t)code,
		      "control", p->cfg.control, "seed", (json_int_t)p->seed,
		      "cycles", p->list, "sum", to_json(p->sum),
		      code ? "error" : "verdict", p->err);
	if (p->s && p->s->method[0]) {
		json_object_set_new(
			o, "class",
			json_string(rp_pool_class_name(p->s->reached)));
		json_object_set_new(o, "method", json_string(p->s->method));
	}
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, "HOST[:PORT]:POOL", doc, NULL,
		NULL,	 NULL,
	};
	static char err[RP_ERR_LEN];
	static struct pull p = {
		.err = err,
		.cfg.area = 16u << 20,
		.ledger_path = "plugpull.ledger",
		.cycles = 1,
		.seconds = 5,
		.wait = 900,
	};
	int code = 0;

	p.seed = (uint64_t)time(NULL) & UINT32_MAX;
	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &p);
	signal(SIGPIPE, SIG_IGN);
	p.list = json_array();
	if (p.cfg.secret_file) {
		if (rp_secret_load(p.cfg.secret_file, &p.secret, p.err))
			code = RP_EXIT_SECRET;
		p.target.secret = &p.secret;
	}
	if (!code)
		code = p.judge ? run_judge(&p) : run_cycles(&p);
	if (!code)
		code = conclude(&p);
	print_result(&p, code);
	json_decref(p.list);
	rp_secret_wipe(&p.secret);
	return code;
}
