// SPDX-License-Identifier: BSD-2-Clause
/* Memory of hidden operation contexts: one address range, never unmapped. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rpmem/rpmem.h"

#define CHUNK_SLOTS 128

/*
 * A completion queue may still hold a context after its endpoint is gone, and
 * the test for "ours" must not need a lock. So the range is reserved once, is
 * carved into chunks, and chunks are only ever reused by other domains.
 */
struct rp_chunk {
	struct rp_chunk *next;
	struct rp_slot slots[CHUNK_SLOTS];
};

#define HIDDEN_SIZE (1ull << RP_HIDDEN_SHIFT)

/*
 * Until it is reserved no address is in it: any word may be a program's
 * context, and none has this many bits when it is shifted.
 */
atomic_uintptr_t rp_hidden_number = UINTPTR_MAX;

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t arena_used;
static uintptr_t arena;
static struct rp_chunk *arena_free;

/* Twice as much is sure to hold one that begins where it has to. */
static int reserve(void)
{
	char *p = mmap(NULL, 2 * HIDDEN_SIZE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (p == MAP_FAILED)
		return -FI_ENOMEM;
	before = -(uintptr_t)p & (HIDDEN_SIZE - 1);
	if (before)
		munmap(p, before);
	arena = (uintptr_t)p + before;
	munmap(p + before + HIDDEN_SIZE, HIDDEN_SIZE - before);
	atomic_store(&rp_hidden_number, arena >> RP_HIDDEN_SHIFT);
	return 0;
}

static struct rp_chunk *chunk_carve(void)
{
	const size_t page = 4096;
	size_t size = (sizeof(struct rp_chunk) + page - 1) & ~(page - 1);
	void *p;

	if (!arena && reserve())
		return NULL;
	if (arena_used + size > HIDDEN_SIZE)
		return NULL;
	p = (void *)(arena + arena_used);
	if (mprotect(p, size, PROT_READ | PROT_WRITE))
		return NULL;
	arena_used += size;
	return p;
}

static struct rp_chunk *chunk_get(void)
{
	struct rp_chunk *c;

	pthread_mutex_lock(&arena_lock);
	c = arena_free;
	if (c)
		arena_free = c->next;
	else
		c = chunk_carve();
	pthread_mutex_unlock(&arena_lock);
	return c;
}

struct rp_slot *rp_slot_get(struct rp_slot_pool *p, struct rp_ep *ep,
			    enum rp_slot_kind kind)
{
	struct rp_slot *s = LIST_FIRST(&p->free);
	struct rp_chunk *c;

	if (!s) {
		c = chunk_get();
		if (!c)
			return NULL;
		c->next = p->chunks;
		p->chunks = c;
		for (int i = CHUNK_SLOTS; i-- > 0;) {
			c->slots[i].kind = RP_SLOT_FREE;
			LIST_INSERT_HEAD(&p->free, &c->slots[i], link);
		}
		s = LIST_FIRST(&p->free);
	}
	LIST_REMOVE(s, link);
	LIST_INSERT_HEAD(&p->used, s, link);
	s->ep = ep;
	s->kind = kind;
	s->posted = false;
	s->want = false;
	s->atomic = false;
	s->fetches = false;
	s->written = false;
	s->committed = false;
	s->stores = false;
	s->nwrites = 0;
	s->niov = 0;
	s->due = 0;
	s->base_err = 0;
	s->context = NULL;
	s->flags = 0;
	s->buf = NULL;
	s->mr = NULL;
	s->commit = NULL;
	s->fence = NULL;
	return s;
}

void rp_slot_put(struct rp_slot_pool *p, struct rp_slot *s)
{
	LIST_REMOVE(s, link);
	s->kind = RP_SLOT_FREE;
	s->ep = NULL;
	LIST_INSERT_HEAD(&p->free, s, link);
}

void rp_slot_pool_fini(struct rp_slot_pool *p)
{
	struct rp_chunk *c;

	pthread_mutex_lock(&arena_lock);
	while ((c = p->chunks)) {
		p->chunks = c->next;
		c->next = arena_free;
		arena_free = c;
	}
	pthread_mutex_unlock(&arena_lock);
	LIST_INIT(&p->free);
	LIST_INIT(&p->used);
}
