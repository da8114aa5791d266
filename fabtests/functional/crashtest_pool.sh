#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --pool: clients that acknowledge what no commit of their pool
# covers, and a target that commits without msync, are convicted; correct clients
# are acquitted.
# shellcheck disable=SC2317
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
crash_enter crashtest_pool 8
export TMPDIR="$here"
client=$top/fabtests/functional/crash_client

# pool STATUS STEPS [VARIABLE...]: check a client that runs these steps.
pool()
{
	want=$1 steps=$2
	shift 2
	env "$@" timeout -k 1 "$limit" "$tool" --pool 1M --images "$images" \
		--json json --check "'$client' check" -- "$client" "$steps" \
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
ok "acknowledged behind the commit: acquitted" fully pool 0 wca
ok "acknowledged before the commit: convicted" pool 1 wac
ok "two words that one commit covers can be torn" pool 1 wtca
ok "a target that commits without msync is convicted" pool 1 wca \
	FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=skip-flush
ok "no commit: convicted" pool 1 wa
ok "a commit in front of the write: convicted" pool 1 cwa
ok "a commit of another pool: convicted" pool 1 wWCa
ok "a commit of each pool: acquitted" fully pool 0 wWcCa
exit $failed
