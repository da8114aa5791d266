# SPDX-License-Identifier: BSD-2-Clause
# A log in a pool of fi_rpmemd, calls of librpmem_rpc, and a revoked key, over
# verbs on one rxe device; sourced by tests.sh. The pools are on tmpfs, because
# the kernel lets rxe register no file of another file system.

pools=/mnt/pools
mkdir -p $pools
mount -t tmpfs pools $pools
for s in app ops; do
	(umask 077 && head -c 32 /dev/urandom | base64 >$pools/$s.secret)
done
cat >$pools/conf <<'END'
listen = 10.9.0.1
base = verbs
[secret app]
file = app.secret
[secret ops]
file = ops.secret
[pool vol]
path = vol
create = 2M
admin = ops
 app
END
# Without a fence the agent orders the device's writes.
printf '%s\n' '[host]' 'assert placement = dma-memory' 'assert fence = no' \
	>/tmp/no-fence
no_fence=FI_OFI_RPMEM_OPERATOR=/tmp/no-fence
over="env -C $pools RP_BASE=verbs RP_ADDRESS=10.9.0.1 RP_SECRET=app.secret
	RP_CLASS=process FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4"

# Targets and clients: each function replaces its shell.
# shellcheck disable=SC2086
{
	daemon() { exec $over "$@" "$here/util/fi_rpmemd" --config conf --port-file port; }
	server() { exec $over "$@" "$here/fabtests/fault/rpc_peer" serve ./ring 18621 state; }
	log() { exec $over "$here/fabtests/fault/log_writer" 10.9.0.1:vol "$@"; }
	calls() { exec $over "$here/fabtests/fault/rpc_peer" "$1" 10.9.0.1:18621:ring key; }
}

# start TARGET [VARIABLE]: start it, and wait until it serves; its pid in $target
start() {
	rm -f $pools/port
	: >$pools/target
	"$@" >>$pools/target 2>&1 &
	target=$!
	until [ -e $pools/port ] || grep -q '^port ' $pools/target; do
		kill -0 $target || return
		sleep 0.1
	done
}

end() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null
}

acks() { sed -n 's/^acked //p' $pools/client | tail -n 1; }

# more: wait for 20 more acknowledgements of the client
more() {
	enough=$(($(acks) + 20))
	until [ "$(acks)" -ge $enough ] 2>/dev/null; do
		{ kill -0 $client && kill -0 $target; } || return
		sleep 0.1
	done
}

# lives TARGET CLIENT COMMAND: kill the target under the client's COMMAND, and
# start it again without a fence. The client goes on, and is killed. Its check
# then finds what was acknowledged.
lives() {
	: >$pools/check
	"$2" "$3" >$pools/client 2>&1 &
	client=$!
	more || return
	end $target
	start "$1" $no_fence && more || return
	end $client
	("$2" check) >$pools/check && [ "$(acks)" -le \
		"$(sed -n 's/^\(last\|resume\) //p' $pools/check)" ]
}

# over_restart NAME TARGET CLIENT COMMAND: test both incarnations of the target
over_restart() {
	long "verbs, $1 over a restart" lives "$2" "$3" "$4" ||
		tail -q -n 9 $pools/target $pools/client $pools/check |
		sed 's/^/# /' >&3
	is "verbs, $1 behind it" "$(tail -n 1 $pools/check)" \
		"process by agent-sfence"
}

note "pools over verbs"
long "verbs, fi_rpmemd" start daemon
long "verbs, a log is created" eval '(log create 0)'
is "verbs, the pool" "$(awk '$1 == "vol" { print $4, $5 }' $pools/target)" \
	"process delivery"
over_restart "a log" daemon log append

# The daemon forgets the secret of a client that has a connection.
mkfifo $pools/go
{
	until grep -q 'has the key' $out; do
		sleep 0.1
	done
	sed -i /app/d $pools/conf
	kill -HUP $target
	until grep -q SIGHUP: $pools/target; do
		sleep 0.1
	done
	echo
} >$pools/go &
revocation=$!
# shellcheck disable=SC2086
tap "verbs, a revoked key" $over sh -c 'exec "$@" <go' sh \
	"$here/fabtests/vm/bare_key" 10.9.0.1:vol app.secret ops.secret rxe0
kill $revocation 2>/dev/null
end $target

long "verbs, a server of calls" start server
over_restart "calls" server calls call
end $target
