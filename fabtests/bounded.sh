#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs one suite: skips it when the time of its part is used up, ends it when it
# hangs.
#
#   bounded.sh COMMAND [ARGUMENT...]
#
# RP_DEADLINE: seconds since 1970 after which no suite starts; none: no limit.
# RP_HANG: seconds after which a suite counts as hanging (default: 1800).
if [ -n "$RP_DEADLINE" ] && [ "$(date +%s)" -ge "$RP_DEADLINE" ]; then
	echo "1..0 # SKIP the time of this part is used up; util/check.sh runs it"
	exit 77
fi
exec timeout -k 10 "${RP_HANG:-1800}" "$@"
