// SPDX-License-Identifier: BSD-2-Clause
/* Read the sources of facts, record what was read, compare it later. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/caps_priv.h"
#include "core/hash.h"
#include "core/watch.h"

struct rp_watch {
	enum rp_source kind;
	uint64_t arg;
	char *text;
	UT_hash_handle hh;
	char key[]; /* "kind:arg path" */
};

/* The thread's list of recorded sources; did it lack memory or descriptors? */
static __thread struct rp_watch **record_to;
static __thread bool starved;

void rp_watch_open_failed(int err)
{
	starved |= err == EMFILE || err == ENFILE || err == ENOMEM;
}

bool rp_watch_starved(void)
{
	const bool was = starved;

	starved = false;
	return was;
}

static FILE *open_file(const char *path)
{
	/* O_NONBLOCK: a pipe or terminal must not block the open. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f)
		rp_watch_open_failed(errno);
	if (!f && fd >= 0)
		close(fd);
	return f;
}

void rp_watch_glob(const char *pattern, glob_t *g)
{
	*g = (glob_t){0};
	errno = 0;
	if (glob(pattern, 0, NULL, g))
		rp_watch_open_failed(errno);
}

static char *find_line(FILE *f, const uint64_t *mount)
{
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	while (f && !found && getline(&line, &size, f) > 0)
		found = !mount || strtoull(line, NULL, 10) == *mount;
	if (f && !found && !feof(f))
		rp_watch_open_failed(errno);
	if (f)
		fclose(f);
	if (found) {
		line[strcspn(line, "\n")] = '\0';
		return line;
	}
	free(line);
	return strdup("");
}

static char *read_line(const char *pattern)
{
	char *text;
	glob_t g;

	rp_watch_glob(pattern, &g);
	text = find_line(g.gl_pathc ? open_file(g.gl_pathv[0]) : NULL, NULL);
	globfree(&g);
	return text;
}

static char *read_names(const char *pattern)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	glob_t g;

	rp_watch_glob(pattern, &g);
	for (size_t i = 0; f && i < g.gl_pathc; i++)
		fprintf(f, "%s\n", g.gl_pathv[i]);
	globfree(&g);
	if (f)
		fclose(f);
	return text;
}

static char *read_bytes(FILE *f, uint64_t off)
{
	char text[17] = "";
	uint64_t v;

	if (f && pread(fileno(f), &v, sizeof(v), (off_t)off) == sizeof(v))
		snprintf(text, sizeof(text), "%016llx", (unsigned long long)v);
	if (f)
		fclose(f);
	return strdup(text);
}

/* Owner, mode and content up to a NUL; readers refuse a file with a NUL. */
static char *read_file(FILE *f)
{
	char *text = NULL, *out = NULL;
	struct stat st;
	size_t size = 0;

	errno = 0;
	if (f && !fstat(fileno(f), &st) && S_ISREG(st.st_mode) &&
	    (getdelim(&text, &size, '\0', f) >= 0 || feof(f)) &&
	    asprintf(&out, "%o %u\n%s", st.st_mode, st.st_uid,
		     st.st_size && text ? text : "") < 0)
		out = NULL;
	if (!out)
		rp_watch_open_failed(errno);
	free(text);
	if (f)
		fclose(f);
	return out ? out : strdup("");
}

static char *source_read(enum rp_source kind, const char *path, uint64_t arg)
{
	switch (kind) {
	case RP_SOURCE_LINE:
		return read_line(path);
	case RP_SOURCE_MOUNT:
		return find_line(open_file(path), &arg);
	case RP_SOURCE_NAMES:
		return read_names(path);
	case RP_SOURCE_BYTES:
		return read_bytes(open_file(path), arg);
	case RP_SOURCE_FILE:
		break;
	}
	return read_file(open_file(path));
}

/* Add the entry, or free it if there is one of the same source. */
static void watch_add(struct rp_watch **w, struct rp_watch *e)
{
	struct rp_watch *old;
	bool oom = false;

	HASH_FIND(hh, *w, e->key, strlen(e->key), old);
	if (!old)
		HASH_ADD_KEYPTR(hh, *w, e->key, strlen(e->key), e);
	/* Make rp_watch_end() report that this source is not watched. */
	if (oom)
		rp_watch_open_failed(ENOMEM);
	/* Keep the older entry: the facts were derived from its text. */
	if (!old && !oom)
		return;
	free(e->text);
	free(e);
}

char *rp_watch_read(enum rp_source kind, const char *path, uint64_t arg)
{
	char *text = source_read(kind, path, arg);
	size_t size = strlen(path) + 32;
	struct rp_watch *e;

	starved |= !text;
	if (!text || !record_to)
		return text;
	e = calloc(1, sizeof(*e) + size);
	if (e)
		e->text = strdup(text);
	if (!e || !e->text) {
		rp_watch_open_failed(ENOMEM);
		free(e);
		return text;
	}
	e->kind = kind;
	e->arg = arg;
	snprintf(e->key, size, "%d:%llx %s", (int)kind, (unsigned long long)arg,
		 path);
	watch_add(record_to, e);
	return text;
}

void rp_watch_record(struct rp_watch **w)
{
	record_to = w;
	if (w)
		starved = false;
}

int rp_watch_end(int ret, char *why)
{
	record_to = NULL;
	if (!rp_watch_starved() || ret)
		return ret;
	strcpy(why, "no memory or no file descriptor is left");
	return -ENOMEM;
}

void rp_watch_merge(struct rp_watch **to, struct rp_watch **from)
{
	struct rp_watch *e, *tmp;

	HASH_ITER(hh, *from, e, tmp)
	{
		HASH_DEL(*from, e);
		watch_add(to, e);
	}
}

void rp_watch_free(struct rp_watch **w)
{
	struct rp_watch *e = *w, *next;

	HASH_CLEAR(hh, *w);
	for (; e; e = next) {
		next = e->hh.next;
		free(e->text);
		free(e);
	}
}

/* The last three names of a path of sysfs or proc; of other paths the last. */
static const char *short_name(const char *path)
{
	const char *p = path + strlen(path);
	int names = strstr(path, "/sys/") || strstr(path, "/proc/") ? 3 : 1;

	while (p > path && (p[-1] != '/' || --names))
		p--;
	return p;
}

#define SHOWN 40 /* most bytes of a value in a message */

/* Copy s up to a byte of end, at most SHOWN bytes: the last ones of a path. */
static const char *cut_value(char out[SHOWN + 1], const char *s,
			     const char *end)
{
	const char *stop = s + strcspn(s, end);

	while (stop > s && stop[-1] == '\n')
		stop--;
	if (*s == '/' && stop - s > SHOWN)
		s = strchrnul(stop - SHOWN, '/');
	snprintf(out, SHOWN + 1, "%.*s", (int)(stop - s), s);
	return *out ? out : "absent";
}

/* Describe the source and its first difference: an option, or a line. */
static void show_change(const struct rp_watch *e, const char *now, char *what)
{
	const bool both = *e->text && *now, mount = e->kind == RP_SOURCE_MOUNT;
	const char *was = e->text, *end = mount && both ? " " : "";
	char a[SHOWN + 1], b[SHOWN + 1];
	size_t same = 0;

	for (size_t i = 0; was[i] && was[i] == now[i]; i++)
		if (strchr(mount ? " ," : "\n", was[i]))
			same = i + 1;
	if (e->kind == RP_SOURCE_NAMES)
		end = "\n";
	rp_caps_fmt(what, RP_SOURCE_LEN, "%.60s was %s, now %s",
		    short_name(strchr(e->key, ' ') + 1),
		    cut_value(a, was + same, end),
		    cut_value(b, now + same, end));
}

bool rp_watch_find_change(struct rp_watch *w, char *what)
{
	bool changed = false;
	char *now;

	for (; w && !changed; w = w->hh.next) {
		now = source_read(w->kind, strchr(w->key, ' ') + 1, w->arg);
		starved |= !now;
		changed = now && strcmp(now, w->text);
		if (changed)
			show_change(w, now, what);
		free(now);
	}
	return changed;
}
