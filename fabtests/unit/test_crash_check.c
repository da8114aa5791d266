// SPDX-License-Identifier: BSD-2-Clause
/* Checks of images: their bytes, ledger, status, output, time and processes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/crashtest/check.h"
#include "util/crashtest/trace.h"

#define ACKS 300u

static struct crash_log l;
static struct crash_history h;
static struct crash_checker checker = {
	.history = &h,
	.jobs = 2,
	.timeout = UINT32_MAX,
};
static char work[] = "/tmp/test_crash_check.XXXXXX";
static uint64_t lost[2];

volatile sig_atomic_t crash_interrupted;

/* --- system calls of the child, which fail when a test says so --- */

static bool fail_open, fail_chdir, fail_unshare;

static int fail_call(int err)
{
	errno = err;
	return -1;
}

int open(const char *path, int flags, ...)
{
	const char *name = strrchr(path, '/');
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (fail_open && name && !strcmp(name, "/output"))
		return fail_call(EMFILE);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int chdir(const char *path)
{
	return fail_chdir ? fail_call(EACCES) : (int)syscall(SYS_chdir, path);
}

int unshare(int flags)
{
	return fail_unshare ? fail_call(EPERM)
			    : (int)syscall(SYS_unshare, flags);
}

/* A process of another user cannot be killed. */
static bool fail_kill;
static unsigned int pauses;

int kill(pid_t pid, int signal)
{
	return fail_kill ? fail_call(EPERM)
			 : (int)syscall(SYS_kill, pid, signal);
}

/* Time passes at once, while a process cannot be killed. */
int nanosleep(const struct timespec *time, struct timespec *rest)
{
	pauses += fail_kill;
	return fail_kill ? 0 : (int)syscall(SYS_nanosleep, time, rest);
}

static char detached[64]; /* the file whose descriptor LOOP_CLR_FD has got */

int ioctl(int fd, unsigned long request, ...)
{
	char link[32];

	cr_assert_eq(request, LOOP_CLR_FD);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	cr_assert_gt(readlink(link, detached, sizeof(detached) - 1), 0);
	return 0;
}

static struct crash_step *step(enum crash_step_kind kind, uint32_t inode)
{
	struct crash_step *e = crash_log_event(&l, kind);

	cr_assert(e);
	e->inode = inode;
	return e;
}

static void put(enum crash_step_kind kind, uint32_t file, const char *bytes)
{
	const uint64_t data = crash_log_bytes(&l, bytes, strlen(bytes));
	struct crash_step *e = step(kind, file);

	e->length = strlen(bytes);
	e->data = data;
}

/* The file f has "old"; "new" is written, and then acknowledged ACKS times. */
static void setup(void)
{
	struct crash_step *create;
	uint32_t file;

	l.store = 8;
	l.sector = 512;
	crash_log_inode(&l, S_IFDIR | 0755, getuid(), getgid());
	file = crash_log_inode(&l, S_IFREG | 0644, getuid(), getgid());
	create = step(CRASH_CREATE, file);
	create->dir = 0;
	create->name = crash_log_text(&l, "f");
	put(CRASH_WRITE, file, "old");
	l.base = l.event_count;
	put(CRASH_WRITE, file, "new");
	for (unsigned int n = 0; n < ACKS; n++)
		put(CRASH_ACK, CRASH_NONE, n ? "more" : "first");
	cr_assert(!crash_history_make(&h, &l));
	cr_assert(mkdtemp(work));
	checker.work = work;
}

static void teardown(void)
{
	crash_checker_free(&checker);
	crash_history_free(&h);
	crash_log_free(&l);
	/* Each check has removed its folder. */
	cr_assert(!rmdir(work), "%s: %m", work);
}

TestSuite(crash_check, .init = setup, .fini = teardown);

/* The image at a cut that comes so many acknowledgements behind the write. */
static struct crash_job *make_job(uint32_t acks)
{
	const struct crash_image i = {
		.cut = (uint32_t)l.base + acks,
		.meta = h.meta_made[l.base],
		.lost = lost,
	};
	struct crash_job *job = crash_job_make(&h, &i);

	cr_assert(job);
	return job;
}

static struct crash_job *run(const char *command, struct crash_job *job)
{
	checker.command = command;
	cr_assert(crash_check_start(&checker, job, false), "%s", checker.err);
	crash_check_finish(&checker);
	cr_assert(job->output);
	return job;
}

static void expect(const char *command, struct crash_job *job, int status,
		   const char *output)
{
	run(command, job);
	cr_assert_eq(job->status, status, "%d: %s", job->status, job->output);
	cr_assert_str_eq(job->output, output);
	crash_job_free(job);
}

Test(crash_check, exit_status_and_both_outputs_are_kept)
{
	expect("echo said; echo warned >&2; exit 3", make_job(0), 3,
	       "said\nwarned\n");
	expect("true", make_job(0), 0, "");
}

Test(crash_check, check_that_a_signal_ends_fails)
{
	expect("kill -9 $$", make_job(0), 128 + 9, "");
}

Test(crash_check, check_that_hangs_fails)
{
	struct crash_job *job = make_job(0);

	checker.timeout = 1;
	run("sleep 1000", job);
	cr_assert_eq(job->status, 124);
	cr_assert(job->timed_out);
	crash_job_free(job);
}

Test(crash_check, a_signal_ends_a_check_and_convicts_nobody)
{
	struct crash_job *job = make_job(0);

	checker.command = "sleep 1000";
	cr_assert(crash_check_start(&checker, job, false));
	crash_interrupted = 1;
	crash_check_finish(&checker);
	cr_assert(job->untested && !job->timed_out);
	cr_assert_str_eq(checker.err, "interrupted by a signal");
	cr_assert(!crash_check_start(&checker, job, false));
	crash_job_free(job);
}

/* A service manager sends its signal to each process of the service. */
Test(crash_check, a_signal_that_a_check_gets_too_convicts_nobody)
{
	struct crash_job *job = make_job(0);
	siginfo_t info;

	checker.command = "kill $$";
	cr_assert(crash_check_start(&checker, job, false));
	cr_assert(!waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
	crash_interrupted = 1;
	crash_check_finish(&checker);
	cr_assert(job->untested);
	cr_assert_str_eq(checker.err, "interrupted by a signal");
	crash_job_free(job);
}

Test(crash_check, a_killed_wrapper_leaves_no_loop_device)
{
	struct crash_job *job = make_job(0);

	checker.wrapper = ":";
	crash_job_free(run("", make_job(0)));
	cr_assert_str_eq(detached, "");
	checker.wrapper = "echo /dev/zero >$RPMEM_CRASHTEST_WORK/" CRASH_LOOP
			  "; kill -9 $$";
	run("", job);
	cr_assert_str_eq(detached, "/dev/zero");
	crash_job_free(job);
}

Test(crash_check, check_runs_in_the_image)
{
	expect("cat f; cat \"$RPMEM_CRASHTEST_DIR/f\"", make_job(0), 0,
	       "newnew");
	lost[0] = 1;
	expect("cat f; ls", make_job(0), 0, "oldf\n");
}

Test(crash_check, ledger_has_the_lines_up_to_the_cut)
{
	struct crash_job *job = make_job(0);

	expect("cat \"$RPMEM_CRASHTEST_LEDGER\"", make_job(0), 0, "");
	expect("cat \"$RPMEM_CRASHTEST_LEDGER\"", make_job(2), 0,
	       "first\nmore\n");
	job->all_acks = true;
	run("wc -l <\"$RPMEM_CRASHTEST_LEDGER\"", job);
	cr_assert_eq(atoi(job->output), (int)ACKS);
	crash_job_free(job);
}

Test(crash_check, output_has_a_limit)
{
	struct crash_job *job =
		run("head -c 10000 /dev/zero | tr '\\0' x", make_job(0));

	cr_assert_eq(job->status, 0);
	cr_assert_eq(strlen(job->output), CRASH_OUTPUT);
	crash_job_free(job);
}

Test(crash_check, processes_of_a_check_end_with_it)
{
	struct crash_job *job =
		run("sleep 1000 >/dev/null 2>&1 & echo $!", make_job(0));
	int fd = (int)syscall(SYS_pidfd_open, atoi(job->output), 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd < 0)
		cr_assert_eq(errno, ESRCH);
	else
		cr_assert_eq(poll(&p, 1, 20000), 1, "the process is alive");
	crash_job_free(job);
}

Test(crash_check, orphans_of_checks_leave_no_zombies)
{
	siginfo_t info;

	cr_assert(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	for (uint32_t n = 0; n < 20; n++)
		crash_job_free(run("sleep 1000 & exit 0", make_job(n)));
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
	/* An orphan in a session of its own ends by itself. */
	crash_job_free(run("mkfifo p; (setsid sh -c 'exec >p' &); cat p",
			   make_job(0)));
	waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
	crash_job_free(run(":", make_job(0)));
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
	cr_assert_eq(errno, ECHILD);
}

static void outlives(const char *command, int status)
{
	struct crash_job *job = make_job(0);
	char remove_all[128];
	siginfo_t info;
	pid_t group;

	checker.command = command;
	cr_assert(crash_check_start(&checker, job, false));
	group = checker.slots[0].pid;
	if (!status)
		cr_assert(
			!waitid(P_PID, (id_t)group, &info, WEXITED | WNOWAIT));
	fail_kill = true;
	crash_check_finish(&checker);
	fail_kill = false;
	cr_assert_eq(job->status, status);
	cr_assert(!kill(-group, SIGKILL));
	while (waitpid(-group, NULL, 0) > 0)
		;
	/* It may have begun its output after its folder was removed. */
	snprintf(remove_all, sizeof(remove_all), "rm -rf %s/*", work);
	cr_assert(!system(remove_all));
	crash_job_free(job);
}

Test(crash_check, a_process_that_cannot_be_killed_is_not_waited_for,
     .timeout = 60)
{
	cr_assert(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	outlives("sleep 1000 & exit 0", 0);
	cr_assert_eq(pauses, 2000);
	checker.timeout = 1;
	outlives("exec sleep 1000", 124);
}

/* Whether the image at this cut is checked, when only new ones are. */
static bool is_new(uint32_t acks)
{
	struct crash_job *job = make_job(acks);
	const bool started = crash_check_start(&checker, job, true);

	crash_check_finish(&checker);
	cr_assert_eq(!job->output, !started);
	crash_job_free(job);
	return started;
}

Test(crash_check, image_is_checked_once_for_each_ledger)
{
	checker.command = ":";
	for (uint32_t n = 0; n < ACKS; n++)
		cr_assert(is_new(n));
	for (uint32_t n = 0; n < ACKS; n++)
		cr_assert(!is_new(n));
	lost[0] = 1;
	cr_assert(is_new(0));
	cr_assert_eq(checker.runs, ACKS + 1);
}

Test(crash_check, missing_folder_for_images_is_an_error)
{
	struct crash_job *job = make_job(0);

	checker.work = "/nowhere";
	checker.command = ":";
	cr_assert(!crash_check_start(&checker, job, false));
	cr_assert_str_eq(checker.err, "an image cannot be made in /nowhere/1: "
				      "No such file or directory");
	crash_job_free(job);
}

/* Each check waits for the other one, so they pass only side by side. */
Test(crash_check, as_many_checks_as_jobs_run_at_once)
{
	struct crash_job *one = make_job(0), *two = make_job(1);
	char fifo[64], command[256];

	snprintf(fifo, sizeof(fifo), "%s/fifo", work);
	cr_assert(!mkfifo(fifo, 0600));
	snprintf(command, sizeof(command),
		 "if [ -s \"$RPMEM_CRASHTEST_LEDGER\" ]; then echo met >%s; "
		 "else cat %s; fi",
		 fifo, fifo);
	/* This only ends a broken build: a pass waits for no time. */
	checker.timeout = 60000;
	checker.command = command;
	cr_assert(crash_check_start(&checker, one, false));
	cr_assert(crash_check_start(&checker, two, false));
	crash_check_finish(&checker);
	cr_assert(!one->timed_out && !two->timed_out, "one waits for ever");
	cr_assert_str_eq(one->output, "met\n");
	crash_job_free(one);
	crash_job_free(two);
	unlink(fifo);
}

/* The tool itself fails: the reason is kept, and no check starts any more. */
static void is_not_tested(const char *reason)
{
	struct crash_job *job = make_job(0);

	checker.command = ":";
	cr_assert(crash_check_start(&checker, job, false));
	crash_check_finish(&checker);
	cr_assert(strstr(checker.err, reason), "no '%s' in: %s", reason,
		  checker.err);
	cr_assert(job->untested);
	fail_open = fail_chdir = fail_unshare = false;
	cr_assert(!crash_check_start(&checker, job, false));
	crash_job_free(job);
	cr_assert_eq(checker.runs, 1);
}

Test(crash_check, too_few_descriptors_are_no_failed_check)
{
	fail_open = true;
	is_not_tested("/output: Too many open files; allow more open files "
		      "(ulimit -n)");
}

Test(crash_check, a_folder_that_cannot_be_entered_is_no_failed_check)
{
	fail_chdir = true;
	is_not_tested("/image: Permission denied");
}

Test(crash_check, a_missing_mount_namespace_is_no_failed_check)
{
	checker.mounts = fail_unshare = true;
	is_not_tested("no mount namespace for the check of");
}

Test(crash_check, a_wrapper_may_say_that_nothing_was_tested)
{
	checker.wrapper =
		"echo 'no device' >$RPMEM_CRASHTEST_WORK/" CRASH_UNTESTED
		"; exit 32";
	is_not_tested("no device");
}
