/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints: what all that make them have in common. */
#ifndef RPMEM_CEP_H
#define RPMEM_CEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct rp_dom;

/* Each maker of endpoints has its own of these. */
struct rp_ceps; /* what all of one domain share */
struct rp_cep;	/* one endpoint */

/* Registered memory. */
struct rp_cep_mr {
	void *handle;
	void *desc;   /* for operations on this side */
	uint64_t key; /* for those of the peer */
};
/* An access: peers may FLUSH it to persistence. Where not, nothing is done. */
#define RP_CEP_FLUSHED (1ull << 63)

/* What is known before anything is opened. */
struct rp_ceps_attr {
	unsigned int depth; /* operations that one endpoint takes */
	bool asks;	    /* messages as long as a request may be sent */
	bool native;	    /* they FLUSH to persistence by themselves */
	bool local;	    /* sources and sinks must be registered */
	bool virtual;	    /* memory goes by its address, else from 0 */
	bool shared;	    /* receives belong to all, see recv() */
};

enum rp_cep_kind {
	RP_CEP_WRITE,
	RP_CEP_READ,
	RP_CEP_SEND,
	RP_CEP_FLUSH, /* of len bytes at the peer; where attr->native */
};

/* One operation. Those of one endpoint are carried out in order. */
struct rp_cep_op {
	enum rp_cep_kind kind;
	bool copied;	/* a SEND of RP_WIRE_INJECT bytes at most */
	bool told;	/* its success is told, with this context */
	bool delivered; /* and not before it has arrived: a WRITE */
	void *context;
	void *buf;
	size_t len;
	void *desc;
	uint64_t at, key; /* all but SEND: there */
};

/* What has come back: an operation, or (recv) a message. */
struct rp_cep_done {
	void *context; /* NULL: a failure of one that need not be told */
	void *owner;   /* whose endpoint it is, where the maker can say */
	size_t len;
	int err;   /* positive */
	bool read; /* or a FLUSH: what was posted before has been done */
};

enum rp_cep_what {
	RP_CEP_REQUESTED, /* somebody connects, and shows this */
	RP_CEP_CONNECTED,
	RP_CEP_OVER,
};

struct rp_cep_event {
	enum rp_cep_what what;
	struct rp_cep *cep; /* NULL: one that is closed; not for REQUESTED */
	void *owner;	    /* of cep */
	void *request;	    /* for accept() or reject() */
	uint8_t shown[64];
	size_t shown_len;
};

/* Unless said otherwise 0, or an error of libfabric's, negative. */
struct rp_cep_ops {
	/* NULL: there are none on this domain's device. */
	struct rp_ceps *(*make)(struct rp_dom *dom, struct rp_ceps_attr *attr);
	void (*destroy)(struct rp_ceps *s);
	/*
	 * At this local address, any port. Descriptors that wake for events
	 * and, if it waits, for completions are added to epfd. After an error
	 * shut() is called.
	 */
	int (*open)(struct rp_ceps *s, const struct sockaddr *at, size_t len,
		    bool waits, int epfd);
	int (*listen)(struct rp_ceps *s, void *to, size_t *len);
	/* All endpoints are closed by then, all memory is deregistered. */
	void (*shut)(struct rp_ceps *s);
	int (*reg)(struct rp_ceps *s, void *buf, size_t len, uint64_t access,
		   struct rp_cep_mr *mr);
	int (*dereg)(struct rp_cep_mr *mr);
	/* An endpoint that may be connected to who listens there. */
	int (*dial)(struct rp_ceps *s, const struct sockaddr *to, size_t len,
		    void *owner, struct rp_cep **cep);
	/* Messages can come after that: recv() before. It is shown this. */
	int (*connect)(struct rp_cep *cep, const void *show, size_t len);
	/* One for who wants to connect: then accept() it, or close() it. */
	int (*take)(struct rp_ceps *s, void *request, void *owner,
		    struct rp_cep **cep);
	int (*accept)(struct rp_cep *cep);
	/* What was taken, or could not be, is not rejected as well. */
	void (*reject)(struct rp_ceps *s, void *request);
	/*
	 * From then on nothing that the peer sends reaches memory. What was
	 * posted may still come back until poll() finds nothing.
	 */
	void (*close)(struct rp_cep *cep);
	/* How many were posted, from the first on; or an error if none was. */
	int (*post)(struct rp_cep *cep, const struct rp_cep_op *ops, int n);
	/*
	 * Room for a message. attr->shared: for any endpoint that was dialed,
	 * or for any that was taken (served), and cep is NULL.
	 */
	int (*recv)(struct rp_ceps *s, struct rp_cep *cep, bool served,
		    void *buf, size_t len, void *desc, void *context);
	/* How many, at most n; 0: nothing more of those that are closed. */
	int (*poll)(struct rp_ceps *s, struct rp_cep_done *done, int n);
	/* False: no event. */
	bool (*event)(struct rp_ceps *s, struct rp_cep_event *e);
	/* -FI_EAGAIN: do not sleep yet. */
	int (*trywait)(struct rp_ceps *s);
};

extern const struct rp_cep_ops rp_cep_fi; /* of libfabric */
#ifdef HAVE_RDMACM
extern const struct rp_cep_ops rp_cep_verbs; /* queue pairs of our own */
#endif

#endif
