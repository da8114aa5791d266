/* SPDX-License-Identifier: BSD-2-Clause */
/* Baselines for ofi_rpmem: other ways to write to another process. */
#ifndef RP_RIVAL_H
#define RP_RIVAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/text.h"

/*
 * Two polling processes share this page. The target opens first and polls until
 * the end; the initiator opens, and each put has completed when the call
 * returns. One put is outstanding at a time.
 */
struct rival_page {
	_Atomic int named;	/* the initiator's name follows */
	uint8_t target[128];	/* address of the target */
	uint8_t initiator[128]; /* address of the initiator, if it needs one */
	size_t target_len, initiator_len;
	uint64_t key, addr; /* of the memory */
};

struct rival_cfg {
	const char *base; /* name of the base provider */
	const char *node; /* address of the RDMA device, or NULL */
	bool blocks;	  /* block before polling: polls do not count */
	char *mem;	  /* target: the memory to write to */
	size_t len;
};

struct rival_end; /* defined by each rival */

struct rival {
	const char *name;
	const char *title;
	uint64_t max; /* bytes of one put */
	bool rdma;    /* over an RDMA device; the others are over TCP */
	/* Target: open and fill the page. */
	int (*serve)(const struct rival_cfg *cfg, struct rival_page *page,
		     struct rival_end **end, char *err);
	/* Target: look once for work. */
	int (*poll)(struct rival_end *end, char *err);
	/* Initiator; the target polls meanwhile. */
	int (*open)(const struct rival_cfg *cfg, struct rival_page *page,
		    struct rival_end **end, char *err);
	/* buf is the same at each call, with unchanged bytes. */
	int (*put)(struct rival_end *end, const void *buf, uint64_t off,
		   uint64_t size, char *err);
	void (*close)(struct rival_end *end);
};

extern const struct rival rival_raw;	/* TCP echo: what the kernel takes */
extern const struct rival rival_msg;	/* tcp's own FI_COMMIT_COMPLETE */
extern const struct rival rival_hand;	/* write, request, clwb, ack */
extern const struct rival rival_inline; /* bytes in the request */
#ifdef HAVE_LIBRPMA
extern const struct rival rival_rpma_flush; /* write, flush */
extern const struct rival rival_rpma_gpspm; /* write, request, clwb, ack */
#endif

static const struct rival *const rivals[] = {
	&rival_raw,	   &rival_msg,	      &rival_hand, &rival_inline,
#ifdef HAVE_LIBRPMA
	&rival_rpma_flush, &rival_rpma_gpspm,
#endif
};
#define RIVALS ((int)(sizeof(rivals) / sizeof(rivals[0])))

#define RIVAL_DEADLINE 10 /* seconds, the deadline of one put */

#endif
