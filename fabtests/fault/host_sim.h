/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine on which the provider runs, simulated by a test. */
#ifndef RP_HOST_SIM_H
#define RP_HOST_SIM_H

#include "rpmem/host.h"

/*
 * The DSO librpmem-sim-fi.so contains this struct instead of prov/rpmem/host.c.
 * The test finds it with dlsym(), and fills it in before it opens the first
 * domain.
 */
#define HOST_SIM "rp_host_sim"

struct host_sim {
	uint64_t (*now)(void);
	void (*random)(void *buf, size_t len);
	/* Returns the facts that the target believes, true or not. */
	int (*facts)(const void *addr, size_t len, struct rp_facts *facts);
	/*
	 * The file (8 bytes) whose changes announce new facts; NULL: no file.
	 */
	const char *source;
	const struct rp_pmem_ops *(*flusher)(const void *addr, size_t len);
	/* Do private connections support FLUSH? NULL: no. */
	bool (*flushes)(void);
	/*
	 * Set by the provider: the test limits the bytes of a write inside a
	 * request.
	 */
	void (*inline_max)(size_t bytes);
	/*
	 * Set by the provider: the test chooses the class that
	 * FI_COMMIT_COMPLETE requires on endpoints opened later.
	 */
	void (*required)(enum rp_class required);
	/*
	 * Set by the provider: like FI_OFI_RPMEM_METHOD, for later
	 * registrations; NULL: no method is forced.
	 */
	void (*method)(const char *forced);
};

#endif
