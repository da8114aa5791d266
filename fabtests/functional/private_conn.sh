#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Durable writes over private connections: on tmpfs by delivery, by a read fence
# (forced, then stated by the operator), and by the agent, which is requested
# after the write or in one message.
set -u

[ -w /dev/shm ] || {
	echo "1..0 # SKIP no tmpfs"
	exit 77
}
dir=$(mktemp -d /dev/shm/private_conn.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
cat >"$dir/operator" <<END
[path $dir]
assert fence = yes
END
chmod 600 "$dir/operator"
export FI_OFI_RPMEM_CLASS=process
export FI_OFI_RPMEM_INLINE=${FI_OFI_RPMEM_INLINE:-0}
export RPMEM_POOL=$dir/pool
run() {
	local what=$1
	shift
	env "$@" "fabtests/functional/$what" >"$dir/log" 2>&1
	local ret=$?
	grep -v '^1\.\.' "$dir/log"
	ok=$((ok + $(grep -c '^\(not \)\?ok' "$dir/log")))
	[ $ret = 0 ] || failed=1
}
ok=0 failed=0
run private_conn
run private_conn EXPECT=fence FI_OFI_RPMEM_METHOD=fence \
	FI_OFI_RPMEM_OPERATOR="$dir/operator"
for how in agent-clwb agent-sfence; do
	run private_conn EXPECT=$how FI_OFI_RPMEM_METHOD=$how
	run coalesced_writes FI_OFI_RPMEM_METHOD=$how
	run private_conn EXPECT=$how FI_OFI_RPMEM_METHOD=$how FI_OFI_RPMEM_INLINE=4096
	run coalesced_writes FI_OFI_RPMEM_METHOD=$how FI_OFI_RPMEM_INLINE=4096
done
echo "1..$ok"
exit $failed
