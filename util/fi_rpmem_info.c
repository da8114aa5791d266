// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_info: prints what a host or target promises about durability. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "util/advise.h"
#include "util/exit_codes.h"
#include "util/info.h"

enum {
	OPT_ADVISE = 256,
	OPT_DOCTOR,
	OPT_JSON,
	OPT_TARGET,
	OPT_SECRET,
	OPT_BASE,
	OPT_TABLE,
	OPT_STATS,
	OPT_WATCH,
	OPT_PROMETHEUS,
	OPT_SECONDS,
};

struct info_cfg {
	bool advise, doctor, json, table, counts;
	unsigned int seconds;
	struct info_stats stats;
	struct info_transport transport;
	const char *target, *secret;
	char **paths;
	size_t n;
};

static const struct argp_option options[] = {
	{"advise", OPT_ADVISE, NULL, 0,
	 "Measure which advice about writes holds here: in a new file in the "
	 "folder PATH (.), or by reads of the pool HOST[:PORT]:POOL",
	 0},
	{"seconds", OPT_SECONDS, "S", 0,
	 "Measure --advise for S seconds (25): more on a disk", 0},
	{"doctor", OPT_DOCTOR, NULL, 0,
	 "Check what commits on this host need, print a remedy "
	 "for each problem, and try a commit in each PATH",
	 0},
	{"target", OPT_TARGET, "HOST[:PORT][:POOL]", 0,
	 "Print how a running fi_rpmemd commits writes to the pool, or list "
	 "its "
	 "pools",
	 0},
	{"secret", OPT_SECRET, "FILE", 0, "File with the secret of the daemon",
	 0},
	{"base", OPT_BASE, "NAME[:DEVICE]", 0,
	 "Base provider (tcp) and device that writes arrive "
	 "through",
	 0},
	{"table", OPT_TABLE, NULL, 0,
	 "Print which method makes which memory durable", 0},
	{"stats", OPT_STATS, "PID", OPTION_ARG_OPTIONAL,
	 "Print the counters of a running process, or of all", 0},
	{"watch", OPT_WATCH, "SECONDS", OPTION_ARG_OPTIONAL,
	 "Repeat --stats each second, or after SECONDS", 0},
	{"prometheus", OPT_PROMETHEUS, NULL, 0,
	 "Print --stats for node_exporter's textfile collector", 0},
	{"json", OPT_JSON, NULL, 0, "Print JSON", 0},
	{0},
};

/* Parse a number from 1 to max; without an argument return 0. */
static uint64_t parse_number(struct argp_state *state, const char *option,
			     const char *arg, uint64_t max)
{
	char err[RP_ERR_LEN];
	uint64_t v = 0;

	if (arg && rp_number_parse(arg, 1, max, &v, err))
		argp_error(state, "%s: %s", option, err);
	return v;
}

static void check_options(struct argp_state *state, const struct info_cfg *cfg)
{
	if (cfg->counts &&
	    (cfg->doctor || cfg->n || cfg->target || cfg->table || cfg->advise))
		argp_error(state, "--stats stands alone");
	if ((cfg->stats.watch || cfg->stats.prometheus) && !cfg->counts)
		argp_error(state, "--watch and --prometheus go with --stats");
	if (cfg->target && (cfg->doctor || cfg->n || cfg->advise))
		argp_error(state, "--target stands alone");
	if (cfg->table && (cfg->doctor || cfg->n || cfg->target || cfg->advise))
		argp_error(state, "--table stands alone");
	if (cfg->advise && cfg->doctor)
		argp_error(state, "give one of --advise and --doctor");
	if (cfg->advise && cfg->n > 1)
		argp_error(state, "--advise measures in one PATH");
	if (cfg->seconds && !cfg->advise)
		argp_error(state, "--seconds goes with --advise");
	if (cfg->transport.base && !cfg->advise &&
	    (cfg->doctor || cfg->target || !cfg->n))
		argp_error(state, "--base goes with a PATH or --advise");
	if (cfg->secret && !cfg->target && !cfg->advise)
		argp_error(state, "--secret goes with --target or --advise");
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct info_cfg *cfg = state->input;

	switch (key) {
	case OPT_ADVISE:
		cfg->advise = true;
		return 0;
	case OPT_SECONDS:
		cfg->seconds = (unsigned int)parse_number(state, "--seconds",
							  arg, 86400);
		return 0;
	case OPT_DOCTOR:
		cfg->doctor = true;
		return 0;
	case OPT_STATS:
		cfg->counts = true;
		cfg->stats.pid =
			(pid_t)parse_number(state, "--stats", arg, INT32_MAX);
		return 0;
	case OPT_WATCH:
		cfg->stats.watch = arg ? (unsigned int)parse_number(
						 state, "--watch", arg, 86400)
				       : 1;
		return 0;
	case OPT_PROMETHEUS:
		cfg->stats.prometheus = true;
		return 0;
	case OPT_JSON:
		cfg->json = cfg->stats.json = true;
		return 0;
	case OPT_TABLE:
		cfg->table = true;
		return 0;
	case OPT_BASE:
		cfg->transport.base = arg;
		cfg->transport.device = strchr(arg, ':');
		if (cfg->transport.device)
			arg[cfg->transport.device++ - arg] = '\0';
		if (!*arg)
			argp_error(state, "--base names a provider");
		return 0;
	case OPT_TARGET:
		cfg->target = arg;
		return 0;
	case OPT_SECRET:
		cfg->secret = arg;
		return 0;
	case ARGP_KEY_END:
		check_options(state, cfg);
		return 0;
	case ARGP_KEY_ARGS:
		cfg->paths = state->argv + state->next;
		cfg->n = (size_t)(state->argc - state->next);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse_opt,
	.args_doc = "[PATH...]",
	.doc = "Prints what this host promises about the durability of "
	       "remote writes, and why. For each PATH (a file, a folder "
	       "or a DAX device) it prints what memory mapped from "
	       "there promises.\vExit status: 0 no problem, 1 warnings, "
	       "2 wrong usage, 3 a check fails.",
};
__attribute__((visibility("default"))) /* argp reads the variable */
const char *argp_program_version = "fi_rpmem_info " PACKAGE_VERSION;

static void print_json(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
}

static int exit_code(int worst)
{
	if (worst == DOCTOR_OK)
		return RP_EXIT_OK;
	return worst == DOCTOR_WARN ? RP_EXIT_PARTLY : RP_EXIT_NOTHING;
}

static int run_doctor(const struct info_cfg *cfg)
{
	json_t *checks = doctor_run(cfg->paths, cfg->n);
	int worst = doctor_worst(checks);

	if (cfg->json)
		print_json(checks);
	else
		doctor_print(checks);
	json_decref(checks);
	return exit_code(worst);
}

/* A path without durability is a warning, not a failure. */
static int run_host(const struct info_cfg *cfg)
{
	json_t *paths = json_array(), *path, *o;
	json_t *host = info_host();
	int worst = DOCTOR_OK;
	size_t i;

	for (i = 0; i < cfg->n; i++) {
		path = info_path(cfg->paths[i], &cfg->transport);
		if (!json_is_string(json_object_get(path, "class")))
			worst = DOCTOR_WARN;
		json_array_append_new(paths, path);
	}
	if (!json_is_string(json_object_get(json_object_get(host, "provider"),
					    "version")))
		worst = DOCTOR_WARN;
	o = json_pack("{s:o, s:o}", "host", host, "paths", paths);
	if (cfg->json) {
		print_json(o);
	} else {
		info_host_print(host);
		json_array_foreach(paths, i, path) info_path_print(path);
	}
	json_decref(o);
	return exit_code(worst);
}

static int run_table(const struct info_cfg *cfg)
{
	json_t *table = info_table();

	if (cfg->json)
		print_json(table);
	else
		info_table_print(table);
	json_decref(table);
	return RP_EXIT_OK;
}

static void interrupt(int sig)
{
	advise_interrupted = 1;
}

static int run_advise(const struct info_cfg *cfg)
{
	/* Handle signals, so that the sample file is removed. */
	const struct sigaction sa = {
		.sa_handler = interrupt,
		.sa_flags = (int)SA_RESETHAND,
	};
	struct rp_secret secret = {0};
	const struct advise_cfg advise = {
		.where = cfg->n ? cfg->paths[0] : ".",
		.transport = &cfg->transport,
		.secret = cfg->secret ? &secret : NULL,
		.seconds = cfg->seconds,
	};
	char err[RP_ERR_LEN];
	json_t *report;

	if (cfg->secret && rp_secret_load(cfg->secret, &secret, err)) {
		fprintf(stderr, "fi_rpmem_info: %s\n", err);
		return RP_EXIT_NOTHING;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	report = advise_run(&advise, err);
	rp_secret_wipe(&secret);
	if (!report) {
		fprintf(stderr, "fi_rpmem_info: %s\n", err);
		return RP_EXIT_NOTHING;
	}
	if (cfg->json)
		print_json(report);
	else
		advise_print(report);
	json_decref(report);
	return RP_EXIT_OK;
}

static int run_target(const struct info_cfg *cfg)
{
	struct rp_secret secret = {0};
	char err[RP_ERR_LEN];
	json_t *o = NULL;
	int ret, code;

	if (cfg->secret && rp_secret_load(cfg->secret, &secret, err)) {
		fprintf(stderr, "fi_rpmem_info: %s\n", err);
		return RP_EXIT_NOTHING;
	}
	ret = info_target(cfg->target, cfg->secret ? &secret : NULL, &o, err);
	rp_secret_wipe(&secret);
	if (ret) {
		fprintf(stderr, "fi_rpmem_info: %s\n", err);
		/* -EINVAL: the argument has no valid host or pool name. */
		return ret == -EINVAL ? RP_EXIT_USAGE : RP_EXIT_NOTHING;
	}
	code = json_object_get(o, "refused") ? DOCTOR_WARN : DOCTOR_OK;
	if (cfg->json)
		print_json(o);
	else
		info_target_print(o);
	json_decref(o);
	return exit_code(code);
}

int main(int argc, char **argv)
{
	struct info_cfg cfg = {0};

	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &cfg);
	if (cfg.counts)
		return info_stats(&cfg.stats);
	if (cfg.table)
		return run_table(&cfg);
	if (cfg.advise)
		return run_advise(&cfg);
	if (cfg.target)
		return run_target(&cfg);
	return cfg.doctor ? run_doctor(&cfg) : run_host(&cfg);
}
