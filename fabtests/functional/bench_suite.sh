#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_bench: the suite leaves no figure out and makes none up; its modes
# and calibrate say what they promise. Times are never looked at.
set -u
dir=$(mktemp -d "$PWD/bench.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
bench=$PWD/util/fi_rpmem_bench
cd "$dir" || exit 99 # where it makes its files

fail()
{
	echo "FAIL: $*"
	failed=1
}

names="passthrough_latency_ratio passthrough_rate_ratio
	passthrough_instructions_added durable_64B_vs_round_trip
	durable_64B_vs_delivery durable_64B_vs_handwritten
	durable_64KiB_vs_delivery commit_64x64B_vs_writes
	agent_flush_efficiency initiators_16_scaling msync_batching
	idle_agent_cpu"

# figures FILE: every name is a number, or null with a reason; "NAME number".
figures()
{
	python3 - "$1" $names <<'EOF'
import json, sys
report = json.load(open(sys.argv[1]))
metrics, names = report["metrics"], sys.argv[2:]
bad = sorted(set(metrics) ^ set(names))
if bad:
    sys.exit("not the metrics' names: %s" % bad)
for name in names:
    value = metrics[name]
    if value is None and not report["why"].get(name):
        sys.exit("%s: null without a reason" % name)
    if value is not None and (isinstance(value, bool) or value != value
                              or value < 0 or name in report["why"]):
        sys.exit("%s: %r" % (name, value))
    print(name, "null" if value is None else "number")
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
	timeout 500 $bench suite --iterations 2 --seconds 1 --json "$dir/suite.json" \
		>"$dir/table" 2>"$dir/err"
	code=$?
	cat "$dir/table" "$dir/err"
	[ $code -le 1 ] || fail "exit code $code of the suite"
	figures "$dir/suite.json" >"$dir/figures" || fail "the suite's report"
	cat "$dir/figures"
	for name in $names; do
		grep -q "^$name .*[<>]= " "$dir/table" || fail "$name is not printed"
	done
	# What needs neither valgrind nor a disk is a number on any machine.
	for name in passthrough_latency_ratio passthrough_rate_ratio \
		durable_64B_vs_round_trip durable_64B_vs_delivery \
		durable_64B_vs_handwritten durable_64KiB_vs_delivery \
		commit_64x64B_vs_writes agent_flush_efficiency initiators_16_scaling \
		idle_agent_cpu; do
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

	# Without a provider nothing of ours is a number, and all say why.
	mkdir "$dir/empty"
	FI_PROVIDER_PATH=$dir/empty timeout 300 $bench suite --iterations 1 \
		--seconds 1 --json "$dir/none.json" >"$dir/table" 2>&1
	code=$?
	[ $code -eq 1 ] || fail "exit code $code of a suite without a provider"
	figures "$dir/none.json" >"$dir/figures" || fail "a report without a provider"
	grep ' number$' "$dir/figures" && fail "figures of a provider that is not there"
}
# Sanitizers and callgrind do not go together, and the modes run all the code.
[ -n "${RP_SANITIZE:-}" ] || whole

timeout 300 $bench calibrate --iterations 2 --seconds 1 --pool "$dir/pool" \
	--json "$dir/cal.json" --cost "$dir/cal.cost" >"$dir/table" 2>&1
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

# What calibrate writes is what the provider reads, and it is used.
with_cost()
{
	FI_LOG_LEVEL=info FI_OFI_RPMEM_COST=$1 timeout 100 $bench write \
		--emulate --sizes 64 --iterations 1 --seconds 1 2>&1
}
cat "$dir/cal.cost"
for name in "cpu write" "cpu ask" "cpu fence" "cpu fences" "cpu store" \
	agent-clwb agent-msync agent-clwb-msync stream; do
	grep -q "^$name = [0-9]* [0-9]*$" "$dir/cal.cost" || fail "no $name"
done
with_cost "$dir/cal.cost" >"$dir/log"
grep -q "costs are those of $dir/cal.cost" "$dir/log" ||
	fail "what calibrate wrote is not used"
printf 'ofi_rpmem cost 1\ncpu store = 4000000000 0\nend\n' >"$dir/dear.cost"
with_cost "$dir/dear.cost" >"$dir/log"
grep -q 'writes of up to 0 bytes travel' "$dir/log" ||
	fail "stores are dear, and are made all the same"
head -n 4 "$dir/cal.cost" >"$dir/short.cost"
with_cost "$dir/short.cost" >"$dir/log"
grep -q "short.cost:4: .*missing: none of its figures is used" "$dir/log" ||
	fail "a file that was cut off is not named"
grep -q 'writes of up to 4096 bytes travel' "$dir/log" ||
	fail "with a bad file the default is not used"
$bench write --cost "$dir/x" >/dev/null 2>&1
[ $? -eq 2 ] || fail "--cost of another mode is not exit code 2"

for mode in pingpong rate write commit initiators mixed sequential flush; do
	timeout 200 $bench $mode --emulate --iterations 1 --seconds 1 \
		>"$dir/table" 2>&1
	code=$?
	grep 'not obtained' "$dir/table" | grep -v 'msync alone' |
		grep -v 'bytes in the request' &&
		fail "$mode: a figure is missing"
	grep -q ' p50 ' "$dir/table" || fail "$mode: no table"
	[ $code -le 1 ] || fail "exit code $code of $mode"
done

$bench nonsense >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown mode is not exit code 2"
$bench suite --sizes 64 >/dev/null 2>&1
[ $? -eq 2 ] || fail "sizes of the suite are not exit code 2"
exit $failed
