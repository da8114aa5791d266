// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_cp: copies a file to a pool of fi_rpmemd durably, or back. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "core/caps.h"
#include "core/method.h"
#include "rpmem/ext.h"
#include "util/clock.h"
#include "util/copy.h"

__attribute__((visibility("default"))) /* argp reads it */
const char *argp_program_version = "fi_rpmem_cp " PACKAGE_VERSION;

static const char doc[] =
	"Copies a file to a pool that fi_rpmemd exports, or "
	"back. A copy to a pool ends when every byte is durable "
	"there.\vPOOL is the name of the pool file without its "
	"folder. OFFSET is a number of bytes, or 64K, 10M, 1G. "
	"An interrupted copy to a pool prints the number of "
	"durable bytes and the command to resume. fi_rpmem_cp(1) "
	"lists the exit codes.";

static const char args_doc[] = "FILE HOST[:PORT]:POOL[@OFFSET]\n"
			       "HOST[:PORT]:POOL[@OFFSET] FILE";

enum {
	OPT_ACK_LOG = 256,
	OPT_CHUNK,
	OPT_CLASS,
	OPT_JSON,
	OPT_TIMEOUT,
	OPT_WAIT,
	OPT_WINDOW,
};

static const struct argp_option options[] = {
	{"resume", 'r', NULL, 0,
	 "Skip chunks that the pool already has; commit everything", 1},
	{"verify", 'v', NULL, 0, "Read back and compare SHA-256", 1},
	{"length", 'n', "SIZE", 0,
	 "From a pool: copy SIZE bytes (as many as were copied to it, or all)",
	 1},
	{"class", OPT_CLASS, "CLASS", 0,
	 "What the bytes must survive: power, process or none (power)", 1},
	{"secret", 's', "FILE", 0, "File with the secret of the daemon", 2},
	{"chunk", OPT_CHUNK, "SIZE", 0, "Bytes per write (1M)", 3},
	{"window", OPT_WINDOW, "N", 0, "Chunks outstanding at once (16)", 3},
	{"timeout", OPT_TIMEOUT, "S", 0,
	 "Give up on a target silent for S seconds (30)", 3},
	{"wait", OPT_WAIT, "S", 0,
	 "Wait up to S seconds for a daemon that is starting (2)", 3},
	{"quiet", 'q', NULL, 0, "Print neither progress bar nor summary", 4},
	{"json", OPT_JSON, NULL, 0, "Print the result as JSON", 4},
	{"ack-log", OPT_ACK_LOG, "FILE", 0,
	 "Append the number of durable bytes to FILE, one line "
	 "after each commit",
	 4},
	{0},
};

struct args {
	struct copy_cfg cfg;
	const char *words[2];
	const char *secret_file;
	struct rp_secret secret;
	char err[RP_ERR_LEN];
	int argc;
	char **argv;
};

/* A remote name has a colon before any slash, as in scp. */
static bool is_remote(const char *s)
{
	size_t n = strcspn(s, ":/");

	return s[n] == ':' || s[0] == '[';
}

static int parse_remote(struct args *a, const char *s)
{
	struct copy_cfg *cfg = &a->cfg;
	int used = rp_setup_parse_target(s, &cfg->target, a->err);
	const char *pool, *at;
	size_t len;

	if (used < 0)
		return used;
	pool = s + used + (s[used] == ':');
	at = strrchr(pool, '@');
	len = at ? (size_t)(at - pool) : strlen(pool);
	if (at && rp_size_parse(at + 1, &cfg->offset, NULL))
		return rp_err(a->err, -EINVAL,
			      "'%s' is not an offset (a pool with @ in its "
			      "name needs @0 behind it)",
			      at + 1);
	if (len == 0 || len > RP_SETUP_NAME)
		return rp_err(a->err, -EINVAL,
			      "'%s' names no pool; give HOST:POOL, where POOL "
			      "is the pool file's name",
			      s);
	memcpy(cfg->pool, pool, len);
	cfg->pool[len] = 0;
	if (!rp_setup_name_ok(cfg->pool))
		return rp_err(a->err, -EINVAL,
			      "'%s' is no pool's name; leave the folder out",
			      cfg->pool);
	cfg->remote = s;
	return 0;
}

static void parse_words(struct argp_state *state, struct args *a)
{
	struct copy_cfg *cfg = &a->cfg;
	bool from = is_remote(a->words[0]), to = is_remote(a->words[1]);

	if (from && to)
		argp_error(state, "one of the two must be a local file; a "
				  "local name with a colon needs ./ before it");
	if (!from && !to)
		argp_error(state,
			   "one of the two must be HOST:POOL, as in "
			   "localhost:%s",
			   "vol0");
	cfg->up = to;
	cfg->file = a->words[from];
	if (!strcmp(cfg->file, "-"))
		argp_error(state, "standard input and output cannot be copied; "
				  "name a file, or ./- for a file named -");
	if (parse_remote(a, a->words[to]))
		argp_error(state, "%s", a->err);
	if (cfg->up && cfg->length)
		argp_error(state, "--length is for copies from a pool; to a "
				  "pool the whole file is copied");
	if (!cfg->up && (cfg->resume || cfg->ack_log))
		argp_error(state, "--resume and --ack-log are for copies to a "
				  "pool");
}

static void parse_class(struct argp_state *state, struct args *a, const char *s)
{
	enum rp_class c;

	if (rp_class_parse(s, &c))
		argp_error(state, "--class %s: give power, process or none", s);
	a->cfg.class = rp_class_encode(c);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct args *a = state->input;
	struct copy_cfg *cfg = &a->cfg;
	uint64_t v;

	switch (key) {
	case 'r':
		cfg->resume = true;
		return 0;
	case 'v':
		cfg->verify = true;
		return 0;
	case 'q':
		cfg->quiet = true;
		return 0;
	case 's':
		a->secret_file = arg;
		return 0;
	case 'n':
		if (rp_size_parse(arg, &cfg->length, a->err))
			argp_error(state, "--length: %s", a->err);
		if (!cfg->length)
			argp_error(state, "--length: give a size above 0");
		return 0;
	case OPT_CLASS:
		parse_class(state, a, arg);
		return 0;
	case OPT_JSON:
		cfg->json = true;
		return 0;
	case OPT_ACK_LOG:
		cfg->ack_log = arg;
		return 0;
	case OPT_CHUNK:
		if (rp_size_parse(arg, &cfg->chunk, a->err))
			argp_error(state, "--chunk: %s", a->err);
		if (cfg->chunk < 4096 || cfg->chunk > COPY_CHUNK_MAX)
			argp_error(state, "--chunk: give 4K to 64M");
		return 0;
	case OPT_WINDOW:
		if (rp_number_parse(arg, 1, COPY_WINDOW_MAX, &cfg->window,
				    a->err))
			argp_error(state, "--window: %s", a->err);
		return 0;
	case OPT_TIMEOUT:
		if (rp_number_parse(arg, 1, 86400, &v, a->err))
			argp_error(state, "--timeout: %s", a->err);
		cfg->timeout = (unsigned int)v;
		return 0;
	case OPT_WAIT:
		if (rp_number_parse(arg, 0, 86400, &v, a->err))
			argp_error(state, "--wait: %s", a->err);
		cfg->target.wait_ms = (unsigned int)v * 1000;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num >= 2)
			argp_error(state, "one file at a time");
		a->words[state->arg_num] = arg;
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num < 2)
			argp_error(state, "name a file and HOST:POOL");
		parse_words(state, a);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int open_file(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	struct stat st;

	if (cfg->ack_log) {
		c->ack_fd =
			open(cfg->ack_log,
			     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
		if (c->ack_fd < 0) {
			rp_err(c->err, 0, "--ack-log '%s': %s", cfg->ack_log,
			       strerror(errno));
			return RP_EXIT_FILE;
		}
	}
	if (!cfg->up)
		return 0;
	c->fd = open(cfg->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->fd < 0 || fstat(c->fd, &st)) {
		rp_err(c->err, 0, "'%s' cannot be read: %s", cfg->file,
		       strerror(errno));
		return RP_EXIT_FILE;
	}
	if (!S_ISREG(st.st_mode)) {
		rp_err(c->err, 0, "'%s' is not a regular file", cfg->file);
		return RP_EXIT_FILE;
	}
	c->size = (uint64_t)st.st_size;
	return 0;
}

static int run(struct copy *c)
{
	int ret = open_file(c);

	if (!ret)
		ret = copy_open(c);
	if (ret)
		return ret;
	if (!c->cfg->up)
		return copy_down(c);
	ret = copy_begin(c);
	if (!ret)
		ret = copy_up(c);
	if (!ret && c->cfg->verify)
		ret = copy_verify(c);
	return ret ? ret : copy_end(c);
}

/*
 * After a failed flush the page cache of the target may hold bytes that the
 * disk does not have and will not get, so comparing with them is wrong.
 */
static bool may_compare(const struct copy *c)
{
	return c->status != RP_ST_FLUSH_FAILED &&
	       c->status != RP_ST_REGION_FAILED;
}

static void append(char *buf, size_t size, const char *s)
{
	size_t n = strlen(buf);

	snprintf(buf + n, size - n, "%s", s);
}

/* Append s as one shell word. */
static void append_quoted(char *buf, size_t size, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789@%+=:,./_-";

	if (*s && s[strspn(s, plain)] == 0) {
		append(buf, size, s);
		return;
	}
	append(buf, size, "'");
	for (; *s; s++) {
		char one[2] = {*s, 0};

		append(buf, size, *s == '\'' ? "'\\''" : one);
	}
	append(buf, size, "'");
}

/* Build the command that continues the copy. */
static void resume_command(const struct args *a, const struct copy *c,
			   char *buf, size_t size)
{
	bool resume = may_compare(c);

	buf[0] = 0;
	append_quoted(buf, size, a->argv[0]);
	if (resume)
		append(buf, size, " --resume");
	for (int i = 1; i < a->argc; i++) {
		if (!strcmp(a->argv[i], "--resume") ||
		    !strcmp(a->argv[i], "-r"))
			continue;
		append(buf, size, " ");
		append_quoted(buf, size, a->argv[i]);
	}
}

/* Whether acknowledged bytes are durable: class none survives nothing. */
static bool is_durable(const struct copy *c)
{
	return !c->method || c->class != RP_CLASS_NONE;
}

static void format_hex(const uint8_t *sum, char *buf)
{
	for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++)
		sprintf(buf + 2 * i, "%02x", sum[i]);
}

/*
 * How many of these bytes travelled to the pool. Zeros did not, nor what
 * --resume has only compared.
 */
static uint64_t sent_bytes(const struct copy *c, uint64_t bytes)
{
	const uint64_t not_sent = c->skipped + c->zeros;

	return bytes > not_sent ? bytes - not_sent : 0;
}

static void print_json(const struct copy *c, int code, uint64_t ms,
		       const char *resume)
{
	const struct copy_cfg *cfg = c->cfg;
	char sum[2 * SHA256_DIGEST_SIZE + 1];
	json_t *o = json_pack(
		"{ss ss ss* ss ss sI sI sI sf}", "result",
		code ? "failed" : "ok", "direction", cfg->up ? "up" : "down",
		"file", cfg->file, "host", cfg->target.host, "pool", cfg->pool,
		"port", (json_int_t)cfg->target.port, "offset",
		(json_int_t)cfg->offset, "bytes", (json_int_t)c->size,
		"seconds", (double)ms / 1000);

	json_object_set_new(o, "exit_code", json_integer(code));
	if (cfg->up) {
		json_object_set_new(o,
				    is_durable(c) ? "durable_bytes"
						  : "acknowledged_bytes",
				    json_integer((json_int_t)c->acked));
		json_object_set_new(o, "skipped_bytes",
				    json_integer((json_int_t)c->skipped));
		json_object_set_new(
			o, "sent_bytes",
			json_integer((json_int_t)sent_bytes(c, c->acked)));
		json_object_set_new(o, "zero_bytes",
				    json_integer((json_int_t)c->zeros));
		json_object_set_new(o, "class",
				    json_string(rp_class_name(c->class)));
		json_object_set_new(
			o, "method",
			json_string(rp_method_name((enum rp_method)c->method)));
	}
	if (!code && cfg->verify) {
		format_hex(c->sha_pool, sum);
		json_object_set_new(o, "sha256", json_string(sum));
	}
	if (code)
		json_object_set_new(o, "error", json_string(c->err));
	if (resume[0])
		json_object_set_new(o, "resume", json_string(resume));
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static void print_done(const struct copy *c, uint64_t ms)
{
	const struct copy_cfg *cfg = c->cfg;
	char size[RP_SIZE_LEN], rate[RP_SIZE_LEN], present[RP_SIZE_LEN];
	/* Bytes that --resume has only compared were not written. */
	const uint64_t written = c->size - c->skipped;
	char sum[2 * SHA256_DIGEST_SIZE + 1];

	printf("%s: %s in %.2f s, %s/s",
	       cfg->up && is_durable(c) ? "durable" : "copied",
	       rp_size_format(c->size, size), (double)ms / 1000,
	       rp_size_format(ms ? written * 1000 / ms : written, rate));
	if (cfg->up)
		printf(", class %s by %s", rp_class_name(c->class),
		       rp_method_name((enum rp_method)c->method));
	if (c->skipped)
		printf(", %s of it already there and not sent",
		       rp_size_format(c->skipped, present));
	if (c->zeros)
		printf(", %s of it zeros and not sent",
		       rp_size_format(c->zeros, present));
	putchar('\n');
	if (cfg->verify) {
		format_hex(c->sha_pool, sum);
		printf("verified: SHA-256 %s\n", sum);
	}
}

static void print_failed(const struct copy *c, int code, const char *resume)
{
	fprintf(stderr, "fi_rpmem_cp: %s\n", c->err);
	if (!resume[0])
		return;
	fprintf(stderr, "%s: the first %" PRIu64 " of %" PRIu64 " bytes\n",
		is_durable(c) ? "durable" : "acknowledged", c->acked, c->size);
	if (may_compare(c))
		fprintf(stderr, "resume:  %s\n", resume);
	else
		fprintf(stderr,
			"check the target's disk, restart fi_rpmemd, then copy "
			"the whole file again:\n  %s\n",
			resume);
}

static void interrupt(int sig)
{
	copy_interrupted = 1;
}

static void set_signals(void)
{
	/* No SA_RESTART: the signal must interrupt fi_cq_sread(). */
	struct sigaction sa = {
		.sa_handler = interrupt,
		/* A second signal ends the program at once. */
		.sa_flags = (int)SA_RESETHAND,
	};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, args_doc, doc, NULL, NULL, NULL,
	};
	static struct args a = {
		.cfg =
			{
				.target.wait_ms = 2000,
				.class = FI_RPMEM_CLASS_DEFAULT,
				.chunk = 1 << 20,
				.window = 16,
				.timeout = 30,
			},
	};
	static struct copy c = {.cfg = &a.cfg, .fd = -1, .ack_fd = -1};
	static char resume[8192];
	uint64_t began;
	int code;

	argp_err_exit_status = RP_EXIT_USAGE;
	a.argc = argc;
	a.argv = argv;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.secret_file) {
		if (rp_secret_load(a.secret_file, &a.secret, a.err)) {
			fprintf(stderr, "fi_rpmem_cp: %s\n", a.err);
			return RP_EXIT_SECRET;
		}
		a.cfg.target.secret = &a.secret;
	}
	set_signals();
	began = rp_now_ms();
	code = run(&c);
	began = rp_now_ms() - began;
	if (code == RP_EXIT_BROKEN && !copy_interrupted)
		copy_explain(&c);
	if (a.cfg.up && code == RP_EXIT_BROKEN)
		resume_command(&a, &c, resume, sizeof(resume));
	if (code)
		print_failed(&c, code, resume);
	if (a.cfg.json)
		print_json(&c, code, began, resume);
	else if (!code && !a.cfg.quiet)
		print_done(&c, began);
	copy_close(&c);
	rp_secret_wipe(&a.secret);
	return code;
}
