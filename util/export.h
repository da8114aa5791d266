/* SPDX-License-Identifier: BSD-2-Clause */
/* The pools that fi_rpmemd exports, and the keys that it has given out. */
#ifndef RP_UTIL_EXPORT_H
#define RP_UTIL_EXPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "util/conf.h"
#include "util/export_worker.h"
#include "util/fabric.h"
#include "util/pool.h"
#include "util/setup_server.h"

/* The key of one secret for a part of a pool: a registration with rights. */
struct rp_export_key {
	TAILQ_ENTRY(rp_export_key) link;
	struct fid_mr *mr;
	unsigned int secret_index, part; /* part 0: the whole pool */
	bool ending; /* revoke the key when no request uses it */
};
TAILQ_HEAD(rp_export_keys, rp_export_key);

/* One exported pool; a free slot has no path. */
struct rp_export {
	char name[RP_SETUP_NAME + 1];
	char *path;
	struct rp_pool pool;
	unsigned int clients; /* most clients at once; 0: any number */
	uint8_t rights[RP_SETUP_SECRETS]; /* RP_SETUP_READ..., per secret */
	bool open;			  /* rp_pool_open() has succeeded */
	bool created_file;		  /* this process created the file */
	uint64_t awaited;  /* bits of parts whose owners may reconnect */
	uint64_t released; /* parts released while a new owner is set */
	bool longer;	   /* file has grown, and its blocks are allocated */
	bool leaving;	   /* close the pool when no request uses its keys */
	bool grows; /* file has grown, and its blocks are to be allocated */
	bool sets_owner;		 /* a thread sets the owner of a part */
	unsigned int settling;		 /* the part whose owner is set */
	struct rp_export_worker *worker; /* NULL: no thread works on the pool */
	uint64_t failed_owner;	  /* its job of set_owner failed; 0: none */
	char failure[RP_ERR_LEN]; /* why that job failed */
	/* Registered to get class and port; clients get keys of `keys` only. */
	struct fid_mr *mr;
	struct rp_export_keys keys;
	char withdrawn[RP_ERR_LEN]; /* reason; "" while the pool is served */
};

struct rp_exports {
	struct rp_fabric f;
	int cq_fd;
	int ended_fd;  /* readable when a worker has ended */
	char base[64]; /* name of the base provider */
	uint64_t incarnation;
	uint64_t await_until; /* ms: end of RP_SETUP_AWAIT_MS */
	bool served;	      /* the start succeeded: clients can connect */
	bool embedded;	      /* not in fi_rpmemd: no text on stdout, no handler
			       * of signals */
	struct rp_export v[RP_SETUP_POOLS];
	struct rp_setup_export offers[RP_SETUP_POOLS]; /* one per pool in v */
};

/*
 * Open the fabric. Returns an exit code: 0, or a code of util/exit_codes.h with
 * the reason in err.
 */
int rp_exports_open(struct rp_exports *x, const char *base, const char *source,
		    char *err);
/* Accept pools that lost bytes in a dirty shutdown; print each loss. */
int rp_exports_accept_losses(const struct rp_conf *c, char *err);
/*
 * Open a pool and register it; if it does not exist and conf->create has a
 * size, create it first. Returns an exit code; on failure a new pool is
 * removed.
 */
int rp_exports_add(struct rp_exports *x, const struct rp_conf_pool *conf,
		   char *err);
/*
 * Whether the pool cannot be added yet, because a pool that is being removed
 * has the same file or the last free slot.
 */
bool rp_exports_must_wait(const struct rp_exports *x,
			  const struct rp_conf_pool *conf);
/*
 * Stop offering a pool to clients. rp_exports_check() then revokes its keys and
 * starts the thread that closes it.
 */
void rp_exports_remove(struct rp_exports *x, unsigned int i);
/* Number of pools that clients can find. */
unsigned int rp_exports_count(const struct rp_exports *x);
/* Slot of the pool with that name and path, or -1. */
int rp_exports_find(const struct rp_exports *x, const char *name,
		    const char *path);
/*
 * Set rights and limits of a pool. Revoke the keys of secrets whose right to
 * read or write has changed.
 */
void rp_exports_set_rights(struct rp_exports *x, unsigned int i,
			   const uint8_t *rights, unsigned int clients);
/*
 * Whether no other file is at the path of a pool. A pool whose file was renamed
 * or removed is still the same pool.
 */
bool rp_exports_is_at_path(const struct rp_exports *x, unsigned int i);
/* Whether a secret has a key, even one that is being revoked. */
bool rp_exports_use_secret(const struct rp_exports *x,
			   unsigned int secret_index);
/*
 * Find pool files that have grown; rp_exports_check() then starts threads that
 * allocate their new blocks. Returns the number of these files.
 */
unsigned int rp_exports_find_longer(struct rp_exports *x);
/*
 * Withdraw pools whose files were removed, serve the new length of files that
 * have grown, revoke keys, close pools. Returns whether a pool was closed.
 */
bool rp_exports_check(struct rp_exports *x);
/*
 * Close everything: the fabric before the pools, as no write may arrive after a
 * pool is marked clean. failed: mark no pool. Returns an exit code.
 */
int rp_exports_close(struct rp_exports *x, bool failed, char *err);
/*
 * export_text.c: explain why the provider refused, with ret, to register the
 * pool. Returns the exit code.
 */
int rp_export_explain(const struct rp_exports *x, const struct rp_export *e,
		      int ret, char *err);
/* Print pools, classes and methods on standard output: export_text.c. */
void rp_exports_print(const struct rp_exports *x);

/* Fill in the callbacks of the setup server. */
void rp_exports_serve(struct rp_exports *x, struct rp_setup_server_attr *attr);

/* --- export_key.c */

/* Register a part of a pool, for clients that may write or may only read. */
int rp_export_register(struct rp_exports *x, struct rp_export *e,
		       unsigned int part, bool writable, struct fid_mr **mr,
		       char *err);
/*
 * Get the key of a secret for a part; the first request makes it. -EBUSY: its
 * former key is still being revoked; another -errno has the reason in err.
 */
int rp_export_grant(struct rp_exports *x, struct rp_export *e,
		    unsigned int secret_index, unsigned int part, uint64_t *key,
		    char *err);
/*
 * Revoke the keys that reach bytes of a part. False while requests that use
 * such a key are executed: rp_export_end_ending() tries again.
 */
bool rp_export_end_part(struct rp_export *e, unsigned int part);
bool rp_export_end_secret(struct rp_export *e, unsigned int secret_index);
void rp_export_end_ending(struct rp_export *e);

#endif
