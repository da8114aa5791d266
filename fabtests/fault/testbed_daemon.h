/* SPDX-License-Identifier: BSD-2-Clause */
/* fi_rpmemd with a secret, and its export. */
#ifndef RP_TEST_TESTBED_DAEMON_H
#define RP_TEST_TESTBED_DAEMON_H

#include "fault/testbed.h"
#include "util/setup_client.h"

struct bed_daemon {
	pid_t pid;
	char secret_file[64], other_file[64], log_file[64], pool_file[64];
	struct rp_secret secret, other; /* the daemon's secret; a wrong one */
	struct rp_setup_target where;	/* with the right secret */
	struct rp_setup_export export;
};

/* Start it on a pool of 1 MiB: NULL or what went wrong. */
const char *bed_daemon_start(struct bed_daemon *d, uint64_t seed);
/* Kill it and delete its files. */
void bed_daemon_stop(struct bed_daemon *d);
/* The card of its endpoint and its pool. */
struct card bed_daemon_card(const struct bed_daemon *d);
/* The number of lines of its log that have the word, in any case. */
int bed_daemon_logged(const struct bed_daemon *d, const char *word);
/*
 * Open a bed whose target is the daemon, over prov (NULL: the provider). The
 * target cannot be stopped or drained.
 */
void bed_daemon_visit(struct bed *b, const struct card *c, const char *prov);

#endif
