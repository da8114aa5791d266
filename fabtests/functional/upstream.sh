#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# fabtests/upstream.sh reports lost tests, on a fake fabtests with known results.
set -u
src=$(cd "${srcdir:-.}" && pwd) || exit 99
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0

# check WHAT COMMAND...: the command must succeed
check() {
	local what=$1

	shift
	"$@" && return
	echo "FAIL: $what"
	failed=1
}

# said PATTERN: the output of the last run matches it.
# shellcheck disable=SC2317
said() {
	grep -qE "$1" "$dir/said"
}

# Fake tests of two processes: the name of each says how it ends.
mkdir -p "$dir/up/bin"
cat >"$dir/up/bin/fi_known" <<'E'
#!/usr/bin/env bash
[ "$1" != -h ] || { echo '  -B <src_port>'; exit 1; }
want=$1 prov='' port='' side=server dir=$(dirname "$0")/..
shift
while [ $# -gt 0 ]; do
	case $1 in
	-p) prov=$2 ;;
	-B) port=$2 ;;
	-P) port=$2 side=client ;;
	esac
	shift
done
echo "$want $prov $side $port" >>"$dir/calls"
[ -n "$port" ] || exit 3
case $want-$side-$prov- in
both-*) exit 0 ;;
neither-*) exit 61 ;;
half-client-*\;ofi_rpmem-*) exit 1 ;;
half-*) exit 0 ;;
never-server-*\;ofi_rpmem-*) echo $$ >"$dir/never"; exec sleep 1000 ;;
never-*) exit 0 ;;
orphan-client-*\;ofi_rpmem-*) exit 1 ;;
orphan-server-*\;ofi_rpmem-*) exec sleep 1000 ;;
orphan-*) exit 0 ;;
stuck-*\;ofi_rpmem-*) exec sleep 1000 ;;
stuck-*) exit 0 ;;
refuses-*\;ofi_rpmem-*) exit 61 ;;
refuses-*) exit 0 ;;
one_sided-server-*\;ofi_rpmem-*) exit 61 ;;
one_sided-*) exit 0 ;;
more-*\;ofi_rpmem-*) exit 0 ;;
more-*) exit 1 ;;
esac
exit 4
E
cat >"$dir/up/bin/fi_alone" <<'E'
#!/bin/sh
[ "$1" != nobody ] || exit 61
[ "$1" = 127.0.0.1 ] && [ "$2" = 127.0.0.1 ] || exit 5
exit 0
E
chmod +x "$dir"/up/bin/*
cat >"$dir/up/bin/runfabtests.sh" <<'E'
neg_unit_tests=(
	"fi_alone nobody"
	"fi_alone 127.0.0.1 127.0.0.1"
)
functional_tests=(
	"fi_known both -I 5"
	"fi_known neither"
	"fi_known refuses -e msg"
	"fi_known more"
)
short_tests=(
	"fi_known both"
	"fi_known half"
	"fi_known refuses -e rdm"
	"fi_known one_sided"
	"fi_known stuck"
	"fi_known never"
)
standard_tests=(
	"fi_known orphan"
)
unit_tests=(
	"fi_alone SERVER_ADDR GOOD_ADDR"
)
E

# run ARG...: run fabtests/upstream.sh, and keep its output and exit code.
run() {
	rm -f "$dir/up/calls"
	bash "$src/fabtests/upstream.sh" --prefix "$dir/up" --base one "$@" \
		>"$dir/said" 2>&1 </dev/null
	status=$?
}

run --set unit,functional --json "$dir/json"
check "one lost, and it ends with $status" [ $status = 1 ]
check "a test of one process" said '^fi_alone SERVER_ADDR GOOD_ADDR +pass +pass *$'
check "a test that is to be refused" said '^fi_alone nobody +pass +pass *$'
check "one that ought to be, and is not" \
	said '^fi_alone 127.0.0.1 127.0.0.1 +fail +fail *$'
check "both pass" said '^fi_known both -I 5 +pass +pass *$'
check "neither offers it" said '^fi_known neither +none +none *$'
check "another endpoint is lost, too" \
	said '^fi_known refuses -e msg +pass +none +lost$'
check "a test that passes only with the provider" said '^fi_known more +fail +pass +gained$'
check "lost: 1" said '^lost: 1, of which 1 '

check "JSON" python3 - "$dir/json" <<'E'
import json, sys
j = json.load(open(sys.argv[1]))
assert (j["lost"], j["passed_base"], j["passed_ours"]) == (1, 4, 4), j
assert (j["lost_not_rdm"], len(j["tests"])) == (1, 7), j
E
check "client and server of a run share a port" \
	test "$(awk '{ print $2, $4 }' "$dir/up/calls" | sort | uniq -c |
		awk '$1 != 2' | wc -l)" = 0

run --set short --timeout 2 --keep "$dir/kept"
check "five lost, and it ends with $status" [ $status = 1 ]
check "lost: 5" said '^lost: 5, of which 0 '
check "a client that fails" said '^fi_known half +pass +fail +lost$'
check "an RDM endpoint that is not offered" \
	said '^fi_known refuses -e rdm +pass +none +lost$'
check "one side alone that has no data has failed" \
	said '^fi_known one_sided +pass +fail +lost$'
check "both sides hang" said '^fi_known stuck +pass +time +lost$'
check "a server hangs" said '^fi_known never +pass +time +lost$'
check "what hung is gone" \
	eval "! kill -0 $(cat "$dir/up/never") 2>/dev/null"
check "its output is kept" test -e "$dir/kept/001-fi_known_both.ours.server"

run --set standard
check "a server without a client is ended before its time" \
	said '^fi_known orphan +pass +fail +lost$'
run --set functional --test both
check "nothing lost, and it ends with $status" [ $status = 0 ]
run --set short --test half
check "--test runs one" [ "$(wc -l <"$dir/up/calls")" = 4 ]
run --set short --test nonesuch
check "no such test, and it ends with $status" [ $status = 2 ]
run --set functional --test neither
check "nothing to compare, and it ends with $status" [ $status = 2 ]
run --set multinode
check "an unknown set, and it ends with $status" [ $status = 2 ]
exit $failed
