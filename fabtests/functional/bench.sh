#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_bench obtains every figure, or says why it cannot.
set -u
dir=$(mktemp -d ./bench.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0

fail()
{
	echo "FAIL: $*"
	failed=1
}

# ratio NAME...: the smallest ratio, of all sizes, in the lines that end with
# these words.
ratio()
{
	awk -v "words=$1" 'index($0, words) && $1 ~ /^[0-9.]+$/ {
		print $1 }' "$dir/table" | sort -n | head -n 1
}

# above VALUE LIMIT
above()
{
	awk -v "v=$1" -v "l=$2" 'BEGIN { exit !(v != "" && v > l) }'
}

unset FI_PROVIDER_PATH
timeout 120 util/fi_rpmem_bench --pool "$dir/pool" --sizes 64,16K \
	--ranges 4 --iterations 100 --seconds 8 --json "$dir/json" \
	>"$dir/table" 2>&1
code=$?
cat "$dir/table"
[ $code -eq 0 ] || fail "exit code $code"
grep -q 'not obtained' "$dir/table" && fail "a figure is missing"
grep -q 'class power' "$dir/table" ||
	fail "no class power: is the build on a file system that is listed?"
[ -e "$dir/pool" ] && fail "the pool was left behind"
timeout 60 util/fi_rpmem_bench --pool "$dir/pool" --class process --sizes 64 \
	--ranges 2 --iterations 20 --seconds 1 --json "$dir/weaker" \
	>"$dir/weaker.out" 2>&1 || fail "exit code of --class process"
grep -q '^commit  *class process, method delivery: ' "$dir/weaker.out" ||
	fail "--class process: $(grep '^commit' "$dir/weaker.out")"
grep -q '"class": "process"' "$dir/weaker" || fail "its class in the JSON"
for name in base_write base_tagged write write_commit_flag \
	write_commit_call msync writes_commit_call msyncs; do
	[ "$(grep -c "\"name\": \"$name\"" "$dir/json")" = 2 ] ||
		fail "$name is not in the JSON for both sizes"
done

# The bound is generous, so that a loaded machine does not exceed it, but a
# broken provider does. A sanitizer slows the provider and not libfabric, so
# only a plain build is measured.
for try in 1 2 3; do
	[ -z "${RP_SANITIZE:-}" ] || break
	r=$(ratio ' write / base write')
	{ [ -n "$r" ] && above 5 "$r"; } && break
	[ $try = 3 ] && fail "a plain write takes $r of the base's"
	timeout 60 util/fi_rpmem_bench --pool "$dir/pool" --sizes 64,16K \
		--ranges 4 --iterations 100 --seconds 8 >"$dir/table" 2>&1
done

# Too few samples give no ratio.
timeout 60 util/fi_rpmem_bench --pool "$dir/pool" --sizes 64 --ranges 2 \
	--iterations 9 --seconds 8 >"$dir/table" 2>&1 || fail "9 samples"
grep -q '^load  ' "$dir/table" || fail "the load is not printed"
grep -qE '^ +- +write / base write' "$dir/table" ||
	fail "no line for a ratio without samples"
[ -z "$(ratio ' / ')" ] || fail "a ratio of 9 samples is printed"

timeout 60 util/fi_rpmem_bench --emulate --sizes 64 --ranges 2 \
	--iterations 50 --seconds 3 >"$dir/table" 2>&1
code=$?
[ $code -eq 0 ] || fail "exit code $code of --emulate"
grep -q 'class none' "$dir/table" || fail "emulated memory has a class"
grep -qi durable "$dir/table" && fail "class none is called durable"
grep -q 'msync alone .*not obtained' "$dir/table" ||
	fail "msync of emulated memory has a figure"

# A figure that cannot be obtained is reported, and the others are measured.
FI_PROVIDER_PATH=$dir timeout 60 util/fi_rpmem_bench --pool "$dir/pool" \
	--sizes 64 --ranges 2 --iterations 20 --seconds 2 >"$dir/table" 2>&1
code=$?
[ $code -eq 1 ] || fail "exit code $code without a provider"
grep -q 'base: write, delivery complete  *[1-9][0-9]* ' "$dir/table" ||
	fail "the base was not measured without a provider"
grep -q 'FI_COMMIT_COMPLETE .*not obtained' "$dir/table" ||
	fail "a commit was measured without a provider"

# An existing file is never overwritten.
echo precious >"$dir/file"
util/fi_rpmem_bench --pool "$dir/file" >"$dir/table" 2>&1
code=$?
[ $code -eq 3 ] || fail "exit code $code for a pool that exists"
[ "$(cat "$dir/file")" = precious ] || fail "the file was overwritten"

# Two machines: the target is one process, and the initiator another one.
# listen ARGUMENT...: start it on a port that is free.
listen()
{
	for try in 1 2 3 4 5; do
		at=127.0.0.1:$((20000 + ($$ * 7 + try * 1000) % 12000))
		# The background shell truncates the file later: until then it
		# would have the line of the previous target.
		rm -f "$dir/target"
		timeout 120 util/fi_rpmem_bench --listen $at "$@" \
			>"$dir/target" 2>&1 &
		target=$!
		until grep -qs "^waiting for" "$dir/target"; do
			kill -0 $target 2>/dev/null || continue 2
			sleep 0.05
		done
		return
	done
	fail "no target"
	cat "$dir/target"
}
unset FI_PROVIDER_PATH
listen --pool "$dir/pool"
timeout 100 util/fi_rpmem_bench --connect $at --sizes 64,16K --ranges 4 \
	--iterations 50 --seconds 4 --json "$dir/remote" >"$dir/table" 2>&1 ||
	{ fail "exit code of --connect"; cat "$dir/table"; }
wait $target || { fail "exit code of --listen"; cat "$dir/target"; }
grep -q "^base .*, target at $at" "$dir/table" || fail "the target's address"
grep -q "^pool  *file on " "$dir/table" || fail "the target's pool"
grep -q "^commit  *class power" "$dir/table" || fail "the target's class"
[ "$(grep -c 'not obtained' "$dir/table")" = 4 ] || # msync, at two sizes
	{ fail "figures are missing"; cat "$dir/table"; }
[ ! -e "$dir/pool" ] || fail "the target left its pool"
util/fi_rpmem_bench --connect $at >"$dir/table" 2>&1
[ $? -eq 3 ] || fail "exit code without a target"
grep -q "start fi_rpmem_bench --listen there" "$dir/table" ||
	fail "no remedy: $(cat "$dir/table")"
if command -v python3 >/dev/null; then
	listen --pool "$dir/pool"
	echo "GET / HTTP/1.0 and some more bytes, as many as it waits for" |
		timeout 20 python3 -c 'import socket, sys
s = socket.create_connection(sys.argv[1].split(":"))
s.sendall(sys.stdin.buffer.read())
s.recv(100)' $at
	wait $target
	grep -q "no fi_rpmem_bench of this release" "$dir/target" ||
		fail "a stranger is served: $(cat "$dir/target")"
fi
# The target dies: the initiator ends with a reason, and does not hang.
listen --pool "$dir/pool"
timeout 100 util/fi_rpmem_bench --connect $at --sizes 64 --seconds 60 \
	>"$dir/table" 2>&1 &
initiator=$!
until [ -n "$(ss -Htn state established "dst $at" 2>/dev/null)" ]; do
	kill -0 $initiator 2>/dev/null || break
	sleep 0.05
done
pkill -KILL -P $target # the one under timeout
wait $initiator
code=$?
[ $code -eq 1 ] || [ $code -eq 3 ] || fail "exit code $code without a target"
rm -f "$dir/pool"

util/fi_rpmem_bench --ranges 0 >"$dir/table" 2>&1
[ $? -eq 2 ] || fail "wrong usage is not exit code 2"

exit $failed
