// SPDX-License-Identifier: BSD-2-Clause
/*
 * Small programs for fi_rpmem_crashtest to test, right and wrong ones, and the
 * check of each.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

extern char **environ;

#define must(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			printf("line %d: %s (%s)\n", __LINE__, #cond,          \
			       strerror(errno));                               \
			fflush(stdout);                                        \
			_exit(9);                                              \
		}                                                              \
	} while (0)

static unsigned int rounds = 4;

static void acknowledge(unsigned int n)
{
	FILE *f = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "a");

	must(f && fprintf(f, "%u\n", n) > 0 && !fclose(f));
}

static unsigned int read_acknowledged(void)
{
	FILE *f = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "r");
	unsigned int n = 0;

	must(f);
	while (fscanf(f, "%u", &n) == 1)
		;
	fclose(f);
	return n;
}

static void sync_dir(void)
{
	const int fd = open(".", O_RDONLY);

	must(fd >= 0 && !fsync(fd) && !close(fd));
}

/*
 * Replace a file by rename(). how: "none", "file", "dir" or "both" says what is
 * flushed by fsync().
 */
static void replace(const char *how)
{
	const bool file = *how == 'f' || *how == 'b';
	const bool dir = *how == 'd' || *how == 'b';

	for (unsigned int i = 1; i <= rounds; i++) {
		FILE *f = fopen("conf.new", "w");

		must(f && fprintf(f, "%u\n", i) > 0 && !fflush(f));
		must(!file || !fsync(fileno(f)));
		must(!fclose(f) && !rename("conf.new", "conf"));
		if (dir)
			sync_dir();
		acknowledge(i);
	}
}

static void check_replace(void)
{
	FILE *f = fopen("conf", "r");
	unsigned int found = 0;

	must(f || errno == ENOENT);
	/* If the file exists, it must be whole. */
	must(!f || fscanf(f, "%u\n", &found) == 1);
	must(found >= read_acknowledged());
}

static uint64_t value(unsigned int i)
{
	return i * UINT64_C(0x0101010101010101);
}

/*
 * Count up by pwrite() at this offset of a file. All bytes of the counter have
 * the same value.
 */
static void count(const char *offset)
{
	const int fd = open("counter", O_RDWR | O_CREAT, 0600);

	must(fd >= 0 && !ftruncate(fd, 8192) && !fsync(fd));
	for (unsigned int i = 1; i <= rounds; i++) {
		const uint64_t v = value(i);

		must(pwrite(fd, &v, 8, atol(offset)) == 8 && !fdatasync(fd));
		acknowledge(i);
	}
}

static void check_count(const char *offset)
{
	const int fd = open("counter", O_RDONLY);
	const unsigned int last = read_acknowledged();
	uint64_t v = 0;

	must(fd >= 0 || !last);
	must(fd < 0 || pread(fd, &v, 8, atol(offset)) >= 0);
	must(v == value(v & 0xff) && (v & 0xff) >= last);
}

/*
 * Flush CPU caches, as libpmem does. On a file in the page cache this makes
 * nothing durable.
 */
static void flush_caches(volatile uint64_t *m)
{
#ifdef __SSE2__
	__builtin_ia32_clflush((const void *)m);
	__builtin_ia32_sfence();
#else
	__sync_synchronize();
#endif
}

/*
 * Like count(), by stores to a mapping. page says what msync() covers: a page
 * of the mapping (the counter is in "0"), another mapping ("private",
 * "readonly"), or nothing ("none"). "caches": flush_caches() in place of
 * msync().
 */
static void store(const char *page)
{
	const int fd = open("counter", O_RDWR | O_CREAT, 0600);
	const bool private = *page == 'p';
	int other;
	volatile uint64_t *m;
	char *flushed;

	must(fd >= 0 && !ftruncate(fd, 8192) && !fsync(fd));
	m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(m != MAP_FAILED && !close(fd));
	flushed = (char *)m + 4096 * atol(page);
	other = open("counter", O_RDONLY);
	if (private || *page == 'r')
		flushed = mmap(NULL, 4096, PROT_READ,
			       private ? MAP_PRIVATE : MAP_SHARED, other, 0);
	must(flushed != MAP_FAILED && !close(other));
	for (unsigned int i = 1; i <= rounds; i++) {
		*m = value(i);
		if (*page == 'c')
			flush_caches(m);
		else if (*page != 'n')
			must(!msync(flushed, 4096, MS_SYNC));
		acknowledge(i);
	}
}

/*
 * Store a flag, and then what it stands for, in one sector of a mapping before
 * one msync(): the kernel may write the page in between.
 */
static void flag(void)
{
	const int fd = open("flag", O_RDWR | O_CREAT, 0600);
	volatile uint64_t *m;

	must(fd >= 0 && !ftruncate(fd, 4096) && !fsync(fd));
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(m != MAP_FAILED && !close(fd));
	m[448 / sizeof(*m)] = 1;
	m[0] = value(1);
	must(!msync((void *)(uintptr_t)m, 4096, MS_SYNC));
	acknowledge(1);
}

static void check_flag(void)
{
	const int fd = open("flag", O_RDONLY);
	uint64_t data = 0, valid = 0;

	must(fd >= 0 || !read_acknowledged());
	must(fd < 0 || pread(fd, &data, 8, 0) >= 0);
	must(fd < 0 || pread(fd, &valid, 8, 448) >= 0);
	must(!valid || data == value(1));
	must(valid || !read_acknowledged());
}

/*
 * Count with O_DSYNC ("d"), or with sync_file_range(), which does not flush the
 * disk's cache.
 */
static void count_with_sync_flags(const char *how)
{
	const int fd =
		open("counter", O_RDWR | O_CREAT | (*how == 'd' ? O_DSYNC : 0),
		     0600);
	const struct iovec no_bytes = {NULL, 0};

	must(fd >= 0 && !ftruncate(fd, 8192) && !fsync(fd));
	must(pwritev(fd, &no_bytes, 1, 0) == 0);
	for (unsigned int i = 1; i <= rounds; i++) {
		const uint64_t v = value(i);

		must(pwrite(fd, &v, 8, 0) == 8);
		must(*how == 'd' || !sync_file_range(fd, 0, 0, 7));
		acknowledge(i);
	}
}

/*
 * Make calls that wait for the disk: an open() with O_TRUNC, while the file is
 * written back, and a write to the ledger from a mapped page that must be read
 * first.
 */
static void wait_for_disk(void)
{
	static char bytes[1 << 18];
	const int source = open("line", O_RDWR | O_CREAT, 0600);
	const int ledger =
		open(getenv("RPMEM_CRASHTEST_LEDGER"), O_WRONLY | O_APPEND);
	int fd = open("bytes", O_WRONLY | O_CREAT, 0600);
	const char *line;

	must(source >= 0 && write(source, "0\n", 2) == 2 && !fsync(source));
	must(!posix_fadvise(source, 0, 0, POSIX_FADV_DONTNEED));
	must(fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	must(!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	line = mmap(NULL, 2, PROT_READ, MAP_PRIVATE, source, 0);
	must(ledger >= 0 && line != MAP_FAILED && write(ledger, line, 2) == 2);
	must(pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	must(!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) && !close(fd));
	fd = open("bytes", O_WRONLY | O_TRUNC);
	must(fd >= 0 && !close(fd) && !close(source) && !close(ledger));
}

static void *write_lines(void *name)
{
	const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);

	must(fd >= 0);
	for (unsigned int i = 0; i < 50; i++)
		must(dprintf(fd, "line %u\n", i) > 0);
	must(!fsync(fd) && !close(fd));
	return NULL;
}

static void many_threads(void)
{
	static char names[4][2] = {"a", "b", "c", "a"};
	pthread_t t[4];

	for (unsigned int i = 0; i < 4; i++)
		must(!pthread_create(&t[i], NULL, write_lines, names[i]));
	for (unsigned int i = 0; i < 4; i++)
		must(!pthread_join(t[i], NULL));
}

static void other_processes(void)
{
	char *const touch[] = {(char *)"sh", (char *)"-c",
			       (char *)"echo spawned >spawned", NULL};
	int status;
	pid_t pid = fork();

	if (!pid) {
		write_lines((void *)"forked");
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && !status);
	/* posix_spawn(), because it uses vfork(). */
	must(!posix_spawnp(&pid, "sh", NULL, NULL, touch, environ));
	must(waitpid(pid, &status, 0) == pid && !status);
}

static void copy_ranges(void)
{
	const int from = open("a", O_RDONLY);
	int to = open("copy", O_RDWR | O_CREAT, 0600), p[2];
	loff_t at = 7;

	must(from >= 0 && to >= 0 && !pipe(p));
	must(sendfile(to, from, NULL, 100) == 100);
	must(copy_file_range(from, NULL, to, NULL, 100, 0) == 100);
	must(splice(from, NULL, p[1], NULL, 50, 0) == 50);
	must(splice(p[0], NULL, to, &at, 50, 0) == 50);
	to = dup2(to, 100);
	must(to == 100 && write(to, "dup", 3) == 3);
	must(syscall(SYS_write, to, "raw", 3) == 3);
	must(!fallocate(to, 0, 0, 5000) && !ftruncate(to, 4000));
	must(!fsync(to) && !close(to));
}

static void names(void)
{
	int fd;

	must(!mkdir("dir", 0700) && !rename("dir", "folder"));
	must(!link("a", "folder/hard") && !symlink("a", "soft"));
	/* rename() between two hard links of one file does nothing. */
	must(!rename("a", "folder/hard"));
	/* A device (only root can make it) must be left out. */
	must(!mknod("device", S_IFCHR | 0600, makedev(1, 3)) || errno == EPERM);
	must(!rename("b", "folder/b") && !unlink("c"));
	must(!mkdir("gone", 0700) && !rmdir("gone"));
	must(!syscall(SYS_renameat2, AT_FDCWD, "forked", AT_FDCWD, "spawned",
		      RENAME_EXCHANGE));
	fd = open(".", O_TMPFILE | O_RDWR, 0600);
	if (fd >= 0) {
		char self[64];

		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		must(write(fd, "unnamed", 7) == 7);
		must(!linkat(AT_FDCWD, self, AT_FDCWD, "named",
			     AT_SYMLINK_FOLLOW));
		close(fd);
	}
}

/* Change files by most system calls, then make everything durable by sync(). */
static void change_files(void)
{
	many_threads();
	other_processes();
	copy_ranges();
	names();
	must(syscall(SYS_io_uring_setup, 4, NULL) < 0 && errno == ENOSYS);
	sync();
	acknowledge(1);
}

static void check_mixed(void)
{
	char to[16];
	struct stat st;

	if (!read_acknowledged())
		return;
	must(!stat("a", &st) && st.st_size == 780 && st.st_nlink == 2);
	must(!stat("folder/b", &st) && st.st_size == 390);
	must(stat("c", &st) && stat("dir", &st) && stat("gone", &st));
	must(!stat("spawned", &st) && st.st_size == 390);
	must(!stat("forked", &st) && st.st_size == 8);
	must(!stat("copy", &st) && st.st_size == 4000);
	must(readlink("soft", to, sizeof(to)) == 1);
}

/*
 * Append until the disk is full, and acknowledge the size after each fsync().
 */
static void fill(void)
{
	const int fd = open("fill", O_WRONLY | O_CREAT | O_APPEND, 0600);
	static char block[40000];
	off_t size = 0;
	ssize_t n;

	memset(block, 'x', sizeof(block));
	must(fd >= 0);
	while ((n = write(fd, block, sizeof(block))) > 0) {
		size += n;
		must(!fsync(fd));
		acknowledge((unsigned int)size);
	}
	must(errno == ENOSPC);
}

static void check_fill(void)
{
	struct stat st;

	must(!stat("fill", &st) || (errno == ENOENT && !read_acknowledged()));
	must(!read_acknowledged() || st.st_size >= read_acknowledged());
}

static const char *death;

static void *die(void *pid)
{
	/* Wait until the process is probably in its call. */
	usleep(50000);
	if (*death == 'e')
		_exit(3);
	kill(*(pid_t *)pid, SIGKILL);
	return NULL;
}

/*
 * End the process while it is in a recorded call, a splice() from an empty
 * pipe. death: another thread calls _exit() ("exit") or kill() ("kill"), or a
 * child kills it ("child").
 */
static void die_in_call(void)
{
	const int fd = open("f", O_WRONLY | O_CREAT, 0600);
	pid_t pid = getpid();
	pthread_t thread;
	int ends[2];

	must(fd >= 0 && !pipe(ends));
	if (*death == 'c') {
		if (!fork()) {
			die(&pid);
			_exit(0);
		}
	} else {
		must(!pthread_create(&thread, NULL, die, &pid));
	}
	splice(ends[0], NULL, fd, NULL, 1, 0);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const char *arg = argc > 2 ? argv[2] : "";
	const bool check = argc > 3 && !strcmp(argv[3], "check");
	const char *r = getenv("CRASH_ROUNDS");

	if (r)
		rounds = (unsigned int)atoi(r);
	must(!chdir(getenv("RPMEM_CRASHTEST_DIR")));
	if (!strcmp(name, "replace"))
		check ? check_replace() : replace(arg);
	else if (!strcmp(name, "count"))
		check ? check_count(arg) : count(arg);
	else if (!strcmp(name, "store"))
		check ? check_count("0") : store(arg);
	else if (!strcmp(name, "flag"))
		check ? check_flag() : flag();
	else if (!strcmp(name, "flagged"))
		check ? check_count("0") : count_with_sync_flags(arg);
	else if (!strcmp(name, "mixed"))
		check ? check_mixed() : change_files();
	else if (!strcmp(name, "fill"))
		check ? check_fill() : fill();
	else if (!strcmp(name, "die"))
		death = arg, die_in_call();
	else if (!strcmp(name, "wait"))
		check ? check_replace() : (wait_for_disk(), replace(arg));
	else if (!strcmp(name, "abort"))
		check ? check_replace() : (replace("both"), abort());
	else
		return 8;
	return 0;
}
