/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns what a system call has changed below a folder into events of the log.
 */
#ifndef RP_CRASH_RECORD_H
#define RP_CRASH_RECORD_H

#include <limits.h>
#include <sys/stat.h>

/* By default, uthash ends the process without a message. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "util/crashtest/runlog.h"

struct crash_file_id {
	dev_t dev;
	ino_t ino;
};

/* A file, folder or link below the folder. Its fd keeps the inode number. */
struct crash_file {
	UT_hash_handle hh;
	struct crash_file_id id;
	int fd;
	uint32_t inode;
	mode_t mode;
	bool mapped; /* a shared mapping may have stored to it */
	char *known; /* the bytes that are in the log */
	size_t size, room;
};

struct crash_recorder {
	struct crash_log log;
	struct crash_file *files; /* hash */
	char root[PATH_MAX];
	char ledger[PATH_MAX];
	struct crash_file_id ledger_id;
	int ledger_fd;
	off_t ledger_read;
	uint64_t ledger_written; /* bytes, by calls that have returned */
	char line[1024];	 /* the begin of a line of the ledger */
	size_t line_len;
	bool on;
	bool device; /* nbdkit is recorded, for which COMMAND waits */
	uint64_t start_us;
	char reason[512]; /* why the run is not tested; empty */
	char note[512];
};

/* Say once why nothing can be concluded from this run. */
void crash_record_miss(struct crash_recorder *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Take what is below the folder as durable. 0, or -1 and the reason. */
int crash_record_start(struct crash_recorder *r, const char *folder,
		       const char *ledger);
void crash_record_free(struct crash_recorder *r);

struct crash_file *crash_record_find(struct crash_recorder *r,
				     const struct stat *st);
/* The file behind a descriptor of a thread; a new one gets its entry. */
struct crash_file *crash_record_fd(struct crash_recorder *r, pid_t tid, int fd);

void crash_record_write(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length);
/* The size is another one. */
void crash_record_size(struct crash_recorder *r, struct crash_file *f,
		       pid_t tid);
/* Compare all of a file with what is known of it. */
void crash_record_compare(struct crash_recorder *r, struct crash_file *f,
			  pid_t tid, enum crash_step_kind kind);
/* Record the stores to all mapped files. */
void crash_record_stores(struct crash_recorder *r, pid_t tid);
void crash_record_flush(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length,
			bool datasync);
void crash_record_sync(struct crash_recorder *r, pid_t tid);
/* Lines that were appended to the ledger are acknowledgements. */
void crash_record_ledger(struct crash_recorder *r, pid_t tid);
/* A call that wrote length bytes to the ledger has returned. */
void crash_record_appended(struct crash_recorder *r, pid_t tid,
			   uint64_t length);
/* The program has ended by itself: its ledger must be whole. */
void crash_record_end(struct crash_recorder *r);

/* An entry of a folder, whose name has at most NAME_MAX bytes. */
struct crash_place {
	struct crash_file *dir; /* NULL: not below the folder */
	char name[NAME_MAX + 1];
};

struct crash_file *crash_record_entry(struct crash_recorder *r,
				      const struct crash_place *p);
/* A new entry is there, of a known or a new inode. */
void crash_record_create(struct crash_recorder *r, const struct crash_place *p,
			 pid_t tid);
void crash_record_unlink(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_file *f, pid_t tid);
void crash_record_rename(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_place *p2,
			 const struct crash_file *f, pid_t tid, bool exchange);

#endif
