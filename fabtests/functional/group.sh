#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A group of three pools: members that are killed and come back or are replaced,
# a writer that is killed or displaced, refused calls, and a log on a group.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter group

# begin PLACE HOW [TIMEOUT]: start a client; its first line is in $said
begin()
{
	rm -f in out
	mkfifo in
	../fabtests/functional/group_client "$@" <in >out 2>err \
		3>&- 4>&- &
	client=$!
	exec 3>in
	lines=0
	hear
}

# hear: read the next line of the client into $said
hear()
{
	lines=$((lines + 1))
	for _ in $(seq 1200); do
		said=$(sed -n ${lines}p out)
		[ -n "$said" ] && return
		kill -0 $client 2>/dev/null || break
		sleep 0.02
	done
	said=$(sed -n ${lines}p out)
}

# do_line EXPECTED LINE: send the line; the reply must begin with EXPECTED
do_line()
{
	echo "$2" >&3
	hear
	case $said in
	"$1"*) ;;
	*) fail "$2: '$said' in place of '$1'" ;;
	esac
}

# until_line EXPECTED LINE: send the line until the reply begins with EXPECTED
until_line()
{
	for _ in $(seq 400); do
		echo "$2" >&3
		hear
		case $said in
		"$1"*) return ;;
		esac
		sleep 0.05
	done
	fail "$2: not '$1': $said"
}

# until_current TEXT: wait while members come back in the background
until_current()
{
	until_line "0 $1" q
}

end()
{
	exec 3>&-
	wait $client
}

# leave: keep this client as the old one, so that another one can begin
leave()
{
	exec 4>&3
	old=$client old_lines=$lines
	mv out out.old
}

# old_line LINE: send the line to the old client
old_line()
{
	echo "$1" >&4
	old_lines=$((old_lines + 1))
	for _ in $(seq 1200); do
		said=$(sed -n ${old_lines}p out.old)
		[ -n "$said" ] && break
		sleep 0.02
	done
}

# old_is_displaced: the old client gets ESTALE, and ends
old_is_displaced()
{
	for _ in $(seq 40); do
		old_line "d 30 stale"
		case $said in
		-110*) ;;
		*) break ;;
		esac
	done
	case $said in
	-116*) ;;
	*) fail "the displaced writer: $said" ;;
	esac
	exec 4>&-
	wait "$old"
}

# refused TEXT PLACE HOW: opening the group fails with this text
refused()
{
	begin "$2" "$3"
	end
	case $said in
	0*) fail "$2 was opened" ;;
	*"$1"*) ;;
	*) fail "$2: no '$1' in: $said" ;;
	esac
}

# refused_without MEMBER TEXT PLACE: the same while this member is silent, so that
# the opening cannot end before it has looked at the wrong one
refused_without()
{
	kill -STOP "$(cat "pid.$1")"
	refused "$2" "$3" share
	kill -CONT "$(cat "pid.$1")"
}

# A program waits for a pool in its own event loop, but not for a group.
serve_pool single --create 64K
begin "$(at single)" share
for i in 1 2 3; do
	do_line "0 ok" "p 100 by its own loop $i"
done
do_line "0 by its own loop 3" "r 100 17"
end
end_pools KILL single

serve_pool a --create 1M
serve_pool b --create 1M
serve_pool c --create 1M
G=$(at a),$(at b),$(at c)

# A commit is durable at two members, and all three get it.
begin "$G;k=2" share
until_current "3 of 3"
do_line "0 ok" "w 10 first"
do_line "0 ok" c
do_line "0 ok" "d 300000 durable"
do_line "0 ok" "t 400000 65"
do_line "0 first" "r 10 5"
do_line "0 A" "r 400000 1"
do_line "-95 a group has no descriptor" "p 10 first"

# One daemon is killed: no call waits for it, and the member comes back.
end_pools KILL b
do_line "0 ok" "w 20 second"
do_line "0 ok" c
until_current "2 of 3"
do_line "0 durable" "r 300000 7"
do_line "0 $(at a) state 3, 0 left, no error" "m 0"
until_line "0 $(at b) state 2, 6 left, member $(at b) of the group: " "m 1"
do_line "-2 the pool has no member 3" "m 3"
serve_pool b
until_current "3 of 3"
do_line "0 $(at b) state 3, 0 left, no error" "m 1"

# Two daemons are killed: a commit fails, and succeeds when one is back.
end
begin "$G;k=2" share 1
until_current "3 of 3"
end_pools KILL a b
do_line "-110" "d 30 third"
serve_pool a
for _ in $(seq 20); do
	echo "d 30 third" >&3
	hear
	[ "$said" = "0 ok" ] && break
done
[ "$said" = "0 ok" ] || fail "no commit with two members: $said"

# The client is killed; the next one reads all bytes, with the third member
# away.
kill -9 "$client" && wait "$client" 2>/dev/null
exec 3>&-
begin "$G;k=2" take
do_line "0 first" "r 10 5"
do_line "0 second" "r 20 6"
do_line "0 third" "r 30 5"
until_current "2 of 3"
serve_pool b
until_current "3 of 3"

# A writer that is displaced gets an error, and changes no byte.
leave
begin "$G;k=2" take
until_current "3 of 3"
do_line "0 third" "r 30 5"
old_is_displaced
do_line "0 third" "r 30 5"
do_line "0 ok" "d 40 fourth"
end

# Epochs given by the caller: only a newer one displaces a writer.
begin "$G;k=2;epoch=100" take
until_current "3 of 3"
leave
refused "it has epoch 100, and this writer was given 99: a newer" \
	"$G;k=2;epoch=99" take
refused "given 100: each opening needs another one" "$G;epoch=100;k=2" take
old_line "d 30 fifth"
[ "$said" = "0 ok" ] || fail "the newest writer: $said"
old_line q
case $said in
"0 3 of 3, reopened 0"*) ;;
*) fail "an older writer has displaced a newer one: $said" ;;
esac
begin "$G;k=2;epoch=4611686018427387903" take
until_current "3 of 3"
do_line "0 fifth" "r 30 5"
old_is_displaced
do_line "0 fifth" "r 30 5"
end
refused "it has epoch 4611686018427387903" "$G;k=2;epoch=101" share

# An empty pool that replaces a member gets all bytes.
end_pools TERM c
mv c c.lost
serve_pool c --create 1M
begin "$G;k=2" share
until_current "3 of 3"
do_line "0 fourth" "r 40 6"
end

# One of only two members stands still: the other one replies to a read, long
# before the timeout of the client.
end_pools KILL c
begin "$G;k=2" share 600
until_current "2 of 3"
kill -STOP "$(cat pid.a)"
do_line "0 fourth" "r 40 6"
kill -CONT "$(cat pid.a)"
until_current "2 of 3"
end

# A writer that never had c open stands still. When it wakes, it does not take c
# from the newer writer, which needs c.
begin "$G;k=2" take
until_current "2 of 3"
leave
kill -STOP "$old"
serve_pool c
end_pools KILL a
begin "$G;k=2" take
until_current "2 of 3"
kill -CONT "$old"
for _ in $(seq 20); do
	do_line "0 ok" "d 50 sixth"
	sleep 0.1
done
old_is_displaced
do_line "0 sixth" "r 50 5"
serve_pool a
until_current "3 of 3"
end

# Refused: wrong values of k, n and epoch, another group, a pool with other
# data.
refused "give the same as then" "$G;k=3" share
refused "give the same as then" "$(at a),$(at b)" share
refused "k=4 is more than 3 members; give k=3 or less" "$G;k=4" share
refused "give ;k=N" "$G;n=2" share
refused "is given twice; name each member once" "$(at a),$(at a),$(at c)" share
refused "opened by its writer" "$G" observe
refused "an empty member: give HOST:POOL" "$(at a),,$(at c)" share
refused "an empty member" ",$(at a),$(at c)" share
refused "give ;k=N" "$G;k=4294967298" share
refused "leave out 'group='" "group=$G;k=2" share
refused "leave out 'group='" "group=$(at a)" share
refused "give ;k=N" "$G;k=2;k=2" share
for epoch in 0 -1 01 1x 4611686018427387904 18446744073709551617 '' '1;epoch=2'; do
	refused "';epoch=${epoch##*=}' is nothing that" "$G;epoch=$epoch" share
done
serve_pool d --create 1M
begin "$(at d)" share
do_line "0 ok" "d 8 mine"
end
refused_without b "member $(at d) of the group: it holds something else" \
	"$(at a),$(at b),$(at d)"

# One pool under two names, members of two sizes with k = n, a writer that is
# killed in a call that cannot end, a member of another group.
for f in s t; do
	[ $f = t ] && size=2M || size=1M
	serve_pool $f --create $size
done
refused_without t "is the same pool as another member" \
	"$(at s),localhost:$(cat port.s):s,$(at t)"
begin "$(at s),$(at t);k=2" share
until_current "2 of 2"
do_line "0 2 of 2, reopened 0, 983040 bytes" q
do_line "0 ok" "d 8 both"
end_pools KILL t
do_line "0 both" "r 8 4"
echo "d 16 never" >&3
sleep 0.2
kill -9 "$client" && wait "$client" 2>/dev/null
exec 3>&-
serve_pool t
begin "$(at s),$(at t);k=2" share
do_line "0 both" "r 8 4"
end
refused_without b "give the same as then" "$(at a),$(at b),$(at s)"
end_pools TERM s t

# A store whose commit covers no write, and whose first attempt was lost.
export FI_OFI_RPMEM_TIMEOUT=500
begin "$(at d)" share
do_line "0 ok" "t 4096 65"
kill -STOP "$(cat pid.d)"
echo "t 4096 66" >&3
sleep 1
kill -CONT "$(cat pid.d)"
hear
[ "$said" = "0 ok" ] || fail "a store that was lost once: $said"
do_line "0 B" "r 4096 1"
end
unset FI_OFI_RPMEM_TIMEOUT

# Members with two methods, and the weaker class of both.
export FI_OFI_RPMEM_METHOD=agent-msync
serve_pool u --create 1M
unset FI_OFI_RPMEM_METHOD
shm=$(mktemp -d /dev/shm/group.XXXXXX 2>/dev/null)
if [ -n "$shm" ] && grep -q '^u .* power ' log.u; then
	launch log.p port.p --create 1M "$shm/p"
	echo $daemon >pid.p
	grep -q '^p .* process ' log.p || fail "memory: $(cat log.p)"
	begin "$(at u),$(at p);k=2" share
	until_current "2 of 2, reopened 0, 983040 bytes, several"
	do_line "0 ok" "d 8 both"
	do_line "0 both" "r 8 4"
	end
	end_pools TERM p
else
	echo "ok 1 - members with two methods # SKIP $(grep '^u ' log.u)"
fi
end_pools TERM u

# All members have the same bytes after their own first 64 KiB.
end_pools TERM a b c d
for f in a b c; do
	tail -c 983040 $f >$f.bytes
done
cmp a.bytes b.bytes || fail "a and b differ"
cmp a.bytes c.bytes || fail "a and c differ"
grep -q fourth c.bytes || fail "c has not the last write"

# A log on a group.
serve_pool e --create 1M
serve_pool f --create 1M
serve_pool g --create 1M
L="$(at e),$(at f),$(at g)"
if grep -q '^e .* power ' log.e; then
	writer=../fabtests/fault/log_writer
	$writer "$L" create 0 || fail "a log on a group"
	$writer "$L" append >append.out 2>&1 &
	pid=$!
	for _ in $(seq 400); do
		[ "$(wc -l <append.out)" -ge 20 ] && break
		sleep 0.05
	done
	end_pools KILL f
	had=$(wc -l <append.out)
	for _ in $(seq 400); do
		[ "$(wc -l <append.out)" -ge $((had + 20)) ] && break
		sleep 0.05
	done
	[ "$(wc -l <append.out)" -ge $((had + 20)) ] ||
		fail "appends end with a member: $(tail -1 append.out)"
	kill -9 $pid && wait $pid 2>/dev/null
	says "is a group of pools, which only its writer has open" \
		$writer "$L" follow
	# The member that was away comes back, and one that knows all is away.
	acked=$(sed -n 's/^acked //p' append.out | tail -1)
	serve_pool f
	end_pools KILL e
	last=$($writer "$L" check 2>&1 | head -1)
	[ "${last#last }" -ge "$acked" ] 2>/dev/null ||
		fail "$acked was acknowledged: $last"
	serve_pool e
else
	echo "ok 2 - a log and a disk on a group # SKIP $(grep '^e ' log.e)"
fi

# An NBD disk on that group, first with one member away, and then with another
# one. No sanitizer: its runtime would have to be the first library of nbdkit.
if [ -z "${RP_SANITIZE:-}" ] && grep -q '^e .* power ' log.e &&
	command -v nbdkit >/dev/null && command -v nbdcopy >/dev/null; then
	for f in e f g; do
		end_pools TERM $f
		rm -f $f
		serve_pool $f --create 1M
	done
	cp ../fabtests/functional/.libs/group_client sent 2>/dev/null ||
		cp ../fabtests/functional/group_client sent
	head -c 400000 /dev/zero >>sent
	truncate -s 400000 sent
	disk()
	{
		nbdkit -f -U - ../util/.libs/nbdkit-rpmem-plugin.so \
			pool="$L;k=2" timeout=5 --run "$1" 2>nbd.err
	}
	disk 'nbdcopy --flush sent "$uri"' || fail "to the disk: $(cat nbd.err)"
	end_pools KILL e
	disk 'nbdcopy "$uri" got1' || fail "from the disk: $(cat nbd.err)"
	serve_pool e
	begin "$L;k=2" share
	until_current "3 of 3"
	end
	end_pools KILL g
	disk 'nbdcopy "$uri" got2' || fail "from the rest: $(cat nbd.err)"
	serve_pool g
	# The server logs that a member is lost, and that it is current again.
	nbdkit -f -U disk.sock ../util/.libs/nbdkit-rpmem-plugin.so \
		pool="$L;k=2" timeout=5 >nbd.out 2>&1 3>&- 4>&- &
	server=$!
	pids="$pids $server"
	await $server [ -S disk.sock ]
	# until_logged TEXT: write and flush until the server logs it
	until_logged()
	{
		for _ in $(seq 200); do
			grep -q "$1" nbd.out && return
			nbdcopy --flush sent nbd+unix:///?socket=disk.sock \
				2>>nbd.err
			sleep 0.05
		done
		fail "the server does not log '$1': $(cat nbd.out nbd.err)"
	}
	end_pools KILL f
	until_logged "$(at f) is lost; 2 of 3 members are current"
	serve_pool f
	until_logged "$(at f) is current again; 3 of 3 members are current\$"
	[ "$(grep -c "$(at f)" nbd.out)" = 2 ] || fail "logged: $(cat nbd.out)"
	kill $server && wait $server
	cmp -n 400000 sent got1 || fail "the disk lost bytes with e"
	cmp -n 400000 sent got2 || fail "the disk lost bytes with g"
fi
[ $failed = 1 ] || echo "ok 3 - members, writers and epochs"
exit $failed
