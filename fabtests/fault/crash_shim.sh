#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The scenarios of crash_matrix.sh with the methods of the verbs shim.
exec "${srcdir:-.}/fabtests/fault/crash_matrix.sh" crash_shim
