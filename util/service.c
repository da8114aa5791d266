// SPDX-License-Identifier: BSD-2-Clause
/* A daemon under a service manager: sd_notify(3), and lines for the journal. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/file.h"
#include "util/service.h"
#include "util/text.h"

/*
 * Send one datagram of sd_notify(3). Ignore errors: the manager has its own
 * timeouts for messages that it lacks.
 */
static void notify(const char *state, int flags)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(sun.sun_path) ||
	    (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(sun.sun_path, path, len);
	if (path[0] == '@')
		sun.sun_path[0] = 0; /* abstract address */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	while (sendto(fd, state, strlen(state), MSG_NOSIGNAL | flags,
		      (struct sockaddr *)&sun,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				  len)) < 0 &&
	       errno == EINTR)
		;
	close(fd);
}

void rp_service_ready(void)
{
	notify("READY=1", 0);
}

void rp_service_reloading(void)
{
	char state[64];
	struct timespec ts;

	/* By the time, the manager knows which reload this message is about. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)ts.tv_sec * 1000000 +
			 (unsigned long long)ts.tv_nsec / 1000);
	notify(state, 0);
}

void rp_service_stopping(void)
{
	notify("STOPPING=1", 0);
}

void rp_service_status(const char *fmt, ...)
{
	char state[RP_ERR_LEN] = "STATUS=";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(state + 7, sizeof(state) - 7, fmt, ap);
	va_end(ap);
	rp_text_clean(state, ' ');
	notify(state, MSG_DONTWAIT);
}

/* Half of the manager's watchdog interval; 0: no watchdog for this process. */
static uint64_t watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC"),
		   *pid = getenv("WATCHDOG_PID");
	uint64_t n;

	if (!usec || rp_number_parse(usec, 1, UINT64_MAX, &n, NULL) ||
	    (pid && strtol(pid, NULL, 10) != (long)getpid()))
		return 0;
	return n < 2000 ? 1 : n / 2000;
}

int rp_service_watchdog(void)
{
	static uint64_t half = UINT64_MAX, due;
	uint64_t now;

	if (half == UINT64_MAX)
		half = watchdog_ms();
	if (!half)
		return -1;
	now = rp_now_ms();
	if (now >= due) {
		/* If the manager's queue is full, do not block the loop. */
		notify("WATCHDOG=1", MSG_DONTWAIT);
		due = now + half;
	}
	return due - now > INT32_MAX ? INT32_MAX : (int)(due - now);
}

/* Whether stderr is the journal's stream, and not redirected. */
static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char have[48];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st))
		return false;
	snprintf(have, sizeof(have), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	return !strcmp(stream, have);
}

const char *rp_service_prefix(enum rp_service_level level)
{
	static const char *const prefix[] = {
		[RP_SERVICE_ERROR] = "<3>",  [RP_SERVICE_WARNING] = "<4>",
		[RP_SERVICE_NOTICE] = "<5>", [RP_SERVICE_INFO] = "<6>",
		[RP_SERVICE_DEBUG] = "<7>",
	};

	return is_journal() ? prefix[level] : "";
}

void rp_service_log(enum rp_service_level level, const char *fmt, ...)
{
	char at[32] = "", text[2 * RP_ERR_LEN];
	const char *prefix = rp_service_prefix(level);
	time_t now = time(NULL);
	struct tm tm;
	va_list ap;

	if (!*prefix && localtime_r(&now, &tm))
		strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S%z ", &tm);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s%sfi_rpmemd: %s\n", prefix, at, text);
}

bool rp_service_may_log(uint64_t *last)
{
	uint64_t now = rp_now_ms();

	if (*last && now - *last < 1000)
		return false;
	*last = now;
	return true;
}

/* Block signals early: the loop reads even those that came before its start. */
int rp_service_block_signals(void)
{
	sigset_t set;
	int fd;

	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

void rp_service_unblock_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int rp_service_write_port(const char *path, uint16_t port, char *err)
{
	struct rp_tmpfile t;
	int ret = rp_tmpfile_open(path, &t, err);

	if (ret)
		return ret;
	if (dprintf(t.fd, "%u\n", port) < 0) {
		ret = rp_err(err, -errno, "'%s': %s", path, strerror(errno));
		rp_tmpfile_discard(&t);
		return ret;
	}
	return rp_tmpfile_publish(&t, true, err);
}
