#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# rpmem_lead with a real etcd: two leaders, the first of which is stopped until
# the second has the group; a member set changed by compare and swap; a member that
# is replaced; an etcd whose revisions begin again, and an etcd that has ended.
set -u
for tool in etcd etcdctl setsid; do
	command -v $tool >/dev/null || { echo "SKIP: no $tool: util/packages.sh"; exit 77; }
done
top=$PWD
dir=$(mktemp -d /tmp/lead.XXXXXX) || exit 99
pids= failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
finish()
{
	for pid in $pids; do
		kill -9 "-$pid" "$pid"
	done 2>/dev/null
	for f in "$dir"/*.tree; do
		kill -9 $(cat "$f")
	done 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT
trap "exit 1" INT TERM
fail()
{
	echo "FAIL: $*"
	failed=1
}
# until_true WHAT COMMAND...: repeat the command until it succeeds
until_true()
{
	what=$1
	shift
	for _ in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.05
	done
	fail "not: $what: $(cat "$dir"/*.out "$dir"/*.err)"
	exit 1
}
start_etcd()
{
	port=$(python3 -c 'import socket
a = [socket.socket() for _ in "12"]
[s.bind(("127.0.0.1", 0)) for s in a]
print(*(s.getsockname()[1] for s in a))')
	url=http://127.0.0.1:${port% *}
	etcd --data-dir "$dir/$1" --listen-client-urls "$url" --log-level error \
		--advertise-client-urls "$url" \
		--listen-peer-urls "http://127.0.0.1:${port#* }" >"$dir/$1.log" 2>&1 &
	etcd=$!
	pids="$pids $etcd"
	export ETCDCTL_ENDPOINTS="$url"
	until_true "etcd" "$lead" get x
}
# lead_with CLIENT: start a leader; input from CLIENT.in, output to CLIENT.out
lead_with()
{
	mkfifo "$dir/$1.in"
	setsid "$lead" run --ttl 2 db -- sh -c '
		echo "$RPMEM_GROUP" >"$1.group"
		exec "$2" "$RPMEM_GROUP" take <"$1.in" >"$1.out"' - "$dir/$1" \
		"$top/fabtests/functional/group_client" >"$dir/$1.err" 2>&1 &
	eval "$1=$!"
	pids="$pids $!"
}
says()
{
	until_true "$1 says $2" \
		grep -q "^$2" "$dir/$1.out"
}
# tree PID: print the process and all its descendants
tree()
{
	echo "$1"
	for child in $(ps -o pid= --ppid "$1"); do
		tree "$child"
	done
}

lead=$top/util/rpmem_lead
start_etcd first
# daemon NAME: start it, with a pool of this name; its process is $daemon, its
# pool $place.
daemon()
{
	util/fi_rpmemd --create 1M --port 0 --port-file "$dir/port.$1" "$dir/$1" \
		>"$dir/log.$1" 2>&1 &
	daemon=$!
	pids="$pids $daemon"
	until_true "a daemon" test -s "$dir/port.$1"
	place=127.0.0.1:$(cat "$dir/port.$1"):$1
}
G=
for f in a b c; do
	daemon $f
	G=$G,$place
done
G=${G#,}
"$lead" run db -- true 2>/dev/null && fail "a group that is not set"
"$lead" set db "$G;k=1" || fail "set"
"$lead" set db "$G;k=2" 2>"$dir/err" && fail "set twice"
grep -q "db is '$G;k=1'" "$dir/err" || fail "$(cat "$dir/err")"
"$lead" set db "$G;k=2" "$G;k=3" 2>/dev/null && fail "set in place of another"
"$lead" set db "$G;k=2" "$G;k=1" || fail "a swap"
# The second branch of a transaction is executed when WAS is not the group.
"$lead" set db "$G;k=3" 'x"

put "/rpmem/x" "y' 2>"$dir/err" && fail "set in place of no group"
grep -q "is no group of pools" "$dir/err" || fail "$(cat "$dir/err")"
[ "$("$lead" get db)" = "$G;k=2" ] || fail "get"
ETCDCTL_ENDPOINTS=http://127.0.0.1:1 timeout 60 "$lead" set db "$G;k=1" "$G;k=2" \
	2>"$dir/err" && fail "set without etcd"
grep -q "etcd has not set it" "$dir/err" || fail "without etcd: $(cat "$dir/err")"

# The first leader is stopped; the second one gets the lock and the group.
lead_with one
exec 5>"$dir/one.in"
says one "0 open"
echo "d 8 first" >&5
says one "0 ok"
tree $one >"$dir/one.tree"
kill -STOP $(cat "$dir/one.tree")
lead_with two
exec 6>"$dir/two.in"
says two "0 open"
[ "$(sed 's/.*epoch=//' "$dir/two.group")" -gt \
	"$(sed 's/.*epoch=//' "$dir/one.group")" ] || fail "the epoch did not grow"
echo "d 8 second" >&6
says two "0 ok"
for i in 1 2 3 4 5; do
	echo "d 8 stale$i" >&5
done
kill -CONT $(cat "$dir/one.tree")
wait $one
[ $? = 124 ] || fail "the leader that lost the lock: $(cat "$dir/one.err")"
grep -q "the lock is lost: another leader may have it" "$dir/one.err" ||
	fail "not told: $(cat "$dir/one.err")"
# The old leader ends before it reads these lines, or each of them fails.
[ "$(grep -c "^0 ok" "$dir/one.out")" = 1 ] || fail "a stale write: $(cat "$dir/one.out")"
exec 5>&-
echo "r 8 6" >&6
says two "0 second"

# A leader that is ended releases the lock.
kill $two
wait $two
exec 6>&-

# A leader ends the process group of its command, not only the command.
"$lead" run db -- sh -c 'sleep 1000 & echo $! >"$1.new"; mv "$1.new" "$1"; wait' - \
	"$dir/child" 2>/dev/null &
lead_pid=$!
pids="$pids $lead_pid"
until_true "a child" test -s "$dir/child"
kill $lead_pid
wait $lead_pid
case $(ps -o stat= -p "$(cat "$dir/child")") in
[!Z]*) fail "a child outlives its leader" ;;
esac

# SIGTERM reaches a leader just before it knows the process of its command.
cat >"$dir/late.env" <<'E'
set -T
trap '[ "$BASH_COMMAND" != "pid=\$!" ] || kill -TERM $$' DEBUG
E
BASH_ENV=$dir/late.env timeout 20 "$lead" run db -- sleep 1000 2>"$dir/err"
[ $? = 143 ] || fail "a SIGTERM is lost: $(cat "$dir/err")"

# SIGTERM reaches a leader that has just got the lock: no command is started.
cat >"$dir/early.env" <<'E'
set -T
trap 'case $BASH_COMMAND in
"echo \$\$ >"*)
	trap - DEBUG
	echo $$ >"$F.inside"
	until [ -e "$F.ended" ]; do sleep 0.05; done ;;
esac' DEBUG
E
F=$dir/early BASH_ENV=$dir/early.env "$lead" run --ttl 2 db -- sh -c ': >"$F.ran"' \
	2>"$dir/err" &
lead_pid=$!
pids="$pids $lead_pid"
until_true "a lock" test -s "$dir/early.inside"
kill $lead_pid
wait $lead_pid
[ $? = 125 ] || fail "ended before the command: $(cat "$dir/err")"
: >"$dir/early.ended"
inside=$(cat "$dir/early.inside")
until_true "the end of what had the lock" sh -c "! kill -0 $inside"
[ -e "$dir/early.ran" ] && fail "the command was started without a leader"

# A leader inside a leader has its own lock.
"$lead" set db2 "$G;k=2" || fail "set of another group"
said=$("$lead" run db -- "$lead" run db2 -- sh -c 'echo "$ETCD_LOCK_KEY"')
case $said in
/rpmem-lock/db2/*) ;;
*) fail "the inner leader has the lock '$said'" ;;
esac

# A member is replaced in an epoch of etcd, which is above the base. A
# leader that follows has a later one.
last=$place
daemon d
"$lead" set db "$G;k=2;epoch=5000" "$G;k=2" || fail "set with a base"
"$lead" replace db "$last" "$place" >"$dir/said" 2>"$dir/err" ||
	fail "replace: $(cat "$dir/err")"
G=${G%"$last"}$place
[ "$(cat "$dir/said")" = "$G;k=2;epoch=5000" ] || fail "$(cat "$dir/said")"
[ "$("$lead" get db)" = "$G;k=2;epoch=5000" ] || fail "replace in etcd"
[ "$(util/fi_rpmem_group status --json "$G;k=2" |
	sed -n 's/.*"epoch": \([0-9]*\).*/\1/p' | sort -un | head -1)" -gt 5000 ] ||
	fail "the epoch of replace: $(util/fi_rpmem_group status "$G;k=2")"
"$lead" run db -- sh -c '"$1" "$RPMEM_GROUP" take </dev/null' - \
	fabtests/functional/group_client >"$dir/err" || fail "$(cat "$dir/err")"
"$lead" replace db "$last" "$place" 2>"$dir/err"
[ $? = 2 ] || fail "replace of no member"
grep -q "$last is no member of" "$dir/err" || fail "$(cat "$dir/err")"
# The group is changed in etcd while a member is replaced.
last=$place
daemon e
kill -STOP $daemon
"$lead" replace db "$last" "$place" 2>"$dir/err" &
replacing=$!
pids="$pids $replacing"
until_true "a replacement" pgrep -f "fi_rpmem_group replace .*$place"
"$lead" set db "$G;k=2;epoch=6000" "$G;k=2;epoch=5000" || fail "set meanwhile"
kill -CONT $daemon
wait $replacing
[ $? = 125 ] || fail "a lost compare-and-swap: $(cat "$dir/err")"
G=${G%"$last"}$place
grep -q "does not have the new group: $G;k=2;epoch=5000" "$dir/err" ||
	fail "$(cat "$dir/err")"
"$lead" get db | grep -q "$last;k=2;epoch=6000" || fail "$("$lead" get db)"
# The same command changes the name in etcd: the member is filled already.
"$lead" replace db "$last" "$place" >"$dir/said" 2>"$dir/err" ||
	fail "replace again: $(cat "$dir/err")"
[ "$("$lead" get db)" = "$G;k=2;epoch=6000" ] || fail "$("$lead" get db)"

# The revisions of etcd begin again.
kill -9 $etcd
start_etcd empty
"$lead" set db "$G;k=2"
"$lead" run db -- sh -c '"$1" "$RPMEM_GROUP" take </dev/null' - \
	fabtests/functional/group_client >"$dir/err" && fail "an old epoch opens"
M=$(sed -n 's/.*has epoch \([0-9]*\), and this writer was given.*/\1/p' "$dir/err")
[ -n "$M" ] || fail "no epoch in: $(cat "$dir/err")"
"$lead" set db "$G;k=2;epoch=$M" "$G;k=2" || fail "set with a base"
"$lead" run db -- sh -c '"$1" "$RPMEM_GROUP" take </dev/null' - \
	fabtests/functional/group_client >"$dir/err" || fail "the remedy: $(cat "$dir/err")"

# Without etcd there is no leader.
"$lead" run --ttl 2 db -- sh -c 'echo "$$" >"$1"; exec sleep 60' - "$dir/pid" \
	2>"$dir/err" &
lead_pid=$!
pids="$pids $lead_pid"
until_true "a leader" test -s "$dir/pid"
kill -9 $etcd
wait $lead_pid
[ $? = 124 ] || fail "a leader without etcd"
grep -q "etcd has not replied for 2 s" "$dir/err" || fail "$(cat "$dir/err")"
exit $failed
