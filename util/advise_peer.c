// SPDX-License-Identifier: BSD-2-Clause
/* Advice about transfers: two connections to one target, over loopback. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/thread.h"
#include "rpmem/ext.h"
#include "util/advise.h"
#include "util/fabric.h"
#include "util/setup_client.h"

#define BULK	    (8u << 20) /* bytes per sample */
#define PIECE	    (1u << 20) /* piece of ADVISE_OTHER, and of librpmem_pool */
#define CONNECTIONS 2u
#define LIMIT_NS    2000000000ull /* limit for a sample */
#define SETTLE_NS   2000000000ull /* limit of settle(), after a failed sample */

/* Address and key of the target; a child process sends them by a pipe. */
struct page {
	int ret;
	char err[RP_ERR_LEN];
	char name[128];
	size_t name_len;
	uint64_t key, addr;
};

struct connection {
	struct rp_fabric f;
	struct fid_mr *mr; /* registration of the local buffer */
	fi_addr_t to;
	uint64_t posted, completed; /* operations of one sample */
};

struct advise_peer {
	pid_t target; /* pid of the child process; 0: a daemon serves */
	int stop;     /* pipe to the child process, which ends when it closes */
	struct page page;
	uint64_t len;
	char *buf;
	unsigned int n;	      /* connections that are open */
	bool has_outstanding; /* operations of a failed sample */
	struct connection v[CONNECTIONS];
};

/* --- the target --- */

static int export_map(const struct advise *a,
		      const struct info_transport *transport,
		      struct rp_fabric *f, struct page *page)
{
	const struct rp_fabric_attr attr = {
		.base = transport->base,
		.target = true,
		.automatic = true,
	};
	struct fid_mr *mr;
	int ret = rp_fabric_open(&attr, f, page->err);

	if (ret)
		return ret;
	page->name_len = sizeof(page->name);
	ret = fi_getname(&f->ep->fid, page->name, &page->name_len);
	if (ret)
		return rp_err(page->err, ret, "fi_getname: %s",
			      fi_strerror(-ret));
	ret = rp_fabric_reg(f, a->map.addr, a->map.len,
			    FI_REMOTE_READ | FI_REMOTE_WRITE, FI_RMA_PMEM, &mr,
			    page->err);
	if (ret)
		return ret;
	page->key = fi_mr_key(mr);
	page->addr = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			     ? (uintptr_t)a->map.addr
			     : 0;
	return 0;
}

/* Child process: its FI_PROGRESS_AUTO thread serves until `stop` is closed. */
static void serve(const struct advise *a,
		  const struct info_transport *transport, int out, int stop)
{
	struct page page = {.ret = 0};
	struct rp_fabric f;
	char c;

	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	page.ret = export_map(a, transport, &f, &page);
	if (write(out, &page, sizeof(page)) == (ssize_t)sizeof(page))
		(void)!read(stop, &c, 1);
	_exit(0);
}

static int start_target(const struct advise *a,
			const struct info_transport *transport,
			struct advise_peer *p, char *err)
{
	int out[2], stop[2], ret;

	if (pipe2(out, O_CLOEXEC))
		return rp_err(err, -errno, "pipe: %s", strerror(errno));
	if (pipe2(stop, O_CLOEXEC)) {
		ret = -errno;
		close(out[0]);
		close(out[1]);
		return rp_err(err, ret, "pipe: %s", strerror(-ret));
	}
	p->target = fork();
	if (!p->target) {
		close(stop[1]);
		serve(a, transport, out[1], stop[0]);
	}
	close(out[1]);
	close(stop[0]);
	p->stop = stop[1];
	/* Shorter than PIPE_BUF, so the write is atomic. */
	ret = p->target < 0 ? -errno
	      : read(out[0], &p->page, sizeof(p->page)) == sizeof(p->page)
		      ? 0
		      : -ECHILD;
	close(out[0]);
	p->len = a->map.len;
	if (ret)
		return rp_err(err, ret, "the target did not start: %s",
			      strerror(-ret));
	return p->page.ret ? rp_err(err, p->page.ret, "%s", p->page.err) : 0;
}

/* Find the pool of a running daemon. */
static int find_target(const char *where, const struct rp_secret *secret,
		       struct advise_peer *p, char *err)
{
	struct rp_setup_target t = {.secret = secret};
	const int used = rp_setup_parse_target(where, &t, err);
	struct rp_setup_export x;
	int ret;

	if (used < 0)
		return used;
	if (!where[used] || !where[used + 1])
		return rp_err(err, -EINVAL,
			      "'%s' names no pool; fi_rpmem_info --target=%s "
			      "lists them",
			      where, where);
	ret = rp_setup_fetch_export(&t, where + used + 1, &x, err);
	if (ret)
		return ret;
	if (x.len < BULK)
		return rp_err(err, -EINVAL,
			      "pool '%s' is shorter than the 8 MiB of a sample",
			      where + used + 1);
	memcpy(p->page.name, x.fi_name, x.fi_name_len);
	p->page.name_len = x.fi_name_len;
	p->page.key = x.key;
	p->page.addr = x.addr;
	p->len = x.len;
	return 0;
}

/* --- connections --- */

static int connect_to(struct advise_peer *p, const char *base,
		      struct connection *c, char *err)
{
	const struct rp_fabric_attr attr = {
		.base = base,
		.dest = p->page.name,
		.dest_len = p->page.name_len,
	};
	int ret = rp_fabric_open(&attr, &c->f, err);

	if (ret)
		return ret;
	p->n++;
	ret = rp_fabric_reg(&c->f, p->buf, BULK, FI_READ | FI_WRITE, 0, &c->mr,
			    err);
	return ret ? ret : rp_fabric_peer(&c->f, p->page.name, &c->to, err);
}

int advise_peer_open(struct advise *a, const struct info_transport *transport,
		     const struct rp_secret *secret, char *err)
{
	struct advise_peer *p = calloc(1, sizeof(*p));
	int ret = 0;

	if (!p)
		return rp_err(err, -ENOMEM, "out of memory");
	a->peer = p;
	p->stop = -1;
	p->buf = malloc(BULK);
	if (!p->buf)
		ret = rp_err(err, -ENOMEM, "out of memory");
	else
		memset(p->buf, 2, BULK);
	if (!ret)
		ret = a->target ? find_target(a->target, secret, p, err)
				: start_target(a, transport, p, err);
	for (unsigned int i = 0; !ret && i < CONNECTIONS; i++)
		ret = connect_to(p, transport->base, &p->v[i], err);
	if (ret)
		advise_peer_close(a);
	return ret;
}

void advise_peer_close(struct advise *a)
{
	struct advise_peer *p = a->peer;

	a->peer = NULL;
	if (!p)
		return;
	for (unsigned int i = 0; i < p->n; i++) {
		if (p->v[i].mr)
			fi_close(&p->v[i].mr->fid);
		rp_fabric_close(&p->v[i].f);
	}
	if (p->stop >= 0)
		close(p->stop);
	if (p->target > 0)
		waitpid(p->target, NULL, 0);
	free(p->buf);
	free(p);
}

/* --- samples --- */

static bool peer_applies(const struct advise *a, const struct advise_row *row,
			 char *why)
{
	if (a->peer && a->peer->has_outstanding)
		return rp_err(
			why, 0,
			"operations of an earlier row have not completed");
	return a->peer || rp_err(why, 0, "there is no connection to a target");
}

static bool writes_apply(const struct advise *a, const struct advise_row *row,
			 char *why)
{
	if (a->target)
		return rp_err(why, 0,
			      "the pool is only read; measure in a folder of "
			      "the target");
	return peer_applies(a, row, why);
}

static int read_completions(struct connection *c, char *err)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done[16];
	const ssize_t n = fi_cq_read(c->f.cq, done, 16);
	int ret;

	if (n > 0)
		c->completed += (uint64_t)n;
	if (n >= 0 || n == -FI_EAGAIN)
		return 0;
	if (n != -FI_EAVAIL)
		return rp_err(err, (int)n, "completion queue: %s",
			      fi_strerror((int)-n));
	ret = rp_fabric_cq_error(&c->f, &bad, err);
	return ret ? ret : -bad.err;
}

/* Post one operation, if the queue has room. */
static int post(const struct advise *a, struct connection *c, uint64_t off,
		uint64_t len, char *err)
{
	const struct page *to = &a->peer->page;
	void *desc = rp_fabric_desc(c->mr);
	char *buf = a->peer->buf + off;
	const ssize_t ret = a->target ? fi_read(c->f.ep, buf, len, desc, c->to,
						to->addr + off, to->key, NULL)
				      : fi_write(c->f.ep, buf, len, desc, c->to,
						 to->addr + off, to->key, NULL);

	if (!ret)
		c->posted++;
	return !ret || ret == -FI_EAGAIN
		       ? 0
		       : rp_err(err, (int)ret, "%s: %s",
				a->target ? "fi_read" : "fi_write",
				fi_strerror((int)-ret));
}

/* Post the commit of [off, off+len), if the queue has room. */
static int post_commit(const struct advise *a, struct connection *c,
		       uint64_t off, uint64_t len, char *err)
{
	const struct fi_rma_iov range = {
		.addr = a->peer->page.addr + off,
		.len = len,
		.key = a->peer->page.key,
	};
	const struct fi_rpmem_msg msg = {
		.rma_iov = &range,
		.rma_iov_count = 1,
		.addr = c->to,
		.required =
			(enum fi_rpmem_class)rp_class_encode(a->choice.class),
	};
	const ssize_t ret = fi_rpmem_commit(c->f.ops, c->f.ep, &msg, 0);

	if (!ret)
		c->posted++;
	return !ret || ret == -FI_EAGAIN
		       ? 0
		       : rp_err(err, (int)ret, "fi_rpmem_commit: %s",
				fi_strerror((int)-ret));
}

static bool is_late(uint64_t start, char *err)
{
	if (advise_interrupted)
		rp_err(err, 0, "interrupted");
	else if (rp_clock_ns(CLOCK_MONOTONIC) - start > LIMIT_NS)
		rp_err(err, 0, "8 MiB took longer than 2 s");
	else
		return false;
	return true;
}

/*
 * Wait for the operations of a failed sample: the next sample would count their
 * completions as its own.
 */
static void settle(struct advise_peer *p, unsigned int n)
{
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (unsigned int i = 0; i < n; i++)
		while (p->v[i].completed < p->v[i].posted) {
			if (read_completions(&p->v[i], NULL) ||
			    advise_interrupted ||
			    rp_clock_ns(CLOCK_MONOTONIC) - start > SETTLE_NS) {
				p->has_outstanding = true;
				return;
			}
		}
}

/*
 * Transfer BULK bytes in pieces, an equal part over each of n connections, and
 * commit each part; a daemon's pool is only read. alone: post a commit when all
 * writes of its part have completed.
 */
static int transfer(struct advise *a, unsigned int n, uint64_t piece,
		    bool alone, uint64_t *ns, char *err)
{
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC), part = BULK / n;
	const uint64_t pieces = part / piece, all = pieces + !a->target;
	struct connection *v = a->peer->v;
	unsigned int left = n;
	int ret = 0;

	for (unsigned int i = 0; i < n; i++)
		v[i].posted = v[i].completed = 0;
	while (!ret && left) {
		left = 0;
		for (unsigned int i = 0; i < n && !ret; i++) {
			struct connection *c = &v[i];

			if (c->posted < pieces)
				ret = post(a, c, i * part + c->posted * piece,
					   piece, err);
			else if (c->posted < all &&
				 (!alone || c->completed == pieces))
				ret = post_commit(a, c, i * part, part, err);
			if (!ret)
				ret = read_completions(c, err);
			left += c->completed < all;
		}
		if (is_late(start, err))
			ret = -ETIMEDOUT;
	}
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	if (ret)
		settle(a->peer, n);
	return ret;
}

static int measure_connections(struct advise *a, const struct advise_row *row,
			       enum advise_way way, uint64_t *ns, char *err)
{
	return transfer(a, way == ADVISE_AS ? CONNECTIONS : 1, PIECE, false, ns,
			err);
}

static int measure_pieces(struct advise *a, const struct advise_row *row,
			  enum advise_way way, uint64_t *ns, char *err)
{
	return transfer(a, 1, way == ADVISE_AS ? row->param : PIECE, false, ns,
			err);
}

static int measure_pipeline(struct advise *a, const struct advise_row *row,
			    enum advise_way way, uint64_t *ns, char *err)
{
	return transfer(a, 1, PIECE, way == ADVISE_OTHER, ns, err);
}

#define TRIED                                                                  \
	"nothing: librpmem_pool tries them in operations of 1 MiB and more, "  \
	"such as those of fi_rpmem_cp"
#define TRIED_LONG                                                             \
	"operations of 4 MiB, such as those of fi_rpmem_cp --chunk=4M: "       \
	"librpmem_pool tries them in these"
#define PIECES(size_name, size, setting)                                       \
	{                                                                      \
		.name = "pieces of " size_name,                                \
		.source = "Kalia et al. 2020, 5.4",                            \
		.advice = "Transfer in pieces of " size_name ".",              \
		.as = "pieces of " size_name, .other = "pieces of 1 MiB",      \
		.set = (setting), .param = (size), .applies = peer_applies,    \
		.measure = measure_pieces                                      \
	}

const struct advise_row advise_peer_rows[] = {
	{
		.name = "connections",
		.source = "Kalia et al. 2020, 5; Wei et al. 2021, H2",
		.advice = "Use several connections for a long transfer.",
		.as = "two connections",
		.other = "one connection",
		.set = "nothing: a pool of librpmem_pool has one connection",
		.applies = peer_applies,
		.measure = measure_connections,
	},
	PIECES("64 KiB", 64u << 10,
	       "nothing: librpmem_pool does not try pieces that short"),
	PIECES("256 KiB", 256u << 10, TRIED),
	PIECES("4 MiB", 4u << 20, TRIED_LONG),
	{
		.name = "commit pipelined",
		.source = "Wei et al. 2021, H9",
		.advice = "Post the commit behind the writes without waiting "
			  "for them.",
		.as = "writes and commit posted together",
		.other = "the commit behind the last completion",
		.set = "librpmem_pool, fi_rpmem_cp and FI_COMMIT_COMPLETE do "
		       "so",
		.applies = writes_apply,
		.measure = measure_pipeline,
	},
	{0},
};
