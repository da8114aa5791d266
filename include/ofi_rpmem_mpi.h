/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPI windows that a program declares durable: see rpmem_mpi_win_durable(3).
 * Inline functions over MPI and libfabric; link with -lfabric.
 */
#ifndef OFI_RPMEM_MPI_H
#define OFI_RPMEM_MPI_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_rpmem.h>

/* The path to a rank's part of a window. */
struct rpmem_mpi_part {
	char name[128];
	uint64_t base, len, key;
	int disp_unit;
};

struct rpmem_mpi_win {
	MPI_Win win;
	MPI_Comm comm;
	int nranks;
	struct rpmem_mpi_part *parts;
	fi_addr_t *peers;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fi_rpmem_ops *ops;
	struct fid_mr *mr;
	char why[160]; /* why the last commit failed */
};

static inline void rpmem_mpi_close_(struct rpmem_mpi_win *w)
{
	if (w->ep)
		fi_close(&w->ep->fid);
	if (w->mr)
		fi_close(&w->mr->fid);
	if (w->av)
		fi_close(&w->av->fid);
	if (w->cq)
		fi_close(&w->cq->fid);
	if (w->domain)
		fi_close(&w->domain->fid);
	if (w->fabric)
		fi_close(&w->fabric->fid);
	free(w->peers);
	free(w->parts);
	memset(w, 0, offsetof(struct rpmem_mpi_win, why));
}

/* Open an endpoint, and register the rank's own memory if it has some. */
static inline int rpmem_mpi_open_(struct rpmem_mpi_win *w, struct fi_info *info,
				  void *base, struct rpmem_mpi_part *mine)
{
	struct fi_cq_attr cqa = {.format = FI_CQ_FORMAT_CONTEXT,
				 .wait_obj = FI_WAIT_UNSPEC};
	struct fi_av_attr ava = {.type = FI_AV_TABLE};
	size_t len = sizeof(mine->name);
	int ret;

	ret = fi_fabric(info->fabric_attr, &w->fabric, NULL);
	if (!ret)
		ret = fi_domain(w->fabric, info, &w->domain, NULL);
	if (!ret)
		ret = fi_cq_open(w->domain, &cqa, &w->cq, NULL);
	if (!ret)
		ret = fi_av_open(w->domain, &ava, &w->av, NULL);
	if (!ret)
		ret = fi_endpoint(w->domain, info, &w->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(w->ep, &w->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!ret)
		ret = fi_ep_bind(w->ep, &w->av->fid, 0);
	if (!ret)
		ret = fi_enable(w->ep);
	if (!ret)
		ret = fi_rpmem_ops_get(w->ep, &w->ops);
	if (!ret)
		ret = fi_getname(&w->ep->fid, mine->name, &len);
	if (ret || !mine->len)
		return ret;
	ret = fi_mr_reg(w->domain, base, mine->len, FI_REMOTE_WRITE, 0, 1,
			FI_RMA_PMEM, &w->mr, NULL);
	if (ret)
		return ret;
	mine->key = fi_mr_key(w->mr);
	if (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		mine->base = (uintptr_t)base;
	return 0;
}

static inline int rpmem_mpi_begin_(struct rpmem_mpi_win *w, void *base,
				   struct rpmem_mpi_part *mine)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret = -FI_ENOMEM;

	w->parts = (struct rpmem_mpi_part *)calloc((size_t)w->nranks,
						   sizeof(*w->parts));
	w->peers = (fi_addr_t *)calloc((size_t)w->nranks, sizeof(*w->peers));
	if (!hints || !w->parts || !w->peers)
		goto out;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	/* A rank that computes, or waits in MPI, must still reply. */
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
	if (!ret)
		ret = rpmem_mpi_open_(w, info, base, mine);
out:
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return ret;
}

/* The worst result of all ranks: an error on one fails all. */
static inline int rpmem_mpi_worst_(MPI_Comm comm, int ret)
{
	int worst = ret;

	MPI_Allreduce(&ret, &worst, 1, MPI_INT, MPI_MIN, comm);
	return worst;
}

static inline int rpmem_mpi_commit_(struct rpmem_mpi_win *w, int target,
				    uint64_t at, uint64_t len)
{
	const struct rpmem_mpi_part *c = &w->parts[target];
	struct fi_rma_iov range = {c->base + at, len, c->key};
	struct fi_cq_err_entry err = {0};
	struct fi_cq_entry done;
	struct fi_rpmem_msg msg;
	ssize_t n;

	memset(&msg, 0, sizeof(msg)); /* durable, the endpoint's class */
	msg.rma_iov = &range;
	msg.rma_iov_count = 1;
	msg.addr = w->peers[target];
	do {
		n = fi_rpmem_commit(w->ops, w->ep, &msg, 0);
		if (n == -FI_EAGAIN)
			fi_cq_read(w->cq, NULL, 0);
	} while (n == -FI_EAGAIN);
	if (n)
		return (int)n;
	do {
		n = fi_cq_sread(w->cq, &done, 1, NULL, -1);
	} while (n == -FI_EAGAIN || n == -FI_EINTR);
	if (n == 1)
		return 0;
	if (n != -FI_EAVAIL || fi_cq_readerr(w->cq, &err, 0) != 1)
		return n ? (int)n : -FI_EOTHER;
	snprintf(w->why, sizeof(w->why), "%s",
		 fi_cq_strerror(w->cq, err.prov_errno, err.err_data, NULL, 0));
	return err.err ? -err.err : -FI_EOTHER;
}

static inline int rpmem_mpi_win_persist(struct rpmem_mpi_win *w, int target,
					MPI_Aint disp, MPI_Aint bytes)
{
	const struct rpmem_mpi_part *c;
	uint64_t at;

	if (target < 0 || target >= w->nranks || disp < 0 || bytes <= 0)
		return -FI_EINVAL;
	c = &w->parts[target];
	if (c->disp_unit > 0 &&
	    (uint64_t)disp > c->len / (uint64_t)c->disp_unit)
		return -FI_EINVAL;
	at = (uint64_t)disp * (uint64_t)c->disp_unit;
	if ((uint64_t)bytes > c->len - at)
		return -FI_EINVAL;
	/* Only bytes in the target's memory can be committed. */
	if (MPI_Win_flush(target, w->win) != MPI_SUCCESS)
		return -FI_EIO;
	return rpmem_mpi_commit_(w, target, at, (uint64_t)bytes);
}

static inline int rpmem_mpi_win_durable(MPI_Win win, MPI_Comm comm,
					struct rpmem_mpi_win *w)
{
	struct rpmem_mpi_part mine;
	int rank, found, *unit, ret;
	MPI_Aint *size;
	void *base;

	memset(w, 0, sizeof(*w));
	memset(&mine, 0, sizeof(mine));
	w->win = win;
	w->comm = comm;
	MPI_Comm_size(comm, &w->nranks);
	MPI_Comm_rank(comm, &rank);
	MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &found);
	MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &found);
	MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &found);
	mine.len = (uint64_t)*size;
	mine.disp_unit = *unit;
	ret = rpmem_mpi_worst_(comm, rpmem_mpi_begin_(w, base, &mine));
	if (!ret) {
		MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, w->parts,
			      sizeof(mine), MPI_BYTE, comm);
		for (int r = 0; r < w->nranks && !ret; r++)
			if (fi_av_insert(w->av, w->parts[r].name, 1,
					 &w->peers[r], 0, NULL) != 1)
				ret = -FI_EADDRNOTAVAIL;
		/* Can it be durable? Then commit what is in it. */
		if (!ret && mine.len)
			ret = rpmem_mpi_commit_(w, rank, 0, mine.len);
		ret = rpmem_mpi_worst_(comm, ret);
	}
	if (ret)
		rpmem_mpi_close_(w);
	return ret;
}

static inline void rpmem_mpi_win_forget(struct rpmem_mpi_win *w)
{
	/* Wait until no rank's commit is outstanding. */
	MPI_Barrier(w->comm);
	rpmem_mpi_close_(w);
}

#endif
