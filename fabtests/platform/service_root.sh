#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Makes a root of a Debian release with systemd and what fi_rpmemd needs.
#
# usage: service_root.sh MIRROR SUITE DIR
#
# DIR is made: root/. Run as root, in a mount namespace of its own.
set -eu -o pipefail

mirror=$1 suite=$2 dir=$3

# Its name has changed between the two releases.
http=libmicrohttpd12
[ "$suite" != trixie ] || http=libmicrohttpd12t64
mkdir "$dir"
cd "$dir"
mmdebstrap --quiet --variant=minbase --mode=root \
	--aptopt='APT::Install-Recommends "false"' \
	--aptopt='Acquire::Languages "none"' \
	--dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--include=systemd,libfabric1,libpmem2,libjansson4,libnettle8,libinih1,$http,procps,iproute2 \
	"$suite" root "deb $mirror $suite main"
# Mount points for service_boot.sh.
mkdir root/out root/build root/tests
rm -rf root/var/cache/apt root/var/lib/apt/lists
echo "$suite: $(du -sh root | cut -f1) of root with systemd ($SECONDS s)"
