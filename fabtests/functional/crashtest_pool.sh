#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --pool: a client that acknowledges before its commit, and a
# target that commits without msync, are convicted.
# shellcheck disable=SC2317
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
crash_enter crashtest_pool 8
export TMPDIR="$here"
client=$top/fabtests/functional/crash_client

# pool STATUS ORDER [VARIABLE...]: check a client of this order.
pool()
{
	want=$1 order=$2
	shift 2
	env "$@" timeout "$limit" "$tool" --pool 1M --images "$images" \
		--json json --check "'$client' check" -- "$client" "$order" \
		>out 2>&1
	status=$?
	ended "$want" . && { [ "$want" != 0 ] || reached; }
}

"$top/util/fi_rpmem_info" "$here" | grep -q 'class  *power' || {
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
mkdir fault || exit 99
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/ || exit 99
ok "acknowledged behind the commit: acquitted" pool 0 commit
ok "acknowledged before the commit: convicted" pool 1 early
ok "two words that one commit covers can be torn" pool 1 torn
ok "a target that commits without msync is convicted" pool 1 commit \
	FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=skip-flush
exit $failed
