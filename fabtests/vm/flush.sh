# SPDX-License-Identifier: BSD-2-Clause
# FLUSH in rxe: a kernel probe records which bytes were written back, and when.
# shellcheck shell=sh

trace=/sys/kernel/tracing

# The region begins at a huge page, so an offset is the low bits of an address.
# judge NUMBER: check the trace, which must have NUMBER cases
judge() {
	awk -v number="$1" -v huge=2097152 -v page=4096 '
	function value(key) {
		match($0, key "=[0-9]+")
		return substr($0, RSTART + length(key) + 1,
			RLENGTH - length(key) - 1)
	}
	/tracing_mark_write: begin / {
		sub(/.*: begin /, "")
		from = $1; len = $2; at = from; calls = 0; bad = ""
		sub(/^[0-9]+ [0-9]+ /, ""); name = $0
		next
	}
	/ wb: / {
		calls++
		if (value("addr") % huge != at)
			bad = bad " " value("addr") % huge "+" value("size")
		at = value("addr") % huge + value("size")
		next
	}
	/tracing_mark_write: end / {
		want = len ? int((from + len - 1) / page) - int(from / page) + 1 : 0
		sub(/.*: end /, "")
		print ($1 == "right:" ? "ok" : "not ok") " - " name ", ends: " $0
		good = bad == "" && calls == want && at == from + len
		print (good ? "ok" : "not ok") " - " name \
			", written back: " len " bytes by " want " calls"
		if (!good)
			print "# up to " at - from " by " calls ";" bad
		cases++
	}
	END {
		if (cases != number)
			print "not ok - all cases were run, not " cases + 0
	}'
}

# flushed NUMBER COMMAND...: check what the COMMAND's cases write back
flushed() {
	want=$1
	shift
	echo 0 >$trace/tracing_on
	echo >$trace/trace
	echo 'p:wb arch_wb_cache_pmem addr=%di:u32 size=%si:u32' \
		>$trace/kprobe_events || return
	echo 1 >$trace/events/kprobes/wb/enable
	echo 1 >$trace/tracing_on
	"$@"
	code=$?
	echo 0 >$trace/tracing_on
	echo 0 >$trace/events/kprobes/wb/enable
	judge "$want" <$trace/trace
	return $code
}

note "FLUSH"
if [ -x flush ]; then
	mount -t tracefs trace $trace 2>/dev/null
	flushed 10 ./flush rxe0 1 "$dax" $trace/trace_marker >/tmp/flushed 2>&1
	code=$?
	tap "FLUSH" sh -c "cat /tmp/flushed; exit $code"
else
	skip "FLUSH" "rdma-core of this release has none"
fi
