// SPDX-License-Identifier: BSD-2-Clause
/* The reply of fi_rpmemd over ssh, and what librpmem sends to it. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/librpmem/session.h"
#include "util/text.h"

static char folder[] = "/tmp/test_librpmem_session.XXXXXX";
static char err[RP_ERR_LEN];
static struct session s;

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static bool file_has(const char *name, const char *text)
{
	char all[1024] = "";
	FILE *f = fopen(name, "r");

	cr_assert(f && fread(all, 1, sizeof(all) - 1, f) < sizeof(all) - 1);
	fclose(f);
	return strstr(all, text);
}

/* A stand-in for ssh, which runs the remote command here. */
static void setup(void)
{
	cr_assert(mkdtemp(folder) && !chdir(folder));
	write_file("ssh",
		   "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
	cr_assert(!chmod("ssh", 0700));
	setenv("RPMEM_SSH", "./ssh", 1);
}

static void teardown(void)
{
	unlink("ssh");
	unlink("seen");
	cr_assert(!chdir("/") && !rmdir(folder));
}

TestSuite(librpmem_session, .init = setup, .fini = teardown);

/* Run a request to a command that replies with a line, and keeps the rest. */
static int begin(const char *verb, const char *reply)
{
	char command[512];

	snprintf(command, sizeof(command),
		 "read first; echo 'ofi_rpmem-1 %s'; exec cat >seen", reply);
	setenv("RPMEM_CMD", command, 1);
	return session_begin(&s, "user@host", verb, "a.set", err);
}

Test(librpmem_session, a_reply_has_the_pool_and_its_secret)
{
	cr_assert(!begin("create", "serves no 5ec2e7 1234 ::1 vol"), "%s", err);
	cr_assert_str_eq(s.where, "[::1]:1234:vol");
	cr_assert_eq(s.header, SESSION_NO_HEADER);
	cr_assert(file_has(s.path, "5ec2e7"));
	cr_assert_eq(session_end(&s), 0);
	cr_assert(!file_has("seen", "undo"));
}

Test(librpmem_session, a_creation_can_be_undone)
{
	cr_assert(!begin("create", "serves any 5ec2e7 1234 127.0.0.1 vol"));
	session_undo(&s);
	cr_assert_eq(session_end(&s), 0);
	cr_assert(file_has("seen", "ofi_rpmem-1 undo\n"));
}

Test(librpmem_session, a_damaged_reply_is_refused_and_undone)
{
	cr_assert_eq(begin("create", "serves any 5ec2e7 65536 127.0.0.1 vol"),
		     -EPROTO);
	cr_assert(strstr(err, "damaged"), "%s", err);
	cr_assert(file_has("seen", "ofi_rpmem-1 undo\n"));
}

Test(librpmem_session, a_secret_is_in_no_error)
{
	cr_assert_eq(begin("remove", "serves any 5ec2e7 1234 127.0.0.1 vol"),
		     -EPROTO);
	cr_assert(!strstr(err, "5ec2e7"), "%s", err);
}

Test(librpmem_session, a_daemon_that_has_ended_before_the_session_is_reported)
{
	char c;

	setenv("RPMEM_CMD",
	       "read first; "
	       "echo 'ofi_rpmem-1 serves any 5ec2e7 1234 127.0.0.1 vol'",
	       1);
	cr_assert(!session_begin(&s, "user@host", "open", "a.set", err), "%s",
		  err);
	/* End of file: the command has ended. */
	cr_assert_eq(read(s.line, &c, 1), 0);
	cr_assert_eq(session_end(&s), -ECONNRESET);
}
