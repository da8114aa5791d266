# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
# Sourced by log_lives.sh and rpc_lives.sh.

# run_lanes N KILLS: run this script N times at one time, with RP_LANE from 0 to
# N - 1, a seed of its own, and KILLS / N kills each; print its output behind
# "lane I: ". Most of the time of a kill is spent waiting. Returns 0 if all
# lanes pass, 77 if one is skipped, or 1.
run_lanes()
{
	lanes=$(mktemp -d ./lanes.XXXXXX) || return 99
	RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
	lane=0 pids=
	while [ $lane -lt "$1" ]; do
		{
			RP_LANE=$lane RP_SEED=$((RP_SEED + lane)) \
				"$0" $((($2 + $1 - 1) / $1)) 2>&1
			echo $? >"$lanes/$lane"
		} | sed -u "s/^/lane $lane: /" &
		pids="$pids $!"
		lane=$((lane + 1))
	done
	# shellcheck disable=SC2086
	wait $pids
	bad=$(cat "$lanes"/* | grep -cvx 0)
	skips=$(cat "$lanes"/* | grep -cx 77)
	ended=$(cat "$lanes"/* | grep -c .)
	rm -rf "$lanes"
	[ "$ended" = "$1" ] && [ "$bad" = "$skips" ] || return 1
	[ "$skips" = 0 ] || return 77
}
