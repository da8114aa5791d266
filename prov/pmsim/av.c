// SPDX-License-Identifier: BSD-2-Clause
/* Endpoint addresses, and the address vectors of programs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "pmsim/pmsim_int.h"

/* An inserted address; inserting it twice makes one entry, as in libfabric. */
struct ps_av_entry {
	uint32_t number;
	unsigned int uses;
	fi_addr_t index;
	uint64_t born;
	UT_hash_handle hh;
};

bool ps_addr_valid(const void *addr)
{
	struct ps_addr a;

	memcpy(&a, addr, sizeof(a));
	return a.family == AF_INET && a.number;
}

void ps_addr_make(uint32_t number, struct ps_addr *addr)
{
	*addr = (struct ps_addr){.family = AF_INET, .number = number};
}

uint32_t ps_av_number(const struct ps_av *av, fi_addr_t addr)
{
	return addr < av->n && av->entries[addr] ? av->entries[addr]->number
						 : 0;
}

fi_addr_t ps_av_find(const struct ps_av *av, uint32_t number)
{
	struct ps_av_entry *e = NULL;

	if (av)
		HASH_FIND(hh, av->by_addr, &number, sizeof(number), e);
	return e ? e->index : FI_ADDR_NOTAVAIL;
}

uint64_t ps_av_insert_time(const struct ps_av *av, fi_addr_t addr)
{
	return ps_av_number(av, addr) ? av->entries[addr]->born : 0;
}

static int insert_one(struct ps_av *av, const void *addr, fi_addr_t *out)
{
	struct ps_av_entry *e, **grown;
	struct ps_addr a;
	size_t i;

	if (!ps_addr_valid(addr))
		return -FI_EINVAL;
	memcpy(&a, addr, sizeof(a));
	HASH_FIND(hh, av->by_addr, &a.number, sizeof(a.number), e);
	if (e) {
		e->uses++;
		*out = e->index;
		return 0;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -FI_ENOMEM;
	for (i = 0; i < av->n && av->entries[i]; i++)
		;
	if (i == av->n) {
		grown = realloc(av->entries, (i + 1) * sizeof(*grown));
		if (!grown) {
			free(e);
			return -FI_ENOMEM;
		}
		av->entries = grown;
		av->n++;
	}
	av->entries[i] = e;
	e->number = a.number;
	e->uses = 1;
	e->index = i;
	e->born = ++ps_sim.clock;
	HASH_ADD(hh, av->by_addr, number, sizeof(e->number), e);
	*out = i;
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count,
		     fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct ps_av *av = ps_container_of(fid, struct ps_av, fid);
	const char *from = addr;
	int done = 0;

	for (size_t i = 0; i < count; i++) {
		fi_addr_t a = FI_ADDR_NOTAVAIL;

		done += !insert_one(av, from + i * sizeof(struct ps_addr), &a);
		if (fi_addr)
			fi_addr[i] = a;
	}
	return done;
}

static int av_insertsvc(struct fid_av *fid, const char *node,
			const char *service, fi_addr_t *fi_addr, uint64_t flags,
			void *context)
{
	struct ps_addr a;

	ps_addr_make((uint32_t)strtoul(service, NULL, 0), &a);
	return av_insert(fid, &a, 1, fi_addr, flags, context);
}

static int no_insertsym(struct fid_av *fid, const char *node, size_t nodecnt,
			const char *service, size_t svccnt, fi_addr_t *fi_addr,
			uint64_t flags, void *context)
{
	return -FI_ENOSYS;
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count,
		     uint64_t flags)
{
	struct ps_av *av = ps_container_of(fid, struct ps_av, fid);

	for (size_t i = 0; i < count; i++) {
		struct ps_av_entry *e;

		if (!ps_av_number(av, fi_addr[i]))
			return -FI_EINVAL;
		e = av->entries[fi_addr[i]];
		if (--e->uses)
			continue;
		av->entries[fi_addr[i]] = NULL;
		HASH_DEL(av->by_addr, e);
		free(e);
	}
	return 0;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr,
		     size_t *addrlen)
{
	struct ps_av *av = ps_container_of(fid, struct ps_av, fid);
	uint32_t number = ps_av_number(av, fi_addr);
	struct ps_addr a;

	if (!number)
		return -FI_EINVAL;
	ps_addr_make(number, &a);
	memcpy(addr, &a, *addrlen < sizeof(a) ? *addrlen : sizeof(a));
	*addrlen = sizeof(a);
	return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf,
			      size_t *len)
{
	struct ps_addr a;
	int n;

	memcpy(&a, addr, sizeof(a));
	n = snprintf(buf, *len, "pmsim://%" PRIu32, a.number);
	*len = (size_t)n + 1;
	return buf;
}

static int no_av_set(struct fid_av *av, struct fi_av_set_attr *attr,
		     struct fid_av_set **av_set, void *context)
{
	return -FI_ENOSYS;
}

static int av_close(struct fid *fid)
{
	struct ps_av *av = ps_container_of(fid, struct ps_av, fid.fid);
	struct ps_av_entry *e, *next;

	if (av->refs)
		return -FI_EBUSY;
	HASH_ITER(hh, av->by_addr, e, next)
	{
		HASH_DEL(av->by_addr, e);
		free(e);
	}
	av->dom->refs--;
	free(av->entries);
	free(av);
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = ps_no_bind,
	.control = ps_no_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = no_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
	.av_set = no_av_set,
};

int ps_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
	       struct fid_av **out, void *context)
{
	struct ps_dom *dom = ps_container_of(domain, struct ps_dom, fid);
	struct ps_av *av;

	if (attr && ((attr->flags & FI_EVENT) || attr->name))
		return -FI_ENOSYS;
	av = calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	if (attr && attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	av->dom = dom;
	dom->refs++;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	*out = &av->fid;
	return 0;
}
