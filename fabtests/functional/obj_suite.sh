# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the suites of librpmem.so.1: programs of libpmemobj and pmempool.
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
case ${RP_SANITIZE:-} in ?*)
	echo "SKIP: libpmemobj loads the library without a sanitizer's runtime"
	exit 77 ;;
esac
command -v pmempool >/dev/null && [ -x fabtests/functional/obj_replica ] || {
	echo "SKIP: no libpmemobj 1.12 with its tools"
	exit 77
}

# Seconds after which a program hangs. A correct one ends by itself, and recovers
# or rebuilds these pools within 7 seconds on a busy machine
# (docs/measurements.md), so the limit is 40 times as long.
hang=300

# Limit of await(), for the same reason.
attempts=15000

# obj_enter NAME: as enter
obj_enter()
{
	enter "$1"
	unset RPMEM_SECRET RPMEM_CLASS RPMEM_SSH RPMEM_CMD
	transactions=$top/fabtests/functional/obj_replica
	make_dump
}

# PMDK's own tests compare replicas by what `pmempool info` prints of them: logs,
# heap, headers, bitmaps, and the bytes of all objects. It prints 16 bytes behind
# each object, too, which may belong to a free block; libpmemobj does not
# replicate these.
make_dump()
{
	cat >dump.py <<'P'
import re
import subprocess
import sys

args = ["-f", "obj", "-soOaAbd", "-l", "-Z", "-H", "-C"]
text = subprocess.run(["pmempool", "info"] + args + [sys.argv[1]],
                      timeout=int(sys.argv[2]), capture_output=True, check=True,
                      text=True).stdout
assert "Heap Header" in text and "Number of objects" in text, text[:2000]
start, end, free = 0, 1 << 64, False
for line in text.splitlines():
    field = re.match(r" *(Offset|Size) +: (\S+)$", line)
    if field and field[1] == "Offset":
        start = int(field[2], 16)
    elif field and "x" not in field[2]:
        end = start + int(field[2])
    # libpmemobj sets the header flags of a free chunk before it persists them: a
    # kill in between leaves them in the local copy only, and no block uses them.
    if re.match(r" *Type +:", line):
        free = line.split()[-1] == "free"
    if free and re.match(r" *Flags +:", line):
        continue
    data = re.match(r"([0-9a-f]{8})  ", line)
    if not line.startswith("path") and not (data and int(data[1], 16) >= end > start):
        print(line)
P
}

# equal WHAT: both copies are the same as they are, without a sync before
equal()
{
	# Both have the header of the part; that of the pool is another one.
	{
		head -c 4096 part
		tail -c +$((65536 + 4096 + 1)) vol | head -c $((9 * 1048576 - 4096))
	} >replica
	for copy in part replica; do
		python3 dump.py $copy $hang >$copy.dump || fail "$1: pmempool info"
	done
	diff -U 9 part.dump replica.dump >out ||
		fail "$1: the copies differ (-: local, +: replica): $(head -n 60 out)"
}

# obj VERB SET: run the program of libpmemobj, at most $hang seconds
obj()
{
	timeout $hang "$transactions" "$@"
}

# tool ARG...: run pmempool, at most $hang seconds
tool()
{
	timeout $hang pmempool "$@"
}

# does COMMAND...: it must succeed
does()
{
	"$@" >out 2>&1 && return
	fail "$*: $(cat out)"
	return 1
}

# refuses WHAT COMMAND...: it must fail, by itself
refuses()
{
	refused=$1
	shift
	"$@" >out 2>&1
	case $? in 0 | 124) fail "$refused: $(cat out)" ;; esac
}

# begin COUNT: run transactions in the background until some have completed
begin()
{
	: >acks
	"$transactions" run set >>acks 2>err &
	program=$!
	pids="$pids $program"
	await $program acknowledged "$1" && return
	fail "no transactions: $(cat acks err)"
}

# acknowledged COUNT: so many transactions have completed
acknowledged()
{
	[ "$(wc -l <acks)" -ge "$1" ]
}

# has WHAT [SET]: the pool set has every transaction that has completed
has()
{
	if ! obj check "${2:-set}" >out 2>&1; then
		fail "$1: not consistent: $(cat out)"
	elif ! awk 'NR == FNR { there[$1] = $2; next }
		!($1 in there) || $2 > there[$1] { print "lost:", $0; lost = 1 }
		END { exit lost }' out acks >lost; then
		fail "$1: $(cat lost out)"
	fi
}
