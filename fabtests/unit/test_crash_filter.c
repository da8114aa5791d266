// SPDX-License-Identifier: BSD-2-Clause
/*
 * The seccomp filter of the recorder: its program is interpreted here, for each
 * system call and for the arguments that it reads, and never installed.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <criterion/criterion.h>

#include "util/crashtest/trace.h"

#define CALLS	1024u /* more than any kernel has */
#define REFUSED (SECCOMP_RET_ERRNO | ENOSYS)

/* --- in place of seccomp(2) --- */

static struct sock_filter program[4096];
static unsigned int length, installs, failures;
static uint32_t native; /* the architecture that the program accepts */

long __wrap_syscall(long nr, ...);

long __wrap_syscall(long nr, ...)
{
	const struct sock_fprog *p;
	va_list ap;

	cr_assert_eq(nr, __NR_seccomp);
	va_start(ap, nr);
	cr_assert_eq(va_arg(ap, unsigned int), SECCOMP_SET_MODE_FILTER);
	cr_assert_eq(va_arg(ap, unsigned int), 0);
	p = va_arg(ap, const struct sock_fprog *);
	va_end(ap);
	cr_assert(p->len && p->len <= sizeof(program) / sizeof(*program));
	memcpy(program, p->filter, p->len * sizeof(*program));
	length = p->len;
	if (++installs > failures)
		return 0;
	errno = EACCES;
	return -1;
}

/* --- the interpreter --- */

static uint32_t load(const struct seccomp_data *d, uint32_t at)
{
	uint32_t word;

	cr_assert(at % 4 == 0 && at + 4 <= sizeof(*d), "%u", at);
	memcpy(&word, (const char *)d + at, sizeof(word));
	return word;
}

/* Run the program from its begin to a return, which it must reach. */
static uint32_t run(const struct seccomp_data *d)
{
	uint32_t a = 0;

	for (unsigned int at = 0; at < length; at++) {
		const struct sock_filter *s = &program[at];
		bool jumps;

		switch (s->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			a = load(d, s->k);
			continue;
		case BPF_RET | BPF_K:
			return s->k;
		case BPF_JMP | BPF_JEQ | BPF_K:
			jumps = a == s->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			jumps = a >= s->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			jumps = a & s->k;
			break;
		default:
			cr_assert(false, "code %#x", s->code);
			return 0;
		}
		at += jumps ? s->jt : s->jf;
	}
	cr_assert(false, "the program ends without a return");
	return 0;
}

/* The action for a call, with one argument that is not 0. */
static uint32_t filter_action(uint32_t arch, unsigned int nr, unsigned int arg,
			      uint64_t value)
{
	struct seccomp_data d = {.nr = (int)nr, .arch = arch};

	d.args[arg] = value;
	return run(&d);
}

static bool stops(unsigned int nr, unsigned int arg, uint64_t value)
{
	const uint32_t ret = filter_action(native, nr, arg, value);

	cr_assert(ret == SECCOMP_RET_TRACE || ret == SECCOMP_RET_ALLOW, "%#x",
		  ret);
	return ret == SECCOMP_RET_TRACE;
}

/* Find the architecture: the only one whose getpid() passes. */
static void setup(void)
{
	static const uint32_t all[] = {
		AUDIT_ARCH_X86_64,  AUDIT_ARCH_AARCH64, AUDIT_ARCH_RISCV64,
		AUDIT_ARCH_PPC64LE, AUDIT_ARCH_I386,	AUDIT_ARCH_ARM,
	};
	unsigned int found = 0;

	if (crash_filter_install() == -ENOSYS)
		cr_skip("no filter for this machine");
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		const uint32_t ret = filter_action(all[i], __NR_getpid, 0, 0);

		if (ret == SECCOMP_RET_ALLOW) {
			native = all[i];
			found++;
		} else {
			cr_assert_eq(ret, REFUSED);
		}
	}
	cr_assert_eq(found, 1);
}

TestSuite(crash_filter, .init = setup);

/* Calls that change files or make changes durable, whatever their arguments. */
static const unsigned int changes[] = {
	SYS_write,     SYS_pwrite64,  SYS_writev,
	SYS_pwritev,   SYS_pwritev2,  SYS_sendfile,
	SYS_splice,    SYS_ftruncate, SYS_copy_file_range,
	SYS_truncate,  SYS_fallocate, SYS_fsync,
	SYS_fdatasync, SYS_sync,      SYS_syncfs,
	SYS_msync,     SYS_openat2,   SYS_open_by_handle_at,
	SYS_linkat,    SYS_renameat2, SYS_symlinkat,
	SYS_unlinkat,  SYS_mkdirat,   SYS_mknodat,
#ifdef SYS_renameat
	SYS_renameat,
#endif
#ifdef SYS_creat
	SYS_creat,     SYS_rename,    SYS_link,
	SYS_symlink,   SYS_unlink,    SYS_rmdir,
	SYS_mkdir,     SYS_mknod,
#endif
};

static bool is_change(unsigned int nr)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
		if (changes[i] == nr)
			return true;
	return false;
}

static bool is_refused(unsigned int nr)
{
	return nr == SYS_io_uring_setup || nr == SYS_io_setup;
}

Test(crash_filter, calls_that_change_files_stop_and_no_others)
{
	for (unsigned int nr = 0; nr < CALLS; nr++) {
		if (is_refused(nr))
			cr_assert_eq(filter_action(native, nr, 0, 0), REFUSED);
		else
			cr_assert_eq(stops(nr, 0, 0), is_change(nr), "call %u",
				     nr);
	}
}

Test(crash_filter, calls_of_another_architecture_are_not_available)
{
	const uint32_t other = native == AUDIT_ARCH_X86_64 ? AUDIT_ARCH_I386
							   : AUDIT_ARCH_X86_64;

	for (unsigned int nr = 0; nr < CALLS; nr++)
		cr_assert_eq(filter_action(other, nr, 0, 0), REFUSED);
#ifdef __x86_64__
	for (unsigned int nr = 0; nr < CALLS; nr++)
		cr_assert_eq(filter_action(native, 0x40000000u | nr, 0, 0),
			     REFUSED);
#endif
}

/* Whether an open with these flags, in argument arg, stops. */
static void expect_writing_opens_stop(unsigned int nr, unsigned int arg)
{
	cr_assert(!stops(nr, arg, O_RDONLY) && !stops(nr, arg, O_RDWR));
	cr_assert(!stops(nr, arg, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	cr_assert(!stops(nr, arg, O_WRONLY | O_APPEND | O_SYNC));
	cr_assert(stops(nr, arg, O_WRONLY | O_CREAT));
	cr_assert(stops(nr, arg, O_RDWR | O_TRUNC));
	cr_assert(stops(nr, arg, O_RDWR | O_TMPFILE));
}

Test(crash_filter, opens_stop_when_they_make_or_cut_a_file)
{
	expect_writing_opens_stop(SYS_openat, 2);
#ifdef SYS_open
	expect_writing_opens_stop(SYS_open, 1);
#endif
}

Test(crash_filter, mappings_stop_when_they_are_shared)
{
	cr_assert(!stops(SYS_mmap, 3, MAP_PRIVATE));
	cr_assert(!stops(SYS_mmap, 3, MAP_PRIVATE | MAP_ANONYMOUS));
	cr_assert(stops(SYS_mmap, 3, MAP_SHARED));
	cr_assert(stops(SYS_mmap, 3, MAP_SHARED_VALIDATE));
}

Test(crash_filter, ioctls_stop_when_they_clone_a_file)
{
	cr_assert(stops(SYS_ioctl, 1, FICLONE));
	cr_assert(stops(SYS_ioctl, 1, FICLONERANGE));
	cr_assert(!stops(SYS_ioctl, 1, FIONREAD));
	cr_assert(!stops(SYS_ioctl, 0, FICLONE));
}

/* Without privilege the kernel wants a promise that none is gained. */
Test(crash_filter, an_unprivileged_program_gains_no_privileges)
{
	installs = 0;
	failures = 1;
	cr_assert_eq(crash_filter_install(), 0);
	cr_assert_eq(installs, 2);
	cr_assert_eq(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	installs = 0;
	failures = 2;
	cr_assert_eq(crash_filter_install(), -EACCES);
}
