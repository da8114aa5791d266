// SPDX-License-Identifier: BSD-2-Clause
/*
 * A client of a pool or a group of pools. It executes the lines of its input,
 * and prints for each its result and text.
 *
 * w OFFSET TEXT: write. d OFFSET TEXT: write durably. p OFFSET TEXT: the same,
 * awaited by poll(2) alone. c: commit. t OFFSET NUMBER: commit with an ordered
 * store of the number. r OFFSET LENGTH: read. q: query: current members,
 * members, reconnections, length and method. m INDEX: state of a member.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_pool.h>

static int then_store(struct rpmem_pool *pool, uint64_t offset, uint64_t value)
{
	const struct rpmem_pool_then then = {offset, value};
	struct rpmem_pool_op op = {.type = RPMEM_POOL_COMMIT, .then = &then};
	struct rpmem_pool_op *done;
	int ret = rpmem_pool_submit(pool, &op);

	while (!ret && rpmem_pool_poll(pool, &done, 1, -1) == 0)
		;
	return ret ? ret : op.result;
}

/* Without an end: a descriptor that does not report the write hangs here. */
static int write_by_poll(struct rpmem_pool *pool, const char *text,
			 uint64_t offset)
{
	struct rpmem_pool_op op = {.type = RPMEM_POOL_WRITE,
				   .flags = RPMEM_POOL_DURABLE,
				   .buf = (void *)(uintptr_t)text,
				   .len = strlen(text),
				   .offset = offset};
	struct rpmem_pool_op *done;
	struct pollfd fd = {.events = POLLIN};
	int ms = 1000, ret = rpmem_pool_trywait(pool, &fd.fd, &ms);

	if (ret < 0 || ms > 100) /* a group, or a program that waits too long */
		return ret;
	ret = rpmem_pool_submit(pool, &op);
	while (!ret && rpmem_pool_poll(pool, &done, 1, 0) == 0) {
		ms = 1000;
		if (rpmem_pool_trywait(pool, &fd.fd, &ms) == 1)
			poll(&fd, 1, ms < 100 ? ms : -1);
	}
	return ret ? ret : op.result;
}

static int run(struct rpmem_pool *pool, const char *line, char *out,
	       size_t size)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_member member = {.size = sizeof(member)};
	unsigned long long offset = 0, value = 0;
	int at = 0, ret;

	snprintf(out, size, "ok");
	sscanf(line + 1, "%llu %n%llu", &offset, &at, &value);
	switch (*line) {
	case 'w':
	case 'd':
		return rpmem_pool_write(pool, line + 1 + at,
					strlen(line + 1 + at), offset,
					*line == 'd' ? RPMEM_POOL_DURABLE : 0);
	case 'p':
		return write_by_poll(pool, line + 1 + at, offset);
	case 'c':
		return rpmem_pool_commit(pool);
	case 't':
		return then_store(pool, offset, value);
	case 'r':
		ret = rpmem_pool_read(pool, out,
				      value < size ? value : size - 1, offset);
		out[value < size ? value : size - 1] = 0;
		for (size_t i = 0; !ret && i < value && i < size - 1; i++)
			if (out[i] < ' ')
				out[i] = '.';
		return ret;
	case 'q':
		ret = rpmem_pool_query(pool, &info);
		snprintf(out, size, "%u of %u, reopened %llu, %llu bytes, %s",
			 info.current, info.members,
			 (unsigned long long)info.reconnects,
			 (unsigned long long)info.length, info.method);
		return ret;
	case 'm':
		ret = rpmem_pool_member(pool, (unsigned int)offset, &member);
		snprintf(out, size, "%s state %d, %llu left, %s", member.where,
			 (int)member.state, (unsigned long long)member.left,
			 member.error ? member.error : "no error");
		return ret;
	default:
		fprintf(stderr, "unknown line: %s\n", line);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.required = RPMEM_POOL_NONE,
		.timeout = 30,
	};
	struct rpmem_pool *pool;
	char line[1024], out[1024];
	int ret;

	if (argc < 3) {
		fprintf(stderr, "usage: group_client PLACE take|share|observe "
				"[TIMEOUT]\n");
		return 2;
	}
	if (argc > 3)
		attr.timeout = (unsigned int)strtoul(argv[3], NULL, 10);
	if (!strcmp(argv[2], "take"))
		attr.exclusive = RPMEM_POOL_TAKE;
	if (!strcmp(argv[2], "observe"))
		attr.exclusive = RPMEM_POOL_OBSERVE;
	ret = rpmem_pool_open(&pool, argv[1], &attr);
	printf("%d %s\n", ret, ret ? rpmem_pool_error() : "open");
	fflush(stdout);
	if (ret)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		ret = run(pool, line, out, sizeof(out));
		printf("%d %s\n", ret, ret ? rpmem_pool_error() : out);
		fflush(stdout);
	}
	rpmem_pool_close(pool);
	return 0;
}
