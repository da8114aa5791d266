/* SPDX-License-Identifier: BSD-2-Clause */
/* Configuration of fi_rpmemd: pools, secrets, and the rights of secrets. */
#ifndef RP_UTIL_CONF_H
#define RP_UTIL_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "util/secret.h"
#include "util/setup_server.h"

#define RP_CONF_NAME 40 /* bytes of a secret's name, with its NUL */

struct rp_conf_secret {
	char name[RP_CONF_NAME];
	char *path;
	struct rp_secret secret;
};

struct rp_conf_pool {
	char name[RP_SETUP_NAME + 1];
	char *path;
	uint64_t create;      /* size of a pool to create; 0: it must exist */
	bool exact;	      /* an existing pool must have the size `create` */
	unsigned int clients; /* most clients at once; 0: any number */
	bool waits;	      /* add it as soon as a removed pool is closed */
	uint8_t rights[RP_SETUP_SECRETS]; /* RP_SETUP_READ..., per secret */
};

/* Parsed configuration; zero is the default of each field. */
struct rp_conf {
	char *listen;
	char *base;
	char *metrics; /* address, as given to --metrics */
	uint16_t port;
	bool has_port;
	unsigned int nsecrets;
	struct rp_conf_secret secrets[RP_SETUP_SECRETS];
	unsigned int npools;
	struct rp_conf_pool pools[RP_SETUP_POOLS];
};

/*
 * Read the file and its secrets. Returns 0, or -errno with the line, the reason
 * and the remedy in err: -EINVAL, -E2BIG, or the error of a secret.
 */
int rp_conf_load(const char *path, struct rp_conf *c, char *err);
/* Print secrets, pools and rights on standard output. */
void rp_conf_print(const struct rp_conf *c);
/*
 * Add a pool file: the pool has the file's name, and every secret has all
 * rights to it. -EINVAL: the name cannot be used, or is in use; -E2BIG: too
 * many pools.
 */
int rp_conf_add_pool(struct rp_conf *c, const char *path, char *err);
/* Add and load a secret. -E2BIG: too many; or errors of rp_secret_load(). */
int rp_conf_add_secret(struct rp_conf *c, const char *name, const char *path,
		       char *err);
/* Free all members of the configuration, and wipe its secrets. */
void rp_conf_free(struct rp_conf *c);

#endif
