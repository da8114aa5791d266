/* SPDX-License-Identifier: BSD-2-Clause */
/* The sources of facts: read files, and find later whether one has changed. */
#ifndef RP_WATCH_H
#define RP_WATCH_H

#include <glob.h>
#include <stdbool.h>
#include <stdint.h>

enum rp_source {
	RP_SOURCE_LINE,	 /* first line of a file; wildcards: the first match */
	RP_SOURCE_MOUNT, /* line of a mount table; arg: mount ID */
	RP_SOURCE_NAMES, /* the paths that match a pattern */
	RP_SOURCE_BYTES, /* 8 bytes at offset arg, in hexadecimal */
	RP_SOURCE_FILE,	 /* owner, permissions and content of a text */
};

/* Sources, each of them once, with the text read from each; NULL: none. */
struct rp_watch;

/* The text of a source, malloced; "": absent. NULL: no memory. */
char *rp_watch_read(enum rp_source kind, const char *path, uint64_t arg);
/* Record in *w the sources that this thread reads from now on. NULL: stop. */
void rp_watch_record(struct rp_watch **w);
/*
 * Stop recording after a lookup that returned ret. Returns ret, or -ENOMEM and
 * a reason if the sources of the lookup cannot be watched.
 */
int rp_watch_end(int ret, char *why);
/* Move the sources of *from to *to. */
void rp_watch_merge(struct rp_watch **to, struct rp_watch **from);
void rp_watch_free(struct rp_watch **w);
/*
 * Compare all sources with their texts. True: one differs, and `what`
 * (RP_SOURCE_LEN bytes, plain ASCII, no folder of a user) says which.
 */
bool rp_watch_find_change(struct rp_watch *w, char *what);
/*
 * Has this thread failed to open a file for lack of descriptors or memory since
 * the last call? If so, the facts that it has read are worthless.
 */
bool rp_watch_starved(void);
/* Count err, the errno of a failed open, for rp_watch_starved(). */
void rp_watch_open_failed(int err);
/* Find paths as glob() does; count a failure like that of an open. */
void rp_watch_glob(const char *pattern, glob_t *g);

#endif
