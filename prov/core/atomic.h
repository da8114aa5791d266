/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics that the agent executes in the memory of a region. */
#ifndef RP_ATOMIC_H
#define RP_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values as in libfabric's enum fi_op; they are on the wire. */
enum rp_atomic_op {
	RP_ATOMIC_MIN,
	RP_ATOMIC_MAX,
	RP_ATOMIC_SUM,
	RP_ATOMIC_PROD,
	RP_ATOMIC_LOR,
	RP_ATOMIC_LAND,
	RP_ATOMIC_BOR,
	RP_ATOMIC_BAND,
	RP_ATOMIC_LXOR,
	RP_ATOMIC_BXOR,
	RP_ATOMIC_READ,
	RP_ATOMIC_WRITE,
	RP_ATOMIC_CSWAP,
	RP_ATOMIC_CSWAP_NE,
	RP_ATOMIC_CSWAP_LE,
	RP_ATOMIC_CSWAP_LT,
	RP_ATOMIC_CSWAP_GE,
	RP_ATOMIC_CSWAP_GT,
	RP_ATOMIC_MSWAP,
	RP_ATOMIC_OPS
};

/* Values as in libfabric's enum fi_datatype; they are on the wire. */
enum rp_atomic_type {
	RP_ATOMIC_INT8,
	RP_ATOMIC_UINT8,
	RP_ATOMIC_INT16,
	RP_ATOMIC_UINT16,
	RP_ATOMIC_INT32,
	RP_ATOMIC_UINT32,
	RP_ATOMIC_INT64,
	RP_ATOMIC_UINT64,
	RP_ATOMIC_FLOAT,
	RP_ATOMIC_DOUBLE,
	RP_ATOMIC_FLOAT_COMPLEX,
	RP_ATOMIC_TYPES
};

/*
 * True: the operation exists for the datatype; *size: bytes of an element, at
 * most 8. The table is that of libfabric's tcp;ofi_rxm. op, type: any numbers.
 */
bool rp_atomic_valid(unsigned int op, unsigned int type, size_t *size);

/* Every operation but RP_ATOMIC_READ has an operand. */
static inline bool rp_atomic_has_operand(unsigned int op)
{
	return op != RP_ATOMIC_READ;
}
static inline bool rp_atomic_has_compare(unsigned int op)
{
	return op >= RP_ATOMIC_CSWAP && op <= RP_ATOMIC_MSWAP;
}

/*
 * Apply a valid operation to count elements from target on, one by one, each
 * atomically and sequentially consistent. target is a multiple of the element's
 * size. operand, compare (NULL if the operation has none) and result (NULL: old
 * values are not fetched) have any alignment.
 */
void rp_atomic_execute(enum rp_atomic_op op, enum rp_atomic_type type,
		       void *target, const void *operand, const void *compare,
		       void *result, size_t count);

#endif
