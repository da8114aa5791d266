# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by log_lives.sh, rpc_lives.sh and kv_lives.sh, which define die(), life
# and kills.
# crash_planted gives them a program with a planted bug (RP_PROGRAM), and the
# kind of all kills (RP_PICK).
random=
# The programs without libtool's wrapper scripts, because they start often.
programs=$PWD/../fabtests/fault/.libs
export LD_LIBRARY_PATH="$PWD/../util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# end PID...: kill them, in this order.
end()
{
	kill -9 "$@" 2>/dev/null
	wait "$@" 2>/dev/null
}

# await_port PID: set port to the number that the server printed to server.out.
await_port()
{
	for _ in $(seq 800); do
		grep -q '^port ' server.out && break
		kill -0 "$1" 2>/dev/null || return 1
		sleep 0.01
	done
	port=$(sed -n 's/^port //p' server.out)
	[ -n "$port" ]
}

# below N: set pick to the next pseudo-random number below N. RP_SEED is the
# seed. Not in a subshell, which would not advance the sequence.
below()
{
	random=$((((${random:-$RP_SEED} % 2147483648) * 1103515245 + 12345) % 2147483648))
	pick=$((random / 65536 % $1))
}

# progress: print the number of kills so far, every 500, for a run that is
# stopped.
progress()
{
	[ "$life" = 0 ] || [ $((life % 500)) != 0 ] || echo "# $life of $kills kills so far"
}

last_of()
{
	sed -n "s/^$1 //p" "$2" | tail -n 1
}

# await_lines FILE MOST PID...: wait until FILE has some more lines, at most
# MOST.
await_lines()
{
	file=$1
	below "$2"
	shift 2
	want=$(($(wc -l <"$file") + 1 + pick))
	for _ in $(seq 3000); do
		[ "$(wc -l <"$file")" -ge $want ] && return
		for pid in "$@"; do
			kill -0 "$pid" 2>/dev/null || die "process $pid ended"
		done
		sleep 0.03
	done
	die "$file does not grow"
}
