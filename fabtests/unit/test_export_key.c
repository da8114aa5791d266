// SPDX-License-Identifier: BSD-2-Clause
/* Keys of a pool: one for each secret and part, and their end. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "util/export.h"

#define READ  RP_SETUP_READ
#define WRITE (RP_SETUP_READ | RP_SETUP_WRITE)
#define KEYS  8

/* The registrations that were made, the newest last. */
static struct registration {
	struct fid_mr mr;
	void *buf;
	size_t len;
	uint64_t access;
	bool closed, in_use;
} made[KEYS];
static unsigned int count;

static struct rp_exports x;
static struct rp_export e;
static char data[4096], err[RP_ERR_LEN];

static int registration_close(struct fid *fid)
{
	struct registration *r = (struct registration *)fid;

	cr_assert_not(r->closed);
	if (r->in_use)
		return -FI_EBUSY;
	r->closed = true;
	return 0;
}

int __wrap_rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len,
			 uint64_t access, uint64_t flags, struct fid_mr **mr,
			 char *why);
int __wrap_rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len,
			 uint64_t access, uint64_t flags, struct fid_mr **mr,
			 char *why)
{
	static struct fi_ops ops = {
		.size = sizeof(ops),
		.close = registration_close,
	};
	struct registration *r = &made[count];

	(void)why;
	cr_assert_eq(f, &x.f);
	cr_assert_eq(flags, FI_RMA_PMEM);
	*r = (struct registration){
		.mr = {.fid.ops = &ops, .key = 100 + count},
		.buf = buf,
		.len = len,
		.access = access,
	};
	count++;
	*mr = &r->mr;
	return 0;
}

static void setup(void)
{
	TAILQ_INIT(&e.keys);
	strcpy(e.name, "vol");
	e.pool.data = data;
	e.pool.size = sizeof(data);
	e.pool.part_len = 1024;
	memset(e.rights, WRITE, sizeof(e.rights));
	count = 0;
}

TestSuite(export_key, .init = setup);

static uint64_t grant(unsigned int who, unsigned int part)
{
	uint64_t key = 0;

	cr_assert_eq(rp_export_grant(&x, &e, who, part, &key, err), 0, "%s",
		     err);
	return key;
}

Test(export_key, each_secret_has_one_key)
{
	cr_assert_eq(grant(1, 0), 100);
	cr_assert_eq(grant(2, 0), 101);
	cr_assert_eq(grant(1, 0), 100);
	cr_assert_eq(grant(2, 0), 101);
	cr_assert_eq(count, 2);
}

Test(export_key, key_has_the_rights_of_its_secret)
{
	e.rights[1] = READ;
	grant(1, 0);
	cr_assert_eq(made[0].access, FI_REMOTE_READ);
	grant(2, 0);
	cr_assert_eq(made[1].access, FI_REMOTE_READ | FI_REMOTE_WRITE);
}

Test(export_key, key_reaches_its_part_only)
{
	grant(1, 2);
	cr_assert_eq(made[0].buf, data + 1024);
	cr_assert_eq(made[0].len, 1024);
	grant(1, 0);
	cr_assert_eq(made[1].buf, data);
	cr_assert_eq(made[1].len, sizeof(data));
}

Test(export_key, key_ends_with_its_secret)
{
	grant(1, 0);
	grant(2, 0);
	cr_assert(rp_export_end_secret(&e, 1));
	cr_assert(made[0].closed);
	cr_assert_not(made[1].closed);
	cr_assert_eq(grant(1, 0), 102);
}

/* A key of the whole pool reaches the bytes of each part. */
Test(export_key, keys_end_that_reach_a_part)
{
	grant(1, 0);
	grant(1, 1);
	grant(1, 2);
	cr_assert(rp_export_end_part(&e, 1));
	cr_assert(made[0].closed);
	cr_assert(made[1].closed);
	cr_assert_not(made[2].closed);
	cr_assert(rp_export_end_part(&e, 0));
	cr_assert(made[2].closed);
}

Test(export_key, key_in_use_is_given_to_nobody_and_ends_later)
{
	uint64_t key;

	grant(1, 0);
	made[0].in_use = true;
	cr_assert_not(rp_export_end_secret(&e, 1));
	cr_assert_eq(rp_export_grant(&x, &e, 1, 0, &key, err), -EBUSY);
	cr_assert(strstr(err, "'vol' are still under way"), "%s", err);
	made[0].in_use = false;
	rp_export_end_ending(&e);
	cr_assert(made[0].closed);
	cr_assert_eq(grant(1, 0), 101);
}
