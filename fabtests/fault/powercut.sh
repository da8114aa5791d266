#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# 200 simulated power cuts (1000 with --long): no acknowledged record is lost.
rounds=200
[ "${RP_LONG:-0}" != 1 ] || rounds=1000
[ -z "${RP_SANITIZE:-}" ] || rounds=10
RPMEM_SHADOW_LIB=${RP_PRELOAD:-}$PWD/fabtests/fault/.libs/libshadow.so
export RPMEM_SHADOW_LIB
exec fabtests/fault/powercut -n $rounds
