// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fault injection points, for objects compiled with RP_FAULTS. RPMEM_FAULT
 * names the active ones; with RPMEM_FAULT_EVERY=N only every N-th call fails.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"

static bool is_named(const char *name)
{
	const char *list = getenv("RPMEM_FAULT");
	size_t len = strlen(name);

	for (const char *p = list; p && *p;
	     p += strcspn(p, ",") + !!strchr(p, ','))
		if (!strncmp(p, name, len) && (!p[len] || p[len] == ','))
			return true;
	return false;
}

bool rp_fault_on(const char *name)
{
	static atomic_uint calls;
	const char *every = getenv("RPMEM_FAULT_EVERY");
	unsigned int n = every ? (unsigned int)atoi(every) : 0;

	return is_named(name) &&
	       (n < 2 || atomic_fetch_add(&calls, 1) % n == n - 1);
}

/*
 * Append a byte to RPMEM_FAULT_LOG, by which a test sees that the process
 * sleeps now.
 */
static void log_append(void)
{
	const char *path = getenv("RPMEM_FAULT_LOG");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;

	if (fd < 0)
		return;
	if (write(fd, "\n", 1) < 0)
		abort();
	close(fd);
}

void rp_fault_sleep(void)
{
	const char *text = getenv("RPMEM_FAULT_MS");
	const char *gate = getenv("RPMEM_FAULT_GATE");
	long ms = gate ? 1 : text ? atol(text) : 0;
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	log_append();
	do
		nanosleep(&t, NULL);
	while (gate && access(gate, F_OK));
}

#pragma weak rpmem_shadow_streamed
void rp_fault_streamed(const void *addr, size_t len)
{
	if (rpmem_shadow_streamed)
		rpmem_shadow_streamed(addr, len);
}
