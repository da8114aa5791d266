// SPDX-License-Identifier: BSD-2-Clause
/* Is memory meant to last, if its registration does not say so? */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/caps_priv.h"

static enum rp_intent intent_by_memory(enum rp_memory m)
{
	switch (m) {
	case RP_MEM_ANON:
	case RP_MEM_PRIVATE:
		return RP_INTENT_VOLATILE;
	case RP_MEM_TMPFS:
	case RP_MEM_EMULATED:
		return RP_INTENT_UNCLEAR;
	case RP_MEM_FILE:
	case RP_MEM_DAX:
	case RP_MEM_DAX_SYNC:
	case RP_MEM_UNKNOWN:
		break;
	}
	return RP_INTENT_LASTING;
}

int rp_caps_intent(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   enum rp_intent *intent, char *why)
{
	uintptr_t start = (uintptr_t)addr, end = start + len;
	struct rp_backing b = {0}, here;
	enum rp_intent most = RP_INTENT_VOLATILE;
	struct rp_vma v = {0};
	int ret = 0;
	FILE *f;

	if (!len || end < start) {
		rp_caps_fmt(why, RP_WHY_LEN, "the range is empty or wraps");
		return -EINVAL;
	}
	f = rp_caps_open(cfg->root, "/proc/self/maps");
	if (!f) {
		ret = -errno;
		rp_caps_fmt(why, RP_WHY_LEN, "cannot read /proc/self/maps: %s",
			    strerror(-ret));
		return ret;
	}
	while (most < RP_INTENT_LASTING) {
		ret = rp_caps_vma_next(f, start, &v, why);
		if (ret <= 0 || v.start >= end)
			break;
		/* No peer can write to a read-only mapping. */
		if (v.perms[1] != 'w')
			continue;
		rp_caps_classify(cfg, &v, &b);
		here = b;
		rp_caps_emulate(cfg, &here);
		if (intent_by_memory(here.memory) > most)
			most = intent_by_memory(here.memory);
	}
	free(v.line);
	fclose(f);
	if (ret < 0)
		return ret;
	*intent = most;
	return 0;
}

enum rp_implicit rp_caps_implicit(enum rp_intent intent, bool fit,
				  enum rp_class reached, enum rp_class required)
{
	if (intent == RP_INTENT_VOLATILE)
		return RP_IMPLICIT_ORDINARY;
	if (fit && reached >= required)
		return RP_IMPLICIT_PERSISTENT;
	/* A file is meant to last: refuse its region, not make it ordinary. */
	return intent == RP_INTENT_LASTING ? RP_IMPLICIT_REFUSED
					   : RP_IMPLICIT_ORDINARY;
}
