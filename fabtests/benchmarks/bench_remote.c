// SPDX-License-Identifier: BSD-2-Clause
/*
 * A target on another machine. The two processes do not share a page: the
 * initiator sends its part of the page over one TCP connection, and the target
 * replies with its own part when it has done what the initiator's part
 * requests.
 */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/bench.h"
#include "util/text.h"

#define POOL_MAX (1ull << 30) /* bytes that an initiator may ask for */

/* Both ends have to be the same build: the messages are these structs. */
struct hello {
	char magic[16]; /* release, and the sizes of the messages */
	uint64_t pool_len;
	uint64_t seed;
};

struct from_initiator {
	int32_t mode, open;
	uint64_t reply_size;
	uint64_t name_len[BENCH_SIDES];
	uint8_t name[BENCH_SIDES][BENCH_NAME];
};

struct from_target {
	int32_t open;
	uint64_t volatile_key, volatile_addr, pool_len;
	char kind[sizeof(((struct bench_pool *)0)->kind)];
	struct bench_export target[BENCH_SIDES];
};

static void hello_fill(struct hello *h)
{
	memset(h, 0, sizeof(*h));
	snprintf(h->magic, sizeof(h->magic), "rpb %.5s %zu", PACKAGE_VERSION,
		 sizeof(struct from_initiator) + sizeof(struct from_target));
}

static bool send_all(int fd, const void *buf, size_t len)
{
	return send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool recv_all(int fd, void *buf, size_t len)
{
	return recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

/* Split HOST:PORT or [HOST]:PORT in place. */
static int split_host_port(char *where, char **host, char **port, char *err)
{
	char *colon = strrchr(where, ':');
	size_t len;

	if (!colon || colon == where || !colon[1])
		return rp_err(err, -EINVAL,
			      "'%s' is no HOST:PORT, as in 192.0.2.1:18700",
			      where);
	*colon = 0;
	*host = where;
	*port = colon + 1;
	len = strlen(where);
	if (where[0] == '[' && where[len - 1] == ']') {
		where[len - 1] = 0;
		*host = where + 1;
	}
	return 0;
}

static int resolve_and_open(const char *where, bool listens, int *fd, char *err)
{
	struct addrinfo *ai = NULL,
			hints = {
				.ai_socktype = SOCK_STREAM,
				.ai_flags = listens ? AI_PASSIVE : 0,
			};
	char *copy = strdup(where), *host = NULL, *port = NULL;
	const int one = 1;
	int ret = copy ? split_host_port(copy, &host, &port, err) : -ENOMEM;

	if (ret)
		goto out;
	ret = getaddrinfo(host, port, &hints, &ai);
	if (ret) {
		ret = rp_err(err, -EINVAL, "%s: %s", where, gai_strerror(ret));
		goto out;
	}
	*fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (*fd < 0 ||
	    (listens ? bind(*fd, ai->ai_addr, ai->ai_addrlen) || listen(*fd, 1)
		     : connect(*fd, ai->ai_addr, ai->ai_addrlen)))
		ret = rp_err(err, -errno, "%s: %s%s", where, strerror(errno),
			     listens ? ""
				     : "; start fi_rpmem_bench --listen there");
out:
	if (ai)
		freeaddrinfo(ai);
	free(copy);
	return ret;
}

/* The address of this end that libfabric shall use. */
static char *address_of(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[NI_MAXHOST];

	if (getsockname(fd, (struct sockaddr *)&sa, &len) ||
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), NULL,
			0, NI_NUMERICHOST))
		return NULL;
	return strdup(host);
}

/* --- the initiator --- */

int bench_remote_connect(struct bench *b, char *err)
{
	struct hello h;
	int ret;

	ret = resolve_and_open(b->cfg->connect, false, &b->control, err);
	if (ret)
		return ret;
	if (!b->node)
		b->node = address_of(b->control);
	hello_fill(&h);
	h.pool_len = b->pool.len;
	h.seed = b->cfg->seed;
	if (!b->node || !send_all(b->control, &h, sizeof(h)))
		return rp_err(err, -EIO, "%s: %s", b->cfg->connect,
			      strerror(errno));
	return 0;
}

/* Send this end's part of the page, and wait for the target's. */
void bench_remote_exchange(struct bench *b)
{
	struct bench_shared *sh = b->shared;
	struct from_initiator out = {
		.mode = atomic_load(&sh->mode),
		.open = atomic_load(&sh->initiator_open),
		.reply_size = atomic_load(&sh->reply_size),
	};
	struct from_target in;

	for (int i = 0; i < BENCH_SIDES; i++)
		out.name_len[i] = sh->initiator_len[i];
	memcpy(out.name, sh->initiator_name, sizeof(out.name));
	if (b->target < 0 || !send_all(b->control, &out, sizeof(out)) ||
	    !recv_all(b->control, &in, sizeof(in))) {
		b->target = -1; /* the other process has ended */
		return;
	}
	in.kind[sizeof(in.kind) - 1] = 0;
	for (int i = 0; i < BENCH_SIDES; i++) {
		in.target[i].why[RP_ERR_LEN - 1] = 0;
		if (in.target[i].len > BENCH_NAME)
			in.target[i].ok = false;
		sh->target[i] = in.target[i];
	}
	sh->volatile_key = in.volatile_key;
	sh->volatile_addr = in.volatile_addr;
	memcpy(b->pool.kind, in.kind, sizeof(in.kind));
	b->pool.len = in.pool_len;
	atomic_store(&sh->target_open, in.open);
}

/* --- the target --- */

static void pause_100us(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Whether the target polls what the initiator has asked for. */
static bool polls_as_requested(struct bench_shared *sh,
			       const struct from_initiator *in)
{
	if (!in->open)
		return atomic_load(&sh->exported);
	return atomic_load(&sh->target_open) &&
	       atomic_load(&sh->seen) == in->mode;
}

static bool reply_to_initiator(struct bench *b, const struct from_initiator *in)
{
	struct bench_shared *sh = b->shared;
	struct from_target out = {
		.pool_len = b->pool.len,
	};

	for (int i = 0; i < BENCH_SIDES; i++) {
		if (in->name_len[i] > BENCH_NAME)
			return false;
		sh->initiator_len[i] = in->name_len[i];
	}
	if (in->mode < 0 || in->mode > BENCH_QUIT || in->mode == BENCH_WORK ||
	    (in->mode >= BENCH_RIVAL && in->mode < BENCH_IDLE) ||
	    in->reply_size > BENCH_MAX_SIZE)
		return false;
	memcpy(sh->initiator_name, in->name, sizeof(in->name));
	atomic_store(&sh->reply_size, in->reply_size);
	atomic_store(&sh->mode, in->mode);
	atomic_store(&sh->initiator_open, in->open);
	while (in->mode != BENCH_QUIT && !polls_as_requested(sh, in))
		pause_100us();
	out.open = atomic_load(&sh->target_open);
	out.volatile_key = sh->volatile_key;
	out.volatile_addr = sh->volatile_addr;
	memcpy(out.kind, b->pool.kind, sizeof(out.kind));
	memcpy(out.target, sh->target, sizeof(out.target));
	return send_all(b->control, &out, sizeof(out));
}

static void *serve_initiators(void *arg)
{
	struct bench *b = arg;
	struct from_initiator in;

	while (recv_all(b->control, &in, sizeof(in)) &&
	       reply_to_initiator(b, &in))
		;
	atomic_store(&b->shared->mode, BENCH_QUIT);
	return NULL;
}

/* Accept the initiator and read its HELLO, which has the length of the pool. */
static int accept_one(struct bench *b, char *err)
{
	struct hello h, mine;
	int fd = -1, ret = resolve_and_open(b->cfg->listen, true, &fd, err);

	if (!ret) {
		printf("waiting for fi_rpmem_bench --connect %s\n",
		       b->cfg->listen);
		fflush(stdout);
		b->control = accept(fd, NULL, NULL);
		if (b->control < 0)
			ret = rp_err(err, -errno, "accept: %s",
				     strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	if (ret)
		return ret;
	hello_fill(&mine);
	if (!recv_all(b->control, &h, sizeof(h)) ||
	    memcmp(h.magic, mine.magic, sizeof(h.magic)))
		return rp_err(err, -EPROTO,
			      "the other end is no fi_rpmem_bench of this "
			      "release");
	if (!h.pool_len || h.pool_len > POOL_MAX)
		return rp_err(err, -EPROTO, "a pool of %llu bytes",
			      (unsigned long long)h.pool_len);
	b->pool.len = h.pool_len;
	if (!b->node)
		b->node = address_of(b->control);
	return b->node ? 0 : rp_err(err, -ENOMEM, "out of memory");
}

int bench_remote_serve(struct bench *b, char *err)
{
	pthread_t thread;
	int ret = accept_one(b, err);

	if (!ret)
		ret = bench_pool_open(b, err);
	if (!ret)
		ret = bench_alloc(b, err);
	if (!ret)
		ret = -pthread_create(&thread, NULL, serve_initiators, b);
	if (ret)
		return ret;
	ret = bench_target_run(b);
	/* The thread may wait for a message that never comes: wake it. */
	shutdown(b->control, SHUT_RDWR);
	pthread_join(thread, NULL);
	return ret;
}
