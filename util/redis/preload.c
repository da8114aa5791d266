// SPDX-License-Identifier: BSD-2-Clause
/*
 * Replaces the libc calls by which Redis makes its append-only files durable
 * with appends to the remote log.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/redis/mirror.h"

#define REWRITE_PREFIX TEMP_PREFIX "rewriteaof-"

/*
 * A rewrite's child process sends the path of its file to its parent, which has
 * the log: a thread of the parent uploads the file while Redis goes on.
 */
struct upload {
	pid_t child;
	int result;
	char path[4000];
};

static pid_t owner;
static int sockets[2]; /* [0]: the parent's thread; [1]: the child */

#define LIBC(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

int rp_libc_rename(const char *from, const char *to)
{
	return LIBC(rename)(from, to);
}

int rp_libc_unlink(const char *path)
{
	return LIBC(unlink)(path);
}

/* Convert a result to that of libc. */
static int report_result(int ret)
{
	if (!ret)
		return 0;
	errno = -ret;
	return -1;
}

static void *upload_files(void *unused)
{
	struct upload u;

	(void)unused;
	while (recv(sockets[0], &u, sizeof(u), 0) == sizeof(u)) {
		u.result = rp_mirror_upload(u.path, u.path);
		send(sockets[0], &u, sizeof(u), MSG_NOSIGNAL);
	}
	return NULL;
}

int rp_preload_start(void)
{
	sigset_t all, before;
	pthread_t thread;
	int ret;

	owner = getpid();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return rp_mirror_fail(-errno, "a socket");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&thread, NULL, upload_files, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret ? rp_mirror_fail(-ret, "a thread") : 0;
}

/* In the child: wait until the parent has uploaded the file. */
static int request_upload(const char *path)
{
	struct upload u = {.child = getpid()}, reply;

	/* Close the other end: recv() fails when the parent exits. */
	close(sockets[0]);
	snprintf(u.path, sizeof(u.path), "%s", path);
	if (send(sockets[1], &u, sizeof(u), MSG_NOSIGNAL) != sizeof(u))
		return -errno;
	do {
		if (recv(sockets[1], &reply, sizeof(reply), 0) != sizeof(reply))
			return -EPIPE;
	} while (reply.child != u.child);
	return reply.result;
}

int fdatasync(int fd)
{
	int ret = owner == getpid() ? rp_mirror_sync(fd) : -ENOENT;

	return ret == -ENOENT ? LIBC(fdatasync)(fd) : report_result(ret);
}

int rename(const char *from, const char *to)
{
	int ret;

	if (owner == getpid() && rp_mirror_find(to))
		return report_result(rp_mirror_rename(from, to));
	ret = rp_libc_rename(from, to);
	if (!ret && owner && owner != getpid() &&
	    !strncmp(to, REWRITE_PREFIX, strlen(REWRITE_PREFIX)))
		return report_result(request_upload(to));
	return ret;
}

int unlink(const char *path)
{
	int ret = rp_libc_unlink(path), saved = errno;

	if (!ret && owner == getpid())
		rp_mirror_unlink(path);
	errno = saved;
	return ret;
}

int truncate64(const char *path, off64_t length)
{
	int ret = LIBC(truncate64)(path, length);
	const char *name = owner == getpid() ? rp_mirror_find(path) : NULL;

	if (!ret && name)
		rp_mirror_truncate(name, length);
	return ret;
}
