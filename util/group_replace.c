// SPDX-License-Identifier: BSD-2-Clause
/* Replaces a member of a group by an empty pool. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/exit_codes.h"
#include "util/group_tool.h"

/* The group's name with another pool as member number `at`. */
static char *new_group(const struct tool *t, unsigned int at, const char *with)
{
	const char *k = strchr(t->group, ';');
	char *name = malloc(strlen(t->group) + strlen(with) + 1);

	if (!name)
		return NULL;
	*name = 0;
	for (unsigned int i = 0; i < t->n; i++) {
		strcat(name, i ? "," : "");
		strcat(name, i == at ? with : t->members[i].where);
	}
	return strcat(name, k ? k : "");
}

/* Remove ";epoch=N" from a group's name: each opening needs another epoch. */
static void remove_epoch(char *name)
{
	char *s = strstr(name, ";epoch=");
	const char *rest;

	if (!s)
		return;
	rest = s + 1 + strcspn(s + 1, ";");
	memmove(s, rest, strlen(rest) + 1);
}

static bool has_newest(const struct tool *t, const struct tool_member *p)
{
	return !p->decoded && p->disk.epoch == t->epoch &&
	       p->disk.number >= t->number;
}

/* Check that the new pool can become a member. */
static int check_new_member(const struct tool *t, unsigned int at,
			    const struct tool_member *p)
{
	if (!p->pool)
		return rp_err(t->err, rp_exit_pool(p->ret), "%s: %s", p->where,
			      p->error);
	if (p->decoded == -ENOSPC ||
	    p->info.length < GROUP_AREA + t->super.length)
		return rp_err(t->err, RP_EXIT_SPACE,
			      "%s is shorter than the %llu bytes that each "
			      "member of the group needs; extend it",
			      p->where,
			      (unsigned long long)GROUP_AREA + t->super.length);
	if (p->decoded == -EBADMSG)
		return rp_err(t->err, RP_EXIT_FILE,
			      "%s is not empty, and of no group; give a pool "
			      "of fi_rpmemd --create, or one whose first 64 "
			      "KiB are zero",
			      p->where);
	if (p->decoded)
		return 0;
	if (!group_super_same(&p->super, &t->super))
		return rp_err(t->err, RP_EXIT_FILE,
			      "%s belongs to another group; give an empty pool",
			      p->where);
	/* Refuse a member that has another name here: it would be emptied. */
	for (unsigned int i = 0; i < t->n; i++)
		if (i != at && tool_member_equals(&t->members[i], p))
			return rp_err(t->err, RP_EXIT_FILE,
				      "%s is the member %s; give another pool",
				      p->where, t->members[i].where);
	/* Another pool has it if an earlier run was ended after the copy. */
	if (has_newest(t, p) && tool_member_equals(&t->members[at], p))
		return rp_err(t->err, RP_EXIT_FILE,
			      "%s has the newest commit: nothing has to be "
			      "replaced",
			      p->where);
	return 0;
}

/*
 * Whether the records of a former member must be erased. Others stay: they are
 * those of an empty pool, to which an interrupted copy can be continued, or of
 * one that an earlier run has filled.
 */
static bool is_former(const struct tool *t, const struct tool_member *p)
{
	return !p->decoded && (p->disk.epoch || p->super.founder) &&
	       !has_newest(t, p);
}

/*
 * Make a former member empty, so that it counts neither among the members that
 * know the newest commit nor as a founder. A power cut between two steps leaves
 * a member without an epoch, or only the first 8 bytes of its superblock: both
 * count as empty. The bitmap is erased after the copy record, by which a copy
 * takes only the last chunks and those that the bitmap marks.
 */
static int make_empty(struct tool *t, const struct tool_member *p)
{
	static const struct {
		uint64_t at, len;
	} steps[] = {
		{GROUP_SUPER, GROUP_BITS_AT - GROUP_SUPER},
		{GROUP_BITS_AT, GROUP_AREA - GROUP_BITS_AT},
		{8, GROUP_SUPER - 8},
		{0, 8},
	};
	unsigned char super[GROUP_SUPER];
	struct group_super replaced = p->super;
	struct rpmem_pool *pool;
	int ret = tool_open_alone(t, p->where, &pool);

	if (ret)
		return rp_err(t->err, rp_exit_pool(ret), "%s: %s", p->where,
			      rpmem_pool_error());
	replaced.founder = false;
	group_super_encode(&replaced, super);
	ret = rpmem_pool_write(pool, super, sizeof(super), 0,
			       RPMEM_POOL_DURABLE);
	for (unsigned int i = 0; !ret && i < 4; i++)
		ret = rpmem_pool_zero(pool, steps[i].len, steps[i].at,
				      RPMEM_POOL_DURABLE);
	if (ret)
		rp_err(t->err, 0, "%s: %s", p->where, rpmem_pool_error());
	rpmem_pool_close(pool);
	return ret ? (int)rp_exit_pool(ret) : 0;
}

/* Before any change, open a member exclusively: fails if there is a writer. */
static int check_writer(struct tool *t, unsigned int at)
{
	struct rpmem_pool *pool;
	int ret;

	for (unsigned int i = 0; i < t->n; i++) {
		if (i == at || t->members[i].state < TOOL_MEMBER_DISPLACED)
			continue;
		ret = tool_open_alone(t, t->members[i].where, &pool);
		if (ret)
			return rp_err(t->err, rp_exit_pool(ret),
				      "the group has a writer, or cannot be "
				      "written to: %s: %s",
				      t->members[i].where, rpmem_pool_error());
		rpmem_pool_close(pool);
		return 0;
	}
	return 0;
}

static int check(struct tool *t, unsigned int at, const char *member,
		 const char *with, struct tool_member *p)
{
	unsigned int lose;
	int code;

	if (at == t->n)
		return rp_err(t->err, RP_EXIT_USAGE,
			      "%s is no member of %s; write it as it is there",
			      member, t->group);
	if (strlen(with) >= sizeof(p->where) || strpbrk(with, ",;"))
		return rp_err(t->err, RP_EXIT_USAGE,
			      "'%s' names no pool; give HOST:POOL", with);
	for (unsigned int i = 0; i < t->n; i++)
		if (i != at && !strcmp(t->members[i].where, with))
			return rp_err(t->err, RP_EXIT_USAGE,
				      "%s is a member already", with);
	code = tool_look(t);
	if (code)
		return code;
	if (!t->epoch)
		return rp_err(t->err, RP_EXIT_FILE,
			      "the members are no group yet: the first opening "
			      "creates it");
	/* The new member is empty: the others must suffice to open it. */
	if (!tool_can_open(t, at, &lose))
		return RP_EXIT_NOTHING;
	strcpy(p->where, with);
	tool_member_open(t, p);
	return check_new_member(t, at, p);
}

int group_replace(struct tool *t, const char *member, const char *with)
{
	static struct tool_member p;
	struct rpmem_pool *pool;
	unsigned int at = 0;
	char *group = NULL;
	int code;

	while (at < t->n && strcmp(t->members[at].where, member))
		at++;
	code = check(t, at, member, with, &p);
	if (!code) {
		group = new_group(t, at, with);
		if (!group)
			code = rp_err(t->err, RP_EXIT_FAILED, "out of memory");
	}
	if (!code)
		code = check_writer(t, at);
	if (!code && is_former(t, &p))
		code = make_empty(t, &p);
	tool_member_close(&p);
	tool_close(t);
	if (!code)
		code = tool_open_writer(t, group, at, &pool);
	if (group)
		remove_epoch(group);
	if (!code) {
		rpmem_pool_close(pool);
		puts(group);
	} else if (code == RP_EXIT_BUSY) {
		fprintf(stderr,
			"fi_rpmem_group: a program that has the group open "
			"fills the new member itself: close the group there, "
			"and open it as\n%s\n",
			group);
	}
	free(group);
	return code;
}
