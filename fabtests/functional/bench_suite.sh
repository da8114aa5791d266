#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The suite reports every figure or its absence; the modes of fi_rpmem_bench and
# calibrate do what they promise. Times are not checked.
set -u
dir=$(mktemp -d "$PWD/bench.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
bench=$PWD/util/fi_rpmem_bench suite=$PWD/fabtests/benchmarks/suite
cd "$dir" || exit 99 # its files go there

fail()
{
	echo "FAIL: $*"
	failed=1
}

# Every metric and its bar; the bars of metrics in $least are lower bounds.
wanted="passthrough_latency_ratio=1.02 passthrough_rate_ratio=0.98
	passthrough_instructions_added=25 durable_64B_vs_raw_echo=1.35
	durable_64B_vs_msg_commit=1.05 durable_64B_vs_delivery=1.05
	durable_64KiB_vs_delivery=1.2 durable_vs_handwritten=1
	commit_64x64B_vs_writes=0.3 agent_flush_efficiency=0.97
	initiators_16_scaling=0.95 msync_batching=1.1 file_64B_vs_msync=1.1
	idle_agent_cpu=0.002"
names=$(echo "$wanted" | sed 's/=[0-9.]*//g')
least=" passthrough_rate_ratio agent_flush_efficiency initiators_16_scaling "

# bars MOST LEAST: the options that replace every bar.
bars()
{
	for name in $names; do
		case $least in
		*" $name "*) echo "--bar $name=$2" ;;
		*) echo "--bar $name=$1" ;;
		esac
	done
}

# figures FILE CODE: check that every metric is a number, or null with a reason,
# or an object with these values by size, and that CODE is the report's exit
# code; prints "NAME number".
figures()
{
	python3 - "$1" "$2" $names <<'EOF'
import json, sys
report = json.load(open(sys.argv[1]))
metrics, names = report["metrics"], sys.argv[3:]
bad = sorted(set(metrics) ^ set(names))
if bad:
    sys.exit("not the metrics' names: %s" % bad)
sizes = {"8", "64", "512", "4096", "16384", "65536", "262144", "1048576",
         "4194304"}
for name in names:
    value, bar = metrics[name], report["bars"][name]
    if isinstance(value, dict) is not (name == "durable_vs_handwritten"):
        sys.exit("%s: %r" % (name, value))
    if isinstance(value, dict):
        if set(value) != sizes:
            sys.exit("%s: not the sizes: %r" % (name, value))
        value = (None if None in value.values() else
                 (min if bar["at"] == "least" else max)(value.values()))
    if value is None and not report["why"].get(name):
        sys.exit("%s: null without a reason" % name)
    if value is not None and (isinstance(value, bool) or value != value
                              or value < 0 or name in report["why"]):
        sys.exit("%s: %r" % (name, value))
    met = None if value is None else (
        value >= bar["bar"] if bar["at"] == "least" else value <= bar["bar"])
    if bar["met"] is not met:
        sys.exit("%s: %r, and met %r: %r" % (name, value, met, bar))
    print(name, "null" if value is None else "number")
wanted = 0 if all(b["met"] for b in report["bars"].values()) else 1
if int(sys.argv[2]) != wanted:
    sys.exit("exit code %s of %r" % (sys.argv[2], report["bars"]))
for key in "seed", "base", "pool", "load":
    if key not in report:
        sys.exit("no %s" % key)
for key in "cpu", "release", "libfabric":
    if not report["machine"][key]:
        sys.exit("no %s" % key)
for name in ("agent_flush_bound_of_one_round_trip",
             "msync_batching_of_the_disk_alone"):
    if report["also"][name] is None and not report["why"].get(name):
        sys.exit("%s: null without a reason" % name)
if not any(line["samples"] for line in report["lines"]):
    sys.exit("nothing was measured")
EOF
}

unset FI_PROVIDER_PATH
whole()
{
	# Bars that any figure meets: exit code 0, or another one if a figure is
	# missing.
	timeout 500 $suite suite --iterations 2 --seconds 1 --json "$dir/suite.json" \
		$(bars 1e9 -1) >"$dir/table" 2>"$dir/err"
	code=$?
	cat "$dir/table" "$dir/err"
	figures "$dir/suite.json" $code >"$dir/figures" || fail "the suite's report"
	grep 'not met' "$dir/table" && fail "a bar that any figure meets is missed"
	cat "$dir/figures"
	for name in $names; do
		grep -q "^$name .*[<>]= " "$dir/table" || fail "$name is not printed"
	done
	# Metrics without valgrind or a disk are numbers on any machine.
	for name in passthrough_latency_ratio passthrough_rate_ratio \
		durable_64B_vs_raw_echo durable_64B_vs_msg_commit \
		durable_64B_vs_delivery durable_64KiB_vs_delivery \
		durable_vs_handwritten commit_64x64B_vs_writes \
		agent_flush_efficiency initiators_16_scaling idle_agent_cpu; do
		grep -q "^$name number" "$dir/figures" || fail "$name was not measured"
	done
	if command -v gnuplot >/dev/null; then
		for png in latency rate; do
			[ -s "$dir/suite-$png.png" ] || fail "no $png plot"
		done
	else
		grep -q '^no plots: gnuplot' "$dir/err" || fail "no word of the plots"
	fi
	ls ./fi_rpmem_bench.* 2>/dev/null && fail "files were left behind"

	# One figure beyond its bar gives exit code 1, and is named.
	timeout 500 $suite suite --iterations 1 --seconds 1 --json "$dir/wrong.json" \
		$(bars 1e9 -1 | sed 's/\(idle_agent_cpu\)=.*/\1=-1/') \
		>"$dir/table" 2>&1
	code=$?
	cat "$dir/table"
	[ $code -eq 1 ] || fail "exit code $code of a suite with a wrong figure"
	figures "$dir/wrong.json" $code >/dev/null || fail "a report with a wrong figure"
	[ "$(grep 'not met' "$dir/table" | cut -d ' ' -f 1)" = idle_agent_cpu ] ||
		fail "the wrong figure, and no other, is not met"
	$suite suite --bar nothing=1 >/dev/null 2>&1
	[ $? -eq 3 ] || fail "a bar of no metric is not exit code 3"

	# Without the provider all its metrics are null, with a reason; the bars
	# are the default ones, and variables of the provider have no effect.
	mkdir "$dir/empty"
	FI_OFI_RPMEM_INLINE=0 FI_PROVIDER_PATH=$dir/empty timeout 300 $suite suite --iterations 1 \
		--seconds 1 --json "$dir/none.json" >"$dir/table" 2>&1
	code=$?
	[ $code -eq 1 ] || fail "exit code $code of a suite without a provider"
	figures "$dir/none.json" $code >"$dir/figures" ||
		fail "a report without a provider"
	grep -q '^FI_OFI_RPMEM_INLINE is ignored' "$dir/table" ||
		fail "a variable of the provider is in effect"
	python3 - "$dir/none.json" "$least" $wanted <<'EOF' || fail "the bars"
import json, sys
bars = json.load(open(sys.argv[1]))["bars"]
for word in sys.argv[3:]:
    name, value = word.split("=")
    at = "least" if name in sys.argv[2].split() else "most"
    if (bars[name]["bar"], bars[name]["at"]) != (float(value), at):
        sys.exit("%s: %r" % (name, bars[name]))
EOF
	grep ' number$' "$dir/figures" && fail "figures of a provider that is not there"
}
# Valgrind cannot run under a sanitizer: there the modes alone run all the code.
[ -n "${RP_SANITIZE:-}" ] || whole

timeout 300 $suite calibrate --iterations 2 --seconds 1 --pool "$dir/pool" \
	--json "$dir/cal.json" >"$dir/table" 2>&1
code=$?
cat "$dir/table"
[ $code -eq 0 ] || fail "exit code $code of calibrate"
python3 - "$dir/cal.json" <<'EOF' || fail "what calibrate found"
import json, sys
cost = json.load(open(sys.argv[1]))["cost"]
lines = [cost["path"]["cpu"]["write"], cost["path"]["cpu"]["store"],
         cost["flush"]["agent-clwb"], cost["flush"]["agent-msync"],
         cost["stream"]]
numbers = [v for l in lines for v in (l["ns"], l["ps"])]
numbers += [cost["path"]["cpu"][k] for k in ("ask_ns", "fence_ns", "fences_ns")]
sys.exit(any(type(v) is not int or v < 0 for v in numbers))
EOF

for mode in pingpong rate write commit mixed sequential flush file \
	initiators; do
	program=$bench
	[ $mode != initiators ] || program=$suite
	timeout 200 "$program" $mode --emulate --iterations 1 --seconds 1 \
		>"$dir/table" 2>&1
	code=$?
	grep 'not obtained' "$dir/table" | grep -v 'msync alone' |
		grep -v 'bytes in the request' &&
		fail "$mode: a figure is missing"
	grep -q ' p50 ' "$dir/table" || fail "$mode: no table"
	[ $code -le 1 ] || fail "exit code $code of $mode"
done

for mode in nonsense suite; do
	$bench $mode >/dev/null 2>&1
	[ $? -eq 2 ] || fail "an unknown mode is not exit code 2"
done
$suite suite --sizes 64 >/dev/null 2>&1
[ $? -eq 2 ] || fail "sizes of the suite are not exit code 2"
exit $failed
