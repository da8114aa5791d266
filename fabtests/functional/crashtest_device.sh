#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --device: a file system without barriers and a disk that
# drops FLUSH are convicted; a program that flushes on a disk that obeys FLUSH
# is not.
# shellcheck disable=SC2317,SC2016
set -u
images=30
[ "${1:-}" != --long ] || images=10000
[ -z "${RP_SANITIZE:-}" ] || {
	echo "SKIP: the filter of nbdkit is not built with a sanitizer's runtime"
	exit 77
}
bin=$(pwd)
dir=$(mktemp -d ./crashtest_device.XXXXXX) || exit 99
dir=$(cd "$dir" && pwd) || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
tool=$bin/util/fi_rpmem_crashtest
victim=$bin/fabtests/functional/crash_victim
failed=0 n=0

# crash OPTION...: replace a file durably, four times, or as $program does.
program='"$0" replace both'
crash()
{
	timeout 300 "$tool" --device 8M --images "$images" \
		--check "'$victim' replace both check" "$@" \
		-- sh -c "$program" "$victim" >out 2>&1
}

# ok NAME STATUS TEXT OPTION...: run the tool, check its status and output.
ok()
{
	name=$1 want=$2 text=$3
	n=$((n + 1))
	shift 3
	crash "$@"
	status=$?
	if [ $status -eq "$want" ] && grep -q -e "$text" out; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name (exit status $status)"
		sed 's/^/# /' out
		failed=1
	fi
}

crash
status=$?
if grep -q 'no block device: ' out; then
	echo "SKIP:$(sed -n 's/.*no block device://p' out)"
	exit 77
fi
ok "an honest disk is acquitted" 0 '^acquitted' --json json
# A file system is not to be torn inside a block that its device writes at once.
python3 - <<'P' || { echo "not ok - a write that is no whole block"; failed=1; }
import json
w = [e for e in json.load(open("json"))["events"] if e["kind"] == "write"]
assert w and not any(e["offset"] % 4096 or e["length"] % 4096 for e in w), w
P
ok "ext4 without barriers loses acknowledged work" 1 'check exited with status 9' \
	--mount-options barrier=0
ok "a disk that drops FLUSH is convicted" 1 '^convicted' \
	--nbdkit-filter "$bin/fabtests/functional/.libs/nbdkit-flush-filter.so"
ok "work of --setup is durable" 0 '^acquitted' \
	--setup 'echo 0 >"$RPMEM_CRASHTEST_DIR/conf"' \
	--nbdkit-filter delay --nbdkit-filter wdelay=1ms
program='"$0" replace none'
ok "a program that never flushes is convicted" 1 'check exited with status 9'
# sync(2) waits for what nbdkit writes.
program='"$0" replace both; sync'
ok "sync inside COMMAND ends" 0 '^acquitted' --images 5
ok "a failing --setup is named" 2 'setup' --setup 'echo broken; false'
# Killed without a chance to clean up; nbdkit and nbdfuse have paths of TMPDIR.
mkdir tmp
TMPDIR=$dir/tmp "$tool" --device 8M --check true -- \
	sh -c ': >"$0"; exec sleep 60' "$dir/started" >out 2>&1 &
tool_pid=$!
until [ -e started ]; do sleep 0.02; done
kill -9 $tool_pid
wait $tool_pid
tries=0
while pgrep -f "$dir/tmp" >left || grep "$dir/tmp" /proc/mounts >left ||
	losetup -a | grep "$dir/tmp" >left; do
	tries=$((tries + 1))
	[ $tries -lt 100 ] || { echo "not ok - left by kill -9:"; cat left; failed=1; break; }
	sleep 0.05
done
left=$(losetup -a | grep -c "$dir\|crashtest\." || :)
[ "$left" -eq 0 ] || { echo "not ok - $left loop devices are left"; failed=1; }
exit $failed
