// SPDX-License-Identifier: BSD-2-Clause
/*
 * Readers of a completion queue. A reader that stays away for longer than
 * FI_OFI_RPMEM_TIMEOUT, while more replies arrive than one poll takes, finds no
 * target silent. A reader that sleeps in fi_cq_sread() wakes although another
 * thread, which reads the queue too, receives the sleeper's reply, takes the
 * event of fi_cq_signal(), or starts the flush of a local durable read.
 */
#include "config.h"

#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

/* util/fabric.h has a struct rp_fabric and an rp_fabric_open(), too. */
#define rp_fabric      provider_fabric
#define rp_fabric_open provider_fabric_open
#include "rpmem/rpmem.h"
#undef rp_fabric
#undef rp_fabric_open
#include "util/fabric.h"

#define PEERS  2
#define EACH   128u /* writes to each peer */
#define BYTES  64
#define LEN    65536
#define SLEEPS 300u

struct card {
	struct sockaddr_in at;
	uint64_t base, key;
	uint64_t plain_base, plain_key; /* a region without FI_RMA_PMEM */
};

static struct rp_fabric f;
static char err[RP_ERR_LEN];
static fi_addr_t peers[PEERS];
static struct card card;

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

static void open_fabric(bool target, bool automatic, bool sleeps,
			const char *source)
{
	struct rp_fabric_attr attr = {.target = target,
				      .source = source,
				      .automatic = automatic,
				      .wait_fd = sleeps};

	if (rp_fabric_open(&attr, &f, err))
		bail("endpoint", err);
}

/* Map and register LEN bytes. Returns the memory. */
static char *register_memory(uint64_t flags, uint64_t *base, uint64_t *key)
{
	char *pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct fid_mr *mr;

	if (pool == MAP_FAILED ||
	    fi_mr_reg(f.domain, pool, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		      0, flags, &mr, NULL))
		bail("memory", "was not registered");
	*key = fi_mr_key(mr);
	*base = f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)pool
							       : 0;
	return pool;
}

static void run_target(int fd)
{
	size_t len = sizeof(card.at);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_fabric(true, false, false, "0.0.0.0");
	if (fi_getname(&f.ep->fid, &card.at, &len))
		_exit(1);
	register_memory(FI_RMA_PMEM, &card.base, &card.key);
	strcpy(register_memory(0, &card.plain_base, &card.plain_key), "plain");
	if (write(fd, &card, sizeof(card)) != sizeof(card))
		_exit(1);
	for (;;)
		fi_cq_read(f.cq, NULL, 0);
}

static ssize_t post_write(unsigned int peer, unsigned int i)
{
	static uint8_t bytes[BYTES];
	struct iovec iov = {bytes, BYTES};
	struct fi_rma_iov rma = {
		.addr = card.base + BYTES * (uint64_t)(PEERS * i + peer),
		.len = BYTES,
		.key = card.key,
	};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = peers[peer],
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};

	return fi_writemsg(f.ep, &m, FI_COMMIT_COMPLETE);
}

/* Read completions until n have come. Returns the number of errors. */
static unsigned int read_entries(unsigned int n)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry e;
	unsigned int errors = 0;
	ssize_t ret;

	while (n) {
		ret = fi_cq_read(f.cq, &e, 1);
		if (ret == -FI_EAGAIN)
			continue;
		n--;
		if (ret == 1)
			continue;
		fi_cq_readerr(f.cq, &bad, 0);
		if (!errors++)
			printf("# %s\n", fi_cq_strerror(f.cq, bad.prov_errno,
							bad.err_data, NULL, 0));
	}
	return errors;
}

/* Connect to each peer, and wait for one write. */
static void connect_all(void)
{
	for (unsigned int i = 0; i < PEERS; i++) {
		struct sockaddr_in at = card.at;

		at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
		if (fi_av_insert(f.av, &at, 1, &peers[i], 0, NULL) != 1)
			bail("fi_av_insert", "failed");
		while (post_write(i, 0) == -FI_EAGAIN)
			fi_cq_read(f.cq, NULL, 0);
		if (read_entries(1))
			bail("a write", "failed");
	}
}

static void late_reader(void)
{
	unsigned int posted = 0, failed;

	for (unsigned int i = 0; i < EACH; i++)
		for (unsigned int k = 0; k < PEERS; k++)
			posted += !post_write(k, i);
	fi_cq_read(f.cq, NULL, 0);
	usleep(2500000); /* longer than FI_OFI_RPMEM_TIMEOUT */
	failed = read_entries(posted);
	printf("# %u writes were posted\n", posted);
	ok(!failed && posted >= EACH,
	   "unread replies keep a target from timing out");
}

static atomic_bool ended;
static unsigned int slept; /* completions that fi_cq_sread() returned */

/* Post writes one by one, and sleep in fi_cq_sread() for each completion. */
static void *sleep_for_writes(void *arg)
{
	struct fi_cq_entry e;
	ssize_t n;

	for (unsigned int i = 0; i < SLEEPS; i++) {
		while (post_write(0, 0) == -FI_EAGAIN)
			;
		do
			n = fi_cq_sread(f.cq, &e, 1, NULL, -1);
		while (n == -FI_EAGAIN);
		slept += n == 1;
	}
	ended = true;
	return NULL;
}

static void sleeper_and_reader(void)
{
	pthread_t sleeper;

	if (pthread_create(&sleeper, NULL, sleep_for_writes, NULL))
		bail("pthread_create", "failed");
	alarm(60);
	while (!ended)
		fi_cq_read(f.cq, NULL, 0);
	alarm(0);
	pthread_join(sleeper, NULL);
	ok(slept == SLEEPS, "a sleeping reader wakes although another reads");
}

/* --- a reader that stops just before it sleeps --- */

enum stop {
	NOWHERE,
	IN_EPOLL,
	IN_TRYWAIT
};
static __thread enum stop stops; /* where this thread stops next */
static __thread bool records;	 /* its next sleep becomes a poll */
static sem_t stopped, may_go;
static int ready;    /* descriptors that this poll found ready */
static ssize_t woke; /* what the stopped fi_cq_sread() returned */

static void stop_at(enum stop place)
{
	if (stops != place)
		return;
	stops = NOWHERE;
	records = true;
	sem_post(&stopped);
	sem_wait(&may_go);
}

/* The provider calls this function instead of the C library's. */
__attribute__((visibility("default"))) int
epoll_wait(int epfd, struct epoll_event *ev, int n, int timeout)
{
	if (!timeout)
		return epoll_pwait(epfd, ev, n, 0, NULL);
	stop_at(IN_EPOLL);
	if (!records)
		return epoll_pwait(epfd, ev, n, timeout, NULL);
	records = false;
	ready = epoll_pwait(epfd, ev, n, 0, NULL);
	return ready;
}

static struct fi_ops_fabric *base_ops;

static int stopping_trywait(struct fid_fabric *fabric, struct fid **fids, int n)
{
	stop_at(IN_TRYWAIT);
	return base_ops->trywait(fabric, fids, n);
}

static void *sleep_once(void *place)
{
	struct fi_cq_entry e;

	stops = *(enum stop *)place;
	woke = fi_cq_sread(f.cq, &e, 1, NULL, -1);
	return NULL;
}

static pthread_t start_sleeper(enum stop place)
{
	static enum stop at;
	pthread_t sleeper;

	at = place;
	ready = -1;
	if (pthread_create(&sleeper, NULL, sleep_once, &at))
		bail("pthread_create", "failed");
	sem_wait(&stopped);
	return sleeper;
}

static void end_sleeper(pthread_t sleeper)
{
	sem_post(&may_go);
	pthread_join(sleeper, NULL);
}

static void signal_and_reader(void)
{
	pthread_t sleeper = start_sleeper(IN_EPOLL);

	if (fi_cq_signal(f.cq))
		bail("fi_cq_signal", "failed");
	while (post_write(0, 0) == -FI_EAGAIN)
		;
	ok(!read_entries(1), "another reader empties the queue");
	end_sleeper(sleeper);
	ok(ready == 1 && woke == -FI_EAGAIN,
	   "fi_cq_signal() wakes the sleeper all the same");
}

/* Read target memory without FI_RMA_PMEM durably into buf. */
static void post_local_read(char *buf)
{
	struct iovec iov = {buf, BYTES};
	struct fi_rma_iov rma = {card.plain_base, BYTES, card.plain_key};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = peers[0],
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};
	ssize_t ret;

	while ((ret = fi_readmsg(f.ep, &m, FI_COMMIT_COMPLETE)) == -FI_EAGAIN)
		fi_cq_read(f.cq, NULL, 0);
	if (ret)
		bail("fi_readmsg", fi_strerror((int)-ret));
}

static void local_read_and_reader(void)
{
	struct rp_cq *cq = rp_container_of(f.cq, struct rp_cq, fid);
	struct fid_fabric *base = cq->dom->base_fabric;
	struct fi_ops_fabric stopping = *base->ops;
	struct fi_cq_entry e;
	pthread_t sleeper;
	uint64_t at, key;
	char *buf = register_memory(FI_RMA_PMEM, &at, &key);

	base_ops = base->ops;
	stopping.trywait = stopping_trywait;
	base->ops = &stopping;
	sleeper = start_sleeper(IN_TRYWAIT);
	base->ops = base_ops;
	post_local_read(buf);
	/* Stop right after the call that starts the flush. */
	while (!LIST_EMPTY(&cq->local_reads))
		fi_cq_read(f.cq, &e, 1);
	end_sleeper(sleeper);
	ok(ready == 1 && woke == 1 && !strcmp(buf, "plain"),
	   "a sleeper ends the local read that another reader started");
}

int main(void)
{
	int fds[2];

	setbuf(stdout, NULL);
	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	setenv("FI_OFI_RPMEM_CLASS", "none", 1);
	setenv("FI_OFI_RPMEM_CREDITS", "256", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "2000", 1);
	unsetenv("FI_PROVIDER");
	unsetenv("FI_TCP_IFACE");
	if (pipe(fds))
		bail("pipe", "failed");
	if (!fork())
		run_target(fds[1]);
	close(fds[1]);
	if (read(fds[0], &card, sizeof(card)) != sizeof(card))
		bail("target", "did not start");
	sem_init(&stopped, 0, 0);
	sem_init(&may_go, 0, 0);
	open_fabric(false, false, false, "127.0.0.1");
	connect_all();
	late_reader();
	rp_fabric_close(&f);
	open_fabric(false, true, true, "127.0.0.1");
	connect_all();
	sleeper_and_reader();
	signal_and_reader();
	rp_fabric_close(&f);
	open_fabric(true, false, true, "127.0.0.1");
	connect_all();
	local_read_and_reader();
	rp_fabric_close(&f);
	printf("1..%d\n", tests);
	return !!failures;
}
