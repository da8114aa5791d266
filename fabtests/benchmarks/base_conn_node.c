// SPDX-License-Identifier: BSD-2-Clause
/* Opens, connects and forks the processes of base_conn.c's experiments. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/base_conn.h"

ssize_t conn_must(ssize_t ret, const char *what, const char *file, int line)
{
	if (ret >= 0)
		return ret;
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, what,
		fi_strerror((int)-ret));
	_exit(1);
}

double conn_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_doubles(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double conn_percentile(double *v, int n, int percent)
{
	qsort(v, (size_t)n, sizeof(*v), compare_doubles);
	return v[(int)((int64_t)(n - 1) * percent / 100)];
}

double conn_median(double *v, int n)
{
	return conn_percentile(v, n, 50);
}

void conn_open(struct conn_node *n, const char *prov, bool srx)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
	struct fi_info *h = fi_allocinfo();

	memset(n, 0, sizeof(*n));
	if (!h)
		MUST(-FI_ENOMEM);
	h->caps = FI_MSG | FI_RMA;
	h->ep_attr->type = FI_EP_MSG;
	if (srx)
		h->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	/*
	 * Without FI_MR_PROV_KEY the registrant chooses keys, if the base
	 * allows it.
	 */
	h->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	h->domain_attr->threading = FI_THREAD_SAFE;
	h->addr_format = FI_SOCKADDR_IN;
	h->fabric_attr->prov_name = strdup(prov);
	MUST(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
			&n->info));
	fi_freeinfo(h);
	MUST(fi_fabric(n->info->fabric_attr, &n->fabric, NULL));
	MUST(fi_eq_open(n->fabric, &eq, &n->eq, NULL));
	MUST(fi_domain(n->fabric, n->info, &n->domain, NULL));
	n->cq = conn_cq_open(n);
	if (srx)
		MUST(fi_srx_context(n->domain, n->info->rx_attr, &n->srx,
				    NULL));
}

struct fid_cq *conn_cq_open(struct conn_node *n)
{
	struct fi_cq_attr attr = {
		/* With the data of fi_writedata(). */
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_NONE,
		.size = 1024,
	};
	struct fid_cq *cq;

	MUST(fi_cq_open(n->domain, &attr, &cq, NULL));
	return cq;
}

void conn_listen(struct conn_node *n, struct conn_world *w)
{
	MUST(fi_passive_ep(n->fabric, n->info, &n->pep, NULL));
	MUST(fi_pep_bind(n->pep, &n->eq->fid, 0));
	MUST(fi_listen(n->pep));
	w->addr_len = sizeof(w->addr);
	MUST(fi_getname(&n->pep->fid, w->addr, &w->addr_len));
}

/*
 * Sends and writes complete only with FI_COMPLETION; receives always complete.
 */
struct fid_ep *conn_ep_open(struct conn_node *n, struct fi_info *info,
			    struct fid_cq *cq)
{
	struct fid_ep *ep;

	MUST(fi_endpoint(n->domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &n->eq->fid, 0));
	if (!cq)
		cq = n->cq;
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
	MUST(fi_ep_bind(ep, &cq->fid, FI_RECV));
	if (n->srx)
		MUST(fi_ep_bind(ep, &n->srx->fid, 0));
	MUST(fi_enable(ep));
	return ep;
}

static void event_read(struct conn_node *n, struct conn_event *e)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + CONN_CM_DATA];
	} got;
	struct fi_eq_err_entry bad = {
		.err_data = e->data,
		.err_data_size = sizeof(e->data),
	};
	uint32_t kind = 0;
	ssize_t ret = fi_eq_read(n->eq, &kind, &got, sizeof(got), 0);

	if (ret == -FI_EAVAIL) {
		MUST(fi_eq_readerr(n->eq, &bad, 0));
		e->kind = FI_SHUTDOWN;
		e->err = bad.err;
		e->fid = bad.fid;
		e->len = bad.err_data_size;
		if (e->len > sizeof(e->data))
			e->len = 0; /* the provider returned no CM data */
		if (e->len && bad.err_data != e->data)
			memcpy(e->data, bad.err_data, e->len);
	} else if (ret > 0) {
		e->kind = (int)kind;
		e->fid = got.entry.fid;
		e->info = kind == FI_CONNREQ ? got.entry.info : NULL;
		e->len = (size_t)ret - sizeof(got.entry);
		memcpy(e->data, got.entry.data, e->len);
	}
}

struct conn_event conn_event(struct conn_node *n, bool with_cq, double ms)
{
	const double begun = conn_now();
	struct conn_event e = {0};

	do {
		event_read(n, &e);
		if (!e.kind && with_cq)
			fi_cq_read(n->cq, NULL, 0);
		e.ms = (conn_now() - begun) / 1e3;
	} while (!e.kind && e.ms < ms);
	return e;
}

const char *conn_event_text(const struct conn_event *e)
{
	static char text[128];
	const char *kind = !e->kind		     ? "nothing"
			   : e->err		     ? "error entry"
			   : e->kind == FI_CONNREQ   ? "FI_CONNREQ"
			   : e->kind == FI_CONNECTED ? "FI_CONNECTED"
						     : "FI_SHUTDOWN";

	snprintf(text, sizeof(text), "%s%s%s after %.3f ms, %zu B", kind,
		 e->err ? " " : "", e->err ? fi_strerror(e->err) : "", e->ms,
		 e->len);
	return text;
}

struct fid_ep *conn_connect(struct conn_node *n, struct fid_cq *cq,
			    struct conn_world *w)
{
	struct fid_ep *ep = conn_ep_open(n, n->info, cq);
	struct conn_event e;

	MUST(fi_connect(ep, w->addr, NULL, 0));
	e = conn_event(n, true, 20000);
	if (e.kind != FI_CONNECTED)
		MUST(e.err ? -e.err : -FI_ETIMEDOUT);
	return ep;
}

struct fid_ep *conn_accept(struct conn_node *n, struct fid_cq *cq)
{
	struct conn_event e;
	struct fid_ep *ep;

	do {
		e = conn_event(n, true, 20000);
	} while (e.kind && e.kind != FI_CONNREQ);
	if (!e.kind)
		MUST(-FI_ETIMEDOUT);
	ep = conn_ep_open(n, e.info, cq);
	fi_freeinfo(e.info);
	MUST(fi_accept(ep, NULL, 0));
	e = conn_event(n, true, 20000);
	if (e.kind != FI_CONNECTED)
		MUST(-FI_ECONNABORTED);
	return ep;
}

struct fid_mr *conn_reg(struct conn_node *n, void *buf, size_t len,
			uint64_t access, uint64_t key)
{
	struct fid_mr *mr;

	MUST(fi_mr_reg(n->domain, buf, len, access, 0, key, 0, &mr, NULL));
	return mr;
}

uint64_t conn_addr(struct conn_node *n, const void *buf)
{
	return n->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)buf
							       : 0;
}

void conn_step(struct conn_world *w, int n)
{
	atomic_store(&w->step, n);
}

void conn_await(struct conn_world *w, int n)
{
	while (atomic_load(&w->step) < n)
		usleep(50);
}

void conn_await_polling(struct conn_world *w, int n, struct conn_node *node)
{
	while (atomic_load(&w->step) < n)
		fi_cq_read(node->cq, NULL, 0);
}

void conn_world_free(struct conn_world *w)
{
	if (w->mem)
		munmap(w->mem, w->len);
	munmap(w, sizeof(*w));
}

static pid_t start_role(struct conn_world *w, conn_role role, int number)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(600);
	role(w, number);
	fflush(stdout);
	_exit(0);
}

static void *shared_map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

struct conn_world *conn_run_page(const char *prov, size_t len, conn_role target,
				 conn_role initiator, int n)
{
	struct conn_world *w = shared_map(sizeof(*w));
	pid_t pid[64], done;
	int status, failed = 0;

	if (!w)
		return NULL;
	w->prov = prov;
	w->len = len;
	w->mem = len ? shared_map(len) : NULL;
	if (len && !w->mem)
		MUST(-FI_ENOMEM);
	pid[0] = start_role(w, target, 0);
	for (int i = 1; i <= n; i++)
		pid[i] = start_role(w, initiator, i - 1);
	for (int left = n + 1; left; left--) {
		done = wait(&status);
		if (done < 0)
			break;
		for (int i = 0; i <= n; i++)
			if (pid[i] == done)
				pid[i] = 0;
		if (!status || (WIFSIGNALED(status) &&
				WTERMSIG(status) == SIGKILL && !failed))
			continue; /* killed, as some experiments expect */
		if (failed++)
			continue; /* this process kills the others */
		for (int i = 0; i <= n; i++)
			if (pid[i] > 0)
				kill(pid[i], SIGKILL);
		if (WIFSIGNALED(status))
			fprintf(stderr, "a process ended by signal %d\n",
				WTERMSIG(status));
	}
	if (!failed)
		return w;
	conn_world_free(w);
	return NULL;
}

int conn_run(const char *prov, size_t len, conn_role target,
	     conn_role initiator, int n)
{
	struct conn_world *w = conn_run_page(prov, len, target, initiator, n);

	if (!w)
		return 1;
	conn_world_free(w);
	return 0;
}
