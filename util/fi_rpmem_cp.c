// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_cp: copies a file to a pool of fi_rpmemd durably, or back. */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "util/clock.h"
#include "util/copy.h"
#include "util/pool_class.h"
#include "util/setup_client.h"

__attribute__((visibility("default"))) /* argp reads the variable */
const char *argp_program_version = "fi_rpmem_cp " PACKAGE_VERSION;

static const char doc[] =
	"Copies a file to a pool that fi_rpmemd exports, or "
	"back. A copy to a pool ends when every byte is durable "
	"there.\vPOOL is the name of the pool file without its "
	"folder; HOST:POOL,HOST:POOL,...;k=N is a group of "
	"pools. OFFSET is a number of bytes, or 64K, 10M, 1G. "
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
	OPT_SKIP,
	OPT_TIMEOUT,
	OPT_WAIT,
	OPT_WINDOW,
};

static const struct argp_option options[] = {
	{"skip", OPT_SKIP, "N", 0,
	 "To a pool: its first N bytes are durable there already; copy the "
	 "rest",
	 1},
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
	 "Give up on a target that is away for S seconds (30)", 3},
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

/* Split @OFFSET off the name of the pool. */
static void parse_remote(struct argp_state *state, struct copy_cfg *cfg,
			 const char *s)
{
	char *at;

	cfg->where = strdup(s);
	at = cfg->where ? strrchr(cfg->where, '@') : NULL;
	if (at && rp_size_parse(at + 1, &cfg->offset, NULL))
		argp_error(state,
			   "'%s' is not an offset (a pool with @ in its name "
			   "needs @0 behind it)",
			   at + 1);
	if (at)
		*at = 0;
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
	parse_remote(state, cfg, a->words[to]);
	if (cfg->up && cfg->length)
		argp_error(state, "--length is for copies from a pool; to a "
				  "pool the whole file is copied");
	if (!cfg->up && (cfg->skip || cfg->ack_log))
		argp_error(state, "--skip and --ack-log are for copies to a "
				  "pool");
}

/* Options that take a number. */
static const struct number {
	int key;
	bool size;
	const char *name;
	uint64_t min, max;
	size_t at; /* offset of the field in struct copy_cfg */
} numbers[] = {
#define AT(field) offsetof(struct copy_cfg, field)
	{'n', true, "length", 1, 1ull << 50, AT(length)},
	{OPT_SKIP, false, "skip", 0, INT64_MAX, AT(skip)},
	{OPT_CHUNK, true, "chunk", 4096, COPY_CHUNK_MAX, AT(chunk)},
	{OPT_WINDOW, false, "window", 1, COPY_WINDOW_MAX, AT(window)},
	{OPT_TIMEOUT, false, "timeout", 1, 86400, AT(timeout)},
	{OPT_WAIT, false, "wait", 0, 86400, AT(wait)},
#undef AT
};

static error_t parse_number(struct argp_state *state, int key, const char *arg)
{
	struct args *a = state->input;
	const struct number *n = numbers;
	const struct number *end = n + sizeof(numbers) / sizeof(*n);
	char min[RP_SIZE_LEN], max[RP_SIZE_LEN];
	uint64_t v = 0;

	while (n < end && n->key != key)
		n++;
	if (n == end)
		return ARGP_ERR_UNKNOWN;
	if (n->size ? rp_size_parse(arg, &v, a->err)
		    : rp_number_parse(arg, n->min, n->max, &v, a->err))
		argp_error(state, "--%s: %s", n->name, a->err);
	if (v < n->min || v > n->max)
		argp_error(state, "--%s: give %s to %s", n->name,
			   rp_size_format(n->min, min),
			   rp_size_format(n->max, max));
	memcpy((char *)&a->cfg + n->at, &v, sizeof(v));
	return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct args *a = state->input;
	struct copy_cfg *cfg = &a->cfg;

	switch (key) {
	case 'v':
		cfg->verify = true;
		return 0;
	case 'q':
		cfg->quiet = true;
		return 0;
	case 's':
		cfg->secret_file = arg;
		return 0;
	case OPT_CLASS:
		if (!rp_pool_class_parse(arg, &cfg->class))
			argp_error(state,
				   "--class %s: give power, process or none",
				   arg);
		return 0;
	case OPT_JSON:
		cfg->json = true;
		return 0;
	case OPT_ACK_LOG:
		cfg->ack_log = arg;
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
		return parse_number(state, key, arg);
	}
}

/* Print s as one shell word. */
static void print_quoted(FILE *f, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789@%+=:,./_-";
	const bool quote = !*s || s[strspn(s, plain)];

	if (quote)
		putc('\'', f);
	for (; *s; s++)
		fprintf(f, *s == '\'' ? "'\\''" : "%c", *s);
	if (quote)
		putc('\'', f);
}

/* Whether acknowledged bytes are durable: in class none they are not. */
static bool is_durable(const struct copy *c)
{
	return !c->info.method || c->info.reached != RPMEM_POOL_NONE;
}

/*
 * Whether the pool still has the durable bytes. After -ESTALE it may not: it is
 * another pool now, or another client has opened it.
 */
static bool may_skip(const struct copy *c)
{
	return is_durable(c) && c->status != -ESTALE;
}

/* Print the command that continues the copy. */
static void print_resume(FILE *f, const struct args *a, const struct copy *c)
{
	print_quoted(f, a->argv[0]);
	if (may_skip(c) && c->acked)
		fprintf(f, " --skip %" PRIu64, c->acked);
	for (int i = 1; i < a->argc; i++) {
		/* Leave out the option --skip of the interrupted run. */
		if (!strncmp(a->argv[i], "--sk", 4)) {
			i += !strchr(a->argv[i], '=');
			continue;
		}
		putc(' ', f);
		print_quoted(f, a->argv[i]);
	}
}

static void format_hex(const uint8_t *sum, char *buf)
{
	for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++)
		sprintf(buf + 2 * i, "%02x", sum[i]);
}

/* The number of acknowledged bytes that were sent to the pool. */
static uint64_t sent_bytes(const struct copy *c)
{
	const uint64_t not_sent = c->cfg->skip + c->zeros;

	return c->acked > not_sent ? c->acked - not_sent : 0;
}

/* Pack a byte count as JSON; NULL, which json_pack() omits, for a copy down. */
static json_t *count(const struct copy *c, uint64_t bytes)
{
	return c->cfg->up ? json_integer((json_int_t)bytes) : NULL;
}

/* Pack text that may be no UTF-8 as JSON; NULL, which json_pack() omits. */
static json_t *text_json(const char *s)
{
	json_t *o = s ? json_string(s) : NULL;
	char *ascii = s && !o ? strdup(s) : NULL;

	if (ascii) {
		rp_text_to_ascii(ascii, '?');
		o = json_string(ascii);
	}
	free(ascii);
	return o;
}

static void print_json(const struct copy *c, int code, uint64_t ms,
		       const char *resume)
{
	const struct copy_cfg *cfg = c->cfg;
	const bool sent = cfg->up && c->info.method;
	struct rp_setup_target t = {.port = 0};
	const int used = rp_names_group(cfg->where)
				 ? -1
				 : rp_setup_parse_target(cfg->where, &t, NULL);
	char sum[2 * SHA256_DIGEST_SIZE + 1];
	json_t *o;

	format_hex(c->sum, sum);
	o = json_pack(
		"{ss ss so* so* so* so* sI sI sf si so* so* so* ss* ss* ss* "
		"so* so*}",
		"result", code ? "failed" : "ok", "direction",
		cfg->up ? "up" : "down", "file", text_json(cfg->file), "host",
		text_json(used > 0 ? t.host : NULL), "port",
		used > 0 ? json_integer(t.port) : NULL, "pool",
		text_json(cfg->where +
			  (used > 0 && cfg->where[used] ? used + 1 : 0)),
		"offset", (json_int_t)cfg->offset, "bytes", (json_int_t)c->size,
		"seconds", (double)ms / 1000, "exit_code", code,
		is_durable(c) ? "durable_bytes" : "acknowledged_bytes",
		count(c, c->acked), "sent_bytes", count(c, sent_bytes(c)),
		"zero_bytes", count(c, c->zeros), "class",
		sent ? rp_pool_class_name(c->info.reached) : NULL, "method",
		sent ? c->info.method : NULL, "sha256",
		!code && cfg->verify ? sum : NULL, "error",
		text_json(code ? c->err : NULL), "resume", text_json(resume));
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static void print_done(const struct copy *c, uint64_t ms)
{
	const struct copy_cfg *cfg = c->cfg;
	char size[RP_SIZE_LEN], rate[RP_SIZE_LEN], rest[RP_SIZE_LEN];
	const uint64_t written = c->size - cfg->skip;
	char sum[2 * SHA256_DIGEST_SIZE + 1];

	printf("%s: %s in %.2f s, %s/s",
	       cfg->up && is_durable(c) ? "durable" : "copied",
	       rp_size_format(c->size, size), (double)ms / 1000,
	       rp_size_format(ms ? written * 1000 / ms : written, rate));
	if (cfg->up)
		printf(", class %s by %s", rp_pool_class_name(c->info.reached),
		       c->info.method);
	if (cfg->skip)
		printf(", %s of it already there and not sent",
		       rp_size_format(cfg->skip, rest));
	if (c->zeros)
		printf(", %s of it zeros and not sent",
		       rp_size_format(c->zeros, rest));
	putchar('\n');
	if (cfg->verify) {
		format_hex(c->sum, sum);
		printf("verified: SHA-256 %s\n", sum);
	}
}

static void print_failed(const struct copy *c, int code, const char *resume)
{
	fprintf(stderr, "fi_rpmem_cp: %s\n", c->err);
	if (!resume)
		return;
	if (c->status != -ESTALE)
		fprintf(stderr,
			"%s: the first %" PRIu64 " of %" PRIu64 " bytes\n",
			is_durable(c) ? "durable" : "acknowledged", c->acked,
			c->size);
	fprintf(stderr, "%s%s\n",
		may_skip(c) ? "resume:  " : "copy the whole file again:\n  ",
		resume);
}

static void interrupt(int sig)
{
	copy_interrupted = 1;
}

static void set_signals(void)
{
	/* No SA_RESTART: the signal interrupts waiting system calls. */
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
				.wait = 2,
				.chunk = 1 << 20,
				.window = 16,
				.timeout = 30,
			},
	};
	static struct copy c = {.cfg = &a.cfg, .fd = -1, .ack_fd = -1};
	const char *class = getenv("FI_OFI_RPMEM_CLASS");
	char *resume = NULL;
	size_t len;
	FILE *f;
	uint64_t began;
	int code;

	argp_err_exit_status = RP_EXIT_USAGE;
	a.argc = argc;
	a.argv = argv;
	if (class)
		rp_pool_class_parse(class, &a.cfg.class);
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.cfg.secret_file &&
	    rp_secret_load(a.cfg.secret_file, &a.cfg.secret, a.err)) {
		fprintf(stderr, "fi_rpmem_cp: %s\n", a.err);
		return RP_EXIT_SECRET;
	}
	set_signals();
	began = rp_now_ms();
	code = copy_run(&c);
	began = rp_now_ms() - began;
	f = a.cfg.up && code == RP_EXIT_BROKEN ? open_memstream(&resume, &len)
					       : NULL;
	if (f) {
		print_resume(f, &a, &c);
		fclose(f);
	}
	if (code)
		print_failed(&c, code, resume);
	if (a.cfg.json)
		print_json(&c, code, began, resume);
	else if (!code && !a.cfg.quiet)
		print_done(&c, began);
	copy_close(&c);
	rp_secret_wipe(&a.cfg.secret);
	free(a.cfg.where);
	free(resume);
	return code;
}
