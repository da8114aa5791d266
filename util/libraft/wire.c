// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode messages between servers. */
#include "config.h"

#include <string.h>

#include "libraft/store.h"
#include "libraft/wire.h"
#include "bytes.h"

#define ENTRY_HEAD 16u

void wire_head_put(unsigned char *p, const struct wire_head *h)
{
	rp_put32(p, h->len);
	rp_put16(p + 4, h->type);
	rp_put16(p + 6, h->ring);
	rp_put64(p + 8, h->seq);
	rp_put64(p + 16, h->kept);
	rp_put64(p + 24, h->lsn);
	rp_put64(p + 32, WIRE_VERSION);
}

int wire_head_get(struct wire_head *h, const unsigned char *p)
{
	h->len = rp_get32(p);
	h->type = rp_get16(p + 4);
	h->ring = rp_get16(p + 6);
	h->seq = rp_get64(p + 8);
	h->kept = rp_get64(p + 16);
	h->lsn = rp_get64(p + 24);
	return h->len > WIRE_MAX || rp_get64(p + 32) != WIRE_VERSION
		       ? RAFT_MALFORMED
		       : 0;
}

/* List the numbers of a message in the order of its encoding. */
static unsigned int list_numbers(const struct raft_message *m, uint64_t *v)
{
	unsigned int n = 0;

	switch (m->type) {
	case RAFT_IO_APPEND_ENTRIES:
		v[n++] = m->append_entries.term;
		v[n++] = m->append_entries.prev_log_index;
		v[n++] = m->append_entries.prev_log_term;
		v[n++] = m->append_entries.leader_commit;
		v[n++] = m->append_entries.n_entries;
		break;
	case RAFT_IO_APPEND_ENTRIES_RESULT:
		v[n++] = m->append_entries_result.term;
		v[n++] = m->append_entries_result.rejected;
		v[n++] = m->append_entries_result.last_log_index;
		break;
	case RAFT_IO_REQUEST_VOTE:
		v[n++] = m->request_vote.term;
		v[n++] = m->request_vote.candidate_id;
		v[n++] = m->request_vote.last_log_index;
		v[n++] = m->request_vote.last_log_term;
		v[n++] = m->request_vote.disrupt_leader;
		v[n++] = m->request_vote.pre_vote;
		break;
	case RAFT_IO_REQUEST_VOTE_RESULT:
		v[n++] = m->request_vote_result.term;
		v[n++] = m->request_vote_result.vote_granted;
		v[n++] = m->request_vote_result.pre_vote;
		break;
	case RAFT_IO_INSTALL_SNAPSHOT:
		v[n++] = m->install_snapshot.term;
		v[n++] = m->install_snapshot.last_index;
		v[n++] = m->install_snapshot.last_term;
		v[n++] = m->install_snapshot.conf_index;
		v[n++] = conf_size(&m->install_snapshot.conf);
		break;
	case RAFT_IO_TIMEOUT_NOW:
		v[n++] = m->timeout_now.term;
		v[n++] = m->timeout_now.last_log_index;
		v[n++] = m->timeout_now.last_log_term;
		break;
	default:
		break;
	}
	return n;
}

size_t wire_size(const struct raft_message *m)
{
	const struct raft_append_entries *a = &m->append_entries;
	uint64_t v[6];
	size_t size = 8 * (size_t)list_numbers(m, v);

	if (m->type == RAFT_IO_APPEND_ENTRIES)
		for (unsigned int i = 0; i < a->n_entries; i++)
			size += ENTRY_HEAD + a->entries[i].buf.len;
	if (m->type == RAFT_IO_INSTALL_SNAPSHOT)
		size += v[4] + m->install_snapshot.data.len;
	return size;
}

void wire_encode(const struct raft_message *m, unsigned char *p)
{
	const struct raft_append_entries *a = &m->append_entries;
	uint64_t v[6];
	const unsigned int n = list_numbers(m, v);

	for (unsigned int i = 0; i < n; i++, p += 8)
		rp_put64(p, v[i]);
	if (m->type == RAFT_IO_APPEND_ENTRIES) {
		for (unsigned int i = 0; i < a->n_entries; i++) {
			rp_put64(p, a->entries[i].term);
			rp_put32(p + 8, a->entries[i].type);
			rp_put32(p + 12, (uint32_t)a->entries[i].buf.len);
			p += ENTRY_HEAD;
		}
		for (unsigned int i = 0; i < a->n_entries; i++) {
			if (a->entries[i].buf.len)
				memcpy(p, a->entries[i].buf.base,
				       a->entries[i].buf.len);
			p += a->entries[i].buf.len;
		}
	}
	if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
		conf_put(&m->install_snapshot.conf, p);
		if (m->install_snapshot.data.len)
			memcpy(p + v[4], m->install_snapshot.data.base,
			       m->install_snapshot.data.len);
	}
}

static int decode_entries(struct raft_append_entries *a, const unsigned char *p,
			  size_t len)
{
	const size_t n = a->n_entries;
	unsigned char *batch;
	size_t used = 0;

	a->entries = NULL;
	if (n == 0)
		return len ? RAFT_MALFORMED : 0;
	if (len / ENTRY_HEAD < n)
		return RAFT_MALFORMED;
	len -= n * ENTRY_HEAD;
	for (size_t i = 0; i < n; i++)
		used += rp_get32(p + i * ENTRY_HEAD + 12);
	if (used != len)
		return RAFT_MALFORMED;
	a->entries = raft_calloc(n, sizeof(*a->entries));
	batch = raft_malloc(len + 1);
	if (!a->entries || !batch) {
		raft_free(a->entries);
		raft_free(batch);
		return RAFT_NOMEM;
	}
	memcpy(batch, p + n * ENTRY_HEAD, len);
	for (size_t i = 0, at = 0; i < n; i++, p += ENTRY_HEAD) {
		a->entries[i] = (struct raft_entry){
			.term = rp_get64(p),
			.type = (unsigned short)rp_get32(p + 8),
			.buf = {batch + at, rp_get32(p + 12)},
			.batch = batch};
		at += a->entries[i].buf.len;
	}
	return 0;
}

static int decode_snapshot(struct raft_install_snapshot *s, uint64_t conf_len,
			   const unsigned char *p, size_t len)
{
	int ret = conf_len > len ? RAFT_MALFORMED
				 : conf_get(&s->conf, p, conf_len);

	if (ret)
		return ret;
	s->data.len = len - conf_len;
	s->data.base = raft_malloc(s->data.len + 1);
	if (!s->data.base) {
		raft_configuration_close(&s->conf);
		return RAFT_NOMEM;
	}
	memcpy(s->data.base, p + conf_len, s->data.len);
	return 0;
}

int wire_decode(struct raft_message *m, const unsigned char *p, size_t len)
{
	static const unsigned int counts[] = {
		[RAFT_IO_APPEND_ENTRIES] = 5,
		[RAFT_IO_APPEND_ENTRIES_RESULT] = 3,
		[RAFT_IO_REQUEST_VOTE] = 6,
		[RAFT_IO_REQUEST_VOTE_RESULT] = 3,
		[RAFT_IO_INSTALL_SNAPSHOT] = 5,
		[RAFT_IO_TIMEOUT_NOW] = 3,
	};
	uint64_t v[6] = {0};
	size_t n;

	if (m->type < RAFT_IO_APPEND_ENTRIES || m->type > RAFT_IO_TIMEOUT_NOW)
		return RAFT_MALFORMED;
	n = counts[m->type];
	if (len < 8 * n)
		return RAFT_MALFORMED;
	for (size_t i = 0; i < n; i++)
		v[i] = rp_get64(p + 8 * i);
	p += 8 * n;
	len -= 8 * n;
	switch (m->type) {
	case RAFT_IO_APPEND_ENTRIES:
		m->append_entries = (struct raft_append_entries){
			.term = v[0],
			.prev_log_index = v[1],
			.prev_log_term = v[2],
			.leader_commit = v[3],
			.n_entries = (unsigned int)v[4]};
		return v[4] > UINT32_MAX
			       ? RAFT_MALFORMED
			       : decode_entries(&m->append_entries, p, len);
	case RAFT_IO_APPEND_ENTRIES_RESULT:
		m->append_entries_result =
			(struct raft_append_entries_result){v[0], v[1], v[2]};
		break;
	case RAFT_IO_REQUEST_VOTE:
		m->request_vote = (struct raft_request_vote){v[0], v[1], v[2],
							     v[3], v[4], v[5]};
		break;
	case RAFT_IO_REQUEST_VOTE_RESULT:
		m->request_vote_result = (struct raft_request_vote_result){
			v[0], v[1], (raft_tribool)v[2]};
		break;
	case RAFT_IO_INSTALL_SNAPSHOT:
		m->install_snapshot =
			(struct raft_install_snapshot){.term = v[0],
						       .last_index = v[1],
						       .last_term = v[2],
						       .conf_index = v[3]};
		return decode_snapshot(&m->install_snapshot, v[4], p, len);
	default:
		m->timeout_now = (struct raft_timeout_now){v[0], v[1], v[2]};
	}
	return len ? RAFT_MALFORMED : 0;
}

void wire_free(struct raft_message *m)
{
	if (m->type == RAFT_IO_APPEND_ENTRIES && m->append_entries.entries) {
		raft_free(m->append_entries.entries[0].batch);
		raft_free(m->append_entries.entries);
	}
	if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
		raft_configuration_close(&m->install_snapshot.conf);
		raft_free(m->install_snapshot.data.base);
	}
}
