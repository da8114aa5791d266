#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Proves that the crash matrix finds bugs: planted ones are found. RP_MUTANTS,
# K/N, tries those of turn K.
set -u
if [ -n "${RP_SANITIZE:-}" ]; then
	echo "1..0 # SKIP the plain build does this"
	exit 77
fi
exec "${srcdir:-.}/fabtests/fault/crash_planted" \
	${RP_MUTANTS:+--share "$RP_MUTANTS"} "${srcdir:-.}" .
