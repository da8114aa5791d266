/* SPDX-License-Identifier: BSD-2-Clause */
/* Code shared by server.c and client.c: an endpoint, and a TCP connection. */
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_ext_rpmem.h>

#define PORT "47592"
#define TRY(call)                                                              \
	do {                                                                   \
		ssize_t r_ = (call);                                           \
		if (r_ < 0)                                                    \
			errx(1, "%s: %s; FI_LOG_LEVEL=warn says why", #call,   \
			     fi_strerror((int)-r_));                           \
	} while (0)

/*
 * Message of the server: where its memory is, and the address of its endpoint.
 */
struct region {
	uint64_t addr, key, len;
	char name[64];
	uint64_t name_len;
};

struct peer {
	struct fi_info *info;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

/* Open an endpoint at the local address `source`. */
static inline void peer_open(struct peer *p, const char *source)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT,
				     .wait_obj = FI_WAIT_UNSPEC};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_info *hints = fi_allocinfo();
	struct fid_fabric *fabric;

	hints->caps = FI_RMA | FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rpmem");
	TRY(fi_getinfo(FI_VERSION(1, 17), source, NULL, FI_SOURCE, hints,
		       &p->info));
	fi_freeinfo(hints);
	TRY(fi_fabric(p->info->fabric_attr, &fabric, NULL));
	TRY(fi_domain(fabric, p->info, &p->domain, NULL));
	TRY(fi_cq_open(p->domain, &cq_attr, &p->cq, NULL));
	TRY(fi_av_open(p->domain, &av_attr, &p->av, NULL));
	TRY(fi_endpoint(p->domain, p->info, &p->ep, NULL));
	TRY(fi_ep_bind(p->ep, &p->cq->fid, FI_TRANSMIT | FI_RECV));
	TRY(fi_ep_bind(p->ep, &p->av->fid, 0));
	TRY(fi_enable(p->ep));
}

/* Connect to host, or wait for a client when host is NULL. */
static inline int peer_connect(const char *host)
{
	struct addrinfo hints = {.ai_flags = host ? 0 : AI_PASSIVE,
				 .ai_family = AF_INET,
				 .ai_socktype = SOCK_STREAM},
			*to;
	const char *port = getenv("PORT") ? getenv("PORT") : PORT;
	const int on = 1;
	int fd, listener, ret = getaddrinfo(host, port, &hints, &to);

	if (ret)
		errx(1, "%s: %s", host ? host : port, gai_strerror(ret));
	fd = socket(to->ai_family, to->ai_socktype, 0);
	if (fd < 0)
		err(1, "socket");
	if (host) {
		if (connect(fd, to->ai_addr, to->ai_addrlen))
			err(1, "%s port %s", host, port);
	} else {
		listener = fd;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(fd, to->ai_addr, to->ai_addrlen) || listen(fd, 1))
			err(1, "port %s", port);
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			err(1, "accept");
		close(listener);
	}
	freeaddrinfo(to);
	return fd;
}

/* Get the local address of the connection fd. */
static inline void peer_source(int fd, char *source, size_t size)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) ||
	    getnameinfo((struct sockaddr *)&sa, len, source, (socklen_t)size,
			NULL, 0, NI_NUMERICHOST))
		errx(1, "no local address");
}
