// SPDX-License-Identifier: BSD-2-Clause
/* Messages of the setup protocol: encoding, decoding, MAC. No sockets. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <nettle/hmac.h>
#include <nettle/memops.h>

#include "util/bytes.h"
#include "util/setup.h"

/* Flags of OPEN. */
#define OPEN_EXCLUSIVE 1u
#define OPEN_AGAIN     2u
#define OPEN_TAKE      4u
#define OPEN_OBSERVE   8u
#define OPEN_COMPARE   16u
/* Flags of EXPORT. */
#define WAS_CLEAN 1u
#define READ_ONLY 2u

static const uint8_t magic[4] = {'R', 'P', 'M', 'S'};

/* Read or write position in a message; bad: it went past the end. */
struct cursor {
	uint8_t *p;
	size_t left;
	bool malformed;
};

static uint8_t *take_bytes(struct cursor *c, size_t n)
{
	uint8_t *p = c->p;

	if (c->malformed || n > c->left) {
		c->malformed = true;
		return NULL;
	}
	c->p += n;
	c->left -= n;
	return p;
}

static void put_bytes(struct cursor *c, const void *v, size_t n)
{
	uint8_t *p = take_bytes(c, n);

	if (p && n)
		memcpy(p, v, n);
}

static void put_u8(struct cursor *c, uint8_t v)
{
	put_bytes(c, &v, 1);
}

static void put_u16(struct cursor *c, uint16_t v)
{
	uint8_t *p = take_bytes(c, 2);

	if (p)
		rp_put16(p, v);
}

static void put_u32(struct cursor *c, uint32_t v)
{
	uint8_t *p = take_bytes(c, 4);

	if (p)
		rp_put32(p, v);
}

static void put_u64(struct cursor *c, uint64_t v)
{
	uint8_t *p = take_bytes(c, 8);

	if (p)
		rp_put64(p, v);
}

static void put_string(struct cursor *c, const char *s)
{
	size_t n = strlen(s);

	put_u16(c, (uint16_t)n);
	put_bytes(c, s, n);
}

static void get_bytes(struct cursor *c, void *v, size_t n)
{
	const uint8_t *p = take_bytes(c, n);

	if (p)
		memcpy(v, p, n);
}

static uint8_t get_u8(struct cursor *c)
{
	const uint8_t *p = take_bytes(c, 1);

	return p ? *p : 0;
}

static uint16_t get_u16(struct cursor *c)
{
	const uint8_t *p = take_bytes(c, 2);

	return p ? rp_get16(p) : 0;
}

static uint32_t get_u32(struct cursor *c)
{
	const uint8_t *p = take_bytes(c, 4);

	return p ? rp_get32(p) : 0;
}

static uint64_t get_u64(struct cursor *c)
{
	const uint8_t *p = take_bytes(c, 8);

	return p ? rp_get64(p) : 0;
}

/* Reserved bytes must be 0, so that a later version can define them. */
static void get_zero(struct cursor *c, size_t n)
{
	const uint8_t *p = take_bytes(c, n);

	for (size_t i = 0; p && i < n; i++)
		c->malformed = c->malformed || p[i];
}

/* Read a string of at most size - 1 bytes without NUL. */
static void get_string(struct cursor *c, char *s, size_t size)
{
	uint16_t n = get_u16(c);
	const uint8_t *p = n < size ? take_bytes(c, n) : NULL;

	if (!p || memchr(p, 0, n)) {
		c->malformed = true;
		s[0] = 0;
		return;
	}
	memcpy(s, p, n);
	s[n] = 0;
}

/*
 * Read a text that will be printed: replace control characters, because the
 * peer is not trusted.
 */
static void get_text(struct cursor *c, char *s, size_t size)
{
	get_string(c, s, size);
	rp_text_clean(s, '?');
}

bool rp_setup_name_ok(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > RP_SETUP_NAME)
		return false;
	for (; *name; name++)
		if (!rp_char_printable(*name) || *name == '/')
			return false;
	return true;
}

__attribute__((nonnull)) static struct cursor put_begin(void *buf, size_t size,
							enum rp_setup_type type)
{
	struct cursor c = {.p = buf, .left = size};

	put_bytes(&c, magic, sizeof(magic));
	put_u16(&c, RP_SETUP_VERSION);
	put_u16(&c, (uint16_t)type);
	put_u64(&c, 0); /* length, which put_end() sets; reserved */
	return c;
}

static int put_end(struct cursor *c, void *buf, size_t size, bool mac)
{
	static const uint8_t none[RP_SETUP_MAC];
	size_t len;

	if (mac)
		put_bytes(c, none, sizeof(none));
	if (c->malformed)
		return -EMSGSIZE;
	len = size - c->left;
	rp_put32((uint8_t *)buf + 8, (uint32_t)len);
	return (int)len;
}

int rp_setup_put_challenge(void *buf, size_t size,
			   const struct rp_setup_challenge *m)
{
	struct cursor c = put_begin(buf, size, RP_SETUP_CHALLENGE);

	put_u32(&c, m->secret);
	put_u32(&c, 0);
	put_bytes(&c, m->nonce, sizeof(m->nonce));
	return put_end(&c, buf, size, false);
}

int rp_setup_put_request(void *buf, size_t size,
			 const struct rp_setup_request *m)
{
	struct cursor c = put_begin(buf, size, m->type);

	if (m->type < RP_SETUP_GET_EXPORT || m->type > RP_SETUP_DIVIDE ||
	    (m->type != RP_SETUP_GET_LIST && !rp_setup_name_ok(m->name)))
		return -EINVAL;
	put_bytes(&c, m->nonce, sizeof(m->nonce));
	put_string(&c, m->type == RP_SETUP_GET_LIST ? "" : m->name);
	if (m->type == RP_SETUP_SET_LENGTH)
		put_u64(&c, m->length);
	if (m->type == RP_SETUP_OPEN) {
		put_u64(&c, m->owner);
		put_u32(&c, (m->exclusive ? OPEN_EXCLUSIVE : 0) |
				    (m->again ? OPEN_AGAIN : 0) |
				    (m->take ? OPEN_TAKE : 0) |
				    (m->observe ? OPEN_OBSERVE : 0) |
				    (m->compare ? OPEN_COMPARE : 0));
		put_u16(&c, (uint16_t)m->parts);
		put_u16(&c, (uint16_t)m->part);
		if (m->compare)
			put_u64(&c, m->expected);
	}
	if (m->type == RP_SETUP_DIVIDE) {
		put_u64(&c, m->owner);
		put_u32(&c, m->parts);
	}
	return put_end(&c, buf, size, true);
}

int rp_setup_put_export(void *buf, size_t size, const struct rp_setup_export *m)
{
	struct cursor c = put_begin(buf, size, RP_SETUP_EXPORT);

	if (!rp_setup_name_ok(m->name) || m->fi_name_len > sizeof(m->fi_name))
		return -EINVAL;
	put_u64(&c, m->key);
	put_u64(&c, m->addr);
	put_u64(&c, m->len);
	put_u64(&c, m->incarnation);
	put_u64(&c, m->generation);
	put_bytes(&c, m->uuid, sizeof(m->uuid));
	put_u16(&c, m->control);
	put_u8(&c, m->class);
	put_u8(&c, m->method);
	put_u32(&c, (m->was_clean ? WAS_CLEAN : 0) |
			    (m->read_only ? READ_ONLY : 0));
	put_string(&c, m->name);
	put_string(&c, m->base);
	put_u16(&c, m->fi_name_len);
	put_bytes(&c, m->fi_name, m->fi_name_len);
	put_string(&c, m->why);
	put_u64(&c, m->length);
	put_u64(&c, m->owner);
	return put_end(&c, buf, size, true);
}

int rp_setup_put_list(void *buf, size_t size, const struct rp_setup_list *m)
{
	struct cursor c = put_begin(buf, size, RP_SETUP_LIST);

	if (m->n > RP_SETUP_POOLS)
		return -EINVAL;
	put_u16(&c, (uint16_t)m->n);
	for (unsigned int i = 0; i < m->n; i++) {
		if (!rp_setup_name_ok(m->v[i].name))
			return -EINVAL;
		put_u64(&c, m->v[i].len);
		put_u8(&c, m->v[i].class);
		put_u8(&c, m->v[i].method);
		put_string(&c, m->v[i].name);
	}
	return put_end(&c, buf, size, true);
}

int rp_setup_put_error(void *buf, size_t size, const struct rp_setup_error *m)
{
	struct cursor c = put_begin(buf, size, RP_SETUP_ERROR);

	put_u32(&c, m->code);
	put_string(&c, m->text);
	return put_end(&c, buf, size, true);
}

int rp_setup_frame(const void *buf, size_t have, size_t max, size_t *length,
		   enum rp_setup_type *type)
{
	const uint8_t *p = buf;
	uint32_t len;

	/* Refuse bytes without the magic before the header is complete. */
	if (memcmp(p, magic, have < sizeof(magic) ? have : sizeof(magic)))
		return -EBADMSG;
	if (have < RP_SETUP_HDR)
		return -EAGAIN;
	len = rp_get32(p + 8);
	if (len < RP_SETUP_HDR || len > max || rp_get32(p + 12))
		return -EBADMSG;
	*length = len;
	if (rp_get16(p + 4) != RP_SETUP_VERSION)
		return -EPROTONOSUPPORT;
	*type = rp_get16(p + 6);
	return 0;
}

/* Start to read a message; it must have this type and exactly this length. */
static struct cursor get_begin(const void *buf, size_t len,
			       enum rp_setup_type type)
{
	struct cursor c = {.p = (uint8_t *)buf, .left = len};
	enum rp_setup_type found;
	size_t framed;

	if (rp_setup_frame(buf, len, len, &framed, &found) || framed != len ||
	    found != type)
		c.malformed = true;
	take_bytes(&c, RP_SETUP_HDR);
	return c;
}

/* Finish reading: only the MAC may be left. */
static int get_end(const struct cursor *c, bool mac)
{
	return c->malformed || c->left != (mac ? RP_SETUP_MAC : 0) ? -EBADMSG
								   : 0;
}

int rp_setup_get_challenge(const void *buf, size_t len,
			   struct rp_setup_challenge *m)
{
	struct cursor c = get_begin(buf, len, RP_SETUP_CHALLENGE);
	struct rp_setup_challenge g;
	uint32_t flags = get_u32(&c);

	get_zero(&c, 4);
	get_bytes(&c, g.nonce, sizeof(g.nonce));
	if (flags > 1 || get_end(&c, false))
		return -EBADMSG;
	g.secret = flags;
	*m = g;
	return 0;
}

int rp_setup_get_request(const void *buf, size_t len,
			 struct rp_setup_request *m)
{
	struct rp_setup_request r = {.type = RP_SETUP_GET_EXPORT};
	struct cursor c = get_begin(buf, len, r.type);
	uint32_t flags = 0;

	while (c.malformed && r.type < RP_SETUP_DIVIDE)
		c = get_begin(buf, len, ++r.type);
	get_bytes(&c, r.nonce, sizeof(r.nonce));
	get_string(&c, r.name, sizeof(r.name));
	if (r.type == RP_SETUP_SET_LENGTH)
		r.length = get_u64(&c);
	if (r.type == RP_SETUP_OPEN) {
		r.owner = get_u64(&c);
		flags = get_u32(&c);
		r.exclusive = flags & OPEN_EXCLUSIVE;
		r.again = flags & OPEN_AGAIN;
		r.take = flags & OPEN_TAKE;
		r.observe = flags & OPEN_OBSERVE;
		r.parts = get_u16(&c);
		r.part = get_u16(&c);
		r.compare = flags & OPEN_COMPARE;
		if (r.compare)
			r.expected = get_u64(&c);
	}
	if (r.type == RP_SETUP_DIVIDE) {
		r.owner = get_u64(&c);
		r.parts = get_u32(&c);
	}
	if (get_end(&c, true) ||
	    flags & ~(OPEN_EXCLUSIVE | OPEN_AGAIN | OPEN_TAKE | OPEN_OBSERVE |
		      OPEN_COMPARE) ||
	    (r.take && (!r.exclusive || r.again)) ||
	    (r.observe && r.exclusive) ||
	    (r.compare && (!r.exclusive || r.again)) ||
	    (r.type >= RP_SETUP_OPEN &&
	     (!r.owner || r.owner & RP_SETUP_SHARED)) ||
	    r.parts > RP_SETUP_PARTS || r.part > r.parts ||
	    (r.type == RP_SETUP_OPEN && (r.parts > 1) != (r.part > 0)) ||
	    (r.type == RP_SETUP_DIVIDE && !r.parts))
		return -EBADMSG;
	if (r.type == RP_SETUP_GET_LIST ? r.name[0] != 0
					: !rp_setup_name_ok(r.name))
		return -EBADMSG;
	*m = r;
	return 0;
}

int rp_setup_get_export(const void *buf, size_t len, struct rp_setup_export *m)
{
	struct cursor c = get_begin(buf, len, RP_SETUP_EXPORT);
	struct rp_setup_export e = {0};
	uint32_t flags;

	e.key = get_u64(&c);
	e.addr = get_u64(&c);
	e.len = get_u64(&c);
	e.incarnation = get_u64(&c);
	e.generation = get_u64(&c);
	get_bytes(&c, e.uuid, sizeof(e.uuid));
	e.control = get_u16(&c);
	e.class = get_u8(&c);
	e.method = get_u8(&c);
	flags = get_u32(&c);
	get_string(&c, e.name, sizeof(e.name));
	get_text(&c, e.base, sizeof(e.base));
	e.fi_name_len = get_u16(&c);
	if (e.fi_name_len > sizeof(e.fi_name))
		return -EBADMSG;
	get_bytes(&c, e.fi_name, e.fi_name_len);
	get_text(&c, e.why, sizeof(e.why));
	e.length = get_u64(&c);
	e.owner = get_u64(&c);
	if (get_end(&c, true) || flags & ~(WAS_CLEAN | READ_ONLY) ||
	    !rp_setup_name_ok(e.name))
		return -EBADMSG;
	/* A pool is not empty, and its end does not overflow. */
	if (e.len == 0 || e.addr + e.len < e.addr || e.length > e.len)
		return -EBADMSG;
	e.was_clean = flags & WAS_CLEAN;
	e.read_only = flags & READ_ONLY;
	*m = e;
	return 0;
}

int rp_setup_get_list(const void *buf, size_t len, struct rp_setup_list *m)
{
	struct cursor c = get_begin(buf, len, RP_SETUP_LIST);
	struct cursor entries;
	unsigned int n = get_u16(&c);

	if (n > RP_SETUP_POOLS)
		return -EBADMSG;
	/*
	 * Check in a first pass, write in a second one: *m is large, and must
	 * be written only on success.
	 */
	entries = c;
	for (int write = 0; write < 2; write++) {
		c = entries;
		for (unsigned int i = 0; i < n; i++) {
			uint64_t size = get_u64(&c);
			uint8_t class = get_u8(&c), method = get_u8(&c);
			char name[RP_SETUP_NAME + 1];

			get_string(&c, name, sizeof(name));
			if (c.malformed || !rp_setup_name_ok(name))
				return -EBADMSG;
			if (!write)
				continue;
			m->v[i].len = size;
			m->v[i].class = class;
			m->v[i].method = method;
			memcpy(m->v[i].name, name, sizeof(name));
		}
		if (get_end(&c, true))
			return -EBADMSG;
	}
	m->n = n;
	return 0;
}

int rp_setup_get_error(const void *buf, size_t len, struct rp_setup_error *m)
{
	struct cursor c = get_begin(buf, len, RP_SETUP_ERROR);
	struct rp_setup_error e;

	e.code = get_u32(&c);
	get_text(&c, e.text, sizeof(e.text));
	if (get_end(&c, true))
		return -EBADMSG;
	*m = e;
	return 0;
}

static void make_mac(const void *buf, size_t len, enum rp_setup_from from,
		     const struct rp_setup_auth *auth, uint8_t *mac)
{
	static const char labels[2][24] = {
		[RP_SETUP_FROM_CLIENT] = "ofi_rpmem set-up client",
		[RP_SETUP_FROM_DAEMON] = "ofi_rpmem set-up daemon",
	};
	struct hmac_sha256_ctx ctx;

	hmac_sha256_set_key(&ctx, auth->secret->len, auth->secret->bytes);
	hmac_sha256_update(&ctx, sizeof(labels[from]),
			   (const uint8_t *)labels[from]);
	hmac_sha256_update(&ctx, RP_SETUP_NONCE, auth->daemon_nonce);
	hmac_sha256_update(&ctx, RP_SETUP_NONCE, auth->client_nonce);
	hmac_sha256_update(&ctx, len - RP_SETUP_MAC, buf);
	hmac_sha256_digest(&ctx, RP_SETUP_MAC, mac);
	explicit_bzero(&ctx, sizeof(ctx));
}

void rp_setup_seal(void *buf, size_t len, enum rp_setup_from from,
		   const struct rp_setup_auth *auth)
{
	make_mac(buf, len, from, auth, (uint8_t *)buf + len - RP_SETUP_MAC);
}

bool rp_setup_check_seal(const void *buf, size_t len, enum rp_setup_from from,
			 const struct rp_setup_auth *auth)
{
	uint8_t mac[RP_SETUP_MAC];

	if (len < RP_SETUP_HDR + RP_SETUP_MAC)
		return false;
	make_mac(buf, len, from, auth, mac);
	return memeql_sec(mac, (const uint8_t *)buf + len - RP_SETUP_MAC,
			  sizeof(mac));
}
