#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Implicit commit: writes of a program that requests no persistence are durable
# if the operator says so; otherwise they are ordinary writes. The flushes are
# slow enough to show an early completion.
set -u

dir=$(mktemp -d ./implicit_commit.XXXXXX) || exit 99
shm=$(mktemp -d /dev/shm/implicit_commit.XXXXXX 2>/dev/null) || shm=
trap 'rm -rf "$dir" $shm' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir RPMEM_FAULT=slow-flush RPMEM_FAULT_MS=60
failed=0 ok=0
run() {
	"$@" fabtests/functional/implicit_commit >"$dir/log" 2>&1 || failed=1
	grep '^\(not \)\?ok\|^#' "$dir/log"
	ok=$((ok + $(grep -c '^\(not \)\?ok' "$dir/log")))
}
# tells COUNT FILE WHAT: the last run warned COUNT times that writes to FILE are
# not made durable, because its class is too weak, and named the remedy.
tells() {
	local n
	n=$(grep 'writes to it are not made durable: class process, and power' \
		"$dir/log" | grep "file $2.* on tmpfs" |
		grep -c 'FI_OFI_RPMEM_CLASS=process where that is enough')
	ok=$((ok + 1))
	[ "$n" = "$1" ] && echo "ok - $3" && return
	echo "not ok - $3: $n warnings, not $1"
	failed=1
}

run env FI_OFI_RPMEM_COMMIT_WRITES=0
run env FI_OFI_RPMEM_COMMIT_WRITES=1 EXPECT_IMPLICIT=1 FI_LOG_LEVEL=warn
tells 0 '' "nothing is said of files that are persistent, nor of memory"
run env FI_OFI_RPMEM_COMMIT_WRITES=1 EXPECT_IMPLICIT=1 FI_OFI_RPMEM_INLINE=0 INJECT=1
if [ -n "$shm" ] && [ "$(stat -f -c %T "$shm")" = tmpfs ]; then
	run env FI_OFI_RPMEM_COMMIT_WRITES=1 FI_LOG_LEVEL=warn \
		RPMEM_POOL="$shm/window"
	tells 1 window "a file on tmpfs is ordinary, and the log says so"
fi
echo "1..$ok"
exit $failed
