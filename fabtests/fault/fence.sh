#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Commits without the agent, on the simulated fabric.
set -u
[ "${RP_SANITIZE:-}" = thread ] && {
	echo "1..0 # SKIP there is only one thread"
	exit 77
}
dir=$(mktemp -d ./fence.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/prov/pmsim/.libs/libpmsim-fi.so" \
	"$PWD/fabtests/fault/.libs/librpmem-sim-fi.so" "$dir/" || exit 99
export FI_PROVIDER_PATH=$PWD/$dir
fabtests/fault/fence || exit
FI_OFI_RPMEM_METHOD=agent-clwb fabtests/fault/fence forced
