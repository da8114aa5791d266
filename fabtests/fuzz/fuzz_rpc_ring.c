// SPDX-License-Identifier: BSD-2-Clause
/*
 * A hostile client's ring of calls, from which a server reads and in which it
 * replies.
 */
/* Included to replace functions that these files call. */
#include "util/librpc/format.c"
#include "util/librpc/slot.c"

#include "fuzz.h"

#define RING   4096u
#define LENGTH (RPC_RING_AT + RING)

static struct rpmem_rpc_server srv;
static unsigned char *pool;
static bool blocks;
static struct rpmem_rpc_call *in_work;
static uint64_t last; /* sequence of the last call */

/* A constant for the ring's seed: the same input repeats the same run. */
ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	memset(buf, 7, len);
	return (ssize_t)len;
}

static int remove_peer(struct fid_av *av, fi_addr_t *addr, size_t n,
		       uint64_t flags)
{
	return 0;
}

static struct fi_ops_av av_ops = {.size = sizeof(av_ops),
				  .remove = remove_peer};
static struct fid_av av = {.ops = &av_ops};

int rpc_error(int ret, const char *fmt, ...)
{
	return ret;
}

int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	MUST(off <= LENGTH && len <= LENGTH - off);
	return 0;
}

void rp_pmem_drain(struct rp_pmem *pm)
{
}

bool rp_pmem_blocks(const struct rp_pmem *pm)
{
	return blocks;
}

int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err)
{
	*addr = 0;
	return 0;
}

int rpc_port_send(struct rpc_port *p, fi_addr_t to, const struct rpc_msg *m)
{
	MUST(m->bytes >= pool + RPC_RING_AT &&
	     m->bytes + m->result.len <= pool + LENGTH);
	return 0;
}

void server_publish(struct rpmem_rpc_server *s)
{
}

void server_fail(struct rpmem_rpc_server *s, int ret, const char *why)
{
	MUST(!"a client cannot end the server");
}

static void end_server(void)
{
	struct call *c;

	while ((c = TAILQ_FIRST(&srv.calls))) {
		TAILQ_REMOVE(&srv.calls, c, link);
		free(c);
	}
	free(in_work);
	in_work = NULL;
}

/*
 * Start the server on the pool. If it refuses the pool, start it on an empty
 * one.
 */
static void start_server(void)
{
	struct slot *s = &srv.slots[0];

	memset(&srv, 0, sizeof(srv));
	pthread_mutex_init(&srv.lock, NULL);
	pthread_cond_init(&srv.ready, NULL);
	pthread_cond_init(&srv.dirty, NULL);
	TAILQ_INIT(&srv.calls);
	TAILQ_INIT(&srv.dirty_slots);
	srv.nslots = 1;
	srv.port.f.av = &av;
	s->map = pool;
	if (slot_open(&srv, s, LENGTH, "fuzz")) {
		end_server();
		memset(pool, 0, LENGTH);
		*s = (struct slot){.map = pool};
		MUST(!slot_open(&srv, s, LENGTH, "fuzz"));
	}
	s->attached = true;
	last = 0;
}

static void next_call(void)
{
	struct call *c;

	slot_scan(&srv, &srv.slots[0]);
	c = TAILQ_FIRST(&srv.calls);
	if (!c)
		return;
	/*
	 * Calls come one at a time, in the order of their sequences, and fit in
	 * the ring.
	 */
	MUST(!in_work && !TAILQ_NEXT(c, link) && c->call.sequence > last);
	MUST(rpc_entry_size(c->call.len, c->call.reply_max) <= RING);
	last = c->call.sequence;
	TAILQ_REMOVE(&srv.calls, c, link);
	in_work = &c->call;
}

static void reply(size_t len)
{
	static const unsigned char bytes[RING];

	if (!in_work)
		return;
	if (len > in_work->reply_max)
		len = in_work->reply_max;
	MUST(!rpmem_rpc_reply(&srv, in_work, bytes, len));
	in_work = NULL;
}

static void run_flusher(void)
{
	struct slot *s = TAILQ_FIRST(&srv.dirty_slots);

	if (!s)
		return;
	TAILQ_REMOVE(&srv.dirty_slots, s, link);
	pthread_mutex_lock(&srv.lock);
	slot_flush(&srv, s);
	slot_send(&srv, s);
	pthread_mutex_unlock(&srv.lock);
}

/* A small number, or one near a limit of its type. */
static uint64_t number(struct fuzz_in *in)
{
	const uint64_t v = fuzz_u8(in);

	return v < 224 ? v : v < 240 ? 255 - v - 16 : fuzz_u64(in);
}

static void write_super(struct fuzz_in *in)
{
	struct rpc_super s = srv.slots[0].super;

	s.turn += number(in);
	s.head_pos = number(in) * RPC_ALIGN;
	s.head_n = number(in);
	s.first_n = number(in);
	s.incarnation = (uint32_t)number(in);
	s.head_incarnation = (uint32_t)number(in);
	s.kind = fuzz_u8(in) % 4;
	s.name_len = (uint32_t)number(in);
	if (fuzz_u8(in) == 255)
		s.ring = number(in) * RPC_ALIGN;
	rpc_super_encode(&s, pool + s.turn % 2 * RPC_SLOT);
}

/* Write an entry at the server's cursor or elsewhere, with right checksums. */
static void write_entry(struct fuzz_in *in)
{
	const uint64_t seed = srv.slots[0].super.seed;
	const bool next = fuzz_u8(in) % 4;
	const struct rpc_cursor *c = &srv.slots[0].next;
	struct rpc_entry e = {
		.pos = (next ? c->pos : 0) + number(in) * RPC_ALIGN,
		.n = (next ? c->n : 0) + number(in),
		.incarnation = (next ? srv.slots[0].super.incarnation : 0) +
			       (uint32_t)number(in),
		.head_incarnation = (uint32_t)number(in),
		.len = fuzz_u16(in),
		.room = (uint32_t)number(in) * 16,
	};
	const uint64_t at = (e.pos + fuzz_u8(in) / 200 * RPC_ALIGN) % RING /
			    RPC_ALIGN * RPC_ALIGN;
	unsigned char *to = pool + RPC_RING_AT + at;
	struct rpc_result r = {0};

	e.head_pos = e.pos - number(in) * RPC_ALIGN;
	e.head_n = e.n - number(in);
	e.durable = e.n - number(in);
	if (e.len > RING - at - RPC_HEADER)
		e.len = (uint32_t)(RING - at - RPC_HEADER);
	rpc_entry_encode(seed, &e, to);
	if (fuzz_u8(in) % 8 || rpc_entry_size(e.len, 0) > RING - at)
		return;
	to += rpc_entry_result(e.len);
	rpc_result_encode(seed, rpc_sequence(e.incarnation, e.n), 0, to, to);
	MUST(rpc_result_decode(seed, to, e.room,
			       rpc_sequence(e.incarnation, e.n), &r));
}

static void poke(struct fuzz_in *in)
{
	const size_t at = fuzz_u16(in) % LENGTH, len = fuzz_u8(in);

	fuzz_bytes(in, pool + at, len < LENGTH - at ? len : LENGTH - at);
}

static void step(struct fuzz_in *in)
{
	switch (fuzz_u8(in) % 9) {
	case 0:
		write_super(in);
		break;
	case 1:
	case 2:
		write_entry(in);
		break;
	case 3:
		poke(in);
		break;
	case 4:
		if (slot_is_written(&srv.slots[0]))
			slot_attach(&srv, &srv.slots[0]);
		break;
	case 5:
		next_call();
		break;
	case 6:
		reply(fuzz_u16(in));
		break;
	case 7:
		run_flusher();
		break;
	default:
		blocks = fuzz_u8(in) % 2;
		end_server();
		start_server();
	}
	MUST(srv.slots[0].super.ring == RING);
}

/* Input: for each step one byte, followed by the bytes that the step reads. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};

	pool = calloc(1, LENGTH);
	MUST(pool);
	blocks = fuzz_u8(&in) % 2;
	start_server();
	while (in.left)
		step(&in);
	end_server();
	free(pool);
	return 0;
}
