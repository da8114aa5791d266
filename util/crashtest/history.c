// SPDX-License-Identifier: BSD-2-Clause
/* The pieces of a record that a power cut loses or keeps, and their flushes. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/crashtest/history.h"

/* An inode, as the pass over the events knows it. */
struct inode_state {
	uint64_t size;
	uint32_t open;	    /* first piece that is not durable; CRASH_NONE */
	uint32_t touched;   /* pass.made after the inode's last change */
	uint32_t size_made; /* pass.made after the last one for fdatasync */
};

struct pass {
	struct crash_history *h;
	struct inode_state *inodes;
	uint32_t *next; /* of each piece: the next open one of its inode */
	size_t room;
	uint32_t made, durable, acks;
};

static bool add_piece(struct pass *p, struct crash_piece piece)
{
	struct crash_history *h = p->h;
	struct inode_state *s = &p->inodes[piece.inode];

	if (h->piece_count == p->room) {
		const size_t room = p->room ? 2 * p->room : 256;
		struct crash_piece *pieces =
			reallocarray(h->pieces, room, sizeof(*pieces));
		uint32_t *next;

		if (!pieces)
			return false;
		h->pieces = pieces;
		next = reallocarray(p->next, room, sizeof(*next));
		if (!next)
			return false;
		p->next = next;
		p->room = room;
	}
	p->next[h->piece_count] = s->open;
	s->open = (uint32_t)h->piece_count;
	h->pieces[h->piece_count++] = piece;
	return true;
}

/* Cut a write at the borders of units: sectors, or words of a store. */
static bool add_pieces(struct pass *p, uint32_t n, uint64_t size)
{
	const struct crash_step *e = &p->h->log->events[n];
	/* The file's last page is allocated: its size may precede bytes. */
	const uint64_t page = (size + CRASH_PAGE - 1) / CRASH_PAGE * CRASH_PAGE;
	const uint32_t unit =
		e->kind == CRASH_STORE ? p->h->log->store : p->h->log->sector;

	for (uint64_t at = e->offset; at < e->offset + e->length;) {
		uint64_t end = (at / unit + 1) * unit;
		struct crash_piece piece = {
			.event = n,
			.inode = e->inode,
			.offset = at,
			.mask = UINT64_MAX,
			.durable_at = CRASH_NONE,
		};

		if (end > e->offset + e->length)
			end = e->offset + e->length;
		piece.length = (uint32_t)(end - at);
		if (end > size && at < page)
			piece.grown = end < page ? end : page;
		if (unit == CRASH_WORD)
			piece.mask = UINT64_C(1)
				     << at % CRASH_SECTOR / CRASH_WORD;
		if (!add_piece(p, piece))
			return false;
		at = end;
	}
	return true;
}

/* Make the open pieces of a range of whole pages durable at event n. */
static void flush_range(struct pass *p, uint32_t n, uint32_t inode,
			uint64_t offset, uint64_t length)
{
	uint32_t *link = &p->inodes[inode].open;

	while (*link != CRASH_NONE) {
		struct crash_piece *piece = &p->h->pieces[*link];

		if (piece->offset >= offset && piece->offset - offset < length)
			piece->durable_at = n, *link = p->next[*link];
		else
			link = &p->next[*link];
	}
}

static void flush(struct pass *p, uint32_t n)
{
	const struct crash_step *e = &p->h->log->events[n];
	const struct inode_state *s = &p->inodes[e->inode];
	uint32_t covered = s->touched;
	const uint64_t first = e->offset / CRASH_PAGE * CRASH_PAGE;
	uint64_t length = CRASH_ALL;

	if (e->length < INT64_MAX)
		length = (e->offset + e->length + CRASH_PAGE - 1) / CRASH_PAGE *
				 CRASH_PAGE -
			 first;
	flush_range(p, n, e->inode, first, length);
	if (e->datasync && S_ISREG(p->h->log->inodes[e->inode].mode))
		covered = s->size_made;
	if (covered > p->durable)
		p->durable = covered;
}

static void flush_all(struct pass *p, uint32_t n)
{
	for (size_t i = 0; i < p->h->log->inode_count; i++)
		flush_range(p, n, (uint32_t)i, 0, CRASH_ALL);
	p->durable = p->made;
}

static void touch(struct pass *p, uint32_t inode)
{
	if (inode != CRASH_NONE)
		p->inodes[inode].touched = p->made;
}

static void change_meta(struct pass *p, uint32_t n)
{
	const struct crash_step *e = &p->h->log->events[n];

	if (n >= p->h->log->base) {
		p->h->meta[p->made++] = n;
		p->h->meta_count = p->made;
	}
	touch(p, e->inode);
	touch(p, e->inode2);
	touch(p, e->dir);
	touch(p, e->dir2);
	if (e->kind == CRASH_TRUNCATE)
		p->inodes[e->inode].size = e->offset;
	if (e->kind == CRASH_TRUNCATE || e->kind == CRASH_CREATE ||
	    e->kind == CRASH_MKDIR)
		p->inodes[e->inode].size_made = p->made;
}

static bool change_data(struct pass *p, uint32_t n)
{
	const struct crash_step *e = &p->h->log->events[n];
	struct inode_state *s = &p->inodes[e->inode];
	const uint64_t size = s->size;

	/* Only a new size needs the journal: times may stay within a tick. */
	if (e->offset + e->length > s->size) {
		touch(p, e->inode);
		s->size = e->offset + e->length;
		s->size_made = p->made;
	}
	if (s->size > p->h->sizes[e->inode])
		p->h->sizes[e->inode] = s->size;
	return n < p->h->log->base || add_pieces(p, n, size);
}

static bool pass_events(struct pass *p)
{
	struct crash_history *h = p->h;
	const struct crash_log *l = h->log;

	for (uint32_t n = 0; n < l->event_count; n++) {
		const struct crash_step *e = &l->events[n];

		h->first_piece[n] = (uint32_t)h->piece_count;
		if (crash_step_is_data(e) && !change_data(p, n))
			return false;
		if (crash_step_is_meta(e))
			change_meta(p, n);
		if (e->kind == CRASH_TRUNCATE && e->offset > h->sizes[e->inode])
			h->sizes[e->inode] = e->offset;
		if (e->kind == CRASH_FLUSH)
			flush(p, n);
		if (e->kind == CRASH_SYNC)
			flush_all(p, n);
		p->acks += e->kind == CRASH_ACK;
		h->meta_made[n] = p->made;
		h->meta_durable[n] = p->durable;
		h->acks[n] = p->acks;
	}
	h->first_piece[l->event_count] = (uint32_t)h->piece_count;
	return h->piece_count < CRASH_NONE;
}

int crash_history_make(struct crash_history *h, const struct crash_log *log)
{
	const size_t n = log->event_count;
	struct pass p = {.h = h};
	bool ok;

	*h = (struct crash_history){.log = log};
	p.inodes = calloc(log->inode_count + 1, sizeof(*p.inodes));
	h->first_piece = calloc(n + 1, sizeof(*h->first_piece));
	h->meta = calloc(n + 1, sizeof(*h->meta));
	h->meta_made = calloc(n + 1, sizeof(*h->meta_made));
	h->meta_durable = calloc(n + 1, sizeof(*h->meta_durable));
	h->acks = calloc(n + 1, sizeof(*h->acks));
	h->sizes = calloc(log->inode_count + 1, sizeof(*h->sizes));
	ok = p.inodes && h->first_piece && h->meta && h->meta_made &&
	     h->meta_durable && h->acks && h->sizes;
	for (size_t i = 0; ok && i < log->inode_count; i++)
		p.inodes[i].open = CRASH_NONE;
	ok = ok && pass_events(&p);
	free(p.inodes);
	free(p.next);
	if (ok)
		return 0;
	crash_history_free(h);
	return -ENOMEM;
}

void crash_history_free(struct crash_history *h)
{
	free(h->pieces);
	free(h->first_piece);
	free(h->meta);
	free(h->meta_made);
	free(h->meta_durable);
	free(h->acks);
	free(h->sizes);
	*h = (struct crash_history){0};
}

static uint32_t meta_durable_at(const struct crash_history *h, uint32_t event)
{
	const uint32_t made = h->meta_made[event];

	for (uint32_t n = event; n < h->log->event_count; n++)
		if (h->meta_durable[n] >= made)
			return n;
	return CRASH_NONE;
}

uint32_t crash_durable_at(const struct crash_history *h, uint32_t event)
{
	uint32_t last = event;

	if (event < h->log->base)
		return event;
	if (crash_step_is_meta(&h->log->events[event]))
		return meta_durable_at(h, event);
	for (uint32_t i = h->first_piece[event]; i < h->first_piece[event + 1];
	     i++) {
		if (h->pieces[i].durable_at == CRASH_NONE)
			return CRASH_NONE;
		if (h->pieces[i].durable_at > last)
			last = h->pieces[i].durable_at;
	}
	return last;
}

struct implied_losses {
	const struct crash_history *h;
	uint64_t **lost;  /* of each inode: masks of lost words, per sector */
	uint64_t *limits; /* of each inode */
	bool failed;	  /* out of memory */
};

static bool must_lose(const struct implied_losses *s,
		      const struct crash_piece *p)
{
	const uint64_t *lost = s->lost[p->inode];

	return p->offset + p->length > s->limits[p->inode] ||
	       (lost && lost[p->offset / s->h->log->sector] & p->mask);
}

static bool lose(struct implied_losses *s, const struct crash_piece *p)
{
	uint64_t **lost = &s->lost[p->inode];

	if (!*lost)
		*lost = calloc(s->h->sizes[p->inode] / s->h->log->sector + 1,
			       sizeof(**lost));
	if (!*lost)
		return false;
	(*lost)[p->offset / s->h->log->sector] |= p->mask;
	return true;
}

static size_t add_implied_losses(struct implied_losses *s,
				 struct crash_image *i, uint32_t n,
				 uint32_t *zeros)
{
	const struct crash_history *h = s->h;
	const struct crash_step *e = &h->log->events[n];
	size_t count = 0;

	/* Later data beyond a lost truncation's size is lost with it. */
	if (e->kind == CRASH_TRUNCATE && h->meta_made[n] > i->meta &&
	    e->offset < s->limits[e->inode])
		s->limits[e->inode] = e->offset;
	for (uint32_t k = h->first_piece[n]; k < h->first_piece[n + 1]; k++) {
		const struct crash_piece *p = &h->pieces[k];

		if (!crash_undecided(h, i->cut, k)) {
			crash_clear(i->lost, k);
		} else if (crash_bit(i->lost, k) || must_lose(s, p)) {
			crash_set(i->lost, k);
			if (n < i->zeros && p->grown &&
			    p->grown <= s->limits[p->inode])
				*zeros = n + 1;
			count++;
			s->failed |= !lose(s, p);
		}
	}
	return count;
}

size_t crash_image_settle(const struct crash_history *h, struct crash_image *i)
{
	const size_t inodes = h->log->inode_count;
	struct implied_losses s = {.h = h};
	uint32_t zeros = 0;
	size_t count = 0;

	s.lost = calloc(inodes + 1, sizeof(*s.lost));
	s.limits = malloc((inodes + 1) * sizeof(*s.limits));
	if (i->meta < h->meta_durable[i->cut])
		i->meta = h->meta_durable[i->cut];
	if (i->meta > h->meta_made[i->cut])
		i->meta = h->meta_made[i->cut];
	/* The journal has no size that is newer than a lost operation. */
	if (i->meta < h->meta_made[i->cut] && i->zeros > h->meta[i->meta])
		i->zeros = h->meta[i->meta];
	s.failed = !s.lost || !s.limits;
	if (!s.failed) {
		for (size_t k = 0; k < inodes; k++)
			s.limits[k] = UINT64_MAX;
		for (size_t n = h->log->base; n <= i->cut; n++)
			count += add_implied_losses(&s, i, (uint32_t)n, &zeros);
	}
	i->zeros = zeros;
	for (size_t k = h->first_piece[i->cut + 1]; k < h->piece_count; k++)
		crash_clear(i->lost, k);
	for (size_t k = 0; s.lost && k < inodes; k++)
		free(s.lost[k]);
	free(s.lost);
	free(s.limits);
	return s.failed ? CRASH_NO_MEMORY : count;
}
