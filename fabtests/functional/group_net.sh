#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A group of pools between network namespaces: partitions, kills, replaced
# members, and writers that displace each other; see group_net.py.
# usage: group_net.sh [OPTION...] in a build folder; --long: an hour. Without an
# option RP_LONG=1 is --long, and runs group_net_planted behind it.
set -u
if [ "$(id -u)" != 0 ]; then
	echo "1..0 # SKIP network namespaces need root"
	exit 77
fi
if ! command -v python3 >/dev/null || ! command -v ip >/dev/null; then
	echo "1..0 # SKIP python3 or ip is not installed"
	exit 77
fi
if ! why=$(unshare --net --mount --pid --fork ip link add name b type bridge 2>&1); then
	echo "1..0 # SKIP no network namespace with a bridge: $why"
	exit 77
fi
src=$(cd "${srcdir:-..}" && pwd)
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
planted=
if [ $# = 0 ] && [ "${RP_LONG:-0}" = 1 ]; then
	set -- --long
	[ -n "${RP_SANITIZE:-}" ] || planted=1
fi
# All processes and namespaces end when the first process ends.
unshare --net --mount --pid --fork --kill-child --mount-proc \
	python3 "$src/fabtests/functional/group_net.py" "$@" || exit
[ -z "$planted" ] ||
	"$src/fabtests/functional/group_net_planted" "$src" "$PWD"
