// SPDX-License-Identifier: BSD-2-Clause
/* Threads of the server: progress of the target, doorbells, flushes. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "librpc/server.h"
#include "util/clock.h"

#define CHECK_MS 1000 /* interval of pool file checks, as in fi_rpmemd */
#define LOOK_MS	 100  /* interval of scans, as messages may be lost */

/* Make progress: the agent works inside fi_cq_read(). */
static void make_progress(struct rpmem_rpc_server *srv)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done[16];
	ssize_t n = fi_cq_read(srv->x.f.cq, done, 16);

	/* A client that disconnects is no error of the server. */
	if (n == -FI_EAVAIL)
		rp_fabric_cq_error(&srv->x.f, &bad, NULL);
	if (n >= 0 || n == -FI_EAVAIL || n == -FI_EAGAIN)
		return;
	pthread_mutex_lock(&srv->lock);
	server_fail(srv, -EIO, fi_strerror((int)-n));
	pthread_mutex_unlock(&srv->lock);
}

/* Called with the lock held. */
static void receive(void *arg, const struct rpc_msg *m)
{
	struct rpmem_rpc_server *srv = arg;
	struct slot *s;

	if (m->slot >= srv->nslots || m->token != srv->page.token)
		return;
	s = &srv->slots[m->slot];
	if (m->type == RPC_MSG_ATTACH) {
		slot_attach(srv, s);
		s->attached = true;
	}
}

/* Scan for entries, which fi_cq_read() or RDMA with a doorbell brings. */
static bool scan_all(struct rpmem_rpc_server *srv, bool look)
{
	bool waits = false;

	for (unsigned int i = 0; i < srv->nslots; i++) {
		struct slot *s = &srv->slots[i];

		if (look && slot_is_written(s))
			slot_attach(srv, s);
		slot_scan(srv, s);
		waits |= slot_send(srv, s);
	}
	return waits;
}

static int sleep_ms(struct rpmem_rpc_server *srv, bool waits)
{
	struct fid *agent = &srv->x.f.cq->fid, *port = &srv->port.f.cq->fid;
	int ms;

	if (fi_trywait(srv->x.f.fabric, &agent, 1) ||
	    fi_trywait(srv->port.f.fabric, &port, 1))
		return 0;
	ms = rp_setup_server_timeout(srv->setup);
	if (ms < 0 || ms > LOOK_MS)
		ms = LOOK_MS;
	return waits ? 1 : ms;
}

void *server_run(void *arg)
{
	struct rpmem_rpc_server *srv = arg;
	struct pollfd fds[] = {
		{.fd = srv->x.cq_fd, .events = POLLIN},
		{.fd = srv->port.fd, .events = POLLIN},
		{.fd = rp_setup_server_fd(srv->setup), .events = POLLIN},
		{.fd = srv->x.ended_fd, .events = POLLIN},
		{.fd = srv->wake_fd, .events = POLLIN},
	};
	uint64_t now, check_at = 0, look_at = 0;
	bool waits, closing;
	eventfd_t count;

	do {
		now = rp_now_ms();
		if (now >= check_at) {
			rp_exports_check(&srv->x);
			rp_setup_server_resume(srv->setup);
			check_at = now + CHECK_MS;
		}
		make_progress(srv);
		rp_setup_server_run(srv->setup);
		pthread_mutex_lock(&srv->lock);
		rpc_port_poll(&srv->port, receive, srv, 0);
		waits = scan_all(srv, now >= look_at);
		closing = srv->closing;
		pthread_mutex_unlock(&srv->lock);
		if (now >= look_at)
			look_at = now + LOOK_MS;
		if (poll(fds, 5, sleep_ms(srv, waits)) > 0 && fds[3].revents) {
			eventfd_read(fds[3].fd, &count);
			check_at = 0;
		}
	} while (!closing);
	return NULL;
}
