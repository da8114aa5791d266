// SPDX-License-Identifier: BSD-2-Clause
/* Starts and ends fi_rpmemd --one-shot by ssh. */
#include "config.h"

#include <errno.h>
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
#include "util/exits.h"
#include "util/one_shot.h"

#define CONNECT	 "10"  /* seconds that ssh tries to connect */
#define REPLY_MS 40000 /* from the start of ssh to the daemon's reply */
#define END_MS	 15000 /* longer than the daemon completes commits */
#define KILL_MS	 5000  /* from a reply without a session to SIGKILL */
#define COMMAND	 "fi_rpmemd --one-shot"

extern char **environ;

bool session_is_needed(const char *target, const char *name)
{
	const size_t n = strlen(name);

	return strchr(target, '@') || strchr(name, '/') ||
	       (n > 4 && !strcmp(name + n - 4, ".set"));
}

/* --- starting ssh */

/* The command of RPMEM_CMD that is next: one each, divided by '|'. */
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

/* Divide [user@]host[:port]; the host may be [an IPv6 address]. */
static int parse_target(char *target, char **host, char **port, char *err)
{
	char *at = strrchr(target, '@'), *begin = at ? at + 1 : target;
	char *end = *begin == '[' ? strchr(begin, ']') : NULL;
	char *colon = strrchr(end ? end : begin, ':');
	uint64_t n;

	*host = target;
	*port = NULL;
	/* An IPv6 address without brackets has no port. */
	if (colon && (end || strchr(begin, ':') == colon)) {
		*colon = 0;
		*port = colon + 1;
	}
	if (end) {
		*end = 0;
		memmove(begin, begin + 1, strlen(begin));
	}
	if (!*begin || *target == '-' || (end && end[1] && end + 1 != colon) ||
	    (*port && rp_number_parse(*port, 1, 65535, &n, NULL)))
		return rp_err(err, -EINVAL,
			      "'%.200s' is no host for ssh: give "
			      "[user@]host[:port]",
			      target);
	return 0;
}

/* A file in memory, which only this user can open. */
static int memory_file(const char *name)
{
	const int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd >= 0)
		fchmod(fd, 0600);
	return fd;
}

/* The child leads its own process group: ^C is the program's. */
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
	if (ret)
		s->pid = 0;
	else
		s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	return ret;
}

static int start_ssh(struct session *s, char *host, char *port, char *command,
		     char *err)
{
	char *ssh = getenv("RPMEM_SSH"), *argv[12];
	unsigned int n = 0;
	int ends[2], ret;

	argv[n++] = ssh && *ssh ? ssh : "ssh";
	argv[n++] = "-T";
	argv[n++] = "-oBatchMode=yes";
	argv[n++] = "-oConnectTimeout=" CONNECT;
	if (port) {
		argv[n++] = "-p";
		argv[n++] = port;
	}
	argv[n++] = host;
	argv[n++] = command;
	argv[n] = NULL;
	s->log = memory_file("rpmem-ssh");
	if (s->log < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return rp_err(err, -errno, "ssh cannot be started: %s",
			      strerror(errno));
	ret = spawn(s, argv, ends[1]);
	close(ends[1]);
	s->line = ends[0];
	return ret ? rp_err(err, -EHOSTUNREACH,
			    "'%s' cannot be started: %s; install "
			    "openssh-client, or set RPMEM_SSH",
			    argv[0], strerror(ret))
		   : 0;
}

/* --- the reply */

/*
 * Read a line into a buffer: 0, -ENODATA: there is no further one, -ETIMEDOUT.
 * A line that is too long is cut.
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

/* The last line that ssh or the remote command has written as an error. */
static const char *last_error(const struct session *s, char text[200])
{
	ssize_t n;
	off_t end = lseek(s->log, 0, SEEK_END);
	char *p;

	n = pread(s->log, text, 199, end > 199 ? end - 199 : 0);
	text[n < 0 ? 0 : n] = 0;
	for (n = (ssize_t)strlen(text); n && strchr("\r\n", text[n - 1]); n--)
		text[n - 1] = 0;
	p = strrchr(text, '\n');
	rp_text_clean(p ? p + 1 : text, '?');
	return p ? p + 1 : text;
}

/* End ssh: it has END_MS, or as little as KILL_MS, to end by itself. */
static int reap(struct session *s, unsigned int ms)
{
	struct pollfd fd = {.fd = s->pidfd, .events = POLLIN};
	int status = 0, ret = 0;

	if (s->pidfd >= 0) {
		const uint64_t until = rp_now_ms() + ms;

		for (uint64_t now = rp_now_ms(); ret < 1 && now < until;
		     now = rp_now_ms())
			ret = poll(&fd, 1, (int)(until - now));
		if (ret < 1)
			syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL,
				0);
		close(s->pidfd);
		s->pidfd = -1;
	} else {
		kill(s->pid, SIGTERM);
	}
	/* The program may have waited for all its children. */
	while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
		;
	s->pid = 0;
	return status;
}

/* ssh has ended without a reply. */
static int explain_end(struct session *s, const char *host, const char *command,
		       char *err)
{
	const int status = reap(s, KILL_MS);
	char text[200];
	const char *why = last_error(s, text);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 255)
		return rp_err(err, -EHOSTUNREACH,
			      "ssh to %s failed: %s; 'ssh -oBatchMode=yes %s' "
			      "must work without a question",
			      host, *why ? why : "it gives no reason", host);
	return rp_err(err, -EPROTO,
		      "'%.100s' on %s has ended without a reply: %s; install "
		      "fi_rpmemd of this release there, or set RPMEM_CMD",
		      command, host, *why ? why : "it gives no reason");
}

/* A line of the daemon that serves no pool. */
static int explain_error(const char *host, const char *line, char *err)
{
	static const int codes[] = {
		[RP_EXIT_USAGE] = -EINVAL,     [RP_EXIT_FILE] = -EIO,
		[RP_EXIT_BUSY] = -EBUSY,       [RP_EXIT_SPACE] = -ENOSPC,
		[RP_EXIT_NETWORK] = -ENETDOWN, [RP_EXIT_SECRET] = -EACCES,
		[RP_EXIT_CLASS] = -EOPNOTSUPP,
	};
	unsigned int code;
	int n;

	if (!strncmp(line, "missing ", 8))
		return rp_err(err, -ENOENT, "%s: %s", host, line + 8);
	if (!strncmp(line, "denied ", 7))
		return rp_err(err, -EACCES, "%s: %s", host, line + 7);
	if (sscanf(line, "error %u %n", &code, &n) != 1)
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

/* Keep where the pool is, and its secret. */
static int keep_pool(struct session *s, const char *line, char *err)
{
	char secret[129], address[64], header[8];
	unsigned int port;
	int n = 0;

	if (sscanf(line, "serves %7s %128s %u %63s %n", header, secret, &port,
		   address, &n) != 4 ||
	    !n)
		return rp_err(err, -EPROTO,
			      "the reply of fi_rpmemd is damaged");
	s->secret = memory_file("rpmem-secret");
	if (s->secret < 0 ||
	    write(s->secret, secret, strlen(secret)) != (ssize_t)strlen(secret))
		return rp_err(err, -errno, "the secret cannot be kept: %s",
			      strerror(errno));
	explicit_bzero(secret, sizeof(secret));
	s->header = !strcmp(header, "yes")  ? SESSION_HEADER
		    : !strcmp(header, "no") ? SESSION_NO_HEADER
					    : SESSION_ANY;
	snprintf(s->path, sizeof(s->path), "/proc/self/fd/%d", s->secret);
	snprintf(s->where, sizeof(s->where),
		 strchr(address, ':') ? "[%s]:%u:%s" : "%s:%u:%s", address,
		 port, line + n);
	return 0;
}

static int request(struct session *s, const char *host, const char *command,
		   const char *verb, const char *name, char *err)
{
	const size_t hello = strlen(RP_ONE_SHOT_HELLO);
	const uint64_t until = rp_now_ms() + REPLY_MS;
	char line[RP_ONE_SHOT_LINE];
	int ret = snprintf(line, sizeof(line), RP_ONE_SHOT_HELLO "%s %s\n",
			   verb, name);

	if (ret >= (int)sizeof(line) || strchr(name, '\n'))
		return rp_err(err, -EINVAL, "'%.100s' is no path of a pool set",
			      name);
	/* If ssh has ended already, there is no reply. */
	send(s->line, line, (size_t)ret, MSG_NOSIGNAL);
	do
		ret = read_line(s, line, until);
	while (!ret && strncmp(line, RP_ONE_SHOT_HELLO, hello));
	if (ret == -ETIMEDOUT)
		return rp_err(err, ret,
			      "ssh to %s has got no reply of '%.100s' in %d "
			      "seconds; try it by hand",
			      host, command, REPLY_MS / 1000);
	if (ret)
		return explain_end(s, host, command, err);
	if (!strncmp(line + hello, "serves ", 7))
		return keep_pool(s, line + hello, err);
	if (!strcmp(line + hello, "removed"))
		return 0;
	return explain_error(host, line + hello, err);
}

int session_begin(struct session *s, const char *target, const char *verb,
		  const char *name, char *err)
{
	char *copy = strdup(target), *command = next_command();
	char *host = NULL, *port = NULL;
	int ret;

	*s = (struct session){.pidfd = -1, .line = -1, .log = -1, .secret = -1};
	if (!copy || !command)
		ret = rp_err(err, -ENOMEM, "out of memory");
	else
		ret = parse_target(copy, &host, &port, err);
	if (!ret)
		ret = start_ssh(s, host, port, command, err);
	if (!ret)
		ret = request(s, host, command, verb, name, err);
	free(command);
	free(copy);
	if (ret)
		session_end(s);
	return ret;
}

/* The end of standard input ends fi_rpmemd, and so ssh. */
int session_end(struct session *s)
{
	const int code = errno; /* of the caller's error */
	int status = 0;

	if (s->line >= 0)
		shutdown(s->line, SHUT_WR);
	if (s->pid)
		status = reap(s, *s->where ? END_MS : KILL_MS);
	for (int *fd = (int[]){s->line, s->log, s->secret, -2}; *fd != -2; fd++)
		if (*fd >= 0)
			close(*fd);
	s->line = s->log = s->secret = -1;
	errno = code;
	return status ? -ECONNRESET : 0;
}
