// SPDX-License-Identifier: BSD-2-Clause
/*
 * Replaces libraft's backend of files in an unmodified program, such as dqlite,
 * by rpmem_raft_init(): rpmem_raft_preload(7).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <raft.h>
#include <raft/uv.h>

#include "pool_class.h"
#include "rpmem_raft.h"

/*
 * The file in a server's folder that libraft reads first. With this text in it
 * libraft refuses the folder, if the server is started without this preload: it
 * would start as a new server there, and might elect itself.
 */
#define MARK "metadata1"
static const char text[] =
	"The state of this server is in a pool of fi_rpmemd. Start it with "
	"LD_PRELOAD=librpmem_raft_preload.so, see rpmem_raft_preload(7).\n";

/* Put the mark in the folder. Returns 0: it is there; -1: see errmsg. */
static int mark_folder(const char *folder, char *errmsg)
{
	char found[sizeof(text)] = "";
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd =
		dir < 0 ? -1
			: openat(dir, MARK, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	const ssize_t len = fd < 0 ? -1 : read(fd, found, sizeof(found));
	int ret = -1;

	if (len == 0 || strncmp(found, text, sizeof(text) - 1) == 0)
		ret = len || write(fd, text, sizeof(text) - 1) ==
					      sizeof(text) - 1
			      ? 0
			      : -1;
	if (len > 0 && ret)
		snprintf(errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "%s has the files of a server, whose state would be "
			 "left out: let a new server join, in an empty folder",
			 folder);
	else if (ret)
		snprintf(errmsg, RAFT_ERRMSG_BUF_SIZE, "%s/" MARK ": %s",
			 folder, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
	return ret;
}

static int read_environment(struct rpmem_raft_attr *attr, const char **pool,
			    char *errmsg)
{
	const char *class = getenv("RPMEM_CLASS");

	*pool = getenv("RPMEM_RAFT_POOL");
	attr->at = getenv("RPMEM_RAFT_AT");
	attr->secret_file = getenv("RPMEM_SECRET");
	if (!*pool) {
		snprintf(errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "RPMEM_RAFT_POOL is not set: set it to this server's "
			 "own pool, HOST:POOL or HOST:PORT:POOL");
		return -1;
	}
	if (class && !rp_pool_class_parse(class, &attr->required)) {
		snprintf(errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "RPMEM_CLASS is '%s': give power, process or none",
			 class);
		return -1;
	}
	return 0;
}

static int (*backend_init)(struct raft_io *io, raft_id id, const char *address);

/*
 * Call the backend's init(), and print its error as well, because dqlite 1.11
 * drops the node that has the text.
 */
static int init_or_report(struct raft_io *io, raft_id id, const char *address)
{
	const int ret = io->impl ? backend_init(io, id, address) : RAFT_INVALID;

	if (ret)
		fprintf(stderr, "rpmem_raft_preload: %s\n",
			*io->errmsg ? io->errmsg : raft_strerror(ret));
	return ret;
}

int raft_uv_init(struct raft_io *io, struct uv_loop_s *loop, const char *dir,
		 struct raft_uv_transport *transport)
{
	/* take: displace an earlier process of this server that still runs. */
	struct rpmem_raft_attr attr = {
		.size = sizeof(attr), .take = 1, .transport = transport};
	char errmsg[RAFT_ERRMSG_BUF_SIZE] = "";
	const char *pool;
	int ret = 0;

	if (read_environment(&attr, &pool, errmsg) || mark_folder(dir, errmsg))
		*io = (struct raft_io){.version = 2, .data = io->data};
	else
		ret = rpmem_raft_init(io, loop, pool, &attr);
	if (ret)
		return ret;
	memcpy(io->errmsg, errmsg, sizeof(errmsg));
	if (io->impl)
		backend_init = io->init;
	io->init = init_or_report;
	return 0;
}

/* Called when raft_close() has ended, or never was called. */
void raft_uv_close(struct raft_io *io)
{
	if (io->impl)
		io->close(io, NULL);
}

/* Settings of files and connections that this backend does not have. */
void raft_uv_set_block_size(struct raft_io *io, size_t size)
{
	(void)io;
	(void)size;
}

void raft_uv_set_segment_size(struct raft_io *io, size_t size)
{
	(void)io;
	(void)size;
}

int raft_uv_set_snapshot_compression(struct raft_io *io, bool compressed)
{
	(void)io;
	(void)compressed;
	return 0;
}

void raft_uv_set_connect_retry_delay(struct raft_io *io, unsigned int msecs)
{
	(void)io;
	(void)msecs;
}

void raft_uv_set_tracer(struct raft_io *io, struct raft_tracer *tracer)
{
	(void)io;
	(void)tracer;
}

void raft_uv_set_auto_recovery(struct raft_io *io, bool flag)
{
	(void)io;
	(void)flag;
}
