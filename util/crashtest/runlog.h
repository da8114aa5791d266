/* SPDX-License-Identifier: BSD-2-Clause */
/* The record of a run: what was written, made durable and acknowledged. */
#ifndef RP_CRASH_RUNLOG_H
#define RP_CRASH_RUNLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum crash_step_kind {
	CRASH_WRITE,	/* bytes of a file, by a system call */
	CRASH_STORE,	/* bytes of a file, by a store to a mapping */
	CRASH_TRUNCATE, /* a file's size is now offset */
	CRASH_CREATE,	/* entry dir/name: a file, a symbolic link, a FIFO */
	CRASH_MKDIR,
	CRASH_LINK,
	CRASH_UNLINK, /* also of a folder */
	CRASH_RENAME, /* dir/name to dir2/name2 */
	CRASH_EXCHANGE,
	CRASH_FLUSH, /* a completed fsync, fdatasync, msync of inode */
	CRASH_SYNC,  /* a completed sync or syncfs */
	CRASH_ACK,   /* a line of the ledger: its data */
	CRASH_KINDS
};

#define CRASH_NONE    UINT32_MAX
#define CRASH_ALL     UINT64_MAX /* length: up to the end of the file */
#define CRASH_NO_DATA UINT64_MAX /* data: zeros */

struct crash_step {
	uint64_t t_us;
	uint64_t offset, length;
	uint64_t data;	      /* place of length bytes in the log's bytes */
	uint64_t target;      /* path below the folder, for reports; as data */
	uint64_t name, name2; /* entries; strings, as data */
	uint32_t inode, dir, dir2;
	uint32_t inode2; /* that a rename exchanges or replaces */
	uint32_t pid;
	uint8_t kind;
	uint8_t datasync; /* a flush of fdatasync(2): only metadata needed */
	uint8_t unused[2];
};

/* A file, folder or link. Its attributes are the last ones that it had. */
struct crash_inode {
	uint32_t mode, uid, gid;
	uint32_t unused;
	uint64_t target; /* of a symbolic link: a string */
};

struct crash_log {
	struct crash_step *events;
	struct crash_inode *inodes;
	char *bytes;
	size_t event_count, inode_count, byte_count;
	size_t event_room, inode_room, byte_room;
	size_t base;	 /* events before this one were durable at the start */
	uint32_t store;	 /* bytes of a store that are lost or kept together */
	uint32_t sector; /* the same for a write: the disk's logical block */
	bool failed;	 /* out of memory */
};

/* Append an event; the caller fills it in. NULL: out of memory. */
struct crash_step *crash_log_event(struct crash_log *l,
				   enum crash_step_kind kind);
uint32_t crash_log_inode(struct crash_log *l, mode_t mode, uid_t uid,
			 gid_t gid);
/* Append bytes to l->bytes, or a string; returns their place there. */
uint64_t crash_log_bytes(struct crash_log *l, const void *bytes, size_t len);
uint64_t crash_log_text(struct crash_log *l, const char *text);
void crash_log_free(struct crash_log *l);

/* Return 0 or a negative errno. A loaded log may be hostile: it is checked. */
int crash_log_save(const struct crash_log *l, const char *path);
int crash_log_load(struct crash_log *l, const char *path);

static inline bool crash_step_is_data(const struct crash_step *e)
{
	return e->kind == CRASH_WRITE || e->kind == CRASH_STORE;
}

static inline bool crash_step_is_meta(const struct crash_step *e)
{
	return e->kind >= CRASH_TRUNCATE && e->kind <= CRASH_EXCHANGE;
}

static inline bool crash_step_is_flush(const struct crash_step *e)
{
	return e->kind == CRASH_FLUSH || e->kind == CRASH_SYNC;
}

#endif
