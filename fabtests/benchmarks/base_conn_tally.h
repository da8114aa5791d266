/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations on bare connected endpoints, and a count of their completions. */
#ifndef RP_BASE_CONN_TALLY_H
#define RP_BASE_CONN_TALLY_H

#include "fabtests/benchmarks/base_conn.h"

#define LEN   (16u << 20)
#define RIGHT (FI_REMOTE_READ | FI_REMOTE_WRITE)
/* Bytes that a region has before and after a write. */
#define OLD 0x11
#define NEW 0x22

/* Completions and errors of one CQ. */
struct tally {
	int done, failed, n;
	struct {
		int context; /* 0: NULL */
		int err;     /* 0: success */
	} entry[256];
};

/* Read one completion or error. False: there is none. */
bool tally_read(struct conn_node *n, struct tally *t);
/* Poll for ms, or until there are n entries. */
void tally_poll(struct conn_node *n, struct tally *t, int entries, double ms);
void tally_print(const char *what, const struct tally *t);
/* The context of an operation, from its number. */
void *context_of(int i);
ssize_t message_send(struct fid_ep *ep, const void *buf, size_t len, int number,
		     uint64_t flags);
ssize_t write_post(struct fid_ep *ep, const void *buf, size_t len,
		   uint64_t addr, uint64_t key, int number, uint64_t flags);
/* Open a target that listens; w->mem is registered with key 7. */
void target_open(struct conn_node *n, struct conn_world *w);
size_t count_bytes(const char *mem, size_t len, char value);

#endif
