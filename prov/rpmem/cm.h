/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints: fi_getinfo() entries, events, passive endpoints. */
#ifndef RPMEM_CM_H
#define RPMEM_CM_H

#include "rpmem/rpmem.h"

/* --- info_msg.c --- */

/* Is this fi_info (hints or an entry) for FI_EP_MSG with persistence? */
bool rp_info_is_msg(const struct fi_info *info, const char *base);
/* List FI_EP_MSG entries of ofi_rpmem; none if hints exclude them. */
int rp_info_list_msg(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list);
/* Find the base's FI_EP_MSG entry for the one that the program chose. */
int rp_info_find_base_msg(const struct rp_fabric *fab,
			  const struct fi_info *info, struct fi_info **out);

/* --- pep.c --- */

struct rp_pep {
	struct fid_pep fid;
	struct fid_pep *base;
	struct fi_info *info; /* argument of the program's fi_passive_ep() */
	struct fi_info *base_info; /* freed on close: sockets reads it */
	struct rp_eq_fid_pair fid_pair;
};
/* Map fi_info.handle to the base's object, if it is an object of ofi_rpmem. */
fid_t rp_pep_to_base(fid_t handle);

/* --- eq.c --- */

/* From now on report events of the base's object with program_fid. */
void rp_eq_add_fid_pair(struct rp_eq_fid_pair *n, struct fid *base,
			struct fid *program_fid);
/* Stop translating events of n->base; afterwards n may be freed. */
void rp_eq_del_fid_pair(struct rp_eq_fid_pair *n);

/* --- cm.c --- */

/* Record an endpoint's connection, its loss (error: errno), or its end (0). */
void rp_cm_set_connected(struct rp_ep *ep, bool connected, uint32_t error);

#endif
