/* SPDX-License-Identifier: BSD-2-Clause */
/* The directory of Redis's append-only files, mirrored in a remote log. */
#ifndef RP_REDIS_MIRROR_H
#define RP_REDIS_MIRROR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <rpmem_log.h>

/* Prefix of temporary files, which a restore drops. */
#define TEMP_PREFIX "temp-"
#define NAME_SIZE   256u
#define NOWHERE	    UINT64_MAX

/*
 * The file that the last failure of this thread is about; "": a call of the log
 * failed, and rpmem_log_error() has the reason.
 */
extern __thread char rp_mirror_failure[];
/* Set rp_mirror_failure; returns ret. */
int rp_mirror_fail(int ret, const char *file);

/* Use of the log's ring, in bytes. */
struct mirror_space {
	uint64_t capacity;
	uint64_t used;
	uint64_t files;	   /* bytes of the files in the directory */
	uint64_t base;	   /* bytes of the base, the last complete data set */
	uint64_t uploaded; /* bytes of temporary files */
	uint64_t writes;   /* number of appends of file bytes so far */
	enum rpmem_pool_class reached;
};

/*
 * Open the log, and restore its files into the directory; an existing directory
 * is renamed to NAME.old. If the log is empty or has no manifest, append the
 * files of the directory to the log instead.
 */
int rp_mirror_open(const char *name, const char *where,
		   const struct rpmem_log_attr *attr);

/* Returns the file's name if path is in the directory, otherwise NULL. */
const char *rp_mirror_find(const char *path);

/* Each of these appends one change to the log, durably. */
int rp_mirror_sync(int fd);
int rp_mirror_rename(const char *from, const char *to);
int rp_mirror_unlink(const char *path);
int rp_mirror_upload(const char *path, const char *name);

/* Forget the bytes after length, which the log has but the file lacks. */
void rp_mirror_truncate(const char *name, off_t length);

int rp_mirror_query(struct mirror_space *space);

/*
 * Append the bytes of all files again, and trim the older entries. Until then,
 * the bytes of aborted uploads take room in the log.
 */
int rp_mirror_clean(void);

/* libc's versions of the calls that preload.c replaces. */
int rp_libc_rename(const char *from, const char *to);
int rp_libc_unlink(const char *path);

/* Start the thread that uploads the file written by the child of a rewrite. */
int rp_preload_start(void);

/* The rest is internal to mirror.c and restore.c. */

/* A change of the directory: the type of an entry. */
enum change {
	CHANGE_BYTES = 1, /* bytes of a file, and the file's end */
	CHANGE_MOVED,	  /* bytes of a file, which may be longer */
	CHANGE_RENAME,
	CHANGE_UNLINK,
};

/* An entry: this header, the name, then file bytes or the new name. */
#define CHANGE_HEADER 24u
#define AT_CHANGE     0u
#define AT_MORE	      1u /* 1: invalid without the next entry */
#define AT_NAMELEN    2u
#define AT_ID	      8u /* id of the file, never used again */
#define AT_OFFSET     16u

struct file {
	LIST_ENTRY(file) link;
	char name[NAME_SIZE];
	uint64_t id;
	uint64_t first; /* LSN of the file's first entry; 0: none yet */
	uint64_t size;	/* bytes in the log */
	uint64_t open;	/* restore: size before a run of AT_MORE entries */
	uint64_t moving, moved;	  /* clean: range that was appended again */
	uint64_t first_moved_lsn; /* clean: LSN of that range's first entry */
	dev_t dev;
	ino_t ino;	     /* 0: not known yet */
	atomic_bool busy;    /* an upload uses the file */
	atomic_bool removed; /* during an upload, which drops the file */
	int fd;		     /* open for reading, or -1 */
};

extern struct rpmem_log *rp_mirror_log;
extern char rp_mirror_directory[NAME_SIZE];
extern LIST_HEAD(file_list, file) rp_mirror_files;

struct file *rp_file_find(const char *name);
struct file *rp_file_find_id(uint64_t id);
struct file *rp_file_make(const char *name, uint64_t id, bool busy);
void rp_file_drop(struct file *f);
/* Append len bytes of fd at an offset as one entry. */
int rp_file_append(const struct file *f, enum change change, uint64_t offset,
		   int fd, size_t len, bool more, uint64_t *lsn);
size_t rp_mirror_chunk(const struct rpmem_log_info *info);
/* Whether the name is that of the file which names the other ones. */
bool rp_mirror_is_manifest(const char *name);
/*
 * Restore the files of the directory from the log. Returns 1; 0: the log has no
 * manifest, and the directory stays as it is; or -errno.
 */
int rp_mirror_restore(const struct rpmem_log_info *info);
/* Drop the log entries before the first one of any existing file. */
int rp_mirror_trim(void);

#endif
