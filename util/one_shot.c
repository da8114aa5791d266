// SPDX-License-Identifier: BSD-2-Clause
/* A session of fi_rpmemd --one-shot: its request, its pool, its end. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/conf.h"
#include "util/exit_codes.h"
#include "util/one_shot.h"
#include "util/pool.h"

#define REQUEST_MS 30000 /* time limit for the request */
#define IDLE_MS	   60000 /* time limit without an open pool */
#define KEY	   32	 /* random bytes of the session's secret */

static const char set_magic[] = "PMEMPOOLSET";

/* Contents of a pool set file. */
struct set {
	char *part;
	uint64_t size;
	bool no_header;
};

/* Read the request: bytes behind its line are for rp_one_shot_ended(). */
static int read_line(int signal_fd, char line[RP_ONE_SHOT_LINE], char *err)
{
	const uint64_t until = rp_now_ms() + REQUEST_MS;
	struct pollfd fds[] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = signal_fd, .events = POLLIN},
	};
	size_t n = 0;

	while (n < RP_ONE_SHOT_LINE) {
		const uint64_t now = rp_now_ms();

		if (now >= until || poll(fds, 2, (int)(until - now)) < 1)
			break;
		if (fds[1].revents)
			return rp_err(err, RP_EXIT_FAILED,
				      "a signal has stopped fi_rpmemd before "
				      "its request");
		if (read(STDIN_FILENO, line + n, 1) != 1)
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
static char *arguments_after(char *line, const char *word)
{
	const size_t n = strlen(word);

	if (strncmp(line, word, n) || line[n] != ' ')
		return NULL;
	return line + n + 1;
}

/* Build the path of a name below o->folder; refuse names that leave it. */
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

/* Parse one line of a pool set file: a comment begins at '#' anywhere in it. */
static int parse_line(struct set *s, const char *path, char *line, char *err)
{
	char *rest, *word, *part, *more;
	const char *other = "one part with its size and absolute path";

	line[strcspn(line, "#")] = 0;
	word = strtok_r(line, " \t\n", &rest);
	if (!word)
		return 0;
	part = strtok_r(NULL, " \t\n", &rest);
	more = strtok_r(NULL, " \t\n", &rest);
	if (!strcmp(word, "OPTION") && part &&
	    (!strcmp(part, "SINGLEHDR") || !strcmp(part, "NOHDRS"))) {
		if (more)
			return rp_err(err, RP_EXIT_FILE,
				      "pool set '%s' has '%.100s' behind "
				      "OPTION %s: remove it",
				      path, more, part);
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
	if (!part || *part != '/' || more ||
	    rp_size_parse(word, &s->size, NULL) || s->size < RP_POOL_UNIT)
		return rp_err(err, RP_EXIT_FILE,
			      "pool set '%s' has the line '%.100s%s%.100s': "
			      "give %s, as in 10G /pools/vol0",
			      path, word, part ? " " : "", part ? part : "",
			      other);
	s->part = strdup(part);
	return s->part ? 0 : rp_err(err, RP_EXIT_FAILED, "out of memory");
}

/* Open a regular file. O_NONBLOCK: opening a FIFO must not block. */
static FILE *open_file(const char *path)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	FILE *f;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && !S_ISREG(st.st_mode))
		errno = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
	else {
		f = fdopen(fd, "r");
		if (f)
			return f;
	}
	close(fd);
	return NULL;
}

/*
 * Read a pool set file. A file of another kind may be a pool: then s->part
 * stays NULL.
 */
static int read_set(struct rp_one_shot *o, const char *path, struct set *s,
		    char *err)
{
	char line[RP_ONE_SHOT_LINE] = "";
	FILE *f = open_file(path);
	int code = 0;

	o->header = "any";
	if (!f) {
		o->missing = errno == ENOENT;
		o->denied = errno == EACCES;
		if (errno == ENXIO || errno == EISDIR)
			return rp_err(err, RP_EXIT_FILE,
				      "'%s' is not a regular file: name a pool "
				      "or a pool set file",
				      path);
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
	/* The rest of the first line is empty, or a comment. */
	if (fgets(line, sizeof(line), f)) {
		const char *rest = line + strspn(line, " \t\n");

		line[strcspn(line, "\n")] = 0;
		if (*rest && *rest != '#')
			code = rp_err(
				err, RP_EXIT_FILE,
				"pool set '%s' has '%.100s' behind "
				"PMEMPOOLSET: put it on a line of its own",
				path, rest);
	}
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

/* Check that this process may remove names from the folder of a path. */
static int check_folder(const char *path, char *err)
{
	char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : 0;
	int code = 0;

	if (!folder)
		return rp_err(err, RP_EXIT_FAILED, "out of memory");
	if (slash)
		slash[slash == folder] = 0;
	if (access(slash ? folder : ".", W_OK | X_OK))
		code = rp_err(err, RP_EXIT_FILE,
			      "'%s' cannot be removed from its folder: %s",
			      path, strerror(errno));
	free(folder);
	return code;
}

static int remove_file(const char *what, const char *path, char *err)
{
	return unlink(path) ? rp_err(err, RP_EXIT_FILE,
				     "%s '%s' cannot be removed: %s", what,
				     path, strerror(errno))
			    : 0;
}

/*
 * Remove a pool that no process uses, and `path` if it is a symbolic link to
 * the pool. Refuse files that are no pools. set: the pool set file that the
 * caller then removes, or NULL.
 */
static int remove_pool(struct rp_one_shot *o, const char *path, const char *set,
		       char *err)
{
	struct rp_pool pool = {.fd = -1};
	char file[PATH_MAX], ignored[RP_ERR_LEN];
	const int ret = rp_pool_open(path, &pool, err);
	struct stat st;
	int code = 0;

	o->missing = ret == -ENOENT;
	if (ret)
		return ret == -EBUSY ? RP_EXIT_BUSY : RP_EXIT_FILE;
	if (!realpath(path, file))
		code = rp_err(err, RP_EXIT_FILE, "pool '%s': %s", path,
			      strerror(errno));
	/* Check all folders first, so that all names are removed or none. */
	if (!code)
		code = check_folder(file, err);
	if (!code)
		code = check_folder(path, err);
	if (!code && set)
		code = check_folder(set, err);
	if (!code)
		code = remove_file("pool", file, err);
	/* If the pool stays, restore the clean mark that opening removed. */
	if (code && pool.was_clean)
		rp_pool_close_clean(&pool, ignored);
	else
		rp_pool_abandon(&pool);
	if (!code && !lstat(path, &st) && S_ISLNK(st.st_mode))
		code = remove_file("link", path, err);
	return code;
}

static int remove_all(struct rp_one_shot *o, const char *path,
		      const struct set *s, bool set, bool force, char *err)
{
	int code;

	o->removes = true;
	set = set && s->part;
	code = remove_pool(o, s->part ? s->part : path, set ? path : NULL, err);
	if (set && (!code || (o->missing && force))) {
		code = remove_file("pool set", path, err);
		o->missing = false;
	}
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
	for (size_t i = 0; i < KEY; i++)
		snprintf((char *)s->secret.bytes + 2 * i, 3, "%02x", key[i]);
	explicit_bzero(key, sizeof(key));
	s->secret.len = 2 * sizeof(key);
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

/* create: check that an existing file can serve as the new pool. */
static int check_existing(struct rp_one_shot *o, const char *pool,
			  const struct set *s, char *err)
{
	struct stat st;

	if (!s->part || stat(pool, &st))
		return 0;
	/* Without a header, a replica cannot be told from an unused pool. */
	if (s->no_header) {
		o->exists = true;
		return rp_err(err, RP_EXIT_FILE,
			      "pool '%s' exists, and may have a replica: "
			      "remove it with 'pmempool rm -r', or name "
			      "another one in the pool set file",
			      pool);
	}
	if ((uint64_t)st.st_size == RP_POOL_DATA + rp_pool_round(s->size))
		return 0;
	return rp_err(err, RP_EXIT_FILE,
		      "'%s' exists and is no pool of %llu bytes, as the pool "
		      "set file wants: change the size there, or remove the "
		      "pool with 'pmempool rm -r'",
		      pool, (unsigned long long)s->size);
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
	code = create ? check_existing(o, pool, s, err) : 0;
	if (code)
		return code;
	if (rp_conf_add_pool(c, pool, err))
		return RP_EXIT_USAGE;
	c->pools[0].create = create ? s->size : 0;
	c->pools[0].exact = true;
	c->pools[0].rights[0] = RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN;
	c->has_port = true; /* port 0: any free one, unless --port is given */
	code = add_secret(c, err);
	return code ? code : add_address(c, err);
}

static int handle_request(struct rp_one_shot *o, struct rp_conf *c, char *line,
			  char *err)
{
	enum {
		OPEN,
		CREATE,
		REMOVE,
		REMOVE_SET,
		REMOVE_SET_FORCE,
		VERBS
	} verb;
	static const char *const verbs[] = {"open", "create", "remove",
					    "remove-set", "remove-set-force"};
	char *path, *name = NULL;
	struct set set = {.part = NULL};
	int code;

	if (!strncmp(line, RP_ONE_SHOT_HELLO, strlen(RP_ONE_SHOT_HELLO)))
		for (verb = OPEN; verb < VERBS; verb++) {
			name = arguments_after(line + strlen(RP_ONE_SHOT_HELLO),
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
		code = remove_all(o, path, &set, verb >= REMOVE_SET,
				  verb == REMOVE_SET_FORCE, err);
	else if (!code)
		code = configure(o, c, path, &set, verb == CREATE, err);
	free(set.part);
	free(path);
	return code;
}

int rp_one_shot_begin(struct rp_one_shot *o, struct rp_conf *c, int signal_fd,
		      char *err)
{
	char line[RP_ONE_SHOT_LINE];
	int code = read_line(signal_fd, line, err);

	if (!code)
		code = handle_request(o, c, line, err);
	/* err quotes the request, which may have control characters. */
	if (code)
		rp_text_clean(err, '?');
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
	if (o->missing || o->denied || o->exists)
		printf(RP_ONE_SHOT_HELLO "%s %s\n",
		       o->missing  ? "missing"
		       : o->denied ? "denied"
				   : "exists",
		       text);
	else
		printf(RP_ONE_SHOT_HELLO "error %d %s\n", code, text);
	fflush(stdout);
	o->replied = true;
}

bool rp_one_shot_ended(struct rp_one_shot *o, bool input, bool is_open,
		       uint64_t owner)
{
	static const char undo[] = RP_ONE_SHOT_HELLO RP_ONE_SHOT_UNDO "\n";
	char rest[64];
	ssize_t n;

	if (!o->on)
		return false;
	if (input) {
		n = read(STDIN_FILENO, rest, sizeof(rest));
		if (!n || (n < 0 && errno != EINTR && errno != EAGAIN))
			return true;
		o->undo |= n >= (ssize_t)strlen(undo) &&
			   !memcmp(rest, undo, strlen(undo));
	}
	if (is_open && owner != o->first_owner)
		o->idle_since = 0;
	else if (!o->idle_since)
		o->idle_since = rp_now_ms();
	return o->idle_since && rp_now_ms() - o->idle_since > IDLE_MS;
}
