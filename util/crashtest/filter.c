// SPDX-License-Identifier: BSD-2-Clause
/* The seccomp filter: which system calls stop for the recorder. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/crashtest/trace.h"

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define NATIVE AUDIT_ARCH_PPC64LE
#else
#define NATIVE 0
#endif

#define X32_BIT 0x40000000u

/* Calls that always stop. */
static const unsigned int stops[] = {
	__NR_write,	__NR_pwrite64,
	__NR_writev,	__NR_pwritev,
	__NR_pwritev2,	__NR_sendfile,
	__NR_splice,	__NR_copy_file_range,
	__NR_ftruncate, __NR_truncate,
	__NR_fallocate, __NR_fsync,
	__NR_fdatasync, __NR_sync,
	__NR_syncfs,	__NR_msync,
	__NR_openat2,	__NR_open_by_handle_at,
	__NR_renameat2, __NR_linkat,
	__NR_symlinkat, __NR_unlinkat,
	__NR_mkdirat,	__NR_mknodat,
#ifdef __NR_renameat
	__NR_renameat,
#endif
#ifdef __NR_creat
	__NR_creat,	__NR_rename,
	__NR_link,	__NR_symlink,
	__NR_unlink,	__NR_rmdir,
	__NR_mkdir,	__NR_mknod,
#endif
};

/* Calls that fail (ENOSYS), because no system call shows their writes. */
static const unsigned int refused[] = {
	__NR_io_uring_setup,
	__NR_io_setup,
};

#define PROGRAM_MAX 256

static struct sock_filter program[PROGRAM_MAX];
static unsigned short length;

static void put(uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	program[length++] = (struct sock_filter){code, jt, jf, k};
}

static void put_return(uint32_t value)
{
	put(BPF_RET | BPF_K, 0, 0, value);
}

static void put_call(unsigned int nr, uint32_t action)
{
	put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
	put_return(action);
}

/* A call that stops only with one of these bits in the low half of arg. */
static void put_call_bits(unsigned int nr, unsigned int arg, uint32_t bits)
{
	const size_t low =
		offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t);

	put(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, nr);
	put(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)low);
	put(BPF_JMP | BPF_JSET | BPF_K, 0, 1, bits);
	put_return(SECCOMP_RET_TRACE);
	put_return(SECCOMP_RET_ALLOW);
}

static void put_ioctl(uint32_t request)
{
	put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, request);
	put_return(SECCOMP_RET_TRACE);
}

static void make_program(void)
{
	const uint32_t no_call = SECCOMP_RET_ERRNO | ENOSYS;
	const uint32_t opens = O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);

	length = 0;
	put(BPF_LD | BPF_W | BPF_ABS, 0, 0,
	    offsetof(struct seccomp_data, arch));
	put(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, NATIVE);
	put_return(no_call);
	put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	put(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
	put_return(no_call);
#endif
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		put_call(refused[i], no_call);
	for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++)
		put_call(stops[i], SECCOMP_RET_TRACE);
	put_call_bits(__NR_openat, 2, opens);
#ifdef __NR_open
	put_call_bits(__NR_open, 1, opens);
#endif
	put_call_bits(__NR_mmap, 3, MAP_SHARED);
	put(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, __NR_ioctl);
	put_return(SECCOMP_RET_ALLOW);
	put(BPF_LD | BPF_W | BPF_ABS, 0, 0,
	    offsetof(struct seccomp_data, args) + sizeof(uint64_t));
	put_ioctl(FICLONE);
	put_ioctl(FICLONERANGE);
	put_return(SECCOMP_RET_ALLOW);
}

int crash_filter_install(void)
{
	struct sock_fprog p = {.filter = program};

	if (!NATIVE)
		return -ENOSYS;
	make_program();
	p.len = length;
	if (!syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
		return 0;
	/* EACCES: without privilege, the kernel wants no_new_privs first. */
	if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
		return -errno;
	return 0;
}
