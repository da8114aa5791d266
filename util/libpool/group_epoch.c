// SPDX-License-Identifier: BSD-2-Clause
/* Epochs of a group: its opening, the member with the newest bytes, its end. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libpool/group.h"

/* How long an opening waits for more members than it needs. */
#define GRACE_MS 100

const char group_displaced[] =
	"another client has opened the group as its writer; open it again";
const char group_lost_one[] =
	"a member was lost while the group was opened; open it again";
static const char group_lost[] =
	"all members are there, and too few of them know the newest commit: "
	"the others were replaced or are former members; give the members "
	"that have it, or zero the first 64 KiB of all for a new group";

int group_init(struct group *g, unsigned int n, unsigned int k,
	       const struct group_io *io, const uint64_t random[2])
{
	*g = (struct group){.io = *io, .n = n, .k = k};
	g->super = (struct group_super){
		.n = n, .k = k, .id = {random[0], random[1]}};
	TAILQ_INIT(&g->ops);
	TAILQ_INIT(&g->reads);
	for (unsigned int i = 0; i < n; i++) {
		struct group_member *m = &g->members[i];

		TAILQ_INIT(&m->queue);
		TAILQ_INIT(&m->out);
		TAILQ_INIT(&m->commits);
		TAILQ_INIT(&m->dropped);
		m->area = malloc(GROUP_AREA);
		if (!m->area)
			return -ENOMEM;
	}
	g->bits = calloc(1, GROUP_BITS / 8);
	g->touched = calloc(GROUP_BITS, sizeof(*g->touched));
	if (!g->bits || !g->touched)
		return -ENOMEM;
	for (unsigned int i = 0; i < n; i++)
		io->reopen(io->arg, i);
	return 0;
}

static unsigned int members_needed(const struct group *g)
{
	const unsigned int others = g->n - g->k + 1;

	return g->k > others ? g->k : others;
}

/*
 * Whether enough members know the newest commit. A pool that replaces a lost
 * member does not, and counts once all chunks have been copied to it.
 */
static bool has_enough_members(const struct group *g, enum member_state from)
{
	unsigned int known = 0;
	bool founded = false;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];

		if (m->state < from)
			continue;
		known += (m->super.founder && !g->full) || m->disk.epoch;
		founded |= m->disk.epoch > 0;
	}
	/* No epoch: all n members create a group, unless `full` shows one. */
	if (!founded)
		return !g->full && group_count(g, from) == g->n;
	return known > g->n - g->k && group_count(g, from) >= members_needed(g);
}

static void take_super(struct group *g)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int i = 0; i < g->n; i++) {
		struct group_member *m = &g->members[i];

		if (m->state < MEMBER_SEEN)
			continue;
		if (m->super.n) {
			g->super = m->super;
			return;
		}
		least = m->length < least ? m->length : least;
	}
	g->super.length = (least - GROUP_AREA) / 8 * 8;
	g->super.chunk = GROUP_CHUNK;
	while (g->super.length / g->super.chunk >= GROUP_BITS)
		g->super.chunk *= 2;
}

static uint64_t newest_epoch(const struct group_state *is)
{
	return is->promised > is->epoch ? is->promised : is->epoch;
}

/*
 * Whether the given epoch is too old or already used by another writer. After
 * GROUP_LOOKING a member may have exactly this epoch: from this writer.
 */
static bool is_stale(struct group *g, unsigned int member,
		     const struct group_state *is)
{
	const uint64_t seen = newest_epoch(is);

	if (!g->given || seen < g->given ||
	    (seen == g->given && g->phase > GROUP_LOOKING))
		return false;
	snprintf(g->stale, sizeof(g->stale),
		 "it has epoch %" PRIu64 ", and this writer was given %" PRIu64
		 ": %s; give an epoch above %" PRIu64,
		 seen, g->given,
		 seen > g->given
			 ? "a newer one has the group, and this one changes "
			   "nothing"
			 : "each opening needs another one",
		 seen);
	group_end(g, -ESTALE, group_text(g, member, g->stale));
	return true;
}

int group_look(struct group *g, unsigned int member,
	       const unsigned char area[GROUP_AREA])
{
	struct group_super s;
	struct group_state is;

	/* inspected() refuses other bytes, once the member is open. */
	if (group_area_decode(area, &s, &is) ||
	    (g->phase > GROUP_LOOKING && !group_super_same(&s, &g->super)))
		return 0;
	if (is_stale(g, member, &is))
		return -ESTALE;
	if (g->phase == GROUP_LOOKING || newest_epoch(&is) < g->epoch)
		return 0;
	/* Another client can have chosen the same epoch. */
	if (newest_epoch(&is) > g->epoch)
		group_end(g, -ESTALE, group_displaced);
	else if (g->phase == GROUP_PROMISING)
		group_end(g, -EAGAIN, group_lost_one);
	return g->phase == GROUP_ENDED ? -ESTALE : 0;
}

/*
 * Ignore the epoch of each member whose epoch is below `full`. All n members
 * had `full` when bits were cleared, so that such a member was replaced before,
 * and lacks chunks that no bit marks now.
 */
static void clear_former_epochs(struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state >= MEMBER_SEEN &&
		    g->members[i].disk.full > g->full)
			g->full = g->members[i].disk.full;
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_member *m = &g->members[i];

		if (m->state < MEMBER_SEEN || m->disk.epoch >= g->full)
			continue;
		m->disk.epoch = 0;
		m->blank = true;
	}
}

static void choose_epoch(struct group *g)
{
	bool all = true, founded = false;

	clear_former_epochs(g);
	for (unsigned int i = 0; i < g->n; i++)
		all &= g->members[i].tried &&
		       (g->members[i].state == MEMBER_AWAY ||
			g->members[i].state >= MEMBER_SEEN);
	if (!has_enough_members(g, MEMBER_SEEN)) {
		if (group_count(g, MEMBER_SEEN) == g->n)
			group_end(g, -ENODATA, group_lost);
		return;
	}
	if (!g->grace_until)
		g->grace_until = g->now + GRACE_MS;
	if (!all && g->now < g->grace_until)
		return;
	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];

		if (m->state < MEMBER_SEEN)
			continue;
		if (is_stale(g, i, &m->disk))
			return;
		founded |= m->disk.epoch > 0;
		if (newest_epoch(&m->disk) >= g->epoch)
			g->epoch = newest_epoch(&m->disk) + 1;
	}
	if (g->given)
		g->epoch = g->given;
	take_super(g);
	g->super.founder = g->founds_group = !founded;
	g->phase = GROUP_PROMISING;
}

/* Let the member with the newest commit adopt the epoch with its own bytes. */
static void choose_source(struct group *g)
{
	unsigned int best = 0;

	if (!has_enough_members(g, MEMBER_PROMISED))
		return;
	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];
		const struct group_member *b = &g->members[best];

		if (m->state < MEMBER_PROMISED)
			continue;
		if (b->state < MEMBER_PROMISED ||
		    b->disk.epoch < m->disk.epoch ||
		    (b->disk.epoch == m->disk.epoch &&
		     b->disk.number < m->disk.number))
			best = i;
	}
	/* Take the bits of all members; group_touch() sends any later bit. */
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state >= MEMBER_PROMISED &&
		    !g->members[i].blank)
			for (unsigned int b = 0; b < GROUP_BITS / 8; b++)
				g->bits[b] |=
					g->members[i].area[GROUP_BITS_AT + b];
	for (unsigned int b = 0; b < GROUP_BITS / 8; b++)
		g->nset += (unsigned int)__builtin_popcount(g->bits[b]);
	g->phase = GROUP_MENDING;
	/* Members that are blank from now on replace lost ones. */
	g->super.founder = false;
	member_join(g, best, true);
}

/* Whether a member has all bytes of completed operations. */
static bool has_all(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state >= MEMBER_ADOPTING ||
		    (g->members[i].state == MEMBER_COPYING &&
		     g->members[i].from_itself))
			return true;
	return false;
}

/* End the group if no member has all completed bytes any more. */
static void end_without_source(struct group *g)
{
	const char *cause = g->members[g->dropped].error;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];

		if (!m->displaced)
			continue;
		/* A replaced pool fails with -ESTALE, too: its text says so. */
		group_end(g, -ESTALE,
			  m->ret == -ESTALE && m->error ? m->error
							: group_displaced);
		return;
	}
	if (g->phase != GROUP_OPEN) {
		group_end(g, -EAGAIN, group_why_late(g));
		return;
	}
	snprintf(g->lost, sizeof(g->lost),
		 "no member has all bytes any more: open the group again; what "
		 "was not committed may be lost (%s)",
		 cause ? cause : group_why_late(g));
	group_end(g, -EIO, g->lost);
}

void group_run(struct group *g, uint64_t now)
{
	g->now = now;
	if (g->phase == GROUP_ENDED)
		return;
	group_throttle_update(g);
	if (g->phase == GROUP_LOOKING)
		choose_epoch(g);
	for (unsigned int i = 0; i < g->n; i++)
		member_step(g, i);
	if (g->phase == GROUP_PROMISING)
		choose_source(g);
	if (g->phase == GROUP_MENDING && group_count(g, MEMBER_CURRENT) >= g->k)
		g->phase = GROUP_OPEN;
	if (g->phase >= GROUP_MENDING && !has_all(g))
		end_without_source(g);
	if (g->phase == GROUP_ENDED)
		return;
	group_ops_run(g);
}

void group_closed(struct group *g, unsigned int member)
{
	group_legs_free(g, &g->members[member].dropped);
}

void group_opened(struct group *g, unsigned int member, int ret,
		  uint64_t length, const char *error)
{
	struct group_member *m = &g->members[member];

	group_closed(g, member);
	if (g->phase == GROUP_ENDED)
		return;
	m->tried = true;
	m->error = ret ? error : m->error;
	m->ret = ret;
	if (!ret && length < GROUP_AREA + 8) {
		m->error = group_text(g, member,
				      "it is shorter than the 64 KiB that a "
				      "group keeps in each member; extend it");
		m->ret = ret = -ENOSPC;
	}
	if (ret) {
		/*
		 * Another writer has taken this member, but perhaps no other
		 * one: the group goes on as long as k members are left.
		 */
		m->displaced |= m->opened_once && ret == -EBUSY;
		if (m->displaced && ret == -EBUSY &&
		    group_count(g, MEMBER_CURRENT) < g->k)
			group_end(g, -ESTALE, error);
		else
			g->io.reopen(g->io.arg, member);
		return;
	}
	m->opened_once = true;
	m->length = length;
	m->state = MEMBER_INSPECT;
	m->number = 0;
	m->super = (struct group_super){0};
	m->disk = (struct group_state){0};
	m->blank = m->marked = false;
	m->copy_tries = 0;
}

void group_fini(struct group *g)
{
	group_end(g, -ECANCELED, "the group is closed");
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_member *m = &g->members[i];

		TAILQ_CONCAT(&m->dropped, &m->queue, link);
		TAILQ_CONCAT(&m->dropped, &m->commits, link);
		TAILQ_CONCAT(&m->dropped, &m->out, link);
		group_legs_free(g, &m->dropped);
		free(m->area);
		free(m->copy);
		if (m->source_read)
			free(m->source);
	}
	free(g->bits);
	free(g->touched);
}
