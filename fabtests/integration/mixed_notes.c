// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads the records that mixed.c noted as durable, over all its incarnations,
 * and checks that the pools hold them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mixed.h"

struct note {
	uint32_t incarnation, seq;
	uint16_t kind, peer;
};

static void fail_with(const char *what)
{
	perror(what);
	exit(1);
}

size_t mixed_place(int kind, int from, uint32_t seq)
{
	return ((size_t)kind * MIXED_RANKS * MIXED_SLOTS +
		(size_t)from * MIXED_SLOTS + seq % MIXED_SLOTS) *
	       MIXED_SLOT;
}

/*
 * No two records have the same bytes, so an older record is never mistaken for
 * a newer one.
 */
size_t mixed_record(uint8_t *buf, int kind, int from, int to, uint32_t seq,
		    uint32_t incarnation)
{
	static const size_t lens[] = {8, 64, 200, 1024, 2000, MIXED_SLOT};
	uint64_t x =
		((uint64_t)incarnation << 32 | seq) * 0x9e3779b97f4a7c15ull +
		(uint64_t)(kind * 64 + from * 8 + to + 1);
	size_t len = lens[seq % (sizeof(lens) / sizeof(lens[0]))];

	for (size_t i = 0; i < len; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, sizeof(x));
	}
	return len;
}

static int open_notes(const char *dir, int rank, int flags)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/notes.%d", dir, rank);
	return open(path, flags | O_CLOEXEC, 0600);
}

void mixed_note_open(struct mixed_note_file *f, const char *dir, int rank,
		     uint32_t incarnation,
		     uint32_t next[MIXED_KINDS][MIXED_RANKS])
{
	struct note n;

	f->incarnation = incarnation;
	f->fd = open_notes(dir, rank, O_RDWR | O_CREAT | O_APPEND);
	if (f->fd < 0)
		fail_with("notes");
	while (read(f->fd, &n, sizeof(n)) == sizeof(n))
		if (n.kind < MIXED_KINDS)
			next[n.kind][n.peer] = n.seq + 1;
}

void mixed_note(const struct mixed_note_file *f, int kind, int peer,
		uint32_t seq)
{
	struct note n = {f->incarnation, seq, (uint16_t)kind, (uint16_t)peer};

	if (write(f->fd, &n, sizeof(n)) != sizeof(n))
		fail_with("notes");
}

/* The expected record of a slot: that of the last note, or unknown. */
struct slot {
	uint32_t seq, incarnation;
	int known;
};

static struct slot slots[MIXED_KINDS][MIXED_RANKS][MIXED_SLOTS];
static struct note last[MIXED_KINDS][MIXED_RANKS];

/*
 * The end of an incarnation may have left a part of the next record, so the
 * next slot is unknown.
 */
static void open_end(int kind, int peer, int any)
{
	uint32_t seq = any ? last[kind][peer].seq + 1 : 0;

	slots[kind][peer][seq % MIXED_SLOTS].known = 0;
}

static void end_life(int any[MIXED_KINDS][MIXED_RANKS])
{
	for (int k = 0; k < MIXED_KINDS; k++)
		for (int p = 0; p < MIXED_RANKS; p++)
			open_end(k, p, any[k][p]);
}

/* Read a rank's notes into slots. Returns the number of noted messages. */
static unsigned long read_notes(int fd, unsigned long *noted)
{
	int any[MIXED_KINDS][MIXED_RANKS] = {{0}};
	unsigned long messages = 0;
	uint32_t incarnation = 0;
	struct note n;

	memset(slots, 0, sizeof(slots));
	while (read(fd, &n, sizeof(n)) == sizeof(n)) {
		if (n.incarnation != incarnation)
			end_life(any);
		incarnation = n.incarnation;
		if (n.kind == MIXED_MESSAGE) {
			messages++;
			continue;
		}
		any[n.kind][n.peer] = 1;
		last[n.kind][n.peer] = n;
		slots[n.kind][n.peer][n.seq % MIXED_SLOTS] =
			(struct slot){n.seq, n.incarnation, 1};
		++*noted;
	}
	end_life(any);
	return messages;
}

static int is_kept(int fd, int kind, int from, int to, const struct slot *s)
{
	static uint8_t want[MIXED_SLOT], got[MIXED_SLOT];
	size_t len = mixed_record(want, kind, from, to, s->seq, s->incarnation);

	return fd >= 0 &&
	       pread(fd, got, len, (off_t)mixed_place(kind, from, s->seq)) ==
		       (ssize_t)len &&
	       !memcmp(want, got, len);
}

static unsigned long look_at(const int pool[MIXED_RANKS], int kind, int from,
			     unsigned long *seen)
{
	unsigned long lost = 0;

	for (int to = 0; to < MIXED_RANKS; to++)
		for (int i = 0; i < MIXED_SLOTS; i++) {
			const struct slot *s = &slots[kind][to][i];

			if (!s->known)
				continue;
			++*seen;
			lost += !is_kept(pool[to], kind, from, to, s);
		}
	return lost;
}

int mixed_verify(const char *dir, const char *which)
{
	unsigned long messages = 0, noted = 0, lost = 0;
	unsigned long seen[MIXED_KINDS] = {0};
	int pool[MIXED_RANKS], fd;

	for (int r = 0; r < MIXED_RANKS; r++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s.%d", dir, which, r);
		pool[r] = open(path, O_RDONLY | O_CLOEXEC);
	}
	for (int r = 0; r < MIXED_RANKS; r++) {
		fd = open_notes(dir, r, O_RDONLY);
		if (fd < 0)
			continue;
		messages += read_notes(fd, &noted);
		close(fd);
		for (int k = 0; k < MIXED_KINDS; k++)
			lost += look_at(pool, k, r, &seen[k]);
	}
	printf("%lu noted, %lu messages, %lu puts and %lu commits looked at, "
	       "%lu lost\n",
	       noted, messages, seen[MIXED_PUT], seen[MIXED_COMMIT], lost);
	return lost != 0;
}
