# SPDX-License-Identifier: BSD-2-Clause
# Counts results of automake tests; sourced by check.sh and platform/tests.sh.
# shellcheck shell=bash disable=SC2034

# tally NAME: count the results in NAME.trs and NAME.log: passed in $p, failed
# in $f, skipped in $s. Criterion and TAP programs report each test; any other
# program counts as one.
tally() {
	local out=$1.log result synth tested

	result=$(sed -n 's/^:global-test-result: //p' "$1.trs")
	# "[====] Synthesis: Tested: 12 | Passing: 12 | Failing: 0 | Crashing: 0"
	synth=$(grep -a 'Synthesis: Tested' "$out" | tail -1 |
		sed 's/\x1b\[[0-9;]*m//g; s/[^0-9]\+/ /g')
	if [ -n "$synth" ]; then
		read -r tested p f s <<<"$synth"
		f=$((f + s)) s=0
		[ "$result" = PASS ] || [ "$f" -gt 0 ] || f=1
		return
	fi
	p=$(grep -acE '^ok ' "$out") || true
	f=$(grep -acE '^not ok ' "$out") || true
	s=$(grep -acE '^ok .*# SKIP' "$out") || true
	p=$((p - s))
	if [ $((p + f + s)) = 0 ]; then
		p=0 f=0 s=0
		case $result in
		PASS) p=1 ;;
		SKIP) s=1 ;;
		*) f=1 ;;
		esac
	elif [ "$result" != PASS ] && [ "$f" = 0 ]; then
		f=1
	fi
}
