// SPDX-License-Identifier: BSD-2-Clause
/* Code shared by both directions: the pool, the window, completions. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/method.h"
#include "core/status.h"
#include "core/wire.h"
#include "util/clock.h"
#include "util/copy.h"
#include "util/query.h"

volatile sig_atomic_t copy_interrupted;

static int find_pool(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	const struct rp_setup_open how = {.owner = rp_setup_owner()};
	int ret;

	c->lease = -1;
	ret = rp_setup_open(&cfg->target, cfg->pool, &how, &c->ex, &c->lease,
			    c->err);
	if (ret == -EACCES)
		return RP_EXIT_SECRET;
	if (ret)
		return RP_EXIT_NETWORK;
	if (c->ex.control != RP_WIRE_VERSION) {
		rp_err(c->err, 0,
		       "the daemon on port %u of %s speaks version %u of the "
		       "control messages, this program %d; install the same "
		       "release at both ends",
		       cfg->target.port, cfg->target.host, c->ex.control,
		       RP_WIRE_VERSION);
		return RP_EXIT_NETWORK;
	}
	return 0;
}

/* Check the range before any byte is copied. */
static int check_bounds(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	uint64_t len = c->ex.len;

	if (!cfg->up) {
		/* Without --length: to the end of the file that was copied. */
		c->size = cfg->length;
		if (!c->size && cfg->offset < c->ex.length)
			c->size = c->ex.length - cfg->offset;
		if (!c->size && cfg->offset < len)
			c->size = len - cfg->offset;
	}
	if (cfg->offset <= len && c->size <= len - cfg->offset &&
	    (c->size || cfg->up))
		return 0;
	rp_err(c->err, 0,
	       "pool '%s' has %" PRIu64 " bytes: %" PRIu64
	       " bytes from offset %" PRIu64 " go beyond its end%s",
	       cfg->pool, len, c->size, cfg->offset,
	       cfg->up ? "; give a smaller offset, or use a larger pool" : "");
	return RP_EXIT_SPACE;
}

static int check_right(struct copy *c)
{
	if (!c->cfg->up || !c->ex.read_only)
		return 0;
	rp_err(c->err, 0,
	       "the secret only allows to read pool '%s'; use another one, or "
	       "change the configuration of fi_rpmemd",
	       c->cfg->pool);
	return RP_EXIT_SECRET;
}

static int open_fabric(struct copy *c)
{
	struct rp_fabric_attr attr = {
		.base = c->ex.base,
		.dest = c->ex.fi_name,
		.dest_len = c->ex.fi_name_len,
		.wait_fd = true,
		.cq_size = c->cfg->window + COPY_COMMITS + 64,
	};

	if (rp_fabric_open(&attr, &c->f, c->err) ||
	    rp_fabric_peer(&c->f, c->ex.fi_name, &c->peer, c->err))
		return RP_EXIT_NETWORK;
	return 0;
}

/*
 * QUERY the target for class and method of commits: the values in EXPORT are
 * for people only.
 */
static int check_class(struct copy *c)
{
	char why[RP_ERR_LEN] = "";
	struct fi_rpmem_attr attr = {
		.size = sizeof(attr),
		.why = why,
		.why_size = sizeof(why),
	};
	int ret = rp_query(c->f.ops, c->f.ep, c->peer, c->ex.key, c->cfg->class,
			   &attr, &c->class);

	if (ret) {
		rp_err(c->err, 0,
		       "the target of pool '%s' does not reply over libfabric: "
		       "%s; check that fi_rpmemd runs and that firewalls let "
		       "its data port through (FI_OFI_RPMEM_PORTS)",
		       c->cfg->pool, fi_strerror(-ret));
		return RP_EXIT_NETWORK;
	}
	if (attr.prov_errno &&
	    fi_rpmem_status(attr.prov_errno) == FI_RPMEM_ST_KEY) {
		rp_err(c->err, 0,
		       "the key of pool '%s' was revoked meanwhile: the "
		       "configuration of fi_rpmemd has changed; try again",
		       c->cfg->pool);
		return RP_EXIT_NETWORK;
	}
	if (attr.addr > c->ex.addr || c->ex.addr - attr.addr > attr.len ||
	    c->ex.len > attr.len - (c->ex.addr - attr.addr)) {
		rp_err(c->err, 0,
		       "the daemon contradicts itself about the size of pool "
		       "'%s'; do not use it",
		       c->cfg->pool);
		return RP_EXIT_NETWORK;
	}
	c->method = attr.method;
	if (attr.prov_errno && c->cfg->up) {
		rp_err(c->err, 0,
		       "pool '%s' is of class %s, weaker than required: %s; "
		       "use another pool, or lower the requirement with "
		       "--class",
		       c->cfg->pool, rp_class_name(c->class), why);
		return RP_EXIT_CLASS;
	}
	return 0;
}

static int make_window(struct copy *c)
{
	const uint64_t window = c->cfg->window;
	/*
	 * --resume compares, so each slot holds a chunk of the file and one of
	 * the pool.
	 */
	const unsigned int each = c->cfg->up && c->cfg->resume ? 2 : 1;

	c->chunk = c->cfg->chunk;
	if (c->chunk > c->f.info->ep_attr->max_msg_size)
		c->chunk = c->f.info->ep_attr->max_msg_size;
	c->buf_len = window * c->chunk * each;
	c->buf = mmap(NULL, c->buf_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c->ops = calloc(window, sizeof(*c->ops));
	if (c->buf == MAP_FAILED || !c->ops) {
		if (c->buf == MAP_FAILED)
			c->buf = NULL;
		rp_err(c->err, 0,
		       "out of memory; a smaller --chunk or --window needs "
		       "less");
		return RP_EXIT_FAILED;
	}
	for (uint64_t i = 0; i < window; i++) {
		c->ops[i].data = c->buf + i * each * c->chunk;
		c->ops[i].pool_data = c->ops[i].data + c->chunk;
	}
	if (rp_fabric_reg(&c->f, c->buf, c->buf_len, FI_READ | FI_WRITE, 0,
			  &c->mr, c->err))
		return RP_EXIT_FAILED;
	return 0;
}

/*
 * The daemon remembers the length of a file that begins at the pool's first
 * byte: 0, unknown, from the first write until the last byte is durable.
 */
static int remember(struct copy *c, uint64_t length)
{
	const struct copy_cfg *cfg = c->cfg;

	if (cfg->offset || c->ex.length == length)
		return 0;
	if (rp_setup_set_length(&cfg->target, cfg->pool, length, c->err))
		return RP_EXIT_BROKEN;
	c->ex.length = length;
	return 0;
}

int copy_begin(struct copy *c)
{
	return remember(c, 0);
}

int copy_end(struct copy *c)
{
	return remember(c, c->size);
}

int copy_open(struct copy *c)
{
	int ret = find_pool(c);

	if (!ret)
		ret = check_bounds(c);
	if (!ret)
		ret = check_right(c);
	if (!ret)
		ret = open_fabric(c);
	if (!ret)
		ret = check_class(c);
	if (!ret)
		ret = make_window(c);
	return ret;
}

void copy_close(struct copy *c)
{
	/*
	 * Closing the endpoint cancels outstanding operations; their memory can
	 * be freed after it.
	 */
	if (c->f.ep) {
		fi_close(&c->f.ep->fid);
		c->f.ep = NULL;
	}
	if (c->mr)
		fi_close(&c->mr->fid);
	rp_fabric_close(&c->f);
	if (c->buf)
		munmap(c->buf, c->buf_len);
	free(c->ops);
	if (c->lease >= 0)
		close(c->lease);
}

static ssize_t try_post(struct copy *c, struct copy_op *op)
{
	const uint64_t addr = c->ex.addr + c->cfg->offset + op->at;
	struct fi_rma_iov range = {
		.addr = addr,
		.len = op->len,
		.key = c->ex.key,
	};
	const struct fi_rpmem_msg msg = {
		.rma_iov = &range,
		.rma_iov_count = 1,
		.addr = c->peer,
		.level = op->state == COPY_WRITING ? FI_RPMEM_VISIBLE
						   : FI_RPMEM_DURABLE,
		.required = c->cfg->class,
		.context = op,
	};

	switch (op->state) {
	case COPY_READING:
		return fi_read(c->f.ep, op->pool_data, op->len,
			       rp_fabric_desc(c->mr), c->peer, addr, c->ex.key,
			       op);
	case COPY_WRITING:
		if (op->zero)
			return fi_rpmem_zero(c->f.ops, c->f.ep, &msg, 0);
		return fi_write(c->f.ep, op->data, op->len,
				rp_fabric_desc(c->mr), c->peer, addr, c->ex.key,
				op);
	case COPY_COMMITTING:
		return fi_rpmem_commit(c->f.ops, c->f.ep, &msg, 0);
	case COPY_IDLE:
	case COPY_DONE:
		break;
	}
	return -FI_EINVAL;
}

int copy_post(struct copy *c, struct copy_op *op)
{
	ssize_t ret;
	int code = 0;

	/*
	 * The base keeps connecting to a dead target and returns -FI_EAGAIN, so
	 * the timeout counts from this post.
	 */
	if (!c->busy)
		c->silent_since = rp_now_ms();
	c->posting = true;
	while (!code && (ret = try_post(c, op)) == -FI_EAGAIN)
		code = copy_poll(c, 1);
	c->posting = false;
	if (code)
		return code;
	if (ret) {
		rp_err(c->err, 0, "%s at byte %" PRIu64 ": %s",
		       op->state == COPY_COMMITTING ? "committing"
		       : op->state == COPY_WRITING  ? "writing"
						    : "reading",
		       c->cfg->offset + op->at, fi_strerror((int)-ret));
		return RP_EXIT_BROKEN;
	}
	if (!c->busy)
		c->silent_since = rp_now_ms();
	op->busy = true;
	c->busy++;
	return 0;
}

static int read_cq_error(struct copy *c)
{
	struct fi_cq_err_entry bad;
	struct copy_op *op;
	char text[RP_ERR_LEN];

	if (rp_fabric_cq_error(&c->f, &bad, text))
		return 0;
	op = bad.op_context;
	if (op && op->busy) {
		op->failed = true;
		op->busy = false;
		c->busy--;
	}
	if (!op || op->state != COPY_COMMITTING) {
		rp_err(c->err, 0,
		       "the connection to the target on %s was lost (%.200s); "
		       "check that fi_rpmemd runs there",
		       c->cfg->target.host, text);
		return RP_EXIT_BROKEN;
	}
	c->status = (enum rp_status)bad.prov_errno;
	if (c->status == RP_ST_OVERLOADED) {
		rp_err(c->err, 0,
		       "fi_rpmemd on %s is stopping, or serves as many clients "
		       "as it may; resume when it runs again",
		       c->cfg->target.host);
		return RP_EXIT_BROKEN;
	}
	rp_err(c->err, 0, "commit to the target on %s failed: %s. %s",
	       c->cfg->target.host, rp_status_name(c->status),
	       rp_status_remedy(c->status));
	return c->status == RP_ST_CLASS ? RP_EXIT_CLASS : RP_EXIT_BROKEN;
}

int copy_poll(struct copy *c, int ms)
{
	struct fi_cq_entry done[32];
	ssize_t n = fi_cq_sread(c->f.cq, done, 32, NULL, ms);

	if (copy_interrupted) {
		rp_err(c->err, 0, "interrupted");
		return RP_EXIT_BROKEN;
	}
	if (n == -FI_EAVAIL)
		return read_cq_error(c);
	if (n < 0 && n != -FI_EAGAIN && n != -FI_EINTR) {
		rp_err(c->err, 0, "completion queue: %s", fi_strerror((int)-n));
		return RP_EXIT_BROKEN;
	}
	for (ssize_t i = 0; i < n; i++) {
		struct copy_op *op = done[i].op_context;

		op->busy = false;
		c->busy--;
	}
	if (n > 0)
		c->silent_since = rp_now_ms();
	else if ((c->busy || c->posting) &&
		 rp_now_ms() - c->silent_since > c->cfg->timeout * 1000ull) {
		rp_err(c->err, 0,
		       "the target on %s has been silent for %u s; check that "
		       "it runs, or give a longer --timeout",
		       c->cfg->target.host, c->cfg->timeout);
		return RP_EXIT_BROKEN;
	}
	return 0;
}

void copy_finish(struct copy *c)
{
	const uint64_t until = rp_now_ms() + c->cfg->timeout * 1000ull;
	const enum rp_status status = c->status;
	char err[RP_ERR_LEN];

	/* The first error is the one to report, and decides on --resume. */
	memcpy(err, c->err, sizeof(err));
	while (c->busy && !copy_interrupted && rp_now_ms() < until)
		copy_poll(c, 100);
	memcpy(c->err, err, sizeof(err));
	c->status = status;
}

void copy_explain(struct copy *c)
{
	struct rp_setup_target t = c->cfg->target;
	struct rp_setup_export ex;
	char byte, err[RP_ERR_LEN];
	int ret;

	if (recv(c->lease, &byte, 1, MSG_PEEK | MSG_DONTWAIT))
		return;
	t.wait_ms = 0;
	ret = rp_setup_fetch_export(&t, c->cfg->pool, &ex, err);
	if (ret == -ENOENT || ret == -EACCES)
		rp_err(c->err, 0, "fi_rpmemd has closed the pool: %.400s", err);
	else if (!ret && ex.owner != c->ex.owner)
		rp_err(c->err, 0,
		       "another client has taken pool '%s' on %s for itself, "
		       "so this copy may not go on; close the pool there, then "
		       "copy again",
		       c->cfg->pool, t.host);
}

int copy_read_all(struct copy *c, copy_sink sink)
{
	const uint64_t window = c->cfg->window;
	uint64_t posted = 0, taken = 0; /* bytes */
	uint64_t head = 0, tail = 0;	/* chunks */
	int ret;

	while (taken < c->size) {
		struct copy_op *op;

		while (posted < c->size && head - tail < window) {
			op = &c->ops[head % window];
			op->state = COPY_READING;
			op->at = posted;
			op->len = c->size - posted < c->chunk ? c->size - posted
							      : c->chunk;
			op->pool_data = op->data;
			ret = copy_post(c, op);
			if (ret)
				return ret;
			posted += op->len;
			head++;
		}
		ret = copy_poll(c, 100);
		if (ret)
			return ret;
		while (tail < head && !c->ops[tail % window].busy) {
			op = &c->ops[tail % window];
			ret = sink(c, op);
			if (ret)
				return ret;
			taken += op->len;
			tail++;
		}
		progress_at(&c->progress, taken);
	}
	return 0;
}
