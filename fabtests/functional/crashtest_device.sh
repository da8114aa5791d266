#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --device: a file system without barriers and a disk that
# drops FLUSH are convicted; a program that flushes on a disk that obeys FLUSH
# is not.
# shellcheck disable=SC2317,SC2016
set -u
[ -z "${RP_SANITIZE:-}" ] || {
	echo "SKIP: the filter of nbdkit is not built with a sanitizer's runtime"
	exit 77
}
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
crash_enter crashtest_device 30
rounds=128 # 64 have 7,300 images
mkdir tmp
export TMPDIR="$here/tmp"
victim=$top/fabtests/functional/crash_victim

# crash OPTION...: replace a file durably, four times, or as $program does.
program='"$0" replace both'
crash()
{
	timeout -k 1 "$limit" "$tool" --device 8M --images "$images" --json json \
		--check "'$victim' replace both check" "$@" \
		-- sh -c "$program" "$victim" >out 2>&1
	status=$?
}

# acquitted OPTION..., convicted TEXT OPTION...: run the tool
acquitted()
{
	crash "$@"
	ended 0 '^acquitted' && reached
}
convicted()
{
	text=$1
	shift
	crash "$@"
	ended 1 "$text"
}

over_images 200 '' crash
if grep -q 'no block device: ' out; then
	echo "SKIP:$(sed -n 's/.*no block device://p' out)"
	exit 77
fi
honest()
{
	ended 0 '^acquitted' && reached
}
ok "an honest disk is acquitted" over_images 200 '' honest
# A file system is not to be torn inside a block that its device writes at once.
whole_blocks()
{
	python3 - <<'P' >out 2>&1
import json
w = [e for e in json.load(open("json"))["events"] if e["kind"] == "write"]
assert w and not any(e["offset"] % 4096 or e["length"] % 4096 for e in w), w
P
}
ok "all writes are of whole blocks" whole_blocks
ok "ext4 without barriers loses acknowledged work" \
	convicted 'check exited with status 9' --mount-options barrier=0
# A shell that runs the printed command must not interpret the options.
ok "the command that repeats it quotes the mount options" \
	grep -q -- "--mount-options 'barrier=0' --log 'crashtest.log'" json
ok "a disk that drops FLUSH is convicted" convicted '^convicted' \
	--nbdkit-filter "$top/fabtests/functional/.libs/nbdkit-flush-filter.so"
ok "work of --setup is durable" acquitted \
	--setup 'echo 0 >"$RPMEM_CRASHTEST_DIR/conf"' \
	--nbdkit-filter delay --nbdkit-filter wdelay=1ms
program='"$0" replace none'
ok "a program that never flushes is convicted" \
	convicted 'check exited with status 9'
# sync(2) waits for what nbdkit writes.
program='"$0" replace both; sync'
synchronized()
{
	crash --images 5
	ended 0 '^acquitted'
}
ok "sync inside COMMAND ends" synchronized
# The recorder must not wait for such a call: the disk would wait for it.
program='"$0" wait both'
waiting()
{
	limit=60 crash --images 5 --nbdkit-filter delay \
		--nbdkit-filter wdelay=50ms
	ended 0 '^acquitted'
}
ok "calls that wait for bytes on their way to the disk end" waiting
program='"$0" replace both; echo 5 >"$RPMEM_CRASHTEST_LEDGER"'
overwritten()
{
	crash --images 5
	ended 2 'overwritten the ledger'
}
ok "a ledger that is overwritten is named so" overwritten
failing_setup()
{
	crash --setup 'echo broken; false'
	ended 2 setup
}
ok "a failing --setup is named" failing_setup
# Failures of the tool itself are no convictions. stand_in TOOL COMMAND: a folder
# in front of PATH, in which TOOL is COMMAND.
real_path=$PATH
stand_in()
{
	rm -rf bin && mkdir bin
	printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"
	chmod +x "bin/$1"
	PATH=$here/bin:$real_path
}
# blameless TEXT OPTION...: with the stand-in, nothing is tested
blameless()
{
	text=$1
	shift
	crash --images 5 "$@"
	PATH=$real_path
	ended 2 "$text" && grep -q '^not tested' out
}
program='"$0" replace both'
no_loop_device()
{
	# The device and the image without a loss have one.
	: >calls
	stand_in losetup 'case $* in *--find*) echo >>"'"$here"'/calls" ;; esac
[ "$(grep -c "" "'"$here"'/calls")" -le 4 ] && PATH="'"$real_path"'" exec losetup "$@"
echo "losetup: cannot find an unused loop device" >&2
exit 1'
	blameless 'an image has no loop device: losetup: cannot find an unused loop device; free some'
}
ok "an image without a loop device is not tested" no_loop_device
no_mount()
{
	: >calls
	stand_in mount 'echo >>"'"$here"'/calls"
[ "$(grep -c "" "'"$here"'/calls")" -le 4 ] && PATH="'"$real_path"'" exec mount "$@"
echo "mount: out of memory" >&2
exit 2'
	blameless 'its file system is not the cause: mount: out of memory'
}
ok "an image whose mount has no memory is not tested" no_mount
# gone COMMAND: wait until COMMAND, which writes to the file `left`, finds nothing
# any more. A loop device that udev has open is detached only when udev closes it.
gone()
{
	tries=0
	while "$1" >left; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || return 1
		sleep 0.05
	done
}
loop_devices()
{
	losetup -a | grep "$here"
}
# The tool is the parent of the shell that calls mount.
interrupted_mount()
{
	: >calls
	stand_in mount 'echo >>"'"$here"'/calls"
[ "$(grep -c "" "'"$here"'/calls")" -le 4 ] && PATH="'"$real_path"'" exec mount "$@"
kill -INT "$(cut -d " " -f 4 "/proc/$PPID/stat")"
exec sleep 86400'
	blameless 'interrupted by a signal' && gone loop_devices
}
ok "a signal during a mount leaves no loop device" interrupted_mount
# A socket has its path before it takes connections.
late_listen()
{
	stand_in nbdkit 'python3 - "$3" <<P
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
time.sleep(0.3)
os.unlink(sys.argv[1])
P
PATH="'"$real_path"'" exec nbdkit "$@"'
	crash --images 5
	PATH=$real_path
	ended 0 '^acquitted'
}
ok "nbdkit that listens late is waited for" late_listen
# without TOOL PACKAGE OPTION...: TOOL is not found, and PACKAGE is named
without()
{
	rm -rf bin && mkdir bin
	for t in sh id nbdkit nbdfuse losetup mount; do
		[ "$t" = "$1" ] || ln -s "$(command -v "$t")" "bin/$t"
	done
	PATH=$here/bin
	without=$1 package=$2
	shift 2
	timeout=/usr/bin/timeout
	$timeout -k 1 60 "$tool" --device 8M --check true "$@" -- true >out 2>&1
	status=$?
	PATH=$real_path
	tr -s '\n ' ' ' <out >line
	ended 2 'no block device' &&
		grep -q "$without is missing; on Debian: apt-get install .* $package command" line
}
ok "a missing losetup is named with its package" without losetup e2fsprogs
ok "the package of --fs xfs is xfsprogs" without mkfs.xfs xfsprogs --fs xfs
ok "the package of --fs btrfs is btrfs-progs" \
	without mkfs.btrfs btrfs-progs --fs btrfs

# Killed without a chance to clean up; nbdkit and nbdfuse have paths of TMPDIR.
"$tool" --device 8M --check true -- \
	sh -c ': >"$0"; exec sleep 60' "$here/started" >out 2>&1 &
tool_pid=$!
until [ -e started ]; do sleep 0.02; done
served=$(pgrep -c -f "^nbd(kit|fuse) .*$here/tmp")
mounts=$(for pid in $(pgrep -f "^nbd(kit|fuse) .*$here/tmp"); do
	grep "$here/tmp/.*/mnt " "/proc/$pid/mounts"
done)
[ "$served" = 2 ] && [ -z "$mounts" ] ||
	{ echo "not ok - nbdkit or nbdfuse can unmount its own device: $served $mounts"; failed=1; }
kill -9 $tool_pid
wait $tool_pid
left_by_kill()
{
	pgrep -f "$here/tmp" || grep "$here/tmp" /proc/mounts || loop_devices
}
gone left_by_kill || { echo "not ok - left by kill -9:"; cat left; failed=1; }
exit $failed
