#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The rebuild of an empty member of a 2-of-3 group, alone and beside durable writes
# of 64 bytes; the pools are in this folder. Bars: a copy beside writes at 0.5 of an
# idle one, and writes beside a copy at 0.8 of those without.
# usage: rebuild.sh [ROUNDS [SIZE]], in a build folder
set -u
rounds=${1:-3} size=${2:-128M}
src=$(cd "${srcdir:-..}" && pwd)
top=$PWD
dir=$(mktemp -d ./rebuild.XXXXXX) || exit 99
cd "$dir" || exit 99
finish()
{
	for p in a b c; do
		kill "$(cat pid.$p)"
	done 2>/dev/null
	cd "$top" && rm -rf "$dir"
}
trap finish EXIT
export FI_PROVIDER_PATH="$top/prov/rpmem/.libs" FI_TCP_IFACE=lo
export LD_LIBRARY_PATH="$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# shellcheck source=util/trust.sh
. "$src/util/trust.sh"
trust_folder "$top/util/fi_rpmem_info" .

# serve POOL PORT: a daemon with a new pool; the port is kept in a file
cat >serve <<U
rm -f $PWD/\$1 $PWD/ready.\$1
cd $PWD
$top/util/fi_rpmemd --port \$2 --port-file ready.\$1 --create $size \$1 \\
	>log.\$1 2>&1 &
echo \$! >pid.\$1
until [ -s ready.\$1 ]; do
	kill -0 \$! || { cat log.\$1; exit 1; }
	sleep 0.02
done
U
cat >replace <<U
cd $PWD
p=\$(cat pid.c)
kill -9 \$p
while kill -0 \$p 2>/dev/null; do sleep 0.02; done
sh serve c \$(cat port.c)
U
group=
for p in a b c; do
	sh serve $p 0 || exit 1
	cp ready.$p port.$p
	group=$group${group:+,}127.0.0.1:$(cat port.$p):$p
done
grep '^a ' log.a
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
"$top/fabtests/benchmarks/rebuild" "$group;k=2" "sh $PWD/replace" "$rounds" || exit 1
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
