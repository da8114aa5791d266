#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_pool on the simulated fabric, with power cuts of the target at every step.
set -u
[ "${RP_SANITIZE:-}" = thread ] && {
	echo "1..0 # SKIP there is only one thread"
	exit 77
}
dir=$(mktemp -d ./crash_dirty.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/prov/pmsim/.libs/libpmsim-fi.so" \
	"$PWD/fabtests/fault/.libs/librpmem-sim-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir
fabtests/fault/crash_dirty
