// SPDX-License-Identifier: BSD-2-Clause
/* Queue pairs of our own, on a device that does what the test says. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fabtests/unit/cm_fake.h"

static const struct rp_cep_ops *ops = &rp_cep_verbs;
static struct rp_ceps *set;
static struct rp_ceps_attr attr;
static struct rp_cep_done done[16];
static char bytes[64];
static int owner0, owner1; /* whose addresses stand for a connection */

static const struct sockaddr_in here = {
	.sin_family = AF_INET,
	.sin_addr.s_addr = 0x0100007f,
};

static void start(void)
{
	/* What is used after it was freed is not as it was. */
	mallopt(M_PERTURB, 0x5a);
	fake_start();
	set = ops->make(&fake.dom, &attr);
	cr_assert(set);
	cr_assert_eq(ops->open(set, (const struct sockaddr *)&here,
			       sizeof(here), true, 0),
		     0);
}

static void end(void)
{
	ops->shut(set);
	ops->destroy(set);
	cr_assert_eq(fake.open, 0);
	fake_end();
}

TestSuite(cep_verbs, .init = start, .fini = end);

/* Dialed, as far as its queue pair. */
static struct rp_cep *dialed(void *owner)
{
	struct rp_cep_event e;
	struct rp_cep *cep;

	cr_assert_eq(ops->dial(set, (const struct sockaddr *)&here,
			       sizeof(here), owner, &cep),
		     0);
	cr_assert_eq(ops->connect(cep, "12345678", 8), 0);
	fake_event(fake.id, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
	fake_event(fake.id, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
	while (ops->event(set, &e))
		cr_assert_null(e.cep);
	return cep;
}

static struct rp_cep_op op(enum rp_cep_kind kind, void *context)
{
	return (struct rp_cep_op){
		.kind = kind,
		.told = context,
		.context = context,
		.copied = kind == RP_CEP_SEND,
		.buf = bytes,
		.len = 8,
		.at = 0x1000,
		.key = 7,
	};
}

static int poll_all(void)
{
	return ops->poll(set, done, 16);
}

Test(cep_verbs, a_write_and_its_read_are_one_call)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op two[] = {op(RP_CEP_WRITE, NULL),
				  op(RP_CEP_READ, &bytes[1])};

	cr_assert_eq(ops->post(cep, two, 2), 2);
	cr_assert_eq(fake.calls, 1);
	cr_assert_eq(fake.nposted, 2);
	cr_assert_eq(fake.posted[0].wr.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(fake.posted[0].wr.send_flags, 0);
	cr_assert_eq(fake.posted[1].wr.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(fake.posted[1].wr.send_flags, IBV_SEND_SIGNALED);
	fake_complete(fake.posted[1].wr.wr_id, fake.qp->qp_num, IBV_WC_SUCCESS,
		      IBV_WC_RDMA_READ, 8);
	cr_assert_eq(poll_all(), 1);
	cr_assert_eq(done[0].context, &bytes[1]);
	cr_assert(done[0].read);
	cr_assert_eq(done[0].err, 0);
	cr_assert_eq(poll_all(), 0);
	ops->close(cep);
}

Test(cep_verbs, shows_the_secret_once_the_way_is_known)
{
	struct rp_cep *cep = dialed(&owner0);

	cr_assert_eq(fake.connected, 1);
	cr_assert_eq(memcmp(fake.shown_bytes, "12345678", 8), 0);
	cr_assert_eq(fake.shown.initiator_depth, 4);
	cr_assert_eq(fake.qp_attr.qp_type, IBV_QPT_RC);
	ops->close(cep);
}

Test(cep_verbs, no_way_is_the_end)
{
	struct rp_cep_event e;
	struct rp_cep *cep;

	fake.fail_route = 1;
	cr_assert_eq(ops->dial(set, (const struct sockaddr *)&here,
			       sizeof(here), &owner0, &cep),
		     0);
	cr_assert_eq(ops->connect(cep, "1", 1), 0);
	fake_event(fake.id, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(e.what, RP_CEP_OVER);
	cr_assert_eq(e.owner, &owner0);
	ops->close(cep);
}

/* As no answer says so, sends without a context make room by themselves. */
Test(cep_verbs, room_comes_back)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op one = op(RP_CEP_SEND, NULL);
	unsigned int n = 0;
	int told = 0;

	while (ops->post(cep, &one, 1) == 1)
		n++;
	cr_assert_eq(n, attr.depth);
	cr_assert_eq(ops->post(cep, &one, 1), -EAGAIN);
	for (int i = 0; i < fake.nposted; i++)
		told += !!(fake.posted[i].wr.send_flags & IBV_SEND_SIGNALED);
	cr_assert_eq(told, (int)attr.depth / 8);
	/* The first that is told ends eight. */
	cr_assert(fake.posted[7].wr.send_flags & IBV_SEND_SIGNALED);
	fake_complete(fake.posted[7].wr.wr_id, fake.qp->qp_num, IBV_WC_SUCCESS,
		      IBV_WC_SEND, 0);
	cr_assert_eq(poll_all(), 0);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(ops->post(cep, &one, 1), 1);
	cr_assert_eq(ops->post(cep, &one, 1), -EAGAIN);
	ops->close(cep);
}

Test(cep_verbs, what_was_not_taken_takes_no_room)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op two[] = {op(RP_CEP_WRITE, NULL),
				  op(RP_CEP_READ, &bytes[1])};

	fake.take_err = ENOMEM;
	for (int i = 0; i < 200; i++)
		cr_assert_eq(ops->post(cep, two, 2), -EAGAIN);
	fake.take = 1;
	cr_assert_eq(ops->post(cep, two, 2), 1);
	fake.take_err = 0;
	cr_assert_eq(ops->post(cep, two, 2), 2);
	ops->close(cep);
}

Test(cep_verbs, the_queue_is_not_overrun)
{
	struct rp_cep_op one = op(RP_CEP_SEND, NULL);
	struct rp_cep *cep[8];
	int n = 0, ret = 0;

	for (int i = 0; i < 8; i++)
		cep[i] = dialed(&owner0);
	fake.nposted = 0;
	for (int i = 0; i < 8; i++)
		while (fake.nposted = 0, (ret = ops->post(cep[i], &one, 1)) > 0)
			n++;
	cr_assert_eq(ret, -EAGAIN);
	cr_assert_eq(n, 256);
	for (int i = 0; i < 8; i++)
		ops->close(cep[i]);
	/* When nothing can come back from them any more, there is room. */
	cr_assert_eq(poll_all(), 0);
	cep[0] = dialed(&owner1);
	cr_assert_eq(ops->post(cep[0], &one, 1), 1);
	ops->close(cep[0]);
}

Test(cep_verbs, messages_are_of_the_queue_pair_they_came_by)
{
	struct rp_cep *first = dialed(&owner0), *second;
	uint32_t num[2] = {fake.qp->qp_num};
	struct rp_cep_mr mr;

	second = dialed(&owner1);
	num[1] = fake.qp->qp_num;
	cr_assert_eq(ops->reg(set, bytes, 64, FI_RECV, &mr), 0);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(ops->recv(set, NULL, i & 1, bytes, 64, mr.desc,
				       &bytes[2 * i + 1]),
			     0);
	cr_assert_eq(fake.nrecv[0], 2);
	cr_assert_eq(fake.nrecv[1], 2);
	fake_complete(fake.recv[0] | 1, num[1], IBV_WC_SUCCESS, IBV_WC_RECV,
		      33);
	fake_complete(fake.recv[2] | 1, num[0], IBV_WC_SUCCESS, IBV_WC_RECV,
		      34);
	cr_assert_eq(poll_all(), 2);
	cr_assert_eq(done[0].owner, &owner1);
	cr_assert_eq(done[0].len, 33);
	cr_assert_eq(done[1].owner, &owner0);
	/* Of one that is closed they are nobody's. */
	ops->close(second);
	fake_complete(fake.recv[0] | 1, num[1], IBV_WC_SUCCESS, IBV_WC_RECV,
		      33);
	cr_assert_eq(poll_all(), 1);
	cr_assert_null(done[0].owner);
	ops->close(first);
	ops->dereg(&mr);
}

Test(cep_verbs, a_failure_is_told_to_whose_it_is)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op two[] = {op(RP_CEP_WRITE, NULL),
				  op(RP_CEP_READ, &bytes[1])};
	uint32_t num = fake.qp->qp_num;

	cr_assert_eq(ops->post(cep, two, 2), 2);
	fake_complete(fake.posted[0].wr.wr_id, num, IBV_WC_REM_ACCESS_ERR,
		      IBV_WC_RDMA_WRITE, 0);
	fake_complete(fake.posted[1].wr.wr_id, num, IBV_WC_WR_FLUSH_ERR,
		      IBV_WC_RDMA_READ, 0);
	cr_assert_eq(poll_all(), 2);
	cr_assert_null(done[0].context);
	cr_assert_eq(done[0].owner, &owner0);
	cr_assert_eq(done[0].err, EACCES);
	cr_assert_eq(done[1].context, &bytes[1]);
	cr_assert_eq(done[1].err, ECANCELED);
	ops->close(cep);
}

/* Its entries may be in the queue when it is closed. */
Test(cep_verbs, what_comes_late_finds_nobody)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op one = op(RP_CEP_READ, &bytes[1]);

	cr_assert_eq(ops->post(cep, &one, 1), 1);
	fake_complete(fake.posted[0].wr.wr_id, fake.qp->qp_num, IBV_WC_SUCCESS,
		      IBV_WC_RDMA_READ, 8);
	ops->close(cep);
	cr_assert_eq(fake.disconnected, 1);
	cr_assert_eq(poll_all(), 1);
	cr_assert_null(done[0].owner);
	cr_assert_eq(done[0].context, &bytes[1]);
	cr_assert_eq(poll_all(), 0);
}

Test(cep_verbs, nobody_sleeps_over_what_is_there)
{
	struct rp_cep *cep = dialed(&owner0);
	struct rp_cep_op one = op(RP_CEP_READ, &bytes[1]);

	cr_assert_eq(ops->post(cep, &one, 1), 1);
	cr_assert_eq(ops->trywait(set), 0);
	cr_assert_eq(fake.armed, 1);
	fake_complete(fake.posted[0].wr.wr_id, fake.qp->qp_num, IBV_WC_SUCCESS,
		      IBV_WC_RDMA_READ, 8);
	cr_assert_eq(ops->trywait(set), -EAGAIN);
	/* And found a second time it is still there. */
	cr_assert_eq(ops->trywait(set), -EAGAIN);
	cr_assert_eq(poll_all(), 1);
	cr_assert_eq(done[0].context, &bytes[1]);
	cr_assert_eq(ops->trywait(set), 0);
	ops->close(cep);
}

Test(cep_verbs, strangers)
{
	struct rdma_cm_id *id = fake_stranger();
	struct rp_cep_event e;
	struct rp_cep *cep;
	uint8_t long_one[56] = "secret";

	fake_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, long_one, 56);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(e.what, RP_CEP_REQUESTED);
	cr_assert_eq(e.shown_len, 56);
	cr_assert_eq(memcmp(e.shown, long_one, 56), 0);
	ops->reject(set, e.request);
	cr_assert_eq(fake.rejected, 1);
	fake_event(fake_stranger(), RDMA_CM_EVENT_CONNECT_REQUEST, long_one,
		   56);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(ops->take(set, e.request, &owner1, &cep), 0);
	cr_assert_eq(ops->accept(cep), 0);
	cr_assert_eq(fake.accepted, 1);
	/* Not as many reads as it asked for: as the device has. */
	cr_assert_eq(fake.shown.responder_resources, 8);
	fake_event(fake.id, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(e.what, RP_CEP_CONNECTED);
	cr_assert_eq(e.owner, &owner1);
	fake_event(fake.id, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(e.what, RP_CEP_OVER);
	cr_assert_eq(e.owner, &owner1);
	ops->close(cep);
}

/* Another device's queue pair could not be used with this one's memory. */
Test(cep_verbs, strangers_by_another_device)
{
	static struct ibv_context other;
	struct rdma_cm_id *id = fake_stranger();
	struct rp_cep_event e;
	struct rp_cep *cep;

	id->verbs = &other;
	fake_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(ops->take(set, e.request, &owner1, &cep), -ENODEV);
}

Test(cep_verbs_open, an_address_of_another_device)
{
	fake_start();
	fake.device = "fake1";
	set = ops->make(&fake.dom, &attr);
	cr_assert(set);
	cr_assert_eq(ops->open(set, (const struct sockaddr *)&here,
			       sizeof(here), false, 0),
		     -ENODEV);
	end();
}

Test(cep_verbs_open, other_addresses_than_those_of_ip)
{
	fake_start();
	fake.dom.base_info->addr_format = FI_SOCKADDR_IB;
	cr_assert_null(ops->make(&fake.dom, &attr));
	fake_end();
}
