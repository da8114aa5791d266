// SPDX-License-Identifier: BSD-2-Clause
/* The arguments of fi_rpmem_bench and suite, and one run. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/caps.h"
#include "core/method.h"
#include "fabtests/benchmarks/bench.h"
#include "util/exit_codes.h"

enum {
	OPT_SEED = 256,
	OPT_PIN,
	OPT_EMULATE,
	OPT_JSON,
	OPT_CLASS,
	OPT_BASE,
	OPT_SLEEP,
	OPT_WINDOW,
	OPT_METHOD,
	OPT_PERSISTENT,
	OPT_DURABLE,
	OPT_ADDRESS,
	OPT_DAX,
	OPT_RIVALS,
	OPT_RIVAL,
	OPT_MARK,
	OPT_BAR,
	OPT_LISTEN,
	OPT_CONNECT,
};

/* Modes, with their default sizes, ranges and seconds. */
static const struct mode {
	const char *name;
	enum bench_mode mode;
	uint64_t sizes[BENCH_LIST], ranges[BENCH_LIST];
	uint64_t seconds;
} modes[] = {
	{"all", BENCH_ALL, {64, 65536}, {16}, 10},
	{"pingpong", BENCH_PINGPONG, {64}, {1}, 10},
	{"rate", BENCH_RATE, {64}, {1}, 10},
	{"write",
	 BENCH_WRITE,
	 {8, 64, 512, 4096, 32768, 262144, 1048576, 4194304},
	 {1},
	 20},
	{"commit", BENCH_COMMIT, {64}, {1, 16, 64, 256}, 10},
	{"initiators", BENCH_INITIATORS, {64}, {1, 2, 4, 8, 16}, 10},
	{"mixed", BENCH_MIXED, {65536}, {1}, 10},
	{"sequential", BENCH_SEQUENTIAL, {1048576}, {1}, 10},
	{"flush", BENCH_LOCAL, {8, 64, 512, 4096, 65536, 1048576}, {1}, 10},
	{"file", BENCH_FILE, {64}, {1}, 10},
	/*
	 * Sizes and ranges of these modes are the largest of any case: they
	 * size the pool.
	 */
	{"suite", BENCH_SUITE, {BENCH_MAX_SIZE}, {BENCH_MAX_RANGES}, 60},
	{"calibrate", BENCH_CALIBRATE, {65536}, {16}, 20},
	{"probe", BENCH_PROBE, {64}, {1}, 10},
};
#define NMODES (sizeof(modes) / sizeof(modes[0]))

static const struct argp_option options[] = {
	{"sizes", 's', "LIST", 0, "Bytes per write [64,64K]", 0},
	{"ranges", 'r', "LIST", 0, "Writes per commit [16]", 0},
	{"iterations", 'n', "N", 0, "Samples per line, at most [10000]", 0},
	{"seconds", 't', "N", 0, "Total measuring time in seconds [10]", 0},
	{"pool", 'p', "FILE", 0,
	 "Write to this new file, which is removed at the end; "
	 "the run measures its file system [a file in the current "
	 "folder]",
	 0},
	{"emulate", OPT_EMULATE, NULL, 0,
	 "Write to anonymous memory that emulates persistent memory with cache "
	 "lines; nothing is durable",
	 0},
	{"class", OPT_CLASS, "CLASS", 0,
	 "Failure class to require: power, process or none [power; with "
	 "--emulate none]",
	 0},
	{"base", OPT_BASE, "NAME", 0, "Base provider [tcp]", 0},
	{"sleep", OPT_SLEEP, NULL, 0,
	 "Let the target sleep instead of polling, as a daemon "
	 "does",
	 0},
	{"pin", OPT_PIN, "A,B", 0, "Pin initiator to CPU A and target to B", 0},
	{"window", OPT_WINDOW, "N", 0,
	 "Outstanding writes of rate and sequential [64]", 0},
	{"method", OPT_METHOD, "NAME", 0,
	 "Commit by this method; fail if it is not possible", 0},
	{"address", OPT_ADDRESS, "ADDR", 0,
	 "Address of this host that both processes bind to [127.0.0.1]", 0},
	{"listen", OPT_LISTEN, "HOST:PORT", 0,
	 "Be the target of one fi_rpmem_bench --connect; HOST is an address of "
	 "this host",
	 0},
	{"connect", OPT_CONNECT, "HOST:PORT", 0,
	 "Write to fi_rpmem_bench --listen on another machine", 0},
	{"dax", OPT_DAX, "DEVICE", 0,
	 "Write to this DAX device; its contents are lost", 0},
	{"seed", OPT_SEED, "N", 0, "Repeat order and offsets of an earlier run",
	 0},
	{"json", OPT_JSON, "FILE", 0,
	 "Write the report as JSON; - is standard output, in place of the "
	 "table",
	 0},
	{0},
};

/* Options of suite alone; hidden ones are for tests and for child processes. */
static const struct argp_option suite_options[] = {
	{"rivals", OPT_RIVALS, NULL, 0,
	 "suite: compare with librpma over the RDMA device at "
	 "--address",
	 0},
	{"rival", OPT_RIVAL, "N", OPTION_HIDDEN, NULL, 0},
	{"mark", OPT_MARK, "FILE", OPTION_HIDDEN, NULL, 0},
	{"bar", OPT_BAR, "NAME=VALUE", OPTION_HIDDEN, NULL, 0},
	{"persistent", OPT_PERSISTENT, NULL, OPTION_HIDDEN, NULL, 0},
	{"durable", OPT_DURABLE, NULL, OPTION_HIDDEN, NULL, 0},
	{0},
};

/* Modes of this program: a global, as argp passes no such argument. */
static unsigned int allowed_modes;
static enum bench_mode first_mode;

static void parse_list(struct argp_state *state, char *arg, uint64_t max,
		       uint64_t *list, size_t *n)
{
	char err[RP_ERR_LEN], *save, *word;

	*n = 0;
	for (word = strtok_r(arg, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		if (*n == BENCH_LIST)
			argp_error(state, "more than %d in one list",
				   BENCH_LIST);
		if (rp_size_parse(word, &list[*n], err))
			argp_error(state, "%s", err);
		if (!list[*n] || list[*n] > max)
			argp_error(state, "'%s' is not from 1 to %llu", word,
				   (unsigned long long)max);
		++*n;
	}
	if (!*n)
		argp_error(state, "the list is empty");
}

static uint64_t parse_number(struct argp_state *state, const char *arg,
			     uint64_t min, uint64_t max)
{
	char err[RP_ERR_LEN];
	uint64_t v = 0;

	if (rp_number_parse(arg, min, max, &v, err))
		argp_error(state, "%s", err);
	return v;
}

static void parse_mode(struct argp_state *state, const char *arg)
{
	struct bench_cfg *cfg = state->input;

	if (cfg->mode)
		argp_error(state, "give one mode");
	for (size_t i = 0; i < NMODES; i++)
		if (!strcmp(arg, modes[i].name) &&
		    modes[i].mode & allowed_modes)
			cfg->mode = modes[i].mode;
	if (!cfg->mode)
		argp_error(state, "'%s' is no mode", arg);
}

/*
 * Pin the two processes to different CPUs if possible: two processes that poll
 * on one CPU measure the scheduler.
 */
static void pin_apart(struct bench_cfg *cfg)
{
	unsigned int found = 0;
	cpu_set_t set;

	if (cfg->pin || sched_getaffinity(0, sizeof(set), &set))
		return;
	for (unsigned int i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set))
			cfg->cpu[found++] = i;
	cfg->pin = found == 2;
}

/* Fill options that were not given with the defaults of the mode. */
static void set_defaults(struct argp_state *state)
{
	struct bench_cfg *cfg = state->input;
	const struct mode *m = modes;

	if (!cfg->mode)
		cfg->mode = first_mode;
	while (m->mode != cfg->mode)
		m++;
	if (cfg->rivals &&
	    (cfg->mode != BENCH_SUITE || !cfg->dax || !cfg->node))
		argp_error(state, "--rivals is for suite, with --address and "
				  "--dax");
	if (cfg->rivals) {
		cfg->sizes[0] = 4096;
		cfg->ranges[0] = 1;
		cfg->nsizes = cfg->nranges = 1;
	} else if (cfg->mode & (BENCH_SUITE | BENCH_CALIBRATE)) {
		if (cfg->nsizes || cfg->nranges)
			argp_error(state, "%s chooses the sizes by itself",
				   m->name);
		if (cfg->emulate || cfg->class || cfg->method || cfg->sleep)
			argp_error(state,
				   "%s chooses memory and method by "
				   "itself",
				   m->name);
	}
	if (cfg->nbars && cfg->mode != BENCH_SUITE)
		argp_error(state, "only suite has bars");
	for (size_t i = 0; cfg->nsizes == i && i < BENCH_LIST; i++)
		if (m->sizes[i])
			cfg->sizes[cfg->nsizes++] = m->sizes[i];
	for (size_t i = 0; cfg->nranges == i && i < BENCH_LIST; i++)
		if (m->ranges[i])
			cfg->ranges[cfg->nranges++] = m->ranges[i];
	if (!cfg->seconds)
		cfg->seconds = m->seconds;
	if (cfg->mode != BENCH_ALL && cfg->mode != BENCH_PROBE)
		pin_apart(cfg);
	if (cfg->mode == BENCH_SUITE && !cfg->rivals)
		cfg->emulate = cfg->shm = cfg->disk = true;
	for (size_t i = 0; i < cfg->nranges; i++)
		if (cfg->mode == BENCH_INITIATORS &&
		    cfg->ranges[i] > BENCH_MAX_INITIATORS)
			argp_error(state, "at most %d initiators",
				   BENCH_MAX_INITIATORS);
}

/* Options about the memory are refused at the end that does not have it. */
static void check_remote(struct argp_state *state)
{
	struct bench_cfg *cfg = state->input;

	if (cfg->listen && cfg->connect)
		argp_error(state, "give --listen on one machine, and --connect "
				  "on the other");
	if (cfg->listen && (cfg->json || cfg->method))
		argp_error(state, "--json and --method belong to the end with "
				  "--connect");
	if (cfg->connect && (cfg->pool || cfg->dax || cfg->emulate))
		argp_error(state, "the pool is at the other end: give --pool, "
				  "--dax or --emulate there");
	if ((cfg->listen || cfg->connect) &&
	    cfg->mode & (BENCH_LOCAL | BENCH_FILE | BENCH_SUITE_MODES))
		argp_error(state, "this mode measures one machine");
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct bench_cfg *cfg = state->input;
	enum rp_class class;
	char *comma;

	switch (key) {
	case 's':
		parse_list(state, arg, BENCH_MAX_SIZE, cfg->sizes,
			   &cfg->nsizes);
		return 0;
	case 'r':
		parse_list(state, arg, BENCH_MAX_RANGES, cfg->ranges,
			   &cfg->nranges);
		return 0;
	case 'n':
		cfg->iterations = parse_number(state, arg, 1, 100000000);
		return 0;
	case 't':
		cfg->seconds = parse_number(state, arg, 1, 86400);
		return 0;
	case 'p':
		cfg->pool = arg;
		return 0;
	case OPT_EMULATE:
		cfg->emulate = true;
		return 0;
	case OPT_SLEEP:
		cfg->sleep = true;
		return 0;
	case OPT_CLASS:
		if (rp_class_parse(arg, &class))
			argp_error(state, "'%s' is not a failure class", arg);
		cfg->class = arg;
		return 0;
	case OPT_BASE:
		cfg->base = arg;
		return 0;
	case OPT_ADDRESS:
		cfg->node = arg;
		return 0;
	case OPT_DAX:
		cfg->dax = arg;
		return 0;
	case OPT_LISTEN:
		cfg->listen = arg;
		return 0;
	case OPT_CONNECT:
		cfg->connect = arg;
		return 0;
	case OPT_MARK:
		cfg->mark = arg;
		return 0;
	case OPT_BAR:
		if (cfg->nbars == BENCH_FIGURES)
			argp_error(state, "more than %d bars", BENCH_FIGURES);
		cfg->bars[cfg->nbars++] = arg;
		return 0;
	case OPT_RIVALS:
		cfg->rivals = true;
		return 0;
	case OPT_RIVAL:
		cfg->rival = (int)parse_number(state, arg, 0, RIVALS - 1);
		return 0;
	case OPT_PIN:
		comma = strchr(arg, ',');
		if (!comma)
			argp_error(state, "--pin takes two CPUs, as in 0,1");
		*comma = 0;
		cfg->cpu[0] = (unsigned int)parse_number(state, arg, 0, 1023);
		cfg->cpu[1] =
			(unsigned int)parse_number(state, comma + 1, 0, 1023);
		cfg->pin = true;
		return 0;
	case OPT_SEED:
		cfg->seed = parse_number(state, arg, 0, INT64_MAX);
		return 0;
	case OPT_JSON:
		cfg->json = arg;
		return 0;
	case OPT_WINDOW:
		cfg->window = parse_number(state, arg, 1, 256);
		return 0;
	case OPT_METHOD:
		if (rp_method_parse(arg) == RP_METHOD_REFUSED)
			argp_error(state, "'%s' is not a method", arg);
		cfg->method = arg;
		return 0;
	case OPT_DURABLE:
		cfg->durable = true;
		/* FALLTHROUGH */
	case OPT_PERSISTENT:
		cfg->persistent = true;
		return 0;
	case ARGP_KEY_ARG:
		parse_mode(state, arg);
		return 0;
	case ARGP_KEY_END:
		if (!!cfg->pool + cfg->emulate + !!cfg->dax > 1)
			argp_error(state, "--pool, --dax and --emulate exclude "
					  "each other");
		set_defaults(state);
		check_remote(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Remove all parameters of the provider: the suite measures the defaults. */
static void clear_environment(void)
{
	static const char prefix[] = "FI_OFI_RPMEM_";
	char name[128], **var = environ;

	while (*var) {
		size_t len = strcspn(*var, "=");

		if (strncmp(*var, prefix, sizeof(prefix) - 1) ||
		    len >= sizeof(name)) {
			var++;
			continue;
		}
		memcpy(name, *var, len);
		name[len] = 0;
		fprintf(stderr,
			"%s is ignored: the suite measures the defaults\n",
			name);
		unsetenv(name);
		var = environ; /* unsetenv() moves the later entries */
	}
}

/*
 * Set the parameters of the provider for both processes, before the first
 * libfabric call.
 */
static void set_environment(const struct bench_cfg *cfg)
{
	const char *class = cfg->class;

	if (cfg->mode == BENCH_SUITE && !cfg->rivals)
		clear_environment();
	if (!class && cfg->emulate)
		class = "none";
	if (class)
		setenv("FI_OFI_RPMEM_CLASS", class, 1);
	if (cfg->emulate)
		setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	if (cfg->method)
		setenv("FI_OFI_RPMEM_METHOD", cfg->method, 1);
	/*
	 * The hints select the provider; a filter in FI_PROVIDER could hide
	 * base or ofi_rpmem.
	 */
	unsetenv("FI_PROVIDER");
}

static struct bench_line *make_lines(const struct bench_cfg *cfg, size_t *n)
{
	struct bench_line *lines = calloc(
		cfg->nsizes * bench_ncases * cfg->nranges, sizeof(*lines));

	*n = 0;
	for (size_t s = 0; lines && s < cfg->nsizes; s++) {
		for (size_t c = 0; c < bench_ncases; c++) {
			const struct bench_case *what = &bench_cases[c];
			size_t count = what->many ? cfg->nranges : 1;

			if (!(what->modes & cfg->mode))
				continue;
			for (size_t r = 0; r < count; r++) {
				lines[*n].what = what;
				lines[*n].size = cfg->sizes[s];
				lines[*n].group = (unsigned int)s;
				lines[*n].ranges =
					what->many ? cfg->ranges[r] : 1;
				++*n;
			}
		}
	}
	return lines;
}

static int run(struct bench *b, char *err)
{
	struct bench_line *lines;
	int ret, code = RP_EXIT_OK;
	size_t n;

	lines = make_lines(b->cfg, &n);
	if (!lines)
		return rp_err(err, -ENOMEM, "out of memory");
	ret = bench_start(b, err);
	if (ret)
		goto free_lines;
	ret = bench_measure(b, lines, n);
	if (ret && ret != -EINTR) {
		rp_err(err, ret, "%s", strerror(-ret));
		goto free_lines;
	}
	for (size_t i = 0; i < n; i++)
		if ((!lines[i].samples.n || lines[i].dead) &&
		    !((b->cfg->emulate || b->cfg->connect) &&
		      lines[i].what->side == BENCH_IDLE))
			code = RP_EXIT_PARTLY; /* no file, no msync */
	if (!b->cfg->json || strcmp(b->cfg->json, "-"))
		bench_report_table(b, lines, n);
	ret = b->cfg->json ? bench_report_json(b, lines, n, err) : 0;

free_lines:
	for (size_t i = 0; i < n; i++)
		rp_samples_free(&lines[i].samples);
	free(lines);
	return ret ? ret : code;
}

#define NOPTIONS (sizeof(options) / sizeof(options[0]))
#define NSUITE	 (sizeof(suite_options) / sizeof(suite_options[0]))

int bench_main(int argc, char **argv, const char *name, unsigned int allowed,
	       enum bench_mode first, const char *text)
{
	static struct argp_option all[NOPTIONS + NSUITE];
	const struct argp argp = {
		.options = all,
		.parser = parse_opt,
		.args_doc = "[MODE]",
		.doc = text,
	};
	struct bench_cfg cfg = {
		.base = "tcp",
		.iterations = 10000,
		.window = 64,
		.rival = -1,
		.seed = UINT64_MAX,
	};
	struct bench b = {.cfg = &cfg, .control = -1};
	char err[RP_ERR_LEN] = "";
	int ret;

	memcpy(all, options, sizeof(options));
	if (allowed & BENCH_SUITE)
		memcpy(&all[NOPTIONS - 1], suite_options,
		       sizeof(suite_options));
	allowed_modes = allowed;
	first_mode = first;
	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &cfg);
	if (cfg.seed == UINT64_MAX) {
		if (getrandom(&cfg.seed, sizeof(cfg.seed), 0) < 0)
			cfg.seed = bench_now();
		cfg.seed &= UINT32_MAX; /* short enough to type again */
	}
	set_environment(&cfg);
	if (cfg.node)
		b.node = strdup(cfg.node);
	if (cfg.connect)
		bench_pool_size(&b);
	ret = cfg.listen || cfg.connect ? 0 : bench_pool_open(&b, err);
	if (ret)
		;
	else if (cfg.listen)
		ret = bench_remote_serve(&b, err);
	else if (cfg.mode == BENCH_SUITE)
		ret = bench_suite_run(&b, err);
	else if (cfg.mode == BENCH_CALIBRATE)
		ret = bench_calibrate_run(&b, err);
	else if (cfg.mode == BENCH_PROBE)
		ret = bench_probe_run(&b, err);
	else
		ret = run(&b, err);
	bench_stop(&b);
	bench_pool_close(&b.pool);
	bench_pool_close(&b.disk);
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", name, err);
		return RP_EXIT_NOTHING;
	}
	return ret;
}
