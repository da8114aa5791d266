/* SPDX-License-Identifier: BSD-2-Clause */
/* The pools that fi_rpmemd exports, and the keys that it has given out. */
#ifndef RP_UTIL_EXPORT_H
#define RP_UTIL_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "util/conf.h"
#include "util/fabric.h"
#include "util/pool.h"
#include "util/setup_server.h"

/* The key of one secret for one pool: a registration with its rights. */
struct rp_export_key {
	struct fid_mr *mr; /* NULL: not asked for yet */
	bool ending;	   /* as soon as no request uses it */
};

struct rp_export_closer; /* a thread that writes a pool back */

/* One pool; a free slot has no path. */
struct rp_export {
	char name[RP_SETUP_NAME + 1];
	char *path;
	struct rp_pool pool;
	unsigned int clients; /* that may have it open; 0: any number */
	uint8_t rights[RP_SETUP_SECRETS]; /* RP_SETUP_READ..., by secret */
	bool open;
	bool made;    /* by this process */
	bool awaited; /* its owner has not closed it, and may come back */
	bool longer;  /* its file is, and its blocks are allocated */
	bool leaving; /* closed as soon as no request uses its keys */
	struct rp_export_closer *closer; /* NULL: not yet */
	/* Registered for the class and the port; its key is not given out. */
	struct fid_mr *mr;
	struct rp_export_key keys[RP_SETUP_SECRETS];
	char withdrawn[RP_ERR_LEN]; /* reason, or "" while it is served */
};

struct rp_exports {
	struct rp_fabric f;
	int cq_fd;
	int closed_fd; /* readable: a closer has ended */
	char base[64]; /* provider */
	uint64_t incarnation;
	uint64_t await_until; /* ms */
	bool served;	      /* clients were able to connect */
	struct rp_export v[RP_SETUP_POOLS];
	struct rp_setup_export offers[RP_SETUP_POOLS]; /* of v */
};

/*
 * Open the fabric. Functions that return an exit code of util/exits.h: 0, or
 * the reason in err.
 */
int rp_exports_open(struct rp_exports *x, const char *base, const char *source,
		    char *err);
/* Let pools be opened that have lost bytes in a dirty shutdown; print it. */
int rp_exports_accept_losses(const struct rp_conf *c, char *err);
/*
 * Open a pool, which create makes if it does not exist, and register it.
 * Returns an exit code; what was made is removed again.
 */
int rp_exports_add(struct rp_exports *x, const struct rp_conf_pool *conf,
		   char *err);
/*
 * Whether the pool cannot be added yet, because one that leaves has its file or
 * the last slot.
 */
bool rp_exports_must_wait(const struct rp_exports *x,
			  const struct rp_conf_pool *conf);
/*
 * End a pool: clients do not find it any more, and its keys end. A thread
 * closes it, which rp_exports_check() starts and ends.
 */
void rp_exports_remove(struct rp_exports *x, unsigned int i);
/* Slot of the pool with that name and path, or -1. */
int rp_exports_find(const struct rp_exports *x, const char *name,
		    const char *path);
/*
 * Set rights and limits of a pool. The keys of secrets whose right to read or
 * write has changed end.
 */
void rp_exports_set_rights(struct rp_exports *x, unsigned int i,
			   const uint8_t *rights, unsigned int clients);
/*
 * Whether the pool is still the file at its path, which may have been renamed
 * or removed: only another file there is another pool.
 */
bool rp_exports_is_at_path(const struct rp_exports *x, unsigned int i);
/* Whether a secret has a key, perhaps one that is ending. */
bool rp_exports_use_secret(const struct rp_exports *x, unsigned int who);
/* Allocate the new blocks of files that were made longer. Returns how many. */
unsigned int rp_exports_find_longer(struct rp_exports *x);
/*
 * Withdraw pools whose files have gone, serve the new length of longer ones,
 * end keys and pools. Returns whether a pool has been closed.
 */
bool rp_exports_check(struct rp_exports *x);
/*
 * Close everything: the fabric before the pools, as no write may arrive after a
 * pool is marked clean. failed: no pool is marked. Returns an exit code.
 */
int rp_exports_close(struct rp_exports *x, bool failed, char *err);

/* Fill in the callbacks of the set-up server. */
void rp_exports_serve(struct rp_exports *x, struct rp_setup_server_attr *attr);

#endif
