// SPDX-License-Identifier: BSD-2-Clause
/* SIGBUS handler for a store past the end of a truncated pool file. */
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/exit_codes.h"
#include "util/sigbus.h"
#include "util/service.h"

/* Exported pools, for the signal handler. */
static const struct rp_exports *exporting;
static const char *sigbus_prefix;

/* Handle a store to a page past the end of a truncated pool file. */
static void sigbus(int sig, siginfo_t *info, void *context)
{
	static const char text[] =
		"' was cut short while it was exported, and its end is lost; "
		"what was acknowledged before is on the disk. Restore the file "
		"from a copy, then start fi_rpmemd again\n";
	const char *at = info->si_addr;

	for (unsigned int i = 0; i < RP_SETUP_POOLS; i++) {
		const struct rp_export *e = &exporting->v[i];
		const char *map = e->pool.map;
		struct iovec line[] = {
			{(void *)sigbus_prefix, strlen(sigbus_prefix)},
			{(void *)"fi_rpmemd: the file of pool '", 29},
			{(void *)e->name, strlen(e->name)},
			{(void *)text, sizeof(text) - 1},
		};

		if (!map || at < map || at >= map + e->pool.map_len)
			continue;
		if (writev(STDERR_FILENO, line, 4) < 0)
			break;
		_exit(RP_EXIT_FILE);
	}
	signal(sig, SIG_DFL); /* no pool's memory: the store faults again, and
			       * that ends the process */
}

void rp_sigbus_watch(const struct rp_exports *x)
{
	const struct sigaction act = {
		.sa_sigaction = sigbus,
		.sa_flags = SA_SIGINFO,
	};

	exporting = x;
	sigbus_prefix = rp_service_prefix(RP_SERVICE_ERROR);
	sigaction(SIGBUS, &act, NULL);
}
