// SPDX-License-Identifier: BSD-2-Clause
/* The requests that fi_rpmemd --one-shot takes, refuses and undoes. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/conf.h"
#include "util/exit_codes.h"
#include "util/one_shot.h"

static char folder[] = "/tmp/test_one_shot.XXXXXX";
static char err[RP_ERR_LEN];
static int to_daemon; /* the daemon's standard input */
static struct rp_one_shot o;
static struct rp_conf conf;

static void setup(void)
{
	int ends[2];

	cr_assert(mkdtemp(folder) && !chdir(folder) && !pipe(ends));
	cr_assert_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	close(ends[0]);
	to_daemon = ends[1];
	o = (struct rp_one_shot){.on = true, .folder = folder};
}

static void teardown(void)
{
	unlink("a.set");
	unlink("pool");
	cr_assert(!chdir("/") && !rmdir(folder));
}

TestSuite(one_shot, .init = setup, .fini = teardown);

static void send_line(const char *text)
{
	cr_assert_eq(write(to_daemon, text, strlen(text)),
		     (ssize_t)strlen(text));
}

static int request(const char *line)
{
	send_line(line);
	return rp_one_shot_begin(&o, &conf, -1, err);
}

/* Write a pool set file with the part "pool" of this folder. */
static void write_set(const char *options)
{
	FILE *f = fopen("a.set", "w");

	cr_assert(f && fprintf(f, "PMEMPOOLSET\n2M %s/pool\n%s", folder,
			       options) > 0);
	cr_assert(!fclose(f));
}

Test(one_shot, a_pool_set_names_the_pool_to_create)
{
	write_set("");
	cr_assert_eq(request("ofi_rpmem-1 create a.set\n"), 0, "%s", err);
	cr_assert_str_eq(o.header, "yes");
	cr_assert_eq(conf.npools, 1);
	cr_assert_eq(conf.pools[0].create, 2u << 20);
}

/* A path of the client must not leave the folder of pool sets. */
Test(one_shot, a_path_out_of_the_folder_is_refused)
{
	cr_assert_eq(request("ofi_rpmem-1 open ../a.set\n"), RP_EXIT_USAGE);
	cr_assert_eq(request("ofi_rpmem-1 open b/../../a.set\n"),
		     RP_EXIT_USAGE);
	cr_assert_eq(request("ofi_rpmem-1 remove /a.set\n"), RP_EXIT_USAGE);
	/* Two dots can be part of a name. */
	cr_assert_eq(request("ofi_rpmem-1 open a..set\n"), RP_EXIT_FILE);
	cr_assert(o.missing);
}

Test(one_shot, an_existing_pool_without_header_is_not_created)
{
	FILE *f = fopen("pool", "w");

	cr_assert(f && !fclose(f));
	write_set("OPTION NOHDRS\n");
	cr_assert_eq(request("ofi_rpmem-1 create a.set\n"), RP_EXIT_FILE);
	cr_assert(o.exists && strstr(err, "may have a replica"), "%s", err);
}

Test(one_shot, an_existing_file_of_another_size_is_not_created)
{
	FILE *f = fopen("pool", "w");

	cr_assert(f && !fclose(f));
	write_set("");
	cr_assert_eq(request("ofi_rpmem-1 create a.set\n"), RP_EXIT_FILE);
	cr_assert(!o.exists && strstr(err, "no pool of 2097152"), "%s", err);
}

Test(one_shot, a_file_that_is_no_pool_is_not_removed)
{
	FILE *f = fopen("pool", "w");

	cr_assert(f && fputs("other", f) >= 0 && !fclose(f));
	write_set("");
	cr_assert_eq(request("ofi_rpmem-1 remove-set-force a.set\n"),
		     RP_EXIT_FILE);
	cr_assert(!access("pool", F_OK) && !access("a.set", F_OK));
}

Test(one_shot, a_session_ends_with_its_input_and_not_with_undo)
{
	cr_assert(!rp_one_shot_ended(&o, false, true, 1));
	send_line("ofi_rpmem-1 undo\n");
	cr_assert(!rp_one_shot_ended(&o, true, true, 1));
	cr_assert(o.undo);
	close(to_daemon);
	cr_assert(rp_one_shot_ended(&o, true, true, 1));
}

Test(one_shot, another_line_undoes_nothing)
{
	send_line("ofi_rpmem-1 open a.set\n");
	cr_assert(!rp_one_shot_ended(&o, true, true, 1));
	cr_assert(!o.undo);
}
