// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_crashtest: tests if acknowledged work survives power cuts. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/argp_number.h"
#include "util/crashtest/crashtest.h"
#include "util/crashtest/report.h"
#include "util/crashtest/result.h"
#include "util/crashtest/trace.h"
#include "util/text.h"

#define IMAGES	    200
#define IMAGES_LONG 10000

__attribute__((visibility("default"))) /* argp reads it */
const char *argp_program_version = "fi_rpmem_crashtest " PACKAGE_VERSION;

static const char doc[] =
	"Runs COMMAND, records what it writes and what it makes durable, and "
	"runs a check on images that a power cut may leave.\v"
	"COMMAND appends a line to $RPMEM_CRASHTEST_LEDGER when it has "
	"acknowledged something. The check finds the image in "
	"$RPMEM_CRASHTEST_DIR, or $RPMEM_CRASHTEST_POOL, and the lines that "
	"were acknowledged before the cut in $RPMEM_CRASHTEST_LEDGER. Exit "
	"status: 0 acquitted, 1 convicted, 2 not tested. "
	"fi_rpmem_crashtest(1) says which images are legal.";

enum {
	OPT_ANY_STATUS = 256,
	OPT_CHECK,
	OPT_DEVICE,
	OPT_FILES,
	OPT_FILTER,
	OPT_FS,
	OPT_HTML,
	OPT_IMAGE,
	OPT_IMAGES,
	OPT_JOBS,
	OPT_JSON,
	OPT_KEEP,
	OPT_LOG,
	OPT_LONG,
	OPT_MOUNT,
	OPT_POOL,
	OPT_REPORT,
	OPT_SEED,
	OPT_SETUP,
	OPT_TIMEOUT,
};

static const struct argp_option options[] = {
	{"files", OPT_FILES, "DIR", 0, "COMMAND writes files below DIR", 1},
	{"device", OPT_DEVICE, "SIZE", 0,
	 "COMMAND writes to a file system on a block device of this size", 1},
	{"pool", OPT_POOL, "SIZE", 0,
	 "COMMAND writes to a pool of fi_rpmemd of this size", 1},
	{"check", OPT_CHECK, "COMMAND", 0,
	 "Recover and check an image; fails if something is lost or damaged",
	 2},
	{"setup", OPT_SETUP, "COMMAND", 0,
	 "Run before, on the device or pool: its work is durable", 2},
	{"any-status", OPT_ANY_STATUS, NULL, 0,
	 "COMMAND may fail, or be killed", 2},
	{"fs", OPT_FS, "TYPE", 0, "File system of the device (ext4)", 3},
	{"mount-options", OPT_MOUNT, "OPTIONS", 0, "Of that file system", 3},
	{"nbdkit-filter", OPT_FILTER, "FILTER", 0,
	 "Load an nbdkit filter, or pass NAME=VALUE to the filters loaded", 3},
	{"images", OPT_IMAGES, "N", 0, "Check up to N images (200)", 4},
	{"long", OPT_LONG, NULL, 0, "Check up to 10000 images", 4},
	{"jobs", OPT_JOBS, "N", 0,
	 "Number of checks run in parallel (processors)", 4},
	{"seed", OPT_SEED, "N", 0, "Seed of the random images", 4},
	{"timeout", OPT_TIMEOUT, "S", 0,
	 "A check that takes longer has failed (60)", 4},
	{"json", OPT_JSON, "FILE", 0, "Write the result as JSON", 5},
	{"html", OPT_HTML, "FILE", 0, "Write a report", 5},
	{"keep", OPT_KEEP, "DIR", 0,
	 "Make DIR, with the smallest image that fails", 5},
	{"log", OPT_LOG, "FILE", 0,
	 "Write the record of the run; with --image, read it", 5},
	{"image", OPT_IMAGE, "IMAGE", 0, "Check one image of the record again",
	 6},
	{"report", OPT_REPORT, "RESULT", 0,
	 "Write the report of an earlier --json FILE", 6},
	{0},
};

static void parse_mode(struct argp_state *state, struct crash_options *o,
		       enum crash_mode mode, const char *arg)
{
	char err[RP_ERR_LEN];

	if (o->run.mode)
		argp_error(state, "give one of --files, --device and --pool");
	o->run.mode = mode;
	if (mode == CRASH_FILES)
		o->run.folder = arg;
	else if (rp_size_parse(arg, &o->run.size, err))
		argp_error(state, "--%s: %s",
			   mode == CRASH_DEVICE ? "device" : "pool", err);
}

static void parse_filter(struct argp_state *state, struct crash_options *o,
			 const char *arg)
{
	char *text;

	if (o->run.filter_count == CRASH_FILTERS)
		argp_error(state, "at most %d times --nbdkit-filter",
			   CRASH_FILTERS);
	if (asprintf(&text, "%s%s", strchr(arg, '=') ? "" : "--filter=", arg) <
	    0)
		argp_error(state, "out of memory");
	o->run.filters[o->run.filter_count++] = text;
}

/* Refuse options that the mode does not have. */
static void check_device(struct argp_state *state,
			 const struct crash_options *o)
{
	if (o->run.mode != CRASH_DEVICE &&
	    (o->run.mount_options || o->run.filter_count))
		argp_error(state, "--mount-options and --nbdkit-filter go with "
				  "--device");
	if (o->run.mode == CRASH_FILES && o->run.setup)
		argp_error(state, "--setup goes with --device and --pool; with "
				  "--files run it before");
	if (strspn(o->run.fs, "abcdefghijklmnopqrstuvwxyz0123456789") !=
	    strlen(o->run.fs))
		argp_error(state, "--fs %s: give a name such as ext4",
			   o->run.fs);
}

static void check_args(struct argp_state *state, const struct crash_options *o)
{
	if (o->report) {
		if (!o->html && !o->json)
			argp_error(state, "--report goes with --html FILE");
		return;
	}
	if (!o->run.mode)
		argp_error(state, "give one of --files DIR, --device SIZE and "
				  "--pool SIZE");
	if (!o->check)
		argp_error(state, "give --check COMMAND: without one nothing "
				  "can fail");
	if (o->image ? !o->log || o->command : !o->command)
		argp_error(state, o->image
					  ? "--image goes with --log FILE, and "
					    "without COMMAND"
					  : "give COMMAND after --");
	check_device(state, o);
}

static error_t parse_count(int key, char *arg, struct argp_state *state)
{
	struct crash_options *o = state->input;

	switch (key) {
	case OPT_IMAGES:
		o->images = rp_argp_number(state, "images", arg, 1, 10000000);
		return 0;
	case OPT_LONG:
		o->images = IMAGES_LONG;
		return 0;
	case OPT_JOBS:
		o->jobs = (unsigned int)rp_argp_number(state, "jobs", arg, 1,
						       CRASH_JOBS);
		return 0;
	case OPT_SEED:
		o->seed = rp_argp_number(state, "seed", arg, 0, UINT32_MAX);
		return 0;
	case OPT_TIMEOUT:
		o->timeout = rp_argp_number(state, "timeout", arg, 1, 86400);
		return 0;
	case ARGP_KEY_ARG:
		/* COMMAND is the first word that is no option, and the rest. */
		o->command = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		check_args(state, o);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct crash_options *o = state->input;
	const struct {
		int key;
		const char **value;
	} texts[] = {
		{OPT_CHECK, &o->check}, {OPT_SETUP, &o->run.setup},
		{OPT_FS, &o->run.fs},	{OPT_MOUNT, &o->run.mount_options},
		{OPT_JSON, &o->json},	{OPT_HTML, &o->html},
		{OPT_KEEP, &o->keep},	{OPT_LOG, &o->log},
		{OPT_IMAGE, &o->image}, {OPT_REPORT, &o->report},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (key == texts[i].key) {
			*texts[i].value = arg;
			return 0;
		}
	switch (key) {
	case OPT_FILES:
		parse_mode(state, o, CRASH_FILES, arg);
		return 0;
	case OPT_DEVICE:
		parse_mode(state, o, CRASH_DEVICE, arg);
		return 0;
	case OPT_POOL:
		parse_mode(state, o, CRASH_POOL, arg);
		return 0;
	case OPT_FILTER:
		parse_filter(state, o, arg);
		return 0;
	case OPT_ANY_STATUS:
		o->any_status = true;
		return 0;
	default:
		return parse_count(key, arg, state);
	}
}

/* The daemon of the same build or installation. */
static void find_daemon(char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 16);
	char *slash;

	path[n < 0 ? 0 : n] = 0;
	slash = strrchr(path, '/');
	if (slash)
		strcpy(slash + 1, "fi_rpmemd");
	if (!slash || access(path, X_OK))
		snprintf(path, len, "fi_rpmemd");
}

static int say(const char *file, const char *why)
{
	fprintf(stderr, "fi_rpmem_crashtest: %s: %s\n", file, why);
	return CRASH_EXIT_NOT_TESTED;
}

static int write_html(const json_t *result, const char *path)
{
	FILE *f = fopen(path, "we");
	int ret;

	if (!f)
		return say(path, strerror(errno));
	ret = crash_report_html(result, f);
	if (fclose(f) && !ret)
		ret = -errno;
	return ret ? say(path, strerror(-ret)) : 0;
}

static int write_files(const struct crash_options *o, const json_t *result)
{
	if (o->json && json_dump_file(result, o->json, JSON_INDENT(1)))
		return say(o->json, "cannot be written");
	return o->html ? write_html(result, o->html) : 0;
}

static int try_file(const char *path)
{
	struct stat st;
	const bool is_new = stat(path, &st);
	int fd;

	/* Do not try a pipe: its reader would see the end of it. */
	if (!is_new && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return say(path, strerror(errno));
	close(fd);
	if (is_new)
		unlink(path);
	return 0;
}

/* Before COMMAND runs, refuse result files that cannot be written. */
static int try_files(const struct crash_options *o)
{
	const char *const files[] = {o->json, o->html,
				     o->image ? NULL : o->log};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (files[i] && try_file(files[i]))
			return CRASH_EXIT_NOT_TESTED;
	if (!o->keep)
		return 0;
	if (mkdir(o->keep, 0755))
		return say(o->keep, errno == EEXIST
					    ? "is there already; give a new "
					      "folder to --keep"
					    : strerror(errno));
	rmdir(o->keep);
	return 0;
}

static int report_again(const struct crash_options *o)
{
	json_error_t err;
	json_t *result = json_load_file(o->report, 0, &err);
	int ret;

	if (!result)
		return say(o->report, err.text);
	crash_report_text(result, stdout);
	ret = write_files(o, result);
	json_decref(result);
	return ret;
}

static const char *const modes[] = {
	[CRASH_FILES] = "files",
	[CRASH_DEVICE] = "device",
	[CRASH_POOL] = "pool",
};

static int report(struct crash_test *t, int code)
{
	static const char *const verdicts[] = {
		[CRASH_EXIT_ACQUITTED] = "acquitted",
		[CRASH_EXIT_CONVICTED] = "convicted",
		[CRASH_EXIT_NOT_TESTED] = "not tested",
	};
	const struct crash_outcome r = {
		.history = &t->history,
		.command = t->o->command,
		.mode = modes[t->o->run.mode],
		.verdict = verdicts[code],
		.reason = t->reason,
		.sample = &t->sample,
		.checked = t->checked,
		.failed = t->failed,
		.killed = t->killed,
		.shrunk = code == CRASH_EXIT_CONVICTED ? &t->shrunk : NULL,
		.repeat = t->repeat ? t->repeat : "",
	};
	json_t *result;

	/* After a failed recording, report the events recorded so far. */
	if (!t->history.log && crash_history_make(&t->history, &t->log))
		return say("report", "out of memory");
	result = crash_result_json(&r);
	if (!result)
		return say("report", "out of memory");
	crash_report_text(result, stdout);
	if (write_files(t->o, result))
		code = CRASH_EXIT_NOT_TESTED;
	json_decref(result);
	return code;
}

static void interrupt(int sig)
{
	(void)sig;
	crash_interrupted = 1;
}

/* Catch signals, to remove mounts and folders before the tool ends. */
static void catch_signals(void)
{
	const struct sigaction a = {.sa_handler = interrupt};

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGHUP, &a, NULL);
}

static int run(struct crash_test *t)
{
	int code = CRASH_EXIT_ACQUITTED;

	t->sample.seed = t->o->seed;
	if (crash_test_record(t) || crash_test_explore(t))
		code = CRASH_EXIT_NOT_TESTED;
	else if (t->failed)
		code = CRASH_EXIT_CONVICTED;
	else if (!t->history.acks[t->log.event_count - 1])
		snprintf(t->reason, sizeof(t->reason),
			 "nothing was acknowledged in the ledger, so only "
			 "consistency was tested");
	return report(t, code);
}

static int repeat(struct crash_test *t)
{
	if (crash_test_repeat(t))
		return say(t->o->log, t->reason);
	printf("%s\n", t->failed ? "convicted" : "acquitted");
	return t->failed ? CRASH_EXIT_CONVICTED : CRASH_EXIT_ACQUITTED;
}

int main(int argc, char *argv[])
{
	static const struct argp argp = {
		options, parse_option, "-- COMMAND [ARG...]", doc, NULL,
		NULL,	 NULL};
	static struct crash_test test;
	struct crash_options o = {
		.images = IMAGES,
		.seed = 1,
		.timeout = 60,
		.run.fs = "ext4",
	};
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int code;

	argp_err_exit_status = CRASH_EXIT_NOT_TESTED;
	o.jobs = processors < 1		   ? 1
		 : processors > CRASH_JOBS ? CRASH_JOBS
					   : (unsigned int)processors;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	catch_signals();
	if (o.report)
		return report_again(&o);
	if (try_files(&o))
		return CRASH_EXIT_NOT_TESTED;
	find_daemon(o.run.daemon, sizeof(o.run.daemon));
	test.o = &o;
	code = o.image ? repeat(&test) : run(&test);
	crash_test_free(&test);
	for (unsigned int i = 0; i < o.run.filter_count; i++)
		free((char *)o.run.filters[i]);
	return code;
}
