/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints: entries of fi_getinfo(), events, passive endpoints. */
#ifndef RPMEM_CM_H
#define RPMEM_CM_H

#include "rpmem/rpmem.h"

/* --- info_msg.c --- */

/* Is this, of hints' kind or returned for them, for connected ones of ours? */
bool rp_info_is_msg(const struct fi_info *info, const char *base);
/* Entries that we make of the base's; nothing where hints do not ask. */
int rp_info_msg_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list);
/* The base's own entry behind what a program chose. */
int rp_info_msg_base(const struct rp_fabric *fab, const struct fi_info *info,
		     struct fi_info **out);
/* A program's entry as the base wants to see it, under the base's name. */
struct fi_info *rp_info_msg_to_base(const struct fi_info *info,
				    const char *base);

/* --- pep.c --- */

struct rp_pep {
	struct fid_pep fid;
	struct fid_pep *base;
	struct fi_info *info;	   /* what the program opened it with */
	struct fi_info *base_info; /* sockets goes on looking at it */
	struct rp_eq_name name;
};
/* The base's object behind a handle of fi_info, which may be ours. */
fid_t rp_pep_to_base(fid_t handle);

/* --- eq.c --- */

/* Events of this object of the base's are from now on those of ours. */
void rp_eq_add_name(struct rp_eq_name *n, struct fid *base, struct fid *ours);
/* When this returns, no event is being translated to it. */
void rp_eq_del_name(struct rp_eq_name *n);

/* --- cm.c --- */

/* The connection of the program's endpoint is made, or has ended. */
void rp_cm_set_connected(struct rp_ep *ep, bool connected);

#endif
