#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The limits by which bounded.sh ends a suite: a suite that takes an hour with
# RP_LONG=1 gets more than an hour. In place of timeout a script prints its limit.
set -u
bounded=$(cd "${srcdir:-.}" && pwd)/fabtests/bounded.sh
dir=$(mktemp -d ./limits.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
# shellcheck disable=SC2016 # the script expands it
printf '#!/bin/sh\necho "$3 $4"\n' >"$dir/timeout"
chmod +x "$dir/timeout"
unset RP_LONG RP_HANG RP_DEADLINE

# limit LOW HIGH [VARIABLE=VALUE...]: the limit is in this range.
limit()
{
	low=$1 high=$2
	shift 2
	said=$(env PATH="$PWD/$dir:$PATH" "$@" sh "$bounded" suite)
	seconds=${said% suite}
	if [ "${seconds:-0}" -lt "$low" ] || [ "$seconds" -gt "$high" ]; then
		echo "FAIL: ${*:-no variable}: '$said', not $low to $high seconds"
		failed=1
	fi
}

limit 1 1800
limit 1 1800 RP_LONG=0
limit 5400 10800 RP_LONG=1
limit 5 5 RP_LONG=1 RP_HANG=5
# No suite starts when the time of its part is used up.
said=$(RP_DEADLINE=1 sh "$bounded" echo started)
[ $? = 77 ] || { echo "FAIL: not skipped"; failed=1; }
case $said in
*started*) echo "FAIL: $said"; failed=1 ;;
esac
exit $failed
