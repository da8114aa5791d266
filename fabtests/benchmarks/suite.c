// SPDX-License-Identifier: BSD-2-Clause
/* suite: measures the figures of the provider, each with its bar. */
#include "config.h"

#include "fabtests/benchmarks/bench.h"

__attribute__((visibility("default"))) /* argp reads it */
const char *argp_program_version = "suite " PACKAGE_VERSION;

int main(int argc, char **argv)
{
	return bench_main(
		argc, argv, "suite", BENCH_SUITE_MODES, BENCH_SUITE,
		"Measures the provider against its bars.\vModes: suite (the "
		"default), initiators (1 to 16 endpoints), calibrate (costs "
		"of writes, requests and flushes). Exit status: 0 all figures "
		"were measured "
		"and meet their bars, 1 one is missing or misses its bar, 2 "
		"wrong usage, 3 the run failed.");
}
