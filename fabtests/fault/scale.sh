#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Scale: many commits, ranges, bytes and peers. --long: a million commits.
dir=$(mktemp -d ./scale.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
scale=fabtests/fault/scale
shadow=${RP_PRELOAD:-}$PWD/fabtests/fault/.libs/libshadow.so
commits=60000 files=3200 ranges=100000 mesh='8 4' peers=64
if [ "${RP_LONG:-0}" = 1 ]; then
	commits=1000000 files=64000 mesh='8 8' peers=256
fi
[ -z "${RP_SANITIZE:-}" ] || commits=4000 files=500 ranges=20000 mesh='4 4'
bad=0
# A long timeout, because a slow target is not dead. alarm() ends a test that
# hangs.
export FI_OFI_RPMEM_TIMEOUT=60000

emulated() {
	FI_OFI_RPMEM_EMULATE=1 FI_OFI_RPMEM_CLASS=none "$scale" "$@" || bad=1
}

# The shadow stands for the medium: it has the bytes that msyncs covered.
on_file() {
	rm -f "$dir"/pool*
	RPMEM_SHADOW=$dir/pool:$dir/pool.shadow LD_PRELOAD=$shadow \
		"$scale" "$@" "$dir/pool"
}

emulated commits $commits
on_file commits $files || bad=1
emulated ranges $ranges
on_file ranges $ranges || bad=1
# shellcheck disable=SC2086
emulated mesh $mesh
# A sanitizer's own memory falsifies the measurement, and leaves no space for a
# TiB.
if [ -z "${RP_SANITIZE:-}" ]; then
	emulated peers $peers
	"$scale" sparse "$dir/sparse" || bad=1
fi

# Negative control: without the flush no byte is on the medium.
mkdir "$dir/prov" && ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" \
	"$dir/prov/" || exit 99
for what in "commits 500" "ranges 2000"; do
	# shellcheck disable=SC2086
	if FI_PROVIDER_PATH=$PWD/$dir/prov RPMEM_FAULT=skip-flush \
		on_file $what >"$dir/out" 2>&1; then
		echo "not ok - $what: nothing is lost without a flush"
		bad=1
	elif grep -qE '[1-9][0-9]* lost|[1-9][0-9]* of [0-9]+ ranges are not' \
		"$dir/out"; then
		echo "ok - $what: without the flush the loss is seen"
	else
		cat "$dir/out"
		echo "not ok - $what: it failed in another way"
		bad=1
	fi
done
exit $bad
