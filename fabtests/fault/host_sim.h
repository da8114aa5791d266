/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine on which the provider runs, simulated by a test. */
#ifndef RP_HOST_SIM_H
#define RP_HOST_SIM_H

#include "rpmem/os_services.h"

/*
 * The provider in librpmem-sim-fi.so has host_sim.c instead of
 * prov/rpmem/os_services.c, with one variable of this type. The test finds it
 * with dlsym(), and fills it in before it opens the first domain.
 */
#define HOST_SIM "rp_host_sim"

struct host_sim {
	uint64_t (*now)(void);
	void (*random)(void *buf, size_t len);
	/* Fill in the facts that the target finds, true or not. */
	int (*facts)(const void *addr, size_t len, struct rp_facts *facts);
	/*
	 * Path of a file of 8 bytes whose changes announce new facts; NULL:
	 * none.
	 */
	const char *source;
	const struct rp_pmem_ops *(*flusher)(const void *addr, size_t len);
	/* Do private connections support FLUSH? NULL: no. */
	bool (*flushes)(void);
	/*
	 * Defined in host_sim.c, for the test to call: limit the bytes of a
	 * write that travel inside a request.
	 */
	void (*inline_max)(size_t bytes);
	/*
	 * Defined in host_sim.c: set the class that FI_COMMIT_COMPLETE requires
	 * on endpoints opened later.
	 */
	void (*required)(enum rp_class required);
	/*
	 * Defined in host_sim.c: force a method on later registrations, as
	 * FI_OFI_RPMEM_METHOD does; NULL: none.
	 */
	void (*method)(const char *forced);
};

#endif
