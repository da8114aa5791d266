// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connected endpoints (FI_EP_MSG): messages and RMA work as over the base, and
 * durable writes work.
 */
#include <dirent.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/stats.h"
#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

/* Send and receive buffers of this process. */
static struct {
	char large[65536], back[65536], small[64], in[64];
} room = {.large = "large", .small = "small"};
static void *desc;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

/* --- the target's half --- */

static void echo_messages(struct side *s)
{
	char *buf = room.in;

	POST(s, fi_recv(s->ep, buf, sizeof(room.in), desc, 0, NULL));
	pair_barrier(s); /* the initiator has posted its receive */
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	POST(s, fi_send(s->ep, buf, sizeof(room.in), desc, 0, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
}

static void post_recvs(struct side *s)
{
	desc = side_local_desc(s, &room, sizeof(room));
}

static void run_target(struct side *s, const struct card *peer)
{
	post_recvs(s);
	echo_messages(s);
	pair_barrier(s); /* the initiator's writes are durable */
	OK(!memcmp(s->pool + 64, "small", 6), "the small write is placed");
	OK(!memcmp(s->pool + 8192, "large", 6) && s->pool[8192 + 65535] == 'z',
	   "the large one is placed");
	OK(*(uint64_t *)(s->pool + 16) == 77, "the store is placed");
	tap_ok(side_quiet(s), "%s: nothing else came to the target", label);
}

/* --- the initiator's half --- */

static bool ended_well(struct side *s, void *context)
{
	return side_wait(s, &e, &err) && e.op_context == context;
}

/* Wait for both contexts, in any order, because comp_order is FI_ORDER_NONE. */
static bool both_ended_well(struct side *s, void *first, void *second)
{
	void *got;

	if (!side_wait(s, &e, &err))
		return false;
	got = e.op_context;
	return (got == first || got == second) &&
	       ended_well(s, got == first ? second : first);
}

static bool expect_refused(struct side *s, void *context, int errnum)
{
	bool so = !side_wait(s, &e, &err) && err.op_context == context &&
		  err.err == errnum;

	if (!so)
		printf("# %s: err %d, prov_errno %d\n", label, err.err,
		       err.prov_errno);
	return so;
}

static ssize_t post_durable(struct side *s, const void *buf, size_t len,
			    uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct fi_rma_iov to = {.addr = addr, .len = len, .key = key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = context,
	};

	return fi_writemsg(s->ep, &m, FI_COMMIT_COMPLETE | FI_COMPLETION);
}

static ssize_t post_commit(struct side *s, uint64_t addr, uint64_t len,
			   uint64_t key, const struct fi_rpmem_then *then,
			   void *context)
{
	struct fi_rma_iov r = {.addr = addr, .len = len, .key = key};

	return commit_post(s->ep, &r, 1, 0, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, then, context);
}

static void check_messages(struct side *s)
{
	char out[64] = "a message", *in = room.in;

	POST(s, fi_recv(s->ep, in, sizeof(room.in), desc, 0, in));
	pair_barrier(s);
	POST(s, fi_inject(s->ep, out, sizeof(out), 0));
	OK(ended_well(s, in) && !strcmp(in, out), "a message and its echo");
}

static void check_writes(struct side *s, const struct card *peer)
{
	char *large = room.large, *back = room.back;
	struct fi_rpmem_then then = {
		.key = peer->pool_key,
		.addr = peer->pool_addr + 16,
		.value = 77,
	};

	large[sizeof(room.large) - 1] = 'z';
	/*
	 * The first write opens the session and goes by RDMA; the next ones may
	 * travel inside their requests.
	 */
	for (int i = 0; i < 3; i++) {
		POST(s, post_durable(s, room.small, 6, peer->pool_addr + 64,
				     peer->pool_key, &then));
		OK(ended_well(s, &then), "a small durable write");
	}
	POST(s, post_durable(s, large, sizeof(room.large),
			     peer->pool_addr + 8192, peer->pool_key, large));
	OK(ended_well(s, large), "a large one");
	POST(s, fi_write(s->ep, large, 4096, desc, 0, peer->pool_addr + 4096,
			 peer->pool_key, large));
	POST(s, post_commit(s, peer->pool_addr + 4096, 4096, peer->pool_key,
			    NULL, back));
	OK(both_ended_well(s, large, back), "a write and its commit");
	POST(s, post_commit(s, peer->pool_addr + 4096, 64, peer->pool_key,
			    &then, back));
	OK(ended_well(s, back), "a commit with a store behind it");
	POST(s, fi_read(s->ep, back, sizeof(room.back), desc, 0,
			peer->pool_addr + 8192, peer->pool_key, back));
	OK(ended_well(s, back) && !memcmp(back, large, sizeof(room.back)),
	   "read back");
	POST(s, fi_write(s->ep, large, 64, desc, 0, peer->plain_addr,
			 peer->plain_key, large));
	OK(ended_well(s, large), "plain memory is written to");
}

static void check_many(struct side *s, const struct card *peer)
{
	static char buf[64] = "many";
	int sent = 0, done = 0;
	ssize_t ret;

	/* Post more operations than there are credits. */
	while (done < 1000) {
		ret = sent < 1000
			      ? post_commit(s,
					    peer->pool_addr + (sent % 512) * 64,
					    64, peer->pool_key, NULL, buf)
			      : -FI_EAGAIN;
		if (!ret) {
			sent++;
			continue;
		}
		if (ret != -FI_EAGAIN)
			MUST(ret);
		if (!ended_well(s, buf))
			MUST(-err.err);
		done++;
	}
	OK(done == 1000, "1000 commits at once");
}

static void check_wrong_calls(struct side *s, const struct card *peer)
{
	static char buf[64] = "wrong";

	OK(post_commit(s, peer->plain_addr, 64, peer->plain_key, NULL, buf) ==
		   -FI_EKEYREJECTED,
	   "memory that is not persistent");
	POST(s, post_commit(s, peer->pool_addr + PAIR_POOL - 8, 64,
			    peer->pool_key, NULL, buf));
	OK(expect_refused(s, buf, ERANGE), "a range past the end");
	POST(s, post_commit(s, peer->pool_addr, 64, peer->pool_key ^ 1ull << 20,
			    NULL, buf));
	OK(expect_refused(s, buf, ESTALE), "a key of another registration");
	OK(post_commit(s, peer->pool_addr, 64, 5, NULL, buf) ==
		   -FI_EKEYREJECTED,
	   "a key that is not the provider's");
	POST(s, post_commit(s, peer->pool_addr, 64, peer->pool_key, NULL, buf));
	OK(ended_well(s, buf), "and a right one again");
}

static void run_initiator(struct side *s, const struct card *peer)
{
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};

	post_recvs(s);
	check_messages(s);
	OK(!key_query(s->ep, 0, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
		      &attr) &&
		   !attr.prov_errno && attr.len == PAIR_POOL,
	   "the target replies to a query");
	check_writes(s, peer);
	check_many(s, peer);
	check_wrong_calls(s, peer);
	OK(side_quiet(s), "nothing else came");
	if (s->o.counts) {
		uint64_t n = fi_cntr_read(s->cntr[3]);
		uint64_t bad = fi_cntr_readerr(s->cntr[3]);

		printf("# %s: %llu writes, %llu failed\n", label,
		       (unsigned long long)n, (unsigned long long)bad);
		/*
		 * 8 writes and commits of check_writes(), 1000 of check_many(),
		 * and the successful one and two failed ones of
		 * check_wrong_calls().
		 */
		OK(n == 8 + 1000 + 1 && bad == 2,
		   "the counter holds what the program did");
		/* Some releases of tcp count injected operations. */
		OK(fi_cntr_read(s->cntr[0]) <= 1 &&
			   fi_cntr_read(s->cntr[1]) == 1,
		   "and no messages but its own");
	}
	pair_barrier(s);
}

/* --- lost connections --- */

/* The target exits without polling for a commit that it has received. */
static void check_dead_target(struct side *s, const struct card *peer)
{
	pair_barrier_unpolled(s); /* the session is open */
	sleep(1);
	_exit(0);
}

/* Like check_dead_target(), but calls fi_shutdown() first. */
static void hang_up(struct side *s, const struct card *peer)
{
	pair_barrier_unpolled(s);
	sleep(1);
	MUST(fi_shutdown(s->ep, 0));
	side_close(s);
	_exit(0);
}

/*
 * Number of private connections to this process, from the counters that it
 * publishes in a memfd.
 */
static uint64_t sessions(void)
{
	uint64_t n = UINT64_MAX;
	struct rp_stats *page;
	char path[300], link[64];
	struct dirent *d;
	DIR *dir = opendir("/proc/self/fd");

	while (dir && (d = readdir(dir))) {
		int fd = atoi(d->d_name);
		ssize_t len = readlinkat(dirfd(dir), d->d_name, link,
					 sizeof(link) - 1);

		snprintf(path, sizeof(path), "/memfd:%s", RP_STATS_FILE);
		if (len < 0 || strncmp(link, path, strlen(path)))
			continue;
		page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
		if (page == MAP_FAILED)
			continue;
		n = page->sessions;
		munmap(page, sizeof(*page));
	}
	closedir(dir);
	return n;
}

/* The target closes the endpoint that it accepted, and continues. */
static void close_end(struct side *s, const struct card *peer)
{
	pair_barrier(s); /* the initiator has committed, and no longer polls */
	OK(sessions() == 1, "the peer has a private connection");
	MUST(fi_close(&s->ep->fid));
	s->ep = NULL;
	OK(!sessions(), "that the end of the accepted endpoint closes");
	pair_barrier_unpolled(s);
}

static void commit_once(struct side *s, const struct card *peer)
{
	char *buf = room.small;

	POST(s, post_commit(s, peer->pool_addr, 64, peer->pool_key, NULL, buf));
	OK(ended_well(s, buf), "a commit before");
	pair_barrier_unpolled(s);
	pair_barrier_unpolled(s);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void check_lost_connection(struct side *s, const struct card *peer)
{
	char *buf = room.small;
	const struct timespec pause = {.tv_nsec = 200000000};
	struct fi_rpmem_attr attr = {.size = sizeof(attr)};
	struct fi_rpmem_then then = {
		.key = peer->pool_key,
		.addr = peer->pool_addr + 16,
	};
	struct fi_eq_cm_entry cm;
	bool alone;
	double begun;

	POST(s, post_commit(s, peer->pool_addr, 64, peer->pool_key, NULL, buf));
	OK(ended_well(s, buf), "a commit before");
	MUST(key_query(s->ep, 0, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
		       &attr));
	/*
	 * By a one-sided method a commit needs no target; a commit with an
	 * ordered store does.
	 */
	alone = attr.method < FI_RPMEM_METHOD_AGENT_SFENCE;
	pair_barrier(s);
	nanosleep(&pause, NULL); /* until the target has stopped polling */
	begun = seconds();
	POST(s, post_commit(s, peer->pool_addr, 64, peer->pool_key,
			    alone ? &then : NULL, buf));
	OK(expect_refused(s, buf, alone ? EUCLEAN : ENOTCONN),
	   "the outstanding commit ends");
	OK(seconds() - begun < 3, "as soon as the connection does");
	OK(side_event(s, &cm) == FI_SHUTDOWN && cm.fid == &s->ep->fid,
	   "and the program gets FI_SHUTDOWN");
	OK(post_commit(s, peer->pool_addr, 64, peer->pool_key, NULL, buf) ==
		   -FI_ENOTCONN,
	   "no commit after that");
	OK(post_durable(s, buf, 8, peer->pool_addr, peer->pool_key, buf) ==
		   -FI_ENOTCONN,
	   "and no durable write");
	side_close(s);
	exit(0); /* no further barrier: the target may have ended */
}

/* --- connecting --- */

static const struct pair_opts ours = {.msg = true};
static const struct pair_opts bare = {.msg = true, .prov = "tcp"};
static const struct pair_opts sockets = {
	.msg = true,
	.prov = "sockets;ofi_rpmem",
};

/* Make private data for fi_connect() or fi_accept(). */
static void fill_bytes(uint8_t *p, size_t len, int with)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + (size_t)with);
}

/* A CM event with room for private data. */
union cm_data {
	struct fi_eq_cm_entry e;
	uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
};

/*
 * Wait for an event, as side_event() does. Returns the length of its private
 * data. Both ends are in this process, so the other end's queue must be read,
 * too: that drives its progress.
 */
static size_t cm_event(struct side *s, struct side *other, uint32_t want,
		       union cm_data *d)
{
	uint32_t event;
	ssize_t n;

	do {
		fi_eq_read(other->eq, &event, d, sizeof(*d), FI_PEEK);
		n = fi_eq_sread(s->eq, &event, d, sizeof(*d), 100, 0);
	} while (n == -FI_EAGAIN);
	MUST(n);
	if (event != want)
		MUST(-FI_EOTHER);
	return (size_t)n - offsetof(struct fi_eq_cm_entry, data);
}

static bool came_whole(const union cm_data *d, size_t len, size_t size,
		       int with)
{
	uint8_t want[512];

	fill_bytes(want, size, with);
	return len == size && !memcmp(d->e.data, want, size);
}

/*
 * Connect an initiator to a listener with the longest private data, each over
 * the provider or the bare base.
 */
static void meet_with_data(const struct pair_opts *to,
			   const struct pair_opts *from)
{
	struct side l, c;
	struct card card;
	union cm_data d;
	uint8_t data[512];
	size_t size = 0, len = sizeof(size), n;

	side_open(&l, to);
	side_listen(&l);
	side_card(&l, &card);
	side_open(&c, from);
	side_dial(&c, &card);
	MUST(fi_enable(c.ep));
	MUST(fi_getopt(&c.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size,
		       &len));
	OK(size == (pair_over("tcp") ? 256 : 55),
	   "a connection carries the longest private data");
	fill_bytes(data, size, 1);
	MUST(fi_connect(c.ep, card.name, data, size));
	/*
	 * The connection request progresses only when the initiator's queue is
	 * read, too.
	 */
	do {
		uint32_t event;

		fi_eq_read(c.eq, &event, data, sizeof(data), 0);
		n = (size_t)fi_eq_read(l.eq, &event, &d, sizeof(d), FI_PEEK);
	} while ((ssize_t)n == -FI_EAGAIN);
	n = cm_event(&l, &c, FI_CONNREQ, &d);
	OK(d.e.fid == &l.pep->fid && came_whole(&d, n, size, 1),
	   "the listener gets it as it is");
	side_endpoint(&l, d.e.info);
	fi_freeinfo(d.e.info);
	MUST(fi_enable(l.ep));
	fill_bytes(data, size, 2);
	MUST(fi_accept(l.ep, data, size));
	cm_event(&l, &c, FI_CONNECTED, &d);
	n = cm_event(&c, &l, FI_CONNECTED, &d);
	OK(d.e.fid == &c.ep->fid && came_whole(&d, n, size, 2),
	   "and so does the initiator");
	side_close(&c);
	side_close(&l);
}

static void check_reject(void)
{
	struct fi_eq_err_entry no = {0};
	struct side l, c;
	struct card card;
	union cm_data d;
	uint32_t event;
	ssize_t n;

	side_open(&l, &ours);
	side_listen(&l);
	side_card(&l, &card);
	side_open(&c, &ours);
	side_dial(&c, &card);
	MUST(fi_enable(c.ep));
	OK(post_commit(&c, 0, 64, 5ull << 61 | 1, NULL, &c) == -FI_ENOTCONN,
	   "no commit before the connection is up");
	MUST(fi_connect(c.ep, card.name, NULL, 0));
	do {
		fi_eq_read(c.eq, &event, &d, sizeof(d), 0);
		n = fi_eq_read(l.eq, &event, &d, sizeof(d), 0);
	} while (n == -FI_EAGAIN);
	MUST(n);
	MUST(fi_reject(l.pep, d.e.info->handle, NULL, 0));
	fi_freeinfo(d.e.info);
	do {
		n = fi_eq_sread(c.eq, &event, &d, sizeof(d), 100, 0);
	} while (n == -FI_EAGAIN);
	OK(n == -FI_EAVAIL && fi_eq_readerr(c.eq, &no, 0) > 0 &&
		   no.fid == &c.ep->fid && no.err == FI_ECONNREFUSED,
	   "a rejection names the endpoint");
	side_close(&c);
	side_close(&l);
}

/* --- a peer without the provider --- */

static void bare_serve(struct side *s, const struct card *peer)
{
	post_recvs(s);
	echo_messages(s);
	pair_barrier(s);
	side_quiet(s); /* the initiator's write arrives during this pause */
	/*
	 * The place to which the initiator wrote: without the provider it can
	 * only use plain memory.
	 */
	tap_ok(!memcmp(s->o.prov ? s->pool : s->plain, "plain", 5),
	       "%s: plain bytes are placed", label);
}

static void bare_use(struct side *s, const struct card *peer)
{
	char *buf = strcpy(room.small, "plain");

	post_recvs(s);
	check_messages(s);
	POST(s, fi_write(s->ep, buf, 6, desc, 0, peer->pool_addr,
			 peer->pool_key, buf));
	OK(ended_well(s, buf), "a plain write");
	OK(post_commit(s, peer->pool_addr, 64, peer->pool_key, NULL, buf) ==
		   -FI_EKEYREJECTED,
	   "no commit, and the error says why");
	OK(post_durable(s, buf, 6, peer->pool_addr, peer->pool_key, buf) ==
		   -FI_EKEYREJECTED,
	   "no durable write");
	POST(s, fi_read(s->ep, buf, 6, desc, 0, peer->pool_addr, peer->pool_key,
			buf));
	OK(ended_well(s, buf), "the connection still works");
	pair_barrier(s);
}

static void use_bare(struct side *s, const struct card *peer)
{
	char *buf = strcpy(room.small, "plain");

	post_recvs(s);
	check_messages(s);
	POST(s, fi_write(s->ep, buf, 6, desc, 0, peer->plain_addr,
			 peer->plain_key, buf));
	OK(ended_well(s, buf), "a plain write");
	pair_barrier(s);
}

/*
 * Run the function in a child, because libfabric must not be used before the
 * forks of pair_run().
 */
static void run_halves(void (*run)(const struct pair_opts *,
				   const struct pair_opts *),
		       const struct pair_opts *a, const struct pair_opts *b)
{
	int status = 1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(60);
		run(a, b);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		OK(false, "the process ended well");
}

static void reject_apart(const struct pair_opts *a, const struct pair_opts *b)
{
	check_reject();
}

static void check_ends(void)
{
	const struct pair_opts with_sread = {.msg = true, .sleeps = true};

	label = "the target is killed";
	pair_run(&ours, &ours, check_dead_target, check_lost_connection);
	label = "the target is killed, sread";
	pair_run(&ours, &with_sread, check_dead_target, check_lost_connection);
	label = "the target closes its end";
	pair_run(&ours, &ours, close_end, commit_once);
	label = "the target hangs up";
	pair_run(&ours, &ours, hang_up, check_lost_connection);
	label = "the target hangs up, sread";
	pair_run(&ours, &with_sread, hang_up, check_lost_connection);
}

/* Write an operator file that says where this host's adapter places bytes. */
static void operator_says(const char *fence)
{
	FILE *f = fopen("operator.msg", "w");

	if (!f)
		MUST(-FI_EIO);
	fprintf(f, "[host]\nassert placement = dma-memory\n%s", fence);
	fclose(f);
	setenv("FI_OFI_RPMEM_OPERATOR", "operator.msg", 1);
}

static ssize_t register_persistent(struct side *s, uint64_t access)
{
	struct fid_mr *mr;
	int ret = fi_mr_reg(s->domain, s->pool, PAIR_POOL, access, 0, 1,
			    FI_RMA_PMEM, &mr, NULL);

	if (!ret)
		MUST(fi_close(&mr->fid));
	return ret;
}

/*
 * Memory can be registered as persistent although an adapter places the bytes:
 * with the fence stated as working or not, and without remote read.
 */
static void by_adapter(const struct pair_opts *a, const struct pair_opts *b)
{
	struct side s;
	size_t len;

	side_open(&s, a);
	s.pool = pair_map(getenv("RPMEM_POOL"), &len);
	OK(!register_persistent(&s, FI_REMOTE_READ | FI_REMOTE_WRITE),
	   "persistent memory is had");
	OK(!register_persistent(&s, FI_REMOTE_WRITE),
	   "and for memory without remote read");
}

static void check_adapters(void)
{
	const struct pair_opts with_sread = {.msg = true, .sleeps = true};

	setenv("FI_OFI_RPMEM_NATIVE", "0", 1);
	operator_says("assert fence = no\n");
	label = "placed by an adapter";
	run_halves(by_adapter, &ours, NULL);
	pair_run(&ours, &ours, run_target, run_initiator);
	operator_says("assert fence = yes\n");
	label = "placed by an adapter, fenced";
	run_halves(by_adapter, &ours, NULL);
	pair_run(&ours, &ours, run_target, run_initiator);
	label = "the same, sread";
	pair_run(&with_sread, &with_sread, run_target, run_initiator);
	unsetenv("FI_OFI_RPMEM_NATIVE");
	unsetenv("FI_OFI_RPMEM_OPERATOR");
	unlink("operator.msg");
}

static void check_strangers(void)
{
	label = "to the provider";
	run_halves(meet_with_data, &ours, &ours);
	label = "to the base";
	run_halves(meet_with_data, &bare, &ours);
	label = "from the base";
	run_halves(meet_with_data, &ours, &bare);
	label = "rejected";
	run_halves(reject_apart, &ours, &ours);
	label = "over sockets";
	if (pair_over("tcp"))
		pair_run(&sockets, &sockets, run_target, run_initiator);
	if (pair_over("verbs"))
		check_adapters();
	label = "the target is bare";
	pair_run(&bare, &ours, bare_serve, bare_use);
	label = "the initiator is bare";
	pair_run(&ours, &bare, bare_serve, use_bare);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN); /* no SIGPIPE if the other half has ended */
	const struct {
		const char *label;
		struct pair_opts o;
	} kinds[] = {
		{"polling", {.msg = true}},
		{"sread", {.msg = true, .sleeps = true}},
		{"short entries",
		 {.msg = true, .format = FI_CQ_FORMAT_CONTEXT}},
		{"automatic progress",
		 {.msg = true, .progress = FI_PROGRESS_AUTO}},
		{"counted", {.msg = true, .counts = true}},
		{"in order",
		 {.msg = true, .order = FI_ORDER_SAW | FI_ORDER_WAW}},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		label = kinds[i].label;
		/* The verbs provider of libfabric 1.17 has no counters. */
		if (kinds[i].o.counts && !pair_over("tcp"))
			continue;
		pair_run(&kinds[i].o, &kinds[i].o, run_target, run_initiator);
	}
	/* Connect to an address of the listener other than its first one. */
	label = "another address";
	if (pair_over("tcp")) {
		setenv("RPMEM_NODE", "127.9.8.7", 0);
		pair_run(&ours, &ours, run_target, run_initiator);
		unsetenv("RPMEM_NODE");
	}
	check_ends();
	check_strangers();
	return tap_done();
}
