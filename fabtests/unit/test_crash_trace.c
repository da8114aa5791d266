// SPDX-License-Identifier: BSD-2-Clause
/*
 * The tracer of the recorder, on a scripted kernel: the stops of threads in,
 * the requests to the kernel and the recorded calls out.
 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <criterion/criterion.h>

#include "unit/never_called.h"
#include "util/crashtest/trace.h"

#define MAIN	100 /* the process that is waited for */
#define OTHER	101
#define CALL	((int)(SIGTRAP << 8 | PTRACE_EVENT_SECCOMP << 16 | 0x7f))
#define RETURN	(((SIGTRAP | 0x80) << 8) | 0x7f)
#define EXEC	((int)(SIGTRAP << 8 | PTRACE_EVENT_EXEC << 16 | 0x7f))
#define GROUP	((int)(SIGSTOP << 8 | PTRACE_EVENT_STOP << 16 | 0x7f))
#define CLONED	((int)(SIGTRAP << 8 | PTRACE_EVENT_STOP << 16 | 0x7f))
#define SIG(n)	((n) << 8 | 0x7f)
#define EXIT(n) ((n) << 8)
#define NO_MORE 0 /* a tid: every child has ended */

/* The thread that waitpid() reports next, and its call or return value. */
struct stop {
	pid_t tid;
	int status;
	int64_t value; /* number of the call, or its return value */
	bool gone;     /* the thread is killed before its call is read */
};

static const struct stop *script, *now[2];
static char out[1000];
static bool has_file; /* the call is on a recorded file */

static void __attribute__((format(printf, 1, 2))) log_line(const char *fmt, ...)
{
	const size_t n = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + n, sizeof(out) - n, fmt, ap);
	va_end(ap);
}

/* --- in place of the kernel --- */

pid_t __real_waitpid(pid_t pid, int *status, int flags);
pid_t __wrap_waitpid(pid_t pid, int *status, int flags);
pid_t __wrap_waitpid(pid_t pid, int *status, int flags)
{
	if (pid != -1) /* the test's own process */
		return __real_waitpid(pid, status, flags);
	cr_assert(flags & __WALL);
	if (script->tid == NO_MORE) {
		errno = ECHILD;
		return -1;
	}
	now[script->tid == OTHER] = script;
	*status = script->status;
	return script++->tid;
}

long __wrap_ptrace(enum __ptrace_request request, ...);
long __wrap_ptrace(enum __ptrace_request request, ...)
{
	struct __ptrace_syscall_info *info;
	const struct stop *s;
	va_list ap;
	pid_t tid;
	long data;

	va_start(ap, request);
	tid = va_arg(ap, pid_t);
	va_arg(ap, long);
	info = va_arg(ap, void *);
	va_end(ap);
	data = (int)(long)info;
	s = now[tid == OTHER];
	switch (request) {
	case PTRACE_GET_SYSCALL_INFO:
		if (s->gone)
			return -1;
		memset(info, 0, sizeof(*info));
		info->op = s->status == CALL ? PTRACE_SYSCALL_INFO_SECCOMP
					     : PTRACE_SYSCALL_INFO_EXIT;
		if (s->status != CALL) {
			info->exit.rval = s->value;
			return 1;
		}
		info->seccomp.nr = (uint64_t)s->value;
		for (unsigned int i = 0; i < 6; i++)
			info->seccomp.args[i] = 100 + i;
		return 1;
	case PTRACE_CONT:
		log_line("cont %d %ld\n", tid, data);
		return 0;
	case PTRACE_SYSCALL:
		log_line("run %d\n", tid);
		return 0;
	case PTRACE_LISTEN:
		log_line("listen %d\n", tid);
		return 0;
	default:
		cr_assert(false, "request %d", (int)request);
		return -1;
	}
}

int __wrap_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig)
{
	if (sig)
		log_line("kill %d %d\n", pid, sig);
	return 0;
}

/* --- the rest of the recorder --- */

bool crash_call_begin(struct crash_recorder *r, struct crash_call *c)
{
	static char file;

	(void)r;
	log_line("begin %d %d\n", c->tid, (int)c->nr);
	for (unsigned int i = 0; i < 6; i++)
		cr_assert_eq(c->args[i], 100 + i);
	c->file = has_file ? (struct crash_file *)&file : NULL;
	return c->nr < 10;
}

void crash_call_end(struct crash_recorder *r, struct crash_call *c, int64_t ret,
		    bool dead)
{
	(void)r;
	log_line("end %d %d %d%s\n", c->tid, (int)c->nr, (int)ret,
		 dead ? " dead" : "");
}

void crash_record_appended(struct crash_recorder *r, pid_t tid, uint64_t length)
{
	(void)r;
	log_line("appended %d %d\n", tid, (int)length);
}

NEVER_CALLED(void crash_record_miss(struct crash_recorder *r, const char *fmt,
				    ...))
NEVER_CALLED(int crash_filter_install(void))

/* --- tests --- */

static struct crash_recorder r;

/* Serve all stops; compare what the tracer does, and the status at the end. */
static void serve(const struct stop *stops, int status, const char *expected)
{
	script = stops;
	*out = 0;
	cr_assert_eq(crash_trace_until(&r, MAIN, NULL), status, "%s", out);
	cr_assert_str_eq(out, expected);
}

static void trace_start(void)
{
	memset(&r, 0, sizeof(r));
	r.on = true;
	has_file = true;
	crash_interrupted = 0;
}

TestSuite(crash_trace, .init = trace_start);

Test(crash_trace, call_is_recorded_from_entry_to_return)
{
	const struct stop stops[] = {
		{MAIN, CALL, 1, false},	   {MAIN, RETURN, 5, false},
		{MAIN, CALL, 2, false},	   {MAIN, RETURN, -28, false},
		{MAIN, EXIT(3), 0, false},
	};

	serve(stops, EXIT(3),
	      "begin 100 1\nrun 100\nend 100 1 5\ncont 100 0\n"
	      "begin 100 2\nrun 100\nend 100 2 -28\ncont 100 0\n");
}

Test(crash_trace, call_that_changes_nothing_runs_without_a_second_stop)
{
	const struct stop stops[] = {{MAIN, CALL, 10, false},
				     {MAIN, EXIT(0), 0, false}};

	serve(stops, 0, "begin 100 10\ncont 100 0\n");
}

Test(crash_trace, no_call_is_recorded_while_recording_is_off)
{
	const struct stop stops[] = {{MAIN, CALL, 1, false},
				     {MAIN, EXIT(0), 0, false}};

	r.on = false;
	serve(stops, 0, "cont 100 0\n");
}

/* Events are in the order of their effects: one call executes at a time. */
Test(crash_trace, other_threads_call_waits_until_this_one_has_returned)
{
	const struct stop stops[] = {
		{MAIN, CALL, 1, false},	    {OTHER, CALL, 2, false},
		{MAIN, RETURN, 7, false},   {OTHER, RETURN, 8, false},
		{OTHER, EXIT(0), 0, false}, {MAIN, EXIT(0), 0, false},
	};

	serve(stops, 0,
	      "begin 100 1\nrun 100\nend 100 1 7\ncont 100 0\n"
	      "begin 101 2\nrun 101\nend 101 2 8\ncont 101 0\n");
}

Test(crash_trace, other_threads_stops_are_passed_during_a_call)
{
	const struct stop stops[] = {
		{MAIN, CALL, 1, false},		{OTHER, SIG(SIGUSR1), 0, false},
		{OTHER, CLONED, 0, false},	{OTHER, GROUP, 0, false},
		{MAIN, SIG(SIGALRM), 0, false}, {MAIN, RETURN, 7, false},
		{MAIN, EXIT(0), 0, false},
	};

	serve(stops, 0,
	      "begin 100 1\nrun 100\ncont 101 10\ncont 101 0\nlisten 101\n"
	      "run 100\nend 100 1 7\ncont 100 0\n");
}

Test(crash_trace, signals_and_group_stops_are_passed_between_calls)
{
	const struct stop stops[] = {
		{MAIN, SIG(SIGUSR1), 0, false}, {MAIN, GROUP, 0, false},
		{MAIN, CLONED, 0, false},	{MAIN, EXEC, 0, false},
		{MAIN, SIGKILL, 0, false},
	};

	serve(stops, SIGKILL,
	      "cont 100 10\nlisten 100\ncont 100 0\ncont 100 0\n");
}

Test(crash_trace, thread_that_dies_in_a_call_is_recorded_as_dead)
{
	const struct stop stops[] = {{OTHER, CALL, 1, false},
				     {OTHER, SIGKILL, 0, false},
				     {MAIN, EXIT(0), 0, false}};

	serve(stops, 0, "begin 101 1\nrun 101\nend 101 1 -1 dead\n");
}

/* The process's end, seen within a call of another thread, is not lost. */
Test(crash_trace, end_of_the_process_during_a_call_is_kept)
{
	const struct stop stops[] = {{OTHER, CALL, 1, false},
				     {MAIN, EXIT(4), 0, false},
				     {OTHER, RETURN, 2, false},
				     {OTHER, CALL, 3, false}};

	serve(stops, EXIT(4),
	      "begin 101 1\nrun 101\nend 101 1 2\ncont 101 0\n");
}

Test(crash_trace, thread_that_executes_a_program_takes_the_id)
{
	const struct stop stops[] = {{MAIN, CALL, 1, false},
				     {MAIN, EXEC, 0, false},
				     {MAIN, EXIT(0), 0, false}};

	serve(stops, 0,
	      "begin 100 1\nrun 100\nend 100 1 -1 dead\ncont 100 0\n");
}

Test(crash_trace, thread_that_is_gone_before_its_call_is_read_records_none)
{
	const struct stop entry[] = {{OTHER, CALL, 1, true},
				     {MAIN, EXIT(0), 0, false}};
	const struct stop exit[] = {{OTHER, CALL, 1, false},
				    {OTHER, RETURN, 5, true},
				    {MAIN, EXIT(0), 0, false}};

	serve(entry, 0, "cont 101 0\n");
	serve(exit, 0, "begin 101 1\nrun 101\nend 101 1 -1 dead\n");
}

/* A write to the ledger on a device may wait for another thread's call. */
Test(crash_trace, ledger_on_a_device_does_not_stop_other_threads)
{
	const struct stop stops[] = {
		{MAIN, CALL, 1, false},	   {OTHER, CALL, 2, false},
		{OTHER, RETURN, 5, false}, {MAIN, RETURN, 64, false},
		{MAIN, EXIT(0), 0, false},
	};

	r.device = true;
	has_file = false;
	serve(stops, 0,
	      "begin 100 1\nrun 100\nbegin 101 2\nrun 101\n"
	      "appended 101 5\ncont 101 0\nappended 100 64\ncont 100 0\n");
}

/* Only a ledger on a device may wait for calls of other threads. */
Test(crash_trace, ledger_in_a_file_and_file_on_a_device_stop_other_threads)
{
	const struct stop stops[] = {
		{MAIN, CALL, 1, false},	   {OTHER, CALL, 2, false},
		{MAIN, RETURN, 7, false},  {OTHER, RETURN, 8, false},
		{MAIN, EXIT(0), 0, false},
	};

	for (int device = 0; device < 2; device++) {
		r.device = has_file = device;
		serve(stops, 0,
		      "begin 100 1\nrun 100\nend 100 1 7\ncont 100 0\n"
		      "begin 101 2\nrun 101\nend 101 2 8\ncont 101 0\n");
	}
}

Test(crash_trace, failed_write_to_the_ledger_appends_nothing)
{
	const struct stop stops[] = {{MAIN, RETURN, -5, false},
				     {MAIN, RETURN, 0, false},
				     {MAIN, RETURN, 9, true},
				     {MAIN, EXIT(0), 0, false}};

	serve(stops, 0, "cont 100 0\ncont 100 0\ncont 100 0\n");
}

Test(crash_trace, wait_that_fails_ends_the_run_with_an_error)
{
	const struct stop none[] = {{NO_MORE, 0, 0, false}};
	const struct stop call[] = {{MAIN, CALL, 1, false},
				    {NO_MORE, 0, 0, false}};

	serve(none, -1, "");
	serve(call, -1, "begin 100 1\nrun 100\nend 100 1 -1 dead\n");
}

Test(crash_trace, interrupted_run_kills_the_process_once)
{
	const struct stop stops[] = {{MAIN, SIG(SIGUSR1), 0, false},
				     {MAIN, SIGKILL, 0, false}};

	crash_interrupted = 1;
	serve(stops, SIGKILL, "kill 100 9\ncont 100 10\n");
	cr_assert_eq(crash_interrupted, 2);
}

Test(crash_trace, ready_file_ends_the_service)
{
	const struct stop stops[] = {{MAIN, SIG(SIGUSR1), 0, false},
				     {MAIN, SIG(SIGUSR2), 0, false}};

	script = stops;
	*out = 0;
	cr_assert_eq(crash_trace_until(&r, MAIN, "/"), 0);
	cr_assert_str_eq(out, "cont 100 10\n");
}
