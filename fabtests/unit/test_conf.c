// SPDX-License-Identifier: BSD-2-Clause
/*
 * Configuration files of fi_rpmemd: those that are read, and the errors of
 * those that are refused.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/conf.h"

static struct rp_conf *c;
static char err[RP_ERR_LEN];
static char dir[] = "/tmp/test_conf.XXXXXX";
static char config[64], one[64], two[64];

static void put_file(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, len), (ssize_t)len);
	close(fd);
}

static void setup(void)
{
	strcpy(dir, "/tmp/test_conf.XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(config, sizeof(config), "%s/c", dir);
	snprintf(one, sizeof(one), "%s/1", dir);
	snprintf(two, sizeof(two), "%s/2", dir);
	put_file(one, "0123456789abcdef1", 17);
	put_file(two, "0123456789abcdef2", 17);
	c = calloc(1, sizeof(*c));
	cr_assert_not_null(c);
}

static void teardown(void)
{
	rp_conf_free(c);
	free(c);
	unlink(config);
	unlink(one);
	unlink(two);
	rmdir(dir);
}

/* Load a text where %1 and %2 stand for the files of the secrets. */
static int load(const char *text)
{
	char buf[2048], *to = buf;

	for (; *text; text++) {
		if (text[0] == '%' && (text[1] == '1' || text[1] == '2')) {
			to = stpcpy(to, text[1] == '1' ? one : two);
			text++;
		} else {
			*to++ = *text;
		}
	}
	put_file(config, buf, (size_t)(to - buf));
	err[0] = 0;
	return rp_conf_load(config, c, err);
}

TestSuite(conf, .init = setup, .fini = teardown);

Test(conf, a_whole_configuration_is_read)
{
	const uint8_t r = RP_SETUP_READ, w = r | RP_SETUP_WRITE,
		      a = w | RP_SETUP_ADMIN;

	cr_assert_eq(load("# comment\n"
			  "listen = 10.0.0.5\n"
			  "port = 0\n"
			  "base = sockets\n"
			  "metrics = unix:/m\n"
			  "[secret app]\n"
			  "file = %1\n"
			  "[pool vol 0] ; comment\n"
			  "path = /p/one ; comment\n"
			  "create = 10G\n"
			  "write = app\n"
			  "read = backup,\n"
			  " # comment\n"
			  "\n"
			  "  app ; comment\n"
			  "clients = 3\n"
			  "[pool b]\n"
			  "path = /p/two\n"
			  "admin = backup\n"
			  "[secret backup]\n"
			  "file = %2\n"),
		     0, "%s", err);
	cr_assert_str_eq(c->listen, "10.0.0.5");
	cr_assert_str_eq(c->base, "sockets");
	cr_assert_str_eq(c->metrics, "unix:/m");
	cr_assert(c->has_port);
	cr_assert_eq(c->port, 0);
	cr_assert_eq(c->nsecrets, 2);
	cr_assert_str_eq(c->secrets[0].name, "app");
	cr_assert_eq(c->secrets[1].secret.len, 17);
	cr_assert_eq(c->npools, 2);
	cr_assert_str_eq(c->pools[0].name, "vol 0");
	cr_assert_str_eq(c->pools[0].path, "/p/one");
	cr_assert_eq(c->pools[0].create, 10ull << 30);
	cr_assert_eq(c->pools[0].clients, 3);
	cr_assert_eq(c->pools[0].rights[0], w);
	cr_assert_eq(c->pools[0].rights[1], r);
	cr_assert_eq(c->pools[1].create, 0);
	cr_assert_eq(c->pools[1].clients, 0);
	cr_assert_eq(c->pools[1].rights[0], 0);
	cr_assert_eq(c->pools[1].rights[1], a);
}

Test(conf, two_files_of_one_secret_have_the_same_rights)
{
	cr_assert_eq(load("[secret a]\nfile = %1\nfile = %2\n"
			  "[pool p]\npath = /p\nwrite = a\n"),
		     0, "%s", err);
	cr_assert_eq(c->nsecrets, 2);
	cr_assert_eq(c->pools[0].rights[0], c->pools[0].rights[1]);
	cr_assert_eq(c->pools[0].rights[1], RP_SETUP_READ | RP_SETUP_WRITE);
}

Test(conf, without_secrets_pools_need_no_rights)
{
	cr_assert_eq(load("[pool p]\npath = /p\n"), 0, "%s", err);
	cr_assert_null(c->listen);
	cr_assert_not(c->has_port);
}

/* A configuration, the number of its wrong line, and part of the error. */
static const struct {
	const char *text;
	unsigned int line;
	const char *says;
} wrong[] = {
	{"", 0, "no section [pool NAME]"},
	{"speed = 3\n", 1, "no 'speed'"},
	{"port = 70000\n", 1, "port"},
	{"listen = a\nlisten = b\n", 2,
	 "listen is given twice, first in line 1"},
	{"port = 1\n# b\nport = 1\n", 3,
	 "port is given twice, first in line 1"},
	{"base = a\nbase = b\n", 2, "remove one of the lines"},
	{"metrics = a\nmetrics = b\n", 2, "remove one of the lines"},
	{"listen = a\n  port = 1\n", 2, "listen is no list; remove the space"},
	{"listen =\n", 1, "no value"},
	{"[pool]\n", 1, "[pool NAME]"},
	{"[pool a b\n", 1, "[pool NAME]"},
	{"[disk a]\n", 1, "[pool NAME]"},
	{"[pool a]b]\npath = /p\n", 1, "text behind [pool a]; a name has no"},
	{"[pool a] # b\npath = /p\n", 1, "text behind [pool a]"},
	{"[secret a]b]\nfile = %1\n", 1, "text behind [secret a]"},
	{" [pool a]\npath = /p\n", 1, "remove the space before '['"},
	{"[pool a]\n\tpath = /p\n", 2, "remove the space"},
	{"[pool a/b]\npath = /p\n", 1, "cannot name a pool"},
	{"[pool a]\n[pool b]\npath = /p\n", 2, "pool 'a' has no path"},
	{"[pool a]\npath = /p\n[pool a]\npath = /q\n", 3,
	 "two sections [pool a]; rename or remove"},
	{"[pool a]\npath = /p\npath = /p\n", 3, "path is given twice"},
	{"[pool a]\npath = /p\n  /q\n", 3, "path is no list"},
	{"[pool a]\npath = /p\ncreate = 4K\ncreate = 4K\n", 4, "in line 3"},
	{"[pool a]\npath = /p\nclients = 1\nclients = 0\n", 4, "in line 3"},
	{"[secret b]\nfile = %1\n[pool a]\npath = /p\nread = b\nread = b\n", 6,
	 "in line 5; remove one of the lines, and name all secrets"},
	{"[secret b]\nfile = %1\n[pool a]\npath = /p\nwrite = b\nwrite =\n", 6,
	 "in line 5"},
	{"[secret b]\nfile = %1\n[pool a]\npath = /p\nadmin = b\nadmin = b\n",
	 6, "in line 5"},
	{"[secret b]\nfile = %1\n  %2\n", 3, "file is no list"},
	{"[pool a]\npath = /p\nsize = 3\n", 3, "no 'size'"},
	{"[pool a]\npath = /p\ncreate = 10\n", 3, "at least 4K"},
	{"[pool a]\npath = /p\ncreate = x\n", 3, "create"},
	{"[pool a]\npath = /p\nclients = -1\n", 3, "clients"},
	{"[pool a]\npath = /p\nwrite = b\n", 3, "no section [secret b]"},
	{"[pool a]\npath = /p\nwrite = b?\n", 3, "names no secret"},
	{"[secret b]\nfile = %1\n[pool a]\npath = /p\n", 0, "nobody may use"},
	{"[secret b]\n[pool a]\npath = /p\n", 2, "secret 'b' has no file"},
	{"[secret b]\nfile = %1\n[secret b]\nfile = %2\n", 3, "two sections"},
	{"[secret b]\nfile = %1\nfile = %1\n", 3, "same bytes"},
	{"[secret b]\nfile = /no/such\n", 2, "/no/such"},
	{"[secret b]\nkey = 1\n", 2, "no 'key'"},
	{"[secret b c]\nfile = %1\n", 1, "cannot name a secret"},
	{"[pool a]\nsome words\n", 2, "NAME = VALUE"},
};

Test(conf, errors_name_the_line_and_what_is_wrong)
{
	char at[80];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_assert_lt(load(wrong[i].text), 0, "%s", wrong[i].text);
		cr_assert_not_null(strstr(err, wrong[i].says), "%zu: %s", i,
				   err);
		snprintf(at, sizeof(at), "%s:%u: ", config, wrong[i].line);
		if (wrong[i].line)
			cr_assert(!strncmp(err, at, strlen(at)), "%zu: %s", i,
				  err);
	}
	unlink(one);
	cr_assert_eq(mkfifo(one, 0600), 0);
	cr_assert_lt(rp_conf_load(one, c, err), 0);
	cr_assert_not_null(strstr(err, "not a regular file"));
	cr_assert_lt(rp_conf_load("/no/such", c, err), 0);
	cr_assert_not_null(strstr(err, "/no/such"));
}

Test(conf, a_line_that_is_too_long_is_not_cut)
{
	char text[1024] = "[pool a]\npath = /";

	memset(text + strlen(text), 'x', 300);
	strcat(text, "\n");
	cr_assert_lt(load(text), 0);
	cr_assert_not_null(strstr(err, ":2: the line is longer"), "%s", err);
	put_file(config, "[pool a]\npath = /a\0b\nread = x\n", 31);
	cr_assert_lt(rp_conf_load(config, c, err), 0);
	cr_assert_not_null(strstr(err, ":2: the line is longer"), "%s", err);
}

Test(conf, too_many_pools_and_secrets_are_refused)
{
	char text[2048] = "", path[64];

	for (int i = 0; i <= RP_SETUP_POOLS; i++)
		sprintf(text + strlen(text), "[pool %d]\npath=/p\n", i);
	cr_assert_eq(load(text), -E2BIG);
	for (int i = 0; i <= RP_SETUP_SECRETS; i++) {
		char bytes[32];
		int ret;

		snprintf(path, sizeof(path), "%s/s", dir);
		snprintf(bytes, sizeof(bytes), "0123456789abcd%05d", i);
		put_file(path, bytes, 19);
		ret = rp_conf_add_secret(c, "many", path, err);
		cr_assert_eq(ret, i < RP_SETUP_SECRETS ? 0 : -E2BIG);
	}
	unlink(path);
}

Test(conf, pools_of_the_command_line_are_named_by_their_files)
{
	cr_assert_eq(rp_conf_add_pool(c, "/a/vol", err), 0);
	cr_assert_eq(rp_conf_add_pool(c, "/b/vol", err), -EINVAL);
	cr_assert_not_null(strstr(err, "same name"));
	cr_assert_eq(rp_conf_add_pool(c, "/b/", err), -EINVAL);
	cr_assert_eq(c->npools, 1);
	cr_assert_str_eq(c->pools[0].name, "vol");
	cr_assert_eq(c->pools[0].rights[9],
		     RP_SETUP_READ | RP_SETUP_WRITE | RP_SETUP_ADMIN);
}
