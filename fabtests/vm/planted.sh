#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Negative control of the guest stage: a failing test, a guest that hangs, and a
# guest that dies.
#
# usage: planted.sh ARGUMENT-OF-guest.sh...
set -u

here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0

# planted NAME SUM TEXT LIMIT TESTS: run the stage, and check its report
planted() {
	local name=$1 sum=$2 text=$3 limit=$4

	echo "$5" >"$dir/tests.sh"
	shift 5
	"$here/guest.sh" "$@" --domain adr --limit "$limit" \
		--tests "$dir/tests.sh" >"$dir/out" 2>&1
	local code=$?
	if grep -q '^ok - .*# SKIP' "$dir/out"; then
		grep '# SKIP' "$dir/out"
		skipped=$((skipped + 1))
	elif [ $code = 1 ] && grep -qx "$sum" "$dir/out" &&
		grep -q "$text" "$dir/out"; then
		echo "ok - planted: $name"
		passed=$((passed + 1))
	else
		echo "not ok - planted: $name, exit status $code"
		sed 's/^/# /' "$dir/out"
		failed=$((failed + 1))
	fi
}

planted "a test that fails" "1 passed, 1 failed, 0 skipped" \
	"^not ok 2 - trixie adr: false" 300 '
t true true
t false false' "$@"
planted "a guest that hangs" "[01] passed, 1 failed, 0 skipped" \
	"silent for 40 s, killed" 40 '
t true true
sleep 1000' "$@"
planted "a guest that dies" "1 passed, 1 failed, 0 skipped" \
	"ended early" 300 '
t true true
echo c >/proc/sysrq-trigger' "$@"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
