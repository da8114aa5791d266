// SPDX-License-Identifier: BSD-2-Clause
/*
 * A durable remote write by libfabric. The program writes to itself, so that
 * initiator and target fit into one file:
 *
 *   cc -o durable durable.c -lfabric
 *   FI_TCP_IFACE=lo ./durable /path/of/pool
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_ext_rpmem.h>

#define LEN (1 << 20)
#define TRY(call)                                                              \
	do {                                                                   \
		ssize_t r_ = (call);                                           \
		if (r_ < 0)                                                    \
			errx(1, "%s: %s; FI_LOG_LEVEL=warn says why", #call,   \
			     fi_strerror((int)-r_));                           \
	} while (0)
/* A call returns -FI_EAGAIN until its private connection is up. */
#define RETRY(call)                                                            \
	do {                                                                   \
		ssize_t n_;                                                    \
		while ((n_ = (call)) == -FI_EAGAIN)                            \
			fi_cq_read(cq, NULL, 0);                               \
		TRY(n_);                                                       \
	} while (0)

static struct fi_info *info;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_ep *ep;

/* Reads count completions from the queue; any error entry ends the program. */
static void completions_read(int count)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry done;

	while (count) {
		count -= fi_cq_read(cq, &done, 1) > 0;
		if (fi_cq_readerr(cq, &bad, 0) == 1)
			errx(1, "not durable: %s",
			     fi_cq_strerror(cq, bad.prov_errno, bad.err_data,
					    NULL, 0));
	}
}

/* Opens an endpoint and returns its own address, as its address vector has it.
 */
static fi_addr_t endpoint_open(void)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_info *hints = fi_allocinfo();
	struct fid_fabric *fabric;
	struct fid_av *av;
	fi_addr_t self;
	char name[128];
	size_t len = sizeof(name);

	hints->caps = FI_MSG | FI_RMA | FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	TRY(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	TRY(fi_fabric(info->fabric_attr, &fabric, NULL));
	TRY(fi_domain(fabric, info, &domain, NULL));
	TRY(fi_cq_open(domain, &cq_attr, &cq, NULL));
	TRY(fi_av_open(domain, &av_attr, &av, NULL));
	TRY(fi_endpoint(domain, info, &ep, NULL));
	TRY(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	TRY(fi_ep_bind(ep, &av->fid, 0));
	TRY(fi_enable(ep));
	TRY(fi_getname(&ep->fid, name, &len));
	TRY(fi_av_insert(av, name, 1, &self, 0, NULL));
	return self;
}

/* Maps the pool file, whose blocks are all allocated. */
static void *pool_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	void *pool;

	if (fd < 0 || posix_fallocate(fd, 0, LEN))
		err(1, "%s", path);
	pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		err(1, "%s", path);
	return pool;
}

int main(int argc, char **argv)
{
	void *pool = pool_map(argc > 1 ? argv[1] : "pool");
	const fi_addr_t self = endpoint_open();
	/* Remote addresses are virtual ones, or offsets in the region. */
	const int va = !!(info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);
	char text[] = "durable\n";
	struct fi_rma_iov range = {va ? (uintptr_t)pool : 0, strlen(text), 0};
	/* A commit of the range, durable by default. */
	const struct fi_rpmem_msg msg = {
		.rma_iov = &range, .rma_iov_count = 1, .addr = self};
	struct fi_rpmem_ops *ops;
	struct fid_mr *mr;

	/* The target registers the memory, and sends address and key. */
	TRY(fi_mr_reg(domain, pool, LEN, FI_REMOTE_WRITE, 0, 0, FI_RMA_PMEM,
		      &mr, NULL));
	range.key = fi_mr_key(mr);
	TRY(fi_rpmem_ops_get(ep, &ops)); /* once for each endpoint */
	/* The initiator writes, commits once, and reads both completions. */
	RETRY(fi_write(ep, text, range.len, NULL, self, range.addr, range.key,
		       NULL));
	RETRY(fi_rpmem_commit(ops, ep, &msg, 0));
	completions_read(2);
	puts("on the medium");
	return 0;
}
