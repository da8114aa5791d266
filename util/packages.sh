# SPDX-License-Identifier: BSD-2-Clause
# Debian packages by purpose; sourced by quickstart.sh and check.sh.
# shellcheck shell=bash

PKG_BUILD="gcc make autoconf automake libtool pkg-config libc6-dev
	libfabric-dev libfabric1 libpmem2-dev uthash-dev libjansson-dev libmicrohttpd-dev
	libinih-dev nettle-dev libxxhash-dev
	libibverbs-dev librdmacm-dev nbdkit-plugin-dev libraft-dev libuv1-dev"
PKG_TEST="libcriterion-dev libfabric-bin clang-14 clang-tidy-14 clang-format-14
	cppcheck g++ mount e2fsprogs nbdkit libnbd-bin python3-libnbd redis-tools
	libclang-rt-14-dev mandoc valgrind zsh
	iproute2 procps liblmdb-dev python3 python3-clang-14 git xz-utils
	openmpi-bin libopenmpi-dev libpmemobj-dev libpmempool-dev pmdk-tools
	openssh-client openssh-server libdqlite-dev"

# Packages that run a virtual machine.
PKG_VM="qemu-system-x86 mmdebstrap busybox-static cpio e2fsprogs xz-utils zstd
	debian-archive-keyring"

# promtool, which checks the metrics and the alert rules. The package is unpacked,
# not installed, because installing it starts the server of prometheus.
PKG_METRICS="prometheus"

# A browser that shows a report; optional for its test.
PKG_BROWSER="chromium-headless-shell"

# Databases that are tested on a pool.
PKG_DATABASES="postgresql-15 redis-server etcd-server etcd-client sqlite3 nbdkit libnbd-bin
	e2fsprogs xfsprogs mount qemu-utils fio nbd-client fdisk kmod libxml2-utils"
# libvirt's schemas. The package is unpacked, because libvirt itself is not used.
PKG_LIBVIRT="libvirt0"

# packages_missing NAME...: print the packages that are not installed.
packages_missing() {
	local p

	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
			grep -q 'ok installed' || echo "$p"
	done
}

# packages_install NAME...: install missing packages; print names and size
# before.
packages_install() {
	local missing sudo=

	missing=$(packages_missing "$@")
	[ -n "$missing" ] || return 0
	[ "$(id -u)" = 0 ] || sudo=sudo
	# shellcheck disable=SC2086
	echo "Missing Debian packages:" $missing
	$sudo apt-get update -qq || echo "apt-get update failed; trying on"
	# shellcheck disable=SC2086
	LC_ALL=C apt-get install -s --no-install-recommends $missing >/dev/null 2>&1 ||
		{ echo "apt-get cannot install them: is this Debian 12?" >&2; return 1; }
	# shellcheck disable=SC2086
	LC_ALL=C $sudo apt-get install --no-install-recommends --assume-no \
		$missing 2>/dev/null | grep -E '^(Need to get|After this)' || true
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq \
		-o Acquire::Retries=5 --no-install-recommends $missing >/dev/null
}

# packages_unpack NAME FILE FOLDER: unpack this one file or folder of a package below
# FOLDER, without installing it, unless it is there; print its path.
packages_unpack() {
	local version at temp

	version=$(apt-cache policy "$1" | sed -n 's/^ *Candidate: //p')
	[ -n "$version" ] || { echo "apt knows no package $1" >&2; return 1; }
	at=$3/$1-${version//[!A-Za-z0-9.+-]/_}
	if [ ! -e "$at$2" ]; then
		mkdir -p "$3" && temp=$(mktemp -d "$3/unpack.XXXXXX") || return
		(cd "$temp" && apt-get -o APT::Sandbox::User=root download -qq "$1=$version" &&
			dpkg --fsys-tarfile ./*.deb | tar -x ".$2" &&
			rm ./*.deb && mv -T "$temp" "$at") >&2 || {
			rm -rf "$temp"
			return 1
		}
	fi
	echo "$at$2"
}
