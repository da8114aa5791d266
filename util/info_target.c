// SPDX-License-Identifier: BSD-2-Clause
/* QUERY of a running target: how it commits writes to one of its pools. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/status.h"
#include "rpmem/ext.h"
#include "util/fabric.h"
#include "util/info.h"
#include "util/query_class.h"
#include "util/setup_client.h"

static int query(const struct rp_setup_export *x, struct fi_rpmem_attr *a,
		 enum rp_class *reached, char *err)
{
	struct rp_fabric_attr attr = {
		.base = x->base,
		.dest = x->fi_name,
		.dest_len = x->fi_name_len,
	};
	struct rp_fabric f;
	fi_addr_t peer;
	int ret;

	ret = rp_fabric_open(&attr, &f, err);
	if (ret)
		return ret;
	ret = rp_fabric_peer(&f, x->fi_name, &peer, err);
	if (!ret) {
		ret = rp_query_class(f.ops, f.ep, peer, x->key,
				     FI_RPMEM_CLASS_DEFAULT, a, reached);
		if (ret)
			rp_err(err, ret, "fi_rpmem_query_sync: %s",
			       fi_strerror(-ret));
	}
	rp_fabric_close(&f);
	return ret;
}

static json_t *pack_export(const char *where, const struct rp_setup_export *x,
			   const struct fi_rpmem_attr *a, enum rp_class reached)
{
	json_t *o = json_pack(
		"{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "target",
		info_text("%s", where), "class", rp_class_name(reached),
		"method", rp_method_name((enum rp_method)a->method),
		"granularity", (json_int_t)a->granularity, "preferred_size",
		(json_int_t)a->preferred_size, "preferred_align",
		(json_int_t)a->preferred_align, "bytes", (json_int_t)a->len,
		"why", info_text("%s", a->why));

	json_object_set_new(o, "strongest",
			    json_string(rp_class_name(rp_class_decode(
				    a->region_class, RP_CLASS_NONE))));
	json_object_set_new(o, "base", info_text("%s", x->base));
	json_object_set_new(o, "stopped_cleanly", json_boolean(x->was_clean));
	json_object_set_new(o, "read_only", json_boolean(x->read_only));
	if (a->prov_errno) {
		json_object_set_new(o, "refused",
				    json_string(rp_status_name(
					    (enum rp_status)a->prov_errno)));
		json_object_set_new(o, "remedy",
				    json_string(rp_status_remedy(
					    (enum rp_status)a->prov_errno)));
	}
	return o;
}

static int list_pools(const char *where, const struct rp_setup_target *t,
		      json_t **out, char *err)
{
	struct rp_setup_list *list = malloc(sizeof(*list));
	json_t *pools;
	int ret;

	if (!list)
		return rp_err(err, -ENOMEM, "out of memory");
	pools = json_array();
	ret = rp_setup_fetch_list(t, list, err);
	for (unsigned int i = 0; !ret && i < list->n; i++)
		json_array_append_new(
			pools,
			json_pack("{s:s, s:I, s:s, s:s}", "pool",
				  list->v[i].name, "bytes",
				  (json_int_t)list->v[i].len, "class",
				  rp_class_name(list->v[i].class), "method",
				  rp_method_name(list->v[i].method)));
	free(list);
	if (ret) {
		json_decref(pools);
		return ret;
	}
	*out = json_pack("{s:o, s:o}", "target", info_text("%s", where),
			 "pools", pools);
	return 0;
}

int info_target(const char *where, const struct rp_secret *secret, json_t **out,
		char *err)
{
	char why[RP_ERR_LEN] = "";
	struct fi_rpmem_attr a = {
		.size = sizeof(a),
		.why = why,
		.why_size = sizeof(why),
	};
	struct rp_setup_target t = {.secret = secret};
	enum rp_class reached;
	struct rp_setup_export x;
	int used, ret;

	used = rp_setup_parse_target(where, &t, err);
	if (used < 0)
		return used;
	if (!where[used] || !where[used + 1])
		return list_pools(where, &t, out, err);
	ret = rp_setup_fetch_export(&t, where + used + 1, &x, err);
	if (ret)
		return ret;
	ret = query(&x, &a, &reached, err);
	if (!ret)
		*out = pack_export(where, &x, &a, reached);
	return ret;
}

static uint64_t number_of(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void print_pools(const json_t *pools)
{
	char size[RP_SIZE_LEN];
	const json_t *o;
	int wide = 4;
	size_t i;

	json_array_foreach(pools, i, o)
	{
		int n = (int)json_string_length(json_object_get(o, "pool"));

		wide = n > wide ? n : wide;
	}
	printf("%-*s  %10s  %-7s  %s\n", wide, "POOL", "SIZE", "CLASS",
	       "METHOD");
	json_array_foreach(pools, i, o)
		printf("%-*s  %10s  %-7s  %s\n", wide,
		       json_string_value(json_object_get(o, "pool")),
		       rp_size_format(number_of(o, "bytes"), size),
		       json_string_value(json_object_get(o, "class")),
		       json_string_value(json_object_get(o, "method")));
}

void info_target_print(const json_t *o)
{
	const char *refused = json_string_value(json_object_get(o, "refused"));
	const char *class = json_string_value(json_object_get(o, "class"));
	const char *strongest =
		json_string_value(json_object_get(o, "strongest"));
	const json_t *pools = json_object_get(o, "pools");
	char size[RP_SIZE_LEN];

	if (pools) {
		print_pools(pools);
		return;
	}
	printf("%s\n", json_string_value(json_object_get(o, "target")));
	printf("  %-14s %s\n", "pool",
	       rp_size_format(number_of(o, "bytes"), size));
	printf("  %-14s %s\n", "class", class);
	printf("  %-14s %s\n", "method",
	       json_string_value(json_object_get(o, "method")));
	if (strcmp(class, strongest))
		printf("  %-14s %s\n", "strongest", strongest);
	printf("  %-14s %s\n", "flushed by",
	       rp_size_format(number_of(o, "granularity"), size));
	printf("  %-14s %s", "best writes",
	       rp_size_format(number_of(o, "preferred_size"), size));
	printf(", aligned to %s\n",
	       rp_size_format(number_of(o, "preferred_align"), size));
	printf("  %-14s %s\n", "why",
	       json_string_value(json_object_get(o, "why")));
	if (json_is_true(json_object_get(o, "read_only")))
		printf("  %-14s the secret only allows to read\n", "rights");
	if (refused)
		printf("  %-14s %s: %s\n", "refused", refused,
		       json_string_value(json_object_get(o, "remedy")));
	if (json_is_false(json_object_get(o, "stopped_cleanly")))
		printf("  %-14s the pool's last daemon did not stop by "
		       "itself\n",
		       "note");
}
