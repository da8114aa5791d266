/* SPDX-License-Identifier: BSD-2-Clause */
/* docs/protocol.md has the bytes of librpmem_raft. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libraft/store.h"
#include "libraft/wire.h"
#include "page.h"
#include "log_rig.h"
#include "util/bytes.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct field {
	const char *name;
	uint64_t value;
};

/* The chapter from these words on; the caller frees *all. */
static const char *text_at(char **all, const char *words)
{
	const char *at;

	*all = chapter_of("\n## Servers of Raft\n");
	at = strstr(*all, words);
	cr_assert_not_null(at, "%s", words);
	return at;
}

static uint64_t number(const unsigned char *p, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

/*
 * The table behind these words has the fields in order, from 0 to len without a
 * gap, and the code has their values there.
 */
static void check_table(const char *words, const unsigned char *bytes,
			size_t len, const struct field *fields, size_t n)
{
	char *all, g[GROUPS][256];
	const char *at = text_at(&all, words);
	size_t end = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned int size;

		cr_assert(next_match(&at,
				     "^\\| ([0-9]+) \\| u([0-9]+) \\| "
				     "([a-z_]+):",
				     g),
			  "%s: no row of %s", words, fields[i].name);
		size = (unsigned int)strtoul(g[1], NULL, 10) / 8;
		cr_assert_str_eq(g[2], fields[i].name, "%s", words);
		cr_assert_eq(strtoul(g[0], NULL, 10), end, "%s: %s", words,
			     g[2]);
		cr_assert_eq(number(bytes + end, size), fields[i].value,
			     "%s: %s", words, g[2]);
		end += size;
	}
	cr_assert_eq(end, len, "%s: %zu bytes", words, end);
	cr_assert_eq(strncmp(strchr(at, '\n'), "\n|", 2) == 0, false,
		     "%s: one row more than the code", words);
	free(all);
}

#define CHECK(words, bytes, len, fields)                                       \
	check_table(words, bytes, len, fields, COUNT(fields))

Test(raft_page, frames)
{
	static const struct field fields[] = {
		{"length", 0x01020304},	   {"type", 0x0506}, {"ring", 1},
		{"seq", 0x0708},	   {"kept", 0x090a}, {"lsn", 0x0b0c},
		{"version", WIRE_VERSION},
	};
	const struct wire_head h = {0x01020304, 0x0506, true,
				    0x0708,	0x090a, 0x0b0c};
	unsigned char bytes[WIRE_HEAD];
	char *all, g[GROUPS][256];
	const char *at;

	wire_head_put(bytes, &h);
	CHECK("\nServers connect by", bytes, WIRE_HEAD, fields);
	at = text_at(&all, "\nServers connect by");
	cr_assert(next_match(&at, "at most 2\\^([0-9]+)", g));
	cr_assert_eq(1u << strtoul(g[0], NULL, 10), WIRE_MAX);
	cr_assert(next_match(&at, "or ([0-9]+), HELLO", g));
	cr_assert_eq(strtoul(g[0], NULL, 10), WIRE_HELLO);
	cr_assert(next_match(&at, "version: ([0-9]+) ", g));
	cr_assert_eq(strtoul(g[0], NULL, 10), WIRE_VERSION);
	free(all);
}

static struct raft_entry entry = {
	.term = 0x11, .type = RAFT_CHANGE, .buf = {"entry", 5}};
static struct raft_server server = {
	.id = 0x21, .address = (char *)"host", .role = RAFT_VOTER};
#define CONF                                                                   \
	{                                                                      \
		.servers = &server, .n = 1                                     \
	}
#define CONF_BYTES (4u + 16u + 4u)

static struct message {
	const char *name;
	struct raft_message m;
	struct field fields[7]; /* in any order */
} messages[] = {
	{"APPEND_ENTRIES",
	 {.type = RAFT_IO_APPEND_ENTRIES,
	  .append_entries = {.term = 10,
			     .prev_log_index = 11,
			     .prev_log_term = 12,
			     .leader_commit = 13,
			     .entries = &entry,
			     .n_entries = 1}},
	 {{"leader_commit", 13},
	  {"n_entries", 1},
	  {"prev_log_index", 11},
	  {"prev_log_term", 12},
	  {"term", 10}}},
	{"APPEND_ENTRIES_RESULT",
	 {.type = RAFT_IO_APPEND_ENTRIES_RESULT,
	  .append_entries_result = {.term = 10,
				    .rejected = 11,
				    .last_log_index = 12}},
	 {{"term", 10}, {"rejected", 11}, {"last_log_index", 12}}},
	{"REQUEST_VOTE",
	 {.type = RAFT_IO_REQUEST_VOTE,
	  .request_vote = {.term = 10,
			   .candidate_id = 11,
			   .last_log_index = 12,
			   .last_log_term = 13,
			   .disrupt_leader = true}},
	 {{"term", 10},
	  {"candidate_id", 11},
	  {"last_log_index", 12},
	  {"last_log_term", 13},
	  {"disrupt_leader", 1},
	  {"pre_vote", 0}}},
	{"REQUEST_VOTE_RESULT",
	 {.type = RAFT_IO_REQUEST_VOTE_RESULT,
	  .request_vote_result = {.term = 10,
				  .vote_granted = true,
				  .pre_vote = raft_tribool_false}},
	 {{"term", 10}, {"vote_granted", 1}, {"pre_vote", raft_tribool_false}}},
	{"INSTALL_SNAPSHOT",
	 {.type = RAFT_IO_INSTALL_SNAPSHOT,
	  .install_snapshot = {.term = 10,
			       .last_index = 11,
			       .last_term = 12,
			       .conf_index = 13,
			       .conf = CONF}},
	 {{"term", 10},
	  {"last_index", 11},
	  {"last_term", 12},
	  {"conf_index", 13},
	  {"conf_length", CONF_BYTES}}},
	{"TIMEOUT_NOW",
	 {.type = RAFT_IO_TIMEOUT_NOW,
	  .timeout_now = {.term = 10,
			  .last_log_index = 11,
			  .last_log_term = 12}},
	 {{"term", 10}, {"last_log_index", 11}, {"last_log_term", 12}}},
};

/* The names in the list are the message's fields, in the order of its bytes. */
static size_t check_fields(const struct message *m, const char *list,
			   const unsigned char *bytes)
{
	size_t n = 0;

	for (; *list; n++) {
		const size_t len = strcspn(list, ",");
		const struct field *f = m->fields;

		while (f->name &&
		       (strlen(f->name) != len || strncmp(f->name, list, len)))
			f++;
		cr_assert(f->name, "%s: %s", m->name, list);
		cr_assert_eq(number(bytes + 8 * n, 8), f->value, "%s: %s",
			     m->name, f->name);
		list += len + strspn(list + len, ", ");
	}
	cr_assert(!m->fields[n].name, "%s: %zu fields", m->name, n);
	return 8 * n;
}

Test(raft_page, messages)
{
	static const struct field head[] = {
		{"term", 0x11}, {"type", RAFT_CHANGE}, {"length", 5}};
	unsigned char bytes[256];
	char *all, g[GROUPS][256];
	const char *at = text_at(&all, "\nHELLO is the first frame");
	size_t len = 0;

	for (size_t i = 0; i < COUNT(messages); i++) {
		const struct message *m = &messages[i];

		cr_assert(
			next_match(&at,
				   "^\\| ([0-9]+) \\| ([A-Z_]+) \\| (.*) \\|$",
				   g),
			"%s", m->name);
		cr_assert_eq(strtoul(g[0], NULL, 10), m->m.type);
		cr_assert_str_eq(g[1], m->name);
		wire_encode(&m->m, bytes);
		len = check_fields(m, g[2], bytes);
		if (m->m.type == RAFT_IO_APPEND_ENTRIES)
			CHECK("\nAPPEND_ENTRIES has a head", bytes + len, 16,
			      head);
	}
	free(all);
}

Test(raft_page, configurations)
{
	static const struct field fields[] = {
		{"id", 0x21}, {"role", RAFT_VOTER}, {"length", 4}};
	const struct raft_configuration conf = CONF;
	unsigned char bytes[CONF_BYTES];

	cr_assert_eq(conf_size(&conf), sizeof(bytes));
	conf_put(&conf, bytes);
	cr_assert_eq(number(bytes, 4), 1);
	CHECK("\nConfiguration, u32 number", bytes + 4, 16, fields);
}

static void put_done(void *arg, int status)
{
	*(int *)arg = status;
}

static void read_record(struct store *st, uint64_t *lsn, unsigned char *bytes)
{
	size_t len;

	cr_assert_eq(rpmem_log_read(st->w.log, lsn, bytes, 256, &len, 0), 1,
		     "%s", rpmem_log_error());
}

/* A snapshot in a store, which begins with the server's term. */
Test(raft_page, records)
{
	static const struct field term[] = {
		{"kind", RECORD_TERM}, {"type", 0}, {"index", 8}, {"term", 7}};
	static const struct field head[] = {{"kind", RECORD_SNAPSHOT},
					    {"type", 0},
					    {"index", 90},
					    {"term", 6}};
	static const struct field chunk[] = {
		{"kind", RECORD_CHUNK}, {"type", 0}, {"index", 1}, {"term", 0}};
	static const struct field rest[] = {
		{"number", 1},	    {"bytes", 3},	{"replaces", 1},
		{"conf_index", 89}, {"server_term", 7}, {"vote", 8},
	};
	const struct rpmem_log_attr attr = {.size = sizeof(attr)};
	struct raft_buffer buf = {(void *)"all", 3};
	struct raft_snapshot s = {.index = 90,
				  .term = 6,
				  .configuration = CONF,
				  .configuration_index = 89,
				  .bufs = &buf,
				  .n_bufs = 1};
	static char errmsg[RAFT_ERRMSG_BUF_SIZE];
	static struct seeded rnd = {.state = 1};
	static struct rig rig;
	struct store st = {.errmsg = errmsg};
	unsigned char bytes[256];
	uint64_t lsn = RPMEM_LOG_HEAD;
	int ended = -1;

	rig_init(&rig, &rnd, 1u << 20);
	memset(rig.visible, 0, rig.length);
	rig_pool = (struct rig_pool){.rig = &rig, .parts = 1};
	cr_assert_eq(store_open(&st, "h:p", &attr), 0, "%s", errmsg);
	cr_assert_eq(store_term(&st, 7, 8), 0);
	read_record(&st, &lsn, bytes);
	CHECK("\nEach record is", bytes, RECORD_HEAD, term);
	cr_assert_eq(store_snapshot(&st, 0, &s, put_done, &ended), 0);
	while (ended)
		writer_reap(&st.w);
	read_record(&st, &lsn, bytes);
	CHECK("\nEach record is", bytes, RECORD_HEAD, chunk);
	read_record(&st, &lsn, bytes);
	CHECK("\nEach record is", bytes, RECORD_HEAD, head);
	CHECK("\nENTRY and CHUNK have", bytes + RECORD_HEAD, SNAPSHOT_HEAD,
	      rest);
	store_close(&st);
	rig_fini(&rig);
}

Test(raft_page, kinds_of_records)
{
	static const struct field kinds[] = {
		{"TERM", RECORD_TERM},	   {"ENTRY", RECORD_ENTRY},
		{"CHUNK", RECORD_CHUNK},   {"SNAPSHOT", RECORD_SNAPSHOT},
		{"SERVER", RECORD_SERVER},
	};
	char *all, g[GROUPS][256];
	const char *at = strstr(text_at(&all, "\nEach record is"), "kind:");

	for (size_t i = 0; i < COUNT(kinds); i++) {
		cr_assert(next_match(&at, "([0-9]+) ([A-Z]+)", g));
		cr_assert_eq(strtoul(g[0], NULL, 10), kinds[i].value);
		cr_assert_str_eq(g[1], kinds[i].name);
	}
	free(all);
}
