/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of fi_rpmem_info: each gathers into JSON and prints from it. */
#ifndef RP_UTIL_INFO_H
#define RP_UTIL_INFO_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>
#include <rdma/fabric.h>

#include "core/caps.h"
#include "core/method.h"
#include "util/secret.h"

/*
 * Some text of the answer comes from files, peers and the environment, and
 * jansson takes UTF-8 only: anything else becomes '?'.
 */
json_t *info_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* info_host.c: what this host promises. */
json_t *info_host(void);
void info_host_print(const json_t *host);

/* info_path.c: what memory mapped from a file, or made in a folder, would be.
 */
struct info_map {
	int fd;
	void *addr; /* mapped shared, readable and writable */
	size_t len;
	char *made; /* a file that was made for it and is to be removed */
};
/* 0, or -errno and a sentence in err (RP_ERR_LEN bytes). */
int info_map_open(const char *path, struct info_map *m, char *err);
void info_map_close(struct info_map *m);
/* How writes would come: NULL base: tcp; device: of verbs, or NULL. */
struct info_way {
	const char *base, *device;
};
json_t *info_path(const char *path, const struct info_way *way);
void info_path_print(const json_t *path);

/* info_advice.c: how to use such memory well, each with its source. */
json_t *info_advice(const struct rp_facts *facts, const struct rp_nic *nic,
		    const struct rp_choice *choice);
void info_advice_print(const json_t *advice);

/* info_table.c: the method table as the code has it. */
json_t *info_table(void);
void info_table_print(const json_t *table);

/*
 * info_target.c: what HOST[:PORT]:POOL answers. 0, or a negative errno or
 * -FI_* and the cause in err (RP_ERR_LEN bytes); -EINVAL: where is not one.
 */
int info_target(const char *where, const struct rp_secret *secret, json_t **out,
		char *err);
void info_target_print(const json_t *target);

/* doctor.c: what keeps commits from working here, in order. */
#define DOCTOR_OK   0
#define DOCTOR_WARN 1
#define DOCTOR_FAIL 2
json_t *doctor_run(char *const *paths, size_t n);
/* Returns the worst. */
int doctor_worst(const json_t *checks);
void doctor_print(const json_t *checks);

/*
 * Hints for what commits need: RDM endpoints with RMA, of ours (also prov_name
 * NULL) with persistent regions. NULL: no memory.
 */
struct fi_info *doctor_hints(const char *prov_name);

/*
 * doctor_commit.c: write and commit to a file in dir through an endpoint to
 * itself over base, and look at what arrived. 0, or -errno and the cause in
 * err; done (RP_ERR_LEN bytes): what was done.
 */
int doctor_commit(const char *dir, const char *base, char *done, char *err);

/* doctor_filter.c: the base of FI_PROVIDER; false: it does not ask for us. */
#define DOCTOR_NAME 64
bool doctor_filter_base(const char *filter, char base[DOCTOR_NAME]);
/*
 * What a program gets that inherits this environment and names no provider. To
 * be called before libfabric is: it reads the environment once.
 */
struct doctor_seen {
	int ret; /* 0: the first endpoint of ours; or -FI_* */
	char provider[DOCTOR_NAME], domain[DOCTOR_NAME];
};
void doctor_filter_look(struct doctor_seen *seen);

#endif
