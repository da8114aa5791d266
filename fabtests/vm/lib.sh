# SPDX-License-Identifier: BSD-2-Clause
# TAP for tests in a guest, on descriptor 3; sourced by guest.
# shellcheck shell=sh

number=0 failures=0
out=/tmp/out
# Seconds after which a test counts as hanging; the emulating machine may be
# busy. RPMEM_DEADLINE limits one case of a program.
deadline=900
export RPMEM_DEADLINE=600

report() { # ok|"not ok" NAME [anything: print no output]
	number=$((number + 1))
	echo "$1 $number - $2" >&3
	[ "$1" = ok ] && return
	failures=$((failures + 1))
	[ -z "$3" ] || return 1
	tail -25 $out | sed 's/^/# /' >&3
	return 1
}

plan() { echo "1..$number" >&3; }

note() { echo "# $(cut -d' ' -f1 /proc/uptime) $*" >&3; }

skip() { # NAME WHY
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2" >&3
}

# t NAME COMMAND...: report one test, which runs COMMAND
t() {
	name=$1
	shift
	timeout -k 1 $deadline "$@" >$out 2>&1 </dev/null
	code=$?
	[ $code = 0 ] && { report ok "$name"; return; }
	echo "exit status $code of: $*" >>$out
	report "not ok" "$name"
}

# fails NAME COMMAND...: COMMAND must fail, but not by a signal
fails() {
	name=$1
	shift
	timeout -k 1 $deadline "$@" >$out 2>&1 </dev/null
	code=$?
	[ $code != 0 ] && [ $code -lt 124 ] && { report ok "$name"; return; }
	echo "exit status $code of: $*" >>$out
	report "not ok" "$name"
}

# tap NAME COMMAND...: report each test in the output of COMMAND
tap() {
	name=$1
	shift
	timeout -k 1 $deadline "$@" >$out 2>&1 </dev/null
	code=$?
	bad=$(grep -c '^not ok ' $out)
	good=$(grep -c '^ok ' $out)
	grep -E '^(not )?ok ' $out >$out.lines
	while read -r line; do
		case $line in
		ok*' # SKIP '*)
			line=${line#* - }
			skip "$name: ${line%% # SKIP *}" "${line#* # SKIP }"
			;;
		ok*) report ok "$name: ${line#* - }" ;;
		*) report "not ok" "$name: ${line#* - }" quietly ;;
		esac
	done <$out.lines
	[ $code = 0 ] && [ "$bad" = 0 ] && [ "$good" -gt 0 ] && return
	echo "exit status $code of: $*" >>$out
	if [ "$bad" = 0 ]; then
		report "not ok" "$name: ends as it should"
	else
		grep -v '^ok ' $out | tail -40 | sed 's/^/# /' >&3
	fi
	return 1
}

# is NAME GOT WANTED: report one test, which compares two texts
is() {
	echo "'$2', not '$3'" >$out
	[ "$2" = "$3" ] && report ok "$1: $3" || report "not ok" "$1: $3"
}

# long NAME FUNCTION ARG...: like t, but in this shell and without a limit
long() {
	name=$1
	shift
	"$@" >$out 2>&1 && report ok "$name" || report "not ok" "$name"
}

# parameter NAME: print this parameter of the kernel's command line
parameter() {
	tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"
}

# rxe_netdev [ADDRESS]: print a network interface for an RDMA device without
# hardware: a dummy at 10.9.0.1, or the machine's own
rxe_netdev() {
	for m in ib_uverbs rdma_cm rdma_ucm rdma_rxe dummy virtio_net; do
		modprobe $m
	done
	[ $# -gt 0 ] || ip link add eth0 type dummy
	ip addr add "${1:-10.9.0.1}/24" dev eth0
	ip link set eth0 up
}

# board SIZE: print the path of the memory of this size that the host shares
board() {
	for d in /sys/bus/pci/devices/*; do
		[ "$(cat "$d/device")" = 0x1110 ] &&
			[ "$(stat -c %s "$d/resource2")" = "$1" ] || continue
		echo 1 >"$d/enable"
		echo "$d/resource2"
	done
}
