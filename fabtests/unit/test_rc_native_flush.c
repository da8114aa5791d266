// SPDX-License-Identifier: BSD-2-Clause
/* Native FLUSH of private connections, on a fake device. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fabtests/unit/rc_verbs_rig.h"

#define BOTH (FAKE_GLOBAL | FAKE_PERSISTENT)

static char bytes[4096];

static void open_rig(uint64_t caps, bool makes)
{
	fake_start();
	fake.caps = caps;
	fake.makes = makes;
	rig_start();
}

/* FLUSH needs the capabilities for both types, and library support. */
Test(rc_native_flush, devices_with_flush)
{
	static const struct {
		uint64_t caps;
		bool makes, native;
	} devices[] = {
		{BOTH, true, true},	    {BOTH, false, false},
		{0, true, false},	    {FAKE_PERSISTENT, true, false},
		{FAKE_GLOBAL, true, false},
	};
	struct rig_end e;

	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		open_rig(devices[i].caps, devices[i].makes);
		cr_assert_eq(!!(rp_rc_flags(rig) & RP_CHANNEL_FLUSHES),
			     devices[i].native, "%zu", i);
		rig_connect(&e);
		cr_assert_eq(e.c->flags, rp_rc_flags(rig));
		cr_assert_eq(!!(fake.ops & FAKE_WITH_FLUSH), devices[i].native);
		rp_channel_close(e.c);
		rig_end();
	}
}

/* A write of len bytes and a FLUSH of them. */
static void write_and_flush(struct rig_op o[2], struct rp_channel_op *ops[2],
			    size_t len)
{
	ops[0] = rig_op(&o[0], RP_CHANNEL_WRITE, bytes, 8);
	ops[1] = rig_op(&o[1], RP_CHANNEL_FLUSH, NULL, len);
}

Test(rc_native_flush, behind_the_write_in_one_call)
{
	struct rp_channel_op *ops[4];
	struct rig_op o[4];
	struct rp_rc_mr mr;
	struct rig_end e;

	open_rig(BOTH, true);
	rig_connect(&e);
	cr_assert_eq(rp_rc_reg(rig, bytes, 4096, RP_RC_LOCAL, &mr), 0);
	write_and_flush(o, ops, 3000);
	ops[0] = rig_op_mr(&o[0], RP_CHANNEL_WRITE, bytes, 4000, &mr);
	ops[0]->delivered = true;
	ops[2] = rig_op(&o[2], RP_CHANNEL_SEND, "message", 7);
	ops[3] = rig_op(&o[3], RP_CHANNEL_READ, NULL, 8);
	cr_assert_eq(rp_channel_post(e.c, ops, 4), 4);
	cr_assert_eq(fake.calls, 1);
	cr_assert_eq(fake.nposted, 4);
	cr_assert_eq(fake.posted[0].wr.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(fake.posted[0].wr.send_flags, 0);
	cr_assert_eq(fake.posted[0].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[0].sge[0].addr, (uintptr_t)bytes);
	cr_assert_eq(fake.posted[0].sge[0].lkey,
		     ((struct ibv_mr *)mr.desc)->lkey);
	cr_assert_eq((int)fake.posted[1].wr.opcode, FAKE_WR_FLUSH);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.rkey, 7);
	cr_assert_eq(fake.posted[1].len, 3000);
	/* type 3: persistence and global visibility; level 0: range. */
	cr_assert_eq(fake.posted[1].type, 3);
	cr_assert_eq(fake.posted[1].level, 0);
	cr_assert_eq(fake.posted[2].wr.opcode, IBV_WR_SEND);
	/* rxe's builder drops inline data, so it is not used. */
	cr_assert_eq(fake.posted[2].wr.send_flags, 0);
	cr_assert_eq(memcmp(fake.posted[2].bytes, "message", 7), 0);
	cr_assert_eq(fake.posted[3].wr.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(fake.posted[3].wr.send_flags, IBV_SEND_SIGNALED);
	fake_complete(&fake.posted[3], IBV_WC_SUCCESS);
	rig_poll();
	for (int i = 0; i < 4; i++)
		cr_assert_eq(o[i].done, 1);
	rp_channel_close(e.c);
	rp_rc_dereg(rig, &mr);
	rig_end();
}

/* The bytes of a short unregistered write are copied. */
Test(rc_native_flush, behind_a_short_write)
{
	struct rp_channel_op *ops[2];
	struct rig_op o[2];
	struct rig_end e;

	open_rig(BOTH, true);
	rig_connect(&e);
	write_and_flush(o, ops, 8);
	memcpy(bytes, "8 bytes", 8);
	cr_assert_eq(rp_channel_post(e.c, ops, 2), 2);
	cr_assert_eq(fake.posted[0].wr.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(fake.posted[0].wr.send_flags, 0);
	cr_assert_neq(fake.posted[0].sge[0].addr, (uintptr_t)bytes);
	cr_assert_eq(memcmp(fake.posted[0].bytes, "8 bytes", 8), 0);
	rp_channel_close(e.c);
	rig_end();
}

Test(rc_native_flush, that_fails)
{
	struct rp_channel_op *ops[2];
	struct rig_op o[2];
	struct rig_end e;

	open_rig(BOTH, true);
	rig_connect(&e);
	write_and_flush(o, ops, 8);
	cr_assert_eq(rp_channel_post(e.c, ops, 2), 2);
	fake_complete(&fake.posted[1], IBV_WC_REM_ACCESS_ERR);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, EACCES);
	cr_assert_eq(o[1].err, ECANCELED);
	rp_channel_close(e.c);
	rig_end();
}

/* The request builders post all requests or none. */
Test(rc_native_flush, refused_by_the_device)
{
	struct rp_channel_op *ops[2];
	struct rig_op o[2];
	struct rig_end e;

	open_rig(BOTH, true);
	rig_connect(&e);
	write_and_flush(o, ops, 8);
	fake.take_err = ENOMEM;
	cr_assert_eq(rp_channel_post(e.c, ops, 2), 1);
	cr_assert_eq(rp_channel_post(e.c, ops + 1, 1), 1);
	rig_poll();
	cr_assert_eq(e.lost_err, ENOMEM);
	cr_assert_eq(o[0].done, 1);
	cr_assert_eq(o[1].done, 1);
	rp_channel_close(e.c);
	rig_end();
}

/* Accepted peers get the FLUSH right, whatever the device can do. */
Test(rc_native_flush, the_right_of_peers)
{
	struct rig_end e;

	open_rig(BOTH, true);
	rig_accept(&e);
	cr_assert_eq(fake.access & FAKE_MAY_FLUSH, FAKE_MAY_FLUSH);
	rp_channel_close(e.c);
	rig_connect(&e);
	cr_assert_eq(fake.access, 0);
	rp_channel_close(e.c);
	rig_end();
	open_rig(0, true);
	rig_accept(&e);
	cr_assert_eq(fake.access & FAKE_MAY_FLUSH, 0);
	rp_channel_close(e.c);
	rig_end();
}

/* A region's rkey includes the FLUSH right only on request. */
Test(rc_native_flush, the_right_to_a_region)
{
	struct rp_rc_mr mr;

	open_rig(BOTH, true);
	cr_assert_eq(rp_rc_reg(rig, bytes, 64, RP_RC_REMOTE_WRITE, &mr), 0);
	cr_assert_eq((mr.rkey - 0x2000) & FAKE_MAY_FLUSH, 0);
	rp_rc_dereg(rig, &mr);
	cr_assert_eq(rp_rc_reg(rig, bytes, 64,
			       RP_RC_REMOTE_WRITE | RP_RC_REMOTE_FLUSH, &mr),
		     0);
	cr_assert_eq((mr.rkey - 0x2000) & FAKE_MAY_FLUSH, FAKE_MAY_FLUSH);
	rp_rc_dereg(rig, &mr);
	/*
	 * Registration with the FLUSH right fails for memory that the device
	 * cannot flush, and on a device without FLUSH.
	 */
	fake.refuse_access = FAKE_MAY_FLUSH;
	cr_assert_eq(rp_rc_reg(rig, bytes, 64,
			       RP_RC_REMOTE_WRITE | RP_RC_REMOTE_FLUSH, &mr),
		     -EOPNOTSUPP);
	rig_end();
	open_rig(0, true);
	cr_assert_eq(rp_rc_reg(rig, bytes, 64,
			       RP_RC_REMOTE_WRITE | RP_RC_REMOTE_FLUSH, &mr),
		     -EOPNOTSUPP);
	rig_end();
}
