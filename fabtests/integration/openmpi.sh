#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Open MPI over the provider, with the commands of the README: messages and
# windows of 2 to 4 ranks, and the proof that they use the provider.
set -u

# shellcheck source=fabtests/integration/mpi.sh
. "${srcdir:-.}/fabtests/integration/mpi.sh"
mpi_compile pt2pt
mpi_compile onesided
[ -n "$(readme 2 x)" ] || { echo "not ok 1 - README.md has no commands"; exit 1; }

# run PROGRAM RANKS TESTS: TESTS tests must run, each ok, over the provider's
# domains.
run() {
	local log="$dir/$1.$2" ret line n

	readme "$2" "$dir/$1" >"$dir/commands"
	timeout 120 bash "$dir/commands" >"$log" 2>&1 </dev/null
	ret=$?
	while read -r line; do
		case $line in
		"ok - "*) ok "${line#ok - }" ;;
		*) not_ok "${line#not ok - }" ;;
		esac
	done < <(grep -E '^(not )?ok - ' "$log")
	n=$(grep -c '^ok - ' "$log")
	if [ $ret = 0 ] && [ "$n" = "$3" ]; then
		ok "$1 on $2 ranks ends"
	else
		not_ok "$1 on $2 ranks: $n of $3, exit code $ret"
		grep -v '^libfabric:.*<info>' "$log" | tail -20
	fi
	n=$(both_domains "$log")
	if [ "$n" = "$2" ]; then
		ok "$1 on $2 ranks: messages and windows are the provider's"
	else
		not_ok "$1: $n of $2 ranks have both domains of the provider's"
	fi
}

for ranks in 2 4; do
	run pt2pt $ranks 11
	run onesided $ranks 22
done

# No other transport was available.
readme 2 "$dir/pt2pt" >"$dir/commands"
if FI_PROVIDER_PATH=/nowhere timeout 60 bash "$dir/commands" \
	>"$dir/without" 2>&1 </dev/null; then
	not_ok "without the provider something else is used"
else
	ok "without the provider the job ends"
fi
echo "1..$mpi_count"
exit $mpi_failed
