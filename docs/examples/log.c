// SPDX-License-Identifier: BSD-2-Clause
/*
 * Appends a line to a log on another machine, and prints all entries:
 *
 *   cc -o log log.c -lrpmem_log
 *   ./log HOST:PORT:POOL "a line"
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rpmem_log.h>

int main(int argc, char **argv)
{
	const char *where = argc > 1 ? argv[1] : "localhost:pool";
	const char *line = argc > 2 ? argv[2] : "durable";
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log *log = NULL;
	char buf[4096];
	size_t len;
	int ret;

	ret = rpmem_log_create(where, NULL);
	if (!ret || ret == -EEXIST)
		ret = rpmem_log_open(&log, where, NULL);
	if (!ret)
		ret = rpmem_log_append(log, line, strlen(line), NULL);
	while (ret >= 0 &&
	       (ret = rpmem_log_read(log, &lsn, buf, sizeof(buf), &len, 0)) > 0)
		printf("%.*s\n", (int)len, buf);
	if (ret < 0)
		fprintf(stderr, "log: %s\n", rpmem_log_error());
	rpmem_log_close(log);
	return ret < 0;
}
