// SPDX-License-Identifier: BSD-2-Clause
/*
 * A server of librpmem_rpc without threads; and functions that both rpc_rig.c
 * and crash_rpc.c replace.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "rpc_stub.h"

void rpmem_pool_close(struct rpmem_pool *pool)
{
}

const char *rpmem_pool_error(void)
{
	return "an error of the pool";
}

int rpc_port_open(struct rpc_port *p, const struct rp_fabric_attr *attr,
		  unsigned int n, char *err)
{
	memset(p, 0, sizeof(*p));
	p->name_len = 3;
	memcpy(p->name, "sim", 3);
	return 0;
}

void rpc_port_close(struct rpc_port *p)
{
}

int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err)
{
	*addr = 0;
	return 0;
}

void server_publish(struct rpmem_rpc_server *srv)
{
	rpc_page_encode(&srv->page, srv->slots[0].map + RPC_PAGE_AT);
}

struct rpmem_rpc_server *rpc_stub_start(unsigned char *map, uint64_t length,
					uint64_t token)
{
	struct rpmem_rpc_server *srv = calloc(1, sizeof(*srv));

	if (!srv)
		exit(99);
	pthread_mutex_init(&srv->lock, NULL);
	pthread_cond_init(&srv->ready, NULL);
	pthread_cond_init(&srv->dirty, NULL);
	TAILQ_INIT(&srv->calls);
	TAILQ_INIT(&srv->dirty_slots);
	srv->nslots = srv->page.slots = 1;
	srv->page.name_len = 3;
	srv->page.token = token;
	srv->slots[0].map = map;
	if (slot_open(srv, &srv->slots[0], length, "sim")) {
		free(srv);
		return NULL;
	}
	server_publish(srv);
	return srv;
}

static struct call *take_call(struct rpmem_rpc_server *srv)
{
	struct call *c = TAILQ_FIRST(&srv->calls);

	if (c)
		TAILQ_REMOVE(&srv->calls, c, link);
	return c;
}

struct rpmem_rpc_call *rpc_stub_next(struct rpmem_rpc_server *srv)
{
	struct call *c;

	slot_scan(srv, &srv->slots[0]);
	c = take_call(srv);
	return c ? &c->call : NULL;
}

void rpc_stub_end(struct rpmem_rpc_server *srv)
{
	struct call *c;

	while (srv && (c = take_call(srv)))
		free(c);
	free(srv);
}
