// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures and examines connected endpoints of bare libfabric over loopback:
 * base_conn EXPERIMENT [tcp|sockets [ARGUMENT...]]. ofi_rpmem is not used. The
 * figures are in docs/measurements.md.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/base_conn.h"

static const struct experiment {
	const char *name, *title;
	int (*run)(const char *prov, int argc, char **argv);
} experiments[] = {
	{"memory", "memory per connection", conn_memory},
	{"connect", "time to a connection", conn_connecting},
	{"durable", "durable writes by hand [SIZE...]", conn_durable},
	{"scattered", "64 writes of 64 B, one request", conn_scattered},
	{"many", "16 initiators", conn_many},
	{"receives", "messages without a receive", conn_receives},
	{"cm", "CM private data and events [SECONDS]", conn_cm},
	{"close", "fi_close(ep) with operations in flight", conn_closing},
	{"mr", "regions closed under connections", conn_mr},
};
#define EXPERIMENTS ((int)(sizeof(experiments) / sizeof(experiments[0])))

int main(int argc, char **argv)
{
	const char *prov = argc > 2 ? argv[2] : "tcp";

	setenv("FI_TCP_IFACE", "lo", 0);
	setenv("FI_SOCKETS_IFACE", "lo", 0);
	for (int i = 0; argc > 1 && i < EXPERIMENTS; i++)
		if (!strcmp(argv[1], experiments[i].name))
			return experiments[i].run(prov, argc - 3, argv + 3);
	fprintf(stderr,
		"usage: base_conn EXPERIMENT [tcp|sockets [ARGUMENT...]]\n");
	for (int i = 0; i < EXPERIMENTS; i++)
		fprintf(stderr, "  %-10s %s\n", experiments[i].name,
			experiments[i].title);
	return 2;
}
