#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Random requests of three connections to nbdkit's rpmem plugin, with power cuts of
# the target and restarts of nbdkit, against a model of FLUSH and FUA.
# usage: nbd_random.sh [--seed N]
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
seed=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')
[ "${1-}" != --seed ] || seed=$2
enter nbd_random
# shellcheck source=fabtests/functional/nbd_disk.sh
. "$src/fabtests/functional/nbd_disk.sh"
serve_safe
stop
runs=1
[ "${RP_LONG:-0}" != 1 ] || runs=40
for i in $(seq $runs); do
	timeout 600 /usr/bin/python3 "$src/fabtests/functional/nbd_random.py" \
		"$top" "$plugin" $((seed + i - 1)) 800 || failed=1
done
exit $failed
