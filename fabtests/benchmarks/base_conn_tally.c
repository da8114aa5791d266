// SPDX-License-Identifier: BSD-2-Clause
/* Operations on bare connected endpoints, and a count of their completions. */
#include "config.h"

#include <stdio.h>

#include "fabtests/benchmarks/base_conn_tally.h"

void *context_of(int i)
{
	return (void *)(uintptr_t)i;
}

bool tally_read(struct conn_node *n, struct tally *t)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_data_entry done;
	ssize_t ret = fi_cq_read(n->cq, &done, 1);

	if (ret == -FI_EAGAIN)
		return false;
	if (ret == -FI_EAVAIL) {
		MUST(fi_cq_readerr(n->cq, &bad, 0));
		done.op_context = bad.op_context;
		t->failed++;
	} else {
		MUST(ret);
		t->done++;
	}
	if (t->n < 256) {
		t->entry[t->n].context = (int)(intptr_t)done.op_context;
		t->entry[t->n++].err = bad.err;
	}
	return true;
}

void tally_poll(struct conn_node *n, struct tally *t, int entries, double ms)
{
	const double begun = conn_now();

	while (t->n < entries && conn_now() - begun < ms * 1e3)
		tally_read(n, t);
}

void tally_print(const char *what, const struct tally *t)
{
	printf("  %s: %d completions, %d errors", what, t->done, t->failed);
	for (int i = 0; i < t->n && i < 24; i++) {
		if (t->entry[i].context)
			printf("%s %d", i ? "," : ";", t->entry[i].context);
		else
			printf("%s NULL", i ? "," : ";");
		if (t->entry[i].err)
			printf(" %s", fi_strerror(t->entry[i].err));
	}
	printf("\n");
	fflush(stdout);
}

ssize_t message_send(struct fid_ep *ep, const void *buf, size_t len, int number,
		     uint64_t flags)
{
	const struct iovec iov = {(void *)buf, len};
	const struct fi_msg m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.context = context_of(number),
	};

	return fi_sendmsg(ep, &m, flags);
}

ssize_t write_post(struct fid_ep *ep, const void *buf, size_t len,
		   uint64_t addr, uint64_t key, int number, uint64_t flags)
{
	const struct iovec iov = {(void *)buf, len};
	const struct fi_rma_iov to = {addr, len, key};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = context_of(number),
	};

	return fi_writemsg(ep, &m, flags);
}

void target_open(struct conn_node *n, struct conn_world *w)
{
	conn_open(n, w->prov, false);
	conn_listen(n, w);
	if (w->mem)
		w->key[0] = fi_mr_key(conn_reg(n, w->mem, w->len, RIGHT, 7));
	w->base = conn_addr(n, w->mem);
	conn_step(w, 1);
}

size_t count_bytes(const char *mem, size_t len, char value)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += mem[i] == value;
	return n;
}
