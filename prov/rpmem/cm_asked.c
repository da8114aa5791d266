// SPDX-License-Identifier: BSD-2-Clause
/* Where the mailboxes are of those who ask to be connected, until a program
 * accepts them. */
#include <stdlib.h>

#include "rpmem/cm.h"

struct rp_asked {
	LIST_ENTRY(rp_asked) link;
	const struct fid *handle;
	struct rp_mailbox_card card;
};

static struct rp_asked *find(const struct rp_fabric *fab,
			     const struct fid *handle)
{
	struct rp_asked *a;

	LIST_FOREACH (a, &fab->asked, link)
		if (a->handle == handle)
			return a;
	return NULL;
}

/* The base may give a handle again, once it is answered. */
int rp_asked_keep(struct rp_fabric *fab, const struct fid *handle,
		  const struct rp_mailbox_card *card)
{
	struct rp_asked *a = find(fab, handle);

	if (!card) {
		if (a) {
			LIST_REMOVE(a, link);
			free(a);
		}
		return 0;
	}
	if (!a) {
		a = calloc(1, sizeof(*a));
		if (!a)
			return -FI_ENOMEM;
		a->handle = handle;
		LIST_INSERT_HEAD(&fab->asked, a, link);
	}
	a->card = *card;
	return 0;
}

const struct rp_mailbox_card *rp_asked_card(const struct rp_fabric *fab,
					    const struct fid *handle)
{
	const struct rp_asked *a = find(fab, handle);

	return a ? &a->card : NULL;
}

void rp_asked_free(struct rp_fabric *fab)
{
	struct rp_asked *a;

	while ((a = LIST_FIRST(&fab->asked))) {
		LIST_REMOVE(a, link);
		free(a);
	}
}
