/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges of one key in ascending order, as differences. */
#ifndef RP_WIRE_PACK_H
#define RP_WIRE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

#define RP_WIRE_NUMBER 10 /* bytes of one at most */
#define RP_WIRE_PACKS  32 /* bytes of a REQUEST in front of them */

/*
 * Pack ranges from the first on: as many as are of its key, lie behind each
 * other and fit into size bytes; *taken says how many. Returns the bytes.
 */
size_t rp_wire_pack(uint8_t *out, size_t size, const struct rp_wire_range *r,
		    size_t n, size_t *taken);
/* Exactly n ranges of this key. Returns the bytes they took, or -EBADMSG. */
int rp_wire_unpack(const uint8_t *in, size_t len, uint64_t key,
		   struct rp_wire_range *r, size_t n);

#endif
