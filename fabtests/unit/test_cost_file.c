// SPDX-License-Identifier: BSD-2-Clause
/* The file of measured costs is used as a whole or not at all. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/caps.h"
#include "core/cost.h"

static char path[] = "cost.XXXXXX";
static char why[RP_WHY_LEN];

static void write_file(const void *text, size_t len)
{
	FILE *f;

	if (path[5] == 'X')
		close(mkstemp(path));
	f = fopen(path, "w");
	cr_assert_not_null(f);
	cr_assert_eq(fwrite(text, 1, len, f), len);
	cr_assert_eq(fclose(f), 0);
}

static int read_text(const char *text, struct rp_cost *c)
{
	int ret;

	write_file(text, strlen(text));
	memset(why, 0, sizeof(why));
	ret = rp_cost_read(path, c, why);
	unlink(path);
	strcpy(path, "cost.XXXXXX");
	return ret;
}

/* Refused with this line and these words, and nothing of the file is taken. */
static void expect_refused(const char *text, unsigned int line,
			   const char *words)
{
	struct rp_cost c = rp_cost_default;
	char at[16];

	cr_assert_eq(read_text(text, &c), -EINVAL, "%s", text);
	snprintf(at, sizeof(at), ":%u: ", line);
	cr_assert(strstr(why, at), "'%s' does not name line %u", why, line);
	cr_assert(strstr(why, words), "'%s' does not say '%s'", why, words);
	cr_assert_eq(memcmp(&c, &rp_cost_default, sizeof(c)), 0,
		     "taken in part: %s", text);
}

static struct rp_cost_line line_of(const struct rp_cost *c, size_t i)
{
	const struct rp_cost_figure *f = &rp_cost_figures[i];
	struct rp_cost_line v = {0};

	memcpy(&v, (const char *)c + f->at,
	       f->alone ? sizeof(v.ns) : sizeof(v));
	return v;
}

/* Each figure sets the field that its name says, and no other. */
Test(cost_file, each_figure)
{
	char text[256];

	for (size_t i = 0; i < RP_COST_FIGURES; i++) {
		const struct rp_cost_figure *f = &rp_cost_figures[i];
		struct rp_cost c = rp_cost_default;

		snprintf(text, sizeof(text), "%s\n%s = 4294967295 %u\n%s\n",
			 RP_COST_HEAD, f->name, f->alone ? 0 : 4294967294u,
			 RP_COST_END);
		cr_assert_eq(read_text(text, &c), 0, "%s", why);
		for (size_t j = 0; j < RP_COST_FIGURES; j++) {
			struct rp_cost_line got = line_of(&c, j),
					    old = line_of(&rp_cost_default, j);

			if (j == i) {
				cr_assert_eq(got.ns, UINT32_MAX);
				cr_assert_eq(got.ps,
					     f->alone ? 0 : UINT32_MAX - 1);
			} else {
				cr_assert_eq(memcmp(&got, &old, sizeof(got)), 0,
					     "%s changed %s", f->name,
					     rp_cost_figures[j].name);
			}
		}
	}
}

Test(cost_file, names)
{
	struct rp_cost c = rp_cost_default;

	cr_assert_eq(read_text("ofi_rpmem cost 1\n"
			       "# measured\n"
			       "\n"
			       "cpu store = 1 2\n"
			       "cpu fences = 3 0\n"
			       "dma ask = 4 0\n"
			       "agent-clwb-msync = 5 6\n"
			       "stream = 7 8\n"
			       "end\n",
			       &c),
		     0, "%s", why);
	cr_assert_eq(c.path[RP_PATH_CPU].store.ns, 1);
	cr_assert_eq(c.path[RP_PATH_CPU].store.ps, 2);
	cr_assert_eq(c.path[RP_PATH_CPU].fences_ns, 3);
	cr_assert_eq(c.path[RP_PATH_DMA].ask_ns, 4);
	cr_assert_eq(c.flush[RP_METHOD_AGENT_CLWB_MSYNC].ps, 6);
	cr_assert_eq(c.stream.ns, 7);
	cr_assert_eq(c.path[RP_PATH_CPU].fence_ns, 11600);
}

/* A file cut at any place is refused. */
Test(cost_file, truncated)
{
	static const char whole[] = "ofi_rpmem cost 1\n"
				    "cpu write = 8770 466\n"
				    "stream = 41 149\n"
				    "end\n";
	struct rp_cost c = rp_cost_default;
	char text[sizeof(whole)];

	cr_assert_eq(read_text(whole, &c), 0, "%s", why);
	for (size_t n = 0; n < sizeof(whole) - 1; n++) {
		memcpy(text, whole, n);
		text[n] = 0;
		c = rp_cost_default;
		cr_assert_eq(read_text(text, &c), -EINVAL, "after %zu", n);
		cr_assert_eq(memcmp(&c, &rp_cost_default, sizeof(c)), 0);
	}
}

#define FILE_OF(line) "ofi_rpmem cost 1\nstream = 1 1\n" line "\nend\n"

Test(cost_file, mistakes)
{
	static const char nul[] = "ofi_rpmem cost 1\nst\0ream = 1 1\nend\n";
	struct rp_cost c = rp_cost_default;
	char text[600];

	expect_refused("stream = 1 1\nend\n", 1, "first line");
	expect_refused("ofi_rpmem cost 2\nend\n", 1, "first line");
	expect_refused(FILE_OF("stream 1 1"), 3, "a figure is");
	expect_refused(FILE_OF("cpu write=1 1"), 3, "a figure is");
	expect_refused(FILE_OF("gpu write = 1 1"), 3, "no figure 'gpu write'");
	expect_refused(FILE_OF("stream = 2 2"), 3, "given before");
	expect_refused(FILE_OF("cpu ask = 1 1"), 3, "bytes do not count");
	expect_refused(FILE_OF("cpu write = 1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = "), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = 1 1 1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = -1 1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = 1 +1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = 1.5 1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = 0x10 1"), 3, "two whole numbers");
	expect_refused(FILE_OF("cpu write = 4294967296 1"), 3,
		       "two whole numbers");
	expect_refused(FILE_OF("cpu write = 99999999999999999999 1"), 3,
		       "two whole numbers");
	expect_refused("ofi_rpmem cost 1\nend\nstream = 1 1\n", 3, "behind");
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = 0;
	expect_refused(text, 1, "does not end");

	write_file(nul, sizeof(nul) - 1);
	cr_assert_eq(rp_cost_read(path, &c, why), -EINVAL);
	unlink(path);
	cr_assert_eq(rp_cost_read(path, &c, why), -ENOENT);
	cr_assert(strstr(why, path));
	/* Opening a FIFO must not wait for a writer. */
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_assert_eq(rp_cost_read(path, &c, why), -EINVAL);
	cr_assert(strstr(why, "regular"));
	unlink(path);
	cr_assert_eq(rp_cost_read("/", &c, why), -EINVAL);
	cr_assert_eq(memcmp(&c, &rp_cost_default, sizeof(c)), 0);
}

/* Figures measured on one path do not count for another. */
Test(cost_file, paths)
{
	unsigned int n[RP_PATHS] = {0};

	for (size_t i = 0; i < RP_COST_FIGURES; i++)
		for (int p = 0; p < RP_PATHS; p++)
			n[p] += rp_cost_figure_of(&rp_cost_figures[i], p);
	cr_assert_eq(n[RP_PATH_CPU], 5);
	cr_assert_eq(n[RP_PATH_DMA], 5);
	cr_assert_eq(n[RP_PATH_UNKNOWN], 0);
}

Test(cost_file, past_the_caches)
{
	struct rp_cost c = rp_cost_default;

	for (size_t n = 1; n < 1 << 20; n *= 2)
		cr_assert(rp_cost_streams(&c, n));
	/* Streaming starts dearer and is cheaper by the byte. */
	c.stream = (struct rp_cost_line){.ns = 200, .ps = 1000};
	c.flush[RP_METHOD_AGENT_CLWB] =
		(struct rp_cost_line){.ns = 100, .ps = 2000};
	cr_assert(!rp_cost_streams(&c, 99));
	cr_assert(rp_cost_streams(&c, 100));
	cr_assert(rp_cost_streams(&c, 4096));
}
