// SPDX-License-Identifier: BSD-2-Clause
/* Set-up protocol: several secrets, their rights, and withdrawal. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "setup_rig.h"

#define R RP_SETUP_READ
#define W (R | RP_SETUP_WRITE)
#define A (W | RP_SETUP_ADMIN)

/* Slots of the secrets in the server's table. */
enum {
	APP = 3,
	BACKUP = 7,
	OPS = 63
};

static struct rp_setup_export exports[3];
static struct rp_setup_secrets known;
static unsigned int rights[3][RP_SETUP_SECRETS], max_clients;
static struct rp_setup_server *server;
static struct rp_setup_target target;
static struct rp_secret secrets[3];
static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;

static unsigned int find_rights(void *arg, unsigned int i, unsigned int who)
{
	return rights[i][who];
}

static unsigned int find_clients(void *arg, unsigned int i)
{
	return max_clients;
}

/*
 * Parts of "volume one"; owner_of[0] is the owner of the whole pool, the others
 * of the parts.
 */
static unsigned int nparts = 1;
static uint64_t owner_of[RP_SETUP_PARTS + 1];
static atomic_uint released = 99;

static unsigned int find_parts(void *arg, unsigned int i, unsigned int part,
			       uint64_t *owner)
{
	if (i)
		return 1;
	*owner = owner_of[part];
	return nparts;
}

static int divide(void *arg, unsigned int i, unsigned int parts, char *why)
{
	cr_assert_eq(i, 0);
	if (parts > 2)
		return rp_err(why, -EINVAL, "too many parts");
	nparts = parts;
	return 0;
}

static void release_part(void *arg, unsigned int i, unsigned int part)
{
	cr_assert_eq(i, 0);
	atomic_store(&released, part);
}

static bool key_in_use;

static int grant_export(void *arg, unsigned int i, unsigned int who,
			unsigned int part, struct rp_setup_export *e, char *why)
{
	e->key = 1000 * i + 100 * part + who;
	if (part)
		e->owner = owner_of[part];
	return key_in_use ? rp_err(why, -EBUSY, "the key is in use") : 0;
}

static int set_owner(void *arg, unsigned int i, unsigned int part,
		     uint64_t owner, char *why)
{
	exports[i].owner = owner_of[0] = owner_of[part] = owner;
	if (!part)
		owner_of[1] = owner_of[2] = 0;
	return 0;
}

static void *serve_thread(void *arg)
{
	struct pollfd pfd = {rp_setup_server_fd(server), POLLIN, 0};

	while (!atomic_load(&stop)) {
		poll(&pfd, 1, 5);
		pthread_mutex_lock(&lock);
		rp_setup_server_run(server);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void start(void)
{
	const struct rp_setup_server_attr attr = {
		.listener = rp_setup_listen(NULL, 0, err),
		.secrets = &known,
		.exports = exports,
		.nexports = 3,
		.rights = find_rights,
		.clients = find_clients,
		.grant = grant_export,
		.parts = find_parts,
		.divide = divide,
		.release = release_part,
		.set_owner = set_owner,
	};

	/* Slot 1 is free, as it is after the removal of a pool. */
	exports[0] = pools[0];
	exports[2] = pools[1];
	known.needed = true;
	for (int i = 0; i < 3; i++) {
		secrets[i] = secret;
		secrets[i].bytes[0] = (uint8_t)i;
	}
	known.v[APP] = secrets[0];
	known.v[BACKUP] = secrets[1];
	known.v[OPS] = secrets[2];
	rights[0][APP] = W;
	rights[0][BACKUP] = R;
	rights[0][OPS] = A;
	rights[2][OPS] = W;
	cr_assert_eq(rp_setup_server_new(&attr, &server, err), 0, "%s", err);
	strcpy(target.host, "127.0.0.1");
	target.port = rp_setup_server_port(server);
	target.timeout_ms = 3000;
	cr_assert_eq(pthread_create(&thread, NULL, serve_thread, NULL), 0);
}

static void stop_server(void)
{
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	rp_setup_server_delete(server);
}

static int fetch(const struct rp_secret *s, const char *pool)
{
	target.secret = s;
	err[0] = 0;
	return rp_setup_fetch_export(&target, pool, &m.export, err);
}

static int open_pool(const struct rp_secret *s, uint64_t owner, bool exclusive,
		     bool take, int *fd)
{
	const struct rp_setup_open how = {
		.owner = owner,
		.exclusive = exclusive,
		.take = take,
	};

	target.secret = s;
	err[0] = 0;
	return rp_setup_open(&target, "volume one", &how, &m.export, fd, err);
}

/* Whether the daemon has closed a connection that holds a pool. */
static bool is_closed(int fd)
{
	struct pollfd pfd = {fd, POLLIN, 0};

	return poll(&pfd, 1, 300) == 1 && recv(fd, &(char){0}, 1, 0) <= 0;
}

TestSuite(setup_rights, .init = start, .fini = stop_server, .timeout = 60);

Test(setup_rights, each_secret_has_a_key_with_its_rights)
{
	cr_assert_eq(fetch(&secrets[0], "volume one"), 0, "%s", err);
	cr_assert_eq(m.export.key, APP);
	cr_assert_not(m.export.read_only);
	cr_assert_eq(fetch(&secrets[1], "volume one"), 0, "%s", err);
	cr_assert_eq(m.export.key, BACKUP);
	cr_assert(m.export.read_only);
	cr_assert_eq(fetch(&secrets[2], "b"), 0, "%s", err);
	cr_assert_eq(m.export.key, 2000 + OPS);
	cr_assert_eq(fetch(&other, "volume one"), -EACCES);
	pthread_mutex_lock(&lock);
	key_in_use = true;
	pthread_mutex_unlock(&lock);
	cr_assert_eq(fetch(&secrets[0], "volume one"), -EBUSY);
	cr_assert(strstr(err, "the key is in use"), "%s", err);
}

Test(setup_rights, pool_without_a_right_does_not_exist)
{
	struct rp_setup_list list;

	cr_assert_eq(fetch(&secrets[0], "b"), -ENOENT);
	cr_assert(strstr(err, "for this secret; there is 'volume one'"), "%s",
		  err);
	cr_assert_eq(rp_setup_fetch_list(&target, &list, err), 0, "%s", err);
	cr_assert_eq(list.n, 1);
	cr_assert_str_eq(list.v[0].name, "volume one");
	target.secret = &secrets[2];
	cr_assert_eq(rp_setup_fetch_list(&target, &list, err), 0, "%s", err);
	cr_assert_eq(list.n, 2);
}

Test(setup_rights, reader_cannot_have_a_pool_for_itself_nor_set_a_length)
{
	int fd;

	cr_assert_eq(open_pool(&secrets[1], 1, true, false, &fd), -EACCES);
	cr_assert(strstr(err, "allow to write to pool"), "%s", err);
	cr_assert_eq(rp_setup_set_length(&target, "volume one", 1, err),
		     -EACCES);
	/* A client that only reads shares the pool, and displaces no owner. */
	cr_assert_eq(open_pool(&secrets[1], 1, false, false, &fd), 0, "%s",
		     err);
	cr_assert_eq(m.export.owner, pools[0].owner);
	close(fd);
}

Test(setup_rights, administrator_takes_a_pool)
{
	int a, b;

	cr_assert_eq(open_pool(&secrets[0], 1, true, false, &a), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[0], 2, true, true, &b), -EACCES);
	cr_assert(strstr(err, "allow to administer pool"), "%s", err);
	cr_assert_not(is_closed(a));
	cr_assert_eq(open_pool(&secrets[2], 2, true, true, &b), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2);
	cr_assert(is_closed(a));
	cr_assert_not(is_closed(b));
	close(a);
	close(b);
}

Test(setup_rights, number_of_clients_is_limited)
{
	int a, b, c;

	pthread_mutex_lock(&lock);
	max_clients = 2;
	pthread_mutex_unlock(&lock);
	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &a), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[1], 2, false, false, &b), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[0], 3, false, false, &c), -EBUSY);
	cr_assert(strstr(err, "open at 2 clients, and its configuration "
			      "allows 2; close it at 1 of them"),
		  "%s", err);
	pthread_mutex_lock(&lock);
	max_clients = 1;
	pthread_mutex_unlock(&lock);
	cr_assert_eq(open_pool(&secrets[0], 3, false, false, &c), -EBUSY);
	cr_assert(strstr(err, "open at 2 clients, and its configuration "
			      "allows 1; close it at 2 of them"),
		  "%s", err);
	pthread_mutex_lock(&lock);
	max_clients = 2;
	pthread_mutex_unlock(&lock);
	/* A client that connects a second time counts once for the limit. */
	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &c), 0, "%s", err);
	/* A client that has closed makes room, noticed or not. */
	close(b);
	cr_assert_eq(open_pool(&secrets[0], 3, false, false, &b), 0, "%s", err);
	close(a);
	close(b);
	close(c);
}

Test(setup_rights, pools_close_for_those_that_lose_a_right)
{
	int a, b, c;

	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &a), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[1], 2, false, false, &b), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[2], 3, false, false, &c), 0, "%s", err);
	/*
	 * The first secret loses writing, the second one gains it, the third
	 * one is removed.
	 */
	pthread_mutex_lock(&lock);
	rights[0][APP] = R;
	rights[0][BACKUP] = W;
	rights[0][OPS] = 0;
	rp_secret_wipe(&known.v[OPS]);
	rp_setup_server_check_rights(server);
	pthread_mutex_unlock(&lock);
	cr_assert(is_closed(a));
	cr_assert_not(is_closed(b));
	cr_assert(is_closed(c));
	cr_assert_eq(fetch(&secrets[2], "volume one"), -EACCES);
	close(a);
	close(b);
	close(c);
}

/* When all slots are free, no client is accepted. */
Test(setup_rights, free_slots_fit_no_client)
{
	const struct rp_secret none = {.len = 0};

	pthread_mutex_lock(&lock);
	memset(known.v, 0, sizeof(known.v));
	pthread_mutex_unlock(&lock);
	cr_assert_eq(fetch(&secrets[0], "volume one"), -EACCES);
	cr_assert_eq(fetch(&none, "volume one"), -EACCES);
}

/* --- parts of a pool */

static int open_part(uint64_t owner, unsigned int parts, unsigned int part,
		     bool again, int *fd)
{
	const struct rp_setup_open how = {
		.owner = owner,
		.exclusive = true,
		.again = again,
		.parts = parts,
		.part = part,
	};

	target.secret = &secrets[0];
	err[0] = 0;
	return rp_setup_open(&target, pools[0].name, &how, &m.export, fd, err);
}

static int divide_as(uint64_t owner, unsigned int parts)
{
	err[0] = 0;
	target.secret = &secrets[0];
	return rp_setup_divide(&target, pools[0].name, owner, parts, err);
}

/* Close a pool, and wait until the server has noticed. */
static void close_and_wait(int fd, unsigned int part)
{
	atomic_store(&released, 99);
	close(fd);
	while (atomic_load(&released) != part)
		poll(NULL, 0, 5);
}

Test(setup_rights, only_the_owner_of_all_divides_a_pool, .timeout = 60)
{
	int a, b;

	cr_assert_eq(divide_as(1, 2), -EBUSY, "nobody has it open");
	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &b), 0, "%s", err);
	cr_assert_eq(divide_as(1, 2), -EBUSY, "it is shared");
	close(b);
	while (open_part(1, 1, 0, false, &a) == -EBUSY)
		poll(NULL, 0, 5);
	cr_assert_eq(divide_as(2, 2), -EBUSY, "another client has it open");
	cr_assert_eq(divide_as(1, 3), -ENXIO);
	cr_assert(strstr(err, "too many parts"), "%s", err);
	cr_assert_eq(divide_as(1, 2), 0, "%s", err);
	close_and_wait(a, 0);
	/* The number of parts must be right; the error names both numbers. */
	cr_assert_eq(open_part(2, 1, 0, false, &a), -ENXIO);
	cr_assert(strstr(err, "has 2 part(s), not 1"), "%s", err);
	cr_assert_eq(open_part(2, 3, 3, false, &a), -ENXIO);
	cr_assert(strstr(err, "has 2 part(s), not 3"), "%s", err);
	cr_assert_eq(owner_of[0], 1, "a refused client takes nothing");
	cr_assert_eq(open_part(2, 2, 2, false, &a), 0, "%s", err);
	cr_assert_eq(divide_as(2, 1), -EBUSY, "it has a part only");
	close(a);
}

Test(setup_rights, owners_of_two_parts_are_apart, .timeout = 60)
{
	int a, b, c;

	nparts = 2;
	cr_assert_eq(open_part(1, 2, 1, false, &a), 0, "%s", err);
	cr_assert_eq(m.export.owner, 1);
	cr_assert_eq(m.export.key % 1000 / 100, 1);
	cr_assert_eq(open_part(2, 2, 2, false, &b), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2);
	cr_assert_eq(m.export.key % 1000 / 100, 2);
	cr_assert_eq(open_part(3, 2, 2, false, &c), -EBUSY);
	cr_assert(strstr(err, "a part of pool"), "%s", err);
	cr_assert_eq(open_part(3, 0, 0, false, &c), -EBUSY);
	close_and_wait(b, 2);
	cr_assert_eq(open_part(3, 0, 0, false, &c), -EBUSY, "1 has its part");
	/* A part's new owner leaves the other part's owner alone. */
	cr_assert_eq(open_part(3, 2, 2, false, &c), 0, "%s", err);
	cr_assert_eq(open_part(2, 2, 2, true, &b), -ESTALE);
	cr_assert_eq(open_part(1, 2, 1, true, &b), 0, "%s", err);
	close(a);
	close_and_wait(c, 2);
	close_and_wait(b, 1);
	/* An owner of the whole pool displaces the owners of both parts. */
	cr_assert_eq(open_part(4, 0, 0, false, &a), 0, "%s", err);
	close_and_wait(a, 0);
	cr_assert_eq(open_part(1, 2, 1, true, &a), -ESTALE);
	/* An owner of a part displaces the owner of the whole pool. */
	cr_assert_eq(open_part(5, 2, 1, false, &a), 0, "%s", err);
	close_and_wait(a, 1);
	cr_assert_eq(open_part(4, 0, 0, true, &a), -ESTALE);
}

Test(setup_rights, taking_a_part_leaves_the_other, .timeout = 60)
{
	const struct rp_setup_open take = {.owner = 3,
					   .exclusive = true,
					   .take = true,
					   .parts = 2,
					   .part = 1};
	int a, b, c;
	char byte;

	nparts = 2;
	rights[0][APP] |= A;
	cr_assert_eq(open_part(1, 2, 1, false, &a), 0, "%s", err);
	cr_assert_eq(open_part(2, 2, 2, false, &b), 0, "%s", err);
	cr_assert_eq(rp_setup_open(&target, pools[0].name, &take, &m.export, &c,
				   err),
		     0, "%s", err);
	cr_assert_eq(recv(a, &byte, 1, 0), 0, "it was closed");
	cr_assert(recv(b, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(a);
	close(b);
	close(c);
}
