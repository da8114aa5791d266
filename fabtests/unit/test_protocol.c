// SPDX-License-Identifier: BSD-2-Clause
/* The numbers in docs/protocol.md are those of the code: control messages. */
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/agent.h"
#include "core/client.h"
#include "core/initiator.h"
#include "core/wire.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define DOC	 RP_SRCDIR "/docs/protocol.md"

/* From a heading to the next of its level, to be freed. */
static char *part(const char *text, const char *heading)
{
	const char *from = strstr(text, heading), *to;
	char level[8];

	cr_assert_not_null(from, "no \"%s\" in " DOC, heading);
	from += strlen(heading);
	snprintf(level, sizeof(level), "\n%.*s ",
		 (int)strcspn(heading + 1, " "), heading + 1);
	to = strstr(from, level);
	return to ? strndup(from, to - from) : strdup(from);
}

static char *chapter(void)
{
	static char text[1 << 17];
	FILE *f = fopen(DOC, "r");
	size_t n;

	cr_assert_not_null(f, DOC);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	cr_assert_lt(n, sizeof(text) - 1);
	text[n] = 0;
	return part(text, "\n## Control messages\n");
}

static char *section(const char *heading)
{
	char *all = chapter(), *s = part(all, heading);

	free(all);
	return s;
}

/*
 * The next place from *at on that matches; what is in its brackets goes to out,
 * what is in none is "". False: no more.
 */
#define GROUPS 4
static bool next(const char **at, const char *pattern, char out[GROUPS][256])
{
	regmatch_t m[GROUPS + 1];
	bool found;
	regex_t re;

	cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE), 0);
	found = !regexec(&re, *at, COUNT(m), m, 0);
	regfree(&re);
	if (!found)
		return false;
	for (size_t i = 1; i < COUNT(m); i++)
		snprintf(out[i - 1], 256, "%.*s",
			 (int)(m[i].rm_eo - m[i].rm_so),
			 m[i].rm_so < 0 ? "" : *at + m[i].rm_so);
	*at += m[0].rm_eo;
	return true;
}

/* One row of a layout. */
struct row {
	size_t at, size; /* size 0: to the end */
	bool zero;
	char name[32];
};

/* A message as the page describes it. */
struct layout {
	char name[16];
	unsigned int type;
	size_t len, each; /* fixed part, and what each range adds */
	struct row rows[16];
	size_t n;
};

static size_t rows_parse(const char *from, const char *to, struct row *rows,
			 size_t max)
{
	char g[GROUPS][256];
	size_t n = 0;

	while (next(&from,
		    "^\\| ([0-9]+) \\| (u(8|16|32|64)|[0-9]* ?bytes?) \\| "
		    "([a-z_.]+|0)[: ]",
		    g) &&
	       from <= to) {
		struct row *r = &rows[n];

		cr_assert_lt(n++, max);
		r->at = strtoul(g[0], NULL, 10);
		r->size = g[1][0] == 'u' ? strtoul(g[1] + 1, NULL, 10) / 8
					 : strtoul(g[1], NULL, 10);
		r->zero = !strcmp(g[3], "0");
		snprintf(r->name, sizeof(r->name), "%.31s", g[3]);
	}
	return n;
}

static size_t layouts(struct layout *v, size_t max)
{
	static const char pattern[] = "([A-Z_]+), type ([0-9]+), ([0-9]+) bytes"
				      "( and [0-9]+ for each range)?";
	char *s = section("\n### Messages\n"), g[GROUPS][256];
	const char *at = s, *end;
	size_t n = 0;

	while (next(&at, pattern, g)) {
		struct layout *l = &v[n];

		cr_assert_lt(n++, max);
		snprintf(l->name, sizeof(l->name), "%.15s", g[0]);
		l->type = strtoul(g[1], NULL, 10);
		l->len = strtoul(g[2], NULL, 10);
		l->each = strtoul(g[3] + (g[3][0] ? 5 : 0), NULL, 10);
		end = at;
		if (!next(&end, pattern, g))
			end = at + strlen(at);
		l->n = rows_parse(at, end, l->rows, COUNT(l->rows));
	}
	free(s);
	return n;
}

/* Every field of one message with the value that its bytes must have. */
struct field {
	const char *name;
	uint64_t value;
};

struct example {
	const char *name;
	uint8_t type;
	int (*put)(void *buf, size_t size, const struct rp_wire_hdr *hdr);
	struct field fields[16];
};

static const struct rp_wire_hdr some_hdr = {
	.session = 0x1112131415161718,
	.token = 0x2122232425262728,
	.incarnation = 0x3132333435363738,
};

static int put_hello(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hdr h = *hdr;
	const struct rp_wire_hello m = {
		.cookie = 0x4142434445464748,
		.key = 0x5152535455565758,
		.timeout_ms = 0x61626364,
		.features = 0x7172,
		.addr_len = 1,
		.addr = {0x81},
	};

	h.session = 0;
	return rp_wire_put_hello(buf, size, &h, &m);
}

static int put_ack(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_hello_ack m = {
		.cookie = 0x4142434445464748,
		.credits = 0x5152,
		.max_ranges = RP_WIRE_MAX_RANGES,
		.features = RP_FEATURES,
	};

	return rp_wire_put_hello_ack(buf, size, hdr, &m);
}

static int put_nack(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_hello_ack m = {.status = RP_ST_VERSION};

	return rp_wire_put_hello_ack(buf, size, hdr, &m);
}

static int put_request(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.required = RP_CLASS_POWER,
		.ranges = {{0x4142434445464748, 0x5152535455565758,
			    0x6162636465666768}},
	};

	return rp_wire_put_request(buf, size, hdr, &m);
}

static int put_reply(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_PROCESS,
		.range = 0x81,
		.detail = 0x41424344,
		.credits = 0x5152,
		.method = RP_METHOD_AGENT_MSYNC,
	};

	return rp_wire_put_reply(buf, size, hdr, &m);
}

static int put_bad_reply(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_reply m = {.status = RP_ST_STALE_KEY};

	return rp_wire_put_reply(buf, size, hdr, &m);
}

static int put_query(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_query m = {
		.key = 0x4142434445464748,
		.required = RP_CLASS_POWER,
	};

	return rp_wire_put_query(buf, size, hdr, &m);
}

static int put_info(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_info m = {
		.status = 0x0c,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_DELIVERY,
		.memory = RP_MEM_EMULATED,
		.placement = RP_PLACE_CPU_KERNEL,
		.domain = RP_DOMAIN_CPUCACHE,
		.refusal = RP_REFUSAL_NO_AGENT,
		.granularity = 0x41424344,
		.length = 0x5152535455565758,
		.addr = 0x6162636465666768,
		.preferred_size = 0x71727374,
		.preferred_align = 0x81828384,
		.why = "w",
	};

	return rp_wire_put_info(buf, size, hdr, &m);
}

static int put_connect(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_connect m = {
		.id = 0x4142434445464748,
		.key = 0x5152535455565758,
	};

	return rp_wire_put_connect(buf, size, hdr, &m);
}

static int put_offer(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	const struct rp_wire_offer m = {
		.method = RP_METHOD_FENCE,
		.class = RP_CLASS_POWER,
		.addr_len = 1,
		.id = 0x4142434445464748,
		.key = 0x5152535455565758,
		.secret = 0x6162636465666768,
		.there = 0x7172737475767778,
		.at = 0x0102030405060708,
		.addr = 0x1112131415161718,
		.length = 0x2122232425262728,
		.to = {0x81},
	};

	return rp_wire_put_offer(buf, size, hdr, &m);
}

static int put_bye(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hdr h = *hdr;

	h.type = RP_MSG_BYE;
	return rp_wire_put_empty(buf, size, &h);
}

static int put_progress(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hdr h = *hdr;

	h.type = RP_MSG_PROGRESS;
	return rp_wire_put_empty(buf, size, &h);
}

static const struct example examples[] = {
	{"HELLO",
	 RP_MSG_HELLO,
	 put_hello,
	 {{"cookie", 0x4142434445464748},
	  {"key", 0x5152535455565758},
	  {"timeout_ms", 0x61626364},
	  {"features", 0x7172},
	  {"addr_len", 1},
	  {"addr", 0x81}}},
	{"HELLO_ACK",
	 RP_MSG_HELLO_ACK,
	 put_ack,
	 {{"cookie", 0x4142434445464748},
	  {"status", 0},
	  {"credits", 0x5152},
	  {"max_ranges", RP_WIRE_MAX_RANGES},
	  {"features", RP_FEATURES}}},
	{"HELLO_ACK",
	 RP_MSG_HELLO_ACK,
	 put_nack,
	 {{"cookie", 0},
	  {"status", RP_ST_VERSION},
	  {"credits", 0},
	  {"max_ranges", 0},
	  {"features", 0}}},
	{"REQUEST",
	 RP_MSG_REQUEST,
	 put_request,
	 {{"nranges", 1},
	  {"level", 1},
	  {"required", 2},
	  {"flags", 0},
	  {"ranges.key", 0x4142434445464748},
	  {"ranges.addr", 0x5152535455565758},
	  {"ranges.len", 0x6162636465666768}}},
	{"REPLY",
	 RP_MSG_REPLY,
	 put_reply,
	 {{"status", 0},
	  {"level", 2},
	  {"class", 1},
	  {"range", 0x81},
	  {"detail", 0x41424344},
	  {"credits", 0x5152},
	  {"method", RP_METHOD_AGENT_MSYNC},
	  {"grant", 0}}},
	{"REPLY",
	 RP_MSG_REPLY,
	 put_bad_reply,
	 {{"status", RP_ST_STALE_KEY},
	  {"level", 0},
	  {"class", 0},
	  {"range", 0},
	  {"detail", 0},
	  {"credits", 0},
	  {"method", 0},
	  {"grant", 0}}},
	{"QUERY",
	 RP_MSG_QUERY,
	 put_query,
	 {{"key", 0x4142434445464748}, {"required", 2}}},
	{"INFO",
	 RP_MSG_INFO,
	 put_info,
	 {{"status", 0x0c},
	  {"class", 2},
	  {"method", 1},
	  {"memory", RP_MEM_EMULATED},
	  {"placement", RP_PLACE_CPU_KERNEL},
	  {"domain", RP_DOMAIN_CPUCACHE},
	  {"refusal", RP_REFUSAL_NO_AGENT},
	  {"granularity", 0x41424344},
	  {"length", 0x5152535455565758},
	  {"addr", 0x6162636465666768},
	  {"preferred_size", 0x71727374},
	  {"preferred_align", 0x81828384},
	  {"why_len", 1},
	  {"why", 'w'}}},
	{"CONNECT",
	 RP_MSG_CONNECT,
	 put_connect,
	 {{"id", 0x4142434445464748}, {"key", 0x5152535455565758}}},
	{"OFFER",
	 RP_MSG_OFFER,
	 put_offer,
	 {{"status", 0},
	  {"method", 2},
	  {"class", 2},
	  {"addr_len", 1},
	  {"id", 0x4142434445464748},
	  {"key", 0x5152535455565758},
	  {"secret", 0x6162636465666768},
	  {"there", 0x7172737475767778},
	  {"at", 0x0102030405060708},
	  {"addr", 0x1112131415161718},
	  {"length", 0x2122232425262728},
	  {"to", 0x81}}},
	{"BYE", RP_MSG_BYE, put_bye, {{0}}},
	{"PROGRESS", RP_MSG_PROGRESS, put_progress, {{0}}},
};

/* Rows lie end to end, and hold the values of the fields that they name. */
static void check_rows(const char *what, const struct row *rows, size_t n,
		       const uint8_t *buf, size_t from, size_t to,
		       const struct field *f)
{
	for (size_t i = 0; i < n; i++) {
		const struct row *r = &rows[i];
		size_t size = r->size ? r->size : to - r->at;
		uint64_t value = 0;

		cr_assert_eq(r->at, from, "%s: %s is at %zu, not %zu", what,
			     r->name, from, r->at);
		from += size;
		cr_assert_leq(from, to, "%s: %s passes the end", what, r->name);
		for (size_t j = size; j-- > 0;)
			value = value << 8 | buf[r->at + j];
		if (r->zero) {
			cr_assert_eq(value, 0, "%s at %zu", what, r->at);
			continue;
		}
		cr_assert(f->name && !strcmp(r->name, f->name),
			  "%s: %s on the page, %s in the code", what, r->name,
			  f->name ? f->name : "nothing");
		cr_assert_eq(value, f->value, "%s: %s at %zu is %#llx", what,
			     r->name, r->at, (unsigned long long)value);
		f++;
	}
	cr_assert_eq(from, to, "%s: described to %zu of %zu", what, from, to);
	cr_assert_null(f->name, "%s: no row for %s", what, f->name);
}

Test(protocol, messages)
{
	struct layout all[16];
	size_t n = layouts(all, COUNT(all)), seen = 0;

	for (size_t i = 0; i < COUNT(examples); i++) {
		const struct example *e = &examples[i];
		uint8_t buf[RP_WIRE_MAX_MSG];
		int len = e->put(buf, sizeof(buf), &some_hdr);
		const struct layout *l;
		size_t more;

		seen += !i || strcmp(e->name, e[-1].name);
		for (l = all; l < all + n && strcmp(l->name, e->name); l++)
			;
		cr_assert(l < all + n, "%s is not on the page", e->name);
		cr_assert_eq(l->type, e->type, "%s, type %u", l->name, l->type);
		cr_assert_eq(buf[3], e->type);
		/* One range, or one byte, is behind the fixed part. */
		more = l->each + (l->n && !l->rows[l->n - 1].size);
		cr_assert_eq(l->len + more, (size_t)len, "%s: %zu bytes",
			     l->name, l->len);
		check_rows(l->name, l->rows, l->n, buf, RP_WIRE_HDR, len,
			   e->fields);
	}
	/* None on the page that the code does not have, and none twice. */
	cr_assert_eq(n, seen);
	for (unsigned int t = 0, found = 0; t < 256; t++) {
		struct rp_wire_hdr hdr = some_hdr, back;
		uint8_t buf[RP_WIRE_HDR];

		hdr.type = RP_MSG_BYE;
		rp_wire_put_empty(buf, sizeof(buf), &hdr);
		buf[3] = t;
		found += !rp_wire_get_hdr(buf, sizeof(buf), &back);
		if (t == 255)
			cr_assert_eq(found, n, "the code has %u", found);
	}
}

Test(protocol, header)
{
	char *s = section("\n### Header\n");
	struct row rows[16];
	size_t n = rows_parse(s, s + strlen(s), rows, COUNT(rows));
	const struct field fields[] = {
		{"magic", RP_WIRE_MAGIC},
		{"version", RP_WIRE_VERSION},
		{"type", RP_MSG_BYE},
		{"length", RP_WIRE_HDR},
		{"session", some_hdr.session},
		{"token", some_hdr.token},
		{"incarnation", some_hdr.incarnation},
		{0},
	};
	uint8_t buf[RP_WIRE_MAX_MSG];

	put_bye(buf, sizeof(buf), &some_hdr);
	check_rows("header", rows, n, buf, 0, RP_WIRE_HDR, fields);
	free(s);
}

static const char *class_name(unsigned int v)
{
	return v <= RP_CLASS_POWER ? rp_class_name(v) : NULL;
}

static const char *method_name(unsigned int v)
{
	return v < RP_METHOD_MAX ? rp_method_name(v) : NULL;
}

static const char *memory_name(unsigned int v)
{
	return v <= RP_MEM_EMULATED ? rp_memory_name(v) : NULL;
}

static const char *placement_name(unsigned int v)
{
	return v <= RP_PLACE_DMA_MEMORY ? rp_placement_name(v) : NULL;
}

static const char *domain_name(unsigned int v)
{
	return v <= RP_DOMAIN_SYSTEM ? rp_domain_name(v) : NULL;
}

static const char *refusal_name(unsigned int v)
{
	return v <= RP_REFUSAL_UNKNOWN ? rp_refusal_name(v) : NULL;
}

Test(protocol, values)
{
	static const struct {
		const char *field;
		const char *(*name)(unsigned int v);
	} v[] = {
		{"class", class_name},	 {"method", method_name},
		{"memory", memory_name}, {"placement", placement_name},
		{"domain", domain_name}, {"refusal", refusal_name},
	};
	char *s = section("\n### Numbers in fields\n");

	for (size_t i = 0; i < COUNT(v); i++) {
		char want[512];
		int n = sprintf(want, "\n| %s |", v[i].field);

		for (unsigned int j = 0; v[i].name(j); j++)
			n += sprintf(want + n, "%s %u %s", j ? "," : "", j,
				     v[i].name(j));
		sprintf(want + n, " |\n");
		cr_assert_not_null(strstr(s, want), "the page lacks: %s", want);
	}
	free(s);
}

Test(protocol, statuses)
{
	char *s = section("\n### Numbers in fields\n"), g[GROUPS][256];
	const char *at = s;
	int known = 0;

	for (int st = 0; st < RP_ST_MAX; st++) {
		if (!strcmp(rp_status_name(st), rp_status_name(RP_ST_MAX)))
			continue; /* a gap between the blocks */
		known++;
		cr_assert(next(&at, "^\\| ([0-9]+) \\| ([^|]+) \\| ([^|]*)\\|",
			       g),
			  "no row for status %d", st);
		cr_assert_eq(atoi(g[0]), st, "%s where %d belongs", g[0], st);
		cr_assert_str_eq(g[1], rp_status_name(st));
		/* Those that no target says have nothing to say here. */
		cr_assert_eq(!g[2][0], st >= RP_ST_WRITE_FAILED, "status %d",
			     st);
	}
	cr_assert(!next(&at, "^\\| ([0-9]+) \\|", g), "%s is no status", g[0]);
	cr_assert_gt(known, 0);
	free(s);
}

Test(protocol, key)
{
	const struct rp_key k = {
		.base = UINT32_MAX,
		.random = 0xffffff,
		.persistent = true,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB_MSYNC,
	};
	const struct field want[] = {
		{"base", k.base},  {"method", k.method}, {"class", k.class},
		{"persistent", 1}, {"mark", 1},		 {"random", k.random},
	};
	char *s = section("\n### The remote key\n"), g[GROUPS][256];
	uint64_t key = rp_key_make(&k);
	unsigned int from = 0;
	const char *at = s;

	for (size_t i = 0; i < COUNT(want); i++) {
		unsigned int first, last;
		uint64_t bits;

		cr_assert(next(&at,
			       "^\\| ([0-9]+)( to [0-9]+)? \\| ([a-z]+):", g),
			  "no row for %s", want[i].name);
		first = atoi(g[0]);
		last = g[1][0] ? atoi(g[1] + 4) : (int)first;
		cr_assert_eq(first, from, "%s begins at %u", g[2], first);
		from = last + 1;
		cr_assert(last >= first && last < 64);
		cr_assert_str_eq(g[2], want[i].name);
		bits = key >> first & UINT64_MAX >> (63 - (last - first));
		cr_assert_eq(bits, want[i].value, "%s: %#llx", g[2],
			     (unsigned long long)bits);
	}
	cr_assert_eq(from, 64);
	free(s);
}

Test(protocol, limits)
{
	static const struct field want[] = {
		{"version", RP_WIRE_VERSION},
		{"bytes of a message", RP_WIRE_MAX_MSG},
		{"ranges of a REQUEST", RP_WIRE_MAX_RANGES},
		{"ranges of a REQUEST, packed", RP_WIRE_MAX_PACKED},
		{"ranges of a REQUEST with an effect",
		 RP_WIRE_MAX_EFFECT_RANGES},
		{"effects of a session without an answer", RP_WIRE_EFFECTS},
		{"bytes of a STORE", RP_WIRE_MAX_STORE},
		{"REQUESTs unanswered over one of our own", RP_WIRE_LINKED},
		{"bytes of an address", RP_WIRE_MAX_ADDR},
		{"bytes of the sentence in INFO", RP_WHY_LEN - 1},
		{"bytes of any other answer but OFFER, and of a REQUEST of one "
		 "range",
		 RP_WIRE_INJECT},
		{"credits of a session (FI_OFI_RPMEM_CREDITS)",
		 RP_AGENT_CREDITS},
		{"open sessions of a target (FI_OFI_RPMEM_MAX_SESSIONS)",
		 RP_AGENT_SESSIONS},
		{"half-open sessions of a target", RP_AGENT_HALF_OPEN},
		{"life of a half-open session, ms",
		 RP_CLIENT_HALF_OPEN_NS / 1000000},
		{"HELLOs of new names answered at a time", RP_AGENT_WELCOME},
		{"HELLOs of new names that wait", RP_AGENT_STRANGERS},
		{"REQUESTs and unsent answers that a target holds",
		 RP_AGENT_JOBS},
		{"PROGRESSes in the initiator's patience", RP_CLIENT_PACE_PART},
		{"shortest time between them, ms", RP_CLIENT_MIN_PACE_MS},
		{"longest time between them, ms", RP_CLIENT_MAX_PACE_MS},
		{"part of the timeout after which is sent again, 1/",
		 RP_PEER_RESEND_PART},
		{"pause after status 13, ms", RP_PEER_BACKOFF_MS},
		{"sessions lost in a row", RP_PEER_MAX_LOST},
	};
	char *s = section("\n### Limits\n"), g[GROUPS][256];
	const char *at = s;

	for (size_t i = 0; i < COUNT(want); i++) {
		cr_assert(next(&at, "^\\| ([^|]*) \\| ([0-9]+) \\|", g));
		cr_assert_str_eq(g[0], want[i].name);
		cr_assert_eq(strtoull(g[1], NULL, 10), want[i].value, "%s: %s",
			     g[0], g[1]);
	}
	cr_assert(!next(&at, "^\\| ([^|]*) \\| ([0-9]+) \\|", g),
		  "nothing holds the page to: %s", g[0]);
	free(s);
}

/* Does the chapter say this, wherever its lines break? */
__attribute__((format(printf, 1, 2))) static void says(const char *fmt, ...)
{
	char *s = chapter(), want[256], *to = s;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(want, sizeof(want), fmt, ap);
	va_end(ap);
	for (const char *p = s; *p; p++)
		if ((*p != ' ' && *p != '\n') || to == s || to[-1] != ' ')
			*to++ = *p == '\n' ? ' ' : *p;
	*to = 0;
	cr_assert_not_null(strstr(s, want), "the page does not say: %s", want);
	free(s);
}

/* The numbers that stand in its sentences. */
Test(protocol, sentences)
{
	const int ranges = RP_WIRE_MAX_RANGES;

	says("a header of %d bytes and a body", RP_WIRE_HDR);
	says("0x%04x, `RP` on the wire", RP_WIRE_MAGIC);
	says("version: %d |", RP_WIRE_VERSION);
	cr_assert(RP_MSG_TO_TARGET(63) && !RP_MSG_TO_TARGET(64));
	says("type: below 64 to a target");
	says("one REQUEST for every %d of its ranges", ranges);
	says("nranges: 1 to %d |", ranges);
	says("max_ranges: of one REQUEST; version 1: %d |", ranges);
	says("range at fault, below %d; as many", RP_WIRE_MAX_PACKED);
	says("room for fewer than %d ranges", ranges);
	says("addr_len: 1 to %d |", RP_WIRE_MAX_ADDR);
	says("why_len: at most %d |", RP_WHY_LEN - 1);
	says("longer than %d bytes", RP_WIRE_MAX_MSG);
	says("level: %d visible, %d durable", RP_LEVEL_VISIBLE,
	     RP_LEVEL_DURABLE);
	says("effect: 0 none, %d store (THEN), %d notification (NOTIFY), %d "
	     "inline store (STORE); or 0x%x: packed",
	     RP_EFFECT_THEN, RP_EFFECT_NOTIFY, RP_EFFECT_STORE, RP_WIRE_PACKED);
	says("features: bit 0: effects; bit 1: grants;");
	cr_assert(RP_FEATURE_EFFECTS == 1 << 0 && RP_FEATURE_OWN == 1 << 1);
	says("bit 3: connections of our own (CONNECT); bit 4, only with that:");
	cr_assert(RP_FEATURE_LINK == 1 << 3 && RP_FEATURE_PLACED == 1 << 4);
	says("bit 5, only with bit 3:");
	says("bit 6: packed ranges; bit 7, only with bit 3: devices FLUSH");
	cr_assert(RP_FEATURE_GATHER == 1 << 5 && RP_FEATURE_PACKED == 1 << 6);
	cr_assert(RP_FEATURE_NATIVE == 1 << 7);
	says("at most %d ranges, and behind", RP_WIRE_MAX_EFFECT_RANGES);
	says("of the HELLO_ACK, at most %d.", RP_WIRE_EFFECTS);
	says("the seq of another token, gets status %d.", RP_ST_BAD_MESSAGE);
	says("refused with status %d was not looked at", RP_ST_OVERLOADED);
	says("The commit ends with status %d.", RP_ST_UNSURE);
	says("Any other failure but %d and %d says", RP_ST_FLUSH_FAILED,
	     RP_ST_CANCELED);
	says("the commit ends with status %d.", RP_ST_UNSUPPORTED);
	says("an effect that cannot be the next, or has the seq of another | "
	     "status %d |",
	     RP_ST_BAD_MESSAGE);
	says("address not aligned | the same, and statuses %d and %d |",
	     RP_ST_ALIGN, RP_ST_ACCESS);
	says("The first 24 bytes, and the body of HELLO, mean the same");
	says("bytes, above 0 |");
	says("one has, but its other 32 bits differ");
	says("go to the base with its low 32 bits");
	says("compares all 64 bits");
	says("Status %d is no sign of life", RP_ST_OVERLOADED);
	says("Statuses below %d travel; those from %d on", RP_ST_WRITE_FAILED,
	     RP_ST_WRITE_FAILED);
	says("forgotten after %llu s, or when %d others are newer",
	     RP_CLIENT_HALF_OPEN_NS / 1000000000, RP_AGENT_HALF_OPEN);
	says("alone for %d ms", RP_PEER_BACKOFF_MS);
	says("forgets sessions %d times", RP_PEER_MAX_LOST);
	cr_assert_eq(RP_CLIENT_PACE_PART, 3);
	says("three times in the patience");
	cr_assert_eq(RP_PEER_RESEND_PART, 2);
	says("no answer for half the timeout");
	says("(status %d); if there is none, the newcomer is refused with "
	     "status %d.",
	     RP_ST_NO_SESSION, RP_ST_OVERLOADED);
	says("of another one refuses with status %d.", RP_ST_INCARNATION);
	says("reported as %d: the writes went", RP_ST_PEER_RESTARTED);
	says("refused with status %d, without looking", RP_ST_OVERLOADED);
	says("After status %d the initiator", RP_ST_OVERLOADED);
	says("then ends with status %d.", RP_ST_OVERLOADED);
	says("that target end with status %d.", RP_ST_TIMEOUT);
	says("its commits with status %d.", RP_ST_NO_SESSION);
	says("HELLO_ACK of its own, status %d,", RP_ST_VERSION);
	says("an INFO of status %d.", RP_ST_VERSION);
	says("all commits and queries to it end with status %d,",
	     RP_ST_VERSION);
	says("REQUEST or QUERY malformed, in a session | status %d |",
	     RP_ST_BAD_MESSAGE);
	says("of another incarnation | status %d |", RP_ST_INCARNATION);
	says("statuses %d to %d and %d that applies", RP_ST_UNKNOWN_KEY,
	     RP_ST_CLASS, RP_ST_REGION_FAILED);
	says("HELLO_ACK with a status but %d |", RP_ST_OVERLOADED);
	says("the same, with status %d |", RP_ST_UNSUPPORTED);
	says("than the session's | ends the commit with status %d |",
	     RP_ST_INCARNATION);
	says("class asked for | ends the commit with status %d |", RP_ST_CLASS);
	says("| status %d | says HELLO again", RP_ST_NO_SESSION);
}

Test(protocol, grant)
{
	const struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB,
		.grant = RP_METHOD_FENCE,
		.addr = 0x4142434445464748,
		.length = 0x5152535455565758,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	uint64_t v[2];

	cr_assert_eq(rp_wire_put_reply(buf, sizeof(buf), &some_hdr, &m), 64);
	cr_assert_eq(buf[47], m.grant);
	for (int i = 0; i < 2; i++) {
		v[i] = 0;
		for (int j = 7; j >= 0; j--)
			v[i] = v[i] << 8 | buf[48 + 8 * i + j];
	}
	cr_assert_eq(v[0], m.addr);
	cr_assert_eq(v[1], m.length);
	says("grant: 0 none, %d delivery, %d fence |", RP_METHOD_DELIVERY,
	     RP_METHOD_FENCE);
	says("+0 | u64 | addr: first byte of the region");
	says("+8 | u64 | length: bytes of the region, above 0");
}
