#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Scenarios of verdicts.tsv with what the verbs shim does in them: the valid ones
# survive, the forbidden ones are caught.
set -u -o pipefail
args=(--random 100000 --jobs 2)
if [ "${RP_LONG:-0}" = 1 ]; then
	args=(--random 5000000 --jobs "$(nproc)")
elif [ "${RP_SANITIZE:-}" = thread ]; then
	echo "1..0 # SKIP there is only one thread"
	exit 77
elif [ -n "${RP_SANITIZE:-}" ]; then
	args=(--quick --random 1000 --jobs 2)
fi
src=${srcdir:-.}/fabtests/fault
dir=$(mktemp -d ./crash.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
"$src/forbidden_pairs" "$src/verdicts.tsv" >"$dir/forbidden" || exit 99
fabtests/fault/crash_shim --tsv "$src/verdicts.tsv" \
	--forbidden "$dir/forbidden" --json "$dir/figures.json" \
	"${args[@]}" ${RP_SEED:+--seed "$RP_SEED"} || exit 1
cat "$dir/figures.json"
echo "# figures kept in $PWD/crash_shim.json"
mv "$dir/figures.json" crash_shim.json
