#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_cp with a group of three pools: one member dies during a copy, then
# two, and the stored length is never the length of another file.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter cp_group

# expect CODE ARG...: check the exit code of fi_rpmem_cp; its output is in out.
expect()
{
	want=$1
	shift
	# shellcheck disable=SC2086 # $class is an option and its value
	timeout 120 ../util/fi_rpmem_cp $class "$@" >out 2>&1
	code=$?
	[ $code -eq "$want" ] && return
	fail "$*: exit code $code, not $want"
	cat out
}

# printed TEXT: the last copy printed it
printed()
{
	grep -q -- "$1" out || { fail "no '$1' in:"; cat out; }
}

# begin_copy FILE OPTION...: start a copy in the background, $job.
begin_copy()
{
	rm -f acks
	# shellcheck disable=SC2086
	../util/fi_rpmem_cp $class --chunk 4K --window 1 --ack-log acks "$@" \
		"$group" >out 2>&1 &
	job=$!
	await $job [ -s acks ]
	kill -0 $job 2>/dev/null || { fail "no copy in progress"; cat out; }
}

# whole FILE: copy back the file, with its length; long FILE: the file, followed
# by the rest of the group.
whole()
{
	expect 0 "$group" back
	cmp "$1" back || fail "not $1: $2"
}
long()
{
	expect 0 "$group" back
	cmp -n "$(stat -c %s "$1")" "$1" back || fail "not $1: $2"
	[ "$(stat -c %s back)" -eq $((4 * 1048576 - 65536)) ] ||
		fail "$(stat -c %s back) bytes: $2"
}

head -c 3000001 /dev/urandom >one
head -c 2000001 /dev/urandom >two
serve_pool a --create 4M
serve_pool b --create 4M
serve_pool c --create 4M
class=
grep -q '^a .* power ' log.a || class='--class process'
group="$(at a),$(at b),$(at c);k=2"

# One member dies during a copy, and stays away.
begin_copy one
end_pools KILL b
wait $job || { fail "no copy with two members"; cat out; }
printed '^durable: 2.9 MiB in .* class .* by '
[ "$(tail -n 1 acks)" = 3000001 ] || fail "the ack log ends early"
whole one "with b away"
serve_pool b --create 4M
long one "b may have the length of another file"
expect 0 --verify one "$group@0"
printed "verified: SHA-256 $(sha256sum <one | cut -c1-64)"
whole one "of three members"

# A member that was away still has the length of the previous file.
end_pools KILL c
expect 0 --json two "$group"
printed "\"pool\": \"$group\""
whole two "with c away"
serve_pool c --create 4M
end_pools KILL a
long two "c has the length of a former file"
serve_pool a --create 4M

# Two members die: the prefix at two members is durable, and a resumed copy
# sends the rest.
begin_copy one --timeout 1
end_pools KILL a b
wait $job
code=$?
[ $code -eq 9 ] || { fail "exit code $code with one member"; cat out; }
printed "^durable: the first $(tail -n 1 acks) of 3000001 bytes"
resume=$(sed -n 's/^resume:  //p' out | sed 's/--chunk 4K --window 1//')
serve_pool a --create 4M
serve_pool b --create 4M
sh -c "$resume" >out 2>&1 || { fail "not resumed"; cat out; }
printed "of it already there and not sent"
whole one "the prefix was not durable, or the rest is not there"

# Copies in both directions at an offset; a copy beyond the group's end fails.
expect 5 one "$group@2M"
printed "beyond its end"
expect 0 two "$group@1M"
expect 0 --length 2000001 "$group@1M" back
cmp two back || fail "not at its offset"
expect 2 one "${group%?}9"
printed "k=9 is more than 3 members"

# At least two members hold the file; alone, a member also has its own records
# before the file.
expect 0 one "$group"
has=0
for name in a b c; do
	end_pools TERM $name
	cmp -s -n 3000001 -i 131072:0 $name one && has=$((has + 1))
done
[ $has -ge 2 ] || fail "$has members have the file"
serve_pool a --create 4M
expect 0 "$(at a)" back
[ "$(stat -c %s back)" -eq 3065537 ] || fail "$(stat -c %s back) bytes of a member"
exit $failed
