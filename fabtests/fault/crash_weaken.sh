#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The valid pairs of crash_matrix.sh while a fact of the target weakens, with
# and without connected endpoints: one pair in sixteen, chosen by the time.
export RP_CRASH_RANDOM=1000
matrix=${srcdir:-.}/fabtests/fault/crash_matrix.sh
share=16
[ "${RP_LONG:-0}" = 1 ] && share=1
"$matrix" crash_matrix --weaken --share $share || exit
exec "$matrix" crash_matrix --weaken --share $share --connected
