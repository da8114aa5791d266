// SPDX-License-Identifier: BSD-2-Clause
/*
 * A key-value store that libraft replicates, each server with a pool:
 *
 *   cc -o raft_kv raft_kv.c $(pkg-config --cflags --libs librpmem_raft libuv)
 *   ./raft_kv ID STORAGE PORT ADDRESS...
 *
 * ADDRESS... are those of all servers, in the order of their IDs, 1 and so on.
 * STORAGE is a pool of fi_rpmemd, HOST:PORT:POOL, or uv:FOLDER for libraft's
 * own files. Clients connect to PORT of 127.0.0.1 and send lines; the leader
 * replies to "put KEY VALUE" and "get KEY" with "ok VALUE" or "none" once the
 * command is committed, other servers with "leader ID". "unknown": the command
 * may be executed or not. The environment variables RAFT_KV_ELECTION (ms) and
 * RAFT_KV_SNAPSHOT (entries) make a test shorter.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <raft.h>
#include <raft/uv.h>
#include <rpmem_raft.h>
#include <uv.h>

#define LINE	512u
#define BUCKETS 4096u

struct pair {
	struct pair *next;
	char *key, *value;
};

struct client {
	uv_tcp_t tcp;
	struct raft_apply apply;
	uv_write_t write;
	char line[LINE], reply[LINE];
	size_t len;
	int busy;  /* a command of the client is not yet applied */
	int ended; /* the client's connection has ended */
};

static struct pair *buckets[BUCKETS];
static struct raft raft;
static uv_loop_t loop;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "raft_kv: %s: %s\n", what, why);
	exit(1);
}

static void *need(void *p)
{
	if (!p)
		fail("memory", "none");
	return p;
}

/* Find the link to a key's pair; the link is NULL if the key is new. */
static struct pair **find(const char *key)
{
	unsigned int h = 5381;
	struct pair **p;

	for (const char *c = key; *c; c++)
		h = h * 33 + (unsigned char)*c;
	for (p = &buckets[h % BUCKETS]; *p; p = &(*p)->next)
		if (strcmp((*p)->key, key) == 0)
			break;
	return p;
}

static void set(const char *key, const char *value)
{
	struct pair **p = find(key);

	if (!*p) {
		*p = need(calloc(1, sizeof(**p)));
		(*p)->key = need(strdup(key));
	}
	free((*p)->value);
	(*p)->value = need(strdup(value));
}

/* buf has a line and its NUL. *result is used before the next call. */
static int apply(struct raft_fsm *fsm, const struct raft_buffer *buf,
		 void **result)
{
	static char reply[LINE + 8];
	char key[LINE], value[LINE];
	struct pair *p;

	(void)fsm;
	strcpy(reply, "error\n");
	if (sscanf(buf->base, "put %511s %511s", key, value) == 2) {
		set(key, value);
		snprintf(reply, sizeof(reply), "ok %s\n", value);
	} else if (sscanf(buf->base, "get %511s", key) == 1) {
		p = *find(key);
		if (p)
			snprintf(reply, sizeof(reply), "ok %s\n", p->value);
		else
			strcpy(reply, "none\n");
	}
	*result = reply;
	return 0;
}

/* The snapshot has of each pair: key, NUL, value, NUL. */
static int snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[],
		    unsigned int *n)
{
	size_t len = 0;
	char *c;

	(void)fsm;
	for (unsigned int i = 0; i < BUCKETS; i++)
		for (struct pair *p = buckets[i]; p; p = p->next)
			len += strlen(p->key) + strlen(p->value) + 2;
	*bufs = need(raft_malloc(sizeof(**bufs)));
	(*bufs)->base = c = need(raft_malloc(len + 1));
	(*bufs)->len = len;
	*n = 1;
	for (unsigned int i = 0; i < BUCKETS; i++)
		for (struct pair *p = buckets[i]; p; p = p->next) {
			c = stpcpy(c, p->key) + 1;
			c = stpcpy(c, p->value) + 1;
		}
	return 0;
}

static int restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
	const char *c = buf->base, *value;
	const char *end = c + buf->len;
	struct pair *p;

	(void)fsm;
	for (unsigned int i = 0; i < BUCKETS; i++)
		while ((p = buckets[i])) {
			buckets[i] = p->next;
			free(p->key);
			free(p->value);
			free(p);
		}
	while (c < end) {
		value = c + strlen(c) + 1;
		set(c, value);
		c = value + strlen(value) + 1;
	}
	raft_free(buf->base);
	return 0;
}

static void closed(uv_handle_t *h)
{
	free(h->data);
}

static void hang_up(struct client *c)
{
	c->ended = 1;
	if (!c->busy && !uv_is_closing((uv_handle_t *)&c->tcp))
		uv_close((uv_handle_t *)&c->tcp, closed);
}

static void next_line(struct client *c);

static void written(uv_write_t *w, int status)
{
	struct client *c = w->data;

	c->busy = 0;
	if (status || c->ended)
		hang_up(c);
	else
		next_line(c);
}

static void reply(struct client *c, const char *text)
{
	uv_buf_t buf;

	snprintf(c->reply, sizeof(c->reply), "%s", text);
	buf = uv_buf_init(c->reply, (unsigned int)strlen(c->reply));
	c->write.data = c;
	if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, written))
		written(&c->write, 1);
}

static void applied(struct raft_apply *req, int status, void *result)
{
	reply(req->data, status ? "unknown\n" : result);
}

static void submit(struct client *c, const char *line)
{
	struct raft_buffer buf = {.len = strlen(line) + 1};
	const char *address;
	char text[64];
	raft_id id;

	c->busy = 1;
	c->apply.data = c;
	buf.base = need(raft_malloc(buf.len));
	memcpy(buf.base, line, buf.len);
	if (!raft_apply(&raft, &c->apply, &buf, 1, applied))
		return;
	raft_free(buf.base);
	raft_leader(&raft, &id, &address);
	snprintf(text, sizeof(text), "leader %llu\n", id);
	reply(c, text);
}

/* Execute the next line of a client, unless its last one is not applied yet. */
static void next_line(struct client *c)
{
	char *end = memchr(c->line, '\n', c->len);
	char line[LINE];
	size_t n;

	if (!end || c->busy) {
		if (!end && c->len == sizeof(c->line))
			hang_up(c);
		return;
	}
	n = (size_t)(end - c->line) + 1;
	memcpy(line, c->line, n);
	line[n - 1] = 0;
	memmove(c->line, c->line + n, c->len -= n);
	submit(c, line);
}

static void room(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
	struct client *c = h->data;

	(void)size;
	*buf = uv_buf_init(c->line + c->len,
			   (unsigned int)(sizeof(c->line) - c->len));
}

static void got(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct client *c = s->data;

	(void)buf;
	if (n < 0) {
		hang_up(c);
		return;
	}
	c->len += (size_t)n;
	next_line(c);
}

static void connected(uv_stream_t *server, int status)
{
	struct client *c = need(calloc(1, sizeof(*c)));

	uv_tcp_init(&loop, &c->tcp);
	c->tcp.data = c;
	if (status || uv_accept(server, (uv_stream_t *)&c->tcp) ||
	    uv_read_start((uv_stream_t *)&c->tcp, room, got))
		hang_up(c);
	else
		uv_tcp_nodelay(&c->tcp, 1);
}

static void raft_closed(struct raft *r)
{
	(void)r;
	uv_stop(&loop);
}

static void stop(uv_signal_t *s, int number)
{
	(void)number;
	uv_signal_stop(s);
	raft_close(&raft, raft_closed);
}

/* A server ends when its storage has failed: libraft then is unavailable. */
static void watch(uv_timer_t *t)
{
	uv_signal_t *term = t->data;

	if (raft_state(&raft) == RAFT_UNAVAILABLE &&
	    uv_is_active((uv_handle_t *)term))
		fail("storage", raft_errmsg(&raft));
}

static void check(const char *what, int ret)
{
	if (ret)
		fail(what, raft.io && *raft.io->errmsg ? raft.io->errmsg
						       : raft_strerror(ret));
}

static void start(char **argv, struct raft_io *io, struct raft_fsm *fsm)
{
	/*
	 * take: an earlier process of this server can no longer write to the
	 * pool.
	 */
	const struct rpmem_raft_attr attr = {.size = sizeof(attr), .take = 1};
	const char *election = getenv("RAFT_KV_ELECTION");
	const char *entries = getenv("RAFT_KV_SNAPSHOT");
	static struct raft_uv_transport tcp;
	struct raft_configuration conf;
	const raft_id id = strtoull(argv[1], NULL, 10);
	int ret;

	if (strncmp(argv[2], "uv:", 3) == 0)
		ret = raft_uv_tcp_init(&tcp, &loop)
			      ?: raft_uv_init(io, &loop, argv[2] + 3, &tcp);
	else
		ret = rpmem_raft_init(io, &loop, argv[2], &attr);
	check("storage", ret);
	check(argv[2], raft_init(&raft, io, fsm, id, argv[3 + id]));
	raft_set_pre_vote(&raft, true);
	if (election) {
		raft_set_election_timeout(&raft, (unsigned int)atoi(election));
		raft_set_heartbeat_timeout(&raft,
					   (unsigned int)atoi(election) / 10);
	}
	if (entries) {
		raft_set_snapshot_threshold(&raft, (unsigned int)atoi(entries));
		raft_set_snapshot_trailing(&raft,
					   (unsigned int)atoi(entries) / 4);
	}
	raft_configuration_init(&conf);
	for (raft_id i = 1; argv[3 + i]; i++)
		check("address", raft_configuration_add(&conf, i, argv[3 + i],
							RAFT_VOTER));
	ret = raft_bootstrap(&raft, &conf);
	if (ret != RAFT_CANTBOOTSTRAP)
		check("bootstrap", ret);
	raft_configuration_close(&conf);
	check("start", raft_start(&raft));
}

int main(int argc, char **argv)
{
	struct raft_fsm fsm = {.version = 1,
			       .apply = apply,
			       .snapshot = snapshot,
			       .restore = restore};
	struct sockaddr_in addr;
	uv_tcp_t server;
	uv_signal_t term;
	uv_timer_t timer;
	struct raft_io io = {0};

	if (argc < 5 || atoi(argv[1]) < 1 || atoi(argv[1]) > argc - 4)
		fail("usage", "raft_kv ID STORAGE PORT ADDRESS...");
	/* Without this, a write to a server that has died ends this one. */
	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&loop);
	start(argv, &io, &fsm);
	uv_ip4_addr("127.0.0.1", atoi(argv[3]), &addr);
	uv_tcp_init(&loop, &server);
	if (uv_tcp_bind(&server, (struct sockaddr *)&addr, 0) ||
	    uv_listen((uv_stream_t *)&server, 64, connected))
		fail("port", argv[3]);
	uv_signal_init(&loop, &term);
	uv_signal_start(&term, stop, SIGTERM);
	uv_timer_init(&loop, &timer);
	timer.data = &term;
	uv_timer_start(&timer, watch, 100, 100);
	puts("ready");
	fflush(stdout);
	uv_run(&loop, UV_RUN_DEFAULT);
	return 0;
}
