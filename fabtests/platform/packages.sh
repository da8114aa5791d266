#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Inside a new root of a Debian release: installs the packages in /packages, uses
# each of them as its user would, and removes them. util/package.sh runs it.
set -e -o pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

used() {
	echo "used: $*"
}
# A process that stays would keep the root open, and a failure unseen.
trap 'kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
# A minimal root has no such file, and etcd needs the name.
[ -e /etc/hosts ] || echo 127.0.0.1 localhost >/etc/hosts

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
used ofi-rpmem-dev ofi-rpmem-doc librpmem-pool0 librpmem-log0 librpmem-rpc0 libibvrpmem0: programs
apt-get install -y --no-install-recommends libraft-dev libuv1-dev
# The packages are not built where libraft has another interface.
if pkg-config --exists 'raft >= 0.15 raft < 0.16'; then
	# shellcheck disable=SC2046
	gcc -o raft_kv $examples/raft_kv.c $(pkg-config --cflags --libs librpmem_raft libuv)
	# Both end with an error.
	{ ./raft_kv 2>&1 || true; } | grep '^raft_kv: usage'
	preload=$(dpkg -L librpmem-raft0 | grep '_preload.so$')
	{ LD_PRELOAD=$preload ./raft_kv 1 uv:. 1 127.0.0.1:2 2>&1 || true; } |
		grep 'RPMEM_RAFT_POOL is not set'
	used librpmem-raft0: a program, and the preload
fi
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

# serve PORT POOL...: start a daemon of small pools; its pid in $daemon
serve() {
	local port=$1

	shift
	rm -f ready
	fi_rpmemd --create 16M --port "$port" --port-file ready "$@" >>daemon.out &
	daemon=$!
	until [ -s ready ]; do
		kill -0 $daemon
		sleep 0.05
	done
}
serve 0 g0 g1 g2 obj kv
port=$(cat ready)
group="127.0.0.1:$port:g0,127.0.0.1:$port:g1,127.0.0.1:$port:g2;k=2"
python3 - "$group" <<'P'
import sys
import rpmem_pool

with rpmem_pool.open(sys.argv[1], exclusive=rpmem_pool.TAKE) as pool:
    pool.write(b"by a group", 0, durable=True)
P
fi_rpmem_group status "$group"
fi_rpmem_group scrub --quiet "$group"
used ofi-rpmem-tools: fi_rpmem_group, which finds three equal members

apt-get install -y --no-install-recommends redis-server
module=$(dpkg -L redis-rpmem | grep '/rpmem_redis.so$')
# redis ARGUMENT...: start Redis in a new folder, on the log in pool kv
redis() {
	rm -rf redis
	mkdir redis
	LD_PRELOAD=$module redis-server --dir "$dir/redis" --port 0 \
		--unixsocket "$dir/redis.sock" --save '' --appendonly yes \
		--appendfsync always --loadmodule "$module" \
		127.0.0.1:"$port":kv "$@" >redis.out 2>&1 &
	redis=$!
}
redis create yes
case $(redis-server --version) in
*v=7.0.*)
	until redis-cli -s redis.sock set key durable 2>/dev/null | grep OK; do
		kill -0 $redis || { cat redis.out; exit 1; }
		sleep 0.05
	done
	kill -KILL $redis
	wait $redis || true
	redis
	until redis-cli -s redis.sock get key 2>/dev/null | grep durable; do
		kill -0 $redis || { cat redis.out; exit 1; }
		sleep 0.05
	done
	redis-cli -s redis.sock shutdown
	wait $redis || true
	used redis-rpmem: Redis, which has its data after a kill and without its folder
	;;
*)
	wait $redis && exit 1
	grep 'use Redis 7.0' redis.out
	used redis-rpmem: another version of Redis refuses the module
	;;
esac

if [ -n "$(dpkg -L librpmem1 2>/dev/null)" ]; then
	apt-get install -y --no-install-recommends pmdk-tools
	printf 'PMEMPOOLSET\n9M %s/part\nREPLICA 127.0.0.1:%s obj\n' \
		"$dir" "$port" >pool.set
	pmempool create obj --layout accounts pool.set
	pmempool info pool.set | grep "127.0.0.1:$port"
	used librpmem1: a replica of pmempool
fi

apt-get install -y --no-install-recommends etcd-server etcd-client
etcd --data-dir "$dir/etcd" --log-level error >etcd.out 2>&1 &
etcd=$!
for _ in $(seq 200); do
	rpmem_lead set db "$group" 2>lead.out && break
	sleep 0.1
done
[ "$(rpmem_lead get db)" = "$group" ]
# shellcheck disable=SC2016 # for the shell that rpmem_lead starts
rpmem_lead run db -- sh -c 'echo "$RPMEM_GROUP"' | grep "^$group;epoch="
kill $etcd $daemon
wait $etcd $daemon || true
used ofi-rpmem-tools: rpmem_lead, with etcd

serve 0 pull
port=$(cat ready)
echo $daemon >pid
cat >cut.sh <<-C
	kill -KILL "\$(cat pid)"
	rm -f ready
	fi_rpmemd --port $port --port-file ready pull >>daemon.out 2>&1 &
	echo \$! >pid
	until [ -s ready ]; do sleep 0.05; done
C
fi_rpmem_plugpull --cut 'sh cut.sh' --cycles 1 --seconds 1 --area 1M \
	127.0.0.1:"$port":pull | tee pull.out
grep '^verdict: nothing acknowledged is lost' pull.out
kill "$(cat pid)"
used ofi-rpmem-tools: fi_rpmem_plugpull, whose target is killed

# crash CODE COMMAND: fi_rpmem_crashtest of a command that writes x, and then
# acknowledges it, ends with this code.
crash() {
	local code=0

	rm -rf crashed
	mkdir crashed
	# shellcheck disable=SC2016 # for the shells that it starts
	fi_rpmem_crashtest --files crashed \
		--check 'test ! -s "$RPMEM_CRASHTEST_LEDGER" || grep -q new x' -- sh -c \
		"cd crashed && $2 && echo x >>\"\$RPMEM_CRASHTEST_LEDGER\"" \
		>crash.out 2>&1 || code=$?
	[ $code = "$1" ] || { cat crash.out; return 1; }
}
crash 1 'echo new >x'
crash 0 'echo new >x && sync x && sync .'
used ofi-rpmem-tools: fi_rpmem_crashtest convicts and acquits

apt-get install -y --no-install-recommends bash-completion zsh
# Let bash-completion find the file of a command, and complete an option.
bash -c '. /usr/share/bash-completion/bash_completion
	load=$(complete -p -D | sed "s/.*-F \([^ ]*\).*/\1/")
	for tool in fi_rpmemd fi_rpmem_cp rpmem_lead; do
		$load $tool
		complete -p $tool || exit
	done
	COMP_WORDS=(fi_rpmem_cp --veri) COMP_CWORD=1
	_fi_rpmem
	[ "${COMPREPLY[*]}" = --verify ]'
zsh -f /completion.zsh "" "fi_rpmem_cp --veri" offer
grep -x -e --verify offer
zsh -f /completion.zsh "" "rpmem_lead re" offer.lead
grep -x replace offer.lead
used ofi-rpmem-tools: completion in bash and zsh

getent passwd ofi_rpmem >/dev/null
find /usr/lib/systemd /lib/systemd -name fi_rpmemd.service | grep . >/dev/null
mkdir -p /etc/ofi_rpmem /var/lib/ofi_rpmem
: >/etc/ofi_rpmem/rpmemd.conf
cp vol /var/lib/ofi_rpmem/kept
# shellcheck disable=SC2046 # a list
apt-get purge -y $(dpkg-query -W -f '${Package}\n' | grep rpmem)
# Debian's pmdk-tools has a page of this name.
left=$(find /usr /etc -name '*rpmem*' | while read -r file; do
	dpkg -S "$file" >/dev/null 2>&1 || echo "$file"
done)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
cmp vol /var/lib/ofi_rpmem/kept
used all: nothing is left behind but pools
