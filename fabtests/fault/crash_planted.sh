#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Proves that the crash matrix finds bugs: it must find planted ones.
# RP_SHARE=K/N tries the bugs of share K only.
set -u
if [ -n "${RP_SANITIZE:-}" ]; then
	echo "1..0 # SKIP the plain build does this"
	exit 77
fi
exec "${srcdir:-.}/fabtests/fault/crash_planted" \
	${RP_SHARE:+--share "$RP_SHARE"} "${srcdir:-.}" .
