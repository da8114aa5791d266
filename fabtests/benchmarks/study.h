/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Case studies of RDMA with persistent memory: a client that reads and writes a
 * server's pool and sends it messages, in ways that are measured in turns.
 */
#ifndef RP_STUDY_H
#define RP_STUDY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functional/pair.h"

#define STUDY_POOL   PAIR_POOL
#define STUDY_WAYS   8
#define STUDY_BODY   20480u /* bytes of a message, at most */
#define STUDY_ROUNDS 101u   /* maximum rounds */

/*
 * One way to do the work; beside: the index of the way that it is compared to.
 */
struct study_way {
	const char *name;
	unsigned int flags; /* flags of the study */
	int beside;	    /* -1: none */
};

struct study_message {
	uint32_t op; /* STUDY_END or an operation of the study */
	uint32_t way;
	uint64_t offset, len; /* range in the pool */
	uint64_t id;
	unsigned char body[STUDY_BODY];
};
#define STUDY_END  0u
#define STUDY_HEAD offsetof(struct study_message, body)

struct study_reply {
	uint64_t value;
};

/* Page shared by client and server. */
struct study_shared {
	uint64_t key, addr; /* key and address of the pool */
	uint64_t done[STUDY_WAYS];
	atomic_uint wrong;  /* bytes of the pool that are not as expected */
	atomic_uint lost;   /* acknowledged as durable, not on the medium */
	atomic_uint judged; /* number of comparisons with the medium */
};
extern struct study_shared *study_shared;

struct study_options {
	bool check;   /* compare with the medium; times then mean nothing */
	bool sleep;   /* between completions, on a machine that is shared */
	bool emulate; /* ordinary memory, with clwb and without a class */
	unsigned int rounds, each;
};
extern struct study_options study_options;

/* Parse the arguments; exits on wrong ones. */
void study_start(int argc, char **argv);

/* The server handles messages until STUDY_END. */
typedef void (*study_handler)(const struct study_message *m, size_t len,
			      struct study_reply *r);
typedef void (*study_work)(struct side *s, unsigned int way);
struct study {
	const char *name;
	const struct study_way *ways;
	unsigned int ways_n;
	study_work work;     /* one operation of the client, in one way */
	void (*begin)(void); /* at the server, before the first message */
	study_handler handle;
	void (*end)(struct side *s); /* at the client: compare all bytes */
};
/* Run one study in two new processes: print its table, or TAP with --check. */
void study_run(const struct study *study);

/* --- the client --- */

/* Send m with len bytes of its body, and wait for the reply. */
uint64_t study_call(struct side *s, struct study_message *m, size_t len);
enum study_write {
	STUDY_PLACED,	 /* complete when the bytes are visible */
	STUDY_TWO_TRIPS, /* durable: a write, and a commit when it is complete
			  */
	STUDY_TOGETHER,	 /* durable: the commit is posted behind the write */
	STUDY_ONE_TRIP,	 /* durable: one request, one reply */
};
void study_write(struct side *s, const void *buf, size_t len, uint64_t offset,
		 enum study_write how);
/* Wait for n completions of operations with the context s. */
void study_wait(struct side *s, unsigned int n);
uint64_t study_random(void);

/* --- the server --- */

char *study_pool(void);
/* Volatile memory of the server, with a key for clients. */
char *study_plain(void);
/* Copy with non-temporal stores, or with memcpy(). */
void study_copy(void *to, const void *from, size_t len, bool stream);
/* With --check: count bytes acknowledged as durable that the medium lacks. */
void study_judge(uint64_t offset, const void *bytes, size_t len);

/* The server's card, at the client. */
extern struct card study_card;

#endif
