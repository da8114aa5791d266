/* SPDX-License-Identifier: BSD-2-Clause */
/* The operator's file: statements about facts that software cannot read. */
#ifndef RP_OPERATOR_FILE_H
#define RP_OPERATOR_FILE_H

#include "core/caps.h"

/*
 * A text file: sections, and statements in them, one per line; '#' begins a
 * comment.
 *
 *	[host]				everything on this machine
 *	[path /mnt/pmem]		this path and everything below
 *	[device dax0.0]			a device DAX
 *	limit domain = memory-controller
 *	assert fence = yes
 *
 * `limit` never makes a fact stronger than what was found. `assert` is
 * believed: if it makes a fact stronger, it is logged and shown by
 * fi_rpmem_info. A limit holds whatever is asserted; of several assertions
 * about one fact the last one in the file that applies holds.
 *
 *	domain		none, memory-controller, cpu-caches, system
 *	placement	dma-cache, dma-memory; only of writes by a device,
 *			not of a CPU that copies to the program's mapping
 *	fence		yes, no
 *	native		no (limit only: both ends must confirm it)
 *	filesystem	trusted, untrusted; trust covers the disks below, too
 *	class		none, process, power (limit only: it follows from facts)
 */
#define RP_OPERATOR_DEFAULT "/etc/ofi_rpmem.conf"

struct rp_operator;

/*
 * Read and check the whole file. It must be a regular file that belongs to root
 * or to this user, and that no other user can write. Returns 0, or -errno (of
 * opening it), -EPERM (other users can write it), -EINVAL, -E2BIG, -ENOMEM,
 * with a sentence in why (RP_WHY_LEN bytes) that names file and line.
 */
int rp_operator_load(const char *path, struct rp_operator **out, char *why);
/*
 * Load the file at path; NULL: the default file, which may be missing: then
 * *out is NULL.
 */
int rp_operator_find(const char *path, struct rp_operator **out, char *why);
void rp_operator_free(struct rp_operator *o);

/*
 * Apply the statements to the facts that were found. path: of the mapped file,
 * or ""; device: of a device DAX, or "". Sources of changed facts are
 * rewritten; statements that make a fact stronger are logged, and counted in
 * src->raised.
 */
void rp_operator_apply(const struct rp_operator *o, const char *path,
		       const char *device, struct rp_facts *facts,
		       struct rp_sources *src);

/*
 * Replace each fact of f that the operator can state by that of now, if that is
 * weaker. Placement by a CPU that copies counts as the strongest.
 */
void rp_facts_weaken(struct rp_facts *f, const struct rp_facts *now);

#endif
