// SPDX-License-Identifier: BSD-2-Clause
/*
 * A writer of a log in a pool, run by fi_rpmem_crashtest: "make" creates the
 * log, "append" appends the numbers from 1 on and acknowledges each in the
 * ledger, "check" checks a recovered log.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem_log.h"

#define WORDS 12 /* of an entry, each with the entry's number */

static struct rpmem_log *log;

static int fail(const char *what)
{
	printf("%s: %s\n", what, rpmem_log_error());
	return 9;
}

static int append(void)
{
	const char *rounds = getenv("CRASH_ROUNDS");
	const uint64_t last = rounds ? (uint64_t)atoi(rounds) : 5;
	FILE *ledger = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "a");
	uint64_t entry[WORDS];

	for (uint64_t n = 1; ledger && n <= last; n++) {
		for (size_t i = 0; i < WORDS; i++)
			entry[i] = n;
		if (rpmem_log_append(log, entry, sizeof(entry), NULL))
			return fail("append");
		fprintf(ledger, "%u\n", (unsigned int)n);
		if (fflush(ledger))
			return 8;
	}
	return ledger && !fclose(ledger) ? 0 : 8;
}

/*
 * Check that the entries are 1, 2 and so on, and that none is missing up to the
 * last acknowledged one.
 */
static int check(void)
{
	FILE *ledger = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "r");
	uint64_t lsn = RPMEM_LOG_HEAD, entry[WORDS], found = 0;
	unsigned int last = 0;
	size_t len;
	int ret;

	while (ledger && fscanf(ledger, "%u", &last) == 1)
		;
	if (!ledger || fclose(ledger))
		return 8;
	while ((ret = rpmem_log_read(log, &lsn, entry, sizeof(entry), &len,
				     0)) > 0) {
		found++;
		for (size_t i = 0; i < WORDS; i++)
			if (len != sizeof(entry) || entry[i] != found) {
				printf("entry %u is wrong\n",
				       (unsigned int)found);
				return 7;
			}
	}
	printf("%u acknowledged, %u found\n", last, (unsigned int)found);
	return ret ? fail("read") : found < last;
}

int main(int argc, char **argv)
{
	const struct rpmem_log_attr attr = {
		.size = sizeof(attr),
		.layout = RPMEM_LOG_TAIL,
	};
	const char *verb = argc > 1 ? argv[1] : "";
	const char *where = getenv("RPMEM_CRASHTEST_POOL");
	int ret;

	if (!strcmp(verb, "make"))
		return rpmem_log_create(where, &attr) ? fail("create") : 0;
	if (rpmem_log_open(&log, where, NULL))
		return fail("open");
	ret = strcmp(verb, "check") ? append() : check();
	rpmem_log_close(log);
	return ret;
}
