// SPDX-License-Identifier: BSD-2-Clause
/* The time of rpmem_wr_flush(), compared with ibv_wr_flush() on one device. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ends.h"

/*
 * Two connections of this process to one devdax, one of them attached to the
 * shim. The two in turn post a flush and poll until it has completed; the
 * medians are compared. With a further argument only one connection runs, to
 * count its instructions.
 */
#define LEN  (2u << 20)
#define WARM 100
#define BAR  1.05

#ifdef HAVE_IBV_WR_FLUSH
static struct ends_end a[2], b[2];
static struct rpmem_cq *scq[2];
static struct rpmem_qp *sqp[2];
static uint32_t rkey;
static uint64_t at;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void count_completions(int n, const struct ibv_wc *wc)
{
	if (n == 1 && wc->status == IBV_WC_SUCCESS && wc->wr_id == 7 &&
	    wc->opcode == IBV_WC_FLUSH)
		return;
	ends_die("%d completions, %s", n, ibv_wc_status_str(wc->status));
}

static double time_plain(void)
{
	struct ibv_qp_ex *ex = a[0].ex;
	const double start = now();
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	int n;

	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(ex, rkey, at, 64, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	errno = ibv_wr_complete(ex);
	if (errno)
		ends_die("ibv_wr_flush");
	while (!(n = ibv_poll_cq(a[0].cq, 1, &wc)))
		;
	count_completions(n, &wc);
	return now() - start;
}

static double time_shim(void)
{
	struct rpmem_qp *qp = sqp[0];
	const double start = now();
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	int n;

	rpmem_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_flush(qp, rkey, at, 64, RPMEM_FLUSH_PERSISTENT,
		       RPMEM_FLUSH_RANGE);
	errno = rpmem_wr_complete(qp);
	if (errno)
		ends_die("rpmem_wr_flush");
	while (!(n = rpmem_poll_cq(scq[0], 1, &wc)))
		;
	count_completions(n, &wc);
	return now() - start;
}

static void attach_end(int i, struct ends_end *e, unsigned int access)
{
	const struct rpmem_qp_attr attr = {.send_ops_flags = e->send_ops,
					   .access = access};

	scq[i] = rpmem_attach_cq(e->cq);
	sqp[i] = scq[i] ? rpmem_attach_qp(e->qp, scq[i], &attr) : NULL;
	if (!sqp[i])
		ends_die("attach");
}

static void setup(const struct ends_device *d, char *dax)
{
	struct rpmem_region how;
	struct rpmem_mr_desc desc;
	struct rpmem_mr *mr;

	for (int i = 0; i < 2; i++) {
		ends_make(&a[i], d, 16);
		ends_make(&b[i], d, 16);
		ends_join(a[i].qp, d, b[i].qp->qp_num, ENDS_OPEN);
		ends_join(b[i].qp, d, a[i].qp->qp_num,
			  ENDS_OPEN | ENDS_FLUSHES);
	}
	attach_end(0, &a[1], 0);
	attach_end(1, &b[1], ENDS_FLUSHES);
	mr = rpmem_reg_mr(d->pd, dax, LEN, ENDS_OPEN | ENDS_FLUSHES);
	if (!mr)
		ends_die("rpmem_reg_mr");
	errno = rpmem_export_mr(mr, sqp[1], &desc);
	if (!errno)
		errno = rpmem_import_mr(sqp[0], &desc, &how);
	rkey = mr->mr->rkey;
	at = (uintptr_t)dax + 4096;
	if (errno)
		ends_die("the region");
	errno = EOPNOTSUPP;
	if (strcmp(how.persistent, "native"))
		ends_die("it is flushed by %s", how.persistent);
}

static int by_value(const void *x, const void *y)
{
	const double *l = x, *r = y;

	return (*l > *r) - (*l < *r);
}

static double median(double *t, size_t n)
{
	qsort(t, n, sizeof(*t), by_value);
	return t[n / 2];
}

static void print_times(FILE *f, const double us[2], size_t n)
{
	fprintf(f,
		"{\"shim_native_vs_wr_flush\": %.4f, \"bar\": %.2f, "
		"\"wr_flush_us\": %.2f, \"shim_us\": %.2f, \"count\": %zu}\n",
		us[1] / us[0], BAR, us[0], us[1], n);
}

int main(int argc, char **argv)
{
	struct ends_device d;
	const char *only = NULL, *json = NULL;
	double *t[2], us[2];
	char *dax;
	size_t n;
	int fd;

	if (argc > 6 && !strcmp(argv[5], "--json"))
		json = argv[6];
	else if (argc > 5)
		only = argv[5];
	n = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	if (argc < 5 || argc > 7 || !n ||
	    (only && strcmp(only, "plain") && strcmp(only, "shim"))) {
		fprintf(stderr, "usage: shim_cost DEVICE GID-INDEX DAX COUNT "
				"[plain | shim | --json FILE]\n");
		return 2;
	}
	ends_device(&d, argv[1], atoi(argv[2]));
	fd = open(argv[3], O_RDWR);
	dax = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		   MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	t[0] = calloc(n, sizeof(double));
	t[1] = calloc(n, sizeof(double));
	if (fd < 0 || dax == MAP_FAILED || !t[0] || !t[1])
		ends_die("%s", argv[3]);
	setup(&d, dax);
	for (size_t i = 0; only && i < n; i++)
		strcmp(only, "shim") ? time_plain() : time_shim();
	if (only)
		return 0;
	for (size_t i = 0; i < WARM; i++)
		time_plain(), time_shim();
	for (size_t i = 0; i < n; i++) {
		/* Alternate which connection is first. */
		if (i % 2)
			t[1][i] = time_shim();
		t[0][i] = time_plain();
		if (!(i % 2))
			t[1][i] = time_shim();
	}
	for (int k = 0; k < 2; k++)
		us[k] = median(t[k], n);
	printf("# ibv_wr_flush %.2f us, through the shim %.2f us, of %zu\n",
	       us[0], us[1], n);
	printf("shim_native_vs_wr_flush %.4f <= %.2f %s\n", us[1] / us[0], BAR,
	       us[1] / us[0] <= BAR ? "met" : "missed");
	if (json) {
		FILE *f = fopen(json, "w");

		if (!f)
			ends_die("%s", json);
		print_times(f, us, n);
		if (fclose(f))
			ends_die("%s", json);
	}
	return 0;
}
#else
int main(void)
{
	puts("rdma-core of this release has no FLUSH");
	return 77;
}
#endif
