/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of private connections, made by a test that may send anything. */
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
struct private_call; /* a peer that connects, and awaits accept or reject */

/* Called from private_poll(); NULL: ignored. */
struct private_events {
	void (*received)(struct private_conn *c, const uint8_t *msg,
			 size_t len);
	/* To be ended by private_accept() or private_reject(), once. */
	void (*requested)(struct private_peer *p, struct private_call *call,
			  const uint8_t *data, size_t len);
};

/* All connections of one end, and the memory that its peers may access. */
struct private_peer {
	bool open;
	const struct private_events *events;
	int listener;	       /* -1: none */
	struct sockaddr_in at; /* address of the listener */
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
	int err; /* why it ended */
	/* Private data of the accept or the reject. */
	uint8_t data[PRIVATE_DATA];
	size_t data_len;
	unsigned int placed; /* writes that were acknowledged */
	uint8_t *sink;	     /* of the outstanding read */
	size_t sink_len;
	/* Input not parsed yet, and output not sent yet. */
	size_t in_len, out_len;
	uint8_t in[4 * PRIVATE_MAX], out[4 * PRIVATE_MAX];
};

void private_open(struct private_peer *p, const struct private_events *events);
/* Close all connections first. */
void private_close(struct private_peer *p);
/* Listen at a port of 127.0.0.1; 0: any. False: it is busy. */
bool private_listen(struct private_peer *p, uint16_t port);

/* Connect with this private data; private_wait() for the result. */
struct private_conn *private_dial(struct private_peer *p,
				  const struct sockaddr_in *to,
				  const void *data, size_t len);
/* NULL: the call has been canceled. */
struct private_conn *private_accept(struct private_peer *p,
				    struct private_call *call, const void *data,
				    size_t len);
void private_reject(struct private_peer *p, struct private_call *call,
		    const void *data, size_t len);
void private_end(struct private_conn *c);
/* Shut down the socket below the connection. */
void private_shut(struct private_conn *c);
/* Let peers read and write this memory by this rkey. */
void private_serve(struct private_peer *p, void *memory, size_t len,
		   uint64_t rkey);
/* Wait until c is up or has ended, for at most ms. */
enum private_state private_wait(struct private_conn *c, unsigned int ms);
/* Wait until c has ended, for at most ms. */
bool private_wait_end(struct private_conn *c, unsigned int ms);

/* Send at once, unchecked. False: the socket has no room. */
bool private_push(struct private_conn *c, const void *msg, size_t len);
/* Send. False: c has ended, or the socket has no room for two seconds. */
bool private_send(struct private_conn *c, const void *msg, size_t len);
/* RDMA of at most PRIVATE_MAX bytes, waited for: 0, errno, or ETIMEDOUT. */
int private_write(struct private_conn *c, const void *buf, size_t len,
		  uint64_t addr, uint64_t rkey);
int private_read(struct private_conn *c, void *buf, size_t len, uint64_t addr,
		 uint64_t rkey);

/* Process completions and events. True: there were some. */
bool private_poll(struct private_peer *p);
void private_poll_for(struct private_peer *p, unsigned int ms);
uint64_t private_now_ms(void);

/* Little-endian numbers in messages. */
uint64_t wire_get(const uint8_t *p, int n);
void wire_put(uint8_t *p, int n, uint64_t v);

#endif
