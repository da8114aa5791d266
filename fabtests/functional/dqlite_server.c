// SPDX-License-Identifier: BSD-2-Clause
/*
 * A server of dqlite without any call of a pool: preloaded libraries give it
 * one. Elections and snapshots are more frequent than by default. SIGTERM ends
 * it.
 *
 * usage: dqlite_server ID ADDRESS FOLDER
 */
#include <dqlite.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define LATENCY_MS 20
#define SNAPSHOT   150

static int check(dqlite_node *node, const char *what, int ret)
{
	if (ret)
		fprintf(stderr, "dqlite_server: %s: %d: %s\n", what, ret,
			dqlite_node_errmsg(node));
	return ret;
}

int main(int argc, char **argv)
{
	dqlite_node *node = NULL;
	sigset_t term;
	int number, ret;

	if (argc != 4) {
		fputs("usage: dqlite_server ID ADDRESS FOLDER\n", stderr);
		return 2;
	}
	/* dqlite's thread must not get the signal. */
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	signal(SIGPIPE, SIG_IGN);
	ret = dqlite_node_create(strtoull(argv[1], NULL, 10), argv[2], argv[3],
				 &node);
	if (check(node, "create", ret))
		return 1;
	if (check(node, argv[2], dqlite_node_set_bind_address(node, argv[2])) ||
	    check(node, "latency",
		  dqlite_node_set_network_latency_ms(node, LATENCY_MS)) ||
	    check(node, "snapshots",
		  dqlite_node_set_snapshot_params(node, SNAPSHOT, SNAPSHOT)) ||
	    check(node, "start", dqlite_node_start(node)))
		return 1;
	puts("ready");
	fflush(stdout);
	sigwait(&term, &number);
	if (check(node, "stop", dqlite_node_stop(node)))
		return 1;
	dqlite_node_destroy(node);
	return 0;
}
