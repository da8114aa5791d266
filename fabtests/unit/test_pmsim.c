// SPDX-License-Identifier: BSD-2-Clause
/* The simulated provider, by itself and underneath ofi_rpmem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "unit/leaks.h"
#include "unit/sim_node.h"

static const struct pmsim_cfg plain = {.ordered = true, .placed_acks = true};
static char mem[256];
static struct sim_node a, b, c;
static fi_addr_t a_to_b, b_to_a;
static char ctx[16]; /* contexts */

/* Two machines of plain DRAM, a node on each, memory at b. */
static void two(const struct pmsim_cfg *cfg, const struct sim_opts *o)
{
	sim_start();
	sim->reset(cfg);
	sim->machine(NULL);
	sim->machine(NULL);
	sim_open(o);
	node_open(&a, 0, NULL);
	node_open(&b, 1, NULL);
	a_to_b = node_insert(&a, &b);
	b_to_a = node_insert(&b, &a);
	memset(mem, 0, sizeof(mem));
	node_memory(&b, mem, sizeof(mem), 7, 0);
}

static void close_two(void)
{
	node_close(&a);
	node_close(&b);
	sim_close();
}

static void done(void)
{
	close_two();
	cr_assert_not(rp_test_leaked());
}

static ssize_t write_dc(const void *buf, size_t len, size_t at, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct fi_rma_iov rma = {.addr = b.addr + at, .len = len, .key = b.key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = a_to_b,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};

	return fi_writemsg(a.ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* --- who finds it --- */

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
	cr_assert_eq(list->tx_attr->msg_order, FI_ORDER_NONE);
	fi_freeinfo(list);
	/* No order to be had: no match for who needs one. */
	h->tx_attr->msg_order = FI_ORDER_SAW;
	cr_assert_eq(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &list),
		     -FI_ENODATA);
	fi_freeinfo(h);
}

/* --- what both offer: run with and without ofi_rpmem --- */

static void messages(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	struct fi_cq_tagged_entry e;
	char got[2][8] = {{0}};

	two(&plain, &o);
	MUST(fi_recv(b.ep, got[0], 8, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	MUST(fi_send(a.ep, "one", 4, NULL, a_to_b, &ctx[1]));
	MUST(fi_senddata(a.ep, "two", 4, NULL, 99, a_to_b, &ctx[2]));
	MUST(fi_inject(a.ep, "six", 4, a_to_b));
	/* Complete at the next look, and nothing has moved. */
	node_expect(&a, &ctx[1], &e);
	cr_assert_eq(e.flags, FI_SEND | FI_MSG);
	node_expect(&a, &ctx[2], NULL);
	cr_assert(node_quiet(&a) && node_quiet(&b));
	cr_assert_eq(sim_wire(0).in_flight, 3);
	cr_assert_eq(sim->peek(sim_wire(0).id, 0), PMSIM_SEND);
	sim->deliver(sim_wire(0).id, 2);
	cr_assert_eq(sim_wire(0).in_flight, 1);
	cr_assert_eq(sim->arrived(1), 2);
	cr_assert_eq(got[0][0], 0);
	node_expect(&b, &ctx[0], &e);
	cr_assert_eq(sim->arrived(1), 0);
	cr_assert_str_eq(got[0], "one");
	cr_assert_eq(e.len, 4);
	cr_assert_eq(e.flags, FI_RECV | FI_MSG);
	/* The second one had to wait for a buffer; the third is on its way. */
	MUST(fi_recv(b.ep, got[1], 2, NULL, FI_ADDR_UNSPEC, &ctx[3]));
	cr_assert_eq(node_expect_error(&b, &ctx[3]), FI_ETRUNC);
	MUST(fi_recv(b.ep, got[1], 8, NULL, FI_ADDR_UNSPEC, &ctx[4]));
	cr_assert(node_quiet(&b));
	sim_deliver_all();
	node_expect(&b, &ctx[4], &e);
	cr_assert_str_eq(got[1], "six");
	cr_assert_eq(sim->outstanding(0), 0);
	cr_assert_eq(sim->count(PMSIM_SEND), 3);
	done();
}

Test(pmsim, messages)
{
	messages(NULL);
}

Test(rpmem_on_pmsim, messages)
{
	messages("pmsim;ofi_rpmem");
}

static void tagged(const char *prov)
{
	struct sim_opts o = {.prov = prov, .av = FI_AV_TABLE};
	struct fi_cq_tagged_entry e;
	char got[3][8] = {{0}};
	fi_addr_t src;

	two(&plain, &o);
	MUST(fi_trecv(b.ep, got[0], 8, NULL, FI_ADDR_UNSPEC, 5, 0, &ctx[0]));
	MUST(fi_trecv(b.ep, got[1], 8, NULL, FI_ADDR_UNSPEC, 0x10, 0xf,
		      &ctx[1]));
	MUST(fi_tsend(a.ep, "b", 2, NULL, a_to_b, 0x13, &ctx[2]));
	MUST(fi_tinject(a.ep, "c", 2, a_to_b, 6));
	MUST(fi_tsenddata(a.ep, "a", 2, NULL, 42, a_to_b, 5, &ctx[3]));
	sim_deliver_all();
	cr_assert_eq(fi_cq_readfrom(b.cq, &e, 1, &src), 1);
	cr_assert_eq(e.op_context, &ctx[1]);
	cr_assert_eq(e.tag, 0x13);
	cr_assert_eq(src, b_to_a);
	cr_assert_str_eq(got[1], "b");
	node_expect(&b, &ctx[0], &e);
	cr_assert_eq(e.data, 42);
	cr_assert_eq(e.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	cr_assert_str_eq(got[0], "a");
	cr_assert(node_quiet(&b));
	MUST(fi_trecv(b.ep, got[2], 8, NULL, b_to_a, 6, 0, &ctx[4]));
	node_expect(&b, &ctx[4], &e);
	cr_assert_str_eq(got[2], "c");
	/* A receive that nobody answers can be called back. */
	MUST(fi_trecv(b.ep, got[2], 8, NULL, FI_ADDR_UNSPEC, 9, 0, &ctx[5]));
	MUST(fi_cancel(&b.ep->fid, &ctx[5]));
	cr_assert_eq(node_expect_error(&b, &ctx[5]), FI_ECANCELED);
	done();
}

Test(pmsim, tagged)
{
	tagged(NULL);
}

Test(rpmem_on_pmsim, tagged)
{
	tagged("pmsim;ofi_rpmem");
}

static void rma(const char *prov, bool virt_addr, bool prov_keys)
{
	struct pmsim_cfg cfg = plain;
	struct sim_opts o = {.prov = prov, .prov_keys = prov_keys};
	struct fi_cq_tagged_entry e;
	char got[8] = {0};

	cfg.virt_addr = virt_addr;
	cfg.prov_keys = prov_keys;
	two(&cfg, &o);
	MUST(fi_write(a.ep, "plain", 6, NULL, a_to_b, b.addr, b.key, &ctx[0]));
	MUST(write_dc("ack", 4, 8, &ctx[1]));
	MUST(fi_inject_write(a.ep, "inj", 4, a_to_b, b.addr + 16, b.key));
	MUST(fi_writedata(a.ep, "dat", 4, NULL, 77, a_to_b, b.addr + 24, b.key,
			  &ctx[2]));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr, b.key, &ctx[3]));
	node_expect(&a, &ctx[0], &e);
	cr_assert_eq(e.flags, FI_RMA | FI_WRITE);
	node_expect(&a, &ctx[2], NULL);
	cr_assert_eq(sim->outstanding(0), 2);
	sim_deliver_all();
	cr_assert(node_quiet(&a));
	cr_assert_eq(mem[0], 0, "nothing is stored before b looks");
	node_expect(&b, NULL, &e);
	cr_assert_eq(e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	cr_assert_eq(e.data, 77);
	cr_assert_str_eq(mem, "plain");
	cr_assert_str_eq(mem + 8, "ack");
	cr_assert_str_eq(mem + 16, "inj");
	cr_assert_str_eq(mem + 24, "dat");
	cr_assert(node_quiet(&a));
	cr_assert_eq(sim->peek(sim_wire(1).id, 0), PMSIM_ACK);
	cr_assert_eq(sim->peek(sim_wire(1).id, 1), PMSIM_RESPONSE);
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	node_expect(&a, &ctx[3], &e);
	cr_assert_eq(e.flags, FI_RMA | FI_READ);
	cr_assert_str_eq(got, "plain");
	done();
}

Test(pmsim, rma)
{
	rma(NULL, false, false);
}

Test(pmsim, rma_by_address)
{
	rma(NULL, true, true);
}

Test(rpmem_on_pmsim, rma)
{
	rma("pmsim;ofi_rpmem", false, false);
}

Test(rpmem_on_pmsim, rma_by_address)
{
	rma("pmsim;ofi_rpmem", true, true);
}

static void refused_accesses(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	uint64_t key;

	two(&plain, &o);
	key = b.key;
	b.key = 8;
	MUST(write_dc("x", 1, 0, &ctx[0]));
	b.key = key;
	MUST(write_dc("x", 2, sizeof(mem) - 1, &ctx[1]));
	MUST(write_dc("x", 1, UINT64_MAX, &ctx[2]));
	/* Nobody is told of this one. */
	MUST(fi_write(a.ep, "x", 1, NULL, a_to_b, sizeof(mem), key, &ctx[3]));
	node_expect(&a, &ctx[3], NULL);
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ENOKEY);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_EACCES);
	cr_assert_eq(node_expect_error(&a, &ctx[2]), FI_EACCES);
	cr_assert(node_quiet(&a));
	for (size_t i = 0; i < sizeof(mem); i++)
		cr_assert_eq(mem[i], 0);
	done();
}

Test(pmsim, refused_accesses)
{
	refused_accesses(NULL);
}

Test(rpmem_on_pmsim, refused_accesses)
{
	refused_accesses("pmsim;ofi_rpmem");
}

/* --- breaks --- */

static void breaks(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	unsigned int id, qp;

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	MUST(fi_write(a.ep, "3", 1, NULL, a_to_b, b.addr + 2, b.key, &ctx[2]));
	MUST(write_dc("4", 1, 3, &ctx[3]));
	id = sim_wire(0).id;
	qp = sim_wire(0).qp;
	/* One has arrived, three are in flight; two of the four get there. */
	sim->deliver(id, 1);
	cr_assert_eq(sim_wire(0).arrived, 1);
	sim->break_wire(id, 2);
	cr_assert_eq(sim->arrived(1), 2);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	/* This one was handed over, and that is all it says. */
	node_expect(&a, &ctx[2], NULL);
	/* A new connection, silently; nothing of the old one is answered. */
	MUST(write_dc("5", 1, 4, &ctx[4]));
	cr_assert_eq(sim_wire(0).id, id);
	cr_assert_neq(sim_wire(0).qp, qp);
	sim_deliver_all();
	node_poke(&b);
	cr_assert_arr_eq(mem, "12\0\0005", 5);
	cr_assert_eq(sim_wire(1).in_flight, 1);
	sim_deliver_all();
	node_expect(&a, &ctx[4], NULL);
	cr_assert(node_quiet(&a));
	done();
}

Test(pmsim, breaks)
{
	breaks(NULL);
}

Test(rpmem_on_pmsim, breaks)
{
	breaks("pmsim;ofi_rpmem");
}

Test(pmsim, break_loses_both_directions)
{
	struct sim_opts o = {0};
	struct pmsim_wire w[4];
	unsigned int id;

	two(&plain, &o);
	MUST(fi_inject(a.ep, "x", 1, a_to_b));
	id = sim_wire(0).id;
	MUST(fi_inject(b.ep, "y", 1, b_to_a));
	cr_assert_eq(sim->wires(w, 4), 2);
	sim->break_wire(id, 0);
	cr_assert_eq(sim->wires(w, 4), 0);
	cr_assert_eq(sim->arrived(0) + sim->arrived(1), 0);
	done();
}

Test(pmsim, break_keeps_what_came_back)
{
	struct sim_opts o = {0};
	unsigned int id;

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	id = sim_wire(0).id;
	sim_deliver_all();
	node_poke(&b);
	/* One acknowledgement is there, the other still on its way. */
	sim->deliver(sim_wire(1).id, 1);
	sim->break_wire(id, 0);
	/* The failure is told at once, the other when the program looks. */
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(sim->outstanding(0), 0);
	done();
}

Test(pmsim, break_loses_acknowledgements_that_nobody_saw)
{
	struct sim_opts o = {0};

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	sim->deliver(sim_wire(1).id, 0);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* In the buffer of the initiator's socket is lost as well. */
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	MUST(fi_inject(b.ep, "x", 1, b_to_a));
	sim->deliver(sim_wire(1).id, 1);
	cr_assert_eq(sim_wire(1).arrived, 1);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(sim->arrived(0), 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert(node_quiet(&a));
	done();
}

/* --- lives --- */

static void lives(const char *prov)
{
	struct pmsim_cfg cfg = plain;
	struct sim_opts o = {.prov = prov, .prov_keys = true};
	struct sim_node dead;
	uint64_t key;

	cfg.prov_keys = true;
	cfg.fixed_keys = true;
	two(&cfg, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(fi_inject(a.ep, "?", 1, a_to_b));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[6]));
	MUST(fi_cancel(&b.ep->fid, &ctx[6]));
	sim_deliver_all();
	sim->kill(1);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* It says nothing, not even what it had to say, and can be closed. */
	cr_assert(node_quiet(&b));
	cr_assert_lt(fi_inject(b.ep, "!", 1, b_to_a), 0);
	cr_assert_eq(sim->arrived(1), 0);
	cr_assert_eq(mem[0], 0);
	/* Nobody has the address now. */
	MUST(write_dc("2", 1, 0, &ctx[3]));
	cr_assert_eq(sim->outstanding(0), 1);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	dead = b;
	node_open(&b, 1, dead.name);
	cr_assert_arr_eq(b.name, dead.name, sizeof(b.name));
	node_memory(&b, mem, sizeof(mem), 0, 0);
	key = b.key;
	if (!prov)
		cr_assert_eq(key, dead.key, "base keys are the same again");
	else
		cr_assert_neq(key, dead.key);
	/* The same fi_addr_t, and a base that takes the old key. */
	MUST(write_dc("3", 1, 0, &ctx[4]));
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	node_expect(&a, &ctx[4], NULL);
	cr_assert_eq(mem[0], '3');
	node_close(&dead);
	MUST(write_dc("4", 1, 0, &ctx[5]));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(mem[0], '4', "the dead one's close is no business of b");
	sim_deliver_all();
	node_expect(&a, &ctx[5], NULL);
	done();
}

Test(pmsim, lives)
{
	lives(NULL);
}

Test(rpmem_on_pmsim, lives)
{
	lives("pmsim;ofi_rpmem");
}

Test(pmsim, closes_in_any_order)
{
	struct sim_opts o = {0};

	two(&plain, &o);
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
	done();
}

/* --- the rest of what a provider offers --- */

Test(pmsim, selective_completion)
{
	struct sim_opts o = {.selective = true};
	struct iovec iov = {.iov_base = mem, .iov_len = 1};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};

	two(&plain, &o);
	m.addr = a_to_b;
	m.context = &ctx[1];
	MUST(fi_send(a.ep, "x", 1, NULL, a_to_b, &ctx[0]));
	MUST(fi_sendmsg(a.ep, &m, FI_COMPLETION));
	node_expect(&a, &ctx[1], NULL);
	cr_assert(node_quiet(&a));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	m.addr = b_to_a;
	MUST(fi_recvmsg(b.ep, &m, FI_COMPLETION));
	sim_deliver_all();
	node_expect(&b, &ctx[1], NULL);
	cr_assert(node_quiet(&b));
	done();
}

Test(pmsim, delivery_of_messages)
{
	struct sim_opts o = {.op_flags = FI_DELIVERY_COMPLETE};

	two(&plain, &o);
	MUST(fi_send(a.ep, "x", 1, NULL, a_to_b, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(sim_deliver_all(), 0, "nobody has received it");
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[1]));
	node_expect(&b, &ctx[1], NULL);
	cr_assert(node_quiet(&a));
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	done();
}

Test(pmsim, peek_claim_discard)
{
	struct sim_opts o = {0};
	struct fi_cq_tagged_entry e;
	struct fi_context one, two_;
	char got[4] = {0};
	struct iovec iov = {.iov_base = got, .iov_len = sizeof(got)};
	struct fi_msg_tagged m = {
		.addr = FI_ADDR_UNSPEC,
		.tag = 1,
		.context = &one,
	};

	two(&plain, &o);
	MUST(fi_trecvmsg(b.ep, &m, FI_PEEK));
	cr_assert_eq(node_expect_error(&b, &one), FI_ENOMSG);
	MUST(fi_tinject(a.ep, "abc", 3, a_to_b, 1));
	MUST(fi_tinject(a.ep, "def", 3, a_to_b, 1));
	MUST(fi_tinject(a.ep, "ghi", 3, a_to_b, 1));
	sim_deliver_all();
	MUST(fi_trecvmsg(b.ep, &m, FI_PEEK));
	node_expect(&b, &one, &e);
	cr_assert_eq(e.len, 3);
	MUST(fi_trecvmsg(b.ep, &m, FI_PEEK | FI_CLAIM));
	node_expect(&b, &one, &e);
	m.context = &two_;
	MUST(fi_trecvmsg(b.ep, &m, FI_PEEK | FI_DISCARD));
	node_expect(&b, &two_, &e);
	MUST(fi_trecv(b.ep, got, 4, NULL, FI_ADDR_UNSPEC, 1, 0, &ctx[0]));
	node_expect(&b, &ctx[0], NULL);
	cr_assert_str_eq(got, "ghi");
	m.context = &one;
	m.msg_iov = &iov;
	m.iov_count = 1;
	MUST(fi_trecvmsg(b.ep, &m, FI_CLAIM));
	node_expect(&b, &one, &e);
	cr_assert_str_eq(got, "abc");
	done();
}

Test(pmsim, directed_receives_and_sources)
{
	struct sim_opts o = {0};
	struct fi_cq_tagged_entry e;
	fi_addr_t b_to_c, src;
	char got[2][2] = {{0}};

	two(&plain, &o);
	node_open(&c, 0, NULL);
	b_to_c = node_insert(&b, &c);
	MUST(fi_recv(b.ep, got[0], 2, NULL, b_to_c, &ctx[0]));
	MUST(fi_recv(b.ep, got[1], 2, NULL, FI_ADDR_UNSPEC, &ctx[1]));
	MUST(fi_inject(a.ep, "a", 2, a_to_b));
	MUST(fi_inject(c.ep, "c", 2, node_insert(&c, &b)));
	sim_deliver_all();
	cr_assert_eq(fi_cq_readfrom(b.cq, &e, 1, &src), 1);
	cr_assert(e.op_context == &ctx[1] && src == b_to_a);
	cr_assert_eq(fi_cq_readfrom(b.cq, &e, 1, &src), 1);
	cr_assert(e.op_context == &ctx[0] && src == b_to_c);
	cr_assert_str_eq(got[0], "c");
	/* Twice in the vector is one entry, and leaves it twice. */
	cr_assert_eq(node_insert(&b, &c), b_to_c);
	MUST(fi_av_remove(b.av, &b_to_c, 1, 0));
	/* Who left the vector has no number there. */
	MUST(fi_av_remove(b.av, &b_to_c, 1, 0));
	MUST(fi_recv(b.ep, got[0], 2, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	MUST(fi_inject(c.ep, "d", 2, 0));
	sim_deliver_all();
	cr_assert_eq(fi_cq_readfrom(b.cq, &e, 1, &src), 1);
	cr_assert_eq(src, FI_ADDR_NOTAVAIL);
	node_close(&c);
	done();
}

Test(pmsim, refuses_every_nth_post)
{
	struct pmsim_cfg cfg = plain;
	struct sim_opts o = {0};

	cfg.again = 3;
	two(&cfg, &o);
	for (int i = 1; i < 10; i++)
		cr_assert_eq(fi_inject(a.ep, "x", 1, a_to_b),
			     i % 3 ? 0 : -FI_EAGAIN);
	cr_assert_eq(sim->count(PMSIM_SEND), 6);
	for (int i = 1; i < 4; i++)
		cr_assert_eq(fi_recv(b.ep, mem, 1, NULL, 0, NULL),
			     i % 3 ? 0 : -FI_EAGAIN);
	done();
}

Test(pmsim, order_can_be_had_or_not)
{
	struct pmsim_cfg cfg = {.placed_acks = true};
	struct sim_opts o = {0};

	two(&cfg, &o);
	MUST(fi_inject_write(a.ep, "1", 1, a_to_b, b.addr, b.key));
	MUST(fi_inject_write(a.ep, "2", 1, a_to_b, b.addr, b.key));
	sim->overtake(sim_wire(0).id, 1);
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(mem[0], '1');
	done();
}

Test(pmsim, counters)
{
	struct sim_opts o = {0};
	struct fid_cntr *sent, *written;
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct sim_node d = {0};
	struct fi_info *h, *i;
	fi_addr_t to;

	two(&plain, &o);
	/* An endpoint of its own, since counters are bound before use. */
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
	done();
}

Test(pmsim, atomics)
{
	struct sim_opts o = {.caps = FI_RMA | FI_ATOMIC | FI_MSG};
	uint64_t v = 5, old[2] = {0}, cmp = 9, *m = (uint64_t *)mem;
	int8_t small = 100;
	size_t count;

	two(&plain, &o);
	m[0] = 4;
	mem[8] = 100;
	MUST(fi_atomic(a.ep, &v, 1, NULL, a_to_b, b.addr, b.key, FI_UINT64,
		       FI_SUM, &ctx[0]));
	MUST(fi_inject_atomic(a.ep, &small, 1, a_to_b, b.addr + 8, b.key,
			      FI_INT8, FI_SUM));
	MUST(fi_fetch_atomic(a.ep, &v, 1, NULL, &old[0], NULL, a_to_b, b.addr,
			     b.key, FI_UINT64, FI_ATOMIC_READ, &ctx[1]));
	MUST(fi_compare_atomic(a.ep, &v, 1, NULL, &cmp, NULL, &old[1], NULL,
			       a_to_b, b.addr, b.key, FI_UINT64, FI_CSWAP,
			       &ctx[2]));
	cr_assert(node_quiet(&a));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(m[0], 5);
	cr_assert_eq(mem[8], (char)200);
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	node_expect(&a, &ctx[1], NULL);
	node_expect(&a, &ctx[2], NULL);
	cr_assert(old[0] == 9 && old[1] == 9);
	MUST(fi_atomicvalid(a.ep, FI_DOUBLE, FI_SUM, &count));
	cr_assert_eq(fi_atomicvalid(a.ep, FI_DOUBLE, FI_BOR, &count),
		     -FI_EOPNOTSUPP);
	done();
}

/* --- memory with a model --- */

/* b on a machine with a model; returns its memory. */
static char *modelled(const struct pmsim_cfg *cfg, const struct model_cfg *mc)
{
	struct sim_opts o = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
	char *pm;

	sim_start();
	sim->reset(cfg);
	sim->machine(NULL);
	sim->machine(mc);
	sim_open(&o);
	node_open(&a, 0, NULL);
	node_open(&b, 1, NULL);
	a_to_b = node_insert(&a, &b);
	b_to_a = node_insert(&b, &a);
	pm = model_alloc(sim->model(1), MODEL_PAGE);
	node_memory(&b, pm, MODEL_PAGE, 7, 0);
	return pm;
}

Test(pmsim, cpu_stores_through_the_model)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_CPU_USER,
	};
	uint64_t values[MODEL_VALUES];
	char *pm = modelled(&plain, &mc);
	bool lost;

	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	cr_assert_eq(pm[0], 0);
	node_poke(&b);
	cr_assert_str_eq(pm, "persist");
	/* In the cache: it may have been evicted, or not. */
	cr_assert_eq(model_after_cut(sim->model(1), pm, values, &lost), 2);
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	done();
}

Test(pmsim, nic_places_by_itself)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
		.fence = true,
	};
	struct model *m;
	char got[8] = {0}, *pm = modelled(&plain, &mc);

	m = sim->model(1);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	/* In the NIC; acknowledged when it is in memory, without a program. */
	cr_assert_eq(pm[0], 0);
	cr_assert_eq(model_dma_pending(m), 1);
	cr_assert_eq(sim_deliver_all(), 0);
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "persist");
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	/* A read that fences brings the write before it, nobody looking. */
	MUST(fi_inject_write(a.ep, "another", 8, a_to_b, b.addr + 64, b.key));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr + 64, b.key, &ctx[1]));
	sim_deliver_all();
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	cr_assert_str_eq(got, "another");
	cr_assert_eq(model_dma_pending(m), 0);
	/* What the program hears of is behind what came before it. */
	MUST(fi_inject_write(a.ep, "first", 6, a_to_b, b.addr, b.key));
	MUST(fi_inject_writedata(a.ep, "second", 7, 1, a_to_b, b.addr + 64,
				 b.key));
	sim_deliver_all();
	cr_assert_eq(sim->arrived(1), 1);
	cr_assert_str_eq(pm, "persist");
	node_expect(&b, NULL, NULL);
	cr_assert_str_eq(pm, "first");
	cr_assert_str_eq(pm + 64, "second");
	done();
}

Test(pmsim, nic_acknowledges_what_it_has)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain;
	char *pm;

	cfg.placed_acks = false;
	pm = modelled(&cfg, &mc);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	cr_assert_eq(sim_deliver_all(), 1);
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(pm[0], 0);
	done();
}

Test(pmsim, nic_sees_its_own_atomics)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
	};
	uint64_t one = 1, old = 0;
	char *pm = modelled(&plain, &mc);

	for (int i = 0; i < 3; i++)
		MUST(fi_inject_atomic(a.ep, &one, 1, a_to_b, b.addr, b.key,
				      FI_UINT64, FI_SUM));
	sim_deliver_all();
	cr_assert_eq(pm[0], 3);
	MUST(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, a_to_b, b.addr,
			     b.key, FI_UINT64, FI_SUM, &ctx[0]));
	sim_deliver_all();
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(old, 3);
	cr_assert_eq(pm[0], 4);
	done();
}

Test(pmsim, receive_buffers_in_persistent_memory)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain;
	char dram[8] = {0}, *pm;

	pm = modelled(&cfg, &mc);
	cr_assert_eq(fi_recv(b.ep, pm, 8, NULL, FI_ADDR_UNSPEC, NULL),
		     -FI_EINVAL);
	close_two();
	cfg.recv_in_pm = true;
	pm = modelled(&cfg, &mc);
	MUST(fi_recv(b.ep, pm, 8, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	MUST(fi_recv(b.ep, dram, 8, NULL, FI_ADDR_UNSPEC, &ctx[1]));
	MUST(fi_inject(a.ep, "durable", 8, a_to_b));
	MUST(fi_inject(a.ep, "passing", 8, a_to_b));
	sim_deliver_all();
	cr_assert_eq(pm[0], 0);
	cr_assert_eq(sim->arrived(1), 2);
	node_expect(&b, &ctx[0], NULL);
	cr_assert_str_eq(pm, "durable");
	node_expect(&b, &ctx[1], NULL);
	cr_assert_str_eq(dram, "passing");
	done();
}

/* --- a commit, through agent and initiator of ofi_rpmem --- */

Test(rpmem_on_pmsim, commits)
{
	struct sim_opts o = {
		.prov = "pmsim;ofi_rpmem",
		.prov_keys = true,
		.caps = FI_RMA | FI_RMA_PMEM | FI_MSG | FI_TAGGED,
	};
	char *pm;
	struct iovec iov = {.iov_base = "durable", .iov_len = 8};
	struct fi_rma_iov rma = {.len = 8};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &ctx[1],
	};
	struct fi_cq_tagged_entry e;
	ssize_t n = -FI_EAGAIN;

	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	setenv("FI_OFI_RPMEM_CLASS", "none", 1);
	two(&plain, &o);
	MUST(fi_close(&b.mr->fid));
	pm = aligned_alloc(4096, 4096);
	memset(pm, 0, 4096);
	node_memory(&b, pm, 4096, 0, FI_RMA_PMEM);
	m.addr = a_to_b;
	rma.addr = b.addr;
	rma.key = b.key;
	MUST(fi_writemsg(a.ep, &m, FI_COMMIT_COMPLETE));
	for (int i = 0; i < 100 && n == -FI_EAGAIN; i++) {
		sim_deliver_all();
		node_poke(&b);
		n = fi_cq_read(a.cq, &e, 1);
	}
	cr_assert_eq(MUST(n), 1);
	cr_assert_eq(e.op_context, &ctx[1]);
	cr_assert_str_eq(pm, "durable");
	cr_assert_geq(sim->count(PMSIM_TSEND), 2);
	/* libpmem2 keeps its record of the map, and LeakSanitizer sees it. */
	close_two();
	free(pm);
}
