// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_group: shows, compares and replaces the members of a group. */
#include "config.h"

#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "util/exit_codes.h"
#include "util/group_tool.h"
#include "util/pool_class.h"

__attribute__((visibility("default"))) /* argp reads the variable */
const char *argp_program_version = "fi_rpmem_group " PACKAGE_VERSION;

static const char doc[] =
	"Shows the members of a group of pools, compares their bytes, or puts "
	"an empty pool in the place of a lost one.\vGROUP is "
	"HOST:POOL,HOST:POOL,...;k=N as in rpmem_pool(3), in quotes. status "
	"and "
	"scrub only read, also beside a writer. fi_rpmem_group(1) lists the "
	"exit codes.";

static const char args_doc[] = "status GROUP\n"
			       "scrub GROUP\n"
			       "replace GROUP MEMBER NEW";

enum {
	OPT_JSON = 256,
	OPT_REPAIR,
};

static const struct argp_option options[] = {
	{"secret", 's', "FILE", 0, "File with the secret of the daemons", 1},
	{"json", OPT_JSON, NULL, 0, "status: print it as JSON", 2},
	{"repair", OPT_REPAIR, NULL, 0,
	 "scrub: open the group as its writer, and overwrite the copies that "
	 "differ from the majority",
	 2},
	{"quiet", 'q', NULL, 0, "Print no progress bar", 3},
	{0},
};

struct args {
	struct tool tool;
	const char *words[4];
	unsigned int n;
};

static bool is_command(const struct args *a, const char *name)
{
	return a->n && !strcmp(a->words[0], name);
}

static void check_args(struct argp_state *state, const struct args *a)
{
	const bool replaces = is_command(a, "replace");

	if (!replaces && !is_command(a, "status") && !is_command(a, "scrub"))
		argp_error(state, "give status, scrub or replace, and a group");
	if (a->n != (replaces ? 4 : 2))
		argp_error(state, "%s needs %s", a->words[0],
			   replaces ? "GROUP MEMBER NEW" : "GROUP alone");
	if (a->tool.json && !is_command(a, "status"))
		argp_error(state, "--json is for status");
	if (a->tool.repair && !is_command(a, "scrub"))
		argp_error(state, "--repair is for scrub");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct args *a = state->input;

	switch (key) {
	case 's':
		a->tool.secret_file = arg;
		return 0;
	case 'q':
		a->tool.quiet = true;
		return 0;
	case OPT_JSON:
		a->tool.json = true;
		return 0;
	case OPT_REPAIR:
		a->tool.repair = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->n == 4)
			argp_error(state, "'%s' is one argument too many", arg);
		a->words[a->n++] = arg;
		return 0;
	case ARGP_KEY_END:
		check_args(state, a);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* --- status --- */

static const char *const states[] = {
	[TOOL_MEMBER_AWAY] = "unreachable",
	[TOOL_MEMBER_OTHER] = "of another group",
	[TOOL_MEMBER_SHORT] = "too short",
	[TOOL_MEMBER_EMPTY] = "empty",
	[TOOL_MEMBER_DISPLACED] = "displaced",
	[TOOL_MEMBER_STALE] = "stale",
	[TOOL_MEMBER_CURRENT] = "current",
};

static const char *class_name(const struct tool_member *p)
{
	return p->pool ? rp_pool_class_name(p->info.reached) : "-";
}

static void print_json(const struct tool *t, bool opens, unsigned int lose,
		       unsigned int current)
{
	json_t *list = json_array();
	json_t *o = json_pack("{sI sI sI sI sb sI}", "members",
			      (json_int_t)t->n, "copies", (json_int_t)t->k,
			      "bytes", (json_int_t)t->super.length, "current",
			      (json_int_t)current, "opens", opens, "may_lose",
			      (json_int_t)lose);

	for (unsigned int i = 0; i < t->n; i++) {
		const struct tool_member *p = &t->members[i];
		json_t *m = json_pack("{ss ss}", "where", p->where, "state",
				      states[p->state]);

		if (p->pool)
			json_object_update_new(
				m,
				json_pack("{ss ss sI sI sI sI sI}", "class",
					  class_name(p), "method",
					  p->info.method, "epoch",
					  (json_int_t)p->disk.epoch, "commit",
					  (json_int_t)p->disk.number,
					  "promised",
					  (json_int_t)p->disk.promised,
					  "marked_bytes", (json_int_t)p->marked,
					  "left_bytes",
					  (json_int_t)p->disk.left));
		else
			json_object_set_new(m, "error", json_string(p->error));
		json_array_append_new(list, m);
	}
	json_object_set_new(o, "list", list);
	if (!opens)
		json_object_set_new(o, "error", json_string(t->err));
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static void print_text(const struct tool *t, bool opens, unsigned int lose)
{
	char size[RP_SIZE_LEN];

	printf("%u members, a commit waits for %u of them, %s\n", t->n, t->k,
	       t->super.n ? rp_size_format(t->super.length, size)
			  : "not created yet");
	for (unsigned int i = 0; i < t->n; i++) {
		const struct tool_member *p = &t->members[i];

		printf("%s: %s", p->where, states[p->state]);
		if (!p->pool)
			printf(": %s", p->error);
		else
			printf(", class %s by %s", class_name(p),
			       p->info.method);
		if (p->state >= TOOL_MEMBER_EMPTY)
			printf(", epoch %" PRIu64 " (promised %" PRIu64
			       "), commit %" PRIu64 ", %s %s",
			       p->disk.epoch, p->disk.promised, p->disk.number,
			       rp_size_format(p->marked, size),
			       p->state == TOOL_MEMBER_STALE ? "may be old"
							     : "may differ");
		if (p->state >= TOOL_MEMBER_EMPTY && p->disk.left)
			printf(", being rebuilt: %s left",
			       rp_size_format(p->disk.left, size));
		putchar('\n');
	}
	if (opens)
		printf("A writer can open the group. %u more member%s may be "
		       "lost.\n",
		       lose, lose == 1 ? "" : "s");
	else
		printf("No writer can open the group: %s.\n", t->err);
}

int group_status(struct tool *t)
{
	unsigned int lose, current = 0;
	bool opens;
	int code = tool_look(t);

	if (code)
		return code;
	opens = tool_can_open(t, GROUP_MEMBERS, &lose);
	for (unsigned int i = 0; i < t->n; i++)
		current += t->members[i].state == TOOL_MEMBER_CURRENT;
	if (t->json)
		print_json(t, opens, lose, current);
	else
		print_text(t, opens, lose);
	t->err[0] = 0;
	return !opens ? RP_EXIT_NOTHING : current < t->n ? RP_EXIT_PARTLY : 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, args_doc, doc, NULL, NULL, NULL,
	};
	static struct args a;
	static char err[RP_ERR_LEN];
	struct tool *t = &a.tool;
	int code;

	argp_err_exit_status = RP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	t->err = err;
	t->group = a.words[1];
	code = tool_parse(t);
	if (!code)
		code = is_command(&a, "status") ? group_status(t)
		       : is_command(&a, "scrub")
			       ? group_scrub(t)
			       : group_replace(t, a.words[2], a.words[3]);
	if (code && err[0])
		fprintf(stderr, "fi_rpmem_group: %s\n", err);
	tool_close(t);
	return code;
}
