// SPDX-License-Identifier: BSD-2-Clause
/* Properties of memory mapped from a file, or from a temporary file. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/host_facts.h"
#include "util/machine_facts.h"
#include "util/method_advice.h"
#include "util/info.h"
#include "util/text.h"

#define SAMPLE	  65536u      /* bytes of the temporary file */
#define DEV_ALIGN (2ul << 20) /* device DAX maps whole huge pages */

static int open_sample(const char *dir, size_t len, struct info_map *m,
		       char *err)
{
	int ret;

	if (asprintf(&m->temp_path, "%s/fi_rpmem_info.XXXXXX", dir) < 0) {
		m->temp_path = NULL;
		return rp_err(err, -ENOMEM, "out of memory");
	}
	m->fd = mkostemp(m->temp_path, O_CLOEXEC);
	if (m->fd < 0) {
		ret = -errno;
		free(m->temp_path);
		m->temp_path = NULL;
		return rp_err(err, ret, "no file can be made in %s: %s", dir,
			      strerror(-ret));
	}
	ret = -posix_fallocate(m->fd, 0, (off_t)len);
	if (ret)
		return rp_err(err, ret, "no room for a file in %s: %s", dir,
			      strerror(-ret));
	m->len = len;
	return 0;
}

static int open_given(const char *path, struct info_map *m, char *err)
{
	struct stat st;
	int ret;

	if (stat(path, &st))
		return rp_err(err, -errno, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return open_sample(path, SAMPLE, m, err);
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
		return rp_err(err, -EINVAL,
			      "%s is neither a file, a folder nor a DAX device",
			      path);
	m->fd = open(path, O_RDWR | O_CLOEXEC);
	if (m->fd < 0) {
		ret = -errno;
		return rp_err(err, ret, "%s cannot be opened for writing: %s",
			      path, strerror(-ret));
	}
	m->len = S_ISCHR(st.st_mode) ? DEV_ALIGN : (size_t)st.st_size;
	if (!m->len)
		return rp_err(err, -EINVAL,
			      "%s is empty: name a file with its blocks, or "
			      "its folder",
			      path);
	return 0;
}

/* Map as a target maps a pool: with MAP_SYNC if the file system has DAX. */
static void *map_pool(const struct info_map *m)
{
	const int prot = PROT_READ | PROT_WRITE;
	void *p = mmap(NULL, m->len, prot, MAP_SHARED_VALIDATE | MAP_SYNC,
		       m->fd, 0);

	return p != MAP_FAILED ? p
			       : mmap(NULL, m->len, prot, MAP_SHARED, m->fd, 0);
}

static int map_opened(const char *path, struct info_map *m, int ret, char *err)
{
	if (!ret) {
		m->addr = map_pool(m);
		if (m->addr != MAP_FAILED)
			return 0;
		ret = rp_err(err, -errno, "%s cannot be mapped: %s", path,
			     strerror(errno));
		m->addr = NULL;
	}
	info_map_close(m);
	return ret;
}

int info_map_open(const char *path, struct info_map *m, char *err)
{
	*m = (struct info_map){.fd = -1};
	return map_opened(path, m, open_given(path, m, err), err);
}

int info_map_make(const char *dir, size_t len, struct info_map *m, char *err)
{
	*m = (struct info_map){.fd = -1};
	return map_opened(dir, m, open_sample(dir, len, m, err), err);
}

void info_map_close(struct info_map *m)
{
	if (m->addr)
		munmap(m->addr, m->len);
	if (m->fd >= 0)
		close(m->fd);
	if (m->temp_path)
		unlink(m->temp_path);
	free(m->temp_path);
	*m = (struct info_map){.fd = -1};
}

static json_t *fact_json(const char *value, const char *source)
{
	return json_pack("{s:s, s:o}", "value", value, "source",
			 info_text("%s", source));
}

static const char *limit_name(enum rp_class_limit l)
{
	return l == RP_LIMIT_POWER     ? "power"
	       : l == RP_LIMIT_PROCESS ? "process"
				       : "none";
}

static const char *trust_name(enum rp_tri t)
{
	return t == RP_YES ? "trusted" : t == RP_NO ? "untrusted" : "no matter";
}

/* Pack each property with its source as JSON. */
static json_t *facts_pack(const struct rp_facts *f, const struct rp_sources *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "memory",
			    fact_json(rp_memory_name(f->memory), s->memory));
	json_object_set_new(
		o, "placement",
		fact_json(rp_placement_name(f->placement), s->placement));
	json_object_set_new(o, "domain",
			    fact_json(rp_domain_name(f->domain), s->domain));
	json_object_set_new(o, "fence",
			    fact_json(rp_tri_name(f->fence), s->fence));
	json_object_set_new(o, "native",
			    fact_json(rp_tri_name(f->native), s->native));
	json_object_set_new(o, "filesystem",
			    fact_json(trust_name(f->fs_trusted), s->fs));
	json_object_set_new(o, "limit",
			    fact_json(limit_name(f->limit), s->limit));
	return o;
}

/*
 * Find a change that would give a better method. If FI_OFI_RPMEM_METHOD forces
 * another method than the best one, this change is to unset the variable.
 */
static struct rp_advice find_advice(const struct rp_facts *f,
				    const struct rp_choice *c)
{
	struct rp_choice first = rp_method_best(f, RP_METHODS_BUILT);

	if (first.method == c->method)
		return rp_method_advice(f, RP_METHODS_BUILT);
	return (struct rp_advice){
		.change = "Unset FI_OFI_RPMEM_METHOD.",
		.choice = first,
	};
}

static void pack_choice(json_t *o, const struct rp_facts *f,
			const struct rp_choice *choice, const char *obstacle)
{
	struct rp_choice c = *choice;
	struct rp_advice a = find_advice(f, choice);
	const char *forced = getenv("FI_OFI_RPMEM_METHOD");

	json_object_set_new(o, "class",
			    c.method == RP_METHOD_REFUSED
				    ? json_null()
				    : json_string(rp_class_name(c.class)));
	json_object_set_new(o, "method", json_string(rp_method_name(c.method)));
	if (forced && *forced && (*obstacle || c.method != RP_METHOD_REFUSED))
		json_object_set_new(
			o, "forced",
			info_text("%s", *obstacle ? obstacle
						  : "by "
						    "FI_OFI_RPMEM_METHOD"));
	json_object_set_new(o, "row", json_string(c.row));
	json_object_set_new(o, "remedy",
			    c.remedy ? json_string(c.remedy) : json_null());
	if (a.change)
		json_object_set_new(
			o, "better",
			json_pack("{s:s, s:s, s:s}", "change", a.change,
				  "method", rp_method_name(a.choice.method),
				  "class", rp_class_name(a.choice.class)));
}

json_t *info_path(const char *path, const struct info_transport *transport)
{
	char err[RP_ERR_LEN], why[RP_WHY_LEN] = "", fs[64] = "unknown";
	char obstacle[RP_WHY_LEN];
	struct rp_choice choice;
	struct rp_sources src;
	struct rp_facts facts;
	struct info_map m;
	struct rp_nic nic;
	json_t *o;
	int ret;

	if (info_map_open(path, &m, err))
		return json_pack("{s:o, s:n, s:o}", "path",
				 info_text("%s", path), "class", "why",
				 info_text("%s", err));
	rp_host_fs_name(m.fd, fs, sizeof(fs));
	ret = rp_facts_find(transport->base, transport->device, m.addr, m.len,
			    &facts, why, &src, &nic);
	if (ret) {
		o = json_pack("{s:o, s:s, s:n, s:o}", "path",
			      info_text("%s", path), "file_system", fs, "class",
			      "why",
			      info_text("%s", why[0] ? why : strerror(-ret)));
		goto close;
	}
	facts.agent = true; /* every target with the provider has an agent */
	choice = rp_facts_pick(&facts, obstacle);
	o = json_pack("{s:o, s:s, s:s, s:o, s:o, s:i, s:o}", "path",
		      info_text("%s", path), "file_system", fs, "memory",
		      rp_memory_name(facts.memory), "why", info_text("%s", why),
		      "facts", facts_pack(&facts, &src), "raised",
		      (int)src.raised, "advice",
		      info_advice(&facts, &nic, &choice));
	pack_choice(o, &facts, &choice, obstacle);
close:
	info_map_close(&m);
	return o;
}

static void print_field(const json_t *o, const char *key, const char *label)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (s && *s)
		printf("  %-14s %s\n", label, s);
}

static void print_facts(const json_t *facts)
{
	const char *key;
	const json_t *f;

	json_object_foreach((json_t *)facts, key, f)
	{
		const char *src =
			json_string_value(json_object_get(f, "source"));

		/*
		 * No source: the property was not examined, or has no limit.
		 * Print nothing.
		 */
		if (!*src)
			continue;
		printf("  %-14s %-18s %s\n", key,
		       json_string_value(json_object_get(f, "value")), src);
	}
}

static void print_better(const json_t *b)
{
	if (b)
		printf("  %-14s %s Then: %s, class %s.\n", "better",
		       json_string_value(json_object_get(b, "change")),
		       json_string_value(json_object_get(b, "method")),
		       json_string_value(json_object_get(b, "class")));
}

void info_path_print(const json_t *o)
{
	json_int_t raised = json_integer_value(json_object_get(o, "raised"));

	printf("%s\n", json_string_value(json_object_get(o, "path")));
	print_field(o, "file_system", "file system");
	if (json_object_get(o, "facts"))
		print_facts(json_object_get(o, "facts"));
	else
		print_field(o, "why", "why");
	if (raised)
		printf("  %-14s %d of these facts are stronger by the "
		       "operator's word only\n",
		       "asserted", (int)raised);
	print_field(o, "row", "row");
	if (json_is_string(json_object_get(o, "class")))
		print_field(o, "class", "class");
	else
		printf("  %-14s none that a commit could reach\n", "class");
	print_field(o, "method", "method");
	print_field(o, "forced", "forced");
	print_field(o, "remedy", "remedy");
	print_better(json_object_get(o, "better"));
	info_advice_print(json_object_get(o, "advice"));
	if (json_array_size(json_object_get(o, "advice")))
		printf("  %-14s 'fi_rpmem_info --advise' tells what of it "
		       "holds "
		       "here\n",
		       "");
}
