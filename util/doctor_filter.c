// SPDX-License-Identifier: BSD-2-Clause
/* FI_PROVIDER: the base that it names and the endpoint that it selects. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/fabric.h"
#include "util/info.h"

#define PROVIDER "ofi_rpmem"

/* Copy "a;b;c" without ofi_rpmem to rest. True: entry names ofi_rpmem. */
static bool split_entry(char *entry, char rest[DOCTOR_NAME])
{
	char *part, *save;
	bool found = false;
	size_t n = 0;

	rest[0] = 0;
	for (part = strtok_r(entry, ";", &save); part;
	     part = strtok_r(NULL, ";", &save)) {
		if (!strcasecmp(part, PROVIDER))
			found = true;
		else if (n < DOCTOR_NAME)
			n += (size_t)snprintf(rest + n, DOCTOR_NAME - n, "%s%s",
					      n ? ";" : "", part);
	}
	return found;
}

bool doctor_filter_base(const char *filter, char base[DOCTOR_NAME])
{
	char *copy, *entry, *save, rest[DOCTOR_NAME], other[DOCTOR_NAME] = "";
	bool named = false;

	base[0] = 0;
	copy = filter && *filter != '^' ? strdup(filter) : NULL;
	if (!copy)
		return false;
	for (entry = strtok_r(copy, ",", &save); entry && !base[0];
	     entry = strtok_r(NULL, ",", &save)) {
		if (split_entry(entry, rest)) {
			named = true;
			strcpy(base, rest);
		} else if (!other[0] && strncasecmp(rest, "ofi_", 4)) {
			strcpy(other, rest);
		}
	}
	free(copy);
	/* In a list such as "tcp,ofi_rpmem", the base is another entry. */
	if (!base[0])
		strcpy(base, other);
	return named && base[0];
}

/*
 * Find the first endpoint of ofi_rpmem, or the error. Runs in a child process,
 * whose libfabric reads FI_PROVIDER before the parent unsets it.
 */
static void find_endpoint(struct doctor_endpoint *endpoint)
{
	struct fi_info *hints = doctor_hints(NULL), *list = NULL, *i;
	char dir[4096];

	endpoint->ret = -FI_ENOMEM;
	if (!hints)
		return;
	if (!rp_fabric_find_provider(dir, sizeof(dir), NULL))
		setenv("FI_PROVIDER_PATH", dir, 0);
	/* Use loopback: check_interface() of doctor.c checks FI_TCP_IFACE. */
	setenv("FI_TCP_IFACE", "lo", 1);
	endpoint->ret =
		fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list);
	for (i = list; i && !strcasestr(i->fabric_attr->prov_name, PROVIDER);)
		i = i->next;
	if (!i && !endpoint->ret)
		endpoint->ret = -FI_ENODATA;
	if (i) {
		snprintf(endpoint->provider, sizeof(endpoint->provider), "%s",
			 i->fabric_attr->prov_name);
		snprintf(endpoint->domain, sizeof(endpoint->domain), "%s",
			 i->domain_attr->name);
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

void doctor_filter_resolve(struct doctor_endpoint *endpoint)
{
	int ends[2];
	pid_t child;

	*endpoint = (struct doctor_endpoint){.ret = -FI_EOTHER};
	if (pipe(ends))
		return;
	child = fork();
	if (!child) {
		find_endpoint(endpoint);
		if (write(ends[1], endpoint, sizeof(*endpoint)) !=
		    sizeof(*endpoint))
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	if (child > 0) {
		if (read(ends[0], endpoint, sizeof(*endpoint)) !=
		    sizeof(*endpoint))
			*endpoint = (struct doctor_endpoint){.ret = -FI_EOTHER};
		waitpid(child, NULL, 0);
	}
	close(ends[0]);
}
