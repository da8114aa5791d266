#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs one suite: skips it when the time of its part is used up, ends it when it
# hangs.
#
#   bounded.sh COMMAND [ARGUMENT...]
#
# RP_DEADLINE: seconds since 1970 after which no suite starts; none: no limit.
# RP_HANG: seconds after which a suite counts as hanging (default: 1800; with
# RP_LONG=1, when some suites take an hour, 9000).
if [ -n "$RP_DEADLINE" ] && [ "$(date +%s)" -ge "$RP_DEADLINE" ]; then
	echo "1..0 # SKIP the time of this part is used up; util/check.sh runs it"
	exit 77
fi
hang=1800
[ "${RP_LONG:-0}" != 1 ] || hang=9000
exec timeout -k 10 "${RP_HANG:-$hang}" "$@"
