/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of fi_rpmemd: lines on standard error. */
#ifndef RP_UTIL_EVENT_H
#define RP_UTIL_EVENT_H

/* One line, with the time, which journald adds by itself. */
void rp_event(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
