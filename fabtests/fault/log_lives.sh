#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_log over many incarnations: SIGKILL ends the writer, or fi_rpmemd, or
# both. After its kill fi_rpmemd's pool becomes what msync had covered. The log
# holds every acknowledged entry, and every entry that a reader saw as durable;
# the numbers have no gap. Another reader, which is started again with fi_rpmemd,
# follows the visible position: every entry below is there and whole, until the
# next writer opens the log, and not lost once it is durable. The pool has a second log, whose writer continues
# when only the first writer is killed. Each layout is a lane: the lanes run at
# the same time. RP_LANE=N runs one, with all kills.
# usage: log_lives.sh [KILLS]
set -u
kills=${1:-120}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-10000}
[ -z "${RP_SANITIZE:-}" ] || kills=8
src=$(cd "${srcdir:-..}" && pwd)
if [ -z "${RP_LANE:-}" ]; then
	. "$src/fabtests/fault/lanes.sh"
	run_lanes 4 "$kills"
	exit
fi
kills=${1:-$kills}
dir=$(mktemp -d ./loglives.XXXXXX) || exit 99
cd "$dir" || exit 99
. "$src/fabtests/fault/lives.sh"
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export RP_SEED
daemon= writer= reader= visible= other= failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
# Only the providers of this base can be used.
[ -z "${RP_BASE:-}" ] || export FI_PROVIDER="$RP_BASE,ofi_rpmem"
shadow=$programs/libshadow.so
log=${RP_PROGRAM:-$programs/log_writer}

finish()
{
	for pid in $daemon $writer $reader $visible $other; do
		kill -9 "$pid" 2>/dev/null
	done
	cd .. && rm -rf "$dir"
}
trap finish EXIT

die()
{
	echo "FAIL: $* (RP_LANE=$RP_LANE RP_SEED=$RP_SEED)"
	tail -n 20 daemon.out
	tail -n 5 writer.out other.out reader.out visible.out check.out
	exit 1
}

# check LOG FILE: does the log hold what FILE, its writer's output, reports?
# Sets last.
check()
{
	acked=$(last_of acked "$2")
	$log "$1" check >check.out 2>&1 || die "check of $1 failed"
	last=$(last_of last check.out)
	[ "$last" -ge "${acked:-0}" ] ||
		die "life $life, layout $layout, $1: $acked was acknowledged, $last is the last"
}

# serve: start the daemon, always on the same port.
serve()
{
	rm -f ready
	RPMEM_SHADOW=vol:vol.safe LD_PRELOAD="${RP_PRELOAD:-}$shadow" \
		../util/fi_rpmemd --base "${RP_BASE:-tcp}" --port "$port" --port-file ready vol \
		>>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 400); do
		[ -e ready ] && break
		kill -0 $daemon 2>/dev/null || die "fi_rpmemd ended"
		sleep 0.02
	done
	[ -e ready ] || die "fi_rpmemd is not ready"
	port=$(cat ready)
}

start_writer()
{
	$log "$where" append >>writer.out 2>&1 &
	writer=$!
}

# start_visible: start the reader of visible entries.
start_visible()
{
	$log "$where" visible >>visible.out 2>&1 &
	visible=$!
}

# end_visible: end it; a crash of the target may take visible entries away.
end_visible()
{
	end "$visible"
	visible=
	! grep -q 'WRONG\|log_writer: \(query\|read\)' visible.out ||
		die "life $life, layout $layout: the reader of visible entries"
}

: >daemon.out
: >check.out
: >visible.out
port=0
../util/fi_rpmemd --base "${RP_BASE:-tcp}" --port 0 --port-file ready --create 2M vol >daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -e ready ] && break
	kill -0 $daemon 2>/dev/null || die "fi_rpmemd ended"
	sleep 0.05
done
grep -q '^vol .* power ' daemon.out || {
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
kill $daemon && wait $daemon
cp vol empty

life=0 writers=0 targets=0 boths=0
layout=$RP_LANE
cp empty vol
cp empty vol.safe
serve
where=127.0.0.1:$port:vol@2/0
$log "$where" create $layout || die "create"
$log "${where%0}1" create $layout || die "create the other one"
: >writer.out
: >other.out
: >reader.out
$log "$where" follow >>reader.out 2>&1 &
reader=$!
until grep -q opened reader.out; do
	kill -0 $reader 2>/dev/null || die "the reader ended"
	sleep 0.02
done
start_visible
for _ in $(seq "$kills"); do
	progress
	life=$((life + 1))
	[ -n "$writer" ] || start_writer
	if [ -z "$other" ]; then
		$log "${where%0}1" append >>other.out 2>&1 &
		other=$!
		# An open fails if the target ends meanwhile.
		await_lines other.out 1 "$other"
	fi
	await_lines writer.out 100 "$writer" "$reader" "$visible" "$other"
	below 8
	pick=${RP_PICK:-$pick}
	case $pick in
	0 | 1 | 2 | 3) # kill only the writer
		writers=$((writers + 1))
		end "$writer"
		writer=
		await_lines other.out 1 "$other"
		;;
	4 | 5 | 6) # kill only the target: the writer continues
		targets=$((targets + 1))
		end_visible
		end $daemon
		cp vol.safe vol
		serve
		start_visible
		await_lines writer.out 100 "$writer" "$reader" "$other"
		continue
		;;
	*) # kill both; the target first: it executes nothing behind them
		boths=$((boths + 1))
		end_visible
		end "$daemon" "$writer" "$other"
		writer= other=
		cp vol.safe vol
		serve
		start_visible
		check "${where%0}1" other.out
		;;
	esac
	seen=$(last_of seen reader.out)
	kept=$(last_of seen visible.out)
	check "$where" writer.out
	[ "$last" -ge "${seen:-0}" ] && [ "$last" -ge "${kept:-0}" ] ||
		die "life $life, layout $layout: $seen and $kept were seen as durable, $last is the last"
done
# The entries are durable: the reader receives them even if it starts
# later.
for _ in $(seq 3000); do
	[ -z "$(last_of seen reader.out)" ] || break
	kill -0 "$reader" 2>/dev/null || die "the reader ended"
	sleep 0.02
done
[ -n "$(last_of seen reader.out)" ] || die "the reader saw nothing"
# While a writer appends, its newest entries are visible and not durable.
for _ in $(seq 3000); do
	! grep -q '^beyond' visible.out || break
	[ -n "$writer" ] || start_writer
	kill -0 "$visible" 2>/dev/null || break
	sleep 0.02
done
end_visible
grep -q '^beyond' visible.out || die "no entry was visible before it was durable"
[ -z "$writer" ] || end "$writer"
if [ -n "$other" ]; then
	await_lines other.out 1 "$other"
	end "$other"
	check "${where%0}1" other.out
fi
writer= other=
end "$reader"
end $daemon
echo "$life kills: $writers of the writer, $targets of the target, $boths of both" \
	"(RP_SEED=$RP_SEED)"
exit $failed
