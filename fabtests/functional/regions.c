// SPDX-License-Identifier: BSD-2-Clause
/* Registrations in each mr_mode of the base, and of a very large region. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "functional/pair.h"

/* Values of FI_MR_BASIC and FI_MR_SCALABLE, which newer headers deprecate. */
enum {
	MR_BASIC = 1,
	MR_SCALABLE
};

static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

static int count_listed(const char *prov, uint32_t version, int mode,
			struct fi_info **info)
{
	struct fi_info *h = fi_allocinfo();
	int ret;

	h->caps = FI_MSG | FI_RMA;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = mode;
	h->fabric_attr->prov_name = strdup(prov);
	ret = fi_getinfo(version, "127.0.0.1", NULL, FI_SOURCE, h, info);
	fi_freeinfo(h);
	return !ret;
}

/*
 * Write to a region of this process in the mr_mode of info. Returns 1, or 0 if
 * a call fails.
 */
static int mode_works(struct fi_info *info)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av_attr = {.type = FI_AV_MAP};
	static char from[64] = "from here", to[64];
	int mode = info->domain_attr->mr_mode;
	struct side s = {.info = info};
	struct fid_mr *src, *dst;
	char name[128];
	size_t len = sizeof(name);
	void *desc;

	if (fi_fabric(info->fabric_attr, &s.fabric, NULL) ||
	    fi_domain(s.fabric, info, &s.domain, NULL) ||
	    fi_cq_open(s.domain, &cq_attr, &s.cq, NULL) ||
	    fi_av_open(s.domain, &av_attr, &s.av, NULL) ||
	    fi_endpoint(s.domain, info, &s.ep, NULL) ||
	    fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) ||
	    fi_ep_bind(s.ep, &s.av->fid, 0) || fi_enable(s.ep) ||
	    fi_getname(&s.ep->fid, name, &len) ||
	    fi_av_insert(s.av, name, 1, &s.peer, 0, NULL) != 1 ||
	    fi_mr_reg(s.domain, from, sizeof(from), FI_WRITE, 0, 1, 0, &src,
		      NULL) ||
	    fi_mr_reg(s.domain, to, sizeof(to), FI_REMOTE_WRITE, 0, 2, 0, &dst,
		      NULL))
		return 0;
	desc = fi_mr_desc(src);
	memset(to, 0, sizeof(to));
	POST(&s, fi_write(s.ep, from, sizeof(from), desc, s.peer,
			  (mode & FI_MR_VIRT_ADDR) || mode == MR_BASIC
				  ? (uintptr_t)to
				  : 0,
			  fi_mr_key(dst), NULL));
	if (!side_wait(&s, &e, &err) || memcmp(from, to, sizeof(to)))
		return 0;
	return !fi_close(&src->fid) && !fi_close(&dst->fid) &&
	       !fi_close(&s.ep->fid) && !fi_close(&s.cq->fid) &&
	       !fi_close(&s.av->fid) && !fi_close(&s.domain->fid) &&
	       !fi_close(&s.fabric->fid);
}

static void check_modes(const char *base, const char *ours)
{
	const struct {
		const char *name;
		uint32_t version;
		int mode;
	} m[] = {
		{"none", FI_VERSION(1, 17), 0},
		{"FI_MR_LOCAL", FI_VERSION(1, 17), FI_MR_LOCAL},
		{"FI_MR_RAW", FI_VERSION(1, 17), FI_MR_RAW},
		{"FI_MR_VIRT_ADDR", FI_VERSION(1, 17), FI_MR_VIRT_ADDR},
		{"FI_MR_ALLOCATED", FI_VERSION(1, 17), FI_MR_ALLOCATED},
		{"FI_MR_PROV_KEY", FI_VERSION(1, 17), FI_MR_PROV_KEY},
		{"FI_MR_MMU_NOTIFY", FI_VERSION(1, 17), FI_MR_MMU_NOTIFY},
		{"FI_MR_RMA_EVENT", FI_VERSION(1, 17), FI_MR_RMA_EVENT},
		{"FI_MR_ENDPOINT", FI_VERSION(1, 17), FI_MR_ENDPOINT},
		{"FI_MR_HMEM", FI_VERSION(1, 17), FI_MR_HMEM},
		{"all of the usual ones", FI_VERSION(1, 17),
		 FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
			 FI_MR_PROV_KEY | FI_MR_ENDPOINT},
		{"FI_MR_BASIC, 1.4", FI_VERSION(1, 4), MR_BASIC},
		{"FI_MR_SCALABLE, 1.4", FI_VERSION(1, 4), MR_SCALABLE},
		{"FI_MR_BASIC, 1.17", FI_VERSION(1, 17), MR_BASIC},
		{"FI_MR_SCALABLE, 1.17", FI_VERSION(1, 17), MR_SCALABLE},
	};
	struct fi_info *b, *o;

	for (size_t i = 0; i < sizeof(m) / sizeof(*m); i++) {
		int on_base = count_listed(base, m[i].version, m[i].mode, &b);
		int on_ours = count_listed(ours, m[i].version, m[i].mode, &o);

		tap_ok(on_ours == on_base, "%s: %s: listed as the base is (%d)",
		       ours, m[i].name, on_base);
		if (on_ours)
			tap_ok(mode_works(o), "%s: %s: works (mode %#x)", ours,
			       m[i].name, o->domain_attr->mr_mode);
		if (on_base)
			fi_freeinfo(b);
		if (on_ours)
			fi_freeinfo(o);
	}
}

/* A sparse region of 5 GiB, and commits beyond its first 4 GiB. */
static void check_large_region(void)
{
	const uint64_t size = 5ull << 30, far = (9ull << 29) + 100;
	const struct pair_opts o = {0};
	struct fi_rma_iov r;
	struct iovec two[2];
	char name[] = "regions.XXXXXX", text[] = "far away", back[9] = "";
	int fd = mkstemp(name);
	struct fid_mr *mr, *none;
	struct card c;
	struct side s;
	char *p;

	if (fd < 0 || ftruncate(fd, (off_t)size))
		MUST(-errno);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		MUST(-errno);
	side_open(&s, &o);
	side_card(&s, &c);
	side_insert(&s, &c);
	MUST(fi_mr_reg(s.domain, p, size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		       0, FI_RMA_PMEM, &mr, NULL));
	r = (struct fi_rma_iov){far, sizeof(text), fi_mr_key(mr)};
	if (s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		r.addr += (uintptr_t)p;
	POST(&s, fi_write(s.ep, text, sizeof(text), NULL, s.peer, r.addr, r.key,
			  text));
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	tap_ok(side_wait(&s, &e, &err) && side_wait(&s, &e, &err),
	       "a commit behind 4 GiB");
	tap_ok(pread(fd, back, sizeof(back), (off_t)far) == sizeof(back) &&
		       !strcmp(back, text),
	       "the bytes are where they belong");
	r.addr -= far;
	r.len = size;
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	tap_ok(side_wait(&s, &e, &err), "a commit of 5 GiB");
	r.len++;
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	tap_ok(!side_wait(&s, &e, &err) && err.prov_errno == RP_ST_RANGE,
	       "and of one byte more");
	two[0] = (struct iovec){p, 4096};
	two[1] = (struct iovec){p + 8192, 4096};
	tap_ok(fi_mr_regv(s.domain, two, 2, FI_REMOTE_WRITE, 0, 0, FI_RMA_PMEM,
			  &none, NULL) == -FI_EINVAL,
	       "a persistent region of two pieces is refused");
	MUST(fi_close(&mr->fid));
	side_close(&s);
	munmap(p, size);
	close(fd);
	unlink(name);
}

int main(void)
{
	setbuf(stdout, NULL);
	alarm(120);
	check_large_region();
	check_modes("tcp;ofi_rxm", "tcp;ofi_rpmem");
	check_modes("sockets", "sockets;ofi_rpmem");
	return tap_done();
}
