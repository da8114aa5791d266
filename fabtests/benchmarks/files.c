// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes to files in a server's pool, with and without the advice of Wei et al.
 * 2021, section 6.2: the client requests the address of a block from the
 * server, and writes its payload there, at a random place of a random file.
 *
 *   files [--check] [--emulate] [--sleep] [--rounds N] [--each N]
 */
#include <stdio.h>
#include <string.h>

#include "benchmarks/study.h"

enum {
	PAD = 1,       /* H5, H6: aligned, padded */
	TWO_SIDED = 2, /* H3, with DDIO: the server stores the payload */
	DURABLE = 4,
	TOGETHER = 8, /* H9: write and commit without a wait between them */
	ONE_TRIP = 16 /* H9: by one request */
};

static const struct study_way ways[] = {
	{"plain", 0, -1},
	{"+H5 H6", PAD, 0},
	{"+H3 H4, two-sided", PAD | TWO_SIDED, 1},
	{"+persist", PAD | DURABLE, 1},
	{"+H9, two requests", PAD | DURABLE | TOGETHER, 3},
	{"+H9, one request", PAD | DURABLE | ONE_TRIP, 3},
};
#define WAYS ((unsigned int)(sizeof(ways) / sizeof(*ways)))

enum {
	FILES = 16,
	FILE_SIZE = STUDY_POOL / 16,
	LARGEST = 16128
};
enum {
	QUERY = 1,
	STORE,
	JUDGE
};

static size_t size;			   /* bytes of a write */
static unsigned char expected[STUDY_POOL]; /* content that the client expects */

static size_t unit(void)
{
	return size < 256 ? 64 : 256;
}

/* --- the server --- */

/* Addresses of the files' blocks: metadata of the server. */
static uint64_t block[FILES];

static void begin(void)
{
	for (unsigned int f = 0; f < FILES; f++)
		block[f] = (uint64_t)((f * 5 + 3) % FILES) * FILE_SIZE;
}

static void handle(const struct study_message *m, size_t len,
		   struct study_reply *r)
{
	switch (m->op) {
	case QUERY:
		r->value = block[m->id % FILES];
		break;
	case STORE:
		study_copy(study_pool() + m->offset, m->body, len, true);
		break;
	default:
		study_judge(m->offset, m->body, len);
	}
}

/* --- the client --- */

static void write_record(struct side *s, unsigned int way)
{
	static struct study_message m;
	const unsigned int flags = ways[way].flags;
	size_t len = size;
	uint64_t place = study_random() % (FILE_SIZE - LARGEST);

	if (flags & PAD) {
		len = (size + unit() - 1) / unit() * unit();
		place -= place % unit();
	} else if (!(place % unit())) {
		place++; /* makes the offset unaligned */
	}
	m.op = QUERY;
	m.way = way;
	m.id = study_random();
	m.offset = study_call(s, &m, 0) + place;
	memset(m.body, 0, len);
	memset(m.body, (int)(m.id >> 8 & 0xff), size);
	memcpy(expected + m.offset, m.body, len);
	if (flags & TWO_SIDED) {
		m.op = STORE;
		study_call(s, &m, len);
		return;
	}
	study_write(s, m.body, len, m.offset,
		    !(flags & DURABLE) ? STUDY_PLACED
		    : flags & TOGETHER ? STUDY_TOGETHER
		    : flags & ONE_TRIP ? STUDY_ONE_TRIP
				       : STUDY_TWO_TRIPS);
	if (!study_options.check || !(flags & DURABLE))
		return;
	m.op = JUDGE;
	study_call(s, &m, len);
}

/* Read every file, and compare it with the expected content. */
static void end(struct side *s)
{
	static unsigned char got[FILE_SIZE];

	for (uint64_t at = 0; at < STUDY_POOL; at += sizeof(got)) {
		POST(s, fi_read(s->ep, got, sizeof(got), NULL, s->peer,
				study_shared->addr + at, study_shared->key, s));
		study_wait(s, 1);
		if (memcmp(got, expected + at, sizeof(got)))
			atomic_fetch_add(&study_shared->wrong, 1);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		size_t size;
	} sizes[] = {
		{"48 bytes", 48}, {"1000 bytes", 1000}, {"16000 bytes", 16000}};

	study_start(argc, argv);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const struct study study = {
			.name = sizes[i].name,
			.ways = ways,
			.ways_n = WAYS,
			.work = write_record,
			.begin = begin,
			.handle = handle,
			.end = end,
		};

		size = sizes[i].size;
		study_run(&study);
	}
	return study_options.check ? tap_done() : 0;
}
