// SPDX-License-Identifier: BSD-2-Clause
/* The target and the initiator of the test faults. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status.h"
#include "core/wire.h"
#include "fault/faults.h"

#define OPS    16
#define SPAN   4 /* most slots that one operation writes */
#define HUNG   30000000000ull
#define GIVEUP 3000000000ull

/*
 * While world->no_fds is set, lower RLIMIT_NOFILE to the descriptors in use, so
 * that none can be opened.
 */
static void limit_descriptors(enum side_of side)
{
	static struct rlimit all;
	static bool squeezed;
	bool want = atomic_load(&world->no_fds[side]);
	struct rlimit r;
	int fd;

	if (want == squeezed)
		return;
	if (!all.rlim_cur)
		getrlimit(RLIMIT_NOFILE, &all);
	r = all;
	fd = want ? dup(0) : -1;
	if (fd >= 0) {
		r.rlim_cur = (rlim_t)fd;
		close(fd);
	}
	setrlimit(RLIMIT_NOFILE, &r);
	squeezed = want;
}

/* --- the target --- */

static int register_pool(struct side *s, char *pool, struct fid_mr **mr)
{
	const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct card c;
	int ret;

	/*
	 * Make the generation odd before any byte can be flushed under the new
	 * key.
	 */
	atomic_fetch_add(&world->generation, 1);
	atomic_store(&world->msync_failed, false);
	ret = fi_mr_reg(s->domain, pool, sizeof(world->media), remote, 0, 1,
			FI_RMA_PMEM, mr, NULL);
	if (ret) {
		*mr = NULL;
		atomic_fetch_sub(&world->generation, 1);
		return ret;
	}
	side_card(s, &c);
	c.pool_key = fi_mr_key(*mr);
	c.pool_addr = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			      ? (uintptr_t)pool
			      : 0;
	world->card = c;
	snprintf(world->port, sizeof(world->port), "%u",
		 ntohs(((struct sockaddr_in *)c.name)->sin_port));
	atomic_fetch_add(&world->generation, 1);
	return 0;
}

void target_run(void)
{
	const struct pair_opts o = {
		.sleeps = true,
		.port = *world->port ? world->port : NULL,
	};
	int fd = open(world->pool, O_RDWR);
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	struct fid_mr *mr = NULL;
	struct side s;
	char *pool;

	if (fd < 0)
		MUST(-errno);
	pool = mmap(NULL, sizeof(world->media), PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		MUST(-errno);
	close(fd);
	side_open(&s, &o);
	preload_map(pool, sizeof(world->media));
	MUST(register_pool(&s, pool, &mr));
	preload_arm(TARGET);
	while (!atomic_load(&world->stop)) {
		limit_descriptors(TARGET);
		if (fi_cq_sread(s.cq, &e, 1, NULL, 10) == -FI_EAVAIL)
			fi_cq_readerr(s.cq, &err, 0);
		if (!mr || atomic_exchange(&world->register_anew, false)) {
			if (mr)
				MUST(fi_close(&mr->fid));
			register_pool(&s, pool, &mr);
		}
	}
	if (mr)
		MUST(fi_close(&mr->fid));
	side_close(&s);
	exit(0);
}

/* --- the initiator --- */

struct op {
	bool busy, failed, after_failure;
	unsigned int first, n;
	bool write_due, commit_due; /* posted, and the completion is not read
				     * yet */
	uint64_t value, since;
	uint64_t bytes[SPAN][SLOT / 8];
	char w, c; /* only their addresses: contexts of the write and the
		    * commit */
};

static struct op ops[OPS];
static unsigned int base_slot;
static struct card target;
static uint64_t generation;

static void report_mismatch(const char *what, uint64_t a, uint64_t b)
{
	if (!*world->says)
		snprintf(world->says, sizeof(world->says), "%s (%llu, %llu)",
			 what, (unsigned long long)a, (unsigned long long)b);
}

static void check_memory(struct op *o)
{
	o->busy = false;
	if (o->failed)
		return;
	atomic_fetch_add(&world->acked, 1);
	if (o->after_failure) {
		atomic_fetch_add(&world->unsticky, 1);
		report_mismatch("a commit of a region that had failed",
				o->value, o->first);
	}
	for (unsigned int i = 0; i < o->n; i++) {
		const uint64_t *m = world->media[o->first + i];

		for (int k = 0; k < SLOT / 8; k++) {
			if (m[k] == o->value)
				continue;
			atomic_fetch_add(&world->lost, 1);
			report_mismatch("acknowledged and not in the pool",
					o->value, m[k]);
			return;
		}
	}
}

static void end_query(void *context, uint32_t status)
{
	struct op *o = NULL;

	for (int i = 0; i < OPS; i++)
		if (context == &ops[i].w || context == &ops[i].c)
			o = &ops[i];
	if (!o || !(context == &o->w ? o->write_due : o->commit_due)) {
		atomic_fetch_add(&world->twice, 1);
		report_mismatch("an operation ended twice", status, 0);
		return;
	}
	if (context == &o->w)
		o->write_due = false;
	else
		o->commit_due = false;
	if (status) {
		o->failed = true;
		atomic_fetch_add(&world->failed, 1);
		atomic_fetch_add(&world->status[status % 256], 1);
	}
	if (!o->write_due && !o->commit_due)
		check_memory(o);
}

/* The status of an error entry; 255: the base failed the operation. */
static uint32_t status_of(const struct fi_cq_err_entry *err)
{
	int st = err->prov_errno;

	return st > 0 && st <= RP_ST_LOST &&
			       err->err == rp_status_errno((uint32_t)st)
		       ? (uint32_t)st
		       : 255;
}

static void reap_entries(struct side *s)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	ssize_t n;

	while ((n = fi_cq_read(s->cq, &e, 1)) != -FI_EAGAIN) {
		if (n == 1) {
			end_query(e.op_context, 0);
		} else if (n == -FI_EAVAIL) {
			if (fi_cq_readerr(s->cq, &err, 0) == 1)
				end_query(err.op_context, status_of(&err));
		} else {
			/*
			 * fi_cq_read() returns -FI_EOVERRUN on every call after
			 * the queue had no memory for a completion.
			 */
			if (n == -FI_EOVERRUN && world->failed_allocs)
				exit(OVERRUN);
			report_mismatch("the queue broke", (uint64_t)-n, 0);
			exit(1);
		}
	}
}

/* Did the call return an error? If not, the operation will complete. */
static bool not_taken(ssize_t ret)
{
	if (!ret)
		return false;
	atomic_fetch_add(ret == -FI_EAGAIN ? &world->given_up : &world->refused,
			 1);
	return true;
}

#define TRY(s, ret, call)                                                      \
	do {                                                                   \
		uint64_t end_ = now_ns() + GIVEUP;                             \
		while (((ret) = (call)) == -FI_EAGAIN && now_ns() < end_)      \
			reap_entries(s);                                       \
	} while (0)

static void begin_op(struct side *s, struct op *o)
{
	struct fi_rma_iov g;
	struct iovec iov = {o->bytes, 0};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &g,
		.rma_iov_count = 1,
		.context = &o->c,
	};
	bool two = rnd() % 2;
	ssize_t ret;

	memset(o, 0, sizeof(*o));
	/*
	 * Each op has its own slots, so the final value of each slot is known.
	 */
	o->first = base_slot + (unsigned int)(o - ops) * SPAN;
	o->n = 1 + (unsigned int)(rnd() % SPAN);
	o->value = atomic_fetch_add(&world->next_value, 1);
	for (unsigned int i = 0; i < o->n; i++)
		for (int k = 0; k < SLOT / 8; k++)
			o->bytes[i][k] = o->value;
	o->after_failure = atomic_load(&world->msync_failed) &&
			   atomic_load(&world->generation) == generation;
	o->since = now_ns();
	iov.iov_len = o->n * SLOT;
	g = (struct fi_rma_iov){target.pool_addr + o->first * SLOT, iov.iov_len,
				target.pool_key};
	o->busy = true;
	if (two) {
		o->write_due = true;
		TRY(s, ret,
		    fi_write(s->ep, o->bytes, iov.iov_len, NULL, s->peer,
			     g.addr, g.key, &o->w));
		if (not_taken(ret)) {
			o->busy = false;
			return;
		}
	}
	o->commit_due = true;
	if (two)
		TRY(s, ret,
		    commit_post(s->ep, &g, 1, s->peer, FI_RPMEM_DURABLE,
				FI_RPMEM_CLASS_DEFAULT, NULL, &o->c));
	else
		TRY(s, ret, fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE));
	if (!not_taken(ret))
		return;
	o->commit_due = false;
	o->failed = true;
	o->busy = o->write_due;
}

/*
 * Shut down the private connection to the target, found by the port in its key.
 */
static void cut_connections(void)
{
	const uint16_t port = htons(rp_key_port(target.pool_key));
	DIR *dir = opendir("/proc/self/fd");
	struct sockaddr_in peer;
	struct dirent *de;
	socklen_t len;

	while (dir && (de = readdir(dir))) {
		int fd = atoi(de->d_name);

		len = sizeof(peer);
		if (!getpeername(fd, (struct sockaddr *)&peer, &len) &&
		    peer.sin_family == AF_INET && peer.sin_port == port &&
		    !shutdown(fd, SHUT_RDWR))
			atomic_fetch_add(&world->cuts, 1);
	}
	if (dir)
		closedir(dir);
}

/*
 * Read the card again if the generation changed: the target has restarted, or
 * registered again. Returns false while the target is writing it.
 */
static bool read_card(void)
{
	uint64_t g = atomic_load(&world->generation);

	if (g == generation)
		return true;
	if (g % 2)
		return false;
	target = world->card;
	if (atomic_load(&world->generation) != g)
		return false;
	generation = g;
	return true;
}

void initiator_run(unsigned int turn)
{
	const struct pair_opts o = {.sleeps = true};
	struct timespec pause = {.tv_nsec = 200000};
	struct side s;

	side_open(&s, &o);
	base_slot = turn % TURNS * (SLOTS / TURNS);
	while (!read_card())
		;
	side_insert(&s, &target);
	preload_arm(INITIATOR);
	while (!atomic_load(&world->stop)) {
		limit_descriptors(INITIATOR);
		if (atomic_exchange(&world->cut, false))
			cut_connections();
		reap_entries(&s);
		for (int i = 0; i < OPS; i++) {
			struct op *p = &ops[i];

			if (p->busy && now_ns() > p->since + HUNG) {
				atomic_fetch_add(&world->hung, 1);
				report_mismatch("an operation does not end",
						p->value, p->commit_due);
				exit(1);
			}
			if (!p->busy && read_card())
				begin_op(&s, p);
		}
		nanosleep(&pause, NULL);
	}
	side_close(&s);
	exit(0);
}
