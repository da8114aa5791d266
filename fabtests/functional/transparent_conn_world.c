// SPDX-License-Identifier: BSD-2-Clause
/*
 * Domains, connections, completions and events of random programs with
 * connected endpoints.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "functional/transparent_conn.h"
#include "unit/landing.h"

static const uint64_t cntr_bits[4] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
struct side side[2];
bool layered, stuck;
const char *base = "tcp";
struct tp_rng rng, aside;
struct op ops[OPS];
int nops, nconns, listener;
char *arena;
size_t used, text_len;
char text[TEXT];

void record_event(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	text_len +=
		(size_t)vsnprintf(text + text_len, TEXT - text_len, fmt, ap);
	va_end(ap);
	if (text_len >= TEXT)
		abort();
}
/* --- objects --- */

static void add_memory(struct side *s, int which)
{
	static const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;

	s->mem[which] = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem[which] == MAP_FAILED)
		MUST(-errno);
	peers_write_here(s->mem[which], REGION);
	MUST(fi_mr_reg(s->domain, s->mem[which], REGION, access, 0,
		       1 + (uint64_t)which, which && layered ? FI_RMA_PMEM : 0,
		       &s->mr[which], NULL));
}

static struct fi_info *get_info(bool automatic)
{
	struct fi_info *h = fi_allocinfo(), *i = NULL;
	char prov[64];

	snprintf(prov, sizeof(prov), "%s%s", base, layered ? ";ofi_rpmem" : "");
	h->caps = FI_MSG | FI_RMA | (layered ? FI_RMA_PMEM : 0);
	h->ep_attr->type = FI_EP_MSG;
	h->domain_attr->mr_mode =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->data_progress =
		automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	h->fabric_attr->prov_name = strdup(prov);
	MUST(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
			&i));
	fi_freeinfo(h);
	return i;
}

void open_batch(bool automatic)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_UNSPEC};

	for (int k = 0; k < 2; k++) {
		struct side *s = &side[k];

		s->info = get_info(automatic);
		MUST(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
		MUST(fi_domain(s->fabric, s->info, &s->domain, NULL));
		MUST(fi_eq_open(s->fabric, &eq, &s->eq, NULL));
		MUST(fi_passive_ep(s->fabric, s->info, &s->pep, NULL));
		MUST(fi_pep_bind(s->pep, &s->eq->fid, 0));
		MUST(fi_listen(s->pep));
		for (int i = 0; i < 2; i++)
			add_memory(s, i);
	}
}

void close_batch(void)
{
	for (int k = 0; k < 2; k++) {
		struct side *s = &side[k];

		for (int i = 0; i < 2; i++) {
			MUST(fi_close(&s->mr[i]->fid));
			munmap(s->mem[i], REGION);
		}
		MUST(fi_close(&s->pep->fid));
		MUST(fi_close(&s->eq->fid));
		MUST(fi_close(&s->domain->fid));
		MUST(fi_close(&s->fabric->fid));
		fi_freeinfo(s->info);
	}
}

struct fid_cq *queue(struct side *s, bool waits)
{
	struct fi_cq_attr attr = {
		.format = s->format,
		.wait_obj = waits ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	struct fid_cq *cq;

	MUST(fi_cq_open(s->domain, &attr, &cq, NULL));
	return cq;
}

static void open_endpoint(int k, int c, struct fi_info *given)
{
	/*
	 * No FI_TRANSMIT_COMPLETE or FI_DELIVERY_COMPLETE here: tcp waits for
	 * acknowledgements if a call has these flags, and not if they are only
	 * default flags.
	 */
	static const uint64_t op_flags[] = {0, FI_COMPLETION,
					    FI_INJECT_COMPLETE};
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_NONE};
	struct fi_info *i = fi_dupinfo(given ? given : side[k].info);
	struct side *s = &side[k];
	struct end *e = &s->end[c];
	uint64_t tx = FI_TRANSMIT, rx = FI_RECV;

	i->handle = given ? given->handle : NULL;
	i->tx_attr->op_flags = e->op_flags = op_flags[tp_below(&rng, 3)];
	MUST(fi_endpoint(s->domain, i, &e->ep, NULL));
	i->handle = NULL;
	fi_freeinfo(i);
	e->selective = tp_chance(&rng, 30);
	e->rx_selective = tp_chance(&rng, 20);
	tx |= e->selective ? FI_SELECTIVE_COMPLETION : 0;
	rx |= e->rx_selective ? FI_SELECTIVE_COMPLETION : 0;
	MUST(fi_ep_bind(e->ep, &s->tx[c]->fid, tx));
	MUST(fi_ep_bind(e->ep, &s->rx[c]->fid, rx));
	MUST(fi_ep_bind(e->ep, &s->eq->fid, 0));
	for (int n = 0; n < 4; n++) {
		if (tp_chance(&rng, 60))
			continue;
		MUST(fi_cntr_open(s->domain, &attr, &e->cntr[n], NULL));
		MUST(fi_ep_bind(e->ep, &e->cntr[n]->fid, cntr_bits[n]));
	}
	MUST(fi_enable(e->ep));
}

/* --- completions --- */

static int conn_of(const struct side *s, const struct fid_cq *cq)
{
	for (int c = 0; c < CONNS; c++)
		if (s->tx[c] == cq || s->rx[c] == cq)
			return c;
	return 0;
}

static void format_note(char *to, size_t size, const char *fmt, ...)
{
	size_t n = strlen(to);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(to + n, size - n, fmt, ap);
	va_end(ap);
}

static void trace_entry(struct side *s, struct fid_cq *cq,
			const struct fi_cq_tagged_entry *e, int err)
{
	struct op *o = e->op_context;
	enum fi_cq_format f = s->format;
	struct end *end;

	if (!o) {
		end = &s->end[conn_of(s, cq)];
		end->data++;
		if (f >= FI_CQ_FORMAT_DATA && (e->data & DATA_PERSISTENT)) {
			end->data_sum += e->flags * e->data;
			return;
		}
		format_note(end->order[KINDS - 1], sizeof(end->order[0]),
			    " %#llx/%#llx", (unsigned long long)e->flags,
			    (unsigned long long)(f >= FI_CQ_FORMAT_DATA
							 ? e->data
							 : 0));
		return;
	}
	if (o < ops || o >= ops + nops)
		MUST(-FI_EOTHER);
	o->got++;
	if (o->kind == BESIDE) {
		if (err)
			record_event("the traffic failed: %d\n", err);
		if (o->got > o->expect)
			record_event("the traffic ends twice\n");
		return;
	}
	end = &side[o->side].end[o->conn];
	if (!o->which)
		format_note(
			end->order[o->kind + (o->delivered ? DELIVERED : 0)],
			sizeof(end->order[0]), " %d", (int)(o - ops));
	if (f == FI_CQ_FORMAT_CONTEXT && !err)
		format_note(o->saw, sizeof(o->saw), " ended");
	else
		format_note(o->saw, sizeof(o->saw), " flags %#llx err %d",
			    (unsigned long long)e->flags, err);
	/* fi_cq(3) leaves these fields undefined for sends and writes. */
	if (f >= FI_CQ_FORMAT_MSG && o->kind == RECV && !err)
		format_note(o->saw, sizeof(o->saw), " len %zu", e->len);
	if (f >= FI_CQ_FORMAT_DATA && (e->flags & FI_REMOTE_CQ_DATA))
		format_note(o->saw, sizeof(o->saw), " data %#llx",
			    (unsigned long long)e->data);
}

static bool poll_cq(struct side *s, struct fid_cq *cq)
{
	static const size_t sizes[] = {
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};
	struct fi_cq_tagged_entry raw[8], e = {0};
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_read(cq, raw, 1 + tp_below(&aside, 8));

	if (n == -FI_EAVAIL && fi_cq_readerr(cq, &err, 0) == 1) {
		e.op_context = err.op_context;
		e.flags = err.flags;
		trace_entry(s, cq, &e, err.err);
		return true;
	}
	for (ssize_t i = 0; i < n; i++) {
		memcpy(&e, (char *)raw + (size_t)i * sizes[s->format],
		       sizes[s->format]);
		trace_entry(s, cq, &e, 0);
	}
	return n > 0;
}

bool poll_all(void)
{
	bool any = false;

	for (int k = 0; k < 2; k++)
		for (int c = 0; c < nconns; c++) {
			any |= poll_cq(&side[k], side[k].tx[c]);
			if (side[k].rx[c] != side[k].tx[c])
				any |= poll_cq(&side[k], side[k].rx[c]);
		}
	return any;
}

/* --- events --- */

static const char *name_of(const struct fid *fid)
{
	static char name[32];

	for (int k = 0; k < 2; k++) {
		if (fid == &side[k].pep->fid)
			return k ? "pep1" : "pep0";
		for (int c = 0; c < CONNS; c++)
			if (side[k].end[c].ep &&
			    fid == &side[k].end[c].ep->fid) {
				snprintf(name, sizeof(name), "ep%d.%d", k, c);
				return name;
			}
	}
	return "somebody";
}

uint32_t event(int k, unsigned int ms, struct fi_info **info)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} cm;
	struct fi_eq_err_entry err = {0};
	uint64_t end = tp_now_ms() + ms, sum = 0;
	uint32_t what = 0;
	ssize_t n;

	do {
		n = fi_eq_read(side[k].eq, &what, &cm, sizeof(cm), 0);
		poll_all();
	} while (n == -FI_EAGAIN && tp_now_ms() < end);
	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL) {
		MUST(fi_eq_readerr(side[k].eq, &err, 0));
		record_event("side %d: error of %s: %d\n", k, name_of(err.fid),
			     err.err);
		return UINT32_MAX;
	}
	MUST(n);
	n -= (ssize_t)sizeof(cm.e);
	for (ssize_t i = 0; i < n; i++)
		sum = sum * 31 + cm.e.data[i];
	record_event("side %d: event %u of %s, %zd bytes %#llx\n", k, what,
		     name_of(cm.e.fid), n, (unsigned long long)sum);
	if (what == FI_CONNREQ && info)
		*info = cm.e.info;
	return what;
}

static size_t some_data(uint8_t *data)
{
	size_t len = tp_chance(&rng, 30) ? 0 : tp_below(&rng, 257);

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)tp_next(&rng);
	return len;
}

void connect_one(int c, bool refused)
{
	struct side *to = &side[listener], *from = &side[!listener];
	uint8_t data[256], name[64], answer[256];
	size_t len = sizeof(name), n, m;
	struct fi_info *info = NULL;
	uint32_t what;

	MUST(fi_getname(&to->pep->fid, name, &len));
	n = some_data(data);
	m = some_data(answer);
	open_endpoint(!listener, c, NULL);
	MUST(fi_connect(from->end[c].ep, name, n ? data : NULL, n));
	do {
		what = event(!listener, 0, NULL);
		if (!what)
			what = event(listener, 1, &info);
	} while (!what);
	if (!info) {
		stuck = true;
		return;
	}
	if (refused) {
		MUST(fi_reject(to->pep, info->handle, NULL, 0));
		fi_freeinfo(info);
		while (!event(!listener, 1, NULL))
			event(listener, 0, NULL);
		MUST(fi_close(&from->end[c].ep->fid));
		for (int i = 0; i < 4; i++)
			if (from->end[c].cntr[i])
				MUST(fi_close(&from->end[c].cntr[i]->fid));
		memset(&from->end[c], 0, sizeof(from->end[c]));
		return;
	}
	open_endpoint(listener, c, info);
	MUST(fi_accept(to->end[c].ep, m ? answer : NULL, m));
	fi_freeinfo(info);
	stuck |= !event(listener, 5000, NULL);
	stuck |= !event(!listener, 5000, NULL);
}
