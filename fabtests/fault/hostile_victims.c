// SPDX-License-Identifier: BSD-2-Clause
/* The target that a hostile peer attacks, and the honest initiator. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fault/hostile.h"

static char *base_of[R_COUNT];
static struct fid_mr *mrs[R_COUNT];

/*
 * Replaces msync(), also for the provider, to count flushes outside the regions
 * below.
 */
__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	static int (*real)(void *, size_t, int);
	const char *from = addr;
	bool known = false;

	if (!real)
		real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
	if (world) {
		atomic_fetch_add(&world->msyncs, 1);
		/* Files whose keys a peer has: R_HONEST, R_READONLY, R_FILE. */
		for (int r = R_HONEST; r <= R_FILE; r++)
			known |= from >= base_of[r] && len <= REGION_LEN &&
				 from + len <= base_of[r] + REGION_LEN;
		if (!known)
			atomic_fetch_add(&world->msyncs_elsewhere, 1);
	}
	return real(addr, len, flags);
}

static char pattern_byte(int region, size_t at)
{
	return (char)(at * 31 + at / 4096 + 7 * region + 1);
}

/* Map memory between two inaccessible pages. */
static char *map_guarded(const char *file)
{
	const size_t page = 4096;
	char *p = mmap(NULL, REGION_LEN + 2 * page, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = -1, flags = MAP_FIXED | MAP_SHARED;

	if (p == MAP_FAILED)
		MUST(-errno);
	if (file) {
		fd = open(file, O_RDWR | O_CREAT, 0600);
		if (fd < 0)
			MUST(-errno);
		MUST(-posix_fallocate(fd, 0, REGION_LEN));
	} else {
		flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
	}
	p = mmap(p + page, REGION_LEN, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED)
		MUST(-errno);
	if (fd >= 0)
		close(fd);
	return p;
}

static void make_region(struct side *s, int r, const char *pools)
{
	const uint64_t remote =
		FI_REMOTE_READ | (r == R_READONLY ? 0 : FI_REMOTE_WRITE);
	bool va = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	bool file = r != R_PMEM && r != R_PMEM_OTHER && r != R_VOLATILE;
	char path[200];

	snprintf(path, sizeof(path), "%s.%d", pools, r);
	base_of[r] = map_guarded(file ? path : NULL);
	for (size_t i = 0; i < REGION_LEN; i++)
		base_of[r][i] = r == R_HONEST ? 0 : pattern_byte(r, i);
	MUST(fi_mr_reg(s->domain, base_of[r], REGION_LEN, remote, 0, r + 1,
		       r == R_VOLATILE ? 0 : FI_RMA_PMEM, &mrs[r], NULL));
	world->regions[r] = (struct region){
		.key = fi_mr_key(mrs[r]),
		.addr = va ? (uintptr_t)base_of[r] : 0,
		.at = base_of[r],
	};
}

static unsigned int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static uint64_t resident_kib(void)
{
	unsigned long size, rss = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%lu %lu", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return (uint64_t)rss * 4096;
}

static void look_at_regions(void)
{
	struct audit a = {.fds = open_files(), .rss = resident_kib()};

	for (int r = R_READONLY; r < R_COUNT; r++)
		for (size_t i = 0; i < REGION_LEN; i++)
			/* The hostile peer may write into R_FILE and R_PMEM. */
			a.changed += r != R_FILE && r != R_PMEM &&
				     base_of[r][i] != pattern_byte(r, i);
	for (size_t i = SLOTS * 64; i < REGION_LEN; i++)
		a.changed += base_of[R_HONEST][i] != 0;
	/* Each slot must hold its last acknowledged value or a later one. */
	for (int i = 0; i < SLOTS; i++)
		a.changed += *(uint64_t *)(base_of[R_HONEST] + i * 64) <
			     atomic_load(&world->acked[i]);
	a.flushed_elsewhere = atomic_load(&world->msyncs_elsewhere);
	world->audit = a;
	if (a.fds > world->most_fds)
		world->most_fds = a.fds;
}

/* Post receives of the program for any message; none may complete. */
static void receive_anything(struct side *s)
{
	static char any[2][64];

	POST(s, fi_recv(s->ep, any[0], sizeof(any[0]), NULL, FI_ADDR_UNSPEC,
			any[0]));
	POST(s, fi_trecv(s->ep, any[1], sizeof(any[1]), NULL, FI_ADDR_UNSPEC, 0,
			 ~0ull, any[1]));
}

void target_run(const char *pools)
{
	const struct pair_opts o = {.sleeps = true, .prov = NULL};
	struct fi_cq_tagged_entry e;
	const struct rlimit few = {TARGET_FDS, TARGET_FDS};
	struct fi_cq_err_entry err;
	struct side s;
	unsigned int due;
	ssize_t n;

	if (setrlimit(RLIMIT_NOFILE, &few))
		MUST(-errno);
	side_open(&s, &o);
	for (int r = 0; r < R_COUNT; r++)
		make_region(&s, r, pools);
	MUST(fi_close(&mrs[R_STALE]->fid));
	side_card(&s, &world->target);
	receive_anything(&s);
	atomic_store(&world->audits, 1);
	while (!atomic_load(&world->stop)) {
		n = fi_cq_sread(s.cq, &e, 1, NULL, 20);
		if (n == -FI_EAVAIL) {
			err = (struct fi_cq_err_entry){0};
			fi_cq_readerr(s.cq, &err, 0);
		}
		if (n != -FI_EAGAIN)
			atomic_fetch_add(&world->seen, 1);
		due = atomic_load(&world->audits_due);
		if (due > atomic_load(&world->audits)) {
			look_at_regions();
			atomic_store(&world->audits, due);
		}
	}
	for (int r = 0; r < R_STALE; r++)
		MUST(fi_close(&mrs[r]->fid));
	MUST(fi_close(&s.ep->fid));
	MUST(fi_close(&s.cq->fid));
	MUST(fi_close(&s.av->fid));
	MUST(fi_close(&s.domain->fid));
	MUST(fi_close(&s.fabric->fid));
	fi_freeinfo(s.info);
	exit(0);
}

/* Write a later value to slot i durably. Returns the status. */
static uint32_t commit_slot(struct side *s, int i, uint64_t value)
{
	const struct region *r = &world->regions[R_HONEST];
	struct fi_rma_iov g = {r->addr + i * 64, 64, r->key};
	uint64_t line[8] = {value};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	uint32_t st = 0;

	POST(s, fi_write(s->ep, line, sizeof(line), NULL, s->peer, g.addr,
			 g.key, line));
	POST(s, commit_post(s->ep, &g, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &g));
	for (int ends = 0; ends < 2; ends++) {
		if (!side_wait(s, &e, &err))
			st = err.prov_errno ? err.prov_errno : err.err;
		else if (e.op_context != line && e.op_context != &g)
			atomic_fetch_add(&world->honest_seen, 1);
	}
	return st;
}

void honest_run(void)
{
	const struct pair_opts o = {.sleeps = true};
	struct timespec pause = {.tv_nsec = 500000};
	uint64_t n = 0, t;
	struct side s;
	uint32_t st;
	int i;

	side_open(&s, &o);
	side_insert(&s, &world->target);
	receive_anything(&s);
	while (!atomic_load(&world->stop)) {
		i = (int)(n++ % SLOTS);
		t = now_ns();
		atomic_store(&world->begun, t);
		st = commit_slot(&s, i, n);
		atomic_store(&world->begun, 0);
		t = now_ns() - t;
		if (t > atomic_load(&world->slowest))
			atomic_store(&world->slowest, t);
		if (st) {
			atomic_store(&world->status, st);
			atomic_fetch_add(&world->failed, 1);
		} else {
			atomic_store(&world->acked[i], n);
			atomic_fetch_add(&world->commits, 1);
		}
		nanosleep(&pause, NULL);
	}
	side_close(&s);
	exit(0);
}
