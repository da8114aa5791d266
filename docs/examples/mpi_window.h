/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPI windows on files: the program chooses which bytes survive a power cut.
 * Copy this file into the program; compile with mpicc, and link with -lfabric.
 * This is a header and no library, because each MPI has its own binary
 * interface. mpi_window.c uses it.
 *
 * A window over a shared mapping of a file keeps its bytes when its rank is
 * killed, but not when the power fails. FI_OFI_RPMEM_COMMIT_WRITES of
 * fi_rpmem(7) makes every put of an unmodified program durable; with these
 * calls a program pays only for the bytes that it names.
 *
 * MPI has to use the provider too (README.md, "From MPI"). Nothing is promised
 * where a network adapter places MPI's data. One thread at a time may use a
 * window. The calls return 0 or a negative value of <rdma/fi_errno.h>.
 */
#ifndef MPI_WINDOW_H
#define MPI_WINDOW_H

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
struct mpi_window_part {
	char name[128];
	uint64_t base, len, key;
	int disp_unit;
};

struct mpi_window {
	MPI_Win win;
	MPI_Comm comm;
	int nranks;
	struct mpi_window_part *parts;
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

static void window_free(struct mpi_window *w)
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
	memset(w, 0, offsetof(struct mpi_window, why));
}

/* Open an endpoint, and register this rank's part if the rank has one. */
static int window_open_ep(struct mpi_window *w, struct fi_info *info,
			  void *base, struct mpi_window_part *mine)
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

static int window_begin(struct mpi_window *w, void *base,
			struct mpi_window_part *mine)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret = -FI_ENOMEM;

	w->parts = (struct mpi_window_part *)calloc((size_t)w->nranks,
						    sizeof(*w->parts));
	w->peers = (fi_addr_t *)calloc((size_t)w->nranks, sizeof(*w->peers));
	if (!hints || !w->parts || !w->peers)
		goto out;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	/*
	 * The rank must reply to requests also while it computes or waits in
	 * MPI.
	 */
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
	if (!ret)
		ret = window_open_ep(w, info, base, mine);
out:
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return ret;
}

/* The worst result of all ranks: an error on one fails all. */
static int window_worst(MPI_Comm comm, int ret)
{
	int worst = ret;

	MPI_Allreduce(&ret, &worst, 1, MPI_INT, MPI_MIN, comm);
	return worst;
}

static int window_commit(struct mpi_window *w, int target, uint64_t at,
			 uint64_t len)
{
	const struct mpi_window_part *c = &w->parts[target];
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

/*
 * Make bytes durable that begin at disp, in target's displacement units: the
 * results of puts and accumulates of this rank (the call completes them by
 * MPI_Win_flush()), of those of other ranks that completed before the call, and
 * of stores of the target that this rank knows to be done. Call it in a passive
 * epoch (MPI_Win_lock), for any rank. The target does not take part.
 * -FI_EINVAL: no such rank or range; after a failed commit w->why has the
 * reason.
 */
static int mpi_window_persist(struct mpi_window *w, int target, MPI_Aint disp,
			      MPI_Aint bytes)
{
	const struct mpi_window_part *c;
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
	return window_commit(w, target, at, (uint64_t)bytes);
}

/*
 * Collective over comm, the communicator of win. Each rank registers its part
 * of the window, if it has one, and makes its content durable. All ranks return
 * the worst result. -FI_ENODATA: the provider was not found; -FI_EOPNOTSUPP:
 * the memory cannot be made durable in the required class.
 */
static int mpi_window_open(MPI_Win win, MPI_Comm comm, struct mpi_window *w)
{
	struct mpi_window_part mine;
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
	ret = window_worst(comm, window_begin(w, base, &mine));
	if (!ret) {
		MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, w->parts,
			      sizeof(mine), MPI_BYTE, comm);
		for (int r = 0; r < w->nranks && !ret; r++)
			if (fi_av_insert(w->av, w->parts[r].name, 1,
					 &w->peers[r], 0, NULL) != 1)
				ret = -FI_EADDRNOTAVAIL;
		/* If the memory can be durable, commit its present content. */
		if (!ret && mine.len)
			ret = window_commit(w, rank, 0, mine.len);
		ret = window_worst(comm, ret);
	}
	if (ret)
		window_free(w);
	return ret;
}

/* Collective call, to make before MPI_Win_free(). */
static void mpi_window_close(struct mpi_window *w)
{
	/* Wait until no rank's commit is outstanding. */
	MPI_Barrier(w->comm);
	window_free(w);
}

#endif
