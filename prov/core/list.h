/* SPDX-License-Identifier: BSD-2-Clause */
/* sys/queue.h with FOREACH_SAFE, which glibc lacks, and container_of(). */
#ifndef RP_LIST_H
#define RP_LIST_H

#include <stddef.h>
#include <sys/queue.h>

#define rp_container_of(ptr, type, member)                                     \
	((type *)((char *)(ptr)-offsetof(type, member)))

#ifndef TAILQ_FOREACH_SAFE
#define TAILQ_FOREACH_SAFE(var, head, field, next)                             \
	for ((var) = TAILQ_FIRST(head);                                        \
	     (var) && ((next) = TAILQ_NEXT(var, field), 1); (var) = (next))
#endif

#ifndef LIST_FOREACH_SAFE
#define LIST_FOREACH_SAFE(var, head, field, next)                              \
	for ((var) = LIST_FIRST(head);                                         \
	     (var) && ((next) = LIST_NEXT(var, field), 1); (var) = (next))
#endif

#endif
