// SPDX-License-Identifier: BSD-2-Clause
/* Compares the kernel's write-backs with durable writes of the provider. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functional/pair.h"

/*
 * Two processes over RPMEM_BASE, which is verbs; the pool is a huge page of a
 * devdax device. In the kernel's trace each case is between two marks for
 * flush.sh: the first names the bytes of the pool to be written back, the
 * second says how the case ended.
 * Usage: native METHOD MARKER
 */

#define PAGE ((size_t)4096)
#define FAR  (128 * PAGE) /* offset beyond those of all cases */
#define BIG  200000

static const char *expected;
static FILE *marker;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;
static char buf[BIG];
static char why[512]; /* explanation by query_key() */

static void __attribute__((format(printf, 1, 2))) mark(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(marker, fmt, ap);
	va_end(ap);
	MUST(fflush(marker));
}

static ssize_t post_write(struct side *s, const struct card *peer, size_t at,
			  size_t len, uint64_t flags)
{
	struct iovec iov = {buf, len};
	struct fi_rma_iov rma = {peer->pool_addr + at, len, peer->pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = buf,
	};

	return fi_writemsg(s->ep, &msg, flags | FI_COMPLETION);
}

static int wait_end(struct side *s)
{
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

static void query_key(struct side *s, const struct card *peer,
		      struct fi_rpmem_attr *attr)
{
	*attr = QUERY_ATTR(why);
	MUST(key_query(s->ep, s->peer, peer->pool_key, FI_RPMEM_CLASS_DEFAULT,
		       attr));
}

/* The first durable write opens the private connection. */
static enum fi_rpmem_method wait_for_method(struct side *s,
					    const struct card *peer)
{
	struct fi_rpmem_attr attr;

	POST(s, post_write(s, peer, FAR, 8, FI_COMMIT_COMPLETE));
	tap_ok(!wait_end(s), "the first durable write");
	query_key(s, peer, &attr);
	printf("# %s\n", why);
	return attr.method;
}

static void report_case(const char *name, int status)
{
	mark("end %s %d", status ? "wrong:" : "right:", status);
	tap_ok(!status, "%s, ends", name);
}

/*
 * One durable write. With method native the device writes the bytes back; with
 * another method it writes nothing back.
 */
static void check_durable(struct side *s, const struct card *peer, size_t at,
			  size_t len, const char *name)
{
	mark("begin %zu %zu %s", at, strcmp(expected, "native") ? 0 : len,
	     name);
	POST(s, post_write(s, peer, at, len, FI_COMMIT_COMPLETE));
	report_case(name, wait_end(s));
}

static void check_plain(struct side *s, const struct card *peer)
{
	mark("begin %zu 0 a write without a commit", PAGE);
	POST(s, post_write(s, peer, PAGE, 64, 0));
	report_case("a write without a commit", wait_end(s));
}

/* Two outstanding durable writes. */
static void check_two(struct side *s, const struct card *peer)
{
	int st;

	mark("begin %zu %zu two at once", 20 * PAGE,
	     strcmp(expected, "native") ? 0 : 2 * PAGE);
	POST(s, post_write(s, peer, 20 * PAGE, PAGE, FI_COMMIT_COMPLETE));
	POST(s, post_write(s, peer, 21 * PAGE, PAGE, FI_COMMIT_COMPLETE));
	st = wait_end(s);
	st = st ? st : wait_end(s);
	report_case("two at once", st);
}

/*
 * A commit posts one FLUSH for each range, after writes that ended before it.
 */
static void check_commit(struct side *s, const struct card *peer)
{
	const struct fi_rma_iov r[] = {
		{peer->pool_addr + 30 * PAGE, PAGE, peer->pool_key},
		{peer->pool_addr + 31 * PAGE, PAGE, peer->pool_key},
	};

	mark("begin %zu %zu a commit of two ranges", 30 * PAGE,
	     strcmp(expected, "native") ? 0 : 2 * PAGE);
	for (size_t i = 0; i < 2; i++) {
		POST(s, post_write(s, peer, (30 + i) * PAGE, 8, 0));
		wait_end(s);
	}
	POST(s, commit_post(s->ep, r, 2, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, buf));
	report_case("a commit of two ranges", wait_end(s));
}

static void run_target(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	const enum fi_rpmem_method want = strcmp(expected, "native")
						  ? FI_RPMEM_METHOD_AGENT_CLWB
						  : FI_RPMEM_METHOD_NATIVE;

	pair_barrier(s);
	memset(buf, 0x5a, sizeof(buf));
	tap_ok(wait_for_method(s, peer) == want, "the method is %s", expected);
	check_durable(s, peer, 0, 1, "one byte");
	check_durable(s, peer, PAGE - 4, 8, "8 bytes in two pages");
	check_durable(s, peer, 3 * PAGE, PAGE, "a page");
	check_durable(s, peer, 5 * PAGE + 100, 2 * PAGE, "three pages in part");
	check_durable(s, peer, 8 * PAGE, 64, "a line");
	check_plain(s, peer);
	check_two(s, peer);
	check_commit(s, peer);
	check_durable(s, peer, 60 * PAGE + 1, BIG, "many pages");
	pair_barrier(s);
}

int main(int argc, char **argv)
{
	const struct pair_opts o = {0};

	if (argc != 3 || !(marker = fopen(argv[2], "w")))
		return 99;
	expected = argv[1];
	pair_run(&o, &o, run_target, run_initiator);
	return tap_done();
}
