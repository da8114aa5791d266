#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Writes of a program that does not ask: durable when the operator says so, with
# flushes slow enough for a completion that is early to be seen; else ordinary.
set -u

dir=$(mktemp -d ./unasked.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir RPMEM_FAULT=slow-flush RPMEM_FAULT_MS=60
failed=0 ok=0
run() {
	"$@" fabtests/functional/unasked >"$dir/log" 2>&1 || failed=1
	grep -v '^1\.\.' "$dir/log"
	ok=$((ok + $(grep -c '^\(not \)\?ok' "$dir/log")))
}
run env FI_OFI_RPMEM_COMMIT_WRITES=0
run env FI_OFI_RPMEM_COMMIT_WRITES=1 EXPECT_ASKED=1
run env FI_OFI_RPMEM_COMMIT_WRITES=1 EXPECT_ASKED=1 FI_OFI_RPMEM_INLINE=0
echo "1..$ok"
exit $failed
