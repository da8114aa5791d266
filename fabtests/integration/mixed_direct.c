// SPDX-License-Identifier: BSD-2-Clause
/*
 * Commits by libfabric from within an MPI program, while MPI communicates, too.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_rpmem.h>

#include "mixed.h"

struct card {
	char name[128];
	uint64_t base, key;
};

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct card cards[MIXED_RANKS];
static fi_addr_t peers[MIXED_RANKS];

#define MUST(call) must_succeed((call), #call)

static void must_succeed(ssize_t ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-ret));
	MPI_Abort(MPI_COMM_WORLD, 4);
}

static struct fi_info *get_info(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	if (!hints)
		must_succeed(-FI_ENOMEM, "hints");
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	/* Automatic progress, because a rank that waits in MPI must reply. */
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	return info;
}

void mixed_direct_open(uint8_t *pool)
{
	struct fi_cq_attr cqa = {.format = FI_CQ_FORMAT_CONTEXT};
	struct fi_av_attr ava = {.type = FI_AV_TABLE};
	uint8_t *half = pool + MIXED_WINDOW;
	struct fid_domain *domain;
	struct fid_fabric *fabric;
	struct fi_info *i = get_info();
	struct card self = {{0}, 0, 0};
	size_t len = sizeof(self.name);
	struct fid_av *av;
	struct fid_mr *mr;
	int n;

	MUST(fi_fabric(i->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, i, &domain, NULL));
	MUST(fi_cq_open(domain, &cqa, &cq, NULL));
	MUST(fi_av_open(domain, &ava, &av, NULL));
	MUST(fi_endpoint(domain, i, &ep, NULL));
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_enable(ep));
	MUST(fi_getname(&ep->fid, self.name, &len));
	MUST(fi_mr_reg(domain, half, MIXED_POOL - MIXED_WINDOW, FI_REMOTE_WRITE,
		       0, 1, FI_RMA_PMEM, &mr, NULL));
	self.key = fi_mr_key(mr);
	if (i->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		self.base = (uintptr_t)half;
	fi_freeinfo(i);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	MPI_Allgather(&self, sizeof(self), MPI_BYTE, cards, sizeof(self),
		      MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < n; r++)
		if (fi_av_insert(av, cards[r].name, 1, &peers[r], 0, NULL) != 1)
			must_succeed(-FI_EADDRNOTAVAIL, "fi_av_insert");
}

static void wait_for(int completions)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_entry done;

	while (completions) {
		ssize_t n = fi_cq_read(cq, &done, 1);
		int sees;

		if (n == 1) {
			completions--;
		} else if (n == -FI_EAVAIL) {
			fi_cq_readerr(cq, &err, 0);
			fprintf(stderr, "a commit: %s\n",
				fi_cq_strerror(cq, err.prov_errno, err.err_data,
					       NULL, 0));
			MPI_Abort(MPI_COMM_WORLD, 4);
		} else if (n != -FI_EAGAIN) {
			must_succeed(n, "fi_cq_read");
		}
		/*
		 * Meanwhile let MPI make progress with its windows and
		 * messages.
		 */
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &sees,
			   MPI_STATUS_IGNORE);
	}
}

void mixed_direct_write(int to, const void *from, size_t len, size_t place,
			int apart)
{
	struct fi_rma_iov range = {cards[to].base + place - MIXED_WINDOW, len,
				   cards[to].key};
	struct iovec iov = {(void *)(uintptr_t)from, len};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = peers[to],
		.rma_iov = &range,
		.rma_iov_count = 1,
	};
	const struct fi_rpmem_msg commit = {
		.rma_iov = &range,
		.rma_iov_count = 1,
		.addr = peers[to],
	};
	struct fi_rpmem_ops *ops;
	ssize_t n;

	must_succeed(fi_rpmem_ops_get(ep, &ops), "fi_rpmem_ops_get");
	while ((n = fi_writemsg(ep, &msg,
				FI_COMPLETION |
					(apart ? 0 : FI_COMMIT_COMPLETE))) ==
	       -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	must_succeed(n, "fi_writemsg");
	if (!apart) {
		wait_for(1);
		return;
	}
	while ((n = fi_rpmem_commit(ops, ep, &commit, 0)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	must_succeed(n, "fi_rpmem_commit");
	wait_for(2);
}
