#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Simulated power cuts with flushes of cache lines, on emulated persistent
# memory.
rounds=20
[ "${RP_LONG:-0}" != 1 ] || rounds=400
[ -z "${RP_SANITIZE:-}" ] || rounds=6
top=$PWD
dir=$(mktemp -d /dev/shm/powercut.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
RPMEM_SHADOW_LIB=${RP_PRELOAD:-}$top/fabtests/fault/.libs/libshadow.so
FI_OFI_RPMEM_EMULATE=1 FI_OFI_RPMEM_CLASS=none
export RPMEM_SHADOW_LIB FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_CLASS
if [ "$(stat -f -c %T "$dir")" != tmpfs ]; then
	echo "ok 1 - power cuts where lines are flushed # SKIP /dev/shm is no tmpfs"
	exit 0
fi
bad=0

# cut WHAT PROVIDERS VARIABLE=VALUE...
cut() {
	what=$1 providers=$2
	shift 2
	env -C "$dir" FI_PROVIDER_PATH="$providers" "$@" \
		"$top/fabtests/fault/powercut" -n $rounds >"$dir/out" || bad=1
	sed "/^1\.\./d; s/^\(not \)\?ok [0-9]* - /&$what: /" "$dir/out"
}
# The installed provider stores bytes of requests with non-temporal stores,
# which the shadow sees only with fault points. So keep bytes out of requests.
cut "as installed" "$top/prov/rpmem/.libs" FI_OFI_RPMEM_INLINE=0
cut "with stores past the caches" "$dir" FI_OFI_RPMEM_INLINE=4096
cut "without the flush" "$dir" RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1
exit $bad
