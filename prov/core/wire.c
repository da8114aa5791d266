// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode keys and messages; every byte of a peer is checked. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire_layout.h"

#define HDR sizeof(struct rp_le_hdr)

/* Statuses from WRITE_FAILED on are local to the initiator. */
static bool status_is_sent(uint32_t status)
{
	return status < RP_ST_WRITE_FAILED;
}

static bool type_known(uint8_t type)
{
	return (type >= RP_MSG_HELLO && type <= RP_MSG_DOORBELL) ||
	       (type >= RP_MSG_HELLO_ACK && type <= RP_MSG_IDLE);
}

/* A message that is a header only. */
static bool is_signal(uint8_t type)
{
	return type == RP_MSG_PROGRESS || type == RP_MSG_DOORBELL ||
	       type == RP_MSG_POLLING || type == RP_MSG_IDLE;
}

int rp_wire_get_hdr(const void *buf, size_t len, struct rp_wire_hdr *hdr)
{
	struct rp_le_hdr w;
	bool ours;

	if (len < sizeof(w) || len > RP_WIRE_MAX_MSG)
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	if (le16toh(w.magic) != RP_WIRE_MAGIC || le32toh(w.length) != len)
		return -EBADMSG;
	ours = w.version == RP_WIRE_VERSION;
	if (ours && (!type_known(w.type) ||
		     (is_signal(w.type) && (len > HDR || w.token))))
		return -EBADMSG;
	*hdr = (struct rp_wire_hdr){
		.type = w.type,
		.length = (uint32_t)len,
		.token = le64toh(w.token),
	};
	return ours ? 0 : -EPROTONOSUPPORT;
}

/* Decode private data of connection setup: size bytes, then maybe zeros. */
static int get_cm_data(void *w, size_t size, uint8_t type, const void *buf,
		       size_t len)
{
	struct rp_le_hdr h;

	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, buf, sizeof(h));
	if (le16toh(h.magic) != RP_WIRE_MAGIC)
		return -EBADMSG;
	if (h.version != RP_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (h.type != type || le32toh(h.length) != size || len < size ||
	    h.token || !bytes_zero((const uint8_t *)buf + size, len - size))
		return -EBADMSG;
	memcpy(w, buf, size);
	return 0;
}

static int put_message(void *buf, size_t size, const void *msg, size_t len)
{
	if (size < len)
		return -EMSGSIZE;
	memcpy(buf, msg, len);
	return (int)len;
}

int rp_wire_put_hello(void *buf, size_t size, const struct rp_wire_hello *m)
{
	const struct rp_le_hello w = {
		.hdr = rp_le_hdr_make(RP_MSG_HELLO, sizeof(w), 0),
		.key = htole64(m->key),
		.initiator = htole64(m->initiator),
		.timeout_ms = htole32(m->timeout_ms),
		.features = htole16(m->features),
		.port = htole16(m->port),
	};

	return put_message(buf, size, &w, sizeof(w));
}

int rp_wire_get_hello(const void *buf, size_t len, struct rp_wire_hello *m)
{
	struct rp_le_hello w;
	int ret = get_cm_data(&w, sizeof(w), RP_MSG_HELLO, buf, len);

	if (ret)
		return ret;
	*m = (struct rp_wire_hello){
		.key = le64toh(w.key),
		.initiator = le64toh(w.initiator),
		.timeout_ms = le32toh(w.timeout_ms),
		.features = le16toh(w.features),
		.port = le16toh(w.port),
	};
	return 0;
}

static bool grant_valid(const struct rp_wire_grant *g)
{
	return g->length && g->addr <= UINT64_MAX - g->length &&
	       g->remote_addr <= UINT64_MAX - g->length &&
	       g->class <= RP_CLASS_POWER && g->method < RP_METHOD_MAX;
}

static bool grant_is_zero(const struct rp_wire_grant *g)
{
	return !g->rkey && !g->remote_addr && !g->addr && !g->length &&
	       !g->class && !g->method && !g->writable && !g->unreadable;
}

static struct rp_le_grant grant_put(const struct rp_wire_grant *g)
{
	return (struct rp_le_grant){
		.rkey = htole64(g->rkey),
		.remote_addr = htole64(g->remote_addr),
		.addr = htole64(g->addr),
		.length = htole64(g->length),
		.class = g->class,
		.method = g->method,
		.rights = (uint8_t)(g->writable | g->unreadable << 1),
	};
}

static int grant_get(const struct rp_le_grant *w, struct rp_wire_grant *g)
{
	if (w->rights > 3 || !bytes_zero(w->reserved, sizeof(w->reserved)))
		return -EBADMSG;
	*g = (struct rp_wire_grant){
		.rkey = le64toh(w->rkey),
		.remote_addr = le64toh(w->remote_addr),
		.addr = le64toh(w->addr),
		.length = le64toh(w->length),
		.class = w->class,
		.method = w->method,
		.writable = w->rights & 1,
		.unreadable = w->rights >> 1,
	};
	return 0;
}

/* A refusal grants nothing; an acceptance grants a usable session. */
static bool hello_ack_valid(const struct rp_wire_hello_ack *m)
{
	if (!status_is_sent(m->status))
		return false;
	if (m->status != RP_ST_OK)
		return !m->incarnation && !m->credits && !m->features &&
		       grant_is_zero(&m->grant);
	return m->incarnation && m->credits && !(m->features & ~RP_FEATURES) &&
	       grant_valid(&m->grant);
}

int rp_wire_put_hello_ack(void *buf, size_t size,
			  const struct rp_wire_hello_ack *m)
{
	const struct rp_le_hello_ack w = {
		.hdr = rp_le_hdr_make(RP_MSG_HELLO_ACK, sizeof(w), 0),
		.status = htole32(m->status),
		.detail = htole32(m->detail),
		.incarnation = htole64(m->incarnation),
		.credits = htole16(m->credits),
		.features = htole16(m->features),
		.grant = grant_put(&m->grant),
	};

	if (!hello_ack_valid(m))
		return -EINVAL;
	return put_message(buf, size, &w, sizeof(w));
}

int rp_wire_get_hello_ack(const void *buf, size_t len,
			  struct rp_wire_hello_ack *m)
{
	struct rp_le_hello_ack w;
	struct rp_wire_hello_ack t;
	int ret = get_cm_data(&w, sizeof(w), RP_MSG_HELLO_ACK, buf, len);

	if (ret)
		return ret;
	t = (struct rp_wire_hello_ack){
		.status = le32toh(w.status),
		.detail = le32toh(w.detail),
		.incarnation = le64toh(w.incarnation),
		.credits = le16toh(w.credits),
		.features = le16toh(w.features),
	};
	if (w.reserved || grant_get(&w.grant, &t.grant) || !hello_ack_valid(&t))
		return -EBADMSG;
	*m = t;
	return 0;
}

/* Only a success has a level, a class and a result. */
static bool reply_valid(const struct rp_wire_reply *m)
{
	if (!status_is_sent(m->status) || m->class > RP_CLASS_POWER ||
	    m->method >= RP_METHOD_MAX || m->range > RP_WIRE_MAX_PACKED ||
	    m->result_len > RP_WIRE_MAX_STORE)
		return false;
	if (m->status == RP_ST_OK)
		return m->level == RP_LEVEL_VISIBLE ||
		       m->level == RP_LEVEL_DURABLE;
	return !m->level && !m->class && !m->method && !m->result_len;
}

int rp_wire_put_reply(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_reply *m)
{
	struct rp_le_reply w;
	size_t len = sizeof(w) + m->result_len;

	if (!reply_valid(m))
		return -EINVAL;
	if (size < len)
		return -EMSGSIZE;
	w = (struct rp_le_reply){
		.hdr = rp_le_hdr_make(RP_MSG_REPLY, len, token),
		.status = htole32(m->status),
		.detail = htole32(m->detail),
		.range = htole16(m->range),
		.credits = htole16(m->credits),
		.level = m->level,
		.class = m->class,
		.method = m->method,
	};
	memcpy(buf, &w, sizeof(w));
	if (m->result_len)
		memcpy((uint8_t *)buf + sizeof(w), m->result, m->result_len);
	return (int)len;
}

int rp_wire_get_reply(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_reply *m)
{
	struct rp_wire_reply t;
	struct rp_le_reply w;

	if (hdr->type != RP_MSG_REPLY || hdr->length < sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	t = (struct rp_wire_reply){
		.status = le32toh(w.status),
		.detail = le32toh(w.detail),
		.range = le16toh(w.range),
		.credits = le16toh(w.credits),
		.level = w.level,
		.class = w.class,
		.method = w.method,
		.result_len = hdr->length - (uint32_t)sizeof(w),
	};
	if (w.reserved || !reply_valid(&t))
		return -EBADMSG;
	if (t.result_len)
		t.result = (const uint8_t *)buf + sizeof(w);
	*m = t;
	return 0;
}

int rp_wire_put_query(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_query *m)
{
	const struct rp_le_query w = {
		.hdr = rp_le_hdr_make(RP_MSG_QUERY, sizeof(w), token),
		.key = htole64(m->key),
		.required = m->required,
	};

	if (m->required > RP_CLASS_POWER)
		return -EINVAL;
	return put_message(buf, size, &w, sizeof(w));
}

int rp_wire_get_query(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_query *m)
{
	struct rp_le_query w;

	if (hdr->type != RP_MSG_QUERY || hdr->length != sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	if (w.required > RP_CLASS_POWER ||
	    !bytes_zero(w.reserved, sizeof(w.reserved)))
		return -EBADMSG;
	*m = (struct rp_wire_query){
		.key = le64toh(w.key),
		.required = w.required,
	};
	return 0;
}

static bool info_valid(const struct rp_wire_info *m)
{
	return status_is_sent(m->status) && m->class <= RP_CLASS_POWER &&
	       m->method < RP_METHOD_MAX && m->memory <= RP_MEM_EMULATED &&
	       m->placement <= RP_PLACE_DMA_MEMORY &&
	       m->domain <= RP_DOMAIN_SYSTEM &&
	       m->refusal <= RP_REFUSAL_UNKNOWN &&
	       (grant_valid(&m->grant) ||
		(m->status != RP_ST_OK && grant_is_zero(&m->grant)));
}

static bool is_printable(char c)
{
	return c >= 0x20 && c < 0x7f;
}

int rp_wire_put_info(void *buf, size_t size, uint64_t token,
		     const struct rp_wire_info *m)
{
	const size_t why_len = strnlen(m->why, sizeof(m->why));
	struct rp_le_info w;
	char *why = (char *)buf + sizeof(w);

	if (!info_valid(m) || why_len >= sizeof(m->why))
		return -EINVAL;
	if (size < sizeof(w) + why_len)
		return -EMSGSIZE;
	w = (struct rp_le_info){
		.hdr = rp_le_hdr_make(RP_MSG_INFO, sizeof(w) + why_len, token),
		.status = htole32(m->status),
		.class = m->class,
		.method = m->method,
		.memory = m->memory,
		.placement = m->placement,
		.domain = m->domain,
		.refusal = m->refusal,
		.why_len = htole16((uint16_t)why_len),
		.granularity = htole32(m->granularity),
		.preferred_size = htole32(m->preferred_size),
		.preferred_align = htole32(m->preferred_align),
		.grant = grant_put(&m->grant),
	};
	memcpy(buf, &w, sizeof(w));
	/* A path in the sentence may contain any byte, and people print it. */
	for (size_t i = 0; i < why_len; i++)
		why[i] = (char)(is_printable(m->why[i]) ? m->why[i] : '?');
	return (int)(sizeof(w) + why_len);
}

int rp_wire_get_info(const void *buf, const struct rp_wire_hdr *hdr,
		     struct rp_wire_info *m)
{
	struct rp_wire_info t;
	struct rp_le_info w;
	size_t why_len;

	if (hdr->type != RP_MSG_INFO || hdr->length < sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	t = (struct rp_wire_info){
		.status = le32toh(w.status),
		.class = w.class,
		.method = w.method,
		.memory = w.memory,
		.placement = w.placement,
		.domain = w.domain,
		.refusal = w.refusal,
		.granularity = le32toh(w.granularity),
		.preferred_size = le32toh(w.preferred_size),
		.preferred_align = le32toh(w.preferred_align),
	};
	why_len = le16toh(w.why_len);
	if (why_len >= sizeof(t.why) || hdr->length != sizeof(w) + why_len ||
	    grant_get(&w.grant, &t.grant) || !info_valid(&t))
		return -EBADMSG;
	memcpy(t.why, (const char *)buf + sizeof(w), why_len);
	for (size_t i = 0; i < why_len; i++)
		if (!is_printable(t.why[i]))
			return -EBADMSG;
	*m = t;
	return 0;
}

int rp_wire_put_signal(void *buf, size_t size, enum rp_msg_type type)
{
	const struct rp_le_hdr w = rp_le_hdr_make(type, sizeof(w), 0);

	if (!is_signal(type))
		return -EINVAL;
	return put_message(buf, size, &w, sizeof(w));
}

#define KEY_CLASS_SHIFT	 59
#define KEY_METHOD_SHIFT 56
#define KEY_RANDOM	 ((1ull << RP_KEY_RANDOM_BITS) - 1)

uint64_t rp_key_make(const struct rp_key *k)
{
	assert(k->class <= RP_CLASS_POWER && k->random <= KEY_RANDOM);
	assert(k->method > RP_METHOD_REFUSED && k->method < RP_METHOD_MAX);
	return RP_KEY_MARK | (uint64_t)k->class << KEY_CLASS_SHIFT |
	       (uint64_t)k->method << KEY_METHOD_SHIFT |
	       (uint64_t)k->port << RP_KEY_RANDOM_BITS | k->random;
}

int rp_key_parse(uint64_t key, struct rp_key *k)
{
	const unsigned int class = key >> KEY_CLASS_SHIFT & 3;
	const unsigned int method = key >> KEY_METHOD_SHIFT & 7;

	if (!rp_key_is_persistent(key) || class > RP_CLASS_POWER ||
	    method == RP_METHOD_REFUSED)
		return -EINVAL;
	*k = (struct rp_key){
		.class = class,
		.method = method,
		.port = rp_key_port(key),
		.random = key & KEY_RANDOM,
	};
	return 0;
}
