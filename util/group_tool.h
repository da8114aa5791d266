/* SPDX-License-Identifier: BSD-2-Clause */
/* Members of a group, for the commands of fi_rpmem_group. */
#ifndef RP_UTIL_GROUP_TOOL_H
#define RP_UTIL_GROUP_TOOL_H

#include <rpmem_pool.h>

#include "libpool/group.h"
#include "util/text.h"

/* docs/protocol.md, "Groups", compares them with those of a writer. */
enum place_state {
	PLACE_AWAY,	 /* not reached */
	PLACE_OTHER,	 /* it holds something else, or is of another group */
	PLACE_SHORT,	 /* of the group, and shorter */
	PLACE_EMPTY,	 /* nothing of the group is there yet */
	PLACE_DISPLACED, /* a writer has taken it and has not opened the group
			  */
	PLACE_STALE,	 /* it lacks commits, or cannot say that it has all */
	PLACE_CURRENT,
};

/* A pool, read beside whoever writes to it. */
struct place {
	char where[300];
	struct rpmem_pool *pool; /* NULL: ret and error say why */
	int ret;
	char error[RP_ERR_LEN];
	struct rpmem_pool_info info;
	unsigned char *area; /* GROUP_AREA bytes */
	int decoded;	     /* result of group_area_decode() */
	struct group_super super;
	struct group_state disk;
	enum place_state state;
	uint64_t marked; /* bytes that may differ from other members' */
	unsigned char *chunk;
	uint64_t hash; /* of the chunk */
};

struct tool {
	const char *group; /* as it was given */
	const char *secret_file;
	bool json, repair, quiet;
	unsigned int n, k;
	struct place places[GROUP_MEMBERS];
	struct group_super super; /* n is 0: no member is of a group yet */
	uint64_t epoch, number;	  /* the newest ones */
	uint64_t full;		  /* an epoch that all members had */
	char *err;		  /* RP_ERR_LEN bytes */
};

/* Split the name of a group. Returns an exit code. */
int tool_parse(struct tool *t);
/* Read the records of all members, and tell their states. */
int tool_look(struct tool *t);
void tool_close(struct tool *t);
/* Open a pool to read its records; p->where is set. */
void place_look(const struct tool *t, struct place *p);
/* Read the records again: a negative errno, and p->error. */
int place_read(struct place *p);
void place_close(struct place *p);
/* Whether the bit of chunk c is set in the records. */
bool place_is_marked(const struct place *p, uint64_t c);
/* Whether two superblocks are of one group. */
bool tool_same_id(const struct group_super *a, const struct group_super *b);
/* Whether two places are one pool. */
bool place_is_same(const struct place *a, const struct place *b);
/* Open a pool or group for the strongest class, with no other client. */
int tool_open_alone(const struct tool *t, const char *where,
		    struct rpmem_pool **pool);
/*
 * Whether the group can be opened without member `but` (GROUP_MEMBERS: with all
 * of them), and an empty pool in its place; t->err says why not. *lose: how
 * many more may be lost.
 */
bool tool_can_open(const struct tool *t, unsigned int but, unsigned int *lose);
/* Open the group as its writer, and wait until its members are current. */
int tool_open_writer(struct tool *t, const char *group,
		     struct rpmem_pool **pool);

/* The commands return exit codes. */
int group_status(struct tool *t);
int group_scrub(struct tool *t);
int group_replace(struct tool *t, const char *member, const char *with);

#endif
