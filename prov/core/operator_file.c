// SPDX-License-Identifier: BSD-2-Clause
/* Read and check the operator's statements, apply them to the facts. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/operator_file.h"
#include "core/watch.h"

#define MAX_STATEMENTS 1024

enum scope {
	SCOPE_HOST,
	SCOPE_PATH,
	SCOPE_DEVICE,
};

enum key {
	KEY_DOMAIN,
	KEY_PLACEMENT,
	KEY_FENCE,
	KEY_NATIVE,
	KEY_FILESYSTEM,
	KEY_CLASS,
};

enum verb {
	VERB_LIMIT = 1,
	VERB_ASSERT = 2,
};

struct statement {
	enum scope scope;
	char *name; /* name of the scope; the section owns it */
	enum verb verb;
	enum key key;
	int value;
	unsigned int line;
};

struct section {
	struct section *next;
	char name[];
};

struct rp_operator {
	char *file;
	struct section *sections;
	struct statement *v;
	size_t n;
};

/* Every value that may be stated, with the verbs that may state it. */
#define BOTH (VERB_LIMIT | VERB_ASSERT)
static const struct word {
	enum key key;
	const char *word;
	int value;
	unsigned int verbs;
} words[] = {
	{KEY_DOMAIN, "none", RP_DOMAIN_NONE, BOTH},
	{KEY_DOMAIN, "memory-controller", RP_DOMAIN_MEMCTRL, BOTH},
	{KEY_DOMAIN, "cpu-caches", RP_DOMAIN_CPUCACHE, BOTH},
	{KEY_DOMAIN, "system", RP_DOMAIN_SYSTEM, BOTH},
	{KEY_PLACEMENT, "dma-cache", RP_PLACE_DMA_CACHE, BOTH},
	{KEY_PLACEMENT, "dma-memory", RP_PLACE_DMA_MEMORY, VERB_ASSERT},
	{KEY_FENCE, "yes", RP_YES, VERB_ASSERT},
	{KEY_FENCE, "no", RP_NO, BOTH},
	{KEY_NATIVE, "no", RP_NO, VERB_LIMIT},
	{KEY_FILESYSTEM, "trusted", RP_YES, VERB_ASSERT},
	{KEY_FILESYSTEM, "untrusted", RP_NO, BOTH},
	{KEY_CLASS, "none", RP_LIMIT_NONE, VERB_LIMIT},
	{KEY_CLASS, "process", RP_LIMIT_PROCESS, VERB_LIMIT},
	{KEY_CLASS, "power", RP_LIMIT_POWER, VERB_LIMIT},
};
#define WORDS (sizeof(words) / sizeof(words[0]))

/* The facts that can be stated: enums, each of the size of an int. */
static const struct {
	const char *name;
	size_t fact, source; /* offsets in rp_facts and rp_sources */
	const char *values;  /* for messages */
} keys[] = {
#define AT(fact, source)                                                       \
	offsetof(struct rp_facts, fact), offsetof(struct rp_sources, source)
	[KEY_DOMAIN] = {"domain", AT(domain, domain),
			"none, memory-controller, cpu-caches or system"},
	[KEY_PLACEMENT] = {"placement", AT(placement, placement),
			   "dma-cache or dma-memory"},
	[KEY_FENCE] = {"fence", AT(fence, fence), "yes or no"},
	[KEY_NATIVE] = {"native", AT(native, native), "no"},
	[KEY_FILESYSTEM] = {"filesystem", AT(fs_trusted, fs),
			    "trusted or untrusted"},
	[KEY_CLASS] = {"class", AT(limit, limit), "none, process or power"},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* State of reading one file. */
struct reader {
	const char *file;
	char *why;	   /* RP_WHY_LEN bytes */
	unsigned int line; /* number of the current line */
	struct rp_operator *o;
	enum scope scope;
	char *name; /* NULL: no section yet */
};

/* Write r->why, with file and line; return err. */
__attribute__((format(printf, 3, 4))) static int
refuse_as(struct reader *r, int err, const char *fmt, ...)
{
	char text[RP_WHY_LEN], line[16] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (r->line)
		snprintf(line, sizeof(line), ":%u", r->line);
	snprintf(r->why, RP_WHY_LEN, "%.100s%s: %.130s", r->file, line, text);
	return err;
}

#define refuse(r, ...) refuse_as(r, -EINVAL, __VA_ARGS__)

static char *trim_spaces(char *s)
{
	char *end;

	s += strspn(s, " \t");
	end = s + strlen(s);
	while (end > s && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	return s;
}

/* Cut off the first word of s; *rest: the trimmed remainder. */
static char *first_word(char *s, char **rest)
{
	size_t n = strcspn(s, " \t");

	*rest = s + n + !!s[n];
	s[n] = '\0';
	*rest = trim_spaces(*rest);
	return s;
}

static int read_section(struct reader *r, char *s)
{
	char *end = strrchr(s, ']'), *kind, *name;
	struct section *sec;

	if (!end || end[1])
		return refuse(r, "a section ends with ]");
	*end = '\0';
	kind = first_word(trim_spaces(s + 1), &name);
	if (!strcmp(kind, "host"))
		r->scope = SCOPE_HOST;
	else if (!strcmp(kind, "path"))
		r->scope = SCOPE_PATH;
	else if (!strcmp(kind, "device"))
		r->scope = SCOPE_DEVICE;
	else
		return refuse(r,
			      "[%s] is none of [host], [path /...], [device "
			      "...]",
			      kind);
	if (r->scope == SCOPE_HOST && *name)
		return refuse(r, "[host] has no name");
	if (r->scope == SCOPE_PATH && *name != '/')
		return refuse(r, "[path ...] wants a full path");
	if (r->scope == SCOPE_DEVICE && (!*name || strchr(name, '/')))
		return refuse(r, "[device ...] wants a name as in dax0.0");
	/* Ignore a final slash; "/" alone covers everything. */
	while (name[0] && name[1] && name[strlen(name) - 1] == '/')
		name[strlen(name) - 1] = '\0';
	sec = malloc(sizeof(*sec) + strlen(name) + 1);
	if (!sec)
		return refuse_as(r, -ENOMEM, "out of memory");
	strcpy(sec->name, name);
	sec->next = r->o->sections;
	r->o->sections = sec;
	r->name = sec->name;
	return 0;
}

static const struct word *find_word(enum key key, const char *text)
{
	for (const struct word *w = words; w < words + WORDS; w++)
		if (w->key == key && !strcmp(w->word, text))
			return w;
	return NULL;
}

static int find_key(const char *text, enum key *key)
{
	for (size_t i = 0; i < KEYS; i++) {
		if (strcmp(keys[i].name, text))
			continue;
		*key = (enum key)i;
		return 0;
	}
	return -EINVAL;
}

static int add_statement(struct reader *r, const struct word *w, enum verb verb)
{
	struct rp_operator *o = r->o;
	struct statement *v;

	for (size_t i = 0; i < o->n; i++)
		if (o->v[i].name == r->name && o->v[i].verb == verb &&
		    o->v[i].key == w->key)
			return refuse(r, "%s was stated before, in line %u",
				      keys[w->key].name, o->v[i].line);
	if (o->n == MAX_STATEMENTS)
		return refuse_as(r, -E2BIG, "more than %d statements",
				 MAX_STATEMENTS);
	v = realloc(o->v, (o->n + 1) * sizeof(*v));
	if (!v)
		return refuse_as(r, -ENOMEM, "out of memory");
	o->v = v;
	v[o->n++] = (struct statement){
		.scope = r->scope,
		.name = r->name,
		.verb = verb,
		.key = w->key,
		.value = w->value,
		.line = r->line,
	};
	return 0;
}

static int read_statement(struct reader *r, char *s)
{
	char *verb_text, *key_text, *value = strchr(s, '=');
	const struct word *w;
	enum verb verb;
	enum key key;

	if (!r->name)
		return refuse(r, "a statement stands in a section, [host] say");
	if (!value)
		return refuse(r, "a statement is: limit or assert, FACT = "
				 "VALUE");
	*value++ = '\0';
	value = trim_spaces(value);
	verb_text = first_word(trim_spaces(s), &key_text);
	if (!strcmp(verb_text, "limit"))
		verb = VERB_LIMIT;
	else if (!strcmp(verb_text, "assert"))
		verb = VERB_ASSERT;
	else
		return refuse(r,
			      "'%s' is neither limit (never raises what is "
			      "found) nor assert (is believed)",
			      verb_text);
	if (find_key(key_text, &key))
		return refuse(r,
			      "'%s' is none of domain, placement, fence, "
			      "native, filesystem, class",
			      key_text);
	w = find_word(key, value);
	if (!w)
		return refuse(r, "%s is %s, not '%s'", keys[key].name,
			      keys[key].values, value);
	if (w->verbs & verb)
		return add_statement(r, w, verb);
	if (key == KEY_NATIVE || key == KEY_CLASS)
		return refuse(r,
			      "%s can be limited only: it follows from "
			      "facts%s",
			      keys[key].name,
			      key == KEY_NATIVE ? " of both ends" : "");
	return refuse(r, "'%s' is no limit: leave it out", value);
}

static int read_line(struct reader *r, char *s)
{
	char *hash = strchr(s, '#');

	/* A comment starts a line or follows a blank: names may contain '#'. */
	while (hash && hash > s && hash[-1] != ' ' && hash[-1] != '\t')
		hash = strchr(hash + 1, '#');
	if (hash)
		*hash = '\0';
	s = trim_spaces(s);
	if (!*s)
		return 0;
	return *s == '[' ? read_section(r, s) : read_statement(r, s);
}

static int check_file(struct reader *r, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse_as(r, -errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse_as(r, -EINVAL, "is not a regular file");
	if (st.st_uid && st.st_uid != geteuid())
		return refuse_as(r, -EPERM,
				 "belongs to user %u: it must be root's "
				 "or this user's",
				 (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return refuse_as(r, -EPERM, "others can write it: chmod go-w");
	return 0;
}

static int read_file(struct reader *r)
{
	/* O_NONBLOCK: a pipe or terminal must not block the open. */
	int fd = open(r->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *s = NULL;
	size_t size = 0;
	ssize_t n;
	int ret;

	if (!f) {
		ret = refuse_as(r, -errno, "%s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	ret = check_file(r, fd);
	while (!ret && (n = getline(&s, &size, f)) > 0) {
		r->line++;
		if (strlen(s) != (size_t)n)
			ret = refuse_as(r, -EINVAL, "this is not text");
		if (!ret)
			ret = read_line(r, s);
	}
	if (!ret && !feof(f))
		ret = refuse_as(r, errno == ENOMEM ? -ENOMEM : -EIO,
				"cannot be read");
	free(s);
	fclose(f);
	return ret;
}

int rp_operator_load(const char *path, struct rp_operator **out, char *why)
{
	struct reader r = {.file = path, .why = why};
	int ret = -ENOMEM;

	r.o = calloc(1, sizeof(*r.o));
	if (r.o)
		r.o->file = strdup(path);
	if (r.o && r.o->file) {
		/* Record the text first: the watch finds a later change. */
		free(rp_watch_read(RP_SOURCE_FILE, path, 0));
		ret = read_file(&r);
	} else {
		refuse_as(&r, ret, "out of memory");
	}
	if (ret)
		rp_operator_free(r.o);
	else
		*out = r.o;
	return ret;
}

int rp_operator_find(const char *path, struct rp_operator **out, char *why)
{
	int ret = rp_operator_load(path ? path : RP_OPERATOR_DEFAULT, out, why);

	if (ret != -ENOENT || path)
		return ret;
	*out = NULL;
	return 0;
}

void rp_operator_free(struct rp_operator *o)
{
	struct section *s;

	if (!o)
		return;
	while ((s = o->sections)) {
		o->sections = s->next;
		free(s);
	}
	free(o->v);
	free(o->file);
	free(o);
}

static bool path_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (!strcmp(dir, "/"))
		return *path == '/';
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

static bool scope_matches(const struct statement *s, const char *path,
			  const char *device)
{
	switch (s->scope) {
	case SCOPE_HOST:
		return true;
	case SCOPE_PATH:
		return path_below(path, s->name);
	case SCOPE_DEVICE:
		return !strcmp(device, s->name);
	}
	return false;
}

/*
 * The rank of a fact's value: a higher rank allows stronger promises. Unknown
 * ranks as the worst known value, but above the domain "none", for which even
 * msync promises nothing. Negative: the file cannot state such a value.
 */
static int value_rank(enum key key, int value)
{
	switch (key) {
	case KEY_DOMAIN:
		return value == RP_DOMAIN_NONE	    ? 0
		       : value == RP_DOMAIN_UNKNOWN ? 1
						    : value;
	case KEY_PLACEMENT:
		if (value == RP_PLACE_CPU_USER || value == RP_PLACE_CPU_KERNEL)
			return -1;
		return value == RP_PLACE_UNKNOWN     ? 0
		       : value == RP_PLACE_DMA_CACHE ? 1
						     : 2;
	case KEY_FENCE:
	case KEY_NATIVE:
	case KEY_FILESYSTEM:
		return value == RP_YES;
	case KEY_CLASS:
		return RP_LIMIT_NONE - value;
	}
	return -1;
}

static int fact_get(const struct rp_facts *f, enum key key)
{
	int value;

	memcpy(&value, (const char *)f + keys[key].fact, sizeof(value));
	return value;
}

static void fact_set(struct rp_facts *f, enum key key, int value)
{
	memcpy((char *)f + keys[key].fact, &value, sizeof(value));
}

static const char *value_word(enum key key, int value)
{
	for (const struct word *w = words; w < words + WORDS; w++)
		if (w->key == key && w->value == value)
			return w->word;
	return key == KEY_NATIVE && value == RP_YES ? "yes" : "unknown";
}

/* Apply one statement; count and log a fact that becomes stronger. */
static void apply_one(const struct rp_operator *o, const struct statement *s,
		      struct rp_facts *facts, struct rp_sources *src)
{
	int found = fact_get(facts, s->key);
	char *text = (char *)src + keys[s->key].source;
	bool up = value_rank(s->key, s->value) > value_rank(s->key, found);
	char was[RP_SOURCE_LEN];

	snprintf(was, sizeof(was), "%s", text);
	fact_set(facts, s->key, s->value);
	snprintf(text, RP_SOURCE_LEN, "%s %.80s:%u, instead of %s",
		 s->verb == VERB_LIMIT ? "limited by" : "asserted by", o->file,
		 s->line, value_word(s->key, found));
	if (!up)
		return;
	src->raised++;
	rp_log(RP_LOG_WARN,
	       "%s:%u: the operator asserts %s = %s, where %s was found (%s)",
	       o->file, s->line, keys[s->key].name,
	       value_word(s->key, s->value), value_word(s->key, found), was);
}

/*
 * May an assertion replace the value found? Placement by tcp is certain, but a
 * device that sysfs shows as software (CPU_KERNEL) may have a NIC.
 */
static bool may_assert(enum key key, int found)
{
	return value_rank(key, found) >= 0 ||
	       (key == KEY_PLACEMENT && found == RP_PLACE_CPU_KERNEL);
}

void rp_operator_apply(const struct rp_operator *o, const char *path,
		       const char *device, struct rp_facts *facts,
		       struct rp_sources *src)
{
	const struct statement *last[KEYS] = {NULL}, *s;
	struct statement vouched;

	for (s = o->v; s < o->v + o->n; s++)
		if (s->verb == VERB_ASSERT && scope_matches(s, path, device))
			last[s->key] = s;
	/* Trust covers the disks below the file system. */
	if (last[KEY_FILESYSTEM] && last[KEY_FILESYSTEM]->value == RP_YES &&
	    facts->limit != RP_LIMIT_POWER) {
		vouched = *last[KEY_FILESYSTEM];
		vouched.key = KEY_CLASS;
		vouched.value = RP_LIMIT_POWER;
		last[KEY_CLASS] = &vouched;
	}
	for (size_t k = 0; k < KEYS; k++) {
		int found = fact_get(facts, (enum key)k);

		if (last[k] && found != last[k]->value &&
		    may_assert((enum key)k, found))
			apply_one(o, last[k], facts, src);
	}
	for (s = o->v; s < o->v + o->n; s++)
		if (s->verb == VERB_LIMIT && scope_matches(s, path, device) &&
		    value_rank(s->key, fact_get(facts, s->key)) >
			    value_rank(s->key, s->value))
			apply_one(o, s, facts, src);
}

void rp_facts_weaken(struct rp_facts *f, const struct rp_facts *now)
{
	for (size_t k = 0; k < KEYS; k++) {
		const enum key key = (enum key)k;
		const int value = fact_get(now, key);
		const unsigned int was =
			(unsigned int)value_rank(key, fact_get(f, key));

		if ((unsigned int)value_rank(key, value) < was)
			fact_set(f, key, value);
	}
}
