#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The scenarios of crash_matrix.sh over connected endpoints of the program.
export RP_CRASH_RANDOM=20000
exec "${srcdir:-.}/fabtests/fault/crash_matrix.sh" crash_matrix --connected
