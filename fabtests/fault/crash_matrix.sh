#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Every scenario of verdicts.tsv with every method that is built: the valid ones
# survive, the forbidden ones are caught. The list of forbidden ones is made by a
# script that shares nothing with the matrix.
set -u -o pipefail
random=100000
[ "${RP_LONG:-0}" != 1 ] || random=10000000
[ -z "${RP_SANITIZE:-}" ] || { random=200; quick=--quick; }
src=${srcdir:-.}/fabtests/fault
dir=$(mktemp -d ./crash.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/prov/pmsim/.libs/libpmsim-fi.so" \
	"$PWD/fabtests/fault/.libs/librpmem-sim-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir
python3 "$src/forbidden_pairs" "$src/verdicts.tsv" >"$dir/forbidden" || exit 99
# shellcheck disable=SC2086
fabtests/fault/crash_matrix --tsv "$src/verdicts.tsv" \
	--forbidden "$dir/forbidden" --json "$dir/figures.json" \
	--random $random --jobs 2 ${quick:-} ${RP_SEED:+--seed "$RP_SEED"} || exit 1
cat "$dir/figures.json"
