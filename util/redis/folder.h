/* SPDX-License-Identifier: BSD-2-Clause */
/* The folder of Redis's append-only files, mirrored in a remote log. */
#ifndef RP_REDIS_FOLDER_H
#define RP_REDIS_FOLDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <rpmem_log.h>

/* A file of this prefix is dropped when the folder is restored. */
#define TEMP_PREFIX "temp-"
#define NAME_SIZE   256u
#define NOWHERE	    UINT64_MAX

/* Bytes of the ring by use. */
struct folder_space {
	uint64_t capacity;
	uint64_t used;
	uint64_t files;	   /* bytes of the files that the folder has */
	uint64_t base;	   /* of the base file, the last complete data set */
	uint64_t uploaded; /* of temporary files */
	uint64_t writes;   /* appends of file bytes so far */
	enum rpmem_pool_class reached;
};

/*
 * Open the log and put its files into the folder; a folder that exists is
 * renamed to NAME.old. When the log is empty, the files of the folder are
 * appended to it instead.
 */
int rp_folder_open(const char *name, const char *where,
		   const struct rpmem_log_attr *attr);

/* Returns the file's name if the path is in the folder, otherwise NULL. */
const char *rp_folder_find(const char *path);

/* Each of these appends what the folder's files have now, durably. */
int rp_folder_sync(int fd);
int rp_folder_rename(const char *from, const char *to);
int rp_folder_unlink(const char *path);
int rp_folder_upload(const char *path, const char *name);

/* Forget the bytes behind length, which the log has and the file has not. */
void rp_folder_truncate(const char *name, off_t length);

int rp_folder_query(struct folder_space *space);

/*
 * Append again what the files have, and trim what was before: bytes of uploads
 * that ended early use room until then.
 */
int rp_folder_clean(void);

/* The calls that preload.c replaces, as libc has them. */
int rp_libc_rename(const char *from, const char *to);
int rp_libc_unlink(const char *path);

/* Start the thread that uploads what the child of a rewrite has written. */
int rp_preload_start(void);

/* The rest is for folder.c and restore.c. */

/* A change of the folder: the type of an entry. */
enum change {
	CHANGE_BYTES = 1, /* the file ends behind them */
	CHANGE_MOVED,	  /* the file may go on */
	CHANGE_RENAME,
	CHANGE_UNLINK,
};

/* An entry: this header, the name, then bytes of the file or its new name. */
#define CHANGE_HEADER 24u
#define AT_CHANGE     0u
#define AT_MORE	      1u /* the next entry continues this one: both or none */
#define AT_NAMELEN    2u
#define AT_ID	      8u /* of the file; never used again */
#define AT_OFFSET     16u

struct file {
	LIST_ENTRY(file) link;
	char name[NAME_SIZE];
	uint64_t id;
	uint64_t first; /* LSN of its first entry; 0: not appended yet */
	uint64_t size;	/* bytes in the log */
	uint64_t open;	/* restore: size before an entry that is continued */
	uint64_t moving, moved; /* clean: the range that was appended again */
	uint64_t fresh;		/* clean: LSN of the first of these */
	dev_t dev;
	ino_t ino;	  /* 0: not seen yet */
	atomic_bool busy; /* an upload uses it */
	atomic_bool gone; /* removed meanwhile: the upload drops it */
	int fd;		  /* to read it, or -1 */
};

extern struct rpmem_log *rp_folder_log;
extern char rp_folder_name[NAME_SIZE];
extern LIST_HEAD(file_list, file) rp_folder_files;

struct file *rp_file_find(const char *name);
struct file *rp_file_find_id(uint64_t id);
struct file *rp_file_make(const char *name, uint64_t id);
void rp_file_drop(struct file *f);
/* Append len bytes of fd at an offset, as one entry. */
int rp_file_append(const struct file *f, enum change change, uint64_t offset,
		   int fd, size_t len, bool more, uint64_t *lsn);
size_t rp_folder_chunk(const struct rpmem_log_info *info);
/* Put the files of the log into the folder. */
int rp_folder_restore(const struct rpmem_log_info *info);
/* Drop the entries in front of the first one of each file. */
int rp_folder_trim(void);

#endif
