#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Messages, durable windows and direct commits in one MPI job. Its ranks are
# killed at random, in many jobs on the same pool files.
set -u -o pipefail

usage() {
	cat <<'U'
usage: kills.sh [--minutes N] [--seed N] [--ranks N] [--build DIR]

Starts a job of 4 ranks over tcp;ofi_rpmem (fabtests/integration/mixed.c), kills
one or more ranks by SIGKILL at a random moment, and starts it again on the same
files. After each life: mpirun has ended, no process and no file in /dev/shm is
left, nobody holds a pool, and all that was acknowledged in any life is in the
pools and in their shadows (what an msync has covered).

  --minutes N  go on for so long (default: 5); a fraction will do
  --seed N     which ranks, and when (default: from the clock; printed)
  --ranks N    2 to 8 (default: 4)
  --build DIR  a build of this project (default: the folder that it is run in)

The last line is "N passed, N failed, N skipped".
U
}

minutes=5 seed='' ranks=4 build=$PWD
while [ $# -gt 0 ]; do
	case $1 in
	--minutes) minutes=$2; shift ;;
	--seed) seed=$2; shift ;;
	--ranks) ranks=$2; shift ;;
	--build) build=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
seed=${seed:-$(date +%s)}
srcdir=$(cd "$(dirname "$0")/../.." && pwd)
# A private /dev/shm shows only what a job leaves there.
if [ -z "${RP_IN_NAMESPACE:-}" ] && [ "$(id -u)" = 0 ] &&
	unshare --mount true 2>/dev/null; then
	RP_IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" \
		--minutes "$minutes" --seed "$seed" --ranks "$ranks" \
		--build "$build"
fi
[ -z "${RP_IN_NAMESPACE:-}" ] || mount -t tmpfs shm /dev/shm || exit 99
cd "$build" || exit 99
skips() {
	echo "ok - kills # $*" # begins with SKIP
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}
# mpi.sh reports a missing prerequisite, and exits.
why=$(. "$srcdir/fabtests/integration/mpi.sh")
case $? in
0) ;;
77) skips "${why/SKIP:/SKIP}" ;;
*) exit 99 ;;
esac
# shellcheck source=fabtests/integration/mpi.sh
. "$srcdir/fabtests/integration/mpi.sh"
here=$PWD/${dir#./}
[ -e "$FI_PROVIDER_PATH/librpmem-fi.so" ] || { echo "$build is no build"; exit 99; }
# shellcheck disable=SC2046
mpicc -O2 -g -Wall -Wextra -Werror -I"$srcdir/include" -o "$here/mixed" \
	"$srcdir"/fabtests/integration/mixed*.c \
	$(pkg-config --cflags --libs libfabric) || exit 99
# shellcheck source=util/trust.sh
. "$srcdir/util/trust.sh"
trust_folder util/fi_rpmem_info "$here" >/dev/null || exit 99
# On a busy machine a slow rank is not a dead one: long timeouts.
export FI_OFI_RPMEM_TIMEOUT=30000 FI_OFI_RPMEM_COMMIT_WRITES=1
RANDOM=$((seed % 32768))
echo "# seed $seed, $ranks ranks, $minutes minutes"

# One pool for each rank, with the size from mixed.h.
for ((r = 0; r < ranks; r++)); do
	fallocate -l 4M "$here/pool.$r" || exit 99
done
# mpirun starts this command for each rank.
cat >"$here/rank" <<R
#!/bin/sh
r=\$OMPI_COMM_WORLD_RANK
export RPMEM_SHADOW="$here/pool.\$r:$here/shadow.\$r"
LD_PRELOAD="$PWD/fabtests/fault/.libs/libshadow.so" \\
	exec "$here/mixed" "$here" $seed "\$(cat "$here/life")"
R
chmod +x "$here/rank"
readme "$ranks" "$here/rank" >"$here/commands"
grep -q mpirun "$here/commands" || { echo "README.md has no commands"; exit 99; }

# However this script ends, it ends its job.
mpirun_pid=
end_job() {
	[ -z "$mpirun_pid" ] || kill -KILL "$mpirun_pid" 2>/dev/null
	for r in "$here"/pid.*; do
		[ ! -e "$r" ] || kill -KILL "$(cat "$r")" 2>/dev/null
	done
	rm -rf "$dir" "$mpi_tmp"
}
trap end_job EXIT
trap 'exit 130' INT TERM HUP

# until_within SECONDS COMMAND...: wait until COMMAND succeeds; 1 after SECONDS
until_within() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

# shellcheck disable=SC2317
all_run() {
	[ "$(find "$here" -name 'pid.*' -size +0 | wc -l)" = "$ranks" ] ||
		! kill -0 "$mpirun_pid" 2>/dev/null
}

# shellcheck disable=SC2317
job_gone() {
	local f

	! kill -0 "$mpirun_pid" 2>/dev/null || return
	for f in "$here"/pid.*; do
		[ ! -e "$f" ] || ! kill -0 "$(cat "$f")" 2>/dev/null || return
	done
}

# Print the processes that have a pool open or mapped.
holders() {
	local p

	for p in /proc/[0-9]*; do
		if grep -qF "$here/pool." "$p/maps" 2>/dev/null ||
			find "$p/fd" -lname "$here/pool.*" 2>/dev/null | grep -q .; then
			echo "${p#/proc/}"
		fi
	done
}

# left_over LIFE: print what a killed job has left, but must not leave
left_over() {
	local who files

	who=$(holders | tr '\n' ' ')
	[ -z "$who" ] || { echo "processes $who hold a pool"; return; }
	[ -n "${RP_IN_NAMESPACE:-}" ] || return
	files=$(find /dev/shm -mindepth 1 | tr "\n" " ")
	[ -z "$files" ] || echo "in /dev/shm: $files"
}

noted=0
# life: run one job and kill some of its ranks; print what went wrong
life() {
	local n ms victims='' i left said=$here/log

	echo $((lives + 1)) >"$here/life"
	rm -f "$here"/pid.*
	# Redirect all descriptors, so that the job holds none of this script's.
	bash "$here/commands" >"$said" 2>&1 </dev/null &
	mpirun_pid=$!
	if ! until_within 120 all_run; then
		echo "hangs before it works"
		return
	fi
	kill -0 $mpirun_pid 2>/dev/null || { echo "ended by itself"; return; }
	n=$((RANDOM % 4 ? 1 : 1 + RANDOM % ranks)) ms=$((200 + RANDOM % 4000))
	for ((i = 0; i < n; i++)); do
		victims="$victims $((RANDOM % ranks))"
	done
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
	how="after $ms ms: rank$victims"
	if grep -qE 'WRONG|a commit:' "$said"; then
		echo "something went wrong before anybody was killed"
		return
	fi
	kill -0 $mpirun_pid 2>/dev/null || { echo "ended by itself"; return; }
	for i in $victims; do
		kill -KILL "$(cat "$here/pid.$i")" 2>/dev/null
	done
	until_within 60 job_gone || { echo "hangs when a rank is gone"; return; }
	wait $mpirun_pid 2>/dev/null
	mpirun_pid=
	left=$(left_over)
	if [ -n "$left" ]; then
		echo "leaves something: $left"
		return
	fi
	for i in pool shadow; do
		"$here/mixed" verify "$here" $i >"$here/$i.said" ||
			{ echo "lost from the ${i}s: $(cat "$here/$i.said")"; return; }
	done
	n=$(sed 's/ .*//' "$here/pool.said")
	[ "$n" -gt "$noted" ] || { echo "nothing was acknowledged"; return; }
	noted=$n
}

lives=0
end=$(awk -v m="$minutes" -v now=$SECONDS 'BEGIN { print int(now + m * 60) }')
passed=0 failed=0
while [ $SECONDS -lt "$end" ] || [ $lives -lt 2 ]; do
	how='' wrong=$(mktemp) || exit 99
	life >"$wrong"
	lives=$((lives + 1))
	if [ -s "$wrong" ]; then
		failed=$((failed + 1))
		echo "not ok $lives - life $lives, $how: $(cat "$wrong")"
		grep -v '^libfabric:.*<info>' "$here/log" | tail -20 | sed 's/^/# /'
		rm -f "$wrong"
		# After a failure more jobs would prove nothing.
		break
	fi
	rm -f "$wrong"
	passed=$((passed + 1))
	echo "ok $lives - life $lives, $how: all there"
done
echo "# in $lives lives: $(cat "$here/pool.said" 2>/dev/null)"

# Negative control: without the flush the shadows lack acknowledged bytes.
if [ "$failed" = 0 ]; then
	mkdir "$here/fault"
	ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$here/fault/"
	export FI_PROVIDER_PATH=$here/fault RPMEM_FAULT=skip-flush
	how='' lives=$((lives + 1))
	life >"$here/wrong"
	if grep -q '^lost from the shadows' "$here/wrong"; then
		passed=$((passed + 1))
		echo "ok $lives - with the flush left out: $(cat "$here/wrong")"
	else
		failed=$((failed + 1))
		echo "not ok $lives - with the flush left out: $(cat "$here/wrong")"
	fi
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
