// SPDX-License-Identifier: BSD-2-Clause
/* The ledger of fi_rpmem_plugpull, and its judge on invented pools. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/plugpull.h"

#define AREA 131072
#define LEN  4000
#define AT   500

static const struct pull_cfg cfg = {.seed = 5, .area = AREA};
static unsigned char got[AREA];
static uint64_t count[PULL_COUNTS];
static char *text;
static unsigned int durable; /* calls of fdatasync() */

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	durable++;
	return fsync(fd);
}

static void setup(void)
{
	memset(got, 0, sizeof(got));
	memset(count, 0, sizeof(count));
	durable = 0;
}

static void teardown(void)
{
	free(text);
}

TestSuite(plugpull, .init = setup, .fini = teardown);

static struct pull_record record(uint64_t seq, bool acked)
{
	return (struct pull_record){
		.seq = seq,
		.offset = AT,
		.len = LEN,
		.acked = acked,
		.begin = 2 * seq + 1,
		.end = acked ? 2 * seq + 2 : UINT64_MAX,
	};
}

/* Let the pool have the first bytes of a record. */
static void store(const struct pull_record *r, size_t len)
{
	pull_fill(cfg.seed, r, 0, got + r->offset, len);
}

/* Bytes of the pool that a record would change. */
static uint64_t differing(const struct pull_record *r)
{
	unsigned char bytes[LEN];
	uint64_t n = 0;

	pull_fill(cfg.seed, r, 0, bytes, LEN);
	for (size_t i = 0; i < LEN; i++)
		n += bytes[i] != got[AT + i];
	return n;
}

/* Judge the pool; the records stay as they are. */
static void judge_pool(const struct pull_record *records, size_t n)
{
	struct pull_record v[4];
	size_t len;
	FILE *f;

	memcpy(v, records, n * sizeof(*v));
	memset(count, 0, sizeof(count));
	free(text);
	f = open_memstream(&text, &len);
	cr_assert_not_null(f);
	cr_assert_eq(pull_judge(&cfg, v, n, got, f, count), 0);
	fclose(f);
}

Test(plugpull, acknowledged_record_is_found_or_lost)
{
	const struct pull_record r = record(0, true);

	store(&r, LEN);
	judge_pool(&r, 1);
	cr_assert_eq(count[PULL_RECORDS], 1);
	cr_assert_eq(count[PULL_BYTES], LEN);
	cr_assert_eq(count[PULL_LOST], 0);
	memset(got + AT, 0, LEN);
	judge_pool(&r, 1);
	cr_assert_eq(count[PULL_LOST], differing(&r));
	cr_assert(strstr(text, "offset 500: record 0 is lost there"), "%s",
		  text);
	store(&r, LEN);
	got[AT + 7] ^= 1;
	judge_pool(&r, 1);
	cr_assert_eq(count[PULL_LOST], 1);
	cr_assert(strstr(text, "offset 507: "), "%s", text);
}

Test(plugpull, acknowledged_record_replaces_the_earlier_one)
{
	const struct pull_record v[] = {record(0, true), record(1, true)};

	store(&v[1], LEN);
	judge_pool(v, 2);
	cr_assert_eq(count[PULL_LOST], 0);
	store(&v[0], LEN);
	judge_pool(v, 2);
	cr_assert_eq(count[PULL_LOST], differing(&v[1]));
	cr_assert(strstr(text, "that of record 0"), "%s", text);
}

/* Without an acknowledgement either value may be there, and no third one. */
Test(plugpull, record_in_flight_is_new_old_or_torn)
{
	const struct pull_record v[] = {record(0, true), record(1, false)};

	store(&v[0], LEN);
	judge_pool(v, 2);
	cr_assert_eq(count[PULL_OPEN], 1);
	cr_assert_eq(count[PULL_OLD], 1);
	store(&v[1], LEN / 2);
	judge_pool(v, 2);
	cr_assert_eq(count[PULL_TORN], 1);
	store(&v[1], LEN);
	judge_pool(v, 2);
	cr_assert_eq(count[PULL_NEW], 1);
	cr_assert_eq(count[PULL_LOST], 0);
	memset(got + AT, 0, LEN);
	judge_pool(v, 2);
	cr_assert_gt(count[PULL_LOST], LEN / 2);
}

Test(plugpull, byte_of_no_record_is_foreign)
{
	const struct pull_record r = record(0, true);

	store(&r, LEN);
	got[AREA - 1] = 1;
	judge_pool(&r, 1);
	cr_assert_eq(count[PULL_FOREIGN], 1);
	cr_assert_eq(count[PULL_LOST], 0);
}

/* A ledger of two records; the last line is not complete. */
static void ledger_write(const char *path, const char *last)
{
	const struct pull_record v[] = {record(0, false), record(1, false)};
	char err[RP_ERR_LEN];
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(pull_ledger_start(fd, &cfg, 9, err), 0, "%s", err);
	durable = 0;
	cr_assert_eq(pull_ledger_begin(fd, v, 2, err), 0, "%s", err);
	cr_assert_eq(durable, 1, "records were sent before their lines");
	cr_assert_eq(pull_ledger_ack(fd, v, 1, err), 0, "%s", err);
	cr_assert_eq(write(fd, last, strlen(last)), (ssize_t)strlen(last));
	close(fd);
}

Test(plugpull, ledger_has_what_was_acknowledged)
{
	char path[] = "/tmp/test_plugpull.XXXXXX", err[RP_ERR_LEN];
	struct pull_record *v;
	struct pull_cfg is;
	uint64_t incarnation;
	size_t n;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	ledger_write(path, "A 1");
	cr_assert_eq(pull_ledger_load(path, &is, &incarnation, &v, &n, err), 0,
		     "%s", err);
	unlink(path);
	cr_assert_eq(is.seed, cfg.seed);
	cr_assert_eq(is.area, AREA);
	cr_assert_eq(incarnation, 9);
	cr_assert_eq(n, 2);
	cr_assert(v[0].acked && v[0].offset == AT && v[0].len == LEN);
	cr_assert_eq(v[0].begin, 1);
	cr_assert_eq(v[0].end, 3);
	cr_assert_not(v[1].acked, "an incomplete line counts");
	cr_assert_eq(v[1].end, UINT64_MAX);
	free(v);
}

/* Acknowledgements behind a damaged line must not be left out in silence. */
Test(plugpull, ledger_with_a_damaged_line_is_refused)
{
	char path[] = "/tmp/test_plugpull.XXXXXX", err[RP_ERR_LEN] = "";
	struct pull_record *v;
	struct pull_cfg is;
	uint64_t incarnation;
	size_t n;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	ledger_write(path, "A x\nA 1\n");
	cr_assert_eq(pull_ledger_load(path, &is, &incarnation, &v, &n, err),
		     -EINVAL);
	cr_assert(strstr(err, "line 5 of ledger"), "%s", err);
	unlink(path);
	free(v);
}

/* fi_rpmem_plugpull maps memory for the whole area. */
Test(plugpull, ledger_with_an_impossible_area_is_refused)
{
	static const char *const areas[] = {"18446744073709551615",
					    "2147483648", "65537", "8192"};
	char path[] = "/tmp/test_plugpull.XXXXXX", err[RP_ERR_LEN] = "";
	struct pull_record *v;
	struct pull_cfg is;
	uint64_t incarnation;
	size_t n;
	FILE *f;

	close(mkstemp(path));
	for (unsigned int i = 0; i < 4; i++) {
		f = fopen(path, "w");
		cr_assert_not_null(f);
		fprintf(f,
			"plugpull 1 seed 5 area %s class 0 control 0 "
			"incarnation 9\n",
			areas[i]);
		fclose(f);
		cr_assert_eq(
			pull_ledger_load(path, &is, &incarnation, &v, &n, err),
			-ERANGE, "%s", areas[i]);
		cr_assert(strstr(err, "line 1 of ledger") &&
				  strstr(err, areas[i]),
			  "%s", err);
	}
	unlink(path);
}
