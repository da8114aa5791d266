// SPDX-License-Identifier: BSD-2-Clause
/* Messages and tags of the simulated provider, with and without ofi_rpmem. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "unit/sim_pair.h"

static void check_messages(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	struct fi_cq_tagged_entry e;
	char got[2][8] = {{0}};

	open_pair_plain(&plain_fabric, &o);
	MUST(fi_recv(b.ep, got[0], 8, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	MUST(fi_send(a.ep, "one", 4, NULL, a_to_b, &ctx[1]));
	MUST(fi_senddata(a.ep, "two", 4, NULL, 99, a_to_b, &ctx[2]));
	MUST(fi_inject(a.ep, "six", 4, a_to_b));
	/* The sends complete at the next progress call, before any delivery. */
	node_expect(&a, &ctx[1], &e);
	cr_assert_eq(e.flags, FI_SEND | FI_MSG);
	node_expect(&a, &ctx[2], NULL);
	cr_assert(node_no_entries(&a) && node_no_entries(&b));
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
	/* The second message waited for a buffer; a third is in flight. */
	MUST(fi_recv(b.ep, got[1], 2, NULL, FI_ADDR_UNSPEC, &ctx[3]));
	cr_assert_eq(node_expect_error(&b, &ctx[3]), FI_ETRUNC);
	MUST(fi_recv(b.ep, got[1], 8, NULL, FI_ADDR_UNSPEC, &ctx[4]));
	cr_assert(node_no_entries(&b));
	sim_deliver_all();
	node_expect(&b, &ctx[4], &e);
	cr_assert_str_eq(got[1], "six");
	cr_assert_eq(sim->outstanding(0), 0);
	cr_assert_eq(sim->count(PMSIM_SEND), 3);
	end_pair();
}

Test(pmsim, messages)
{
	check_messages(NULL);
}

Test(rpmem_on_pmsim, messages)
{
	check_messages("pmsim;ofi_rpmem");
}

static void check_tagged(const char *prov)
{
	struct sim_opts o = {.prov = prov, .av = FI_AV_TABLE};
	struct fi_cq_tagged_entry e;
	char got[3][8] = {{0}};
	fi_addr_t src;

	open_pair_plain(&plain_fabric, &o);
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
	cr_assert(node_no_entries(&b));
	MUST(fi_trecv(b.ep, got[2], 8, NULL, b_to_a, 6, 0, &ctx[4]));
	node_expect(&b, &ctx[4], &e);
	cr_assert_str_eq(got[2], "c");
	/* A receive without a message can be canceled. */
	MUST(fi_trecv(b.ep, got[2], 8, NULL, FI_ADDR_UNSPEC, 9, 0, &ctx[5]));
	MUST(fi_cancel(&b.ep->fid, &ctx[5]));
	cr_assert_eq(node_expect_error(&b, &ctx[5]), FI_ECANCELED);
	end_pair();
}

Test(pmsim, tagged)
{
	check_tagged(NULL);
}

Test(rpmem_on_pmsim, tagged)
{
	check_tagged("pmsim;ofi_rpmem");
}

Test(pmsim, selective_completion)
{
	struct sim_opts o = {.selective = true};
	struct iovec iov = {.iov_base = mem, .iov_len = 1};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};

	open_pair_plain(&plain_fabric, &o);
	m.addr = a_to_b;
	m.context = &ctx[1];
	MUST(fi_send(a.ep, "x", 1, NULL, a_to_b, &ctx[0]));
	MUST(fi_sendmsg(a.ep, &m, FI_COMPLETION));
	node_expect(&a, &ctx[1], NULL);
	cr_assert(node_no_entries(&a));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	m.addr = b_to_a;
	MUST(fi_recvmsg(b.ep, &m, FI_COMPLETION));
	sim_deliver_all();
	node_expect(&b, &ctx[1], NULL);
	cr_assert(node_no_entries(&b));
	end_pair();
}

Test(pmsim, delivery_of_messages)
{
	struct sim_opts o = {.op_flags = FI_DELIVERY_COMPLETE};

	open_pair_plain(&plain_fabric, &o);
	MUST(fi_send(a.ep, "x", 1, NULL, a_to_b, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(sim_deliver_all(), 0, "no receive was posted");
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[1]));
	node_expect(&b, &ctx[1], NULL);
	cr_assert(node_no_entries(&a));
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	end_pair();
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

	open_pair_plain(&plain_fabric, &o);
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
	end_pair();
}

Test(pmsim, directed_receives_and_sources)
{
	struct sim_opts o = {0};
	struct fi_cq_tagged_entry e;
	struct sim_node c;
	fi_addr_t b_to_c, src;
	char got[2][2] = {{0}};

	open_pair_plain(&plain_fabric, &o);
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
	/* An address inserted twice has to be removed twice. */
	cr_assert_eq(node_insert(&b, &c), b_to_c);
	MUST(fi_av_remove(b.av, &b_to_c, 1, 0));
	/* A removed peer has no fi_addr_t. */
	MUST(fi_av_remove(b.av, &b_to_c, 1, 0));
	MUST(fi_recv(b.ep, got[0], 2, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	MUST(fi_inject(c.ep, "d", 2, 0));
	sim_deliver_all();
	cr_assert_eq(fi_cq_readfrom(b.cq, &e, 1, &src), 1);
	cr_assert_eq(src, FI_ADDR_NOTAVAIL);
	node_close(&c);
	end_pair();
}

/* --- order --- */

static void expect_message(const char *text)
{
	char got[8] = {0};

	MUST(fi_recv(b.ep, got, sizeof(got), NULL, FI_ADDR_UNSPEC, &ctx[0]));
	node_expect(&b, &ctx[0], NULL);
	cr_assert_str_eq(got, text);
}

Test(pmsim, overtaking)
{
	static const struct pmsim_cfg unordered = {.placed_acks = true};
	struct sim_opts o = {0};
	unsigned int id;

	open_pair_plain(&unordered, &o);
	MUST(fi_inject(a.ep, "1st", 4, a_to_b));
	MUST(fi_inject(a.ep, "2nd", 4, a_to_b));
	MUST(fi_inject(a.ep, "3rd", 4, a_to_b));
	MUST(fi_tinject(a.ep, "4th", 4, a_to_b, 0));
	id = sim_wire(0).id;
	sim->overtake(id, 3);
	cr_assert_eq(sim->peek(id, 0), PMSIM_TSEND);
	sim->overtake(id, 3);
	sim->overtake(id, 0);
	cr_assert_eq(sim->peek(id, 0), PMSIM_SEND);
	cr_assert_eq(sim->peek(id, 1), PMSIM_TSEND);
	cr_assert_eq(sim_wire(0).in_flight, 4);
	sim->deliver(id, 1);
	expect_message("3rd");
	cr_assert_eq(sim->arrived(1), 0);
	/* Messages that were overtaken still arrive. */
	sim_deliver_all();
	expect_message("1st");
	expect_message("2nd");
	end_pair();
}

/* A test that lets messages overtake, against the configuration, is stopped. */
static void expect_no_overtaking(const struct pmsim_cfg *cfg,
				 unsigned int index)
{
	struct sim_opts o = {0};
	int status;
	pid_t child;

	open_pair_plain(cfg, &o);
	MUST(fi_inject(a.ep, "x", 1, a_to_b));
	MUST(fi_inject(a.ep, "y", 1, a_to_b));
	child = fork();
	cr_assert_geq(child, 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		sim->overtake(sim_wire(0).id, index);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	end_pair();
}

Test(pmsim, no_overtaking_where_order_is_promised)
{
	expect_no_overtaking(&plain_fabric, 1);
}

Test(pmsim, no_overtaking_by_a_missing_message)
{
	static const struct pmsim_cfg unordered = {.placed_acks = true};

	expect_no_overtaking(&unordered, 2);
}
