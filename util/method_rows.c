// SPDX-License-Identifier: BSD-2-Clause
/* The rows of the method table, as words. */
#include <stdio.h>
#include <string.h>

#include "core/method_priv.h"
#include "util/method_rows.h"

const char *rp_refusal_name(enum rp_refusal r)
{
	switch (r) {
	case RP_REFUSAL_NONE:
		return "not refused";
	case RP_REFUSAL_VOLATILE:
		return "volatile memory";
	case RP_REFUSAL_CLASS:
		return "class not met";
	case RP_REFUSAL_FS:
		return "file system not trusted";
	case RP_REFUSAL_NOT_DIRTIED:
		return "pages not marked dirty";
	case RP_REFUSAL_NO_AGENT:
		return "no agent";
	case RP_REFUSAL_NOT_BUILT:
		return "method not built";
	case RP_REFUSAL_UNKNOWN:
		break;
	}
	return "unknown memory";
}

/* List the values in the mask or, if shorter, "any but" the other values. */
static void mask_words(unsigned int mask, unsigned int count,
		       const char *(*name)(unsigned int), char *out, size_t len)
{
	char in[128] = "", but[128] = "any but";
	size_t ni = 0, nb = strlen(but);
	bool all = true;

	for (unsigned int v = 0; v < count; v++) {
		if (mask & 1u << v) {
			ni += (size_t)snprintf(in + ni, sizeof(in) - ni, "%s%s",
					       ni ? ", " : "", name(v));
			continue;
		}
		nb += (size_t)snprintf(but + nb, sizeof(but) - nb, "%s %s",
				       all ? "" : ",", name(v));
		all = false;
	}
	snprintf(out, len, "%s", all ? "any" : ni <= nb ? in : but);
}

static const char *memory_word(unsigned int v)
{
	return rp_memory_name((enum rp_memory)v);
}

static const char *placement_word(unsigned int v)
{
	return rp_placement_name((enum rp_placement)v);
}

static const char *domain_word(unsigned int v)
{
	return rp_domain_name((enum rp_domain)v);
}

bool rp_method_row(size_t i, struct rp_method_words *w)
{
	const struct rp_row *r =
		i < rp_method_nrows ? &rp_method_rows[i] : NULL;

	*w = (struct rp_method_words){.memory = "any"};
	if (i > rp_method_nrows)
		return false;
	mask_words(r ? r->memory : M(UNKNOWN), RP_MEM_EMULATED + 1, memory_word,
		   w->memory, sizeof(w->memory));
	if (!r) {
		/* The row behind the last one: facts that match no row. */
		strcpy(w->placement, "any");
		strcpy(w->domain, "any");
		snprintf(w->method, sizeof(w->method), "refused: %s",
			 rp_refusal_name(RP_REFUSAL_UNKNOWN));
		return true;
	}
	mask_words(r->placement, RP_PLACE_DMA_MEMORY + 1, placement_word,
		   w->placement, sizeof(w->placement));
	mask_words(r->domain, RP_DOMAIN_SYSTEM + 1, domain_word, w->domain,
		   sizeof(w->domain));
	strcpy(w->needs, r->fence == RP_YES    ? "fence"
			 : r->native == RP_YES ? "native"
			 : r->untrusted	       ? "untrusted"
					       : "");
	if (r->refusal) {
		snprintf(w->method, sizeof(w->method), "refused: %s",
			 rp_refusal_name(r->refusal));
		return true;
	}
	strcpy(w->method, rp_method_name(r->method));
	strcpy(w->class, rp_class_name(r->class));
	return true;
}
