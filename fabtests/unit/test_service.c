// SPDX-License-Identifier: BSD-2-Clause
/* Datagrams to a service manager, its watchdog, and lines for the journal. */
#include "config.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rdma/fabric.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "util/service.h"

/* A service manager that listens on path; "@...": on an abstract address. */
static int manager_open(const char *path)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	strcpy(sun.sun_path, path);
	if (path[0] == '@')
		sun.sun_path[0] = 0;
	cr_assert_eq(bind(fd, (struct sockaddr *)&sun,
			  (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				      strlen(path))),
		     0);
	setenv("NOTIFY_SOCKET", path, 1);
	return fd;
}

/* The next datagram, or "" if none has arrived. */
static const char *manager_read(int fd)
{
	static char got[1024];
	ssize_t n = recv(fd, got, sizeof(got) - 1, 0);

	got[n > 0 ? n : 0] = 0;
	return got;
}

Test(service, states_arrive_at_a_path_and_at_an_abstract_address)
{
	char path[2][64];
	unsigned long long usec;

	snprintf(path[0], sizeof(path[0]), "/tmp/rpmem-service.%d", getpid());
	snprintf(path[1], sizeof(path[1]), "@rpmem-service.%d", getpid());
	for (int i = 0; i < 2; i++) {
		int fd = manager_open(path[i]);

		rp_service_ready();
		cr_assert_str_eq(manager_read(fd), "READY=1");
		rp_service_reloading();
		cr_assert_eq(sscanf(manager_read(fd),
				    "RELOADING=1\nMONOTONIC_USEC=%llu", &usec),
			     1);
		rp_service_stopping();
		cr_assert_str_eq(manager_read(fd), "STOPPING=1");
		/* A line break in the text would begin another assignment. */
		rp_service_status("pool %s", "a\nREADY=1");
		cr_assert_str_eq(manager_read(fd), "STATUS=pool a READY=1");
		close(fd);
	}
	unlink(path[0]);
}

Test(service, nothing_is_sent_without_a_manager)
{
	unsetenv("NOTIFY_SOCKET");
	rp_service_ready();
	setenv("NOTIFY_SOCKET", "relative", 1);
	rp_service_ready();
	setenv("NOTIFY_SOCKET", "/tmp/rpmem-service.nobody", 1);
	rp_service_ready();
}

Test(service, watchdog_is_sent_once_in_half_its_interval)
{
	char path[64];
	int fd, ms;

	snprintf(path, sizeof(path), "@rpmem-service.%d", getpid());
	fd = manager_open(path);
	setenv("WATCHDOG_USEC", "600000000", 1);
	unsetenv("WATCHDOG_PID");
	ms = rp_service_watchdog();
	cr_assert_eq(ms, 300000, "%d", ms);
	cr_assert_str_eq(manager_read(fd), "WATCHDOG=1");
	ms = rp_service_watchdog();
	cr_assert(ms > 0 && ms <= 300000, "%d", ms);
	cr_assert_str_eq(manager_read(fd), "");
	close(fd);
}

Test(service, watchdog_of_another_process_is_left_alone)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "@rpmem-service.%d", getpid());
	fd = manager_open(path);
	setenv("WATCHDOG_USEC", "600000000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	cr_assert_eq(rp_service_watchdog(), -1);
	cr_assert_str_eq(manager_read(fd), "");
	close(fd);
}

Test(service, only_the_journal_gets_levels)
{
	char stream[64];
	struct stat st;

	unsetenv("JOURNAL_STREAM");
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_ERROR), "");
	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu",
		 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_ERROR), "<3>");
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_WARNING), "<4>");
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_NOTICE), "<5>");
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_INFO), "<6>");
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_DEBUG), "<7>");
	/* As if stderr was redirected after the variable was set. */
	snprintf(stream, sizeof(stream), "%llu:%llu",
		 (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	cr_assert_str_eq(rp_service_prefix(RP_SERVICE_ERROR), "");
}

/* Log a message at each level as a provider does; get what stderr receives. */
static void fabric_lines(char *got, size_t len)
{
	const struct fi_provider prov = {.name = "one"};
	const int was = dup(STDERR_FILENO);
	FILE *f = tmpfile();
	char stream[64];
	struct stat st;

	cr_assert_not_null(f);
	cr_assert_eq(fstat(fileno(f), &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu",
		 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	dup2(fileno(f), STDERR_FILENO);
	rp_service_log_fabric();
	fi_log(&prov, FI_LOG_WARN, FI_LOG_MR, "f", 1, "%s\n", "flush failed");
	fi_log(&prov, FI_LOG_INFO, FI_LOG_MR, "g", 2, "of\t%d\n", 9);
	fi_log(&prov, FI_LOG_DEBUG, FI_LOG_MR, "h", 3, "no end");
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(f);
	got[fread(got, 1, len - 1, f)] = 0;
	fclose(f);
}

Test(service, lines_of_libfabric_have_levels_in_the_journal)
{
	char got[512];

	fabric_lines(got, sizeof(got));
	cr_assert_str_eq(got, "<4>fi_rpmemd: one: f():1: flush failed\n"
			      "<6>fi_rpmemd: one: g():2: of 9\n"
			      "<7>fi_rpmemd: one: h():3: no end\n");
}

Test(service, a_repeated_line_is_written_once_a_second)
{
	uint64_t last = 0, first;
	unsigned int lines = 0;

	/* Between two lines a second passes, however slow the process is. */
	for (int i = 0; i < 60000 && lines < 2; i++) {
		usleep(1000);
		first = last;
		if (!rp_service_may_log(&last))
			continue;
		cr_assert(!first || last - first >= 1000);
		lines++;
	}
	cr_assert_eq(lines, 2);
}
