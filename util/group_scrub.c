// SPDX-License-Identifier: BSD-2-Clause
/* Compares the bytes of a group's members, and overwrites the minority. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/exit_codes.h"
#include "util/group_tool.h"
#include "util/progress_bar.h"

#define TRIES	 4 /* reads of a chunk that a writer may be changing */
#define RETRY_NS 20000000
#define PAGE	 4096u /* bytes that members vote on at once */

struct scrub {
	struct tool *t;
	struct rpmem_pool *writer; /* handle of --repair; NULL: only compare */
	uint64_t offset, len;	   /* range of the current chunk */
	unsigned char *majority_bytes; /* its bytes according to the majority */
	bool *agreed; /* per page: a majority has equal bytes */
	uint64_t compared, marked, differ, repaired;
	bool partly; /* some member could not be read */
};

/* Whether a member was reached and has bytes of the group to compare. */
static bool takes_part(const struct tool_member *p)
{
	return p->pool && p->state >= TOOL_MEMBER_DISPLACED;
}

static bool votes(const struct tool_member *p)
{
	return p->pool && p->state == TOOL_MEMBER_CURRENT;
}

static unsigned int count_members(const struct scrub *s)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < s->t->n; i++)
		count += takes_part(&s->t->members[i]);
	return count;
}

static void say_left_out(struct scrub *s, const struct tool_member *p)
{
	s->partly = true;
	fprintf(stderr, "fi_rpmem_group: %s is left out: %s\n", p->where,
		p->pool ? "it has no bytes of the group" : p->error);
}

/* Read the chunk from every member that can be read. */
static void read_chunk(struct scrub *s)
{
	for (unsigned int i = 0; i < s->t->n; i++) {
		struct tool_member *p = &s->t->members[i];

		if (!takes_part(p))
			continue;
		if (rpmem_pool_read(p->pool, p->chunk, s->len,
				    GROUP_AREA + s->offset)) {
			fprintf(stderr,
				"fi_rpmem_group: %s: %" PRIu64
				" bytes at %" PRIu64 " cannot be read: %s\n",
				p->where, s->len, s->offset,
				rpmem_pool_error());
			s->partly = true;
			rpmem_pool_close(p->pool);
			p->pool = NULL;
			continue;
		}
	}
}

static bool are_equal(const struct scrub *s)
{
	const struct tool_member *first = NULL;

	for (unsigned int i = 0; i < s->t->n; i++) {
		const struct tool_member *p = &s->t->members[i];

		if (!takes_part(p))
			continue;
		if (first && memcmp(p->chunk, first->chunk, s->len) != 0)
			return false;
		first = p;
	}
	return true;
}

/*
 * Whether the group's rules let members differ in the chunk: some member has
 * set its bit. A writer sets the bit before a write reaches any member.
 */
static bool may_differ(struct scrub *s)
{
	const uint64_t c = s->offset / s->t->super.chunk;
	bool marked = false;

	for (unsigned int i = 0; i < s->t->n; i++) {
		struct tool_member *p = &s->t->members[i];

		if (!takes_part(p))
			continue;
		if (tool_member_read(p))
			say_left_out(s, p);
		else
			marked |= tool_member_marks(p, c);
	}
	return marked;
}

/* Find a member whose bytes more than half of the current members have. */
static const struct tool_member *find_majority(const struct scrub *s,
					       uint64_t at, uint64_t len)
{
	unsigned int voters = 0;

	for (unsigned int i = 0; i < s->t->n; i++)
		voters += votes(&s->t->members[i]);
	for (unsigned int i = 0; i < s->t->n; i++) {
		const struct tool_member *p = &s->t->members[i];
		unsigned int count = 0;

		if (!takes_part(p))
			continue;
		for (unsigned int j = 0; j < s->t->n; j++)
			count += votes(&s->t->members[j]) &&
				 !memcmp(s->t->members[j].chunk + at,
					 p->chunk + at, len);
		if (count * 2 > voters)
			return p;
	}
	return NULL;
}

/* Bytes of the page at this offset of the chunk. */
static uint64_t page_len(const struct scrub *s, uint64_t at)
{
	return s->len - at < PAGE ? s->len - at : PAGE;
}

/*
 * Compose the right bytes of the chunk from the majority's bytes of each page:
 * damage of two members is rarely in the same page. A page without a majority
 * gets the bytes of `base`.
 */
static void compose(struct scrub *s, const struct tool_member *base)
{
	for (uint64_t at = 0; at < s->len; at += PAGE) {
		const uint64_t len = page_len(s, at);
		const struct tool_member *p = find_majority(s, at, len);

		s->agreed[at / PAGE] = p != NULL;
		memcpy(s->majority_bytes + at, (p ? p : base)->chunk + at, len);
	}
}

/* Find the first and the last byte in which a member differs in the range. */
static void find_range(const struct scrub *s, const struct tool_member *p,
		       uint64_t *at, uint64_t *end)
{
	while (p->chunk[*at] == s->majority_bytes[*at])
		++*at;
	while (p->chunk[*end - 1] == s->majority_bytes[*end - 1])
		--*end;
}

/* Write the majority's bytes to all members, through the group. */
static int repair(struct scrub *s, uint64_t at, uint64_t len)
{
	if (rpmem_pool_write(s->writer, s->majority_bytes + at, len,
			     s->offset + at, RPMEM_POOL_DURABLE))
		return rp_err(s->t->err, RP_EXIT_FAILED, "repair: %s",
			      rpmem_pool_error());
	s->repaired += len;
	return 0;
}

/*
 * Report the run of a member's pages from *at on that differ from the right
 * ones. The run also ends where pages with a majority begin or end. Set *at to
 * its end.
 */
static int report_pages(struct scrub *s, const struct tool_member *p,
			const struct tool_member *base, uint64_t *at)
{
	const bool agreed = s->agreed[*at / PAGE];
	uint64_t first = *at, end, len;

	do
		*at += page_len(s, *at);
	while (*at < s->len && s->agreed[*at / PAGE] == agreed &&
	       memcmp(p->chunk + *at, s->majority_bytes + *at,
		      page_len(s, *at)) != 0);
	end = *at;
	find_range(s, p, &first, &end);
	len = end - first;
	printf("%s: differs from %s in %" PRIu64 " bytes at offset %" PRIu64
	       "%s\n",
	       p->where, agreed ? "the majority" : base->where, len,
	       s->offset + first, agreed ? "" : "; no majority is equal");
	s->differ += len;
	return s->writer && agreed ? repair(s, first, len) : 0;
}

/* Report which members differ in the chunk; with --repair, repair them. */
static int report(struct scrub *s)
{
	const struct tool_member *base = NULL;
	int code = 0;

	for (unsigned int i = 0; !base; i++)
		if (takes_part(&s->t->members[i]))
			base = &s->t->members[i];
	compose(s, base);
	for (unsigned int i = 0; i < s->t->n; i++) {
		const struct tool_member *p = &s->t->members[i];
		uint64_t at = 0;

		while (!code && takes_part(p) && at < s->len)
			if (memcmp(p->chunk + at, s->majority_bytes + at,
				   page_len(s, at)) != 0)
				code = report_pages(s, p, base, &at);
			else
				at += PAGE;
	}
	return code;
}

static int scrub_chunk(struct scrub *s)
{
	for (unsigned int try = 0;; try++) {
		read_chunk(s);
		s->compared += s->len;
		if (count_members(s) < 2)
			return rp_err(s->t->err, RP_EXIT_NETWORK,
				      "fewer than two members can be read");
		if (are_equal(s))
			return 0;
		/* With --repair no other client writes, so this is damage. */
		if (s->writer)
			break;
		if (may_differ(s)) {
			s->marked += s->len;
			return 0;
		}
		if (try + 1 >= TRIES && count_members(s) > 1)
			break;
		s->compared -= s->len;
		nanosleep(&(struct timespec){0, RETRY_NS}, NULL);
	}
	return report(s);
}

static int scrub_all(struct scrub *s)
{
	const struct group_super *super = &s->t->super;
	struct progress bar;
	int code = 0;

	s->majority_bytes = malloc(super->chunk);
	s->agreed = calloc(super->chunk / PAGE + 1, sizeof(*s->agreed));
	if (!s->majority_bytes || !s->agreed)
		return rp_err(s->t->err, RP_EXIT_FAILED, "out of memory");
	for (unsigned int i = 0; i < s->t->n; i++) {
		s->t->members[i].chunk = malloc(super->chunk);
		if (!s->t->members[i].chunk)
			return rp_err(s->t->err, RP_EXIT_FAILED,
				      "out of memory");
	}
	progress_begin(&bar, "comparing", super->length, s->t->quiet);
	for (s->offset = 0; !code && s->offset < super->length;
	     s->offset += super->chunk) {
		s->len = super->length - s->offset < super->chunk
				 ? super->length - s->offset
				 : super->chunk;
		code = scrub_chunk(s);
		progress_at(&bar, s->offset + s->len);
	}
	progress_end(&bar);
	return code;
}

static void print_result(const struct scrub *s)
{
	char size[RP_SIZE_LEN];

	printf("%s compared at %u of %u members: ",
	       rp_size_format(s->compared - s->marked, size), count_members(s),
	       s->t->n);
	if (s->differ)
		printf("%" PRIu64 " bytes differ, %" PRIu64 " repaired\n",
		       s->differ, s->repaired);
	else
		puts("equal");
	if (s->marked)
		printf("%s left out: a writer changes them, or a member is "
		       "stale there\n",
		       rp_size_format(s->marked, size));
}

/* Open the group as its writer, so that no other client changes bytes. */
static int begin_repair(struct scrub *s)
{
	int code =
		tool_open_writer(s->t, s->t->group, GROUP_MEMBERS, &s->writer);

	if (code) {
		s->writer = NULL;
		return code;
	}
	tool_close(s->t);
	memset(s->t->members, 0, sizeof(s->t->members));
	code = tool_parse(s->t);
	return code ? code : tool_look(s->t);
}

int group_scrub(struct tool *t)
{
	struct scrub s = {.t = t};
	int code = tool_look(t);

	if (!code && !t->epoch)
		code = rp_err(t->err, RP_EXIT_FILE,
			      "the members are no group yet: nothing can be "
			      "compared");
	if (!code && t->repair)
		code = begin_repair(&s);
	for (unsigned int i = 0; !code && i < t->n; i++)
		if (!takes_part(&t->members[i]))
			say_left_out(&s, &t->members[i]);
	if (!code)
		code = scrub_all(&s);
	if (!code) {
		print_result(&s);
		if (s.differ > s.repaired)
			code = rp_err(t->err, RP_EXIT_DIFFER, "%s",
				      !t->repair ? "members differ; --repair "
						   "writes what the majority "
						   "has"
						 : "no majority of the current "
						   "members is equal: find out "
						   "which one is damaged, and "
						   "replace it");
		else if (s.partly)
			code = RP_EXIT_PARTLY;
	}
	rpmem_pool_close(s.writer);
	free(s.majority_bytes);
	free(s.agreed);
	return code;
}
