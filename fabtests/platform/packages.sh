#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Inside a new root of a Debian release: installs the packages in /packages, uses
# each of them as its user would, and removes them. util/package.sh runs it.
set -e -o pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

used() {
	echo "used: $*"
}

apt-get install -y --no-install-recommends /packages/*.deb
dpkg -l | awk '/rpmem/ { print $2, $3 }'

# shellcheck source=util/trust.sh
. /trust.sh
dir=$(mktemp -d)
cd "$dir"
set +o pipefail
trust_folder fi_rpmem_info . || exit
set -o pipefail
fi_rpmem_info --version
export FI_TCP_IFACE=lo
fi_rpmemd --create 64M --port 0 --port-file port vol &
daemon=$!
until [ -s port ]; do
	kill -0 $daemon
	sleep 0.05
done
port=$(cat port)
head -c 3000000 /dev/urandom >file
fi_rpmem_cp --quiet file 127.0.0.1:"$port":vol
fi_rpmem_cp --quiet 127.0.0.1:"$port":vol back
cmp file back
used ofi-rpmem-tools libfabric-rpmem: a copy there and back

apt-get install -y --no-install-recommends gcc libc6-dev pkg-config python3 \
	libnbd-bin libfabric-bin
fi_info -p 'tcp;ofi_rpmem' | grep 'provider: tcp;ofi_rpmem' >/dev/null
used libfabric-rpmem: libfabric finds the provider
examples=/usr/share/doc/ofi-rpmem-doc/examples
# shellcheck disable=SC2046 # lists
gcc -o pool $examples/pool.c $(pkg-config --cflags --libs librpmem_pool)
./pool 127.0.0.1:"$port":vol
# shellcheck disable=SC2046
gcc -o log $examples/log.c $(pkg-config --cflags --libs librpmem_log)
[ "$(./log 127.0.0.1:"$port":vol line)" = line ]
# shellcheck disable=SC2046
gcc -o rpc_server $examples/rpc_server.c $(pkg-config --cflags --libs librpmem_rpc)
./rpc_server "$dir/calls" 0 "$dir/sums" >rpc.out &
server=$!
for _ in $(seq 200); do
	[ -s rpc.out ] && break
	sleep 0.05
done
# shellcheck disable=SC2046
gcc -o rpc_client $examples/rpc_client.c $(pkg-config --cflags --libs librpmem_rpc)
[ "$(./rpc_client 127.0.0.1:"$(sed 's/port //' rpc.out)":calls 1 2)" = 3 ]
kill $server
# shellcheck disable=SC2046
gcc -o durable $examples/durable.c $(pkg-config --cflags --libs ofi_rpmem)
./durable "$dir/pool.file"
echo '#include <infiniband/rpmem.h>
int main(void)
{
	void *volatile call = (void *)rpmem_attach_qp; /* not folded */

	return !call;
}' >verbs.c
# shellcheck disable=SC2046
gcc -o verbs verbs.c $(pkg-config --cflags --libs libibvrpmem)
./verbs
apt-get install -y --no-install-recommends libraft-dev libuv1-dev
# shellcheck disable=SC2046
gcc -o raft_kv $examples/raft_kv.c $(pkg-config --cflags --libs librpmem_raft libuv)
./raft_kv 2>&1 | grep '^raft_kv: usage'
LD_PRELOAD=$(dpkg -L librpmem-raft0 | grep '_preload.so$') ./raft_kv 1 uv:. 1 127.0.0.1:2 2>&1 |
	grep 'RPMEM_RAFT_POOL is not set'
used ofi-rpmem-dev ofi-rpmem-doc librpmem-pool0 librpmem-log0 librpmem-raft0 librpmem-rpc0 libibvrpmem0: programs
python3 - 127.0.0.1:"$port":vol <<'P'
import sys
import rpmem_pool

with rpmem_pool.open(sys.argv[1]) as pool:
    pool.write(b"by Python", 0, durable=True)
    assert pool.read(9, 0) == b"by Python"
P
used python3-rpmem-pool: a durable write
head -c 3000000 /dev/urandom >file
nbdkit --exit-with-parent -U - rpmem target=127.0.0.1:"$port" pool=vol \
	--run 'nbdcopy file "$uri" && nbdcopy "$uri" disk'
cmp -n 3000000 file disk
used nbdkit-plugin-rpmem: a copy there and back
LD_PRELOAD=$(dpkg -L redis-rpmem | grep '/rpmem_redis.so$') sync -d file
used redis-rpmem: a preload
kill $daemon
wait $daemon

getent passwd ofi_rpmem >/dev/null
find /usr/lib/systemd /lib/systemd -name fi_rpmemd.service | grep . >/dev/null
mkdir -p /etc/ofi_rpmem /var/lib/ofi_rpmem
: >/etc/ofi_rpmem/rpmemd.conf
cp vol /var/lib/ofi_rpmem/kept
# shellcheck disable=SC2046 # a list
apt-get purge -y $(dpkg-query -W -f '${Package}\n' | grep rpmem)
left=$(find /usr /etc -name '*rpmem*')
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
cmp vol /var/lib/ofi_rpmem/kept
used all: nothing is left behind but pools
