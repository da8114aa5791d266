/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of fi_rpmem_info: each collects results as JSON, and prints them. */
#ifndef RP_UTIL_INFO_H
#define RP_UTIL_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <jansson.h>
#include <rdma/fabric.h>

#include "core/caps.h"
#include "core/method.h"
#include "util/secret.h"

/*
 * Make a JSON string of text that may come from files, peers or the
 * environment: jansson accepts UTF-8 only, so other bytes become '?'.
 */
json_t *info_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* info_host.c: what this host promises. */
json_t *info_host(void);
void info_host_print(const json_t *host);

/*
 * info_path.c: properties of memory mapped from a file, or from a new file in a
 * directory.
 */
struct info_map {
	int fd;
	void *addr; /* MAP_SHARED, readable and writable */
	size_t len;
	char *temp_path; /* temporary file, removed on close */
};
/* Returns 0, or -errno and the reason in err (RP_ERR_LEN bytes). */
int info_map_open(const char *path, struct info_map *m, char *err);
/* Map a new file of len bytes in a directory; errors as info_map_open(). */
int info_map_make(const char *dir, size_t len, struct info_map *m, char *err);
void info_map_close(struct info_map *m);
/* Transport of the writes. base NULL: tcp. device: of verbs, or NULL. */
struct info_transport {
	const char *base, *device;
};
json_t *info_path(const char *path, const struct info_transport *transport);
void info_path_print(const json_t *path);

/* info_advice.c: advice for this memory, each with its source. */
json_t *info_advice(const struct rp_facts *facts, const struct rp_nic *nic,
		    const struct rp_choice *choice);
void info_advice_print(const json_t *advice);

/* info_table.c: the method table, from the code. */
json_t *info_table(void);
void info_table_print(const json_t *table);

/*
 * info_target.c: QUERY the pool at HOST[:PORT]:POOL. Returns 0, or a negative
 * errno or -FI_* and the cause in err (RP_ERR_LEN bytes); -EINVAL: where has no
 * such form.
 */
int info_target(const char *where, const struct rp_secret *secret, json_t **out,
		char *err);
void info_target_print(const json_t *target);

/*
 * info_stats.c: print the counters of running processes. Returns the exit
 * status.
 */
struct info_stats {
	pid_t pid;	    /* 0: all processes that this user may inspect */
	unsigned int watch; /* seconds between repeats; 0: print once */
	bool json, prometheus;
};
int info_stats(const struct info_stats *cfg);

/* doctor.c: check in order what commits on this host need. */
#define DOCTOR_OK   0
#define DOCTOR_WARN 1
#define DOCTOR_FAIL 2
json_t *doctor_run(char *const *paths, size_t n);
/* Returns the worst status of all checks. */
int doctor_worst(const json_t *checks);
void doctor_print(const json_t *checks);

/*
 * doctor_disk.c: checks of the disks below path, the lowest first, and what
 * msync guarantees there; then warnings of DIMMs. root: prefix of /proc and
 * /sys, for tests.
 */
json_t *doctor_disks(const char *root, const char *path);

/*
 * Hints for commits: FI_EP_RDM with FI_RMA, and FI_RMA_PMEM if prov_name is
 * NULL or names ofi_rpmem. Returns NULL when out of memory.
 */
struct fi_info *doctor_hints(const char *prov_name);

/*
 * doctor_commit.c: write and commit to a new file in dir through a loopback
 * endpoint over base, then read the file. Returns 0 and a summary in done, or
 * -errno and the cause in err (RP_ERR_LEN bytes each).
 */
int doctor_commit(const char *dir, const char *base, char *done, char *err);

/*
 * doctor_filter.c: the base in FI_PROVIDER; false if it does not name both a
 * base and ofi_rpmem.
 */
#define DOCTOR_NAME 64
bool doctor_filter_base(const char *filter, char base[DOCTOR_NAME]);
/*
 * The endpoint that a program gets by FI_PROVIDER, without naming a provider.
 * Call this function before any other libfabric call, because libfabric reads
 * the environment once.
 */
struct doctor_endpoint {
	int ret; /* 0: provider and domain are set; -FI_*: no endpoint */
	char provider[DOCTOR_NAME], domain[DOCTOR_NAME];
};
void doctor_filter_resolve(struct doctor_endpoint *endpoint);

#endif
