// SPDX-License-Identifier: BSD-2-Clause
/* Private connections on queue pairs: setup by the connection manager. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fabtests/unit/rc_verbs_rig.h"

static void start(void)
{
	fake_start();
	rig_start();
}

TestSuite(rc_verbs_cm, .init = start, .fini = rig_end);
TestSuite(rc_verbs_cm_open);

static void deliver_event(struct rig_end *e, enum rdma_cm_event_type type)
{
	fake_event(e->id, type, 0, NULL, 0);
	rig_poll();
}

Test(rc_verbs_cm, connecting_goes_step_by_step)
{
	struct rig_end e;

	rig_begin(&e);
	cr_assert_eq(fake.resolved, 1);
	cr_assert_not(fake.has_source);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(fake.routed, 1);
	cr_assert_null(fake.qp);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(fake.connected, 1);
	cr_assert_eq(fake.qp->state, IBV_QPS_INIT);
	/* A connecting end gives the peer no access to its memory. */
	cr_assert_eq(fake.access, 0);
	cr_assert_gt(fake.nrecv, 0);
	cr_assert_eq(fake.cm_param.qp_num, fake.qp->qp_num);
	cr_assert_eq(fake.cm_param.srq, 1);
	cr_assert_eq(fake.cm_param.rnr_retry_count, 7);
	cr_assert_lt(fake.cm_param.retry_count, 7);
	cr_assert_eq(fake.cm_param.initiator_depth, 4);
	cr_assert_eq(fake.cm_param.private_data_len, 5);
	cr_assert_eq(memcmp(fake.cm_data, "hello", 5), 0);
	cr_assert_eq(e.nconnected, 0);
	fake_padded(e.id, RDMA_CM_EVENT_CONNECT_RESPONSE, "answer", 6, 196);
	rig_poll();
	cr_assert_eq(e.nconnected, 1);
	cr_assert_eq(fake.qp->state, IBV_QPS_RTS);
	cr_assert_eq(fake.rtr.max_dest_rd_atomic, 77);
	cr_assert_eq(fake.rtr.min_rnr_timer, 1);
	cr_assert_eq(fake.rts.rnr_retry, 7);
	cr_assert_eq(fake.established, 1);
	/* RDMA CM pads the private data. */
	cr_assert_eq(e.data_len, 196);
	cr_assert_eq(memcmp(e.data, "answer\0", 8), 0);
	deliver_event(&e, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
	cr_assert_eq(e.lost, 1);
}

Test(rc_verbs_cm, nothing_is_posted_before_it_is_up)
{
	struct rig_end e;
	struct rig_op o;

	rig_begin(&e);
	rig_op(&o, RP_CHANNEL_READ, NULL, 8);
	cr_assert_eq(rig_post(&e, &o.op), 0);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(rig_post(&e, &o.op), 0);
	rp_channel_close(e.c);
	cr_assert_eq(o.done, 0);
}

Test(rc_verbs_cm, close_at_each_step)
{
	static const enum rdma_cm_event_type steps[] = {
		RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED,
		RDMA_CM_EVENT_CONNECT_RESPONSE};
	struct rig_end e;

	for (int n = 0; n <= 3; n++) {
		rig_begin(&e);
		for (int i = 0; i < n; i++)
			deliver_event(&e, steps[i]);
		/* The kernel has queued one more event; close() drops it. */
		fake_event(e.id, n < 3 ? steps[n] : RDMA_CM_EVENT_DISCONNECTED,
			   0, NULL, 0);
		rp_channel_close(e.c);
		rig_poll();
		cr_assert_eq(e.nconnected, n == 3);
		cr_assert_eq(e.lost, 0);
	}
	cr_assert_eq(fake.disconnected, 2);
}

Test(rc_verbs_cm, a_refusal_brings_its_data)
{
	struct rig_end e;

	rig_begin(&e);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	fake_padded(e.id, RDMA_CM_EVENT_REJECTED, "no", 2, 148);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, ECONNREFUSED);
	cr_assert_eq(e.data_len, 148);
	cr_assert_eq(memcmp(e.data, "no", 3), 0);
	rp_channel_close(e.c);
	/* The kernel rejects the request because nobody listens. */
	rig_begin(&e);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	fake_padded(e.id, RDMA_CM_EVENT_REJECTED, NULL, 0, 148);
	rig_poll();
	cr_assert_eq(e.lost_err, ECONNREFUSED);
	cr_assert_eq(e.data_len, 0);
	rp_channel_close(e.c);
}

Test(rc_verbs_cm, requests_with_any_data)
{
	static const uint8_t bytes[196] = {[195] = 1};

	rig_listen();
	fake_event(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	fake_event(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, 0, bytes, 196);
	rig_poll();
	cr_assert_eq(rig_nrequests, 3);
	cr_assert_eq(rig_requests[0].len, 0);
	cr_assert_eq(rig_requests[1].len, 0);
	cr_assert_eq(rig_requests[2].len, 196);
}

/* The longest private data in both directions, then one byte more. */
Test(rc_verbs_cm, longest_private_data)
{
	static const uint8_t bytes[256] = {7};
	const struct sockaddr_in at = {.sin_family = AF_INET};
	struct rp_connector *k = rp_rc_connector(rig);
	struct rig_end e = {0};

	cr_assert_eq(k->ops->connect(k, &at, sizeof(at), bytes, 57, &rig_events,
				     &e, &e.c),
		     -EINVAL);
	cr_assert_eq(k->ops->connect(k, &at, sizeof(at), bytes, 56, &rig_events,
				     &e, &e.c),
		     0);
	e.id = fake.id;
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(fake.cm_param.private_data_len, 56);
	rp_channel_close(e.c);
	fake_event(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
	fake_event(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
	rig_poll();
	cr_assert_eq(rp_rc_accept(rig, rig_requests[0].request, bytes, 196,
				  &rig_events, &e, &e.c),
		     0);
	cr_assert_eq(fake.cm_param.private_data_len, 196);
	rp_channel_close(e.c);
	rp_rc_reject(rig, rig_requests[1].request, bytes, 148);
	cr_assert_eq(fake.cm_data[0], 7);
}

Test(rc_verbs_cm, connect_failures_are_reported)
{
	struct rig_end e;

	/* There is no route: first a call fails, then an event reports it. */
	fake.fail_route = 1;
	rig_begin(&e);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, EHOSTUNREACH);
	rp_channel_close(e.c);
	fake.fail_route = 0;
	rig_begin(&e);
	fake_event(e.id, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, NULL, 0);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, ENETUNREACH);
	rp_channel_close(e.c);
	/* The address resolves to another device. */
	fake.resolves_to = "fake1";
	rig_begin(&e);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, ENODEV);
	rp_channel_close(e.c);
	fake.resolves_to = FAKE_DEVICE;
	/* The peer does not reply. */
	rig_begin(&e);
	deliver_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED);
	deliver_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	fake_event(e.id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
	rig_poll();
	cr_assert_eq(e.lost_err, ETIMEDOUT);
	rp_channel_close(e.c);
}

Test(rc_verbs_cm, a_request_is_accepted)
{
	struct rig_end e;

	rig_listen();
	rig_accept(&e);
	cr_assert_eq(rig_requests[0].len, 56);
	cr_assert_eq(memcmp(rig_requests[0].data, "hello", 6), 0);
	cr_assert_eq(fake.accepted, 1);
	cr_assert_eq(fake.qp->state, IBV_QPS_RTS);
	cr_assert_eq(fake.access,
		     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	/* The peer requests more concurrent reads than the device supports. */
	cr_assert_eq(fake.cm_param.responder_resources, 8);
	cr_assert_eq(fake.rtr.max_dest_rd_atomic, 8);
	cr_assert_eq(fake.cm_param.qp_num, fake.qp->qp_num);
	cr_assert_eq(memcmp(fake.cm_data, "ack", 4), 0);
	cr_assert_eq(e.nconnected, 0);
	deliver_event(&e, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
}

Test(rc_verbs_cm, an_accept_that_fails_leaves_nothing)
{
	struct rp_channel *c;
	struct rig_end e;

	rig_listen();
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	fake.fail_accept = 1;
	cr_assert_eq(rp_rc_accept(rig, rig_requests[0].request, "ack", 3,
				  &rig_events, &e, &c),
		     -ECONNRESET);
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	/* The private data is longer than RDMA CM carries. */
	cr_assert_eq(rp_rc_accept(rig, rig_requests[1].request, fake.posted,
				  197, &rig_events, &e, &c),
		     -EMSGSIZE);
}

/* A queue pair on another device could not use this device's memory. */
Test(rc_verbs_cm, another_device_is_refused)
{
	const struct sockaddr_in at = {.sin_family = AF_INET};
	struct rp_channel *c;
	struct rig_end e;
	uint16_t port;

	fake.resolves_to = "fake1";
	cr_assert_eq(rp_rc_listen(rig, (const struct sockaddr *)&at, sizeof(at),
				  &port),
		     -ENODEV);
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	cr_assert_eq(rp_rc_accept(rig, rig_requests[0].request, "ack", 3,
				  &rig_events, &e, &c),
		     -ENODEV);
}

Test(rc_verbs_cm, a_request_is_refused_with_data)
{
	rig_listen();
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	rp_rc_reject(rig, rig_requests[0].request, "stale", 5);
	cr_assert_eq(fake.rejected, 1);
	cr_assert_eq(memcmp(fake.cm_data, "stale", 6), 0);
}

Test(rc_verbs_cm, half_open_requests_end)
{
	struct rdma_cm_id *first;

	rig_listen();
	first = fake_peer();
	fake_padded(first, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	/* The peer withdraws its request. */
	fake_event(first, RDMA_CM_EVENT_REJECTED, 0, NULL, 0);
	rig_poll();
	cr_assert_eq(rig_requests[0].gone, 1);
	cr_assert_eq(fake.rejected, 0);
	/* The domain never accepts or rejects the request. */
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	rig_now += RP_RC_HALF_OPEN_NS;
	rig_poll();
	cr_assert_eq(rig_requests[1].gone, 1);
	cr_assert_eq(fake.rejected, 1);
	/* Requests beyond the half-open limit: the oldest ones are rejected. */
	for (int i = 0; i < RP_RC_MAX_HALF_OPEN + 3; i++)
		fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0,
			    56);
	rig_poll();
	cr_assert_eq(fake.rejected, 4);
	for (int i = 0; i < RP_RC_MAX_HALF_OPEN + 3; i++)
		cr_assert_eq(rig_requests[2 + i].gone, i < 3);
}

Test(rc_verbs_cm, the_port_is_one_of_the_range)
{
	const struct sockaddr_in at = {.sin_family = AF_INET};
	uint16_t port;

	rp_rc_close(rig);
	rig_attr.port_first = 100;
	rig_attr.port_last = 103;
	rig_start();
	fake.busy_ports = 4;
	cr_assert_eq(rp_rc_listen(rig, (const struct sockaddr *)&at, sizeof(at),
				  &port),
		     -EADDRINUSE);
	fake.busy_ports = 3;
	cr_assert_eq(rp_rc_listen(rig, (const struct sockaddr *)&at, sizeof(at),
				  &port),
		     0);
	cr_assert(port >= 100 && port <= 103);
	rig_attr.port_first = rig_attr.port_last = 0;
}

/* The source of a connection is the address on which the domain listens. */
Test(rc_verbs_cm, connections_come_from_the_device)
{
	const struct sockaddr_in *from = (const void *)&fake.from;
	struct rig_end e;

	rig_listen();
	rig_begin(&e);
	cr_assert(fake.has_source);
	cr_assert_eq(from->sin_addr.s_addr, 0x0100007f);
	cr_assert_eq(from->sin_port, 0);
	rp_channel_close(e.c);
}

Test(rc_verbs_cm_open, addresses_of_all_devices)
{
	struct rig_end e;

	fake_start();
	fake.wildcard = true;
	rig_start();
	rig_listen();
	rig_begin(&e);
	cr_assert_not(fake.has_source);
	rp_channel_close(e.c);
	rig_end();
}

/* Without a device name, the first address in use determines the device. */
Test(rc_verbs_cm_open, the_device_is_found_by_address)
{
	struct rp_rc_mr mr;
	struct rig_end e;
	char bytes[8];

	fake_start();
	rig_attr.device = NULL;
	rig_start();
	cr_assert_eq(rp_rc_reg(rig, bytes, 8, RP_RC_LOCAL, &mr), -ENODEV);
	rig_poll();
	rig_connect(&e);
	cr_assert_eq(rp_rc_reg(rig, bytes, 8, RP_RC_LOCAL, &mr), 0);
	rp_rc_dereg(rig, &mr);
	rp_channel_close(e.c);
	rig_end();
	rig_attr.device = FAKE_DEVICE;
}
