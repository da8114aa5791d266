// SPDX-License-Identifier: BSD-2-Clause
/* Set-up: several secrets, the rights of each, and how they end. */
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

/* Slots of the secrets. */
enum {
	APP = 3,
	BACKUP = 7,
	OPS = 63
};

static struct rp_setup_export exports[3];
static struct rp_setup_secrets known;
static unsigned int rights[3][RP_SETUP_SECRETS], most;
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
	return most;
}

static bool key_in_use;

static int grant(void *arg, unsigned int i, unsigned int who, uint64_t *key,
		 char *why)
{
	*key = 1000 * i + who;
	return key_in_use ? rp_err(why, -EBUSY, "the key is in use") : 0;
}

static int set_owner(void *arg, unsigned int i, uint64_t owner, char *why)
{
	exports[i].owner = owner;
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
		.secrets = &known,
		.exports = exports,
		.nexports = 3,
		.rights = find_rights,
		.clients = find_clients,
		.grant = grant,
		.set_owner = set_owner,
	};

	/* Slot 1 is free, as after the removal of a pool. */
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

static void finish(void)
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

/* Whether the daemon closes a connection that holds a pool. */
static bool is_closed(int fd)
{
	struct pollfd pfd = {fd, POLLIN, 0};

	return poll(&pfd, 1, 300) == 1 && recv(fd, &(char){0}, 1, 0) <= 0;
}

TestSuite(setup_rights, .init = start, .fini = finish, .timeout = 60);

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
	/* It shares the pool, and displaces no owner. */
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
	most = 2;
	pthread_mutex_unlock(&lock);
	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &a), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[1], 2, false, false, &b), 0, "%s", err);
	cr_assert_eq(open_pool(&secrets[0], 3, false, false, &c), -EBUSY);
	cr_assert(strstr(err, "open at 2 clients, and its configuration "
			      "allows 2; close it at 1 of them"),
		  "%s", err);
	pthread_mutex_lock(&lock);
	most = 1;
	pthread_mutex_unlock(&lock);
	cr_assert_eq(open_pool(&secrets[0], 3, false, false, &c), -EBUSY);
	cr_assert(strstr(err, "open at 2 clients, and its configuration "
			      "allows 1; close it at 2 of them"),
		  "%s", err);
	pthread_mutex_lock(&lock);
	most = 2;
	pthread_mutex_unlock(&lock);
	/* A client that connects again is no further one. */
	cr_assert_eq(open_pool(&secrets[0], 1, false, false, &c), 0, "%s", err);
	/* One that has gone makes room, noticed or not. */
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
	/* The first may only read now, the second one more, the third is gone.
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

/* No secret is left: that lets nobody in. */
Test(setup_rights, free_slots_fit_no_client)
{
	const struct rp_secret none = {.len = 0};

	pthread_mutex_lock(&lock);
	memset(known.v, 0, sizeof(known.v));
	pthread_mutex_unlock(&lock);
	cr_assert_eq(fetch(&secrets[0], "volume one"), -EACCES);
	cr_assert_eq(fetch(&none, "volume one"), -EACCES);
}
