// SPDX-License-Identifier: BSD-2-Clause
/* FI_COMMIT_COMPLETE as libfabric's tcp has it, on connected endpoints. */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "fabtests/benchmarks/rival.h"

/*
 * It does not make bytes durable: the target writes cache lines back whatever
 * the memory is, and acknowledges even where the CPU cannot. This is what tcp
 * alone gives a program, at one message in each direction.
 */
struct rival_end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep; /* target */
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr; /* target */
	bool connected;
	struct rival_page *page;
};

static void put_back(struct fid *fid)
{
	if (fid)
		fi_close(fid);
}

static void msg_close(struct rival_end *e)
{
	put_back(e->ep ? &e->ep->fid : NULL);
	put_back(e->mr ? &e->mr->fid : NULL);
	put_back(e->cq ? &e->cq->fid : NULL);
	put_back(e->domain ? &e->domain->fid : NULL);
	put_back(e->pep ? &e->pep->fid : NULL);
	put_back(e->eq ? &e->eq->fid : NULL);
	put_back(e->fabric ? &e->fabric->fid : NULL);
	fi_freeinfo(e->info);
	free(e);
}

static int get_info(const struct rival_cfg *cfg, uint64_t caps,
		    struct rival_end *e, char *err)
{
	struct fi_info *h = fi_allocinfo();
	int ret;

	if (!h)
		return rp_err(err, -FI_ENOMEM, "out of memory");
	h->caps = FI_RMA | FI_MSG | FI_RMA_PMEM | caps;
	h->ep_attr->type = FI_EP_MSG;
	h->domain_attr->mr_mode =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_SAFE; /* as in all rivals */
	h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	h->addr_format = FI_SOCKADDR_IN;
	h->fabric_attr->prov_name = strdup(cfg->base);
	setenv("FI_TCP_IFACE", "lo", 0);
	ret = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
			 &e->info);
	fi_freeinfo(h);
	return ret ? rp_err(err, ret,
			    "%s has no connected endpoints with "
			    "FI_RMA_PMEM: %s",
			    cfg->base, fi_strerror(-ret))
		   : 0;
}

static int open_common(const struct rival_cfg *cfg, uint64_t caps,
		       struct rival_end **end, char *err)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_CONTEXT,
		.wait_obj = FI_WAIT_NONE,
	};
	struct rival_end *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return rp_err(err, -FI_ENOMEM, "out of memory");
	ret = get_info(cfg, caps, e, err);
	if (ret)
		goto close;
	ret = fi_fabric(e->info->fabric_attr, &e->fabric, NULL);
	if (!ret)
		ret = fi_eq_open(e->fabric, &eq, &e->eq, NULL);
	if (!ret)
		ret = fi_domain(e->fabric, e->info, &e->domain, NULL);
	if (!ret)
		ret = fi_cq_open(e->domain, &cq, &e->cq, NULL);
	if (!ret) {
		*end = e;
		return 0;
	}
	rp_err(err, ret, "opening %s: %s", cfg->base, fi_strerror(-ret));
close:
	msg_close(e);
	return ret;
}

static int open_ep(struct rival_end *e, struct fi_info *info)
{
	int ret = fi_endpoint(e->domain, info, &e->ep, NULL);

	if (!ret)
		ret = fi_ep_bind(e->ep, &e->eq->fid, 0);
	if (!ret)
		ret = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV);
	return ret ? ret : fi_enable(e->ep);
}

static int msg_serve(const struct rival_cfg *cfg, struct rival_page *page,
		     struct rival_end **end, char *err)
{
	struct iovec iov = {.iov_base = cfg->mem, .iov_len = cfg->len};
	struct fi_mr_attr attr = {
		.mr_iov = &iov,
		.iov_count = 1,
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
	};
	struct rival_end *e;
	int ret = open_common(cfg, FI_REMOTE_READ | FI_REMOTE_WRITE, &e, err);

	if (ret)
		return ret;
	ret = fi_passive_ep(e->fabric, e->info, &e->pep, NULL);
	if (!ret)
		ret = fi_pep_bind(e->pep, &e->eq->fid, 0);
	if (!ret)
		ret = fi_listen(e->pep);
	page->target_len = sizeof(page->target);
	if (!ret)
		ret = fi_getname(&e->pep->fid, page->target, &page->target_len);
	if (!ret)
		ret = fi_mr_regattr(e->domain, &attr, FI_RMA_PMEM, &e->mr);
	if (ret) {
		rp_err(err, ret, "listening with %s: %s", cfg->base,
		       fi_strerror(-ret));
		msg_close(e);
		return ret;
	}
	page->key = fi_mr_key(e->mr);
	page->addr = e->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			     ? (uintptr_t)cfg->mem
			     : 0;
	*end = e;
	return 0;
}

static int msg_poll(struct rival_end *e, char *err)
{
	struct fi_eq_cm_entry entry;
	uint32_t event;
	int ret;

	/* Reading this queue drives progress; it never has an entry. */
	if (e->ep)
		fi_cq_read(e->cq, NULL, 0);
	if (e->connected)
		return 0;
	if (fi_eq_read(e->eq, &event, &entry, sizeof(entry), 0) <
	    (ssize_t)sizeof(entry))
		return 0;
	e->connected = event == FI_CONNECTED;
	if (event != FI_CONNREQ)
		return 0;
	ret = open_ep(e, entry.info);
	fi_freeinfo(entry.info);
	if (!ret)
		ret = fi_accept(e->ep, NULL, 0);
	return ret ? rp_err(err, ret, "accepting: %s", fi_strerror(-ret)) : 0;
}

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static int await_connection(struct rival_end *e, char *err)
{
	time_t end = seconds() + RIVAL_DEADLINE;
	struct fi_eq_cm_entry entry;
	uint32_t event;
	ssize_t n;

	do {
		n = fi_eq_read(e->eq, &event, &entry, sizeof(entry), 0);
		if (n > 0)
			return event == FI_CONNECTED
				       ? 0
				       : rp_err(err, -FI_ECONNREFUSED,
						"not connected");
		if (n != -FI_EAGAIN)
			return rp_err(err, -FI_ECONNREFUSED,
				      "connecting failed");
		fi_cq_read(e->cq, NULL, 0);
	} while (seconds() <= end);
	return rp_err(err, -FI_ETIMEDOUT, "not connected in %d s",
		      RIVAL_DEADLINE);
}

static int msg_open(const struct rival_cfg *cfg, struct rival_page *page,
		    struct rival_end **end, char *err)
{
	struct rival_end *e;
	int ret = open_common(cfg, FI_READ | FI_WRITE, &e, err);

	if (ret)
		return ret;
	e->page = page;
	ret = open_ep(e, e->info);
	if (!ret)
		ret = fi_connect(e->ep, page->target, NULL, 0);
	if (ret)
		rp_err(err, ret, "connecting: %s", fi_strerror(-ret));
	else
		ret = await_connection(e, err);
	if (ret) {
		msg_close(e);
		return ret;
	}
	*end = e;
	return 0;
}

static int await_one(struct rival_end *e, char *err)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry done;
	unsigned int polls = 0;
	time_t end = 0;
	ssize_t n;

	while ((n = fi_cq_read(e->cq, &done, 1)) != 1) {
		if (n == -FI_EAVAIL) {
			fi_cq_readerr(e->cq, &bad, 0);
			return rp_err(err, -bad.err, "write: %s",
				      fi_strerror(bad.err));
		}
		if (++polls % 65536)
			continue;
		if (!end)
			end = seconds() + RIVAL_DEADLINE;
		if (seconds() > end)
			return rp_err(err, -FI_ETIMEDOUT, "no answer in %d s",
				      RIVAL_DEADLINE);
	}
	return 0;
}

static int msg_put(struct rival_end *e, const void *buf, uint64_t off,
		   uint64_t size, char *err)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = size};
	struct fi_rma_iov to = {
		.addr = e->page->addr + off, .len = size, .key = e->page->key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};
	ssize_t ret;

	while ((ret = fi_writemsg(e->ep, &msg,
				  FI_COMMIT_COMPLETE | FI_COMPLETION)) ==
	       -FI_EAGAIN)
		fi_cq_read(e->cq, NULL, 0);
	return ret ? rp_err(err, (int)ret, "fi_writemsg: %s",
			    fi_strerror((int)-ret))
		   : await_one(e, err);
}

const struct rival rival_msg = {
	.name = "msg_commit",
	.title = "tcp EP_MSG: FI_COMMIT_COMPLETE",
	.max = 4u << 20,
	.serve = msg_serve,
	.poll = msg_poll,
	.open = msg_open,
	.put = msg_put,
	.close = msg_close,
};
