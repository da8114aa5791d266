// SPDX-License-Identifier: BSD-2-Clause
/* Starts and ends fi_rpmemd --one-shot by ssh. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/librpmem/session.h"
#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/one_shot.h"

#define CONNECT	 "10"  /* seconds until ssh gives up connecting */
#define REPLY_MS 40000 /* time from the start of ssh to the daemon's reply */
#define END_MS	 15000 /* more than the daemon needs to complete commits */
#define KILL_MS	 5000  /* time until SIGKILL, if no session was started */
#define COMMAND	 "fi_rpmemd --one-shot"
#define LOG_MAX	 65536 /* bytes that are kept of what ssh writes as errors */
#define UNKNOWN	 (-1)  /* exit status, when the program has reaped ssh */
#define RUNNING	 (-2)  /* no exit status yet */
#define STEP_MS	 10    /* pause between polls, where there is no pidfd */

/* A command that ssh runs, and the remote host. */
struct remote {
	const char *ssh;
	char *host; /* host, with the user if given */
	char *port; /* NULL: ssh's default */
	char *command;
};

bool session_is_needed(const char *target, const char *name)
{
	const size_t n = strlen(name);

	return strchr(target, '@') || strchr(name, '/') ||
	       (n > 4 && !strcmp(name + n - 4, ".set"));
}

/* --- starting ssh */

/* The next of the commands in RPMEM_CMD, separated by '|', in rotation. */
static char *next_command(void)
{
	static atomic_uint next;
	const char *all = getenv("RPMEM_CMD");
	unsigned int n = 1, i;

	if (!all || !*all)
		return strdup(COMMAND);
	for (const char *p = all; *p; p++)
		n += *p == '|';
	for (i = atomic_fetch_add(&next, 1) % n; i; i--)
		all = strchr(all, '|') + 1;
	return strndup(all, strcspn(all, "|"));
}

/* Split a copy of [user@]host[:port]; the host may be [an IPv6 address]. */
static int parse_target(const char *target, char *copy, struct remote *to,
			char *err)
{
	char *at = strrchr(copy, '@'), *begin = at ? at + 1 : copy;
	char *end = *begin == '[' ? strchr(begin, ']') : NULL;
	char *colon = strrchr(end ? end : begin, ':');
	uint64_t n;

	to->host = copy;
	/* An IPv6 address without brackets has no port. */
	if (colon && (end || strchr(begin, ':') == colon)) {
		*colon = 0;
		to->port = colon + 1;
	}
	if (end) {
		*end = 0;
		memmove(begin, begin + 1, strlen(begin));
	}
	if (!*begin || *copy == '-' || (end && end[1] && end + 1 != colon) ||
	    (to->port && rp_number_parse(to->port, 1, 65535, &n, NULL)))
		return rp_err(err, -EINVAL,
			      "'%.200s' is no host for ssh: give "
			      "[user@]host[:port]",
			      target);
	return 0;
}

/* Move a descriptor to 3 or above: the program may have closed 0, 1 or 2. */
static int off_stdio(int fd)
{
	int moved;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return moved;
}

/*
 * A file in memory, which only this user can open. It does not grow beyond
 * size: writes behind that fail.
 */
static int memory_file(const char *name, off_t size)
{
	const int fd =
		off_stdio(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));

	if (fd < 0)
		return fd;
	if (!fchmod(fd, 0600) && !ftruncate(fd, size) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_GROW))
		return fd;
	close(fd);
	return -1;
}

/* The child leads its own process group: ^C is for the program only. */
static int spawn(struct session *s, char *const argv[], int end)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, reset;
	int ret;

	sigemptyset(&none);
	sigemptyset(&reset);
	sigaddset(&reset, SIGPIPE);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, end, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, end, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, s->log, STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
	/* Close what the program has not marked close-on-exec. */
	posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
#endif
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &reset);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	ret = posix_spawnp(&s->pid, argv[0], &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (ret) {
		s->pid = 0;
		return ret;
	}
	s->pidfd = off_stdio((int)syscall(SYS_pidfd_open, s->pid, 0));
	/* ESRCH: ssh is reaped, as SIGCHLD is ignored; do not use its pid. */
	s->reaped = s->pidfd < 0 && errno == ESRCH;
	return 0;
}

static int start_ssh(struct session *s, const struct remote *to, char *err)
{
	char *argv[12];
	unsigned int n = 0;
	int ends[2], ret;

	argv[n++] = (char *)to->ssh;
	argv[n++] = "-T";
	argv[n++] = "-oBatchMode=yes";
	argv[n++] = "-oConnectTimeout=" CONNECT;
	if (to->port) {
		argv[n++] = "-p";
		argv[n++] = to->port;
	}
	argv[n++] = to->host;
	argv[n++] = to->command;
	argv[n] = NULL;
	s->log = memory_file("rpmem-ssh", LOG_MAX);
	if (s->log < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return rp_err(err, -errno, "ssh cannot be started: %s",
			      strerror(errno));
	s->line = off_stdio(ends[0]);
	ends[1] = off_stdio(ends[1]);
	ret = s->line < 0 || ends[1] < 0 ? errno : spawn(s, argv, ends[1]);
	if (ends[1] >= 0)
		close(ends[1]);
	return ret ? rp_err(err, -EHOSTUNREACH,
			    "'%s' cannot be started: %s; install "
			    "openssh-client, or set RPMEM_SSH",
			    to->ssh, strerror(ret))
		   : 0;
}

/* --- the reply */

/*
 * Read a line into a buffer. Returns 0, -ENODATA: no more lines, or -ETIMEDOUT.
 * Truncates a line that is too long.
 */
static int read_line(struct session *s, char line[RP_ONE_SHOT_LINE],
		     uint64_t until)
{
	struct pollfd fd = {.fd = s->line, .events = POLLIN};
	size_t n = 0;

	for (;;) {
		const uint64_t now = rp_now_ms();
		int ready = now < until ? poll(&fd, 1, (int)(until - now)) : 0;
		char byte;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready < 1)
			return -ETIMEDOUT;
		if (recv(s->line, &byte, 1, 0) != 1)
			return -ENODATA;
		if (byte == '\n')
			break;
		if (n < RP_ONE_SHOT_LINE - 1)
			line[n++] = byte;
	}
	line[n] = 0;
	return 0;
}

/* Find the last line that ssh or the remote command wrote to stderr. */
static const char *last_error(const struct session *s, char text[200])
{
	ssize_t n;
	/* ssh shares this file's position: the end of what it wrote. */
	off_t end = lseek(s->log, 0, SEEK_CUR);
	char *p;

	n = pread(s->log, text, end > 199 ? 199 : (size_t)end,
		  end > 199 ? end - 199 : 0);
	text[n < 0 ? 0 : n] = 0;
	for (n = (ssize_t)strlen(text); n && strchr("\r\n", text[n - 1]); n--)
		text[n - 1] = 0;
	p = strrchr(text, '\n');
	rp_text_clean(p ? p + 1 : text, '?');
	return p ? p + 1 : text;
}

/* The exit status of ssh, or 256 if a signal has ended it. */
static int status_of(const struct session *s, int flags)
{
	siginfo_t info = {.si_pid = 0};
	int ret;

	if (s->reaped)
		return UNKNOWN;
	do
		ret = s->pidfd >= 0 ? waitid(P_PIDFD, (id_t)s->pidfd, &info,
					     WEXITED | WNOHANG | flags)
				    : waitid(P_PID, (id_t)s->pid, &info,
					     WEXITED | WNOHANG | flags);
	while (ret && errno == EINTR);
	if (ret)
		return UNKNOWN;
	if (!info.si_pid)
		return RUNNING;
	return info.si_code == CLD_EXITED ? info.si_status : 256;
}

/* Wait up to ms for ssh to end. */
static int wait_for(const struct session *s, unsigned int ms)
{
	const uint64_t until = rp_now_ms() + ms;
	struct pollfd fd = {.fd = s->pidfd, .events = POLLIN};
	int status = status_of(s, 0);

	for (uint64_t now = rp_now_ms(); status == RUNNING && now < until;
	     now = rp_now_ms()) {
		/* No pidfd, or its event precedes the status (a tracer). */
		if (s->pidfd < 0 || fd.revents)
			poll(NULL, 0, STEP_MS);
		else
			poll(&fd, 1, (int)(until - now));
		status = status_of(s, 0);
	}
	return status;
}

/* Wait up to ms for ssh to end by itself, then kill it. Returns its status. */
static int reap(struct session *s, unsigned int ms)
{
	int status = wait_for(s, ms);

	if (status == RUNNING) {
		if (s->pidfd >= 0)
			syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL,
				0);
		else
			kill(s->pid, SIGKILL);
		status = wait_for(s, KILL_MS);
	}
	if (s->pidfd >= 0)
		close(s->pidfd);
	s->pidfd = -1;
	s->pid = 0;
	return status;
}

/*
 * Whether ssh or the command has ended already, before session_end() ends it.
 * The exit status does not tell: after SIGTERM to fi_rpmemd it is 0, too.
 */
static bool has_ended(const struct session *s)
{
	char rest[64];
	ssize_t n;

	do
		n = recv(s->line, rest, sizeof(rest), MSG_DONTWAIT);
	while (n > 0 || (n < 0 && errno == EINTR));
	return !n || errno != EAGAIN || status_of(s, WNOWAIT) >= 0;
}

/* ssh has ended without a reply. */
static int explain_end(struct session *s, const struct remote *to, char *err)
{
	const int status = reap(s, KILL_MS);
	char text[200];
	const char *why = last_error(s, text);

	if (!*why)
		why = "no message on stderr";
	if (status == 255)
		return rp_err(err, -EHOSTUNREACH,
			      "ssh to %s failed: %s; '%s -T -oBatchMode=yes "
			      "%s%s%s%s' must work without a question",
			      to->host, why, to->ssh, to->port ? "-p " : "",
			      to->port ? to->port : "", to->port ? " " : "",
			      to->host);
	if (status == UNKNOWN)
		return rp_err(err, -EPROTO,
			      "'%.100s' on %s has ended without a reply: %s; "
			      "exit status unknown, because the program reaps "
			      "its children or ignores SIGCHLD; run that "
			      "command through ssh by hand",
			      to->command, to->host, why);
	return rp_err(err, -EPROTO,
		      "'%.100s' on %s has ended without a reply: %s; install "
		      "fi_rpmemd of this release there, or set RPMEM_CMD",
		      to->command, to->host, why);
}

/* Explain the reply of a daemon that serves no pool. */
static int explain_error(const char *host, char *line, char *err)
{
	static const int codes[] = {
		[RP_EXIT_USAGE] = -EINVAL,     [RP_EXIT_FILE] = -EIO,
		[RP_EXIT_BUSY] = -EBUSY,       [RP_EXIT_SPACE] = -ENOSPC,
		[RP_EXIT_NETWORK] = -ENETDOWN, [RP_EXIT_SECRET] = -EACCES,
		[RP_EXIT_CLASS] = -EOPNOTSUPP,
	};
	unsigned int code;
	int n = 0;

	rp_text_clean(line, '?');
	if (!strncmp(line, "missing ", 8))
		return rp_err(err, -ENOENT, "%s: %s", host, line + 8);
	if (!strncmp(line, "exists ", 7))
		return rp_err(err, -EEXIST, "%s: %s", host, line + 7);
	if (!strncmp(line, "denied ", 7))
		return rp_err(err, -EACCES, "%s: %s", host, line + 7);
	if (sscanf(line, "error %u %n", &code, &n) != 1 || !n)
		return rp_err(err, -EPROTO,
			      "%s: the reply '%.100s' is unknown; install the "
			      "same release at both ends",
			      host, line);
	return rp_err(err,
		      code < sizeof(codes) / sizeof(*codes) && codes[code]
			      ? codes[code]
			      : -EIO,
		      "%s: %s", host, line + n);
}

static int keep_secret(struct session *s, const char *secret, char *err)
{
	const size_t n = strlen(secret);

	s->secret = memory_file("rpmem-secret", (off_t)n);
	if (s->secret < 0 || write(s->secret, secret, n) != (ssize_t)n)
		return rp_err(err, -errno, "the secret cannot be kept: %s",
			      strerror(errno));
	snprintf(s->path, sizeof(s->path), "/proc/self/fd/%d", s->secret);
	return 0;
}

/* Whether a text can be part of an error text. */
static bool is_printable(const char *s)
{
	while (rp_char_printable(*s))
		s++;
	return !*s;
}

/* Store the pool's address and secret from the daemon's line. */
static int keep_pool(struct session *s, const char *line, char *err)
{
	char secret[129], address[64], header[8], number[8];
	uint64_t port;
	int n = 0, ret;

	if (sscanf(line, "serves %7s %128s %7s %63s %n", header, secret, number,
		   address, &n) != 4 ||
	    !n || rp_number_parse(number, 1, 65535, &port, NULL) ||
	    !is_printable(address) || !is_printable(line + n))
		ret = rp_err(err, -EPROTO, "the reply of fi_rpmemd is damaged");
	else
		ret = keep_secret(s, secret, err);
	explicit_bzero(secret, sizeof(secret));
	if (ret)
		return ret;
	s->header = !strcmp(header, "yes")  ? SESSION_HEADER
		    : !strcmp(header, "no") ? SESSION_NO_HEADER
					    : SESSION_ANY;
	snprintf(s->where, sizeof(s->where),
		 strchr(address, ':') ? "[%s]:%u:%s" : "%s:%u:%s", address,
		 (unsigned int)port, line + n);
	return 0;
}

/* Handle the reply: "serves" to open or create, "removed" to a removal. */
static int take_reply(struct session *s, const struct remote *to, bool removes,
		      char *line, char *err)
{
	const bool serves = !strncmp(line, "serves ", 7);

	if (!removes && serves)
		return keep_pool(s, line, err);
	/* Cut the secret off, because explain_error() prints the line. */
	if (serves)
		line[6] = 0;
	if (removes && !strcmp(line, "removed"))
		return 0;
	return explain_error(to->host, line, err);
}

static int request(struct session *s, const struct remote *to, const char *verb,
		   const char *name, char *err)
{
	const size_t hello = strlen(RP_ONE_SHOT_HELLO);
	const uint64_t until = rp_now_ms() + REPLY_MS;
	char line[RP_ONE_SHOT_LINE];
	int ret = snprintf(line, sizeof(line), RP_ONE_SHOT_HELLO "%s %s\n",
			   verb, name);

	if (ret >= (int)sizeof(line) || strchr(name, '\n'))
		return rp_err(err, -EINVAL,
			      "'%.100s' is too long or has a newline: not a "
			      "pool set path",
			      name);
	/* If ssh has ended, read_line() finds no reply. */
	send(s->line, line, (size_t)ret, MSG_NOSIGNAL);
	do
		ret = read_line(s, line, until);
	while (!ret && strncmp(line, RP_ONE_SHOT_HELLO, hello));
	if (ret == -ETIMEDOUT)
		rp_err(err, ret,
		       "no reply from '%.100s' on %s in %d seconds; run that "
		       "command through ssh by hand",
		       to->command, to->host, REPLY_MS / 1000);
	else if (ret)
		ret = explain_end(s, to, err);
	else
		ret = take_reply(s, to, !strncmp(verb, "remove", 6),
				 line + hello, err);
	explicit_bzero(line, sizeof(line));
	return ret;
}

void session_undo(struct session *s)
{
	static const char line[] = RP_ONE_SHOT_HELLO RP_ONE_SHOT_UNDO "\n";

	send(s->line, line, sizeof(line) - 1, MSG_NOSIGNAL);
}

int session_begin(struct session *s, const char *target, const char *verb,
		  const char *name, char *err)
{
	const char *ssh = getenv("RPMEM_SSH");
	struct remote to = {.ssh = ssh && *ssh ? ssh : "ssh",
			    .command = next_command()};
	char *copy = strdup(target);
	int ret;

	*s = (struct session){.pidfd = -1, .line = -1, .log = -1, .secret = -1};
	if (!copy || !to.command)
		ret = rp_err(err, -ENOMEM, "out of memory");
	else
		ret = parse_target(target, copy, &to, err);
	if (!ret)
		ret = start_ssh(s, &to, err);
	if (!ret)
		ret = request(s, &to, verb, name, err);
	free(to.command);
	free(copy);
	if (ret) {
		/* The daemon may have served a pool all the same. */
		session_undo(s);
		session_end(s);
	}
	return ret;
}

/* shutdown() ends the standard input of fi_rpmemd, which then ends, as ssh. */
int session_end(struct session *s)
{
	const int code = errno; /* the caller's error */
	bool early = false;
	int status = 0;

	if (s->line >= 0) {
		early = *s->where && has_ended(s);
		shutdown(s->line, SHUT_WR);
	}
	if (s->pid)
		status = reap(s, *s->where ? END_MS : KILL_MS);
	for (int *fd = (int[]){s->line, s->log, s->secret, -2}; *fd != -2; fd++)
		if (*fd >= 0)
			close(*fd);
	s->line = s->log = s->secret = -1;
	errno = code;
	if (early || (status && status != UNKNOWN))
		return -ECONNRESET;
	return status ? -ECHILD : 0;
}
