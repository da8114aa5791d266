// SPDX-License-Identifier: BSD-2-Clause
/* Names, errnos and remedies of the outcomes of an operation. */
#include <errno.h>

#include "core/status.h"

/*
 * One errno per status, so that a program that checks only err can tell them
 * apart. All of them are in rdma/fi_errno.h too.
 */
static const struct {
	const char *name;
	const char *remedy;
	int err;
} statuses[RP_ST_MAX] = {
#define ST(st, err, name, remedy) [st] = {name, remedy, err}
	ST(RP_ST_OK, 0, "ok", "Nothing to do."),
	ST(RP_ST_BAD_MESSAGE, EBADMSG, "bad message",
	   "Run the same release of ofi_rpmem at both ends; if they are the "
	   "same, report a bug."),
	ST(RP_ST_VERSION, EPROTONOSUPPORT, "protocol version not supported",
	   "Install releases of ofi_rpmem that speak the same protocol "
	   "version at both ends."),
	ST(RP_ST_UNKNOWN_KEY, ENOENT, "unknown key",
	   "The target has no such registration: ask it for the current key, "
	   "write and commit again."),
	ST(RP_ST_STALE_KEY, ESTALE, "stale key",
	   "The region was registered anew or its target restarted: get the "
	   "new key, write and commit again."),
	ST(RP_ST_RANGE, ERANGE, "range outside the region",
	   "Commit only bytes inside the registered region; fi_rpmem_query() "
	   "tells its address and length."),
	ST(RP_ST_WRAP, EOVERFLOW, "range empty or wrapping",
	   "Give a length above 0 and an address whose end does not pass "
	   "2^64."),
	ST(RP_ST_VOLATILE, EMEDIUMTYPE, "volatile memory",
	   "The target must register the region with FI_RMA_PMEM, on memory "
	   "that can be made durable."),
	ST(RP_ST_CLASS, EOPNOTSUPP, "failure class not met",
	   "fi_rpmem_query() tells what lowered it. Put the pool on memory "
	   "of the required class, or lower the class in the call or with "
	   "FI_OFI_RPMEM_CLASS at the initiator."),
	ST(RP_ST_FLUSH_FAILED, EIO, "flush failed",
	   "The target's storage reported an error: check its disk and "
	   "kernel log, register the region again, write and commit again."),
	ST(RP_ST_REGION_FAILED, ENOTRECOVERABLE, "region failed earlier",
	   "An earlier flush of this region failed and the kernel reports "
	   "that only once: check the disk, register the region again, write "
	   "and commit again."),
	ST(RP_ST_OVERLOADED, EBUSY, "target overloaded",
	   "Commit again later; the target's limits are "
	   "FI_OFI_RPMEM_MAX_SESSIONS and FI_OFI_RPMEM_CREDITS."),
	ST(RP_ST_UNSUPPORTED, ENOSYS, "feature not supported by the target",
	   "Install a newer ofi_rpmem at the target, or do not use the "
	   "feature."),
	ST(RP_ST_NO_METHOD, ENOMEDIUM, "no method",
	   "Nothing makes these bytes durable at the target: "
	   "fi_rpmem_query() tells why and what to change."),
	ST(RP_ST_ALIGN, EINVAL, "store not aligned",
	   "Give a store behind a commit an address that is a multiple of 8, "
	   "in a region that begins at one."),
	ST(RP_ST_ACCESS, EACCES, "region not writable",
	   "Register the region with FI_REMOTE_WRITE at the target: a store, "
	   "or remote CQ data, is a write to it."),
	ST(RP_ST_WRITE_FAILED, EREMOTEIO, "covered write failed",
	   "A write that the commit covers did not arrive: write those bytes "
	   "again, then commit."),
	ST(RP_ST_TIMEOUT, ETIMEDOUT, "target silent",
	   "Check that the target lives and makes progress; "
	   "FI_OFI_RPMEM_TIMEOUT sets the limit in ms."),
	ST(RP_ST_CANCELED, ECANCELED, "canceled",
	   "The endpoint was closed, its connection ended, or the address "
	   "was removed before the reply came: commit before closing."),
	ST(RP_ST_NO_MEMORY, ENOMEM, "out of memory",
	   "Free memory at the initiator, or keep fewer commits outstanding."),
	ST(RP_ST_INDETERMINATE, EUCLEAN, "outcome unknown",
	   "The connection ended, and a once-only operation may have been "
	   "executed, or may be yet: call fi_rpmem_query() until the target "
	   "replies, read the memory, then decide."),
	ST(RP_ST_LOST, ENOTCONN, "connection lost",
	   "Check the target and the network, write again whatever was not "
	   "committed, then commit; the next operation connects anew."),
};

static int is_known(enum rp_status st)
{
	return (unsigned int)st < RP_ST_MAX && statuses[st].name;
}

const char *rp_status_name(enum rp_status st)
{
	return is_known(st) ? statuses[st].name : "unknown status";
}

const char *rp_status_remedy(enum rp_status st)
{
	return is_known(st) ? statuses[st].remedy
			    : "The target runs a newer ofi_rpmem: install the "
			      "same release here.";
}

int rp_status_errno(enum rp_status st)
{
	return is_known(st) ? statuses[st].err : EPROTO;
}
