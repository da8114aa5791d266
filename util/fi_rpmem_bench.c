// SPDX-License-Identifier: BSD-2-Clause
/*
 * fi_rpmem_bench: compares durable remote writes with the base and with msync.
 */
#include "config.h"

#include "fabtests/benchmarks/bench.h"

__attribute__((visibility("default"))) /* argp reads the variable */
const char *argp_program_version = "fi_rpmem_bench " PACKAGE_VERSION;

int main(int argc, char **argv)
{
	return bench_main(
		argc, argv, "fi_rpmem_bench", BENCH_USER_MODES, BENCH_ALL,
		"Measures durable writes to another process over "
		"loopback. The same writes on the base provider, and "
		"msync alone, take turns with them for "
		"comparison.\vModes: all (the default), pingpong, rate, "
		"write, commit, mixed, sequential, flush, file.\n\nA time "
		"is that of one operation, from its call to its "
		"completion. Exit status: 0 all figures were measured, 1 "
		"some are missing (the report says why), 2 wrong usage, 3 the "
		"run failed.");
}
