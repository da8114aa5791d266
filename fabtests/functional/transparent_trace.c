// SPDX-License-Identifier: BSD-2-Clause
/* The trace of a program: lines, sorted by their operation. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functional/transparent.h"

/* Sort keys of lines that belong to no operation of the plan. */
#define LINE_REMOTE (1 << 19) /* remote CQ data of an operation */
#define LINE_STRAY  (1 << 20)
#define LINE_ORDER  (1 << 21)

struct line {
	int op;
	unsigned int seq;
	char *text;
};

struct tp_trace {
	struct line *line;
	size_t n, cap;
};

struct tp_trace *tp_trace_new(void)
{
	struct tp_trace *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	return t;
}

void tp_trace_clear(struct tp_trace *t)
{
	while (t->n)
		free(t->line[--t->n].text);
}

void tp_trace_free(struct tp_trace *t)
{
	tp_trace_clear(t);
	free(t->line);
	free(t);
}

void tp_saw(struct tp_trace *t, int op, const char *fmt, ...)
{
	struct line l = {.op = op, .seq = (unsigned int)t->n};
	va_list ap;

	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 256;
		t->line = realloc(t->line, t->cap * sizeof(*t->line));
		if (!t->line)
			abort();
	}
	va_start(ap, fmt);
	if (vasprintf(&l.text, fmt, ap) < 0)
		abort();
	va_end(ap);
	t->line[t->n++] = l;
}

static int by_op(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	/* Stray entries have no defined order: sort them by text. */
	if (x->op == LINE_STRAY && y->op == LINE_STRAY)
		return strcmp(x->text, y->text);
	if (x->op != y->op)
		return x->op < y->op ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

char *tp_trace_text(struct tp_trace *t)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		abort();
	qsort(t->line, t->n, sizeof(*t->line), by_op);
	for (size_t i = 0; i < t->n; i++)
		fprintf(f, "%d: %s\n", t->line[i].op, t->line[i].text);
	fclose(f);
	return text;
}

/* --- entries --- */

static struct tp_op *op_of(struct tp_world *w, const void *context)
{
	struct tp_plan *p = w->p;
	uintptr_t at = (uintptr_t)context - (uintptr_t)p->ops;

	return at < p->n * sizeof(*p->ops) && !(at % sizeof(*p->ops))
		       ? (struct tp_op *)context
		       : NULL;
}

static bool is_hello(struct tp_world *w, const void *context)
{
	struct tp_op *o = (struct tp_op *)context;

	if (o != &w->hello[0] && o != &w->hello[1])
		return false;
	o->got++;
	return true;
}

static struct tp_traffic *traffic_of(struct tp_world *w, const void *context)
{
	uintptr_t at = (uintptr_t)context - (uintptr_t)w->traffic;

	return at < sizeof(w->traffic) && !(at % sizeof(*w->traffic))
		       ? (struct tp_traffic *)context
		       : NULL;
}

/*
 * Print a source as the name of its endpoint, because addresses are numbers
 * that vary.
 */
static void say_source(struct tp_world *w, const struct tp_cq *cq,
		       fi_addr_t src, char *buf, size_t len)
{
	snprintf(buf, len, "nobody");
	if (src == FI_ADDR_NOTAVAIL)
		return;
	if (w->p->setup.av[cq->side] == FI_AV_TABLE) {
		snprintf(buf, len, "%llu", (unsigned long long)src);
		return;
	}
	snprintf(buf, len, "wild");
	for (int n = 0; n < TP_EPS; n++)
		if (w->ep[2 * cq->side].peer[n] == src)
			snprintf(buf, len, "ep%d", n);
}

static void say_buf(const struct tp_op *o, const void *buf, char *out,
		    size_t len)
{
	size_t at = (size_t)((const char *)buf - o->buf);

	if (!buf)
		snprintf(out, len, "none");
	else if (o->buf && at <= o->len)
		snprintf(out, len, "+%zu", at);
	else
		snprintf(out, len, "wild");
}

static void traffic_ends(struct tp_world *w, struct tp_traffic *f, int err,
			 int prov_errno)
{
	if (!f->out)
		tp_saw(w->t, LINE_STRAY, "traffic of ep%d ended twice", f->ep);
	else
		w->traffic_out--;
	if (err)
		tp_saw(w->t, LINE_STRAY, "traffic of ep%d: error %d (%d)",
		       f->ep, err, prov_errno);
	f->out = false;
}

/*
 * Clear the fields that fi_cq(3) leaves undefined, unless the base always
 * defines them (w->tidy).
 */
static void only_defined(struct tp_world *w, struct fi_cq_tagged_entry *e)
{
	if (w->tidy)
		return;
	if (!(e->flags & FI_RECV)) {
		e->len = 0;
		e->buf = NULL;
	}
	if (!(e->flags & FI_REMOTE_CQ_DATA))
		e->data = 0;
	if (!(e->flags & FI_TAGGED) || !(e->flags & FI_RECV))
		e->tag = 0;
}

void tp_saw_entry(struct tp_world *w, struct tp_cq *cq,
		  const struct fi_cq_tagged_entry *e, fi_addr_t src)
{
	struct tp_op *o = op_of(w, e->op_context), none = {0};
	struct fi_cq_tagged_entry copy = *e;
	struct tp_traffic *f = traffic_of(w, e->op_context);
	char from[24], buf[24], text[200];
	int index = o ? (int)(o - w->p->ops) : LINE_STRAY, n;

	if (is_hello(w, e->op_context))
		return;
	if (f) {
		traffic_ends(w, f, 0, 0);
		return;
	}
	/*
	 * An entry of remote CQ data has no context: its data has the
	 * operation's index.
	 */
	if (!o && cq->format >= FI_CQ_FORMAT_DATA &&
	    e->flags & FI_REMOTE_CQ_DATA &&
	    (e->data & ~0xffffull) == 0x5a000000 &&
	    (e->data & 0xffff) < w->p->n)
		index = LINE_REMOTE + (int)(e->data & 0xffff);
	/* Only entries of receives have a source. */
	if (!o ||
	    (o->verb != TP_RECV && o->verb != TP_MULTI && o->verb != TP_PEEK))
		src = FI_ADDR_NOTAVAIL;
	only_defined(w, &copy);
	e = &copy;
	say_source(w, cq, src, from, sizeof(from));
	say_buf(o ? o : &none, e->buf, buf, sizeof(buf));
	n = snprintf(text, sizeof(text), "%s side %d",
		     o ? "entry" : "anonymous entry", cq->side);
	if (cq->format >= FI_CQ_FORMAT_MSG)
		n += snprintf(text + n, sizeof(text) - n,
			      " flags %#llx len %zu",
			      (unsigned long long)e->flags, e->len);
	if (cq->format >= FI_CQ_FORMAT_DATA)
		n += snprintf(text + n, sizeof(text) - n, " buf %s data %#llx",
			      buf, (unsigned long long)e->data);
	if (cq->format >= FI_CQ_FORMAT_TAGGED)
		snprintf(text + n, sizeof(text) - n, " tag %#llx",
			 (unsigned long long)e->tag);
	tp_saw(w->t, index, "%s from %s", text, from);
	if (o) {
		o->got++;
		if (o->in_order)
			tp_saw(w->t, LINE_ORDER + 2 * o->ep + o->tagged,
			       "ep%d has received by %s%d", o->ep,
			       o->tagged ? "tagged " : "", index);
	} else {
		w->side[cq->side].anonymous++;
	}
}

void tp_saw_error(struct tp_world *w, struct tp_cq *cq,
		  const struct fi_cq_err_entry *e)
{
	struct tp_op *o = op_of(w, e->op_context);
	struct tp_traffic *f = traffic_of(w, e->op_context);
	char buf[24] = "none";
	int prov_errno = 0;

	if (f) {
		traffic_ends(w, f, e->err, e->prov_errno);
		return;
	}
	/* A peek before its message has arrived is repeated, and not traced. */
	if (o && o->verb == TP_PEEK && o->other >= 0 && e->err == FI_ENOMSG) {
		o->early = true;
		return;
	}
	if (o)
		say_buf(o, e->buf, buf, sizeof(buf));
	/*
	 * prov_errno is traced only here: for others the base returns an errno
	 * that an earlier call has left.
	 */
	if (e->err != FI_ETRUNC)
		prov_errno = e->prov_errno;
	tp_saw(w->t, o ? (int)(o - w->p->ops) : LINE_STRAY,
	       "error side %d flags %#llx len %zu buf %s data %#llx tag %#llx "
	       "olen %zu err %d prov_errno %d",
	       cq->side, (unsigned long long)e->flags, e->len, buf,
	       (unsigned long long)e->data, (unsigned long long)e->tag, e->olen,
	       e->err, prov_errno);
	if (o)
		o->got++;
}
