/* SPDX-License-Identifier: BSD-2-Clause */
/* The outcomes of an operation, each distinct, on the wire and for programs. */
#ifndef RP_STATUS_H
#define RP_STATUS_H

#include <stdint.h>

/*
 * The values are on the wire: never renumber, and never reuse 3, 10, 66, 68 and
 * 70; add at the end of each block. Programs see them as prov_errno, and
 * fi_rpmem_status() of rdma/fi_ext_rpmem.h maps each to a category; a test
 * compares the two.
 */
enum rp_status {
	RP_ST_OK = 0,

	/* Errors that the target finds. */
	RP_ST_BAD_MESSAGE = 1,	  /* length, type or field out of range */
	RP_ST_VERSION = 2,	  /* protocol versions differ */
	RP_ST_UNKNOWN_KEY = 4,	  /* not sent by this version */
	RP_ST_STALE_KEY = 5,	  /* no live region has this key */
	RP_ST_RANGE = 6,	  /* outside the region */
	RP_ST_WRAP = 7,		  /* addr + len wraps, or len is 0 */
	RP_ST_VOLATILE = 8,	  /* region not registered as persistent */
	RP_ST_CLASS = 9,	  /* region's class is weaker than required */
	RP_ST_FLUSH_FAILED = 11,  /* this flush failed; detail: errno */
	RP_ST_REGION_FAILED = 12, /* an earlier flush failed: sticky */
	RP_ST_OVERLOADED = 13,	  /* session or request limit of the target */
	RP_ST_UNSUPPORTED = 14,	  /* a feature that the target lacks */
	RP_ST_NO_METHOD = 15,	  /* no method makes these bytes durable */
	RP_ST_ALIGN = 16,	  /* the store is not aligned */
	RP_ST_ACCESS = 17,	  /* peers may not write the region */

	/* Found by the initiator. */
	RP_ST_WRITE_FAILED = 64, /* a covered write failed: write it again */
	RP_ST_TIMEOUT = 65,	 /* the target was silent for too long */
	RP_ST_CANCELED = 67,	 /* the endpoint was closed */
	RP_ST_NO_MEMORY = 69,
	RP_ST_INDETERMINATE = 71, /* the effect may have been executed, or may
				     still be; detail: why it ended */
	RP_ST_LOST = 72,	  /* the connection was lost; detail: errno */
	RP_ST_MAX
};

const char *rp_status_name(enum rp_status st);	 /* "stale key" */
const char *rp_status_remedy(enum rp_status st); /* one sentence, never NULL */
/* A positive errno for the status: ENOENT, ESTALE, ERANGE, ... (all < 256). */
int rp_status_errno(enum rp_status st);

#endif
