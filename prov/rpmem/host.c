// SPDX-License-Identifier: BSD-2-Clause
/* The real machine: its clock, its randomness, its memory. */
#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "rpmem/host.h"

uint64_t rp_host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

int rp_host_random(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -errno;
}

int rp_host_facts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  struct rp_facts *facts, char *why)
{
	return rp_caps_region(cfg, addr, len, facts, why);
}

const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len)
{
	return NULL;
}

bool rp_host_has_threads(void)
{
	return true;
}
