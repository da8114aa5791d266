#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_rpc over many incarnations: SIGKILL ends the client, or the server,
# or both. After its kill the server's pool becomes what msync had covered.
# Every acknowledged call is processed exactly once, in order, by a handler that
# follows rpmem_rpc(3). A server whose client has gone processes them alone.
# Three lanes run at the same time: 0: calls travel in requests to the agent
# (S-RFlush); 1: none does (W-RFlush); 2: the client waits while half of the ring
# is in use. RP_LANE=N runs one, with all kills.
# usage: rpc_lives.sh [KILLS]
set -u
kills=${1:-72}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-10000}
[ -z "${RP_SANITIZE:-}" ] || kills=8
src=$(cd "${srcdir:-..}" && pwd)
if [ -z "${RP_LANE:-}" ]; then
	. "$src/fabtests/fault/lanes.sh"
	run_lanes 3 "$kills"
	exit
fi
kills=${1:-$kills}
case $RP_LANE in
1) export FI_OFI_RPMEM_INLINE=0 ;;
2) export RP_THRESHOLD=50 ;;
esac
dir=$(mktemp -d ./rpclives.XXXXXX) || exit 99
cd "$dir" || exit 99
. "$src/fabtests/fault/lives.sh"
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export RP_SEED
server= client=
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
# Only the providers of this base can be used.
[ -z "${RP_BASE:-}" ] || export FI_PROVIDER="$RP_BASE,ofi_rpmem"
shadow=$programs/libshadow.so
peer=${RP_PROGRAM:-$programs/rpc_peer}

finish()
{
	for pid in $server $client; do
		kill -9 "$pid" 2>/dev/null
	done
	cd .. && rm -rf "$dir"
}
trap finish EXIT

die()
{
	echo "FAIL: $* (RP_LANE=$RP_LANE RP_SEED=$RP_SEED)"
	tail -n 5 server.out client.out check.out
	exit 1
}

# serve [SPEC]: start the server, always on the same port.
serve()
{
	: >server.out
	RPMEM_SHADOW=${1:-} LD_PRELOAD="${1:+${RP_PRELOAD:-}$shadow}" \
		$peer serve ./vol "$port" state >>server.out 2>&1 &
	server=$!
	await_port $server
}

restart()
{
	end $server
	! grep -q WRONG server.out || die "the handler"
	cp vol.safe vol.0
	serve "vol.0:vol.safe" || die "restart"
}

# replay: wait until the server, which has no client, has processed all calls
# that were acknowledged. The number of the last one is in the handler's state.
replay()
{
	acked=$(last_of acked client.out)
	for _ in $(seq 3000); do
		last=$(od -An -tu8 -j24 -N8 state | tr -d ' ')
		[ "${last:-0}" -lt "${acked:-0}" ] || return 0
		kill -0 $server 2>/dev/null || die "the server ended"
		sleep 0.01
	done
	die "life $life, no client: $acked was acknowledged, $last is the last processed"
}

# compare: connect, and compare the processed calls with the client's output.
compare()
{
	! grep -q WRONG client.out || die "the client"
	acked=$(last_of acked client.out)
	timeout 60 $peer check "127.0.0.1:$port:vol" key >check.out 2>&1 ||
		die "life $life: check"
	! grep -q WRONG server.out || die "the handler"
	last=$(last_of resume check.out)
	[ "$last" -ge "${acked:-0}" ] ||
		die "life $life: $acked was acknowledged, $last is the last processed"
}

port=0 life=0
: >client.out
: >check.out
if ! serve; then
	grep -q 'weaker than required\|durable' server.out || die "first start"
	server=
	echo "SKIP: $(tail -n 1 server.out)"
	exit 77
fi
end $server
cp vol.0 vol.safe
serve "vol.0:vol.safe" || die "start"

while [ $life -lt "$kills" ]; do
	progress
	life=$((life + 1))
	if [ -z "$client" ]; then
		: >client.out
		$peer call "127.0.0.1:$port:vol" key >>client.out 2>&1 &
		client=$!
	fi
	await_lines client.out 100 "$client" "$server"
	below 8
	pick=${RP_PICK:-$pick}
	case $pick in
	0 | 1 | 2) # kill only the client
		end "$client"
		client=
		;;
	3 | 4 | 5) # kill only the server: the client continues
		restart
		await_lines client.out 100 "$client" "$server"
		continue
		;;
	6) # kill the client, then the server before it has processed all calls
		end "$client"
		client=
		restart
		replay
		;;
	*) # kill the server, then the client before the server is back
		end $server
		end "$client"
		client=
		restart
		replay
		;;
	esac
	compare
done
[ -z "$client" ] || end "$client"
client=
compare
[ "$last" -gt 0 ] || die "no call was processed"
echo "$life lives, $last calls (RP_SEED=$RP_SEED)"
