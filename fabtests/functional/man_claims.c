// SPDX-License-Identifier: BSD-2-Clause
/*
 * Checks claims of fi_rpmem(7) and of the pages of section 3 against the
 * provider.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>
#include <rdma/fi_tagged.h>

#include "fabtests/commit.h"
#include "util/fabric.h"

#define LEN	65536
#define DURABLE FI_RPMEM_DURABLE

static int tests, failures;

static void claim(bool holds, const char *text)
{
	printf("%sok %d - %s\n", holds ? "" : "not ", ++tests, text);
	failures += !holds;
}

static void claim_is(long long got, long long want, const char *text)
{
	if (got != want)
		printf("# got %lld, want %lld\n", got, want);
	claim(got == want, text);
}

static void bail(const char *what, const char *why)
{
	printf("Bail out! %s: %s\n", what, why);
	exit(1);
}

/* This one endpoint is target and initiator. */
static struct rp_fabric f;
static fi_addr_t self;
static char err[RP_ERR_LEN];
static char buf[4096];

/* Three regions: on a disk, on tmpfs, and one not registered as persistent. */
struct memory {
	void *map;
	struct fid_mr *mr;
};
static struct memory disk, shm, plain;

static uint64_t addr_of(const struct memory *m)
{
	return f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
		       ? (uintptr_t)m->map
		       : 0;
}

static int register_memory(struct memory *m, uint64_t flags)
{
	return fi_mr_reg(f.domain, m->map, LEN,
			 FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, flags, &m->mr,
			 NULL);
}

static void map_memory(struct memory *m, int fd)
{
	if (fd < 0 || posix_fallocate(fd, 0, LEN))
		bail("pool", strerror(errno));
	m->map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->map == MAP_FAILED)
		bail("mmap", strerror(errno));
	close(fd);
}

static struct fi_rma_iov range_of(const struct memory *m, uint64_t off,
				  uint64_t len)
{
	return (struct fi_rma_iov){
		.addr = addr_of(m) + off, .len = len, .key = fi_mr_key(m->mr)};
}

/*
 * Wait for the next completion. Returns 0, or the prov_errno of an error entry.
 */
static int take_completion(void **context, struct fi_cq_err_entry *bad)
{
	struct fi_cq_entry e;
	ssize_t n;

	memset(bad, 0, sizeof(*bad));
	for (int i = 0; i < 20000000; i++) {
		n = fi_cq_read(f.cq, &e, 1);
		if (n == 1) {
			*context = e.op_context;
			return 0;
		}
		if (n == -FI_EAVAIL && fi_cq_readerr(f.cq, bad, 0) == 1) {
			*context = bad->op_context;
			return bad->prov_errno;
		}
	}
	bail("completion", "none came");
	return -1;
}

/* Does no further completion come within a while? */
static bool no_completion(void)
{
	struct fi_cq_entry e;

	for (int i = 0; i < 20000; i++)
		if (fi_cq_read(f.cq, &e, 1) != -FI_EAGAIN)
			return false;
	return true;
}

/*
 * Repeat a call while it returns -FI_EAGAIN, as the first calls to a peer do
 * until it is connected.
 */
#define AGAIN(call)                                                            \
	({                                                                     \
		ssize_t ret_;                                                  \
		while ((ret_ = (call)) == -FI_EAGAIN)                          \
			fi_cq_read(f.cq, NULL, 0);                             \
		ret_;                                                          \
	})

static ssize_t writemsg(const struct memory *m, uint64_t off, size_t len,
			uint64_t flags, void *context)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct fi_rma_iov to = range_of(m, off, len);
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = self,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = context,
		.data = 7,
	};

	return AGAIN(fi_writemsg(f.ep, &msg, flags | FI_COMPLETION));
}

static ssize_t post_commit(const struct memory *m, uint64_t off, uint64_t len,
			   enum fi_rpmem_class class, void *context)
{
	struct fi_rma_iov r = range_of(m, off, len);

	return AGAIN(commit_post(f.ep, &r, 1, self, FI_RPMEM_DURABLE, class,
				 NULL, context));
}

static void check_registering(const char *folder)
{
	char path[4096];
	struct memory anon, private;
	int fd;

	snprintf(path, sizeof(path), "%s/private", folder);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	map_memory(&private, dup(fd));
	munmap(private.map, LEN);
	private.map =
		mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	anon.map = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	claim_is(register_memory(&anon, FI_RMA_PMEM), -FI_EOPNOTSUPP,
		 "anonymous memory is not persistent");
	claim_is(register_memory(&private, FI_RMA_PMEM), -FI_EOPNOTSUPP,
		 "a private mapping is not persistent");
	claim_is(register_memory(&anon, 0), 0,
		 "without FI_RMA_PMEM it is registered");
	if (anon.mr)
		fi_close(&anon.mr->fid);
	claim_is((long long)f.info->domain_attr->mr_key_size, 8,
		 "keys that the provider makes have 8 bytes");
	claim(fi_mr_key(disk.mr) >> 32 && fi_mr_key(plain.mr) >> 32,
	      "keys carry facts above the base's 32 bits");
}

static void check_committing(void)
{
	struct fi_rma_iov r[2];
	struct fi_cq_err_entry bad;
	void *c = NULL;
	int a, b;

	memset(buf, 'x', sizeof(buf));
	claim_is(writemsg(&disk, 0, 512, FI_COMMIT_COMPLETE, &a), 0,
		 "FI_COMMIT_COMPLETE on fi_writemsg()");
	claim(!take_completion(&c, &bad) && c == &a &&
		      !memcmp(disk.map, buf, 512),
	      "its one completion has the context, and the bytes are placed");
	claim(no_completion(), "and no second one follows");

	r[0] = range_of(&disk, 4096, 100);
	r[1] = range_of(&disk, 12288, 1);
	claim_is(AGAIN(fi_write(f.ep, buf, 100, NULL, self, r[0].addr, r[0].key,
				&a)),
		 0, "a write to be covered");
	claim_is(AGAIN(commit_post(f.ep, r, 2, self, FI_RPMEM_DURABLE,
				   FI_RPMEM_CLASS_POWER, NULL, &b)),
		 0, "fi_rpmem_commit() of it and of bytes never written");
	memset(r, 0, sizeof(r)); /* the call has copied the ranges: overwrite
				  * them */
	claim(!take_completion(&c, &bad) && !take_completion(&c, &bad) &&
		      no_completion(),
	      "both complete once, although the ranges were overwritten");

	r[0] = range_of(&disk, 4096, 100);
	claim_is(AGAIN(commit_post(f.ep, r, 1, self, FI_RPMEM_VISIBLE,
				   FI_RPMEM_CLASS_DEFAULT, NULL, &a)),
		 0, "a commit of level visible");
	claim(!take_completion(&c, &bad) && c == &a, "completes");
}

/* A commit of more ranges than fit into one message has one completion, too. */
static void many_ranges(void)
{
	static struct fi_rma_iov r[1000];
	struct fi_cq_err_entry bad;
	void *c = NULL;
	int a;

	for (size_t i = 0; i < 1000; i++)
		r[i] = range_of(&disk, i * 64, 8);
	claim_is(AGAIN(commit_post(f.ep, r, 1000, self, FI_RPMEM_DURABLE,
				   FI_RPMEM_CLASS_DEFAULT, NULL, &a)),
		 0, "a commit of 1000 ranges");
	claim(!take_completion(&c, &bad) && c == &a && no_completion(),
	      "completes once");
}

static void refused_calls(void)
{
	struct fi_rma_iov r = range_of(&disk, 0, 8), none = r, wrap = r,
			  odd = r;
	struct fi_rpmem_then then = {.key = r.key, .addr = r.addr};
	struct iovec iov = {.iov_base = buf, .iov_len = 8};
	struct fi_msg_rma read = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = self,
		.rma_iov = &r,
		.rma_iov_count = 1,
	};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = self};

	none.len = 0;
	wrap.addr = UINT64_MAX - 3;
	odd.key = 42;
#define CALL(range, n, dest, level, class, then)                               \
	AGAIN(commit_post(f.ep, range, n, dest, level, class, then, NULL))
	claim_is(CALL(&r, 0, self, DURABLE, 0, NULL), -FI_EINVAL, "no ranges");
	claim_is(CALL(&none, 1, self, DURABLE, 0, NULL), -FI_EINVAL,
		 "an empty range");
	claim_is(CALL(&wrap, 1, self, DURABLE, 0, NULL), -FI_EINVAL,
		 "a wrapping range");
	claim_is(CALL(&r, 1, self, 9, 0, NULL), -FI_EINVAL, "no such level");
	claim_is(CALL(&r, 1, self, DURABLE, 9, NULL), -FI_EINVAL,
		 "no such class");
	claim_is(CALL(&r, 1, self + 1000, DURABLE, 0, NULL), -FI_EINVAL,
		 "an address that is not in the vector");
	claim_is(CALL(&r, 1, self, FI_RPMEM_VISIBLE, 0, &then), -FI_EINVAL,
		 "a store behind a commit of level visible");
	then.addr += 4;
	claim_is(CALL(&r, 1, self, DURABLE, 0, &then), -FI_EINVAL,
		 "a store whose address is no multiple of 8");
	claim_is(CALL(&odd, 1, self, DURABLE, 0, NULL), -FI_EKEYREJECTED,
		 "a key that ofi_rpmem did not make");
	claim_is(post_commit(&plain, 0, 8, 0, NULL), -FI_EKEYREJECTED,
		 "a key of a region that is not persistent");
	claim_is(fi_readmsg(f.ep, &read, FI_COMMIT_COMPLETE), -FI_EINVAL,
		 "a read with commit to where nothing is persistent");
	claim_is(fi_sendmsg(f.ep, &msg, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP,
		 "a commit of a message");
	claim_is(fi_recvmsg(f.ep, &msg, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP,
		 "a commit of a received message");
	claim(no_completion(), "and none of these left a completion");
}

static void store_behind(void)
{
	struct fi_rma_iov r = range_of(&disk, 0, 64);
	struct fi_rpmem_then then = {
		.key = r.key,
		.addr = r.addr + 128,
		.value = 0x5107ed,
	};
	struct memory fixed = disk;
	struct fi_cq_err_entry bad;
	void *c = NULL;
	uint64_t v;
	int a;

	claim_is(AGAIN(commit_post(f.ep, &r, 1, self, FI_RPMEM_DURABLE,
				   FI_RPMEM_CLASS_DEFAULT, &then, &a)),
		 0, "a commit with a store behind it");
	claim(!take_completion(&c, &bad) && c == &a && no_completion(),
	      "completes once");
	memcpy(&v, (char *)disk.map + 128, sizeof(v));
	claim(v == 0x5107ed, "and has stored");

	claim_is(fi_mr_reg(f.domain, fixed.map, LEN, FI_REMOTE_READ, 0, 0,
			   FI_RMA_PMEM, &fixed.mr, NULL),
		 0, "a read-only region");
	then.key = fi_mr_key(fixed.mr);
	then.value = 0;
	claim_is(AGAIN(commit_post(f.ep, &r, 1, self, FI_RPMEM_DURABLE,
				   FI_RPMEM_CLASS_DEFAULT, &then, &a)),
		 0, "a store to that address");
	claim(take_completion(&c, &bad) == RP_ST_ACCESS && bad.err == EACCES &&
		      bad.data == 1,
	      "is refused, and the store is named");
	memcpy(&v, (char *)disk.map + 128, sizeof(v));
	claim(v == 0x5107ed, "and not done");
	fi_close(&fixed.mr->fid);
}

/*
 * Wait for an error entry. Check its prov_errno and err, and that its text has
 * the status and the remedy.
 */
static void failed_as(enum rp_status want, void *context, const char *text)
{
	const char *says;
	struct fi_cq_err_entry bad;
	void *c = NULL;
	int got = take_completion(&c, &bad);

	claim_is(got, want, text);
	says = fi_cq_strerror(f.cq, bad.prov_errno, bad.err_data, NULL, 0);
	claim(bad.err == rp_status_errno((enum rp_status)want) &&
		      c == context && says &&
		      strstr(says, rp_status_name((enum rp_status)want)) &&
		      strstr(says, rp_status_remedy((enum rp_status)want)),
	      "with its errno, context, name and remedy");
}

static void failing_commits(void)
{
	struct memory again = {.map = disk.map};
	struct fi_rma_iov r;
	int a;

	claim_is(post_commit(&disk, LEN - 4, 8, 0, &a), 0, "across the end");
	failed_as(RP_ST_RANGE, &a, "is outside the region");
	claim_is(post_commit(&shm, 0, 8, FI_RPMEM_CLASS_POWER, &a), 0,
		 "power on tmpfs");
	failed_as(RP_ST_CLASS, &a, "is a class not met");

	if (register_memory(&again, FI_RMA_PMEM))
		bail("registering again", "failed");
	r = range_of(&again, 0, 8);
	fi_close(&again.mr->fid);
	claim_is(AGAIN(commit_post(f.ep, &r, 1, self, FI_RPMEM_DURABLE, 0, NULL,
				   &a)),
		 0, "a key that was closed");
	failed_as(RP_ST_STALE_KEY, &a, "is stale");
	r = range_of(&disk, 0, 8);
	r.key ^= 1ull << 20;
	claim_is(AGAIN(commit_post(f.ep, &r, 1, self, FI_RPMEM_DURABLE, 0, NULL,
				   &a)),
		 0, "a key with other random bits");
	failed_as(RP_ST_STALE_KEY, &a, "is stale");
}

static void lowered_class(void)
{
	struct fi_cq_err_entry bad;
	void *c = NULL;
	int a;

	claim_is(post_commit(&shm, 0, 8, FI_RPMEM_CLASS_PROCESS, &a), 0,
		 "class process on tmpfs");
	claim(!take_completion(&c, &bad) && c == &a, "is granted");
}

static void check_querying(void)
{
	static char why[512];
	struct fi_rpmem_attr q = QUERY_ATTR(why);

	claim_is(key_query(f.ep, self, fi_mr_key(disk.mr),
			   FI_RPMEM_CLASS_DEFAULT, &q),
		 0, "fi_rpmem_query()");
	claim(q.region_class == FI_RPMEM_CLASS_POWER &&
		      q.method == FI_RPMEM_METHOD_AGENT_MSYNC &&
		      !q.prov_errno &&
		      q.granularity == (uint32_t)sysconf(_SC_PAGESIZE) &&
		      q.addr == addr_of(&disk) && q.len == LEN && why[0] &&
		      q.preferred_size && q.preferred_align,
	      "reports class, method, granularity, address, length and why");
	claim_is(key_query(f.ep, self, fi_mr_key(shm.mr), FI_RPMEM_CLASS_POWER,
			   &q),
		 0, "of a region that cannot do it");
	claim(q.region_class == FI_RPMEM_CLASS_PROCESS &&
		      q.method == FI_RPMEM_METHOD_REFUSED &&
		      q.prov_errno == RP_ST_CLASS && why[0],
	      "reports the best class, and why not more");
	q.size = 0;
	claim_is(key_query(f.ep, self, fi_mr_key(disk.mr), 0, &q), -FI_EINVAL,
		 "without a size");
	q.size = sizeof(q);
	claim_is(key_query(f.ep, self, fi_mr_key(disk.mr), 9, &q), -FI_EINVAL,
		 "of no class");
	claim_is(key_query(f.ep, self, 42, 0, &q), -FI_EKEYREJECTED,
		 "of a key that ofi_rpmem did not make");
	claim_is(key_query(f.ep, self + 1000, fi_mr_key(disk.mr), 0, &q),
		 -FI_EINVAL, "of an address that is not in the vector");
}

static void not_offered(void)
{
	struct fi_av_attr av_attr = {.flags = FI_EVENT};
	struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fid_wait *wait;
	struct fid_ep *ep;
	struct fid_av *av;

	claim_is(fi_scalable_ep(f.domain, f.info, &ep, NULL), -FI_ENOSYS,
		 "scalable endpoints are refused");
	/* libfabric 2 deprecates this call. */
	_Pragma("GCC diagnostic push");
	_Pragma("GCC diagnostic ignored \"-Wdeprecated-declarations\"");
	if (!fi_wait_open(f.fabric, &wait_attr, &wait)) {
		struct fi_cq_attr a = {.wait_obj = FI_WAIT_SET,
				       .wait_set = wait};
		struct fid_cq *cq;

		struct fi_cntr_attr c = {.wait_obj = FI_WAIT_SET,
					 .wait_set = wait};
		struct fid_cntr *cntr;

		claim_is(fi_cq_open(f.domain, &a, &cq, NULL), -FI_ENOSYS,
			 "our queues refuse wait sets");
		claim_is(fi_cntr_open(f.domain, &c, &cntr, NULL), -FI_ENOSYS,
			 "our counters too");
		fi_close(&wait->fid);
	}
	_Pragma("GCC diagnostic pop");
	claim_is(fi_av_open(f.domain, &av_attr, &av, NULL), -FI_ENOSYS,
		 "events of the address vector are refused");
}

/* Count the entries of ofi_rpmem that fi_getinfo() lists for these hints. */
static int count_listed(const struct fi_info *hints)
{
	struct fi_info *list = NULL;
	int n = 0;

	fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints,
		   &list);
	for (struct fi_info *i = list; i; i = i->next)
		n += !!strstr(i->fabric_attr->prov_name, "ofi_rpmem");
	fi_freeinfo(list);
	return n;
}

static void check_selecting(void)
{
	struct fi_info *h = fi_allocinfo();
	struct rp_fabric base;
	struct rp_fabric_attr bare = {.bare = true, .tagged = true};
	struct fi_rma_iov r = {.len = 8};

	claim(!count_listed(NULL) && !count_listed(h),
	      "not listed unless requested");
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_PROV_KEY;
	claim(!count_listed(h), "nor for RDM");
	h->caps = FI_RMA | FI_RMA_PMEM;
	claim(count_listed(h), "listed for FI_RMA_PMEM on RDM");
	h->ep_attr->type = FI_EP_MSG;
	claim(!count_listed(h), "for FI_EP_MSG by name only");
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_RMA;
	h->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	claim(count_listed(h), "listed by name");
	h->caps = FI_RMA | FI_ATOMIC;
	claim(count_listed(h), "with atomics too");
	h->caps = FI_RMA;
	h->ep_attr->type = FI_EP_MSG;
	claim(count_listed(h), "FI_EP_MSG is the base's own");
	h->caps |= FI_RMA_PMEM;
	claim(count_listed(h), "with FI_RMA_PMEM the provider's");
	h->domain_attr->mr_mode = 0;
	claim(!count_listed(h), "if we may make the keys");
	fi_freeinfo(h);

	claim(!strstr(f.info->fabric_attr->prov_name, "ofi_rxm"),
	      "ofi_rxm does not show in the name");
	if (rp_fabric_open(&bare, &base, err))
		bail("base", err);
	claim(f.info->ep_attr->mem_tag_format ==
		      base.info->ep_attr->mem_tag_format,
	      "all tag bits of the base are the program's");
	claim_is(
		commit_post(base.ep, &r, 1, 0, FI_RPMEM_DURABLE, 0, NULL, NULL),
		-FI_ENOSYS, "fi_rpmem_commit() on another provider");
	rp_fabric_close(&base);
}

/*
 * Without FI_MR_PROV_KEY the program chooses the keys, which carry no facts:
 * commits are refused.
 */
static void chosen_keys(void)
{
	struct fi_info *h = fi_allocinfo(), *info;
	struct fi_rma_iov r = {.len = 8};
	struct rp_fabric keep = f;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT};
	struct fi_av_attr av_attr = {.type = FI_AV_MAP};
	struct fi_msg_rma msg = {.rma_iov = &r, .rma_iov_count = 1};

	h->caps = FI_RMA;
	h->ep_attr->type = FI_EP_RDM;
	h->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	if (fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
		       &info) ||
	    fi_fabric(info->fabric_attr, &f.fabric, NULL) ||
	    fi_domain(f.fabric, info, &f.domain, NULL) ||
	    fi_cq_open(f.domain, &cq_attr, &f.cq, NULL) ||
	    fi_av_open(f.domain, &av_attr, &f.av, NULL) ||
	    fi_endpoint(f.domain, info, &f.ep, NULL) ||
	    fi_ep_bind(f.ep, &f.av->fid, 0) ||
	    fi_ep_bind(f.ep, &f.cq->fid, FI_TRANSMIT | FI_RECV) ||
	    fi_enable(f.ep))
		bail("endpoint", "without FI_MR_PROV_KEY");
	claim(!(info->domain_attr->mr_mode & FI_MR_PROV_KEY),
	      "FI_MR_PROV_KEY is not forced on a program");
	claim_is(AGAIN(commit_post(f.ep, &r, 1, 0, FI_RPMEM_DURABLE, 0, NULL,
				   NULL)),
		 -FI_EKEYREJECTED, "but without it commits are refused");
	claim_is(fi_writemsg(f.ep, &msg, FI_COMMIT_COMPLETE), -FI_EKEYREJECTED,
		 "nor by flag");
	f.info = info;
	rp_fabric_close(&f);
	f = keep;
	fi_freeinfo(h);
}

/* An endpoint whose default is FI_COMMIT_COMPLETE. */
static void default_flag(void)
{
	struct fi_rma_iov r = range_of(&shm, 0, 8);
	struct fi_cq_err_entry bad;
	struct fi_info *info = fi_dupinfo(f.info);
	struct fid_ep *ep, *keep = f.ep;
	void *c = NULL;
	int a;

	info->tx_attr->op_flags |= FI_COMMIT_COMPLETE;
	/*
	 * Another port: the first endpoint uses that of info. (Without any
	 * address the tcp provider of libfabric 2.1 does not listen.)
	 */
	((struct sockaddr_in *)info->src_addr)->sin_port = 0;
	if (fi_endpoint(f.domain, info, &ep, NULL) ||
	    fi_ep_bind(ep, &f.av->fid, 0) ||
	    fi_ep_bind(ep, &f.cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(ep))
		bail("endpoint", "with a default flag");
	f.ep = ep;
	claim_is(AGAIN(fi_write(ep, buf, 8, NULL, self, r.addr, r.key, &a)), 0,
		 "fi_write() on an endpoint with the default flag");
	/*
	 * The region on tmpfs does not reach class power, so this error shows
	 * that there was a commit.
	 */
	claim(take_completion(&c, &bad) == RP_ST_CLASS && c == &a,
	      "is a commit");
	claim_is(AGAIN(fi_writedata(ep, buf, 8, NULL, 7, self, r.addr, r.key,
				    &a)),
		 0, "fi_writedata() on it");
	claim(take_completion(&c, &bad) == RP_ST_CLASS && c == &a &&
		      no_completion(),
	      "is a commit, whose failure has no entry at the target");
	claim_is(AGAIN(fi_inject_write(ep, buf, 8, self, r.addr, r.key)), 0,
		 "fi_inject_write() on it is not a commit");
	claim(no_completion(), "and completes nothing");
	fi_close(&ep->fid);
	f.ep = keep;
	fi_freeinfo(info);
}

/*
 * Run the example of fi_rpmem_commit(3), compiled as a shared object, on a
 * false endpoint, which records contexts, and whose every call returns
 * -FI_EAGAIN once.
 */
static void *contexts[3];
static int posted, tries, completed;

static ssize_t post_record(void *context)
{
	if (tries++ % 2 == 0)
		return -FI_EAGAIN;
	if (posted < 3)
		contexts[posted++] = context;
	return 0;
}

static ssize_t record_write(struct fid_ep *ep, const void *from, size_t len,
			    void *desc, fi_addr_t to, uint64_t addr,
			    uint64_t key, void *context)
{
	return post_record(context);
}

static ssize_t record_commit(struct fid_ep *ep, const struct fi_rpmem_msg *msg,
			     uint64_t flags)
{
	return post_record(msg->context);
}

static ssize_t complete_recorded(struct fid_cq *cq, void *to, size_t count)
{
	if (!count || completed == posted)
		return -FI_EAGAIN;
	((struct fi_cq_entry *)to)->op_context = contexts[completed++];
	return 1;
}

static int open_recorded(struct fid *fid, const char *name, uint64_t flags,
			 void **ops, void *context)
{
	static struct fi_rpmem_ops ours = {
		.size = sizeof(ours),
		.commit = record_commit,
	};

	*ops = &ours;
	return 0;
}

static void example_of_commit(const char *path)
{
	struct fi_ops fid_ops = {
		.size = sizeof(fid_ops),
		.ops_open = open_recorded,
	};
	struct fi_ops_rma rma = {.size = sizeof(rma), .write = record_write};
	struct fi_ops_cq cq_ops = {
		.size = sizeof(cq_ops),
		.read = complete_recorded,
	};
	struct fid_ep ep = {.fid.ops = &fid_ops, .rma = &rma};
	struct fid_cq cq = {.ops = &cq_ops};
	int (*save_pair)(struct fid_ep *, struct fid_cq *, fi_addr_t, uint64_t,
			 const void *, const void *);
	void *lib;

	if (!path) {
		printf("ok %d - the example of fi_rpmem_commit(3) # SKIP no "
		       "compiled example was given\n",
		       ++tests);
		return;
	}
	lib = dlopen(path, RTLD_NOW);
	if (!lib)
		bail("example of fi_rpmem_commit(3)", dlerror());
	*(void **)&save_pair = dlsym(lib, "save_pair");
	if (!save_pair)
		bail("example of fi_rpmem_commit(3)", "no save_pair()");
	claim_is(save_pair(&ep, &cq, 0, 1, buf, buf), 0,
		 "the example of fi_rpmem_commit(3) repeats what says "
		 "-FI_EAGAIN");
	claim(posted == 3 && contexts[0] != contexts[1] &&
		      contexts[1] != contexts[2] && contexts[0] != contexts[2],
	      "its three contexts differ");
	dlclose(lib);
}

/* Called last, because fi_rpmem_drain() cannot be undone. */
static void check_draining(const void *name)
{
	struct fi_cq_err_entry bad;
	void *c = NULL;
	struct fi_rpmem_domain_ops *ops;
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	int a, b, st;

	claim_is(fi_rpmem_domain_ops_get(f.domain, &ops), 0,
		 "fi_rpmem_domain_ops_get()");
	claim_is(fi_rpmem_region(ops, disk.mr, &attr), 0, "fi_rpmem_region()");
	claim(attr.region_class == FI_RPMEM_CLASS_POWER && !attr.prov_errno &&
		      attr.len && attr.granularity,
	      "says what the region reaches");
	attr.size--;
	claim_is(fi_rpmem_region(ops, disk.mr, &attr), -FI_EINVAL,
		 "another size is refused");
	claim_is(post_commit(&disk, 0, 64, FI_RPMEM_CLASS_POWER, &a), 0,
		 "a commit before fi_rpmem_drain()");
	claim_is(fi_rpmem_drain(ops, f.domain, 60000), 0,
		 "fi_rpmem_drain() comes to an end");
	st = take_completion(&c, &bad);
	claim((!st || st == RP_ST_OVERLOADED) && c == &a && no_completion(),
	      "the commit has one completion");
	claim_is(post_commit(&disk, 0, 64, FI_RPMEM_CLASS_POWER, &b), 0,
		 "a commit behind it is accepted by the call");
	claim(take_completion(&c, &bad) == RP_ST_OVERLOADED &&
		      bad.err == EBUSY && c == &b,
	      "and refused by the target");
	claim_is(fi_rpmem_drain(ops, f.domain, 0), 0,
		 "a second one finds nothing");
	fi_av_remove(f.av, &self, 1, 0);
	if (fi_av_insert(f.av, name, 1, &self, 0, NULL) != 1)
		bail("fi_av_insert", "again");
	claim_is(writemsg(&disk, 0, 64, 0, &b), 0,
		 "a write that makes a new connection");
	claim(take_completion(&c, &bad) == RP_ST_OVERLOADED && c == &b &&
		      no_completion(),
	      "is refused by the target that was drained");
}

int main(int argc, char **argv)
{
	struct rp_fabric_attr attr = {.target = true, .tagged = true};
	const char *folder = argc > 1 ? argv[1] : ".";
	const char *example = argc > 2 ? argv[2] : NULL;
	char tmpfs[] = "/dev/shm/man_claims.XXXXXX";
	char name[128], path[4096];
	size_t len = sizeof(name);

	snprintf(path, sizeof(path), "%s/pool", folder);
	map_memory(&disk, open(path, O_RDWR | O_CREAT, 0600));
	map_memory(&shm, mkostemp(tmpfs, O_CLOEXEC));
	plain.map = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsetenv("FI_PROVIDER");
	unsetenv("FI_OFI_RPMEM_CLASS");
	if (rp_fabric_open(&attr, &f, err))
		bail("endpoint", err);
	if (fi_getname(&f.ep->fid, name, &len) ||
	    rp_fabric_peer(&f, name, &self, err) ||
	    register_memory(&disk, FI_RMA_PMEM) ||
	    register_memory(&shm, FI_RMA_PMEM) || register_memory(&plain, 0))
		bail("set-up", err);

	unlink(tmpfs); /* only the registration needs the name of the file */
	check_registering(folder);
	check_committing();
	many_ranges();
	lowered_class();
	check_querying();
	store_behind();
	refused_calls();
	failing_commits();
	default_flag();
	chosen_keys();
	not_offered();
	check_selecting();
	example_of_commit(example);
	check_draining(name);

	fi_close(&disk.mr->fid);
	fi_close(&shm.mr->fid);
	fi_close(&plain.mr->fid);
	rp_fabric_close(&f);
	printf("1..%d\n", tests);
	return !!failures;
}
