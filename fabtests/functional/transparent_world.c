// SPDX-License-Identifier: BSD-2-Clause
/*
 * The libfabric objects of random programs. All programs share domains and
 * memory.
 */
/* Newer headers deprecate poll and wait sets, which programs still use. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "functional/transparent.h"
#include "unit/landing.h"

#define ARENA (64u << 20)
#define QUEUE 128

static const uint64_t cntr_bits[TP_CNTRS] = {
	FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE,
};

ssize_t tp_must(ssize_t ret, const char *what, const char *file, int line)
{
	if (ret >= 0)
		return ret;
	fprintf(stderr, "# %s:%d: %s: %s\n", file, line, what,
		fi_strerror((int)-ret));
	_exit(3);
}

/* --- domains and memory --- */

static void add_memory(struct tp_world *w, int s, int which)
{
	static const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct tp_side *side = &w->side[s];
	bool pmem = which != TP_MEM_PLAIN && w->layered && !w->quiet;
	int fd = -1, share = MAP_PRIVATE | MAP_ANONYMOUS;
	char path[] = "transparent_pool.XXXXXX";

	if (which == TP_MEM_FILE) {
		fd = mkstemp(path);
		if (fd < 0)
			TP_MUST(-errno);
		TP_MUST(-posix_fallocate(fd, 0, TP_REGION));
		share = MAP_SHARED;
	}
	side->mem[which] =
		mmap(NULL, TP_REGION, PROT_READ | PROT_WRITE, share, fd, 0);
	if (side->mem[which] == MAP_FAILED)
		TP_MUST(-errno);
	peers_write_here(side->mem[which], TP_REGION);
	for (size_t i = 0; which < TP_MEM_QUICK && i < TP_READ_ZONE; i++)
		side->mem[which][i] = (char)tp_static(s, i);
	TP_MUST(fi_mr_reg(side->domain, side->mem[which], TP_REGION, access, 0,
			  1 + which, pmem ? FI_RMA_PMEM : 0, &side->mr[which],
			  NULL));
	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
}

void tp_world_open(struct tp_world *w, const char *prov, bool layered,
		   uint64_t batch_seed)
{
	struct tp_rng r = {batch_seed};
	const struct tp_features *f = w->f;

	w->prov = prov;
	w->layered = layered;
	w->tidy = strncmp(prov, "sockets", 7);
	w->quiet = tp_chance(&r, 10);
	w->automatic = tp_chance(&r, 15);
	/*
	 * With automatic progress, a thread of ofi_rxm 1.17 takes the receive
	 * for a message that arrives out of its list without the list's lock,
	 * unless this is off: some receives never complete.
	 */
	setenv("FI_OFI_RXM_ENABLE_DYN_RBUF", w->automatic ? "0" : "1", 1);
	w->rng.s = batch_seed;
	w->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->arena == MAP_FAILED)
		TP_MUST(-errno);
	peers_write_here(w->arena, ARENA);
	for (int s = 0; s < TP_SIDES; s++) {
		struct tp_side *side = &w->side[s];

		side->info = tp_getinfo(
			prov,
			tp_wanted_caps(f) |
				(layered && !w->quiet ? FI_RMA_PMEM : 0),
			w->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL);
		if (!side->info)
			TP_MUST(-FI_ENODATA);
		TP_MUST(fi_fabric(side->info->fabric_attr, &side->fabric,
				  NULL));
		TP_MUST(fi_domain(side->fabric, side->info, &side->domain,
				  NULL));
		for (int i = 0; i < 4; i++)
			add_memory(w, s, i);
	}
}

void tp_world_close(struct tp_world *w)
{
	for (int s = 0; s < TP_SIDES; s++) {
		struct tp_side *side = &w->side[s];

		for (int i = 0; i < 4; i++) {
			TP_MUST(fi_close(&side->mr[i]->fid));
			munmap(side->mem[i], TP_REGION);
		}
		TP_MUST(fi_close(&side->domain->fid));
		TP_MUST(fi_close(&side->fabric->fid));
		fi_freeinfo(side->info);
	}
	munmap(w->arena, ARENA);
}

/* --- the objects of one program --- */

static struct tp_cq *add_cq(struct tp_world *w, int s, int which)
{
	const struct tp_setup *setup = &w->p->setup;
	struct tp_cq *cq = &w->cq[w->ncq++];
	struct fi_cq_attr attr = {
		.format = setup->format[s][which],
		.wait_obj = setup->wait[s] ? FI_WAIT_FD : FI_WAIT_NONE,
	};

	cq->format = attr.format;
	cq->side = s;
	cq->wait = setup->wait[s];
	TP_MUST(fi_cq_open(w->side[s].domain, &attr, &cq->fid, NULL));
	return cq;
}

static void bind_cqs(struct tp_world *w, int n)
{
	const struct tp_setup *setup = &w->p->setup;
	int s = tp_side_of(n), share = setup->share[s];
	struct tp_ep *ep = &w->ep[n], *first = &w->ep[2 * s];
	uint64_t tx = FI_TRANSMIT, rx = FI_RECV;

	if (share < 2 || ep == first) {
		ep->tx = add_cq(w, s, 0);
		ep->rx = share & 1 ? add_cq(w, s, 1) : ep->tx;
	} else {
		ep->tx = first->tx;
		ep->rx = first->rx;
	}
	if (setup->selective[n])
		tx |= FI_SELECTIVE_COMPLETION;
	if (setup->rx_selective[n])
		rx |= FI_SELECTIVE_COMPLETION;
	TP_MUST(fi_ep_bind(ep->fid, &ep->tx->fid->fid, tx));
	TP_MUST(fi_ep_bind(ep->fid, &ep->rx->fid->fid, rx));
}

static void open_ep(struct tp_world *w, int n)
{
	struct tp_side *side = &w->side[tp_side_of(n)];
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP,
				    .wait_obj = FI_WAIT_NONE};
	struct fi_info *i = fi_dupinfo(side->info);
	struct tp_ep *ep = &w->ep[n];

	memset(ep, 0, sizeof(*ep));
	i->tx_attr->op_flags = w->p->setup.op_flags[n];
	i->tx_attr->size = QUEUE;
	i->rx_attr->size = QUEUE;
	TP_MUST(fi_endpoint(side->domain, i, &ep->fid, NULL));
	fi_freeinfo(i);
	bind_cqs(w, n);
	TP_MUST(fi_ep_bind(ep->fid, &side->av->fid, 0));
	TP_MUST(fi_ep_bind(ep->fid, &side->eq->fid, 0));
	for (int c = 0; c < TP_CNTRS; c++) {
		if (!(w->p->setup.cntr[n] & 1u << c))
			continue;
		TP_MUST(fi_cntr_open(side->domain, &attr, &ep->cntr[c], NULL));
		TP_MUST(fi_ep_bind(ep->fid, &ep->cntr[c]->fid, cntr_bits[c]));
	}
	TP_MUST(fi_enable(ep->fid));
	ep->len = sizeof(ep->name);
	TP_MUST(fi_getname(&ep->fid->fid, ep->name, &ep->len));
}

static void exchange_addresses(struct tp_world *w, int s)
{
	struct tp_op nobody = {
		.count = 1, .verb = TP_INSERT, .how = 1, .ep = 2 * s};
	struct tp_side *side = &w->side[s];
	fi_addr_t addr;

	for (int i = 0; i < w->p->setup.before[s]; i++)
		tp_do_addresses(w, &nobody);
	for (int n = 0; n < TP_EPS; n++) {
		if (!w->ep[n].fid || (n == TP_UNKNOWN && s != tp_side_of(n)))
			continue;
		if (fi_av_insert(side->av, w->ep[n].name, 1, &addr, 0, NULL) !=
		    1)
			TP_MUST(-FI_EADDRNOTAVAIL);
		if (w->p->setup.av[s] == FI_AV_TABLE)
			tp_saw(w->t, -1, "side %d: ep%d is address %llu", s, n,
			       (unsigned long long)addr);
		for (int i = 0; i < 2; i++)
			w->ep[2 * s + (s < 2 ? i : 0)].peer[n] = addr;
	}
}

/*
 * Let endpoints connect in turn: two that connect to each other at the same
 * time may lose their first messages (ofi_rxm 1.17 on the bare base).
 */
static void shake_hands(struct tp_world *w, int from, int to)
{
	struct tp_op *o = w->hello;
	struct tp_deadline deadline = tp_deadline();

	for (int i = 0; i < 2; i++) {
		if (i)
			tp_count_posted(w, &(struct tp_op){.verb = TP_SEND,
							   .ep = from,
							   .peer = to});
		memset(&o[i], 0, sizeof(o[i]));
		o[i].verb = i ? TP_SEND : TP_RECV;
		o[i].form = TP_MSG;
		o[i].flags = FI_COMPLETION;
		o[i].ep = i ? from : to;
		o[i].peer = i ? to : -1;
		o[i].tagged = true;
		o[i].tag = 1ull << 61;
		o[i].buf = w->arena;
		TP_MUST(tp_post(w, &o[i]));
	}
	while ((!o[0].got || !o[1].got) && tp_time_left(&deadline))
		tp_poll(w);
	w->stuck = !o[0].got || !o[1].got;
	if (w->stuck)
		tp_saw(w->t, -1, "ep%d and ep%d do not meet", from, to);
	for (int i = 0; i < 2; i++)
		w->ep[i ? from : to].counted[i ? TP_C_SEND : TP_C_RECV]++;
}

static void shake_all_hands(struct tp_world *w)
{
	for (int from = TP_EPS - 1; from >= 0; from--)
		for (int to = 0; w->ep[from].fid && to < from; to++)
			if (w->ep[to].fid && !w->stuck)
				shake_hands(w, from, to);
}

void tp_stage_open(struct tp_world *w)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_UNSPEC, .flags = FI_WRITE};

	w->open = true;
	w->ncq = 0;
	w->ndummy = 0;
	memset(w->cell, 0, sizeof(w->cell));
	for (int s = 0; s < TP_SIDES; s++) {
		struct fi_av_attr av = {.type = w->p->setup.av[s]};

		TP_MUST(fi_av_open(w->side[s].domain, &av, &w->side[s].av,
				   NULL));
		TP_MUST(fi_eq_open(w->side[s].fabric, &eq, &w->side[s].eq,
				   NULL));
		for (int i = 0; i < TP_MEM_QUICK; i++)
			memset(w->side[s].mem[i] + TP_REGION - 8 * TP_CELLS, 0,
			       8 * TP_CELLS);
	}
	for (int n = 0; n < TP_EPS; n++) {
		w->ep[n].fid = NULL;
		if (n % 2 < w->p->setup.neps[tp_side_of(n)])
			open_ep(w, n);
	}
	for (int s = 0; s < TP_SIDES; s++)
		exchange_addresses(w, s);
	shake_all_hands(w);
}

void tp_stage_close(struct tp_world *w)
{
	w->open = false;
	for (int n = 0; n < TP_EPS; n++) {
		if (!w->ep[n].fid)
			continue;
		TP_MUST(fi_close(&w->ep[n].fid->fid));
		for (int c = 0; c < TP_CNTRS; c++)
			if (w->ep[n].cntr[c])
				TP_MUST(fi_close(&w->ep[n].cntr[c]->fid));
	}
	for (int i = 0; i < w->ncq; i++)
		TP_MUST(fi_close(&w->cq[i].fid->fid));
	for (int s = 0; s < TP_SIDES; s++) {
		TP_MUST(fi_close(&w->side[s].av->fid));
		TP_MUST(fi_close(&w->side[s].eq->fid));
	}
}
