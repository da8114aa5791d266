// SPDX-License-Identifier: BSD-2-Clause
/* The keys that fi_rpmemd has given out for a pool. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "core/list.h"
#include "util/export.h"

int rp_export_register(struct rp_exports *x, struct rp_export *e,
		       unsigned int part, bool writable, struct fid_mr **mr,
		       char *err)
{
	uint64_t len, at = rp_pool_part(&e->pool, part, &len);

	return rp_fabric_reg(&x->f, (char *)e->pool.data + at, len,
			     FI_REMOTE_READ | (writable ? FI_REMOTE_WRITE : 0),
			     FI_RMA_PMEM, mr, err);
}

/* Revoke a key. False while requests that use it are executed. */
static bool end_key(struct rp_export *e, struct rp_export_key *k)
{
	if (fi_close(&k->mr->fid)) {
		k->ending = true;
		return false;
	}
	TAILQ_REMOVE(&e->keys, k, link);
	free(k);
	return true;
}

bool rp_export_end_part(struct rp_export *e, unsigned int part)
{
	struct rp_export_key *k, *next;
	bool all = true;

	TAILQ_FOREACH_SAFE(k, &e->keys, link, next)
	{
		if (!part || !k->part || k->part == part)
			all &= end_key(e, k);
	}
	return all;
}

bool rp_export_end_secret(struct rp_export *e, unsigned int secret_index)
{
	struct rp_export_key *k, *next;
	bool all = true;

	TAILQ_FOREACH_SAFE(k, &e->keys, link, next)
	{
		if (k->secret_index == secret_index)
			all &= end_key(e, k);
	}
	return all;
}

void rp_export_end_ending(struct rp_export *e)
{
	struct rp_export_key *k, *next;

	TAILQ_FOREACH_SAFE(k, &e->keys, link, next)
	{
		if (k->ending)
			end_key(e, k);
	}
}

int rp_export_grant(struct rp_exports *x, struct rp_export *e,
		    unsigned int secret_index, unsigned int part, uint64_t *key,
		    char *err)
{
	struct rp_export_key *k;
	int ret;

	rp_export_end_ending(e);
	TAILQ_FOREACH (k, &e->keys, link) {
		if (k->secret_index != secret_index || k->part != part)
			continue;
		*key = fi_mr_key(k->mr);
		return k->ending
			       ? rp_err(err, -EBUSY,
					"requests with the former key of pool "
					"'%.100s' are still under way; try "
					"again",
					e->name)
			       : 0;
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		return rp_err(err, -ENOMEM, "out of memory");
	k->secret_index = secret_index;
	k->part = part;
	ret = rp_export_register(x, e, part,
				 e->rights[secret_index] & RP_SETUP_WRITE,
				 &k->mr, err);
	if (ret) {
		free(k);
		if (ret == -ENOMEM)
			rp_err(err, ret,
			       "fi_rpmemd has too few file descriptors or "
			       "memory for one more client of pool '%.100s'; "
			       "close one, or raise its limit (ulimit -n)",
			       e->name);
		return ret;
	}
	TAILQ_INSERT_HEAD(&e->keys, k, link);
	*key = fi_mr_key(k->mr);
	return 0;
}
