#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Tries every scenario of verdicts.tsv with every implemented method: valid
# methods keep all bytes, and forbidden methods are caught. The script
# forbidden_pairs lists the forbidden pairs, and shares no code with the matrix.
# crash_matrix.sh [PROGRAM [OPTION]...]; RP_CRASH_RANDOM: number of long random
# runs.
set -u -o pipefail
matrix=${1:-crash_matrix}
[ $# = 0 ] || shift
# Only a long run searches every pair exhaustively.
args=(--quick --random "${RP_CRASH_RANDOM:-20000}" --jobs 2)
if [ "${RP_LONG:-0}" = 1 ]; then
	args=(--all --random 5000000 --jobs "$(nproc)")
elif [ "${RP_SANITIZE:-}" = thread ]; then
	echo "1..0 # SKIP there is only one thread"
	exit 77
elif [ -n "${RP_SANITIZE:-}" ]; then
	args=(--quick --random 1000 --jobs 2)
fi
src=${srcdir:-.}/fabtests/fault
dir=$(mktemp -d ./crash.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/prov/pmsim/.libs/libpmsim-fi.so" \
	"$PWD/fabtests/fault/.libs/librpmem-sim-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir
# A search of nothing would pass.
for name in --cell --method; do
	said=$("fabtests/fault/$matrix" --tsv "$src/verdicts.tsv" $name none \
		2>&1) && said="status 0"
	case $said in "$name none: "*) ;; *)
		echo "$name none: $said"
		exit 1
		;;
	esac
done
"$src/forbidden_pairs" "$src/verdicts.tsv" >"$dir/forbidden" || exit 99
"fabtests/fault/$matrix" --tsv "$src/verdicts.tsv" \
	--forbidden "$dir/forbidden" --json "$dir/figures.json" \
	"$@" "${args[@]}" ${RP_SEED:+--seed "$RP_SEED"} || exit 1
cat "$dir/figures.json"
name=$matrix${1:+.${1#--}}${4:+.${4#--}}.json
echo "# figures kept in $PWD/$name"
mv "$dir/figures.json" "$name"
