#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmemd with a configuration, and clients that write, commit and compare,
# while it reloads, gets a new secret, restarts and is killed. usage: mixed.sh
# [MINUTES [SEED]], in a build folder. Takes 20 seconds; an hour with RP_LONG=1.
set -u
minutes=0.3
[ "${RP_LONG:-0}" != 1 ] || minutes=60
if ! command -v python3 >/dev/null || [ -n "${RP_SANITIZE:-}" ]; then
	echo "SKIP: the clients are Python programs, which a sanitizer cannot run"
	exit 77
fi
src=$(cd "${srcdir:-..}" && pwd)
LD_LIBRARY_PATH=$PWD/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONPATH=$src/util/python
export LD_LIBRARY_PATH PYTHONPATH
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
exec python3 "$src/fabtests/fault/mixed.py" --minutes "${1:-$minutes}" \
	${2:+--seed "$2"}
