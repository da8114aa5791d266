// SPDX-License-Identifier: BSD-2-Clause
/*
 * Restores the directory of Redis's append-only files from invented entries,
 * and changes the directory.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "unit/never_called.h"
#include "util/bytes.h"
#include "util/redis/mirror.h"

/* --- the log and libc */

static struct entry {
	unsigned char bytes[128];
	size_t len;
} entries[8];
static uint64_t nentries;

int rpmem_log_read(struct rpmem_log *log, uint64_t *lsn, void *buf, size_t size,
		   size_t *len, unsigned int flags)
{
	const struct entry *e = &entries[*lsn];

	memcpy(buf, e->bytes, e->len);
	*len = e->len;
	++*lsn;
	return 1;
}

int rp_libc_rename(const char *from, const char *to)
{
	return rename(from, to);
}

/* Change and the bytes of the last appended entry. */
static struct entry appended;
static unsigned int nappended;

int rpmem_log_append(struct rpmem_log *log, const void *buf, size_t len,
		     uint64_t *lsn)
{
	cr_assert_leq(len, sizeof(appended.bytes));
	memcpy(appended.bytes, buf, len);
	appended.len = len;
	nappended++;
	if (lsn)
		*lsn = nappended;
	return 0;
}

/* A file that Redis removes during the next call of rpmem_log_query(). */
static const char *removed_meanwhile;

int rpmem_log_query(struct rpmem_log *log, struct rpmem_log_info *info)
{
	const char *path = removed_meanwhile;

	removed_meanwhile = NULL;
	if (path) {
		cr_assert_eq(unlink(path), 0);
		cr_assert_eq(rp_mirror_unlink(path), 0);
	}
	info->head = info->tail = 0;
	info->capacity = 65536;
	info->max_entry = 65536;
	return 0;
}

int rpmem_log_trim(struct rpmem_log *log, uint64_t lsn)
{
	return 0;
}

/* No test opens or creates a log. */
NEVER_CALLED(int rp_libc_unlink(const char *path))
NEVER_CALLED(int rpmem_log_open(struct rpmem_log **log, const char *where,
				const struct rpmem_log_attr *attr))
NEVER_CALLED(void rpmem_log_close(struct rpmem_log *log))
NEVER_CALLED(int rpmem_log_create(const char *where,
				  const struct rpmem_log_attr *attr))

/* --- tests */

static void add_of(uint64_t id, enum change change, const char *name,
		   const char *rest)
{
	struct entry *e = &entries[nentries++];
	const size_t n = strlen(name), more = strlen(rest);

	memset(e, 0, sizeof(*e));
	e->bytes[AT_CHANGE] = (unsigned char)change;
	e->bytes[AT_NAMELEN] = (unsigned char)n;
	rp_put64(e->bytes + AT_ID, id);
	memcpy(e->bytes + CHANGE_HEADER, name, n);
	memcpy(e->bytes + CHANGE_HEADER + n, rest, more);
	e->len = CHANGE_HEADER + n + more;
}

static void add(enum change change, const char *name, const char *rest)
{
	add_of(7, change, name, rest);
}

static int restore(void)
{
	const struct rpmem_log_info info = {
		.size = sizeof(info),
		.tail = nentries,
		.max_entry = sizeof(entries[0].bytes),
	};

	return rp_mirror_restore(&info);
}

static char top[] = "/tmp/test_redis_restore.XXXXXX";

static void begin(void)
{
	nentries = 0;
	cr_assert_not_null(mkdtemp(top));
	snprintf(rp_mirror_directory, sizeof(rp_mirror_directory), "%s/aof",
		 top);
	add_of(8, CHANGE_BYTES, "x.manifest", "names");
	add(CHANGE_BYTES, "a", "bytes");
}

/* A path below the folder of the test. */
static const char *below(const char *path)
{
	static char full[2][256];
	static unsigned int i;

	i ^= 1;
	snprintf(full[i], sizeof(full[i]), "%s/%s", top, path);
	return full[i];
}

/* Whether the file exists, below the folder of the test. */
static bool exists(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", top, path);
	return !access(full, F_OK);
}

static void end(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", top);
	cr_assert_eq(system(command), 0); // NOLINT(cert-env33-c)
}

Test(redis_restore, file_has_its_new_name)
{
	begin();
	add(CHANGE_RENAME, "a", "b");
	cr_assert_eq(restore(), 1);
	cr_assert(exists("aof/b") && !exists("aof/a"));
	end();
}

/* A log of a hostile target must not reach out of the directory. */
Test(redis_restore, name_outside_the_directory_is_refused)
{
	static const char *const names[] = {"../x", "b/x", ".x", ""};

	begin();
	for (unsigned int i = 0; i < 4; i++) {
		nentries = 2;
		add(CHANGE_RENAME, "a", names[i]);
		cr_assert_eq(restore(), -EBADMSG, "'%s'", names[i]);
		cr_assert(!exists("x"));
	}
	end();
}

Test(redis_restore, file_that_is_renamed_to_its_name_stays)
{
	begin();
	add(CHANGE_RENAME, "a", "a");
	cr_assert_eq(restore(), 1);
	cr_assert(exists("aof/a"));
	end();
}

/* The upload of the folder into the log was interrupted. */
Test(redis_restore, folder_stays_when_the_log_has_no_manifest)
{
	begin();
	cr_assert_eq(mkdir(below("aof"), 0700), 0);
	nentries = 0;
	add(CHANGE_BYTES, "a", "bytes");
	cr_assert_eq(restore(), 0);
	cr_assert(exists("aof") && !exists("aof.old") && !exists("aof.new"));
	/* An empty manifest is one whose bytes are missing. */
	add_of(8, CHANGE_BYTES, "x.manifest", "");
	cr_assert_eq(restore(), 0);
	cr_assert(!exists("aof.old"));
	end();
}

static void restore_one(void)
{
	begin();
	cr_assert_eq(restore(), 1);
	cr_assert_not_null(rp_file_find("a"));
}

Test(redis_folder, file_renamed_onto_itself_stays_in_the_log)
{
	restore_one();
	cr_assert_eq(rp_mirror_rename(below("aof/a"), below("aof/a")), 0);
	cr_assert_not_null(rp_file_find("a"), "its entries would be trimmed");
	cr_assert_eq(nappended, 0);
	cr_assert(exists("aof/a"));
	end();
}

Test(redis_folder, file_that_replaces_one_of_its_name_is_appended)
{
	struct file *f;
	FILE *other;

	restore_one();
	cr_assert_not(mkdir(below("other"), 0755));
	other = fopen(below("other/a"), "w");
	cr_assert_not_null(other);
	fputs("new bytes", other);
	fclose(other);
	cr_assert_eq(rp_mirror_rename(below("other/a"), below("aof/a")), 0);
	cr_assert_eq(nappended, 2, "its bytes, and its name");
	cr_assert_eq(appended.bytes[AT_CHANGE], CHANGE_RENAME);
	f = rp_file_find("a");
	cr_assert(f && f->size == strlen("new bytes"));
	end();
}

Test(redis_folder, removal_of_a_file_of_another_directory_changes_nothing)
{
	restore_one();
	cr_assert_eq(rp_mirror_unlink(below("other/a")), 0);
	cr_assert_not_null(rp_file_find("a"));
	cr_assert_eq(nappended, 0);
	end();
}

/* Behind CONFIG SET dir the log would miss what Redis acknowledges. */
Test(redis_folder, file_in_another_directory_of_the_name_is_refused)
{
	int fd, other;

	begin();
	strcpy(rp_mirror_directory, "aof");
	rp_mirror_log = (struct rpmem_log *)1; /* no call uses it */
	cr_assert_eq(mkdir(below("aof"), 0700), 0);
	fd = open(below("aof/x"), O_CREAT | O_RDWR, 0600);
	other = open(below("y"), O_CREAT | O_RDWR, 0600);
	cr_assert(fd >= 0 && other >= 0);
	cr_assert_eq(rp_mirror_sync(fd), -EIO);
	cr_assert_eq(rp_mirror_sync(other), -ENOENT, "not a file of the AOF");
	close(fd);
	close(other);
	end();
}

/* /proc has no path for a file in so deep a folder. */
Test(redis_folder, file_of_unknown_path_is_refused)
{
	char name[200];
	int fd;

	begin();
	rp_mirror_log = (struct rpmem_log *)1; /* no call uses it */
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	cr_assert_eq(chdir(top), 0);
	for (int i = 0; i < 21; i++) {
		cr_assert_eq(mkdir(name, 0700), 0);
		cr_assert_eq(chdir(name), 0);
	}
	fd = open("x", O_CREAT | O_RDWR, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(rp_mirror_sync(fd), -EIO);
	close(fd);
	cr_assert_eq(chdir("/"), 0);
	end();
}

/* The result of rp_mirror_sync() for a file that was removed. */
static int sync_removed(const char *name)
{
	const int fd = open(below(name), O_CREAT | O_RDWR, 0600);
	int ret;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "x", 1), 1);
	cr_assert_eq(unlink(below(name)), 0);
	ret = rp_mirror_sync(fd);
	close(fd);
	return ret;
}

/*
 * Redis removes the temporary file of a failed rewrite, and syncs it later.
 * No rename or removal would end it in the log.
 */
Test(redis_folder, removed_file_gets_no_entries)
{
	restore_one();
	rp_mirror_log = (struct rpmem_log *)1; /* no call uses it */
	cr_assert_eq(sync_removed("aof/temp-x.incr"), -ENOENT);
	cr_assert_eq(sync_removed("aof/x.incr"), -EIO, "its bytes are lost");
	cr_assert_eq(nappended, 0);
	end();
}

/* The thread that closes the former file may come behind its removal. */
Test(redis_folder, late_sync_of_a_file_that_redis_removed_succeeds)
{
	int fd;

	restore_one();
	rp_mirror_log = (struct rpmem_log *)1;
	fd = open(below("aof/y.incr"), O_CREAT | O_RDWR, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "x", 1), 1);
	cr_assert_eq(rp_mirror_sync(fd), 0);
	cr_assert_eq(rp_mirror_unlink(below("aof/y.incr")), 0);
	cr_assert_eq(unlink(below("aof/y.incr")), 0);
	cr_assert_eq(rp_mirror_sync(fd), -ENOENT, "libc syncs it");
	close(fd);
	end();
}

static void write_file(const char *name)
{
	FILE *f = fopen(name, "w");

	cr_assert_not_null(f);
	fputs("bytes", f);
	cr_assert_eq(fclose(f), 0);
}

/* Redis kills the child of a rewrite, whose file is being uploaded. */
Test(redis_folder, upload_of_a_removed_file_fails)
{
	static const char name[] = TEMP_PREFIX "rewriteaof-bg-1.aof";
	char path[64];
	int fd;

	restore_one();
	cr_assert_eq(chdir(top), 0);
	write_file(name);
	removed_meanwhile = name;
	cr_assert_eq(rp_mirror_upload(name, name), -ECANCELED);
	cr_assert_null(rp_file_find(name), "its entries would stay for ever");
	/* The removal comes before the upload has a struct file. */
	write_file(name);
	fd = open(name, O_RDONLY);
	cr_assert_eq(unlink(name), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	nappended = 0;
	cr_assert_eq(rp_mirror_upload(path, name), -ECANCELED);
	cr_assert_null(rp_file_find(name));
	cr_assert_eq(nappended, 0);
	close(fd);
	cr_assert_eq(chdir("/"), 0);
	end();
}

/* A name without a folder is that of a rewrite's file only. */
Test(redis_folder, file_of_the_log_by_its_bare_name_is_another_one)
{
	restore_one();
	rp_mirror_unlink("a");
	cr_assert_not_null(rp_file_find("a"));
	cr_assert_eq(nappended, 0);
	end();
}
