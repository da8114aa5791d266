# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034
# Sourced by benchmarks. Reads --build DIR and those options of $takes, such as
# --rounds N, which set a variable of that name. Other arguments print the usage.
build=
while [ $# -gt 0 ]; do
	name=${1#--}
	if [ $# = 1 ] || [ "$name" = "$1" ] || [[ " build $takes " != *" $name "* ]]; then
		sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
		exit 2
	fi
	declare "$name=$2"
	shift 2
done
build=${build:+$(cd "$build" && pwd)}
[ -x "$build/util/fi_rpmemd" ] ||
	{ echo "$(basename "$0"): give --build DIR, a folder with a build" >&2; exit 2; }
