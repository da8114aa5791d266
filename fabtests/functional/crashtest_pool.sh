#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --pool: a client that acknowledges before its commit, and a
# target that commits without msync, are convicted.
# shellcheck disable=SC2317
set -u
images=8
[ "${1:-}" != --long ] || images=10000
bin=$(pwd)
dir=$(mktemp -d ./crashtest_pool.XXXXXX) || exit 99
dir=$(cd "$dir" && pwd) || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export TMPDIR="$dir"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
tool=$bin/util/fi_rpmem_crashtest
client=$bin/fabtests/functional/crash_client
failed=0 n=0

# ok NAME STATUS TEXT ORDER [VARIABLE...]: check a client of this order.
ok()
{
	name=$1 want=$2 text=$3 order=$4
	n=$((n + 1))
	shift 4
	env "$@" timeout 300 "$tool" --pool 1M --images "$images" \
		--check "'$client' check" -- "$client" "$order" >out 2>&1
	status=$?
	if [ $status -eq "$want" ] && grep -q -e "$text" out; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name (exit status $status)"
		sed 's/^/# /' out
		failed=1
	fi
}

"$bin/util/fi_rpmem_info" "$dir" | grep -q 'class  *power' || {
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
mkdir fault || exit 99
ln -s "$bin/fabtests/fault/.libs/librpmem-fault-fi.so" fault/ || exit 99
ok "acknowledged behind the commit: acquitted" 0 '^acquitted' commit
ok "acknowledged before the commit: convicted" 1 '^convicted' early
ok "two words that one commit covers can be torn" 1 '^convicted' torn
ok "a target that commits without msync is convicted" 1 '^convicted' commit \
	FI_PROVIDER_PATH="$dir/fault" RPMEM_FAULT=skip-flush
exit $failed
