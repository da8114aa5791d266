#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Makes a root of another Debian release, with what the build and the tests need.
#
# usage: root.sh MIRROR SUITE DIR
#
# DIR is made: root/, and packages (what is in it). Run as root, in a mount
# namespace of its own, so that nothing stays mounted whatever happens.
set -eu -o pipefail

mirror=$1 suite=$2 dir=$3

packages="gcc make pkg-config libc6-dev libfabric-dev libpmem2-dev uthash-dev
	libjansson-dev nettle-dev libinih-dev libxxhash-dev libmicrohttpd-dev libibverbs-dev librdmacm-dev
	libcriterion-dev libfabric-bin mandoc valgrind iproute2 procps python3
	git xz-utils e2fsprogs bc"

# shellcheck disable=SC2086 # a list
names=$(echo $packages | tr -s ' \t\n' ,)
mkdir "$dir"
cd "$dir"
mmdebstrap --quiet --variant=minbase --mode=root \
	--aptopt='APT::Install-Recommends "false"' \
	--aptopt='Acquire::Languages "none"' \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	--dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--include="$names" \
	"$suite" root "deb $mirror $suite main"
chroot root dpkg-query -W >packages
# Mount points for chroot.sh.
mkdir root/src root/build root/host root/fabtests
rm -rf root/var/cache/apt root/var/lib/apt/lists
echo "$suite: $(du -sh root | cut -f1) of root ($SECONDS s)"
