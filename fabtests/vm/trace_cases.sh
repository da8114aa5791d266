#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# trace.awk accepts the packets that each method sends, and refuses all others.
set -u
here=${srcdir:-.}/fabtests/vm
log=trace.$$
trap 'rm -f $log $log.out $log.bad' EXIT

# All cases use the range of 128 bytes at 0x7f1234567000. Numbers are in wire
# order.
mark() { echo " b-1 [000] ..... 1.0: tracing_mark_write: durable 139716164218880 128"; }
psn=0
packet() { # OPCODE QP [LOW_HALF_OF_ADDRESS LENGTH]
	psn=$((psn + ${new:-1}))
	echo " k-2 [001] ..... 1.1: tx: (rxe_xmit_packet+0x0/0x2a0 [rdma_rxe])" \
		"op=$1 qpn=$2 psn=$(printf 0x%x $psn) vah=0x127f0000 val=${3:-0x0}" \
		"rkey=0x1 len=${4:-0x0}"
}
write() { packet 10 "${1:-0x11000000}" "${2:-0x705634}" "${3:-0x80000000}"; }
fence() { packet 12 "${1:-0x11000000}" "${2:-0x705634}" "${3:-0x8000000}"; }
# FLUSH [QP LOW_HALF_OF_ADDRESS LENGTH KIND]
flush() {
	psn=$((psn + ${new:-1}))
	echo " k-2 [001] ..... 1.1: tx: (rxe_xmit_packet+0x0/0x2a0 [rdma_rxe])" \
		"op=28 qpn=${1:-0x11000000} psn=$(printf 0x%x $psn) vah=${4:-0x3000000}" \
		"val=0x127f0000 rkey=${2:-0x705634} len=0x1 flen=${3:-0x80000000}"
}
response() { packet 16 0x12000000; }
ack() { packet 17 0x12000000; }
request() { packet 4 "${1:-0x11000000}"; }
reply() { packet 4 "${1:-0x12000000}"; }

judge() { awk -v method="$1" -f "$here/trace.awk" $log >$log.out; }

good() { # METHOD NAME; the log is standard input
	cat >$log
	judge "$1"
	grep -q '^ok - .*: writes were traced' $log.out &&
		! grep '^not ok' $log.out && return
	echo "FAIL: $1, $2 is refused"
	cat $log.out
	touch $log.bad # variables set in a pipe are lost
}

bad() { # METHOD NAME RULE: must break this rule, and may break others
	cat >$log
	judge "$1"
	grep -q "^not ok - $1: $3" $log.out && return
	echo "FAIL: $1, $2 is accepted"
	cat $log.out
	touch $log.bad
}

{ mark; write; fence; ack; response; } | good fence "a write and a read"
{ mark; write; ack; fence; response; mark; write; fence; response; } |
	good fence "two of them"
{ mark; write; fence 0x11000000 0x78705634; response; } |
	good fence "a read of the last bytes"
{ mark; packet 6 0x11000000 0x705634 0x80000000; packet 7 0x11000000
	packet 8 0x11000000; fence; response; } | good fence "a write in pieces"
{ mark; write; new=0 write; fence; new=0 fence; response; } |
	good fence "packets that are sent again"
{ mark; fence; write; response; } | bad fence "a read before the write" "behind the writes"
{ mark; write; fence 0x13000000; response; } |
	bad fence "a read on another queue pair" "one connection"
{ mark; write; fence 0x11000000 0x79705634; response; } |
	bad fence "a read across the end" "inside the range"
{ mark; write; fence 0x11000000 0xff6f5634; response; } |
	bad fence "a read before the range" "inside the range"
{ mark; write; fence 0x11000000 0x705634 0x0; response; } |
	bad fence "a read of nothing" "a read of no bytes"
{ mark; write; fence; fence; response; } | bad fence "two reads" "one read"
{ mark; write; ack; } | bad fence "no read" "one read"
{ mark; write; fence; } | bad fence "a read without an answer" "the read comes back"
{ mark; write; request; fence; response; } | bad fence "a message in between" "no message"
{ mark; write; fence; response; fence; response; } |
	bad fence "a second round trip" "one round trip"
{ mark; write 0x11000000 0x705634 0x40000000; fence; response; } |
	bad fence "half of the bytes" "every byte"
{ mark; write; write; fence; response; } | bad fence "bytes written twice" "every byte"
{ mark; write; packet 28 0x11000000; fence; response; } |
	bad fence "a flush of the device" "nothing else"

{ mark; write; flush; ack; response; mark; write; ack; flush; response; } |
	good native "two writes and their flushes"
{ mark; flush; write; response; } | bad native "a flush before the write" "behind the writes"
{ mark; write; flush 0x13000000; response; } |
	bad native "a flush on another queue pair" "one connection"
{ mark; write; flush 0x11000000 0x705634 0x8000000; response; } |
	bad native "a flush of 8 bytes" "all of the range"
{ mark; write; flush 0x11000000 0x80705634; response; } |
	bad native "a flush of what is behind it" "all of the range"
{ mark; write; flush 0x11000000 0x705634 0x80000000 0x1000000; response; } |
	bad native "a flush that is seen only" "to persistence"
{ mark; write; flush; new=0 flush; response; } |
	good native "a flush that is sent again"
{ mark; write; flush; } | bad native "a flush without an answer" "the flush comes back"
{ mark; write; flush; flush; response; } | bad native "two flushes" "one flush"
{ mark; write; ack; } | bad native "no flush" "one flush"
{ mark; write; fence; flush; response; } | bad native "a read" "no read"
{ mark; write; request; flush; response; } | bad native "a message in between" "no message"
{ mark; write; flush; response; flush; response; } |
	bad native "a second round trip" "one round trip"

{ mark; request; ack; reply; ack; } | good agent "bytes in the request"
{ mark; write; request; ack; reply; ack; } | good agent "a request behind the write"
{ mark; packet 0 0x11000000; packet 1 0x11000000; packet 2 0x11000000; reply; } |
	good agent "a request in pieces"
{ mark; request; new=0 request; reply; } | good agent "a request that is sent again"
{ mark; request; write; reply; } | bad agent "a request before the write" "behind the writes"
{ mark; write; request 0x13000000; reply; } |
	bad agent "a request on another queue pair" "one connection"
{ mark; write; request; } | bad agent "no reply" "one reply"
{ mark; write; ack; } | bad agent "no request" "one request"
{ mark; write; request; request; reply; } | bad agent "two requests" "one request"
{ mark; write; request; reply; request; reply; } |
	bad agent "a second round trip" "one round trip"
{ mark; write; fence; request; reply; } | bad agent "a read" "no read"

: | bad fence "an empty log" "writes were traced"
: | bad agent "an empty log" "writes were traced"
[ ! -e $log.bad ]
