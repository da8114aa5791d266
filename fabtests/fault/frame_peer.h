/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of private connections over TCP, by which a test may send any bytes.
 */
#ifndef RP_TEST_FRAME_PEER_H
#define RP_TEST_FRAME_PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "core/wire.h"
#include "functional/pair.h"

/* Longest private data of a connection, in bytes. */
#define FRAME_DATA 256
/* Longest message, in bytes. */
#define FRAME_MAX 16384

struct frame_peer;
struct frame_conn;
struct frame_call; /* an incoming connection request */

/*
 * Callbacks that frame_poll() makes. NULL: ignore messages, and reject
 * requests.
 */
struct frame_events {
	void (*received)(struct frame_conn *c, const uint8_t *msg, size_t len);
	/*
	 * A connection request with this private data: call frame_accept() or
	 * frame_reject(), once.
	 */
	void (*requested)(struct frame_peer *p, struct frame_call *call,
			  const uint8_t *data, size_t len);
};

/* All connections of one end, and the memory that its peers may access. */
struct frame_peer {
	bool open;
	const struct frame_events *events;
	int listener;	       /* listening socket; -1: none */
	struct sockaddr_in at; /* address of the listener */
	void *arg;
	uint8_t *memory;
	size_t memory_len;
	uint64_t rkey;
	LIST_HEAD(, frame_conn) conns;
	LIST_HEAD(, frame_call) calls;
};

enum frame_state {
	FRAME_CONNECTING,
	FRAME_UP,
	FRAME_ENDED, /* the connection was refused, lost or shut down */
};

struct frame_conn {
	struct frame_peer *peer;
	LIST_ENTRY(frame_conn) link;
	int fd;
	enum frame_state state;
	bool was_up;
	int err; /* errno with which the connection ended */
	/* Private data that the peer sent with its accept or reject. */
	uint8_t data[FRAME_DATA];
	size_t data_len;
	unsigned int placed; /* writes acknowledged by the peer */
	uint8_t *sink;	     /* buffer of the outstanding read */
	size_t sink_len;
	/*
	 * Lengths of the input not parsed yet, and of the output not sent yet.
	 */
	size_t in_len, out_len;
	uint8_t in[4 * FRAME_MAX], out[4 * FRAME_MAX];
};

void frame_open(struct frame_peer *p, const struct frame_events *events);
/* Close the peer, after frame_end() of all its connections. */
void frame_close(struct frame_peer *p);
/*
 * Listen on a port of 127.0.0.1; 0: any port. Returns false if the port is in
 * use.
 */
bool frame_listen(struct frame_peer *p, uint16_t port);

/*
 * Begin to connect, with this private data. frame_wait() waits for the result.
 */
struct frame_conn *frame_dial(struct frame_peer *p,
			      const struct sockaddr_in *to, const void *data,
			      size_t len);
/* Accept a connection request. Returns NULL if its peer has canceled it. */
struct frame_conn *frame_accept(struct frame_peer *p, struct frame_call *call,
				const void *data, size_t len);
void frame_reject(struct frame_peer *p, struct frame_call *call,
		  const void *data, size_t len);
void frame_end(struct frame_conn *c);
/* Shut down the connection's socket, and keep c. */
void frame_shut(struct frame_conn *c);
/* Let peers read and write this memory with this rkey. */
void frame_serve(struct frame_peer *p, void *memory, size_t len, uint64_t rkey);
/* Wait until c is up or has ended, for at most ms milliseconds. */
enum frame_state frame_wait(struct frame_conn *c, unsigned int ms);
/* Wait until c has ended, for at most ms milliseconds. */
bool frame_wait_end(struct frame_conn *c, unsigned int ms);

/* Send a message without polling. Returns false if the buffer has no room. */
bool frame_push(struct frame_conn *c, const void *msg, size_t len);
/*
 * Send a message, and poll. Returns false if c has ended, or if the buffer had
 * no room for 2 seconds.
 */
bool frame_send(struct frame_conn *c, const void *msg, size_t len);
/*
 * RDMA of at most FRAME_MAX bytes. Waits until it completes. Returns 0,
 * ENOTCONN or ETIMEDOUT.
 */
int frame_write(struct frame_conn *c, const void *buf, size_t len,
		uint64_t addr, uint64_t rkey);
int frame_read(struct frame_conn *c, void *buf, size_t len, uint64_t addr,
	       uint64_t rkey);

/*
 * Receive frames, make callbacks, send what is queued. Returns true if anything
 * was received.
 */
bool frame_poll(struct frame_peer *p);
void frame_poll_for(struct frame_peer *p, unsigned int ms);
uint64_t frame_now_ms(void);

/* Read and write little-endian numbers in messages. */
uint64_t wire_get(const uint8_t *p, int n);
void wire_put(uint8_t *p, int n, uint64_t v);

#endif
