#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --files acquits programs that flush, and convicts programs
# that do not. A run with changes that are not recorded is never acquitted.
# shellcheck disable=SC2317,SC2016
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
crash_enter crashtest 200
export TMPDIR="$here"
victim=$top/fabtests/functional/crash_victim

# crash OPTION... -- COMMAND...: run the tool on a new, empty folder.
crash()
{
	rm -rf files crashtest.log
	mkdir files
	timeout -k 1 "$limit" "$tool" --files files --images "$images" "$@" >out 2>&1
	status=$?
}

# program NAME ARGUMENT [OPTION...]: test a program of crash_victim.
program()
{
	case=$1 arg=$2
	shift 2
	crash --check "'$victim' $case $arg check" "$@" -- "$victim" "$case" "$arg"
}

expect()
{
	code=$1
	shift
	if [ "$code" = 0 ]; then
		fully acquitted "$@"
	else
		program "$@"
		ended "$code" .
	fi
}
acquitted()
{
	program "$@" --json json
	ended 0 . && reached
}

ok "a rename without flushes is convicted" expect 1 replace none
# Replace without fsync(): the new name survives, and its bytes do not.
lost_bytes()
{
	program replace dir --json json
	ended 1 convicted && /usr/bin/python3 - <<'P'
import json
f = json.load(open("json"))["failures"][0]
event = {e["n"]: e for e in json.load(open("json"))["events"]}
lost = [event[u["event"]]["kind"] for u in f["lost"]]
assert lost == ["write"], lost
assert f["stable"] and f["status"] == 9
P
}
ok "a rename before the bytes is shrunk to the lost bytes" lost_bytes
ok "a rename without fsync of the folder is convicted" expect 1 replace file
ok "a rename between both flushes is acquitted" expect 0 replace both
ok "a counter across two sectors is torn" expect 1 count 508
ok "a counter inside a sector is not torn" expect 0 count 504
ok "stores without msync are convicted" expect 1 store none
ok "a flush of CPU caches is no flush of a file" expect 1 store caches
ok "msync of another page is convicted" expect 1 store 1
ok "msync of a private mapping is no flush" expect 1 store private
ok "msync of a file open for reading is no flush" expect 1 store readonly
ok "stores with msync are acquitted" expect 0 store 0
ok "words of a sector that one msync covers are in no order" expect 1 flag x
ok "O_DSYNC is a flush" expect 0 flagged dsync
ok "sync_file_range is no flush" expect 1 flagged range

# The printed command repeats each failure.
repeated()
{
	program replace none --log kept.log --json json --html html \
		--timeout 61 && ended 1 . || return 1
	/usr/bin/python3 -c '
import json
print(json.load(open("json"))["failures"][0]["repeat"])' >repeat.sh
	grep -q '<html' html && [ -s kept.log ] || return 1
	grep -q -- '--timeout 61 ' repeat.sh || return 1
	PATH=$top/util:$PATH sh repeat.sh >again
	[ $? -eq 1 ] && grep -q "^convicted" again || return 1
	sed 's/--image [^ ]*/--image 9:9:-/' repeat.sh >kept.sh
	PATH=$top/util:$PATH sh kept.sh >again 2>&1
	[ $? -eq 2 ] && grep -q 'legal image next to it is 9:5:-' again ||
		return 1
	sed 's/--image [^ ]*/--image 9:5:-/' repeat.sh >kept.sh
	PATH=$top/util:$PATH sh kept.sh >again && grep -q "^acquitted" again ||
		return 1
	"$tool" --report json --html html2 >out && cmp -s html html2
}
ok "a failure and the report can be made again" repeated

damaged_log()
{
	printf 'RPCRASH1 and no more' >bad.log
	timeout 60 "$tool" --files . --log bad.log --image 1:1:- --check true \
		>out 2>&1
	status=$?
	ended 2 'bad.log: no log'
}
ok "a damaged log is refused" damaged_log

ok "threads, processes and all ways to write are recorded" expect 0 mixed x

aborted()
{
	program abort both && ended 2 'ended with signal 6' &&
		program abort both --any-status && ended 0 acquitted
}
ok "a program that crashes is tested only with --any-status" aborted

# die HOW TEXT: end the process while its first thread is in a recorded call.
die()
{
	crash --check true -- "$victim" die "$1"
	ended 2 "$2"
}
ok "a thread may end a process in a recorded call" die exit 'status 3'
ok "a thread may kill a process in a recorded call" die kill 'signal 9'
ok "a child may kill a process in a recorded call" die child 'signal 9'

# A process that COMMAND has not started writes to the folder, too.
unseen()
{
	rm -f go ended
	(
		until [ -e go ]; do sleep 0.02; done
		echo unseen >files/unseen
		: >ended
	) &
	crash --check true -- sh -c 'echo seen >files/seen; : >go
		until [ -e ended ]; do sleep 0.02; done'
	wait
	ended 2 'not recorded'
}
ok "a change by another process is not tested" unseen

moved()
{
	echo text >outside
	crash --check true -- mv outside files/inside
	ended 2 'not tested'
}
ok "a file moved in from outside is not tested" moved

ok "a check that sees no loss is not trusted" eval \
	'crash --check true -- "$victim" replace both; ended 2 "sees no loss"'
ok "a check that always fails is not trusted" eval \
	'crash --check false -- "$victim" replace both; ended 2 "nothing is lost"'
ok "a program that writes nothing is not tested" eval \
	'crash --check true -- true; ended 2 "changed nothing"'
ok "a missing check is a usage error" eval \
	'crash -- true; ended 2 "give --check"'

# A check would follow the link to the live folder.
link_to()
{
	crash --check true -- sh -c "ln -s $1 files/link; sync"
	ended "$2" "$3"
}
ok "a link to an absolute path is not tested" \
	link_to /etc/passwd 2 'link link leads out of the folder, to /etc/passwd'
ok "a link out of the folder is not tested" link_to ../out 2 'link leads out'
ok "a link inside the folder is tested" link_to a/../b 0 acquitted

inside()
{
	rm -rf files && mkdir -p files/tmp
	TMPDIR=files/tmp "$tool" --files files --check true -- true >out 2>&1
	status=$?
	ended 2 'is below --files files; set TMPDIR'
}
ok "a TMPDIR in the folder is refused" inside

left()
{
	crash --json json --images 9 --check true -- \
		sh -c 'echo >files/a; sleep 60 & echo >"files/$(printf "b\377")"
			echo >"files/$(printf "b\376")"'
	ended 0 '^acquitted of consistency alone' &&
		grep -q 'killed   1 processes' out && /usr/bin/python3 -c '
import json
t = {e["target"] for e in json.load(open("json"))["events"]}
assert {"a", "b\\xff", "b\\xfe"} <= t, t'
}
ok "what was not acknowledged, was killed and has odd names is said" left

# ledger TEXT COMMAND: lines that COMMAND loses or does not end are no
# acknowledgements, so an acquittal would be worth nothing.
ledger()
{
	crash --check true -- sh -c "echo >files/a; $2"
	ended 2 "$1"
}
ok "a ledger that is overwritten is named so" ledger 'overwritten the ledger' \
	'for i in 1 2; do echo $i >"$RPMEM_CRASHTEST_LEDGER"; done'
ok "a ledger that is replaced is named so" ledger 'replaced or removed' \
	'echo 1 >files/b; mv files/b "$RPMEM_CRASHTEST_LEDGER"'
ok "a last line without its end is named so" ledger 'has no newline' \
	'printf 1 >>"$RPMEM_CRASHTEST_LEDGER"'

# unwritable OPTION PLACE TEXT: say so before COMMAND runs.
unwritable()
{
	rm -f ran
	crash --check true "$1" "$2" -- sh -c ': >ran'
	ended 2 "$3" && [ ! -e ran ]
}
ok "a --keep that exists is refused first" \
	unwritable --keep . 'give a new folder to --keep'
ok "a --json that cannot be written is refused first" \
	unwritable --json no/json 'no/json: No such file'
ok "a --log that cannot be written is refused first" \
	unwritable --log no/log 'no/log: No such file'

# The first check is of the image without a loss. Of the next two, each waits for
# the other one.
cat >meet.sh <<'C'
mkdir 1 2>/dev/null && exit 0
mkdir 2 2>/dev/null && read -r line <fifo && exit 0
mkdir 3 2>/dev/null && echo met >fifo
exit 0
C
at_once()
{
	rm -rf 1 2 3 fifo
	mkfifo fifo
	crash --jobs 2 --timeout 30 --check "cd '$here' && sh meet.sh" -- \
		sh -c 'for i in 1 2 3; do echo >files/$i; done'
	ended 0 acquitted && [ -d 3 ]
}
ok "checks run at once, as --jobs says" at_once

late()
{
	crash --timeout 1 --check '! [ -e slow ] || sleep 60' -- \
		sh -c 'echo >files/slow; echo >files/x'
	ended 2 'takes longer than --timeout'
}
ok "a check out of time is named so" late

# The shell of the check is a child of the tool.
interrupted()
{
	crash --timeout 86400 --check 'kill -INT $PPID; sleep 86400' -- \
		"$victim" replace both
	set -- crashtest.*
	ended 2 'interrupted by a signal' && [ ! -e "$1" ]
}
ok "a signal ends a check that runs, and leaves nothing" interrupted

replaced()
{
	crash --check true -- sh -c 'echo >files/a; mv files f2; mkdir files'
	rm -rf f2
	ended 2 'replaced the folder'
}
ok "a replaced folder is named so" replaced

full_disk()
{
	rm -rf files && mkdir files && mount -t tmpfs -o size=200k crash files ||
		return 1
	timeout -k 1 "$limit" "$tool" --files files --check "'$victim' fill x check" \
		-- "$victim" fill x >out 2>&1
	status=$?
	umount files
	ended 0 acquitted
}
mounted()
{
	crash --check true -- sh -c 'mkdir files/sub
		mount -t tmpfs crash files/sub; echo >files/sub/c'
	umount files/sub
	ended 2 'another file system is mounted'
}
if [ "$(id -u)" = 0 ] && mkdir -p m && mount -t tmpfs crash m 2>/dev/null; then
	umount m
	ok "a full disk is survived" full_disk
	ok "a mount in the folder is named so" mounted
else
	echo "left out: a full disk needs a mount"
fi
exit $failed
