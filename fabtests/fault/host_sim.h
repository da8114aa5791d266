/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine below the provider, simulated by a test. */
#ifndef RP_HOST_SIM_H
#define RP_HOST_SIM_H

#include "rpmem/host.h"

/*
 * The DSO librpmem-sim-fi.so has this in place of prov/rpmem/host.c. The test
 * finds it with dlsym() and fills it in before the first domain is opened.
 */
#define HOST_SIM "rp_host_sim"

struct host_sim {
	uint64_t (*now)(void);
	void (*random)(void *buf, size_t len);
	/* The facts that the target believes: they need not be true. */
	int (*facts)(const void *addr, size_t len, struct rp_facts *facts);
	/* The file that the facts come from, 8 bytes; NULL: none is watched. */
	const char *source;
	const struct rp_pmem_ops *(*flusher)(const void *addr, size_t len);
	/* Does a private connection support FLUSH? NULL: no. */
	bool (*flushes)(void);
	/* Set by the provider for the test: limit of writes inside requests. */
	void (*inline_max)(size_t bytes);
	/*
	 * As inline_max: the class that FI_COMMIT_COMPLETE requires on
	 * endpoints opened later.
	 */
	void (*required)(enum rp_class required);
	/* As FI_OFI_RPMEM_METHOD, for regions registered later; NULL: none. */
	void (*method)(const char *forced);
};

#endif
