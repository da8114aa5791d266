/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of private connections, of a test's own making: it says anything. */
#ifndef RP_TEST_PRIVATE_PEER_H
#define RP_TEST_PRIVATE_PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "core/wire.h"
#include "functional/pair.h"

/* Longest private data. */
#define PRIVATE_DATA 256
/* Longest message that is sent. */
#define PRIVATE_MAX 16384

struct private_peer;
struct private_conn;
struct private_call; /* somebody who connects, and waits for an answer */

/* Called from private_poll(); NULL: ignored. */
struct private_events {
	void (*received)(struct private_conn *c, const uint8_t *msg,
			 size_t len);
	/* Answered by private_accept() or private_reject(), once. */
	void (*requested)(struct private_peer *p, struct private_call *call,
			  const uint8_t *data, size_t len);
};

/* All connections of one end, and what others may do to its memory. */
struct private_peer {
	bool open;
	const struct private_events *events;
	int listener;	       /* -1: none */
	struct sockaddr_in at; /* of its listener */
	void *arg;
	uint8_t *memory;
	size_t memory_len;
	uint64_t rkey;
	LIST_HEAD(, private_conn) conns;
	LIST_HEAD(, private_call) calls;
};

enum private_state {
	PRIVATE_CONNECTING,
	PRIVATE_UP,
	PRIVATE_ENDED, /* refused, lost or shut down */
};

struct private_conn {
	struct private_peer *peer;
	LIST_ENTRY(private_conn) link;
	int fd;
	enum private_state state;
	bool was_up;
	int err; /* of the end */
	/* Data of the accept or the reject. */
	uint8_t data[PRIVATE_DATA];
	size_t data_len;
	unsigned int placed; /* writes that were acknowledged */
	uint8_t *sink;	     /* of the read under way */
	size_t sink_len;
	/* Input that was not parsed, and output that was not sent. */
	size_t in_len, out_len;
	uint8_t in[4 * PRIVATE_MAX], out[4 * PRIVATE_MAX];
};

void private_open(struct private_peer *p, const struct private_events *events);
/* All connections closed before. */
void private_close(struct private_peer *p);
/* At a port of 127.0.0.1; 0: any. False: it is busy. */
bool private_listen(struct private_peer *p, uint16_t port);

/* Connect with so much private data; the end of it by private_wait(). */
struct private_conn *private_dial(struct private_peer *p,
				  const struct sockaddr_in *to,
				  const void *data, size_t len);
/* NULL: it has gone already. */
struct private_conn *private_accept(struct private_peer *p,
				    struct private_call *call, const void *data,
				    size_t len);
void private_reject(struct private_peer *p, struct private_call *call,
		    const void *data, size_t len);
void private_end(struct private_conn *c);
/* The socket is shut down under it. */
void private_shut(struct private_conn *c);
/* Others may read and write this, by this key. */
void private_serve(struct private_peer *p, void *memory, size_t len,
		   uint64_t rkey);
/* Until it is up or has ended, for at most so long. */
enum private_state private_wait(struct private_conn *c, unsigned int ms);
/* Until it has ended. */
bool private_wait_end(struct private_conn *c, unsigned int ms);

/* At once, and as it is. False: the socket does not take it. */
bool private_push(struct private_conn *c, const void *msg, size_t len);
/* False: the connection has ended, or takes nothing for two seconds. */
bool private_send(struct private_conn *c, const void *msg, size_t len);
/* RDMA of at most PRIVATE_MAX bytes, waited for: 0, errno, or ETIMEDOUT. */
int private_write(struct private_conn *c, const void *buf, size_t len,
		  uint64_t addr, uint64_t rkey);
int private_read(struct private_conn *c, void *buf, size_t len, uint64_t addr,
		 uint64_t rkey);

/* Completions and events that are there. True: there was something. */
bool private_poll(struct private_peer *p);
void private_poll_for(struct private_peer *p, unsigned int ms);
uint64_t private_now_ms(void);

/* Numbers in messages. */
uint64_t wire_get(const uint8_t *p, int n);
void wire_put(uint8_t *p, int n, uint64_t v);

#endif
