#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# This release and the one before it read and write each other's pools, in both
# directions, and a client continues while its daemon is replaced. Builds the
# newest tag before HEAD, or without one the reference commit of docs/versions.md,
# so it runs with RP_LONG=1 only. RP_BEFORE=REF: another commit.
set -u
src=$(cd "${srcdir:-..}" && pwd) || exit 99
dir=$(mktemp -d ./upgrade.XXXXXX) || exit 99
dir=$(cd "$dir" && pwd)
new=$PWD
daemon='' writer='' failed=0 n=0

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	[ -z "$writer" ] || kill -9 "$writer" 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

skip()
{
	echo "SKIP: $*"
	exit 77
}

# constant FILE NAME: print the number of this name in the source
constant()
{
	sed -nE "s/^#define $2[[:space:]]+([0-9]+).*/\1/p" "$src/$1"
}

# stated ROW: print the present number in docs/versions.md
stated()
{
	sed -nE "s/^\| $1[^|]*\| ([0-9]+).*/\1/p" "$src/docs/versions.md"
}

# same ROW FILE NAME: the page and the source agree.
same()
{
	[ -n "$(stated "$1")" ] &&
		[ "$(stated "$1")" = "$(constant "$2" "$3")" ] && return
	echo "FAIL: docs/versions.md, '$1': $(stated "$1"), $2: $(constant "$2" "$3")"
	exit 1
}
same "messages on private connections" prov/core/wire.h RP_WIRE_VERSION
same "set-up protocol" util/setup.h RP_SETUP_VERSION
same "pool files" util/pool.h RP_POOL_VERSION
same "logs in pools" util/liblog/format.h LOG_VERSION
same "rings of calls in pools" util/librpc/format.h RPC_VERSION
same "groups of pools" util/libpool/group.h GROUP_FORMAT
same "messages between servers of Raft" util/libraft/wire.h WIRE_VERSION
same "page of counters" prov/core/stats.h RP_STATS_VERSION

# Every library is on the page, with the number of its soname.
libraries=$(cat "$src/util/local.mk" "$src/prov/verbs/local.mk" |
	sed -nE 's/.*_(lib[a-z_]+)_la_LDFLAGS = -version-info ([0-9]+):.*/\1.so.\2/p')
for library in $libraries; do
	grep -q "^| .*$library[,| ]" "$src/docs/versions.md" && continue
	echo "FAIL: docs/versions.md does not name $library"
	exit 1
done
[ "$(echo "$libraries" | wc -l)" -ge 6 ] ||
	{ echo "FAIL: only these libraries were found: $libraries"; exit 1; }

git -C "$src" rev-parse --git-dir >/dev/null 2>&1 ||
	skip "no git repository here, so no earlier release can be built"
before=${RP_BEFORE:-$(git -C "$src" describe --abbrev=0 --tags HEAD^ 2>/dev/null)}
# shellcheck disable=SC2016 # the page has it between backticks
[ -n "$before" ] || before=$(sed -nE \
	's/.*reference commit `([0-9a-f]{40})`.*/\1/p' "$src/docs/versions.md")
[ -n "$before" ] || {
	echo "FAIL: no tag, and docs/versions.md names no reference commit"
	exit 1
}
git -C "$src" cat-file -e "$before^{commit}" 2>/dev/null ||
	skip "$before is not in this repository: a shallow clone?"
[ -n "${RP_BEFORE:-}" ] || [ "${RP_LONG:-0}" = 1 ] ||
	skip "$before is built with RP_LONG=1 only"

old=$dir/old/build
mkdir -p "$old" || exit 99
git -C "$src" archive "$before" | tar -x -C "$dir/old" || exit 99
(cd "$dir/old" && ./autogen.sh && cd build &&
	../configure -q --disable-silent-rules CFLAGS=-O2 &&
	make -j2 util/fi_rpmemd util/fi_rpmem_cp prov/rpmem/librpmem-fi.la) \
	>"$dir/log" 2>&1 || {
	tail -n 20 "$dir/log"
	echo "FAIL: $before cannot be built"
	exit 1
}
cd "$dir" || exit 99

# Each tool uses the provider of its own build tree.
unset FI_PROVIDER FI_PROVIDER_PATH FI_OFI_RPMEM_CLASS

# ok NAME COMMAND...: the command must succeed
ok()
{
	name=$1
	n=$((n + 1))
	shift
	if "$@" >out 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' out daemon.out
		failed=1
	fi
}

# serve BUILD [OPTION...]: start its daemon, always on the same port.
port=0
serve()
{
	from=$1
	shift
	rm -f ready
	"$from/util/fi_rpmemd" --port "$port" --port-file ready "$@" vol \
		>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 400); do
		[ -e ready ] && break
		kill -0 $daemon 2>/dev/null || break
		sleep 0.05
	done
	[ -e ready ] || { cat daemon.out; echo "FAIL: no daemon"; exit 1; }
	port=$(cat ready)
}

# stop SIGNAL: end the daemon
stop()
{
	kill -"$1" $daemon
	wait $daemon 2>/dev/null
	daemon=
}

# Data, a hole, and data: a target that can make zeros gets none by the network.
head -c 3000000 /dev/urandom >src
truncate -s 9000000 src
head -c 1500000 /dev/urandom >>src

# copy BUILD: copy with its client to the pool, and back.
copy()
{
	"$1/util/fi_rpmem_cp" --class "$class" --chunk 64K --verify src \
		127.0.0.1:"$port":vol && read_back "$1"
}

# read_back BUILD: with its client, copy back what the former daemon stored.
read_back()
{
	rm -f back
	"$1/util/fi_rpmem_cp" --class "$class" 127.0.0.1:"$port":vol back &&
		cmp src back
}

serve "$old" --create 64M
class=power
grep -q '^vol .* power ' daemon.out || class=process
ok "copies with this client to the daemon of $before" copy "$new"
stop KILL
serve "$new"
ok "the pool of $before, killed, is opened by this daemon" read_back "$new"
ok "copies with the client of $before to this daemon" copy "$old"
stop TERM
serve "$old"
ok "the pool of this daemon is opened by that of $before" read_back "$old"

# A rolling upgrade while a client works: the daemon is replaced, and replaced
# back. The client expects a pool of zeros.
stop TERM
rm vol
serve "$old" --create 64M
"$new/fabtests/fault/pool_writer" 127.0.0.1:"$port":vol "$class" 600 write \
	>writer.out 2>&1 &
writer=$!
for at in 100 200 300 400; do
	while ! grep -q "^round $at$" writer.out; do
		kill -0 $writer 2>/dev/null || break
		sleep 0.02
	done
	stop TERM
	case $at in 100 | 300) serve "$new" ;; *) serve "$old" ;; esac
done
wait_writer()
{
	wait $writer
	code=$?
	writer=
	cat writer.out
	[ $code -eq 0 ] && grep -q '^[1-9][0-9]* reconnects' writer.out
}
ok "a client of this release lives through upgrade and downgrade" wait_writer
exit $failed
