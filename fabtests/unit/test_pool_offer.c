// SPDX-License-Identifier: BSD-2-Clause
/*
 * A client that connects again, and the pool that the daemon then offers: the
 * client must write nothing to a pool that is not the one that it has opened.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "core/wire.h"
#include "libpool/pool.h"
#include "util/query_class.h"
#include "util/setup_server.h"

static struct rp_setup_export offered;
static int query_status; /* of the reply, as in attr->prov_errno */
static int lease;
static struct rp_setup_open last_open;

int rp_setup_open(const struct rp_setup_target *t, const char *name,
		  const struct rp_setup_open *how, struct rp_setup_export *out,
		  int *fd, char *err)
{
	/* A first connection ends at a daemon of another version. */
	cr_assert(how->again || offered.control != RP_WIRE_VERSION);
	last_open = *how;
	*out = offered;
	*fd = lease = dup(0);
	return 0;
}

int rp_query_class(struct fi_rpmem_ops *ops, struct fid_ep *ep, fi_addr_t peer,
		   uint64_t key, enum fi_rpmem_class required,
		   struct fi_rpmem_attr *attr, enum rp_class *reached)
{
	attr->len = offered.len;
	attr->prov_errno = query_status;
	*reached = RP_CLASS_PROCESS;
	return 0;
}

bool rp_setup_has_closed(int fd)
{
	return false;
}

int rp_secret_load(const char *path, struct rp_secret *s, char *err)
{
	return 0;
}

int rp_fabric_open(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		   char *err)
{
	cr_assert_fail("opens libfabric again");
	return -ENOSYS;
}

int rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len, uint64_t access,
		  uint64_t flags, struct fid_mr **mr, char *err)
{
	cr_assert_fail("registers again");
	return -ENOSYS;
}

int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err)
{
	cr_assert_gt(offered.fi_name_len, 0, "the target has its old address");
	return rp_err(err, -ENOMEM, "no memory for the address");
}

void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms)
{
}

const char *pool_text(struct rpmem_pool *p, const char *s)
{
	return s;
}

void work_connected(struct rpmem_pool *p)
{
}

/* A client that has opened a pool, which its daemon offers again. */
static struct rpmem_pool open_pool(void)
{
	static struct fid_ep ep;

	offered = (struct rp_setup_export){
		.uuid = {1, 2, 3},
		.len = 8192,
		.owner = 7,
		.base = "tcp",
		.control = RP_WIRE_VERSION,
	};
	return (struct rpmem_pool){
		.target.host = "host",
		.name = "vol",
		.f.ep = &ep,
		.now = {.ex = offered},
	};
}

/* The client connects; with an error, it says this, and closes its lease. */
static void expect_connect(struct rpmem_pool *p, int ret, const char *text)
{
	struct offer o;

	pool_connect(p, &o);
	cr_assert_eq(o.ret, ret, "%d: %s", o.ret, o.err);
	if (!ret) {
		close(o.lease);
		return;
	}
	cr_assert(strstr(o.err, text), "no '%s' in: %s", text, o.err);
	cr_assert_eq(o.lease, -1);
	cr_assert_eq(close(lease), -1, "the refused pool stays open");
}

Test(pool_offer, the_same_pool_or_a_longer_one_goes_on)
{
	struct rpmem_pool p = open_pool();

	expect_connect(&p, 0, NULL);
	offered.len += 4096;
	expect_connect(&p, 0, NULL);
}

Test(pool_offer, only_the_first_connection_of_an_owner_is_compared)
{
	struct rpmem_pool p = open_pool();
	struct fid_ep *ep = p.f.ep;

	p.compare = true;
	p.expected = 5;
	for (unsigned int exclusive = 0; exclusive < 2; exclusive++) {
		p.exclusive = p.take = exclusive;
		p.f.ep = NULL;
		offered.control++;
		expect_connect(&p, -EPROTONOSUPPORT, "speaks version");
		cr_assert_eq(last_open.compare, exclusive);
		cr_assert_eq(last_open.expected, 5);
		p.f.ep = ep;
		offered.control--;
		expect_connect(&p, 0, NULL);
		cr_assert_not(last_open.compare,
			      "the owner is this client now");
	}
}

Test(pool_offer, another_pool_under_the_same_name_is_refused)
{
	struct rpmem_pool p = open_pool();

	offered.uuid[sizeof(offered.uuid) - 1] = 1;
	expect_connect(
		&p, -ESTALE,
		"pool 'vol' on host was replaced by another pool; what was "
		"not committed to the first one is lost: open the pool again");
}

Test(pool_offer, a_shorter_pool_is_refused)
{
	struct rpmem_pool p = open_pool();

	offered.len--;
	expect_connect(
		&p, -ESTALE,
		"pool 'vol' on host has shrunk from 8192 to 8191 bytes; what "
		"was not committed is lost: open the pool again");
}

Test(pool_offer, a_shared_pool_that_had_an_exclusive_client_is_refused)
{
	struct rpmem_pool p = open_pool();

	offered.owner++;
	expect_connect(
		&p, -ESTALE,
		"another client has opened pool 'vol' on host exclusively");
	/* The daemon judges exclusive clients; observers write nothing. */
	p.observe = true;
	expect_connect(&p, 0, NULL);
	p.observe = false;
	p.exclusive = true;
	expect_connect(&p, 0, NULL);
}

Test(pool_offer, a_client_waits_for_its_right_to_write)
{
	struct rpmem_pool p = open_pool();

	offered.read_only = true;
	expect_connect(&p, -EAGAIN,
		       "only allows to read now; give it the right");
	p.now.ex.read_only = true;
	expect_connect(&p, 0, NULL);
}

Test(pool_offer, a_client_waits_for_memory_for_a_new_address)
{
	struct rpmem_pool p = open_pool();

	offered.fi_name_len = 1;
	expect_connect(&p, -EAGAIN, "no memory for the address");
}

Test(pool_offer, another_base_provider_is_refused)
{
	struct rpmem_pool p = open_pool();

	strcpy(offered.base, "verbs");
	expect_connect(&p, -ESTALE, "uses provider 'verbs' now, 'tcp' before");
}

Test(pool_offer, a_weaker_pool_is_refused_with_its_cause_and_the_remedy)
{
	struct rpmem_pool p = open_pool();

	p.required = FI_RPMEM_CLASS_POWER;
	query_status = RP_ST_CLASS;
	strcpy(offered.why, "the disk is in memory");
	expect_connect(
		&p, -EOPNOTSUPP,
		"pool 'vol' on host is of class process, weaker than required "
		"(power): the disk is in memory; put it on storage of class "
		"power there, or require less");
}
