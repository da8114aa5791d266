// SPDX-License-Identifier: BSD-2-Clause
/* Writes a text to the pool of server.c, and makes it durable there. */
#include "peer.h"

/* A call returns -FI_EAGAIN until its private connection is up. */
#define RETRY(call)                                                            \
	do {                                                                   \
		ssize_t n_;                                                    \
		while ((n_ = (call)) == -FI_EAGAIN)                            \
			fi_cq_read(p.cq, NULL, 0);                             \
		TRY(n_);                                                       \
	} while (0)

int main(int argc, char **argv)
{
	struct fi_cq_err_entry bad = {0};
	struct fi_cq_entry done;
	struct fi_rpmem_ops *ops;
	struct region region;
	char source[64];
	fi_addr_t server;
	struct peer p;
	int fd;

	if (argc != 3)
		errx(2, "usage: %s HOST TEXT", argv[0]);
	fd = peer_connect(argv[1]);
	if (recv(fd, &region, sizeof(region), MSG_WAITALL) != sizeof(region))
		errx(1, "the server has ended");
	peer_source(fd, source, sizeof(source));
	peer_open(&p, source);
	TRY(fi_av_insert(p.av, region.name, 1, &server, 0, NULL));
	TRY(fi_rpmem_ops_get(p.ep, &ops));

	struct fi_rma_iov range = {region.addr, strlen(argv[2]) + 1,
				   region.key};
	/* A commit of the range, durable by default. */
	const struct fi_rpmem_msg msg = {
		.rma_iov = &range, .rma_iov_count = 1, .addr = server};

	RETRY(fi_write(p.ep, argv[2], range.len, NULL, server, range.addr,
		       range.key, NULL));
	RETRY(fi_rpmem_commit(ops, p.ep, &msg, 0));
	for (int left = 2; left;) {
		left -= fi_cq_sread(p.cq, &done, 1, NULL, 100) > 0;
		if (fi_cq_readerr(p.cq, &bad, 0) == 1)
			errx(1, "not durable: %s",
			     fi_cq_strerror(p.cq, bad.prov_errno, bad.err_data,
					    NULL, 0));
	}
	puts("durable at the server");
	TRY(fi_close(&p.ep->fid));
	return 0;
}
