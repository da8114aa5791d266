#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Instructions at the writer for a durable write of 64 bytes to one pool and to a
# 2-of-3 group, by callgrind. usage: group_cost.sh, in a build folder
set -u
dir=$(mktemp -d ./group_cost.XXXXXX) || exit 99
here=$PWD daemons=
trap 'kill $daemons; wait; rm -rf "$here/$dir"' EXIT
FI_PROVIDER_PATH=$here/prov/rpmem/.libs FI_TCP_IFACE=lo
LD_LIBRARY_PATH=$here/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export FI_PROVIDER_PATH FI_TCP_IFACE LD_LIBRARY_PATH
cd "$dir" || exit 99
for pool in s a b c; do
	../util/fi_rpmemd --port 0 --port-file port.$pool --create 16M $pool \
		>log.$pool 2>&1 &
	daemons="$daemons $!"
	until [ -s port.$pool ]; do
		kill -0 $! || exit 1
		sleep 0.05
	done
	eval $pool=127.0.0.1:"$(cat port.$pool)":$pool
done

# instructions PLACE OUTSTANDING ROUNDS: print the instructions of group --one
instructions()
{
	valgrind --tool=callgrind --callgrind-out-file=out.callgrind \
		../fabtests/benchmarks/.libs/group --one "$@" >said 2>&1 ||
		cat said >&2
	sed -n 's/.*Collected : *//p' said
}

# each PLACE OUTSTANDING: print the instructions of one write
each()
{
	few=$(instructions "$1" "$2" 10)
	many=$(instructions "$1" "$2" 60)
	echo $(((many - few) / 10000))
}

for out in 1 64; do
	pool=$(each "$s" $out)
	group=$(each "$a,$b,$c;k=2" $out)
	echo "$out outstanding: pool $pool, group $group instructions, ratio" \
		"$(awk "BEGIN { printf \"%.2f\", $group / $pool }")"
done
cp out.callgrind "$here/group_cost.callgrind"
