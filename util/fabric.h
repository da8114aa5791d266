/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens what a tool needs of libfabric: a domain of ofi_rpmem, an endpoint. */
#ifndef RP_UTIL_FABRIC_H
#define RP_UTIL_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "util/text.h"

/* Zero means the default, everywhere. */
struct rp_fabric_attr {
	const char *base; /* base provider; NULL: "tcp" */
	bool bare;	  /* the base alone, to compare with: no commits */
	bool target;	  /* remote access too */
	bool no_ep;	  /* a domain and a queue that drives it: fi_rpmemd */
	bool tagged;	  /* tagged messages as well as RMA */
	/*
	 * Address to bind to. NULL: the one that leads to dest, and without
	 * a dest 127.0.0.1.
	 */
	const char *source;
	const void *dest; /* a sockaddr of the peer, aligned for it */
	size_t dest_len;
	bool selective; /* the ...msg() calls complete only as FI_COMPLETION
			   asks */
	bool automatic; /* a thread advances progress, not the program */
	bool plain;	/* over the base, but without persistent memory */
	bool wait_fd;	/* the CQ has a file descriptor; else none to wait on */
	size_t cq_size; /* 0: the provider's default */
};

struct fi_rpmem_ops; /* rdma/fi_ext_rpmem.h */

struct rp_fabric {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq; /* FI_CQ_FORMAT_CONTEXT; transmit and receive */
	struct fid_ep *ep; /* enabled; NULL with no_ep */
	struct fi_rpmem_ops *ops; /* of ep; NULL with no_ep, bare, plain */
};

/*
 * Where the provider's DSO is: a folder of FI_PROVIDER_PATH, or when that is
 * not set the build tree of this program or the folder it was installed to.
 * Writes the folder and returns 0, or -ENOENT and the remedy in err.
 */
int rp_fabric_find_provider(char *dir, size_t len, char *err);

/*
 * Prepare the environment for the first libfabric call of this process:
 * FI_PROVIDER_PATH when it is not set. FI_PROVIDER is left alone, the
 * hints choose, but one that excludes the provider is an error. Every
 * rp_fabric_open() does it too. Not thread-safe: sets the environment.
 */
int rp_fabric_env(const struct rp_fabric_attr *attr, char *err);

/*
 * Open everything. On failure returns -FI_* and a sentence with the remedy in
 * err (RP_ERR_LEN bytes), and *f is all NULL.
 */
int rp_fabric_open(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		   char *err);
/* Close everything that is open. */
void rp_fabric_close(struct rp_fabric *f);

/*
 * Register memory. Local buffers (access FI_READ | FI_WRITE) are registered
 * only where the provider wants FI_MR_LOCAL; *mr is NULL otherwise, and
 * rp_fabric_desc() takes that.
 */
int rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len, uint64_t access,
		  uint64_t flags, struct fid_mr **mr, char *err);
void *rp_fabric_desc(struct fid_mr *mr);

/* Insert one sockaddr of a peer. */
int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err);

/*
 * Take one error entry off the CQ. Returns 0 and fills *entry, and err with
 * what the provider says about it; -FI_EAGAIN when there is none.
 */
int rp_fabric_cq_error(struct rp_fabric *f, struct fi_cq_err_entry *entry,
		       char *err);

/* Is addr (a host name or number) of the loopback network? */
bool rp_fabric_is_loopback(const char *addr);

#endif
