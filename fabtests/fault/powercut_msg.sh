#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# 40 simulated power cuts (400 with --long) over connected endpoints: no
# acknowledged record is lost; without the flush some records are.
rounds=40
[ "${RP_LONG:-0}" != 1 ] || rounds=400
[ -z "${RP_SANITIZE:-}" ] || rounds=10
dir=$(mktemp -d ./noflush_msg.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
RPMEM_SHADOW_LIB=${RP_PRELOAD:-}$PWD/fabtests/fault/.libs/libshadow.so
RPMEM_MSG=1
export RPMEM_SHADOW_LIB RPMEM_MSG
fabtests/fault/powercut -n $rounds || exit 1
FI_PROVIDER_PATH=$PWD/$dir RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1 \
	fabtests/fault/powercut -n 10 >"$dir/out" || exit 1
sed '/^1\.\./d; s/^ok [0-9]*/# without the flush: &/' "$dir/out"
