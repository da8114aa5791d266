#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command on one machine at a time, as the writer of a group of pools whose
# members and epoch come from etcd.
set -u

usage() {
	cat <<'U'
usage: rpmem_lead run [--ttl SECONDS] NAME -- COMMAND [ARG...]
       rpmem_lead replace [--ttl SECONDS] [--secret FILE] NAME MEMBER NEW
       rpmem_lead set NAME GROUP [WAS]
       rpmem_lead get NAME

run waits for the lock of NAME in etcd, and runs COMMAND with RPMEM_GROUP: the
group of pools of NAME and a new epoch, as rpmem_pool_open(3) takes them. When the
lock is lost COMMAND gets SIGTERM; then its process group gets SIGTERM, and SIGKILL
after 10 seconds. Returns the exit status of COMMAND, 124 when the lock was lost, 125
for other failures.

replace waits for the lock, puts the empty pool NEW in the place of MEMBER by
fi_rpmem_group(1), and writes the group's new name to etcd.

set writes the group of pools of NAME: a new one, or in place of WAS. get prints it.

etcdctl 3.4 is used, with its variables ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, and so on.
U
}

die() { echo "rpmem_lead: $*" >&2; exit 125; }

export ETCDCTL_API=3
grace=10 # seconds between SIGTERM and SIGKILL

# --command-timeout has no effect on transactions of etcdctl 3.4, which wait for etcd
# for ever.
ask() { timeout -k 1 10 etcdctl --dial-timeout 2s --command-timeout 3s "$@"; }

get_group() { ask get --print-value-only "/rpmem/$1"; }

set_group() {
	local was said

	# Quotes would end the strings of the transaction, and newlines its parts.
	for said in "$2" "$3"; do
		case $said in
		*[\"\\]* | *$'\n'* | *[![:print:]]*)
			die "'$said' is no group of pools" ;;
		esac
	done
	case $2 in
	*:*,*:*) ;;
	*) die "'$2' is no group of pools; give HOST:POOL,HOST:POOL,...;k=N" ;;
	esac
	was="mod(\"/rpmem/$1\") = \"0\""
	[ -z "$3" ] || was="value(\"/rpmem/$1\") = \"$3\""
	said=$(printf '%s\n\nput "/rpmem/%s" "%s"\n\n\n' "$was" "$1" "$2" | ask txn) ||
		die "etcd has not set it"
	[ "${said%%$'\n'*}" = SUCCESS ] ||
		die "nothing is changed: $1 is '$(get_group "$1")'; give that as WAS"
}

# split_base VALUE: split the value of etcd's key into $group and $base, the number
# in ";epoch=" or 0. Epochs are $base plus a revision of etcd: a restored etcd counts
# revisions anew, and a larger base keeps epochs growing.
split_base() {
	group=$1 base=0
	if [[ $1 =~ \;epoch=([0-9]+) ]]; then
		base=${BASH_REMATCH[1]}
		group=${1/"${BASH_REMATCH[0]}"/}
	fi
}

# replaced NAME MEMBER NEW [OPTION...]: the command that `replace` lets run() run,
# with the lock taken.
replaced() {
	local name=$1 member=$2 new=$3 was=$RPMEM_LEAD_WAS base group tool

	shift 3
	tool=$(dirname "$self")/fi_rpmem_group
	[ -x "$tool" ] || tool=fi_rpmem_group
	group=$("$tool" replace "$@" "$RPMEM_GROUP" "$member" "$new") || exit
	split_base "$group"
	new=$group
	split_base "$was"
	[ "$base" = 0 ] || new="$new;epoch=$base"
	(set_group "$name" "$new" "$was") ||
		die "$member is replaced, and etcd does not have the new group: $new"
	echo "$new"
}

now() {
	local up

	read -r up _ </proc/uptime
	echo "${up%.*}"
}

# lock_revision: print the create revision of the lock's key, or nothing if the key
# was removed. Keys get the lock in the order of these revisions. ETCD_LOCK_REV does
# not do: it is a later revision, by which a suspended machine may have lost its key.
lock_revision() {
	local said

	said=$(ask get -w fields "$ETCD_LOCK_KEY") &&
		sed -n 's/^"CreateRevision" : //p' <<<"$said"
}

# watch_lock TTL REVISION PID: end the command PID when the lock is lost, or when
# etcd has not confirmed the lock for TTL seconds.
watch_lock() {
	local seen begun said why=

	seen=$(now)
	while [ -z "$why" ]; do
		sleep "$([ "$1" -lt 4 ] && echo 0.2 || echo 1)"
		begun=$(now)
		if said=$(lock_revision 2>/dev/null); then
			seen=$begun
			[ "$said" = "$2" ] || why="another leader may have it"
		elif [ $(($(now) - seen)) -ge "$1" ]; then
			why="etcd has not replied for $1 s"
		fi
	done
	echo "rpmem_lead: the lock is lost: $why; ending the command" >&2
	: >"$RPMEM_LEAD/lost"
	end_command "$3"
}

# end_command PID: end the command, and what it leaves in its process group: the lock
# must not be released while a child goes on writing.
end_command() {
	local rest=

	kill -TERM "$1" 2>/dev/null
	for _ in $(seq $((grace * 10))); do
		if ! kill -0 "$1" 2>/dev/null; then
			kill -0 -- "-$1" 2>/dev/null || return
			[ -n "$rest" ] || kill -TERM -- "-$1" 2>/dev/null
			rest=1
		fi
		sleep 0.1
	done
	kill -KILL -- "-$1" 2>/dev/null
}

# inside NAME TTL PID COMMAND...: run COMMAND, as a child of etcdctl, which has taken
# the lock; then send SIGUSR1 to PID, which is run().
inside() {
	local name=$1 ttl=$2 outside=$3 stop= group base pid revision watch ending status

	shift 3
	exec 2>&3 3>&-
	trap 'stop=1; [ -z "${pid-}" ] || { end_command "$pid" & ending=$!; }' TERM INT
	# This mkdir or that of end_lock decides: the one that comes first.
	echo $$ >"$RPMEM_LEAD/pid" && mkdir "$RPMEM_LEAD/decided" 2>/dev/null ||
		die "ended before the command was started"
	revision=$(lock_revision) || die "etcd does not reply"
	RPMEM_LEAD_WAS=$(get_group "$name") || die "etcd does not reply"
	export RPMEM_LEAD_WAS
	[ -n "$revision" ] || die "the lock was lost before the command was started"
	split_base "$RPMEM_LEAD_WAS"
	export RPMEM_GROUP="$group;epoch=$((base + revision))"
	[ -z "$stop" ] || exit 125
	setsid "$@" <&0 &
	pid=$!
	# A signal that came before $pid was set has not ended the command.
	[ -z "$stop" ] || { end_command "$pid" & ending=$!; }
	watch_lock "$ttl" "$revision" $pid </dev/null >/dev/null &
	watch=$!
	while kill -0 $pid 2>/dev/null; do
		wait $pid 2>/dev/null
	done
	# Get the exit status: a signal may have interrupted the wait of the loop.
	wait $pid 2>/dev/null
	status=$?
	[ -e "$RPMEM_LEAD/lost" ] && status=124 ending=$watch
	while [ -n "${ending-}" ] && kill -0 "$ending" 2>/dev/null; do
		wait "$ending" 2>/dev/null
	done
	kill $watch 2>/dev/null
	echo $status >"$RPMEM_LEAD/status.new"
	mv "$RPMEM_LEAD/status.new" "$RPMEM_LEAD/status"
	kill -USR1 "$outside"
}

# end_lock PID: end inside(), which ends its command; or etcdctl, the process PID, if
# inside() has not begun. That must then start no command, even if it has the lock.
end_lock() {
	if mkdir "$RPMEM_LEAD/decided" 2>/dev/null; then
		kill -9 "$1"
	else
		kill "$(cat "$RPMEM_LEAD/pid" 2>/dev/null)" 2>/dev/null || kill -9 "$1"
	fi
}

run() {
	local name=$1 ttl=$2 lock= stop=

	shift 2
	[ -n "$(get_group "$name")" ] ||
		die "no group of pools in etcd's key /rpmem/$name; use: rpmem_lead set"
	RPMEM_LEAD=$(mktemp -d) || die "no folder"
	export RPMEM_LEAD
	trap 'rm -rf "$RPMEM_LEAD"' EXIT
	trap 'stop=1; [ -z "$lock" ] || end_lock $lock' TERM INT
	trap : USR1 # USR1 ends a wait
	# etcdctl keeps variables that it finds: those of a leader around this one.
	unset ETCD_LOCK_KEY ETCD_LOCK_REV
	setsid etcdctl lock --ttl "$ttl" "/rpmem-lock/$name" -- bash "$self" inside \
		"$name" "$ttl" $$ "$@" <&0 3>&2 2>"$RPMEM_LEAD/said" &
	lock=$!
	[ -z "$stop" ] || end_lock $lock
	while kill -0 $lock 2>/dev/null && [ ! -e "$RPMEM_LEAD/status" ]; do
		wait $lock 2>/dev/null
	done
	# Give etcdctl 3 seconds to release the lock. Without etcd it hangs: then the
	# lock expires.
	for _ in $(seq 30); do
		kill -0 $lock 2>/dev/null || break
		sleep 0.1
	done
	kill -9 $lock 2>/dev/null && wait $lock 2>/dev/null
	[ -e "$RPMEM_LEAD/status" ] || die "$(cat "$RPMEM_LEAD/said")"
	exit "$(cat "$RPMEM_LEAD/status")"
}

# Take the options that run and replace have, and leave the other words in $args.
options() {
	while :; do
		case ${1-} in
		--ttl) ttl=${2-} ;;
		--secret) [ "$how" = replace ] || break; secret=${2-} ;;
		*) break ;;
		esac
		shift $(($# > 1 ? 2 : 1))
	done
	args=("$@")
}

misused() { usage >&2; exit 125; }

command -v etcdctl >/dev/null || die "no etcdctl; on Debian: apt-get install etcd-client"
self=$(realpath "$0")
how=${1-} ttl=10 secret=
[ $# -eq 0 ] || shift
case $how in
-h | --help) usage; exit 0 ;;
inside) inside "$@"; exit ;;
replaced) replaced "$@"; exit ;;
run | replace) options "$@"; set -- "${args[@]}" ;;
esac
case $how in
run) [ "${2-}" = -- ] || misused; [ $# -ge 3 ] || misused ;;
replace) [ $# = 3 ] || misused ;;
set) [ $# = 2 ] || [ $# = 3 ] || misused ;;
get) [ $# = 1 ] || misused ;;
*) misused ;;
esac
case ${1-} in
'' | *[!A-Za-z0-9._-]*) die "'${1-}' is no name; use letters, digits, and . _ -" ;;
esac
case $ttl in
'' | 0* | *[!0-9]*) die "--ttl '$ttl' is no number of seconds" ;;
esac
case $how in
run) name=$1; shift 2; run "$name" "$ttl" "$@" ;;
replace)
	run "$1" "$ttl" bash "$self" replaced "$@" -q ${secret:+--secret "$secret"}
	;;
set) set_group "$1" "$2" "${3-}" ;;
get) get_group "$1" ;;
esac
