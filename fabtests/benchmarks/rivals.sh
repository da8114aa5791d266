#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The rivals work, move bytes, and are unchanged.
set -u
failed=0

# Changing a rival is a decision: figures before and after do not compare.
(cd "${srcdir:-.}" && sha256sum --check --quiet fabtests/benchmarks/frozen) || {
	echo "FAIL: a rival has changed; say why in the commit that refreezes it:" \
		"sha256sum fabtests/benchmarks/rival*.[ch] >fabtests/benchmarks/frozen"
	failed=1
}
for size in 64 65536; do
	timeout 120 fabtests/benchmarks/rivals $size 100 >rivals.$$ 2>&1 ||
		{ echo "FAIL: $size bytes"; failed=1; }
	cat rivals.$$
	for name in raw_echo msg_commit handwritten; do
		grep -q "^$name .* p50 " rivals.$$ ||
			{ echo "FAIL: $name of $size bytes"; failed=1; }
	done
	rm -f rivals.$$
done

# Without an RDMA device the rivals over RDMA report that they have none.
if grep -q 'define HAVE_LIBRPMA 1' config.h; then
	timeout 120 fabtests/benchmarks/rivals 64 10 pool.$$ 127.0.0.1 \
		>rivals.$$ 2>&1 && { echo "FAIL: loopback is an RDMA device"; failed=1; }
	cat rivals.$$
	for name in librpma_flush librpma_gpspm; do
		grep -q "^$name .* not obtained: ." rivals.$$ ||
			{ echo "FAIL: $name says nothing"; failed=1; }
	done
	rm -f rivals.$$
fi
exit $failed
