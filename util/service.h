/* SPDX-License-Identifier: BSD-2-Clause */
/* A daemon under a service manager: sd_notify(3), and lines for the journal. */
#ifndef RP_UTIL_SERVICE_H
#define RP_UTIL_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Levels of syslog(3) for log lines. */
enum rp_service_level {
	RP_SERVICE_ERROR = 3,
	RP_SERVICE_WARNING = 4,
	RP_SERVICE_NOTICE = 5,
	RP_SERVICE_INFO = 6,
	RP_SERVICE_DEBUG = 7,
};

/* The next four functions do nothing if NOTIFY_SOCKET is not set. */
void rp_service_ready(void);	 /* READY=1, also after a reload */
void rp_service_reloading(void); /* must be followed by rp_service_ready() */
void rp_service_stopping(void);
/* Set the line that systemctl status shows. */
void rp_service_status(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
/*
 * Notify the manager's watchdog, at most twice per interval. Returns the
 * milliseconds until the next call, or -1: no watchdog. Only the loop whose
 * hang must be detected may call it.
 */
int rp_service_watchdog(void);

/* Prefix of a line on stderr: "<3>" for the journal, else "". */
const char *rp_service_prefix(enum rp_service_level level);
/* Write a line to stderr, with the time unless the journal adds it. */
void rp_service_log(enum rp_service_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Give the lines of libfabric and its providers their level in the journal. */
void rp_service_log_fabric(void);
/* Whether a second has passed since the last call with this `last` was true. */
bool rp_service_may_log(uint64_t *last);

/*
 * Block SIGTERM, SIGINT and SIGHUP, and ignore SIGUSR1 and SIGPIPE. Returns a
 * signalfd(2), or -errno.
 */
int rp_service_block_signals(void);
/*
 * Unblock SIGTERM and SIGINT, so that a second one ends the process at once.
 * SIGHUP stays blocked.
 */
void rp_service_unblock_signals(void);
/* Write the port to a file atomically. Returns 0, or -errno and the reason. */
int rp_service_write_port(const char *path, uint16_t port, char *err);

#endif
