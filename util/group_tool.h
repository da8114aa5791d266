/* SPDX-License-Identifier: BSD-2-Clause */
/* Members of a group, for the commands of fi_rpmem_group. */
#ifndef RP_UTIL_GROUP_TOOL_H
#define RP_UTIL_GROUP_TOOL_H

#include <rpmem_pool.h>

#include "libpool/group.h"
#include "util/text.h"

/* States of a member; docs/protocol.md, "Groups", maps them to a writer's. */
enum tool_member_state {
	TOOL_MEMBER_AWAY,      /* not reachable */
	TOOL_MEMBER_OTHER,     /* not a member, or a member of another group */
	TOOL_MEMBER_SHORT,     /* a member of this group, but too short */
	TOOL_MEMBER_EMPTY,     /* blank: no superblock, or no epoch */
	TOOL_MEMBER_DISPLACED, /* promised to a writer that is not open yet */
	TOOL_MEMBER_STALE,     /* the member lacks commits, or may lack some */
	TOOL_MEMBER_CURRENT,
};

/* A member, whose pool is read even if a writer has it open. */
struct tool_member {
	char where[300];
	struct rpmem_pool *pool; /* NULL: ret and error have the reason */
	int ret;
	char error[RP_ERR_LEN];
	struct rpmem_pool_info info;
	unsigned char *area; /* first GROUP_AREA bytes of the pool */
	int decoded;	     /* result of group_area_decode() */
	struct group_super super;
	struct group_state disk;
	enum tool_member_state state;
	uint64_t marked; /* bytes of marked chunks: members may differ there */
	unsigned char *chunk;
};

struct tool {
	const char *group; /* name of the group on the command line */
	const char *secret_file;
	bool json, repair, quiet;
	unsigned int n, k;
	struct tool_member members[GROUP_MEMBERS];
	struct group_super super; /* superblock of most members; n is 0: none */
	uint64_t epoch, number;	  /* newest epoch; newest commit in it */
	uint64_t full;		  /* newest epoch that all members once had */
	char *err;		  /* error text, RP_ERR_LEN bytes */
};

/* Split the name of a group. Returns an exit code. */
int tool_parse(struct tool *t);
/* Read the records of all members, and find their states. */
int tool_look(struct tool *t);
void tool_close(struct tool *t);
/* Open the pool at p->where to read its records. */
void tool_member_open(const struct tool *t, struct tool_member *p);
/* Read the records again. Returns a negative errno with p->error on failure. */
int tool_member_read(struct tool_member *p);
void tool_member_close(struct tool_member *p);
/* Whether the member's records mark chunk c: other members may differ there. */
bool tool_member_marks(const struct tool_member *p, uint64_t c);
/* Whether two entries name the same pool. */
bool tool_member_equals(const struct tool_member *a,
			const struct tool_member *b);
/* Open a pool or group exclusively, for the strongest class that it reaches. */
int tool_open_alone(const struct tool *t, const char *where,
		    struct rpmem_pool **pool);
/*
 * Whether a writer could open the group if an empty pool replaced member `but`
 * (GROUP_MEMBERS: none is replaced); if not, t->err has the reason. *lose: how
 * many more members could be lost then.
 */
bool tool_can_open(const struct tool *t, unsigned int but, unsigned int *lose);
/*
 * Open the group as its writer, and wait until its members are current; if its
 * member number `new` replaces one (GROUP_MEMBERS: none does), until that is.
 */
int tool_open_writer(struct tool *t, const char *group, unsigned int new,
		     struct rpmem_pool **pool);

/* The commands: each returns an exit code. */
int group_status(struct tool *t);
int group_scrub(struct tool *t);
int group_replace(struct tool *t, const char *member, const char *with);

#endif
