// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode rendezvous messages; every byte of a peer is checked. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire_rendezvous.h"

enum {
	TYPE = 3,
	RKEY = 12,
	TO = 16,
	FROM = 20,
	TO_GID = 24,
	FROM_GID = 40,
	BODY = 56,
};

static bool has_endpoint_names(enum rp_rendezvous_type t)
{
	return t == RP_RENDEZVOUS_LOOKUP || t == RP_RENDEZVOUS_FOUND;
}

static int put_endpoint_names(uint8_t *p, const struct rp_rendezvous *m)
{
	if (m->side.qp_num != m->from || m->to >= 1u << 24)
		return -EINVAL;
	put32(p, TO, m->to);
	put32(p, FROM, m->from);
	memcpy(p + TO_GID, m->to_gid, RP_GID_LEN);
	memcpy(p + FROM_GID, m->from_gid, RP_GID_LEN);
	return rp_side_addr_put(p + BODY, &m->side);
}

int rp_rendezvous_put(void *buf, const struct rp_rendezvous *m)
{
	uint8_t *p = buf;
	int ret = 0;

	if (m->type < RP_RENDEZVOUS_LOOKUP || m->type > RP_RENDEZVOUS_LEAVE)
		return -EINVAL;
	memset(p, 0, RP_RENDEZVOUS_LEN);
	if (m->type >= RP_RENDEZVOUS_QUERY && m->type <= RP_RENDEZVOUS_RELEASED)
		put32(p, RKEY, m->rkey);
	if (has_endpoint_names(m->type))
		ret = put_endpoint_names(p, m);
	if (m->type == RP_RENDEZVOUS_DESC)
		ret = m->desc.rkey == m->rkey ? rp_desc_put(p + BODY, &m->desc)
					      : -EINVAL;
	if (!ret)
		rp_wire_seal(p, (uint8_t)m->type, RP_RENDEZVOUS_LEN);
	return ret;
}

int rp_rendezvous_get(const void *buf, struct rp_rendezvous *m)
{
	const uint8_t *p = buf;
	uint8_t again[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous got;
	int ret = rp_wire_check_seal(p, p[TYPE], RP_RENDEZVOUS_LEN);

	if (ret)
		return ret;
	got = (struct rp_rendezvous){
		.type = p[TYPE],
		.rkey = get32(p, RKEY),
		.to = get32(p, TO),
		.from = get32(p, FROM),
	};
	memcpy(got.to_gid, p + TO_GID, RP_GID_LEN);
	memcpy(got.from_gid, p + FROM_GID, RP_GID_LEN);
	if (has_endpoint_names(got.type))
		ret = rp_side_addr_get(p + BODY, &got.side);
	else if (got.type == RP_RENDEZVOUS_DESC)
		ret = rp_desc_get(p + BODY, &got.desc);
	if (ret)
		return ret;
	/* Each message has one form: encoded again it must be the same. */
	if (rp_rendezvous_put(again, &got) || memcmp(again, p, sizeof(again)))
		return -EBADMSG;
	*m = got;
	return 0;
}

/* Hash the number, as consecutive queue pairs must not share their ports. */
uint16_t rp_rendezvous_port(uint32_t qp_num, unsigned int n)
{
	const uint32_t h = qp_num * 2654435761u;

	return (uint16_t)(RP_RENDEZVOUS_PORT_FIRST +
			  ((h >> 20) + n * ((h >> 8 & 0xfff) | 1)) %
				  RP_RENDEZVOUS_PORTS);
}
