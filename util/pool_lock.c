// SPDX-License-Identifier: BSD-2-Clause
/* The lock of a pool file: one process uses it, and errors name that one. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/pool_lock.h"
#include "util/text.h"

/* Get the command line of a process, printable and truncated. */
static void read_command(long pid, char *buf, size_t len)
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, len - 1);
		close(fd);
	}
	if (n <= 0) {
		snprintf(buf, len, "command unknown");
		return;
	}
	while (n > 0 && buf[n - 1] == 0)
		n--;
	/* NUL separates the arguments. */
	for (ssize_t i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = ' ';
	buf[n] = 0;
	rp_text_clean(buf, '?');
}

/*
 * Find the process that holds the file's flock, in /proc/locks: unlike a file
 * with a pid, that is never stale. 0: no such process is visible here.
 */
static long lock_holder(int fd)
{
	unsigned long long inode;
	unsigned int major_nr, minor_nr;
	long pid, by_inode = 0, exact = 0;
	char line[256];
	struct stat st;
	FILE *f;

	if (fstat(fd, &st))
		return 0;
	f = fopen("/proc/locks", "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d: FLOCK ADVISORY WRITE %ld %x:%x:%llu",
			   &pid, &major_nr, &minor_nr, &inode) != 4 ||
		    inode != st.st_ino || pid <= 0)
			continue;
		by_inode = pid;
		if (major_nr == major(st.st_dev) &&
		    minor_nr == minor(st.st_dev))
			exact = pid;
	}
	fclose(f);
	/*
	 * On btrfs and overlay, stat() and /proc/locks report different
	 * devices.
	 */
	return exact ? exact : by_inode;
}

int rp_pool_lock(int fd, const char *path, char *err)
{
	char command[96];
	int error;
	long pid;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	error = errno;
	if (error != EWOULDBLOCK)
		return rp_err(err, -error, "pool '%s' cannot be locked: %s",
			      path, strerror(error));
	pid = lock_holder(fd);
	if (!pid)
		return rp_err(err, -EBUSY,
			      "pool '%s' is in use by a process that cannot be "
			      "seen from here (another container?); stop it "
			      "first",
			      path);
	read_command(pid, command, sizeof(command));
	return rp_err(err, -EBUSY,
		      "pool '%s' is in use by process %ld (%s); stop it first",
		      path, pid, command);
}
