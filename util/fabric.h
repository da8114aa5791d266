/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens libfabric for the tools: a domain of ofi_rpmem, an endpoint. */
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

/* Options of rp_fabric_open(). Zero is the default of each. */
struct rp_fabric_attr {
	const char *base; /* base provider; NULL: "tcp" */
	bool bare;	  /* the base without ofi_rpmem, so without commits */
	bool target;	  /* allow remote access */
	bool no_ep;	  /* only a domain and a CQ for progress: fi_rpmemd */
	bool tagged;	  /* tagged messages as well as RMA */
	/*
	 * Local address to bind to. NULL: the address of the route to dest, or
	 * 127.0.0.1 without dest.
	 */
	const char *source;
	const void *dest; /* aligned sockaddr of the peer */
	size_t dest_len;
	bool selective;	   /* FI_SELECTIVE_COMPLETION */
	bool automatic;	   /* FI_PROGRESS_AUTO: a thread makes progress */
	bool plain;	   /* ofi_rpmem without FI_RMA_PMEM */
	bool wait_fd;	   /* the CQ has a file descriptor to wait on */
	size_t cq_size;	   /* 0: the provider's default */
	size_t queue_size; /* size of both endpoint queues; 0: the default */
};

struct fi_rpmem_ops; /* defined in rdma/fi_ext_rpmem.h */

struct rp_fabric {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq; /* format FI_CQ_FORMAT_CONTEXT; sends and receives */
	struct fid_ep *ep; /* enabled endpoint; NULL with no_ep */
	struct fi_rpmem_ops
		*ops; /* calls on ep; NULL with no_ep, bare, plain */
};

/*
 * Find the directory of the provider DSO: in FI_PROVIDER_PATH or, if that is
 * not set, in this program's build tree or the installation. Returns 0, or
 * -ENOENT and the remedy in err.
 */
int rp_fabric_find_provider(char *dir, size_t len, char *err);

/*
 * Prepare the environment for the first libfabric call of this process: set
 * FI_PROVIDER_PATH if it is not set. FI_PROVIDER stays, because the hints
 * select the provider; a filter that excludes ofi_rpmem is an error.
 * rp_fabric_open() calls this. Not thread-safe: sets the environment.
 */
int rp_fabric_env(const struct rp_fabric_attr *attr, char *err);

/*
 * Open fabric, domain, CQ, AV and endpoint. On failure returns -FI_* and the
 * cause with its remedy in err (RP_ERR_LEN bytes), and all of *f is NULL.
 */
int rp_fabric_open(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		   char *err);
/* Close what rp_fabric_open() opened. */
void rp_fabric_close(struct rp_fabric *f);

/*
 * Register memory. Local buffers (access FI_READ | FI_WRITE) are registered
 * only if the provider requires FI_MR_LOCAL; otherwise *mr is NULL, which
 * rp_fabric_desc() accepts.
 */
int rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len, uint64_t access,
		  uint64_t flags, struct fid_mr **mr, char *err);
void *rp_fabric_desc(struct fid_mr *mr);

/* Insert a peer's sockaddr into the AV. */
int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err);

/*
 * Read one error entry of the CQ. Returns 0 with *entry, and the text of the
 * provider in err; -FI_EAGAIN: the CQ has no error entry.
 */
int rp_fabric_cq_error(struct rp_fabric *f, struct fi_cq_err_entry *entry,
		       char *err);

/* Whether addr (host name or number) is a loopback address. */
bool rp_fabric_is_loopback(const char *addr);
/* Is this the wildcard address, in any notation? */
bool rp_fabric_is_any(const char *addr);

#endif
