/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP server that exports this process's counters to Prometheus. */
#ifndef RP_UTIL_METRICS_H
#define RP_UTIL_METRICS_H

struct rp_metrics;

/* Check an address without listening: 0, or -EINVAL and the remedy in err. */
int rp_metrics_check(const char *where, char *err);
/*
 * Listen at ADDR:PORT, a loopback address ([::1]:PORT), or unix:PATH. Returns
 * 0, or -errno and the remedy in err: -EINVAL (no such form, or no loopback),
 * -EADDRINUSE, ...
 */
int rp_metrics_open(const char *where, struct rp_metrics **out, char *err);
/* This and the next functions accept NULL: rp_metrics_fd() returns -1. */
void rp_metrics_close(struct rp_metrics *m);
/* A descriptor that is readable when rp_metrics_run() has work. */
int rp_metrics_fd(const struct rp_metrics *m);
/* Serve all ready connections. Never blocks. */
void rp_metrics_run(struct rp_metrics *m);

#endif
