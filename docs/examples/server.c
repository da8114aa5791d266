// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lets clients write to a file and make it durable:
 *
 *   cc -o server server.c -lfabric && ./server /path/of/pool
 *   cc -o client client.c -lfabric && ./client HOST TEXT    on another machine
 *
 * The server serves one client, and ends when that client ends. PORT in the
 * environment: the TCP port over which it sends address and key (47592).
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "peer.h"

#define LEN (1 << 20)

/* Maps the pool file, whose blocks are all allocated. */
static void *pool_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	void *pool;

	if (fd < 0 || posix_fallocate(fd, 0, LEN))
		err(1, "%s", path);
	pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		err(1, "%s", path);
	return pool;
}

int main(int argc, char **argv)
{
	void *pool = pool_map(argc > 1 ? argv[1] : "pool");
	const int fd = peer_connect(NULL);
	struct pollfd client = {.fd = fd, .events = POLLIN};
	struct region region = {.len = LEN, .name_len = sizeof(region.name)};
	char source[64];
	struct fid_mr *mr;
	struct peer p;

	peer_source(fd, source, sizeof(source));
	peer_open(&p, source);
	TRY(fi_mr_reg(p.domain, pool, LEN, FI_REMOTE_WRITE, 0, 0, FI_RMA_PMEM,
		      &mr, NULL));
	/* Remote addresses are virtual ones, or offsets in the region. */
	if (p.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		region.addr = (uintptr_t)pool;
	region.key = fi_mr_key(mr);
	TRY(fi_getname(&p.ep->fid, region.name, &region.name_len));
	if (send(fd, &region, sizeof(region), 0) != sizeof(region))
		err(1, "send");
	/* The provider serves the client inside the calls on the queue. */
	while (!poll(&client, 1, 0))
		fi_cq_sread(p.cq, NULL, 0, NULL, 10);
	TRY(fi_close(&mr->fid));
	TRY(fi_close(&p.ep->fid));
	printf("%.*s\n", 60, (char *)pool);
	return 0;
}
