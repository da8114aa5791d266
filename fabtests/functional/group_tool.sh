#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_group: status and scrub while a writer works, a damaged byte that is
# found and repaired, lost members that are replaced, and refused calls.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter group_tool

# client GROUP: write, and wait until all members have it; the client stays open
client()
{
	rm -f in out
	mkfifo in
	../fabtests/functional/group_client "$1" share <in >out 2>&1 3>&- &
	client=$!
	exec 3>in
	lines=1
	do_line "0 ok" "d 10 first"
	do_line "0 ok" "d 500000 $(seq -s, 150)"
	all_current "$2"
}

# all_current N: wait until all members have every write
all_current()
{
	for _ in $(seq 400); do
		do_line 0 q
		case $said in
		"0 $1 of $1, reopened 0"*) return ;;
		esac
		sleep 0.02
	done
	fail "members are not current: $said"
}

# do_line EXPECTED LINE: send the line; the reply must begin with EXPECTED
do_line()
{
	echo "$2" >&3
	lines=$((lines + 1))
	for _ in $(seq 1000); do
		said=$(sed -n ${lines}p out)
		[ -n "$said" ] && break
		kill -0 $client 2>/dev/null || break
		sleep 0.01
	done
	case $said in
	"$1"*) ;;
	*) fail "$2: '$said' in place of '$1'" ;;
	esac
}

end()
{
	exec 3>&-
	wait $client
}

# tool CODE TEXT ARG...: run fi_rpmem_group; check exit code and output
tool()
{
	code=$1 text=$2
	shift 2
	../util/fi_rpmem_group "$@" >said 2>said.err
	got=$?
	[ $got = "$code" ] || fail "$*: exit $got, not $code: $(cat said said.err)"
	grep -qF -- "$text" said said.err ||
		fail "$*: no '$text' in: $(cat said said.err)"
}

# replaced NEW ARG...: replace a member; the new name must be printed
replaced()
{
	new=$1
	shift
	tool 0 "$new" replace "$@"
	[ "$(cat said)" = "$new" ] || fail "replace prints $(cat said), not $new"
}

# The bytes of the group's user are the last ones of each file.
bytes=$((1048576 - 65536))

# damage NAME OFFSET BITS: flip bits of one byte of the user
damage()
{
	seek=$(($(stat -c %s "$1") - bytes + $2))
	byte=$(od -An -tu1 -j $seek -N1 "$1")
	printf '%b' "\\0$(printf %o $((byte ^ $3)))" |
		dd of="$1" bs=1 seek=$seek conv=notrunc 2>/dev/null
}

# same NAME NAME: both files have the same bytes of the user
same()
{
	tail -c $bytes "$1" >one
	tail -c $bytes "$2" | cmp one - || fail "$1 and $2 differ"
}

for f in a b c; do
	serve_pool $f --create 1M
done
G="$(at a),$(at b),$(at c);k=2"
tool 1 "not created yet" status "$G"
tool 3 "no group yet" scrub "$G"

# Run the tool while a writer works, which does not notice it.
client "$G" 3
tool 0 "1 more member may be lost" status "$G"
tool 0 "3 of 3 members: equal" scrub "$G"
case $(cat log.a) in
*" power "*) tool 0 ", class power by agent-msync, " status "$G" ;;
esac
tool 0 "1 more member may be lost" status "$G;epoch=7"
tool 0 "1 more member may be lost" status "${G%;k=2};epoch=7;k=2"
tool 2 "';k=4' is nothing" status "${G%;k=2};epoch=7;k=4"
tool 2 "';epoch' is nothing" status "$G;epoch"
tool 2 "';k=2' is nothing" status "$G;epoch=7;k=2"
tool 2 "leave out 'group='" status "group=$G"
tool 2 "has 3 members and k=2" status "${G%2}3"
tool 2 "has 3 members and k=2" status "$(at a),$(at b);k=2"
one=$(at a)
tool 2 "are one pool" status "$(at a),$(at b),localhost${one#127.0.0.1}"
tool 0 '"may_lose": 1' status --json "$G"
python3 -c 'import json; o = json.load(open("said"))
assert [m["state"] for m in o["list"]] == 3 * ["current"], o
assert all(m["epoch"] == m["promised"] == 1 for m in o["list"]), o
assert any(m["marked_bytes"] for m in o["list"]), o' || fail "status --json"
damage a 100 1
tool 0 "left out: a writer changes them" scrub "$G"
damage a 100 1
tool 4 "the group has a writer" scrub --repair "$G"
do_line "0 ok" "d 20 second"
all_current 3
end

# A damaged byte is found and repaired.
damage b 500007 1
tool 10 "$(at b): differs from the majority in 1 bytes at offset 500007" \
	scrub "$G"
same a c
tool 0 "1 bytes differ, 1 repaired" scrub --repair "$G"
same a b
tool 0 "equal" scrub "$G"

# Each page of a chunk has its own majority.
damage a 500007 1
damage b 400007 2
tool 0 "2 bytes differ, 2 repaired" scrub --repair "$G"
same a b
same a c

# Without a majority no copy can be called right.
damage a 500007 1
damage b 500007 2
tool 10 "no majority of the current members" scrub --repair "$G"
grep -q "no majority is equal" said || fail "scrub says: $(cat said)"
damage a 500007 1
damage b 500007 2

# A lost member is replaced; then the former member replaces another one. The
# daemon at the port of c has no such pool, and refuses it at once.
end_pools KILL c
lost=$(at c)
mv port.c port.f
serve_pool f --create 1M
damage a 12 1
tool 10 "no majority is equal" scrub "$G"
damage a 12 1
tool 1 "0 more members may be lost" status "$G"
# The printed name has no epoch: an opening with the same one would fail.
N="$(at a),$(at b),$(at f);k=2"
replaced "$N" "$G;epoch=1000" "$lost" "$(at f)"
same a f
client "$N" 3
do_line "0 ok" "d 30 third"
serve_pool c
tool 4 "open it as" replace "$N" "$(at b)" "$(at c)"
end
G="$(at a),$(at c),$(at f);k=2"
replaced "$G" "${N%;k=2};epoch=2000;k=2" "$(at b)" "$(at c)"
same a c
tool 0 "1 more member may be lost" status "$G"

# A member is replaced while another one is away; the same command prints the
# same name again, as is needed when it was ended before its caller had that. A
# daemon without a member's pool refuses it at once.
serve_pool m --create 1M n o p q
for f in n o p q r; do
	cp port.m port.$f
done
O="$(at m),$(at n),$(at o)"
client "$O,$(at p),$(at q);k=3" 5
end
end_pools KILL m
serve_pool m --create 1M n o r
for f in 1 2; do
	replaced "$O,$(at r),$(at q);k=3" "$O,$(at p),$(at q);k=3" \
		"$(at p)" "$(at r)"
	grep -q "another one is not current, .*: member $(at q) " said.err ||
		fail "no warning: $(cat said.err)"
	same m r
done

# While a member is rebuilt, what is left is shown; the writer is stopped for that.
for f in i j l; do
	serve_pool $f --create 64M
done
R="$(at i),$(at j),$(at l);k=2"
client "$R" 3
end_pools KILL l
rm -f l
serve_pool l --create 64M
echo "d 40 fourth" >&3
lines=$((lines + 1))
for _ in $(seq 2000); do
	kill -STOP "$client"
	../util/fi_rpmem_group status "$R" >said
	kill -CONT "$client"
	! grep -q "being rebuilt: .* left" said || break
	grep -q "^$(at l): current" said && break
	sleep 0.002
done
grep -q "^$(at l): empty, .* being rebuilt: [0-9].* left" said ||
	fail "status of a rebuild: $(cat said)"
for _ in $(seq 1000); do
	do_line 0 q
	case $said in "0 3 of 3"*) break ;; esac
	sleep 0.02
done
tool 0 '"left_bytes": 0' status --json "$R"
end

# Refused calls.
serve_pool g --create 1M
serve_pool h --create 128K
printf foreign | dd of=g bs=1 seek=$(($(stat -c %s g) - 1048576)) \
	conv=notrunc 2>/dev/null
tool 2 "is no member of" replace "$G" "$(at b)" "$(at h)"
tool 2 "is a member already" replace "$G" "$(at a)" "$(at c)"
tool 5 "extend it" replace "$G" "$(at a)" "$(at h)"
tool 3 "is not empty, and of no group" replace "$G" "$(at a)" "$(at g)"
tool 3 "nothing has to be replaced" replace "$G" "$(at a)" "$(at a)"
tool 3 "nothing has to be replaced" \
	replace "$G" "$(at a)" "localhost:$(cat port.a):a"
tool 3 "is the member" replace "$G" "$(at a)" "localhost:$(cat port.c):c"
tool 2 "is no group" status "$(at a)"
tool 2 "give ;k=N" status "$G;k=2"
tool 2 "is given twice" status "$(at a),$(at a)"
tool 3 "is no member of this group" status "$(at a),$(at c),$(at g);k=2"
end_pools KILL f
tool 3 "are needed" replace "$G" "$(at a)" "$(at b)"
exit $failed
