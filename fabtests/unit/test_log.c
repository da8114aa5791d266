// SPDX-License-Identifier: BSD-2-Clause
/* Core's log: to the sink that is set, otherwise warnings to stderr. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/log.h"

static enum rp_log_level level;
static char last_text[1024];
static int ntexts;

static void record_line(enum rp_log_level l, const char *text)
{
	level = l;
	snprintf(last_text, sizeof(last_text), "%s", text);
	ntexts++;
}

/* The file that stderr is redirected to. */
static FILE *stderr_file;

static void listen_in(void)
{
	stderr_file = tmpfile();
	cr_assert_not_null(stderr_file);
	fflush(stderr);
	cr_assert_geq(dup2(fileno(stderr_file), STDERR_FILENO), 0);
}

static const char *on_stderr(void)
{
	static char text[2048];
	ssize_t n;

	fflush(stderr);
	n = pread(fileno(stderr_file), text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	return text;
}

Test(log, sink_gets_every_level)
{
	static const enum rp_log_level all[] = {RP_LOG_WARN, RP_LOG_INFO};
	char want[32];

	listen_in();
	rp_log_set(record_line);
	for (int i = 0; i < 2; i++) {
		rp_log(all[i], "%s %d%%", "part", i);
		snprintf(want, sizeof(want), "part %d%%", i);
		cr_assert_str_eq(last_text, want);
		cr_assert_eq(level, all[i]);
		cr_assert_eq(ntexts, i + 1);
	}
	cr_assert_str_eq(on_stderr(), "");
}

Test(log, without_sink_only_warnings)
{
	listen_in();
	rp_log(RP_LOG_INFO, "an information");
	cr_assert_str_eq(on_stderr(), "");
	rp_log(RP_LOG_WARN, "line %d", 7);
	cr_assert_str_eq(on_stderr(), "ofi_rpmem: line 7\n");
}

Test(log, sink_can_be_taken_back)
{
	listen_in();
	rp_log_set(record_line);
	rp_log_set(NULL);
	rp_log(RP_LOG_WARN, "after all");
	cr_assert_eq(ntexts, 0);
	cr_assert_str_eq(on_stderr(), "ofi_rpmem: after all\n");
}

/* A message that is too long is truncated, and still terminated. */
Test(log, long_message_is_truncated)
{
	char long_message[800];
	size_t len;

	memset(long_message, 'x', sizeof(long_message) - 1);
	long_message[sizeof(long_message) - 1] = 0;
	rp_log_set(record_line);
	rp_log(RP_LOG_WARN, "%s", long_message);
	len = strlen(last_text);
	cr_assert_eq(len, 511);
	cr_assert_eq(strspn(last_text, "x"), len);
}
