/* SPDX-License-Identifier: BSD-2-Clause */
/* Hash tables that say that there is no memory, and do not end the process. */
#ifndef RP_HASH_H
#define RP_HASH_H

/*
 * uthash calls exit() otherwise. Who adds an entry has a bool oom = false,
 * without which it does not compile; true: the entry was not added.
 */
#define HASH_NONFATAL_OOM	   1
#define uthash_nonfatal_oom(entry) (oom = true)
#include <uthash.h>

#endif
