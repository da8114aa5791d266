#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_log: its examples, errors, its page, a reader beside the writer.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter log
check_library log log
serve_pool small --create 12K
serve --port 0 --create 1M vol other parts again shared whole
skip_without_disk vol daemon.out
[ "$(./page 127.0.0.1:"$P":vol one)" = one ] || fail "first line"
[ "$(./log 127.0.0.1:"$P":vol two)" = "one
two" ] || fail "second line"
# An entry that is longer than the example's buffer ends the list.
long=$(printf '%05000d' 7)
./log 127.0.0.1:"$P":vol "$long" >out 2>err && fail "a long entry is ignored"
[ "$(cat out)" = "one
two" ] || fail "the entries before a long one: $(cat out)"
grep -q '^log: the entry has 5000 bytes, the buffer 4096' err ||
	fail "a long entry: $(cat err)"

writer=../fabtests/fault/log_writer
says "has a log already" $writer 127.0.0.1:"$P":vol create 0
says "has no log" $writer 127.0.0.1:"$P":other check
says "at least 16384 bytes" $writer "$(at small)" create 0
says "9 is no layout; give one of enum rpmem_log_layout" $writer 127.0.0.1:"$P":other create 9
says "names no pool" $writer 127.0.0.1:"$P" check
says "2 logs need a pool of at least 32768 bytes" $writer \
	"$(at small)@2/0" create 0
end_pools TERM small

# Several logs of one pool.
../fabtests/functional/log_parts 127.0.0.1:"$P":parts || fail "log_parts"

# While the daemon is started again, other clients displace the owner of a log
# and of a pool.
mkfifo go
../fabtests/functional/log_parts 127.0.0.1:"$P":again 127.0.0.1:"$P":shared \
	127.0.0.1:"$P":whole <go >opened.out 2>&1 &
first=$!
exec 3>go
await $first [ -s opened.out ]
kill -9 $daemon
wait $daemon 2>/dev/null
serve --port "$P" vol other parts again shared whole
echo >&3
wait $first || fail "over a restart: $(cat opened.out)"
exec 3>&-

# A second writer is refused; a reader is admitted, and reads new entries.
$writer 127.0.0.1:"$P":other create 0 || fail "create"
$writer 127.0.0.1:"$P":other append >append.out 2>&1 &
first=$!
await $first [ -s append.out ]
says "is open exclusively" $writer 127.0.0.1:"$P":other append
$writer 127.0.0.1:"$P":other follow >follow.out 2>&1 &
reader=$!
follows()
{
	[ "$(grep -c seen follow.out)" -ge 3 ]
}
await $reader follows ||
	fail "the reader does not follow: $(cat follow.out)"
kill -9 $first $reader
wait $first $reader 2>/dev/null
stop
exit $failed
