// SPDX-License-Identifier: BSD-2-Clause
/* The simulated provider pmsim: fi_getinfo(), queues and counters. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "unit/sim_pair.h"

Test(pmsim, is_found_by_name_only)
{
	struct fi_info *h, *list = NULL;

	sim_start();
	h = fi_allocinfo();
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG;
	if (!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list)) {
		for (struct fi_info *i = list; i; i = i->next)
			cr_assert_not(
				strstr(i->fabric_attr->prov_name, "pmsim"));
		fi_freeinfo(list);
	}
	h->fabric_attr->prov_name = strdup("pmsim;^ofi_rpmem");
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list));
	cr_assert_null(list->next);
	cr_assert_str_eq(list->fabric_attr->prov_name, "pmsim");
	fi_freeinfo(list);
	h->domain_attr->data_progress = FI_PROGRESS_AUTO;
	cr_assert_eq(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list),
		     -FI_ENODATA);
	fi_freeinfo(h);
}

Test(pmsim, hears_of_hidden_demands)
{
	static const struct pmsim_cfg cfg = {.prov_keys = true,
					     .virt_addr = true};
	struct fi_info *h, *list = NULL;

	sim_start();
	sim->reset(&cfg);
	h = fi_allocinfo();
	h->fabric_attr->prov_name = strdup("pmsim");
	h->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	cr_assert_eq(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list),
		     -FI_ENODATA);
	h->domain_attr->mr_mode |= FI_MR_PROV_KEY;
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list));
	cr_assert_eq(list->domain_attr->mr_mode,
		     FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
	cr_assert_eq(list->tx_attr->msg_order, 0); /* without ordering */
	fi_freeinfo(list);
	/* Hints that need an order do not match. */
	h->tx_attr->msg_order = FI_ORDER_SAW;
	cr_assert_eq(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list),
		     -FI_ENODATA);
	fi_freeinfo(h);
}

Test(pmsim, refuses_every_nth_post)
{
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_opts o = {0};

	cfg.refuse_every = 3;
	open_pair_plain(&cfg, &o);
	for (int i = 1; i < 10; i++)
		cr_assert_eq(fi_inject(a.ep, "x", 1, a_to_b),
			     i % 3 ? 0 : -FI_EAGAIN);
	cr_assert_eq(sim->count(PMSIM_SEND), 6);
	for (int i = 1; i < 4; i++)
		cr_assert_eq(fi_recv(b.ep, mem, 1, NULL, 0, NULL),
			     i % 3 ? 0 : -FI_EAGAIN);
	end_pair();
}

Test(pmsim, counters)
{
	struct sim_opts o = {0};
	struct fid_cntr *sent, *written;
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct sim_node d = {0};
	struct fi_info *h, *i;
	fi_addr_t to;

	open_pair_plain(&plain_fabric, &o);
	/*
	 * Use another endpoint, because counters must be bound before an
	 * endpoint is enabled.
	 */
	h = fi_allocinfo();
	h->fabric_attr->prov_name = strdup("pmsim");
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, "77", FI_SOURCE, h, &i));
	MUST(fi_cntr_open(b.dom, &attr, &sent, NULL));
	MUST(fi_cntr_open(b.dom, &attr, &written, NULL));
	MUST(fi_endpoint(b.dom, i, &d.ep, NULL));
	MUST(fi_ep_bind(d.ep, &sent->fid, FI_SEND));
	MUST(fi_ep_bind(d.ep, &written->fid, FI_REMOTE_WRITE));
	MUST(fi_ep_bind(d.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(d.ep, &b.av->fid, 0));
	MUST(fi_enable(d.ep));
	MUST(fi_inject(d.ep, "x", 1, b_to_a));
	cr_assert_eq(fi_cntr_read(sent), 1);
	cr_assert_eq(fi_av_insertsvc(a.av, "here", "77", &to, 0, NULL), 1);
	MUST(fi_inject_write(a.ep, "x", 1, to, b.addr, b.key));
	sim_deliver_all();
	cr_assert_eq(fi_cntr_read(written), 1);
	cr_assert_eq(mem[0], 'x');
	MUST(fi_close(&d.ep->fid));
	MUST(fi_close(&sent->fid));
	MUST(fi_close(&written->fid));
	fi_freeinfo(i);
	fi_freeinfo(h);
	end_pair();
}

/* Key numbers are counted per machine, or for all machines together. */
static void reset_counts_again(bool fixed_keys)
{
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_opts o = {.prov_keys = true};
	struct sim_node old_a, old_b;
	struct pmsim_wire w;

	cfg.prov_keys = true;
	cfg.fixed_keys = fixed_keys;
	cfg.refuse_every = 3;
	open_pair_plain(&cfg, &o);
	MUST(fi_inject(a.ep, "x", 1, a_to_b));
	w = sim_wire(0);
	sim->break_wire(w.id, 0);
	old_a = a;
	old_b = b;
	close_two();
	sim->reset(NULL);
	cr_assert_eq(sim->count(PMSIM_SEND), 0);
	pair_open(&o);
	node_memory(&b, mem, sizeof(mem), 0, 0);
	cr_assert_arr_eq(a.name, old_a.name, sizeof(a.name));
	cr_assert_arr_eq(b.name, old_b.name, sizeof(b.name));
	cr_assert_eq(b.key, old_b.key);
	/* Every third post since the reset fails. */
	for (int i = 1; i < 4; i++)
		cr_assert_eq(fi_inject(a.ep, "x", 1, a_to_b),
			     i % 3 ? 0 : -FI_EAGAIN);
	cr_assert_eq(sim_wire(0).id, w.id);
	cr_assert_eq(sim_wire(0).qp, w.qp);
	cr_assert_eq(sim_wire(0).in_flight, 2);
	end_pair();
}

Test(pmsim, reset_counts_again)
{
	reset_counts_again(false);
}

Test(pmsim, reset_counts_again_with_fixed_keys)
{
	reset_counts_again(true);
}

Test(pmsim, closes_in_any_order)
{
	struct sim_opts o = {0};

	open_pair_plain(&plain_fabric, &o);
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	MUST(fi_recv(a.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	for (int i = 0; i < 3; i++) {
		MUST(fi_send(a.ep, "x", 1, NULL, a_to_b, &ctx[1]));
		MUST(fi_tsend(b.ep, "x", 1, NULL, b_to_a, 1, &ctx[1]));
		MUST(write_dc("1", 1, 0, &ctx[2]));
		sim->deliver(sim_wire(0).id, 3);
		sim->deliver(sim_wire(1).id, 1);
		if (i == 1)
			node_poke(&b);
	}
	cr_assert_eq(fi_close(&a.cq->fid), -FI_EBUSY);
	cr_assert_eq(fi_close(&a.dom->fid), -FI_EBUSY);
	end_pair();
}
