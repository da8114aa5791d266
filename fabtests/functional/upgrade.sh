#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# This release and the one before it read and write each other's pools, logs, rings
# of calls, groups of pools and pages of counters, in both directions, and a client
# of either continues while its daemon is replaced. Builds the newest tag vN before
# HEAD, or without one the reference commit of docs/versions.md, so it runs with
# RP_LONG=1 only. RP_BEFORE=REF: another commit.
set -u
src=$(cd "${srcdir:-..}" && pwd) || exit 99
dir=$(mktemp -d ./upgrade.XXXXXX) || exit 99
dir=$(cd "$dir" && pwd)
new=$PWD
daemon='' writer='' members='' failed=0 n=0

finish()
{
	for pid in $daemon $writer $members; do
		kill -9 "$pid" 2>/dev/null
	done
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

# tag_before REPOSITORY: print the newest tag of a release before HEAD.
tag_before()
{
	git -C "$1" describe --abbrev=0 --tags --match 'v[0-9]*' HEAD^ 2>/dev/null
}

# expect_tag WHAT TAG: tag_before finds this tag of the scratch repository.
expect_tag()
{
	[ "$(tag_before "$dir/tags")" = "$2" ] && return
	echo "FAIL: $1: the tag before is '$(tag_before "$dir/tags")', not '$2'"
	exit 1
}

# scratch ARGUMENT...: run git in the scratch repository.
scratch()
{
	git -C "$dir/tags" -c user.name=x -c user.email=x@example.org "$@" \
		>/dev/null 2>&1 || exit 99
}
if command -v git >/dev/null; then
	mkdir "$dir/tags"
	scratch init
	for at in 1 2 3; do
		scratch commit --no-verify --allow-empty -m "$at"
	done
	expect_tag "no tag" ""
	scratch tag v0.3.0
	expect_tag "a tag of HEAD only" ""
	scratch tag -a -m annotated v0.1.0 HEAD^^
	scratch tag nightly HEAD^
	expect_tag "a tag that names no release is nearer" v0.1.0
	scratch tag v0.2.0 HEAD^
	expect_tag "the nearest of two" v0.2.0
fi

git -C "$src" rev-parse --git-dir >/dev/null 2>&1 ||
	skip "no git repository here, so no earlier release can be built"
before=${RP_BEFORE:-$(tag_before "$src")}
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
	tools=$(grep -o '^util/fi_rpmem_group' Makefile | head -n 1) &&
	make -j2 util/fi_rpmemd util/fi_rpmem_cp util/fi_rpmem_info $tools \
		prov/rpmem/librpmem-fi.la fabtests/fault/pool_writer \
		fabtests/fault/log_writer fabtests/fault/rpc_peer \
		fabtests/functional/group_client) \
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

stop TERM

# name BUILD: print which release that is.
name()
{
	case $1 in "$old") echo "$before" | cut -c1-12 ;; *) echo "this release" ;; esac
}

# other BUILD: print the build of the other release.
other()
{
	[ "$1" = "$old" ] && echo "$new" || echo "$old"
}

# loads PID BUILD: has the process loaded libraries of this build only? Both builds
# have libraries of the same names, and $old is a folder below $new.
loads()
{
	grep -o "$new/.*\.libs/lib.*" "/proc/$1/maps" | sort -u >libs
	grep "^$old/" libs >libs.old
	[ -s libs ] || return
	case $2 in
	"$old") cmp libs libs.old ;;
	*) [ ! -s libs.old ] || { cat libs; return 1; } ;;
	esac
}

# await WORD COUNT FILE PID: wait until that many lines of the file begin with the
# word, while the process runs.
await()
{
	while [ "$(grep -c "^$1 " "$3")" -lt "$2" ]; do
		kill -0 "$4" 2>/dev/null || return 1
		sleep 0.02
	done
}

# last_of WORD FILE: print the number in the last line that begins with the word.
last_of()
{
	sed -n "s/^$1 //p" "$2" | tail -n 1
}

# end PID...: kill the processes.
end()
{
	kill -9 "$@" 2>/dev/null
	wait "$@" 2>/dev/null
}

# A rolling upgrade while a client works: the daemon is replaced, and replaced
# back. The client expects a pool of zeros.
# lives BUILD: a client of this release goes on under four exchanges of the daemon.
lives()
{
	rm -f vol
	serve "$old" --create 64M
	"$1/fabtests/fault/pool_writer" 127.0.0.1:"$port":vol "$class" 600 write \
		>writer.out 2>&1 &
	writer=$!
	for at in 100 200 300 400; do
		while ! grep -q "^round $at$" writer.out; do
			kill -0 $writer 2>/dev/null || break
			sleep 0.02
		done
		# A client that has ended by a later round has no maps.
		[ $at != 100 ] || loads $writer "$1" || { cat writer.out; return 1; }
		stop TERM
		case $at in 100 | 300) serve "$new" ;; *) serve "$old" ;; esac
	done
	wait $writer
	code=$?
	writer=
	cat writer.out
	stop TERM
	[ $code -eq 0 ] && grep -q '^[1-9][0-9]* reconnects' writer.out
}
for client in "$new" "$old"; do
	ok "a client of $(name "$client") lives through upgrade and downgrade" lives "$client"
	[ -z "$daemon" ] || stop KILL
done

# count BUILD: print the commits that its fi_rpmem_info reads from the daemon's page.
count()
{
	"$1/util/fi_rpmem_info" --prometheus --stats=$daemon |
		sed -nE 's/^ofi_rpmem_commit_seconds_count\{.*pool="vol".*\} //p'
}

# counters BUILD: the page of counters of a daemon of this release is read by that
# of the other one, unless it has another version, which is skipped.
counters()
{
	"$new/util/fi_rpmem_cp" --class "$class" src 127.0.0.1:"$port":vol || return
	own=$(count "$1") read=$(count "$(other "$1")" 2>&1)
	[ "$(constant prov/core/stats.h RP_STATS_VERSION)" = "$(sed -nE \
		's/^#define RP_STATS_VERSION[[:space:]]+([0-9]+).*/\1/p' \
		"$dir/old/prov/core/stats.h")" ] ||
		case $read in *"no counters"*) read=$own ;; esac
	echo "counted '$own', read '$read'"
	[ "$read" = "$own" ] && [ "$own" != 0 ]
}
for target in "$old" "$new"; do
	rm -f vol
	serve "$target" --create 64M
	ok "fi_rpmem_info of $(name "$(other "$target")") reads the counters of a daemon of $(name "$target")" \
		counters "$target"
	stop TERM
done

# append BUILD: with its client, append to the log until 100 entries are
# acknowledged, and kill the client. Both releases find them.
append()
{
	: >log.out
	"$1/fabtests/fault/log_writer" "127.0.0.1:$port:vol" append >log.out 2>&1 &
	writer=$!
	await acked 100 log.out $writer && loads $writer "$1"
	code=$?
	end $writer
	writer=
	[ $code = 0 ] || { cat log.out; return 1; }
	for reader in "$old" "$new"; do
		"$reader/fabtests/fault/log_writer" "127.0.0.1:$port:vol" check \
			>check.out 2>&1 || { cat check.out; return 1; }
		[ "$(last_of last check.out)" -ge "$(last_of acked log.out)" ] || {
			echo "$(last_of acked log.out) was acknowledged"
			cat check.out
			return 1
		}
	done
}

# log_of BUILD LAYOUT: a log that this release makes is appended to by the other
# one and by this one again, on a daemon of each.
log_of()
{
	rm -f vol
	serve "$1" --create 2M
	"$1/fabtests/fault/log_writer" "127.0.0.1:$port:vol" create "$2" &&
		append "$1" && append "$(other "$1")" || return
	stop KILL
	serve "$(other "$1")"
	append "$1" && append "$(other "$1")"
}
for maker in "$old" "$new"; do
	for layout in 0 1 2 3; do
		[ "$class" = power ] || break
		ok "a log of $(name "$maker"), layout $layout, is read and continued by both releases" \
			log_of "$maker" $layout
		stop KILL
	done
done

# call SERVER CLIENT: go on with the calls in the ring until there are 100 replies,
# with the server of one build and the client of another, and kill both: some calls
# are outstanding. The server compares each call with the last one that it processed.
call_port=0 acked=0
call()
{
	: >serve.out
	: >call.out
	"$1/fabtests/fault/rpc_peer" serve ring $call_port state >serve.out 2>&1 &
	daemon=$!
	await port 1 serve.out $daemon || { cat serve.out; return 1; }
	call_port=$(last_of port serve.out)
	"$2/fabtests/fault/rpc_peer" call "127.0.0.1:$call_port:ring" key \
		>call.out 2>&1 &
	writer=$!
	await replied 100 call.out $writer && loads $writer "$2" && loads $daemon "$1"
	code=$?
	end $writer $daemon
	daemon='' writer=''
	grep WRONG serve.out call.out && code=1
	resumed=$(last_of resume call.out)
	[ $code = 0 ] && [ "${resumed:-0}" -ge "$acked" ] || {
		echo "$acked was acknowledged"
		head -n 5 serve.out call.out
		return 1
	}
	acked=$(last_of acked call.out)
}
for both in "$old $old" "$new $old" "$old $new" "$new $new" "$old $old"; do
	[ "$class" = power ] || break
	ok "the ring of calls goes on: server of $(name "${both% *}"), client of $(name "${both#* }")" \
		call "${both% *}" "${both#* }"
done

# member BUILD POOL: start a daemon of a pool, always on the same port.
member()
{
	was=$(cat "port.$2" 2>/dev/null || echo 0)
	rm -f "port.$2"
	"$1/util/fi_rpmemd" --create 16M --port "$was" --port-file "port.$2" "$2" \
		>>daemon.out 2>&1 &
	members="$members $!"
	for _ in $(seq 400); do
		[ -e "port.$2" ] && return
		kill -0 $! 2>/dev/null || break
		sleep 0.05
	done
	cat daemon.out
	echo "FAIL: no daemon"
	exit 1
}

# The set-up request by which a client of a group brings a member up to date, OPEN
# with bit 4, is newer than the reference commit (docs/versions.md).
compares=
grep -q 'bit 4 compare' "$dir/old/util/setup.h" && compares=1

# group CLIENT BUILD BUILD BUILD: a client takes a group of three members with
# these daemons, reads what the last one wrote, and writes. All members become
# current, or, for a member whose daemon lacks that request, the other two.
written=
group()
{
	client=$1 current=3
	member "$2" g0
	member "$3" g1
	member "$4" g2
	[ "$1" = "$old" ] || [ -n "$compares" ] ||
		case "$* " in *" $old "*) current=2 ;; esac
	place="127.0.0.1:$(cat port.g0):g0,127.0.0.1:$(cat port.g1):g1,127.0.0.1:$(cat port.g2):g2;k=2"
	: >group.out
	{
		printf '%s\n' "r 0 ${#written}" "d 0 by $n"
		# The last member is opened in the background.
		for _ in $(seq 400); do
			grep -q "^0 $current of 3" group.out && break
			echo q
			sleep 0.05
		done
	} | "$client/fabtests/functional/group_client" "$place" take >>group.out
	uniq group.out
	[ -z "$written" ] || grep -qx "0 $written" group.out || return
	grep -q "^0 $current of 3" group.out || return
	written="by $n"
	for build in "$old" "$new"; do
		[ $current = 3 ] && [ -x "$build/util/fi_rpmem_group" ] || continue
		"$build/util/fi_rpmem_group" status "$place" &&
			"$build/util/fi_rpmem_group" scrub --quiet "$place" || return
	done
}
for order in "$old $old $old $new" "$new $new $new $old" "$old $old $old $new" \
	"$new $new $new $new"; do
	# shellcheck disable=SC2086 # a list
	set -- $order
	ok "a group with a client of $(name "$1"), and members of $(name "$2"), $(name "$3"), $(name "$4")" \
		group "$@"
	# shellcheck disable=SC2086 # a list
	end $members
	members=
done
exit $failed
