// SPDX-License-Identifier: BSD-2-Clause
/* Shared secret of fi_rpmemd and its clients, read from a file. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/secret.h"

void rp_secret_wipe(struct rp_secret *s)
{
	explicit_bzero(s, sizeof(*s));
}

static int check_rights(int fd, const char *path, char *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return rp_err(err, -errno, "secret '%s': %s", path,
			      strerror(errno));
	if (!S_ISREG(st.st_mode))
		return rp_err(err, -EINVAL, "secret '%s' is not a regular file",
			      path);
	if (st.st_mode & (S_IRWXO | S_IWGRP))
		return rp_err(err, -EPERM,
			      "secret '%s' is open to other users (mode %03o); "
			      "chmod 600 '%s', and make a new secret if "
			      "somebody may have read it",
			      path, st.st_mode & 0777, path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return rp_err(err, -EPERM,
			      "secret '%s' belongs to another user; give it to "
			      "the user who runs this program",
			      path);
	return 0;
}

int rp_secret_load(const char *path, struct rp_secret *s, char *err)
{
	uint8_t buf[RP_SECRET_MAX + 2];
	size_t len = 0;
	ssize_t n;
	int fd, ret;

	/* O_NONBLOCK: open() must not block on a fifo. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return rp_err(err, -errno, "secret '%s' cannot be read: %s",
			      path, strerror(errno));
	/* Check the open file: the path may name another file by now. */
	ret = check_rights(fd, path, err);
	if (ret)
		goto out;
	do {
		n = read(fd, buf + len, sizeof(buf) - len);
		if (n > 0)
			len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0) {
		ret = rp_err(err, -errno, "secret '%s' cannot be read: %s",
			     path, strerror(errno));
		goto out;
	}
	while (len && (buf[len - 1] == '\n' || buf[len - 1] == '\r'))
		len--;
	if (len < RP_SECRET_MIN || len > RP_SECRET_MAX) {
		ret = rp_err(err, -EINVAL,
			     "secret '%s' must have %d to %d bytes; make one: "
			     "(umask 077; head -c 32 /dev/urandom | base64 "
			     "> '%s')",
			     path, RP_SECRET_MIN, RP_SECRET_MAX, path);
		goto out;
	}
	memcpy(s->bytes, buf, len);
	s->len = len;
out:
	close(fd);
	explicit_bzero(buf, sizeof(buf));
	return ret;
}
