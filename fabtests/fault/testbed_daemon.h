/* SPDX-License-Identifier: BSD-2-Clause */
/* A process of fi_rpmemd with a secret, and the export of its pool. */
#ifndef RP_TEST_TESTBED_DAEMON_H
#define RP_TEST_TESTBED_DAEMON_H

#include "fault/testbed.h"
#include "util/setup_client.h"

struct bed_daemon {
	pid_t pid;
	char secret_file[64], other_file[64], log_file[64], pool_file[64];
	struct rp_secret secret, other; /* the daemon's secret; a wrong one */
	struct rp_setup_target where;	/* address, with the right secret */
	struct rp_setup_export export;
};

/* Start the daemon on a pool of 1 MiB. Returns NULL, or what is wrong. */
const char *bed_daemon_start(struct bed_daemon *d, uint64_t seed);
/* Kill the daemon, and delete its files. */
void bed_daemon_stop(struct bed_daemon *d);
/* The card (address, key) of the daemon's pool. */
struct card bed_daemon_card(const struct bed_daemon *d);
/* Count lines of the daemon's log that contain the word, in any case. */
int bed_daemon_logged(const struct bed_daemon *d, const char *word);
/*
 * Open the initiator of a testbed whose target is the daemon, over prov (NULL:
 * ofi_rpmem). Such a target cannot be stopped or drained.
 */
void bed_daemon_visit(struct bed *b, const struct card *c, const char *prov);

#endif
