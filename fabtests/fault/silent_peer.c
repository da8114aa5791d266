// SPDX-License-Identifier: BSD-2-Clause
/*
 * A target falls silent while one thread sleeps in fi_cq_sread(). Then another
 * thread posts: the deadline of its operation must wake the sleeping thread.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/duo.h"

static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static char bytes[64];
static struct {
	atomic_int target;
} * seen;

static ssize_t post_write(struct side *s, const struct card *peer)
{
	struct iovec iov = {bytes, sizeof(bytes)};
	struct fi_rma_iov at = {peer->pool_addr, sizeof(bytes), peer->pool_key};
	const struct fi_msg_rma m = {.msg_iov = &iov,
				     .iov_count = 1,
				     .addr = s->peer,
				     .rma_iov = &at,
				     .rma_iov_count = 1,
				     .context = bytes};

	return fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE | FI_COMPLETION);
}

static void run_target(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s);
	atomic_store(&seen->target, getpid());
	raise(SIGSTOP);
	pair_barrier(s);
}

static void *sleep_on_queue(void *arg)
{
	struct side *s = arg;
	/*
	 * 30 s is longer than FI_OFI_RPMEM_TIMEOUT (1 s), and less than the 60
	 * s after which an idle connection is closed.
	 */
	ssize_t n = fi_cq_sread(s->cq, &e, 1, NULL, 30000);

	if (n == -FI_EAVAIL)
		fi_cq_readerr(s->cq, &err, 0);
	return NULL;
}

static void run_initiator(struct side *s, const struct card *peer)
{
	pthread_t thread;

	side_insert(s, peer);
	pair_barrier(s);
	POST(s, post_write(s, peer));
	MUST(side_wait(s, &e, &err) ? 0 : -FI_EIO);
	pair_barrier(s);
	while (!atomic_load(&seen->target))
		usleep(1000);
	MUST(pthread_create(&thread, NULL, sleep_on_queue, s));
	usleep(200000);
	POST(s, post_write(s, peer));
	pthread_join(thread, NULL);
	kill(atomic_load(&seen->target), SIGCONT);
	tap_ok(err.prov_errno == 65,
	       "a silent target is noticed while another thread sleeps: %d",
	       err.prov_errno);
	pair_barrier(s);
}

int main(void)
{
	const struct pair_opts o = {.sleeps = true,
				    .threading = FI_THREAD_SAFE};

	setenv("FI_OFI_RPMEM_TIMEOUT", "1000", 1);
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		return 1;
	pair_run(&o, &o, run_target, run_initiator);
	return tap_done();
}
