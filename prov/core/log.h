/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines of core, passed to a function that core's caller sets. */
#ifndef RP_LOG_H
#define RP_LOG_H

enum rp_log_level {
	RP_LOG_WARN,
	RP_LOG_INFO,
};

typedef void (*rp_log_fn)(enum rp_log_level level, const char *text);
/* Set once, before the first log line. NULL: warnings to stderr, no others. */
void rp_log_set(rp_log_fn fn);
void rp_log(enum rp_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
