/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints: entries of fi_getinfo(), events, passive endpoints. */
#ifndef RPMEM_CM_H
#define RPMEM_CM_H

#include "rpmem/rpmem.h"

/* --- info_msg.c --- */

/* Is the info (hints, or returned for them) for ofi_rpmem's connected ones? */
bool rp_info_is_msg(const struct fi_info *info, const char *base);
/* List ofi_rpmem's connected entries; none if hints exclude them. */
int rp_info_msg_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list);
/* The base's own entry for the one that a program chose. */
int rp_info_msg_base(const struct rp_fabric *fab, const struct fi_info *info,
		     struct fi_info **out);

/* --- pep.c --- */

struct rp_pep {
	struct fid_pep fid;
	struct fid_pep *base;
	struct fi_info *info;	   /* with which the program opened it */
	struct fi_info *base_info; /* kept, as sockets still reads it */
	struct rp_eq_name name;
};
/* The base's object behind a handle of fi_info, which may be ofi_rpmem's. */
fid_t rp_pep_to_base(fid_t handle);

/* --- eq.c --- */

/* Report later events of the base's object with the program's fid. */
void rp_eq_add_name(struct rp_eq_name *n, struct fid *base, struct fid *ours);
/* Remove a name; afterwards no event is translated by it, and it may be freed.
 */
void rp_eq_del_name(struct rp_eq_name *n);

/* --- cm.c --- */

/* The program's endpoint was connected, or its connection has ended. */
void rp_cm_set_connected(struct rp_ep *ep, bool connected);

#endif
