#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The program in README.md has 40 lines at most, compiles as printed, runs, and
# its bytes arrive.
set -u
src=${srcdir:-.}
cc=${CC:-cc}
provider=$PWD/prov/rpmem/.libs
dir=$(mktemp -d ./readme_example.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$src/README.md" \
	>"$dir/durable.c"
[ -s "$dir/durable.c" ] || { echo "FAIL: README.md has no program"; exit 1; }
lines=$(wc -l <"$dir/durable.c")
[ "$lines" -le 40 ] || { echo "FAIL: it has $lines lines, more than 40"; exit 1; }
# shellcheck disable=SC2046,SC2086 # flags are lists
$cc ${CFLAGS:-} -Wall -Werror -I"$src/include" -o "$dir/durable" \
	"$dir/durable.c" $(pkg-config --cflags --libs libfabric) ||
	{ echo "FAIL: it does not compile"; exit 1; }
says=$(FI_PROVIDER_PATH=$provider FI_TCP_IFACE=lo ASAN_OPTIONS=detect_leaks=0 \
	timeout 60 "$dir/durable" "$dir/pool" 2>&1)
[ "$says" = "on the medium" ] || { echo "FAIL: it says: $says"; exit 1; }
[ "$(head -n 1 "$dir/pool" | tr -d '\0')" = durable ] ||
	{ echo "FAIL: its bytes are not in the pool"; exit 1; }
