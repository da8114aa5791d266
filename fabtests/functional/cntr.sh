#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Counters, with flushes slow enough to show an early value.
set -u

dir=$(mktemp -d ./cntr.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
FI_PROVIDER_PATH=$PWD/$dir
RPMEM_FAULT=slow-flush
RPMEM_FAULT_MS=60
export FI_PROVIDER_PATH RPMEM_FAULT RPMEM_FAULT_MS
fabtests/functional/cntr
