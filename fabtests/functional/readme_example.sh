#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# docs/examples/durable.c compiles as it is, runs, and its bytes arrive; README.md
# quotes lines of it, 12 at most. server.c and client.c: one process writes to the
# file of another.
set -u
src=${srcdir:-.}
cc=${CC:-cc}
provider=$PWD/prov/rpmem/.libs
dir=$(mktemp -d ./readme_example.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT

program=$src/docs/examples/durable.c
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$src/README.md" \
	>"$dir/excerpt"
[ -s "$dir/excerpt" ] || { echo "FAIL: README.md has no excerpt"; exit 1; }
lines=$(wc -l <"$dir/excerpt")
[ "$lines" -le 12 ] || { echo "FAIL: it has $lines lines, more than 12"; exit 1; }
first=$(grep -nxF "$(head -n 1 "$dir/excerpt")" "$program" | cut -d: -f1)
sed -n "${first:-1},\$p" "$program" | head -n "$lines" | cmp - "$dir/excerpt" ||
	{ echo "FAIL: README.md quotes what durable.c does not have"; exit 1; }
# shellcheck disable=SC2046,SC2086 # flags are lists
$cc ${CFLAGS:-} -Wall -Werror -I"$src/include" -o "$dir/durable" \
	"$program" $(pkg-config --cflags --libs libfabric) ||
	{ echo "FAIL: it does not compile"; exit 1; }
says=$(FI_PROVIDER_PATH=$provider FI_TCP_IFACE=lo ASAN_OPTIONS=detect_leaks=0 \
	timeout 60 "$dir/durable" "$dir/pool" 2>&1)
[ "$says" = "on the medium" ] || { echo "FAIL: it says: $says"; exit 1; }
[ "$(head -n 1 "$dir/pool" | tr -d '\0')" = durable ] ||
	{ echo "FAIL: its bytes are not in the pool"; exit 1; }

# Server and client over loopback; the server ends if its port is in use: take
# another.
for name in server client; do
	# shellcheck disable=SC2046,SC2086 # flags are lists
	$cc ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" \
		-o "$dir/$name" "$src/docs/examples/$name.c" \
		$(pkg-config --cflags --libs libfabric) ||
		{ echo "FAIL: $name.c does not compile"; exit 1; }
done
export FI_PROVIDER_PATH=$provider FI_TCP_IFACE=lo ASAN_OPTIONS=detect_leaks=0
PORT=$((20000 + $$ % 10000))
export PORT
for _ in 1 2 3 4 5; do
	timeout 60 "$dir/server" "$dir/pool2" >"$dir/server.out" 2>&1 &
	server=$!
	while says=$("$dir/client" 127.0.0.1 "from the client" 2>&1);
		[ "${says#*Connection refused}" != "$says" ] &&
			kill -0 $server 2>/dev/null; do
		sleep 0.05
	done
	wait $server
	grep -q "Address already in use" "$dir/server.out" || break
	PORT=$((PORT + 1))
done
[ "$says" = "durable at the server" ] ||
	{ echo "FAIL: client: $says"; cat "$dir/server.out"; exit 1; }
[ "$(cat "$dir/server.out")" = "from the client" ] ||
	{ echo "FAIL: server:"; cat "$dir/server.out"; exit 1; }
