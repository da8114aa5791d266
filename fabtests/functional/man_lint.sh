#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# mandoc finds nothing to warn about in the man pages.
set -u
src=${srcdir:-.}

if ! command -v mandoc >/dev/null; then
	echo "SKIP: mandoc is missing; on Debian: apt-get install mandoc"
	exit 77
fi
set -- "$src"/man/*.[137]
if ! [ -e "$1" ]; then
	echo "FAIL: no man pages in $src/man"
	exit 1
fi
# Messages below the level of warnings name pages that are not installed.
mandoc -T lint -W warning "$@" 2>/dev/null
