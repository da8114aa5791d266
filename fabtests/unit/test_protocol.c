// SPDX-License-Identifier: BSD-2-Clause
/* docs/protocol.md has the numbers of the code: control messages. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/agent_priv.h"
#include "core/wire_layout.h"
#include "core/wire_rendezvous.h"
#include "page.h"
#include "rc/rc_tcp.h"
#include "util/method_rows.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char *message_chapter(void)
{
	return chapter_of("\n## Control messages\n");
}

static char *section_of(const char *heading)
{
	char *all = message_chapter(), *s = text_below(all, heading);

	free(all);
	return s;
}

/* One row of a layout table. */
struct row {
	size_t at, size;
	char name[32]; /* "0": reserved */
};

/* A message, or a part of messages, as the page describes it. */
struct layout {
	char name[16];
	unsigned int type; /* 0: part of messages */
	size_t len;
	struct row rows[16]; /* up to one of size 0 */
};

static void rows_parse(const char *from, const char *to, struct row *rows,
		       size_t max)
{
	char g[GROUPS][256];
	size_t n = 0;

	while (next_match(&from,
			  "^\\| ([0-9]+) \\| (u(8|16|32|64)|[0-9]+ bytes) \\| "
			  "([a-z_]+|0)[: ]",
			  g) &&
	       from <= to) {
		struct row *r = &rows[n];

		cr_assert_lt(++n, max);
		r->at = strtoul(g[0], NULL, 10);
		r->size = g[1][0] == 'u' ? strtoul(g[1] + 1, NULL, 10) / 8
					 : strtoul(g[1], NULL, 10);
		snprintf(r->name, sizeof(r->name), "%.31s", g[3]);
	}
}

static size_t parse_layouts(const char *heading, struct layout *v, size_t max)
{
	static const char pattern[] =
		"^([A-Z_]+), (type ([0-9]+), )?([0-9]+) bytes";
	char *s = section_of(heading), g[GROUPS][256];
	const char *at = s, *end;
	size_t n = 0;

	while (next_match(&at, pattern, g)) {
		struct layout *l = &v[n];

		cr_assert_lt(n++, max);
		snprintf(l->name, sizeof(l->name), "%.15s", g[0]);
		l->type = strtoul(g[2], NULL, 10);
		l->len = strtoul(g[3], NULL, 10);
		end = at;
		if (!next_match(&end, pattern, g))
			end = at + strlen(at);
		rows_parse(at, end, l->rows, COUNT(l->rows));
	}
	free(s);
	return n;
}

/* The fields of one struct of wire_layout.h, in order. */
#define F(s, f)                                                                \
	{                                                                      \
		offsetof(struct rp_le_##s, f),                                 \
			sizeof(((struct rp_le_##s *)0)->f), #f                 \
	}
#define RESERVED(s)                                                            \
	{                                                                      \
		offsetof(struct rp_le_##s, reserved),                          \
			sizeof(((struct rp_le_##s *)0)->reserved), "0"         \
	}
#define SIZE(s) sizeof(struct rp_le_##s)

static const struct layout structs[] = {
	{"HEADER",
	 0,
	 SIZE(hdr),
	 {F(hdr, magic), F(hdr, version), F(hdr, type), F(hdr, length),
	  F(hdr, token)}},
	{"HELLO",
	 RP_MSG_HELLO,
	 SIZE(hello),
	 {F(hello, key), F(hello, initiator), F(hello, timeout_ms),
	  F(hello, features), F(hello, port)}},
	{"GRANT",
	 0,
	 SIZE(grant),
	 {F(grant, rkey), F(grant, remote_addr), F(grant, addr),
	  F(grant, length), F(grant, class), F(grant, method), F(grant, rights),
	  RESERVED(grant)}},
	{"HELLO_ACK",
	 RP_MSG_HELLO_ACK,
	 SIZE(hello_ack),
	 {F(hello_ack, status), F(hello_ack, detail), F(hello_ack, incarnation),
	  F(hello_ack, credits), F(hello_ack, features), RESERVED(hello_ack),
	  F(hello_ack, grant)}},
	{"REQUEST",
	 RP_MSG_REQUEST,
	 SIZE(request),
	 {F(request, nranges), F(request, level), F(request, required),
	  F(request, effect), F(request, flags), RESERVED(request)}},
	{"RANGE",
	 0,
	 SIZE(range),
	 {F(range, key), F(range, addr), F(range, len)}},
	{"THEN", 0, SIZE(then), {F(then, key), F(then, addr), F(then, value)}},
	{"NOTIFY",
	 0,
	 SIZE(notify),
	 {F(notify, data), F(notify, endpoint), RESERVED(notify)}},
	{"ATOMIC",
	 0,
	 SIZE(atomic),
	 {F(atomic, op), F(atomic, datatype), F(atomic, fetch),
	  RESERVED(atomic)}},
	{"REPLY",
	 RP_MSG_REPLY,
	 SIZE(reply),
	 {F(reply, status), F(reply, detail), F(reply, range),
	  F(reply, credits), F(reply, level), F(reply, class), F(reply, method),
	  RESERVED(reply)}},
	{"QUERY",
	 RP_MSG_QUERY,
	 SIZE(query),
	 {F(query, key), F(query, required), RESERVED(query)}},
	{"INFO",
	 RP_MSG_INFO,
	 SIZE(info),
	 {F(info, status), F(info, class), F(info, method), F(info, memory),
	  F(info, placement), F(info, domain), F(info, refusal),
	  F(info, why_len), F(info, granularity), F(info, preferred_size),
	  F(info, preferred_align), F(info, grant)}},
	{"PROGRESS", RP_MSG_PROGRESS, SIZE(hdr), {{0}}},
	{"DOORBELL", RP_MSG_DOORBELL, SIZE(hdr), {{0}}},
	{"POLLING", RP_MSG_POLLING, SIZE(hdr), {{0}}},
	{"IDLE", RP_MSG_IDLE, SIZE(hdr), {{0}}},
};

/* Page and struct have the same rows, without gaps. */
static void check_rows(const struct layout *page, const struct layout *code)
{
	size_t from = page->type ? SIZE(hdr) : 0;

	for (size_t i = 0; page->rows[i].size; i++) {
		const struct row *r = &page->rows[i], *f = &code->rows[i];

		cr_assert_eq(r->at, from, "%s: %s is at %zu, not %zu",
			     page->name, r->name, from, r->at);
		cr_assert_str_eq(r->name, f->name, "%s at %zu", page->name,
				 r->at);
		cr_assert_eq(r->at, f->at, "%s: %s", page->name, r->name);
		cr_assert_eq(r->size, f->size, "%s: %s", page->name, r->name);
		from += r->size;
	}
	cr_assert_eq(from, page->len, "%s: described to %zu of %zu", page->name,
		     from, page->len);
}

Test(protocol, messages)
{
	struct layout page[16] = {0};
	size_t n = parse_layouts("\n### Layout\n", page, COUNT(page));
	unsigned int found = 0, types = 0;

	cr_assert_eq(n, COUNT(structs));
	for (size_t i = 0; i < n; i++) {
		cr_assert_str_eq(page[i].name, structs[i].name);
		cr_assert_eq(page[i].type, structs[i].type, "%s", page[i].name);
		cr_assert_eq(page[i].len, structs[i].len, "%s: %zu bytes",
			     page[i].name, page[i].len);
		check_rows(&page[i], &structs[i]);
		types += !!page[i].type;
	}
	/* Every message type of the code is on the page. */
	for (unsigned int t = 0; t < 256; t++) {
		struct rp_wire_hdr back;
		uint8_t buf[sizeof(struct rp_le_hdr)];

		rp_wire_put_signal(buf, sizeof(buf), RP_MSG_PROGRESS);
		buf[3] = t;
		found += !rp_wire_get_hdr(buf, sizeof(buf), &back);
	}
	cr_assert_eq(found, types, "the code has %u", found);
}

#define FRAME(s, f)                                                            \
	{                                                                      \
		offsetof(struct rp_tcp_##s, f),                                \
			sizeof(((struct rp_tcp_##s *)0)->f), #f                \
	}

static const struct layout frames[] = {
	{"FRAME",
	 0,
	 sizeof(struct rp_tcp_hdr),
	 {FRAME(hdr, magic), FRAME(hdr, version), FRAME(hdr, type),
	  FRAME(hdr, flags), FRAME(hdr, length)}},
	{"RMA_FRAME",
	 0,
	 sizeof(struct rp_tcp_rma),
	 {FRAME(rma, hdr), FRAME(rma, addr), FRAME(rma, rkey)}},
};

Test(protocol, frames_over_tcp)
{
	static const struct {
		const char *name;
		enum rp_tcp_type type;
	} types[] = {
		{"CONNECT", RP_TCP_CONNECT}, {"ACCEPT", RP_TCP_ACCEPT},
		{"REJECT", RP_TCP_REJECT},   {"MESSAGE", RP_TCP_MESSAGE},
		{"WRITE", RP_TCP_WRITE},     {"READ", RP_TCP_READ},
		{"DATA", RP_TCP_DATA},	     {"PLACED", RP_TCP_PLACED},
	};
	char *s = section_of("\n### Frames over TCP\n"), g[GROUPS][256],
	     magic[16];
	const char *at = s;
	struct layout page[4] = {0};

	cr_assert_eq(
		parse_layouts("\n### Frames over TCP\n", page, COUNT(page)),
		COUNT(frames));
	for (size_t i = 0; i < COUNT(frames); i++) {
		cr_assert_str_eq(page[i].name, frames[i].name);
		cr_assert_eq(page[i].len, frames[i].len);
		check_rows(&page[i], &frames[i]);
	}
	snprintf(magic, sizeof(magic), "%#x", RP_WIRE_MAGIC);
	cr_assert(strstr(s, magic), "%s", magic);
	for (size_t i = 0; i < COUNT(types); i++) {
		cr_assert(next_match(&at, "^\\| ([A-Z]+) \\| ([0-9]+) \\| ", g),
			  "%s", types[i].name);
		cr_assert_str_eq(g[0], types[i].name);
		cr_assert_eq(strtoul(g[1], NULL, 10), types[i].type, "%s",
			     g[0]);
	}
	free(s);
}

/* Every byte of a struct belongs to a field. */
Test(protocol, structs_without_gaps)
{
	for (size_t i = 0; i < COUNT(structs); i++) {
		const struct layout *l = &structs[i];
		size_t from = l->type ? SIZE(hdr) : 0;

		for (size_t j = 0; l->rows[j].size; j++) {
			cr_assert_eq(l->rows[j].at, from, "%s: %s", l->name,
				     l->rows[j].name);
			from += l->rows[j].size;
		}
		cr_assert_eq(from, l->len, "%s", l->name);
	}
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
	char *s = section_of("\n### Numbers in fields\n");

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
	char *s = section_of("\n### Numbers in fields\n"), g[GROUPS][256];
	const char *at = s;
	int known = 0;

	for (int st = 0; st < RP_ST_MAX; st++) {
		if (!strcmp(rp_status_name(st), rp_status_name(RP_ST_MAX)))
			continue; /* a gap between groups */
		known++;
		cr_assert(next_match(&at,
				     "^\\| ([0-9]+) \\| ([^|]+) \\| ([^|]*)\\|",
				     g),
			  "no row for status %d", st);
		cr_assert_eq(atoi(g[0]), st, "%s where %d belongs", g[0], st);
		cr_assert_str_eq(g[1], rp_status_name(st));
		/* Statuses that no target sends have an empty cell. */
		cr_assert_eq(!g[2][0], st >= RP_ST_WRITE_FAILED, "status %d",
			     st);
	}
	cr_assert(!next_match(&at, "^\\| ([0-9]+) \\|", g), "%s is no status",
		  g[0]);
	cr_assert_gt(known, 0);
	free(s);
}

Test(protocol, key)
{
	const struct rp_key k = {
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB_MSYNC,
		.port = UINT16_MAX,
		.random = UINT64_MAX >> (64 - RP_KEY_RANDOM_BITS),
	};
	const struct {
		const char *name;
		uint64_t value;
	} want[] = {
		{"random", k.random}, {"port", k.port}, {"method", k.method},
		{"class", k.class},   {"mark", 5},
	};
	char *s = section_of("\n### The remote key\n"), g[GROUPS][256];
	uint64_t key = rp_key_make(&k);
	unsigned int from = 0;
	const char *at = s;

	for (size_t i = 0; i < COUNT(want); i++) {
		unsigned int first, last;
		uint64_t bits;

		cr_assert(next_match(
				  &at,
				  "^\\| ([0-9]+) to ([0-9]+) \\| ([a-z]+):", g),
			  "no row for %s", want[i].name);
		first = atoi(g[0]);
		last = atoi(g[1]);
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
	static const struct {
		const char *name;
		uint64_t value;
	} want[] = {
		{"version", RP_WIRE_VERSION},
		{"bytes of a message", RP_WIRE_MAX_MSG},
		{"bytes of private data: HELLO", RP_WIRE_CM_DATA},
		{"bytes of private data: HELLO_ACK", RP_WIRE_CM_ACK},
		{"ranges of a REQUEST", RP_WIRE_MAX_RANGES},
		{"ranges of a REQUEST, packed", RP_WIRE_MAX_PACKED},
		{"bytes of a STORE, and of a REPLY's values",
		 RP_WIRE_MAX_STORE},
		{"bytes of the sentence in INFO", RP_WHY_LEN - 1},
		{"credits of a session (FI_OFI_RPMEM_CREDITS)",
		 RP_AGENT_CREDITS},
		{"sessions of a target (FI_OFI_RPMEM_MAX_SESSIONS)",
		 RP_AGENT_SESSIONS},
		{"REQUESTs and unsent replies that a target holds",
		 RP_AGENT_JOBS},
		{"PROGRESSes in the timeout", RP_AGENT_PROGRESS_PER_TIMEOUT},
		{"shortest time between them, ms", RP_AGENT_MIN_PROGRESS_MS},
		{"longest time between them, ms", RP_AGENT_MAX_PROGRESS_MS},
		{"delay of the reply to a wrong key, ms",
		 RP_AGENT_REFUSAL_DELAY_NS / 1000000},
		{"such replies in a second", RP_AGENT_REFUSALS_PER_S},
		{"time for which a connection with a wrong key lives on, ms",
		 RP_AGENT_LINGER_NS / 1000000},
	};
	char *s = section_of("\n### Limits\n"), g[GROUPS][256];
	const char *at = s;

	for (size_t i = 0; i < COUNT(want); i++) {
		cr_assert(next_match(&at, "^\\| ([^|]*) \\| ([0-9]+) \\|", g));
		cr_assert_str_eq(g[0], want[i].name);
		cr_assert_eq(strtoull(g[1], NULL, 10), want[i].value, "%s: %s",
			     g[0], g[1]);
	}
	cr_assert(!next_match(&at, "^\\| ([^|]*) \\| ([0-9]+) \\|", g),
		  "nothing holds the page to: %s", g[0]);
	free(s);
}

/* Does the text, which is freed, say this, wherever its lines break? */
static void text_says(char *s, const char *fmt, va_list ap)
{
	char want[256], *to = s;

	vsnprintf(want, sizeof(want), fmt, ap);
	for (const char *p = s; *p; p++)
		if ((*p != ' ' && *p != '\n') || to == s || to[-1] != ' ')
			*to++ = *p == '\n' ? ' ' : *p;
	*to = 0;
	cr_assert_not_null(strstr(s, want), "the page does not say: %s", want);
	free(s);
}

__attribute__((format(printf, 1, 2))) static void
expect_page_says(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	text_says(message_chapter(), fmt, ap);
	va_end(ap);
}

__attribute__((format(printf, 2, 3))) static void
chapter_says(const char *heading, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	text_says(chapter_of(heading), fmt, ap);
	va_end(ap);
}

/* Numbers of the code that are in sentences. */
Test(protocol, sentences)
{
	expect_page_says("magic: 0x%04x, `RP` on the wire |", RP_WIRE_MAGIC);
	expect_page_says("version: %d |", RP_WIRE_VERSION);
	expect_page_says(
		"REQUEST for every %d of its ranges, or for up to %d that are "
		"packed.",
		RP_WIRE_MAX_RANGES, RP_WIRE_MAX_PACKED);
	expect_page_says("features: bit 0: its device has FLUSH");
	cr_assert_eq(RP_FEATURES, 1u);
	expect_page_says("nranges: at most %d, or 2 to %d that are packed |",
			 RP_WIRE_MAX_RANGES, RP_WIRE_MAX_PACKED);
	expect_page_says(
		"level: %d visible: placed; %d durable: flushed, too |",
		RP_LEVEL_VISIBLE, RP_LEVEL_DURABLE);
	expect_page_says(
		"effect: %d none, %d THEN, %d NOTIFY, %d STORE, %d ATOMIC, "
		"%d ZERO |",
		RP_EFFECT_NONE, RP_EFFECT_THEN, RP_EFFECT_NOTIFY,
		RP_EFFECT_STORE, RP_EFFECT_ATOMIC, RP_EFFECT_ZERO);
	expect_page_says("flags: bit 0: the ranges are packed |");
	cr_assert_eq(RP_LE_REQUEST_PACKED, 1);
	expect_page_says("in their order, 1 to %d in all.", RP_WIRE_MAX_STORE);
	expect_page_says("ranges of a ZERO have 1 to %d bytes in all",
			 RP_WIRE_MAX_ZERO);
	expect_page_says("whole elements, 1 to %d bytes:", RP_WIRE_MAX_STORE);
	expect_page_says("range at fault, at most %d; as many",
			 RP_WIRE_MAX_PACKED);
	expect_page_says("why_len: bytes of the sentence, at most %d,",
			 RP_WHY_LEN - 1);
	expect_page_says("Statuses below %d travel; those from %d on",
			 RP_ST_WRITE_FAILED, RP_ST_WRITE_FAILED);
	expect_page_says("gets status %d, whichever bits", RP_ST_STALE_KEY);
	expect_page_says("comes %llu ms late, and no more than %d such replies",
			 RP_AGENT_REFUSAL_DELAY_NS / 1000000,
			 RP_AGENT_REFUSALS_PER_S);
	expect_page_says("logged at most once in %llu s.",
			 RP_AGENT_WARN_NS / 1000000000);
	expect_page_says("HELLO is refused with status %d.", RP_ST_OVERLOADED);
	expect_page_says("refuses a REQUEST with status %d, and does",
			 RP_ST_OVERLOADED);
	cr_assert_eq(RP_AGENT_PROGRESS_PER_TIMEOUT, 3);
	expect_page_says("sends PROGRESS three times in the timeout");
	expect_page_says("ends the connection: status %d.", RP_ST_TIMEOUT);
	expect_page_says("NOTIFY or ATOMIC ends with status %d:",
			 RP_ST_INDETERMINATE);
	expect_page_says("a commit of them fails with status %d.",
			 RP_ST_WRITE_FAILED);
	expect_page_says("refuses it: status %d or %d |", RP_ST_BAD_MESSAGE,
			 RP_ST_VERSION);
	expect_page_says("status %d, then ends the connection |",
			 RP_ST_STALE_KEY);
	expect_page_says(
		"the first of statuses %d to %d, %d, %d and %d that applies",
		RP_ST_RANGE, RP_ST_CLASS, RP_ST_REGION_FAILED, RP_ST_ALIGN,
		RP_ST_ACCESS);
	expect_page_says("asked for | ends the operation with status %d |",
			 RP_ST_CLASS);
}

/* Blobs of the shim begin like messages, and no type means two things. */
Test(protocol, shim_types)
{
	chapter_says("\n## Descriptors of regions\n",
		     "| 3 | u8 | type: %d | | 4 | u32 | bytes: %d |",
		     RP_WIRE_DESC, RP_DESC_LEN);
	chapter_says("\n## Side connections\n",
		     "| 3 | u8 | type: %d | | 4 | u32 | bytes: %d |",
		     RP_WIRE_SIDE, RP_SIDE_ADDR_LEN);
	chapter_says(
		"\n## Rendezvous of preloaded ends\n",
		"| 3 | u8 | type: %d LOOKUP, %d FOUND, %d NOT_FOUND, %d QUERY, "
		"%d DESC, %d RECALL, %d RELEASED, %d LEAVE | | 4 | u32 | "
		"bytes: "
		"%d |",
		RP_RENDEZVOUS_LOOKUP, RP_RENDEZVOUS_FOUND,
		RP_RENDEZVOUS_NOT_FOUND, RP_RENDEZVOUS_QUERY,
		RP_RENDEZVOUS_DESC, RP_RENDEZVOUS_RECALL,
		RP_RENDEZVOUS_RELEASED, RP_RENDEZVOUS_LEAVE, RP_RENDEZVOUS_LEN);
	cr_assert_gt(RP_WIRE_DESC, (int)RP_TCP_PLACED);
	cr_assert_lt((int)RP_RENDEZVOUS_LEAVE, (int)RP_MSG_HELLO_ACK);
}
