/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges of one key in ascending order, encoded as differences. */
#ifndef RP_WIRE_PACK_H
#define RP_WIRE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

#define RP_WIRE_NUMBER_MAX 10 /* most bytes of one number */
#define RP_WIRE_PACKED_AT  32 /* bytes of a REQUEST before the packed ranges */

/*
 * Pack ranges from the first on: as many as have its key, are ascending and fit
 * into size bytes; *taken: how many. Returns the bytes.
 */
size_t rp_wire_pack(uint8_t *out, size_t size, const struct rp_wire_range *r,
		    size_t n, size_t *taken);
/* Unpack exactly n ranges of this key. Returns the bytes read, or -EBADMSG. */
int rp_wire_unpack(const uint8_t *in, size_t len, uint64_t key,
		   struct rp_wire_range *r, size_t n);

#endif
