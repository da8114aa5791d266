#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The example kv_server over many incarnations: SIGKILL ends the client, or the
# server, or both. After a kill the server's ring becomes what msync had
# covered. Each acknowledged update is in the store exactly once, and a repeated
# read does not return later updates.
# usage: kv_lives.sh [KILLS]
set -u
kills=${1:-4}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-1000}
src=$(cd "${srcdir:-..}" && pwd)
dir=$(mktemp -d ./kvlives.XXXXXX) || exit 99
cd "$dir" || exit 99
. "$src/fabtests/fault/lives.sh"
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
cc=${CC:-cc}
client='' ring='' server=''
life=0 port=0 base=0 n=0 more=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

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
	echo "FAIL: $* (RP_SEED=$RP_SEED)"
	tail -n 5 server.out client.out
	exit 1
}

# serve [N K]: start the server, always on the same port; kv_kill.c ends it.
serve()
{
	: >server.out
	KV_KILL=${1:+$1 $2} RPMEM_SHADOW=${1:+$ring:vol.safe} \
		LD_PRELOAD="${1:+${RP_PRELOAD:-}$programs/libkv_kill.so:$programs/libshadow.so}" \
		./kv_server ./vol "$port" store >>server.out 2>&1 &
	server=$!
	await_port $server
}

# restart: kill the server, and start one that kills itself at a seeded reply.
# The first one does so after its reply to an add, which stays in its ring.
restart()
{
	end $server
	[ "$more" -lt 0 ] || cp vol.safe "$ring"
	below 40
	n=$((pick + 20))
	below 10
	more=$((pick + 4))
	[ $life -gt 0 ] || { more=-1 n=$((n / 4 * 4 + 1)); }
	serve $n $more || die "restart"
}

# await_kill: wait until the server has killed itself. Without acknowledgements
# the client may stop before reply N + K; restart then kills the server.
await_kill()
{
	for _ in $(seq 100); do
		case $(ps -o stat= -p $server) in Z* | '') return ;; esac
		sleep 0.01
	done
	echo "# the server stands still between replies $n and $((n + more))"
}

# ask WINDOW: as the client, send the lines of stdin after all earlier calls.
ask()
{
	timeout 60 ./kv_client "127.0.0.1:$port:vol" key "$1" 2>&1
}

# Step n is four lines. A crash repeats the get and the scan together with puts
# of later steps.
steps()
{
	awk -v n="$base" 'BEGIN {
		while (++n)
			print "add 1 1\nput 10 " n "\nget 10\nscan 10 1"
	}' | ./kv_client "127.0.0.1:$port:vol" key 16 >client.out 2>&1 &
	client=$!
}

# Compare each reply with that of a server that executes each call once, in
# order. Prints the number of the last step whose add was acknowledged.
judge()
{
	awk -v base="$base" '
	{
		n = base + int(($1 - 1) / 4) + 1
		kind = ($1 - 1) % 4
		want = kind == 0 ? " ok " n : kind == 1 ? " ok" : " ok 10=" n
	}
	$2 == "durable" && kind == 0 { acked = n }
	$2 != "durable" && $0 != $1 want {
		print "WRONG: " $0 ", not " $1 want
		exit
	}
	$2 != "durable" && $1 != ++replied {
		print "WRONG: reply " $1 " behind " replied - 1
		exit
	}
	END { print acked + 0 }' client.out
}

# compare: how far did the killed client get, and where does the next one begin?
compare()
{
	said=$(judge)
	case $said in *WRONG*) die "life $life: $said" ;; esac
	sum=$(echo "add 1 0" | ask 1) || die "life $life: $sum"
	sum=${sum#1 ok}
	sum=${sum# }
	[ "${sum:-0}" -ge "$said" ] ||
		die "life $life: update $said was acknowledged, the sum is $sum"
	[ "${sum:-0}" -ge "$base" ] || die "life $life: $base became $sum"
	base=${sum:-0}
}

: >client.out
for example in kv_server kv_client; do
	lib=
	[ $example = kv_client ] || lib=-llmdb
	if [ -n "$lib" ] && ! echo '#include <lmdb.h>' | $cc -E - >/dev/null 2>&1; then
		echo "SKIP: lmdb.h is missing: apt-get install liblmdb-dev"
		exit 77
	fi
	# shellcheck disable=SC2086 # flags are lists
	$cc ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" -o $example \
		"$src/docs/examples/$example.c" -L../util/.libs -lrpmem_rpc $lib ||
		die "$example does not compile"
done

if ! serve; then
	grep -q 'weaker than required\|durable' server.out || die "first start"
	server=
	echo "SKIP: $(tail -n 1 server.out)"
	exit 77
fi
seq 100 299 | sed 's/.*/insert & value&/' | ask 16 >load.out
[ "$(grep -c ' ok$' load.out)" = 200 ] || die "load: $(tail -n 1 load.out)"
end $server
# The client's id is in a superblock of its ring, after the pool's header.
for f in vol.?; do
	tail -c +65537 "$f" | head -c 4160 | grep -q key && ring=$f
done
[ -n "$ring" ] || die "no ring has the client's id"
cp "$ring" vol.safe
restart

while [ $life -lt "$kills" ] || [ -n "$client" ]; do
	life=$((life + 1))
	[ -n "$client" ] || steps
	await_kill
	below 4
	[ $life -ne 2 ] || pick=0
	case $pick in
	0 | 1) # kill only the server: the client continues
		restart
		continue
		;;
	2) # kill the client while the server is down
		end "$client"
		restart
		;;
	*) # kill the client while the server repeats calls, even at reply N
		restart
		end "$client"
		restart
		;;
	esac
	client=
	compare
done
: >client.out
compare
[ "$base" -gt 0 ] || die "no update was processed"
seq 100 299 | sed 's/.*/& value&/; s/ /=/' | tr '\n' ' ' | sed 's/^/1 ok /; s/ $//' >want
echo "scan 100 1000" | ask 1 | tr -d '\n' >have
cmp want have || die "the loaded keys differ"
lines=$(cat "$src"/docs/examples/kv* | wc -l)
[ "$lines" -le 500 ] || die "the example has $lines lines, at most 500"
echo "$life lives, $base counted updates (RP_SEED=$RP_SEED)"
