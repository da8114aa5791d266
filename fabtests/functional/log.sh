#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_log: its examples, errors, its page, a reader beside the writer.
set -u
src=$(cd "${srcdir:-.}" && pwd)
dir=$(mktemp -d ./log.XXXXXX) || exit 99
top=$PWD
cd "$dir" || exit 99
cc=${CC:-cc}
daemon= failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd "$top" && rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	failed=1
}

# says TEXT COMMAND...: it fails with this text.
says()
{
	text=$1
	shift
	if "$@" >out 2>&1; then
		fail "$* succeeded"
	elif ! grep -q -- "$text" out; then
		fail "$*: no '$text' in: $(cat out)"
	fi
}

# The example of the page and the one in docs, in C; the header as C++.
awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
     on && /^\.Bd -literal$/ { text = 1; next }
     /^\.Ed/ { text = 0 }
     text { gsub(/\\e/, "\\"); print }' "$src/man/rpmem_log.3" >page.c
cp "$src/docs/examples/log.c" docs.c
for example in page docs; do
	# shellcheck disable=SC2086 # flags are lists
	$cc ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" -o $example \
		$example.c -L../util/.libs -lrpmem_log ||
		fail "$example does not compile"
done
if command -v "${CXX:-c++}" >/dev/null; then
	echo '#include <rpmem_log.h>' | ${CXX:-c++} -x c++ -Wall -Wextra \
		-Werror -I"$src/include" -fsyntax-only - || fail "header as C++"
fi

# Each call of the header has its place on the page, and is exported.
sed -n 's/^[a-z].*[ *]\(rpmem_log_[a-z]*\)(.*/\1/p' "$src/include/rpmem_log.h" |
	sort -u >header
sed -n 's/^\.Nm \(rpmem_log_[a-z]*\).*/\1/p' "$src/man/rpmem_log.3" |
	sort -u >page.names
diff header page.names || fail "the header and its page differ"
nm -D --defined-only ../util/.libs/librpmem_log.so | sed -n 's/.* T //p' |
	grep -v '^_' | sort >exported
diff header exported || fail "the header and the library differ"

export LD_LIBRARY_PATH=$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# serve ARG...: a daemon, with its port in the file port.
serve()
{
	rm -f port
	../util/fi_rpmemd --port-file port "$@" >daemon.out 2>&1 &
	daemon=$!
}

# ready FILE...: wait until these are there, or the daemon has ended.
ready()
{
	for file; do
		for _ in $(seq 400); do
			[ -s "$file" ] && break
			kill -0 $daemon 2>/dev/null || break
			sleep 0.05
		done
	done
}

serve --port 0 --create 1M vol other parts again shared whole
../util/fi_rpmemd --port 0 --port-file port.small --create 12K small \
	>small.out 2>&1 &
small=$!
ready port port.small
if ! grep -q '^vol .* power ' daemon.out; then
	kill $small
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
fi
P=$(cat port)
[ "$(./page 127.0.0.1:"$P":vol one)" = one ] || fail "first line"
[ "$(./docs 127.0.0.1:"$P":vol two)" = "one
two" ] || fail "second line"

writer=../fabtests/fault/log_writer
says "has a log already" $writer 127.0.0.1:"$P":vol create 0
says "has no log" $writer 127.0.0.1:"$P":other check
says "at least 16384 bytes" $writer \
	127.0.0.1:"$(cat port.small)":small create 0
says "9 is no layout" $writer 127.0.0.1:"$P":other create 9
says "names no pool" $writer 127.0.0.1:"$P" check
says "2 logs need a pool of at least 32768 bytes" $writer \
	127.0.0.1:"$(cat port.small)":small@2/0 create 0
kill $small && wait $small

# Several logs of one pool.
../fabtests/functional/log_parts 127.0.0.1:"$P":parts || fail "log_parts"

# Others take a log and a pool while the daemon is started again.
mkfifo go
../fabtests/functional/log_parts 127.0.0.1:"$P":again 127.0.0.1:"$P":shared \
	127.0.0.1:"$P":whole <go >opened.out 2>&1 &
first=$!
exec 3>go
ready opened.out
kill -9 $daemon
wait $daemon 2>/dev/null
serve --port "$P" vol other parts again shared whole
ready port
echo >&3
wait $first || fail "over a restart: $(cat opened.out)"
exec 3>&-

# A second writer is refused; a reader is not, and follows.
$writer 127.0.0.1:"$P":other create 0 || fail "create"
$writer 127.0.0.1:"$P":other append >append.out 2>&1 &
first=$!
for _ in $(seq 400); do
	[ -s append.out ] && break
	sleep 0.05
done
says "is open exclusively" $writer 127.0.0.1:"$P":other append
$writer 127.0.0.1:"$P":other follow >follow.out 2>&1 &
reader=$!
for _ in $(seq 400); do
	[ "$(grep -c seen follow.out)" -ge 3 ] && break
	sleep 0.05
done
[ "$(grep -c seen follow.out)" -ge 3 ] ||
	fail "the reader does not follow: $(cat follow.out)"
kill -9 $first $reader
wait $first $reader 2>/dev/null
kill $daemon && wait $daemon
daemon=
exit $failed
