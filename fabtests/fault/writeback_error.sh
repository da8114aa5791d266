#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A disk that fails late, below two regions of a file and below a pool: a loop
# device on a tmpfs that is too small, mounted in a separate namespace. Needs root, mkfs.ext4 and loop devices; else the test is
# skipped.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: not root"; exit 77; }
	command -v mkfs.ext4 >/dev/null || { echo "SKIP: no mkfs.ext4"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
dir=$(mktemp -d ./writeback_error.XXXXXX) || exit 99
trap 'umount "$dir/m" 2>/dev/null; umount "$dir"; umount "$dir" 2>/dev/null; rmdir "$dir"' EXIT
mount -t tmpfs -o size=12m none "$dir" || exit 77
truncate -s 64M "$dir/disk" && mkdir "$dir/m" || exit 99
# No journal: it would notice the failure first, and remount read-only.
mkfs.ext4 -q -E lazy_itable_init=0,nodiscard -O ^has_journal "$dir/disk" ||
	exit 99
mount -o loop "$dir/disk" "$dir/m" || { echo "SKIP: no loop devices"; exit 77; }
fallocate -l 16M "$dir/m/pool" && sync -f "$dir/m/pool" || exit 99
fabtests/fault/writeback_error "$dir/m/pool" || exit
umount "$dir/m" && mount -t tmpfs -o size=12m none "$dir" || exit 99
truncate -s 64M "$dir/disk" && mkdir "$dir/m" || exit 99
mkfs.ext4 -q -E lazy_itable_init=0,nodiscard -O ^has_journal "$dir/disk" ||
	exit 99
mount -o loop "$dir/disk" "$dir/m" || exit 99
fabtests/fault/writeback_error --pool "$dir/m/pool"
