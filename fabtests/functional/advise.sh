#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_info --advise has a verdict for each piece of advice, or a true
# reason why it has none. The verdicts themselves depend on the machine.
set -u
dir=$(mktemp -d ./advise.XXXXXX) || exit 99
daemon=
finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT
provider=$PWD/prov/rpmem/.libs
failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_METHOD

fail()
{
	echo "FAIL: $*"
	cat "$dir/out"
	failed=1
}

# advise CODE ARG...: run it, and check the exit code; its output is in out.
advise()
{
	want=$1
	shift
	FI_PROVIDER_PATH=$provider timeout 120 util/fi_rpmem_info --advise "$@" \
		>"$dir/out" 2>&1
	code=$?
	[ $code -eq "$want" ] || fail "--advise $*: exit code $code, not $want"
}

# A folder: the JSON is complete, and each reason fits this machine.
advise 0 --json "$dir"
method=$(util/fi_rpmem_info "$dir" | sed -n 's/^  method  *//p')
METHOD=$method python3 - "$dir/out" <<'P' || fail "the report of a folder"
import glob, json, os, sys

report = json.load(open(sys.argv[1]))
rows = {r["name"]: r for r in report["advice"]}
VERDICTS = {"holds", "does not hold", "cannot be measured here"}
LINES = ["stores of 64 B", "stores of 256 B", "stores of 4 KiB",
         "bounce of 64 KiB", "bounce, written back", "writers",
         "256 B aligned", "whole lines", "atomics"]
PAGES = ["few pages", "pages aligned"]
PEER = ["connections", "pieces of 64 KiB", "pieces of 256 KiB",
        "pieces of 4 MiB", "commit pipelined"]
bad = []
if list(rows) != LINES + PAGES + ["NUMA node", "DDIO off", "DMA engine"] + PEER:
    bad.append(f"the rows are {list(rows)}")
for r in report["advice"]:
    known = r["verdict"] in VERDICTS
    if not known or not r["source"] or not r["advice"] or not r["set"]:
        bad.append(f"{r}")
    if r["verdict"] == "cannot be measured here":
        if not r["reason"]:
            bad.append(f"{r['name']}: no reason")
        continue
    # The verdict must follow from the ratio.
    q = r["ratio"]
    right = "holds" if q["low"] >= 1.05 else "does not hold"
    if r["verdict"] != right or not q["low"] <= q["median"] <= q["high"]:
        bad.append(f"{r['name']}: {r['verdict']} with {q}")
    if right == "does not hold" and q["high"] >= 1.05:
        bad.append(f"{r['name']}: {q} is no verdict")
    if q["pairs"] < 8:
        bad.append(f"{r['name']}: {q['pairs']} pairs")
if report["method"] != os.environ["METHOD"]:
    bad.append(f"method {report['method']}, not {os.environ['METHOD']}")


def reason(name):
    return rows[name].get("reason", "")


if report["method"] == "agent-msync":
    bad += [n for n in LINES if "commits are by agent-msync" not in reason(n)]
    bad += [n for n in PAGES if "commits here" in reason(n)]
nodes = 0
for f in glob.glob("/sys/devices/system/node/node*/cpulist"):
    nodes += bool(open(f).read().strip())
if ("ratio" in rows["NUMA node"]) != (nodes > 1):
    bad.append(f"{nodes} nodes: {rows['NUMA node']}")
found = [os.path.basename(d) for d in glob.glob("/sys/bus/dsa/devices/dsa[0-9]*")]
for d in found or ["no Intel DSA device"]:
    if d not in reason("DMA engine"):
        bad.append(f"{found}: {reason('DMA engine')}")
if "through no adapter" not in reason("DDIO off"):
    bad.append(reason("DDIO off"))
if "no_connection" in report:
    bad.append(report["no_connection"])
bad += [n for n in PEER if "no connection" in reason(n)]
if report["seconds"] > 30:
    print("left out: the machine is slow,", report["seconds"], "s")
print(*bad, sep="\n")
sys.exit(bool(bad))
P
for f in "$dir"/fi_rpmem_info.*; do
	[ -e "$f" ] && fail "$f is left"
done

# The pool of a daemon is only read, and the table says so.
head -c 9M /dev/urandom >"$dir/bytes"
class=
[ "$method" = agent-msync ] || class='--class none'
export FI_PROVIDER_PATH="$provider"
util/fi_rpmemd --port 0 --port-file "$dir/port" --create 9M "$dir/pool" \
	>"$dir/out" 2>&1 &
daemon=$!
for _ in $(seq 200); do
	[ -e "$dir/port" ] && break
	kill -0 $daemon 2>/dev/null || break
	sleep 0.05
done
port=$(cat "$dir/port") || { fail "no daemon"; exit 1; }
# shellcheck disable=SC2086 # two words, or none
util/fi_rpmem_cp $class --quiet "$dir/bytes" "127.0.0.1:$port:pool" ||
	fail "no copy to the pool"
advise 0 "127.0.0.1:$port:pool"
grep -q "^target 127.0.0.1:$port:pool, only read$" "$dir/out" ||
	fail "no word of the target"
for name in connections 'pieces of 64 KiB' 'pieces of 256 KiB' 'pieces of 4 MiB'; do
	grep -A2 "^$name  " "$dir/out" |
		grep -q '[0-9] (.* to .* pairs)\|by --seconds\|longer than' ||
		fail "no ratio of '$name'"
done
for name in 'stores of 4 KiB' atomics 'few pages' 'NUMA node'; do
	grep -A2 "^$name  *cannot be measured here" "$dir/out" |
		grep -q 'Reason: .* at the target' || fail "'$name' of a target"
done
grep -A2 '^commit pipelined' "$dir/out" | grep -q 'only read' ||
	fail "a write to somebody's pool"
# shellcheck disable=SC2086
util/fi_rpmem_cp --quiet "127.0.0.1:$port:pool" "$dir/back" ||
	fail "no copy from the pool"
cmp "$dir/bytes" "$dir/back" || fail "the pool was written to"
advise 3 "127.0.0.1:$port"
grep -q "names no pool" "$dir/out" || fail "no remedy for a missing pool"
kill "$daemon"
wait "$daemon"
daemon=

# An existing file, two arguments and an absent daemon: nothing is measured.
advise 3 "$dir/bytes"
grep -q 'Not a directory' "$dir/out" || fail "a file of somebody"
advise 3 127.0.0.1:1:pool
grep -q 'nothing listens on port 1 ' "$dir/out" || fail "no cause"
advise 2 "$dir" "$dir"
advise 2 --doctor
advise 2 --seconds=0 "$dir"
grep -q -e '--seconds: ' "$dir/out" || fail "no word of the number"
util/fi_rpmem_info --seconds=9 "$dir" >"$dir/out" 2>&1 ||
	grep -q -e '--seconds goes with --advise' "$dir/out" ||
	fail "--seconds without --advise"
advise 2 --target=127.0.0.1:pool

# An interrupted run leaves no file, nor does one whose login has ended.
for signal in TERM HUP; do
	env --default-signal=HUP util/fi_rpmem_info --advise "$dir" >"$dir/out" 2>&1 &
	job=$!
	for _ in $(seq 200); do
		set -- "$dir"/fi_rpmem_info.*
		[ -e "$1" ] && break
		sleep 0.05
	done
	kill -$signal $job
	wait $job
	code=$?
	[ $code -eq 3 ] || fail "SIG$signal: exit code $code of an interrupted run"
	grep -q 'interrupted' "$dir/out" || fail "SIG$signal: no word of the interrupt"
	set -- "$dir"/fi_rpmem_info.*
	[ -e "$1" ] && fail "SIG$signal: $1 is left"
done
exit $failed
