// SPDX-License-Identifier: BSD-2-Clause
/* Configuration of fi_rpmemd: pools, secrets, and the rights of secrets. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "util/conf.h"
#include "util/pool.h"

/* One name in a list of rights; resolve_rights() looks up its secret. */
struct right {
	unsigned int pool, line;
	uint8_t rights;
	char name[RP_CONF_NAME];
};

enum section {
	GLOBAL,
	SECRET,
	POOL
};

/* Keys: each once in a section. Further indented lines continue a list. */
static const struct key {
	const char *name;
	bool list;
} keys[] = {
	{"listen", false},  {"port", false}, {"base", false},
	{"metrics", false}, {"path", false}, {"create", false},
	{"clients", false}, {"read", true},  {"write", true},
	{"admin", true},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

struct parser {
	struct rp_conf *c;
	const char *path;
	FILE *file;
	unsigned int line;
	bool goes_on;		      /* the line continues a list */
	unsigned int key_lines[KEYS]; /* of the section; 0: no such key */
	enum section section;
	char secret[RP_CONF_NAME]; /* name of this section's secret */
	bool has_file;		   /* the section has file = PATH */
	struct right *rights;
	size_t nrights;
	int ret; /* result of the first error */
	char *err;
};

/* Report the first error only. Returns false: for inih, an error. */
static bool fail(struct parser *p, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static bool fail(struct parser *p, int ret, const char *fmt, ...)
{
	char text[RP_ERR_LEN];
	va_list ap;

	if (p->ret)
		return false;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->ret = rp_err(p->err, ret, "%s:%u: %s", p->path, p->line, text);
	return false;
}

static bool name_ok(const char *name)
{
	return *name && strlen(name) < RP_CONF_NAME &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyz"
				  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789._-")];
}

static struct rp_conf_pool *find_pool(struct rp_conf *c, const char *name)
{
	for (unsigned int i = 0; i < c->npools; i++)
		if (!strcmp(c->pools[i].name, name))
			return &c->pools[i];
	return NULL;
}

static bool has_secret(const struct rp_conf *c, const char *name)
{
	for (unsigned int i = 0; i < c->nsecrets; i++)
		if (!strcmp(c->secrets[i].name, name))
			return true;
	return false;
}

/* End a section: check that it has its mandatory lines. */
static bool end_section(struct parser *p)
{
	const struct rp_conf_pool *pool;

	if (p->section == SECRET && !p->has_file)
		return fail(p, -EINVAL,
			    "secret '%s' has no file; add file = PATH above",
			    p->secret);
	if (p->section != POOL)
		return true;
	pool = &p->c->pools[p->c->npools - 1];
	return pool->path ||
	       fail(p, -EINVAL, "pool '%s' has no path; add path = FILE above",
		    pool->name);
}

static bool begin_pool(struct parser *p, const char *name)
{
	struct rp_conf *c = p->c;

	if (!rp_setup_name_ok(name))
		return fail(p, -EINVAL,
			    "'%s' cannot name a pool; use printable ASCII "
			    "characters without '/'",
			    name);
	if (find_pool(c, name))
		return fail(p, -EINVAL,
			    "there are two sections [pool %s]; rename or "
			    "remove one",
			    name);
	if (c->npools == RP_SETUP_POOLS)
		return fail(p, -E2BIG,
			    "more than %d pools; run another fi_rpmemd",
			    RP_SETUP_POOLS);
	strcpy(c->pools[c->npools].name, name); /* fits: rp_setup_name_ok() */
	c->npools++;
	p->section = POOL;
	return true;
}

static bool begin_secret(struct parser *p, const char *name)
{
	if (!name_ok(name))
		return fail(p, -EINVAL,
			    "'%s' cannot name a secret; use at most %d "
			    "letters, digits, '.', '_' and '-'",
			    name, RP_CONF_NAME - 1);
	if (has_secret(p->c, name))
		return fail(p, -EINVAL,
			    "there are two sections [secret %s]; a secret can "
			    "have several lines file = PATH",
			    name);
	strcpy(p->secret, name); /* fits: name_ok() */
	p->has_file = false;
	p->section = SECRET;
	return true;
}

/* Parse a section's line, [pool NAME] or [secret NAME]. */
static bool begin_section(struct parser *p, const char *text)
{
	char kind[8], name[RP_SETUP_NAME + 2] = "";
	int end = 0;

	if (!end_section(p))
		return false;
	memset(p->key_lines, 0, sizeof(p->key_lines));
	if (p->goes_on)
		return fail(p, -EINVAL,
			    "a section begins at the start of its line; remove "
			    "the space before '['");
	if (sscanf(text, "[%7[a-z] %256[^]\n]]%n", kind, name, &end) == 2 &&
	    end) {
		text += end;
		if (text[strspn(text, " \t\r\n")] &&
		    !(strchr(" \t", *text) && text[strspn(text, " \t")] == ';'))
			return fail(p, -EINVAL,
				    "there is text behind [%s %s]; a name has "
				    "no ']', and a comment begins with a space "
				    "and ';'",
				    kind, name);
		for (char *s = name + strlen(name); s > name && s[-1] == ' ';)
			*--s = 0;
		if (!strcmp(kind, "pool"))
			return begin_pool(p, name);
		if (!strcmp(kind, "secret"))
			return begin_secret(p, name);
	}
	return fail(p, -EINVAL, "sections are [pool NAME] and [secret NAME]");
}

/* Called by inih for each line of the file. */
static char *read_line(char *buf, int size, void *arg)
{
	struct parser *p = arg;

	if (!fgets(buf, size, p->file))
		return NULL;
	p->line++;
	if (!strchr(buf, '\n') && !feof(p->file))
		fail(p, -EINVAL,
		     "the line is longer than %d bytes, or has a byte 0",
		     size - 2);
	p->goes_on = buf[0] == ' ' || buf[0] == '\t';
	/* Cut the comment: inih leaves it in a line that continues a list. */
	for (char *s = buf; p->goes_on && (s = strchr(s + 1, ';'));)
		if (s[-1] == ' ' || s[-1] == '\t')
			*s-- = 0;
	if (buf[strspn(buf, " \t")] == '[')
		begin_section(p, buf);
	return buf;
}

static bool set_text(struct parser *p, char **to, const char *name,
		     const char *value)
{
	if (!*value)
		return fail(p, -EINVAL,
			    "%s has no value; give one, or remove the line",
			    name);
	*to = strdup(value);
	return *to || fail(p, -ENOMEM, "out of memory");
}

static bool set_number(struct parser *p, const char *name, const char *value,
		       uint64_t max, uint64_t *n)
{
	char why[RP_ERR_LEN];

	return !rp_number_parse(value, 0, max, n, why) ||
	       fail(p, -EINVAL, "%s: %.300s", name, why);
}

static bool add_rights(struct parser *p, const char *value, uint8_t rights)
{
	char list[256], *save = NULL;
	struct right *more;

	snprintf(list, sizeof(list), "%s", value);
	for (char *s = strtok_r(list, " ,\t", &save); s;
	     s = strtok_r(NULL, " ,\t", &save)) {
		if (!name_ok(s))
			return fail(p, -EINVAL, "'%s' names no secret", s);
		more = realloc(p->rights, (p->nrights + 1) * sizeof(*more));
		if (!more)
			return fail(p, -ENOMEM, "out of memory");
		p->rights = more;
		more += p->nrights++;
		*more = (struct right){p->c->npools - 1, p->line, rights, ""};
		snprintf(more->name, sizeof(more->name), "%s", s);
	}
	return true;
}

static bool set_in_pool(struct parser *p, const char *name, const char *value)
{
	struct rp_conf_pool *pool = &p->c->pools[p->c->npools - 1];
	char why[RP_ERR_LEN];
	uint64_t n;

	if (!strcmp(name, "path"))
		return set_text(p, &pool->path, name, value);
	if (!strcmp(name, "read"))
		return add_rights(p, value, RP_SETUP_READ);
	if (!strcmp(name, "write"))
		return add_rights(p, value, RP_SETUP_READ | RP_SETUP_WRITE);
	if (!strcmp(name, "admin"))
		return add_rights(p, value,
				  RP_SETUP_READ | RP_SETUP_WRITE |
					  RP_SETUP_ADMIN);
	if (!strcmp(name, "clients")) {
		if (!set_number(p, name, value, 1000000, &n))
			return false;
		pool->clients = (unsigned int)n;
		return true;
	}
	if (strcmp(name, "create"))
		return fail(p, -EINVAL,
			    "a pool has no '%s'; it has path, create, read, "
			    "write, admin and clients",
			    name);
	if (rp_size_parse(value, &pool->create, why))
		return fail(p, -EINVAL, "create: %.300s", why);
	return pool->create >= RP_POOL_UNIT ||
	       fail(p, -EINVAL,
		    "create: a pool has at least 4K bytes; give a number with "
		    "a unit, as in 64M or 10G");
}

static bool set_global(struct parser *p, const char *name, const char *value)
{
	uint64_t n;

	if (!strcmp(name, "listen"))
		return set_text(p, &p->c->listen, name, value);
	if (!strcmp(name, "base"))
		return set_text(p, &p->c->base, name, value);
	if (!strcmp(name, "metrics"))
		return set_text(p, &p->c->metrics, name, value);
	if (strcmp(name, "port"))
		return fail(p, -EINVAL,
			    "there is no '%s'; in front of the sections are "
			    "listen, port, base and metrics",
			    name);
	if (!set_number(p, name, value, 65535, &n))
		return false;
	p->c->port = (uint16_t)n;
	p->c->has_port = true;
	return true;
}

/* Check a key; inih passes an indented line with the key of the line above. */
static bool check_key(struct parser *p, const char *name)
{
	size_t i = 0;

	while (i < KEYS && strcmp(keys[i].name, name))
		i++;
	if (p->goes_on && (i == KEYS || !keys[i].list))
		return fail(p, -EINVAL,
			    "a line that begins with a space continues the "
			    "line above, and %s is no list; remove the space",
			    name);
	if (p->goes_on || i == KEYS)
		return true;
	if (p->key_lines[i])
		return fail(p, -EINVAL,
			    "%s is given twice, first in line %u; remove one "
			    "of the lines%s",
			    name, p->key_lines[i],
			    keys[i].list ? ", and name all secrets in the other"
					 : "");
	p->key_lines[i] = p->line;
	return true;
}

/* Called by inih for each line NAME = VALUE. Returns 0 for an error. */
static int set_value(void *arg, const char *section, const char *name,
		     const char *value)
{
	struct parser *p = arg;
	char why[RP_ERR_LEN];
	int ret;

	if (p->ret || !check_key(p, name))
		return 0;
	switch (p->section) {
	case GLOBAL:
		return set_global(p, name, value);
	case POOL:
		return set_in_pool(p, name, value);
	case SECRET:
		break;
	}
	if (strcmp(name, "file"))
		return fail(p, -EINVAL, "a secret has no '%s', only file",
			    name);
	p->has_file = true;
	ret = rp_conf_add_secret(p->c, p->secret, value, why);
	return !ret || fail(p, ret, "%.400s", why);
}

/* Find the secrets that lists of rights name, and give them these rights. */
static bool resolve_rights(struct parser *p)
{
	struct rp_conf *c = p->c;
	bool some;

	for (size_t i = 0; i < p->nrights; i++) {
		const struct right *r = &p->rights[i];

		p->line = r->line;
		if (!has_secret(c, r->name))
			return fail(p, -EINVAL,
				    "there is no section [secret %s]", r->name);
		for (unsigned int s = 0; s < c->nsecrets; s++)
			if (!strcmp(c->secrets[s].name, r->name))
				c->pools[r->pool].rights[s] |= r->rights;
	}
	for (unsigned int i = 0; i < c->npools; i++) {
		some = !c->nsecrets;
		for (unsigned int s = 0; s < c->nsecrets; s++)
			some |= c->pools[i].rights[s] != 0;
		if (!some)
			return fail(p, -EINVAL,
				    "nobody may use pool '%s'; add to its "
				    "section write = NAME, with the name of a "
				    "secret",
				    c->pools[i].name);
	}
	return true;
}

/* Open a regular file. O_NONBLOCK: opening a FIFO must not block. */
static FILE *open_regular(const char *path, char *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *f = NULL;
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode)))
		rp_err(err, 0, "'%s' is not a regular file", path);
	else if (fd < 0 || !(f = fdopen(fd, "r")))
		rp_err(err, 0, "'%s' cannot be read: %s", path,
		       strerror(errno));
	if (!f && fd >= 0)
		close(fd);
	return f;
}

int rp_conf_load(const char *path, struct rp_conf *c, char *err)
{
	struct parser p = {.c = c, .path = path, .err = err};
	int line;

	p.file = open_regular(path, err);
	if (!p.file)
		return -EINVAL;
	line = ini_parse_stream(read_line, &p, set_value, &p);
	if (!p.ret && ferror(p.file))
		fail(&p, -EIO, "the file cannot be read");
	if (!p.ret && line) {
		p.line = (unsigned int)line;
		fail(&p, -EINVAL,
		     "a line is NAME = VALUE, [SECTION], or a "
		     "comment behind '#'");
	}
	if (!p.ret)
		end_section(&p);
	if (!p.ret && !c->npools)
		fail(&p, -EINVAL, "there is no section [pool NAME]");
	if (!p.ret)
		resolve_rights(&p);
	fclose(p.file);
	free(p.rights);
	if (p.ret)
		rp_conf_free(c);
	return p.ret;
}

/* Print the names of the secrets with exactly these rights to a pool. */
static void print_rights(const struct rp_conf *c, unsigned int pool,
			 const char *name, uint8_t rights)
{
	const char *last = "", *between = "";

	for (unsigned int s = 0; s < c->nsecrets; s++) {
		const char *secret = c->secrets[s].name;

		if (c->pools[pool].rights[s] != rights || !strcmp(secret, last))
			continue;
		printf("%s%s", *between ? between : name, secret);
		between = " ";
		last = secret;
	}
}

void rp_conf_print(const struct rp_conf *c)
{
	const uint8_t r = RP_SETUP_READ, w = r | RP_SETUP_WRITE;
	char size[RP_SIZE_LEN];

	for (unsigned int s = 0; s < c->nsecrets; s++)
		printf("secret %s: file %s\n", c->secrets[s].name,
		       c->secrets[s].path);
	for (unsigned int i = 0; i < c->npools; i++) {
		const struct rp_conf_pool *pool = &c->pools[i];

		printf("pool %s: path %s", pool->name, pool->path);
		if (pool->create)
			printf(", create %s",
			       rp_size_format(pool->create, size));
		if (pool->clients)
			printf(", clients %u", pool->clients);
		print_rights(c, i, ", read ", r);
		print_rights(c, i, ", write ", w);
		print_rights(c, i, ", admin ", w | RP_SETUP_ADMIN);
		puts(c->nsecrets ? ""
				 : ", all rights for every program of "
				   "this host");
	}
}

int rp_conf_add_pool(struct rp_conf *c, const char *path, char *err)
{
	struct rp_conf_pool *pool = &c->pools[c->npools];
	const char *slash = strrchr(path, '/'),
		   *name = slash ? slash + 1 : path;

	if (c->npools == RP_SETUP_POOLS)
		return rp_err(err, -E2BIG,
			      "more than %d pools; run another fi_rpmemd",
			      RP_SETUP_POOLS);
	if (!rp_setup_name_ok(name))
		return rp_err(err, -EINVAL,
			      "'%s' cannot name a pool; use printable ASCII "
			      "characters, at most 255, or a symbolic link of "
			      "such a name",
			      path);
	/* Names must differ, because clients give them without a directory. */
	if (find_pool(c, name))
		return rp_err(err, -EINVAL,
			      "'%s' and '%s' have the same name; rename one, "
			      "or run two daemons",
			      find_pool(c, name)->path, path);
	strcpy(pool->name, name);
	pool->path = strdup(path);
	if (!pool->path)
		return rp_err(err, -ENOMEM, "out of memory");
	memset(pool->rights, RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN,
	       sizeof(pool->rights));
	c->npools++;
	return 0;
}

int rp_conf_add_secret(struct rp_conf *c, const char *name, const char *path,
		       char *err)
{
	struct rp_conf_secret *s = &c->secrets[c->nsecrets];
	int ret;

	if (c->nsecrets == RP_SETUP_SECRETS)
		return rp_err(err, -E2BIG, "more than %d files of secrets",
			      RP_SETUP_SECRETS);
	ret = rp_secret_load(path, &s->secret, err);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < c->nsecrets; i++) {
		const struct rp_secret *other = &c->secrets[i].secret;

		if (other->len == s->secret.len &&
		    !memcmp(other->bytes, s->secret.bytes, other->len)) {
			rp_secret_wipe(&s->secret);
			return rp_err(err, -EINVAL,
				      "'%s' and '%s' have the same bytes, so "
				      "clients cannot be told apart; make a "
				      "new secret",
				      c->secrets[i].path, path);
		}
	}
	s->path = strdup(path);
	if (!s->path)
		return rp_err(err, -ENOMEM, "out of memory");
	snprintf(s->name, sizeof(s->name), "%s", name);
	c->nsecrets++;
	return 0;
}

void rp_conf_free(struct rp_conf *c)
{
	free(c->listen);
	free(c->base);
	free(c->metrics);
	for (unsigned int i = 0; i < c->nsecrets; i++)
		free(c->secrets[i].path);
	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++)
		free(c->pools[i].path);
	explicit_bzero(c, sizeof(*c));
}
