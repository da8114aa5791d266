#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The valid pairs of crash_matrix.sh while a fact of the target weakens, with
# and without connected endpoints: one pair in sixteen, chosen by the time. Of
# crash_shim.sh, whose runs are shorter, one pair in four.
export RP_CRASH_RANDOM=1000
matrix=${srcdir:-.}/fabtests/fault/crash_matrix.sh
share=16 shim_share=4
[ "${RP_LONG:-0}" = 1 ] && share=1 shim_share=1
"$matrix" crash_matrix --weaken --share $share || exit
"$matrix" crash_matrix --weaken --share $share --connected || exit
# Only a build with libibverbs has the verbs shim.
[ ! -x fabtests/fault/crash_shim ] ||
	exec "$matrix" crash_shim --weaken --share $shim_share
