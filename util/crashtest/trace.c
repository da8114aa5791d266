// SPDX-License-Identifier: BSD-2-Clause
/* Serves the stops of recorded threads, one recorded call at a time. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/crashtest/trace.h"

#define TRACE_OPTIONS                                                          \
	(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |    \
	 PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD |    \
	 PTRACE_O_EXITKILL)
#define SYSCALL_STOP (SIGTRAP | 0x80)

volatile sig_atomic_t crash_interrupted;

static struct rlimit files_limit;

__attribute__((constructor)) static void keep_limit(void)
{
	getrlimit(RLIMIT_NOFILE, &files_limit);
}

static void redirect(const char *output)
{
	const int fd =
		output ? open(output, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;

	if (fd < 0)
		return;
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static void become(char *const argv[], char *const env[], const char *output)
{
	redirect(output);
	for (; env && *env; env++)
		putenv(*env);
	setrlimit(RLIMIT_NOFILE, &files_limit);
	signal(SIGPIPE, SIG_DFL);
	execvp(argv[0], argv);
	fprintf(stderr, "fi_rpmem_crashtest: %s: %s\n", argv[0],
		strerror(errno));
	_exit(127);
}

pid_t crash_plain_start(char *const argv[], char *const env[],
			const char *output)
{
	const pid_t pid = fork();

	if (!pid) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		become(argv, env, output);
	}
	return pid < 0 ? -errno : pid;
}

pid_t crash_trace_start(char *const argv[], char *const env[],
			const char *output)
{
	int go[2], ret;
	char c = 0;
	pid_t pid;

	if (pipe2(go, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		close(go[1]);
		/* Wait until this process is seized. */
		if (read(go[0], &c, 1) != 1)
			_exit(127);
		ret = crash_filter_install();
		if (ret) {
			fprintf(stderr, "fi_rpmem_crashtest: seccomp: %s\n",
				strerror(-ret));
			_exit(127);
		}
		become(argv, env, output);
	}
	if (pid < 0)
		pid = -errno;
	close(go[0]);
	if (pid > 0 && ptrace(PTRACE_SEIZE, pid, 0, TRACE_OPTIONS)) {
		ret = -errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		pid = ret;
	}
	if (pid > 0 && write(go[1], &c, 1) != 1)
		pid = -EPIPE;
	close(go[1]);
	return pid;
}

/* Reports of other threads that came while a recorded call executed. */
static struct report {
	pid_t tid;
	int status;
} * kept;
static size_t kept_first, kept_count, kept_room;

static void keep_report(struct crash_recorder *r, pid_t tid, int status)
{
	if (kept_count == kept_room) {
		const size_t room = kept_room ? 2 * kept_room : 64;
		struct report *more = reallocarray(kept, room, sizeof(*more));

		if (!more) {
			crash_record_miss(r, "out of memory");
			kill(tid, SIGKILL);
			return;
		}
		kept = more;
		kept_room = room;
	}
	kept[kept_count++] = (struct report){tid, status};
}

/* The oldest kept report, else as waitpid(2). */
static pid_t next_report(int *status, int flags)
{
	struct report next;

	if (kept_first == kept_count)
		return waitpid(-1, status, flags);
	next = kept[kept_first++];
	if (kept_first == kept_count)
		kept_first = kept_count = 0;
	*status = next.status;
	return next.tid;
}

static bool is_kept(pid_t tid)
{
	for (size_t i = kept_first; i < kept_count; i++)
		if (kept[i].tid == tid)
			return true;
	return false;
}

/* Read the call at which a thread stopped; false: the thread is gone. */
static bool get_call(pid_t tid, struct __ptrace_syscall_info *info)
{
	return ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(*info), info) > 0;
}

static bool stops_group(int sig)
{
	return sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN ||
	       sig == SIGTTOU;
}

/* A write to the ledger has returned that serve_call() did not wait for. */
static void end_ledger(struct crash_recorder *r, pid_t tid)
{
	struct __ptrace_syscall_info info;

	if (get_call(tid, &info) && info.op == PTRACE_SYSCALL_INFO_EXIT &&
	    info.exit.rval > 0)
		crash_record_appended(r, tid, (uint64_t)info.exit.rval);
}

/*
 * Let a thread go on after any stop but the entry of a call. A stop at the exit
 * of a call is the end of a write to the ledger, which serve_call() requested.
 */
static void pass_stop(struct crash_recorder *r, pid_t tid, int status)
{
	const int sig = WSTOPSIG(status), event = status >> 16;

	if (!event && sig == SYSCALL_STOP && r->on)
		end_ledger(r, tid);
	if (event == PTRACE_EVENT_STOP && stops_group(sig))
		ptrace(PTRACE_LISTEN, tid, 0, 0);
	else if (event || sig == SYSCALL_STOP)
		ptrace(PTRACE_CONT, tid, 0, 0);
	else
		ptrace(PTRACE_CONT, tid, 0, sig);
}

/* Serve another thread's report; keep it if it enters a call, or has ended. */
static void serve_other(struct crash_recorder *r, pid_t tid, int status)
{
	if (WIFSTOPPED(status) && status >> 16 != PTRACE_EVENT_SECCOMP)
		pass_stop(r, tid, status);
	else
		keep_report(r, tid, status);
}

/*
 * Wait until a recorded call has returned. Other threads run meanwhile, up to
 * their next call that may be recorded. Take the reports of all threads: the
 * kernel reports the end of a process's first thread only when the ends of all
 * its other threads have been taken. Returns false when the thread has died.
 */
static bool await_return(struct crash_recorder *r, pid_t tid, int64_t *ret)
{
	struct __ptrace_syscall_info info;
	int status;

	while (!ptrace(PTRACE_SYSCALL, tid, 0, 0)) {
		pid_t got;

		while ((got = waitpid(-1, &status, __WALL)) != tid) {
			if (got > 0)
				serve_other(r, got, status);
			else if (errno != EINTR)
				return false;
			else if (crash_interrupted)
				kill(tid, SIGKILL);
		}
		/* A thread that calls execve(2) may take this one's id. */
		if (!WIFSTOPPED(status) || status >> 16 == PTRACE_EVENT_EXEC) {
			keep_report(r, tid, status);
			return false;
		}
		if (WSTOPSIG(status) == SYSCALL_STOP) {
			if (!get_call(tid, &info))
				return false;
			*ret = info.exit.rval;
			return true;
		}
	}
	return false;
}

/*
 * Let the call of a stopped thread execute. Other threads wait at their
 * recorded calls meanwhile, except those that write to the ledger on a device,
 * so events are in the order of their effects.
 */
static void run_call(struct crash_recorder *r, struct crash_call *c)
{
	int64_t ret = -1;

	if (await_return(r, c->tid, &ret)) {
		crash_call_end(r, c, ret, false);
		ptrace(PTRACE_CONT, c->tid, 0, 0);
	} else {
		crash_call_end(r, c, -1, true);
	}
}

static void serve_call(struct crash_recorder *r, pid_t tid)
{
	struct crash_call c = {.tid = tid};
	struct __ptrace_syscall_info info;

	if (r->on && get_call(tid, &info) &&
	    info.op == PTRACE_SYSCALL_INFO_SECCOMP) {
		c.nr = info.seccomp.nr;
		for (unsigned int i = 0; i < 6; i++)
			c.args[i] = info.seccomp.args[i];
		if (crash_call_begin(r, &c)) {
			/*
			 * A write to the ledger, which is no recorded file, may
			 * wait for the device, and so for nbdkit's calls.
			 */
			if (r->device && !c.file)
				ptrace(PTRACE_SYSCALL, tid, 0, 0);
			else
				run_call(r, &c);
			return;
		}
	}
	ptrace(PTRACE_CONT, tid, 0, 0);
}

static void serve_stop(struct crash_recorder *r, pid_t tid, int status)
{
	if (status >> 16 == PTRACE_EVENT_SECCOMP)
		serve_call(r, tid);
	else
		pass_stop(r, tid, status);
}

int crash_trace_until(struct crash_recorder *r, pid_t pid, const char *ready)
{
	const struct timespec pause = {0, 2000000};
	int status;

	/* A former call for another process may already have reaped pid. */
	if (kill(pid, 0) && !is_kept(pid))
		return 0;
	for (;;) {
		const pid_t tid =
			next_report(&status, __WALL | (ready ? WNOHANG : 0));
		const bool over = tid < 0 && errno != EINTR;

		if (crash_interrupted == 1) {
			crash_interrupted = 2;
			kill(pid, SIGKILL);
		}
		if (over)
			return -1;
		if (tid > 0 && WIFSTOPPED(status))
			serve_stop(r, tid, status);
		else if (tid == pid)
			return status;
		if (ready && !access(ready, F_OK))
			return 0;
		if (!tid)
			nanosleep(&pause, NULL);
	}
}

/* Read two fields of /proc/PID/status. */
static bool get_status(const char *pid, long *tracer, long *parent)
{
	char path[64], line[256];
	FILE *f;

	*tracer = *parent = 0;
	snprintf(path, sizeof(path), "/proc/%.16s/status", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "TracerPid: %ld", tracer);
		sscanf(line, "PPid: %ld", parent);
	}
	fclose(f);
	return true;
}

/*
 * Kill all traced processes except keep and its children; return how many were
 * killed.
 */
static unsigned int kill_once(pid_t keep)
{
	unsigned int count = 0;
	long tracer, parent;
	DIR *list = opendir("/proc");
	const struct dirent *d;

	while (list && (d = readdir(list))) {
		const pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);

		if (pid <= 0 || pid == keep ||
		    !get_status(d->d_name, &tracer, &parent) ||
		    tracer != getpid() || parent == keep)
			continue;
		kill(pid, SIGKILL);
		count++;
	}
	if (list)
		closedir(list);
	return count;
}

unsigned int crash_trace_kill(struct crash_recorder *r, pid_t keep)
{
	const struct timespec pause = {0, 2000000};
	unsigned int count = kill_once(keep);
	int status;
	pid_t tid;

	for (unsigned int left = count; left; left = kill_once(keep)) {
		while ((tid = next_report(&status, __WALL | WNOHANG)) > 0)
			if (WIFSTOPPED(status))
				serve_stop(r, tid, status);
		nanosleep(&pause, NULL);
	}
	return count;
}
