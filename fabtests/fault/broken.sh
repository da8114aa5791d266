#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs the test broken, whose targets may load the provider with fault points.
dir=$(mktemp -d ./broken.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$dir/" || exit 99
RPMEM_FAULT_PROVIDER=$PWD/$dir
export RPMEM_FAULT_PROVIDER
fabtests/fault/broken
