// SPDX-License-Identifier: BSD-2-Clause
/* Reads the records of a group's members, and finds the members' states. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/group_tool.h"
#include "util/progress_bar.h"

#define READ_S	10    /* seconds that a read waits for a member */
#define AWAY_MS 15000 /* limit of wait_current() without any progress */
#define TICK_NS 50000000l

/* Read ";k=N" and ";epoch=N", in any order, as librpmem_pool does. */
static int parse_settings(struct tool *t, const char *s)
{
	unsigned int ks = 0, epochs = 0;

	for (size_t len; *s; s += 1 + len) {
		len = strcspn(s + 1, ";");
		if (len == 3 && !strncmp(s, ";k=", 3) && s[3] >= '1' &&
		    s[3] <= '0' + (int)t->n && !ks++)
			t->k = (unsigned int)(s[3] - '0');
		/* librpmem_pool checks the epoch's value. */
		else if (strncmp(s, ";epoch=", 7) != 0 || epochs++)
			return rp_err(
				t->err, RP_EXIT_USAGE,
				"'%.*s' is nothing that a group has; give "
				";k=N, from 1 to the number of members, "
				"and perhaps ;epoch=N, each once",
				(int)len + 1, s);
	}
	return 0;
}

int tool_parse(struct tool *t)
{
	const char *end = strchr(t->group, ';');
	const char *s = t->group;

	if (!strncmp(s, "group=", 6))
		return rp_err(t->err, RP_EXIT_USAGE,
			      "leave out 'group=': a group of pools is named "
			      "HOST:POOL,HOST:POOL,...;k=N");
	if (!end)
		end = strchr(s, 0);
	for (t->n = 0; s <= end; t->n++) {
		const size_t len = strcspn(s, ",;");
		struct tool_member *p = &t->members[t->n];

		if (t->n == GROUP_MEMBERS)
			return rp_err(t->err, RP_EXIT_USAGE,
				      "a group has at most %d members",
				      GROUP_MEMBERS);
		if (!len || len >= sizeof(p->where))
			return rp_err(t->err, RP_EXIT_USAGE,
				      "'%s' has a member without a name, or "
				      "with one that is too long",
				      t->group);
		memcpy(p->where, s, len);
		for (unsigned int i = 0; i < t->n; i++)
			if (!strcmp(t->members[i].where, p->where))
				return rp_err(t->err, RP_EXIT_USAGE,
					      "'%s' is given twice", p->where);
		s += len + 1;
	}
	if (t->n < 2)
		return rp_err(t->err, RP_EXIT_USAGE,
			      "'%s' is no group; give HOST:POOL,HOST:POOL,... "
			      "and perhaps ;k=N behind it",
			      t->group);
	t->k = t->n / 2 + 1;
	return parse_settings(t, end);
}

void tool_member_close(struct tool_member *p)
{
	rpmem_pool_close(p->pool);
	p->pool = NULL;
	free(p->area);
	free(p->chunk);
	p->area = p->chunk = NULL;
}

static int tool_member_fail(struct tool_member *p, int ret)
{
	p->ret = ret;
	rp_err(p->error, 0, "%s", rpmem_pool_error());
	rpmem_pool_close(p->pool);
	p->pool = NULL;
	p->state = TOOL_MEMBER_AWAY;
	return ret;
}

int tool_member_read(struct tool_member *p)
{
	const int ret = rpmem_pool_read(p->pool, p->area, GROUP_AREA, 0);

	if (ret)
		return tool_member_fail(p, ret);
	p->super = (struct group_super){0};
	p->decoded = group_area_decode(p->area, &p->super, &p->disk);
	return 0;
}

/* Open a pool for the strongest class that it reaches. */
static int open_pool(const char *where, struct rpmem_pool_attr *attr,
		     struct rpmem_pool **pool)
{
	int ret;

	attr->required = RPMEM_POOL_POWER;
	while ((ret = rpmem_pool_open(pool, where, attr)) == -EOPNOTSUPP &&
	       attr->required < RPMEM_POOL_NONE)
		attr->required++;
	return ret;
}

int tool_open_alone(const struct tool *t, const char *where,
		    struct rpmem_pool **pool)
{
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.secret_file = t->secret_file,
		.exclusive = RPMEM_POOL_EXCLUSIVE,
	};

	return open_pool(where, &attr, pool);
}

void tool_member_open(const struct tool *t, struct tool_member *p)
{
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.secret_file = t->secret_file,
		.timeout = READ_S,
		.exclusive = RPMEM_POOL_OBSERVE,
	};
	int ret;

	p->info.size = sizeof(p->info);
	p->area = calloc(1, GROUP_AREA);
	if (!p->area) {
		p->ret = -ENOMEM;
		rp_err(p->error, 0, "out of memory");
		return;
	}
	ret = open_pool(p->where, &attr, &p->pool);
	if (ret) {
		p->pool = NULL;
		tool_member_fail(p, ret);
		return;
	}
	rpmem_pool_query(p->pool, &p->info);
	if (p->info.length < GROUP_AREA + 8) {
		p->decoded = -ENOSPC;
		return;
	}
	tool_member_read(p);
}

bool tool_member_equals(const struct tool_member *a,
			const struct tool_member *b)
{
	return a->pool && b->pool &&
	       !memcmp(a->info.uuid, b->info.uuid, sizeof(a->info.uuid)) &&
	       !memcmp(a->area, b->area, GROUP_AREA);
}

/* Find the group that most members belong to. */
static void find_group(struct tool *t)
{
	unsigned int most = 0;

	for (unsigned int i = 0; i < t->n; i++) {
		const struct tool_member *p = &t->members[i];
		unsigned int count = 0;

		if (!p->pool || p->decoded)
			continue;
		for (unsigned int j = 0; j < t->n; j++)
			count += t->members[j].pool && !t->members[j].decoded &&
				 group_super_same(&t->members[j].super,
						  &p->super);
		if (count > most)
			t->super = p->super;
		most = count > most ? count : most;
	}
}

/*
 * Set the epoch of a former member to 0, as of an empty one. Its epoch is older
 * than t->full, so it was replaced: see libpool/group_epoch.c.
 */
static void clear_former_epochs(struct tool *t)
{
	for (unsigned int i = 0; i < t->n; i++)
		if (t->members[i].pool && !t->members[i].decoded &&
		    group_super_same(&t->members[i].super, &t->super) &&
		    t->members[i].disk.full > t->full)
			t->full = t->members[i].disk.full;
	for (unsigned int i = 0; i < t->n; i++)
		if (t->members[i].disk.epoch < t->full)
			t->members[i].disk.epoch = 0;
}

/* Find the state of a member: TOOL_MEMBER_STALE for all that may be current. */
static enum tool_member_state state_by_superblock(const struct tool *t,
						  const struct tool_member *p)
{
	if (!p->pool)
		return TOOL_MEMBER_AWAY;
	if (p->decoded == -EBADMSG)
		return TOOL_MEMBER_OTHER;
	if (p->decoded == -ENOSPC ||
	    p->info.length < GROUP_AREA + t->super.length)
		return TOOL_MEMBER_SHORT;
	if (p->decoded)
		return TOOL_MEMBER_EMPTY;
	if (!group_super_same(&p->super, &t->super) || p->super.n != t->n ||
	    p->super.k != t->k)
		return TOOL_MEMBER_OTHER;
	return p->disk.epoch ? TOOL_MEMBER_STALE : TOOL_MEMBER_EMPTY;
}

static bool is_newest(const struct tool *t, const struct tool_member *p)
{
	return p->disk.epoch > t->epoch ||
	       (p->disk.epoch == t->epoch && p->disk.number >= t->number);
}

static void find_newest(struct tool *t)
{
	for (unsigned int i = 0; i < t->n; i++) {
		const struct tool_member *p = &t->members[i];

		if (p->state == TOOL_MEMBER_STALE && is_newest(t, p)) {
			t->epoch = p->disk.epoch;
			t->number = p->disk.number;
		}
	}
}

/*
 * Find whether a member is current. Read its records a few times: an active
 * writer may be writing the newest commit to them.
 */
static void find_member_state(struct tool *t, struct tool_member *p)
{
	for (unsigned int i = 0; i < 3 && !is_newest(t, p); i++) {
		if (p->disk.epoch != t->epoch)
			break;
		nanosleep(&(struct timespec){0, TICK_NS}, NULL);
		if (tool_member_read(p) || p->decoded)
			return;
	}
	if (p->disk.promised > t->epoch)
		p->state = TOOL_MEMBER_DISPLACED;
	else if (is_newest(t, p))
		p->state = TOOL_MEMBER_CURRENT;
}

bool tool_member_marks(const struct tool_member *p, uint64_t c)
{
	return p->area[GROUP_BITS_AT + c / 8] & 1u << c % 8;
}

/* A stale member may lack every chunk that any member has marked. */
static bool is_marked(const struct tool *t, const struct tool_member *p,
		      uint64_t c)
{
	bool marked = tool_member_marks(p, c);

	for (unsigned int i = 0; p->state == TOOL_MEMBER_STALE && i < t->n; i++)
		if (t->members[i].state >= TOOL_MEMBER_DISPLACED)
			marked |= tool_member_marks(&t->members[i], c);
	return marked;
}

static uint64_t count_marked(const struct tool *t, const struct tool_member *p)
{
	uint64_t marked = 0;

	for (uint64_t at = 0, c = 0; at < t->super.length;
	     at += t->super.chunk, c++)
		if (is_marked(t, p, c))
			marked += t->super.length - at < t->super.chunk
					  ? t->super.length - at
					  : t->super.chunk;
	return marked;
}

int tool_look(struct tool *t)
{
	unsigned int reached = 0, last = 0;

	for (unsigned int i = 0; i < t->n; i++) {
		tool_member_open(t, &t->members[i]);
		reached += t->members[i].pool != NULL;
		last = t->members[i].pool ? last : i;
	}
	if (!reached)
		return rp_err(t->err, rp_exit_pool(t->members[last].ret),
			      "no member of the group was reached; %s: %s",
			      t->members[last].where, t->members[last].error);
	find_group(t);
	if (t->super.n && (t->super.n != t->n || t->super.k != t->k))
		return rp_err(t->err, RP_EXIT_USAGE,
			      "the group has %u members and k=%u: name all of "
			      "its members, and ;k=%u",
			      t->super.n, t->super.k, t->super.k);
	for (unsigned int i = 0; i < t->n; i++)
		for (unsigned int j = 0; j < i; j++)
			if (tool_member_equals(&t->members[i], &t->members[j]))
				return rp_err(t->err, RP_EXIT_USAGE,
					      "%s and %s are one pool",
					      t->members[j].where,
					      t->members[i].where);
	clear_former_epochs(t);
	for (unsigned int i = 0; i < t->n; i++)
		t->members[i].state = state_by_superblock(t, &t->members[i]);
	find_newest(t);
	for (unsigned int i = 0; i < t->n; i++) {
		struct tool_member *p = &t->members[i];

		if (p->state == TOOL_MEMBER_STALE)
			find_member_state(t, p);
	}
	for (unsigned int i = 0; i < t->n; i++)
		if (t->members[i].state >= TOOL_MEMBER_DISPLACED)
			t->members[i].marked = count_marked(t, &t->members[i]);
	return 0;
}

void tool_close(struct tool *t)
{
	for (unsigned int i = 0; i < t->n; i++)
		tool_member_close(&t->members[i]);
}

bool tool_can_open(const struct tool *t, unsigned int but, unsigned int *lose)
{
	const unsigned int others = t->n - t->k + 1;
	const unsigned int needed = t->k > others ? t->k : others;
	unsigned int count = but < t->n, known = 0;
	const struct tool_member *away = NULL;

	*lose = 0;
	for (unsigned int i = 0; i < t->n; i++) {
		const struct tool_member *p = &t->members[i];

		if (i == but)
			continue;
		if (p->state == TOOL_MEMBER_OTHER ||
		    p->state == TOOL_MEMBER_SHORT)
			return rp_err(t->err, false,
				      "%s is in the way: it is %s; replace it",
				      p->where,
				      p->state == TOOL_MEMBER_SHORT
					      ? "shorter than the group"
					      : "no member of this group");
		if (p->state == TOOL_MEMBER_AWAY) {
			away = p;
			continue;
		}
		count++;
		known += p->disk.epoch ||
			 (!p->decoded && p->super.founder && !t->full);
	}
	if (!t->super.n || !t->epoch)
		return count == t->n ||
		       rp_err(t->err, false,
			      "the group is created by an opening with all of "
			      "its members");
	if (known < others || count < needed)
		return rp_err(t->err, false,
			      "%u of the members that know its commits are "
			      "there, and %u are needed, of %u in all; %s%s%s",
			      known, others, needed,
			      away ? "start fi_rpmemd at " : "",
			      away ? away->where : "",
			      away ? "" : "empty members know nothing");
	*lose = known - others < count - needed ? known - others
						: count - needed;
	return true;
}

/* Bytes and members that an open group lacks. */
struct lacks {
	uint64_t bytes;
	bool has_new; /* the new member of a replacement is current */
	bool busy;    /* a copy goes on, or a member was not opened yet */
	struct rpmem_pool_member one; /* a member that is not current */
};

/*
 * Find what members lack. one: the new member, or else one with an error if
 * there is any; one.where is NULL if all are current.
 */
static struct lacks find_lacks(struct rpmem_pool *pool, unsigned int n,
			       unsigned int new)
{
	struct lacks l = {0};
	bool lacks_new = false;

	for (unsigned int i = 0; i < n; i++) {
		struct rpmem_pool_member m = {.size = sizeof(m)};

		if (rpmem_pool_member(pool, i, &m))
			continue;
		l.bytes += m.left;
		if (m.state == RPMEM_POOL_CURRENT) {
			l.has_new |= i == new;
			continue;
		}
		l.busy |= m.state == RPMEM_POOL_COPYING || !m.error;
		if (i == new || ((m.error || !l.one.where) && !lacks_new))
			l.one = m;
		lacks_new |= i == new;
	}
	return l;
}

/*
 * Wait for all members; give up when one makes no progress for AWAY_MS. If a
 * member was replaced, only the new one has to become current: another member
 * may be away for long, and the group's name changes now.
 */
static int wait_current(struct tool *t, struct rpmem_pool *pool,
			unsigned int new)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	uint64_t total = 0, last = UINT64_MAX, since = rp_now_ms();
	struct progress bar = {0};
	struct lacks l = {0};
	int code = 0;

	for (;;) {
		bool late;

		if (rpmem_pool_query(pool, &info))
			code = rp_err(t->err, RP_EXIT_FAILED, "%s",
				      rpmem_pool_error());
		if (code || info.current == info.members)
			break;
		l = find_lacks(pool, info.members, new);
		if (l.bytes != last)
			since = rp_now_ms();
		last = l.bytes;
		if (l.bytes > total) {
			total = l.bytes;
			progress_end(&bar);
			progress_begin(&bar, "copying", total, t->quiet);
		}
		progress_at(&bar, total - l.bytes);
		late = rp_now_ms() - since > AWAY_MS;
		if (l.has_new && l.one.where && (late || !l.busy))
			break;
		if (late) {
			code = rp_err(t->err, RP_EXIT_BROKEN,
				      "the group is open, and not all of its "
				      "members are current: %s; run this again",
				      l.one.error ? l.one.error
						  : "one makes no progress");
			break;
		}
		nanosleep(&(struct timespec){0, TICK_NS}, NULL);
	}
	progress_end(&bar);
	if (!code && info.current != info.members)
		fprintf(stderr,
			"fi_rpmem_group: the member is replaced; another one "
			"is not current, and is filled when a writer reaches "
			"it: %s\n",
			l.one.error ? l.one.error : l.one.where);
	return code;
}

int tool_open_writer(struct tool *t, const char *group, unsigned int new,
		     struct rpmem_pool **pool)
{
	const int ret = tool_open_alone(t, group, pool);
	int code;

	if (ret == -EBUSY)
		return rp_err(t->err, RP_EXIT_BUSY,
			      "the group has a writer: %s", rpmem_pool_error());
	if (ret)
		return rp_err(t->err, rp_exit_pool(ret), "%s",
			      rpmem_pool_error());
	code = wait_current(t, *pool, new);
	if (code)
		rpmem_pool_close(*pool);
	return code;
}
