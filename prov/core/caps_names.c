// SPDX-License-Identifier: BSD-2-Clause
/* Names of classes and facts, and sentences about them. */
#include <errno.h>
#include <stdarg.h>
#include <strings.h>

#include "core/caps_priv.h"

static const char *const class_names[] = {
	[RP_CLASS_NONE] = "none",
	[RP_CLASS_PROCESS] = "process",
	[RP_CLASS_POWER] = "power",
};

static const char *const memory_names[] = {
	[RP_MEM_UNKNOWN] = "unknown",	[RP_MEM_ANON] = "anonymous",
	[RP_MEM_PRIVATE] = "private",	[RP_MEM_TMPFS] = "tmpfs",
	[RP_MEM_FILE] = "file",		[RP_MEM_DAX] = "dax",
	[RP_MEM_DAX_SYNC] = "dax-sync", [RP_MEM_EMULATED] = "emulated",
};

static const char *const placement_names[] = {
	[RP_PLACE_UNKNOWN] = "unknown",
	[RP_PLACE_CPU_USER] = "cpu-user",
	[RP_PLACE_CPU_KERNEL] = "cpu-kernel",
	[RP_PLACE_DMA_CACHE] = "dma-cache",
	[RP_PLACE_DMA_MEMORY] = "dma-memory",
};

static const char *const domain_names[] = {
	[RP_DOMAIN_UNKNOWN] = "unknown",
	[RP_DOMAIN_NONE] = "none",
	[RP_DOMAIN_MEMCTRL] = "memory-controller",
	[RP_DOMAIN_CPUCACHE] = "cpu-caches",
	[RP_DOMAIN_SYSTEM] = "system",
};

/* Values may come from a newer peer, so accept any number. */
static const char *enum_name(const char *const *names, size_t n, unsigned int v)
{
	return v < n ? names[v] : "unknown";
}

const char *rp_class_name(enum rp_class c)
{
	return enum_name(class_names, COUNT(class_names), c);
}

int rp_class_parse(const char *s, enum rp_class *c)
{
	for (size_t i = 0; s && i < COUNT(class_names); i++) {
		if (strcasecmp(s, class_names[i]))
			continue;
		*c = i;
		return 0;
	}
	return -EINVAL;
}

const char *rp_memory_name(enum rp_memory m)
{
	return enum_name(memory_names, COUNT(memory_names), m);
}

const char *rp_placement_name(enum rp_placement p)
{
	return enum_name(placement_names, COUNT(placement_names), p);
}

const char *rp_domain_name(enum rp_domain d)
{
	return enum_name(domain_names, COUNT(domain_names), d);
}

const char *rp_tri_name(enum rp_tri t)
{
	static const char *const names[] = {
		[RP_UNKNOWN] = "unknown",
		[RP_NO] = "no",
		[RP_YES] = "yes",
	};

	return enum_name(names, COUNT(names), t);
}

/*
 * The sentence is sent to peers and logged, and file names may contain
 * anything: '?' replaces each byte that is not printable ASCII.
 */
void rp_caps_fmt(char *text, size_t len, const char *fmt, ...)
{
	va_list ap;

	if (!text)
		return;
	va_start(ap, fmt);
	vsnprintf(text, len, fmt, ap);
	va_end(ap);
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = *text == '\n' ? ' ' : '?';
}
