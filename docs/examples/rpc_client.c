// SPDX-License-Identifier: BSD-2-Clause
/*
 * Send numbers to the example rpc_server, and print the last sum.
 *
 *   cc -o rpc_client rpc_client.c -lrpmem_rpc
 *   ./rpc_client HOST:PORT:NAME NUMBER...
 */
#include <stdio.h>
#include <stdlib.h>

#include <rpmem_rpc.h>

int main(int argc, char **argv)
{
	struct rpmem_rpc *rpc;
	uint64_t number, sum = 0;
	size_t len = 0;
	int ret;

	if (argc < 2)
		return 2;
	ret = rpmem_rpc_connect(&rpc, argv[1], NULL);
	for (int i = 2; i < argc && !ret; i++) {
		number = strtoull(argv[i], NULL, 0);
		len = sizeof(sum);
		ret = rpmem_rpc_call(rpc, &number, sizeof(number), &sum, &len);
	}
	if (!ret && argc > 2 && len != sizeof(sum)) {
		fprintf(stderr, "rpc_client: the server has no room for "
				"another client's sum; use another SUMS\n");
		return 1;
	}
	if (ret) {
		fprintf(stderr, "rpc_client: %s\n", rpmem_rpc_error());
		return 1;
	}
	printf("%llu\n", (unsigned long long)sum);
	rpmem_rpc_close(rpc, 0);
	return 0;
}
