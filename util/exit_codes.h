/* SPDX-License-Identifier: BSD-2-Clause */
/* Exit codes of the tools; their man pages list them. */
#ifndef RP_UTIL_EXIT_CODES_H
#define RP_UTIL_EXIT_CODES_H

#include <errno.h>

enum rp_exit {
	RP_EXIT_OK = 0,
	RP_EXIT_USAGE = 2, /* wrong arguments, in every tool */

	/* exit codes of fi_rpmemd, and of the tools that open pools */
	RP_EXIT_FAILED = 1,  /* any other failure */
	RP_EXIT_FILE = 3,    /* a file or pool: missing, damaged, unreadable */
	RP_EXIT_BUSY = 4,    /* the pool is open elsewhere */
	RP_EXIT_SPACE = 5,   /* disk full, or range beyond the pool's end */
	RP_EXIT_NETWORK = 6, /* provider, address, port, daemon, pool name */
	RP_EXIT_SECRET = 7,
	RP_EXIT_CLASS = 8,   /* the required class cannot be reached */
	RP_EXIT_BROKEN = 9,  /* interrupted; can be resumed */
	RP_EXIT_DIFFER = 10, /* bytes differ, or are lost */

	/* exit codes of fi_rpmem_info, fi_rpmem_bench and fi_rpmem_group */
	RP_EXIT_PARTLY = 1,  /* warnings, missing figures, or missed limits */
	RP_EXIT_NOTHING = 3, /* a check failed, or the program could not run */
};

/* The exit code of a tool whose rpmem_pool_open() failed with ret. */
static inline enum rp_exit rp_exit_pool(int ret)
{
	switch (ret) {
	case -EACCES:
		return RP_EXIT_SECRET;
	case -EBUSY:
		return RP_EXIT_BUSY;
	case -EINVAL:
		return RP_EXIT_USAGE;
	case -EBADMSG:
		return RP_EXIT_FILE;
	case -ENOSPC:
		return RP_EXIT_SPACE;
	case -EOPNOTSUPP:
		return RP_EXIT_CLASS;
	case -ENOMEM:
		return RP_EXIT_FAILED;
	default:
		return RP_EXIT_NETWORK;
	}
}

#endif
