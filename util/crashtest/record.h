/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns changes below a folder by system calls into events of the log. */
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

/* A file, folder or link. The open fd keeps its inode number from reuse. */
struct crash_file {
	UT_hash_handle hh;
	struct crash_file_id id;
	int fd;
	uint32_t inode;
	mode_t mode;
	bool mapped;	    /* a shared mapping may have stored to it */
	char *logged_bytes; /* the bytes that are in the log */
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
	uint64_t ledger_written; /* bytes of calls that have returned */
	char line[1024];	 /* a line of the ledger, as far as read */
	size_t line_len;
	bool on;
	bool device; /* nbdkit is recorded, too, and COMMAND waits for it */
	uint64_t start_us;
	char reason[512]; /* why the run is not tested; else empty */
	char note[512];
};

/* Keep the first reason why nothing can be concluded from this run. */
void crash_record_miss(struct crash_recorder *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Start: what is below the folder is durable. Returns 0, or -1: reason. */
int crash_record_start(struct crash_recorder *r, const char *folder,
		       const char *ledger);
void crash_record_free(struct crash_recorder *r);

struct crash_file *crash_record_find(struct crash_recorder *r,
				     const struct stat *st);
/* Find the file of a thread's descriptor; record the entry of a new file. */
struct crash_file *crash_record_fd(struct crash_recorder *r, pid_t tid, int fd);

void crash_record_write(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length);
/* Record the file's size, if it has changed. */
void crash_record_size(struct crash_recorder *r, struct crash_file *f,
		       pid_t tid);
/* Record the bytes of a file that differ from f->logged_bytes. */
void crash_record_compare(struct crash_recorder *r, struct crash_file *f,
			  pid_t tid, enum crash_step_kind kind);
/* Record the stores to all mapped files. */
void crash_record_stores(struct crash_recorder *r, pid_t tid);
void crash_record_flush(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length,
			bool datasync);
void crash_record_sync(struct crash_recorder *r, pid_t tid);
/* Record each line that was appended to the ledger as an acknowledgement. */
void crash_record_ledger(struct crash_recorder *r, pid_t tid);
/* A call that wrote length bytes to the ledger has returned. */
void crash_record_appended(struct crash_recorder *r, pid_t tid,
			   uint64_t length);
/* COMMAND has ended by itself: check that its ledger is whole. */
void crash_record_end(struct crash_recorder *r);

/* An entry of a folder, whose name has at most NAME_MAX bytes. */
struct crash_place {
	struct crash_file *dir; /* NULL: not below the folder */
	char name[NAME_MAX + 1];
};

struct crash_file *crash_record_entry(struct crash_recorder *r,
				      const struct crash_place *p);
/* Record a new entry, of a known or a new inode. */
void crash_record_create(struct crash_recorder *r, const struct crash_place *p,
			 pid_t tid);
void crash_record_unlink(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_file *f, pid_t tid);
/* f2: the file that had the name p2, or NULL. */
void crash_record_rename(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_place *p2,
			 const struct crash_file *f,
			 const struct crash_file *f2, pid_t tid, bool exchange);

#endif
