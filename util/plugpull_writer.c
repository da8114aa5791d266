// SPDX-License-Identifier: BSD-2-Clause
/* Child processes of fi_rpmem_plugpull: only they open the pool. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "util/exit_codes.h"
#include "util/plugpull.h"

/* Most probes: below the 32 MiB after which librpmem_pool commits by itself. */
#define PROBES	 7000u
#define PROBE_NS 1000000
#define PIECE	 (1u << 20) /* bytes per read */
/* Timeout of calls: while the target is down, they wait for SIGKILL. */
#define FOREVER_S 86400u

struct writer {
	const struct pull_cfg *cfg;
	struct pull_shared *s;
	int ledger;
	struct rpmem_pool *pool;
	pthread_mutex_t lock; /* guards the ledger and `next` */
	uint64_t next;	      /* next sequence number */
};

struct thread {
	struct writer *w;
	unsigned int index;
	unsigned short random[3];
	unsigned char buf[PULL_LONGEST];
	pthread_t id;
};

/* Record the first error only: it causes the others. */
static void fail(struct pull_shared *s, int code, const char *what,
		 const char *why)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&once);
	if (!s->code) {
		rp_err(s->err, 0, "%s%s%s", what, *what ? ": " : "", why);
		s->code = code;
	}
	pthread_mutex_unlock(&once);
}

static struct rpmem_pool *open_or_exit(const struct pull_cfg *cfg,
				       struct pull_shared *s, bool alone)
{
	const struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.secret_file = cfg->secret_file,
		.required = cfg->class,
		.timeout = FOREVER_S,
		.exclusive = alone,
	};
	struct rpmem_pool *pool;
	int ret;

	/* Kill this process when its parent exits. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = rpmem_pool_open(&pool, cfg->where, &attr);
	if (ret) {
		fail(s, rp_exit_pool(ret), "", rpmem_pool_error());
		_exit(1);
	}
	return pool;
}

void pull_prepare(const struct pull_cfg *cfg, struct pull_shared *s)
{
	struct rpmem_pool *pool = open_or_exit(cfg, s, true);
	struct rpmem_pool_info info = {.size = sizeof(info)};

	if (rpmem_pool_query(pool, &info))
		fail(s, RP_EXIT_FAILED, "", rpmem_pool_error());
	else if (info.length < cfg->area + PULL_TAIL)
		fail(s, RP_EXIT_SPACE, "the pool is too small",
		     "give a smaller --area, or make a larger pool");
	else if (rpmem_pool_zero(pool, cfg->area + PULL_TAIL, 0,
				 RPMEM_POOL_DURABLE))
		fail(s, RP_EXIT_FAILED, "zeros", rpmem_pool_error());
	s->reached = info.reached;
	snprintf(s->method, sizeof(s->method), "%s", info.method);
	rpmem_pool_close(pool);
	_exit(s->code ? 1 : 0);
}

void pull_read(const struct pull_cfg *cfg, struct pull_shared *s)
{
	const uint64_t len = cfg->area + PULL_TAIL;
	struct rpmem_pool *pool = open_or_exit(cfg, s, false);

	for (uint64_t at = 0; at < len && !s->code; at += PIECE)
		if (rpmem_pool_read(pool, s->got + at,
				    len - at < PIECE ? len - at : PIECE, at))
			fail(s, RP_EXIT_NETWORK, "read", rpmem_pool_error());
	rpmem_pool_close(pool);
	_exit(s->code ? 1 : 0);
}

/*
 * Forbid this thread, and those that it starts from now on, to create a socket.
 * librpmem_pool would reconnect after the cut and repeat writes that it keeps,
 * and the judge would not see what the target itself has kept.
 */
static int stay_disconnected(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {
		.len = sizeof(code) / sizeof(code[0]),
		.filter = code,
	};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static bool has_reconnected(struct pull_shared *s, struct rpmem_pool *pool)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};

	if (!rpmem_pool_query(pool, &info) && !info.reconnects)
		return false;
	s->reconnected = true;
	return true;
}

static uint32_t random_len(unsigned short random[3])
{
	static const uint32_t longest[] = {64, 512, 4096, PULL_LONGEST};
	const long i = nrand48(random) % 4;

	return 1 + (uint32_t)nrand48(random) % longest[i];
}

static void plan(struct thread *t, struct pull_record *r, uint64_t seq)
{
	const struct pull_cfg *cfg = t->w->cfg;
	const uint32_t len = random_len(t->random);

	*r = (struct pull_record){
		.seq = seq,
		.len = len,
		.offset = (uint64_t)nrand48(t->random) % (cfg->area - len + 1),
		.thread = t->index,
		.zeros = nrand48(t->random) % 6 == 0,
		.durable = !cfg->control && nrand48(t->random) % 3 == 0,
	};
}

static bool acknowledge(struct thread *t, const struct pull_record *v,
			unsigned int n)
{
	struct writer *w = t->w;
	char err[RP_ERR_LEN];
	int ret;

	if (has_reconnected(w->s, w->pool))
		return false;
	pthread_mutex_lock(&w->lock);
	ret = pull_ledger_ack(w->ledger, v, n, err);
	pthread_mutex_unlock(&w->lock);
	if (ret)
		fail(w->s, RP_EXIT_FILE, "", err);
	else
		w->s->acked += n;
	return !ret;
}

static bool send_record(struct thread *t, const struct pull_record *r)
{
	const unsigned int flags = r->durable ? RPMEM_POOL_DURABLE : 0;
	struct rpmem_pool *pool = t->w->pool;
	int ret;

	pull_fill(t->w->cfg->seed, r, 0, t->buf, r->len);
	ret = r->zeros ? rpmem_pool_zero(pool, r->len, r->offset, flags)
		       : rpmem_pool_write(pool, t->buf, r->len, r->offset,
					  flags);
	if (ret)
		fail(t->w->s, RP_EXIT_FAILED, "write", rpmem_pool_error());
	return !ret;
}

/* Do writes and durable writes, then one commit for the writes. */
static bool run_batch(struct thread *t)
{
	const unsigned int n =
		1 + (unsigned int)nrand48(t->random) % PULL_BATCH;
	struct pull_record v[PULL_BATCH], rest[PULL_BATCH];
	struct writer *w = t->w;
	unsigned int left = 0;
	char err[RP_ERR_LEN];
	int ret;

	pthread_mutex_lock(&w->lock);
	for (unsigned int i = 0; i < n; i++)
		plan(t, &v[i], w->next++);
	ret = pull_ledger_begin(w->ledger, v, n, err);
	pthread_mutex_unlock(&w->lock);
	if (ret) {
		fail(w->s, RP_EXIT_FILE, "", err);
		return false;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (!send_record(t, &v[i]))
			return false;
		if (!v[i].durable && !w->cfg->control)
			rest[left++] = v[i];
		else if (!acknowledge(t, &v[i], 1))
			return false;
	}
	if (left && rpmem_pool_commit(w->pool)) {
		fail(w->s, RP_EXIT_FAILED, "commit", rpmem_pool_error());
		return false;
	}
	return !left || acknowledge(t, rest, left);
}

static void *run_thread(void *arg)
{
	while (run_batch(arg))
		;
	return NULL;
}

/*
 * Visibility test: right after a write has completed, without a commit, another
 * client reads it over its own connection. This thread orders write and read,
 * so no clocks are compared. Every fourth probe uses the handle of the records,
 * whose connection has a backlog; commits of records may cover its cell, so the
 * judge ignores that cell.
 */
static void probe(struct writer *w, struct rpmem_pool *alone,
		  struct rpmem_pool *reader)
{
	const struct timespec pause = {.tv_nsec = PROBE_NS};
	uint64_t value[PULL_CELL / sizeof(uint64_t)];
	unsigned char got[PULL_CELL];
	struct rpmem_pool *writer;
	uint64_t cell, at;
	size_t len;

	for (uint64_t i = 1; i <= PROBES; i++) {
		cell = i % PULL_CELLS;
		at = w->cfg->area + cell * PULL_CELL;
		len = cell % 2 ? PULL_CELL : PULL_VALUE;
		writer = cell % 4 == 3 ? w->pool : alone;
		for (size_t k = 0; k < len / sizeof(*value); k++)
			value[k] = i;
		if (rpmem_pool_write(writer, value, len, at, 0) ||
		    has_reconnected(w->s, writer) ||
		    rpmem_pool_read(reader, got, len, at) ||
		    has_reconnected(w->s, reader))
			break;
		if (writer == alone)
			w->s->cells[cell] = i;
		if (memcmp(got, value, len))
			w->s->unseen++;
		else
			w->s->visible++;
		nanosleep(&pause, NULL);
	}
}

void pull_write(const struct pull_cfg *cfg, struct pull_shared *s, int ledger)
{
	static struct thread t[PULL_THREADS];
	struct rpmem_pool *cells, *reader;
	struct writer w = {.cfg = cfg, .s = s, .ledger = ledger};

	pthread_mutex_init(&w.lock, NULL);
	w.pool = open_or_exit(cfg, s, false);
	cells = open_or_exit(cfg, s, false);
	reader = open_or_exit(cfg, s, false);
	if (stay_disconnected()) {
		fail(s, RP_EXIT_FAILED, "seccomp", strerror(errno));
		_exit(1);
	}
	for (unsigned int i = 0; i < PULL_THREADS; i++) {
		t[i].w = &w;
		t[i].index = i;
		t[i].random[0] = (unsigned short)i;
		t[i].random[1] = (unsigned short)cfg->seed;
		t[i].random[2] = (unsigned short)(cfg->seed >> 16);
		if (pthread_create(&t[i].id, NULL, run_thread, &t[i]))
			fail(s, RP_EXIT_FAILED, "thread", "cannot be made");
	}
	probe(&w, cells, reader);
	for (;;)
		pause();
}
