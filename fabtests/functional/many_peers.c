// SPDX-License-Identifier: BSD-2-Clause
/*
 * More peers than a domain may have connections. The provider closes idle
 * connections for new ones without an error, and no write over a closed one is
 * lost or poisoned.
 */
#include "config.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "fabtests/commit.h"
#include "util/fabric.h"

#define OPEN  1024 /* maximum connections of an initiator: docs/operating.md */
#define PEERS (OPEN + 40)
#define BYTES 256 /* so long that a write is by RDMA, not inside a request */
#define LEN   ((size_t)PEERS * BYTES)
/*
 * Limit of descriptors: both ends of OPEN connections are in this process, and
 * some others.
 */
#define FDS (2 * OPEN + 200)

static struct rp_fabric f;
static fi_addr_t peers[PEERS];
static char err[RP_ERR_LEN];
static struct fid_mr *mr;
static uint8_t *pool;
static uint64_t base;
static int tests, failures;

static void ok(bool holds, const char *text)
{
	printf("%sok %d - %s\n", holds ? "" : "not ", ++tests, text);
	failures += !holds;
}

static void bail(const char *what, const char *why)
{
	printf("Bail out! %s: %s\n", what, why);
	exit(1);
}

/*
 * Wait for the completion of an operation that a call has posted. Returns 0 or
 * its error.
 */
static int wait_end(ssize_t posted)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry e;
	ssize_t n;

	if (posted)
		return (int)posted;
	do
		n = fi_cq_read(f.cq, &e, 1);
	while (n == -FI_EAGAIN);
	if (n == 1)
		return 0;
	fi_cq_readerr(f.cq, &bad, 0);
	printf("# %s\n", fi_cq_strerror(f.cq, bad.prov_errno, NULL, NULL, 0));
	return bad.prov_errno;
}

static int write_to_peer(unsigned int i)
{
	uint8_t bytes[BYTES];
	ssize_t n;

	memset(bytes, (int)(i % 251 + 1), BYTES);
	do {
		n = fi_write(f.ep, bytes, BYTES, NULL, peers[i],
			     base + i * BYTES, fi_mr_key(mr), NULL);
		if (n == -FI_EAGAIN)
			fi_cq_read(f.cq, NULL, 0);
	} while (n == -FI_EAGAIN);
	return wait_end(n);
}

static int commit_at_peer(unsigned int i)
{
	struct fi_rma_iov r = {
		.addr = base + i * BYTES,
		.len = BYTES,
		.key = fi_mr_key(mr),
	};
	ssize_t n;

	do {
		n = commit_post(f.ep, &r, 1, peers[i], FI_RPMEM_DURABLE,
				FI_RPMEM_CLASS_NONE, NULL, NULL);
		if (n == -FI_EAGAIN)
			fi_cq_read(f.cq, NULL, 0);
	} while (n == -FI_EAGAIN);
	return wait_end(n);
}

static unsigned int for_each_peer(int (*one)(unsigned int i))
{
	unsigned int bad = 0;

	for (unsigned int i = 0; i < PEERS; i++)
		bad += !!one(i);
	return bad;
}

static unsigned int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Open one target, and insert PEERS addresses of this host for it. */
static void open_all(void)
{
	struct rp_fabric_attr attr = {.target = true, .source = "0.0.0.0"};
	struct sockaddr_in sa;
	size_t len = sizeof(sa);

	if (rp_fabric_open(&attr, &f, err))
		bail("endpoint", err);
	if (fi_getname(&f.ep->fid, &sa, &len))
		bail("fi_getname", "failed");
	for (unsigned int i = 0; i < PEERS; i++) {
		sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
		if (fi_av_insert(f.av, &sa, 1, &peers[i], 0, NULL) != 1)
			bail("fi_av_insert", "failed");
	}
	pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pool == MAP_FAILED ||
	    fi_mr_reg(f.domain, pool, LEN, FI_REMOTE_WRITE, 0, 0, FI_RMA_PMEM,
		      &mr, NULL))
		bail("fi_mr_reg", "failed");
	base = f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)pool
							      : 0;
}

int main(void)
{
	struct rlimit r;
	unsigned int wrong = 0;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_cur < 2 * PEERS + 200) {
		printf("1..0 # SKIP: %d descriptors are needed\n",
		       2 * PEERS + 200);
		return 77;
	}
	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	unsetenv("FI_PROVIDER");
	unsetenv("FI_TCP_IFACE");
	open_all();
	ok(!for_each_peer(write_to_peer), "a write to each peer completes");
	ok(count_descriptors() < FDS,
	   "and connections beyond the bound are closed");
	ok(!for_each_peer(commit_at_peer),
	   "a commit to each covers it, over another connection");
	for (size_t i = 0; i < LEN; i++)
		wrong += pool[i] != i / BYTES % 251 + 1;
	ok(!wrong, "all bytes are placed");
	fi_close(&mr->fid);
	rp_fabric_close(&f);
	printf("1..%d\n", tests);
	return !!failures;
}
