// SPDX-License-Identifier: BSD-2-Clause
/* A session of fi_rpmemd --one-shot: its request, its pool, its end. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/conf.h"
#include "util/exits.h"
#include "util/one_shot.h"
#include "util/pool.h"

#define REQUEST_MS 30000 /* time limit for the request */
#define IDLE_MS	   60000 /* without an open client */
#define KEY	   32	 /* random bytes of the session's secret */

static const char set_magic[] = "PMEMPOOLSET";

/* Contents of a pool set file. */
struct set {
	char *part;
	uint64_t size;
	bool no_header;
};

/* Read the request line, and no byte after it. */
static int read_line(char line[RP_ONE_SHOT_LINE], char *err)
{
	const uint64_t until = rp_now_ms() + REQUEST_MS;
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
	size_t n = 0;

	while (n < RP_ONE_SHOT_LINE) {
		const uint64_t now = rp_now_ms();

		if (now >= until || poll(&fd, 1, (int)(until - now)) < 1 ||
		    read(STDIN_FILENO, line + n, 1) != 1)
			break;
		if (line[n] == '\n') {
			line[n] = 0;
			return 0;
		}
		n++;
	}
	rp_err(err, 0,
	       "no request on standard input: librpmem starts fi_rpmemd "
	       "--one-shot by ssh and sends one, see librpmem(7)");
	return RP_EXIT_USAGE;
}

/* The request's arguments, if its first word is `word`; otherwise NULL. */
static char *behind(char *line, const char *word)
{
	const size_t n = strlen(word);

	return strncmp(line, word, n) || line[n] != ' ' ? NULL : line + n + 1;
}

/* Build the path of a name, which must stay inside the directory. */
static int find_path(const struct rp_one_shot *o, const char *name, char **path,
		     char *err)
{
	const char *folder = o->folder ? o->folder : getenv("HOME");
	const char *up = strstr(name, "..");

	while (up &&
	       !((up == name || up[-1] == '/') && (!up[2] || up[2] == '/')))
		up = strstr(up + 1, "..");
	if (!*name || *name == '/' || up) {
		rp_err(err, 0,
		       "'%.200s' is no path below the folder of pool sets; "
		       "give one without '..' and without '/' in front",
		       name);
		return RP_EXIT_USAGE;
	}
	if (!folder || !*folder) {
		rp_err(err, 0, "there is no $HOME: give --one-shot=FOLDER");
		return RP_EXIT_USAGE;
	}
	if (asprintf(path, "%s/%s", folder, name) >= 0)
		return 0;
	rp_err(err, 0, "out of memory");
	return RP_EXIT_FAILED;
}

/* Parse one line of a pool set file. */
static int parse_line(struct set *s, const char *path, char *line, char *err)
{
	char *rest, *word = strtok_r(line, " \t\n", &rest), *part;
	const char *other = "one part with its size and absolute path";

	if (!word || *word == '#')
		return 0;
	part = strtok_r(NULL, " \t\n", &rest);
	if (!strcmp(word, "OPTION") && part &&
	    (!strcmp(part, "SINGLEHDR") || !strcmp(part, "NOHDRS"))) {
		s->no_header |= *part == 'N';
		return 0;
	}
	if (!strcmp(word, "REPLICA"))
		return rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' has a REPLICA: a replica has "
			      "none; leave %s",
			      path, other);
	if (s->part)
		return rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' has more than one part, and "
			      "fi_rpmemd exports one file: leave %s",
			      path, other);
	if (!part || *part != '/' || strtok_r(NULL, " \t\n", &rest) ||
	    rp_size_parse(word, &s->size, NULL) || s->size < RP_POOL_UNIT)
		return rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' has the line '%.100s%s%.100s': "
			      "give %s, as in 10G /pools/vol0",
			      path, word, part ? " " : "", part ? part : "",
			      other);
	s->part = strdup(part);
	return s->part ? 0 : rp_err(err, RP_EXIT_FAILED, "out of memory");
}

/* Read a pool set file. Any other file counts as a pool: s->part stays NULL. */
static int read_set(struct rp_one_shot *o, const char *path, struct set *s,
		    char *err)
{
	char line[RP_ONE_SHOT_LINE] = "";
	FILE *f = fopen(path, "re");
	int code = 0;

	o->header = "any";
	if (!f) {
		o->missing = errno == ENOENT;
		o->denied = errno == EACCES;
		return rp_err(err, RP_EXIT_FILE,
			      "pool set '%s': %s; write one with a line such "
			      "as 10G /pools/vol0 below " PACKAGE_NAME
			      "'s folder of pool sets, $HOME",
			      path, strerror(errno));
	}
	if (fread(line, sizeof(set_magic) - 1, 1, f) != 1 ||
	    strcmp(line, set_magic)) {
		fclose(f);
		return 0;
	}
	/* The rest of the first line must be empty. */
	while (!code && fgets(line, sizeof(line), f))
		code = parse_line(s, path, line, err);
	fclose(f);
	o->header = s->no_header ? "no" : "yes";
	if (!code && !s->part)
		code = rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' has no part: add a line such as "
			      "10G /pools/vol0",
			      path);
	return code;
}

/* Remove a pool that is not in use; remove no other kind of file. */
static int remove_pool(struct rp_one_shot *o, const char *path, char *err)
{
	struct rp_pool pool = {.fd = -1};
	const int ret = rp_pool_open(path, &pool, err);

	o->missing = ret == -ENOENT;
	if (ret)
		return ret == -EBUSY ? RP_EXIT_BUSY : RP_EXIT_FILE;
	if (unlink(path)) {
		rp_err(err, 0, "pool '%s' cannot be removed: %s", path,
		       strerror(errno));
		rp_pool_abandon(&pool);
		return RP_EXIT_FILE;
	}
	rp_pool_abandon(&pool);
	return 0;
}

static int remove_all(struct rp_one_shot *o, const char *path,
		      const struct set *s, bool set, char *err)
{
	int code = remove_pool(o, s->part ? s->part : path, err);

	o->removes = true;
	if ((!code || o->missing) && set && s->part && unlink(path))
		code = rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' cannot be removed: %s", path,
			      strerror(errno));
	if (code)
		return code;
	printf(RP_ONE_SHOT_HELLO "removed\n");
	fflush(stdout);
	o->replied = true;
	return 0;
}

/* Make a secret for this session, known only to the ssh user. */
static int add_secret(struct rp_conf *c, char *err)
{
	struct rp_conf_secret *s = &c->secrets[0];
	uint8_t key[KEY];

	if (getrandom(key, sizeof(key), 0) != sizeof(key)) {
		rp_err(err, 0, "no random bytes");
		return RP_EXIT_FAILED;
	}
	for (int i = 0; i < KEY; i++)
		snprintf((char *)s->secret.bytes + 2 * i, 3, "%02x", key[i]);
	explicit_bzero(key, sizeof(key));
	s->secret.len = 2 * KEY;
	strcpy(s->name, "session");
	c->nsecrets = 1;
	return 0;
}

/* Use the address to which ssh connected, unless --listen gives one. */
static int add_address(struct rp_conf *c, char *err)
{
	const char *ssh = getenv("SSH_CONNECTION");
	char address[64];

	if (c->listen || !ssh || sscanf(ssh, "%*s %*s %63s", address) != 1)
		return 0;
	c->listen = strdup(address);
	return c->listen ? 0 : rp_err(err, RP_EXIT_FAILED, "out of memory");
}

static int configure(struct rp_one_shot *o, struct rp_conf *c, const char *path,
		     const struct set *s, bool create, char *err)
{
	const char *pool = s->part ? s->part : path;
	int code;

	if (!create && access(pool, F_OK) && errno == ENOENT) {
		o->missing = true;
		rp_err(err, 0,
		       "pool '%s' does not exist: make the replica with "
		       "'pmempool sync' or pmemobj_create()",
		       pool);
		return RP_EXIT_FILE;
	}
	if (rp_conf_add_pool(c, pool, err))
		return RP_EXIT_USAGE;
	c->pools[0].create = create ? s->size : 0;
	c->pools[0].exact = true;
	c->pools[0].rights[0] = RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN;
	c->has_port = true; /* port 0: any free one, unless --port is given */
	code = add_secret(c, err);
	return code ? code : add_address(c, err);
}

int rp_one_shot_begin(struct rp_one_shot *o, struct rp_conf *c, char *err)
{
	enum {
		OPEN,
		CREATE,
		REMOVE,
		REMOVE_SET,
		VERBS
	} verb;
	static const char *const verbs[] = {"open", "create", "remove",
					    "remove-set"};
	char line[RP_ONE_SHOT_LINE], *path, *name = NULL;
	struct set set = {.part = NULL};
	int code = read_line(line, err);

	if (code)
		return code;
	rp_text_clean(line, '?');
	if (!strncmp(line, RP_ONE_SHOT_HELLO, strlen(RP_ONE_SHOT_HELLO)))
		for (verb = OPEN; verb < VERBS; verb++) {
			name = behind(line + strlen(RP_ONE_SHOT_HELLO),
				      verbs[verb]);
			if (name)
				break;
		}
	if (!name)
		return rp_err(err, RP_EXIT_USAGE,
			      "the request '%.100s' is unknown: install the "
			      "same release at both ends",
			      line);
	code = find_path(o, name, &path, err);
	if (code)
		return code;
	code = read_set(o, path, &set, err);
	if (!code && verb >= REMOVE)
		code = remove_all(o, path, &set, verb == REMOVE_SET, err);
	else if (!code)
		code = configure(o, c, path, &set, verb == CREATE, err);
	free(set.part);
	free(path);
	return code;
}

void rp_one_shot_serve(struct rp_one_shot *o, const struct rp_conf *c,
		       uint16_t port, uint64_t owner)
{
	printf(RP_ONE_SHOT_HELLO "serves %s %.*s %u %s %s\n", o->header,
	       (int)c->secrets[0].secret.len,
	       (const char *)c->secrets[0].secret.bytes, port,
	       c->listen ? c->listen : "127.0.0.1", c->pools[0].name);
	fflush(stdout);
	o->replied = true;
	o->first_owner = owner;
	o->idle_since = rp_now_ms();
}

void rp_one_shot_fail(struct rp_one_shot *o, int code, const char *why)
{
	char text[RP_ERR_LEN];

	if (!o->on || o->replied)
		return;
	snprintf(text, sizeof(text), "%s", why);
	rp_text_clean(text, ' ');
	if (o->missing || o->denied)
		printf(RP_ONE_SHOT_HELLO "%s %s\n",
		       o->missing ? "missing" : "denied", text);
	else
		printf(RP_ONE_SHOT_HELLO "error %d %s\n", code, text);
	fflush(stdout);
	o->replied = true;
}

bool rp_one_shot_ended(struct rp_one_shot *o, bool input, bool is_open,
		       uint64_t owner)
{
	char rest[64];
	ssize_t n;

	if (!o->on)
		return false;
	if (input) {
		n = read(STDIN_FILENO, rest, sizeof(rest));
		if (!n || (n < 0 && errno != EINTR && errno != EAGAIN))
			return true;
	}
	if (is_open && owner != o->first_owner)
		o->idle_since = 0;
	else if (!o->idle_since)
		o->idle_since = rp_now_ms();
	return o->idle_since && rp_now_ms() - o->idle_since > IDLE_MS;
}
