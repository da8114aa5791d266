#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs local_read with a shadow that msync writes, some cases with fault points.
dir=$(mktemp -d ./local_read.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
RPMEM_FAULT_PROVIDER=$PWD/$dir
RP_LOCAL_POOL=$dir/pool
RPMEM_SHADOW=$dir/pool:$dir/shadow
export RPMEM_FAULT_PROVIDER RP_LOCAL_POOL RPMEM_SHADOW
LD_PRELOAD=${RP_PRELOAD:-}$PWD/fabtests/fault/.libs/libshadow.so \
	fabtests/fault/local_read
