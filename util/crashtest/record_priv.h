/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of the recorder, for record.c and record_tree.c. */
#ifndef RP_CRASH_RECORD_PRIV_H
#define RP_CRASH_RECORD_PRIV_H

#include "util/crashtest/record.h"

#define CRASH_GROW (1u << 20) /* bytes by which a file's copy grows */

struct crash_step *record_event(struct crash_recorder *r,
				enum crash_step_kind kind, pid_t tid);
void record_path(const struct crash_recorder *r, int fd, char *path,
		 size_t len);
/* Add a new inode that is open as fd, and take fd over. */
struct crash_file *record_track(struct crash_recorder *r, int fd,
				const struct stat *st);
void record_content(struct crash_recorder *r, struct crash_file *f, pid_t tid);

#endif
