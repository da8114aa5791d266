// SPDX-License-Identifier: BSD-2-Clause
/* Find the counter pages of processes, and copy them. */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/session.h"
#include "util/stats.h"
#include "util/text.h"

#define LINK "/memfd:" RP_STATS_FILE

static void words_copy(void *to, const void *from, size_t len)
{
	for (size_t i = 0; i < len / sizeof(uint64_t); i++)
		((uint64_t *)to)[i] = __atomic_load_n(
			(const uint64_t *)from + i, __ATOMIC_RELAXED);
}

/* Copy the named regions, which come first, and the last, of all others. */
static void regions_copy(struct rp_stats_region *to,
			 const struct rp_stats_region *from)
{
	bool unused = false;

	for (int i = 0; i < RP_STATS_REGIONS; i++) {
		to[i].name[0] = 0;
		if (unused && i < RP_STATS_REGIONS - 1)
			continue;
		words_copy(&to[i], &from[i], sizeof(*to));
		unused = !to[i].name[0];
	}
}

/*
 * Copy a page. Its process may be hostile: read only a file that cannot be
 * truncated, and terminate all strings.
 */
static bool page_copy(int fd, struct rp_stats *to)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	void *p;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) ||
	    lseek(fd, 0, SEEK_END) < (off_t)sizeof(*to))
		return false;
	p = mmap(NULL, sizeof(*to), PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	words_copy(to, p, offsetof(struct rp_stats, region));
	regions_copy(to->region, ((const struct rp_stats *)p)->region);
	munmap(p, sizeof(*to));
	if (to->magic != RP_STATS_MAGIC || to->version != RP_STATS_VERSION ||
	    to->size != sizeof(*to) || !(to->ns_per_tick >= 0.125) ||
	    !(to->ns_per_tick <= 2))
		return false;
	for (int i = 0; i < RP_STATS_REGIONS; i++) {
		struct rp_stats_region *r = &to->region[i];

		r->name[sizeof(r->name) - 1] = 0;
		rp_text_clean(r->name, '?');
		if (r->class > RP_CLASS_POWER)
			r->class = RP_CLASS_NONE;
		if (r->method >= RP_METHOD_MAX)
			r->method = RP_METHOD_REFUSED;
	}
	return true;
}

static void command_read(struct rp_stats_copy *c)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)c->pid);
	f = fopen(path, "re");
	if (!f || !fgets(c->command, sizeof(c->command), f))
		c->command[0] = 0;
	if (f)
		fclose(f);
	c->command[strcspn(c->command, "\n")] = 0;
	rp_text_clean(c->command, '?');
}

/*
 * Whether a descriptor is a page of counters; -EACCES: it cannot be read. This
 * user may list, but not read, the descriptors of a process with another group.
 */
static int is_page(int dir, const char *name)
{
	char to[sizeof(LINK)];
	const ssize_t n = readlinkat(dir, name, to, sizeof(to));

	if (n < 0 && errno == EACCES)
		return -EACCES;
	return n >= (ssize_t)sizeof(LINK) - 1 &&
	       !memcmp(to, LINK, sizeof(LINK) - 1);
}

static int process_read(pid_t pid,
			void (*take)(void *arg, struct rp_stats_copy *c),
			void *arg)
{
	struct rp_stats_copy *c = malloc(sizeof(*c));
	struct dirent *e;
	char path[64];
	int fd, ret = 0, n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = c ? opendir(path) : NULL;
	if (!d) {
		n = c ? -errno : -ENOMEM;
		free(c);
		return n;
	}
	while (ret >= 0 && (e = readdir(d))) {
		ret = is_page(dirfd(d), e->d_name);
		if (ret <= 0)
			continue;
		/* O_NONBLOCK, O_NOCTTY: it may be another file by now. */
		fd = openat(dirfd(d), e->d_name,
			    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			continue;
		c->pid = pid;
		c->nth = (unsigned int)n;
		if (page_copy(fd, &c->page)) {
			command_read(c);
			take(arg, c);
			n++;
		}
		close(fd);
	}
	closedir(d);
	free(c);
	return ret < 0 ? ret : n;
}

int rp_stats_each(pid_t pid, void (*take)(void *arg, struct rp_stats_copy *c),
		  void *arg)
{
	struct dirent *e;
	int ret, n = 0;
	DIR *d;

	if (pid)
		return process_read(pid, take, arg);
	d = opendir("/proc");
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		ret = process_read((pid_t)atoi(e->d_name), take, arg);
		n += ret > 0 ? ret : 0;
	}
	closedir(d);
	return n;
}

uint64_t rp_histogram_count(const struct rp_stats_histogram *h)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < RP_STATS_BUCKETS; i++)
		sum += h->count[i];
	return sum;
}

double rp_histogram_quantile(const struct rp_stats_histogram *h, double part)
{
	const uint64_t all = rp_histogram_count(h);
	const double due = part * (double)all;
	uint64_t sum = 0;
	size_t i = 0;

	/* JSON has no infinity: the last bucket counts as the one before. */
	for (; i < RP_STATS_BUCKETS - 2; i++) {
		sum += h->count[i];
		if (sum && (double)sum >= due)
			break;
	}
	return all ? rp_bucket_end(i) : 0;
}

double rp_stats_seconds(const struct rp_stats *s, uint64_t ticks)
{
	return (double)ticks * s->ns_per_tick / 1e9;
}

uint64_t rp_stats_outstanding(const struct rp_stats *s)
{
	uint64_t ended = 0;

	for (int i = 0; i < RP_STATS_KINDS; i++)
		ended += s->completed[i];
	for (int i = 0; i < RP_STATS_STATUSES; i++)
		ended += s->errors[i];
	/* A completion may be counted during the copy. */
	return s->started > ended ? s->started - ended : 0;
}
