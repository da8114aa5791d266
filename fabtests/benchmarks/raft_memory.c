// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two storages with which raft.sh links docs/examples/raft_kv.c, instead of
 * the example's storage. The first is volatile: it reports an append or a vote
 * as stored at once, and a crash loses them. The second is librpmem_raft on
 * pools of any failure class.
 */
#include <stdlib.h>

#include <raft.h>
#include <raft/uv.h>
#include <rpmem_raft.h>
#include <uv.h>

int raft_memory_init(struct raft_io *io, struct uv_loop_s *loop,
		     const char *folder, struct raft_uv_transport *transport);
int raft_lines_init(struct raft_io *io, struct uv_loop_s *loop,
		    const char *where, const struct rpmem_raft_attr *attr);

/* A request whose callback must wait for the event loop. */
struct stored {
	struct stored *next;
	struct raft_io_append *append;
	struct raft_io_snapshot_put *put;
};

static struct stored *first, **last = &first;
static uv_async_t async;

static void run_callbacks(uv_async_t *a)
{
	struct stored *s;

	(void)a;
	while ((s = first)) {
		first = s->next;
		last = first ? last : &first;
		if (s->append)
			s->append->cb(s->append, 0);
		else
			s->put->cb(s->put, 0);
		free(s);
	}
}

static int add(struct stored request)
{
	struct stored *s = malloc(sizeof(*s));

	if (!s)
		return RAFT_NOMEM;
	*s = request;
	*last = s;
	last = &s->next;
	uv_async_send(&async);
	return 0;
}

static int append(struct raft_io *io, struct raft_io_append *req,
		  const struct raft_entry entries[], unsigned int n,
		  raft_io_append_cb cb)
{
	(void)io;
	(void)entries;
	(void)n;
	req->cb = cb;
	return add((struct stored){.append = req});
}

static int snapshot_put(struct raft_io *io, unsigned int trailing,
			struct raft_io_snapshot_put *req,
			const struct raft_snapshot *snapshot,
			raft_io_snapshot_put_cb cb)
{
	(void)io;
	(void)trailing;
	(void)snapshot;
	req->cb = cb;
	return add((struct stored){.put = req});
}

static int drop(struct raft_io *io, raft_index index)
{
	(void)io;
	(void)index;
	return 0;
}

static int set_term(struct raft_io *io, raft_term term)
{
	(void)io;
	(void)term;
	return 0;
}

static int set_vote(struct raft_io *io, raft_id id)
{
	(void)io;
	(void)id;
	return 0;
}

int raft_memory_init(struct raft_io *io, struct uv_loop_s *loop,
		     const char *folder, struct raft_uv_transport *transport)
{
	const int ret = raft_uv_init(io, loop, folder, transport);

	if (ret)
		return ret;
	uv_async_init(loop, &async, run_callbacks);
	io->append = append;
	io->snapshot_put = snapshot_put;
	io->truncate = drop;
	io->set_term = set_term;
	io->set_vote = set_vote;
	return 0;
}

int raft_lines_init(struct raft_io *io, struct uv_loop_s *loop,
		    const char *where, const struct rpmem_raft_attr *attr)
{
	struct rpmem_raft_attr any = *attr;

	any.required = RPMEM_POOL_NONE;
	return rpmem_raft_init(io, loop, where, &any);
}
