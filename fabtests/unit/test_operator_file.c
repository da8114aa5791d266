// SPDX-License-Identifier: BSD-2-Clause
/* Operator's statements: accepted, refused, and their effect on facts. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/log.h"
#include "core/operator_file.h"

static char file[2 * PATH_MAX];
static struct rp_operator *op;
static struct rp_sources src;
static int warnings;
static char warning[512];

static void record_line(enum rp_log_level level, const char *text)
{
	if (level != RP_LOG_WARN)
		return;
	warnings++;
	snprintf(warning, sizeof(warning), "%s", text);
}

static void setup(void)
{
	caps_setup();
	sprintf(file, "%s/statements", dir);
	op = NULL;
	warnings = 0;
	rp_log_set(record_line);
}

static void teardown(void)
{
	rp_log_set(NULL);
	rp_operator_free(op);
	caps_teardown();
}

TestSuite(operator_file, .init = setup, .fini = teardown);

static int load_text(const char *text)
{
	rp_operator_free(op);
	op = NULL;
	write_tree("/statements", "%s", text);
	return rp_operator_load(file, &op, why);
}

static void expect_loaded(const char *text)
{
	int ret = load_text(text);

	cr_assert_eq(ret, 0, "%s: %s", text, why);
}

Test(operator_file, valid_files_are_accepted)
{
	expect_loaded("");
	expect_loaded("# nothing\n\n   \t\n");
	expect_loaded("[host]\n");
	expect_loaded("[host]\nassert domain = cpu-caches");
	expect_loaded("  [ host ]  # all\r\n\tlimit\tdomain=none # a word\r\n");
	expect_loaded(
		"[path /]\n[path /mnt/a b/]\nassert filesystem = trusted\n"
		"[device dax0.0]\nassert fence = yes\nlimit native = no\n"
		"[host]\nlimit class = process\nassert placement = dma-memory\n"
		"limit placement = dma-cache\n");
	/* Different sections may have the same key. */
	expect_loaded(
		"[host]\nlimit class = none\n[path /a]\nlimit class = none\n"
		"[path /a]\nlimit class = power\n");
	expect_loaded("[path /a#b]\nlimit class = none\n");
}

Test(operator_file, invalid_files_are_refused)
{
	static const struct {
		const char *text, *word;
	} t[] = {
		{"assert fence = yes\n", ":1: a statement stands in a section"},
		{"[host\n", "ends with ]"},
		{"[host] x\n", "ends with ]"},
		{"[]\n", "none of [host]"},
		{"[hosts]\n", "none of [host]"},
		{"[host a]\n", "[host] has no name"},
		{"[path]\n", "full path"},
		{"[path mnt]\n", "full path"},
		{"[device]\n", "name as in dax0.0"},
		{"[device /dev/dax0.0]\n", "name as in dax0.0"},
		{"[host]\n\nassert fence yes\n", ":3: a statement is"},
		{"[host]\nfence = yes\n", "neither limit"},
		{"[host]\ntrust fence = yes\n", "neither limit"},
		{"[host]\nassert = yes\n", "none of domain"},
		{"[host]\nassert fences = yes\n", "none of domain"},
		{"[host]\nassert fence = maybe\n", "yes or no, not 'maybe'"},
		{"[host]\nassert fence =\n", "yes or no, not ''"},
		{"[host]\nassert fence = yes yes\n", "not 'yes yes'"},
		{"[host]\nassert domain = power\n", "memory-controller"},
		{"[host]\nassert domain = unknown\n", "not 'unknown'"},
		{"[host]\nassert placement = cpu-user\n", "dma-cache"},
		{"[host]\nassert class = power\n", "limited only"},
		{"[host]\nassert native = yes\n", "no, not 'yes'"},
		{"[host]\nassert native = no\n", "limited only"},
		{"[host]\nlimit filesystem = trusted\n", "is no limit"},
		{"[host]\nlimit fence = yes\n", "is no limit"},
		{"[host]\nlimit placement = dma-memory\n", "is no limit"},
		{"[host]\nassert fence = yes\nassert fence = no\n",
		 ":3: fence was stated before, in line 2"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		cr_assert_eq(load_text(t[i].text), -EINVAL, "%s", t[i].text);
		cr_assert_null(op);
		cr_assert(strstr(why, t[i].word), "%s: %s", t[i].text, why);
		cr_assert(strstr(why, "/statements:"), "%s", why);
	}
	write_tree("/statements", "[host]%c\n", 0);
	cr_assert_eq(rp_operator_load(file, &op, why), -EINVAL);
	cr_assert(strstr(why, "not text"), "%s", why);
}

Test(operator_file, too_many)
{
	char *text = malloc(1 << 20), *p = text;

	for (int i = 0; i < 1025; i++)
		p += sprintf(p, "[path /%d]\nlimit class = none\n", i);
	cr_assert_eq(load_text(text), -E2BIG);
	cr_assert(strstr(why, ":2050: more than 1024"), "%s", why);
	*strstr(text, "[path /1024]") = '\0';
	expect_loaded(text);
	free(text);
}

/*
 * A file that another user can write is refused, because the file decides about
 * OK.
 */
Test(operator_file, file_of_another_user_is_refused)
{
	expect_loaded("[host]\n");
	cr_assert_eq(chmod(file, 0660), 0);
	cr_assert_eq(rp_operator_load(file, &op, why), -EPERM);
	cr_assert(strstr(why, "chmod go-w"), "%s", why);
	cr_assert_eq(chmod(file, 0602), 0);
	cr_assert_eq(rp_operator_load(file, &op, why), -EPERM);
	if (!geteuid()) {
		cr_assert_eq(chmod(file, 0600), 0);
		cr_assert_eq(chown(file, 12345, 0), 0);
		cr_assert_eq(rp_operator_load(file, &op, why), -EPERM);
		cr_assert(strstr(why, "user 12345"), "%s", why);
	}
	cr_assert_eq(unlink(file), 0);
	cr_assert_eq(rp_operator_load(file, &op, why), -ENOENT);
	cr_assert(strstr(why, "statements: No such file"), "%s", why);
	cr_assert_eq(mkfifo(file, 0600), 0);
	cr_assert_eq(rp_operator_load(file, &op, why), -EINVAL);
	cr_assert(strstr(why, "not a regular file"), "%s", why);
}

static const struct rp_facts strong = {
	.memory = RP_MEM_DAX_SYNC,
	.placement = RP_PLACE_DMA_MEMORY,
	.domain = RP_DOMAIN_SYSTEM,
	.fence = RP_YES,
	.native = RP_YES,
	.fs_trusted = RP_YES,
	.agent = true,
};
static const struct rp_facts weak = {
	.memory = RP_MEM_DAX_SYNC,
	.agent = true,
};

static struct rp_facts apply_to(struct rp_facts f, const char *path,
				const char *device)
{
	src = (struct rp_sources){.raised = 0};
	warnings = 0;
	rp_operator_apply(op, path, device, &f, &src);
	return f;
}

/* All facts of a and b must be equal. */
static void expect_same_facts(const struct rp_facts *a,
			      const struct rp_facts *b)
{
	cr_assert_eq(a->placement, b->placement);
	cr_assert_eq(a->domain, b->domain);
	cr_assert_eq(a->fence, b->fence);
	cr_assert_eq(a->native, b->native);
	cr_assert_eq(a->fs_trusted, b->fs_trusted);
	cr_assert_eq(a->limit, b->limit);
}

Test(operator_file, limits_lower)
{
	struct rp_facts f, want = strong;

	expect_loaded(
		"[host]\nlimit domain = memory-controller\nlimit fence = no\n"
		"limit placement = dma-cache\nlimit native = no\n"
		"limit filesystem = untrusted\nlimit class = process\n");
	want.domain = RP_DOMAIN_MEMCTRL;
	want.placement = RP_PLACE_DMA_CACHE;
	want.fence = want.native = want.fs_trusted = RP_NO;
	want.limit = RP_LIMIT_PROCESS;
	f = apply_to(strong, "", "");
	expect_same_facts(&f, &want);
	cr_assert_eq(src.raised, 0);
	cr_assert_eq(warnings, 0);
	cr_assert(strstr(src.domain, "limited by"), "%s", src.domain);
	cr_assert(strstr(src.domain, "statements:2, instead of system"), "%s",
		  src.domain);
	cr_assert(strstr(src.native, "instead of yes"), "%s", src.native);

	/* A limit raises no fact, whether unknown or worse than the limit. */
	f = apply_to(weak, "", "");
	want = weak;
	want.limit = RP_LIMIT_PROCESS;
	expect_same_facts(&f, &want);
	cr_assert_eq(src.domain[0], 0);
	expect_loaded("[host]\nlimit domain = system\nlimit class = power\n");
	f = apply_to(weak, "", "");
	expect_same_facts(&f, &weak);
	f = apply_to(strong, "", "");
	expect_same_facts(&f, &strong);
}

Test(operator_file, assertions_raise_and_are_logged)
{
	struct rp_facts f, want = strong;

	expect_loaded(
		"[host]\nassert domain = system\nassert fence = yes\n"
		"assert placement = dma-memory\nassert filesystem = trusted\n");
	want.native = RP_UNKNOWN; /* no statement can assert native */
	f = apply_to(weak, "", "");
	expect_same_facts(&f, &want);
	cr_assert_eq(src.raised, 4);
	cr_assert_eq(warnings, 4);
	cr_assert(strstr(warning, "asserts"), "%s", warning);
	cr_assert(strstr(src.fence, "asserted by"), "%s", src.fence);
	cr_assert(strstr(src.fence, ":3, instead of unknown"), "%s", src.fence);

	/* A fact that is already as good as the statement is not raised. */
	f = apply_to(strong, "", "");
	expect_same_facts(&f, &strong);
	cr_assert_eq(src.raised, 0);
	cr_assert_eq(warnings, 0);

	/* Lowering a fact needs no warning. */
	expect_loaded("[host]\nassert domain = none\nassert fence = no\n"
		      "assert placement = dma-cache\nassert filesystem = "
		      "untrusted\n");
	f = apply_to(strong, "", "");
	cr_assert_eq(f.domain, RP_DOMAIN_NONE);
	cr_assert_eq(f.fence, RP_NO);
	cr_assert_eq(f.placement, RP_PLACE_DMA_CACHE);
	cr_assert_eq(f.fs_trusted, RP_NO);
	cr_assert_eq(warnings, 0);
}

/*
 * Placement by the program's own CPU is certain, so no statement changes it. A
 * software device may hide an adapter.
 */
Test(operator_file, no_statement_changes_cpu_placement)
{
	struct rp_facts f = strong;

	expect_loaded("[host]\nassert placement = dma-memory\n");
	f.placement = RP_PLACE_CPU_USER;
	cr_assert_eq(apply_to(f, "", "").placement, RP_PLACE_CPU_USER);
	cr_assert_eq(src.raised, 0);
	f.placement = RP_PLACE_CPU_KERNEL;
	cr_assert_eq(apply_to(f, "", "").placement, RP_PLACE_DMA_MEMORY);
	cr_assert_eq(src.raised, 1);
	expect_loaded("[host]\nlimit placement = dma-cache\n");
	cr_assert_eq(apply_to(f, "", "").placement, RP_PLACE_CPU_KERNEL);
}

Test(operator_file, a_limit_holds_whatever_is_asserted)
{
	expect_loaded("[host]\nlimit domain = memory-controller\n"
		      "[path /p]\nassert domain = system\n");
	cr_assert_eq(apply_to(weak, "/p/f", "").domain, RP_DOMAIN_MEMCTRL);
	cr_assert_eq(apply_to(weak, "/q/f", "").domain, RP_DOMAIN_UNKNOWN);
	/* msync promises class power in domain unknown, not in none. */
	expect_loaded("[host]\nlimit domain = none\n");
	cr_assert_eq(apply_to(weak, "/p/f", "").domain, RP_DOMAIN_NONE);
	expect_loaded("[path /p]\nlimit class = none\n[host]\nlimit class = "
		      "process\n");
	cr_assert_eq(apply_to(weak, "/p/f", "").limit, RP_LIMIT_NONE);
	cr_assert_eq(apply_to(weak, "/q/f", "").limit, RP_LIMIT_PROCESS);
}

Test(operator_file, the_last_assertion_holds)
{
	expect_loaded("[host]\nassert domain = cpu-caches\n"
		      "[path /p]\nassert domain = none\n"
		      "[path /p/q]\nassert domain = system\n");
	cr_assert_eq(apply_to(weak, "", "").domain, RP_DOMAIN_CPUCACHE);
	cr_assert_eq(apply_to(weak, "/p/f", "").domain, RP_DOMAIN_NONE);
	cr_assert_eq(apply_to(weak, "/p/q/f", "").domain, RP_DOMAIN_SYSTEM);
	/* Only the statement that applies raises the fact. */
	cr_assert_eq(src.raised, 1);
	cr_assert_eq(warnings, 1);
}

Test(operator_file, scopes)
{
	expect_loaded("[path /mnt/a]\nassert fence = yes\n"
		      "[device dax0.0]\nassert fence = yes\n"
		      "[path /slash/]\nassert fence = yes\n");
	cr_assert_eq(apply_to(weak, "/mnt/a", "").fence, RP_YES);
	cr_assert_eq(apply_to(weak, "/mnt/a/b/c", "").fence, RP_YES);
	cr_assert_eq(apply_to(weak, "/mnt/ab", "").fence, RP_UNKNOWN);
	cr_assert_eq(apply_to(weak, "/mnt", "").fence, RP_UNKNOWN);
	cr_assert_eq(apply_to(weak, "/slash/x", "").fence, RP_YES);
	cr_assert_eq(apply_to(weak, "/dev/dax0.0", "dax0.0").fence, RP_YES);
	cr_assert_eq(apply_to(weak, "/dev/dax0.1", "dax0.1").fence, RP_UNKNOWN);
	cr_assert_eq(apply_to(weak, "", "").fence, RP_UNKNOWN);
	expect_loaded("[path /]\nassert fence = yes\n");
	cr_assert_eq(apply_to(weak, "/x", "").fence, RP_YES);
	cr_assert_eq(apply_to(weak, "", "").fence, RP_UNKNOWN);
}

/* rp_caps_explain() applies statements to paths of the process map. */
Test(operator_file, statements_apply_to_paths_of_the_map)
{
	char text[3 * PATH_MAX];

	invent_file("overlay", "rw");
	sprintf(text, "[path %s]\nassert filesystem = trusted\n", dir);
	expect_loaded(text);
	cfg.op = op;
	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, why, &src), 0);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cr_assert_eq(src.raised, 1);
	cr_assert(strstr(src.fs, "asserted by"), "%s", src.fs);
	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, NULL, NULL), 0);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cfg.op = NULL;
	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, why, &src), 0);
	cr_assert_eq(facts.fs_trusted, RP_NO);
	cr_assert(strstr(src.fs, "overlay is not listed"), "%s", src.fs);
}

/* Each fact that is weaker now replaces the former one; no stronger one does.
 */
Test(operator_file, facts_weaken_one_by_one)
{
	const struct rp_facts weaker = {
		.memory = RP_MEM_DAX_SYNC,
		.placement = RP_PLACE_DMA_CACHE,
		.domain = RP_DOMAIN_MEMCTRL,
		.fence = RP_NO,
		.native = RP_NO,
		.fs_trusted = RP_NO,
		.limit = RP_LIMIT_PROCESS,
		.agent = true,
	};
	struct rp_facts f = strong;

	rp_facts_weaken(&f, &weaker);
	expect_same_facts(&f, &weaker);
	rp_facts_weaken(&f, &strong);
	expect_same_facts(&f, &weaker);
}
