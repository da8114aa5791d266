// SPDX-License-Identifier: BSD-2-Clause
/* Measures what a connection of a bare base costs: memory and time. */
#include "config.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/benchmarks/base_conn.h"

#define MOST 300 /* maximum number of connections */

/* Configuration, set before the processes are forked. */
static struct {
	int connections, receives;
	bool srx;
	bool queues; /* a CQ for each connection */
} cfg;

static int count_entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 2;
}

/* KiB of pages that this process alone has mapped and written to. */
static double private_kib(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	double kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Private_Dirty: %lf kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static double heap_kib(void)
{
	struct mallinfo2 m = mallinfo2();

	return (double)(m.uordblks + m.hblkhd) / 1024;
}

struct usage {
	double heap, private;
	int fds, threads;
};

static struct usage usage_read(void)
{
	const struct usage u = {heap_kib(), private_kib(),
				count_entries("/proc/self/fd"),
				count_entries("/proc/self/task")};

	return u;
}

static void receives_post(struct fid_ep *ep, char *buf, int n)
{
	for (int i = 0; i < n; i++)
		MUST(fi_recv(ep, buf + (size_t)i * CONN_SLOT, CONN_SLOT, NULL,
			     0, NULL));
}

static void completion_await(struct fid_cq *cq)
{
	struct fi_cq_data_entry done;
	ssize_t ret;

	while ((ret = fi_cq_read(cq, &done, 1)) == -FI_EAGAIN)
		;
	MUST(ret);
}

static void usage_print(const char *end, const struct usage *before,
			const struct usage *idle, const struct usage *used)
{
	const double n = cfg.connections;

	printf("  %-9s heap %6.1f KiB, private pages %6.1f KiB, after one "
	       "echo %6.1f KiB, descriptors %.1f, threads %.2f\n",
	       end, (idle->heap - before->heap) / n,
	       (idle->private - before->private) / n,
	       (used->private - before->private) / n,
	       (used->fds - before->fds) / n,
	       (used->threads - before->threads) / n);
}

static void memory_end(struct conn_world *w, bool target)
{
	const int posted = cfg.srx ? 0 : cfg.receives;
	static struct fid_ep *ep[MOST + 1];
	static struct fid_cq *cq[MOST + 1];
	struct usage before = {0}, idle, used;
	struct conn_node n;
	char text[CONN_REPLY] = "";
	char *buf;

	/*
	 * Keep the buffers out of the heap, and touch them before the first
	 * measure.
	 */
	buf = mmap(NULL, (size_t)(MOST + 1) * 17 * CONN_SLOT,
		   PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	conn_open(&n, w->prov, cfg.srx);
	if (target) {
		conn_listen(&n, w);
		conn_step(w, 1);
	} else {
		conn_await(w, 1);
	}
	if (cfg.srx)
		receives_post(n.srx, buf, cfg.receives);
	usage_read();
	for (int i = 0; i <= cfg.connections; i++) {
		/*
		 * The first connection also allocates what all connections
		 * share.
		 */
		if (i == 1)
			before = usage_read();
		cq[i] = cfg.queues ? conn_cq_open(&n) : n.cq;
		ep[i] = target ? conn_accept(&n, cq[i])
			       : conn_connect(&n, cq[i], w);
		receives_post(ep[i], buf + (size_t)i * 17 * CONN_SLOT, posted);
	}
	idle = usage_read();
	for (int i = 0; i <= cfg.connections; i++) {
		if (!cfg.receives)
			receives_post(ep[i], buf, 1);
		if (target)
			completion_await(cq[i]);
		MUST(fi_inject(ep[i], text, sizeof(text), 0));
		if (!target)
			completion_await(cq[i]);
		receives_post(cfg.srx ? n.srx : ep[i], buf, cfg.receives != 0);
	}
	used = usage_read();
	if (target)
		conn_await_polling(w, 2, &n);
	usage_print(target ? "target" : "initiator", &before, &idle, &used);
	fflush(stdout);
	conn_step(w, target ? 3 : 2);
	if (!target)
		conn_await(w, 3);
}

static void memory_target(struct conn_world *w, int number)
{
	memory_end(w, true);
}

static void memory_initiator(struct conn_world *w, int number)
{
	memory_end(w, false);
}

static int memory_run(const char *prov, int connections, int receives)
{
	cfg.connections = connections;
	cfg.receives = receives;
	printf("%s, %d connections, %d receives of %u bytes %s%s:\n", prov,
	       connections, receives, CONN_SLOT,
	       cfg.srx ? "shared by all" : "on each",
	       cfg.queues ? ", a CQ of 1024 for each" : "");
	return conn_run(prov, 0, memory_target, memory_initiator, 1);
}

int conn_memory(const char *prov, int argc, char **argv)
{
	static const int connections[] = {16, MOST}, receives[] = {0, 3, 17};
	int ret = 0;

	for (int c = 0; c < 2; c++) {
		for (int r = 0; r < 3; r++)
			ret |= memory_run(prov, connections[c], receives[r]);
		/*
		 * Only tcp has a shared receive context for connected
		 * endpoints.
		 */
		cfg.srx = true;
		if (!strcmp(prov, "tcp"))
			ret |= memory_run(prov, connections[c], 17);
		cfg.srx = false;
	}
	cfg.queues = true;
	return ret | (strcmp(prov, "tcp") ? 0 : memory_run(prov, 16, 3));
}

#define CONNECTS 300

static void echo_target(struct conn_world *w, int number)
{
	static char buf[CONN_REPLY];
	struct fi_cq_data_entry done;
	struct conn_event e;
	struct conn_node n;
	struct fid_ep *ep;

	conn_open(&n, w->prov, false);
	conn_listen(&n, w);
	conn_step(w, 1);
	while (!atomic_load(&w->over)) {
		if (fi_cq_read(n.cq, &done, 1) == 1)
			MUST(fi_inject(done.op_context, buf, sizeof(buf), 0));
		e = conn_event(&n, false, 0);
		if (e.kind == FI_SHUTDOWN && e.fid) {
			fi_close(e.fid);
		} else if (e.kind == FI_CONNREQ) {
			ep = conn_ep_open(&n, e.info, NULL);
			fi_freeinfo(e.info);
			MUST(fi_recv(ep, buf, sizeof(buf), NULL, 0, ep));
			MUST(fi_accept(ep, NULL, 0));
		}
	}
}

static void echo_initiator(struct conn_world *w, int number)
{
	static double open[CONNECTS], up[CONNECTS], echo[CONNECTS];
	struct conn_node n;
	char buf[CONN_REPLY] = "";

	conn_open(&n, w->prov, false);
	conn_await(w, 1);
	for (int i = 0; i < CONNECTS; i++) {
		const double begun = conn_now();
		struct fid_ep *ep = conn_ep_open(&n, n.info, NULL);
		const double opened = conn_now();
		struct conn_event e;

		MUST(fi_connect(ep, w->addr, NULL, 0));
		e = conn_event(&n, false, 20000);
		if (e.kind != FI_CONNECTED)
			MUST(-FI_ECONNREFUSED);
		open[i] = opened - begun;
		up[i] = conn_now() - opened;
		MUST(fi_recv(ep, buf, sizeof(buf), NULL, 0, NULL));
		MUST(fi_inject(ep, buf, sizeof(buf), 0));
		completion_await(n.cq);
		echo[i] = conn_now() - opened;
		fi_close(&ep->fid);
	}
	atomic_store(&w->over, 1);
	printf("%s, %d connections, p50 and p90 in us: endpoint opened %.0f "
	       "%.0f, fi_connect() to FI_CONNECTED %.0f %.0f, to the first "
	       "64 B echo %.0f %.0f\n",
	       w->prov, CONNECTS, conn_median(open, CONNECTS),
	       conn_percentile(open, CONNECTS, 90), conn_median(up, CONNECTS),
	       conn_percentile(up, CONNECTS, 90), conn_median(echo, CONNECTS),
	       conn_percentile(echo, CONNECTS, 90));
}

int conn_connecting(const char *prov, int argc, char **argv)
{
	return conn_run(prov, 0, echo_target, echo_initiator, 1);
}
