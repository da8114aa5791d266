#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# memcheck over core's unit tests and over real processes: no error, no leak.
[ -z "${RP_SANITIZE:-}" ] || { echo "SKIP: the sanitizers look already"; exit 77; }
command -v valgrind >/dev/null || {
	echo "SKIP: valgrind is not installed: apt-get install valgrind"
	exit 77
}
dir=$(mktemp -d ./valgrind.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
supp=$srcdir/fabtests/functional/valgrind.supp
# valgrind's CPU has no clwb; the timeout is long because valgrind is slow.
export FI_OFI_RPMEM_TIMEOUT=60000

# check NAME COMMAND...: log to a file, whose last line is the result.
check() {
	local name=$1 out="$dir/$1"

	shift
	if ./libtool --mode=execute valgrind -q "--suppressions=$supp" \
		--leak-check=full --show-leak-kinds=definite \
		--errors-for-leak-kinds=definite --error-exitcode=9 \
		--trace-children=yes "$@" >"$out" 2>&1; then
		echo "ok - memcheck: $name" >>"$out"
	else
		echo "not ok - memcheck: $name" >>"$out"
	fi
}
export -f check
export dir supp

# Negative control: a planted leak in the loaded provider must be found.
planted() {
	cat >"$dir/leak.c" <<'C'
#include <stdlib.h>
int main(int argc, char **argv)
{
	char *volatile p = malloc(10);
	p = NULL;
	return p != NULL;
}
C
	gcc -g -O0 -o "$dir/leak" "$dir/leak.c" || return
	check planted "$dir/leak"
	if grep -q 'definitely lost' "$dir/planted"; then
		echo "ok - memcheck: it sees a leak" >"$dir/planted"
	else
		echo "not ok - memcheck: it sees no leak" >>"$dir/planted"
	fi
}

planted
# Units that allocate memory for long; sanitizers and --long cover the rest.
units="batch agent agent_session session session_commit pmem"
[ "${RP_LONG:-0}" = 0 ] ||
	units+=" wire wire_refuse ranges region agent_scarce agent_effects session_op session_no_memory"
emulated='env FI_OFI_RPMEM_EMULATE=1 FI_OFI_RPMEM_CLASS=none'
{
	echo basic fabtests/functional/basic
	echo roles fabtests/functional/roles
	echo clwb "$emulated" fabtests/fault/scale ranges 300
	for t in $units; do
		echo "test_$t" "fabtests/unit/test_$t" -j1
	done
} | xargs -P 2 -I '{}' bash -c 'check {}'
bad=0
for f in "$dir"/*; do
	case $f in *.c | */leak) continue ;; esac
	if grep -q '^not ok - memcheck' "$f"; then
		grep -avE '^(ok|[0-9])' "$f" | head -60
		bad=1
	fi
	grep -a '^\(not \)\?ok - memcheck' "$f"
done
exit $bad
