// SPDX-License-Identifier: BSD-2-Clause
/* FLUSHes on queue pairs of our own, on a device that does what the test says.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fabtests/unit/cm_fake.h"

#define BOTH (FAKE_GLOBAL | FAKE_PERSISTENT)

static const struct rp_cep_ops *ops = &rp_cep_verbs;
static struct rp_ceps *set;
static struct rp_ceps_attr attr;
static struct rp_cep_done done[16];
static char bytes[64];
static int owner0;

static const struct sockaddr_in here = {
	.sin_family = AF_INET,
	.sin_addr.s_addr = 0x0100007f,
};

static void begin(uint64_t caps, bool makes)
{
	fake_start();
	fake.caps = caps;
	fake.makes = makes;
	set = ops->make(&fake.dom, &attr);
	cr_assert(set);
	/* Nothing that was opened to find out is left. */
	cr_assert_eq(fake.open, 0);
	cr_assert_eq(ops->open(set, (const struct sockaddr *)&here,
			       sizeof(here), false, 0),
		     0);
}

static void end(void)
{
	ops->shut(set);
	ops->destroy(set);
	cr_assert_eq(fake.open, 0);
	fake_end();
}

static struct rp_cep *dialed(void)
{
	struct rp_cep_event e;
	struct rp_cep *cep;

	cr_assert_eq(ops->dial(set, (const struct sockaddr *)&here,
			       sizeof(here), &owner0, &cep),
		     0);
	cr_assert_eq(ops->connect(cep, "12345678", 8), 0);
	fake_event(fake.id, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
	fake_event(fake.id, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
	while (ops->event(set, &e))
		cr_assert_null(e.cep);
	return cep;
}

static struct rp_cep *taken(int *ret)
{
	struct rp_cep_event e;
	struct rp_cep *cep;

	fake_event(fake_stranger(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
	cr_assert(ops->event(set, &e));
	cr_assert_eq(ops->take(set, e.request, &owner0, &cep), 0);
	*ret = ops->accept(cep);
	return cep;
}

/* A write and its FLUSH, of so much. */
static void pair(struct rp_cep_op two[2], size_t len)
{
	two[0] = (struct rp_cep_op){
		.kind = RP_CEP_WRITE,
		.buf = bytes,
		.len = 8,
		.at = 0x1000,
		.key = 7,
	};
	two[1] = (struct rp_cep_op){
		.kind = RP_CEP_FLUSH,
		.told = true,
		.context = &bytes[1],
		.len = len,
		.at = 0x1000,
		.key = 7,
	};
}

/* Both kinds, and a library that makes queue pairs for them. */
Test(cep_flush, which_devices_do)
{
	static const struct {
		uint64_t caps;
		bool makes, native;
	} devices[] = {
		{BOTH, true, true},	    {BOTH, false, false},
		{0, true, false},	    {FAKE_PERSISTENT, true, false},
		{FAKE_GLOBAL, true, false},
	};

	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		begin(devices[i].caps, devices[i].makes);
		cr_assert_eq(attr.native, devices[i].native, "%zu", i);
		ops->close(dialed());
		cr_assert_eq(!!(fake.ops & FAKE_WITH_FLUSH), devices[i].native);
		end();
	}
}

Test(cep_flush, not_where_it_is_not_wanted)
{
	rp_params.native = false;
	begin(BOTH, true);
	cr_assert_not(attr.native);
	end();
	rp_params.native = true;
}

Test(cep_flush, nor_of_another_device)
{
	fake_start();
	fake.caps = BOTH;
	fake.makes = true;
	fake.device = "fake1";
	set = ops->make(&fake.dom, &attr);
	cr_assert_not(attr.native);
	ops->destroy(set);
	cr_assert_eq(fake.open, 0);
	fake_end();
}

Test(cep_flush, behind_the_write_in_one_call)
{
	struct rp_cep_op two[2];
	struct rp_cep *cep;

	begin(BOTH, true);
	cep = dialed();
	pair(two, 3000);
	cr_assert_eq(ops->post(cep, two, 2), 2);
	cr_assert_eq(fake.calls, 1);
	cr_assert_eq(fake.nposted, 2);
	cr_assert_eq(fake.posted[0].wr.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(fake.posted[0].wr.send_flags, 0);
	cr_assert_eq(fake.posted[0].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[0].sge.addr, (uintptr_t)bytes);
	cr_assert_eq(fake.posted[0].sge.length, 8);
	cr_assert_eq((int)fake.posted[1].wr.opcode, FAKE_WR_FLUSH);
	cr_assert_eq(fake.posted[1].wr.send_flags, IBV_SEND_SIGNALED);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.rkey, 7);
	cr_assert_eq(fake.posted[1].sge.length, 3000);
	/* To persistence and seen by all, of the range. */
	cr_assert_eq(fake.posted[1].type, 3);
	cr_assert_eq(fake.posted[1].level, 0);
	fake_complete(fake.posted[1].wr.wr_id, fake.qp->qp_num, IBV_WC_SUCCESS,
		      (enum ibv_wc_opcode)FAKE_WC_FLUSH, 0);
	cr_assert_eq(ops->poll(set, done, 16), 1);
	cr_assert_eq(done[0].context, &bytes[1]);
	cr_assert(done[0].read);
	cr_assert_eq(done[0].err, 0);
	ops->close(cep);
	cr_assert_eq(ops->poll(set, done, 16), 0);
	end();
}

Test(cep_flush, that_fails)
{
	struct rp_cep_op two[2];
	struct rp_cep *cep;

	begin(BOTH, true);
	cep = dialed();
	pair(two, 8);
	cr_assert_eq(ops->post(cep, two, 2), 2);
	fake_complete(fake.posted[1].wr.wr_id, fake.qp->qp_num,
		      IBV_WC_REM_ACCESS_ERR, IBV_WC_SEND, 0);
	cr_assert_eq(ops->poll(set, done, 16), 1);
	cr_assert_eq(done[0].err, EACCES);
	cr_assert_not(done[0].read);
	ops->close(cep);
	cr_assert_eq(ops->poll(set, done, 16), 0);
	end();
}

/* What the queue has no room for was not posted, nor counted. */
Test(cep_flush, all_or_none)
{
	struct rp_cep_op two[2];
	struct rp_cep *cep;

	begin(BOTH, true);
	cep = dialed();
	pair(two, 8);
	fake.take_err = ENOMEM;
	for (int i = 0; i < 100; i++)
		cr_assert_eq(ops->post(cep, two, 2), -EAGAIN);
	fake.take_err = 0;
	for (int i = 0; i < 32; i++)
		cr_assert_eq(ops->post(cep, two, 2), 2);
	cr_assert_eq(ops->post(cep, two, 2), -EAGAIN);
	ops->close(cep);
	cr_assert_eq(ops->poll(set, done, 16), 0);
	end();
}

/* Who is let in may FLUSH, whether the kernel sees to that or not. */
Test(cep_flush, the_right_of_peers)
{
	int ret;

	begin(BOTH, true);
	fake.may = IBV_ACCESS_REMOTE_WRITE;
	ops->close(taken(&ret));
	cr_assert_eq(ret, 0);
	cr_assert_eq(fake.given, 1);
	cr_assert_eq(fake.may, IBV_ACCESS_REMOTE_WRITE | FAKE_MAY_FLUSH);
	ops->close(taken(&ret));
	cr_assert_eq(ret, 0);
	cr_assert_eq(fake.given, 1);
	fake.may = 0;
	fake.fail_give = EINVAL;
	ops->close(taken(&ret));
	cr_assert_eq(ret, -EINVAL);
	cr_assert_eq(ops->poll(set, done, 16), 0);
	end();
	begin(0, true);
	ops->close(taken(&ret));
	cr_assert_eq(ret, 0);
	cr_assert_eq(fake.given, 0);
	cr_assert_eq(ops->poll(set, done, 16), 0);
	end();
}

/* And of regions: only of those that are to be flushed. */
Test(cep_flush, the_right_to_a_region)
{
	struct rp_cep_mr mr;

	begin(BOTH, true);
	cr_assert_eq(ops->reg(set, bytes, 64, FI_REMOTE_WRITE, &mr), 0);
	cr_assert_eq((mr.key - 0x20) & FAKE_MAY_FLUSH, 0);
	cr_assert_eq(ops->dereg(&mr), 0);
	cr_assert_eq(
		ops->reg(set, bytes, 64, FI_REMOTE_WRITE | RP_CEP_FLUSHED, &mr),
		0);
	cr_assert_eq((mr.key - 0x20) & FAKE_MAY_FLUSH, FAKE_MAY_FLUSH);
	cr_assert_eq(ops->dereg(&mr), 0);
	end();
}
