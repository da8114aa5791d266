// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode a configuration: docs/protocol.md, "Servers of Raft". */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "libraft/store.h"
#include "bytes.h"

size_t conf_size(const struct raft_configuration *c)
{
	size_t size = 4;

	for (unsigned int i = 0; i < c->n; i++)
		size += 16 + strlen(c->servers[i].address);
	return size;
}

void conf_put(const struct raft_configuration *c, unsigned char *p)
{
	rp_put32(p, c->n);
	p += 4;
	for (unsigned int i = 0; i < c->n; i++) {
		const struct raft_server *s = &c->servers[i];
		const size_t len = strlen(s->address);

		rp_put64(p, s->id);
		rp_put32(p + 8, (uint32_t)s->role);
		rp_put32(p + 12, (uint32_t)len);
		memcpy(p + 16, s->address, len);
		p += 16 + len;
	}
}

static int get_server(struct raft_configuration *c, const unsigned char **p,
		      const unsigned char *end)
{
	uint32_t len;
	char *address;
	int ret;

	if (end - *p < 16)
		return RAFT_MALFORMED;
	len = rp_get32(*p + 12);
	if (len > (size_t)(end - *p) - 16)
		return RAFT_MALFORMED;
	address = strndup((const char *)*p + 16, len);
	if (!address)
		return RAFT_NOMEM;
	ret = raft_configuration_add(c, rp_get64(*p), address,
				     (int)rp_get32(*p + 8));
	free(address);
	*p += 16 + len;
	return ret;
}

int conf_get(struct raft_configuration *c, const unsigned char *p, size_t len)
{
	const unsigned char *end = p + len;
	uint32_t n = len < 4 ? 0 : rp_get32(p);
	int ret = len < 4 ? RAFT_MALFORMED : 0;

	raft_configuration_init(c);
	for (p += 4; !ret && n; n--)
		ret = get_server(c, &p, end);
	if (!ret && p != end)
		ret = RAFT_MALFORMED;
	if (ret) {
		raft_configuration_close(c);
		raft_configuration_init(c);
	}
	return ret;
}

int conf_copy(struct raft_configuration *to,
	      const struct raft_configuration *from)
{
	int ret = 0;

	raft_configuration_init(to);
	for (unsigned int i = 0; !ret && i < from->n; i++)
		ret = raft_configuration_add(to, from->servers[i].id,
					     from->servers[i].address,
					     from->servers[i].role);
	if (ret) {
		raft_configuration_close(to);
		raft_configuration_init(to);
	}
	return ret;
}
