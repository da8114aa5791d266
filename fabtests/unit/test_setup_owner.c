// SPDX-License-Identifier: BSD-2-Clause
/* Clients of a set-up server that hold, share, observe and take over a pool. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "setup_server_rig.h"

static int open_as(uint64_t owner, bool exclusive, bool again, int *fd)
{
	const struct rp_setup_open how = {
		.owner = owner,
		.exclusive = exclusive,
		.again = again,
	};

	err[0] = 0;
	return rp_setup_open(&target, "volume one", &how, &m.export, fd, err);
}

/* Open again until the server has noticed that a client has closed. */
static int open_after_close(uint64_t owner, bool exclusive, int *fd)
{
	int ret, tries = 0;

	while ((ret = open_as(owner, exclusive, false, fd)) == -EBUSY &&
	       tries++ < 1000)
		poll(NULL, 0, 10);
	return ret;
}

Test(setup_server, exclusive_client_is_alone, .timeout = 60)
{
	int a, b, c;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	cr_assert_eq(m.export.owner, 1);
	cr_assert_eq(open_as(2, true, false, &b), -EBUSY);
	cr_assert(strstr(err, "open exclusively at a client on 127.0.0.1"),
		  "%s", err);
	cr_assert_eq(open_as(2, false, false, &b), -EBUSY);
	cr_assert_eq(m.export.owner, 1, "a refused client takes nothing");
	/* The other pool has owners of its own. */
	cr_assert_eq(rp_setup_open(&target, "b",
				   &(struct rp_setup_open){.owner = 3},
				   &m.export, &c, err),
		     0, "%s", err);
	close(c);
	close(a);
	cr_assert_eq(open_after_close(2, false, &b), 0, "%s", err);
	cr_assert_eq(open_as(3, false, false, &c), 0, "%s", err);
	cr_assert_eq(open_as(4, true, false, &a), -EBUSY);
	cr_assert(strstr(err, "is open at a client"), "%s", err);
	close(b);
	close(c);
	cr_assert_eq(open_after_close(4, true, &a), 0, "%s", err);
	cr_assert_eq(m.export.owner, 4);
	close(a);
	stop_server();
}

static int observe_as(uint64_t owner, int *fd)
{
	const struct rp_setup_open how = {.owner = owner, .observe = true};

	err[0] = 0;
	return rp_setup_open(&target, "volume one", &how, &m.export, fd, err);
}

Test(setup_server, observer_is_beside_an_exclusive_client, .timeout = 60)
{
	int a, b, c;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	cr_assert(!m.export.read_only);
	cr_assert_eq(observe_as(2, &b), 0, "%s", err);
	cr_assert(m.export.read_only);
	cr_assert_eq(m.export.owner, 1, "an observer takes nothing");
	cr_assert_eq(open_as(3, false, false, &c), -EBUSY);
	close(a);
	/* The observer does not keep the next client out. */
	cr_assert_eq(open_after_close(4, true, &a), 0, "%s", err);
	cr_assert_eq(m.export.owner, 4);
	close(a);
	cr_assert_eq(open_after_close(5, false, &a), 0, "%s", err);
	cr_assert(!m.export.read_only);
	close(a);
	close(b);
	stop_server();
}

Test(setup_server, holder_outlives_deadlines_and_crowds, .timeout = 60)
{
	int holder, fd[12], other_fd;

	start_server(NULL, 4, 300);
	cr_assert_eq(open_as(1, true, false, &holder), 0, "%s", err);
	for (int i = 0; i < 12; i++)
		fd[i] = connect_to();
	/* Wait longer than the deadline for connections that hold no pool. */
	cr_assert_eq(read_to_end(fd[11], (uint8_t[64]){0}, 64), 56);
	poll(NULL, 0, 600);
	cr_assert_eq(open_as(2, true, false, &other_fd), -EBUSY);
	for (int i = 0; i < 12; i++)
		close(fd[i]);
	close(holder);
	cr_assert_eq(open_after_close(2, true, &other_fd), 0, "%s", err);
	close(other_fd);
	stop_server();
}

Test(setup_server, same_client_replaces_its_lost_connection, .timeout = 60)
{
	int a, b, c;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	cr_assert_eq(open_as(1, true, true, &b), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 1, "it is the owner already");
	/*
	 * Closing the owner's first connection changes nothing, because it has
	 * a second one.
	 */
	close(a);
	poll(NULL, 0, 100);
	cr_assert_eq(open_as(2, true, false, &c), -EBUSY);
	cr_assert_eq(atomic_load(&owner_releases), 0, "the owner stays");
	close(b);
	cr_assert_eq(open_after_close(2, true, &c), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_releases), 1);
	/* A daemon that stops leaves its owners to the next daemon. */
	stop_server();
	cr_assert_eq(atomic_load(&owner_releases), 1);
	close(c);
}

/* After a restart only the former owner may open the pool; others wait. */
Test(setup_server, owner_is_awaited, .timeout = 60)
{
	int a, b;

	start_server(&secret, 0, 0);
	exports[0].owner = 1;
	atomic_store(&last_owner_may_return, true);
	cr_assert_eq(open_as(2, true, false, &b), -EBUSY);
	cr_assert(strstr(err, "may come back"), "%s", err);
	cr_assert_eq(open_as(2, false, false, &b), -EBUSY);
	cr_assert_eq(open_as(1, true, true, &a), 0, "%s", err);
	atomic_store(&last_owner_may_return, false);
	close(a);
	cr_assert_eq(open_after_close(2, true, &b), 0, "%s", err);
	close(b);
	stop_server();
}

Test(setup_server, follower_shuts_the_former_owner_out, .timeout = 60)
{
	int a, b;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	close(a);
	cr_assert_eq(open_after_close(2, true, &b), 0, "%s", err);
	cr_assert_eq(open_as(1, true, true, &a), -ESTALE);
	cr_assert(strstr(err, "meanwhile"), "%s", err);
	close(b);
	/* The former owner is refused even when its successor has closed. */
	poll(NULL, 0, 100);
	cr_assert_eq(open_as(1, true, true, &a), -ESTALE);
	/* The former owner may open the pool as a new client. */
	cr_assert_eq(open_after_close(1, true, &a), 0, "%s", err);
	close(a);
	stop_server();
}

/*
 * An owner that opens the pool again has lost its connection; writes on it can
 * arrive later. Its former key ends, unless it reconnects with the same
 * endpoint.
 */
Test(setup_server, owner_that_opens_again_gets_another_key, .timeout = 60)
{
	int a, b;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 1);
	cr_assert_eq(open_as(1, true, true, &b), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 1);
	close(a);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 2);
	close(a);
	close(b);
	stop_server();
}

static int open_expecting(uint64_t owner, bool take, uint64_t expected, int *fd)
{
	const struct rp_setup_open how = {
		.owner = owner,
		.exclusive = true,
		.take = take,
		.compare = true,
		.expected = expected,
	};

	err[0] = 0;
	return rp_setup_open(&target, "volume one", &how, &m.export, fd, err);
}

/* A client has looked at the pool, and another one took it before this one. */
Test(setup_server, client_that_saw_another_owner_takes_nothing, .timeout = 60)
{
	int a, b, c;

	start_server(NULL, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	for (int take = 0; take < 2; take++) {
		cr_assert_eq(open_expecting(2, take, 7, &b), -ESTALE);
		cr_assert(strstr(err, "meanwhile"), "%s", err);
		cr_assert_eq(open_expecting(2, take, 0, &b), -ESTALE);
	}
	cr_assert_eq(atomic_load(&owner_changes), 1);
	cr_assert_eq(open_as(3, true, false, &b), -EBUSY, "1 still has it");
	cr_assert_eq(open_expecting(2, false, 1, &b), -EBUSY);
	cr_assert_eq(open_expecting(2, true, 1, &b), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2);
	/* The reply may have been lost: the client asks again. */
	cr_assert_eq(open_expecting(2, true, 1, &c), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2);
	close(a);
	close(b);
	close(c);
	/* The last owner counts, also when it has closed the pool. */
	cr_assert_eq(open_after_close(4, true, &a), 0, "%s", err);
	close(a);
	poll(NULL, 0, 100);
	cr_assert_eq(open_expecting(5, false, 2, &b), -ESTALE);
	while (open_expecting(5, false, 4, &b) == -EBUSY)
		poll(NULL, 0, 10);
	cr_assert_eq(m.export.owner, 5);
	close(b);
	stop_server();
}

/* A displaced client is refused at once, so that it does not wait in vain. */
Test(setup_server, displaced_client_is_refused_for_good, .timeout = 60)
{
	int a, b;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	/* A client comes back after a restart; another was faster. */
	for (int wait = 0; wait < 2; wait++) {
		atomic_store(&last_owner_may_return, wait);
		cr_assert_eq(open_as(2, true, true, &b), -ESTALE);
		cr_assert(strstr(err, "another client"), "%s", err);
		cr_assert_eq(open_as(3, false, true, &b), -ESTALE);
		cr_assert(strstr(err, "another client"), "%s", err);
	}
	close(a);
	poll(NULL, 0, 100);
	/* A sharing client is refused while a later owner may return. */
	cr_assert_eq(open_as(3, false, true, &b), -ESTALE);
	atomic_store(&last_owner_may_return, false);
	stop_server();
}

/* The former owner's kept bytes would replace those of other clients. */
Test(setup_server, client_that_shares_shuts_the_former_owner_out, .timeout = 60)
{
	int a, b, c;

	start_server(&secret, 0, 0);
	exports[0].owner = 0;
	cr_assert_eq(open_as(5, false, false, &c), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 0, "there was no owner");
	close(c);
	cr_assert_eq(open_after_close(1, true, &a), 0, "%s", err);
	close(a);
	cr_assert_eq(open_after_close(2, false, &b), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2 | RP_SETUP_SHARED);
	cr_assert_eq(atomic_load(&owner_changes), 2);
	/* A client that shared the pool before finds another owner now. */
	cr_assert_eq(open_as(5, false, true, &c), 0, "%s", err);
	cr_assert_eq(m.export.owner, 2 | RP_SETUP_SHARED);
	close(c);
	cr_assert_eq(open_as(3, false, false, &c), 0, "%s", err);
	cr_assert_eq(atomic_load(&owner_changes), 2, "it disturbs nobody");
	cr_assert_eq(open_as(1, true, true, &a), -ESTALE);
	cr_assert(strstr(err, "meanwhile"), "%s", err);
	close(b);
	close(c);
	poll(NULL, 0, 100);
	cr_assert_eq(open_as(1, true, true, &a), -ESTALE);
	stop_server();
}

/* A client that comes back to a shared pool displaces no owner. */
Test(setup_server, client_that_shared_displaces_no_owner, .timeout = 60)
{
	int a, b;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(1, true, false, &a), 0, "%s", err);
	close(a);
	poll(NULL, 0, 100);
	while (open_as(2, false, true, &b) == -EBUSY)
		poll(NULL, 0, 10);
	cr_assert_eq(m.export.owner, 1);
	close(b);
	poll(NULL, 0, 100);
	cr_assert_eq(open_as(1, true, true, &a), 0, "%s", err);
	close(a);
	stop_server();
}

Test(setup_server, owner_that_cannot_be_remembered_is_refused, .timeout = 60)
{
	int fd;

	start_server(&secret, 0, 0);
	cr_assert_eq(open_as(13, true, false, &fd), -EBUSY);
	cr_assert(strstr(err, "the disk is broken"), "%s", err);
	cr_assert_eq(open_as(2, true, false, &fd), 0, "it holds nothing: %s",
		     err);
	close(fd);
	target.secret = &other;
	cr_assert_eq(open_as(2, true, false, &fd), -EACCES);
	stop_server();
}
