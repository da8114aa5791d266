#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Negative control of powercut: without the flush it finds missing records.
dir=$(mktemp -d ./noflush.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
RPMEM_SHADOW_LIB=${RP_PRELOAD:-}$PWD/fabtests/fault/.libs/libshadow.so
FI_PROVIDER_PATH=$PWD/$dir
RPMEM_FAULT=skip-flush
RPMEM_EXPECT_LOSS=1
export RPMEM_SHADOW_LIB FI_PROVIDER_PATH RPMEM_FAULT RPMEM_EXPECT_LOSS
fabtests/fault/powercut -n 20
