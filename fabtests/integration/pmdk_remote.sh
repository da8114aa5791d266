#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The test programs of remote replication of PMDK 1.12.1, from its source tree
# where they are built, on librpmem.so.1 of this build. The programs run on this
# host; a stand-in for ssh runs fi_rpmemd --one-shot here, too. The arguments are
# those of PMDK's scripts with the same number, with pool sets of one part.
# usage: pmdk_remote.sh [--build DIR] PMDK [REGEX]    REGEX: only these cases
set -u
build=$PWD
[ "${1:-}" != --build ] || { build=$(cd "$2" && pwd) || exit 99; shift 2; }
tests=${1:?usage: pmdk_remote.sh [--build DIR] PMDK [REGEX]}/src/test
only=${2:-.}
tests=$(cd "$tests" && pwd) || exit 99
pmempool=$tests/../tools/pmempool/pmempool
cli=$tests/tools/pmemobjcli/pmemobjcli
verify=$tests/tools/obj_verify/obj_verify
examples=$tests/../examples/librpmem
[ -e "$build/util/.libs/librpmem.so.1" ] || {
	echo "SKIP: no librpmem.so.1 in $build"
	exit 77
}
dir=$(mktemp -d ./pmdk.XXXXXX) || exit 99
cd "$dir" || exit 99
here=$PWD
trap 'cd .. && rm -rf "$dir"' EXIT
cat >ssh <<'S'
#!/bin/sh
for last; do :; done
exec sh -c "$last"
S
cat >serve <<S
#!/bin/sh
echo \$\$ >$here/pid
exec $build/util/fi_rpmemd --one-shot=$here/sets
S
mkdir bin
# rpmem_basic runs ssh by this name, to kill the daemon.
cat >bin/ssh <<'S'
#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
shift
exec sh -c "$*"
S
chmod +x ssh serve bin/ssh
PATH=$here/bin:$PATH
RPMEM_SSH=$here/ssh RPMEM_CMD=$here/serve
LD_LIBRARY_PATH=$build/util/.libs:$tests/../nondebug
# The library cannot be unloaded, so its files stay open until the end.
UNITTEST_NAME=pmdk UNITTEST_NUM=0 UNITTEST_DO_NOT_CHECK_OPEN_FILES=1
UNITTEST_LOG_LEVEL=2
export PATH RPMEM_SSH RPMEM_CMD LD_LIBRARY_PATH UNITTEST_NAME UNITTEST_NUM
export UNITTEST_DO_NOT_CHECK_OPEN_FILES UNITTEST_LOG_LEVEL
at=127.0.0.1
passed=0 failed=0 skipped=0 name='' wrong=''

# --- one case: begin NAME PROGRAM, its steps, end
begin()
{
	name=$1 wrong=''
	echo "$name" | grep -qE "$only" || return 1
	rm -rf sets parts ./*.log
	mkdir -p sets/sub parts
	[ -x "$2" ] || {
		echo "ok $name # SKIP ${2#"$tests"/} is not built"
		skipped=$((skipped + 1))
		return 1
	}
}

end()
{
	if [ -z "$wrong" ]; then
		echo "ok $name"
		passed=$((passed + 1))
	else
		echo "not ok $name:$wrong"
		failed=$((failed + 1))
		cat out err0.log out0.log 2>/dev/null
	fi
}

# fails TEXT PROGRAM ARGUMENT...: the program must fail by itself, with this text
fails()
{
	text=$1
	shift
	timeout 300 "$@" >out 2>&1
	case $? in
	0 | 124) wrong="$wrong ${1##*/} does not fail;" ;;
	*) grep -q -- "$text" out || wrong="$wrong ${1##*/} does not say '$text';" ;;
	esac
}

# runs PROGRAM ARGUMENT...: the program must exit with 0
runs()
{
	timeout 300 "$@" >out 2>&1 || wrong="$wrong ${1##*/} ends with $?;"
}

# has LINE...: the program must have printed these lines about its pools
has()
{
	printf '%s\n' "$@" >want
	grep -E '^[a-z/A-Z0-9]+\.set: |^set attributes' out0.log >have
	cmp -s want have || {
		wrong="$wrong other lines than expected;"
		diff want have
	}
}

# set NAME SIZE [OPTION]: write a pool set with one part
set_of()
{
	printf 'PMEMPOOLSET\n%s %s/parts/%s\n' "$2" "$here" "$(basename "$1")" >"sets/$1"
	[ -z "${3:-}" ] || echo "OPTION $3" >>"sets/$1"
}

# replicated SIZE: write a local pool set with a replica, which is longer
replicated()
{
	printf 'PMEMPOOLSET\n%s %s/local\nREPLICA %s remote.set\n' "$1" "$here" "$at" >pool.set
	set_of remote.set "${2:-$1}"
	rm -f local local2
}

# rows LINE...: write the local pool set
rows()
{
	{ echo PMEMPOOLSET; printf '%s\n' "$@"; } >pool.set
	rm -f local*
}

# dump FILE [PART]: write the part of the pool's description that PMDK's scripts
# compare
dump()
{
	"$pmempool" info -f obj -soOaAb -l -Z -H -C "${2:-local}" |
		sed '/^UUID/,/^Checksum/d; /^path/d; /^size/d' >"$1"
	# Without -f, pmempool prints the header of a part only.
	grep -q '^Chunks per zone' "$1" || wrong="$wrong no heap in ${2:-local};"
}

# restored: delete the local part and restore it from the replica, unchanged
restored()
{
	dump before
	rm local
	runs "$pmempool" sync pool.set
	dump after
	[ -s before ] && diff before after || wrong="$wrong the copies differ;"
}

# alike NAME...: `local`, local replicas, and the parts of remote replicas (*.set)
# have the same content
alike()
{
	size=$(stat -c %s local)
	dump before
	for other; do
		copy=$other
		# fi_rpmemd's own pages are in front; the header is librpmem's.
		case $other in *.set)
			copy=replica
			{
				head -c 4096 local
				tail -c +$((65536 + 4096 + 1)) "parts/$other" |
					head -c $((size - 4096))
			} >replica ;;
		esac
		dump after "$copy"
		[ -s before ] && diff before after || wrong="$wrong $other differs;"
	done
}

basic=$tests/rpmem_basic/rpmem_basic
# pools BASIC-ARGUMENTS...: run with three kinds of pool: with a header, with
# one header for all parts, and without headers. @ stands for the kind's option.
pools()
{
	for i in 0 1 2; do
		case $i in 0) o=none ;; 1) o=singlehdr ;; 2) o=noattr ;; esac
		# shellcheck disable=SC2046
		runs "$basic" $(echo "$*" | sed "s/SET/pool$i.set/g; s/@/$o/g; s/AT/$at/g")
		[ ! -e out0.log ] || cat out0.log >>all.log
	done
}

three()
{
	set_of pool0.set 16M
	set_of pool1.set 16M SINGLEHDR
	set_of pool2.set 16M NOHDRS
}

M='8M'
if begin rpmem_basic/TEST0 "$basic"; then
	three
	set_of sub/pool3.set 16M
	set_of pool4.set 16M
	rm sets/pool4.set
	cp sets/pool1.set sets/pool5.set
	runs "$basic" \
		test_create 0 poolX.set $at pool $M none \
		test_create 0 pool0.set $at pool 32M none \
		test_create 0 pool0.set $at pool $M none test_close 0 \
		test_create 0 pool0.set $at pool $M none \
		test_create 0 sub/pool3.set $at mem $M none test_close 0 \
		test_create 0 pool1.set $at mem $M singlehdr \
		test_create 1 pool1.set $at mem $M singlehdr \
		test_create 2 pool5.set $at mem $M singlehdr test_close 0 \
		test_create 0 pool2.set $at pool $M noattr test_close 0 \
		test_create 0 pool1.set $at pool $M noattr \
		test_create 0 pool2.set $at pool $M none
	has 'poolX.set: No such file or directory' 'pool0.set: File too large' \
		'pool0.set: created' 'pool0.set: File exists' \
		'sub/pool3.set: created' 'pool1.set: created' \
		'pool1.set: Device or resource busy' \
		'pool5.set: Device or resource busy' 'pool2.set: created' \
		'pool1.set: Invalid argument' 'pool2.set: Invalid argument'
	end
fi
if begin rpmem_basic/TEST1 "$basic"; then
	three
	pools test_create 0 SET AT pool $M @ test_close 0
	runs "$basic" \
		test_open 0 poolX.set $at pool $M init none \
		test_open 0 pool0.set $at pool 32M init none \
		test_open 0 pool0.set $at pool $M init none \
		test_open 1 pool0.set $at pool $M init none test_close 0 \
		test_open 0 pool1.set $at pool $M init singlehdr test_close 0 \
		test_open 0 pool2.set $at mem $M init noattr test_close 0
	has 'poolX.set: No such file or directory' 'pool0.set: File too large' \
		'pool0.set: opened' 'pool0.set: Device or resource busy' \
		'pool1.set: opened' 'pool2.set: opened'
	end
fi
# TEST2 to 4, 13, 14, 17, 20 and 22: do the operations, then read the pool.
again="test_close 0 test_open 0 SET AT pool $M init @ test_read 0 4321 test_close 0"
while read -r number steps; do
	begin "rpmem_basic/TEST$number" "$basic" || continue
	three
	# shellcheck disable=SC2086
	pools test_create 0 SET AT mem $M @ test_close 0 \
		test_open 0 SET AT pool $M init @ $steps $again
	end
done <<'S'
2 test_persist 0 4321 1 1 0
3 test_persist 0 4321 1 1 1
4 test_persist 0 4321 8 8 0
17 test_persist 0 4321 8 8 1
14 test_deep_persist 0 4321 8 8
20 test_flush 0 4321 1 1 1 test_drain 0 1
22 buff_limit 0 4096 512 test_flush 0 99 1 8 0 test_drain 0 1 buff_limit 0 8388544 64 test_persist 0 77 1 1 0 buff_reset 0 test_flush 0 4321 8 8 0 test_drain 0 8 test_persist 0 4321 1 1 1
S
for r in 0 1; do
	begin "rpmem_basic/TEST$((13 + 3 * r)) (relaxed $r)" "$basic" || continue
	three
	pools test_create 0 SET AT mem $M @ test_close 0
	runs "$basic" test_open 0 pool0.set $at pool $M init none \
		test_persist_header 0 hdr $r test_close 0
	runs "$basic" test_open 0 pool1.set $at pool $M init singlehdr \
		test_persist_header 0 hdr $r test_close 0
	runs "$basic" test_open 0 pool2.set $at pool $M init noattr \
		test_persist_header 0 nohdr $r test_close 0
	end
done
if begin rpmem_basic/TEST6 "$basic"; then
	three
	pools test_create 0 SET AT mem $M @ test_close 0 test_remove AT SET 0 0 \
		test_create 0 SET AT mem $M @ test_close 0 test_remove AT SET 1 0 \
		test_create 0 SET AT mem $M @ test_close 0 test_remove AT SET 0 1
	[ "$(grep -c created all.log)" = 9 ] || wrong="$wrong pools are missing;"
	[ -z "$(ls parts)" ] && [ ! -e sets/pool0.set ] && [ ! -e sets/pool2.set ] ||
		wrong="$wrong files are left;"
	end
fi
if begin rpmem_basic/TEST9 "$basic"; then
	three
	for o in 0:none 1:singlehdr; do
		n=pool${o%%:*}.set o=${o#*:}
		runs "$basic" test_create 0 $n $at pool $M $o test_close 0 \
			test_open 0 $n $at pool $M init $o test_set_attr 0 alt $o \
			test_close 0 test_open 0 $n $at pool $M alt $o test_close 0
		has "$n: created" "$n: opened" 'set attributes succeeded (alt)' "$n: opened"
	done
	runs "$basic" test_create 0 pool2.set $at pool $M noattr test_close 0 \
		test_open 0 pool2.set $at pool $M init noattr \
		test_set_attr 0 alt none test_close 0 \
		test_open 0 pool2.set $at pool $M alt noattr test_close 0
	has 'pool2.set: created' 'pool2.set: opened' 'set attributes failed (alt)' \
		'pool2.set: opened'
	end
fi
if begin rpmem_basic/TEST12 "$basic"; then
	three
	runs "$basic" test_create 0 pool0.set $at pool $M none test_close 0
	for steps in 'wait' 'nowait' 'wait test_persist 0 4321 1 1 0' \
		'nowait test_persist 0 4321 1 1 0' 'wait test_read 0 1' \
		'nowait test_read 0 1'; do
		# shellcheck disable=SC2086
		runs "$basic" test_open 0 pool0.set $at pool $M init none \
			rpmemd_terminate 0 "$here/pid" $steps test_close 0
	done
	end
fi

ext=$tests/rpmem_addr_ext/rpmem_addr_ext
if begin rpmem_addr_ext/TEST0 "$ext"; then
	runs "$ext" "$tests/rpmem_addr_ext/targets.in"
	end
fi

integration=$tests/obj_basic_integration/obj_basic_integration
for size in '16M 17M' '17M 17M'; do
	begin "obj_rpmem_basic_integration (${size% *})" "$integration" || continue
	# shellcheck disable=SC2086
	replicated $size
	runs "$integration" pool.set
	restored
	end
done
if begin obj_rpmem_basic_integration/TEST1 "$integration"; then
	# The local file exists, with holes. A remote one would be no pool of
	# fi_rpmemd: see docs/testing.md.
	replicated 16M 17M
	truncate -s 16M local
	runs "$integration" pool.set
	alike remote.set
	end
fi
if begin obj_rpmem_basic_integration/TEST2 "$integration"; then
	rows "8M $here/local.1" "8M $here/local.2" REPLICA "16M $here/local" \
		"REPLICA $at remote.set"
	set_of remote.set 18M
	runs "$integration" pool.set
	alike remote.set
	end
fi
if begin obj_rpmem_basic_integration/TEST4 "$integration"; then
	replicated 16M 18M
	printf 'REPLICA\n20M %s/parts/other\n' "$here" >>sets/remote.set
	fails 'Input/output error' "$integration" pool.set
	[ -z "$(ls parts)" ] || wrong="$wrong a file is left;"
	end
fi
for number in 5 6; do
	begin "obj_rpmem_basic_integration/TEST$number" "$integration" || continue
	rows "16M $here/local" "REPLICA $at first.set" "REPLICA $at second.set"
	set_of first.set 17M
	set_of second.set 17M
	[ $number = 5 ] || truncate -s 16M local
	runs "$integration" pool.set
	alike first.set second.set
	end
done
if begin obj_rpmem_basic_integration/TEST8 "$integration"; then
	rows "16M $here/local" "REPLICA $at first.set" "REPLICA $at second.set"
	set_of first.set 18M
	set_of second.set 17M
	printf 'REPLICA\n20M %s/parts/other\n' "$here" >>sets/first.set
	fails 'Input/output error' "$integration" pool.set
	end
fi
heap=$tests/obj_heap_state/obj_heap_state
if begin obj_rpmem_heap_state "$heap"; then
	replicated 32M 33M
	runs "$heap" pool.set
	restored
	end
fi
if begin obj_rpmem_heap_state/TEST2 "$heap"; then
	rows "8M $here/local" REPLICA "9M $here/local.2" "REPLICA $at remote.set"
	set_of remote.set 9M
	PMEM_IS_PMEM_FORCE=1 runs "$heap" pool.set
	alike local.2 remote.set
	end
fi
check=$tests/obj_check_remote/obj_check_remote
if begin obj_check_remote/TEST0 "$check"; then
	replicated 64M
	runs "$pmempool" create obj pool.set
	"$check" pool.set abort >out 2>&1 && wrong="$wrong it does not abort;"
	for _ in $(seq 600); do
		kill -0 "$(cat pid)" 2>/dev/null || break
		sleep 0.05
	done
	before=$(tail -c +65537 parts/remote.set | md5sum)
	runs "$check" pool.set check
	[ "$before" = "$(tail -c +65537 parts/remote.set | md5sum)" ] ||
		wrong="$wrong the check changes the replica;"
	end
fi
remove=$tests/libpmempool_rm/libpmempool_rm
while read -r number options left; do
	begin "libpmempool_rm_remote/TEST$number" "$remove" || continue
	replicated 16M
	runs "$pmempool" create obj pool.set
	[ "$options" != none ] || options=''
	# shellcheck disable=SC2086
	runs "$remove" $options pool.set
	have=$(find local parts/* pool.set sets/* -type f 2>/dev/null | sort | paste -sd' ' -)
	[ "$have" = "$left" ] || wrong="$wrong '$have' is left, not '$left';"
	end
done <<'S'
0 none pool.set sets/remote.set
1 -l sets/remote.set
2 -lr
S
if begin libpmempool_rm_remote/TEST4 "$remove"; then
	replicated 16M
	runs "$pmempool" create obj pool.set
	# The program opens the pool, and then removes it.
	runs "$remove" -o pool.set
	runs "$remove" -of pool.set
	[ -e local ] && [ -e parts/remote.set ] || wrong="$wrong files are missing;"
	end
fi

# The programs of pmempool_*_remote: pmempool and pmemobjcli.
filled()
{
	replicated "$1" "$2"
	runs "$pmempool" create obj pool.set
	runs "$cli" -s "$tests/pmempool_sync_remote/pmemobjcli.script" pool.set
}
if begin pmempool_info_remote/TEST0 "$pmempool"; then
	replicated 16M
	runs "$pmempool" create obj pool.set
	runs "$pmempool" info pool.set
	grep -q "node *: $at" out || wrong="$wrong no replica is shown;"
	end
fi
if begin pmempool_rm_remote/TEST0 "$pmempool"; then
	replicated 16M
	runs "$pmempool" create obj pool.set
	runs "$pmempool" rm -r -f pool.set
	[ ! -e local ] && [ ! -e parts/remote.set ] || wrong="$wrong files are left;"
	end
fi
if begin pmempool_sync_remote "$cli"; then
	filled 24M 25M
	restored
	rm parts/remote.set
	runs "$pmempool" sync pool.set
	restored
	end
fi
if begin pmempool_transform_remote "$cli"; then
	filled 24M 25M
	printf 'PMEMPOOLSET\n24M %s/local\n' "$here" >alone.set
	runs "$pmempool" transform pool.set alone.set
	[ ! -e parts/remote.set ] || wrong="$wrong the replica is left;"
	runs "$pmempool" transform alone.set pool.set
	restored
	end
fi
# described FILE: write what PMDK's script compares of both local replicas
described()
{
	for r in 0 1; do
		"$pmempool" info -lHZCOoAa -p $r pool.set |
			sed '/^Checksum/d; /^Creation/d' >"$1.$r"
	done
}

# Both local copies are lost, and made again from the remote one.
if begin pmempool_sync_remote/TEST7 "$pmempool"; then
	rows "10M $here/local" REPLICA "20M $here/local.2" "REPLICA $at remote.set"
	set_of remote.set 21M
	runs "$pmempool" create obj pool.set
	described before
	sum=$(tail -c +65537 parts/remote.set | md5sum)
	rm local local.2
	runs "$pmempool" sync pool.set
	described after
	for r in 0 1; do
		[ -s before.$r ] && diff before.$r after.$r ||
			wrong="$wrong replica $r differs;"
	done
	[ "$sum" = "$(tail -c +65537 parts/remote.set | md5sum)" ] ||
		wrong="$wrong sync changes the remote replica;"
	end
fi
# TEST26 to 31: bad blocks that a recovery file of `pmempool sync` names. Only a
# libpmempool with libndctl reads that file, such as an installed one.
ndctl=$pmempool libs=$LD_LIBRARY_PATH
ldd "$pmempool" | grep -q libndctl || {
	ndctl=$(command -v pmempool) libs=$build/util/.libs
}
bad_blocks()
{
	number=$1 feature=$2 block=$3
	shift 3
	begin "pmempool_sync_remote/TEST$number" "$verify" || return
	[ -n "$ndctl" ] || {
		echo "ok $name # SKIP no pmempool is built with libndctl"
		skipped=$((skipped + 1))
		return
	}
	LD_LIBRARY_PATH=$libs
	n=0 parts='' PREFIX=$here/pool.set_r0_p
	for bad; do
		parts="$parts|8M $here/local.$n"
		n=$((n + 1))
	done
	echo "${parts#|}" | tr '|' '\n' >alone
	# shellcheck disable=SC2046
	(IFS='
'
		rows $(cat alone) "REPLICA $at remote.set")
	set_of remote.set $((8 * n + 1))M
	runs "$verify" pool.set layout c v
	if [ "$feature" = 1 ]; then
		{ echo PMEMPOOLSET; cat alone; } >alone.set
		runs "$ndctl" feature -e CHECK_BAD_BLOCKS alone.set
	fi
	n=0
	for bad; do
		{
			[ "$bad" = 0 ] || echo "$((block * 4096)) 4096"
			echo 0 0
		} >"$PREFIX${n}_badblocks.txt"
		[ "$bad" = 0 ] || dd if=/dev/zero of=local.$n bs=4096 \
			seek="$block" count=1 conv=notrunc status=none
		n=$((n + 1))
	done
	timeout 300 "$verify" pool.set layout v >out 2>&1 &&
		wrong="$wrong the bad block is not noticed;"
	runs "$ndctl" sync -b -v pool.set
	runs "$verify" pool.set layout v
	end
}
bad_blocks 26 1 0 1
bad_blocks 27 1 1000 1
bad_blocks 28 1 0 0 1 0
bad_blocks 29 1 1000 0 1 0
bad_blocks 30 0 0 1 1 1
bad_blocks 31 0 1000 1 1 1
LD_LIBRARY_PATH=$build/util/.libs:$tests/../nondebug

# TEST2 removes one of two remote replicas, TEST3 adds the second one.
for number in 2 3; do
	begin "pmempool_transform_remote/TEST$number" "$cli" || continue
	scripts=$tests/pmempool_transform_remote
	rows "20M $here/local" "REPLICA $at first.set" "REPLICA $at second.set"
	cp pool.set two.set
	grep -v "$([ $number = 2 ] && echo first || echo second)" two.set >one.set
	set_of first.set 21M
	set_of second.set 21M
	[ $number = 2 ] && from=two.set to=one.set || from=one.set to=two.set
	runs "$pmempool" create obj $from
	runs "$cli" -s "$scripts/pmemobjcli.write.script" $from
	runs "$cli" -s "$scripts/pmemobjcli.read.script" $from
	cp out read.before
	runs "$pmempool" transform $from $to
	runs "$cli" -s "$scripts/pmemobjcli.read.script" $to
	cmp -s out read.before || wrong="$wrong objects are read differently;"
	if [ $number = 2 ]; then
		[ ! -e parts/first.set ] || wrong="$wrong the replica is left;"
		alike second.set
	else
		alike first.set second.set
	fi
	end
done

# PMDK's examples of librpmem
if begin ex_librpmem_basic/TEST0 "$examples/basic"; then
	set_of pool.set 32M
	for verb in create open remove; do
		runs "$examples/basic" $verb $at pool.set
	done
	fails 'rpmem_open: ' "$examples/basic" open $at pool.set
	fails 'removing pool failed: ' "$examples/basic" remove $at pool.set
	runs "$examples/basic" create $at pool.set
	fails 'rpmem_create: ' "$examples/basic" create $at pool.set
	end
fi
if begin ex_librpmem_hello/TEST0 "$examples/hello"; then
	set_of pool.set 32M
	for _ in 1 2 3 4; do
		runs "$examples/hello" $at pool.set
		cat out
	done | grep -A 1 '^read' >hello.out
	[ "$(grep -c '^.' hello.out)" -ge 3 ] || wrong="$wrong nothing is read;"
	end
fi
if begin ex_librpmem_manpage/TEST0 "$examples/manpage"; then
	set_of pool.set 32M
	runs "$examples/manpage" $at pool.set
	end
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
