// SPDX-License-Identifier: BSD-2-Clause
/* Calls of the example kv_server and their replies, in host byte order. */
#ifndef KV_H
#define KV_H

#include <stdint.h>

#define KV_VALUE_MAX 4096u

enum kv_type {
	KV_GET,	   /* reply: count 1, and the value; ENOENT */
	KV_SCAN,   /* reply: at most number values, from key on, that fit */
	KV_PUT,	   /* store the value */
	KV_INSERT, /* store the value; EEXIST */
	KV_ADD,	   /* add number to the first 8 bytes; reply: their sum */
};

struct kv_call {
	uint64_t key;
	uint64_t number;
	uint32_t type;
	uint32_t len; /* length of the value, which follows */
};

struct kv_reply {
	uint32_t status; /* 0 or an errno */
	uint32_t count;	 /* number of values: each follows its struct kv_pair */
	uint64_t number;
};

struct kv_pair {
	uint64_t key;
	uint64_t len;
};

#endif
