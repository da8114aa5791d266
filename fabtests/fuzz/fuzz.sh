#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the fuzzing harnesses and runs each for its share of the time.
#
#   srcdir=SOURCE fabtests/fuzz/fuzz.sh [--seconds N] [--long] [NAME...]
#
# In a build folder, as `make check` does. --seconds: of all harnesses together
# (60); --long: an hour; NAME: only these (wire, agent, initiator, setup,
# setup_client, pool, log, wire_desc, ring, rpc_ring, tcp).
set -u
src=$(cd "${srcdir:-.}" && pwd) || exit 99
clang="clang-14"
seconds=60 names=
[ "${RP_LONG:-0}" = 0 ] || seconds=3600
while [ $# -gt 0 ]; do
	case $1 in
	--seconds) seconds=$2; shift ;;
	--long) seconds=3600 ;;
	-*) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
	*) names="$names $1" ;;
	esac
	shift
done
names=${names:-wire agent initiator setup setup_client pool log wire_desc ring rpc_ring tcp}

skip() { echo "1..0 # SKIP $*"; exit 77; }
[ -z "${RP_SANITIZE:-}" ] || skip "the plain build does this, with ASan and UBSan"
flags="-g -O1 -std=gnu11 -Wall -fsanitize=fuzzer-no-link,address,undefined
	-fno-sanitize-recover=undefined -DHAVE_CONFIG_H -D_GNU_SOURCE -I. -I$src
	-I$src/include -I$src/prov -I$src/util -I$src/fabtests
	$(pkg-config --cflags libpmem2 nettle libfabric libxxhash)"
# Without libfabric: one of its libraries catches SIGABRT before libFuzzer can.
libs="$(pkg-config --libs libpmem2 nettle libxxhash) -lpthread"
work=$(mktemp -d ./fuzz.XXXXXX) || exit 99
trap 'rm -rf "$work"' EXIT

echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' >"$work/empty.c"
command -v $clang >/dev/null || skip "no $clang (Debian package clang-14)"
$clang -fsanitize=fuzzer,address,undefined "$work/empty.c" -o "$work/empty" \
	2>/dev/null ||
	skip "$clang has no fuzzer runtime (Debian package libclang-rt-14-dev)"

# Objects of the decoders. A harness that includes a source file needs no
# object.
# shellcheck disable=SC2086
build()
{
	(cd "$work" && mkdir o) || return
	for c in "$src"/prov/core/*.c "$src"/util/{setup,setup_listen,text,secret,file,shutdowns}.c \
		"$src"/util/liblog/*.c "$src"/prov/rc/{rc,rc_listen,rc_recv}.c "$src"/prov/rc/rc_tcp*.c \
		"$src"/fabtests/unit/wire_rig.c "$src"/fabtests/fuzz/agent_world.c; do
		$clang $flags -c "$c" -o "$work/o/$(basename "$c" .c).o" || return
	done
	ar rcs "$work/lib.a" "$work"/o/*.o || return
	for n in $names; do
		$clang $flags -fsanitize=fuzzer,address,undefined \
			"$src/fabtests/fuzz/fuzz_$n.c" "$work/lib.a" $libs \
			-o "$work/$n" || return
	done
}
build || { echo "not ok - build"; exit 1; }

# shellcheck disable=SC2086
set -- $names
share=$((seconds / $#))
[ $share -gt 0 ] || share=1
export UBSAN_OPTIONS=print_stacktrace=1
echo "1..$#"
failed=0
for n in $names; do
	corpus=$src/fabtests/fuzz/corpus/$n
	seeds=$(find "$corpus" -type f | wc -l)
	mkdir "$work/new-$n"
	keep=fuzz-crash-$n-
	"$work/$n" -max_total_time=$share -max_len=4300 -timeout=20 \
		-rss_limit_mb=1024 -artifact_prefix="$keep" -print_final_stats=1 \
		"$work/new-$n" "$corpus" >"$work/$n.log" 2>&1
	code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$n.log")
	cov=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$work/$n.log" | tail -1)
	if [ $code = 0 ] && [ "$seeds" -gt 0 ] &&
		[ "${runs:-0}" -gt $((2 * seeds)) ]; then
		echo "ok - $n: $runs executions of $share s, $cov"
		continue
	fi
	failed=1
	echo "not ok - $n: exit code $code, ${runs:-no} executions, $cov"
	tail -40 "$work/$n.log" | sed 's/^/# /'
	file=$(sed -n 's/.*Test unit written to //p' "$work/$n.log" | tail -1)
	if [ -n "$file" ]; then
		cp "$work/$n" "./fuzz-$n"
		echo "# again: (cd $PWD && ./fuzz-$n $file)"
	fi
done
exit $failed
