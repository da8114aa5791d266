// SPDX-License-Identifier: BSD-2-Clause
/* Opens libfabric for the tools: a domain of ofi_rpmem, an endpoint. */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_ext_rpmem.h>

#include "util/fabric.h"

#define PROVIDER     "ofi_rpmem"
#define PROVIDER_DSO "librpmem-fi.so"

/*
 * Whether dir contains the provider, or a test build of it with another name:
 * libfabric loads every file whose name ends in "fi.so".
 */
static bool has_provider(const char *dir)
{
	char pattern[PATH_MAX];
	glob_t found;
	bool ret;

	if (snprintf(pattern, sizeof(pattern), "%s/librpmem*fi.so", dir) >=
	    (int)sizeof(pattern))
		return false;
	ret = glob(pattern, GLOB_NOSORT, NULL, &found) == 0 &&
	      access(found.gl_pathv[0], R_OK) == 0;
	globfree(&found);
	return ret;
}

/* Find the first directory of a colon-separated list that has the provider. */
static bool find_in_list(const char *list, char *dir, size_t len)
{
	while (*list) {
		size_t n = strcspn(list, ":");

		if (n && n < len) {
			memcpy(dir, list, n);
			dir[n] = 0;
			if (has_provider(dir))
				return true;
		}
		list += n + (list[n] == ':');
	}
	return false;
}

/*
 * Find the provider of this program's build tree. Programs are in util/ or
 * fabtests/functional/, or in .libs below one of them.
 */
static bool find_in_build_tree(char *dir, size_t len)
{
	static const char *const up[] = {"..", "../..", "../../.."};
	char exe[PATH_MAX], path[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n < 0)
		return false;
	exe[n] = 0;
	slash = strrchr(exe, '/');
	if (!slash)
		return false;
	*slash = 0;
	for (size_t i = 0; i < sizeof(up) / sizeof(up[0]); i++) {
		char *real;
		bool fits;

		snprintf(path, sizeof(path), "%s/%s/prov/rpmem/.libs", exe,
			 up[i]);
		if (!has_provider(path))
			continue;
		real = realpath(path, NULL);
		if (!real)
			continue;
		fits = strlen(real) < len;
		if (fits)
			strcpy(dir, real);
		free(real);
		return fits;
	}
	return false;
}

int rp_fabric_find_provider(char *dir, size_t len, char *err)
{
	const char *list = getenv("FI_PROVIDER_PATH");

	if (list && *list) {
		errno = 0;
		if (find_in_list(list, dir, len))
			return 0;
		if (errno == EMFILE || errno == ENFILE)
			return rp_err(err, -errno,
				      "looking for " PROVIDER_DSO ": %s; close "
				      "some, or raise the limit (ulimit -n)",
				      strerror(errno));
		return rp_err(err, -ENOENT,
			      "no folder of FI_PROVIDER_PATH='%s' has "
			      "readable " PROVIDER_DSO
			      "; add the one that has it, or unset the "
			      "variable",
			      list);
	}
	if (find_in_build_tree(dir, len) ||
	    find_in_list(RP_PROVIDER_DIR, dir, len))
		return 0;
	return rp_err(err, -ENOENT,
		      PROVIDER_DSO " is neither in " RP_PROVIDER_DIR
				   " nor in the build tree of this program; "
				   "run 'make install', or name its folder in "
				   "FI_PROVIDER_PATH");
}

/*
 * Whether FI_PROVIDER ("tcp,ofi_x", "tcp;ofi_x", "^tcp") hides this provider.
 */
static bool filter_hides(const char *list, const char *name)
{
	size_t n = strcspn(name, ";");
	bool named = false, negated;

	if (!list || !*list)
		return false;
	negated = *list == '^';
	for (list += negated; *list; list += strspn(list, ",;")) {
		size_t len = strcspn(list, ",;");

		named |= len == n && !strncasecmp(list, name, n);
		list += len;
	}
	return named == negated;
}

static const char *base_name(const struct rp_fabric_attr *attr)
{
	return attr->base ? attr->base : "tcp";
}

int rp_fabric_env(const struct rp_fabric_attr *attr, char *err)
{
	const char *filter = getenv("FI_PROVIDER"), *excluded = NULL;
	char dir[PATH_MAX];
	int ret;

	if (!attr->bare) {
		ret = rp_fabric_find_provider(dir, sizeof(dir), err);
		if (ret)
			return ret;
		if (setenv("FI_PROVIDER_PATH", dir, 0))
			return rp_err(err, -ENOMEM, "out of memory");
		if (filter_hides(filter, PROVIDER))
			excluded = PROVIDER;
		else if (filter_hides(filter, base_name(attr)))
			excluded = base_name(attr);
		if (excluded)
			return rp_err(err, -FI_ENODATA,
				      "FI_PROVIDER='%s' excludes %s; unset it, "
				      "or set it to '%s;" PROVIDER
				      "' with the quotes",
				      filter, excluded, base_name(attr));
	}
	return 0;
}

static bool sockaddr_is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	}
	return false;
}

static bool sockaddr_is_any(const struct sockaddr *sa)
{
	static const struct in6_addr mapped_any = {
		.s6_addr = {[10] = 0xff, [11] = 0xff},
	};

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		return in->sin_addr.s_addr == htonl(INADDR_ANY);
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr) ||
		       IN6_ARE_ADDR_EQUAL(&in6->sin6_addr, &mapped_any);
	}
	return false;
}

/* Whether all addresses of a host have the property. */
static bool host_is(const char *addr, bool (*has)(const struct sockaddr *sa))
{
	struct addrinfo *list, *ai, hints = {.ai_socktype = SOCK_STREAM};
	bool all;

	if (getaddrinfo(addr, NULL, &hints, &list))
		return false;
	all = true;
	for (ai = list; ai; ai = ai->ai_next)
		all = all && has(ai->ai_addr);
	freeaddrinfo(list);
	return all;
}

bool rp_fabric_is_loopback(const char *addr)
{
	return host_is(addr, sockaddr_is_loopback);
}

bool rp_fabric_is_any(const char *addr)
{
	return host_is(addr, sockaddr_is_any);
}

static struct fi_info *make_hints(const struct rp_fabric_attr *attr)
{
	struct fi_info *h = fi_allocinfo();
	int n;

	if (!h)
		return NULL;
	h->caps = FI_RMA | FI_READ | FI_WRITE;
	if (attr->target)
		h->caps |= FI_REMOTE_READ | FI_REMOTE_WRITE;
	if (attr->tagged)
		h->caps |= FI_TAGGED | FI_SEND | FI_RECV;
	h->tx_attr->size = h->rx_attr->size = attr->queue_size;
	if (attr->selective)
		h->tx_attr->op_flags = FI_COMPLETION;
	if (!attr->bare && !attr->plain)
		h->caps |= FI_RMA_PMEM;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_SAFE;
	/* Manual progress is the usual case, and needs no thread. */
	h->domain_attr->data_progress =
		attr->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	h->domain_attr->control_progress = h->domain_attr->data_progress;
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	n = asprintf(&h->fabric_attr->prov_name, "%s%s", base_name(attr),
		     attr->bare ? "" : ";" PROVIDER);
	if (n < 0) {
		h->fabric_attr->prov_name = NULL;
		fi_freeinfo(h);
		return NULL;
	}
	return h;
}

/*
 * Local address of the route to dest. Passing dest in the hints instead makes
 * ofi_rxm 1.17 fail in fi_enable().
 */
static int route_source(const struct sockaddr *dest, size_t len, char *source,
			size_t size, char *err)
{
	struct sockaddr_storage local;
	socklen_t local_len = sizeof(local);
	int fd, ret = 0;

	if (len < sizeof(struct sockaddr_in) ||
	    (dest->sa_family != AF_INET && dest->sa_family != AF_INET6))
		return rp_err(err, -FI_EINVAL,
			      "the target's address is no IP address");
	fd = socket(dest->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return rp_err(err, -errno, "socket: %s", strerror(errno));
	/* connect() of a datagram socket only looks up the route. */
	if (connect(fd, dest, (socklen_t)len) ||
	    getsockname(fd, (struct sockaddr *)&local, &local_len)) {
		ret = rp_err(err, -errno, "no route to the target: %s",
			     strerror(errno));
		goto close_fd;
	}
	ret = getnameinfo((struct sockaddr *)&local, local_len, source,
			  (socklen_t)size, NULL, 0, NI_NUMERICHOST);
	if (ret)
		ret = rp_err(err, -FI_EINVAL, "address of this host: %s",
			     gai_strerror(ret));
close_fd:
	close(fd);
	return ret;
}

static int get_info(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		    char *err)
{
	const char *source = attr->source ? attr->source : "127.0.0.1";
	char route[NI_MAXHOST];
	struct fi_info *hints;
	int ret;

	if (!attr->source && attr->dest) {
		ret = route_source(attr->dest, attr->dest_len, route,
				   sizeof(route), err);
		if (ret)
			return ret;
		source = route;
	}
	/* A loopback address is only on lo: restrict tcp to that interface. */
	if (rp_fabric_is_loopback(source))
		setenv("FI_TCP_IFACE", "lo", 0);
	hints = make_hints(attr);
	if (!hints)
		return rp_err(err, -FI_ENOMEM, "out of memory");
	ret = fi_getinfo(FI_VERSION(1, 17), source, NULL, FI_SOURCE, hints,
			 &f->info);
	if (ret)
		rp_err(err, ret,
		       "libfabric has no RDM endpoint of provider '%s' at "
		       "address %s: %s; 'fi_rpmem_info --doctor' looks for "
		       "the cause",
		       hints->fabric_attr->prov_name, source,
		       fi_strerror(-ret));
	fi_freeinfo(hints);
	return ret;
}

static int open_ep(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		   const char **what)
{
	uint64_t tx = FI_TRANSMIT;
	int ret;

	if (attr->selective)
		tx |= FI_SELECTIVE_COMPLETION;
	*what = "endpoint";
	ret = fi_endpoint(f->domain, f->info, &f->ep, NULL);
	if (ret)
		return ret;
	*what = "binding of the endpoint";
	ret = fi_ep_bind(f->ep, &f->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(f->ep, &f->cq->fid, tx);
	if (!ret)
		ret = fi_ep_bind(f->ep, &f->cq->fid, FI_RECV);
	if (ret)
		return ret;
	*what = "listening of the endpoint";
	ret = fi_enable(f->ep);
	if (ret || attr->bare || attr->plain)
		return ret;
	*what = "operations of the endpoint";
	return fi_rpmem_ops_get(f->ep, &f->ops);
}

int rp_fabric_open(const struct rp_fabric_attr *attr, struct rp_fabric *f,
		   char *err)
{
	struct fi_cq_attr cq_attr = {
		.size = attr->cq_size,
		.format = FI_CQ_FORMAT_CONTEXT,
		.wait_obj = attr->wait_fd ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	const char *what = "fabric";
	int ret;

	memset(f, 0, sizeof(*f));
	ret = rp_fabric_env(attr, err);
	if (ret)
		return ret;
	ret = get_info(attr, f, err);
	if (ret)
		return ret;
	ret = fi_fabric(f->info->fabric_attr, &f->fabric, NULL);
	if (ret)
		goto close;
	what = "domain";
	ret = fi_domain(f->fabric, f->info, &f->domain, NULL);
	if (ret)
		goto close;
	what = "completion queue";
	ret = fi_cq_open(f->domain, &cq_attr, &f->cq, NULL);
	if (ret || attr->no_ep)
		goto close;
	what = "address vector";
	ret = fi_av_open(f->domain, &av_attr, &f->av, NULL);
	if (!ret)
		ret = open_ep(attr, f, &what);
close:
	if (!ret)
		return 0;
	rp_err(err, ret, "%s of provider '%s': %s", what,
	       f->info->fabric_attr->prov_name, fi_strerror(-ret));
	rp_fabric_close(f);
	return ret;
}

void rp_fabric_close(struct rp_fabric *f)
{
	if (f->ep)
		fi_close(&f->ep->fid);
	if (f->cq)
		fi_close(&f->cq->fid);
	if (f->av)
		fi_close(&f->av->fid);
	if (f->domain)
		fi_close(&f->domain->fid);
	if (f->fabric)
		fi_close(&f->fabric->fid);
	fi_freeinfo(f->info);
	memset(f, 0, sizeof(*f));
}

int rp_fabric_reg(struct rp_fabric *f, void *buf, size_t len, uint64_t access,
		  uint64_t flags, struct fid_mr **mr, char *err)
{
	const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct fi_mr_attr attr = {
		.mr_iov = &iov,
		.iov_count = 1,
		.access = access,
	};
	int ret;

	*mr = NULL;
	if (!(access & remote) &&
	    !(f->info->domain_attr->mr_mode & FI_MR_LOCAL))
		return 0;
	ret = fi_mr_regattr(f->domain, &attr, flags, mr);
	if (ret)
		return rp_err(err, ret, "registering %zu bytes: %s", len,
			      fi_strerror(-ret));
	return 0;
}

void *rp_fabric_desc(struct fid_mr *mr)
{
	return mr ? fi_mr_desc(mr) : NULL;
}

int rp_fabric_peer(struct rp_fabric *f, const void *name, fi_addr_t *addr,
		   char *err)
{
	int ret = fi_av_insert(f->av, name, 1, addr, 0, NULL);

	if (ret == 1)
		return 0;
	return rp_err(err, ret < 0 ? ret : -FI_EINVAL,
		      "the peer's address cannot be inserted: %s",
		      fi_strerror(ret < 0 ? -ret : FI_EINVAL));
}

int rp_fabric_cq_error(struct rp_fabric *f, struct fi_cq_err_entry *entry,
		       char *err)
{
	char text[RP_ERR_LEN];
	ssize_t ret;

	memset(entry, 0, sizeof(*entry));
	ret = fi_cq_readerr(f->cq, entry, 0);
	if (ret == 0)
		return -FI_EAGAIN;
	if (ret < 0)
		return (int)ret;
	text[0] = 0;
	fi_cq_strerror(f->cq, entry->prov_errno, entry->err_data, text,
		       sizeof(text) - 64);
	rp_err(err, 0, "%s%s%.400s", fi_strerror(entry->err),
	       text[0] ? ": " : "", text);
	return 0;
}
