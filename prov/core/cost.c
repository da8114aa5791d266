// SPDX-License-Identifier: BSD-2-Clause
/* The cost figures with their sources, and sums of them. */
#include "core/cost.h"

/*
 * Sources of the figures. "here": medians of one pair of processes over
 * loopback, tcp;ofi_rxm of libfabric 1.17, two virtual CPUs, polling, and a
 * prototype of the protocol. "Kalia": A. Kalia, D. Andersen, M. Kaminsky,
 * Challenges and Solutions for Fast Remote Persistent Memory Access, 2020,
 * section 4.3 (ConnectX-3, 56 Gbit/s, Optane). "Douglas": see method_advice.c.
 *
 *	      figure		      measured
 * CPU  write	      here: 64 B 8.8 us, 64 KiB 39.3 us
 *	ask	      here: write, request, clwb, reply of 64 B 21.0 us.
 *		      (64 KiB 63.7 us: the request travels while the write is
 *		      acknowledged. Not counted.)
 *	fence	      here: round trip of 64 B 11.6 us
 *	fences	      here: 64 writes of 64 B at once 371 us
 *	store	      here: 64 B 13.2 us, 64 KiB 60.8 us, less stream
 * DMA  write	      Kalia: 64 B 1.4 us
 *	ask	      Douglas: in all "~50% higher" than by a fence; less clwb
 *	fence	      Kalia: write and fence of 64 B 2.9 us, DDIO off
 *	fences	      not measured: half of the first
 *	store	      Kalia: 64 B by RPC 2.3 us, less stream
 * agent sfence       here: 10 ns without stores to wait for
 *	clwb	      here: 64 B 117 ns, 64 KiB 30 us; Douglas: 110 ns, 30.8 us
 *	msync	      here: 4 KiB on ext4 360 us, and bytes hardly count
 *	stream	      here: 64 B 51 ns, 64 KiB 9.8 us
 */
#define CLWB_NS	 88
#define CLWB_PS	 456
#define MSYNC_NS 360000

const struct rp_cost rp_cost_default = {
	.path[RP_PATH_CPU].write = {.ns = 8770, .ps = 466},
	.path[RP_PATH_CPU].ask_ns = 12080,
	.path[RP_PATH_CPU].fence_ns = 11600,
	.path[RP_PATH_CPU].fences_ns = 5800,
	.path[RP_PATH_CPU].store = {.ns = 13110, .ps = 579},

	.path[RP_PATH_DMA].write = {.ns = 1400, .ps = 143},
	.path[RP_PATH_DMA].ask_ns = 2830,
	.path[RP_PATH_DMA].fence_ns = 1500,
	.path[RP_PATH_DMA].fences_ns = 750,
	.path[RP_PATH_DMA].store = {.ns = 2230, .ps = 143},

	.flush[RP_METHOD_AGENT_SFENCE] = {.ns = 10},
	.flush[RP_METHOD_AGENT_CLWB] = {.ns = CLWB_NS, .ps = CLWB_PS},
	.flush[RP_METHOD_AGENT_MSYNC] = {.ns = MSYNC_NS},
	.flush[RP_METHOD_AGENT_CLWB_MSYNC] = {.ns = CLWB_NS + MSYNC_NS,
					      .ps = CLWB_PS},
	.stream = {.ns = 41, .ps = 149},
};

static uint64_t add_ns(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t line_cost(const struct rp_cost_line *l, uint64_t bytes)
{
	uint64_t ps;

	if (__builtin_mul_overflow(bytes, l->ps, &ps))
		return UINT64_MAX;
	return add_ns(l->ns, ps / 1000);
}

enum rp_path rp_cost_path_of(const struct rp_nic *nic)
{
	if (nic->placement == RP_PLACE_CPU_USER ||
	    nic->placement == RP_PLACE_CPU_KERNEL)
		return RP_PATH_CPU;
	return nic->pci[0] ? RP_PATH_DMA : RP_PATH_UNKNOWN;
}

uint64_t rp_cost_flush(const struct rp_cost *c, enum rp_method m,
		       uint64_t bytes)
{
	return line_cost(&c->flush[m], bytes);
}

bool rp_cost_streams(const struct rp_cost *c, uint64_t n)
{
	return line_cost(&c->stream, n) <=
	       rp_cost_flush(c, RP_METHOD_AGENT_CLWB, n);
}

/* Do n bytes inside the request cost more than a write before it? */
static bool costs_more(const struct rp_cost *c, const struct rp_cost_path *p,
		       enum rp_method m, size_t n)
{
	uint64_t in = add_ns(line_cost(&p->store, n), line_cost(&c->stream, n));
	uint64_t behind = add_ns(line_cost(&p->write, n),
				 add_ns(p->ask_ns, rp_cost_flush(c, m, n)));

	/* Streamed bytes need no clwb; a file needs its msync in any case. */
	if (m == RP_METHOD_AGENT_MSYNC || m == RP_METHOD_AGENT_CLWB_MSYNC)
		in = add_ns(in, c->flush[RP_METHOD_AGENT_MSYNC].ns);
	return in > behind;
}

size_t rp_cost_store_max(const struct rp_cost *c, enum rp_path path,
			 enum rp_method m, size_t limit)
{
	const struct rp_cost_path *p = &c->path[path];
	size_t low = 1, high = limit, mid;

	if (path == RP_PATH_UNKNOWN || !limit || costs_more(c, p, m, 1))
		return 0;
	/* Both costs are straight lines, so they cross at most once. */
	while (low < high) {
		mid = high - (high - low) / 2;
		if (costs_more(c, p, m, mid))
			high = mid - 1;
		else
			low = mid;
	}
	return low;
}
