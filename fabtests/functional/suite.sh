# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh disable=SC2034
# Sourced by suites that start fi_rpmemd or check a library: functions for their
# folder, their processes and their checks.
failed=0 pids=

# enter NAME: work in this suite's own folder. The folder, and the processes in
# $pids, are removed when the suite ends.
enter()
{
	src=$(cd "${srcdir:-.}" && pwd)
	top=$PWD
	dir=$(mktemp -d "./$1.XXXXXX") || exit 99
	cd "$dir" || exit 99
	trap finish EXIT
	unset FI_PROVIDER FI_OFI_RPMEM_CLASS
	LD_LIBRARY_PATH=$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
}

finish()
{
	exec 3>&- 4>&-
	[ $failed = 0 ] || [ ! -e daemon.out ] ||
		sed 's/^/# daemon: /' daemon.out
	for pid in $pids; do
		kill -9 "$pid" 2>/dev/null
	done
	cd "$top" && rm -rf "$dir" ${shm:+"$shm"}
}

fail()
{
	echo "FAIL: $*"
	failed=1
}

# says TEXT COMMAND...: the command fails, and its output has this text.
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

# await PID COMMAND...: repeat the command until it succeeds, or the process has
# ended, or $attempts (1,000: 20 seconds) are over.
await()
{
	await_pid=$1
	shift
	for _ in $(seq "${attempts:-1000}"); do
		"$@" && return
		kill -0 "$await_pid" 2>/dev/null || break
		sleep 0.02
	done
	"$@"
}

# launch LOG READY ARG...: start fi_rpmemd and wait until its port is in READY;
# its pid in $daemon. $rpmemd names another program to start, $preload a library
# to preload.
launch()
{
	log=$1 ready=$2
	shift 2
	rm -f "$ready"
	LD_PRELOAD=${preload:-} ${rpmemd:-../util/fi_rpmemd} --port-file "$ready" "$@" \
		>>"$log" 2>&1 3>&- 4>&- &
	daemon=$!
	pids="$pids $daemon"
	await $daemon [ -s "$ready" ] && return
	fail "no daemon: $(cat "$log")"
	exit 1
}

# serve ARG...: start a daemon; its port in $P, its output in daemon.out
serve()
{
	: >daemon.out
	launch daemon.out port "$@"
	P=$(cat port)
}

# stop: end the daemon that was started last
stop()
{
	kill $daemon && wait $daemon
}

# serve_pool NAME ARG...: start a daemon of this pool, always at the same port;
# its pid in pid.NAME, its output in log.NAME
serve_pool()
{
	pool=$1
	shift
	launch "log.$pool" "ready.$pool" \
		--port "$(cat "port.$pool" 2>/dev/null || echo 0)" "$@" "$pool"
	cp "ready.$pool" "port.$pool"
	echo $daemon >"pid.$pool"
}

# serve_vol ARG...: start a daemon of the pool vol, always at the same port,
# $port; vol.safe gets the bytes that msync has covered
port=0
serve_vol()
{
	preload=${RP_PRELOAD:-}$top/fabtests/fault/.libs/libshadow.so
	export RPMEM_SHADOW=vol:vol.safe
	launch daemon.out ready --port "$port" "$@" vol
	preload=
	port=$(cat ready)
}

# cut_power: kill the daemon of vol; its pool keeps only what msync has covered.
cut_power()
{
	kill -9 $daemon
	wait $daemon 2>/dev/null
	cp vol.safe vol
}

# end_pools SIGNAL NAME...: end the daemons of these pools
end_pools()
{
	signal=$1
	shift
	for pool; do
		kill -"$signal" "$(cat "pid.$pool")"
	done
	for pool; do
		wait "$(cat "pid.$pool")" 2>/dev/null
	done
}

# at NAME: print the address of this pool
at()
{
	echo "127.0.0.1:$(cat "port.$1"):$1"
}

# skip_without_disk POOL LOG: skip the rest unless the pool's msync reaches a
# disk.
skip_without_disk()
{
	grep -q "^$1 .* power " "$2" && return
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}

# example PAGE: print the literal display in EXAMPLES, with roff's \e as \.
example()
{
	awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
	     on && /^\.Bd -literal$/ { text = 1; next }
	     /^\.Ed/ { text = 0 }
	     text { gsub(/\\e/, "\\"); print }' "$1"
}

# check_library NAME PROGRAMS [FLAG...]: compile the example of the page as
# `page`, the examples of docs, and the header as C++; each call of
# librpmem_NAME is in header and page, and is exported and packaged.
check_library()
{
	lib=rpmem_$1 programs=$2
	shift 2
	example "$src/man/$lib.3" >page.c
	for program in page $programs; do
		[ "$program" = page ] || cp "$src/docs/examples/$program.c" .
		# shellcheck disable=SC2086 # flags are lists
		${CC:-cc} ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" \
			-o "$program" "$program.c" -L../util/.libs "-l$lib" "$@" ||
			fail "$program does not compile"
	done
	if command -v "${CXX:-c++}" >/dev/null; then
		echo "#include <$lib.h>" | ${CXX:-c++} -x c++ -Wall -Wextra \
			-Werror -I"$src/include" -fsyntax-only - ||
			fail "header as C++"
	fi
	sed -n "s/^[a-z].*[ *]\(${lib}_[a-z_]*\)(.*/\1/p" \
		"$src/include/$lib.h" | sort -u >header
	sed -n "s/^\.Nm \(${lib}_[a-z_]*\).*/\1/p" "$src/man/$lib.3" |
		sort -u >page.names
	diff header page.names || fail "the header and its page differ"
	nm -D --defined-only "../util/.libs/lib$lib.so" |
		sed -n 's/.* T //p' | grep -v '^_' | sort >exported
	diff header exported || fail "the header and the library differ"
	sed -n "s/^ \(${lib}_[a-z_]*\)@.*/\1/p" \
		"$src/debian/librpmem-${lib#rpmem_}0.symbols" | sort >packaged
	diff header packaged || fail "the header and the package differ"
}
