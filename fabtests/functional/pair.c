// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two processes (target and initiator) with one endpoint each, for tests of one
 * behaviour.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"
#include "unit/landing.h"

static int in_fd, out_fd; /* the pipes between the two */
static const char *role = "";
/* Counts of TAP lines, shared by all processes. */
static struct tally {
	int number, failures;
} * tally;

static struct tally *tally_of(void)
{
	if (tally)
		return tally;
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tally == MAP_FAILED)
		MUST(-errno);
	return tally;
}

ssize_t pair_must(ssize_t ret, const char *what, const char *file, int line)
{
	if (ret >= 0)
		return ret;
	printf("# %s %s:%d: %s: %s\n", role, file, line, what,
	       fi_strerror((int)-ret));
	fflush(stdout);
	_exit(1);
}

void tap_ok(bool ok, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", ok ? "" : "not ", ++tally_of()->number);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	tally_of()->failures += !ok;
}

void tap_skip(const char *name, const char *why)
{
	printf("ok %d - %s # SKIP %s\n", ++tally_of()->number, name, why);
	fflush(stdout);
}

void tap_begin(void)
{
	tally_of();
}

int tap_done(void)
{
	printf("1..%d\n", tally_of()->number);
	return tally_of()->failures ? 1 : 0;
}

/*
 * The environment variables RPMEM_BASE and RPMEM_NODE name the base and the
 * address of the tests.
 */
static const char *base_prov(void)
{
	const char *base = getenv("RPMEM_BASE");

	return base ? base : "tcp";
}

bool pair_over(const char *base)
{
	return !strcmp(base_prov(), base);
}

static char *prov_of(const struct pair_opts *o)
{
	char name[64];

	if (o->prov)
		return strdup(strcmp(o->prov, "tcp") ? o->prov : base_prov());
	snprintf(name, sizeof(name), "%s;ofi_rpmem", base_prov());
	return strdup(name);
}

static const char *loopback_node(void)
{
	const char *name = getenv("RPMEM_NODE");

	return name ? name : "127.0.0.1";
}

static void open_counters(struct side *s)
{
	static const uint64_t of[4] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};

	for (int i = 0; i < 4; i++) {
		MUST(fi_cntr_open(s->domain, &attr, &s->cntr[i], NULL));
		MUST(fi_ep_bind(s->ep, &s->cntr[i]->fid, of[i]));
	}
}

void side_open(struct side *s, const struct pair_opts *o)
{
	struct fi_info *h = fi_allocinfo();
	struct fi_cq_attr cq = {0};
	struct fi_av_attr av = {0};

	memset(s, 0, sizeof(*s));
	s->o = *o;
	if (!h)
		MUST(-FI_ENOMEM);
	h->caps = FI_MSG | FI_RMA | o->caps;
	if (!o->msg)
		h->caps |= FI_TAGGED;
	if (!o->plain_hints && (!o->prov || strstr(o->prov, "ofi_rpmem")))
		h->caps |= FI_RMA_PMEM;
	if (o->sources)
		h->caps |= FI_SOURCE;
	h->ep_attr->type = o->msg ? FI_EP_MSG : FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	if (!o->raw_keys)
		h->domain_attr->mr_mode |= FI_MR_PROV_KEY;
	if (o->local || (o->msg && pair_over("verbs")))
		h->domain_attr->mr_mode |= FI_MR_LOCAL;
	h->domain_attr->data_progress = o->progress;
	if (o->progress == FI_PROGRESS_AUTO) /* else ofi_rxm loses receives */
		setenv("FI_OFI_RXM_ENABLE_DYN_RBUF", "0", 1);
	h->domain_attr->threading = o->threading;
	h->tx_attr->op_flags = o->op_flags;
	h->tx_attr->msg_order = o->order;
	h->fabric_attr->prov_name = prov_of(o);
	MUST(fi_getinfo(FI_VERSION(1, 17), loopback_node(), o->port, FI_SOURCE,
			h, &s->info));
	fi_freeinfo(h);
	MUST(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	MUST(fi_domain(s->fabric, s->info, &s->domain, NULL));
	/* Connected endpoints of verbs have no tags. */
	cq.format = o->msg && pair_over("verbs") ? FI_CQ_FORMAT_DATA
						 : FI_CQ_FORMAT_TAGGED;
	if (o->format)
		cq.format = o->format;
	cq.wait_obj = o->sleeps ? FI_WAIT_FD : FI_WAIT_NONE;
	MUST(fi_cq_open(s->domain, &cq, &s->cq, NULL));
	if (o->msg) {
		struct fi_eq_attr eq = {.wait_obj = FI_WAIT_UNSPEC};

		MUST(fi_eq_open(s->fabric, &eq, &s->eq, NULL));
		return;
	}
	av.type = o->av ? o->av : FI_AV_MAP;
	MUST(fi_av_open(s->domain, &av, &s->av, NULL));
	side_endpoint(s, s->info);
	MUST(fi_enable(s->ep));
}

void side_endpoint(struct side *s, struct fi_info *info)
{
	MUST(fi_endpoint(s->domain, info, &s->ep, NULL));
	MUST(fi_ep_bind(
		s->ep, &s->cq->fid,
		FI_TRANSMIT | FI_RECV |
			(s->o.selective ? FI_SELECTIVE_COMPLETION : 0)));
	if (s->eq)
		MUST(fi_ep_bind(s->ep, &s->eq->fid, 0));
	if (s->av)
		MUST(fi_ep_bind(s->ep, &s->av->fid, 0));
	if (s->o.counts)
		open_counters(s);
}

void side_listen(struct side *s)
{
	MUST(fi_passive_ep(s->fabric, s->info, &s->pep, NULL));
	MUST(fi_pep_bind(s->pep, &s->eq->fid, 0));
	MUST(fi_listen(s->pep));
}

uint32_t side_event(struct side *s, struct fi_eq_cm_entry *e)
{
	struct fi_eq_err_entry err = {0};
	uint32_t event = 0;
	ssize_t n;

	do {
		n = fi_eq_sread(s->eq, &event, e, sizeof(*e), 100, 0);
		/*
		 * Poll the CQ, too: with emulated placement
		 * (peers_write_here()) bytes move when it is polled.
		 */
		if (n == -FI_EAGAIN)
			side_poke(s);
	} while (n == -FI_EAGAIN);
	if (n == -FI_EAVAIL) {
		MUST(fi_eq_readerr(s->eq, &err, 0));
		MUST(-err.err);
	}
	MUST(n);
	return event;
}

/* Wait for FI_CONNECTED of this endpoint's connection. */
static void expect_connected(struct side *s)
{
	struct fi_eq_cm_entry e;

	if (side_event(s, &e) != FI_CONNECTED || e.fid != &s->ep->fid)
		MUST(-FI_EOTHER);
}

void side_accept(struct side *s)
{
	struct fi_eq_cm_entry e;

	if (side_event(s, &e) != FI_CONNREQ || e.fid != &s->pep->fid)
		MUST(-FI_EOTHER);
	side_endpoint(s, e.info);
	MUST(fi_enable(s->ep));
	MUST(fi_accept(s->ep, NULL, 0));
	fi_freeinfo(e.info);
	expect_connected(s);
}

void side_dial(struct side *s, const struct card *peer)
{
	struct fi_info *info = fi_dupinfo(s->info);

	if (!info)
		MUST(-FI_ENOMEM);
	free(info->dest_addr);
	info->dest_addrlen = peer->len;
	info->dest_addr = malloc(peer->len);
	if (!info->dest_addr)
		MUST(-FI_ENOMEM);
	memcpy(info->dest_addr, peer->name, peer->len);
	side_endpoint(s, info);
	fi_freeinfo(info);
}

void side_connect(struct side *s, const struct card *peer)
{
	side_dial(s, peer);
	MUST(fi_enable(s->ep));
	MUST(fi_connect(s->ep, peer->name, NULL, 0));
	expect_connected(s);
}

static const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;

/*
 * RPMEM_MAP_SYNC selects MAP_SYNC. path may be a devdax device, with @N for its
 * N-th part of PAIR_DEVICE bytes.
 */
void *pair_map(const char *path, size_t *len)
{
	const char *at = strchr(path, '@');
	char file[PATH_MAX];
	struct stat st;
	off_t off = 0;
	void *map;
	int fd;

	snprintf(file, sizeof(file), "%s", path);
	if (at) {
		file[at - path] = 0;
		off = (off_t)PAIR_DEVICE * atoi(at + 1);
	}
	fd = open(file, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || fstat(fd, &st))
		MUST(-errno);
	*len = PAIR_POOL;
	if (S_ISCHR(st.st_mode))
		*len = PAIR_DEVICE;
	else
		MUST(-posix_fallocate(fd, 0, PAIR_POOL));
	map = mmap(NULL, *len, PROT_READ | PROT_WRITE,
		   getenv("RPMEM_MAP_SYNC") ? MAP_SHARED_VALIDATE | MAP_SYNC
					    : MAP_SHARED,
		   fd, off);
	if (map == MAP_FAILED)
		MUST(-errno);
	close(fd);
	peers_write_here(map, *len);
	return map;
}

bool pair_on_tmpfs(char *path)
{
	int fd = mkstemp(path);

	if (fd < 0) {
		puts("1..0 # SKIP no tmpfs");
		return false;
	}
	MUST(ftruncate(fd, PAIR_POOL) ? -errno : 0);
	close(fd);
	setenv("RPMEM_POOL", path, 1);
	setenv("FI_OFI_RPMEM_CLASS", "process", 1);
	return true;
}

void side_pool(struct side *s, const char *path)
{
	s->pool = pair_map(path, &s->pool_len);
	MUST(fi_mr_reg(s->domain, s->pool, PAIR_POOL,
		       s->o.unreadable ? FI_REMOTE_WRITE : remote, 0, 1,
		       s->o.plain_hints ? 0 : FI_RMA_PMEM, &s->pool_mr, NULL));
}

void side_memory(struct side *s)
{
	const char *given = getenv("RPMEM_POOL");
	int fd;

	if (given) {
		side_pool(s, given);
		memset(s->pool, 0, PAIR_POOL);
	} else {
		/*
		 * Keep the name of the file: a deleted file is not persistent.
		 */
		strcpy(s->path, "pair_pool.XXXXXX");
		fd = mkstemp(s->path);
		if (fd < 0)
			MUST(-errno);
		close(fd);
		side_pool(s, s->path);
	}
	s->plain = mmap(NULL, PAIR_POOL, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->plain == MAP_FAILED)
		MUST(-errno);
	peers_write_here(s->plain, PAIR_POOL);
	MUST(fi_mr_reg(s->domain, s->plain, PAIR_POOL, remote, 0,
		       PAIR_PLAIN_KEY, 0, &s->plain_mr, NULL));
}

void *side_local_desc(struct side *s, void *buf, size_t len)
{
	if (!(s->info->domain_attr->mr_mode & FI_MR_LOCAL))
		return NULL;
	MUST(fi_mr_reg(s->domain, buf, len,
		       FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 3, 0,
		       &s->local_mr, NULL));
	return fi_mr_desc(s->local_mr);
}

void side_card(struct side *s, struct card *c)
{
	bool va = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	memset(c, 0, sizeof(*c));
	c->len = sizeof(c->name);
	if (s->ep)
		MUST(fi_getname(&s->ep->fid, c->name, &c->len));
	if (s->pep)
		MUST(fi_getname(&s->pep->fid, c->name, &c->len));
	if (!s->pool)
		return;
	c->pool_key = fi_mr_key(s->pool_mr);
	c->pool_addr = va ? (uintptr_t)s->pool : 0;
	if (!s->plain)
		return;
	c->plain_key = fi_mr_key(s->plain_mr);
	c->plain_addr = va ? (uintptr_t)s->plain : 0;
}

void side_insert(struct side *s, const struct card *peer)
{
	if (MUST(fi_av_insert(s->av, peer->name, 1, &s->peer, 0, NULL)) != 1)
		MUST(-FI_EADDRNOTAVAIL);
}

void side_close(struct side *s)
{
	if (s->ep)
		MUST(fi_close(&s->ep->fid));
	if (s->pool) {
		MUST(fi_close(&s->pool_mr->fid));
		munmap(s->pool, s->pool_len);
	}
	if (s->plain) {
		MUST(fi_close(&s->plain_mr->fid));
		munmap(s->plain, PAIR_POOL);
		if (s->path[0])
			unlink(s->path);
	}
	if (s->local_mr)
		MUST(fi_close(&s->local_mr->fid));
	for (int i = 0; i < 4 && s->cntr[i]; i++)
		MUST(fi_close(&s->cntr[i]->fid));
	MUST(fi_close(&s->cq->fid));
	if (s->av)
		MUST(fi_close(&s->av->fid));
	if (s->pep)
		MUST(fi_close(&s->pep->fid));
	if (s->eq)
		MUST(fi_close(&s->eq->fid));
	MUST(fi_close(&s->domain->fid));
	MUST(fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

void side_poke(struct side *s)
{
	fi_cq_read(s->cq, NULL, 0);
}

int side_wait(struct side *s, struct fi_cq_tagged_entry *e,
	      struct fi_cq_err_entry *err)
{
	ssize_t n;

	memset(e, 0, sizeof(*e));
	for (;;) {
		n = s->o.sleeps ? fi_cq_sread(s->cq, e, 1, NULL, -1)
				: fi_cq_read(s->cq, e, 1);
		if (n == 1)
			return 1;
		if (n == -FI_EAVAIL) {
			memset(err, 0, sizeof(*err));
			if (fi_cq_readerr(s->cq, err, 0) == 1)
				return 0;
		} else if (n != -FI_EAGAIN) {
			MUST(n);
		}
	}
}

bool side_quiet(struct side *s)
{
	struct timespec pause = {.tv_nsec = 1000000};
	struct fi_cq_tagged_entry e;

	for (int i = 0; i < 50; i++) {
		if (fi_cq_read(s->cq, &e, 1) != -FI_EAGAIN)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

void pair_barrier_unpolled(struct side *s)
{
	char c = 'm';
	ssize_t n;

	if (write(out_fd, &c, 1) != 1)
		MUST(-errno);
	/*
	 * Poll meanwhile, because the other half may need the progress of this
	 * half.
	 */
	while ((n = read(in_fd, &c, 1)) != 1) {
		if (!n || errno != EAGAIN)
			MUST(-EPIPE);
		side_poke(s);
	}
}

void pair_barrier(struct side *s)
{
	pair_barrier_unpolled(s);
	/*
	 * Poll once, so that this half sees what the other half's thread has
	 * placed.
	 */
	side_poke(s);
}

static void swap_cards(const struct card *mine, struct card *theirs)
{
	if (write(out_fd, mine, sizeof(*mine)) != sizeof(*mine) ||
	    read(in_fd, theirs, sizeof(*theirs)) != sizeof(*theirs))
		MUST(-EPIPE);
	fcntl(in_fd, F_SETFL, O_NONBLOCK);
}

/* Deadline of a test in seconds, RPMEM_DEADLINE or 120. */
static unsigned int deadline_s(void)
{
	const char *given = getenv("RPMEM_DEADLINE");

	return given ? (unsigned int)atoi(given) : 120;
}

static time_t begun; /* start time of the half */

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

bool pair_time_left(void)
{
	return seconds() - begun < (time_t)deadline_s() * 3 / 4;
}

/* Run one half, in a child whose parent has not called libfabric. */
static void run_half(const char *who, int in, int out,
		     const struct pair_opts *o, half_fn half)
{
	const bool target = !strcmp(who, "target");
	struct card mine, theirs;
	struct side s;

	role = who;
	in_fd = in;
	out_fd = out;
	begun = seconds();
	alarm(deadline_s()); /* kill a test that hangs */
	side_open(&s, o);
	if (target)
		side_memory(&s);
	if (target && o->msg)
		side_listen(&s);
	side_card(&s, &mine);
	swap_cards(&mine, &theirs);
	if (o->msg && target)
		side_accept(&s);
	else if (o->msg)
		side_connect(&s, &theirs);
	else if (!target)
		side_insert(&s, &theirs);
	half(&s, &theirs);
	pair_barrier(&s);
	side_close(&s);
}

static void expect_exit(const char *who, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		tap_ok(false, "the %s ended with status %#x", who, status);
}

/*
 * Both halves are children, because an RDMA device that this process opened
 * would be unusable in the children of the next run.
 */
void pair_run(const struct pair_opts *target, const struct pair_opts *initiator,
	      half_fn target_half, half_fn initiator_half)
{
	int down[2], up[2];
	pid_t t, i;

	/* So long that a slow half on a busy machine is not taken for dead. */
	setenv("FI_OFI_RPMEM_TIMEOUT", "30000", 0);
	fflush(stdout);
	tally_of();
	if (pipe(down) || pipe(up))
		MUST(-errno);
	t = fork();
	if (!t) {
		close(down[1]);
		close(up[0]);
		run_half("target", down[0], up[1], target, target_half);
		_exit(0);
	}
	i = fork();
	if (!i) {
		close(down[0]);
		close(up[1]);
		run_half("initiator", up[0], down[1], initiator,
			 initiator_half);
		exit(0);
	}
	if (t < 0 || i < 0)
		MUST(-errno);
	close(down[0]);
	close(down[1]);
	close(up[0]);
	close(up[1]);
	expect_exit("initiator", i);
	expect_exit("target", t);
}
