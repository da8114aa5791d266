#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem.so.1 beside the layers below it: pools on the file system of this
# folder, then in ordinary memory in place of persistent memory, where libpmemobj
# and the target write back by clwb.
# usage, in the build folder: replica.sh [ROUNDS]
set -u
rounds=${1:-40}
src=$(cd "${srcdir:-..}" && pwd)
top=$PWD
disk=$(mktemp -d "$top/replicabench.XXXXXX") || exit 1
shm=$(mktemp -d /dev/shm/replicabench.XXXXXX) || exit 1
export FI_PROVIDER_PATH="$top/prov/rpmem/.libs" FI_TCP_IFACE=lo
export LD_LIBRARY_PATH="$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset FI_PROVIDER FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE RPMEM_CLASS
daemon=

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	rm -rf "$disk" "$shm"
}
trap finish EXIT
. "$src/util/trust.sh"
trust_folder "$top/util/fi_rpmem_info" "$disk" || exit 1

# run FOLDER: one daemon with three pools, and the measurement
run()
{
	cd "$1" || exit 1
	"$top/util/fi_rpmemd" --port 0 --port-file port --create 16M a b c \
		>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 400); do
		[ -s port ] && break
		sleep 0.05
	done
	port=$(cat port) || { cat daemon.out; exit 1; }
	printf 'PMEMPOOLSET\n9M %s/part\nREPLICA 127.0.0.1:%s c\n' \
		"$PWD" "$port" >set
	printf 'PMEMPOOLSET\n9M %s/alone\n' "$PWD" >local
	echo "$1: $(grep -m 1 '^a ' daemon.out)"
	echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
	"$top/fabtests/benchmarks/replica" "127.0.0.1:$port" a b set local \
		"$rounds" || exit 1
	echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
	kill $daemon && wait $daemon
	daemon=
}
run "$disk"
export FI_OFI_RPMEM_EMULATE=1 PMEM_IS_PMEM_FORCE=1
export FI_OFI_RPMEM_CLASS=none RPMEM_CLASS=none
run "$shm"
