// SPDX-License-Identifier: BSD-2-Clause
/* A member of a group, from its opening until it is current. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libpool/group.h"

/*
 * Make a leg for the queue of a member. Returns NULL, and drops the member, if
 * memory runs out. Returns NULL for a dropped member, too: a later leg of the
 * same step would be submitted without the earlier ones.
 */
static struct group_leg *make_leg(struct group *g, unsigned int member,
				  enum leg_kind kind, size_t len)
{
	struct group_leg *leg = NULL;

	if (g->members[member].state != MEMBER_AWAY)
		leg = leg_new(kind, len);
	if (!leg)
		member_drop(g, member, -ENOMEM, "out of memory");
	return leg;
}

/* Add bytes of the area, or a barrier, to the queue of a member. */
static void add(struct group *g, unsigned int member, enum leg_kind kind,
		uint64_t at, const void *bytes, size_t len)
{
	struct group_leg *leg = make_leg(g, member, kind, len);

	if (!leg)
		return;
	if (kind == LEG_BARRIER) {
		leg->op.type = RPMEM_POOL_COMMIT;
	} else {
		leg->op.type = RPMEM_POOL_WRITE;
		leg->op.flags = kind == LEG_BITS ? RPMEM_POOL_DURABLE : 0;
		memcpy(leg->bytes, bytes, len);
		leg->op.buf = leg->bytes;
		leg->op.offset = at;
		leg->op.len = len;
	}
	leg_add(g, member, leg);
}

/* Add a barrier that stores 8 bytes of the area when all before is durable. */
static void add_store(struct group *g, unsigned int member, enum leg_kind kind,
		      uint64_t at, uint64_t value)
{
	struct group_leg *leg = make_leg(g, member, kind, 0);

	if (!leg)
		return;
	leg->op.type = RPMEM_POOL_COMMIT;
	leg->then.offset = at;
	leg->then.value = htole64(value);
	leg->op.then = &leg->then;
	leg_add(g, member, leg);
}

static void inspect(struct group *g, unsigned int member)
{
	struct group_leg *leg = make_leg(g, member, LEG_AREA, 0);

	if (!leg)
		return;
	leg->op.type = RPMEM_POOL_READ;
	leg->op.buf = g->members[member].area;
	leg->op.len = GROUP_AREA;
	leg_add(g, member, leg);
	g->members[member].inspecting = true;
}

static bool same_group(const struct group *g, const struct group_super *s)
{
	const struct group_super *other = NULL;

	for (unsigned int i = 0; i < g->n && !other; i++)
		if (g->members[i].state >= MEMBER_SEEN && g->members[i].super.n)
			other = &g->members[i].super;
	if (g->phase != GROUP_LOOKING)
		other = &g->super;
	return !other || group_super_same(s, other);
}

/* Refuse a pool that is no member: an opening fails, an open group goes on. */
static void refuse(struct group *g, unsigned int member, int ret,
		   const char *error)
{
	if (g->phase == GROUP_OPEN)
		member_drop(g, member, ret, error);
	else
		group_end(g, ret, group_text(g, member, error));
}

/* Decide on a member whose area has been read. */
static void inspected(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct group_super s = {0};
	const int ret = group_area_decode(m->area, &s, &m->disk);

	m->inspecting = false;
	m->super = s;
	if (ret == -EBADMSG)
		refuse(g, member, -EBADMSG,
		       "it holds something else than this group: its first "
		       "64 KiB are not zero; give a new pool, or zero them");
	else if (!ret && (s.n != g->n || s.k != g->k))
		refuse(g, member, -EINVAL,
		       "the group was created with other numbers of members "
		       "or of copies (k); give the same as then");
	else if (!ret && !same_group(g, &s))
		refuse(g, member, -EINVAL,
		       "it belongs to another group than the others; give the "
		       "members of one");
	else if ((!ret && m->length < GROUP_AREA + s.length) ||
		 (ret && g->phase != GROUP_LOOKING &&
		  m->length < GROUP_AREA + g->super.length))
		member_drop(g, member, -ENOSPC,
			    "it is shorter than the group: extend it");
	else if (g->phase == GROUP_PROMISING &&
		 (g->super.founder || m->disk.promised == g->epoch))
		/* Another client can have chosen the same epoch or identity. */
		group_end(g, -EAGAIN, group_lost_one);
	else if (g->phase != GROUP_LOOKING && m->disk.promised > g->epoch)
		group_end(g, -ESTALE, group_displaced);
	else {
		/* A pool with an epoch below `full` was replaced: copy all. */
		if (g->phase != GROUP_LOOKING && m->disk.epoch < g->full)
			m->disk.epoch = 0;
		m->blank = ret || !m->disk.epoch;
		/*
		 * This blank pool replaces one that has the epoch, and that may
		 * come back. Keep all bits set from now on, so that the next
		 * opening finds the chunks that the old pool lacks.
		 */
		g->keeps_bits |= m->blank && m->has_adopted;
		/* The client that had taken it promised no newer epoch. */
		m->displaced = false;
		m->state = MEMBER_SEEN;
	}
}

static void set_state(struct group *g, unsigned int member,
		      enum member_state state)
{
	if (g->members[member].state != MEMBER_AWAY)
		g->members[member].state = state;
}

/*
 * Write the first 8 bytes of a new member's superblock durably, by which a torn
 * superblock is recognized. In a new group all members get them before any
 * member gets the group's identity. Of two clients that create a group, the one
 * that has lost a member to the other fails at this step.
 */
static void write_magic(struct group *g, unsigned int member)
{
	unsigned char super[GROUP_SUPER];

	group_super_encode(&g->super, super);
	add(g, member, LEG_AREA, 0, super, 8);
	add(g, member, LEG_BARRIER, 0, NULL, 0);
	set_state(g, member, MEMBER_MARKING);
}

/* Write the superblock of a new member without an epoch: it stays blank. */
static void format(struct group *g, unsigned int member)
{
	const struct group_super *was = &g->members[member].super;
	unsigned char super[GROUP_SUPER];

	/* The visible superblock may not be durable yet: write it again. */
	group_super_encode(was->n ? was : &g->super, super);
	add(g, member, LEG_AREA, 0, super, sizeof(super));
	add(g, member, LEG_BARRIER, 0, NULL, 0);
	set_state(g, member, MEMBER_FORMAT);
}

/*
 * Rewrite the visible epoch, which may not be durable, in its own slot. Erase
 * both slots of a member whose epoch is ignored (0), because copies to it will
 * make its bytes a mix of old and new.
 */
static void keep_slot(struct group *g, unsigned int member)
{
	static const unsigned char none[GROUP_SLOT];
	const struct group_member *m = &g->members[member];

	for (unsigned int s = 0; s < 2; s++)
		if (!m->disk.epoch)
			add(g, member, LEG_AREA, GROUP_SLOT_AT(s), none,
			    GROUP_SLOT);
		else if (s == m->disk.slot)
			add(g, member, LEG_AREA, GROUP_SLOT_AT(s),
			    m->area + GROUP_SLOT_AT(s), GROUP_SLOT);
}

/*
 * Write the promise of the epoch, and with it the bits of all members, so that
 * member_join() rarely has to write bits before copies; surplus bits only cost
 * copies. `full` is written too, so that it survives when the members that have
 * it are replaced.
 */
static void promise(struct group *g, unsigned int member)
{
	const uint64_t epoch = htole64(g->epoch), full = htole64(g->full);
	struct group_member *m = &g->members[member];
	unsigned char *bits = m->area + GROUP_BITS_AT;

	for (unsigned int b = 0; b < GROUP_BITS / 8; b++) {
		bits[b] |= g->bits[b];
		for (unsigned int i = 0; i < g->n; i++)
			if (g->phase == GROUP_PROMISING &&
			    g->members[i].state >= MEMBER_SEEN &&
			    !g->members[i].blank)
				bits[b] |=
					g->members[i].area[GROUP_BITS_AT + b];
	}
	m->marked = true;
	keep_slot(g, member);
	add(g, member, LEG_AREA, GROUP_BITS_AT, bits, GROUP_BITS / 8);
	if (m->disk.full < g->full)
		add(g, member, LEG_AREA, GROUP_FULL_AT, &full, sizeof(full));
	add(g, member, LEG_AREA, GROUP_PROMISE_AT, &epoch, sizeof(epoch));
	add(g, member, LEG_BARRIER, 0, NULL, 0);
	set_state(g, member, MEMBER_PROMISING);
}

/* Write the bytes that are left to copy, for fi_rpmem_group status. */
static void write_left(struct group *g, unsigned int member, uint64_t left)
{
	left = htole64(left);
	add(g, member, LEG_AREA, GROUP_LEFT_AT, &left, sizeof(left));
}

/*
 * Continue a copy of all chunks to a new member where an earlier one stopped,
 * if copied_epoch is above `full`: the bits of all chunks written since then
 * are set. Otherwise all n members were current in between, bits may have been
 * cleared, and the copy starts with the first chunk.
 */
static void resume_copy(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	uint64_t c;

	m->copied = !g->founds_group && m->disk.copied_epoch > g->full
			    ? m->disk.copied
			    : 0;
	for (c = m->copied; c % 8; c++)
		m->copy[c / 8] |= (unsigned char)(1u << c % 8);
	memset(m->copy + c / 8, 0xff, GROUP_BITS / 8 - c / 8);
}

/*
 * Make the copied chunks of a new member durable, and then their number. Not
 * while a group is created: its next opening may choose another source, so that
 * all must be copied again.
 */
static void keep_copied(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];

	if (g->founds_group || m->copy_next <= m->copied)
		return;
	m->copied = m->copy_next;
	add_store(g, member, LEG_COPIED, GROUP_COPIED_AT,
		  group_copied_encode(g->epoch, m->copied));
}

void member_join(struct group *g, unsigned int member, bool from_itself)
{
	struct group_member *m = &g->members[member];
	unsigned char *bits = m->area + GROUP_BITS_AT;

	m->from_itself = from_itself;
	m->copy_next = 0;
	m->copy = malloc(GROUP_BITS / 8);
	if (!m->copy) {
		member_drop(g, member, -ENOMEM, "out of memory");
		return;
	}
	for (unsigned int b = 0; b < GROUP_BITS / 8; b++) {
		m->marked &= !(g->bits[b] & ~bits[b]);
		bits[b] |= g->bits[b];
	}
	memcpy(m->copy, bits, GROUP_BITS / 8);
	if (m->blank)
		resume_copy(g, member);
	if (!m->marked)
		add(g, member, LEG_BITS, GROUP_BITS_AT, bits, GROUP_BITS / 8);
	set_state(g, member, MEMBER_COPYING);
	if (m->state == MEMBER_COPYING)
		write_left(g, member, group_copy_left(g, member));
}

/*
 * All chunks have been copied to the member: commit them, and then store its
 * epoch. The number of the newest issued commit and the epoch's checksum are
 * written to the free slot before, so that the store of the epoch makes the
 * slot valid. A member that already has this epoch gets only the number stored.
 */
static void adopt(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	const uint64_t number = htole64(g->issued);
	unsigned char slot[GROUP_SLOT];

	m->adopted = g->issued;
	m->has_adopted = true;
	write_left(g, member, 0);
	if (m->disk.epoch == g->epoch) {
		add_store(g, member, LEG_BARRIER, GROUP_NUMBER_AT(m->disk.slot),
			  g->issued);
	} else {
		m->disk.slot ^= 1;
		group_slot_encode(&g->super, g->epoch, slot);
		add(g, member, LEG_AREA, GROUP_NUMBER_AT(m->disk.slot), &number,
		    sizeof(number));
		add(g, member, LEG_AREA, GROUP_SLOT_AT(m->disk.slot) + 8,
		    slot + 8, sizeof(slot) - 8);
		add_store(g, member, LEG_BARRIER, GROUP_SLOT_AT(m->disk.slot),
			  g->epoch);
	}
	if (m->state == MEMBER_AWAY)
		return;
	m->numbered = true;
	m->state = MEMBER_ADOPTING;
}

/* Copy chunk by chunk: later writes to a chunk wait until it is copied. */
static void copy_next(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	const uint64_t chunks =
		(g->super.length + g->super.chunk - 1) / g->super.chunk;
	struct group_leg *leg;

	while (m->copy_next < chunks &&
	       !(m->copy[m->copy_next / 8] & 1u << m->copy_next % 8))
		m->copy_next++;
	if (m->copy_next >= chunks) {
		adopt(g, member);
		return;
	}
	leg = make_leg(g, member, LEG_COPY, 0);
	if (!leg)
		return;
	leg->op.offset = GROUP_AREA + m->copy_next * g->super.chunk;
	leg->op.len = g->super.chunk;
	if (leg->op.len > GROUP_AREA + g->super.length - leg->op.offset)
		leg->op.len = GROUP_AREA + g->super.length - leg->op.offset;
	leg_add(g, member, leg);
	m->copy_queued = true;
}

/*
 * Whether a chunk for `member` can be read at member `from`: a current member,
 * or the source of this opening (from_itself), which has all completed bytes
 * before it is current. The source itself rewrites its own bytes.
 */
static bool is_source(const struct group *g, unsigned int member,
		      unsigned int from, const struct rpmem_pool_op *copy)
{
	const struct group_member *m = &g->members[from];

	if (g->members[member].from_itself)
		return from == member;
	return (m->state == MEMBER_CURRENT ||
		(m->state >= MEMBER_COPYING && m->from_itself)) &&
	       member_has_all(g, from, copy->offset, copy->len);
}

/*
 * Read the chunk at a member that has it; if none has, member_step() retries.
 */
static void copy_read(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	const struct group_leg *copy = m->copying;
	struct group_leg *leg;

	for (unsigned int i = 0; i < g->n; i++) {
		if (!is_source(g, member, i, &copy->op))
			continue;
		/* Leave room to read the copied chunk back for comparison. */
		leg = leg_new(LEG_SOURCE, copy->op.len * 2);
		if (!leg) {
			member_drop(g, member, -ENOMEM, "out of memory");
			return;
		}
		leg->op.type = RPMEM_POOL_READ;
		leg->op.buf = leg->bytes;
		leg->op.offset = copy->op.offset;
		leg->op.len = copy->op.len;
		TAILQ_INSERT_TAIL(&g->members[i].out, leg, link);
		m->source = leg;
		m->source_at = i;
		m->source_read = false;
		member_start(g, i, &leg->op);
		return;
	}
}

static void copy_write(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct group_leg *copy = m->copying;
	const unsigned char *p = m->source->bytes;
	const bool zero = !*p && !memcmp(p, p + 1, copy->op.len - 1);

	m->source_read = true;
	copy->op.type = zero ? RPMEM_POOL_ZERO : RPMEM_POOL_WRITE;
	copy->op.buf = zero ? NULL : m->source->bytes;
	member_start(g, member, &copy->op);
}

/* A chunk has been read; drop its bytes if the copy was dropped. */
static void source_done(struct group *g, unsigned int at, struct group_leg *leg)
{
	TAILQ_REMOVE(&g->members[at].out, leg, link);
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].source == leg) {
			copy_write(g, i);
			return;
		}
	leg_free(g, leg);
}

/*
 * A chunk has been written, or read back. It counts as copied when the bytes
 * read back are those of the source.
 */
static void copy_done(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct rpmem_pool_op *op = &m->copying->op;
	unsigned char *back = m->source->bytes + op->len;

	if (op->type != RPMEM_POOL_READ) {
		op->type = RPMEM_POOL_READ;
		op->buf = back;
		member_start(g, member, op);
		return;
	}
	if (memcmp(m->source->bytes, back, op->len) != 0) {
		if (++m->copy_tries < GROUP_TRIES)
			copy_write(g, member);
		else
			member_drop(g, member, -EIO,
				    "a chunk that was copied to it is read "
				    "back with other bytes; check the memory, "
				    "the disk and the network there");
		return;
	}
	TAILQ_REMOVE(&m->out, m->copying, link);
	leg_free(g, m->copying);
	leg_free(g, m->source);
	m->copying = m->source = NULL;
	m->copy_queued = false;
	m->copy_tries = 0;
	m->copy_next++;
	/* Record the progress at most 128 times in a copy of all chunks. */
	if (m->copy_next % (g->super.length / g->super.chunk / 128 + 1))
		return;
	write_left(g, member, group_copy_left(g, member));
	if (m->blank && m->state == MEMBER_COPYING)
		keep_copied(g, member);
}

void member_done(struct group *g, unsigned int member, struct group_leg *leg)
{
	struct group_member *m = &g->members[member];

	if (leg->kind == LEG_SOURCE)
		source_done(g, member, leg);
	else if (leg->kind == LEG_COPY)
		copy_done(g, member);
	else if (leg->kind == LEG_AREA && m->state == MEMBER_INSPECT)
		inspected(g, member);
	else if (leg->kind != LEG_BARRIER)
		return;
	else if (m->state == MEMBER_MARKING)
		m->state = MEMBER_MARKED;
	else if (m->state == MEMBER_FORMAT)
		promise(g, member);
	else if (m->state == MEMBER_PROMISING)
		m->state = MEMBER_PROMISED;
	else if (m->state == MEMBER_ADOPTING) {
		m->state = MEMBER_CURRENT;
		m->blank = false;
		m->number = m->adopted;
		free(m->copy);
		m->copy = NULL;
		group_adopted(g, member);
	}
}

void member_step(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];

	switch (m->state) {
	case MEMBER_INSPECT:
		if (!m->inspecting)
			inspect(g, member);
		break;
	case MEMBER_SEEN:
		if (g->phase < GROUP_PROMISING)
			break;
		if (m->disk.epoch)
			promise(g, member);
		else
			write_magic(g, member);
		break;
	case MEMBER_MARKED:
		if (!g->super.founder || group_count(g, MEMBER_MARKED) == g->n)
			format(g, member);
		break;
	case MEMBER_PROMISED:
		if (g->phase < GROUP_MENDING)
			break;
		member_join(g, member, false);
		if (m->state != MEMBER_COPYING)
			break;
		/* fall through */
	case MEMBER_COPYING:
		if (m->copying && !m->source && g->now >= m->repeat_at)
			copy_read(g, member);
		else if (!m->copying && !m->copy_queued && group_may_copy(g))
			copy_next(g, member);
		break;
	default:
		break;
	}
}
