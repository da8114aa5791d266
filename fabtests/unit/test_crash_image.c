// SPDX-License-Identifier: BSD-2-Clause
/* Images that a power cut may leave: exactly the legal ones, in small cases. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/crashtest/sample.h"

#define SEEN_MAX 4096

static struct crash_log l;
static struct crash_history h;
static uint32_t
	file; /* the file "f" of the folder, at the start 2 KiB of '.' */

/* Images that were visited, each as text: SIZE and the first byte of sectors.
 */
static char seen[SEEN_MAX][64];
static unsigned int seen_count;

static struct crash_step *step(enum crash_step_kind kind, uint32_t inode)
{
	struct crash_step *e = crash_log_event(&l, kind);

	cr_assert(e);
	e->inode = inode;
	return e;
}

static void entry(enum crash_step_kind kind, uint32_t inode, const char *name)
{
	const uint64_t text = crash_log_text(&l, name);
	struct crash_step *e = step(kind, inode);

	e->dir = 0;
	e->name = text;
}

static void rename_to(uint32_t inode, const char *name, const char *name2)
{
	const uint64_t text = crash_log_text(&l, name2);

	entry(CRASH_RENAME, inode, name);
	l.events[l.event_count - 1].dir2 = 0;
	l.events[l.event_count - 1].name2 = text;
}

static void put(enum crash_step_kind kind, uint64_t offset, size_t len, char c)
{
	char bytes[8192];
	uint64_t data;
	struct crash_step *e;

	memset(bytes, c, len);
	data = crash_log_bytes(&l, bytes, len);
	e = step(kind, file);
	e->offset = offset;
	e->length = len;
	e->data = data;
}

static void flush(uint32_t inode, bool datasync)
{
	struct crash_step *e = step(CRASH_FLUSH, inode);

	e->length = CRASH_ALL;
	e->datasync = datasync;
}

static void setup(void)
{
	memset(&l, 0, sizeof(l));
	memset(&h, 0, sizeof(h));
	seen_count = 0;
	l.store = 8;
	l.sector = 512;
	crash_log_inode(&l, S_IFDIR | 0755, 0, 0);
	file = crash_log_inode(&l, S_IFREG | 0644, 0, 0);
	entry(CRASH_CREATE, file, "f");
	put(CRASH_WRITE, 0, 2048, '.');
	l.base = l.event_count;
}

static void teardown(void)
{
	crash_history_free(&h);
	crash_log_free(&l);
}

TestSuite(crash_image, .init = setup, .fini = teardown);

/* A file of the tree as "NAME=BYTES;", one byte for each unit of 512 or 8. */
static bool remember(void *arg, const struct crash_image *i)
{
	const uint64_t unit = *(const uint64_t *)arg;
	struct crash_tree t;
	char text[64] = "";
	size_t n = 0;

	cr_assert(!crash_tree_make(&t, &h, i));
	for (size_t k = 0; k < t.entry_count; k++) {
		const struct crash_node *node = &t.nodes[t.entries[k].inode];

		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      "%s=", t.entries[k].name);
		for (uint64_t at = 0; at < node->size && n < 60; at += unit)
			text[n++] = node->data[at] ? node->data[at] : '0';
		text[n++] = ';';
		text[n] = 0;
	}
	crash_tree_free(&t);
	for (unsigned int k = 0; k < seen_count; k++)
		if (!strcmp(seen[k], text))
			return false;
	cr_assert_lt(seen_count, SEEN_MAX);
	memcpy(seen[seen_count++], text, sizeof(text));
	return true;
}

/* All images behind the last event are these, in any order. */
static void expect(uint64_t unit, unsigned int count, ...)
{
	struct crash_sample s = {
		.history = &h,
		.images = SEEN_MAX,
		.visit = remember,
		.arg = &unit,
	};
	va_list ap;

	crash_history_free(&h);
	seen_count = 0;
	cr_assert(!crash_history_make(&h, &l));
	cr_assert(crash_sample_all(&s, (uint32_t)l.event_count - 1));
	va_start(ap, count);
	for (unsigned int i = 0; i < count; i++) {
		const char *want = va_arg(ap, const char *);
		bool found = false;

		for (unsigned int k = 0; k < seen_count; k++)
			found |= !strcmp(seen[k], want);
		cr_assert(found, "the legal image %s is not made", want);
	}
	va_end(ap);
	cr_assert_eq(seen_count, count, "%u images, not %u: %s %s", seen_count,
		     count, seen[0], seen[1]);
}

Test(crash_image, sectors_of_a_write_are_lost_independently)
{
	put(CRASH_WRITE, 512, 1024, 'a');
	expect(512, 4, "f=....;", "f=.a..;", "f=..a.;", "f=.aa.;");
}

/* A device with larger sectors writes those at once. */
Test(crash_image, a_write_is_torn_at_the_sectors_of_the_device)
{
	put(CRASH_WRITE, 2048, 6144, '.');
	flush(file, false);
	l.sector = 4096;
	put(CRASH_WRITE, 0, 8192, 'a');
	put(CRASH_WRITE, 512, 512, 'b');
	expect(512, 6, "f=................;", "f=aaaaaaaa........;",
	       "f=........aaaaaaaa;", "f=aaaaaaaaaaaaaaaa;",
	       "f=abaaaaaa........;", "f=abaaaaaaaaaaaaaa;");
}

/* The page cache has one state of a sector: no later write without an earlier.
 */
Test(crash_image, writes_of_one_sector_are_kept_in_order)
{
	put(CRASH_WRITE, 0, 512, 'a');
	put(CRASH_WRITE, 0, 512, 'b');
	put(CRASH_WRITE, 0, 512, 'c');
	expect(512, 4, "f=....;", "f=a...;", "f=b...;", "f=c...;");
}

/* Words of one sector that writes have changed are on the disk in that order.
 */
Test(crash_image, a_sector_is_never_torn)
{
	l.events[1].length = 32; /* the file is four words long */
	put(CRASH_WRITE, 0, 16, 'a');
	put(CRASH_WRITE, 16, 8, 'b');
	put(CRASH_WRITE, 0, 8, 'c');
	expect(8, 4, "f=....;", "f=aa..;", "f=aab.;", "f=cab.;");
}

Test(crash_image, flushed_writes_are_kept)
{
	put(CRASH_WRITE, 0, 512, 'a');
	flush(file, false);
	expect(512, 1, "f=a...;");
	put(CRASH_WRITE, 512, 512, 'b');
	expect(512, 2, "f=a...;", "f=ab..;");
}

Test(crash_image, a_flush_of_a_range_covers_its_pages_only)
{
	put(CRASH_WRITE, 2048, 2048, '.');
	put(CRASH_WRITE, 4096, 512, '.');
	flush(file, false);
	put(CRASH_WRITE, 0, 512, 'a');
	put(CRASH_WRITE, 4096, 512, 'b');
	flush(file, false);
	l.events[l.event_count - 1].offset = 4096;
	l.events[l.event_count - 1].length = 1;
	expect(512, 2, "f=........b;", "f=a.......b;");
}

Test(crash_image, words_of_a_store_are_lost_independently)
{
	put(CRASH_STORE, 0, 16, 'a');
	l.events[1].length = 32; /* the file is four words long */
	expect(8, 4, "f=....;", "f=a...;", "f=.a..;", "f=aa..;");
	put(CRASH_STORE, 0, 8, 'b');
	expect(8, 6, "f=....;", "f=a...;", "f=.a..;", "f=aa..;", "f=b...;",
	       "f=ba..;");
}

Test(crash_image, the_size_follows_the_last_kept_sector)
{
	put(CRASH_WRITE, 2048, 1024, 'a');
	expect(512, 6, "f=....;", "f=....a;", "f=....0a;", "f=....aa;",
	       "f=....00;", "f=....a0;");
}

/* The block was there, so the journal has the size before the bytes. */
Test(crash_image, a_tail_in_the_last_page_may_be_zeros)
{
	put(CRASH_WRITE, 2048, 1024, 'a');
	put(CRASH_WRITE, 3072, 1536, 'b');
	flush(file, false);
	put(CRASH_WRITE, 4608, 512, 'c');
	expect(512, 3, "f=....aabbb;", "f=....aabbb0;", "f=....aabbbc;");
	step(CRASH_TRUNCATE, file)->offset = 4608;
	expect(512, 3, "f=....aabbb;", "f=....aabbb0;", "f=....aabbbc;");
}

/* The journal may have been written between two appends. */
Test(crash_image, sizes_of_appends_are_kept_in_order)
{
	put(CRASH_WRITE, 2048, 512, 'a');
	put(CRASH_WRITE, 2560, 512, 'b');
	expect(512, 7, "f=....;", "f=....0;", "f=....00;", "f=....a;",
	       "f=....a0;", "f=....0b;", "f=....ab;");
}

Test(crash_image, sizes_of_two_files_are_kept_in_order)
{
	const uint32_t f = file;
	const uint32_t g = crash_log_inode(&l, S_IFREG | 0644, 0, 0);

	file = g;
	entry(CRASH_CREATE, g, "g");
	put(CRASH_WRITE, 0, 512, '.');
	l.base = l.event_count;
	file = f;
	put(CRASH_WRITE, 2048, 512, 'a');
	file = g;
	put(CRASH_WRITE, 512, 512, 'b');
	expect(512, 8, "f=....;g=.;", "f=....0;g=.;", "f=....0;g=.0;",
	       "f=....;g=.b;", "f=....0;g=.b;", "f=....a;g=.;", "f=....a;g=.0;",
	       "f=....a;g=.b;");
}

/* The journal has the rename before the new size. */
Test(crash_image, sizes_behind_a_lost_operation_are_lost)
{
	put(CRASH_WRITE, 2048, 512, 'a');
	rename_to(file, "f", "g");
	put(CRASH_WRITE, 2560, 512, 'b');
	expect(512, 12, "f=....;", "f=....0;", "f=....a;", "f=....0b;",
	       "f=....ab;", "g=....;", "g=....0;", "g=....00;", "g=....a;",
	       "g=....a0;", "g=....0b;", "g=....ab;");
}

Test(crash_image, a_tail_in_a_new_page_is_not_of_zeros)
{
	put(CRASH_WRITE, 2048, 2048, 'a');
	flush(file, false);
	put(CRASH_WRITE, 4096, 512, 'b');
	expect(512, 2, "f=....aaaa;", "f=....aaaab;");
}

/* Metadata as a journal has it: a prefix of the operations. */
Test(crash_image, metadata_is_kept_in_order)
{
	const uint32_t g = crash_log_inode(&l, S_IFREG | 0644, 0, 0);

	entry(CRASH_CREATE, g, "g");
	rename_to(file, "f", "h");
	entry(CRASH_UNLINK, file, "h");
	expect(512, 4, "f=....;", "f=....;g=;", "g=;h=....;", "g=;");
}

Test(crash_image, a_rename_may_come_before_the_bytes)
{
	put(CRASH_WRITE, 0, 512, 'a');
	rename_to(file, "f", "h");
	expect(512, 4, "f=....;", "f=a...;", "h=....;", "h=a...;");
}

Test(crash_image, fsync_covers_the_metadata_up_to_the_inodes_last_change)
{
	const uint32_t g = crash_log_inode(&l, S_IFREG | 0644, 0, 0);

	entry(CRASH_CREATE, g, "g");
	/* f has no other blocks, so its fsync has nothing to wait for. */
	put(CRASH_WRITE, 0, 512, 'a');
	flush(file, false);
	expect(512, 2, "f=a...;", "f=a...;g=;");
	put(CRASH_WRITE, 2048, 512, 'a');
	flush(file, false);
	expect(512, 1, "f=a...a;g=;");
}

Test(crash_image, msync_covers_no_name_of_another_file)
{
	const uint32_t g = crash_log_inode(&l, S_IFREG | 0644, 0, 0);

	entry(CRASH_CREATE, g, "g");
	put(CRASH_STORE, 0, 512, 'a');
	flush(file, false);
	expect(512, 2, "f=a...;", "f=a...;g=;");
}

Test(crash_image, fsync_of_the_folder_covers_its_entries)
{
	rename_to(file, "f", "h");
	flush(0, false);
	expect(512, 1, "h=....;");
}

Test(crash_image, fdatasync_waits_for_a_new_size_but_not_for_a_name)
{
	rename_to(file, "f", "h");
	put(CRASH_WRITE, 0, 512, 'a');
	flush(file, true);
	expect(512, 2, "f=a...;", "h=a...;");
	put(CRASH_WRITE, 2048, 512, 'b');
	flush(file, true);
	expect(512, 1, "h=a...b;");
}

Test(crash_image, sync_covers_all)
{
	put(CRASH_WRITE, 0, 512, 'a');
	rename_to(file, "f", "h");
	step(CRASH_SYNC, CRASH_NONE);
	expect(512, 1, "h=a...;");
}

/* The journal has the blocks of the new bytes behind the truncation. */
Test(crash_image, bytes_behind_a_lost_truncation_are_lost)
{
	step(CRASH_TRUNCATE, file)->offset = 512;
	put(CRASH_WRITE, 512, 512, 'a');
	expect(512, 4, "f=....;", "f=.;", "f=.a;", "f=.0;");
}

Test(crash_image, a_truncated_file_has_zeros_when_it_grows_again)
{
	step(CRASH_TRUNCATE, file)->offset = 512;
	step(CRASH_TRUNCATE, file)->offset = 1024;
	expect(512, 3, "f=....;", "f=.;", "f=.0;");
}

Test(crash_image, an_image_is_the_same_from_its_text)
{
	uint64_t lost = 0, again = 0;
	struct crash_image i = {.lost = &lost}, j = {.lost = &again};
	char *text;

	put(CRASH_WRITE, 0, 2048, 'a');
	put(CRASH_WRITE, 0, 2048, 'b');
	cr_assert(!crash_history_make(&h, &l));
	for (lost = 0; lost < 256; lost++) {
		i.cut = (uint32_t)l.event_count - 1;
		i.zeros = lost % 3 ? (uint32_t)(l.base + lost % 3) : 0;
		text = crash_image_text(&h, &i);
		cr_assert(!crash_image_parse(&h, text, &j));
		cr_assert_eq(lost, again, "%s", text);
		cr_assert_eq(i.cut, j.cut);
		cr_assert_eq(i.zeros, j.zeros, "%s", text);
		free(text);
	}
	cr_assert(crash_image_parse(&h, "1:0:0:zeros", &j));
	cr_assert(crash_image_parse(&h, "1:0:0:zeros=2", &j));
	cr_assert(crash_image_parse(&h, "1:0:0:zeros=1,", &j));
	cr_assert(crash_image_parse(&h, "1:0:8", &j));
	cr_assert(crash_image_parse(&h, "2:0:-", &j));
	cr_assert(crash_image_parse(&h, "1:0:1-", &j));
}

/* --image takes any text, so its images are made legal, too. */
Test(crash_image, an_image_keeps_what_is_durable)
{
	uint64_t lost = 0xff;
	struct crash_image i = {.zeros = UINT32_MAX, .lost = &lost};

	put(CRASH_WRITE, 0, 2048, 'a');
	rename_to(file, "f", "h");
	step(CRASH_SYNC, CRASH_NONE);
	put(CRASH_WRITE, 0, 2048, 'b');
	rename_to(file, "h", "g");
	cr_assert(!crash_history_make(&h, &l));
	i.cut = (uint32_t)l.event_count - 1;
	cr_assert_eq(crash_image_settle(&h, &i), 4u);
	cr_assert_eq(lost, 0xf0u, "%lx", (unsigned long)lost);
	cr_assert_eq(i.meta, 1u);
	cr_assert_eq(i.zeros, 0u);
}

/* The flush of a file covers the rename that exchanged or replaced it. */
Test(crash_image, a_flush_covers_the_rename_of_the_other_file)
{
	const uint32_t other = crash_log_inode(&l, S_IFREG | 0644, 0, 0);

	entry(CRASH_CREATE, other, "g");
	rename_to(file, "f", "g");
	l.events[l.event_count - 1].inode2 = other;
	flush(other, false);
	cr_assert(!crash_history_make(&h, &l));
	cr_assert_eq(h.meta_durable[l.event_count - 1], 2u);
}

/* The result of a load of the log, whose last event has these folders. */
static int load_with(uint32_t dir, uint32_t dir2)
{
	char path[] = "/tmp/test_crash_image.XXXXXX";
	struct crash_step *last = &l.events[l.event_count - 1];
	const struct crash_step intact = *last;
	const int fd = mkstemp(path);
	struct crash_log again;
	int ret;

	cr_assert_geq(fd, 0);
	close(fd);
	last->dir = dir;
	last->dir2 = dir2;
	cr_assert(!crash_log_save(&l, path));
	*last = intact;
	ret = crash_log_load(&again, path);
	crash_log_free(&again);
	unlink(path);
	return ret;
}

/* crash_history_make() takes both as indices of inodes. */
Test(crash_image, a_log_with_folders_out_of_range_is_refused)
{
	step(CRASH_TRUNCATE, file)->offset = 512;
	cr_assert_eq(load_with(CRASH_NONE, CRASH_NONE), 0);
	cr_assert_eq(load_with(1 << 30, CRASH_NONE), -EBADMSG);
	cr_assert_eq(load_with(CRASH_NONE, 1 << 30), -EBADMSG);
	entry(CRASH_UNLINK, file, "f");
	cr_assert_eq(load_with(0, CRASH_NONE), 0);
	cr_assert_eq(load_with(1 << 30, CRASH_NONE), -EBADMSG);
	cr_assert_eq(load_with(0, 1 << 30), -EBADMSG);
	rename_to(file, "f", "g");
	cr_assert_eq(load_with(0, 0), 0);
	cr_assert_eq(load_with(0, 1 << 30), -EBADMSG);
	l.events[l.event_count - 1].inode2 = 1 << 30;
	cr_assert_eq(load_with(0, 0), -EBADMSG);
}

/* Every sampled image is one of the legal ones; many pieces are undecided. */
Test(crash_image, samples_are_legal)
{
	uint64_t unit = 512;
	struct crash_sample s = {
		.history = &h,
		.images = 500,
		.seed = 7,
		.visit = remember,
		.arg = &unit,
	};

	for (unsigned int k = 0; k < 10; k++)
		put(CRASH_WRITE, 0, 2048, (char)('a' + k));
	flush(file, false);
	put(CRASH_WRITE, 512, 512, 'x');
	put(CRASH_WRITE, 512, 1024, 'y');
	cr_assert(!crash_history_make(&h, &l));
	cr_assert(!crash_sample_run(&s));
	cr_assert_geq(s.distinct, 100, "%u", (unsigned int)s.distinct);
	for (unsigned int k = 0; k < seen_count; k++) {
		const char *f = seen[k] + 2;

		cr_assert_eq(strlen(f), 5, "%s", f);
		if (strchr(f, 'x') || strchr(f, 'y'))
			cr_assert(f[0] == 'j' && f[3] == 'j' &&
					  (f[1] == 'j' || f[1] == 'x' ||
					   f[1] == 'y') &&
					  (f[2] == 'j' || f[2] == 'y'),
				  "%s", f);
	}
	cr_assert_gt(s.sampled_cuts, 0);
}

/* The images of a run that lose a part of the undecided pieces of their cut. */
struct kinds {
	uint64_t visits, partial, torn, last_torn, alternate_writes;
};

static bool lost_is(const struct crash_image *i, uint64_t mask, size_t from)
{
	for (size_t k = 0; k < 64 && from + k < h.piece_count; k++)
		if (crash_bit(i->lost, from + k) != (mask >> k & 1))
			return false;
	return true;
}

static bool count_kinds(void *arg, const struct crash_image *i)
{
	struct kinds *k = arg;
	size_t open = 0, lost = 0, first = SIZE_MAX;

	for (size_t n = 0; n < h.piece_count; n++)
		if (crash_undecided(&h, i->cut, n)) {
			first = first == SIZE_MAX ? n : first;
			open++;
			lost += crash_bit(i->lost, n);
		}
	k->visits++;
	k->partial += lost && lost < open;
	k->torn += open == 32 && lost == 16 && lost_is(i, 0xffff0000, first);
	k->last_torn += open == 32 && lost_is(i, 0xff000000, first);
	k->alternate_writes +=
		open == 32 && lost_is(i, UINT64_C(0xcccccccc), first);
	return true;
}

/* A callback that counts; every image is a new one to it. */
static struct crash_sample count_run(struct kinds *k, uint64_t images)
{
	struct crash_sample s = {
		.history = &h,
		.images = images,
		.seed = 1,
		.visit = count_kinds,
		.arg = k,
	};

	cr_assert(!crash_history_make(&h, &l));
	cr_assert(!crash_sample_run(&s));
	return s;
}

Test(crash_image, many_cuts_leave_a_share_to_torn_and_random_images)
{
	struct kinds k = {0};

	for (unsigned int n = 0; n < 300; n++) {
		for (unsigned int part = 0; part < 2; part++)
			put(CRASH_WRITE, part * 8192, 8192, 'a');
		flush(file, false);
		step(CRASH_ACK, CRASH_NONE);
	}
	count_run(&k, 200);
	cr_assert_eq(k.visits, 200, "%lu", (unsigned long)k.visits);
	cr_assert_geq(k.partial, 20, "%lu", (unsigned long)k.partial);
	cr_assert_gt(k.torn, 0);
	cr_assert_gt(k.last_torn, 0);
}

Test(crash_image, alternate_writes_are_lost_between_acknowledgements)
{
	struct kinds k = {0};

	for (unsigned int n = 0; n < 16; n++) {
		put(CRASH_WRITE, n * 1024, 1024, 'a');
		step(CRASH_ACK, CRASH_NONE);
	}
	count_run(&k, 1000);
	cr_assert_gt(k.alternate_writes, 0);
}

Test(crash_image, random_images_are_drawn_at_undecided_cuts)
{
	struct kinds k = {0};
	struct crash_sample s;

	for (unsigned int n = 0; n < 100; n++) {
		put(CRASH_WRITE, 0, 512, 'a');
		flush(file, false);
	}
	for (unsigned int n = 0; n < 4; n++)
		put(CRASH_WRITE, n * 8192, 8192, 'b');
	s = count_run(&k, 4000);
	cr_assert_eq(s.made, k.visits, "%lu made, %lu visited",
		     (unsigned long)s.made, (unsigned long)k.visits);
	cr_assert_eq(s.distinct, 4000, "%lu", (unsigned long)s.distinct);
}

/* The fifth image is a new one. */
static bool count_five(void *arg, const struct crash_image *i)
{
	uint64_t *visits = arg;

	(void)i;
	return ++*visits == 5;
}

/* It is the last one but that with zeros, and no more may be made. */
Test(crash_image, a_cut_without_its_zeros_is_not_one_of_all_images)
{
	uint64_t visits = 0;
	struct crash_sample s = {
		.history = &h,
		.images = 1,
		.visit = count_five,
		.arg = &visits,
	};

	put(CRASH_WRITE, 2048, 512, 'a');
	cr_assert(!crash_history_make(&h, &l));
	cr_assert(!crash_sample_run(&s));
	cr_assert_eq(visits, 5);
	cr_assert(s.sampled_cuts == 1 && !s.exhaustive_cuts);
}

/* One of twelve images is new. */
static bool count_few(void *arg, const struct crash_image *i)
{
	uint64_t *visits = arg;

	(void)i;
	return ++*visits % 12 == 0;
}

Test(crash_image, random_images_are_drawn_while_some_are_new)
{
	uint64_t visits = 0;
	struct crash_sample s = {
		.history = &h,
		.images = 500,
		.seed = 1,
		.visit = count_few,
		.arg = &visits,
	};

	for (unsigned int n = 0; n < 4; n++)
		put(CRASH_WRITE, n * 8192, 8192, 'b');
	cr_assert(!crash_history_make(&h, &l));
	cr_assert(!crash_sample_run(&s));
	cr_assert_eq(s.distinct, 500, "%lu", (unsigned long)s.distinct);
}
